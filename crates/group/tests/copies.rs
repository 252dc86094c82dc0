//! A disk of a member that voted alone was copied, and two go on from it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::Bytes;
use stoa_group::{Change, Config, Group, Mark, Message, Output, Restored, StepError};

/// A member, its disk, and what it takes for committed.
struct Member {
    group: Group,
    disk: Restored,
    sent: Vec<Message>,
    committed: Vec<Bytes>,
}

impl Member {
    fn starts(id: u64, disk: Restored, skipped_terms: u64) -> Self {
        let group = Group::new(&Config { skipped_terms, ..Config::new(id, id) }, &disk).unwrap();
        Self { group, disk, sent: Vec::new(), committed: Vec::new() }
    }

    fn poll(&mut self) {
        while let Some(output) = self.group.poll() {
            match output {
                Output::Send(message) => self.sent.push(message),
                Output::Store(store) => {
                    self.disk.replay(store.encode().join()).unwrap();
                    self.group.stored(store.number);
                }
                Output::Committed(entries) => {
                    self.committed.extend(entries.into_iter().map(|entry| entry.payload));
                }
                _ => {}
            }
        }
    }

    /// Votes for itself and writes so much, which is committed at once.
    fn alone(mut self, what: &'static str, count: usize) -> Self {
        self.group.campaign();
        self.poll();
        for _ in 0..count {
            self.group.propose(Bytes::from_static(what.as_bytes())).unwrap();
            self.poll();
        }
        assert_eq!(self.group.status().committed, self.group.status().last);
        self
    }
}

/// One goes on, having skipped so many terms and written so much, and so does a copy of its disk, if it does. Then the copy
/// is another member's, which is to listen: what the two refuse, and what the copy takes for committed from then on.
fn meet(one: (u64, usize), copy: Option<(u64, usize)>) -> (Vec<StepError>, Vec<Bytes>) {
    let founded = Restored { base: Mark::founding(&[1]), ..Restored::default() };
    let disk = Member::starts(1, founded, 0).alone("both", 2).disk;
    let goes_on = |(skipped, written)| Member::starts(1, disk.clone(), skipped).alone("copy", written).disk;
    let mut two = Member::starts(2, copy.map_or_else(|| disk.clone(), goes_on), 0);
    let mut one = Member::starts(1, disk, one.0).alone("one", one.1);
    two.poll();
    two.committed.clear();
    one.group.propose_changes(&[Change::AddLearner(2)]).unwrap();
    let mut refused = Vec::new();
    for _ in 0..40 {
        one.group.tick();
        one.poll();
        for message in one.sent.drain(..) {
            refused.extend(two.group.step(message).err());
        }
        two.poll();
        for message in two.sent.drain(..) {
            refused.extend(one.group.step(message).err());
        }
        one.poll();
    }
    (refused, two.committed)
}

#[test]
fn what_two_have_written_by_themselves_is_never_taken_for_the_same() {
    for written in [[3, 3], [9, 3], [3, 9], [1, 40], [40, 2]] {
        let (refused, committed) = meet((5, written[0]), Some((9, written[1])));
        assert!(refused.contains(&StepError::Contradiction), "{written:?}: {refused:?}");
        assert!(committed.iter().all(|payload| payload != "one"), "{written:?}: {committed:?}");
    }
}

/// Why terms are skipped.
#[test]
fn with_the_same_terms_the_two_cannot_be_told_apart() {
    let (refused, committed) = meet((0, 9), Some((0, 3)));
    assert!(refused.is_empty() && committed.iter().any(|payload| payload == "one"), "{refused:?}");
}

#[test]
fn a_copy_that_did_not_go_on_follows() {
    let (refused, committed) = meet((5, 9), None);
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(committed.iter().filter(|payload| **payload == "one").count(), 9);
}
