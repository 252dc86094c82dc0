//! What has been proposed and is not yet applied.
//!
//! A request is prepared against the state as it will be, so the overlay keeps, by path, how the
//! znodes touched by outstanding updates will look. An entry is made by the first such update and
//! dropped when the last one has been applied: from then on the applied state says the same.
//!
//! Closing a session touches nothing here but the session: a znode that it owns counts as deleted
//! from then on.
//!
//! What the data of outstanding updates is, and which children they create, stands in the updates. Preparing a
//! request needs neither, so the overlay is told only when programs are about to read the state as it will be
//! ([`Overlay::note_data`], [`Overlay::link_child`]).

use crate::Stamp;
use crate::going::Going;
use crate::hash::spread;
use crate::node::ZnodeKind;
use crate::partitions::Outstanding;
use crate::quota::Usage;
use crate::session::OpenSession;
use crate::sites::{OutstandingTokens, SiteId, TokenBefore};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

/// Whether there will be a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Gone,
    Here,
    /// On another partition: all that is known here is that its parent has it.
    Away,
}

/// A znode as it will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Projected {
    pub(crate) presence: Presence,
    pub(crate) kind: ZnodeKind,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    /// Kept alive by the znode, or by the touch that set it.
    pub(crate) acl: u32,
    pub(crate) data_len: usize,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    /// As far as the end of sessions does not raise it.
    pub(crate) pzxid: i64,
}

impl Projected {
    /// The same, after its data was set.
    pub(crate) fn set_at(self, stamp: Stamp) -> Self {
        Self { mtime: stamp.time_ms, mzxid: stamp.zxid, ..self }
    }

    fn owner(&self) -> Option<i64> {
        if let ZnodeKind::Ephemeral { session } = self.kind { Some(session) } else { None }
    }
}

#[derive(Debug)]
struct Entry {
    /// Keeps its allocation when the slot is used again.
    path: String,
    hash: u32,
    /// The last update that touches it; [`UNUSED`] when the slot is free.
    last_zxid: i64,
    /// Children created less children deleted by outstanding updates, to be added to the number
    /// in the applied state. Children that go with a closing session are not in it.
    child_delta: i64,
    state: Projected,
    data: NotedData,
    links: Links,
    owned: Owned,
}

/// The neighbours of an ephemeral in the list of those that outstanding updates touch, and that its session
/// owns, or did.
#[derive(Debug, Clone, Copy)]
struct Owned {
    next: u32,
    prev: u32,
}

/// The data that outstanding updates set, as far as it was noted. The bytes keep their allocation when the slot is
/// used again.
#[derive(Debug, Default)]
struct NotedData {
    /// The update that sets it. Once that is applied this is old: one that follows may be applied without having been
    /// noted.
    zxid: i64,
    set: SetTo,
    bytes: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SetTo {
    /// None that was noted sets it.
    #[default]
    Unknown,
    Null,
    Bytes,
}

impl NotedData {
    /// Data this long does not keep its allocation.
    const BYTES_KEPT: usize = 1024;

    fn set(&mut self, zxid: i64, data: Option<&[u8]>) {
        self.zxid = zxid;
        self.bytes.clear();
        self.bytes.extend_from_slice(data.unwrap_or_default());
        self.set = if data.is_some() { SetTo::Bytes } else { SetTo::Null };
    }

    fn get(&self) -> Option<Option<&[u8]>> {
        match self.set {
            SetTo::Unknown => None,
            SetTo::Null => Some(None),
            SetTo::Bytes => Some(Some(&self.bytes)),
        }
    }

    fn forget(&mut self) {
        self.set = SetTo::Unknown;
        self.bytes.clear();
        if self.bytes.capacity() > Self::BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}

/// The children that outstanding updates create, as a list from their parent's entry, as far as they were noted.
/// Slots of entries; [`NO_SLOT`] ends a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Links {
    parent: u32,
    first_child: u32,
    next: u32,
    prev: u32,
}

const NO_SLOT: u32 = u32::MAX;

impl Links {
    const NONE: Self = Self { parent: NO_SLOT, first_child: NO_SLOT, next: NO_SLOT, prev: NO_SLOT };
}

/// As many entries stay allocated when none is in use.
const ENTRIES_KEPT: usize = 4096;

const UNUSED: i64 = i64::MIN;

/// One change by one update.
#[derive(Debug)]
struct Touch {
    zxid: i64,
    slot: u32,
    child_delta: i64,
    /// An ACL that this touch keeps alive until it is applied.
    acl: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ProposedSession {
    zxid: i64,
    /// For a session that will be closed, the first update that does so: a second one finds nothing.
    closed_by: i64,
    /// `None` when it will be closed.
    pub(crate) open: Option<OpenSession>,
}

impl ProposedSession {
    fn is_closing(&self) -> bool {
        self.open.is_none()
    }
}

/// What an outstanding update will add to the usage of a quota.
#[derive(Debug)]
struct QuotaTouch {
    zxid: i64,
    prefix: Arc<str>,
    usage: Usage,
}

/// What all of them together will add to one.
#[derive(Debug, Default)]
struct QuotaSum {
    usage: Usage,
    touches: usize,
}

/// How a slot, or a session, was before it was changed.
#[derive(Debug)]
enum Undo {
    Created(u32),
    Changed { slot: u32, last_zxid: i64, child_delta: i64, state: Projected },
    Data { slot: u32, before: NotedData },
    Session { session: i64, before: Option<ProposedSession> },
    Token(TokenBefore),
}

/// Where an overlay can be taken back to.
#[derive(Debug)]
pub(crate) struct Savepoint {
    /// How much had been noted since the savepoint around this one; none when there is none around it.
    undo: Option<usize>,
    touches: usize,
    session_touches: usize,
    quota_touches: usize,
    partitions: Outstanding,
}

#[derive(Debug, Default)]
pub(crate) struct Overlay {
    by_path: HashTable<u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    touches: VecDeque<Touch>,
    sessions: HashMap<i64, ProposedSession, FixedState>,
    session_touches: VecDeque<(i64, i64)>,
    closing: usize,
    pub(crate) going: Going,
    /// Of each session, the first entry that is, or was, an ephemeral of it.
    owned: HashMap<i64, u32, FixedState>,
    quota_touches: VecDeque<QuotaTouch>,
    quota_sums: HashMap<Arc<str>, QuotaSum, FixedState>,
    pub(crate) partitions: Outstanding,
    pub(crate) tokens: OutstandingTokens,
    undo: Option<Vec<Undo>>,
}

impl Overlay {
    pub(crate) fn is_empty(&self) -> bool {
        let are_empty = self.partitions.is_empty() && self.tokens.is_empty();
        self.touches.is_empty() && self.session_touches.is_empty() && are_empty
    }

    fn slot_of(&self, path: &str, hash: u32) -> Option<u32> {
        if self.touches.is_empty() {
            return None;
        }
        self.by_path
            .find(spread(hash), |slot| {
                let entry = &self.entries[*slot as usize];
                entry.hash == hash && entry.path == path
            })
            .copied()
    }

    /// How the znode at `path` will be, if an outstanding update touches it.
    #[inline]
    pub(crate) fn get(&self, path: &str, hash: u32) -> Option<Projected> {
        self.slot_of(path, hash).map(|slot| self.entries[slot as usize].state)
    }

    /// The same, for the child `name` of `parent` (empty for the root).
    pub(crate) fn get_child(&self, parent: &str, name: &str, hash: u32) -> Option<Projected> {
        let is_it = |slot: &u32| {
            let path = &self.entries[*slot as usize].path;
            path.strip_prefix(parent).and_then(|tail| tail.strip_prefix('/')) == Some(name)
        };
        self.by_path.find(spread(hash), is_it).map(|slot| self.entries[*slot as usize].state)
    }

    /// By how much outstanding updates change the number of children of `path`.
    pub(crate) fn child_delta(&self, path: &str, hash: u32) -> i64 {
        self.slot_of(path, hash).map_or(0, |slot| self.entries[slot as usize].child_delta)
    }

    /// The ephemerals of a session that outstanding updates touch, also those that they delete.
    pub(crate) fn owned(&self, session: i64) -> impl Iterator<Item = (&str, Projected)> {
        let mut next = self.owned.get(&session).copied().unwrap_or(NO_SLOT);
        core::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            next = entry.owned.next;
            Some((entry.path.as_str(), entry.state))
        })
    }

    /// Whether any outstanding update makes an ephemeral, or touches one.
    #[inline]
    pub(crate) fn touches_ephemerals(&self) -> bool {
        !self.owned.is_empty()
    }

    /// Whether outstanding updates may touch a path with this hash.
    pub(crate) fn may_touch(&self, hash: u32) -> bool {
        let has_it = |slot: &u32| self.entries[*slot as usize].hash == hash;
        !self.touches.is_empty() && self.by_path.find(spread(hash), has_it).is_some()
    }

    /// Sets how the znode of an entry will be, and puts the entry into the list of its owner.
    #[inline]
    fn set_state(&mut self, slot: u32, state: Projected) {
        let before = core::mem::replace(&mut self.entries[slot as usize].state, state);
        if before.owner() != state.owner() {
            self.change_owner(slot, before.owner(), state.owner());
        }
    }

    fn change_owner(&mut self, slot: u32, before: Option<i64>, after: Option<i64>) {
        if let Some(session) = before {
            let Owned { next, prev } = self.entries[slot as usize].owned;
            if let Some(entry) = self.entries.get_mut(next as usize) {
                entry.owned.prev = prev;
            }
            match self.entries.get_mut(prev as usize) {
                Some(entry) => entry.owned.next = next,
                None if next == NO_SLOT => drop(self.owned.remove(&session)),
                None => drop(self.owned.insert(session, next)),
            }
        }
        if let Some(session) = after {
            let next = self.owned.insert(session, slot).unwrap_or(NO_SLOT);
            self.entries[slot as usize].owned = Owned { next, prev: NO_SLOT };
            if let Some(entry) = self.entries.get_mut(next as usize) {
                entry.owned.prev = slot;
            }
        }
    }

    /// Notes that the update `zxid` makes the znode at `path` look like `state`. When it is given
    /// an ACL, the touch takes over one use of it.
    pub(crate) fn touch(
        &mut self,
        zxid: i64,
        path: &str,
        hash: u32,
        state: Projected,
        child_delta: i64,
        acl: Option<u32>,
    ) {
        debug_assert!(!self.partitions.is_moving(), "nothing is prepared before a move is applied");
        let slot = match self.slot_of(path, hash) {
            Some(slot) => {
                let entry = &mut self.entries[slot as usize];
                if let Some(undo) = &mut self.undo {
                    let Entry { last_zxid, child_delta, state, .. } = *entry;
                    undo.push(Undo::Changed { slot, last_zxid, child_delta, state });
                }
                entry.last_zxid = zxid;
                entry.child_delta += child_delta;
                self.set_state(slot, state);
                slot
            }
            None => {
                let slot = self.new_entry(path, hash, zxid, child_delta, state);
                if let Some(undo) = &mut self.undo {
                    undo.push(Undo::Created(slot));
                }
                slot
            }
        };
        self.touches.push_back(Touch { zxid, slot, child_delta, acl });
    }

    /// A znode of which nothing but children that go is proposed has become what it is now.
    pub(crate) fn renew(&mut self, path: &str, hash: u32, applied: Projected) {
        debug_assert!(self.undo.is_none(), "nothing is applied while something is prepared");
        let Some(slot) = self.slot_of(path, hash) else { return };
        let state = &mut self.entries[slot as usize].state;
        if state.presence == Presence::Here && state.kind == applied.kind {
            *state = Projected { pzxid: state.pzxid.max(applied.pzxid), ..applied };
        }
    }

    fn new_entry(
        &mut self,
        path: &str,
        hash: u32,
        last_zxid: i64,
        child_delta: i64,
        state: Projected,
    ) -> u32 {
        let slot = if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[slot as usize];
            entry.path.push_str(path);
            entry.hash = hash;
            entry.last_zxid = last_zxid;
            entry.child_delta = child_delta;
            entry.state = state;
            slot
        } else {
            let (path, data, links) = (path.into(), NotedData::default(), Links::NONE);
            let owned = Owned { next: NO_SLOT, prev: NO_SLOT };
            self.entries.push(Entry { path, hash, last_zxid, child_delta, state, data, links, owned });
            u32::try_from(self.entries.len() - 1).expect("outstanding updates are bounded by memory")
        };
        let entries = &self.entries;
        self.by_path.insert_unique(spread(hash), slot, |slot| spread(entries[*slot as usize].hash));
        if state.owner().is_some() {
            self.change_owner(slot, None, state.owner());
        }
        slot
    }

    fn drop_entry(&mut self, slot: u32) {
        /// A path this long does not keep its allocation.
        const PATH_BYTES_KEPT: usize = 256;
        self.drop_contents(slot);
        let owner = self.entries[slot as usize].state.owner();
        if owner.is_some() {
            self.change_owner(slot, owner, None);
        }
        let entry = &mut self.entries[slot as usize];
        if let Ok(found) = self.by_path.find_entry(spread(entry.hash), |other| *other == slot) {
            found.remove();
        }
        entry.last_zxid = UNUSED;
        if entry.path.capacity() > PATH_BYTES_KEPT {
            entry.path = String::new();
        } else {
            entry.path.clear();
        }
        self.free.push(slot);
    }

    // Contents.

    /// Notes the data that the outstanding update `zxid` sets. What a part does that may still be undone,
    /// `can_be_undone` with it; nothing of what stands before the part does.
    pub(crate) fn note_data(
        &mut self,
        zxid: i64,
        (path, hash): (&str, u32),
        data: Option<&[u8]>,
        can_be_undone: bool,
    ) {
        let Some(slot) = self.slot_of(path, hash) else { return };
        let noted = &mut self.entries[slot as usize].data;
        if let Some(undo) = self.undo.as_mut().filter(|_| can_be_undone) {
            undo.push(Undo::Data { slot, before: core::mem::take(noted) });
        }
        noted.set(zxid, data);
    }

    /// The data that updates after `applied` set, if any does that was noted.
    pub(crate) fn data(&self, path: &str, hash: u32, applied: i64) -> Option<Option<&[u8]>> {
        let slot = self.slot_of(path, hash)?;
        let noted = &self.entries[slot as usize].data;
        if noted.zxid > applied { noted.get() } else { None }
    }

    /// Notes that an outstanding update creates a child. That is not undone: a child that is not there after all is
    /// known to be gone.
    pub(crate) fn link_child(&mut self, parent: (&str, u32), child: (&str, u32)) {
        let slots = (self.slot_of(parent.0, parent.1), self.slot_of(child.0, child.1));
        let (Some(parent), Some(child)) = slots else {
            return;
        };
        if self.entries[child as usize].links.parent != NO_SLOT {
            return;
        }
        let next = core::mem::replace(&mut self.entries[parent as usize].links.first_child, child);
        let links = &mut self.entries[child as usize].links;
        (links.parent, links.next, links.prev) = (parent, next, NO_SLOT);
        if next != NO_SLOT {
            self.entries[next as usize].links.prev = child;
        }
    }

    /// Children of a path that outstanding updates have created; they may be gone again, or be in the applied
    /// state by now.
    pub(crate) fn created_below(
        &self,
        path: &str,
        hash: u32,
    ) -> impl Iterator<Item = (&str, u32, Projected)> {
        let slot = self.slot_of(path, hash);
        let mut next = slot.map_or(NO_SLOT, |slot| self.entries[slot as usize].links.first_child);
        core::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            next = entry.links.next;
            Some((entry.path.as_str(), entry.hash, entry.state))
        })
    }

    /// Forgets the contents of an entry that is dropped. The children that it links stay, as those of a
    /// parent whose updates are all applied: so are they created, then.
    fn drop_contents(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.data.forget();
        if entry.links == Links::NONE {
            return;
        }
        let Links { parent, first_child, next, prev } = core::mem::replace(&mut entry.links, Links::NONE);
        let mut child = first_child;
        while let Some(entry) = self.entries.get_mut(child as usize) {
            child = entry.links.next;
            (entry.links.parent, entry.links.next, entry.links.prev) = (NO_SLOT, NO_SLOT, NO_SLOT);
        }
        if let Some(entry) = self.entries.get_mut(next as usize) {
            entry.links.prev = prev;
        }
        if let Some(entry) = self.entries.get_mut(prev as usize) {
            entry.links.next = next;
        } else if let Some(entry) = self.entries.get_mut(parent as usize) {
            entry.links.first_child = next;
        }
    }

    // Sessions.

    /// Whether the session will be there; `None` when no outstanding update says.
    pub(crate) fn session_is_live(&self, session: i64) -> Option<bool> {
        self.sessions.get(&session).map(|proposed| proposed.open.is_some())
    }

    /// What outstanding updates make of the session, if any does.
    #[inline]
    pub(crate) fn session(&self, session: i64) -> Option<&ProposedSession> {
        self.sessions.get(&session)
    }

    pub(crate) fn is_any_closing(&self) -> bool {
        self.closing > 0
    }

    /// Whether a znode of this kind goes away with a session that is closing.
    #[inline]
    pub(crate) fn is_closing(&self, kind: ZnodeKind) -> bool {
        self.closing > 0
            && matches!(kind, ZnodeKind::Ephemeral { session }
                if self.sessions.get(&session).is_some_and(ProposedSession::is_closing))
    }

    /// The update that closes the session with which a znode of this kind goes away.
    pub(crate) fn closing_zxid(&self, kind: ZnodeKind) -> Option<i64> {
        let ZnodeKind::Ephemeral { session } = kind else {
            return None;
        };
        self.sessions
            .get(&session)
            .filter(|proposed| proposed.is_closing())
            .map(|proposed| proposed.closed_by)
    }

    /// Notes that the update `zxid` creates, opens or changes the session, or closes it (`None`).
    pub(crate) fn touch_session(&mut self, zxid: i64, session: i64, open: Option<OpenSession>) {
        let before = self.sessions.get(&session).copied();
        let closed_by = before.filter(ProposedSession::is_closing).map_or(zxid, |before| before.closed_by);
        self.sessions.insert(session, ProposedSession { zxid, closed_by, open });
        let was_closing = before.is_some_and(|before| before.is_closing());
        self.closing += usize::from(open.is_none());
        self.closing -= usize::from(was_closing);
        if open.is_none() && !was_closing {
            self.going.begin(session);
        }
        self.session_touches.push_back((zxid, session));
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Session { session, before });
        }
    }

    // Tokens.

    /// Notes that the update `zxid` marks the znode at a path.
    pub(crate) fn touch_mark(&mut self, zxid: i64, path: &str, holder: SiteId) {
        let before = self.tokens.touch(zxid, path, holder);
        self.note_token(before);
    }

    /// Notes that the update `zxid` makes a site the home of a session.
    pub(crate) fn touch_home(&mut self, zxid: i64, session: i64, home: SiteId) {
        let before = self.tokens.touch_home(zxid, session, home);
        self.note_token(before);
    }

    /// Notes that the update `zxid` gives a site a read token of a znode, or returns it.
    pub(crate) fn touch_read(&mut self, zxid: i64, path: &str, site: SiteId, has: bool) {
        let before = self.tokens.touch_read(zxid, path, site, has);
        self.note_token(before);
    }

    fn note_token(&mut self, before: TokenBefore) {
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Token(before));
        }
    }

    // Quotas.

    /// Notes that the update `zxid` adds to the usage of the quota on `prefix`.
    pub(crate) fn touch_quota(&mut self, zxid: i64, prefix: &str, usage: Usage) {
        let prefix = match self.quota_sums.get_key_value(prefix) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(prefix),
        };
        let sum = self.quota_sums.entry(Arc::clone(&prefix)).or_default();
        sum.usage = sum.usage.plus(usage);
        sum.touches += 1;
        self.quota_touches.push_back(QuotaTouch { zxid, prefix, usage });
    }

    /// What outstanding updates will add to the usage of the quota on `prefix`.
    pub(crate) fn quota_usage(&self, prefix: &str) -> Usage {
        self.quota_sums.get(prefix).map_or(Usage::default(), |sum| sum.usage)
    }

    fn forget_quota_touch(&mut self, touch: &QuotaTouch) {
        let Some(sum) = self.quota_sums.get_mut(&touch.prefix) else { return };
        sum.usage = sum.usage.minus(touch.usage);
        sum.touches -= 1;
        if sum.touches == 0 {
            self.quota_sums.remove(&touch.prefix);
        }
    }

    // What becomes of it.

    /// Forgets what the update `zxid`, and those before it, touched: it is applied. Hands the ACLs
    /// that were kept alive to `release`.
    pub(crate) fn applied(&mut self, zxid: i64, mut release: impl FnMut(u32)) {
        debug_assert!(self.undo.is_none(), "a savepoint counts what is outstanding");
        while let Some(touch) = self.touches.pop_front_if(|touch| touch.zxid <= zxid) {
            if let Some(acl) = touch.acl {
                release(acl);
            }
            // A slot that an earlier touch of the same update has dropped is unused: no entry is
            // made between the two.
            let entry = &mut self.entries[touch.slot as usize];
            entry.child_delta -= touch.child_delta;
            if entry.last_zxid == touch.zxid {
                self.drop_entry(touch.slot);
            }
        }
        if self.touches.is_empty() && self.entries.capacity() > ENTRIES_KEPT {
            // Every entry is unused now; what a burst needed is given back.
            self.entries = Vec::new();
            self.free = Vec::new();
            self.by_path = HashTable::new();
            self.touches = VecDeque::new();
        }
        while let Some(touch) = self.quota_touches.pop_front_if(|touch| touch.zxid <= zxid) {
            self.forget_quota_touch(&touch);
        }
        self.partitions.applied(zxid);
        self.tokens.applied(zxid);
        while let Some((touched, session)) = self.session_touches.pop_front_if(|touch| touch.0 <= zxid) {
            if self.sessions.get(&session).is_some_and(|it| it.is_closing() && it.closed_by == touched) {
                self.going.end(session);
            }
            if self.sessions.get(&session).is_some_and(|proposed| proposed.zxid == touched) {
                let proposed = self.sessions.remove(&session);
                self.closing -= usize::from(proposed.is_some_and(|proposed| proposed.is_closing()));
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn abandon(&mut self, release: impl FnMut(u32)) {
        self.touches.drain(..).filter_map(|touch| touch.acl).for_each(release);
        *self = Self::default();
    }

    /// From here on, until [`Overlay::keep`] or [`Overlay::undo`], changes can be taken back. Savepoints are
    /// ended in the reverse of the order in which they were made.
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        let undo = self.undo.as_ref().map(Vec::len);
        self.undo.get_or_insert_default();
        Savepoint {
            undo,
            touches: self.touches.len(),
            session_touches: self.session_touches.len(),
            quota_touches: self.quota_touches.len(),
            partitions: self.partitions,
        }
    }

    /// Keeps what was done since the savepoint, unless it is taken back with what is around it.
    pub(crate) fn keep(&mut self, savepoint: Savepoint) {
        if savepoint.undo.is_none() {
            self.undo = None;
        }
    }

    /// Takes back what was done since the savepoint.
    pub(crate) fn undo(&mut self, to: Savepoint, release: impl FnMut(u32)) {
        self.touches.drain(to.touches..).filter_map(|touch| touch.acl).for_each(release);
        self.session_touches.truncate(to.session_touches);
        for touch in self.quota_touches.split_off(to.quota_touches) {
            self.forget_quota_touch(&touch);
        }
        self.partitions = to.partitions;
        let since = self.undo.as_mut().map(|noted| noted.split_off(to.undo.unwrap_or(0)));
        if to.undo.is_none() {
            self.undo = None;
        }
        for undo in since.unwrap_or_default().into_iter().rev() {
            match undo {
                Undo::Created(slot) => self.drop_entry(slot),
                Undo::Changed { slot, last_zxid, child_delta, state } => {
                    let entry = &mut self.entries[slot as usize];
                    entry.last_zxid = last_zxid;
                    entry.child_delta = child_delta;
                    self.set_state(slot, state);
                }
                Undo::Data { slot, before } => self.entries[slot as usize].data = before,
                Undo::Token(before) => self.tokens.undo(before),
                Undo::Session { session, before } => {
                    let after = match before {
                        Some(before) => self.sessions.insert(session, before),
                        None => self.sessions.remove(&session),
                    };
                    let is_closing = before.is_some_and(|before| before.is_closing());
                    let was_closing = after.is_some_and(|after| after.is_closing());
                    self.closing += usize::from(is_closing);
                    self.closing -= usize::from(was_closing);
                    if was_closing && !is_closing {
                        self.going.end(session);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Contact;

    #[test]
    fn sessions_are_undone_too() {
        let mut overlay = Overlay::default();
        let open = |visited| Some(OpenSession { password: [1; 16], contact: Contact::default(), visited });
        overlay.touch_session(1, 5, open(0));
        overlay.touch_session(2, 6, None);
        let savepoint = overlay.savepoint();
        overlay.touch_session(3, 5, open(1));
        overlay.touch_session(3, 5, None);
        overlay.touch_session(3, 7, None);
        assert_eq!(overlay.closing, 3);
        overlay.undo(savepoint, |_| ());
        assert_eq!((overlay.closing, overlay.session_touches.len()), (1, 2));
        assert_eq!(overlay.session(5).unwrap().open, open(0));
        assert!(overlay.session(7).is_none());
        overlay.applied(2, |_| ());
        assert!(overlay.is_empty() && overlay.sessions.is_empty());
        assert_eq!(overlay.closing, 0);
    }

    #[test]
    fn tokens_are_undone_too() {
        let mut overlay = Overlay::default();
        overlay.touch_mark(1, "/a", 2);
        overlay.touch_home(1, 5, 2);
        overlay.touch_read(1, "/a", 3, true);
        let before = alloc::format!("{:?}", overlay.tokens);
        let savepoint = overlay.savepoint();
        for path in ["/a", "/b", "/a"] {
            overlay.touch_mark(2, path, 4);
            overlay.touch_read(2, path, 3, false);
            overlay.touch_read(2, path, 5, true);
        }
        overlay.touch_home(2, 5, 4);
        overlay.touch_home(2, 6, 4);
        overlay.undo(savepoint, |_| ());
        assert_eq!(alloc::format!("{:?}", overlay.tokens), before);
        overlay.applied(1, |_| ());
        assert!(overlay.is_empty(), "nothing of zxid 2 is outstanding: {:?}", overlay.tokens);
    }

    #[test]
    fn what_is_undone_within_a_savepoint_leaves_what_was_done_before() {
        let mut overlay = Overlay::default();
        let state = |version| Projected {
            presence: Presence::Here,
            kind: ZnodeKind::Persistent,
            version,
            cversion: 0,
            aversion: 0,
            acl: 0,
            data_len: 0,
            mtime: 0,
            ctime: 0,
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
        };
        let version = |overlay: &Overlay, path, hash| overlay.get(path, hash).map(|state| state.version);
        let outer = overlay.savepoint();
        overlay.touch(1, "/a", 1, state(1), 0, None);
        let inner = overlay.savepoint();
        overlay.touch(1, "/a", 1, state(2), 0, None);
        overlay.touch(1, "/b", 2, state(2), 0, None);
        overlay.undo(inner, |_| ());
        assert_eq!((version(&overlay, "/a", 1), version(&overlay, "/b", 2)), (Some(1), None));
        let kept = overlay.savepoint();
        overlay.touch(1, "/b", 2, state(3), 0, None);
        overlay.keep(kept);
        assert_eq!(version(&overlay, "/b", 2), Some(3));
        overlay.undo(outer, |_| ());
        assert!(overlay.is_empty());
        assert_eq!((version(&overlay, "/a", 1), version(&overlay, "/b", 2)), (None, None));
    }

    #[test]
    fn the_first_of_two_ends_of_a_session_takes_its_znodes() {
        let mut overlay = Overlay::default();
        let kind = ZnodeKind::Ephemeral { session: 5 };
        assert_eq!(overlay.closing_zxid(kind), None);
        overlay.touch_session(3, 5, None);
        overlay.touch_session(4, 5, None);
        assert_eq!(overlay.closing_zxid(kind), Some(3));
        assert_eq!(overlay.closing_zxid(ZnodeKind::Ephemeral { session: 6 }), None);
        assert_eq!(overlay.closing_zxid(ZnodeKind::Persistent), None);
    }
}
