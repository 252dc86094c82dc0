//! What a write costs at one of three sites that holds its token, beside a server without sites: processor time of each,
//! without sockets and disk. `cargo run --release -p stoa-core --example sites_cost [who] [so many turns]`; with a number
//! of turns, that many and nothing else, which is for who counts instructions (docs/testing.md).

#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use bytes::Bytes;
use mimalloc::MiMalloc;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;
use stoa_core::{Config, ConnectionId, Now, Recovered, Shard, SiteConfig, SiteId, SnapshotOutput};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, OPEN_ACL, Opcode, RequestHeader, begin_frame, end_frame, next_frame, request::encode,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const HUB: SiteId = 1;
const LEAF: SiteId = 2;
const SITES: [SiteId; 3] = [HUB, LEAF, 3];
const DATA: &[u8] = &[7; 100];
/// So many znodes are written, in turn.
const ZNODES: usize = 1000;
const WRITES: usize = 60_000;
/// Of so many measurements the fastest counts: the others had company.
const TRIES: usize = 25;

/// A server that stands alone, whose disk stores at once.
struct Server {
    shard: Shard,
    now: Now,
    /// Slices of its last snapshot.
    snapshot: Vec<Vec<u8>>,
    /// How many messages other sites were sent, and their bytes.
    shipped: (usize, usize),
}

impl Server {
    fn new(site: Option<SiteId>) -> Self {
        let now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let id = site.unwrap_or(HUB);
        let config = Config { server_id: id, site: site.map(|_| SiteConfig::default()), ..Config::default() };
        let recovered = Recovered::new(Tree::new(Options::default()), &[id]);
        let shard = Shard::new(config, recovered, [id; 32], now).expect("a new timeline is sound");
        let mut server = Self { shard, now, snapshot: Vec::new(), shipped: (0, 0) };
        server.settle();
        server
    }

    /// Everything happens that follows from what it was given.
    fn settle(&mut self) {
        loop {
            while self.shard.poll_peer().is_some() {}
            self.shard.settle(self.now);
            let Some(append) = self.shard.poll_append() else { return };
            self.shard.appended(append.position, self.now);
        }
    }

    fn connect(&mut self) -> ConnectionId {
        let address: SocketAddr = ([127, 0, 0, 1], 4000).into();
        let client = self.shard.connect(address, self.now).expect("there is room");
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 10_000,
            session_id: 0,
            password: &[0; 16],
            read_only: Some(false),
        };
        self.turn(client, &frame(|out| request.encode(out)), 1);
        client
    }

    /// Bytes arrive with so many requests, and are answered.
    fn turn(&mut self, client: ConnectionId, bytes: &[u8], together: usize) {
        assert_eq!(self.shard.receive(client, bytes, self.now), bytes.len());
        self.shard.turn_ended(self.now);
        self.settle();
        let mut answers = 0;
        while self.shard.poll_output().is_some() {
            let output = self.shard.output(client);
            let (mut rest, len) = (output, output.len());
            while let Ok(Some((_, tail))) = next_frame(rest, usize::MAX >> 1) {
                (rest, answers) = (tail, answers + 1);
            }
            self.shard.sent(client, len, self.now);
        }
        assert_eq!(answers, together, "each is answered");
    }

    /// What it ships is acknowledged.
    fn ship(&mut self) {
        while let Some((to, message)) = self.shard.poll_site() {
            self.shipped = (self.shipped.0 + 1, self.shipped.1 + message.len());
            if message[0] == 1 {
                let acknowledged: Bytes = [&[2], &message[9..17]].concat().into();
                self.shard.site_message(to, &acknowledged, self.now).expect("it is one");
                self.settle();
            }
        }
    }

    fn snapshot(&mut self) {
        while let Some(piece) = self.shard.poll_snapshot() {
            match piece {
                SnapshotOutput::Begin { .. } => self.snapshot.clear(),
                SnapshotOutput::Slice { bytes, .. } => {
                    self.snapshot.push(bytes);
                    self.shard.snapshot_taken();
                }
                SnapshotOutput::End { number } | SnapshotOutput::Abort { number } => {
                    self.shard.snapshot_finished(number, true);
                }
            }
        }
    }
}

/// Three sites that have joined, where one of them holds the tokens below `/bench`.
fn sites(holder: SiteId) -> Vec<Server> {
    let mut servers: Vec<Server> = SITES.iter().map(|site| Server::new(Some(*site))).collect();
    let list = "1.virginia=a;b:1\n2.california=a;b:1\n3.frankfurt=a;b:1\n";
    let (hub, now) = (&mut servers[0], servers_now());
    hub.shard.begin_sites(HUB, list, now).expect("it leads");
    hub.settle();
    for leaf in [1, 2] {
        let site = SITES[leaf];
        servers[0].shard.site_connected(site, now);
        servers[leaf].shard.site_connected(HUB, now);
        carry(&mut servers);
    }
    let client = servers[0].connect();
    servers[0].turn(client, &create("/bench"), 1);
    for znode in 0..ZNODES {
        servers[0].turn(client, &create(&path(znode)), 1);
    }
    let name = |name: &str| ["virginia", "california", "frankfurt"].iter().position(|it| *it == name);
    let pin = ["pin /bench virginia", "pin /bench california"][usize::from(holder) - 1];
    let bad = servers[0].shard.site_rules(pin.as_bytes(), |it| name(it).map(|at| SITES[at]));
    assert!(bad.is_empty(), "it is known where everything is to be");
    carry(&mut servers);
    for server in &mut servers {
        server.now.mono_us += 1_100_000;
        server.now.wall_ms += 1_100;
        server.shard.tick(server.now);
        server.settle();
    }
    carry(&mut servers);
    assert!(servers.iter().all(|server| server.shard.tree().holder("/bench/7") == Some(holder)));
    servers
}

fn servers_now() -> Now {
    Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 }
}

/// Until nothing more is said between sites.
fn carry(servers: &mut [Server]) {
    let mut is_busy = true;
    while is_busy {
        is_busy = false;
        for at in 0..servers.len() {
            servers[at].settle();
            servers[at].snapshot();
            while let Some((to, message)) = servers[at].shard.poll_site() {
                is_busy = true;
                let other = &mut servers[usize::from(to) - 1];
                other.shard.site_message(SITES[at], &message, other.now).expect("it is one");
                other.settle();
            }
            while let Some((to, position)) = servers[at].shard.poll_site_state() {
                is_busy = true;
                let slices = servers[at].snapshot.clone();
                let other = &mut servers[usize::from(to) - 1];
                for (number, slice) in slices.iter().enumerate() {
                    other.shard.site_state(u8::from(number == 0), slice, other.now);
                }
                other.shard.site_state_ended(to, SITES[at], position, other.now);
                other.settle();
            }
        }
    }
}

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

fn path(znode: usize) -> String {
    format!("/bench/znode-{znode:05}")
}

fn create(path: &str) -> Vec<u8> {
    request(Opcode::Create, |out| encode::create(out, path, Some(DATA), OPEN_ACL, 0, None))
}

fn set(path: &str) -> Vec<u8> {
    request(Opcode::SetData, |out| encode::set_data(out, path, Some(DATA), -1))
}

fn get(path: &str) -> Vec<u8> {
    request(Opcode::GetData, |out| encode::path_watch(out, path, false))
}

/// Time this thread has spent on a CPU: what others do on the machine does not count.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    Duration::from_nanos(stat.split(' ').next().and_then(|field| field.parse().ok()).expect("a number"))
}

/// What arrives in each turn: all znodes in order, so many at a time.
fn turns(make: fn(&str) -> Vec<u8>, together: usize) -> Vec<Vec<u8>> {
    let all: Vec<Vec<u8>> =
        (0..ZNODES.next_multiple_of(together)).map(|at| make(&path(at % ZNODES))).collect();
    all.chunks(together).map(<[_]>::concat).collect()
}

/// Some turns: what is counted is in here, and nothing else.
#[inline(never)]
fn counted(server: &mut Server, client: ConnectionId, turns: &[Vec<u8>], together: usize, count: usize) {
    for bytes in turns.iter().cycle().take(count) {
        server.turn(client, bytes, together);
        server.ship();
    }
}

/// Nanoseconds of each request, when so many arrive together.
fn measure(server: &mut Server, client: ConnectionId, make: fn(&str) -> Vec<u8>, together: usize) -> f64 {
    let (turns, count) = (turns(make, together), WRITES / together);
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let began = cpu_time();
        counted(server, client, &turns, together, count);
        best = best.min(cpu_time() - began);
    }
    best.as_nanos() as f64 / (count * together) as f64
}

/// The server that is measured, and its client.
fn made(who: &str) -> (Server, ConnectionId) {
    let mut server = match who {
        "leaf" => sites(LEAF).swap_remove(1),
        "hub" => sites(HUB).swap_remove(0),
        _ => Server::new(None),
    };
    let client = server.connect();
    if who == "alone" {
        server.turn(client, &create("/bench"), 1);
        (0..ZNODES).for_each(|znode| server.turn(client, &create(&path(znode)), 1));
    }
    server.ship();
    (server, client)
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| wanted.get(at).and_then(|count| count.parse::<usize>().ok());
    if let (Some(who), Some(count)) = (wanted.first(), number(1)) {
        let together = number(2).unwrap_or(1);
        let (mut server, client) = made(who);
        counted(&mut server, client, &turns(set, together), together, count);
        return;
    }
    println!("{:<10}{:>10}{:>10}{:>10}{:>10}", "ns", "set", "64 sets", "get", "64 gets");
    for who in ["alone", "leaf", "hub"] {
        if wanted.first().is_some_and(|wanted| wanted != who) {
            continue;
        }
        let (mut server, client) = made(who);
        print!("{who:<10}");
        for (make, together) in [(set as fn(&str) -> Vec<u8>, 1), (set, 64), (get, 1), (get, 64)] {
            print!("{:>10.0}", measure(&mut server, client, make, together));
        }
        println!();
    }
}
