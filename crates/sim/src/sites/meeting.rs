//! How the leader of a site finds the hub's, and what passes between the two: the server does it in `sites/meet.rs` and
//! `sites/link.rs`. Whom a leader connects to, and what it is told, is the server's own logic.

use super::lines::{Bound, Call, End, Letter};
use super::{HUB, HUB_AT, Passage, SiteRun};
use crate::ensemble::FromAbroad;
use crate::ensemble::HostId;
use stoa_check::Checked;
use stoa_core::{Greeting, Shard, SiteAnswer, SiteId, answer_site, upper_site};

/// How often it is looked whether leaders have to be connected, microseconds.
const TEND_US: u64 = 50_000;
/// How soon a leader that was refused tries again, at most, microseconds.
const RETRY_US: u64 = 200_000;
/// How long the way to the other site varies, microseconds.
const JITTER_US: u64 = 1000;
/// So long whoever operates a site looks at what comes of another server's leading it, microseconds.
const HAND_OVER_US: u64 = 5_000_000;
/// A line that is cut for so long is taken for broken, microseconds.
pub(super) const SILENCE_US: u64 = 2_500_000;
/// How long it may take until a state that has come is a site's, microseconds.
const JOIN_PATIENCE_US: u64 = 3_000_000;
const JOIN_LOOK_US: u64 = 10_000;

pub(super) fn site_of(at: usize) -> SiteId {
    at as SiteId + 1
}

pub(super) fn at_of(site: SiteId) -> usize {
    usize::from(site) - 1
}

impl SiteRun {
    /// Sees to it that there are the connections that there have to be.
    pub(super) fn tend(&mut self) -> Checked {
        self.begin_sites();
        self.change_releases();
        let over: Vec<u64> = self.lines.calls.keys().copied().filter(|call| self.is_stale(*call)).collect();
        for call in over {
            self.hang_up(call);
        }
        for at in 0..self.worlds.len() {
            if self.now_us < self.comes_us[at] && !self.is_healing {
                continue;
            }
            for envoy in self.leaders(at) {
                let end = End { server: envoy.server, life: envoy.life, term: envoy.term };
                if self.stands_still(at, end.server) {
                    continue;
                }
                self.connect(at, end);
                if self.plan.is_operated() {
                    self.look_around(at, end);
                }
                if self.plan.is_automatic() {
                    self.tend_succession(at, end);
                }
            }
        }
        if self.plan.is_operated() {
            self.operate()?;
        }
        if self.plan.is_automatic() {
            self.somebody_is_the_hub()?;
        }
        self.after(TEND_US, Passage::Tend);
        Ok(())
    }

    /// A leader connects to that of the hub, if it has to.
    fn connect(&mut self, leaf: usize, end: End) {
        let Some(hub) = self.upper(leaf, end) else { return };
        let has_call = self.lines.with(leaf, (end.server, end.life), hub).is_some();
        let is_trying = self.trying.get(&(leaf, end.server)).is_some_and(|until| *until > self.now_us);
        let is_cut = self.lines.cut_until(leaf, hub, self.now_us).is_some();
        if has_call || is_trying || is_cut {
            return;
        }
        let way_us = self.way_us(leaf, hub);
        let again_us = self.now_us + 2 * way_us + self.rng.range(50_000, RETRY_US);
        self.trying.insert((leaf, end.server), again_us);
        self.after(way_us, Passage::Arrive(leaf, end, hub));
    }

    fn begin_sites(&mut self) {
        for envoy in self.leaders(HUB_AT) {
            let shard = self.worlds[HUB_AT].shard(envoy.server);
            let is_none = shard.is_some_and(|shard| shard.tree().own_site().is_none());
            let begun = self.begun.insert((envoy.server, envoy.life), envoy.term);
            if is_none && begun != Some(envoy.term) && self.founds() {
                let whom = (envoy.server, envoy.life);
                self.after(1, Passage::Hear(HUB_AT, whom, FromAbroad::Begin(HUB, self.plan.listed())));
            }
        }
    }

    /// The site that a server of a site is to be connected to, if it leads that: none where that is the hub.
    pub(super) fn upper(&self, at: usize, end: End) -> Option<usize> {
        let shard = self.worlds[at].shard(end.server)?;
        let believed = self.mind(at, end).believed;
        // By the settings the first one is the hub, which nobody else is before it has begun.
        let upper = upper_site(shard, believed, || Some(HUB)).map(at_of);
        upper.filter(|upper| *upper != at)
    }

    /// The time that something takes from a site to another one. Two that are not the hub of the first reign are as far
    /// away from each other as the farther one of them is from that.
    pub(super) fn way_us(&mut self, one: usize, other: usize) -> u64 {
        let from_first = |at: usize| at.checked_sub(1).map_or(0, |at| self.plan.ways_us[at]);
        from_first(one).max(from_first(other)) + self.rng.below(JITTER_US)
    }

    /// Whether a server leads its site, in the life and the term in which it was connected.
    pub(super) fn still_leads(&self, at: usize, end: End) -> bool {
        let is_it = |envoy: &crate::ensemble::Envoy| {
            (envoy.server, envoy.life, envoy.term) == (end.server, end.life, end.term)
        };
        self.leaders(at).iter().any(is_it)
    }

    fn is_stale(&self, number: u64) -> bool {
        let call = &self.lines.calls[&number];
        let lead = self.still_leads(call.leaf, call.at_leaf) && self.still_leads(call.hub, call.at_hub);
        !lead
            || self.upper(call.leaf, call.at_leaf) != Some(call.hub)
            || self.upper(call.hub, call.at_hub).is_some()
    }

    /// A connection ends: at once where it was ended, later at the other side.
    pub(super) fn hang_up(&mut self, number: u64) {
        for bound in [Bound::ToLeaf, Bound::ToHub] {
            let after = self.rng.below(200_000);
            self.after(after, Passage::Notice(number, bound));
        }
    }

    /// One end of a connection notices that it is over.
    pub(super) fn notice(&mut self, number: u64, bound: Bound) {
        let Some(call) = self.lines.calls.get_mut(&number) else { return };
        if std::mem::replace(&mut call.is_over[bound as usize], true) {
            return;
        }
        let (end, is_open) = (call.end(bound), call.is_open);
        let is_forgotten = call.is_over == [true; 2];
        let (other, at) = call.between(bound);
        let has_newer = self.lines.calls.range(number + 1..).any(|(_, newer)| {
            let own = newer.bound_to(at);
            newer.is_between(at, other)
                && !newer.has_ended(own)
                && (newer.end(own).server, newer.end(own).life) == (end.server, end.life)
                && (own == Bound::ToHub || newer.is_open)
        });
        // Who has another connection by then has lost nothing.
        if !has_newer && (bound == Bound::ToHub || is_open) {
            let whom = (end.server, end.life);
            self.worlds[at].comes_from_abroad(self.now_us, whom, FromAbroad::Lost(site_of(other)));
        }
        if is_forgotten {
            self.lines.calls.remove(&number);
        }
    }

    /// A leader of a site reaches the hub, or who is to be it, and one of those there who believe that they lead.
    pub(super) fn arrive(&mut self, leaf: usize, at_leaf: End, hub: usize) {
        let Some(at_hub) = self.someone_leads(hub) else { return };
        if !self.still_leads(leaf, at_leaf) {
            return;
        }
        let (Some(ours), Some(theirs)) =
            (self.worlds[hub].shard(at_hub.server), self.worlds[leaf].shard(at_leaf.server))
        else {
            return;
        };
        if !theirs.may_join() {
            return;
        }
        let greeting = Greeting::of(theirs, false);
        let answer = answer_site(ours, site_of(leaf), &greeting);
        let met = (hub, (at_hub.server, at_hub.life));
        if answer == SiteAnswer::Connected && !self.compare_levels((leaf, &greeting), met, answer) {
            return;
        }
        let (Some(ours), Some(theirs)) =
            (self.worlds[hub].shard(at_hub.server), self.worlds[leaf].shard(at_leaf.server))
        else {
            return;
        };
        if answer != SiteAnswer::Connected {
            return self.answer((leaf, at_leaf), (hub, at_hub), &greeting);
        }
        let before = self.lines.with(hub, (at_hub.server, at_hub.life), leaf).map(|(call, _)| call);
        let is_later = before.is_some_and(|before| {
            let before = &self.lines.calls[&before];
            before.hub == hub && before.at_leaf.term > at_leaf.term
        });
        if !do_pasts_fit((leaf, theirs), (hub, ours)) || is_later {
            return;
        }
        if let Some(before) = before {
            self.hang_up(before);
        }
        self.counts.calls += 1;
        let number = self.lines.add(Call::new((leaf, at_leaf), (hub, at_hub)));
        let whom = (at_hub.server, at_hub.life);
        self.worlds[hub].comes_from_abroad(self.now_us, whom, FromAbroad::Connected(site_of(leaf)));
        self.post(number, Bound::ToLeaf, Letter::Welcome);
    }

    /// One of those that believe to lead a site that has joined the others.
    pub(super) fn someone_leads(&mut self, at: usize) -> Option<End> {
        let mut leaders = self.leaders(at);
        leaders.retain(|envoy| {
            let shard = self.worlds[at].shard(envoy.server);
            shard.is_some_and(|shard| shard.tree().own_site() == Some(site_of(at)) && shard.has_joined())
        });
        leaders.retain(|envoy| !self.stands_still(at, envoy.server));
        if leaders.is_empty() {
            return None;
        }
        let envoy = leaders[self.rng.index(leaders.len())];
        Some(End { server: envoy.server, life: envoy.life, term: envoy.term })
    }

    fn post(&mut self, number: u64, bound: Bound, letter: Letter) {
        let Some((leaf, hub)) = self.lines.calls.get(&number).map(|call| (call.leaf, call.hub)) else {
            return;
        };
        let mut at_us = self.now_us + self.way_us(leaf, hub);
        if let Letter::State(..) = letter {
            at_us += self.rng.range(1000, 60_000);
        }
        let Some(call) = self.lines.calls.get_mut(&number) else { return };
        let at_us = call.say(bound, letter, at_us);
        self.at(at_us, Passage::Deliver(number, bound));
    }

    /// A server says something to another site.
    pub(super) fn say(&mut self, at: usize, (server, life): (HostId, u64), to: SiteId, letter: Letter) {
        if let Some((call, bound)) = self.lines.with(at, (server, life), at_of(to)) {
            self.post(call, bound, letter);
        }
    }

    /// Something arrives on a connection, unless that is cut.
    pub(super) fn deliver(&mut self, number: u64, bound: Bound) {
        let Some(call) = self.lines.calls.get(&number).filter(|call| !call.has_ended(bound)) else { return };
        let ((from, to), joining_us) = (call.between(bound), call.joining_us);
        if let Some(until_us) = self.lines.cut_until(from, to, self.now_us) {
            let silent_us = self.now_us + SILENCE_US;
            if until_us > silent_us {
                self.at(silent_us, Passage::Notice(number, Bound::ToLeaf));
                self.at(silent_us, Passage::Notice(number, Bound::ToHub));
            }
            return self.at(until_us, Passage::Deliver(number, bound));
        }
        if bound == Bound::ToLeaf && joining_us.is_some() && !self.has_joined(number) {
            // Nothing else is read before.
            return self.after(JOIN_LOOK_US, Passage::Deliver(number, bound));
        }
        let letter = self.lines.calls.get_mut(&number).and_then(|call| call.take(bound));
        if let Some(letter) = letter {
            self.hand_over(number, bound, letter);
        }
    }

    fn has_joined(&self, number: u64) -> bool {
        let call = &self.lines.calls[&number];
        let shard = self.worlds[call.leaf].shard(call.at_leaf.server);
        shard.is_some_and(|shard| shard.has_joined())
    }

    /// A server has one connection to the hub: it tries again only when it has given up before. So a welcome that comes when
    /// it is welcome by a later try already is of no use, and one that comes ends earlier ones. Returns whether it is of no
    /// use.
    fn has_other_links(&mut self, number: u64) -> bool {
        let call = &self.lines.calls[&number];
        let is_other = |(at, other): (&u64, &Call)| {
            let is_its = (other.leaf, other.hub) == (call.leaf, call.hub)
                && (other.at_leaf.server, other.at_leaf.life) == (call.at_leaf.server, call.at_leaf.life);
            (*at != number && is_its && other.is_open && !other.has_ended(Bound::ToLeaf)).then_some(*at)
        };
        let others: Vec<u64> = self.lines.calls.iter().filter_map(is_other).collect();
        if others.iter().any(|other| *other > number) {
            self.lines.calls.get_mut(&number).expect("it has just come").is_open = false;
            self.hang_up(number);
            return true;
        }
        others.into_iter().for_each(|other| self.hang_up(other));
        false
    }

    /// A state that came on a connection should be the site's by now.
    pub(super) fn joins(&mut self, number: u64) {
        if self.lines.calls.contains_key(&number) && !self.has_joined(number) {
            self.hang_up(number);
        }
    }

    fn hand_over(&mut self, number: u64, bound: Bound, letter: Letter) {
        let Some(call) = self.lines.calls.get_mut(&number) else { return };
        let (end, (from, at)) = (call.end(bound), call.between(bound));
        let (from, whom, now_us) = (site_of(from), (end.server, end.life), self.now_us);
        match letter {
            Letter::Message(message) => {
                self.worlds[at].told_by(from, &message);
                self.worlds[at].comes_from_abroad(now_us, whom, FromAbroad::Message(from, message));
            }
            Letter::Welcome => {
                call.is_open = true;
                if !self.still_leads(at, end) {
                    return self.hang_up(number);
                }
                if self.has_other_links(number) {
                    return;
                }
                self.worlds[at].comes_from_abroad(now_us, whom, FromAbroad::Connected(from));
            }
            Letter::State(position, chunks) => {
                call.joining_us = Some(now_us);
                let partitions = self.worlds[at_of(from)].divided();
                for (place, slice) in chunks.iter().skip(1).enumerate() {
                    let heard = FromAbroad::Slice(if place == 0 { partitions } else { 0 }, slice.clone());
                    self.worlds[at].comes_from_abroad(now_us, whom, heard);
                }
                let ended = FromAbroad::StateEnded(site_of(at), from, position);
                self.worlds[at].comes_from_abroad(now_us, whom, ended);
                self.after(JOIN_PATIENCE_US, Passage::Joins(number));
            }
        }
    }

    /// A site has been away for longer than the log of a server of another one reaches back. Who operates that has
    /// the next server lead, whose log may, and sees for a while what comes of it: a hub has to lead for some time before
    /// it may do anything. Where all of them have led it is as with what no log has at all.
    pub(super) fn strand(&mut self, at: usize, (server, life): (HostId, u64), to: SiteId, why: &str) {
        self.counts.stranded += 1;
        self.given_up += u64::from(self.is_healing);
        self.worlds[at].note("stranded", format_args!("server {server} cannot tell site {to} more: {why}"));
        let (now_us, ids) = (self.now_us, self.worlds[at].member_ids());
        // Sites that have lost touch with each other wait for who operates them, so long nobody may be the hub.
        self.absences.since_us = now_us;
        let (last_us, times) = self.operator.handed_over.get(&at).copied().unwrap_or_default();
        if self.plan.is_automatic() && times >= ids.len() {
            // None of them can.
            self.operator.handed_over.remove(&at);
            return self.is_torn(at, (server, life), to);
        }
        let call = self.lines.with(at, (server, life), at_of(to));
        call.into_iter().for_each(|(call, _)| self.hang_up(call));
        if last_us == 0 || now_us > last_us + HAND_OVER_US {
            self.operator.handed_over.insert(at, (now_us, times + 1));
            let place = ids.iter().position(|id| *id == server).unwrap_or_default();
            let next = ids[(place + 1) % ids.len()];
            self.worlds[at].hand_over(server, Some(next).filter(|next| *next != server));
        }
    }
}

/// Whether the pasts of a site and of the hub fit together: else one of them may be an old leader's.
fn do_pasts_fit((leaf, theirs): (usize, &Shard), (hub, ours): (usize, &Shard)) -> bool {
    let known = ours.tree().streams().imported(site_of(leaf));
    let is_followed = theirs.tree().hub() == Some(site_of(hub));
    let has_more = is_followed && theirs.tree().streams().imported(site_of(hub)) > log_applied(ours);
    let is_behind = theirs.has_joined() && log_applied(theirs) < known;
    let is_empty = !theirs.has_joined() && known > 0;
    !has_more && !is_behind && !is_empty
}

/// Up to which position of its log a server has applied everything. Sites name those, and with several partitions each of
/// these counts otherwise.
fn log_applied(shard: &Shard) -> u64 {
    shard.site_status().map_or_else(|| shard.applied(), |status| status.applied)
}
