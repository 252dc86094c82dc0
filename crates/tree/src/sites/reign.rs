//! Which site is the hub, and which ones are given up.
//!
//! A *reign* is the time of one hub. The next one begins with an update of the site that becomes the hub, and this is
//! how it comes to that: it *claims* the reign, and each other site that is not given up *follows* it, by an item of
//! its own log. From then on a site does nothing any more for the hub before: it takes nothing of a hub that is given
//! up, carries out nothing for others, returns nothing, and who is the hub itself prepares nothing. It tells the claimant everything that this has not, whoever made
//! it; so the claimant has what any of them had of the old hub's stream, and everything that was done under every token,
//! before it holds what nobody else does. (The paper leaves open what becomes of level 2 when its site is lost.)
//!
//! A site that is *given up* holds nothing any more and is no session's home, since what it has done and the others do
//! not know may contradict what they do from now on. It is not listened to before it has taken the state anew. How
//! often a site was given up tells its lives apart.

use crate::Stamp;
use crate::digest;
use crate::node::ROOT_ID;
use crate::sites::kept::KeptZxids;
use crate::sites::names::{SITE_MAX, SiteId, SiteSet, Source, source_of_zxid};
use crate::sites::ops::{SiteOp, TokenRefusal};
use crate::slab::Slot;
use crate::tree::Tree;
use crate::update::{self, CorruptUpdate, Update};
use alloc::vec::Vec;

/// What becomes of a site that is given up.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    /// How often it was.
    pub(super) times: u32,
    /// Whether it has not come back since.
    pub(super) is_away: bool,
    /// What the others had of its updates when it was given up last; what it had made behind that is lost. Nothing is
    /// known of losses before this was noted.
    pub(super) kept: Option<KeptZxids>,
}

/// A site is to be the hub, and another one follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The reign that is to begin.
    pub reign: u64,
    /// The site that is to be the hub.
    pub hub: SiteId,
    /// How often that was given up, as it knows: one that was given up since is not followed.
    pub life: u32,
    /// The sites that are given up with that.
    pub lost: SiteSet,
    /// The sites that have to follow first.
    pub needed: SiteSet,
    /// Whether no operator has said so: then only who has promised the hub nothing follows.
    pub is_automatic: bool,
}

impl Tree {
    /// At who claims a reign: the sites that have yet to follow, and those that turn out to have come back.
    #[must_use]
    pub fn waits_for(&self) -> SiteSet {
        let Some(claim) = self.sites.streams.claim() else { return SiteSet::default() };
        let is_back = |loss: &Loss| !loss.is_away;
        let back = self.sites.losses.iter().filter(|(_, loss)| is_back(loss)).map(|(site, _)| *site);
        let all = back.fold(claim.needed, SiteSet::with).without(claim.lost);
        all.without(self.sites.streams.followed()).without(SiteSet::of(claim.hub))
    }

    /// How many hubs there have been, with the one that is; 0 where there are no sites.
    #[must_use]
    pub fn reign(&self) -> u64 {
        self.sites.reign
    }

    /// How often a site was given up.
    #[must_use]
    pub fn times_lost(&self, site: SiteId) -> u32 {
        self.sites.losses.get(&site).map_or(0, |loss| loss.times)
    }

    /// How often any site was given up, as far as that is known here.
    #[must_use]
    pub fn losses(&self) -> u32 {
        self.sites.losses.values().fold(0, |losses, loss| losses.wrapping_add(loss.times))
    }

    /// Whether a site was given up, and has not come back.
    #[must_use]
    pub fn is_lost(&self, site: SiteId) -> bool {
        self.sites.is_lost(site)
    }

    /// What the others had of a site when it was given up last. `None` if it never was, or nothing is known of that.
    #[must_use]
    pub fn kept_of_lost(&self, site: SiteId) -> Option<&KeptZxids> {
        self.sites.losses.get(&site)?.kept.as_ref()
    }

    /// What is here of another site.
    #[must_use]
    pub fn known_of(&self, site: SiteId) -> KeptZxids {
        let seen = self.sites.seen.iter().filter(|(source, _)| source.site == site);
        seen.map(|(_, zxid)| *zxid).collect()
    }

    /// Of each source, the last of its updates that is here.
    pub fn seen(&self) -> impl Iterator<Item = (Source, i64)> {
        let own = Source::first_of(self.sites.own);
        // Where there are several partitions the last update of this one may be one that another has made with it, or a
        // move between them, of which no other site hears: it would be missed there for ever.
        let is_for_others = self.placed().version() == 0;
        let prepared = Some(self.zxids.last_prepared).filter(|_| is_for_others);
        let last = self.sites.seen.get(&own).copied().or(prepared);
        let last = last.filter(|_| self.sites.are_there()).map(|last| (own, last));
        let others = self.sites.seen.iter().filter(move |(source, _)| **source != own);
        others.map(|(source, zxid)| (*source, *zxid)).chain(last)
    }

    /// At the first of several partitions: one of them has made an update with this zxid.
    pub fn note_made(&mut self, zxid: i64) {
        let source = source_of_zxid(zxid);
        if source.site == self.sites.own {
            let last = self.sites.seen.entry(source).or_default();
            *last = zxid.max(*last);
        }
    }

    /// At the first of several partitions: the last zxid of its that any of them has made an update with.
    #[must_use]
    pub fn last_made(&self) -> i64 {
        self.sites.seen.get(&Source::first_of(self.sites.own)).copied().unwrap_or(0)
    }

    /// The other sites of which anything is known here.
    pub fn known_sites(&self) -> impl Iterator<Item = SiteId> {
        let streams = self.sites.streams.all_imported().map(|(site, _)| site);
        let own = self.sites.own;
        let seen = self.sites.seen.keys().map(|source| source.site).filter(move |site| *site != own);
        streams.chain(seen).chain(self.sites.losses.keys().copied())
    }

    /// Of each source, the last of its updates that was here when this site's log began. Of its own these concern nobody.
    pub fn floors(&self) -> impl Iterator<Item = (Source, i64)> {
        self.sites.floors.iter().map(|(source, zxid)| (*source, *zxid))
    }

    /// Whether what comes from another site is taken: it is not once that is given up, or is about to be.
    #[must_use]
    pub fn listens_to(&self, from: SiteId) -> bool {
        let claim = self.sites.streams.claim();
        let is_going = claim.is_some_and(|claim| claim.lost.contains(from));
        // That it has come back may be what it has to tell.
        let is_wanted = |claim: Claim| claim.hub == self.sites.own && claim.needed.contains(from);
        let is_next = claim.is_some_and(|claim| claim.hub == from || is_wanted(claim));
        !is_going && (is_next || !self.is_lost(from))
    }

    /// This site claims a reign, or follows who does. One of two that want the same reign comes first.
    pub fn follow(&mut self, claim: Claim) {
        if claim.reign > self.sites.reign
            && claim.life >= self.times_lost(claim.hub)
            && self.sites.streams.claim().is_none_or(|before| before.reign < claim.reign)
        {
            let own = self.sites.own;
            if claim.life > self.times_lost(claim.hub) {
                // It was given up, which is not known here, and has taken another state since. Where its log stood before
                // says nothing of what this site lacks.
                self.sites.streams.give_up(claim.hub);
            }
            self.sites.streams.follow(own, claim);
        }
    }

    /// Makes an update with which a reign begins, or goes on without some sites, appended to `batch`.
    ///
    /// # Errors
    /// When a number is that of no site, or the hub is given up itself; nothing was appended then.
    pub fn prepare_reign(
        &mut self,
        (reign, hub): (u64, SiteId),
        lost: SiteSet,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), TokenRefusal> {
        self.check_reign(hub, lost)?;
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, 0);
        SiteOp::Reign { reign, hub, lost }.encode(batch);
        update::end(batch, start);
        Ok(())
    }

    pub(super) fn check_reign(&self, hub: SiteId, lost: SiteSet) -> Result<(), TokenRefusal> {
        let may_be = (1..=SITE_MAX).contains(&hub) && !lost.contains(hub) && self.sites.are_there();
        may_be.then_some(()).ok_or(TokenRefusal::NoSite)
    }

    /// Makes an update with which a site that was given up is one again, appended to `batch`. At the hub, before that
    /// site is given the state.
    ///
    /// # Errors
    /// When it was not; nothing was appended then.
    pub fn prepare_return(
        &mut self,
        site: SiteId,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), TokenRefusal> {
        if !self.is_lost(site) {
            return Err(TokenRefusal::NoSite);
        }
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, 0);
        SiteOp::Return { site }.encode(batch);
        update::end(batch, start);
        Ok(())
    }

    /// What nobody else holds is the new hub's, and what those held that are given up.
    pub(super) fn apply_reign(
        &mut self,
        update: &Update<'_>,
        (reign, hub): (u64, SiteId),
        lost: SiteSet,
    ) -> Result<(), CorruptUpdate> {
        if !self.sites.are_there() || reign < self.sites.reign {
            return Err(update.corrupt("it begins a reign that is over"));
        }
        let before = core::mem::replace(&mut self.sites.hub, hub);
        let is_new = core::mem::replace(&mut self.sites.reign, reign) != reign;
        // Whoever follows it takes it for one of the sites, also who has not heard that it has come back.
        if let Some(loss) = self.sites.losses.get_mut(&hub) {
            loss.is_away = false;
        }
        self.take_marks(lost.with(before), hub);
        self.sessions.move_homes(lost, hub);
        if !lost.is_empty() {
            self.sites.late.give_up(update.zxid);
        }
        self.sites.read_tokens.give_up(lost);
        for site in lost.iter() {
            let kept = Some(self.known_of(site));
            let loss = self.sites.losses.entry(site).or_default();
            *loss = Loss { times: loss.times + 1, is_away: true, kept };
            self.sites.streams.give_up(site);
        }
        if is_new {
            let own = self.sites.own;
            self.sites.streams.begin_reign(own, (before, hub), reign);
        }
        Ok(())
    }

    pub(super) fn apply_return(&mut self, update: &Update<'_>, site: SiteId) -> Result<(), CorruptUpdate> {
        // It may have been said twice.
        let loss = self.sites.losses.get_mut(&site);
        loss.ok_or_else(|| update.corrupt("a site returns that was never given up"))?.is_away = false;
        Ok(())
    }

    /// Whoever is marked with one of some sites is marked with another one.
    fn take_marks(&mut self, from: SiteSet, to: SiteId) {
        if from.contains(self.sites.divided.root_mark) {
            self.sites.divided.root_mark = to;
        }
        for mark in self.sites.divided.marks.values_mut().filter(|mark| from.contains(**mark)) {
            *mark = to;
        }
        for id in ROOT_ID..self.nodes.end() {
            let node = &self.nodes[id];
            if !node.is_vacant() && from.contains(node.mark()) && node.mark() != to {
                let path_digest = self.path_digest(id);
                self.set_mark(id, path_digest, to);
            }
        }
    }

    fn path_digest(&self, mut id: u32) -> u64 {
        let mut levels = Vec::new();
        while id != ROOT_ID {
            levels.push(id);
            id = self.nodes[id].parent;
        }
        let names = levels.iter().rev().map(|id| self.nodes[*id].name_bytes());
        names.fold(digest::ROOT_PATH, digest::child_path)
    }
}
