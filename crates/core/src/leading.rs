//! One server leads all partitions (AGORA, section IV-B): whoever leads the first one.
//!
//! The groups elect by themselves; what is added here only makes them agree. A thread whose partition has
//! no leader tries to lead it as soon as its server leads the first one. If it cannot, because another
//! server's timeline is longer, that one will lead, and hands the lead over: the engine brings the
//! chosen server up to date before it gives way. Nobody prepares requests before the first partition's
//! leader does: what became of sessions is known by then.

use crate::ensemble::server_id;
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
        if !prepares {
            // What was taken waits. Who stands still goes on doing so until it is told to go on: it has said
            // what will be at a position of this term.
            self.give_up();
            self.try_to_stand();
        }
        self.follow_chosen();
        self.pump();
    }

    /// Sees to it that the server that leads the first partition leads this one.
    pub(crate) fn follow_chosen(&mut self) {
        let own = server_id(self.replica.id());
        if self.has_sessions() || self.chosen == 0 {
            return;
        }
        if self.chosen == own {
            if self.replica.leader == 0 {
                self.replica.group().campaign();
            }
        } else if self.replica.lead != Lead::No {
            self.replica.group().transfer(u64::from(self.chosen));
        }
    }
}
