//! How sites, and those who make updates there, are named.

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

/// The site that has given a session its id, where there are sites.
#[must_use]
pub(super) const fn site_of_session(session: i64) -> SiteId {
    (session & SITE_MAX as i64) as SiteId
}

/// Some sites.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SiteSet(u32);

impl SiteSet {
    /// One alone.
    #[must_use]
    pub fn of(site: SiteId) -> Self {
        Self::default().with(site)
    }

    /// Those whose bits are set; none has bit 0.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & !1)
    }

    /// A bit for each.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// One more.
    #[must_use]
    pub fn with(self, site: SiteId) -> Self {
        Self::from_bits(self.0 | 1_u32.checked_shl(site.into()).unwrap_or(0))
    }

    /// Those that are not among others.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether a site is one of them.
    #[must_use]
    pub fn contains(self, site: SiteId) -> bool {
        1_u32.checked_shl(site.into()).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Each of them, the smallest number first.
    pub fn iter(self) -> impl Iterator<Item = SiteId> {
        (1..=SITE_MAX).filter(move |site| self.contains(*site))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
