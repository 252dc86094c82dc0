//! One server with several partitions, alone: its threads are driven in any order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use std::net::SocketAddr;

use stoa_core::{CloseReason, Config, Placement};
use stoa_wire::{
    ErrorCode, MultiResult, MultiResults, OPEN_ACL, Opcode, Reader, WatcherEvent, request::encode, xid,
};
use threads::*;

#[test]
fn every_thread_serves_every_partition() {
    for partitions in [1, 2, 4, 8] {
        let mut threads = Threads::new(partitions);
        let tops = tops(partitions);
        let clients: Vec<_> = (0..partitions).map(|thread| threads.open(thread)).collect();
        for (number, top) in tops.iter().enumerate() {
            let creator = clients[(number + 1) % clients.len()];
            let created = threads.ask(creator, &create(1, top));
            assert_eq!((created.xid, created.err), (1, 0));
            for (round, client) in clients.iter().enumerate() {
                let text = format!("{top} by {round}");
                assert_eq!(threads.ask(*client, &set(2, top, text.as_bytes())).err, 0);
                for reader in &clients {
                    let got = threads.ask(*reader, &get(3, top, false));
                    assert_eq!(data(&got), text.as_bytes());
                }
            }
            let again = threads.ask(clients[0], &create(4, top));
            assert_eq!(again.err, ErrorCode::NodeExists as i32);
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_whatever_partitions_they_are_for() {
    let mut threads = Threads::new(4);
    let tops = tops(4);
    for thread in 0..4 {
        let client = threads.open(thread);
        let mut expected = Vec::new();
        let mut bytes = Vec::new();
        for round in 0..50_u8 {
            let top = &tops[threads.draw(4)];
            let xid = i32::from(round) * 10;
            let path = format!("{top}/of-{thread}-{round}");
            bytes.extend(create(xid + 1, top));
            bytes.extend(create(xid + 2, &path));
            bytes.extend(set(xid + 3, &path, &[round]));
            bytes.extend(get(xid + 4, &path, false));
            expected.extend([xid + 1, xid + 2, xid + 3, xid + 4]);
        }
        threads.send(client, &bytes);
        threads.settle();
        let frames = threads.take(client);
        assert_eq!(frames.iter().map(|frame| frame.xid).collect::<Vec<_>>(), expected);
        for (round, frames) in frames.chunks(4).enumerate() {
            assert_eq!(data(&frames[3]), [round as u8]);
        }
    }
}

#[test]
fn an_event_comes_before_any_reply_that_shows_what_followed_it() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (reader, writer) = (threads.open(0), threads.open(2));
    for top in &tops {
        threads.ask(writer, &create(1, top));
    }
    // The first one is watched, the other one follows from it.
    assert_eq!(data(&threads.ask(reader, &get(1, &tops[1], true))), b"first");
    threads.ask(reader, &get(2, &tops[2], false));
    // What the reader's thread is told of the event arrives later.
    threads.silent = Some((1, 0));
    assert_eq!(threads.ask(writer, &set(2, &tops[1], b"one")).err, 0);
    assert_eq!(threads.ask(writer, &set(3, &tops[2], b"two")).err, 0);
    threads.send(reader, &get(3, &tops[2], false));
    threads.settle();
    assert_eq!(threads.take(reader), [], "it would show what the event stands before");
    threads.silent = None;
    threads.settle();
    let frames = threads.take(reader);
    assert_eq!(frames.iter().map(|frame| frame.xid).collect::<Vec<_>>(), [xid::NOTIFICATION, 3]);
    let event = WatcherEvent::decode(&mut Reader::new(&frames[0].body)).unwrap();
    assert_eq!(event.path, tops[1]);
    assert_eq!(data(&frames[1]), b"two");
}

#[test]
fn an_event_comes_behind_an_operation_over_others_that_it_follows() {
    for seed in 1..100 {
        let mut threads = Threads::new(4);
        let tops = tops(4);
        let client = threads.open(0);
        for top in &tops[1..] {
            threads.ask(client, &create(1, top));
            threads.ask(client, &get(2, top, true));
        }
        let both = |xid, tops: [&String; 2]| {
            multi(xid, Opcode::Multi, |out| {
                for top in tops {
                    op(out, Opcode::SetData, |out| encode::set_data(out, top, Some(b"again"), -1));
                }
            })
        };
        threads.random = seed;
        let first = both(3, [&tops[1], &tops[2]]);
        threads.send(client, &[first, both(4, [&tops[1], &tops[3]])].concat());
        threads.settle();
        let frames = threads.take(client);
        let xids: Vec<_> = frames.iter().map(|frame| frame.xid).collect();
        assert_eq!(xids, [xid::NOTIFICATION, xid::NOTIFICATION, 3, xid::NOTIFICATION, 4], "seed {seed}");
        let event = WatcherEvent::decode(&mut Reader::new(&frames[3].body)).unwrap();
        assert_eq!(event.path, tops[3], "seed {seed}");
    }
}

#[test]
fn of_one_update_a_znode_is_told_of_before_its_parent_wherever_they_live() {
    for seed in 1..100 {
        let mut threads = Threads::new(4);
        threads.random = seed;
        let (client, other) = (threads.open(0), threads.open(1));
        let top = &tops(4)[2];
        let watch = request(1, Opcode::GetChildren, |out| encode::path_watch(out, "/", true));
        let delete = request(3, Opcode::Delete, |out| encode::path_version(out, top, -1));
        for change in [create(2, top), delete] {
            threads.ask(client, &watch);
            threads.ask(client, &request(2, Opcode::Exists, |out| encode::path_watch(out, top, true)));
            assert_eq!(threads.ask(other, &change).err, 0);
            let events = threads.take(client);
            let paths =
                events.iter().map(|frame| WatcherEvent::decode(&mut Reader::new(&frame.body)).unwrap());
            assert_eq!(paths.map(|event| event.path).collect::<Vec<_>>(), [top, "/"], "seed {seed}");
        }
    }
}

#[test]
fn zxids_are_unique_and_those_of_dependent_updates_grow() {
    let mut threads = Threads::new(4);
    let tops = tops(4);
    let client = threads.open(1);
    let mut before = 0;
    for round in 0..40 {
        let path = format!("{}{}", tops[threads.draw(4)], ["", "/x", "/x/y"][round % 3]);
        threads.ask(client, &create(1, &path));
        let stat = request(2, Opcode::Exists, |out| encode::path_watch(out, &path, false));
        let found = threads.ask(client, &stat);
        if found.err == 0 {
            let set = threads.ask(client, &set(3, &path, b"again"));
            let mzxid = Reader::new(&set.body[8..]).i64().unwrap();
            assert!(mzxid > before, "{mzxid} after {before}");
            assert_eq!((mzxid % 4) as u8, Placement::new(4).of(&path));
            before = mzxid;
        }
    }
}

#[test]
fn an_operation_over_some_partitions_has_a_larger_zxid_than_what_its_client_was_shown_by_others() {
    let mut threads = Threads::new(4);
    let tops = tops(4);
    let client = threads.open(1);
    threads.ask(client, &create(1, &tops[1]));
    let shown = (0..9).map(|_| threads.ask(client, &set(2, &tops[1], b"again")).zxid).max();
    // The first and the third have a share in it.
    let created = threads.ask(client, &create(3, &tops[2]));
    assert_eq!(created.err, 0);
    assert!(Some(created.zxid) > shown, "{} after {shown:?}", created.zxid);
}

#[test]
fn a_refusal_does_not_wait_for_a_part_that_changes_nothing() {
    let mut threads = Threads::new(4);
    let tops = tops(4);
    let client = threads.open(1);
    for top in &tops[1..3] {
        threads.ask(client, &create(1, top));
    }
    for round in 0..2 {
        let created = multi(2, Opcode::Multi, |out| {
            for top in &tops[1..3] {
                let path = format!("{top}/{round}");
                op(out, Opcode::Create, |out| encode::create(out, &path, None, OPEN_ACL, EPHEMERAL, None));
            }
        });
        assert_eq!(threads.ask(client, &created).err, 0);
    }
    // The second time the first partition has a share, but knew already where the session has ephemerals.
    let delete = request(3, Opcode::Delete, |out| encode::path_version(out, "/zookeeper", -1));
    assert_eq!(threads.ask(client, &delete).err, ErrorCode::BadArguments as i32);
}

#[test]
fn what_an_ended_or_moved_session_has_left_behind_is_refused_everywhere() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (first, response) = threads.connect(1, 0, &[0; 16]);
    for top in &tops {
        assert_eq!(threads.ask(first, &create(1, top)).err, 0);
    }
    // It comes back on another thread; the old connection learns that it has been replaced.
    let (second, again) = threads.connect(2, response.session_id, &response.password);
    assert_eq!(again.session_id, response.session_id);
    assert_eq!(threads.closed, [(first, CloseReason::SessionMoved)]);
    for top in &tops {
        assert_eq!(threads.ask(second, &set(2, top, b"second")).err, 0);
    }
    let closed = threads.ask(second, &request(3, Opcode::CloseSession, |_| {}));
    assert_eq!((closed.xid, closed.err), (3, 0));
    assert_eq!(threads.closed[1..], [(second, CloseReason::SessionClosed)]);
    let (_, expired) = threads.connect(0, response.session_id, &response.password);
    assert_eq!(expired.session_id, 0);
}

#[test]
fn what_is_urgent_does_not_overtake_the_news_of_sessions() {
    // The session comes and goes to another connection while a partition hears only what is urgent. What its first
    // connection had asked there must not be carried out when it is heard at last.
    for seed in 0..30 {
        let mut threads = Threads::new(2);
        threads.random = seed;
        let [_, top] = tops(2).try_into().unwrap();
        let other = threads.open(0);
        assert_eq!(threads.ask(other, &create(1, &top)).err, 0);
        threads.busy = Some(1);
        let (first, response) = threads.connect(0, 0, &[0; 16]);
        threads.send(first, &set(1, &top, b"left behind"));
        threads.settle();
        let (_, again) = threads.connect(0, response.session_id, &response.password);
        assert_eq!(again.session_id, response.session_id);
        assert_eq!(threads.closed, [(first, CloseReason::SessionMoved)]);
        threads.busy = None;
        threads.settle();
        let found = threads.ask(other, &get(2, &top, false));
        assert_ne!(data(&found), b"left behind", "seed {seed}");
    }
}

const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

#[test]
fn a_multi_over_several_partitions_is_all_or_nothing() {
    for thread in 0..4 {
        let mut threads = Threads::new(4);
        let tops = tops(4);
        let client = threads.open(thread);
        for top in &tops[..3] {
            threads.ask(client, &create(1, top));
        }
        let made = multi(2, Opcode::Multi, |out| {
            for top in &tops[..3] {
                op(out, Opcode::Create, |out| {
                    encode::create(out, &format!("{top}/m"), None, OPEN_ACL, 0, None);
                });
            }
            op(out, Opcode::Create, |out| encode::create(out, &tops[3], None, OPEN_ACL, 0, None));
            op(out, Opcode::SetData, |out| encode::set_data(out, &tops[1], Some(b"by multi"), 0));
        });
        let answer = threads.ask(client, &made);
        let results = MultiResults::decode(&mut Reader::new(&answer.body)).unwrap();
        assert!(matches!(results[3], MultiResult::Created { path, .. } if path == tops[3]), "{results:?}");
        assert!(matches!(results[4], MultiResult::DataSet { stat } if stat.version == 1));
        assert_eq!(data(&threads.ask(client, &get(3, &tops[1], false))), b"by multi");
        for top in &tops[..3] {
            assert_eq!(children(&mut threads, client, top), ["m"]);
        }
        // The last one fails: nothing has happened.
        let refused = multi(4, Opcode::Multi, |out| {
            op(out, Opcode::Delete, |out| encode::path_version(out, &format!("{}/m", tops[0]), -1));
            op(out, Opcode::Delete, |out| encode::path_version(out, &tops[3], -1));
            op(out, Opcode::SetData, |out| encode::set_data(out, &tops[2], None, 77));
        });
        let answer = threads.ask(client, &refused);
        let results = MultiResults::decode(&mut Reader::new(&answer.body)).unwrap();
        let codes = [ErrorCode::Ok, ErrorCode::Ok, ErrorCode::BadVersion];
        assert_eq!(results, codes.map(|code| MultiResult::Error(code as i32)));
        assert_eq!(children(&mut threads, client, &tops[0]), ["m"]);
        assert_eq!(threads.ask(client, &get(5, &tops[3], false)).err, 0);
        let reads = multi(6, Opcode::MultiRead, |out| {
            for top in &tops {
                op(out, Opcode::GetChildren, |out| encode::path_watch(out, top, false));
            }
        });
        let answer = threads.ask(client, &reads);
        let results = MultiResults::decode(&mut Reader::new(&answer.body)).unwrap();
        let expected = [vec!["m"], vec!["m"], vec!["m"], vec![]].map(MultiResult::Children);
        assert_eq!(results, expected);
    }
}

/// The log has all parts of an operation or none, so the next one need not wait for the disk, unless it is planned by
/// what is applied: where a session has its ephemerals.
#[test]
fn operations_over_several_partitions_follow_one_another_before_they_are_durable() {
    for seed in 1..50 {
        let mut threads = Threads::new(4);
        let tops = tops(4);
        let clients = [threads.open(0), threads.open(3)];
        tops.iter().for_each(|top| assert_eq!(threads.ask(clients[0], &create(1, top)).err, 0));
        let sets = |xid, tops: [&String; 2], text: &[u8]| {
            multi(xid, Opcode::Multi, |out| {
                for top in tops {
                    op(out, Opcode::SetData, |out| encode::set_data(out, top, Some(text), -1));
                }
            })
        };
        let ephemeral = |xid, name: &str| {
            multi(xid, Opcode::Multi, |out| {
                for top in [&tops[1], &tops[2]] {
                    let path = format!("{top}/{name}");
                    op(out, Opcode::Create, |out| encode::create(out, &path, Some(b""), OPEN_ACL, 1, None));
                }
            })
        };
        threads.random = seed;
        for (first, then, written) in [
            (sets(2, [&tops[1], &tops[2]], b"one"), sets(2, [&tops[1], &tops[2]], b"two"), 2),
            (sets(3, [&tops[1], &tops[2]], b"three"), ephemeral(3, "e"), 2),
            (ephemeral(4, "f"), ephemeral(4, "f"), 1),
        ] {
            let before = threads.records.len();
            threads.slow_log = vec![0];
            threads.send(clients[0], &first);
            threads.settle();
            threads.send(clients[1], &then);
            threads.settle();
            assert_eq!(threads.entries_of(1, before).len(), written, "seed {seed}");
            assert!(clients.iter().all(|client| threads.take(*client).is_empty()), "nothing is durable yet");
            threads.slow_log.clear();
            threads.settle();
            let answered = clients.map(|client| threads.take(client).len());
            assert_eq!(answered, [1, 1], "seed {seed}");
            let shown = [&tops[1], &tops[2]].map(|top| data(&threads.ask(clients[0], &get(9, top, false))));
            assert_eq!(shown[0], shown[1], "seed {seed}");
        }
    }
}

/// What is prepared upon a part that is not applied rests on the other parts, so who is shown it is shown them.
#[test]
fn what_follows_an_operation_over_others_is_not_shown_without_it() {
    for seed in 1..50 {
        let mut threads = Threads::new(4);
        let tops = tops(4);
        let (writer, other, reader) = (threads.open(0), threads.open(1), threads.open(3));
        tops.iter().for_each(|top| assert_eq!(threads.ask(writer, &create(1, top)).err, 0));
        let sets = |tops: [&String; 2]| {
            multi(2, Opcode::Multi, |out| {
                for top in tops {
                    op(out, Opcode::SetData, |out| encode::set_data(out, top, Some(b"new"), -1));
                }
            })
        };
        threads.random = seed;
        threads.slow_log = vec![0];
        for (client, tops) in [(writer, [&tops[1], &tops[2]]), (other, [&tops[1], &tops[3]])] {
            threads.send(client, &sets(tops));
            threads.settle();
        }
        // All is durable, and the third partition does not hear of it.
        threads.slow_log = vec![2];
        threads.settle();
        threads.send(reader, &[get(3, &tops[3], false), get(4, &tops[2], false)].concat());
        threads.settle();
        let mut shown: Vec<_> = threads.take(reader).iter().map(data).collect();
        assert!(shown.iter().all(|data| data == b"new"), "seed {seed}: {shown:?}");
        threads.slow_log.clear();
        threads.settle();
        shown.extend(threads.take(reader).iter().map(data));
        assert_eq!(shown, [b"new", b"new"], "seed {seed}");
    }
}

#[test]
fn ephemerals_of_all_partitions_end_with_their_session() {
    for (partitions, by_silence) in [(2, false), (4, false), (4, true)] {
        let mut threads = Threads::new(partitions);
        let tops = tops(partitions);
        let (owner, other) = (threads.open(partitions - 1), threads.open(0));
        let mut expected = Vec::new();
        for top in &tops {
            threads.ask(other, &create(1, top));
            for path in [format!("{top}/e"), format!("{top}-own")] {
                assert_eq!(threads.ask(owner, &create_as(2, &path, EPHEMERAL)).err, 0, "{path}");
                expected.push(path);
            }
        }
        expected.sort();
        let list = request(3, Opcode::GetEphemerals, |out| stoa_wire::put::str(out, "/"));
        assert_eq!(names(&threads.ask(owner, &list)), expected);
        assert_eq!(children(&mut threads, other, "/").len(), 1 + 2 * tops.len());
        let count = request(4, Opcode::GetAllChildrenNumber, |out| encode::path(out, "/"));
        let count = threads.ask(other, &count);
        assert_eq!(Reader::new(&count.body).i32().unwrap(), 3 + 3 * i32::from(partitions));
        if by_silence {
            for _ in 0..12 {
                threads.pass(1000);
                threads.send(other, &request(-2, Opcode::Ping, |_| {}));
                threads.settle();
            }
            threads.take(other);
            assert_eq!(threads.closed, [(owner, CloseReason::SessionExpired)]);
        } else {
            threads.ask(owner, &request(5, Opcode::CloseSession, |_| {}));
        }
        let mut left: Vec<_> = tops.iter().map(|top| &top[1..]).chain(["zookeeper"]).collect();
        left.sort_unstable();
        assert_eq!(children(&mut threads, other, "/"), left);
        for top in &tops {
            assert_eq!(children(&mut threads, other, top), [""; 0]);
        }
    }
}

/// A session gets its first ephemeral on another partition while its end waits its turn, which was planned before.
#[test]
fn an_ephemeral_that_is_made_while_its_session_ends_ends_with_it() {
    for seed in 0..20 {
        let mut threads = Threads::new(2);
        threads.random = seed;
        let [first, second] = tops(2).try_into().unwrap();
        let (other, owner) = (threads.open(0), threads.open(1));
        for top in [&first, &second] {
            threads.ask(other, &create(1, top));
        }
        threads.send(owner, &create_as(1, &format!("{second}/e"), EPHEMERAL));
        threads.settle();
        for _ in 0..12 {
            threads.now.mono_us += 1_000_000;
            threads.send(other, &request(-2, Opcode::Ping, |_| {}));
            let now = threads.now;
            threads.shard(0).tick(now);
            threads.settle();
        }
        assert_eq!(threads.take(owner).first().map(|answer| answer.err), Some(0));
        assert!(threads.closed.contains(&(owner, CloseReason::SessionExpired)), "{:?}", threads.closed);
        let other = threads.open(0);
        assert_eq!(children(&mut threads, other, &second), [""; 0], "seed {seed}");
    }
}

/// What a connection has asked of several partitions and its session has left meanwhile is not carried out behind what
/// the next one is told.
#[test]
fn what_waits_for_partitions_to_stand_still_is_refused_when_its_session_moves() {
    for seed in 0..20 {
        let mut threads = Threads::new(2);
        threads.random = seed;
        let [first, second] = tops(2).try_into().unwrap();
        let other = threads.open(0);
        let (owner, response) = threads.connect(1, 0, &[0; 16]);
        for top in [&first, &second] {
            threads.ask(other, &create(1, top));
        }
        let moving = threads.begin(0, (response.session_id, &response.password), 0, false);
        for _ in 0..threads.draw(40) {
            threads.step();
        }
        threads.send(owner, &create_as(1, &format!("{second}/e"), EPHEMERAL));
        threads.settle();
        while threads.response(moving).is_none() {
            assert!(threads.step());
        }
        let before = children(&mut threads, moving, &second);
        threads.settle();
        assert_eq!(children(&mut threads, moving, &second), before, "seed {seed}");
    }
}

/// Who hears of the answer may ask any partition of this server.
#[test]
fn an_operation_over_several_partitions_is_done_everywhere_on_the_server_that_answers_it() {
    for seed in 0..200 {
        let mut threads = Threads::new(4);
        threads.random = seed;
        let tops = tops(4);
        let (owner, other) = (threads.open((seed % 4) as u8), threads.open(0));
        let paths: Vec<_> = tops.iter().map(|top| format!("{top}/e")).collect();
        for (top, path) in tops.iter().zip(&paths) {
            threads.ask(other, &create(1, top));
            assert_eq!(threads.ask(owner, &create_as(2, path, EPHEMERAL)).err, 0);
        }
        let is_there = |threads: &Threads, of: usize| threads.shards[of].tree().get(&paths[of]).is_some();
        let in_one = multi(3, Opcode::Multi, |out| {
            for path in &paths[1..3] {
                op(out, Opcode::Delete, |out| encode::path_version(out, path, -1));
            }
        });
        let close = request(4, Opcode::CloseSession, |_| {});
        for (request, parts) in [(in_one, [1, 2]), (close, [0, 3])] {
            assert!(parts.iter().all(|of| is_there(&threads, *of)));
            threads.send(owner, &request);
            while threads.take(owner).is_empty() {
                assert!(threads.step(), "{seed}: no answer");
            }
            assert!(!parts.iter().any(|of| is_there(&threads, *of)), "{seed}");
            threads.settle();
        }
    }
}

#[test]
fn sequential_znodes_right_below_the_root_are_numbered_in_their_order() {
    let mut threads = Threads::new(4);
    let client = threads.open(2);
    for round in 0..8 {
        for prefix in ["/lock-", "/queue-", "/"] {
            let made = threads.ask(client, &create_as(1, prefix, SEQUENTIAL | EPHEMERAL));
            let path = Reader::new(&made.body).str().unwrap().to_owned();
            assert!(path.starts_with(prefix) && path.len() == prefix.len() + 10, "{path}");
            assert_eq!(data(&threads.ask(client, &get(2, &path, false))), b"first");
            assert_eq!(threads.ask(client, &create(3, &path)).err, ErrorCode::NodeExists as i32);
            if round % 2 == 0 {
                let delete = request(4, Opcode::Delete, |out| encode::path_version(out, &path, 0));
                assert_eq!(threads.ask(client, &delete).err, 0);
                assert_eq!(threads.ask(client, &get(5, &path, false)).err, ErrorCode::NoNode as i32);
            }
        }
    }
    assert_eq!(children(&mut threads, client, "/").len(), 1 + 4 * 3);
}

#[test]
fn watches_on_the_root_see_what_becomes_of_its_children_wherever_they_live() {
    let mut threads = Threads::new(4);
    let tops = tops(4);
    let (reader, writer) = (threads.open(1), threads.open(3));
    let watch = request(1, Opcode::AddWatch, |out| encode::path_number(out, "/", 1));
    assert_eq!(threads.ask(reader, &watch).err, 0);
    for top in &tops {
        threads.ask(writer, &create(1, top));
        threads.ask(writer, &create(2, &format!("{top}/a")));
        threads.settle();
        let frames = threads.take(reader);
        let events = frames.iter().map(|frame| {
            assert_eq!(frame.xid, xid::NOTIFICATION);
            WatcherEvent::decode(&mut Reader::new(&frame.body)).unwrap().path.to_owned()
        });
        assert_eq!(events.collect::<Vec<_>>(), [top.clone(), format!("{top}/a")]);
    }
}

#[test]
fn a_thread_closes_who_says_nothing_and_who_does_not_read() {
    let mut threads = Threads::new(2);
    let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
    let now = threads.now;
    let silent = (1, threads.shard(1).connect(peer, now).unwrap());
    let client = threads.open(1);
    threads.now.mono_us += 10_000_000;
    let now = threads.now;
    assert!(threads.shard(1).next_wake_us() <= now.mono_us);
    threads.shard(1).tick(now);
    threads.settle();
    assert_eq!(threads.closed, [(silent, CloseReason::HandshakeTimeout)]);

    let top = tops(2)[0].clone();
    assert_eq!(threads.ask(client, &create(1, &top)).err, 0);
    assert_eq!(threads.ask(client, &set(2, &top, &[7; 900_000])).err, 0);
    for xid in 3..200 {
        let request = get(xid, &top, false);
        if threads.shard(1).receive(client.1, &request, now) < request.len() {
            break;
        }
        threads.settle();
    }
    let waiting = threads.shard(1).output(client.1).len();
    assert!((1 << 20..3 << 20).contains(&waiting), "nothing more is read when {waiting} bytes wait");
    let stats = threads.shard(1).client_stats();
    assert_eq!((stats.connections_dropped, stats.kept > 0), (1, false));
    assert!(stats.handed_over >= 3 && stats.bytes_received > 900_000);
}

#[test]
fn a_session_lives_as_long_as_its_client_is_heard_of_wherever_it_is_connected() {
    let mut threads = Threads::new(2);
    let (loud, quiet) = (threads.open(1), threads.open(1));
    for _ in 0..40 {
        // A heartbeat is answered by the client's thread, which tells the others in time by itself.
        threads.send(loud, &request(xid::PING, Opcode::Ping, |_| {}));
        threads.settle();
        threads.now.mono_us += 500_000;
        let now = threads.now;
        for partition in 0..2 {
            if threads.shard(partition).next_wake_us() <= now.mono_us {
                threads.shard(partition).tick(now);
            }
        }
        threads.settle();
    }
    assert_eq!(threads.closed, [(quiet, CloseReason::SessionExpired)]);
    assert_eq!(threads.ask_after_pings(loud, &create(1, "/alive")).err, 0);
}

#[test]
fn what_the_clients_of_a_thread_have_under_way_is_bounded_in_all() {
    let mut threads = Threads::new(2);
    let top = tops(2)[0].clone();
    let clients: Vec<_> = (0..80).map(|_| threads.open_from(1)).collect();
    assert_eq!(threads.ask(clients[0], &create(1, &top)).err, 0);
    let request = set(2, &top, &[7; 900_000]);
    // Nothing of it arrives at the partition.
    threads.silent = Some((1, 0));
    let now = threads.now;
    let mut taken = 0;
    for client in &clients {
        taken += threads.shard(1).receive(client.1, &request, now);
        threads.poll(1);
    }
    assert!((32 << 20..34 << 20).contains(&taken), "{taken}");
    // One that is gone makes room for another one.
    threads.shard(1).disconnected(clients[3].1, now);
    threads.silent = None;
    threads.settle();
    let left = clients.iter().filter(|client| threads.shard(1).is_paused(client.1)).count();
    assert_eq!(left, 0, "everybody goes on");
    let answered: Vec<_> = clients.iter().map(|client| threads.take(*client).len()).collect();
    assert_eq!(answered.iter().sum::<usize>(), taken / request.len() - 1);
}

#[test]
fn what_one_client_has_under_way_is_bounded_wherever_it_asks() {
    let mut threads = Threads::new(2);
    let tops = tops(2);
    let most = Config::default().limits.outstanding_per_connection;
    for (thread, top) in [(0, 0), (0, 1), (1, 1)] {
        let (client, top) = (threads.open(thread), &tops[top]);
        threads.ask(client, &create(-10, top));
        let requests: Vec<_> = (0..most as i32 + 50).map(|xid| set(xid, top, b"x")).collect();
        let now = threads.now;
        let taken = threads.shard(thread).receive(client.1, &requests.concat(), now);
        assert_eq!(taken, requests[..most].concat().len());
        assert!(threads.shard(thread).is_paused(client.1));
        threads.settle();
        assert!(!threads.shard(thread).is_paused(client.1));
        threads.send(client, &requests[most..].concat());
        threads.settle();
        let xids: Vec<_> = threads.take(client).iter().map(|frame| frame.xid).collect();
        assert_eq!(xids, (0..most as i32 + 50).collect::<Vec<_>>());
    }
}

#[test]
fn a_request_over_the_limit_is_answered_in_its_turn_and_passed_over() {
    let mut threads = Threads::new(2);
    let top = tops(2)[1].clone();
    let client = threads.open(0);
    let mut bytes = create(1, &top);
    bytes.extend(set(2, &top, &[7; 1 << 20]));
    bytes.extend(get(3, &top, false));
    for piece in bytes.chunks(100_000) {
        threads.send(client, piece);
    }
    threads.settle();
    let frames: Vec<_> = threads.take(client).iter().map(|frame| (frame.xid, frame.err)).collect();
    assert_eq!(frames, [(1, 0), (2, ErrorCode::MarshallingError as i32), (3, 0)]);
    assert_eq!(threads.shard(0).client_stats().frames_too_large, 1);
    // Longer than that, nobody waits for its end.
    threads.send(client, &(100_i32 << 20).to_be_bytes());
    assert_eq!(threads.closed, [(client, CloseReason::BadFrame)]);
}
