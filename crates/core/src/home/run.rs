//! What a client asks this thread's own partition, one request behind the other: by far the most, where
//! clients are connected to the thread that has what they ask for.

use super::{Home, is_saturated};
use crate::connection::{ConnectionId, Phase};
use crate::frame::Frame;
use crate::route::{Destination, may_watch};
use stoa_wire::next_frame;

impl Home {
    /// Hands such requests to `ask` and cuts them off `rest`, until something else comes: what holds for
    /// the first of them holds for all, and is looked at once. [`Home::take_frame`] says what becomes of
    /// the next one.
    pub(crate) fn hand_over_own<'a>(
        &mut self,
        id: ConnectionId,
        rest: &mut &'a [u8],
        mut ask: impl FnMut(ConnectionId, &Frame<'a>),
    ) {
        let limits = &self.config.limits;
        let mut room = limits.outstanding.saturating_sub(self.under_way.0 + self.connections.outstanding);
        let mut bytes_room = self.bytes_max.saturating_sub(self.under_way.1);
        let Some(connection) = self.connections.get_mut(id) else { return };
        room = room.min(limits.outstanding_per_connection.saturating_sub(connection.outstanding()));
        let is_next = connection.queue.is_empty() && connection.skip == 0;
        if !is_next || connection.phase != Phase::Guest || is_saturated(connection, &self.config) {
            return;
        }
        let (own, placed) = (self.config.partition, self.placement.version());
        let Some(route) = connection.route.as_deref_mut() else { return };
        let Some(guest) =
            route.guest.filter(|_| route.direct.is_none() && route.has_only_to_ask(own, placed))
        else {
            return;
        };
        let before = route.under_way;
        let mut last = None;
        while room > 0
            && bytes_room > 0
            && let Ok(Some((bytes, tail))) = next_frame(rest, limits.frame_bytes)
            && let Some(frame) = Frame::read(bytes)
            && route.destination(&self.placement, &frame) == Destination::Partition(own)
        {
            *rest = tail;
            room -= 1;
            bytes_room = bytes_room.saturating_sub(bytes.len());
            route.asks(own, placed, may_watch(&frame));
            Self::count(&mut self.under_way, route, bytes);
            ask(guest, &frame);
            last = Some((frame.opcode, frame.header.xid));
        }
        let Some((opcode, xid)) = last else { return };
        let count = u64::from(route.under_way - before);
        (connection.last_op, connection.last_xid) = (opcode, xid);
        connection.received += count;
        self.stats.packets_received += count;
        self.stats.kept += count;
    }
}
