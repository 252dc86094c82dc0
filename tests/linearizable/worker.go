package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	registers  = 4
	pauseMax   = 10 * time.Millisecond
	settleTime = 30 * time.Second
)

var acl = zk.WorldACL(zk.PermAll)

// promise is a znode that was acknowledged, or that might be there.
type promise struct {
	path string
	// data that it was made with.
	data string
	// owner is the session of an ephemeral.
	owner int64
}

// worker does one request after the other in a session of its own, and remembers what it was promised.
type worker struct {
	*session
	number  int
	base    string
	random  *rand.Rand
	history *history
	values  int
	// versions are those last seen of each register, the guess for conditional requests.
	versions map[string]int32

	// kept was created by this worker and never deleted.
	kept []promise
	// numbered are all names of sequential znodes that it was given, numberedKept those not deleted.
	numbered     []string
	numberedKept []promise
	// ephemeral was acknowledged, if its path is not empty.
	ephemeral promise

	stopping chan struct{}
	stopped  chan struct{}
}

func startWorker(number int, e *ensemble, base string, seed uint64, h *history) (*worker, error) {
	s, err := openSession(fmt.Sprint("worker ", number), e.addresses(number%servers))
	if err != nil {
		return nil, err
	}
	w := &worker{
		session: s, number: number, base: base, history: h,
		random:   rand.New(rand.NewPCG(seed, uint64(number)+1)),
		versions: map[string]int32{},
		stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
	go w.run()
	return w, nil
}

// stop ends the work. False means that a request never got an outcome.
func (w *worker) stop() bool {
	close(w.stopping)
	select {
	case <-w.stopped:
		return true
	case <-time.After(settleTime):
		return false
	}
}

func (w *worker) run() {
	defer close(w.stopped)
	for {
		select {
		case <-w.stopping:
			return
		case <-time.After(time.Duration(w.random.Int64N(int64(pauseMax)))):
			w.act()
		}
	}
}

func (w *worker) act() {
	path := fmt.Sprintf("%s/register-%d", w.base, w.random.IntN(registers))
	switch dice := w.random.IntN(100); {
	case dice < 30:
		w.read(path)
	case dice < 45:
		w.create(path)
	case dice < 60:
		w.set(path, -1)
	case dice < 80:
		w.set(path, w.versions[path])
	case dice < 84:
		w.remove(path, -1)
	case dice < 88:
		w.remove(path, w.versions[path])
	case dice < 94:
		w.createKept()
	case dice < 99:
		w.createNumbered()
	default:
		w.createEphemeral()
	}
}

func (w *worker) freshValue() string {
	w.values++
	return fmt.Sprintf("%d-%d", w.number, w.values)
}

func (w *worker) read(path string) {
	asked := request{verb: read, path: path, version: -1}
	sent, identity := w.history.now(), w.current()
	clock := time.Now()
	if _, err := w.conn.Sync(path); err != nil {
		return
	}
	w.answered(clock)
	data, stat, err := w.conn.Get(path)
	if w.current() != identity {
		// The new session may be at a server that the sync did not reach.
		return
	}
	told := answer{outcome: outcomeOf(err)}
	if err == nil {
		told.value, told.version = string(data), stat.Version
		w.versions[path] = stat.Version
	}
	w.history.record(w.number, asked, sent, told)
}

// change sends a request that goes through the leader, and keeps its outcome.
func (w *worker) change(asked request, send func() (int32, error)) outcome {
	sent, clock := w.history.now(), time.Now()
	version, err := send()
	told := answer{outcome: outcomeOf(err), version: version}
	if told.outcome != unknown {
		w.answered(clock)
	}
	w.history.record(w.number, asked, sent, told)
	if told.outcome == done {
		w.versions[asked.path] = version
	}
	return told.outcome
}

func (w *worker) create(path string) outcome {
	value := w.freshValue()
	return w.change(request{verb: create, path: path, value: value, version: -1}, func() (int32, error) {
		_, err := w.conn.Create(path, []byte(value), zk.FlagPersistent, acl)
		return 0, err
	})
}

func (w *worker) set(path string, version int32) {
	value := w.freshValue()
	w.change(request{verb: set, path: path, value: value, version: version}, func() (int32, error) {
		stat, err := w.conn.Set(path, []byte(value), version)
		if err != nil {
			return 0, err
		}
		return stat.Version, nil
	})
}

func (w *worker) remove(path string, version int32) {
	w.change(request{verb: remove, path: path, version: version}, func() (int32, error) {
		return 0, w.conn.Delete(path, version)
	})
}

// createKept makes a znode that nobody touches again: simpler to check than all else.
func (w *worker) createKept() {
	value := w.freshValue()
	path := fmt.Sprintf("%s/kept/%s", w.base, value)
	clock := time.Now()
	if _, err := w.conn.Create(path, []byte(value), zk.FlagPersistent, acl); err == nil {
		w.answered(clock)
		w.kept = append(w.kept, promise{path: path, data: value})
	}
}

// createNumbered makes a sequential znode, and sometimes deletes it, so that a server that took the
// number from what is there would give it twice.
func (w *worker) createNumbered() {
	clock := time.Now()
	path, err := w.conn.Create(fmt.Sprintf("%s/numbered/%d-", w.base, w.number), nil,
		zk.FlagSequence, acl)
	if err != nil {
		return
	}
	w.answered(clock)
	w.numbered = append(w.numbered, path)
	if w.random.IntN(2) == 0 {
		w.conn.Delete(path, -1)
	} else {
		w.numberedKept = append(w.numberedKept, promise{path: path})
	}
}

// createEphemeral makes one ephemeral for each session.
func (w *worker) createEphemeral() {
	owner := w.current()
	if owner == 0 || w.ephemeral.owner == owner {
		return
	}
	path := fmt.Sprintf("%s/ephemeral-%d-%x", w.base, w.number, uint64(owner))
	clock := time.Now()
	if _, err := w.conn.Create(path, nil, zk.FlagEphemeral, acl); err == nil && w.current() == owner {
		w.answered(clock)
		w.ephemeral = promise{path: path, owner: owner}
	}
}

func outcomeOf(err error) outcome {
	switch err {
	case nil:
		return done
	case zk.ErrNoNode:
		return noNode
	case zk.ErrNodeExists:
		return nodeExists
	case zk.ErrBadVersion:
		return badVersion
	}
	return unknown
}
