//! Who leads: what a member says of it, and what it does with what was meant for a leader.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use stoa_group::{Config, Group, Mark, Members, Message, Output, Restored};

struct Member {
    group: Group,
    sent: Vec<Message>,
    /// Stores that are not durable yet.
    stores: Vec<u64>,
    /// The leader, each time that one was told of.
    leaders: Vec<u64>,
}

impl Member {
    fn new(id: u64) -> Self {
        Self::begins_with(id, Mark { position: 1, term: 1, members: Members::of_voters(&[1, 2, 3]) })
    }

    fn begins_with(id: u64, base: Mark) -> Self {
        let restored = Restored { base, ..Restored::default() };
        let group = Group::new(&Config::new(id, id), &restored).unwrap();
        Self { group, sent: Vec::new(), stores: Vec::new(), leaders: Vec::new() }
    }

    fn poll(&mut self) {
        while let Some(output) = self.group.poll() {
            match output {
                Output::Send(message) => self.sent.push(message),
                Output::Store(store) => self.stores.push(store.number),
                Output::Leader { leader, .. } => self.leaders.push(leader),
                _ => {}
            }
        }
    }

    fn store(&mut self, count: usize) {
        for number in self.stores.drain(..count).collect::<Vec<_>>() {
            self.group.stored(number);
            self.poll();
        }
    }

    /// What it has sent to this member.
    fn to(&mut self, id: u64) -> Vec<Message> {
        self.sent.extract_if(.., |message| message.to() == id).collect()
    }

    fn take(&mut self, messages: Vec<Message>) {
        for message in messages {
            self.group.step(message).unwrap();
            self.poll();
        }
    }
}

#[test]
fn who_leads_is_told_in_order_however_late_the_disk_is() {
    let (mut one, mut two, mut three) = (Member::new(1), Member::new(2), Member::new(3));
    two.group.campaign();
    two.poll();
    // The third votes, and hears of the leader, before its disk has its vote.
    for _ in 0..4 {
        two.store(two.stores.len());
        one.take(two.to(1));
        one.store(one.stores.len());
        three.take(two.to(3));
        two.take(one.to(2));
        two.take(three.to(2));
    }
    assert_eq!(two.group.status().leader, 2);
    assert!(three.stores.len() >= 2, "its vote, and what the leader has sent");
    three.group.forget_leader();
    three.poll();
    // The vote is durable, what came behind it is not; now the leader is heard again.
    three.store(1);
    two.group.tick();
    two.group.tick();
    two.poll();
    three.take(two.to(3));
    three.store(three.stores.len());
    assert_eq!(three.group.status().leader, 2);
    assert_eq!(three.leaders.last(), Some(&2), "{:?}", three.leaders);
}

/// The engine would pass the question on in the name of who asked it: the new leader would take that for
/// forged.
#[test]
fn who_leads_no_more_passes_no_question_on() {
    let (mut one, mut two, mut three) = (Member::new(1), Member::new(2), Member::new(3));
    let settle = |one: &mut Member, two: &mut Member, three: &mut Member| {
        for _ in 0..8 {
            one.store(one.stores.len());
            two.store(two.stores.len());
            three.store(three.stores.len());
            let (to_one, to_two) = ([two.to(1), three.to(1)].concat(), [one.to(2), three.to(2)].concat());
            let to_three = [one.to(3), two.to(3)].concat();
            one.take(to_one);
            two.take(to_two);
            three.take(to_three);
        }
    };
    one.group.campaign();
    one.poll();
    settle(&mut one, &mut two, &mut three);
    assert_eq!(three.group.status().leader, 1);
    three.group.read(7);
    three.poll();
    let question = three.to(1);
    assert_eq!(question.len(), 1);
    one.group.transfer(2);
    one.poll();
    settle(&mut one, &mut two, &mut three);
    assert_eq!(one.group.status().leader, 2);
    one.take(question);
    assert!(one.sent.iter().all(|message| message.from() == 1), "{:?}", one.sent);
    assert_eq!(one.sent.len(), 0);
}

/// It may have been a voter of that group, and have lost its disk. But it may also be one of those who found it.
#[test]
fn who_has_not_been_given_anything_yet_elects_nobody_who_has_something() {
    for (position, begins_with_nothing) in [(1, false), (1, true), (5, false), (5, true)] {
        let mut one =
            Member::begins_with(1, Mark { position, term: 1, members: Members::of_voters(&[1, 2, 3]) });
        let mut two =
            if begins_with_nothing { Member::begins_with(2, Mark::founding(&[])) } else { Member::new(2) };
        one.group.campaign();
        one.poll();
        for _ in 0..4 {
            one.store(one.stores.len());
            two.take(one.to(2));
            two.store(two.stores.len());
            one.take(two.to(1));
        }
        assert_eq!(one.group.status().leader == 1, !begins_with_nothing || position == 1);
    }
}

/// Between two connections a member may have lost what it had, and have something else there: that none of it is
/// committed is for the leader to find out.
#[test]
fn what_a_member_has_is_found_out_anew_when_it_is_reached_again() {
    let (mut one, mut two, mut three) = (Member::new(1), Member::new(2), Member::new(3));
    two.group.campaign();
    two.poll();
    for _ in 0..8 {
        for member in [&mut one, &mut two, &mut three] {
            member.store(member.stores.len());
        }
        for (from, to) in [(2, 1), (2, 3), (1, 2), (3, 2)] {
            let mut members = [&mut one, &mut two, &mut three];
            let [from_member, to_member] = members.get_disjoint_mut([from - 1, to - 1]).unwrap();
            to_member.take(from_member.to(to as u64));
        }
    }
    let beat = |two: &mut Member| {
        (0..2).for_each(|_| two.group.tick());
        two.poll();
        two.to(3)
    };
    let said = |messages: &[Message]| messages.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let last = two.group.status().last;
    let known = said(&beat(&mut two));
    assert!(last > 1 && known.contains(&format!("heartbeat, committed {last}")), "{known}");
    two.group.unreachable(3);
    let heartbeats = beat(&mut two);
    let unknown = said(&heartbeats);
    assert!(unknown.contains("heartbeat, committed 0"), "{unknown}");
    // It is asked, and says what it has.
    three.take(heartbeats);
    for _ in 0..2 {
        three.store(three.stores.len());
        two.take(three.to(2));
        three.take(two.to(3));
    }
    assert_eq!(two.group.status().matched, [(1, last), (3, last)]);
}
