//! One server leads all partitions: whoever leads the log that they share (AGORA, section IV-B). Nobody prepares
//! requests before the first partition does: what became of sessions is known by then.

use crate::placement::FIRST;
use crate::replica::Lead;
use crate::server::Server;
use crate::word::Word;

impl Server {
    /// At the first partition: tells the others in which term they may prepare requests, when that has changed.
    pub(crate) fn tell_leader(&mut self) {
        if !self.has_sessions() || self.stamp.is_empty() {
            return;
        }
        let prepares = self.replica.lead == Lead::Active && !self.is_handing_over();
        let term = if prepares { self.replica.term } else { 0 };
        if self.prepares_in == term {
            return;
        }
        self.prepares_in = term;
        for partition in (0..self.placement.partitions()).filter(|partition| *partition != FIRST) {
            self.say(partition, Word::Prepares { term });
        }
    }

    /// The first partition prepares requests in this term, or does not.
    pub(crate) fn prepares_told(&mut self, term: u64) {
        self.prepares_in = term;
        if term > 0 {
            self.owners.nothing_is_decided();
        } else {
            // What was taken waits. Who stands still goes on doing so until it is told to go on: it has said
            // what will be at a position of this term.
            self.give_up();
            self.try_to_stand();
        }
        self.pump();
    }
}
