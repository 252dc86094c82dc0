package io.stoa.tests;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.function.Executable;

/** A connected client and an empty znode for each test, on the shared server. */
abstract class ServerTest {
    static final int SESSION_MS = 15_000;
    private static final AtomicInteger NUMBER = new AtomicInteger();

    /** Closed after the test, the last opened first. */
    final Deque<AutoCloseable> opened = new ArrayDeque<>();
    final Events events = new Events();
    ZooKeeper zk;
    /** The znode below which a test works. */
    String base;

    @BeforeEach
    void open() throws Exception {
        zk = connect(ServerProcess.shared(), events);
        base = "/" + getClass().getSimpleName() + NUMBER.incrementAndGet();
        create(base);
    }

    @AfterEach
    void close() throws Exception {
        while (!opened.isEmpty()) {
            opened.pop().close();
        }
    }

    ZooKeeper connect() throws Exception {
        return connect(ServerProcess.shared(), new Events());
    }

    ZooKeeper connect(ServerProcess server, Events events) throws Exception {
        return connect(server, events, SESSION_MS);
    }

    ZooKeeper connect(ServerProcess server, Events events, int timeoutMs) throws Exception {
        ZooKeeper client = new ZooKeeper(server.address(), timeoutMs, events);
        opened.push(client);
        events.await(Watcher.Event.KeeperState.SyncConnected);
        return client;
    }

    String create(String path) throws Exception {
        return create(path, CreateMode.PERSISTENT);
    }

    String create(String path, CreateMode mode) throws Exception {
        return zk.create(path, new byte[0], Ids.OPEN_ACL_UNSAFE, mode);
    }

    /** The path of a child of this test's znode. */
    String at(String name) {
        return base + "/" + name;
    }

    static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    static void assertCode(KeeperException.Code code, Executable request) {
        assertEquals(code, assertThrows(KeeperException.class, request).code());
    }

    /** Waits for what another thread or the server brings about. */
    static void eventually(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!holds.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("never happened: " + what);
            }
            Thread.sleep(20);
        }
    }
}
