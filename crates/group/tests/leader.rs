//! What a member says of who leads comes in the order in which it was so.

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
        let base = Mark { position: 1, term: 1, members: Members::of_voters(&[1, 2, 3]) };
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
