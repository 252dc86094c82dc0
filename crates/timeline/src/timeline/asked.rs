//! What is asked: requests for the leader, and where the log ends.

use super::{FIRST, Output, PartitionMessage, Timeline};
use crate::barriers::Barrier;
use crate::message::{Forward, Message};
use crate::progress::Lead;
use crate::reader_message::{Down, Up};
use crate::requests::{Origin, Requests, Stream};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use bytes::Bytes;

/// About how many bytes of requests one message carries.
const FORWARD_BYTES: usize = 1 << 20;

impl<C: Copy + Ord> Timeline<C> {
    // ---- barriers ----

    /// A question where the timeline ends, on behalf of somebody; returns its number.
    pub fn barrier(&mut self, who: C) -> u64 {
        let barrier = self.barriers.next(self.now_us);
        barrier.waiting.push(who);
        barrier.id()
    }

    /// The same on behalf of the server's first partition.
    pub fn barrier_for_first(&mut self) {
        self.barriers.next(self.now_us).is_for_first = true;
    }

    /// A barrier that falls when this position has been applied.
    pub fn barrier_at(&mut self, who: C, position: u64) -> u64 {
        self.barriers.at(position, who, self.now_us)
    }

    /// Whether the answer to this question has not come, or not been reached.
    #[must_use]
    pub fn is_waiting(&self, barrier: u64) -> bool {
        self.barriers.is_waiting(barrier)
    }

    /// The next barrier, from `at` on, that falls with what is applied now; `at` moves on to where to look next.
    pub fn fallen_barrier(&mut self, at: &mut usize) -> Option<Barrier<C>> {
        let fallen = self.barriers.fallen(self.progress.applied.0, at);
        if let Some(barrier) = fallen.as_ref().filter(|_| !self.readers.children.is_empty()) {
            self.answer_readers(barrier);
        }
        fallen
    }

    /// Readers that have what is applied here see what they have asked for.
    fn answer_readers(&mut self, barrier: &Barrier<C>) {
        let position = self.progress.applied.0;
        for who in &barrier.waiting {
            let Some(child) = self.readers.children.get_mut(who) else { continue };
            let answered = child.questions.extract_if(.., |(id, _)| *id == barrier.id());
            let questions: Vec<u64> = answered.map(|(_, question)| question).collect();
            for question in questions {
                self.readers.say(*who, Down::Answer { question, position });
            }
        }
    }

    pub(super) fn ask_barriers(&mut self) {
        if let Some(question) = self.barriers.take_unasked(self.now_us) {
            self.ask_log(question);
        }
    }

    pub(super) fn ask_log(&mut self, question: u64) {
        if self.is_reader() {
            return self.say_up(Up::Question(question));
        }
        match &mut self.log {
            Some(log) => log.ask(FIRST, question),
            None => self.outbox.partitions.push_back((FIRST, PartitionMessage::Ask(question))),
        }
    }

    // ---- requests ----

    /// The server that clients of this one are connected to, for the ensemble: at a reader the member that asks in its
    /// place.
    #[must_use]
    #[inline]
    pub fn contact_server(&self) -> u8 {
        self.requests.server()
    }

    /// What the next request is called that is asked here.
    #[must_use]
    pub fn next_request(&self) -> Origin {
        self.requests.next()
    }

    /// Number of the oldest request without outcome.
    #[must_use]
    pub fn first_request(&self) -> u64 {
        self.requests.first()
    }

    /// A request for whoever leads.
    pub fn ask(&mut self, who: C, asked: Vec<u8>) {
        self.requests.ask(who, asked.into());
    }

    /// A request that was prepared here, because this server leads.
    pub fn prepared(&mut self, who: C) {
        self.requests.prepared(who);
    }

    /// Whether all requests are with the leader.
    #[must_use]
    pub fn are_given(&self) -> bool {
        self.requests.are_given()
    }

    /// Bytes of requests that are kept until they have an outcome.
    #[must_use]
    pub fn asked_bytes(&self) -> usize {
        self.requests.bytes()
    }

    /// An outcome: whose request it was, if it was asked here, and the request if that was kept. Those asked before it
    /// have none, and never will: who asked them is handed to `lost`.
    #[inline]
    pub fn outcome(&mut self, origin: Origin, lost: impl FnMut(C)) -> Option<(C, Bytes)> {
        if self.readers.children.is_empty() {
            return self.requests.outcome(origin, lost);
        }
        self.telling_readers(lost, |requests, lost| requests.outcome(origin, lost))
    }

    /// Does something of which some requests come to nothing. A reader whose requests these are begins anew: it cannot
    /// tell which.
    fn telling_readers<T>(
        &mut self,
        mut lost: impl FnMut(C),
        does: impl FnOnce(&mut Requests<C>, &mut dyn FnMut(C)) -> T,
    ) -> T {
        let mut of_readers = BTreeSet::new();
        let children = &self.readers.children;
        let done = does(&mut self.requests, &mut |who| {
            if children.contains_key(&who) {
                of_readers.insert(who);
            } else {
                lost(who);
            }
        });
        for reader in of_readers {
            self.readers.drop_child(reader, "what became of its requests is not known");
        }
        done
    }

    /// Nothing is known of any request, and never will be.
    pub fn forget_requests(&mut self, lost: impl FnMut(C)) {
        self.telling_readers(lost, |requests, lost| requests.forget(lost));
    }

    /// Gives what was asked here to whoever leads.
    pub(super) fn give_requests(&mut self, prepares: bool) -> Option<Output> {
        if self.is_reader() {
            if !self.requests.are_given() {
                self.give_to_parent(FORWARD_BYTES);
            }
            return None;
        }
        if self.requests.are_given() || !self.is_settled() {
            return None;
        }
        if prepares {
            let (first, asked) = self.requests.give(FORWARD_BYTES)?;
            return Some(Output::Asked { server: self.config.server, first, asked });
        }
        let leader = self.leader().filter(|_| self.progress.lead == Lead::No)?;
        let term = self.progress.term;
        self.requests.given_at_us = self.now_us;
        while let Some((first, asked)) = self.requests.give(FORWARD_BYTES) {
            let (stream, base) = (self.requests.stream(), self.requests.first());
            let forward = Message::Forward(Forward { term, stream, base, first, asked });
            self.say(leader, forward);
        }
        None
    }

    /// At the leader: requests of another server's clients. Returns those that are new.
    pub(super) fn take_forwarded(&mut self, from: u8, forward: Forward) -> Option<(u64, Vec<Bytes>)> {
        let Forward { term, stream, base, first, mut asked } = forward;
        if !self.leads() || term != self.progress.term || !self.is_member(from) {
            // The sender gives them again, to whoever leads then.
            return None;
        }
        let taken = self.streams.entry(from).or_insert(Stream { stream, expected: base });
        if taken.stream != stream {
            *taken = Stream { stream, expected: base };
        }
        taken.expected = taken.expected.max(base);
        let Some(known) = taken.taken_of(first) else {
            let (stream, expected) = (taken.stream, taken.expected);
            self.say(from, Message::Missing { term, stream, expected });
            return None;
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(asked.len());
        asked.drain(..known);
        let first = first + known as u64;
        taken.expected = taken.expected.max(first + asked.len() as u64);
        Some((first, asked))
    }
}
