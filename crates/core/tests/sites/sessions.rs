//! Sessions, their ephemerals, and clients that change their site.

use super::*;
use stoa_wire::Stat;

#[test]
fn a_session_is_judged_where_its_client_is() {
    let mut world = World::new(3);
    let (owner, other) = (world.open(2), world.open(3));
    let lock = world.ask(owner, &create(1, "/lock", CreateMode::Ephemeral));
    let ping = request(-2, Opcode::Ping, |_| {});
    for _ in 0..20 {
        world.pass(3_000);
        world.ask(owner, &ping);
        world.ask(other, &ping);
    }
    for site in 1..=3 {
        assert_eq!(world.tree(site).get(lock.path()).unwrap().stat(), lock.stat());
    }
    for _ in 0..5 {
        world.pass(3_000);
        world.ask(other, &ping);
    }
    for site in 1..=3 {
        assert!(world.tree(site).get(lock.path()).is_none(), "its owner has been silent for long");
        assert_eq!(world.tree(site).sessions().count(), 1);
    }
    world.check_equal();
}

#[test]
fn an_ephemeral_is_written_where_its_session_is_and_ends_with_it() {
    let mut world = World::new(3);
    let (owner, other) = (world.open(2), world.open(3));
    world.ask(owner, &create(1, "/locks", CreateMode::Persistent));
    let lock = world.ask(owner, &create(2, "/locks/a-", CreateMode::EphemeralSequential));
    let path = lock.path().to_owned();
    assert_eq!(world.tree(3).holder(&path), Some(2));
    assert_eq!(world.tree(3).holder("/locks"), Some(HUB));
    // Whoever else sets it has that done there.
    assert_eq!(world.ask(other, &set(1, &path, b"by another")).stat().version, 1);
    assert_eq!(world.ask_here(owner, &set(3, &path, b"by its own")).unwrap().stat().version, 2);
    let gone = request(4, Opcode::CloseSession, |_| {});
    assert!(world.ask_here(owner, &gone).is_some());
    world.settle();
    for site in 1..=3 {
        assert!(world.tree(site).get(&path).is_none());
    }
    assert_eq!(world.ask(other, &set(2, &path, b"too late")).err, ErrorCode::NoNode as i32);
    world.check_equal();
}

#[test]
fn a_session_that_nobody_has_made_has_ended_at_every_site() {
    let mut world = World::new(3);
    // Its number names a site that there is, or one that there has never been.
    for session in [0x77_0000_0000 | 2, 0x77_0000_0000 | 24] {
        for site in 1..=3 {
            let (_, response) = world.come(site, session, &[7; 16]);
            assert_eq!((response.session_id, response.timeout_ms), (0, 0), "{session:#x} at site {site}");
        }
    }
}

#[test]
fn a_session_goes_where_its_client_is() {
    let mut world = World::new(3);
    let (at_2, opened) = world.open_with(2, 0, &[0; 16]);
    world.ask(at_2, &create(1, "/dir", CreateMode::Persistent));
    world.ask(at_2, &create(2, "/mine", CreateMode::Ephemeral));
    let (session, password) = (opened.session_id, opened.password.to_vec());
    // What it has asked where it was is carried out before it goes.
    world.send(at_2, &create(3, "/dir/last-", CreateMode::EphemeralSequential));
    let (at_3, response) = world.come(3, session, &password);
    assert_eq!(
        (response.session_id, response.password),
        (session, <[u8; 16]>::try_from(&password[..]).unwrap())
    );
    assert_eq!(world.site(2).closed.get(&at_2.1), Some(&CloseReason::SessionMoved));
    world.check_equal();
    assert_eq!(world.tree(HUB).holder("/mine"), Some(3));
    assert!(world.tree(3).get("/dir/last-0000000000").is_some());
    // Its ephemerals are written here now, and only here.
    assert!(world.ask_here(at_3, &set(4, "/mine", b"x")).is_some_and(|frame| frame.err == 0));
    // The home judges it: the one that was does not, and the new one does.
    world.pass(4000);
    world.ask(at_3, &get(5, "/mine"));
    world.pass(8000);
    world.check_equal();
    assert!(world.tree(2).get("/mine").is_some());
    let (at_hub, response) = world.come(HUB, session, &password);
    assert_eq!(response.session_id, session);
    world.ask(at_hub, &request(6, Opcode::CloseSession, |_| {}));
    world.settle();
    world.check_equal();
    assert!(world.tree(2).get("/mine").is_none() && world.tree(3).get("/dir/last-0000000000").is_none());
    assert_eq!(world.come(2, session, &password).1.session_id, 0);
}

#[test]
fn who_does_not_know_the_password_gets_no_session_and_who_is_away_keeps_it() {
    let mut world = World::new(3);
    let (at_2, opened) = world.open_with(2, 0, &[0; 16]);
    world.ask(at_2, &create(1, "/mine", CreateMode::Ephemeral));
    let (session, password) = (opened.session_id, opened.password.to_vec());
    assert_eq!(world.come(3, session, &[9; 16]).1.session_id, 0);
    assert!(world.ask_here(at_2, &set(2, "/mine", b"x")).is_some_and(|frame| frame.err == 0));
    // Its home is cut off: it waits there until that is back.
    world.cut.extend([(2, HUB), (HUB, 2)]);
    let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
    let now = world.now;
    let waits = (3, world.site(3).server.connect(peer, now).unwrap());
    world.send(waits, &opening(session, &password));
    world.settle();
    assert!(world.take_bytes(waits).is_empty());
    assert!(world.ask_here(at_2, &set(3, "/mine", b"y")).is_some_and(|frame| frame.err == 0));
    world.cut.clear();
    world.connect_sites(2);
    world.settle();
    let bytes = world.take_bytes(waits);
    let (payload, _) = next_frame(&bytes, 1000).unwrap().unwrap();
    assert_eq!(ConnectResponse::decode(payload).unwrap().session_id, session);
    assert_eq!(world.tree(3).get("/mine").unwrap().stat().version, 2);
    world.check_equal();
}

#[test]
fn a_session_whose_home_is_away_has_not_expired() {
    let mut world = World::new(3);
    let (session, password) = {
        let (_, opened) = world.open_with(2, 0, &[0; 16]);
        (opened.session_id, opened.password.to_vec())
    };
    world.settle();
    world.cut.extend([(2, HUB), (HUB, 2)]);
    world.site(HUB).server.site_lost(2);
    // At the hub, and at a site that asks it.
    let clients = [HUB, 3].map(|site| {
        let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let now = world.now;
        let client = (site, world.site(site).server.connect(peer, now).unwrap());
        world.send(client, &opening(session, &password));
        client
    });
    world.settle();
    (0..6).for_each(|_| world.pass(1000));
    for client in clients {
        assert!(world.take_bytes(client).is_empty(), "it is not told that its session has expired");
        assert_eq!(world.site(client.0).closed.get(&client.1), Some(&CloseReason::SiteAway));
    }
    world.cut.clear();
    world.connect_sites(2);
    world.settle();
    let (_, response) = world.come(3, session, &password);
    assert_eq!(response.session_id, session);
    world.check_equal();
}

#[test]
fn who_comes_from_another_site_is_told_of_everything_that_it_watches() {
    let mut world = World::new(3);
    let at_3 = world.open(3);
    world.ask(at_3, &create(1, "/watched", CreateMode::Persistent));
    let (at_2, opened) = world.open_with(2, 0, &[0; 16]);
    let seen = world.ask(at_2, &set(1, "/other", b"x")).zxid.max(world.ask(at_2, &get(2, "/watched")).zxid);
    // It is changed where the session goes, with a zxid that is smaller than what was told there.
    world.cut.extend([(3, HUB), (HUB, 3)]);
    world.ask(at_3, &get(2, "/watched"));
    for xid in 3..9 {
        world.ask(at_2, &create(xid, &format!("/other{xid}"), CreateMode::Persistent));
    }
    world.cut.clear();
    world.connect_sites(3);
    let (session, password) = (opened.session_id, opened.password.to_vec());
    let (client, _) = world.come(3, session, &password);
    let told = world.ask(client, &get(10, "/watched")).zxid.max(seen);
    world.send(
        client,
        &request(-8, Opcode::SetWatches, |out| {
            put::i64(out, told);
            put::len(out, 1);
            put::str(out, "/watched");
            put::len(out, 0);
            put::len(out, 0);
        }),
    );
    world.settle();
    let frames = world.take(client);
    assert_eq!(frames.iter().map(|frame| frame.xid).collect::<Vec<_>>(), [-1, -8]);
}

/// It hears nothing on the connection with which its session comes, and sets its watches on the next one.
#[test]
fn who_has_come_and_has_heard_nothing_yet_is_told_of_everything_that_it_watches() {
    let mut world = World::new(3);
    let at_3 = world.open(3);
    world.ask(at_3, &create(1, "/watched", CreateMode::Persistent));
    let (at_2, opened) = world.open_with(2, 0, &[0; 16]);
    let told =
        (2..6).map(|xid| world.ask(at_2, &create(xid, &format!("/other{xid}"), CreateMode::Persistent)).zxid);
    let told = told.max().unwrap();
    let (session, password) = (opened.session_id, opened.password.to_vec());
    let (client, _) = world.come(3, session, &password);
    let again = |world: &mut World, told: i64| {
        let (client, _) = world.open_with(3, session, &password);
        let watches = request(-8, Opcode::SetWatches, |out| {
            encode::set_watches(out, told, &[&["/watched"], &[], &[]]);
        });
        world.send(client, &watches);
        world.settle();
        let xids: Vec<i32> = world.take(client).iter().map(|frame| frame.xid).collect();
        let now = world.now;
        world.site(3).server.disconnected(client.1, now);
        xids
    };
    let now = world.now;
    world.site(3).server.disconnected(client.1, now);
    assert!(world.tree(3).get("/watched").unwrap().stat().mzxid < told);
    assert_eq!(again(&mut world, told), [-1, -8]);
    // What it was told here says what it has seen.
    let told = world.ask(at_3, &create(2, "/later", CreateMode::Persistent)).zxid;
    assert_eq!(again(&mut world, told), [-8]);
}

#[test]
fn the_hub_knows_a_site_before_that_serves_anybody() {
    let mut world = World::new(2);
    // It has made a session, of which the hub has not heard, and which is not connected when the hub starts again.
    world.cut.insert((2, HUB));
    let (_, opened) = world.open_with(2, 0, &[0; 16]);
    let (session, password) = (opened.session_id, opened.password.to_vec());
    world.restart(HUB);
    world.site(HUB).server.site_lost(2);
    let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
    let now = world.now;
    let client = (HUB, world.site(HUB).server.connect(peer, now).unwrap());
    world.send(client, &opening(session, &password));
    world.settle();
    assert!(world.take_bytes(client).is_empty(), "it is not known yet what has become of it");
    world.cut.clear();
    world.connect_sites(2);
    world.settle();
    world.pass_if_divided();
    let bytes = world.take_bytes(client);
    let (payload, _) = next_frame(&bytes, 1000).unwrap().unwrap();
    assert_eq!(ConnectResponse::decode(payload).unwrap().session_id, session);
    world.check_equal();
}

/// Its ephemerals go with an update that has been prepared and is not durable yet.
#[test]
fn a_multi_for_another_site_is_answered_by_what_sessions_that_end_leave_behind() {
    let mut world = World::new(2);
    let (there, here) = (world.open(HUB), world.open(2));
    world.ask(there, &create(1, "/parent", CreateMode::Persistent));
    world.ask(there, &create(2, "/parent/ephemeral", CreateMode::Ephemeral));
    assert_eq!(world.tree(2).get("/parent").unwrap().stat().num_children, 1);
    let multi = request(1, Opcode::Multi, |out| {
        MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(out);
        encode::set_data(out, "/parent", Some(b"data"), 0);
        MultiHeader::END.encode(out);
    });
    world.send(here, &multi);
    // It comes before the session begins to close, and its turn when that is not durable yet.
    world.store(2);
    while world.carry(2, HUB) {}
    world.send(there, &request(3, Opcode::CloseSession, |_| {}));
    let now = world.now;
    let hub = world.site(HUB);
    let first = hub.log.remove(0);
    hub.disk.push((first.position, first.payload.join()));
    hub.server.appended(first.position, now);
    world.poll(HUB);
    assert_eq!(world.tree(HUB).get("/parent").unwrap().stat().num_children, 1);
    world.settle();
    let frame = world.take(here).pop().expect("it is answered");
    assert_eq!(frame.err, 0, "{frame:?}");
    let mut results = Reader::new(&frame.body);
    let header = MultiHeader::decode(&mut results).unwrap();
    assert_eq!(header.opcode, Opcode::SetData as i32);
    assert_eq!(Stat::decode(&mut results).unwrap().num_children, 0);
    assert_eq!(world.tree(2).get("/parent").unwrap().stat().num_children, 0);
    world.check_equal();
}
