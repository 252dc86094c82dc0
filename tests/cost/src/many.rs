//! Frames as no client sends them.

use crate::ask;
use crate::count::counted;
use crate::world::World;
use crate::{Operation, constant, linear};
use stoa_wire::{MultiHeader, Opcode, RequestHeader, put};

const BYTES: usize = 10_000;

/// What a client says that has a session.
fn say(bytes: &[u8]) {
    let mut world = World::new();
    let client = world.client();
    counted(&mut || {
        let now = world.now;
        world.server.receive(client.id, bytes, now);
        world.settle();
    });
}

/// A body that begins with a count which nothing follows.
fn count_alone(opcode: Opcode, count: i32) -> Vec<u8> {
    let mut body = Vec::new();
    if opcode == Opcode::SetWatches {
        put::i64(&mut body, 0);
    } else {
        put::str(&mut body, "/a");
        put::buffer(&mut body, b"");
    }
    put::i32(&mut body, count);
    ask::hostile(opcode, &body)
}

pub(crate) const OPERATIONS: &[Operation] = &[
    linear("frames: many that are too short", BYTES / 4, |n| {
        say(&(0..n).flat_map(|_| ask::hostile(Opcode::GetData, &[])).collect::<Vec<u8>>());
    }),
    linear("frames: a multi of nothing", BYTES, |n| {
        let mut body = Vec::new();
        for _ in 0..n / 9 {
            MultiHeader { opcode: Opcode::Check as i32, done: false, err: -1 }.encode(&mut body);
        }
        say(&ask::hostile(Opcode::Multi, &body));
    }),
    linear("frames: a multi of multis", BYTES, |n| {
        let mut body = Vec::new();
        for _ in 0..n / 9 {
            MultiHeader { opcode: Opcode::Multi as i32, done: false, err: -1 }.encode(&mut body);
        }
        say(&ask::hostile(Opcode::Multi, &body));
    }),
    linear("frames: a multi of creates that end nowhere", BYTES, |n| {
        let mut body = Vec::new();
        for number in 0..n / 50 {
            MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 }.encode(&mut body);
            body.extend_from_slice(&ask::create(&format!("/{number}"), 0)[12..]);
        }
        say(&ask::hostile(Opcode::Multi, &body));
    }),
    constant("frames: an ACL that says it has very many entries", 1_000_000, |n| {
        say(&count_alone(Opcode::Create, n as i32));
    }),
    constant("frames: a setWatches that says it has very many paths", 1_000_000, |n| {
        say(&count_alone(Opcode::SetWatches, n as i32));
    }),
    linear("frames: a path of slashes", BYTES, |n| say(&ask::create(&"/".repeat(n), 0))),
    linear("frames: a path of dots", BYTES, |n| say(&ask::create(&"/..".repeat(n / 3), 0))),
    linear("frames: a path without slashes", BYTES, |n| say(&ask::set_data(&"a".repeat(n)))),
    linear("frames: one that arrives byte by byte", BYTES / 4, |n| {
        let mut world = World::new();
        let client = world.client();
        let frame = ask::create_data("/a", &vec![7; n]);
        counted(&mut || {
            let now = world.now;
            // What is not consumed is handed in again, with what follows.
            (1..=frame.len()).for_each(|len| {
                world.server.receive(client.id, &frame[..len], now);
            });
            world.settle();
        });
    }),
    constant("frames: one that is far too long is skipped", 10_000_000, |n| {
        let mut frame = Vec::new();
        put::i32(&mut frame, 64_000_000 - n as i32);
        RequestHeader { xid: 1, opcode: Opcode::SetData as i32 }.encode(&mut frame);
        say(&frame);
    }),
];
