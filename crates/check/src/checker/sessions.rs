//! When a session may end, and when it must.

use crate::model::{ConnectionKey, Session};
use crate::{Checked, wrong};
use std::collections::BTreeMap;

/// What decides over a session's end.
#[derive(Debug, Clone)]
pub(super) struct Timer {
    pub(super) timeout_ms: i32,
    /// When the server last heard of the client.
    pub(super) heard_us: u64,
    pub(super) connection: Option<ConnectionKey>,
    /// Its end is proposed.
    pub(super) closing: bool,
    /// By its client.
    pub(super) closed_by_client: bool,
}

/// The timers of all live sessions.
#[derive(Debug, Default)]
pub(super) struct Timers {
    pub(super) by_session: BTreeMap<i64, Timer>,
}

impl Timers {
    pub(super) fn start(&mut self, session: i64, timeout_ms: i32, now_us: u64) {
        let timer =
            Timer { timeout_ms, heard_us: now_us, connection: None, closing: false, closed_by_client: false };
        self.by_session.insert(session, timer);
    }

    pub(super) fn heard(&mut self, session: i64, now_us: u64) {
        if let Some(timer) = self.by_session.get_mut(&session) {
            timer.heard_us = now_us;
        }
    }

    /// The client asks for its session's end.
    pub(super) fn closing(&mut self, session: i64) {
        if let Some(timer) = self.by_session.get_mut(&session) {
            timer.closing = true;
            timer.closed_by_client = true;
        }
    }

    /// A server has started: these sessions are there, and nobody is connected.
    pub(super) fn start_anew<'a>(&mut self, sessions: impl Iterator<Item = (i64, &'a Session)>, now_us: u64) {
        self.by_session.clear();
        sessions.for_each(|(id, session)| self.start(id, session.timeout_ms, now_us));
    }

    /// A session comes to another connection; returns the one that it was on.
    pub(super) fn reopened(&mut self, session: i64, timeout_ms: i32, now_us: u64) -> Option<ConnectionKey> {
        let timer = self.by_session.get_mut(&session)?;
        timer.timeout_ms = timeout_ms;
        timer.heard_us = now_us;
        timer.connection.take()
    }

    /// What was proposed is void.
    pub(super) fn reopen(&mut self) {
        for timer in self.by_session.values_mut() {
            timer.closing = false;
            timer.closed_by_client = false;
        }
    }

    /// The server judges from now on: everybody has the whole timeout.
    pub(super) fn judge(&mut self, now_us: u64) {
        self.reopen();
        self.by_session.values_mut().for_each(|timer| timer.heard_us = now_us);
    }

    /// The server ends a session by itself.
    pub(super) fn expire(&mut self, session: i64, now_us: u64) -> Checked {
        let Some(timer) = self.by_session.get_mut(&session) else {
            return wrong(format!("session {session:#x} was expired, but does not exist"));
        };
        let silent_us = now_us - timer.heard_us;
        if timer.closing {
            return wrong(format!("session {session:#x} was expired twice"));
        }
        if silent_us < timeout_us(timer) {
            let timeout_ms = timer.timeout_ms;
            return wrong(format!(
                "session {session:#x} was expired {} ms after its client was heard of, its timeout is {timeout_ms} ms",
                silent_us / 1000
            ));
        }
        timer.closing = true;
        Ok(())
    }

    /// Finds a session that has been silent for too long and was not expired. `slack_us` is what
    /// the server's resolution allows.
    pub(super) fn overdue(&self, now_us: u64, slack_us: u64) -> Checked {
        let overdue = self
            .by_session
            .iter()
            .find(|(_, timer)| !timer.closing && timer.heard_us + timeout_us(timer) + slack_us < now_us);
        match overdue {
            None => Ok(()),
            Some((session, timer)) => wrong(format!(
                "session {session:#x} has been silent for {} ms, its timeout is {} ms, and it is still there",
                (now_us - timer.heard_us) / 1000,
                timer.timeout_ms
            )),
        }
    }
}

fn timeout_us(timer: &Timer) -> u64 {
    u64::try_from(timer.timeout_ms).unwrap_or(0) * 1000
}
