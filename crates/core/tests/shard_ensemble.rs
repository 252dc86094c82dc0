//! Three servers with several partitions each: threads, messages and disks are as quick as can be, unless a test
//! holds something back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use stoa_core::{
    Config, ConnectionId, Items, Now, Outcome, PartitionMessage, PeerOutput, Placement, Recovered, Role,
    Shard, ShardMessage, Share, Slices, SnapshotOutput, StateLoader, digest_id,
};
use stoa_group::{EntryKind, Store};
use stoa_tree::Options;
use stoa_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, Opcode, PASSWORD_LEN, Reader, ReplyHeader, RequestHeader,
    SideHello, Stamped, ask_direct, direct_op, direct_xid, next_frame, put, request::encode, side_answer,
    xid,
};
use threads::{create, frame, request};

const SUPER: &str = "super:man";

struct Servers {
    ids: [u8; 3],
    /// By server and partition.
    shards: Vec<Vec<Shard>>,
    now_us: u64,
    /// Between these (from, to) nothing of this partition arrives.
    cuts: BTreeSet<(u8, u8, u8)>,
    /// These have ended.
    dead: BTreeSet<u8>,
    /// This thread of a server does not notice that time passes.
    timeless: Option<(u8, u8)>,
    /// On this server, what one thread says to another one is held back, but for what belongs to the log; and what
    /// that was.
    silent: Option<(u8, u8, u8)>,
    /// On this server the log delivers nothing to a partition.
    lags: Option<(u8, u8)>,
    kept: Vec<(u8, u8, u8, ShardMessage)>,
    /// The newest snapshot of each server, and the one that it is writing, with how many partitions have more of it.
    snapshots: BTreeMap<u8, Vec<Vec<u8>>>,
    writing: BTreeMap<u8, (u64, u8, Vec<Vec<u8>>)>,
    /// Who was told that there is another list of servers.
    told: Vec<(u8, u8)>,
}

impl Servers {
    /// The first server leads all partitions.
    fn new(partitions: u8) -> Self {
        Self::keeping(partitions, Config::default().kept_bytes)
    }

    /// The same, with so much kept of each timeline for servers that lag.
    fn keeping(partitions: u8, kept_bytes: u64) -> Self {
        Self::of([1, 2, 3], partitions, kept_bytes)
    }

    /// Servers with these ids, of which the first one leads.
    fn of(ids: [u8; 3], partitions: u8, kept_bytes: u64) -> Self {
        let line = |id: &u8| format!("server.{id}=host-{id}:1:2;3\n");
        let start = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let shard = |id: u8, partition: u8| {
            let config = Config {
                server_id: id,
                partition,
                partitions,
                heartbeat_ms: 20,
                kept_bytes,
                servers: ids.iter().map(line).collect(),
                reconfig_enabled: true,
                authentication: stoa_core::Authentication {
                    super_digest: Some(digest_id(SUPER)),
                    ..Default::default()
                },
                ..Config::default()
            };
            let tree = Share { partition, partitions }.empty_tree(Options::default());
            Shard::new(config, Recovered::new(tree, &ids), [id.wrapping_mul(16) + partition; 32], start)
                .unwrap()
        };
        let server = |id| (0..partitions).map(|partition| shard(id, partition)).collect();
        let mut servers = Self {
            ids,
            shards: ids.into_iter().map(server).collect(),
            now_us: start.mono_us,
            cuts: BTreeSet::new(),
            dead: BTreeSet::new(),
            timeless: None,
            silent: None,
            lags: None,
            kept: Vec::new(),
            snapshots: BTreeMap::new(),
            writing: BTreeMap::new(),
            told: Vec::new(),
        };
        let pairs = ids.into_iter().flat_map(|id| ids.map(|peer| (id, peer)));
        for (id, peer) in pairs.filter(|(id, peer)| id != peer) {
            for partition in 0..partitions {
                servers.shard(id, partition).peer_connected(peer, start);
            }
        }
        servers.pass_for(&ids[..1], 1000);
        servers.pass(200);
        assert_eq!(servers.leader_of_all(), Some(ids[0]));
        servers
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    fn at(&self, id: u8) -> usize {
        self.ids.iter().position(|other| *other == id).unwrap()
    }

    fn server(&mut self, id: u8) -> &mut [Shard] {
        let at = self.at(id);
        &mut self.shards[at]
    }

    fn shard(&mut self, id: u8, partition: u8) -> &mut Shard {
        &mut self.server(id)[usize::from(partition)]
    }

    fn all(&self) -> Vec<(u8, u8)> {
        let partitions = self.shards[0].len() as u8;
        let ids = self.ids.into_iter().filter(|id| !self.dead.contains(id));
        ids.flat_map(|id| (0..partitions).map(move |partition| (id, partition))).collect()
    }

    fn pass(&mut self, ms: u64) {
        self.pass_for(&self.ids.clone(), ms);
    }

    /// Lets time go by for these.
    fn pass_for(&mut self, ids: &[u8], ms: u64) {
        for _ in 0..ms / 10 {
            self.now_us += 10_000;
            let now = self.now();
            let timeless = self.timeless;
            let passes = |thread: &(u8, u8)| ids.contains(&thread.0) && timeless != Some(*thread);
            for (id, partition) in self.all().into_iter().filter(passes) {
                self.shard(id, partition).tick(now);
            }
            self.settle();
        }
    }

    fn settle(&mut self) {
        while self.all().into_iter().fold(false, |moved, (id, partition)| self.poll(id, partition) || moved) {
        }
    }

    /// Takes out what a thread has for others, and stores what it has to store.
    fn poll(&mut self, id: u8, partition: u8) -> bool {
        let now = self.now();
        let mut moved = false;
        self.shard(id, partition).settle(now);
        while let Some(append) = self.shard(id, partition).poll_append() {
            check_places(&Store::decode(append.payload.join()).unwrap());
            self.shard(id, partition).appended(append.position, now);
            moved = true;
        }
        while let Some(output) = self.shard(id, partition).poll_peer() {
            match output {
                PeerOutput::Send { to, message }
                    if !self.cuts.contains(&(id, to, partition)) && !self.dead.contains(&to) =>
                {
                    let server = self.shard(to, partition);
                    server.peer_message(id, message.encode().join(), now).unwrap();
                    moved = true;
                }
                PeerOutput::Snapshot { to, message, .. } => {
                    self.send_snapshot((id, to), message);
                    moved = true;
                }
                PeerOutput::Servers => self.told.push((id, partition)),
                _ => {}
            }
        }
        self.take_snapshot(id, partition);
        self.shard(id, partition).settle(now);
        while let Some((to, message)) = self.shard(id, partition).poll_message() {
            let is_kept = match message {
                ShardMessage::Timeline(PartitionMessage::Deliver(_)) | ShardMessage::StateReplaced { .. } => {
                    self.lags == Some((id, to))
                }
                ShardMessage::Timeline(_) => false,
                _ => self.silent == Some((id, partition, to)),
            };
            if is_kept {
                self.kept.push((id, partition, to, message));
                continue;
            }
            self.shard(id, to).hear(partition, message, now);
            moved = true;
        }
        moved
    }

    /// What was held back arrives.
    fn speak(&mut self) {
        let now = self.now();
        (self.silent, self.lags) = (None, None);
        for (id, from, to, message) in std::mem::take(&mut self.kept) {
            self.shard(id, to).hear(from, message, now);
        }
        self.settle();
    }

    /// Writes what a partition has of a snapshot.
    fn take_snapshot(&mut self, id: u8, partition: u8) {
        while let Some(piece) = self.shard(id, partition).poll_snapshot() {
            match piece {
                SnapshotOutput::Begin { number, partitions, head, .. } => {
                    self.writing.insert(id, (number, partitions, vec![head]));
                }
                SnapshotOutput::Slice { number, bytes } => {
                    let (writing, _, chunks) = self.writing.get_mut(&id).unwrap();
                    if *writing == number {
                        chunks.push(bytes);
                    }
                    self.shard(id, partition).snapshot_taken();
                }
                SnapshotOutput::End { number } => {
                    let (writing, missing, chunks) = self.writing.get_mut(&id).unwrap();
                    *missing -= u8::from(*writing == number);
                    if *missing == 0 {
                        let chunks = std::mem::take(chunks);
                        self.snapshots.insert(id, chunks);
                        for shard in self.server(id) {
                            shard.snapshot_finished(number, true);
                        }
                    }
                }
                SnapshotOutput::Abort { number } => {
                    for shard in self.server(id) {
                        shard.snapshot_finished(number, false);
                    }
                }
            }
        }
    }

    fn send_snapshot(&mut self, (from, to): (u8, u8), message: Vec<u8>) {
        let now = self.now();
        let arrives = !self.cuts.contains(&(from, to, 0)) && !self.dead.contains(&to);
        if arrives {
            let mut loader = StateLoader::new(&Options::default(), self.shards[0].len() as u8);
            for chunk in &self.snapshots[&from][1..] {
                loader.chunk(chunk).unwrap();
            }
            let (message, states) = (message.into(), loader.finish().unwrap());
            let server = self.shard(to, 0);
            server.take_over(from, message, states, now).unwrap();
            // Until that is stored its state is another one than its place in the log says.
            server.request_snapshot();
            assert_eq!(server.poll_snapshot(), None);
        }
        self.shard(from, 0).snapshot_sent(to, arrives.then_some(1), now);
    }

    fn cut(&mut self, one: u8, other: u8, partition: u8) {
        self.cuts.extend([(one, other, partition), (other, one, partition)]);
    }

    fn end(&mut self, id: u8) {
        self.dead.insert(id);
        let now = self.now();
        for (other, partition) in self.all() {
            self.shard(other, partition).peer_lost(id, now);
        }
    }

    /// Who leads all partitions and prepares requests there.
    fn leader_of_all(&self) -> Option<u8> {
        let leads = |shard: &Shard| shard.status().role == Role::Leader;
        let mut ids = self.ids.into_iter().filter(|id| !self.dead.contains(id));
        ids.find(|id| self.shards[self.at(*id)].iter().all(leads))
    }

    fn last(&mut self, id: u8, partition: u8) -> u64 {
        self.shard(id, partition).status().last
    }

    /// How far a server lags behind the first one in each partition.
    fn lag(&self, id: u8) -> Vec<u64> {
        let applied = |id: u8| self.shards[self.at(id)].iter().map(|shard| shard.applied());
        applied(1).zip(applied(id)).map(|(leader, applied)| leader - applied).collect()
    }

    fn send(&mut self, (id, thread, connection): Client, bytes: &[u8]) {
        let now = self.now();
        assert_eq!(self.shard(id, thread).receive(connection, bytes, now), bytes.len());
        self.settle();
    }

    fn connect(&mut self, id: u8, thread: u8) -> Client {
        self.connect_session(id, thread, (0, [0; PASSWORD_LEN])).0
    }

    /// A connection that asks for a session.
    fn come(&mut self, id: u8, thread: u8, session: Session) -> Client {
        let now = self.now();
        let peer: SocketAddr = ([10, 0, 0, 1], 4000).into();
        let client = (id, thread, self.shard(id, thread).connect(peer, now).unwrap());
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 30_000,
            session_id: session.0,
            password: &session.1,
            read_only: None,
        };
        self.send(client, &frame(|out| request.encode(out)));
        client
    }

    /// A connection of a session, or of a new one if it has no number yet.
    fn connect_session(&mut self, id: u8, thread: u8, session: Session) -> (Client, Session) {
        let client = self.come(id, thread, session);
        let bytes = self.take(client);
        let response = ConnectResponse::decode(&bytes[4..]).expect("it has a session");
        (client, (response.session_id, response.password))
    }

    /// A direct client: its main connection, to the thread of the first partition, and two side connections.
    fn connect_direct(&mut self, id: u8, sides: [u8; 2]) -> (Client, [Client; 2]) {
        let now = self.now();
        let peer: SocketAddr = ([10, 0, 0, 1], 4000).into();
        let main = (id, 0, self.shard(id, 0).connect(peer, now).unwrap());
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 30_000,
            session_id: 0,
            password: &[0; 16],
            read_only: Some(false),
        };
        let hello = frame(|out| {
            request.encode(out);
            ask_direct(out);
        });
        self.send(main, &hello);
        let bytes = self.take(main);
        let response = ConnectResponse::decode(&bytes[4..]).unwrap();
        let hello = SideHello { session_id: response.session_id, password: &response.password };
        let hello = frame(|out| hello.encode(out));
        let sides = sides.map(|partition| {
            let side = (id, partition, self.shard(id, partition).connect_side(peer, now).unwrap().unwrap());
            self.send(side, &hello);
            assert_eq!(side_answer(&self.take(side)[4..]), Ok(0));
            side
        });
        (main, sides)
    }

    fn take(&mut self, (id, thread, connection): Client) -> Vec<u8> {
        let now = self.now();
        let shard = self.shard(id, thread);
        let bytes = shard.output(connection).to_vec();
        shard.sent(connection, bytes.len(), now);
        bytes
    }

    /// The answers that have come: xid and error.
    fn answers(&mut self, client: Client) -> Vec<(i32, i32)> {
        let bytes = self.take(client);
        let (mut rest, mut answers) = (&bytes[..], Vec::new());
        while let Some((frame, tail)) = next_frame(rest, usize::MAX >> 1).unwrap() {
            let header = ReplyHeader::decode(&mut Reader::new(frame)).unwrap();
            answers.push((header.xid, header.err));
            rest = tail;
        }
        answers
    }
}

type Client = (u8, u8, ConnectionId);

/// Its number and its password.
type Session = (i64, [u8; PASSWORD_LEN]);

/// A part stands where its operation says that it does, and the others are in the same entry.
fn check_places(store: &Store) {
    let payloads = store.entries.iter().filter(|entry| entry.kind == EntryKind::Payload);
    for entry in payloads.filter(|entry| !entry.payload.is_empty()) {
        let slices: Vec<_> = Slices::new(entry.payload.clone()).map(Result::unwrap).collect();
        for (partition, _, payload) in &slices {
            let Some(Ok(item)) = Items::new(payload).next() else { continue };
            if let Outcome::Part(part) = item.outcome {
                assert!(part.places().any(|place| place.partition == *partition));
                for place in part.places() {
                    let is_it = |(of, at, _): &&(u8, u64, _)| (*of, *at) == (place.partition, place.position);
                    assert!(
                        slices.iter().any(|slice| is_it(&slice)) && place.term == entry.term,
                        "{place:?}"
                    );
                }
            }
        }
    }
}

fn exists(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Exists, |out| encode::path_watch(out, path, false))
}

/// Directories right below the root, one for each partition.
fn tops(partitions: u8) -> Vec<String> {
    let placement = Placement::new(partitions);
    let names = || (0..).map(|number| format!("/top-{number}"));
    (0..partitions).map(|of| names().find(|name| placement.of(name) == of).unwrap()).collect()
}

#[test]
fn one_server_leads_all_partitions_whoever_it_is() {
    let mut servers = Servers::new(3);
    let now = servers.now();
    servers.shard(1, 0).hand_over(3, now);
    servers.pass(500);
    assert_eq!(servers.leader_of_all(), Some(3));
    servers.cut(3, 1, 0);
    servers.cut(3, 2, 0);
    servers.pass(2000);
    let leader = servers.leader_of_all().expect("one server leads all partitions");
    assert_ne!(leader, 3);
}

/// Nobody is called 0 in the group, and in the entries of each partition. A server may be.
#[test]
fn the_first_and_the_last_ids_are_as_good_as_any() {
    for ids in [[0, 1, 2], [1, 0, 255]] {
        let mut servers = Servers::of(ids, 4, Config::default().kept_bytes);
        let mut sessions = BTreeSet::new();
        for id in ids {
            // Writes go to all partitions of the leader, and one to several of them.
            let (client, session) = servers.connect_session(id, 2, (0, [0; PASSWORD_LEN]));
            assert!((session.0 >> 56) as u8 == id && sessions.insert(session.0), "{:#x} at {id}", session.0);
            let names = tops(4).into_iter().map(|top| format!("{top}-{id}"));
            let creates: Vec<u8> = (1..).zip(names).flat_map(|(xid, name)| create(xid, &name)).collect();
            servers.send(client, &creates);
            servers.pass(100);
            assert_eq!(servers.answers(client), [1, 2, 3, 4].map(|xid| (xid, 0)), "at {id} of {ids:?}");
        }
        let now = servers.now();
        servers.shard(ids[0], 0).hand_over(ids[1], now);
        servers.pass(500);
        assert_eq!(servers.leader_of_all(), Some(ids[1]));
        servers.end(ids[0]);
        servers.pass(200);
        let client = servers.connect(ids[2], 1);
        servers.send(client, &create(1, "/without"));
        servers.pass(100);
        assert_eq!(servers.answers(client), [(1, 0)]);
    }
}

/// A list with the id that marks TTL znodes is none where there are such.
#[test]
fn server_0_joins_and_255_does_not_where_there_are_ttl_znodes() {
    let mut servers = Servers::new(2);
    let client = servers.connect(1, 0);
    servers
        .send(client, &request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "digest", SUPER.as_bytes())));
    for (id, expected) in [(255, ErrorCode::BadArguments), (0, ErrorCode::Ok)] {
        let join = request(id, Opcode::Reconfig, |out| {
            put::opt_buffer(out, Some(format!("server.{id}=new:1:2;3").as_bytes()));
            put::opt_buffer(out, None);
            put::opt_buffer(out, None);
            out.extend_from_slice(&(-1i64).to_be_bytes());
        });
        servers.send(client, &join);
        servers.pass(100);
        assert_eq!(servers.answers(client).last(), Some(&(id, expected as i32)));
    }
}

#[test]
fn after_a_sync_nothing_comes_from_the_connection_before() {
    nothing_comes_after(|xid, top| request(xid, Opcode::Sync, |out| encode::path(out, top)));
}

#[test]
fn after_a_linearizable_read_nothing_comes_from_the_connection_before() {
    nothing_comes_after(|xid, top| {
        let consistency = |out: &mut Vec<u8>| encode::auth(out, "consistency", b"linearizable");
        let mut both = request(xid::AUTH, Opcode::Auth, consistency);
        both.extend(exists(xid, top));
        both
    });
}

/// What a session has sent on a connection that it has left is not carried out after this on the next one, whoever
/// leads the partition by then.
fn nothing_comes_after(question: impl Fn(i32, &str) -> Vec<u8>) {
    let mut servers = Servers::new(2);
    let top = &tops(2)[1];
    let founder = servers.connect(1, 0);
    servers.send(founder, &create(1, top));
    servers.pass(100);
    let (old, session) = servers.connect_session(3, 1, (0, [0; PASSWORD_LEN]));
    // A write is on its way to the second partition of the leader, which does not hear where the session is.
    servers.cut(3, 1, 1);
    servers.send(old, &threads::set(1, top, b"late"));
    servers.silent = Some((1, 0, 1));
    let new = servers.come(2, 1, session);
    servers.cuts.clear();
    servers.pass(200);
    servers.speak();
    servers.pass(200);
    let response = servers.take(new);
    assert_eq!(ConnectResponse::decode(&response[4..]).unwrap().session_id, session.0);
    servers.send(new, &question(1, top));
    servers.pass(20);
    assert_eq!(servers.answers(new).last(), Some(&(1, 0)));
    let is_there = |servers: &mut Servers, xid| {
        servers.send(new, &threads::get(xid, top, false));
        let bytes = servers.take(new);
        assert_ne!(bytes, Vec::<u8>::new(), "it is answered");
        bytes.windows(4).any(|bytes| bytes == b"late")
    };
    let before = is_there(&mut servers, 2);
    servers.pass(2000);
    assert_eq!(is_there(&mut servers, 3), before, "it is carried out after the answer");
}

/// A change of the list of servers is one for all partitions.
#[test]
fn a_server_that_leaves_leaves_all_partitions() {
    let mut servers = Servers::new(2);
    let client = servers.connect(1, 0);
    servers
        .send(client, &request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "digest", SUPER.as_bytes())));
    let leave = request(1, Opcode::Reconfig, |out| {
        put::opt_buffer(out, None);
        put::opt_buffer(out, Some(b"3"));
        put::opt_buffer(out, None);
        put::i64(out, -1);
    });
    servers.send(client, &leave);
    servers.pass(1500);
    assert_eq!(servers.answers(client), [(xid::AUTH, 0), (1, 0)]);
    assert_eq!(servers.leader_of_all(), Some(1));
    for (id, partition) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        let server = servers.shard(id, partition);
        assert_eq!(server.status().voters, [1, 2], "of partition {partition} at server {id}");
        assert!(server.changed_servers().is_some_and(|list| !list.contains("server.3")));
        assert!(servers.told.contains(&(id, partition)));
    }
}

/// A read waits behind a write when its client first asks for linearizable reads, and a write behind it is under way.
#[test]
fn a_read_that_is_overtaken_is_answered_as_what_it_was_when_it_came() {
    let mut servers = Servers::new(2);
    let top = &tops(2)[1];
    let founder = servers.connect(1, 0);
    servers.send(founder, &create(1, top));
    servers.pass(100);
    let client = servers.connect(2, 1);
    let consistency = |out: &mut Vec<u8>| encode::auth(out, "consistency", b"linearizable");
    let asked = [
        threads::set(1, top, b"one"),
        threads::get(2, top, false),
        threads::set(3, top, b"three"),
        request(xid::AUTH, Opcode::Auth, consistency),
    ];
    servers.send(client, &asked.concat());
    servers.pass(100);
    let (bytes, mut sizes) = (servers.take(client), BTreeMap::new());
    let mut rest = &bytes[..];
    while let Some((frame, tail)) = next_frame(rest, usize::MAX >> 1).unwrap() {
        sizes.insert(
            ReplyHeader::decode(&mut Reader::new(frame)).unwrap().xid,
            frame.len() - ReplyHeader::LEN,
        );
        rest = tail;
    }
    let (stat, data) = (68, 4 + "one".len());
    assert_eq!(sizes, [(xid::AUTH, 0), (1, stat), (2, data + stat), (3, stat)].into());
}

/// The end of a session is decided by a leader that nobody hears: the place in the first timeline where it was to be
/// told does not come for long.
#[test]
fn nothing_is_waited_for_that_was_decided_and_lost() {
    let mut servers = Servers::new(2);
    let [first, second] = &tops(2)[..] else { panic!("there are two partitions") };
    let other = servers.connect(1, 0);
    let client = servers.connect(2, 1);
    servers.send(client, &create(1, second));
    // Sessions end at multiples of a tick of 3 s, and last for 30.
    servers.pass(32_950 - servers.now().mono_us / 1000);
    assert_eq!(servers.answers(client), [(1, 0)]);
    servers.cut(1, 2, 0);
    servers.cut(1, 3, 0);
    let before = servers.last(1, 0);
    for xid in 1..20 {
        servers.send(other, &create(xid, first));
    }
    servers.pass(60);
    let decided = servers.last(1, 0);
    assert!(decided - before >= 20, "those were prepared, and an end of sessions");
    servers.pass(3000);
    let leader = servers.leader_of_all().expect("one server leads all partitions");
    assert_ne!(leader, 1);
    servers.cuts.clear();
    servers.pass(500);
    let now = servers.now();
    servers.shard(leader, 0).hand_over(1, now);
    servers.pass(500);
    assert_eq!(servers.leader_of_all(), Some(1));
    servers.send(client, &threads::set(2, second, b"kept"));
    servers.pass(100);
    assert!(servers.last(1, 0) < decided, "the place has come");
    assert_eq!(servers.answers(client), [(2, 0)]);
}

/// The first sync of a connection is an entry of its partition's timeline, and the next one is not.
#[test]
fn the_answer_to_a_sync_is_its_path_alone() {
    let mut servers = Servers::new(2);
    let top = &tops(2)[1];
    let client = servers.connect(2, 1);
    servers.pass(100);
    for xid in [1, 2] {
        let asked = |out: &mut Vec<u8>| {
            encode::path(out, top);
            out.extend(b"more");
        };
        servers.send(client, &request(xid, Opcode::Sync, asked));
        servers.pass(100);
        let answer = servers.take(client);
        let mut path = Vec::new();
        encode::path(&mut path, top);
        assert!(answer.ends_with(&path), "sync {xid}: {answer:?}");
    }
}

#[test]
fn no_snapshot_begins_while_that_of_another_server_is_taken_over() {
    let mut servers = Servers::keeping(2, 1 << 10);
    let top = &tops(2)[1];
    let client = servers.connect(1, 0);
    servers.send(client, &create(1, top));
    servers.pass(100);
    servers.cut(1, 2, 0);
    servers.cut(2, 3, 0);
    for xid in 2..30 {
        servers.send(client, &threads::set(xid, top, &[7; 200]));
    }
    servers.pass(100);
    assert!(servers.lag(2)[1] > 0);
    servers.cuts.clear();
    servers.pass(500);
    // `send_snapshot` has looked.
    assert!(servers.snapshots.contains_key(&1));
    assert_eq!(servers.lag(2), [0, 0]);
}

#[test]
fn what_is_asked_of_followers_counts_at_the_leader() {
    let mut servers = Servers::new(2);
    let client = servers.connect(2, 0);
    let top = tops(2).remove(1);
    servers.send(client, &create(1, &top));
    servers.pass(1000);
    servers.take(client);
    let (read, write) = (exists(2, &top).repeat(500), threads::set(3, &top, b"").repeat(500));
    for _ in 0..20 {
        servers.send(client, &write);
        servers.send(client, &read);
        servers.send(client, &read);
        servers.pass(100);
        servers.take(client);
    }
    let load = servers.shard(1, 1).load().total;
    assert!((4000..6000).contains(&load.writes) && load.reads == 0, "each write once: {load:?}");
    let load = servers.shard(2, 1).load().total;
    assert!((8000..12_000).contains(&load.reads), "{load:?}");
    // The first partition's thread has the log of these writes to make.
    let imbalance = servers.shard(1, 0).imbalance_percent();
    assert!((170..200).contains(&imbalance), "{imbalance}");
    // Reads alone count too, as long as the server is there that answers them.
    for _ in 0..40 {
        servers.send(client, &read);
        servers.pass(100);
        servers.take(client);
    }
    assert_eq!(servers.shard(1, 1).load().total.writes, 0);
    assert_eq!(servers.shard(1, 0).imbalance_percent(), 200);
    servers.end(2);
    servers.pass(1500);
    assert_eq!(servers.shard(1, 0).imbalance_percent(), 0);
}

/// What a direct client was told: xids and errors, and the last token.
fn told(bytes: &[u8]) -> (Vec<(i32, i32)>, Vec<u8>) {
    let (mut rest, mut answers, mut token) = (bytes, Vec::new(), Vec::new());
    while let Some((frame, tail)) = next_frame(rest, usize::MAX >> 1).unwrap() {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader).unwrap();
        if header.xid == direct_xid::STAMP {
            token = Stamped::decode(&mut reader).unwrap().token.to_vec();
        } else {
            answers.push((header.xid, header.err));
        }
        rest = tail;
    }
    (answers, token)
}

#[test]
fn a_direct_client_waits_where_a_partition_lags_and_its_fast_reads_do_not() {
    let mut servers = Servers::new(3);
    let tops = tops(3);
    let writer = servers.connect(1, 0);
    let (_, [one, other]) = servers.connect_direct(2, [1, 2]);
    // What a partition tells a connection first would wait for the first partition, which waits for the second.
    for (side, top) in [(one, &tops[1]), (other, &tops[2])] {
        servers.send(side, &exists(0, top));
        assert_eq!(told(&servers.take(side)).0, [(0, ErrorCode::NoNode as i32)]);
    }
    // The second partition of the second server hears nothing from the first one for a while.
    servers.lags = Some((2, 1));
    for (number, top) in [(1, &tops[1]), (2, &tops[2])] {
        servers.send(writer, &create(number, top));
        servers.pass(20);
    }
    assert_eq!(servers.answers(writer), [(1, 0), (2, 0)]);
    // A client there sees what came later, and asks for what came before.
    servers.send(other, &exists(1, &tops[2]));
    let (answers, token) = told(&servers.take(other));
    assert_eq!(answers, [(1, 0)]);
    let none = ErrorCode::NoNode as i32;
    servers.send(one, &exists(1, &tops[1]));
    assert_eq!(told(&servers.take(one)).0, [(1, none)], "who does not say what he has seen does not wait");
    let seen = frame(|out| {
        RequestHeader { xid: 0, opcode: direct_op::SEEN }.encode(out);
        out.extend_from_slice(&token);
    });
    let fast = frame(|out| {
        RequestHeader { xid: 3, opcode: direct_op::FAST }.encode(out);
        out.extend((Opcode::Exists as i32).to_be_bytes());
        encode::path_watch(out, &tops[1], false);
    });
    let reach = frame(|out| {
        RequestHeader { xid: 0, opcode: direct_op::REACH }.encode(out);
        out.extend_from_slice(&token);
    });
    servers.send(one, &[seen, exists(2, &tops[1]), fast, reach].concat());
    assert_eq!(told(&servers.take(one)).0, [(3, none)], "a fast read is answered from what is there");
    servers.pass(200);
    assert_eq!(told(&servers.take(one)).0, []);
    servers.speak();
    servers.pass(200);
    assert_eq!(told(&servers.take(one)).0, [(2, 0), (direct_xid::REACHED, 0)]);
}
