//! Where tokens go by the policy that looks ahead, and by what an operator says.

use super::*;
use stoa_core::{SiteCounts, TokenUse};

fn world(count: u8) -> World {
    let mut world = World::with(count, 64 << 20, of_kind(PolicyKind::Expected));
    for (leaf, us) in (2..=count).zip([62_000, 90_000, 150_000]) {
        world.site(HUB).server.site_round_trip(leaf, us);
    }
    world
}

fn counts(world: &World, id: SiteId) -> SiteCounts {
    world.sites[usize::from(id) - 1].server.site_status().unwrap().counts
}

fn rules(world: &mut World, text: &str) {
    let names = |name: &str| ["virginia", "california", "frankfurt"].iter().position(|it| *it == name);
    let bad =
        world.site(HUB).server.site_rules(text.as_bytes(), |name| names(name).map(|at| at as SiteId + 1));
    assert_eq!(bad, [""; 0]);
    world.pass(1100);
}

fn holders(world: &World, path: &str) -> Vec<SiteId> {
    world.sites.iter().map(|site| site.server.whole().holder(path).unwrap()).collect()
}

/// A client has something created, and written so often.
fn made(world: &mut World, client: Client, path: &str, sets: i32) {
    world.ask(client, &create(0, path, CreateMode::Persistent));
    (1..=sets).for_each(|xid| drop(world.ask(client, &set(xid, path, b"x"))));
}

#[test]
fn who_comes_first_gets_the_token_at_once() {
    let mut world = world(2);
    let client = world.open(2);
    world.ask(client, &create(1, "/a", CreateMode::Persistent));
    assert_eq!(holders(&world, "/a"), [HUB; 2]);
    assert_eq!(world.ask(client, &set(2, "/a", b"2")).stat().version, 1);
    assert_eq!(holders(&world, "/a"), [2; 2]);
    assert_eq!(world.ask_here(client, &set(3, "/a", b"3")).unwrap().stat().version, 2);
    assert_eq!(holders(&world, "/"), [HUB; 2], "the root stays");
    world.settle();
    world.check_equal();
}

#[test]
fn the_leader_of_the_hub_knows_since_when_a_token_is_held_and_who_uses_it() {
    let mut world = world(3);
    let (one, two) = (world.open(2), world.open(3));
    let known = |world: &World, path: &str| world.sites[0].server.token_use(path);
    assert_eq!(known(&world, "/a"), Some(TokenUse::default()));
    made(&mut world, one, "/a", 8);
    world.settle();
    let first = known(&world, "/a").unwrap();
    assert_eq!((first.shares.as_slice(), first.has_others, first.last), (&[(2, 100)][..], false, Some(2)));
    assert!(first.uses.is_some_and(|uses| (6..=8).contains(&uses)), "{first:?}");
    assert!(first.used_us >= first.since_us && first.since_us.is_some(), "{first:?}");
    // Another site comes once. Of one that is new more is expected than it has done.
    world.ask(two, &set(1, "/a", b"y"));
    world.settle();
    let then = known(&world, "/a").unwrap();
    assert!(then.shares.iter().any(|it| it.0 == 2 && it.1 > 60) && then.shares.len() == 2, "{then:?}");
    assert_eq!(then.last, Some(3));
    // What is below counts as held since then, too, until it has a mark of its own.
    assert_eq!(known(&world, "/a/x").unwrap().since_us, then.since_us);
    assert_eq!(known(&world, "/").unwrap().since_us, None);
    for leaf in [1, 2] {
        assert_eq!(world.sites[leaf].server.token_use("/a"), None);
    }
    // A new leader begins with nothing.
    world.restart(HUB);
    world.settle();
    assert_eq!(known(&world, "/a"), Some(TokenUse::default()));
}

#[test]
fn a_site_beside_the_hub_has_nothing_to_gain() {
    let mut world = world(2);
    let client = world.open(2);
    // What is measured counts from then on, bit by bit.
    (0..200).for_each(|_| world.site(HUB).server.site_round_trip(2, 0));
    made(&mut world, client, "/a", 5);
    assert_eq!(holders(&world, "/a"), [HUB; 2]);
    // A new leader of the hub takes it to be as far away as most are, until that is measured.
    world.restart(HUB);
    world.settle();
    world.ask(client, &set(9, "/a", b"x"));
    assert_eq!(holders(&world, "/a"), [2; 2]);
}

#[test]
fn who_comes_now_and_then_has_it_done_where_the_token_is() {
    let mut world = world(3);
    let (one, two) = (world.open(2), world.open(3));
    made(&mut world, one, "/a", 1);
    made(&mut world, two, "/mine", 1);
    let mut before = counts(&world, HUB);
    for turn in 0..30 {
        if turn == 10 {
            before = counts(&world, HUB);
        }
        // The hub knows from what both have shipped that the one comes again and again, and that the other one, which
        // is made to pay for that, gains elsewhere.
        for xid in 0..20 {
            let (often, mine) = (set(100 * turn + xid, "/a", b"x"), set(100 * turn + xid, "/mine", b"x"));
            assert_eq!((world.ask(one, &often).err, world.ask(two, &mine).err), (0, 0));
        }
        assert_eq!(world.ask(two, &set(100 * turn + 99, "/a", b"visit")).err, 0);
        world.pass(100);
    }
    let after = counts(&world, HUB);
    assert_eq!(
        (after.visits - before.visits, after.grants, after.recalls),
        (20, before.grants, before.recalls)
    );
    assert_eq!(holders(&world, "/a"), [2; 3]);
    world.check_equal();
}

#[test]
fn who_comes_again_and_again_gets_it_from_another_site_behind_the_answer() {
    let mut world = world(3);
    let (one, two) = (world.open(2), world.open(3));
    made(&mut world, one, "/a", 1);
    assert_eq!(holders(&world, "/a"), [2; 3]);
    let before = counts(&world, HUB);
    assert_eq!(world.ask(two, &set(1, "/a", b"mine now")).stat().version, 2);
    let after = counts(&world, HUB);
    assert_eq!((after.recalls - before.recalls, after.grants - before.grants), (1, 1), "{after:?}");
    assert_eq!(holders(&world, "/a"), [3; 3]);
    assert_eq!(world.ask_here(two, &set(2, "/a", b"mine now")).unwrap().stat().version, 3);
    world.settle();
    world.check_equal();
}

#[test]
fn what_a_site_does_not_use_comes_back_when_another_one_is_likelier() {
    let mut world = world(3);
    let (one, two) = (world.open(2), world.open(3));
    made(&mut world, one, "/a", 1);
    made(&mut world, one, "/b", 1);
    assert_eq!((holders(&world, "/a"), holders(&world, "/b")), (vec![2; 3], vec![2; 3]));
    // Another one comes to one of them as often. By then the first one has it, and is silent.
    for xid in 1..30 {
        world.ask(if xid % 2 == 0 { one } else { two }, &set(xid, "/a", b"turns"));
        world.pass(100);
    }
    rules(&mut world, "pin /a california");
    assert_eq!(holders(&world, "/a"), [2; 3]);
    assert_eq!(world.site(HUB).server.site_rules(b"", |_| None), [""; 0]);
    world.ask(one, &set(30, "/a", b"turns"));
    world.pass(1000);
    assert_eq!(holders(&world, "/a"), [2; 3]);
    let is_at_hub = |world: &World| holders(world, "/a") == [HUB; 3];
    for _ in 0..10 {
        world.pass(1000);
    }
    assert!(is_at_hub(&world), "{:?}", holders(&world, "/a"));
    assert_eq!(holders(&world, "/b"), [2; 3], "nobody else has ever asked for it");
    world.check_equal();
}

#[test]
fn a_pin_moves_what_is_there_and_keeps_what_comes() {
    let mut world = world(3);
    let (at_hub, one, two) = (world.open(HUB), world.open(2), world.open(3));
    made(&mut world, one, "/eu", 1);
    made(&mut world, at_hub, "/us", 1);
    assert_eq!((holders(&world, "/eu"), holders(&world, "/us")), (vec![2; 3], vec![HUB; 3]));
    rules(&mut world, "pin /eu frankfurt\npin /us california\npin /later frankfurt");
    assert_eq!((holders(&world, "/eu"), holders(&world, "/us")), (vec![3; 3], vec![2; 3]));
    assert_eq!(world.ask_here(two, &set(1, "/eu", b"x")).unwrap().err, 0);
    // Whoever asks has it done there, however often.
    for xid in 5..12 {
        assert_eq!(world.ask(one, &set(xid, "/eu", b"y")).err, 0);
        assert_eq!(world.ask(at_hub, &set(xid, "/eu", b"z")).err, 0);
    }
    assert_eq!(holders(&world, "/eu"), [3; 3]);
    made(&mut world, one, "/later", 1);
    assert_eq!(holders(&world, "/later"), [3; 3]);
    // Another leader of the hub is told anew.
    world.restart(HUB);
    world.pass(1100);
    rules(&mut world, "pin /eu virginia\ntokens off");
    assert_eq!(holders(&world, "/eu"), [HUB; 3]);
    (1..9).for_each(|xid| drop(world.ask(two, &set(xid, "/eu", b"x"))));
    assert_eq!(holders(&world, "/eu"), [HUB; 3]);
    world.check_equal();
}

#[test]
fn a_pin_to_a_site_that_has_not_come_yet_waits_for_it() {
    let mut world = world(2);
    let one = world.open(2);
    made(&mut world, one, "/a", 0);
    rules(&mut world, "pin /a frankfurt");
    assert_eq!(holders(&world, "/a"), [HUB; 2]);
    world.join(3);
    world.settle();
    world.pass(1100);
    assert_eq!(holders(&world, "/a"), [3; 3]);
    world.check_equal();
}

#[test]
fn what_stays_is_never_moved_and_off_is_off() {
    for kind in [PAPER, PolicyKind::Expected] {
        let mut world = World::with(3, 64 << 20, of_kind(kind));
        let (one, two) = (world.open(2), world.open(3));
        made(&mut world, one, "/here", 3);
        assert_eq!(holders(&world, "/here"), [2; 3]);
        rules(&mut world, "stay /here");
        let before = counts(&world, HUB);
        (1..9).for_each(|xid| assert_eq!(world.ask(two, &set(xid, "/here", b"x")).err, 0));
        assert_eq!(holders(&world, "/here"), [2; 3]);
        assert_eq!(counts(&world, HUB).visits - before.visits, 8, "{kind:?}");
        rules(&mut world, "tokens off");
        world.pass(1100);
        (1..9).for_each(|xid| assert_eq!(world.ask(two, &set(xid, "/here", b"x")).err, 0));
        assert_eq!(holders(&world, "/here"), [HUB; 3], "{kind:?}");
        world.check_equal();
    }
}

#[test]
fn what_is_together_goes_together_from_wherever_it_is() {
    let mut world = world(3);
    let (one, two) = (world.open(2), world.open(3));
    rules(&mut world, "together /a /b");
    made(&mut world, one, "/a", 0);
    made(&mut world, one, "/b", 0);
    world.ask(one, &set(1, "/a", b"x"));
    assert_eq!((holders(&world, "/a"), holders(&world, "/b")), (vec![2; 3], vec![2; 3]));
    world.ask(two, &set(1, "/b", b"x"));
    assert_eq!((holders(&world, "/a"), holders(&world, "/b")), (vec![3; 3], vec![3; 3]));
    world.check_equal();
}

#[test]
fn a_directory_goes_as_a_whole_from_one_site_to_another() {
    let mut world = world(3);
    let (one, two) = (world.open(2), world.open(3));
    made(&mut world, one, "/dir", 0);
    for at in 0..6 {
        made(&mut world, one, &format!("/dir/{at}"), 1);
    }
    assert_eq!(holders(&world, "/dir/5"), [2; 3]);
    let before = counts(&world, HUB);
    for at in 0..6 {
        world.ask(two, &set(at, &format!("/dir/{at}"), b"x"));
    }
    let after = counts(&world, HUB);
    assert!(after.recalls - before.recalls < 6, "{before:?} {after:?}");
    assert_eq!(holders(&world, "/dir/5"), [3; 3]);
    assert!(world.ask_here(two, &set(9, "/dir/5", b"x")).is_some());
    world.settle();
    world.check_equal();
}

#[test]
fn a_multi_over_several_holders_takes_nothing_that_is_to_stay() {
    let mut world = world(3);
    let (one, two) = (world.open(2), world.open(3));
    made(&mut world, one, "/one", 3);
    made(&mut world, two, "/two", 3);
    rules(&mut world, "stay /one\nstay /two");
    let both = request(9, Opcode::Multi, |out| {
        for path in ["/one", "/two"] {
            MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(out);
            encode::set_data(out, path, Some(b"both"), 3);
        }
        MultiHeader::END.encode(out);
    });
    assert_eq!(world.ask(one, &both).err, 0);
    assert_eq!((holders(&world, "/one"), holders(&world, "/two")), (vec![2; 3], vec![3; 3]));
    world.check_equal();
}

#[test]
fn no_token_leaves_a_hub_that_keeps_them() {
    let mut world = World::with(2, 64 << 20, of_kind(PolicyKind::Hub));
    let one = world.open(2);
    made(&mut world, one, "/a", 9);
    assert_eq!((holders(&world, "/a"), counts(&world, HUB).grants), (vec![HUB; 2], 0));
}
