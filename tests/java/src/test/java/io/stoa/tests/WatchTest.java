package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.List;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.junit.jupiter.api.Test;

/** Watches that fire once. */
class WatchTest extends ServerTest {
    @Test
    void existsWatchSeesTheCreation() throws Exception {
        assertNull(zk.exists(at("a"), true));
        create(at("a"));
        zk.setData(at("a"), bytes("x"), -1);
        assertEquals(List.of("NodeCreated " + at("a")), events.after(zk));
    }

    @Test
    void dataWatchFiresOnce() throws Exception {
        create(at("a"));
        zk.getData(at("a"), true, null);
        zk.setData(at("a"), bytes("1"), -1);
        zk.setData(at("a"), bytes("2"), -1);
        assertEquals(List.of("NodeDataChanged " + at("a")), events.after(zk));
    }

    @Test
    void existsWatchOfAZnodeThatIsThereIsADataWatch() throws Exception {
        create(at("a"));
        zk.exists(at("a"), true);
        zk.delete(at("a"), -1);
        assertEquals(List.of("NodeDeleted " + at("a")), events.after(zk));
    }

    @Test
    void childWatchSeesCreationAndDeletionButNoData() throws Exception {
        create(at("a"));
        zk.getChildren(base, true);
        zk.setData(at("a"), bytes("x"), -1);
        zk.setData(base, bytes("x"), -1);
        assertEquals(List.of(), events.after(zk));
        create(at("b"));
        assertEquals(List.of("NodeChildrenChanged " + base), events.after(zk));
        zk.getChildren(base, true);
        zk.delete(at("b"), -1);
        assertEquals(List.of("NodeChildrenChanged " + base), events.after(zk));
    }

    @Test
    void childWatchSeesOnlyChildrenOfItsOwn() throws Exception {
        create(at("a"));
        zk.getChildren(base, true);
        create(at("a/b"));
        assertEquals(List.of(), events.after(zk));
    }

    @Test
    void deletionOfAZnodeWithTwoWatchesIsToldOnce() throws Exception {
        create(at("a"));
        zk.getData(at("a"), true, null);
        zk.getChildren(at("a"), true);
        zk.getChildren(base, true);
        zk.delete(at("a"), -1);
        assertEquals(List.of("NodeDeleted " + at("a"), "NodeChildrenChanged " + base), events.after(zk));
    }

    @Test
    void twoSettingsAreOneWatch() throws Exception {
        create(at("a"));
        zk.getData(at("a"), true, null);
        zk.getData(at("a"), true, null);
        zk.exists(at("a"), true);
        zk.setData(at("a"), bytes("x"), -1);
        assertEquals(List.of("NodeDataChanged " + at("a")), events.after(zk));
    }

    @Test
    void failedReadLeavesNoWatch() throws Exception {
        assertCode(Code.NONODE, () -> zk.getData(at("a"), true, null));
        assertCode(Code.NONODE, () -> zk.getChildren(at("a"), true));
        create(at("a"));
        zk.setData(at("a"), bytes("x"), -1);
        assertEquals(List.of(), events.after(zk));
    }

    @Test
    void changesOfOthersAreSeen() throws Exception {
        ZooKeeper other = connect();
        zk.exists(at("e"), true);
        other.create(at("e"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        assertEquals(List.of("NodeCreated " + at("e")), events.after(zk));
        zk.exists(at("e"), true);
        zk.getChildren(base, true);
        other.close();
        assertEquals(List.of("NodeDeleted " + at("e"), "NodeChildrenChanged " + base), events.after(zk));
    }

    @Test
    void eventsComeInTheOrderOfTheChanges() throws Exception {
        for (int i = 0; i < 50; i++) {
            zk.exists(at("n" + i), true);
        }
        for (int i = 49; i >= 0; i--) {
            create(at("n" + i));
        }
        List<String> wanted =
                java.util.stream.IntStream.range(0, 50).mapToObj(i -> "NodeCreated " + at("n" + (49 - i))).toList();
        assertEquals(wanted, events.after(zk));
    }
}
