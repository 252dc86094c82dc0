//! Who operates the sites: has another one be the hub, gives up a site that is lost, and has it come back.
//!
//! He does what the documentation says. A site is given up only when all is in order, or when nobody can tell it what it
//! lacks; whoever claims to be the hub meanwhile does it without that; what does not come to an end is ordered once more.

use super::lines::End;
use super::meeting::{at_of, site_of};
use super::upto::Upto;
use super::{HUB_AT, SiteRun};
use crate::ensemble::FromAbroad;
use crate::ensemble::HostId;
use std::collections::{BTreeMap, BTreeSet};
use stoa_check::{Checked, wrong};
use stoa_core::{Shard, SiteId, SiteSet, SiteStanding};

/// How often he looks how it stands, microseconds.
const LOOK_US: u64 = 250_000;
/// What has not come to an end by then is ordered once more, microseconds.
const PATIENCE_US: u64 = 4_000_000;
/// A site that is lost comes back so late, at most, behind that it was given up, microseconds.
const AWAY_US: u64 = 4_000_000;
/// By then a leader has carried out an order, or it is lost, microseconds.
const SETTLES_US: u64 = 2_000_000;
/// A second site is to be the hub so soon after the first one, at most, microseconds.
const SECOND_US: u64 = 1_500_000;

/// A site that is given up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doom {
    /// How often it had been given up before.
    lives: u32,
    /// Whether its servers are down; else it goes on, and most often is cut off.
    is_down: bool,
    /// The last reign when a site was told to claim one without this.
    claimed_behind: u64,
    /// Which of its updates the others have, once it is given up.
    kept: Option<Upto>,
    /// It comes back then.
    back_us: u64,
    is_back: bool,
    /// Nobody is told any more what it had.
    is_over: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Operator {
    next_us: u64,
    looks_us: u64,
    /// Since when all was in order, or another site was to be the hub.
    since_us: u64,
    /// When a site was last told to be the hub.
    ordered_us: u64,
    /// Sites that are to be the hub later.
    later: Vec<(u64, usize)>,
    pub(super) dooms: BTreeMap<usize, Doom>,
    /// Of each site, which updates of each one were seen there.
    seen: BTreeMap<(usize, SiteId), Upto>,
    /// The same of one that is given up, when that was known there, and how often it was by then.
    given_up: BTreeMap<(usize, SiteId, u32), Upto>,
    /// Who could not tell the one that was to be the hub all that this lacks, and which site a hub could not.
    torn: Option<usize>,
    is_left_out: Option<usize>,
    /// When a site was last led by another server, because the one before could not tell somebody what that lacks, and how
    /// often it was by now.
    pub(super) handed_over: BTreeMap<usize, (u64, usize)>,
    /// So often nobody got to be the hub in time.
    failed: u32,
    /// The first site has begun anew, and another one stands first in its settings.
    has_moved: bool,
}

impl SiteRun {
    /// Whether the first site, where there are none yet, is the hub by its settings.
    pub(super) fn founds(&self) -> bool {
        !self.operator.has_moved
    }

    /// Whether a site is given up, and has not come back.
    pub(super) fn is_doomed(&self, at: usize) -> bool {
        self.operator.dooms.contains_key(&at)
    }

    /// The hub and its reign, when all who lead the other sites know of no other one.
    pub(super) fn settled_hub(&self) -> Option<(usize, u64)> {
        let (mut hub, mut last) = (None, 0);
        for at in (0..self.worlds.len()).filter(|at| !self.is_doomed(*at)) {
            let Some(tree) = self.first_of(at).filter(|shard| shard.has_joined()).map(|shard| shard.tree())
            else {
                continue;
            };
            if tree.streams().claim().is_some() {
                return None;
            }
            last = last.max(tree.reign());
            if tree.own_site().is_some() && tree.own_site() == tree.hub() {
                hub = hub.filter(|(_, reign)| *reign > tree.reign()).or(Some((at, tree.reign())));
            }
        }
        hub.filter(|(_, reign)| *reign == last && last > 0)
    }

    /// What the operator does now.
    pub(super) fn operate(&mut self) -> Checked {
        self.note_seen()?;
        if self.now_us < self.operator.looks_us {
            return Ok(());
        }
        self.operator.looks_us = self.now_us + LOOK_US;
        let hub = self.settled_hub();
        self.hub = hub.map_or(self.hub, |(hub, _)| hub);
        let hub = hub.filter(|(_, reign)| self.is_settled(*reign));
        match hub {
            Some((hub, _)) => {
                (self.operator.since_us, self.operator.failed) = (self.now_us, 0);
                (self.operator.torn, self.operator.is_left_out) = (None, None);
                self.give_up(hub)?;
            }
            None if self.now_us <= self.operator.since_us + PATIENCE_US => {}
            None if self.plan.is_automatic() => self.help_on(),
            None => self.order_again(),
        }
        self.bring_back(hub.map(|(hub, _)| hub));
        if !self.plan.is_automatic() {
            self.order(hub.is_some());
        }
        Ok(())
    }

    /// Whether no claim without those that are given up can turn up when they are back: a later reign has begun, or all
    /// are known to have none.
    fn is_settled(&self, reign: u64) -> bool {
        let dooms = self.operator.dooms.values();
        let claimed_behind = dooms.map(|doom| doom.claimed_behind).max().unwrap_or(0);
        let others = (0..self.worlds.len()).filter(|at| !self.is_doomed(*at));
        let is_known = |at: usize| self.first_of(at).is_some();
        let is_over = self.now_us > self.operator.ordered_us + SETTLES_US;
        reign > claimed_behind || is_over && others.into_iter().all(is_known)
    }

    /// Nobody gets to be the hub: another one is to be it. Who has more than it can tell is best; where nobody can tell
    /// another one everything, that has to join anew.
    fn order_again(&mut self) {
        self.operator.failed += 1;
        let has_more = self.operator.torn.take().filter(|at| !self.is_doomed(*at));
        let left_out = self.operator.is_left_out.take().filter(|at| !self.is_doomed(*at));
        let apart = left_out.or(has_more).filter(|_| self.operator.failed > 2 && self.plan.orders.loses);
        if let Some(apart) = apart {
            self.is_lost(apart, false);
            self.operator.dooms.entry(apart).and_modify(|doom| doom.is_back = true);
        }
        let to = has_more.filter(|_| apart.is_none()).or_else(|| self.any_candidate(None));
        to.into_iter().for_each(|to| self.promote(to));
    }

    /// Sites that take the hub's place by themselves get no further where nobody can tell one of them what it lacks: who
    /// has more than he can tell is to be the hub, and who is left out joins anew.
    fn help_on(&mut self) {
        let has_more = self.operator.torn.take().filter(|at| !self.is_doomed(*at));
        let left_out = self.operator.is_left_out.take().filter(|at| !self.is_doomed(*at));
        if let Some(apart) = left_out {
            self.is_lost(apart, false);
            self.operator.dooms.entry(apart).and_modify(|doom| doom.is_back = true);
        }
        if let Some(to) = has_more.filter(|at| Some(*at) != left_out) {
            self.promote(to);
        }
    }

    /// A site that may be the hub next: one that has joined, and is not given up, and not this one.
    fn any_candidate(&mut self, not: Option<usize>) -> Option<usize> {
        let is_one = |at: &usize| {
            Some(*at) != not && !self.is_doomed(*at) && self.first_of(*at).is_some_and(|it| it.has_joined())
        };
        let all: Vec<usize> = (0..self.worlds.len()).filter(is_one).collect();
        (!all.is_empty()).then(|| all[self.rng.index(all.len())])
    }

    /// Gives an order, if it is time.
    fn order(&mut self, is_settled: bool) {
        let now_us = self.now_us;
        let later = std::mem::take(&mut self.operator.later);
        // Who has come back would be given up once more.
        let is_any_back = self.operator.dooms.values().any(|doom| doom.is_back);
        for (at_us, to) in later {
            if at_us > now_us {
                self.operator.later.push((at_us, to));
            } else if !self.is_healing && !self.is_doomed(to) && !is_any_back {
                self.promote(to);
            }
        }
        let every_us = self.plan.orders.every_ms * 1000;
        if self.operator.next_us == 0 {
            self.operator.next_us = now_us + every_us;
        }
        let have_joined = (0..self.worlds.len())
            .all(|at| self.first_of(at).is_some_and(|it| it.has_joined()) || self.is_doomed(at));
        let is_time = now_us >= self.operator.next_us && !self.is_healing;
        if !is_time || !is_settled || !have_joined || !self.operator.dooms.is_empty() {
            return;
        }
        self.operator.next_us = now_us + self.rng.range(1, 2 * every_us);
        match self.rng.below(3) {
            0 | 1 if self.plan.orders.loses => self.lose(),
            _ => self.promote_some(Some(self.hub)),
        }
    }

    /// Another site is to be the hub, or two of them at once, or one after the other.
    fn promote_some(&mut self, not: Option<usize>) {
        let Some(to) = self.any_candidate(not) else { return };
        self.promote(to);
        let Some(other) = self.any_candidate(Some(to)) else { return };
        match self.rng.below(4) {
            0 => self.promote(other),
            1 => {
                let at_us = self.now_us + self.rng.below(SECOND_US);
                self.operator.later.push((at_us, other));
            }
            _ => {}
        }
    }

    /// A site is told to claim to be the hub, without those that are given up.
    fn promote(&mut self, to: usize) {
        (self.operator.since_us, self.operator.ordered_us) = (self.now_us, self.now_us);
        self.counts.claims += 1;
        let set =
            |all: &mut dyn Iterator<Item = usize>| all.map(site_of).fold(SiteSet::default(), SiteSet::with);
        let lost = set(&mut self.operator.dooms.keys().copied());
        let others = set(&mut (0..self.worlds.len()).filter(|at| *at != to));
        let shards = self
            .worlds
            .iter()
            .flat_map(|world| world.envoys().into_iter().filter_map(|envoy| world.shard(envoy.server)));
        let claimed = |shard: &Shard| shard.tree().streams().claim().map_or(0, |claim| claim.reign);
        let last = shards.map(|shard| shard.tree().reign().max(claimed(shard))).max().unwrap_or(0);
        for doom in self.operator.dooms.values_mut() {
            doom.claimed_behind = doom.claimed_behind.max(last);
        }
        self.worlds[to].note("operator", format_args!("it is to be the hub, without {lost:?}"));
        for envoy in self.leaders(to) {
            let end = End { server: envoy.server, life: envoy.life, term: envoy.term };
            let order = FromAbroad::Promote { lost, others };
            self.worlds[to].comes_from_abroad(self.now_us, (end.server, end.life), order);
            self.is_to_look_at(to, end, others.without(lost));
        }
    }

    /// A site is lost: its servers are down, or it is cut off and goes on alone, or the operator is wrong about it.
    fn lose(&mut self) {
        let others: Vec<usize> = (0..self.worlds.len()).filter(|at| *at != self.hub).collect();
        let at = if self.rng.one_in(2) { self.hub } else { others[self.rng.index(others.len())] };
        let is_down = self.rng.one_in(2);
        if is_down {
            let power = self.rng.one_in(2);
            let world = &mut self.worlds[at];
            world.ids().into_iter().for_each(|id| world.fell(id, power));
        } else if !self.rng.one_in(3) {
            self.lines.cut_off(at, true);
        }
        self.is_lost(at, is_down);
        if at == self.hub {
            self.promote_some(Some(at));
        }
    }

    /// From now on a site counts as lost.
    fn is_lost(&mut self, at: usize, is_down: bool) {
        self.counts.losses += 1;
        self.worlds[at].note("operator", format_args!("it is lost, down {is_down}"));
        let others = (0..self.worlds.len()).filter(|other| *other != at && !self.is_doomed(*other));
        let shards = others.filter_map(|other| self.first_of(other));
        let lives = shards.map(|shard| shard.tree().times_lost(site_of(at))).max().unwrap_or(0);
        let back_us = self.rng.below(AWAY_US);
        let doom =
            Doom { lives, is_down, claimed_behind: 0, kept: None, back_us, is_back: false, is_over: false };
        self.operator.dooms.insert(at, doom);
        let kept = self.known_of(at);
        self.ledger.borrow_mut().splits(at, site_of(at), kept);
        self.loses_more();
    }

    /// Another site has begun a reign without this one, by itself, and has so much of it.
    pub(super) fn goes_on_without(&mut self, by: usize, at: usize, lives: u32, kept: Upto) -> Checked {
        self.counts.losses += 1;
        self.worlds[at].note("operator", format_args!("site {} goes on without it", by + 1));
        if self.is_doomed(at) {
            self.heals_split(at);
        }
        let back_us = self.now_us;
        let (kept_is, claimed_behind) = (Some(kept), 0);
        let doom = Doom {
            lives,
            is_down: false,
            claimed_behind,
            kept: kept_is,
            back_us,
            is_back: false,
            is_over: false,
        };
        self.operator.dooms.insert(at, doom);
        let (site, known) = (site_of(at), self.known_of(at));
        if known.exceeds(&kept) {
            return wrong(format!("site {site} is given up behind {kept:?}, and others had {known:?} of it"));
        }
        self.operator.seen.insert((by, site), kept);
        let mut ledger = self.ledger.borrow_mut();
        ledger.splits(at, site, kept);
        drop(ledger);
        self.loses_more();
        Ok(())
    }

    /// How often a site was given up, as far as the operator knows.
    pub(super) fn times_given_up(&self, at: usize) -> Option<u32> {
        self.operator.dooms.get(&at).map(|doom| doom.lives + 1)
    }

    /// What only a site has that is lost, of others that were given up before, is lost, too.
    fn loses_more(&mut self) {
        let dooms: Vec<(usize, Doom)> = self.operator.dooms.iter().map(|(at, doom)| (*at, *doom)).collect();
        for (at, doom) in dooms {
            let known = self.known_of(at);
            self.ledger.borrow_mut().keeps_no_more(site_of(at), known);
            let kept = doom.kept.filter(|kept| !kept.exceeds(&known));
            self.operator.dooms.insert(at, Doom { kept, ..doom });
        }
    }

    /// Which updates of a site others have that are not given up.
    fn known_of(&self, at: usize) -> Upto {
        let site = site_of(at);
        let is_its = |(holder, of): &(usize, SiteId)| *of == site && !self.is_doomed(*holder);
        let known = self.operator.seen.iter().filter(|(whose, _)| is_its(whose));
        known.fold(Upto::default(), |known, (_, upto)| known.or(upto))
    }

    /// Notes what each site has of the others. Nobody takes in anything more of one that is given up.
    fn note_seen(&mut self) -> Checked {
        for (at, world) in self.worlds.iter().enumerate() {
            for tree in world.envoys().iter().filter_map(|it| world.shard(it.server)).map(|it| it.tree()) {
                let sites: BTreeSet<SiteId> = tree.seen().map(|(source, _)| source.site).collect();
                for site in sites {
                    let upto = Upto::of(tree, site);
                    let doom = self.operator.dooms.get(&(usize::from(site) - 1));
                    let (times, lives) = (tree.times_lost(site), doom.map(|doom| doom.lives));
                    if lives.is_none_or(|lives| times <= lives) {
                        let seen = self.operator.seen.entry((at, site)).or_default();
                        *seen = seen.or(&upto);
                    } else {
                        // What it makes when it has come back is no part of that.
                        self.operator.given_up.entry((at, site, times)).or_insert(upto);
                    }
                    // It may have come back, and been given up once more.
                    let kept = doom.filter(|doom| times == doom.lives + 1).and_then(|it| it.kept);
                    let is_other = !self.operator.dooms.contains_key(&at) && tree.is_lost(site);
                    if let Some(kept) = kept.filter(|kept| is_other && upto.exceeds(kept)) {
                        return wrong(format!(
                            "site {} has taken in {upto:?} of site {site}, which was given up behind {kept:?}",
                            at + 1
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// The hub gives up what is lost, where that has not happened with its reign.
    fn give_up(&mut self, hub: usize) -> Checked {
        let dooms: Vec<(usize, Doom)> = self.operator.dooms.iter().map(|(at, doom)| (*at, *doom)).collect();
        for (at, doom) in dooms {
            let Some(tree) = self.first_of(hub).map(|shard| shard.tree()) else { return Ok(()) };
            let site = site_of(at);
            if doom.kept.is_some() {
                continue;
            }
            if tree.times_lost(site) > doom.lives {
                let given_up = &self.operator.given_up;
                let kept = given_up.get(&(hub, site, doom.lives + 1)).copied();
                let kept = kept.unwrap_or_else(|| Upto::of(tree, site));
                let known = self.known_of(at);
                if known.exceeds(&kept) {
                    return wrong(format!(
                        "site {site} is given up behind {kept:?}, and others had {known:?} of it"
                    ));
                }
                self.ledger.borrow_mut().keeps(site, kept);
                let back_us = self.now_us + doom.back_us;
                self.operator.dooms.insert(at, Doom { kept: Some(kept), back_us, ..doom });
                continue;
            }
            for envoy in self.leaders(hub) {
                let whom = (envoy.server, envoy.life);
                self.worlds[hub].comes_from_abroad(self.now_us, whom, FromAbroad::Lose(site));
                let call = self.lines.with(hub, whom, at);
                call.into_iter().for_each(|(call, _)| self.hang_up(call));
            }
        }
        Ok(())
    }

    /// What was given up comes back, finds that out, and takes the hub's state.
    fn bring_back(&mut self, hub: Option<usize>) {
        let dooms: Vec<(usize, Doom)> = self.operator.dooms.iter().map(|(at, doom)| (*at, *doom)).collect();
        for (at, mut doom) in dooms {
            if doom.kept.is_some() && !doom.is_back && (self.now_us >= doom.back_us || self.is_healing) {
                self.comes_back(at, &mut doom);
            }
            if doom.is_back && !doom.is_over && self.has_been_told(at) {
                doom.is_over = true;
                self.heals_split(at);
            }
            self.operator.dooms.insert(at, doom);
            if doom.is_back && doom.is_over {
                self.rejoins(at, hub);
            }
        }
    }

    fn comes_back(&mut self, at: usize, doom: &mut Doom) {
        doom.is_back = true;
        self.lines.cut_off(at, false);
        if doom.is_down && self.rng.one_in(2) && self.worlds[at].envoys().is_empty() {
            self.operator.has_moved |= at == HUB_AT;
            self.worlds[at].begins_anew();
            doom.is_over = true;
            self.heals_split(at);
        }
        self.worlds[at].note("operator", format_args!("it comes back, with nothing {}", doom.is_over));
        let world = &mut self.worlds[at];
        if doom.is_down {
            world.ids().into_iter().for_each(|id| world.rise(id));
        }
    }

    /// Nobody is served any more by a site that was given up, with what it had.
    fn heals_split(&mut self, at: usize) {
        let last = self.operator.seen.get(&(at, site_of(at))).copied().unwrap_or_default();
        self.ledger.borrow_mut().is_over(at, site_of(at), last);
    }

    /// Whether each server of a site knows that this was given up.
    fn has_been_told(&self, at: usize) -> bool {
        let world = &self.worlds[at];
        let knows = |shard: &Shard| shard.tree().streams().standing() != SiteStanding::Member;
        world.ids().into_iter().all(|id| world.whole(id).is_some_and(|whole| whole.all().all(knows)))
    }

    /// A site that knows that it was given up takes the hub's state, and is one of them again.
    fn rejoins(&mut self, at: usize, hub: Option<usize>) {
        let Some(shard) = self.first_of(at) else { return };
        let standing = shard.tree().streams().standing();
        let lives = shard.tree().times_lost(site_of(at));
        let is_member = shard.has_joined() && standing == SiteStanding::Member;
        // It may have taken the hub's place by itself, since it has come back.
        let is_hub = is_member && shard.tree().hub() == Some(site_of(at));
        let tree = hub.and_then(|hub| self.first_of(hub)).map(|shard| shard.tree());
        let is_known =
            tree.is_some_and(|tree| !tree.is_lost(site_of(at)) && tree.times_lost(site_of(at)) == lives);
        if is_hub || is_member && is_known {
            self.operator.dooms.remove(&at);
            self.ledger.borrow_mut().shunned.remove(&at);
            self.counts.returns += 1;
        } else if standing == SiteStanding::Lost {
            for envoy in self.leaders(at) {
                let whom = (envoy.server, envoy.life);
                self.worlds[at].comes_from_abroad(self.now_us, whom, FromAbroad::Discard);
            }
        }
    }

    /// A site has more than its log can tell one that lacks it.
    pub(super) fn is_torn(&mut self, has: usize, whom: (HostId, u64), lacks: SiteId) {
        self.counts.torn += 1;
        self.worlds[has]
            .note("torn", format_args!("server {} cannot tell site {lacks} all that it lacks", whom.0));
        let Some((call, _)) = self.lines.with(has, whom, at_of(lacks)) else { return };
        if self.lines.calls[&call].hub == has {
            let is_hub = |shard: &Shard| shard.tree().streams().claim().is_none();
            let is_claimant = !self.first_of(has).is_some_and(is_hub);
            // Who is to be the hub, and has nobody who could be it in its place, is it without that one.
            if !is_claimant || self.plan.is_automatic() {
                self.operator.is_left_out = Some(at_of(lacks));
            }
            if is_claimant && self.plan.is_automatic() {
                self.operator.torn = Some(has);
            }
        } else {
            self.operator.torn = Some(has);
        }
        self.hang_up(call);
    }

    /// Whether there is one hub, and all sites are there.
    pub(super) fn is_in_order(&self) -> Result<(), String> {
        match (self.operator.dooms.first_key_value(), self.settled_hub()) {
            (Some((at, doom)), _) => Err(format!("site {} does not come back: {doom:?}", at + 1)),
            (None, None) => Err("nobody gets to be the hub".into()),
            _ => Ok(()),
        }
    }

    /// From now on everybody is there.
    pub(super) fn all_come_back(&mut self) {
        let dooms: Vec<(usize, Doom)> = self.operator.dooms.iter().map(|(at, doom)| (*at, *doom)).collect();
        for (at, mut doom) in dooms.into_iter().filter(|(_, doom)| !doom.is_back) {
            if doom.kept.is_some() {
                self.comes_back(at, &mut doom);
            }
            doom.is_back = true;
            self.operator.dooms.insert(at, doom);
        }
    }
}
