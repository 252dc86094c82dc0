//! Subtrees that move from one partition to another while clients use them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use std::collections::BTreeMap;

use stoa_core::{MoveRefusal, Moved};
use stoa_wire::{
    AddWatchMode, ErrorCode, EventKind, MultiResult, MultiResults, OPEN_ACL, Opcode, Reader, Stat,
    WatcherEvent, WatcherKind, request::encode, xid,
};
use threads::*;

impl Threads {
    /// Moves a subtree and waits until that is done.
    #[track_caller]
    fn moves(&mut self, path: &str, to: u8) {
        self.shard(0).ask_move(path, to).unwrap();
        self.settle();
        self.expect_moved(path, to, Ok(()));
        for partition in 0..self.shards.len() as u8 {
            assert_eq!(self.shard(partition).placement().of(path), to);
        }
    }

    #[track_caller]
    fn expect_moved(&mut self, path: &str, to: u8, result: Result<(), MoveRefusal>) {
        let moved = self.shard(0).poll_moved();
        assert_eq!(moved, Some(Moved { path: path.into(), to, result }));
    }

    #[track_caller]
    fn refused(&mut self, path: &str, to: u8, refusal: MoveRefusal) {
        match self.shard(0).ask_move(path, to) {
            Ok(()) => {
                self.settle();
                self.expect_moved(path, to, Err(refusal));
            }
            Err(at_once) => assert_eq!(at_once, refusal),
        }
    }

    #[track_caller]
    fn must(&mut self, client: Client, request: &[u8]) -> Frame {
        let frame = self.ask(client, request);
        assert_eq!(frame.err, 0, "{frame:?}");
        frame
    }

    /// What a client has been told besides answers.
    fn events(&mut self, client: Client) -> Vec<(EventKind, String)> {
        let event = |frame: Frame| {
            assert_eq!(frame.xid, xid::NOTIFICATION, "{frame:?}");
            let event = WatcherEvent::decode(&mut Reader::new(&frame.body)).unwrap();
            (EventKind::from_i32(event.kind).unwrap(), event.path.to_owned())
        };
        self.take(client).into_iter().map(event).collect()
    }
}

fn delete(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Delete, |out| encode::path_version(out, path, -1))
}

fn children(xid: i32, path: &str, watch: bool) -> Vec<u8> {
    request(xid, Opcode::GetChildren, |out| encode::path_watch(out, path, watch))
}

fn count(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::GetAllChildrenNumber, |out| encode::path(out, path))
}

fn add_watch(xid: i32, path: &str, mode: AddWatchMode) -> Vec<u8> {
    request(xid, Opcode::AddWatch, |out| encode::path_version(out, path, mode as i32))
}

#[test]
fn requests_under_way_are_neither_lost_nor_doubled_nor_overtaken() {
    for seed in 0..60 {
        let mut threads = Threads::new(3);
        threads.random = seed;
        let top = tops(3)[1].clone();
        let (one, other) = (format!("{top}/one"), format!("{top}/other"));
        let clients: Vec<_> = (0..3).map(|thread| threads.open_from(thread)).collect();
        for path in [&top, &one, &other] {
            threads.must(clients[0], &create(1, path));
        }
        let mut versions = BTreeMap::new();
        let mut answered = [0; 3];
        for round in 0..40_i32 {
            for client in &clients {
                let mut bytes = Vec::new();
                for (step, path) in [&one, &other, &top, &one].into_iter().enumerate() {
                    bytes.extend(set(round * 8 + 2 * step as i32, path, b"x"));
                    bytes.extend(get(round * 8 + 2 * step as i32 + 1, path, false));
                }
                threads.send(*client, &bytes);
            }
            let (path, to) = ([&top, &one, &other][threads.draw(3)], threads.draw(3) as u8);
            let _ = threads.shard(0).ask_move(path, to);
            for _ in 0..threads.draw(60) {
                threads.step();
            }
            for (client, answered) in clients.iter().zip(&mut answered) {
                for frame in threads.take(*client) {
                    assert_eq!((frame.xid, frame.err), (*answered, 0), "seed {seed}");
                    *answered += 1;
                    let mut reader = Reader::new(&frame.body);
                    if frame.xid % 2 == 1 {
                        reader.buffer().unwrap();
                    } else {
                        let path = [&one, &other, &top, &one][(frame.xid / 2 % 4) as usize];
                        *versions.entry(path).or_insert(0) += 1;
                        let _ = Stat::decode(&mut reader).unwrap();
                    }
                }
            }
        }
        threads.settle();
        for (client, answered) in clients.iter().zip(answered) {
            let rest = threads.take(*client);
            assert_eq!(rest.len() as i32 + answered, 40 * 8, "seed {seed}: all are answered");
        }
        let of = |threads: &mut Threads, path: &str| {
            let got = threads.must(clients[0], &get(9000, path, false));
            let mut reader = Reader::new(&got.body);
            reader.buffer().unwrap();
            Stat::decode(&mut reader).unwrap().version
        };
        let each = 3 * 40;
        let versions = [&one, &other, &top].map(|path| of(&mut threads, path));
        assert_eq!(versions, [2 * each, each, each], "seed {seed}: each was carried out once");
    }
}

#[test]
fn what_the_log_has_no_room_for_is_not_answered_before_what_has_come_back() {
    let (mut refusals, mut closed) = (0, 0);
    // 572 is one that shows it.
    for seed in 550..650 {
        let mut threads = Threads::new(2);
        threads.random = seed;
        let tops = tops(2);
        let setter = threads.open_from(0);
        for top in &tops {
            threads.must(setter, &create(1, top));
        }
        let mut clients: Vec<_> = (0..2).map(|thread| (threads.open_from(thread), 1, 1)).collect();
        for _ in 0..200 {
            for (client, asked, answered) in &mut clients {
                while *asked - *answered < 12 {
                    let top = &tops[threads.draw(2)];
                    // What several partitions take part in makes the others wait.
                    let is_of_several = threads.draw(3) == 0;
                    let request = if is_of_several {
                        create(*asked, &format!("/{asked}-{}", client.1.0))
                    } else {
                        set(*asked, top, b"x")
                    };
                    threads.send(*client, &request);
                    *asked += 1;
                }
            }
            if threads.draw(6) == 0 {
                let (path, to) = (&tops[threads.draw(2)], threads.draw(2) as u8);
                let _ = threads.shard(0).ask_move(path, to);
            }
            for _ in 0..threads.draw(20) {
                threads.step();
            }
            let draws = threads.draw(8);
            while draws == 0 && threads.unstored.is_none() && threads.step() {}
            if draws == 0 && threads.unstored.is_some() {
                threads.refuse_records();
                refusals += 1;
                for _ in 0..threads.draw(60) {
                    threads.step();
                }
                threads.pass(600);
            }
            for (client, asked, answered) in &mut clients {
                for frame in threads.take(*client) {
                    assert_eq!(frame.xid, *answered, "seed {seed}");
                    *answered += 1;
                }
                if threads.closed.iter().any(|(who, _)| who == client) {
                    threads.settle();
                    (*client, *asked, *answered) = (threads.open_from(client.0), 1, 1);
                    closed += 1;
                }
            }
        }
        threads.settle();
        threads.pass(600);
        for (client, asked, answered) in clients {
            assert_eq!(xids(&threads.take(client)), (answered..asked).collect::<Vec<_>>(), "seed {seed}");
        }
    }
    assert!(refusals > 100 && closed > 0, "{refusals} refusals, {closed} connections closed");
}

#[test]
fn a_subtree_leaves_a_partition_that_has_more_to_do_than_it_can() {
    for seed in 0..30 {
        let mut threads = Threads::new(3);
        threads.random = seed;
        let top = tops(3)[1].clone();
        let clients: Vec<_> = (0..3).map(|thread| threads.open_from(thread)).collect();
        threads.must(clients[0], &create(1, &top));
        // What they ask now waits where the subtree lives.
        threads.busy = Some(1);
        for client in &clients {
            let asked: Vec<_> = (0..20).flat_map(|xid| set(xid, &top, b"x")).collect();
            threads.send(*client, &asked);
        }
        threads.moves(&top, 2);
        for client in [clients[0], clients[2]] {
            assert_eq!(threads.take(client), [], "seed {seed}: nobody was heard");
        }
        threads.busy = None;
        threads.settle();
        for client in &clients {
            let answered: Vec<_> = threads.take(*client).iter().map(|frame| (frame.xid, frame.err)).collect();
            assert_eq!(answered, (0..20).map(|xid| (xid, 0)).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

#[test]
fn a_move_is_done_when_the_table_says_so() {
    // Whoever decides on the next one compares what the partitions have to do by the table.
    for seed in 0..30 {
        let mut threads = Threads::new(3);
        threads.random = seed;
        let top = tops(3)[1].clone();
        let client = threads.open(0);
        threads.must(client, &create(1, &top));
        threads.shard(0).ask_move(&top, 2).unwrap();
        while threads.shard(0).poll_moved().is_none() {
            assert!(threads.step(), "seed {seed}: it is never done");
        }
        assert_eq!(threads.shard(0).placement().of(&top), 2, "seed {seed}");
    }
}

#[test]
fn watches_of_every_kind_move_with_what_they_are_for() {
    let mut threads = Threads::new(4);
    let top = tops(4)[2].clone();
    let hot = format!("{top}/hot");
    let (watcher, writer) = (threads.open_from(3), threads.open_from(1));
    for path in [&top, &hot, &format!("{hot}/a")] {
        threads.must(writer, &create(1, path));
    }
    let missing = format!("{hot}/missing");
    threads.must(watcher, &get(1, &format!("{hot}/a"), true));
    threads.must(watcher, &children(2, &hot, true));
    let exists = request(3, Opcode::Exists, |out| encode::path_watch(out, &missing, true));
    assert_eq!(threads.ask(watcher, &exists).err, ErrorCode::NoNode as i32);
    threads.must(watcher, &add_watch(4, &hot, AddWatchMode::Persistent));
    threads.must(watcher, &add_watch(5, &top, AddWatchMode::PersistentRecursive));
    threads.moves(&hot, 0);
    assert_eq!(threads.take(watcher), [], "nobody can see that something has moved");
    threads.must(writer, &set(2, &format!("{hot}/a"), b"x"));
    let mut events = threads.events(watcher);
    events.dedup();
    assert_eq!(events, [(EventKind::DataChanged, format!("{hot}/a"))]);
    threads.must(writer, &create(3, &missing));
    let events = threads.events(watcher);
    assert!(events.contains(&(EventKind::Created, missing.clone())), "{events:?}");
    assert!(events.contains(&(EventKind::ChildrenChanged, hot.clone())), "{events:?}");
    // What was watched once is over, what is watched for ever goes on, wherever it goes.
    threads.moves(&hot, 3);
    threads.moves(&missing, 1);
    threads.must(writer, &set(4, &missing, b"x"));
    threads.must(writer, &set(5, &hot, b"x"));
    threads.must(writer, &set(6, &top, b"x"));
    let events = threads.events(watcher);
    let changed = |path: &str| (EventKind::DataChanged, path.to_owned());
    for path in [&missing, &hot, &top] {
        assert!(events.contains(&changed(path)), "{path}: {events:?}");
    }
    // Removed once, it is gone everywhere.
    let any = WatcherKind::Any as i32;
    threads.must(watcher, &request(6, Opcode::RemoveWatches, |out| encode::path_version(out, &top, any)));
    threads.must(watcher, &request(7, Opcode::RemoveWatches, |out| encode::path_version(out, &hot, any)));
    for path in [&missing, &hot, &top] {
        threads.must(writer, &set(8, path, b"y"));
    }
    assert_eq!(threads.take(watcher), []);
    let again = request(8, Opcode::RemoveWatches, |out| encode::path_version(out, &top, any));
    assert_eq!(threads.ask(watcher, &again).err, ErrorCode::NoWatcher as i32);
    // One that is set now listens on all partitions that have something of it.
    threads.must(watcher, &add_watch(9, &top, AddWatchMode::PersistentRecursive));
    threads.must(writer, &set(9, &missing, b"z"));
    assert_eq!(threads.events(watcher), [changed(&missing)]);
}

#[test]
fn an_event_after_a_move_comes_before_what_follows_from_it() {
    // 572 is one that shows it.
    for seed in 550..650 {
        let mut threads = Threads::new(3);
        threads.random = seed;
        let tops = tops(3);
        let (watcher, writer) = (threads.open_from(0), threads.open_from(1));
        for top in &tops {
            threads.must(writer, &create(1, top));
        }
        threads.must(watcher, &get(1, &tops[1], true));
        threads.shard(0).ask_move(&tops[1], 2).unwrap();
        for _ in 0..threads.draw(30) {
            threads.step();
        }
        let cause_and_effect = [set(2, &tops[1], b"cause"), set(3, &tops[0], b"effect")].concat();
        threads.send(writer, &cause_and_effect);
        for round in 0..200 {
            threads.send(watcher, &get(10 + round, &tops[0], false));
            threads.step();
        }
        threads.settle();
        let frames = threads.take(watcher);
        let event = frames.iter().position(|frame| frame.xid == xid::NOTIFICATION).unwrap();
        let is_effect = |frame: &Frame| frame.xid > 0 && data(frame) == b"effect";
        let effect = frames.iter().position(is_effect).unwrap_or(usize::MAX);
        assert!(event < effect, "seed {seed}");
    }
}

#[test]
fn a_directory_is_cut_from_its_parent_and_merged_again() {
    let mut threads = Threads::new(4);
    let top = tops(4)[1].clone();
    let hot = format!("{top}/hot");
    let client = threads.open_from(2);
    for path in [&top, &hot, &format!("{hot}/a"), &format!("{hot}/b"), &format!("{top}/c")] {
        threads.must(client, &create(1, path));
    }
    let ephemeral = |xid, path: &str, flags| {
        request(xid, Opcode::Create, |out| encode::create(out, path, None, OPEN_ACL, flags, None))
    };
    threads.must(client, &ephemeral(2, &format!("{hot}/e"), 1));
    threads.moves(&hot, 3);
    let below = |threads: &mut Threads| {
        let frame = threads.must(client, &count(3, &top));
        Reader::new(&frame.body).i32().unwrap()
    };
    assert_eq!(below(&mut threads), 5);
    // Everything goes on as if nothing had happened.
    let names = |threads: &mut Threads, path: &str| {
        let frame = threads.must(client, &children(4, path, false));
        let mut names: Vec<_> = stoa_wire::StrList::decode(&mut Reader::new(&frame.body))
            .unwrap()
            .iter()
            .map(String::from)
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&mut threads, &top), ["c", "hot"]);
    assert_eq!(names(&mut threads, &hot), ["a", "b", "e"]);
    assert_eq!(threads.ask(client, &delete(5, &hot)).err, ErrorCode::NotEmpty as i32);
    assert_eq!(threads.ask(client, &delete(5, &top)).err, ErrorCode::NotEmpty as i32);
    assert_eq!(threads.ask(client, &create(5, &hot)).err, ErrorCode::NodeExists as i32);
    let made = threads.must(client, &ephemeral(6, &format!("{hot}/s-"), 3));
    assert_eq!(Reader::new(&made.body).str().unwrap(), format!("{hot}/s-0000000003"));
    let multi = request(7, Opcode::Multi, |out| {
        op(out, Opcode::SetData, |out| encode::set_data(out, &format!("{hot}/a"), Some(b"m"), -1));
        op(out, Opcode::SetData, |out| encode::set_data(out, &format!("{top}/c"), Some(b"m"), -1));
        stoa_wire::MultiHeader::END.encode(out);
    });
    let frame = threads.must(client, &multi);
    let results: Vec<_> = MultiResults::decode(&mut Reader::new(&frame.body)).unwrap().into_iter().collect();
    assert!(results.iter().all(|result| matches!(result, MultiResult::DataSet { .. })));
    // A cut within what was cut, and the way back.
    let deep = format!("{hot}/a");
    threads.moves(&deep, 1);
    assert_eq!(data(&threads.must(client, &get(8, &deep, false))), b"m");
    assert_eq!(below(&mut threads), 6);
    threads.moves(&hot, 1);
    assert_eq!(threads.shard(2).placement().exceptions().count(), 0, "all is where it was");
    assert_eq!(below(&mut threads), 6);
    // The znode is deleted and made again at a cut.
    threads.moves(&hot, 2);
    for path in ["a", "b", "e", "s-0000000003"] {
        threads.must(client, &delete(9, &format!("{hot}/{path}")));
    }
    threads.must(client, &delete(10, &hot));
    assert_eq!(names(&mut threads, &top), ["c"]);
    threads.must(client, &create(11, &hot));
    threads.must(client, &ephemeral(12, &format!("{hot}/e"), 1));
    assert_eq!(names(&mut threads, &top), ["c", "hot"]);
    // The session ends, and what it owns with it.
    threads.must(client, &request(13, Opcode::CloseSession, |_| {}));
    let other = threads.open_from(0);
    let frame = threads.must(other, &children(1, &hot, false));
    assert_eq!(Reader::new(&frame.body).i32().unwrap(), 0);
    // What lives where is as durable as everything else.
    threads.restart();
    assert_eq!(threads.shard(3).placement().of(&hot), 2);
    let other = threads.open_from(0);
    assert_eq!(data(&threads.must(other, &get(1, &hot, false))), b"first");
}

#[test]
fn what_cannot_be_moved_stays_and_says_why() {
    let mut threads = Threads::new(3);
    let top = tops(3)[1].clone();
    let client = threads.open_from(0);
    threads.must(client, &create(1, &top));
    threads.must(client, &create(2, &format!("{top}/a")));
    threads.refused("/", 1, MoveRefusal::System);
    threads.refused("/zookeeper", 1, MoveRefusal::System);
    threads.refused("/zookeeper/quota/x", 1, MoveRefusal::System);
    threads.refused("no path", 1, MoveRefusal::NoSuchPlace);
    threads.refused(&top, 3, MoveRefusal::NoSuchPlace);
    threads.refused(&top, 1, MoveRefusal::IsThere);
    threads.refused(&format!("{top}/n-0000000001"), 2, MoveRefusal::Sequential);
    threads.refused(&format!("{top}{}", "/x".repeat(8)), 2, MoveRefusal::TooDeep);
    threads.refused(&format!("{top}/b"), 2, MoveRefusal::NoNode);
    let quota = format!("/zookeeper/quota{top}");
    threads.must(client, &create(3, &quota));
    let limits = format!("{quota}/zookeeper_limits");
    let limit = Some(&b"count=5,bytes=-1"[..]);
    threads.must(
        client,
        &request(4, Opcode::Create, |out| encode::create(out, &limits, limit, OPEN_ACL, 0, None)),
    );
    threads.refused(&format!("{top}/a"), 2, MoveRefusal::Quota);
    let large = vec![7; 900_000];
    for number in 0..5 {
        let path = format!("{top}/large-{number}");
        threads.ask(
            client,
            &request(5, Opcode::Create, |out| encode::create(out, &path, Some(&large), OPEN_ACL, 0, None)),
        );
    }
    threads.refused(&top, 2, MoveRefusal::TooLarge);
    assert_eq!(threads.shard(1).placement().version(), 0, "nothing has moved");
    threads.must(client, &set(9, &top, b"goes on"));
    // Who does not lead, or has not the sessions, is not to be asked.
    assert_eq!(threads.shard(1).ask_move(&top, 2), Err(MoveRefusal::NotNow));
}
