//! What messages cost, where a run is to say how long things take: processor time for each message and byte, a network
//! card with so much bandwidth each way, and a way from server to server that takes a while. Without it messages take as
//! long as chance says, and processors nothing.

use super::HostId;
use std::collections::BTreeMap;

/// What things cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Processor time to send a message or to take one in, nanoseconds.
    pub message_ns: u64,
    /// Processor time for a KiB of it besides, nanoseconds.
    pub kib_ns: u64,
    /// What a server's network card sends, Mbit/s; 0 for no bound.
    pub up_mbit: u64,
    /// What it receives, Mbit/s; 0 for no bound.
    pub down_mbit: u64,
    /// What it takes a bit to get from server to server, or to a client, microseconds.
    pub hop_us: u64,
    /// What it takes a disk to store what a thread has handed to it, microseconds.
    pub store_us: u64,
    /// What it takes until others have noticed the end of a process, microseconds at most.
    pub noticed_us: u64,
}

/// Those of the research: 0.1 ms a hop, 5 microseconds a message, a gigabit each way, logs in memory.
impl Default for Costs {
    fn default() -> Self {
        Self {
            message_ns: 5_000,
            kib_ns: 300,
            up_mbit: 1_000,
            down_mbit: 1_000,
            hop_us: 100,
            store_us: 50,
            noticed_us: 1_000,
        }
    }
}

/// What a server has said and heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// Messages to other servers.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages of other servers.
    pub received: u64,
}

/// A server's processor and card: until when they are busy, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Busy {
    processor: u64,
    up: u64,
    down: u64,
}

/// What each server is busy with.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) costs: Costs,
    busy: BTreeMap<HostId, Busy>,
    exchanged: BTreeMap<HostId, Exchanged>,
}

/// What a message has besides its bytes: frames of ours, of TCP, of IP and of Ethernet.
const FRAME_BYTES: u64 = 90;

impl Traffic {
    pub(super) fn new(costs: Costs) -> Self {
        Self { costs, busy: BTreeMap::new(), exchanged: BTreeMap::new() }
    }

    pub(super) fn exchanged(&self, id: HostId) -> Exchanged {
        self.exchanged.get(&id).copied().unwrap_or_default()
    }

    /// From when on a server's processor is free, microseconds.
    pub(super) fn free_us(&self, id: HostId) -> u64 {
        self.busy.get(&id).map_or(0, |busy| busy.processor.div_ceil(1000))
    }

    /// Its process is another one.
    pub(super) fn begins(&mut self, id: HostId) {
        self.busy.remove(&id);
    }

    fn works(&mut self, id: HostId, now_us: u64, messages: u64, bytes: u64) -> u64 {
        let took = messages * self.costs.message_ns + bytes * self.costs.kib_ns / 1024;
        let busy = self.busy.entry(id).or_default();
        busy.processor = busy.processor.max(now_us * 1000) + took;
        busy.processor
    }

    /// A server takes in so many messages of others, and of clients.
    pub(super) fn takes_in(&mut self, id: HostId, now_us: u64, (of_servers, all, bytes): (u64, u64, u64)) {
        self.works(id, now_us, all, bytes);
        self.exchanged.entry(id).or_default().received += of_servers;
    }

    /// A server answers a client; returns when that arrives, microseconds.
    pub(super) fn answers(&mut self, id: HostId, now_us: u64, bytes: u64) -> u64 {
        self.works(id, now_us, 1, bytes).div_ceil(1000) + self.costs.hop_us
    }

    /// A server sends something to another one; returns when it is at that one's card, microseconds.
    pub(super) fn sends(&mut self, from: HostId, now_us: u64, bytes: u64) -> u64 {
        let left = self.works(from, now_us, 1, bytes);
        let said = self.exchanged.entry(from).or_default();
        (said.sent, said.sent_bytes) = (said.sent + 1, said.sent_bytes + bytes);
        let sender = self.busy.entry(from).or_default();
        sender.up = sender.up.max(left) + takes(bytes, self.costs.up_mbit);
        (sender.up + self.costs.hop_us * 1000).div_ceil(1000)
    }

    /// Something is at a server's card; returns when it has come in, microseconds: at once, as it comes in while it goes
    /// out elsewhere, but for what comes in besides.
    pub(super) fn receives(&mut self, to: HostId, now_us: u64, bytes: u64) -> u64 {
        let receiver = self.busy.entry(to).or_default();
        receiver.down = (now_us * 1000).max(receiver.down + takes(bytes, self.costs.down_mbit));
        receiver.down.div_ceil(1000)
    }
}

/// What a message takes on a wire, nanoseconds.
fn takes(bytes: u64, mbit: u64) -> u64 {
    (bytes + FRAME_BYTES) * 8000 / mbit.max(1) * u64::from(mbit > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_wait_for_processor_card_and_way() {
        let costs = Costs { message_ns: 10_000, kib_ns: 0, up_mbit: 8, down_mbit: 8, ..Costs::default() };
        let mut traffic = Traffic::new(costs);
        // 910 bytes and what is around them take a millisecond.
        assert_eq!(traffic.sends(1, 0, 910), 10 + 1000 + 100);
        assert_eq!(traffic.sends(1, 0, 910), 10 + 2000 + 100, "behind the first one");
        assert_eq!(traffic.free_us(1), 20);
        assert_eq!(traffic.receives(2, 1110, 910), 1110);
        assert_eq!(traffic.receives(2, 1200, 910), 2110, "two come in at a time");
        traffic.takes_in(2, 50, (1, 2, 0));
        assert_eq!(
            (traffic.free_us(2), traffic.exchanged(2).received, traffic.exchanged(1).sent),
            (70, 1, 2)
        );
        let free = Costs { up_mbit: 0, down_mbit: 0, ..costs };
        assert_eq!(Traffic::new(free).sends(1, 0, 1 << 30), 110);
    }
}
