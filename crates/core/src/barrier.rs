//! Barriers: what follows waits until a timeline has been applied up to some position.

use crate::carrier::Carrier;
use crate::connection::ConnectionId;
use crate::placement::FIRST;
use crate::server::Server;
use crate::word::Word;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Questions where the timeline ends, for those who must not see anything older than that.
pub(crate) struct Barriers {
    next: u64,
    waiting: VecDeque<Barrier>,
}

struct Barrier {
    id: u64,
    /// When it was last asked; `None` when it was not yet.
    asked_us: Option<u64>,
    /// The answer.
    position: Option<u64>,
    connections: Vec<ConnectionId>,
    /// The first partition waits too, for those who come back to this server.
    is_for_first: bool,
}

impl Barriers {
    /// `next` makes the questions of different servers differ.
    pub(crate) fn new(next: u64) -> Self {
        Self { next, waiting: VecDeque::new() }
    }

    /// Whether the answer to this question has not come, or not been reached.
    pub(crate) fn is_waiting(&self, barrier: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.id == barrier)
    }

    /// All connections are closed.
    pub(crate) fn forget_connections(&mut self) {
        self.waiting.retain_mut(|barrier| {
            barrier.connections.clear();
            barrier.is_for_first
        });
    }
}

/// Asks where the log ends.
fn ask(carrier: &mut Option<Box<Carrier>>, words: &mut VecDeque<(u8, Word)>, question: u64) {
    match carrier {
        Some(carrier) => carrier.ask(FIRST, question),
        None => words.push_back((FIRST, Word::Ask(question))),
    }
}

impl Server {
    /// A question where the timeline ends, on behalf of a connection; returns its number.
    pub(crate) fn barrier(&mut self, connection: ConnectionId) -> u64 {
        let barrier = self.next_barrier();
        barrier.connections.push(connection);
        barrier.id
    }

    /// The same on behalf of the first partition, which is told when that is applied.
    pub(crate) fn catch_up_for_first(&mut self) {
        self.next_barrier().is_for_first = true;
        self.pump();
    }

    /// The question that is asked next.
    fn next_barrier(&mut self) -> &mut Barrier {
        let barriers = &mut self.ensemble.barriers;
        if barriers.waiting.back().is_none_or(|last| last.asked_us.is_some()) {
            barriers.next += 1;
            let (id, connections) = (barriers.next, Vec::new());
            let barrier = Barrier { id, asked_us: None, position: None, connections, is_for_first: false };
            barriers.waiting.push_back(barrier);
        }
        let last = barriers.waiting.len() - 1;
        &mut barriers.waiting[last]
    }

    /// A barrier that falls when this position has been applied.
    pub(crate) fn barrier_at(&mut self, connection: ConnectionId, position: u64) -> u64 {
        let barriers = &mut self.ensemble.barriers;
        barriers.next += 1;
        let (id, asked_us) = (barriers.next, Some(self.now.mono_us));
        let connections = [connection].into();
        let position = Some(position);
        barriers.waiting.push_back(Barrier { id, asked_us, position, connections, is_for_first: false });
        id
    }

    /// Asks what was not asked yet.
    pub(crate) fn ask_barriers(&mut self) {
        let now_us = self.now.mono_us;
        let waiting = self.ensemble.barriers.waiting.iter_mut();
        for barrier in waiting.filter(|barrier| barrier.asked_us.is_none()) {
            barrier.asked_us = Some(now_us);
            ask(&mut self.carrier, &mut self.words, barrier.id);
        }
    }

    /// The question or its answer may have been lost.
    pub(crate) fn ask_barriers_again(&mut self) {
        let patience_us = u64::from(self.config.heartbeat_ms.max(1)) * 2000;
        let now_us = self.now.mono_us;
        for barrier in &mut self.ensemble.barriers.waiting {
            if barrier.position.is_none() && barrier.asked_us.is_some_and(|at| at + patience_us <= now_us) {
                barrier.asked_us = Some(now_us);
                ask(&mut self.carrier, &mut self.words, barrier.id);
            }
        }
    }

    /// The answer to a question.
    pub(crate) fn barrier_answered(&mut self, id: u64, position: u64) {
        let asked = self.ensemble.barriers.waiting.iter_mut().find(|barrier| barrier.id == id);
        if let Some(barrier) = asked {
            barrier.position = Some(position);
            self.release_barriers();
        }
    }

    /// Lets those go that have waited for what is applied now.
    pub(crate) fn release_barriers(&mut self) {
        let applied = self.replica.applied.0;
        let mut at = 0;
        while let Some(barrier) = self.ensemble.barriers.waiting.get(at) {
            if barrier.position.is_none_or(|position| position > applied) {
                at += 1;
                continue;
            }
            let Some(done) = self.ensemble.barriers.waiting.remove(at) else { break };
            if done.is_for_first {
                let stamp = Box::new(self.stamp.clone());
                self.say(FIRST, Word::CaughtUp(stamp));
            }
            for connection in done.connections {
                self.drain(connection);
            }
        }
    }
}
