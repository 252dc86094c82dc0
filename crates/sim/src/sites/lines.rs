//! The lines between sites, and the connections on them: leader to leader, of a site's with the hub's, or with that of
//! who is to be the hub. What is said on one arrives in order, when it is not cut; what was on its way is lost when it
//! breaks.

use crate::ensemble::Chunks;
use crate::ensemble::HostId;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How soon it is looked at again whether something reaches a site that is cut off, microseconds: later than a silent
/// connection is taken for broken.
const ALONE_US: u64 = 3_000_000;

/// A direction of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bound {
    ToHub,
    ToLeaf,
}

/// What is said on a connection.
#[derive(Debug, Clone)]
pub(super) enum Letter {
    /// The hub takes the site in.
    Welcome,
    Message(Bytes),
    /// The hub's state, as it was at a position.
    State(u64, Chunks),
}

/// One end of a connection: a server in one of its lives, and the term that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) server: HostId,
    pub(super) life: u64,
    pub(super) term: u64,
}

/// A connection of a site's leader with the hub's.
#[derive(Debug)]
pub(super) struct Call {
    /// The site that has connected, and the one that is or was to be the hub, by their indexes.
    pub(super) leaf: usize,
    pub(super) hub: usize,
    pub(super) at_leaf: End,
    pub(super) at_hub: End,
    /// Whether the site knows that it is welcome.
    pub(super) is_open: bool,
    /// Each end has noticed that it is over.
    pub(super) is_over: [bool; 2],
    /// Since when a state that has come is being taken in.
    pub(super) joining_us: Option<u64>,
    letters: BTreeMap<Bound, VecDeque<Letter>>,
    /// When the last that was said arrives.
    arrives_us: BTreeMap<Bound, u64>,
}

impl Call {
    pub(super) fn new((leaf, at_leaf): (usize, End), (hub, at_hub): (usize, End)) -> Self {
        Self {
            leaf,
            hub,
            at_leaf,
            at_hub,
            is_open: false,
            is_over: [false; 2],
            joining_us: None,
            letters: BTreeMap::new(),
            arrives_us: BTreeMap::new(),
        }
    }

    /// Says something, which would arrive then. Returns when it does.
    pub(super) fn say(&mut self, bound: Bound, letter: Letter, at_us: u64) -> u64 {
        self.letters.entry(bound).or_default().push_back(letter);
        let arrives_us = self.arrives_us.entry(bound).or_insert(0);
        *arrives_us = at_us.max(*arrives_us);
        *arrives_us
    }

    /// The next that arrives.
    pub(super) fn take(&mut self, bound: Bound) -> Option<Letter> {
        self.letters.get_mut(&bound)?.pop_front()
    }

    pub(super) fn end(&self, bound: Bound) -> End {
        match bound {
            Bound::ToHub => self.at_hub,
            Bound::ToLeaf => self.at_leaf,
        }
    }

    /// The site from which something comes that goes that way, and where that goes.
    pub(super) fn between(&self, bound: Bound) -> (usize, usize) {
        match bound {
            Bound::ToHub => (self.leaf, self.hub),
            Bound::ToLeaf => (self.hub, self.leaf),
        }
    }

    /// The way to a site that has one of the ends.
    pub(super) fn bound_to(&self, at: usize) -> Bound {
        if at == self.hub { Bound::ToHub } else { Bound::ToLeaf }
    }

    /// Whether it is between two sites.
    pub(super) fn is_between(&self, one: usize, other: usize) -> bool {
        [(one, other), (other, one)].contains(&(self.leaf, self.hub))
    }

    pub(super) fn has_ended(&self, bound: Bound) -> bool {
        self.is_over[bound as usize]
    }
}

/// All lines, and what is on them.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) calls: BTreeMap<u64, Call>,
    last_call: u64,
    /// Until when nothing passes from a site to another one.
    cuts: BTreeMap<(usize, usize), u64>,
    /// Sites that are cut off from all others.
    alone: BTreeSet<usize>,
}

impl Lines {
    /// There is a new connection.
    pub(super) fn add(&mut self, call: Call) -> u64 {
        self.last_call += 1;
        self.calls.insert(self.last_call, call);
        self.last_call
    }

    /// Nothing passes from a site to another one before then.
    pub(super) fn cut(&mut self, from: usize, to: usize, until_us: u64) {
        let until = self.cuts.entry((from, to)).or_insert(0);
        *until = until_us.max(*until);
    }

    /// It passes again. Returns until when it would not have.
    pub(super) fn heal(&mut self, from: usize, to: usize) -> Option<u64> {
        self.cuts.remove(&(from, to))
    }

    /// A site is cut off from all others, or not any more.
    pub(super) fn cut_off(&mut self, at: usize, is_alone: bool) {
        if is_alone {
            self.alone.insert(at);
        } else {
            self.alone.remove(&at);
        }
    }

    /// Until when nothing passes from a site to another one; for who is cut off that is looked at soon again.
    pub(super) fn cut_until(&self, from: usize, to: usize, now_us: u64) -> Option<u64> {
        let is_alone = self.alone.contains(&from) || self.alone.contains(&to);
        let until = self.cuts.get(&(from, to)).copied();
        let until = if is_alone { until.max(Some(now_us + ALONE_US)) } else { until };
        until.filter(|until| *until > now_us)
    }

    pub(super) fn mend(&mut self) {
        self.cuts.clear();
        self.alone.clear();
    }

    /// The connection that a server has with another site, as it knows of it, and which way things go to that.
    pub(super) fn with(&self, at: usize, (server, life): (HostId, u64), to: usize) -> Option<(u64, Bound)> {
        let is_its = |call: &Call, bound: Bound| {
            let end = call.end(bound);
            (end.server, end.life) == (server, life) && !call.has_ended(bound)
        };
        let fits = |call: &Call| {
            let own = call.bound_to(at);
            call.is_between(at, to) && is_its(call, own) && (own == Bound::ToHub || call.is_open)
        };
        let (number, call) = self.calls.iter().rev().find(|(_, call)| fits(call))?;
        Some((*number, call.bound_to(to)))
    }
}
