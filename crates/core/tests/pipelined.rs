//! What a client asks of one partition before others have answered it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use stoa_core::{Item, Items, Outcome, Placement};
use stoa_wire::{OPEN_ACL, Opcode, Reader, WatcherEvent, request::encode, xid};
use threads::*;

/// A server with four partitions, a directory on each, and a client of the first thread.
fn furnished() -> (Threads, Vec<String>, Client) {
    let mut threads = Threads::new(4);
    let tops = tops(4);
    let client = threads.open(0);
    for top in &tops {
        assert_eq!(threads.ask(client, &create(1, top)).err, 0);
    }
    (threads, tops, client)
}

#[test]
fn writes_are_prepared_by_all_partitions_before_any_is_stored() {
    let (mut threads, tops, client) = furnished();
    let reader = threads.open(3);
    let given = |threads: &Threads, record| -> Vec<usize> {
        (0..4).map(|partition| threads.entries_of(partition, record).len()).collect()
    };
    threads.slow_log = vec![0];
    let record = threads.records.len();
    let bytes: Vec<_> =
        (0..12).flat_map(|number| set(number + 10, &tops[number as usize % 4], &[number as u8])).collect();
    threads.send(client, &bytes);
    threads.settle();
    // The first one showed that the client asks several partitions: so it went out by itself.
    assert_eq!(given(&threads, record), [1, 0, 0, 0]);
    threads.slow_log.clear();
    threads.settle();
    assert_eq!(xids(&threads.take(client)), (10..22).collect::<Vec<_>>());

    let bytes: Vec<_> =
        (0..12).flat_map(|number| set(number + 30, &tops[number as usize % 4], &[number as u8])).collect();
    threads.slow_log = vec![0, 1, 2];
    let record = threads.records.len();
    threads.send(client, &[set(29, &tops[3], b"?"), bytes].concat());
    threads.settle();
    threads.slow_log = vec![1, 2];
    threads.settle();
    assert!(given(&threads, record).iter().all(|entries| *entries > 0), "{:?}", given(&threads, record));
    // Those of the last partition are applied there, and must not be told before the second one has come as far.
    assert_eq!(xids(&threads.take(client)), [29, 30]);
    assert_eq!(data(&threads.ask(reader, &get(1, &tops[3], false))), [11]);
    threads.slow_log.clear();
    threads.settle();
    assert_eq!(xids(&threads.take(client)), (31..42).collect::<Vec<_>>());
    for (number, top) in tops.iter().enumerate() {
        assert_eq!(data(&threads.ask(reader, &get(2, top, false))), [number as u8 + 8]);
    }
}

/// A client that has been told something by every partition, and asks several.
fn acquainted() -> (Threads, Vec<String>, Client) {
    let (mut threads, tops, client) = furnished();
    for top in &tops {
        assert_eq!(data(&threads.ask(client, &get(2, top, false))), b"first");
    }
    (threads, tops, client)
}

#[test]
fn writes_that_wait_are_handed_from_partition_to_partition() {
    let (mut threads, tops, client) = acquainted();
    let reader = threads.open(3);
    // The first one shows that the client asks several partitions. What the second partition says to the client's
    // front arrives late.
    threads.silent = Some((1, 0));
    let writes = [(9, 3), (10, 1), (11, 2), (12, 2), (13, 3)];
    threads.send(client, &writes.map(|(xid, of)| set(xid, &tops[of], &[xid as u8])).concat());
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [9]);
    for (top, written) in [(1, 10), (2, 12), (3, 13)] {
        assert_eq!(data(&threads.ask(reader, &get(1, &tops[top], false))), [written]);
    }
    threads.silent = None;
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [10, 11, 12, 13]);
}

#[test]
fn nothing_is_asked_where_a_write_is_still_handed_on_to() {
    let (mut threads, tops, client) = acquainted();
    let reader = threads.open(3);
    threads.silent = Some((1, 2));
    let writes = [(9, 3), (10, 1), (11, 2)];
    threads.send(client, &writes.map(|(xid, of)| set(xid, &tops[of], &[xid as u8])).concat());
    threads.settle();
    threads.send(client, &set(12, &tops[2], &[12]));
    threads.settle();
    assert_eq!(data(&threads.ask(reader, &get(1, &tops[2], false))), b"first");
    threads.silent = None;
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [9, 10, 11, 12]);
    assert_eq!(data(&threads.ask(reader, &get(2, &tops[2], false))), [12]);
}

#[test]
fn what_follows_a_write_that_is_given_back_is_given_back_with_it() {
    let (mut threads, tops, client) = acquainted();
    let other = of_other_partition();
    let requests = [
        set(9, &tops[3], b"!"),
        set(10, &tops[1], b"!"),
        // The first partition cannot do that alone.
        create(11, &other),
        set(12, &other, b"new"),
        set(13, &tops[2], b"!"),
        set(14, &other, b"newer"),
    ];
    threads.send(client, &requests.concat());
    threads.settle();
    let frames = threads.take(client);
    assert_eq!(xids(&frames), (9..15).collect::<Vec<_>>());
    assert!(frames.iter().all(|frame| frame.err == 0), "{frames:?}");
    assert!(frames.is_sorted_by_key(|frame| frame.zxid));
    let reader = threads.open(2);
    assert_eq!(data(&threads.ask(reader, &get(1, &other, false))), b"newer");
}

#[test]
fn what_a_client_proves_meanwhile_does_not_let_a_write_overtake_one_that_is_given_back() {
    let (mut threads, tops, _) = furnished();
    let client = threads.open(1);
    let other = of_other_partition();
    threads.silent = Some((1, 0));
    threads.send(client, &[set(9, &tops[3], b"!"), create(10, &other)].concat());
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [9]);
    // The first partition cannot create that alone.
    let proof = request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "digest", b"me:secret"));
    threads.send(client, &[proof, set(11, &tops[0], b"!"), set(12, &tops[0], b"?")].concat());
    threads.settle();
    threads.silent = None;
    threads.settle();
    let told: Vec<_> = xids(&threads.take(client)).into_iter().filter(|xid| *xid != xid::AUTH).collect();
    assert_eq!(told, [10, 11, 12]);
}

/// A path right below the root that lives on the last of four partitions.
fn of_other_partition() -> String {
    let placement = Placement::new(4);
    (0..).map(|number| format!("/other-{number}")).find(|path| placement.of(path) == 3).unwrap()
}

#[test]
fn what_the_log_has_no_room_for_is_refused_on_all_partitions() {
    let (mut threads, tops, client) = furnished();
    let other = threads.open(2);
    threads.slow_log = vec![0];
    threads.send(client, &set(8, &tops[0], b"?"));
    threads.settle();
    threads.slow_log.clear();
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [8]);
    // The first one is answered, and shows that the client asks several partitions.
    threads.send(
        client,
        &[set(9, &tops[3], b"?"), set(10, &tops[1], b"one"), set(11, &tops[2], b"two")].concat(),
    );
    while threads.take(client).is_empty() {
        assert!(threads.step());
    }
    threads.slow_log = vec![0];
    threads.settle();
    // What somebody else writes behind it was prepared on top of it.
    threads.send(other, &set(12, &tops[2], b"three"));
    threads.settle();
    threads.refuse_records();
    threads.slow_log.clear();
    threads.settle();
    threads.pass(600);
    threads.pass(600);
    let refused = threads.take(other);
    assert_eq!((refused.len(), refused[0].xid), (1, 12));
    assert_ne!(refused[0].err, 0);
    assert!(threads.take(client).iter().all(|frame| frame.err != 0));
    for is_restarted in [false, true] {
        let client = threads.open(3);
        for top in &tops[1..3] {
            assert_eq!(data(&threads.ask(client, &get(2, top, false))), b"first", "{is_restarted}");
        }
        threads.restart();
    }
    let client = threads.open(1);
    assert_eq!(threads.ask(client, &set(3, &tops[2], b"four")).err, 0);
    threads.restart();
    let client = threads.open(2);
    assert_eq!(data(&threads.ask(client, &get(2, &tops[2], false))), b"four");
}

#[test]
fn a_read_that_others_have_overtaken_is_asked_again() {
    let (mut threads, tops, client) = furnished();
    let writer = threads.open(3);
    // What the client asks the second partition arrives late; the third answers at once.
    threads.silent = Some((0, 1));
    let reads = [get(9, &tops[3], false), get(10, &tops[1], false), get(11, &tops[2], false)];
    threads.send(client, &reads.concat());
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [9]);
    assert_eq!(threads.ask(writer, &set(2, &tops[2], b"new")).err, 0);
    assert_eq!(threads.ask(writer, &set(3, &tops[1], b"after it")).err, 0);
    threads.silent = None;
    threads.settle();
    let frames = threads.take(client);
    assert_eq!(xids(&frames), [10, 11]);
    assert_eq!((data(&frames[0]), data(&frames[1])), (b"after it".to_vec(), b"new".to_vec()));
}

#[test]
fn answers_to_what_is_asked_ahead_are_sent_together_and_not_late() {
    let (mut threads, tops, client) = furnished();
    let order = [0, 1, 2, 0, 3, 0, 1, 2, 0];
    let requests = (9..18).flat_map(|xid| set(xid, &tops[order[xid as usize - 9]], b"!"));
    threads.slow_log = vec![1, 2, 3];
    threads.send(client, &requests.collect::<Vec<_>>());
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [9], "one was asked in turn");
    threads.to_send.clear();
    threads.slow_log = vec![3];
    threads.settle();
    // Three that were pipelined are answered, and five are to come.
    (0..19).for_each(|_| threads.pass(1));
    assert_eq!(threads.to_send, [], "it is not time yet");
    threads.pass(1);
    assert_eq!(threads.to_send, [client], "nobody waits for longer than that");
    assert_eq!(xids(&threads.take(client)), [10, 11, 12]);
    threads.slow_log.clear();
    threads.settle();
    assert_eq!(threads.to_send.last(), Some(&client), "nothing is to come any more");
    assert_eq!(xids(&threads.take(client)), (13..18).collect::<Vec<_>>());
}

#[test]
fn answers_that_were_sent_in_time_do_not_hurry_those_behind_them() {
    let (mut threads, tops, client) = furnished();
    let order = [0, 1, 2, 3, 3, 3, 3, 3, 3];
    let requests = (9..18).flat_map(|xid| set(xid, &tops[order[xid as usize - 9]], b"!"));
    threads.slow_log = vec![1, 2, 3];
    threads.send(client, &requests.collect::<Vec<_>>());
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [9], "one was asked in turn");
    threads.to_send.clear();
    threads.slow_log = vec![2, 3];
    threads.settle();
    threads.pass(5);
    assert_eq!(threads.to_send, [], "one is held back");
    // A heartbeat is answered at once, and with it leaves what is there.
    threads.send(client, &request(xid::PING, Opcode::Ping, |_| {}));
    assert_eq!(xids(&threads.take(client)), [10, xid::PING]);
    threads.to_send.clear();
    threads.slow_log = vec![3];
    threads.settle();
    (0..19).for_each(|_| threads.pass(1));
    assert_eq!(threads.to_send, [], "another one is held back since then");
    threads.pass(1);
    assert_eq!(threads.to_send, [client], "nobody waits for longer than that");
    assert_eq!(xids(&threads.take(client)), [11]);
}

/// How many steps the entries of a partition have from a record on.
fn steps(threads: &Threads, partition: u8, record: usize) -> usize {
    let entries = threads.entries_of(partition, record);
    let items = entries.iter().flat_map(|entry| Items::new(entry));
    items.filter(|item| matches!(item, Ok(Item { outcome: Outcome::Step(_), .. }))).count()
}

#[test]
fn what_is_heard_before_anything_is_promised_is_in_one_step() {
    for is_together in [true, false] {
        let (mut threads, tops, _) = furnished();
        let clients: Vec<_> = (0..8).map(|_| threads.open(0)).collect();
        threads.silent = Some((0, 2));
        for client in &clients {
            let requests = [set(9, &tops[3], b"!"), set(10, &tops[1], b"!"), set(11, &tops[2], b"!")];
            threads.send(*client, &requests.concat());
        }
        threads.settle();
        let (record, now) = (threads.records.len(), threads.now);
        threads.silent = None;
        for message in threads.messages.remove(&(0, 2)).unwrap() {
            threads.shard(2).hear(0, message, now);
            if !is_together {
                threads.shard(2).settle(now);
            }
        }
        threads.settle();
        assert_eq!(steps(&threads, 2, record), if is_together { 1 } else { clients.len() });
        for client in clients {
            assert_eq!(xids(&threads.take(client)), [9, 10, 11]);
        }
    }
}

fn exists(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Exists, |out| encode::path_watch(out, path, true))
}

fn event(frame: &Frame) -> String {
    WatcherEvent::decode(&mut Reader::new(&frame.body)).unwrap().path.to_owned()
}

/// Whoever pipelines writes is told of them, and so is who watches, as if there were one partition: in their order,
/// each event ahead of the answer and behind the answer before.
#[test]
fn what_is_told_of_pipelined_writes_has_their_order() {
    for seed in 0..2000 {
        let (mut threads, tops, client) = furnished();
        threads.random = seed;
        let watcher = threads.open(2);
        let mut expected = vec![8];
        let mut watched = Vec::new();
        let mut requests = set(8, &tops[3], b"!");
        // Some partitions are not watched at all.
        let partitions: Vec<_> = (0..tops.len()).filter(|_| threads.draw(4) > 0).collect();
        for xid in 9..40 {
            let of = threads.draw(4);
            let path = format!("{}/{xid}", tops[of]);
            let with = &tops[(of + 1) % 4];
            let both = |paths: [&str; 2]| {
                multi(xid, Opcode::Multi, |out| {
                    for path in paths {
                        op(out, Opcode::Create, |out| encode::create(out, path, None, OPEN_ACL, 0, None));
                    }
                })
            };
            let drawn = threads.draw(12);
            requests.extend(match drawn {
                // Refused: the version is another one, or the parent is nowhere.
                0 | 1 => request(xid, Opcode::SetData, |out| encode::set_data(out, &tops[of], None, 1 << 20)),
                2 | 3 => create(xid, &format!("{path}/nowhere")),
                4 => both([&format!("{path}/nowhere"), with]),
                _ => {
                    if partitions.contains(&of) && threads.draw(2) == 0 {
                        assert_ne!(threads.ask(client, &exists(1, &path)).err, 0);
                        assert_ne!(threads.ask(watcher, &exists(1, &path)).err, 0);
                        expected.push(-1);
                        watched.push(path.clone());
                    }
                    match drawn {
                        5 | 6 => both([&format!("{with}/with-{xid}"), &path]),
                        _ => create(xid, &path),
                    }
                }
            });
            expected.push(xid);
        }
        // Some hear of what is stored later than others.
        threads.slow_log = (0..4).filter(|_| threads.draw(3) == 0).collect();
        threads.send(client, &requests);
        for _ in 0..threads.draw(200) {
            threads.step();
        }
        threads.slow_log.clear();
        threads.settle();
        let told = threads.take(client);
        assert_eq!(xids(&told), expected, "{seed}");
        let events: Vec<_> = told.iter().filter(|frame| frame.xid == -1).map(event).collect();
        assert_eq!(events, watched, "{seed}");
        let events: Vec<_> = threads.take(watcher).iter().map(event).collect();
        assert_eq!(events, watched, "{seed}");
    }
}

#[test]
fn an_event_of_a_write_does_not_overtake_the_answers_to_what_was_asked_before_it() {
    let (mut threads, tops, client) = furnished();
    let watched = format!("{}/watched", tops[2]);
    threads.ask(client, &exists(8, &watched));
    let both = |xid, version, paths: [&str; 2]| {
        multi(xid, Opcode::Multi, |out| {
            op(out, Opcode::Check, |out| encode::path_version(out, &tops[1], version));
            for path in paths {
                op(out, Opcode::Create, |out| encode::create(out, path, None, OPEN_ACL, 0, None));
            }
        })
    };
    let paths = [&*format!("{}/other", tops[1]), &*watched];
    // What the second partition has for the client takes its time; what it has for the third does not.
    threads.silent = Some((1, 0));
    threads.send(client, &[both(9, 1 << 20, paths), both(10, -1, paths)].concat());
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [0; 0]);
    threads.silent = None;
    threads.settle();
    assert_eq!(xids(&threads.take(client)), [9, -1, 10]);
}
