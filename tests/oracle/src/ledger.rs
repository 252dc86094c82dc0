//! What one server's own numbers mean: zxids, times, session ids.
//!
//! Two servers number their writes differently (in ZooKeeper a failed write and a new session use up
//! a zxid), stamp them with their own clocks and make up their own session ids. So each number is
//! replaced by what it stands for: the nth write of the run, the time of the nth write, the nth
//! session of the run. What stands for nothing keeps its raw value and so shows as a difference.
//!
//! The zxid of a write stands in the header of its reply. With several partitions it may be lowered there;
//! then the write has no zxid until a Stat or an event shows it.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

/// A server may stamp a write so long before its reply is read: the machine may be busy.
const CLOCK_SLACK_MS: i64 = 60_000;

/// A value as it is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number that must be the same on both sides.
    Number(i64),
    /// A string or buffer.
    Bytes(Vec<u8>),
    /// A null string, buffer or vector.
    Null,
    /// Strings whose order means nothing.
    Set(Vec<Vec<u8>>),
    /// The zxid of the nth write.
    Write(usize),
    /// A zxid that is not older than the nth write and older than the next.
    Since(usize),
    /// The time of the nth write.
    TimeOf(usize),
    /// The nth session.
    Session(usize),
}

/// The numbers of one server.
#[derive(Debug, Default)]
pub struct Ledger {
    writes: Vec<Write>,
    /// Which write has a zxid; the order of the zxids is that of the writes.
    by_zxid: BTreeMap<i64, usize>,
    sessions: HashMap<i64, usize>,
    is_divided: bool,
}

#[derive(Debug)]
struct Write {
    zxid: Option<i64>,
    bounds: Bounds,
    noted_ms: i64,
    time_ms: Option<i64>,
}

/// What is known of a zxid before it is shown.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// It is larger than this.
    pub above: i64,
    /// It is this or larger.
    pub least: i64,
}

impl Ledger {
    /// The numbers of a server in a run where one of the two has several partitions: what the header of
    /// a reply says of the writes is not compared here, see [`crate::headers`].
    #[must_use]
    pub fn divided() -> Self {
        Self { is_divided: true, ..Self::default() }
    }

    /// Whether headers are not compared.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        self.is_divided
    }

    /// The zxid of the last write.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        self.by_zxid.last_key_value().map_or(0, |(zxid, _)| *zxid)
    }

    /// Notes that the next write has this zxid, which is above the last one.
    pub fn wrote(&mut self, zxid: i64) {
        let write = self.wrote_within(Bounds { above: i64::MIN, least: zxid });
        self.learn(write, zxid);
    }

    /// Notes a write whose zxid is not known yet. Answers its number.
    pub fn wrote_within(&mut self, bounds: Bounds) -> usize {
        self.writes.push(Write { zxid: None, bounds, noted_ms: now_ms(), time_ms: None });
        self.writes.len() - 1
    }

    /// Notes the zxid of the nth write. Answers whether it can be that: it must be within its bounds,
    /// above those of all writes before it and below those of all writes behind it.
    pub fn learn(&mut self, nth: usize, zxid: i64) -> bool {
        let before = self.by_zxid.range(..=zxid).next_back();
        let behind = self.by_zxid.range(zxid..).next();
        let is_in_order =
            before.is_none_or(|(_, write)| *write < nth) && behind.is_none_or(|(_, write)| *write > nth);
        let Some(write) = self.writes.get_mut(nth) else { return false };
        let Bounds { above, least } = write.bounds;
        if write.zxid.is_some() || !is_in_order || zxid <= above || zxid < least {
            return false;
        }
        write.zxid = Some(zxid);
        self.by_zxid.insert(zxid, nth);
        true
    }

    /// Notes that this is the nth session.
    pub fn opened(&mut self, session: i64, nth: usize) {
        self.sessions.insert(session, nth);
    }

    /// The number of the write so many writes ago, of those whose zxid is known.
    #[must_use]
    pub fn writes_ago(&self, count: usize) -> Option<usize> {
        self.by_zxid.values().rev().nth(count).copied()
    }

    /// The zxid of the nth write, if it is known.
    #[must_use]
    pub fn zxid_of(&self, nth: usize) -> Option<i64> {
        self.writes.get(nth)?.zxid
    }

    fn find(&self, zxid: i64) -> Option<usize> {
        self.by_zxid.get(&zxid).copied()
    }

    /// What the zxid of a change stands for.
    #[must_use]
    pub fn zxid(&self, zxid: i64) -> Value {
        self.find(zxid).map_or(Value::Number(zxid), Value::Write)
    }

    /// What the zxid of a reply stands for: the last write that it reflects.
    #[must_use]
    pub fn seen(&self, zxid: i64) -> Value {
        if zxid <= 0 {
            return Value::Number(zxid);
        }
        Value::Since(self.by_zxid.range(..=zxid).next_back().map_or(0, |(_, write)| write + 1))
    }

    /// What the time of the write `zxid` stands for. The first time that is seen of a write must be
    /// near the moment when it was noted, all others the same.
    pub fn time(&mut self, zxid: i64, time_ms: i64) -> Value {
        let Some(index) = self.find(zxid) else {
            return Value::Number(time_ms);
        };
        let Some(write) = self.writes.get_mut(index) else {
            return Value::Number(time_ms);
        };
        let known = *write.time_ms.get_or_insert_with(|| {
            let off_ms = time_ms.saturating_sub(write.noted_ms);
            // 0 is nobody's time, so that an implausible one matches nothing.
            if off_ms.saturating_abs() > CLOCK_SLACK_MS { 0 } else { time_ms }
        });
        if known == time_ms { Value::TimeOf(index) } else { Value::Number(time_ms) }
    }

    /// What an owner or session id stands for.
    #[must_use]
    pub fn session(&self, session: i64) -> Value {
        self.sessions.get(&session).map_or(Value::Number(session), |nth| Value::Session(*nth))
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Bounds = Bounds { above: 0, least: 0 };

    #[test]
    fn a_zxid_is_learned_once_and_in_the_order_of_the_writes() {
        let mut ledger = Ledger::divided();
        for _ in 0..4 {
            ledger.wrote_within(NONE);
        }
        assert!(ledger.learn(1, 20));
        assert!(!ledger.learn(1, 21), "it has one already");
        assert!(!ledger.learn(0, 20), "another write has it");
        assert!(!ledger.learn(0, 25) && !ledger.learn(3, 15), "out of order");
        assert!(ledger.learn(3, 40) && ledger.learn(0, 10));
        assert_eq!((ledger.zxid(20), ledger.zxid(30)), (Value::Write(1), Value::Number(30)));
        assert_eq!(
            (ledger.writes_ago(0), ledger.writes_ago(1), ledger.writes_ago(3)),
            (Some(3), Some(1), None)
        );
        assert_eq!((ledger.zxid_of(1), ledger.zxid_of(2)), (Some(20), None));
    }

    #[test]
    fn a_zxid_keeps_within_what_its_reply_said() {
        let mut ledger = Ledger::divided();
        let write = ledger.wrote_within(Bounds { above: 10, least: 8 });
        assert!(!ledger.learn(write, 9) && !ledger.learn(write, 10));
        assert!(ledger.learn(write, 11));
        let write = ledger.wrote_within(Bounds { above: 10, least: 15 });
        assert!(!ledger.learn(write, 14) && ledger.learn(write, 15));
    }
}
