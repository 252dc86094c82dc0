//! What the leader knows of whom this server has heard of. How it is told: `replica/liveness.rs`.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_front::ConnectionId;
use stoa_partition::Now;

/// Messages that say who was heard of, whose arrival is waited for.
const IN_FLIGHT: usize = 8;

/// Clients learn after so much of their timeout that nobody may hear of them, which leaves them the rest
/// to find a server that has a leader; microseconds.
pub(crate) fn look_after_us(timeout_ms: i32) -> u64 {
    u64::try_from(timeout_ms).unwrap_or(0) * 1000 * 2 / 3
}

/// Whom readers below this server have heard of is told with the next message to the leader, which is then due in this
/// part of a tick: so a chain of readers makes little of it late.
const BELOW_PART: u32 = 8;

/// A reader, what it has said and of which position, and when it came.
type Held = (ConnectionId, (u64, Bytes), u64);

/// What readers have told of whom they have heard of, that the leader may not know yet.
#[derive(Default)]
pub(crate) struct HeardBelow {
    /// By reader: term and number of its message, and when it came.
    waiting: BTreeMap<ConnectionId, VecDeque<(u64, u64, u64)>>,
    /// Sessions that they have heard of, and when they have said that last: that may have been longer ago than what the
    /// leader knows, and be news to it.
    heard: BTreeMap<i64, u64>,
    /// What they have said of a position that is not applied here, in the order in which it came.
    held: VecDeque<Held>,
}

impl HeardBelow {
    /// It is heard when that position is applied. A reader says it again, in other words.
    pub(crate) fn hold(&mut self, reader: ConnectionId, said: (u64, Bytes), at_us: u64) {
        if self.held.iter().filter(|(of, ..)| *of == reader).count() < IN_FLIGHT {
            self.held.push_back((reader, said, at_us));
        }
    }

    /// The next that can be heard.
    pub(crate) fn take_held(&mut self, applied: u64) -> Option<Held> {
        let at = self.held.iter().position(|(_, (position, _), _)| *position <= applied)?;
        self.held.remove(at)
    }

    /// A reader has heard of this session.
    pub(crate) fn heard(&mut self, session: i64, now_us: u64) {
        self.heard.insert(session, now_us);
    }

    /// Sessions of which readers have said something since then. What they have said before the leader knows.
    pub(crate) fn heard_since(&mut self, since_us: u64) -> impl Iterator<Item = i64> {
        self.heard.retain(|_, at_us| *at_us >= since_us);
        self.heard.keys().copied()
    }

    /// The leader is this server: it knows all that was said here.
    pub(crate) fn all_is_known(&mut self) {
        self.heard.clear();
    }

    /// Such a message has come.
    pub(crate) fn came(&mut self, reader: ConnectionId, term: u64, number: u64, now_us: u64) {
        let waiting = self.waiting.entry(reader).or_default();
        if waiting.len() >= IN_FLIGHT {
            waiting.pop_front();
        }
        waiting.push_back((term, number, now_us));
    }

    /// Whether no reader waits to be told what the leader knows.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether readers have said nothing.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.heard.is_empty()
    }

    /// What has come by then is known to the leader: whom to tell, term and number.
    pub(crate) fn known(&mut self, until_us: u64) -> Vec<(ConnectionId, u64, u64)> {
        let mut known = Vec::new();
        self.waiting.retain(|reader, waiting| {
            while let Some((term, number, _)) = waiting.pop_front_if(|(_, _, at_us)| *at_us <= until_us) {
                known.push((*reader, term, number));
            }
            !waiting.is_empty()
        });
        known
    }

    pub(crate) fn forget(&mut self, reader: ConnectionId) {
        self.waiting.remove(&reader);
        self.held.retain(|(of, ..)| *of != reader);
    }
}

/// What the leader knows of whom this server has heard of.
pub(crate) struct Liveness {
    /// The number of the last message that told the leader whom we have heard of, and when the next
    /// one is due.
    number: u64,
    pub(crate) due_us: u64,
    /// Up to when the leader knows whom we have heard of.
    pub(crate) known_until_us: u64,
    /// Such messages, and when they were sent.
    in_flight: VecDeque<(u64, u64)>,
    /// When this server last gave up a leader that did not listen any more.
    pub(crate) forgotten_us: u64,
}

impl Liveness {
    pub(crate) fn new(now: Now) -> Self {
        let now_us = now.mono_us;
        Self {
            number: 0,
            due_us: now_us,
            known_until_us: now_us,
            in_flight: VecDeque::new(),
            forgotten_us: now_us,
        }
    }

    /// How long the client of a session may stay while this server only reads: there may be a leader
    /// that it could find, and that does not hear of it. `None` when it has to look for one now. A session
    /// that was last here is over, if there is such a leader, when its timeout has passed since that knew
    /// of this server's clients; of others it is not known when they were last heard of.
    pub(crate) fn stay(&self, was_here: bool, timeout_ms: i32, now: Now) -> Option<u64> {
        let over_us = self.known_until_us + u64::try_from(timeout_ms).unwrap_or(0) * 1000;
        let since_us = if was_here && over_us > now.mono_us { self.known_until_us } else { now.mono_us };
        Some(since_us + look_after_us(timeout_ms)).filter(|until| *until > now.mono_us)
    }

    /// This server leads: it hears of its clients itself.
    pub(crate) fn leads(&mut self, now: Now) {
        self.known_until_us = now.mono_us;
    }

    /// Somebody else leads: nobody else's messages arrive there.
    pub(crate) fn leader_changed(&mut self) {
        self.in_flight.clear();
    }

    /// A message is due to whoever leads. Returns its number, and since when to say who was heard of.
    pub(crate) fn begin_message(&mut self, tick_ms: u32, now_us: u64) -> u64 {
        self.due_us = now_us + u64::from(tick_ms) * 1000 / 2;
        if self.in_flight.len() >= IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.number += 1;
        self.in_flight.push_back((self.number, now_us));
        self.number
    }

    /// Somebody below this server has heard of clients: the leader is to know soon.
    pub(crate) fn has_news(&mut self, tick_ms: u32, now_us: u64) {
        self.due_us = self.due_us.min(now_us + u64::from(tick_ms) * 1000 / u64::from(BELOW_PART));
    }

    /// The leader has such a message.
    pub(crate) fn arrived(&mut self, number: u64) {
        while let Some((arrived, at_us)) = self.in_flight.pop_front_if(|(sent, _)| *sent <= number) {
            if arrived == number {
                self.known_until_us = at_us;
            }
        }
    }
}
