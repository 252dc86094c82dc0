// The program writes to etcd as `stoa bench` and `stoa bench probe` write to ZooKeeper: the same options
// where it has them, the same reports where they are used. It also brings etcd's server, so that one
// go.mod says which release is measured.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"
)

const keys = 1000

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		etcdmain.Main(append([]string{"etcd"}, os.Args[2:]...))
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "etcd load:", err)
		os.Exit(1)
	}
}

type options struct {
	endpoints []string
	sessions  int
	pipeline  int
	value     string
	warmup    time.Duration
	duration  time.Duration
}

func run() error {
	if len(os.Args) < 2 || (os.Args[1] != "set" && os.Args[1] != "probe") {
		return errors.New("expected `serve`, `set` or `probe`")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	endpoints := flags.String("servers", "", "addresses with commas between")
	sessions := flags.Int("sessions", 6, "clients with a connection each")
	pipeline := flags.Int("pipeline", 1, "writes of a client at a time")
	payload := flags.Int("payload", 100, "bytes of a value")
	warmup := flags.Float64("warmup", 2, "seconds before the measurement")
	duration := flags.Float64("duration", 10, "seconds of the measurement")
	flags.Parse(os.Args[2:])
	o := options{
		endpoints: strings.Split(*endpoints, ","), sessions: *sessions, pipeline: *pipeline,
		value:  strings.Repeat("x", *payload),
		warmup: time.Duration(*warmup * 1e9), duration: time.Duration(*duration * 1e9),
	}
	if os.Args[1] == "probe" {
		return probe(o)
	}
	return load(o)
}

// connect makes one client for each session, which begins at another server.
func connect(o options, failover bool) ([]*clientv3.Client, error) {
	var all []*clientv3.Client
	for number := range o.sessions {
		first := number % len(o.endpoints)
		endpoints := o.endpoints[first : first+1]
		if failover {
			endpoints = slices.Concat(o.endpoints[first:], o.endpoints[:first])
		}
		client, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		})
		if err != nil {
			return nil, err
		}
		all = append(all, client)
	}
	return all, nil
}

// load writes as fast as it is answered, and reports writes in the time that counts.
func load(o options) error {
	all, err := connect(o, false)
	if err != nil {
		return err
	}
	start := time.Now()
	begin, end := start.Add(o.warmup), start.Add(o.warmup+o.duration)
	var mu sync.Mutex
	var latencies []time.Duration
	var failed error
	var running sync.WaitGroup
	for _, client := range all {
		for range o.pipeline {
			running.Go(func() {
				var own []time.Duration
				for sent := time.Now(); sent.Before(end); sent = time.Now() {
					_, err := client.Put(context.Background(), fmt.Sprint("bench/", rand.IntN(keys)), o.value)
					if err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
						return
					}
					if now := time.Now(); now.After(begin) && now.Before(end) {
						own = append(own, now.Sub(sent))
					}
				}
				mu.Lock()
				latencies = append(latencies, own...)
				mu.Unlock()
			})
		}
	}
	running.Wait()
	if failed != nil {
		return failed
	}
	return print(map[string]any{
		"operations": len(latencies),
		"throughput": float64(len(latencies)) / o.duration.Seconds(),
		"latency_us": map[string]any{"set": percentiles(latencies)},
	})
}

func percentiles(latencies []time.Duration) map[string]any {
	slices.Sort(latencies)
	at := func(part float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		return float64(latencies[int(part*float64(len(latencies)-1))].Nanoseconds()) / 1e3
	}
	return map[string]any{"p50": at(0.5), "p99": at(0.99), "max": at(1)}
}

// phase is what `stoa bench probe` reports, as far as it is used.
type phase struct {
	mu           sync.Mutex
	name         string
	start        time.Time
	acknowledged time.Time
	gap          time.Duration
	first        *time.Duration
	writes       int
}

func (p *phase) acknowledge(sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.gap = max(p.gap, now.Sub(p.acknowledged))
	p.acknowledged = now
	p.writes++
	if after := now.Sub(p.start); p.first == nil && sent.After(p.start) {
		p.first = &after
	}
}

func (p *phase) report() map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first any
	if p.first != nil {
		first = p.first.Seconds() * 1e3
	}
	return map[string]any{
		"phase": p.name, "writes": p.writes, "first_write_after_ms": first,
		"longest_gap_ms": max(p.gap, time.Since(p.acknowledged)).Seconds() * 1e3,
		"errors":         map[string]int{}, "sessions_lost": 0,
	}
}

func (p *phase) mark(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.start, p.gap, p.first, p.writes = name, time.Now(), 0, nil, 0
}

// probe writes through whatever server the client finds, until the input ends.
func probe(o options) error {
	all, err := connect(o, true)
	if err != nil {
		return err
	}
	now := time.Now()
	p := &phase{name: "start", start: now, acknowledged: now}
	for number, client := range all {
		if _, err := client.Put(context.Background(), fmt.Sprint("probe/", number), o.value); err != nil {
			return err
		}
		go func() {
			for {
				sent := time.Now()
				// A write whose connection is lost is tried again; one that waits for a leader that is gone
				// is given up in time.
				limit, cancel := context.WithTimeout(context.Background(), time.Second)
				if _, err := client.Put(limit, fmt.Sprint("probe/", number), o.value); err == nil {
					p.acknowledge(sent)
				} else {
					time.Sleep(5 * time.Millisecond)
				}
				cancel()
			}
		}()
	}
	if err := print(map[string]any{"sessions": o.sessions}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		report := p.report()
		if name, marked := strings.CutPrefix(lines.Text(), "mark "); marked {
			p.mark(name)
		}
		if err := print(report); err != nil {
			return err
		}
	}
	return print(p.report())
}

func print(value any) error { return json.NewEncoder(os.Stdout).Encode(value) }
