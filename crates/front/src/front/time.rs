//! What a front does as time passes: it ends handshakes that take too long, tells the first partition whom it has
//! heard of, and asks how far partitions have come.

use super::Front;
use crate::config::Config;
use crate::connection::{CloseReason, Phase};
use crate::message::{FrontMessage, ToPartition};
use crate::route::bits;
use stoa_partition::Now;
use stoa_placement::FIRST;

impl Front {
    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        while let Some(&(deadline, id)) = self.pending.handshakes.front()
            && deadline <= now.mono_us
        {
            self.pending.handshakes.pop_front();
            if self.connections.get(id).is_some_and(|connection| connection.phase == Phase::Handshake) {
                self.close(id, CloseReason::HandshakeTimeout);
            }
        }
        self.tell_whom_we_heard(now);
        self.ask_how_far();
        self.send_away_who_waits(now);
    }

    /// Asks partitions that clients watch, and for whose sake they were told small zxids, how far they have
    /// come; who has nothing to do comes as far as the others.
    fn ask_how_far(&mut self) {
        for partition in bits(core::mem::take(&mut self.progress.behind)) {
            self.mail.messages.push_back((
                partition,
                FrontMessage::WatermarkWanted { position: 0, clock: self.progress.newest },
            ));
        }
    }

    /// What a read-only client waits for may never come here: then it looks for a server that has it.
    fn send_away_who_waits(&mut self, now: Now) {
        for id in core::mem::take(&mut self.pending.read_only) {
            let Some(route) = self.route(id) else { continue };
            let waits = route.requests.under_way > 0 || !route.delivery.undelivered.is_empty();
            let since_us = if waits { *route.waits_us.get_or_insert(now.mono_us) } else { now.mono_us };
            if since_us + self.config.patience_ms * 1000 <= now.mono_us {
                self.close(id, CloseReason::NoQuorum);
            } else {
                self.pending.read_only.push(id);
            }
        }
    }

    /// When [`Front::tick`] is next needed, microseconds. Whom this thread hears of, the first partition
    /// hears of well within the shortest timeout of a session.
    #[must_use]
    pub fn next_wake_us(&self) -> Option<u64> {
        let Config { tick_ms, session_timeout_min_ms, .. } = self.config;
        let tell_ms = tick_ms.min(session_timeout_min_ms.unsigned_abs() / 2) / 2;
        let tell = self.heard.since_us.map(|since| since + u64::from(tell_ms) * 1000);
        let handshake = self.pending.handshakes.front().map(|(deadline, _)| *deadline);
        let held = self.pending.held.front().map(|held| held.until_us);
        [tell, handshake, held].into_iter().flatten().min()
    }

    /// Tells the first partition whom this thread has heard of since the last time. A client that is not
    /// read from for the server's sake may have said something.
    fn tell_whom_we_heard(&mut self, now: Now) {
        for id in core::mem::take(&mut self.heard).clients {
            if let Some(route) = self.route(id) {
                route.is_heard = false;
                self.send(FIRST, id, ToPartition::Heard);
            }
            let connection = self.connections.get(id);
            if connection.is_some_and(|connection| connection.is_held_up(&self.config.limits)) {
                self.hear(id, now);
            }
        }
    }
}
