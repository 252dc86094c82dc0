//! Requests while much is proposed and not applied.

use crate::ask::{self, EPHEMERAL, PERSISTENT};
use crate::count::counted;
use crate::world::{Client, World};
use crate::{Operation, constant, linear};
use stoa_wire::Opcode;

const REQUESTS: usize = 1000;

/// Two clients, and so many creates of the first that are not applied.
fn creates(count: usize) -> (World, [Client; 2]) {
    let mut world = World::new();
    let clients = [world.client(), world.client()];
    world.turn(clients[0], &ask::create("/w", PERSISTENT));
    for number in 0..count {
        world.arrive(clients[0], &ask::create(&format!("/w/{number}"), PERSISTENT));
    }
    (world, clients)
}

/// Outstanding requests of one client, each by itself.
fn pipeline(count: usize, request: impl Fn(usize) -> Vec<u8>) {
    let mut world = World::new();
    let client = world.client();
    world.create_wide(client, "/w", 10, PERSISTENT);
    let requests: Vec<u8> = (0..count).flat_map(request).collect();
    counted(&mut || {
        world.arrive(client, &requests);
        world.settle();
    });
}

/// So many sessions whose ends are not applied, each with an ephemeral at `/w`.
fn closing(count: usize) -> (World, Client) {
    let mut world = World::new();
    let client = world.client();
    world.turn(client, &ask::create("/w", PERSISTENT));
    world.turn(client, &ask::create("/w/stays", PERSISTENT));
    let others: Vec<Client> = (0..count).map(|_| world.client()).collect();
    for (number, other) in others.iter().enumerate() {
        world.turn(*other, &ask::create(&format!("/w/{number}"), EPHEMERAL));
    }
    others.iter().for_each(|other| world.arrive(*other, &ask::close_session()));
    (world, client)
}

/// One session that is closing, with so many ephemerals at `/w`, and a client with a znode of its own there.
fn closing_with(ephemerals: usize) -> (World, Client) {
    let mut world = World::new();
    let (client, other) = (world.client(), world.client());
    world.turn(client, &ask::create("/w", PERSISTENT));
    world.turn(client, &ask::create("/w/stays", PERSISTENT));
    world.create_children(other, "/w", ephemerals, EPHEMERAL);
    world.arrive(other, &ask::close_session());
    (world, client)
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("outstanding: many creates of one client", REQUESTS, |n| {
        pipeline(n, |number| ask::create(&format!("/w/new-{number}"), PERSISTENT));
    }),
    linear("outstanding: many setData of one client", REQUESTS, |n| {
        pipeline(n, |number| ask::set_data(&format!("/w/{}", number % 10)));
    }),
    linear("outstanding: many reads behind a write", REQUESTS, |n| {
        pipeline(n, |number| match number {
            0 => ask::set_data("/w/0"),
            _ => ask::read(Opcode::GetData, "/w/0", false),
        });
    }),
    linear("outstanding: reads and writes in turn", REQUESTS, |n| {
        pipeline(n, |number| match number % 2 {
            0 => ask::set_data("/w/0"),
            _ => ask::read(Opcode::GetData, "/w/0", false),
        });
    }),
    linear("outstanding: many refusals behind a write", REQUESTS, |n| {
        pipeline(n, |number| match number {
            0 => ask::set_data("/w/0"),
            _ => ask::create("/w/0", PERSISTENT),
        });
    }),
    linear("outstanding: refusals and writes in turn", REQUESTS, |n| {
        pipeline(n, |number| match number % 2 {
            0 => ask::set_data("/w/0"),
            _ => ask::create("/w/0", PERSISTENT),
        });
    }),
    linear("outstanding: many syncs", REQUESTS, |n| pipeline(n, |_| ask::of_path(Opcode::Sync, "/w"))),
    linear("outstanding: delete what is outstanding", REQUESTS, |n| {
        let (mut world, [client, _]) = creates(n);
        let deletes: Vec<u8> = (0..n).flat_map(|number| ask::delete(&format!("/w/{number}"))).collect();
        counted(&mut || {
            world.arrive(client, &deletes);
            world.settle();
        });
    }),
    constant("outstanding: another client's create is prepared", REQUESTS, |n| {
        let (mut world, [_, other]) = creates(n);
        let create = ask::create("/w/other", PERSISTENT);
        counted(&mut || world.arrive(other, &create));
    }),
    constant("outstanding: another client's delete of the parent is refused", REQUESTS, |n| {
        let (mut world, [_, other]) = creates(n);
        let delete = ask::delete("/w");
        counted(&mut || world.arrive(other, &delete));
    }),
    constant("outstanding: another client's getChildren", REQUESTS, |n| {
        let (mut world, [_, other]) = creates(n);
        let read = ask::read(Opcode::GetChildren, "/w", false);
        counted(&mut || world.arrive(other, &read));
    }),
    constant("outstanding: another client's multi is refused", REQUESTS, |n| {
        let (mut world, [_, other]) = creates(n);
        let multi =
            ask::multi(Opcode::Multi, [ask::create("/w/other", PERSISTENT), ask::create("/w/0", PERSISTENT)]);
        counted(&mut || world.arrive(other, &multi));
    }),
    constant("outstanding: another client closes its session", REQUESTS, |n| {
        let (mut world, [_, other]) = creates(n);
        let close = ask::close_session();
        counted(&mut || world.arrive(other, &close));
    }),
    linear(
        "outstanding: deletes of a parent whose children's sessions end, all refused",
        REQUESTS / 4,
        |n| {
            let (mut world, client) = closing(n);
            let deletes: Vec<u8> = (0..n).flat_map(|_| ask::delete("/w")).collect();
            counted(&mut || world.arrive(client, &deletes));
        },
    ),
    linear("outstanding: deletes of a parent, one of whose children's session ends", REQUESTS / 2, |n| {
        let (mut world, client) = closing_with(n);
        let deletes: Vec<u8> = (0..n).flat_map(|_| ask::delete("/w")).collect();
        counted(&mut || world.arrive(client, &deletes));
    }),
    linear("outstanding: deletes of other parents while a session ends", REQUESTS / 4, |n| {
        let (mut world, client) = closing_with(1);
        // Each of them has a child that is created and deleted again, so that it is looked at.
        for number in 0..n {
            let (parent, child) = (format!("/p-{number}"), format!("/p-{number}/c"));
            world.arrive(client, &ask::create(&parent, PERSISTENT));
            world.arrive(client, &ask::create(&child, PERSISTENT));
        }
        let deletes: Vec<u8> = (0..n).flat_map(|number| ask::delete(&format!("/p-{number}"))).collect();
        counted(&mut || world.arrive(client, &deletes));
    }),
];
