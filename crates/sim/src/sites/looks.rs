//! What leaders of sites learn of hubs from each other: each asks another site now and then, and whoever is asked tells
//! what he knows. The server does it in `sites/meet.rs`.

use super::lines::End;
use super::meeting::{at_of, site_of};
use super::{Passage, SiteRun};
use crate::ensemble::FromAbroad;
use stoa_core::{
    Claim, Greeting, SiteAnswer, SiteId, SiteReach, SiteSet, Succession, SuccessionStep, answer_site,
    believed_hub, has_nothing_to_tell, hub_is_back, knows_later_hub,
};

/// How often a site asks another one who the hub is, microseconds.
const LOOK_US: u64 = 2_000_000;

/// What a leader keeps of other sites besides what is replicated.
#[derive(Debug, Clone, Default)]
pub(super) struct Mind {
    /// The hub of a later reign than is known here, as another site says.
    pub(super) believed: (u64, SiteId),
    /// The site that was asked last, and those that are to be asked soon.
    looked_at: SiteId,
    to_look_at: SiteSet,
    looks_at_us: u64,
    /// Who misses the hub, where one is to take its place.
    succession: Succession,
}

/// What a leader is told that asks.
#[derive(Debug, Clone)]
pub(super) struct Hearsay {
    from: SiteId,
    hub: SiteId,
    reign: u64,
    answer: SiteAnswer,
    claim: Option<Claim>,
    misses_hub: Option<SiteReach>,
}

impl SiteRun {
    pub(super) fn mind(&self, at: usize, end: End) -> Mind {
        self.minds.get(&(at, end.server, end.life)).cloned().unwrap_or_default()
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
        let site = site_of(asks.0);
        let answer = self.worlds[at].shard(end.server).map(|shard| answer_site(shard, site, greeting));
        let met = (at, (end.server, end.life));
        let Some(answer) = answer.filter(|answer| self.compare_levels((asks.0, greeting), met, *answer))
        else {
            return;
        };
        self.hears_of_nothing(site, (at, end), greeting);
        let Some(shard) = self.worlds[at].shard(end.server) else { return };
        let tree = shard.tree();
        let (hub, reign, claim) = (tree.hub().unwrap_or_default(), tree.reign(), tree.streams().claim());
        let now = self.worlds[at].clock_of(end.server, self.now_us);
        let misses_hub = now.filter(|now| shard.misses_hub(*now)).map(|_| shard.reach());
        let from = site_of(at);
        let told = Hearsay { from, hub, reign, answer, claim, misses_hub };
        if knows_later_hub(shard, greeting) {
            self.is_to_look_at(at, end, SiteSet::of(site));
        }
        if self.lines.cut_until(at, asks.0, self.now_us).is_none() {
            let way_us = self.way_us(at, asks.0);
            self.after(way_us, Passage::Learn(asks, told));
        }
    }

    /// Who is to be the hub hears from a site that has nothing, and for which it waits.
    fn hears_of_nothing(&mut self, site: SiteId, (at, end): (usize, End), greeting: &Greeting) {
        let shard = self.worlds[at].shard(end.server);
        if let Some((lost, others)) = shard.and_then(|shard| has_nothing_to_tell(shard, site, greeting)) {
            let order = FromAbroad::Promote { lost, others };
            self.worlds[at].comes_from_abroad(self.now_us, (end.server, end.life), order);
            self.is_to_look_at(at, end, others);
        }
    }

    /// What it was told has come.
    pub(super) fn learn(&mut self, (at, end): (usize, End), told: Hearsay) {
        if !self.still_leads(at, end) || self.stands_still(at, end.server) {
            return;
        }
        if self.plan.is_automatic() {
            self.hears_of_the_hub((at, end), &told);
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

    /// What the server does in `sites/succession.rs`: who misses the hub asks the others, and claims its place when all
    /// of them do, too, and it is the one that can.
    pub(super) fn tend_succession(&mut self, at: usize, end: End) {
        let Some(now) = self.worlds[at].clock_of(end.server, self.now_us) else { return };
        let mind = self.minds.entry((at, end.server, end.life)).or_default();
        let Some(shard) = self.worlds[at].shard(end.server) else { return };
        match mind.succession.step(shard, now) {
            SuccessionStep::Nothing => {}
            SuccessionStep::Ask(others) => self.is_to_look_at(at, end, others),
            SuccessionStep::NobodyCan(others) => {
                self.worlds[at].note("succession", format_args!("none of the others can be the hub"));
                self.is_to_look_at(at, end, others);
            }
            SuccessionStep::TakePlace(others) => {
                self.counts.claims += 1;
                let whom = (end.server, end.life);
                self.worlds[at].comes_from_abroad(self.now_us, whom, FromAbroad::TakePlace(others));
                self.is_to_look_at(at, end, others);
                self.is_claimed(at, others);
            }
        }
    }

    /// Another site has said whether it misses the hub, or is that and is there again.
    fn hears_of_the_hub(&mut self, (at, end): (usize, End), told: &Hearsay) {
        let Some(now) = self.worlds[at].clock_of(end.server, self.now_us) else { return };
        self.mind_mut(at, end).succession.heard(told.from, told.misses_hub.clone(), now);
        let Some(shard) = self.worlds[at].shard(end.server) else { return };
        if let Some(others) = hub_is_back(shard, told.from, told.hub) {
            let order = FromAbroad::Promote { lost: SiteSet::default(), others };
            self.worlds[at].comes_from_abroad(self.now_us, (end.server, end.life), order);
            self.is_to_look_at(at, end, others);
        }
    }
}
