// The program breaks an ensemble of servers under load, round after round, and looks for what
// it must not have lost, repeated or shown. The servers come from MEMBER_COMMAND, to which the path
// of a configuration is added.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const complaintsShown = 20

func main() {
	rounds := flag.Int("rounds", 10, "rounds of faults")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what the faults and requests follow from")
	flag.IntVar(&servers, "servers", servers, "servers, at least 3")
	settings := flag.String("config", "zoo.cfg", "settings of the servers")
	stale := flag.Bool("allow-stale-reads", false, "count reads that are stale after a sync, without failing")
	flag.Parse()
	if servers < 3 {
		fmt.Println("linearizable: an ensemble has three servers or more")
		os.Exit(2)
	}
	passed, failed, err := run(*rounds, *seed, *settings, *stale)
	if err != nil {
		fmt.Println("linearizable:", err)
		failed++
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func run(rounds int, seed uint64, settings string, allowStale bool) (passed, failed int, err error) {
	text, err := os.ReadFile(settings)
	if err != nil {
		return 0, 0, err
	}
	dir, err := os.MkdirTemp("", "linearizable-")
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if failed == 0 && err == nil {
			os.RemoveAll(dir)
		} else {
			fmt.Println("the servers' data is kept in", dir)
		}
	}()
	fmt.Printf("seed %d (steers the faults and requests, not the scheduling)\n", seed)
	e, err := startEnsemble(dir, string(text))
	if err != nil {
		return 0, 0, err
	}
	defer e.close()
	count := func(name, told string, complaints []string) {
		fmt.Printf("%s: %s; %d complaints\n", name, told, len(complaints))
		for _, complaint := range complaints[:min(len(complaints), complaintsShown)] {
			fmt.Println(" ", complaint)
		}
		if len(complaints) > 0 {
			failed++
		} else {
			passed++
		}
	}
	seeds := source(seed)
	var last *round
	for number := 1; number <= rounds; number++ {
		begun := time.Now()
		r, err := runRound(e, fmt.Sprintf("/round-%d", number), seeds.Uint64())
		if err != nil {
			return passed, failed, fmt.Errorf("round %d: %w", number, err)
		}
		told := r.told() + fmt.Sprintf("; %.1f s", time.Since(begun).Seconds())
		if allowStale {
			told += fmt.Sprintf("; %d znodes with stale reads", len(r.stale))
		} else {
			r.complaints = append(r.complaints, r.stale...)
		}
		count(fmt.Sprint("round ", number), told, r.complaints)
		last = r
	}
	there, complaints := converge(e, "/")
	count("all rounds together", fmt.Sprintf("%d znodes on each server", len(there)), complaints)
	if last == nil || there == nil {
		return passed, failed, errors.New("there is no history for the canaries")
	}
	count("canaries", "what never happened was acknowledged", canaries(last, there))
	return passed, failed, nil
}

func (r *round) told() string {
	c := r.history.counts
	return fmt.Sprintf("%d done, %d refused, %d unknown, %d sessions expired; %s",
		c[done], c[noNode]+c[nodeExists]+c[badVersion], c[unknown], r.expired, r.faults)
}

// canaries plants acknowledgements that never were, which have to be found, or the checking is worth
// nothing. Returns those that live.
func canaries(r *round, there tree) []string {
	var alive []string
	never := promise{path: r.base + "/kept/never-written", data: "never"}
	if len(broken(there, []promise{never})) != 1 {
		alive = append(alive, "a create that was acknowledged and never written")
	}
	planted := 0
	for path, operations := range r.history.byPath(true) {
		for index, each := range operations {
			asked, told := each.Input.(request), each.Output.(answer)
			// A refused conditional write that claims to have been done is a lost update.
			if asked.verb != set || told.outcome != badVersion {
				continue
			}
			planted++
			lie := slices.Clone(operations)
			lie[index].Output = answer{outcome: done, version: asked.version + 1}
			if porcupine.CheckOperationsTimeout(model, lie, decideTime) != porcupine.Illegal {
				alive = append(alive, fmt.Sprintf("a write on %s that was refused and claims to be done", path))
			}
			break
		}
	}
	if planted == 0 {
		alive = append(alive, "there was no write to plant a lie on")
	}
	return alive
}
