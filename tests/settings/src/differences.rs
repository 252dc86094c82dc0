//! Where Stoa deliberately comes to something else than ZooKeeper, and why.

use crate::Values;

/// ZooKeeper runs with it, and Stoa would leave the server less protected than its file asks for.
const PROTECTION: [&str; 7] = [
    "enforce.auth.enabled",
    "sessionRequireClientSASLAuth",
    "quorum.auth.serverRequireSasl",
    "quorum.auth.learnerRequireSasl",
    "ssl.quorum.crl",
    "ssl.quorum.ocsp",
    // Without files in PEM.
    "sslQuorum",
];

/// What hashes make of nothing that Stoa knows, by their names.
const HASHES: [(&str, &str); 9] = [
    ("da39a3ee", "SHA1"),
    ("d14a028c", "SHA-224"),
    ("e3b0c442", "SHA-256"),
    ("38b060a7", "SHA-384"),
    ("cf83e135", "SHA-512"),
    ("6b4e0342", "SHA3-224"),
    ("a7ffc6f8", "SHA3-256"),
    ("0c63a75b", "SHA3-384"),
    ("a69f73cc", "SHA3-512"),
];

/// Whether Stoa refuses what ZooKeeper takes.
pub(crate) fn refused(theirs: &Values, text: &str) -> bool {
    let hash = &theirs["DigestAuthenticationProvider.digestAlg"];
    PROTECTION.iter().any(|key| theirs.get(*key).is_some_and(|value| value == "true"))
        // Znodes would belong to others than those whom their ACLs name.
        || !HASHES.iter().any(|(begin, _)| hash.starts_with(begin))
        // A folder without a name is a mistake, and an empty tree what came of it.
        || text.ends_with("\ndataDir=\n")
}

/// Whether Stoa takes what ZooKeeper refuses for this reason.
pub(crate) fn taken(why: &str) -> bool {
    // It looks at the first two letters of a relative path, and stumbles over one of a single letter.
    why.contains("StringIndexOutOfBoundsException: begin 0, end 2, length 1")
}

/// What Stoa has where ZooKeeper has `value`.
pub(crate) fn expected(key: &str, value: &str, theirs: &Values) -> String {
    let number = value.parse::<i64>();
    let instead = match (key, number.clone()) {
        // ZooKeeper's clock goes backwards with a tick or a time below zero.
        ("tickTime", Ok(..=-1)) => "3000",
        ("nio.sessionlessCnxnTimeout", Ok(..=-1)) => "10000",
        // Sessions of no time at all are ones of a millisecond.
        ("minSessionTimeout" | "maxSessionTimeout", Ok(..=0)) => "1",
        // One request at least is under way.
        ("globalOutstandingLimit", Ok(..=0)) => "1",
        // No frame is as short as that, with either.
        ("jute.maxbuffer", Ok(..=-1)) => "0",
        // A longer one cannot be logged.
        ("jute.maxbuffer", Ok(1_073_741_825..)) => "1073741824",
        // Below zero there is no limit.
        ("znode.container.maxPerMinute", Ok(..=-1)) => "4294967295",
        ("znode.container.maxNeverUsedIntervalMs", Ok(..=-1)) => "1",
        ("fsync.warningthresholdms", Ok(..=-1)) => "0",
        // A hundred years will do.
        ("znode.container.maxNeverUsedIntervalMs" | "fsync.warningthresholdms", Ok(3_153_600_000_001..)) => {
            "3153600000000"
        }
        // Not above zero it is no limit.
        ("netty.server.outstandingHandshake.limit", Ok(..=-1)) => "0",
        // What cannot be the digest of anybody is not kept.
        ("DigestAuthenticationProvider.superDigest", _) if !is_digest(value) => "",
        // The folder is made when both of the keys allow it.
        ("datadir.autocreate", _) => &theirs["db.autocreate"].clone().replace("true", &theirs[key]),
        ("db.autocreate", _) => &theirs["datadir.autocreate"].clone().replace("true", &theirs[key]),
        ("DigestAuthenticationProvider.digestAlg", _) => {
            HASHES.iter().find(|(begin, _)| value.starts_with(begin)).map_or("", |(_, name)| name)
        }
        // A segment has room for two of the longest requests.
        ("txnLogSizeLimitInKb", _) => &segment(number.unwrap_or(64 << 20), theirs),
        // ZooKeeper looks for `true` in small letters here, and for it in any case to be read-only at all.
        ("4lw.commands.whitelist", _) if theirs["readonlymode.enabled"] == "true" => &with_isro(value),
        _ => value,
    };
    instead.to_owned()
}

fn is_digest(value: &str) -> bool {
    value.split_once(':').is_some_and(|(user, hash)| !user.is_empty() && !hash.is_empty())
}

fn segment(limit: i64, theirs: &Values) -> String {
    let request: i64 = expected("jute.maxbuffer", &theirs["jute.maxbuffer"], theirs).parse().unwrap_or(0);
    limit.max(2 * request).to_string()
}

fn with_isro(words: &str) -> String {
    let mut words: Vec<&str> = words.split(',').chain(["isro"]).collect();
    words.sort_unstable();
    words.dedup();
    words.join(",")
}
