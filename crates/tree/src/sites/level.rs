//! The feature level of the sites: what all of them can read, and so what each of them may write.
//!
//! Sites get another release one after the other, and each reads what the others ship, whichever release has made it. So
//! a release that writes something new, into the log, a stream or a snapshot, has one more level, and writes it only
//! when the level *in use* is as high: [`Tree::level`]. That is replicated like any other state. The hub's leader raises
//! it with an update, when all servers of all sites can read what comes then, and all have it in the order of the hub's
//! log: before anything that is of that level. It is never lowered, because what was written stays.
//!
//! Level 1 is what there was before levels were counted. With it nothing is said of levels in logs and in snapshots.
//!
//! **A new level** is one more in [`Levels::OWN`]. What is new is written only where [`Tree::level`] is as high, and can be
//! read from then on whatever is in use; what it takes the place of is written below that, and can be read for as long as
//! it may stand in anybody's log. A release that does not write what is of a level any more has a higher `oldest`.

use crate::Stamp;
use crate::sites::ops::{SiteOp, TokenRefusal};
use crate::tree::Tree;
use crate::update::{self, CorruptUpdate, Update};
use alloc::vec::Vec;
use core::fmt;

/// The level that is in use before another one is.
pub(super) const FIRST: u8 = 1;

/// Which levels a server can work at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// The lowest: it can write what all can read that have this one.
    pub oldest: u8,
    /// The highest: it can read what is of this one.
    pub newest: u8,
}

impl Levels {
    /// Those of this release.
    pub const OWN: Self = Self { oldest: FIRST, newest: FIRST };

    /// Those of a server that says nothing of them.
    pub const UNSAID: Self = Self { oldest: FIRST, newest: FIRST };

    /// Those that another server has, too. Where there is none the lowest is above the highest.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { oldest: self.oldest.max(other.oldest), newest: self.newest.min(other.newest) }
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest { write!(f, "level {newest}") } else { write!(f, "levels {oldest} to {newest}") }
    }
}

/// The sites use a level that this server cannot read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewerLevel {
    /// The level in use.
    pub level: u8,
    /// The highest that the server can read.
    pub newest: u8,
}

impl fmt::Display for NewerLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, newest } = self;
        write!(
            f,
            "the sites use feature level {level}, and this release reads up to level {newest}: start the server with the \
             release that it had before, or with a newer one"
        )
    }
}

impl core::error::Error for NewerLevel {}

impl Tree {
    /// The feature level that the sites use: nothing may be written that is not of it.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.sites.level.max(FIRST)
    }

    /// The levels that this server can work at.
    #[must_use]
    pub fn levels(&self) -> Levels {
        self.options.levels
    }

    /// Whether what is written at the level in use can be read here.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_level(&self) -> Result<(), NewerLevel> {
        let (level, newest) = (self.level(), self.levels().newest);
        if level <= newest { Ok(()) } else { Err(NewerLevel { level, newest }) }
    }

    /// Makes an update with which the sites use another level, appended to `batch`. At the hub, when all sites can read
    /// what is of it.
    ///
    /// # Errors
    /// When this is not the hub, or the level is not higher than the one in use; nothing was appended then.
    pub fn prepare_level(
        &mut self,
        level: u8,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), TokenRefusal> {
        let is_hub = self.own_site().is_some_and(|own| own == self.sites.hub);
        if !is_hub || level <= self.level() {
            return Err(TokenRefusal::NoSite);
        }
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, 0);
        SiteOp::Level { level }.encode(batch);
        update::end(batch, start);
        Ok(())
    }

    /// What is of a level that cannot be read here is noted as well: whoever applies it asks with
    /// [`Tree::check_level`].
    pub(super) fn apply_level(&mut self, update: &Update<'_>, level: u8) -> Result<(), CorruptUpdate> {
        if !self.sites.are_there() {
            return Err(update.corrupt("it is about the level of sites, and there are none"));
        }
        self.sites.level = level.max(self.level());
        Ok(())
    }
}
