//! What all clients of all sites were told, and what must fit together in it.

use std::collections::{BTreeMap, BTreeSet};
use stoa_check::{Checked, wrong};
use stoa_wire::Stat;

/// Where a write stands: the client that made it, which of its sessions, and which of its writes.
pub(super) type Mark = (usize, u64, u64);

/// The data of a write, which says whose it is.
pub(super) fn sign((client, life, write): Mark) -> Vec<u8> {
    format!("{client}.{life}.{write}").into_bytes()
}

fn read_mark(data: &[u8]) -> Option<Mark> {
    let mut parts = std::str::from_utf8(data).ok()?.split('.');
    let mark = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(mark)
}

/// A version of a znode, as somebody was told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    mzxid: i64,
    data: Vec<u8>,
}

/// What everybody was told.
#[derive(Default)]
pub(super) struct Ledger {
    /// By path and czxid.
    versions: BTreeMap<(String, i64), BTreeMap<i32, Told>>,
    /// Of each znode, the newest zxid at which it is known to have been written, and the version then.
    newest: BTreeMap<String, (i64, i32)>,
    /// Znodes that are never deleted, and are there.
    firm: BTreeSet<String>,
    /// Sequential znodes that somebody has created.
    pub(super) names: BTreeSet<String>,
    /// Those of them that stay.
    lasting: BTreeSet<String>,
    /// So many numbers are known to have been given to them.
    number: i64,
    /// Sessions of which clients were told that they have expired, and that was not looked at yet.
    pub(super) expired: Vec<i64>,
    pub(super) answers: u64,
    pub(super) writes: u64,
    pub(super) travels: u64,
    pub(super) events: u64,
}

/// What nothing asked from now on may fall behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Floor {
    pub(super) zxid: i64,
    pub(super) version: i32,
    pub(super) number: i64,
    pub(super) is_firm: bool,
}

impl Ledger {
    /// What is known of a znode now.
    pub(super) fn floor(&self, path: &str) -> Floor {
        let (zxid, version) = self.newest.get(path).copied().unwrap_or((0, -1));
        Floor { zxid, version, number: self.number, is_firm: self.firm.contains(path) }
    }

    /// A znode was seen like that: by who has written it, or by anybody.
    pub(super) fn seen(&mut self, path: &str, stat: &Stat, data: &[u8]) -> Checked {
        let told = Told { mzxid: stat.mzxid, data: data.to_vec() };
        let versions = self.versions.entry((path.to_owned(), stat.czxid)).or_default();
        if let Some(before) = versions.get(&stat.version) {
            if *before == told {
                return Ok(());
            }
            return wrong(format!(
                "version {} of {path} of zxid {} is {told:?}, and was {before:?}",
                stat.version, stat.czxid
            ));
        }
        let is_before = |(version, other): (&i32, &Told)| {
            let (a, b) = (read_mark(&other.data), read_mark(data));
            let is_later = a.zip(b).is_some_and(|(a, b)| (a.0, a.1) == (b.0, b.1) && a.2 >= b.2);
            (other.mzxid >= told.mzxid || is_later).then(|| (*version, other.clone()))
        };
        let is_behind = |(version, other): (&i32, &Told)| {
            let (a, b) = (read_mark(data), read_mark(&other.data));
            let is_earlier = a.zip(b).is_some_and(|(a, b)| (a.0, a.1) == (b.0, b.1) && a.2 >= b.2);
            (other.mzxid <= told.mzxid || is_earlier).then(|| (*version, other.clone()))
        };
        let misplaced = versions
            .range(..stat.version)
            .find_map(is_before)
            .or_else(|| versions.range(stat.version + 1..).find_map(is_behind));
        if let Some((version, other)) = misplaced {
            return wrong(format!(
                "version {} of {path} of zxid {} is {told:?}, and version {version} is {other:?}",
                stat.version, stat.czxid
            ));
        }
        versions.insert(stat.version, told);
        Ok(())
    }

    /// A write is acknowledged.
    pub(super) fn written(&mut self, path: &str, stat: &Stat, data: &[u8]) -> Checked {
        self.writes += 1;
        let newest = self.newest.entry(path.to_owned()).or_insert((0, -1));
        if stat.mzxid > newest.0 {
            *newest = (stat.mzxid, stat.version);
        }
        self.seen(path, stat, data)
    }

    /// A znode that nobody ever deletes is there.
    pub(super) fn stands(&mut self, path: &str) {
        self.firm.insert(path.to_owned());
    }

    /// A sequential znode was created, by who knew of this number.
    pub(super) fn numbered(&mut self, path: &str, floor: i64, lasts: bool) -> Checked {
        let number = path.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(-1);
        if !self.names.insert(path.to_owned()) {
            return wrong(format!("{path} is created twice"));
        }
        if number < floor {
            return wrong(format!("{path} is created, and {floor} numbers were given before"));
        }
        if lasts {
            self.lasting.insert(path.to_owned());
        }
        self.number = self.number.max(number + 1);
        Ok(())
    }

    /// In the end everything that was acknowledged is there.
    pub(super) fn compare(&self, tree: &stoa_tree::Tree) -> Checked {
        for path in self.firm.iter().chain(&self.lasting) {
            if tree.get(path).is_none() {
                return wrong(format!("{path} is gone"));
            }
        }
        for (path, (zxid, version)) in &self.newest {
            let Some(znode) = tree.get(path) else { continue };
            if znode.stat().mzxid < *zxid {
                let stat = znode.stat();
                return wrong(format!("{path} is {stat:?}, and version {version} of zxid {zxid} is lost"));
            }
        }
        Ok(())
    }
}
