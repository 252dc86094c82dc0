//! A *part*: an update that is prepared step by step ([`Tree::part_op`]), and kept or undone as a whole.
//!
//! It may be an update by itself, or a part of an operation that concerns several partitions. Whoever leads them all
//! prepares such an operation step by step, now on this partition and now on that one, while nothing else is asked
//! of any. Then all parts are kept, or, when a step was refused, all undone.

use crate::Stamp;
use crate::proposed::Savepoint;
use crate::tree::Tree;
use crate::update::{self, Op, Update, Updates};
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::EventKind;

/// An update under construction. End it with [`Tree::part_keep`] or [`Tree::part_undo`]: as long as it is
/// there, the tree notes how all can be taken back.
#[must_use]
#[derive(Debug)]
pub struct Part {
    stamp: Stamp,
    session: i64,
    savepoint: Savepoint,
    pub(crate) ops: Vec<u8>,
    count: usize,
    /// So much of `ops` has been noted: see [`Tree::part_note_contents`].
    noted: usize,
    ephemerals: Vec<String>,
}

/// Where a part can be taken back to: see [`Tree::part_mark`].
#[must_use]
#[derive(Debug)]
pub struct Mark {
    savepoint: Savepoint,
    ops: usize,
    count: usize,
    noted: usize,
}

impl Part {
    /// When and as what its update takes place.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    pub(crate) fn session(&self) -> i64 {
        self.session
    }

    /// How many operations are in it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of what is in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ops.len()
    }

    /// A step was prepared after `before` bytes; one that changes nothing is no operation.
    pub(crate) fn count_step(&mut self, before: usize) {
        self.count += usize::from(self.ops.len() > before);
    }

    /// Says which ephemerals go with the session that it closes, for [`Part::for_each_change`].
    pub fn ends(&mut self, ephemerals: Vec<String>) {
        self.ephemerals = ephemerals;
    }

    /// What it does to znodes, as far as it is prepared: see [`Update::for_each_change`].
    pub fn for_each_change(&self, each: impl FnMut(EventKind, &str)) {
        let mut body = Vec::new();
        update::begin_multi(&mut body, self.count);
        body.extend_from_slice(&self.ops);
        Update::of(self.stamp, self.session, &body).for_each_change(&self.ephemerals, each);
    }
}

impl Tree {
    /// Begins a part. Until it is ended, nothing may be asked of this tree but its steps, and what
    /// changes nothing. `session` is the session of all its steps; callers must be that one, or the
    /// server.
    pub fn part_begin(&mut self, stamp: Stamp, session: i64) -> Part {
        let savepoint = self.overlay.savepoint();
        Part { stamp, session, savepoint, ops: Vec::new(), count: 0, noted: 0, ephemerals: Vec::new() }
    }

    /// Ends a part: its update is appended to `batch`, if there is anything in it. It must be applied as
    /// any other.
    pub fn part_keep(&mut self, part: Part, batch: &mut Vec<u8>) {
        let Part { stamp, session, savepoint, ops, count, .. } = part;
        self.overlay.keep(savepoint);
        if count > 0 {
            let start = update::begin(batch, stamp.zxid, stamp.time_ms, session);
            update::begin_multi(batch, count);
            batch.extend_from_slice(&ops);
            update::end(batch, start);
        }
    }

    /// Ends a part as if it had never been.
    pub fn part_undo(&mut self, part: Part) {
        self.undo_to(part.savepoint);
    }

    /// Goes on with an update that was prepared last, and stands at `start` at the end of a batch. It is taken
    /// out of the batch; [`Tree::part_keep`] brings it back with what was added, and it must be ended so.
    ///
    /// # Panics
    /// When there is no update.
    pub fn part_reopen(&mut self, batch: &mut Vec<u8>, start: usize) -> Part {
        let update = Updates::new(&batch[start..]).next().and_then(Result::ok);
        let update = update.expect("it was prepared here");
        let stamp = Stamp { zxid: update.zxid, time_ms: update.time_ms };
        let (count, ops) = update.ops().expect("it was prepared here");
        let (session, ops) = (update.session, ops.to_vec());
        batch.truncate(start);
        let savepoint = self.overlay.savepoint();
        Part { stamp, session, savepoint, ops, count, noted: 0, ephemerals: Vec::new() }
    }

    /// Notes the contents of what is in a part, so that it can be seen in the state as it will be. Those of all that
    /// was prepared before have to be known by then: see [`Tree::note_contents`].
    pub fn part_note_contents(&mut self, part: &mut Part) {
        self.count_going();
        let ops = Op::decode_all(&part.ops[part.noted..], part.session);
        let zxid = part.stamp.zxid;
        ops.for_each(|op| self.note_op(zxid, op.expect("it was prepared here"), true));
        part.noted = part.ops.len();
    }

    /// From here on, until [`Tree::part_back`] or [`Tree::part_go_on`], what is added can be taken back.
    pub fn part_mark(&mut self, part: &Part) -> Mark {
        let savepoint = self.overlay.savepoint();
        Mark { savepoint, ops: part.ops.len(), count: part.count, noted: part.noted }
    }

    /// Keeps what was added since the mark.
    pub fn part_go_on(&mut self, mark: Mark) {
        self.overlay.keep(mark.savepoint);
    }

    /// Takes back what was added since the mark.
    pub fn part_back(&mut self, part: &mut Part, mark: Mark) {
        let Mark { savepoint, ops, count, noted } = mark;
        self.undo_to(savepoint);
        part.ops.truncate(ops);
        part.count = count;
        // What was noted since is forgotten, though it may have been done before.
        part.noted = noted;
    }
}
