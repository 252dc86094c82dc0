//! The lines between the hub and the other sites, and the connections on them: leader to leader. What is said on one
//! arrives in order, when it is not cut; what was on its way is lost when it breaks.

use crate::ensemble::Chunks;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

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
    pub(super) server: u8,
    pub(super) life: u64,
    pub(super) term: u64,
}

/// A connection of a site's leader with the hub's.
#[derive(Debug)]
pub(super) struct Call {
    /// The site, by its index.
    pub(super) leaf: usize,
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
    pub(super) fn new(leaf: usize, at_leaf: End, at_hub: End) -> Self {
        Self {
            leaf,
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

    pub(super) fn has_ended(&self, bound: Bound) -> bool {
        self.is_over[bound as usize]
    }
}

/// All lines, and what is on them.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) calls: BTreeMap<u64, Call>,
    last_call: u64,
    /// Until when nothing passes.
    cuts: BTreeMap<(usize, Bound), u64>,
}

impl Lines {
    /// There is a new connection.
    pub(super) fn add(&mut self, call: Call) -> u64 {
        self.last_call += 1;
        self.calls.insert(self.last_call, call);
        self.last_call
    }

    /// Nothing passes on a line before then.
    pub(super) fn cut(&mut self, leaf: usize, bound: Bound, until_us: u64) {
        let until = self.cuts.entry((leaf, bound)).or_insert(0);
        *until = until_us.max(*until);
    }

    pub(super) fn cut_until(&self, leaf: usize, bound: Bound, now_us: u64) -> Option<u64> {
        self.cuts.get(&(leaf, bound)).copied().filter(|until| *until > now_us)
    }

    pub(super) fn mend(&mut self) {
        self.cuts.clear();
    }

    /// The connection of a leader of a site, as that knows it.
    pub(super) fn of_leaf(&self, leaf: usize, server: u8, life: u64) -> Option<u64> {
        let is_its = |call: &Call| {
            call.leaf == leaf && call.at_leaf.server == server && call.at_leaf.life == life && call.is_open
        };
        self.newest(|call| is_its(call) && !call.has_ended(Bound::ToLeaf))
    }

    /// The connection of a leader of the hub with a site, as that knows it.
    pub(super) fn of_hub(&self, leaf: usize, server: u8, life: u64) -> Option<u64> {
        let is_its =
            |call: &Call| call.leaf == leaf && call.at_hub.server == server && call.at_hub.life == life;
        self.newest(|call| is_its(call) && !call.has_ended(Bound::ToHub))
    }

    fn newest(&self, fits: impl Fn(&Call) -> bool) -> Option<u64> {
        self.calls.iter().rev().find(|(_, call)| fits(call)).map(|(number, _)| *number)
    }
}
