//! A server without sockets and disks, driven as the real one is, and its clients.

use crate::ask;
use crate::count::counted;
use std::net::SocketAddr;
use stoa_core::{Config, ConnectionId, Limits, Now, Output, Recovered, Shard};
use stoa_tree::{Options, Tree};
use stoa_wire::{ConnectResponse, Opcode, next_frame};

/// A connection, with its session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) id: ConnectionId,
    pub(crate) session: i64,
    pub(crate) password: [u8; 16],
}

pub(crate) struct World {
    pub(crate) server: Shard,
    pub(crate) now: Now,
    /// Answers and events that were sent so far.
    pub(crate) frames: u64,
    /// What a client was sent last.
    pub(crate) last: Vec<u8>,
    /// What was logged, where that is kept, and at which positions.
    pub(crate) records: Option<Vec<(u64, Vec<u8>)>>,
}

pub(crate) fn start() -> Now {
    Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 }
}

fn address() -> SocketAddr {
    ([127, 0, 0, 1], 4000).into()
}

/// The settings of the servers here: no limit that keeps a size from being tried.
pub(crate) fn config() -> Config {
    let limits = Limits {
        connections_per_address: 0,
        frame_bytes: 64 << 20,
        outstanding: usize::MAX,
        outstanding_per_connection: usize::MAX,
        queued_bytes_per_connection: usize::MAX,
        log_queue_bytes: usize::MAX,
        output_pause_bytes: usize::MAX,
        output_close_bytes: usize::MAX,
        ..Limits::default()
    };
    Config { limits, snapshot_updates: u64::MAX, ..Config::default() }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default(), config())
    }

    pub(crate) fn with(options: Options, config: Config) -> Self {
        let mut world = Self::unsettled(options, config);
        world.settle();
        world
    }

    /// Nothing has been logged yet.
    pub(crate) fn unsettled(options: Options, config: Config) -> Self {
        let recovered = Recovered::new(Tree::new(options), &[1]);
        let server = Shard::new(config, recovered, [7; 32], start()).expect("a new timeline is sound");
        Self { server, now: start(), frames: 0, last: Vec::new(), records: None }
    }

    /// A client that has not said anything yet.
    pub(crate) fn connect(&mut self) -> ConnectionId {
        self.server.connect(address(), self.now).expect("there is room")
    }

    pub(crate) fn client(&mut self) -> Client {
        let id = self.connect();
        self.opened(id, None)
    }

    /// Its session is a new one, or this one.
    pub(crate) fn opened(&mut self, id: ConnectionId, existing: Option<(i64, [u8; 16])>) -> Client {
        self.turn_of(id, &ask::session(existing));
        let (frame, _) = next_frame(&self.last, 1 << 20).expect("it is a frame").expect("it was answered");
        let response = ConnectResponse::decode(frame).expect("it is the answer to a handshake");
        Client { id, session: response.session_id, password: response.password }
    }

    /// Bytes arrive, and stay without consequences for the log.
    pub(crate) fn arrive(&mut self, client: Client, bytes: &[u8]) {
        assert_eq!(self.server.receive(client.id, bytes, self.now), bytes.len(), "nothing holds it up");
    }

    /// All that follows from what has arrived.
    pub(crate) fn settle(&mut self) {
        self.server.turn_ended(self.now);
        loop {
            while let Some(output) = self.server.poll_output() {
                match output {
                    Output::Send(id) => self.send(id),
                    Output::Close(id, _) => {
                        self.send(id);
                        self.server.disconnected(id, self.now);
                    }
                    Output::Resume(_) => {}
                }
            }
            while self.server.poll_peer().is_some() {}
            let Some(append) = self.server.poll_append() else { return };
            if let Some(records) = &mut self.records {
                records.push((append.position, append.payload.iter().flatten().copied().collect()));
            }
            self.server.appended(append.position, self.now);
        }
    }

    fn send(&mut self, id: ConnectionId) {
        let output = self.server.output(id);
        let len = output.len();
        self.last.clear();
        self.last.extend_from_slice(output);
        let mut rest = output;
        while let Ok(Some((_, tail))) = next_frame(rest, usize::MAX >> 1) {
            rest = tail;
            self.frames += 1;
        }
        self.server.sent(id, len, self.now);
    }

    fn turn_of(&mut self, id: ConnectionId, bytes: &[u8]) {
        assert_eq!(self.server.receive(id, bytes, self.now), bytes.len(), "nothing holds it up");
        self.settle();
    }

    /// Requests arrive, and all that follows; each has to be answered.
    pub(crate) fn turn(&mut self, client: Client, bytes: &[u8]) {
        let before = self.frames;
        self.turn_of(client.id, bytes);
        assert!(self.frames > before, "it was answered");
    }

    /// The same, counted.
    pub(crate) fn count(&mut self, client: Client, bytes: &[u8]) {
        counted(&mut || self.turn(client, bytes));
    }

    /// The error of the last answer; 0 for none.
    pub(crate) fn last_error(&self) -> i32 {
        let at = 4 + 4 + 8;
        i32::from_be_bytes(self.last[at..at + 4].try_into().expect("it is an answer"))
    }

    /// Everybody's path up to it exists, level by level.
    pub(crate) fn create_deep(&mut self, client: Client, levels: usize) -> String {
        let path = ask::deep(levels);
        // Multis, so that the paths together do not become larger than a frame.
        let paths: Vec<&str> = (1..=levels).map(|level| &path[..2 * level]).collect();
        for paths in paths.chunks(256) {
            let creates = paths.iter().map(|path| ask::create(path, ask::PERSISTENT));
            self.turn(client, &ask::multi(Opcode::Multi, creates));
            assert_eq!(self.last_error(), 0);
        }
        path
    }

    /// So many children.
    pub(crate) fn create_wide(&mut self, client: Client, parent: &str, count: usize, flags: i32) {
        self.turn(client, &ask::create(parent, ask::PERSISTENT));
        self.create_children(client, parent, count, flags);
    }

    pub(crate) fn create_children(&mut self, client: Client, parent: &str, count: usize, flags: i32) {
        let numbers: Vec<usize> = (0..count).collect();
        for numbers in numbers.chunks(256) {
            let bytes: Vec<u8> =
                numbers.iter().flat_map(|number| ask::create(&format!("{parent}/{number}"), flags)).collect();
            self.turn(client, &bytes);
            assert_eq!(self.last_error(), 0);
        }
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now.mono_us += ms * 1000;
        self.now.wall_ms += ms as i64;
    }
}
