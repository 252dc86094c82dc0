//! Sites that read what is newest without asking anybody, while nobody writes (WanKeeper's fractions of a token):
//! `tree/src/sites/read_tokens.rs` says why that is safe.
//!
//! A site that reads a znode so, again and again, by way of the hub gets a read token of it. Who is to write the znode has
//! all of them returned first, which takes a round trip to the farthest of these sites; and the more often that happens,
//! the more reads it takes to get another one.

use crate::replica::Replica;
use crate::site_news::SiteNews;
use alloc::collections::BTreeSet;
use alloc::string::String;
use stoa_partition::SiteItem;
use stoa_placement::FIRST;
use stoa_tree::{LackedTokens, SiteId, SiteSet, Ticket};
use stoa_wire::Request;

impl Replica {
    /// A site that is not connected and without which a request cannot be carried out.
    pub(super) fn away_of(&self, own: SiteId, lacked: &LackedTokens) -> Option<SiteId> {
        let mut needed = lacked.missing.iter().chain(&lacked.read).map(|(_, site)| *site);
        needed.find(|site| *site != own && !self.sites.is_open(*site))
    }

    /// At the hub: a request of a site has its turn here, or where the znodes are held. If it only reads what is newest of
    /// them, that site may be worth read tokens.
    pub(super) fn was_read(&mut self, paths: &BTreeSet<String>, by: SiteId, is_visit: bool) {
        for path in paths {
            let tree = self.applied.partition.tree();
            let is_elsewhere = self.applied.placement.of(path) != FIRST;
            let is_away = if is_elsewhere { is_visit } else { tree.holder_to_be(path) != tree.own_site() };
            let readers = self.sites.policy.is_read(path, by, is_away);
            if let Some(readers) = readers.filter(|_| !self.sites.broker.is_recalled(path)) {
                self.give_read_tokens(path, readers);
            }
        }
    }

    pub(super) fn give_read_tokens(&mut self, path: &str, readers: SiteSet) {
        let tree = self.applied.partition.tree();
        let Some(own) = tree.own_site() else { return };
        let have: BTreeSet<SiteId> = tree.readers(path).chain([own]).collect();
        let new = readers.iter().filter(|site| !have.contains(site) && self.may_hold(*site));
        let to = new.fold(SiteSet::default(), SiteSet::with);
        let at = self.applied.placement.of(path);
        if at != FIRST {
            let readers = readers.iter().filter(|site| *site != own && self.may_hold(*site));
            let readers = readers.fold(SiteSet::default(), SiteSet::with);
            return self.tell_news(at, SiteNews::GiveRead(path.into(), readers));
        }
        if to.is_empty() {
            return;
        }
        if tree.holder_to_be(path) == Some(own) {
            let given = self.applied.partition.propose_read_tokens(path, to, self.now);
            self.sites.counts.grants += u64::from(given.is_ok());
        } else {
            // Then with the next read.
            self.bring(path, own);
        }
    }

    /// At the hub: a request is to write what sites have read tokens of. It waits until they are back.
    pub(super) fn recall_read_tokens(&mut self, ticket: Ticket, read: &[(String, SiteId)]) {
        let mut recalled = BTreeSet::new();
        for (path, reader) in read {
            self.sites.policy.is_written(path, true);
            if recalled.contains(path) || self.sites.broker.block(ticket, path) {
                recalled.insert(path);
                self.recall_read(path, *reader);
            }
        }
    }

    /// At the hub: what the server is to do by itself waits for read tokens, and is tried again later.
    pub(super) fn recall_reads_of(&mut self, request: &Request<'_>) {
        let tree = self.applied.partition.tree();
        if tree.own_site() != tree.hub() {
            return;
        }
        let mut recalled = BTreeSet::new();
        for (path, reader) in tree.lacked_tokens(request).read {
            if recalled.contains(&path) || self.sites.broker.recalls(&path) {
                self.recall_read(&path, reader);
                recalled.insert(path);
            }
        }
    }

    fn recall_read(&mut self, path: &str, reader: SiteId) {
        self.sites.counts.recalls += 1;
        self.applied.partition.propose_site_item(None, &SiteItem::Recall { to: reader, path });
    }
}
