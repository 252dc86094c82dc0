package io.stoa.tests;

import java.io.IOException;
import java.net.Socket;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

/**
 * Three servers that are stopped and started one by one. Their command comes from MEMBER_COMMAND,
 * to which the path of a server's configuration is added.
 */
final class Ensemble implements AutoCloseable {
    private static final String HOST = "127.0.0.1";
    private static final String SETTINGS =
            "tickTime=500\nmaxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n";

    private final Path directory;
    private final String secret = UUID.randomUUID().toString();
    private final List<Member> members = new ArrayList<>();
    private final Thread reaper = new Thread(this::killAll);

    Ensemble(String moreSettings) throws IOException {
        directory = Files.createTempDirectory("stoa-java-");
        for (int number = 1; number <= 3; number++) {
            members.add(new Member(number));
        }
        String lines = members.stream().map(Member::line).collect(Collectors.joining());
        for (Member member : members) {
            member.configure(SETTINGS + moreSettings + lines);
        }
        Runtime.getRuntime().addShutdownHook(reaper);
    }

    /** Whether ensembles of the server under test can be started here. */
    static boolean canBeStarted() {
        return System.getenv("MEMBER_COMMAND") != null;
    }

    List<Member> members() {
        return members;
    }

    void startAll() throws IOException {
        for (Member member : members) {
            member.start();
        }
    }

    /** One that follows the others' leader, once there is one. */
    Member awaitFollower() throws Exception {
        AtomicReference<Member> found = new AtomicReference<>();
        try {
            ServerTest.eventually("a follower", () -> {
                found.set(follower());
                return found.get() != null;
            });
            return found.get();
        } catch (AssertionError e) {
            throw new AssertionError(e.getMessage() + "; what the servers said:\n" + outputs(), e);
        }
    }

    private Member follower() {
        return members.stream().filter(it -> it.mode().equals("follower")).findFirst().orElse(null);
    }

    private String outputs() throws IOException {
        StringBuilder all = new StringBuilder();
        for (Member member : members) {
            String state = member.process.isAlive() ? "running" : "exited with " + member.process.exitValue();
            all.append(member.address()).append(", ").append(state).append(":\n");
            all.append(Files.readString(member.output()));
        }
        return all.toString();
    }

    /** For clients: all servers. */
    String addresses() {
        return members.stream().map(Member::address).collect(Collectors.joining(","));
    }

    private void killAll() {
        members.forEach(Member::kill);
    }

    @Override
    public void close() throws IOException {
        killAll();
        Runtime.getRuntime().removeShutdownHook(reaper);
        try (var files = Files.walk(directory)) {
            for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    /** One of them, which keeps its ports and its data over restarts. */
    final class Member {
        private final int number;
        private final int port = ServerProcess.freePort();
        private final int peerPort = ServerProcess.freePort();
        private final int electionPort = ServerProcess.freePort();
        private Process process;

        private Member(int number) throws IOException {
            this.number = number;
        }

        private String line() {
            return "server." + number + "=" + HOST + ":" + peerPort + ":" + electionPort + ":participant;" + HOST
                    + ":" + port + "\n";
        }

        private void configure(String settings) throws IOException {
            Path data = Files.createDirectories(directory.resolve("data" + number));
            Files.writeString(data.resolve("myid"), Integer.toString(number));
            Files.writeString(configuration(), settings + "dataDir=" + data + "\n");
        }

        private Path configuration() {
            return directory.resolve(number + ".cfg");
        }

        private Path output() {
            return directory.resolve(number + ".out");
        }

        String address() {
            return HOST + ":" + port;
        }

        void start() throws IOException {
            List<String> command =
                    new ArrayList<>(Arrays.asList(System.getenv("MEMBER_COMMAND").trim().split("\\s+")));
            command.add(configuration().toString());
            ProcessBuilder builder = new ProcessBuilder(command)
                    .redirectErrorStream(true)
                    .redirectOutput(ProcessBuilder.Redirect.appendTo(output().toFile()));
            // Elections are quick, so that tests are.
            builder.environment().put("STOA_HEARTBEAT", "50ms");
            builder.environment().put("STOA_ELECTION_TIMEOUT", "400ms");
            builder.environment().put("STOA_PEER_SECRET", secret);
            process = builder.start();
        }

        /** Ends the server as a crash does. */
        void kill() {
            if (process != null) {
                process.destroyForcibly();
                process.onExit().join();
            }
        }

        /** What `srvr` says, such as `leader`; empty while nobody is served. */
        String mode() {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress(HOST, port), 1000);
                socket.setSoTimeout(2000);
                socket.getOutputStream().write("srvr".getBytes(StandardCharsets.US_ASCII));
                String answer = new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
                return answer.lines()
                        .filter(line -> line.startsWith("Mode: "))
                        .map(line -> line.substring("Mode: ".length()))
                        .findFirst()
                        .orElse("");
            } catch (IOException e) {
                return "";
            }
        }
    }
}
