//! Many sessions, and sessions with much.

use crate::ask::{self, ADD_RECURSIVE, EPHEMERAL, PERSISTENT};
use crate::count::counted;
use crate::world::{Client, World};
use crate::{Operation, constant, linear};
use stoa_wire::Opcode;

const SESSIONS: usize = 250;
const EPHEMERALS: usize = 1000;

fn sessions(count: usize) -> (World, Vec<Client>) {
    let mut world = World::new();
    let clients = (0..count).map(|_| world.client()).collect();
    (world, clients)
}

/// A server that is told the time, until its next look for silent sessions.
fn tick(world: &mut World, ms: u64) {
    world.pass(ms);
    let now = world.now;
    world.server.tick(now);
    world.settle();
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("sessions: so many are opened", SESSIONS, |n| {
        let mut world = World::new();
        counted(&mut || {
            (0..n).for_each(|_| {
                let _ = world.client();
            });
        });
    }),
    constant("sessions: one more is opened", SESSIONS, |n| {
        let (mut world, _) = sessions(n);
        counted(&mut || {
            let _ = world.client();
        });
    }),
    constant("sessions: one comes back", SESSIONS, |n| {
        let (mut world, clients) = sessions(n);
        let Client { id, session, password } = clients[n / 2];
        world.server.disconnected(id, world.now);
        let id = world.connect();
        counted(&mut || {
            let _ = world.opened(id, Some((session, password)));
        });
    }),
    constant("sessions: one comes back that has many ephemerals", EPHEMERALS, |n| {
        let mut world = World::new();
        let client = world.client();
        world.create_wide(client, "/w", n, EPHEMERAL);
        world.server.disconnected(client.id, world.now);
        let id = world.connect();
        counted(&mut || {
            let _ = world.opened(id, Some((client.session, client.password)));
        });
    }),
    linear("sessions: all expire", SESSIONS, |n| {
        let (mut world, _) = sessions(n);
        counted(&mut || tick(&mut world, 60_000));
        assert_eq!(world.server.session_count(), 0);
    }),
    constant("sessions: a tick at which none expires", SESSIONS, |n| {
        let (mut world, _) = sessions(n);
        tick(&mut world, 4000);
        counted(&mut || tick(&mut world, 100));
    }),
    constant("sessions: a look for silent ones, after one has come back often", SESSIONS, |n| {
        let mut world = World::new();
        let mut client = world.client();
        for _ in 0..n {
            world.server.disconnected(client.id, world.now);
            let id = world.connect();
            client = world.opened(id, Some((client.session, client.password)));
        }
        // It is heard of in the meantime, so it stays, and is looked at.
        world.pass(20_000);
        world.turn(client, &ask::read(Opcode::Exists, "/", false));
        tick(&mut world, 20_000);
        world.turn(client, &ask::read(Opcode::Exists, "/", false));
        counted(&mut || tick(&mut world, 20_000));
        assert_eq!(world.server.session_count(), 1);
    }),
    linear("sessions: one with many ephemerals is closed", EPHEMERALS, |n| {
        let mut world = World::new();
        let client = world.client();
        world.create_wide(client, "/w", n, EPHEMERAL);
        world.count(client, &ask::close_session());
        assert_eq!(world.server.tree().ephemeral_count(), 0);
    }),
    linear("sessions: the same under a recursive watch", EPHEMERALS, |n| {
        let mut world = World::new();
        let (client, watcher) = (world.client(), world.client());
        world.create_wide(client, "/w", n, EPHEMERAL);
        world.turn(watcher, &ask::add_watch("/", ADD_RECURSIVE));
        world.count(client, &ask::close_session());
    }),
    linear("sessions: many close, each with an ephemeral at one parent", SESSIONS, |n| {
        let (mut world, clients) = sessions(n);
        world.turn(clients[0], &ask::create("/w", PERSISTENT));
        for (number, client) in clients.iter().enumerate() {
            world.turn(*client, &ask::create(&format!("/w/{number}"), EPHEMERAL));
        }
        let close = ask::close_session();
        counted(&mut || {
            clients.iter().for_each(|client| world.arrive(*client, &close));
            world.settle();
        });
        assert_eq!(world.server.tree().ephemeral_count(), 0);
    }),
    linear("sessions: a list of all", SESSIONS, |n| {
        let (world, _) = sessions(n);
        counted(&mut || {
            assert_eq!(world.server.live_sessions().count(), n);
            assert_eq!(world.server.tree().sessions().count(), n);
            assert_eq!(world.server.connections().count(), n);
        });
    }),
    linear("sessions: many pings", EPHEMERALS, |n| {
        let mut world = World::new();
        let client = world.client();
        let pings: Vec<u8> = (0..n).flat_map(|_| ask::hostile(Opcode::Ping, &[])).collect();
        world.count(client, &pings);
    }),
];
