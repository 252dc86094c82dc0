//! Readers: servers that belong to no group, each below a **parent**, a member or another reader.
//!
//! A parent gives what is committed, and asks in the place of its readers. For the ensemble, a reader's clients are those
//! of the member at the top of the chain: it numbers what they ask among its own requests, and says what each is called
//! before the outcome can come. So no leader and no other member knows of readers, and what holds for a member's clients
//! holds for those of the readers below it.
//!
//! **A parent is one connection.** A reader whose parent is lost, or has lost its own, forgets what it was called there
//! and begins anew with the next one; so do those below it, whose connections it ends.

use crate::reader_message::{Down, Up};
use crate::shared_log::ParentTraits;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;

/// So many bytes are on the way to a reader at most.
pub(crate) const WINDOW_BYTES: u64 = 2 << 20;
/// A reader says what it has at the latest when it was given so much more.
pub(crate) const TOLD_BYTES: u64 = WINDOW_BYTES / 8;
/// So many questions of a reader are without an answer at most; others it asks again.
pub(crate) const QUESTIONS_MAX: usize = 64;
/// Heartbeats between two words of how things stand.
pub(crate) const STANDS_HEARTBEATS: u64 = 2;
/// So many election timeouts a reader waits for a parent that is not attached, or knows of no leader.
pub(crate) const PATIENCE_ELECTIONS: u64 = 3;

/// Something for readers below this server.
#[derive(Debug, Clone, PartialEq)]
pub enum ReaderOutput {
    /// A message of this partition to the same one there: to all of them the same, so its bytes are made once.
    Say(Down),
    /// To one of them: the newest snapshot, which is at this position of the log, and the message that goes with it. Say what became of
    /// it with [`crate::Timeline::reader_snapshot_sent`].
    Snapshot {
        /// Which snapshot.
        position: u64,
        /// The message.
        message: Bytes,
    },
    /// The connection with one is to be ended, for this reason.
    Drop(&'static str),
}

/// Something for the parent of this server.
#[derive(Debug, Clone, PartialEq)]
pub enum ParentOutput {
    /// A message of this partition to the same one there, on the connection with this number and no other.
    Say(u64, Up),
    /// The connection is to be ended, for this reason: another parent may do.
    Leave(&'static str),
}

/// How this server stands below its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Below {
    /// The member in whose name it asks the ensemble.
    pub top: u8,
    /// The tags of all processes on the way there, that of the parent first.
    pub chain: Vec<u64>,
    /// Up to which position of the log everything was committed as far as the parent knew.
    pub committed: u64,
}

/// A reader below this server, as a parent knows it.
#[derive(Debug, Default)]
pub(crate) struct Child {
    /// At the first partition: up to where it was given everything, position and term. `None` before it has said
    /// where it is.
    pub(crate) given: Option<(u64, u64)>,
    /// What it has not said that it has: up to where, and how many bytes.
    pub(crate) under_way: VecDeque<(u64, u64)>,
    pub(crate) under_way_bytes: u64,
    /// It has everything up to there.
    pub(crate) has: u64,
    /// The snapshot on its way.
    pub(crate) snapshot: Option<u64>,
    /// Barriers for its questions.
    pub(crate) questions: Vec<(u64, u64)>,
    /// It is given only what is applied here: it may not be able to read what follows from that.
    pub(crate) is_behind_applied: bool,
}

/// The parent of this server, where that is a reader.
#[derive(Debug, Default)]
pub(crate) struct Parent {
    /// Which connection it is.
    pub(crate) link: Option<u64>,
    /// When something was heard of it last.
    pub(crate) heard_us: u64,
    /// Since when it is no parent that one could stay with: attached, with a leader.
    pub(crate) lacks_since_us: Option<u64>,
    pub(crate) below: Option<Below>,
    /// On which connection this partition speaks.
    pub(crate) speaks_on: Option<u64>,
    /// What it is.
    pub(crate) traits: ParentTraits,
    /// This partition has somebody who asks in its place.
    pub(crate) is_attached: bool,
    /// Who leads, as was told last.
    pub(crate) told: Option<(u64, Option<u8>)>,
    /// What was given since it was last told what is here, and what that was.
    pub(crate) untold_bytes: u64,
    pub(crate) told_position: u64,
    /// It is to be told anew where the log ends: some of what was given is lost.
    pub(crate) is_to_place: bool,
}

/// The readers below this server, and its parent if it is one. `C` names who asks.
pub(crate) struct Readers<C> {
    pub(crate) children: BTreeMap<C, Child>,
    pub(crate) parent: Option<Box<Parent>>,
    /// What is the same for several is made once.
    pub(crate) to_children: VecDeque<(Vec<C>, ReaderOutput)>,
    pub(crate) to_parent: VecDeque<ParentOutput>,
    /// A snapshot is wanted for one of them.
    pub(crate) wants_snapshot: bool,
    /// When they are told how things stand, and when this server looks after its parent.
    pub(crate) tend_at_us: u64,
    /// At the first partition: up to this position of the log everything is applied there.
    pub(crate) applied: u64,
}

impl<C: Copy + Ord> Readers<C> {
    pub(crate) fn new(is_reader: bool, now_us: u64) -> Self {
        Self {
            children: BTreeMap::new(),
            parent: is_reader.then(Box::default),
            to_children: VecDeque::new(),
            to_parent: VecDeque::new(),
            wants_snapshot: false,
            tend_at_us: now_us,
            applied: 0,
        }
    }

    /// Whether there is nobody to look after.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.children.is_empty() && self.parent.is_none()
    }

    pub(crate) fn say(&mut self, to: C, message: Down) {
        self.say_to(alloc::vec![to], message);
    }

    /// The same to these.
    pub(crate) fn say_to(&mut self, to: Vec<C>, message: Down) {
        self.to_children.push_back((to, ReaderOutput::Say(message)));
    }

    pub(crate) fn all(&self) -> Vec<C> {
        self.children.keys().copied().collect()
    }

    /// A reader has to look for another parent, or come again.
    pub(crate) fn drop_child(&mut self, child: C, why: &'static str) {
        if self.children.remove(&child).is_some() {
            self.to_children.push_back((alloc::vec![child], ReaderOutput::Drop(why)));
        }
    }

    pub(crate) fn drop_children(&mut self, why: &'static str) {
        self.all().into_iter().for_each(|child| self.drop_child(child, why));
    }
}

impl Child {
    /// It has everything up to there.
    pub(crate) fn has(&mut self, position: u64) {
        self.has = self.has.max(position);
        while let Some((_, bytes)) = self.under_way.pop_front_if(|(upto, _)| *upto <= position) {
            self.under_way_bytes -= bytes;
        }
    }

    /// It stands there.
    pub(crate) fn stands_at(&mut self, position: u64, term: u64) {
        self.given = Some((position, term));
        self.has = position;
        self.under_way.clear();
        self.under_way_bytes = 0;
        self.snapshot = None;
    }

    /// It is given this.
    pub(crate) fn is_given(&mut self, upto: (u64, u64), bytes: u64) {
        self.given = Some(upto);
        self.under_way.push_back((upto.0, bytes));
        self.under_way_bytes += bytes;
    }
}
