//! An existing `zoo.cfg`, taken as it is.
//!
//! The file is in the format of Java's properties. A key may carry the prefix `zookeeper.`, as it would
//! on the command line of a Java server. Keys that have a setting here set it; the others of
//! ZooKeeper's administrator's guide are named in one warning each, with why they have no effect. What
//! would leave a server less protected than its file asks for is refused.

use std::path::Path;

use super::error::{ConfigError, Place, Problem};
use super::load::{Entry, FileEntries, by_key};
use super::properties::{Property, parse};
use super::settings::SETTINGS;

/// Keys without effect: a key, or the beginning of one when it ends in `*`, and why.
pub(super) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("dataLogDir", "log and snapshots are in one folder, data-dir"),
    ("autopurge.purgeInterval", "old snapshots and logs are removed after every snapshot"),
    ("preAllocSize", "the log grows by segments; see segment-bytes"),
    ("commitLogCount", "this server has no followers"),
    ("initLimit", "this server has no followers"),
    ("syncLimit", "this server has no followers"),
    ("connectToLearnerMasterLimit", "this server has no followers"),
    ("electionAlg", "this server stands alone"),
    ("electionPortBindRetry", "this server stands alone"),
    ("leaderServes", "this server stands alone"),
    ("peerType", "this server stands alone"),
    ("group.*", "this server stands alone"),
    ("weight.*", "this server stands alone"),
    ("quorum*", "this server stands alone"),
    ("leader.*", "this server stands alone"),
    ("learner.*", "this server stands alone"),
    ("follower.*", "this server stands alone"),
    ("fastleader.*", "this server stands alone"),
    ("observer*", "this server stands alone"),
    ("syncEnabled", "this server stands alone"),
    ("cnxTimeout", "this server stands alone"),
    ("multiAddress.*", "this server stands alone"),
    ("standaloneEnabled", "this server stands alone"),
    ("dynamicConfigFile", "this server stands alone"),
    ("reconfigEnabled", "this server stands alone and refuses reconfig"),
    ("sslQuorum*", "this server stands alone"),
    ("ssl.quorum.*", "this server stands alone"),
    ("oraclePath", "this server stands alone"),
    ("localSessionsEnabled", "every session is a global one"),
    ("localSessionsUpgradingEnabled", "every session is a global one"),
    ("readonlymode.enabled", "a server that stands alone never loses its quorum"),
    ("portUnification", "there is no TLS in this release"),
    ("client.portUnification", "there is no TLS in this release"),
    ("ssl.*", "there is no TLS in this release"),
    ("secureClientPortAddress", "there is no TLS in this release"),
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
    ("messageTracker.*", "this server has no followers"),
    ("audit.*", "there is no audit log in this release"),
    ("admin.enableServer", "admin-port says whether there is an admin server"),
    ("admin.*", "the admin server has a port and an address, nothing else to set"),
    ("metricsProvider.*", "metrics are in Prometheus's format, at /metrics of the admin port"),
    ("jvm.pause.*", "there is no JVM"),
    ("jmx.*", "there is no JVM"),
    ("authProvider.*", "the schemes are world, auth, digest and ip"),
    ("X509AuthenticationProvider.*", "there is no TLS in this release"),
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
    ("forceSnapshotSync", "this server has no followers"),
];

/// What would leave the server less protected than the file asks for, if it were ignored.
const REFUSED: &[(&str, &str)] = &[
    (
        "sessionRequireClientSASLAuth",
        "this release has no SASL and cannot keep out clients without it; remove the line to serve without",
    ),
    (
        "enforce.auth.enabled",
        "this release cannot require a scheme of every client; remove the line to serve without",
    ),
    ("quorum.auth.serverRequireSasl", "this release has no SASL; remove the line to serve without"),
];

/// Reads a `zoo.cfg`.
pub(super) fn read(path: &Path, text: &str) -> Result<FileEntries, ConfigError> {
    let properties = parse(text).map_err(|error| Problem::Syntax {
        file: path.to_owned(),
        line: error.line,
        message: error.message.to_owned(),
    })?;
    let mut found = FileEntries::default();
    let mut servers = 0;
    let mut has_port = false;
    let mut secure_port = None;
    let mut admin_off = None;
    for property in &properties {
        let name = property.key.strip_prefix("zookeeper.").unwrap_or(&property.key);
        let place = Place::Line { file: path.to_owned(), line: property.line, key: property.key.clone() };
        has_port |= name == "clientPort";
        match name {
            "secureClientPort" => secure_port = Some(place),
            "admin.enableServer" if property.value == "false" => admin_off = Some(place),
            _ if name.starts_with("server.") => servers += 1,
            _ if special(name, property, &place, &mut found) => {}
            _ => plain(name, property, place, &mut found)?,
        }
    }
    // Last, so that it wins over a line for the port, which ZooKeeper would not look at.
    if let Some(place) = admin_off {
        found.entries.push(entry("admin-port", "0", place));
    }
    if let Some(place) = secure_port {
        if !has_port {
            let why = "there is no TLS in this release, and no clientPort to serve without it";
            return Err(Problem::Refused { place, why }.into());
        }
        found.warnings.push(format!("{place}: has no effect: there is no TLS in this release"));
    }
    if servers > 1 {
        found.warnings.push(format!(
            "{}: names {servers} servers of an ensemble, but this release serves alone: start one server, not \
             {servers}, and give clients its address only",
            path.display()
        ));
    }
    Ok(found)
}

/// Keys whose value means something else than a setting's.
fn special(name: &str, property: &Property, place: &Place, found: &mut FileEntries) -> bool {
    let (key, text) = match (name, property.value.as_str()) {
        ("metricsProvider.className", class) if class.ends_with("PrometheusMetricsProvider") => {
            ("metrics-port", "7000")
        }
        ("snapSizeLimitInKb", limit) if limit.starts_with('-') => ("snapshot-log-bytes", "0"),
        // The folder may be made only if both of the keys allow it, and both do by themselves.
        ("datadir.autocreate" | "db.autocreate", "true") => return true,
        // ZooKeeper's way to ask for the default.
        (_, "-1") if setting_of(name).is_some() => return true,
        _ => return false,
    };
    // To the front: a line for the setting itself wins wherever it is.
    found.entries.insert(0, entry(key, text, place.clone()));
    true
}

fn entry(key: &str, text: &str, place: Place) -> Entry {
    let setting = by_key(key).expect("the key is in the table");
    Entry { setting, text: text.to_owned(), place }
}

fn plain(name: &str, property: &Property, place: Place, found: &mut FileEntries) -> Result<(), ConfigError> {
    if let Some((_, why)) = REFUSED.iter().find(|(key, _)| *key == name)
        && matches!(property.value.as_str(), "true" | "yes")
    {
        return Err(Problem::Refused { place, why }.into());
    }
    if let Some((setting, unit)) = setting_of(name) {
        found.entries.push(Entry { setting, text: format!("{}{unit}", property.value), place });
        return Ok(());
    }
    let why = WITHOUT_EFFECT.iter().find(|(pattern, _)| matches_pattern(pattern, name)).map(|(_, why)| *why);
    let refused = REFUSED.iter().any(|(key, _)| *key == name);
    found.warnings.push(match why {
        Some(why) => format!("{place}: has no effect: {why}"),
        None if refused => format!("{place}: has no effect"),
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
            let name = property.key.strip_prefix("zookeeper.").unwrap_or(&property.key);
            name.starts_with("server.")
                || setting_of(name).is_some()
                || WITHOUT_EFFECT.iter().any(|(pattern, _)| matches_pattern(pattern, name))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::load::{Loaded, resolve};
    use super::*;

    fn load(text: &str) -> Result<Loaded, ConfigError> {
        resolve(&[], &[], Some((Path::new("conf/zoo.cfg"), text)))
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
                "conf/zoo.cfg, line 3: initLimit: has no effect: this server has no followers",
                "conf/zoo.cfg, line 4: syncLimit: has no effect: this server has no followers",
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
             db.autocreate=true\n",
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
            ("port", "2182"),
            ("bind", "127.0.0.1"),
            ("listen-backlog", "10"),
            ("admin-port", "8081"),
            ("admin-bind", "127.0.0.1"),
            ("metrics-port", "7001"),
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
    fn an_ensemble_is_warned_of_and_one_server_is_not() {
        assert!(load("server.1=a:2888:3888\n").unwrap().warnings.is_empty());
        let warnings = load("server.1=a:2888:3888\nserver.2=b:2888:3888\n").unwrap().warnings;
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("names 2 servers of an ensemble"), "{warnings:?}");
    }

    #[test]
    fn what_would_open_the_server_is_refused() {
        for text in
            ["sessionRequireClientSASLAuth=true", "enforce.auth.enabled=true", "secureClientPort=2281"]
        {
            assert!(load(text).is_err(), "{text}");
        }
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
        assert!(looks_like("# c\nserver.1=a:1:2\n"));
        assert!(!looks_like("tick-time = 2000\ndata-dir = '/x'\n"));
        assert!(!looks_like(""));
    }

    use super::super::settings::Settings;
}
