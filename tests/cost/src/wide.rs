//! Many children, or one request with many operations.

use crate::ask::{self, ADD_RECURSIVE, CONTAINER, EPHEMERAL, PERSISTENT};
use crate::count::counted;
use crate::world::{World, config};
use crate::{Operation, constant, linear};
use stoa_core::Config;
use stoa_wire::Opcode;

const CHILDREN: usize = 1000;

/// One request about a znode with so many children, `/w`.
fn ask(children: usize, request: &[u8]) {
    let mut world = World::new();
    let client = world.client();
    world.create_wide(client, "/w", children, PERSISTENT);
    world.count(client, request);
    assert_eq!(world.last_error(), 0);
}

/// One multi, or multiRead, of so many operations about znodes at `/w`, which are there.
fn multi(count: usize, opcode: Opcode, op: impl Fn(usize) -> Vec<u8>, err: i32) {
    let mut world = World::new();
    let client = world.client();
    world.create_wide(client, "/w", count, PERSISTENT);
    world.count(client, &ask::multi(opcode, (0..count).map(op)));
    assert_eq!(world.last_error(), err);
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("wide: getChildren", CHILDREN, |n| ask(n, &ask::read(Opcode::GetChildren, "/w", true))),
    linear("wide: getChildren2", CHILDREN, |n| ask(n, &ask::read(Opcode::GetChildren2, "/w", true))),
    linear("wide: getAllChildrenNumber", CHILDREN, |n| {
        ask(n, &ask::of_path(Opcode::GetAllChildrenNumber, "/w"));
    }),
    constant("wide: getData of the parent", CHILDREN, |n| ask(n, &ask::read(Opcode::GetData, "/w", false))),
    constant("wide: getAllChildrenNumber of the root", CHILDREN, |n| {
        ask(n, &ask::of_path(Opcode::GetAllChildrenNumber, "/"));
    }),
    constant("wide: create", CHILDREN, |n| ask(n, &ask::create("/w/new", PERSISTENT))),
    constant("wide: delete", CHILDREN, |n| ask(n, &ask::delete("/w/7"))),
    constant("wide: setData of a child", CHILDREN, |n| ask(n, &ask::set_data("/w/7"))),
    constant("wide: delete the parent, which is refused", CHILDREN, |n| {
        let mut world = World::new();
        let client = world.client();
        world.create_wide(client, "/w", n, PERSISTENT);
        world.count(client, &ask::delete("/w"));
        assert_ne!(world.last_error(), 0);
    }),
    linear("wide: create so many, one after the other", CHILDREN, |n| {
        let mut world = World::new();
        let client = world.client();
        world.turn(client, &ask::create("/w", PERSISTENT));
        counted(&mut || world.create_children(client, "/w", n, PERSISTENT));
    }),
    linear("wide: delete so many, one after the other", CHILDREN, |n| {
        let mut world = World::new();
        let client = world.client();
        world.create_wide(client, "/w", n, PERSISTENT);
        let deletes: Vec<Vec<u8>> = (0..n).map(|number| ask::delete(&format!("/w/{number}"))).collect();
        counted(&mut || deletes.iter().for_each(|delete| world.turn(client, delete)));
    }),
    linear("wide: multi of setData", CHILDREN, |n| {
        multi(n, Opcode::Multi, |number| ask::set_data(&format!("/w/{number}")), 0);
    }),
    linear("wide: multi of setData of one znode", CHILDREN, |n| {
        multi(n, Opcode::Multi, |_| ask::set_data("/w/0"), 0);
    }),
    linear("wide: multi of check", CHILDREN, |n| {
        multi(n, Opcode::Multi, |number| ask::check(&format!("/w/{number}")), 0);
    }),
    linear("wide: multi of delete", CHILDREN, |n| {
        multi(n, Opcode::Multi, |number| ask::delete(&format!("/w/{number}")), 0);
    }),
    linear("wide: multi of create", CHILDREN, |n| {
        multi(n, Opcode::Multi, |number| ask::create(&format!("/w/new-{number}"), PERSISTENT), 0);
    }),
    linear("wide: multi of create and delete of one znode", CHILDREN, |n| {
        let op = |number| match number % 2 {
            0 => ask::create("/w/new", PERSISTENT),
            _ => ask::delete("/w/new"),
        };
        multi(n, Opcode::Multi, op, 0);
    }),
    linear("wide: multi of create that fails with its last operation", CHILDREN, |n| {
        let op = |number| match number {
            _ if number == n - 1 => ask::create("/w/0", PERSISTENT),
            _ => ask::create(&format!("/w/new-{number}"), PERSISTENT),
        };
        multi(n, Opcode::Multi, op, 0);
    }),
    linear("wide: multi of create, each below the one before", CHILDREN / 4, |n| {
        let path = ask::deep(n);
        let mut world = World::new();
        let client = world.client();
        // The last levels: their paths are as long as they can be.
        let levels = 20;
        world.create_deep(client, n - levels);
        let creates = (n - levels + 1..=n).map(|level| ask::create(&path[..2 * level], PERSISTENT));
        world.count(client, &ask::multi(Opcode::Multi, creates));
        assert_eq!(world.last_error(), 0);
    }),
    linear("wide: multiRead of getData", CHILDREN, |n| {
        multi(n, Opcode::MultiRead, |number| ask::read(Opcode::GetData, &format!("/w/{number}"), false), 0);
    }),
    linear("wide: multiRead, nothing there", CHILDREN, |n| {
        multi(n, Opcode::MultiRead, |number| ask::read(Opcode::GetData, &format!("/x/{number}"), false), 0);
    }),
    linear("wide: multi under a recursive watch", CHILDREN, |n| {
        let mut world = World::new();
        let (client, watcher) = (world.client(), world.client());
        world.create_wide(client, "/w", n, PERSISTENT);
        world.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE));
        world.count(
            client,
            &ask::multi(Opcode::Multi, (0..n).map(|number| ask::set_data(&format!("/w/{number}")))),
        );
    }),
    linear("wide: containers are reaped", CHILDREN, |n| {
        let mut world = World::with(
            Default::default(),
            Config { reaping: stoa_core::Reaping { interval_ms: 1000, max: 10_000 }, ..config() },
        );
        let client = world.client();
        world.create_wide(client, "/w", n, CONTAINER);
        for number in 0..n {
            let child = format!("/w/{number}/child");
            world.turn(client, &[ask::create(&child, PERSISTENT), ask::delete(&child)].concat());
        }
        world.pass(2000);
        counted(&mut || {
            let now = world.now;
            world.server.tick(now);
            world.settle();
        });
        assert_eq!(world.server.stats().containers_deleted, n as u64);
    }),
    linear("wide: getEphemerals", CHILDREN, |n| {
        let mut world = World::new();
        let client = world.client();
        world.create_wide(client, "/w", n, EPHEMERAL);
        world.count(client, &ask::of_path(Opcode::GetEphemerals, "/"));
        assert!(world.last.len() > n * 4);
    }),
];
