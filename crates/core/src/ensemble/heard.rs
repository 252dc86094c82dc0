//! The leader alone judges sessions, by what the others tell it of whom they have heard; who cannot tell it
//! sends its clients away before their sessions end.

use super::{Ensemble, server_id};
use crate::config::Now;
use crate::connection::{CloseReason, Phase};
use crate::peer::PeerMessage;
use crate::planted::Bug;
use crate::replica::Lead;
use crate::server::Server;
use alloc::vec::Vec;

/// Messages that say who was heard of, whose arrival is waited for.
const HEARD_IN_FLIGHT: usize = 8;

/// Clients learn after so much of their timeout that nobody may hear of them, which leaves them the rest
/// to find a server that has a leader; microseconds.
fn look_after_us(timeout_ms: i32) -> u64 {
    u64::try_from(timeout_ms).unwrap_or(0) * 1000 * 2 / 3
}

impl Ensemble {
    /// How long the client of a session may stay while this server only reads: there may be a leader
    /// that it could find, and that does not hear of it. `None` when it has to look for one now. A session
    /// that was last here is over, if there is such a leader, when its timeout has passed since that knew
    /// of this server's clients; of others it is not known when they were last heard of.
    pub(crate) fn stay(&self, was_here: bool, timeout_ms: i32, now: Now) -> Option<u64> {
        let over_us = self.known_until_us + u64::try_from(timeout_ms).unwrap_or(0) * 1000;
        let since_us = if was_here && over_us > now.mono_us { self.known_until_us } else { now.mono_us };
        Some(since_us + look_after_us(timeout_ms)).filter(|until| *until > now.mono_us)
    }
}

impl Server {
    /// Tells the leader whom this server has heard of since the last message of this kind that has
    /// arrived there.
    pub(super) fn tell_whom_we_heard(&mut self) {
        let now_us = self.now.mono_us;
        if self.replica.lead == Lead::Active {
            self.ensemble.known_until_us = now_us;
            return;
        }
        let leader = self.replica.leader;
        if leader == 0 || self.ensemble.heard_at_us > now_us {
            return;
        }
        self.ensemble.heard_at_us = now_us + u64::from(self.config.tick_ms) * 1000 / 2;
        let (connections, limits) = (&self.connections, &self.config.limits);
        let held_up = |id| connections.get(id).is_some_and(|connection| connection.is_held_up(limits));
        let mut sessions = self.sessions.heard_since(self.ensemble.known_until_us, self.now, held_up);
        if self.planted.is(Bug::HeardIsNotTold) {
            sessions.clear();
        }
        let in_flight = &mut self.ensemble.in_flight_heard;
        if in_flight.len() >= HEARD_IN_FLIGHT {
            in_flight.pop_front();
        }
        self.ensemble.heard_number += 1;
        let number = self.ensemble.heard_number;
        in_flight.push_back((number, now_us));
        let heard = PeerMessage::Heard { term: self.replica.term, number, sessions };
        self.ensemble.send(server_id(leader), &heard);
    }

    pub(super) fn heard_arrived(&mut self, number: u64) {
        let ensemble = &mut self.ensemble;
        while let Some((arrived, at_us)) = ensemble.in_flight_heard.pop_front_if(|(sent, _)| *sent <= number)
        {
            if arrived == number {
                ensemble.known_until_us = at_us;
            }
        }
    }

    /// Clients of a server that is cut off from the leader must learn it before their sessions end.
    pub(super) fn close_cut_off(&mut self) {
        let (known_us, now_us) = (self.ensemble.known_until_us, self.now.mono_us);
        let is_due = |timeout_ms: i32| now_us > known_us + look_after_us(timeout_ms);
        let least_ms = self.config.session_timeout_min_ms;
        if !is_due(least_ms) {
            return;
        }
        // A server without a vote waits for no election, and would not find out by itself. Then it takes
        // its time to hear of a leader again.
        if now_us > self.ensemble.forgotten_us + look_after_us(least_ms) {
            self.ensemble.forgotten_us = now_us;
            if let Some(carrier) = &mut self.carrier {
                carrier.group().forget_leader();
            }
        }
        let due = self.connections.iter().filter(|(_, connection)| match connection.phase {
            Phase::Live(_) | Phase::Guest => is_due(connection.timeout_ms),
            Phase::Opening { timeout_ms, .. } => is_due(timeout_ms),
            Phase::Handshake | Phase::ReadOnly | Phase::Closing => false,
        });
        let due: Vec<_> = due.map(|(id, _)| id).collect();
        for id in due {
            self.close(id, CloseReason::NoQuorum);
        }
    }
}
