//! What clients of several partitions remember of what they were told: the zxid of the last answer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use stoa_core::CloseReason;
use stoa_tree::Identity;
use stoa_wire::{Acl, ConnectResponse, ErrorCode, Opcode, Reader, WatcherEvent, perms, request::encode, xid};
use threads::*;

/// Opens a session on a thread, and makes a znode on each partition.
fn begin(threads: &mut Threads, tops: &[String]) -> (Client, ConnectResponse, Client) {
    let (reader, session) = threads.connect(0, 0, &[0; 16]);
    let maker = threads.open(2);
    for top in tops {
        assert_eq!(threads.ask(maker, &create(1, top)).err, 0);
    }
    (reader, session, maker)
}

/// The zxid of a set, from its Stat.
fn mzxid(frame: &Frame) -> i64 {
    assert_eq!(frame.err, 0);
    Reader::new(&frame.body[8..]).i64().unwrap()
}

fn set_watches(since: i64, data: &[&str]) -> Vec<u8> {
    request(xid::SET_WATCHES, Opcode::SetWatches, |out| encode::set_watches(out, since, &[data, &[], &[]]))
}

fn event(frame: &Frame) -> String {
    assert_eq!(frame.xid, xid::NOTIFICATION);
    WatcherEvent::decode(&mut Reader::new(&frame.body)).unwrap().path.to_owned()
}

#[test]
fn the_zxid_of_an_answer_hides_no_change_that_the_client_was_not_told_of() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (reader, session, _) = begin(&mut threads, &tops);
    let (one, other) = (threads.open(1), threads.open(2));
    threads.ask(reader, &get(1, &tops[2], false));
    assert_eq!(data(&threads.ask(reader, &get(1, &tops[1], true))), b"first");
    threads.ask(reader, &get(1, &tops[2], false));
    // Changes that have nothing to do with each other; of the first one nothing arrives at the reader's front.
    threads.silent = Some((1, 0));
    let missed = mzxid(&threads.ask(one, &set(2, &tops[1], b"one")));
    let newest = (0..9).map(|_| mzxid(&threads.ask(other, &set(3, &tops[2], b"two")))).last().unwrap();
    assert!(missed < newest);
    let got = threads.ask(reader, &get(4, &tops[2], false));
    assert_eq!(data(&got), b"two");
    assert!(0 < got.zxid && got.zxid < missed, "{} hides {missed}", got.zxid);
    threads.silent = None;
    let now = threads.now;
    threads.shard(0).disconnected(reader.1, now);
    threads.settle();

    let (reader, _) = threads.connect(2, session.session_id, &session.password);
    threads.send(reader, &set_watches(got.zxid, &[&tops[1]]));
    threads.settle();
    let frames = threads.take(reader);
    assert_eq!(frames.len(), 2);
    assert_eq!((event(&frames[0]), frames[1].xid), (tops[1].clone(), xid::SET_WATCHES));
}

#[test]
fn the_answer_of_all_partitions_has_a_zxid_that_hides_nothing() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (reader, _, _) = begin(&mut threads, &tops);
    let (one, other) = (threads.open(1), threads.open(2));
    let newest = (0..9).map(|_| mzxid(&threads.ask(other, &set(3, &tops[0], b"two")))).last().unwrap();
    // The reader's front knows that everybody has what was made.
    let neighbour = threads.open(0);
    threads.ask(neighbour, &get(1, &tops[1], true));
    threads.ask(neighbour, &get(1, &tops[2], false));
    // The second partition has answered when its change comes, and its news does not arrive.
    threads.send(reader, &set_watches(newest, &[&tops[1]]));
    threads.silent = Some((2, 0));
    threads.settle();
    assert_eq!(threads.take(reader), []);
    threads.silent = Some((1, 0));
    let missed = mzxid(&threads.ask(one, &set(2, &tops[1], b"one")));
    assert!(missed < newest);
    let frames = threads.take(reader);
    assert_eq!(frames.len(), 1);
    assert!(0 < frames[0].zxid && frames[0].zxid < missed, "{} hides {missed}", frames[0].zxid);
}

#[test]
fn who_watches_in_one_place_is_told_the_zxids_of_others_as_they_are_before_long() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    for watched in 0..2 {
        let (reader, _, maker) = begin(&mut threads, &tops[..if watched == 0 { 3 } else { 0 }]);
        threads.ask(reader, &get(1, &tops[1], false));
        let newest = (0..9).map(|_| mzxid(&threads.ask(maker, &set(3, &tops[2], b"two")))).last().unwrap();
        let got = threads.ask(reader, &get(4, &tops[2], false));
        assert_eq!(got.zxid, newest, "it watches nothing");
        // The partitions where it watches have nothing to do, and yet keep up.
        threads.ask(reader, &get(5, &tops[watched], true));
        let newest = (0..9).map(|_| mzxid(&threads.ask(maker, &set(6, &tops[2], b"two")))).last().unwrap();
        let got = threads.ask(reader, &get(7, &tops[2], false));
        assert!(got.zxid < newest);
        for _ in 0..2 {
            threads.pass(100);
        }
        let got = threads.ask(reader, &get(8, &tops[2], false));
        assert_eq!(got.zxid, newest);
        // What they do afterwards is not hidden.
        let later = mzxid(&threads.ask(maker, &set(9, &tops[watched], b"later")));
        assert!(later > newest);
        threads.take(reader);
    }
}

#[test]
fn what_a_partition_has_promised_holds_for_the_next_leader() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (reader, session, maker) = begin(&mut threads, &tops);
    threads.ask(reader, &get(1, &tops[1], true));
    for _ in 0..3 {
        (0..9).for_each(|_| drop(threads.ask(maker, &set(2, &tops[2], b"two"))));
        threads.ask(reader, &get(3, &tops[2], false));
        threads.pass(100);
    }
    let told = threads.ask(reader, &get(4, &tops[2], false)).zxid;
    threads.restart();
    // Somebody who has seen nothing changes what is watched.
    let other = threads.open(1);
    let later = mzxid(&threads.ask(other, &set(5, &tops[1], b"later")));
    assert!(later > told, "{later} would be hidden by {told}");
    let (reader, _) = threads.connect(0, session.session_id, &session.password);
    threads.send(reader, &set_watches(told, &[&tops[1]]));
    threads.settle();
    assert_eq!(event(&threads.take(reader)[0]), tops[1]);
}

#[test]
fn setting_watches_again_watches_only_where_they_are() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (reader, _, maker) = begin(&mut threads, &tops);
    let answer = threads.ask(reader, &set_watches(1 << 40, &[&tops[2]]));
    assert_eq!((answer.xid, answer.err), (xid::SET_WATCHES, 0));
    let newest = (0..9).map(|_| mzxid(&threads.ask(maker, &set(3, &tops[2], b"two")))).last().unwrap();
    threads.take(reader);
    // The other partitions have seen nothing of it, and need not.
    assert_eq!(threads.ask(reader, &get(4, &tops[2], false)).zxid, newest);
}

#[test]
fn a_client_that_has_seen_more_than_all_partitions_is_sent_away() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (reader, session, maker) = begin(&mut threads, &tops);
    let newest = (0..9).map(|_| mzxid(&threads.ask(maker, &set(3, &tops[2], b"two")))).last().unwrap();
    let (id, password) = (session.session_id, session.password);
    let own: (i64, &[u8]) = (id, &password);
    let none: (i64, &[u8]) = (0, &[0; 16]);
    for thread in 0..3 {
        for comes in [own, none] {
            // The first partition has seen nothing of it, and yet nobody is sent away for that.
            let (client, response) = threads.connect_as(thread, comes, newest, false);
            assert_ne!(response.unwrap().session_id, 0);
            assert_eq!(data(&threads.ask(client, &get(1, &tops[2], false))), b"two");
            threads.closed.clear();
            let (ahead, response) = threads.connect_as(thread, comes, newest + 1000, false);
            assert_eq!(response, None);
            assert!(threads.closed.contains(&(ahead, CloseReason::ClientAhead)), "{:?}", threads.closed);
        }
    }
    let _ = reader;
}

#[test]
fn a_new_session_is_shown_nothing_older_than_its_client_has_seen() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (_, _, maker) = begin(&mut threads, &tops);
    let newest = mzxid(&threads.ask(maker, &set(3, &tops[1], b"seen")));
    // Its second partition tells nobody anything for a while: it could be far behind.
    threads.silent = Some((1, 0));
    let client = threads.begin(0, (0, &[0; 16]), newest, false);
    threads.settle();
    assert_eq!(threads.response(client), None, "nobody knows yet what there is");
    threads.silent = None;
    threads.settle();
    assert_ne!(threads.response(client).unwrap().session_id, 0);
    assert_eq!(data(&threads.ask(client, &get(1, &tops[1], false))), b"seen");
    // Who has seen nothing waits for nobody.
    threads.silent = Some((1, 0));
    threads.open(0);
}

#[test]
fn a_refusal_that_ends_the_connection_is_given_first_however_long_it_waits() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (reader, _, _) = begin(&mut threads, &tops);
    threads.ask(reader, &get(1, &tops[1], true));
    let other = threads.open(2);
    // What the first partition has rests on something that the reader has not been told of yet.
    threads.silent = Some((1, 0));
    threads.ask(other, &set(2, &tops[1], b"news"));
    threads.ask(other, &set(3, &tops[0], b"after it"));
    threads.send(reader, &request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "no scheme", b"")));
    threads.settle();
    assert_eq!(threads.take(reader), []);
    threads.silent = None;
    threads.settle();
    let told: Vec<_> = threads.take(reader).iter().map(|frame| frame.xid).collect();
    assert_eq!(told, [xid::NOTIFICATION, xid::AUTH]);
}

#[test]
fn what_is_proved_again_and_again_takes_no_room_from_what_is_proved_once() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (client, _, maker) = begin(&mut threads, &tops);
    let auth = |scheme: &str, data: &str| {
        request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, scheme, data.as_bytes()))
    };
    threads.send(maker, &auth("digest", "owner:secret"));
    for top in &tops {
        let owner = [Acl { perms: perms::ALL, scheme: "auth", id: "" }];
        let path = format!("{top}/mine");
        let create = request(1, Opcode::Create, |out| encode::create(out, &path, Some(b""), &owner, 0, None));
        assert_eq!(threads.ask_after_pings(maker, &create).err, 0);
    }
    // Before it has asked the other partitions anything.
    for n in 0..100 {
        threads.send(client, &auth("digest", "me:secret"));
        threads.send(client, &auth("ip", &n.to_string()));
        threads.send(client, &auth("consistency", if n % 2 == 0 { "linearizable" } else { "sequential" }));
    }
    threads.send(client, &auth("digest", "owner:secret"));
    threads.settle();
    assert!(threads.take(client).iter().all(|frame| frame.err == 0));
    for (xid, top) in (2..).zip(&tops) {
        let got = threads.ask_after_pings(client, &get(xid, &format!("{top}/mine"), false));
        assert_eq!(got.err, 0, "{top}");
    }
    // Too many are refused, as on one partition.
    for n in 0..64 {
        threads.send(client, &auth("digest", &format!("user-{n}:secret")));
    }
    threads.settle();
    let told = threads.take(client);
    assert_eq!(told.last().map(|frame| frame.err), Some(ErrorCode::AuthFailed as i32));
    assert_eq!(threads.closed.last(), Some(&(client, CloseReason::AuthFailed)));
}

/// What a certificate proves is known to the thread that has the client, and goes with it to every partition: to those
/// that it asks later, and to those that know it already.
#[test]
fn who_was_proved_to_a_front_is_known_to_all_partitions() {
    let mut threads = Threads::new(3);
    let tops = tops(3);
    let (_, _, maker) = begin(&mut threads, &tops);
    let anna = Identity { scheme: "x509".into(), id: "CN=anna".into() };
    let (early, late, nobody) = (threads.open(0), threads.open(0), threads.open(0));
    threads.shard(early.0).identify(early.1, vec![anna.clone()]);
    for top in &tops {
        let path = format!("{top}/hers");
        let acl = [Acl { perms: perms::ALL, scheme: "x509", id: "CN=anna" }];
        let create = request(1, Opcode::Create, |out| encode::create(out, &path, Some(b"x"), &acl, 0, None));
        assert_eq!(threads.ask(maker, &create).err, 0);
        // All of them are known everywhere when the late one proves who it is.
        assert_eq!(threads.ask(late, &get(2, &path, false)).err, ErrorCode::NoAuth as i32);
    }
    threads.shard(late.0).identify(late.1, vec![anna]);
    threads.settle();
    for path in tops.iter().map(|top| format!("{top}/hers")) {
        assert_eq!(data(&threads.ask(early, &get(3, &path, false))), b"x");
        assert_eq!(data(&threads.ask(late, &get(3, &path, false))), b"x");
        assert_eq!(threads.ask(nobody, &get(3, &path, false)).err, ErrorCode::NoAuth as i32);
    }
}
