//! What is written to disk and read back: snapshots, and the log.

use crate::ask::{self, EPHEMERAL, PERSISTENT};
use crate::count::counted;
use crate::world::{World, config};
use crate::{Operation, constant, linear};
use stoa_core::{Restore, SnapshotOutput};
use stoa_tree::Options;
use stoa_wire::{Acl, Opcode, perms};

const ZNODES: usize = 1000;
const LEVELS: usize = 200;

/// A snapshot of the server, in slices.
fn snapshot(world: &mut World) -> Vec<Vec<u8>> {
    let mut slices = Vec::new();
    world.server.request_snapshot();
    loop {
        match world.server.poll_snapshot() {
            Some(SnapshotOutput::Slice { bytes, .. }) => {
                slices.push(bytes);
                world.server.snapshot_taken();
            }
            Some(SnapshotOutput::Begin { head, .. }) => slices.push(head),
            Some(SnapshotOutput::End { .. }) => return slices,
            Some(SnapshotOutput::Abort { .. }) | None => panic!("nothing keeps it from being taken"),
        }
    }
}

fn restore(slices: &[Vec<u8>]) -> Restore {
    let mut restore = Restore::new(Options::default(), &[1], 1);
    restore.snapshot_begin(1);
    slices.iter().for_each(|slice| restore.snapshot_chunk(slice).expect("it was just written"));
    restore.snapshot_end().expect("it was just written");
    restore
}

/// Writes it and reads it again.
fn write_and_read(mut world: World) {
    let digest = world.server.tree().digest();
    let mut restored = None;
    counted(&mut || restored = Some(restore(&snapshot(&mut world))));
    let recovered = restored.expect("it was read").finish(1).expect("it was just written");
    assert_eq!(recovered[0].tree.digest(), digest);
}

/// Reads the log of everything that was done.
fn replay(world: &mut World) {
    let records = world.records.take().expect("they are kept");
    let mut zxid = 0;
    counted(&mut || {
        let mut restore = Restore::new(Options::default(), &[1], 1);
        for (position, record) in &records {
            restore.record(*position, record).expect("it was just written");
        }
        let recovered = restore.finish(1).expect("it was just written");
        zxid = recovered[0].tree.last_zxid();
    });
    assert_eq!(zxid, world.server.tree().last_zxid());
}

fn wide(count: usize) -> World {
    let mut world = World::new();
    let client = world.client();
    world.create_wide(client, "/w", count, PERSISTENT);
    world
}

fn deep(levels: usize) -> World {
    let mut world = World::new();
    let client = world.client();
    world.create_deep(client, levels);
    world
}

fn different_acls(count: usize) -> World {
    let mut world = World::new();
    let client = world.client();
    world.turn(client, &ask::create("/a", PERSISTENT));
    for number in 0..count {
        let id = format!("user-{number}:hash");
        let acl = [Acl { perms: perms::ALL, scheme: "digest", id: &id }];
        world.turn(client, &ask::create_with(&format!("/a/{number}"), PERSISTENT, &acl));
    }
    world
}

/// A server that keeps what it has logged.
fn logged() -> World {
    World { records: Some(Vec::new()), ..World::unsettled(Options::default(), config()) }
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("stored: a snapshot of a wide tree, written and read", ZNODES, |n| write_and_read(wide(n))),
    linear("stored: a snapshot of a deep tree, written and read", LEVELS, |n| write_and_read(deep(n))),
    linear("stored: a snapshot of many ACLs, written and read", ZNODES / 2, |n| {
        write_and_read(different_acls(n));
    }),
    linear("stored: a snapshot of many sessions, written and read", ZNODES / 4, |n| {
        let mut world = World::new();
        (0..n).for_each(|_| {
            let _ = world.client();
        });
        write_and_read(world);
    }),
    linear("stored: a snapshot of many ephemerals, written and read", ZNODES, |n| {
        let mut world = World::new();
        let client = world.client();
        world.create_wide(client, "/w", n, EPHEMERAL);
        write_and_read(world);
    }),
    constant("stored: setData while a snapshot is under way", ZNODES, |n| {
        let mut world = wide(n);
        let client = world.client();
        world.server.request_snapshot();
        while !matches!(world.server.poll_snapshot(), Some(SnapshotOutput::Slice { .. })) {}
        world.count(client, &ask::set_data("/w/7"));
    }),
    linear("stored: the log of many creates, read", ZNODES, |n| {
        let mut world = logged();
        world.settle();
        let client = world.client();
        world.create_wide(client, "/w", n, PERSISTENT);
        replay(&mut world);
    }),
    linear("stored: the log of one multi, read", ZNODES, |n| {
        let mut world = logged();
        world.settle();
        let client = world.client();
        let creates = (0..n).map(|number| ask::create(&format!("/{number}"), PERSISTENT));
        world.turn(client, &ask::multi(Opcode::Multi, creates));
        replay(&mut world);
    }),
];
