//! Three servers that talk to each other at once and store at once, unless they are told otherwise.

use std::collections::BTreeSet;
use stoa_core::{Config, ConnectionId, Items, Now, Outcome, PeerOutput, Recovered, Role, Server};
use stoa_group::Store;
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, ConnectResponse, OPEN_ACL, Opcode, Reader, ReplyHeader, RequestHeader, begin_frame,
    end_frame, next_frame, request::encode,
};

struct Trio {
    servers: Vec<Server>,
    now_us: u64,
    /// Between these (from, to) nothing arrives.
    cuts: BTreeSet<(u8, u8)>,
    /// These disks store nothing for now: the last record that waits.
    stalled: BTreeSet<u8>,
    waiting: [u64; 3],
    /// Every outcome in a record of the first server: server, request, whether it was refused.
    outcomes: Vec<(u8, u64, bool)>,
}

impl Trio {
    fn new() -> Self {
        let start = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let server = |id: u8| {
            let config = Config {
                server_id: id,
                tick_ms: 100,
                session_timeout_min_ms: 500,
                heartbeat_ms: 20,
                reap_interval_ms: 50,
                ..Config::default()
            };
            let recovered = Recovered::new(Tree::new(Options::default()), &[1, 2, 3]);
            Server::new(config, recovered, [id; 32], start).expect("a new timeline is sound")
        };
        let mut trio = Self {
            servers: (1..=3).map(server).collect(),
            now_us: start.mono_us,
            cuts: BTreeSet::new(),
            stalled: BTreeSet::new(),
            waiting: [0; 3],
            outcomes: Vec::new(),
        };
        // Only the first one's time goes by, so it is elected.
        trio.pass(&[1], 1000);
        trio.pass(&[1, 2, 3], 100);
        trio
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    fn server(&mut self, id: u8) -> &mut Server {
        &mut self.servers[usize::from(id) - 1]
    }

    /// Lets time go by for these.
    fn pass(&mut self, ids: &[u8], ms: u64) {
        for _ in 0..ms / 10 {
            self.now_us += 10_000;
            for id in ids {
                let now = self.now();
                self.server(*id).tick(now);
            }
            self.settle();
        }
    }

    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for id in 1..=3 {
                moved |= self.store(id);
                while let Some(output) = self.server(id).poll_peer() {
                    if let PeerOutput::Send { to, message } = output
                        && !self.cuts.contains(&(id, to))
                    {
                        let now = self.now();
                        self.server(to)
                            .peer_message(id, message.join(), now)
                            .expect("they understand each other");
                        moved = true;
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn store(&mut self, id: u8) -> bool {
        while let Some(append) = self.server(id).poll_append() {
            self.waiting[usize::from(id) - 1] = append.position;
            let store = Store::decode(append.payload.join()).expect("it is a record");
            for entry in store.entries.iter().filter(|_| id == 1) {
                for item in Items::new(&entry.payload) {
                    let item = item.expect("it is an item");
                    let refused = matches!(item.outcome, Outcome::Refused(_));
                    self.outcomes.extend(item.origin.map(|it| (it.server, it.request, refused)));
                }
            }
        }
        let last = std::mem::take(&mut self.waiting[usize::from(id) - 1]);
        if last == 0 || self.stalled.contains(&id) {
            self.waiting[usize::from(id) - 1] = last;
            return false;
        }
        let now = self.now();
        self.server(id).appended(last, now);
        true
    }

    fn send(&mut self, id: u8, connection: ConnectionId, bytes: &[u8]) {
        let now = self.now();
        assert_eq!(self.server(id).receive(connection, bytes, now), bytes.len());
    }

    /// A connection with a session, a new one or this one.
    fn connect(
        &mut self,
        id: u8,
        session: Option<&ConnectResponse>,
    ) -> (ConnectionId, Option<ConnectResponse>) {
        let now = self.now();
        let connection = self.server(id).connect(([127, 0, 0, 1], 1).into(), now).expect("there is room");
        let mut bytes = Vec::new();
        let start = begin_frame(&mut bytes);
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 1000,
            session_id: session.map_or(0, |session| session.session_id),
            password: session.map_or(&[0; 16], |session| &session.password),
            read_only: None,
        };
        request.encode(&mut bytes);
        end_frame(&mut bytes, start);
        self.send(id, connection, &bytes);
        self.settle();
        let frames = self.frames(id, connection);
        (connection, frames.first().and_then(|frame| ConnectResponse::decode(frame).ok()))
    }

    fn frames(&mut self, id: u8, connection: ConnectionId) -> Vec<Vec<u8>> {
        let output = self.server(id).output(connection).to_vec();
        self.server(id).sent(connection, output.len());
        let (mut rest, mut frames) = (&output[..], Vec::new());
        while let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX) {
            frames.push(frame.to_vec());
            rest = tail;
        }
        frames
    }

    /// The xids and errors of the answers since the last look.
    fn answers(&mut self, id: u8, connection: ConnectionId) -> Vec<(i32, i32)> {
        let header = |frame: &Vec<u8>| ReplyHeader::decode(&mut Reader::new(frame)).expect("it is a reply");
        self.frames(id, connection).iter().map(header).map(|header| (header.xid, header.err)).collect()
    }
}

fn frame(xid: i32, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = begin_frame(&mut bytes);
    RequestHeader { xid, opcode: opcode as i32 }.encode(&mut bytes);
    body(&mut bytes);
    end_frame(&mut bytes, start);
    bytes
}

fn create(xid: i32, path: &str) -> Vec<u8> {
    frame(xid, Opcode::Create, |body| encode::create(body, path, Some(b"x"), OPEN_ACL, 0, None))
}

#[test]
fn a_leader_asks_itself_once_however_long_a_majority_takes() {
    let mut trio = Trio::new();
    let (client, session) = trio.connect(1, None);
    assert!(session.is_some());
    for id in [2, 3] {
        trio.stalled.insert(id);
    }
    trio.send(1, client, &create(1, "/a"));
    trio.pass(&[1, 2, 3], 400);
    assert_eq!(trio.answers(1, client), []);
    trio.stalled.clear();
    trio.pass(&[1, 2, 3], 400);
    assert_eq!(trio.answers(1, client), [(1, 0)]);
    let mut seen = BTreeSet::new();
    assert!(trio.outcomes.iter().all(|(server, request, _)| seen.insert((*server, *request))));
}

#[test]
fn writes_that_waited_behind_a_sync_are_not_overtaken() {
    let mut trio = Trio::new();
    let (client, _) = trio.connect(1, None);
    let mut bytes = frame(1, Opcode::Sync, |body| encode::path(body, "/"));
    bytes.extend(create(2, "/a"));
    bytes.extend(frame(3, Opcode::GetData, |body| encode::path_watch(body, "/a", false)));
    bytes.extend(create(4, "/a/b"));
    trio.stalled.extend([1, 2, 3]);
    trio.send(1, client, &bytes);
    trio.settle();
    assert_eq!(trio.answers(1, client), [(1, 0)], "the sync is answered, the write is under way");
    trio.send(1, client, &create(5, "/a/b/c"));
    trio.settle();
    trio.stalled.clear();
    trio.pass(&[1, 2, 3], 50);
    assert_eq!(trio.answers(1, client), [(2, 0), (3, 0), (4, 0), (5, 0)]);
}

#[test]
fn a_session_whose_close_came_from_its_old_connection_expires() {
    let mut trio = Trio::new();
    let (old, session) = trio.connect(2, None);
    let session = session.unwrap();
    // The old contact does not hear that the session moves.
    trio.cuts.insert((1, 2));
    let (new, moved) = trio.connect(3, Some(&session));
    assert_eq!(moved.map(|it| it.session_id), Some(session.session_id));
    trio.send(2, old, &frame(1, Opcode::CloseSession, |_| ()));
    trio.settle();
    trio.cuts.clear();
    trio.pass(&[1, 2, 3], 200);
    assert!(trio.outcomes.iter().any(|(_, _, refused)| *refused), "the close is refused");
    assert_eq!(trio.server(1).session_count(), 1);
    let now = trio.now();
    trio.server(3).disconnected(new, now);
    trio.pass(&[1, 2, 3], 2000);
    assert_eq!(trio.server(1).session_count(), 0);
}

#[test]
fn a_server_follows_the_same_leader_into_its_next_term() {
    let mut trio = Trio::new();
    for (from, to) in [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)] {
        trio.cuts.insert((from, to));
    }
    // It finds itself alone and is elected again by the third; the second learns it from a heartbeat.
    trio.pass(&[1], 1000);
    let now = trio.now();
    trio.server(3).peer_lost(1, now);
    trio.cuts.remove(&(1, 3));
    trio.cuts.remove(&(3, 1));
    trio.pass(&[1], 1000);
    trio.cuts.clear();
    trio.pass(&[1], 100);
    let (_, session) = trio.connect(2, None);
    assert!(session.is_some(), "the leader takes what it asks");
}

#[test]
fn a_leader_deletes_what_is_due_an_interval_after_its_election() {
    let mut trio = Trio::new();
    // The first is cut off; the second leads, who has waited for that a while.
    for (from, to) in [(1, 2), (2, 1), (1, 3), (3, 1)] {
        trio.cuts.insert((from, to));
    }
    let now = trio.now();
    trio.server(2).peer_lost(1, now);
    trio.server(3).peer_lost(1, now);
    trio.pass(&[2, 3], 400);
    let (client, session) = trio.connect(2, None);
    assert!(session.is_some());
    let ttl = frame(1, Opcode::CreateTtl, |body| {
        encode::create(body, "/t", Some(b"x"), OPEN_ACL, 5, Some(10));
    });
    trio.send(2, client, &ttl);
    trio.pass(&[2, 3], 100);
    trio.send(2, client, &frame(2, Opcode::Exists, |body| encode::path_watch(body, "/t", false)));
    const NO_NODE: i32 = -101;
    assert_eq!(trio.answers(2, client), [(1, 0), (2, NO_NODE)]);
}

#[test]
fn who_can_win_tries_again_if_the_others_were_not_ready() {
    let mut trio = Trio::new();
    trio.cuts.insert((1, 3));
    // The third lacks this, so only the second can be elected.
    assert!(trio.connect(2, None).1.is_some());
    for cut in [(3, 1), (1, 2), (2, 1)] {
        trio.cuts.insert(cut);
    }
    let now = trio.now();
    trio.server(2).peer_lost(1, now);
    // The second is refused: to the third, the first still leads.
    trio.pass(&[2, 3], 10);
    let now = trio.now();
    trio.server(3).peer_lost(1, now);
    // Less than the election timeout, which is 200 ms.
    trio.pass(&[2, 3], 100);
    assert_eq!(trio.server(2).standing().role, Role::Leader);
}
