//! The day on which a majority is lost for good: all servers end, one folder is left, or a copy of one from earlier, and
//! an operator has its server go on alone.
//!
//! What was committed is from then on what that folder has, and it is judged as anything else: nothing that the folder
//! had may be lost, and nothing that it never had may turn up again. All other servers begin with empty folders, but for
//! one perhaps that comes with what it had. It is of another history: nobody may exchange anything with it, and it may
//! serve nobody, until the operator has emptied its folder. The clients are new ones, which remember nothing; the
//! sessions of those before must end.

use super::client::Tally;
use super::machine::draw_disk;
use super::visitor::{Act, Judges, Visitor};
use super::world::{Failure, Happening, World};
use super::{HostId, number};
use crate::recover::{go_on_alone, recover};
use stoa_check::{Checked, Violation, wrong};
use stoa_core::{DiskId, HistoryId, KnownDisks, Recovered};
use stoa_group::{Entry, EntryKind, History, Mark, Restored};
use stoa_storage::faulty::{Fault, FaultyDisk};

/// How soon a client that has gone for good is looked at again, microseconds: never, for any run.
const NEVER_US: u64 = 1 << 40;

/// A copy of a server's folder, as it was when the power was lost at one moment.
pub(super) struct Backup {
    disk: FaultyDisk,
    disk_id: DiskId,
    stored: Restored,
}

/// One who has gone for good.
struct Departed {
    requests: u64,
    counts: Tally,
    left: Vec<i64>,
}

impl Visitor for Departed {
    fn wake(&mut self, _: &mut Judges, _: u64) -> Result<(Vec<Act>, u64), Violation> {
        Ok((Vec::new(), NEVER_US))
    }

    fn receive(&mut self, _: &[u8], _: &mut Judges, _: u64) -> Result<Vec<Act>, Violation> {
        Ok(Vec::new())
    }

    fn gone(&mut self) {}

    fn finish(&mut self) {}

    fn is_done(&self) -> bool {
        true
    }

    fn waits_for(&self) -> String {
        "nobody waits any more".into()
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn left(&self) -> &[i64] {
        &self.left
    }

    fn counts(&self) -> Tally {
        self.counts
    }
}

impl World {
    /// Lives until a majority is lost for good and another history has begun; its clients are still to come. False when
    /// there is no such day any more.
    pub(crate) fn comes_to_disaster(&mut self) -> Result<bool, Failure> {
        while self.settings.recoveries > 0 {
            self.settings.recoveries -= 1;
            self.live()?;
            if self.go_on_from_one()? {
                self.schedule(0, Happening::Backup);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies the folder of a server.
    pub(super) fn back_up(&mut self) {
        let ids = self.ids();
        let machine = &self.machines[self.rng.pick(&ids)];
        let mut disk = machine.held.disk.clone();
        disk.clear_fault();
        disk.crash();
        disk.set_capacity(u64::MAX);
        if machine.flipped.is_none() {
            self.backup =
                Some(Backup { disk, disk_id: machine.disk_id, stored: machine.held.stored.clone() });
        }
    }

    /// Everything ends, and one server goes on alone. False when nobody has anything to go on from.
    fn go_on_from_one(&mut self) -> Result<bool, Failure> {
        let ids = self.ids();
        for id in &ids {
            let power = self.rng.one_in(2);
            self.crash(*id, "all end", power);
            self.room(*id);
            self.flip_back(*id);
        }
        let id = *self.rng.pick(&ids);
        self.put_backup(id);
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(false) };
        machine.held.disk.clear_fault();
        let (options, tree_options) = (self.options(id), self.tree_options(id));
        let place = (number(id), self.partitions());
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(false) };
        let opened = recover(&mut machine.held.disk, &options, &tree_options, place)
            .map_err(|error| Violation::new(format!("server {id} cannot be recovered: {error}")))?;
        self.judge_recovered(id, &opened.partitions)?;
        let Recovered { restored, .. } = &opened.partitions[0];
        if restored.base.position == 0 || restored.history.is_some_and(|of| self.is_foreign(of.id)) {
            // It was to join. Let there be another day.
            return Ok(false);
        }
        self.judge_last_state(id, &opened.partitions)?;
        let history = self.recover_folder(id)?;
        self.present = Some(history);
        self.counts.recoveries += 1;
        self.note("recover", format_args!("server {id} goes on alone, as {history}"));
        self.others_begin_anew(id);
        self.clients_depart();
        Ok(true)
    }

    /// Perhaps there is a copy of a folder, and no folder.
    fn put_backup(&mut self, id: HostId) {
        if self.rng.one_in(2) {
            return;
        }
        if let Some(Backup { disk, disk_id, stored }) = self.backup.take()
            && stored.base.position > 0
            && !stored.history.is_some_and(|of| self.is_foreign(of.id))
            && let Some(machine) = self.machines.get_mut(&id)
        {
            machine.replace(disk, disk_id);
            (machine.held.stored, machine.joins) = (stored, false);
            self.note("disk", format_args!("server {id} has a copy from earlier"));
        }
    }

    /// What was committed is what a server has, from now on.
    fn judge_last_state(&mut self, id: HostId, partitions: &[Recovered]) -> Checked {
        let Recovered { restored, .. } = &partitions[0];
        let before = std::mem::replace(&mut self.judges, Judges::new());
        self.judges.checker = before.checker;
        if partitions.len() == 1 {
            self.judges.history = before.history;
            return self.judges.history.goes_on_from(id, restored.base.position, &restored.entries);
        }
        let mut timelines = before.timelines;
        for (partition, recovered) in (0..).zip(partitions) {
            timelines.reached(id, partition, recovered.position, &recovered.tree)?;
        }
        Ok(())
    }

    /// The command, until it has come to its end: the power may go while it works.
    fn recover_folder(&mut self, id: HostId) -> Result<HistoryId, Failure> {
        let (options, tree_options) = (self.options(id), self.tree_options(id));
        loop {
            let history = HistoryId(u128::from(self.rng.next_u64()).to_le_bytes());
            let (fails, calls) = (self.rng.one_in(3), self.rng.below(8));
            let place = (number(id), self.partitions());
            let Some(machine) = self.machines.get_mut(&id) else { return Ok(history) };
            if fails {
                machine.held.disk.fault_after(calls, Fault::PowerLoss);
            }
            let done = go_on_alone(&mut machine.held.disk, &options, &tree_options, place, history);
            let is_powerless = machine.held.disk.is_powerless();
            machine.held.disk.clear_fault();
            match done {
                Ok(()) if !is_powerless => {
                    machine.forget_disk();
                    // It votes alone; what else it has is known when it starts.
                    let (base, of) = (Mark::founding(&[1]), Some(History { id: history, since: 0 }));
                    machine.held.stored = Restored { base, history: of, ..Restored::default() };
                    return Ok(history);
                }
                _ if is_powerless => machine.held.disk.crash(),
                Ok(()) => {}
                Err(error) => {
                    return wrong(format!("server {id} does not go on alone: {error}"));
                }
            }
        }
    }

    /// All other servers have empty folders; one perhaps has what it had.
    fn others_begin_anew(&mut self, survivor: HostId) {
        self.lost.clear();
        let founders = self.settings.ids(self.settings.servers);
        let mut may_stay = self.rng.one_in(2);
        for id in self.ids() {
            let (disk, disk_id) = (FaultyDisk::new(self.rng.next_u64()), draw_disk(&mut self.rng));
            let joins = self.rng.one_in(2);
            let stays = may_stay && id != survivor && self.needs_others(id);
            let Some(machine) = self.machines.get_mut(&id) else { continue };
            (machine.out_since_us, machine.copy) = (None, None);
            // Whoever is not among those who began the first ensemble has to be named by all.
            machine.names_all |= !founders.contains(&survivor);
            if id == survivor {
                machine.joins = false;
                machine.held.known = KnownDisks::default();
            } else if stays {
                may_stay = false;
                self.note("disk", format_args!("server {id} has what it had"));
            } else {
                machine.replace(disk, disk_id);
                machine.joins = joins;
            }
        }
    }

    /// Whether a server needs others by what its disk has.
    fn needs_others(&self, id: HostId) -> bool {
        let mut disk = self.machines[&id].held.disk.clone();
        let opened =
            recover(&mut disk, &self.options(id), &self.tree_options(id), (number(id), self.partitions()));
        opened.is_ok_and(|opened| {
            let Restored { base, entries, .. } = &opened.partitions[0].restored;
            let is_change = |entry: &Entry| entry.kind == EntryKind::Change;
            let has_others = base.members.voters.len() > 1 && base.members.outgoing.is_empty();
            has_others && !entries.iter().any(is_change)
        })
    }

    /// Nobody remembers anything of before, but their sessions must end.
    fn clients_depart(&mut self) {
        let tree = self.judges.history.tree();
        let mut left: Vec<i64> = tree.sessions().map(|session| session.id).collect();
        for client in &mut self.clients {
            let (requests, counts) = (client.requests(), client.counts());
            *client = Box::new(Departed { requests, counts, left: std::mem::take(&mut left) });
        }
    }

    // ---- what is of another history ----

    pub(super) fn is_foreign(&self, history: HistoryId) -> bool {
        self.present.is_some_and(|present| present != history)
    }

    /// Whether a server has a folder of a history that others have gone on without.
    pub(super) fn is_of_another(&self, id: HostId) -> bool {
        self.machines[&id].held.stored.history.is_some_and(|history| self.is_foreign(history.id))
    }

    /// Two servers have two histories: one of them is of no use any more, and serves nobody.
    pub(super) fn are_told_apart(&self, a: HostId, b: HostId) -> Checked {
        let (one, other) = (self.standing(a).history(), self.standing(b).history());
        let foreign: Vec<HostId> = [(a, one), (b, other)]
            .into_iter()
            .filter(|(_, history)| history.is_some_and(|history| self.is_foreign(history)))
            .map(|(id, _)| id)
            .collect();
        if foreign.is_empty() {
            return wrong(format!("server {a} has the history {one:?}, server {b} {other:?}"));
        }
        let serves = |id: &&HostId| {
            let process = self.process(**id);
            process.is_some_and(|process| process.first().is_in_quorum())
        };
        match foreign.iter().find(serves) {
            Some(id) => wrong(format!("server {id} serves what others have gone on without")),
            None => Ok(()),
        }
    }

    /// The operator has read what such a server says, and empties its folder.
    pub(super) fn empty_what_is_of_another(&mut self, id: HostId) {
        self.crash(id, "its folder is of another ensemble", false);
        let (disk, disk_id) = (FaultyDisk::new(self.rng.next_u64()), draw_disk(&mut self.rng));
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.replace(disk, disk_id);
            machine.out_since_us = None;
        }
        self.note("disk", format_args!("server {id} has an empty one"));
    }
}
