//! What the sessions of a probe have met, phase by phase.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::bench::clock::{Clock, Nanos};
use crate::bench::record::latency_histogram;
use crate::bench::report::{error_name, latency_json};

/// Why a session has no connection any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The connection ended or was silent for too long; the session may live.
    Connection,
    /// A server said that the session has expired.
    Session,
}

/// Collects what all sessions meet.
#[derive(Debug)]
pub(super) struct Recorder {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last acknowledgement, or the start.
    acknowledged: Nanos,
    phase: Phase,
    all: Phase,
}

#[derive(Debug)]
struct Phase {
    name: String,
    start: Nanos,
    writes: u64,
    first_write: Option<Nanos>,
    gap: Gap,
    latencies: Histogram<u64>,
    errors: BTreeMap<i32, u64>,
    unknown: u64,
    connections_lost: u64,
    sessions_lost: u64,
}

/// A time without an acknowledgement.
#[derive(Debug, Clone, Copy)]
struct Gap {
    start: Nanos,
    len: Nanos,
}

impl Recorder {
    /// A recorder whose clock begins to run.
    pub(super) fn start() -> Self {
        let state = State { acknowledged: 0, phase: Phase::new("setup", 0), all: Phase::new("all", 0) };
        Self { clock: Clock::start(), state: Mutex::new(state) }
    }

    /// The time.
    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// A write was acknowledged that was sent at `sent` and should have been at `due`.
    pub(super) fn acknowledged(&self, sent: Nanos, due: Nanos) {
        let mut state = self.lock();
        // Read under the lock, so that times come in order.
        let now = self.clock.now();
        let gap = Gap { start: state.acknowledged, len: now - state.acknowledged };
        state.acknowledged = now;
        for phase in state.both() {
            phase.writes += 1;
            phase.gap = phase.gap.longer(gap);
            phase.latencies.saturating_record(now - due.min(now));
            if sent >= phase.start {
                phase.first_write.get_or_insert(now);
            }
        }
    }

    /// A write was answered with an error.
    pub(super) fn refused(&self, code: i32) {
        for phase in self.lock().both() {
            *phase.errors.entry(code).or_default() += 1;
        }
    }

    /// A connection was lost with this many writes without a reply.
    pub(super) fn lost(&self, loss: Loss, unknown: usize) {
        for phase in self.lock().both() {
            phase.unknown += unknown as u64;
            match loss {
                Loss::Connection => phase.connections_lost += 1,
                Loss::Session => phase.sessions_lost += 1,
            }
        }
    }

    /// Ends the phase under way and begins another one; reports the one that ended. What was before the
    /// first phase with a name is preparation and does not count.
    pub(super) fn mark(&self, name: &str) -> Value {
        let mut state = self.lock();
        let now = self.clock.now();
        let report = state.phase.json(now, state.acknowledged);
        if state.all.start == 0 {
            state.all = Phase::new("all", now);
            state.acknowledged = now;
        }
        state.phase = Phase::new(name, now);
        report
    }

    /// The phase under way.
    pub(super) fn look(&self) -> Value {
        let state = self.lock();
        state.phase.json(self.clock.now(), state.acknowledged)
    }

    /// The whole time.
    pub(super) fn all(&self) -> Value {
        let state = self.lock();
        // Sessions that are being closed make no gap.
        state.all.json(state.acknowledged.max(state.all.start), state.acknowledged)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts stay valid wherever a thread stopped.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn both(&mut self) -> [&mut Phase; 2] {
        [&mut self.phase, &mut self.all]
    }
}

impl Gap {
    fn longer(self, other: Self) -> Self {
        if other.len > self.len { other } else { self }
    }
}

impl Phase {
    fn new(name: &str, start: Nanos) -> Self {
        Self {
            name: name.to_owned(),
            start,
            writes: 0,
            first_write: None,
            gap: Gap { start, len: 0 },
            latencies: latency_histogram(),
            errors: BTreeMap::new(),
            unknown: 0,
            connections_lost: 0,
            sessions_lost: 0,
        }
    }

    /// The report at `now`, when the last acknowledgement was at `acknowledged`.
    fn json(&self, now: Nanos, acknowledged: Nanos) -> Value {
        let open = Gap { start: acknowledged, len: now.saturating_sub(acknowledged) };
        let gap = self.gap.longer(open);
        let elapsed_s = now.saturating_sub(self.start) as f64 / 1e9;
        let errors: Map<String, Value> =
            self.errors.iter().map(|(&code, &count)| (error_name(code), json!(count))).collect();
        json!({
            "phase": self.name,
            "elapsed_s": elapsed_s,
            "writes": self.writes,
            "writes_per_s": self.writes as f64 / elapsed_s.max(1e-9),
            "longest_gap_ms": ms(gap.len),
            "longest_gap_at_ms": (gap.start as f64 - self.start as f64) / 1e6,
            "first_write_after_ms": self.first_write.map(|at| ms(at - self.start)),
            "latency_us": latency_json(&self.latencies),
            "unknown": self.unknown,
            "errors": errors,
            "connections_lost": self.connections_lost,
            "sessions_lost": self.sessions_lost,
        })
    }
}

fn ms(ns: Nanos) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_belongs_to_the_phase_in_which_it_ends() {
        let recorder = Recorder::start();
        recorder.mark("before");
        recorder.acknowledged(recorder.now(), recorder.now());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(recorder.look()["longest_gap_ms"].as_f64().unwrap() >= 20.0, "one that goes on counts");
        recorder.mark("after");
        recorder.acknowledged(0, 0);
        let after = recorder.mark("end");
        assert!(after["longest_gap_ms"].as_f64().unwrap() >= 20.0);
        assert!(after["longest_gap_at_ms"].as_f64().unwrap() <= -20.0, "it began before the phase");
    }

    #[test]
    fn a_write_sent_before_the_phase_does_not_end_the_wait() {
        let recorder = Recorder::start();
        let before = recorder.now();
        recorder.mark("killed");
        recorder.acknowledged(before, before);
        assert!(recorder.look()["first_write_after_ms"].is_null());
        recorder.acknowledged(recorder.now(), recorder.now());
        let report = recorder.look();
        assert!(report["first_write_after_ms"].is_number());
        assert_eq!(report["writes"], 2);
    }

    #[test]
    fn losses_and_errors_are_counted_in_the_phase_and_in_all() {
        let recorder = Recorder::start();
        recorder.lost(Loss::Connection, 9);
        recorder.mark("first");
        recorder.lost(Loss::Connection, 3);
        recorder.refused(-101);
        recorder.mark("second");
        recorder.lost(Loss::Session, 0);
        let second = recorder.look();
        assert_eq!((&second["sessions_lost"], &second["unknown"]), (&json!(1), &json!(0)));
        let all = recorder.all();
        assert_eq!((&all["sessions_lost"], &all["connections_lost"]), (&json!(1), &json!(1)));
        assert_eq!(all["unknown"], 3, "the preparation does not count");
        assert_eq!(all["errors"], json!({"NoNode": 1}));
    }
}
