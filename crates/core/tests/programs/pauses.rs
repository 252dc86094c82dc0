//! Who asks for greedy calls waits, and nobody else does.

use crate::COUNTER;
use crate::threads::{Threads, get as get_frame, request as request_frame, tops};
use crate::world::{Answer, Who, World};
use stoa_core::ProgramStats;
use stoa_wire::{ErrorCode, OPEN_ACL, Opcode, request::encode, xid};

/// Goes on until it is stopped, and a call that takes nearly all that it may.
const GREEDY: &str = r#"
    on_operation("read", "/greedy");
    on_operation("read", "/nearly");
    on_operation("update", "/greedy");
    fn read(request) {
        let turns = if request.path == "/nearly" { 9900 } else { 1000000 };
        for turn in 0..turns { }
        return 1;
    }
    fn update(request) { throw "at once"; }
"#;
/// As long as one stopped call costs.
const PAUSE_MS: u64 = 100;

fn get(world: &mut World, who: Who, path: &str) {
    world.send(who, Opcode::GetData, |body| encode::path_watch(body, path, false));
}

fn stats(world: &mut World, server: u8, program: &str) -> ProgramStats {
    world.server(server).programs().find(|(name, _)| *name == program).unwrap().1
}

/// Anna, who has registered the programs, and Bruno, who has acknowledged them.
fn greedy_world(servers: u8, contact: impl Fn(&World) -> u8) -> (World, Who, Who) {
    let mut world = World::new(servers);
    let server = contact(&world);
    let (anna, bruno) = (world.client(server), world.client(server));
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    world.register(anna, "greedy", GREEDY);
    for program in ["counter", "greedy"] {
        world.create_ephemeral(bruno, &format!("/em/{program}/bruno")).ok().unwrap();
    }
    (world, anna, bruno)
}

fn waits_in_its_turn((mut world, anna, bruno): (World, Who, Who)) {
    assert_eq!(world.get(anna, "/greedy").data(), Err(ErrorCode::SystemError), "it is told at once");
    get(&mut world, anna, "/ctr-increment");
    get(&mut world, anna, "/ctr");
    get(&mut world, anna, "/em/error");
    world.send(anna, Opcode::Create, |body| encode::create(body, "/ctr/a", None, OPEN_ACL, 0, None));
    get(&mut world, anna, "/ctr-increment");
    world.send(anna, Opcode::Ping, |_| ());
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Ok("1".into()), "others do not wait");
    world.pass(PAUSE_MS - 10);
    assert_eq!(world.answers(anna).len(), 1, "a heartbeat waits for nothing, all else does");
    world.pass(20);
    let answers = world.answers(anna);
    assert!(answers.windows(2).all(|pair| pair[0].xid < pair[1].xid), "{answers:?}");
    assert_eq!((answers[0].data(), answers[1].data()), (Ok("2".into()), Ok("2".into())));
    assert!(answers[2].data().unwrap().contains("`steps` of 10000"), "{answers:?}");
    assert_eq!((answers[3].ok(), answers[4].data()), (Ok(()), Ok("3".into())));
    assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("4".into()), "it is over");
    world.assert_agreement();
}

#[test]
fn who_had_a_call_stopped_waits_and_its_requests_keep_their_order() {
    waits_in_its_turn(greedy_world(1, |_| 1));
    waits_in_its_turn(greedy_world(3, World::leader));
    waits_in_its_turn(greedy_world(3, World::follower));
}

#[test]
fn a_server_with_nothing_else_to_do_wakes_when_a_pause_is_over() {
    let mut world = World::with(1, |config| config.tick_ms = 10_000);
    let anna = world.client(1);
    world.register(anna, "greedy", GREEDY);
    let now_us = world.now().mono_us;
    assert!(world.server(1).next_wake_us() > now_us + 1000 * PAUSE_MS);
    assert_eq!(world.get(anna, "/greedy").data(), Err(ErrorCode::SystemError));
    assert_eq!(world.server(1).next_wake_us(), now_us + 1000 * PAUSE_MS);
    world.pass(PAUSE_MS);
    assert!(world.server(1).next_wake_us() > now_us + 2000 * PAUSE_MS);
}

#[test]
fn what_was_asked_before_the_answer_came_is_not_carried_out() {
    for contact in [World::leader, World::follower] {
        let (mut world, anna, _) = greedy_world(3, contact);
        world.stalled.extend([1, 2, 3]);
        for path in ["/greedy", "/greedy", "/ctr-increment", "/em/error"] {
            get(&mut world, anna, path);
        }
        world.send(anna, Opcode::SetData, |body| encode::set_data(body, "/ctr", Some(b"7"), -1));
        world.stalled.clear();
        let answers = world.answers(anna);
        let codes: Vec<_> = answers.iter().map(Answer::ok).collect();
        let throttled = Err(ErrorCode::ThrottledOp);
        assert_eq!(codes, [Err(ErrorCode::SystemError), throttled, throttled, Ok(()), Ok(())]);
        assert!(answers[3].data().unwrap().contains("the session has to wait"), "{answers:?}");
        let leader = world.leader();
        let greedy = stats(&mut world, leader, "greedy");
        assert_eq!((greedy.calls, greedy.failures, greedy.pauses, greedy.throttled), (1, 1, 1, 1));
        assert_eq!(stats(&mut world, leader, "counter").throttled, 1);
        world.pass(PAUSE_MS + 10);
        assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("8".into()));
    }
}

#[test]
fn a_call_that_is_nearly_stopped_costs_nearly_as_much() {
    for servers in [1, 3] {
        let leader = if servers == 1 { |_: &World| 1 } else { World::leader };
        let (mut world, anna, _) = greedy_world(servers, leader);
        assert_eq!(world.get(anna, "/nearly").data(), Ok("1".into()));
        get(&mut world, anna, "/ctr-increment");
        world.pass(PAUSE_MS - 10);
        assert!(world.answers(anna).is_empty());
        world.pass(20);
        assert_eq!(world.answers(anna)[0].data(), Ok("1".into()));
        // A call that fails for another reason costs nothing.
        assert_eq!(world.set(anna, "/greedy", "").ok(), Err(ErrorCode::SystemError));
        assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("2".into()));
        let leader = leader(&world);
        let greedy = stats(&mut world, leader, "greedy");
        assert_eq!((greedy.calls, greedy.failures, greedy.pauses, greedy.throttled), (2, 1, 1, 0));
    }
}

#[test]
fn several_greedy_sessions_wait_for_one_another() {
    let (mut world, anna, bruno) = greedy_world(3, World::follower);
    assert_eq!(world.get(anna, "/greedy").data(), Err(ErrorCode::SystemError));
    assert_eq!(world.get(bruno, "/greedy").data(), Err(ErrorCode::SystemError));
    for who in [anna, bruno] {
        get(&mut world, who, "/greedy");
    }
    world.pass(PAUSE_MS + 10);
    assert_eq!((world.answers(anna).len(), world.answers(bruno).len()), (1, 0));
    world.pass(PAUSE_MS);
    assert_eq!(world.answers(bruno).len(), 1);
    // For as long as they go on, all together have one call in that time.
    for _ in 0..20 {
        for who in [anna, bruno] {
            world.answers(who);
            get(&mut world, who, "/greedy");
        }
        world.pass(PAUSE_MS);
    }
    let leader = world.leader();
    let calls = stats(&mut world, leader, "greedy").calls;
    assert!((15..=25).contains(&calls), "{calls}");
}

#[test]
fn a_session_cannot_leave_its_pause_behind_but_with_the_leader() {
    let (mut world, anna, _) = greedy_world(3, World::follower);
    let leader = world.leader();
    assert_eq!(world.get(anna, "/greedy").data(), Err(ErrorCode::SystemError));
    world.reconnect(anna, leader);
    assert_eq!(world.get(anna, "/ctr-increment").data(), Err(ErrorCode::ThrottledOp));
    assert_eq!(world.get(anna, "/ctr").data(), Ok("0".into()), "other requests are carried out");
    world.pass(PAUSE_MS);
    assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("1".into()));

    assert_eq!(world.get(anna, "/greedy").data(), Err(ErrorCode::SystemError));
    let other = world.follower();
    world.reconnect(anna, other);
    let pause = |world: &mut World| world.get(anna, "/ctr-increment").data();
    assert_eq!(pause(&mut world), Err(ErrorCode::ThrottledOp));
    world.lose_leader();
    assert_eq!(pause(&mut world), Ok("2".into()));
}

#[test]
fn a_session_that_waits_can_end() {
    let (mut world, anna, bruno) = greedy_world(3, World::follower);
    world.create_ephemeral(anna, "/mine").ok().unwrap();
    assert_eq!(world.get(anna, "/greedy").data(), Err(ErrorCode::SystemError));
    world.send(anna, Opcode::CloseSession, |_| ());
    assert!(world.answers(anna).is_empty());
    world.pass(PAUSE_MS + 10);
    assert_eq!(world.answers(anna)[0].ok(), Ok(()));
    assert_eq!(world.get(bruno, "/mine").data(), Err(ErrorCode::NoNode));
    // One that is silent expires as others do.
    assert_eq!(world.get(bruno, "/greedy").data(), Err(ErrorCode::SystemError));
    let session = world.session(bruno);
    world.pass(5000);
    assert!(world.server(1).live_sessions().all(|live| live.id != session));
}

#[test]
fn each_partition_has_pauses_of_its_own() {
    let mut threads = Threads::new(4);
    let anna = threads.open(0);
    let tops = tops(4);
    let source = r#"
        on_operation("read", "/*/greedy");
        fn read(request) { for turn in 0..1000000 { } }
    "#;
    let register = request_frame(1, Opcode::Create, |body| {
        encode::create(body, "/em/greedy", Some(source.as_bytes()), OPEN_ACL, 0, None);
    });
    assert_eq!(threads.ask(anna, &register).err, 0);
    for top in &tops {
        assert_eq!(threads.ask(anna, &crate::threads::create(2, top)).err, 0);
    }
    for top in &tops {
        let greedy = format!("{top}/greedy");
        assert_eq!(threads.ask(anna, &get_frame(3, &greedy, false)).err, ErrorCode::SystemError as i32);
    }
    threads.pass(PAUSE_MS + 10);
    let greedy = format!("{}/greedy", tops[1]);
    assert_eq!(threads.ask(anna, &get_frame(4, &greedy, false)).err, ErrorCode::SystemError as i32);
    assert_eq!(threads.ask(anna, &get_frame(5, &tops[2], false)).err, 0, "it is on another one");
    threads.send(anna, &get_frame(6, &tops[1], false));
    threads.send(anna, &get_frame(7, &tops[2], false));
    threads.send(anna, &request_frame(xid::PING, Opcode::Ping, |_| ()));
    threads.settle();
    let told: Vec<i32> = threads.take(anna).iter().map(|frame| frame.xid).collect();
    assert_eq!(told, [xid::PING]);
    threads.pass(PAUSE_MS + 10);
    let told: Vec<i32> = threads.take(anna).iter().map(|frame| frame.xid).collect();
    assert_eq!(told, [6, 7]);
}
