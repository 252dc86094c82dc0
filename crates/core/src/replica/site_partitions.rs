//! A site that is divided over partitions, among the others.
//!
//! The first partition has the streams: it imports what others ship, and ships what is committed here, of all partitions in
//! one order, as if there were one ([`stoa_partition::whole_entry`]). It has the requests that are on their way, and
//! decides where tokens go. Each partition has the tokens of what lives there, prepares what needs no others, and says in
//! its own entries which requests leave.
//!
//! What concerns several partitions is an operation over these, coordinated by the first one ([`crate::coordination`]): an
//! import, so that who has seen a part of it sees the others; what each partition has to know of the site as a whole; and
//! a request of another site, if its znodes live on several. One whose znodes live on one partition is carried out there.

use crate::coordination::Pending;
use crate::coordination::plan::Plan;
use crate::replica::Replica;
use crate::replica::site_policy::{Needs, only_waits, request_of};
use crate::replica::sites::SITES_PATH;
use crate::second_site::Shared;
use crate::shard_message::ShardMessage;
use crate::site_news::{Said, SiteNews, TicketOutcome, TicketReply, Tried, Try, UnderWay};
use crate::site_policy::TicketPlan;
use crate::site_requests::Forwarded;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_front::{CloseReason, ConnectionId};
use stoa_group::Entry;
use stoa_partition::{
    Asked, Item, Items, Outcome, Ran, SiteItem, divide_import, made_in, note_at_partition,
    partition_of_number, put_site_item, put_told, ticket_of, update_in, whole_entry,
};
use stoa_placement::FIRST;
use stoa_sites::Durability;
use stoa_timeline::{Origin, Slices};
use stoa_tree::{
    CarriedOut, Contact, LackedTokens, Places, SiteId, SiteSet, SiteStep, Ticket, TokenRefusal, Update,
    Waiting, source_of_zxid,
};
use stoa_wire::{ErrorCode, Request, Timestamp};

/// So many uses wait to be looked at; more say nothing new.
const USED_MAX: usize = 1024;
/// Of so many entries of the log it is known where partitions stand with them.
const SLICES_MAX: usize = 1 << 16;

/// Where a request of another site is carried out.
enum Where {
    /// On one partition.
    At(u8),
    /// As an operation over several, or one that tells another one what it comes to.
    Several,
    /// On none of them any more.
    Nowhere,
}

impl Replica {
    // ---- what the site itself does ----

    /// Has something done that every partition has to know of the site.
    pub(super) fn propose_site_step(&mut self, step: &SiteStep<'_>) -> Result<(), TokenRefusal> {
        if self.applied.placement.is_divided() {
            self.operate(None, step);
            return Ok(());
        }
        let (partition, now) = (&mut self.applied.partition, self.now);
        match *step {
            SiteStep::Begin { site, hub } => partition.propose_site(site, hub, now),
            SiteStep::Reign { reign, hub, lost } => {
                partition.propose_reign((reign, hub), SiteSet::from_bits(lost), now)
            }
            SiteStep::Return { site } => partition.propose_return(site, now),
            SiteStep::Level { level } => partition.propose_level(level, now),
            SiteStep::Token { path, holder, .. } => partition.propose_token(path, holder, now),
            SiteStep::Home { .. } => Err(TokenRefusal::NoSite),
        }
    }

    pub(super) fn propose_reign_of(
        &mut self,
        (reign, hub): (u64, SiteId),
        lost: SiteSet,
    ) -> Result<(), TokenRefusal> {
        if lost.contains(hub) || !self.is_of_sites() {
            return Err(TokenRefusal::NoSite);
        }
        self.propose_site_step(&SiteStep::Reign { reign, hub, lost: lost.bits() })
    }

    /// An operation over all partitions.
    pub(super) fn operate(&mut self, origin: Option<Origin>, step: &SiteStep<'_>) {
        let mut asked = Vec::new();
        Asked::put_site_step(&mut asked, step);
        self.queue_operation(origin, asked.into());
    }

    fn queue_operation(&mut self, origin: Option<Origin>, asked: Bytes) {
        self.leader.coordination.operations.push(Pending { origin, asked });
        self.take_operations();
    }

    /// An item that each partition notes.
    pub(super) fn propose_everywhere(&mut self, item: &SiteItem<'_>) {
        if !self.applied.placement.is_divided() {
            return self.applied.partition.propose_site_item(None, item);
        }
        let mut items = Vec::new();
        put_site_item(&mut items, None, item);
        let others: Vec<_> =
            (1..self.applied.placement.partitions()).map(|partition| (partition, &items[..])).collect();
        let mut asked = Vec::new();
        Asked::put_site_items(&mut asked, &items, &others);
        self.queue_operation(None, asked.into());
    }

    /// An item of the first partition, in its place among the operations.
    pub(super) fn propose_first(&mut self, item: &SiteItem<'_>) {
        if !self.applied.placement.is_divided() {
            return self.applied.partition.propose_site_item(None, item);
        }
        let (mut items, mut asked) = (Vec::new(), Vec::new());
        put_site_item(&mut items, None, item);
        Asked::put_site_items(&mut asked, &items, &[]);
        self.queue_operation(None, asked.into());
    }

    /// Takes what the site itself has to do next, before what clients ask.
    pub(super) fn take_operations(&mut self) {
        while self.timeline.leads()
            && let Some(Pending { origin, asked }) = self.leader.coordination.operations.next().cloned()
        {
            if self.is_wanted(origin) && !self.take_one(origin, &asked) {
                return;
            }
            self.leader.coordination.operations.pop();
        }
    }

    /// Whether what a request has asked for is wanted still: not if its site was given up meanwhile.
    pub(super) fn is_wanted(&self, origin: Option<Origin>) -> bool {
        let Some(origin) = origin.filter(|origin| origin.site != 0) else { return true };
        let ticket = Ticket { site: origin.site, number: origin.request };
        let waiting = self.applied.partition.tree().streams().waiting(ticket);
        waiting.is_some_and(|waiting| waiting.by == CarriedOut::Here)
    }

    /// What goes to the first partition goes to each of the others, too; of an import each gets its share.
    pub(super) fn plan_site_items(
        &self,
        mut plan: Plan,
        items: &[u8],
        others: &[(u8, &[u8])],
    ) -> Option<Plan> {
        // Imports are of what other sites hold: what is prepared meanwhile rests on nothing of it.
        let is_import = |item: &Item<'_>| matches!(item.outcome, Outcome::Site(SiteItem::Import { .. }));
        plan.is_of_znodes = Items::new(items).all(|item| item.is_ok_and(|item| is_import(&item)));
        plan.is_quiet = !plan.is_of_znodes;
        plan.behind = match plan.is_of_znodes {
            true => self.shares_of(items),
            false => others.iter().map(|(of, items)| (*of, Bytes::copy_from_slice(items))).collect(),
        };
        plan.behind.insert(0, (FIRST, Bytes::copy_from_slice(items)));
        plan.losses = self.applied.partition.tree().losses();
        plan.partitions = plan.behind.iter().map(|(of, _)| *of).collect();
        plan.writers.clone_from(&plan.partitions);
        (plan.partitions.len() > 1).then_some(plan)
    }

    /// At the first partition: what another site has behind a position and up to another one becomes items of this log.
    pub(super) fn import_divided(&mut self, from: SiteId, here: u64, upto: u64, entries: &[(u64, Bytes)]) {
        let (mut items, mut last) = (Vec::new(), here);
        for (position, imported) in entries.iter().filter(|(position, _)| *position > here) {
            put_site_item(&mut items, None, &SiteItem::Import { from, position: *position, items: imported });
            last = *position;
        }
        if last < upto {
            put_site_item(&mut items, None, &SiteItem::Import { from, position: upto, items: b"" });
        }
        let mut asked = Vec::new();
        Asked::put_site_items(&mut asked, &items, &[]);
        self.queue_operation(None, asked.into());
    }

    /// What other partitions get of imports, as subtrees and sessions are when all before it is proposed.
    fn shares_of(&self, imports: &[u8]) -> Vec<(u8, Bytes)> {
        let tree = self.applied.partition.tree();
        let Some(own) = tree.own_site() else { return Vec::new() };
        let (placement, partitions) = (&self.applied.placement, self.applied.placement.partitions());
        let (of, is_split) = (|path: &str| placement.of(path), |path: &str| placement.is_split(path));
        let places = Places { own: FIRST, partitions, of: &of, is_split: &is_split };
        // What may have been told stands before all else.
        let mut told = Vec::new();
        put_told(&mut told, partitions, self.told_by_then());
        let mut others: Vec<Vec<u8>> = (0..partitions).map(|_| told.clone()).collect();
        let (before, mut homes) = (&self.sites.divided.homes, BTreeMap::new());
        let mut home = |session, to: Option<SiteId>| {
            if let Some(to) = to {
                homes.insert(session, to);
            }
            let known = homes.get(&session).or_else(|| before.get(&session)).copied();
            known.unwrap_or_else(|| tree.home_to_be(session))
        };
        for item in Items::new(imports) {
            let item = item.expect("it was read when it came");
            let Outcome::Site(SiteItem::Import { from, position, items }) = item.outcome else { continue };
            let is_news = |update: &Update<'_>| !tree.has_come(update);
            let shares = divide_import(items, own, &places, &is_news, &mut home);
            let shares = shares.expect("it was read when it came");
            for (share, out) in shares.into_iter().zip(&mut others) {
                let is_any = !share.items.is_empty();
                for (session, home) in share.owners {
                    put_site_item(out, None, &SiteItem::Owner { session, home });
                }
                if is_any {
                    put_site_item(out, None, &SiteItem::Share { from, position, items: &share.items });
                }
            }
        }
        let others = (0..).zip(others).filter(|(_, items)| items.len() > told.len());
        others.map(|(partition, items)| (partition, items.into())).collect()
    }

    /// No client here has been told a larger zxid by the first partition before what is proposed next, and none by another
    /// one that has heard it from that. A partition may have told more by itself, and knows that.
    fn told_by_then(&self) -> i64 {
        let zxid = self.applied.partition.zxid_seen().max(self.applied.stamp.zxid());
        zxid.max(self.newest_known()).max(self.sites.divided.newest_imported)
    }

    /// What comes next changes what clients may have been told larger zxids for: they are told of it when they set their
    /// watches again.
    pub(super) fn note_told(&mut self) {
        if self.applied.placement.is_divided() {
            let known = if self.has_sessions() { self.newest_known() } else { 0 };
            let told = self.applied.stamp.zxid().max(known);
            self.applied.partition.tree_mut().note_told(told);
        }
    }

    /// Imports are proposed: until they are applied, that is where their sessions are at home.
    pub(super) fn homes_are_proposed(&mut self, imports: &[u8]) {
        for item in Items::new(imports).map_while(Result::ok) {
            let Outcome::Site(SiteItem::Import { items, .. }) = item.outcome else { continue };
            for item in Items::imported(items).map_while(Result::ok) {
                let Some(update) = update_in(&item) else { continue };
                let divided = &mut self.sites.divided;
                divided.newest_imported = divided.newest_imported.max(update.zxid);
                if let Some(to) = update.home_behind(source_of_zxid(update.zxid).site)
                    && !self.applied.partition.tree().has_come(&update)
                {
                    divided.homes.insert(update.session, to);
                }
            }
        }
    }

    /// Something imported is applied: where sessions are at home then is known again.
    pub(super) fn homes_are_applied(&mut self, item: &Item<'_>) {
        let session = match item.outcome {
            Outcome::Update(update) => update.session,
            _ => return,
        };
        let homes = &mut self.sites.divided.homes;
        if homes.get(&session).is_some_and(|home| *home == self.applied.partition.tree().home_of(session)) {
            homes.remove(&session);
        }
    }

    // ---- what is applied ----

    /// At the first partition: all partitions have been given what an entry of the log has for them, and this one has
    /// applied its own.
    pub(super) fn apply_logged(&mut self, entry: &Entry) {
        if entry.payload.is_empty() || !self.is_of_sites() {
            return;
        }
        let placement = &self.applied.placement;
        let whole = whole_entry(&entry.payload, placement.partitions(), &|path| placement.of(path));
        let whole = whole.expect("an entry that a leader made can be read");
        let seen = self.seen_with(entry);
        self.sites.divided.logged.include(&seen);
        for item in Items::new(&whole.of_others) {
            let item = item.expect("it was written just now");
            self.tell_whom_it_was_asked(&item, &seen);
            self.note_site_item(&item, None);
            if let Outcome::Update(update) = item.outcome {
                let streams = self.applied.partition.tree_mut().streams_mut();
                update.for_each_token(|path| streams.recall_is_done(path));
            }
        }
        let tree = self.applied.partition.tree_mut();
        made_in(&whole.entry, &mut |_, zxid| tree.note_made(zxid));
        if changes_sites(&whole.entry) {
            self.sites.lease.sites_changed(entry.position);
        }
        if self.sites.policy.is_there() && self.timeline.leads() {
            self.note_uses(&whole.entry);
        }
        self.keep_for_sites(entry.position, &whole.entry, None);
        self.note_slices(entry);
        let told = self.sites.divided.told_durability.as_ref().map(|(_, has_second)| *has_second);
        if told != Some(self.has_second_site()) {
            self.tell_durability();
        }
    }

    /// At the hub: what clients of other partitions have had changed here is told to the policy, which looks at it when
    /// something may be prepared.
    fn note_uses(&mut self, entry: &[u8]) {
        let own = self.applied.partition.tree().own_site().unwrap_or_default();
        for item in Items::new(entry).map_while(Result::ok) {
            let update = match item.outcome {
                Outcome::Update(update) => update,
                Outcome::Ran(Ran { update: Some(update), .. }) => update,
                _ => continue,
            };
            let source = source_of_zxid(update.zxid);
            if source.site != own || source.partition == FIRST || item.origin.is_some() {
                continue;
            }
            let mut used = BTreeSet::new();
            update.for_each_needed(|path| {
                used.insert(path.into());
            });
            if !used.is_empty() && self.sites.divided.used.len() < USED_MAX {
                self.sites.divided.used.push_back((used, own, TicketPlan::default()));
            }
        }
    }

    // ---- what another site has of this one's log ----

    /// Where partitions stand with an entry of the log, for as long as it is not known that another site has it.
    fn note_slices(&mut self, entry: &Entry) {
        if self.second_site.durability().is_empty() {
            return self.sites.divided.slices.clear();
        }
        let mut at = Vec::new();
        for (partition, position, _) in Slices::new(entry.payload.clone()).map_while(Result::ok) {
            at.retain(|(of, _)| *of != partition);
            at.push((partition, position));
        }
        self.sites.divided.slices.push_back((entry.position, at));
        if self.sites.divided.slices.len() > SLICES_MAX {
            self.sites.divided.slices.pop_front();
        }
        let shared = self.sites.divided.shared.position;
        if entry.position <= shared {
            // Another site has had it before this server did.
            self.share_with_partitions(shared);
        }
    }

    /// Another site has this log up to a position: each partition learns how far that is on its own timeline.
    pub(super) fn share_with_partitions(&mut self, upto: u64) {
        let mut known: BTreeMap<u8, u64> = BTreeMap::new();
        while let Some((_, at)) = self.sites.divided.slices.pop_front_if(|(position, _)| *position <= upto) {
            known.extend(at);
        }
        for (partition, position) in known {
            self.tell_news(partition, SiteNews::Shared { position, zxid: 0 });
        }
    }

    /// At the first partition: the others know what needs two sites, and whether there is another one.
    pub(super) fn tell_durability(&mut self) {
        let others = self.other_partitions();
        if others.is_empty() || !self.is_of_sites() {
            return;
        }
        let znode = self.applied.partition.tree().get(SITES_PATH);
        let text = znode.and_then(|znode| znode.data().map(Bytes::copy_from_slice)).unwrap_or_default();
        let told = (text, self.has_second_site());
        if self.sites.divided.told_durability.as_ref() != Some(&told) {
            for to in others {
                let (text, has_second) = told.clone();
                self.tell_news(to, SiteNews::Durability { text, has_second });
            }
            self.sites.divided.told_durability = Some(told);
        }
    }

    /// Entries of the log as if there were one partition.
    pub(super) fn as_wholes(&self, entries: &[(u64, Bytes)]) -> Vec<(u64, Bytes)> {
        let placement = &self.applied.placement;
        let whole = |batch: &Bytes| match batch.is_empty() {
            true => Bytes::new(),
            false => whole_entry(batch, placement.partitions(), &|path| placement.of(path))
                .map_or_else(|_| Bytes::new(), |whole| whole.entry),
        };
        entries.iter().map(|(position, batch)| (*position, whole(batch))).collect()
    }

    /// At another partition: what an item says of sites.
    pub(super) fn note_at_partition(&mut self, item: &Item<'_>, own: Option<ConnectionId>) {
        note_at_partition(self.applied.partition.tree_mut(), item);
        if let Outcome::Site(SiteItem::Forwarded { number, session, reign, asked, .. }) = item.outcome {
            if let Some(connection) = own {
                let asked = Bytes::copy_from_slice(asked);
                let forwarded = Forwarded { connection, since_us: self.now.mono_us, asked };
                self.sites.requests.forwarded.insert(number, forwarded);
            }
            self.sites.requests.has_left(session);
            let here = reign != self.applied.partition.tree().reign() || self.is_between_reigns();
            let is_hub = self.applied.partition.tree().hub() == self.applied.partition.tree().own_site();
            self.sites.requests.begins(UnderWay { number, session, here: here || is_hub });
        }
        if let Outcome::Update(update) = item.outcome {
            let mut is_given = false;
            update.for_each_token(|_| is_given = true);
            if is_given && self.timeline.leads() {
                self.tend_sites();
            }
        }
    }

    /// A part of an operation is applied that may be a change of the site as a whole, which a client here may have asked for.
    pub(super) fn note_site_step(&mut self, step: &Update<'_>, own: Option<ConnectionId>, asked: &Bytes) {
        if let Some(to) = step.new_home().filter(|_| self.has_sessions()) {
            self.session_goes(step.session, to, own, asked);
        }
        if step.lost_sites().is_some() {
            // What was imported before is applied, or is not taken in any more.
            self.sites.divided.homes.clear();
        }
        self.reign_applied(step);
        self.tokens_have_come(step);
    }

    /// At the first partition: what became of a request that a client of another one has asked, if that is not told there
    /// itself: it was carried out over several partitions, or refused.
    pub(super) fn tell_asker(&mut self, item: &Item<'_>) {
        let partitions = self.applied.placement.partitions();
        let Some(ticket) = ticket_of(item.origin).filter(|_| partitions > 1 && self.has_sessions()) else {
            return;
        };
        let asker = partition_of_number(ticket.number, partitions);
        let is_own = self.applied.partition.tree().own_site() == Some(ticket.site);
        // What comes from another site it is given itself.
        if !is_own || asker == FIRST || self.sites.is_importing {
            return;
        }
        let mut parts = 0;
        let reply = match item.outcome {
            Outcome::Part(part) => {
                parts = part.places().fold(0, |parts, place| parts | 1 << place.partition);
                TicketReply::Done(Bytes::copy_from_slice(part.reply))
            }
            Outcome::Refused(refusal) => TicketReply::Refused(refusal),
            Outcome::Failed(code, text) => TicketReply::Failed(code, text.into()),
            Outcome::Untaken => TicketReply::Untaken,
            _ => return,
        };
        let seen = self.applied.stamp.clone();
        let outcome = TicketOutcome { number: ticket.number, seen, parts, reply };
        self.tell_news(asker, SiteNews::Outcome(Box::new(outcome)));
    }

    /// Tells clients what became of their requests, as far as everything is applied here that this rests on.
    pub(super) fn take_ticket_outcomes(&mut self) {
        let own = self.config.partition;
        while let Some(TicketOutcome { number, seen, parts, reply }) =
            self.sites.divided.outcomes.pop_front_if(|next| self.applied.stamp.at(own) >= next.seen.at(own))
        {
            self.sites.requests.ends(number);
            let Some(Forwarded { connection, asked, .. }) = self.sites.requests.forwarded.remove(&number)
            else {
                continue;
            };
            self.applied.stamp.merge(&seen);
            if self.sites.requests.has_earlier(number, connection) {
                self.close(connection, CloseReason::LeaderChanged);
                continue;
            }
            match reply {
                TicketReply::Done(body) => {
                    self.answer_when_whole(Some(connection), parts);
                    self.hold_part_if_needed(connection, i64::MAX);
                    self.answer_own(Some(connection), 0, &body);
                }
                TicketReply::DoneElsewhere(body) => {
                    self.answer_when_whole(Some(connection), parts);
                    self.answer_own(Some(connection), 0, &body);
                }
                TicketReply::Refused(refusal) => self.refused(refusal, Some(connection)),
                TicketReply::Failed(code, text) => self.failed(code, &text, Some(connection)),
                TicketReply::Untaken => self.read_untaken(connection, &asked),
            }
        }
    }

    /// Whether a request has been given its number by this partition.
    pub(super) fn is_own_number(&self, number: u64) -> bool {
        partition_of_number(number, self.applied.placement.partitions()) == self.config.partition
    }

    /// Whether an entry can be applied as far as it is about the hub's state: this partition's share of that comes from the
    /// first one.
    pub(super) fn hub_state_is_here(&self, entry: &[u8]) -> bool {
        let joins = |item: Item<'_>| matches!(item.outcome, Outcome::Site(SiteItem::Joined { .. }));
        self.has_sessions()
            || !self.sites.divided.joined.is_empty()
            || !Items::new(entry).take(2).any(|item| item.is_ok_and(joins))
    }

    /// At another partition: the state becomes this partition's share of the hub's.
    pub(super) fn note_joining_here(&mut self, item: &Item<'_>) {
        if !matches!(item.outcome, Outcome::Site(SiteItem::Joined { .. })) {
            return;
        }
        if let Some(share) = self.sites.divided.joined.pop_front().flatten() {
            self.abort_snapshot();
            self.applied.partition.tree_mut().join_with(share);
            self.sites.requests.forget_under_way();
            self.load_programs();
            self.durability_changed();
        }
    }

    // ---- tokens ----

    /// Whether all tokens that a request needs of what lives here are here.
    pub(super) fn holds_tokens(&self, request: &Request<'_>) -> bool {
        let tree = self.applied.partition.tree();
        if !self.applied.placement.is_divided() {
            return tree.holds_tokens(request);
        }
        tree.own_site().is_none() || self.lacked_tokens(request).is_none()
    }

    pub(super) fn lacked_tokens(&self, request: &Request<'_>) -> LackedTokens {
        let tree = self.applied.partition.tree();
        if !self.applied.placement.is_divided() {
            return tree.lacked_tokens(request);
        }
        tree.lacked_of(request, |path| self.applied.placement.of(path) == self.config.partition)
    }

    /// The same of what is asked as an operation over several partitions.
    pub(super) fn lacked_for(&self, asked: &[u8]) -> LackedTokens {
        let asked = Asked::decode(asked).ok();
        let request = asked.as_ref().and_then(request_of);
        request.map(|request| self.lacked_tokens(&request)).unwrap_or_default()
    }

    /// Tokens of other sites are missing for the operation under way: its request leaves, or, if it has come from a site,
    /// waits for them.
    pub(super) fn operation_lacks(&mut self, lacked: LackedTokens) {
        let Some(active) = self.leader.coordination.active.as_ref() else { return };
        let (origin, asked, is_of_site) = (active.origin, active.asked.clone(), active.is_of_site);
        self.give_up();
        self.pop_operation(is_of_site);
        let Ok(decoded) = Asked::decode(&asked) else { return };
        match origin {
            Some(origin) if origin.site != 0 => self.has_tried(origin, None, Tried::Lacks(Box::new(lacked))),
            Some(_) => {
                let here = self.is_between_reigns()
                    || matches!(decoded, Asked::Write { session, .. } if self.has_later(session));
                self.forward(origin, here, &decoded, &asked);
            }
            // It is found once more.
            None => {}
        }
    }

    /// Whether something is to be done here, later, that a session has asked before.
    fn has_later(&self, session: i64) -> bool {
        let streams = self.applied.partition.tree().streams();
        let mut waiting = streams.of_session(session).map(|waiting| waiting.by == CarriedOut::Here);
        let requests = &self.sites.requests;
        session != 0
            && (waiting.any(|here| here)
                || requests.under_way(session).chain(requests.leaving(session)).any(|here| here))
    }

    /// An operation that a site has asked for is proposed, or another one.
    pub(super) fn operation_is_kept(&mut self, origin: Option<Origin>, asked: &[u8]) {
        let Some(origin) = origin.filter(|_| self.is_of_sites()) else { return };
        let Ok(decoded) = Asked::decode(asked) else { return };
        if origin.site == 0 {
            return self.count_local_write(origin, &decoded);
        }
        let ticket = Ticket { site: origin.site, number: origin.request };
        self.sites.broker.carries_out(ticket, None);
        let Some(request) = request_of(&decoded).filter(|_| self.sites.policy.is_there()) else { return };
        let mut used = BTreeSet::new();
        self.applied.partition.tree().tokens_of(&request, &mut |path| {
            used.insert(path.into());
        });
        let plan = self.sites.policy.take_plan(ticket).unwrap_or_default();
        self.sites.divided.used.push_back((used, ticket.site, plan));
    }

    /// Whether a session was to go to a site that goes to another one already: who asked for it comes once more.
    pub(super) fn has_gone_before(&self, asked: &[u8]) -> bool {
        // One that nobody can know any more, or that nobody has ever made, is nowhere else, whatever site its number names.
        let own = self.applied.partition.tree().own_site();
        matches!(Asked::decode(asked), Ok(Asked::SiteStep(SiteStep::Home { session, .. }))
            if own != Some(self.home_for(session)))
    }

    /// A request of a site is looked at once more.
    pub(super) fn is_to_be_looked_at(&mut self, origin: Origin) {
        let ticket = Ticket { site: origin.site, number: origin.request };
        self.sites.broker.is_not_carried_out(ticket);
        self.sites.broker.is_ready(ticket);
    }

    /// Where the session is at home that asks; 0 where there are no sites.
    pub(super) fn home_of_asker(&self, origin: Option<Origin>, session: i64) -> SiteId {
        let tree = self.applied.partition.tree();
        match tree.own_site() {
            None => 0,
            Some(own) if origin.is_none_or(|origin| origin.site == 0) => own,
            Some(_) => tree.home_to_be(session),
        }
    }

    // ---- requests of sites ----

    /// At the first partition: a request is to be carried out here, if its tokens are.
    pub(super) fn try_ticket(
        &mut self,
        origin: Option<Origin>,
        bytes: &Bytes,
        asked: &Asked<'_>,
        may_carry_out: bool,
    ) {
        let Some(origin) = origin else { return };
        let ticket = Ticket { site: origin.site, number: origin.request };
        let mut refused = None;
        if let (Asked::Write { session, opening, .. }, true) = (asked, may_carry_out) {
            let contact = Contact { server: origin.server, opening: *opening };
            refused = self.applied.partition.check_contact(*session, contact).err();
        }
        let at = if refused.is_some() { Where::At(FIRST) } else { self.where_is(origin, asked) };
        if may_carry_out && self.would_overtake(ticket, &at) {
            return;
        }
        self.sites.broker.take_in_hand(ticket);
        if let Some(code) = refused {
            return self.applied.partition.propose_refusal(origin, code.into());
        }
        let newest = self.newest_known();
        match at {
            Where::At(FIRST) => {
                let mut seen = Timestamp::default();
                seen.raise_zxid(newest);
                self.applied.partition.depends_on(&seen);
                let tried = self.attempt(Some(origin), asked, may_carry_out);
                self.has_tried(origin, Some(FIRST), tried);
            }
            Where::At(partition) => {
                let mut seen = self.applied.stamp.clone();
                seen.raise_zxid(newest);
                let it = Try { origin, asked: bytes.clone(), may_carry_out, seen };
                self.tell_news(partition, SiteNews::Try(Box::new(it)));
            }
            // A program would tell its client on the partition where what it is about lives by now.
            Where::Nowhere => {
                self.applied.partition.propose_refusal(origin, ErrorCode::OperationTimeout.into());
            }
            Where::Several if may_carry_out => self.queue_operation(Some(origin), bytes.clone()),
            Where::Several => self.has_tried(origin, None, Tried::NotNow),
        }
    }

    fn where_is(&self, origin: Origin, asked: &Asked<'_>) -> Where {
        let Some(request) = request_of(asked) else { return Where::At(FIRST) };
        let Asked::Write { session, .. } = asked else { return Where::At(FIRST) };
        let is_taken = self.applied.partition.is_taken(*session, &request);
        if only_waits(asked) || is_taken {
            let at = self.applied.placement.of(path_of(&request));
            return if is_taken && self.has_moved_since(origin, at) { Where::Nowhere } else { Where::At(at) };
        }
        let Some(plan) = self.plan(Some(origin), asked) else { return Where::At(FIRST) };
        let mut partitions = plan.steps.iter().map(|step| step.partition);
        match partitions.next() {
            Some(first) if partitions.all(|next| next == first) && !self.has_moved_since(origin, first) => {
                Where::At(first)
            }
            Some(_) => Where::Several,
            None => Where::At(FIRST),
        }
    }

    /// At the first partition: the newest zxid that is known here, of any partition and any site. Who asks by way of another
    /// site may have been told of it.
    pub(super) fn newest_known(&self) -> i64 {
        self.applied.partition.tree().seen().map(|(_, zxid)| zxid).max().unwrap_or(0)
    }

    /// Whether what a session has asked before is carried out, and not by the same partition alone: what is behind it could
    /// get a smaller zxid, and be in the log without it. It is looked at again when that is applied.
    fn would_overtake(&self, ticket: Ticket, at: &Where) -> bool {
        let partition = match at {
            Where::At(partition) => Some(*partition),
            Where::Several | Where::Nowhere => None,
        };
        let before = self.applied.partition.tree().streams().around(ticket).0.map(|before| before.ticket);
        before.is_some_and(|before| self.sites.broker.is_carried_out_elsewhere(before, partition))
    }

    /// At the first partition: what has become of a request that was tried.
    fn has_tried(&mut self, origin: Origin, at: Option<u8>, tried: Tried) {
        let ticket = Ticket { site: origin.site, number: origin.request };
        let Some(Waiting { asked, .. }) = self.applied.partition.tree().streams().waiting(ticket).cloned()
        else {
            return;
        };
        let Ok(decoded) = Asked::decode(&asked) else { return };
        match tried {
            Tried::CarriedOut(of_programs) => {
                let is_call = self.is_for_program(&decoded);
                self.sites.broker.carries_out(ticket, at);
                self.is_carried_out(ticket, &decoded, is_call, &of_programs);
            }
            Tried::Lacks(lacked) => {
                self.sites.broker.is_not_carried_out(ticket);
                let streams = self.applied.partition.tree().streams();
                let before = streams.around(ticket).0.map(|before| before.ticket);
                let is_behind = before.is_some_and(|before| self.sites.broker.is_carried_out(before));
                let is_first = is_behind || streams.is_first_of_session(ticket);
                if lacked.is_none() && is_first {
                    // It has become the first meanwhile.
                    return self.sites.broker.is_ready(ticket);
                }
                self.ticket_lacks(ticket, &lacked, is_first);
            }
            Tried::NotNow => self.sites.broker.is_not_carried_out(ticket),
        }
    }

    /// At the home of a session that has ephemerals which a request needs: what else it needs goes there first, and it waits
    /// for that if it lives on other partitions.
    pub(super) fn waits_to_send_along(&mut self, ticket: Ticket, lacked: &LackedTokens, to: SiteId) -> bool {
        if !self.applied.placement.is_divided() {
            return false;
        }
        let is_missing = |path: &String| lacked.missing.iter().any(|(missing, _)| missing == path);
        let elsewhere = |path: &&String| self.applied.placement.of(path) != FIRST && !is_missing(path);
        let wanted: Vec<String> = lacked.needed.iter().filter(elsewhere).cloned().collect();
        for path in &wanted {
            self.sites.broker.block(ticket, path);
            self.give_elsewhere(path, to);
        }
        !wanted.is_empty()
    }

    // ---- between partitions ----

    pub(super) fn tell_news(&mut self, to: u8, news: SiteNews) {
        let (term, placed) = (self.timeline.term(), self.applied.placement.version());
        self.say(to, ShardMessage::Site(Box::new(Said { term, placed, news })));
    }

    /// At the first partition, which leads: the others learn which of their requests are on their way.
    pub(super) fn tell_under_way(&mut self) {
        let others = self.other_partitions();
        self.sites.divided.told_lease = None;
        self.sites.divided.asked_back.clear();
        self.sites.divided.homes.clear();
        if others.is_empty() || !self.is_of_sites() {
            return;
        }
        let tree = self.applied.partition.tree();
        let own = tree.own_site().unwrap_or_default();
        let partitions = self.applied.placement.partitions();
        let mut by_partition: Vec<Vec<UnderWay>> = (0..partitions).map(|_| Vec::new()).collect();
        for waiting in tree.streams().all_waiting().filter(|waiting| waiting.ticket.site == own) {
            let number = waiting.ticket.number;
            let here = waiting.by == CarriedOut::Here;
            let of = usize::from(partition_of_number(number, partitions));
            if let Some(requests) = by_partition.get_mut(of) {
                requests.push(UnderWay { number, session: waiting.session, here });
            }
        }
        for partition in others {
            let requests = core::mem::take(&mut by_partition[usize::from(partition)]);
            self.tell_news(partition, SiteNews::UnderWay(requests));
        }
    }

    /// The first partition says something of sites, or another one to it.
    pub(super) fn site_news(&mut self, from: u8, said: Said) {
        let Said { term, placed, news } = said;
        match news {
            SiteNews::UnderWay(requests) => {
                self.sites.requests.forget_under_way();
                requests.into_iter().for_each(|request| self.sites.requests.begins(request));
            }
            SiteNews::Lease { until_us, is_missed } => {
                self.sites.divided.lease = (until_us, is_missed);
                self.take_pending();
            }
            SiteNews::Durability { text, has_second } => {
                self.second_site.set_durability(Durability::parse(&text));
                self.sites.divided.has_second = has_second;
            }
            SiteNews::Shared { position, zxid } => self.learns_of_share(Shared { position, zxid }),
            SiteNews::Outcome(outcome) => {
                self.sites.divided.outcomes.push_back(*outcome);
                self.take_ticket_outcomes();
            }
            SiteNews::Joined(share, position) => {
                if share.is_some() {
                    self.sessions.table.iter_mut().for_each(|table| table.is_replaced(position));
                }
                self.sites.divided.joined.push_back(share.map(|share| *share));
                self.apply_committed();
            }
            news => {
                self.sites.divided.news.push_back((from, Said { term, placed, news }));
                self.tend_sites();
            }
        }
    }

    /// Looks at what other partitions have said, as far as something may be prepared now.
    pub(super) fn take_news(&mut self) {
        while let Some((used, by, plan)) = self.sites.divided.used.pop_front() {
            self.accessed(&Needs { request: None, tokens: &used }, by, plan);
        }
        while self.prepares()
            && !self.is_busy()
            && let Some((from, Said { term, placed, news })) = self.sites.divided.news.pop_front()
        {
            // Who leads anew begins anew: what was proposed before may be lost.
            if term < self.timeline.term() {
                continue;
            }
            let own = self.config.partition;
            let has_seen = |seen: &Timestamp| self.applied.stamp.at(own) >= seen.at(own);
            // What has moved is known here before anything is asked of it.
            let may_be = term == self.timeline.term()
                && placed <= self.applied.placement.version()
                && match &news {
                    SiteNews::Try(it) => has_seen(&it.seen),
                    SiteNews::Return(_, seen) => has_seen(seen),
                    _ => true,
                };
            if !may_be {
                self.sites.divided.news.push_front((from, Said { term, placed, news }));
                return;
            }
            if self.is_about_what_moved(placed, &news) {
                self.tell_news(from, SiteNews::Elsewhere(Box::new(news)));
                continue;
            }
            match news {
                SiteNews::Try(it) => self.take_try(*it),
                SiteNews::Tried(origin, tried) => self.has_tried(origin, Some(from), tried),
                SiteNews::Give(path, to) => {
                    let given = match self.is_between_reigns() {
                        true => Err(TokenRefusal::NotHeld),
                        false => self.hand_token(&path, to),
                    };
                    self.tell_news(FIRST, SiteNews::Given(path, to, given));
                }
                SiteNews::Given(path, to, given) => self.was_given(&path, to, given),
                SiteNews::Bring(path, to) => self.bring_here(path, to),
                SiteNews::HeldBy { path, holder, to } => self.is_held_by(&path, holder, to),
                SiteNews::Return(path, _) => self.return_here(path),
                SiteNews::NotReturned(path) => self.is_not_returned(&path),
                SiteNews::GiveRead(path, to) => self.give_read_here(&path, to),
                SiteNews::Elsewhere(news) => self.is_asked_elsewhere(*news),
                SiteNews::UnderWay(_)
                | SiteNews::Lease { .. }
                | SiteNews::Durability { .. }
                | SiteNews::Shared { .. }
                | SiteNews::Outcome(_)
                | SiteNews::Joined(..) => {}
            }
        }
    }

    fn take_try(&mut self, it: Try) {
        let Try { origin, asked, may_carry_out, seen } = it;
        let Ok(decoded) = Asked::decode(&asked) else { return };
        self.applied.partition.depends_on(&seen);
        let tried = match self.is_between_reigns() {
            true => Tried::NotNow,
            false => self.attempt(Some(origin), &decoded, may_carry_out),
        };
        self.tell_news(FIRST, SiteNews::Tried(origin, tried));
    }
}

/// The znode that a request which concerns one of them is about.
pub(super) fn path_of<'a>(request: &Request<'a>) -> &'a str {
    match *request {
        Request::Create(create)
        | Request::Create2(create)
        | Request::CreateContainer(create)
        | Request::CreateTtl(create) => create.path,
        Request::Delete { path, .. }
        | Request::DeleteContainer { path }
        | Request::SetData { path, .. }
        | Request::SetAcl { path, .. }
        | Request::Check { path, .. }
        | Request::Sync { path }
        | Request::GetData { path, .. }
        | Request::Exists { path, .. }
        | Request::GetAcl { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetChildren2 { path, .. } => path,
        _ => "/",
    }
}

/// Whether an update of an entry says who the hub is, or who is one of the sites, whoever has made it.
fn changes_sites(entry: &[u8]) -> bool {
    Items::new(entry).map_while(Result::ok).any(|item| match item.outcome {
        Outcome::Update(update) => update.lost_sites().is_some(),
        Outcome::Site(SiteItem::Import { items, .. }) => changes_sites(items),
        _ => false,
    })
}
