//! Who speaks for each session, as a partition knows it that does not keep them, and what the one that does has yet to
//! tell. How the one learns of it, and what it refuses by it: `replica/session_table.rs`.

use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_tree::Contact;
use stoa_wire::ErrorCode;

/// What is known of the sessions. A partition that keeps them needs none.
#[derive(Default)]
pub(crate) struct SessionTable {
    /// How far the first partition had come with what is known here.
    pub(crate) position: u64,
    /// At a leader: nobody is known before that is. See [`Replica::learn_of_sessions`].
    pub(crate) needs: u64,
    /// At a leader: sessions of which something was decided that was not told yet.
    pub(crate) decided: HashMap<i64, Decided, FixedState>,
    /// How often what is known has changed.
    pub(crate) changes: u64,
    pub(crate) contacts: HashMap<i64, Contact, FixedState>,
}

/// At the first of several partitions: what the others have not been told.
pub(crate) struct SessionNews {
    pub(crate) changed: Vec<(i64, Option<Contact>)>,
    /// They are to be told everything.
    pub(crate) is_all: bool,
}

impl SessionNews {
    /// Of a state of which the others know nothing.
    pub(crate) fn of_everything() -> Self {
        Self { changed: Vec::new(), is_all: true }
    }

    /// Whether there is anything.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_all || !self.changed.is_empty()
    }
}

/// Where the first partition's timeline says what becomes of a session, and whether it was asked to tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decided {
    pub(crate) position: u64,
    pub(crate) is_asked: bool,
}

/// What is known of who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// He speaks for the session.
    Yes,
    /// He does not.
    No(ErrorCode),
    /// News of the session must come first.
    NotYet,
}

impl SessionTable {
    /// Whether this is the session's contact, which it became at `since`.
    pub(crate) fn knows(&self, session: i64, contact: Contact, since: u64) -> Known {
        let decided = self.decided.get(&session).map_or(0, |decided| decided.position);
        match self.contacts.get(&session) {
            _ if since.max(self.needs).max(decided) > self.position => Known::NotYet,
            None => Known::No(ErrorCode::SessionExpired),
            Some(current) if *current != contact => Known::No(ErrorCode::SessionMoved),
            Some(_) => Known::Yes,
        }
    }

    /// At a leader: at this position the first partition's timeline will say what becomes of a session, unless that
    /// is lost. What comes from now on is prepared behind it.
    pub(crate) fn is_decided(&mut self, session: i64, position: u64) {
        self.changes += 1;
        self.decided.insert(session, Decided { position, is_asked: false });
    }

    /// The first partition is led anew: what was decided before is told, or lost.
    pub(crate) fn nothing_is_decided(&mut self) {
        self.changes += 1;
        self.decided.clear();
    }

    /// The state with all sessions is another one since this position of the first partition's timeline, which is going to
    /// tell everything of it. Whoever spoke for one of them before may have asked something that waits still.
    pub(crate) fn is_replaced(&mut self, position: u64) {
        self.changes += 1;
        self.needs = self.needs.max(position);
    }

    /// All is known up to there.
    pub(crate) fn told(&mut self, position: u64) {
        self.position = position;
        self.decided.retain(|_, decided| decided.position > position);
    }
}
