package tests

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

var open = zk.WorldACL(zk.PermAll)

func TestCreateSetGetDelete(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	path, err := conn.Create(base+"/a", []byte("one"), zk.FlagPersistent, open)
	ok(t, err)
	equal(t, "path", base+"/a", path)
	stat, err := conn.Set(path, []byte("three"), 0)
	ok(t, err)
	equal(t, "version", int32(1), stat.Version)
	data, read, err := conn.Get(path)
	ok(t, err)
	equal(t, "data", "three", string(data))
	equal(t, "stat", *stat, *read)
	equal(t, "length", int32(5), read.DataLength)
	ok(t, conn.Delete(path, 1))
	there, _, err := conn.Exists(path)
	ok(t, err)
	equal(t, "exists", false, there)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	create(t, conn, base+"/a")
	create(t, conn, base+"/a/b")
	refuse := func(what string, wanted, got error) {
		t.Helper()
		equal(t, what, wanted, got)
	}
	_, err := conn.Create(base+"/a", nil, 0, open)
	refuse("create again", zk.ErrNodeExists, err)
	_, err = conn.Create(base+"/none/b", nil, 0, open)
	refuse("create without a parent", zk.ErrNoNode, err)
	_, err = conn.Set(base+"/a", nil, 5)
	refuse("set another version", zk.ErrBadVersion, err)
	refuse("delete a parent", zk.ErrNotEmpty, conn.Delete(base+"/a", -1))
	refuse("delete another version", zk.ErrBadVersion, conn.Delete(base+"/a/b", 5))
	refuse("delete nothing", zk.ErrNoNode, conn.Delete(base+"/none", -1))
	_, _, err = conn.Children(base + "/none")
	refuse("children of nothing", zk.ErrNoNode, err)
	_, err = conn.Create(base+"/c", nil, 0, nil)
	refuse("create without rights", zk.ErrInvalidACL, err)
}

func TestSequenceAndEphemeral(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	for i := range 3 {
		path, err := conn.Create(base+"/s", nil, zk.FlagSequence, open)
		ok(t, err)
		equal(t, "path", fmt.Sprintf("%s/s%010d", base, i), path)
	}
	other, _ := connect(t, shared)
	path, err := other.Create(base+"/e", nil, zk.FlagEphemeral|zk.FlagSequence, open)
	ok(t, err)
	_, stat, err := conn.Exists(path)
	ok(t, err)
	equal(t, "owner", other.SessionID(), stat.EphemeralOwner)
	_, err = conn.Create(path+"/child", nil, 0, open)
	equal(t, "child of an ephemeral", zk.ErrNoChildrenForEphemerals, err)
	other.Close()
	there, _, err := conn.Exists(path)
	ok(t, err)
	equal(t, "exists after close", false, there)
}

func TestProtectedEphemeralSequential(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	path, err := conn.CreateProtectedEphemeralSequential(base+"/p", nil, open)
	ok(t, err)
	if !strings.Contains(path, "_c_") || !strings.HasSuffix(path, "0000000000") {
		t.Fatalf("odd path %s", path)
	}
}

func TestContainerGoesWithItsLastChild(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	_, err := conn.CreateContainer(base+"/c", nil, zk.FlagContainer, open)
	ok(t, err)
	create(t, conn, base+"/c/child")
	ok(t, conn.Delete(base+"/c/child", -1))
	eventually(t, "the container is deleted", func() bool {
		there, _, err := conn.Exists(base + "/c")
		return err == nil && !there
	})
}

func TestTTLZnodeGoes(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	path, err := conn.CreateTTL(base+"/t", nil, zk.FlagTTL, open, 300*time.Millisecond)
	ok(t, err)
	kept, err := conn.CreateTTL(base+"/s", nil, zk.FlagPersistentSequentialWithTTL, open, time.Hour)
	ok(t, err)
	equal(t, "path", base+"/s0000000001", kept)
	eventually(t, "the old znode is deleted", func() bool {
		there, _, err := conn.Exists(path)
		return err == nil && !there
	})
	there, _, err := conn.Exists(kept)
	ok(t, err)
	equal(t, "the young znode", true, there)
}

func TestChildrenAndLargeData(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	for i := range 100 {
		create(t, conn, fmt.Sprintf("%s/n%02d", base, i))
	}
	children, stat, err := conn.Children(base)
	ok(t, err)
	sort.Strings(children)
	equal(t, "count", 100, len(children))
	equal(t, "first", "n00", children[0])
	equal(t, "stat", int32(100), stat.NumChildren)
	equal(t, "cversion", int32(100), stat.Cversion)
	large := bytes.Repeat([]byte("stoa"), 250_000)
	_, err = conn.Set(base, large, -1)
	ok(t, err)
	data, _, err := conn.Get(base)
	ok(t, err)
	equal(t, "large data", true, bytes.Equal(large, data))
	path, err := conn.Sync(base)
	ok(t, err)
	equal(t, "sync", base, path)
}

func TestMulti(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	results, err := conn.Multi(
		&zk.CreateRequest{Path: base + "/a", Data: []byte("1"), Acl: open},
		&zk.CreateRequest{Path: base + "/a/b", Data: []byte("1"), Acl: open, Flags: zk.FlagSequence},
		&zk.CheckVersionRequest{Path: base + "/a", Version: 0},
		&zk.SetDataRequest{Path: base + "/a", Data: []byte("2"), Version: 0},
		&zk.DeleteRequest{Path: base + "/a/b0000000000", Version: 0},
	)
	ok(t, err)
	equal(t, "results", 5, len(results))
	equal(t, "sequence", base+"/a/b0000000000", results[1].String)
	equal(t, "version", int32(1), results[3].Stat.Version)
}

func TestMultiIsAllOrNothing(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	results, err := conn.Multi(
		&zk.CreateRequest{Path: base + "/a", Acl: open},
		&zk.DeleteRequest{Path: base + "/none", Version: -1},
		&zk.CreateRequest{Path: base + "/b", Acl: open},
	)
	equal(t, "error", zk.ErrNoNode, err)
	equal(t, "results", 3, len(results))
	equal(t, "first", error(nil), results[0].Error)
	equal(t, "second", zk.ErrNoNode, results[1].Error)
	children, _, err := conn.Children(base)
	ok(t, err)
	equal(t, "children", 0, len(children))
}

func TestAcls(t *testing.T) {
	t.Parallel()
	conn, base := fixture(t)
	_, err := conn.Create(base+"/a", []byte("x"), 0, zk.DigestACL(zk.PermAll, "ann", "secret"))
	ok(t, err)
	_, _, err = conn.Get(base + "/a")
	equal(t, "without the password", zk.ErrNoAuth, err)
	_, err = conn.Create(base+"/b", nil, 0, zk.AuthACL(zk.PermAll))
	equal(t, "auth of nobody", zk.ErrInvalidACL, err)
	ok(t, conn.AddAuth("digest", []byte("ann:secret")))
	_, _, err = conn.Get(base + "/a")
	ok(t, err)
	_, err = conn.Create(base+"/b", nil, 0, zk.AuthACL(zk.PermRead))
	ok(t, err)
	acl, _, err := conn.GetACL(base + "/b")
	ok(t, err)
	equal(t, "entries", 1, len(acl))
	// Only who may administer sees the hash of the password.
	equal(t, "entry", zk.ACL{Perms: zk.PermRead, Scheme: "digest", ID: "ann:x"}, acl[0])
	_, err = conn.SetACL(base+"/b", open, 0)
	equal(t, "no admin", zk.ErrNoAuth, err)
	stat, err := conn.SetACL(base+"/a", open, 0)
	ok(t, err)
	equal(t, "aversion", int32(1), stat.Aversion)
}
