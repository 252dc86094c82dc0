//! Tokens that the first partition of a site has another one give, bring or return: each has those of what lives there.

use crate::replica::Replica;
use crate::site_news::SiteNews;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_partition::SiteItem;
use stoa_placement::FIRST;
use stoa_sites::is_at_or_below;
use stoa_timeline::Origin;
use stoa_tree::{CarriedOut, SiteId, SiteSet, TokenRefusal};

impl Replica {
    /// At the first partition: another one is to give the token of what is at a path to a site.
    pub(super) fn give_elsewhere(&mut self, path: &str, to: SiteId) {
        let at = self.applied.placement.of(path);
        self.tell_news(at, SiteNews::Give(path.into(), to));
    }

    pub(super) fn was_given(&mut self, path: &str, to: SiteId, given: Result<(), TokenRefusal>) {
        match given {
            Ok(()) => self.sites.policy.gave(path, to, self.now.mono_us),
            Err(TokenRefusal::Ephemeral) => {
                // Nothing is below it that could be given back without it.
                let recalled = self.applied.partition.tree().streams().recalled();
                let recalled = recalled.filter(|recalled| is_at_or_below(recalled, path)).map(String::from);
                recalled.collect::<Vec<_>>().iter().for_each(|recalled| self.is_not_returned(recalled));
                // What waits for that needs it at another site.
                self.refuse_waiting_for(path);
            }
            Err(_) => self.sites.broker.wake(path),
        }
    }

    /// What is at a path stays here, and what waits for that to go elsewhere is not carried out.
    fn refuse_waiting_for(&mut self, path: &str) {
        for ticket in self.sites.broker.take_blocked(path) {
            let waiting = self.applied.partition.tree().streams().waiting(ticket);
            let server = waiting.filter(|it| it.by == CarriedOut::Here).map(|waiting| waiting.server);
            let origin = server.map(|server| Origin { server, request: ticket.number, site: ticket.site });
            if origin.is_some() {
                self.refuse_ticket(ticket, origin);
            }
        }
        self.sites.broker.wake(path);
    }

    pub(super) fn bring_here(&mut self, path: String, to: SiteId) {
        let tree = self.applied.partition.tree();
        let may_go = tree.get(&path).is_some_and(|it| it.stat().ephemeral_owner == 0);
        match tree.holder_to_be(&path).filter(|_| may_go) {
            Some(holder) if holder == to => {}
            Some(holder) if Some(holder) == tree.own_site() => {
                let given = self.give_token(&path, to);
                self.tell_news(FIRST, SiteNews::Given(path, to, given));
            }
            Some(holder) => self.tell_news(FIRST, SiteNews::HeldBy { path, holder, to }),
            None => {}
        }
    }

    pub(super) fn return_here(&mut self, path: String) {
        let tree = self.applied.partition.tree();
        let (Some(own), Some(hub)) = (tree.own_site(), tree.hub()) else { return };
        if self.applied.partition.tree().readers(&path).any(|reader| reader == own) {
            // It may be on its way already.
            let _ = self.applied.partition.propose_read_return(&path, self.now);
            return;
        }
        if self.applied.partition.tree().holder_to_be(&path) == Some(own)
            && self.hand_token(&path, hub).is_ok()
        {
            return;
        }
        if !self.applied.partition.tree().is_leaving(&path) {
            self.tell_news(FIRST, SiteNews::NotReturned(path));
        }
    }

    /// At the first partition: another one has no token of what is at a path to give back; it may be held with the root.
    pub(super) fn is_not_returned(&mut self, path: &str) {
        let tree = self.applied.partition.tree();
        let (own, hub) = (tree.own_site(), tree.hub());
        let is_recalled = tree.streams().recalled().any(|recalled| recalled == path);
        if is_recalled && own != hub && self.sites.broker.declines(path) {
            self.applied.partition.propose_site_item(None, &SiteItem::NotRecalled { path });
        }
    }

    pub(super) fn give_read_here(&mut self, path: &str, to: SiteSet) {
        let tree = self.applied.partition.tree();
        let Some(own) = tree.own_site() else { return };
        if tree.holder_to_be(path) == Some(own) {
            let have = tree.readers(path).fold(SiteSet::of(own), SiteSet::with);
            let to = to.without(have);
            if !to.is_empty() {
                let given = self.applied.partition.propose_read_tokens(path, to, self.now);
                self.sites.counts.grants += u64::from(given.is_ok());
            }
        } else {
            // Then with the next read.
            self.bring_here(path.into(), own);
        }
    }
}
