//! Feature levels: what servers and sites have said of what they can read. Why there are levels: `stoa_tree::Tree::level`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use stoa_front::ConnectionId;
use stoa_tree::{Levels, SiteId};

/// What a server knows of the levels of others. Each says them when it is connected, so none of it is replicated.
#[derive(Debug, Default)]
pub(crate) struct KnownLevels {
    /// Of the other servers of this site that are connected.
    pub(crate) servers: BTreeMap<u8, Levels>,
    /// Up to which one all servers of each other site read, as its leader has said last.
    pub(crate) sites: BTreeMap<SiteId, u8>,
    /// Up to which one those readers below this server read that do not read what it does.
    pub(crate) readers: BTreeMap<ConnectionId, u8>,
    /// The level that this leader has proposed, and that may not be applied yet; 0 of none.
    pub(crate) proposed: u8,
}

impl KnownLevels {
    /// A reader that does not read what is of this level. It is forgotten.
    pub(crate) fn next_outdated(&mut self, level: u8) -> Option<ConnectionId> {
        let outdated = self.readers.iter().find(|(_, newest)| **newest < level);
        let outdated = outdated.map(|(reader, _)| *reader)?;
        self.readers.remove(&outdated);
        Some(outdated)
    }
}

/// What the leader of a site says of levels to another one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteLevels {
    /// At which all servers of the site can work that are connected there.
    pub can: Levels,
    /// Up to which one all its servers read: one that is not connected may have any release when it comes back, and is
    /// taken for one that reads what is in use.
    pub all_read: u8,
    /// The one in use, as far as it is known there; 0 of a site that has not joined.
    pub in_use: u8,
}

impl SiteLevels {
    /// Those of a release that says nothing of them.
    pub const UNSAID: Self = Self { can: Levels::UNSAID, all_read: Levels::UNSAID.newest, in_use: 0 };

    /// Why this site and another one cannot ship each other anything, in words for the operators of both.
    ///
    /// # Errors
    /// When one of them cannot read, or not write, what is of the level that the other one uses.
    pub fn check(self, own: &str, theirs: Self, other: &str) -> Result<(), String> {
        for ((site, can), in_use) in [((other, theirs.can), self.in_use), ((own, self.can), theirs.in_use)] {
            if can.newest < in_use {
                return Err(format!(
                    "{site} reads up to feature level {}, and the sites use level {in_use}: give all servers of {site} a \
                     release that reads that, as the other sites have",
                    can.newest
                ));
            }
            if in_use != 0 && can.oldest > in_use {
                return Err(format!(
                    "{site} works at feature level {} and above, and the sites use level {in_use}: give it the release \
                     before, and raise the level first (stoa sites upgrade)",
                    can.oldest
                ));
            }
        }
        Ok(())
    }
}

/// Why the sites do not use a higher level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LevelRefusal {
    /// What forbids whatever the hub alone does.
    Reign(crate::replica::ReignRefusal),
    /// This release has no higher one than that, which is in use.
    Highest(u8),
    /// Not everybody can read it.
    HeldBack(HeldBack),
}

/// How it stands with feature levels, as a server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelStatus {
    /// The one that the sites use.
    pub in_use: u8,
    /// What this site can read and write.
    pub own: SiteLevels,
    /// At the leader, if this server can read what is of a higher level: who cannot. Of other sites the hub's leader knows.
    pub held_back: Option<HeldBack>,
}

/// Who cannot read what is of a higher level than the one in use, as far as is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Other sites, and up to which level each reads; `None` of one that is not connected.
    pub sites: Vec<(SiteId, Option<u8>)>,
    /// Other servers of this site.
    pub servers: Vec<(u8, Option<u8>)>,
}

impl HeldBack {
    /// Whether there is nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.servers.is_empty()
    }

    /// Says who, with the names of sites.
    #[must_use]
    pub fn named(&self, mut name: impl FnMut(SiteId) -> String) -> Vec<String> {
        let said = |who: String, newest: Option<u8>| match newest {
            Some(newest) => format!("{who} reads up to level {newest}"),
            None => format!("{who} is not connected"),
        };
        let servers =
            self.servers.iter().map(|(id, newest)| said(format!("server {id} of this site"), *newest));
        let sites = self.sites.iter().map(|(site, newest)| said(name(*site), *newest));
        servers.chain(sites).collect()
    }
}

impl fmt::Display for LevelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reign(why) => write!(f, "{why}"),
            Self::Highest(level) => {
                write!(f, "the sites use feature level {level}, and this release has none above that")
            }
            Self::HeldBack(by) => {
                let who = by.named(|site| format!("site {site}")).join("; ");
                write!(f, "the feature level stays as it is: {who}")
            }
        }
    }
}

impl core::error::Error for LevelRefusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(oldest: u8, newest: u8, in_use: u8) -> SiteLevels {
        SiteLevels { can: Levels { oldest, newest }, all_read: 1, in_use }
    }

    #[test]
    fn sites_that_cannot_read_each_other_say_which_one_is_too_old() {
        let check = |own: SiteLevels, theirs| own.check("a", theirs, "b");
        for (own, theirs) in [
            (of(1, 1, 1), of(1, 1, 1)),
            (of(1, 1, 1), of(1, 2, 1)),
            (of(1, 2, 2), of(1, 2, 1)),
            (of(1, 3, 2), of(2, 2, 0)),
            (of(1, 1, 1), SiteLevels::UNSAID),
        ] {
            assert_eq!((check(own, theirs), check(theirs, own)), (Ok(()), Ok(())), "{own:?} {theirs:?}");
        }
        for (own, theirs, why) in [
            (of(1, 2, 2), of(1, 1, 1), "b reads up to feature level 1, and the sites use level 2: "),
            (of(1, 2, 2), of(1, 1, 0), "b reads up to feature level 1, and the sites use level 2: "),
            (of(1, 2, 2), SiteLevels::UNSAID, "b reads up to feature level 1, and the sites use level 2: "),
            (of(1, 1, 1), of(1, 2, 2), "a reads up to feature level 1, and the sites use level 2: "),
            (of(1, 2, 1), of(2, 3, 0), "b works at feature level 2 and above, and the sites use level 1: "),
        ] {
            let refused = check(own, theirs).unwrap_err();
            assert!(refused.starts_with(why), "{own:?} {theirs:?}: {refused}");
            // The other one says the same, with the names as it knows them.
            assert_eq!(theirs.check("b", own, "a"), Err(refused));
        }
    }
}
