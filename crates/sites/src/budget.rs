//! The harm budget: nobody pays for others more than what it gains itself.
//!
//! With observers each write of a site costs one round trip to the hub. So each write that costs less, most of all one that
//! is local, pays the difference into the site's account, and one that costs more, because a third site has the token, takes
//! it out of it. Who has nothing in its account must not be made to pay. An account holds but a few round trips: what
//! was gained long ago is not owed.
//!
//! An account is the integral of what a running mean follows. A mean that is let go up to its limit lies above it half of
//! the time; what an account is overdrawn has to be earned first.

use crate::odds::ONE;
use crate::{SITES_MAX, Site, Sites};

/// Round trips that an account holds at most, and has in the beginning.
const TRIPS_MAX: i64 = 8;
/// What it is overdrawn at most, in microseconds. More is not owed.
const DEBT_MAX_US: i64 = 1_000_000_000;
/// The hub has no round trip and earns next to nothing. So what its clients have paid is forgotten when none of them has
/// written for so long: else one who once wrote a thousand znodes whose tokens were away would keep all tokens there for a
/// day.
const HUB_SILENCE_MS: u64 = 10_000;
/// What every site can bear: a tenth of a round trip in each second, and no less than a millisecond, so that who has come
/// once and pays nothing in does not have others wait for ever. A site that writes without a pause at 90 ms loses a
/// hundredth by it.
const GRACE_PARTS: u64 = 10;
const GRACE_LEAST_US: u64 = 1000;
/// Who comes less often than this is not there.
const UNSEEN: u32 = ONE / 1024;
/// What the hub's own clients do not notice, microseconds: with observers their writes cost nothing.
const HUB_US: u32 = 50;

/// What one site can bear.
#[derive(Debug, Clone, Copy)]
struct Account {
    /// Microseconds less than were in it if it were full.
    lacks_us: i64,
    seen_ms: u64,
}

/// What all sites can bear.
#[derive(Debug)]
pub(crate) struct Budget {
    accounts: [Account; SITES_MAX],
}

/// What a write of a site costs with observers, in microseconds, or little more.
fn trip_us(sites: &Sites, site: Site) -> i64 {
    i64::from(sites.round_trip_us(site).max(HUB_US))
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { accounts: [Account { lacks_us: 0, seen_ms: 0 }; SITES_MAX] }
    }

    /// Writes of a site have cost this much each.
    pub(crate) fn charge(&mut self, sites: &Sites, site: Site, cost_us: u64, writes: u32, now_ms: u64) {
        let cost_us = i64::try_from(cost_us).unwrap_or(i64::MAX).min(DEBT_MAX_US);
        if let Some(account) = self.accounts.get_mut(usize::from(site.0)) {
            if account.lacks_us == 0 && cost_us <= trip_us(sites, site) {
                // It is full, and stays so.
                account.seen_ms = account.seen_ms.max(now_ms);
                return;
            }
            let more_us = (cost_us - trip_us(sites, site)).saturating_mul(i64::from(writes));
            let lacks_us = account.lacks_us(sites, site, now_ms).saturating_add(more_us);
            account.lacks_us = lacks_us.clamp(0, DEBT_MAX_US);
            account.seen_ms = account.seen_ms.max(now_ms);
        }
    }

    /// How likely the next access may be one of this site, of [`ONE`], for it to be made to pay for another: half of them
    /// while its account is full, none when it is empty.
    pub(crate) fn bears(&self, sites: &Sites, site: Site, now_ms: u64) -> u32 {
        let Some(account) = self.accounts.get(usize::from(site.0)) else { return ONE };
        let full_us = trip_us(sites, site) * TRIPS_MAX;
        let left_us = (full_us - account.lacks_us(sites, site, now_ms)).max(0);
        UNSEEN.max((left_us * i64::from(ONE / 2) / full_us) as u32)
    }
}

impl Account {
    fn lacks_us(&self, sites: &Sites, site: Site, now_ms: u64) -> i64 {
        let grace_us = (u64::from(sites.round_trip_us(site)) / GRACE_PARTS).max(GRACE_LEAST_US);
        let waited_ms = now_ms.saturating_sub(self.seen_ms);
        if site == sites.hub() && waited_ms >= HUB_SILENCE_MS {
            return 0;
        }
        let grace_us = (grace_us.saturating_mul(waited_ms) / 1000).min(DEBT_MAX_US as u64);
        (self.lacks_us - grace_us as i64).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> Sites {
        Sites::new(Site(0), [0, 62_000, 90_000].to_vec()).unwrap()
    }

    #[test]
    fn who_gains_nothing_does_not_pay_for_others() {
        let (sites, mut budget) = (sites(), Budget::new());
        assert_eq!(budget.bears(&sites, Site(2), 0), ONE / 2);
        // As with observers: nothing is gained, and nothing lost.
        (0..1000).for_each(|_| budget.charge(&sites, Site(2), 90_000, 1, 0));
        assert_eq!(budget.bears(&sites, Site(2), 0), ONE / 2);
        (0..12).for_each(|_| budget.charge(&sites, Site(2), 152_000, 1, 0));
        assert_eq!(budget.bears(&sites, Site(2), 0), UNSEEN);
        budget.charge(&sites, Site(2), 0, 1, 0);
        assert!((1..ONE / 8).contains(&budget.bears(&sites, Site(2), 0)));
        budget.charge(&sites, Site(2), 0, 1000, 0);
        assert_eq!(budget.bears(&sites, Site(2), 0), ONE / 2);
        assert_eq!(budget.bears(&sites, Site(1), 0), ONE / 2);
    }

    #[test]
    fn who_is_away_is_made_to_pay_again_after_a_while() {
        let (sites, mut budget) = (sites(), Budget::new());
        (0..13).for_each(|_| budget.charge(&sites, Site(2), 152_000, 1, 1000));
        assert_eq!(budget.bears(&sites, Site(2), 1000), UNSEEN);
        assert!(budget.bears(&sites, Site(2), 20_000) > UNSEEN);
        assert_eq!(budget.bears(&sites, Site(2), u64::MAX), ONE / 2);
        budget.charge(&sites, Site(2), u64::MAX, 1, 1_000_000);
        assert_eq!(budget.bears(&sites, Site(2), 1_000_000), UNSEEN);
    }

    #[test]
    fn clients_of_the_hub_have_nothing_to_give() {
        let (sites, mut budget) = (sites(), Budget::new());
        budget.charge(&sites, Site(0), 62_000, 1, 0);
        budget.charge(&sites, Site(0), 0, 1000, 0);
        assert_eq!(budget.bears(&sites, Site(0), 0), UNSEEN);
        budget.charge(&sites, Site(0), 0, 1000, 0);
        assert_eq!(budget.bears(&sites, Site(0), 0), ONE / 2);
        // What they have paid is not remembered when they are gone.
        budget.charge(&sites, Site(0), 62_000, 1000, 0);
        budget.charge(&sites, Site(0), 0, 1, 9_000);
        assert_eq!(budget.bears(&sites, Site(0), 18_999), UNSEEN);
        assert_eq!(budget.bears(&sites, Site(0), 19_000), ONE / 2);
    }
}
