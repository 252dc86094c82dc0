//! How the leader of a site finds the hub's, and what passes between the two: the server does it in `sites/mod.rs` and
//! `sites/link.rs`.

use super::lines::{Bound, Call, End, Letter};
use super::{HUB, HUB_AT, Passage, SiteRun};
use crate::ensemble::FromAbroad;
use stoa_core::SiteId;

/// How often it is looked whether leaders have to be connected, microseconds.
const TEND_US: u64 = 50_000;
/// How soon a leader that was refused tries again, at most, microseconds.
const RETRY_US: u64 = 200_000;
/// How long the way to the other site varies, microseconds.
const JITTER_US: u64 = 1000;
/// A line that is cut for so long is taken for broken, microseconds.
const SILENCE_US: u64 = 2_500_000;
/// How long it may take until a state that has come is a site's, microseconds.
const JOIN_PATIENCE_US: u64 = 3_000_000;
const JOIN_LOOK_US: u64 = 10_000;

fn site_of(at: usize) -> SiteId {
    at as SiteId + 1
}

impl SiteRun {
    /// Sees to it that there are the connections that there have to be.
    pub(super) fn tend(&mut self) {
        self.begin_sites();
        let over: Vec<u64> = self.lines.calls.keys().copied().filter(|call| self.is_stale(*call)).collect();
        for call in over {
            self.hang_up(call);
        }
        for leaf in 1..self.worlds.len() {
            if self.now_us < self.comes_us[leaf] && !self.is_healing {
                continue;
            }
            for envoy in self.leaders(leaf) {
                let end = End { server: envoy.server, life: envoy.life, term: envoy.term };
                let has_call = self.lines.of_leaf(leaf, end.server, end.life).is_some();
                let is_trying =
                    self.trying.get(&(leaf, end.server)).is_some_and(|until| *until > self.now_us);
                let is_cut = self.lines.cut_until(leaf, Bound::ToHub, self.now_us).is_some();
                if has_call || is_trying || is_cut {
                    continue;
                }
                let way_us = self.way_us(leaf);
                let again_us = self.now_us + 2 * way_us + self.rng.range(50_000, RETRY_US);
                self.trying.insert((leaf, end.server), again_us);
                self.after(way_us, Passage::Arrive(leaf, end));
            }
        }
        self.after(TEND_US, Passage::Tend);
    }

    fn begin_sites(&mut self) {
        for envoy in self.leaders(HUB_AT) {
            let shard = self.worlds[HUB_AT].shard(envoy.server);
            let is_none = shard.is_some_and(|shard| shard.tree().own_site().is_none());
            let begun = self.begun.insert((envoy.server, envoy.life), envoy.term);
            if is_none && begun != Some(envoy.term) {
                let whom = (envoy.server, envoy.life);
                self.after(1, Passage::Hear(HUB_AT, whom, FromAbroad::Begin(HUB)));
            }
        }
    }

    fn way_us(&mut self, leaf: usize) -> u64 {
        self.plan.ways_us[leaf - 1] + self.rng.below(JITTER_US)
    }

    /// Whether a server leads its site, in the life and the term in which it was connected.
    fn still_leads(&self, at: usize, end: End) -> bool {
        let is_it = |envoy: &crate::ensemble::Envoy| {
            (envoy.server, envoy.life, envoy.term) == (end.server, end.life, end.term)
        };
        self.leaders(at).iter().any(is_it)
    }

    fn is_stale(&self, number: u64) -> bool {
        let call = &self.lines.calls[&number];
        !self.still_leads(call.leaf, call.at_leaf) || !self.still_leads(HUB_AT, call.at_hub)
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
        let (leaf, end, is_open) = (call.leaf, call.end(bound), call.is_open);
        let is_forgotten = call.is_over == [true; 2];
        let (at, other) = if bound == Bound::ToHub { (HUB_AT, site_of(leaf)) } else { (leaf, HUB) };
        let newer = self.lines.calls.range(number + 1..).any(|(_, newer)| {
            newer.leaf == leaf
                && !newer.has_ended(bound)
                && (newer.end(bound).server, newer.end(bound).life) == (end.server, end.life)
                && (bound == Bound::ToHub || newer.is_open)
        });
        // Who has another connection by then has lost nothing.
        if !newer && (bound == Bound::ToHub || is_open) {
            let whom = (end.server, end.life);
            self.worlds[at].comes_from_abroad(self.now_us, whom, FromAbroad::Lost(other));
        }
        if is_forgotten {
            self.lines.calls.remove(&number);
        }
    }

    /// A leader of a site reaches the hub, and one of those there who believe that they lead.
    pub(super) fn arrive(&mut self, leaf: usize, at_leaf: End) {
        let mut leaders = self.leaders(HUB_AT);
        leaders.retain(|envoy| {
            let shard = self.worlds[HUB_AT].shard(envoy.server);
            shard.is_some_and(|shard| shard.tree().own_site() == Some(HUB))
        });
        if leaders.is_empty() || !self.still_leads(leaf, at_leaf) {
            return;
        }
        let envoy = leaders[self.rng.index(leaders.len())];
        let at_hub = End { server: envoy.server, life: envoy.life, term: envoy.term };
        let (Some(ours), Some(theirs)) =
            (self.worlds[HUB_AT].shard(at_hub.server), self.worlds[leaf].shard(at_leaf.server))
        else {
            return;
        };
        // Whose past does not fit is refused: it may be an old leader's.
        let known = ours.tree().streams().imported(site_of(leaf));
        let has_more = theirs.tree().streams().imported(HUB) > ours.applied();
        let is_behind = theirs.has_joined() && theirs.applied() < known;
        let is_empty = !theirs.has_joined() && known > 0;
        let before = self.lines.of_hub(leaf, at_hub.server, at_hub.life);
        let is_later = before.is_some_and(|before| self.lines.calls[&before].at_leaf.term > at_leaf.term);
        if has_more || is_behind || is_empty || is_later || !theirs.may_join() {
            return;
        }
        if let Some(before) = before {
            self.hang_up(before);
        }
        self.counts.calls += 1;
        let number = self.lines.add(Call::new(leaf, at_leaf, at_hub));
        let whom = (at_hub.server, at_hub.life);
        self.worlds[HUB_AT].comes_from_abroad(self.now_us, whom, FromAbroad::Connected(site_of(leaf)));
        self.post(number, Bound::ToLeaf, Letter::Welcome);
    }

    fn post(&mut self, number: u64, bound: Bound, letter: Letter) {
        let Some(leaf) = self.lines.calls.get(&number).map(|call| call.leaf) else { return };
        let mut at_us = self.now_us + self.way_us(leaf);
        if let Letter::State(..) = letter {
            at_us += self.rng.range(1000, 60_000);
        }
        let Some(call) = self.lines.calls.get_mut(&number) else { return };
        let at_us = call.say(bound, letter, at_us);
        self.at(at_us, Passage::Deliver(number, bound));
    }

    /// A server says something to another site.
    pub(super) fn say(&mut self, at: usize, (server, life): (u8, u64), to: SiteId, letter: Letter) {
        let (call, bound) = match at {
            HUB_AT => (self.lines.of_hub(usize::from(to) - 1, server, life), Bound::ToLeaf),
            _ => (self.lines.of_leaf(at, server, life), Bound::ToHub),
        };
        if let Some(call) = call {
            self.post(call, bound, letter);
        }
    }

    /// Something arrives on a connection, unless that is cut.
    pub(super) fn deliver(&mut self, number: u64, bound: Bound) {
        let Some(call) = self.lines.calls.get(&number).filter(|call| !call.has_ended(bound)) else { return };
        let (leaf, joining_us) = (call.leaf, call.joining_us);
        if let Some(until_us) = self.lines.cut_until(leaf, bound, self.now_us) {
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

    /// A state that came on a connection should be the site's by now.
    pub(super) fn joins(&mut self, number: u64) {
        if self.lines.calls.contains_key(&number) && !self.has_joined(number) {
            self.hang_up(number);
        }
    }

    fn hand_over(&mut self, number: u64, bound: Bound, letter: Letter) {
        let Some(call) = self.lines.calls.get_mut(&number) else { return };
        let (leaf, end) = (call.leaf, call.end(bound));
        let (at, from) = if bound == Bound::ToHub { (HUB_AT, site_of(leaf)) } else { (leaf, HUB) };
        let (whom, now_us) = ((end.server, end.life), self.now_us);
        match letter {
            Letter::Message(message) => {
                self.worlds[at].told_by(from, &message);
                self.worlds[at].comes_from_abroad(now_us, whom, FromAbroad::Message(from, message));
            }
            Letter::Welcome => {
                call.is_open = true;
                if !self.still_leads(leaf, end) {
                    return self.hang_up(number);
                }
                self.worlds[leaf].comes_from_abroad(now_us, whom, FromAbroad::Connected(HUB));
            }
            Letter::State(position, chunks) => {
                call.joining_us = Some(now_us);
                for (at, slice) in chunks.iter().skip(1).enumerate() {
                    let heard = FromAbroad::Slice(at == 0, slice.clone());
                    self.worlds[leaf].comes_from_abroad(now_us, whom, heard);
                }
                let ended = FromAbroad::StateEnded(site_of(leaf), HUB, position);
                self.worlds[leaf].comes_from_abroad(now_us, whom, ended);
                self.after(JOIN_PATIENCE_US, Passage::Joins(number));
            }
        }
    }

    /// A site has been away for longer than the log of a server of another one reaches back. Who operates that has
    /// another server lead.
    pub(super) fn strand(&mut self, at: usize, (server, life): (u8, u64), to: SiteId, why: &str) {
        self.counts.stranded += 1;
        self.given_up += u64::from(self.is_healing);
        let leaf = if at == HUB_AT { usize::from(to) - 1 } else { at };
        let call = match at {
            HUB_AT => self.lines.of_hub(leaf, server, life),
            _ => self.lines.of_leaf(leaf, server, life),
        };
        self.worlds[at].note("stranded", format_args!("server {server} cannot tell site {to} more: {why}"));
        call.into_iter().for_each(|call| self.hang_up(call));
        self.worlds[at].hand_over(server, None);
    }
}
