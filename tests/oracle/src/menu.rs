//! What the stream is made of: names, data, ACLs, credentials. Few of each, so that requests meet.

use crate::call::{AclEntry, Call, Name, Op};
use crate::random::Random;
use stoa_wire::Opcode;

/// The znodes that most requests are about, parents first.
pub const TREE: &[&str] = &[
    "/a",
    "/b",
    "/c",
    "/a/x",
    "/a/y",
    "/a/x/p",
    "/a/x/q",
    "/b/x",
    "/b/x/y",
    "/b/x/y/z",
    "/c/d",
    "/c/d.e",
    "/c/ f",
    "/d",
    "/d/1",
    "/d/1/2",
    "/d/1/2/3",
    "/d/1/2/3/4",
    "/d/1/2/3/4/5",
    "/d/1/2/3/4/5/6",
    "/d/1/2/3/4/5/6/7",
    "/w",
    "/w/0",
    "/w/1",
    "/w/2",
    "/w/3",
    "/w/4",
    "/w/5",
    "/w/6",
    "/w/7",
    "/w/8",
    "/w/9",
    "/\u{e9}",
    "/\u{e9}/\u{4e2d}\u{6587}",
    "/...",
    "/.../.hidden",
    "/ab",
    "/zookeeper/x",
];

/// Where the subtrees right below the root begin, and the root.
pub const SUBTREES: &[&str] = &["/", "/a", "/b", "/c", "/d", "/w", "/\u{e9}", "/...", "/ab"];

/// Enough names to find one on every partition.
pub fn names_everywhere() -> impl Iterator<Item = Name> {
    (0..64).map(|nth| Name::text(format!("/p{nth}")))
}

/// The znodes that are there from the start.
const RESERVED: &[&str] = &["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// The znodes that a quota may stand on.
const QUOTA_ROOTS: &[&str] = &["/a", "/a/x", "/b", "/w"];

/// Paths that name nothing, and some that look as if they did not.
const CROOKED: &[&str] = &[
    "",
    "a",
    "a/b",
    "//",
    "/a/",
    "/a//b",
    "/a/./x",
    "/a/../b",
    "/.",
    "/..",
    "/a/..",
    "/a\0b",
    "/\u{1}",
    "/a/\u{1f}",
    "/\u{7f}",
    "/\u{85}",
    "/\u{9f}",
    "/\u{a0}",
    "/\u{e000}",
    "/\u{f8ff}",
    "/\u{f900}",
    "/\u{ffef}",
    "/\u{fff0}",
    "/\u{ffff}",
    "/\u{1f600}",
    "/\u{10ffff}",
    "/\n",
    "/a b",
    "/zookeeper/",
    "/zookeeper/quota/",
    " /a",
    "/a ",
];

/// Prefixes for getEphemerals.
const PREFIXES: &[&str] = &["/", "", " / ", "/a", "/a/", "/w/", "/nothing", "a", "  "];

/// Credentials for auth: scheme and what goes with it.
pub const CREDENTIALS: &[(&str, &[u8])] = &[
    ("digest", b"alice:a"),
    ("digest", b"alice:a"),
    ("digest", b"bob:b"),
    ("digest", b"bob:b"),
    SUPERUSER,
    ("digest", b"super:wrong"),
    ("digest", b"nocolon"),
    ("digest", b"a:b:c"),
    ("digest", b":"),
    ("digest", b""),
    ("ip", b""),
    ("ip", b"127.0.0.1"),
    ("world", b"anyone"),
    ("auth", b""),
    ("super", b""),
    ("nonsense", b"x"),
    ("", b""),
];

/// The credentials of the superuser of `zoo.cfg`.
pub const SUPERUSER: (&str, &[u8]) = ("digest", b"super:test");

const ALICE: &str = "alice:AIueg8ag5ALfqeEyKdLnva1Wvi0=";
const BOB: &str = "bob:LcrmCNs/wfVD+i5a5yaz89GyjIM=";

/// The ACL that lets everybody do everything.
#[must_use]
pub fn open_acl() -> Option<Vec<AclEntry>> {
    Some(vec![entry(31, "world", "anyone")])
}

fn entry(perms: i32, scheme: &'static str, id: &'static str) -> AclEntry {
    AclEntry { perms, scheme: Some(scheme), id: Some(id) }
}

/// An ACL that is mostly open, mostly valid.
pub fn acl(random: &mut Random, closed_percent: usize) -> Option<Vec<AclEntry>> {
    if !random.percent(closed_percent) {
        return open_acl();
    }
    if random.once_in(40) {
        return None;
    }
    let len = random.pick(&[0, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4]);
    let mut entries: Vec<AclEntry> = (0..len).map(|_| acl_entry(random)).collect();
    if entries.len() > 1 {
        // See `differences`.
        entries.iter_mut().for_each(|entry| {
            entry.scheme.get_or_insert_default();
        });
    }
    Some(entries)
}

fn acl_entry(random: &mut Random) -> AclEntry {
    let perms = match random.below(12) {
        0..=4 => 31,
        5 => 1,
        6 => 15,
        7..=10 => random.below(32) as i32,
        _ => random.pick(&[-1, 32, 63, i32::MAX, i32::MIN]),
    };
    const GOOD: &[(&str, &str)] = &[
        ("world", "anyone"),
        ("world", "anyone"),
        ("digest", ALICE),
        ("digest", ALICE),
        ("digest", BOB),
        ("auth", ""),
        ("auth", "ignored"),
        ("ip", "127.0.0.1"),
        ("ip", "127.0.0.0/8"),
        ("ip", "127.0.0.1/32"),
        ("ip", "10.1.2.3"),
        ("ip", "0.0.0.0/0"),
        ("ip", "10.1.2.3/16"),
    ];
    const BAD: &[(&str, &str)] = &[
        ("world", "nobody"),
        ("world", ""),
        ("digest", "alice"),
        ("digest", ""),
        ("digest", ":"),
        ("digest", "a:b"),
        ("digest", "a:b:c"),
        ("ip", ""),
        ("ip", "127.0.0"),
        ("ip", "127.0.0.256"),
        ("ip", "127.0.0.1/33"),
        ("ip", "127.0.0.1/-1"),
        ("ip", "127.0.0.1/x"),
        ("ip", "127.0.0.1/"),
        ("ip", "::1"),
        ("ip", "::1/64"),
        ("ip", "fe80::1"),
        ("ip", "localhost"),
        ("super", ""),
        ("super", "anything"),
        ("sasl", "someone"),
        ("x509", "CN=someone"),
        ("nonsense", "x"),
        ("", ""),
        ("", "anyone"),
    ];
    let (scheme, id) = {
        let menu = if random.percent(85) { GOOD } else { BAD };
        random.pick(menu)
    };
    if random.once_in(150) {
        return AclEntry { perms, scheme: None, id: Some(id) };
    }
    entry(perms, scheme, id)
}

/// Data: usually short, sometimes null, empty or long.
pub fn data(random: &mut Random) -> Option<Vec<u8>> {
    let len = match random.below(100) {
        0..=5 => return None,
        6..=14 => 0,
        15..=79 => random.below(40),
        80..=97 => random.below(400),
        _ => random.below(9_000),
    };
    let filler = random.bits() as u8;
    Some(vec![filler; len])
}

/// A version that is often right, because znodes are young.
pub fn version(random: &mut Random) -> i32 {
    match random.below(100) {
        0..=59 => -1,
        60..=79 => 0,
        80..=95 => random.below(6) as i32,
        _ => random.pick(&[-2, -3, 100, i32::MAX, i32::MIN]),
    }
}

/// Makes a session the superuser's.
#[must_use]
pub fn superuser() -> Call {
    let (scheme, auth) = SUPERUSER;
    Op::Auth { scheme, auth }.into()
}

/// Opens a znode to everybody.
#[must_use]
pub fn set_acl(path: &str) -> Call {
    Op::SetAcl { path: Name::text(path), acl: open_acl(), version: -1 }.into()
}

/// Creates an open znode, and asks for its Stat.
#[must_use]
pub fn create(path: &str, flags: i32) -> Call {
    let (opcode, path) = (Opcode::Create2, Name::text(path));
    Op::Create { opcode, path, data: None, acl: open_acl(), flags, ttl_ms: 0 }.into()
}

/// Any path, mostly one of the tree's.
pub fn path(random: &mut Random) -> Name {
    match random.below(1000) {
        0..=899 => Name::text(random.pick(TREE)),
        900..=919 => Name::text(random.pick(RESERVED)),
        920..=959 => Name::Sequential(random.below(64)),
        960..=979 => Name::text(format!("/a/missing{}", random.below(3))),
        _ => crooked(random),
    }
}

/// The path of a sequential create: what it says is only the beginning of the name.
pub fn sequential_path(random: &mut Random) -> Name {
    match random.below(100) {
        0..=49 => Name::text(format!("{}/s-", random.pick(TREE))),
        50..=69 => Name::text(format!("{}/", random.pick(TREE))),
        70..=84 => Name::text(random.pick(TREE)),
        85..=94 => Name::text("/s"),
        _ => path(random),
    }
}

fn crooked(random: &mut Random) -> Name {
    match random.below(20) {
        0 => Name::Null,
        3 => Name::text(format!("/c/{}", "n".repeat(250))),
        4 => Name::text(format!("/c/{}", "\u{4e2d}".repeat(3_000))),
        _ => Name::text(random.pick(CROOKED)),
    }
}

/// A prefix for getEphemerals.
pub fn prefix(random: &mut Random) -> Name {
    if random.once_in(8) {
        return Name::Null;
    }
    Name::text(random.pick(PREFIXES))
}

/// A znode of the quota's own tree. Only paths that ZooKeeper's command line would make: odd ones
/// make ZooKeeper stop (see `differences`).
pub fn quota_path(random: &mut Random) -> Name {
    let root = random.pick(QUOTA_ROOTS);
    Name::text(match random.below(10) {
        0..=1 => format!("/zookeeper/quota{root}"),
        2..=6 => format!("/zookeeper/quota{root}/zookeeper_limits"),
        _ => format!("/zookeeper/quota{root}/zookeeper_stats"),
    })
}

/// Every znode that [`quota_path`] can name, children first.
pub fn quota_paths() -> impl Iterator<Item = String> {
    QUOTA_ROOTS.iter().rev().flat_map(|root| {
        ["/zookeeper_limits", "/zookeeper_stats", ""].map(|leaf| format!("/zookeeper/quota{root}{leaf}"))
    })
}

/// The znodes of one quota, in the order in which ZooKeeper's command line makes them.
pub fn some_quota(random: &mut Random) -> impl Iterator<Item = String> + use<> {
    let root = random.pick(&["/a", "/b", "/w"]);
    ["", "/zookeeper_limits", "/zookeeper_stats"]
        .into_iter()
        .map(move |leaf| format!("/zookeeper/quota{root}{leaf}"))
}

/// Limits or statistics as ZooKeeper's command line writes them.
pub fn quota_data(random: &mut Random) -> Option<Vec<u8>> {
    let mut limit = |most: usize| if random.percent(30) { -1 } else { random.below(most) as i64 };
    let (count, bytes, count_hard, bytes_hard) = (limit(8), limit(300), limit(8), limit(300));
    Some(
        match random.below(4) {
            0 => format!("count={count},bytes={bytes}"),
            1 => {
                format!("count={count},bytes={bytes}=;byteHardLimit={bytes_hard};countHardLimit={count_hard}")
            }
            2 => format!("count=-1,bytes=-1,byteHardLimit={bytes_hard}"),
            _ => format!("count={count},bytes=-1,countHardLimit={count_hard}"),
        }
        .into_bytes(),
    )
}
