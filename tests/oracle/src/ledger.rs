//! What one server's own numbers mean: zxids, times, session ids.
//!
//! Two servers number their writes differently (in ZooKeeper a failed write and a new session use up
//! a zxid), stamp them with their own clocks and make up their own session ids. So each number is
//! replaced by what it stands for: the nth write of the run, the time of the nth write, the nth
//! session of the run. What stands for nothing keeps its raw value and so shows as a difference.

use std::collections::HashMap;
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
    sessions: HashMap<i64, usize>,
}

#[derive(Debug)]
struct Write {
    zxid: i64,
    noted_ms: i64,
    time_ms: Option<i64>,
}

impl Ledger {
    /// The zxid of the last write.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        self.writes.last().map_or(0, |write| write.zxid)
    }

    /// Notes that the next write has this zxid.
    pub fn wrote(&mut self, zxid: i64) {
        self.writes.push(Write { zxid, noted_ms: now_ms(), time_ms: None });
    }

    /// Notes that this is the nth session.
    pub fn opened(&mut self, session: i64, nth: usize) {
        self.sessions.insert(session, nth);
    }

    /// The zxid of the write so many writes ago; 0 when there are not so many.
    #[must_use]
    pub fn writes_ago(&self, count: usize) -> i64 {
        self.writes.iter().rev().nth(count).map_or(0, |write| write.zxid)
    }

    fn find(&self, zxid: i64) -> Option<usize> {
        self.writes.binary_search_by_key(&zxid, |write| write.zxid).ok()
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
        Value::Since(self.writes.partition_point(|write| write.zxid <= zxid))
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
