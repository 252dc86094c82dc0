//! Writes that a client asks of one partition before its earlier ones on others are answered.
//!
//! A client's writes take effect in their order. In AGORA (section IV-D) a client that goes on to another
//! partition waits until all before that is answered, so each such step costs a round of replication. Here the
//! home only waits until the earlier write has been *prepared* by its partition, which says where it will stand; the
//! entry of the next one is handed to the log with that place named, and the log never holds it without what stands
//! there ([`stoa_timeline`]). So there is nothing of which the later one exists and the earlier does not, whoever
//! dies, and none is shown before the earlier is committed.
//!
//! Several that wait in the home go out together: each partition hands those that follow to the next one, with the
//! place of its own, and the last one tells the home. So a write is handed on once, and not to the home and back.
//!
//! A partition takes such a write at once or gives it back, with those that were to follow: then the home asks again,
//! behind all that is under way. That is the case wherever its order among other requests would have to be thought
//! about: another server leads, the client has seen what is not applied here yet, several partitions are concerned.

use crate::ahead::{Ahead, is_plain_write};
use crate::config::Now;
use crate::connection::{ConnectionId, Phase};
use crate::frame::Frame;
use crate::planted::Bug;
use crate::replica::Replica;
use crate::shard_message::{ShardMessage, ToClient, ToPartition};
use crate::step::entry_of;
use crate::timestamp::Timestamp;
use alloc::boxed::Box;
use stoa_wire::Request;

impl Replica {
    /// A write of a guest, asked ahead, with those that follow it. Those that are for others are handed on.
    pub(crate) fn guest_ahead(
        &mut self,
        id: ConnectionId,
        mut seen: Option<Timestamp>,
        placed: u64,
        mut ahead: Box<Ahead>,
        mut frame: Box<[u8]>,
        now: Now,
    ) {
        self.now = now;
        loop {
            let Some(connection) = self.clients.connections.get_mut(id) else { return };
            if connection.phase == Phase::Closing {
                return;
            }
            let Some(guest) = &mut connection.guest else { return };
            guest.placed = placed;
            seen.iter().for_each(|seen| guest.has_seen(seen));
            let (home, client) = (guest.home, guest.client);
            if !Frame::read(&frame).is_some_and(|frame| self.take_ahead(id, &mut ahead, &frame)) {
                return self.give_back_ahead(id, frame, *ahead);
            }
            let Some(next) = ahead.then.pop() else {
                return self.clients.said.push_back((home, client, ToClient::Prepared(ahead)));
            };
            seen = next.has_news.then(|| ahead.seen.clone());
            if next.partition != self.config.partition {
                let request = ToPartition::Request { seen, placed, frame: next.frame, ahead: Some(ahead) };
                return self.say(next.partition, ShardMessage::Forwarded(home, client, request));
            }
            frame = next.frame;
        }
    }

    /// Prepares a write that is asked ahead, and says where it stands to what follows. False if it is not taken.
    fn take_ahead(&mut self, id: ConnectionId, ahead: &mut Ahead, frame: &Frame<'_>) -> bool {
        self.stats.packets_received += 1;
        if self.applied.partition.has_all_steps() {
            self.propose_entry();
        }
        let follows_nothing = self.planted.is(Bug::AheadOfNothing);
        let is_taken = self.can_take_ahead(id, frame)
            && (follows_nothing || self.applied.partition.follow(ahead, self.timeline.term()));
        if !is_taken {
            return false;
        }
        if let Some(connection) = self.clients.connections.get_mut(id) {
            connection.received += 1;
        }
        self.leader.load.request(frame.opcode, frame.body(), self.now);
        // Also when it is refused: where it stands says when its client is told.
        self.set_ahead(id, true);
        self.request(id, frame, self.now.mono_us);
        self.set_ahead(id, false);
        let entry = self.timeline.next_entry();
        ahead.rests_on.raise(entry.partition, self.applied.partition.promises(entry.position));
        ahead.rests_on.raise_zxid(self.applied.partition.proposed_zxid());
        ahead.after = Some(entry);
        true
    }

    /// A write is not taken, and neither are those that were to follow it.
    fn give_back_ahead(&mut self, id: ConnectionId, frame: Box<[u8]>, ahead: Ahead) {
        if let Some(guest) = self.clients.connections.get_mut(id).and_then(|it| it.guest.as_mut()) {
            guest.gives_back = true;
        }
        self.send_back(id, frame);
        for next in ahead.then.into_iter().rev() {
            self.send_back(id, next.frame);
        }
    }

    fn set_ahead(&mut self, id: ConnectionId, is_ahead: bool) {
        if let Some(guest) = self.clients.connections.get_mut(id).and_then(|it| it.guest.as_mut()) {
            guest.is_ahead = is_ahead;
        }
    }

    /// Whether a write can be prepared here and now, behind all that its client has asked before.
    fn can_take_ahead(&mut self, id: ConnectionId, frame: &Frame<'_>) -> bool {
        let Some(connection) = self.clients.connections.get(id) else { return false };
        let (session, opcode) = (connection.session, frame.opcode);
        let Some(guest) = connection.guest.as_ref().filter(|guest| !guest.gives_back) else { return false };
        let is_open = matches!(connection.phase, Phase::Guest | Phase::Live(_));
        let is_next = is_open && connection.bars == 0 && !self.is_misplaced(id);
        let has_seen_more = entry_of(guest.seen.at(self.config.partition)) > self.timeline.applied_at().0;
        let is_full = self.leader.no_room_until_us.is_some();
        if !is_next || has_seen_more || is_full || !is_plain_write(opcode) {
            return false;
        }
        let request = opcode.and_then(|opcode| Request::decode(opcode, &mut frame.body()).ok());
        request.is_some_and(|request| self.admits_at_once(id, session, &request))
    }
}
