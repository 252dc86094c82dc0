//! Programs that react to events, and calls that wait for one.

use crate::world::World;
use crate::{BARRIER, COUNTER, ELECTION, JOBS};
use stoa_wire::{ErrorCode, EventKind, Opcode, request::encode};

/// Counts what happens below /seen, and tells of it at /log.
const WITNESS: &str = r#"
    on_event("created", "/seen/*");
    on_event("changed", "/seen/*");
    on_event("deleted", "/seen/*");
    fn created(event) { note(event); }
    fn changed(event) { note(event); }
    fn deleted(event) { note(event); }
    fn note(event) {
        local.create_sequential("/log/n-", event.kind + " " + event.name);
    }
"#;

fn log(world: &mut World, who: usize) -> Vec<String> {
    let names = world.children(who, "/log").names();
    names.iter().map(|name| world.get(who, &format!("/log/{name}")).data().unwrap()).collect()
}

#[test]
fn reactions_are_part_of_the_update_whoever_makes_it() {
    for servers in [1, 3] {
        let mut world = World::new(servers);
        let anna = world.client(1);
        let bruno = world.client(servers);
        for path in ["/seen", "/log"] {
            world.create(anna, path, "").ok().unwrap();
        }
        world.register(anna, "witness", WITNESS);
        world.create(bruno, "/seen/a", "").ok().unwrap();
        let set = world.set(bruno, "/seen/a", "x");
        assert_eq!(set.stat().version, 1, "the answer is that of the request");
        world.create_ephemeral(bruno, "/seen/e").ok().unwrap();
        world.delete(bruno, "/seen/a").ok().unwrap();
        world.close(bruno);
        let wanted = ["created a", "changed a", "created e", "deleted a", "deleted e"];
        assert_eq!(log(&mut world, anna), wanted);
        // One update: the znode and what was noted of it have the same zxid.
        world.create(anna, "/seen/z", "").ok().unwrap();
        let tree = world.server(1).tree();
        let zxid = |path: &str| tree.get(path).unwrap().stat().czxid;
        assert_eq!(zxid("/seen/z"), zxid("/log/n-0000000005"));
        // The owner may go, the program stays.
        world.close(anna);
        let carla = world.client(1);
        world.set(carla, "/seen/z", "").ok().unwrap();
        assert_eq!(log(&mut world, carla).last().unwrap(), "changed z");
        world.assert_agreement();
    }
}

#[test]
fn a_multi_and_a_call_set_off_reactions_too() {
    let mut world = World::new(1);
    let anna = world.client(1);
    for path in ["/seen", "/log"] {
        world.create(anna, path, "").ok().unwrap();
    }
    world.register(anna, "witness", WITNESS);
    let source = r#"
        on_operation("update", "/run");
        fn update(request) { local.create("/seen/x"); local.update("/seen/x", 1); local.delete("/seen/x"); }
    "#;
    world.register(anna, "caller", source);
    world.set(anna, "/run", "").ok().unwrap();
    assert_eq!(log(&mut world, anna), ["created x", "changed x", "deleted x"]);
}

#[test]
fn a_reaction_that_fails_has_no_effect_and_harms_nothing() {
    let mut world = World::new(1);
    let anna = world.client(1);
    for path in ["/seen", "/log"] {
        world.create(anna, path, "").ok().unwrap();
    }
    let failing = r#"
        on_event("created", "/seen/*");
        fn created(event) { local.create("/half"); local.monitor("/seen/owner"); }
    "#;
    world.register(anna, "a-failing", failing);
    world.register(anna, "witness", WITNESS);
    assert_eq!(world.create(anna, "/seen/a", "").ok(), Ok(()));
    assert_eq!(log(&mut world, anna), ["created a"]);
    assert_eq!(world.get(anna, "/half").data(), Err(ErrorCode::NoNode));
    world.create(anna, "/half", "").ok().unwrap();
    let stats: Vec<_> = world.server(1).programs().map(|(name, stats)| (name.to_owned(), stats)).collect();
    assert_eq!((stats[0].1.calls, stats[0].1.failures), (1, 1));
    let warnings: Vec<_> = std::iter::from_fn(|| world.server(1).poll_warning()).collect();
    assert!(warnings[0].contains("a-failing does not react to /seen/a: line 3"), "{warnings:?}");
}

#[test]
fn reactions_have_the_rights_of_who_has_registered_the_program() {
    let mut world = World::new(1);
    let (anna, bruno) = (world.client(1), world.client(1));
    world.ask(anna, Opcode::Auth, |body| encode::auth(body, "digest", b"anna:secret")).ok().unwrap();
    let hash = stoa_core::digest_id("anna:secret");
    let acl = [stoa_wire::Acl { perms: 31, scheme: "digest", id: &hash }];
    world.create(bruno, "/seen", "").ok().unwrap();
    world
        .ask(anna, Opcode::Create, |body| encode::create(body, "/log", Some(b""), &acl, 0, None))
        .ok()
        .unwrap();
    world.register(bruno, "of-bruno", WITNESS);
    world.create(bruno, "/seen/a", "").ok().unwrap();
    assert_eq!(world.children(anna, "/log").names(), Vec::<String>::new());
    world.register(anna, "of-anna", WITNESS);
    world.close(anna);
    world.create(bruno, "/seen/b", "").ok().unwrap();
    assert_eq!(world.server(1).tree().get("/log").unwrap().child_count(), 1);
}

#[test]
fn an_event_can_be_kept_from_those_who_watch() {
    let mut world = World::new(1);
    let (anna, bruno) = (world.client(1), world.client(1));
    for path in ["/jobs", "/jobs/mail"] {
        world.create(anna, path, "").ok().unwrap();
    }
    world.register(anna, "jobs", JOBS);
    world.ask(bruno, Opcode::GetChildren, |body| encode::path_watch(body, "/jobs/mail", true)).ok().unwrap();
    world.block(bruno, "/jobs/mail/1");
    world.create(anna, "/jobs/mail/1", "").ok().unwrap();
    assert_eq!(world.events(bruno), []);
    world.create(anna, "/jobs/mail/2", "").ok().unwrap();
    assert_eq!(world.events(bruno), [(EventKind::ChildrenChanged, "/jobs/mail".to_owned())]);
    assert_eq!(world.create(anna, "/jobs/mail/3", "").ok(), Err(ErrorCode::SystemError));
}

#[test]
fn a_session_that_has_acknowledged_the_program_can_be_told() {
    for servers in [1, 3] {
        let mut world = World::new(servers);
        let (anna, bruno, carla) = (world.client(1), world.client(servers), world.client(1));
        world.create(anna, "/to", "").ok().unwrap();
        let source = r#"
            on_event("changed", "/to");
            fn changed(event) { local.notify(local.read("/to").data.to_int(), "/news"); }
        "#;
        world.register(anna, "teller", source);
        world.create_ephemeral(bruno, "/em/teller/bruno").ok().unwrap();
        for who in [bruno, carla] {
            let session = world.session(who).to_string();
            world.set(anna, "/to", &session).ok().unwrap();
        }
        assert_eq!(world.events(bruno), [(EventKind::DataChanged, "/news".to_owned())]);
        assert_eq!(world.events(carla), []);
    }
}

#[test]
fn who_waits_by_way_of_a_program_is_told_by_the_path_that_it_asked_for() {
    for servers in [1, 3] {
        let mut world = World::new(servers);
        let all: Vec<_> = (0..3).map(|number| world.client(1 + number % servers)).collect();
        world.create(all[0], "/barrier", "").ok().unwrap();
        world.register(all[0], "barrier", BARRIER);
        for who in &all[1..] {
            world.create_ephemeral(*who, &format!("/em/barrier/{who}")).ok().unwrap();
        }
        for (who, answer) in all.iter().zip([Err(ErrorCode::NoNode), Err(ErrorCode::NoNode), Ok(())]) {
            assert_eq!(world.block(*who, &format!("/ready/{who}")).ok(), answer);
        }
        for who in &all[..2] {
            // Whether it watches /ready itself, too, is not known: an event too many does no harm.
            let events = world.events(*who);
            let paths = [format!("/ready/{who}"), "/ready".to_owned()];
            assert_eq!(events, paths.map(|path| (EventKind::Created, path)));
        }
        assert_eq!(world.events(all[2]), []);
        world.assert_agreement();
    }
}

#[test]
fn a_leader_that_ends_is_followed_by_the_oldest_candidate_at_once() {
    let mut world = World::new(3);
    let all: Vec<_> = (1..=3).map(|server| world.client(server)).collect();
    for path in ["/clients", "/leader"] {
        world.create(all[0], path, "").ok().unwrap();
    }
    world.register(all[0], "election", ELECTION);
    for who in &all[1..] {
        world.create_ephemeral(*who, &format!("/em/election/{who}")).ok().unwrap();
    }
    let answers = [Ok(()), Err(ErrorCode::NoNode), Err(ErrorCode::NoNode)];
    for (who, answer) in all.iter().zip(answers) {
        assert_eq!(world.block(*who, &format!("/leader/{who}")).ok(), answer);
    }
    world.close(all[0]);
    assert_eq!(world.events(all[1]), [(EventKind::Created, "/leader/1".to_owned())]);
    assert_eq!(world.events(all[2]), []);
    assert_eq!(world.children(all[2], "/leader").names(), ["1"]);
    world.close(all[1]);
    assert_eq!(world.events(all[2]), [(EventKind::Created, "/leader/2".to_owned())]);
    world.assert_agreement();
}

#[test]
fn who_comes_back_while_it_waits_asks_the_program_again() {
    let mut world = World::new(1);
    let (anna, bruno) = (world.client(1), world.client(1));
    world.create(anna, "/barrier", "").ok().unwrap();
    world.register(anna, "barrier", BARRIER);
    world.create_ephemeral(bruno, "/em/barrier/bruno").ok().unwrap();
    assert_eq!(world.block(bruno, "/ready/bruno").ok(), Err(ErrorCode::NoNode));
    world.reconnect(bruno, 1);
    world.send(bruno, Opcode::SetWatches, |body| {
        encode::set_watches(body, 1 << 40, &[&[], &["/ready/bruno", "/else"], &[]]);
    });
    assert_eq!(world.events(bruno), [(EventKind::Created, "/ready/bruno".to_owned())]);
}

#[test]
fn programs_that_react_to_nothing_cost_updates_nothing() {
    let mut world = World::new(1);
    let anna = world.client(1);
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    world.create(anna, "/a", "").ok().unwrap();
    world.set(anna, "/a", "1").ok().unwrap();
    let (_, stats) = world.server(1).programs().next().unwrap();
    assert_eq!(stats.calls, 0);
}
