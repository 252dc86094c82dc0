//! Sessions that their contact server alone keeps.

use super::*;
use stoa_core::LocalSessions;
use stoa_wire::MultiHeader;

const EPHEMERAL_ON_LOCAL_SESSION: i32 = -120;
const EPHEMERAL: i32 = 1;

/// Servers that make local sessions.
fn trio(upgrading: bool) -> Trio {
    Trio::configured(|config| {
        config.local_sessions.are_made = true;
        config.local_sessions.are_upgraded = upgrading;
    })
}

fn ephemeral(xid: i32, path: &str) -> Vec<u8> {
    frame(xid, Opcode::Create, |body| encode::create(body, path, Some(b"x"), OPEN_ACL, EPHEMERAL, None))
}

fn exists(xid: i32, path: &str) -> Vec<u8> {
    frame(xid, Opcode::Exists, |body| encode::path_watch(body, path, false))
}

impl Trio {
    fn ask(&mut self, id: u8, connection: ConnectionId, bytes: &[u8]) -> Vec<(i32, i32)> {
        self.send(id, connection, bytes);
        self.settle();
        self.answers(id, connection)
    }

    /// How many updates there have been, and how many sessions each server keeps for itself and in its tree.
    fn counts(&mut self) -> (i64, Vec<(usize, usize)>) {
        let zxid = self.server(1).tree().last_zxid();
        let of = |server: &Shard| (server.local_session_count(), server.tree().session_count());
        (zxid, self.servers.iter().map(of).collect())
    }

    /// What the answers to creates say, since the last look.
    fn created(&mut self, id: u8, connection: ConnectionId) -> Vec<String> {
        let path = |frame: &Vec<u8>| {
            let mut reader = Reader::new(frame);
            let header = ReplyHeader::decode(&mut reader).expect("it is a reply");
            assert_eq!(header.err, 0);
            reader.str().expect("a create is answered with a path").to_owned()
        };
        self.frames(id, connection).iter().map(path).collect()
    }

    fn is_closed(&mut self, id: u8, connection: ConnectionId) -> bool {
        self.server(id).connection(connection).is_none_or(|it| it.close_reason().is_some())
    }
}

#[test]
fn a_session_that_only_reads_costs_no_write() {
    let mut trio = trio(true);
    let (before, _) = trio.counts();
    let mut clients = Vec::new();
    for id in 1..=3 {
        let (client, session) = trio.connect(id, None);
        let session = session.expect("it begins");
        assert_eq!((session.session_id >> 56) as u8, id);
        assert_eq!(trio.ask(id, client, &exists(1, "/")), [(1, 0)]);
        clients.push((id, client));
    }
    let (after, kept) = trio.counts();
    assert_eq!((after, kept), (before, vec![(1, 0); 3]));
    for (id, client) in clients {
        assert_eq!(trio.ask(id, client, &frame(2, Opcode::CloseSession, |_| ())), [(2, 0)]);
        assert!(trio.is_closed(id, client));
    }
    assert_eq!(trio.counts(), (before, vec![(0, 0); 3]));
}

#[test]
fn a_local_session_sees_what_was_acknowledged_before_it_came() {
    let mut trio = trio(true);
    let (writer, _) = trio.connect(1, None);
    trio.stalled.insert(3);
    assert_eq!(trio.ask(1, writer, &create(1, "/a")), [(1, 0)], "the others are a majority");
    trio.cuts.insert((1, 3));
    let (reader, early) = trio.connect(3, None);
    assert_eq!(early, None, "it may lack something");
    trio.cuts.clear();
    trio.stalled.clear();
    trio.pass(&[1, 2, 3], 500);
    let frames = trio.frames(3, reader);
    assert!(ConnectResponse::decode(&frames[0]).is_ok_and(|it| it.session_id != 0));
    assert_eq!(trio.ask(3, reader, &exists(1, "/a")), [(1, 0)]);
}

#[test]
fn a_local_session_writes_and_is_refused_ephemerals() {
    let mut trio = trio(false);
    for id in [1, 2] {
        let (client, _) = trio.connect(id, None);
        let (path, below) = (format!("/{id}"), format!("/{id}/e"));
        assert_eq!(trio.ask(id, client, &create(1, &path)), [(1, 0)]);
        // Behind a write, and in its turn.
        let mut bytes = create(2, &format!("{path}/a"));
        bytes.extend(ephemeral(3, &below));
        bytes.extend(create(4, &format!("{path}/b")));
        let multi = frame(5, Opcode::Multi, |body| {
            let op = MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 };
            for (path, flags) in [(format!("{path}/c"), 0), (below.clone(), EPHEMERAL)] {
                op.encode(body);
                encode::create(body, &path, Some(b"x"), OPEN_ACL, flags, None);
            }
            MultiHeader::END.encode(body);
        });
        bytes.extend(multi);
        let wanted = [(2, 0), (3, EPHEMERAL_ON_LOCAL_SESSION), (4, 0), (5, EPHEMERAL_ON_LOCAL_SESSION)];
        assert_eq!(trio.ask(id, client, &bytes), wanted);
        assert_eq!(trio.ask(id, client, &exists(6, &format!("{path}/c"))), [(6, -101)]);
    }
    assert_eq!(trio.counts().1, [(1, 0), (1, 0), (0, 0)]);
}

#[test]
fn an_ephemeral_makes_a_session_global_and_it_may_move_then() {
    for id in [1, 2] {
        let mut trio = trio(true);
        let (client, session) = trio.connect(id, None);
        let session = session.unwrap();
        let mut bytes = create(1, "/a");
        bytes.extend(ephemeral(2, "/e"));
        bytes.extend(create(3, "/b"));
        trio.send(id, client, &bytes);
        trio.settle();
        assert_eq!(trio.created(id, client), ["/a", "/e", "/b"]);
        assert_eq!(trio.counts().1, [(0, 1); 3]);
        // It lives as long as its client is heard of, wherever that is.
        for _ in 0..20 {
            trio.pass(&[1, 2, 3], 100);
            assert_eq!(trio.ask(id, client, &frame(-2, Opcode::Ping, |_| ())), [(-2, 0)]);
        }
        let (moved, same) = trio.connect(3, Some(&session));
        assert_eq!(same.map(|it| it.session_id), Some(session.session_id));
        assert!(trio.is_closed(id, client));
        assert_eq!(trio.ask(3, moved, &exists(4, "/e")), [(4, 0)]);
        trio.pass(&[1, 2, 3], 2000);
        assert_eq!(trio.counts().1, [(0, 0); 3], "it was silent");
        assert_eq!(trio.server(1).tree().ephemeral_count(), 0);
    }
}

#[test]
fn a_local_session_is_ended_by_its_server_when_it_is_silent() {
    let mut trio = trio(true);
    let (client, session) = trio.connect(2, None);
    trio.pass(&[1, 2, 3], 900);
    assert!(!trio.is_closed(2, client));
    trio.pass(&[1, 2, 3], 400);
    assert!(trio.is_closed(2, client));
    assert_eq!(trio.counts().1[1], (0, 0));
    let (_, back) = trio.connect(2, session.as_ref());
    assert_eq!(back.map(|it| it.session_id), Some(0), "it has expired");
}

#[test]
fn what_is_asked_behind_the_close_of_a_local_session_has_no_effect() {
    for id in [1, 2] {
        let mut trio = trio(true);
        let (client, _) = trio.connect(id, None);
        let mut bytes = create(1, "/a");
        bytes.extend(frame(2, Opcode::CloseSession, |_| ()));
        bytes.extend(create(3, "/late"));
        bytes.extend(ephemeral(4, "/e"));
        bytes.extend(frame(5, Opcode::CloseSession, |_| ()));
        assert_eq!(trio.ask(id, client, &bytes), [(1, 0), (2, 0)]);
        assert!(trio.is_closed(id, client));
        let (other, _) = trio.connect(3, None);
        let mut bytes = exists(1, "/a");
        bytes.extend(exists(2, "/late"));
        bytes.extend(exists(3, "/e"));
        assert_eq!(trio.ask(3, other, &bytes), [(1, 0), (2, -101), (3, -101)]);
        assert_eq!(trio.counts().1, [(0, 0), (0, 0), (1, 0)]);
    }
}

#[test]
fn a_local_session_whose_close_was_not_answered_is_closed() {
    for disconnects in [true, false] {
        let mut trio = trio(true);
        let (old, session) = trio.connect(2, None);
        // The answer to the close waits for what was asked before it.
        trio.cuts.insert((2, 1));
        let mut bytes = create(1, "/a");
        bytes.extend(frame(2, Opcode::CloseSession, |_| ()));
        assert_eq!(trio.ask(2, old, &bytes), []);
        if disconnects {
            let now = trio.now();
            trio.server(2).disconnected(old, now);
            assert_eq!(trio.counts().1[1], (0, 0));
        }
        let (new, early) = trio.connect(2, session.as_ref());
        assert!(trio.is_closed(2, old));
        assert_eq!(trio.counts().1[1], (0, 0));
        trio.cuts.clear();
        trio.pass(&[1, 2, 3], 400);
        let answered = trio.frames(2, new);
        let back = early.or_else(|| ConnectResponse::decode(answered.first()?).ok());
        assert_eq!(back.map(|it| it.session_id), Some(0), "it was closed");
        let (other, _) = trio.connect(3, None);
        assert_eq!(trio.ask(3, other, &exists(1, "/a")), [(1, 0)], "it was asked before");
    }
}

#[test]
fn a_local_session_comes_back_to_its_server_and_to_no_other() {
    let mut trio = trio(true);
    let (old, session) = trio.connect(2, None);
    let session = session.unwrap();
    let (_, elsewhere) = trio.connect(3, Some(&session));
    assert_eq!(elsewhere.map(|it| it.session_id), Some(0));
    let wrong = ConnectResponse { password: [9; 16], ..session };
    assert_eq!(trio.connect(2, Some(&wrong)).1.map(|it| it.session_id), Some(0));
    let (new, same) = trio.connect(2, Some(&session));
    assert_eq!(same, Some(session));
    assert!(trio.is_closed(2, old));
    assert_eq!(trio.ask(2, new, &create(1, "/a")), [(1, 0)]);
    assert_eq!(trio.counts().1, [(0, 0), (1, 0), (0, 0)]);
}

#[test]
fn who_comes_back_sees_what_the_old_connection_has_asked() {
    let mut trio = trio(true);
    let (old, session) = trio.connect(2, None);
    // It is asked of the leader, and lost on the way: it will be asked again.
    trio.cuts.insert((2, 1));
    trio.send(2, old, &create(1, "/a"));
    trio.settle();
    trio.cuts.clear();
    let now = trio.now();
    trio.server(2).disconnected(old, now);
    let (new, early) = trio.connect(2, session.as_ref());
    assert_eq!(early, None, "the write may still happen");
    trio.pass(&[1, 2, 3], 400);
    let frames = trio.frames(2, new);
    assert_eq!(ConnectResponse::decode(&frames[0]).ok(), session);
    assert_eq!(trio.ask(2, new, &exists(1, "/a")), [(1, 0)]);
}

#[test]
fn who_comes_back_while_its_session_becomes_global_has_a_global_one() {
    let mut trio = trio(true);
    let (old, session) = trio.connect(2, None);
    trio.cuts.insert((2, 1));
    trio.send(2, old, &ephemeral(1, "/e"));
    trio.settle();
    let (new, early) = trio.connect(2, session.as_ref());
    assert_eq!(early, None);
    trio.cuts.clear();
    trio.pass(&[1, 2, 3], 400);
    let frames = trio.frames(2, new);
    assert_eq!(ConnectResponse::decode(&frames[0]).ok(), session);
    assert_eq!(trio.counts().1, [(0, 1); 3]);
    assert_eq!(trio.ask(2, new, &exists(1, "/e")), [(1, 0)]);
    assert_eq!(trio.ask(2, new, &frame(2, Opcode::CloseSession, |_| ())), [(2, 0)]);
    assert_eq!(trio.server(1).tree().ephemeral_count(), 0);
}

#[test]
fn a_new_leader_knows_nothing_of_local_sessions_and_takes_their_writes() {
    let mut trio = trio(true);
    let (client, session) = trio.connect(3, None);
    let (at_leader, lost) = trio.connect(1, None);
    for (from, to) in [(1, 2), (2, 1), (1, 3), (3, 1)] {
        trio.cuts.insert((from, to));
    }
    // The leader has prepared this, and loses the lead with it.
    trio.send(1, at_leader, &ephemeral(1, "/lost"));
    trio.send(3, client, &ephemeral(1, "/e"));
    let now = trio.now();
    trio.server(2).peer_lost(1, now);
    trio.server(3).peer_lost(1, now);
    trio.pass(&[2, 3], 400);
    assert_eq!(trio.answers(3, client), [(1, 0)]);
    trio.cuts.clear();
    trio.pass(&[1, 2, 3], 300);
    assert!(trio.is_closed(1, at_leader), "its write was lost");
    let (_, back) = trio.connect(1, lost.as_ref());
    assert_eq!(back, lost, "it is what it was");
    assert_eq!(trio.server(2).tree().ephemeral_count(), 1);
    assert!(trio.server(2).tree().session(session.unwrap().session_id).is_some());
}

#[test]
fn a_server_that_stands_alone_has_global_sessions() {
    let config =
        Config { local_sessions: LocalSessions { are_made: true, ..<_>::default() }, ..Config::default() };
    let now = Now { mono_us: 1, wall_ms: 1_700_000_000_000 };
    let recovered = Recovered::new(Tree::new(Options::default()), &[1]);
    let mut server = Shard::new(config, recovered, [1; 32], now).expect("a new timeline is sound");
    while let Some(append) = server.poll_append() {
        server.appended(append.position, now);
    }
    let client = server.connect(([127, 0, 0, 1], 1).into(), now).expect("there is room");
    let mut bytes = Vec::new();
    let start = begin_frame(&mut bytes);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 6000,
        session_id: 0,
        password: &[0; 16],
        read_only: None,
    };
    request.encode(&mut bytes);
    end_frame(&mut bytes, start);
    server.receive(client, &bytes, now);
    while let Some(append) = server.poll_append() {
        server.appended(append.position, now);
    }
    assert_eq!((server.local_session_count(), server.tree().session_count()), (0, 1));
}
