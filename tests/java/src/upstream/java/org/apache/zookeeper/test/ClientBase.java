package org.apache.zookeeper.test;

import io.stoa.tests.ServerProcess;
import java.io.File;
import java.io.IOException;
import java.net.Socket;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.apache.zookeeper.TestableZooKeeper;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZKTestCase;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Takes the place of the class of this name in ZooKeeper's own tests. There it starts a server
 * inside the tests' process; here it starts the server under test, and offers what the tests use.
 * Tests that reach into the server's objects (`serverFactory`) cannot work and are left out.
 */
public abstract class ClientBase extends ZKTestCase {
    protected static final Logger LOG = LoggerFactory.getLogger(ClientBase.class);
    public static int CONNECTION_TIMEOUT = 30_000;

    /** Settings that tests give to their server as Java properties, with this in front. */
    private static final String PREFIX = "zookeeper.";
    private static final List<String> SETTINGS = List.of(
            "4lw.commands.whitelist",
            "DigestAuthenticationProvider.superDigest",
            "enforceQuota",
            "extendedTypesEnabled",
            "nio.sessionlessCnxnTimeout",
            "skipACL");

    protected String hostPort = "127.0.0.1:0";
    protected int maxCnxns = 0;
    protected ServerCnxnFactory serverFactory;
    protected File tmpDir;
    protected boolean exceptionOnFailedConnect;

    private final List<ZooKeeper> clients = new ArrayList<>();
    private ServerProcess server;

    @BeforeEach
    public void setUp() throws Exception {
        setUpAll();
        setupCustomizedEnv();
        tmpDir = createTmpDir();
        startServer();
    }

    protected void setUpAll() throws Exception {}

    protected void setUpWithServerId(int serverId) throws Exception {
        setUp();
    }

    public void setupCustomizedEnv() {}

    public void cleanUpCustomizedEnv() {}

    /** Starts the server again with its data, or a new one. */
    protected void startServer() throws Exception {
        if (server == null) {
            server = new ServerProcess(0, settings());
            hostPort = server.address();
        }
        server.start();
    }

    private Map<String, String> settings() {
        Map<String, String> settings = new HashMap<>();
        settings.put("tickTime", "3000");
        settings.put("maxClientCnxns", Integer.toString(maxCnxns));
        for (String name : SETTINGS) {
            String value = System.getProperty(PREFIX + name);
            if (value != null) {
                settings.put(name, value);
            }
        }
        return settings;
    }

    protected void stopServer() throws Exception {
        if (server != null && server.isRunning()) {
            server.stop();
        }
    }

    @AfterEach
    public void tearDown() throws Exception {
        tearDownAll();
        if (server != null) {
            server.close();
            server = null;
        }
        recursiveDelete(tmpDir);
        cleanUpCustomizedEnv();
    }

    protected void tearDownAll() throws Exception {
        for (ZooKeeper client : clients) {
            client.close();
        }
        clients.clear();
    }

    protected TestableZooKeeper createClient() throws IOException, InterruptedException {
        return createClient(hostPort);
    }

    protected TestableZooKeeper createClient(String address) throws IOException, InterruptedException {
        return createClient(new CountdownWatcher(), address);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher) throws IOException, InterruptedException {
        return createClient(watcher, hostPort);
    }

    protected TestableZooKeeper createClient(String address, int timeout) throws IOException, InterruptedException {
        return createClient(new CountdownWatcher(), address, timeout);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher, String address)
            throws IOException, InterruptedException {
        return createClient(watcher, address, CONNECTION_TIMEOUT);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher, String address, int timeout)
            throws IOException, InterruptedException {
        watcher.reset();
        TestableZooKeeper client = new TestableZooKeeper(address, timeout, watcher);
        synchronized (clients) {
            clients.add(client);
        }
        try {
            watcher.waitForConnected(timeout);
        } catch (TimeoutException e) {
            throw new AssertionError("no connection to " + address, e);
        }
        return client;
    }

    public static ZooKeeper createZKClient(String address) throws Exception {
        return createZKClient(address, CONNECTION_TIMEOUT);
    }

    public static ZooKeeper createZKClient(String address, int timeout) throws IOException {
        return createZKClient(address, timeout, CONNECTION_TIMEOUT);
    }

    public static ZooKeeper createZKClient(String address, int timeout, long patience) throws IOException {
        return createZKClient(address, timeout, patience, new ZKClientConfig());
    }

    public static ZooKeeper createZKClient(String address, int timeout, long patience, ZKClientConfig config)
            throws IOException {
        CountdownWatcher watcher = new CountdownWatcher();
        ZooKeeper client = new ZooKeeper(address, timeout, watcher, config);
        try {
            watcher.waitForConnected(patience);
        } catch (InterruptedException | TimeoutException e) {
            throw new AssertionError("no connection to " + address, e);
        }
        return client;
    }

    public static List<HostPort> parseHostPortList(String addresses) {
        return Arrays.stream(addresses.split(",")).map(address -> {
            int colon = address.lastIndexOf(':');
            return new HostPort(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
        }).toList();
    }

    protected static String getHexSessionId(long session) {
        return "0x" + Long.toHexString(session);
    }

    public static File createTmpDir() throws IOException {
        return Files.createTempDirectory("stoa-upstream-").toFile();
    }

    public static File createEmptyTestDir() throws IOException {
        return createTmpDir();
    }

    public static boolean recursiveDelete(File directory) {
        File[] entries = directory == null ? null : directory.listFiles();
        if (entries != null) {
            for (File entry : entries) {
                recursiveDelete(entry);
            }
        }
        return directory == null || directory.delete();
    }

    public static boolean waitForServerUp(String address, long patience) {
        return waitFor(address, patience, true);
    }

    public static boolean waitForServerDown(String address, long patience) {
        return waitFor(address, patience, false);
    }

    private static boolean waitFor(String address, long patience, boolean up) {
        HostPort place = parseHostPortList(address).get(0);
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patience);
        while (accepts(place) != up) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
        }
        return true;
    }

    private static boolean accepts(HostPort place) {
        try (Socket socket = new Socket(place.host, place.port)) {
            return socket.isConnected();
        } catch (IOException e) {
            return false;
        }
    }

    protected static void verifyThreadTerminated(Thread thread, long patience) throws InterruptedException {
        thread.join(patience);
        if (thread.isAlive()) {
            throw new AssertionError("thread " + thread.getName() + " still runs");
        }
    }

    public static void setupTestEnv() {}

    public static void logAllStackTraces() {}

    /** Server and port as one writes them. */
    public static class HostPort {
        final String host;
        final int port;

        public HostPort(String host, int port) {
            this.host = host;
            this.port = port;
        }
    }

    /** For clients that nobody listens to. */
    public static class NullWatcher implements Watcher {
        @Override
        public void process(WatchedEvent event) {}
    }

    /** Follows the state of a connection, and lets tests wait for it. */
    public static class CountdownWatcher implements Watcher {
        private Event.KeeperState state = Event.KeeperState.Disconnected;

        public CountdownWatcher() {}

        public synchronized void reset() {
            state = Event.KeeperState.Disconnected;
        }

        @Override
        public synchronized void process(WatchedEvent event) {
            if (event.getType() == Event.EventType.None || isUp(event.getState()) != isConnected()) {
                state = event.getState();
            }
            notifyAll();
        }

        private static boolean isUp(Event.KeeperState state) {
            return state == Event.KeeperState.SyncConnected || state == Event.KeeperState.ConnectedReadOnly;
        }

        public synchronized boolean isConnected() {
            return isUp(state);
        }

        protected synchronized String connectionDescription() {
            return "connection state " + state;
        }

        public void waitForConnected(long patience) throws InterruptedException, TimeoutException {
            await(patience, this::isConnected);
        }

        public void waitForSyncConnected(long patience) throws InterruptedException, TimeoutException {
            await(patience, () -> state == Event.KeeperState.SyncConnected);
        }

        public void waitForReadOnlyConnected(long patience) throws InterruptedException, TimeoutException {
            await(patience, () -> state == Event.KeeperState.ConnectedReadOnly);
        }

        public void waitForDisconnected(long patience) throws InterruptedException, TimeoutException {
            await(patience, () -> !isConnected());
        }

        private synchronized void await(long patience, BooleanSupplier holds)
                throws InterruptedException, TimeoutException {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patience);
            while (!holds.getAsBoolean()) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    throw new TimeoutException(connectionDescription());
                }
                wait(left);
            }
        }
    }
}
