//! Who makes updates, and how zxids say it.

/// A site, 1 to [`SITE_MAX`].
pub type SiteId = u8;

/// The largest site: a mark has five bits.
pub const SITE_MAX: SiteId = 31;

/// The site that has made an update with this zxid, where there are sites.
#[must_use]
pub const fn site_of_zxid(zxid: i64) -> SiteId {
    (zxid & SITE_MAX as i64) as SiteId
}

/// Who makes updates: a partition of a site. The zxids of what it makes grow; those of two of them have nothing to do with
/// each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The site.
    pub site: SiteId,
    /// Its partition; the first one of a site that has no more.
    pub partition: u8,
}

impl Source {
    /// The first partition of a site.
    #[must_use]
    pub const fn first_of(site: SiteId) -> Self {
        Self { site, partition: 0 }
    }
}

/// Who has made an update with this zxid, where there are sites.
#[must_use]
pub const fn source_of_zxid(zxid: i64) -> Source {
    const SITE_BITS: u32 = 5;
    const PARTITION_MAX: i64 = 63;
    Source { site: site_of_zxid(zxid), partition: (zxid >> SITE_BITS & PARTITION_MAX) as u8 }
}
