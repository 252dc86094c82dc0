//! The feature level of the sites: who can read a higher one, and when it is raised.
//!
//! Only an operator raises it. Until then each site can have the release back that it had; from then on it cannot, and
//! that nobody but its operator can know to be right. Whoever is not connected counts as too old for a higher level: it
//! may have any release when it comes back. Readers are asked by nobody, as no leader knows of them: who is a reader's
//! parent lets it go when the level is one that it does not read, before it is given anything of that level.

use crate::levels::{HeldBack, LevelRefusal, LevelStatus, SiteLevels};
use crate::replica::Replica;
use crate::replica::reign::ReignRefusal;
use alloc::collections::BTreeSet;
use stoa_partition::Now;
use stoa_tree::{Levels, SiteId, SiteSet, SiteStep};

impl Replica {
    /// Another server of this ensemble is about to be connected, and has said at which levels it can work.
    pub fn peer_levels(&mut self, peer: u8, levels: Levels) {
        self.servers.levels.servers.insert(peer, levels);
    }

    /// The leader of another site has said what that can read and write.
    pub fn site_levels(&mut self, site: SiteId, levels: SiteLevels) {
        self.servers.levels.sites.insert(site, levels.all_read);
    }

    /// The other servers that may become a reader of this site's log.
    fn other_servers(&self) -> BTreeSet<u8> {
        let listed = self.membership();
        let listed = listed.iter().flat_map(|list| list.ids().collect::<BTreeSet<_>>());
        listed.chain(self.company()).filter(|id| *id != self.config.server_id).collect()
    }

    /// The other sites that were not given up: those of the list, and whoever has come. Also one that was, and is connected
    /// to join anew: it was let in when it could read what is in use, and is about to be given the state.
    fn other_sites(&self) -> SiteSet {
        let tree = self.applied.partition.tree();
        let known = tree.known_sites().filter(|site| !tree.is_lost(*site));
        known
            .chain(self.sites.outgoing.keys().copied())
            .fold(self.members(), SiteSet::with)
            .without(tree.own_site().map_or(SiteSet::default(), SiteSet::of))
    }

    /// What the leader of this site says of levels to other ones. Whether it is too old for them is told by those of its
    /// servers that are connected: else a site that misses one could not be told that the level was raised. Whichever
    /// comes later and is too old is let in by none of them.
    #[must_use]
    pub fn own_levels(&self) -> SiteLevels {
        let in_use = if self.has_joined() && self.is_of_sites() { self.level_to_be() } else { 0 };
        let (servers, known) = (self.other_servers(), &self.servers.levels.servers);
        let connected = servers.iter().filter_map(|id| known.get(id).copied());
        let can = connected.fold(self.applied.partition.tree().levels(), Levels::and);
        let are_all = servers.iter().all(|id| known.contains_key(id));
        let all_read = if are_all { can.newest } else { can.newest.min(self.level_to_be()) };
        SiteLevels { can, all_read, in_use }
    }

    /// How it stands with feature levels, for operators.
    #[must_use]
    pub fn level_status(&self) -> LevelStatus {
        let in_use = self.applied.partition.tree().level();
        LevelStatus { in_use, own: self.own_levels(), held_back: self.held_back() }
    }

    /// The level in use, or the one that will be when all is applied that this leader has proposed.
    #[must_use]
    pub fn level_to_be(&self) -> u8 {
        let proposed = if self.timeline.leads() { self.servers.levels.proposed } else { 0 };
        self.applied.partition.tree().level().max(proposed)
    }

    /// Who cannot read what is of a higher level than the one in use, and this server can. `None` where this server
    /// cannot, or does not lead. Of other sites only the hub's leader knows.
    #[must_use]
    pub fn held_back(&self) -> Option<HeldBack> {
        let (tree, level) = (self.applied.partition.tree(), self.level_to_be());
        if tree.levels().newest <= level || !self.timeline.leads() || !self.is_of_sites() {
            return None;
        }
        let levels = &self.servers.levels;
        let is_too_old = |newest: Option<u8>| newest.is_none_or(|newest| newest <= level);
        let of_server = |id: u8| (id, levels.servers.get(&id).map(|known| known.newest));
        let servers =
            self.other_servers().into_iter().map(of_server).filter(|(_, newest)| is_too_old(*newest));
        let own = tree.own_site();
        let others = self.other_sites().iter().filter(|_| own == tree.hub());
        let of_site = |site: SiteId| {
            let is_connected = self.sites.outgoing.contains_key(&site);
            (site, levels.sites.get(&site).copied().filter(|_| is_connected))
        };
        let sites = others.map(of_site).filter(|(_, newest)| is_too_old(*newest));
        Some(HeldBack { sites: sites.collect(), servers: servers.collect() })
    }

    /// At the hub's leader: the sites use the highest level that all of them can read. Returns it. There is no way back.
    ///
    /// # Errors
    /// Why it is not raised.
    pub fn raise_level(&mut self, now: Now) -> Result<u8, LevelRefusal> {
        self.at(now);
        let own = self.leads_site().map_err(LevelRefusal::Reign)?;
        let tree = self.applied.partition.tree();
        let hub = tree.hub().unwrap_or_default();
        if hub != own {
            return Err(LevelRefusal::Reign(ReignRefusal::NotTheHub(hub)));
        }
        if let Some(claim) = tree.streams().claim() {
            return Err(LevelRefusal::Reign(ReignRefusal::IsClaimed(claim.hub)));
        }
        let held_back = self.held_back().ok_or(LevelRefusal::Highest(self.level_to_be()))?;
        if !held_back.is_empty() {
            return Err(LevelRefusal::HeldBack(held_back));
        }
        let others = self.other_sites();
        let sites = self.servers.levels.sites.iter().filter(|(site, _)| others.contains(**site));
        let level = sites.map(|(_, newest)| *newest).fold(self.own_levels().all_read, u8::min);
        let raised = self.propose_site_step(&SiteStep::Level { level });
        raised.map_err(|_| LevelRefusal::Highest(level))?;
        self.servers.levels.proposed = level;
        self.pump();
        Ok(level)
    }
}
