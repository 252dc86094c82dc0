//! What goes wrong, and when; and what a test may bring about itself.

use super::links::Way;
use super::process::Input;
use super::roster::{Roster, Wish};
use super::settings::Faults;
use super::world::{Failure, Happening, World};
use super::{HostId, number, of_hosts};
use stoa_storage::DiskErrorKind;
use stoa_storage::faulty::Fault;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// A server ends: its process, or its machine with what was not synced.
    Crash,
    /// The power goes in the middle of a call to a disk, or that fails.
    PowerLoss,
    /// A disk is full for a while.
    DiskFull,
    /// A disk is slow for a while.
    SlowDisk,
    /// A wall clock jumps.
    ClockJump,
    /// A process stands still.
    Pause,
    /// The network falls apart for a while.
    Cut,
    /// A connection between two servers breaks.
    Break,
    /// The way between clients and a server is cut for a while.
    ClientCut,
    /// The leader is told to hand over the lead.
    HandOver,
    /// A server is told to stop.
    Stop,
    /// A server loses its disk, if the others can do without it.
    Empty,
    /// An older copy of its disk is put back at a server, if the others can do without what it has forgotten, and know
    /// of it.
    Rollback,
    /// A bit of what a server has stored flips, if the others can do without that.
    Rot,
    /// One thread of a server stands still.
    Stall,
    /// What one thread of a server says to another one is late.
    LateWords,
    /// A subtree is moved.
    Move,
}

impl Trouble {
    /// How many kinds there are.
    pub(super) const COUNT: usize = 17;

    /// All of it.
    pub fn all() -> impl Iterator<Item = Self> {
        RATES.iter().map(|(trouble, _)| *trouble)
    }
}

/// How often something befalls servers: the mean time between two, milliseconds.
type Rate = fn(&Faults) -> u64;

/// All of it, in its order.
const RATES: [(Trouble, Rate); Trouble::COUNT] = [
    (Trouble::Crash, |it| it.crash_ms),
    (Trouble::PowerLoss, |it| it.power_loss_ms),
    (Trouble::DiskFull, |it| it.disk_full_ms),
    (Trouble::SlowDisk, |it| it.slow_disk_ms),
    (Trouble::ClockJump, |it| it.clock_jump_ms),
    (Trouble::Pause, |it| it.pause_ms),
    (Trouble::Cut, |it| it.cut_ms),
    (Trouble::Break, |it| it.break_ms),
    (Trouble::ClientCut, |it| it.client_cut_ms),
    (Trouble::HandOver, |it| it.hand_over_ms),
    (Trouble::Stop, |it| it.stop_ms),
    (Trouble::Empty, |it| it.empty_ms),
    (Trouble::Rollback, |it| it.rollback_ms),
    (Trouble::Rot, |it| it.rot_ms),
    (Trouble::Stall, |it| it.stall_ms),
    (Trouble::LateWords, |it| it.late_words_ms),
    (Trouble::Move, |it| it.move_ms),
];

/// What follows from trouble goes on for so long after its end, microseconds.
const AFTERMATH_US: u64 = 2_000_000;
/// The longest time for which one thread stands still, and for which what it is told is late, microseconds.
const STALL_US: u64 = 150_000;
const WORDS_LATE_US: u64 = 100_000;
/// In so many microseconds most ensembles are founded.
const BIRTH_US: u64 = 60_000;
/// By then somebody copies a server's folder, for what may come.
const BACKUP_US: u64 = 3_000_000;
/// Once in so many times that a leader's log is told late by one of its threads the leader ends before.
const NEVER_TOLD_ONE_IN: u64 = 4;

impl World {
    pub(super) fn schedule_all_trouble(&mut self) {
        for trouble in Trouble::all() {
            self.schedule_trouble(trouble);
        }
        if self.settings.faults.empty_ms > 0 && self.rng.one_in(2) {
            // While the servers hear of each other, and before they have founded anything.
            let after = self.rng.range(1000, BIRTH_US);
            self.schedule(after, Happening::Trouble(Trouble::Empty));
        }
        if self.settings.recoveries > 0 {
            let after = self.rng.range(0, BACKUP_US);
            self.schedule(after, Happening::Backup);
        }
    }

    fn schedule_trouble(&mut self, trouble: Trouble) {
        let (_, mean_ms) = RATES[trouble as usize];
        let mean_ms = mean_ms(&self.settings.faults);
        if mean_ms != 0 && !self.healing {
            let after = self.rng.range(1, mean_ms * 2000);
            self.schedule(after, Happening::Trouble(trouble));
        }
    }

    /// Nothing can be expected to be in order before so many microseconds have passed.
    pub(super) fn troubled(&mut self, for_us: u64) {
        self.troubled_until_us = self.troubled_until_us.max(self.now_us + for_us + AFTERMATH_US);
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) -> Result<(), Failure> {
        if self.healing {
            return Ok(());
        }
        // The leader has it coming more often than the others.
        let any = self.any_id();
        self.counts.met.count(trouble);
        let id = self.leader().filter(|_| self.rng.one_in(3)).unwrap_or(any);
        self.note("trouble", format_args!("{trouble:?} of server {id}"));
        match trouble {
            Trouble::Crash => {
                let power = !self.rng.one_in(3);
                self.crash(id, "it was time", power);
            }
            Trouble::PowerLoss | Trouble::ClockJump => self.strike(id, trouble),
            Trouble::DiskFull => {
                let (room, for_us) = (self.rng.below(4 << 10), self.rng.range(1000, 1_500_000));
                self.fill_disk(id, room, for_us);
            }
            Trouble::SlowDisk => {
                let for_us = self.rng.range(10_000, 1_000_000);
                let factor = *self.rng.pick(&[20, 60, 200, 3000]);
                self.slow_disk(id, factor, for_us);
            }
            Trouble::Pause => {
                let for_us = self.rng.range(10_000, 3_000_000);
                self.pause(id, for_us);
            }
            Trouble::Cut => self.fall_apart(id),
            Trouble::Break => self.break_a_connection(id),
            Trouble::ClientCut => self.cut_off_clients(id),
            Trouble::HandOver => {
                let to = self.any_id();
                let to = (!self.rng.one_in(3) && !self.is_reader(to)).then_some(to);
                if let Some(leader) = self.leader() {
                    self.hand_over(leader, to);
                }
            }
            Trouble::Stop => self.stop(id),
            Trouble::Empty if self.is_only_reader(id) => self.empty_reader(id),
            // What is lost with a disk could be what another list of servers depends on.
            Trouble::Empty | Trouble::Rollback | Trouble::Rot if self.settings.switches => {}
            Trouble::Empty => self.lose_disk(id),
            // Of what a reader has stored nobody needs anything.
            Trouble::Rollback | Trouble::Rot if self.is_only_reader(id) => {}
            Trouble::Rollback => self.roll_back(id),
            Trouble::Rot => self.rot(id),
            Trouble::Stall => self.stall(id),
            Trouble::LateWords => {
                self.words_are_late(id);
            }
            Trouble::Move => self.move_something(),
        }
        self.schedule_trouble(trouble);
        Ok(())
    }

    /// One between this server and another one ends, or that of a reader with its parent.
    fn break_a_connection(&mut self, id: HostId) {
        let other = self.any_id();
        if self.is_reader(id) || self.is_reader(other) {
            let reader = if self.is_reader(id) { id } else { other };
            if self.rng.one_in(2) {
                self.offer_better(reader);
            } else {
                self.troubled(100_000);
                self.break_tie(reader);
            }
        } else if id != other {
            let of = self.any_partition();
            self.troubled(100_000);
            self.part(id, other, of, 20_000);
        }
    }

    fn any_id(&mut self) -> HostId {
        self.settings.manners.first_id + self.rng.index(self.machines.len()) as HostId
    }

    fn strike(&mut self, id: HostId, trouble: Trouble) {
        let (calls, jump_ms) = (self.rng.below(30), self.rng.range(0, 20_000) as i64 - 10_000);
        let fails = self.rng.one_in(4);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        if trouble == Trouble::ClockJump {
            machine.clock.wall_offset_ms += match jump_ms.rem_euclid(10) {
                // A clock that was never set, and one that is off by a century.
                0 => jump_ms.abs() - machine.clock.now(self.now_us).wall_ms,
                1 => 100 * 365 * 86_400_000,
                _ => jump_ms,
            };
            return;
        }
        let fault = if fails { Fault::Fail(DiskErrorKind::Other) } else { Fault::PowerLoss };
        machine.held.disk.fault_after(calls, fault);
    }

    /// What one thread of a server says to another one is late for a while. A leader may end before its log was told of
    /// what others of its threads know already to be under way.
    fn words_are_late(&mut self, id: HostId) {
        let to_log = self.rng.one_in(3);
        let between = (self.any_partition(), if to_log { 0 } else { self.any_partition() });
        let until_us = self.now_us + self.rng.range(1000, WORDS_LATE_US);
        let leads = self.leader() == Some(id);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.late.insert(between, until_us);
        let life = machine.life;
        if leads && between.0 != 0 && between.1 == 0 && self.rng.one_in(NEVER_TOLD_ONE_IN) {
            self.schedule_at(until_us, Happening::End(id, life));
        }
    }

    /// One thread stands still for a while; the others of its server go on.
    fn stall(&mut self, id: HostId) {
        let of = self.any_partition();
        let until_us = self.now_us + self.rng.range(1000, STALL_US);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(process) = &mut machine.process else { return };
        let thread = &mut process.threads[usize::from(of)];
        (thread.paused_until_us, thread.turn_at) = (until_us, None);
        self.schedule_turn(id, of, until_us);
    }

    /// A subtree is to live somewhere else, whoever leads.
    fn move_something(&mut self) {
        if self.movable.is_empty() {
            return;
        }
        let path = self.rng.pick(&self.movable).clone();
        let to = self.any_partition();
        for id in self.ids() {
            self.push(id, 0, Input::Move(path.clone(), to));
        }
    }

    /// The network falls apart for a while; of servers with several partitions sometimes only for one of them.
    fn fall_apart(&mut self, id: HostId) {
        if self.partitions() > 1 && self.rng.one_in(2) {
            return self.cut_one(id);
        }
        let for_us = self.rng.range(50_000, 3_000_000);
        let others = self.others(id);
        match self.rng.below(4) {
            0 => self.isolate(id),
            // One way only: it is heard, and hears nothing; or the other way round.
            1 => others.iter().for_each(|other| self.cut_ways(*other, id)),
            2 => others.iter().for_each(|other| self.cut_ways(id, *other)),
            _ => {
                let (here, there): (Vec<HostId>, Vec<HostId>) =
                    self.machines.keys().copied().partition(|_| self.rng.one_in(2));
                for (a, b) in here.iter().flat_map(|a| there.iter().map(move |b| (*a, *b))) {
                    self.cut_ways(a, b);
                    self.cut_ways(b, a);
                }
            }
        }
        self.falls += 1;
        self.troubled(for_us);
        self.schedule(for_us, Happening::Mend(self.falls));
        if self.rng.one_in(2) {
            // Somebody notices that nothing is heard any more.
            for other in others {
                let after = self.rng.range(1000, 1_000_000);
                (0..self.partitions()).for_each(|of| self.schedule(after, Happening::Break(id, other, of)));
            }
        }
    }

    /// Nothing that one server sends arrives at the other, whatever partition it is of.
    fn cut_ways(&mut self, from: HostId, to: HostId) {
        (0..self.partitions()).for_each(|of| self.network.cut(from, to, of));
    }

    /// Two servers do not hear of each other in one partition, for a while.
    fn cut_one(&mut self, id: HostId) {
        let (other, of, for_us) = (self.any_id(), self.any_partition(), self.rng.range(10_000, 1_000_000));
        if id == other {
            return;
        }
        self.network.cut(id, other, of);
        self.network.cut(other, id, of);
        self.falls += 1;
        self.troubled(for_us);
        self.schedule(for_us, Happening::Mend(self.falls));
        let after = self.rng.range(1000, 200_000);
        self.schedule(after, Happening::Break(id, other, of));
    }

    /// Nothing passes between a server and one client, or all, for a while: no way, or one way only.
    fn cut_off_clients(&mut self, id: HostId) {
        let for_us = self.rng.range(50_000, 5_000_000);
        self.troubled(for_us);
        let all = 0..self.clients.len();
        let one = self.rng.index(self.clients.len());
        let clients = if self.rng.one_in(4) { all } else { one..one + 1 };
        let ways = *self.rng.pick(&[&[Way::ToServer, Way::ToClient][..], &[Way::ToServer], &[Way::ToClient]]);
        for (client, way) in clients.flat_map(|client| ways.iter().map(move |way| (client, *way))) {
            self.links.cut(client, id, way, self.now_us + for_us);
        }
    }

    // ---- what a test may bring about ----

    /// Who leads the newest term.
    #[must_use]
    pub fn leader(&self) -> Option<HostId> {
        self.judges.history.leader()
    }

    /// A server's process ends, and does not start again.
    pub fn kill(&mut self, id: HostId) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.stays_down = true;
        }
        self.crash(id, "it is killed", false);
    }

    /// The roots of the trees that a running server knows of.
    #[must_use]
    pub fn roots(&self, id: HostId) -> Vec<HostId> {
        self.process(id).map_or_else(Vec::new, |process| of_hosts(&process.first().roots()))
    }

    /// The time, microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// How many terms had a leader.
    #[must_use]
    pub fn terms(&self) -> u64 {
        self.judges.history.terms()
    }

    /// Bytes of all that is committed.
    #[must_use]
    pub fn committed_bytes(&self) -> u64 {
        self.judges.history.bytes()
    }

    /// The last committed position.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.judges.history.position()
    }

    /// How far a running server has applied the timeline.
    #[must_use]
    pub fn applied(&self, id: HostId) -> Option<u64> {
        Some(self.process(id)?.first().applied())
    }

    /// Snapshots that were taken over from other servers so far.
    #[must_use]
    pub fn taken_over(&self) -> u64 {
        self.counts.taken_over
    }

    /// A server ends, with its machine if `power` is lost, and does not start before [`World::rise`].
    pub fn fell(&mut self, id: HostId, power: bool) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.stays_down = true;
        }
        self.troubled(0);
        self.crash(id, "it was told to", power);
    }

    /// The leader hands over the lead: to this one, or to whom it chooses.
    pub fn hand_over(&mut self, leader: HostId, to: Option<HostId>) {
        self.push(leader, 0, Input::HandOver(to.map(number)));
    }

    /// A server is told to stop: it finishes what it has begun, and hands over the lead if it has it.
    pub fn stop(&mut self, id: HostId) {
        (0..self.partitions()).for_each(|of| _ = self.push(id, of, Input::Stop));
    }

    /// Somebody asks a server for another list of servers, these and no others, all of them voters.
    pub fn reconfigure(&mut self, through: HostId, voters: &[HostId]) {
        let wish = Wish::all(Roster::of_participants(voters.iter().copied()));
        self.enter_operator(through, wish);
    }

    /// Those who vote, as far as a running server knows.
    #[must_use]
    pub fn voters(&self, id: HostId) -> Option<Vec<HostId>> {
        Some(of_hosts(&self.process(id)?.first().status().voters))
    }

    /// A server that was felled starts.
    pub fn rise(&mut self, id: HostId) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.stays_down = false;
        }
        self.schedule(1, Happening::Restart(id));
    }

    /// The machine of a server loses power at one of the next calls to its disk.
    pub fn lose_power_after(&mut self, id: HostId, calls: u64) {
        self.troubled(1_000_000);
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.held.disk.fault_after(calls, Fault::PowerLoss);
        }
    }

    /// A process stands still for so many microseconds.
    pub fn pause(&mut self, id: HostId, for_us: u64) {
        self.troubled(for_us);
        let until_us = self.now_us + for_us;
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.paused_until_us = until_us;
            let threads = machine.process.iter_mut().flat_map(|process| &mut process.threads);
            threads.for_each(|thread| thread.turn_at = None);
        }
        (0..self.partitions()).for_each(|of| self.schedule_turn(id, of, until_us));
    }

    /// A disk has only so many bytes more, for so many microseconds.
    pub fn fill_disk(&mut self, id: HostId, room: u64, for_us: u64) {
        self.troubled(for_us);
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.held.disk.set_capacity(machine.held.disk.used() + room);
            machine.is_full = true;
        }
        self.schedule(for_us, Happening::Room(id));
    }

    /// A disk takes `factor` times as long for everything, for so many microseconds.
    pub fn slow_disk(&mut self, id: HostId, factor: u64, for_us: u64) {
        self.troubled(for_us + 300 * factor * 8);
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.slow_until_us = self.now_us + for_us;
            machine.slow_factor = factor;
        }
    }

    /// Nothing arrives at or from a server any more, before [`World::mend`].
    pub fn isolate(&mut self, id: HostId) {
        let others = self.others(id);
        for other in others {
            self.cut(id, other);
            self.cut(other, id);
        }
    }

    /// Nothing that one sends arrives at the other any more, before [`World::mend`].
    pub fn cut(&mut self, from: HostId, to: HostId) {
        self.troubled(0);
        self.cut_ways(from, to);
    }

    /// The network between the servers is whole again.
    pub fn mend(&mut self) {
        self.troubled(0);
        self.network.mend();
    }

    /// Session timeouts count while nothing is wrong, even for long: lets quiet be from now on.
    pub fn be_quiet(&mut self) {
        self.troubled_until_us = self.now_us;
    }
}
