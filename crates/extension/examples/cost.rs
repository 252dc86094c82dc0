//! What a call costs beside a plain write: `cargo run --release -p stoa-extension --example cost`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it measures and says so")]

use std::sync::Arc;
use std::time::Instant;
use stoa_extension::{Limits, OperationKind, Program, Registry, Request, TreeHost, Used};
use stoa_tree::{Caller, Contact, Options, Stamp, Tree, Updates};
use stoa_wire::{AclList, Create, OPEN_ACL, Reader, Request as TreeRequest};

const CALLS: u32 = 200_000;
const ROUNDS: usize = 5;

const COUNTER: &str = r#"
on_operation("read", "/ctr-increment");
fn read(request) {
    let next = local.read("/ctr").data.to_int() + 1;
    local.update("/ctr", next);
    return next;
}
"#;

const QUEUE: &str = r#"
on_operation("read", "/queue/head");
fn read(request) {
    let head = local.sub_objects("/queue")[0];
    local.delete(head.path);
    local.create_sequential("/queue/e-", head.data);
    return head.data;
}
"#;

const QUEUE_BY_OLDEST: &str = r#"
on_operation("read", "/queue/head");
fn read(request) {
    let head = local.oldest("/queue");
    local.delete(head.path);
    local.create_sequential("/queue/e-", head.data);
    return head.data;
}
"#;

const GREEDY: &str = r#"
on_operation("read", "/greedy");
fn read(request) {
    for outer in 0..1000000 {
        for inner in 0..1000000 { }
    }
}
"#;

struct World {
    tree: Tree,
    zxid: i64,
    batch: Vec<u8>,
    noted: usize,
}

impl World {
    fn new() -> Self {
        Self::with_queue(10)
    }

    fn with_queue(length: usize) -> Self {
        let mut world = Self { tree: Tree::new(Options::default()), zxid: 0, batch: Vec::new(), noted: 0 };
        let stamp = world.stamp();
        let contact = Contact::default();
        world.tree.prepare_create_session(1, 5000, [0; 16], contact, stamp, &mut world.batch).unwrap();
        world.apply();
        for (path, data) in [("/ctr", "0"), ("/queue", "")] {
            world.create(path, data.as_bytes());
        }
        for n in 0..length {
            world.create(&format!("/queue/e-{n:010}"), b"payload");
        }
        world
    }

    fn stamp(&mut self) -> Stamp {
        self.zxid += 1;
        Stamp { zxid: self.zxid, time_ms: self.zxid }
    }

    fn apply(&mut self) {
        for update in Updates::new(&self.batch) {
            self.tree.apply(&update.unwrap(), &mut ()).unwrap();
        }
        self.batch.clear();
        self.noted = 0;
    }

    fn create(&mut self, path: &str, data: &[u8]) {
        let mut acl = Vec::new();
        stoa_wire::Acl::encode_list(&mut acl, OPEN_ACL.iter().copied());
        let acl = AclList::decode(&mut Reader::new(&acl)).unwrap();
        let request = TreeRequest::Create(Create { path, data: Some(data), acl, flags: 0, ttl_ms: 0 });
        self.write(&request);
        self.apply();
    }

    fn write(&mut self, request: &TreeRequest<'_>) {
        let (stamp, caller) = (self.stamp(), Caller { session: 1, identities: &[] });
        self.tree.prepare(request, &caller, stamp, &mut self.batch).unwrap();
    }

    /// Notes the contents of what is outstanding, from there on in the batch.
    fn note_contents(&mut self) {
        for update in Updates::new(&self.batch[self.noted..]) {
            self.tree.note_contents(&update.unwrap()).unwrap();
        }
        self.noted = self.batch.len();
    }

    fn call(&mut self, program: &Program, path: &str) {
        assert!(self.succeeds(program, path));
    }

    fn succeeds(&mut self, program: &Program, path: &str) -> bool {
        self.note_contents();
        let request = Request {
            kind: OperationKind::Read,
            path,
            data: b"",
            version: -1,
            session: 1,
            ephemeral: false,
            sequential: false,
        };
        let (stamp, caller) = (self.stamp(), Caller { session: 1, identities: &[] });
        TreeHost::carry_out(&mut self.tree, caller, stamp, &mut self.batch, |host| {
            program.operation(host, &request, &mut Used::default())
        })
        .is_ok()
    }
}

/// The best of several rounds, in nanoseconds a call. Every 64 calls what is outstanding is applied, as it is
/// when entries come back from the disk; that is left out of the time.
fn measure(world: &mut World, mut call: impl FnMut(&mut World)) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let mut spent = std::time::Duration::ZERO;
        for _ in 0..CALLS / 64 {
            let began = Instant::now();
            for _ in 0..64 {
                call(world);
            }
            spent += began.elapsed();
            world.apply();
        }
        best = best.min(spent.as_nanos() as f64 / f64::from(CALLS / 64 * 64));
    }
    best
}

fn main() {
    let limits = Limits::default();
    let began = Instant::now();
    for _ in 0..1000 {
        Program::compile("counter", COUNTER, &limits).unwrap();
    }
    println!("compile the counter: {:.1} us", began.elapsed().as_nanos() as f64 / 1e6);

    let set = TreeRequest::SetData { path: "/ctr", data: Some(b"12345"), version: -1 };
    let ns = measure(&mut World::new(), |world| world.write(&set));
    println!("prepare a setData: {ns:.0} ns");
    let ns = measure(&mut World::new(), |world| {
        world.write(&set);
        world.note_contents();
    });
    println!("prepare a setData, and note its contents: {ns:.0} ns");
    let counter = Program::compile("counter", COUNTER, &limits).unwrap();
    let ns = measure(&mut World::new(), |world| world.call(&counter, "/ctr-increment"));
    println!("increment the counter by a call: {ns:.0} ns");
    for (how, source) in [("all are listed", QUEUE), ("the oldest is asked for", QUEUE_BY_OLDEST)] {
        for length in [10, 50] {
            let queue = Program::compile("queue", source, &limits).unwrap();
            let ns = measure(&mut World::with_queue(length), |world| world.call(&queue, "/queue/head"));
            println!("take from a queue of {length}, and put back, {how}: {ns:.0} ns");
        }
    }

    let greedy = Program::compile("greedy", GREEDY, &limits).unwrap();
    let mut world = World::new();
    let began = Instant::now();
    for _ in 0..1000 {
        assert!(!world.succeeds(&greedy, "/greedy"));
    }
    println!("be stopped after {} steps: {:.0} us", limits.steps, began.elapsed().as_nanos() as f64 / 1e6);

    let mut registry = Registry::default();
    for n in 0..100 {
        let source = format!("on_operation(\"read\", \"/service-{n}/*\"); fn read(r) {{ }}");
        registry.register(Arc::new(Program::compile(&format!("p{n}"), &source, &limits).unwrap())).unwrap();
        registry.acknowledge(7, &format!("p{n}"));
    }
    for (who, session, path) in [
        ("a session without programs", 1, "/service-5/x"),
        ("one of 100 that match nothing", 7, "/ctr"),
        ("one of 100 that match once", 7, "/service-5/x"),
    ] {
        let began = Instant::now();
        let mut found = 0;
        for _ in 0..CALLS {
            found += u32::from(
                registry.operation_for(session, OperationKind::Read, std::hint::black_box(path)).is_some(),
            );
        }
        let ns = began.elapsed().as_nanos() as f64 / f64::from(CALLS);
        println!("look for a program, {who}: {ns:.1} ns ({found} found)");
    }
}
