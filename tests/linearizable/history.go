package main

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

const decideTime = 60 * time.Second

type verb int

const (
	read verb = iota
	create
	set
	remove
)

func (v verb) String() string { return [...]string{"read", "create", "set", "delete"}[v] }

// request is what a client asked of one znode. Values are written once only, so that a value tells
// who wrote it.
type request struct {
	verb    verb
	path    string
	value   string
	version int32 // that the znode has to have; -1 is any
}

type outcome int

const (
	done       outcome = iota
	noNode             // refused, as there is no znode
	nodeExists         // refused, as there is one
	badVersion         // refused, as it has another version
	unknown            // the connection was lost: it may have happened, or happen yet
)

func (o outcome) String() string {
	return [...]string{"done", "no node", "node exists", "bad version", "unknown"}[o]
}

// answer is what a client was told.
type answer struct {
	outcome outcome
	value   string // of a read
	version int32  // after a set, or of a read
}

// znode is the state that the model keeps.
type znode struct {
	exists  bool
	value   string
	version int32
}

// step is what a znode does, and whether the answer can be that to this request in this state. A
// request whose outcome is unknown does what it can, and is legal always: where it never happened it
// may stand behind everything else.
func step(state, input, output any) (bool, any) {
	before, asked, told := state.(znode), input.(request), output.(answer)
	wanted := func() outcome {
		switch {
		case asked.verb == create && before.exists:
			return nodeExists
		case asked.verb != create && !before.exists:
			return noNode
		case (asked.verb == set || asked.verb == remove) && asked.version >= 0 && asked.version != before.version:
			return badVersion
		}
		return done
	}()
	if told.outcome != unknown && told.outcome != wanted {
		return false, before
	}
	if wanted != done {
		return true, before
	}
	known := told.outcome == done
	switch asked.verb {
	case read:
		return !known || (told.value == before.value && told.version == before.version), before
	case create:
		return true, znode{exists: true, value: asked.value}
	case set:
		after := znode{exists: true, value: asked.value, version: before.version + 1}
		return !known || told.version == after.version, after
	default:
		return true, znode{}
	}
}

var model = porcupine.Model{
	Init: func() any { return znode{} },
	Step: step,
	DescribeOperation: func(input, output any) string {
		asked, told := input.(request), output.(answer)
		return fmt.Sprintf("%v %s %q version %d: %v %q %d",
			asked.verb, asked.path, asked.value, asked.version, told.outcome, told.value, told.version)
	},
}

// history is what all clients did in a round, on the znodes that the model follows.
type history struct {
	mu         sync.Mutex
	start      time.Time
	operations []porcupine.Operation
	counts     map[outcome]int
}

func newHistory() *history {
	return &history{start: time.Now(), counts: map[outcome]int{}}
}

func (h *history) now() int64 { return time.Since(h.start).Nanoseconds() }

// record keeps a request that was sent at a time and answered now.
func (h *history) record(client int, asked request, sent int64, told answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[told.outcome]++
	returned := h.now()
	if told.outcome == unknown {
		if asked.verb == read {
			return
		}
		returned = math.MaxInt64
	}
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: client, Input: asked, Call: sent, Output: told, Return: returned,
	})
}

// byPath are the operations on each znode, reads only if wanted.
func (h *history) byPath(reads bool) map[string][]porcupine.Operation {
	found := map[string][]porcupine.Operation{}
	for _, each := range h.operations {
		asked := each.Input.(request)
		if reads || asked.verb != read {
			found[asked.path] = append(found[asked.path], each)
		}
	}
	return found
}

// complaints says which znodes have no legal order of what was done to them. The second list is of
// those that have one if reads are left out.
func (h *history) complaints() (found, stale []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	writes := h.byPath(false)
	for path, operations := range h.byPath(true) {
		verdict := porcupine.CheckOperationsTimeout(model, operations, decideTime)
		if verdict == porcupine.Ok {
			continue
		}
		if verdict == porcupine.Unknown {
			found = append(found, fmt.Sprintf("%s: %d operations: no verdict in %v", path, len(operations), decideTime))
		} else if porcupine.CheckOperationsTimeout(model, writes[path], decideTime) == porcupine.Ok {
			stale = append(stale, fmt.Sprintf("%s: a read after a sync is not linearizable", path))
		} else {
			found = append(found, fmt.Sprintf("%s: %d operations are not linearizable", path, len(operations)))
		}
	}
	slices.Sort(found)
	slices.Sort(stale)
	return found, stale
}
