//! How this site stands among the others, for operators.

use crate::replica::Replica;
use crate::status::{OtherSite, SitesStatus, TokenMark, TokenUse};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_partition::Asked;
use stoa_timeline::Origin;
use stoa_tree::SiteId;

impl Replica {
    /// How this site stands among the others; `None` where it is none, or has not joined them.
    #[must_use]
    pub fn site_status(&self) -> Option<SitesStatus> {
        let tree = self.applied.partition.tree();
        let (own, hub) = (tree.own_site()?, tree.hub()?);
        let streams = tree.streams();
        let mut sites: BTreeSet<SiteId> = tree.known_sites().collect();
        sites.extend(self.sites.outgoing.keys().chain(self.sites.settled.keys()));
        sites.extend([hub]);
        sites.remove(&own);
        let of_here = streams.all_waiting().filter(|waiting| waiting.ticket.site == own);
        let is_divided = self.applied.placement.is_divided() && self.timeline.has_log();
        let committed = match self.timeline.status() {
            Some(log) if is_divided => log.committed,
            _ => self.timeline.committed(),
        };
        Some(SitesStatus {
            own,
            hub,
            reign: tree.reign(),
            claim: streams.claim(),
            waits_for: tree.waits_for(),
            standing: streams.standing(),
            leads: self.timeline.leads(),
            committed,
            applied: self.applied_of_log(),
            waiting: of_here.count() as u64,
            held: self.held_answers(),
            lease_until_us: self.lease_until_us(),
            bound_until_us: self.bound_until_us(),
            counts: self.sites.counts,
            others: sites.into_iter().map(|site| self.other_site(site)).collect::<Vec<_>>(),
        })
    }

    /// Up to which position of the log everything is applied, at the first partition. Positions that sites name are those
    /// of the log.
    #[must_use]
    pub fn applied_of_log(&self) -> u64 {
        self.timeline.divided()
    }

    /// At the hub's leader: what it knows of the token of a path and its use; `None` elsewhere.
    #[must_use]
    pub fn token_use(&self, path: &str) -> Option<TokenUse> {
        self.token_use_of(path, &self.token_mark(path)?)
    }

    /// Who holds the token of a path, and where that is said, at the partition where it lives.
    #[must_use]
    pub fn token_mark(&self, path: &str) -> Option<TokenMark> {
        let tree = self.applied.partition.tree();
        Some(TokenMark { holder: tree.holder(path)?, at: tree.marked_at(path).map(String::from) })
    }

    /// At the leader of the hub, with what the partition says where the path lives.
    #[must_use]
    pub fn token_use_of(&self, path: &str, mark: &TokenMark) -> Option<TokenUse> {
        let tree = self.applied.partition.tree();
        let is_at_hub = tree.own_site().is_some() && tree.own_site() == tree.hub();
        if !is_at_hub || !self.timeline.leads() || !self.sites.policy.is_there() {
            return None;
        }
        let policy = &self.sites.policy;
        let away = mark.at.as_ref().and_then(|at| policy.away(at));
        let away = away.filter(|away| away.at == mark.holder);
        let usage = policy.usage(path);
        let shares = usage.iter().flat_map(|usage| &usage.shares).map(|(site, percent)| (site.0, *percent));
        Some(TokenUse {
            since_us: away.map(|away| away.since_us),
            used_us: away.filter(|away| away.uses > 0).map(|away| away.used_us),
            uses: away.map(|away| away.uses),
            shares: shares.collect(),
            has_others: usage.as_ref().is_some_and(|usage| usage.has_others),
            last: usage.and_then(|usage| usage.last).map(|site| site.0),
        })
    }

    fn other_site(&self, site: SiteId) -> OtherSite {
        let leads = self.timeline.leads();
        let open = self.sites.outgoing.get(&site).filter(|outgoing| leads && outgoing.is_open);
        OtherSite {
            site,
            is_lost: self.applied.partition.tree().is_lost(site),
            kept: self.applied.partition.tree().kept_of_lost(site).cloned(),
            imported: self.applied.partition.tree().streams().imported(site),
            acknowledged: open.map(|outgoing| outgoing.acknowledged),
            unshipped: self.sites.unshipped(site).filter(|_| leads),
            all_read: self.servers.levels.sites.get(&site).copied(),
        }
    }

    /// A request is prepared here: if it is one of a client of this site, it counts as such.
    pub(super) fn count_local_write(&mut self, origin: Origin, asked: &Asked<'_>) {
        let Some(own) = self.applied.partition.tree().own_site() else { return };
        let is_own = matches!(asked, Asked::Write { .. }) && [0, own].contains(&origin.site);
        self.sites.counts.writes_local += u64::from(is_own);
    }
}
