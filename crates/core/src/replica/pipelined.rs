//! Writes that a client asks of one partition before its earlier ones on others are answered.
//!
//! A client's writes take effect in their order. In AGORA (section IV-D) a client that goes on to another
//! partition waits until all before that is answered, so each such step costs a round of replication. Here the
//! front only waits until the earlier write has been *prepared* by its partition, which says where it will stand; the
//! entry of the next one is handed to the log with that place named, and the log never holds it without what stands
//! there ([`stoa_timeline`]). So there is nothing of which the later one exists and the earlier does not, whoever
//! dies, and none is shown before the earlier is committed.
//!
//! Several that wait in the front go out together: each partition hands those that follow to the next one, with the
//! place of its own, and the last one tells the front. So a write is handed on once, and not to the front and back.
//!
//! A partition takes such a write at once or gives it back, with those that were to follow: then the front asks again,
//! behind all that is under way. That is the case wherever its order among other requests would have to be thought
//! about: another server leads, the client has seen what is not applied here yet, several partitions are concerned.

use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use alloc::boxed::Box;
use stoa_front::{ConnectionId, Frame, Phase, Pipelined, ToClient, ToPartition, is_plain_write};
use stoa_partition::{Now, entry_of};
use stoa_wire::{Request, Timestamp};

impl Replica {
    /// A write of a remote client, pipelined, with those that follow it. Those that are for others are handed on.
    pub(crate) fn remote_pipelined(
        &mut self,
        id: ConnectionId,
        mut seen: Option<Timestamp>,
        placed: u64,
        mut pipelined: Box<Pipelined>,
        mut frame: Box<[u8]>,
        now: Now,
    ) {
        self.now = now;
        loop {
            let Some(connection) = self.clients.connections.get_mut(id) else { return };
            if connection.phase == Phase::Closing {
                return;
            }
            let Some(remote) = &mut connection.remote else { return };
            remote.placed = placed;
            seen.iter().for_each(|seen| remote.has_seen(seen));
            let (front, client) = (remote.front, remote.client);
            if !Frame::read(&frame).is_some_and(|frame| self.take_pipelined(id, &mut pipelined, &frame)) {
                return self.give_back_pipelined(id, frame, *pipelined);
            }
            let Some(next) = pipelined.then.pop() else {
                return self.clients.outbox.push_back((front, client, ToClient::Prepared(pipelined)));
            };
            seen = next.has_news.then(|| pipelined.seen.clone());
            if next.partition != self.config.partition {
                let request =
                    ToPartition::Request { seen, placed, frame: next.frame, pipelined: Some(pipelined) };
                return self.say(next.partition, ShardMessage::Forwarded(front, client, request));
            }
            frame = next.frame;
        }
    }

    /// Prepares a write that is pipelined, and says where it stands to what follows. False if it is not taken.
    fn take_pipelined(&mut self, id: ConnectionId, pipelined: &mut Pipelined, frame: &Frame<'_>) -> bool {
        self.stats.packets_received += 1;
        if self.applied.partition.has_all_steps() {
            self.propose_entry();
        }
        let is_taken = self.can_take_pipelined(id, frame)
            && self.applied.partition.follow(pipelined.after, &pipelined.rests_on, self.timeline.term());
        if !is_taken {
            return false;
        }
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.traffic.received += 1;
        }
        self.leader.load.request(frame.opcode, frame.body(), self.now.mono_us);
        // Also when it is refused: where it stands says when its client is told.
        self.set_pipelined(id, true);
        self.request(id, frame, self.now.mono_us);
        self.set_pipelined(id, false);
        let entry = self.timeline.next_entry();
        pipelined.rests_on.raise(entry.partition, self.applied.partition.promises(entry.position));
        pipelined.rests_on.raise_zxid(self.applied.partition.proposed_zxid());
        pipelined.after = Some(entry);
        true
    }

    /// A write is not taken, and neither are those that were to follow it.
    fn give_back_pipelined(&mut self, id: ConnectionId, frame: Box<[u8]>, pipelined: Pipelined) {
        if let Some(remote) = self.clients.connections.get_mut(id).and_then(|it| it.remote.as_mut()) {
            remote.gives_back = true;
        }
        self.send_back(id, frame);
        for next in pipelined.then.into_iter().rev() {
            self.send_back(id, next.frame);
        }
    }

    fn set_pipelined(&mut self, id: ConnectionId, is_pipelined: bool) {
        if let Some(remote) = self.clients.connections.get_mut(id).and_then(|it| it.remote.as_mut()) {
            remote.is_pipelined = is_pipelined;
        }
    }

    /// Whether a write can be prepared here and now, behind all that its client has asked before.
    fn can_take_pipelined(&mut self, id: ConnectionId, frame: &Frame<'_>) -> bool {
        let Some(connection) = self.clients.connections.get(id) else { return false };
        let (session, opcode) = (connection.session, frame.opcode);
        let Some(remote) = connection.remote.as_ref().filter(|remote| !remote.gives_back) else {
            return false;
        };
        let is_open = matches!(connection.phase, Phase::Remote | Phase::Live(_));
        let is_next = is_open && !connection.is_barred() && !self.is_misplaced(id);
        let has_seen_more = entry_of(remote.seen.at(self.config.partition)) > self.timeline.applied_at().0;
        let is_full = self.leader.no_room_until_us.is_some();
        if !is_next || has_seen_more || is_full || !is_plain_write(opcode) {
            return false;
        }
        let request = opcode.and_then(|opcode| Request::decode(opcode, &mut frame.body()).ok());
        request.is_some_and(|request| self.admits_at_once(id, session, &request, false))
    }
}
