//! An existing `zoo.cfg`, taken as it is.
//!
//! The file is in the format of Java's properties. A key may carry the prefix `zookeeper.`, as it would
//! on the command line of a Java server. Keys that have a setting here set it; the others of
//! ZooKeeper's administrator's guide are named in one warning each, with why they have no effect. What
//! would leave a server less protected than its file asks for is refused.
//!
//! The servers of an ensemble are in `server.N` lines, in the file itself or in the one that it names as
//! its `dynamicConfigFile`.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, Place, Problem};
use super::kind::{File, Flag, Kind};
use super::load::{Entry, FileEntries, ONE_ADDRESS, ReadFile, by_key};
use super::member::{Member, Members};
use super::properties::{Property, parse};
use super::settings::SETTINGS;

/// Keys without effect: a key, or the beginning of one when it ends in `*`, and why.
pub(super) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("dataLogDir", "log and snapshots are in one folder, data-dir"),
    ("autopurge.purgeInterval", "old snapshots and logs are removed after every snapshot"),
    ("preAllocSize", "the log grows by segments; see segment-bytes"),
    ("commitLogCount", RAFT),
    ("initLimit", ELECTION_TIMEOUT),
    ("syncLimit", ELECTION_TIMEOUT),
    ("connectToLearnerMasterLimit", RAFT),
    ("electionAlg", RAFT),
    ("electionPortBindRetry", "elections need no port of their own"),
    ("leaderServes", "a leader serves clients as every server does"),
    ("peerType", "the server's own line says whether it is an observer"),
    ("quorumListenOnAllIPs", "servers listen for each other on every address unless peer-bind names one"),
    ("quorum.auth.*", "there is no SASL in this release; peer-secret is what servers prove themselves with"),
    ("quorum.cnxn.threads.size", "threads and buffers are not set by hand"),
    ("quorumCnxnTimeoutMs", ELECTION_TIMEOUT),
    ("leader.*", RAFT),
    ("learner.*", RAFT),
    ("follower.*", RAFT),
    ("fastleader.*", RAFT),
    ("observer*", RAFT),
    ("syncEnabled", "an observer has its log on disk as every server does"),
    ("cnxTimeout", ELECTION_TIMEOUT),
    ("multiAddress.*", ONE_ADDRESS),
    ("standaloneEnabled", "a server listed alone is an ensemble of one"),
    ("sslQuorumReloadCertFiles", "a change of certificates takes a restart"),
    ("ssl.quorum.*", "of TLS between servers, certificate, key and authority are set"),
    ("localSessionsEnabled", "every session is a global one"),
    ("localSessionsUpgradingEnabled", "every session is a global one"),
    ("portUnification", "the peer port speaks TLS or it does not"),
    ("client.portUnification", NO_TLS),
    ("ssl.*", NO_TLS),
    ("secureClientPortAddress", NO_TLS),
    ("serverCnxnFactory", "there is one way to serve connections"),
    ("nio.*", "threads and buffers are not set by hand"),
    ("netty.*", "threads and buffers are not set by hand"),
    ("commitProcessor.*", "threads and buffers are not set by hand"),
    ("maxBatchSize", "everything that waits is flushed together"),
    ("flushDelay", "everything that waits is flushed together"),
    ("maxWriteQueuePollTime", "everything that waits is flushed together"),
    ("maxResponseCacheSize", "replies are not cached"),
    ("maxGetChildrenResponseCacheSize", "replies are not cached"),
    ("bitHashCacheSize", "there is one way to keep watches"),
    ("watchManagerName", "there is one way to keep watches"),
    ("watcherClean*", "there is one way to keep watches"),
    ("maxInProcessingDeadWatchers", "there is one way to keep watches"),
    ("request_throttle*", "max-outstanding bounds the requests under way"),
    ("request_stale*", "max-outstanding bounds the requests under way"),
    ("throttled_op_wait_time", "max-outstanding bounds the requests under way"),
    ("largeRequest*", "max-request-bytes bounds requests"),
    ("connection_throttle*", "max-connections bounds connections"),
    ("intBufferStartingSizeBytes", "buffers grow as they need"),
    ("snapshot.*", "snapshots have their own format"),
    ("snapsync*", "snapshots have their own format"),
    ("serializeLastProcessedZxid.enabled", "a snapshot always holds its zxid"),
    ("digest.enabled", "the digest of the tree is always kept"),
    ("closeSessionTxn.enabled", "a session is always closed by one update"),
    ("compressionStreamMode", "snapshots have their own format"),
    ("tcpKeepAlive", "connections are ended when their session expires"),
    ("clientTcpKeepAlive", "connections are ended when their session expires"),
    ("pathStats.*", "requests are counted by operation; see metrics"),
    ("messageTracker.*", RAFT),
    ("audit.*", "there is no audit log in this release"),
    ("admin.enableServer", "admin-port says whether there is an admin server"),
    ("admin.*", "the admin server has a port and an address, nothing else to set"),
    ("metricsProvider.*", "metrics are in Prometheus's format, at /metrics of the admin port"),
    ("jvm.pause.*", "there is no JVM"),
    ("jmx.*", "there is no JVM"),
    ("authProvider.*", "the schemes are world, auth, digest and ip"),
    ("X509AuthenticationProvider.*", NO_TLS),
    ("SASLAuthenticationProvider.*", "there is no SASL in this release"),
    ("sasl.*", "there is no SASL in this release"),
    ("allowSaslFailedClients", "there is no SASL in this release"),
    ("requireClientAuthScheme", "there is no SASL in this release"),
    ("jaasLoginRenew", "there is no SASL in this release"),
    ("kerberos.*", "there is no SASL in this release"),
    ("superUser*", "there is no SASL in this release"),
    ("IPAuthenticationProvider.usexforwardedfor", "admin HTTP goes by the address of the connection"),
    ("DigestAuthenticationProvider.enabled", "the digest scheme is always there"),
    ("ensembleAuthName", "clients are not asked for the ensemble's name"),
    ("enableEagerACLCheck", "ACLs are always checked before a write is ordered"),
    ("emulate353TTLNodes", "TTL znodes are those of 3.5.4 and later"),
    ("forceSnapshotSync", RAFT),
];

/// Keys that set something in their own way, and what.
pub(super) const TAKEN: &[(&str, &str)] = &[
    (DYNAMIC_FILE, "its `server.N` lines, for `servers`"),
    ("sslQuorum", "`true` with a key store and a trust store in PEM, for the three settings of `peer-tls`"),
    (KEY_STORE, "`peer-tls-certificate` and `peer-tls-key`, when it is in PEM and `sslQuorum` is `true`"),
    (TRUST_STORE, "`peer-tls-authority`, when it is in PEM and `sslQuorum` is `true`"),
];

/// What would leave the server less protected than the file asks for, or other servers with the say, if it
/// were ignored: a key, the values that ask for it (none are all of them), and why.
pub(super) const REFUSED: &[(&str, &[&str], &str)] = &[
    (
        "sessionRequireClientSASLAuth",
        ON,
        "this release has no SASL and cannot keep out clients without it; remove the line to serve without",
    ),
    (
        "enforce.auth.enabled",
        ON,
        "this release cannot require a scheme of every client; remove the line to serve without",
    ),
    ("quorum.auth.serverRequireSasl", ON, NO_QUORUM_SASL),
    ("quorum.auth.learnerRequireSasl", ON, NO_QUORUM_SASL),
    ("ssl.quorum.crl", ON, NO_REVOCATION),
    ("ssl.quorum.ocsp", ON, NO_REVOCATION),
    ("group.*", &[], MAJORITY),
    ("weight.*", &[], MAJORITY),
    ("oraclePath", &[], MAJORITY),
];

const SERVER: &str = "server.";
const DYNAMIC_FILE: &str = "dynamicConfigFile";
const SECURE_PORT: &str = "secureClientPort";
const ADMIN_ENABLED: &str = "admin.enableServer";
const KEY_STORE: &str = "ssl.quorum.keyStore.location";
const KEY_STORE_TYPE: &str = "ssl.quorum.keyStore.type";
const KEY_PASSWORDS: [&str; 2] = ["ssl.quorum.keyStore.password", "ssl.quorum.keyStore.passwordPath"];
const TRUST_STORE: &str = "ssl.quorum.trustStore.location";
const TRUST_STORE_TYPE: &str = "ssl.quorum.trustStore.type";
const TRUST_STORE_PASSWORD: &str = "ssl.quorum.trustStore.password";

const ON: &[&str] = &["true", "yes"];
const RAFT: &str = "servers replicate by Raft, not by ZooKeeper's protocol";
const ELECTION_TIMEOUT: &str = "the election timeout is a setting of its own: election-timeout";
const NO_TLS: &str = "there is no TLS for clients in this release";
const NO_QUORUM_SASL: &str =
    "this release has no SASL; set peer-secret on every server instead, and remove the line";
const NO_REVOCATION: &str =
    "this release cannot ask whether a certificate was revoked; remove the line to go without";
const MAJORITY: &str = "here each participant has one vote, and more than half of them are a majority; remove \
                        the lines if that is what you want";

/// Reads a `zoo.cfg`, and the file with its servers if it names one.
pub(super) fn read(path: &Path, text: &str, read: &ReadFile) -> Result<FileEntries, ConfigError> {
    let mut lines = lines_of(path, text)?;
    if let Some(line) = lines.iter().rev().find(|line| line.name == DYNAMIC_FILE) {
        let file = PathBuf::from(&line.value);
        // Without it the server would stand alone, beside an ensemble that counts on it.
        let text = read(&file).map_err(|source| Problem::Read { file: file.clone(), source })?;
        lines.extend(lines_of(&file, &text)?.into_iter().filter(|line| line.name != "version"));
    }
    let mut found = FileEntries::default();
    let peer_tls = PeerTls::of(&lines);
    peer_tls.set(&mut found)?;
    let mut servers = Vec::new();
    for line in &lines {
        if let Some(id) = line.name.strip_prefix(SERVER) {
            servers.push((line, server(id, line, &mut found.warnings)?));
        } else if !peer_tls.uses(&line.name) && line.name != DYNAMIC_FILE {
            one_line(line, &mut found)?;
        }
    }
    if let Some((first, _)) = servers.first() {
        let members: Vec<Member> = servers.iter().map(|(_, member)| member.clone()).collect();
        found.entries.push(entry("servers", &Members::show(&members), first.place.clone()));
    }
    ports(&lines, &mut found)?;
    Ok(found)
}

/// A line, with its key as ZooKeeper's guide has it.
struct Line {
    name: String,
    value: String,
    place: Place,
}

fn lines_of(path: &Path, text: &str) -> Result<Vec<Line>, ConfigError> {
    let properties = parse(text).map_err(|error| Problem::Syntax {
        file: path.to_owned(),
        line: error.line,
        message: error.message.to_owned(),
    })?;
    let lines = properties.into_iter().map(|Property { line, key, value }| Line {
        name: without_prefix(&key).to_owned(),
        value,
        place: Place::Line { file: path.to_owned(), line, key },
    });
    Ok(lines.collect())
}

fn without_prefix(key: &str) -> &str {
    key.strip_prefix("zookeeper.").unwrap_or(key)
}

/// A `server.N` line.
fn server(id: &str, line: &Line, warnings: &mut Vec<String>) -> Result<Member, ConfigError> {
    let Some(member) = Member::parse(id, &line.value) else {
        let expected = "a server such as server.1=host:2888:3888:participant;2181, its id from 1 to 254";
        let (place, found) = (line.place.clone(), line.value.clone());
        return Err(Problem::Value { place, found, expected: expected.to_owned() }.into());
    };
    if line.value.contains('|') {
        warnings.push(format!("{}: {ONE_ADDRESS}", line.place));
    }
    Ok(member)
}

/// Ports that other lines switch off or stand in for.
fn ports(lines: &[Line], found: &mut FileEntries) -> Result<(), ConfigError> {
    let line = |name: &str| lines.iter().rev().find(|line| line.name == name);
    // Last, so that it wins over a line for the port, which ZooKeeper would not look at.
    if let Some(line) = line(ADMIN_ENABLED).filter(|line| line.value == "false") {
        found.entries.push(entry("admin-port", "0", line.place.clone()));
    }
    if let Some(secure) = line(SECURE_PORT) {
        // Which line is this server's own is not known yet.
        let mut servers = lines.iter().filter(|line| line.name.starts_with(SERVER)).peekable();
        let in_every_line = servers.peek().is_some() && servers.all(|line| line.value.contains(';'));
        if line("clientPort").is_none() && !in_every_line {
            let why = format!("{NO_TLS}, and no clientPort to serve without it");
            return Err(Problem::Refused { place: secure.place.clone(), why }.into());
        }
        found.warnings.push(format!("{}: has no effect: {NO_TLS}", secure.place));
    }
    Ok(())
}

fn one_line(line: &Line, found: &mut FileEntries) -> Result<(), ConfigError> {
    let is_elsewhere = line.name == SECURE_PORT || (line.name == ADMIN_ENABLED && line.value == "false");
    if is_elsewhere || special(line, found) { Ok(()) } else { plain(line, found) }
}

/// What a file asks for between servers. ZooKeeper takes the key and its certificates from one file.
struct PeerTls<'a> {
    asked: Option<&'a Line>,
    lines: &'a [Line],
}

impl<'a> PeerTls<'a> {
    fn of(lines: &'a [Line]) -> Self {
        let asked = lines.iter().rev().find(|line| line.name == "sslQuorum");
        PeerTls { asked: asked.filter(|line| Flag::parse(&line.value) != Some(false)), lines }
    }

    /// Whether a line has been looked at here.
    fn uses(&self, name: &str) -> bool {
        let names = [KEY_STORE, TRUST_STORE, KEY_STORE_TYPE, TRUST_STORE_TYPE];
        // Certificates in PEM are not encrypted, so that the password of a trust store has no use.
        let is_used = names.contains(&name) || name.starts_with(TRUST_STORE_PASSWORD);
        name == "sslQuorum" || (self.asked.is_some() && is_used)
    }

    /// Sets the files. What cannot be used is refused: without it the servers would talk in the clear.
    fn set(&self, found: &mut FileEntries) -> Result<(), ConfigError> {
        let Some(asked) = self.asked else { return Ok(()) };
        for name in KEY_PASSWORDS {
            if let Some(line) = self.line(name) {
                return refuse(
                    line,
                    "a key that is encrypted cannot be read; decrypt it, and remove the line",
                );
            }
        }
        let (Some(key), Some(authority)) =
            (self.pem(KEY_STORE, KEY_STORE_TYPE), self.pem(TRUST_STORE, TRUST_STORE_TYPE))
        else {
            return refuse(
                asked,
                "TLS between servers takes files in PEM: convert the key store and the trust store, and name \
                 them in ssl.quorum.keyStore.location and ssl.quorum.trustStore.location",
            );
        };
        for (setting, line) in
            [("peer-tls-certificate", key), ("peer-tls-key", key), ("peer-tls-authority", authority)]
        {
            found.entries.push(entry(setting, &line.value, line.place.clone()));
        }
        Ok(())
    }

    fn line(&self, name: &str) -> Option<&'a Line> {
        self.lines.iter().rev().find(|line| line.name == name && !line.value.is_empty())
    }

    /// A store that is in PEM: by its type, else by its ending, as ZooKeeper goes.
    fn pem(&self, location: &str, kind: &str) -> Option<&'a Line> {
        let store = self.line(location)?;
        let is_pem = match self.line(kind) {
            Some(kind) => kind.value.eq_ignore_ascii_case("PEM"),
            None => File::parse(&store.value)?.extension().is_some_and(|ending| ending == "pem"),
        };
        is_pem.then_some(store)
    }
}

fn refuse<T>(line: &Line, why: &str) -> Result<T, ConfigError> {
    Err(Problem::Refused { place: line.place.clone(), why: why.to_owned() }.into())
}

/// Keys whose value means something else than a setting's.
fn special(line: &Line, found: &mut FileEntries) -> bool {
    let (key, text) = match (line.name.as_str(), line.value.as_str()) {
        ("metricsProvider.className", class) if class.ends_with("PrometheusMetricsProvider") => {
            ("metrics-port", "7000")
        }
        ("snapSizeLimitInKb", limit) if limit.starts_with('-') => ("snapshot-log-bytes", "0"),
        // The folder may be made only if both of the keys allow it, and both do by themselves.
        ("datadir.autocreate" | "db.autocreate", "true") => return true,
        // ZooKeeper's way to ask for the default.
        (name, "-1") if setting_of(name).is_some() => return true,
        _ => return false,
    };
    // To the front: a line for the setting itself wins wherever it is.
    found.entries.insert(0, entry(key, text, line.place.clone()));
    true
}

fn entry(key: &str, text: &str, place: Place) -> Entry {
    let setting = by_key(key).expect("the key is in the table");
    Entry { setting, text: text.to_owned(), place }
}

fn plain(line: &Line, found: &mut FileEntries) -> Result<(), ConfigError> {
    let Line { name, value, place } = line;
    let refused = REFUSED.iter().find(|(pattern, _, _)| matches_pattern(pattern, name));
    if let Some((_, values, why)) = refused
        && (values.is_empty() || values.contains(&value.to_ascii_lowercase().as_str()))
    {
        return refuse(line, why);
    }
    if let Some((setting, unit)) = setting_of(name) {
        found.entries.push(Entry { setting, text: format!("{value}{unit}"), place: place.clone() });
        return Ok(());
    }
    let why = WITHOUT_EFFECT.iter().find(|(pattern, _)| matches_pattern(pattern, name)).map(|(_, why)| *why);
    found.warnings.push(match why {
        Some(why) => format!("{place}: has no effect: {why}"),
        None if refused.is_some() => format!("{place}: has no effect"),
        None => format!("{place}: has no effect: not a setting that is known"),
    });
    Ok(())
}

fn setting_of(name: &str) -> Option<(usize, &'static str)> {
    SETTINGS.iter().enumerate().find_map(|(index, setting)| {
        let (_, unit) = setting.zoo.iter().find(|(key, _)| *key == name)?;
        Some((index, *unit))
    })
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// Whether a text has a key that only a `zoo.cfg` has: none of TOML's here has a capital or a point.
pub(super) fn looks_like(text: &str) -> bool {
    parse(text).is_ok_and(|properties| {
        properties.iter().any(|property| {
            let name = without_prefix(&property.key);
            name.starts_with(SERVER)
                || name == DYNAMIC_FILE
                || setting_of(name).is_some()
                || WITHOUT_EFFECT.iter().any(|(pattern, _)| matches_pattern(pattern, name))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::load::{Loaded, resolve};
    use super::*;

    /// Loads a file, with others beside it.
    fn load_beside(text: &str, files: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
        let files: Vec<(PathBuf, String)> =
            files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        let read = move |path: &Path| {
            let file = files.iter().find(|(name, _)| name == path);
            file.map(|(_, text)| text.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        resolve(&[], &[], Some((Path::new("conf/zoo.cfg"), text)), &read)
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
        let loaded = load(
            "zookeeper.clientPort : 2182\nclientPortAddress 127.0.0.1\nclientPortListenBacklog=10\n\
             maxClientCnxns=0\nzookeeper.maxCnxns=500\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n\
             autopurge.snapRetainCount=5\nzookeeper.snapCount=1000\nsnapSizeLimitInKb=1024\n\
             txnLogSizeLimitInKb=8192\n4lw.commands.whitelist=mntr, ruok\nadmin.serverPort=8081\n\
             admin.serverAddress=127.0.0.1\nmetricsProvider.httpPort=7001\n\
             metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\n\
             globalOutstandingLimit=2000\njute.maxbuffer=0x1fffff\nskipACL=yes\nenforceQuota=true\n\
             extendedTypesEnabled=false\nznode.container.checkIntervalMs=1000\n\
             zookeeper.znode.container.maxPerMinute=10\nznode.container.maxNeverUsedIntervalMs=5\n\
             forceSync=no\nfsync.warningthresholdms=50\nnio.sessionlessCnxnTimeout=2000\n\
             DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n\
             zookeeper.DigestAuthenticationProvider.digestAlg=SHA-256\ndatadir.autocreate=false\n\
             db.autocreate=true\nserver.1=a:2888:3888\nreadonlymode.enabled=true\npartitions=1\n",
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
            ("listen-backlog", "10"),
            ("admin-port", "8081"),
            ("admin-bind", "127.0.0.1"),
            ("metrics-port", "7001"),
            ("servers", "1=a:2888:3888:participant"),
            ("reconfig-enabled", "false"),
            ("read-only-mode", "true"),
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
        ];
        assert_eq!(shown, expected.map(|(key, text)| (key, text.to_owned())));
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
        assert_eq!(
            found,
            ["server.2=b:2888:3888:observer;0.0.0.0:2182", "server.1=[::1]:2888:3888:participant"]
        );
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
             server.1=host:2888:3888:participant;2181, its id from 1 to 254, found \"a\""
        );
    }

    #[test]
    fn tls_between_servers_is_taken_in_pem_and_refused_otherwise() {
        let pem = "sslQuorum=true\nssl.quorum.keyStore.location=/k.pem\n\
                   ssl.quorum.trustStore.location=/t.jks\nssl.quorum.trustStore.type=PEM\n\
                   ssl.quorum.trustStore.passwordPath=/p\n";
        let loaded = load(pem).unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let expected = Settings {
            peer_tls_certificate: Some("/k.pem".into()),
            peer_tls_key: Some("/k.pem".into()),
            peer_tls_authority: Some("/t.jks".into()),
            ..Settings::default()
        };
        assert_eq!(loaded.settings, expected);
        for more in ["ssl.quorum.keyStore.type=JKS", "ssl.quorum.keyStore.password=x", "ssl.quorum.ocsp=true"]
        {
            assert!(load(&format!("{pem}{more}\n")).is_err(), "{more}");
        }
        for text in ["sslQuorum=true", "sslQuorum=yse", &pem.replace("k.pem", "k.jks")] {
            let error = load(text).unwrap_err().to_string();
            assert!(
                error.starts_with("conf/zoo.cfg, line 1: sslQuorum: TLS between servers takes"),
                "{error}"
            );
        }
        let off = load(&pem.replace("true", "false")).unwrap();
        assert_eq!(off.settings, Settings::default());
        assert_eq!(off.warnings.len(), 4, "{:?}", off.warnings);
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
            "quorum.auth.learnerRequireSasl=true",
        ] {
            assert!(load(text).is_err(), "{text}");
        }
        let servers = "secureClientPort=2281\nserver.1=a:1:2;2181\n";
        assert!(load(servers).is_ok());
        assert!(load(&format!("{servers}server.2=b:1:2\n")).is_err());
        assert_eq!(load("enforce.auth.enabled=false").unwrap().warnings.len(), 1);
        assert_eq!(load("clientPort=1\nsecureClientPort=2281").unwrap().warnings.len(), 1);
    }

    #[test]
    fn unknown_keys_are_warned_of() {
        let warnings = load("ticktime=2000\n").unwrap().warnings;
        assert_eq!(warnings, ["conf/zoo.cfg, line 1: ticktime: has no effect: not a setting that is known"]);
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

    use super::super::settings::Settings;
}
