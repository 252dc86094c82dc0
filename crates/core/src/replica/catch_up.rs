//! Clients that come back to a server with several partitions.
//!
//! Such a client may have been shown more, elsewhere, than this server has applied. That its session comes to this
//! connection is on the first partition's timeline alone, and each thread applies its own in its own time. So before
//! its session is asked for, each other partition here is asked when it will have applied all that anybody was shown
//! up to the question, and finds that out as `sync` does: by a question that only a leader can answer whom a majority
//! confirms. What they have applied by then the client counts as having seen, and the entry
//! with its session rests on that. All who come while one question is under way share the next one.

use crate::catch_up::Returning;
use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use alloc::boxed::Box;
use stoa_front::{Came, ConnectionId, Phase};
use stoa_placement::FIRST;
use stoa_wire::{ConnectRequest, Timestamp};

/// There are at least so many before those that are gone are looked for.
const FORGOTTEN_AT_LEAST: usize = 64;

impl Replica {
    /// Whether a client may have been shown more than this server has, on any partition.
    pub(crate) fn has_to_catch_up(&self, id: ConnectionId, request: &ConnectRequest<'_>) -> bool {
        let remote = self.clients.connections.get(id).and_then(|connection| connection.remote.as_ref());
        let is_back = request.session_id != 0 || request.last_zxid_seen > 0;
        is_back && remote.is_some_and(|remote| remote.came != Came::CaughtUp) && !self.is_read_only()
    }

    /// Has a client wait until all partitions have whatever it was shown.
    pub(crate) fn catch_up(&mut self, id: ConnectionId, frame: &[u8]) {
        let Some(remote) = self.clients.connections.get_mut(id).and_then(|it| it.remote.as_mut()) else {
            return;
        };
        remote.came = Came::Waits(frame.into());
        let Returning { next, forget_at, .. } = &mut self.sessions.returning;
        if next.len() >= *forget_at {
            next.retain(|id| self.clients.connections.get(*id).is_some());
            *forget_at = 2 * next.len() + FORGOTTEN_AT_LEAST;
        }
        next.push(id);
        self.ask_partitions();
    }

    fn ask_partitions(&mut self) {
        let returning = &mut self.sessions.returning;
        if returning.missing != 0 || returning.next.is_empty() {
            return;
        }
        returning.asking = core::mem::take(&mut returning.next);
        returning.seen = Timestamp::new(self.applied.placement.partitions());
        for partition in self.other_partitions() {
            self.sessions.returning.missing |= 1 << partition;
            self.say(partition, ShardMessage::CatchUp);
        }
    }

    /// The first partition asks when all is applied that anybody was shown up to now.
    pub(crate) fn catch_up_for_first(&mut self) {
        self.timeline.barrier_for_first();
        self.pump();
    }

    /// It is.
    pub(crate) fn tell_caught_up(&mut self) {
        let stamp = Box::new(self.applied.stamp.clone());
        self.say(FIRST, ShardMessage::CaughtUp(stamp));
    }

    /// Another partition has caught up.
    pub(crate) fn caught_up(&mut self, from: u8, stamp: &Timestamp) {
        let returning = &mut self.sessions.returning;
        returning.missing &= !(1 << from);
        returning.seen.merge(stamp);
        if returning.missing != 0 {
            return;
        }
        let seen = core::mem::take(&mut returning.seen);
        for id in core::mem::take(&mut returning.asking) {
            // It may be gone by now, or about to go.
            let connection =
                self.clients.connections.get_mut(id).filter(|it| matches!(it.phase, Phase::Opening { .. }));
            let Some(remote) = connection.and_then(|it| it.remote.as_mut()) else { continue };
            remote.has_seen(&seen);
            if let Came::Waits(frame) = core::mem::replace(&mut remote.came, Came::CaughtUp) {
                self.open_connection(id, &frame);
            }
        }
        self.ask_partitions();
    }
}
