//! Appends that come out once for all: who is fed, who is not, and what an acknowledgement that was passed on counts for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::Bytes;
use std::collections::BTreeMap;
use stoa_group::{Config, Group, Mark, Members, Message, Output, Restored};

/// Three members, of which the first leads. Disks store at once.
struct Three {
    groups: BTreeMap<u64, Group>,
    sent: Vec<Message>,
    spread: Vec<Message>,
    /// Who has been told where the timeline ends, and which question that was.
    answered: Vec<(u64, u64)>,
}

impl Three {
    fn new() -> Self {
        let base = Mark { position: 1, term: 1, members: Members::of_voters(&[1, 2, 3]) };
        let restored = Restored { base, ..Restored::default() };
        let group = |id| (id, Group::new(&Config::new(id, id), &restored).unwrap());
        let groups = [1, 2, 3].map(group).into();
        let mut three = Self { groups, sent: Vec::new(), spread: Vec::new(), answered: Vec::new() };
        three.leader().spread_to(1..=3);
        three.leader().campaign();
        three.talk();
        assert!(three.is_fed_again());
        three
    }

    fn leader(&mut self) -> &mut Group {
        self.groups.get_mut(&1).unwrap()
    }

    fn committed(&mut self) -> u64 {
        self.leader().status().committed
    }

    fn poll(&mut self) {
        for (id, group) in &mut self.groups {
            while let Some(output) = group.poll() {
                match output {
                    Output::Send(message) => self.sent.push(message),
                    Output::Spread(message) => self.spread.push(message),
                    Output::Store(store) => group.stored(store.number),
                    Output::Read { id: question, .. } => self.answered.push((*id, question)),
                    _ => {}
                }
            }
        }
    }

    /// What is sent to one member arrives; what is spread does not.
    fn talk(&mut self) {
        loop {
            self.poll();
            if self.sent.is_empty() {
                return;
            }
            for message in std::mem::take(&mut self.sent) {
                self.groups.get_mut(&message.to()).unwrap().step(message).unwrap();
            }
        }
    }

    fn tick(&mut self) {
        // A look comes with every heartbeat, which is every other tick here.
        for _ in 0..3 {
            self.leader().tick();
            self.talk();
        }
    }

    /// Who says nothing is sent to now and then, which is what these are for as long as nothing that is spread arrives.
    fn is_fed_again(&mut self) -> bool {
        (0..10).any(|_| {
            self.tick();
            self.leader().fed() == 2
        })
    }

    fn propose(&mut self) -> u64 {
        let position = self.leader().propose(Bytes::from_static(b"something")).unwrap();
        self.poll();
        position
    }
}

#[test]
fn an_append_comes_out_once_and_makes_of_each_what_one_of_its_own_would() {
    let mut three = Three::new();
    three.spread.clear();
    let position = three.propose();
    assert!(three.sent.is_empty(), "{:?}", three.sent);
    let [append] = &std::mem::take(&mut three.spread)[..] else { panic!("one append") };
    assert_eq!((append.to(), append.span().unwrap().last), (0, position));
    for to in [2, 3] {
        three.groups.get_mut(&to).unwrap().step(append.addressed(to)).unwrap();
    }
    three.poll();
    let acknowledged: Vec<_> =
        three.sent.drain(..).map(|it| (it.from(), it.acknowledges().unwrap())).collect();
    assert_eq!(acknowledged, [(2, position), (3, position)]);
    let term = three.leader().status().term;
    three.leader().acknowledge(term, acknowledged);
    three.talk();
    assert_eq!(three.committed(), position);
    // That it is committed comes out for all, too.
    let [append] = &three.spread[..] else { panic!("one append") };
    three.groups.get_mut(&2).unwrap().step(append.addressed(2)).unwrap();
    assert_eq!(three.groups[&2].status().committed, position);
}

#[test]
fn what_is_of_another_term_of_nobody_or_more_than_there_is_counts_for_nothing() {
    let mut three = Three::new();
    let position = three.propose();
    let before = three.committed();
    let term = three.leader().status().term;
    three.leader().acknowledge(term - 1, [(2, position)]);
    three.leader().acknowledge(term + 1, [(2, position)]);
    three
        .leader()
        .acknowledge(term, [(1, position), (4, position), (0, position), (2, position + 1), (3, u64::MAX)]);
    three.poll();
    assert_eq!(three.committed(), before);
    // One that follows is told by nobody.
    three.groups.get_mut(&2).unwrap().acknowledge(term, [(3, position)]);
    // The same member twice is one.
    three.leader().acknowledge(term, [(2, position - 1), (2, position)]);
    three.poll();
    assert_eq!(three.committed(), position);
}

#[test]
fn who_does_not_get_what_was_spread_is_sent_it_and_then_fed_again() {
    let mut three = Three::new();
    let position = three.propose();
    // Nothing of it arrives anywhere, and nobody says so.
    three.tick();
    three.tick();
    assert_eq!(three.committed(), position, "they were sent to");
    assert!(three.is_fed_again());
    // One that refuses lacks something: at once.
    three.propose();
    three.spread.clear();
    let last = three.propose();
    let append = three.spread.pop().unwrap();
    three.groups.get_mut(&3).unwrap().step(append.addressed(3)).unwrap();
    three.talk();
    assert_eq!((three.leader().fed(), three.committed()), (1, last));
}

#[test]
fn who_lags_and_comes_further_is_not_sent_to() {
    let mut three = Three::new();
    let (term, first) = (three.leader().status().term, three.propose());
    let last = (0..20).map(|_| three.propose()).last().unwrap();
    // Nothing that is spread arrives, and one of both is said to have more at each look.
    for position in first..last {
        three.leader().acknowledge(term, [(2, position)]);
        three.tick();
        assert!(three.leader().is_fed(2), "{position} of {last}");
    }
    // The other one stood still, and was sent all of it.
    assert_eq!(three.committed(), last);
}

#[test]
fn whom_the_lead_is_handed_to_is_sent_what_it_lacks() {
    let mut three = Three::new();
    three.propose();
    three.leader().transfer(2);
    three.talk();
    three.tick();
    three.tick();
    assert_eq!(three.groups[&2].status().leader, 2);
    assert_eq!(three.leader().fed(), 0, "it leads no more");
    // It sends to all, as they were never fed by it.
    let position = {
        let second = three.groups.get_mut(&2).unwrap();
        second.propose(Bytes::from_static(b"more")).unwrap()
    };
    three.talk();
    assert!(three.groups.values().all(|group| group.status().last == position));
}

#[test]
fn a_question_is_answered_when_more_than_half_have_heard_of_its_round() {
    let mut three = Three::new();
    let term = three.leader().status().term;
    three.spread.clear();
    three.leader().read(7);
    three.leader().read(8);
    // That of another member comes with a message, and is in the same round.
    three.groups.get_mut(&2).unwrap().read(9);
    let asked = |it: &mut Group| std::iter::from_fn(|| it.poll()).collect::<Vec<Output>>();
    let [Output::Send(question)] = &asked(three.groups.get_mut(&2).unwrap())[..] else { panic!("one") };
    three.leader().step(question.clone()).unwrap();
    three.talk();
    assert!(three.sent.is_empty(), "nobody is asked directly: {:?}", three.sent);
    let [append] = &three.spread[..] else { panic!("one append for all: {:?}", three.spread) };
    assert_eq!(append.place().map(|(previous, last)| last - previous), Some(0));
    let round = three.leader().round();
    // Of another term, not a member, the leader itself, a round that has not begun, one from before.
    three.leader().confirm(term + 1, [(2, round)]);
    three.leader().confirm(term - 1, [(2, round)]);
    three.leader().confirm(term, [(4, round), (0, round), (1, round), (2, round + 1), (3, round - 1)]);
    three.talk();
    assert_eq!(three.answered, []);
    three.leader().confirm(term, [(3, round)]);
    three.talk();
    assert_eq!(three.answered, [(1, 7), (1, 8), (2, 9)]);
}

#[test]
fn who_has_heard_of_a_round_has_not_heard_of_the_next_one() {
    let mut three = Three::new();
    let term = three.leader().status().term;
    for question in [7, 8] {
        three.leader().read(question);
        three.poll();
    }
    let round = three.leader().round();
    three.leader().confirm(term, [(2, round - 1)]);
    three.talk();
    assert_eq!(three.answered, [(1, 7)]);
    // One of whom was heard twice is one, and there are others whom nobody has heard of.
    three.leader().confirm(term, [(2, round - 1), (2, round - 1), (3, round - 1)]);
    three.talk();
    assert_eq!(three.answered, [(1, 7)]);
    three.leader().confirm(term, [(2, round)]);
    three.talk();
    assert_eq!(three.answered, [(1, 7), (1, 8)]);
}

#[test]
fn a_round_of_which_nobody_hears_is_asked_directly() {
    let mut three = Three::new();
    three.leader().read(7);
    three.talk();
    assert_eq!(three.answered, []);
    for _ in 0..3 {
        three.tick();
    }
    assert_eq!(three.answered, [(1, 7)]);
}

/// How many ticks go by before a member that hears nothing wants to lead.
fn waits(rank: Option<usize>) -> usize {
    let base = Mark { position: 1, term: 1, members: Members::of_voters(&[1, 2, 3]) };
    let mut group = Group::new(&Config::new(1, 7), &Restored { base, ..Restored::default() }).unwrap();
    group.set_rank(rank);
    let asks = |group: &mut Group| {
        group.tick();
        std::iter::from_fn(|| group.poll()).any(|output| matches!(output, Output::Send(_)))
    };
    1 + std::iter::repeat_with(|| asks(&mut group)).take_while(|asks| !asks).count()
}

#[test]
fn with_a_rank_one_wants_to_lead_after_the_other_and_everybody_in_the_end() {
    let least = Config::new(1, 7).election_ticks + 1;
    for rank in [0, 1, 5, 253, 1000] {
        assert_eq!(waits(Some(rank)), least + rank);
    }
    assert_eq!(waits(Some(usize::MAX)), least + 1000);
    assert!((least - 1..2 * least).contains(&waits(None)));
}
