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

fn create_and_delete(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Multi, |out| {
        MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 }.encode(out);
        encode::create(out, path, Some(b"x"), OPEN_ACL, CreateMode::Ephemeral as i32, None);
        MultiHeader { opcode: Opcode::Delete as i32, done: false, err: -1 }.encode(out);
        encode::path_version(out, path, -1);
        MultiHeader::END.encode(out);
    })
}

/// The end of a session comes to the hub when an ephemeral of it is prepared and not applied, and is in the log before that.
#[test]
fn an_ephemeral_on_another_partition_than_its_parent_comes_behind_the_end_of_its_session() {
    for (partitions, is_deleted) in
        [[2, 1], [3, 1], [4, 1]].into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let mut world = World::divided(&partitions);
        let path = name_on(&world, HUB, 1);
        let client = world.open(2);
        let asked = match is_deleted {
            true => create_and_delete(1, &path),
            false => create(1, &path, CreateMode::Ephemeral),
        };
        world.send(client, &asked);
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

/// What another site has changed comes to one partition, and the client was told more by another one.
#[test]
fn a_client_that_comes_back_is_told_of_what_came_to_a_partition_late() {
    let mut world = World::divided(&[1, 2]);
    let (mine, theirs) = (name_on(&world, 2, 0), name_on(&world, 2, 1));
    let ((watcher, session), writer) = (world.open_with(2, 0, &[0; 16]), world.open(HUB));
    for (client, path) in [(writer, &theirs), (watcher, &mine)] {
        world.ask(client, &create(0, path, CreateMode::Persistent));
    }
    for xid in 3..5 {
        world.ask(watcher, &set(xid, &mine, b"mine"));
    }
    world.ask(watcher, &request(6, Opcode::GetData, |out| encode::path_watch(out, &theirs, true)));
    world.ask_here(writer, &set(1, &theirs, b"changed")).unwrap();
    let mut told = 0;
    for xid in 7..30 {
        // The partition of the other znode says how far it has come, as it has nothing else to do.
        world.now.mono_us += 50_000;
        let now = world.now;
        world.site(2).server.tick_all(now);
        world.poll(2);
        while world.store(2) {}
        world.send(watcher, &set(xid, &mine, b"mine"));
        while world.store(2) {}
        told = world.take(watcher).iter().map(|frame| frame.zxid).fold(told, i64::max);
    }
    let now = world.now;
    world.site(2).server.disconnected(watcher.1, now);
    world.settle();
    let changed = world.tree(2).get(&theirs).unwrap().stat().mzxid;
    assert!(changed < told, "it is late");
    let again = |world: &mut World, client: Client| {
        world.send(
            client,
            &request(-8, Opcode::SetWatches, |out| {
                encode::set_watches(out, told, &[&[&theirs, &mine], &[], &[]]);
            }),
        );
        world.settle();
        let events = world.take(client).into_iter().filter(|frame| frame.xid == -1);
        events
            .map(|event| WatcherEvent::decode(&mut Reader::new(&event.body)).unwrap().path.to_owned())
            .collect::<Vec<_>>()
    };
    let (watcher, _) = world.open_with(2, session.session_id, &session.password);
    assert!(again(&mut world, watcher).contains(&theirs));
    // Also when nothing is known any more of when it came.
    world.restart(2);
    (0..4).for_each(|_| world.pass(100));
    let (watcher, _) = world.open_with(2, session.session_id, &session.password);
    assert!(again(&mut world, watcher).contains(&theirs));
    world.check_equal();
}

/// Something moves to a partition of a site, and is there.
fn moves(world: &mut World, site: SiteId, path: &str, to: u8) {
    world.site(site).server.ask_move(path, to).unwrap();
    world.poll(site);
    world.settle();
    assert_eq!(world.site_at(site).placement().of(path), to, "{path} at site {site}");
}

#[test]
fn what_the_operator_says_of_subtrees_counts_at_a_site() {
    let mut world = World::divided(&[2, 1]);
    let path = name_on(&world, HUB, 0);
    let client = world.open(HUB);
    world.ask(client, &create(1, &path, CreateMode::Persistent));
    world.ask(client, &create(2, "/zookeeper/partitions", CreateMode::Persistent));
    world.ask(client, &set(3, "/zookeeper/partitions", format!("pin {path} 1").as_bytes()));
    (0..20).for_each(|_| world.pass(500));
    let server = &mut world.site(HUB).server;
    assert_eq!(server.placement().of(&path), 1);
    assert!(server.next_warning().is_none());
    world.check_equal();
}

/// Who holds a znode holds what is below it without a mark, wherever that lives; and what it is created below later.
#[test]
fn what_was_moved_is_held_with_what_is_above_it() {
    let mut world = World::divided(&[1, 2]);
    let top = name_on(&world, 2, 1);
    let (below, later) = (format!("{top}/below"), format!("{top}/below/later"));
    let client = world.open(2);
    for path in [&top, &below] {
        world.ask(client, &create(1, path, CreateMode::Persistent));
    }
    moves(&mut world, 2, &below, 0);
    // The token of the top comes; what is below is held with it, on both partitions.
    (2..5).for_each(|xid| _ = world.ask(client, &set(xid, &top, b"here")));
    for path in [&top, &below, &later] {
        assert_eq!((world.tree(2).holder(path), world.tree(HUB).holder(path)), (Some(2), Some(2)), "{path}");
    }
    assert!(world.ask_here(client, &create(5, &later, CreateMode::Persistent)).is_some_and(|it| it.err == 0));
    world.settle();
    // The hub has it back, and creates what is below anew, with no mark.
    let at_hub = world.open(HUB);
    for path in [&later, &below, &top] {
        assert_eq!(world.ask(at_hub, &delete(1, path)).err, 0);
    }
    for path in [&top, &below] {
        assert_eq!(world.ask(at_hub, &create(2, path, CreateMode::Persistent)).err, 0);
    }
    for path in [&top, &below, &later] {
        assert_eq!(
            (world.tree(2).holder(path), world.tree(HUB).holder(path)),
            (Some(HUB), Some(HUB)),
            "{path}"
        );
    }
    world.restart(2);
    world.settle();
    world.check_equal();
}

/// The parent's partition knows whose the ephemeral is, and so does each one to which the one or the other moves.
#[test]
fn an_ephemeral_that_was_moved_ends_with_its_session() {
    for ends_at in [HUB, 2] {
        let mut world = World::divided(&[3, 3]);
        let top = format!("{}-top", name_on(&world, 2, 1));
        let (own, below) = (name_on(&world, 2, 1), format!("{top}/below"));
        let (keeper, client) = (world.open(2), world.open(ends_at));
        world.ask(keeper, &create(1, &top, CreateMode::Persistent));
        for path in [&own, &below] {
            world.ask(client, &create(1, path, CreateMode::Ephemeral));
        }
        for site in [HUB, 2] {
            for to in [2, 0, 1, 2] {
                for path in [&own, &below, &top] {
                    let _ = world.site(site).server.ask_move(path, to);
                    world.poll(site);
                    world.settle();
                }
            }
            let to = (world.site_at(site).placement().of(&top) + 1) % 3;
            moves(&mut world, site, &below, to);
            moves(&mut world, site, &top, (to + 1) % 3);
        }
        world.check_equal();
        world.send(client, &request(9, Opcode::CloseSession, |_| {}));
        world.settle();
        for site in [HUB, 2] {
            assert!(world.tree(site).get(&own).is_none() && world.tree(site).get(&below).is_none());
        }
        world.check_equal();
        // Whoever reads all that again comes to the same.
        [HUB, 2].into_iter().for_each(|site| world.restart(site));
        world.settle();
        world.check_equal();
    }
}

/// What a client has asked goes to another site, and where it was asked of lives elsewhere when that has done it.
#[test]
fn who_has_asked_for_what_moves_meanwhile_is_told_what_became_of_it() {
    for back in [false, true] {
        let mut world = World::divided(&[1, 3]);
        let path = name_on(&world, 2, 1);
        let client = world.open(2);
        world.ask(client, &create(1, &path, CreateMode::Persistent));
        world.send(client, &[set(2, &path, b"one"), get(3, &path), set(4, "/none", b"two")].concat());
        while world.store(2) {}
        world.site(2).server.ask_move(&path, 2).unwrap();
        world.poll(2);
        while world.store(2) {}
        assert_eq!(world.site_at(2).placement().of(&path), 2, "it moves while the request is on its way");
        world.send(client, &set(5, &path, b"three"));
        if back {
            world.site(2).server.ask_move(&path, 1).unwrap();
            world.poll(2);
        }
        world.settle();
        let told = world.take(client);
        assert_eq!(told.iter().map(|frame| frame.xid).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!((told[0].stat().version, told[3].stat().version), (1, 2));
        assert_eq!(data(&told[1]), b"one");
        world.check_equal();
    }
}

/// What has come to one partition is not taken for news by the one to which it moves.
#[test]
fn what_comes_once_more_is_no_news_where_it_was_moved_to() {
    let mut world = World::divided(&[1, 2, 1]);
    let path = name_on(&world, 2, 1);
    let client = world.open(3);
    for xid in 1..5 {
        let asked = if xid == 1 { create(xid, &path, CreateMode::Persistent) } else { set(xid, &path, b"x") };
        world.ask(client, &asked);
    }
    assert_eq!(world.tree(HUB).holder(&path), Some(3));
    for xid in 5..9 {
        world.ask(client, &set(xid, &path, b"there"));
    }
    moves(&mut world, 2, &path, 0);
    // It is the hub, and hears from the third site what it has heard by way of the first one.
    world.claim(2, &[HUB]);
    world.settle();
    world.ask(client, &set(9, &path, b"again"));
    world.check_equal();
    assert_eq!(world.tree(2).get(&path).unwrap().stat().version, 8);
}

/// A site that gives up what it has takes over the hub's state with its own table, and the hub's may be another one.
#[test]
fn a_site_whose_subtrees_were_moved_joins_anew() {
    let mut world = World::divided(&[3, 3, 1]);
    let top = name_on(&world, 2, 1);
    let paths = [top.clone(), format!("{top}/a"), format!("{top}/a/b"), format!("{top}/a/b/c")];
    let client = world.open(HUB);
    for path in &paths {
        world.ask(client, &create(1, path, CreateMode::Persistent));
    }
    world.ask(client, &create(2, &format!("{top}/a/own"), CreateMode::Ephemeral));
    for (site, to) in [(HUB, [2, 0, 1, 0]), (2, [0, 2, 1, 2])] {
        for (path, to) in paths.iter().zip(to) {
            if world.site_at(site).placement().of(path) != to {
                moves(&mut world, site, path, to);
            }
        }
    }
    let third = world.open(3);
    (3..6).for_each(|xid| _ = world.ask(third, &set(xid, &paths[1], b"held")));
    assert_eq!(world.tree(2).holder(&paths[3]), Some(3));
    world.lose(2);
    world.settle();
    world.hear_of_loss(2);
    world.come_back(2, false);
    world.pass(1000);
    assert!(world.site(2).server.has_joined());
    assert_eq!(world.tree(2).holder(&paths[3]), Some(3));
    world.check_equal();
    world.restart(2);
    world.send(client, &request(9, Opcode::CloseSession, |_| {}));
    world.settle();
    world.check_equal();
}

/// The end of a session that is silent is found once. What clients ask of a hub without a lease is refused.
#[test]
fn a_session_that_falls_silent_while_its_hub_has_no_lease_ends() {
    let mut world = World::begun(3, 64 << 20, of_kind(PAPER), true, vec![2, 1, 1]);
    let pass = |world: &mut World, seconds: u32| (0..seconds * 10).for_each(|_| world.pass(100));
    pass(&mut world, 1);
    for other in [2, 3] {
        world.cut.extend([(HUB, other), (other, HUB)]);
    }
    pass(&mut world, 6);
    world.open(HUB);
    pass(&mut world, 25);
    world.cut.clear();
    world.leaves().into_iter().for_each(|leaf| world.connect_sites(leaf));
    pass(&mut world, 5);
    for site in 1..=3 {
        assert_eq!(world.tree(site).sessions().count(), 0, "at site {site}");
    }
    world.check_equal();
}

/// What a site was about to do when it was given up is not its any more when it is one again.
#[test]
fn a_site_that_has_come_back_does_not_end_sessions_that_have_left_it() {
    let mut world = World::divided(&[2, 2, 1]);
    let path = name_on(&world, HUB, 1);
    let (_, response) = world.open_with(2, 0, &[0; 16]);
    world.settle();
    world.cut.extend([(2, HUB), (HUB, 2)]);
    world.lose(2);
    world.settle();
    world.hear_of_loss(2);
    let (client, again) = world.come(3, response.session_id, &response.password);
    assert_eq!(again.session_id, response.session_id);
    world.ask(client, &create(1, &path, CreateMode::Ephemeral));
    // It takes the session for one of its own, which is silent, and may do nothing.
    for _ in 0..15 {
        world.ask(client, &request(-2, Opcode::Ping, |_| {}));
        world.pass(1000);
        let now = world.now;
        world.site(2).server.tick_all(now);
        world.poll(2);
        while world.store(2) {}
    }
    world.cut.clear();
    world.come_back(2, false);
    world.pass(1000);
    assert!(world.site(2).server.has_joined());
    for site in 1..=3 {
        assert!(world.tree(site).get(&path).is_some(), "at site {site}");
    }
    world.check_equal();
}

/// No other site hears of a move, so none is asked for one, or waits for it.
#[test]
fn a_move_is_nothing_that_another_site_lacks() {
    let mut world = World::divided(&[1, 2]);
    let path = name_on(&world, 2, 1);
    let client = world.open(HUB);
    world.ask(client, &create(1, &path, CreateMode::Persistent));
    moves(&mut world, 2, &path, 0);
    // The hub has nothing of that site, and says so. What moved is in its log, and not in what it tells.
    world.restart(2);
    world.settle();
    assert!(world.torn.is_empty(), "{:?}", world.torn);
    assert_eq!(world.ask(client, &set(2, &path, b"x")).err, 0);
    world.settle();
    world.check_equal();
}

/// A read that has to be asked elsewhere goes back to its client's front, and no refusal overtakes it.
#[test]
fn what_is_refused_for_want_of_a_lease_does_not_overtake_what_goes_back() {
    let mut world = World::begun(3, 64 << 20, of_kind(PAPER), true, vec![2, 1, 1]);
    world.pass(100);
    let (path, other) = (name_on(&world, HUB, 1), name_on(&world, HUB, 0));
    let client = world.open(HUB);
    for (xid, path) in [(1, &path), (2, &other)] {
        assert_eq!(world.ask(client, &create(xid, path, CreateMode::Persistent)).err, 0);
    }
    for other in [2, 3] {
        world.cut.extend([(HUB, other), (other, HUB)]);
    }
    let ping = |world: &mut World| {
        world.send(client, &request(xid::PING, Opcode::Ping, |_| ()));
        world.pass_in_turns(500);
    };
    let mut turns = 0;
    while world.site_at(HUB).acts_as_hub() {
        ping(&mut world);
        turns += 1;
        assert!(turns < 60, "the lease ends");
    }
    world.send(client, &[set(3, &path, b"one"), get(4, &path), set(5, &path, b"two")].concat());
    world.pass_in_turns(200);
    world.site(HUB).server.ask_move(&other, 1).unwrap();
    world.poll(HUB);
    while world.store(HUB) {}
    assert_eq!(world.site_at(HUB).placement().of(&other), 1);
    (0..30).for_each(|_| ping(&mut world));
    let told: Vec<i32> = world.take(client).iter().map(|frame| frame.xid).filter(|of| *of > 0).collect();
    assert_eq!(told, [3, 4, 5]);
}

/// An ephemeral that another site has created for a session which has ended here is none, wherever it and its parent live.
#[test]
fn an_ephemeral_of_an_ended_session_may_be_moved_away_from_its_parent() {
    for to in 0..3 {
        let mut world = World::divided(&[1, 3]);
        let top = name_on(&world, 2, 1);
        let below = format!("{top}/below");
        let at_hub = world.open(HUB);
        let (client, session) = world.open_with(2, 0, &[0; 16]);
        for path in [&top, &below] {
            world.ask(at_hub, &create(1, path, CreateMode::Persistent));
        }
        if to != 1 {
            moves(&mut world, 2, &below, to);
        }
        assert_eq!(world.ask(at_hub, &delete(2, &below)).err, 0);
        // What it asks is carried out at the hub, which has not heard yet that it has ended.
        world.send(client, &create(1, &below, CreateMode::Ephemeral));
        while world.store(2) {}
        while world.carry(2, HUB) {}
        while world.store(HUB) {}
        world.cut.extend([(2, HUB), (HUB, 2)]);
        world.pass_in_turns(20_000);
        let sessions: Vec<i64> = world.tree(2).sessions().map(|it| it.id).collect();
        assert!(!sessions.contains(&session.session_id), "it has ended");
        world.cut.clear();
        world.settle();
        world.pass_in_turns(1_000);
        assert!(world.tree(2).get(&below).is_none());
        world.check_equal();
    }
}
