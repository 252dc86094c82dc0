//! One server or three, which store at once unless they are told otherwise, and their clients.

use std::collections::{BTreeMap, BTreeSet};
use stoa_core::{Config, ConnectionId, Now, PeerOutput, Recovered, Restore, Role, Shard};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, EventKind, OPEN_ACL, Opcode, Reader, ReplyHeader,
    RequestHeader, Stat, WatcherEvent, begin_frame, end_frame, next_frame, request::encode, xid,
};

/// A client, by its place.
pub(crate) type Who = usize;

struct Client {
    server: u8,
    /// None when its server has ended.
    connection: Option<ConnectionId>,
    session: ConnectResponse,
    xid: i32,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) xid: i32,
    pub(crate) err: i32,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The data of a getData, or the error.
    pub(crate) fn data(&self) -> Result<String, ErrorCode> {
        self.ok()?;
        let data = Reader::new(&self.body).buffer().unwrap().unwrap_or_default().to_vec();
        Ok(String::from_utf8(data).unwrap())
    }

    /// Nothing, or the error.
    pub(crate) fn ok(&self) -> Result<(), ErrorCode> {
        if self.err == 0 { Ok(()) } else { Err(ErrorCode::from_i32(self.err).unwrap()) }
    }

    /// The names that a getChildren answers, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut reader = Reader::new(&self.body);
        let count = reader.count(4).unwrap();
        let mut names: Vec<String> = (0..count).map(|_| reader.str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// The Stat that the answer ends with.
    pub(crate) fn stat(&self) -> Stat {
        Stat::decode(&mut Reader::new(&self.body[self.body.len() - Stat::LEN..])).unwrap()
    }
}

pub(crate) struct World {
    pub(crate) servers: Vec<Shard>,
    config: Config,
    now_us: u64,
    clients: Vec<Client>,
    /// Answers and events that nobody has looked at.
    answers: BTreeMap<Who, Vec<Answer>>,
    events: BTreeMap<Who, Vec<(EventKind, String)>>,
    /// These disks store nothing for now.
    pub(crate) stalled: BTreeSet<u8>,
    /// These servers are away.
    pub(crate) gone: BTreeSet<u8>,
    waiting: BTreeMap<u8, u64>,
    /// What each server has stored.
    records: BTreeMap<u8, Vec<(u64, Vec<u8>)>>,
}

impl World {
    pub(crate) fn new(servers: u8) -> Self {
        Self::with(servers, |_| ())
    }

    pub(crate) fn with(servers: u8, set: impl Fn(&mut Config)) -> Self {
        let mut config =
            Config { tick_ms: 100, session_timeout_min_ms: 500, heartbeat_ms: 20, ..Config::default() };
        set(&mut config);
        let mut world = Self {
            servers: Vec::new(),
            config,
            now_us: 1_000_000,
            clients: Vec::new(),
            answers: BTreeMap::new(),
            events: BTreeMap::new(),
            stalled: BTreeSet::new(),
            gone: BTreeSet::new(),
            waiting: BTreeMap::new(),
            records: BTreeMap::new(),
        };
        let voters: Vec<u8> = (1..=servers).collect();
        for id in 1..=servers {
            let recovered = Recovered::new(Tree::new(Options::default()), &voters);
            let server = world.make(id, recovered);
            world.servers.push(server);
        }
        world.pass(1000);
        world
    }

    fn make(&self, id: u8, recovered: Recovered) -> Shard {
        let config = Config { server_id: id, ..self.config.clone() };
        Shard::new(config, recovered, [id; 32], self.now()).expect("what it has is sound")
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    pub(crate) fn server(&mut self, id: u8) -> &mut Shard {
        &mut self.servers[usize::from(id) - 1]
    }

    fn ids(&self) -> Vec<u8> {
        let all = 1..=u8::try_from(self.servers.len()).unwrap();
        all.filter(|id| !self.gone.contains(id)).collect()
    }

    pub(crate) fn leader(&self) -> u8 {
        let leads = |id: &u8| self.servers[usize::from(*id) - 1].status().role == Role::Leader;
        self.ids().into_iter().find(leads).expect("somebody leads")
    }

    /// Another server than the leader.
    pub(crate) fn follower(&self) -> u8 {
        let leader = self.leader();
        self.ids().into_iter().find(|id| *id != leader).expect("there are several")
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(10) {
            self.now_us += 10_000;
            for id in self.ids() {
                let now = self.now();
                self.server(id).tick(now);
            }
            self.settle();
        }
    }

    pub(crate) fn settle(&mut self) {
        loop {
            let mut moved = false;
            for id in self.ids() {
                moved |= self.store(id);
                while let Some(output) = self.server(id).poll_peer() {
                    let PeerOutput::Send { to, message } = output else { continue };
                    if self.gone.contains(&to) {
                        continue;
                    }
                    let now = self.now();
                    self.server(to)
                        .peer_message(id, message.encode().join(), now)
                        .expect("they understand each other");
                    moved = true;
                }
                while self.server(id).poll_output().is_some() {}
            }
            if !moved {
                break;
            }
        }
        self.read();
    }

    fn store(&mut self, id: u8) -> bool {
        while let Some(append) = self.server(id).poll_append() {
            self.waiting.insert(id, append.position);
            let record = (append.position, append.payload.join().to_vec());
            self.records.entry(id).or_default().push(record);
        }
        if self.stalled.contains(&id) {
            return false;
        }
        let Some(last) = self.waiting.remove(&id) else { return false };
        let now = self.now();
        self.server(id).appended(last, now);
        true
    }

    /// The server ends and begins again with what it has stored. Its clients are gone.
    pub(crate) fn restart(&mut self, id: u8) {
        let voters: Vec<u8> = (1..=self.servers.len() as u8).collect();
        let mut restore = Restore::new(Options::default(), &voters, 1);
        for (position, payload) in &self.records[&id] {
            restore.record(*position, payload).expect("it was stored here");
        }
        let recovered = restore.finish(id).expect("it was stored here").remove(0);
        let server = self.make(id, recovered);
        *self.server(id) = server;
        let here = self.clients.iter_mut().filter(|client| client.server == id);
        here.for_each(|client| client.connection = None);
        self.gone.remove(&id);
        self.pass(50);
    }

    /// The leader is gone for good, and the others notice.
    pub(crate) fn lose_leader(&mut self) -> u8 {
        let leader = self.leader();
        self.gone.insert(leader);
        for id in self.ids() {
            let now = self.now();
            self.server(id).peer_lost(leader, now);
        }
        self.pass(500);
        leader
    }

    fn read(&mut self) {
        for who in 0..self.clients.len() {
            let Client { server, connection: Some(connection), .. } = self.clients[who] else { continue };
            if self.gone.contains(&server) {
                continue;
            }
            let output = self.server(server).output(connection).to_vec();
            let now = self.now();
            self.server(server).sent(connection, output.len(), now);
            let mut rest = &output[..];
            while let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX) {
                rest = tail;
                let mut reader = Reader::new(frame);
                let ReplyHeader { xid, err, .. } = ReplyHeader::decode(&mut reader).unwrap();
                if xid == xid::NOTIFICATION {
                    let event = WatcherEvent::decode(&mut reader).unwrap();
                    let kind = EventKind::from_i32(event.kind).unwrap();
                    self.events.entry(who).or_default().push((kind, event.path.to_owned()));
                } else {
                    let body = reader.rest().to_vec();
                    self.answers.entry(who).or_default().push(Answer { xid, err, body });
                }
            }
        }
    }

    // ---- clients ----

    pub(crate) fn client(&mut self, server: u8) -> Who {
        let none = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 0,
            session_id: 0,
            password: [0; 16],
            read_only: None,
        };
        let (connection, session) = self.open(server, &none);
        self.clients.push(Client { server, connection: Some(connection), session, xid: 0 });
        self.clients.len() - 1
    }

    /// The client's session comes to another server.
    pub(crate) fn reconnect(&mut self, who: Who, server: u8) {
        let session = self.clients[who].session;
        let (connection, opened) = self.open(server, &session);
        assert_eq!(opened.session_id, session.session_id);
        let client = &mut self.clients[who];
        (client.server, client.connection) = (server, Some(connection));
    }

    fn open(&mut self, server: u8, session: &ConnectResponse) -> (ConnectionId, ConnectResponse) {
        let now = self.now();
        let connection = self.server(server).connect(([127, 0, 0, 1], 1).into(), now).expect("there is room");
        let mut bytes = Vec::new();
        let start = begin_frame(&mut bytes);
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 2000,
            session_id: session.session_id,
            password: &session.password,
            read_only: None,
        };
        request.encode(&mut bytes);
        end_frame(&mut bytes, start);
        assert_eq!(self.server(server).receive(connection, &bytes, now), bytes.len());
        self.settle();
        let output = self.server(server).output(connection).to_vec();
        let now = self.now();
        self.server(server).sent(connection, output.len(), now);
        let (frame, _) = next_frame(&output, 1000).unwrap().expect("it is answered");
        (connection, ConnectResponse::decode(frame).unwrap())
    }

    pub(crate) fn session(&self, who: Who) -> i64 {
        self.clients[who].session.session_id
    }

    /// Sends a request, and does not wait.
    pub(crate) fn send(&mut self, who: Who, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) {
        let now = self.now();
        let client = &mut self.clients[who];
        client.xid += 1;
        let (server, xid) = (client.server, client.xid);
        let connection = client.connection.expect("it is connected");
        let mut bytes = Vec::new();
        let start = begin_frame(&mut bytes);
        RequestHeader { xid, opcode: opcode as i32 }.encode(&mut bytes);
        body(&mut bytes);
        end_frame(&mut bytes, start);
        assert_eq!(self.server(server).receive(connection, &bytes, now), bytes.len());
    }

    /// The answers since the last look.
    pub(crate) fn answers(&mut self, who: Who) -> Vec<Answer> {
        self.settle();
        self.answers.remove(&who).unwrap_or_default()
    }

    /// The events since the last look.
    pub(crate) fn events(&mut self, who: Who) -> Vec<(EventKind, String)> {
        self.settle();
        self.events.remove(&who).unwrap_or_default()
    }

    /// Asks and takes the answer.
    pub(crate) fn ask(&mut self, who: Who, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Answer {
        self.send(who, opcode, body);
        let mut answers = self.answers(who);
        assert_eq!(answers.len(), 1, "{opcode:?} is answered, and nothing else is: {answers:?}");
        answers.remove(0)
    }

    pub(crate) fn create(&mut self, who: Who, path: &str, data: &str) -> Answer {
        self.ask(who, Opcode::Create, |body| {
            encode::create(body, path, Some(data.as_bytes()), OPEN_ACL, 0, None);
        })
    }

    pub(crate) fn create_ephemeral(&mut self, who: Who, path: &str) -> Answer {
        self.ask(who, Opcode::Create, |body| encode::create(body, path, Some(b""), OPEN_ACL, 1, None))
    }

    pub(crate) fn delete(&mut self, who: Who, path: &str) -> Answer {
        self.ask(who, Opcode::Delete, |body| encode::path_version(body, path, -1))
    }

    pub(crate) fn get(&mut self, who: Who, path: &str) -> Answer {
        self.ask(who, Opcode::GetData, |body| encode::path_watch(body, path, false))
    }

    pub(crate) fn set(&mut self, who: Who, path: &str, data: &str) -> Answer {
        self.ask(who, Opcode::SetData, |body| encode::set_data(body, path, Some(data.as_bytes()), -1))
    }

    pub(crate) fn children(&mut self, who: Who, path: &str) -> Answer {
        self.ask(who, Opcode::GetChildren, |body| encode::path_watch(body, path, false))
    }

    /// exists with a watch.
    pub(crate) fn block(&mut self, who: Who, path: &str) -> Answer {
        self.ask(who, Opcode::Exists, |body| encode::path_watch(body, path, true))
    }

    pub(crate) fn close(&mut self, who: Who) {
        self.ask(who, Opcode::CloseSession, |_| ());
    }

    /// Registers a program.
    pub(crate) fn register(&mut self, who: Who, name: &str, source: &str) {
        assert_eq!(self.create(who, &format!("/em/{name}"), source).ok(), Ok(()), "{}", self.why(who));
    }

    /// Why the client's last call failed.
    pub(crate) fn why(&mut self, who: Who) -> String {
        self.get(who, stoa_core::FAILURE_PATH).data().unwrap_or_default()
    }

    /// All states are the same.
    pub(crate) fn assert_agreement(&mut self) {
        self.pass(100);
        let digests: BTreeSet<u64> = self.ids().iter().map(|id| self.server(*id).tree().digest()).collect();
        assert_eq!(digests.len(), 1);
    }
}
