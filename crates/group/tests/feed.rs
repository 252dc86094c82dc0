//! Readers: they are given what is committed, by whoever has it, and nobody counts on them.

use bytes::Bytes;
use stoa_group::{Config, Entry, EntryKind, Group, Mark, Members, Message, Output, Restored};

const READER: u64 = 255;

fn group(id: u64, restored: &Restored) -> Group {
    Group::new(&Config { message_bytes: 400, ..Config::new(id, id) }, restored).expect("what it has is sound")
}

/// A member that votes alone, and has proposed so many entries.
fn leading(entries: usize) -> Group {
    let base = Mark { position: 1, term: 1, members: Members::of_voters(&[1]) };
    let mut group = group(1, &Restored { base, ..Restored::default() });
    group.campaign();
    settle(&mut group);
    for number in 0..entries {
        group.propose(Bytes::from(vec![number as u8; 100])).expect("it leads");
    }
    settle(&mut group);
    group
}

/// Everything is stored. What is committed, and what would be said to others.
fn settle(group: &mut Group) -> (Vec<Entry>, Vec<Message>) {
    let (mut committed, mut said, mut number) = (Vec::new(), Vec::new(), None);
    loop {
        match group.poll() {
            Some(Output::Store(store)) => number = Some(store.number),
            Some(Output::Committed(entries)) => committed.extend(entries),
            Some(Output::Send(message)) => said.push(message),
            Some(_) => {}
            None => match number.take() {
                Some(number) => group.stored(number),
                None => return (committed, said),
            },
        }
    }
}

/// The beginning of the member's timeline, as a snapshot has it.
fn reader() -> Group {
    let base = Mark { position: 1, term: 1, members: Members::of_voters(&[1]) };
    group(READER, &Restored { base, ..Restored::default() })
}

#[test]
fn a_reader_is_given_what_is_committed_in_portions_and_tells_no_member() {
    let member = leading(10);
    let mut reader = reader();
    let (mut at, mut portions) = (1, 0);
    let mut all = Vec::new();
    while let Some(message) = member.feed_behind(at, u64::MAX) {
        let message = Message::decode({
            let mut bytes = stoa_group::Pieces::default();
            message.encode(&mut bytes);
            bytes.join()
        })
        .unwrap();
        reader.feed(message).unwrap();
        let (committed, said) = settle(&mut reader);
        assert!(said.iter().all(|message| message.to() == 1 << 40), "there is nobody to tell");
        at = committed.last().unwrap().position;
        all.extend(committed);
        portions += 1;
    }
    assert!(portions > 2, "a message carries some of them");
    assert_eq!(at, member.committed());
    assert_eq!(all.len() as u64, member.committed() - 1);
    let payload = |entry: &&Entry| entry.kind == EntryKind::Payload && !entry.payload.is_empty();
    assert_eq!(all.iter().filter(payload).count(), 10);
    // It waits for nobody, and wants to lead nobody.
    for _ in 0..100 {
        reader.tick();
    }
    assert!(settle(&mut reader).1.iter().all(|message| message.to() == 1 << 40));
}

#[test]
fn a_gap_and_what_is_known_change_nothing_and_another_past_is_refused() {
    let member = leading(10);
    let mut reader = reader();
    let first = member.feed_behind(1, u64::MAX).unwrap();
    let next = member.feed_behind(first.place().unwrap().1, u64::MAX).unwrap();
    reader.feed(next).unwrap();
    assert!(settle(&mut reader).0.is_empty(), "what is before it has not come");
    reader.feed(first.clone()).unwrap();
    let known = settle(&mut reader).0.len();
    assert!(known > 0);
    reader.feed(first).unwrap();
    assert!(settle(&mut reader).0.is_empty());
    // A member whose timeline begins with another term.
    let base = Mark { position: 1, term: 7, members: Members::of_voters(&[1]) };
    let mut other = group(1, &Restored { base, ..Restored::default() });
    other.campaign();
    settle(&mut other);
    other.propose(Bytes::from_static(b"else")).unwrap();
    settle(&mut other);
    assert!(reader.feed(other.feed_behind(1, u64::MAX).unwrap()).is_err());
}

#[test]
fn what_was_not_committed_gives_way_and_who_is_behind_may_feed() {
    let member = leading(3);
    // It was a member, and has an entry that nobody else has kept.
    let base = Mark { position: 1, term: 1, members: Members::of_voters(&[1]) };
    let stale =
        Entry { position: 2, term: 1, kind: EntryKind::Payload, payload: Bytes::from_static(b"lost") };
    let vote = stoa_group::Vote { term: 40, voted_for: 3, committed: 1 };
    let restored = Restored { base, vote, entries: vec![stale], ..Restored::default() };
    let mut reader = group(READER, &restored);
    let mut at = 1;
    while let Some(message) = member.feed_behind(at, u64::MAX) {
        at = message.place().unwrap().1;
        reader.feed(message).unwrap();
        let (committed, _) = settle(&mut reader);
        assert!(committed.iter().all(|entry| &entry.payload[..] != b"lost"));
    }
    assert_eq!((reader.committed(), reader.last()), (member.committed(), member.committed()));
    // The vote that it had given is kept, as its term is newer than that of what it is fed.
    assert_eq!((reader.vote().term, reader.vote().voted_for), (40, 3));
    assert!(reader.feed_commit(at, member.term_at(at).unwrap()));
    assert!(!reader.feed_commit(at, 39) && !reader.feed_commit(at + 1, 40));
}

#[test]
fn a_snapshot_for_a_reader_travels_as_one_for_a_member() {
    let member = leading(3);
    let message = member.feed_snapshot(&member.mark());
    let mut bytes = stoa_group::Pieces::default();
    message.encode(&mut bytes);
    let read = Message::decode(bytes.join()).unwrap();
    assert_eq!(read.snapshot(), Some(member.mark()));
}

#[test]
fn nothing_is_given_behind_a_bound() {
    let member = leading(10);
    assert_eq!(member.feed_behind(1, 3).unwrap().place().unwrap().1, 3);
    assert!(member.feed_behind(3, 3).is_none() && member.feed_behind(3, 1).is_none());
    assert!(member.feed_behind(3, 4).is_some());
}
