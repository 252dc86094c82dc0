//! What is proposed and not yet applied, beyond single znodes.
//!
//! Of a subtree that moves to another partition, or comes from one, nothing is kept but that it does: it may
//! have many znodes, and nothing is prepared before that is applied. Of the table of what lives elsewhere than
//! the rule says, too, no more than that it changes.

/// The updates, by their zxids.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Outstanding {
    /// The one that moves a subtree.
    moving: Option<i64>,
    /// The one that changes the table.
    placing: Option<i64>,
}

impl Outstanding {
    pub(crate) fn is_empty(&self) -> bool {
        self.moving.is_none() && self.placing.is_none()
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    pub(super) fn is_placing(&self) -> bool {
        self.placing.is_some()
    }

    /// Notes that the update `zxid` moves a subtree.
    pub(super) fn begin_move(&mut self, zxid: i64) {
        self.moving = Some(zxid);
    }

    /// Notes that the update `zxid` changes the table.
    pub(super) fn begin_placing(&mut self, zxid: i64) {
        self.placing = Some(zxid);
    }

    /// The update `zxid`, and those before it, are applied.
    #[inline]
    pub(crate) fn applied(&mut self, zxid: i64) {
        self.moving = self.moving.filter(|moving| *moving > zxid);
        self.placing = self.placing.filter(|placing| *placing > zxid);
    }
}
