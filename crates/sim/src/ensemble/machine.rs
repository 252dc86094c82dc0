//! The machines: clocks, disks, and the servers that start, work and end on them.

use super::HostId;
use super::loss::Flipped;
use super::process::{Chunks, Input, Process, Release, Thread, entry_at};
use super::roles::KeptRole;
use super::world::{Failure, Happening, World};
use crate::clock::{Clock, EPOCH_MS};
use crate::disk_thread::{LogDone, LogThread, SnapshotDone, Stopped, choose_bit, read_snapshot, take_over};
use crate::recover::{Opened, recover};
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::rc::Rc;
use stoa_check::{Checker, Violation, wrong};
use stoa_core::{
    Append, Config, DiskId, Givers, KnownDisks, Levels, Recovered, ServerPart, Shard, Starts, TakenOver,
};
use stoa_group::{Restored, Store};
use stoa_storage::faulty::{Fault, FaultyDisk};
use stoa_storage::{DiskErrorKind, Options, StorageError};

/// A disk, with everything that its server has on it.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) disk: FaultyDisk,
    /// The disks of the others, as its server has met them.
    pub(super) known: KnownDisks,
    /// Its server's starts.
    pub(super) starts: Starts,
    /// What its server was told to store, durable or not; of what was recovered only the rest counts.
    pub(super) stored: Restored,
    /// Where on the timeline the newest snapshot stands, and its number.
    pub(super) offered: Option<(u64, u64)>,
    /// The last record of which the disk has said that it has it.
    pub(super) synced: u64,
    /// Where the last batch of its log begins.
    pub(super) last_batch: Option<(String, u64)>,
    /// What its server was last.
    pub(super) role: KeptRole,
}

impl Held {
    /// Nothing is expected to be on this disk.
    pub(super) fn new(disk: FaultyDisk) -> Self {
        Self {
            disk,
            known: KnownDisks::default(),
            starts: Starts::default(),
            stored: Restored::default(),
            offered: None,
            synced: 0,
            last_batch: None,
            role: KeptRole::default(),
        }
    }
}

/// A machine.
pub(super) struct Machine {
    pub(super) clock: Clock,
    pub(super) held: Held,
    pub(super) process: Option<Process>,
    /// Counts its server's lives.
    pub(super) life: u64,
    pub(super) paused_until_us: u64,
    pub(super) slow_until_us: u64,
    pub(super) slow_factor: u64,
    /// Until when what one of its threads says to another one is late.
    pub(super) late: BTreeMap<(u8, u8), u64>,
    pub(super) is_full: bool,
    pub(super) pending_log: Option<LogDone>,
    pub(super) pending_snapshot: Option<Input>,
    /// It does not start by itself.
    pub(super) stays_down: bool,
    /// The name of its disk, and what that was before one of its server's starts.
    pub(super) disk_id: DiskId,
    pub(super) copy: Option<Held>,
    /// Its settings name all servers there are.
    pub(super) names_all: bool,
    /// Since when its server has had no part in the ensemble.
    pub(super) out_since_us: Option<u64>,
    /// With an empty disk it begins with nothing, and is given everything by the others.
    pub(super) joins: bool,
    pub(super) flipped: Option<Flipped>,
    /// When it was looked last whether its server is to be something else.
    pub(super) looked_us: u64,
}

impl Machine {
    /// One with an empty disk; `joins` is the setting of this name.
    pub(super) fn new(rng: &mut Rng, joins: bool) -> Self {
        Self {
            clock: Clock::new(rng),
            held: Held::new(FaultyDisk::new(rng.next_u64())),
            process: None,
            life: 0,
            paused_until_us: 0,
            slow_until_us: 0,
            slow_factor: 1,
            late: BTreeMap::new(),
            is_full: false,
            pending_log: None,
            pending_snapshot: None,
            stays_down: false,
            disk_id: draw_disk(rng),
            copy: None,
            names_all: joins,
            out_since_us: None,
            joins,
            flipped: None,
            looked_us: 0,
        }
    }

    /// Nothing is expected of what its disk held.
    pub(super) fn forget_disk(&mut self) {
        self.held.offered = None;
        self.held.synced = 0;
    }

    /// What its disk has said to be durable is not.
    fn lose_last_batch(&mut self) {
        if let Some((file, end)) = &self.held.last_batch
            && let Some(mut bytes) = self.held.disk.take(file)
        {
            bytes.truncate(*end as usize);
            self.held.disk.put(file, &bytes);
        }
    }

    /// Makes the snapshot that has arrived one of this machine's own.
    fn take_over(&mut self, append: &Append, taken: &TakenOver, chunks: &Chunks) -> Result<(), StorageError> {
        // The thread that writes snapshots is idle.
        let rest = chunks.get(1..).unwrap_or_default();
        let sequence = take_over(&mut self.held.disk, append.timeline, taken, rest, EPOCH_MS)?;
        let store = Store::decode(append.payload.clone().join());
        let mark = store.ok().and_then(|store| store.snapshot);
        self.held.offered = mark.map(|mark| (mark.position, sequence));
        Ok(())
    }
}

/// The id of a new disk.
pub(super) fn draw_disk(rng: &mut Rng) -> DiskId {
    u128::from(rng.next_u64()).to_be_bytes()
}

impl World {
    /// The chunks of the newest snapshot of a server, if that is at this position.
    pub(crate) fn snapshot_at(&mut self, id: HostId, position: u64) -> Option<Chunks> {
        let machine = self.machines.get_mut(&id)?;
        let (_, sequence) = machine.held.offered.filter(|(at, _)| *at == position)?;
        read_snapshot(&mut machine.held.disk, sequence).map(Rc::new)
    }

    /// Lets the threads for the disk of a server do what they can.
    pub(super) fn work(&mut self, id: HostId) -> Result<(), Failure> {
        self.work_log(id);
        self.work_snapshot(id);
        self.work_take_over(id)
    }

    /// The time that a piece of work takes a disk.
    fn disk_takes(&mut self, id: HostId, usual_us: u64) -> u64 {
        let machine = &self.machines[&id];
        if let Some(traffic) = &self.network.traffic {
            return traffic.costs.store_us;
        }
        let slow = if self.now_us < machine.slow_until_us { machine.slow_factor } else { 1 };
        self.rng.around(usual_us * slow)
    }

    fn work_log(&mut self, id: HostId) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(process) = machine.process.as_mut().filter(|process| !process.log_busy) else { return };
        if !process.log.has_work() {
            if self.rng.one_in(30) {
                let sealed = process.log.seal(&mut machine.held.disk);
                self.stop_on(id, sealed);
            }
            return;
        }
        let worked = process.log.work(&mut machine.held.disk);
        match &worked {
            Ok(LogDone::Refused(_)) => self.counts.out_of_room += 1,
            Ok(LogDone::Durable(record)) => machine.held.synced = *record,
            _ => {}
        }
        let Some(done) = self.stop_on(id, worked) else { return };
        let after = self.disk_takes(id, 300);
        if let Some(machine) = self.machines.get_mut(&id)
            && let Some(process) = &mut machine.process
        {
            process.log_busy = true;
            machine.pending_log = Some(done);
            let life = machine.life;
            self.schedule(after, Happening::LogDone(id, life));
        }
    }

    fn work_snapshot(&mut self, id: HostId) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let wall_ms = machine.clock.now(self.now_us).wall_ms;
        let Some(process) = machine.process.as_mut().filter(|process| !process.snapshot_busy) else { return };
        if !process.snapshot.has_work() {
            return;
        }
        let worked = process.snapshot.work(&mut machine.held.disk, wall_ms);
        if let Ok(SnapshotDone::Finished { sequence: Some(sequence), .. }) = &worked {
            machine.held.offered = process.writing.map(|(_, position)| (position, *sequence));
        }
        let Some(done) = self.stop_on(id, worked) else { return };
        self.snapshot_works(id, Input::Written(done));
        if done.is_durable() {
            self.counts.snapshots += 1;
            self.purge(id);
        }
    }

    fn snapshot_works(&mut self, id: HostId, done: Input) {
        let after = self.disk_takes(id, 400);
        if let Some(machine) = self.machines.get_mut(&id)
            && let Some(process) = &mut machine.process
        {
            process.snapshot_busy = true;
            machine.pending_snapshot = Some(done);
            let life = machine.life;
            self.schedule(after, Happening::SnapshotDone(id, life));
        }
    }

    /// Takes a snapshot over, once everything before it is done: the log has to have what the
    /// snapshot covers.
    fn work_take_over(&mut self, id: HostId) -> Result<(), Failure> {
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        let Some(process) = &machine.process else { return Ok(()) };
        let is_idle = !process.log_busy
            && !process.log.has_work()
            && !process.snapshot_busy
            && !process.snapshot.has_work()
            && process.writing.is_none();
        let Some(append) = process.held.front().filter(|_| is_idle).cloned() else { return Ok(()) };
        let (Some(taken), Some((from, chunks))) = (&append.snapshot, &process.arrived) else {
            return wrong(format!("server {id} takes over a snapshot that has not come"));
        };
        let (from, chunks) = (*from, Rc::clone(chunks));
        let done = machine.take_over(&append, taken, &chunks);
        self.note("snapshot", format_args!("server {id} takes over one of server {from}: {done:?}"));
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        match done {
            Ok(()) => self.snapshot_works(id, Input::TakenOver),
            Err(_) if machine.held.disk.is_powerless() => {
                self.crash(id, "power loss in a call to the disk", true);
            }
            Err(_) if machine.is_full => {
                self.push(id, 0, Input::Log(LogDone::Refused(append.generation)));
            }
            Err(error) => self.crash(id, &error.to_string(), false),
        }
        Ok(())
    }

    /// Removes old files. When that fails, the server goes on, unless the power went.
    fn purge(&mut self, id: HostId) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(process) = &mut machine.process else { return };
        if let Err(Stopped::PowerLoss) = process.log.purge(&mut machine.held.disk) {
            self.crash(id, "power loss while purging", true);
        }
    }

    fn stop_on<T>(&mut self, id: HostId, worked: Result<T, Stopped>) -> Option<T> {
        match worked {
            Ok(done) => Some(done),
            Err(Stopped::PowerLoss) => {
                self.counts.met.torn += 1;
                self.crash(id, "power loss in a call to the disk", true);
                None
            }
            Err(Stopped::Failed(message)) => {
                let power_too = self.rng.one_in(2);
                self.crash(id, &message, power_too);
                None
            }
        }
    }

    /// A server ends that was told to stop: what it has stored is known to be whole.
    pub(super) fn end(&mut self, id: HostId) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(process) = &mut machine.process else { return };
        let sealed = process.log.seal(&mut machine.held.disk);
        if self.stop_on(id, sealed).is_some() {
            self.crash(id, "it has stopped", false);
        }
    }

    /// A server ends at once; when the power goes too, so does what was not synced.
    pub(super) fn crash(&mut self, id: HostId, why: &str, power: bool) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(process) = machine.process.take() else { return };
        if let Some(last) = process.log.last_batch() {
            machine.held.last_batch = Some(last.clone());
        }
        machine.paused_until_us = 0;
        machine.pending_log = None;
        machine.pending_snapshot = None;
        machine.held.disk.clear_fault();
        if power {
            machine.held.disk.crash();
            if self.disks_lie {
                machine.lose_last_batch();
            }
        }
        self.judges.checker.iter_mut().for_each(Checker::crashed);
        let stays_down = machine.stays_down;
        let lost = if power { ", power lost" } else { "" };
        self.note("crash", format_args!("server {id}: {why}{lost}"));
        self.hang_up_all(id);
        for sender in process.snapshots_under_way() {
            self.tell_sender(sender.into(), id, false);
        }
        // The end of a process is noticed at once, that of a machine when nothing is heard of it.
        let costs = self.network.traffic.as_mut().map(|traffic| {
            traffic.begins(id);
            traffic.costs
        });
        let within_us = if let Some(costs) = costs {
            costs.noticed_us
        } else if power && self.rng.one_in(2) {
            1_500_000
        } else {
            10_000
        };
        let others = self.others(id);
        for other in others {
            (0..self.partitions()).for_each(|of| self.part(id, other, of, within_us));
        }
        self.untie_all(id, within_us);
        if !stays_down {
            let longest_us = match self.judges.checker {
                // Nobody goes on without it.
                Some(_) => 60_000,
                None if self.rng.one_in(4) => 3_000_000,
                None => 400_000,
            };
            let after = self.rng.range(1000, longest_us);
            self.troubled(after);
            self.schedule(after, Happening::Restart(id));
        }
    }

    pub(super) fn options(&self, id: HostId) -> Options {
        let wall_ms = self.machines[&id].clock.now(self.now_us).wall_ms;
        Options {
            segment_bytes: self.settings.segment_bytes,
            block_bytes: 512,
            snapshots_kept: 2,
            // Other sites may have been away for long.
            kept_bytes: if self.settings.config.site.is_some() { 1 << 40 } else { 0 },
            now_ms: wall_ms,
            ..Options::default()
        }
    }

    pub(super) fn tree_options(&self, id: HostId) -> stoa_tree::Options {
        let enforce_quota = self.settings.enforce_quota;
        let levels = self.levels.get(&id).copied().unwrap_or(Levels::OWN);
        stoa_tree::Options { hash_seed: self.now_us, enforce_quota, levels, ..<_>::default() }
    }

    pub(super) fn restart(&mut self, id: HostId) -> Result<(), Failure> {
        let (options, partitions, number) = (self.options(id), self.partitions(), self.number_of(id));
        let tree_options = self.tree_options(id);
        let again_us = self.rng.range(500, 5000);
        // The power may go again while the server starts, above all while it makes its folder.
        let faults = &self.settings.faults;
        let chance = match (&self.judges.checker, self.machines[&id].life) {
            (Some(_), 0) => 2,
            (Some(_), _) => 6,
            (None, _) if faults.power_loss_ms > 0 => 8,
            (None, _) => 0,
        };
        let fault = !self.healing && self.rng.one_in(chance);
        let calls = self.rng.below(8);
        let copied = faults.copies_percent > 0 && self.rng.percent(faults.copies_percent);
        self.keep_copy(id);
        let is_to_start = |it: &&mut Machine| it.process.is_none() && !it.stays_down;
        let Some(machine) = self.machines.get_mut(&id).filter(is_to_start) else {
            return Ok(());
        };
        let copy = copied.then(|| machine.held.disk.clone());
        if fault {
            machine.held.disk.fault_after(calls, Fault::PowerLoss);
        }
        let open = |disk: &mut FaultyDisk| recover(disk, &options, &tree_options, (number, partitions));
        let opened = open(&mut machine.held.disk);
        if machine.held.disk.is_powerless() {
            machine.held.disk.crash();
            self.troubled(again_us);
            self.schedule(again_us, Happening::Restart(id));
            return Ok(());
        }
        // What was armed and has not happened yet would strike a later life.
        machine.held.disk.clear_fault();
        machine.flipped.take_if(|flipped| machine.held.disk.bytes(&flipped.file).is_none());
        let opened = match opened {
            Ok(opened) => opened,
            Err(StorageError::Disk(error)) if machine.is_full || error.kind == DiskErrorKind::Other => {
                self.schedule(100_000, Happening::Restart(id));
                return Ok(());
            }
            Err(error) if machine.flipped.is_some() => {
                self.rot_noticed(id, &error);
                return Ok(());
            }
            Err(error) => {
                return wrong(format!("the folder of server {id} is whole, and was refused: {error}"));
            }
        };
        if let Some(checker) = &mut self.judges.checker {
            checker.recovered(&opened.partitions[0], machine.clock.now(self.now_us))?;
        }
        if let Some(copy) = copy {
            self.open_damaged(id, &copy, opened.partitions[0].record, open)?;
        }
        self.recovered(id, opened)
    }

    /// Opens copies of a folder with a bit flipped: each is refused, or gives the state exactly.
    fn open_damaged(
        &mut self,
        id: HostId,
        whole: &FaultyDisk,
        record: u64,
        open: impl Fn(&mut FaultyDisk) -> Result<Opened, StorageError>,
    ) -> Result<(), Failure> {
        let Some(checker) = &self.judges.checker else { return Ok(()) };
        for _ in 0..3 {
            let mut damaged = whole.clone();
            let last_batch = self.machines[&id].held.last_batch.as_ref();
            let Some((file, bit)) = choose_bit(&mut self.rng, &mut damaged, last_batch) else { break };
            damaged.flip_bit(&file, bit);
            self.counts.copies += 1;
            let Ok(Opened { partitions, .. }) = open(&mut damaged) else {
                self.counts.copies_refused += 1;
                continue;
            };
            let unnoticed = |what: String| {
                Violation::new(format!("with bit {bit} of {file} flipped, recovery led to {what}"))
            };
            if partitions[0].record != record {
                return Err(unnoticed(format!("record {}", partitions[0].record)).into());
            }
            checker.compare_tree(&partitions[0].tree).map_err(|what| unnoticed(what.to_string()))?;
        }
        Ok(())
    }

    /// What a server has found on its disk is what it was told to store, and what was committed.
    pub(super) fn judge_recovered(&mut self, id: HostId, partitions: &[Recovered]) -> Result<(), Failure> {
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        let wrong = |what: String| wrong(format!("server {id} has recovered {what}"));
        let Some(first) = partitions.first() else { return wrong("no partition".into()) };
        let Recovered { restored, record, .. } = first;
        if *record < machine.held.synced {
            return wrong(format!("record {record}, {} was synced", machine.held.synced));
        }
        machine.held.synced = *record;
        let base = &restored.base;
        let is_of_another = restored.history.is_some_and(|history| self.is_foreign(history.id));
        let Some(machine) = self.machines.get_mut(&id).filter(|_| !is_of_another) else { return Ok(()) };
        let is_followed = self.settings.config.site.is_none() && self.judges.checker.is_none();
        let history = &mut self.judges.history;
        if let ([whole], true) = (partitions, is_followed) {
            // What it knew to be committed when it ended nobody may have applied yet: what it rests on now, and behind a
            // change of members also entries, which it applies before anybody looks at it.
            let last = restored.entries.last().map_or(base.position, |last| last.position);
            let known = restored.vote.committed.min(last).max(base.position);
            for position in history.position() + 1..=known {
                let Some(entry) = entry_at(&machine.held.stored, position) else {
                    return wrong(format!("position {position} as committed, which it never had"));
                };
                history.applied(id, entry)?;
            }
            history.compare(id, base.position, &whole.tree)?;
        }
        for entry in &restored.entries {
            history.holds(id, entry)?;
        }
        Ok(())
    }

    fn recovered(&mut self, id: HostId, opened: Opened) -> Result<(), Failure> {
        let Opened { log, partitions, snapshot } = opened;
        self.judge_recovered(id, &partitions)?;
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        let Some(first) = partitions.first() else { return Ok(()) };
        let Recovered { restored, record, .. } = first;
        let base = &restored.base;
        let what = format_args!(
            "server {id}: record {record}, position {}, {} entries, term {}",
            base.position,
            restored.entries.len(),
            restored.vote.term
        );
        self.trace.event(self.now_us, "restart", what);
        machine.held.stored.clone_from(restored);
        machine.held.offered = first.snapshot.as_ref().map(|mark| mark.position).zip(snapshot);
        self.start(id, partitions, log)
    }

    fn start(
        &mut self,
        id: HostId,
        recovered: Vec<Recovered>,
        log: stoa_storage::Log,
    ) -> Result<(), Failure> {
        let (servers, now) = (self.settings_of(id), self.machines[&id].clock.now(self.now_us));
        let (mut threads, mut has_forest, mut gives) = (Vec::new(), false, false);
        for (partition, recovered) in (0..).zip(recovered) {
            let mut secret = [0; 32];
            for chunk in secret.chunks_mut(8) {
                chunk.copy_from_slice(&self.rng.next_u64().to_le_bytes());
            }
            let mut own = Config { server_id: self.number_of(id), partition, ..self.settings.config.clone() };
            if secret[0] & 1 == 0 && self.judges.checker.is_none() {
                // An entry a turn: what is committed waits for what comes in between.
                own.limits.turn_cost = 1;
            }
            let machine = &self.machines[&id];
            // Whose number stands in a list founds nothing.
            let (joins, disk) = (machine.joins || self.list_of_role(id).is_some(), machine.disk_id);
            let start = u64::from(id) + machine.life;
            if self.settings.upgrades && start.is_multiple_of(2) {
                own.relief.forest = None;
            }
            if self.is_reader(id) {
                // Of which site it is its parent says.
                own.site = None;
            }
            // Between that one and this one was one with a forest.
            if self.settings.upgrades && start % 4 != 3 {
                own.relief.givers = Givers::None;
            }
            has_forest = own.relief.forest.is_some();
            gives = own.relief.givers != Givers::None;
            let part = match joins {
                _ if self.is_reader(id) => ServerPart::Reader,
                true => ServerPart::Joins,
                false => ServerPart::Member,
            };
            let config = Config { servers: servers.clone(), part, disk, ..own };
            let Some(core) = Shard::new(config, recovered, secret, now) else {
                return wrong(format!("server {id} cannot go on with what its disk holds"));
            };
            if self.has_timelines() && !self.is_of_another(id) {
                self.judges.timelines.reached(id, partition, core.applied(), core.tree())?;
            }
            threads.push(Thread::new(core, &servers));
        }
        let alone = self.settings.members() == 1 && !self.is_reader(id);
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        let mut process = Process::new(id, alone, threads, LogThread::new(log), now);
        process.is_of_site = self.settings.config.site.is_some();
        process.release = Release { has_forest, gives };
        machine.process = Some(process);
        machine.life += 1;
        machine.held.starts = std::mem::take(&mut machine.held.starts).and(machine.life);
        machine.held.known = KnownDisks::new(machine.held.known.disks().clone());
        machine.late.clear();
        self.counts.starts += 1;
        for of in 0..self.partitions() {
            self.schedule_turn(id, of, self.now_us + 1);
        }
        if self.is_reader(id) {
            self.seek_soon(id, 20_000);
        } else {
            self.meet_all(id);
        }
        Ok(())
    }

    pub(super) fn room(&mut self, id: HostId) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.held.disk.set_capacity(u64::MAX);
            machine.is_full = false;
        }
    }

    /// A server, if it runs.
    pub(super) fn process(&self, id: HostId) -> Option<&Process> {
        self.machines.get(&id)?.process.as_ref()
    }

    pub(super) fn process_mut(&mut self, id: HostId) -> Option<&mut Process> {
        self.machines.get_mut(&id)?.process.as_mut()
    }

    /// All servers but one.
    pub(super) fn others(&self, id: HostId) -> Vec<HostId> {
        self.machines.keys().copied().filter(|other| *other != id).collect()
    }

    /// Those servers that run.
    pub(super) fn running(&self) -> impl Iterator<Item = (HostId, &Process)> {
        self.machines.iter().filter_map(|(id, machine)| Some((*id, machine.process.as_ref()?)))
    }
}
