//! Paths with as many levels as the size says: what an operation costs may grow with the bytes of the path.

use crate::ask::{self, ADD_PERSISTENT, ADD_RECURSIVE, ANY, CONTAINER, EPHEMERAL, PERSISTENT};
use crate::count::counted;
use crate::world::{Client, World, config};
use crate::{Operation, linear};
use stoa_core::Config;
use stoa_wire::{OPEN_ACL, Opcode};

/// How deep paths are; at four times that they are still set up in no time.
const LEVELS: usize = 200;

/// A tree that is as deep, and one request about its deepest znode.
fn ask(levels: usize, request: impl FnOnce(&str) -> Vec<u8>) {
    watched(levels, |_, _| (), request);
}

/// The same with watches that are set before, by a client of their own.
fn watched(levels: usize, watch: impl FnOnce(&mut World, Client), request: impl FnOnce(&str) -> Vec<u8>) {
    let mut world = World::new();
    let (client, watcher) = (world.client(), world.client());
    let path = world.create_deep(client, levels);
    watch(&mut world, watcher);
    // Once outside of the count, and once again where that is possible: so tables have grown.
    world.count(client, &request(&path));
    assert_eq!(world.last_error(), 0);
}

/// A request about what is not there.
fn missing(levels: usize, request: impl FnOnce(&str) -> Vec<u8>) {
    let mut world = World::new();
    let client = world.client();
    world.count(client, &request(&ask::deep(levels)));
}

fn child(path: &str) -> String {
    format!("{path}/child")
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("deep: getData", LEVELS, |n| ask(n, |path| ask::read(Opcode::GetData, path, false))),
    linear("deep: getData with a watch", LEVELS, |n| ask(n, |path| ask::read(Opcode::GetData, path, true))),
    linear("deep: exists", LEVELS, |n| ask(n, |path| ask::read(Opcode::Exists, path, true))),
    linear("deep: getChildren", LEVELS, |n| ask(n, |path| ask::read(Opcode::GetChildren, path, true))),
    linear("deep: getChildren2", LEVELS, |n| ask(n, |path| ask::read(Opcode::GetChildren2, path, true))),
    linear("deep: getACL", LEVELS, |n| ask(n, |path| ask::of_path(Opcode::GetAcl, path))),
    linear("deep: setACL", LEVELS, |n| ask(n, |path| ask::set_acl(path, OPEN_ACL))),
    linear("deep: setData", LEVELS, |n| ask(n, ask::set_data)),
    linear("deep: create", LEVELS, |n| ask(n, |path| ask::create(&child(path), PERSISTENT))),
    linear("deep: create a container", LEVELS, |n| ask(n, |path| ask::create(&child(path), CONTAINER))),
    linear("deep: create an ephemeral", LEVELS, |n| ask(n, |path| ask::create(&child(path), EPHEMERAL))),
    linear("deep: delete", LEVELS, |n| ask(n, ask::delete)),
    linear("deep: sync", LEVELS, |n| ask(n, |path| ask::of_path(Opcode::Sync, path))),
    linear("deep: getAllChildrenNumber", LEVELS, |n| {
        ask(n, |path| ask::of_path(Opcode::GetAllChildrenNumber, path));
    }),
    linear("deep: getAllChildrenNumber of the top", LEVELS, |n| {
        ask(n, |_| ask::of_path(Opcode::GetAllChildrenNumber, "/d"));
    }),
    linear("deep: multi of two", LEVELS, |n| {
        ask(n, |path| ask::multi(Opcode::Multi, [ask::check(path), ask::set_data(path)]));
    }),
    linear("deep: addWatch, recursive", LEVELS, |n| ask(n, |path| ask::add_watch(path, ADD_RECURSIVE))),
    linear("deep: exists, nothing there", LEVELS, |n| {
        missing(n, |path| ask::read(Opcode::Exists, path, true));
    }),
    linear("deep: getData, nothing there", LEVELS, |n| {
        missing(n, |path| ask::read(Opcode::GetData, path, false));
    }),
    linear("deep: setData, nothing there", LEVELS, |n| missing(n, ask::set_data)),
    linear("deep: create, nothing there", LEVELS, |n| missing(n, |path| ask::create(path, PERSISTENT))),
    linear("deep: delete, nothing there", LEVELS, |n| missing(n, ask::delete)),
    linear("deep: checkWatches, none there", LEVELS, |n| {
        missing(n, |path| ask::path_number(Opcode::CheckWatches, path, ANY));
    }),
    linear("deep: checkWatches", LEVELS, |n| {
        let mut world = World::new();
        let (client, path) = (world.client(), ask::deep(n));
        world.turn(client, &ask::add_watch(&path, ADD_PERSISTENT));
        world.count(client, &ask::path_number(Opcode::CheckWatches, &path, ANY));
        assert_eq!(world.last_error(), 0);
    }),
    linear("deep: removeWatches", LEVELS, |n| {
        let mut world = World::new();
        let (client, path) = (world.client(), ask::deep(n));
        world.turn(client, &ask::add_watch(&path, ADD_PERSISTENT));
        world.count(client, &ask::path_number(Opcode::RemoveWatches, &path, ANY));
        assert_eq!(world.last_error(), 0);
    }),
    linear("deep: setWatches of 20 paths", LEVELS, |n| {
        let mut world = World::new();
        let client = world.client();
        let path = world.create_deep(client, n);
        let missing: Vec<String> = (0..10).map(|number| format!("{path}/{number}")).collect();
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        let there: Vec<&str> = (0..10).map(|up| &path[..path.len() - 2 * up]).collect();
        let lists = [&there[..], &missing, &there, &there, &there];
        world.count(client, &ask::set_watches(i64::MAX, lists));
    }),
    linear("deep: setData under a data watch", LEVELS, |n| {
        watched(
            n,
            |world, watcher| world.turn(watcher, &ask::read(Opcode::GetData, &ask::deep(n), true)),
            ask::set_data,
        );
    }),
    linear("deep: setData under a persistent watch", LEVELS, |n| {
        watched(
            n,
            |world, watcher| world.turn(watcher, &ask::add_watch(&ask::deep(n), ADD_PERSISTENT)),
            ask::set_data,
        );
    }),
    linear("deep: create under a child watch", LEVELS, |n| {
        watched(
            n,
            |world, watcher| world.turn(watcher, &ask::read(Opcode::GetChildren, &ask::deep(n), true)),
            |path| ask::create(&child(path), PERSISTENT),
        );
    }),
    linear("deep: setData under a recursive watch on the root", LEVELS, |n| {
        watched(n, |world, watcher| world.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE)), ask::set_data);
    }),
    linear("deep: create under a recursive watch on the root", LEVELS, |n| {
        watched(
            n,
            |world, watcher| world.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE)),
            |path| ask::create(&child(path), PERSISTENT),
        );
    }),
    linear("deep: delete under a recursive watch on the root", LEVELS, |n| {
        watched(n, |world, watcher| world.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE)), ask::delete);
    }),
    linear("deep: setData under a recursive watch on every level", LEVELS, |n| {
        let watch_all = |world: &mut World, watcher| {
            let path = ask::deep(n);
            (1..=n).for_each(|level| world.turn(watcher, &ask::add_watch(&path[..2 * level], ADD_RECURSIVE)));
        };
        watched(n, watch_all, ask::set_data);
    }),
    linear("deep: setData under a recursive watch on every level, each another client's", LEVELS / 5, |n| {
        let watch_all = |world: &mut World, _| {
            let path = ask::deep(n);
            for level in 1..=n {
                let watcher = world.client();
                world.turn(watcher, &ask::add_watch(&path[..2 * level], ADD_RECURSIVE));
            }
        };
        // Each is told of the whole path; so it is twice as long, and as many are told of it.
        watched(n * 4, watch_all, ask::set_data);
    }),
    linear("deep: close a session with an ephemeral", LEVELS, |n| {
        let mut world = World::new();
        let (client, watcher) = (world.client(), world.client());
        let path = world.create_deep(client, n);
        world.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE));
        world.turn(client, &ask::create(&child(&path), EPHEMERAL));
        world.count(client, &ask::close_session());
    }),
    linear("deep: getEphemerals with a prefix", LEVELS, |n| {
        let mut world = World::new();
        let client = world.client();
        let path = world.create_deep(client, n);
        world.turn(client, &ask::create(&child(&path), EPHEMERAL));
        world.count(client, &ask::of_path(Opcode::GetEphemerals, &path));
        assert!(world.last.len() > path.len());
    }),
    linear("deep: a container is reaped", LEVELS, |n| {
        let mut world = World::with(
            Default::default(),
            Config { reaping: stoa_core::Reaping { interval_ms: 1000, max: 10_000 }, ..config() },
        );
        let (client, watcher) = (world.client(), world.client());
        let path = world.create_deep(client, n);
        let container = format!("{path}/c");
        world.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE));
        world.turn(client, &ask::create(&container, CONTAINER));
        world.turn(client, &ask::create(&child(&container), PERSISTENT));
        world.turn(client, &ask::delete(&child(&container)));
        world.pass(2000);
        let before = world.frames;
        counted(&mut || {
            let now = world.now;
            world.server.tick(now);
            world.settle();
        });
        assert!(world.frames > before, "the watcher is told");
    }),
];
