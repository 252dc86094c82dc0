package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	faultsTime = 8 * time.Second
	faultsMin  = 2
	faultsMax  = 5
)

// fault is something that goes wrong at a time and for a time.
type fault struct {
	kind  string
	at    time.Duration
	lasts time.Duration
	// pick chooses among servers where the role leaves a choice.
	pick int
	// leads says whether it is the leader that it happens to.
	leads bool
}

// A kind of fault: how often it is drawn, and how long it lasts at most. A kill lasts until the restart begins.
type kind struct {
	name    string
	weight  int
	longest time.Duration
}

// kinds are those of ensembles of any size.
var kinds = []kind{
	{"kill", 4, 2 * time.Second},
	{"kill-all", 1, 500 * time.Millisecond},
	{"pause", 3, 5 * time.Second},
	{"reset-clients", 1, 0},
	{"cut-clients", 1, 3 * time.Second},
	{"cut-all-clients", 2, 7 * time.Second},
	{"cut-replies", 2, 3 * time.Second},
	{"cut-from", 2, 4 * time.Second},
	{"cut-to", 2, 4 * time.Second},
	{"isolate", 2, 5 * time.Second},
}

// kindsOfMany are those that come in besides where there are more than three: with three there is nobody by way of
// whom a message could come that does not come straight.
var kindsOfMany = []kind{
	{"cut-link", 6, 4 * time.Second},
	{"kill-some", 3, 2 * time.Second},
	{"pause-some", 3, 3 * time.Second},
}

// plan draws the faults of a round.
func plan(random *rand.Rand) []fault {
	kinds := kinds
	if servers > 3 {
		kinds = slices.Concat(kinds, kindsOfMany)
	}
	var bag []int
	for index, kind := range kinds {
		for range kind.weight {
			bag = append(bag, index)
		}
	}
	var faults []fault
	for range faultsMin + random.IntN(faultsMax-faultsMin+1) {
		kind := kinds[bag[random.IntN(len(bag))]]
		faults = append(faults, fault{
			kind:  kind.name,
			at:    time.Duration(random.Int64N(int64(faultsTime))),
			lasts: time.Duration(random.Int64N(int64(kind.longest + 1))),
			pick:  random.IntN(servers),
			leads: random.IntN(2) == 0,
		})
	}
	slices.SortFunc(faults, func(a, b fault) int { return int(a.at - b.at) })
	return faults
}

// wreak lets the faults happen until the last one is over. Returns what happened.
func wreak(e *ensemble, faults []fault) (string, error) {
	type moment struct {
		at time.Duration
		do func() error
	}
	var told []string
	var moments []moment
	for _, each := range faults {
		moments = append(moments, moment{each.at, func() error {
			target := each.target(e)
			told = append(told, fmt.Sprintf("%s %d (%.1f s)", each.kind, target+1, each.lasts.Seconds()))
			end := each.begin(e, target)
			moments = append(moments, moment{each.at + each.lasts, end})
			return nil
		}})
	}
	start := time.Now()
	for len(moments) > 0 {
		slices.SortStableFunc(moments, func(a, b moment) int { return int(a.at - b.at) })
		next := moments[0]
		moments = moments[1:]
		time.Sleep(next.at - time.Since(start))
		if err := next.do(); err != nil {
			return strings.Join(told, ", "), err
		}
	}
	time.Sleep(faultsTime - time.Since(start))
	return strings.Join(told, ", "), nil
}

// target is the server that it happens to.
func (f fault) target(e *ensemble) int {
	leader := e.leader()
	switch {
	case leader < 0:
		return f.pick
	case f.leads:
		return leader
	default:
		return (leader + 1 + f.pick%(servers-1)) % servers
	}
}

// begin lets the fault happen and returns what ends it.
func (f fault) begin(e *ensemble, target int) func() error {
	victim := e.servers[target]
	cut := func(links ...[2]int) func() error {
		for _, link := range links {
			e.network.cut(link[0], link[1])
		}
		return func() error {
			for _, link := range links {
				e.network.mend(link[0], link[1])
			}
			return nil
		}
	}
	var others []int
	for offset := 1; offset < servers; offset++ {
		others = append(others, (target+offset)%servers)
	}
	var from, to [][2]int
	for _, other := range others {
		from = append(from, [2]int{target, other})
		to = append(to, [2]int{other, target})
	}
	// As many as may be away.
	some := []*server{victim}
	for _, other := range others[:max(0, (servers-1)/2-1)] {
		some = append(some, e.servers[other])
	}
	switch f.kind {
	case "kill":
		victim.kill()
		return victim.start
	case "kill-all":
		for _, each := range e.servers {
			each.kill()
		}
		return func() error {
			for _, each := range e.servers {
				if err := each.start(); err != nil {
					return err
				}
			}
			return nil
		}
	case "kill-some":
		for _, each := range some {
			each.kill()
		}
		return func() error {
			for _, each := range some {
				if err := each.start(); err != nil {
					return err
				}
			}
			return nil
		}
	case "pause-some":
		for _, each := range some {
			each.pause()
		}
		return func() error {
			for _, each := range some {
				each.resume()
			}
			return nil
		}
	case "cut-link":
		other := others[f.pick%len(others)]
		return cut([2]int{target, other}, [2]int{other, target})
	case "pause":
		victim.pause()
		return func() error { victim.resume(); return nil }
	case "reset-clients":
		e.toServer[target].reset()
		return func() error { return nil }
	case "cut-clients":
		return cut([2]int{clients, target}, [2]int{target, clients})
	case "cut-all-clients":
		// Long enough for sessions to expire; those that were silent for less must not.
		var links [][2]int
		for each := range servers {
			links = append(links, [2]int{clients, each}, [2]int{each, clients})
		}
		return cut(links...)
	case "cut-replies":
		// What is answered does not arrive, and then the connection ends: outcomes are unknown.
		end := cut([2]int{target, clients})
		return func() error { e.toServer[target].reset(); return end() }
	case "cut-from":
		return cut(from...)
	case "cut-to":
		return cut(to...)
	default:
		return cut(slices.Concat(from, to)...)
	}
}

// source draws what follows from a seed.
func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
