package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.junit.jupiter.api.Test;

/** Curator's locks and semaphores. */
class CuratorLockTest extends CuratorTest {
    @Test
    void mutexLetsOneInAtATime() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        AtomicInteger entries = new AtomicInteger();
        CuratorFramework[] clients = {curator, curator(ServerProcess.shared())};
        AtomicInteger next = new AtomicInteger();
        together(6, () -> {
            InterProcessMutex mutex = new InterProcessMutex(clients[next.getAndIncrement() % clients.length], at("m"));
            for (int i = 0; i < 10; i++) {
                assertTrue(mutex.acquire(30, TimeUnit.SECONDS));
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                entries.incrementAndGet();
                inside.decrementAndGet();
                mutex.release();
            }
            return null;
        });
        assertEquals(60, entries.get());
        assertEquals(1, most.get());
    }

    @Test
    void mutexCanBeEnteredAgainByItsThread() throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(curator, at("m"));
        mutex.acquire();
        mutex.acquire();
        assertFalse(new InterProcessMutex(curator(ServerProcess.shared()), at("m")).acquire(100, TimeUnit.MILLISECONDS));
        mutex.release();
        assertTrue(mutex.isAcquiredInThisProcess());
        mutex.release();
        assertTrue(new InterProcessMutex(curator, at("m")).acquire(10, TimeUnit.SECONDS));
    }

    @Test
    void lockOfAClosedClientPassesOn() throws Exception {
        CuratorFramework holder = curator(ServerProcess.shared());
        new InterProcessMutex(holder, at("m")).acquire();
        InterProcessMutex waiting = new InterProcessMutex(curator, at("m"));
        assertFalse(waiting.acquire(100, TimeUnit.MILLISECONDS));
        holder.close();
        assertTrue(waiting.acquire(10, TimeUnit.SECONDS));
    }

    @Test
    void readersShareAndWritersDoNot() throws Exception {
        InterProcessReadWriteLock first = new InterProcessReadWriteLock(curator, at("rw"));
        InterProcessReadWriteLock second =
                new InterProcessReadWriteLock(curator(ServerProcess.shared()), at("rw"));
        first.readLock().acquire();
        assertTrue(second.readLock().acquire(10, TimeUnit.SECONDS));
        second.readLock().release();
        assertFalse(second.writeLock().acquire(100, TimeUnit.MILLISECONDS));
        first.readLock().release();
        assertTrue(second.writeLock().acquire(10, TimeUnit.SECONDS));
        assertFalse(first.readLock().acquire(100, TimeUnit.MILLISECONDS));
        second.writeLock().release();
        assertTrue(first.readLock().acquire(10, TimeUnit.SECONDS));
    }

    @Test
    void semaphoreHasItsNumberOfLeases() throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(curator, at("s"), 3);
        Collection<Lease> leases = semaphore.acquire(3, 10, TimeUnit.SECONDS);
        assertNotNull(leases);
        assertNull(semaphore.acquire(100, TimeUnit.MILLISECONDS));
        semaphore.returnAll(leases);
        assertNotNull(semaphore.acquire(10, TimeUnit.SECONDS));
    }

    @Test
    void semaphoreMutexIsReleasedByAnyThread() throws Exception {
        InterProcessSemaphoreMutex first = new InterProcessSemaphoreMutex(curator, at("p"));
        InterProcessSemaphoreMutex second = new InterProcessSemaphoreMutex(curator(ServerProcess.shared()), at("p"));
        first.acquire();
        assertFalse(second.acquire(100, TimeUnit.MILLISECONDS));
        together(1, () -> {
            first.release();
            return null;
        });
        assertTrue(second.acquire(10, TimeUnit.SECONDS));
    }

    @Test
    void multiLockTakesAllOrNone() throws Exception {
        InterProcessMutex second = new InterProcessMutex(curator, at("q"));
        CuratorFramework other = curator(ServerProcess.shared());
        InterProcessMultiLock both = new InterProcessMultiLock(other, List.of(at("p"), at("q")));
        second.acquire();
        assertFalse(both.acquire(100, TimeUnit.MILLISECONDS));
        InterProcessMutex first = new InterProcessMutex(curator, at("p"));
        assertTrue(first.acquire(10, TimeUnit.SECONDS));
        first.release();
        second.release();
        assertTrue(both.acquire(10, TimeUnit.SECONDS));
    }
}
