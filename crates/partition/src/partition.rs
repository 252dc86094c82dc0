//! One partition: its part of the tree, its watches, and the entry under construction.

use crate::asked::Asked;
use crate::counts::Proposals;
use crate::entry::{begin_part, begin_update, put_elsewhere, put_failure, put_refusal, put_seen, put_step};
use crate::extensions::{Extensions, NotProposed, ProgramLimits};
use crate::outstanding::Outstanding;
use crate::step::{STEPS_MAX, end_of, step_of};
use crate::time::{Now, Stopwatch};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_placement::{FIRST, site_zxid_after, zxid_after};
use stoa_timeline::{EntryId, Origin};
use stoa_tree::{
    Caller, Contact, Found, LackedTokens, Part, Refusal, SiteId, Stamp, TokenRefusal, Tree, Watches,
};
use stoa_wire::Timestamp;
use stoa_wire::{ErrorCode, PASSWORD_LEN, Reader, Request};

/// What others know of the last step of the entry under construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastStep {
    /// Nobody will follow it.
    Open,
    /// Somebody will, but nobody has been told yet: so what is added follows nothing that follows this.
    Promised,
    /// It may be followed already.
    Told,
}

/// The state of a partition, and what its leader has prepared of what comes next.
pub struct Partition {
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    pub(crate) extensions: Extensions,
    /// The entry under construction.
    pub(crate) entry: Vec<u8>,
    /// The entries before it that are not applied.
    outstanding: Outstanding,
    pub(crate) proposed_zxid: i64,
    /// So many requests have numbers that sites know them by, those that are not applied among them.
    pub(crate) numbered: u64,
    /// Which partition it is, of how many.
    own: u8,
    partitions: u8,
    /// What the entry under construction rests on.
    rests_on: Timestamp,
    abandoned: u64,
    /// Which entries of other partitions it follows: the last of each, which may not be committed.
    follows: Vec<EntryId>,
    /// So many steps of it have ended, and whether others follow what is behind them: see [`crate::step`].
    steps: u16,
    step: LastStep,
    /// The updates that are in entries and not proposed.
    pub(crate) made: Proposals,
}

impl Partition {
    /// `hash_seed` keeps clients from choosing paths whose watches collide.
    pub fn new(tree: Tree, hash_seed: u64, (own, partitions): (u8, u8)) -> Self {
        let proposed_zxid = tree.last_prepared_zxid();
        Self {
            tree,
            watches: Watches::new(hash_seed),
            extensions: Extensions::default(),
            entry: Vec::new(),
            outstanding: Outstanding::default(),
            proposed_zxid,
            numbered: 0,
            own,
            partitions,
            rests_on: Timestamp::new(partitions),
            abandoned: 0,
            follows: Vec::new(),
            steps: 0,
            step: LastStep::Open,
            made: Proposals::default(),
        }
    }

    /// Its part of the tree.
    #[must_use]
    #[inline]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The same, to apply what is committed, to take snapshots, and to prepare parts of operations over several
    /// partitions.
    #[inline]
    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Its watches.
    #[must_use]
    #[inline]
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// The same, to set and to remove some.
    #[inline]
    pub fn watches_mut(&mut self) -> &mut Watches {
        &mut self.watches
    }

    /// What is known of programs.
    #[must_use]
    #[inline]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// The same, to ask for what it tells once.
    #[inline]
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// The tree, the watches and the programs at once.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut Tree, &mut Watches, &Extensions) {
        (&mut self.tree, &mut self.watches, &self.extensions)
    }

    /// Takes the tree of another server's state. What it says of programs is read with [`Partition::load_programs`].
    pub fn replace_tree(&mut self, tree: Tree) {
        self.tree = tree;
    }

    /// Reads from the tree what is known of programs.
    pub fn load_programs(&mut self, limits: ProgramLimits, stopwatch: Stopwatch) {
        self.extensions = Extensions::new(limits, stopwatch, &self.tree);
    }

    /// Which partition it is, of how many.
    pub(crate) fn share(&self) -> (u8, u8) {
        (self.own, self.partitions)
    }

    /// zxid of the last proposed update.
    #[inline]
    pub fn proposed_zxid(&self) -> i64 {
        self.proposed_zxid
    }

    /// Bytes proposed and not applied.
    #[inline]
    pub fn queued_bytes(&self) -> usize {
        self.entry_bytes() + self.outstanding.proposed_bytes()
    }

    /// Bytes of the entry under construction.
    #[inline]
    pub fn entry_bytes(&self) -> usize {
        self.entry.len() + self.outstanding.held_up_bytes()
    }

    /// Prepares a write, without programs, and, if it is not refused, proposes the update.
    pub(crate) fn propose_plain(
        &mut self,
        origin: Option<Origin>,
        request: &Request<'_>,
        found: Option<&Found<'_>>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<(), Refusal> {
        self.item(origin, now, |tree, stamp, entry| tree.prepare_found(request, found, caller, stamp, entry))
    }

    /// Prepares a new session.
    pub fn propose_session(
        &mut self,
        origin: Origin,
        session: i64,
        timeout_ms: i32,
        password: [u8; PASSWORD_LEN],
        now: Now,
    ) -> Result<(), Refusal> {
        self.item(Some(origin), now, |tree, stamp, entry| {
            let contact = contact(origin);
            Ok(tree.prepare_create_session(session, timeout_ms, password, contact, stamp, entry)?)
        })
    }

    /// A session comes back on another connection.
    pub fn propose_session_open(
        &mut self,
        origin: Origin,
        session: i64,
        timeout_ms: i32,
        password: &[u8],
        now: Now,
    ) -> Result<(), Refusal> {
        self.item(Some(origin), now, |tree, stamp, entry| {
            let contact = contact(origin);
            Ok(tree.prepare_open_session(session, timeout_ms, password, contact, stamp, entry)?)
        })
    }

    /// A session goes to another site, see [`stoa_tree::Tree::prepare_home`]. That it does, or why not, is the outcome of
    /// a request of that site.
    pub fn propose_home(&mut self, origin: Origin, session: i64, password: &[u8], to: SiteId, now: Now) {
        let proposed = self.item(Some(origin), now, |tree, stamp, entry| {
            Ok(tree.prepare_home(session, password, to, stamp, entry)?)
        });
        if let Err(refusal) = proposed {
            self.propose_refusal(origin, refusal);
        }
    }

    /// Prepares the end of a session.
    pub fn propose_session_end(&mut self, origin: Option<Origin>, session: i64, now: Now) {
        if self.tree.own_site().is_some_and(|own| self.tree.home_to_be(session) != own) {
            // It is on its way to another site, which judges it from now on.
            return;
        }
        self.extensions.begin_for_here();
        let ending = self.ending(session);
        let start = self.entry.len();
        let ended = self.item(origin, now, |tree, stamp, entry| {
            tree.prepare_close_session(session, stamp, entry);
            Ok(())
        });
        debug_assert_eq!(ended, Ok(()));
        self.react_to(start, origin, &ending, now);
    }

    /// A new content of `/zookeeper/config`; `text` is told the update's zxid.
    pub fn propose_config(
        &mut self,
        origin: Option<Origin>,
        text: impl FnOnce(i64) -> String,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<(), Refusal> {
        self.item(origin, now, |tree, stamp, entry| {
            tree.prepare_config(text(stamp.zxid).as_bytes(), caller, stamp, entry)
        })
    }

    /// What a contact server has asked. There is an outcome, unless programs lack tokens of other sites for it: then
    /// nothing has been done.
    ///
    /// # Errors
    /// Which tokens.
    pub fn propose_asked(&mut self, origin: Origin, asked: &Asked<'_>, now: Now) -> Result<(), LackedTokens> {
        let proposed = match asked {
            Asked::CreateSession { seen, session, timeout_ms, password } => {
                self.depends_on(seen);
                self.propose_session(origin, *session, *timeout_ms, *password, now).map_err(NotProposed::from)
            }
            Asked::OpenSession { seen, session, timeout_ms, password } => {
                self.depends_on(seen);
                let opened = self.propose_session_open(origin, *session, *timeout_ms, password, now);
                opened.map_err(NotProposed::from)
            }
            // No client asks that.
            Asked::Move { .. } | Asked::SiteStep(_) | Asked::SiteItems { .. } => {
                Err(ErrorCode::Unimplemented.into())
            }
            Asked::Write { session, opening, after, opcode, identities, body } => {
                let contact = Contact { server: origin.server, opening: *opening };
                let caller = Caller { session: *session, identities };
                self.depends_on(&after.seen);
                let checked = if self.own == FIRST { self.check_contact(*session, contact) } else { Ok(()) };
                checked.map_err(NotProposed::from).and_then(|()| {
                    let request = Request::decode(*opcode, &mut Reader::new(body));
                    let request = request.map_err(|_| ErrorCode::MarshallingError)?;
                    self.propose(Some(origin), &request, None, &caller, now)
                })
            }
        };
        match proposed {
            Ok(()) => {}
            Err(NotProposed::Refused(refusal)) => self.propose_refusal(origin, refusal),
            Err(NotProposed::LacksTokens(lacked)) => return Err(lacked),
        }
        Ok(())
    }

    /// Whether who asks still speaks for the session: what an old connection has left behind must
    /// not take effect once the session is on another one.
    pub fn check_contact(&self, session: i64, contact: Contact) -> Result<(), ErrorCode> {
        match self.tree.session_contact(session) {
            // Of a session that its contact server alone keeps.
            None if session == 0 => Ok(()),
            None => Err(ErrorCode::SessionExpired),
            Some(current) if current != contact => Err(ErrorCode::SessionMoved),
            Some(_) => Ok(()),
        }
    }

    /// Makes a refusal an item of the entry.
    pub fn propose_refusal(&mut self, origin: Origin, refusal: Refusal) {
        match (refusal, self.extensions.take_failure()) {
            (Refusal::Error(code), Some(text)) => {
                let pause_us = self.extensions.take_pause();
                put_failure(&mut self.entry, origin, pause_us, code, &text);
            }
            _ => put_refusal(&mut self.entry, origin, refusal),
        }
    }

    /// A request has to be asked elsewhere.
    pub fn propose_elsewhere(&mut self, origin: Origin) {
        put_elsewhere(&mut self.entry, origin);
    }

    pub(crate) fn site_update(
        &mut self,
        now: Now,
        prepare: impl FnOnce(&mut Tree, Stamp, &mut Vec<u8>) -> Result<(), TokenRefusal>,
    ) -> Result<(), TokenRefusal> {
        let mut refused = Ok(());
        let prepared = self.item(None, now, |tree, stamp, entry| {
            refused = prepare(tree, stamp, entry);
            refused.map_err(|_| Refusal::Error(ErrorCode::BadArguments))
        });
        debug_assert_eq!(prepared.is_ok(), refused.is_ok());
        refused
    }

    fn item(
        &mut self,
        origin: Option<Origin>,
        now: Now,
        prepare: impl FnOnce(&mut Tree, Stamp, &mut Vec<u8>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let stamp = self.next_stamp(now);
        let start = self.entry.len();
        begin_update(&mut self.entry, origin);
        let prepared = prepare(&mut self.tree, stamp, &mut self.entry);
        match prepared {
            Ok(()) => {
                self.proposed_zxid = stamp.zxid;
                self.made.note(self.entry.len() - start);
            }
            Err(_) => self.entry.truncate(start),
        }
        prepared
    }

    /// What the next update is stamped with.
    #[inline]
    pub(crate) fn next_stamp(&self, now: Now) -> Stamp {
        Stamp { zxid: self.next_zxid(), time_ms: now.wall_ms }
    }

    /// Larger than that of every update that the next one depends on, and no other partition's: the low
    /// bits are this one's number. With one partition it is a count.
    fn next_zxid(&self) -> i64 {
        self.zxid_after(self.zxid_seen())
    }

    /// The largest zxid that updates made here may depend on.
    #[inline]
    pub fn zxid_seen(&self) -> i64 {
        let seen = self.proposed_zxid.max(self.rests_on.zxid());
        // What comes from another site may have a larger one than all that is prepared here.
        match self.tree.own_site() {
            // Nor has this partition a share in all that has a zxid of its.
            Some(_) if self.partitions > 1 => seen.max(self.tree.last_zxid()).max(self.tree.last_made()),
            Some(_) => seen.max(self.tree.last_zxid()),
            None => seen,
        }
    }

    /// The next zxid of this partition that is larger than another one.
    #[inline]
    pub fn zxid_after(&self, before: i64) -> i64 {
        match self.tree.own_site() {
            Some(site) => site_zxid_after(before, site, self.own),
            None => zxid_after(self.partitions, before, self.own),
        }
    }

    /// Adds this partition's part of an operation that concerns several; it has no update if nothing was
    /// prepared here.
    pub fn put_part(
        &mut self,
        origin: Option<Origin>,
        places: &[EntryId],
        reply: &[u8],
        part: Option<(Part, i64)>,
        now: Now,
    ) {
        let mut part = part;
        let reactions = part.as_mut().map(|(part, _)| self.react_to_part(part, now)).unwrap_or_default();
        let own = self.own;
        self.follows.extend(places.iter().filter(|place| place.partition != own));
        begin_part(&mut self.entry, origin, places, reply, |out| reactions.encode(out));
        let before = self.entry.len();
        if let Some((part, zxid)) = part {
            self.tree.part_keep(part, &mut self.entry);
            if self.entry.len() > before {
                self.proposed_zxid = zxid;
                self.made.note(self.entry.len() - before);
            } else {
                // Nothing here will have it, so nobody may wait for that; and it is the others' alone.
                self.rests_on.raise_zxid(zxid);
            }
        }
        if self.entry.len() == before {
            self.entry.extend_from_slice(&[0; 4]);
        }
    }

    /// Adds items of the streams between sites.
    pub fn put_site_items(&mut self, items: &[u8]) {
        self.entry.extend_from_slice(items);
    }

    /// How often what was proposed has been given up: so often what entries rest on was begun anew.
    #[inline]
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// What is proposed from now on depends on that.
    #[inline]
    pub fn depends_on(&mut self, seen: &Timestamp) {
        self.rests_on.merge(seen);
    }

    /// What is proposed from now on follows the parts at these places.
    pub fn follow_parts(&mut self, places: &[EntryId]) {
        for place in places.iter().filter(|place| place.partition != self.own) {
            self.rests_on.raise(place.partition, end_of(place.position));
        }
    }

    /// What is proposed from now on has a larger zxid than this, also under another leader: an entry says so.
    /// False if it is so already.
    pub fn promise(&mut self, zxid: i64) -> bool {
        if self.zxid_seen() >= zxid {
            return false;
        }
        self.rests_on.raise_zxid(zxid);
        put_seen(&mut self.entry, &self.rests_on);
        true
    }

    /// What is proposed next follows what may not be committed, and rests on that. False if that is of another term than the one that
    /// this partition is in.
    pub fn follow(&mut self, after: Option<EntryId>, rests_on: &Timestamp, term: u64) -> bool {
        let Some(after) = after else { return true };
        if after.term != term {
            return false;
        }
        if after.partition == self.own {
            return true;
        }
        match self.follows.iter_mut().find(|known| known.partition == after.partition) {
            Some(known) => known.position = known.position.max(after.position),
            None => self.follows.push(after),
        }
        if self.step == LastStep::Told {
            // Else two that follow each other in a circle would rest on one another alike, and nobody could tell
            // which of their events comes first.
            self.end_step();
        }
        self.rests_on.merge(rests_on);
        true
    }

    /// Promises at which step of the entry under construction, which will stand at a position, what is in it up to now
    /// is. It has something in it: nobody would write an empty one, and who follows it would wait for ever.
    pub fn promises(&mut self, position: u64) -> u64 {
        debug_assert!(!self.entry.is_empty());
        if self.step == LastStep::Open {
            self.step = LastStep::Promised;
        }
        step_of(position, self.steps)
    }

    /// Others are about to be told of promises that were made.
    #[inline]
    pub fn promises_are_told(&mut self) {
        if self.step == LastStep::Promised {
            self.step = LastStep::Told;
        }
    }

    fn end_step(&mut self) {
        self.rests_on.raise_zxid(self.proposed_zxid);
        put_step(&mut self.entry, &self.rests_on);
        self.steps += 1;
        self.step = LastStep::Open;
    }

    /// Whether the entry under construction can have no more steps.
    #[inline]
    pub fn has_all_steps(&self) -> bool {
        self.steps == STEPS_MAX - 1
    }

    /// What the next entry depends on.
    #[inline]
    pub fn rests_on(&self) -> &Timestamp {
        &self.rests_on
    }

    /// Closes the entry under construction, and says what it follows; give it back with [`Partition::hold_up`] if the
    /// log cannot take it yet.
    pub fn take_entry(&mut self) -> Option<(Bytes, Vec<EntryId>)> {
        if let Some(held_up) = self.outstanding.take_held_up() {
            return Some((held_up, Vec::new()));
        }
        if self.entry.is_empty() {
            // Who would have followed something was refused.
            self.follows.clear();
            return None;
        }
        self.outstanding.closed(self.entry.len());
        if self.step != LastStep::Open {
            self.end_step();
        } else if !self.rests_on.is_empty() {
            self.rests_on.raise_zxid(self.proposed_zxid);
            put_seen(&mut self.entry, &self.rests_on);
        }
        self.steps = 0;
        // A bit more than this one will follow, or a bit less than was thought lately: growing would copy.
        let (len, room) = (self.entry.len(), self.entry.capacity());
        let expected = (len + len / 4).max(room - room / 8);
        let next = Vec::with_capacity(expected.min(ENTRY_BYTES_FIRST));
        let mut entry = core::mem::replace(&mut self.entry, next);
        // The log and those that lag behind keep it for a while, and with it all of its room.
        if entry.capacity() / 2 > entry.len() {
            entry.shrink_to_fit();
        }
        Some((entry.into(), core::mem::take(&mut self.follows)))
    }

    /// The log cannot take an entry yet.
    pub fn hold_up(&mut self, entry: Bytes) {
        self.outstanding.hold_up(entry);
    }

    /// An entry was proposed and will stand at this position. Returns the updates that were made since the last
    /// one was.
    pub fn proposed(&mut self, position: u64, entry: Bytes, now: Now) -> Proposals {
        self.outstanding.proposed(position, entry, now.mono_us);
        core::mem::take(&mut self.made)
    }

    /// Everything up to this position has been applied. Of each entry among that which was proposed here, `took`
    /// is told since when it was, microseconds.
    pub fn applied(&mut self, position: u64, took: impl FnMut(u64)) {
        self.outstanding.applied(position, took);
    }

    /// Lets the tree be read as it will be, but for what is in a part.
    pub(crate) fn note_contents(&mut self) {
        self.outstanding.note_contents(&mut self.tree, &self.entry);
    }

    /// What is proposed and not applied may never be, or comes by way of another leader. What is applied rests
    /// on `stamp`.
    pub fn abandon(&mut self, stamp: &Timestamp) {
        self.entry.clear();
        self.outstanding = Outstanding::default();
        self.proposed_zxid = self.tree.last_prepared_zxid();
        self.numbered = 0;
        self.tree.abandon_proposed();
        self.follows.clear();
        (self.steps, self.step) = (0, LastStep::Open);
        self.made = Proposals::default();
        // What nobody will have must not be waited for. The zxids of what follows are larger all the same.
        let zxid = self.rests_on.zxid();
        self.rests_on = Timestamp::new(self.partitions);
        self.abandoned += 1;
        self.rests_on.merge(stamp);
        self.rests_on.raise_zxid(zxid);
        self.extensions.abandoned();
    }
}

/// An entry's buffer begins with no more than this.
const ENTRY_BYTES_FIRST: usize = 1 << 20;

fn contact(origin: Origin) -> Contact {
    Contact { server: origin.server, opening: origin.request }
}
