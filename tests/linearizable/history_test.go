package main

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
)

const path = "/a"

func op(from, to int64, asked request, told answer) porcupine.Operation {
	asked.path = path
	return porcupine.Operation{Input: asked, Call: from, Output: told, Return: to}
}

func created(from, to int64, value string) porcupine.Operation {
	return op(from, to, request{verb: create, value: value, version: -1}, answer{})
}

func wrote(from, to int64, value string, version int32) porcupine.Operation {
	return op(from, to, request{verb: set, value: value, version: -1}, answer{version: version})
}

func saw(from, to int64, value string, version int32) porcupine.Operation {
	return op(from, to, request{verb: read, version: -1}, answer{value: value, version: version})
}

func doubtful(from int64, asked request) porcupine.Operation {
	return op(from, math.MaxInt64, asked, answer{outcome: unknown})
}

func TestHistories(t *testing.T) {
	setX := request{verb: set, value: "x", version: -1}
	for name, each := range map[string]struct {
		legal      bool
		operations []porcupine.Operation
	}{
		"a read sees the write before it": {true, []porcupine.Operation{
			created(0, 1, "a"), wrote(2, 3, "b", 1), saw(4, 5, "b", 1)}},
		"a read after a write does not see what was before": {false, []porcupine.Operation{
			created(0, 1, "a"), wrote(2, 3, "b", 1), saw(4, 5, "a", 0)}},
		"a read beside a write may see either": {true, []porcupine.Operation{
			created(0, 1, "a"), wrote(2, 9, "b", 1), saw(3, 4, "a", 0), saw(5, 6, "b", 1)}},
		"what was seen stays": {false, []porcupine.Operation{
			created(0, 1, "a"), wrote(2, 9, "b", 1), saw(3, 4, "b", 1), saw(5, 6, "a", 0)}},
		"two writes do not get one version": {false, []porcupine.Operation{
			created(0, 1, "a"), wrote(2, 5, "b", 1), wrote(3, 6, "c", 1)}},
		"a refusal has a reason": {false, []porcupine.Operation{
			created(0, 1, "a"),
			op(2, 3, request{verb: set, value: "b", version: 0}, answer{outcome: badVersion})}},
		"a create is refused where there is a znode": {true, []porcupine.Operation{
			created(0, 1, "a"),
			op(2, 3, request{verb: create, value: "b", version: -1}, answer{outcome: nodeExists})}},
		"what was deleted is gone": {false, []porcupine.Operation{
			created(0, 1, "a"), op(2, 3, request{verb: remove, version: -1}, answer{}), saw(4, 5, "a", 0)}},
		"a doubtful write may never happen": {true, []porcupine.Operation{
			created(0, 1, "a"), doubtful(2, setX), saw(4, 5, "a", 0)}},
		"a doubtful write may happen late": {true, []porcupine.Operation{
			created(0, 1, "a"), doubtful(2, setX), saw(4, 5, "a", 0), saw(6, 7, "x", 1)}},
		"a doubtful write happens once": {false, []porcupine.Operation{
			created(0, 1, "a"), doubtful(2, setX), saw(4, 5, "x", 1), wrote(6, 7, "b", 2), saw(8, 9, "x", 3)}},
		"a doubtful conditional write needs its version": {false, []porcupine.Operation{
			created(0, 1, "a"), wrote(2, 3, "b", 1),
			doubtful(4, request{verb: set, value: "x", version: 0}), saw(6, 7, "x", 2)}},
	} {
		if porcupine.CheckOperations(model, each.operations) != each.legal {
			t.Errorf("%s: judged wrongly", name)
		}
	}
}

func TestStaleReadsAreToldApartFromLostWrites(t *testing.T) {
	stale := newHistory()
	stale.operations = []porcupine.Operation{created(0, 1, "a"), wrote(2, 3, "b", 1), saw(4, 5, "a", 0)}
	if found, reads := stale.complaints(); len(found) != 0 || len(reads) != 1 {
		t.Errorf("a stale read: %v %v", found, reads)
	}
	lost := newHistory()
	lost.operations = []porcupine.Operation{created(0, 1, "a"), wrote(2, 3, "b", 1), wrote(4, 5, "c", 1)}
	if found, reads := lost.complaints(); len(found) != 1 || len(reads) != 0 {
		t.Errorf("a lost write: %v %v", found, reads)
	}
}

func TestPromises(t *testing.T) {
	there := tree{"/kept": entry{data: "d"}}
	for _, each := range []struct {
		promise promise
		broken  bool
	}{
		{promise{path: "/kept", data: "d"}, false},
		{promise{path: "/kept", data: "e"}, true},
		{promise{path: "/lost", data: "d"}, true},
		{promise{path: "/kept", data: "d", owner: 7}, true},
	} {
		if got := len(broken(there, []promise{each.promise})) > 0; got != each.broken {
			t.Errorf("%+v: broken is %v", each.promise, got)
		}
	}
}

func TestRepeatedNumbers(t *testing.T) {
	numbered := func(names ...string) *round {
		return &round{base: "/r", workers: []*worker{{numbered: names}}}
	}
	one, two, again := "/r/numbered/0-0000000001", "/r/numbered/0-0000000002", "/r/numbered/5-0000000001"
	if found := numbered(one, two).repeated(tree{one: {}, two: {}}); len(found) != 0 {
		t.Error(found)
	}
	if found := numbered(one, one).repeated(nil); len(found) != 1 {
		t.Error("the same name twice", found)
	}
	if found := numbered(one).repeated(tree{again: {}}); len(found) != 1 {
		t.Error("a number that nobody was told of", found)
	}
}
