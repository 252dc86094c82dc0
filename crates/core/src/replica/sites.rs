//! This site among the others: what is shipped, what is imported, and what becomes of requests whose tokens are
//! elsewhere.
//!
//! A request that needs a token which is not held here becomes an item of this site's log, and goes up to the hub with
//! everything that was committed before it. The hub keeps it until it holds the tokens, prepares it, and its update goes
//! down again as the request's outcome. Its client's server recognizes it by its number when it is imported here. So a
//! request outlives whoever leads at either side, and is carried out once.

use crate::lease::Lease;
use crate::replica::Replica;
use crate::replica::site_policy::{Needs, only_waits, request_of};
use crate::session_table::SessionNews;
use crate::site_news::{SiteNews, Tried};
use crate::site_requests::Forwarded;
use crate::sites::{AskedBack, Broker, KEPT_LEAST_BYTES, Made, Outgoing, ProposedReigns, SiteLinks};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_front::{CloseReason, ConnectionId};
use stoa_partition::{
    Asked, Item, Items, Now, Outcome, SiteItem, is_heeded, note_in_streams, note_joining, ticket_of,
};
use stoa_placement::FIRST;
use stoa_timeline::{Lead, Origin};
use stoa_tree::{
    Caller, CarriedOut, LackedTokens, Options, Places, SiteId, SiteSet, SiteStanding, SiteStep, Ticket,
    TokenRefusal, Tree, Update, Waiting,
};
use stoa_wire::{Acl, AclList, Create, CreateMode, ErrorCode, Opcode, READ_ACL, Reader, Request};

/// A request that needs a site which is not connected is given up after so long, and that of a client is not waited for
/// after twice as long.
pub(super) const WAIT_US: u64 = 5_000_000;

/// Where it stands which sites there are.
pub const SITES_PATH: &str = "/zookeeper/sites";

/// Where a request is carried out that was asked here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// Here and now.
    Here,
    /// Here, but when what its session has asked before has its outcome.
    HereLater,
    /// Where the tokens are.
    Elsewhere,
}

/// Where a request goes whose tokens stay where they are: what only waits has its turn there; and all may have gone to
/// the very site that asks, after an earlier request of it, while this one was on its way. To have them back would cost
/// that site a round trip for each request that it had under way, and never end while it goes on asking.
fn visited_at_once(only_waits: bool, lacked: &LackedTokens, asks: SiteId) -> Option<SiteId> {
    let LackedTokens { needed, missing, .. } = lacked;
    if only_waits {
        return missing.first().map(|(_, holder)| *holder);
    }
    let is_there = |path: &String| missing.iter().any(|(known, holder)| known == path && *holder == asks);
    (!missing.is_empty() && needed.iter().all(is_there)).then_some(asks)
}

/// Whether an item may say something of streams or tokens. What a client of this site has changed does not, nor what another
/// site has by itself.
fn may_concern_streams(item: &Item<'_>) -> bool {
    match &item.outcome {
        Outcome::Update(update) => ticket_of(item.origin).is_some() || update.may_move_tokens(),
        _ => true,
    }
}

impl Replica {
    /// This is a site from now on, the first of all, and the hub. At the leader, once; `list` says which sites there
    /// are to be, and becomes a znode that only super users can change.
    ///
    /// # Errors
    /// When there is no such site, or this server does not lead.
    pub fn begin_sites(&mut self, hub: SiteId, list: &str, now: Now) -> Result<(), TokenRefusal> {
        self.at(now);
        if !self.prepares() {
            return Err(TokenRefusal::NoSite);
        }
        // Before there are sites: what is of that time is no site's.
        let mut acl = Vec::new();
        Acl::encode_list(&mut acl, READ_ACL.iter().copied());
        let acl = AclList::decode(&mut Reader::new(&acl)).expect("it was written just now");
        let (path, data) = (SITES_PATH, Some(list.as_bytes()));
        let create =
            Request::Create(Create { path, data, acl, flags: CreateMode::Persistent as i32, ttl_ms: 0 });
        let caller = Caller { session: 0, identities: &[] };
        // Where it is there already, whoever leads next finds it as it is.
        let _ = self.applied.partition.propose(None, &create, None, &caller, now);
        self.propose_site_step(&SiteStep::Begin { site: hub, hub })?;
        self.sites.policy.begin(Some(hub), self.config.site.unwrap_or_default().policy);
        Ok(())
    }

    /// Whether there are several sites, or may be.
    pub(crate) fn is_of_sites(&self) -> bool {
        self.applied.partition.tree().own_site().is_some()
    }

    /// Whether this server is of none of several sites, or of one that has joined the others: else it has nothing to
    /// serve.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        let tree = self.applied.partition.tree();
        let is_to_be = self.config.site.is_some() || self.config.is_reader() && self.reads_site();
        !is_to_be || tree.own_site().is_some() && tree.streams().standing() == SiteStanding::Member
    }

    /// At a reader: whether what it follows is one of several sites, or is to be one: by what is here, or as its parent
    /// says, before anything is here.
    fn reads_site(&self) -> bool {
        let tree = self.applied.partition.tree();
        tree.own_site().is_some() || tree.is_joining() || self.timeline.parent_is_of_site()
    }

    /// Whether this site could take over the hub's state: it has joined, or nothing would be lost by that.
    #[must_use]
    pub fn may_join(&self) -> bool {
        let tree = self.applied.partition.tree();
        if tree.streams().standing() == SiteStanding::Discarded {
            return true;
        }
        // What lives on other partitions has a name right below the root, or lives below what has one.
        let counts =
            |tree: &Tree| (tree.znode_count(), tree.get("/").map_or(0, |root| root.children().count()));
        let is_empty = counts(tree) == counts(&Tree::new(Options::default()));
        self.has_joined() || is_empty && tree.sessions().next().is_none()
    }

    /// A connection to the leader of another site is there (again).
    pub fn site_connected(&mut self, site: SiteId, now: Now) {
        self.at(now);
        self.sites.lose(site);
        self.sites.outgoing.insert(site, Outgoing::default());
        self.ask_again(site);
    }

    /// That connection is there no more.
    pub fn site_lost(&mut self, site: SiteId) {
        self.sites.lose(site);
        self.sites.outbox.retain(|(to, _)| *to != site);
        self.servers.levels.sites.remove(&site);
        self.sites.wanted.joining.remove(&site);
        self.sites.wanted.states.retain(|(to, _)| *to != site);
        // What it was to return is asked for again when it is there, and waited for no longer than for a site that is away.
        self.sites.broker.wake("/");
        self.sites.wanted.backlogs.retain(|wanted| wanted.site != site);
        self.sites.wanted.torn.retain(|to| *to != site);
    }

    /// At the hub: a site waits for the state, and the last snapshot, which is of this position of the log, is it.
    pub fn poll_site_state(&mut self) -> Option<(SiteId, u64)> {
        self.sites.wanted.states.pop_front()
    }

    /// At the hub: a snapshot of this position of the log is there.
    pub(super) fn snapshot_for_sites(&mut self, position: u64) {
        let joining = core::mem::take(&mut self.sites.wanted.joining);
        let (known, unknown) = joining.into_iter().partition(|site| self.may_have_state(*site));
        self.sites.wanted.joining = unknown;
        let known: BTreeSet<SiteId> = known;
        self.sites.wanted.states.extend(known.into_iter().map(|site| (site, position)));
    }

    /// At the hub: whether it stands in the log that there is a site. That is so before it has the state and serves
    /// anybody: else who comes from there with a session would be told that there is none.
    pub(super) fn knows_site(&self, site: SiteId) -> bool {
        let tree = self.applied.partition.tree();
        !tree.is_lost(site) && tree.streams().all_imported().any(|(known, _)| known == site)
    }

    /// At the hub: whether a site may be given the state. Where others may take the hub's place one of those knows by then
    /// that it is one of them again, and takes no part in that without it. Else what they lack, and this one has, would be
    /// lost with the hub.
    fn may_have_state(&self, site: SiteId) -> bool {
        let (others, since) = (self.members().without(SiteSet::of(site)), self.sites.lease.changed_at());
        let may_act = self.may_be_replaced() && Lease::are_enough(others) && since > 0;
        let link = |other: SiteId| self.sites.outgoing.get(&other);
        let knows = |other| link(other).is_some_and(|link| link.is_open && link.acknowledged >= since);
        self.knows_site(site) && (!may_act || others.iter().any(knows))
    }

    /// At the hub: a site asks for the state.
    pub(super) fn site_joins(&mut self, site: SiteId) {
        self.sites.wanted.joining.insert(site);
        if self.may_have_state(site) {
            self.request_snapshot();
        }
        self.tend_sites();
    }

    /// At the hub: takes a snapshot for sites that wait for one. The one before may have failed.
    pub(super) fn tend_joining(&mut self) {
        if self.sites.wanted.joining.iter().any(|site| self.may_have_state(*site)) && !self.is_snapshotting()
        {
            self.request_snapshot();
        }
    }

    /// At the hub: notes that there are those sites that ask for the state; of one that was given up, when it is there
    /// again.
    fn note_new_sites(&mut self) {
        let tree = self.applied.partition.tree();
        let joining = self.sites.wanted.joining.iter().copied();
        let new: Vec<SiteId> =
            joining.filter(|site| !self.knows_site(*site) && !tree.is_lost(*site)).collect();
        for from in new {
            if self.sites.importing.insert(from, 0).is_none() {
                let known = SiteItem::Import { from, position: 0, items: b"" };
                self.applied.partition.propose_site_item(None, &known);
            }
        }
    }

    /// At the leader of a site that is to join: the next slice of the hub's state.
    /// `begins` is how many partitions the hub has where it is the first one, and 0 elsewhere.
    pub fn site_state(&mut self, begins: u8, slice: &[u8], now: Now) {
        self.at(now);
        if self.is_to_join() && self.may_join() {
            self.propose_first(&SiteItem::State { begins, slice });
        }
    }

    /// That was all of it: this is a site from now on, and has what the hub had at a position of its log.
    pub fn site_state_ended(&mut self, site: SiteId, hub: SiteId, position: u64, now: Now) {
        self.at(now);
        if self.is_to_join() {
            self.sites.proposed.joins = true;
            self.propose_everywhere(&SiteItem::Joined { site, hub, position });
        }
    }

    /// Whether this is the leader of a site that has not joined, and is not about to with a state that it has.
    fn is_to_join(&self) -> bool {
        self.leads_here() && !self.has_joined() && !self.sites.proposed.joins
    }

    /// Takes in what an item says of joining the other sites.
    pub(super) fn note_joining(&mut self, item: &Item<'_>) {
        if let Outcome::Site(SiteItem::State { begins: 1.., .. }) = item.outcome {
            self.abort_snapshot();
        }
        if !self.has_sessions() {
            return self.note_joining_here(item);
        }
        let placement = &self.applied.placement;
        let (of, is_split) = (|path: &str| placement.of(path), |path: &str| placement.is_split(path));
        let places = Places { own: FIRST, partitions: placement.partitions(), of: &of, is_split: &is_split };
        let shares = note_joining(self.applied.partition.tree_mut(), item, &places);
        if let Outcome::Site(SiteItem::Joined { .. }) = item.outcome
            && shares.is_none()
        {
            self.sites.proposed.joins = false;
            self.other_partitions().for_each(|to| self.tell_news(to, SiteNews::Joined(None, 0)));
        }
        if let Some(shares) = shares {
            let position = self.applied.applying;
            for (partition, share) in (1..).zip(shares) {
                self.tell_news(partition, SiteNews::Joined(Some(Box::new(share)), position));
            }
            let tree = self.applied.partition.tree();
            let own = tree.own_site();
            let at_home = tree.sessions().filter(|session| Some(tree.home_of(session.id)) == own);
            self.sites.importing.clear();
            // Nothing is proposed of reigns while this site is none of the others, so all that was is applied.
            self.sites.proposed = ProposedReigns::default();
            self.sessions.live.replace_global(at_home.map(|it| (it.id, it.timeout_ms)), self.now);
            // Other sessions are there, of which other partitions have heard nothing.
            self.sessions.news = self.sessions.news.take().map(|_| SessionNews::of_everything());
            // Nobody was served before, so little else follows from what is there now. The log need not be read to
            // that end again.
            self.applied.snapshots.begin();
            self.load_programs();
            self.hints_changed();
            self.second_site.restart();
            self.durability_changed();
            let hub = self.applied.partition.tree().hub().unwrap_or_default();
            if self.sites.outgoing.contains_key(&hub) {
                self.ask_again(hub);
            }
        }
    }

    // ---- what was applied ----

    /// An entry is applied that other sites may have to know. If it says nothing of streams, `made_before` is the last update
    /// that this site had made before.
    pub(super) fn keep_for_sites(&mut self, position: u64, entry: &Bytes, made_before: Option<i64>) {
        if self.applied.partition.tree().own_site().is_some() {
            if self.applied.partition.tree_mut().note_position(position) {
                self.sites.kept.begin(position - 1);
            }
            let last = self.applied.partition.tree().last_prepared_zxid();
            if self.config.is_reader() {
                // It never leads, and so tells no other site anything.
                return self.sites.kept.restart(position);
            }
            let made = made_before.map_or(Made::Unknown, |before| match last {
                zxid if zxid > before => Made::UpTo(zxid),
                _ => Made::Nothing,
            });
            self.sites.kept.push(position, entry.clone(), made, self.now.mono_us);
            self.sites.kept.trim(0, KEPT_LEAST_BYTES, self.kept_bytes());
        }
    }

    /// The state is another server's, at a position.
    pub(super) fn site_state_replaced(&mut self, position: u64) {
        self.sites.kept.restart(position);
        self.sites.lease.state_replaced(self.now.mono_us);
        self.sites.settled.clear();
        self.sites.requests.forwarded.clear();
        self.sites.requests.forget_under_way();
    }

    /// Who waits here for the outcome of a request of this site, if an item is one, and what it has asked, if it is to
    /// be carried out here after all.
    pub(super) fn forwarded_by(&mut self, item: &Item<'_>) -> Option<(ConnectionId, Bytes)> {
        let ticket = ticket_of(item.origin).filter(|_| !matches!(item.outcome, Outcome::Site(_)))?;
        let tree = self.applied.partition.tree();
        let own = tree.own_site().filter(|own| *own == ticket.site);
        own?;
        self.sites.requests.ends(ticket.number);
        let Forwarded { connection: id, asked, .. } = self.sites.requests.forwarded.remove(&ticket.number)?;
        let tree = self.applied.partition.tree();
        let is_behind = self.sites.requests.has_earlier(ticket.number, id);
        if is_behind || !tree.streams().left_behind(ticket).is_empty() {
            // Nobody can say what became of what it has asked before.
            self.close(id, CloseReason::LeaderChanged);
            return None;
        }
        let comes = |update: &Update<'_>| update.new_home().is_some();
        let is_wanted = match &item.outcome {
            Outcome::Untaken => true,
            Outcome::Update(update) => comes(update),
            Outcome::Part(part) => part.update.is_some_and(|update| comes(&update.single())),
            _ => false,
        };
        let waiting = tree.streams().waiting(ticket).filter(|_| is_wanted);
        Some((id, waiting.map_or(asked, |waiting| Bytes::copy_from_slice(&waiting.asked))))
    }

    /// Whether a client waits for the outcome of a request that has left.
    pub(super) fn has_forwarded(&self, id: ConnectionId) -> bool {
        self.sites.requests.forwarded.values().any(|waiting| waiting.connection == id)
    }

    /// Applies what has come from another site.
    pub(super) fn apply_import(&mut self, from: SiteId, position: u64, items: &[u8]) {
        let tree = self.applied.partition.tree();
        // It may have been asked for, and proposed, twice. With the position 0 only that there is such a site is said.
        let is_here = (1..=tree.streams().imported(from)).contains(&position);
        if is_here || !tree.listens_to(from) {
            return;
        }
        self.note_told();
        self.sites.is_importing = true;
        let (is_told, mut writes) = (self.sites.policy.is_there() && self.timeline.leads(), 0);
        for item in Items::new(items) {
            let item = item.expect("an entry that a leader made can be read");
            if is_heeded(self.applied.partition.tree(), from, &item) {
                writes += u32::from(is_told && self.note_use(from, &item));
                self.apply_item(&item);
                self.homes_are_applied(&item);
            }
        }
        self.note_local_writes(from, writes);
        self.sites.is_importing = false;
        let streams = self.applied.partition.tree_mut().streams_mut();
        streams.set_imported(from, position.max(streams.imported(from)));
        if self.sites.wanted.joining.contains(&from) {
            self.request_snapshot();
        }
        self.tell_imported();
    }

    /// Notes what an item says of the streams, and what follows from it for whoever leads.
    pub(super) fn note_site_item(&mut self, item: &Item<'_>, own: Option<ConnectionId>) {
        let site = self.applied.partition.tree().own_site().filter(|_| may_concern_streams(item));
        let Some(site) = site else { return };
        if !self.has_sessions() {
            return self.note_at_partition(item, own);
        }
        let is_new = match item.outcome {
            Outcome::Site(SiteItem::Forwarded { number, .. }) => {
                let streams = self.applied.partition.tree().streams();
                item.origin.is_none_or(|it| it.site == 0)
                    && streams.waiting(Ticket { site, number }).is_none()
            }
            _ => false,
        };
        let answered = note_in_streams(self.applied.partition.tree_mut(), item);
        let ticket = match item.outcome {
            Outcome::Site(SiteItem::Forwarded { number, session, .. }) => {
                let of_here = Ticket { site, number };
                if let Some(id) = own {
                    let forwarded =
                        Forwarded { connection: id, since_us: self.now.mono_us, asked: Bytes::new() };
                    self.sites.requests.forwarded.insert(number, forwarded);
                }
                if is_new && self.is_own_number(number) {
                    self.sites.requests.has_left(session);
                }
                Some(ticket_of(item.origin).unwrap_or(of_here))
            }
            _ => ticket_of(item.origin),
        };
        // Who fails to hand over the lead goes on where it was.
        if self.timeline.lead() != Lead::Active {
            return;
        }
        if let Some(ticket) = ticket {
            let is_back = self.comes_back(ticket, item);
            self.sites.broker.is_settled(ticket, is_back);
            self.ready_if_here(ticket);
            let has_gone_home = matches!(item.outcome, Outcome::Site(SiteItem::Visit { to, .. })
                if to == ticket.site && to != site);
            self.sites.broker.is_at_home(ticket, has_gone_home);
            if has_gone_home
                && let Some(next) =
                    self.applied.partition.tree().streams().around(ticket).1.map(|next| next.ticket)
            {
                self.ready_if_here(next);
            }
        }
        if let Some(answered) = answered {
            self.is_answered(&answered);
        }
        match item.outcome {
            Outcome::Update(update) => self.tokens_have_come(&update),
            // Also if it was wanted before, and that was answered: the partition that has it is asked once more.
            Outcome::Site(SiteItem::Recall { path, .. }) => {
                self.sites.divided.asked_back.remove(path);
            }
            Outcome::Site(SiteItem::NotRecalled { path }) => {
                self.sites.broker.has_declined(path);
                self.sites.broker.wake(path);
                self.sites.policy.arrives(path);
            }
            _ => {}
        }
    }

    /// At the leader: a request has its outcome.
    fn is_answered(&mut self, Waiting { ticket, session, .. }: &Waiting) {
        self.sites.policy.take_plan(*ticket);
        self.sites.broker.has_ended(*ticket);
        if *session == 0 {
            return;
        }
        let next = self.applied.partition.tree().streams().of_session(*session).next();
        match next.map(|next| next.ticket) {
            Some(next) => self.ready_if_here(next),
            None => self.sites.broker.session_is_quiet(*session),
        }
    }

    /// An update may have given tokens to this site, or to another one.
    pub(super) fn tokens_have_come(&mut self, update: &Update<'_>) {
        let SiteLinks { broker, policy, .. } = &mut self.sites;
        update.for_each_token(|path| {
            broker.wake(path);
            policy.arrives(path);
        });
    }

    /// Whether who was to carry out a request does not: another site declines it, and who has asked asks once more.
    fn comes_back(&self, ticket: Ticket, item: &Item<'_>) -> bool {
        match item.outcome {
            Outcome::Site(SiteItem::Declined) => true,
            Outcome::Site(SiteItem::Forwarded { .. }) => self.sites.broker.has_gone_home(ticket),
            _ => false,
        }
    }

    /// A request of a session is proposed to leave.
    pub(super) fn leaves(&mut self, session: i64, here: bool) {
        self.sites.counts.writes_forwarded += u64::from(!here);
        self.sites.requests.leaves(session, here);
    }

    /// Whether something waits that a session has asked here, or is about to.
    pub(super) fn has_under_way(&self, session: i64) -> bool {
        let streams = self.applied.partition.tree().streams();
        session != 0
            && (streams.of_session(session).next().is_some()
                || self.sites.requests.is_leaving(session)
                || self.sites.requests.under_way(session).next().is_some())
    }

    fn ready_if_here(&mut self, ticket: Ticket) {
        let waiting = self.applied.partition.tree().streams().waiting(ticket);
        if waiting.is_some_and(|waiting| waiting.by == CarriedOut::Here) {
            self.sites.broker.is_ready(ticket);
        }
    }

    // ---- leading ----

    /// This server leads: what waits is in its hands.
    pub(super) fn begin_to_lead_site(&mut self) {
        self.sites.proposed = ProposedReigns::default();
        self.servers.levels.proposed = 0;
        self.sites.lease.begin();
        self.sites.broker = Broker::default();
        self.sites.requests.forget_leaving();
        self.tell_under_way();
        self.resume_site();
    }

    /// The same while it leads, when there is another hub, or one site less or more. What it has proposed, and is not
    /// applied yet, will be: that is still in its hands.
    pub(super) fn resume_site(&mut self) {
        self.sites.broker.begin_again();
        self.sites.importing.clear();
        let sites: Vec<_> = self.sites.outgoing.keys().copied().collect();
        sites.into_iter().for_each(|site| self.ask_again(site));
        let here = |waiting: &&Waiting| waiting.by == CarriedOut::Here;
        let waiting: Vec<_> =
            self.applied.partition.tree().streams().all_waiting().filter(here).map(|it| it.ticket).collect();
        waiting.into_iter().for_each(|ticket| self.sites.broker.is_ready(ticket));
        self.begin_policy();
    }

    /// Where a request is to be carried out that was asked here. Its tokens may be known to be here.
    #[inline]
    pub(super) fn destination(&self, session: i64, request: &Request<'_>, is_held: bool) -> Destination {
        let tree = self.applied.partition.tree();
        if tree.own_site().is_none() {
            return Destination::Here;
        }
        let (is_hub, is_between) = (tree.own_site() == tree.hub(), self.is_between_reigns());
        // Which tokens a program needs shows when it is carried out.
        let holds =
            is_held || self.holds_tokens(request) || self.applied.partition.is_taken(session, request);
        let requests = &self.sites.requests;
        let none_waits = tree.streams().is_empty() && requests.none_is_under_way();
        if holds && !is_between && !requests.are_leaving() && none_waits {
            return Destination::Here;
        }
        // What its session has asked before, and has no outcome: whether each is to be done here, later.
        let leaving = requests.under_way(session).chain(requests.leaving(session));
        let waiting = tree.streams().of_session(session).map(|waiting| waiting.by == CarriedOut::Here);
        let (mut waits, mut has_later) = (false, false);
        for here in waiting.chain(leaving).filter(|_| session != 0) {
            (waits, has_later) = (true, has_later || here);
        }
        // It must not overtake them: what is done here follows them here, what goes to the hub there.
        match holds {
            false if is_between => Destination::HereLater,
            true if is_between && is_hub => Destination::HereLater,
            true if waits => Destination::HereLater,
            true => Destination::Here,
            false if has_later => Destination::HereLater,
            false => Destination::Elsewhere,
        }
    }

    /// The same of what a contact server has asked; everything but writes of clients is for here.
    pub(super) fn destination_of(&self, asked: &Asked<'_>) -> Destination {
        if let Asked::OpenSession { session, .. } = asked
            && self.is_at_home_elsewhere(*session)
        {
            return if self.is_between_reigns() { Destination::HereLater } else { Destination::Elsewhere };
        }
        let Asked::Write { session, opcode, .. } = asked else { return Destination::Here };
        if self.applied.partition.tree().own_site().is_none() || *opcode == Opcode::Reconfig {
            return Destination::Here;
        }
        request_of(asked).map_or(Destination::Here, |request| self.destination(*session, &request, false))
    }

    /// Proposes what is to be done with requests and recalls that wait, as far as that can be told now.
    pub(super) fn tend_sites(&mut self) {
        if self.applied.partition.tree().own_site().is_none() || !self.prepares() || !self.has_joined() {
            return;
        }
        self.take_news();
        if !self.has_sessions() {
            return;
        }
        if self.is_between_reigns() {
            return self.begin_reign();
        }
        if !self.sites.wanted.joining.is_empty() {
            self.let_return();
            self.note_new_sites();
        }
        if !self.holds_lease() {
            return;
        }
        // What the hub has sent here with its tokens comes before that these are wanted back: else two such requests could
        // take each other's away for ever.
        while let Some(ticket) = self.sites.broker.next() {
            self.take_ticket(ticket);
        }
        self.return_tokens();
        self.pass_tokens();
    }

    fn take_ticket(&mut self, ticket: Ticket) {
        let streams = self.applied.partition.tree().streams();
        let Some(Waiting { server, by: CarriedOut::Here, asked, .. }) = streams.waiting(ticket).cloned()
        else {
            return;
        };
        let before = streams.around(ticket).0.map(|before| before.ticket);
        // What is proposed here stays in order: else a session that goes on asking would have one request at a time done
        // for as long as it does, and never catch up.
        let is_behind = before.is_some_and(|before| self.sites.broker.is_carried_out(before));
        let is_first = is_behind || streams.is_first_of_session(ticket);
        let follows = before.is_some_and(|before| self.sites.broker.has_gone_home(before));
        if !is_first && !follows {
            // It is looked at when what is before it has its outcome.
            return;
        }
        let origin = Some(Origin { server, request: ticket.number, site: ticket.site });
        let bytes = Bytes::from(asked);
        let Ok(decoded) = Asked::decode(&bytes) else { return };
        if let (Some(origin), Asked::OpenSession { session, password, .. }) = (origin, &decoded) {
            return self.take_coming(ticket, (origin, *session, password), &bytes);
        }
        if self.applied.placement.is_divided() {
            return self.try_ticket(origin, &bytes, &decoded, is_first);
        }
        let is_call = self.is_for_program(&decoded);
        match self.attempt(origin, &decoded, is_first) {
            Tried::CarriedOut(of_programs) => {
                self.sites.broker.carries_out(ticket, Some(FIRST));
                self.is_carried_out(ticket, &decoded, is_call, &of_programs);
            }
            Tried::Lacks(lacked) => self.ticket_lacks(ticket, &lacked, is_first),
            Tried::NotNow => {}
        }
    }

    /// Carries out a request whose tokens are held here, also those that programs need for it.
    pub(super) fn attempt(
        &mut self,
        origin: Option<Origin>,
        asked: &Asked<'_>,
        may_carry_out: bool,
    ) -> Tried {
        let is_call = self.is_for_program(asked);
        if is_call && !may_carry_out {
            // Which tokens it takes shows when what is before it is done.
            return Tried::NotNow;
        }
        let lacked = if is_call { LackedTokens::default() } else { self.lacked_by(asked) };
        if !lacked.is_none() || !may_carry_out {
            return Tried::Lacks(Box::new(lacked));
        }
        match self.prepare_asked(origin, asked) {
            Ok(of_programs) => Tried::CarriedOut(of_programs),
            Err(mut lacked) => {
                // Nothing else may go meanwhile.
                lacked.needed.append(&mut self.needed_by(asked, is_call));
                Tried::Lacks(Box::new(lacked))
            }
        }
    }

    /// Tokens of other sites are missing for a request, or it is not its turn: then `is_first` is false.
    pub(super) fn ticket_lacks(&mut self, ticket: Ticket, lacked: &LackedTokens, is_first: bool) {
        let tree = self.applied.partition.tree();
        let (Some(own), Some(hub)) = (tree.own_site(), tree.hub()) else { return };
        let Some(Waiting { server, by: CarriedOut::Here, asked, session, .. }) =
            tree.streams().waiting(ticket).cloned()
        else {
            return;
        };
        let origin = Some(Origin { server, request: ticket.number, site: ticket.site });
        let bytes = Bytes::from(asked);
        let Ok(decoded) = Asked::decode(&bytes) else { return };
        let is_call = self.is_for_program(&decoded);
        if own == hub
            && is_first
            && let Some(away) = self.away_of(own, lacked)
        {
            return self.sites.broker.awaits(ticket, away, self.now.mono_us);
        }
        // What a program needs may be another matter where it is carried out: then it comes back once, and no more.
        let may_visit = !self.sites.broker.is_declined(ticket) || !self.has_programs_in(&decoded);
        let only_waits = only_waits(&decoded) && !is_call;
        let visited = visited_at_once(only_waits, lacked, ticket.site).filter(|_| may_visit);
        if !is_first && visited != Some(ticket.site) {
            // Only the site that keeps its order may carry out what follows it.
            return;
        }
        if own == hub && !lacked.read.is_empty() {
            return self.recall_read_tokens(ticket, &lacked.read);
        }
        if own == hub
            && let Some(to) = visited
        {
            if only_waits {
                self.was_read(&lacked.needed, ticket.site, true);
            }
            self.sites.broker.take_in_hand(ticket);
            self.sites.counts.visits += 1;
            self.applied.partition.propose_site_item(origin, &SiteItem::Visit { to, session, asked: &bytes });
        } else if own == hub {
            self.find_tokens(ticket, session, origin, &bytes, lacked, may_visit);
        } else {
            self.leave_to_hub(ticket, server, session, &bytes);
        }
    }

    /// Away from the hub: a request is not carried out here, after all. The hub finds somebody else for another site's.
    fn leave_to_hub(&mut self, ticket: Ticket, server: u8, session: i64, asked: &[u8]) {
        let tree = self.applied.partition.tree();
        let (is_own, reign) = (tree.own_site() == Some(ticket.site), tree.reign());
        self.sites.broker.take_in_hand(ticket);
        let Ticket { site, number } = ticket;
        let (origin, item) = if is_own {
            self.sites.counts.writes_forwarded += 1;
            (None, SiteItem::Forwarded { server, number, reign, session, asked })
        } else {
            (Some(Origin { server, request: number, site }), SiteItem::Declined)
        };
        self.applied.partition.propose_site_item(origin, &item);
    }

    /// Whether a program carries out what is asked.
    pub(super) fn is_for_program(&self, asked: &Asked<'_>) -> bool {
        let Asked::Write { session, .. } = asked else { return false };
        request_of(asked).is_some_and(|request| self.applied.partition.is_taken(*session, &request))
    }

    /// Whether programs have a part in what is asked.
    fn has_programs_in(&self, asked: &Asked<'_>) -> bool {
        let Asked::Write { session, .. } = asked else { return false };
        request_of(asked).is_some_and(|request| self.applied.partition.may_run(*session, &request))
    }

    /// The tokens that are not held here of those that what is asked needs by itself. What cannot be read needs none: it is
    /// refused where it is prepared.
    fn lacked_by(&self, asked: &Asked<'_>) -> LackedTokens {
        request_of(asked).map(|request| self.lacked_tokens(&request)).unwrap_or_default()
    }

    /// What becomes of a request is proposed. Programs have needed tokens for it.
    pub(super) fn is_carried_out(
        &mut self,
        ticket: Ticket,
        asked: &Asked<'_>,
        is_call: bool,
        of_programs: &BTreeSet<String>,
    ) {
        if let Some(next) = self.applied.partition.tree().streams().around(ticket).1.map(|next| next.ticket) {
            self.ready_if_here(next);
        }
        let Some(request) = request_of(asked) else { return };
        if !is_call && only_waits(asked) {
            let mut read = BTreeSet::new();
            stoa_tree::tokens_of(&request, &mut |path| {
                read.insert(String::from(path));
            });
            self.was_read(&read, ticket.site, false);
        } else {
            let request = Some(&request).filter(|_| !is_call);
            let plan = self.sites.policy.take_plan(ticket).unwrap_or_default();
            self.accessed(&Needs { request, tokens: of_programs }, ticket.site, plan);
        }
    }

    /// The tokens that what is asked needs by itself; that of what a program carries out shows when it is.
    fn needed_by(&self, asked: &Asked<'_>, is_call: bool) -> BTreeSet<String> {
        let mut needed = BTreeSet::new();
        if let Some(request) = request_of(asked).filter(|_| !is_call) {
            self.applied.partition.tree().tokens_of(&request, &mut |path| {
                needed.insert(String::from(path));
            });
        }
        needed
    }

    /// At the hub: has the tokens of a request come here; or all go to the home of a session, with the request, when
    /// one of them is that of an ephemeral, which has to stay there.
    fn find_tokens(
        &mut self,
        ticket: Ticket,
        session: i64,
        origin: Option<Origin>,
        asked: &[u8],
        lacked: &LackedTokens,
        may_visit: bool,
    ) {
        let LackedTokens { needed, missing, .. } = lacked;
        let stays = |path: &str| lacked.stays.contains(path);
        let homes: BTreeSet<SiteId> =
            missing.iter().filter(|(path, _)| stays(path)).map(|(_, holder)| *holder).collect();
        let home = homes.first().copied();
        let wanted: Vec<_> = missing
            .iter()
            .filter(|(path, holder)| Some(*holder) != home && !stays(path))
            .map(|(path, holder)| (path.clone(), *holder))
            .collect();
        if homes.len() > 1 {
            self.refuse_ticket(ticket, origin);
            return;
        }
        if let (Some(home), true) = (home, wanted.is_empty()) {
            if self.waits_to_send_along(ticket, lacked, home) {
                return;
            }
            self.sites.broker.take_in_hand(ticket);
            if !self.send_along(lacked, home) {
                self.refuse_ticket(ticket, origin);
                return;
            }
            self.sites.counts.visits += 1;
            let item = SiteItem::Visit { to: home, session, asked };
            self.applied.partition.propose_site_item(origin, &item);
        }
        if home.is_none()
            && let Some(to) = self.visit_or_plan(ticket, needed, missing, may_visit)
        {
            self.sites.broker.take_in_hand(ticket);
            self.sites.counts.visits += 1;
            self.applied.partition.propose_site_item(origin, &SiteItem::Visit { to, session, asked });
            return;
        }
        for (path, holder) in wanted {
            if self.sites.broker.block(ticket, &path) {
                self.sites.counts.recalls += 1;
                let item = SiteItem::Recall { to: holder, path: &path };
                self.applied.partition.propose_site_item(None, &item);
            }
        }
    }

    /// Gives up what has waited for too long for a site that is away. What is on its way to one, or to the hub, may have
    /// been carried out there: of that nobody can say what becomes of it, and its client is let go.
    pub(super) fn give_up_waiting(&mut self) {
        let since_us = self.now.mono_us.saturating_sub(WAIT_US);
        while self.prepares()
            && !self.is_between_reigns()
            && let Some(ticket) = self.sites.broker.next_late(since_us)
        {
            let tree = self.applied.partition.tree();
            let waiting = tree.streams().waiting(ticket).filter(|waiting| waiting.by == CarriedOut::Here);
            let Some(server) = waiting.map(|waiting| waiting.server) else { continue };
            self.sites.broker.take_in_hand(ticket);
            let origin = Origin { server, request: ticket.number, site: ticket.site };
            self.applied.partition.propose_refusal(origin, ErrorCode::OperationTimeout.into());
        }
        let since_us = self.now.mono_us.saturating_sub(2 * WAIT_US);
        let late = self.sites.requests.forwarded.iter().filter(|(_, it)| it.since_us <= since_us);
        let late: Vec<(u64, ConnectionId)> = late.map(|(number, it)| (*number, it.connection)).collect();
        for (number, id) in late {
            self.sites.requests.forwarded.remove(&number);
            self.close(id, CloseReason::SiteAway);
        }
    }

    /// Its tokens have to stay where they are, at different sites.
    pub(super) fn refuse_ticket(&mut self, ticket: Ticket, origin: Option<Origin>) {
        self.sites.broker.take_in_hand(ticket);
        if let Some(origin) = origin {
            self.applied.partition.propose_refusal(origin, ErrorCode::Unimplemented.into());
        }
    }

    /// Gives all tokens that a request needs and that are held here to a site. False if one of them has to stay.
    fn send_along(&mut self, lacked: &LackedTokens, to: SiteId) -> bool {
        let LackedTokens { needed, missing, .. } = lacked;
        let here = needed.iter().filter(|path| !missing.iter().any(|(missing, _)| missing == *path));
        // What is not there yet is held with what is above it.
        here.into_iter().all(|path| self.hand_token(path, to).is_ok())
    }

    /// Gives back the tokens that the hub wants. What was to be carried out here before, over several partitions, comes
    /// first: it may have been sent here with these very tokens.
    fn return_tokens(&mut self) {
        let tree = self.applied.partition.tree();
        let (Some(own), Some(hub)) = (tree.own_site(), tree.hub()) else { return };
        if tree.streams().recalled().next().is_none() && self.sites.divided.asked_back.is_empty() {
            return;
        }
        let recalled: BTreeSet<String> = tree.streams().recalled().map(String::from).collect();
        self.sites.divided.asked_back.retain(|path, _| recalled.contains(path));
        for path in recalled {
            let operations = &self.leader.coordination.operations;
            let asked = AskedBack { behind: operations.count(), is_asked: false };
            let asked = self.sites.divided.asked_back.entry(path.clone()).or_insert(asked);
            if !operations.are_done(asked.behind) {
                continue;
            }
            let at = self.applied.placement.of(&path);
            if at != FIRST {
                if !core::mem::replace(&mut asked.is_asked, true) {
                    // A token that left before it was wanted once more is gone there, too, when this is looked at; else
                    // it would be taken for one that leaves because of this, and nothing would be said of it.
                    let mut seen = self.applied.stamp.clone();
                    seen.include(&self.sites.divided.logged);
                    self.tell_news(at, SiteNews::Return(path, seen));
                }
                continue;
            }
            let is_read = self.applied.partition.tree().readers(&path).any(|reader| reader == own);
            if is_read {
                // It may be on its way already.
                let _ = self.applied.partition.propose_read_return(&path, self.now);
                continue;
            }
            let is_here = self.applied.partition.tree().holder_to_be(&path) == Some(own);
            if is_here && self.hand_token(&path, hub).is_ok() {
                continue;
            }
            if !self.applied.partition.tree().is_leaving(&path) && self.sites.broker.declines(&path) {
                self.applied.partition.propose_site_item(None, &SiteItem::NotRecalled { path: &path });
            }
        }
    }

    /// Gives the token of what is at a path, or of what is above it when nothing is there, to a site.
    ///
    /// # Errors
    /// When it is not here, or stays.
    pub(super) fn hand_token(&mut self, path: &str, to: SiteId) -> Result<(), TokenRefusal> {
        let mut above = path;
        loop {
            match self.give_token(above, to) {
                Ok(()) => return Ok(()),
                // It may have gone there with what is above it; or it is here, and cannot go by itself.
                Err(TokenRefusal::NotHeld) => {
                    let tree = self.applied.partition.tree();
                    let holder = tree.holder_to_be(path);
                    return match holder {
                        Some(holder) if holder == to => Ok(()),
                        _ if above != path && holder == tree.own_site() => Err(TokenRefusal::Ephemeral),
                        _ => Err(TokenRefusal::NotHeld),
                    };
                }
                // Nothing can be below an ephemeral, and the token of nothing there is not its session's.
                Err(TokenRefusal::Ephemeral) if above == path => return Err(TokenRefusal::Ephemeral),
                Err(refused @ (TokenRefusal::NoZnode | TokenRefusal::Ephemeral)) => {
                    above = stoa_wire::path::split(above).ok_or(refused)?.0;
                }
                Err(TokenRefusal::NoSite) => return Err(TokenRefusal::NoSite),
            }
        }
    }

    pub(super) fn give_token(&mut self, path: &str, to: SiteId) -> Result<(), TokenRefusal> {
        if self.is_between_reigns() {
            return Err(TokenRefusal::NotHeld);
        }
        let placement = &self.applied.placement;
        let given = if placement.is_divided() && (path == "/" || placement.is_split(path)) {
            self.give_known_token(path, to)
        } else {
            self.applied.partition.propose_token(path, to, self.now)
        };
        self.sites.counts.grants += u64::from(given.is_ok());
        given
    }
}
