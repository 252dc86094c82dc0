import io.netty.util.HashedWheelTimer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.apache.bookkeeper.client.BKException.BKNotEnoughBookiesException;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy;
import org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicyImpl;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.feature.FeatureProvider;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.DNSToSwitchMapping;
import org.apache.bookkeeper.proto.BookieAddressResolver;
import org.apache.bookkeeper.stats.StatsLogger;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * Writers of one log at several sites, which take turns: each takes a lock, creates a ledger at the bookies of its site,
 * says so in the log's znode, appends entries until its time is over, closes the ledger, says so, and gives up the lock.
 *
 * <pre>
 * Writers format zk://HOST:PORT/ledgers
 * Writers write 400x24,1000x16 SITE=HOST:PORT=BOOKIE+BOOKIE ...
 * </pre>
 *
 * The second writes 24 turns of 400 ms and 16 of 1000 ms, with a writer for each SITE, and prints each turn as an object of
 * JSON. All writers are threads of this process, each with sessions of its own at the server that its site has; they know
 * of one another only what the lock and the log's znode say. So their times are those of one clock.
 */
public final class Writers {
    private static final String LOG = "/log";
    private static final String LOCK = LOG + "/lock";
    private static final int SESSION_TIMEOUT_MS = 30_000;
    private static final int ENTRY_BYTES = 1024;
    /** Entries that a writer has under way. */
    private static final int OUTSTANDING = 4;
    private static final byte[] PASSWORD = "bench".getBytes();
    /** How much of the log's own data is kept: its last lines. */
    private static final int LINES = 16;

    /** The length of each turn, in milliseconds. */
    private final int[] lengths;
    private final AtomicInteger begun = new AtomicInteger();
    private final AtomicBoolean isTaken = new AtomicBoolean();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final CountDownLatch over;

    private Writers(int[] lengths, int writers) {
        this.lengths = lengths;
        over = new CountDownLatch(writers);
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("format")) {
            format(args[1]);
            return;
        }
        int[] lengths = Arrays.stream(args[1].split(",")).flatMapToInt(Writers::turns).toArray();
        List<String[]> sites = Arrays.stream(args).skip(2).map(arg -> arg.split("=")).toList();
        Writers writers = new Writers(lengths, sites.size());
        try (Session first = new Session(sites.get(0)[1])) {
            first.makeSure(LOG);
            first.makeSure(LOCK);
        }
        for (String[] site : sites) {
            String away = String.join("+", sites.stream().map(each -> each[2]).filter(each -> !each.equals(site[2])).toList());
            Thread thread = new Thread(() -> writers.run(site[0], site[1], away), site[0]);
            thread.setDaemon(true);
            thread.start();
        }
        writers.over.await();
        Throwable failure = writers.failure.get();
        if (failure != null) {
            failure.printStackTrace();
        }
        System.exit(failure == null ? 0 : 1);
    }

    /** Of {@code 400x24}: 24 times 400. */
    private static IntStream turns(String text) {
        String[] parts = text.split("x");
        int length = Integer.parseInt(parts[0]);
        return IntStream.generate(() -> length).limit(Integer.parseInt(parts[1]));
    }

    private static void format(String uri) throws Exception {
        ServerConfiguration configuration = new ServerConfiguration();
        configuration.setMetadataServiceUri(uri);
        if (!BookKeeperAdmin.initNewCluster(configuration)) {
            throw new IllegalStateException("there is something at " + uri + " already");
        }
    }

    private void run(String site, String server, String away) {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri("zk://" + server + "/ledgers");
        configuration.setZkTimeout(SESSION_TIMEOUT_MS);
        configuration.setEnsemblePlacementPolicy(Near.class);
        configuration.setProperty(Near.AWAY, away);
        try (Session session = new Session(server);
                BookKeeper log = BookKeeper.newBuilder(configuration).build()) {
            while (turn(site, session, log)) {}
        } catch (Throwable problem) {
            failure.compareAndSet(null, problem);
            // Nobody else would get any further.
            while (over.getCount() > 0) {
                over.countDown();
            }
        }
        over.countDown();
    }

    /** One turn; false when there have been all. */
    private boolean turn(String site, Session session, BookKeeper log) throws Exception {
        String lock = session.lock(LOCK + "/turn-");
        int number = begun.getAndIncrement();
        if (number >= lengths.length) {
            session.zookeeper.delete(lock, -1);
            return false;
        }
        double acquired = now();
        if (!isTaken.compareAndSet(false, true)) {
            throw new IllegalStateException("two writers have the lock");
        }
        double end = acquired + lengths[number];
        WriteHandle ledger = log.newCreateLedgerOp()
                .withEnsembleSize(2)
                .withWriteQuorumSize(2)
                .withAckQuorumSize(2)
                .withDigestType(DigestType.CRC32C)
                .withPassword(PASSWORD)
                .execute()
                .get();
        session.append(LOG, "begin " + site + " " + ledger.getId());
        double ready = now();
        int entries = append(ledger, end);
        double written = now();
        ledger.close();
        session.append(LOG, "end " + site + " " + ledger.getId() + " " + System.currentTimeMillis());
        double recorded = now();
        isTaken.set(false);
        session.zookeeper.delete(lock, -1);
        System.out.printf(
                Locale.ROOT,
                "{\"turn_ms\":%d,\"site\":\"%s\",\"acquired\":%.3f,\"ready\":%.3f,\"written\":%.3f,\"recorded\":%.3f,"
                        + "\"released\":%.3f,\"entries\":%d}%n",
                lengths[number], site, acquired, ready, written, recorded, now(), entries);
        return true;
    }

    /** Appends entries until the time is over; returns how many there are. */
    private int append(WriteHandle ledger, double end) throws Exception {
        Semaphore free = new Semaphore(OUTSTANDING);
        byte[] entry = new byte[ENTRY_BYTES];
        int entries = 0;
        while (now() < end) {
            free.acquire();
            entries++;
            ledger.appendAsync(entry).whenComplete((id, problem) -> {
                if (problem != null) {
                    failure.compareAndSet(null, problem);
                }
                free.release();
            });
        }
        free.acquire(OUTSTANDING);
        if (failure.get() != null) {
            throw new IllegalStateException("an entry was not written", failure.get());
        }
        return entries;
    }

    private static double now() {
        return System.nanoTime() / 1e6;
    }

    /** A session of ZooKeeper's own client. */
    private static final class Session implements AutoCloseable {
        private final ZooKeeper zookeeper;

        Session(String server) throws Exception {
            CountDownLatch connected = new CountDownLatch(1);
            zookeeper = new ZooKeeper(server, SESSION_TIMEOUT_MS, event -> connected.countDown());
            connected.await();
        }

        void makeSure(String path) throws Exception {
            if (zookeeper.exists(path, false) == null) {
                zookeeper.create(path, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            }
        }

        /** Takes a lock by ZooKeeper's recipe: who asks first has it first. Returns what is to be deleted then. */
        String lock(String prefix) throws Exception {
            String path = zookeeper.create(prefix, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL);
            String parent = path.substring(0, path.lastIndexOf('/'));
            while (true) {
                List<String> names = new ArrayList<>(zookeeper.getChildren(parent, false));
                names.sort(null);
                int place = names.indexOf(path.substring(parent.length() + 1));
                if (place == 0) {
                    return path;
                }
                if (place < 0) {
                    throw new IllegalStateException(path + " is gone");
                }
                CountDownLatch gone = new CountDownLatch(1);
                if (zookeeper.exists(parent + "/" + names.get(place - 1), event -> gone.countDown()) != null) {
                    gone.await();
                }
            }
        }

        /** Adds a line to a znode that nobody else changes meanwhile: or else that fails. */
        void append(String path, String line) throws Exception {
            Stat stat = new Stat();
            List<String> lines = new ArrayList<>(new String(zookeeper.getData(path, false, stat)).lines().toList());
            lines.add(line);
            String kept = String.join("\n", lines.subList(Math.max(0, lines.size() - LINES), lines.size()));
            zookeeper.setData(path, kept.getBytes(), stat.getVersion());
        }

        @Override
        public void close() throws Exception {
            zookeeper.close();
        }
    }

    /** Chooses among the bookies of the writer's own site. */
    public static final class Near extends RackawareEnsemblePlacementPolicy {
        static final String AWAY = "bookiesAway";
        private Set<BookieId> away;

        @Override
        public RackawareEnsemblePlacementPolicyImpl initialize(
                ClientConfiguration configuration,
                Optional<DNSToSwitchMapping> resolver,
                HashedWheelTimer timer,
                FeatureProvider features,
                StatsLogger stats,
                BookieAddressResolver addresses) {
            String[] listed = configuration.getString(AWAY, "").split("\\+");
            away = Set.copyOf(Arrays.stream(listed).distinct().filter(each -> !each.isEmpty()).map(BookieId::parse).toList());
            return super.initialize(configuration, resolver, timer, features, stats, addresses);
        }

        @Override
        public PlacementResult<List<BookieId>> newEnsemble(
                int ensemble, int write, int acknowledge, Map<String, byte[]> metadata, Set<BookieId> excluded)
                throws BKNotEnoughBookiesException {
            Set<BookieId> all = new HashSet<>(excluded);
            all.addAll(away);
            return super.newEnsemble(ensemble, write, acknowledge, metadata, all);
        }
    }
}
