//! Barriers: what follows waits until a timeline has been applied up to some position.

use crate::connection::ConnectionId;
use crate::server::Server;
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

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl Server {
    /// A question where the timeline ends, on behalf of a connection; returns its number.
    pub(crate) fn barrier(&mut self, connection: ConnectionId) -> u64 {
        let barriers = &mut self.ensemble.barriers;
        if let Some(last) = barriers.waiting.back_mut().filter(|last| last.asked_us.is_none()) {
            last.connections.push(connection);
            return last.id;
        }
        barriers.next += 1;
        let (id, connections) = (barriers.next, [connection].into());
        barriers.waiting.push_back(Barrier { id, asked_us: None, position: None, connections });
        id
    }

    /// A barrier that falls when this position has been applied.
    pub(crate) fn barrier_at(&mut self, connection: ConnectionId, position: u64) -> u64 {
        let barriers = &mut self.ensemble.barriers;
        barriers.next += 1;
        let (id, asked_us) = (barriers.next, Some(self.now.mono_us));
        let connections = [connection].into();
        barriers.waiting.push_back(Barrier { id, asked_us, position: Some(position), connections });
        id
    }

    /// Asks what was not asked yet.
    pub(crate) fn ask_barriers(&mut self) {
        let now_us = self.now.mono_us;
        let waiting = self.ensemble.barriers.waiting.iter_mut();
        for barrier in waiting.filter(|barrier| barrier.asked_us.is_none()) {
            barrier.asked_us = Some(now_us);
            self.replica.group().read(barrier.id);
        }
    }

    /// The question or its answer may have been lost.
    pub(crate) fn ask_barriers_again(&mut self) {
        let patience_us = u64::from(self.config.heartbeat_ms.max(1)) * 2000;
        let now_us = self.now.mono_us;
        for barrier in &mut self.ensemble.barriers.waiting {
            if barrier.position.is_none() && barrier.asked_us.is_some_and(|at| at + patience_us <= now_us) {
                barrier.asked_us = Some(now_us);
                self.replica.group().read(barrier.id);
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
            let done = self.ensemble.barriers.waiting.remove(at);
            for connection in done.into_iter().flat_map(|barrier| barrier.connections) {
                self.drain(connection);
            }
        }
    }
}
