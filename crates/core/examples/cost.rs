//! What requests cost: processor time of each in a server with one partition, and in one with two, where
//! the client's own thread has the partition and where the other one has it. Without sockets and disk.
//! `cargo run --release -p stoa-core --example cost [line]`

#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use mimalloc::MiMalloc;
use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;
use stoa_core::{Config, ConnectionId, Now, Placement, ProgramLimits, Recovered, Shard, ShardMessage};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, OPEN_ACL, Opcode, RequestHeader, begin_frame, end_frame, next_frame, request::encode,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const DATA: &[u8] = &[7; 100];
const ROUNDS: usize = 400_000;
const PROGRAMS: usize = 100;

/// Which programs there are.
#[derive(Clone, Copy)]
enum Programs {
    None,
    /// The client has acknowledged none of them.
    OfOthers,
    /// It has acknowledged all of them, and asks for something else.
    Own,
}
const NOW: Now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    write(&mut out);
    end_frame(&mut out, start);
    out
}

fn request(opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid: 1, opcode: opcode as i32 }.encode(out);
        body(out);
    })
}

fn handshake() -> Vec<u8> {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 10_000,
        session_id: 0,
        password: &[0; 16],
        read_only: Some(false),
    };
    frame(|out| request.encode(out))
}

fn address() -> SocketAddr {
    ([127, 0, 0, 1], 4000).into()
}

/// The threads of a server, driven as the real one is, turn by turn; disks store at once. The client is connected to
/// the first.
struct Threads {
    shards: Vec<Shard>,
    messages: VecDeque<(u8, u8, ShardMessage)>,
    /// Threads that have something to do.
    busy: Vec<u8>,
}

impl Threads {
    fn new(partitions: u8, programs: ProgramLimits) -> Self {
        let shard = |partition: u8| {
            let config = Config { partition, partitions, programs: programs.clone(), ..Config::default() };
            let tree = if partition == 0 {
                Tree::new(Options::default())
            } else {
                Tree::new_part(Options::default())
            };
            Shard::new(config, Recovered::new(tree, &[1]), [7; 32], NOW).expect("a new timeline is sound")
        };
        let mut threads = Self {
            shards: (0..partitions).map(shard).collect(),
            messages: VecDeque::new(),
            busy: Vec::new(),
        };
        (0..partitions).for_each(|thread| threads.settle(thread));
        threads
    }

    /// Everything happens that follows from what this thread was given.
    fn settle(&mut self, thread: u8) {
        self.busy.push(thread);
        while let Some(thread) = self.busy.pop() {
            let shard = &mut self.shards[usize::from(thread)];
            while shard.poll_peer().is_some() {}
            shard.settle(NOW);
            if let Some(append) = shard.poll_append() {
                shard.appended(append.position, NOW);
                self.busy.push(thread);
            }
            // What is prepared is handed to the first partition's thread when the entry is closed.
            shard.settle(NOW);
            while let Some((to, message)) = shard.poll_message() {
                self.messages.push_back((thread, to, message));
            }
            while let Some((from, to, message)) = self.messages.pop_front() {
                self.shards[usize::from(to)].hear(from, message, NOW);
                self.busy.push(to);
            }
        }
    }
}

impl Threads {
    fn connect(&mut self) -> ConnectionId {
        self.shards[0].connect(address(), NOW).expect("there is room")
    }

    /// Bytes arrive; returns how many are sent back.
    fn turn(&mut self, client: ConnectionId, bytes: &[u8]) -> Vec<u8> {
        let mut sent = Vec::new();
        assert_eq!(self.shards[0].receive(client, bytes, NOW), bytes.len());
        self.shards[0].turn_ended(NOW);
        self.settle(0);
        let front = &mut self.shards[0];
        while front.poll_output().is_some() {
            let output = front.output(client);
            sent.extend_from_slice(output);
            let len = output.len();
            front.sent(client, len, NOW);
        }
        sent
    }
}

/// Time this thread has spent on a CPU: what others do on the machine does not count.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    Duration::from_nanos(stat.split(' ').next().and_then(|field| field.parse().ok()).expect("a number"))
}

/// Nanoseconds of each request, when so many arrive together.
fn measure(threads: &mut Threads, client: ConnectionId, request: &[u8], together: usize) -> f64 {
    let bytes = request.repeat(together);
    let mut best = Duration::MAX;
    // The best of some rounds: the others had company.
    for _ in 0..5 {
        let began = cpu_time();
        for _ in 0..ROUNDS / 5 / together {
            let sent = threads.turn(client, &bytes);
            let mut rest = sent.as_slice();
            let mut answers = 0;
            while let Ok(Some((_, tail))) = next_frame(rest, usize::MAX >> 1) {
                rest = tail;
                answers += 1;
            }
            assert_eq!(answers, together, "each is answered");
        }
        best = best.min(cpu_time() - began);
    }
    best.as_nanos() as f64 / (ROUNDS / 5 / together * together) as f64
}

fn create(path: &str) -> Vec<u8> {
    request(Opcode::Create, |out| encode::create(out, path, Some(DATA), OPEN_ACL, 0, None))
}

/// Programs that have nothing to do with what is asked: operations and, of half of them, events.
fn register_programs(threads: &mut Threads, client: ConnectionId) {
    for number in 0..PROGRAMS {
        let mut source = format!("on_operation(\"read\", \"/app-{number}/*\");\nfn read(request) {{ }}\n");
        if number % 2 == 0 {
            source += &format!("on_event(\"changed\", \"/app-{number}/**\");\nfn changed(event) {{ }}\n");
        }
        let path = format!("/em/program-{number}");
        let register = request(Opcode::Create, |out| {
            encode::create(out, &path, Some(source.as_bytes()), OPEN_ACL, 0, None);
        });
        threads.turn(client, &register);
    }
}

fn report(what: &str, mut threads: Threads, path: &str, programs: Programs) {
    if !std::env::args().nth(1).is_none_or(|wanted| what.contains(&wanted)) {
        return;
    }
    let client = threads.connect();
    threads.turn(client, &handshake());
    match programs {
        Programs::None => {}
        Programs::OfOthers => {
            let other = threads.connect();
            threads.turn(other, &handshake());
            register_programs(&mut threads, other);
        }
        Programs::Own => register_programs(&mut threads, client),
    }
    let znode = format!("{path}/znode");
    threads.turn(client, &create(path));
    threads.turn(client, &create(&znode));
    let get = request(Opcode::GetData, |out| encode::path_watch(out, &znode, false));
    let set = request(Opcode::SetData, |out| encode::set_data(out, &znode, Some(DATA), -1));
    print!("{what:<40}");
    for (request, together) in [(&get, 1), (&get, 16), (&set, 1), (&set, 16)] {
        print!("{:>10.0}", measure(&mut threads, client, request, together));
    }
    println!();
}

fn main() {
    let placement = Placement::new(2);
    let top = |of| {
        let mut names = (0..).map(|number| format!("/top-{number}"));
        names.find(|name| placement.of(name) == of).expect("names are spread")
    };
    println!("{:<40}{:>10}{:>10}{:>10}{:>10}", "ns a request", "get", "16 gets", "set", "16 sets");
    let limits = ProgramLimits::default();
    report("one partition", Threads::new(1, limits.clone()), &top(0), Programs::None);
    for (what, programs) in
        [("one, 100 programs of others", Programs::OfOthers), ("one, 100 programs of its own", Programs::Own)]
    {
        let limits = ProgramLimits { programs_per_session: PROGRAMS, ..limits.clone() };
        report(what, Threads::new(1, limits), &top(0), programs);
    }
    report("two, requests for the thread's own", Threads::new(2, limits.clone()), &top(0), Programs::None);
    report("two, requests for the other one", Threads::new(2, limits.clone()), &top(1), Programs::None);
}
