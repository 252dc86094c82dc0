//! What all clients of all sites were told, and what must fit together in it. What a site that was given up has made, and
//! nobody else has, is none of it, but for the clients that it still serves.

use super::upto::Upto;
use crate::ensemble::Whole;
use std::collections::{BTreeMap, BTreeSet};
use stoa_check::{Checked, wrong};
use stoa_core::SiteId;
use stoa_tree::site_of_zxid;
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

/// What somebody was told.
#[derive(Default, Clone)]
struct Record {
    /// By path and czxid.
    versions: BTreeMap<(String, i64), BTreeMap<i32, Told>>,
    /// Of each znode, the zxids at which it is known to have been written, and the versions then.
    written: BTreeMap<String, BTreeMap<i64, i32>>,
    /// Znodes that are never deleted, and are there, with the zxid of their creation.
    firm: BTreeMap<String, i64>,
    /// Sequential znodes that somebody has created, likewise.
    names: BTreeMap<String, i64>,
    /// Those of them that stay.
    lasting: BTreeMap<String, i64>,
    /// So many numbers are known to have been given to them, and the zxid of the last.
    number: (i64, i64),
}

/// What a site has made behind some of it and up to some more is lost, since it was given up.
#[derive(Debug, Clone, Copy)]
struct Loss {
    site: SiteId,
    behind: Upto,
    upto: Upto,
}

/// What everybody was told.
#[derive(Default)]
pub(super) struct Ledger {
    book: Record,
    /// What clients were told by sites that are given up and may not know it, since then.
    splits: BTreeMap<usize, Record>,
    /// The site whose clients speak or are spoken to.
    at: usize,
    losses: Vec<Loss>,
    /// Sites in whose place another one is the hub, and what the clocks showed when that began, milliseconds.
    overthrown: BTreeMap<usize, i64>,
    /// Sites to which clients do not go, as those are given up.
    pub(super) shunned: BTreeSet<usize>,
    /// Sessions of which clients were told that they have expired, and that was not looked at yet.
    pub(super) expired: Vec<i64>,
    /// What a program has counted.
    counted: BTreeSet<u64>,
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
    /// So many numbers were given, the last one with that zxid.
    pub(super) number: (i64, i64),
    /// With which zxid it was created, if it is never deleted; or 0.
    pub(super) firm: i64,
}

fn is_among(losses: &[Loss], zxid: i64) -> bool {
    let holds = |loss: &Loss| {
        site_of_zxid(zxid) == loss.site && loss.upto.reaches(zxid) && !loss.behind.reaches(zxid)
    };
    losses.iter().any(holds)
}

impl Ledger {
    /// A program that counts in two znodes has told a number, which nobody else was told. No site is given up where there
    /// is such a program.
    pub(super) fn counted(&mut self, number: Option<u64>) -> Checked {
        match number.filter(|number| *number > 0) {
            Some(number) if self.counted.insert(number) => Ok(()),
            told => wrong(format!("a program that counts tells {told:?}, behind {:?}", self.counted.last())),
        }
    }

    // ---- sites that are given up ----

    /// From now on clients of this site are heard.
    pub(super) fn hears(&mut self, at: usize) {
        self.at = at;
    }

    /// What a zxid stands for may be missing: where it was made, that site is given up, and nobody else has it. The
    /// clients of that site do not know it yet.
    pub(super) fn is_lost(&self, zxid: i64) -> bool {
        !self.splits.contains_key(&self.at) && is_among(&self.losses, zxid)
    }

    /// A site is given up, and others have so much of what it has made. What its clients are told from now on nobody
    /// else need know.
    pub(super) fn splits(&mut self, at: usize, site: SiteId, behind: Upto) {
        self.shunned.insert(at);
        self.splits.insert(at, self.book.clone());
        self.losses.push(Loss { site, behind, upto: Upto::ALL });
        self.forget_lost();
    }

    /// Another site has begun to be the hub in the place of this one.
    pub(super) fn is_overthrown(&mut self, at: usize, wall_ms: i64) {
        self.overthrown.insert(at, wall_ms);
    }

    /// What is lost is known no more.
    fn forget_lost(&mut self) {
        let losses = &self.losses;
        self.book.versions.retain(|(_, czxid), versions| {
            versions.retain(|_, told| !is_among(losses, told.mzxid));
            !is_among(losses, *czxid)
        });
        self.book.count_numbers(losses);
    }

    /// Who has more of it is lost, too.
    pub(super) fn keeps_no_more(&mut self, site: SiteId, behind: Upto) {
        let last = self.losses.iter_mut().rev().find(|loss| loss.site == site);
        if let Some(loss) = last.filter(|loss| loss.behind.exceeds(&behind)) {
            loss.behind = loss.behind.common(&behind);
            self.forget_lost();
        }
    }

    /// It turns out that others have so much of what it has made.
    pub(super) fn keeps(&mut self, site: SiteId, behind: Upto) {
        if let Some(loss) = self.losses.iter_mut().rev().find(|loss| loss.site == site) {
            loss.behind = behind;
        }
        self.book.count_numbers(&self.losses);
    }

    /// Nobody is served any more with what the site had, which was so much.
    pub(super) fn is_over(&mut self, at: usize, site: SiteId, upto: Upto) {
        self.overthrown.remove(&at);
        let split = self.splits.remove(&at).unwrap_or_default();
        let told = split.versions.values().flat_map(BTreeMap::values).map(|told| told.mzxid);
        let upto = told.filter(|zxid| site_of_zxid(*zxid) == site).fold(upto, Upto::with);
        if let Some(loss) = self.losses.iter_mut().rev().find(|loss| loss.site == site) {
            loss.upto = upto.or(&loss.behind);
        }
    }

    fn book_mut(&mut self) -> &mut Record {
        self.splits.get_mut(&self.at).unwrap_or(&mut self.book)
    }

    // ---- what clients are told ----

    /// What is known of a znode now.
    pub(super) fn floor(&self, path: &str) -> Floor {
        let book = self.splits.get(&self.at).unwrap_or(&self.book);
        let written = book.written.get(path).into_iter().flatten().rev();
        let newest = written.map(|(zxid, version)| (*zxid, *version)).find(|(zxid, _)| !self.is_lost(*zxid));
        let (zxid, version) = newest.unwrap_or((0, -1));
        let firm = book.firm.get(path).copied().filter(|zxid| !self.is_lost(*zxid));
        Floor { zxid, version, number: book.number, firm: firm.unwrap_or(0) }
    }

    /// A znode was seen like that: by who has written it, or by anybody.
    pub(super) fn seen(&mut self, path: &str, stat: &Stat, data: &[u8]) -> Checked {
        self.book_mut().seen(path, stat, data)
    }

    /// A write is acknowledged.
    pub(super) fn written(&mut self, path: &str, stat: &Stat, data: &[u8]) -> Checked {
        self.writes += 1;
        // What it had prepared before may be answered later: it may have stood still meanwhile.
        let is_own = usize::from(site_of_zxid(stat.mzxid)) == self.at + 1;
        if let Some(wall_ms) =
            self.overthrown.get(&self.at).filter(|wall_ms| is_own && stat.mtime > **wall_ms)
        {
            return wrong(format!(
                "{path} of {stat:?} is acknowledged at site {}, and was prepared after another one was the hub, at {wall_ms}",
                self.at + 1
            ));
        }
        let written = self.book_mut().written.entry(path.to_owned()).or_default();
        written.insert(stat.mzxid, stat.version);
        self.seen(path, stat, data)
    }

    /// A znode that nobody ever deletes was created.
    pub(super) fn stands(&mut self, path: &str, zxid: i64) {
        self.book_mut().firm.insert(path.to_owned(), zxid);
    }

    /// A sequential znode was created, by who knew that so many numbers were given.
    pub(super) fn numbered(&mut self, path: &str, zxid: i64, floor: (i64, i64), lasts: bool) -> Checked {
        let number = number_of(path);
        let is_known = self.book_mut().names.get(path).copied();
        if is_known.is_some_and(|zxid| !self.is_lost(zxid)) {
            return wrong(format!("{path} is created twice"));
        }
        if number < floor.0 && !self.is_lost(floor.1) {
            return wrong(format!("{path} is created, and {} numbers were given before", floor.0));
        }
        let book = self.book_mut();
        book.names.insert(path.to_owned(), zxid);
        if lasts {
            book.lasting.insert(path.to_owned(), zxid);
        }
        book.number = book.number.max((number + 1, zxid));
        Ok(())
    }

    /// In the end everything that was acknowledged is there, but for what is lost.
    pub(super) fn compare(&self, tree: &Whole<'_>) -> Checked {
        let is_kept = |zxid: &i64| !is_among(&self.losses, *zxid);
        for (path, zxid) in self.book.firm.iter().chain(&self.book.lasting) {
            if is_kept(zxid) && tree.get(path).is_none() {
                return wrong(format!("{path} of zxid {zxid} is gone"));
            }
        }
        for (path, written) in &self.book.written {
            let newest = written.iter().rev().find(|(zxid, _)| is_kept(zxid));
            let (Some(znode), Some((zxid, version))) = (tree.get(path), newest) else { continue };
            if znode.stat().mzxid < *zxid {
                let stat = znode.stat();
                return wrong(format!("{path} is {stat:?}, and version {version} of zxid {zxid} is lost"));
            }
        }
        Ok(())
    }
}

fn number_of(path: &str) -> i64 {
    path.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(-1)
}

impl Record {
    /// Which numbers are known to have been given, when some are lost.
    fn count_numbers(&mut self, losses: &[Loss]) {
        let kept = self.names.iter().filter(|(_, zxid)| !is_among(losses, **zxid));
        self.number = kept.map(|(path, zxid)| (number_of(path) + 1, *zxid)).max().unwrap_or_default();
    }

    fn seen(&mut self, path: &str, stat: &Stat, data: &[u8]) -> Checked {
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
}
