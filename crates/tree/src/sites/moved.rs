//! What moves with a subtree that goes to another partition of its site, besides its znodes and their marks: all that is
//! kept of znodes here and not in them. So it is always where they are, whichever partition that is.
//!
//! - **Read tokens** of what is in it.
//! - **Homes** of the sessions that own something in it, which the partition that takes it may not know.
//! - **What has come from each source.** An update that comes once more, by way of another site, is told from news by the
//!   last one of its source that has come (`seen`), and a partition has heard of those alone that concern it. Nothing is on
//!   its way to any partition while something moves, so who takes a subtree has all that the giver had.
//! - **Whose ephemerals** live elsewhere, and have only their names in it ([`crate::sites::divided`]); and whose it is
//!   itself, if it is one that its parent's partition is left with the name of.
//!
//! **Marks of what is above it** do not move, and count for it all the same. So a znode below which something was moved by
//! itself is *split*, as the root always is: each partition knows its mark. It is told that when the table changes by which
//! it is split; who gives its token away does so on all partitions, and who deletes it takes the mark back on all of them.
//!
//! What had been told when znodes were changed with smaller zxids ([`crate::sites::late`]) does not move: who sets watches
//! again on that partition, and was told nothing since, is told of all that others have changed there.
//!
//! Where there are no sites nothing of this is there, and a subtree in the log is what it always was.

use crate::encoding::{Decoder, Reason, put_bytes, put_len};
use crate::node::ROOT_ID;
use crate::quota::quotas_of;
use crate::reserved::ROOT;
use crate::sites::names::{NO_SITE, SITE_MAX, SiteId, source_of_zxid};
use crate::tree::Tree;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::{ZXID_MAX, path};

/// What of sites moves with a subtree.
///
/// ```text
/// moved := homes, read tokens, what has come, ephemerals; each their number, and then one after the other
/// home := session i64, site u8; read token := site u8, given i64, path; what has come := zxid i64;
/// ephemeral := session i64, path
/// ```
#[derive(Debug, Default)]
pub(crate) struct MovedOfSites {
    homes: Vec<(i64, SiteId)>,
    reads: Vec<(String, SiteId, i64)>,
    seen: Vec<i64>,
    owned_away: Vec<(String, i64)>,
}

impl MovedOfSites {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_len(out, self.homes.len());
        for (session, home) in &self.homes {
            out.extend_from_slice(&session.to_le_bytes());
            out.push(*home);
        }
        put_len(out, self.reads.len());
        for (path, site, given) in &self.reads {
            out.push(*site);
            out.extend_from_slice(&given.to_le_bytes());
            put_bytes(out, path.as_bytes());
        }
        put_len(out, self.seen.len());
        self.seen.iter().for_each(|zxid| out.extend_from_slice(&zxid.to_le_bytes()));
        put_len(out, self.owned_away.len());
        for (path, session) in &self.owned_away {
            out.extend_from_slice(&session.to_le_bytes());
            put_bytes(out, path.as_bytes());
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, Reason> {
        let mut moved = Self::default();
        for _ in 0..decoder.len()? {
            let session = decoder.i64()?;
            moved.homes.push((session, site(decoder)?));
        }
        for _ in 0..decoder.len()? {
            let (site, given) = (site(decoder)?, zxid(decoder)?);
            let path = decoder.path()?;
            moved.reads.push((path.into(), site, given));
        }
        for _ in 0..decoder.len()? {
            moved.seen.push(zxid(decoder)?);
        }
        for _ in 0..decoder.len()? {
            let session = decoder.i64()?;
            moved.owned_away.push((decoder.path()?.into(), session));
        }
        Ok(moved)
    }
}

fn site(decoder: &mut Decoder<'_>) -> Result<SiteId, Reason> {
    let site = decoder.u8()?;
    if (1..=SITE_MAX).contains(&site) { Ok(site) } else { Err("a site is out of range") }
}

fn zxid(decoder: &mut Decoder<'_>) -> Result<i64, Reason> {
    let zxid = decoder.i64()?;
    if (0..=ZXID_MAX).contains(&zxid) { Ok(zxid) } else { Err("a zxid is out of range") }
}

impl Tree {
    /// Whether the znode at a path moves with the subtrees that begin at these nodes: no cut is between.
    fn moves_with(&self, path: &str, tops: &[u32]) -> bool {
        let mut at = self.lookup(path);
        while let Some(id) = at.filter(|id| *id != ROOT_ID && !self.nodes[*id].is_absent()) {
            if tops.contains(&id) {
                return true;
            }
            at = Some(self.nodes[id].parent);
        }
        false
    }

    /// Where the subtree at a path begins, and the quotas on it.
    fn tops_of(&self, path: &str) -> Vec<u32> {
        [self.lookup(path), self.lookup(&quotas_of(path))].into_iter().flatten().collect()
    }

    /// The ephemerals elsewhere that have only their names in such subtrees.
    fn owned_away_in(&self, tops: &[u32]) -> Vec<(String, i64)> {
        let all = self.sites.divided.owned_away.iter();
        let of = |path: &str| path::split(path).is_some_and(|(parent, _)| self.moves_with(parent, tops));
        all.filter(|(path, _)| of(path)).map(|(path, session)| (path.into(), session)).collect()
    }

    /// What of sites moves with the subtree at a path, in which these sessions own something; `None` where there are none.
    pub(crate) fn moved_of_sites(&self, path: &str, sessions: &[i64]) -> Option<MovedOfSites> {
        self.own_site()?;
        let tops = self.tops_of(path);
        let homes = sessions.iter().map(|session| (*session, self.home_of(*session)));
        let reads = self.sites.read_tokens.iter().filter(|(at, ..)| self.moves_with(at, &tops));
        let seen = self.sites.seen.iter().filter(|(source, _)| source.site != self.sites.own);
        Some(MovedOfSites {
            homes: homes.filter(|(_, home)| *home != NO_SITE).collect(),
            reads: reads.map(|(at, site, given)| (at.into(), site, given)).collect(),
            seen: seen.map(|(_, zxid)| *zxid).collect(),
            owned_away: self.owned_away_in(&tops),
        })
    }

    /// The marks of what is above the subtree at a path, which lives here.
    pub(crate) fn marks_above(&self, path: &str) -> Vec<(String, SiteId)> {
        let mut marks = Vec::new();
        let mut above = path::split(path);
        while let Some((parent, _)) = above.filter(|(parent, _)| *parent != ROOT) {
            let mark = self.own_mark(parent);
            marks.extend((mark != NO_SITE).then(|| (String::from(parent), mark)));
            above = path::split(parent);
        }
        marks
    }

    /// The table of what lives elsewhere has changed, by which znodes are split.
    pub(crate) fn forget_marks(&mut self) {
        let placed = self.partitions.placed();
        self.sites.divided.marks.retain(|path, _| placed.is_above(path));
    }

    /// A znode above what has moved has this mark. It may not be split any more.
    pub(crate) fn note_mark(&mut self, path: &str, mark: SiteId) {
        if self.is_split(path) {
            self.sites.divided.marks.insert(path.into(), mark);
        }
    }

    /// It is gone.
    pub(crate) fn forget_mark(&mut self, path: &str) {
        self.sites.divided.marks.remove(path);
    }

    /// The subtree at a path is about to leave.
    pub(crate) fn leaves_with_sites(&mut self, path: &str) {
        if !self.sites.are_there() {
            return;
        }
        let tops = self.tops_of(path);
        let reads: BTreeSet<String> = self.sites.read_tokens.iter().map(|(at, ..)| at.into()).collect();
        let reads: BTreeSet<String> = reads.into_iter().filter(|at| self.moves_with(at, &tops)).collect();
        self.sites.read_tokens.taken(|at| reads.contains(at));
        for (away, _) in self.owned_away_in(&tops) {
            self.sites.divided.owned_away.remove(&away);
        }
        let parent = path::split(path).and_then(|(parent, _)| self.lookup(parent));
        if let (Some(id), Some(_)) = (self.lookup(path), parent)
            && self.nodes[id].is_ephemeral()
        {
            let owner = self.ext_of(&self.nodes[id]).owner;
            self.sites.divided.owned_away.add(path, owner);
        }
    }

    /// The subtree at a path has come with the update `zxid`.
    pub(crate) fn comes_with_sites(&mut self, path: &str, moved: MovedOfSites, zxid: i64) {
        let MovedOfSites { homes, reads, seen, owned_away } = moved;
        self.sites.divided.owned_away.remove(path);
        for (away, session) in owned_away {
            // It may live here, where it is no more than a child of what has come.
            if self.lookup(&away).is_none() {
                self.sites.divided.owned_away.add(&away, session);
            }
        }
        for (session, home) in homes {
            self.sessions.set_home(session, home);
        }
        for (at, site, given) in reads {
            self.sites.read_tokens.give(&at, site, given);
        }
        for zxid in seen {
            let last = self.sites.seen.entry(source_of_zxid(zxid)).or_default();
            *last = zxid.max(*last);
        }
        self.forget_told(zxid);
    }
}
