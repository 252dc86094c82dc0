//! Direct clients as they are, against a server as it is: bytes, words between threads and stores arrive in
//! any order that they could, connections are cut, and what clients are told must make sense.
//!
//! Clients write what they have seen into what they write. Whoever reads it knows from then on what he must
//! not be shown any more, and of which watches he must have heard before.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and says how")]

mod threads;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use stoa_client_core::{
    Call, Chroot, Event, Fault, Operation, OperationResult, Output, Protocol, Reply, Settings, SideWish,
    State, WatchId,
};
use stoa_core::ConnectionId;
use stoa_wire::{AddWatchMode, ErrorCode, Stat};
use threads::*;

const PARTITIONS: usize = 4;

/// A connection: what is on its way.
#[derive(Default)]
struct Line {
    name: Option<(u8, ConnectionId)>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

/// A client, and what it knows.
struct User {
    number: u8,
    tops: Vec<String>,
    protocol: Protocol,
    /// The main connection, then those of the partitions.
    lines: Vec<Line>,
    next: u64,
    /// The znodes that its calls are for, and whether they are fast ones.
    calls: BTreeMap<u64, (Vec<usize>, bool)>,
    /// Of each znode, the version that it must not be shown less than.
    seen: [i32; PARTITIONS],
    /// The version after which an event is due.
    watched: [Option<i32>; PARTITIONS],
    watches: BTreeMap<u64, usize>,
    everything: Everything,
    last_done: u64,
    done: usize,
    lost: usize,
    events: usize,
}

/// A watch of the whole tree, which is told of every change.
#[derive(Default)]
struct Everything {
    is_wanted: bool,
    /// The call that sets it.
    asked: Option<u64>,
    is_set: bool,
    /// Of each znode, the zxid of the newest change that was told.
    told: [i64; PARTITIONS],
    /// And of the one that was shown first since the watch was set: that may have happened before.
    first: [Option<i64>; PARTITIONS],
}

impl Everything {
    const ID: WatchId = WatchId(0);

    /// A znode was changed last at this zxid.
    fn shows(&mut self, at: usize, stat: &Stat) {
        if self.is_set {
            let told = self.told[at].max(*self.first[at].get_or_insert(stat.mzxid));
            assert!(stat.mzxid <= told, "{at} is shown as of {}, and told of up to {told}", stat.mzxid);
        }
    }

    fn is_lost(&mut self) {
        (self.asked, self.is_set, self.first) = (None, false, [None; PARTITIONS]);
    }

    fn hears(&mut self, at: usize, zxid: i64) {
        self.told[at] = self.told[at].max(zxid);
    }
}

/// So many of what is on its way arrive: mostly all.
fn some(threads: &mut Threads, count: usize) -> usize {
    if threads.draw(3) == 0 { threads.draw(count + 1) } else { count }
}

fn encode(seen: &[i32; PARTITIONS]) -> Vec<u8> {
    seen.iter().flat_map(|version| version.to_be_bytes()).collect()
}

impl User {
    fn new(number: u8, watches_everything: bool) -> Self {
        let settings = Settings {
            session_timeout_ms: 1_000_000,
            read_only: false,
            chroot: Chroot::default(),
            frame_bytes_max: 1 << 20,
            direct: true,
        };
        Self {
            number,
            tops: tops(PARTITIONS as u8),
            protocol: Protocol::new(settings),
            lines: (0..=PARTITIONS).map(|_| Line::default()).collect(),
            next: 1,
            calls: BTreeMap::new(),
            seen: [0; PARTITIONS],
            watched: [None; PARTITIONS],
            watches: BTreeMap::new(),
            everything: Everything { is_wanted: watches_everything, ..Everything::default() },
            last_done: 0,
            done: 0,
            lost: 0,
            events: 0,
        }
    }

    fn watch_everything(&mut self) {
        let token = self.next;
        self.next += 1;
        self.calls.insert(token, (Vec::new(), false));
        self.everything.asked = Some(token);
        let mode = AddWatchMode::PersistentRecursive;
        self.protocol.submit(token, Call::AddWatch { path: "/".into(), mode, watch: Everything::ID }, 0);
    }

    fn submit(&mut self, threads: &mut Threads) {
        if self.everything.is_wanted && !self.everything.is_set && self.everything.asked.is_none() {
            return self.watch_everything();
        }
        let at = threads.draw(PARTITIONS);
        let path = self.tops[at].clone();
        let data = encode(&self.seen);
        let token = self.next;
        self.next += 1;
        let mut znodes = vec![at];
        let call = match threads.draw(10) {
            0..3 => Call::SetData { path, data, version: None },
            3..6 => Call::GetData { path, watch: None },
            6 => {
                self.watches.insert(token, at);
                Call::GetData { path, watch: Some(WatchId(token)) }
            }
            7 => Call::Fast(Box::new(Call::GetData { path, watch: None })),
            8 => {
                let other = threads.draw(PARTITIONS);
                znodes.push(other);
                let set = |at: &usize| Operation::SetData {
                    path: self.tops[*at].clone(),
                    data: data.clone(),
                    version: None,
                };
                Call::Multi(znodes.iter().map(set).collect())
            }
            _ => Call::Sync { path },
        };
        self.calls.insert(token, (znodes, matches!(call, Call::Fast(_))));
        self.protocol.submit(token, call, 0);
    }

    /// A znode is at least this new.
    fn shows(&mut self, at: usize, version: i32) {
        self.seen[at] = self.seen[at].max(version);
    }

    fn completed(&mut self, token: u64, result: Result<Reply, ErrorCode>) {
        let (znodes, is_fast) = self.calls.remove(&token).unwrap();
        let reply = match result {
            Ok(reply) => reply,
            Err(ErrorCode::ConnectionLoss) => {
                self.lost += 1;
                self.everything.asked.take_if(|asked| *asked == token);
                return;
            }
            Err(code) => panic!("{code}: of {znodes:?}, fast: {is_fast}"),
        };
        self.done += 1;
        if is_fast {
            return;
        }
        assert!(self.last_done < token, "calls are answered in their order");
        self.last_done = token;
        self.everything.is_set |= self.everything.asked == Some(token);
        match reply {
            Reply::Data { data, stat } => {
                let at = znodes[0];
                self.everything.shows(at, &stat);
                assert!(stat.version >= self.seen[at], "user {}: {at} is old", self.number);
                self.shows(at, stat.version);
                let (caused, _) = data.as_chunks::<4>();
                for (of, version) in caused.iter().enumerate() {
                    self.shows(of, i32::from_be_bytes(*version));
                }
                self.check_watches();
                if self.watches.contains_key(&token) {
                    self.watched[at] = Some(stat.version);
                }
            }
            Reply::Stat(stat) => {
                self.everything.shows(znodes[0], &stat);
                self.shows(znodes[0], stat.version);
            }
            Reply::Results(results) => {
                for (at, result) in znodes.iter().zip(results) {
                    let OperationResult::DataSet { stat } = result else { panic!("{result:?}") };
                    self.everything.shows(*at, &stat);
                    self.shows(*at, stat.version);
                }
            }
            _ => {}
        }
        self.check_watches();
    }

    fn check_watches(&self) {
        for (at, watched) in self.watched.iter().enumerate() {
            let is_due = watched.is_some_and(|version| self.seen[at] > version);
            assert!(!is_due, "user {}: no event of {at} before what followed it", self.number);
        }
    }

    fn hears(&mut self, watch: WatchId, event: &Event) {
        self.events += 1;
        if watch == Everything::ID {
            let at = self.tops.iter().position(|top| *top == event.path).unwrap();
            self.everything.hears(at, event.zxid);
        } else {
            self.watched[self.watches[&watch.0]] = None;
        }
    }

    fn poll(&mut self, threads: &mut Threads) {
        while let Some(output) = self.protocol.poll() {
            match output {
                Output::Completed { token, result } => self.completed(token, result),
                Output::Event { watch, event } => self.hears(watch, &event),
                Output::Side(SideWish::Open { partition }) => self.open_side(threads, partition),
                // What happens before it is set again nobody tells: it is set once more, to know when.
                Output::State(State::Suspended) => self.everything.is_lost(),
                Output::Side(SideWish::Close { .. }) | Output::WatchEnded { .. } | Output::State(_) => {}
            }
        }
        let outputs = [self.protocol.output().split_off(0)];
        let sides = (0..PARTITIONS as u8).map(|of| match self.protocol.side_output(of) {
            Some(output) => output.split_off(0),
            None => Vec::new(),
        });
        let outputs: Vec<_> = outputs.into_iter().chain(sides).collect();
        for (line, output) in self.lines.iter_mut().zip(outputs) {
            line.to_server.extend(output);
        }
    }

    fn open_main(&mut self, threads: &mut Threads) {
        let thread = threads.draw(PARTITIONS) as u8;
        let now = threads.now;
        let peer = SocketAddr::from(([10, 0, 0, self.number], 4000));
        self.lines[0].name = Some((thread, threads.shard(thread).connect(peer, now).unwrap()));
        self.protocol.connected(0);
    }

    fn open_side(&mut self, threads: &mut Threads, partition: u8) {
        let now = threads.now;
        let peer = SocketAddr::from(([10, 0, 0, self.number], 4001));
        let id = threads.shard(partition).connect_side(peer, now).unwrap().unwrap();
        self.protocol.side_connected(partition, 0);
        let mut greeting = self.protocol.side_output(partition).unwrap().split_off(0);
        greeting.drain(..5);
        self.lines[usize::from(partition) + 1] =
            Line { name: Some((partition, id)), to_server: greeting, ..Line::default() };
    }

    /// A connection is cut, at both ends.
    fn cut(&mut self, threads: &mut Threads, at: usize) {
        let Some((thread, id)) = std::mem::take(&mut self.lines[at]).name else { return };
        let now = threads.now;
        threads.shard(thread).disconnected(id, now);
        let goes_on = match at.checked_sub(1) {
            Some(partition) => self.protocol.side_disconnected(partition as u8, 0).is_ok(),
            None => false,
        };
        if !goes_on {
            self.begin_anew(threads);
        }
        self.poll(threads);
    }

    fn begin_anew(&mut self, threads: &mut Threads) {
        let now = threads.now;
        for line in &mut self.lines {
            if let Some((thread, id)) = std::mem::take(line).name {
                threads.shard(thread).disconnected(id, now);
            }
        }
        self.protocol.disconnected();
        self.poll(threads);
        self.open_main(threads);
    }

    /// Some bytes of a connection arrive.
    fn carry(&mut self, threads: &mut Threads, at: usize) {
        let Some(client) = self.lines[at].name else { return };
        let is_over =
            threads.shard(client.0).output(client.1).is_empty() && self.lines[at].to_client.is_empty();
        if is_over && threads.closed.iter().any(|(closed, _)| *closed == client) {
            self.cut(threads, at);
            return;
        }
        let line = &mut self.lines[at];
        if threads.draw(2) == 0 && !threads.shard(client.0).is_paused(client.1) {
            let count = some(threads, line.to_server.len());
            let bytes: Vec<u8> = line.to_server.drain(..count).collect();
            let now = threads.now;
            let consumed = threads.shard(client.0).receive(client.1, &bytes, now);
            // What was not taken is handed in again.
            line.to_server.splice(..0, bytes[consumed..].iter().copied());
            threads.poll(client.0);
        }
        let line = &mut self.lines[at];
        line.to_client.extend(threads.take_bytes(client));
        let count = some(threads, line.to_client.len());
        let bytes: Vec<u8> = line.to_client.drain(..count).collect();
        let received = match at.checked_sub(1) {
            None => self.protocol.receive(&bytes, 0),
            Some(partition) => self.protocol.side_receive(partition as u8, &bytes, 0),
        };
        match received {
            // Something has moved while a connection was away.
            Err(Fault::SideLost) => self.begin_anew(threads),
            received => received.unwrap(),
        }
        self.poll(threads);
    }
}

/// Says how to live through a run again that has failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "replay: DIRECT_FIRST={} DIRECT_SEEDS=1 cargo test -p stoa-core --test direct_random",
                self.0
            );
        }
    }
}

/// In every other run connections are cut, and in two of four subtrees are moved all the time.
fn run(seed: u64, watches_everything: bool) -> [usize; 3] {
    let (cuts, moves) = (seed % 2 == 1, seed % 4 >= 2);
    let _seed = Seed(seed);
    let mut threads = Threads::new(PARTITIONS as u8);
    threads.random = seed;
    let tops = tops(PARTITIONS as u8);
    let creator = threads.open(0);
    for top in &tops {
        threads.ask(creator, &create(1, top));
    }
    // They begin with nothing seen.
    for top in &tops {
        threads.ask(creator, &set(2, top, &encode(&[0; PARTITIONS])));
    }
    let mut users: Vec<_> = (1..=3).map(|number| User::new(number, watches_everything)).collect();
    for user in &mut users {
        user.open_main(&mut threads);
        user.poll(&mut threads);
    }
    for step in 0.. {
        let is_over = step > 8000;
        if is_over && step > 200_000 {
            panic!(
                "seed {seed}: calls are not answered: {:?}",
                users.iter().map(|it| &it.calls).collect::<Vec<_>>()
            );
        }
        if is_over && users.iter().all(|user| user.calls.is_empty()) {
            break;
        }
        let number = threads.draw(users.len());
        let user = &mut users[number];
        match threads.draw(12) {
            0 | 11 if !is_over && user.calls.len() < 12 => {
                user.submit(&mut threads);
                user.poll(&mut threads);
            }
            1 if cuts && !is_over && threads.draw(20) == 0 => {
                let at = threads.draw(PARTITIONS + 1);
                user.cut(&mut threads, at);
            }
            1 if moves && !is_over && threads.draw(12) == 0 => {
                let (top, to) = (&tops[threads.draw(PARTITIONS)], threads.draw(PARTITIONS) as u8);
                let _ = threads.shard(0).ask_move(top, to);
            }
            // Threads are quicker than the network.
            2..6 => drop(threads.step()),
            _ => {
                let at = threads.draw(PARTITIONS + 1);
                user.carry(&mut threads, at);
            }
        }
    }
    assert_eq!(threads.shard(0).placement().version() > 0, moves, "seed {seed}");
    let sum = |count: fn(&User) -> usize| users.iter().map(count).sum();
    [sum(|user| user.done), sum(|user| user.lost), sum(|user| user.events)]
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

/// Those that were asked for, or so many and those that failed once.
fn seeds(count: u64, failed: &[u64]) -> Vec<u64> {
    let first = env("DIRECT_FIRST");
    let failed = if first.is_some() { &[] } else { failed };
    let range = first.unwrap_or(0)..first.unwrap_or(0) + env("DIRECT_SEEDS").unwrap_or(count);
    failed.iter().copied().chain(range).collect()
}

fn run_all(seeds: &[u64], watches_everything: bool) -> [usize; 3] {
    let told = seeds.iter().map(|seed| run(*seed, watches_everything));
    told.fold([0; 3], |all, told| [0, 1, 2].map(|of| all[of] + told[of]))
}

#[test]
fn what_clients_are_told_makes_sense() {
    // What found which bug stands in the commits that mended them.
    let seeds = seeds(400, &[907, 1614, 6302, 8810, 13006, 14347, 17727]);
    let all = run_all(&seeds, false);
    let [done, lost, events] = all;
    let enough = done > 20_000 && lost > 500 && events > 1500;
    assert!(enough || seeds.len() < 400, "{all:?}");
}

#[test]
fn who_watches_everything_is_told_of_everything_first() {
    let seeds = seeds(100, &[326, 2956, 3137, 6158]);
    let all = run_all(&seeds, true);
    let [done, lost, events] = all;
    let enough = done > 4_000 && lost > 100 && events > 10_000;
    assert!(enough || seeds.len() < 100, "{all:?}");
}
