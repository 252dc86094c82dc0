//! Multis: all or nothing, and each operation sees those before it.

use crate::world::*;
use stoa_tree::Refusal;
use stoa_wire::CreateMode::*;
use stoa_wire::{ErrorCode, EventKind, Opcode, READ_ACL};

fn failure(refused: Result<(), Refusal>) -> (usize, usize, ErrorCode) {
    match refused {
        Err(Refusal::Multi { count, failed, code }) => (count, failed, code),
        other => panic!("{other:?} is not a failed multi"),
    }
}

#[test]
fn operations_see_those_before_them() {
    let mut world = World::new();
    let notes = world.must(&multi(&[
        create("/a", b"1", Persistent),
        check("/a", 0),
        set("/a", b"2", 0),
        check("/a", 1),
        create("/a/b-", b"", PersistentSequential),
        create("/a/b-", b"", PersistentSequential),
        delete("/a/b-0000000000", 0),
    ]));
    assert_eq!(notes.answers.len(), 7);
    assert!(
        matches!(&notes.answers[0], Answer::Created(path, stat, false) if path == "/a" && stat.version == 0)
    );
    assert!(matches!(&notes.answers[3], Answer::Checked(stat) if stat.version == 1));
    assert_eq!(world.children("/a"), ["b-0000000001"]);
    let stat = world.stat("/a");
    assert_eq!((stat.version, stat.num_children, stat.cversion), (1, 1, 3));
    assert_eq!(
        (stat.czxid, stat.mzxid, stat.pzxid),
        (world.zxid, world.zxid, world.zxid),
        "one zxid for all"
    );
    assert_eq!(notes.changes.first(), Some(&(EventKind::Created, "/a".into())));
}

#[test]
fn a_failed_multi_changes_nothing_and_says_which_operation() {
    let mut world = World::new();
    world.must(&create("/a", b"", Persistent));
    let digest = world.tree.digest();
    let failing = multi(&[
        set("/a", b"x", 0),
        set_null("/a"),
        create("/a/b", b"", Persistent),
        create_acl("/a/c", b"", Persistent, READ_ACL),
        check("/a", 7),
        delete("/a", -1),
    ]);
    assert_eq!(failure(world.propose(&failing, 0)), (6, 4, ErrorCode::BadVersion));
    // As proposed it is as it was: version 0, without children, and /a/b free.
    world.propose(&check("/a", 0), 0).unwrap();
    world.propose(&create("/a/b", b"", Persistent), 0).unwrap();
    world.propose(&delete("/a/b", 0), 0).unwrap();
    world.propose(&delete("/a", 0), 0).unwrap();
    assert_eq!(world.apply_all().answers.len(), 4);
    assert!(!world.exists("/a"));
    assert_ne!(world.tree.digest(), digest);
}

#[test]
fn a_failed_multi_leaves_outstanding_updates_alone() {
    let mut world = World::new();
    world.propose(&create("/a", b"", Persistent), 0).unwrap();
    world.propose(&set("/a", b"1", 0), 0).unwrap();
    let failing = multi(&[set("/a", b"2", 1), create("/a/b", b"", Persistent), delete("/none", -1)]);
    assert_eq!(failure(world.propose(&failing, 0)), (3, 2, ErrorCode::NoNode));
    world.propose(&set("/a", b"3", 1), 0).unwrap();
    world.apply_all();
    assert_eq!(world.tree.get("/a").unwrap().data(), Some(&b"3"[..]));
    assert!(!world.tree.has_proposed());
}

#[test]
fn the_empty_multi_succeeds() {
    let mut world = World::new();
    let notes = world.must(&multi(&[]));
    assert!(notes.answers.is_empty() && notes.changes.is_empty());
    assert_eq!(world.tree.last_zxid(), world.zxid);
}

#[test]
fn a_multi_of_a_dead_session_fails_at_its_first_operation() {
    let mut world = World::new();
    let frame = multi(&[create("/a", b"", Persistent), delete("/a", -1)]);
    assert_eq!(failure(world.propose(&frame, 66)), (2, 0, ErrorCode::SessionExpired));
}

#[test]
fn in_a_multi_the_flags_say_which_create_it_is() {
    let mut world = World::new();
    let with_stat = |notes: &Notes| -> Vec<bool> {
        let created = |answer: &Answer| match answer {
            Answer::Created(_, _, with_stat) => *with_stat,
            other => panic!("{other:?} is no create"),
        };
        notes.answers.iter().map(created).collect()
    };
    let notes = world.must(&multi(&[
        create_raw(Opcode::Create, "/container", Container as i32, None),
        create_raw(Opcode::CreateTtl, "/container-too", Container as i32, Some(7)),
        create_raw(Opcode::CreateTtl, "/plain", Persistent as i32, Some(7)),
    ]));
    assert_eq!(with_stat(&notes), [true, true, false]);
    // Only containers are the server's to delete.
    world.must(&delete_container("/container"));
    world.must(&delete_container("/container-too"));
    assert!(matches!(world.ask(&delete_container("/plain")), Err(ErrorCode::BadVersion)));
}

#[test]
fn a_create_of_a_mode_that_its_opcode_does_not_have_makes_the_whole_multi_unreadable() {
    let mut world = World::new();
    for flags in [PersistentTtl as i32, PersistentSequentialTtl as i32, 7, -1] {
        for opcode in [Opcode::Create, Opcode::Create2, Opcode::CreateContainer] {
            let frame = multi(&[delete("/none", -1), create_raw(opcode, "/a", flags, None)]);
            let refused = world.propose(&frame, 0);
            assert!(
                matches!(refused, Err(Refusal::Error(ErrorCode::MarshallingError))),
                "{opcode:?} {flags}"
            );
        }
        if flags == 7 {
            let frame = multi(&[create_raw(Opcode::CreateTtl, "/a", flags, Some(7))]);
            assert_eq!(failure(world.propose(&frame, 0)), (1, 0, ErrorCode::BadArguments));
        }
    }
}
