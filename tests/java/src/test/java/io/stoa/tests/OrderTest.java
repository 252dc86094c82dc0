package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;
import org.junit.jupiter.api.Test;

/** Requests of one session take effect and are answered in the order sent. */
class OrderTest extends ServerTest {
    private static final int MANY = 2000;

    @Test
    void repliesComeInOrderReadsAndWritesMixed() throws Exception {
        create(at("a"));
        List<String> replies = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch done = new CountDownLatch(2 * MANY);
        for (int i = 0; i < MANY; i++) {
            zk.setData(at("a"), bytes(Integer.toString(i)), i, (rc, path, context, stat) -> {
                replies.add("set " + rc + " " + stat.getVersion());
                done.countDown();
            }, null);
            zk.getData(at("a"), false, (rc, path, context, data, stat) -> {
                replies.add("get " + rc + " " + new String(data) + " " + stat.getVersion());
                done.countDown();
            }, null);
        }
        assertTrue(done.await(30, TimeUnit.SECONDS));
        List<String> wanted = IntStream.range(0, MANY)
                .boxed()
                .flatMap(i -> List.of("set 0 " + (i + 1), "get 0 " + i + " " + (i + 1)).stream())
                .toList();
        assertEquals(wanted, replies);
    }

    @Test
    void errorsKeepTheirPlaceAmongTheReplies() throws Exception {
        List<Integer> codes = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch done = new CountDownLatch(400);
        for (int i = 0; i < 100; i++) {
            String path = at("n" + i);
            zk.delete(path, -1, (rc, p, context) -> note(codes, rc, done), null);
            zk.create(path, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT,
                    (rc, p, context, name) -> note(codes, rc, done), null);
            zk.create(path, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT,
                    (rc, p, context, name) -> note(codes, rc, done), null);
            zk.sync(path, (rc, p, context) -> note(codes, rc, done), null);
        }
        assertTrue(done.await(30, TimeUnit.SECONDS));
        int none = Code.NONODE.intValue();
        int there = Code.NODEEXISTS.intValue();
        List<Integer> wanted =
                IntStream.range(0, 100).boxed().flatMap(i -> List.of(none, 0, there, 0).stream()).toList();
        assertEquals(wanted, codes);
    }

    private static void note(List<Integer> codes, int code, CountDownLatch done) {
        codes.add(code);
        done.countDown();
    }

    @Test
    void zxidsOfASessionNeverGoBack() throws Exception {
        List<Long> zxids = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch done = new CountDownLatch(MANY);
        for (int i = 0; i < MANY; i++) {
            zk.create(at("n" + i), new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT,
                    (rc, path, context, name, stat) -> {
                        zxids.add(stat.getCzxid());
                        done.countDown();
                    }, null);
        }
        assertTrue(done.await(30, TimeUnit.SECONDS));
        assertEquals(zxids.stream().sorted().distinct().toList(), zxids);
    }

    @Test
    void eventComesBeforeTheReplyThatShowsTheChange() throws Exception {
        create(at("a"));
        ZooKeeper writer = connect();
        for (int round = 0; round < 50; round++) {
            List<String> order = Collections.synchronizedList(new ArrayList<>());
            CountDownLatch read = new CountDownLatch(1);
            Stat before = zk.exists(at("a"), (WatchedEvent event) -> order.add("event"));
            Thread change = new Thread(() -> {
                try {
                    writer.setData(at("a"), bytes("x"), -1);
                } catch (Exception e) {
                    order.add(e.toString());
                }
            });
            change.start();
            poll(before.getVersion(), order, read);
            assertTrue(read.await(20, TimeUnit.SECONDS));
            change.join();
            assertEquals(List.of("event", "new state"), order);
        }
    }

    /** Reads until the new version shows, each time by a callback in the order of the events. */
    private void poll(int version, List<String> order, CountDownLatch read) {
        zk.exists(at("a"), false, (rc, path, context, stat) -> {
            if (stat.getVersion() == version) {
                poll(version, order, read);
            } else {
                order.add("new state");
                read.countDown();
            }
        }, null);
    }

    @Test
    void increasesByManyClientsAllCount() throws Exception {
        create(at("counter"));
        int clients = 4;
        int each = 50;
        AtomicInteger conflicts = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        for (int i = 0; i < clients; i++) {
            ZooKeeper client = connect();
            Thread thread = new Thread(() -> {
                try {
                    for (int n = 0; n < each; n++) {
                        increase(client, conflicts);
                    }
                } catch (Exception e) {
                    failures.add(e);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(List.of(), failures);
        Stat stat = new Stat();
        assertArrayEquals(bytes(Integer.toString(clients * each)), zk.getData(at("counter"), false, stat));
        assertEquals(clients * each, stat.getVersion());
    }

    private void increase(ZooKeeper client, AtomicInteger conflicts) throws Exception {
        while (true) {
            Stat stat = new Stat();
            String text = new String(client.getData(at("counter"), false, stat));
            int value = text.isEmpty() ? 0 : Integer.parseInt(text);
            try {
                client.setData(at("counter"), bytes(Integer.toString(value + 1)), stat.getVersion());
                return;
            } catch (org.apache.zookeeper.KeeperException.BadVersionException e) {
                conflicts.incrementAndGet();
            }
        }
    }
}
