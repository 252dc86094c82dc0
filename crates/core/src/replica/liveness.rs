//! The leader alone judges sessions, by what the others tell it of whom they have heard; who cannot tell it
//! sends its clients away before their sessions end.

use crate::liveness::look_after_us;
use crate::peer::{Heard, PeerMessage};
use crate::replica::Replica;
use alloc::vec::Vec;
use stoa_front::{CloseReason, Phase};
use stoa_timeline::Lead;

impl Replica {
    /// Tells the leader whom this server has heard of since the last message of this kind that has
    /// arrived there.
    pub(crate) fn tell_whom_we_heard(&mut self) {
        let now_us = self.now.mono_us;
        if self.timeline.lead() == Lead::Active {
            self.sessions.liveness.leads(self.now);
            self.sessions.below.all_is_known();
            self.tell_readers_who_is_known();
            return;
        }
        let is_due = self.sessions.liveness.due_us <= now_us;
        let Some(leader) = self.timeline.leader().filter(|_| is_due) else { return };
        let (connections, limits) = (&self.clients.connections, &self.config.limits);
        let held_up = |id| connections.get(id).is_some_and(|connection| connection.is_held_up(limits));
        let since_us = self.sessions.liveness.known_until_us;
        let mut sessions = self.sessions.live.heard_since(since_us, self.now, held_up);
        if !self.sessions.below.is_none() {
            let (live, now) = (&self.sessions.live, self.now);
            let below = self.sessions.below.heard_since(since_us);
            let heard = |session| Some(Heard { session, silent_ms: live.silent_ms(session, now)? });
            sessions.extend(below.filter_map(heard));
        }
        let number = self.sessions.liveness.begin_message(self.config.tick_ms, now_us);
        let heard = PeerMessage::Heard { term: self.timeline.term(), number, sessions };
        match self.timeline.is_reader() {
            true => self.timeline.tell_parent(heard.encode()),
            false => self.timeline.send(leader, heard.encode()),
        }
    }

    /// Clients of a server that is cut off from the leader must learn it before their sessions end.
    pub(crate) fn close_cut_off(&mut self) {
        let (known_us, now_us) = (self.sessions.liveness.known_until_us, self.now.mono_us);
        let is_due = |timeout_ms: i32| now_us > known_us + look_after_us(timeout_ms);
        let least_ms = self.config.session_timeout_min_ms;
        if !is_due(least_ms) {
            return;
        }
        // A server without a vote waits for no election, and would not find out by itself. Then it takes
        // its time to hear of a leader again.
        if now_us > self.sessions.liveness.forgotten_us + look_after_us(least_ms) {
            self.sessions.liveness.forgotten_us = now_us;
            self.timeline.forget_leader();
        }
        let due = self.clients.connections.iter().filter(|(_, connection)| match connection.phase {
            Phase::Live(_) | Phase::Remote => is_due(connection.timeout_ms),
            Phase::Opening { timeout_ms, .. } => is_due(timeout_ms),
            Phase::Handshake | Phase::ReadOnly | Phase::Closing => false,
        });
        let due: Vec<_> = due.map(|(id, _)| id).collect();
        for id in due {
            self.close(id, CloseReason::NoQuorum);
        }
    }
}
