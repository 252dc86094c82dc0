//! Disks that lose what they held: replaced by an empty one or by an older copy, or with a bit that has flipped. Never
//! more at a time than the others can do without: what was promised must be on disks that are whole.

use super::machine::{Held, Machine, draw_disk};
use super::process::Process;
use super::roster::{Role, Roster};
use super::visitor::Judges;
use super::world::{Happening, World};
use super::{HostId, number, of_hosts};
use crate::disk_thread::choose_bit;
use std::collections::BTreeMap;
use stoa_core::{DiskId, KnownDisk, Status};
use stoa_group::Restored;
use stoa_storage::StorageError;
use stoa_storage::faulty::FaultyDisk;

/// Servers that have lost what they had, and where it ended.
pub(super) type Lost = BTreeMap<HostId, u64>;

/// A bit that has flipped.
pub(super) struct Flipped {
    pub(super) file: String,
    bit: u64,
    /// The bytes around it afterwards: the server writes the end of its log again with what follows, from
    /// memory, and so may have mended it.
    around: Vec<u8>,
}

/// Whether a disk is the one that is known, and no older copy of it.
fn is_of(known: &KnownDisk, machine: &Machine) -> bool {
    known.id == machine.disk_id && known.start.is_none_or(|start| !machine.held.starts.lack(start))
}

/// Once in so many starts a copy is replaced by a newer one.
const COPY_ONE_IN: u64 = 3;

impl Machine {
    /// Another disk, with nothing on it that is expected to be there.
    pub(super) fn replace(&mut self, disk: FaultyDisk, disk_id: DiskId) {
        (self.held, self.copy, self.flipped) = (Held::new(disk), None, None);
        self.disk_id = disk_id;
    }
}

impl World {
    /// The list of servers that is in force: as it was committed last, or as the founders' settings say.
    pub(super) fn roster(&self) -> Roster {
        let founders = || Roster::of_participants(self.settings.ids(self.settings.servers));
        let Judges { history, timelines, .. } = &self.judges;
        let known = history.roster(history.zxid()).map(|(roster, _)| roster);
        known.or_else(|| timelines.roster().cloned()).unwrap_or_else(founders)
    }

    /// How things are for whoever leads the newest term.
    fn leading(&self) -> Option<Status> {
        let running = self.machines.values().filter_map(|machine| machine.process.as_ref());
        let leading = running.map(|process| process.first().status()).filter(|it| it.role == LEADER);
        leading.max_by_key(|standing| standing.term)
    }

    /// Whether members and list agree for this server.
    pub(super) fn is_settled(&self, standing: &Status) -> bool {
        let roster = self.roster();
        standing.outgoing.is_empty()
            && of_hosts(&standing.voters) == roster.with(Role::Participant)
            && of_hosts(&standing.observers) == roster.with(Role::Observer)
    }

    /// Whether a server has stored who the members are. Who has a change of them and does not know that it is committed
    /// counts with the members before.
    fn knows_members(&self, id: HostId) -> bool {
        let process = self.process(id);
        process
            .map(Process::first)
            .is_some_and(|first| self.is_settled(&first.status()) && first.log_queue().0 == 0)
    }

    /// Whether a server runs that has nothing yet, while nobody else has lost anything.
    fn is_new(&self, id: HostId) -> bool {
        let process = self.process(id);
        process.is_some_and(|process| process.first().history().is_none())
            && self.lost.keys().all(|lost| *lost == id)
            && self.machines.values().all(|machine| machine.flipped.is_none())
    }

    /// Whether the others can do without what this server has.
    fn may_lose(&mut self, id: HostId) -> bool {
        if self.is_new(id) {
            return true;
        }
        let Some(leading) = self.leading() else { return false };
        let Self { lost, machines, .. } = self;
        lost.retain(|id, last| {
            let machine = &machines[id];
            let has_all = machine.process.is_some() && machine.held.stored.vote.committed >= *last;
            let knows = |one: &Machine, id: &HostId, other: &Machine| {
                one.held.known.disks().get(&number(*id)).is_some_and(|known| is_of(known, other))
            };
            let is_trusted = |voter: HostId| knows(&machines[&voter], id, machine);
            let mut voters = leading.voters.iter().map(|voter| HostId::from(*voter));
            !(has_all && voters.all(|voter| voter == *id || is_trusted(voter)))
        });
        let is_rotten = |machine: &Machine| machine.flipped.is_some();
        let others_are_whole = lost.keys().all(|lost| *lost == id)
            && machines.iter().all(|(it, at)| *it == id || !is_rotten(at));
        // Whoever has never met it would take its new disk for the one that it always had.
        let disk_id = self.machines[&id].disk_id;
        let has = |known: &KnownDisk| known.id == disk_id;
        let knows =
            |voter: HostId| self.machines[&voter].held.known.disks().get(&number(id)).is_some_and(has);
        let have_met = |voter: HostId| voter == id || knows(voter);
        // They must be able to elect without it.
        let voters = || leading.voters.iter().map(|voter| HostId::from(*voter));
        let others = voters().filter(|voter| *voter != id && self.knows_members(*voter));
        others_are_whole
            && self.leader() == Some(leading.id.into())
            && self.is_settled(&leading)
            && others.count() > leading.voters.len() / 2
            && voters().all(have_met)
    }

    /// The disk of a server is lost: it comes back with an empty one.
    pub fn lose_disk(&mut self, id: HostId) {
        let is_new = self.is_new(id);
        if self.may_lose(id) {
            self.troubled(0);
            self.crash(id, "its disk is lost", true);
            self.replace_disk(id, is_new);
        }
    }

    /// Before a server starts, what is on its disk may be copied.
    pub(super) fn keep_copy(&mut self, id: HostId) {
        if self.settings.faults.rollback_ms == 0 || self.healing {
            return;
        }
        let another = self.rng.one_in(COPY_ONE_IN);
        let Some(machine) = self.machines.get_mut(&id).filter(|it| it.process.is_none()) else { return };
        if machine.flipped.is_none() && (another || machine.copy.is_none()) {
            machine.copy = Some(machine.held.clone());
        }
    }

    /// The disk of a server is replaced by an older copy of itself, and all who vote have met a later start.
    pub(super) fn roll_back(&mut self, id: HostId) {
        let Some(copy) = self.machines[&id].copy.clone() else { return };
        if copy.stored.base.members.voters.len() == 1 {
            // By it the server would decide alone, and ends when another one tells it of a later start.
            return;
        }
        // Here each start has the number of the server's life as its id, which no copy takes back.
        let last = copy.starts.last().map_or(0, |start| start.id);
        let is_later = |known: &KnownDisk| known.start.is_some_and(|start| start.id > last);
        let know_later = self.machines.iter().filter(|(other, _)| **other != id);
        let mut know_later =
            know_later.map(|(_, other)| other.held.known.disks().get(&number(id)).is_some_and(is_later));
        if !know_later.all(|knows| knows) || self.is_new(id) || !self.may_lose(id) {
            return;
        }
        self.troubled(0);
        self.crash(id, "an older copy of its disk is put back", true);
        let seed = self.rng.next_u64();
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let last = machine.held.stored.last().max(self.lost.get(&id).copied().unwrap_or(0));
        self.lost.insert(id, last);
        self.counts.rolled_back += 1;
        (machine.held, machine.flipped) = (copy, None);
        machine.held.disk.reseed(seed);
        machine.held.disk.set_capacity(u64::MAX);
        machine.is_full = false;
        let (position, starts) = (machine.held.stored.last(), machine.held.starts.count());
        let what = format_args!("server {id} has an older copy: up to {position} of {last}, {starts} starts");
        self.note("disk", what);
    }

    fn replace_disk(&mut self, id: HostId, is_new: bool) {
        let founders = Roster::of_participants(self.settings.ids(self.settings.servers));
        // Whose settings name those who found the ensemble may begin with them, if they are still those
        // who belong to it.
        let joins = !is_new && (self.roster() != founders || self.rng.one_in(2));
        let disk = FaultyDisk::new(self.rng.next_u64());
        let disk_id = draw_disk(&mut self.rng);
        let trusting = self.settings.trusting;
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let last = machine.held.stored.last();
        self.lost.insert(id, last);
        self.counts.emptied += 1;
        machine.replace(disk, if trusting { machine.disk_id } else { disk_id });
        if !is_new {
            machine.joins = joins;
            machine.names_all |= joins;
        }
        self.note("disk", format_args!("server {id} has an empty one, joins {joins}"));
    }

    /// A bit of what a server has stored flips. It need not notice before it starts again.
    pub(super) fn rot(&mut self, id: HostId) {
        self.flip_back(id);
        if !self.may_lose(id) {
            return;
        }
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let of_process = machine.process.as_ref().map(|process| process.log.last_batch().cloned());
        let last_batch = of_process.unwrap_or_else(|| machine.held.last_batch.clone());
        if let Some((file, bit)) = choose_bit(&mut self.rng, &mut machine.held.disk, last_batch.as_ref()) {
            self.counts.flipped += 1;
            machine.held.disk.flip_bit(&file, bit);
            let around = machine.held.disk.around_bit(&file, bit);
            machine.flipped = Some(Flipped { file: file.clone(), bit, around });
            self.note("disk", format_args!("server {id}: bit {bit} of {file} flips"));
            if self.rng.one_in(2) {
                self.crash(id, "it was time", true);
            }
        }
    }

    pub(super) fn flip_back(&mut self, id: HostId) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        if let Some(Flipped { file, bit, around }) = machine.flipped.take() {
            machine.held.disk.flip_bit_back(&file, bit, &around);
        }
    }

    /// A server does not start, because it has found what is wrong with its disk. Whoever looks after it
    /// gives it an empty folder; or, when too much would be lost with it, repairs it.
    pub(super) fn rot_noticed(&mut self, id: HostId, error: &StorageError) {
        self.note("disk", format_args!("server {id} does not start: {error}"));
        self.counts.rot_noticed += 1;
        if self.settings.trusting || self.may_lose(id) {
            let is_new = self.machines[&id].held.stored == Restored::default();
            self.replace_disk(id, is_new);
        } else {
            self.flip_back(id);
        }
        self.troubled(100_000);
        self.schedule(100_000, Happening::Restart(id));
    }
}

const LEADER: stoa_core::Role = stoa_core::Role::Leader;
