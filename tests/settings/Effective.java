import java.io.File;
import java.io.FileInputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.net.URL;
import java.net.URLClassLoader;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;

/**
 * Says what Apache ZooKeeper makes of each zoo.cfg of a folder: `java Effective.java JARS FILES`.
 *
 * Each file is read by ZooKeeper's own QuorumPeerConfig, in a class loader of its own, because what stands behind
 * system properties is read once, when a class is loaded. Then ZooKeeper's fields and getters are asked. Only where
 * it has neither, because the value goes straight into a call, is that call repeated here.
 */
public class Effective {
    private static final String SERVER = "org.apache.zookeeper.server.";
    /** Properties without the prefix that a key of a file gets: here the file is the place for them, too. */
    private static final List<String> BARE = List.of(
        "jute.maxbuffer", "readonlymode.enabled", "znode.container.checkIntervalMs",
        "znode.container.maxPerMinute", "znode.container.maxNeverUsedIntervalMs");
    private static final String[] WORDS = {
        "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst", "srvr",
        "stat", "stmk", "wchc", "wchp", "wchs"};

    private final ClassLoader loader;
    private final StringBuilder out = new StringBuilder();

    private Effective(ClassLoader loader) {
        this.loader = loader;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        File[] jars = new File(arguments[0]).listFiles((folder, name) -> name.endsWith(".jar"));
        URL[] urls = new URL[jars.length];
        for (int i = 0; i < jars.length; i++) {
            urls[i] = jars[i].toURI().toURL();
        }
        File[] files = new File(arguments[1]).listFiles((folder, name) -> name.endsWith(".cfg"));
        Arrays.sort(files);
        Properties before = (Properties) System.getProperties().clone();
        ClassLoader platform = ClassLoader.getPlatformClassLoader();
        URLClassLoader parser = new URLClassLoader(urls, platform);
        for (File file : files) {
            System.setProperties((Properties) before.clone());
            // Whether the file is taken at all needs no classes of its own.
            Effective first = new Effective(parser);
            String said = first.ask(file, () -> first.parse(file));
            if (said.isEmpty()) {
                System.setProperties((Properties) before.clone());
                try (URLClassLoader loader = new URLClassLoader(urls, platform)) {
                    Effective effective = new Effective(loader);
                    said = effective.ask(file, () -> effective.everything(file));
                }
            }
            System.out.print("file " + file.getName() + "\n" + said);
        }
    }

    private interface Step {
        void take() throws Throwable;
    }

    private String ask(File file, Step step) {
        Thread.currentThread().setContextClassLoader(loader);
        try {
            step.take();
            return out.toString();
        } catch (InvocationTargetException | ExceptionInInitializerError error) {
            return refused(error.getCause());
        } catch (Throwable error) {
            return refused(error);
        }
    }

    private static String refused(Throwable error) {
        String why = String.valueOf(error.getCause() == null ? error : error.getCause());
        return "refused " + why.replaceAll("\\s+", " ") + "\n";
    }

    private void everything(File file) throws Throwable {
        Properties written = new Properties();
        try (FileInputStream in = new FileInputStream(file)) {
            written.load(in);
        }
        for (String key : BARE) {
            if (written.getProperty(key) != null) {
                System.setProperty(key, written.getProperty(key).trim());
            }
        }
        Object config = parse(file);
        ofTheFile(config, written);
        connections();
        storage();
        security();
        containers();
        services();
    }

    private Object parse(File file) throws Throwable {
        Class<?> type = load("org.apache.zookeeper.server.quorum.QuorumPeerConfig");
        type.getMethod("setStandaloneEnabled", boolean.class).invoke(null, true);
        type.getMethod("setReconfigEnabled", boolean.class).invoke(null, false);
        Object config = type.getConstructor().newInstance();
        type.getMethod("parse", String.class).invoke(config, file.getPath());
        return config;
    }

    private void ofTheFile(Object config, Properties written) throws Throwable {
        say("dataDir", get(config, "getDataDir"));
        InetSocketAddress address = (InetSocketAddress) get(config, "getClientPortAddress");
        say("clientPort", address.getPort());
        boolean named = written.containsKey("clientPortAddress");
        say("clientPortAddress", named ? address.getAddress().getHostAddress() : "default");
        int backlog = (Integer) get(config, "getClientPortListenBacklog");
        // Java's own default is what counts then.
        say("clientPortListenBacklog", backlog < 1 ? "default" : backlog);
        say("tickTime", get(config, "getTickTime"));
        say("minSessionTimeout", get(config, "getMinSessionTimeout"));
        say("maxSessionTimeout", get(config, "getMaxSessionTimeout"));
        // The limit is looked at only when it is above zero.
        say("maxClientCnxns", Math.max((Integer) get(config, "getMaxClientCnxns"), 0));
        say("autopurge.snapRetainCount", get(config, "getSnapRetainCount"));
        say("reconfigEnabled", get(config, "isReconfigEnabled"));
        say("sslQuorum", get(config, "isSslQuorum"));
        boolean reloads = written.containsKey("sslQuorumReloadCertFiles");
        say("sslQuorumReloadCertFiles", reloads ? field(config, "sslQuorumReloadCertFiles") : "default");
        say("localSessionsEnabled", get(config, "areLocalSessionsEnabled"));
        say("localSessionsUpgradingEnabled", get(config, "isLocalSessionsUpgradingEnabled"));
        say("quorum.auth.serverRequireSasl", field(config, "quorumServerRequireSasl"));
        say("quorum.auth.learnerRequireSasl", field(config, "quorumLearnerRequireSasl"));
    }

    private void connections() throws Throwable {
        Object factory = load(SERVER + "NIOServerCnxnFactory").getConstructor().newInstance();
        Method initMaxCnxns = load(SERVER + "ServerCnxnFactory").getDeclaredMethod("initMaxCnxns");
        initMaxCnxns.setAccessible(true);
        initMaxCnxns.invoke(factory);
        say("maxCnxns", field(factory, "maxCnxns"));
        int sessionless = Integer.getInteger("zookeeper.nio.sessionlessCnxnTimeout", 10000);
        // So it is made in configure(), which would listen as well.
        load(SERVER + "ExpiryQueue").getConstructor(int.class).newInstance(sessionless);
        say("nio.sessionlessCnxnTimeout", sessionless);
        say("jute.maxbuffer", field(load("org.apache.jute.BinaryInputArchive"), "maxBuffer"));
        Integer outstanding = Integer.getInteger("zookeeper.globalOutstandingLimit");
        say("globalOutstandingLimit", outstanding == null ? "default" : outstanding);
        say("readonlymode.enabled", Boolean.getBoolean("readonlymode.enabled"));
        Method isEnabled = load(SERVER + "command.FourLetterCommands").getMethod("isEnabled", String.class);
        List<String> words = new ArrayList<>();
        for (String word : WORDS) {
            if ((Boolean) isEnabled.invoke(null, word)) {
                words.add(word);
            }
        }
        say("4lw.commands.whitelist", String.join(",", words));
    }

    private void storage() throws Throwable {
        Class<?> server = load(SERVER + "ZooKeeperServer");
        say("snapCount", server.getMethod("getSnapCount").invoke(null));
        say("snapSizeLimitInKb", Math.max((Long) server.getMethod("getSnapSizeInBytes").invoke(null), 0));
        Class<?> log = load(SERVER + "persistence.FileTxnLog");
        say("forceSync", field(log.getConstructor(File.class).newInstance(new File("none")), "forceSync"));
        say("fsync.warningthresholdms", field(log, "fsyncWarningThresholdMS"));
        long size = (Long) field(log, "txnLogSizeLimit");
        say("txnLogSizeLimitInKb", size > 0 ? size : "default");
        Class<?> folders = load(SERVER + "persistence.FileTxnSnapLog");
        say("datadir.autocreate", property(folders, "ZOOKEEPER_DATADIR_AUTOCREATE"));
        say("db.autocreate", property(folders, "ZOOKEEPER_DB_AUTOCREATE"));
        boolean isSet = System.getProperty("zookeeper.extendedTypesEnabled") != null;
        Method extended = load(SERVER + "EphemeralType").getMethod("extendedEphemeralTypesEnabled");
        say("extendedTypesEnabled", isSet ? extended.invoke(null) : "default");
        say("enforceQuota", field(server, "enforceQuota"));
    }

    private static boolean property(Class<?> owner, String name) throws Throwable {
        String fallback = (String) field(owner, name + "_DEFAULT");
        return Boolean.parseBoolean(System.getProperty((String) field(owner, name), fallback));
    }

    private void security() throws Throwable {
        say("skipACL", field(load(SERVER + "ZooKeeperServer"), "skipACL"));
        Class<?> digest = load(SERVER + "auth.DigestAuthenticationProvider");
        Class.forName(digest.getName(), true, loader);
        say("DigestAuthenticationProvider.superDigest", field(digest, "superDigest"));
        // Names for one algorithm are many; what it makes of nothing tells them apart.
        byte[] hash = MessageDigest.getInstance((String) field(digest, "DIGEST_ALGORITHM")).digest(new byte[0]);
        say("DigestAuthenticationProvider.digestAlg", HexFormat.of().formatHex(hash));
        Object helper;
        try {
            helper = load(SERVER + "AuthenticationHelper").getConstructor().newInstance();
            say("enforce.auth.enabled", get(helper, "isEnforceAuthEnabled"));
        } catch (InvocationTargetException error) {
            // It is asked for, and schemes are missing.
            say("enforce.auth.enabled", true);
        }
        boolean sasl = Boolean.parseBoolean(System.getProperty("zookeeper.sessionRequireClientSASLAuth", "false"));
        say("sessionRequireClientSASLAuth", sasl);
        say("allowSaslFailedClients", Boolean.getBoolean("zookeeper.allowSaslFailedClients"));
        say("audit.enable", Boolean.getBoolean("zookeeper.audit.enable"));
        say("kerberos.removeHostFromPrincipal", Boolean.getBoolean("zookeeper.kerberos.removeHostFromPrincipal"));
        say("kerberos.removeRealmFromPrincipal", Boolean.getBoolean("zookeeper.kerberos.removeRealmFromPrincipal"));
        say("DigestAuthenticationProvider.enabled", digest.getMethod("isEnabled").invoke(null));
        Integer handshakes = Integer.getInteger("zookeeper.netty.server.outstandingHandshake.limit");
        say("netty.server.outstandingHandshake.limit", handshakes == null ? "default" : handshakes);
        Object keys = load("org.apache.zookeeper.common.ZKConfig").getConstructor().newInstance();
        Method yes = keys.getClass().getMethod("getBoolean", String.class);
        say("ssl.quorum.crl", yes.invoke(keys, "zookeeper.ssl.quorum.crl"));
        say("ssl.quorum.ocsp", yes.invoke(keys, "zookeeper.ssl.quorum.ocsp"));
    }

    private void containers() throws Throwable {
        int check = Integer.getInteger("znode.container.checkIntervalMs", 60000);
        int perMinute = Integer.getInteger("znode.container.maxPerMinute", 10000);
        long unused = Long.getLong("znode.container.maxNeverUsedIntervalMs", 0);
        Class<?> manager = load(SERVER + "ContainerManager");
        Constructor<?> constructor = null;
        for (Constructor<?> candidate : manager.getConstructors()) {
            constructor = candidate.getParameterCount() == 5 ? candidate : constructor;
        }
        Object running = constructor.newInstance(null, null, check, perMinute, unused);
        try {
            manager.getMethod("start").invoke(running);
        } finally {
            manager.getMethod("stop").invoke(running);
        }
        say("znode.container.checkIntervalMs", check);
        say("znode.container.maxPerMinute", perMinute);
        say("znode.container.maxNeverUsedIntervalMs", unused);
    }

    private void services() throws Throwable {
        boolean admin = !"false".equals(System.getProperty("zookeeper.admin.enableServer"));
        int port = Integer.getInteger("zookeeper.admin.serverPort", 8080);
        // Without its port ZooKeeper's server ends.
        say("admin.serverPort", admin ? new InetSocketAddress("0.0.0.0", port).getPort() : 0);
        String address = System.getProperty("zookeeper.admin.serverAddress");
        if (address != null && admin && new InetSocketAddress(address, 1).isUnresolved()) {
            throw new IllegalArgumentException("no such address");
        }
        say("admin.serverAddress", address == null ? "default"
            : new InetSocketAddress(address, 1).getAddress().getHostAddress());
        // Prometheus's provider, which has a port, is not among the jars.
        say("metricsProvider.httpPort", 0);
    }

    private Class<?> load(String name) throws Throwable {
        return Class.forName(name, true, loader);
    }

    private void say(String key, Object value) {
        out.append(key).append('=').append(value == null ? "" : value).append('\n');
    }

    private static Object get(Object object, String method) throws Throwable {
        return object.getClass().getMethod(method).invoke(object);
    }

    /** A field of an object, or a static one of a class. */
    private static Object field(Object owner, String name) throws Throwable {
        Class<?> type = owner instanceof Class ? (Class<?>) owner : owner.getClass();
        for (; type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(owner);
                }
            }
        }
        throw new NoSuchFieldException(name);
    }
}
