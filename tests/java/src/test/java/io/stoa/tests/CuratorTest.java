package io.stoa.tests;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryOneTime;
import org.junit.jupiter.api.BeforeEach;

/** Curator clients beside the plain one. */
abstract class CuratorTest extends ServerTest {
    CuratorFramework curator;

    @BeforeEach
    void openCurator() throws Exception {
        curator = curator(ServerProcess.shared());
    }

    CuratorFramework curator(ServerProcess server) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(server.address(), SESSION_MS, SESSION_MS, new RetryOneTime(100));
        opened.push(client);
        client.start();
        if (!client.blockUntilConnected(15, TimeUnit.SECONDS)) {
            throw new AssertionError("not connected");
        }
        return client;
    }

    /** Runs all at the same time and passes on the first failure. */
    static void together(int threads, Callable<Void> work) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(threads);
        try {
            List<Future<Void>> running = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                running.add(executor.submit(work));
            }
            for (Future<Void> one : running) {
                one.get(60, TimeUnit.SECONDS);
            }
        } catch (ExecutionException e) {
            throw new AssertionError(e.getCause());
        } finally {
            executor.shutdownNow();
        }
    }
}
