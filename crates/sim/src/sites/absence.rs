//! Sites that are away, where others take the hub's place by themselves, and what must hold then: there are never two hubs,
//! and there is one again as soon as there can be.

use super::lines::Bound;
use super::meeting::{SILENCE_US, at_of, site_of};
use super::storms::Storm;
use super::upto::Upto;
use super::{HUB_AT, Passage, SiteRun};
use crate::ensemble::HostId;
use crate::ensemble::World;
use crate::rng::Rng;
use std::collections::BTreeMap;
use stoa_check::{Checked, wrong};
use stoa_core::{Shard, SiteSet};

/// How much faster than others clocks go, millionths, and how far they are from each other, microseconds.
const FAST_PPM: u64 = 100_000;
const APART_US: u64 = 30_000_000;
/// Others start again so soon behind that the hub is cut off, at most: it has its lease then, microseconds.
const RESTART_US: u64 = 6_000_000;
/// Of whom a claim waits for, one does not hear of it for so long, at most, and the old hub for that much longer.
const UNHEARD_US: u64 = 5_000_000;

/// Nobody is the hub for no longer, where there could be one, microseconds.
const PATIENCE_US: u64 = 50_000_000;

/// How a site is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absence {
    /// Its servers end, or lose their power.
    Down,
    /// Nothing passes between it and others; nothing goes there, or nothing comes from there.
    Cut,
    CutTo,
    CutFrom,
    /// Its servers stand still, and go on where they were.
    Paused,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Absences {
    /// Sites that are away, and until when.
    away: BTreeMap<usize, u64>,
    /// Whether all was in order when one of them went.
    was_in_order: bool,
    /// Who is away, or given up, or leads a site that is there, has not changed since, or somebody was the hub.
    pub(super) since_us: u64,
    given_up: usize,
    /// The terms that those who are there have had a leader in, added up.
    terms: u64,
    /// The last reign that has begun anywhere.
    reign: u64,
}

/// No two clocks go alike. In some runs those of one site are slow, and all others are as fast as they may be: then
/// promises are over as soon as can be, by the hub's clock.
pub(super) fn set_clocks(worlds: &mut [World], rng: &mut Rng) {
    if !rng.one_in(3) {
        return worlds.iter_mut().for_each(|world| world.clocks_differ(FAST_PPM, APART_US));
    }
    let slow = if rng.one_in(2) { HUB_AT } else { rng.index(worlds.len()) };
    for (at, world) in worlds.iter_mut().enumerate() {
        world.clocks_go(if at == slow { 0 } else { FAST_PPM }, APART_US);
    }
}

impl SiteRun {
    /// Whether a server stands still, and says nothing.
    pub(super) fn stands_still(&self, at: usize, server: HostId) -> bool {
        self.plan.is_automatic() && self.worlds[at].is_paused(server)
    }

    /// A site is away for a while, or two are.
    pub(super) fn some_go_away(&mut self) {
        let hub = self.hub_before_absence();
        let first = if self.rng.percent(70) { hub } else { self.rng.index(self.worlds.len()) };
        self.goes_away(first);
        if self.rng.one_in(4) {
            let second = self.rng.index(self.worlds.len());
            self.goes_away(second);
        }
    }

    /// The hub hears nobody for a while, nor does anybody hear it, and most often all others start again.
    pub(super) fn hub_is_cut_off(&mut self) {
        let at = self.hub_before_absence();
        let (least, most) = *self.rng.pick(&[(4_000, 14_000), (14_000, 30_000), (60_000, 75_000)]);
        let for_us = self.rng.range(least * 1000, most * 1000);
        if !self.absences.away.is_empty() {
            return;
        }
        self.is_away(at, Absence::Cut, for_us);
        for other in (0..self.worlds.len()).filter(|other| *other != at) {
            self.lines.cut(other, at, self.now_us + for_us);
            self.lines.cut(at, other, self.now_us + for_us);
        }
        if !self.rng.one_in(3) {
            self.others_start_again(at);
        }
    }

    /// Who is the hub; notes whether all is in order before somebody goes.
    fn hub_before_absence(&mut self) -> usize {
        let hub = self.settled_hub();
        if self.absences.away.is_empty() {
            let has_joined = |at: usize| self.first_of(at).is_some_and(|shard| shard.has_joined());
            let are_there = (0..self.worlds.len()).all(has_joined);
            let is_known = hub.is_some_and(|(_, reign)| self.has_asked_for_promises(reign));
            self.absences.was_in_order = are_there && is_known;
        }
        // Of three sites two are away where one goes while another one is given up, also when that is there again.
        self.absences.was_in_order &= self.operator.dooms.is_empty();
        hub.map_or(self.hub, |(hub, _)| hub)
    }

    /// Whether the hub of a reign has been promised something: one that has asked for nothing may need no promises.
    fn has_asked_for_promises(&self, reign: u64) -> bool {
        let has_promised = |shard: &Shard| shard.tree().streams().promised_in() == reign;
        (0..self.worlds.len()).any(|at| self.first_of(at).is_some_and(has_promised))
    }

    fn goes_away(&mut self, at: usize) {
        if self.absences.away.contains_key(&at) {
            return;
        }
        // About as long as a promise holds, or shorter or longer.
        let (least, most) =
            *self.rng.pick(&[(500, 8_000), (8_000, 14_000), (14_000, 30_000), (30_000, 70_000)]);
        let for_us = self.rng.range(least * 1000, most * 1000);
        let until_us = self.now_us + for_us;
        let how =
            [Absence::Down, Absence::Cut, Absence::CutTo, Absence::CutFrom, Absence::Paused, Absence::Paused];
        let how = *self.rng.pick(&how);
        self.is_away(at, how, for_us);
        match how {
            Absence::Down => {
                let power = self.rng.one_in(2);
                let world = &mut self.worlds[at];
                world.ids().into_iter().for_each(|id| world.fell(id, power));
                self.after(for_us, Passage::Rise(at));
            }
            Absence::Paused => self.stands_still_for(at, for_us),
            Absence::Cut | Absence::CutTo | Absence::CutFrom => {
                self.is_cut_off(at, how, until_us);
                if self.rng.one_in(3) {
                    self.others_start_again(at);
                }
            }
        }
    }

    fn is_away(&mut self, at: usize, how: Absence, for_us: u64) {
        self.counts.absences += 1;
        self.absences.away.insert(at, self.now_us + for_us);
        self.absences.since_us = self.now_us;
        self.worlds[at].note("away", format_args!("{how:?} for {} ms", for_us / 1000));
    }

    /// The servers of all other sites start again, which have promised something a moment before.
    fn others_start_again(&mut self, at: usize) {
        for other in (0..self.worlds.len()).filter(|other| *other != at) {
            let after_us = self.rng.below(RESTART_US);
            self.after(after_us, Passage::Storm(Storm::Restart(other)));
        }
    }

    /// A site claims to be the hub in the place of one that is cut off. It may be that one of those that miss the hub, too,
    /// hears from that again, and not of the claim.
    pub(super) fn is_claimed(&mut self, by: usize, others: SiteSet) {
        if self.is_healing || !self.rng.one_in(3) {
            return;
        }
        let others: Vec<usize> = others.iter().map(at_of).collect();
        let (one, hub) = (others[self.rng.index(others.len())], self.hub);
        let one_us = self.now_us + self.rng.range(500_000, UNHEARD_US);
        let hub_us = one_us + self.rng.range(500_000, UNHEARD_US);
        for (site, until_us) in [(one, one_us), (hub, hub_us)] {
            self.lines.cut(by, site, until_us);
            self.lines.cut(site, by, until_us);
        }
        for (from, to) in [(one, hub), (hub, one)] {
            if let Some(until_us) = self.lines.heal(from, to) {
                self.at(hub_us, Passage::Storm(Storm::CutAgain(from, to, until_us)));
            }
        }
    }

    fn stands_still_for(&mut self, at: usize, for_us: u64) {
        let world = &mut self.worlds[at];
        world.ids().into_iter().for_each(|id| world.pause(id, for_us));
        if for_us <= SILENCE_US {
            return;
        }
        let calls = self.lines.calls.iter().filter(|(_, call)| call.leaf == at || call.hub == at);
        let calls: Vec<u64> = calls.map(|(number, _)| *number).collect();
        for call in calls {
            for bound in [Bound::ToLeaf, Bound::ToHub] {
                self.after(SILENCE_US, Passage::Notice(call, bound));
            }
        }
    }

    fn is_cut_off(&mut self, at: usize, how: Absence, until_us: u64) {
        let is_partly = self.rng.one_in(3);
        for other in (0..self.worlds.len()).filter(|other| *other != at) {
            if is_partly && self.rng.one_in(2) {
                continue;
            }
            if how != Absence::CutFrom {
                self.lines.cut(other, at, until_us);
            }
            if how != Absence::CutTo {
                self.lines.cut(at, other, until_us);
            }
        }
    }

    /// With all sites there, or all but one that went when all was in order, somebody is the hub and may write.
    pub(super) fn somebody_is_the_hub(&mut self) -> Checked {
        let (now_us, before) = (self.now_us, self.absences.away.len());
        self.absences.away.retain(|_, until_us| *until_us > now_us);
        let (away, given_up) = (self.absences.away.len(), self.operator.dooms.len());
        let acts = |at: usize| self.first_of(at).is_some_and(|shard| shard.acts_as_hub());
        let is_known = (0..self.worlds.len()).any(acts);
        // Whoever leads a site anew counts from then on for how long that has promised to take no part.
        let is_there = |at: &usize| !self.absences.away.contains_key(at);
        let terms = (0..self.worlds.len()).filter(is_there).map(|at| self.worlds[at].newest_led()).sum();
        if is_known || away != before || given_up != self.absences.given_up || terms != self.absences.terms {
            self.absences.since_us = now_us;
        }
        self.absences.given_up = given_up;
        self.absences.terms = terms;
        let doomed = self.operator.dooms.keys().filter(|at| !self.absences.away.contains_key(at));
        let may_be_one = away == 0 || away + doomed.count() == 1 && self.absences.was_in_order;
        if may_be_one && now_us > self.absences.since_us + PATIENCE_US {
            return wrong(format!(
                "for {PATIENCE_US} us nobody is the hub, with {:?} away",
                self.absences.away
            ));
        }
        Ok(())
    }

    /// Looks whether a site has begun to be the hub, and whether another one still is.
    pub(super) fn look_at_reigns(&mut self, at: usize) -> Checked {
        // Whether it is the hub its first partition says, by the time of its own last turn.
        let Some((server, 0)) = self.worlds[at].just_turned() else { return Ok(()) };
        let Some(shard) = self.worlds[at].shard(server) else { return Ok(()) };
        let (reign, acts) = (shard.tree().reign(), shard.acts_as_hub());
        if reign > self.absences.reign {
            self.absences.reign = reign;
            self.reign_has_begun(at, server)?;
        }
        // One that does not lead its site any more may not know it yet, and brings nothing about.
        let is_first = self.first_of(at).is_some_and(|first| HostId::from(first.status().id) == server);
        if acts && is_first && reign < self.absences.reign {
            let last = self.absences.reign;
            return wrong(format!("site {} is the hub of reign {reign}, and reign {last} has begun", at + 1));
        }
        Ok(())
    }

    /// A reign begins. Who is given up with it is none of the sites from now on, whether it knows that or not.
    fn reign_has_begun(&mut self, by: usize, server: HostId) -> Checked {
        let Some(tree) = self.worlds[by].shard(server).map(|shard| shard.tree()) else { return Ok(()) };
        let is_news = |at: &usize| {
            let site = site_of(*at);
            let times = tree.times_lost(site);
            tree.is_lost(site) && self.times_given_up(*at).is_none_or(|known| known < times)
        };
        let all = (0..self.worlds.len()).filter(is_news);
        let all = all.map(site_of).map(|site| (site, tree.times_lost(site), Upto::of(tree, site)));
        let lost: Vec<_> = all.collect();
        let wall_ms = self.worlds[by].clock_of(server, self.now_us).map_or(0, |now| now.wall_ms);
        for (site, times, kept) in lost {
            self.goes_on_without(by, at_of(site), times - 1, kept)?;
            self.ledger.borrow_mut().is_overthrown(at_of(site), wall_ms);
        }
        Ok(())
    }
}
