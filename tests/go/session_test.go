package tests

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

func TestWatches(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	writer, _ := connect(t, shared)
	there, _, created, err := conn.ExistsW(base + "/a")
	ok(t, err)
	equal(t, "exists", false, there)
	_, _, children, err := conn.ChildrenW(base)
	ok(t, err)
	create(t, writer, base+"/a")
	event := next(t, created)
	equal(t, "type", zk.EventNodeCreated, event.Type)
	equal(t, "path", base+"/a", event.Path)
	equal(t, "type", zk.EventNodeChildrenChanged, next(t, children).Type)

	_, _, changed, err := conn.GetW(base + "/a")
	ok(t, err)
	_, err = writer.Set(base+"/a", []byte("x"), -1)
	ok(t, err)
	equal(t, "type", zk.EventNodeDataChanged, next(t, changed).Type)

	_, _, deleted, err := conn.GetW(base + "/a")
	ok(t, err)
	ok(t, writer.Delete(base+"/a", -1))
	equal(t, "type", zk.EventNodeDeleted, next(t, deleted).Type)
}

func TestSessionAndWatchesOutliveARestart(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		own := ownServer(t)
		conn, events := connect(t, own)
		session := conn.SessionID()
		_, err := conn.Create("/e", []byte("x"), zk.FlagEphemeral, open)
		ok(t, err)
		_, _, changed, err := conn.GetW("/e")
		ok(t, err)
		_, _, created, err := conn.ExistsW("/later")
		ok(t, err)
		own.end(signal)
		await(t, events, zk.StateDisconnected)
		ok(t, own.start())
		await(t, events, zk.StateHasSession)
		equal(t, "session", session, conn.SessionID())
		_, stat, err := conn.Get("/e")
		ok(t, err)
		equal(t, "owner", session, stat.EphemeralOwner)
		_, err = conn.Set("/e", []byte("y"), 0)
		ok(t, err)
		equal(t, "type", zk.EventNodeDataChanged, next(t, changed).Type)
		create(t, conn, "/later")
		equal(t, "type", zk.EventNodeCreated, next(t, created).Type)
	}
}

func TestWatchTellsWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	// The client is cut off by its own connection, changes are made, and it comes back.
	own := ownServer(t)
	proxy := newProxy(t, own.address())
	conn, events, err := zk.Connect([]string{proxy.address()}, sessionTimeout, zk.WithLogger(quiet{}))
	ok(t, err)
	t.Cleanup(conn.Close)
	await(t, events, zk.StateHasSession)
	writer, _ := connect(t, own)
	for _, path := range []string{"/changed", "/deleted", "/parent"} {
		create(t, writer, path)
	}
	watch := func(_ any, _ *zk.Stat, channel <-chan zk.Event, err error) <-chan zk.Event {
		t.Helper()
		ok(t, err)
		return channel
	}
	watched := func(path string) <-chan zk.Event {
		data, stat, channel, err := conn.GetW(path)
		return watch(data, stat, channel, err)
	}
	changed, deleted := watched("/changed"), watched("/deleted")
	names, stat, children, err := conn.ChildrenW("/parent")
	watch(names, stat, children, err)
	there, stat, created, err := conn.ExistsW("/created")
	watch(there, stat, created, err)
	proxy.cut()
	await(t, events, zk.StateDisconnected)
	_, err = writer.Set("/changed", []byte("x"), -1)
	ok(t, err)
	ok(t, writer.Delete("/deleted", -1))
	create(t, writer, "/parent/child")
	create(t, writer, "/created")
	proxy.mend()
	equal(t, "changed", zk.EventNodeDataChanged, next(t, changed).Type)
	equal(t, "deleted", zk.EventNodeDeleted, next(t, deleted).Type)
	equal(t, "parent", zk.EventNodeChildrenChanged, next(t, children).Type)
	equal(t, "created", zk.EventNodeCreated, next(t, created).Type)
}

func TestExpiredSessionIsToldAndReplaced(t *testing.T) {
	t.Parallel()
	own := ownServer(t)
	proxy := newProxy(t, own.address())
	conn, events, err := zk.Connect([]string{proxy.address()}, time.Second, zk.WithLogger(quiet{}))
	ok(t, err)
	t.Cleanup(conn.Close)
	await(t, events, zk.StateHasSession)
	old := conn.SessionID()
	_, err = conn.Create("/e", nil, zk.FlagEphemeral, open)
	ok(t, err)
	witness, _ := connect(t, own)
	_, _, gone, err := witness.ExistsW("/e")
	ok(t, err)
	proxy.cut()
	equal(t, "type", zk.EventNodeDeleted, next(t, gone).Type)
	proxy.mend()
	await(t, events, zk.StateExpired)
	await(t, events, zk.StateHasSession)
	if conn.SessionID() == old {
		t.Fatal("the expired session goes on")
	}
}

func TestLockLetsOneInAtATime(t *testing.T) {
	t.Parallel()
	_, base := fixture(t)
	var inside, entries atomic.Int32
	var wait sync.WaitGroup
	for range 4 {
		conn, _ := connect(t, shared)
		wait.Go(func() {
			for range 10 {
				lock := zk.NewLock(conn, base+"/lock", open)
				if err := lock.Lock(); err != nil {
					t.Error(err)
					return
				}
				if now := inside.Add(1); now != 1 {
					t.Errorf("%d inside", now)
				}
				entries.Add(1)
				inside.Add(-1)
				if err := lock.Unlock(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	equal(t, "entries", int32(40), entries.Load())
}

func TestManyRequestsAtOnce(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	var wait sync.WaitGroup
	for worker := range 32 {
		wait.Go(func() {
			for i := range 30 {
				path := fmt.Sprintf("%s/w%d-%d", base, worker, i)
				if _, err := conn.Create(path, []byte(path), 0, open); err != nil {
					t.Error(err)
				}
				if data, _, err := conn.Get(path); err != nil || string(data) != path {
					t.Errorf("%s: %q, %v", path, data, err)
				}
			}
		})
	}
	wait.Wait()
	children, _, err := conn.Children(base)
	ok(t, err)
	equal(t, "children", 32*30, len(children))
}
