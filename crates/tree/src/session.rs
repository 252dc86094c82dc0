//! Sessions: who they are, and which ephemerals are theirs.

use crate::digest;
use crate::sites::SiteSet;
use crate::slab::NONE;
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
    /// The site where its client is; see [`crate::sites`].
    pub(crate) home: u8,
    /// The largest zxid that had been told here when its client came from another site, 0 if it never did.
    pub(crate) came_zxid: i64,
    /// The other partitions where it owns ephemerals, or has: a bit for each.
    pub(crate) visited: u64,
    /// Head of the list of its ephemerals.
    pub(crate) first_ephemeral: u32,
    pub(crate) ephemeral_count: usize,
}

/// As many partitions can be noted in a session.
pub(crate) const PARTITIONS_MAX: u8 = 64;

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
        let Contact { server, opening } = self.contact;
        let term = digest::session_term(id, self.timeout_ms, &self.password, (server, opening));
        let term = if self.visited == 0 { term } else { digest::visitor_term(term, self.visited) };
        if self.home == 0 { term } else { digest::marked_term(term, self.home) }
    }

    /// The session as it will be, if nothing outstanding concerns it.
    pub(crate) fn to_open(&self) -> OpenSession {
        let Self { password, contact, visited, .. } = *self;
        OpenSession { password, contact, visited }
    }

    pub(crate) fn info(&self, id: i64) -> SessionInfo {
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
        let session = match self.by_id.get(&id) {
            Some(old) => {
                self.digest = self.digest.wrapping_sub(old.term(id));
                Session { timeout_ms, password, contact, ..old.clone() }
            }
            None => Session {
                timeout_ms,
                password,
                contact,
                home: 0,
                came_zxid: 0,
                visited: 0,
                first_ephemeral: NONE,
                ephemeral_count: 0,
            },
        };
        self.digest = self.digest.wrapping_add(session.term(id));
        self.by_id.insert(id, session);
    }

    /// Its client has come to another connection; returns its password. `None` when there is no such
    /// session.
    pub(crate) fn open(&mut self, id: i64, timeout_ms: i32, contact: Contact) -> Option<[u8; PASSWORD_LEN]> {
        self.change(id, |session| {
            session.timeout_ms = timeout_ms;
            session.contact = contact;
            session.password
        })
    }

    /// Its client is at a site. `None` when there is no such session.
    pub(crate) fn set_home(&mut self, id: i64, home: u8) -> Option<()> {
        self.change(id, |session| session.home = home)
    }

    /// The clients of all sessions are at a site.
    pub(crate) fn set_all_homes(&mut self, home: u8) {
        let ids: Vec<i64> = self.by_id.keys().copied().collect();
        for id in ids {
            self.set_home(id, home);
        }
    }

    /// Those whose clients are at one of some sites are another one's.
    pub(crate) fn move_homes(&mut self, from: SiteSet, to: u8) {
        let is_there = |session: &Session| from.contains(session.home);
        let ids: Vec<i64> =
            self.by_id.iter().filter(|(_, session)| is_there(session)).map(|(id, _)| *id).collect();
        for id in ids {
            self.change(id, |session| (session.home, session.contact) = (to, Contact::default()));
        }
    }

    /// Changes what the digest covers of a session. `None` when there is no such session.
    pub(crate) fn change<T>(&mut self, id: i64, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let session = self.by_id.get_mut(&id)?;
        self.digest = self.digest.wrapping_sub(session.term(id));
        let result = change(session);
        self.digest = self.digest.wrapping_add(session.term(id));
        Some(result)
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

/// Whether two passwords are the same, found in a time that does not depend on where the two differ.
#[must_use]
pub fn is_same_password(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}
