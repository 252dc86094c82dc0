//! What operators see of the sites.

use std::time::Duration;

use super::{Site, SiteStatus, Sites};
use crate::driver::Driver;
use crate::view::{Holder, PathToken, SiteView, SitesView, TokenUsage, UnshippedView};
use stoa_core::{SiteId, SiteSet, SitesStatus, TokenUse, Unshipped};

impl Sites {
    /// How this site stands among the others.
    pub(crate) fn view(&self, driver: &Driver) -> SitesView {
        let known = driver.server.borrow().site_status();
        let (links, list) = (self.status(), self.list(driver));
        let known = known.as_ref();
        let of = |site: &Site| self.site_view(site, &links, known, driver);
        let view = SitesView {
            name: self.own.clone(),
            leads: driver.server.borrow().leads(),
            sites: list.iter().map(of).collect(),
            ..SitesView::default()
        };
        let Some(known) = known else {
            return view;
        };
        let SitesStatus { own, hub, reign, claim, leads, committed, applied, waiting, held, counts, .. } =
            *known;
        let now_us = driver.now().mono_us;
        let left = |until_us: Option<u64>| until_us.map(|until_us| until_us.saturating_sub(now_us));
        let claimed = claim.map(|claim| self.names(SiteSet::of(claim.hub), driver));
        let next_hub = claimed.and_then(|names| names.into_iter().next());
        let waits_for = self.names(known.waits_for, driver);
        let is_lost = known.is_given_up();
        let kept = driver.server.borrow().tree().streams().kept().cloned();
        let (number, hub) = (Some(own.into()), Some(hub.into()));
        let name = |site: SiteId| self.names(SiteSet::of(site), driver).concat();
        let levels = driver.server.borrow().level_status();
        let level_waits_for = levels.held_back.as_ref().map(|by| by.named(name));
        SitesView {
            number,
            hub,
            reign,
            next_hub,
            waits_for,
            is_lost,
            kept,
            lost_updates: self.lost_count.get(),
            leads,
            committed,
            applied,
            waiting,
            held,
            lease_us: left(known.lease_until_us),
            bound_us: left(known.bound_until_us),
            level: levels.in_use,
            level_waits_for,
            counts,
            ..view
        }
    }

    fn site_view(
        &self,
        site: &Site,
        links: &[SiteStatus],
        known: Option<&SitesStatus>,
        driver: &Driver,
    ) -> SiteView {
        let is_own = site.addresses.name == self.own;
        let link = links.iter().find(|link| link.site == site.number);
        let other = known.and_then(|known| known.others.iter().find(|other| other.site == site.number));
        let is_at_hub = known.map_or(self.is_first(), |known| known.own == known.hub);
        // Sites that are no hub are not connected with each other.
        let is_beside = !is_own
            && (is_at_hub || known.is_some_and(|known| known.hub == site.number))
            && driver.server.borrow().leads();
        let now = driver.now();
        let connected_ms =
            link.map(|link| now.wall_ms - i64::try_from(link.connected.as_millis()).unwrap_or(0));
        SiteView {
            number: site.number.into(),
            name: site.addresses.name.clone(),
            is_hub: known.map_or(site.is_hub, |known| known.hub == site.number),
            is_own,
            is_lost: other.is_some_and(|other| other.is_lost),
            kept: other.and_then(|other| other.kept.clone()),
            servers: {
                let reached_at = self.reached_at(&site.addresses);
                reached_at.servers.iter().map(|(host, port)| format!("{host}:{port}")).collect()
            },
            connected: is_beside.then_some(link.is_some()),
            connected_ms,
            round_trip_us: link.and_then(|link| link.round_trip).map(micros),
            imported: other.map(|other| other.imported),
            acknowledged: other.and_then(|other| other.acknowledged),
            unshipped: other.and_then(|other| other.unshipped).map(|of| unshipped(of, now.mono_us)),
            level_newest: match known.filter(|_| is_own) {
                Some(_) => Some(driver.server.borrow().own_levels().all_read),
                None => other.and_then(|other| other.all_read),
            },
        }
    }

    /// Who holds the token of a path, as is said where that lives, and what is known of its use.
    pub(crate) fn holder(&self, path: &str, token: PathToken, driver: &Driver) -> Holder {
        let PathToken { mark, is_there, readers } = token;
        let (site, usage) = (mark.holder, driver.server.borrow().token_use_of(path, &mark));
        let list = self.list(driver);
        let name = |site: SiteId| {
            let known = list.iter().find(|known| known.number == site);
            known.map(|known| known.addresses.name.clone())
        };
        let now = driver.now();
        let wall_ms = |at_us: u64| {
            let ago_ms = now.mono_us.saturating_sub(at_us) / 1000;
            now.wall_ms - i64::try_from(ago_ms).unwrap_or(0)
        };
        let usage = usage.map(|known: TokenUse| TokenUsage {
            since_ms: known.since_us.map(wall_ms),
            uses: known.uses,
            used_ms: known.used_us.map(wall_ms),
            shares: known.shares.iter().map(|(site, share)| ((*site).into(), name(*site), *share)).collect(),
            has_others: known.has_others,
            last: known.last.map(Into::into),
        });
        let readers = readers.into_iter().map(|site| (site.into(), name(site))).collect();
        Holder { site: site.into(), name: name(site), is_there, readers, usage }
    }
}

fn micros(of: Duration) -> u64 {
    u64::try_from(of.as_micros()).unwrap_or(u64::MAX)
}

fn unshipped(of: Unshipped, now_us: u64) -> UnshippedView {
    let Unshipped { entries, bytes, since_us, is_all } = of;
    UnshippedView { entries, bytes, age_us: since_us.map_or(0, |since| now_us.saturating_sub(since)), is_all }
}
