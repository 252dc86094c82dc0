//! Three servers whose messages, disks and processes are troubled at random, and clients that increment a counter
//! by a program and set off reactions. `PROGRAM_SEEDS=1000 cargo test -p stoa-core --test programs random`

use crate::COUNTER;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stoa_core::{Config, ConnectionId, Now, Output, PeerOutput, Pieces, Recovered, Restore, Shard};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, ConnectResponse, OPEN_ACL, Opcode, Reader, ReplyHeader, RequestHeader, begin_frame,
    end_frame, next_frame, request::encode,
};

const SERVERS: u8 = 3;
const CLIENTS: usize = 5;
const STEPS: usize = 3000;

/// One znode in /log for each that is made in /seen.
const WITNESS: &str = r#"
    on_event("created", "/seen/*");
    fn created(event) { local.create_sequential("/log/n-", event.name); }
"#;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, below: usize) -> usize {
        (self.next() % below as u64) as usize
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Increment,
    Other,
}

#[derive(Default)]
struct Client {
    at: Option<(u8, ConnectionId)>,
    session: Option<ConnectResponse>,
    has_session: bool,
    acknowledges: bool,
    asked: VecDeque<(i32, Asked)>,
    xid: i32,
    /// The largest value that it was answered.
    largest: i64,
}

struct Storm {
    random: Random,
    servers: BTreeMap<u8, Shard>,
    now_us: u64,
    links: BTreeMap<(u8, u8), VecDeque<Pieces>>,
    cuts: BTreeSet<(u8, u8)>,
    /// What each disk has, and what is on its way there.
    stored: BTreeMap<u8, Vec<(u64, Vec<u8>)>>,
    storing: BTreeMap<u8, Vec<(u64, Vec<u8>)>>,
    clients: Vec<Client>,
    answered: BTreeSet<i64>,
    /// Increments that were sent and never answered.
    unknown: usize,
    calm: bool,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut storm = Self {
            random: Random(seed),
            servers: BTreeMap::new(),
            now_us: 1_000_000,
            links: BTreeMap::new(),
            cuts: BTreeSet::new(),
            stored: BTreeMap::new(),
            storing: BTreeMap::new(),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            answered: BTreeSet::new(),
            unknown: 0,
            calm: true,
        };
        (1..=SERVERS).for_each(|id| storm.start(id));
        storm
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    fn start(&mut self, id: u8) {
        let voters: Vec<u8> = (1..=SERVERS).collect();
        let config = Config {
            server_id: id,
            tick_ms: 100,
            session_timeout_min_ms: 500,
            heartbeat_ms: 20,
            ..Config::default()
        };
        let recovered = match self.stored.get(&id) {
            None => Recovered::new(Tree::new(Options::default()), &voters),
            Some(records) => {
                let mut restore = Restore::new(Options::default(), &voters, 1);
                records.iter().for_each(|(position, record)| restore.record(*position, record).unwrap());
                restore.finish(id).unwrap().remove(0)
            }
        };
        // Another run has another secret.
        let secret = [id ^ (self.random.below(200) as u8); 32];
        let server = Shard::new(config, recovered, secret, self.now()).unwrap();
        self.servers.insert(id, server);
        let now = self.now();
        let others: Vec<u8> = self.servers.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            self.servers.get_mut(&id).unwrap().peer_connected(other, now);
            self.servers.get_mut(&other).unwrap().peer_connected(id, now);
        }
    }

    /// The process ends; what was not stored is lost.
    fn crash(&mut self, id: u8) {
        self.servers.remove(&id);
        self.storing.remove(&id);
        self.links.retain(|(from, to), _| *from != id && *to != id);
        for who in 0..CLIENTS {
            if self.clients[who].at.is_some_and(|(server, _)| server == id) {
                self.lose(who);
            }
        }
        let now = self.now();
        self.servers.values_mut().for_each(|server| server.peer_lost(id, now));
    }

    /// The connection ends, and with it goes what is not answered.
    fn lose(&mut self, who: usize) {
        let client = &mut self.clients[who];
        client.at = None;
        // Whether its acknowledgement has taken place is not known: it gives another one.
        client.acknowledges = false;
        let lost = client.asked.drain(..).filter(|(_, asked)| *asked == Asked::Increment).count();
        self.unknown += lost;
    }

    fn step(&mut self) {
        self.now_us += 1 + self.random.below(4000) as u64;
        let now = self.now();
        let id = 1 + self.random.below(usize::from(SERVERS)) as u8;
        match self.random.below(8) {
            0 => drop(self.servers.get_mut(&id).map(|server| server.tick(now))),
            1..=3 => self.deliver(),
            4 => self.store(id),
            _ => self.work(),
        }
        if !self.calm {
            self.trouble(id);
        }
        self.collect();
        self.check();
    }

    fn trouble(&mut self, id: u8) {
        if self.random.one_in(150) {
            let other = 1 + self.random.below(usize::from(SERVERS)) as u8;
            self.cuts.insert((id, other));
        }
        if self.random.one_in(60) {
            self.cuts.clear();
        }
        if self.random.one_in(100) && self.servers.len() == usize::from(SERVERS) && self.is_last(id) {
            self.crash(id);
        }
        if self.random.one_in(100) {
            self.revive();
        }
        if self.random.one_in(120) {
            let who = self.random.below(CLIENTS);
            if let Some((server, connection)) = self.clients[who].at {
                let now = self.now();
                self.servers.get_mut(&server).unwrap().disconnected(connection, now);
                self.lose(who);
            }
        }
    }

    /// Whether the others have all that a server has: it begins again without the entries that it has applied, so
    /// whoever lacked one would need a snapshot, of which there are none here.
    fn is_last(&self, id: u8) -> bool {
        let applied = self.servers[&id].applied();
        self.servers.values().all(|other| other.applied() >= applied)
    }

    fn revive(&mut self) {
        let dead: Vec<u8> = (1..=SERVERS).filter(|id| !self.servers.contains_key(id)).collect();
        dead.into_iter().for_each(|id| self.start(id));
    }

    /// The oldest message of some link arrives.
    fn deliver(&mut self) {
        let count = self.links.len();
        if count == 0 {
            return;
        }
        let at = self.random.below(count);
        let (&(from, to), queue) = self.links.iter_mut().nth(at).unwrap();
        let message = queue.pop_front();
        if queue.is_empty() {
            self.links.remove(&(from, to));
        }
        let (now, is_cut) = (self.now(), self.cuts.contains(&(from, to)));
        if let (Some(message), Some(server), false) = (message, self.servers.get_mut(&to), is_cut) {
            server.peer_message(from, message.join(), now).unwrap();
        }
    }

    fn store(&mut self, id: u8) {
        let now = self.now();
        let Some(records) = self.storing.remove(&id) else { return };
        let last = records.last().unwrap().0;
        self.stored.entry(id).or_default().extend(records);
        if let Some(server) = self.servers.get_mut(&id) {
            server.appended(last, now);
        }
    }

    /// Takes what the servers want done.
    fn collect(&mut self) {
        let ids: Vec<u8> = self.servers.keys().copied().collect();
        for id in ids {
            let server = self.servers.get_mut(&id).unwrap();
            while let Some(append) = server.poll_append() {
                self.storing.entry(id).or_default().push((append.position, append.payload.join().to_vec()));
            }
            while let Some(output) = server.poll_peer() {
                if let PeerOutput::Send { to, message } = output {
                    self.links.entry((id, to)).or_default().push_back(message.encode());
                }
            }
            let mut closed = Vec::new();
            while let Some(output) = server.poll_output() {
                if let Output::Close(connection, _) = output {
                    closed.push(connection);
                }
            }
            for who in 0..CLIENTS {
                if let Some((server, connection)) = self.clients[who].at
                    && server == id
                {
                    self.read(who, connection);
                    if closed.contains(&connection) {
                        self.lose(who);
                    }
                }
            }
            let now = self.now();
            for connection in closed {
                self.servers.get_mut(&id).unwrap().disconnected(connection, now);
            }
        }
    }

    fn read(&mut self, who: usize, connection: ConnectionId) {
        let Some((id, _)) = self.clients[who].at else { return };
        let now = self.now();
        let server = self.servers.get_mut(&id).unwrap();
        let output = server.output(connection).to_vec();
        server.sent(connection, output.len(), now);
        let mut rest = &output[..];
        let client = &mut self.clients[who];
        while let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX) {
            rest = tail;
            if !client.has_session {
                let response = ConnectResponse::decode(frame).unwrap();
                client.has_session = response.session_id != 0;
                client.session = client.has_session.then_some(response);
                client.acknowledges &= client.has_session;
                continue;
            }
            let mut reader = Reader::new(frame);
            let header = ReplyHeader::decode(&mut reader).unwrap();
            let (xid, asked) = client.asked.pop_front().expect("nothing is answered that was not asked");
            assert_eq!(header.xid, xid, "answers come in order");
            if asked == Asked::Increment {
                if header.err != 0 {
                    panic!("an increment failed: {}", header.err);
                }
                let data = reader.buffer().unwrap().unwrap();
                let value: i64 = std::str::from_utf8(data).unwrap().parse().unwrap();
                assert!(self.answered.insert(value), "{value} was given twice");
                assert!(value > client.largest, "a client's increments follow one another");
                client.largest = value;
            }
        }
    }

    /// A client does something.
    fn work(&mut self) {
        let who = self.random.below(CLIENTS);
        let now = self.now();
        let client = &self.clients[who];
        let Some((id, connection)) = client.at else { return self.connect(who) };
        if !client.has_session || client.asked.len() > 4 {
            return;
        }
        let is_new = !std::mem::replace(&mut self.clients[who].acknowledges, true);
        let kind = self.random.below(4);
        let name = self.random.below(20);
        let client = &mut self.clients[who];
        client.xid += 1;
        let (xid, asked, mut bytes) = (client.xid, Asked::Other, Vec::new());
        let mut frame = |opcode: Opcode, body: &dyn Fn(&mut Vec<u8>)| {
            let start = begin_frame(&mut bytes);
            RequestHeader { xid, opcode: opcode as i32 }.encode(&mut bytes);
            body(&mut bytes);
            end_frame(&mut bytes, start);
        };
        let asked = if is_new {
            frame(Opcode::Create, &|body| {
                encode::create(body, "/em/counter/ack-", Some(b""), OPEN_ACL, 3, None);
            });
            asked
        } else if kind < 2 {
            frame(Opcode::GetData, &|body| encode::path_watch(body, "/ctr-increment", false));
            Asked::Increment
        } else if kind == 2 {
            frame(Opcode::Create, &|body| {
                encode::create(body, &format!("/seen/{name}"), Some(b""), OPEN_ACL, 0, None);
            });
            asked
        } else {
            frame(Opcode::Delete, &|body| encode::path_version(body, &format!("/seen/{name}"), -1));
            asked
        };
        client.asked.push_back((xid, asked));
        self.servers.get_mut(&id).unwrap().receive(connection, &bytes, now);
    }

    fn connect(&mut self, who: usize) {
        let ids: Vec<u8> = self.servers.keys().copied().collect();
        let id = ids[self.random.below(ids.len())];
        let now = self.now();
        let server = self.servers.get_mut(&id).unwrap();
        let Ok(connection) = server.connect(([127, 0, 0, 1], 1).into(), now) else { return };
        let client = &mut self.clients[who];
        let (session_id, password) =
            client.session.as_ref().map_or((0, [0; 16]), |it| (it.session_id, it.password));
        if session_id == 0 {
            client.acknowledges = false;
        }
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 1000,
            session_id,
            password: &password,
            read_only: None,
        };
        let mut bytes = Vec::new();
        let start = begin_frame(&mut bytes);
        request.encode(&mut bytes);
        end_frame(&mut bytes, start);
        client.has_session = false;
        client.at = Some((id, connection));
        server.receive(connection, &bytes, now);
    }

    /// On every server a reaction is there exactly when its cause is.
    fn check(&self) {
        for server in self.servers.values() {
            let made = |path: &str| {
                let stat = server.tree().get(path).map(|znode| znode.stat());
                stat.map_or(0, |stat| i64::midpoint(i64::from(stat.cversion), i64::from(stat.num_children)))
            };
            if server.tree().get("/em/witness/owner").is_some() {
                assert_eq!(made("/seen"), made("/log"));
            }
        }
    }

    /// Everything that is under way ends well.
    fn settle(&mut self) {
        self.calm = true;
        self.cuts.clear();
        self.revive();
        for _ in 0..40_000 {
            self.now_us += 1000;
            let now = self.now();
            let id = 1 + self.random.below(usize::from(SERVERS)) as u8;
            match self.random.below(4) {
                0 => self.servers.get_mut(&id).unwrap().tick(now),
                1 => self.store(id),
                _ => (0..4).for_each(|_| self.deliver()),
            }
            self.collect();
            let applied: BTreeSet<u64> = self.servers.values().map(|server| server.applied()).collect();
            let is_over = self.clients.iter().all(|client| client.asked.is_empty());
            if is_over
                && applied.len() == 1
                && self.storing.is_empty()
                && self.servers.values().any(|it| it.is_in_quorum())
            {
                return;
            }
        }
        panic!("what is under way never ends");
    }

    /// What an operator does first.
    fn prepare(&mut self) {
        for _ in 0..4000 {
            self.now_us += 500;
            let now = self.now();
            let id = 1 + self.random.below(usize::from(SERVERS)) as u8;
            self.servers.get_mut(&id).unwrap().tick(now);
            self.store(id);
            self.deliver();
            self.collect();
        }
        self.connect(0);
        let requests =
            [("/ctr", "0"), ("/seen", ""), ("/log", ""), ("/em/counter", COUNTER), ("/em/witness", WITNESS)];
        let mut sent = 0;
        while sent < requests.len() || !self.clients[0].asked.is_empty() {
            self.now_us += 500;
            let now = self.now();
            (1..=SERVERS).for_each(|id| {
                self.servers.get_mut(&id).unwrap().tick(now);
                self.store(id);
            });
            self.deliver();
            self.collect();
            let client = &mut self.clients[0];
            if let (Some((id, connection)), true, true) =
                (client.at, client.has_session, sent < requests.len())
            {
                let (path, data) = requests[sent];
                sent += 1;
                client.xid += 1;
                client.asked.push_back((client.xid, Asked::Other));
                let mut bytes = Vec::new();
                let start = begin_frame(&mut bytes);
                RequestHeader { xid: client.xid, opcode: Opcode::Create as i32 }.encode(&mut bytes);
                encode::create(&mut bytes, path, Some(data.as_bytes()), OPEN_ACL, 0, None);
                end_frame(&mut bytes, start);
                self.servers.get_mut(&id).unwrap().receive(connection, &bytes, now);
            }
        }
        self.clients[0].acknowledges = true;
    }
}

fn run(seed: u64) -> usize {
    let mut storm = Storm::new(seed);
    storm.prepare();
    storm.calm = false;
    (0..STEPS).for_each(|_| storm.step());
    storm.settle();
    storm.check();
    let counters: BTreeSet<i64> = storm
        .servers
        .values()
        .map(|server| std::str::from_utf8(server.tree().get("/ctr").unwrap().data().unwrap()).unwrap())
        .map(|count| count.parse().unwrap())
        .collect();
    assert_eq!(counters.len(), 1);
    let count = counters.first().copied().unwrap() as usize;
    assert!(storm.answered.len() <= count, "{count} is less than was answered");
    assert!(count <= storm.answered.len() + storm.unknown, "{count} is more than was asked for");
    let digests: BTreeSet<u64> = storm.servers.values().map(|server| server.tree().digest()).collect();
    assert_eq!(digests.len(), 1);
    assert!(storm.servers.values().all(|server| server.tree().digest() == server.tree().recomputed_digest()));
    storm.answered.len()
}

#[test]
fn increments_are_counted_once_whatever_happens() {
    let seeds = std::env::var("PROGRAM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    let first = std::env::var("PROGRAM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let mut answered = 0;
    for seed in first..first + seeds {
        let run = std::panic::catch_unwind(|| run(seed));
        answered += run.unwrap_or_else(|_| panic!("PROGRAM_SEED={seed} PROGRAM_SEEDS=1 fails"));
    }
    assert!(answered as u64 > 20 * seeds, "there is something to count: {answered}");
}
