//! Programs whose reactions are greedy react to nothing for a while, and nobody waits for them.

use crate::COUNTER;
use crate::world::{Who, World};
use stoa_core::{ProgramLimits, ProgramStats};
use stoa_wire::{MultiHeader, OPEN_ACL, Opcode, request::encode};

/// Notes what was created, after so many turns as the name says.
const WORKER: &str = r#"
    on_event("created", "/jobs/*");
    fn created(event) {
        let turns = event.name.split("-")[0].to_int();
        for turn in 0..turns { }
        local.create("/done/" + event.name);
    }
"#;
/// Never comes to an end, whatever happens.
const HOSTILE: &str = r#"
    on_event("created", "/**");
    on_event("changed", "/**");
    on_event("deleted", "/**");
    fn created(event) { loops(); }
    fn changed(event) { loops(); }
    fn deleted(event) { loops(); }
    fn loops() { for turn in 0..1000000 { } }
"#;
/// As long as one reaction costs that was stopped.
const SUSPENSION_MS: u64 = 100;

fn stats(world: &mut World, server: u8, program: &str) -> ProgramStats {
    world.server(server).programs().find(|(name, _)| *name == program).unwrap().1
}

fn world_of(servers: u8) -> (World, Who, u8) {
    let mut world = World::new(servers);
    let leader = if servers == 1 { 1 } else { world.leader() };
    let anna = world.client(servers);
    for path in ["/jobs", "/done"] {
        world.create(anna, path, "").ok().unwrap();
    }
    world.register(anna, "worker", WORKER);
    (world, anna, leader)
}

fn done(world: &mut World, who: Who) -> Vec<String> {
    world.children(who, "/done").names()
}

fn create_all(world: &mut World, who: Who, names: impl IntoIterator<Item = String>) {
    let answer = world.ask(who, Opcode::Multi, |body| {
        for name in names {
            MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 }.encode(body);
            encode::create(body, &format!("/jobs/{name}"), None, OPEN_ACL, 0, None);
        }
        MultiHeader::END.encode(body);
    });
    answer.ok().unwrap();
}

#[test]
fn a_program_that_had_a_reaction_stopped_reacts_to_nothing_for_a_while() {
    for servers in [1, 3] {
        let (mut world, anna, leader) = world_of(servers);
        world.create(anna, "/jobs/1000000-a", "").ok().unwrap();
        world.create(anna, "/jobs/0-b", "").ok().unwrap();
        world.pass(SUSPENSION_MS - 10);
        world.create(anna, "/jobs/0-c", "").ok().unwrap();
        assert_eq!(done(&mut world, anna), Vec::<String>::new());
        world.pass(20);
        world.create(anna, "/jobs/0-d", "").ok().unwrap();
        assert_eq!(done(&mut world, anna), ["0-d"], "what it has missed is not made up for");
        let worker = stats(&mut world, leader, "worker");
        let counts = (worker.calls, worker.failures, worker.suspensions, worker.missed);
        assert_eq!(counts, (2, 1, 1, 2));
        let warnings: Vec<_> = core::iter::from_fn(|| world.server(leader).poll_warning()).collect();
        assert!(
            warnings.iter().any(|warning| warning.contains("reacts to nothing for 100 ms")),
            "{warnings:?}"
        );
        world.assert_agreement();
    }
}

#[test]
fn a_reaction_that_is_nearly_stopped_happens_and_costs_nearly_as_much() {
    let (mut world, anna, leader) = world_of(3);
    world.create(anna, "/jobs/9000-a", "").ok().unwrap();
    world.pass(SUSPENSION_MS - 30);
    world.create(anna, "/jobs/0-b", "").ok().unwrap();
    assert_eq!(done(&mut world, anna), ["9000-a"]);
    world.pass(20);
    world.create(anna, "/jobs/4000-c", "").ok().unwrap();
    world.create(anna, "/jobs/4000-d", "").ok().unwrap();
    assert_eq!(done(&mut world, anna), ["4000-c", "4000-d", "9000-a"], "up to the half nothing is paid");
    let worker = stats(&mut world, leader, "worker");
    assert_eq!((worker.suspensions, worker.missed), (1, 1));
}

#[test]
fn all_reactions_to_an_update_together_have_a_bound() {
    let (mut world, anna, leader) = world_of(1);
    // Small ones all happen, and cost nothing.
    create_all(&mut world, anna, (0..500).map(|number| format!("0-{number}")));
    assert_eq!(done(&mut world, anna).len(), 500);
    let small = stats(&mut world, leader, "worker");
    assert_eq!((small.suspensions, small.missed), (0, 0));
    create_all(&mut world, anna, (0..100).map(|number| format!("4000-{number}")));
    let large = stats(&mut world, leader, "worker");
    let steps = large.steps - small.steps;
    // As many as ten calls may take, and those of the reaction that was under way then.
    assert!((100_000..105_000).contains(&steps), "{steps}");
    let happened = done(&mut world, anna).len() as u64 - 500;
    assert_eq!((happened + large.missed, large.suspensions), (100, 1));
    world.pass(950);
    world.create(anna, "/jobs/0-early", "").ok().unwrap();
    world.pass(100);
    world.create(anna, "/jobs/0-late", "").ok().unwrap();
    let done = done(&mut world, anna);
    assert!(!done.contains(&"0-early".to_owned()) && done.contains(&"0-late".to_owned()));
}

/// Many programs that each stay below their limit pay for what they take together.
#[test]
fn programs_do_not_share_what_one_of_them_may_take() {
    let programs = ProgramLimits { programs_per_session: 100, ..ProgramLimits::default() };
    let mut world = World::with(1, |config| config.programs = programs.clone());
    let anna = world.client(1);
    world.create(anna, "/jobs", "").ok().unwrap();
    let source = WORKER.replace("local.create(\"/done/\" + event.name);", "");
    for number in 0..30 {
        world.register(anna, &format!("worker-{number:02}"), &source);
    }
    world.create(anna, "/jobs/4000-a", "").ok().unwrap();
    let all: Vec<ProgramStats> = world.server(1).programs().map(|(_, stats)| stats).collect();
    let (ran, missed) = all.split_at(25);
    assert!(ran.iter().all(|stats| (stats.calls, stats.suspensions, stats.missed) == (1, 1, 0)), "{ran:?}");
    assert!(missed.iter().all(|stats| (stats.suspensions, stats.missed) == (0, 1)), "{missed:?}");
}

#[test]
fn a_suspension_is_the_programs_by_its_name_and_ends_with_the_leader() {
    let (mut world, anna, _) = world_of(3);
    world.create(anna, "/jobs/1000000-a", "").ok().unwrap();
    world.delete(anna, "/em/worker").ok().unwrap();
    world.register(anna, "worker", WORKER);
    world.create(anna, "/jobs/0-b", "").ok().unwrap();
    assert_eq!(done(&mut world, anna), Vec::<String>::new(), "to register it anew does not help");
    let other = world.follower();
    world.reconnect(anna, other);
    world.lose_leader();
    world.create(anna, "/jobs/0-c", "").ok().unwrap();
    assert_eq!(done(&mut world, anna), ["0-c"]);
}

/// A program that loops at every event there is takes a share of the leader's time that is bounded, and all others'
/// requests and programs do what they should.
#[test]
fn a_hostile_program_takes_no_more_than_its_share() {
    const TURNS: u64 = 300;
    let mut world = World::new(3);
    let leader = world.leader();
    let clients: Vec<Who> = [1, 2, 3].map(|server| world.client(server)).into();
    world.create(clients[0], "/ctr", "0").ok().unwrap();
    world.create(clients[0], "/seen", "").ok().unwrap();
    world.register(clients[0], "counter", COUNTER);
    world.register(clients[1], "hostile", HOSTILE);
    for (number, who) in clients.iter().enumerate().skip(1) {
        world.create_ephemeral(*who, &format!("/em/counter/{number}")).ok().unwrap();
    }
    let began_us = world.now().mono_us;
    for turn in 0..TURNS {
        let who = clients[turn as usize % 3];
        assert_eq!(world.get(who, "/ctr-increment").data(), Ok((turn + 1).to_string()));
        world.set(who, "/seen", &turn.to_string()).ok().unwrap();
        world.pass(1);
    }
    let hostile = stats(&mut world, leader, "hostile");
    // One reaction each time that the one before is paid for.
    let times = (world.now().mono_us - began_us) / 1000 / SUSPENSION_MS;
    assert!((times / 2..=times + 1).contains(&hostile.calls), "{times} times, {hostile:?}");
    assert_eq!((hostile.failures, hostile.suspensions), (hostile.calls, hostile.calls));
    assert!(hostile.missed >= 2 * TURNS - hostile.calls, "{hostile:?}");
    assert!(hostile.steps <= 10_001 * hostile.calls, "{hostile:?}");
    assert_eq!(stats(&mut world, leader, "counter").failures, 0);
    world.assert_agreement();
}
