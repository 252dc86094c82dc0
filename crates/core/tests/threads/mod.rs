//! Servers with several partitions, whose threads are driven in any order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]
#![allow(dead_code, reason = "not every test needs everything")]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use stoa_core::{
    Authentication, CloseReason, Config, ConnectionId, Now, Output, PartitionMessage, PeerOutput, Placement,
    Recovered, Restore, Shard, ShardMessage, Slices,
};
use stoa_group::{EntryKind, Store};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, ConnectResponse, MultiHeader, OPEN_ACL, Opcode, Reader, ReplyHeader, RequestHeader,
    begin_frame, end_frame, next_frame, request::encode,
};

/// A client of one of the threads.
pub(crate) type Client = (u8, ConnectionId);

pub(crate) struct Threads {
    pub(crate) shards: Vec<Shard>,
    pub(crate) now: Now,
    /// What was said and has not arrived, by sender and receiver.
    pub(crate) messages: BTreeMap<(u8, u8), VecDeque<ShardMessage>>,
    /// The last record that the log was given, if it has not stored that.
    pub(crate) unstored: Option<u64>,
    /// So many records are stored, and the generation of the last one that the log was given.
    stored: usize,
    generation: u64,
    pub(crate) closed: Vec<(Client, CloseReason)>,
    /// For whom there was something to send.
    pub(crate) to_send: Vec<Client>,
    /// From one thread to another nothing arrives, but for what belongs to the log.
    pub(crate) silent: Option<(u8, u8)>,
    /// These partitions do not hear what the log has for them. For the first one, with which the log is, nothing is
    /// stored.
    pub(crate) slow_log: Vec<u8>,
    /// This thread has so much to do that it only comes to hear what is urgent.
    pub(crate) busy: Option<u8>,
    pub(crate) random: u64,
    /// Which address the next client has.
    pub(crate) peers: u8,
    /// What the log was given.
    pub(crate) records: Vec<(u64, Bytes)>,
    /// For other servers: partition, server, message.
    pub(crate) mail: Vec<(u8, u8, Bytes)>,
}

/// One frame from the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Frame {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) err: i32,
    pub(crate) body: Vec<u8>,
}

impl Threads {
    /// A server that stands alone.
    pub(crate) fn new(partitions: u8) -> Self {
        let mut threads = Self::of(&Config { partitions, ..Config::default() }, &[1]);
        threads.settle();
        threads
    }

    /// One whose clients prove who they are in this way.
    #[allow(dead_code, reason = "each test has a module of its own of this")]
    pub(crate) fn with(partitions: u8, authentication: Authentication) -> Self {
        let mut threads = Self::of(&Config { partitions, authentication, ..Config::default() }, &[1]);
        threads.settle();
        threads
    }

    /// One of a new ensemble.
    pub(crate) fn of(config: &Config, voters: &[u8]) -> Self {
        let now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let partitions = config.partitions;
        let shard = |partition: u8| {
            let config = Config { partition, ..config.clone() };
            let options = Options { x509_scheme: true, sasl_scheme: true, ..Options::default() };
            let tree = if partition == 0 { Tree::new(options) } else { Tree::new_part(options) };
            let recovered = Recovered::new(tree, voters);
            Shard::new(config.clone(), recovered, [16 * config.server_id + partition; 32], now).unwrap()
        };
        Self {
            shards: (0..partitions).map(shard).collect(),
            now,
            messages: BTreeMap::new(),
            unstored: None,
            stored: 0,
            generation: 0,
            closed: Vec::new(),
            to_send: Vec::new(),
            silent: None,
            slow_log: Vec::new(),
            busy: None,
            random: 1,
            peers: 0,
            records: Vec::new(),
            mail: Vec::new(),
        }
    }

    /// The server that stands alone ends and begins again, with everything stored; its clients are gone.
    pub(crate) fn restart(&mut self) {
        let (now, partitions) = (self.now, self.shards.len() as u8);
        self.messages.clear();
        self.stored = self.records.len();
        let mut restore = Restore::new(
            Options { x509_scheme: true, sasl_scheme: true, ..Options::default() },
            &[1],
            partitions,
        );
        for (position, payload) in &self.records {
            restore.record(*position, payload).unwrap();
        }
        let recovered = restore.finish(1).unwrap();
        self.shards = (0..)
            .zip(recovered)
            .map(|(partition, recovered)| {
                let config = Config { partition, partitions, ..Config::default() };
                Shard::new(config, recovered, [partition + 1; 32], now).unwrap()
            })
            .collect();
        self.settle();
    }

    pub(crate) fn shard(&mut self, partition: u8) -> &mut Shard {
        &mut self.shards[usize::from(partition)]
    }

    pub(crate) fn draw(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % below
    }

    /// What comes out of a thread.
    pub(crate) fn poll(&mut self, partition: u8) {
        let now = self.now;
        let shard = &mut self.shards[usize::from(partition)];
        while let Some(output) = shard.poll_peer() {
            if let PeerOutput::Send { to, message } = output {
                self.mail.push((partition, to, message.encode().join()));
            }
        }
        shard.settle(now);
        while let Some(append) = shard.poll_append() {
            assert_eq!(partition, 0, "the log is with the first partition");
            self.unstored = Some(append.position);
            self.generation = append.generation;
            self.records.push((append.position, append.payload.join()));
        }
        shard.settle(now);
        while let Some((to, message)) = shard.poll_message() {
            self.messages.entry((partition, to)).or_default().push_back(message);
        }
        while let Some(output) = shard.poll_output() {
            match output {
                Output::Close(id, reason) => self.closed.push(((partition, id), reason)),
                Output::Send(id) => self.to_send.push((partition, id)),
                Output::Resume(_) => {}
            }
        }
    }

    /// One thing happens, if there is anything left to happen.
    pub(crate) fn step(&mut self) -> bool {
        for partition in 0..self.shards.len() {
            self.poll(partition as u8);
        }
        let now = self.now;
        // The oldest one between two of them, or the oldest that is urgent.
        let messages: Vec<_> = self
            .messages
            .iter()
            .flat_map(|(between, messages)| {
                let (is_slow, is_silent) =
                    (self.slow_log.contains(&between.1), self.silent == Some(*between));
                let is_heard = move |message: &ShardMessage| match message {
                    ShardMessage::Timeline(PartitionMessage::Deliver(_))
                    | ShardMessage::StateReplaced { .. } => !is_slow,
                    ShardMessage::Timeline(_) => true,
                    _ => !is_silent,
                };
                let oldest = messages.iter().position(is_heard);
                let urgent =
                    messages.iter().position(move |message| message.is_urgent() && is_heard(message));
                let urgent = urgent.filter(|at| Some(*at) != oldest);
                oldest.into_iter().chain(urgent).map(|at| (*between, at))
            })
            .filter(|((from, to), at)| {
                self.busy != Some(*to) || self.messages[&(*from, *to)][*at].is_urgent()
            })
            .collect();
        let stores = self.unstored.filter(|_| !self.slow_log.contains(&0));
        let count = messages.len() + usize::from(stores.is_some());
        if count == 0 {
            return false;
        }
        let drawn = self.draw(count);
        if let Some(&((from, to), at)) = messages.get(drawn) {
            let message = self.messages.get_mut(&(from, to)).unwrap().remove(at).unwrap();
            self.shard(to).hear(from, message, now);
            // Perhaps the thread hears more before it does what follows from that.
            let is_held_up = self.slow_log.contains(&to) || self.silent == Some((from, to));
            let hears_more = at == 0 && self.busy != Some(to) && !is_held_up;
            for _ in 0..if hears_more { self.draw(4) } else { 0 } {
                let next = self.messages.get_mut(&(from, to)).and_then(VecDeque::pop_front);
                next.into_iter().for_each(|message| self.shard(to).hear(from, message, now));
            }
        } else if let Some(position) = self.unstored.take() {
            self.stored = self.records.len();
            self.shard(0).appended(position, now);
            self.shard(0).settle(now);
        }
        true
    }

    /// The log has no room for what it has not stored yet.
    pub(crate) fn refuse_records(&mut self) {
        let (now, generation) = (self.now, self.generation);
        self.unstored = None;
        self.records.truncate(self.stored);
        assert!(self.shard(0).append_refused(generation, now));
    }

    /// The entries of a partition that the log was given from a record on.
    pub(crate) fn entries_of(&self, partition: u8, record: usize) -> Vec<Bytes> {
        let entries = self.records[record..].iter().flat_map(|(_, record)| {
            let entries = Store::decode(record.clone()).unwrap().entries.into_iter();
            entries.filter(|entry| entry.kind == EntryKind::Payload && !entry.payload.is_empty())
        });
        let slices = entries.flat_map(|entry| Slices::new(entry.payload)).map(Result::unwrap);
        slices.filter(|(of, ..)| *of == partition).map(|(_, _, payload)| payload).collect()
    }

    pub(crate) fn settle(&mut self) {
        while self.step() {}
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now.mono_us += ms * 1000;
        self.now.wall_ms += ms as i64;
        let now = self.now;
        for shard in &mut self.shards {
            shard.tick(now);
        }
        self.settle();
    }

    pub(crate) fn send(&mut self, (thread, id): Client, bytes: &[u8]) {
        let now = self.now;
        assert_eq!(self.shard(thread).receive(id, bytes, now), bytes.len());
        self.poll(thread);
    }

    pub(crate) fn take_bytes(&mut self, (thread, id): Client) -> Vec<u8> {
        let now = self.now;
        let shard = self.shard(thread);
        let bytes = shard.output(id).to_vec();
        shard.sent(id, bytes.len(), now);
        bytes
    }

    pub(crate) fn take(&mut self, client: Client) -> Vec<Frame> {
        let bytes = self.take_bytes(client);
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

    pub(crate) fn connect(&mut self, thread: u8, session: i64, password: &[u8]) -> (Client, ConnectResponse) {
        let (client, response) = self.connect_as(thread, (session, password), 0, false);
        (client, response.unwrap())
    }

    /// What a client says first that has seen something, and may be content with a server that only reads.
    pub(crate) fn begin(
        &mut self,
        thread: u8,
        (session_id, password): (i64, &[u8]),
        last_zxid_seen: i64,
        read_only: bool,
    ) -> Client {
        let peer = SocketAddr::from(([10, 0, 0, self.peers], 4000));
        let now = self.now;
        let client = (thread, self.shard(thread).connect(peer, now).unwrap());
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms: 10_000,
            session_id,
            password,
            read_only: Some(read_only),
        };
        self.send(client, &frame(|out| request.encode(out)));
        client
    }

    /// The answer to that, if there is one.
    pub(crate) fn response(&mut self, client: Client) -> Option<ConnectResponse> {
        let bytes = self.take_bytes(client);
        let (payload, rest) = next_frame(&bytes, 1000).unwrap()?;
        assert!(rest.is_empty());
        Some(ConnectResponse::decode(payload).unwrap())
    }

    /// The same on a server that stands alone.
    pub(crate) fn connect_as(
        &mut self,
        thread: u8,
        session: (i64, &[u8]),
        last_zxid_seen: i64,
        read_only: bool,
    ) -> (Client, Option<ConnectResponse>) {
        let client = self.begin(thread, session, last_zxid_seen, read_only);
        self.settle();
        (client, self.response(client))
    }

    pub(crate) fn open(&mut self, thread: u8) -> Client {
        let (client, response) = self.connect(thread, 0, &[0; 16]);
        assert_ne!(response.session_id, 0);
        client
    }

    /// Sends one request and returns its answer, which must be all that comes.
    #[track_caller]
    pub(crate) fn ask(&mut self, client: Client, request: &[u8]) -> Frame {
        self.send(client, request);
        self.settle();
        let mut frames = self.take(client);
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames.remove(0)
    }
}

impl Threads {
    /// A client from an address of its own.
    pub(crate) fn open_from(&mut self, thread: u8) -> Client {
        self.peers += 1;
        self.open(thread)
    }

    /// The same after heartbeats, whose answers have not been looked at.
    pub(crate) fn ask_after_pings(&mut self, client: Client, request: &[u8]) -> Frame {
        self.send(client, request);
        self.settle();
        self.take(client).pop().unwrap()
    }
}

pub(crate) fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    write(&mut out);
    end_frame(&mut out, start);
    out
}

pub(crate) fn request(xid: i32, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid, opcode: opcode as i32 }.encode(out);
        body(out);
    })
}

pub(crate) fn create(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Create, |out| encode::create(out, path, Some(b"first"), OPEN_ACL, 0, None))
}

pub(crate) fn set(xid: i32, path: &str, data: &[u8]) -> Vec<u8> {
    request(xid, Opcode::SetData, |out| encode::set_data(out, path, Some(data), -1))
}

pub(crate) fn get(xid: i32, path: &str, watch: bool) -> Vec<u8> {
    request(xid, Opcode::GetData, |out| encode::path_watch(out, path, watch))
}

pub(crate) fn data(frame: &Frame) -> Vec<u8> {
    assert_eq!(frame.err, 0, "{frame:?}");
    Reader::new(&frame.body).buffer().unwrap().unwrap().to_vec()
}

/// Directories right below the root, one for each partition.
pub(crate) fn tops(partitions: u8) -> Vec<String> {
    let placement = Placement::new(partitions);
    let names = || (0..).map(|number| format!("/top-{number}"));
    (0..partitions).map(|of| names().find(|name| placement.of(name) == of).unwrap()).collect()
}

pub(crate) fn op(out: &mut Vec<u8>, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) {
    MultiHeader { opcode: opcode as i32, done: false, err: -1 }.encode(out);
    body(out);
}

pub(crate) fn multi(xid: i32, opcode: Opcode, ops: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    request(xid, opcode, |out| {
        ops(out);
        MultiHeader { opcode: -1, done: true, err: -1 }.encode(out);
    })
}

pub(crate) fn create_as(xid: i32, path: &str, flags: i32) -> Vec<u8> {
    request(xid, Opcode::Create, |out| encode::create(out, path, Some(b"first"), OPEN_ACL, flags, None))
}

pub(crate) fn xids(frames: &[Frame]) -> Vec<i32> {
    frames.iter().map(|frame| frame.xid).collect()
}

pub(crate) fn names(frame: &Frame) -> Vec<String> {
    assert_eq!(frame.err, 0);
    let mut reader = Reader::new(&frame.body);
    let count = reader.count(4).unwrap();
    let mut names: Vec<_> = (0..count).map(|_| reader.str().unwrap().to_owned()).collect();
    names.sort();
    names
}

pub(crate) fn children(threads: &mut Threads, client: Client, path: &str) -> Vec<String> {
    let asked = request(9, Opcode::GetChildren, |out| encode::path_watch(out, path, false));
    names(&threads.ask(client, &asked))
}
