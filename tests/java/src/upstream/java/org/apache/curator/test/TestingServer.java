package org.apache.curator.test;

import io.stoa.tests.ServerProcess;
import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

/**
 * Takes the place of the class of this name in Curator's own tests: a server with a port and a
 * directory of its own that can be stopped and started again; here it is the server under test.
 */
public class TestingServer implements Closeable {
    private static final String CONTAINER_CHECK = "znode.container.checkIntervalMs";

    private final ServerProcess server;

    public TestingServer() throws Exception {
        this(0, null, true);
    }

    public TestingServer(boolean start) throws Exception {
        this(0, null, start);
    }

    public TestingServer(int port) throws Exception {
        this(port, null, true);
    }

    public TestingServer(int port, boolean start) throws Exception {
        this(port, null, start);
    }

    public TestingServer(int port, File directory) throws Exception {
        this(port, directory, true);
    }

    public TestingServer(int port, File directory, boolean start) throws Exception {
        this(new InstanceSpec(directory, port, -1, -1, true, -1), start);
    }

    public TestingServer(InstanceSpec spec, boolean start) throws Exception {
        Map<String, String> settings = new HashMap<>();
        // Some of the tests ask for a quick check by this property, the others for the usual minute.
        settings.put(CONTAINER_CHECK, System.getProperty(CONTAINER_CHECK, "60000"));
        if (spec.getTickTime() > 0) {
            settings.put("tickTime", Integer.toString(spec.getTickTime()));
        }
        spec.getCustomProperties().forEach((name, value) -> settings.put(name, value.toString()));
        server = new ServerProcess(spec.getPort(), settings);
        if (start) {
            start();
        }
    }

    public int getPort() {
        return server.port();
    }

    public File getTempDirectory() {
        return server.directory().toFile();
    }

    public String getConnectString() {
        return server.address();
    }

    public void start() throws Exception {
        if (!server.isRunning()) {
            server.start();
        }
    }

    public void stop() throws IOException {
        server.kill();
    }

    public void restart() throws Exception {
        stop();
        start();
    }

    @Override
    public void close() throws IOException {
        if (server.directory().toFile().exists()) {
            server.close();
        }
    }
}
