//! What a site tells of itself and the others.

use super::{HUB, World, create, set};
use stoa_core::{SiteCounts, SiteId, SitesStatus, Unshipped};
use stoa_wire::CreateMode;

fn status(world: &World, id: SiteId) -> SitesStatus {
    world.sites[usize::from(id) - 1].server.site_status().unwrap()
}

/// What one site has not said to have of another one.
fn unshipped(world: &World, from: SiteId, to: SiteId) -> Unshipped {
    let status = status(world, from);
    status.others.iter().find(|other| other.site == to).unwrap().unshipped.unwrap()
}

#[test]
fn what_is_done_where_is_counted() {
    let mut world = World::new(3);
    let (client, other) = (world.open(2), world.open(3));
    world.settle();
    let before = status(&world, 2).counts;
    world.ask(client, &create(1, "/a", CreateMode::Persistent));
    (2..=3).for_each(|xid| drop(world.ask(client, &set(xid, "/a", b"x"))));
    assert_eq!(world.tree(2).holder("/a"), Some(2));
    (4..=7).for_each(|xid| drop(world.ask_here(client, &set(xid, "/a", b"x")).unwrap()));
    let counts = status(&world, 2).counts;
    assert_eq!((counts.writes_forwarded, counts.writes_local - before.writes_local), (3, 4));
    let granted = SiteCounts { grants: 1, ..status(&world, HUB).counts };
    assert_eq!(status(&world, HUB).counts, granted);
    // Another site has it done, so it goes back.
    world.ask(other, &set(1, "/a", b"x"));
    assert_eq!((status(&world, 2).counts.grants, status(&world, HUB).counts.recalls), (1, 1));
    world.ask(client, &create(8, "/e", CreateMode::Ephemeral));
    world.ask(other, &set(2, "/e", b"x"));
    assert_eq!(status(&world, HUB).counts.visits, 1);

    let SitesStatus { own, hub, leads, waiting, others, .. } = status(&world, 2);
    assert_eq!((own, hub, leads, waiting), (2, HUB, true, 0));
    let hub = others.iter().find(|other| other.site == HUB).unwrap();
    assert!(hub.imported > 0 && hub.imported <= status(&world, HUB).applied, "{hub:?}");
    assert!(hub.acknowledged.is_some());
}

#[test]
fn what_is_not_acknowledged_is_told_with_its_age() {
    let mut world = World::new(3);
    let (here, there) = (world.open(HUB), world.open(2));
    world.ask(here, &create(1, "/a", CreateMode::Persistent));
    let nothing = Unshipped { entries: 0, bytes: 0, since_us: None, is_all: true };
    for (from, to) in [(HUB, 2), (HUB, 3), (2, HUB), (3, HUB)] {
        assert_eq!(unshipped(&world, from, to), nothing, "{from} to {to}");
    }
    world.cut.insert((HUB, 2));
    let began_us = world.now.mono_us;
    world.ask(here, &set(2, "/a", b"1"));
    world.pass(100);
    world.ask(here, &set(3, "/a", b"2"));
    let late = unshipped(&world, HUB, 2);
    assert_eq!((late.entries, late.since_us, late.is_all), (2, Some(began_us), true));
    assert!(late.bytes > 0);
    assert_eq!(unshipped(&world, HUB, 3), nothing);
    world.send(there, &set(1, "/a", b"3"));
    world.settle();
    assert_eq!(status(&world, 2).waiting, 1);

    // The connection is closed at last: the same is told, and more.
    world.site(HUB).server.site_lost(2);
    world.ask(here, &set(4, "/a", b"4"));
    let lost = unshipped(&world, HUB, 2);
    assert!(lost.entries > late.entries && lost.since_us == late.since_us && lost.is_all, "{lost:?}");
    world.cut.clear();
    world.connect_sites(2);
    world.settle();
    assert_eq!((unshipped(&world, HUB, 2), status(&world, 2).waiting), (nothing, 0));
    world.check_equal();
}

#[test]
fn what_others_have_is_all_for_one_that_is_away() {
    let mut world = World::new(3);
    let here = world.open(HUB);
    for again in 0..2 {
        let away = if again == 0 { 3 } else { 2 };
        world.cut.extend([(HUB, away), (away, HUB)]);
        world.site(HUB).server.site_lost(away);
        world.site(away).server.site_lost(HUB);
        let path = format!("/{again}");
        world.ask(here, &create(again, &path, CreateMode::Persistent));
        world.ask(here, &set(10 + again, &path, b"1"));
        assert!(unshipped(&world, HUB, away).is_all);
        world.cut.clear();
        world.connect_sites(away);
        world.settle();
        world.check_equal();
    }
}
