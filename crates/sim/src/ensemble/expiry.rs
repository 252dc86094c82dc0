//! When a leader may end a session: when it has not heard of it for its timeout.

use super::history::items;
use super::process::Scene;
use std::collections::BTreeMap;
use stoa_check::{Checked, wrong};
use stoa_core::{Now, Outcome, Role, Status};
use stoa_group::Entry;
use stoa_tree::Tree;
use stoa_wire::{DecodeError, Reader};

/// How late a leader may learn what a contact server has heard, when nothing goes wrong: contact
/// servers tell it twice a tick, and the message takes its time. Microseconds.
const TOLD_LATE_US: u64 = 250_000;

/// What a server knows of the clients, as far as it can be followed from outside.
pub(super) struct Expiry {
    heard: BTreeMap<i64, u64>,
    /// The term that it leads, and since when.
    leads: (u64, u64),
    /// There is no other server: then nobody is told that it leads.
    alone: bool,
    /// What was known whenever it has judged.
    judged: Vec<Judged>,
}

struct Judged {
    at_us: u64,
    heard: BTreeMap<i64, u64>,
    timeouts_us: BTreeMap<i64, u64>,
}

impl Expiry {
    pub(super) fn new(alone: bool, now: Now) -> Self {
        Self { heard: BTreeMap::new(), leads: (0, now.mono_us), alone, judged: Vec::new() }
    }

    /// The client of this session has been heard of.
    pub(super) fn heard(&mut self, session: i64, at_us: u64) {
        let heard = self.heard.entry(session).or_insert(0);
        *heard = at_us.max(*heard);
    }

    /// The server leads this term.
    pub(super) fn leads(&mut self, term: u64, now: Now) {
        if self.leads.0 != term {
            self.leads = (term, now.mono_us);
            self.judged.clear();
        }
    }

    /// Where the server stands: if it leads alone, it has nobody to tell.
    pub(super) fn stands(&mut self, standing: &Status, now: Now) {
        // The term may be a newer one, in which it leads no more.
        let leads = matches!(standing.role, Role::Leader | Role::Standalone);
        if leads && standing.leader == Some(standing.id) && standing.term > self.leads.0 {
            self.leads(standing.term, now);
        }
    }

    /// Another server says of whom it has heard.
    pub(super) fn told(&mut self, message: &[u8], now: Now) {
        let Ok(Some((term, sessions))) = read_heard(message) else { return };
        if term != self.leads.0 {
            return;
        }
        for (session, silent_ms) in sessions {
            self.heard(session, now.mono_us.saturating_sub(silent_ms * 1000));
        }
    }

    /// The server has found that sessions are to end.
    pub(super) fn judged(&mut self, tree: &Tree, now: Now) {
        let timeouts = tree.sessions().map(|session| (session.id, session.timeout_ms as u64 * 1000));
        let judged =
            Judged { at_us: now.mono_us, heard: self.heard.clone(), timeouts_us: timeouts.collect() };
        self.judged.push(judged);
    }

    /// Looks at an entry that the server stores: if it proposes it, it may end only those sessions in it that
    /// it has not heard of for their timeouts.
    pub(super) fn check(&mut self, entry: &Entry, scene: &Scene<'_>) -> Checked {
        if !self.alone && entry.term != self.leads.0 {
            return Ok(());
        }
        for item in items(entry).flatten() {
            let Outcome::Update(update) = item.outcome else { continue };
            if update.session == 0 {
                // The first list of servers.
                continue;
            }
            if item.origin.is_some() {
                // Whoever comes back has been heard of.
                if update.describe().to_string().contains(" open_session ") {
                    self.heard(update.session, scene.now.mono_us);
                }
                continue;
            }
            let fits = |judged: &Judged| {
                let heard_us = judged.heard.get(&update.session).copied().unwrap_or(0).max(self.leads.1);
                let timeout_us = judged.timeouts_us.get(&update.session).copied()?;
                // Milliseconds are rounded on the way.
                (judged.at_us + 2000 >= heard_us + timeout_us).then_some(timeout_us)
            };
            // The newest: it may have come back since an older one, with another timeout.
            let Some(timeout_us) = self.judged.iter().rev().find_map(fits) else {
                return wrong(format!(
                    "session {:#x} is ended, and was heard of within its timeout",
                    update.session
                ));
            };
            let spoke_us = scene.spoke.get(&update.session).copied().unwrap_or(0);
            let silent_us = scene.now_us - spoke_us;
            if silent_us > TOLD_LATE_US
                && silent_us + 2000 < timeout_us
                && scene.quiet_since_us + 2 * timeout_us < scene.now_us
            {
                return wrong(format!(
                    "session {:#x} is ended, and {silent_us} us ago its client spoke; its timeout is {timeout_us}",
                    update.session
                ));
            }
        }
        Ok(())
    }
}

type Heard = (u64, Vec<(i64, u64)>);

/// The term and the sessions of a message that says who was heard of; `None` for any other.
fn read_heard(message: &[u8]) -> Result<Option<Heard>, DecodeError> {
    const HEARD: u8 = 4;
    let mut reader = Reader::new(message);
    if reader.take(1)? != [HEARD] {
        return Ok(None);
    }
    let (term, _number) = (reader.i64()? as u64, reader.i64()?);
    let mut sessions = Vec::new();
    for _ in 0..reader.count(12)? {
        sessions.push((reader.i64()?, reader.i32()?.max(0) as u64));
    }
    Ok(Some((term, sessions)))
}
