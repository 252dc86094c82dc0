package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.junit.jupiter.api.Test;

/** Curator's elections, barriers, counters, queues and nodes. */
class CuratorRecipeTest extends CuratorTest {
    @Test
    void latchHasOneLeaderAndPassesOn() throws Exception {
        List<LeaderLatch> latches = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            LeaderLatch latch = new LeaderLatch(curator(ServerProcess.shared()), at("latch"), "id" + i);
            latch.start();
            latches.add(latch);
        }
        while (!latches.isEmpty()) {
            eventually("someone leads", () -> latches.stream().anyMatch(LeaderLatch::hasLeadership));
            List<LeaderLatch> leaders = latches.stream().filter(LeaderLatch::hasLeadership).toList();
            assertEquals(1, leaders.size());
            assertEquals(leaders.get(0).getId(), leaders.get(0).getLeader().getId());
            latches.remove(leaders.get(0));
            leaders.get(0).close();
        }
    }

    @Test
    void selectorGivesEachItsTurn() throws Exception {
        AtomicInteger leading = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        CountDownLatch turns = new CountDownLatch(6);
        for (int i = 0; i < 3; i++) {
            LeaderSelector selector =
                    new LeaderSelector(curator(ServerProcess.shared()), at("selector"), new LeaderSelectorListenerAdapter() {
                        @Override
                        public void takeLeadership(CuratorFramework client) throws Exception {
                            most.accumulateAndGet(leading.incrementAndGet(), Math::max);
                            Thread.sleep(20);
                            leading.decrementAndGet();
                            turns.countDown();
                        }
                    });
            selector.autoRequeue();
            selector.start();
            opened.push(selector);
        }
        assertTrue(turns.await(30, TimeUnit.SECONDS));
        assertEquals(1, most.get());
    }

    @Test
    void barrierHoldsUntilItIsRemoved() throws Exception {
        DistributedBarrier barrier = new DistributedBarrier(curator, at("barrier"));
        barrier.setBarrier();
        DistributedBarrier waiting = new DistributedBarrier(curator(ServerProcess.shared()), at("barrier"));
        assertFalse(waiting.waitOnBarrier(100, TimeUnit.MILLISECONDS));
        barrier.removeBarrier();
        assertTrue(waiting.waitOnBarrier(10, TimeUnit.SECONDS));
    }

    @Test
    void doubleBarrierIsEnteredAndLeftTogether() throws Exception {
        int members = 4;
        AtomicInteger entered = new AtomicInteger();
        AtomicInteger left = new AtomicInteger();
        CyclicBarrier begin = new CyclicBarrier(members);
        together(members, () -> {
            DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(curator, at("double"), members);
            begin.await();
            entered.incrementAndGet();
            assertTrue(barrier.enter(20, TimeUnit.SECONDS));
            assertEquals(members, entered.get());
            left.incrementAndGet();
            assertTrue(barrier.leave(20, TimeUnit.SECONDS));
            assertEquals(members, left.get());
            return null;
        });
    }

    @Test
    void sharedCountIsSetByVersion() throws Exception {
        SharedCount first = new SharedCount(curator, at("count"), 10);
        SharedCount second = new SharedCount(curator(ServerProcess.shared()), at("count"), 10);
        first.start();
        second.start();
        opened.push(first);
        opened.push(second);
        VersionedValue<Integer> old = second.getVersionedValue();
        assertTrue(first.trySetCount(first.getVersionedValue(), 11));
        assertFalse(second.trySetCount(old, 12));
        eventually("the other sees it", () -> second.getCount() == 11);
    }

    @Test
    void atomicLongCountsEveryIncrement() throws Exception {
        together(4, () -> {
            DistributedAtomicLong counter =
                    new DistributedAtomicLong(curator, at("long"), new RetryNTimes(1000, 1));
            for (int i = 0; i < 20; i++) {
                assertTrue(counter.increment().succeeded());
            }
            return null;
        });
        DistributedAtomicLong counter = new DistributedAtomicLong(curator, at("long"), new RetryNTimes(1, 1));
        assertEquals(80, counter.get().postValue());
    }

    @Test
    void queueGivesEachElementOnceInOrder() throws Exception {
        SimpleDistributedQueue producer = new SimpleDistributedQueue(curator, at("queue"));
        SimpleDistributedQueue consumer = new SimpleDistributedQueue(curator(ServerProcess.shared()), at("queue"));
        for (int i = 0; i < 20; i++) {
            assertTrue(producer.offer(bytes("e" + i)));
        }
        assertArrayEquals(bytes("e0"), consumer.peek());
        for (int i = 0; i < 20; i++) {
            assertArrayEquals(bytes("e" + i), consumer.poll(10, TimeUnit.SECONDS));
        }
        BlockingQueue<byte[]> taken = new LinkedBlockingQueue<>();
        Thread blocked = new Thread(() -> {
            try {
                taken.add(consumer.take());
            } catch (Exception e) {
                taken.add(bytes(e.toString()));
            }
        });
        blocked.start();
        producer.offer(bytes("late"));
        assertArrayEquals(bytes("late"), taken.poll(10, TimeUnit.SECONDS));
        blocked.join();
    }

    @Test
    void persistentNodeComesBackWhenDeleted() throws Exception {
        PersistentNode node = new PersistentNode(curator, CreateMode.EPHEMERAL, false, at("node"), bytes("mine"));
        opened.push(node);
        node.start();
        assertTrue(node.waitForInitialCreate(10, TimeUnit.SECONDS));
        zk.delete(at("node"), -1);
        eventually("it is there again", () -> zk.exists(at("node"), false) != null);
        assertArrayEquals(bytes("mine"), zk.getData(at("node"), false, null));
        node.setData(bytes("new"));
        eventually("it is changed", () -> "new".equals(new String(zk.getData(at("node"), false, null))));
    }

    @Test
    void ttlNodeLivesAsLongAsItIsTouched() throws Exception {
        PersistentTtlNode node = new PersistentTtlNode(curator, at("ttl"), 1500, bytes("x"));
        node.start();
        assertTrue(node.waitForInitialCreate(10, TimeUnit.SECONDS));
        Thread.sleep(2500);
        assertTrue(zk.exists(at("ttl"), false) != null, "it is touched all the time");
        node.close();
        eventually("it is deleted", () -> zk.exists(at("ttl"), false) == null);
    }

    @Test
    void groupKnowsItsMembers() throws Exception {
        CuratorFramework other = curator(ServerProcess.shared());
        GroupMember ann = new GroupMember(curator, at("group"), "ann", bytes("1"));
        GroupMember bob = new GroupMember(other, at("group"), "bob", bytes("2"));
        ann.start();
        bob.start();
        opened.push(ann);
        eventually("both are known", () -> ann.getCurrentMembers().size() == 2);
        assertArrayEquals(bytes("2"), ann.getCurrentMembers().get("bob"));
        bob.close();
        other.close();
        eventually("one is left", () -> ann.getCurrentMembers().keySet().equals(java.util.Set.of("ann")));
    }
}
