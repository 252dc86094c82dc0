package io.stoa.tests;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a client that can be read-only has of one server of three when the other two are gone. */
class ReadOnlyModeTest {
    private static final int SESSION_MS = 6_000;

    private Ensemble ensemble;

    @BeforeEach
    void start() throws Exception {
        // ZooKeeper takes the setting as a property of its Java machine, and only local sessions into the mode.
        assumeTrue(Ensemble.canBeStarted(), "only ensembles of Stoa");
        ensemble = new Ensemble("readonlymode.enabled=true\n");
        ensemble.startAll();
    }

    @AfterEach
    void stop() throws Exception {
        if (ensemble != null) {
            ensemble.close();
        }
    }

    private ZooKeeper client(Events events) throws Exception {
        return new ZooKeeper(ensemble.addresses(), SESSION_MS, events, true);
    }

    private Ensemble.Member leaveAlone() throws Exception {
        Ensemble.Member alone = ensemble.awaitFollower();
        try (ZooKeeper last = new ZooKeeper(alone.address(), SESSION_MS, event -> {})) {
            ServerTest.eventually("a connection", () -> last.getState() == ZooKeeper.States.CONNECTED);
            // It has everything from here on.
            sync(last, "/");
        }
        for (Ensemble.Member member : ensemble.members()) {
            if (member != alone) {
                member.kill();
            }
        }
        ServerTest.eventually("read-only mode", () -> alone.mode().equals("read-only"));
        return alone;
    }

    private static int sync(ZooKeeper client, String path) throws Exception {
        CompletableFuture<Integer> code = new CompletableFuture<>();
        client.sync(path, (rc, synced, context) -> code.complete(rc), null);
        return code.get(20, TimeUnit.SECONDS);
    }

    private void startOthers(Ensemble.Member alone) throws Exception {
        for (Ensemble.Member member : ensemble.members()) {
            if (member != alone) {
                member.start();
            }
        }
    }

    @Test
    void sessionAndWatchesGoThroughTheMode() throws Exception {
        Events events = new Events();
        try (ZooKeeper zk = client(events)) {
            events.await(KeeperState.SyncConnected);
            zk.create("/kept", "1".getBytes(UTF_8), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            zk.create("/mine", null, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            long session = zk.getSessionId();
            Ensemble.Member alone = leaveAlone();

            events.await(KeeperState.ConnectedReadOnly);
            assertEquals(session, zk.getSessionId());
            assertArrayEquals("1".getBytes(UTF_8), zk.getData("/kept", true, null));
            assertEquals(session, zk.exists("/mine", false).getEphemeralOwner());
            assertNotNull(zk.whoAmI());
            ServerTest.assertCode(KeeperException.Code.NOTREADONLY, () -> zk.setData("/kept", null, -1));
            ServerTest.assertCode(KeeperException.Code.NOTREADONLY, () -> zk.delete("/kept", -1));
            assertEquals(KeeperException.Code.NOTREADONLY.intValue(), sync(zk, "/kept"));

            startOthers(alone);
            events.await(KeeperState.SyncConnected);
            assertEquals(session, zk.getSessionId());
            assertEquals(0, sync(zk, "/"));
            assertEquals(session, zk.exists("/mine", false).getEphemeralOwner());
            zk.setData("/kept", null, -1);
            assertEquals("NodeDataChanged /kept", events.next());
        }
    }

    @Test
    void newClientIsServedAndMovesOn() throws Exception {
        Ensemble.Member alone = leaveAlone();
        Events events = new Events();
        try (ZooKeeper zk = client(events)) {
            events.await(KeeperState.ConnectedReadOnly);
            assertNull(zk.exists("/later", true));
            ServerTest.assertCode(
                    KeeperException.Code.NOTREADONLY,
                    () -> zk.create("/later", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
            long guest = zk.getSessionId();
            startOthers(alone);
            events.await(KeeperState.SyncConnected);
            assertFalse(guest == zk.getSessionId(), "what it had was no session");
            zk.create("/later", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            assertEquals("NodeCreated /later", events.next());
        }
    }

    @Test
    void clientThatCannotBeReadOnlyIsNotServed() throws Exception {
        Ensemble.Member alone = leaveAlone();
        try (ZooKeeper zk = new ZooKeeper(alone.address(), SESSION_MS, event -> {})) {
            for (int look = 0; look < 30; look++) {
                assertFalse(zk.getState().isConnected());
                Thread.sleep(100);
            }
        }
    }
}
