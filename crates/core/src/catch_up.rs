//! Clients that come back to a server with several partitions.
//!
//! Such a client may have been shown more, elsewhere, than this server has applied. That its session comes to this
//! connection is on the first partition's timeline alone, and the leader's threads that stand still for it may lead
//! no more without knowing: with connections of its own each partition may have been led by somebody else for a
//! while. So before its session is asked for, each other partition here is asked when it will have applied all that
//! anybody was shown up to the question, and finds that out as `sync` does: by a question that only a leader can
//! answer whom a majority confirms. What they have applied by then the client counts as having seen, and the entry
//! with its session rests on that. All who come while one question is under way share the next one.

use crate::connection::ConnectionId;
use crate::placement::FIRST;
use crate::server::Server;
use crate::timestamp::Timestamp;
use crate::word::Word;
use alloc::boxed::Box;
use alloc::vec::Vec;
use stoa_wire::ConnectRequest;

/// A connection, and the first frame that came on it.
type Newcomer = (ConnectionId, Box<[u8]>);

/// At the first partition: who has come back, and waits for what may have been shown elsewhere.
#[derive(Default)]
pub(crate) struct Returning {
    /// Those on whose behalf the partitions were asked.
    asking: Vec<Newcomer>,
    /// Which of them have not answered, a bit for each.
    missing: u64,
    /// What the others have applied.
    seen: Timestamp,
    /// Those who came later.
    next: Vec<Newcomer>,
}

impl Server {
    /// Whether a client may have been shown more than this server has, on any partition.
    pub(crate) fn has_to_catch_up(&self, id: ConnectionId, request: &ConnectRequest<'_>) -> bool {
        let guest = self.connections.get(id).and_then(|connection| connection.guest.as_ref());
        let is_back = request.session_id != 0 || request.last_zxid_seen > 0;
        is_back && guest.is_some_and(|guest| !guest.has_caught_up) && !self.is_read_only()
    }

    /// Has a client wait until all partitions have whatever it was shown.
    pub(crate) fn catch_up(&mut self, id: ConnectionId, frame: &[u8]) {
        self.returning.next.push((id, frame.into()));
        self.ask_partitions();
    }

    fn ask_partitions(&mut self) {
        let returning = &mut self.returning;
        if returning.missing != 0 || returning.next.is_empty() {
            return;
        }
        returning.asking = core::mem::take(&mut returning.next);
        returning.seen = Timestamp::new(self.placement.partitions());
        for partition in (0..self.placement.partitions()).filter(|partition| *partition != FIRST) {
            self.returning.missing |= 1 << partition;
            self.say(partition, Word::CatchUp);
        }
    }

    /// Another partition has caught up.
    pub(crate) fn caught_up(&mut self, from: u8, stamp: &Timestamp) {
        let returning = &mut self.returning;
        returning.missing &= !(1 << from);
        returning.seen.merge(stamp);
        if returning.missing != 0 {
            return;
        }
        let seen = core::mem::take(&mut returning.seen);
        for (id, frame) in core::mem::take(&mut returning.asking) {
            // It may be gone by now.
            let Some(guest) = self.connections.get_mut(id).and_then(|it| it.guest.as_mut()) else { continue };
            guest.has_seen(&seen);
            guest.has_caught_up = true;
            self.open_connection(id, &frame);
        }
        self.ask_partitions();
    }
}
