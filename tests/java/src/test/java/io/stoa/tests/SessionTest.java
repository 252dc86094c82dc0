package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.ZooKeeper.States;
import org.junit.jupiter.api.Test;

/** Sessions over restarts, moves and silence. */
class SessionTest extends ServerTest {
    private ServerProcess ownServer() {
        ServerProcess server = ServerProcess.own();
        opened.addLast(server);
        return server;
    }

    @Test
    void sessionOutlivesARestartAndACrash() throws Exception {
        ServerProcess server = ownServer();
        Events seen = new Events();
        ZooKeeper client = connect(server, seen);
        long session = client.getSessionId();
        client.create("/e", bytes("mine"), Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        client.create("/p", bytes("kept"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        for (boolean crash : new boolean[] {false, true, true}) {
            if (crash) {
                server.kill();
            } else {
                server.stop();
            }
            seen.await(KeeperState.Disconnected);
            server.start();
            seen.await(KeeperState.SyncConnected);
            assertEquals(session, client.getSessionId());
            assertEquals(session, client.exists("/e", false).getEphemeralOwner());
            assertArrayEquals(bytes("kept"), client.getData("/p", false, null));
        }
        client.close();
        assertNull(connect(server, new Events()).exists("/e", false));
    }

    @Test
    void watchesAreSetAgainAfterARestart() throws Exception {
        ServerProcess server = ownServer();
        Events seen = new Events();
        ZooKeeper client = connect(server, seen);
        for (String path : List.of("/data", "/children", "/kept")) {
            client.create(path, bytes("0"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        }
        client.getData("/data", true, null);
        client.getChildren("/children", true);
        client.exists("/later", true);
        client.addWatch("/kept", seen, AddWatchMode.PERSISTENT_RECURSIVE);
        if (ServerProcess.PARTITIONS > 1) {
            // Until they have come as far as each other, watches that are set again may bring what was seen.
            Thread.sleep(1000);
            client.exists("/kept", false);
        }
        server.kill();
        seen.await(KeeperState.Disconnected);
        server.start();
        seen.await(KeeperState.SyncConnected);
        assertEquals(List.of(), seen.after(client));
        client.setData("/data", bytes("1"), -1);
        client.create("/children/c", bytes("0"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        client.create("/later", bytes("0"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        client.create("/kept/c", bytes("0"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        assertEquals(
                List.of(
                        "NodeDataChanged /data",
                        "NodeChildrenChanged /children",
                        "NodeCreated /later",
                        "NodeCreated /kept/c"),
                seen.after(client));
    }

    @Test
    void sessionMovesToANewConnection() throws Exception {
        Events first = new Events();
        ZooKeeper owner = connect(ServerProcess.shared(), first);
        owner.create(at("e"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        Events second = new Events();
        ZooKeeper heir = new ZooKeeper(ServerProcess.shared().address(), SESSION_MS, second,
                owner.getSessionId(), owner.getSessionPasswd());
        second.await(KeeperState.SyncConnected);
        assertEquals(owner.getSessionId(), heir.getSessionId());
        assertEquals(heir.getSessionId(), heir.exists(at("e"), false).getEphemeralOwner());
        first.await(KeeperState.Disconnected);
        heir.close();
        assertNull(zk.exists(at("e"), false));
        first.await(KeeperState.Expired);
    }

    @Test
    void wrongPasswordIsAnExpiredSession() throws Exception {
        ZooKeeper owner = connect();
        owner.create(at("e"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        byte[] password = owner.getSessionPasswd().clone();
        password[3] ^= 1;
        Events seen = new Events();
        ZooKeeper thief =
                new ZooKeeper(ServerProcess.shared().address(), SESSION_MS, seen, owner.getSessionId(), password);
        opened.push(thief);
        seen.await(KeeperState.Expired);
        // The attempt may cost the owner its connection, but nothing more.
        eventually("the owner is connected", () -> owner.getState() == States.CONNECTED);
        assertEquals(owner.getSessionId(), zk.exists(at("e"), false).getEphemeralOwner());
    }

    @Test
    void closedSessionIsExpiredForLatecomers() throws Exception {
        ZooKeeper owner = connect();
        long session = owner.getSessionId();
        byte[] password = owner.getSessionPasswd();
        owner.close();
        Events seen = new Events();
        ZooKeeper late = new ZooKeeper(ServerProcess.shared().address(), SESSION_MS, seen, session, password);
        opened.push(late);
        seen.await(KeeperState.Expired);
        assertCode(Code.SESSIONEXPIRED, () -> late.exists("/", false));
        assertFalse(late.getState().isAlive());
    }

    @Test
    void silentSessionExpiresWithItsEphemerals() throws Exception {
        try (RawConnection silent = new RawConnection(ServerProcess.shared())) {
            RawConnection.Session session = silent.greet(RawConnection.Session.fresh(1500));
            assertEquals(1500, session.timeoutMs());
            assertEquals(0, silent.createEphemeral(at("e")));
            long lastHeard = System.nanoTime();
            assertNotNull(zk.exists(at("e"), true));
            assertEquals("NodeDeleted " + at("e"), events.next());
            long silence = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - lastHeard);
            assertTrue(silence >= 1400, () -> "it expired after " + silence + " ms already");
            assertTrue(silence < 5000, () -> "it expired only after " + silence + " ms");
            assertTrue(silent.ends(), "the connection of an expired session stays open");
            try (RawConnection late = new RawConnection(ServerProcess.shared())) {
                RawConnection.Session refused = late.greet(session);
                assertEquals(0, refused.timeoutMs());
                assertEquals(0, refused.id());
                assertTrue(late.ends(), "the connection of a refused session stays open");
            }
        }
    }

    @Test
    void timeoutIsKeptBetweenTheLimits() throws Exception {
        ServerProcess server = ServerProcess.shared();
        assertEquals(1000, connect(server, new Events(), 10).getSessionTimeout());
        assertEquals(7000, connect(server, new Events(), 7000).getSessionTimeout());
        assertEquals(60_000, connect(server, new Events(), 3_600_000).getSessionTimeout());
    }

    @Test
    void ephemeralsOfTheSessionAreListed() throws Exception {
        create(at("e1"), CreateMode.EPHEMERAL);
        create(at("e2"), CreateMode.EPHEMERAL);
        create(at("p"));
        ZooKeeper other = connect();
        other.create(at("theirs"), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        assertEquals(List.of(at("e1"), at("e2")), zk.getEphemerals().stream().sorted().toList());
        assertEquals(List.of(at("e2")), zk.getEphemerals(at("e2")));
        assertEquals(List.of(), zk.getEphemerals("/nowhere"));
    }
}
