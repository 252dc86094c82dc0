package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.junit.jupiter.api.Test;

/** Curator's own ways to the same requests, and its caches, which live on watches. */
class CuratorClientTest extends CuratorTest {
    @Test
    void parentsAreMadeAndDeletedWithTheirChildren() throws Exception {
        curator.create().creatingParentsIfNeeded().forPath(at("a/b/c"), bytes("x"));
        curator.create().creatingParentContainersIfNeeded().forPath(at("k/l/m"), bytes("x"));
        assertEquals(4, curator.checkExists().forPath(base).getCversion() + 2);
        curator.delete().deletingChildrenIfNeeded().forPath(at("a"));
        assertNull(curator.checkExists().forPath(at("a")));
        curator.delete().guaranteed().forPath(at("k/l/m"));
        eventually("the empty containers are deleted", () -> curator.checkExists().forPath(at("k")) == null);
    }

    @Test
    void createOrSetAndIdempotence() throws Exception {
        curator.create().orSetData().forPath(at("a"), bytes("1"));
        curator.create().orSetData().forPath(at("a"), bytes("2"));
        assertArrayEquals(bytes("2"), curator.getData().forPath(at("a")));
        assertEquals(at("p-0000000001"),
                curator.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(at("p-"), bytes("x")));
        String guarded =
                curator.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(at("g-"));
        assertNotNull(curator.checkExists().forPath(guarded));
        assertNotNull(curator.create().withTtl(60_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(at("t")));
    }

    @Test
    void transactionsAreOneStep() throws Exception {
        Collection<CuratorTransactionResult> results = curator.transaction().forOperations(
                curator.transactionOp().create().forPath(at("a"), bytes("1")),
                curator.transactionOp().setData().withVersion(0).forPath(at("a"), bytes("2")),
                curator.transactionOp().check().withVersion(1).forPath(at("a")),
                curator.transactionOp().create().forPath(at("b")),
                curator.transactionOp().delete().forPath(at("b")));
        assertEquals(5, results.size());
        assertTrue(results.stream().allMatch(result -> result.getError() == 0));
        assertArrayEquals(bytes("2"), curator.getData().forPath(at("a")));
    }

    @Test
    void backgroundRequestsAnswerInOrder() throws Exception {
        BlockingQueue<String> answered = new LinkedBlockingQueue<>();
        for (int i = 0; i < 100; i++) {
            curator.create().inBackground((client, event) -> answered.add(event.getPath())).forPath(at("n" + i));
        }
        for (int i = 0; i < 100; i++) {
            assertEquals(at("n" + i), answered.poll(10, TimeUnit.SECONDS));
        }
    }

    @Test
    void watchesOfAllKinds() throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        curator.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE)
                .usingWatcher((org.apache.zookeeper.Watcher) event -> seen.add(event.getType() + " " + event.getPath()))
                .forPath(base);
        curator.create().creatingParentsIfNeeded().forPath(at("a/b"));
        assertEquals("NodeCreated " + at("a"), seen.poll(10, TimeUnit.SECONDS));
        assertEquals("NodeCreated " + at("a/b"), seen.poll(10, TimeUnit.SECONDS));
        curator.watchers().removeAll().forPath(base);
        assertEquals("PersistentWatchRemoved " + base, seen.poll(10, TimeUnit.SECONDS));
    }

    @Test
    void curatorCacheFollowsTheSubtree() throws Exception {
        Set<String> seen = Collections.synchronizedSet(new HashSet<>());
        CountDownLatch ready = new CountDownLatch(1);
        zk.setData(base, bytes("base"), -1);
        create(at("before"));
        CuratorCache cache = CuratorCache.build(curator, base);
        opened.push(cache);
        cache.listenable().addListener(
                org.apache.curator.framework.recipes.cache.CuratorCacheListener.builder()
                        .forAll((type, old, now) -> seen.add(type + " " + (now == null ? old : now).getPath()))
                        .forInitialized(ready::countDown)
                        .build());
        cache.start();
        assertTrue(ready.await(10, TimeUnit.SECONDS));
        create(at("a"));
        create(at("a/b"));
        zk.setData(at("a/b"), bytes("x"), -1);
        eventually("the change is in the cache",
                () -> cache.get(at("a/b")).map(data -> "x".equals(new String(data.getData()))).orElse(false));
        zk.delete(at("a/b"), -1);
        eventually("the deletion is in the cache", () -> cache.get(at("a/b")).isEmpty());
        eventually("all is told", () -> seen.containsAll(List.of(
                "NODE_CREATED " + base,
                "NODE_CREATED " + at("before"),
                "NODE_CREATED " + at("a/b"),
                "NODE_DELETED " + at("a/b"))));
        assertEquals(3, cache.size());
    }

    @Test
    @SuppressWarnings("deprecation")
    void treeCacheFollowsTheSubtree() throws Exception {
        create(at("a"));
        TreeCache cache = new TreeCache(curator, base);
        opened.push(cache);
        cache.start();
        eventually("the child is known", () -> cache.getCurrentData(at("a")) != null);
        create(at("a/b"));
        zk.setData(at("a/b"), bytes("x"), -1);
        eventually("the change is known", () -> {
            var data = cache.getCurrentData(at("a/b"));
            return data != null && "x".equals(new String(data.getData()));
        });
        zk.delete(at("a/b"), -1);
        eventually("the deletion is known", () -> cache.getCurrentChildren(at("a")).isEmpty());
    }

    @Test
    void curatorCacheCatchesUpAfterACrash() throws Exception {
        ServerProcess server = ServerProcess.own();
        opened.addLast(server);
        CuratorFramework client = curator(server);
        CuratorFramework writer = curator(server);
        client.create().forPath("/c");
        CuratorCache cache = CuratorCache.build(client, "/c");
        opened.push(cache);
        cache.start();
        eventually("it is loaded", () -> cache.get("/c").isPresent());
        BlockingQueue<ConnectionState> states = new LinkedBlockingQueue<>();
        for (CuratorFramework each : List.of(client, writer)) {
            each.getConnectionStateListenable().addListener((c, state) -> states.add(state));
        }
        server.kill();
        assertEquals(ConnectionState.SUSPENDED, states.poll(10, TimeUnit.SECONDS));
        server.start();
        eventually("both are back", () -> Collections.frequency(states, ConnectionState.RECONNECTED) == 2);
        writer.create().forPath("/c/new", bytes("x"));
        eventually("the new child is in the cache", () -> cache.get("/c/new").isPresent());
    }
}
