//! The machines: clocks, disks, and the servers that start, work and end on them.

use stoa_core::{Config, Limits, Shard, digest_id};
use stoa_group::Store;
use stoa_storage::faulty::FaultyDisk;
use stoa_storage::{DiskErrorKind, Options, StorageError};

use super::server::{Chunks, Server};
use super::world::{Done, World};
use crate::check::Violation;
use crate::clock::Clock;
use crate::disk_thread::{LogDone, LogThread, SnapshotDone, Stopped, read_snapshot, take_over};
use crate::ensemble::acquaintance::KnownDisks;
use crate::ensemble::roster::Roster;
use crate::ensemble::settings::SUPER;
use crate::recover::{OpenedAll, recover_all};
use crate::rng::Rng;

/// A machine.
pub(super) struct Machine {
    pub(super) clock: Clock,
    pub(super) disk: FaultyDisk,
    pub(super) process: Option<Server>,
    pub(super) is_full: bool,
    /// The name of its disk, and the names of those of the others, as it has met them.
    pub(super) disk_id: u64,
    pub(super) known: KnownDisks,
    /// Where in the log its newest snapshot stands, and its number.
    offered: Option<(u64, u64)>,
    /// With an empty disk it begins with nothing, and is given everything by the others.
    pub(super) joins: bool,
    /// Its settings name all servers there are.
    pub(super) names_all: bool,
    /// Since when its server has had no part in the ensemble.
    pub(super) out_since_us: Option<u64>,
}

impl Machine {
    pub(super) fn new(rng: &mut Rng, joins: bool) -> Self {
        Self {
            clock: Clock::new(rng),
            disk: FaultyDisk::new(rng.next_u64()),
            process: None,
            is_full: false,
            disk_id: rng.next_u64(),
            known: KnownDisks::new(),
            offered: None,
            joins,
            names_all: joins,
            out_since_us: None,
        }
    }

    /// Another disk, with nothing on it.
    pub(super) fn empty(&mut self, rng: &mut Rng) {
        self.disk = FaultyDisk::new(rng.next_u64());
        self.disk_id = rng.next_u64();
        self.is_full = false;
        self.known.clear();
    }

    pub(super) fn has_room(&mut self) {
        self.is_full = false;
        self.disk.set_capacity(u64::MAX);
    }

    pub(super) fn snapshot_at(&mut self, position: u64) -> Option<Chunks> {
        let (_, sequence) = self.offered.filter(|(at, _)| *at == position)?;
        read_snapshot(&mut self.disk, sequence).map(Chunks::new)
    }
}

impl World<'_> {
    fn settings_of(&self, id: u8) -> String {
        let settings = &self.settings;
        let named = if self.machines[&id].names_all { settings.servers() } else { settings.founders };
        if settings.servers() == 1 { String::new() } else { Roster::of_participants(1..=named).text() }
    }

    fn config(&self, id: u8) -> Config {
        Config {
            server_id: id,
            partitions: self.partitions,
            tick_ms: 100,
            session_timeout_min_ms: 400,
            heartbeat_ms: 20,
            snapshot_updates: self.settings.snapshot_updates,
            kept_bytes: self.settings.kept_bytes,
            servers: self.settings_of(id),
            reconfig_enabled: true,
            super_digest: Some(digest_id(SUPER)),
            limits: Limits { handshake_ms: 2000, connections_per_address: 0, ..Limits::default() },
            ..Config::default()
        }
    }

    /// A server starts with what its disk holds.
    pub(super) fn start(&mut self, id: u8) -> Done {
        let config = self.config(id);
        let (seed, now_us, partitions) = (self.rng.next_u64(), self.now_us, self.partitions);
        let founders = u64::from(self.settings.founders);
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.process.is_none()) else {
            return Ok(());
        };
        let now = machine.clock.now(now_us);
        let options = Options {
            segment_bytes: 16 << 10,
            block_bytes: 512,
            snapshots_kept: 2,
            now_ms: now.wall_ms,
            ..Options::default()
        };
        let voters: Vec<u64> = if machine.joins { Vec::new() } else { (1..=founders).collect() };
        let opened = recover_all(&mut machine.disk, &options, &<_>::default(), (id, partitions), &voters);
        let OpenedAll { log, partitions, snapshot, .. } = match opened {
            Ok(opened) => opened,
            // It is tried again.
            Err(_) if machine.disk.is_powerless() => {
                machine.disk.crash();
                return Ok(());
            }
            Err(StorageError::Disk(error)) if machine.is_full || error.kind == DiskErrorKind::Other => {
                return Ok(());
            }
            Err(error) => {
                let what = format!("the folder of server {id} is whole, and was refused: {error}");
                return Err(Violation::new(what));
            }
        };
        machine.disk.clear_fault();
        let mut shards = Vec::new();
        let mark = partitions.first().and_then(|first| first.snapshot.as_ref());
        machine.offered = mark.map(|mark| mark.position).zip(snapshot);
        for (partition, recovered) in (0..).zip(partitions) {
            let mut rng = Rng::new(seed ^ u64::from(partition) << 56);
            let secret = std::array::from_fn(|_| rng.next_u64() as u8);
            let config = Config { partition, ..config.clone() };
            let cannot = || Violation::new(format!("server {id} cannot go on with what its disk holds"));
            let mut shard = Shard::new(config, recovered, secret, now).ok_or_else(cannot)?;
            (self.plant)(&mut shard);
            shards.push(shard);
        }
        machine.process = Some(Server::new(shards, LogThread::new(log), &config.servers));
        self.tend_links()
    }

    /// A server ends; when the power goes too, so does what was not synced.
    pub(super) fn kill(&mut self, id: u8, power: bool) -> Done {
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        if machine.process.take().is_none() {
            return Ok(());
        }
        machine.disk.clear_fault();
        if power {
            machine.disk.crash();
        }
        self.outcome.kills += 1;
        for client in &mut self.clients {
            if client.at.is_some_and(|(server, ..)| server == id) {
                client.lost();
            }
        }
        self.guests.lose(|(server, ..)| server == id);
        self.tend_links()
    }

    fn stopped(&mut self, id: u8, why: &Stopped) -> Done {
        let power = *why == Stopped::PowerLoss || self.rng.one_in(2);
        self.kill(id, power)
    }

    /// The log's thread does what it has to.
    pub(super) fn work_log(&mut self, id: u8) -> Done {
        let now = self.now(id);
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        let Some(process) = &mut machine.process else { return Ok(()) };
        match process.log.work(&mut machine.disk) {
            Ok(LogDone::Durable(position)) => {
                process.shard(0).appended(position, now);
                self.poll(id, 0)
            }
            Ok(LogDone::Refused(generation)) => {
                self.outcome.refusals += 1;
                self.refused(id, generation)
            }
            Ok(LogDone::Nothing) => Ok(()),
            Err(why) => self.stopped(id, &why),
        }
    }

    /// The log has no room for what it was given.
    fn refused(&mut self, id: u8, generation: u64) -> Done {
        let now = self.now(id);
        let Some(process) = self.machines.get_mut(&id).and_then(|machine| machine.process.as_mut()) else {
            return Ok(());
        };
        process.held.retain(|append| append.generation > generation);
        if process.shard(0).append_refused(generation, now) { self.poll(id, 0) } else { self.kill(id, false) }
    }

    /// The snapshots' thread does what comes next.
    pub(super) fn work_snapshots(&mut self, id: u8) -> Done {
        let now = self.now(id);
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        let Some(process) = &mut machine.process else { return Ok(()) };
        let done = match process.snapshots.work(&mut machine.disk, now.wall_ms) {
            Ok(done) => done,
            Err(why) => return self.stopped(id, &why),
        };
        match done {
            SnapshotDone::Begun => return Ok(()),
            SnapshotDone::Taken(partition) => process.shard(partition).snapshot_taken(),
            SnapshotDone::Finished { number, sequence, only } => {
                let position = process.writing.take_if(|(writing, _)| *writing == number).map(|(_, at)| at);
                if sequence.is_some() {
                    machine.offered = position.zip(sequence);
                }
                for partition in (0..self.partitions).filter(|of| only.is_none_or(|only| only == *of)) {
                    process.shard(partition).snapshot_finished(number, sequence.is_some());
                }
            }
        }
        if done.is_durable()
            && let Err(Stopped::PowerLoss) = process.log.purge(&mut machine.disk)
        {
            return self.kill(id, true);
        }
        (0..self.partitions).try_for_each(|partition| self.poll(id, partition))
    }

    /// A snapshot that has arrived becomes one of the server's own, and then what waits for that goes to the
    /// log.
    pub(super) fn work_take_over(&mut self, id: u8) -> Done {
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        let Some(process) = &mut machine.process else { return Ok(()) };
        let disk = &mut machine.disk;
        let Some(append) = process.held.front().cloned() else { return Ok(()) };
        let (Some(taken), Some(chunks)) = (&append.snapshot, &process.arrived) else {
            return Err(Violation::new(format!("server {id} takes over a snapshot that has not come")));
        };
        let rest = chunks.get(1..).unwrap_or_default();
        match take_over(disk, append.timeline, taken, rest, 0) {
            Ok(sequence) => {
                let store = Store::decode(append.payload.clone().join());
                let mark = store.ok().and_then(|store| store.snapshot);
                machine.offered = mark.map(|mark| (mark.position, sequence));
                process.arrived = None;
                let mut waiting = std::mem::take(&mut process.held);
                process.log.push(waiting.pop_front().unwrap_or(append));
                waiting.into_iter().for_each(|append| process.hold_or_log(append));
                self.outcome.taken_over += 1;
                Ok(())
            }
            Err(_) if disk.is_powerless() => self.kill(id, true),
            Err(_) if machine.is_full => self.refused(id, append.generation),
            Err(_) => self.kill(id, false),
        }
    }
}
