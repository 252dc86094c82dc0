//! Servers of all sites get the next release one after the other, and somebody raises the feature level as soon as he
//! can: until then both have to understand each other, and then nobody may be there who does not read it.

use super::SiteRun;
use super::meeting::site_of;
use crate::ensemble::FromAbroad;
use crate::ensemble::HostId;
use stoa_core::{Greeting, Levels, SiteAnswer};

/// Those of the next release.
pub(super) const NEXT: Levels = Levels { oldest: Levels::OWN.oldest, newest: Levels::OWN.newest + 1 };

impl SiteRun {
    /// Now and then a server gets the next release, or somebody raises the level.
    pub(super) fn change_releases(&mut self) {
        let every_us = self.plan.release_ms * 1000;
        if every_us == 0 || self.now_us < self.releases_us {
            return;
        }
        self.releases_us = self.now_us + self.rng.range(1, 2 * every_us);
        if !self.is_healing && self.rng.one_in(2) {
            let at = self.rng.index(self.worlds.len());
            let ids = self.worlds[at].ids();
            let id = ids[self.rng.index(ids.len())];
            self.counts.upgrades += u64::from(self.worlds[at].gets_release(id, NEXT));
        } else {
            let hub = self.hub;
            for envoy in self.leaders(hub) {
                let whom = (envoy.server, envoy.life);
                self.worlds[hub].comes_from_abroad(self.now_us, whom, FromAbroad::Raise);
            }
        }
    }

    /// All that have not got it yet get it now.
    pub(super) fn finish_releases(&mut self) {
        if self.plan.release_ms == 0 {
            return;
        }
        let raised = (0..self.worlds.len()).filter_map(|at| self.first_of(at)).map(|it| it.tree().level());
        self.counts.raised += u64::from(raised.max() == Some(NEXT.newest));
        for world in &mut self.worlds {
            for id in world.ids() {
                self.counts.upgrades += u64::from(world.gets_release(id, NEXT));
            }
        }
    }

    /// What a leader says of levels is heard by one that it meets. Returns whether they have more to say.
    pub(super) fn compare_levels(
        &mut self,
        (leaf, greeting): (usize, &Greeting),
        (at, (server, life)): (usize, (HostId, u64)),
        answer: SiteAnswer,
    ) -> bool {
        let Some(ours) = self.worlds[at].shard(server).map(|shard| shard.own_levels()) else { return false };
        let fit = answer == SiteAnswer::Lost || ours.check("", greeting.levels, "").is_ok();
        if self.plan.release_ms > 0 {
            let heard = FromAbroad::Levels(site_of(leaf), greeting.levels);
            self.worlds[at].comes_from_abroad(self.now_us, (server, life), heard);
        }
        self.counts.too_old += u64::from(!fit);
        fit
    }

    /// In the end all use what all read.
    pub(super) fn is_raised(&self) -> Result<(), String> {
        if self.plan.release_ms == 0 {
            return Ok(());
        }
        self.each(|site, id, whole| {
            match whole.all().map(|shard| shard.tree().level()).find(|level| *level != NEXT.newest) {
                None => Ok(()),
                Some(level) => Err(format!("server {id} of site {site} uses feature level {level}")),
            }
        })
    }
}
