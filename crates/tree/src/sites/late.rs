//! Znodes that were changed with zxids that clients had seen already.
//!
//! A client that comes back names the largest zxid that it was told, and is told of what was changed after that. An
//! import may have a smaller zxid than what was told before it came. So of each znode that was changed so, it is kept
//! which zxid had been told by then: who had been told no more may not know of the change, and is told of it, perhaps
//! once more. Who had been told more has seen the change too.
//!
//! Of these only so many are kept. Who was told no more than what had been told when the last one was forgotten, is
//! told of every znode that another site has changed last: to be told once too often is harmless, as every reader of
//! an event reads again.
//!
//! Who has come from another site may have been told there what is larger than all that was changed here behind his back.
//! What he was told there had all come here when his session did, so it is known of each session what had been told by
//! then: who was told no more than that since has been told nothing here yet, and is told of every znode.
//!
//! Where a site has several partitions another one may have told more than this one: what that may be stands before each
//! import on the timeline (`shares_of` in `core/src/replica/site_partitions.rs`).
//!
//! What a site has told that was given up since says nothing at all of what is here: who was told no more than what is
//! larger than all that (`LOST_ZXIDS` in `partition/src/sites.rs`) is told of every znode.

use crate::sites::names::NO_SITE;
use crate::tree::Tree;
use alloc::collections::VecDeque;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// So many are kept.
const KEPT: usize = 1 << 16;

/// What of a znode was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Changed {
    Data,
    Children,
}

#[derive(Debug, Default)]
pub(crate) struct Late {
    /// What had been told when a znode was changed.
    told: HashMap<(u32, Changed), i64, FixedState>,
    /// The same in order, with those that are not in the map any more.
    in_order: VecDeque<(u32, Changed, i64)>,
    /// Of who was told no more than this, nothing is known.
    forgotten: i64,
    /// Who was told no more than this may have been told it by a site that was given up.
    lost: i64,
    /// Where a site has several partitions: what had been told by any of them.
    elsewhere: i64,
}

impl Late {
    /// Nothing is known of what had been told up to now: it was read from a disk.
    pub(super) fn begin(&mut self, last_zxid: i64) {
        let elsewhere = self.elsewhere;
        *self = Self { forgotten: last_zxid.max(elsewhere), elsewhere, ..Self::default() };
    }

    /// Sites are given up by the update with this zxid.
    pub(super) fn give_up(&mut self, zxid: i64) {
        self.lost = self.lost.max(zxid);
    }

    fn note(&mut self, id: u32, changed: Changed, told: i64) {
        self.told.insert((id, changed), told);
        self.in_order.push_back((id, changed, told));
        if self.in_order.len() > KEPT
            && let Some((id, changed, told)) = self.in_order.pop_front()
        {
            self.forgotten = self.forgotten.max(told);
            if self.told.get(&(id, changed)) == Some(&told) {
                self.told.remove(&(id, changed));
            }
        }
    }

    /// A znode is gone, and its id is for another one.
    pub(crate) fn forget(&mut self, id: u32) {
        if !self.told.is_empty() {
            self.told.remove(&(id, Changed::Data));
            self.told.remove(&(id, Changed::Children));
        }
    }
}

impl Tree {
    /// An update has changed a znode.
    #[inline]
    pub(crate) fn note_late(&mut self, id: u32, changed: Changed, zxid: i64) {
        let told = self.zxids.last.max(self.sites.late.elsewhere);
        if zxid <= told && self.sites.are_there() {
            self.sites.late.note(id, changed, told);
        }
    }

    /// Where a site has several partitions: who is told of what this one has may have been told this zxid by another one.
    pub fn note_told(&mut self, zxid: i64) {
        self.sites.late.elsewhere = self.sites.late.elsewhere.max(zxid);
    }

    pub(super) fn told_by_all(&self) -> i64 {
        self.sites.late.elsewhere
    }

    /// The same, and it is not known what was changed here before that.
    pub fn forget_told(&mut self, zxid: i64) {
        self.note_told(self.seen().fold(zxid, |told, (_, seen)| told.max(seen)));
        self.sites.late.begin(self.zxids.last);
    }

    /// Up to which zxid who speaks for a session may have been told at another site; see [`Self::was_told_elsewhere`].
    #[must_use]
    pub fn told_elsewhere(&self, session: i64) -> i64 {
        self.sessions.get(session).map_or(0, |session| session.came_zxid)
    }

    /// Whether who speaks for a session, and was told this zxid last, was told that at another site, or may have been. What
    /// he was told there does not say what he has seen of here.
    #[must_use]
    pub fn was_told_elsewhere(&self, session: i64, told: i64) -> bool {
        self.sessions.get(session).is_some_and(|session| told <= session.came_zxid)
    }

    /// Whether the data of the znode at a path was changed after a client was told this zxid, or may have been; `None`
    /// when there is no such znode.
    #[must_use]
    pub fn data_changed_after(&self, path: &str, told: i64) -> Option<bool> {
        self.lookup(path).map(|id| self.changed_after(id, Changed::Data, self.nodes[id].mzxid, told))
    }

    /// The same of its children.
    #[must_use]
    pub fn children_changed_after(&self, path: &str, told: i64) -> Option<bool> {
        let id = self.lookup(path)?;
        Some(self.changed_after(id, Changed::Children, self.ext_of(&self.nodes[id]).pzxid, told))
    }

    fn changed_after(&self, id: u32, changed: Changed, zxid: i64, told: i64) -> bool {
        if zxid > told || !self.sites.are_there() {
            return zxid > told;
        }
        let late = &self.sites.late;
        // The last child to go may have had a smaller zxid than this one, and another maker.
        let maker = self.sites.maker_of(zxid);
        let may_be = changed == Changed::Children || maker != self.sites.own && maker != NO_SITE;
        told <= late.lost
            || may_be && told <= late.forgotten
            || late.told.get(&(id, changed)).is_some_and(|at| *at >= told)
    }
}
