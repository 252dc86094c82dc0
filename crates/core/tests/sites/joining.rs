//! Sites that join the others, and that were away for long.

use super::*;

#[test]
fn a_site_comes_to_others_that_are_at_work() {
    let mut world = World::new(2);
    let (at_hub, at_leaf) = (world.open(HUB), world.open(2));
    for xid in 1..=3 {
        world.ask(
            at_leaf,
            &if xid == 1 { create(1, "/theirs", CreateMode::Persistent) } else { set(xid, "/theirs", b"x") },
        );
    }
    world.ask(at_leaf, &create(4, "/theirs/lock-", CreateMode::EphemeralSequential));
    world.ask(at_hub, &create(1, "/ours", CreateMode::Persistent));
    assert_eq!(world.tree(HUB).holder("/theirs"), Some(2));
    world.found(3);
    // Nobody is served who would see nothing of all that.
    let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
    let now = world.now;
    let early = world.site(3).server.connect(peer, now).unwrap();
    world.send((3, early), &opening(0, &[0; 16]));
    assert_eq!(world.site(3).closed.get(&early), Some(&CloseReason::NotJoined));
    // The snapshot is taken, and its state on its way, while both go on writing, also what is in it.
    world.connect_sites(3);
    assert!(world.carry(3, HUB));
    world.ask(at_hub, &set(2, "/ours", b"later"));
    world.ask(at_leaf, &set(5, "/theirs", b"later"));
    world.settle();
    assert!(world.site(3).server.has_joined());
    world.check_equal();
    assert_eq!(world.tree(3).holder("/theirs"), Some(2));
    // It is one like the others, also when it starts again.
    world.restart(3);
    let at_new = world.open(3);
    assert_eq!(world.ask(at_new, &set(1, "/theirs", b"mine")).stat().version, 4);
    world.ask(at_new, &set(2, "/theirs", b"mine"));
    world.check_equal();
    assert_eq!(world.tree(2).holder("/theirs"), Some(3));
    // The session that was there before it ends there too.
    world.ask(at_leaf, &request(9, Opcode::CloseSession, |_| {}));
    world.check_equal();
}

/// A hub with something in it, and a site that is to join; the hub's state, and its position.
fn hub_and_newcomer() -> (World, Vec<Vec<u8>>, u64) {
    let mut world = World::new(1);
    let client = world.open(HUB);
    world.ask(client, &create(1, "/a", CreateMode::Persistent));
    world.found(2);
    world.site(HUB).server.request_snapshot();
    world.poll(HUB);
    let (slices, position) = (world.site(HUB).snapshot.clone(), world.site(HUB).server.applied());
    (world, slices, position)
}

#[test]
fn a_state_that_is_not_whole_is_none() {
    let (mut world, mut slices, position) = hub_and_newcomer();
    // What a partition rests on comes first where there are several, and is nobody else's.
    let at = usize::from(world.partitions(HUB) > 1);
    let whole = slices[at].clone();
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        slices[at].truncate(cut);
        world.give_state((HUB, 2), &slices, position);
        world.settle();
        assert!(!world.site(2).server.has_joined(), "{cut} of {} bytes", whole.len());
        slices[at].clone_from(&whole);
    }
    // Of the last one a part has come before it began anew.
    let now = world.now;
    let begins = world.partitions(HUB);
    world.site(2).server.site_state(begins, &whole[..whole.len() / 2], now);
    world.give_state((HUB, 2), &slices, position);
    world.settle();
    assert!(world.site(2).server.has_joined());
    world.connect_sites(2);
    world.settle();
    world.check_equal();
}

#[test]
fn a_state_that_comes_again_before_the_first_is_stored_is_left_out() {
    // Behind the first one this is a site, and what its clients do stands behind a second one in the log.
    let applied_by_then = |times: usize| {
        let (mut world, slices, position) = hub_and_newcomer();
        for _ in 0..times {
            world.give_state((HUB, 2), &slices, position);
        }
        while world.store(2) {}
        assert!(world.site(2).server.has_joined());
        let applied = world.site(2).server.applied();
        world.connect_sites(2);
        let at_new = world.open(2);
        world.ask(at_new, &create(1, "/b", CreateMode::Persistent));
        world.check_equal();
        applied
    };
    assert_eq!(applied_by_then(2), applied_by_then(1));
}

#[test]
fn a_site_that_was_away_for_long_is_told_what_the_log_has() {
    let mut world = World::with(3, 300, of_kind(PAPER));
    let (at_hub, away, other) = (world.open(HUB), world.open(2), world.open(3));
    world.ask(at_hub, &create(1, "/a", CreateMode::Persistent));
    for xid in 1..=3 {
        let request = if xid == 1 { create(1, "/b", CreateMode::Persistent) } else { set(xid, "/b", b"x") };
        world.ask(away, &request);
    }
    world.cut.extend([(2, HUB), (HUB, 2)]);
    // Both go on, and have more than is kept for each other. Then all begin anew.
    for xid in 4..40 {
        world.ask(at_hub, &set(xid, "/a", b"while the other one is away"));
        assert!(
            world.ask_here(away, &set(xid, "/b", b"while the hub is away")).is_some_and(|it| it.err == 0)
        );
    }
    world.ask(other, &set(1, "/a", b"from elsewhere"));
    world.restart(HUB);
    world.restart(2);
    world.cut.clear();
    world.connect_sites(2);
    world.settle();
    world.check_equal();
    assert_eq!(world.tree(HUB).get("/b").unwrap().stat().version, 38);
    assert_eq!(world.tree(2).get("/a").unwrap().stat().version, 37);
}

#[test]
fn a_server_with_znodes_of_its_own_does_not_lose_them_to_the_others() {
    let mut world = World::new(1);
    world.found(2);
    // It has stood alone, and is made one of a site by its settings now.
    let alone = Config { site: None, ..config(2, 64 << 20, of_kind(PAPER)) };
    let partitions = world.partitions(2);
    let recovered = Server::empty(&Options::default(), 20, partitions);
    let now = world.now;
    world.site(2).server = Server::new(&alone, partitions, recovered, [2; 32], now);
    world.site(2).disk.clear();
    world.poll(2);
    while world.store(2) {}
    let client = world.open(2);
    world.ask_here(client, &create(1, "/mine", CreateMode::Persistent)).unwrap().stat();
    world.restart(2);
    world.settle();
    assert!(!world.site(2).server.has_joined() && !world.site(2).server.may_join());
    assert!(world.tree(2).get("/mine").is_some());
}
