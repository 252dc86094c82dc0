//! An ensemble: servers with a log each, a leader, and a network that loses, delays and reorders.
//!
//! The engine is a stand-in: an append says where it begins and what is committed, and has some bytes for each position,
//! which follow from it. A server takes an append that follows on its log, and has stored it some time later.

use crate::rng::Rng;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use stoa_forest::{Acknowledgement, Frame, Ids, Limits, Output, Place, Pulled, Relay, Settings, Spreader};

/// How long a turn of a server waits for more that may come.
const TURN_US: u64 = 20;

/// What an append has before its entries: what is committed.
const HEAD_BYTES: usize = 8;

/// The most positions of an answer to a pull.
const ANSWER_MAX: u64 = 256;

pub(crate) enum Event {
    Arrive { from: u8, to: u8, frame: Bytes },
    Turn(u8),
    Stored { id: u8, disk: u64, term: u64, position: u64 },
    Gone { at: u8, server: u8 },
    Connected { at: u8, server: u8 },
    Servers { at: u8, servers: Ids },
}

/// What the network and the disks do.
#[derive(Clone)]
pub(crate) struct Faults {
    /// One frame in so many is lost; 0 for none.
    pub(crate) loss: u64,
    pub(crate) delay_us: (u64, u64),
    /// One frame in so many comes much later; 0 for none.
    pub(crate) late: u64,
    pub(crate) disk_us: (u64, u64),
}

impl Faults {
    pub(crate) const NONE: Self = Self { loss: 0, delay_us: (80, 120), late: 0, disk_us: (100, 300) };
}

pub(crate) struct Server {
    pub(crate) relay: Relay,
    pub(crate) spreader: Option<Spreader>,
    pub(crate) term: u64,
    pub(crate) end: u64,
    pub(crate) stored: u64,
    pub(crate) committed: u64,
    pub(crate) disk: u64,
    pub(crate) is_alive: bool,
    pub(crate) is_frozen: bool,
    inbox: VecDeque<(u8, Bytes)>,
    has_turn: bool,
    next_tick_us: u64,
}

#[derive(Default, Debug, Clone)]
pub(crate) struct Counts {
    pub(crate) leader_out: u64,
    pub(crate) leader_in: u64,
    pub(crate) leader_bytes: u64,
    pub(crate) batches: u64,
    pub(crate) body_bytes: u64,
    pub(crate) pulls: u64,
    pub(crate) complaints: u64,
    /// Bytes that each server sent.
    pub(crate) bytes: BTreeMap<u8, u64>,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now_us: u64,
    pub(crate) servers: BTreeMap<u8, Server>,
    pub(crate) members: Ids,
    pub(crate) leader: u8,
    pub(crate) faults: Faults,
    pub(crate) counts: Counts,
    pub(crate) limits: Limits,
    /// From whom too much waits for whom.
    pub(crate) full: BTreeSet<(u8, u8)>,
    entry_bytes: usize,
    settings: Settings,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: BTreeMap<u64, Event>,
    serial: u64,
    /// What each disk has had of each term, by server, disk and term.
    had: BTreeMap<(u8, u64, u64), u64>,
    /// What the leader counts.
    matched: BTreeMap<u8, u64>,
    told_committed: u64,
}

impl World {
    pub(crate) fn new(seed: u64, ids: &[u8], entry_bytes: usize) -> Self {
        let (settings, limits) = (Settings::default(), Limits::default());
        let mut world = Self {
            rng: Rng(seed),
            now_us: 1,
            servers: BTreeMap::new(),
            members: ids.iter().copied().collect(),
            leader: ids[0],
            faults: Faults::NONE,
            counts: Counts::default(),
            limits,
            full: BTreeSet::new(),
            entry_bytes,
            settings,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            serial: 0,
            had: BTreeMap::new(),
            matched: BTreeMap::new(),
            told_committed: 0,
        };
        for id in ids {
            world.begin(*id);
        }
        world.lead(ids[0]);
        world
    }

    /// A server without anything: a new process on a new disk.
    pub(crate) fn begin(&mut self, id: u8) {
        let mut relay = Relay::new(id, self.limits.clone());
        relay.set_servers(&self.members);
        let server = Server {
            relay,
            spreader: None,
            term: 0,
            end: 0,
            stored: 0,
            committed: 0,
            disk: self.rng.next(),
            is_alive: true,
            is_frozen: false,
            inbox: VecDeque::new(),
            has_turn: false,
            next_tick_us: self.now_us + self.rng.below(1000),
        };
        self.servers.insert(id, server);
        self.turn_at(id, self.now_us);
    }

    /// The next term is that of this server.
    pub(crate) fn lead(&mut self, id: u8) {
        let term = 1 + self.servers.values().map(|server| server.term).max().unwrap();
        let (now, limits) = (self.now_us, self.limits.clone());
        self.leader = id;
        self.matched.clear();
        let server = self.servers.get_mut(&id).unwrap();
        let mut spreader = Spreader::new(id, term, &self.members, server.end, self.settings, limits);
        for (other, _) in self.servers.iter().filter(|(_, server)| !server.is_alive) {
            spreader.gone(now, *other);
        }
        let server = self.servers.get_mut(&id).unwrap();
        server.relay.enter(now, term, Some(id));
        (server.term, server.spreader) = (term, Some(spreader));
        self.matched.insert(id, server.stored);
        self.told_committed = 0;
        let end = self.servers[&id].end;
        self.store(id, end);
        self.turn_at(id, now);
    }

    pub(crate) fn end_process(&mut self, id: u8) {
        let server = self.servers.get_mut(&id).unwrap();
        server.is_alive = false;
        server.inbox.clear();
        let others: Vec<u8> = self.servers.keys().copied().filter(|other| *other != id).collect();
        for at in others {
            let after_us = self.rng.between(100, 1000);
            self.after(after_us, Event::Gone { at, server: id });
        }
    }

    /// The server comes back; with its disk, or with an empty one and a new tag.
    pub(crate) fn restart(&mut self, id: u8, is_empty: bool) {
        let former = self.servers.remove(&id).unwrap();
        self.begin(id);
        let server = self.servers.get_mut(&id).unwrap();
        if !is_empty {
            // What was not durable is gone.
            (server.disk, server.end, server.stored) = (former.disk, former.stored, former.stored);
            server.committed = former.committed.min(former.stored);
            server.relay.committed(server.committed);
        } else if id != self.leader {
            self.matched.remove(&id);
        }
        let others: Vec<u8> = self.servers.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            let after_us = self.rng.between(1000, 2000);
            let event = if self.servers[&other].is_alive {
                Event::Connected { at: other, server: id }
            } else {
                Event::Gone { at: id, server: other }
            };
            self.after(after_us, event);
        }
    }

    pub(crate) fn freeze(&mut self, id: u8) {
        self.servers.get_mut(&id).unwrap().is_frozen = true;
    }

    pub(crate) fn thaw(&mut self, id: u8) {
        self.servers.get_mut(&id).unwrap().is_frozen = false;
        self.turn_at(id, self.now_us);
    }

    /// The leader's list is another one; the others hear of it some time later.
    pub(crate) fn set_members(&mut self, members: Ids) {
        self.members = members;
        let now = self.now_us;
        if let Some(spreader) = &mut self.servers.get_mut(&self.leader).unwrap().spreader {
            spreader.set_servers(now, &members);
        }
        let all: Vec<u8> = self.servers.keys().copied().collect();
        for at in all {
            let after_us = self.rng.between(0, 5000);
            self.after(after_us, Event::Servers { at, servers: members });
        }
        self.turn_at(self.leader, now);
    }

    /// The leader spreads so many positions in one append, if it may.
    pub(crate) fn propose(&mut self, positions: u64) -> bool {
        let now = self.now_us;
        let server = self.servers.get_mut(&self.leader).unwrap();
        let Some(spreader) = server.spreader.as_mut().filter(|spreader| spreader.may_spread()) else {
            return false;
        };
        let place = Place { previous: server.end, last: server.end + positions };
        server.end = place.last;
        let body = body(place, server.committed, self.entry_bytes);
        self.counts.batches += 1;
        self.counts.body_bytes += body.len() as u64;
        spreader.spread(now, place, body);
        self.told_committed = server.committed;
        self.store(self.leader, place.last);
        self.turn_at(self.leader, now);
        true
    }

    pub(crate) fn spreader(&self) -> &Spreader {
        self.servers[&self.leader].spreader.as_ref().unwrap()
    }

    pub(crate) fn end(&self) -> u64 {
        self.servers[&self.leader].end
    }

    /// Members that live and are not frozen.
    pub(crate) fn well(&self) -> Vec<u8> {
        let well = self
            .servers
            .iter()
            .filter(|(id, server)| server.is_alive && !server.is_frozen && self.members.contains(**id));
        well.map(|(id, _)| *id).collect()
    }

    pub(crate) fn run(&mut self, us: u64) {
        let until = self.now_us + us;
        while let Some(Reverse((at_us, serial))) = self.events.peek().copied() {
            if at_us > until {
                break;
            }
            self.events.pop();
            self.now_us = self.now_us.max(at_us);
            let event = self.bodies.remove(&serial).unwrap();
            self.happen(event);
        }
        self.now_us = until;
    }

    fn after(&mut self, us: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((self.now_us + us, self.serial)));
        self.bodies.insert(self.serial, event);
    }

    fn turn_at(&mut self, id: u8, at_us: u64) {
        let after_us = at_us.saturating_sub(self.now_us);
        self.after(after_us, Event::Turn(id));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { from, to, frame } => {
                let server = self.servers.get_mut(&to).unwrap();
                if server.is_alive {
                    server.inbox.push_back((from, frame));
                    if !server.has_turn {
                        server.has_turn = true;
                        self.after(TURN_US, Event::Turn(to));
                    }
                }
            }
            Event::Turn(id) => self.turn(id),
            Event::Stored { id, disk, term, position } => {
                let server = self.servers.get_mut(&id).unwrap();
                if server.is_alive && server.disk == disk && server.term == term {
                    server.stored = server.stored.max(position);
                    let had = self.had.entry((id, disk, term)).or_default();
                    *had = position.max(*had);
                    if server.spreader.is_some() && id != self.leader {
                        // It was replaced and does not know.
                    } else if server.spreader.is_some() {
                        self.count(&[Acknowledgement { server: id, disk, position, round: 0 }]);
                    } else {
                        server.relay.stored(term, disk, position);
                    }
                    self.turn_at(id, self.now_us);
                }
            }
            Event::Gone { at, server: gone } => {
                let (now, server) = (self.now_us, self.servers.get_mut(&at).unwrap());
                server.relay.gone(gone);
                if let Some(spreader) = &mut server.spreader {
                    spreader.gone(now, gone);
                }
                self.turn_at(at, now);
            }
            Event::Connected { at, server: other } => {
                let server = self.servers.get_mut(&at).unwrap();
                server.relay.connected(other);
                if let Some(spreader) = &mut server.spreader {
                    spreader.connected(other);
                }
            }
            Event::Servers { at, servers } => {
                if servers == self.members {
                    self.servers.get_mut(&at).unwrap().relay.set_servers(&servers);
                }
            }
        }
    }

    /// Takes in all that has come, and does what comes of it.
    fn turn(&mut self, id: u8) {
        let now = self.now_us;
        let server = self.servers.get_mut(&id).unwrap();
        server.has_turn = false;
        if !server.is_alive || server.is_frozen {
            return;
        }
        while let Some((from, frame)) = server.inbox.pop_front() {
            match &mut server.spreader {
                Some(spreader) => spreader.receive(now, from, frame).unwrap(),
                None => server.relay.receive(now, from, frame).unwrap(),
            }
        }
        let is_due = server.relay.due_us().is_some_and(|due_us| due_us <= now);
        if now >= server.next_tick_us || is_due {
            match &mut server.spreader {
                Some(spreader) => spreader.tick(now),
                None => server.relay.tick(now),
            }
            server.next_tick_us = now + 2000;
            let at_us = server.next_tick_us;
            self.turn_at(id, at_us);
        }
        self.enter_term(id);
        while let Some(output) = self.poll(id) {
            self.act(id, output);
        }
        let server = &self.servers[&id];
        if let Some(due_us) =
            server.relay.due_us().filter(|due_us| *due_us > now && server.spreader.is_none())
        {
            self.turn_at(id, due_us);
        }
    }

    fn poll(&mut self, id: u8) -> Option<Output> {
        let server = self.servers.get_mut(&id).unwrap();
        match &mut server.spreader {
            Some(spreader) => spreader.poll(),
            None => server.relay.poll(),
        }
    }

    /// A server that hears of a term forgets what it has beyond what is committed: it may be another log.
    fn enter_term(&mut self, id: u8) {
        let server = self.servers.get_mut(&id).unwrap();
        let (term, _) = server.relay.reign();
        if term > server.term {
            server.term = term;
            server.end = server.committed;
            server.stored = server.stored.min(server.end);
        }
    }

    fn act(&mut self, id: u8, output: Output) {
        match output {
            Output::Send { to, frame } => self.send(id, to, frame),
            Output::Deliver { term, place, body } => self.deliver(id, term, place, &body),
            Output::Heard { term, round } => {
                let server = self.servers.get_mut(&id).unwrap();
                server.relay.heard(term, server.disk, round);
            }
            Output::Asked { by, term, after, upto } => {
                let server = &self.servers[&id];
                assert!(
                    after < upto && upto <= server.end && term == server.term,
                    "asked for what is not there"
                );
                let place = Place { previous: after, last: upto.min(after + ANSWER_MAX) };
                let body = body(place, server.committed, self.entry_bytes);
                self.send(id, by, Frame::Pulled(Pulled { term, place, body }).encode());
            }
            Output::Committed { term, position } => {
                let server = self.servers.get_mut(&id).unwrap();
                assert!(term == server.term && position <= server.end && position > server.committed);
                server.committed = position;
                server.relay.committed(position);
            }
            // One that was replaced and does not know counts as well, but commits nothing.
            Output::Acknowledged(_) if id != self.leader => {}
            Output::Acknowledged(items) => {
                self.counts.leader_in += 1;
                self.count(&items);
            }
            Output::Newer { term, leader } => {
                let now = self.now_us;
                let server = self.servers.get_mut(&id).unwrap();
                server.spreader = None;
                server.relay.enter(now, term, Some(leader));
                self.enter_term(id);
            }
        }
    }

    fn send(&mut self, id: u8, to: u8, frame: Bytes) {
        assert_ne!(id, to, "somebody sends to itself");
        *self.counts.bytes.entry(id).or_default() += frame.len() as u64;
        if id == self.leader {
            self.counts.leader_out += 1;
            self.counts.leader_bytes += frame.len() as u64;
        }
        match Frame::decode(frame.clone()).unwrap() {
            Frame::Pull(_) => self.counts.pulls += 1,
            Frame::Complaint(_) => self.counts.complaints += 1,
            _ => {}
        }
        if self.full.contains(&(id, to)) {
            return;
        }
        if !self.servers.contains_key(&to) || self.faults.loss > 0 && self.rng.one_in(self.faults.loss) {
            return;
        }
        let (least, most) = self.faults.delay_us;
        let mut delay_us = self.rng.between(least, most);
        if self.faults.late > 0 && self.rng.one_in(self.faults.late) {
            delay_us += self.rng.between(0, 20_000);
        }
        self.after(delay_us, Event::Arrive { from: id, to, frame });
    }

    /// The engine is given an append: it has to follow on the log, and to bring something.
    fn deliver(&mut self, id: u8, term: u64, place: Place, body: &Bytes) {
        let server = self.servers.get_mut(&id).unwrap();
        assert_eq!(term, server.term);
        assert!(place.previous <= server.end, "{id} has {} and is given {place:?}", server.end);
        assert!(place.last > server.end || place.previous == place.last, "{id} is given {place:?} twice");
        let committed = check(place, body, self.entry_bytes);
        server.end = server.end.max(place.last);
        server.committed = server.committed.max(committed.min(server.end));
        server.relay.has(term, server.end);
        server.relay.committed(server.committed);
        let end = server.end;
        self.store(id, end);
    }

    fn store(&mut self, id: u8, position: u64) {
        let (least, most) = self.faults.disk_us;
        let after_us = self.rng.between(least, most);
        let server = &self.servers[&id];
        let (disk, term) = (server.disk, server.term);
        self.after(after_us, Event::Stored { id, disk, term, position });
    }

    /// The leader counts, by server, what is durable on the disks that it knows.
    fn count(&mut self, items: &[Acknowledgement]) {
        let (leader, term) = (self.leader, self.servers[&self.leader].term);
        for item in items {
            let had = self.had.get(&(item.server, item.disk, term)).copied().unwrap_or(0);
            assert!(item.position <= had, "{item:?}, of which {had} is true");
            if self.servers.get(&item.server).is_some_and(|server| server.disk == item.disk) {
                let matched = self.matched.entry(item.server).or_default();
                *matched = item.position.max(*matched);
            }
        }
        let mut positions: Vec<u64> =
            self.members.iter().map(|id| self.matched.get(&id).copied().unwrap_or(0)).collect();
        positions.sort_unstable_by(|one, other| other.cmp(one));
        let committed = positions[positions.len() / 2];
        let now = self.now_us;
        let server = self.servers.get_mut(&leader).unwrap();
        let Some(spreader) = server.spreader.as_mut().filter(|_| committed > server.committed) else {
            return;
        };
        server.committed = committed;
        server.relay.committed(committed);
        spreader.committed(committed);
        // What is committed is told with the next append, or with one of its own when all is.
        if committed == server.end && committed > self.told_committed {
            self.told_committed = committed;
            let place = Place { previous: server.end, last: server.end };
            spreader.spread(now, place, body(place, committed, self.entry_bytes));
        }
        self.turn_at(leader, now);
    }

    /// Everybody that is well has all, and the leader knows it.
    pub(crate) fn assert_whole(&self) {
        let end = self.end();
        for id in self.well() {
            let server = &self.servers[&id];
            assert_eq!(
                (server.end, server.stored, server.committed),
                (end, end, end),
                "{id} of {:?}, leader {}, {:?}",
                self.members,
                self.leader,
                self.spreader().aside()
            );
            assert_eq!(self.matched.get(&id), Some(&end), "what the leader knows of {id}");
        }
    }
}

fn body(place: Place, committed: u64, entry_bytes: usize) -> Bytes {
    let mut body = committed.to_le_bytes().to_vec();
    for position in place.previous + 1..=place.last {
        let at = body.len();
        body.resize(at + entry_bytes, position as u8);
        body[at..at + 8].copy_from_slice(&position.to_le_bytes());
    }
    body.into()
}

/// What an append says is committed.
fn check(place: Place, bytes: &Bytes, entry_bytes: usize) -> u64 {
    let committed = u64::from_le_bytes(bytes[..HEAD_BYTES].try_into().unwrap());
    assert_eq!(*bytes, body(place, committed, entry_bytes), "another append than was made");
    committed
}
