//! What a front does when something lives elsewhere than it did.

use crate::connection::{CloseReason, ConnectionId, Slot};
use crate::front::{Front, told_elsewhere};
use crate::message::{FrontMessage, LeftWatch, ToClient};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use stoa_placement::Placement;
use stoa_timeline::EntryId;
use stoa_wire::Timestamp;

impl Front {
    /// By which version of the table this thread's clients ask.
    #[inline]
    #[must_use]
    pub fn placed(&self) -> u64 {
        self.placement.version()
    }

    /// Things live elsewhere from now on; `stamp` is what this thread's partition rests on, which knows it.
    /// Whom a client asks by this table must have come as far.
    pub fn place(&mut self, placement: Placement, stamp: &Timestamp) {
        self.placement = placement;
        self.progress.placed.clone_from(stamp);
        for connection in self.connections.iter_mut() {
            if let Some(route) = &mut connection.route {
                route.seen.stamp.merge(stamp);
                route.seen.informed = 0;
                // What was asked by the old table may come back, and nothing may overtake it.
                let is_under_way = route.requests.under_way > 0;
                route.direct.iter_mut().for_each(|direct| direct.gives_back |= is_under_way);
            }
        }
        for id in core::mem::take(&mut self.pending.rerouted) {
            let needs = self.route(id).map_or(0, |route| route.requests.needs);
            if needs > self.placement.version() {
                self.pending.rerouted.push(id);
            } else {
                self.go_on_again(id);
            }
        }
    }

    /// A request has come back from a partition with another table. It is asked again when all have that
    /// were under way, before what waits behind them, and when this thread knows of what was moved.
    pub(crate) fn comes_back(
        &mut self,
        from: u8,
        id: ConnectionId,
        version: u64,
        frame: Box<[u8]>,
        stamp: &Timestamp,
    ) {
        if self.is_side(id) && self.route(id).is_some_and(|route| route.gather.is_none()) {
            // Its client finds the way, and is told in its turn.
            self.gives_back(id);
            let (bytes, stamp) = (told_elsewhere(&frame), stamp.clone());
            return self.told(from, id, ToClient::Frames { answers: 1, bytes, stamp });
        }
        // What comes back of reads that were pipelined is known here.
        let is_kept = self.begin_again(id);
        let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) else { return };
        self.under_way.uncount(route, 1);
        route.came_back();
        route.seen.stamp.merge(stamp);
        route.seen.informed &= 1 << from;
        route.requests.needs = route.requests.needs.max(version);
        if route.gather.is_none() && !is_kept {
            route.requests.back.push(frame);
        }
        if version > self.placement.version() {
            self.pending.rerouted.push(id);
        } else {
            self.go_on_again(id);
        }
    }

    /// What goes through all partitions begins anew, and the rest is asked once more.
    fn go_on_again(&mut self, id: ConnectionId) {
        match self.route(id).and_then(|route| route.gather.take()) {
            Some(gather) => self.ask_all(id, gather.again(self.placement.clone())),
            None => self.go_on(id),
        }
    }

    /// Puts what has come back before what waits, if nothing else is under way.
    pub(crate) fn queue_what_came_back(&mut self, id: ConnectionId) {
        let Some(route) = self.route(id).filter(|route| route.requests.under_way == 0) else { return };
        for frame in core::mem::take(&mut route.requests.back).into_iter().rev() {
            self.connections.push_slot_first(id, Slot::Request { frame, arrived_us: 0, may_write: false });
        }
    }

    /// What clients of this thread watch lives on another partition from now on, which is told whose watches
    /// they are.
    pub fn watches_leave(&mut self, taken: EntryId, mut watches: Vec<LeftWatch>) {
        let mut told = BTreeSet::new();
        for (client, ..) in &watches {
            if told.insert(*client) {
                self.tell_moved(*client);
            }
        }
        // A direct client sets those of a side connection anew.
        watches.retain(|(client, ..)| !self.is_side(*client) && self.joins(*client, taken.partition));
        self.mail.messages.push_back((taken.partition, FrontMessage::Comes { taken, watches }));
    }

    /// Makes a client known to a partition where it has watches from now on; false when it has gone.
    fn joins(&mut self, id: ConnectionId, partition: u8) -> bool {
        self.join(id, partition);
        let Some(route) = self.route(id).filter(|route| route.session.is_some()) else { return false };
        route.partitions.watched |= 1 << partition;
        true
    }

    /// Clients may not be told of what they watch any more.
    pub fn close_all(&mut self, reason: CloseReason) {
        let clients: Vec<_> = self.connections.iter().map(|(id, _)| id).collect();
        for id in clients {
            self.end(id, reason);
        }
    }
}
