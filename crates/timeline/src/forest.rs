//! The forest of an ensemble, as the timeline drives it: appends that come out of the group once for many members go down
//! trees, and what members have comes back up.
//!
//! What `stoa-forest` says goes from server to server in messages of its own ([`crate::message::Message::Forest`]), so a
//! frame may reach a server by way of others. Two things that connections guarantee are lost with that, and come back here:
//!
//! - *Nothing of a process that has ended comes after what its successor says.* An acknowledgement that was on its way
//!   for long could be of a disk that is gone. So each process has a **tag**, drawn when it starts, which it tells each
//!   other one itself, and acknowledgements carry it: the leader counts those of processes that it is connected with.
//! - *Who sends is who says it.* An append is the leader's whoever brings it. Servers of an ensemble have proved who they
//!   are, and trust each other not to invent what the leader says.

use crate::forest_status::{ForestServer, ForestShape, ForestStatus, Record, place, trees};
use crate::peers::{member_of, server_of};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_forest::{Frame, Ids, Limits, Output, Place, Pulled, Relay, Settings, Shape, Spreader};
use stoa_group::{Group, Members, Message, Pieces};

/// When there is a forest, and what it is like. All servers should agree, though only what the leader has counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForestConfig {
    /// How many servers there are at least, the leader counted. Of fewer each is sent to directly.
    pub servers_min: usize,
    /// How many trees, and how wide they are.
    pub settings: Settings,
    /// Times and bounds.
    pub limits: Limits,
}

impl ForestConfig {
    /// A forest from so many servers on, with so many trees (1 to 16), each so many children wide (as many as there are
    /// trees, to 64). `None` for other numbers.
    #[must_use]
    pub fn new(servers_min: usize, trees: u8, children: u8) -> Option<Self> {
        Some(Self { servers_min, settings: Settings::new(trees, children)?, limits: Limits::default() })
    }
}

impl Default for ForestConfig {
    fn default() -> Self {
        Self { servers_min: 10, settings: Settings::default(), limits: Limits::default() }
    }
}

/// How often a server looks whether its trees are silent, microseconds.
const LOOK_US: u64 = 10_000;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Forested {
    /// A frame goes to another server.
    Send(u8, Bytes),
    /// An append goes to the group.
    Step(Message),
    /// Members of the group have this, and have heard of these rounds, in this term.
    Acknowledged(u64, Vec<Said>),
}

/// What a member has, and of which round it has heard; see [`Group::acknowledge`] and [`Group::confirm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) member: u64,
    pub(crate) position: u64,
    pub(crate) round: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Forest {
    me: u8,
    config: Option<ForestConfig>,
    /// Of this process, and of those that it is connected with.
    tag: u64,
    tags: BTreeMap<u8, u64>,
    servers: Ids,
    /// Those to whom nothing of the forest may be said: they have a release that does not understand it, or it is off
    /// there.
    deaf: BTreeSet<u8>,
    /// The roots of the last shape that was known, the first tree's first: they follow up a leader first.
    coordinators: Vec<u8>,
    relay: Relay,
    /// While this server leads, with a forest.
    spreader: Option<Spreader>,
    /// The newest append has come from the leader itself, and not down a tree.
    is_asked: bool,
    /// Something may have come of what was handed in.
    is_fresh: bool,
    look_at_us: u64,
    record: Record,
}

impl Forest {
    pub(crate) fn new(me: u8, config: Option<ForestConfig>, tag: u64, members: &Members) -> Self {
        let limits = config.as_ref().map(|config| config.limits.clone()).unwrap_or_default();
        let mut forest = Self {
            me,
            config,
            tag,
            tags: BTreeMap::new(),
            servers: Ids::default(),
            deaf: BTreeSet::new(),
            coordinators: Vec::new(),
            relay: Relay::new(me, limits),
            spreader: None,
            is_asked: false,
            is_fresh: false,
            look_at_us: 0,
            record: Record::default(),
        };
        forest.members_are(0, members);
        forest
    }

    /// Whether this server has one when there are enough servers, or a leader that has one by its own settings.
    pub(crate) fn is_on(&self) -> bool {
        self.config.is_some()
    }

    /// Whether there are enough servers for one.
    fn is_large(&self) -> bool {
        self.config.as_ref().is_some_and(|config| self.servers.len() >= config.servers_min)
    }

    /// Whether there is one, or could be: else nothing is said about it.
    pub(crate) fn may_be(&self) -> bool {
        self.is_on() && (self.is_large() || self.is_there())
    }

    /// Whether there are trees now.
    fn is_there(&self) -> bool {
        self.spreader.is_some() || self.relay.shape().is_some()
    }

    /// Whether another server may be told something of it.
    pub(crate) fn may_tell(&self, server: u8) -> bool {
        self.is_on() && !self.deaf.contains(&server)
    }

    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_fresh
    }

    /// Whether this server leads, and appends go down trees.
    pub(crate) fn spreads(&self) -> bool {
        self.spreader.is_some()
    }

    /// Whether as much is on its way as should be.
    pub(crate) fn is_congested(&self) -> bool {
        self.spreader.as_ref().is_some_and(|spreader| !spreader.may_spread())
    }

    /// Members whose tags are not known.
    pub(crate) fn unknown(&self) -> Vec<u8> {
        if !self.may_be() {
            return Vec::new();
        }
        let is_unknown = |id: &u8| *id != self.me && !self.tags.contains_key(id) && self.may_tell(*id);
        self.servers.iter().filter(is_unknown).collect()
    }

    /// Those to whom it takes appends while this server leads, and whose acknowledgements count when they come back by
    /// it; nobody where there is none.
    pub(crate) fn reached(&self) -> Vec<u64> {
        let is_reached = |server: &u8| *server != self.me && self.tags.contains_key(server);
        let reached = self.spreader.iter().flat_map(|_| self.servers.iter());
        reached.filter(is_reached).map(member_of).collect()
    }

    // ---- what happens ----

    pub(crate) fn members_are(&mut self, now_us: u64, members: &Members) {
        let all = members.voters.iter().chain(&members.outgoing).chain(&members.learners);
        self.servers = all.copied().filter_map(server_of).collect();
        self.relay.set_servers(&self.servers);
        if let Some(spreader) = &mut self.spreader {
            spreader.set_servers(now_us, &self.servers);
        }
        self.is_fresh |= self.may_be();
    }

    /// Where this server stands among those that could follow up a leader, from 0: the roots of the trees come first, in
    /// the order of their trees, then all others by their ids. Whoever seems to be away is left out. `None` where there
    /// are too few servers for a forest.
    pub(crate) fn rank(&self, able: &Ids) -> Option<usize> {
        self.config.as_ref().filter(|config| self.servers.len() >= config.servers_min)?;
        let roots = self.shape().map(roots);
        let roots = roots.unwrap_or_else(|| self.coordinators.clone());
        let first = roots.iter().copied().filter(|root| able.contains(*root));
        let others = able.iter().filter(|id| !roots.contains(id));
        Some(first.chain(others).take_while(|id| *id != self.me).count())
    }

    /// The roots of the trees of now.
    pub(crate) fn roots(&self) -> Vec<u8> {
        self.shape().map(roots).unwrap_or_default()
    }

    /// Those next to a server in some tree, and who is aside.
    pub(crate) fn around(&self, server: u8) -> (Ids, Ids) {
        let near = self.shape().map(|shape| shape.neighbours(server)).unwrap_or_default();
        let aside = self.spreader.as_ref().map(|spreader| *spreader.aside()).unwrap_or_default();
        (near, aside)
    }

    /// The shape of now, whoever leads.
    fn shape(&self) -> Option<&Shape> {
        self.spreader.as_ref().map(Spreader::shape).or_else(|| self.relay.shape())
    }

    /// Another term begins, which has no shape yet.
    fn note_coordinators(&mut self) {
        if let Some(roots) = self.shape().map(roots).filter(|roots| !roots.is_empty()) {
            self.coordinators = roots;
        }
    }

    /// Another server leads, or nobody does.
    pub(crate) fn follows(&mut self, now_us: u64, term: u64, leader: Option<u8>) {
        self.note_coordinators();
        self.spreader = None;
        self.relay.enter(now_us, term, leader);
        self.is_fresh |= self.may_be();
    }

    /// This server leads a term, and its log ends here. There may be enough servers only later. Trees that a term has
    /// stay until it ends: others take what is said of a second forest in it for something of the first.
    pub(crate) fn leads(&mut self, now_us: u64, term: u64, end: u64) {
        let is_new = self.relay.reign() != (term, Some(self.me)) || self.spreader.is_none();
        if !is_new {
            return;
        }
        self.note_coordinators();
        self.relay.enter(now_us, term, Some(self.me));
        // Ids of which frames know nothing have the others sent to directly, and so are they themselves.
        let config = self.config.as_ref().filter(|_| Ids::is_id(self.me) && self.is_large());
        self.spreader = config.map(|config| {
            let mut spreader =
                Spreader::new(self.me, term, &self.servers, end, config.settings, config.limits.clone());
            let is_away = |id: &u8| *id != self.me && !self.tags.contains_key(id);
            self.servers.iter().filter(is_away).for_each(|id| spreader.gone(now_us, id));
            self.record.leads(&spreader, &self.servers);
            spreader
        });
        self.is_fresh |= self.may_be();
    }

    pub(crate) fn committed(&mut self, position: u64) {
        if self.is_on() {
            self.relay.committed(position);
            self.spreader.iter_mut().for_each(|spreader| spreader.committed(position));
            self.is_fresh |= self.is_there();
        }
    }

    /// Whether another server understands what is said of the forest, and has it. All do until something else is said.
    pub(crate) fn hears(&mut self, server: u8, hears: bool) {
        if hears {
            self.deaf.remove(&server);
        } else {
            self.deaf.insert(server);
        }
    }

    /// There is a connection to another server.
    pub(crate) fn met(&mut self, server: u8) {
        if self.may_tell(server) {
            self.relay.connected(server);
        } else {
            // It is passed over as if there were none.
            self.relay.gone(server);
        }
    }

    /// Another server has told its tag. That comes first when there is a connection.
    pub(crate) fn connected(&mut self, server: u8, tag: u64) {
        self.tags.insert(server, tag);
        self.relay.connected(server);
        self.spreader.iter_mut().for_each(|spreader| spreader.connected(server));
    }

    pub(crate) fn gone(&mut self, now_us: u64, server: u8) {
        self.tags.remove(&server);
        self.relay.gone(server);
        self.spreader.iter_mut().for_each(|spreader| spreader.gone(now_us, server));
        self.is_fresh |= self.may_be();
    }

    /// The group has an append for all, and it is this round.
    pub(crate) fn spread(&mut self, now_us: u64, message: &Message, round: u64) {
        let (Some(spreader), Some((previous, last))) = (&mut self.spreader, message.place()) else { return };
        let mut body = Pieces::default();
        message.encode(&mut body);
        let body = body.join();
        self.record.spread(now_us, last, body.len());
        spreader.set_round(round);
        spreader.spread(now_us, Place { previous, last }, body);
        self.is_fresh = true;
    }

    /// An append goes to the group. The leader has sent it itself, or it has come down a tree.
    pub(crate) fn appends(&mut self, is_direct: bool) {
        self.is_asked = is_direct;
    }

    /// The group says to the leader of a term that this server has its log up to a position. Returns whether that goes up
    /// the forest alone. Whom the leader asks itself answers it as well: what went up the forest may not have reached it,
    /// as when the server above is one that it does not count any more.
    pub(crate) fn acknowledge(&mut self, to: u8, term: u64, position: u64) -> bool {
        let reaches = self.relay.reign() == (term, Some(to)) && self.relay.shape().is_some();
        if reaches {
            self.relay.stored(term, self.tag, position);
            self.is_fresh = true;
        }
        reaches && !self.is_asked
    }

    /// A frame has come. `false` when it is none.
    pub(crate) fn receive(&mut self, now_us: u64, from: u8, frame: Bytes) -> bool {
        if !self.is_on() {
            // Nobody would take what comes of it.
            return true;
        }
        self.record.received(now_us, from, &frame);
        let received = match &mut self.spreader {
            Some(spreader) => spreader.receive(now_us, from, frame),
            None => self.relay.receive(now_us, from, frame),
        };
        self.is_fresh = true;
        received.is_ok()
    }

    pub(crate) fn tick(&mut self, now_us: u64) {
        if self.next_wake_us().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        self.look_at_us = now_us + LOOK_US;
        match &mut self.spreader {
            Some(spreader) => spreader.tick(now_us),
            None => self.relay.tick(now_us),
        }
        self.is_fresh = true;
    }

    /// When [`Forest::tick`] is needed. Where there are no trees that is never.
    pub(crate) fn next_wake_us(&self) -> Option<u64> {
        // What was due at the last look and could not be done then is looked at with the next one.
        let looked_us = self.look_at_us.saturating_sub(LOOK_US);
        let due_us = self.relay.due_us().filter(|due_us| self.spreader.is_none() && *due_us > looked_us);
        self.is_there().then(|| due_us.map_or(self.look_at_us, |due_us| due_us.min(self.look_at_us)))
    }

    // ---- what is to be done ----

    /// What has come of all that. When it is done, [`Forest::stepped`] is wanted.
    pub(crate) fn take(&mut self, now_us: u64, group: &Group) -> Vec<Forested> {
        self.is_fresh = false;
        if let Some(spreader) = &self.spreader {
            self.record.look(now_us, spreader, &self.servers, &self.tags);
        }
        let mut todo = Vec::new();
        while let Some(output) = match &mut self.spreader {
            Some(spreader) => spreader.poll(),
            None => self.relay.poll(),
        } {
            let forested = self.carry_out(output, group);
            if let Some(Forested::Send(_, frame)) = &forested {
                self.record.sent(frame);
            }
            todo.extend(forested);
        }
        todo
    }

    // ---- what operators see ----

    /// How it stands; `None` where it is off. `is_fed` says which members the group gives no appends itself, and
    /// `matched` up to where they have the log, which ends at `last`; both count at the leader.
    pub(crate) fn status(
        &self,
        now_us: u64,
        is_fed: impl Fn(u64) -> bool,
        (last, matched): (u64, &[(u8, u64)]),
    ) -> Option<ForestStatus> {
        let config = self.config.as_ref()?;
        let leads = self.spreader.as_ref();
        let of_leader = leads.map(|it| (it.shape(), (it.epoch(), config.settings, it.aside())));
        let (shape, shaped) = match of_leader {
            Some((shape, shaped)) => (Some(shape), Some(shaped)),
            None => (self.relay.shape(), self.relay.shaped()),
        };
        let aside = shaped.map(|(.., aside)| *aside).unwrap_or_default();
        let late = leads.map(|_| self.record.late(now_us, last, matched)).unwrap_or_default();
        let server = |id: u8| ForestServer {
            id,
            place: place(shape, &aside, id),
            tree: shape.and_then(|shape| shape.colour(id)),
            is_fed: leads.map(|_| is_fed(member_of(id))).filter(|_| id != self.me),
            understands: id == self.me || !self.deaf.contains(&id),
            late: late.get(&id).copied(),
        };
        let silent_us = |tree| leads.is_none().then(|| self.relay.silent_us(tree, now_us));
        Some(ForestStatus {
            servers_min: config.servers_min,
            settings: shaped.map_or(config.settings, |(_, settings, _)| settings),
            shape: shape.zip(shaped).filter(|(shape, _)| shape.trees() > 0).map(|(shape, (epoch, ..))| {
                ForestShape { term: epoch.term, number: epoch.count, leader: shape.leader() }
            }),
            trees: shape.map(|shape| trees(shape, silent_us)).unwrap_or_default(),
            servers: self.servers.iter().map(server).collect(),
            counts: self.record.counts,
            repairs: self.record.repairs(now_us),
        })
    }

    /// The group has stepped what was to be stepped.
    pub(crate) fn stepped(&mut self, group: &Group) {
        if self.spreader.is_none() {
            let (term, position) = group.in_step();
            self.relay.has(term, position);
        }
    }

    fn carry_out(&mut self, output: Output, group: &Group) -> Option<Forested> {
        match output {
            // It may have led, or asked for something, before it had the release that it has now.
            Output::Send { to, frame } => self.may_tell(to).then_some(Forested::Send(to, frame)),
            Output::Deliver { term, body, .. } => {
                let message = Message::decode(body).ok()?;
                let leader = self.relay.reign().1.map(member_of);
                let is_leaders = message.place().is_some() && message.term() == term;
                (is_leaders && Some(message.from()) == leader)
                    .then(|| Forested::Step(message.addressed(member_of(self.me))))
            }
            Output::Committed { term, position } => {
                let append = group.commit_upto(position).filter(|append| append.term() == term)?;
                Some(Forested::Step(append.addressed(member_of(self.me))))
            }
            Output::Asked { by, term, after, upto } => {
                let append = group.append_behind(after, upto).filter(|append| append.term() == term)?;
                let (previous, last) = append.place()?;
                let mut body = Pieces::default();
                append.encode(&mut body);
                let place = Place { previous, last };
                let frame = Frame::Pulled(Pulled { term, place, body: body.join() }).encode();
                (last > previous && self.may_tell(by)).then_some(Forested::Send(by, frame))
            }
            Output::Heard { term, round } => {
                // The group may have heard of a later term by now, and voted in it.
                if group.in_step().0 == term {
                    self.relay.heard(term, self.tag, round);
                }
                None
            }
            Output::Acknowledged(items) => {
                let ((term, _), tags) = (group.in_step(), &self.tags);
                let counts = items.into_iter().filter(|item| tags.get(&item.server) == Some(&item.disk));
                let said = counts.map(|item| Said {
                    member: member_of(item.server),
                    position: item.position,
                    round: item.round,
                });
                Some(Forested::Acknowledged(term, said.collect()))
            }
            // The group hears of later terms by itself.
            Output::Newer { .. } => None,
        }
    }
}

/// Who is at the top of each tree.
fn roots(shape: &Shape) -> Vec<u8> {
    (0..shape.trees()).filter_map(|tree| shape.root(tree)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_forest::{Acknowledge, Acknowledgement};
    use stoa_group::{Config, Mark, Restored};

    const TERM: u64 = 3;

    fn acknowledged(forest: &mut Forest, group: &Group, items: &[(u8, u64, u64)]) -> Vec<(u64, u64)> {
        let item = |(server, disk, position): &(u8, u64, u64)| Acknowledgement {
            server: *server,
            disk: *disk,
            position: *position,
            round: 0,
        };
        let items = items.iter().map(item).collect();
        let frame = Frame::Acknowledge(Acknowledge { term: TERM, items }).encode();
        assert!(forest.receive(1, 3, frame), "it is a frame");
        let counted = |forested| match forested {
            Forested::Acknowledged(term, items) => {
                assert_eq!(term, TERM);
                items.iter().map(|said| (said.member, said.position)).collect()
            }
            Forested::Send(..) | Forested::Step(_) => Vec::new(),
        };
        forest.take(2, group).into_iter().flat_map(counted).collect()
    }

    /// A server that has heard of the shape of a leader, and then of a later term.
    fn led_by(leader: u8, members: &Members) -> Forest {
        let mut forest = Forest::new(9, ForestConfig::new(10, 3, 3), 100, members);
        forest.follows(0, TERM, Some(leader));
        let settings = Settings::new(3, 3).expect("as many children as trees");
        let mut spreader = Spreader::new(leader, TERM, &forest.servers, 0, settings, Limits::default());
        spreader.tick(1_000_000);
        while let Some(Output::Send { frame, .. }) = spreader.poll() {
            assert!(forest.receive(1, 1, frame), "it is a frame");
        }
        forest.follows(2, TERM + 1, None);
        forest
    }

    #[test]
    fn roots_follow_up_first_then_the_others_by_their_ids_and_nobody_twice() {
        let all: Vec<u64> = (1..=15).collect();
        let members = Members::of_voters(&all);
        let forest = led_by(4, &members);
        let roots = forest.coordinators.clone();
        assert_eq!(roots.len(), 3);
        let able = |without: &[u8]| (1..=15).filter(|id| !without.contains(id)).collect::<Ids>();
        let rank = |me: u8, able: &Ids| Forest { me, ..led_by(4, &members) }.rank(able).unwrap();
        let mut ranks: Vec<usize> = (1..=15).filter(|id| *id != 4).map(|id| rank(id, &able(&[4]))).collect();
        let first: Vec<usize> = roots.iter().map(|root| rank(*root, &able(&[4]))).collect();
        assert_eq!(first, [0, 1, 2]);
        ranks.sort_unstable();
        assert_eq!(ranks, (0..14).collect::<Vec<_>>());
        // One that is away is waited for by nobody.
        assert_eq!(rank(roots[1], &able(&[4, roots[0]])), 0);
        let few = Members::of_voters(&all[..9]);
        assert_eq!(Forest::new(3, ForestConfig::new(10, 3, 3), 100, &few).rank(&able(&[])), None);
    }

    /// The server above may have left the ensemble, and know no leader: then what goes up ends there.
    #[test]
    fn whom_the_leader_asks_itself_answers_it_itself() {
        let mut forest = led_by(1, &Members::of_voters(&(1..=15).collect::<Vec<u64>>()));
        forest.relay = Relay::new(9, Limits::default());
        forest.follows(3, TERM, Some(1));
        let mut spreader = Spreader::new(1, TERM, &forest.servers, 0, Settings::default(), Limits::default());
        spreader.tick(1_000_000);
        forest.relay.set_servers(&forest.servers);
        while let Some(Output::Send { frame, .. }) = spreader.poll() {
            assert!(forest.receive(4, 1, frame), "it is a frame");
        }
        forest.appends(false);
        assert!(forest.acknowledge(1, TERM, 5), "it goes up");
        forest.appends(true);
        assert!(!forest.acknowledge(1, TERM, 6), "the leader has asked");
        forest.appends(false);
        assert!(forest.acknowledge(1, TERM, 7), "it goes up again");
        assert!(!forest.acknowledge(2, TERM, 7), "that one does not lead");
    }

    /// An acknowledgement of a process that has ended may have been on its way for as long as it likes.
    #[test]
    fn what_another_process_has_acknowledged_is_not_counted() {
        let members = Members::of_voters(&[1, 2, 3, 4]);
        let base = Mark { position: 9, term: TERM, members: members.clone() };
        let group =
            Group::new(&Config::new(1, 1), &Restored { base, ..Restored::default() }).expect("it is sound");
        let mut forest = Forest::new(1, ForestConfig::new(3, 2, 2), 100, &members);
        [(2, 200), (3, 300)].into_iter().for_each(|(server, tag)| forest.connected(server, tag));
        forest.leads(0, TERM, 9);
        // Of server 4 no process is known at all.
        let items = [(2, 199, 9), (2, 200, 7), (3, 300, 8), (4, 400, 9)];
        assert_eq!(acknowledged(&mut forest, &group, &items), [(2, 7), (3, 8)]);
        // Its successor is another one, and until it is there nobody is.
        forest.gone(1, 2);
        assert_eq!(acknowledged(&mut forest, &group, &[(2, 200, 9)]), []);
        forest.connected(2, 201);
        assert_eq!(acknowledged(&mut forest, &group, &[(2, 200, 9), (2, 201, 3)]), [(2, 3)]);
    }
}
