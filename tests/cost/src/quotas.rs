//! Quotas, with hard limits in force.

use crate::ask::{self, PERSISTENT};
use crate::world::{Client, World, config};
use crate::{Operation, constant, linear};
use stoa_tree::Options;
use stoa_wire::Opcode;

const ZNODES: usize = 1000;
const LEVELS: usize = 200;

fn world() -> (World, Client) {
    let mut world = World::with(Options { enforce_quota: true, ..Options::default() }, config());
    let client = world.client();
    (world, client)
}

fn limits(path: &str) -> [Vec<u8>; 2] {
    let of = |name: &str| format!("/zookeeper/quota{path}/{name}");
    let (limits, stats): (&[u8], &[u8]) =
        (b"count=-1,bytes=-1=;byteHardLimit=1000000000;countHardLimit=1000000", b"count=0,bytes=0");
    [ask::create_data(&of("zookeeper_limits"), limits), ask::create_data(&of("zookeeper_stats"), stats)]
}

/// Sets a quota on a path right below the root.
fn limit(world: &mut World, client: Client, path: &str) {
    world.turn(client, &ask::create(&format!("/zookeeper/quota{path}"), PERSISTENT));
    world.turn(client, &limits(path).concat());
    assert_eq!(world.last_error(), 0);
}

/// A request about the deepest znode below a quota.
fn deep(levels: usize, request: impl FnOnce(&str) -> Vec<u8>) {
    let (mut world, client) = world();
    let path = world.create_deep(client, levels);
    limit(&mut world, client, "/d");
    world.count(client, &request(&path));
    assert_eq!(world.last_error(), 0);
}

/// A request where there are quotas on many other paths.
fn among(count: usize, request: &[u8]) {
    let (mut world, client) = world();
    world.create_wide(client, "/w", 10, PERSISTENT);
    (0..count).for_each(|number| limit(&mut world, client, &format!("/other-{number}")));
    limit(&mut world, client, "/w");
    world.count(client, request);
    assert_eq!(world.last_error(), 0);
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("quotas: setData deep below one", LEVELS, |n| deep(n, ask::set_data)),
    linear("quotas: create deep below one", LEVELS, |n| {
        deep(n, |path| ask::create(&format!("{path}/child"), PERSISTENT));
    }),
    linear("quotas: delete deep below one", LEVELS, |n| deep(n, ask::delete)),
    linear("quotas: setData deep below none, where there is one elsewhere", LEVELS, |n| {
        let (mut world, client) = world();
        let path = world.create_deep(client, n);
        limit(&mut world, client, "/w");
        world.count(client, &ask::set_data(&path));
    }),
    constant("quotas: setData where there are many others", ZNODES / 4, |n| {
        among(n, &ask::set_data("/w/7"));
    }),
    constant("quotas: setData, where a client has written much into one", 10 * ZNODES, |n| {
        let (mut world, client) = world();
        world.create_wide(client, "/w", 10, PERSISTENT);
        limit(&mut world, client, "/w");
        let data = "x=1;".repeat(n / 4);
        for name in ["zookeeper_limits", "zookeeper_stats"] {
            world.turn(client, &ask::set_data_to(&format!("/zookeeper/quota/w/{name}"), data.as_bytes()));
        }
        world.turn(client, &ask::set_data("/w/7"));
        world.count(client, &ask::set_data("/w/7"));
        assert_eq!(world.last_error(), 0);
    }),
    constant("quotas: create in what is wide", ZNODES, |n| {
        let (mut world, client) = world();
        world.create_wide(client, "/w", n, PERSISTENT);
        limit(&mut world, client, "/w");
        world.count(client, &ask::create("/w/new", PERSISTENT));
    }),
    linear("quotas: one is set on what is wide", ZNODES, |n| {
        let (mut world, client) = world();
        world.create_wide(client, "/w", n, PERSISTENT);
        world.turn(client, &ask::create("/zookeeper/quota/w", PERSISTENT));
        world.count(client, &limits("/w").concat());
    }),
    linear("quotas: a multi of many creates below one", ZNODES, |n| {
        let (mut world, client) = world();
        world.turn(client, &ask::create("/w", PERSISTENT));
        limit(&mut world, client, "/w");
        let creates = (0..n).map(|number| ask::create(&format!("/w/{number}"), PERSISTENT));
        world.count(client, &ask::multi(Opcode::Multi, creates));
        assert_eq!(world.last_error(), 0);
    }),
    linear("quotas: many creates below one, outstanding together", ZNODES, |n| {
        let (mut world, client) = world();
        world.turn(client, &ask::create("/w", PERSISTENT));
        limit(&mut world, client, "/w");
        let creates: Vec<u8> =
            (0..n).flat_map(|number| ask::create(&format!("/w/{number}"), PERSISTENT)).collect();
        world.count(client, &creates);
        assert_eq!(world.last_error(), 0);
    }),
];
