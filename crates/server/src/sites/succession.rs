//! How a site becomes the hub without an operator: it asks the others whether they miss the hub, too, before it claims
//! that. Who would not be followed would wait in vain, and have no hub meanwhile. What makes it safe is no business of
//! this (`stoa_core`, `lease.rs`).

use std::collections::BTreeMap;

use stoa_core::{SiteId, SiteSet};
use tokio::time::Instant;

use super::hello::Welcome;
use super::{LOOK, Sites};
use crate::driver::Driver;

/// What another site has said is believed for so long.
const BELIEVED: std::time::Duration = LOOK.saturating_mul(2);

/// Who has said to miss the hub, and when.
#[derive(Default)]
pub(super) struct Succession {
    missed_at: BTreeMap<SiteId, Instant>,
    asked_at: Option<Instant>,
}

impl Succession {
    /// A site has said whether it misses the hub.
    pub(super) fn heard(&mut self, site: SiteId, misses_hub: bool) {
        if misses_hub {
            self.missed_at.insert(site, Instant::now());
        } else {
            self.missed_at.remove(&site);
        }
    }

    fn all_miss(&self, sites: SiteSet) -> bool {
        sites.iter().all(|site| self.missed_at.get(&site).is_some_and(|at| at.elapsed() < BELIEVED))
    }

    fn is_time_to_ask(&mut self) -> bool {
        let is_time = self.asked_at.is_none_or(|at| at.elapsed() >= LOOK);
        if is_time {
            self.asked_at = Some(Instant::now());
        }
        is_time
    }
}

impl Sites {
    /// At the site that is to take the hub's place, when that is away: asks the others, and claims it when all of them
    /// agree.
    pub(super) fn tend_succession(&self, driver: &Driver) {
        let now = driver.now();
        let Some(others) = driver.server.borrow().may_take_place(now) else { return };
        if self.succession.borrow_mut().is_time_to_ask() {
            let names = self.names(others, driver).join(", ");
            self.complaints
                .say(&format!("the hub has not been heard of: {names} are asked whether they miss it, too"));
            self.to_look_at.set(others.iter().fold(self.to_look_at.get(), SiteSet::with));
        }
        if !self.succession.borrow().all_miss(others) {
            return;
        }
        let claimed = driver.server.borrow_mut().take_place(now);
        driver.after_input();
        match claimed {
            Ok(claim) => {
                let lost = self.names(claim.lost, driver).join(", ");
                tracing::warn!("no other site hears {lost}: {} becomes the hub in its place", self.own);
                self.to_look_at.set(claim.needed);
            }
            Err(why) => self.complaints.say(&format!("{} does not become the hub: {why}", self.own)),
        }
    }

    /// The hub is there again before all others have followed this site in its place: then that follows, too, and
    /// nothing is lost.
    pub(super) fn make_up(&self, welcome: &Welcome, driver: &Driver) {
        let (is_back, needed) = {
            let server = driver.server.borrow();
            let tree = server.tree();
            let claim = tree
                .streams()
                .claim()
                .filter(|claim| claim.is_automatic && Some(claim.hub) == tree.own_site());
            let is_back =
                claim.is_some_and(|claim| claim.lost.contains(welcome.from) && welcome.hub == welcome.from);
            (is_back, claim.map_or(SiteSet::default(), |claim| claim.needed.with(welcome.from)))
        };
        if !is_back {
            return;
        }
        let now = driver.now();
        let claimed = driver.server.borrow_mut().claim_reign(SiteSet::default(), needed, now);
        driver.after_input();
        if let Ok(claim) = claimed {
            tracing::warn!(
                "the hub is there again: it follows {} like the others, and is not given up",
                self.own
            );
            self.to_look_at.set(claim.needed);
        }
    }
}
