//! Sites that are divided over partitions, whatever the other stories are told of.

use super::*;

/// A znode that lives on this partition of a site.
pub(super) fn name_on(world: &World, site: SiteId, partition: u8) -> String {
    let placement = world.site_at(site).placement();
    let mut names = (0..).map(|number| format!("/n{number}"));
    names.find(|name| placement.of(name) == partition).unwrap()
}

pub(super) fn set_both(xid: i32, paths: [&str; 2]) -> Vec<u8> {
    request(xid, Opcode::Multi, |out| {
        for path in paths {
            MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(out);
            encode::set_data(out, path, Some(b"both"), -1);
        }
        MultiHeader::END.encode(out);
    })
}

/// Each partition of the hub counts by itself, and hears of the others only what somebody has seen who asks it.
#[test]
fn what_is_asked_behind_an_answer_gets_a_larger_zxid_on_any_partition_of_the_hub() {
    let mut world = World::divided(&[4, 1]);
    let names: Vec<String> = (0..4).map(|partition| name_on(&world, HUB, partition)).collect();
    let client = world.open(2);
    let mut last = 0;
    for path in &names {
        last = world.ask(client, &create(1, path, CreateMode::Persistent)).stat().czxid.max(last);
    }
    for turn in 0..12 {
        // The one that is asked has done less than the one before.
        let path = &names[if turn % 3 == 2 { 3 - turn / 3 } else { turn / 3 }];
        world.ask(client, &create(2, &format!("{path}/{turn}"), CreateMode::Persistent));
        let zxid = world.tree(HUB).get(&format!("{path}/{turn}")).unwrap().stat().czxid;
        assert!(zxid > last, "{path}/{turn} has {zxid:#x}, and {last:#x} was before");
        last = zxid;
    }
    world.check_equal();
}

/// The first partition of the hub gives an operation of others its zxid.
#[test]
fn no_zxid_is_given_twice_where_the_first_partition_has_no_share() {
    for partitions in [[3, 1], [3, 2]] {
        let mut world = World::divided(&partitions);
        let names: Vec<String> = (0..3).map(|partition| name_on(&world, HUB, partition)).collect();
        let client = world.open(2);
        for path in &names {
            world.ask(client, &create(1, path, CreateMode::Persistent));
        }
        let mut seen = BTreeSet::new();
        for turn in 0..4 {
            world.ask(client, &set_both(2, [&names[1], &names[2]]));
            if turn % 2 == 1 {
                world.restart(HUB);
                world.settle();
            }
            world.ask(client, &set(3, &names[0], b"one"));
            let tree = world.tree(HUB);
            let [one, both, other] = [0, 1, 2].map(|at| tree.get(&names[at]).unwrap().stat().mzxid);
            assert_eq!(both, other);
            assert!(seen.insert(one) && seen.insert(both), "{one:#x} or {both:#x} was given before");
            assert!(one > both, "{both:#x} was before {one:#x}");
        }
        world.check_equal();
    }
}

/// A log without room loses what is in it and not stored; what waits behind that cannot be taken without it.
#[test]
fn what_waits_behind_an_import_that_the_log_refuses_is_not_taken_without_it() {
    let mut world = World::divided(&[3, 1]);
    let path = name_on(&world, HUB, 1);
    let (leaves, client) = (world.open(HUB), world.open(2));
    for partition in 0..3 {
        let own = format!("{}-own", name_on(&world, HUB, partition));
        world.ask(leaves, &create(1, &own, CreateMode::Ephemeral));
    }
    world.ask(client, &create(1, &path, CreateMode::Persistent));
    (2..5).for_each(|xid| _ = world.ask(client, &set(xid, &path, b"here")));
    assert_eq!(world.tree(2).holder(&path), Some(2));
    // The hub's log has the first, the end of a session, for which all partitions stand still, and not yet the second.
    world.ask_here(client, &create(5, &format!("{path}/below"), CreateMode::Persistent)).unwrap();
    world.carry(2, HUB);
    world.send(leaves, &request(2, Opcode::CloseSession, |_| {}));
    world.ask_here(client, &set(6, &format!("{path}/below"), b"more")).unwrap();
    world.carry(2, HUB);
    world.refuse(HUB);
    world.pass(1000);
    world.check_equal();
}

/// The end of a session comes to the hub when an ephemeral of it is prepared and not applied, and is in the log before that.
#[test]
fn an_ephemeral_on_another_partition_than_its_parent_comes_behind_the_end_of_its_session() {
    for partitions in [[2, 1], [3, 1], [4, 1]] {
        let mut world = World::divided(&partitions);
        let path = name_on(&world, HUB, 1);
        let client = world.open(2);
        world.send(client, &create(1, &path, CreateMode::Ephemeral));
        while world.store(2) {}
        while world.carry(2, HUB) {}
        let asked = world.site(HUB).log.len();
        world.now.mono_us += 11_000_000;
        let now = world.now;
        world.site(2).server.tick_all(now);
        world.poll(2);
        while world.store(2) {}
        while world.carry(2, HUB) {}
        assert!(world.site(HUB).log.len() > asked, "the end is in the log, and the request not tried yet");
        let hub = world.site(HUB);
        let stored: Vec<_> = hub.log.drain(..asked).collect();
        let last = stored.last().unwrap().position;
        hub.disk.extend(stored.into_iter().map(|append| (append.position, append.payload.join())));
        hub.server.appended(last, now);
        world.poll(HUB);
        world.settle();
        assert!(world.tree(HUB).get(&path).is_none());
        world.check_equal();
        world.restart(HUB);
        world.settle();
        world.check_equal();
        // Its place is free.
        let other = world.open(HUB);
        assert_eq!(world.ask(other, &create(1, &path, CreateMode::Persistent)).path(), path);
    }
}
