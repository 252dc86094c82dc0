//! Counters and latency histograms.

use stoa_partition::{Histogram, Proposals, Sizes};
use stoa_wire::{EventKind, Opcode};

/// How many watchers were told of each change of which there was somebody to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watchers {
    /// Of znodes that came to be.
    pub created: Histogram,
    /// Of znodes that are gone.
    pub deleted: Histogram,
    /// Of data that is another.
    pub changed: Histogram,
    /// Of lists of children that are others.
    pub children: Histogram,
}

impl Watchers {
    /// `count` watchers were told of a change.
    pub(crate) fn told(&mut self, kind: EventKind, count: u64) {
        let told = match kind {
            EventKind::Created => &mut self.created,
            EventKind::Deleted => &mut self.deleted,
            EventKind::DataChanged => &mut self.changed,
            EventKind::ChildrenChanged => &mut self.children,
            _ => return,
        };
        told.record(count, 1);
    }
}

/// Counts of one opcode.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpStats {
    /// From the arrival of the request's bytes to the writing of its reply.
    pub latency: Histogram,
    /// Replies with an error.
    pub errors: u64,
}

/// What the server counts about its work.
#[derive(Debug, Clone)]
pub struct Stats {
    ops: [OpStats; SLOTS],
    /// Requests answered since the last reset.
    pub answered: u64,
    /// Least latency, microseconds.
    pub latency_min_us: u64,
    /// Largest latency, microseconds.
    pub latency_max_us: u64,
    /// Sum of latencies, microseconds.
    pub latency_sum_us: u64,
    /// Frames received.
    pub packets_received: u64,
    /// Frames sent.
    pub packets_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Handshakes.
    pub connection_requests: u64,
    /// Those of them that brought a session.
    pub sessions_brought: u64,
    /// At the leader: sessions that other servers asked for, because their clients had brought them.
    pub sessions_asked_for: u64,
    /// Connections refused by a limit.
    pub connections_rejected: u64,
    /// Connections closed by us because of what the client did.
    pub connections_dropped: u64,
    /// Sessions expired.
    pub sessions_expired: u64,
    /// Authentications that failed.
    pub auth_failed: u64,
    /// Frames over the limit.
    pub frames_too_large: u64,
    /// Watch notifications sent.
    pub watch_events: u64,
    /// Bytes of them, without the lengths before them: ZooKeeper counts so.
    pub watch_bytes: u64,
    /// How many watchers were told of each change.
    pub watchers: Watchers,
    /// Answers to requests whose connection had ended meanwhile.
    pub stale_replies: u64,
    /// Updates that this server has proposed to others, as their leader.
    pub proposals: Proposals,
    /// Updates that it has applied as their leader.
    pub led_updates: u64,
    /// Updates that it has applied while another one led.
    pub followed_updates: u64,
    /// From the preparing of an update, by the leader's clock, until it was applied here, by this server's:
    /// microseconds, in steps of a millisecond. Of those alone that have come since the start.
    pub propagation: Histogram,
    /// At the leader of others: from the proposal of an entry until it was applied, which is when a majority
    /// has it.
    pub agreement: Histogram,
    /// Entries handed to the log.
    pub log_entries: u64,
    /// Updates that this server has prepared and handed to the log.
    pub log_updates: u64,
    /// Bytes handed to the log.
    pub log_bytes: u64,
    /// Times that the log had no room.
    pub log_refusals: u64,
    /// Containers deleted.
    pub containers_deleted: u64,
    /// Times that a leader was found, be it the one before or this server.
    pub leaders_found: u64,
    /// Of replies.
    pub reply_bytes: Sizes,
}

const SLOTS: usize = 48;

fn slot(opcode: Opcode) -> usize {
    match opcode as i32 {
        code @ 0..=22 => code as usize,
        code @ 100..=107 => (code - 100 + 24) as usize,
        -10 => 40,
        _ => 41,
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            ops: [OpStats::default(); SLOTS],
            answered: 0,
            latency_min_us: u64::MAX,
            latency_max_us: 0,
            latency_sum_us: 0,
            packets_received: 0,
            packets_sent: 0,
            bytes_received: 0,
            bytes_sent: 0,
            connection_requests: 0,
            sessions_brought: 0,
            sessions_asked_for: 0,
            connections_rejected: 0,
            connections_dropped: 0,
            sessions_expired: 0,
            auth_failed: 0,
            frames_too_large: 0,
            watch_events: 0,
            watch_bytes: 0,
            watchers: Watchers::default(),
            stale_replies: 0,
            proposals: Proposals::default(),
            led_updates: 0,
            followed_updates: 0,
            propagation: Histogram::default(),
            agreement: Histogram::default(),
            log_entries: 0,
            log_updates: 0,
            log_bytes: 0,
            log_refusals: 0,
            containers_deleted: 0,
            leaders_found: 0,
            reply_bytes: Sizes::default(),
        }
    }
}

impl Stats {
    /// The counts of one opcode.
    #[must_use]
    pub fn op(&self, opcode: Opcode) -> &OpStats {
        &self.ops[slot(opcode)]
    }

    /// Forgets latencies and packet counts, as the word `srst` asks.
    pub fn reset(&mut self) {
        self.answered = 0;
        self.latency_min_us = u64::MAX;
        self.latency_max_us = 0;
        self.latency_sum_us = 0;
        self.packets_received = 0;
        self.packets_sent = 0;
        self.reply_bytes = Sizes::default();
    }

    pub(crate) fn error(&mut self, opcode: Opcode) {
        self.ops[slot(opcode)].errors += 1;
    }

    pub(crate) fn latency(&mut self, opcode: Opcode, us: u64, count: u64) {
        self.ops[slot(opcode)].latency.record(us, count);
        self.answered += count;
        self.latency_min_us = self.latency_min_us.min(us);
        self.latency_max_us = self.latency_max_us.max(us);
        self.latency_sum_us += us * count;
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.packets_sent += 1;
        self.bytes_sent += bytes as u64;
        self.reply_bytes.note(bytes);
    }
}

/// Reads answered since the driver last told the time: their latency is known when it does.
#[derive(Debug)]
pub(crate) struct Turn {
    counts: [u32; SLOTS],
    /// One bit for each count that is not 0.
    used: u64,
}

impl Default for Turn {
    fn default() -> Self {
        Self { counts: [0; SLOTS], used: 0 }
    }
}

impl Turn {
    #[inline]
    pub(crate) fn answered(&mut self, opcode: Opcode) {
        let slot = slot(opcode);
        self.counts[slot] += 1;
        self.used |= 1 << slot;
    }

    pub(crate) fn close(&mut self, us: u64, stats: &mut Stats) {
        let mut total = 0;
        while self.used != 0 {
            let slot = self.used.trailing_zeros() as usize;
            self.used &= self.used - 1;
            let count = u64::from(core::mem::take(&mut self.counts[slot]));
            stats.ops[slot].latency.record(us, count);
            total += count;
        }
        if total > 0 {
            stats.answered += total;
            stats.latency_min_us = stats.latency_min_us.min(us);
            stats.latency_max_us = stats.latency_max_us.max(us);
            stats.latency_sum_us += us * total;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_has_a_slot_of_its_own() {
        let mut slots: Vec<_> = Opcode::ALL.iter().map(|&op| slot(op)).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), Opcode::ALL.len());
        assert!(slots.iter().all(|&s| s < SLOTS));
    }
}
