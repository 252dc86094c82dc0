//! One server leads all partitions (AGORA, section IV-B): whoever leads the first one.
//!
//! The groups elect by themselves; what is added here only makes them agree. A thread whose partition has
//! no leader tries to lead it as soon as its server leads the first one. If it cannot, because another
//! server's timeline is longer, that one will lead, and is asked for the lead: the engine brings the
//! chosen server up to date before it gives way. Nobody prepares requests before the first partition's
//! leader does: what became of sessions is known by then.

use crate::ensemble::server_id;
use crate::peer::PeerMessage;
use crate::placement::FIRST;
use crate::replica::Lead;
use crate::server::Server;
use crate::word::Word;

impl Server {
    /// At the first partition: tells the others who leads, when that has changed.
    pub(crate) fn tell_leader(&mut self) {
        if !self.has_sessions() || self.stamp.is_empty() {
            return;
        }
        let prepares = self.replica.lead == Lead::Active;
        let told = (server_id(self.replica.leader), prepares);
        if self.told_leader == Some(told) {
            return;
        }
        self.told_leader = Some(told);
        for partition in (0..self.placement.partitions()).filter(|partition| *partition != FIRST) {
            self.say(partition, Word::Leader { server: told.0, prepares });
        }
    }

    /// The first partition's leader is another one.
    pub(crate) fn leader_told(&mut self, server: u8, prepares: bool) {
        self.chosen = server;
        self.may_prepare = prepares;
        if prepares {
            self.owners.nothing_is_decided();
        } else {
            // What was taken waits. Who stands still goes on doing so until it is told to go on: it has said
            // what will be at a position of this term.
            self.give_up();
            self.try_to_stand();
        }
        self.follow_chosen();
        self.pump();
    }

    /// Sees to it that this server leads the partition if it leads the first one. Who leads it meanwhile gives
    /// way when it is asked. Nobody gives way by himself: he may know less of who leads than who asks.
    pub(crate) fn follow_chosen(&mut self) {
        if self.has_sessions() || !self.is_chosen() {
            return;
        }
        let leader = server_id(self.replica.leader);
        if leader == 0 {
            self.replica.group().campaign();
        } else if leader != self.config.server_id {
            self.ensemble.send(leader, &PeerMessage::LeadWanted);
        }
    }

    fn is_chosen(&self) -> bool {
        self.chosen == self.config.server_id
    }

    /// Another server leads the first partition, and wants to lead this one: the engine brings it up to date
    /// first. It cannot as long as it has no vote here.
    pub(crate) fn lead_wanted(&mut self, by: u8) {
        if !self.has_sessions() && !self.is_chosen() && self.replica.lead != Lead::No {
            self.replica.group().transfer(u64::from(by));
        }
    }

    /// Somebody else should lead if this server is elected and cannot apply what it leads with: a part waits
    /// for another partition, to whose group this server does not belong yet, or does not any more. Who it is
    /// may be in the same position: so all whom this server reaches have their turn. Who comes after it in their order
    /// alone would not do, since those who pass it on to each other may not reach whoever could lead.
    pub(crate) fn pass_on_if_stuck(&mut self) {
        let is_stuck = self.replica.lead == Lead::Elected && !self.stamp.is_empty();
        let heartbeats = if is_stuck { self.ensemble.stuck_heartbeats + 1 } else { 0 };
        self.ensemble.stuck_heartbeats = heartbeats;
        if heartbeats < 2 * self.config.election_heartbeats {
            return;
        }
        self.ensemble.stuck_heartbeats = 0;
        let voters = self.replica.members().voters;
        // Who lacks something might need a snapshot, and of a state that waits there is none.
        let status = self.replica.status();
        let has_all =
            |voter: u64| status.matched.iter().any(|(id, at)| *id == voter && *at >= status.committed);
        let may = |voter: u64| self.reachable.connected.contains(&server_id(voter)) && has_all(voter);
        if let Some(next) = next_in_turn(&voters, self.ensemble.passed_to, may) {
            self.ensemble.passed_to = next;
            self.replica.group().transfer(next);
        }
    }
}

/// The one behind `last`, round and round, of those that may have it.
fn next_in_turn(voters: &[u64], last: u64, may: impl Fn(u64) -> bool) -> Option<u64> {
    let of =
        |is_behind: bool| voters.iter().copied().find(|voter| (*voter > last) == is_behind && may(*voter));
    of(true).or_else(|| of(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_may_lead_have_their_turn() {
        // The third of five passes the lead on, and the fifth cannot have it.
        let mut last = 3;
        let mut turns = Vec::new();
        for _ in 0..5 {
            last = next_in_turn(&[1, 2, 3, 4, 5], last, |voter| ![3, 5].contains(&voter)).unwrap();
            turns.push(last);
        }
        assert_eq!(turns, [4, 1, 2, 4, 1]);
        assert_eq!(next_in_turn(&[1, 2], 1, |_| false), None);
    }
}
