//! Subtrees whose changes have to be at two sites before they are answered.

use super::*;
use stoa_core::SiteSet;
use stoa_wire::Acl;

/// What the operator says, at the hub; each site reads it where it comes to it.
fn say(world: &mut World, lines: &str) {
    let (now, hub) = (world.now, world.hub);
    world.site(hub).server.write_sites(lines, now).unwrap();
    world.poll(hub);
    world.settle();
}

/// Sites, and below `/safe` two of them are needed.
fn world(count: u8) -> (World, Client) {
    let mut world = World::new(count);
    say(&mut world, "two-sites /safe\none-site /safe/cache");
    let client = world.open(HUB);
    for (xid, path) in [(1, "/safe"), (2, "/safe/cache"), (3, "/fast"), (4, "/safe/a")] {
        assert_eq!(world.ask(client, &create(xid, path, CreateMode::Persistent)).path(), path);
    }
    (world, client)
}

fn held(world: &World, id: SiteId) -> u64 {
    world.site_at(id).site_status().unwrap().held
}

fn cut(world: &mut World, leaf: SiteId) {
    world.cut.extend([(leaf, HUB), (HUB, leaf)]);
}

fn ping(world: &mut World, client: Client) {
    world.send(client, &request(xid::PING, Opcode::Ping, |_| {}));
    assert_eq!(world.take(client).pop().unwrap().xid, xid::PING);
}

/// Two in a row from a site, and it has the token.
fn give(world: &mut World, client: Client, path: &str) {
    for xid in 1000..1002 {
        assert_eq!(world.ask(client, &set(xid, path, b"given")).err, 0);
    }
    assert_eq!(world.tree(client.0).holder(path), Some(client.0));
}

fn multi(xid: i32, paths: &[&str], is_check: bool) -> Vec<u8> {
    request(xid, Opcode::Multi, |out| {
        for path in paths {
            let opcode = if is_check { Opcode::Check } else { Opcode::SetData };
            MultiHeader { opcode: opcode as i32, done: false, err: -1 }.encode(out);
            match is_check {
                true => encode::path_version(out, path, -1),
                false => encode::set_data(out, path, Some(b"multi"), -1),
            }
        }
        MultiHeader::END.encode(out);
    })
}

#[test]
fn a_write_at_the_hub_is_answered_when_a_leaf_has_it() {
    let (mut world, client) = world(3);
    // It does not matter which one.
    cut(&mut world, 2);
    assert_eq!(world.ask_here(client, &set(5, "/safe/a", b"two")), None);
    assert_eq!(held(&world, HUB), 1);
    assert!(world.carry(HUB, 3));
    world.store(3);
    assert_eq!(world.take(client), [], "it is there, and nobody here knows that");
    assert!(world.carry(3, HUB));
    assert_eq!(world.take(client)[0].stat().version, 1);
    assert_eq!(held(&world, HUB), 0);
    world.cut.clear();
    world.settle();
    world.check_equal();
}

#[test]
fn a_write_at_a_leaf_is_answered_when_the_hub_has_it() {
    let (mut world, _) = world(3);
    let (client, reader) = (world.open(2), world.open(2));
    give(&mut world, client, "/safe/a");
    let watch = request(1, Opcode::GetData, |out| encode::path_watch(out, "/safe/a", true));
    world.ask(reader, &watch);
    assert_eq!(world.ask_here(client, &set(3, "/safe/a", b"two")), None);
    // Who watches is told, and who reads reads it.
    assert_eq!(world.take(reader)[0].xid, xid::NOTIFICATION);
    assert_eq!(data(&world.ask_here(reader, &get(2, "/safe/a")).unwrap()), b"two");
    assert!(world.carry(2, HUB));
    assert!(!world.carry(HUB, 2), "it is not durable there yet");
    world.store(HUB);
    assert_eq!(world.take(client), []);
    assert!(world.carry(HUB, 2));
    assert_eq!(world.take(client)[0].stat().version, 3);
    world.settle();
    world.check_equal();
}

#[test]
fn what_another_site_has_carried_out_waits_for_nothing_more() {
    let (mut world, _) = world(3);
    let (client, holder) = (world.open(2), world.open(3));
    give(&mut world, holder, "/safe/a");
    for (path, at) in [("/safe", HUB), ("/safe/a", 3)] {
        assert_eq!(world.tree(2).holder(path), Some(at));
        world.send(client, &set(1, path, b"forwarded"));
        let mut steps = 0;
        let frames = loop {
            let frames = world.take(client);
            if !frames.is_empty() {
                break frames;
            }
            assert_eq!(held(&world, 2), 0);
            for (from, to) in world.pairs() {
                world.store(from);
                world.carry(from, to);
            }
            steps += 1;
            assert!(steps < 100, "it is never answered");
        };
        assert_eq!(frames[0].err, 0);
        assert_eq!(data(&world.ask_here(client, &get(2, path)).unwrap()), b"forwarded");
        world.settle();
    }
    world.check_equal();
}

#[test]
fn every_change_below_waits_and_nothing_else_does() {
    if is_divided() {
        return;
    }
    let (mut world, client) = world(2);
    let other = world.open(HUB);
    cut(&mut world, 2);
    let acl = |out: &mut Vec<u8>| {
        put::str(out, "/safe/a");
        Acl::encode_list(out, OPEN_ACL.iter().copied());
        put::i32(out, -1);
    };
    let mut waits = 0;
    for (xid, (bytes, is_held)) in (10..).zip([
        (create(10, "/safe/b", CreateMode::Persistent), true),
        (create(11, "/safe/s-", CreateMode::PersistentSequential), true),
        (create(12, "/safe/e", CreateMode::Ephemeral), true),
        (set(13, "/safe/b", b"x"), true),
        (request(14, Opcode::SetAcl, acl), true),
        (delete(15, "/safe/b"), true),
        (multi(16, &["/fast", "/safe/a"], false), true),
        (multi(17, &["/safe/a"], true), false),
        (multi(18, &["/fast", "/safe/cache"], false), false),
        (set(19, "/safe/cache", b"x"), false),
        (set(20, "/safe/none", b"x"), false),
        (create(21, "/fast/a", CreateMode::Persistent), false),
        (create(22, "/safely", CreateMode::Persistent), false),
        (get(23, "/safe/a"), false),
    ]) {
        let client = if is_held { client } else { other };
        let answer = world.ask_here(client, &bytes);
        assert_eq!(answer.map(|frame| frame.xid), Some(xid).filter(|_| !is_held));
        waits += u64::from(is_held);
        assert_eq!(held(&world, HUB), waits, "{xid}");
    }
    // The end of a session waits for nothing, though its ephemerals are below.
    let (third, opened) = world.open_with(HUB, 0, &[0; 16]);
    assert_eq!(world.ask_here(third, &create(1, "/safe/mine", CreateMode::Ephemeral)), None);
    let now = world.now;
    world.site(HUB).server.disconnected(third.1, now);
    let (again, _) = world.open_with(HUB, opened.session_id, &opened.password);
    let end = world.ask_here(again, &request(2, Opcode::CloseSession, |_| {}));
    assert_eq!(end.map(|frame| frame.err), Some(0));
    assert!(world.tree(HUB).get("/safe/mine").is_none());
    world.cut.clear();
    world.settle();
    let answered: Vec<_> = world.take(client).iter().map(|frame| (frame.xid, frame.err)).collect();
    assert_eq!(answered, [10, 11, 12, 13, 14, 15, 16].map(|xid| (xid, 0)));
    world.check_equal();
}

#[test]
fn answers_of_a_client_stay_in_order_and_others_do_not_wait() {
    if is_divided() {
        return;
    }
    let (mut world, client) = world(2);
    let other = world.open(HUB);
    cut(&mut world, 2);
    let pipeline = [
        set(5, "/fast", b"before"),
        set(6, "/safe/a", b"two"),
        get(7, "/safe/a"),
        set(8, "/fast", b"behind"),
        delete(9, "/none"),
        get(10, "/fast"),
        set(11, "/safe/a", b"three"),
    ];
    world.send(client, &pipeline.concat());
    while world.store(HUB) {}
    assert_eq!(world.take(client).iter().map(|frame| frame.xid).collect::<Vec<_>>(), [5]);
    // All of it is carried out.
    assert_eq!(data(&world.ask_here(other, &get(1, "/fast")).unwrap()), b"behind");
    assert_eq!(data(&world.ask_here(other, &get(2, "/safe/a")).unwrap()), b"three");
    assert_eq!(world.ask_here(other, &set(3, "/fast", b"other")).unwrap().err, 0);
    world.cut.clear();
    world.settle();
    let frames = world.take(client);
    assert_eq!(frames.iter().map(|frame| frame.xid).collect::<Vec<_>>(), [6, 7, 8, 9, 10, 11]);
    assert_eq!(frames[3].err, ErrorCode::NoNode as i32);
    // Each read has had its turn, and sees nothing of what was asked behind it.
    assert_eq!((data(&frames[1]), data(&frames[4])), (b"two".to_vec(), b"behind".to_vec()));
    world.check_equal();
}

#[test]
fn the_end_of_a_session_comes_behind_what_its_client_waits_for() {
    let (mut world, client) = world(2);
    cut(&mut world, 2);
    let ends = request(6, Opcode::CloseSession, |_| {});
    world.send(client, &[set(5, "/safe/a", b"last"), ends].concat());
    while world.store(HUB) {}
    assert_eq!((world.take(client), world.site(HUB).closed.get(&client.1)), (Vec::new(), None));
    world.cut.clear();
    world.settle();
    assert_eq!(
        world.take(client).iter().map(|frame| (frame.xid, frame.err)).collect::<Vec<_>>(),
        [(5, 0), (6, 0)]
    );
    assert_eq!(world.site(HUB).closed.get(&client.1), Some(&CloseReason::SessionClosed));
}

#[test]
fn a_client_is_let_go_when_no_other_site_has_it_in_time() {
    for at in [HUB, 2] {
        let (mut world, _) = world(2);
        let (client, other) = (world.open(at), world.open(at));
        give(&mut world, client, "/safe/a");
        cut(&mut world, 2);
        assert_eq!(world.ask_here(client, &set(5, "/safe/a", b"two")), None);
        for _ in 0..9 {
            world.pass(1000);
            ping(&mut world, client);
            ping(&mut world, other);
        }
        assert_eq!(world.site(at).closed.get(&client.1), None);
        assert!(world.site_at(at).next_wake_us() <= world.now.mono_us + 1_000_000);
        world.pass(1000);
        assert_eq!(world.site(at).closed.get(&client.1), Some(&CloseReason::SiteAway));
        assert_eq!(world.take(client), []);
        assert_eq!(world.site(at).closed.get(&other.1), None);
        assert_eq!(held(&world, at), 0);
        // It has been written all the same.
        assert_eq!(data(&world.ask_here(other, &get(6, "/safe/a")).unwrap()), b"two");
        world.cut.clear();
        world.settle();
        world.check_equal();
    }
}

#[test]
fn one_site_alone_waits_for_nobody() {
    let mut world = World::new(1);
    say(&mut world, "two-sites /");
    let client = world.open(HUB);
    assert_eq!(world.ask_here(client, &create(1, "/a", CreateMode::Persistent)).unwrap().path(), "/a");
    world.join(2);
    world.settle();
    cut(&mut world, 2);
    assert_eq!(world.ask_here(client, &set(2, "/a", b"x")), None);
    // The other one is lost for good.
    world.lose(2);
    world.settle();
    world.pass(100);
    assert_eq!(world.take(client)[0].stat().version, 1);
    assert_eq!(world.ask_here(client, &set(3, "/a", b"x")).unwrap().stat().version, 2);
    world.cut.clear();
    world.come_back(2, true);
    world.settle();
    assert_eq!(world.ask_here(client, &set(4, "/a", b"x")), None);
    world.settle();
    assert_eq!(world.take(client)[0].stat().version, 3);
    world.check_equal();
}

#[test]
fn what_is_said_counts_from_its_place_in_the_log_on_and_after_a_start() {
    if is_divided() {
        return;
    }
    let (mut world, client) = world(2);
    cut(&mut world, 2);
    // It stands in the log before these two.
    let now = world.now;
    world.site(HUB).server.write_sites("two-sites /fast", now).unwrap();
    world.send(client, &[set(5, "/safe/a", b"x"), set(6, "/fast", b"x")].concat());
    while world.store(HUB) {}
    assert_eq!(world.take(client).iter().map(|frame| frame.xid).collect::<Vec<_>>(), [5]);
    world.restart(HUB);
    let client = world.open(HUB);
    assert_eq!(world.ask_here(client, &set(1, "/fast", b"x")), None);
    // It is taken back, and nobody waits any more.
    let now = world.now;
    world.site(HUB).server.write_sites("# nothing", now).unwrap();
    world.poll(HUB);
    while world.store(HUB) {}
    world.pass(100);
    assert_eq!(world.take(client)[0].err, 0);
    assert_eq!(world.ask_here(client, &set(2, "/fast", b"x")).unwrap().err, 0);
    world.cut.clear();
    world.connect_sites(2);
    world.settle();
    world.check_equal();
}

/// What was sent before the sites have met again is acknowledged when they do.
#[test]
fn who_comes_back_says_what_it_has() {
    let (mut world, client) = world(2);
    world.cut.insert((2, HUB));
    assert_eq!(world.ask_here(client, &set(5, "/safe/a", b"two")), None);
    world.settle();
    assert_eq!(world.tree(2).get("/safe/a").unwrap().stat().version, 1);
    assert_eq!(world.take(client), []);
    world.cut.clear();
    world.connect_sites(2);
    assert!(world.carry(2, HUB));
    assert_eq!(world.take(client)[0].stat().version, 1);
    world.settle();
    world.check_equal();
}

/// A new hub knows nothing of positions in the log of a site that it has never met, but of its updates.
#[test]
fn a_new_hub_says_what_it_has_by_way_of_the_one_before() {
    let (mut world, _) = world(3);
    let client = world.open(2);
    give(&mut world, client, "/safe/a");
    world.cut.insert((HUB, 2));
    assert_eq!(world.ask_here(client, &set(3, "/safe/a", b"two")), None);
    world.settle();
    let reader = world.open(3);
    assert_eq!(data(&world.ask(reader, &get(1, "/safe/a"))), b"two");
    assert_eq!(world.take(client), []);
    world.claim(3, &[HUB]);
    world.settle();
    assert_eq!(world.take(client)[0].stat().version, 3);
    world.check_equal();
}

/// What nobody has but the site that is lost, nobody was told of.
#[test]
fn nothing_that_was_answered_is_lost_with_one_site() {
    let (mut world, _) = world(3);
    let client = world.open(2);
    give(&mut world, client, "/safe/a");
    give(&mut world, client, "/fast");
    assert_eq!(world.ask(client, &set(3, "/safe/a", b"kept")).stat().version, 3);
    cut(&mut world, 2);
    assert_eq!(world.ask_here(client, &set(4, "/fast", b"lost")).unwrap().err, 0);
    assert_eq!(world.ask_here(client, &set(5, "/safe/a", b"nobody was told")), None);
    world.lose(2);
    world.settle();
    let reader = world.open(3);
    assert_eq!(data(&world.ask(reader, &get(1, "/safe/a"))), b"kept");
    assert_eq!(data(&world.ask(reader, &get(2, "/fast"))), b"given");
    world.cut.clear();
    world.come_back(2, false);
    world.settle();
    assert_eq!(world.site(2).closed.get(&client.1), Some(&CloseReason::NotJoined));
    assert_eq!(held(&world, 2), 0);
    // In its new life it begins anew: what others had of the one before says nothing.
    let again = world.open(2);
    give(&mut world, again, "/safe/a");
    cut(&mut world, 2);
    assert_eq!(world.ask_here(again, &set(6, "/safe/a", b"new")), None);
    world.cut.clear();
    world.settle();
    assert_eq!(world.take(again)[0].err, 0);
    world.check_equal();
}

/// A site that is given up with a claim says nothing any more that counts.
#[test]
fn who_is_given_up_is_no_second_site() {
    let (mut world, _) = world(3);
    let client = world.open(2);
    give(&mut world, client, "/safe/a");
    cut(&mut world, 2);
    assert_eq!(world.ask_here(client, &set(3, "/safe/a", b"two")), None);
    let now = world.now;
    let claim = world.site(3).server.claim_reign(SiteSet::of(HUB), SiteSet::of(2), now).unwrap();
    world.site(2).server.follow_site(claim, now);
    world.poll(2);
    while world.store(2) {}
    // The old hub has it after all, and says so.
    world.cut.clear();
    assert!(world.carry(2, HUB));
    world.store(HUB);
    assert!(world.carry(HUB, 2));
    assert_eq!(world.take(client), []);
    world.claim(3, &[HUB]);
    world.settle();
    assert_eq!(world.take(client)[0].err, 0);
    world.check_equal();
}

#[test]
fn what_a_log_has_no_room_for_is_refused_behind_what_waits() {
    if is_divided() {
        return;
    }
    let (mut world, client) = world(2);
    cut(&mut world, 2);
    assert_eq!(world.ask_here(client, &set(5, "/safe/a", b"two")), None);
    world.send(client, &set(6, "/fast", b"no room"));
    world.refuse(HUB);
    assert_eq!(world.take(client), []);
    world.pass(600);
    world.cut.clear();
    world.settle();
    let answered: Vec<_> = world.take(client).iter().map(|frame| (frame.xid, frame.err)).collect();
    assert_eq!(answered, [(5, 0), (6, ErrorCode::SystemError as i32)]);
    world.check_equal();
}

/// A client that hears of an event before it hears that it watches would not know it; and who was told a zxid is not
/// told again of what came before.
#[test]
fn events_of_who_waits_come_in_their_place_and_heartbeats_do_not_pass_them_by() {
    if is_divided() {
        return;
    }
    let (mut world, (client, session), other) = {
        let (mut world, other) = world(2);
        let opened = world.open_with(HUB, 0, &[0; 16]);
        (world, opened, other)
    };
    let told = world.ask(client, &get(1, "/fast")).zxid;
    cut(&mut world, 2);
    let watch = request(3, Opcode::GetData, |out| encode::path_watch(out, "/fast", true));
    world.send(client, &[set(2, "/safe/a", b"two"), watch].concat());
    while world.store(HUB) {}
    assert_eq!(world.ask_here(other, &set(9, "/fast", b"seen by others")).unwrap().err, 0);
    world.send(client, &request(xid::PING, Opcode::Ping, |_| {}));
    let frames = world.take(client);
    assert_eq!((frames.len(), frames[0].xid, frames[0].zxid), (1, xid::PING, told));
    // It goes, and has missed nothing when it comes back.
    let now = world.now;
    world.site(HUB).server.disconnected(client.1, now);
    let (client, _) = world.open_with(HUB, session.session_id, &session.password);
    let again =
        request(-8, Opcode::SetWatches, |out| encode::set_watches(out, told, &[&["/fast"], &[], &[]]));
    world.send(client, &again);
    assert_eq!(world.take(client).iter().map(|frame| frame.xid).collect::<Vec<_>>(), [xid::NOTIFICATION, -8]);
    // Who stays has everything in its order.
    let watch = request(5, Opcode::GetData, |out| encode::path_watch(out, "/fast", true));
    world.send(client, &[set(4, "/safe/a", b"three"), watch, set(6, "/fast", b"own")].concat());
    while world.store(HUB) {}
    assert_eq!(world.take(client), []);
    world.cut.clear();
    world.settle();
    let xids: Vec<_> = world.take(client).iter().map(|frame| frame.xid).collect();
    assert_eq!(xids, [4, 5, xid::NOTIFICATION, 6]);
    world.check_equal();
}
