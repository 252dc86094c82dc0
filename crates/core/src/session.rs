//! Live sessions: who is connected where, and when a session has been silent for too long.
//!
//! What must survive (id, timeout, password, ephemerals) is part of the tree; here is only what a
//! server knows for itself. A touch is one store: the expiry queue is not touched with it, a
//! session found in a due bucket whose deadline has moved is put into a later one (lazy expiry).

use crate::peer::Heard;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use slab::Slab;
use stoa_front::{ConnectionId, SessionKey};
use stoa_partition::Now;
use stoa_tree::{SITE_MAX, SiteId};
use stoa_wire::PASSWORD_LEN;

/// Who keeps a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The ensemble: it is in the tree, and the leader judges it.
    Global,
    /// This server alone, until the leader's answer to the request that makes it a global one.
    Upgrading,
    /// This server alone, which also ends it.
    Local,
    /// This server alone, until the answer to its client, which has closed it, has left.
    Closed,
}

/// What a server knows of a session besides its replicated state.
#[derive(Debug, Clone)]
pub struct LiveSession {
    /// The id.
    pub id: i64,
    /// Negotiated timeout, milliseconds.
    pub timeout_ms: i32,
    /// The connection that it is attached to.
    pub connection: Option<ConnectionId>,
    deadline_us: u64,
    /// Its end has been proposed.
    closing: bool,
    /// Its client is here, or was here last.
    here: bool,
    scope: Scope,
    /// Where it stands in the queue. Other entries that it has there are old.
    bucket: Option<u64>,
}

impl LiveSession {
    /// When it ends unless its client is heard of, microseconds of the clock that never goes back.
    #[must_use]
    pub fn deadline_us(&self) -> u64 {
        self.deadline_us
    }

    /// Who keeps it.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }
}

/// The bytes of an id that do not say which server has given it.
const BELOW_SERVER: i64 = (1 << 56) - 1;
/// Set in every id of a session, whatever the clock says. So none is 0, which is no session, nor the owner that stands
/// for a container (`0x80` and zeros) or a TTL znode (`0xff`, two bytes of zeros, and the TTL), nor an id that is
/// lent: see [`crate::read_only`]. Clocks have it set from 2022 to 2039; who has given an id in these years can
/// give it again 17 years later.
const OF_SESSION: i64 = 1 << 55;

/// An id of the same server as the one given, from what is below that.
fn id_of(server: i64, below: i64) -> i64 {
    server & !BELOW_SERVER | below & BELOW_SERVER | OF_SESSION
}

/// Whether an id is one that is lent while a server only reads, and of no session.
pub(crate) fn is_lent(id: i64) -> bool {
    (0..OF_SESSION).contains(&id)
}

pub(crate) struct Sessions {
    live: Slab<LiveSession>,
    by_id: HashMap<i64, SessionKey, FixedState>,
    /// Whether this server decides when a global session ends.
    judges: bool,
    /// How many are not global ones.
    locals: usize,
    /// Sessions by the tick in which their deadline fell when they were put here.
    queue: BTreeMap<u64, Vec<(SessionKey, i64)>>,
    tick_us: u64,
    next_id: i64,
    /// Ids are drawn at random: others draw some of the same server.
    draws: bool,
    secret: [u8; 32],
}

impl Sessions {
    pub(crate) fn new(server_id: u8, tick_ms: u32, secret: [u8; 32], now: Now) -> Self {
        // ZooKeeper's scheme: the server in the top byte, then five bytes of the clock, then a count.
        let clock = ((now.wall_ms as u64) << 24) >> 8;
        let next_id = id_of(i64::from(server_id) << 56, clock as i64);
        Self {
            live: Slab::new(),
            by_id: HashMap::default(),
            judges: false,
            locals: 0,
            queue: BTreeMap::new(),
            tick_us: u64::from(tick_ms.max(1)) * 1000,
            next_id,
            draws: false,
            secret,
        }
    }

    /// At a reader, which no number tells from others: ids begin somewhere. That none is given twice is for the leader to
    /// see, who refuses one that there is; then the next one is asked for.
    pub(crate) fn drawing(mut self) -> Self {
        let drawn = self.new_password(0).first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
        self.next_id = id_of(self.next_id, drawn);
        self.draws = true;
        self
    }

    /// An id that no session has or had, as long as clocks go forward across restarts; ids of
    /// recovered sessions are skipped whatever the clock did. Where there are sites its last five bits say which one
    /// this is: servers of two sites may have the same number.
    pub(crate) fn new_id(&mut self, site: Option<SiteId>) -> i64 {
        let id = self.next_id;
        let Some(site) = site else {
            self.next_id = id_of(id, id.wrapping_add(1));
            return id;
        };
        let id = id_of(id, id.wrapping_add(i64::from(SITE_MAX)) & !i64::from(SITE_MAX) | i64::from(site));
        self.next_id = id_of(id, id.wrapping_add(1));
        id
    }

    /// A password that cannot be derived from the id without the secret of this server's run.
    pub(crate) fn new_password(&self, id: i64) -> [u8; PASSWORD_LEN] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC takes keys of any length");
        mac.update(&id.to_be_bytes());
        let digest = mac.finalize().into_bytes();
        let mut password = [0; PASSWORD_LEN];
        password.copy_from_slice(&digest[..PASSWORD_LEN]);
        password
    }

    /// A session exists: from a handshake, or found at recovery (then its timer starts anew).
    pub(crate) fn insert(&mut self, id: i64, timeout_ms: i32, now: Now) -> SessionKey {
        self.insert_with(id, timeout_ms, Scope::Global, now)
    }

    /// A session that this server alone keeps.
    pub(crate) fn insert_local(&mut self, id: i64, timeout_ms: i32, now: Now) -> SessionKey {
        self.insert_with(id, timeout_ms, Scope::Local, now)
    }

    fn insert_with(&mut self, id: i64, timeout_ms: i32, scope: Scope, now: Now) -> SessionKey {
        if let Some(&key) = self.by_id.get(&id) {
            return key;
        }
        if id >> 56 == self.next_id >> 56 && id >= self.next_id && !self.draws {
            // The clock was set back. The run that gave it may have given the next ones too, which are not
            // applied here yet: this run begins where that one's millisecond ends.
            self.next_id = id_of(id, (id | 0xffff).wrapping_add(1));
        }
        let deadline_us = now.mono_us + timeout_us(timeout_ms);
        let (connection, closing, here, bucket) = (None, false, false, None);
        let session = LiveSession { id, timeout_ms, connection, deadline_us, closing, here, scope, bucket };
        let key = self.live.insert(session);
        self.by_id.insert(id, key);
        self.locals += usize::from(scope != Scope::Global);
        self.enqueue(key, deadline_us);
        key
    }

    /// Whether there is one.
    pub(crate) fn contains(&self, id: i64) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(crate) fn remove(&mut self, id: i64) -> Option<LiveSession> {
        let key = self.by_id.remove(&id)?;
        // The queue's entry is dropped when its bucket is due: it is recognised by the id.
        let session = self.live.remove(key);
        self.locals -= usize::from(session.scope != Scope::Global);
        Some(session)
    }

    /// How many sessions this server alone keeps.
    pub(crate) fn locals(&self) -> usize {
        self.locals
    }

    /// A session that this server alone keeps.
    pub(crate) fn local(&self, id: i64) -> Option<SessionKey> {
        let key = *self.by_id.get(&id).filter(|_| self.locals > 0)?;
        self.live.get(key).filter(|session| session.scope != Scope::Global).map(|_| key)
    }

    /// A session of this server alone that its client has closed.
    pub(crate) fn is_closed(&self, key: SessionKey) -> bool {
        self.live.get(key).is_some_and(|session| session.scope == Scope::Closed)
    }

    /// Who keeps a session is somebody else now. True if it was another one before.
    pub(crate) fn set_scope(&mut self, key: SessionKey, scope: Scope) -> bool {
        let Some(session) = self.live.get_mut(key) else { return false };
        self.locals -= usize::from(session.scope != Scope::Global);
        self.locals += usize::from(scope != Scope::Global);
        core::mem::replace(&mut session.scope, scope) != scope
    }

    /// What would have made sessions global was refused.
    pub(crate) fn stop_upgrading(&mut self) {
        for (_, session) in self.live.iter_mut().filter(|(_, session)| session.scope == Scope::Upgrading) {
            session.scope = Scope::Local;
        }
    }

    pub(crate) fn get(&self, key: SessionKey) -> Option<&LiveSession> {
        self.live.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveSession> {
        self.live.iter().map(|(_, session)| session)
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// The client has been heard of.
    #[inline]
    pub(crate) fn touch(&mut self, key: SessionKey, now: Now) {
        if let Some(session) = self.live.get_mut(key) {
            session.deadline_us = now.mono_us + timeout_us(session.timeout_ms);
        }
    }

    /// The session moves to a connection (or away from all); returns the one it was on.
    pub(crate) fn attach(&mut self, key: SessionKey, to: Option<ConnectionId>) -> Option<ConnectionId> {
        let session = self.live.get_mut(key)?;
        session.here |= to.is_some();
        core::mem::replace(&mut session.connection, to)
    }

    /// The connection that a session is on.
    pub(crate) fn connection_of(&self, id: i64) -> Option<ConnectionId> {
        self.live.get(*self.by_id.get(&id)?)?.connection
    }

    /// The session moves to another server; returns the connection that it was on here.
    pub(crate) fn leave(&mut self, id: i64) -> Option<ConnectionId> {
        let session = self.live.get_mut(*self.by_id.get(&id)?)?;
        session.here = false;
        session.connection.take()
    }

    /// A reconnect may ask for another timeout.
    pub(crate) fn set_timeout(&mut self, key: SessionKey, timeout_ms: i32, now: Now) {
        let Some(session) = self.live.get_mut(key) else { return };
        session.timeout_ms = timeout_ms;
        session.deadline_us = now.mono_us + timeout_us(timeout_ms);
        // A shorter timeout needs an earlier place in the queue.
        let deadline_us = session.deadline_us;
        self.enqueue(key, deadline_us);
    }

    pub(crate) fn set_closing(&mut self, id: i64, closing: bool) {
        if let Some(session) = self.by_id.get(&id).and_then(|&key| self.live.get_mut(key)) {
            session.closing = closing;
        }
    }

    /// What had been proposed is void: no session is closing any more. Silent ones are found again
    /// at the next tick.
    pub(crate) fn reopen_closing(&mut self, now: Now) {
        let reopened: Vec<_> = self
            .live
            .iter_mut()
            .filter(|(_, session)| session.closing)
            .map(|(key, session)| {
                session.closing = false;
                key
            })
            .collect();
        for key in reopened {
            self.enqueue(key, now.mono_us);
        }
    }

    /// Sessions that have been silent for their timeout and are not closing yet; marks them closing.
    /// Those that are `held_up` count as heard of: they may have spoken. Global ones wait unless `judging`.
    pub(crate) fn expired(
        &mut self,
        now: Now,
        judging: bool,
        held_up: impl Fn(&LiveSession) -> bool,
    ) -> Vec<i64> {
        let (mut expired, mut waiting) = (Vec::new(), Vec::new());
        while let Some(entry) = self.queue.first_entry() {
            if *entry.key() > now.mono_us / self.tick_us {
                break;
            }
            let (bucket, entries) = entry.remove_entry();
            for (key, id) in entries {
                let is_its = |session: &&mut LiveSession| session.id == id && session.bucket == Some(bucket);
                let Some(session) = self.live.get_mut(key).filter(is_its) else {
                    continue;
                };
                session.bucket = None;
                if session.closing {
                    continue;
                }
                if session.scope == Scope::Global && !judging {
                    waiting.push(key);
                    continue;
                }
                if held_up(session) {
                    session.deadline_us = now.mono_us + timeout_us(session.timeout_ms);
                }
                if session.deadline_us > now.mono_us {
                    let deadline_us = session.deadline_us;
                    self.enqueue(key, deadline_us);
                } else {
                    session.closing = true;
                    expired.push(id);
                }
            }
        }
        for key in waiting {
            self.enqueue(key, now.mono_us);
        }
        expired
    }

    /// This server leads: it judges from now on. Whatever was heard before was heard by others, so
    /// everybody has the whole timeout, but those whom nobody else knows.
    pub(crate) fn judge(&mut self, now: Now) {
        self.judges = true;
        for (_, session) in self.live.iter_mut().filter(|(_, session)| session.scope == Scope::Global) {
            session.closing = false;
            session.deadline_us = now.mono_us + timeout_us(session.timeout_ms);
        }
        self.queue_all();
    }

    /// Another server leads, or none. Ends that were proposed here may be lost with the lead: whoever leads next judges
    /// global sessions anew, but those that are still on their way to be global ones only this server knows.
    pub(crate) fn stop_judging(&mut self) {
        self.judges = false;
        for (_, session) in self.live.iter_mut().filter(|(_, session)| session.scope != Scope::Global) {
            session.closing = false;
        }
        self.queue_all();
    }

    fn queue_all(&mut self) {
        self.queue.clear();
        if !self.judges && self.locals == 0 {
            // They are put there again when that changes.
            return;
        }
        let due = self.live.iter_mut().map(|(key, session)| {
            session.bucket = None;
            (key, session.deadline_us)
        });
        for (key, deadline_us) in due.collect::<Vec<_>>() {
            self.enqueue(key, deadline_us);
        }
    }

    /// Another server has heard of the client.
    pub(crate) fn heard_of(&mut self, id: i64, silent_ms: u32, now: Now) {
        if let Some(session) = self.by_id.get(&id).and_then(|&key| self.live.get_mut(key)) {
            let heard_us = now.mono_us.saturating_sub(u64::from(silent_ms) * 1000);
            session.deadline_us = session.deadline_us.max(heard_us + timeout_us(session.timeout_ms));
        }
    }

    /// For how long nothing has been heard of the client, as far as this server knows; milliseconds.
    pub(crate) fn silent_ms(&self, id: i64, now: Now) -> Option<u32> {
        let session = self.live.get(*self.by_id.get(&id)?)?;
        let heard_us = session.deadline_us.saturating_sub(timeout_us(session.timeout_ms));
        Some(u32::try_from(now.mono_us.saturating_sub(heard_us) / 1000).unwrap_or(u32::MAX))
    }

    /// Whether the client of a session is here, or was here last.
    pub(crate) fn is_here(&self, id: i64) -> bool {
        self.by_id.get(&id).and_then(|&key| self.live.get(key)).is_some_and(|session| session.here)
    }

    /// The client of a session that its contact server may be elsewhere has been heard of here.
    pub(crate) fn heard_here(&mut self, id: i64, now: Now) {
        if let Some(&key) = self.by_id.get(&id) {
            self.touch(key, now);
            if let Some(session) = self.live.get_mut(key) {
                session.here = true;
            }
        }
    }

    /// Those whose clients are or were here and were heard of after `since_us`, or may have spoken.
    pub(crate) fn heard_since(
        &self,
        since_us: u64,
        now: Now,
        held_up: impl Fn(ConnectionId) -> bool,
    ) -> Vec<Heard> {
        let mut heard = Vec::new();
        for (_, session) in &self.live {
            if !session.here || session.scope != Scope::Global {
                continue;
            }
            let heard_us = session.deadline_us.saturating_sub(timeout_us(session.timeout_ms));
            let heard_us = if session.connection.is_some_and(&held_up) { now.mono_us } else { heard_us };
            if heard_us >= since_us {
                let silent_ms = now.mono_us.saturating_sub(heard_us) / 1000;
                let silent_ms = u32::try_from(silent_ms).unwrap_or(u32::MAX);
                heard.push(Heard { session: session.id, silent_ms });
            }
        }
        heard
    }

    /// The global sessions are these from now on, with their timeouts in milliseconds; their timers start anew. Those
    /// that this server alone keeps stay, but for those that have become global: what was known of them here may be
    /// from before they came back elsewhere.
    pub(crate) fn replace_global(&mut self, global: impl Iterator<Item = (i64, i32)>, now: Now) {
        let gone = self.live.iter().filter(|(_, session)| session.scope == Scope::Global);
        for id in gone.map(|(_, session)| session.id).collect::<Vec<_>>() {
            self.remove(id);
        }
        for (id, timeout_ms) in global {
            self.remove(id);
            self.insert(id, timeout_ms, now);
        }
        self.queue_all();
    }

    /// When [`Sessions::expired`] may next have something to say.
    pub(crate) fn next_wake_us(&self) -> Option<u64> {
        self.queue.keys().next().map(|bucket| bucket * self.tick_us)
    }

    fn enqueue(&mut self, key: SessionKey, deadline_us: u64) {
        let is_global = || self.live.get(key).is_none_or(|session| session.scope == Scope::Global);
        if !self.judges && is_global() {
            return;
        }
        // Rounded up: a session is never ended early.
        let bucket = deadline_us / self.tick_us + 1;
        let Some(session) = self.live.get_mut(key).filter(|session| session.bucket != Some(bucket)) else {
            return;
        };
        // An entry that it has elsewhere is dropped when its bucket is due: else a session would have one
        // more, for ever, each time that its client comes back.
        session.bucket = Some(bucket);
        self.queue.entry(bucket).or_default().push((key, session.id));
    }
}

fn timeout_us(timeout_ms: i32) -> u64 {
    u64::try_from(timeout_ms).unwrap_or(0) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: &LiveSession) -> bool {
        false
    }

    fn at(ms: u64) -> Now {
        Now { mono_us: ms * 1000, wall_ms: 1_700_000_000_000 }
    }

    #[test]
    fn no_two_sites_give_the_same_id() {
        let mut given = alloc::collections::BTreeSet::new();
        for site in [None, Some(1), Some(2), Some(SITE_MAX)] {
            let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
            let ids: Vec<i64> = (0..100).map(|_| sessions.new_id(site)).collect();
            assert!(ids.is_sorted());
            if site.is_some() {
                assert!(ids.into_iter().all(|id| given.insert(id)));
            }
        }
    }

    #[test]
    fn a_session_expires_after_its_timeout_and_never_before() {
        let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
        sessions.judge(at(0));
        let id = sessions.new_id(None);
        let key = sessions.insert(id, 1000, at(0));
        sessions.touch(key, at(900));
        assert!(sessions.expired(at(1500), true, nobody).is_empty());
        assert!(sessions.expired(at(1899), true, nobody).is_empty());
        assert_eq!(sessions.expired(at(2001), true, nobody), [id]);
        assert!(sessions.expired(at(9000), true, nobody).is_empty(), "it is reported once");
    }

    #[test]
    fn a_reused_slot_does_not_inherit_the_queue_entry() {
        let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
        sessions.judge(at(0));
        let first = sessions.new_id(None);
        sessions.insert(first, 1000, at(0));
        sessions.remove(first);
        let second = sessions.new_id(None);
        sessions.insert(second, 5000, at(0));
        assert!(sessions.expired(at(2000), true, nobody).is_empty());
        assert_eq!(sessions.expired(at(5200), true, nobody), [second]);
    }

    #[test]
    fn a_shorter_timeout_takes_effect_at_once() {
        let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
        sessions.judge(at(0));
        let id = sessions.new_id(None);
        let key = sessions.insert(id, 60_000, at(0));
        sessions.set_timeout(key, 1000, at(0));
        assert_eq!(sessions.expired(at(1200), true, nobody), [id]);
    }

    #[test]
    fn what_was_known_of_a_session_that_became_global_elsewhere_is_forgotten() {
        let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
        let (upgraded, local) = (sessions.new_id(None), sessions.new_id(None));
        for id in [upgraded, local] {
            sessions.insert_local(id, 1000, at(0));
        }
        let key = sessions.local(upgraded).unwrap();
        sessions.set_scope(key, Scope::Upgrading);
        // The state of another server says that it has another timeout since it came back there.
        sessions.replace_global([(upgraded, 5000)].into_iter(), at(100));
        assert_eq!((sessions.local(upgraded), sessions.locals(), sessions.len()), (None, 1, 2));
        sessions.judge(at(200));
        assert_eq!(sessions.expired(at(5100), true, nobody), [local]);
        assert_eq!(sessions.expired(at(5400), true, nobody), [upgraded]);
    }

    #[test]
    fn a_session_that_comes_back_often_stands_in_the_queue_once() {
        let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
        sessions.judge(at(0));
        let id = sessions.new_id(None);
        let key = sessions.insert(id, 1000, at(0));
        (1..=500).for_each(|ms| sessions.set_timeout(key, 1000, at(ms)));
        assert!(sessions.expired(at(1550), true, nobody).is_empty());
        assert_eq!(sessions.queue.values().map(Vec::len).sum::<usize>(), 1);
        sessions.set_timeout(key, 500, at(1550));
        assert_eq!(sessions.expired(at(2100), true, nobody), [id]);
        assert!(sessions.expired(at(9000), true, nobody).is_empty(), "it is reported once");
    }

    #[test]
    fn closing_sessions_are_found_again_when_their_end_was_refused() {
        let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
        sessions.judge(at(0));
        let id = sessions.new_id(None);
        sessions.insert(id, 1000, at(0));
        assert_eq!(sessions.expired(at(1200), true, nobody), [id]);
        sessions.reopen_closing(at(1300));
        assert_eq!(sessions.expired(at(1500), true, nobody), [id]);
    }

    #[test]
    fn the_end_of_a_session_that_was_not_global_yet_may_be_lost_with_the_lead() {
        let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
        sessions.judge(at(0));
        let id = sessions.new_id(None);
        let key = sessions.insert_local(id, 1000, at(0));
        sessions.set_scope(key, Scope::Upgrading);
        // Its client has closed it, and this server has prepared that.
        sessions.set_closing(id, true);
        sessions.stop_judging();
        assert_eq!(sessions.expired(at(1200), false, nobody), [id]);
    }

    #[test]
    fn recovered_ids_are_not_given_again() {
        let mut sessions = Sessions::new(1, 100, [7; 32], at(0));
        sessions.judge(at(0));
        let taken = sessions.next_id + 10;
        sessions.insert(taken, 1000, at(0));
        let unapplied = taken + 20;
        assert!(sessions.new_id(None) > unapplied, "nor are those that were given right after them");
    }

    #[test]
    fn passwords_depend_on_id_and_secret() {
        let one = Sessions::new(1, 100, [7; 32], at(0));
        let other = Sessions::new(1, 100, [8; 32], at(0));
        assert_ne!(one.new_password(1), one.new_password(2));
        assert_ne!(one.new_password(1), other.new_password(1));
        assert_eq!(one.new_password(1), one.new_password(1));
    }
}
