//! Quotas.

use crate::world::*;
use stoa_tree::{Loader, Options};
use stoa_wire::CreateMode::*;
use stoa_wire::ErrorCode;

fn with_quota(limits: &str, enforce_quota: bool) -> World {
    let mut world = World::with(Options { enforce_quota, ..Options::default() });
    for path in ["/q", "/q/before", "/zookeeper/quota/q"] {
        world.must(&create(path, b"12345", Persistent));
    }
    world.must(&create("/zookeeper/quota/q/zookeeper_limits", limits.as_bytes(), Persistent));
    world.must(&create("/zookeeper/quota/q/zookeeper_stats", b"count=0,bytes=0", Persistent));
    world
}

fn stats(world: &World) -> String {
    let znode = world.tree.get("/zookeeper/quota/q/zookeeper_stats").unwrap();
    String::from_utf8(znode.data().unwrap().to_vec()).unwrap()
}

#[test]
fn usage_is_counted_from_the_start_and_kept() {
    let mut world = with_quota("count=100,bytes=1000", true);
    assert_eq!(stats(&world), "count=2,bytes=10");
    let version = world.stat("/zookeeper/quota/q/zookeeper_stats").version;
    world.must(&create("/q/a", b"123", Persistent));
    assert_eq!(stats(&world), "count=3,bytes=13");
    world.must(&set("/q/a", b"1234567", -1));
    assert_eq!(stats(&world), "count=3,bytes=17");
    world.must(&set_null("/q/before"));
    assert_eq!(stats(&world), "count=3,bytes=12");
    world.must(&delete("/q/a", -1));
    assert_eq!(stats(&world), "count=2,bytes=5");
    world.must(&create("/other", b"1", Persistent));
    assert_eq!(stats(&world), "count=2,bytes=5");
    assert_eq!(world.stat("/zookeeper/quota/q/zookeeper_stats").version, version, "no version for that");
}

#[test]
fn hard_limits_refuse_and_outstanding_updates_count() {
    let mut world = with_quota("count=-1,bytes=-1;countHardLimit=4;byteHardLimit=20", true);
    world.propose(&create("/q/a", b"", Persistent), 0).unwrap();
    world.propose(&create("/q/b", b"", Persistent), 0).unwrap();
    assert_eq!(code(world.propose(&create("/q/c", b"", Persistent), 0)), ErrorCode::QuotaExceeded);
    world.propose(&delete("/q/b", -1), 0).unwrap();
    world.propose(&create("/q/c", b"", Persistent), 0).unwrap();
    world.propose(&set("/q/c", b"1234567890", -1), 0).unwrap();
    assert_eq!(code(world.propose(&set("/q/a", b"1", 9), 0)), ErrorCode::QuotaExceeded, "before the version");
    world.apply_all();
    assert_eq!(code(world.propose(&set("/q/a", b"1", -1), 0)), ErrorCode::QuotaExceeded);
    world.must(&set("/q/c", b"123456789", -1));
    world.must(&set("/q/a", b"1", -1));
    assert_eq!(stats(&world), "count=4,bytes=20");

    let mut lax = with_quota("countHardLimit=2", false);
    lax.must(&create("/q/a", b"", Persistent));
}

#[test]
fn a_failed_multi_gives_its_part_of_the_quota_back() {
    let mut world = with_quota("countHardLimit=3", true);
    let failing = multi(&[create("/q/a", b"", Persistent), create("/q/b", b"", Persistent)]);
    assert!(world.propose(&failing, 0).is_err());
    world.must(&create("/q/a", b"", Persistent));
}

#[test]
fn soft_limits_warn() {
    let mut world = with_quota("count=2,bytes=12", true);
    let notes = world.must(&create("/q/a", b"123", Persistent));
    assert_eq!(notes.soft, [("/q".to_string(), false, 2, 3), ("/q".to_string(), true, 12, 13)]);
    assert!(world.must(&set("/q/a", b"321", -1)).soft.is_empty(), "nothing more is used");
}

#[test]
fn the_deepest_quota_counts_and_a_removed_one_does_not() {
    let mut world = with_quota("count=100", true);
    world.must(&create("/zookeeper/quota/q/before", b"", Persistent));
    world.must(&create("/zookeeper/quota/q/before/zookeeper_limits", b"countHardLimit=1", Persistent));
    world.must(&create("/zookeeper/quota/q/before/zookeeper_stats", b"", Persistent));
    let refused = world.propose(&create("/q/before/a", b"", Persistent), 0);
    assert_eq!(code(refused), ErrorCode::QuotaExceeded);
    world.must(&delete("/zookeeper/quota/q/before/zookeeper_limits", -1));
    world.must(&create("/q/before/a", b"", Persistent));
    assert_eq!(stats(&world), "count=3,bytes=10");
}

#[test]
fn quotas_survive_a_snapshot() {
    let mut world = with_quota("countHardLimit=3", true);
    world.tree.snapshot_begin();
    let mut loader = Loader::new(Options { enforce_quota: true, ..Options::default() });
    let mut more = true;
    while more {
        let mut slice = Vec::new();
        more = world.tree.snapshot_slice(&mut slice, 100);
        loader.chunk(&slice).unwrap();
    }
    world.tree = loader.finish().unwrap();
    world.must(&create("/q/a", b"", Persistent));
    assert_eq!(code(world.propose(&create("/q/b", b"", Persistent), 0)), ErrorCode::QuotaExceeded);
}

#[test]
fn limits_may_be_as_large_as_numbers_are() {
    let limits = format!("count=-1,bytes=-1;countHardLimit={},byteHardLimit={}", i64::MAX, i64::MAX);
    let mut world = with_quota(&limits, true);
    world.must(&create("/q/a", b"data", Persistent));
    // One that is no number any more is none.
    let limits = limits.replace(&i64::MAX.to_string(), "9223372036854775808");
    world.must(&set("/zookeeper/quota/q/zookeeper_limits", limits.as_bytes(), -1));
    world.must(&create("/q/b", b"data", Persistent));
}

#[test]
fn quotas_add_up_below_each_name_and_say_what_they_have_refused() {
    let sums = |world: &World| {
        let sums = world.tree.quota_sums().into_iter();
        sums.map(|(name, it)| {
            (name.to_owned(), it.count_limit, it.bytes_limit, it.count, it.bytes, it.refused)
        })
        .collect::<Vec<_>>()
    };
    let mut world = with_quota("count=9,bytes=-1;countHardLimit=3;byteHardLimit=30", true);
    let q = |count_limit, bytes_limit, count, bytes, refused| {
        ("q".to_owned(), count_limit, bytes_limit, count, bytes, refused)
    };
    assert_eq!(sums(&world), [q(3, 30, 2, 10, 0)]);
    world.must(&create("/q/a", b"", Persistent));
    assert_eq!(code(world.propose(&create("/q/b", b"", Persistent), 0)), ErrorCode::QuotaExceeded);
    assert_eq!(code(world.propose(&set("/q/a", &[1; 40], -1), 0)), ErrorCode::QuotaExceeded);
    assert_eq!(sums(&world), [q(3, 30, 3, 10, 2)]);
    // A second one below the same name, and one elsewhere.
    for path in ["/zookeeper/quota/q/a", "/r", "/zookeeper/quota/r"] {
        world.must(&create(path, b"", Persistent));
    }
    world.must(&create("/zookeeper/quota/q/a/zookeeper_limits", b"count=5,bytes=-1", Persistent));
    world.must(&create("/zookeeper/quota/q/a/zookeeper_stats", b"", Persistent));
    world.must(&create("/zookeeper/quota/r/zookeeper_limits", b"count=-1,bytes=-1", Persistent));
    let r = ("r".to_owned(), -1, -1, 0, 0, 0);
    assert_eq!(sums(&world), [q(8, 29, 4, 10, 2), r]);
    world.must(&delete("/zookeeper/quota/q/zookeeper_limits", -1));
    assert_eq!(sums(&world)[0], q(5, -1, 1, 0, 0), "what it has refused is forgotten with it");
}
