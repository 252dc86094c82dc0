use std::io;
use std::net::IpAddr;

use super::super::kind::{ClientCertificates, TlsOnPort};
use super::super::load::{Loaded, Machine, resolve};
use super::*;

/// Loads a file, with others beside it.
fn load_beside(text: &str, files: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
    let files: Vec<(PathBuf, String)> =
        files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
    let read = move |path: &Path| {
        let file = files.iter().find(|(name, _)| name == path);
        file.map(|(_, text)| text.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    resolve(&[], &[], Some((Path::new("conf/zoo.cfg"), text)), Machine { read: &read, host: "" })
}

fn load(text: &str) -> Result<Loaded, ConfigError> {
    load_beside(text, &[])
}

#[test]
fn the_sample_file_of_zookeeper_works_as_it_is() {
    let loaded = load(
        "# comment\ntickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/tmp/zookeeper\nclientPort=2181\n\
         #maxClientCnxns=60\n#autopurge.snapRetainCount=3\n",
    )
    .unwrap();
    assert_eq!(loaded.settings.tick_time.as_millis(), 2000);
    assert_eq!(loaded.settings.data_dir, Path::new("/tmp/zookeeper"));
    assert_eq!(
        loaded.warnings,
        [
            "conf/zoo.cfg, line 3: initLimit: has no effect: the election timeout is a setting of its own: \
             election-timeout",
            "conf/zoo.cfg, line 4: syncLimit: has no effect: the election timeout is a setting of its own: \
             election-timeout",
        ]
    );
}

#[test]
fn every_key_with_a_setting_sets_it() {
    let loaded = load_beside(
        "clientPort : 2182\nclientPortAddress 127.0.0.1\nclientPortListenBacklog=10\n\
         maxClientCnxns=0\nmaxCnxns=500\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n\
         autopurge.snapRetainCount=5\nsnapCount=1000\nsnapSizeLimitInKb=1024\n\
         txnLogSizeLimitInKb=8192\n4lw.commands.whitelist=mntr, ruok\nadmin.serverPort=8081\n\
         admin.serverAddress=127.0.0.1\nmetricsProvider.httpPort=7001\n\
         metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n\
         globalOutstandingLimit=2000\njute.maxbuffer=0x1fffff\nskipACL=yes\nenforceQuota=true\n\
         extendedTypesEnabled=false\nznode.container.checkIntervalMs=1000\n\
         znode.container.maxPerMinute=10\nznode.container.maxNeverUsedIntervalMs=5\naudit.enable=true\n\
         forceSync=no\nfsync.warningthresholdms=50\nnio.sessionlessCnxnTimeout=2000\n\
         DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n\
         DigestAuthenticationProvider.digestAlg=SHA-256\ndatadir.autocreate=false\n\
         db.autocreate=true\nserver.1=a:2888:3888\nreadonlymode.enabled=true\nlocalSessionsEnabled=true\n\
         localSessionsUpgradingEnabled=TRUE\npartitions=1\nclient.portUnification=true\n\
         secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location=/k\n\
         ssl.keyStore.password=x\nssl.trustStore.location=/t\nssl.trustStore.passwordPath=/p\n\
         ssl.clientAuth=WANT\nssl.enabledProtocols=TLSv1.3\nssl.ciphersuites=TLS_AES_256_GCM_SHA384\n\
         netty.server.outstandingHandshake.limit=-1\nclient.certReload=false\n\
         X509AuthenticationProvider.superUser=CN=root,O=acme\nsasl.serverconfig=Zoo\n\
         SASLAuthenticationProvider.superPassword=x\nallowSaslFailedClients=true\n\
         kerberos.removeHostFromPrincipal=true\nkerberos.removeRealmFromPrincipal=true\n\
         security.auth_to_local=DEFAULT\nDigestAuthenticationProvider.enabled=false\n\
         ensembleAuthName=one,two\n",
        &[("/p", "secret")],
    )
    .unwrap();
    assert_eq!(loaded.warnings.len(), 2, "only of what is dangerous: {:?}", loaded.warnings);
    let settings = &loaded.settings;
    let shown: Vec<(&str, String)> = SETTINGS
        .iter()
        .filter(|setting| !setting.zoo.is_empty())
        .map(|setting| (setting.key, setting.get(settings)))
        .collect();
    let expected = [
        ("data-dir", "./stoa-data"),
        ("create-data-dir", "false"),
        ("partitions", "1"),
        ("port", "2182"),
        ("bind", "127.0.0.1"),
        ("tls-on-port", "also"),
        ("secure-port", "2281"),
        ("secure-bind", "127.0.0.1"),
        ("tls-certificate", "/k"),
        ("tls-password", "set"),
        ("tls-password-file", ""),
        ("tls-authority", "/t"),
        ("tls-authority-password", "set"),
        ("tls-authority-password-file", "/p"),
        ("tls-client-certificates", "want"),
        ("tls-protocols", "TLSv1.3"),
        ("tls-ciphers", "TLS_AES_256_GCM_SHA384"),
        ("tls-max-handshakes", "0"),
        ("tls-reload", "false"),
        ("super-certificate", "CN=root,O=acme"),
        ("sasl-section", "Zoo"),
        ("sasl-super-password", "set"),
        ("allow-failed-sasl", "true"),
        ("kerberos-remove-host", "true"),
        ("kerberos-remove-realm", "true"),
        ("kerberos-rules", "DEFAULT"),
        ("digest", "false"),
        ("ensemble-names", "one,two"),
        ("listen-backlog", "10"),
        ("admin-port", "8081"),
        ("admin-bind", "127.0.0.1"),
        ("metrics-port", "7001"),
        ("servers", "1=a:2888:3888:participant"),
        ("reconfig-enabled", "false"),
        ("peer-tls-reload", "true"),
        ("read-only-mode", "true"),
        ("local-sessions", "true"),
        ("local-sessions-upgrading", "true"),
        ("tick-time", "3s"),
        ("min-session-timeout", "4s"),
        ("max-session-timeout", "40s"),
        ("max-connections-per-address", "0"),
        ("max-connections", "500"),
        ("max-request-bytes", "2097151"),
        ("max-outstanding", "2000"),
        ("handshake-timeout", "2s"),
        ("snapshot-updates", "1000"),
        ("snapshot-log-bytes", "1MiB"),
        ("snapshots-kept", "5"),
        ("segment-bytes", "8MiB"),
        ("fsync", "false"),
        ("fsync-warning", "50ms"),
        ("words", "mntr,ruok"),
        ("super-digest", "set"),
        ("digest-algorithm", "SHA-256"),
        ("skip-acl", "true"),
        ("enforce-quota", "true"),
        ("extended-types", "false"),
        ("container-check", "1s"),
        ("container-max-per-minute", "10"),
        ("container-unused", "5ms"),
        ("audit", "true"),
    ];
    assert_eq!(shown, expected.map(|(key, text)| (key, text.to_owned())));
}

#[test]
fn admin_http_is_for_this_machine_unless_the_file_says_otherwise() {
    let addresses = |lines: &str| {
        let settings = load(lines).unwrap().settings;
        [settings.admin_address(), settings.metrics_address()].map(|address| address.to_string())
    };
    assert_eq!(addresses("clientPort=2181\n"), ["127.0.0.1", "::"]);
    assert_eq!(addresses("clientPortAddress=10.0.0.1\n"), ["127.0.0.1", "10.0.0.1"]);
    assert_eq!(addresses("admin.serverAddress=0.0.0.0\n"), ["0.0.0.0", "0.0.0.0"]);
    assert_eq!(addresses("admin.serverAddress=10.0.0.1\n"), ["10.0.0.1", "10.0.0.1"]);
}

#[test]
fn values_that_mean_something_else_are_understood() {
    let loaded = load(
        "admin.enableServer=false\nadmin.serverPort=81\nminSessionTimeout=-1\nclientPortListenBacklog=-1\nsnapSizeLimitInKb=-1\n\
         metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n",
    )
    .unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let expected =
        Settings { admin_port: 0, metrics_port: 7000, snapshot_log_bytes: 0, ..Settings::default() };
    assert_eq!(loaded.settings, expected);
}

#[test]
fn the_servers_of_an_ensemble_are_taken() {
    let lines = "server.2=b:2888:3888:observer;2182\ndataDir=/srv\nserver.1=[::1]:2888:3888\n";
    let loaded = load_beside(lines, &[("/srv/myid", "2\n")]).unwrap();
    let found: Vec<String> = loaded.settings.servers.iter().map(Member::to_string).collect();
    assert_eq!(found, ["server.2=b:2888:3888:observer;0.0.0.0:2182", "server.1=[::1]:2888:3888:participant"]);
    assert_eq!((loaded.settings.server_id, loaded.settings.port), (Some(2), 2182));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let alone = load("server.7=a:2888:3888\n").unwrap();
    assert_eq!(alone.settings.server_id, Some(7));
    assert!(alone.warnings.is_empty());
}

#[test]
fn the_first_address_of_a_server_counts() {
    let loaded = load("server.1=a:2888:3888|b:2888:3888\n").unwrap();
    assert_eq!(loaded.settings.servers[0].host, "a");
    let expected = "conf/zoo.cfg, line 1: server.1: a server is reached at the first of its addresses, \
                    the others have no effect";
    assert_eq!(loaded.warnings, [expected]);
}

#[test]
fn servers_may_be_in_a_file_of_their_own() {
    let text = "dataDir=/srv\ndynamicConfigFile=/etc/zoo.dynamic\n";
    let dynamic = "server.1=a:1:2:participant;0.0.0.0:2181\nserver.3=c:1:2;2183\nversion=100000000\n";
    let files = [("/etc/zoo.dynamic", dynamic), ("/srv/myid", "3")];
    let loaded = load_beside(text, &files).unwrap();
    assert_eq!((loaded.settings.server_id, loaded.settings.port), (Some(3), 2183));
    assert_eq!(loaded.settings.servers.len(), 2);
    let missing = load(text).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read the configuration file /etc/zoo.dynamic: "), "{missing}");
    let wrong = load_beside(text, &[("/etc/zoo.dynamic", "\nserver.1=a\n")]).unwrap_err().to_string();
    assert_eq!(
        wrong,
        "/etc/zoo.dynamic, line 2: server.1: expected a server such as \
         server.1=host:2888:3888:participant;2181, its id from 0 to 255, found \"a\""
    );
}

#[test]
fn tls_between_servers_is_taken_from_stores_and_refused_without() {
    let text = "sslQuorum=true\nssl.quorum.keyStore.location=/k.p12\nssl.quorum.keyStore.password=x\n\
                ssl.quorum.trustStore.location=/t.jks\nssl.quorum.trustStore.passwordPath=/p\n\
                sslQuorumReloadCertFiles=false\n";
    let load = |text: &str| load_beside(text, &[("/p", "y\n")]);
    let loaded = load(text).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let expected = Settings {
        peer_tls_certificate: Some("/k.p12".into()),
        peer_tls_password: Some("x".into()),
        peer_tls_authority: Some("/t.jks".into()),
        peer_tls_authority_password: Some("y".into()),
        peer_tls_authority_password_file: Some("/p".into()),
        peer_tls_reload: false,
        ..Settings::default()
    };
    assert_eq!(loaded.settings, expected);
    assert!(!loaded.summary().contains("password=x"), "{}", loaded.summary());
    let typed = load(&format!("{text}ssl.quorum.keyStore.type=PKCS12\n")).unwrap();
    assert_eq!((typed.settings, typed.warnings.len()), (expected, 1));
    for (more, why) in [
        ("ssl.quorum.keyStore.type=BCFKS", "convert it to PKCS12"),
        ("ssl.quorum.trustStore.type=BCFKS", "convert it to PKCS12"),
        ("ssl.quorum.crl=true", "peer-tls-revoked"),
        ("ssl.quorum.ocsp=true", "cannot ask"),
        ("ssl.quorum.trustStore.password=z", "leave one of them out"),
        ("sslQuorumReloadCertFiles=maybe", "expected true or false"),
    ] {
        let error = load(&format!("{text}{more}\n")).unwrap_err().to_string();
        assert!(error.contains(why), "{more}: {error}");
    }
    for word in ["yes", "on", "no", "1", ""] {
        let error = load(&text.replace("sslQuorum=true", &format!("sslQuorum={word}"))).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("conf/zoo.cfg, line 1: sslQuorum: expected true or false"), "{error}");
    }
    for text in ["sslQuorum=true", &text.replace("keyStore.location", "keyStore.other")] {
        let error = load(text).unwrap_err().to_string();
        assert!(
            error
                .starts_with("conf/zoo.cfg, line 1: sslQuorum: TLS between servers, or of admin HTTP, takes"),
            "{error}"
        );
    }
    let off = load(&text.replace("sslQuorum=true", "sslQuorum=false")).unwrap();
    assert_eq!(off.settings, Settings { peer_tls_reload: false, ..Settings::default() });
    assert_eq!(off.warnings.len(), 4, "{:?}", off.warnings);
}

#[test]
fn admin_http_has_the_stores_of_servers_whether_these_have_tls_or_not() {
    let stores = "ssl.quorum.keyStore.location=/k.p12\nssl.quorum.trustStore.location=/t.jks\n";
    let told = |text: &str| {
        let loaded = load(text).unwrap();
        assert_eq!(loaded.warnings, [""; 0], "{text}");
        let settings = loaded.settings;
        assert_eq!(settings.peer_tls_certificate.as_deref(), Some(Path::new("/k.p12")));
        (settings.admin_tls, settings.admin_client_certificates, settings.peer_tls)
    };
    let (none, need) = (ClientCertificates::None, ClientCertificates::Need);
    assert_eq!(told(&format!("{stores}admin.portUnification=TRUE")), (TlsOnPort::Also, none, false));
    let forced =
        format!("{stores}admin.portUnification=true\nadmin.forceHttps=true\nadmin.needClientAuth=true");
    assert_eq!(told(&forced), (TlsOnPort::Only, need, false));
    assert_eq!(told(&format!("{forced}\nsslQuorum=true")), (TlsOnPort::Only, need, true));
    let off = load("admin.portUnification=false\nadmin.forceHttps=yes\nadmin.needClientAuth=true").unwrap();
    assert_eq!(off.settings, Settings::default());
    let without = load("admin.forceHttps=true").unwrap_err().to_string();
    assert!(without.contains("admin HTTP with TLS needs a certificate"), "{without}");
    let half = load("admin.forceHttps=true\nssl.quorum.keyStore.location=/k").unwrap_err().to_string();
    assert!(half.contains("takes a key store and a trust store"), "{half}");
}

#[test]
fn what_changes_who_has_a_majority_is_refused() {
    let servers = "server.1=a:1:2\nserver.2=b:1:2\n";
    for line in ["group.1=1:2", "weight.1=0", "oraclePath=/tmp/oracle"] {
        let error = load(&format!("{servers}{line}\n")).unwrap_err().to_string();
        assert!(error.starts_with("conf/zoo.cfg, line 3: "), "{error}");
        assert!(error.contains("each participant has one vote"), "{error}");
    }
}

#[test]
fn what_would_open_the_server_is_refused() {
    for text in [
        "sessionRequireClientSASLAuth=true",
        "enforce.auth.enabled=true",
        "secureClientPort=2281",
        "ssl.crl=true",
        "ssl.ocsp=true",
        "ssl.keyStore.type=BCFKS",
        "ssl.authProvider=own",
        "ssl.clientAuth=maybe",
        "ssl.clientHostnameVerification=true",
        "quorum.auth.learnerRequireSasl=true",
        "quorum.auth.learnerRequireSasl=yes",
        "ssl.quorum.crl=True",
    ] {
        assert!(load(text).is_err(), "{text}");
    }
    assert_eq!(load("enforce.auth.enabled=false").unwrap().settings, Settings::default());
}

const STORES: &str =
    "ssl.keyStore.location=/k.jks\nssl.trustStore.location=/t.jks\nssl.trustStore.password=x\n";

/// A port that is to be secure is never one in the clear.
#[test]
fn a_secure_port_is_a_second_one_or_the_only_one() {
    let ports = |text: &str| {
        let loaded = load(&format!("{STORES}{text}")).unwrap();
        assert_eq!(loaded.warnings, [""; 0]);
        let settings = loaded.settings;
        (settings.port, settings.tls_on_port, settings.secure_port, settings.bind, settings.secure_bind)
    };
    let (any, one) = (IpAddr::from([0; 16]), IpAddr::from([127, 0, 0, 1]));
    let alone = "secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\n";
    assert_eq!(ports(alone), (2281, TlsOnPort::Only, 0, one, Some(one)));
    let both = format!("clientPort=2181\n{alone}");
    assert_eq!(ports(&both), (2181, TlsOnPort::No, 2281, any, Some(one)));
    assert_eq!(ports("client.portUnification=true\n"), (2181, TlsOnPort::Also, 0, any, None));
    let servers = load(&format!("{STORES}secureClientPort=2281\nserver.1=a:1:2;2181\n")).unwrap().settings;
    assert_eq!((servers.port, servers.secure_port), (2181, 2281));
    let read = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let machine = Machine { read: &read, host: "" };
    let environment = [("STOA_PORT".to_owned(), "2181".to_owned())];
    let text = format!("{STORES}{alone}");
    let loaded = resolve(&[], &environment, Some((Path::new("zoo.cfg"), &text)), machine).unwrap();
    assert_eq!((loaded.settings.port, loaded.settings.tls_on_port), (2181, TlsOnPort::Only));
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    assert!(
        warning.contains("secureClientPort has no effect: by environment variable STOA_PORT"),
        "{warning}"
    );
}

#[test]
fn what_clients_have_to_prove_is_what_zookeeper_demands() {
    let environment = [("STOA_SASL_CONFIG".to_owned(), "/jaas".to_owned())];
    let read = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let schemes = |text: &str| {
        let machine = Machine { read: &read, host: "" };
        let loaded = resolve(&[], &environment, Some((Path::new("zoo.cfg"), text)), machine);
        loaded.unwrap().settings.require_schemes
    };
    let alone = load("sessionRequireClientSASLAuth=true").unwrap_err().to_string();
    assert!(alone.contains("SASL is demanded of clients, and not offered"), "{alone}");
    assert_eq!(
        schemes("enforce.auth.enabled=true\nenforce.auth.schemes=digest, sasl\nsuperUser=a"),
        ["digest", "sasl"]
    );
    assert_eq!(schemes("enforce.auth.schemes=digest"), [""; 0]);
    let both = "sessionRequireClientSASLAuth=true\nenforce.auth.enabled=true\nenforce.auth.schemes=digest";
    assert_eq!(schemes(both), ["sasl"]);
    let users = load("superUser=anna\nsuperUser.1=hdfs/h@R\nsuperUser2=c").unwrap().settings.sasl_super_users;
    assert_eq!(users, ["anna", "hdfs/h@R", "c"]);
}

#[test]
fn tls_is_not_begun_with_half_of_what_it_needs() {
    let no_certificate = load("clientPort=1\nsecureClientPort=2").unwrap_err().to_string();
    assert!(no_certificate.contains("TLS for clients needs a certificate"), "{no_certificate}");
    let store = "clientPort=1\nsecureClientPort=2\nssl.keyStore.location=/k\n";
    let no_authority = load(store).unwrap_err().to_string();
    assert!(no_authority.contains("none can be believed"), "{no_authority}");
    assert!(load(&format!("{store}ssl.clientAuth=NONE")).is_ok());
    let twice = format!("{store}ssl.clientAuth=none\nssl.keyStore.password=x\nssl.keyStore.passwordPath=/p");
    assert!(load_beside(&twice, &[("/p", "y\n")]).unwrap_err().to_string().contains("leave one of them out"));
    let by_file = format!("{store}ssl.clientAuth=none\nssl.keyStore.passwordPath=/p");
    let settings = load_beside(&by_file, &[("/p", "secret\n")]).unwrap().settings;
    assert_eq!(settings.tls_password.as_deref(), Some("secret"));
    let unused = load("ssl.keyStore.location=/k\n").unwrap().warnings;
    assert_eq!(unused.len(), 1, "{unused:?}");
}

#[test]
fn unknown_keys_are_warned_of() {
    for (line, why) in [
        ("ticktme=2000", "not a setting that is known"),
        ("ticktime=2000", "not a setting that is known; tickTime is"),
        (
            "zookeeper.skipACL=yes",
            "in a file the key is skipACL; zookeeper.skipACL is for the command line of a JVM",
        ),
        (
            "zookeeper.sessionRequireClientSASLAuth=true",
            "in a file the key is sessionRequireClientSASLAuth; zookeeper.sessionRequireClientSASLAuth is \
             for the command line of a JVM",
        ),
        ("zookeeper.what=ever", "not a setting that is known"),
        (
            "metricsProvider.httpPort=7001",
            "only with the class of Prometheus in metricsProvider.className is there such a port",
        ),
    ] {
        let loaded = load(line).unwrap();
        let key = line.split('=').next().unwrap();
        assert_eq!(loaded.warnings, [format!("conf/zoo.cfg, line 1: {key}: has no effect: {why}")]);
        assert_eq!(loaded.settings, Settings::default());
    }
}

/// The words that open a server or make it forget are ZooKeeper's, and no others.
#[test]
fn only_the_word_of_zookeeper_takes_protection_away() {
    for word in ["true", "Yes", "YES", "on", "1", "", "yes\\u00a0"] {
        let loaded = load(&format!("skipACL={word}")).unwrap();
        assert_eq!((loaded.settings, loaded.warnings.len()), (Settings::default(), 1), "{word}");
    }
    for word in ["false", "No", "NO", "off", "0", ""] {
        let loaded = load(&format!("forceSync={word}")).unwrap();
        assert_eq!(loaded.settings, Settings::default(), "{word}");
        let expected = format!(
            "conf/zoo.cfg, line 1: forceSync: {word:?} is read as true: only no, in small letters, is no"
        );
        assert_eq!(loaded.warnings, [expected]);
    }
    assert!(load("skipACL=yes").unwrap().settings.skip_acl);
    assert!(!load("forceSync=no").unwrap().settings.fsync);
}

#[test]
fn what_zookeeper_does_not_take_is_warned_of_with_what_counts() {
    for (line, warning) in [
        ("enforceQuota=yes", "\"yes\" is read as false: only true is true"),
        ("snapCount=1e5", "\"1e5\" is read as 100000: it is not a whole number"),
        ("autopurge.snapRetainCount=1", "\"1\" is read as 3: it is out of range"),
        ("globalOutstandingLimit=0", "\"0\" is read as 1: it is out of range"),
        ("minSessionTimeout=0", "\"0\" is read as 1: it is out of range"),
        (
            "4lw.commands.whitelist=mntr,reqs,ruok",
            "\"mntr,reqs,ruok\" is read as mntr,ruok: not all of them are four-letter words",
        ),
        (
            "DigestAuthenticationProvider.superDigest=hidden",
            "what is there is read as nothing: it is not user:base64(hash(user:password)), so that it is \
             nobody's",
        ),
        ("tickTime=1\ntickTime=3000", "has no effect: the key stands again further down"),
    ] {
        let key = line.split('=').next().unwrap();
        let expected = format!("conf/zoo.cfg, line 1: {key}: {warning}");
        assert_eq!(load(line).unwrap().warnings, [expected]);
    }
}

#[test]
fn what_zookeeper_does_not_start_with_is_refused() {
    for line in [
        "clientPort=0x10",
        "clientPort=",
        "clientPort=65536",
        "tickTime=0",
        "tickTime=-1",
        "tickTime=200000000",
        "minSessionTimeout=70000",
        "maxSessionTimeout=0",
        "minSessionTimeout=-2\nmaxSessionTimeout=-3",
        "maxClientCnxns=2147483648",
        "reconfigEnabled=yes",
        "nio.sessionlessCnxnTimeout=0",
        "znode.container.checkIntervalMs=-1",
        "clientPortAddress=no-such-host.invalid",
        "DigestAuthenticationProvider.digestAlg=",
    ] {
        assert!(load(line).is_err(), "{line}");
    }
    let overtaken = load("clientPort=x\nclientPort=+5\nserver.1=x\nserver.1=a:1:2\n").unwrap();
    assert_eq!((overtaken.settings.port, overtaken.settings.servers.len()), (5, 1));
}

#[test]
fn bounds_of_sessions_are_those_that_zookeeper_comes_to() {
    for (text, expected) in [
        ("tickTime=-5\nmaxSessionTimeout=3000", (1, 3000)),
        ("tickTime=-2147483648", (1, 1)),
        ("tickTime=1073741824", (1, 1)),
        ("tickTime=-5\nminSessionTimeout=10\nmaxSessionTimeout=20", (10, 20)),
        ("tickTime=100", (200, 2000)),
    ] {
        let (min, max) = load(text).unwrap().settings.session_timeouts();
        assert_eq!((min.as_millis(), max.as_millis()), expected, "{text}");
    }
}

#[test]
fn the_folder_of_zookeepers_log_goes_with_the_data_folder() {
    let text = "dataLogDir=/log\ndataDir=/data\n";
    assert_eq!(load(text).unwrap().zookeeper_log_dir.as_deref(), Some(Path::new("/log")));
    let other = (by_key("data-dir").unwrap(), "/other".to_owned());
    let read = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let machine = Machine { read: &read, host: "" };
    let loaded = resolve(&[other], &[], Some((Path::new("zoo.cfg"), text)), machine);
    assert_eq!(loaded.unwrap().zookeeper_log_dir, None);
}

#[test]
fn files_are_told_apart_without_their_ending() {
    assert!(looks_like("tickTime=2000\ndataDir=/x\n"));
    assert!(looks_like("dynamicConfigFile=/x\n"));
    assert!(!looks_like("servers = ['1=a:1']\nserver-id = 1\n"));
    assert!(looks_like("# c\nserver.1=a:1:2\n"));
    assert!(!looks_like("tick-time = 2000\ndata-dir = '/x'\n"));
    assert!(!looks_like(""));
}
