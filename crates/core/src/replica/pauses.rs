//! What greedy calls and reactions cost: time, in which others are served.
//!
//! A call is carried out on the thread that prepares everybody's requests, so nothing can be taken from a call that
//! is under way without taking it from all. What can be bounded is how often that happens. A call that takes more
//! than half of the steps it may, or is stopped by a limit, has to be paid for with many times its own time. The
//! pauses of all sessions follow one another, so it does not help to have many. Who is told of such a call is not
//! listened to for as long, by its contact server; what it had asked already by then is refused.
//!
//! A reaction is paid for by its program, for it is nobody's request: as long as that is suspended it reacts to
//! nothing. It is told of nothing later either, since what it does has to be in the update that it reacts to. The
//! price is that of a call and does not grow with the times: who goes on is bounded to the same small share of the
//! time for as long as it does, and a program that was greedy once soon works again.
//!
//! All of that is the leader's, and is gone with it: the next one begins without.

use crate::replica::Replica;
use stoa_front::{ConnectionId, Slot};

impl Replica {
    /// What a connection asks from now on waits for so long.
    pub(crate) fn pause(&mut self, id: ConnectionId, pause_us: u32) {
        if pause_us > 0 && self.clients.connections.get(id).is_some() {
            let until_us = self.now.mono_us + u64::from(pause_us);
            self.clients.connections.push_slot(id, Slot::Pause { until_us });
            self.clients.pauses.insert((until_us, id));
        }
    }

    /// Lets those go on whose pause is over.
    pub(crate) fn end_pauses(&mut self) {
        while let Some((until_us, id)) = self.clients.pauses.first().copied()
            && until_us <= self.now.mono_us
        {
            self.clients.pauses.remove(&(until_us, id));
            self.drain(id);
        }
    }

    /// When the next pause is over.
    pub(crate) fn next_pause_end_us(&self) -> Option<u64> {
        self.clients.pauses.first().map(|(until_us, _)| *until_us)
    }
}
