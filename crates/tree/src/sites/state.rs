//! What a tree keeps of sites.

use crate::load::Loader;
use crate::sites::ended::Ended;
use crate::sites::late::Late;
use crate::sites::streams::Streams;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A site, 1 to [`SITE_MAX`].
pub type SiteId = u8;

/// The largest site: a mark has five bits.
pub const SITE_MAX: SiteId = 31;

/// No site: of a znode without a mark, and where there are no sites.
pub(crate) const NO_SITE: SiteId = 0;

/// The site that has made an update with this zxid, where there are sites.
#[must_use]
pub const fn site_of_zxid(zxid: i64) -> SiteId {
    (zxid & SITE_MAX as i64) as SiteId
}

/// The site that has given a session its id, where there are sites.
#[must_use]
pub(super) const fn site_of_session(session: i64) -> SiteId {
    (session & SITE_MAX as i64) as SiteId
}

/// Where there are no sites it says so, and nothing else of it is looked at.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// The site that this tree is at; [`NO_SITE`] where there are none. Another one's is another one.
    pub(super) own: SiteId,
    /// The site that holds what nobody else does.
    pub(super) hub: SiteId,
    /// The largest zxid that is no site's: of what was there before there were sites.
    pub(super) since_zxid: i64,
    pub(crate) ended: Ended,
    pub(crate) late: Late,
    pub(super) streams: Streams,
    /// What has come of the hub's state that is to be this site's: see [`crate::sites::join`].
    pub(super) joining: Option<Box<Loader>>,
    /// Ephemerals that the update under way has created, but that are none, with the end of their session: see
    /// [`crate::sites::ended`].
    pub(crate) absent: Vec<(String, i64)>,
}

impl Sites {
    /// Whether there are several sites, or may be.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.own != NO_SITE
    }

    /// Who has made an update with this zxid; [`NO_SITE`] of what was there before there were sites.
    #[inline]
    pub(crate) fn maker_of(&self, zxid: i64) -> SiteId {
        if self.are_there() && zxid > self.since_zxid { site_of_zxid(zxid) } else { NO_SITE }
    }
}
