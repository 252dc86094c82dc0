//! What a znode costs in memory, and what requests cost in time.
//!
//! `cargo run --release -p stoa-tree --example cost [znodes]`
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use mimalloc::MiMalloc;
use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};
use stoa_tree::{
    Caller, Loader, Options, PartOp, PartResult, Stamp, Tree, Updates, WatchMode, WatcherId, Watches,
};
use stoa_wire::{AclList, Create, OPEN_ACL, Reader, Request, put};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const DATA: &[u8] = &[7; 100];
const BATCH: usize = 64;

struct Bench {
    tree: Tree,
    zxid: i64,
    open: Vec<u8>,
    batch: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let mut open = Vec::new();
        stoa_wire::Acl::encode_list(&mut open, OPEN_ACL.iter().copied());
        Self { tree: Tree::new(Options::default()), zxid: 0, open, batch: Vec::new() }
    }

    fn prepare(&mut self, request: &Request<'_>, session: i64) {
        self.zxid += 1;
        let stamp = Stamp { zxid: self.zxid, time_ms: self.zxid };
        let caller = Caller { session, identities: &[] };
        self.tree.prepare(request, &caller, stamp, &mut self.batch).expect("the request is right");
    }

    fn apply(&mut self) {
        for update in Updates::new(&self.batch) {
            self.tree.apply(&update.expect("just encoded"), &mut ()).expect("just prepared");
        }
        self.batch.clear();
    }

    fn create(&mut self, path: &str, flags: i32, session: i64) {
        let open = std::mem::take(&mut self.open);
        let acl = AclList::decode(&mut Reader::new(&open)).expect("encoded above");
        self.prepare(&Request::Create(Create { path, data: Some(DATA), acl, flags, ttl_ms: 0 }), session);
        self.open = open;
    }

    /// A part of one step of the server's own; adds the time of it.
    fn part(&mut self, op: PartOp<'_>, time: Duration) -> (PartResult, Duration) {
        let mut part = self.tree.part_begin(Stamp { zxid: self.zxid, time_ms: self.zxid }, 0);
        let (elapsed, result) = timed(|| self.tree.part_op(&mut part, op, &Caller::SERVER));
        self.tree.part_keep(part, &mut self.batch);
        (result.expect("the step is right"), time + elapsed)
    }

    /// Calls `each` with 0..count, in batches that are applied together.
    fn run(&mut self, count: usize, mut each: impl FnMut(&mut Self, usize)) -> Duration {
        let start = cpu_time();
        for from in (0..count).step_by(BATCH) {
            for n in from..(from + BATCH).min(count) {
                each(self, n);
            }
            self.apply();
        }
        cpu_time() - start
    }
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("a number");
    pages * 4096
}

fn report(what: &str, elapsed: Duration, count: usize) {
    println!("{what:<44} {:>8.0} ns", elapsed.as_nanos() as f64 / count as f64);
}

/// Time this thread has spent on a CPU: what others do on the machine does not count.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    Duration::from_nanos(stat.split(' ').next().and_then(|field| field.parse().ok()).expect("a number"))
}

/// Runs `f`, and says how much CPU time it took.
fn timed<T>(f: impl FnOnce() -> T) -> (Duration, T) {
    let start = cpu_time();
    let value = f();
    (cpu_time() - start, value)
}

/// A cheap spread of 0..count over itself.
fn scatter(n: usize, count: usize) -> usize {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count
}

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let parents = (count / 1_000).max(1);
    let mut bench = Bench::new();
    bench.run(parents, |bench, n| bench.create(&format!("/dir-{n:04}"), 0, 0));
    let paths: Vec<String> = (0..count).map(|n| format!("/dir-{:04}/key{:07}", n % parents, n)).collect();

    let before = resident();
    let elapsed = bench.run(count, |bench, n| bench.create(&paths[n], 0, 0));
    report("create: prepare + apply", elapsed, count);
    println!(
        "{:<44} {:>8.1} B   (name 10 B, data {} B)",
        "memory of a leaf",
        (resident() - before) as f64 / count as f64,
        DATA.len()
    );

    reads(&bench.tree, &paths);
    writes(&mut bench, &paths);
    snapshot(&mut bench, &paths);
    flat(count.min(100_000));
    moves(&mut bench, count.min(10_000));
    watches(&paths);
}

fn reads(tree: &Tree, paths: &[String]) {
    let count = paths.len();
    let get = |path: &str| {
        black_box(tree.get(path).map(|znode| (znode.stat(), znode.data().map(<[u8]>::len))));
    };
    let (elapsed, ()) = timed(|| (0..count).for_each(|n| get(&paths[scatter(n, count)])));
    report("get + stat, random of all", elapsed, count);
    let few = 10_000.min(count);
    let (elapsed, ()) = timed(|| (0..count).for_each(|n| get(&paths[scatter(n, few)])));
    report("get + stat, random of 10,000", elapsed, count);
    let (elapsed, ()) = timed(|| (0..count).for_each(|n| get(&paths[n % 10])));
    report("get + stat, 10 hot ones", elapsed, count);
}

fn writes(bench: &mut Bench, paths: &[String]) {
    let count = paths.len();
    let set = |path: &'static str| Request::SetData { path, data: Some(DATA), version: -1 };
    let elapsed = bench.run(count, |bench, _| bench.prepare(&set("/dir-0000/key0000000"), 0));
    report("setData of one: prepare + apply", elapsed, count);
    let elapsed = bench.run(count, |bench, n| {
        let path = &paths[scatter(n, 10_000.min(count))];
        bench.prepare(&Request::SetData { path, data: Some(DATA), version: -1 }, 0);
    });
    report("setData, random of 10,000: prepare + apply", elapsed, count);
    let elapsed = bench.run(count, |bench, n| {
        let path = &paths[scatter(n, count)];
        bench.prepare(&Request::SetData { path, data: Some(DATA), version: -1 }, 0);
    });
    report("setData, random of all: prepare + apply", elapsed, count);
    let mut worst = Duration::ZERO;
    let parent = "/dir-0000";
    for n in 0..count {
        let path = format!("{parent}/more{n:07}");
        let start = Instant::now();
        bench.create(&path, 0, 0);
        bench.apply();
        worst = worst.max(start.elapsed());
    }
    println!("{:<44} {:>8.0} us", "slowest of as many more creates", worst.as_nanos() as f64 / 1e3);
    let elapsed = bench.run(count, |bench, n| {
        bench.prepare(&Request::Delete { path: &format!("{parent}/more{n:07}"), version: -1 }, 0);
    });
    report("delete: prepare + apply", elapsed, count);
}

fn snapshot(bench: &mut Bench, paths: &[String]) {
    let start = Instant::now();
    bench.tree.snapshot_begin();
    println!("{:<44} {:>8.0} us", "snapshot: begin", start.elapsed().as_nanos() as f64 / 1e3);
    let mut slices = Vec::new();
    let mut worst = Duration::ZERO;
    let mut total = Duration::ZERO;
    let mut more = true;
    while more {
        let mut slice = Vec::with_capacity(80 << 10);
        let start = Instant::now();
        more = bench.tree.snapshot_slice(&mut slice, 64 << 10);
        worst = worst.max(start.elapsed());
        total += start.elapsed();
        slices.push(slice);
    }
    report("snapshot: write, each znode", total, paths.len());
    println!("{:<44} {:>8.0} us", "snapshot: slowest slice of 64 KiB", worst.as_nanos() as f64 / 1e3);
    let (elapsed, loaded) = timed(|| {
        let mut loader = Loader::new(Options::default());
        for slice in &slices {
            loader.chunk(slice).expect("just written");
        }
        loader.finish().expect("just written")
    });
    println!("{:<44} {:>8.0} ms", "snapshot: load all", elapsed.as_secs_f64() * 1e3);
    assert_eq!(loaded.digest(), bench.tree.digest());
}

/// Many children of one znode, many ephemerals of one session.
fn flat(count: usize) {
    let mut bench = Bench::new();
    let stamp = Stamp { zxid: 1, time_ms: 1 };
    bench.zxid = 1;
    bench
        .tree
        .prepare_create_session(7, 1_000, [0; 16], stoa_tree::Contact::default(), stamp, &mut bench.batch)
        .expect("there is no other session");
    bench.apply();
    bench.create("/flat", 0, 0);
    bench.apply();
    let elapsed = bench.run(count, |bench, n| bench.create(&format!("/flat/e{n}"), 1, 7));
    report("create of an ephemeral in one znode", elapsed, count);
    let (elapsed, names) = timed(|| {
        let mut out = Vec::new();
        bench.tree.get("/flat").expect("created above").children().for_each(|name| put::str(&mut out, name));
        out
    });
    black_box(names);
    report("getChildren, each child", elapsed, count);
    let stamp = Stamp { zxid: bench.zxid + 1, time_ms: 1 };
    let start = Instant::now();
    bench.tree.prepare_close_session(7, stamp, &mut bench.batch);
    println!("{:<44} {:>8.1} us", "closeSession: prepare", start.elapsed().as_nanos() as f64 / 1e3);
    let (elapsed, ()) = timed(|| bench.apply());
    report("closeSession: apply, each ephemeral", elapsed, count);
}

/// A subtree that moves to another partition and back, often enough for the clock.
fn moves(bench: &mut Bench, count: usize) {
    const ROUNDS: usize = 50;
    const PATH: &str = "/moving";
    bench.create(PATH, 0, 0);
    bench.run(count - 1, |bench, n| bench.create(&format!("{PATH}/key{n:07}"), 0, 0));
    let mut other = Bench { tree: Tree::new_part(Options::default()), ..Bench::new() };
    let mut times = [Duration::ZERO; 4];
    let mut content = Vec::new();
    for round in 0..2 * ROUNDS {
        let (from, to) = if round % 2 == 0 { (&mut *bench, &mut other) } else { (&mut other, &mut *bench) };
        from.zxid = from.zxid.max(to.zxid) + 1;
        to.zxid = from.zxid;
        let given;
        (given, times[0]) = from.part(PartOp::Give { path: PATH, limit_bytes: usize::MAX }, times[0]);
        let PartResult::Given { content: bytes, .. } = given else { panic!("it gives something") };
        content = bytes;
        times[1] += timed(|| from.apply()).0;
        (_, times[2]) = to.part(PartOp::Take { path: PATH, content: &content }, times[2]);
        times[3] += timed(|| to.apply()).0;
        assert_eq!(to.tree.count_below(PATH), Some(count - 1));
    }
    for (what, time) in ["prepare giving", "apply giving", "prepare taking", "apply taking"].iter().zip(times)
    {
        report(&format!("move: {what}, each znode"), time, 2 * ROUNDS * count);
    }
    println!("{:<44} {:>8.1} B", "move: content of a znode", content.len() as f64 / count as f64);
}

fn watches(paths: &[String]) {
    let mut watches = Watches::new(0);
    let (elapsed, ()) = timed(|| {
        for (n, path) in paths.iter().enumerate() {
            watches.add(path, WatcherId((n % 1_000) as u64), WatchMode::Data);
        }
    });
    report("watch: add", elapsed, paths.len());
    for path in paths {
        watches.add(path, WatcherId(1_000), WatchMode::Data);
    }
    let (elapsed, _) = timed(|| watches.take_below("/none", |_| false));
    report("watch: look for those that move, each path", elapsed, paths.len());
    let (elapsed, ()) = timed(|| watches.remove_watcher(WatcherId(1_000)));
    report("watch: remove a watcher, each watch", elapsed, paths.len());
}
