//! The sites, and how far they are from the hub.

use alloc::vec::Vec;
use core::fmt;

/// There are never more sites: a mark in a znode has five bits for one.
pub const SITES_MAX: usize = 32;

/// One data centre, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(pub u8);

/// There are too many sites, or no hub among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManySites;

impl fmt::Display for TooManySites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there are 1 to {SITES_MAX} sites, and the hub is one of them")
    }
}

impl core::error::Error for TooManySites {}

/// All sites: which one is the hub, and the round trip between it and each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sites {
    hub: Site,
    round_trips_us: Vec<u32>,
}

impl Sites {
    /// Sites with these round trips to the hub, in microseconds. That of the hub itself counts as 0.
    ///
    /// # Errors
    /// When there are too many sites, or the hub is none of them.
    pub fn new(hub: Site, mut round_trips_us: Vec<u32>) -> Result<Self, TooManySites> {
        if round_trips_us.len() > SITES_MAX {
            return Err(TooManySites);
        }
        *round_trips_us.get_mut(usize::from(hub.0)).ok_or(TooManySites)? = 0;
        Ok(Self { hub, round_trips_us })
    }

    /// The site that all others ask for what they do not hold.
    #[must_use]
    pub fn hub(&self) -> Site {
        self.hub
    }

    /// How many there are, the hub included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.round_trips_us.len()
    }

    /// Whether there is such a site.
    #[must_use]
    pub fn have(&self, site: Site) -> bool {
        usize::from(site.0) < self.count()
    }

    /// The round trip between a site and the hub in microseconds; 0 for a site that there is not.
    #[must_use]
    pub fn round_trip_us(&self, site: Site) -> u32 {
        self.round_trips_us.get(usize::from(site.0)).copied().unwrap_or_default()
    }

    /// Takes over what has been measured anew, in microseconds.
    pub fn set_round_trip_us(&mut self, site: Site, round_trip_us: u32) {
        if site != self.hub
            && let Some(known) = self.round_trips_us.get_mut(usize::from(site.0))
        {
            *known = round_trip_us;
        }
    }

    /// What a write of a site costs it on the way, in microseconds, while another site has the token or itself: nothing
    /// where it is the holder, else the round trip to the hub and that from there to the holder.
    #[must_use]
    pub fn cost_us(&self, site: Site, holder: Site) -> u64 {
        if site == holder {
            return 0;
        }
        u64::from(self.round_trip_us(site)) + u64::from(self.round_trip_us(holder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_ways_by_the_hub() {
        let mut sites = Sites::new(Site(0), [5, 62, 90].to_vec()).unwrap();
        let costs = |sites: &Sites, from| [0, 1, 2].map(|to| sites.cost_us(Site(from), Site(to)));
        assert_eq!(costs(&sites, 0), [0, 62, 90]);
        assert_eq!(costs(&sites, 1), [62, 0, 152]);
        assert_eq!(costs(&sites, 2), [90, 152, 0]);
        sites.set_round_trip_us(Site(1), 70);
        sites.set_round_trip_us(Site(0), 70);
        sites.set_round_trip_us(Site(9), 70);
        assert_eq!(costs(&sites, 2), [90, 160, 0]);
        assert_eq!(
            (sites.round_trip_us(Site(9)), sites.have(Site(9)), sites.have(Site(2))),
            (0, false, true)
        );
    }

    #[test]
    fn the_hub_is_one_of_few_sites() {
        assert_eq!(Sites::new(Site(3), [0; 3].to_vec()), Err(TooManySites));
        assert_eq!(Sites::new(Site(0), [0; SITES_MAX + 1].to_vec()), Err(TooManySites));
        assert_eq!(Sites::new(Site(31), [0; SITES_MAX].to_vec()).unwrap().count(), SITES_MAX);
    }
}
