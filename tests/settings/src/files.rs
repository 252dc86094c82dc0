//! Files with odd values and odd spelling.

use crate::table::Row;

/// What numbers, and words for yes and no, look like, and what only looks like them.
const VALUES: [&str; 44] = [
    "",
    "0",
    "-0",
    "1",
    "2",
    "3",
    "+5",
    "-1",
    "-5",
    "60",
    "010",
    "08",
    "-010",
    "0x10",
    "0X1F",
    "#10",
    "-#2",
    "0x",
    "#",
    "0x-1",
    "+",
    "-",
    "--1",
    "1_000",
    "1,000",
    "1e3",
    "1.0",
    "5s",
    "5 0",
    "1000",
    "65535",
    "65536",
    "100000",
    "2147483647",
    "2147483648",
    "-2147483648",
    "0x7fffffff",
    "0x80000000",
    "true",
    "TRUE",
    "false",
    "yes",
    "no",
    "Yes",
];
const WORDS: [&str; 14] = [
    "NO",
    "on",
    "off",
    "y",
    "n",
    "t",
    "f",
    "True",
    "falsE",
    "yes\\u00a0",
    "no\\u0009",
    "ja",
    "enabled",
    "null",
];
const LONGS: [&str; 6] = [
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "2592000000",
    "0x7fffffffffffffff",
    "3153600000001",
];
const LISTS: [&str; 9] = [
    "*",
    "mntr",
    "mntr,ruok",
    " mntr , ruok ,",
    "reqs,mntr,kill",
    "MNTR,mntr",
    "mntr ruok",
    "x,*,mntr",
    ",,",
];
const DIGESTS: [&str; 6] =
    ["super:D/InIHSb7yEEbrWz8b9l71RjZJU=", "super", "super:", ":x", "other:a:b", "\\ super:x"];
const HASHES: [&str; 14] = [
    "SHA1", "sha1", "SHA-1", "SHA", "Sha224", "SHA384", "SHA512", "SHA-256", "sha-512", "SHA-384", "SHA-224",
    "MD5", "SHA3-256", "none",
];
const ADDRESSES: [&str; 11] = [
    "127.0.0.1",
    "0.0.0.0",
    "::1",
    "[::1]",
    "::",
    "localhost",
    "127.1",
    "010.0.0.1",
    "1",
    "300.0.0.1",
    "no-such-host.invalid",
];
const PATHS: [&str; 6] = ["/a", "/a b", "/a\\\\b", "/a=b:c", "a/b", "/\\u0061#!"];

/// Strings of the kinds of values that a way of reading tells apart.
fn odd(reading: &str) -> Vec<&'static str> {
    let numbers = VALUES.iter().chain(&WORDS);
    match reading {
        "words, unknown ones do no harm" => LISTS.iter().chain(&VALUES).copied().collect(),
        "text" => DIGESTS.iter().chain(&VALUES[..8]).copied().collect(),
        "a name, another one is an error" => HASHES.to_vec(),
        "an address or a name" => ADDRESSES.to_vec(),
        "a path" => PATHS.to_vec(),
        _ => numbers.chain(&LONGS).copied().collect(),
    }
}

/// Whether a wrong value ends it all, so that it needs a file of its own.
fn is_strict(row: &Row) -> bool {
    let may_fail = ["an error", "an address"].iter().any(|text| row.reading.contains(text));
    let also = ["admin.serverPort", "nio.sessionlessCnxnTimeout", "znode.container.checkIntervalMs"];
    may_fail || also.contains(&row.key.as_str())
}

const BASE: &str = "dataDir=/data\nclientPort=2181\n";

pub(crate) fn make(rows: &[Row], seed: u64, count: usize) -> Vec<String> {
    let mut random = Random(seed);
    let mut files = vec![BASE.to_owned(), format!("{BASE}dataDir=\n")];
    let strict = rows.iter().filter(|row| is_strict(row));
    files.extend(
        strict.flat_map(|row| {
            odd(&row.reading).into_iter().map(|value| format!("{BASE}{}={value}\n", row.key))
        }),
    );
    for key in ["enforce.auth.enabled", "sessionRequireClientSASLAuth", "ssl.quorum.crl", "sslQuorum"] {
        files.extend(["true", "True", "false", "yes", ""].map(|value| format!("{BASE}{key}={value}\n")));
    }
    for _ in 0..count {
        files.push(bounds(&mut random));
        files.push(spelling(&mut random));
    }
    // Every odd value of every key comes with others, and again with others than before.
    let rest: Vec<(&Row, Vec<&str>)> =
        rows.iter().filter(|row| !is_strict(row)).map(|row| (row, odd(&row.reading))).collect();
    for index in 0..count {
        let mut text = BASE.to_owned();
        for (row, values) in &rest {
            let value = values[(index + random.below(2) * values.len() / 2) % values.len()];
            let key = if random.below(12) == 0 { format!("zookeeper.{}", row.key) } else { row.key.clone() };
            text += &format!("{key}={value}\n");
        }
        files.push(text);
    }
    files
}

/// A tick and bounds of session timeouts.
fn bounds(random: &mut Random) -> String {
    let mut text = BASE.to_owned();
    for key in ["tickTime", "minSessionTimeout", "maxSessionTimeout"] {
        if random.below(3) > 0 {
            let value =
                ["-1", "0", "1", "-5", "500", "3000", "6001", "60000", "40000000", "2147483647", "220000000"]
                    [random.below(11)];
            text += &format!("{key}={value}\n");
        }
    }
    text
}

/// Lines as Java's properties may be written, with keys that come again.
fn spelling(random: &mut Random) -> String {
    const PIECES: [&str; 26] = [
        "tickTime",
        "snapCount",
        "dataDir",
        "maxClientCnxns",
        "skipACL",
        "=",
        ":",
        " ",
        "\t",
        "\x0c",
        "\\",
        "\n",
        "\r",
        "\r\n",
        "\\\n",
        "\\\r\n  ",
        "#",
        "!",
        "5",
        "70",
        "yes",
        "\\u0035",
        "\\t",
        "\\\\",
        "\u{b}",
        "/a",
    ];
    let mut text = BASE.to_owned();
    for _ in 0..4 + random.below(5) {
        for _ in 0..random.below(4) {
            text += PIECES[5 + random.below(21)];
        }
        // A key with a space at its end is another one to Java and the same to ZooKeeper: of two such lines
        // chance says which counts.
        text += PIECES[random.below(5)];
        text += ["=", " ", ":", " = ", "\t:", "\\\n=", "\\=="][random.below(7)];
        text += ["5", "6000", "yes", "/b", "no", "7\\\n0", "0"][random.below(7)];
        for _ in 0..random.below(3) {
            text += PIECES[5 + random.below(21)];
        }
        text += ["\n", "\n", "\r\n", "\r"][random.below(4)];
    }
    text
}

/// The same numbers from the same seed (SplitMix64).
struct Random(u64);
impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap_or(0)
    }
}
