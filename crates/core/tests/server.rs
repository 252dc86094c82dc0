//! One server, driven by hand: bytes in, bytes out, the log done when the test says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use stoa_core::{
    CloseReason, Config, ConnectionId, Now, Output, PeerOutput, Recovered, Shard, SnapshotOutput,
};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    Acl, ConnectRequest, ConnectResponse, ErrorCode, MultiHeader, OPEN_ACL, Opcode, Reader, ReplyHeader,
    RequestHeader, WatcherEvent, begin_frame, end_frame, next_frame, perms, request::encode, xid,
};

struct World {
    server: Shard,
    now: Now,
    closed: Vec<(ConnectionId, CloseReason)>,
    resumed: Vec<ConnectionId>,
    /// Entries handed to the log and not yet said to be durable.
    log: Vec<stoa_core::Append>,
}

/// One frame from the server after the handshake.
#[derive(Debug, PartialEq)]
struct Frame {
    xid: i32,
    zxid: i64,
    err: i32,
    body: Vec<u8>,
}

impl World {
    fn new(config: Config) -> Self {
        let now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let tree = Tree::new(Options::default());
        let server = Shard::new(config, Recovered::new(tree, &[1]), [7; 32], now).unwrap();
        let mut world = Self { server, now, closed: Vec::new(), resumed: Vec::new(), log: Vec::new() };
        world.poll();
        world.settle();
        world
    }

    fn poll(&mut self) {
        while let Some(output) = self.server.poll_peer() {
            let alone = PeerOutput::Members { members: vec![1], removed: BTreeMap::new() };
            assert_eq!(output, alone, "there is nobody else");
        }
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::Send(_) => {}
                Output::Resume(id) => self.resumed.push(id),
                Output::Close(id, reason) => self.closed.push((id, reason)),
            }
        }
        while let Some(append) = self.server.poll_append() {
            self.log.push(append);
        }
    }

    fn send(&mut self, id: ConnectionId, bytes: &[u8]) -> usize {
        let consumed = self.server.receive(id, bytes, self.now);
        self.poll();
        consumed
    }

    /// The log stores everything it has.
    fn settle(&mut self) {
        while let Some(last) = self.log.pop() {
            self.log.clear();
            self.server.appended(last.position, self.now);
            self.poll();
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono_us += ms * 1000;
        self.now.wall_ms += ms as i64;
        self.server.tick(self.now);
        self.poll();
    }

    fn take_bytes(&mut self, id: ConnectionId) -> Vec<u8> {
        let bytes = self.server.output(id).to_vec();
        self.server.sent(id, bytes.len(), self.now);
        self.poll();
        bytes
    }

    fn take(&mut self, id: ConnectionId) -> Vec<Frame> {
        let bytes = self.take_bytes(id);
        let mut rest = bytes.as_slice();
        let mut frames = Vec::new();
        while let Some((payload, tail)) = next_frame(rest, usize::MAX >> 1).unwrap() {
            let mut reader = Reader::new(payload);
            let ReplyHeader { xid, zxid, err } = ReplyHeader::decode(&mut reader).unwrap();
            frames.push(Frame { xid, zxid, err, body: reader.rest().to_vec() });
            rest = tail;
        }
        assert!(rest.is_empty(), "whole frames only");
        frames
    }

    fn connect_socket(&mut self) -> ConnectionId {
        let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        self.server.connect(peer, self.now).unwrap()
    }

    fn open(&mut self) -> (ConnectionId, ConnectResponse) {
        self.reopen(0, &[0; 16])
    }

    fn reopen(&mut self, session_id: i64, password: &[u8]) -> (ConnectionId, ConnectResponse) {
        let id = self.connect_socket();
        self.send(id, &handshake(session_id, password));
        self.settle();
        let bytes = self.take_bytes(id);
        let (payload, _) = next_frame(&bytes, 1000).unwrap().unwrap();
        (id, ConnectResponse::decode(payload).unwrap())
    }
}

fn handshake(session_id: i64, password: &[u8]) -> Vec<u8> {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 10_000,
        session_id,
        password,
        read_only: Some(false),
    };
    frame(|out| request.encode(out))
}

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    write(&mut out);
    end_frame(&mut out, start);
    out
}

fn request(xid: i32, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid, opcode: opcode as i32 }.encode(out);
        body(out);
    })
}

fn create(xid: i32, path: &str, flags: i32) -> Vec<u8> {
    request(xid, Opcode::Create, |out| encode::create(out, path, Some(b"x"), OPEN_ACL, flags, None))
}

fn set(xid: i32, path: &str, data: &[u8]) -> Vec<u8> {
    request(xid, Opcode::SetData, |out| encode::set_data(out, path, Some(data), -1))
}

fn get(xid: i32, path: &str, watch: bool) -> Vec<u8> {
    request(xid, Opcode::GetData, |out| encode::path_watch(out, path, watch))
}

fn xids(frames: &[Frame]) -> Vec<i32> {
    frames.iter().map(|frame| frame.xid).collect()
}

#[test]
fn a_write_is_answered_only_when_it_is_durable() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(id, &create(1, "/a", 0));
    assert!(world.take(id).is_empty());
    assert!(world.server.tree().get("/a").is_none(), "not applied either");
    world.settle();
    let frames = world.take(id);
    assert_eq!((frames[0].xid, frames[0].err), (1, 0));
    assert!(world.server.tree().get("/a").is_some());
}

#[test]
fn an_error_that_rests_on_an_update_waits_for_it() {
    let mut world = World::new(Config::default());
    let (one, _) = world.open();
    let (other, _) = world.open();
    world.send(one, &create(1, "/a", 0));
    world.send(other, &create(1, "/a", 0));
    assert!(world.take(other).is_empty(), "the create that it lost to may still be lost itself");
    world.settle();
    assert_eq!(world.take(other)[0].err, ErrorCode::NodeExists as i32);
}

#[test]
fn a_session_is_answered_in_the_order_of_its_requests() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    let sync = request(4, Opcode::Sync, |out| encode::path(out, "/"));
    let pipeline = [
        create(1, "/a", 0),
        get(2, "/a", false),
        create(3, "/a", 0),
        sync,
        set(5, "/a", b"new"),
        get(6, "/a", false),
    ];
    world.send(id, &pipeline.concat());
    assert!(world.take(id).is_empty());
    world.settle();
    let frames = world.take(id);
    assert_eq!(xids(&frames), [1, 2, 3, 4, 5, 6]);
    assert_eq!(frames[2].err, ErrorCode::NodeExists as i32);
    assert_eq!(&frames[1].body[..5], [0, 0, 0, 1, b'x']);
    assert_eq!(&frames[5].body[..7], [0, 0, 0, 3, b'n', b'e', b'w']);
}

#[test]
fn a_read_does_not_wait_for_the_writes_of_others() {
    let mut world = World::new(Config::default());
    let (writer, _) = world.open();
    let (reader, _) = world.open();
    world.send(writer, &create(1, "/a", 0));
    world.send(reader, &get(1, "/a", false));
    assert_eq!(world.take(reader)[0].err, ErrorCode::NoNode as i32);
}

#[test]
fn a_ping_waits_for_nothing() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(id, &[create(1, "/a", 0), request(xid::PING, Opcode::Ping, |_| {})].concat());
    assert_eq!(xids(&world.take(id)), [xid::PING]);
    world.settle();
    assert_eq!(xids(&world.take(id)), [1]);
}

#[test]
fn an_event_comes_before_the_reply_that_shows_the_change() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(id, &create(1, "/a", 0));
    world.settle();
    world.send(id, &[get(2, "/a", true), set(3, "/a", b"y")].concat());
    world.settle();
    let frames = world.take(id);
    assert_eq!(xids(&frames), [1, 2, xid::NOTIFICATION, 3]);
    let event = WatcherEvent::decode(&mut Reader::new(&frames[2].body)).unwrap();
    assert_eq!((event.kind, event.path), (3, "/a"));
    assert_eq!(frames[2].zxid, frames[3].zxid);
}

#[test]
fn a_full_disk_refuses_writes_and_recovers() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(id, &[create(1, "/a", 0), get(2, "/", false), create(3, "/a", 0)].concat());
    let generation = world.log.drain(..).next_back().unwrap().generation;
    world.server.append_refused(generation, world.now);
    world.poll();
    let frames = world.take(id);
    assert_eq!(xids(&frames), [1, 2, 3]);
    // The second create failed because of the first, which is void now.
    assert_eq!(frames.iter().map(|frame| frame.err).collect::<Vec<_>>(), [-1, 0, -1]);

    world.send(id, &[create(4, "/b", 0), get(5, "/", false)].concat());
    let frames = world.take(id);
    assert_eq!((frames[0].err, frames[1].err), (-1, 0), "refused at once, reads go on");
    assert!(world.log.is_empty());

    world.pass(600);
    world.send(id, &create(6, "/a", 0));
    world.settle();
    assert_eq!(world.take(id)[0].err, 0);
}

/// Three clients, of whom two have asked for something that is durable now, and an entry a turn.
fn with_more_to_apply() -> (World, [ConnectionId; 3]) {
    let mut config = Config::default();
    config.limits.turn_cost = 1;
    let mut world = World::new(config);
    let clients = [(); 3].map(|()| world.open().0);
    world.send(clients[0], &create(1, "/a", 0));
    world.send(clients[1], &create(1, "/b", 0));
    let last = world.log.drain(..).next_back().unwrap();
    world.server.appended(last.position, world.now);
    world.poll();
    (world, clients)
}

#[test]
fn what_one_sync_makes_durable_is_applied_in_turns() {
    let (mut world, clients) = with_more_to_apply();
    assert!(world.server.has_more_to_apply());
    assert_eq!((world.take(clients[0]).len(), world.take(clients[1]).len()), (1, 0));
    // Others are served in between, from what is applied.
    world.send(clients[2], &[get(1, "/a", false), get(2, "/b", false)].concat());
    let errors: Vec<i32> = world.take(clients[2]).iter().map(|frame| frame.err).collect();
    assert_eq!(errors, [0, ErrorCode::NoNode as i32]);
    world.server.apply_more(world.now);
    assert!(!world.server.has_more_to_apply());
    assert_eq!(world.take(clients[1])[0].err, 0);
}

#[test]
fn what_is_durable_is_answered_though_the_log_refuses_what_follows_before_its_turn() {
    let (mut world, clients) = with_more_to_apply();
    world.send(clients[2], &create(1, "/c", 0));
    let generation = world.log.drain(..).next_back().unwrap().generation;
    assert!(world.server.append_refused(generation, world.now));
    world.poll();
    assert_eq!(clients.map(|client| world.take(client)[0].err), [0, 0, -1]);
}

#[test]
fn a_snapshot_holds_what_is_durable_and_had_not_had_its_turn() {
    let (mut world, _) = with_more_to_apply();
    world.server.request_snapshot();
    let begin = world.server.poll_snapshot().unwrap();
    assert!(matches!(begin, SnapshotOutput::Begin { position, .. } if position == world.server.applied()));
    assert!(!world.server.has_more_to_apply());
}

#[test]
fn what_waits_on_a_connection_that_lost_its_session_is_not_answered_when_the_log_refuses() {
    let mut world = World::new(Config::default());
    let (old, _) = world.open();
    world.send(old, &[create(1, "/a", 0), get(2, "/", true)].concat());
    world.server.drop_connection(old);
    world.poll();
    assert_eq!(world.closed, [(old, CloseReason::Operator)]);
    let generation = world.log.drain(..).next_back().unwrap().generation;
    world.server.append_refused(generation, world.now);
    world.poll();
    assert!(world.take_bytes(old).is_empty(), "a read must not be answered when the write before it was not");
    assert_eq!(world.server.watches().count(), 0);
}

#[test]
fn a_session_does_not_expire_while_the_server_does_not_listen_to_it() {
    let mut config = Config::default();
    config.limits.outstanding_per_connection = 1;
    let mut world = World::new(config);
    let (id, _) = world.open();
    let ping = request(xid::PING, Opcode::Ping, |_| {});
    world.send(id, &create(1, "/a", 0));
    assert_eq!(world.send(id, &ping), 0, "the disk is slow, nothing more is read");
    for _ in 0..20 {
        world.pass(5000);
    }
    assert_eq!((world.server.session_count(), world.closed.len()), (1, 0));
    world.settle();
    assert_eq!(world.resumed, [id]);
    assert_eq!(world.send(id, &ping), ping.len());
    world.pass(20_000);
    world.settle();
    assert_eq!(world.closed, [(id, CloseReason::SessionExpired)], "silent now, and listened to");
}

#[test]
fn a_session_does_not_expire_while_its_return_waits_for_the_log() {
    let mut world = World::new(Config { tick_ms: 100, ..Config::default() });
    let (old, hello) = world.open();
    world.server.disconnected(old, world.now);
    world.pass(9000);
    let id = world.connect_socket();
    world.send(id, &handshake(hello.session_id, &hello.password));
    world.pass(5000);
    world.settle();
    assert_eq!((world.server.session_count(), world.closed.len()), (1, 0));
    world.pass(9000);
    assert!(world.closed.is_empty(), "its time begins when its client can speak");
}

#[test]
fn a_session_whose_close_was_refused_can_still_expire() {
    let mut world = World::new(Config { tick_ms: 100, ..Config::default() });
    let (old, hello) = world.open();
    world.send(old, &create(1, "/a", 0));
    let generation = world.log.drain(..).next_back().unwrap().generation;
    assert!(world.server.append_refused(generation, world.now));
    world.pass(500);
    // It has room again, and is not elected yet.
    let id = world.connect_socket();
    world.send(id, &handshake(hello.session_id, &hello.password));
    world.send(old, &request(2, Opcode::CloseSession, |_| {}));
    world.settle();
    assert_eq!(world.closed, [(old, CloseReason::SessionMoved)]);
    world.pass(11_000);
    world.settle();
    assert_eq!(world.closed.last(), Some(&(id, CloseReason::SessionExpired)));
}

#[test]
fn a_connection_that_is_closed_while_the_log_refuses_is_answered_no_further() {
    let mut config = Config::default();
    config.limits.output_close_bytes = 150;
    let mut world = World::new(config);
    let (id, _) = world.open();
    let reads = |xid| get(xid, "/", false);
    world.send(id, &[create(1, "/a", 0), reads(2), reads(3), create(4, "/b", 0), reads(5)].concat());
    let generation = world.log.drain(..).next_back().unwrap().generation;
    world.server.append_refused(generation, world.now);
    world.poll();
    assert_eq!(world.closed, [(id, CloseReason::SlowReader)]);
    let answered = xids(&world.take(id));
    assert_eq!(answered, [1, 2, 3][..answered.len()], "a gap would tell the client that 4 was lost");
}

#[test]
fn a_client_that_was_not_listened_to_has_its_whole_timeout_to_come_back() {
    let mut config = Config { tick_ms: 100, ..Config::default() };
    config.limits.outstanding_per_connection = 1;
    let mut world = World::new(config);
    let (id, _) = world.open();
    world.send(id, &create(1, "/a", 0));
    assert_eq!(world.send(id, &request(xid::PING, Opcode::Ping, |_| {})), 0);
    world.pass(9000);
    world.server.disconnected(id, world.now);
    world.pass(9000);
    assert_eq!(world.log.len(), 1, "nothing but the create is under way");
    world.pass(2000);
    assert_eq!(world.log.len(), 2, "now it is the session's end");
}

#[test]
fn entries_of_a_refused_generation_are_refused_once() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(id, &create(1, "/a", 0));
    let generation = world.log.drain(..).next_back().unwrap().generation;
    world.server.append_refused(generation, world.now);
    world.pass(600);
    world.send(id, &create(2, "/a", 0));
    // A late word about the generation before must not void what has been proposed since.
    world.server.append_refused(generation, world.now);
    world.settle();
    assert_eq!(world.take(id).iter().map(|frame| frame.err).collect::<Vec<_>>(), [-1, 0]);
}

#[test]
fn a_frame_over_the_limit_is_skipped_and_answered() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    let large = request(1, Opcode::SetData, |out| {
        encode::set_data(out, "/a", Some(&vec![0; 3 << 20]), -1);
    });
    let stream = [large, get(2, "/", false)].concat();
    let mut pending = Vec::new();
    for chunk in stream.chunks(100_000) {
        pending.extend_from_slice(chunk);
        let consumed = world.send(id, &pending);
        pending.drain(..consumed);
        assert!(pending.len() <= 100_000, "what is skipped is not kept");
    }
    let frames = world.take(id);
    assert_eq!((frames[0].xid, frames[0].err), (1, ErrorCode::MarshallingError as i32));
    assert_eq!((frames[1].xid, frames[1].err), (2, 0));
    assert!(world.closed.is_empty());
}

#[test]
fn a_frame_of_two_gigabytes_ends_the_connection() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(id, &0x7fff_ffff_u32.to_be_bytes());
    assert_eq!(world.closed, [(id, CloseReason::BadFrame)]);
}

#[test]
fn a_session_moves_to_its_new_connection() {
    let mut world = World::new(Config::default());
    let (old, opened) = world.open();
    world.send(old, &get(1, "/", true));
    let (new, response) = world.reopen(opened.session_id, &opened.password);
    assert_eq!(response.session_id, opened.session_id);
    assert_eq!(world.closed, [(old, CloseReason::SessionMoved)]);
    world.server.disconnected(old, world.now);
    world.send(new, &create(2, "/e", 1));
    world.settle();
    assert_eq!(xids(&world.take(new)), [2], "the old connection's watch is gone with it");
}

#[test]
fn a_wrong_password_opens_nothing() {
    let mut world = World::new(Config::default());
    let (_, opened) = world.open();
    let (id, response) = world.reopen(opened.session_id, &[1; 16]);
    assert_eq!((response.session_id, response.timeout_ms), (0, 0));
    assert_eq!(world.closed, [(id, CloseReason::SessionExpired)]);
}

/// Who knows a session's id and password has what the session owns, and nothing of what its client has proved to be.
#[test]
fn who_takes_a_session_over_is_not_who_had_it() {
    let mut world = World::new(Config::default());
    let (old, opened) = world.open();
    world.send(old, &auth(b"anna:secret"));
    let own = [Acl { perms: perms::ALL, scheme: "auth", id: "" }];
    let private = request(1, Opcode::Create, |out| encode::create(out, "/own", Some(b"x"), &own, 0, None));
    world.send(old, &private);
    world.send(old, &create(2, "/e", 1));
    world.send(old, &get(3, "/own", false));
    world.settle();
    assert!(world.take(old).iter().all(|frame| frame.err == 0));
    let (new, response) = world.reopen(opened.session_id, &opened.password);
    assert_eq!(response.session_id, opened.session_id);
    world.send(new, &get(1, "/own", false));
    assert_eq!(world.take(new)[0].err, ErrorCode::NoAuth as i32);
    world.send(new, &request(2, Opcode::CloseSession, |_| {}));
    world.settle();
    assert!(world.server.tree().get("/e").is_none(), "the session's znodes are at his mercy");
    assert!(world.server.tree().get("/own").is_some());
}

#[test]
fn a_client_that_is_ahead_is_sent_away_without_an_answer() {
    let mut world = World::new(Config::default());
    let id = world.connect_socket();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 99,
        timeout_ms: 10_000,
        session_id: 0,
        password: &[0; 16],
        read_only: None,
    };
    world.send(id, &frame(|out| request.encode(out)));
    assert_eq!(world.closed, [(id, CloseReason::ClientAhead)]);
    assert!(world.take_bytes(id).is_empty());
}

#[test]
fn a_silent_session_expires_with_its_ephemerals() {
    let mut world = World::new(Config::default());
    let (id, opened) = world.open();
    world.send(id, &create(1, "/e", 1));
    world.settle();
    world.pass(9_000);
    assert!(world.log.is_empty(), "not before its timeout");
    world.pass(5_000);
    world.settle();
    assert!(world.server.tree().get("/e").is_none());
    assert_eq!(world.closed, [(id, CloseReason::SessionExpired)]);
    assert_eq!(world.reopen(opened.session_id, &opened.password).1.session_id, 0);
}

#[test]
fn a_session_whose_connection_ended_while_it_was_made_expires_too() {
    let mut world = World::new(Config::default());
    let id = world.connect_socket();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 10_000,
        session_id: 0,
        password: &[0; 16],
        read_only: None,
    };
    world.send(id, &frame(|out| request.encode(out)));
    world.server.disconnected(id, world.now);
    world.settle();
    assert_eq!(world.server.tree().sessions().count(), 1);
    for _ in 0..30 {
        world.pass(1_000);
    }
    world.settle();
    assert_eq!(world.server.tree().sessions().count(), 0);
}

#[test]
fn closing_a_session_is_its_last_answer() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(
        id,
        &[create(1, "/e", 1), request(2, Opcode::CloseSession, |_| {}), get(3, "/", false)].concat(),
    );
    world.settle();
    assert_eq!(xids(&world.take(id)), [1, 2]);
    assert_eq!(world.closed, [(id, CloseReason::SessionClosed)]);
    assert!(world.server.tree().get("/e").is_none());
}

#[test]
fn too_much_under_way_stops_the_reading_and_goes_on_later() {
    let mut config = Config::default();
    config.limits.outstanding = 4;
    let mut world = World::new(config);
    let (id, _) = world.open();
    let stream: Vec<u8> = (0..10).flat_map(|i| create(i, &format!("/n{i}"), 0)).collect();
    let mut consumed = world.send(id, &stream);
    assert!(consumed < stream.len());
    assert!(world.server.is_paused(id));
    while consumed < stream.len() {
        world.settle();
        assert_eq!(world.resumed.pop(), Some(id));
        consumed += world.send(id, &stream[consumed..]);
    }
    world.settle();
    assert_eq!(xids(&world.take(id)), (0..10).collect::<Vec<_>>());
}

#[test]
fn too_much_that_waits_for_a_leader_stops_the_reading() {
    let mut config = Config::default();
    config.limits.log_queue_bytes = 1000;
    let mut world = World::new(config);
    let (id, _) = world.open();
    world.send(id, &create(1, "/a", 0));
    let generation = world.log.drain(..).next_back().unwrap().generation;
    assert!(world.server.append_refused(generation, world.now));
    world.pass(500);
    // It has room again, and is not elected yet.
    let large = set(2, "/a", &[0; 600]);
    assert_eq!(world.send(id, &large.repeat(3)), 2 * large.len());
    world.settle();
    assert_eq!(world.resumed, [id]);
    assert_eq!((world.server.asked_bytes(), world.server.log_queue()), (0, (0, 0)));
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut config = Config::default();
    config.limits.output_pause_bytes = 1000;
    let mut world = World::new(config);
    let (id, _) = world.open();
    let stream: Vec<u8> = (0..100).flat_map(|i| get(i, "/", false)).collect();
    let consumed = world.send(id, &stream);
    assert!(world.server.is_paused(id));
    assert!(world.server.output(id).len() < 1200);
    assert!(world.resumed.is_empty());
    world.take(id);
    assert_eq!(world.resumed, [id]);
    assert!(world.send(id, &stream[consumed..]) > 0);
}

#[test]
fn a_handshake_that_does_not_come_is_not_waited_for() {
    let mut world = World::new(Config::default());
    let id = world.connect_socket();
    world.pass(11_000);
    assert_eq!(world.closed, [(id, CloseReason::HandshakeTimeout)]);
}

#[test]
fn connections_are_limited_per_address() {
    let mut config = Config::default();
    config.limits.connections_per_address = 2;
    let mut world = World::new(config);
    let (first, _) = world.open();
    world.open();
    let peer: SocketAddr = "127.0.0.1:4001".parse().unwrap();
    assert!(world.server.connect(peer, world.now).is_err());
    assert!(world.server.connect("127.0.0.2:4001".parse().unwrap(), world.now).is_ok());
    world.server.disconnected(first, world.now);
    assert!(world.server.connect(peer, world.now).is_ok());
}

#[test]
fn any_bytes_at_all_are_survived() {
    // A small generator of our own: the same bytes on each run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut world = World::new(Config::default());
    for round in 0..2000 {
        let (id, _) = world.open();
        let bytes = if round % 2 == 0 {
            (0..next() % 200).map(|_| next() as u8).collect::<Vec<_>>()
        } else {
            // A frame that is announced rightly, with a body that may be anything.
            let opcode = Opcode::ALL[next() as usize % Opcode::ALL.len()];
            let body: Vec<u8> = (0..next() % 60).map(|_| (next() % 4) as u8).collect();
            request(round, opcode, |out| out.extend_from_slice(&body))
        };
        world.send(id, &bytes);
        world.settle();
        world.server.disconnected(id, world.now);
        world.closed.clear();
    }
    let (id, _) = world.open();
    world.send(id, &get(1, "/", false));
    assert_eq!(world.take(id)[0].err, 0);
    assert_eq!(world.server.outstanding(), 0);
}

#[test]
fn a_snapshot_is_due_when_the_log_has_grown_by_as_much_as_the_state() {
    let mut world = World::new(Config { snapshot_updates: 10, ..Config::default() });
    let (id, _) = world.open();
    let one_kib = [7; 1024];
    world.send(id, &create(1, "/large", 0));
    world.settle();
    for xid in 2..14 {
        world.send(id, &set(xid, "/large", &one_kib));
        world.settle();
    }
    assert!(world.server.is_snapshotting(), "many updates, and more log than znodes");
    while world.server.poll_snapshot().is_some() {
        world.server.snapshot_taken();
    }
    world.server.snapshot_finished(1, true);

    // What is due here is asked for as well: that is one snapshot, not two.
    world.send(id, &set(14, "/large", &[7; 100 * 1024]));
    world.settle();
    world.server.request_snapshot();
    while world.server.poll_snapshot().is_some() {
        world.server.snapshot_taken();
    }
    world.server.snapshot_finished(2, true);
    world.send(id, &create(15, "/small", 0));
    world.settle();
    for xid in 16..100 {
        world.send(id, &set(xid, "/small", b""));
        world.settle();
        assert!(!world.server.is_snapshotting(), "the log is shorter than the state");
    }
    for xid in 100..200 {
        world.send(id, &set(xid, "/small", &one_kib));
        world.settle();
    }
    assert!(world.server.is_snapshotting());
}

#[test]
fn a_check_outside_of_a_multi_is_answered_like_an_unknown_opcode() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(id, &request(1, Opcode::Check, |out| encode::path_version(out, "/", -1)));
    world.settle();
    let frames = world.take(id);
    assert_eq!(frames.iter().map(|frame| frame.err).collect::<Vec<_>>(), [ErrorCode::Unimplemented as i32]);
    assert_eq!(world.closed, [(id, CloseReason::UnknownOpcode)]);
}

#[test]
fn a_multi_read_sets_no_watches() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    world.send(id, &create(1, "/a", 0));
    world.settle();
    world.send(
        id,
        &request(2, Opcode::MultiRead, |out| {
            MultiHeader { opcode: Opcode::GetData as i32, done: false, err: -1 }.encode(out);
            encode::path_watch(out, "/a", true);
            MultiHeader::END.encode(out);
        }),
    );
    world.send(id, &set(3, "/a", b"y"));
    world.settle();
    assert_eq!(xids(&world.take(id)), [1, 2, 3]);
}

#[test]
fn an_auth_packet_cut_short_ends_the_connection_without_an_answer() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    let mut body = Vec::new();
    encode::auth(&mut body, "digest", b"alice:a");
    world.send(id, &request(xid::AUTH, Opcode::Auth, |out| out.extend_from_slice(&body[..body.len() - 1])));
    assert_eq!(world.take(id), []);
    assert_eq!(world.closed, [(id, CloseReason::Malformed)]);
}

#[test]
fn a_reconfig_is_disabled_and_one_cut_short_unreadable() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    let body = [[0xff; 12].as_slice(), &(-1_i64).to_be_bytes()].concat();
    world.send(id, &request(1, Opcode::Reconfig, |out| out.extend_from_slice(&body)));
    world.send(id, &request(2, Opcode::Reconfig, |out| out.extend_from_slice(&body[..19])));
    let errors: Vec<i32> = world.take(id).iter().map(|frame| frame.err).collect();
    assert_eq!(errors, [ErrorCode::ReconfigDisabled as i32, ErrorCode::MarshallingError as i32]);
}

fn auth(data: &[u8]) -> Vec<u8> {
    request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "digest", data))
}

#[test]
fn a_connection_has_so_many_identities_and_the_next_one_is_refused() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    // That of its address is one.
    for user in 1..64 {
        world.send(id, &auth(format!("user-{user}:secret").as_bytes()));
    }
    // Those that are known are none more.
    world.send(id, &auth(b"user-7:secret"));
    world.send(id, &request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "ip", b"")));
    assert!(world.take(id).iter().all(|frame| (frame.xid, frame.err) == (xid::AUTH, 0)));
    world.send(id, &request(1, Opcode::WhoAmI, |_| {}));
    let [answer] = &world.take(id)[..] else { panic!("one answer") };
    assert_eq!(Reader::new(&answer.body).i32(), Ok(64));
    assert_eq!(world.closed, []);
    world.send(id, &auth(b"user-64:secret"));
    assert_eq!(world.take(id)[0].err, ErrorCode::AuthFailed as i32);
    assert_eq!(world.closed, [(id, CloseReason::AuthFailed)]);
}

#[test]
fn what_is_to_prove_something_may_be_so_long() {
    let mut world = World::new(Config::default());
    for (len, err) in [(4096, 0), (4097, ErrorCode::AuthFailed as i32)] {
        let (id, _) = world.open();
        let data = format!("user:{}", "p".repeat(len - 5));
        world.send(id, &auth(data.as_bytes()));
        assert_eq!(world.take(id)[0].err, err, "{len}");
        assert_eq!(world.closed.len(), usize::from(err != 0));
    }
}

fn multi_read(xid: i32, paths: &[&str]) -> Vec<u8> {
    request(xid, Opcode::MultiRead, |out| {
        for path in paths {
            MultiHeader { opcode: Opcode::GetData as i32, done: false, err: -1 }.encode(out);
            encode::path_watch(out, path, false);
        }
        MultiHeader::END.encode(out);
    })
}

#[test]
fn a_reply_may_be_so_long_and_what_could_be_written_can_be_read() {
    let mut world = World::new(Config::default());
    let (id, _) = world.open();
    // A result has 9 bytes in front, 4 for the length, and a Stat of 68; the reply has a header of 16, its length
    // before that, and an end of 9.
    let each = (1 << 20) - 20_000;
    let data = vec![7; each - 81];
    world.send(id, &create(1, "/a", 0));
    world.send(id, &set(2, "/a", &data));
    let last = vec![7; (64 << 20) - 65 * each - 81 - 20 - 9];
    world.send(id, &create(3, "/b", 0));
    world.send(id, &set(4, "/b", &last));
    world.settle();
    assert!(world.take(id).iter().all(|frame| frame.err == 0));
    let mut paths = vec!["/a"; 65];
    paths.push("/b");
    world.send(id, &multi_read(6, &paths));
    let [whole] = &world.take(id)[..] else { panic!("one answer") };
    assert_eq!((whole.err, whole.body.len()), (0, (64 << 20) - 20));
    world.send(id, &set(7, "/b", &[&last[..], b"x"].concat()));
    world.settle();
    world.take(id);
    world.send(id, &multi_read(8, &paths));
    let [refused] = &world.take(id)[..] else { panic!("one answer") };
    assert_eq!((refused.err, refused.body.len()), (ErrorCode::MarshallingError as i32, 0));
}

#[test]
fn what_one_request_could_write_can_be_read() {
    let mut config = Config::default();
    config.limits.frame_bytes = 66 << 20;
    let mut world = World::new(config);
    let (id, _) = world.open();
    world.send(id, &create(1, "/a", 0));
    // A request that is just as long as it may be.
    let data = vec![7; (66 << 20) - 8 - (4 + 2) - 4 - 4];
    let longest = set(2, "/a", &data);
    assert_eq!(longest.len(), 4 + (66 << 20));
    world.send(id, &longest);
    world.settle();
    assert!(world.take(id).iter().all(|frame| frame.err == 0));
    world.send(id, &get(3, "/a", false));
    let [read] = &world.take(id)[..] else { panic!("one answer") };
    assert_eq!((read.err, read.body.len()), (0, 4 + data.len() + 68));
    world.send(id, &multi_read(4, &["/a"]));
    assert_eq!(world.take(id)[0].err, 0);
    world.send(id, &multi_read(5, &["/a", "/a"]));
    assert_eq!(world.take(id)[0].err, ErrorCode::MarshallingError as i32);
}

#[test]
fn watchers_are_counted_by_what_they_are_told() {
    let mut world = World::new(Config::default());
    let [first, second, third] = [world.open().0, world.open().0, world.open().0];
    let look = |opcode: Opcode, path: &str| request(1, opcode, |out| encode::path_watch(out, path, true));
    let delete = request(1, Opcode::Delete, |out| encode::path_version(out, "/a/b", -1));
    for (id, asked) in [
        (first, look(Opcode::Exists, "/a")),
        (second, look(Opcode::Exists, "/a")),
        (third, look(Opcode::Exists, "/a")),
        (first, create(1, "/a", 0)),
        (second, look(Opcode::GetData, "/a")),
        (third, look(Opcode::GetData, "/a")),
        (first, set(1, "/a", b"1")),
        // Nobody is told of this one.
        (first, set(1, "/a", b"2")),
        (first, look(Opcode::GetChildren, "/a")),
        (first, create(1, "/a/b", 0)),
        (third, look(Opcode::Exists, "/a/b")),
        (first, delete),
    ] {
        world.send(id, &asked);
        world.settle();
    }
    let stats = world.server.stats();
    let watchers = &stats.watchers;
    let told = [&watchers.created, &watchers.changed, &watchers.children, &watchers.deleted];
    assert_eq!(told.map(|of| (of.count(), of.sum_us())), [(1, 3), (1, 2), (1, 1), (1, 1)]);
    assert_eq!(stats.watch_events, 7);
    let mut bytes = 0;
    for id in [first, second, third] {
        let events = world.take(id).into_iter().filter(|frame| frame.xid == xid::NOTIFICATION);
        bytes += events.map(|event| ReplyHeader::LEN + event.body.len()).sum::<usize>();
    }
    assert_eq!(world.server.stats().watch_bytes, bytes as u64);
}

#[test]
fn a_server_alone_counts_updates_but_leads_and_follows_nobody() {
    let mut world = World::new(Config::default());
    let (id, session) = world.open();
    world.pass(5);
    world.reopen(session.session_id, &session.password);
    let stats = world.server.stats().clone();
    // The session was made, and was taken to another connection.
    assert_eq!((stats.log_updates, stats.propagation.count()), (2, 2));
    assert_eq!((stats.proposals.count, stats.led_updates, stats.followed_updates), (0, 0, 0));
    assert_eq!((stats.agreement.count(), world.server.pending_syncs()), (0, 0));
    assert_eq!((stats.sessions_brought, stats.sessions_asked_for, stats.stale_replies), (1, 0, 0));
    assert!(world.closed.contains(&(id, CloseReason::SessionMoved)));
}
