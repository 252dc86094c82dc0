//! The streams between sites: what of this site's log is shipped to others, and what of theirs is imported.

use crate::backlog::BacklogWanted;
use crate::lacks::Lacks;
use crate::replica::Replica;
use crate::second_site::Shared;
use crate::site_news::SiteNews;
use crate::sites::{BATCH_BYTES, BatchWriter, InFlight, KEPT_LEAST_BYTES, Outgoing, SiteMessage};
use bytes::Bytes;
use smallvec::SmallVec;
use stoa_partition::{Items, Link, Now, SiteItem, export};
use stoa_placement::FIRST;
use stoa_timeline::{BadMessage, Lead};
use stoa_tree::{SiteId, Source};

/// A message with entries of this site's log, for one site or for several.
struct Batch {
    message: Bytes,
    /// What it says, without the bytes of its entries.
    flight: InFlight,
    /// Behind this position nothing was looked at before it was made.
    passed: u64,
    /// Whether it says to each site what there is to be said behind that.
    is_for_all: bool,
}

impl Batch {
    /// Whether it is what a site is to be told next.
    fn is_for(&self, outgoing: &Outgoing) -> bool {
        let is_next = (outgoing.sent, outgoing.passed) == (self.flight.since, self.passed);
        self.is_for_all && is_next && !outgoing.is_lacking()
    }
}

/// The next message to a site, of entries that follow on what it was told; `None` if none of them concerns it, and it
/// need not know how far that has come: mostly it is told with the next that does. Entries come with the time at which
/// they were applied, where that is known.
fn next_batch<'a>(
    outgoing: &mut Outgoing,
    link: Link,
    entries: impl Iterator<Item = (u64, &'a Bytes, Option<u64>)>,
) -> Option<Batch> {
    let (since, passed) = (outgoing.sent, outgoing.passed);
    let mut batch = BatchWriter::new();
    let (mut has_to_know, mut since_us, mut is_for_all) = (false, None, !outgoing.is_lacking());
    for (position, entry, applied_us) in entries {
        let items = batch.begin(position, entry.len());
        is_for_all &= export(position, entry, link, items).expect("it was applied here");
        has_to_know |= outgoing.pass(position, entry.len());
        let is_wanted = outgoing.wants(position, entry, batch.items());
        if outgoing.is_torn(false) {
            return None;
        }
        if batch.end(is_wanted) {
            since_us = since_us.or(applied_us);
        }
        if batch.bytes() >= BATCH_BYTES {
            break;
        }
    }
    if batch.is_empty() && !has_to_know {
        return None;
    }
    let upto = outgoing.passed;
    let flight = InFlight { since, upto, bytes: batch.bytes(), entries: batch.entries(), since_us };
    outgoing.sent(flight);
    Some(Batch { message: batch.finish(since, upto), flight, passed, is_for_all })
}

impl Replica {
    /// What is for the leaders of other sites.
    pub fn poll_site(&mut self) -> Option<(SiteId, Bytes)> {
        if self.sites.outbox.is_empty() {
            self.ship();
        }
        self.sites.outbox.pop_front()
    }

    /// The leader of another site says something, whose name is proved.
    ///
    /// # Errors
    /// When it is none; nothing has changed.
    pub fn site_message(&mut self, from: SiteId, message: &Bytes, now: Now) -> Result<(), BadMessage> {
        self.at(now);
        match SiteMessage::decode(message)? {
            // It does not know that yet, and what has been done since would not fit with what it has.
            SiteMessage::Missing { .. } | SiteMessage::Again { .. } if self.has_given_up(from) => {}
            SiteMessage::Join => self.site_joins(from),
            SiteMessage::Missing { has } => {
                let own = self.applied.partition.tree().own_site();
                let of_own = |(maker, _): &&(Source, i64)| Some(maker.site) == own;
                for (maker, zxid) in has.iter().filter(of_own) {
                    match maker.partition {
                        FIRST => self.other_site_has(from, Shared { position: 0, zxid: *zxid }),
                        other if self.applied.partition.tree().listens_to(from) => {
                            self.tell_news(other, SiteNews::Shared { position: 0, zxid: *zxid });
                        }
                        _ => {}
                    }
                }
                self.begin_behind(from, &has);
                self.site_has_come(from);
            }
            SiteMessage::Again { position } => {
                self.sites.outgoing.entry(from).or_default().begins(position);
                self.other_site_has(from, Shared { position, zxid: 0 });
                self.site_has_come(from);
            }
            SiteMessage::Have { position } => {
                self.sites.outgoing.entry(from).or_default().acknowledged(position);
                self.other_site_has(from, Shared { position, zxid: 0 });
                let needed = self.sites.needed();
                self.sites.kept.trim(needed, KEPT_LEAST_BYTES, self.kept_bytes());
                self.tend_joining();
            }
            SiteMessage::Ask { term, asked_us } => self.promise(from, term, asked_us),
            SiteMessage::Promise { term, asked_us } => self.has_promised(from, term, asked_us),
            SiteMessage::Batch { since, upto, entries } => {
                let is_readable = |items: &Bytes| Items::imported(items).all(|item| item.is_ok());
                if !entries.iter().all(|(_, items)| is_readable(items)) {
                    return Err(BadMessage);
                }
                self.import(from, since, upto, &entries);
            }
        }
        Ok(())
    }

    /// A site has said what it has: it can be told something now.
    fn site_has_come(&mut self, site: SiteId) {
        self.sites.broker.has_come(site);
        self.sites.lease.has_come();
        self.tend_sites();
    }

    /// At the hub: whether a site is none of the others any more. What a site that is to join anew has does not say so: it
    /// may have been the hub, and have given up the one that is it now.
    fn has_given_up(&self, site: SiteId) -> bool {
        let tree = self.applied.partition.tree();
        self.has_joined()
            && tree.own_site() == tree.hub()
            && tree.streams().claim().is_none()
            && tree.is_lost(site)
    }

    /// At the leader: makes what another site has items of this log, if it follows what is in it.
    fn import(&mut self, from: SiteId, since: u64, upto: u64, entries: &[(u64, Bytes)]) {
        let applied = self.applied.partition.tree().streams().imported(from);
        let here = self.sites.importing.get(&from).copied().unwrap_or(0).max(applied);
        let is_heard = self.applied.partition.tree().listens_to(from) && !self.sites.proposed.gives_up(from);
        if !self.leads_here() || !is_heard || since > here || upto <= here {
            return;
        }
        if self.applied.placement.is_divided() {
            self.import_divided(from, here, upto, entries);
            self.sites.importing.insert(from, upto);
            return;
        }
        let mut last = here;
        for (position, items) in entries.iter().filter(|(position, _)| *position > here) {
            self.applied
                .partition
                .propose_site_item(None, &SiteItem::Import { from, position: *position, items });
            last = *position;
        }
        if last < upto {
            // What concerns nobody here has been passed all the same.
            let passed = SiteItem::Import { from, position: upto, items: b"" };
            self.applied.partition.propose_site_item(None, &passed);
        }
        self.sites.importing.insert(from, upto);
    }

    /// At the leader: puts what other sites do not have into the outbox, which is empty.
    fn ship(&mut self) {
        self.sites.kept.waits_no_more();
        let pause_us = self.config.site.map_or(0, |site| site.ship_pause_us);
        let tree = self.applied.partition.tree();
        let (Some(own), Some(hub)) = (tree.own_site(), tree.hub()) else { return };
        if !self.timeline.leads() || !self.has_joined() {
            return;
        }
        let (reign, reigned_at) = (tree.reign(), tree.streams().reigned_at());
        // What stands before this became a site concerns nobody.
        let begun = tree.streams().begun().saturating_sub(1);
        let (gone, last) = (self.sites.kept.gone(), self.sites.kept.last());
        let is_due = |outgoing: &Outgoing| outgoing.passed < last.max(begun) || outgoing.is_lacking();
        if !self.sites.outgoing.values().any(|outgoing| outgoing.is_open && is_due(outgoing)) {
            return;
        }
        if self.sites.kept.has_to_wait(self.now.mono_us, pause_us) {
            return;
        }
        // What several sites are told is mostly the same, and then made once.
        let are_several = self.sites.outgoing.len() > 1;
        let mut made: SmallVec<[Batch; 1]> = SmallVec::new();
        for (site, outgoing) in self.sites.outgoing.iter_mut().filter(|(_, outgoing)| outgoing.is_open) {
            if !outgoing.is_reading {
                outgoing.pass(outgoing.passed.max(begun), 0);
            }
            let link = Link { from: own, to: *site, hub, reign, reigned_at };
            while outgoing.has_room() && (gone..last).contains(&outgoing.passed) {
                if let Some(batch) = made.iter().find(|made| made.is_for(outgoing)) {
                    outgoing.sent(batch.flight);
                    self.sites.outbox.push_back((*site, batch.message.clone()));
                    continue;
                }
                let entries = self.sites.kept.behind(outgoing.passed);
                let entries = entries.map(|kept| (kept.position, &kept.entry, Some(kept.since_us)));
                let Some(batch) = next_batch(outgoing, link, entries) else { break };
                if are_several {
                    self.sites.outbox.push_back((*site, batch.message.clone()));
                    made.push(batch);
                } else {
                    self.sites.outbox.push_back((*site, batch.message));
                }
            }
            let is_all = outgoing.passed >= last;
            if outgoing.is_torn(is_all) {
                outgoing.is_open = false;
                self.sites.wanted.torn.push_back(*site);
                continue;
            }
            if is_all {
                outgoing.has_looked();
            }
            if outgoing.has_room() && outgoing.passed < gone && !outgoing.is_reading {
                outgoing.is_reading = true;
                let (since, is_looking) = (outgoing.passed, outgoing.is_looking());
                self.sites.wanted.backlogs.push_back(BacklogWanted {
                    site: *site,
                    since,
                    upto: gone,
                    is_looking,
                });
            }
        }
        if !self.sites.outbox.is_empty() {
            self.sites.kept.shipped(self.now.mono_us);
        }
    }

    /// A site lacks what was committed, and that is not kept here any more: it is to be read from the log, and handed in
    /// with [`Replica::site_backlog`].
    pub fn poll_site_backlog(&mut self) -> Option<BacklogWanted> {
        self.sites.wanted.backlogs.pop_front()
    }

    /// A site lacks something that this one's log does not have any more: it has to be given up, and join anew.
    pub fn poll_torn_site(&mut self) -> Option<SiteId> {
        self.sites.wanted.torn.pop_front()
    }

    /// Whether more can be on its way to a site.
    #[must_use]
    pub fn has_room_for_site(&self, site: SiteId) -> bool {
        self.sites.outgoing.get(&site).is_some_and(|outgoing| outgoing.has_room())
    }

    /// What was committed behind a position, as the log has it. False if that is not what the site lacks (any more).
    pub fn site_backlog(&mut self, site: SiteId, since: u64, entries: &[(u64, Bytes)], now: Now) -> bool {
        self.at(now);
        let divided = self.applied.placement.is_divided().then(|| self.as_wholes(entries));
        let entries = divided.as_deref().unwrap_or(entries);
        let tree = self.applied.partition.tree();
        let (Some(own), Some(hub)) = (tree.own_site(), tree.hub()) else { return false };
        let (reign, reigned_at) = (tree.reign(), tree.streams().reigned_at());
        let link = Link { from: own, to: site, hub, reign, reigned_at };
        let leads = self.timeline.leads();
        let outgoing = self.sites.outgoing.get_mut(&site);
        let is_wanted = |outgoing: &&mut Outgoing| outgoing.is_reading && outgoing.passed == since;
        let Some(outgoing) = outgoing.filter(is_wanted).filter(|_| leads) else { return false };
        let behind = |passed: u64| entries.partition_point(|(at, _)| *at <= passed);
        let behind = |passed: u64| entries[behind(passed)..].iter().map(|(at, entry)| (*at, entry, None));
        while let Some(batch) = next_batch(outgoing, link, behind(outgoing.passed)) {
            self.sites.outbox.push_back((site, batch.message));
        }
        if outgoing.is_torn(false) {
            outgoing.is_open = false;
            self.sites.wanted.torn.push_back(site);
            return false;
        }
        true
    }

    /// That was all of it, up to this position.
    pub fn site_backlog_ended(&mut self, site: SiteId, upto: u64, now: Now) {
        self.at(now);
        if let Some(outgoing) = self.sites.outgoing.get_mut(&site).filter(|outgoing| outgoing.is_reading) {
            outgoing.is_reading = false;
            // The last of it may be nobody's but the group's.
            outgoing.pass(upto.max(outgoing.passed), 0);
        }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        usize::try_from(self.config.kept_bytes).unwrap_or(usize::MAX)
    }

    /// Tells other sites what is here of their logs.
    pub(super) fn tell_imported(&mut self) {
        if self.timeline.lead() != Lead::Active {
            return;
        }
        let streams = self.applied.partition.tree().streams();
        for site in self.sites.outgoing.keys() {
            let position = streams.imported(*site);
            if self.sites.told.insert(*site, position) != Some(position) {
                self.sites.outbox.push_back((*site, SiteMessage::Have { position }.encode()));
            }
        }
    }

    /// Tells another site what is here of its log, and wants the rest: what was sent before may not have arrived, or was
    /// proposed here and is lost. Where nothing is here, the state is wanted.
    pub(super) fn ask_again(&mut self, site: SiteId) {
        if self.timeline.leads() && !self.has_joined() {
            // One that was given up wants it when an operator has said that what it has may go.
            let join = self.may_join().then(|| (site, SiteMessage::Join.encode()));
            self.sites.outbox.extend(join);
        } else if self.timeline.leads() && self.applied.partition.tree().streams().imported(site) == 0 {
            // By its position nothing is known of that log, but much of it may have come by way of others.
            let has = self.applied.partition.tree().seen().collect();
            self.sites.outbox.push_back((site, SiteMessage::Missing { has }.encode()));
        } else if self.timeline.leads() {
            let position = self.applied.partition.tree().streams().imported(site);
            self.sites.told.insert(site, position);
            self.sites.outbox.push_back((site, SiteMessage::Again { position }.encode()));
        }
    }

    /// Nothing is known of its position in this log, but of each site the last update that it has: it is told from where
    /// something is new to it.
    fn begin_behind(&mut self, site: SiteId, has: &[(Source, i64)]) {
        let tree = self.applied.partition.tree();
        let Some(own) = tree.own_site().filter(|_| self.has_joined()) else {
            // Everything that this site does once it is one.
            return self.sites.outgoing.entry(site).or_default().begins(0);
        };
        // What others have done has come from the hub.
        let is_hub = tree.hub() == Some(site);
        let is_lacked = |maker: SiteId| if is_hub { maker == own } else { maker != site };
        let seen = tree.seen().filter(|(maker, _)| is_lacked(maker.site));
        let mut lacks = Lacks::new(has, own, &tree.floors().collect(), seen, tree.streams().begun());
        let is_in_memory = !lacks.is_torn() && lacks.is_all_kept(self.sites.kept.gone_seen());
        let outgoing = self.sites.outgoing.entry(site).or_default();
        outgoing.begins_behind(lacks);
        if is_in_memory {
            // What was said in this reign, or of the next one, is none of the updates.
            let streams = tree.streams();
            let since = if is_hub { streams.reigned_at() } else { streams.claimed_at().saturating_sub(1) };
            outgoing.pass(self.sites.kept.gone().min(since), 0);
        }
    }
}
