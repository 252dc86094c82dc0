//! What a run found out: latencies by kind of request, errors, bytes.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use stoa_wire::ErrorCode;

use super::clock::Nanos;
use super::requests::Op;

/// The longest latency told apart from longer ones: ten minutes.
const LATENCY_MAX: Nanos = 600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// An empty histogram of latencies in nanoseconds.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX, SIGNIFICANT_DIGITS)
        .expect("the bounds and digits are constants that the histogram accepts")
}

/// The part of a run that counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// First moment that counts.
    pub(crate) start: Nanos,
    /// First moment that does not count any more.
    pub(crate) end: Nanos,
}

impl Window {
    /// A window that everything falls into.
    pub(crate) const ALWAYS: Self = Self { start: 0, end: Nanos::MAX };

    /// Whether a moment falls into it.
    #[inline]
    pub(crate) fn contains(self, at: Nanos) -> bool {
        self.start <= at && at < self.end
    }
}

/// What came in equal parts of a window, one after the other.
#[derive(Debug)]
pub(crate) struct Parts {
    /// How long each is.
    pub(crate) interval: Nanos,
    /// Replies, those to probes left out, and errors among them.
    pub(crate) replies: Vec<(u64, u64)>,
}

/// Collects the results of a run.
#[derive(Debug)]
pub(crate) struct Record {
    window: Window,
    /// If that is wanted.
    pub(crate) parts: Option<Parts>,
    latencies: Vec<Option<Histogram<u64>>>,
    /// Errors by the code's number.
    pub(crate) errors: BTreeMap<i32, u64>,
    /// Replies that arrived inside the window, those to probes left out.
    pub(crate) replies: u64,
    /// Frame bytes of those replies, lengths included.
    pub(crate) reply_bytes: u64,
    /// Requests of the window that were never answered.
    pub(crate) unanswered: u64,
}

impl Record {
    /// Collects what falls into `window`.
    pub(crate) fn new(window: Window) -> Self {
        Self {
            window,
            parts: None,
            latencies: Op::ALL.iter().map(|_| None).collect(),
            errors: BTreeMap::new(),
            replies: 0,
            reply_bytes: 0,
            unanswered: 0,
        }
    }

    /// Counts what comes in each `interval` of the window by itself, too. The window must have an end.
    pub(crate) fn count_in_parts(&mut self, interval: Nanos) {
        let count = (self.window.end - self.window.start).div_ceil(interval);
        self.parts = Some(Parts { interval, replies: vec![(0, 0); count as usize] });
    }

    /// A reply came at `now` to a request that was (or should have been) sent at `sent`. Throughput
    /// counts replies that arrive in the window; latency counts requests that belong to it, however
    /// late their replies.
    #[inline]
    pub(crate) fn reply(&mut self, op: Op, sent: Nanos, now: Nanos, frame_bytes: usize, err: i32) {
        if self.window.contains(now) && op != Op::Probe {
            self.replies += 1;
            self.reply_bytes += frame_bytes as u64;
            if err != 0 {
                *self.errors.entry(err).or_default() += 1;
            }
            if let Some(parts) = &mut self.parts {
                let part = &mut parts.replies[((now - self.window.start) / parts.interval) as usize];
                part.0 += 1;
                part.1 += u64::from(err != 0);
            }
        }
        if self.window.contains(sent) {
            self.latency(op, now - sent.min(now));
        }
    }

    /// A request that was not answered by `now`, when the run gave up waiting.
    pub(crate) fn unanswered(&mut self, op: Op, sent: Nanos, now: Nanos) {
        if self.window.contains(sent) {
            self.unanswered += 1;
            self.latency(op, now - sent.min(now));
        }
    }

    #[inline]
    fn latency(&mut self, op: Op, latency: Nanos) {
        self.latencies[op as usize].get_or_insert_with(latency_histogram).saturating_record(latency);
    }

    /// The kinds of request that were made, with their latencies in nanoseconds.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = (Op, &Histogram<u64>)> {
        Op::ALL.into_iter().filter_map(|op| Some((op, self.latencies[op as usize].as_ref()?)))
    }

    /// How many errors of one code there were.
    pub(crate) fn errors_of(&self, code: ErrorCode) -> u64 {
        self.errors.get(&(code as i32)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_replies_count_for_latency_but_not_for_throughput() {
        let mut record = Record::new(Window { start: 100, end: 200 });
        record.reply(Op::Get, 150, 5000, 10, 0);
        assert_eq!(record.replies, 0);
        let (op, latencies) = record.latencies().next().unwrap();
        assert_eq!((op, latencies.len()), (Op::Get, 1));
        assert!(latencies.max() >= 4850);
    }

    #[test]
    fn requests_of_the_warm_up_count_for_throughput_but_not_for_latency() {
        let mut record = Record::new(Window { start: 100, end: 200 });
        record.reply(Op::Get, 50, 150, 10, -101);
        assert_eq!((record.replies, record.reply_bytes), (1, 10));
        assert_eq!(record.errors_of(ErrorCode::NoNode), 1);
        assert_eq!(record.latencies().count(), 0);
    }

    #[test]
    fn what_comes_in_parts_of_the_window_is_counted_apart() {
        let mut record = Record::new(Window { start: 100, end: 205 });
        record.count_in_parts(10);
        for (now, err) in [(99, 0), (100, 0), (109, -101), (110, 0), (204, 0), (205, 0)] {
            record.reply(Op::Get, 90, now, 10, err);
        }
        let replies = record.parts.unwrap().replies;
        assert_eq!((replies.len(), &replies[..3], replies[10]), (11, &[(2, 1), (1, 0), (0, 0)][..], (1, 0)));
    }

    #[test]
    fn probes_are_measured_but_are_no_throughput() {
        let mut record = Record::new(Window::ALWAYS);
        record.reply(Op::Probe, 1, 2, 10, 0);
        assert_eq!((record.replies, record.latencies().count()), (0, 1));
    }
}
