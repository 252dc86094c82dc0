//! The log as the checker sees it: what each record holds, and what is true once it is durable.
//!
//! A server alone elects itself when it starts, and again after its log has refused records: with a
//! vote, then with the empty entry that begins its term. Before that entry is durable it prepares
//! nothing. Every other entry holds exactly what was proposed, in order.

use super::{Checker, Proposed, What};
use crate::model::{Denial, Stamp};
use crate::{Checked, Violation, wrong};
use bytes::Bytes;
use stoa_core::{Item, Items, Now, Origin, Outcome, Recovered};
use stoa_group::{Entry, EntryKind, Store};
use stoa_tree::{Refusal, Update};

/// A record that the log was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) position: u64,
    /// zxid of the last update up to its end.
    pub(super) last_zxid: i64,
    /// Whether it holds updates of its own.
    pub(super) updates: bool,
    /// Whether the server leads once it is durable.
    elects: bool,
    /// How things are behind it.
    pub(super) timeline: Timeline,
}

/// Where the timeline stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeline {
    /// Position and term of the last entry.
    last: (u64, u64),
    /// The term that the server has voted in.
    term: u64,
}

impl Checker {
    /// The log was asked for a record. `ticked` when the server may have put updates of its own in it.
    ///
    /// # Errors
    /// When the record does not hold exactly what was proposed.
    pub fn handed_to_log(&mut self, position: u64, record: &[u8], ticked: Option<Now>) -> Checked {
        let store = Store::decode(Bytes::copy_from_slice(record))
            .map_err(|error| Violation::new(format!("record {position}: {error}")))?;
        let expected = self.records.back().map_or(self.applied_position, |record| record.position) + 1;
        if position != expected {
            return wrong(format!("the log was given record {position}, {expected} comes next"));
        }
        let before = self.last_zxid();
        let mut timeline = self.records.back().map_or(self.timeline, |record| record.timeline);
        let is_mark = store.snapshot.is_some();
        // The first one, and one behind a snapshot that no record follows.
        if store.snapshot.is_some_and(|mark| (mark.position, mark.term) != timeline.last) {
            return wrong(format!("record {position} is a mark, and is not where the log ends"));
        }
        if let Some(vote) = store.vote {
            if vote.term < timeline.term || (!is_mark && vote.voted_for != self.id()) {
                return wrong(format!("record {position} has {vote:?} after term {}", timeline.term));
            }
            timeline.term = vote.term;
        }
        let mut elects = false;
        for entry in &store.entries {
            elects |= timeline.goes_on_with(entry)?;
            if !entry.payload.is_empty() {
                self.entry(position, &entry.payload, ticked)?;
            }
        }
        let last_zxid = self.last_zxid();
        self.records.push_back(Record { position, last_zxid, updates: last_zxid > before, elects, timeline });
        Ok(())
    }

    /// The server has handed everything to the log.
    ///
    /// # Errors
    /// When it has kept something back.
    pub fn handed_all_to_log(&self) -> Checked {
        match self.proposed.get(self.logged) {
            Some(kept) => wrong(format!("{:?} was proposed, and not handed to the log", kept.what)),
            None => Ok(()),
        }
    }

    /// What became of requests, in one entry.
    fn entry(&mut self, record: u64, payload: &[u8], ticked: Option<Now>) -> Checked {
        for item in Items::new(payload) {
            let item = item.map_err(|error| Violation::new(format!("record {record}: {error}")))?;
            if self.logged == self.proposed.len() {
                match (ticked, item) {
                    (Some(now), Item { origin: None, outcome: Outcome::Update(update), .. }) => {
                        self.own_update(&update, now)?;
                    }
                    _ => return wrong(format!("nobody has asked for: {item}")),
                }
            }
            self.origin(&item)?;
            self.item(record, &item)?;
            self.logged += 1;
        }
        if self.logged != self.proposed.len() {
            return wrong(format!("record {record} lacks what was proposed before it"));
        }
        Ok(())
    }

    /// Requests have numbers, one after the other.
    fn origin(&mut self, item: &Item<'_>) -> Checked {
        let own = self.proposed[self.logged].own;
        let Some(Origin { server, request, .. }) = item.origin else {
            return if own { Ok(()) } else { wrong(format!("nobody is told of: {item}")) };
        };
        if own || u64::from(server) != self.id() || self.next_request.is_some_and(|next| next != request) {
            let next = self.next_request;
            return wrong(format!("it should be request {next:?} of server {}: {item}", self.id()));
        }
        self.next_request = Some(request + 1);
        self.proposed[self.logged].request = request;
        Ok(())
    }

    fn item(&mut self, record: u64, item: &Item<'_>) -> Checked {
        let head = &mut self.head;
        let proposed = &mut self.proposed[self.logged];
        proposed.record = record;
        let update = match (&item.outcome, &proposed.what) {
            (Outcome::Refused(found), What::Refused { failure, .. }) if is_same(*found, *failure) => {
                return Ok(());
            }
            (Outcome::Update(update), what) if !matches!(what, What::Refused { .. }) => update,
            (_, what) => return wrong(format!("{item}, and it should be {what:?}")),
        };
        let found = Stamp { zxid: update.zxid, time_ms: update.time_ms };
        if found != proposed.stamp {
            return wrong(format!("{item}, and it should have {:?}", proposed.stamp));
        }
        if let What::Open { connection, timeout_ms } = proposed.what {
            proposed.session = update.session;
            if head.session(update.session).is_some() {
                return wrong(format!("session id {:#x} was given twice", update.session));
            }
            head.create_session(update.session, timeout_ms, (connection, proposed.request), head.zxid());
        } else if proposed.session != update.session {
            return wrong(format!("{item}, and it should be of session {:#x}", proposed.session));
        }
        Ok(())
    }

    /// An update that no client asked for: an expired session, or a znode whose time is up.
    fn own_update(&mut self, update: &Update<'_>, now: Now) -> Checked {
        let stamp = Stamp { zxid: self.next_zxid(), time_ms: now.wall_ms };
        let (session, what) = if update.session == 0 {
            let shown = update.describe().to_string();
            let path = shown.split('"').nth(1).unwrap_or_default().to_owned();
            // It is looked for in the applied state; ZooKeeper then only asks whether the znode that is
            // there when its turn comes is empty and of such a kind.
            let due = self.applied.is_reapable(&path, now.wall_ms) && self.head.may_be_reaped(&path);
            if !due && !self.head.is_reapable(&path, now.wall_ms) {
                return wrong(format!("the server deleted {path} although its time is not up: {shown}"));
            }
            self.head.reap(&path, stamp.zxid);
            self.counts.reaped += 1;
            (0, What::Reap(path))
        } else {
            if self.returning().any(|session| session == update.session) {
                return wrong(format!("session {:#x} was expired on its client's return", update.session));
            }
            self.timers.expire(update.session, now.mono_us)?;
            self.head.close_session(update.session, stamp.zxid);
            self.counts.expired += 1;
            (update.session, What::Close)
        };
        self.proposed.push_back(Proposed { own: true, ..Proposed::new(stamp, session, what) });
        Ok(())
    }

    /// The disk has made everything up to the record at `position` durable, and the server is about to
    /// hear of it.
    pub fn durable(&mut self, position: u64, now: Now) {
        self.durable_position = position;
        let elected = self.records.iter().any(|record| record.elects && record.position <= position);
        if elected && !self.leads {
            self.begin_to_lead(now);
        }
    }

    /// Follows the records whose content is applied now.
    pub(super) fn note_records(&mut self) -> Checked {
        let durable = self.durable_position;
        while let Some(record) = self.records.front()
            && record.last_zxid <= self.applied.zxid()
            && (record.updates || record.position <= durable)
        {
            if record.position > durable {
                let position = record.position;
                return wrong(format!(
                    "record {position} was applied and answered, but only {durable} is durable"
                ));
            }
            self.applied_position = record.position;
            self.timeline = record.timeline;
            self.records.pop_front();
        }
        match self.records.front().filter(|record| record.position <= durable) {
            Some(record) => {
                let position = record.position;
                wrong(format!("record {position} is durable, and was not applied"))
            }
            None => Ok(()),
        }
    }

    /// The log had no room: nothing of what was proposed or asked and not applied will ever be.
    pub fn refused(&mut self) {
        self.begin_anew();
        self.timers.reopen();
        let applied = self.applied.zxid();
        self.links.values_mut().for_each(|link| link.refuse_waiting(applied));
    }

    /// Forgets what is not applied. The server has to be elected again.
    fn begin_anew(&mut self) {
        self.head = self.applied.clone();
        self.proposed.clear();
        self.logged = 0;
        self.records.clear();
        self.asked.clear();
        self.next_request = None;
        self.leads = false;
    }

    /// A server has recovered this from its disk.
    ///
    /// # Errors
    /// When something acknowledged is missing, or anything is there that should not be.
    pub fn recovered(&mut self, recovered: &Recovered, now: Now) -> Checked {
        let Recovered { tree, restored, record: position, .. } = recovered;
        if *position < self.applied_position {
            return wrong(format!(
                "record {position} was recovered, but everything up to {} had been acknowledged",
                self.applied_position
            ));
        }
        while self.applied_position < *position {
            let Some(record) = self.records.pop_front() else {
                return wrong(format!("record {position} was recovered, but never handed to the log"));
            };
            while self.applied.zxid() < record.last_zxid {
                self.replay_one();
            }
            self.applied_position = record.position;
            self.timeline = record.timeline;
        }
        // A snapshot may hold a vote that was on its way to the log.
        let Timeline { last, term } = self.timeline;
        let vote = restored.vote;
        // Nothing is there before the first record.
        let last = if *position == 0 { (0, 0) } else { last };
        let is_whole = (restored.base.position, restored.base.term) == last && restored.entries.is_empty();
        // The first record says who the members are, as of a term that nobody has voted in.
        let is_own = vote.voted_for == self.id() || (vote.voted_for == 0 && *position <= 1);
        if !is_whole || vote.term < term || (vote.term > 0 && !is_own) {
            let entries = restored.entries.len();
            return wrong(format!(
                "{:?} with {vote:?} and {entries} more entries was recovered, it should be {:?}",
                restored.base, self.timeline
            ));
        }
        self.timeline.term = vote.term;
        self.begin_anew();
        self.durable_position = *position;
        self.timers.start_anew(self.applied.sessions(), now.mono_us);
        self.compare_state(tree)
    }

    fn id(&self) -> u64 {
        // As the group has it, where 0 is nobody.
        match self.config.server_id {
            0 => 256,
            id => id.into(),
        }
    }
}

impl Timeline {
    /// As if the first entry had said who the members are.
    pub(super) const BEGINNING: Self = Self { last: (1, 1), term: 0 };

    /// An entry follows; returns whether it is the one that begins a term.
    fn goes_on_with(&mut self, entry: &Entry) -> Result<bool, Violation> {
        let begins = entry.term > self.last.1;
        let follows = entry.position == self.last.0 + 1 && entry.term == self.term;
        if !follows || entry.kind != EntryKind::Payload || entry.payload.is_empty() != begins {
            let Entry { position, term, kind, payload } = entry;
            let bytes = payload.len();
            let shown = format!("{kind:?} of {bytes} bytes at position {position} in term {term}");
            return wrong(format!("the entry cannot follow {self:?}: {shown}"));
        }
        self.last = (entry.position, entry.term);
        Ok(begins)
    }
}

fn is_same(found: Refusal, wanted: Denial) -> bool {
    match (found, wanted) {
        (Refusal::Error(found), Denial::Error(wanted)) => found == wanted,
        (Refusal::Multi { count, failed, code }, wanted) => wanted == Denial::Multi { count, failed, code },
        _ => false,
    }
}
