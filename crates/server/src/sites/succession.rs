//! How a site becomes the hub without an operator. What is to be done is decided in the core, [`stoa_core::Succession`];
//! this does it.

use stoa_core::{Greeting, SiteSet, SuccessionStep, has_nothing_to_tell, hub_is_back};

use super::hello::Welcome;
use super::{Site, Sites};
use crate::driver::Driver;

impl Sites {
    /// At a site that misses the hub: asks the others, and claims its place when all of them miss it, too, and this is the
    /// site that can take it.
    pub(super) fn tend_succession(&self, driver: &Driver) {
        let now = driver.now();
        let step = self.succession.borrow_mut().step(&driver.server.borrow(), now);
        match step {
            SuccessionStep::Nothing => {}
            SuccessionStep::Ask(others) => {
                let names = self.names(others, driver).join(", ");
                self.complaints.say(&format!(
                    "the hub has not been heard of: {names} are asked whether they miss it, too"
                ));
                self.to_look_at.set(others.iter().fold(self.to_look_at.get(), SiteSet::with));
            }
            SuccessionStep::NobodyCan(others) => {
                self.complaints.say(
                    "no other site hears the hub, and none of them can take its place, since each lacks something that no \
                     other one can tell it (one has joined a moment before): mend the hub or the lines to it, or promote \
                     the site that has most, and have those that lack something given up with it (stoa sites promote \
                     --lose)",
                );
                self.to_look_at.set(others.iter().fold(self.to_look_at.get(), SiteSet::with));
            }
            SuccessionStep::TakePlace(others) => self.take_place(others, driver),
        }
    }

    fn take_place(&self, others: SiteSet, driver: &Driver) {
        let now = driver.now();
        let claimed = driver.server.borrow_mut().take_place(others, now);
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
        let Some(needed) = hub_is_back(&driver.server.borrow(), welcome.from, welcome.hub) else { return };
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

    /// At who is to be the hub: a site for which it waits has not taken the state since it came back, and so has nothing
    /// to tell. It joins anew when there is a hub.
    pub(super) fn go_on_without(&self, site: &Site, greeting: &Greeting, driver: &Driver) {
        let without = has_nothing_to_tell(&driver.server.borrow(), site.number, greeting);
        let Some((lost, needed)) = without else { return };
        let now = driver.now();
        let claimed = driver.server.borrow_mut().claim_reign(lost, needed, now);
        driver.after_input();
        if let Ok(claim) = claimed {
            tracing::warn!(
                "{} has come back, and has not taken the state yet: it is not waited for, and joins when {} is the hub",
                site.addresses.name,
                self.own
            );
            self.to_look_at.set(claim.needed);
        }
    }
}
