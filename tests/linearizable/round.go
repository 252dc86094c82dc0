package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	workers = 6
	// Ephemerals of sessions that were not closed in order go with the session's timeout, which a new
	// leader starts anew.
	goneTime = 2*sessionTimeout + 4*time.Second
	// The client waits this long for the answer to its goodbye; what comes sooner was the answer.
	closedTime = 900 * time.Millisecond
)

// round is one run of faults under load, and what came of it.
type round struct {
	base       string
	history    *history
	workers    []*worker
	visited    []string
	faults     string
	expired    int
	stale      []string
	complaints []string
}

func (r *round) complain(format string, words ...any) {
	r.complaints = append(r.complaints, fmt.Sprintf(format, words...))
}

// runRound wreaks the faults that follow from the seed, heals the ensemble, and looks at what is there.
func runRound(e *ensemble, base string, seed uint64) (*round, error) {
	r := &round{base: base, history: newHistory()}
	guest, err := openSession("guest", e.addresses(0))
	if err != nil {
		return nil, err
	}
	defer guest.conn.Close()
	for _, path := range []string{base, base + "/kept", base + "/numbered", base + "/visits"} {
		if _, err := guest.conn.Create(path, nil, zk.FlagPersistent, acl); err != nil {
			return nil, fmt.Errorf("cannot create %s: %w", path, err)
		}
	}
	r.history = newHistory()
	for number := range workers {
		w, err := startWorker(number, e, base, seed, r.history)
		if err != nil {
			return nil, err
		}
		defer w.conn.Close()
		r.workers = append(r.workers, w)
	}
	visits := make(chan struct{})
	visitor := make(chan struct{})
	go func() { defer close(visitor); r.visitAgainAndAgain(e, visits) }()

	faults, err := wreak(e, plan(source(seed)))
	r.faults = faults
	if err != nil {
		return nil, err
	}
	if err := e.heal(); err != nil {
		return nil, err
	}
	// Work goes on for a moment, so that what was in doubt is seen.
	time.Sleep(time.Second)
	close(visits)
	<-visitor
	for _, w := range r.workers {
		if !w.stop() {
			r.complain("%s: a request without an outcome %v after the faults", w.name, settleTime)
			return r, nil
		}
	}
	r.visitAndLook(e)
	r.look(e)
	return r, nil
}

// visitAgainAndAgain opens sessions, each with an ephemeral, and closes them.
func (r *round) visitAgainAndAgain(e *ensemble, stop <-chan struct{}) {
	for number := 0; ; number++ {
		select {
		case <-stop:
			return
		case <-time.After(200 * time.Millisecond):
		}
		visitor, err := openSession("visitor", e.addresses(number%servers))
		if err != nil {
			// No server could be reached for long; the workers show whether that was right.
			continue
		}
		path := fmt.Sprintf("%s/visits/%d", r.base, number)
		r.visited = append(r.visited, path)
		visitor.conn.Create(path, nil, zk.FlagEphemeral, acl)
		visitor.conn.Close()
	}
}

// visitAndLook closes a session without faults: its ephemeral has to be gone with the answer.
func (r *round) visitAndLook(e *ensemble) {
	visitor, err := openSession("visitor", e.addresses(0))
	if err != nil {
		r.complain("no session after the faults: %v", err)
		return
	}
	path := r.base + "/visits/last"
	if _, err := visitor.conn.Create(path, nil, zk.FlagEphemeral, acl); err != nil {
		r.complain("cannot create %s after the faults: %v", path, err)
	}
	begun := time.Now()
	visitor.conn.Close()
	if time.Since(begun) > closedTime {
		return
	}
	for _, each := range e.servers {
		there, err := dump(each, path)
		if err != nil || len(there) > 0 {
			r.complain("%s: after its session was closed server %d has %v (%v)", path, each.number+1, there, err)
		}
	}
}

// look compares what is there with what was promised.
func (r *round) look(e *ensemble) {
	for _, w := range r.workers {
		// The last reads are part of the history: each worker's session is at some server.
		for register := range registers {
			w.read(fmt.Sprintf("%s/register-%d", r.base, register))
		}
		w.mu.Lock()
		r.expired += w.expired
		r.complaints = append(r.complaints, w.complaints...)
		w.mu.Unlock()
	}
	there := r.waitUntilGone(e)
	if there == nil {
		return
	}
	for _, w := range r.workers {
		r.complaints = append(r.complaints, broken(there, w.kept)...)
		r.complaints = append(r.complaints, broken(there, w.numberedKept)...)
		if w.ephemeral.path != "" && w.ephemeral.owner == w.current() {
			r.complaints = append(r.complaints, broken(there, []promise{w.ephemeral})...)
		}
	}
	r.complaints = append(r.complaints, r.repeated(there)...)
	found, stale := r.history.complaints()
	r.complaints = append(r.complaints, found...)
	r.stale = stale
}

// waitUntilGone waits until no ephemeral is left but those of the sessions that live.
func (r *round) waitUntilGone(e *ensemble) tree {
	deadline := time.Now().Add(goneTime)
	for {
		there, complaints := converge(e, r.base)
		if there == nil {
			r.complaints = append(r.complaints, complaints...)
			return nil
		}
		alive := map[int64]bool{}
		for _, w := range r.workers {
			alive[w.current()] = true
		}
		var left []string
		for path, each := range there {
			if owner := each.stat.EphemeralOwner; owner != 0 && !alive[owner] {
				left = append(left, fmt.Sprintf("%s of session %#x", path, uint64(owner)))
			}
		}
		if len(left) == 0 {
			return there
		}
		if time.Now().After(deadline) {
			r.complain("ephemerals of sessions that are gone: %s", strings.Join(left, ", "))
			return there
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// broken are promises that do not hold.
func broken(there tree, promises []promise) []string {
	var found []string
	for _, each := range promises {
		entry, exists := there[each.path]
		switch {
		case !exists:
			found = append(found, fmt.Sprintf("%s was acknowledged and is not there", each.path))
		case entry.data != each.data:
			found = append(found, fmt.Sprintf("%s has %q, acknowledged was %q", each.path, entry.data, each.data))
		case entry.stat.EphemeralOwner != each.owner:
			found = append(found, fmt.Sprintf("%s belongs to session %#x, not to %#x",
				each.path, uint64(entry.stat.EphemeralOwner), uint64(each.owner)))
		}
	}
	return found
}

// repeated are numbers of sequential znodes that were given twice, those that nobody was told of
// included.
func (r *round) repeated(there tree) []string {
	names := map[string]bool{}
	var found []string
	for _, w := range r.workers {
		for _, path := range w.numbered {
			if names[path] {
				found = append(found, fmt.Sprintf("%s was given twice", path))
			}
			names[path] = true
		}
	}
	for path := range there {
		if strings.HasPrefix(path, r.base+"/numbered/") {
			names[path] = true
		}
	}
	holders := map[string]string{}
	for path := range names {
		_, number, _ := strings.Cut(strings.TrimPrefix(path, r.base+"/numbered/"), "-")
		if other, taken := holders[number]; taken {
			found = append(found, fmt.Sprintf("%s and %s have the same number", path, other))
		}
		holders[number] = path
	}
	return found
}
