//! Containers and TTL znodes, and when the server deletes them.

use crate::world::*;
use stoa_tree::Options;
use stoa_wire::CreateMode::*;
use stoa_wire::{ErrorCode, Opcode};

#[test]
fn a_container_is_due_when_its_last_child_is_gone() {
    let mut world = World::new();
    world.must(&create("/c", b"", Container));
    assert!(world.tree.reapable(world.now_ms + 1_000_000, 10).is_empty(), "never used");
    world.must(&create("/c/a", b"", Persistent));
    assert!(world.tree.reapable(world.now_ms, 10).is_empty());
    assert_eq!(world.ask(&delete_container("/c")).unwrap_err(), ErrorCode::NotEmpty);
    world.must(&delete("/c/a", -1));
    assert_eq!(world.tree.reapable(world.now_ms, 10), ["/c"]);
    assert!(world.tree.reapable(world.now_ms, 0).is_empty());
    assert_eq!(world.must(&delete_container("/c")).answers, [Answer::Deleted]);
    assert_eq!((world.tree.container_count(), world.exists("/c")), (0, false));
}

#[test]
fn a_container_never_used_is_due_after_a_while_if_so_configured() {
    let mut world = World::with(Options { unused_container_ms: 500, ..Options::default() });
    world.must(&create("/c", b"", Container));
    assert!(world.tree.reapable(world.now_ms + 500, 10).is_empty());
    assert_eq!(world.tree.reapable(world.now_ms + 501, 10), ["/c"]);
}

#[test]
fn a_ttl_znode_is_due_when_it_was_not_changed_for_its_ttl() {
    let mut world = World::new();
    world.must(&create_raw(Opcode::CreateTtl, "/t", 5, Some(100)));
    let created_ms = world.now_ms;
    assert!(world.tree.reapable(created_ms + 100, 10).is_empty());
    assert_eq!(world.tree.reapable(created_ms + 101, 10), ["/t"]);
    assert_eq!(world.ask(&delete_container("/t")).unwrap_err(), ErrorCode::BadVersion, "too early");
    world.must(&create("/t/a", b"", Persistent));
    world.now_ms += 200;
    assert!(world.tree.reapable(world.now_ms, 10).is_empty(), "it has a child");
    world.must(&delete("/t/a", -1));
    world.must(&set("/t", b"", -1));
    assert!(world.tree.reapable(world.now_ms, 10).is_empty(), "it was changed");
    world.now_ms += 200;
    world.propose(&set("/t", b"", -1), 0).unwrap();
    assert_eq!(world.tree.reapable(world.now_ms, 10), ["/t"], "as applied");
    assert_eq!(code(world.propose(&delete_container("/t"), 0)), ErrorCode::BadVersion, "as proposed");
    world.apply_all();
    world.now_ms += 200;
    world.must(&delete_container("/t"));
    assert_eq!((world.tree.ttl_count(), world.exists("/t")), (0, false));
}

#[test]
fn only_the_server_reaps_and_only_what_is_to_be_reaped() {
    let mut world = World::new();
    world.propose_session(5);
    world.propose(&create("/p", b"", Persistent), 5).unwrap();
    world.propose(&create("/e", b"", Ephemeral), 5).unwrap();
    world.propose(&create("/c", b"", Container), 5).unwrap();
    world.apply_all();
    assert_eq!(code(world.propose(&delete_container("/c"), 5)), ErrorCode::NoAuth);
    for path in ["/p", "/e"] {
        assert_eq!(world.ask(&delete_container(path)).unwrap_err(), ErrorCode::BadVersion, "{path}");
    }
    assert_eq!(world.ask(&delete_container("/no")).unwrap_err(), ErrorCode::NoNode);
    assert_eq!(world.ask(&delete_container("/")).unwrap_err(), ErrorCode::BadArguments);
}
