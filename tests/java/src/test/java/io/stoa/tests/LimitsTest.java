package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.junit.jupiter.api.Test;

/** Large znodes, many znodes, and what is no request at all. */
class LimitsTest extends ServerTest {
    /** The server's limit for one frame, with the header and the path inside. */
    private static final int FRAME_MAX = 0xfffff;

    @Test
    void nearlyAMegabyteFits() throws Exception {
        byte[] data = new byte[FRAME_MAX - 200];
        new Random(1).nextBytes(data);
        zk.create(at("large"), data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        assertArrayEquals(data, zk.getData(at("large"), false, null));
        assertEquals(data.length, zk.exists(at("large"), false).getDataLength());
    }

    @Test
    void moreThanTheLimitCostsTheConnectionOnly() throws Exception {
        ZooKeeper client = connect();
        long session = client.getSessionId();
        assertCode(Code.CONNECTIONLOSS, () -> client.create(
                at("huge"), new byte[FRAME_MAX + 1], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        eventually("the client is back", () -> {
            try {
                return client.exists(at("huge"), false) == null;
            } catch (KeeperException.ConnectionLossException e) {
                return false;
            }
        });
        assertEquals(session, client.getSessionId());
        assertNotNull(zk.exists(base, false));
    }

    @Test
    void thousandsOfChildren() throws Exception {
        String name = "a-name-of-some-length-";
        for (int i = 0; i < 5000; i++) {
            zk.create(at(name + i), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, (rc, path, c, n) -> {}, null);
        }
        assertNull(zk.exists(at("none"), false));
        assertEquals(5000, zk.getChildren(base, false).size());
        assertEquals(5000, zk.getAllChildrenNumber(base));
        assertEquals(5000, zk.exists(base, false).getNumChildren());
    }

    @Test
    void descendantsAreCountedNotChildren() throws Exception {
        create(at("a"));
        create(at("a/b"));
        create(at("a/b/c"));
        create(at("d"));
        assertEquals(4, zk.getAllChildrenNumber(base));
        assertEquals(2, zk.getAllChildrenNumber(at("a")));
        assertEquals(0, zk.getAllChildrenNumber(at("d")));
    }

    @Test
    void deepPaths() throws Exception {
        StringBuilder path = new StringBuilder(base);
        for (int i = 0; i < 200; i++) {
            create(path.append("/d").toString());
        }
        assertEquals(200, zk.getAllChildrenNumber(base));
    }

    @Test
    void nonsenseEndsTheConnectionAndNothingElse() throws Exception {
        byte[][] nonsense = {
            {0x7f, (byte) 0xff, (byte) 0xff, (byte) 0xff},
            {(byte) 0xff, (byte) 0xff, (byte) 0xff, (byte) 0xff},
            {0, 0, 0, 3, 1, 2, 3},
        };
        for (byte[] bytes : nonsense) {
            try (RawConnection raw = new RawConnection(ServerProcess.shared())) {
                raw.out().write(bytes);
                raw.out().flush();
                assertTrue(raw.ends(), "the connection stays open after nonsense");
            }
        }
        assertNotNull(zk.exists(base, false));
    }

    @Test
    void clientThatDoesNotReadStallsNobody() throws Exception {
        zk.setData(base, new byte[900_000], -1);
        int requests = 40;
        try (RawConnection lazy = new RawConnection(ServerProcess.shared())) {
            lazy.greet(RawConnection.Session.fresh(SESSION_MS));
            for (int i = 1; i <= requests; i++) {
                lazy.sendGetData(i, base);
            }
            long begun = System.nanoTime();
            for (int i = 0; i < 100; i++) {
                create(at("n" + i));
            }
            assertTrue(System.nanoTime() - begun < TimeUnit.SECONDS.toNanos(5), "others have to wait");
            for (int i = 1; i <= requests; i++) {
                ByteBuffer reply = lazy.receive();
                assertEquals(i, reply.getInt(0));
                assertTrue(reply.remaining() > 900_000);
            }
        }
    }

    @Test
    void oldClientsAreAnsweredInTheirForm() throws Exception {
        try (RawConnection old = new RawConnection(ServerProcess.shared())) {
            old.sendGreeting(RawConnection.Session.fresh(SESSION_MS), 0, false);
            assertEquals(36, old.receive().remaining());
        }
        try (RawConnection young = new RawConnection(ServerProcess.shared())) {
            young.sendGreeting(RawConnection.Session.fresh(SESSION_MS), 0, true);
            assertEquals(37, young.receive().remaining());
        }
    }

    @Test
    void clientThatHasSeenTheFutureIsRefused() throws Exception {
        try (RawConnection ahead = new RawConnection(ServerProcess.shared())) {
            ahead.sendGreeting(RawConnection.Session.fresh(SESSION_MS), Long.MAX_VALUE, true);
            assertTrue(ahead.ends(), "a client from the future is let in");
        }
    }

    @Test
    void fourLetterWordsAreAnswered() throws Exception {
        ServerProcess server = ServerProcess.shared();
        assertEquals("imok", server.ask("ruok"));
        assertTrue(server.ask("srvr").matches("(?s).*\nMode: (standalone|leader|follower)\n.*"), "srvr");
        assertTrue(server.ask("stat").contains("Clients:\n"), "stat");
        assertTrue(server.ask("mntr").contains("zk_znode_count\t"), "mntr");
        assertTrue(server.ask("conf").contains("tickTime=500\n"), "conf");
        assertTrue(server.ask("cons").contains("sid=0x" + Long.toHexString(zk.getSessionId())), "cons");
        assertTrue(server.ask("envi").startsWith("Environment:\n"), "envi");
        assertTrue(server.ask("wchs").contains("Total watches:"), "wchs");
        assertEquals("rw", server.ask("isro").trim());
        create(at("e"), CreateMode.EPHEMERAL);
        assertTrue(server.ask("dump").contains(at("e")), "dump");
    }
}
