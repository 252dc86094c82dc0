//! Programs that run inside the service: how many there are, and what they subscribe to.

use crate::ask::{self, EPHEMERAL, PERSISTENT};
use crate::count::counted;
use crate::world::{Client, World, config};
use crate::{Operation, constant, linear};
use stoa_core::{CallLimits, Config, ProgramLimits};
use stoa_tree::Options;
use stoa_wire::Opcode;

const PROGRAMS: usize = 50;
const ZNODES: usize = 250;

fn world() -> (World, Client) {
    let of_call = CallLimits { steps: 100_000_000, memory_bytes: 1 << 30, ..CallLimits::default() };
    let programs = ProgramLimits { programs: 10_000, programs_per_session: 10_000, of_call };
    let mut world = World::with(Options::default(), Config { programs, ..config() });
    let client = world.client();
    (world, client)
}

fn register(world: &mut World, client: Client, name: &str, source: &str) {
    world.turn(client, &ask::create_data(&format!("/em/{name}"), source.as_bytes()));
    assert_eq!(world.last_error(), 0, "{source}");
}

fn of_others(world: &mut World, client: Client, count: usize) {
    for number in 0..count {
        let source = format!(
            "on_operation(\"read\", \"/app-{number}/*\"); fn read(request) {{ }}
             on_event(\"changed\", \"/app-{number}/**\"); fn changed(event) {{ }}"
        );
        register(world, client, &format!("program-{number}"), &source);
    }
}

/// A request that has nothing to do with so many programs, of the session that has acknowledged all.
fn among(count: usize, request: &[u8]) {
    let (mut world, client) = world();
    world.create_wide(client, "/w", 10, PERSISTENT);
    of_others(&mut world, client, count);
    world.count(client, request);
    assert_eq!(world.last_error(), 0);
}

/// A program that reacts to what is set, and a multi that sets so much.
fn reacts(count: usize, handler: &str) -> (World, Client) {
    let (mut world, client) = world();
    world.create_wide(client, "/w", count, PERSISTENT);
    world.turn(client, &ask::create("/seen", PERSISTENT));
    let source = format!("on_event(\"changed\", \"/w/*\"); fn changed(event) {{ {handler} }}");
    register(&mut world, client, "reacts", &source);
    (world, client)
}

fn reaction(count: usize, handler: &str) {
    let (mut world, client) = reacts(count, handler);
    let sets = (0..count).map(|number| ask::set_data(&format!("/w/{number}")));
    world.count(client, &ask::multi(Opcode::Multi, sets));
    assert_eq!(world.last_error(), 0);
}

pub(crate) const OPERATIONS: &[Operation] = &[
    constant("programs: getData, with many programs", PROGRAMS, |n| {
        among(n, &ask::read(Opcode::GetData, "/w/7", false));
    }),
    constant("programs: setData, with many programs", PROGRAMS, |n| among(n, &ask::set_data("/w/7"))),
    constant("programs: create, with many programs", PROGRAMS, |n| {
        among(n, &ask::create("/w/new", PERSISTENT));
    }),
    linear("programs: many are registered", PROGRAMS, |n| {
        let (mut world, client) = world();
        counted(&mut || of_others(&mut world, client, n));
    }),
    constant("programs: one is deregistered that few have acknowledged, another many", ZNODES, |n| {
        let (mut world, client) = world();
        of_others(&mut world, client, 2);
        for number in 0..n {
            let other = world.client();
            world.turn(other, &ask::create(&format!("/em/program-0/{number}"), EPHEMERAL));
        }
        world.count(client, &ask::delete("/em/program-1"));
        assert_eq!(world.last_error(), 0);
    }),
    linear("programs: many sessions acknowledge one, one after the other", ZNODES, |n| {
        let (mut world, client) = world();
        of_others(&mut world, client, 1);
        let others: Vec<Client> = (0..n).map(|_| world.client()).collect();
        counted(&mut || {
            for (number, other) in others.iter().enumerate() {
                world.turn(*other, &ask::create(&format!("/em/program-0/{number}"), EPHEMERAL));
            }
        });
    }),
    linear("programs: many sessions acknowledge one, outstanding together", ZNODES, |n| {
        let (mut world, client) = world();
        of_others(&mut world, client, 1);
        let others: Vec<Client> = (0..n).map(|_| world.client()).collect();
        counted(&mut || {
            for (number, other) in others.iter().enumerate() {
                world.arrive(*other, &ask::create(&format!("/em/program-0/{number}"), EPHEMERAL));
            }
            world.settle();
        });
    }),
    linear("programs: one that many have acknowledged is deregistered", ZNODES, |n| {
        let (mut world, client) = world();
        of_others(&mut world, client, 1);
        for number in 0..n {
            let other = world.client();
            world.turn(other, &ask::create(&format!("/em/program-0/{number}"), EPHEMERAL));
        }
        world.count(client, &ask::delete("/em/program-0"));
        assert_eq!(world.last_error(), 0);
    }),
    linear("programs: a multi that one reacts to, with nothing", ZNODES / 2, |n| reaction(n, "")),
    linear("programs: a multi that one reacts to, and reads", ZNODES / 2, |n| {
        reaction(n, "local.read(event.path);");
    }),
    linear("programs: a multi that one reacts to, and fails", ZNODES / 2, |n| {
        reaction(n, "local.read(event.path); throw \"no\";");
    }),
    linear("programs: a multi that one reacts to, and writes", ZNODES / 2, |n| {
        reaction(n, "local.update(\"/seen\", event.path);");
    }),
    linear("programs: a multi that one suppresses all of", ZNODES / 2, |n| {
        reaction(n, "local.suppress();");
    }),
    linear(
        "programs: a multi of which one tells a session that is not here, where many are",
        ZNODES / 5,
        |n| {
            let (mut world, client) = world();
            let told = world.client();
            world.create_wide(client, "/w", n, PERSISTENT);
            let handler = format!("local.notify({}, event.path);", told.session);
            let source = format!("on_event(\"changed\", \"/w/*\"); fn changed(event) {{ {handler} }}");
            register(&mut world, client, "tells", &source);
            world.turn(told, &ask::create("/em/tells/told", EPHEMERAL));
            world.server.disconnected(told.id, world.now);
            (0..n).for_each(|_| {
                let _ = world.connect();
            });
            let sets = (0..n).map(|number| ask::set_data(&format!("/w/{number}")));
            world.count(client, &ask::multi(Opcode::Multi, sets));
            assert_eq!(world.last_error(), 0);
        },
    ),
    linear("programs: one client waits for many znodes by way of one, and each is created", ZNODES, |n| {
        let (mut world, client) = world();
        let other = world.client();
        world.turn(client, &ask::create("/w", PERSISTENT));
        let source = "on_operation(\"block\", \"/wait/*\");
             fn block(request) { local.block(\"/w/\" + request.name); }";
        register(&mut world, client, "waits", source);
        let waits: Vec<Vec<u8>> =
            (0..n).map(|number| ask::read(Opcode::Exists, &format!("/wait/{number}"), true)).collect();
        counted(&mut || {
            waits.iter().for_each(|wait| world.turn(client, wait));
            world.create_children(other, "/w", n, PERSISTENT);
        });
    }),
    linear("programs: a call that reads all children", ZNODES / 4, |n| {
        let (mut world, client) = world();
        world.create_wide(client, "/w", n, PERSISTENT);
        let source =
            "on_operation(\"read\", \"/all\"); fn read(request) { return local.sub_objects(\"/w\").len(); }";
        register(&mut world, client, "reads", source);
        world.count(client, &ask::read(Opcode::GetData, "/all", false));
        assert_eq!(world.last_error(), 0);
    }),
    linear("programs: many calls, outstanding together", ZNODES, |n| {
        let (mut world, client) = world();
        world.turn(client, &ask::create_data("/counter", b"1"));
        let source = "on_operation(\"read\", \"/next\");
             fn read(request) {
                 let next = local.read(\"/counter\").data.to_int() + 1;
                 local.update(\"/counter\", next);
                 return next;
             }";
        register(&mut world, client, "counter", source);
        let calls: Vec<u8> = (0..n).flat_map(|_| ask::read(Opcode::GetData, "/next", false)).collect();
        world.count(client, &calls);
    }),
    linear(
        "programs: sessions with ephemerals end, with one that reacts, outstanding together",
        ZNODES / 2,
        |n| {
            let (mut world, client) = world();
            world.turn(client, &ask::create("/w", PERSISTENT));
            register(&mut world, client, "reacts", "on_event(\"deleted\", \"/v/*\"); fn deleted(event) { }");
            let others: Vec<Client> = (0..n).map(|_| world.client()).collect();
            for (number, other) in others.iter().enumerate() {
                world.arrive(*other, &ask::create(&format!("/w/{number}"), EPHEMERAL));
            }
            let close = ask::close_session();
            counted(&mut || others.iter().for_each(|other| world.arrive(*other, &close)));
        },
    ),
];
