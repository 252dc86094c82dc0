//! Sessions and their ephemerals.

use crate::world::*;
use stoa_tree::{Contact, SessionInfo};
use stoa_wire::CreateMode::*;
use stoa_wire::{ErrorCode, EventKind};

#[test]
fn a_session_is_live_from_proposal_to_proposal() {
    let mut world = World::new();
    assert!(!world.tree.session_is_live(5));
    assert_eq!(code(world.propose(&create("/a", b"", Persistent), 5)), ErrorCode::SessionExpired);
    world.propose_session(5);
    assert!(world.tree.session_is_live(5));
    assert_eq!(world.tree.session(5), None, "not applied yet");
    let notes = world.apply_all();
    assert_eq!(notes.answers, [Answer::SessionCreated(5)]);
    let info = SessionInfo {
        id: 5,
        timeout_ms: 5_000,
        password: [5; 16],
        contact: Contact::default(),
        ephemeral_count: 0,
    };
    assert_eq!(world.tree.session(5), Some(info));
    world.propose_close(5);
    assert!(!world.tree.session_is_live(5));
    assert!(world.tree.session(5).is_some(), "not applied yet");
    assert_eq!(code(world.propose(&create("/a", b"", Persistent), 5)), ErrorCode::SessionExpired);
    assert_eq!(world.apply_all().answers, [Answer::SessionClosed(5)]);
    assert_eq!((world.tree.session(5), world.tree.session_count()), (None, 0));
    world.propose_close(5);
    assert_eq!(world.apply_all().answers, [Answer::SessionClosed(5)], "again, to no effect");
}

#[test]
fn closing_deletes_the_ephemerals_in_one_step() {
    let mut world = World::new();
    world.propose_session(5);
    world.propose_session(6);
    world.propose(&create("/p", b"", Persistent), 5).unwrap();
    for (path, session) in [("/p/a", 5), ("/p/b", 6), ("/p/c", 5)] {
        world.propose(&create(path, b"data", Ephemeral), session).unwrap();
    }
    world.propose(&delete("/p/c", -1), 6).unwrap();
    world.propose(&create("/d", b"", EphemeralSequential), 5).unwrap();
    world.apply_all();
    assert_eq!(world.tree.ephemerals_of(5).collect::<Vec<_>>(), ["/d0000000001", "/p/a"]);
    assert_eq!(world.tree.ephemeral_count(), 3);

    world.propose_close(5);
    let notes = world.apply_all();
    assert_eq!(notes.answers, [Answer::SessionClosed(5)]);
    let deleted: Vec<_> = notes.changes.iter().filter(|(kind, _)| *kind == EventKind::Deleted).collect();
    assert_eq!(deleted.len(), 2);
    assert_eq!(world.children("/p"), ["b"]);
    let stat = world.stat("/p");
    assert_eq!((stat.pzxid, stat.cversion, stat.num_children), (world.zxid, 5, 1));
    assert_eq!(world.tree.ephemeral_count(), 1);
}

#[test]
fn what_a_closing_session_owns_counts_as_deleted_at_once() {
    let mut world = World::new();
    world.propose_session(5);
    world.propose_session(6);
    world.propose(&create("/p", b"", Persistent), 5).unwrap();
    world.propose(&create("/p/lock", b"", Ephemeral), 5).unwrap();
    world.apply_all();
    world.propose(&create("/p/late", b"", Ephemeral), 5).unwrap();
    assert_eq!(code(world.propose(&delete("/p", -1), 6)), ErrorCode::NotEmpty);
    world.propose_close(5);
    assert_eq!(code(world.propose(&set("/p/lock", b"", -1), 6)), ErrorCode::NoNode);
    assert_eq!(code(world.propose(&delete("/p/late", -1), 6)), ErrorCode::NoNode);
    world.propose(&create("/p/lock", b"", Ephemeral), 6).unwrap();
    assert_eq!(code(world.propose(&delete("/p", -1), 6)), ErrorCode::NotEmpty);
    world.propose(&delete("/p/lock", 0), 6).unwrap();
    world.propose(&delete("/p", -1), 6).unwrap();
    world.apply_all();
    assert!(!world.exists("/p"));
    assert_eq!(world.tree.ephemeral_count(), 0);
}

#[test]
fn abandoned_proposals_are_as_if_never_made() {
    let mut world = World::new();
    world.propose_session(5);
    world.propose(&create("/a", b"", Ephemeral), 5).unwrap();
    world.apply_all();
    world.propose_close(5);
    world.propose(&create("/a", b"", Persistent), 0).unwrap();
    assert!(world.tree.has_proposed());
    world.tree.abandon_proposed();
    world.log.truncate(world.applied);
    assert!(!world.tree.has_proposed() && world.tree.session_is_live(5));
    assert_eq!(code(world.propose(&create("/a", b"", Persistent), 0)), ErrorCode::NodeExists);
    world.propose(&set("/a", b"", 0), 5).unwrap();
    world.apply_all();
}

#[test]
fn many_ephemerals_of_one_session_take_no_longer_each() {
    let mut world = World::new();
    world.propose_session(5);
    world.propose(&create("/p", b"", Persistent), 5).unwrap();
    for n in 0..100_000 {
        world.propose(&create(&format!("/p/{n}"), b"", Ephemeral), 5).unwrap();
    }
    let mut notes = Notes::default();
    while world.apply_next(&mut notes) {}
    world.propose_close(5);
    world.propose(&delete("/p", -1), 0).unwrap();
    while world.apply_next(&mut notes) {}
    assert_eq!((world.tree.znode_count(), world.tree.ephemeral_count()), (4, 0));
    assert_eq!(world.tree.digest(), world.tree.recomputed_digest());
}
