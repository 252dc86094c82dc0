//! Several partitions, whose threads are driven one after the other.

use crate::ask::{self, ADD_PERSISTENT, ADD_RECURSIVE, EPHEMERAL, PERSISTENT};
use crate::count::counted;
use crate::world::{config, start};
use crate::{Operation, constant, linear};
use std::collections::VecDeque;
use std::net::SocketAddr;
use stoa_core::{Config, ConnectionId, Output, Placement, Recovered, Shard, ShardMessage};
use stoa_tree::{Options, Tree};
use stoa_wire::{Opcode, next_frame};

const PARTITIONS: u8 = 2;
const LEVELS: usize = 200;
const CHILDREN: usize = 500;

/// The threads of one server; clients are connected to the first.
struct Threads {
    shards: Vec<Shard>,
    messages: VecDeque<(u8, u8, ShardMessage)>,
    busy: Vec<u8>,
    frames: u64,
    last: Vec<u8>,
}

impl Threads {
    fn new() -> Self {
        let shard = |partition: u8| {
            let config = Config { partition, partitions: PARTITIONS, balance: false, ..config() };
            let tree = match partition {
                0 => Tree::new(Options::default()),
                _ => Tree::new_part(Options::default()),
            };
            Shard::new(config, Recovered::new(tree, &[1]), [7; 32], start()).expect("a new timeline is sound")
        };
        let (shards, messages) = ((0..PARTITIONS).map(shard).collect(), VecDeque::new());
        let mut threads = Self { shards, messages, busy: Vec::new(), frames: 0, last: Vec::new() };
        (0..PARTITIONS).for_each(|thread| threads.settle(thread));
        threads
    }

    /// Everything happens that follows from what this thread was given.
    fn settle(&mut self, thread: u8) {
        self.busy.push(thread);
        while let Some(thread) = self.busy.pop() {
            let shard = &mut self.shards[usize::from(thread)];
            while shard.poll_peer().is_some() {}
            shard.settle(start());
            if let Some(append) = shard.poll_append() {
                shard.appended(append.position, start());
                self.busy.push(thread);
            }
            // What is prepared is handed to the first partition's thread when the entry is closed.
            shard.settle(start());
            while let Some((to, message)) = shard.poll_message() {
                self.messages.push_back((thread, to, message));
            }
            while let Some((from, to, message)) = self.messages.pop_front() {
                self.shards[usize::from(to)].hear(from, message, start());
                self.busy.push(to);
            }
        }
    }

    fn client(&mut self) -> ConnectionId {
        let address: SocketAddr = ([127, 0, 0, 1], 4000).into();
        let id = self.shards[0].connect(address, start()).expect("there is room");
        self.turn(id, &ask::session(None));
        id
    }

    fn turn(&mut self, client: ConnectionId, bytes: &[u8]) {
        let before = self.frames;
        self.turn_quietly(client, bytes);
        assert!(self.frames > before, "it was answered");
    }

    fn turn_quietly(&mut self, client: ConnectionId, bytes: &[u8]) {
        assert_eq!(self.shards[0].receive(client, bytes, start()), bytes.len(), "nothing holds it up");
        self.shards[0].turn_ended(start());
        self.settle(0);
        while let Some(output) = self.shards[0].poll_output() {
            let (Output::Send(id) | Output::Close(id, _)) = output else { continue };
            let home = &mut self.shards[0];
            let sent = home.output(id);
            let len = sent.len();
            if id == client && len > 0 {
                self.last = sent.to_vec();
            }
            let mut rest = sent;
            while let Ok(Some((_, tail))) = next_frame(rest, usize::MAX >> 1) {
                rest = tail;
                self.frames += 1;
            }
            home.sent(id, len, start());
            if matches!(output, Output::Close(..)) {
                home.disconnected(id, start());
            }
        }
    }

    fn count(&mut self, client: ConnectionId, bytes: &[u8]) {
        counted(&mut || self.turn(client, bytes));
    }

    fn last_error(&self) -> i32 {
        i32::from_be_bytes(self.last[16..20].try_into().expect("it is an answer"))
    }

    fn create_deep(&mut self, client: ConnectionId, top: &str, levels: usize) -> String {
        let path = format!("{top}{}", ask::deep(levels));
        self.turn(client, &ask::create(top, PERSISTENT));
        let creates: Vec<Vec<u8>> =
            (1..=levels).map(|level| ask::create(&path[..top.len() + 2 * level], PERSISTENT)).collect();
        for creates in creates.chunks(256) {
            self.turn(client, &creates.concat());
        }
        path
    }

    fn create_wide(&mut self, client: ConnectionId, top: &str, count: usize, flags: i32) {
        self.turn(client, &ask::create(top, PERSISTENT));
        let creates: Vec<Vec<u8>> =
            (0..count).map(|number| ask::create(&format!("{top}/{number}"), flags)).collect();
        for creates in creates.chunks(256) {
            self.turn(client, &creates.concat());
        }
    }

    /// An operator moves a subtree.
    fn move_to(&mut self, path: &str, to: u8) {
        self.shards[0].ask_move(path, to).expect("it can be moved");
        self.settle(0);
        let moved = self.shards[0].poll_moved();
        assert!(moved.is_some_and(|moved| moved.result == Ok(())), "it has moved");
    }
}

/// A name right below the root whose subtree lives there.
fn top(of: u8) -> String {
    let placement = Placement::new(PARTITIONS);
    let mut names = (0..).map(|number| format!("/top{number}x"));
    names.find(|name| placement.of(name) == of).expect("names are spread")
}

/// A request about the deepest of many znodes, on the other partition.
fn deep(levels: usize, request: impl FnOnce(&str) -> Vec<u8>) {
    let mut threads = Threads::new();
    let client = threads.client();
    let path = threads.create_deep(client, &top(1), levels);
    threads.count(client, &request(&path));
    assert_eq!(threads.last_error(), 0);
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("partitions: deep getData elsewhere", LEVELS, |n| {
        deep(n, |path| ask::read(Opcode::GetData, path, true));
    }),
    linear("partitions: deep setData elsewhere", LEVELS, |n| deep(n, ask::set_data)),
    linear("partitions: deep create elsewhere", LEVELS, |n| {
        deep(n, |path| ask::create(&format!("{path}/child"), PERSISTENT));
    }),
    linear("partitions: deep ephemeral elsewhere", LEVELS, |n| {
        deep(n, |path| ask::create(&format!("{path}/child"), EPHEMERAL));
    }),
    linear("partitions: deep delete elsewhere", LEVELS, |n| deep(n, ask::delete)),
    linear("partitions: a session with a deep ephemeral elsewhere is closed", LEVELS, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let path = threads.create_deep(client, &top(1), n);
        threads.turn(client, &ask::create(&format!("{path}/child"), EPHEMERAL));
        threads.count(client, &ask::close_session());
    }),
    linear("partitions: deep setData elsewhere, under a recursive watch on the root", LEVELS, |n| {
        let mut threads = Threads::new();
        let (client, watcher) = (threads.client(), threads.client());
        let path = threads.create_deep(client, &top(1), n);
        threads.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE));
        threads.count(client, &ask::set_data(&path));
    }),
    linear("partitions: a multi over two", CHILDREN, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let tops = [top(0), top(1)];
        tops.iter().for_each(|top| threads.create_wide(client, top, n, PERSISTENT));
        let sets = (0..n).map(|number| ask::set_data(&format!("{}/{number}", tops[number % 2])));
        threads.count(client, &ask::multi(Opcode::Multi, sets));
        assert_eq!(threads.last_error(), 0);
    }),
    linear("partitions: a multi over two of creates and deletes", CHILDREN, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let tops = [top(0), top(1)];
        tops.iter().for_each(|top| threads.create_wide(client, top, n, PERSISTENT));
        let ops = (0..n).map(|number| match number % 4 {
            0 => ask::create(&format!("{}/new-{number}", tops[0]), PERSISTENT),
            1 => ask::create(&format!("{}/new-{number}", tops[1]), PERSISTENT),
            _ => ask::delete(&format!("{}/{number}", tops[number % 2])),
        });
        threads.count(client, &ask::multi(Opcode::Multi, ops));
        assert_eq!(threads.last_error(), 0);
    }),
    linear("partitions: many creates right below the root", CHILDREN / 2, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let creates: Vec<Vec<u8>> =
            (0..n).map(|number| ask::create(&format!("/x{number}x"), PERSISTENT)).collect();
        counted(&mut || creates.iter().for_each(|create| threads.turn(client, create)));
    }),
    linear("partitions: a session with many ephemerals right below the root is closed", CHILDREN / 4, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        for number in 0..n {
            threads.turn(client, &ask::create(&format!("/x{number}x"), EPHEMERAL));
        }
        threads.count(client, &ask::close_session());
    }),
    linear("partitions: a session with many ephemerals elsewhere is closed", CHILDREN, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        threads.create_wide(client, &top(1), n, EPHEMERAL);
        threads.count(client, &ask::close_session());
    }),
    linear("partitions: many sessions close", CHILDREN / 4, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.turn(client, &ask::create(&top, PERSISTENT));
        let clients: Vec<ConnectionId> = (0..n).map(|_| threads.client()).collect();
        for (number, client) in clients.iter().enumerate() {
            threads.turn(*client, &ask::create(&format!("{top}/{number}"), EPHEMERAL));
        }
        let close = ask::close_session();
        counted(&mut || {
            for client in &clients {
                threads.shards[0].receive(*client, &close, start());
            }
            threads.turn_quietly(client, &ask::read(Opcode::Exists, "/", false));
        });
    }),
    linear("partitions: getChildren of the root", CHILDREN / 2, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        for number in 0..n {
            threads.turn(client, &ask::create(&format!("/x{number}x"), PERSISTENT));
        }
        threads.count(client, &ask::read(Opcode::GetChildren, "/", false));
    }),
    linear("partitions: getEphemerals of all", CHILDREN, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        threads.create_wide(client, &top(1), n, EPHEMERAL);
        threads.count(client, &ask::of_path(Opcode::GetEphemerals, "/"));
    }),
    linear("partitions: setWatches of many paths", CHILDREN, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.create_wide(client, &top, n, PERSISTENT);
        let paths: Vec<String> = (0..n).map(|number| format!("{top}/{number}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        threads.count(client, &ask::set_watches(i64::MAX, [&paths, &[], &paths, &paths, &paths]));
    }),
    linear("partitions: setWatches of many recursive ones, where as much was moved", CHILDREN / 8, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.create_wide(client, &top, n, PERSISTENT);
        (0..n).for_each(|number| threads.move_to(&format!("{top}/{number}"), 0));
        let paths: Vec<String> = (0..n).map(|number| format!("{top}/{number}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        threads.count(client, &ask::set_watches(i64::MAX, [&[], &[], &[], &[], &paths]));
    }),
    constant("partitions: setData where much was moved", CHILDREN / 8, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.create_wide(client, &top, n, PERSISTENT);
        (0..n).for_each(|number| threads.move_to(&format!("{top}/{number}"), 0));
        threads.turn(client, &ask::set_data(&format!("{top}/7")));
        threads.count(client, &ask::set_data(&format!("{top}/7")));
    }),
    linear("partitions: a wide subtree moves", CHILDREN, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.create_wide(client, &top, n, PERSISTENT);
        counted(&mut || threads.move_to(&top, 0));
        threads.turn(client, &ask::read(Opcode::GetData, &top, false));
        assert_eq!(threads.shards[0].tree().names_below(&top).count(), n);
    }),
    linear("partitions: a deep subtree moves", LEVELS, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.create_deep(client, &top, n);
        counted(&mut || threads.move_to(&top, 0));
        assert_eq!(threads.shards[0].tree().names_below(&top).count(), 1);
    }),
    linear("partitions: a deep subtree with a quota moves", LEVELS / 2, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.create_deep(client, &top, n);
        let quota = format!("/zookeeper/quota{top}");
        threads.turn(client, &ask::create(&quota, PERSISTENT));
        threads.turn(client, &ask::create_data(&format!("{quota}/zookeeper_limits"), b"count=1000000"));
        threads.turn(client, &ask::create_data(&format!("{quota}/zookeeper_stats"), b"count=0"));
        assert_eq!(threads.last_error(), 0);
        counted(&mut || threads.move_to(&top, 0));
    }),
    linear("partitions: a subtree that is watched moves", CHILDREN, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.turn(client, &ask::create(&top, PERSISTENT));
        for number in 0..n {
            threads.turn(client, &ask::add_watch(&format!("{top}/{number}"), ADD_PERSISTENT));
        }
        counted(&mut || threads.move_to(&top, 0));
        assert_eq!(threads.shards[0].watches().pair_count(), n);
    }),
    // All watched paths are looked at: a move takes longer than that, and there is one at a time.
    linear("partitions: a small subtree moves, where much else is watched", CHILDREN, |n| {
        let mut threads = Threads::new();
        let client = threads.client();
        let top = top(1);
        threads.turn(client, &ask::create(&top, PERSISTENT));
        threads.turn(client, &ask::create(&format!("{top}/small"), PERSISTENT));
        for number in 0..n {
            threads.turn(client, &ask::add_watch(&format!("{top}/{number}"), ADD_PERSISTENT));
        }
        counted(&mut || threads.move_to(&format!("{top}/small"), 0));
    }),
];
