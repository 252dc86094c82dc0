package io.stoa.tests;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * The server under test as a child process. Its command comes from SERVER_COMMAND, to which
 * the port and the data directory are added; both stay the same over a restart.
 */
public final class ServerProcess implements AutoCloseable {
    /** How many partitions the servers have, if they are Stoa's. */
    static final int PARTITIONS =
            Integer.parseInt(System.getenv().getOrDefault("STOA_PARTITIONS", "1"));

    private static final String HOST = "127.0.0.1";
    private static final int READY_SECONDS = 30;
    // Below those that the system gives to connections: a server may listen at more addresses than the held one.
    private static final int LOWEST_PORT = 12_000;
    private static final int HIGHEST_PORT = 30_000;
    private static final int PORT_ATTEMPTS = 1000;
    /** One for each port that the tests were given: it is bound, and does not listen. */
    private static final Queue<Socket> HOLDERS = new ConcurrentLinkedQueue<>();

    private static ServerProcess shared;

    private final Path directory;
    private final int port;
    private final Map<String, String> settings;
    private final Thread reaper = new Thread(this::kill);
    private Process process;

    /** A server that is not started yet, at a port of its own where 0 is given. The settings are added to the configuration. */
    public ServerProcess(int port, Map<String, String> settings) throws IOException {
        directory = Files.createTempDirectory("stoa-java-");
        this.port = port == 0 ? freePort() : port;
        this.settings = Map.copyOf(settings);
        Runtime.getRuntime().addShutdownHook(reaper);
    }

    /** The server of all tests that don't stop it. It ends with the tests. */
    static synchronized ServerProcess shared() {
        if (shared == null) {
            shared = own();
        }
        return shared;
    }

    /** A server for one test alone, which may stop and kill it. */
    static ServerProcess own() {
        try {
            ServerProcess server = new ServerProcess(0, Map.of());
            server.start();
            return server;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public String address() {
        return HOST + ":" + port;
    }

    public int port() {
        return port;
    }

    public Path directory() {
        return directory;
    }

    public boolean isRunning() {
        return process != null && process.isAlive();
    }

    public void start() throws IOException {
        process = new ProcessBuilder(command())
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(output().toFile()))
                .start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(READY_SECONDS);
        while (!serves()) {
            if (!process.isAlive() || System.nanoTime() > deadline) {
                String state = process.isAlive() ? "does not answer" : "exited with " + process.exitValue();
                throw new IOException("the server " + state + ": " + Files.readString(output()));
            }
            pause(20);
        }
    }

    private List<String> command() throws IOException {
        String given = System.getenv("SERVER_COMMAND");
        if (given == null) {
            throw new IllegalStateException("SERVER_COMMAND is not set; run `cargo xtask java`");
        }
        List<String> command = new ArrayList<>(Arrays.asList(given.trim().split("\\s+")));
        int config = command.indexOf("--config") + 1;
        if (!settings.isEmpty()) {
            command.set(config, withSettings(Path.of(command.get(config))).toString());
        }
        command.addAll(List.of("--port", Integer.toString(port)));
        command.addAll(List.of("--data-dir", directory.resolve("data").toString()));
        return command;
    }

    /** A copy of the configuration in which the settings come last, and so win. */
    private Path withSettings(Path config) throws IOException {
        StringBuilder text = new StringBuilder(Files.readString(config));
        settings.forEach((name, value) -> text.append(name).append('=').append(value).append('\n'));
        return Files.writeString(directory.resolve("own.cfg"), text);
    }

    /** Stops the server as an operator does. */
    public void stop() throws InterruptedException {
        process.destroy();
        if (!process.waitFor(20, TimeUnit.SECONDS)) {
            kill();
            throw new IllegalStateException("the server did not stop in 20 seconds");
        }
    }

    /** Ends the server as a crash does. */
    public void kill() {
        if (process != null) {
            process.destroyForcibly();
            process.onExit().join();
        }
    }

    @Override
    public void close() throws IOException {
        kill();
        Runtime.getRuntime().removeShutdownHook(reaper);
        try (var files = Files.walk(directory)) {
            for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    /** What the server answers to a four-letter word. */
    String ask(String word) throws IOException {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(HOST, port), 1000);
            socket.setSoTimeout(2000);
            socket.getOutputStream().write(word.getBytes(StandardCharsets.US_ASCII));
            ByteArrayOutputStream answer = new ByteArrayOutputStream();
            socket.getInputStream().transferTo(answer);
            return answer.toString(StandardCharsets.UTF_8);
        }
    }

    private boolean serves() {
        try {
            return ask("srvr").contains("Mode:");
        } catch (IOException e) {
            return false;
        }
    }

    private Path output() {
        return directory.resolve("output");
    }

    /**
     * A port that nobody else gets as long as these tests run, also while its server does not listen: neither who
     * looks for one in the same way, nor a connection that the system chooses a port for.
     */
    static int freePort() throws IOException {
        for (int attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
            int port = ThreadLocalRandom.current().nextInt(LOWEST_PORT, HIGHEST_PORT);
            Socket holder = new Socket();
            try {
                holder.bind(new InetSocketAddress(HOST, port));
                // Only now, or it could have been bound beside another holder. The server allows it too, so it may
                // listen.
                holder.setReuseAddress(true);
                HOLDERS.add(holder);
                return port;
            } catch (BindException e) {
                holder.close();
            }
        }
        throw new IOException("no free port from " + LOWEST_PORT + " to " + HIGHEST_PORT);
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
