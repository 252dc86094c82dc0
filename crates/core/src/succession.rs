//! Who takes the place of a hub that is away, without an operator: what the leader of a site decides by what others have
//! told it. Why there are never two hubs is no business of this: [`crate::lease`].
//!
//! Who would not be followed would wait in vain, and have no hub meanwhile. So the site whose turn it is asks the others
//! whether they miss the hub, too, before it claims to be it.

use crate::replica::Replica;
use alloc::collections::BTreeMap;
use stoa_partition::Now;
use stoa_tree::{SiteId, SiteSet};

/// How often the others are asked.
const ASK_US: u64 = 2_000_000;
/// What another site has said is believed for so long.
const BELIEVED_US: u64 = 2 * ASK_US;

/// Which other sites have said to miss the hub, and when.
#[derive(Debug, Clone, Default)]
pub struct Succession {
    missed_us: BTreeMap<SiteId, u64>,
    asks_at_us: u64,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuccessionStep {
    /// Nothing.
    Nothing,
    /// These sites are to be asked whether they miss the hub.
    Ask(SiteSet),
    /// All of these do: [`Replica::take_place`].
    TakePlace(SiteSet),
}

impl Succession {
    /// A site has said whether it misses the hub.
    pub fn heard(&mut self, site: SiteId, misses_hub: bool, now: Now) {
        if misses_hub {
            self.missed_us.insert(site, now.mono_us);
        } else {
            self.missed_us.remove(&site);
        }
    }

    /// What the leader of a site is to do now.
    pub fn step(&mut self, server: &Replica, now: Now) -> SuccessionStep {
        let Some(others) = server.may_take_place(now) else { return SuccessionStep::Nothing };
        let misses = |site| self.missed_us.get(&site).is_some_and(|at_us| now.mono_us < at_us + BELIEVED_US);
        if others.iter().all(misses) {
            return SuccessionStep::TakePlace(others);
        }
        if now.mono_us < self.asks_at_us {
            return SuccessionStep::Nothing;
        }
        self.asks_at_us = now.mono_us + ASK_US;
        SuccessionStep::Ask(others)
    }
}

/// Whether the hub, in whose place a site has claimed to be it, is there again before all have followed: it has said that
/// it is the hub still. Then it is to follow like the others, and nothing is lost: these sites are needed for that claim.
#[must_use]
pub fn hub_is_back(server: &Replica, from: SiteId, told_hub: SiteId) -> Option<SiteSet> {
    let tree = server.tree();
    let claim =
        tree.streams().claim().filter(|claim| claim.is_automatic && Some(claim.hub) == tree.own_site());
    let is_back = |lost: SiteSet| lost.contains(from) && told_hub == from;
    claim.filter(|claim| is_back(claim.lost)).map(|claim| claim.needed.with(from))
}
