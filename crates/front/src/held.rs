//! What is written for a client and not sent before another site has what an answer in it is about.
//!
//! Nothing else about the client waits: what it asks is carried out in its turn. So a read sees what it would see if its
//! answer left at once, and what was asked behind it does not show in it. Whatever is written behind an answer that waits,
//! waits with it, events too: a client that hears of an event before it hears that it watches would not know it.

use crate::connection::{ConnectionId, Connections};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use stoa_wire::Opcode;

/// Where something stands in the log, and its zxid.
pub type Place = (u64, i64);

/// An answer that was written, and is counted when it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldReply {
    /// The request's opcode.
    pub opcode: Opcode,
    /// When it was asked.
    pub arrived_us: u64,
    /// The zxid in its header.
    pub zxid: i64,
    /// Where it ends in what waits, counted from the first byte that ever waited.
    end: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    /// So many of them have been let go, ...
    start: usize,
    /// ... and so many in all.
    gone: u64,
    /// What another site has to have, and where the bytes begin that wait for it.
    gates: VecDeque<(Place, u64)>,
    replies: VecDeque<HeldReply>,
}

impl Held {
    fn end(&self) -> u64 {
        self.gone + self.bytes().len() as u64
    }

    /// How many answers another site has to have something for.
    pub(crate) fn waits(&self) -> usize {
        self.gates.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Takes out what need not wait any more. Returns how many answers waited for that which is there now.
    fn let_go(
        &mut self,
        is_there: impl Fn(Place) -> bool,
        out: &mut Vec<u8>,
        replies: &mut Vec<HeldReply>,
    ) -> usize {
        let mut opened = 0;
        while self.gates.pop_front_if(|(place, _)| is_there(*place)).is_some() {
            opened += 1;
        }
        let upto = self.gates.front().map_or(self.end(), |(_, begins)| *begins);
        let len = usize::try_from(upto - self.gone).unwrap_or(usize::MAX).min(self.bytes().len());
        out.extend_from_slice(&self.bytes()[..len]);
        (self.start, self.gone) = (self.start + len, self.gone + len as u64);
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        while let Some(reply) = self.replies.pop_front_if(|reply| reply.end <= upto) {
            replies.push(reply);
        }
        opened
    }
}

impl Connections {
    /// What is written for a connection from now on waits until another site has what stands at a place.
    pub fn hold(&mut self, id: ConnectionId, place: Place) {
        let Some(connection) = self.get_mut(id) else { return };
        let held = connection.held_mut().get_or_insert_default();
        let begins = held.end();
        held.gates.push_back((place, begins));
        self.outstanding += 1;
    }

    /// An answer was written, and waits with everything before it.
    pub fn note_held(&mut self, id: ConnectionId, opcode: Opcode, arrived_us: u64, zxid: i64) {
        let held = self.get_mut(id).and_then(|connection| connection.held_mut().as_mut());
        if let Some(held) = held {
            let end = held.end();
            held.replies.push_back(HeldReply { opcode, arrived_us, zxid, end });
        }
    }

    /// Lets go what another site has now. Returns the answers in it.
    pub fn let_go(&mut self, id: ConnectionId, is_there: impl Fn(Place) -> bool) -> Vec<HeldReply> {
        let (mut bytes, mut replies) = (Vec::new(), Vec::new());
        let Some(mut held) = self.get_mut(id).and_then(|connection| connection.held_mut().take()) else {
            return replies;
        };
        self.outstanding -= held.let_go(is_there, &mut bytes, &mut replies);
        if !bytes.is_empty()
            && let Some(output) = self.output_at_once(id)
        {
            output.extend_from_slice(&bytes);
        }
        self.keep_held(id, held);
        replies
    }

    fn keep_held(&mut self, id: ConnectionId, held: Box<Held>) {
        if held.waits() > 0
            && let Some(connection) = self.get_mut(id)
        {
            *connection.held_mut() = Some(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};
    use stoa_partition::Now;

    #[test]
    fn what_is_written_stays_in_order_and_waits_for_its_place() {
        let (mut connections, now) = (Connections::default(), Now { mono_us: 1, wall_ms: 1 });
        let id = connections.insert(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1), now);
        let unsent = |connections: &Connections| connections.get(id).unwrap().unsent().to_vec();
        let write = |connections: &mut Connections, bytes: &[u8]| {
            connections.output(id).unwrap().extend_from_slice(bytes);
        };
        write(&mut connections, b"a");
        connections.hold(id, (5, 50));
        write(&mut connections, b"b");
        connections.note_held(id, Opcode::Create, 7, 50);
        write(&mut connections, b"event");
        connections.hold(id, (6, 60));
        connections.hold(id, (7, 70));
        write(&mut connections, b"c");
        connections.note_held(id, Opcode::SetData, 8, 70);
        connections.output_at_once(id).unwrap().extend_from_slice(b"ping");
        let connection = connections.get(id).unwrap();
        assert_eq!((unsent(&connections), connection.outstanding()), (b"aping".to_vec(), 3));
        assert_eq!((connection.output_bytes(), connections.outstanding()), (12, 3));
        let opcodes = |replies: Vec<HeldReply>| replies.iter().map(|reply| reply.opcode).collect::<Vec<_>>();
        assert_eq!(opcodes(connections.let_go(id, |place| place.0 > 5)), [], "the first one is not there");
        assert_eq!(opcodes(connections.let_go(id, |place| place.0 < 6)), [Opcode::Create]);
        assert_eq!((unsent(&connections), connections.outstanding()), (b"apingbevent".to_vec(), 2));
        assert_eq!(opcodes(connections.let_go(id, |place| place.0 < 7)), []);
        assert_eq!(unsent(&connections), b"apingbevent");
        assert_eq!(opcodes(connections.let_go(id, |_| true)), [Opcode::SetData]);
        assert_eq!((unsent(&connections), connections.outstanding()), (b"apingbeventc".to_vec(), 0));
        assert!(!connections.get(id).unwrap().is_held());
        write(&mut connections, b"d");
        assert_eq!(unsent(&connections), b"apingbeventcd");
        connections.hold(id, (9, 90));
        connections.remove(id);
        assert_eq!(connections.outstanding(), 0);
    }
}
