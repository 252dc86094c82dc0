package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/** A watcher that keeps what it is told, apart from changes of the connection. */
final class Events implements Watcher {
    private final LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
    private final LinkedBlockingQueue<Event.KeeperState> states = new LinkedBlockingQueue<>();

    @Override
    public void process(WatchedEvent event) {
        if (event.getType() == Event.EventType.None) {
            states.add(event.getState());
        } else {
            seen.add(event.getType() + " " + event.getPath());
        }
    }

    /** The next event, such as `NodeCreated /a`. */
    String next() throws InterruptedException {
        return seen.poll(10, TimeUnit.SECONDS);
    }

    /**
     * All events of changes that were made before this call. Nothing is awaited by time: an event
     * comes before any later reply on the connection, and the client hands out both in order.
     */
    List<String> after(ZooKeeper zk) throws InterruptedException {
        CountDownLatch replied = new CountDownLatch(1);
        zk.exists("/", false, (rc, path, context, stat) -> replied.countDown(), null);
        assertTrue(replied.await(10, TimeUnit.SECONDS), "no reply");
        List<String> events = new ArrayList<>();
        seen.drainTo(events);
        return events;
    }

    /** Waits until the connection has come to `wanted`, whatever it went through before. */
    void await(Event.KeeperState wanted) throws InterruptedException {
        while (true) {
            Event.KeeperState state = states.poll(30, TimeUnit.SECONDS);
            assertTrue(state != null, "the connection never came to " + wanted);
            if (state == wanted) {
                return;
            }
        }
    }
}
