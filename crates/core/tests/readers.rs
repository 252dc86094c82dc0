//! A server that stands alone, a reader below it and one below that: everything that they say to each other arrives at
//! once, and is stored at once.

use std::collections::BTreeMap;
use stoa_core::{
    Config, ConnectionId, Levels, Now, Output, ParentOutput, ParentTraits, ReaderOutput, Recovered, Role,
    ServerPart, Shard, SnapshotOutput, StateLoader,
};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, OPEN_ACL, Opcode, Reader, ReplyHeader, RequestHeader,
    begin_frame, end_frame, next_frame, request::encode,
};

/// The member, the reader, and the one below it.
const MEMBER: usize = 0;
const READER: usize = 1;
const BELOW: usize = 2;

struct Chain {
    servers: Vec<Shard>,
    now_us: u64,
    /// By connection: who is above, and who is below.
    ties: BTreeMap<u64, (usize, usize)>,
    last_tie: u64,
    /// The newest snapshot of each, by its position.
    snapshots: BTreeMap<usize, (u64, Vec<Vec<u8>>)>,
    writing: BTreeMap<usize, (u64, u64, Vec<Vec<u8>>)>,
    closed: Vec<(usize, ConnectionId)>,
}

impl Chain {
    fn new() -> Self {
        let now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let server = |id: u8| {
            let part = if id == 1 { ServerPart::Member } else { ServerPart::Reader };
            let (tick_ms, heartbeat_ms) = (100, 20);
            let config = Config { server_id: id, part, tick_ms, heartbeat_ms, ..Config::default() };
            let voters: &[u8] = if id == 1 { &[1] } else { &[] };
            let recovered = Recovered::new(Tree::new(Options::default()), voters);
            Shard::new(config, recovered, [id; 32], now).expect("what it has is sound")
        };
        let mut chain = Self {
            servers: [1, 254, 255].map(server).into(),
            now_us: now.mono_us,
            ties: BTreeMap::new(),
            last_tie: 0,
            snapshots: BTreeMap::new(),
            writing: BTreeMap::new(),
            closed: Vec::new(),
        };
        chain.pass(100);
        chain
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    /// One is below another one from now on.
    fn tie(&mut self, above: usize, below: usize) -> u64 {
        self.last_tie += 1;
        let (link, now) = (self.last_tie, self.now());
        self.ties.insert(link, (above, below));
        self.servers[above].reader_connected(ConnectionId::of_reader(link), Levels::OWN, now);
        let history = self.servers[above].history().expect("it has one").id;
        assert!(self.servers[below].parent_met(history, now));
        let traits = ParentTraits { takes_reads: true, is_of_site: false };
        self.servers[below].parent_connected(link, traits, now);
        self.pass(100);
        link
    }

    fn untie(&mut self, link: u64) {
        let now = self.now();
        if let Some((above, below)) = self.ties.remove(&link) {
            self.servers[above].reader_lost(ConnectionId::of_reader(link), now);
            self.servers[below].parent_lost(link, now);
        }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now_us += 10_000;
            let now = self.now();
            self.servers.iter_mut().for_each(|server| server.tick(now));
            self.settle();
        }
    }

    fn settle(&mut self) {
        while (0..self.servers.len()).any(|at| self.moves(at)) {}
    }

    /// Carries what a server has for others, and says whether there was anything.
    fn moves(&mut self, at: usize) -> bool {
        let now = self.now();
        let mut moved = false;
        while let Some((names, output)) = self.servers[at].poll_reader() {
            moved = true;
            let [name] = names[..] else { panic!("nobody has more than one reader") };
            let link = *self.ties.keys().find(|link| ConnectionId::of_reader(**link) == name).unwrap_or(&0);
            match (self.ties.get(&link).copied(), output) {
                (Some((_, below)), ReaderOutput::Say(down)) => {
                    let said = self.servers[below].parent_says(link, 0, down.encode().join(), now);
                    said.expect("a parent says nothing else");
                }
                (Some((_, below)), ReaderOutput::Snapshot { position, message }) => {
                    let (at_position, chunks) = &self.snapshots[&at];
                    assert_eq!(*at_position, position);
                    let mut loader = StateLoader::new(&Options::default(), 1);
                    chunks.iter().for_each(|chunk| loader.chunk(chunk).expect("it is a snapshot"));
                    let states = loader.finish().expect("it is whole");
                    self.servers[below].take_over(0, message, states, now).expect("it has its message");
                    // What is taken over can be sent on.
                    let taken = self.snapshots[&at].clone();
                    self.snapshots.insert(below, taken);
                    self.servers[at].reader_snapshot_sent(name, true, now);
                }
                (Some(_), ReaderOutput::Drop(_)) => self.untie(link),
                (None, _) => {}
            }
        }
        while let Some(output) = self.servers[at].poll_parent() {
            moved = true;
            match output {
                ParentOutput::Say(link, up) => {
                    let Some((above, _)) = self.ties.get(&link).copied() else { continue };
                    let name = ConnectionId::of_reader(link);
                    let said = self.servers[above].reader_says(name, up.encode().join(), now);
                    said.expect("a reader says nothing else");
                }
                ParentOutput::Leave(why) => panic!("it leaves its parent: {why}"),
            }
        }
        while self.servers[at].poll_peer().is_some() {}
        while let Some(output) = self.servers[at].poll_output() {
            if let Output::Close(id, _) = output {
                self.closed.push((at, id));
            }
        }
        moved |= self.takes_snapshot(at);
        while let Some(append) = self.servers[at].poll_append() {
            moved = true;
            self.servers[at].appended(append.position, now);
        }
        moved
    }

    fn takes_snapshot(&mut self, at: usize) -> bool {
        let Some(piece) = self.servers[at].poll_snapshot() else { return false };
        match piece {
            SnapshotOutput::Begin { number, position, .. } => {
                self.writing.insert(at, (number, position, Vec::new()));
            }
            SnapshotOutput::Slice { bytes, .. } => {
                self.writing.get_mut(&at).expect("it has begun").2.push(bytes);
                self.servers[at].snapshot_taken();
            }
            SnapshotOutput::End { number } => {
                let (_, position, chunks) = self.writing.remove(&at).expect("it has begun");
                self.snapshots.insert(at, (position, chunks));
                self.servers[at].snapshot_finished(number, true);
            }
            SnapshotOutput::Abort { number } => self.servers[at].snapshot_finished(number, false),
        }
        true
    }

    fn connect(&mut self, at: usize) -> (ConnectionId, ConnectResponse) {
        let now = self.now();
        let id = self.servers[at].connect(([127, 0, 0, 1], 1).into(), now).expect("there is room");
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
        self.servers[at].receive(id, &bytes, now);
        self.settle();
        let frames = self.frames(at, id);
        (id, ConnectResponse::decode(&frames[0]).expect("it is let in"))
    }

    fn frames(&mut self, at: usize, id: ConnectionId) -> Vec<Vec<u8>> {
        let (output, now) = (self.servers[at].output(id).to_vec(), self.now());
        self.servers[at].sent(id, output.len(), now);
        let (mut rest, mut frames) = (&output[..], Vec::new());
        while let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX) {
            frames.push(frame.to_vec());
            rest = tail;
        }
        frames
    }

    fn ask(
        &mut self,
        at: usize,
        id: ConnectionId,
        xid: i32,
        opcode: Opcode,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let (mut bytes, now) = (Vec::new(), self.now());
        let start = begin_frame(&mut bytes);
        RequestHeader { xid, opcode: opcode as i32 }.encode(&mut bytes);
        body(&mut bytes);
        end_frame(&mut bytes, start);
        self.servers[at].receive(id, &bytes, now);
        self.settle();
    }

    fn create(&mut self, at: usize, id: ConnectionId, xid: i32, path: &str) {
        self.ask(at, id, xid, Opcode::Create, |body| {
            encode::create(body, path, Some(b"x"), OPEN_ACL, 0, None);
        });
    }

    /// The xids and errors of the answers since the last look.
    fn answers(&mut self, at: usize, id: ConnectionId) -> Vec<(i32, i32)> {
        let frames = self.frames(at, id);
        let header = |frame: &Vec<u8>| ReplyHeader::decode(&mut Reader::new(frame)).expect("it is a reply");
        frames.iter().map(header).map(|header| (header.xid, header.err)).collect()
    }

    fn has(&self, at: usize, path: &str) -> bool {
        self.servers[at].tree().get(path).is_some()
    }
}

const OK: i32 = ErrorCode::Ok as i32;

#[test]
fn clients_write_and_read_through_a_chain_and_nobody_else_knows() {
    let mut chain = Chain::new();
    let (direct, _) = chain.connect(MEMBER);
    chain.create(MEMBER, direct, 1, "/before");
    chain.tie(MEMBER, READER);
    chain.tie(READER, BELOW);
    assert!(chain.has(BELOW, "/before"), "it was in a snapshot");
    assert_eq!(chain.servers[MEMBER].readers(), (1, 0));
    let below = chain.servers[BELOW].below().expect("it has a parent");
    assert_eq!((below.top, below.chain.len()), (1, 2));
    assert_eq!(chain.servers[BELOW].status().role, Role::Observer);
    assert_eq!(chain.servers[MEMBER].status().observers, []);

    let (one, session) = chain.connect(BELOW);
    let (other, _) = chain.connect(READER);
    let contact = chain.servers[MEMBER].tree().session_contact(session.session_id).expect("it is there");
    assert_eq!(contact.server, 1, "it is a client of the member's");
    chain.create(BELOW, one, 1, "/one");
    chain.create(READER, other, 1, "/other");
    chain.create(BELOW, one, 2, "/one");
    chain.create(MEMBER, direct, 2, "/direct");
    chain.ask(BELOW, one, 3, Opcode::Sync, |body| encode::path(body, "/"));
    assert_eq!(chain.answers(BELOW, one), [(1, OK), (2, ErrorCode::NodeExists as i32), (3, OK)]);
    assert_eq!(chain.answers(READER, other), [(1, OK)]);
    for at in [MEMBER, READER, BELOW] {
        assert!(["/one", "/other", "/direct"].iter().all(|path| chain.has(at, path)), "{at}");
    }
    let digests = chain.servers.iter().map(|server| server.tree().digest());
    assert!(digests.clone().all(|digest| Some(digest) == digests.clone().next()));
}

#[test]
fn who_waits_for_nothing_stays_when_another_one_becomes_the_parent() {
    let mut chain = Chain::new();
    let first = chain.tie(MEMBER, READER);
    let (idle, session) = chain.connect(READER);
    let (busy, _) = chain.connect(READER);
    chain.create(READER, idle, 1, "/idle");
    assert_eq!(chain.answers(READER, idle), [(1, OK)]);
    let before = chain.servers[MEMBER].tree().session_contact(session.session_id).expect("it is there");
    // Nothing comes back from the member any more, and then the connection ends.
    let ties = std::mem::take(&mut chain.ties);
    chain.create(READER, busy, 1, "/busy");
    chain.ties = ties;
    chain.untie(first);
    chain.settle();
    assert_eq!(chain.closed, [(READER, busy)], "what became of its request is not known");
    // It may read, and what it writes waits.
    chain.ask(READER, idle, 2, Opcode::GetData, |body| encode::path_watch(body, "/idle", false));
    chain.create(READER, idle, 3, "/idle/later");
    assert_eq!(chain.answers(READER, idle), [(2, OK)]);
    chain.tie(MEMBER, READER);
    assert_eq!(chain.answers(READER, idle), [(3, OK)]);
    let after = chain.servers[MEMBER].tree().session_contact(session.session_id).expect("it is there");
    assert_ne!(before, after, "it was brought there anew");
    assert!(chain.has(MEMBER, "/idle/later") && !chain.has(MEMBER, "/busy"));
}

#[test]
fn a_better_parent_is_gone_to_only_where_nobody_waits_and_nobody_is_below() {
    let mut chain = Chain::new();
    let link = chain.tie(MEMBER, READER);
    let (id, _) = chain.connect(READER);
    let leaves = |chain: &mut Chain, link| {
        let now = chain.now();
        chain.servers[READER].leaves_quietly(link, now)
    };
    assert_eq!(chain.servers[MEMBER].distance_below(), Some(1));
    assert_eq!(chain.servers[READER].distance_below(), Some(2));
    // Nothing comes back from the member for a while.
    let ties = std::mem::take(&mut chain.ties);
    chain.create(READER, id, 1, "/waits");
    chain.ties = ties;
    assert!(!leaves(&mut chain, link), "a request has no outcome");
    chain.untie(link);
    chain.settle();
    chain.closed.clear();
    let link = chain.tie(MEMBER, READER);
    let (id, _) = chain.connect(READER);
    let below = chain.tie(READER, BELOW);
    assert!(!leaves(&mut chain, link), "somebody is below");
    chain.untie(below);
    assert!(!leaves(&mut chain, link + 9), "it is another one");
    assert!(leaves(&mut chain, link));
    let left = chain.servers[READER].poll_parent();
    assert_eq!(left, Some(ParentOutput::Leave("another parent is better")));
    assert_eq!(chain.servers[READER].distance_below(), None);
    chain.untie(link);
    chain.create(READER, id, 1, "/after");
    chain.tie(MEMBER, READER);
    assert_eq!((chain.answers(READER, id), &chain.closed[..]), (vec![(1, OK)], &[][..]));
}

#[test]
fn a_session_that_only_a_reader_hears_of_lives_and_ends_when_nobody_does() {
    let mut chain = Chain::new();
    chain.tie(MEMBER, READER);
    chain.tie(READER, BELOW);
    let (id, session) = chain.connect(BELOW);
    for xid in 0..20 {
        chain.pass(1000);
        chain.ask(BELOW, id, xid, Opcode::Ping, |_| {});
    }
    let is_there = |chain: &Chain| chain.servers[MEMBER].tree().session(session.session_id).is_some();
    assert!(is_there(&chain), "it was heard of for 20 s, by way of two");
    chain.pass(8000);
    assert!(!is_there(&chain));
    assert_eq!(chain.closed, [(BELOW, id)]);
}
