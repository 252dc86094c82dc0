//! The world: time, the machine and its disk, the network, the clients. One seed decides everything.

mod finale;
mod restart;
mod trouble;

use crate::check::{Checker, Counts, Violation};
use crate::client::{Act, Client};
use crate::disk_thread::{LogDone, SnapshotDone, Stopped};
use crate::model::ConnectionKey;
use crate::process::{Completion, Process, Scene};
use crate::profile::Profile;
use crate::rng::Rng;
use crate::trace::Trace;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use stoa_core::{Now, Shard};
use stoa_storage::faulty::FaultyDisk;
use trouble::Trouble;

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Something must never happen, and happened.
    Correctness(Violation),
    /// Something must happen in the end, and did not.
    Liveness(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Correctness(violation) => write!(f, "correctness: {violation}"),
            Self::Liveness(what) => write!(f, "liveness: {what}"),
        }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::Correctness(violation)
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Equal runs have equal fingerprints.
    pub fingerprint: u64,
    /// How much was compared.
    pub counts: Counts,
    /// Times that the server was started.
    pub starts: u64,
    /// Damaged copies of the folder that were opened.
    pub damaged: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Snapshots that became durable.
    pub snapshots: u64,
    /// Times that the log had no room.
    pub refusals: u64,
    /// Simulated time, microseconds.
    pub lasted_us: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client may do something.
    Wake(usize),
    /// A connection arrives at the server.
    Arrive(ConnectionKey, usize),
    /// Bytes of a client arrive at the server.
    ToServer(ConnectionKey, Vec<u8>),
    /// The end of a connection arrives at the server.
    HangUp(ConnectionKey),
    /// Bytes of the server arrive at a client.
    ToClient(ConnectionKey, Vec<u8>),
    /// The end of a connection arrives at a client.
    ServerGone(ConnectionKey),
    /// The server's driver has a turn.
    Turn,
    /// The log's thread is done, in this life of the server.
    LogDone(u64),
    /// The snapshot's thread is done, in this life of the server.
    SnapshotDone(u64),
    /// The machine starts again.
    Restart,
    /// Something goes wrong.
    Trouble(Trouble),
    /// The disk has room again.
    Room,
}

/// Where a connection's two directions stand: bytes never overtake one another.
#[derive(Debug, Default)]
struct Cable {
    client: usize,
    to_server_us: u64,
    to_client_us: u64,
}

/// More events than any run has.
const EVENTS_MAX: u64 = 5_000_000;
const EPOCH_MS: i64 = 1_700_000_000_000;

/// One run.
pub struct World {
    profile: Profile,
    rng: Rng,
    trace: Trace,
    now_us: u64,
    wall_offset_ms: i64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_event: u64,
    disk: FaultyDisk,
    process: Option<Process>,
    /// Counts the server's lives.
    starts: u64,
    pending_log: Option<LogDone>,
    pending_snapshot: Option<SnapshotDone>,
    turn_at: Option<u64>,
    paused_until_us: u64,
    slow_until_us: u64,
    slow_factor: u64,
    disk_is_full: bool,
    last_batch: Option<(String, u64)>,
    /// Up to here the disk has said that the log is durable, whether the server has heard of it or not.
    synced: u64,
    checker: Checker,
    clients: Vec<Client>,
    cables: BTreeMap<ConnectionKey, Cable>,
    current: Vec<Option<ConnectionKey>>,
    next_key: ConnectionKey,
    healing: bool,
    damaged: u64,
    refused: u64,
    snapshots: u64,
    refusals: u64,
    plant: Plant,
    lying_disk: bool,
}

/// Plants a bug in each server that is started.
pub type Plant = fn(&mut Shard);

impl World {
    /// A world before its first moment.
    #[must_use]
    pub fn new(seed: u64, profile: Profile, printing: bool) -> Self {
        let mut rng = Rng::new(seed);
        let clients: Vec<Client> = (0..profile.manners.clients)
            .map(|index| {
                let address = std::net::SocketAddr::from(([10, 0, 0, index as u8 + 1], 4000));
                Client::new(address, rng.fork(), profile.manners)
            })
            .collect();
        Self {
            disk: FaultyDisk::new(rng.next_u64()),
            checker: Checker::new(profile.config.clone(), profile.enforce_quota),
            current: vec![None; clients.len()],
            clients,
            profile,
            rng,
            trace: Trace::new(printing),
            now_us: 1_000_000,
            wall_offset_ms: 0,
            events: BinaryHeap::new(),
            next_event: 0,
            process: None,
            starts: 0,
            pending_log: None,
            pending_snapshot: None,
            turn_at: None,
            paused_until_us: 0,
            slow_until_us: 0,
            slow_factor: 1,
            disk_is_full: false,
            last_batch: None,
            synced: 0,
            cables: BTreeMap::new(),
            next_key: 1,
            healing: false,
            damaged: 0,
            refused: 0,
            snapshots: 0,
            refusals: 0,
            plant: |_| {},
            lying_disk: false,
        }
    }

    /// Plants a bug in each server that is started from now on: the alarm is tested too.
    pub fn plant(&mut self, plant: Plant) {
        self.plant = plant;
    }

    /// From now on the disk loses what it has said to be durable: the last batch, whenever the power goes.
    /// Also a test of the alarm.
    pub fn let_disk_lie(&mut self) {
        self.lying_disk = true;
    }

    /// Lives through everything.
    ///
    /// # Errors
    /// The first thing that went wrong for good.
    pub fn run(mut self) -> Result<Outcome, Failure> {
        self.schedule(0, Event::Restart);
        for client in 0..self.clients.len() {
            let after = self.rng.below(5000);
            self.schedule(after, Event::Wake(client));
        }
        self.schedule_all_trouble();
        let requests = |world: &Self| world.clients.iter().map(|client| client.requests).sum::<u64>();
        while requests(&self) < self.profile.requests {
            self.step()?;
        }
        self.heal()?;
        self.end()
    }

    fn step(&mut self) -> Result<(), Failure> {
        let Some(Reverse((at, _, event))) = self.events.pop() else {
            return Err(Failure::Liveness("nothing is going to happen any more".into()));
        };
        if self.next_event > EVENTS_MAX {
            return Err(Failure::Liveness(format!("the end is not reached after {EVENTS_MAX} events")));
        }
        self.now_us = self.now_us.max(at);
        self.handle(event)
    }

    fn now(&self) -> Now {
        let wall_ms = EPOCH_MS + (self.now_us / 1000) as i64 + self.wall_offset_ms;
        Now { mono_us: self.now_us, wall_ms }
    }

    fn schedule(&mut self, after_us: u64, event: Event) {
        self.schedule_at(self.now_us + after_us, event);
    }

    fn schedule_at(&mut self, at_us: u64, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((at_us, self.next_event, event)));
    }

    fn schedule_turn(&mut self, at_us: u64) {
        let at_us = at_us.max(self.paused_until_us).max(self.now_us);
        if self.process.is_some() && self.turn_at.is_none_or(|turn| at_us < turn) {
            self.turn_at = Some(at_us);
            self.schedule_at(at_us, Event::Turn);
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Wake(client) => self.wake(client),
            Event::Arrive(key, client) => self.arrive(key, client)?,
            Event::ToServer(key, bytes) => {
                if let Some(process) = &mut self.process
                    && process.arrive(key, &bytes)
                {
                    let after = self.rng.below(200);
                    self.schedule_turn(self.now_us + after);
                }
            }
            Event::HangUp(key) => {
                if let Some(process) = &mut self.process {
                    process.hang_up(key);
                    self.schedule_turn(self.now_us);
                }
            }
            Event::ToClient(key, bytes) => self.deliver(key, &bytes)?,
            Event::ServerGone(key) => self.server_gone(key),
            Event::Turn => {
                if self.turn_at == Some(self.now_us) {
                    self.turn_at = None;
                    self.turn()?;
                }
            }
            Event::LogDone(start) => {
                if start == self.starts
                    && let (Some(process), Some(done)) = (&mut self.process, self.pending_log.take())
                {
                    process.complete(Completion::Log(done));
                    self.schedule_turn(self.now_us);
                }
            }
            Event::SnapshotDone(start) => {
                if start == self.starts
                    && let (Some(process), Some(done)) = (&mut self.process, self.pending_snapshot.take())
                {
                    process.complete(Completion::Snapshot(done));
                    self.schedule_turn(self.now_us);
                }
            }
            Event::Restart => self.restart()?,
            Event::Trouble(trouble) => self.trouble(trouble),
            Event::Room => {
                self.disk.set_capacity(u64::MAX);
                self.disk_is_full = false;
                self.trace.event(self.now_us, "disk", format_args!("has room again"));
            }
        }
        Ok(())
    }

    // ---- clients and their connections ----

    fn wake(&mut self, index: usize) {
        if self.clients[index].is_done() {
            return;
        }
        let (acts, pause_us) = self.clients[index].wake(self.now_us);
        for act in acts {
            self.act(index, act);
        }
        self.schedule(pause_us, Event::Wake(index));
    }

    fn act(&mut self, index: usize, act: Act) {
        match act {
            Act::Connect(hello) => {
                let key = self.next_key;
                self.next_key += 1;
                let arrives_us = self.now_us + self.rng.range(50, 400);
                let cable = Cable { client: index, to_server_us: arrives_us, to_client_us: arrives_us };
                self.cables.insert(key, cable);
                self.current[index] = Some(key);
                self.schedule_at(arrives_us, Event::Arrive(key, index));
                self.send(key, &hello);
            }
            Act::Send(bytes) => {
                if let Some(key) = self.current[index] {
                    self.send(key, &bytes);
                }
            }
            Act::Drop => {
                if let Some(key) = self.current[index].take()
                    && let Some(cable) = self.cables.get(&key)
                {
                    self.schedule_at(cable.to_server_us, Event::HangUp(key));
                }
            }
            Act::Stall(for_us) => {
                if let (Some(key), Some(process)) = (self.current[index], &mut self.process) {
                    process.stall(key, self.now_us + for_us);
                    self.schedule_turn(self.now_us + for_us);
                }
            }
        }
    }

    /// Puts bytes on their way to the server, cut at random places.
    fn send(&mut self, key: ConnectionKey, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let cut = if self.rng.one_in(4) { self.rng.index(rest.len()) + 1 } else { rest.len() };
            let (piece, tail) = rest.split_at(cut);
            rest = tail;
            let after = self.rng.around(150);
            let Some(cable) = self.cables.get_mut(&key) else { return };
            cable.to_server_us = cable.to_server_us.max(self.now_us + after);
            let at = cable.to_server_us;
            self.schedule_at(at, Event::ToServer(key, piece.to_vec()));
        }
    }

    fn arrive(&mut self, key: ConnectionKey, client: usize) -> Result<(), Failure> {
        let address = self.clients[client].address;
        let now = self.now();
        let mut scene = Scene { checker: &mut self.checker, trace: &mut self.trace, now };
        let accepted = match &mut self.process {
            Some(process) => process.accept(key, address, &mut scene)?,
            None => false,
        };
        let what = if accepted { "accepted" } else { "refused" };
        self.trace.event(self.now_us, "connect", format_args!("client {client}: connection {key} {what}"));
        if !accepted {
            let after = self.rng.range(100, 5000);
            self.schedule(after, Event::ServerGone(key));
        }
        Ok(())
    }

    fn deliver(&mut self, key: ConnectionKey, bytes: &[u8]) -> Result<(), Failure> {
        let Some(index) = self.cables.get(&key).map(|cable| cable.client) else { return Ok(()) };
        if self.current[index] == Some(key) {
            for act in self.clients[index].receive(bytes)? {
                self.act(index, act);
            }
        }
        Ok(())
    }

    fn server_gone(&mut self, key: ConnectionKey) {
        let Some(cable) = self.cables.remove(&key) else { return };
        if self.current[cable.client] == Some(key) {
            self.current[cable.client] = None;
            self.clients[cable.client].gone();
        }
    }

    // ---- the server ----

    fn turn(&mut self) -> Result<(), Failure> {
        let now = self.now();
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut scene = Scene { checker: &mut self.checker, trace: &mut self.trace, now };
        let out = process.turn(&mut self.rng, &mut scene)?;
        let wake_us = process.server.next_wake_us();
        let ready = process.is_ready();
        for (key, bytes) in out.sent {
            let after = self.rng.around(150);
            if let Some(cable) = self.cables.get_mut(&key) {
                cable.to_client_us = cable.to_client_us.max(self.now_us + after);
                let at = cable.to_client_us;
                self.schedule_at(at, Event::ToClient(key, bytes));
            }
        }
        for key in out.closed {
            let at = self.cables.get(&key).map_or(0, |cable| cable.to_client_us).max(self.now_us);
            self.schedule_at(at, Event::ServerGone(key));
        }
        self.work_log()?;
        self.work_snapshot()?;
        let late = self.rng.below(3000);
        self.schedule_turn(wake_us.max(self.now_us + 1) + late);
        if ready {
            self.schedule_turn(self.now_us + 1);
        }
        Ok(())
    }

    /// The time that a piece of work takes the disk.
    fn disk_takes(&mut self, usual_us: u64) -> u64 {
        let slow = if self.now_us < self.slow_until_us { self.slow_factor } else { 1 };
        self.rng.around(usual_us * slow)
    }

    fn work_log(&mut self) -> Result<(), Failure> {
        let Some(process) = self.process.as_mut().filter(|process| !process.log_busy) else { return Ok(()) };
        if !process.log.has_work() {
            if self.rng.one_in(30) {
                let sealed = process.log.seal(&mut self.disk);
                self.stop_on(sealed);
            }
            return Ok(());
        }
        let worked = process.log.work(&mut self.disk);
        match &worked {
            Ok(LogDone::Refused(_)) => self.refusals += 1,
            Ok(LogDone::Durable(position)) => self.synced = *position,
            _ => {}
        }
        if let Some(done) = self.stop_on(worked) {
            self.pending_log = Some(done);
            if let Some(process) = &mut self.process {
                process.log_busy = true;
            }
            let after = self.disk_takes(400);
            self.schedule(after, Event::LogDone(self.starts));
        }
        Ok(())
    }

    fn work_snapshot(&mut self) -> Result<(), Failure> {
        let wall_ms = self.now().wall_ms;
        let Some(process) = self.process.as_mut().filter(|process| !process.snapshot_busy) else {
            return Ok(());
        };
        if !process.snapshot.has_work() {
            return Ok(());
        }
        let worked = process.snapshot.work(&mut self.disk, wall_ms);
        let Some(done) = self.stop_on(worked) else { return Ok(()) };
        self.pending_snapshot = Some(done);
        if let Some(process) = &mut self.process {
            process.snapshot_busy = true;
        }
        if done.is_durable() {
            self.snapshots += 1;
            self.trace.event(self.now_us, "snapshot", format_args!("is durable"));
            self.purge();
        }
        let after = self.disk_takes(600);
        self.schedule(after, Event::SnapshotDone(self.starts));
        Ok(())
    }

    /// Removes old files. When that fails, the server goes on, unless the power went.
    fn purge(&mut self) {
        let Some(process) = &mut self.process else { return };
        if let Err(Stopped::PowerLoss) = process.log.purge(&mut self.disk) {
            self.crash("power loss while purging", true);
        }
    }

    fn stop_on<T>(&mut self, worked: Result<T, Stopped>) -> Option<T> {
        match worked {
            Ok(done) => Some(done),
            Err(Stopped::PowerLoss) => {
                self.crash("power loss in a call to the disk", true);
                None
            }
            Err(Stopped::Failed(message)) => {
                let power_too = self.rng.one_in(2);
                self.crash(&message, power_too);
                None
            }
        }
    }

    fn lose_last_batch(&mut self) {
        if self.lying_disk
            && let Some((file, end)) = &self.last_batch
            && let Some(mut bytes) = self.disk.take(file)
        {
            bytes.truncate(*end as usize);
            self.disk.put(file, &bytes);
        }
    }

    /// The process ends at once; when the power goes too, so does what was not synced.
    fn crash(&mut self, why: &str, power: bool) {
        let Some(process) = self.process.take() else { return };
        self.trace.event(
            self.now_us,
            "crash",
            format_args!("{why}{}", if power { ", power lost" } else { "" }),
        );
        if let Some(last) = process.log.last_batch() {
            self.last_batch = Some(last.clone());
        }
        self.checker.crashed();
        self.turn_at = None;
        self.pending_log = None;
        self.pending_snapshot = None;
        self.disk.clear_fault();
        if power {
            self.disk.crash();
            self.lose_last_batch();
        }
        let keys: Vec<ConnectionKey> = self.cables.keys().copied().collect();
        for key in keys {
            let after = self.rng.below(2000);
            self.schedule(after, Event::ServerGone(key));
        }
        let after = self.rng.range(500, 60_000);
        self.schedule(after, Event::Restart);
    }
}
