//! What goes wrong, and comes right again.

use stoa_storage::DiskErrorKind;
use stoa_storage::faulty::Fault;

use super::world::{Done, World};
use crate::ensemble::roster::Role;

/// A server that has lost its disk, and how far its timelines went.
pub(super) struct Lost {
    id: u8,
    last: Vec<u64>,
}

impl World<'_> {
    fn any_id(&mut self) -> u8 {
        1 + self.rng.index(self.settings.servers().into()) as u8
    }

    /// Something goes wrong, or comes right again.
    pub(super) fn trouble(&mut self) -> Done {
        let id = self.any_id();
        let other = self.any_id();
        let partition = self.rng.index(self.partitions.into()) as u8;
        let it = self.settings.troubles;
        let weights = [
            it.kill,
            it.rise,
            it.cut,
            it.mend,
            it.slow,
            it.hurry,
            it.power_loss,
            it.full,
            it.room,
            it.jump,
            it.lose,
        ];
        match self.rng.weighted(&weights) {
            0 => {
                let running = self.machines.values().filter(|machine| machine.process.is_some()).count();
                let power = self.rng.one_in(2);
                let down = self.machines.len() - running;
                if down > (self.machines.len() - 1) / 4 { Ok(()) } else { self.kill(id, power) }
            }
            1 => self.ids().into_iter().try_for_each(|id| self.start(id)),
            2 if id != other => {
                self.cut.insert((id.min(other), id.max(other), partition));
                self.outcome.cuts += 1;
                self.tend_links()
            }
            3 => {
                self.cut.clear();
                self.tend_links()
            }
            4 => {
                let from = self.rng.index(self.partitions.into()) as u8;
                if from == partition {
                    self.slow.insert((id, partition));
                } else {
                    self.late.insert((id, (from, partition)));
                }
                Ok(())
            }
            5 => {
                self.late.clear();
                self.slow.clear();
                Ok(())
            }
            8 => {
                self.machines.values_mut().for_each(super::machine::Machine::has_room);
                Ok(())
            }
            10 => self.lose_disk(id),
            what => {
                self.strike(id, what);
                Ok(())
            }
        }
    }

    /// A subtree is to live somewhere else, whoever leads.
    pub(super) fn move_something(&mut self) -> Done {
        let index = self.rng.index(2 * self.map.tops.len());
        let path = if let Some(path) = self.moved.clone().filter(|_| self.rng.one_in(2)) {
            path
        } else if self.rng.one_in(8) {
            format!("/t-{}", index % 7)
        } else {
            self.map.path(index)
        };
        let to = self.rng.index(self.partitions.into()) as u8;
        for id in self.ids() {
            let Some(process) = self.process(id) else { continue };
            let first = process.shard(0);
            if first.ask_move(&path, to).is_ok() {
                self.poll(id, 0)?;
            }
        }
        Ok(())
    }

    fn strike(&mut self, id: u8, what: usize) {
        let (calls, room) = (self.rng.below(30), self.rng.below(4 << 10));
        let jump_ms = self.rng.range(0, 20_000) as i64 - 10_000;
        let fails = self.rng.one_in(4);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        match what {
            6 => {
                let fault = if fails { Fault::Fail(DiskErrorKind::Other) } else { Fault::PowerLoss };
                machine.disk.fault_after(calls, fault);
            }
            7 => {
                machine.disk.set_capacity(machine.disk.used() + room);
                machine.is_full = true;
            }
            9 => machine.clock.wall_offset_ms += jump_ms,
            _ => {}
        }
    }

    /// Whether the others can do without what this server has: they are all that belong to the ensemble, have
    /// met its disk, and none of them lacks anything that it has lost.
    fn may_lose(&self, id: u8) -> bool {
        let Some(roster) = self.roster() else { return false };
        let voters = roster.with(Role::Participant);
        let others = voters.iter().filter(|voter| **voter != id);
        let knows = |by: u8, of: u8| {
            let disk = self.machines[&of].disk_id;
            self.machines[&by].known.get(&of) == Some(&disk)
        };
        let is_whole = self.lost.as_ref().is_none_or(|lost| {
            let has = |(partition, last): (usize, &u64)| {
                let machine = &self.machines[&lost.id].process;
                machine.as_ref().is_some_and(|it| it.shards[partition].applied() >= *last)
            };
            lost.last.iter().enumerate().all(has)
                && voters.iter().all(|voter| *voter == lost.id || knows(*voter, lost.id))
        });
        // Who has a change of members and does not know that it is committed counts with the members before, and so
        // does who has not stored that yet, after a crash.
        let is_settled = |voter: &u8| {
            self.machines[voter].process.as_ref().is_some_and(|process| {
                process.shards.iter().all(|server| {
                    let standing = server.status();
                    let is_stored = server.log_queue().0 == 0;
                    let is_alike = standing.voters == voters && standing.outgoing.is_empty();
                    is_alike && is_stored && standing.leader != 0
                })
            })
        };
        voters.len() >= 3
            && is_whole
            && voters.iter().all(is_settled)
            && others.into_iter().all(|other| knows(*other, id))
    }

    /// The disk of a server is lost: it comes back with an empty one.
    fn lose_disk(&mut self, id: u8) -> Done {
        if !self.may_lose(id) {
            return Ok(());
        }
        let joins = self.rng.one_in(2);
        let Some(process) = self.process(id) else { return Ok(()) };
        let last = process.shards.iter().map(|shard| shard.status().last).collect();
        self.lost = Some(Lost { id, last });
        self.outcome.lost += 1;
        self.kill(id, true)?;
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.empty(&mut self.rng);
            machine.joins = joins;
        }
        Ok(())
    }
}
