//! The hub's lease: how another site becomes the hub without an operator, and yet never two of them are listened to.
//!
//! The hub asks all other sites every two seconds for a *promise*, and a site promises by an item of its own log, so that
//! whoever leads it next knows of it: it takes no part for ten seconds in giving the hub up. With promises of a majority
//! of the sites, itself counted, the hub has the lease, and without it prepares nothing. Another site becomes the hub
//! only when all but the hub follow it, and none of them is bound by a promise. So one of those would be among a majority.
//!
//! The hub counts from when it has asked, and a tenth less, as clocks run at different speeds. Whoever promised counts
//! from when that was proposed, or applied, whatever was later there.
//!
//! A hub that reaches too few of them to have the lease asks none: whoever has promised it something would keep the others
//! from having another one.
//!
//! Of a site that is new to the list a site that is cut off knows nothing, and may follow without it: of two sites in
//! three that is no majority yet. So one comes at a time, and the next one when others have had the time to know it. A hub
//! without the lease takes nobody in: those that do not hear it would never know.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use stoa_tree::{SiteId, SiteSet};

/// A site that has promised takes no part for so long in giving the hub up.
pub(crate) const LEASE_US: u64 = 10_000_000;
/// How often the hub asks.
const ASK_US: u64 = 2_000_000;
/// Of fewer sites none is a majority without the hub.
const SITES_LEAST: usize = 3;

/// What a server knows of the lease. None of it is replicated; a server that starts, or takes over the state of another
/// one, takes its site for bound.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The sites, and when that was last another set. None before it was looked.
    members: Option<(SiteSet, u64)>,
    /// Where the log stood when a site returned last, or a reign began; 0 if that was before the start.
    changed_at: u64,
    /// At the hub's leader: when it has asked for the last promise that each site has given.
    promised: BTreeMap<SiteId, u64>,
    ask_at_us: u64,
    /// Since when it has not had the lease.
    missed_since_us: Option<u64>,
    /// Anywhere else: until when this site is bound.
    bound_until_us: u64,
}

impl Lease {
    /// At the start of a server.
    pub(crate) fn new(now_us: u64) -> Self {
        Self {
            members: None,
            changed_at: 0,
            promised: BTreeMap::new(),
            ask_at_us: 0,
            missed_since_us: None,
            bound_until_us: now_us + LEASE_US,
        }
    }

    /// Which sites there are that were not given up.
    pub(crate) fn note_members(&mut self, members: SiteSet, now_us: u64) {
        if self.members.is_none_or(|(known, _)| known != members) {
            self.members = Some((members, now_us));
        }
    }

    /// A site returns, or a reign begins, with the entry at this position of the log.
    pub(crate) fn sites_changed(&mut self, position: u64) {
        self.changed_at = position;
    }

    /// Where the log stood then; 0 if that was before the start.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// Whether a site may come to the others now.
    pub(crate) fn may_grow(&self, now_us: u64) -> bool {
        self.members.is_some_and(|(_, since_us)| since_us + 2 * LEASE_US <= now_us)
    }

    /// Whether there are so many sites that one can take the hub's place.
    pub(crate) fn are_enough(members: SiteSet) -> bool {
        members.iter().count() >= SITES_LEAST
    }

    /// Whether so many of the sites are a majority.
    pub(crate) fn is_majority(count: usize, members: SiteSet) -> bool {
        count * 2 > members.iter().count()
    }

    // ---- at the hub ----

    /// This server leads the hub: nobody has promised it anything.
    pub(crate) fn begin(&mut self) {
        self.promised.clear();
        (self.ask_at_us, self.missed_since_us) = (0, None);
    }

    /// Whether the others are to be asked now.
    pub(crate) fn is_time_to_ask(&mut self, now_us: u64) -> bool {
        let is_time = self.ask_at_us <= now_us;
        if is_time {
            self.ask_at_us = now_us + ASK_US;
        }
        is_time
    }

    /// When they are to be asked next.
    pub(crate) fn asks_at_us(&self) -> u64 {
        self.ask_at_us
    }

    /// A site can be asked that could not before: that is done at once.
    pub(crate) fn has_come(&mut self) {
        self.ask_at_us = 0;
    }

    /// A site has promised what was asked for at a time.
    pub(crate) fn has_promised(&mut self, site: SiteId, asked_us: u64) {
        let last = self.promised.entry(site).or_default();
        *last = asked_us.max(*last);
    }

    /// Until when the hub counts on what a site has promised, and on itself.
    fn counts_until_us(&self, site: SiteId, hub: SiteId) -> u64 {
        let asked = self.promised.get(&site);
        if site == hub { u64::MAX } else { asked.map_or(0, |asked_us| asked_us + LEASE_US / 10 * 9) }
    }

    /// Whether the hub has the lease.
    pub(crate) fn is_held(&self, hub: SiteId, now_us: u64) -> bool {
        let Some((members, _)) = self.members else { return false };
        let bound = members.iter().filter(|site| self.counts_until_us(*site, hub) > now_us).count();
        !Self::are_enough(members) || Self::is_majority(bound, members)
    }

    /// Until when it has it, if nobody promises anything more; 0 when it never had. `None` where it needs none.
    pub(crate) fn held_until_us(&self, hub: SiteId) -> Option<u64> {
        let (members, _) = self.members.filter(|(members, _)| Self::are_enough(*members))?;
        let mut until_us: Vec<_> = members.iter().map(|site| self.counts_until_us(site, hub)).collect();
        until_us.sort_unstable();
        // From the end, a majority: as many as half of them, and one.
        Some(until_us[(until_us.len() - 1) / 2])
    }

    /// Whether the hub has it is looked at now.
    pub(crate) fn note_held(&mut self, is_held: bool, now_us: u64) {
        let since_us = self.missed_since_us.unwrap_or(now_us);
        self.missed_since_us = (!is_held).then_some(since_us);
    }

    /// Whether the hub has been without it since then.
    pub(crate) fn is_missed_since(&self, since_us: u64) -> bool {
        self.missed_since_us.is_some_and(|missed_us| missed_us <= since_us)
    }

    // ---- at other sites ----

    /// This site promises something to the hub, or did.
    pub(crate) fn bind(&mut self, now_us: u64) {
        self.bound_until_us = self.bound_until_us.max(now_us + LEASE_US);
    }

    /// This server has the state of another one. What this site has promised may stand in what it has not applied itself.
    pub(crate) fn state_replaced(&mut self, now_us: u64) {
        self.bound_until_us = self.bound_until_us.max(now_us + LEASE_US);
    }

    /// Until when this site takes no part in giving the hub up.
    pub(crate) fn bound_until_us(&self) -> u64 {
        self.bound_until_us
    }

    /// Whether this site may take part in giving the hub up.
    pub(crate) fn is_free(&self, now_us: u64) -> bool {
        self.bound_until_us <= now_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(sites: &[SiteId]) -> SiteSet {
        sites.iter().copied().fold(SiteSet::default(), SiteSet::with)
    }

    #[test]
    fn the_hub_has_it_with_a_majority() {
        let mut lease = Lease::new(0);
        assert!(!lease.is_held(1, 0));
        lease.note_members(set(&[1, 2]), 0);
        // Nobody could take its place.
        assert!(lease.is_held(1, 0));
        lease.note_members(set(&[1, 2, 3, 4, 5]), 0);
        lease.has_promised(2, 1_000_000);
        assert!(!lease.is_held(1, 1_000_000));
        lease.has_promised(4, 2_000_000);
        assert!(lease.is_held(1, 9_999_999));
        assert!(!lease.is_held(1, 10_000_000));
        // What is said twice is said once.
        lease.has_promised(2, 4_000_000);
        lease.has_promised(2, 1_000_000);
        assert!(lease.is_held(1, 10_999_999));
        // Who is none of the sites says nothing.
        lease.note_members(set(&[1, 2, 3, 5]), 0);
        assert!(!lease.is_held(1, 5_000_000));
        lease.begin();
        lease.has_promised(2, 0);
        lease.has_promised(3, 0);
        assert!(lease.is_held(1, 0));
    }

    #[test]
    fn until_when_it_is_held_is_known() {
        for count in 3..=6 {
            let members: Vec<SiteId> = (1..=count).collect();
            let mut lease = Lease::new(0);
            assert_eq!(lease.held_until_us(1), None);
            lease.note_members(set(&members), 0);
            assert_eq!(lease.held_until_us(1), Some(0));
            for site in 2..=count {
                lease.has_promised(site, u64::from(site) * 100);
                let until_us = lease.held_until_us(1).unwrap();
                assert_eq!(lease.is_held(1, 0), until_us > 0, "{site} of {count}");
                assert!(until_us == 0 || lease.is_held(1, until_us - 1) && !lease.is_held(1, until_us));
            }
        }
        let mut few = Lease::new(0);
        few.note_members(set(&[1, 2]), 0);
        assert_eq!(few.held_until_us(1), None);
    }

    #[test]
    fn who_has_promised_is_bound_for_longer_than_the_hub_counts_on() {
        let mut lease = Lease::new(7);
        assert!(!lease.is_free(LEASE_US + 6) && lease.is_free(LEASE_US + 7));
        let mut hub = Lease::new(0);
        hub.note_members(set(&[1, 2, 3]), 0);
        hub.has_promised(2, 100 * LEASE_US);
        lease.bind(100 * LEASE_US);
        let over = (0..2 * LEASE_US).step_by(1000).map(|after| 100 * LEASE_US + after);
        let both = over.clone().filter(|now_us| lease.is_free(*now_us) && hub.is_held(1, *now_us));
        assert_eq!(both.count(), 0);
        assert!(over.clone().any(|now_us| lease.is_free(now_us)));
        // An earlier one takes nothing back.
        lease.bind(50 * LEASE_US);
        assert!(!lease.is_free(101 * LEASE_US - 1));
    }

    #[test]
    fn who_has_taken_over_a_state_may_have_promised() {
        let mut lease = Lease::new(0);
        lease.bind(LEASE_US);
        assert!(lease.is_free(2 * LEASE_US));
        lease.state_replaced(2 * LEASE_US);
        assert!(!lease.is_free(3 * LEASE_US - 1) && lease.is_free(3 * LEASE_US));
        // Whoever has promised later is bound for longer.
        lease.bind(3 * LEASE_US);
        lease.state_replaced(2 * LEASE_US);
        assert!(!lease.is_free(4 * LEASE_US - 1));
    }

    #[test]
    fn since_when_it_is_missed_is_known() {
        let mut lease = Lease::new(0);
        lease.note_held(false, 5);
        lease.note_held(false, 9);
        assert!(lease.is_missed_since(5) && !lease.is_missed_since(4));
        lease.note_held(true, 10);
        assert!(!lease.is_missed_since(20));
    }

    #[test]
    fn sites_come_one_at_a_time() {
        let mut lease = Lease::new(0);
        assert!(!lease.may_grow(100 * LEASE_US));
        lease.note_members(set(&[1, 2, 3]), LEASE_US);
        lease.note_members(set(&[1, 2, 3]), 2 * LEASE_US);
        assert!(!lease.may_grow(3 * LEASE_US - 1) && lease.may_grow(3 * LEASE_US));
        lease.note_members(set(&[1, 2, 3, 4]), 3 * LEASE_US);
        assert!(!lease.may_grow(5 * LEASE_US - 1));
    }

    #[test]
    fn the_others_are_asked_every_two_seconds_and_who_comes_at_once() {
        let mut lease = Lease::new(0);
        assert!(lease.is_time_to_ask(5) && !lease.is_time_to_ask(ASK_US + 4));
        assert!(lease.is_time_to_ask(ASK_US + 5));
        lease.has_come();
        assert!(lease.is_time_to_ask(ASK_US + 6));
    }
}
