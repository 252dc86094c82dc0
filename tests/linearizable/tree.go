package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	convergeTime = 20 * time.Second
	shownMax     = 5
)

// entry is a znode as a server shows it.
type entry struct {
	data string
	stat zk.Stat
}

// tree is all znodes below a path, by path.
type tree map[string]entry

// dump reads the tree below a path from one server alone, as it is after a sync.
func dump(s *server, below string) (tree, error) {
	reader, err := openSession(fmt.Sprint("reader of server ", s.number+1), []string{s.address()})
	if err != nil {
		return nil, err
	}
	defer reader.conn.Close()
	if _, err := reader.conn.Sync(below); err != nil {
		return nil, err
	}
	found := tree{}
	rest := []string{below}
	for len(rest) > 0 {
		path := rest[0]
		rest = rest[1:]
		data, stat, err := reader.conn.Get(path)
		if err == zk.ErrNoNode {
			// The ephemeral of a session that has expired since.
			continue
		}
		if err != nil {
			return nil, err
		}
		found[path] = entry{string(data), *stat}
		children, _, err := reader.conn.Children(path)
		if err != nil && err != zk.ErrNoNode {
			return nil, err
		}
		for _, child := range children {
			if full := strings.TrimSuffix(path, "/") + "/" + child; full != "/zookeeper" {
				rest = append(rest, full)
			}
		}
	}
	return found, nil
}

// converge waits until all servers show the same tree. Sessions that ended may still be expiring.
func converge(e *ensemble, below string) (tree, []string) {
	deadline := time.Now().Add(convergeTime)
	for {
		trees := make([]tree, servers)
		var failed error
		for number, each := range e.servers {
			if trees[number], failed = dump(each, below); failed != nil {
				break
			}
		}
		if failed == nil {
			var found []string
			for other := 1; other < servers; other++ {
				found = append(found, differences(trees[0], trees[other], 1, other+1)...)
			}
			if len(found) == 0 {
				return trees[0], nil
			}
			failed = fmt.Errorf("the servers differ after %v: %s", convergeTime, strings.Join(found, "; "))
		}
		if time.Now().After(deadline) {
			return nil, []string{failed.Error()}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func differences(a, b tree, nameA, nameB int) []string {
	paths := map[string]bool{}
	for _, each := range []tree{a, b} {
		for path := range each {
			paths[path] = true
		}
	}
	var found []string
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if one, two := a[path], b[path]; one != two {
			found = append(found, fmt.Sprintf("%s: server %d has %+v, server %d has %+v", path, nameA, one, nameB, two))
		}
	}
	return found[:min(len(found), shownMax)]
}
