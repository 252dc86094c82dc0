//! Sites that read what is newest without asking anybody, while nobody writes.

use super::*;

/// A client that reads what is newest.
pub(super) fn strict(world: &mut World, site: SiteId) -> Client {
    let client = world.open(site);
    let packet = request(xid::AUTH, Opcode::Auth, |out| {
        put::i32(out, 0);
        put::str(out, "consistency");
        put::buffer(out, b"linearizable");
    });
    world.send(client, &packet);
    world.take(client);
    client
}

/// Three sites; a client of each of the two leaves reads what is newest of `/a`, without asking anybody.
fn read_everywhere() -> (World, [Client; 2]) {
    let mut world = World::new(3);
    let readers = [strict(&mut world, 2), strict(&mut world, 3)];
    let writer = world.open(HUB);
    world.ask(writer, &create(1, "/a", CreateMode::Persistent));
    for xid in 1..=4 {
        for reader in readers {
            assert_eq!(world.ask(reader, &get(xid, "/a")).err, 0);
        }
    }
    assert_eq!(world.tree(HUB).readers("/a"), [2, 3]);
    for reader in readers {
        assert!(world.ask_here(reader, &get(5, "/a")).is_some_and(|frame| frame.err == 0));
    }
    (world, readers)
}

#[test]
fn who_reads_what_is_newest_again_and_again_asks_nobody_while_nobody_writes() {
    let (mut world, readers) = read_everywhere();
    // Sync and other reads of it are the same, and what is below it is another matter.
    assert!(world.ask_here(readers[0], &sync(6, "/a")).is_some_and(|frame| frame.err == 0));
    let children = request(7, Opcode::GetChildren, |out| encode::path_watch(out, "/a", false));
    assert!(world.ask_here(readers[0], &children).is_some_and(|frame| frame.err == 0));
    assert_eq!(world.ask_here(readers[0], &get(8, "/a/b")), None);
    world.settle();
    world.take(readers[0]);
    world.check_equal();
}

#[test]
fn who_writes_has_read_tokens_returned_first() {
    for writes_at in [HUB, 2] {
        let (mut world, readers) = read_everywhere();
        let writer = world.open(writes_at);
        world.send(writer, &set(2, "/a", b"new"));
        // It is not done before both have returned theirs.
        while world.store(writes_at) | world.store(HUB) {}
        while world.carry(2, HUB) | world.store(HUB) {}
        while world.carry(HUB, 2) | world.store(2) | world.carry(2, HUB) | world.store(HUB) {}
        assert!(world.take(writer).is_empty(), "site 3 may be read");
        assert_eq!(world.ask_here(readers[1], &get(9, "/a")).unwrap().stat().version, 0);
        // Site 2 has returned its own, and asks.
        assert_eq!(world.ask_here(readers[0], &get(9, "/a")), None);
        world.settle();
        assert_eq!(world.take(writer)[0].stat().version, 1);
        // It may have had its turn before.
        assert!(world.take(readers[0]).pop().unwrap().stat().version < 2);
        assert_eq!(world.ask(readers[0], &get(11, "/a")).stat().version, 1);
        assert_eq!(world.ask(readers[1], &get(10, "/a")).stat().version, 1);
        world.check_equal();
    }
}

#[test]
fn read_tokens_outlive_servers_and_are_returned_once() {
    let deaths = [2, HUB, 3].into_iter().flat_map(|dies| (0..30).map(move |step| (dies, step)));
    for (dies, step) in deaths {
        let (mut world, readers) = read_everywhere();
        let writer = world.open(HUB);
        world.send(writer, &set(2, "/a", b"new"));
        world.settle_with_a_death(5, dies, step);
        let is_written = world.tree(HUB).get("/a").unwrap().data() == Some(b"new");
        assert!(is_written || dies == HUB, "{dies} dies at {step}");
        for reader in readers {
            if reader.0 != dies {
                let version = world.ask(reader, &get(20, "/a")).stat().version;
                assert_eq!(version, i32::from(is_written), "{dies} dies at {step}");
            }
        }
        world.check_equal();
    }
}

#[test]
fn a_site_that_is_away_keeps_others_from_writing_what_it_reads_until_it_is_given_up() {
    let (mut world, readers) = read_everywhere();
    let writer = world.open(HUB);
    world.cut.extend([(3, HUB), (HUB, 3)]);
    world.site(HUB).server.site_lost(3);
    world.send(writer, &set(2, "/a", b"new"));
    (0..6).for_each(|_| world.pass(1000));
    assert_eq!(world.take(writer)[0].err, ErrorCode::OperationTimeout as i32);
    assert!(world.ask_here(readers[1], &get(9, "/a")).is_some_and(|frame| frame.stat().version == 0));
    world.lose(3);
    assert_eq!(world.ask(writer, &set(3, "/a", b"new")).stat().version, 1);
    assert!(world.tree(HUB).readers("/a").is_empty());
    assert_eq!(world.ask(readers[0], &get(10, "/a")).stat().version, 1);
    world.check_equal();
}

#[test]
fn what_is_often_written_takes_more_reads_each_time() {
    let (mut world, readers) = read_everywhere();
    let writer = world.open(HUB);
    let mut reads_needed = Vec::new();
    for turn in 0..4 {
        assert_eq!(world.ask(writer, &set(turn, "/a", b"new")).err, 0);
        let mut reads = 0;
        while world.tree(HUB).readers("/a").is_empty() {
            reads += 1;
            assert_eq!(world.ask(readers[0], &get(100 + reads, "/a")).err, 0);
        }
        reads_needed.push(reads);
    }
    assert_eq!(reads_needed, [4, 8, 16, 32]);
    // What the operator says of its token is said of all of it.
    world.ask(writer, &set(9, "/a", b"new"));
    world.site(HUB).server.site_rules(b"pin /a 1", |name| name.parse().ok());
    (0..80).for_each(|xid| drop(world.ask(readers[0], &get(xid, "/a"))));
    assert!(world.tree(HUB).readers("/a").is_empty());
    world.check_equal();
}
