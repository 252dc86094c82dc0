//! What leaders of sites learn of hubs from each other: each asks another site now and then, and whoever is asked tells
//! what he knows. The server does it in `sites/meet.rs`.

use super::lines::End;
use super::meeting::{at_of, site_of};
use super::{Passage, SiteRun};
use crate::ensemble::FromAbroad;
use stoa_core::{Claim, Greeting, SiteAnswer, SiteId, SiteSet, answer_site, believed_hub, knows_later_hub};

/// How often a site asks another one who the hub is, microseconds.
const LOOK_US: u64 = 2_000_000;

/// What a leader keeps of other sites besides what is replicated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mind {
    /// The hub of a later reign than is known here, as another site says.
    pub(super) believed: (u64, SiteId),
    /// The site that was asked last, and those that are to be asked soon.
    looked_at: SiteId,
    to_look_at: SiteSet,
    looks_at_us: u64,
}

/// What a leader is told that asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hearsay {
    hub: SiteId,
    reign: u64,
    answer: SiteAnswer,
    claim: Option<Claim>,
}

impl SiteRun {
    pub(super) fn mind(&self, at: usize, end: End) -> Mind {
        self.minds.get(&(at, end.server, end.life)).copied().unwrap_or_default()
    }

    fn mind_mut(&mut self, at: usize, end: End) -> &mut Mind {
        self.minds.entry((at, end.server, end.life)).or_default()
    }

    /// A leader has to ask these sites who the hub is, or tell them so.
    pub(super) fn is_to_look_at(&mut self, at: usize, end: End, sites: SiteSet) {
        let mind = self.mind_mut(at, end);
        mind.to_look_at = sites.iter().fold(mind.to_look_at, SiteSet::with);
    }

    /// A leader asks those sites whose turn it is.
    pub(super) fn look_around(&mut self, at: usize, end: End) {
        let (now_us, own) = (self.now_us, site_of(at));
        let last = self.worlds.len() as SiteId;
        let mind = self.mind_mut(at, end);
        let mut sites = std::mem::take(&mut mind.to_look_at);
        if now_us >= mind.looks_at_us {
            mind.looks_at_us = now_us + LOOK_US;
            let mut others = (mind.looked_at + 1..=last).chain(1..=last);
            mind.looked_at = others.find(|site| *site != own).unwrap_or_default();
            sites = sites.with(mind.looked_at);
        }
        sites.iter().filter(|site| *site != own).for_each(|site| self.look_at(at, end, at_of(site)));
    }

    fn look_at(&mut self, at: usize, end: End, to: usize) {
        let Some(greeting) = self.worlds[at].shard(end.server).map(|shard| Greeting::of(shard, true)) else {
            return;
        };
        if self.lines.cut_until(at, to, self.now_us).is_none() {
            let way_us = self.way_us(at, to);
            self.after(way_us, Passage::Look((at, end), to, greeting));
        }
    }

    /// A leader that asks reaches another site.
    pub(super) fn is_asked(&mut self, asks: (usize, End), to: usize, greeting: Greeting) {
        if let Some(end) = self.someone_leads(to) {
            self.answer(asks, (to, end), &greeting);
        }
    }

    /// A leader is told what another one knows.
    pub(super) fn answer(&mut self, asks: (usize, End), (at, end): (usize, End), greeting: &Greeting) {
        let (Some(shard), site) = (self.worlds[at].shard(end.server), site_of(asks.0)) else { return };
        let tree = shard.tree();
        let (hub, reign, claim) = (tree.hub().unwrap_or_default(), tree.reign(), tree.streams().claim());
        let told = Hearsay { hub, reign, answer: answer_site(shard, site, greeting), claim };
        if knows_later_hub(shard, greeting) {
            self.is_to_look_at(at, end, SiteSet::of(site));
        }
        if self.lines.cut_until(at, asks.0, self.now_us).is_none() {
            let way_us = self.way_us(at, asks.0);
            self.after(way_us, Passage::Learn(asks, told));
        }
    }

    /// What it was told has come.
    pub(super) fn learn(&mut self, (at, end): (usize, End), told: Hearsay) {
        if !self.still_leads(at, end) {
            return;
        }
        let Some(shard) = self.worlds[at].shard(end.server) else { return };
        let believed = believed_hub(shard, self.mind(at, end).believed, (told.reign, told.hub));
        let is_given_up = told.answer == SiteAnswer::Lost && shard.has_joined();
        self.mind_mut(at, end).believed = believed;
        let given_up = is_given_up.then_some(FromAbroad::GivenUp);
        for heard in given_up.into_iter().chain(told.claim.map(FromAbroad::Follow)) {
            self.worlds[at].comes_from_abroad(self.now_us, (end.server, end.life), heard);
        }
    }
}
