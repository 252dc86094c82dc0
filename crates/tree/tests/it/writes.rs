//! Single writes: what they change, and which error wins.

use crate::world::*;
use stoa_tree::{Options, TTL_MS_MAX, ZnodeKind};
use stoa_wire::CreateMode::*;
use stoa_wire::{Acl, ErrorCode, EventKind, OPEN_ACL, Opcode, READ_ACL, Stat, perms};

#[test]
fn a_new_tree_is_what_zookeeper_starts_with() {
    let world = World::new();
    assert_eq!(world.children("/"), ["zookeeper"]);
    assert_eq!(world.children("/zookeeper"), ["quota", "config"]);
    assert_eq!(world.tree.znode_count(), 4);
    assert_eq!(world.tree.data_bytes(), 44);
    let root = Stat { cversion: -1, num_children: 1, ..Stat::default() };
    assert_eq!(world.stat("/"), root);
    assert_eq!(world.stat("/zookeeper"), Stat { cversion: -2, num_children: 2, ..Stat::default() });
    let config = world.tree.get("/zookeeper/config").unwrap();
    assert_eq!(acl_of(config.acl().list()), [(perms::READ, "world".into(), "anyone".into())]);
    assert_eq!(config.stat().aversion, -1);
    assert_eq!(config.data(), Some(&b""[..]));
    assert_eq!(world.tree.digest(), world.tree.recomputed_digest());
}

#[test]
fn create_set_and_delete_change_the_stats_of_znode_and_parent() {
    let mut world = World::new();
    let notes = world.must(&create("/a", b"xyz", Persistent));
    let (zxid, time_ms) = (world.zxid, world.now_ms);
    let stat = Stat {
        czxid: zxid,
        mzxid: zxid,
        pzxid: zxid,
        ctime: time_ms,
        mtime: time_ms,
        data_length: 3,
        ..Stat::default()
    };
    assert_eq!(notes.answers, [Answer::Created("/a".into(), stat, false)]);
    assert_eq!(notes.changes, [(EventKind::Created, "/a".into()), (EventKind::ChildrenChanged, "/".into())]);
    assert_eq!(world.stat("/a"), stat);
    let root = world.stat("/");
    assert_eq!((root.cversion, root.num_children, root.pzxid), (0, 2, zxid));

    let notes = world.must(&set("/a", b"longer", 0));
    let stat = Stat { mzxid: world.zxid, mtime: world.now_ms, version: 1, data_length: 6, ..stat };
    assert_eq!(notes.answers, [Answer::DataSet(stat)]);
    assert_eq!(notes.changes, [(EventKind::DataChanged, "/a".into())]);

    let notes = world.must(&delete("/a", 1));
    assert_eq!(notes.answers, [Answer::Deleted]);
    assert_eq!(notes.changes, [(EventKind::Deleted, "/a".into()), (EventKind::ChildrenChanged, "/".into())]);
    let root = world.stat("/");
    assert_eq!((root.cversion, root.num_children, root.pzxid), (1, 1, world.zxid));
    assert_eq!(world.tree.digest(), world.tree.recomputed_digest());
}

#[test]
fn set_acl_changes_aversion_only_and_fires_nothing() {
    let mut world = World::new();
    world.must(&create("/a", b"", Persistent));
    let before = world.stat("/a");
    let notes = world.must(&set_acl("/a", READ_ACL, 0));
    assert_eq!(notes.answers, [Answer::AclSet(Stat { aversion: 1, ..before })]);
    assert!(notes.changes.is_empty());
    assert_eq!(world.ask(&set_acl("/a", OPEN_ACL, 0)).unwrap_err(), ErrorCode::BadVersion);
    world.must(&set_acl("/a", OPEN_ACL, 1));
    assert!(world.tree.get("/a").unwrap().is_open());
}

#[test]
fn null_data_is_kept_apart_from_empty() {
    let mut world = World::new();
    world.must(&create("/a", b"", Persistent));
    assert_eq!(world.tree.get("/a").unwrap().data(), Some(&b""[..]));
    let digest = world.tree.digest();
    world.must(&set_null("/a"));
    assert_eq!(world.tree.get("/a").unwrap().data(), None);
    assert_ne!(world.tree.digest(), digest);
}

#[test]
fn sequential_names_count_the_creates_below_the_parent() {
    let mut world = World::new();
    world.must(&create("/q", b"", Persistent));
    for expected in ["/q/n-0000000000", "/q/n-0000000001"] {
        let notes = world.must(&create("/q/n-", b"", PersistentSequential));
        assert!(matches!(&notes.answers[..], [Answer::Created(path, _, _)] if path == expected));
    }
    world.must(&delete("/q/n-0000000001", -1));
    world.must(&create("/q/other", b"", Persistent));
    world.must(&create("/q/", b"", PersistentSequential));
    assert_eq!(world.children("/q"), ["n-0000000000", "other", "0000000003"]);
}

#[test]
fn creates_are_refused_in_zookeepers_order() {
    let mut world = World::new();
    world.must(&create("/locked", b"", Persistent));
    world.must(&create("/locked/there", b"", Persistent));
    world.must(&set_acl("/locked", READ_ACL, -1));
    world.propose_session(7);
    world.apply_all();
    let mut refused = |frame: &Frame| code(world.propose(frame, 7));

    let bad_acl = &[Acl { perms: 31, scheme: "nonsense", id: "x" }];
    assert_eq!(refused(&create_raw(Opcode::Create, "/a", 99, None)), ErrorCode::BadArguments);
    assert_eq!(refused(&create_acl("a", b"", Persistent, bad_acl)), ErrorCode::BadArguments);
    assert_eq!(refused(&create_acl("/no/a", b"", Persistent, bad_acl)), ErrorCode::InvalidAcl);
    assert_eq!(refused(&create_acl("/no/a", b"", Persistent, &[])), ErrorCode::InvalidAcl);
    assert_eq!(refused(&create("/no//a", b"", Persistent)), ErrorCode::NoNode);
    assert_eq!(refused(&create("/locked/a\u{1}", b"", Persistent)), ErrorCode::NoAuth);
    assert_eq!(refused(&create("/locked/there", b"", Persistent)), ErrorCode::NoAuth);
    assert_eq!(refused(&create("/a\u{1}", b"", Persistent)), ErrorCode::BadArguments);
    assert_eq!(refused(&create("/locked/", b"", Persistent)), ErrorCode::NoAuth);
    assert_eq!(refused(&create("/a/", b"", Persistent)), ErrorCode::NoNode);
    assert_eq!(refused(&create("//", b"", Persistent)), ErrorCode::BadArguments);
    assert_eq!(refused(&create("/", b"", Persistent)), ErrorCode::NodeExists);
    assert_eq!(refused(&create("/locked", b"", Persistent)), ErrorCode::NodeExists);
    assert_eq!(refused(&create("", b"", Persistent)), ErrorCode::BadArguments);
}

#[test]
fn an_ephemeral_has_no_children_but_existing_paths_come_first() {
    let mut world = World::new();
    world.propose_session(7);
    world.propose(&create("/e", b"", Ephemeral), 7).unwrap();
    assert_eq!(code(world.propose(&create("/e/a", b"", Persistent), 7)), ErrorCode::NoChildrenForEphemerals);
    world.apply_all();
    assert_eq!(code(world.propose(&create("/e/a", b"", Persistent), 7)), ErrorCode::NoChildrenForEphemerals);
    assert_eq!(world.stat("/e").ephemeral_owner, 7);
}

#[test]
fn deletes_are_refused_in_zookeepers_order() {
    let mut world = World::new();
    world.must(&create("/a", b"", Persistent));
    world.must(&create("/a/b", b"", Persistent));
    world.must(&create("/locked", b"", Persistent));
    world.must(&create("/locked/b", b"", Persistent));
    world.must(&set_acl("/locked", READ_ACL, -1));
    world.propose_session(7);
    world.apply_all();
    let mut refused = |frame: &Frame| code(world.propose(frame, 7));
    for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "", "a", "/a\0"] {
        assert_eq!(refused(&delete(path, -1)), ErrorCode::BadArguments, "{path:?}");
    }
    assert_eq!(refused(&delete("/no/b", -1)), ErrorCode::NoNode);
    assert_eq!(refused(&delete("/locked/no", -1)), ErrorCode::NoAuth);
    assert_eq!(refused(&delete("/no", 5)), ErrorCode::NoNode);
    assert_eq!(refused(&delete("/a/", -1)), ErrorCode::NoNode);
    assert_eq!(refused(&delete("/a", 5)), ErrorCode::BadVersion);
    assert_eq!(refused(&delete("/a", 0)), ErrorCode::NotEmpty);
    assert_eq!(refused(&set("/no\u{1}", b"", -1)), ErrorCode::BadArguments);
    assert_eq!(refused(&set("/no", b"", -1)), ErrorCode::NoNode);
    assert_eq!(refused(&set("/locked", b"", 5)), ErrorCode::NoAuth);
    assert_eq!(refused(&set("/a", b"", 5)), ErrorCode::BadVersion);
    assert_eq!(refused(&check("/a", 5)), ErrorCode::BadVersion);
    assert_eq!(refused(&check("/no", 5)), ErrorCode::NoNode);
    assert_eq!(refused(&set_acl("/no", &[], -1)), ErrorCode::InvalidAcl);
}

#[test]
fn check_answers_the_stat() {
    let mut world = World::new();
    world.must(&create("/a", b"", Persistent));
    let stat = world.stat("/a");
    assert_eq!(world.must(&check("/a", 0)).answers, [Answer::Checked(stat)]);
    assert_eq!(world.stat("/a"), stat);
}

#[test]
fn ttl_and_container_creates_are_checked() {
    let mut world = World::new();
    let refused =
        |world: &mut World, opcode, flags, ttl| world.ask(&create_raw(opcode, "/t", flags, ttl)).unwrap_err();
    for ttl in [0, -1, TTL_MS_MAX + 1, i64::MAX] {
        assert_eq!(refused(&mut world, Opcode::CreateTtl, 5, Some(ttl)), ErrorCode::BadArguments, "{ttl}");
    }
    assert_eq!(refused(&mut world, Opcode::CreateTtl, 0, Some(5)), ErrorCode::BadArguments);
    assert_eq!(refused(&mut world, Opcode::Create, 5, None), ErrorCode::BadArguments);
    let mut old = World::with(Options { extended_types: false, ..Options::default() });
    assert_eq!(refused(&mut old, Opcode::CreateTtl, 5, Some(5)), ErrorCode::Unimplemented);

    let notes = world.must(&create_raw(Opcode::CreateTtl, "/t", 5, Some(TTL_MS_MAX)));
    assert!(matches!(&notes.answers[..], [Answer::Created(path, _, true)] if path == "/t"));
    assert_eq!(world.tree.get("/t").unwrap().kind(), ZnodeKind::Ttl { ttl_ms: TTL_MS_MAX });
    assert_eq!(world.stat("/t").ephemeral_owner, 0, "a client sees owners of ephemerals only");
    world.must(&create("/c", b"", Container));
    assert_eq!(world.tree.get("/c").unwrap().kind(), ZnodeKind::Container);
    world.must(&create_raw(Opcode::Create, "/p", 4, None));
    assert_eq!(world.tree.get("/p").unwrap().kind(), ZnodeKind::Persistent, "the opcode decides");
    assert_eq!((world.tree.container_count(), world.tree.ttl_count()), (1, 1));
}

#[test]
fn acls_are_checked_expanded_and_enforced() {
    let mut world = World::new();
    world.propose_session(7);
    world.apply_all();
    let ann = [identity("ip", "10.1.2.3"), identity("digest", "ann:hash")];
    let bob = [identity("ip", "10.9.9.9"), identity("digest", "bob:hash")];
    let root = [identity("super", "")];
    let mine = &[Acl { perms: perms::ALL, scheme: "auth", id: "" }];

    assert_eq!(code(world.propose(&create_acl("/a", b"", Persistent, mine), 7)), ErrorCode::InvalidAcl);
    world.ask_as(&create_acl("/a", b"", Persistent, mine), 7, &ann).unwrap();
    let acl = acl_of(world.tree.get("/a").unwrap().acl().list());
    assert_eq!(acl, [(perms::ALL, "digest".into(), "ann:hash".into())]);
    assert_eq!(code(world.propose_as(&set("/a", b"1", -1), 7, &bob)), ErrorCode::NoAuth);
    world.ask_as(&set("/a", b"1", -1), 7, &ann).unwrap();
    world.ask_as(&set("/a", b"2", -1), 7, &root).unwrap();

    let subnet = &[
        Acl { perms: perms::WRITE, scheme: "ip", id: "10.1.0.0/16" },
        Acl { perms: perms::READ, scheme: "world", id: "anyone" },
        Acl { perms: perms::READ, scheme: "world", id: "anyone" },
    ];
    world.ask_as(&set_acl("/a", subnet, -1), 7, &ann).unwrap();
    let view = world.tree.get("/a").unwrap();
    assert_eq!(acl_of(view.acl().list()).len(), 2, "duplicates are dropped");
    assert_eq!(code(world.propose_as(&set("/a", b"1", -1), 7, &bob)), ErrorCode::NoAuth);
    world.ask_as(&set("/a", b"1", -1), 7, &ann).unwrap();
    world.ask_as(&check("/a", -1), 7, &bob).unwrap();

    for (scheme, id) in
        [("world", "me"), ("digest", "x"), ("digest", "a:b:c"), ("ip", "1.2.3"), ("sasl", "a"), ("", "")]
    {
        let acl = &[Acl { perms: 1, scheme, id }];
        assert_eq!(
            code(world.propose(&create_acl("/x", b"", Persistent, acl), 7)),
            ErrorCode::InvalidAcl,
            "{scheme}:{id}"
        );
    }
    let mut lax = World::with(Options { skip_acl: true, ..Options::default() });
    lax.propose_session(7);
    lax.ask_as(&create_acl("/a", b"", Persistent, subnet), 7, &bob).unwrap();
    lax.ask_as(&set("/a", b"1", -1), 7, &bob).unwrap();
}

#[test]
fn acls_that_nobody_has_any_more_are_forgotten() {
    let mut world = World::new();
    let before = world.tree.acl_count();
    for n in 0..50 {
        let id = format!("user{n}:hash");
        let acl = &[Acl { perms: 31, scheme: "digest", id: &id }];
        world.must(&create_acl(&format!("/n{n}"), b"", Persistent, acl));
    }
    assert_eq!(world.tree.acl_count(), before + 50);
    for n in 0..25 {
        world.must(&set_acl(&format!("/n{n}"), OPEN_ACL, -1));
    }
    for n in 25..50 {
        world.must(&delete(&format!("/n{n}"), -1));
    }
    assert_eq!(world.tree.acl_count(), before);
}
