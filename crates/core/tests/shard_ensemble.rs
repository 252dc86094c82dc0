//! Three servers with several partitions each: threads, messages and disks are as quick as can be, unless a test
//! holds something back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use stoa_core::{
    Config, ConnectionId, Items, Now, Outcome, PeerOutput, Placement, Recovered, Role, Shard, Share,
    SnapshotOutput, StateLoader, Word, digest_id,
};
use stoa_group::{EntryKind, Store};
use stoa_tree::Options;
use stoa_wire::{
    ConnectRequest, ConnectResponse, MultiHeader, Opcode, PASSWORD_LEN, Reader, ReplyHeader, RequestHeader,
    SideHello, Stamped, ask_direct, direct_op, direct_xid, next_frame, put, request::encode, side_answer,
    xid,
};
use threads::{create, frame, request};

const SERVERS: u8 = 3;
const SUPER: &str = "super:man";
const LIST: &str = "server.1=a:1:2;3\nserver.2=b:1:2;3\nserver.3=c:1:2;3\n";

struct Servers {
    /// By server and partition.
    shards: Vec<Vec<Shard>>,
    now_us: u64,
    /// Between these (from, to) nothing of this partition arrives.
    cuts: BTreeSet<(u8, u8, u8)>,
    /// These have ended.
    dead: BTreeSet<u8>,
    /// This thread of a server does not notice that time passes.
    timeless: Option<(u8, u8)>,
    /// On this server, what one thread says to another one is held back, and what it has said.
    silent: Option<(u8, u8, u8)>,
    kept: Vec<Word>,
    /// The newest snapshot of each server's partitions.
    snapshots: BTreeMap<(u8, u8), Vec<Vec<u8>>>,
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
        let start = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let shard = |id: u8, partition: u8| {
            let config = Config {
                server_id: id,
                partition,
                partitions,
                heartbeat_ms: 20,
                kept_bytes,
                servers: LIST.into(),
                reconfig_enabled: true,
                super_digest: Some(digest_id(SUPER)),
                ..Config::default()
            };
            let tree = Share { partition, partitions }.empty_tree(Options::default());
            Shard::new(config, Recovered::new(tree, &[1, 2, 3]), [id * 16 + partition; 32], start).unwrap()
        };
        let server = |id| (0..partitions).map(|partition| shard(id, partition)).collect();
        let mut servers = Self {
            shards: (1..=SERVERS).map(server).collect(),
            now_us: start.mono_us,
            cuts: BTreeSet::new(),
            dead: BTreeSet::new(),
            timeless: None,
            silent: None,
            kept: Vec::new(),
            snapshots: BTreeMap::new(),
            told: Vec::new(),
        };
        for (id, peer) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
            for partition in 0..partitions {
                servers.shard(id, partition).server_mut().peer_connected(peer, start);
            }
        }
        servers.pass_for(&[1], 1000);
        servers.pass(200);
        assert_eq!(servers.leader_of_all(), Some(1));
        servers
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    fn shard(&mut self, id: u8, partition: u8) -> &mut Shard {
        &mut self.shards[usize::from(id) - 1][usize::from(partition)]
    }

    fn all(&self) -> Vec<(u8, u8)> {
        let partitions = self.shards[0].len() as u8;
        let ids = (1..=SERVERS).filter(|id| !self.dead.contains(id));
        ids.flat_map(|id| (0..partitions).map(move |partition| (id, partition))).collect()
    }

    fn pass(&mut self, ms: u64) {
        self.pass_for(&[1, 2, 3], ms);
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
        while let Some(append) = self.shard(id, partition).server_mut().poll_append() {
            check_places(partition, &Store::decode(append.payload.join()).unwrap());
            self.shard(id, partition).server_mut().appended(append.position, now);
            moved = true;
        }
        while let Some(output) = self.shard(id, partition).server_mut().poll_peer() {
            match output {
                PeerOutput::Send { to, message }
                    if !self.cuts.contains(&(id, to, partition)) && !self.dead.contains(&to) =>
                {
                    let server = self.shard(to, partition).server_mut();
                    server.peer_message(id, message.join(), now).unwrap();
                    moved = true;
                }
                PeerOutput::Snapshot { to, message, .. } => {
                    self.send_snapshot((id, to), partition, message);
                    moved = true;
                }
                PeerOutput::Servers => self.told.push((id, partition)),
                _ => {}
            }
        }
        self.take_snapshot(id, partition);
        self.shard(id, partition).settle(now);
        while let Some((to, word)) = self.shard(id, partition).poll_word() {
            if self.silent == Some((id, partition, to)) {
                self.kept.push(word);
                continue;
            }
            self.shard(id, to).hear(partition, word, now);
            moved = true;
        }
        moved
    }

    /// What was held back arrives.
    fn speak(&mut self) {
        let now = self.now();
        let (id, from, to) = self.silent.take().unwrap();
        for word in std::mem::take(&mut self.kept) {
            self.shard(id, to).hear(from, word, now);
        }
        self.settle();
    }

    /// Writes the snapshot of a partition that is due.
    fn take_snapshot(&mut self, id: u8, partition: u8) {
        let server = self.shard(id, partition).server_mut();
        let mut chunks = Vec::new();
        while let Some(piece) = server.poll_snapshot() {
            match piece {
                SnapshotOutput::Begin { .. } => {}
                SnapshotOutput::Slice(chunk) => {
                    chunks.push(chunk);
                    server.snapshot_taken();
                }
                SnapshotOutput::End => server.snapshot_finished(true),
                SnapshotOutput::Abort => panic!("it is written at once"),
            }
        }
        if !chunks.is_empty() {
            self.snapshots.insert((id, partition), chunks);
        }
    }

    fn send_snapshot(&mut self, (from, to): (u8, u8), partition: u8, message: Vec<u8>) {
        let now = self.now();
        let arrives = !self.cuts.contains(&(from, to, partition)) && !self.dead.contains(&to);
        if arrives {
            let share = Share { partition, partitions: self.shards[0].len() as u8 };
            let mut loader = StateLoader::new(Options::default(), share);
            for chunk in &self.snapshots[&(from, partition)][1..] {
                loader.chunk(chunk).unwrap();
            }
            let (message, state) = (message.into(), loader.finish().unwrap());
            let server = self.shard(to, partition).server_mut();
            server.take_over(from, message, state, now).unwrap();
            // Until that is stored its state is another one than its place on the timeline says.
            server.request_snapshot();
            assert_eq!(server.poll_snapshot(), None);
        }
        self.shard(from, partition).server_mut().snapshot_sent(to, arrives, now);
    }

    fn cut(&mut self, one: u8, other: u8, partition: u8) {
        self.cuts.extend([(one, other, partition), (other, one, partition)]);
    }

    fn end(&mut self, id: u8) {
        self.dead.insert(id);
        let now = self.now();
        for (other, partition) in self.all() {
            self.shard(other, partition).server_mut().peer_lost(id, now);
        }
    }

    /// Who leads all partitions and prepares requests there.
    fn leader_of_all(&self) -> Option<u8> {
        let leads = |shard: &Shard| shard.server().standing().role == Role::Leader;
        let ids = (1..=SERVERS).filter(|id| !self.dead.contains(id));
        ids.into_iter().find(|id| self.shards[usize::from(*id) - 1].iter().all(leads))
    }

    fn last(&mut self, id: u8, partition: u8) -> u64 {
        self.shard(id, partition).server().standing().last
    }

    /// How far a server lags behind the first one in each partition.
    fn lag(&self, id: u8) -> Vec<u64> {
        let applied = |id: u8| self.shards[usize::from(id) - 1].iter().map(|shard| shard.server().applied());
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
            let side = (id, partition, self.shard(id, partition).connect_side(peer, now).unwrap());
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

/// A part stands where its operation says that it does.
fn check_places(partition: u8, store: &Store) {
    for entry in store.entries.iter().filter(|entry| entry.kind == EntryKind::Payload) {
        let Some(Ok(item)) = Items::new(&entry.payload).next() else { continue };
        if let Outcome::Part(part) = item.outcome {
            let place = part.places().find(|place| place.partition == partition).unwrap();
            assert_eq!((place.term, place.position), (entry.term, entry.position));
        }
    }
}

fn exists(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Exists, |out| encode::path_watch(out, path, false))
}

/// A write to all of these, on all of their partitions.
fn all_of(xid: i32, paths: &[String]) -> Vec<u8> {
    request(xid, Opcode::Multi, |out| {
        for path in paths {
            MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(out);
            encode::set_data(out, path, Some(b"all"), -1);
        }
        MultiHeader::END.encode(out);
    })
}

/// Directories right below the root, one for each partition.
fn tops(partitions: u8) -> Vec<String> {
    let placement = Placement::new(partitions);
    let names = || (0..).map(|number| format!("/top-{number}"));
    (0..partitions).map(|of| names().find(|name| placement.of(name) == of).unwrap()).collect()
}

#[test]
fn logs_of_different_partitions_are_longest_on_different_servers_after_a_crash() {
    let mut servers = Servers::new(3);
    let tops = tops(3);
    let client = servers.connect(1, 0);
    for (xid, top) in (1..).zip(&tops) {
        servers.send(client, &create(xid, top));
    }
    servers.pass(100);
    assert_eq!(servers.answers(client), [(1, 0), (2, 0), (3, 0)]);
    // The second partition reaches server 3 only, the third one server 2 only.
    servers.cut(1, 2, 1);
    servers.cut(1, 3, 2);
    for round in 0..5 {
        servers.send(client, &create(10 + round, &format!("{}/{round}", tops[1])));
        servers.send(client, &create(20 + round, &format!("{}/{round}", tops[2])));
    }
    assert_eq!(servers.answers(client).len(), 10, "a majority has each of them");
    assert!(servers.last(3, 1) > servers.last(2, 1) && servers.last(2, 2) > servers.last(3, 2));
    servers.end(1);
    servers.pass(2000);
    let leader = servers.leader_of_all().expect("one server leads all partitions");
    for id in [2, 3] {
        let client = servers.connect(id, 1);
        let paths = [1, 2].map(|of| format!("{}/4", tops[of]));
        servers.send(client, &exists(1, &paths[0]));
        servers.send(client, &exists(2, &paths[1]));
        servers.send(client, &create(3, &format!("{}/by-{id}", tops[1])));
        assert_eq!(servers.answers(client), [(1, 0), (2, 0), (3, 0)], "server {id}, led by {leader}");
    }
}

#[test]
fn a_partition_promises_no_place_while_its_members_change() {
    let mut servers = Servers::new(2);
    let tops = tops(2);
    let client = servers.connect(1, 0);
    for (xid, top) in (1..).zip(&tops) {
        servers.send(client, &create(xid, top));
    }
    servers.pass(100);
    assert_eq!(servers.answers(client), [(1, 0), (2, 0)]);
    let term = servers.shard(1, 1).server().standing().term;
    // Two servers lose their votes in the second partition, which takes two entries, and nobody hears of the
    // first one for now.
    servers.cut(1, 2, 1);
    servers.cut(1, 3, 1);
    let list = LIST.replace("2;3\nserver.3=c:1:2", "2:observer;3\nserver.3=c:1:2:observer") + "version=63";
    let now = servers.now();
    let word = Word::Servers { list: list.clone(), members: vec![1, 2, 3], lets_go: true };
    servers.told.clear();
    servers.shard(1, 1).hear(0, word, now);
    servers.pass(40);
    assert_eq!(servers.told, [(1, 1)]);
    assert_eq!(servers.shard(1, 1).server().servers(), Some(list.as_str()));
    servers.silent = Some((1, 1, 0));
    servers.send(client, &all_of(3, &tops));
    servers.cuts.clear();
    servers.pass(100);
    assert_eq!(servers.answers(client), []);
    servers.speak();
    servers.pass(100);
    assert_eq!(servers.answers(client), [(3, 0)]);
    let standing = servers.shard(1, 1).server().standing();
    assert_eq!((standing.term, standing.voters, standing.observers), (term, vec![1], vec![2, 3]));
}

#[test]
fn who_leads_a_partition_gives_way_to_who_leads_the_first_one() {
    let mut servers = Servers::new(3);
    let now = servers.now();
    servers.shard(1, 0).server_mut().hand_over(3, now);
    servers.pass(500);
    assert_eq!(servers.leader_of_all(), Some(3));
    // One that does not know that it has lost the first partition keeps nothing from who has it.
    servers.cut(3, 1, 0);
    servers.cut(3, 2, 0);
    servers.pass(2000);
    let leader = servers.leader_of_all().expect("one server leads all partitions");
    assert_ne!(leader, 3);
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
    // A write is on its way to the second partition.
    servers.cut(3, 1, 1);
    servers.cut(3, 2, 1);
    servers.send(old, &threads::set(1, top, b"late"));
    // On server 1 the second partition does not hear what the first one says: neither who leads that, nor where the
    // session is. Server 2 leads both now.
    servers.silent = Some((1, 0, 1));
    for partition in [0, 1] {
        let now = servers.now();
        servers.shard(1, partition).server_mut().hand_over(2, now);
        servers.pass(50);
    }
    assert_eq!(servers.leader_of_all(), Some(2));
    let (new, _) = servers.connect_session(2, 1, session);
    servers.send(new, &question(1, top));
    servers.pass(20);
    assert_eq!(servers.answers(new).last(), Some(&(1, 0)));
    // The second partition is led once more by who has missed all that.
    let now = servers.now();
    servers.shard(2, 1).server_mut().hand_over(1, now);
    servers.pass(50);
    assert_eq!(servers.shard(1, 1).server().standing().role, Role::Leader);
    servers.cuts.clear();
    servers.pass(200);
    let is_there = |servers: &mut Servers, xid| {
        servers.send(new, &threads::get(xid, top, false));
        let bytes = servers.take(new);
        assert_ne!(bytes, Vec::<u8>::new(), "it is answered");
        bytes.windows(4).any(|bytes| bytes == b"late")
    };
    assert!(!is_there(&mut servers, 2), "it is carried out after the answer");
    servers.speak();
    servers.pass(2000);
    assert_eq!(servers.leader_of_all(), Some(2));
    assert!(!is_there(&mut servers, 3), "it is carried out in the end");
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

/// A session comes to the server that leads the first partition, and only believes that it still leads the second one.
#[test]
fn who_has_been_shown_more_than_a_leader_of_before_knows_waits_for_it() {
    let mut servers = Servers::new(2);
    let top = &tops(2)[1];
    let writer = servers.connect(1, 1);
    servers.send(writer, &create(1, top));
    servers.pass(100);
    let (reader, session) = servers.connect_session(2, 0, (0, [0; PASSWORD_LEN]));
    // What the leader writes arrives, and it never learns so. The others elect another one for the partition.
    servers.cuts.extend([(2, 1, 1), (3, 1, 1)]);
    servers.timeless = Some((1, 1));
    servers.send(writer, &threads::set(2, top, b"newer"));
    servers.pass(3000);
    assert_eq!(servers.shard(1, 0).server().standing().role, Role::Leader);
    assert_eq!(servers.shard(1, 1).server().standing().role, Role::Leader, "or so it thinks");
    let newer_is_read = |servers: &mut Servers, client| {
        servers.send(client, &threads::get(9, top, false));
        servers.take(client).windows(5).any(|bytes| bytes == b"newer")
    };
    assert!(newer_is_read(&mut servers, reader));
    let back = servers.come(1, 0, session);
    assert_eq!(servers.take(back), [], "nobody here knows what it was shown");
    (servers.cuts, servers.timeless) = (BTreeSet::new(), None);
    servers.pass(1000);
    let response = servers.take(back);
    assert_eq!(ConnectResponse::decode(&response[4..]).unwrap().session_id, session.0);
    assert!(newer_is_read(&mut servers, back));
}

/// A session that has come elsewhere, as only the first partition's leader says, which is lost with it: what its
/// connection asks meanwhile is neither carried out nor refused.
#[test]
fn nobody_is_refused_because_of_what_may_be_lost() {
    let mut servers = Servers::new(2);
    let top = &tops(2)[1];
    let (client, session) = servers.connect_session(2, 1, (0, [0; PASSWORD_LEN]));
    servers.send(client, &create(1, top));
    servers.pass(100);
    assert_eq!(servers.answers(client), [(1, 0)]);
    servers.cut(1, 2, 0);
    servers.cut(1, 3, 0);
    let other = servers.come(1, 0, session);
    servers.send(client, &threads::set(2, top, b"kept"));
    assert_eq!(servers.answers(client), []);
    servers.pass(3000);
    assert_eq!(servers.answers(other), [], "it was lost");
    assert_eq!(servers.answers(client), [(2, 0)]);
    let leader = servers.leader_of_all().expect("one server leads all partitions");
    assert_ne!(leader, 1);
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
    servers.shard(leader, 0).server_mut().hand_over(1, now);
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
fn who_leads_and_waits_for_a_part_that_never_comes_passes_the_lead_on() {
    let mut servers = Servers::new(2);
    let tops = tops(2);
    let client = servers.connect(1, 0);
    for (xid, top) in (1..).zip(&tops) {
        servers.send(client, &create(xid, top));
    }
    // Server 2 hears nothing of the second partition, so it cannot know what becomes of the part on the first.
    servers.cut(1, 2, 1);
    servers.cut(3, 2, 1);
    servers.send(client, &all_of(3, &tops));
    servers.pass(100);
    assert_eq!(servers.answers(client), [(1, 0), (2, 0), (3, 0)]);
    let now = servers.now();
    servers.shard(1, 0).server_mut().hand_over(2, now);
    servers.pass(100);
    assert_eq!(servers.shard(2, 0).server().standing().leader, 2);
    assert_eq!(servers.leader_of_all(), None, "it leads what it cannot apply");
    servers.pass(3000);
    let leader = servers.leader_of_all().expect("one server leads all partitions");
    assert_ne!(leader, 2);
}

#[test]
fn who_takes_what_a_snapshot_has_taken_from_its_giver_waits_for_no_watches() {
    let mut servers = Servers::keeping(3, 1 << 10);
    let tops = tops(3);
    let placement = Placement::new(3);
    let stays = (0..).map(|number| format!("/stays-{number}")).find(|path| placement.of(path) == 1).unwrap();
    let client = servers.connect(1, 0);
    for (xid, path) in (1..).zip(tops.iter().chain([&stays])) {
        servers.send(client, &create(xid, path));
    }
    servers.pass(100);
    assert_eq!(servers.answers(client), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    // On server 2 the second partition does not hear what became of a part on the third one. What is moved away
    // from it stands behind that, and who takes it wants to know of the watches.
    servers.silent = Some((2, 2, 1));
    servers.send(client, &all_of(5, &tops[1..]));
    servers.shard(1, 0).server_mut().ask_move(&tops[1], 0).unwrap();
    servers.pass(100);
    assert_eq!(servers.shard(1, 0).server().placement().of(&tops[1]), 0);
    assert_eq!(servers.lag(2), [1, 2, 2]);
    // It is sent a snapshot with all of that.
    servers.cut(1, 2, 1);
    servers.cut(2, 3, 1);
    for xid in 6..30 {
        servers.send(client, &threads::set(xid, &stays, &[7; 200]));
    }
    servers.cuts.clear();
    servers.pass(500);
    assert_eq!(servers.lag(2), [0, 0, 2]);
    servers.speak();
    assert_eq!(servers.lag(2), [0, 0, 0]);
    let client = servers.connect(2, 2);
    servers.send(client, &exists(1, &tops[1]));
    assert_eq!(servers.answers(client), [(1, 0)]);
}

#[test]
fn no_snapshot_begins_while_that_of_another_server_is_taken_over() {
    let mut servers = Servers::keeping(2, 1 << 10);
    let top = &tops(2)[1];
    let client = servers.connect(1, 0);
    servers.send(client, &create(1, top));
    servers.pass(100);
    servers.cut(1, 2, 1);
    servers.cut(2, 3, 1);
    for xid in 2..30 {
        servers.send(client, &threads::set(xid, top, &[7; 200]));
    }
    servers.pass(100);
    assert!(servers.lag(2)[1] > 0);
    servers.cuts.clear();
    servers.pass(500);
    // `send_snapshot` has looked.
    assert!(servers.snapshots.contains_key(&(1, 1)));
    assert_eq!(servers.lag(2), [0, 0]);
}

#[test]
fn the_first_partition_takes_a_server_out_last() {
    let mut servers = Servers::new(2);
    let client = servers.connect(1, 0);
    servers
        .send(client, &request(xid::AUTH, Opcode::Auth, |out| encode::auth(out, "digest", SUPER.as_bytes())));
    // Nothing can be changed in the second partition for now.
    servers.cut(1, 2, 1);
    servers.cut(1, 3, 1);
    let leave = request(1, Opcode::Reconfig, |out| {
        put::opt_buffer(out, None);
        put::opt_buffer(out, Some(b"3"));
        put::opt_buffer(out, None);
        put::i64(out, -1);
    });
    servers.send(client, &leave);
    servers.pass(100);
    assert_eq!(servers.answers(client), [(xid::AUTH, 0), (1, 0)]);
    for (id, partition) in servers.all() {
        let standing = servers.shard(id, partition).server().standing();
        assert_eq!(standing.voters, [1, 2, 3], "of partition {partition} at server {id}");
        assert!(
            servers
                .shard(id, partition)
                .server()
                .changed_servers()
                .is_some_and(|it| !it.contains("server.3"))
        );
    }
    servers.cuts.clear();
    servers.pass(1500);
    assert_eq!(servers.leader_of_all(), Some(1));
    for partition in [0, 1] {
        assert_eq!(servers.shard(1, partition).server().standing().voters, [1, 2]);
    }
}

#[test]
fn the_others_keep_who_is_to_leave_as_long_as_the_first_partition_needs_it() {
    let mut servers = Servers::new(2);
    let list = LIST.replace("server.3=c:1:2;3\n", "version=63");
    for (lets_go, voters) in [(false, &[1, 2, 3][..]), (true, &[1, 2])] {
        let now = servers.now();
        let word = Word::Servers { list: list.clone(), members: vec![1, 2, 3], lets_go };
        servers.shard(1, 1).hear(0, word, now);
        servers.pass(200);
        assert_eq!(servers.shard(1, 1).server().standing().voters, voters);
    }
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
    let load = servers.shard(1, 1).server().load().total;
    assert!((4000..6000).contains(&load.writes) && load.reads == 0, "each write once: {load:?}");
    let load = servers.shard(2, 1).server().load().total;
    assert!((8000..12_000).contains(&load.reads), "{load:?}");
    assert_eq!(servers.shard(1, 0).server().imbalance_percent(), 200);
    // Reads alone count too, as long as the server is there that answers them.
    for _ in 0..40 {
        servers.send(client, &read);
        servers.pass(100);
        servers.take(client);
    }
    assert_eq!(servers.shard(1, 1).server().load().total.writes, 0);
    assert_eq!(servers.shard(1, 0).server().imbalance_percent(), 200);
    servers.end(2);
    servers.pass(1500);
    assert_eq!(servers.shard(1, 0).server().imbalance_percent(), 0);
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
        assert_eq!(told(&servers.take(side)).0, [(0, stoa_wire::ErrorCode::NoNode as i32)]);
    }
    // The second partition of the second server hears nothing for a while.
    servers.cut(1, 2, 1);
    servers.cut(2, 3, 1);
    for (number, top) in [(1, &tops[1]), (2, &tops[2])] {
        servers.send(writer, &create(number, top));
        servers.pass(20);
    }
    assert_eq!(servers.answers(writer), [(1, 0), (2, 0)]);
    // A client there sees what came later, and asks for what came before.
    servers.send(other, &exists(1, &tops[2]));
    let (answers, token) = told(&servers.take(other));
    assert_eq!(answers, [(1, 0)]);
    let none = stoa_wire::ErrorCode::NoNode as i32;
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
    servers.cuts.clear();
    servers.pass(200);
    assert_eq!(told(&servers.take(one)).0, [(2, 0), (direct_xid::REACHED, 0)]);
}
