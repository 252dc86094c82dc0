//! The hub's lease, and who takes the hub's place without an operator: what leaders do for it. Why that is safe:
//! [`crate::lease`].

use crate::lease::Lease;
use crate::replica::Replica;
use crate::replica::reign::ReignRefusal;
use crate::replica::sites::{SITES_PATH, WAIT_US};
use crate::site_news::SiteNews;
use crate::sites::SiteMessage;
use crate::succession::SiteReach;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use stoa_partition::{Item, Now, Outcome, SiteItem};
use stoa_timeline::Lead;
use stoa_tree::{Claim, SITE_MAX, SiteId, SiteSet, Source};

/// The numbers of the sites in a list, also of those of which it says nothing that can be read.
fn listed(list: &[u8]) -> SiteSet {
    let number = |line: &[u8]| {
        let number = core::str::from_utf8(line.strip_prefix(b"site.")?.split(|byte| *byte == b'=').next()?);
        number.ok()?.parse().ok().filter(|site| (1..=SITE_MAX).contains(site))
    };
    list.split(|byte| *byte == b'\n').filter_map(number).fold(SiteSet::default(), SiteSet::with)
}

impl Replica {
    /// The sites that were not given up, this one among them.
    pub(super) fn members(&self) -> SiteSet {
        let tree = self.applied.partition.tree();
        let list = tree.get(SITES_PATH).and_then(|znode| znode.data().map(listed)).unwrap_or_default();
        list.iter().filter(|site| !tree.is_lost(*site)).fold(SiteSet::default(), SiteSet::with)
    }

    /// Whether sites become the hub without an operator.
    #[inline]
    pub(crate) fn may_be_replaced(&self) -> bool {
        self.config.site.is_some_and(|site| site.automatic_promotion)
    }

    fn is_hub(&self) -> bool {
        let tree = self.applied.partition.tree();
        tree.own_site().is_some() && tree.own_site() == tree.hub()
    }

    // ---- at the hub ----

    /// Time has passed.
    pub(super) fn tend_lease(&mut self) {
        if !self.may_be_replaced() || !self.is_of_sites() {
            return;
        }
        let (members, now_us) = (self.members(), self.now.mono_us);
        self.sites.lease.note_members(members, now_us);
        if !self.is_hub() || !self.leads_here() {
            return;
        }
        if self.sites.lease.is_time_to_ask(now_us) {
            self.ask_for_promises(members);
        }
        let is_held = self.holds_lease();
        self.sites.lease.note_held(is_held, now_us);
        self.tell_lease();
        if is_held {
            self.let_return();
        }
    }

    /// Too few promises give no lease, and would only keep those that give them from having another hub.
    fn ask_for_promises(&mut self, members: SiteSet) {
        let is_open = |site: &SiteId| self.sites.is_open(*site);
        let open: Vec<SiteId> = members.iter().filter(is_open).collect();
        if !Lease::is_majority(open.len() + 1, members) {
            return;
        }
        let ask = SiteMessage::Ask { term: self.timeline.term(), asked_us: self.now.mono_us }.encode();
        self.sites.outbox.extend(open.into_iter().map(|site| (site, ask.clone())));
    }

    /// When the others are to be asked next.
    pub(super) fn next_lease_us(&self) -> Option<u64> {
        let asks = self.may_be_replaced() && self.is_hub() && self.leads_here();
        asks.then(|| self.sites.lease.asks_at_us())
    }

    /// A site has promised what this server, or one that led before, had asked for.
    pub(super) fn has_promised(&mut self, site: SiteId, term: u64, asked_us: u64) {
        if term != self.timeline.term() || asked_us > self.now.mono_us {
            return;
        }
        self.sites.lease.has_promised(site, asked_us);
        let is_held = self.holds_lease();
        self.sites.lease.note_held(is_held, self.now.mono_us);
        self.tell_lease();
        if is_held {
            self.take_pending();
            self.tend_sites();
        }
    }

    /// Whether this server may prepare what is the hub's to prepare; at other sites always.
    #[inline]
    pub(super) fn holds_lease(&self) -> bool {
        if !self.may_be_replaced() || !self.is_hub() {
            return true;
        }
        if !self.has_sessions() {
            return self.now.mono_us < self.sites.divided.lease.0;
        }
        let hub = self.applied.partition.tree().hub().unwrap_or_default();
        self.sites.lease.is_held(hub, self.now.mono_us)
    }

    /// Whether this server does what only the hub does.
    #[must_use]
    pub fn acts_as_hub(&self) -> bool {
        self.is_hub() && self.leads_here() && !self.is_between_reigns() && self.holds_lease()
    }

    /// At the hub's leader, where another site could take its place: until when this server may prepare what is the
    /// hub's to prepare, if it hears nothing more.
    pub(super) fn lease_until_us(&self) -> Option<u64> {
        let hub = self.applied.partition.tree().hub()?;
        let is_asked = self.may_be_replaced() && self.is_hub() && self.leads_here();
        is_asked.then(|| self.sites.lease.held_until_us(hub)).flatten()
    }

    /// Whether that is not so for longer than anybody waits.
    pub(super) fn has_missed_lease(&self) -> bool {
        if !self.has_sessions() {
            return self.sites.divided.lease.1;
        }
        self.sites.lease.is_missed_since(self.now.mono_us.saturating_sub(WAIT_US))
    }

    /// Whether there may be one site more now. Where others may take the hub's place sites come one at a time, and only
    /// while the hub has the lease: those that do not hear it would know nothing of them.
    #[must_use]
    pub fn may_add_site(&self) -> bool {
        !self.may_be_replaced()
            || !Lease::are_enough(self.members())
            || self.sites.lease.may_grow(self.now.mono_us) && self.holds_lease()
    }

    /// At the first of several partitions: the others have to know when they may prepare what is the hub's.
    pub(super) fn tell_lease(&mut self) {
        let others = self.other_partitions();
        if others.is_empty() || !self.may_be_replaced() || !self.is_hub() {
            return;
        }
        let hub = self.applied.partition.tree().hub().unwrap_or_default();
        let until_us = self.sites.lease.held_until_us(hub).unwrap_or(u64::MAX);
        let lease = (until_us, self.has_missed_lease());
        if self.sites.divided.told_lease.replace(lease) != Some(lease) {
            let (until_us, is_missed) = lease;
            others.for_each(|to| self.tell_news(to, SiteNews::Lease { until_us, is_missed }));
        }
    }

    // ---- at other sites ----

    /// The hub wants a promise.
    pub(super) fn promise(&mut self, hub: SiteId, term: u64, asked_us: u64) {
        let tree = self.applied.partition.tree();
        if !self.prepares() || tree.hub() != Some(hub) || !self.has_joined() || self.is_between_reigns() {
            return;
        }
        let reign = tree.reign();
        self.sites.lease.bind(self.now.mono_us);
        self.applied.partition.propose_site_item(None, &SiteItem::Promised { reign, term, asked_us });
    }

    /// This site has promised something to its hub: it is durable now.
    pub(super) fn note_promise(&mut self, item: &Item<'_>) {
        let Outcome::Site(SiteItem::Promised { reign, term, asked_us }) = item.outcome else { return };
        self.sites.lease.bind(self.now.mono_us);
        let tree = self.applied.partition.tree();
        let Some(hub) = tree.hub().filter(|_| tree.reign() == reign && !self.is_between_reigns()) else {
            return;
        };
        if self.timeline.lead() == Lead::Active {
            let promise = SiteMessage::Promise { term, asked_us }.encode();
            self.sites.outbox.push_back((hub, promise));
        }
    }

    /// Whether this site would follow who takes the place of a hub that is away: it has promised nothing to that for ten
    /// seconds.
    #[must_use]
    pub fn misses_hub(&self, now: Now) -> bool {
        self.leads_here()
            && self.has_joined()
            && !self.is_hub()
            && !self.is_between_reigns()
            && self.sites.lease.is_free(now.mono_us)
    }

    /// At the leader of another site, where one could take the hub's place: until when this one would not follow it, if
    /// it hears nothing more of the hub.
    pub(super) fn bound_until_us(&self) -> Option<u64> {
        let may = self.may_be_replaced() && Lease::are_enough(self.members());
        (may && self.leads_here() && self.is_of_sites() && !self.is_hub())
            .then(|| self.sites.lease.bound_until_us())
    }

    /// What this site has, for who decides which one takes the hub's place.
    #[must_use]
    pub fn reach(&self) -> SiteReach {
        let tree = self.applied.partition.tree();
        let floors: BTreeMap<Source, i64> = tree.floors().collect();
        let floor = |source: &Source| floors.get(source).copied().unwrap_or(0);
        let updates = tree.seen().map(|(source, last)| (source, (last, floor(&source)))).collect();
        let has_promised = tree.streams().promised_in() == tree.reign();
        SiteReach { members: self.members(), updates, has_promised }
    }

    /// The sites that have to miss the hub, too, if this one may take its place without an operator. Which of those that
    /// may does: [`crate::Succession`].
    #[must_use]
    pub fn may_take_place(&self, now: Now) -> Option<SiteSet> {
        let tree = self.applied.partition.tree();
        let (own, hub, members) = (tree.own_site()?, tree.hub()?, self.members());
        let others = members.without(SiteSet::of(hub));
        let is_one = others.contains(own) && members.contains(hub);
        let may = self.may_be_replaced() && is_one && self.misses_hub(now);
        (may && Lease::are_enough(members)).then(|| others.without(SiteSet::of(own)))
    }

    /// At the leader of such a site, when all others have said that they miss the hub: it is to be the hub, and the one
    /// before is given up. It is followed by who still misses that one.
    ///
    /// # Errors
    /// Why it does not become it.
    pub fn take_place(&mut self, others: SiteSet, now: Now) -> Result<Claim, ReignRefusal> {
        self.at(now);
        let known = self.may_take_place(now).ok_or(ReignRefusal::NotLeading)?;
        let needed = known.iter().fold(others, SiteSet::with);
        let tree = self.applied.partition.tree();
        let (Some(own), Some(hub)) = (tree.own_site(), tree.hub()) else {
            return Err(ReignRefusal::NotJoined);
        };
        let (reign, life, lost) = (tree.reign() + 1, tree.times_lost(own), SiteSet::of(hub));
        let claim = Claim { reign, hub: own, life, lost, needed, is_automatic: true };
        self.propose_to_follow(claim);
        Ok(claim)
    }

    /// Whether a claim that no operator has made may be followed: this site is not bound, and the claim waits for all
    /// sites that this one knows. Any other may.
    pub(super) fn may_follow(&self, claim: Claim) -> bool {
        let tree = self.applied.partition.tree();
        let of_claim = claim.needed.with(claim.hub);
        !claim.is_automatic
            || self.sites.lease.is_free(self.now.mono_us)
                && tree.hub().is_some_and(|hub| claim.lost == SiteSet::of(hub))
                && self.members().without(claim.lost).without(of_claim).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sites_of_a_list_are_known_by_their_numbers() {
        let list = b"site.1=a:hub;h:1\nsite.3=bogus\nsite.99=x;y:1\nsite.=a\npin /site.4=x a\nsite.2\n";
        assert_eq!(listed(list).iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(listed(b"").is_empty());
    }
}
