package io.stoa.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.ClientInfo;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;
import org.junit.jupiter.api.Test;

/** Who may do what. */
class AclTest extends ServerTest {
    private static Id digest(String user, String password) throws Exception {
        return new Id("digest", DigestAuthenticationProvider.generateDigest(user + ":" + password));
    }

    /** A list that the client accepts: it asks it for null, which those of `List.of` refuse. */
    private static List<ACL> acl(ACL... entries) {
        return Arrays.asList(entries);
    }

    private ZooKeeper connectAs(String user, String password) throws Exception {
        ZooKeeper client = connect();
        client.addAuthInfo("digest", bytes(user + ":" + password));
        return client;
    }

    @Test
    void digestOpensToTheOwnerOnly() throws Exception {
        zk.create(at("a"), bytes("x"), acl(new ACL(Perms.ALL, digest("ann", "secret"))), CreateMode.PERSISTENT);
        assertCode(Code.NOAUTH, () -> zk.getData(at("a"), false, null));
        assertCode(Code.NOAUTH, () -> zk.setData(at("a"), bytes("y"), -1));
        assertCode(Code.NOAUTH, () -> zk.getChildren(at("a"), false));
        assertCode(Code.NOAUTH, () -> create(at("a/b")));
        assertCode(Code.NOAUTH, () -> zk.setACL(at("a"), Ids.OPEN_ACL_UNSAFE, -1));
        assertCode(Code.NOAUTH, () -> connectAs("ann", "wrong").getData(at("a"), false, null));
        assertArrayEquals(bytes("x"), connectAs("ann", "secret").getData(at("a"), false, null));
        zk.addAuthInfo("digest", bytes("ann:secret"));
        assertEquals(1, zk.setData(at("a"), bytes("y"), -1).getVersion());
    }

    @Test
    void permissionsAreAskedOneByOne() throws Exception {
        zk.create(at("read"), bytes("x"), Ids.READ_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.getData(at("read"), false, null);
        zk.getChildren(at("read"), false);
        assertCode(Code.NOAUTH, () -> zk.setData(at("read"), bytes("y"), -1));
        assertCode(Code.NOAUTH, () -> create(at("read/b")));
        Id anyone = Ids.ANYONE_ID_UNSAFE;
        zk.create(at("make"), bytes("x"), acl(new ACL(Perms.CREATE, anyone)), CreateMode.PERSISTENT);
        create(at("make/b"));
        assertCode(Code.NOAUTH, () -> zk.delete(at("make/b"), -1));
        assertCode(Code.NOAUTH, () -> zk.getData(at("make"), false, null));
        zk.create(at("write"), bytes("x"), acl(new ACL(Perms.WRITE, anyone)), CreateMode.PERSISTENT);
        zk.setData(at("write"), bytes("y"), -1);
        // The parent decides about deletion.
        zk.delete(at("write"), -1);
    }

    @Test
    void authSchemeStandsForTheCaller() throws Exception {
        ZooKeeper bob = connectAs("bob", "secret");
        bob.create(at("a"), bytes("x"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
        Stat stat = new Stat();
        List<ACL> acl = bob.getACL(at("a"), stat);
        assertEquals(List.of(new ACL(Perms.ALL, digest("bob", "secret"))), acl);
        assertEquals(0, stat.getAversion());
        assertCode(Code.NOAUTH, () -> zk.getData(at("a"), false, null));
        assertCode(Code.INVALIDACL,
                () -> zk.create(at("b"), bytes("x"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT));
    }

    @Test
    void hashOfThePasswordIsHiddenFromReaders() throws Exception {
        List<ACL> acl = acl(
                new ACL(Perms.ALL, digest("ann", "secret")), new ACL(Perms.READ, Ids.ANYONE_ID_UNSAFE));
        zk.create(at("a"), bytes("x"), acl, CreateMode.PERSISTENT);
        assertTrue(zk.getACL(at("a"), null).contains(new ACL(Perms.ALL, new Id("digest", "ann:x"))));
        assertTrue(connectAs("ann", "secret").getACL(at("a"), null).containsAll(acl));
    }

    @Test
    void ipAddressesAndNetworks() throws Exception {
        zk.create(at("here"), bytes("x"), acl(new ACL(Perms.ALL, new Id("ip", "127.0.0.1"))), CreateMode.PERSISTENT);
        zk.getData(at("here"), false, null);
        zk.create(at("net"), bytes("x"), acl(new ACL(Perms.ALL, new Id("ip", "127.0.0.0/8"))), CreateMode.PERSISTENT);
        zk.getData(at("net"), false, null);
        zk.create(at("far"), bytes("x"), acl(new ACL(Perms.ALL, new Id("ip", "10.1.2.3"))), CreateMode.PERSISTENT);
        assertCode(Code.NOAUTH, () -> zk.getData(at("far"), false, null));
    }

    @Test
    void setAclCountsItsOwnVersion() throws Exception {
        create(at("a"));
        List<ACL> acl = acl(new ACL(Perms.READ | Perms.ADMIN, Ids.ANYONE_ID_UNSAFE));
        Stat stat = zk.setACL(at("a"), acl, 0);
        assertEquals(1, stat.getAversion());
        assertEquals(0, stat.getVersion());
        assertEquals(acl, zk.getACL(at("a"), null));
        assertCode(Code.BADVERSION, () -> zk.setACL(at("a"), Ids.OPEN_ACL_UNSAFE, 0));
        assertCode(Code.NOAUTH, () -> zk.setData(at("a"), bytes("x"), -1));
    }

    @Test
    void uselessListsAreRefused() {
        for (List<ACL> acl : List.of(
                acl(),
                acl(new ACL(Perms.ALL, new Id("nonsense", "x"))),
                acl(new ACL(Perms.ALL, new Id("digest", "without-colon"))),
                acl(new ACL(Perms.ALL, new Id("ip", "not.an.address"))))) {
            assertCode(Code.INVALIDACL, () -> zk.create(at("a"), bytes("x"), acl, CreateMode.PERSISTENT));
        }
    }

    @Test
    void superuserPassesEverywhere() throws Exception {
        zk.create(at("a"), bytes("x"), acl(new ACL(Perms.ALL, digest("ann", "secret"))), CreateMode.PERSISTENT);
        assertArrayEquals(bytes("x"), connectAs("super", "test").getData(at("a"), false, null));
    }

    @Test
    void unknownSchemeFailsTheConnection() throws Exception {
        Events seen = new Events();
        ZooKeeper client = connect(ServerProcess.shared(), seen);
        client.addAuthInfo("nonsense", bytes("x"));
        seen.await(KeeperState.AuthFailed);
        assertCode(Code.AUTHFAILED, () -> client.exists("/", false));
    }

    @Test
    void whoAmITellsTheIdentities() throws Exception {
        ZooKeeper ann = connectAs("ann", "secret");
        List<ClientInfo> identities = ann.whoAmI();
        assertTrue(identities.contains(new ClientInfo("ip", "127.0.0.1")), identities::toString);
        assertTrue(identities.contains(new ClientInfo("digest", "ann")), identities::toString);
    }

    @Test
    void multiIsRefusedAsAWhole() throws Exception {
        zk.create(at("a"), bytes("x"), Ids.READ_ACL_UNSAFE, CreateMode.PERSISTENT);
        assertCode(Code.NOAUTH, () -> zk.transaction()
                .create(at("b"), bytes("x"), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT)
                .setData(at("a"), bytes("y"), -1)
                .commit());
        assertEquals(List.of("a"), zk.getChildren(base, false));
    }
}
