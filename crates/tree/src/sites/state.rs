//! What a tree keeps of sites.

use crate::sites::divided::Divided;
use crate::sites::ended::{Absent, Ended};
use crate::sites::join::Joining;
use crate::sites::late::Late;
use crate::sites::names::{NO_SITE, SiteId, Source, site_of_zxid};
use crate::sites::read_tokens::ReadTokens;
use crate::sites::reign::Loss;
use crate::sites::streams::Streams;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Where there are no sites it says so, and nothing else of it is looked at.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// The site that this tree is at; [`NO_SITE`] where there are none. Another one's is another one.
    pub(super) own: SiteId,
    /// The site that holds what nobody else does.
    pub(super) hub: SiteId,
    /// How many hubs there have been.
    pub(super) reign: u64,
    /// The feature level in use; 0 before it was raised.
    pub(super) level: u8,
    pub(super) losses: BTreeMap<SiteId, Loss>,
    /// The last update of each other source that is here: what comes once more, by way of another site, is not applied
    /// again.
    pub(super) seen: BTreeMap<Source, i64>,
    /// The same when this site took over the hub's state: what is before that is not in its log.
    pub(super) floors: BTreeMap<Source, i64>,
    /// The largest zxid that is no site's: of what was there before there were sites.
    pub(super) since_zxid: i64,
    pub(crate) ended: Ended,
    pub(crate) late: Late,
    pub(super) read_tokens: ReadTokens,
    pub(super) streams: Streams,
    /// What has come of the hub's state that is to be this site's: see [`crate::sites::join`].
    pub(super) joining: Option<Box<Joining>>,
    /// Where this site has several partitions.
    pub(crate) divided: Divided,
    /// Ephemerals that the update under way has created, but that are none: see [`crate::sites::ended`].
    pub(crate) absent: Vec<Absent>,
}

impl Sites {
    /// Whether there are several sites, or may be.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.own != NO_SITE
    }

    /// What another partition of this site knows of sites, where the root has a mark.
    pub(super) fn of_partition(&self, root_mark: SiteId) -> Self {
        Self {
            own: self.own,
            hub: self.hub,
            reign: self.reign,
            level: self.level,
            losses: self.losses.clone(),
            seen: self.seen.clone(),
            floors: self.floors.clone(),
            since_zxid: self.since_zxid,
            ended: self.ended.clone(),
            divided: Divided { root_mark, ..Divided::default() },
            ..Self::default()
        }
    }

    /// Whether a site was given up, and has not come back.
    pub(super) fn is_lost(&self, site: SiteId) -> bool {
        self.losses.get(&site).is_some_and(|loss| loss.is_away)
    }

    /// Who has made an update with this zxid; [`NO_SITE`] of what was there before there were sites.
    #[inline]
    pub(crate) fn maker_of(&self, zxid: i64) -> SiteId {
        if self.are_there() && zxid > self.since_zxid { site_of_zxid(zxid) } else { NO_SITE }
    }
}
