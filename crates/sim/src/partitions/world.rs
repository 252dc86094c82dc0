//! One run: servers, links, clients, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Add;

use bytes::Bytes;
use stoa_core::{CloseReason, Now, PeerOutput, Placement, Role, Shard};
use stoa_tree::Tree;

use super::client::{Client, Known, Map};
use super::server::{Out, Records, Server};
use crate::check::Violation;
use crate::rng::Rng;

const SERVERS: u8 = 3;
const CLIENTS: usize = 5;
/// What happens while things go wrong, and how long everything may take to come right, in steps.
const STEPS: u64 = 12_000;
const HEALING_STEPS: u64 = 100_000;
/// How often a client may have to come back before all of its last requests are answered.
const ATTEMPTS: u32 = 20;

/// What a run came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Answers that clients were given.
    pub answers: u64,
    /// Simulated time, microseconds.
    pub time_us: u64,
    /// Servers that were killed.
    pub kills: u64,
    /// Links that were cut.
    pub cuts: u64,
}

impl Add for Outcome {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            answers: self.answers + other.answers,
            time_us: self.time_us + other.time_us,
            kills: self.kills + other.kills,
            cuts: self.cuts + other.cuts,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answers, time_us, kills, cuts } = self;
        let seconds = time_us / 1_000_000;
        write!(f, "{answers} answers, {kills} kills, {cuts} cuts, {seconds} s of simulated time")
    }
}

/// A link between the same partition of two servers, one way.
type Link = (u8, u8, u8);

/// Servers with several partitions, and everything around them.
pub struct World<'a> {
    partitions: u8,
    rng: Rng,
    map: Map,
    now_us: u64,
    servers: BTreeMap<u8, Server>,
    disks: BTreeMap<u8, Records>,
    links: BTreeMap<Link, VecDeque<Bytes>>,
    cut: BTreeSet<Link>,
    clients: Vec<Client>,
    outcome: Outcome,
    /// How eagerly each thread listens: some are slow for a while.
    slow: BTreeSet<(u8, u8)>,
    /// Things go wrong.
    is_troubled: bool,
    plant: &'a dyn Fn(&mut Shard),
}

type Done = Result<(), Violation>;

impl<'a> World<'a> {
    /// A world in which everything follows from the seed. `plant` may spoil each thread.
    #[must_use]
    pub fn new(seed: u64, partitions: u8, plant: &'a dyn Fn(&mut Shard)) -> Self {
        let mut rng = Rng::new(seed);
        let placement = Placement::new(partitions);
        let names = || (0..).map(|number| format!("/top-{number}"));
        let top = |of| names().find(|name| placement.of(name) == of).unwrap_or_default();
        let map = Map { tops: (0..partitions).map(top).collect() };
        let clients = (0..CLIENTS).map(|_| Client::new(rng.fork())).collect();
        let disks = (1..=SERVERS).map(|id| (id, Records::new())).collect();
        let mut world = Self {
            partitions,
            rng,
            map,
            now_us: 1_000_000,
            servers: BTreeMap::new(),
            disks,
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            clients,
            outcome: Outcome::default(),
            slow: BTreeSet::new(),
            is_troubled: false,
            plant,
        };
        (1..=SERVERS).for_each(|id| world.start(id));
        world
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    fn others(of: u8) -> impl Iterator<Item = u8> {
        (1..=SERVERS).filter(move |id| *id != of)
    }

    fn start(&mut self, id: u8) {
        let seed = self.rng.next_u64();
        let now = self.now();
        let server = Server::start(id, self.partitions, &[1, 2, 3], &self.disks[&id], seed, now, self.plant);
        self.servers.insert(id, server);
        for other in Self::others(id) {
            for partition in 0..self.partitions {
                self.connect(id, other, partition);
            }
        }
    }

    fn kill(&mut self, id: u8) -> Done {
        self.servers.remove(&id);
        self.outcome.kills += 1;
        for other in Self::others(id) {
            for partition in 0..self.partitions {
                self.disconnect(id, other, partition)?;
            }
        }
        for client in &mut self.clients {
            if client.at.is_some_and(|(server, ..)| server == id) {
                client.lost();
            }
        }
        Ok(())
    }

    fn connect(&mut self, one: u8, other: u8, partition: u8) {
        let now = self.now();
        if self.cut.contains(&(one.min(other), one.max(other), partition)) {
            return;
        }
        for (from, to) in [(one, other), (other, one)] {
            if self.servers.contains_key(&one)
                && self.servers.contains_key(&other)
                && !self.links.contains_key(&(from, to, partition))
            {
                self.links.insert((from, to, partition), VecDeque::new());
                let server = self.servers.get_mut(&to).expect("it was just found");
                server.shard(partition).server_mut().peer_connected(from, now);
            }
        }
    }

    fn disconnect(&mut self, one: u8, other: u8, partition: u8) -> Done {
        let now = self.now();
        for (from, to) in [(one, other), (other, one)] {
            if self.links.remove(&(from, to, partition)).is_some()
                && let Some(server) = self.servers.get_mut(&to)
            {
                server.shard(partition).server_mut().peer_lost(from, now);
                self.poll(to, partition)?;
            }
        }
        Ok(())
    }

    /// Takes out what a thread has to say, and shows its clients what they are told.
    fn poll(&mut self, id: u8, partition: u8) -> Done {
        let now = self.now();
        let Some(server) = self.servers.get_mut(&id) else { return Ok(()) };
        let outs = server.poll(partition, now);
        let mut hang_up = None;
        for (at, client) in self.clients.iter_mut().enumerate() {
            let Some((server_id, thread, connection)) = client.at else { continue };
            if (server_id, thread) != (id, partition) {
                continue;
            }
            let shard = server.shard(partition);
            let bytes = shard.output(connection).to_vec();
            shard.sent(connection, bytes.len(), now);
            client.receive(&self.map, &bytes)?;
            // Most of all when it has just been told something, and may not know of all that it watches.
            if self.is_troubled && !bytes.is_empty() && client.watches_something() && self.rng.one_in(4) {
                hang_up = Some(at);
            }
        }
        for out in outs {
            match out {
                Out::Peer(PeerOutput::Send { to, message }) => {
                    if let Some(link) = self.links.get_mut(&(id, to, partition)) {
                        link.push_back(message.join());
                    }
                }
                Out::Peer(PeerOutput::Snapshot { to, .. }) => {
                    server.shard(partition).server_mut().snapshot_sent(to, false, now);
                }
                Out::Peer(_) => {}
                Out::Closed(_, CloseReason::ClientAhead) => {
                    return Err(Violation::new("a client was sent away who has seen nothing that is lost"));
                }
                Out::Closed(connection, _) => {
                    server.shard(partition).disconnected(connection, now);
                    for client in &mut self.clients {
                        if client.at == Some((id, partition, connection)) {
                            client.lost();
                        }
                    }
                }
            }
        }
        hang_up.map_or(Ok(()), |at| self.hang_up(at))
    }

    fn poll_all(&mut self) -> Done {
        for id in 1..=SERVERS {
            for partition in 0..self.partitions {
                self.poll(id, partition)?;
            }
        }
        Ok(())
    }

    /// Something happens.
    fn step(&mut self) -> Done {
        let now = self.now();
        let words: Vec<_> = self
            .servers
            .iter()
            .flat_map(|(id, server)| server.talking().into_iter().map(|between| (*id, between)))
            .filter(|(id, (_, to))| !self.slow.contains(&(*id, *to)))
            .collect();
        let links: Vec<_> = self
            .links
            .iter()
            .filter(|((_, to, partition), queue)| {
                !queue.is_empty() && !self.slow.contains(&(*to, *partition))
            })
            .map(|(link, _)| *link)
            .collect();
        let logs: Vec<_> =
            self.servers.iter().filter(|(_, server)| server.unstored() > 0).map(|(id, _)| *id).collect();
        let some = |list: usize, weight: u32| if list > 0 { weight } else { 0 };
        let weights = [some(words.len(), 30), some(links.len(), 30), some(logs.len(), 12), 6, 3];
        match self.rng.weighted(&weights) {
            0 => {
                let (id, between) = *self.rng.pick(&words);
                for _ in 0..self.rng.range(1, 6) {
                    if let Some(server) = self.servers.get_mut(&id) {
                        server.deliver(between, now);
                    }
                    self.poll(id, between.1)?;
                }
                Ok(())
            }
            1 => {
                let link = *self.rng.pick(&links);
                (0..self.rng.range(1, 12)).try_for_each(|_| self.deliver(link))
            }
            2 => {
                let id = *self.rng.pick(&logs);
                let (Some(server), Some(disk)) = (self.servers.get_mut(&id), self.disks.get_mut(&id)) else {
                    return Ok(());
                };
                let count = self.rng.range(1, server.unstored() as u64 + 1) as usize;
                let whose = server.store(count.min(server.unstored()), disk, now);
                whose.into_iter().try_for_each(|partition| self.poll(id, partition))
            }
            3 => self.pass(),
            _ => self.client_acts(),
        }
    }

    /// The oldest message on a link arrives.
    fn deliver(&mut self, link: Link) -> Done {
        let (from, to, partition) = link;
        let now = self.now();
        let message = self.links.get_mut(&link).and_then(VecDeque::pop_front);
        if let (Some(message), Some(server)) = (message, self.servers.get_mut(&to)) {
            let taken = server.shard(partition).server_mut().peer_message(from, message, now);
            taken.map_err(|_| Violation::new("a server does not understand another one"))?;
            self.poll(to, partition)?;
        }
        Ok(())
    }

    fn pass(&mut self) -> Done {
        self.now_us += self.rng.range(200, 4000);
        let now = self.now();
        for id in 1..=SERVERS {
            for partition in 0..self.partitions {
                let Some(server) = self.servers.get_mut(&id) else { continue };
                let shard = server.shard(partition);
                if shard.next_wake_us() <= now.mono_us || self.rng.one_in(20) {
                    shard.tick(now);
                    self.poll(id, partition)?;
                }
            }
        }
        Ok(())
    }

    fn client_acts(&mut self) -> Done {
        let at = self.rng.index(self.clients.len());
        let number = self.rng.next_u64();
        let (id, thread) =
            (self.rng.range(1, u64::from(SERVERS) + 1) as u8, self.rng.index(self.partitions.into()) as u8);
        let id = id.min(SERVERS);
        let newest = self.newest();
        let client = &mut self.clients[at];
        if client.at.is_none() {
            return self.bring(at, id, thread);
        }
        if !client.is_live || !client.is_idle() {
            return Ok(());
        }
        let bytes = client.act(&self.map, number, &newest);
        self.say(at, &bytes)
    }

    /// A client's connection ends, whatever is under way.
    fn hang_up(&mut self, at: usize) -> Done {
        let now = self.now();
        let Some((id, thread, connection)) = self.clients[at].at else { return Ok(()) };
        self.clients[at].lost();
        if let Some(server) = self.servers.get_mut(&id) {
            server.shard(thread).disconnected(connection, now);
        }
        self.poll(id, thread)
    }

    /// The newest version of each znode that anybody was told of.
    fn newest(&self) -> Known {
        let mut newest = Known::new();
        for (index, version) in self.clients.iter().flat_map(|client| &client.acknowledged) {
            let known = newest.entry(*index).or_insert(*version);
            *known = *version.max(known);
        }
        newest
    }

    /// A client connects to a thread of a server, if that runs.
    fn bring(&mut self, at: usize, id: u8, thread: u8) -> Done {
        let now = self.now();
        let address: SocketAddr = ([127, 0, 0, 1], 4000).into();
        let Some(server) = self.servers.get_mut(&id) else { return Ok(()) };
        let Ok(connection) = server.shard(thread).connect(address, now) else { return Ok(()) };
        let bytes = self.clients[at].connected((id, thread, connection));
        self.say(at, &bytes)
    }

    fn say(&mut self, at: usize, bytes: &[u8]) -> Done {
        let now = self.now();
        let Some((id, thread, connection)) = self.clients[at].at else { return Ok(()) };
        let bytes = [self.clients[at].watches(&self.map), bytes.to_vec()].concat();
        let bytes = bytes.as_slice();
        if let Some(server) = self.servers.get_mut(&id) {
            server.shard(thread).receive(connection, bytes, now);
        }
        self.poll(id, thread)
    }

    /// Something goes wrong, or comes right again.
    fn trouble(&mut self) -> Done {
        let id = self.rng.range(1, u64::from(SERVERS) + 1).min(u64::from(SERVERS)) as u8;
        let other = 1 + (id + self.rng.index(2) as u8) % SERVERS;
        let partition = self.rng.index(self.partitions.into()) as u8;
        let link = (id.min(other), id.max(other), partition);
        match self.rng.weighted(&[3, 8, 6, 8, 6, 6]) {
            0 if self.servers.len() == usize::from(SERVERS) => self.kill(id),
            1 => {
                (1..=SERVERS)
                    .filter(|id| !self.servers.contains_key(id))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|id| self.start(id));
                Ok(())
            }
            2 if id != other => {
                self.cut.insert(link);
                self.outcome.cuts += 1;
                self.disconnect(id, other, partition)
            }
            3 => {
                for (one, other, partition) in std::mem::take(&mut self.cut) {
                    self.connect(one, other, partition);
                }
                Ok(())
            }
            4 => {
                self.slow.insert((id, partition));
                Ok(())
            }
            5 => {
                self.slow.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// What must not have happened, or has not happened though it must.
    pub fn run(mut self) -> Result<Outcome, Violation> {
        self.begin()?;
        self.is_troubled = true;
        for _ in 0..STEPS {
            if self.rng.one_in(150) {
                self.trouble()?;
            }
            self.step()?;
        }
        self.is_troubled = false;
        self.heal()?;
        self.compare()?;
        self.outcome.answers = self.clients.iter().map(|client| client.answers).sum();
        self.outcome.time_us = self.now_us - 1_000_000;
        Ok(self.outcome)
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Done {
        for _ in 0..HEALING_STEPS {
            if is_so(self) {
                return Ok(());
            }
            self.step()?;
        }
        Err(Violation::new(format!("it never comes that {what}")))
    }

    /// Somebody makes what everybody writes to.
    fn begin(&mut self) -> Done {
        self.poll_all()?;
        self.until("one server leads everything", Self::is_led)?;
        loop {
            if self.clients[0].at.is_none() {
                self.bring(0, 1, 0)?;
            }
            self.until("a client is served", |world| {
                world.clients[0].is_live || world.clients[0].at.is_none()
            })?;
            if !self.clients[0].is_live {
                continue;
            }
            let bytes = self.clients[0].found(&self.map);
            self.say(0, &bytes)?;
            self.until("the first requests are answered", |world| world.clients[0].is_idle())?;
            if self.clients[0].is_live {
                return Ok(());
            }
        }
    }

    fn is_led(&self) -> bool {
        let leads = |server: &Server| {
            server.shards.iter().all(|shard| shard.server().standing().role == Role::Leader)
        };
        self.servers.values().any(leads)
    }

    fn heal(&mut self) -> Done {
        self.slow.clear();
        for (one, other, partition) in std::mem::take(&mut self.cut) {
            self.connect(one, other, partition);
        }
        (1..=SERVERS)
            .filter(|id| !self.servers.contains_key(id))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|id| self.start(id));
        self.poll_all()?;
        self.until("one server leads everything again", Self::is_led)?;
        for at in 0..self.clients.len() {
            for attempt in 0.. {
                if attempt > ATTEMPTS {
                    return Err(Violation::new("it never comes that a client is served for good"));
                }
                if self.clients[at].at.is_none() {
                    self.bring(at, 1 + at as u8 % SERVERS, at as u8 % self.partitions)?;
                }
                self.until("a client is served again", |world| {
                    let client = &world.clients[at];
                    client.at.is_none() || (client.is_live && client.is_idle())
                })?;
                if !self.clients[at].is_live {
                    continue;
                }
                let bytes = self.clients[at].last_words(&self.map);
                let before = self.clients[at].answers;
                self.say(at, &bytes)?;
                self.until("a client's last requests are answered", |world| world.clients[at].is_idle())?;
                if self.clients[at].answers > before {
                    break;
                }
            }
        }
        self.until("all servers have applied the same", |world| {
            world.is_settled() && (0..world.partitions).all(|partition| world.positions(partition).len() == 1)
        })
    }

    /// Whether everything that is committed is applied.
    fn is_settled(&self) -> bool {
        let shards = self.servers.values().flat_map(|server| &server.shards);
        shards
            .map(|shard| shard.server().standing())
            .all(|standing| standing.applied == standing.last && standing.applied == standing.committed)
    }

    /// How far the servers have come on a timeline.
    fn positions(&self, partition: u8) -> BTreeSet<u64> {
        self.servers.values().map(|server| server.shards[usize::from(partition)].server().applied()).collect()
    }

    fn tree(&self, id: u8, partition: u8) -> &Tree {
        self.servers[&id].shards[usize::from(partition)].server().tree()
    }

    /// All servers must have come to the same, and that must be whole.
    fn compare(&self) -> Done {
        for partition in 0..self.partitions {
            let digests: BTreeSet<_> = (1..=SERVERS).map(|id| self.tree(id, partition).digest()).collect();
            let recomputed = (1..=SERVERS)
                .all(|id| self.tree(id, partition).digest() == self.tree(id, partition).recomputed_digest());
            if digests.len() > 1 || !recomputed {
                return Err(Violation::new(format!("the servers differ in partition {partition}")));
            }
        }
        let placement = Placement::new(self.partitions);
        let root =
            self.tree(1, 0).get("/").map(|root| root.children().map(|name| format!("/{name}")).collect());
        let listed: BTreeSet<String> = root.unwrap_or_default();
        for path in &listed {
            if self.tree(1, placement.of(path)).get(path).is_none() {
                return Err(Violation::new(format!("the root has a child {path} that is nowhere")));
            }
        }
        let sessions: BTreeSet<_> = self.tree(1, 0).sessions().map(|session| session.id).collect();
        for partition in 0..self.partitions {
            let tree = self.tree(1, partition);
            for session in tree.sessions() {
                for path in tree.ephemerals_of(session.id) {
                    if !sessions.contains(&session.id) {
                        return Err(Violation::new(format!("{path} has outlived session {:#x}", session.id)));
                    }
                    if path.rfind('/') == Some(0) && !listed.contains(&path) {
                        return Err(Violation::new(format!("{path} is not known to the root")));
                    }
                }
            }
        }
        let version = |index: usize| {
            let path = self.map.path(index);
            self.tree(1, placement.of(&path)).get(&path).map_or(-1, |znode| znode.stat().version)
        };
        let group: BTreeSet<_> = self.map.group().map(version).collect();
        if group.len() != 1 {
            return Err(Violation::new(format!("what was only written together has the versions {group:?}")));
        }
        for client in &self.clients {
            for (index, acknowledged) in &client.acknowledged {
                if version(*index) < *acknowledged {
                    let path = self.map.path(*index);
                    return Err(Violation::new(format!(
                        "version {acknowledged} of {path} was acknowledged and is lost"
                    )));
                }
            }
        }
        Ok(())
    }
}
