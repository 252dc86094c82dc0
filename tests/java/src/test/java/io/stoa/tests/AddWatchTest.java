package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher.WatcherType;
import org.junit.jupiter.api.Test;

/** Watches that stay, and how watches are taken away. */
class AddWatchTest extends ServerTest {
    @Test
    void persistentWatchStays() throws Exception {
        zk.addWatch(at("a"), events, AddWatchMode.PERSISTENT);
        create(at("a"));
        zk.setData(at("a"), bytes("1"), -1);
        zk.setData(at("a"), bytes("2"), -1);
        create(at("a/b"));
        zk.setData(at("a/b"), bytes("1"), -1);
        zk.delete(at("a/b"), -1);
        zk.delete(at("a"), -1);
        create(at("a"));
        assertEquals(
                List.of(
                        "NodeCreated " + at("a"),
                        "NodeDataChanged " + at("a"),
                        "NodeDataChanged " + at("a"),
                        "NodeChildrenChanged " + at("a"),
                        "NodeChildrenChanged " + at("a"),
                        "NodeDeleted " + at("a"),
                        "NodeCreated " + at("a")),
                events.after(zk));
    }

    @Test
    void recursiveWatchSeesEverythingBelow() throws Exception {
        zk.addWatch(base, events, AddWatchMode.PERSISTENT_RECURSIVE);
        create(at("a"));
        create(at("a/b"));
        create(at("a/b/c"));
        zk.setData(at("a/b/c"), bytes("x"), -1);
        zk.delete(at("a/b/c"), -1);
        zk.setData(base, bytes("x"), -1);
        zk.multi(List.of(Op.delete(at("a/b"), -1), Op.delete(at("a"), -1)));
        assertEquals(
                List.of(
                        "NodeCreated " + at("a"),
                        "NodeCreated " + at("a/b"),
                        "NodeCreated " + at("a/b/c"),
                        "NodeDataChanged " + at("a/b/c"),
                        "NodeDeleted " + at("a/b/c"),
                        "NodeDataChanged " + base,
                        "NodeDeleted " + at("a/b"),
                        "NodeDeleted " + at("a")),
                events.after(zk));
    }

    @Test
    void recursiveWatchKeepsToItsSubtree() throws Exception {
        create(at("a"));
        zk.addWatch(at("a"), events, AddWatchMode.PERSISTENT_RECURSIVE);
        create(at("ab"));
        create(at("ab/c"));
        zk.delete(at("ab/c"), -1);
        assertEquals(List.of(), events.after(zk));
    }

    @Test
    void oneTimeWatchBesideAPersistentOneIsUsedUp() throws Exception {
        create(at("a"));
        Events once = new Events();
        zk.addWatch(at("a"), events, AddWatchMode.PERSISTENT);
        zk.getData(at("a"), once, null);
        zk.setData(at("a"), bytes("1"), -1);
        zk.setData(at("a"), bytes("2"), -1);
        assertEquals(List.of("NodeDataChanged " + at("a"), "NodeDataChanged " + at("a")), events.after(zk));
        assertEquals(List.of("NodeDataChanged " + at("a")), once.after(zk));
    }

    @Test
    void persistentWatchIsRemoved() throws Exception {
        zk.addWatch(base, events, AddWatchMode.PERSISTENT);
        zk.removeWatches(base, events, WatcherType.Any, false);
        assertEquals("PersistentWatchRemoved " + base, events.next());
        create(at("a"));
        assertEquals(List.of(), events.after(zk));
    }

    @Test
    void recursiveWatchIsRemoved() throws Exception {
        zk.addWatch(base, events, AddWatchMode.PERSISTENT_RECURSIVE);
        zk.removeWatches(base, events, WatcherType.Any, false);
        assertEquals("PersistentWatchRemoved " + base, events.next());
        create(at("a"));
        assertEquals(List.of(), events.after(zk));
    }

    @Test
    void dataWatchIsRemovedAndChildWatchStays() throws Exception {
        zk.getData(base, events, null);
        zk.getChildren(base, events);
        zk.removeWatches(base, events, WatcherType.Data, false);
        assertEquals("DataWatchRemoved " + base, events.next());
        zk.setData(base, bytes("x"), -1);
        create(at("a"));
        assertEquals(List.of("NodeChildrenChanged " + base), events.after(zk));
    }

    @Test
    void childWatchIsRemovedAndDataWatchStays() throws Exception {
        zk.getData(base, events, null);
        zk.getChildren(base, events);
        zk.removeWatches(base, events, WatcherType.Children, false);
        assertEquals("ChildWatchRemoved " + base, events.next());
        create(at("a"));
        zk.setData(base, bytes("x"), -1);
        assertEquals(List.of("NodeDataChanged " + base), events.after(zk));
    }

    @Test
    void allWatchersOfAPathAreRemoved() throws Exception {
        Events other = new Events();
        zk.getData(base, events, null);
        zk.getData(base, other, null);
        zk.removeAllWatches(base, WatcherType.Any, false);
        zk.setData(base, bytes("x"), -1);
        assertEquals(List.of("DataWatchRemoved " + base), events.after(zk));
        assertEquals(List.of("DataWatchRemoved " + base), other.after(zk));
    }

    @Test
    void oneOfTwoWatchersIsRemoved() throws Exception {
        // The client asks the server (checkWatches) and keeps the watch for the other watcher.
        Events other = new Events();
        zk.getData(base, events, null);
        zk.getData(base, other, null);
        zk.removeWatches(base, other, WatcherType.Data, false);
        zk.setData(base, bytes("x"), -1);
        assertEquals(List.of("DataWatchRemoved " + base), other.after(zk));
        assertEquals(List.of("NodeDataChanged " + base), events.after(zk));
    }

    @Test
    void whatIsNotWatchedCannotBeRemoved() throws Exception {
        assertCode(Code.NOWATCHER, () -> zk.removeAllWatches(base, WatcherType.Any, false));
        assertCode(Code.NOWATCHER, () -> zk.removeWatches(base, events, WatcherType.Data, false));
        zk.getData(base, events, null);
        assertCode(Code.NOWATCHER, () -> zk.removeAllWatches(base, WatcherType.Children, false));
    }
}
