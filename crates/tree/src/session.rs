//! Sessions: who they are, and which ephemerals are theirs.

use crate::digest;
use crate::slab::NONE;
use crate::tree::Tree;
use alloc::string::String;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_wire::PASSWORD_LEN;

/// Where a session's client is: who speaks for it has come in by this server, last with this request.
/// What any other server, or this one for an earlier connection, asks in its name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contact {
    /// The contact server.
    pub server: u8,
    /// The number of the request with which the client came there.
    pub opening: u64,
}

impl Contact {
    /// Length of its encoding: `server u8, opening u64`, little-endian.
    pub(crate) const LEN: usize = 9;

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.push(self.server);
        out.extend_from_slice(&self.opening.to_le_bytes());
    }

    pub(crate) fn decode(bytes: [u8; Self::LEN]) -> Self {
        let [server, opening @ ..] = bytes;
        Self { server, opening: u64::from_le_bytes(opening) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) timeout_ms: i32,
    pub(crate) password: [u8; PASSWORD_LEN],
    pub(crate) contact: Contact,
    /// The other partitions where it owns ephemerals, or has: a bit for each.
    pub(crate) visited: u64,
    /// Head of the list of its ephemerals.
    pub(crate) first_ephemeral: u32,
    pub(crate) ephemeral_count: usize,
}

/// A session as it will be once everything proposed has been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenSession {
    pub(crate) password: [u8; PASSWORD_LEN],
    pub(crate) contact: Contact,
    pub(crate) visited: u64,
}

/// A session of the applied state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session's id.
    pub id: i64,
    /// The negotiated timeout, milliseconds.
    pub timeout_ms: i32,
    /// Whoever wants to take up the session must know it.
    pub password: [u8; PASSWORD_LEN],
    /// Where its client is, or was last.
    pub contact: Contact,
    /// Number of its ephemerals.
    pub ephemeral_count: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: HashMap<i64, Session, FixedState>,
    digest: u64,
}

impl Session {
    fn term(&self, id: i64) -> u64 {
        let term = digest::session_term(id, self.timeout_ms, &self.password, self.contact);
        if self.visited == 0 { term } else { digest::visitor_term(term, self.visited) }
    }

    fn info(&self, id: i64) -> SessionInfo {
        SessionInfo {
            id,
            timeout_ms: self.timeout_ms,
            password: self.password,
            contact: self.contact,
            ephemeral_count: self.ephemeral_count,
        }
    }
}

impl Sessions {
    pub(crate) fn get(&self, id: i64) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    /// Adds a session. One that is there already keeps its ephemerals, also those elsewhere.
    pub(crate) fn create(
        &mut self,
        id: i64,
        timeout_ms: i32,
        password: [u8; PASSWORD_LEN],
        contact: Contact,
    ) {
        let (visited, first_ephemeral, ephemeral_count) = match self.by_id.get(&id) {
            Some(old) => {
                self.digest = self.digest.wrapping_sub(old.term(id));
                (old.visited, old.first_ephemeral, old.ephemeral_count)
            }
            None => (0, NONE, 0),
        };
        let session = Session { timeout_ms, password, contact, visited, first_ephemeral, ephemeral_count };
        self.digest = self.digest.wrapping_add(session.term(id));
        self.by_id.insert(id, session);
    }

    /// Makes a session known that lives on the first partition, if it is not.
    pub(crate) fn make_guest(&mut self, id: i64) {
        if !self.contains(id) {
            self.create(id, 0, [0; PASSWORD_LEN], Contact::default());
        }
    }

    /// Its client has come to another connection; returns its password. `None` when there is no such
    /// session.
    pub(crate) fn open(&mut self, id: i64, timeout_ms: i32, contact: Contact) -> Option<[u8; PASSWORD_LEN]> {
        let session = self.by_id.get_mut(&id)?;
        self.digest = self.digest.wrapping_sub(session.term(id));
        session.timeout_ms = timeout_ms;
        session.contact = contact;
        self.digest = self.digest.wrapping_add(session.term(id));
        Some(session.password)
    }

    /// Notes that it owns ephemerals on another partition (below [`PARTITIONS_MAX`]). `None` when there
    /// is no such session.
    pub(crate) fn visit(&mut self, id: i64, partition: u8) -> Option<()> {
        let session = self.by_id.get_mut(&id)?;
        self.digest = self.digest.wrapping_sub(session.term(id));
        session.visited |= 1 << partition;
        self.digest = self.digest.wrapping_add(session.term(id));
        Some(())
    }

    /// Removes a session whose ephemerals are gone.
    pub(crate) fn remove(&mut self, id: i64) {
        if let Some(session) = self.by_id.remove(&id) {
            debug_assert_eq!(session.first_ephemeral, NONE);
            self.digest = self.digest.wrapping_sub(session.term(id));
        }
    }

    /// The sessions' part of the tree's digest.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The same, computed anew.
    pub(crate) fn recomputed_digest(&self) -> u64 {
        self.by_id.iter().fold(0, |sum: u64, (id, session)| sum.wrapping_add(session.term(*id)))
    }

    /// The head of a session's list of ephemerals, which is about to get one more.
    pub(crate) fn gained_ephemeral(&mut self, id: i64) -> &mut u32 {
        let session = self.by_id.get_mut(&id).expect("an ephemeral is created in a session that is there");
        session.ephemeral_count += 1;
        &mut session.first_ephemeral
    }

    /// The head of a session's list of ephemerals, which is about to lose one.
    pub(crate) fn lost_ephemeral(&mut self, id: i64) -> &mut u32 {
        let session = self.by_id.get_mut(&id).expect("a session outlives its ephemerals");
        session.ephemeral_count -= 1;
        &mut session.first_ephemeral
    }
}

/// As many partitions can be noted in a session.
pub(crate) const PARTITIONS_MAX: u8 = 64;

/// Whether two passwords are the same, found in a time that does not depend on where the two differ.
#[must_use]
pub fn is_same_password(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}

impl Tree {
    /// Whether the session will be there once everything proposed has been applied: created or
    /// being created, and not closing.
    #[must_use]
    pub fn session_is_live(&self, session: i64) -> bool {
        self.overlay.session_is_live(session).unwrap_or_else(|| self.sessions.contains(session))
    }

    /// Where the session's client will be once everything proposed has been applied; `None` when
    /// the session will not be there.
    #[must_use]
    pub fn session_contact(&self, session: i64) -> Option<Contact> {
        self.proposed_session(session).map(|session| session.contact)
    }

    /// The other partitions where the session owns ephemerals, or has, once everything proposed has
    /// been applied: a bit for each. None for a session that will not be there.
    #[must_use]
    pub fn visited(&self, session: i64) -> u64 {
        self.proposed_session(session).map_or(0, |session| session.visited)
    }

    /// The session, once everything proposed has been applied.
    pub(crate) fn proposed_session(&self, session: i64) -> Option<OpenSession> {
        match self.overlay.session(session) {
            Some(proposed) => proposed.open,
            None => self.sessions.get(session).map(|session| {
                let Session { password, contact, visited, .. } = *session;
                OpenSession { password, contact, visited }
            }),
        }
    }

    /// Whether an update that is proposed and not applied concerns the session itself.
    #[must_use]
    pub fn session_is_changing(&self, session: i64) -> bool {
        self.overlay.session(session).is_some()
    }

    /// A session of the applied state.
    #[must_use]
    pub fn session(&self, id: i64) -> Option<SessionInfo> {
        self.sessions.get(id).map(|session| session.info(id))
    }

    /// Whether the applied state has this session, with this password.
    #[must_use]
    pub fn session_has_password(&self, id: i64, password: &[u8]) -> bool {
        self.sessions.get(id).is_some_and(|session| is_same_password(&session.password, password))
    }

    /// The sessions of the applied state, in no particular order. On a partition other than the first these
    /// are those that own something there, without a timeout and a password.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> {
        self.sessions.iter().map(|(id, session)| session.info(id))
    }

    /// Number of sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Paths of the session's ephemerals, the newest first.
    pub fn ephemerals_of(&self, session: i64) -> impl Iterator<Item = String> {
        let first = self.sessions.get(session).map_or(NONE, |session| session.first_ephemeral);
        self.owned_ids(first).map(|id| self.path_of(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_created_once_more_keeps_what_it_owns_elsewhere() {
        let mut sessions = Sessions::default();
        sessions.create(5, 1, [1; PASSWORD_LEN], Contact::default());
        assert_eq!(sessions.visit(6, 1), None);
        sessions.visit(5, 1).unwrap();
        sessions.create(5, 2, [2; PASSWORD_LEN], Contact::default());
        assert_eq!(sessions.get(5).unwrap().visited, 2);
        assert_eq!(sessions.digest(), sessions.recomputed_digest());
        sessions.remove(5);
        assert_eq!(sessions.digest(), 0);
    }
}
