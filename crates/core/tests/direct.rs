//! Direct clients, on one server with several partitions: a main connection and side connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use std::net::SocketAddr;

use stoa_core::CloseReason;
use stoa_wire::{
    ConnectRequest, ConnectResponse, ELSEWHERE, ErrorCode, Offer, Opcode, Reader, ReplyHeader, RequestHeader,
    SideHello, Stamped, Table, Timestamp, WatcherEvent, ask_direct, direct_op, direct_xid, next_frame,
    request::encode, side_answer, stamp_of, xid,
};
use threads::*;

/// A direct client's main connection.
struct Main {
    client: Client,
    session: i64,
    password: [u8; 16],
    token: Vec<u8>,
}

/// A frame, with the stamp that was told last before it.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    frame: Frame,
    stamp: Option<Timestamp>,
}

impl Threads {
    fn open_direct(&mut self, thread: u8) -> Main {
        let peer = SocketAddr::from(([10, 0, 0, 1], 4000));
        let now = self.now;
        let client = (thread, self.shard(thread).connect(peer, now).unwrap());
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 10_000,
            session_id: 0,
            password: &[0; 16],
            read_only: Some(false),
        };
        self.send(
            client,
            &frame(|out| {
                request.encode(out);
                ask_direct(out);
            }),
        );
        self.settle();
        let bytes = self.take_bytes(client);
        let (payload, rest) = next_frame(&bytes, 1000).unwrap().unwrap();
        assert!(rest.is_empty());
        let response = ConnectResponse::decode(payload).unwrap();
        let offer = Offer::find(payload).unwrap().unwrap();
        assert_eq!((offer.partitions, offer.own, &offer.table), (4, thread, &Table::default()));
        let (session, password) = (response.session_id, response.password);
        Main { client, session, password, token: offer.token.to_vec() }
    }

    fn begin_side(&mut self, thread: u8, hello: &[u8]) -> Client {
        let peer = SocketAddr::from(([10, 0, 0, 1], 4001));
        let now = self.now;
        let side = (thread, self.shard(thread).connect_side(peer, now).unwrap().unwrap());
        self.send(side, hello);
        self.settle();
        side
    }

    fn side_answer(&mut self, side: Client) -> Option<i32> {
        let bytes = self.take_bytes(side);
        let (payload, rest) = next_frame(&bytes, 1000).unwrap()?;
        assert!(rest.is_empty());
        Some(side_answer(payload).unwrap())
    }

    fn open_side(&mut self, main: &Main, thread: u8) -> Client {
        let hello = SideHello { session_id: main.session, password: &main.password };
        let side = self.begin_side(thread, &frame(|out| hello.encode(out)));
        assert_eq!(self.side_answer(side), Some(0));
        side
    }

    /// What has been said, and the last token.
    fn hear(&mut self, client: Client) -> (Vec<Told>, Vec<u8>) {
        self.settle();
        let (mut told, mut token, mut stamp) = (Vec::new(), Vec::new(), None);
        for frame in self.take(client) {
            if frame.xid == direct_xid::STAMP {
                let stamped = Stamped::decode(&mut Reader::new(&frame.body)).unwrap();
                token = stamped.token.to_vec();
                stamp = Some(stamp_of(&token).unwrap().0);
            } else {
                told.push(Told { frame, stamp: stamp.clone() });
            }
        }
        (told, token)
    }

    fn is_closed(&self, client: Client) -> Option<CloseReason> {
        self.closed.iter().find(|(closed, _)| *closed == client).map(|(_, reason)| *reason)
    }
}

fn said(opcode: i32, body: &[u8]) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid: 0, opcode }.encode(out);
        out.extend_from_slice(body);
    })
}

fn fast(xid: i32, path: &str, watch: bool) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid, opcode: direct_op::FAST }.encode(out);
        out.extend((Opcode::GetData as i32).to_be_bytes());
        encode::path_watch(out, path, watch);
    })
}

/// A server with a directory on each partition.
fn server() -> (Threads, Vec<String>) {
    let mut threads = Threads::new(4);
    let tops = tops(4);
    let creator = threads.open(0);
    for top in &tops {
        threads.ask(creator, &create(1, top));
    }
    (threads, tops)
}

#[test]
fn each_partition_answers_on_a_connection_of_its_own() {
    let (mut threads, tops) = server();
    for front in 0..4 {
        let main = threads.open_direct(front);
        for (partition, top) in (0..4).zip(&tops) {
            let own = if partition == front { main.client } else { threads.open_side(&main, partition) };
            threads.send(own, &set(1, top, &[front]));
            threads.send(own, &get(2, top, false));
            let (told, _) = threads.hear(own);
            assert_eq!(told.iter().map(|told| told.frame.xid).collect::<Vec<_>>(), [1, 2]);
            assert_eq!(data(&told[1].frame), [front]);
            assert!(told[0].stamp.is_some(), "a write is news");
        }
    }
}

#[test]
fn a_stamp_is_told_once_and_covers_what_follows() {
    let (mut threads, tops) = server();
    let main = threads.open_direct(0);
    let side = threads.open_side(&main, 2);
    threads.send(side, &[get(1, &tops[2], true), get(2, &tops[2], false)].concat());
    let (told, token) = threads.hear(side);
    assert_eq!(told.len(), 2);
    let (stamp, _) = stamp_of(&token).unwrap();
    assert!(stamp.at(2) > 0);
    threads.send(side, &get(3, &tops[2], false));
    let (told, token) = threads.hear(side);
    assert_eq!((told.len(), told[0].stamp.clone(), token.len()), (1, None, 0), "nothing has changed");
    let writer = threads.open(1);
    threads.ask(writer, &set(1, &tops[2], b"new"));
    let bytes = threads.take_bytes(side);
    let (first, rest) = next_frame(&bytes, 1000).unwrap().unwrap();
    let mut reader = Reader::new(first);
    assert_eq!(ReplyHeader::decode(&mut reader).unwrap().xid, direct_xid::STAMP);
    let stamped = Stamped::decode(&mut reader).unwrap();
    assert_eq!(stamped.covers, rest.len());
    assert!(stamp_of(stamped.token).unwrap().0.at(2) > stamp.at(2));
}

#[test]
fn what_a_client_has_seen_goes_with_it_to_another_partition() {
    let (mut threads, tops) = server();
    let main = threads.open_direct(3);
    let (one, other) = (threads.open_side(&main, 1), threads.open_side(&main, 2));
    for round in 0..20 {
        threads.send(one, &set(round, &tops[1], &[round as u8]));
        let (told, token) = threads.hear(one);
        let zxid = told[0].frame.zxid;
        threads.send(other, &[said(direct_op::SEEN, &token), set(round, &tops[2], b"x")].concat());
        let (told, token) = threads.hear(other);
        assert!(told[0].frame.zxid > zxid, "what follows has a larger zxid");
        let (stamp, _) = stamp_of(&token).unwrap();
        let seen = told[0].stamp.clone().unwrap();
        assert!(stamp.covers(&seen) && stamp.at(1) > 0, "and is known to follow");
    }
    // To the main connection it is said in the same way.
    threads.send(one, &set(30, &tops[1], b"y"));
    let (told, token) = threads.hear(one);
    threads.send(main.client, &[said(direct_op::SEEN, &token), set(1, &tops[0], b"z")].concat());
    let (after, _) = threads.hear(main.client);
    assert!(after[0].frame.zxid > told[0].frame.zxid);
}

#[test]
fn a_fast_read_waits_for_nothing() {
    let (mut threads, tops) = server();
    let main = threads.open_direct(0);
    for (partition, client) in [(0, main.client), (2, threads.open_side(&main, 2))] {
        let top = &tops[partition];
        let now = threads.now;
        let bytes = [set(1, top, b"slow"), get(2, top, false), fast(3, top, true)].concat();
        assert_eq!(threads.shard(client.0).receive(client.1, &bytes, now), bytes.len());
        // Nothing is stored yet, and other threads have not run.
        let quick: Vec<_> = threads.take(client).into_iter().filter(|it| it.xid > 0).collect();
        assert_eq!(quick.len(), 1);
        assert_eq!((quick[0].xid, data(&quick[0])), (3, b"first".to_vec()));
        let (told, _) = threads.hear(client);
        let xids: Vec<_> = told.iter().map(|told| told.frame.xid).collect();
        assert_eq!(xids, [xid::NOTIFICATION, 1, 2], "it has left a watch");
        assert_eq!(data(&told[2].frame), b"slow");
    }
}

#[test]
fn what_is_sent_to_the_wrong_partition_comes_back_in_its_turn() {
    let (mut threads, tops) = server();
    let main = threads.open_direct(0);
    let side = threads.open_side(&main, 2);
    let whole = |xid, opcode| request(xid, opcode, |_| {});
    let bytes = [
        set(1, &tops[2], b"here"),
        set(2, &tops[1], b"there"),
        get(3, &tops[2], false),
        create(4, "/at-the-root"),
        whole(5, Opcode::CloseSession),
        whole(6, Opcode::WhoAmI),
        request(7, Opcode::GetEphemerals, |out| encode::path(out, "/")),
        fast(8, &tops[1], false),
        get(9, &tops[2], false),
    ];
    threads.send(side, &bytes.concat());
    let (told, _) = threads.hear(side);
    let answers: Vec<_> = told.iter().map(|told| (told.frame.xid, told.frame.err)).collect();
    // All behind it too, or they would overtake it, until the client says by which table it sends them.
    let back = |xid| (xid, ELSEWHERE);
    assert_eq!(answers, [vec![(1, 0)], (2..=9).map(back).collect()].concat());
    let routed = frame(|out| {
        RequestHeader { xid: 0, opcode: direct_op::ROUTED }.encode(out);
        out.extend_from_slice(&[0; 8]);
    });
    threads.send(side, &[routed, get(9, &tops[2], false)].concat());
    let (told, _) = threads.hear(side);
    assert_eq!((told[0].frame.xid, told[0].frame.err), (9, 0));
    assert_eq!(data(&threads.ask_after_pings(main.client, &get(1, &tops[1], false))), b"first");
    // A frame that is too long is refused, not given back.
    let mut long = set(10, &tops[2], b"");
    long[..4].copy_from_slice(&0x10_0000_u32.to_be_bytes());
    long.resize(0x10_0004, 0);
    threads.send(side, &long);
    let (told, _) = threads.hear(side);
    assert_eq!((told[0].frame.xid, told[0].frame.err), (10, ErrorCode::MarshallingError as i32));
}

#[test]
fn a_client_is_told_when_nothing_is_left_to_come_before_a_stamp() {
    let (mut threads, tops) = server();
    let main = threads.open_direct(0);
    let (one, other) = (threads.open_side(&main, 1), threads.open_side(&main, 2));
    threads.send(one, &get(1, &tops[1], true));
    threads.hear(one);
    let writer = threads.open(3);
    threads.ask(writer, &set(1, &tops[1], b"first"));
    threads.ask(writer, &set(2, &tops[2], b"second"));
    threads.send(other, &get(1, &tops[2], false));
    let (_, token) = threads.hear(other);
    threads.send(one, &said(direct_op::REACH, &token));
    let (told, _) = threads.hear(one);
    let xids: Vec<_> = told.iter().map(|told| told.frame.xid).collect();
    assert_eq!(xids, [xid::NOTIFICATION, direct_xid::REACHED]);
    let event = WatcherEvent::decode(&mut Reader::new(&told[0].frame.body)).unwrap();
    assert_eq!(event.path, tops[1]);
    // The main connection speaks for all partitions that it watches.
    threads.send(main.client, &get(1, &tops[3], true));
    threads.hear(main.client);
    threads.ask(writer, &set(3, &tops[3], b"third"));
    threads.ask(writer, &set(4, &tops[2], b"fourth"));
    threads.send(other, &get(2, &tops[2], false));
    let (_, token) = threads.hear(other);
    threads.send(main.client, &said(direct_op::REACH, &token));
    let (told, _) = threads.hear(main.client);
    let xids: Vec<_> = told.iter().map(|told| told.frame.xid).collect();
    assert_eq!(xids, [xid::NOTIFICATION, direct_xid::REACHED]);
}

#[test]
fn side_connections_end_with_the_main_one() {
    let (mut threads, _) = server();
    let main = threads.open_direct(1);
    let sides: Vec<_> = [0, 2, 3].map(|partition| threads.open_side(&main, partition)).into();
    // A second one for the same partition takes the place of the first.
    let second = threads.open_side(&main, 2);
    assert_eq!(threads.is_closed(sides[1]), Some(CloseReason::SessionMoved));
    let now = threads.now;
    threads.shard(2).disconnected(sides[1].1, now);
    threads.settle();
    assert_eq!(threads.is_closed(second), None);
    threads.shard(1).disconnected(main.client.1, now);
    threads.settle();
    for side in [sides[0], second, sides[2]] {
        assert_eq!(threads.is_closed(side), Some(CloseReason::MainEnded));
    }
    // Nor may any come now, though the session is alive.
    let hello = SideHello { session_id: main.session, password: &main.password };
    let late = threads.begin_side(3, &frame(|out| hello.encode(out)));
    assert_eq!(threads.side_answer(late), Some(ErrorCode::SessionMoved as i32));
    assert!(threads.is_closed(late).is_some());
    // The session moves to another connection, or is closed: the same.
    let (again, response) = threads.connect(0, main.session, &main.password);
    assert_eq!(response.session_id, main.session);
    let side = threads.open_side(&main, 3);
    threads.connect(2, main.session, &main.password);
    assert_eq!(threads.is_closed(again), Some(CloseReason::SessionMoved));
    assert_eq!(threads.is_closed(side), Some(CloseReason::MainEnded));
    let other = threads.open_direct(3);
    let side = threads.open_side(&other, 0);
    threads.send(other.client, &request(1, Opcode::CloseSession, |_| {}));
    threads.settle();
    assert_eq!(threads.is_closed(side), Some(CloseReason::MainEnded));
}

#[test]
fn a_side_connection_keeps_no_session_alive() {
    let (mut threads, tops) = server();
    let main = threads.open_direct(1);
    let side = threads.open_side(&main, 0);
    for round in 0..12 {
        threads.send(side, &get(round, &tops[0], false));
        threads.pass(1000);
    }
    assert_eq!(threads.is_closed(main.client), Some(CloseReason::SessionExpired));
    assert_eq!(threads.is_closed(side), Some(CloseReason::MainEnded));
}

#[test]
fn identities_are_proved_on_each_connection() {
    let (mut threads, tops) = server();
    let main = threads.open_direct(1);
    let side = threads.open_side(&main, 2);
    let proof = request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "digest", b"me:secret"));
    threads.send(side, &proof);
    let path = format!("{}/mine", tops[2]);
    let owner = [stoa_wire::Acl { perms: stoa_wire::perms::ALL, scheme: "auth", id: "" }];
    let created = request(1, Opcode::Create, |out| encode::create(out, &path, Some(b""), &owner, 0, None));
    threads.send(side, &[created, get(2, &path, false)].concat());
    let (told, _) = threads.hear(side);
    let answers: Vec<_> = told.iter().map(|told| (told.frame.xid, told.frame.err)).collect();
    assert_eq!(answers, [(xid::AUTH, 0), (1, 0), (2, 0)]);
    let no_auth = ErrorCode::NoAuth as i32;
    assert_eq!(threads.ask_after_pings(main.client, &get(1, &path, false)).err, no_auth);
    threads.send(main.client, &proof);
    threads.settle();
    assert_eq!(threads.ask_after_pings(main.client, &get(2, &path, false)).err, 0);
    // One that is none ends the connection.
    let bad = request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "nothing", b""));
    threads.send(side, &bad);
    threads.settle();
    assert_eq!(threads.is_closed(side), Some(CloseReason::AuthFailed));
    assert_eq!(threads.is_closed(main.client), None);
}

#[test]
fn strangers_and_forgers_are_sent_away() {
    let (mut threads, tops) = server();
    let main = threads.open_direct(0);
    let expired = ErrorCode::SessionExpired as i32;
    let wrong = |session_id, password: [u8; 16]| {
        frame(|out| SideHello { session_id, password: &password }.encode(out))
    };
    for hello in [wrong(main.session, [7; 16]), wrong(main.session + 1, main.password), wrong(0, [0; 16])] {
        let side = threads.begin_side(2, &hello);
        assert_eq!(threads.side_answer(side), Some(expired));
        assert_eq!(threads.is_closed(side), Some(CloseReason::SessionExpired));
    }
    for hello in [frame(|_| {}), frame(|out| out.extend([9; 40])), frame(|out| out.extend([1; 28]))] {
        let side = threads.begin_side(2, &hello);
        assert_eq!(threads.is_closed(side), Some(CloseReason::Malformed));
    }
    // A client of any other kind attaches to nothing that is its own only.
    let plain = threads.open(1);
    threads.send(plain, &said(direct_op::SEEN, &main.token));
    threads.settle();
    assert_eq!(threads.is_closed(plain), Some(CloseReason::UnknownOpcode));
    // What nobody has told.
    let mut forged = main.token.clone();
    forged[7] = 99;
    for opcode in [direct_op::SEEN, direct_op::REACH] {
        for token in [&forged[..], &[][..], &[0xff; 60][..]] {
            let side = threads.open_side(&main, 2);
            threads.send(side, &said(opcode, token));
            threads.settle();
            assert_eq!(threads.is_closed(side), Some(CloseReason::Malformed));
        }
    }
    // More questions than a client of ours has.
    let side = threads.open_side(&main, 3);
    threads.send(side, &said(direct_op::REACH, &main.token).repeat(1000));
    threads.settle();
    threads.take_bytes(side);
    assert_eq!(threads.is_closed(side), None, "they are answered at once");
    let garbage = [said(direct_op::ROUTED, b"x"), said(direct_op::FAST, b""), vec![0, 0, 0, 2, 1, 1]];
    for bytes in garbage {
        let side = threads.open_side(&main, 3);
        threads.send(side, &bytes);
        threads.settle();
    }
    let side = threads.open_side(&main, 3);
    threads.send(side, &get(1, &tops[3], false));
    let (told, _) = threads.hear(side);
    assert_eq!(data(&told[0].frame), b"first");
}

#[test]
fn the_table_is_told() {
    let (mut threads, _) = server();
    let main = threads.open_direct(2);
    threads.send(main.client, &said(direct_op::TABLE, b""));
    let (told, _) = threads.hear(main.client);
    assert_eq!(told[0].frame.xid, direct_xid::TABLE);
    assert_eq!(Table::decode(&mut Reader::new(&told[0].frame.body)), Ok(Table::default()));
}
