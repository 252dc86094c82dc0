//! Three servers that talk to each other at once and store at once, unless they are told otherwise.

#[path = "ensemble/local.rs"]
mod local;

use std::collections::{BTreeMap, BTreeSet};
use stoa_core::{
    CloseReason, Config, ConnectionId, Items, Now, Outcome, PeerOutput, Reaping, Recovered, Replica, Restore,
    Role, Shard,
};
use stoa_group::Store;
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, ConnectResponse, OPEN_ACL, Opcode, Reader, ReplyHeader, RequestHeader, begin_frame,
    end_frame, next_frame, request::encode,
};

fn config(id: u8) -> Config {
    Config {
        server_id: id,
        tick_ms: 100,
        session_timeout_min_ms: 500,
        heartbeat_ms: 20,
        reaping: Reaping { interval_ms: 50, max: 10_000 },
        ..Config::default()
    }
}

struct Trio {
    ids: [u8; 3],
    servers: Vec<Shard>,
    now_us: u64,
    /// What clients ask for.
    timeout_ms: i32,
    /// Between these (from, to) nothing arrives.
    cuts: BTreeSet<(u8, u8)>,
    /// These disks store nothing for now: the last record that waits.
    stalled: BTreeSet<u8>,
    waiting: [u64; 3],
    /// What each disk holds.
    records: BTreeMap<u8, Vec<(u64, bytes::Bytes)>>,
    /// Every outcome in a record of the first server: server, request, whether it was refused.
    outcomes: Vec<(u8, u64, bool)>,
    /// Whom each server was last told to belong to the ensemble.
    members: BTreeMap<u8, Vec<u8>>,
}

impl Trio {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(read_only_mode: bool) -> Self {
        Self::configured(|config| config.read_only_mode = read_only_mode)
    }

    fn configured(set: impl Fn(&mut Config)) -> Self {
        Self::of([1, 2, 3], set)
    }

    /// Servers with these ids, of which the first one leads.
    fn of(ids: [u8; 3], set: impl Fn(&mut Config)) -> Self {
        let start = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let empty = || Recovered::new(Tree::new(Options::default()), &ids);
        let server = |id| {
            let mut config = config(id);
            set(&mut config);
            new_server(config, empty(), id, start)
        };
        let mut trio = Self {
            ids,
            servers: ids.into_iter().map(server).collect(),
            now_us: start.mono_us,
            timeout_ms: 1000,
            cuts: BTreeSet::new(),
            stalled: BTreeSet::new(),
            waiting: [0; 3],
            records: BTreeMap::new(),
            outcomes: Vec::new(),
            members: BTreeMap::new(),
        };
        // Only the first one's time goes by, so it is elected.
        trio.pass(&ids[..1], 1000);
        trio.pass(&ids, 100);
        trio
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    fn at(&self, id: u8) -> usize {
        self.ids.iter().position(|other| *other == id).expect("it is one of them")
    }

    fn server(&mut self, id: u8) -> &mut Shard {
        let at = self.at(id);
        &mut self.servers[at]
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
            for id in self.ids {
                moved |= self.store(id);
                while let Some(output) = self.server(id).poll_peer() {
                    match output {
                        PeerOutput::Send { to, message } if !self.cuts.contains(&(id, to)) => {
                            let now = self.now();
                            self.server(to)
                                .peer_message(id, message.encode().join(), now)
                                .expect("they understand each other");
                            moved = true;
                        }
                        PeerOutput::Members { members, .. } => drop(self.members.insert(id, members)),
                        _ => {}
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn store(&mut self, id: u8) -> bool {
        let at = self.at(id);
        while let Some(append) = self.server(id).poll_append() {
            self.waiting[at] = append.position;
            let payload = append.payload.join();
            self.records.entry(id).or_default().push((append.position, payload.clone()));
            let store = Store::decode(payload).expect("it is a record");
            for entry in store.entries.iter().filter(|_| at == 0) {
                for item in Items::new(&entry.payload) {
                    let item = item.expect("it is an item");
                    let refused = matches!(item.outcome, Outcome::Refused(_));
                    self.outcomes.extend(item.origin.map(|it| (it.server, it.request, refused)));
                }
            }
        }
        let last = std::mem::take(&mut self.waiting[at]);
        if last == 0 || self.stalled.contains(&id) {
            self.waiting[at] = last;
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
        self.connect_as(id, session, None)
    }

    /// The same for a client that says whether a read-only server will do.
    fn connect_as(
        &mut self,
        id: u8,
        session: Option<&ConnectResponse>,
        read_only: Option<bool>,
    ) -> (ConnectionId, Option<ConnectResponse>) {
        let now = self.now();
        let connection = self.server(id).connect(([127, 0, 0, 1], 1).into(), now).expect("there is room");
        let mut bytes = Vec::new();
        let start = begin_frame(&mut bytes);
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: self.timeout_ms,
            session_id: session.map_or(0, |session| session.session_id),
            password: session.map_or(&[0; 16], |session| &session.password),
            read_only,
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
        let now = self.now();
        self.server(id).sent(connection, output.len(), now);
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

fn new_server(config: Config, recovered: Recovered, secret: u8, now: Now) -> Shard {
    Shard::new(config, recovered, [secret; 32], now).expect("what it has is sound")
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

/// Nobody is called 0 in the group, in what a disk holds and in what servers say to each other. A server may be.
#[test]
fn the_first_and_the_last_ids_are_as_good_as_any() {
    for ids in [[0, 1, 2], [2, 0, 255], [255, 1, 0]] {
        let mut trio = Trio::of(ids, |_| ());
        let [first, second, third] = ids;
        let mut sessions = BTreeSet::new();
        for (xid, id) in (1..).zip(ids) {
            let (client, session) = trio.connect(id, None);
            let session = session.expect("there is a leader").session_id;
            assert!((session >> 56) as u8 == id && sessions.insert(session), "{session:#x} at {id}");
            trio.send(id, client, &create(xid, &format!("/of-{id}")));
            trio.pass(&ids, 50);
            assert_eq!(trio.answers(id, client), [(xid, OK)], "at {id} of {ids:?}");
        }
        let asked: BTreeSet<u8> = trio.outcomes.iter().map(|(server, ..)| *server).collect();
        assert_eq!(asked, BTreeSet::from(ids), "each outcome is of somebody");
        let standing = trio.server(third).status();
        assert_eq!((standing.leader, standing.role), (Some(first), Role::Follower));
        assert_eq!(BTreeSet::from_iter(standing.voters), BTreeSet::from(ids));
        assert_eq!(BTreeSet::from_iter(trio.members[&second].clone()), BTreeSet::from(ids));
        // A client moves from one to another, and closes its session there; one that is silent expires.
        let (old, session) = trio.connect(second, None);
        let (new, moved) = trio.connect(third, session.as_ref());
        assert_eq!(moved.map(|it| it.session_id), session.map(|it| it.session_id));
        assert_eq!(trio.why_closed(second, old), Some(CloseReason::SessionMoved));
        trio.send(third, new, &frame(1, Opcode::CloseSession, |_| ()));
        trio.pass(&ids, 50);
        assert_eq!(trio.server(first).session_count(), 3);
        trio.pass(&ids, 2000);
        assert_eq!(trio.server(first).session_count(), 0);
        // Each leads in its turn, be it for the asking or because the leader is lost.
        let now = trio.now();
        trio.server(first).hand_over(second, now);
        trio.pass(&ids, 200);
        assert_eq!(trio.server(third).status().leader, Some(second));
        for other in [first, third] {
            trio.cuts.extend([(other, second), (second, other)]);
        }
        let now = trio.now();
        for (id, other) in [(first, third), (third, first)] {
            trio.server(id).peer_connected(other, now);
            trio.server(id).peer_lost(second, now);
        }
        trio.pass(&[first, third], 80);
        let leader = trio.server(first).status().leader.expect("they do not wait for a timeout");
        assert!(leader != second && trio.server(third).status().leader == Some(leader), "{ids:?}");
        let (client, _) = trio.connect(first, None);
        trio.send(first, client, &create(1, "/without"));
        trio.pass(&[first, third], 50);
        assert_eq!(trio.answers(first, client), [(1, OK)]);
    }
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
    assert_eq!(trio.server(2).status().role, Role::Leader);
}

const OK: i32 = 0;
const NOT_READ_ONLY: i32 = -119;
const CONTENT: Option<bool> = Some(true);

impl Trio {
    /// The first server hears nothing of the others any more, nor they of it.
    fn cut_off_first(&mut self) {
        self.cuts.extend([(1, 2), (2, 1), (1, 3), (3, 1)]);
    }

    fn why_closed(&mut self, id: u8, connection: ConnectionId) -> Option<CloseReason> {
        self.server(id).connection(connection).expect("nobody has let go of it").close_reason()
    }

    /// A trio whose third server has applied `/a` and is cut off and read-only, with the session that made it.
    fn third_only_reads() -> (Self, ConnectResponse) {
        let mut trio = Self::with(true);
        let (client, session) = trio.connect(1, None);
        trio.send(1, client, &create(1, "/a"));
        trio.pass(&[1, 2, 3], 100);
        assert_eq!(trio.answers(1, client), [(1, OK)]);
        trio.cuts.extend([(1, 3), (3, 1), (2, 3), (3, 2)]);
        trio.pass(&[1, 2, 3], 1500);
        assert!(trio.server(3).is_read_only());
        (trio, session.expect("a leader is known"))
    }
}

fn get(xid: i32, path: &str) -> Vec<u8> {
    frame(xid, Opcode::GetData, |body| encode::path_watch(body, path, true))
}

fn addauth(scheme: &str, auth: &[u8]) -> Vec<u8> {
    frame(-4, Opcode::Auth, |body| encode::auth(body, scheme, auth))
}

#[test]
fn a_server_without_leader_only_reads_after_a_while_if_it_is_told_to() {
    for read_only_mode in [false, true] {
        let mut trio = Trio::with(read_only_mode);
        trio.timeout_ms = 3000;
        let (content, session) = trio.connect_as(1, None, CONTENT);
        assert_eq!(session.and_then(|it| it.read_only), Some(false), "a leader is known");
        let (other, _) = trio.connect_as(1, None, Some(false));
        trio.cut_off_first();
        // It leads for an election timeout without hearing of anybody; then two of the longest go by.
        trio.pass(&[1], 600);
        assert!(!trio.server(1).is_read_only());
        assert_eq!(trio.server(1).status().role, Role::Looking);
        assert_eq!(trio.why_closed(1, content), None);
        trio.pass(&[1], 1000);
        let role = if read_only_mode { Role::ReadOnly } else { Role::Looking };
        assert_eq!(trio.server(1).status().role, role);
        assert_eq!(trio.server(1).is_read_only(), read_only_mode);
        let why = read_only_mode.then_some(CloseReason::OnlyReads);
        assert_eq!(trio.why_closed(1, content), why);
        assert_eq!(trio.why_closed(1, other), None, "as without the mode");
        trio.pass(&[1], 1000);
        assert_eq!(trio.why_closed(1, other), Some(CloseReason::NoQuorum));
    }
}

#[test]
fn reads_are_answered_and_writes_refused_while_no_leader_is_known() {
    let (mut trio, _) = Trio::third_only_reads();
    let (client, session) = trio.connect_as(3, None, CONTENT);
    let session = session.expect("it is welcome");
    assert_eq!((session.read_only, session.session_id >> 56), (CONTENT, 0));
    let mut bytes = addauth("digest", b"user:password");
    bytes.extend(get(1, "/a"));
    bytes.extend(create(2, "/b"));
    bytes.extend(frame(3, Opcode::Sync, |body| encode::path(body, "/a")));
    bytes.extend(frame(4, Opcode::Multi, |_| ()));
    bytes.extend(frame(5, Opcode::Reconfig, |_| ()));
    bytes.extend(frame(6, Opcode::WhoAmI, |_| ()));
    bytes.extend(frame(7, Opcode::GetEphemerals, |body| encode::path(body, "/")));
    bytes.extend(frame(-2, Opcode::Ping, |_| ()));
    trio.send(3, client, &bytes);
    let refused = [2, 3, 4, 5].map(|xid| (xid, NOT_READ_ONLY));
    let answers = trio.answers(3, client);
    assert_eq!(answers[..2], [(-4, OK), (1, OK)]);
    assert_eq!(answers[2..6], refused);
    assert_eq!(answers[6..], [(6, OK), (7, OK), (-2, OK)]);
    trio.send(3, client, &frame(8, Opcode::CloseSession, |_| ()));
    assert_eq!(trio.answers(3, client), [(8, OK)]);
    assert_eq!(trio.why_closed(3, client), Some(CloseReason::SessionClosed));
}

#[test]
fn what_is_newest_is_not_read_from_a_server_that_cannot_know_it() {
    let (mut trio, _) = Trio::third_only_reads();
    let (client, _) = trio.connect_as(3, None, CONTENT);
    let mut bytes = addauth("consistency", b"linearizable");
    bytes.extend(get(1, "/a"));
    bytes.extend(addauth("consistency", b"sequential"));
    bytes.extend(get(2, "/a"));
    trio.send(3, client, &bytes);
    assert_eq!(trio.answers(3, client), [(-4, OK), (1, NOT_READ_ONLY), (-4, OK), (2, OK)]);
}

#[test]
fn who_has_not_said_that_reads_will_do_is_sent_away() {
    let (mut trio, _) = Trio::third_only_reads();
    for read_only in [None, Some(false)] {
        let (client, response) = trio.connect_as(3, None, read_only);
        assert!(response.is_none());
        assert_eq!(trio.why_closed(3, client), Some(CloseReason::OnlyReads));
    }
}

#[test]
fn read_only_clients_come_back_when_a_leader_is_found_and_leave_nothing_behind() {
    let (mut trio, _) = Trio::third_only_reads();
    let (client, remote) = trio.connect_as(3, None, CONTENT);
    trio.send(3, client, &get(1, "/a"));
    assert_eq!(trio.answers(3, client), [(1, OK)]);
    trio.cuts.clear();
    let before = trio.server(1).tree().session_count();
    while trio.server(3).status().leader.is_none() {
        assert_eq!(trio.why_closed(3, client), None);
        trio.pass(&[1, 2, 3], 10);
    }
    assert!(!trio.server(3).is_read_only());
    assert_eq!(trio.why_closed(3, client), Some(CloseReason::ReadsEnd));
    assert_eq!(trio.server(3).watches().count(), 0);
    trio.pass(&[1, 2, 3], 200);
    assert!(trio.server(1).tree().session_count() <= before);
    let (_, expired) = trio.connect_as(3, remote.as_ref(), CONTENT);
    assert_eq!(expired.map(|it| it.timeout_ms), Some(0), "nobody knows such a session");
    let (client, session) = trio.connect_as(3, None, CONTENT);
    assert_eq!(session.and_then(|it| it.read_only), Some(false));
    trio.send(3, client, &create(1, "/b"));
    trio.settle();
    assert_eq!(trio.answers(3, client), [(1, OK)]);
}

#[test]
fn a_session_is_known_again_or_expired_or_sent_elsewhere() {
    let (mut trio, session) = Trio::third_only_reads();
    let (real, response) = trio.connect_as(3, Some(&session), CONTENT);
    assert_eq!(response, Some(ConnectResponse { read_only: CONTENT, ..session }));
    trio.send(3, real, &frame(1, Opcode::CloseSession, |_| ()));
    assert_eq!(trio.answers(3, real), [(1, NOT_READ_ONLY)], "it cannot be closed here");
    let wrong = ConnectResponse { password: [9; 16], ..session };
    let unheard_of = ConnectResponse { session_id: session.session_id + 100, ..session };
    let (_, response) = trio.connect_as(3, Some(&wrong), CONTENT);
    assert_eq!(response.map(|it| it.timeout_ms), Some(0));
    let (client, response) = trio.connect_as(3, Some(&unheard_of), CONTENT);
    assert!(response.is_none(), "it may have been created where there is a majority");
    assert_eq!(trio.why_closed(3, client), Some(CloseReason::OnlyReads));
    // A session of this mode, here and from elsewhere.
    let (first, remote) = trio.connect_as(3, None, CONTENT);
    let remote = remote.unwrap();
    let (_, again) = trio.connect_as(3, Some(&remote), CONTENT);
    assert_eq!(again, Some(remote));
    assert_eq!(trio.why_closed(3, first), Some(CloseReason::SessionMoved));
    let foreign = ConnectResponse { session_id: remote.session_id ^ 1 << 48, ..remote };
    let (_, response) = trio.connect_as(3, Some(&foreign), CONTENT);
    assert_eq!(response.map(|it| it.timeout_ms), Some(0));
}

#[test]
fn silent_ones_go_and_those_with_a_session_look_for_a_leader_in_time() {
    let (mut trio, session) = Trio::third_only_reads();
    let (silent, _) = trio.connect_as(3, None, CONTENT);
    let (speaking, _) = trio.connect_as(3, None, CONTENT);
    let (real, response) = trio.connect_as(3, Some(&session), CONTENT);
    assert_eq!(response.map(|it| it.timeout_ms), Some(1000));
    let ping = frame(-2, Opcode::Ping, |_| ());
    for _ in 0..6 {
        trio.pass(&[3], 100);
        trio.send(3, speaking, &ping);
        trio.send(3, real, &ping);
    }
    assert_eq!(trio.why_closed(3, real), None);
    trio.pass(&[3], 100);
    assert_eq!(trio.why_closed(3, real), Some(CloseReason::NoQuorum), "two thirds of its timeout");
    trio.send(3, speaking, &ping);
    trio.pass(&[3], 400);
    assert_eq!(trio.why_closed(3, silent), Some(CloseReason::SessionExpired));
    assert_eq!(trio.why_closed(3, speaking), None);
}

#[test]
fn a_session_that_was_here_is_not_kept_from_a_leader_while_that_may_wait_for_it() {
    let mut trio = Trio::with(true);
    trio.timeout_ms = 3000;
    let (_, session) = trio.connect_as(1, None, CONTENT);
    let session = session.unwrap();
    trio.cut_off_first();
    // It leads until it notices that nobody answers, in the first half second, and closes what it has when
    // two thirds of the timeout have passed since then.
    trio.pass(&[1], 1500);
    let (first, response) = trio.connect_as(1, Some(&session), CONTENT);
    assert_eq!(response, Some(ConnectResponse { read_only: CONTENT, ..session }));
    trio.pass(&[1], 1100);
    assert_eq!(trio.why_closed(1, first), Some(CloseReason::NoQuorum));
    let (second, response) = trio.connect_as(1, Some(&session), CONTENT);
    assert!(response.is_none());
    assert_eq!(trio.why_closed(1, second), Some(CloseReason::NoQuorum));
    // When all of the timeout has passed, a leader has ended it, or there is none.
    trio.pass(&[1], 1000);
    let (_, response) = trio.connect_as(1, Some(&session), CONTENT);
    assert_eq!(response.map(|it| it.session_id), Some(session.session_id));
}

#[test]
fn a_session_lives_through_the_mode_with_its_ephemerals() {
    let mut trio = Trio::with(true);
    let (client, session) = trio.connect_as(3, None, CONTENT);
    let ephemeral = frame(1, Opcode::Create, |body| {
        encode::create(body, "/e", Some(b"x"), OPEN_ACL, 1, None);
    });
    trio.send(3, client, &ephemeral);
    trio.pass(&[1, 2, 3], 100);
    assert_eq!(trio.answers(3, client), [(1, OK)]);
    // Nobody hears of anybody: there is no leader, who could end the session.
    trio.cuts.extend([(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)]);
    let mut served = false;
    let mut current = client;
    for _ in 0..60 {
        trio.pass(&[1, 2, 3], 100);
        if trio.why_closed(3, current).is_some() {
            let (next, response) = trio.connect_as(3, session.as_ref(), CONTENT);
            served |= response.is_some_and(|it| it.read_only == CONTENT);
            current = next;
        } else {
            trio.send(3, current, &frame(-2, Opcode::Ping, |_| ()));
        }
    }
    assert!(served);
    trio.cuts.clear();
    for _ in 0..30 {
        trio.pass(&[1, 2, 3], 100);
        if trio.why_closed(3, current).is_some() {
            current = trio.connect_as(3, session.as_ref(), CONTENT).0;
        } else {
            trio.send(3, current, &frame(-2, Opcode::Ping, |_| ()));
        }
    }
    assert!(!trio.server(3).is_read_only());
    assert!(trio.server(3).tree().get("/e").is_some());
    trio.frames(3, current);
    trio.send(3, current, &frame(2, Opcode::GetEphemerals, |body| encode::path(body, "/")));
    assert_eq!(trio.answers(3, current), [(2, OK)]);
}

#[test]
fn a_server_that_has_nothing_yet_does_not_say_that_there_is_nothing() {
    let mut trio = Trio::with(true);
    trio.cut_off_first();
    trio.pass(&[1], 3000);
    assert!(!trio.server(1).is_read_only());
}

/// A follower that loses the connection to the leader does not wait for the election's timeout, which is
/// 200 ms at least.
#[test]
fn the_end_of_the_connection_to_the_leader_leads_to_an_election_at_once() {
    let mut trio = Trio::new();
    for (from, to) in [(1, 2), (2, 1), (1, 3), (3, 1)] {
        trio.cuts.insert((from, to));
    }
    // The leader was heard just now.
    let now = trio.now();
    for id in [2, 3] {
        trio.server(id).peer_connected(5 - id, now);
        trio.server(id).peer_lost(1, now);
    }
    trio.pass(&[2, 3], 80);
    let leaders: Vec<_> = [2, 3].into_iter().map(|id| trio.server(id).status().leader).collect();
    assert_eq!(leaders, [Some(2), Some(2)]);
    assert!(trio.server(2).is_in_quorum());
}

/// What a server has missed while it was away, or applies before a leader is known, is not told one by one;
/// how it ends is, or who was taken out meanwhile would be a stranger for ever.
#[test]
fn who_belongs_to_the_ensemble_is_told_when_a_term_begins() {
    let mut trio = Trio::new();
    let all = vec![1, 2, 3];
    assert_eq!(trio.members, [1, 2, 3].map(|id| (id, all.clone())).into());
    trio.members.clear();
    trio.cut_off_first();
    trio.pass(&[2, 3], 1000);
    assert!(trio.server(2).is_in_quorum() && trio.server(3).is_in_quorum());
    assert_eq!(trio.members, [2, 3].map(|id| (id, all.clone())).into());
}

/// A server with another disk is met while its being taken out is on its way to whoever knows the disks:
/// once it is welcome it is listened to.
#[test]
fn who_is_welcome_with_another_disk_is_heard() {
    let mut trio = Trio::new();
    let (client, _) = trio.connect(3, None);
    let now = trio.now();
    trio.server(1).peer_emptied(3, now);
    trio.send(3, client, &create(1, "/a"));
    trio.pass(&[1, 2, 3], 150);
    assert_eq!(trio.answers(3, client), []);
    let now = trio.now();
    trio.server(1).peer_connected(3, now);
    trio.pass(&[1, 2, 3], 150);
    assert_eq!(trio.answers(3, client), [(1, OK)]);
}

/// The disk of a follower is full: what it has grows old, and what its clients ask for does not get done. The
/// others serve them, until it has room again.
#[test]
fn a_follower_without_room_sends_its_clients_to_the_others() {
    let mut trio = Trio::new();
    let (writer, _) = trio.connect(1, None);
    let (client, session) = trio.connect(3, None);
    trio.stalled.insert(3);
    trio.send(1, writer, &create(1, "/a"));
    trio.settle();
    assert_ne!(std::mem::take(&mut trio.waiting[2]), 0, "it has something to store");
    let (now, first) = (trio.now(), 0);
    assert!(trio.server(3).append_refused(first, now));
    assert_eq!(trio.why_closed(3, client), Some(CloseReason::NoRoom));
    assert!(!trio.server(3).serves());
    let (client, greeting) = trio.connect(3, None);
    assert_eq!((greeting, trio.why_closed(3, client)), (None, Some(CloseReason::NoRoom)));
    let (_, moved) = trio.connect(2, session.as_ref());
    assert_eq!(moved.map(|it| it.session_id), session.map(|it| it.session_id));

    trio.stalled.clear();
    trio.pass(&[1, 2, 3], 600);
    assert!(trio.server(3).serves());
    let (client, greeting) = trio.connect(3, None);
    assert!(greeting.is_some());
    trio.send(3, client, &get(2, "/a"));
    trio.settle();
    assert_eq!(trio.answers(3, client), [(2, OK)]);
}

/// A session's return has been proposed, and takes longer than the session's timeout to be applied: its
/// client came in time, and can say nothing meanwhile.
#[test]
fn a_session_does_not_end_while_its_return_is_proposed() {
    let mut trio = Trio::new();
    let (old, session) = trio.connect(2, None);
    let session = session.unwrap();
    let now = trio.now();
    trio.server(2).disconnected(old, now);
    trio.pass(&[1, 2, 3], 800);
    trio.stalled.extend([1, 3]);
    let (new, moved) = trio.connect(3, Some(&session));
    assert_eq!(moved.map(|it| it.session_id), None, "it cannot be committed yet");
    trio.pass(&[1, 2, 3], 600);
    trio.stalled.clear();
    trio.pass(&[1, 2, 3], 100);
    let greeting = trio.frames(3, new);
    let greeting = greeting.first().and_then(|frame| ConnectResponse::decode(frame).ok());
    assert_eq!(greeting.map(|it| it.session_id), Some(session.session_id));
    assert_eq!(trio.server(1).session_count(), 1);
}

/// A server comes back, its clock is set back, and it has not applied yet what it has: it gives an id that it gave
/// before, to a client that is still there. The next one knows nothing of that, and gets a session.
#[test]
fn a_new_session_is_never_refused_for_an_id_that_another_one_has() {
    let mut trio = Trio::new();
    // The third one stores that its client's session is created, and does not hear that all have.
    trio.stalled.extend([1, 2]);
    assert_eq!(trio.connect(3, None).1.map(|it| it.session_id), None, "it cannot be committed yet");
    for server in [1, 2] {
        trio.cuts.insert((server, 3));
        let now = trio.now();
        trio.server(server).peer_lost(3, now);
    }
    let mut restore = Restore::new(Options::default(), &[1, 2, 3], 1);
    for (position, payload) in &trio.records[&3] {
        restore.record(*position, payload).expect("it was stored here");
    }
    let set_back = Now { wall_ms: 1_700_000_000_000, ..trio.now() };
    let recovered = restore.finish(3).expect("it was stored here").remove(0);
    trio.servers[2] = new_server(config(3), recovered, 9, set_back);
    let (client, greeting) = trio.connect(3, None);
    assert_eq!(greeting.map(|it| it.session_id), None, "it knows nobody who could create it");
    trio.stalled.clear();
    trio.pass(&[1, 2], 20);
    assert_eq!(trio.server(1).session_count(), 1);

    trio.cuts.clear();
    for server in [1, 2] {
        let now = trio.now();
        trio.server(server).peer_connected(3, now);
        trio.server(3).peer_connected(server, now);
    }
    trio.pass(&[1, 2, 3], 200);
    let greeting = trio.frames(3, client);
    let greeting = greeting.first().and_then(|frame| ConnectResponse::decode(frame).ok()).unwrap();
    assert!(
        trio.outcomes.iter().any(|(server, _, refused)| *server == 3 && *refused),
        "it asked for that id"
    );
    assert!(greeting.timeout_ms > 0, "{greeting:x?}");
    assert_eq!(trio.server(1).session_count(), 2);
    // The session is on this connection, as whoever leads knows it.
    trio.send(3, client, &create(1, "/a"));
    trio.pass(&[1, 2, 3], 50);
    assert_eq!(trio.answers(3, client), [(1, OK)]);
}

/// What each server has counted.
fn counted<T>(trio: &mut Trio, of: impl Fn(&Replica) -> T) -> [T; 3] {
    [1, 2, 3].map(|id| of(trio.server(id)))
}

#[test]
fn the_leader_counts_what_it_proposes_and_the_others_what_they_follow() {
    let mut trio = Trio::new();
    let (through_another, _) = trio.connect(2, None);
    let (at_leader, _) = trio.connect(1, None);
    trio.pass(&[1, 2, 3], 100);
    let sessions = counted(&mut trio, |server| server.stats().clone());
    trio.send(2, through_another, &create(1, "/a"));
    trio.send(1, at_leader, &create(1, "/a-name-that-is-longer"));
    trio.settle();
    trio.send(2, through_another, &create(2, "/a"));
    trio.pass(&[1, 2, 3], 100);
    assert_eq!(trio.answers(2, through_another), [(1, 0), (2, -110)]);
    let stats = counted(&mut trio, |server| server.stats().clone());
    let more = |of: fn(&stoa_core::Stats) -> u64| [0, 1, 2].map(|at| of(&stats[at]) - of(&sessions[at]));
    // Two updates, and a refusal, which is none.
    assert_eq!(more(|stats| stats.proposals.count), [2, 0, 0]);
    assert_eq!(more(|stats| stats.log_updates), [2, 0, 0]);
    assert_eq!(more(|stats| stats.led_updates), [2, 0, 0]);
    assert_eq!(more(|stats| stats.followed_updates), [0, 2, 2]);
    assert_eq!(more(|stats| stats.propagation.count()), [2, 2, 2]);
    assert!(more(|stats| stats.agreement.count())[0] > 0);
    assert_eq!(more(|stats| stats.agreement.count())[1..], [0, 0]);
    let bytes = stats[0].proposals.bytes;
    assert!(bytes.least > "/a".len() && bytes.least < bytes.largest, "{bytes:?}");
    assert_eq!(stats[1].proposals.bytes, stoa_core::Sizes::default());
}

#[test]
fn how_long_an_update_was_on_its_way_is_known_where_it_comes() {
    let mut trio = Trio::new();
    let (client, _) = trio.connect(1, None);
    trio.pass(&[1, 2, 3], 100);
    let before = counted(&mut trio, |server| server.stats().propagation.sum_us());
    let agreed = trio.server(1).stats().agreement.sum_us();
    trio.stalled.extend([2, 3]);
    trio.send(1, client, &create(1, "/a"));
    trio.pass(&[1, 2, 3], 50);
    trio.stalled.clear();
    trio.pass(&[1, 2, 3], 100);
    let after = counted(&mut trio, |server| server.stats().propagation.sum_us());
    for at in 0..3 {
        assert!(after[at] - before[at] >= 50_000, "{after:?}, before {before:?}");
    }
    assert!(trio.server(1).stats().agreement.sum_us() - agreed >= 50_000);
}

#[test]
fn a_sync_is_pending_at_the_leader_until_a_majority_has_answered() {
    let mut trio = Trio::new();
    let (client, _) = trio.connect(2, None);
    assert_eq!(counted(&mut trio, Replica::pending_syncs), [0, 0, 0]);
    trio.cuts.extend([(1, 2), (1, 3)]);
    trio.send(2, client, &frame(1, Opcode::Sync, |body| encode::path(body, "/")));
    trio.settle();
    assert_eq!(counted(&mut trio, Replica::pending_syncs), [1, 0, 0], "the leader's alone is told");
    assert_eq!(trio.answers(2, client), []);
    trio.cuts.clear();
    trio.pass(&[1, 2, 3], 100);
    assert_eq!(trio.answers(2, client), [(1, 0)]);
    assert_eq!(counted(&mut trio, Replica::pending_syncs), [0, 0, 0]);
}

#[test]
fn sessions_that_come_back_are_counted_where_they_come_and_at_the_leader() {
    let mut trio = Trio::new();
    let (_, session) = trio.connect(2, None);
    let brought = |server: &Replica| (server.stats().sessions_brought, server.stats().sessions_asked_for);
    assert_eq!(counted(&mut trio, brought), [(0, 0); 3]);
    let (_, session) = trio.connect(3, session.as_ref());
    assert_eq!(counted(&mut trio, brought), [(0, 1), (0, 0), (1, 0)]);
    let (_, session) = trio.connect(1, session.as_ref());
    assert!(session.is_some());
    assert_eq!(counted(&mut trio, brought), [(1, 1), (0, 0), (1, 0)]);
}

#[test]
fn an_answer_for_who_has_gone_is_stale() {
    let mut trio = Trio::new();
    let (client, _) = trio.connect(2, None);
    trio.stalled.extend([1, 2, 3]);
    let mut bytes = create(1, "/a");
    bytes.extend(create(2, "/a"));
    trio.send(2, client, &bytes);
    trio.settle();
    let now = trio.now();
    trio.server(2).disconnected(client, now);
    trio.stalled.clear();
    trio.pass(&[1, 2, 3], 100);
    // One was applied, the other refused.
    assert_eq!(counted(&mut trio, |server| server.stats().stale_replies), [0, 2, 0]);
}

#[test]
fn what_the_log_held_at_the_start_was_on_its_way_in_another_life() {
    let mut trio = Trio::new();
    let (client, _) = trio.connect(1, None);
    trio.send(1, client, &create(1, "/a"));
    trio.settle();
    let mut restore = Restore::new(Options::default(), &[1, 2, 3], 1);
    for (position, payload) in &trio.records[&2] {
        restore.record(*position, payload).expect("it was stored");
    }
    let recovered = restore.finish(2).expect("all of it was").remove(0);
    assert!(!recovered.restored.entries.is_empty(), "nobody knows that it is committed");
    // It comes back much later.
    trio.now_us += 3_600_000_000;
    let now = trio.now();
    *trio.server(2) = Shard::new(config(2), recovered, [9; 32], now).expect("it is sound");
    trio.pass(&[1, 2, 3], 200);
    assert!(trio.server(2).tree().get("/a").is_some());
    let stats = trio.server(2).stats();
    // The end of the session is new, and has come at once; what is older has not.
    assert_eq!((stats.propagation.count(), stats.followed_updates), (1, 2));
    assert!(stats.propagation.sum_us() < 1_000_000, "{}", stats.propagation.sum_us());
}
