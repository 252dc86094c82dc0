//! What a client asks this thread's own partition, one request behind the other: by far the most, where
//! clients are connected to the thread that has what they ask for.

use super::Front;
use crate::connection::{ConnectionId, Phase};
use crate::frame::Frame;
use stoa_wire::next_frame;

impl Front {
    /// Hands such requests to `ask` and cuts them off `rest`, until something else comes: what holds for
    /// the first of them holds for all, and is looked at once. [`Front::take_frame`] says what becomes of
    /// the next one.
    pub fn hand_over_own<'a>(
        &mut self,
        id: ConnectionId,
        rest: &mut &'a [u8],
        mut ask: impl FnMut(ConnectionId, &Frame<'a>),
    ) {
        // The audit log is told of each by itself.
        if self.connections.is_audited() {
            return;
        }
        let limits = &self.config.limits;
        let room =
            limits.outstanding.saturating_sub(self.under_way.requests + self.connections.outstanding());
        let bytes_room = self.under_way.bytes_max.saturating_sub(self.under_way.bytes);
        let Some(connection) = self.connections.get_mut(id) else { return };
        let room = room.min(limits.outstanding_per_connection.saturating_sub(connection.outstanding()));
        let is_next = connection.queue.slots.is_empty() && connection.input.skip == 0;
        if !is_next || connection.phase != Phase::Remote || connection.is_saturated(&self.config.limits) {
            return;
        }
        let (own, placed) = (self.config.partition, self.placement.version());
        let Some(route) = connection.route.as_deref_mut() else { return };
        let Some(remote) =
            route.remote.filter(|_| route.direct.is_none() && route.has_only_to_ask(own, placed))
        else {
            return;
        };
        let (mut count, mut count_bytes, mut watches) = (0, 0, false);
        let mut last = None;
        while count < room
            && count_bytes < bytes_room
            && let Ok(Some((bytes, tail))) = next_frame(rest, limits.frame_bytes)
            && let Some(frame) = Frame::read(bytes)
            && let Some(may_watch) = route.goes_to(own, &self.placement, &frame)
        {
            *rest = tail;
            count += 1;
            count_bytes += bytes.len();
            watches |= may_watch;
            ask(remote, &frame);
            last = Some((frame.opcode, frame.header.xid));
        }
        let Some((opcode, xid)) = last else { return };
        route.asks(own, placed, watches);
        self.under_way.count(route, count, count_bytes);
        (connection.traffic.last_op, connection.traffic.last_xid) = (opcode, xid);
        connection.traffic.received += count as u64;
        self.stats.packets_received += count as u64;
        self.stats.kept += count as u64;
    }
}
