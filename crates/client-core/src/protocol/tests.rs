use super::lane::SET_WATCHES_BYTES_MAX;
use super::*;
use crate::types::{Acl, Operation, OperationResult};
use stoa_wire::{
    AddWatchMode, CreateMode, KeeperState, MultiResults, Opcode, Request, RequestHeader, Stat, WatcherKind,
    put,
};

const SESSION: i64 = 0x1234;

fn settings(chroot: &str) -> Settings {
    Settings {
        session_timeout_ms: 9000,
        read_only: false,
        chroot: Chroot::new(chroot).unwrap(),
        frame_bytes_max: 1 << 20,
        direct: false,
    }
}

fn protocol(chroot: &str) -> Protocol {
    Protocol::new(settings(chroot))
}

pub(super) fn protocol_of(direct: bool) -> Protocol {
    Protocol::new(Settings { direct, ..settings("/") })
}

/// A reply with empty data.
pub(super) fn data_reply(xid: i32) -> Vec<u8> {
    reply(xid, 5, 0, |out| {
        put::buffer(out, b"");
        Stat::default().encode(out);
    })
}

pub(super) fn frame(body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    body(&mut out);
    end_frame(&mut out, start);
    out
}

pub(super) fn reply(xid: i32, zxid: i64, err: i32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(|out| {
        ReplyHeader { xid, zxid, err }.encode(out);
        body(out);
    })
}

fn greeting(session_id: i64, timeout_ms: i32) -> Vec<u8> {
    greeting_of(session_id, timeout_ms, false)
}

fn greeting_of(session_id: i64, timeout_ms: i32, read_only: bool) -> Vec<u8> {
    frame(|out| {
        ConnectResponse {
            protocol_version: 0,
            timeout_ms,
            session_id,
            password: [7; PASSWORD_LEN],
            read_only: Some(read_only),
        }
        .encode(out);
    })
}

fn event(zxid: i64, kind: EventKind, path: &str) -> Vec<u8> {
    reply(-1, zxid, 0, |out| {
        WatcherEvent { kind: kind as i32, state: KeeperState::SyncConnected as i32, path }.encode(out);
    })
}

fn connect(protocol: &mut Protocol, now_ms: u64) {
    protocol.connected(now_ms);
    protocol.output().clear();
    protocol.receive(&greeting(SESSION, 6000), now_ms).unwrap();
}

pub(super) fn outputs(protocol: &mut Protocol) -> Vec<Output> {
    core::iter::from_fn(|| protocol.poll()).collect()
}

/// The frames in the output, as (xid, opcode, body).
fn sent(protocol: &mut Protocol) -> Vec<(i32, Opcode, Vec<u8>)> {
    let bytes = core::mem::take(protocol.output());
    let mut rest = bytes.as_slice();
    let mut frames = Vec::new();
    while let Some((payload, tail)) = next_frame(rest, 1 << 20).unwrap() {
        rest = tail;
        let mut reader = Reader::new(payload);
        let header = RequestHeader::decode(&mut reader).unwrap();
        frames.push((header.xid, Opcode::from_i32(header.opcode).unwrap(), reader.rest().to_vec()));
    }
    assert!(rest.is_empty());
    frames
}

fn get(path: &str, watch: Option<u64>) -> Call {
    Call::GetData { path: path.to_owned(), watch: watch.map(WatchId) }
}

pub(super) fn completed(token: Token, result: Result<Reply, ErrorCode>) -> Output {
    Output::Completed { token, result }
}

#[test]
fn the_first_greeting_asks_for_a_new_session() {
    let mut protocol = protocol("/");
    protocol.connected(0);
    let mut expected = vec![0, 0, 0, 45, 0, 0, 0, 0];
    expected.extend([0; 8]); // No zxid seen.
    expected.extend(9000_i32.to_be_bytes());
    expected.extend([0; 8]); // No session.
    expected.extend([0, 0, 0, 16]);
    expected.extend([0; 16]);
    expected.push(0);
    assert_eq!(*protocol.output(), expected);
    protocol.receive(&greeting(SESSION, 6000), 1).unwrap();
    assert_eq!(outputs(&mut protocol), [Output::State(State::Connected)]);
    assert_eq!((protocol.session_id(), protocol.timeout_ms()), (Some(SESSION), 6000));
}

#[test]
fn a_get_is_these_bytes() {
    let mut protocol = protocol("/app");
    connect(&mut protocol, 0);
    protocol.submit(1, get("/a", None), 0);
    let mut expected = vec![0, 0, 0, 19, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 6];
    expected.extend(b"/app/a\0");
    assert_eq!(*protocol.output(), expected);
}

#[test]
fn calls_wait_for_a_connection_and_are_answered_in_order_byte_by_byte() {
    let mut protocol = protocol("/");
    protocol.submit(10, get("/a", None), 0);
    protocol.submit(11, get("/b", None), 0);
    connect(&mut protocol, 0);
    let xids: Vec<i32> = sent(&mut protocol).into_iter().map(|(xid, ..)| xid).collect();
    assert_eq!(xids, [1, 2]);
    outputs(&mut protocol);
    let mut bytes = reply(1, 5, 0, |out| {
        put::buffer(out, b"data");
        Stat::default().encode(out);
    });
    bytes.extend(reply(2, 5, -101, |_| {}));
    for byte in bytes {
        protocol.receive(&[byte], 1).unwrap();
    }
    let data = Reply::Data { data: b"data".to_vec(), stat: Stat::default() };
    assert_eq!(outputs(&mut protocol), [completed(10, Ok(data)), completed(11, Err(ErrorCode::NoNode))]);
    assert_eq!(protocol.pending(), 0);
}

/// A call that is meant for a session is sent in that one alone, also when it was made before there was one.
#[test]
fn a_call_for_another_session_is_not_sent() {
    let within = |session, path| Call::Within { session, call: Box::new(get(path, Some(7))) };
    let mut protocol = protocol("/");
    protocol.submit(1, within(SESSION, "/a"), 0);
    protocol.submit(2, within(SESSION + 1, "/b"), 0);
    protocol.submit(3, get("/c", None), 0);
    connect(&mut protocol, 0);
    let bodies: Vec<Vec<u8>> = sent(&mut protocol).into_iter().map(|(.., body)| body).collect();
    let paths: Vec<&str> = bodies.iter().map(|body| Reader::new(body).str().unwrap()).collect();
    assert_eq!(paths, ["/a", "/c"]);
    let told = outputs(&mut protocol);
    assert!(told.contains(&completed(2, Err(ErrorCode::SessionExpired))), "{told:?}");
    // It is otherwise the call that it is.
    let data = reply(1, 5, 0, |out| {
        put::buffer(out, b"data");
        Stat::default().encode(out);
    });
    protocol.receive(&data, 1).unwrap();
    let data = Reply::Data { data: b"data".to_vec(), stat: Stat::default() };
    assert_eq!(outputs(&mut protocol), [completed(1, Ok(data))]);
    assert!(protocol.lanes[MAIN].watches.contain("/a", WatcherKind::Data));
    protocol.submit(4, Call::Within { session: SESSION, call: Box::new(Call::Close) }, 1);
    assert_eq!(outputs(&mut protocol), [completed(4, Err(ErrorCode::BadArguments))]);
}

#[test]
fn a_reply_out_of_order_is_a_fault_and_its_calls_fail_with_the_connection() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    outputs(&mut protocol);
    protocol.submit(1, get("/a", None), 0);
    let fault = protocol.receive(&reply(2, 5, 0, |_| {}), 1).unwrap_err();
    assert_eq!(fault, Fault::Unexpected { expected: Some(1), got: 2 });
    protocol.disconnected();
    assert_eq!(
        outputs(&mut protocol),
        [completed(1, Err(ErrorCode::ConnectionLoss)), Output::State(State::Suspended)]
    );
}

#[test]
fn a_reply_that_cannot_be_read_is_a_fault_and_its_call_fails() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    outputs(&mut protocol);
    protocol.submit(1, get("/a", None), 0);
    let short = reply(1, 5, 0, |out| put::i32(out, 100));
    assert_eq!(protocol.receive(&short, 1), Err(Fault::Decode(DecodeError::BadLength)));
    protocol.disconnected();
    assert_eq!(outputs(&mut protocol)[0], completed(1, Err(ErrorCode::ConnectionLoss)));
}

#[test]
fn an_oversized_frame_is_a_fault() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    assert!(matches!(protocol.receive(&[0x7f, 0, 0, 0], 1), Err(Fault::Frame(_))));
}

#[test]
fn heartbeats_follow_silence_and_silence_of_the_server_is_a_fault() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 1000);
    assert_eq!(protocol.next_tick_ms(), Some(3000));
    protocol.tick(2999).unwrap();
    assert!(protocol.output().is_empty());
    protocol.tick(3000).unwrap();
    assert_eq!(sent(&mut protocol), [(-2, Opcode::Ping, vec![])]);
    assert_eq!(protocol.next_tick_ms(), Some(5000));
    protocol.receive(&reply(-2, 9, 0, |_| {}), 3001).unwrap();
    protocol.tick(5000).unwrap();
    assert_eq!(protocol.tick(7001), Err(Fault::Silent));
}

#[test]
fn a_new_connection_continues_the_session_and_sets_watches_again() {
    let mut protocol = protocol("/app");
    connect(&mut protocol, 0);
    protocol.submit(1, get("/a", Some(100)), 0);
    let call = Call::GetChildren { path: "/".to_owned(), watch: Some(WatchId(101)), with_stat: false };
    protocol.submit(2, call, 0);
    protocol.submit(3, Call::Exists { path: "/none".to_owned(), watch: Some(WatchId(102)) }, 0);
    protocol.submit(4, get("/missing", Some(103)), 0);
    let data = |out: &mut Vec<u8>| {
        put::buffer(out, b"");
        Stat::default().encode(out);
    };
    protocol.receive(&reply(1, 70, 0, data), 1).unwrap();
    protocol.receive(&reply(2, 71, 0, |out| put::len(out, 0)), 1).unwrap();
    protocol.receive(&reply(3, 71, -101, |_| {}), 1).unwrap();
    protocol.receive(&reply(4, 71, -101, |_| {}), 1).unwrap();
    protocol.disconnected();
    protocol.connected(10);
    let hello = core::mem::take(protocol.output());
    let request = ConnectRequest::decode(&hello[4..]).unwrap();
    assert_eq!((request.session_id, request.last_zxid_seen), (SESSION, 71));
    assert_eq!(request.password, [7; PASSWORD_LEN]);
    protocol.receive(&greeting(SESSION, 6000), 11).unwrap();
    let frames = sent(&mut protocol);
    let [(-8, Opcode::SetWatches, body)] = frames.as_slice() else { panic!("{frames:?}") };
    let Request::SetWatches(set) = Request::decode(Opcode::SetWatches, &mut Reader::new(body)).unwrap()
    else {
        panic!()
    };
    assert_eq!(set.relative_zxid, 71);
    assert_eq!(set.data.iter().collect::<Vec<_>>(), ["/app/a"]);
    assert_eq!(set.exist.iter().collect::<Vec<_>>(), ["/app/none"]);
    assert_eq!(set.child.iter().collect::<Vec<_>>(), ["/app"]);
}

#[test]
fn watches_are_set_again_since_the_last_answer_as_it_was() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    protocol.submit(1, get("/a", Some(100)), 0);
    protocol.submit(2, get("/b", Some(101)), 0);
    // A server with several partitions may say less than before.
    protocol.receive(&[reply(1, 70, -101, |_| {}), data_reply(2)].concat(), 1).unwrap();
    protocol.receive(&event(80, EventKind::DataChanged, "/c"), 1).unwrap();
    protocol.disconnected();
    connect(&mut protocol, 2);
    let (_, _, body) = sent(&mut protocol).pop().unwrap();
    assert_eq!(body[..8], 5_i64.to_be_bytes());
}

#[test]
fn persistent_watches_are_set_again_and_many_watches_in_several_requests() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    let call =
        Call::AddWatch { path: "/r".to_owned(), mode: AddWatchMode::PersistentRecursive, watch: WatchId(1) };
    protocol.submit(1, call, 0);
    protocol.receive(&reply(1, 1, 0, |out| put::i32(out, 0)), 0).unwrap();
    for number in 0..300 {
        protocol.lanes[MAIN].watches.add(
            Slot::Data,
            &format!("/{number:01000}"),
            Pace::Ordered,
            WatchId(2 + number),
        );
    }
    protocol.disconnected();
    connect(&mut protocol, 1);
    let frames = sent(&mut protocol);
    let opcodes: Vec<Opcode> = frames.iter().map(|(_, opcode, _)| *opcode).collect();
    assert_eq!(opcodes, [Opcode::SetWatches, Opcode::SetWatches, Opcode::SetWatches2]);
    assert!(frames.iter().all(|(_, _, body)| body.len() < SET_WATCHES_BYTES_MAX + 64));
}

#[test]
fn an_event_comes_before_the_reply_that_shows_the_change() {
    let mut protocol = protocol("/app");
    connect(&mut protocol, 0);
    protocol.submit(1, get("/a", Some(9)), 0);
    protocol.submit(2, get("/a", None), 0);
    outputs(&mut protocol);
    let data = |out: &mut Vec<u8>| {
        put::buffer(out, b"");
        Stat::default().encode(out);
    };
    let mut bytes = reply(1, 5, 0, data);
    bytes.extend(event(6, EventKind::DataChanged, "/app/a"));
    bytes.extend(reply(2, 6, 0, data));
    protocol.receive(&bytes, 1).unwrap();
    let reply = Reply::Data { data: vec![], stat: Stat::default() };
    let event = Event { kind: EventKind::DataChanged, path: "/a".to_owned(), zxid: 6 };
    assert_eq!(
        outputs(&mut protocol),
        [
            completed(1, Ok(reply.clone())),
            Output::Event { watch: WatchId(9), event },
            Output::WatchEnded { watch: WatchId(9), end: WatchEnd::Fired },
            completed(2, Ok(reply)),
        ]
    );
}

#[test]
fn an_expired_session_loses_everything_and_is_followed_by_a_new_one() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    protocol.submit(
        1,
        Call::AddWatch { path: "/".to_owned(), mode: AddWatchMode::Persistent, watch: WatchId(5) },
        0,
    );
    protocol.receive(&reply(1, 1, 0, |out| put::i32(out, 0)), 0).unwrap();
    protocol.disconnected();
    protocol.submit(2, get("/a", None), 1);
    outputs(&mut protocol);
    protocol.connected(2);
    assert_eq!(protocol.receive(&greeting(0, 0), 3), Err(Fault::SessionExpired));
    assert_eq!(
        outputs(&mut protocol),
        [
            Output::State(State::Lost),
            completed(2, Err(ErrorCode::SessionExpired)),
            Output::WatchEnded { watch: WatchId(5), end: WatchEnd::SessionLost },
        ]
    );
    protocol.disconnected();
    protocol.connected(4);
    let hello = core::mem::take(protocol.output());
    assert_eq!(ConnectRequest::decode(&hello[4..]).unwrap().session_id, 0);
    protocol.receive(&greeting(77, 6000), 5).unwrap();
    assert_eq!(outputs(&mut protocol), [Output::State(State::Connected)]);
    assert!(sent(&mut protocol).is_empty(), "no watch is set again in a new session");
}

#[test]
fn identities_are_sent_on_every_connection() {
    let mut protocol = protocol("/");
    protocol.submit(1, Call::Auth { scheme: "digest".to_owned(), auth: b"u:p".to_vec() }, 0);
    connect(&mut protocol, 0);
    assert_eq!(sent(&mut protocol).len(), 1);
    protocol.receive(&reply(-4, 0, 0, |_| {}), 0).unwrap();
    assert_eq!(outputs(&mut protocol), [Output::State(State::Connected), completed(1, Ok(Reply::Nothing))]);
    protocol.disconnected();
    connect(&mut protocol, 1);
    let frames = sent(&mut protocol);
    assert_eq!(
        frames.iter().map(|(xid, opcode, _)| (*xid, *opcode)).collect::<Vec<_>>(),
        [(-4, Opcode::Auth)]
    );
    let fault = protocol.receive(&reply(-4, 0, -115, |_| {}), 2).unwrap_err();
    assert_eq!((fault, protocol.state()), (Fault::AuthFailed, State::AuthFailed));
    outputs(&mut protocol);
    protocol.submit(2, get("/a", None), 3);
    assert_eq!(outputs(&mut protocol), [completed(2, Err(ErrorCode::SessionExpired))]);
}

#[test]
fn closing_ends_the_client_whether_the_server_answers_or_just_hangs_up() {
    for answers in [true, false] {
        let mut protocol = protocol("/");
        connect(&mut protocol, 0);
        outputs(&mut protocol);
        protocol.submit(1, Call::Close, 0);
        if answers {
            assert_eq!(protocol.receive(&reply(1, 2, 0, |_| {}), 0), Err(Fault::Closed));
        }
        protocol.disconnected();
        assert_eq!(outputs(&mut protocol), [completed(1, Ok(Reply::Nothing)), Output::State(State::Closed)]);
        assert_eq!(protocol.next_tick_ms(), None);
    }
}

#[test]
fn a_failed_multi_says_which_operation_failed() {
    let mut protocol = protocol("/app");
    connect(&mut protocol, 0);
    outputs(&mut protocol);
    let create = Operation::Create {
        path: "/a".to_owned(),
        data: vec![],
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        ttl_ms: None,
    };
    let delete = Operation::Delete { path: "/b".to_owned(), version: None };
    protocol.submit(1, Call::Multi(vec![create.clone(), delete.clone()]), 0);
    protocol.submit(2, Call::Multi(vec![create, delete]), 0);
    let frames = sent(&mut protocol);
    let Request::Multi(operations) = Request::decode(Opcode::Multi, &mut Reader::new(&frames[0].2)).unwrap()
    else {
        panic!()
    };
    assert_eq!(operations.len(), 2);
    let mut bytes = reply(1, 3, 0, |out| {
        MultiResults::created(out, "/app/a", None);
        MultiResults::deleted(out);
        MultiResults::end(out);
    });
    bytes.extend(reply(2, 4, 0, |out| {
        MultiResults::error(out, 0);
        MultiResults::error(out, -101);
        MultiResults::end(out);
    }));
    protocol.receive(&bytes, 0).unwrap();
    let made = OperationResult::Created { path: "/a".to_owned(), stat: None };
    let failed = [ErrorCode::Ok, ErrorCode::NoNode].map(OperationResult::Failed).to_vec();
    assert_eq!(
        outputs(&mut protocol),
        [
            completed(1, Ok(Reply::Results(vec![made, OperationResult::Deleted]))),
            completed(2, Ok(Reply::Results(failed))),
        ]
    );
}

#[test]
fn removed_watches_end_here_too() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    outputs(&mut protocol);
    protocol.lanes[MAIN].watches.add(Slot::Data, "/a", Pace::Ordered, WatchId(1));
    protocol.lanes[MAIN].watches.add(Slot::Child, "/a", Pace::Ordered, WatchId(2));
    protocol.submit(1, Call::RemoveWatches { path: "/a".to_owned(), kind: WatcherKind::Data }, 0);
    protocol.submit(2, Call::RemoveWatches { path: "/a".to_owned(), kind: WatcherKind::Any }, 0);
    protocol.receive(&reply(1, 1, 0, |_| {}), 0).unwrap();
    protocol.receive(&reply(2, 1, -121, |_| {}), 0).unwrap();
    assert_eq!(
        outputs(&mut protocol),
        [
            Output::WatchEnded { watch: WatchId(1), end: WatchEnd::Removed },
            completed(1, Ok(Reply::Nothing)),
            // The server has none, so this one would hear of nothing.
            Output::WatchEnded { watch: WatchId(2), end: WatchEnd::Removed },
            completed(2, Err(ErrorCode::NoWatcher)),
        ]
    );
    assert!(protocol.lanes[MAIN].watches.is_empty());
}

/// What a program says of a call later is heard, at most once, and a lost connection is too.
#[test]
fn a_call_is_told_more_of_later() {
    let telling = |path: &str| {
        let call = Call::Create {
            path: path.to_owned(),
            data: vec![],
            acl: vec![],
            mode: CreateMode::Ephemeral,
            ttl_ms: None,
            with_stat: true,
        };
        Call::Telling { path: path.to_owned(), watch: WatchId(7), call: call.into() }
    };
    let placed = |xid| {
        reply(xid, 5, 0, |out| {
            put::str(out, "/place");
            Stat::default().encode(out);
        })
    };
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    protocol.submit(1, telling("/ask"), 0);
    protocol.submit(2, telling("/refused"), 0);
    let opcodes: Vec<Opcode> = sent(&mut protocol).into_iter().map(|(_, opcode, _)| opcode).collect();
    assert_eq!(opcodes, [Opcode::Create2, Opcode::Create2]);
    protocol.receive(&placed(1), 0).unwrap();
    protocol.receive(&reply(2, 5, -101, |_| {}), 0).unwrap();
    outputs(&mut protocol);
    for path in ["/refused", "/ask", "/ask"] {
        protocol.receive(&event(6, EventKind::DataChanged, path), 0).unwrap();
    }
    let told = Event { kind: EventKind::DataChanged, path: "/ask".to_owned(), zxid: 6 };
    let end = Output::WatchEnded { watch: WatchId(7), end: WatchEnd::Fired };
    assert_eq!(outputs(&mut protocol), [Output::Event { watch: WatchId(7), event: told }, end]);
    // What is told while there is no connection is lost, and the server says that there is nothing at the path.
    protocol.submit(3, telling("/ask"), 0);
    protocol.receive(&placed(3), 0).unwrap();
    protocol.disconnected();
    connect(&mut protocol, 1);
    let opcodes: Vec<Opcode> = sent(&mut protocol).into_iter().map(|(_, opcode, _)| opcode).collect();
    assert_eq!(opcodes, [Opcode::SetWatches]);
    let nested = Call::Telling { path: "/a".to_owned(), watch: WatchId(1), call: telling("/a").into() };
    outputs(&mut protocol);
    protocol.submit(4, nested, 1);
    assert_eq!(outputs(&mut protocol), [completed(4, Err(ErrorCode::BadArguments))]);
}

#[test]
fn what_no_server_would_take_is_refused_here() {
    let mut protocol = protocol("/");
    connect(&mut protocol, 0);
    outputs(&mut protocol);
    protocol.output().clear();
    let create = |path: &str, mode, ttl_ms| Call::Create {
        path: path.to_owned(),
        data: vec![],
        acl: Acl::open(),
        mode,
        ttl_ms,
        with_stat: false,
    };
    for (token, call) in [
        (1, get("a", None)),
        (2, get("/a/", None)),
        (3, create("/a/", CreateMode::Persistent, None)),
        (4, create("/a", CreateMode::PersistentTtl, None)),
        (5, create("/a", CreateMode::Persistent, Some(1))),
    ] {
        protocol.submit(token, call, 0);
        assert_eq!(outputs(&mut protocol), [completed(token, Err(ErrorCode::BadArguments))]);
    }
    assert!(protocol.output().is_empty());
    protocol.submit(6, create("/", CreateMode::PersistentSequential, None), 0);
    protocol.submit(7, create("/a/", CreateMode::EphemeralSequential, None), 0);
    assert_eq!(sent(&mut protocol).len(), 2);
}

#[test]
fn what_a_read_only_server_gives_for_a_session_is_not_asked_for_again() {
    let mut protocol = protocol("");
    let asked_for = |protocol: &mut Protocol| {
        protocol.connected(0);
        let bytes = core::mem::take(protocol.output());
        let (frame, _) = next_frame(&bytes, 1 << 20).unwrap().unwrap();
        ConnectRequest::decode(frame).unwrap().session_id
    };
    assert_eq!(asked_for(&mut protocol), 0);
    protocol.receive(&greeting_of(5, 6000, true), 0).unwrap();
    assert_eq!(protocol.state(), State::ConnectedReadOnly);
    protocol.disconnected();
    assert_eq!(asked_for(&mut protocol), 0);
    protocol.receive(&greeting(SESSION, 6000), 0).unwrap();
    protocol.disconnected();
    // A session is kept through read-only mode.
    assert_eq!(asked_for(&mut protocol), SESSION);
    protocol.receive(&greeting_of(SESSION, 6000, true), 0).unwrap();
    protocol.disconnected();
    assert_eq!(asked_for(&mut protocol), SESSION);
}
