//! Sessions: who they are, and which ephemerals are theirs.

use crate::digest;
use crate::slab::NONE;
use crate::tree::Tree;
use alloc::string::String;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_wire::PASSWORD_LEN;

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) timeout_ms: i32,
    pub(crate) password: [u8; PASSWORD_LEN],
    /// Head of the list of its ephemerals.
    pub(crate) first_ephemeral: u32,
    pub(crate) ephemeral_count: usize,
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
        digest::session_term(id, self.timeout_ms, &self.password)
    }

    fn info(&self, id: i64) -> SessionInfo {
        SessionInfo {
            id,
            timeout_ms: self.timeout_ms,
            password: self.password,
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

    /// Adds a session. One that is there already keeps its ephemerals.
    pub(crate) fn create(&mut self, id: i64, timeout_ms: i32, password: [u8; PASSWORD_LEN]) {
        let (first_ephemeral, ephemeral_count) = match self.by_id.get(&id) {
            Some(old) => {
                self.digest = self.digest.wrapping_sub(old.term(id));
                (old.first_ephemeral, old.ephemeral_count)
            }
            None => (NONE, 0),
        };
        let session = Session { timeout_ms, password, first_ephemeral, ephemeral_count };
        self.digest = self.digest.wrapping_add(session.term(id));
        self.by_id.insert(id, session);
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

impl Tree {
    /// Whether the session will be there once everything proposed has been applied: created or
    /// being created, and not closing.
    #[must_use]
    pub fn session_is_live(&self, session: i64) -> bool {
        self.overlay.session_is_live(session).unwrap_or_else(|| self.sessions.contains(session))
    }

    /// A session of the applied state.
    #[must_use]
    pub fn session(&self, id: i64) -> Option<SessionInfo> {
        self.sessions.get(id).map(|session| session.info(id))
    }

    /// The sessions of the applied state, in no particular order.
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
