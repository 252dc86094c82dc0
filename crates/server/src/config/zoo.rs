//! An existing `zoo.cfg`, taken as it is.
//!
//! The file is in the format of Java's properties. Keys that have a setting here set it, and each value is
//! read as ZooKeeper reads it ([`Reading`]): where it falls back to something else, that counts here too, and
//! a warning says so. The other keys of ZooKeeper's administrator's guide are named in one warning each,
//! with why they have no effect. What would leave a server less protected than its file asks for is refused.
//!
//! ZooKeeper puts `zookeeper.` before each key that it does not know and has a Java system property, so that
//! a key with that prefix has no effect in a file. A few properties have no such prefix (`jute.maxbuffer`,
//! `readonlymode.enabled`, `znode.container.*`): ZooKeeper takes them from its command line alone, and here
//! the file is the place for them.
//!
//! The servers of an ensemble are in `server.N` lines, in the file itself or in the one that it names as
//! its `dynamicConfigFile`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, Place, Problem};
use super::java;
use super::kind::Kind as _;
use super::load::{Entry, FileEntries, ONE_ADDRESS, ReadFile, by_key};
use super::member::{Member, Members};
use super::properties::{Property, parse};
use super::reading::{Meaning, Reading, boolean};
use super::settings::{SETTINGS, Setting, Settings};

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
    (
        "standaloneEnabled",
        "a server listed alone is an ensemble of one, and one that stood alone becomes an ensemble when its settings name others",
    ),
    ("ssl.quorum.keyStore.type", "a store is known by what is in it"),
    ("ssl.quorum.trustStore.type", "a store is known by what is in it"),
    ("ssl.quorum.*", "of TLS between servers, certificate, key and authority are set"),
    ("portUnification", "the peer port speaks TLS or it does not"),
    ("ssl.protocol", "ssl.enabledProtocols says which versions there are"),
    ("ssl.keyStore.type", "a store is known by what is in it"),
    ("ssl.trustStore.type", "a store is known by what is in it"),
    ("ssl.handshakeDetectionTimeoutMillis", "handshake-timeout bounds handshakes"),
    ("ssl.hostnameVerification", "names are looked at by who connects"),
    ("ssl.*", "keys, certificates, versions and ciphers of TLS are set, nothing else of it"),
    ("fips-mode", "TLS has no ciphers that are not safe"),
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
    ("audit.impl.class", "the audit log is a file, in one of the two forms of audit-format"),
    ("admin.enableServer", "admin-port says whether there is an admin server"),
    ("admin.*", "the admin server has a port and an address, nothing else to set"),
    ("metricsProvider.*", "metrics are in Prometheus's format, at /metrics of the admin port"),
    ("jvm.pause.*", "there is no JVM"),
    ("jmx.*", "there is no JVM"),
    (
        "authProvider.*",
        "the schemes are world, auth, digest, ip, and x509, sasl and ensemble where their settings are there",
    ),
    ("X509AuthenticationProvider.*", "of certificates of clients, only who is the super user is set"),
    ("sasl.*", "of SASL, the section of the login configuration is set; its file is sasl-config"),
    ("requireClientAuthScheme", "ZooKeeper does not look at it; sessionRequireClientSASLAuth demands SASL"),
    ("jaasLoginRenew", "a server that has a keytab needs no login that ends"),
    ("kerberos.*", "of Kerberos, what is left out of names is set"),
    ("IPAuthenticationProvider.usexforwardedfor", "admin HTTP goes by the address of the connection"),
    ("enableEagerACLCheck", "ACLs are always checked before a write is ordered"),
    ("emulate353TTLNodes", "TTL znodes are those of 3.5.4 and later"),
    ("forceSnapshotSync", RAFT),
];

/// Keys that set something in their own way: how they are read, and what they set.
pub(super) const TAKEN: &[(&str, Reading, &str)] = &[
    (DYNAMIC_FILE, Reading::Path, "its `server.N` lines, for `servers`"),
    (
        "sslQuorum",
        Reading::Strict,
        "`true` with a key store and a trust store, for the settings of `peer-tls`",
    ),
    (KEY_STORE, Reading::Path, "`peer-tls-certificate`, when `sslQuorum` is `true`"),
    (KEY_PASSWORD, Reading::Own, "`peer-tls-password`, when `sslQuorum` is `true`"),
    (KEY_PASSWORD_FILE, Reading::Path, "`peer-tls-password-file`, when `sslQuorum` is `true`"),
    (ADMIN_ALSO, Reading::True, "`true`, for `admin-tls` `also`, with the files of `ssl.quorum`"),
    (ADMIN_ONLY, Reading::True, "`true`, for `admin-tls` `only`, with the files of `ssl.quorum`"),
    (ADMIN_NEEDS, Reading::True, "`true`, for `admin-client-certificates` `need`"),
    (DEMANDS_SASL, Reading::True, "`sasl`, for `require-schemes`"),
    (DEMANDS_SOME, Reading::True, "`true` with `enforce.auth.schemes`, for `require-schemes`"),
    (DEMANDED, Reading::Own, "`require-schemes`, when `enforce.auth.enabled` is `true`"),
    ("superUser*", Reading::Own, "`sasl-super-users`, all of them together"),
    (TRUST_STORE, Reading::Path, "`peer-tls-authority`, when `sslQuorum` is `true`"),
    (TRUST_PASSWORD, Reading::Own, "`peer-tls-authority-password`, when `sslQuorum` is `true`"),
    (TRUST_PASSWORD_FILE, Reading::Path, "`peer-tls-authority-password-file`, when `sslQuorum` is `true`"),
];

/// What would leave the server less protected than the file asks for, or other servers with the say, if it
/// were ignored: a key, how it is read if only some values ask for it, and why.
pub(super) const REFUSED: &[(&str, Option<Reading>, &str)] = &[
    ("quorum.auth.serverRequireSasl", Some(Reading::Strict), NO_QUORUM_SASL),
    ("quorum.auth.learnerRequireSasl", Some(Reading::Strict), NO_QUORUM_SASL),
    (
        "ssl.crl",
        Some(Reading::True),
        "lists of revoked certificates are not fetched; name a file with them in tls-revoked (STOA_TLS_REVOKED), and \
         remove the line",
    ),
    ("ssl.ocsp", Some(Reading::True), NO_REVOCATION),
    (
        "ssl.clientHostnameVerification",
        Some(Reading::True),
        "names in certificates of clients are not compared with where they connect from; remove the line to go without",
    ),
    ("ssl.keyStore.type", Some(Reading::BCFKS), NO_BCFKS),
    ("ssl.trustStore.type", Some(Reading::BCFKS), NO_BCFKS),
    ("ssl.context.supplier.class", None, "no code of a JVM runs here; remove the line"),
    ("ssl.quorum.keyStore.type", Some(Reading::BCFKS), NO_BCFKS),
    ("ssl.quorum.trustStore.type", Some(Reading::BCFKS), NO_BCFKS),
    (
        "ssl.quorum.crl",
        Some(Reading::True),
        "lists of revoked certificates are not fetched; name a file with them in peer-tls-revoked \
         (STOA_PEER_TLS_REVOKED), and remove the line",
    ),
    ("ssl.quorum.ocsp", Some(Reading::True), NO_REVOCATION),
    ("group.*", None, MAJORITY),
    ("weight.*", None, MAJORITY),
    ("oraclePath", None, MAJORITY),
];

const SERVER: &str = "server.";
/// What Java's system properties begin with, and the keys of a file do not.
const PREFIX: &str = "zookeeper.";
const LOG_FOLDER: &str = "dataLogDir";
const METRICS_CLASS: &str = "metricsProvider.className";
const METRICS_PORT: &str = "metricsProvider.httpPort";
const PROMETHEUS: &str = "PrometheusMetricsProvider";
const DYNAMIC_FILE: &str = "dynamicConfigFile";
const SECURE_PORT: &str = "secureClientPort";
const DEMANDS_SASL: &str = "sessionRequireClientSASLAuth";
const DEMANDS_SOME: &str = "enforce.auth.enabled";
const DEMANDED: &str = "enforce.auth.schemes";
const SUPER_USER: &str = "superUser";
const SECURE_ADDRESS: &str = "secureClientPortAddress";
const ADMIN_ENABLED: &str = "admin.enableServer";
const ADMIN_ALSO: &str = "admin.portUnification";
const ADMIN_ONLY: &str = "admin.forceHttps";
const ADMIN_NEEDS: &str = "admin.needClientAuth";
const KEY_STORE: &str = "ssl.quorum.keyStore.location";
const KEY_PASSWORD: &str = "ssl.quorum.keyStore.password";
const KEY_PASSWORD_FILE: &str = "ssl.quorum.keyStore.passwordPath";
const TRUST_STORE: &str = "ssl.quorum.trustStore.location";
const TRUST_PASSWORD: &str = "ssl.quorum.trustStore.password";
const TRUST_PASSWORD_FILE: &str = "ssl.quorum.trustStore.passwordPath";

const RAFT: &str = "servers replicate by Raft, not by ZooKeeper's protocol";
const ELECTION_TIMEOUT: &str = "the election timeout is a setting of its own: election-timeout";
const NO_BCFKS: &str =
    "a store in this format cannot be read: convert it to PKCS12 with keytool -importkeystore";
const NO_QUORUM_SASL: &str =
    "this release has no SASL; set peer-secret on every server instead, and remove the line";
const NO_REVOCATION: &str =
    "this release cannot ask whether a certificate was revoked; remove the line to go without";
const MAJORITY: &str = "here each participant has one vote, and more than half of them are a majority; remove \
                        the lines if that is what you want";

/// Reads a `zoo.cfg`, and the file with its servers if it names one.
pub(super) fn read(path: &Path, text: &str, read: &ReadFile) -> Result<FileEntries, ConfigError> {
    let mut found = FileEntries::default();
    let mut lines = last_of_each(lines_of(path, text)?, &mut found.warnings);
    if let Some(line) = find(&lines, DYNAMIC_FILE) {
        let file = PathBuf::from(&line.value);
        // Without it the server would stand alone, beside an ensemble that counts on it.
        let text = read(&file).map_err(|source| Problem::Read { file: file.clone(), source })?;
        lines.extend(lines_of(&file, &text)?.into_iter().filter(|line| line.name != "version"));
        lines = last_of_each(lines, &mut found.warnings);
    }
    admin_tls(&lines, &mut found)?;
    let quorum_ssl = QuorumSsl::of(&lines)?;
    quorum_ssl.set(&mut found)?;
    let mut servers = Vec::new();
    for line in &lines {
        if let Some(id) = line.name.strip_prefix(SERVER) {
            servers.push((line, server(id, line, &mut found.warnings)?));
        } else if !quorum_ssl.uses(&line.name) && line.name != DYNAMIC_FILE {
            one_line(line, &mut found)?;
        }
    }
    if let Some((first, _)) = servers.first() {
        let members: Vec<Member> = servers.iter().map(|(_, member)| member.clone()).collect();
        found.entries.push(entry("servers", &Members::show(&members), first.place.clone()));
    }
    session_timeouts(&lines, &mut found)?;
    metrics(&lines, &mut found)?;
    demands(&lines, &mut found)?;
    ports(&lines, &mut found)?;
    found.log_folder = find(&lines, LOG_FOLDER).map(|line| PathBuf::from(&line.value));
    Ok(found)
}

/// A line, with its key as ZooKeeper's guide has it.
#[derive(Clone)]
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
        name: key.clone(),
        value,
        place: Place::Line { file: path.to_owned(), line, key },
    });
    Ok(lines.collect())
}

/// The last line of a key is the only one that is looked at.
fn last_of_each(lines: Vec<Line>, warnings: &mut Vec<String>) -> Vec<Line> {
    let last: HashMap<String, usize> =
        lines.iter().enumerate().map(|(index, line)| (line.name.clone(), index)).collect();
    let is_last = |(index, line): (usize, Line)| {
        if last[&line.name] == index {
            return Some(line);
        }
        warnings.push(format!("{}: has no effect: the key stands again further down", line.place));
        None
    };
    lines.into_iter().enumerate().filter_map(is_last).collect()
}

fn find<'a>(lines: &'a [Line], name: &str) -> Option<&'a Line> {
    lines.iter().find(|line| line.name == name)
}

/// A `server.N` line.
fn server(id: &str, line: &Line, warnings: &mut Vec<String>) -> Result<Member, ConfigError> {
    let Some(member) = Member::parse(id, &line.value) else {
        return expected(
            line,
            "a server such as server.1=host:2888:3888:participant;2181, its id from 0 to 255",
        );
    };
    if line.value.contains('|') {
        warnings.push(format!("{}: {ONE_ADDRESS}", line.place));
    }
    Ok(member)
}

/// ZooKeeper counts ticks in 32 bits, and refuses bounds of which the shortest is above the longest. Bounds
/// that would come to something else here, because the tick does, are set to what it comes to.
fn session_timeouts(lines: &[Line], found: &mut FileEntries) -> Result<(), ConfigError> {
    let number = |name: &str| {
        let line = find(lines, name)?;
        Some((line, i32::try_from(java::parse_int(&line.value)?).ok()?))
    };
    let (tick, min, max) = (number("tickTime"), number("minSessionTimeout"), number("maxSessionTimeout"));
    let tick_ms = tick.map_or(3000, |(_, ms)| ms);
    let bound = |set: Option<(_, i32)>, ticks: i32| match set {
        Some((_, ms)) if ms != -1 => (ms, false),
        _ => (tick_ms.wrapping_mul(ticks), tick_ms < 0 || tick_ms.checked_mul(ticks).is_none()),
    };
    let bounds = [("min-session-timeout", bound(min, 2)), ("max-session-timeout", bound(max, 20))];
    let [(_, (shortest_ms, _)), (_, (longest_ms, _))] = bounds;
    if let Some((line, _)) = max.or(min).or(tick).filter(|_| shortest_ms > longest_ms) {
        let why = format!(
            "session timeouts from {shortest_ms} to {longest_ms} ms: the shortest must not be above the \
             longest"
        );
        return refuse(line, &why);
    }
    if let Some((line, _)) = tick {
        let wrapped = bounds.into_iter().filter(|(_, (_, is_wrapped))| *is_wrapped);
        let place = &line.place;
        found.entries.extend(wrapped.map(|(key, (ms, _))| entry(key, &ms.max(1).to_string(), place.clone())));
    }
    Ok(())
}

/// ZooKeeper's Prometheus provider has a port of its own; without it nobody listens there.
fn metrics(lines: &[Line], found: &mut FileEntries) -> Result<(), ConfigError> {
    let port = find(lines, METRICS_PORT);
    let class = find(lines, METRICS_CLASS).filter(|class| class.value.ends_with(PROMETHEUS));
    match (class, port) {
        (Some(_), Some(port)) => return plain(port, found),
        (Some(class), None) => found.entries.push(entry("metrics-port", "7000", class.place.clone())),
        (None, Some(port)) => {
            let why = "only with the class of Prometheus in metricsProvider.className is there such a port";
            found.warnings.push(format!("{}: has no effect: {why}", port.place));
        }
        (None, None) => {}
    }
    Ok(())
}

/// What clients have to prove, and who is a super user by SASL: of these there are several lines.
fn demands(lines: &[Line], found: &mut FileEntries) -> Result<(), ConfigError> {
    let is_asked = |name: &str| -> Result<Option<&Line>, ConfigError> {
        let Some(line) = find(lines, name) else { return Ok(None) };
        Ok(is_true(Reading::True, line)?.then_some(line))
    };
    if let Some(line) = is_asked(DEMANDS_SASL)? {
        found.entries.push(entry("require-schemes", "sasl", line.place.clone()));
    } else if let Some(line) = is_asked(DEMANDS_SOME)? {
        let Some(schemes) = find(lines, DEMANDED).filter(|line| !line.value.is_empty()) else {
            return refuse(line, "which schemes are demanded enforce.auth.schemes has to say");
        };
        found.entries.push(entry("require-schemes", &schemes.value, schemes.place.clone()));
    }
    let users: Vec<&Line> = lines.iter().filter(|line| line.name.starts_with(SUPER_USER)).collect();
    if let Some(first) = users.first() {
        let names: Vec<&str> = users.iter().map(|line| line.value.as_str()).collect();
        found.entries.push(entry("sasl-super-users", &names.join(","), first.place.clone()));
    }
    Ok(())
}

/// Ports that other lines switch off or stand in for.
fn ports(lines: &[Line], found: &mut FileEntries) -> Result<(), ConfigError> {
    // Last, so that it wins over a line for the port, which ZooKeeper would not look at.
    if let Some(line) = find(lines, ADMIN_ENABLED).filter(|line| line.value == "false") {
        found.entries.push(entry("admin-port", "0", line.place.clone()));
    }
    if let Some(secure) = find(lines, SECURE_PORT) {
        secure_port(secure, lines, found)?;
    }
    Ok(())
}

/// Without a `clientPort` there is no port in the clear: then the one port is the secure one.
fn secure_port(secure: &Line, lines: &[Line], found: &mut FileEntries) -> Result<(), ConfigError> {
    // Which line is this server's own is not known yet.
    let mut servers = lines.iter().filter(|line| line.name.starts_with(SERVER));
    if find(lines, "clientPort").is_some() || servers.any(|line| line.value.contains(';')) {
        return plain(secure, found);
    }
    let address = find(lines, SECURE_ADDRESS);
    found.entries.push(entry("port", &secure.value, secure.place.clone()));
    found.entries.push(entry("tls-on-port", "only", secure.place.clone()));
    if let Some(address) = address {
        let line = Line { name: "clientPortAddress".to_owned(), ..address.clone() };
        plain(&line, found)?;
    }
    Ok(())
}

fn one_line(line: &Line, found: &mut FileEntries) -> Result<(), ConfigError> {
    match (line.name.as_str(), line.value.as_str()) {
        ("ssl.authProvider", provider) if provider != "x509" => {
            refuse(line, "the owner of a certificate is known by its subject alone (x509); remove the line")
        }
        (DEMANDS_SASL | DEMANDS_SOME | DEMANDED, _) => Ok(()),
        (name, _) if name.starts_with(SUPER_USER) => Ok(()),
        (ADMIN_ALSO | ADMIN_ONLY | ADMIN_NEEDS, _) => Ok(()),
        (SECURE_PORT | METRICS_PORT, _) | (ADMIN_ENABLED, "false") => Ok(()),
        (METRICS_CLASS, class) if class.ends_with(PROMETHEUS) => Ok(()),
        // The folder may be made only if both of the keys allow it, and both do by themselves.
        ("datadir.autocreate" | "db.autocreate", value) if boolean(value) == Some(true) => Ok(()),
        _ => plain(line, found),
    }
}

/// The line that says yes to one of these, if any does.
fn yes<'a>(lines: &'a [Line], names: &[&str]) -> Result<Option<&'a Line>, ConfigError> {
    for line in names.iter().filter_map(|name| find(lines, name)) {
        if is_true(Reading::True, line)? {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

/// TLS of admin HTTP, for which ZooKeeper has the stores of `ssl.quorum`, whether servers have TLS or not.
fn admin_tls(lines: &[Line], found: &mut FileEntries) -> Result<(), ConfigError> {
    let Some(asked) = yes(lines, &[ADMIN_ONLY, ADMIN_ALSO])? else { return Ok(()) };
    let how = if asked.name == ADMIN_ONLY { "only" } else { "also" };
    found.entries.push(entry("admin-tls", how, asked.place.clone()));
    if let Some(line) = yes(lines, &[ADMIN_NEEDS])? {
        found.entries.push(entry("admin-client-certificates", "need", line.place.clone()));
    }
    let stores = [KEY_STORE, "ssl.keyStore.location"];
    if let [Some(_), Some(own)] = stores.map(|name| find(lines, name)) {
        found
            .warnings
            .push(format!("{}: is for admin HTTP too, which has {KEY_STORE} in ZooKeeper", own.place));
    }
    Ok(())
}

/// What a file asks for between servers, and what there is for that.
struct QuorumSsl<'a> {
    asked: Option<&'a Line>,
    /// Whether the files are for admin HTTP alone.
    is_for_admin: bool,
    lines: &'a [Line],
}

/// The keys that count when it is asked for, and the settings that they are.
const QUORUM_FILES: [(&str, &str); 6] = [
    (KEY_STORE, "peer-tls-certificate"),
    (KEY_PASSWORD, "peer-tls-password"),
    (KEY_PASSWORD_FILE, "peer-tls-password-file"),
    (TRUST_STORE, "peer-tls-authority"),
    (TRUST_PASSWORD, "peer-tls-authority-password"),
    (TRUST_PASSWORD_FILE, "peer-tls-authority-password-file"),
];

impl<'a> QuorumSsl<'a> {
    fn of(lines: &'a [Line]) -> Result<Self, ConfigError> {
        let line = find(lines, "sslQuorum");
        let is_asked = line.map(|line| is_true(Reading::Strict, line)).transpose()?;
        let asked = line.filter(|_| is_asked == Some(true));
        let of_admin = yes(lines, &[ADMIN_ONLY, ADMIN_ALSO])?;
        // Without a key store of its own admin HTTP has that of clients.
        let of_admin = of_admin.filter(|_| asked.is_none() && find(lines, KEY_STORE).is_some());
        Ok(QuorumSsl { asked: asked.or(of_admin), is_for_admin: of_admin.is_some(), lines })
    }

    /// Whether a line has been looked at here.
    fn uses(&self, name: &str) -> bool {
        name == "sslQuorum" || (self.asked.is_some() && QUORUM_FILES.iter().any(|(key, _)| *key == name))
    }

    /// Sets the files. Without one of the stores the servers would talk in the clear, which is refused.
    fn set(&self, found: &mut FileEntries) -> Result<(), ConfigError> {
        let Some(asked) = self.asked else { return Ok(()) };
        let line = |name: &str| find(self.lines, name).filter(|line| !line.value.is_empty());
        if line(KEY_STORE).is_none() || line(TRUST_STORE).is_none() {
            return refuse(
                asked,
                "TLS between servers, or of admin HTTP, takes a key store and a trust store: name them in \
                 ssl.quorum.keyStore.location and ssl.quorum.trustStore.location",
            );
        }
        if self.is_for_admin {
            found.entries.push(entry("peer-tls", "false", asked.place.clone()));
        }
        let lines = QUORUM_FILES.iter().filter_map(|(key, setting)| Some((setting, line(key)?)));
        found.entries.extend(lines.map(|(setting, line)| entry(setting, &line.value, line.place.clone())));
        Ok(())
    }
}

fn refuse<T>(line: &Line, why: &str) -> Result<T, ConfigError> {
    Err(Problem::Refused { place: line.place.clone(), why: why.to_owned() }.into())
}

fn expected<T>(line: &Line, expected: &str) -> Result<T, ConfigError> {
    let (place, found) = (line.place.clone(), line.value.clone());
    Err(Problem::Value { place, found, expected: expected.to_owned() }.into())
}

/// Whether a line says yes, read in one of the ways that end in yes or no.
fn is_true(reading: Reading, line: &Line) -> Result<bool, ConfigError> {
    match reading.read(&line.value) {
        Meaning::Text(text) => Ok(text == "true"),
        Meaning::Instead(..) | Meaning::Nothing => Ok(false),
        Meaning::Expected(what) => expected(line, &what),
    }
}

fn entry(key: &str, text: &str, place: Place) -> Entry {
    let setting = by_key(key).expect("the key is in the table");
    Entry { setting, text: text.to_owned(), place }
}

fn plain(line: &Line, found: &mut FileEntries) -> Result<(), ConfigError> {
    let Line { name, place, .. } = line;
    let refused = REFUSED.iter().find(|(pattern, _, _)| matches_pattern(pattern, name));
    if let Some((_, reading, why)) = refused
        && reading.map_or(Ok(true), |reading| is_true(reading, line))?
    {
        return refuse(line, why);
    }
    if let Some((setting, reading)) = setting_of(name) {
        return set(line, setting, reading, found);
    }
    let why = match without_effect(name) {
        Some(why) => why.to_owned(),
        None => unknown(name),
    };
    found.warnings.push(match refused {
        Some(_) => format!("{place}: has no effect"),
        None => format!("{place}: has no effect: {why}"),
    });
    Ok(())
}

/// A line for a setting.
fn set(line: &Line, setting: usize, reading: Reading, found: &mut FileEntries) -> Result<(), ConfigError> {
    let text = match reading.read(&line.value) {
        Meaning::Expected(what) => return expected(line, &what),
        Meaning::Nothing => return Ok(()),
        Meaning::Text(text) => text,
        Meaning::Instead(text, why) => {
            found.warnings.push(instead(line, &SETTINGS[setting], text.as_deref(), why));
            let Some(text) = text else { return Ok(()) };
            text
        }
    };
    found.entries.push(Entry { setting, text, place: line.place.clone() });
    Ok(())
}

/// Says what counts where that is not what was written.
fn instead(line: &Line, setting: &Setting, text: Option<&str>, why: &str) -> String {
    let written = if setting.is_secret() { "what is there".to_owned() } else { format!("{:?}", line.value) };
    let counts = match text {
        Some(text) => text.to_owned(),
        None => setting.get(&Settings::default()),
    };
    let counts = if counts.is_empty() { "nothing" } else { &counts };
    format!("{}: {written} is read as {counts}: {why}", line.place)
}

fn unknown(name: &str) -> String {
    if let Some(known) = name.strip_prefix(PREFIX).filter(|name| is_known(name)) {
        return format!("in a file the key is {known}; {PREFIX}{known} is for the command line of a JVM");
    }
    let keys = SETTINGS.iter().flat_map(|setting| setting.zoo).map(|(key, _)| *key);
    match keys.into_iter().find(|key| key.eq_ignore_ascii_case(name)) {
        Some(key) => format!("not a setting that is known; {key} is"),
        None => "not a setting that is known".to_owned(),
    }
}

fn without_effect(name: &str) -> Option<&'static str> {
    WITHOUT_EFFECT.iter().find(|(pattern, _)| matches_pattern(pattern, name)).map(|(_, why)| *why)
}

/// Whether ZooKeeper has such a key.
fn is_known(name: &str) -> bool {
    name.starts_with(SERVER)
        || name == SECURE_PORT
        || setting_of(name).is_some()
        || without_effect(name).is_some()
        || TAKEN.iter().any(|(pattern, _, _)| matches_pattern(pattern, name))
        || REFUSED.iter().any(|(pattern, _, _)| matches_pattern(pattern, name))
}

fn setting_of(name: &str) -> Option<(usize, Reading)> {
    SETTINGS.iter().enumerate().find_map(|(index, setting)| {
        let (_, reading) = setting.zoo.iter().find(|(key, _)| *key == name)?;
        Some((index, *reading))
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
            let name = property.key.strip_prefix(PREFIX).unwrap_or(&property.key);
            is_known(name) && name != "partitions"
        })
    })
}

#[cfg(test)]
mod tests;
