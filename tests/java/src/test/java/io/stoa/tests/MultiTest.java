package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.OpResult.CreateResult;
import org.apache.zookeeper.OpResult.ErrorResult;
import org.apache.zookeeper.OpResult.GetChildrenResult;
import org.apache.zookeeper.OpResult.GetDataResult;
import org.apache.zookeeper.OpResult.SetDataResult;
import org.apache.zookeeper.ZooDefs.Ids;
import org.junit.jupiter.api.Test;

/** Several operations as one. */
class MultiTest extends ServerTest {
    private Op creation(String name) {
        return Op.create(at(name), bytes(name), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
    }

    @Test
    void laterOperationsSeeEarlierOnes() throws Exception {
        List<OpResult> results = zk.multi(List.of(
                creation("a"),
                creation("a/b"),
                Op.check(at("a"), 0),
                Op.setData(at("a"), bytes("new"), 0),
                Op.check(at("a"), 1),
                Op.delete(at("a/b"), 0)));
        assertEquals(6, results.size());
        assertEquals(at("a"), assertInstanceOf(CreateResult.class, results.get(0)).getPath());
        assertEquals(1, assertInstanceOf(SetDataResult.class, results.get(3)).getStat().getVersion());
        assertArrayEquals(bytes("new"), zk.getData(at("a"), false, null));
        assertNull(zk.exists(at("a/b"), false));
    }

    @Test
    void oneZxidForAll() throws Exception {
        zk.multi(List.of(creation("a"), creation("b"), Op.setData(at("a"), bytes("x"), 0)));
        long zxid = zk.exists(at("a"), false).getCzxid();
        assertEquals(zxid, zk.exists(at("a"), false).getMzxid());
        assertEquals(zxid, zk.exists(at("b"), false).getCzxid());
        assertEquals(zxid, zk.exists(base, false).getPzxid());
    }

    @Test
    void nothingHappensWhenOneFails() throws Exception {
        create(at("there"));
        KeeperException failure = assertThrows(KeeperException.class, () -> zk.multi(List.of(
                creation("a"),
                Op.setData(at("there"), bytes("x"), 0),
                Op.delete(at("none"), -1),
                creation("b"))));
        assertEquals(Code.NONODE, failure.code());
        List<OpResult> results = failure.getResults();
        int[] errors = results.stream().mapToInt(result -> ((ErrorResult) result).getErr()).toArray();
        int after = Code.RUNTIMEINCONSISTENCY.intValue();
        assertArrayEquals(new int[] {0, 0, Code.NONODE.intValue(), after}, errors);
        assertNull(zk.exists(at("a"), false));
        assertEquals(0, zk.exists(at("there"), false).getVersion());
        assertEquals(1, zk.exists(base, false).getNumChildren());
    }

    @Test
    void failedCheckFailsTheWhole() throws Exception {
        create(at("a"));
        assertCode(Code.BADVERSION, () -> zk.multi(List.of(Op.check(at("a"), 3), Op.delete(at("a"), -1))));
        assertCode(Code.NONODE, () -> zk.multi(List.of(Op.check(at("none"), -1), Op.delete(at("a"), -1))));
        assertNotNull(zk.exists(at("a"), false));
    }

    @Test
    void sequencesEphemeralsAndTtlsCanBePartOfIt() throws Exception {
        List<OpResult> results = zk.multi(List.of(
                Op.create(at("s-"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL),
                Op.create(at("s-"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL),
                Op.create(at("c"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER),
                Op.create(at("t"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, 60_000)));
        List<String> paths = results.stream().map(result -> ((CreateResult) result).getPath()).toList();
        assertEquals(List.of(at("s-0000000000"), at("s-0000000001"), at("c"), at("t")), paths);
        assertEquals(zk.getSessionId(), zk.exists(at("s-0000000001"), false).getEphemeralOwner());
    }

    @Test
    void watchesFireForEachChange() throws Exception {
        create(at("a"));
        zk.getData(at("a"), true, null);
        zk.exists(at("b"), true);
        zk.getChildren(base, true);
        zk.multi(List.of(Op.setData(at("a"), bytes("1"), -1), Op.setData(at("a"), bytes("2"), -1), creation("b")));
        assertEquals(
                List.of("NodeDataChanged " + at("a"), "NodeCreated " + at("b"), "NodeChildrenChanged " + base),
                events.after(zk));
    }

    @Test
    void failedMultiFiresNoWatch() throws Exception {
        create(at("a"));
        zk.getData(at("a"), true, null);
        assertCode(Code.NONODE,
                () -> zk.multi(List.of(Op.setData(at("a"), bytes("1"), -1), Op.delete(at("none"), -1))));
        assertEquals(List.of(), events.after(zk));
    }

    @Test
    void emptyMultiIsNothing() throws Exception {
        assertEquals(List.of(), zk.multi(List.of()));
    }

    @Test
    void readsAnswerEachForItself() throws Exception {
        zk.create(at("a"), bytes("data"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        List<OpResult> results =
                zk.multi(List.of(Op.getData(at("a")), Op.getData(at("none")), Op.getChildren(base), Op.getChildren(at("no"))));
        GetDataResult data = assertInstanceOf(GetDataResult.class, results.get(0));
        assertArrayEquals(bytes("data"), data.getData());
        assertEquals(zk.exists(at("a"), false), data.getStat());
        assertEquals(Code.NONODE.intValue(), assertInstanceOf(ErrorResult.class, results.get(1)).getErr());
        assertEquals(List.of("a"), assertInstanceOf(GetChildrenResult.class, results.get(2)).getChildren());
        assertEquals(Code.NONODE.intValue(), assertInstanceOf(ErrorResult.class, results.get(3)).getErr());
    }

    @Test
    void transactionBuildsAMulti() throws Exception {
        List<OpResult> results = zk.transaction()
                .create(at("a"), bytes("1"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT)
                .check(at("a"), 0)
                .setData(at("a"), bytes("2"), 0)
                .commit();
        assertEquals(3, results.size());
        assertArrayEquals(bytes("2"), zk.getData(at("a"), false, null));
    }

    @Test
    void manyOperations() throws Exception {
        List<Op> ops = java.util.stream.IntStream.range(0, 500).mapToObj(i -> creation("n" + i)).toList();
        assertEquals(500, zk.multi(ops).size());
        assertEquals(500, zk.exists(base, false).getNumChildren());
    }
}
