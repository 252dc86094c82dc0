//! One run: servers, links, clients, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Add;

use stoa_core::{CloseReason, ConnectionId, Now, Placement, Shard};

use super::client::{Client, Known, Map};
use super::guests::Guests;
use super::links::{Link, Queue};
use super::machine::Machine;
use super::server::{Out, Server};
use super::settings::Settings;
use super::trouble::Lost;
use crate::check::Violation;
use crate::ensemble::roster::{CONFIG, Roster};
use crate::rng::Rng;

const CLIENTS: usize = 5;
/// What happens while things go wrong, in steps.
const STEPS: u64 = 12_000;
/// How often a client may have to come back before it has made what everybody writes to.
const FOUNDING_ATTEMPTS: usize = 200;
/// How often something goes wrong: once in so many steps.
const TROUBLE_ONE_IN: u64 = 150;

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
    /// Times that the list of servers was changed.
    pub reconfigs: u64,
    /// Snapshots that were taken over from other servers.
    pub taken_over: u64,
    /// Times that a log had no room.
    pub refusals: u64,
    /// Disks that were replaced by an empty one.
    pub lost: u64,
    /// Subtrees that were moved.
    pub moves: u64,
    /// Calls that programs have carried out.
    pub calls: u64,
}

impl Add for Outcome {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            answers: self.answers + other.answers,
            time_us: self.time_us + other.time_us,
            kills: self.kills + other.kills,
            cuts: self.cuts + other.cuts,
            reconfigs: self.reconfigs + other.reconfigs,
            taken_over: self.taken_over + other.taken_over,
            refusals: self.refusals + other.refusals,
            lost: self.lost + other.lost,
            moves: self.moves + other.moves,
            calls: self.calls + other.calls,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answers, time_us, kills, cuts, reconfigs, taken_over, refusals, lost, moves, calls } =
            self;
        let seconds = time_us / 1_000_000;
        write!(
            f,
            "{answers} answers, {kills} kills, {cuts} cuts, {reconfigs} changes of the list of servers, \
             {taken_over} snapshots taken over, {refusals} times no room, {lost} disks lost, {moves} subtrees \
             moved, {calls} calls of programs, {seconds} s of simulated time"
        )
    }
}

/// Servers with several partitions, and everything around them.
pub struct World<'a> {
    pub(super) settings: Settings,
    pub(super) partitions: u8,
    pub(super) rng: Rng,
    pub(super) map: Map,
    pub(super) now_us: u64,
    pub(super) machines: BTreeMap<u8, Machine>,
    pub(super) links: BTreeMap<Link, Queue>,
    /// Links that cannot be, by the smaller and the larger server.
    pub(super) cut: BTreeSet<Link>,
    pub(super) clients: Vec<Client>,
    pub(super) guests: Guests,
    /// What is moved besides what clients use.
    pub(super) moved: Option<String>,
    pub(super) outcome: Outcome,
    /// Threads that stand still for a while.
    pub(super) slow: BTreeSet<(u8, u8)>,
    /// What one thread of a server says to another one does not arrive for a while.
    pub(super) late: BTreeSet<(u8, (u8, u8))>,
    pub(super) lost: Option<Lost>,
    /// Things go wrong.
    is_troubled: bool,
    /// Clients have said what they had to say.
    pub(super) is_over: bool,
    pub(super) plant: &'a dyn Fn(&mut Shard),
}

pub(super) type Done = Result<(), Violation>;

impl<'a> World<'a> {
    /// A world in which everything follows from the seed. `plant` may spoil each thread.
    #[must_use]
    pub fn new(seed: u64, settings: Settings, partitions: u8, plant: &'a dyn Fn(&mut Shard)) -> Self {
        let mut rng = Rng::new(seed);
        let placement = Placement::new(partitions);
        let names = || (0..).map(|number| format!("/top-{number}"));
        let top = |of| names().find(|name| placement.of(name) == of).unwrap_or_default();
        let tops = (0..partitions).map(top).collect();
        let has_programs = settings.programs;
        let (is_impatient, skips_writes) = (settings.impatient, settings.troubles.full > 0);
        let map = Map { tops, has_programs, is_impatient, skips_writes };
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::new(rng.fork())).collect();
        if settings.spares > 0 {
            clients.push(Client::operator(rng.fork(), settings.servers()));
        }
        let machine = |id| (id, Machine::new(&mut rng, id > settings.founders));
        let machines = (1..=settings.servers()).map(machine).collect();
        Self {
            settings,
            partitions,
            rng,
            map,
            now_us: 1_000_000,
            machines,
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            clients,
            guests: Guests::default(),
            moved: None,
            outcome: Outcome::default(),
            slow: BTreeSet::new(),
            late: BTreeSet::new(),
            lost: None,
            is_troubled: false,
            is_over: false,
            plant,
        }
    }

    /// What the clocks of a machine show.
    pub(super) fn now(&self, id: u8) -> Now {
        self.machines[&id].clock.now(self.now_us)
    }

    pub(super) fn ids(&self) -> Vec<u8> {
        self.machines.keys().copied().collect()
    }

    pub(super) fn process(&mut self, id: u8) -> Option<&mut Server> {
        self.machines.get_mut(&id)?.process.as_mut()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = (u8, &Server)> {
        self.machines.iter().filter_map(|(id, machine)| Some((*id, machine.process.as_ref()?)))
    }

    /// The list of servers, as the server knows it that has come farthest.
    pub(super) fn roster(&self) -> Option<Roster> {
        let first = self.running().map(|(_, server)| &server.shards[0]);
        let data = first.max_by_key(|server| server.applied())?.tree().get(CONFIG)?.data()?;
        Some(Roster::read(std::str::from_utf8(data).ok()?)?.0)
    }

    /// Takes out what a thread has to say, and shows its clients what they are told.
    pub(super) fn poll(&mut self, id: u8, partition: u8) -> Done {
        loop {
            let now = self.now(id);
            let Some(process) = self.machines.get_mut(&id).and_then(|machine| machine.process.as_mut())
            else {
                return Ok(());
            };
            let outs = process.poll(partition, now)?;
            let (mut leaves, mut told) = (None, Vec::new());
            for client in &mut self.clients {
                let Some((server, thread, connection)) = client.at else { continue };
                if (server, thread) != (id, partition) {
                    continue;
                }
                let shard = process.shard(partition);
                let bytes = shard.output(connection).to_vec();
                shard.sent(connection, bytes.len(), now);
                client.receive(&self.map, &bytes)?;
                // Most of all when it has just been told something, and may not know of all that it watches.
                if self.is_troubled && !bytes.is_empty() && client.watches_something() && self.rng.one_in(2) {
                    leaves = client.at;
                }
            }
            for (index, connection) in self.guests.at(id, partition) {
                let shard = process.shard(partition);
                let bytes = shard.output(connection).to_vec();
                shard.sent(connection, bytes.len(), now);
                told.extend((!bytes.is_empty()).then_some((index, bytes)));
            }
            self.tell_guests(told)?;
            if let Some(at) = leaves {
                self.hang_up(at);
            } else if outs.is_empty() {
                return Ok(());
            }
            for out in outs {
                match out {
                    Out::Peer(output) => self.peer_output(id, partition, output),
                    Out::Closed(_, CloseReason::ClientAhead) => {
                        return Err(Violation::new(
                            "a client was sent away who has seen nothing that is lost",
                        ));
                    }
                    Out::Closed(connection, _) => self.hang_up((id, partition, connection)),
                }
            }
        }
    }

    pub(super) fn hang_up(&mut self, at: (u8, u8, ConnectionId)) {
        let now = self.now(at.0);
        if let Some(process) = self.process(at.0) {
            process.shard(at.1).disconnected(at.2, now);
        }
        self.clients.iter_mut().filter(|client| client.at == Some(at)).for_each(Client::lost);
        self.guests.lose(|place| place == at);
    }

    fn poll_all(&mut self) -> Done {
        for id in self.ids() {
            (0..self.partitions).try_for_each(|partition| self.poll(id, partition))?;
        }
        Ok(())
    }

    /// Something happens.
    pub(super) fn step(&mut self) -> Done {
        self.tend_guests()?;
        let words: Vec<_> = self
            .running()
            .flat_map(|(id, server)| server.next_words().map(move |word| (id, word)))
            .filter(|(id, word)| !self.slow.contains(&(*id, word.between.1)))
            .filter(|(id, word)| !self.late.contains(&(*id, word.between)))
            .collect();
        let links: Vec<_> = self
            .links
            .iter()
            .filter(|((_, to, partition), queue)| {
                !queue.is_empty() && !self.slow.contains(&(*to, *partition))
            })
            .map(|(link, _)| *link)
            .collect();
        let ids = |is_so: &dyn Fn(&Server) -> bool| -> Vec<u8> {
            self.running().filter(|(_, server)| is_so(server)).map(|(id, _)| id).collect()
        };
        let logs = ids(&|server| server.log.has_work());
        let snapshots = ids(&|server| server.snapshots.has_work());
        let takes_over = ids(&|server| server.takes_over());
        let some = |list: usize, weight: u32| if list > 0 { weight } else { 0 };
        let weights = [
            some(words.len(), 30),
            some(links.len(), 30),
            some(logs.len(), 12),
            6,
            3,
            some(snapshots.len(), 8),
            some(takes_over.len(), 6),
        ];
        match self.rng.weighted(&weights) {
            0 => {
                let (id, word) = *self.rng.pick(&words);
                for _ in 0..self.rng.range(1, 6) {
                    let now = self.now(id);
                    if let Some(server) = self.process(id) {
                        server.deliver(word, now);
                    }
                    // What follows from a word may have to wait until the thread has heard more.
                    if self.rng.one_in(2) {
                        self.poll(id, word.between.1)?;
                    }
                }
                self.poll(id, word.between.1)
            }
            1 => {
                let link = *self.rng.pick(&links);
                (0..self.rng.range(1, 12)).try_for_each(|_| self.arrive(link))
            }
            2 => {
                let id = *self.rng.pick(&logs);
                self.work_log(id)
            }
            3 => self.pass(),
            4 => self.client_acts(),
            5 => {
                let id = *self.rng.pick(&snapshots);
                self.work_snapshots(id)
            }
            _ => {
                let id = *self.rng.pick(&takes_over);
                self.work_take_over(id)
            }
        }
    }

    fn pass(&mut self) -> Done {
        self.now_us += self.rng.range(200, 4000);
        for id in self.ids() {
            for partition in 0..self.partitions {
                let now = self.now(id);
                let is_time = self.rng.one_in(20);
                let Some(process) = self.process(id) else { continue };
                let shard = process.shard(partition);
                if is_time || shard.next_wake_us() <= now.mono_us {
                    shard.tick(now);
                    self.poll(id, partition)?;
                }
            }
        }
        self.tend_links()
    }

    fn client_acts(&mut self) -> Done {
        if self.is_over {
            return Ok(());
        }
        let at = self.rng.index(self.clients.len());
        let number = self.rng.next_u64();
        let id = 1 + self.rng.index(self.settings.servers().into()) as u8;
        let thread = self.rng.index(self.partitions.into()) as u8;
        let newest = self.newest();
        let client = &mut self.clients[at];
        let Some(place) = client.at else { return self.bring(at, id, thread) };
        if !client.is_live || !client.may_act(&self.map) {
            // Perhaps somebody else serves it.
            if self.rng.one_in(40) {
                self.hang_up(place);
                return self.poll(place.0, place.1);
            }
            return Ok(());
        }
        let bytes = client.act(&self.map, number, &newest);
        self.say(at, &bytes)
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
    pub(super) fn bring(&mut self, at: usize, id: u8, thread: u8) -> Done {
        let now = self.now(id);
        let address: SocketAddr = ([127, 0, 0, 1], 4000).into();
        let Some(server) = self.process(id) else { return Ok(()) };
        let Ok(connection) = server.shard(thread).connect(address, now) else { return Ok(()) };
        let bytes = self.clients[at].connected((id, thread, connection));
        self.say(at, &bytes)
    }

    pub(super) fn say(&mut self, at: usize, bytes: &[u8]) -> Done {
        let Some((id, thread, connection)) = self.clients[at].at else { return Ok(()) };
        let now = self.now(id);
        let bytes = [self.clients[at].watches(&self.map), bytes.to_vec()].concat();
        let bytes = bytes.as_slice();
        if let Some(server) = self.process(id) {
            server.shard(thread).receive(connection, bytes, now);
        }
        self.poll(id, thread)
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// What must not have happened, or has not happened though it must.
    pub fn run(mut self) -> Result<Outcome, Violation> {
        self.begin()?;
        self.be_troubled(STEPS)?;
        self.heal()?;
        self.compare()?;
        Ok(self.come_to())
    }

    /// Things go wrong for so many steps.
    pub(super) fn be_troubled(&mut self, steps: u64) -> Done {
        self.is_troubled = true;
        for _ in 0..steps {
            if self.rng.one_in(TROUBLE_ONE_IN) {
                self.trouble()?;
            }
            if self.rng.one_in(self.settings.moves_one_in) {
                self.move_something()?;
            }
            self.step()?;
        }
        self.is_troubled = false;
        Ok(())
    }

    /// What it has come to.
    pub(super) fn come_to(mut self) -> Outcome {
        self.outcome.answers = self.clients.iter().map(|client| client.answers).sum();
        self.outcome.calls = self.clients.iter().map(Client::calls).sum();
        let placed = self.running().map(|(_, server)| server.shards[0].placement().version());
        self.outcome.moves = placed.max().unwrap_or(0);
        self.outcome.reconfigs = self.clients.iter().map(|client| client.reconfigs).sum();
        self.outcome.time_us = self.now_us - 1_000_000;
        self.outcome
    }

    /// Somebody makes what everybody writes to.
    pub(super) fn begin(&mut self) -> Done {
        self.ids().into_iter().try_for_each(|id| self.start(id))?;
        self.poll_all()?;
        self.until("one server leads everything", Self::is_led)?;
        // One server after the other: the first may be taken out of the list before it is done.
        for id in (1..=self.settings.servers()).cycle().take(FOUNDING_ATTEMPTS) {
            if self.clients[0].at.is_none() {
                self.bring(0, id, 0)?;
            }
            self.until("a client is served", |world| {
                world.clients[0].is_live || world.clients[0].at.is_none()
            })?;
            if !self.clients[0].is_live {
                // Refusals take no time, and a change of the list of servers that is under way takes some.
                self.until("one server leads everything again", Self::is_led)?;
                continue;
            }
            let bytes = self.clients[0].found(&self.map);
            self.say(0, &bytes)?;
            self.until("the first requests are answered", |world| world.clients[0].is_idle())?;
            if self.clients[0].is_live {
                // Whoever writes from now on finds it.
                self.clients.iter_mut().for_each(|client| client.is_founded = true);
                return Ok(());
            }
        }
        Err(Violation::new("nobody can make what everybody writes to"))
    }
}
