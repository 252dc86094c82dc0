//! At one server.

use crate::world::{Who, World};
use crate::{COUNTER, QUEUE};
use std::sync::atomic::{AtomicU64, Ordering};
use stoa_core::{ProgramLimits, Stopwatch};
use stoa_wire::{
    ErrorCode, EventKind, MultiHeader, MultiResult, MultiResults, OPEN_ACL, Opcode, Reader, request::encode,
};

#[test]
fn a_program_is_registered_used_and_deregistered_by_ordinary_requests() {
    let mut world = World::new(1);
    let anna = world.client(1);
    world.create(anna, "/ctr", "41").ok().unwrap();
    assert_eq!(world.get(anna, "/ctr-increment").data(), Err(ErrorCode::NoNode));
    world.register(anna, "counter", COUNTER);
    assert_eq!(world.get(anna, "/em/counter").data(), Ok(COUNTER.into()));
    let own = format!("session-{:x}", world.session(anna));
    assert_eq!(world.children(anna, "/em/counter").names(), ["owner".to_owned(), own]);
    let answer = world.get(anna, "/ctr-increment");
    assert_eq!(answer.data(), Ok("42".into()));
    assert_eq!(answer.stat().data_length, 2);
    assert_eq!(world.get(anna, "/ctr").data(), Ok("42".into()));

    // Whoever has not acknowledged it has nothing to do with it.
    let bruno = world.client(1);
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Err(ErrorCode::NoNode));
    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Ok("43".into()));
    world.create_ephemeral(bruno, "/em/counter/twice").ok().unwrap();
    world.delete(bruno, "/em/counter/bruno").ok().unwrap();
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Ok("44".into()), "one acknowledgement is left");
    world.delete(bruno, "/em/counter/twice").ok().unwrap();
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Err(ErrorCode::NoNode));

    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    world.delete(anna, "/em/counter").ok().unwrap();
    assert_eq!(world.children(anna, "/em").names(), Vec::<String>::new());
    for who in [anna, bruno] {
        assert_eq!(world.get(who, "/ctr-increment").data(), Err(ErrorCode::NoNode));
    }
    world.register(bruno, "counter", COUNTER);
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Ok("45".into()));
}

#[test]
fn what_a_session_asks_behind_its_registration_sees_it() {
    let mut world = World::new(1);
    let anna = world.client(1);
    world.create(anna, "/queue", "").ok().unwrap();
    world.stalled.insert(1);
    let create = |path: &'static str, data: &'static str| {
        move |body: &mut Vec<u8>| encode::create(body, path, Some(data.as_bytes()), OPEN_ACL, 0, None)
    };
    world.send(anna, Opcode::Create, create("/em/queue", QUEUE));
    world.send(anna, Opcode::Create, create("/queue/a", "first"));
    world.send(anna, Opcode::GetData, |body| encode::path_watch(body, "/queue/head", false));
    world.send(anna, Opcode::Create, create("/queue/b", "second"));
    world.send(anna, Opcode::GetData, |body| encode::path_watch(body, "/queue/head", false));
    world.send(anna, Opcode::GetChildren, |body| encode::path_watch(body, "/queue", false));
    assert!(world.answers(anna).is_empty());
    world.stalled.clear();
    let answers = world.answers(anna);
    assert_eq!(answers.iter().map(|answer| answer.xid).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    assert_eq!(answers[2].data(), Ok("first".into()));
    assert_eq!(answers[4].data(), Ok("second".into()));
    assert_eq!(answers[5].names(), Vec::<String>::new());
}

#[test]
fn calls_stand_in_the_order_of_the_sessions_requests() {
    let mut world = World::new(1);
    let anna = world.client(1);
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    let get = |path: &'static str| move |body: &mut Vec<u8>| encode::path_watch(body, path, false);
    world.stalled.insert(1);
    world.send(anna, Opcode::SetData, |body| encode::set_data(body, "/ctr", Some(b"10"), -1));
    world.send(anna, Opcode::GetData, get("/ctr"));
    world.send(anna, Opcode::GetData, get("/ctr-increment"));
    world.send(anna, Opcode::SetData, |body| encode::set_data(body, "/ctr", Some(b"20"), -1));
    world.send(anna, Opcode::GetData, get("/ctr-increment"));
    world.send(anna, Opcode::GetData, get("/ctr"));
    world.stalled.clear();
    let answers = world.answers(anna);
    let data: Vec<_> = answers.iter().map(|answer| answer.data()).collect();
    assert_eq!(data[1], Ok("10".into()));
    assert_eq!(data[2], Ok("11".into()));
    assert_eq!(data[4], Ok("21".into()));
    assert_eq!(data[5], Ok("21".into()));
}

#[test]
fn a_session_that_ends_takes_its_acknowledgement_with_it_and_the_program_stays() {
    let mut world = World::new(1);
    let (anna, bruno) = (world.client(1), world.client(1));
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    world.close(anna);
    assert_eq!(world.children(bruno, "/em/counter").names(), ["bruno", "owner"]);
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Ok("1".into()));
    world.close(bruno);
    let carla = world.client(1);
    assert_eq!(world.children(carla, "/em/counter").names(), ["owner"]);
    assert_eq!(world.server(1).program_acknowledgements(), 0);
    world.create_ephemeral(carla, "/em/counter/c").ok().unwrap();
    assert_eq!(world.get(carla, "/ctr-increment").data(), Ok("2".into()));
}

#[test]
fn a_restart_keeps_programs_and_acknowledgements() {
    let mut world = World::new(1);
    let anna = world.client(1);
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("1".into()));
    world.restart(1);
    world.reconnect(anna, 1);
    assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("2".into()));
    let tree = world.server(1).tree();
    assert_eq!(tree.digest(), tree.recomputed_digest());
}

#[test]
fn why_something_failed_can_be_read() {
    let mut world = World::new(1);
    let anna = world.client(1);
    assert_eq!(world.get(anna, "/em/error").data(), Err(ErrorCode::NoNode));
    let unknown =
        world.create(anna, "/em/bad", "on_operation(\"read\", \"/x\");\nfn read(request) {\n  return y;\n}");
    assert_eq!(unknown.ok(), Err(ErrorCode::BadArguments));
    let why = world.why(anna);
    assert!(why.starts_with("/em/bad: line 3, column 10: "), "{why}");
    assert_eq!(world.get(anna, "/em").data(), Err(ErrorCode::NoNode), "nothing is left of it");

    world.register(anna, "counter", COUNTER);
    assert_eq!(world.get(anna, "/ctr-increment").data(), Err(ErrorCode::NoNode));
    let why = world.why(anna);
    assert!(why.starts_with("counter: line 10, column 21: local.read(\"/ctr\") was refused"), "{why}");
    world.create(anna, "/ctr", "many").ok().unwrap();
    assert_eq!(world.get(anna, "/ctr-increment").data(), Err(ErrorCode::SystemError));
    assert!(world.why(anna).contains("\"many\" is no number"));
    let warnings: Vec<_> = std::iter::from_fn(|| world.server(1).poll_warning()).collect();
    assert!(warnings.iter().any(|warning| warning.contains("is no number")), "{warnings:?}");
    let (_, stats) = world.server(1).programs().next().unwrap();
    assert_eq!((stats.calls, stats.failures), (2, 2));
    assert!(stats.steps > 0);
    let bruno = world.client(1);
    assert_eq!(world.get(bruno, "/em/error").data(), Err(ErrorCode::NoNode), "it is nobody else's");
}

#[test]
fn a_call_that_fails_leaves_no_trace_and_a_breach_ends_it() {
    let mut world = World::new(1);
    let anna = world.client(1);
    let source = r#"
        on_operation("update", "/run");
        fn update(request) {
            local.create("/made");
            local.create_sequential("/s-");
            if request.data.to_string() == "throw" { throw "no"; }
            for i in 0..1000000 { local.exists("/made"); }
        }
    "#;
    world.register(anna, "hostile", source);
    let before = world.server(1).tree().digest();
    for (data, why) in [("throw", "thrown: no"), ("loop", "`znodes` of 1024")] {
        assert_eq!(world.set(anna, "/run", data).ok(), Err(ErrorCode::SystemError));
        // Who breaches a limit has to wait.
        world.pass(100);
        assert!(world.why(anna).contains(why));
        assert_eq!(world.server(1).tree().digest(), before);
    }
    // The state as it will be has no trace of it either.
    assert_eq!(world.create(anna, "/made", "").ok(), Ok(()));
}

#[test]
fn only_so_many_programs_can_be_registered() {
    let programs = ProgramLimits { programs: 3, programs_per_session: 2, ..ProgramLimits::default() };
    let mut world = World::with(1, |config| config.programs = programs.clone());
    let (anna, bruno) = (world.client(1), world.client(1));
    world.register(anna, "a", COUNTER);
    world.register(anna, "b", COUNTER);
    assert_eq!(world.create(anna, "/em/c", COUNTER).ok(), Err(ErrorCode::QuotaExceeded));
    assert!(world.why(anna).contains("max-extensions-per-session"));
    world.register(bruno, "c", COUNTER);
    assert_eq!(world.create(bruno, "/em/d", COUNTER).ok(), Err(ErrorCode::QuotaExceeded));
    assert!(world.why(bruno).contains("max-extensions"));
    world.delete(anna, "/em/a").ok().unwrap();
    world.register(bruno, "d", COUNTER);
    assert_eq!(world.create(bruno, "/em/d", COUNTER).ok(), Err(ErrorCode::QuotaExceeded));
}

fn deletes(world: &mut World, client: Who, paths: &[&str]) -> Result<usize, i32> {
    let answer = world.ask(client, Opcode::Multi, |body| {
        for path in paths {
            MultiHeader { opcode: Opcode::Delete as i32, done: false, err: -1 }.encode(body);
            encode::path_version(body, path, -1);
        }
        MultiHeader::END.encode(body);
    });
    let results = MultiResults::decode(&mut Reader::new(&answer.body)).unwrap();
    let failed = results.iter().find_map(|result| match result {
        MultiResult::Error(code) if *code != 0 => Some(*code),
        _ => None,
    });
    failed.map_or(Ok(results.iter().filter(|result| **result == MultiResult::Deleted).count()), Err)
}

/// Clients delete what is below a znode before they delete that: one by one, or in a multi.
#[test]
fn a_program_can_be_deleted_with_what_is_below_it() {
    let mut world = World::new(1);
    let (anna, bruno) = (world.client(1), world.client(1));
    world.register(anna, "counter", COUNTER);
    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    assert_eq!(world.delete(anna, "/em/counter/bruno").ok(), Ok(()));
    assert_eq!(world.delete(anna, "/em/counter/owner").ok(), Ok(()));
    assert_eq!(world.children(anna, "/em").names(), [""; 0]);
    assert_eq!(world.delete(anna, "/em/counter").ok(), Err(ErrorCode::NoNode));

    world.register(anna, "counter", COUNTER);
    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    world.create(anna, "/other", "").ok().unwrap();
    let unimplemented = Err(ErrorCode::Unimplemented as i32);
    assert_eq!(deletes(&mut world, anna, &["/em/counter/bruno", "/em/counter/owner"]), unimplemented);
    assert_eq!(deletes(&mut world, anna, &["/other", "/em/counter"]), unimplemented);
    assert_eq!(deletes(&mut world, anna, &["/em/other/owner", "/em/counter"]), unimplemented);
    assert_eq!(world.children(anna, "/em").names(), ["counter"]);
    assert_eq!(deletes(&mut world, anna, &["/em/counter/bruno", "/em/counter/owner", "/em/counter"]), Ok(3));
    assert_eq!(world.children(anna, "/em").names(), [""; 0]);
}

#[test]
fn nobody_writes_there_what_is_no_program() {
    let mut world = World::new(1);
    let anna = world.client(1);
    let refused = Err(ErrorCode::BadArguments);
    world.register(anna, "counter", COUNTER);
    assert_eq!(world.create(anna, "/em/counter", COUNTER).ok(), Err(ErrorCode::NodeExists));
    for path in ["/em/x/y", "/em/x/owner"] {
        assert_eq!(world.create(anna, path, "").ok(), Err(ErrorCode::NoNode));
    }
    assert_eq!(world.create(anna, "/em/error", COUNTER).ok(), refused);
    assert_eq!(world.create(anna, "/em/counter/a", "").ok(), refused, "it would not go with the session");
    assert_eq!(world.create_ephemeral(anna, "/em/counter/owner/x").ok(), refused);
    assert_eq!(world.create_ephemeral(anna, "/em/other").ok(), refused);
    for path in ["/em", "/em/counter", "/em/counter/owner"] {
        assert_eq!(world.set(anna, path, "x").ok(), refused, "{path}");
    }
    let forged =
        world.ask(anna, Opcode::SetAcl, |body| encode::set_acl(body, "/em/counter/owner", OPEN_ACL, -1));
    assert_eq!(forged.ok(), refused);
    let multi = world.ask(anna, Opcode::Multi, |body| {
        MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 }.encode(body);
        encode::create(body, "/em/forged", Some(b""), OPEN_ACL, 0, None);
        MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 }.encode(body);
        encode::create(body, "/em/forged/owner", Some(b"session 0x1"), OPEN_ACL, 0, None);
        MultiHeader::END.encode(body);
    });
    let results = MultiResults::decode(&mut Reader::new(&multi.body)).unwrap();
    assert_eq!(results[0], MultiResult::Error(ErrorCode::Unimplemented as i32));
    assert_eq!(world.children(anna, "/em").names(), ["counter"]);
}

#[test]
fn a_program_has_the_rights_of_who_calls_it() {
    let mut world = World::new(1);
    let (anna, bruno) = (world.client(1), world.client(1));
    world.ask(anna, Opcode::Auth, |body| encode::auth(body, "digest", b"anna:secret")).ok().unwrap();
    let hash = stoa_core::digest_id("anna:secret");
    let acl = [stoa_wire::Acl { perms: 31, scheme: "digest", id: &hash }];
    world
        .ask(anna, Opcode::Create, |body| encode::create(body, "/ctr", Some(b"1"), &acl, 0, None))
        .ok()
        .unwrap();
    world.register(anna, "counter", COUNTER);
    assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("2".into()));
    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Err(ErrorCode::NoAuth));
    assert_eq!(world.get(anna, "/ctr").data(), Ok("2".into()));
    // Who has registered it can be seen, the hash of the password cannot.
    let owner = world.ask(bruno, Opcode::GetAcl, |body| encode::path(body, "/em/counter/owner"));
    let text = String::from_utf8_lossy(&owner.body).into_owned();
    assert!(text.contains("anna:x") && !text.contains(&hash), "{text:?}");
}

#[test]
fn a_watch_that_comes_with_a_call_is_set() {
    let mut world = World::new(1);
    let anna = world.client(1);
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    world.ask(anna, Opcode::GetData, |body| encode::path_watch(body, "/ctr-increment", true)).ok().unwrap();
    world.create(anna, "/ctr-increment", "").ok().unwrap();
    assert_eq!(world.events(anna), [(EventKind::Created, "/ctr-increment".to_owned())]);
}

#[test]
fn a_multi_is_refused_where_a_program_would_carry_out_a_part() {
    let mut world = World::new(1);
    let (anna, bruno) = (world.client(1), world.client(1));
    let source = "on_operation(\"create\", \"/made\");\nfn create(request) { return \"/elsewhere\"; }";
    world.register(anna, "maker", source);
    let mut ask = |client| {
        let answer = world.ask(client, Opcode::Multi, |body| {
            for path in ["/other", "/made"] {
                MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 }.encode(body);
                encode::create(body, path, Some(b""), OPEN_ACL, 0, None);
            }
            MultiHeader::END.encode(body);
        });
        match MultiResults::decode(&mut Reader::new(&answer.body)).unwrap()[1] {
            MultiResult::Error(err) => err,
            _ => 0,
        }
    };
    assert_eq!(ask(anna), ErrorCode::Unimplemented as i32);
    assert_eq!(ask(bruno), 0, "who has acknowledged no program makes both");
}

#[test]
fn the_time_of_calls_is_taken() {
    static CLOCK: AtomicU64 = AtomicU64::new(0);
    let mut world =
        World::with(1, |config| config.stopwatch = Stopwatch(|| CLOCK.fetch_add(3, Ordering::Relaxed)));
    let anna = world.client(1);
    world.register(anna, "counter", COUNTER);
    world.create(anna, "/ctr", "1").ok().unwrap();
    for expected in ["2", "3"] {
        assert_eq!(world.get(anna, "/ctr-increment").data().unwrap(), expected);
    }
    let (_, stats) = world.server(1).programs().next().unwrap();
    assert_eq!((stats.calls, stats.time.count(), stats.time.sum_us()), (2, 2, 6));
}
