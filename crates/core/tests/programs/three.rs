//! At three servers.

use crate::COUNTER;
use crate::world::World;
use stoa_wire::{ErrorCode, OPEN_ACL, Opcode, request::encode};

#[test]
fn a_call_goes_by_way_of_the_leader_wherever_its_client_is() {
    let mut world = World::new(3);
    let (leader, follower) = (world.leader(), world.follower());
    let (anna, bruno) = (world.client(leader), world.client(follower));
    world.create(bruno, "/ctr", "0").ok().unwrap();
    world.register(bruno, "counter", COUNTER);
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Ok("1".into()));
    assert_eq!(world.get(anna, "/ctr-increment").data(), Err(ErrorCode::NoNode));
    world.create_ephemeral(anna, "/em/counter/anna").ok().unwrap();
    assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("2".into()));
    let refused = world.create(bruno, "/em/bad", "fn");
    assert_eq!(refused.ok(), Err(ErrorCode::BadArguments));
    assert!(world.why(bruno).starts_with("/em/bad: line 1"));
    world.set(anna, "/ctr", "many").ok().unwrap();
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Err(ErrorCode::SystemError));
    assert!(world.why(bruno).contains("is no number"));
    world.assert_agreement();
}

#[test]
fn the_next_leader_has_the_programs() {
    let mut world = World::new(3);
    let follower = world.follower();
    let anna = world.client(follower);
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    assert_eq!(world.get(anna, "/ctr-increment").data(), Ok("1".into()));
    let lost = world.lose_leader();
    assert_ne!(world.leader(), lost);
    for count in 2..5 {
        assert_eq!(world.get(anna, "/ctr-increment").data(), Ok(count.to_string()));
    }
    world.restart(lost);
    world.pass(300);
    let bruno = world.client(lost);
    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    assert_eq!(world.get(bruno, "/ctr-increment").data(), Ok("5".into()));
    world.assert_agreement();
}

#[test]
fn calls_under_way_when_the_leader_is_lost_are_carried_out_once() {
    let mut world = World::new(3);
    let follower = world.follower();
    let anna = world.client(follower);
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    // The leader hears of it, and nobody stores anything before it is gone.
    world.stalled.extend([1, 2, 3]);
    for _ in 0..3 {
        world.send(anna, Opcode::GetData, |body| encode::path_watch(body, "/ctr-increment", false));
    }
    assert!(world.answers(anna).is_empty());
    world.stalled.clear();
    let leader = world.leader();
    world.stalled.insert(leader);
    world.lose_leader();
    let answers: Vec<_> = world.answers(anna).iter().map(|answer| answer.data()).collect();
    assert_eq!(answers, [Ok("1".into()), Ok("2".into()), Ok("3".into())]);
    assert_eq!(world.get(anna, "/ctr").data(), Ok("3".into()));
    world.assert_agreement();
}

#[test]
fn what_follows_an_acknowledgement_waits_for_a_leader_whose_disk_is_slow() {
    let mut world = World::new(3);
    let (leader, follower) = (world.leader(), world.follower());
    let (anna, bruno) = (world.client(follower), world.client(follower));
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    // The others commit and apply the acknowledgement before the leader does.
    world.stalled.insert(leader);
    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    let set = |body: &mut Vec<u8>| encode::create(body, "/a", Some(b""), OPEN_ACL, 0, None);
    world.send(bruno, Opcode::GetData, |body| encode::path_watch(body, "/ctr-increment", false));
    world.send(bruno, Opcode::Create, set);
    world.pass(100);
    world.stalled.clear();
    world.pass(100);
    let answers = world.answers(bruno);
    assert_eq!(answers[0].data(), Ok("1".into()));
    assert_eq!(answers[1].ok(), Ok(()));
    world.assert_agreement();
}

#[test]
fn a_read_whose_program_is_taken_away_is_answered_as_any_other() {
    let mut world = World::new(3);
    let (leader, follower) = (world.leader(), world.follower());
    let (anna, bruno) = (world.client(leader), world.client(follower));
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.create(anna, "/ctr-increment", "plain").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    world.create_ephemeral(bruno, "/em/counter/bruno").ok().unwrap();
    // The follower does not know yet that the program is gone.
    world.stalled.insert(follower);
    world.delete(anna, "/em/counter").ok().unwrap();
    let get = |path: &'static str| move |body: &mut Vec<u8>| encode::path_watch(body, path, false);
    world.send(bruno, Opcode::GetData, get("/ctr-increment"));
    world.send(bruno, Opcode::SetData, |body| encode::set_data(body, "/ctr", Some(b"7"), -1));
    world.send(bruno, Opcode::GetData, get("/ctr"));
    world.settle();
    world.stalled.clear();
    let answers: Vec<_> = world.answers(bruno).iter().map(|answer| (answer.xid, answer.clone())).collect();
    assert_eq!(answers.iter().map(|(xid, _)| *xid).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(answers[0].1.data(), Ok("plain".into()));
    assert_eq!(answers[2].1.data(), Ok("7".into()));
    world.assert_agreement();
}

#[test]
fn a_session_that_moves_keeps_its_acknowledgement() {
    let mut world = World::new(3);
    let follower = world.follower();
    let anna = world.client(follower);
    world.create(anna, "/ctr", "0").ok().unwrap();
    world.register(anna, "counter", COUNTER);
    for server in 1..=3 {
        world.reconnect(anna, server);
        assert_eq!(world.get(anna, "/ctr-increment").data(), Ok(server.to_string()));
    }
}
