//! How much of what a site has made is somewhere. Each of its partitions makes updates, whose zxids grow, and of those of
//! two nobody knows which came first.

use super::plan::PARTITIONS_MAX;
use std::array;
use stoa_core::SiteId;
use stoa_tree::{Tree, source_of_zxid};

/// Of each partition of a site, the last of its updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Upto([i64; PARTITIONS_MAX]);

impl Upto {
    /// All that the site ever makes.
    pub(super) const ALL: Self = Self([i64::MAX; PARTITIONS_MAX]);

    /// What is here of a site, as the first partition knows.
    pub(super) fn of(tree: &Tree, site: SiteId) -> Self {
        let seen = tree.seen().filter(|(source, _)| source.site == site);
        seen.fold(Self::default(), |upto, (source, zxid)| {
            let mut last = upto.0;
            let here = &mut last[usize::from(source.partition) % PARTITIONS_MAX];
            *here = zxid.max(*here);
            Self(last)
        })
    }

    /// Another update of the site is there, and what the same partition has made before.
    pub(super) fn with(mut self, zxid: i64) -> Self {
        let here = &mut self.0[place(zxid)];
        *here = zxid.max(*here);
        self
    }

    /// Whether an update of the site is among these.
    pub(super) fn reaches(&self, zxid: i64) -> bool {
        zxid <= self.0[place(zxid)]
    }

    /// Whether there is something here that is not there.
    pub(super) fn exceeds(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(here, there)| here > there)
    }

    /// What is here or there.
    pub(super) fn or(&self, other: &Self) -> Self {
        Self(array::from_fn(|at| self.0[at].max(other.0[at])))
    }

    /// What is here and there.
    pub(super) fn common(&self, other: &Self) -> Self {
        Self(array::from_fn(|at| self.0[at].min(other.0[at])))
    }
}

fn place(zxid: i64) -> usize {
    usize::from(source_of_zxid(zxid).partition) % PARTITIONS_MAX
}
