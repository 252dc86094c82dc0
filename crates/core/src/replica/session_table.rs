//! Who speaks for each session, as a partition knows it that does not keep them.
//!
//! The first partition keeps the sessions, in its tree. It tells the others of its server what becomes of
//! them, in the order of its timeline. So each leader refuses what an ended session has left behind, and
//! what comes from a connection that the session has left, as the first one does from its own tree.
//!
//! What the first partition has decided, and not told yet, may still be lost with the lead, and the threads of a server
//! hear one after the other who leads. So until it is told nobody is accepted, and nobody is refused either: both might
//! turn out to be wrong.

use crate::coordination::Pending;
use crate::replica::Replica;
use crate::session_table::{Known, SessionNews};
use crate::shard_message::ShardMessage;
use alloc::vec::Vec;
use core::ops::Range;
use stoa_front::{ConnectionId, FrontMessage};
use stoa_partition::{After, Asked, end_of, entry_of};
use stoa_placement::FIRST;
use stoa_timeline::Origin;
use stoa_tree::Contact;
use stoa_wire::Opcode;

impl Replica {
    /// Whether this partition keeps the sessions: the first one does.
    #[inline]
    pub(crate) fn has_sessions(&self) -> bool {
        self.sessions.table.is_none()
    }

    /// At the first of several partitions: the others. Elsewhere there are none that depend on this one.
    pub(crate) fn other_partitions(&self) -> Range<u8> {
        1..self.sessions.news.as_ref().map_or(1, |_| self.applied.placement.partitions())
    }

    /// Something has become of a session: who speaks for it now, if it has not ended.
    pub(crate) fn tell_of_session(&mut self, session: i64, contact: Option<Contact>) {
        if let Some(news) = &mut self.sessions.news {
            news.changed.push((session, contact));
        }
    }

    /// Ends a session that has been silent for too long.
    pub(crate) fn end_session(&mut self, session: i64) {
        if !self.applied.placement.is_divided() {
            self.applied.partition.propose_session_end(None, session, self.now);
            return;
        }
        let mut asked = Vec::new();
        Asked::put_write(&mut asked, (session, 0), &After::default(), Opcode::CloseSession, &[], &[]);
        self.leader.pending.push_back(Pending { origin: None, asked: asked.into() });
        self.take_pending();
    }

    /// At a new leader: what the timeline rests on was prepared by those who knew what had become of sessions up to
    /// there, and who was refused by them must be by this server.
    pub(crate) fn learn_of_sessions(&mut self) {
        let Some(table) = &mut self.sessions.table else { return };
        let position = self.applied.stamp.at(FIRST);
        table.needs = entry_of(position);
        table.changes += 1;
        if table.needs > table.position {
            self.say(FIRST, ShardMessage::Front(FrontMessage::WatermarkWanted { position, clock: 0 }));
        }
    }

    /// The first partition has come so far, and has told what has become of sessions until then.
    pub(crate) fn sessions_are_told(&mut self, position: u64) {
        if let Some(table) = &mut self.sessions.table {
            table.told(table.position.max(entry_of(position)));
        }
        self.take_pending();
    }

    /// Somebody waits for what becomes of a session, which is not told by itself if it was lost.
    pub(crate) fn wait_for_session(&mut self, asked: &Asked<'_>) {
        if let Asked::Write { session, .. } = asked
            && let Some(table) = &mut self.sessions.table
            && let Some(decided) = table.decided.get_mut(session).filter(|decided| !decided.is_asked)
        {
            decided.is_asked = true;
            let position = end_of(decided.position);
            self.say(FIRST, ShardMessage::Front(FrontMessage::WatermarkWanted { position, clock: 0 }));
        }
    }

    /// Whether a leader of this partition may not know that the session of this remote client has come to it. What the
    /// session has asked elsewhere may then be accepted later than what this remote client is answered now, unless the
    /// question is put on the timeline: whoever leads it then, or later, has heard of the remote client.
    pub(crate) fn is_stranger(&self, id: ConnectionId) -> bool {
        let Some(table) = &self.sessions.table else { return false };
        let Some(connection) = self.clients.connections.get(id) else { return false };
        let Some(remote) = connection.remote.as_ref().filter(|remote| !remote.is_known) else { return false };
        let contact = Contact { server: self.timeline.contact_server(), opening: connection.mode.opening };
        let is_known = || table.knows(connection.session, contact, remote.since) == Known::Yes;
        !(self.timeline.is_alone() && is_known())
    }

    /// Whether this partition knows that who asks here speaks for his session.
    #[inline]
    pub(crate) fn is_known(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.clients.connections.get_mut(id) else { return false };
        let (Some(table), Some(remote)) = (&self.sessions.table, connection.remote.as_mut()) else {
            return true;
        };
        // Found with each write otherwise, while sessions come and go now and then.
        if remote.known_at != Some(table.changes) {
            let server = self.timeline.contact_server();
            let contact = Contact { server, opening: connection.mode.opening };
            let known = table.knows(connection.session, contact, remote.since);
            remote.known_at = (known == Known::Yes).then_some(table.changes);
        }
        remote.known_at.is_some()
    }

    /// Whether who asks speaks for his session, as far as it is this partition's business.
    pub(crate) fn knows(&self, origin: Origin, asked: &Asked<'_>) -> Known {
        match (asked, &self.sessions.table) {
            (Asked::Write { session, opening, after, .. }, Some(table)) => {
                let contact = Contact { server: origin.server, opening: *opening };
                table.knows(*session, contact, after.since)
            }
            // The tree says it when the request is prepared.
            _ => Known::Yes,
        }
    }

    /// Whether something has become of sessions that the server's other partitions have not been told.
    #[inline]
    pub(crate) fn has_news_of_sessions(&self) -> bool {
        self.sessions.news.as_ref().is_some_and(SessionNews::is_any)
    }

    /// What has become of sessions, for the server's other partitions.
    pub(crate) fn poll_sessions_changed(&mut self) -> Vec<(u8, ShardMessage)> {
        let Some(news) = self.sessions.news.as_mut().filter(|news| news.is_any()) else { return Vec::new() };
        let is_all = core::mem::take(&mut news.is_all);
        let mut changed = core::mem::take(&mut news.changed);
        if is_all {
            let sessions = self.applied.partition.tree().sessions();
            changed = sessions.map(|session| (session.id, Some(session.contact))).collect();
        }
        let position = self.timeline.applied_at().0;
        let message =
            |partition| (partition, ShardMessage::Sessions { is_all, position, changed: changed.clone() });
        self.other_partitions().map(message).collect()
    }

    /// The first partition has told what has become of sessions.
    pub(crate) fn sessions_changed(
        &mut self,
        is_all: bool,
        position: u64,
        changed: &[(i64, Option<Contact>)],
    ) {
        let Some(table) = &mut self.sessions.table else { return };
        if is_all {
            table.contacts.clear();
        }
        table.told(position);
        table.changes += 1;
        for (session, contact) in changed {
            match contact {
                Some(contact) => table.contacts.insert(*session, *contact),
                None => table.contacts.remove(session),
            };
        }
        self.take_pending();
    }
}
