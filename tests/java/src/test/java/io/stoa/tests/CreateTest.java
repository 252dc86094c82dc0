package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;
import org.junit.jupiter.api.Test;

/** The kinds of znodes. */
class CreateTest extends ServerTest {
    @Test
    void persistentKeepsItsDataAndCountsItsVersions() throws Exception {
        Stat created = new Stat();
        assertEquals(at("a"), zk.create(at("a"), bytes("one"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, created));
        assertEquals(0, created.getVersion());
        assertEquals(3, created.getDataLength());
        assertEquals(created.getCzxid(), created.getMzxid());
        assertEquals(created.getCzxid(), created.getPzxid());
        assertEquals(0, created.getEphemeralOwner());
        Stat set = zk.setData(at("a"), bytes("three"), 0);
        assertEquals(1, set.getVersion());
        assertEquals(created.getCzxid(), set.getCzxid());
        assertTrue(set.getMzxid() > created.getMzxid());
        Stat read = new Stat();
        assertArrayEquals(bytes("three"), zk.getData(at("a"), false, read));
        assertEquals(set, read);
    }

    @Test
    void parentCountsItsChildren() throws Exception {
        Stat before = zk.exists(base, false);
        create(at("a"));
        create(at("b"));
        zk.delete(at("a"), -1);
        Stat after = zk.exists(base, false);
        assertEquals(1, after.getNumChildren());
        assertEquals(before.getCversion() + 3, after.getCversion());
        assertEquals(0, after.getVersion());
        assertTrue(after.getPzxid() > before.getPzxid());
    }

    @Test
    void ephemeralBelongsToItsSession() throws Exception {
        ZooKeeper other = connect();
        other.create(at("e"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        assertEquals(other.getSessionId(), zk.exists(at("e"), false).getEphemeralOwner());
        assertCode(Code.NOCHILDRENFOREPHEMERALS, () -> create(at("e/child")));
        other.close();
        assertNull(zk.exists(at("e"), false));
    }

    @Test
    void sequenceNumbersGrowUnderTheirParent() throws Exception {
        assertEquals(at("s0000000000"), create(at("s"), CreateMode.PERSISTENT_SEQUENTIAL));
        assertEquals(at("e0000000001"), create(at("e"), CreateMode.EPHEMERAL_SEQUENTIAL));
        zk.delete(at("s0000000000"), -1);
        assertEquals(at("0000000002"), create(at(""), CreateMode.PERSISTENT_SEQUENTIAL));
        create(at("plain"));
        assertEquals(at("s0000000004"), create(at("s"), CreateMode.PERSISTENT_SEQUENTIAL));
    }

    @Test
    void containerGoesWhenItsLastChildHasGone() throws Exception {
        create(at("c"), CreateMode.CONTAINER);
        assertEquals(0, zk.exists(at("c"), false).getEphemeralOwner());
        create(at("c/child"));
        zk.delete(at("c/child"), -1);
        eventually("the empty container is deleted", () -> zk.exists(at("c"), false) == null);
    }

    @Test
    void unusedContainerStays() throws Exception {
        create(at("unused"), CreateMode.CONTAINER);
        Thread.sleep(1500);
        assertNotNull(zk.exists(at("unused"), false));
    }

    @Test
    void ttlZnodeGoesWhenItsTimeIsOver() throws Exception {
        Stat stat = new Stat();
        zk.create(at("t"), bytes("x"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, stat, 300);
        assertEquals(0, stat.getEphemeralOwner());
        eventually("the old znode is deleted", () -> zk.exists(at("t"), false) == null);
    }

    @Test
    void ttlZnodeWithChildrenStays() throws Exception {
        Stat stat = new Stat();
        zk.create(at("t"), bytes("x"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, stat, 300);
        create(at("t/child"));
        Thread.sleep(1500);
        assertNotNull(zk.exists(at("t"), false));
        zk.delete(at("t/child"), -1);
        eventually("the old znode is deleted", () -> zk.exists(at("t"), false) == null);
    }

    @Test
    void ttlZnodeCanHaveASequence() throws Exception {
        String path = zk.create(
                at("t-"), bytes("x"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, new Stat(), 60_000);
        assertEquals(at("t-0000000000"), path);
    }

    @Test
    void ttlHasToBeInRange() {
        for (long ttl : List.of(0L, -1L, 1L << 40)) {
            assertThrows(IllegalArgumentException.class, () -> zk.create(
                    at("t"), bytes("x"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, new Stat(), ttl));
        }
    }

    @Test
    void refusals() throws Exception {
        create(at("a"));
        create(at("a/b"));
        assertCode(Code.NODEEXISTS, () -> create(at("a")));
        assertCode(Code.NONODE, () -> create(at("none/child")));
        assertCode(Code.NONODE, () -> zk.getData(at("none"), false, null));
        assertCode(Code.NONODE, () -> zk.setData(at("none"), bytes("x"), -1));
        assertCode(Code.NONODE, () -> zk.delete(at("none"), -1));
        assertCode(Code.NONODE, () -> zk.getChildren(at("none"), false));
        assertCode(Code.NOTEMPTY, () -> zk.delete(at("a"), -1));
        assertCode(Code.BADVERSION, () -> zk.setData(at("a"), bytes("x"), 7));
        assertCode(Code.BADVERSION, () -> zk.delete(at("a/b"), 7));
        assertCode(Code.NODEEXISTS, () -> create("/"));
        assertCode(Code.BADARGUMENTS, () -> zk.delete("/", -1));
        assertNull(zk.exists(at("none"), false));
    }

    @Test
    void emptyAndMissingDataAreTwoThings() throws Exception {
        zk.create(at("null"), null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.create(at("empty"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        assertNull(zk.getData(at("null"), false, null));
        assertArrayEquals(new byte[0], zk.getData(at("empty"), false, null));
    }

    @Test
    void namesMayBeInAnyScript() throws Exception {
        create(at("στοά"));
        create(at("柱廊"));
        create(at("with blank"));
        assertEquals(List.of("with blank", "στοά", "柱廊"), zk.getChildren(base, false).stream().sorted().toList());
    }

    @Test
    void childrenComeWithTheStatOfTheParent() throws Exception {
        create(at("a"));
        create(at("b"));
        Stat stat = new Stat();
        assertEquals(List.of("a", "b"), zk.getChildren(base, false, stat).stream().sorted().toList());
        assertEquals(zk.exists(base, false), stat);
    }

    @Test
    void theServersOwnZnodesAreThere() throws Exception {
        assertTrue(zk.getChildren("/", false).contains("zookeeper"));
        // Where there are several sites there is also the list of them.
        assertEquals(List.of("config", "quota"),
            zk.getChildren("/zookeeper", false).stream().filter(name -> !name.equals("sites")).sorted().toList());
        assertCode(Code.NOAUTH, () -> zk.setData("/zookeeper/config", bytes("x"), -1));
    }

    @Test
    void chrootIsInvisible() throws Exception {
        Events seen = new Events();
        ZooKeeper inside = new ZooKeeper(ServerProcess.shared().address() + base, SESSION_MS, seen);
        opened.push(inside);
        assertNull(inside.exists("/a", true));
        assertEquals("/a", inside.create("/a", bytes("x"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        assertEquals("NodeCreated /a", seen.next());
        assertNotNull(zk.exists(at("a"), false));
        assertEquals(List.of("a"), inside.getChildren("/", false));
    }
}
