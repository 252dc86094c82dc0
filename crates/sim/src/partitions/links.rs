//! Links between the same partition of two servers: each on its own.

use std::collections::VecDeque;

use bytes::Bytes;
use stoa_core::PeerOutput;

use super::server::Chunks;
use super::world::{Done, World};
use crate::check::Violation;

/// A link between the same partition of two servers, one way.
pub(super) type Link = (u8, u8, u8);

/// Something on its way; with a snapshot, if it is about one.
pub(super) struct Parcel {
    message: Bytes,
    snapshot: Option<Chunks>,
}

pub(super) type Queue = VecDeque<Parcel>;

impl World<'_> {
    /// Whether both want a link, and can have one.
    fn may_link(&self, one: u8, other: u8, partition: u8) -> bool {
        let wants = |id: u8, peer: u8| {
            let process = self.machines[&id].process.as_ref();
            process.is_some_and(|it| it.circles[usize::from(partition)].circle.contains(&peer))
        };
        !self.cut.contains(&(one, other, partition)) && wants(one, other) && wants(other, one)
    }

    /// Makes the links that are wanted, and ends those that are not.
    pub(super) fn tend_links(&mut self) -> Done {
        for one in self.ids() {
            for other in one + 1..=self.settings.servers() {
                for partition in 0..self.partitions {
                    match (
                        self.links.contains_key(&(one, other, partition)),
                        self.may_link(one, other, partition),
                    ) {
                        (false, true) => self.connect(one, other, partition),
                        (true, false) => self.disconnect(one, other, partition)?,
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self, one: u8, other: u8, partition: u8) {
        let at = usize::from(partition);
        for (from, to) in [(one, other), (other, one)] {
            self.links.insert((from, to, partition), Queue::new());
            let disk = self.machines[&from].disk_id;
            let now = self.now(to);
            let Some(machine) = self.machines.get_mut(&to) else { continue };
            let Some(process) = &mut machine.process else { continue };
            let server = &mut process.shards[at];
            if partition == 0 {
                process.circles[at].meet(server, &mut machine.known, from, disk, now);
            } else {
                server.peer_connected(from, now);
            }
        }
    }

    pub(super) fn disconnect(&mut self, one: u8, other: u8, partition: u8) -> Done {
        for (from, to) in [(one, other), (other, one)] {
            let Some(lost) = self.links.remove(&(from, to, partition)) else { continue };
            if lost.iter().any(|parcel| parcel.snapshot.is_some()) {
                self.snapshot_sent(from, to, partition, false);
            }
            let now = self.now(to);
            if let Some(process) = self.process(to) {
                process.shard(partition).peer_lost(from, now);
                self.poll(to, partition)?;
            }
        }
        Ok(())
    }

    fn snapshot_sent(&mut self, from: u8, to: u8, partition: u8, arrived: bool) {
        let now = self.now(from);
        if let Some(process) = self.process(from) {
            process.shard(partition).snapshot_sent(to, arrived, now);
        }
    }

    /// Something that a partition wants done about other servers.
    pub(super) fn peer_output(&mut self, id: u8, partition: u8, output: PeerOutput) {
        let (at, now) = (usize::from(partition), self.now(id));
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(process) = &mut machine.process else { return };
        let (circle, server) = (&mut process.circles[at], &mut process.shards[at]);
        match output {
            PeerOutput::Send { to, message } => {
                if let Some(link) = self.links.get_mut(&(id, to, partition)) {
                    link.push_back(Parcel { message: message.join(), snapshot: None });
                }
            }
            PeerOutput::Snapshot { to, position, message } => {
                let snapshot = machine.snapshot_at(position);
                match (self.links.get_mut(&(id, to, partition)), snapshot) {
                    (Some(link), Some(snapshot)) => {
                        link.push_back(Parcel { message: message.into(), snapshot: Some(snapshot) });
                    }
                    _ => self.snapshot_sent(id, to, partition, false),
                }
            }
            PeerOutput::Servers => circle.look_around(server),
            // The disks are the first partition's business, with which the log is.
            PeerOutput::Members(_) if partition > 0 => circle.look_around(server),
            PeerOutput::Leads(_) if partition > 0 => {}
            PeerOutput::Leads(peer) => circle.accept(&mut machine.known, peer),
            PeerOutput::Members(members) => {
                circle.members_are(&members, server, &mut machine.known, now);
            }
        }
    }

    /// The oldest message on a link arrives.
    pub(super) fn arrive(&mut self, link: Link) -> Done {
        let (from, to, partition) = link;
        let now = self.now(to);
        let Some(Parcel { message, snapshot }) = self.links.get_mut(&link).and_then(Queue::pop_front) else {
            return Ok(());
        };
        let Some(process) = self.process(to) else { return Ok(()) };
        if let Some(chunks) = snapshot {
            process.offered(from, message, &chunks, now)?;
            self.snapshot_sent(from, to, partition, true);
            self.poll(from, partition)?;
        } else {
            let taken = process.shard(partition).peer_message(from, message, now);
            taken.map_err(|_| Violation::new("a server does not understand another one"))?;
        }
        self.poll(to, partition)
    }
}
