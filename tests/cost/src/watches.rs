//! Many watches.

use crate::ask::{self, ADD_PERSISTENT, ADD_RECURSIVE, ANY, PERSISTENT};
use crate::count::counted;
use crate::world::{Client, World};
use crate::{Operation, constant, linear};
use stoa_wire::Opcode;

const WATCHES: usize = 1000;
const WATCHERS: usize = 250;

/// So many clients, each of which has asked for this.
fn watchers(world: &mut World, count: usize, request: &[u8]) -> Vec<Client> {
    let clients: Vec<Client> = (0..count).map(|_| world.client()).collect();
    clients.iter().for_each(|client| world.turn(*client, request));
    clients
}

/// One request, where so many clients have asked for something else.
fn among(count: usize, watch: &[u8], request: &[u8]) {
    let mut world = World::new();
    let client = world.client();
    world.turn(client, &ask::create("/w", PERSISTENT));
    world.turn(client, &ask::create("/w/a", PERSISTENT));
    watchers(&mut world, count, watch);
    world.count(client, request);
    assert_eq!(world.last_error(), 0);
}

/// One client with so many watches on znodes that are not there.
fn many(count: usize) -> (World, Client) {
    let mut world = World::new();
    let client = world.client();
    for number in 0..count {
        world.turn(client, &ask::read(Opcode::Exists, &format!("/w/{number}"), true));
    }
    (world, client)
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("watches: setData that many watch for", WATCHERS, |n| {
        among(n, &ask::read(Opcode::GetData, "/w", true), &ask::set_data("/w"));
    }),
    linear("watches: setData that many watch for, recursively from the root", WATCHERS, |n| {
        among(n, &ask::add_watch("/", ADD_RECURSIVE), &ask::set_data("/w"));
    }),
    linear("watches: create whose parent many watch persistently", WATCHERS, |n| {
        among(n, &ask::add_watch("/w", ADD_PERSISTENT), &ask::create("/w/new", PERSISTENT));
    }),
    constant("watches: setData of a znode whose children many watch", WATCHERS, |n| {
        among(n, &ask::read(Opcode::GetChildren, "/w", true), &ask::set_data("/w"));
    }),
    constant("watches: create below a znode whose data many watch", WATCHERS, |n| {
        among(n, &ask::read(Opcode::GetData, "/w", true), &ask::create("/w/new", PERSISTENT));
    }),
    constant(
        "watches: setData under a recursive watch, where many watch what is above otherwise",
        WATCHERS,
        |n| {
            let mut world = World::new();
            let (client, watcher) = (world.client(), world.client());
            world.turn(client, &ask::create("/w", PERSISTENT));
            world.turn(client, &ask::create("/w/a", PERSISTENT));
            watchers(&mut world, n, &ask::read(Opcode::GetChildren, "/w", true));
            watchers(&mut world, n, &ask::read(Opcode::GetData, "/", true));
            world.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE));
            world.count(client, &ask::set_data("/w/a"));
        },
    ),
    constant("watches: addWatch where many watch", WATCHERS, |n| {
        among(n, &ask::add_watch("/w", ADD_PERSISTENT), &ask::add_watch("/w", ADD_PERSISTENT));
    }),
    constant("watches: checkWatches where many watch", WATCHERS, |n| {
        let mut world = World::new();
        let clients = watchers(&mut world, n, &ask::add_watch("/w", ADD_PERSISTENT));
        world.count(clients[n / 2], &ask::path_number(Opcode::CheckWatches, "/w", ANY));
        assert_eq!(world.last_error(), 0);
    }),
    linear("watches: removeWatches, one client after the other", WATCHERS, |n| {
        let mut world = World::new();
        let clients = watchers(&mut world, n, &ask::add_watch("/w", ADD_PERSISTENT));
        let remove = ask::path_number(Opcode::RemoveWatches, "/w", ANY);
        counted(&mut || clients.iter().for_each(|client| world.turn(*client, &remove)));
    }),
    linear("watches: many clients leave that watch one path", WATCHERS, |n| {
        let mut world = World::new();
        let clients = watchers(&mut world, n, &ask::add_watch("/w", ADD_PERSISTENT));
        counted(&mut || clients.iter().for_each(|client| world.server.disconnected(client.id, world.now)));
    }),
    linear("watches: a client with many leaves", WATCHES, |n| {
        let (mut world, client) = many(n);
        counted(&mut || world.server.disconnected(client.id, world.now));
        assert_eq!(world.server.watches().count(), 0);
    }),
    constant("watches: a client with one leaves, where another has many", WATCHES, |n| {
        let (mut world, _) = many(n);
        let client = world.client();
        world.turn(client, &ask::read(Opcode::Exists, "/w/0", true));
        counted(&mut || world.server.disconnected(client.id, world.now));
    }),
    linear("watches: set so many, one after the other", WATCHES, |n| {
        let mut world = World::new();
        let client = world.client();
        let asked: Vec<Vec<u8>> =
            (0..n).map(|number| ask::read(Opcode::Exists, &format!("/w/{number}"), true)).collect();
        counted(&mut || asked.iter().for_each(|asked| world.turn(client, asked)));
    }),
    linear("watches: remove so many, one after the other", WATCHES, |n| {
        let (mut world, client) = many(n);
        let asked: Vec<Vec<u8>> = (0..n)
            .map(|number| ask::path_number(Opcode::RemoveWatches, &format!("/w/{number}"), ANY))
            .collect();
        counted(&mut || asked.iter().for_each(|asked| world.turn(client, asked)));
        assert_eq!(world.server.watches().count(), 0);
    }),
    constant("watches: setData of another znode, where there are many", WATCHES, |n| {
        let (mut world, client) = many(n);
        world.turn(client, &ask::create("/v", PERSISTENT));
        world.count(client, &ask::set_data("/v"));
    }),
    linear("watches: setWatches of many paths, nothing missed", WATCHES, |n| {
        let mut world = World::new();
        let client = world.client();
        world.create_wide(client, "/w", n, PERSISTENT);
        let paths: Vec<String> = (0..n).map(|number| format!("/w/{number}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        world.count(client, &ask::set_watches(i64::MAX, [&paths, &[], &paths, &paths, &paths]));
        assert_eq!(world.last_error(), 0);
    }),
    linear("watches: setWatches of many paths, all missed", WATCHES, |n| {
        let mut world = World::new();
        let client = world.client();
        let paths: Vec<String> = (0..n).map(|number| format!("/w/{number}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        world.count(client, &ask::set_watches(0, [&paths, &[], &[], &[], &[]]));
    }),
    linear("watches: all that watch, by path", WATCHES, |n| {
        let (world, _) = many(n);
        counted(&mut || {
            let watchers: usize = world.server.watches().by_path().map(|(_, watchers)| watchers.len()).sum();
            assert_eq!(watchers, n);
        });
    }),
    linear("watches: all that watch, by client", WATCHERS, |n| {
        let mut world = World::new();
        watchers(&mut world, n, &ask::read(Opcode::Exists, "/w", true));
        counted(&mut || {
            let watches = world.server.watches();
            assert_eq!(watches.watchers().flat_map(|watcher| watches.paths_of(watcher)).count(), n);
            assert_eq!(watches.summary().watches, n);
        });
    }),
];
