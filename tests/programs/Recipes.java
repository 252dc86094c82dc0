import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

/**
 * One of several processes that elect a leader, take a lock in turns and watch who is there, with Curator. All that it
 * makes is for its own identity alone. How it proves that one, properties of Java say, as for every program.
 *
 * Arguments: ADDRESSES NAME FILE ROUNDS OTHERS. The file is what the lock protects: a number, which each adds one to,
 * ROUNDS times. It prints a word for what happens, and ends when it has seen so many OTHERS and has led.
 */
public final class Recipes {
    private static final String BASE = "/recipes";
    private static final int SESSION_MS = 6000;
    private static final int CONNECTION_MS = 5000;
    private static final int PATIENCE_S = 60;

    private final CuratorFramework curator;
    private final String name;

    private Recipes(String addresses, String name) {
        this.name = name;
        curator = CuratorFrameworkFactory.builder()
                .connectString(addresses)
                .sessionTimeoutMs(SESSION_MS)
                .connectionTimeoutMs(CONNECTION_MS)
                .retryPolicy(new ExponentialBackoffRetry(100, 8))
                .aclProvider(new Own())
                .build();
    }

    public static void main(String[] args) throws Exception {
        Recipes recipes = new Recipes(args[0], args[1]);
        recipes.curator.start();
        try {
            recipes.come();
            recipes.count(Path.of(args[2]), Integer.parseInt(args[3]));
            recipes.lead(Integer.parseInt(args[4]));
        } finally {
            recipes.curator.close();
        }
        say("done");
    }

    private void come() throws Exception {
        if (!curator.blockUntilConnected(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected");
        }
        say("came");
        curator.createContainers(BASE + "/there");
    }

    /** Adds to the number: it reads it and writes the next one, in the hope that nobody does so meanwhile. */
    private void count(Path file, int rounds) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(curator, BASE + "/mutex");
        for (int round = 0; round < rounds; round++) {
            if (!mutex.acquire(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the lock is never free");
            }
            try {
                int number = Integer.parseInt(Files.readString(file));
                Files.writeString(file, Integer.toString(number + 1), StandardOpenOption.WRITE);
            } finally {
                mutex.release();
            }
        }
        curator.create().forPath(BASE + "/there-was-" + name);
        say("counted");
    }

    /** Waits until it leads and has seen all others, and passes that on. */
    private void lead(int others) throws Exception {
        Set<String> seen = new ConcurrentSkipListSet<>();
        try (CuratorCache cache = CuratorCache.build(curator, BASE + "/there");
                LeaderLatch latch = new LeaderLatch(curator, BASE + "/latch", name)) {
            CountDownLatch filled = new CountDownLatch(1);
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forCreates(node -> seen.add(node.getPath()))
                    .forInitialized(filled::countDown)
                    .build());
            cache.start();
            latch.start();
            // Who has seen this one may be gone at once; this one has seen him by then.
            if (!filled.await(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the cache is never filled");
            }
            curator.create().withMode(CreateMode.EPHEMERAL).forPath(BASE + "/there/" + name);
            // The cache has the znode above them, too, and this process's own.
            eventually("all are seen", () -> seen.size() == others + 2);
            say("saw all");
            if (!latch.await(PATIENCE_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException("it never leads");
            }
            if (!latch.getLeader().getId().equals(name)) {
                throw new IllegalStateException(latch.getLeader() + " leads, too");
            }
            say("led");
        }
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void eventually(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("never happened: " + what);
            }
            Thread.sleep(20);
        }
    }

    private static void say(String word) {
        System.out.println(word);
        System.out.flush();
    }

    /** ACLs for whoever makes a znode. */
    private static final class Own implements ACLProvider {
        @Override
        public java.util.List<ACL> getDefaultAcl() {
            return ZooDefs.Ids.CREATOR_ALL_ACL;
        }

        @Override
        public java.util.List<ACL> getAclForPath(String path) {
            return getDefaultAcl();
        }
    }
}
