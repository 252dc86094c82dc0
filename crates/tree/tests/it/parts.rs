//! Cuts and parts, one rule at a time.

use crate::divided::*;
use crate::world::*;
use stoa_tree::{
    Caller, Contact, Options, Part, PartOp, PartResult, Stamp, Tree, Update, Updates, WatchMode, WatcherId,
    Watches, ZnodeKind,
};
use stoa_wire::CreateMode::*;
use stoa_wire::{Acl, ErrorCode, EventKind, Opcode, READ_ACL, Stat};

/// Below /a it is the second partition, and at /a/b/c the first again.
const CUTS: &[(&str, usize)] = &[("/a", 1), ("/a/b/c", 0), ("/p/x", 1), ("/s/n0000000001", 1)];

fn divided() -> Divided {
    Divided::new(CUTS, &Options::default())
}

/// With everything in it that only a tree has that is one of several.
pub(crate) fn rich() -> Divided {
    let mut divided = divided();
    let stamp = divided.stamp();
    divided.create_session(5, stamp);
    for frame in [
        create("/a", b"data", Persistent),
        create("/a/b", b"", Container),
        create_acl("/a/b/c", b"back", Persistent, READ_ACL),
        create("/p", b"", Persistent),
        create("/p/x", b"mine", Ephemeral),
        multi(&[create("/a/e", b"", Ephemeral), set("/p", b"1", 0), check("/a/b/c", 0)]),
        create("/s", b"", Persistent),
        create("/s/n", b"", PersistentSequential),
        create("/s/n", b"", PersistentSequential),
        multi(&[create("/p/y", b"", Persistent), create("/a/d", b"", Persistent), delete("/a/d", 0)]),
    ] {
        divided.ask(&frame, 5).unwrap();
    }
    divided
}

pub(crate) fn names(divided: &Divided, path: &str) -> Vec<String> {
    let znode = divided.tree(path).get(path).unwrap();
    let names: Vec<String> = znode.children().map(String::from).collect();
    assert_eq!(znode.child_count(), names.len());
    names
}

pub(crate) fn stat(divided: &Divided, path: &str) -> Stat {
    divided.tree(path).get(path).unwrap().stat()
}

/// A part of one step.
pub(crate) fn alone(
    tree: &mut Tree,
    session: i64,
    op: PartOp<'_>,
) -> Result<(PartResult, Vec<u8>), ErrorCode> {
    let mut part = begin(tree, session);
    match tree.part_op(&mut part, op, &Caller { session, identities: &[] }) {
        Ok(result) => {
            let mut batch = Vec::new();
            tree.part_keep(part, &mut batch);
            Ok((result, batch))
        }
        Err(code) => {
            tree.part_undo(part);
            Err(code)
        }
    }
}

pub(crate) fn begin(tree: &mut Tree, session: i64) -> Part {
    let stamp = Stamp { zxid: tree.last_zxid() + 1_000, time_ms: 5_000_000 };
    tree.part_begin(stamp, session)
}

pub(crate) fn refused(tree: &mut Tree, op: PartOp<'_>) -> ErrorCode {
    let code = alone(tree, 0, op).unwrap_err();
    assert!(!tree.has_proposed());
    code
}

#[test]
fn another_partition_begins_with_nothing() {
    let mut tree = Tree::new_part(Options::default());
    assert!(tree.get("/").is_none() && tree.get("/zookeeper").is_none());
    assert_eq!((tree.znode_count(), tree.data_bytes(), tree.digest()), (0, 0, 0));
    assert_eq!((tree.recomputed_digest(), tree.count_below("/")), (0, Some(0)));
    let loaded = load(&snapshot(&mut tree, 10)).unwrap();
    assert!(loaded.get("/").is_none());
    assert_eq!((loaded.znode_count(), loaded.digest()), (0, 0));
}

#[test]
fn a_create_at_a_cut_is_an_update_on_each_side() {
    let mut divided = divided();
    let results = divided.ask(&create_raw(Opcode::Create2, "/a", 0, None), 0).unwrap();
    let zxid = divided.zxid;
    let wanted = stat(&divided, "/a");
    assert_eq!(results, [PartResult::Created { path: "/a".into(), stat: wanted, with_stat: true }]);
    assert_eq!((wanted.czxid, wanted.num_children), (zxid, 0));
    let [first, second] = &divided.members[..] else { panic!("two partitions") };
    assert!(first.tree.get("/a").is_none() && second.tree.get("/").is_none());
    assert_eq!(names(&divided, "/"), ["zookeeper", "a"]);
    let root = first.tree.get("/").unwrap().stat();
    assert_eq!((root.num_children, root.pzxid, root.cversion), (2, zxid, 0));
    assert_eq!((first.tree.znode_count(), second.tree.znode_count()), (4, 1));
    assert_eq!(first.changes[&zxid], [(EventKind::ChildrenChanged, "/".into())]);
    assert_eq!(second.changes[&zxid], [(EventKind::Created, "/a".into())]);
    assert!(first.answers[&zxid].is_empty());
    assert_eq!(second.answers[&zxid], [Answer::Created("/a".into(), wanted, true)]);
    assert_eq!(divided.ask(&create("/a", b"", Persistent), 0), Err(ErrorCode::NodeExists));
}

#[test]
fn what_was_made_at_a_cut_is_taken_away_with_all_that_held_it() {
    let mut divided = divided();
    for path in ["/a", "/a/b"] {
        divided.ask(&create(path, b"", Persistent), 0).unwrap();
    }
    let before = divided.members[1].tree.get("/a/b").unwrap().stat();
    let first = divided.members[0].tree.digest();
    divided.ask(&create("/a/b/c", b"back", Persistent), 0).unwrap();
    assert_ne!(divided.members[0].tree.digest(), first);
    assert_eq!(divided.members[0].tree.count_below("/a"), Some(1), "what came back");
    assert_eq!(divided.members[0].tree.count_below("/a/b"), Some(1));
    assert_eq!(divided.members[0].tree.count_below("/"), Some(4));
    assert_eq!(divided.members[1].tree.count_below("/a"), Some(1));
    // All of it is the sum, where nothing is none.
    let sum = |path: &str| -> usize {
        divided.members.iter().filter_map(|member| member.tree.count_below(path)).sum()
    };
    assert_eq!(["/", "/a", "/a/b", "/a/b/c"].map(sum), [6, 2, 1, 0]);
    assert_eq!(divided.members[1].tree.count_below("/zookeeper"), None);
    assert_eq!(divided.members[0].tree.get("/a/b").map(|znode| znode.kind()), None);
    assert_eq!(divided.ask(&delete("/a/b", -1), 0), Err(ErrorCode::NotEmpty));
    assert_eq!(divided.ask(&delete("/a/b/c", 3), 0), Err(ErrorCode::BadVersion));
    assert_eq!(divided.ask(&delete("/a/b/c", 0), 0), Ok(vec![PartResult::Deleted]));
    assert_eq!(
        divided.members[0].tree.digest(),
        first,
        "as before: scaffolding is gone, and counts for nothing"
    );
    assert_eq!(divided.members[0].tree.count_below("/a/b"), None);
    let after = divided.members[1].tree.get("/a/b").unwrap().stat();
    assert_eq!((after.num_children, after.pzxid, after.cversion), (0, divided.zxid, before.cversion + 2));
    assert_eq!(divided.ask(&delete("/a/b/c", -1), 0), Err(ErrorCode::NoNode));
    divided.ask(&delete("/a/b", -1), 0).unwrap();
    divided.ask(&delete("/a", -1), 0).unwrap();
    assert_eq!(divided.members[1].tree.digest(), 0);
    assert_eq!(divided.members[0].tree.count_below("/a"), None);
}

#[test]
fn a_multi_over_several_partitions_sees_its_own_operations_and_is_undone_as_a_whole() {
    let mut divided = rich();
    let failing = multi(&[
        create("/p/z", b"", Persistent),
        delete("/p/x", -1),
        create("/p/x", b"", Ephemeral),
        create_acl("/a/r", b"", Persistent, &[Acl { perms: 3, scheme: "world", id: "anyone" }]),
        create("/s/n", b"", PersistentSequential),
        check("/a", 7),
    ]);
    let seen = |divided: &Divided| {
        divided
            .members
            .iter()
            .map(|member| (member.tree.digest(), member.tree.acl_count()))
            .collect::<Vec<_>>()
    };
    let before = seen(&divided);
    assert_eq!(divided.ask(&failing, 5), Err(ErrorCode::BadVersion));
    assert!(divided.members.iter().all(|member| !member.tree.has_proposed()));
    assert_eq!(seen(&divided), before);
    let results = divided.ask(&multi(&[set("/p", b"22", 1), set("/a", b"", 0), check("/a", 1)]), 5).unwrap();
    let wanted = [
        PartResult::DataSet { stat: stat(&divided, "/p") },
        PartResult::DataSet { stat: stat(&divided, "/a") },
        PartResult::Checked { stat: stat(&divided, "/a") },
    ];
    assert_eq!(results, wanted);
    assert_eq!(divided.members[1].tree.last_zxid(), divided.members[0].tree.last_zxid(), "one zxid for all");
    let results = divided.ask(&create("/s/n", b"", PersistentSequential), 5).unwrap();
    assert!(results.is_empty() && divided.tree("/s/n0000000002").get("/s/n0000000002").is_some());
    assert_eq!(names(&divided, "/s"), ["n0000000000", "n0000000001", "n0000000002"]);
}

#[test]
fn a_sequential_znode_may_be_at_a_cut() {
    let divided = rich();
    assert!(divided.members[0].tree.get("/s/n0000000000").is_some());
    assert!(divided.members[0].tree.get("/s/n0000000001").is_none());
    assert!(divided.members[1].tree.get("/s/n0000000001").is_some());
    assert_eq!(divided.members[1].tree.count_below("/s"), Some(1));
}

#[test]
fn a_step_that_does_not_fit_is_refused() {
    let mut divided = rich();
    let [first, second] = &mut divided.members[..] else { panic!("two partitions") };
    let (first, second) = (&mut first.tree, &mut second.tree);
    let frame = |path: &str| create(path, b"", Persistent);
    let adopt = |tree: &mut Tree, path: &str| refused(tree, PartOp::Adopt(&frame(path).request()));
    assert_eq!(adopt(first, "/p"), ErrorCode::NodeExists);
    assert_eq!(adopt(first, "/a"), ErrorCode::NodeExists, "also when it is away");
    assert_eq!(adopt(first, "/none/x"), ErrorCode::NoNode);
    assert_eq!(adopt(first, "/a/x"), ErrorCode::NoNode, "the parent is away");
    assert_eq!(adopt(first, "/"), ErrorCode::NodeExists);
    let hidden = frame("/a/b/c/x");
    assert_eq!(alone(first, 5, PartOp::Adopt(&hidden.request())).unwrap_err(), ErrorCode::NoAuth);
    assert_eq!(adopt(second, "/a/e/x"), ErrorCode::NoChildrenForEphemerals);
    assert_eq!(adopt(second, "/x"), ErrorCode::NoNode);
    assert_eq!(refused(first, PartOp::Adopt(&delete("/p", 0).request())), ErrorCode::Unimplemented);

    let create_at = |tree: &mut Tree, path: &str| {
        refused(tree, PartOp::CreateAt { request: &frame("/any").request(), path })
    };
    assert_eq!(create_at(second, "/a"), ErrorCode::NodeExists);
    assert_eq!(create_at(second, "/"), ErrorCode::NodeExists);
    assert_eq!(create_at(second, "/a/x"), ErrorCode::SystemError, "its parent is here");
    assert_eq!(create_at(second, "/a/x/y"), ErrorCode::SystemError, "what is between is not away");
    assert_eq!(create_at(first, "/x"), ErrorCode::SystemError);
    assert_eq!(create_at(second, "x"), ErrorCode::BadArguments);

    let disown = |tree: &mut Tree, path: &str| refused(tree, PartOp::Disown { path });
    assert_eq!(disown(first, "/none"), ErrorCode::NoNode);
    assert_eq!(disown(first, "/p"), ErrorCode::NoNode, "it is here");
    assert_eq!(disown(first, "/a/b"), ErrorCode::NoNode, "its parent is away");
    assert_eq!(disown(first, "/"), ErrorCode::BadArguments);
    let delete_at = |tree: &mut Tree, path: &str| refused(tree, PartOp::DeleteAt { path, version: -1 });
    assert_eq!(delete_at(first, "/a"), ErrorCode::NoNode);
    assert_eq!(delete_at(first, "/a/b"), ErrorCode::NoNode);
    assert_eq!(delete_at(first, "/s/n0000000000"), ErrorCode::SystemError, "its parent is here");
    assert_eq!(delete_at(second, "/a"), ErrorCode::NotEmpty);
    assert_eq!(refused(second, PartOp::ReapAt { path: "/a" }), ErrorCode::NotEmpty);
    assert_eq!(refused(second, PartOp::ReapAt { path: "/p/x" }), ErrorCode::BadVersion);
    assert_eq!(alone(second, 5, PartOp::ReapAt { path: "/a" }).unwrap_err(), ErrorCode::NoAuth);

    for path in ["/a", "/a/b"] {
        for frame in [delete(path, -1), set(path, b"", -1), check(path, -1), delete_container(path)] {
            let request = frame.request();
            assert_eq!(refused(first, PartOp::Whole(&request)), ErrorCode::NoNode, "{request:?}");
        }
    }
    let whole = frame("/a");
    assert_eq!(refused(first, PartOp::Whole(&whole.request())), ErrorCode::NodeExists);
    assert_eq!(refused(first, PartOp::Visit { partition: 64 }), ErrorCode::BadArguments);
}

#[test]
fn the_acl_of_the_parent_counts_but_not_for_the_server() {
    let mut divided = divided();
    let stamp = divided.stamp();
    divided.create_session(5, stamp);
    divided.ask(&create("/p", b"", Persistent), 5).unwrap();
    divided.ask(&create("/p/x", b"", Persistent), 5).unwrap();
    divided.ask(&set_acl("/p", READ_ACL, -1), 5).unwrap();
    assert_eq!(divided.ask(&delete("/p/x", -1), 5), Err(ErrorCode::NoAuth));
    let first = &mut divided.members[0].tree;
    assert_eq!(alone(first, 5, PartOp::Disown { path: "/p/x" }).unwrap_err(), ErrorCode::NoAuth);
    let (_, batch) = alone(first, 0, PartOp::Disown { path: "/p/x" }).unwrap();
    assert!(!batch.is_empty());
}

#[test]
fn a_session_is_remote_where_it_owns_something() {
    let mut divided = divided();
    let stamp = divided.stamp();
    divided.create_session(5, stamp);
    for path in ["/a", "/p"] {
        divided.ask(&create(path, b"", Persistent), 5).unwrap();
    }
    let ephemeral = create("/a/e", b"", Ephemeral);
    let op = PartOp::Whole(&ephemeral.request());
    let second = &mut divided.members[1].tree;
    assert_eq!(alone(second, 5, op).unwrap_err(), ErrorCode::SessionExpired, "no remote session yet");
    let op = PartOp::CreateAt { request: &ephemeral.request(), path: "/p/x" };
    assert_eq!(alone(second, 5, op).unwrap_err(), ErrorCode::SessionExpired);
    let set = set("/a", b"", -1);
    let mut part = begin(second, 5);
    second
        .part_op(&mut part, PartOp::Whole(&set.request()), &Caller { session: 5, identities: &[] })
        .unwrap();
    second.part_undo(part);
    assert_eq!(divided.members[0].tree.visited(5), 0);

    let stamp = divided.stamp();
    divided.propose(&create("/p/x", b"", Ephemeral), 5, stamp).unwrap();
    assert_eq!(divided.members[0].tree.visited(5), 2, "as proposed");
    assert_eq!(divided.members[1].tree.ephemerals_at_cuts(5), ["/p/x"], "as proposed");
    assert!(divided.members[1].tree.session_is_live(5));
    divided.apply_all();
    let before = divided.members[0].log.len();
    divided.ask(&ephemeral, 5).unwrap();
    assert_eq!(divided.members[0].log.len(), before, "nothing new for the first partition");
    assert_eq!(
        divided.members[1].tree.ephemerals_at_cuts(5),
        ["/p/x"],
        "that in its parent's partition is none"
    );
    assert_eq!(divided.members[1].tree.session(5).unwrap().ephemeral_count, 2);
    let kind = ZnodeKind::Ephemeral { session: 5 };
    assert_eq!(divided.tree("/p/x").get("/p/x").map(|znode| znode.kind()), Some(kind));

    let stamp = divided.stamp();
    divided.close_session(5, stamp);
    assert!(divided.members[1].tree.ephemerals_at_cuts(5).is_empty());
    assert_eq!(divided.members[0].tree.visited(5), 0);
    assert_eq!(divided.ask(&create("/a/late", b"", Persistent), 5), Err(ErrorCode::SessionExpired));
    divided.apply_all();
    assert!(names(&divided, "/p").is_empty() && names(&divided, "/a").is_empty());
    assert!(divided.members.iter().all(|member| member.tree.session_count() == 0));
    assert_eq!(divided.members[0].changes[&stamp.zxid], [(EventKind::ChildrenChanged, "/p".into())]);
    let deleted: Vec<_> =
        divided.members[1].changes[&stamp.zxid].iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(deleted, ["/a/e", "/a", "/p/x"]);
}

#[test]
fn what_a_session_of_another_site_owns_is_held_there_before_it_is_applied() {
    let mut tree = Tree::new_part(Options::default());
    let mut batch = Vec::new();
    tree.prepare_site(1, 1, Stamp { zxid: 1 << 11, time_ms: 1 }, &mut batch).unwrap();
    for update in Updates::new(&batch) {
        tree.apply(&update.unwrap(), &mut ()).unwrap();
    }
    let mine = |tree: &mut Tree, part: &mut Part| {
        let caller = Caller { session: 5, identities: &[] };
        tree.part_op(part, PartOp::RemoteSession { home: 3 }, &caller).unwrap();
        let create = create("/mine", b"", Ephemeral);
        tree.part_op(part, PartOp::CreateAt { request: &create.request(), path: "/mine" }, &caller)
    };
    let mut part = begin(&mut tree, 5);
    mine(&mut tree, &mut part).unwrap();
    assert_eq!((tree.holder_to_be("/mine"), tree.home_to_be(5)), (Some(3), 3));
    tree.part_undo(part);
    assert!(!tree.has_proposed(), "nothing is left of what was undone");
    assert_eq!(tree.holder_to_be("/mine"), Some(1));
}

#[test]
fn a_session_that_is_closing_owns_nothing_any_more() {
    let mut tree = Tree::new_part(Options::default());
    let (_, remote) = alone(&mut tree, 5, PartOp::RemoteSession { home: 0 }).unwrap();
    assert!(!remote.is_empty());
    assert_eq!(
        alone(&mut tree, 5, PartOp::RemoteSession { home: 0 }).unwrap(),
        (PartResult::Done, Vec::new()),
        "known already"
    );
    let (_, close) = alone(&mut tree, 5, PartOp::CloseSession).unwrap();
    assert!(!close.is_empty());
    assert_eq!(
        alone(&mut tree, 5, PartOp::RemoteSession { home: 0 }).unwrap_err(),
        ErrorCode::SessionExpired
    );
    let mut first = Tree::new(Options::default());
    assert_eq!(
        alone(&mut first, 5, PartOp::RemoteSession { home: 0 }).unwrap_err(),
        ErrorCode::SessionExpired
    );
    let visit = PartOp::Visit { partition: 3 };
    assert_eq!(alone(&mut first, 5, visit).unwrap_err(), ErrorCode::SessionExpired);
}

#[test]
fn a_part_without_steps_is_no_update_and_one_undone_leaves_no_trace() {
    let mut divided = rich();
    let tree = &mut divided.members[0].tree;
    let mut batch = Vec::new();
    let part = begin(tree, 5);
    tree.part_keep(part, &mut batch);
    assert!(batch.is_empty() && !tree.has_proposed());
    let mut part = begin(tree, 5);
    let caller = Caller { session: 5, identities: &[] };
    assert_eq!(tree.visited(5), 2);
    for op in [PartOp::Visit { partition: 63 }, PartOp::Disown { path: "/p/x" }, PartOp::CloseSession] {
        tree.part_op(&mut part, op, &caller).unwrap();
    }
    assert!(!tree.session_is_live(5) && tree.has_proposed());
    tree.part_undo(part);
    assert!(tree.session_is_live(5) && !tree.has_proposed());
    assert_eq!(tree.visited(5), 2);
    assert_eq!(
        refused(tree, PartOp::Adopt(&create("/p/x", b"", Persistent).request())),
        ErrorCode::NodeExists
    );
}

#[test]
fn the_stat_as_it_will_be_knows_of_what_is_outstanding() {
    let mut divided = divided();
    let stamp = divided.stamp();
    divided.create_session(5, stamp);
    divided.ask(&create("/p", b"1", Persistent), 5).unwrap();
    divided.ask(&create("/p/gone", b"", Ephemeral), 5).unwrap();
    let mut propose = |frame: &Frame, session| {
        let stamp = divided.stamp();
        divided.propose(frame, session, stamp).unwrap();
    };
    propose(&create("/p/late", b"", Ephemeral), 5);
    propose(&create("/p/x", b"", Persistent), 0);
    propose(&set("/p", b"22", -1), 0);
    propose(&create("/p/stays", b"", Persistent), 0);
    let stamp = divided.stamp();
    divided.close_session(5, stamp);
    let results = divided.ask(&multi(&[set("/p", b"333", -1), check("/p", 2), check("/p/x", 0)]), 0).unwrap();
    let wanted = stat(&divided, "/p");
    assert_eq!((wanted.num_children, wanted.pzxid, wanted.version), (2, stamp.zxid, 2));
    assert_eq!(results[0], PartResult::DataSet { stat: wanted });
    assert_eq!(results[1], PartResult::Checked { stat: wanted });
    assert_eq!(results[2], PartResult::Checked { stat: stat(&divided, "/p/x") });
}

#[test]
fn the_stat_as_it_will_be_knows_of_a_session_that_has_ended_meanwhile() {
    let mut divided = divided();
    let stamp = divided.stamp();
    divided.create_session(5, stamp);
    divided.ask(&create("/p", b"", Persistent), 0).unwrap();
    divided.ask(&create("/p/e", b"", Ephemeral), 5).unwrap();
    let closed = divided.stamp();
    divided.close_session(5, closed);
    let later = divided.stamp();
    divided.propose(&set("/p", b"1", -1), 0, later).unwrap();
    divided.members[0].apply_to(closed.zxid);
    let results = divided.ask(&multi(&[set("/p", b"22", -1)]), 0).unwrap();
    assert_eq!(results, [PartResult::DataSet { stat: stat(&divided, "/p") }]);
    assert_eq!(stat(&divided, "/p").pzxid, closed.zxid);
}

#[test]
fn containers_at_cuts_are_reaped_on_both_sides() {
    let mut divided = divided();
    divided.ask(&create("/a", b"", Container), 0).unwrap();
    divided.ask(&create("/a/x", b"", Persistent), 0).unwrap();
    divided.ask(&delete("/a/x", -1), 0).unwrap();
    assert!(divided.members[0].tree.reapable(i64::MAX, 10).is_empty());
    assert_eq!(divided.members[1].tree.reapable(0, 10), ["/a"]);
    assert_eq!(divided.ask(&delete_container("/a"), 0), Ok(vec![PartResult::Deleted]));
    assert_eq!((divided.members[1].tree.znode_count(), names(&divided, "/")), (0, vec!["zookeeper".into()]));
}

#[test]
fn a_quota_counts_what_is_on_its_partition() {
    let mut divided = Divided::new(CUTS, &Options { enforce_quota: true, ..Options::default() });
    for path in ["/p", "/p/x", "/zookeeper/quota/p"] {
        divided.ask(&create(path, b"12345", Persistent), 0).unwrap();
    }
    let limits = b"count=-1,bytes=-1;countHardLimit=2";
    divided.ask(&create("/zookeeper/quota/p/zookeeper_limits", limits, Persistent), 0).unwrap();
    divided.ask(&create("/zookeeper/quota/p/zookeeper_stats", b"", Persistent), 0).unwrap();
    divided.ask(&multi(&[delete("/p/x", -1), create("/p/x", b"", Persistent)]), 0).unwrap();
    let data = divided.members[0].tree.get("/zookeeper/quota/p/zookeeper_stats").unwrap().data();
    assert_eq!(data, Some(&b"count=1,bytes=5"[..]));
    divided.ask(&create("/p/y", b"", Persistent), 0).unwrap();
    assert_eq!(divided.ask(&create("/p/z", b"", Persistent), 0), Err(ErrorCode::QuotaExceeded));
}

#[test]
fn a_quota_counts_what_came_back_and_is_none_when_its_limits_are_away() {
    const CUTS: &[(&str, usize)] = &[("/a", 1), ("/a/b/c", 0), ("/zookeeper/quota/a/b/zookeeper_limits", 1)];
    let mut divided = Divided::new(CUTS, &Options::default());
    for path in ["/a", "/a/b", "/a/b/c", "/zookeeper/quota/a", "/zookeeper/quota/a/b"] {
        divided.ask(&create(path, b"", Persistent), 0).unwrap();
    }
    for path in ["/a", "/a/b"] {
        for name in ["zookeeper_limits", "zookeeper_stats"] {
            divided.ask(&create(&format!("/zookeeper/quota{path}/{name}"), b"", Persistent), 0).unwrap();
        }
    }
    let stats = |divided: &Divided| {
        let znode = divided.members[0].tree.get("/zookeeper/quota/a/zookeeper_stats").unwrap();
        String::from_utf8(znode.data().unwrap().to_vec()).unwrap()
    };
    assert_eq!(stats(&divided), "count=1,bytes=0");
    divided.members[0].tree = divided.members[0].reloaded();
    divided.ask(&create("/a/b/c/d", b"1", Persistent), 0).unwrap();
    assert_eq!(stats(&divided), "count=2,bytes=1");
}

#[test]
fn all_of_it_is_in_the_digest() {
    let whole = World::new().tree.digest();
    let digest_after = |op: PartOp<'_>| {
        let mut tree = Tree::new(Options::default());
        let mut batch = Vec::new();
        let stamp = Stamp { zxid: 1, time_ms: 1 };
        tree.prepare_create_session(5, 1, [5; 16], Contact::default(), stamp, &mut batch).unwrap();
        let mut part = tree.part_begin(Stamp { zxid: 2, time_ms: 2 }, 5);
        tree.part_op(&mut part, op, &Caller { session: 5, identities: &[] }).unwrap();
        tree.part_keep(part, &mut batch);
        for update in Updates::new(&batch) {
            tree.apply(&update.unwrap(), &mut ()).unwrap();
        }
        tree.digest()
    };
    let (a, b) = (create("/a", b"", Persistent), create("/b", b"", Persistent));
    let mut digests = vec![
        whole,
        digest_after(PartOp::Adopt(&a.request())),
        digest_after(PartOp::Adopt(&b.request())),
        digest_after(PartOp::Visit { partition: 1 }),
        digest_after(PartOp::Visit { partition: 2 }),
        digest_after(PartOp::RemoteSession { home: 0 }),
    ];
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 6);
}

/// A snapshot with one node more, after the header.
fn with_absent(tree: &mut Tree, kind: u8, id: u32, parent: u32, name: &str) -> String {
    let mut bytes = snapshot(tree, 1 << 20).concat();
    let nodes = 18;
    bytes[nodes] += 1;
    let mut record = vec![6, kind];
    record.extend(id.to_le_bytes());
    record.extend(parent.to_le_bytes());
    // Behind those that are there.
    let siblings = if parent == 0 { 0 } else { 2 };
    record.extend(u32::to_le_bytes(if tree.get("/").is_some() { siblings } else { 0 }));
    record.extend((name.len() as u32).to_le_bytes());
    record.extend(name.bytes());
    bytes.splice(nodes + 16..nodes + 16, record);
    load(&[bytes]).unwrap_err().to_string()
}

#[test]
fn a_snapshot_with_a_cut_that_cannot_be_is_refused() {
    const AWAY: u8 = 1;
    const SCAFFOLD: u8 = 2;
    let (mut first, mut second) = (World::new().tree, Tree::new_part(Options::default()));
    let cut = "not as it has to be at a cut";
    let what = with_absent(&mut second, AWAY, 50, 1, "a");
    assert!(what.contains(cut), "its parent is not here: {what}");
    let what = with_absent(&mut second, SCAFFOLD, 50, 1, "a");
    assert!(what.contains(cut), "it holds nothing: {what}");
    let what = with_absent(&mut first, SCAFFOLD, 50, 1, "a");
    assert!(what.contains(cut), "its parent is here: {what}");
    let what = with_absent(&mut first, AWAY, 50, 1, "a");
    assert!(what.contains("digest"), "a good one but for the digest: {what}");
    assert!(with_absent(&mut first, AWAY, 50, 1, "zookeeper").contains("the same path"));
    assert!(with_absent(&mut first, AWAY, 1, 0, "").contains("absent in a way"));
    assert!(with_absent(&mut first, 3, 50, 1, "a").contains("absent in a way"));
    assert!(with_absent(&mut first, AWAY, 50, 1, "a/b").contains("slash"));
    assert!(with_absent(&mut first, SCAFFOLD, 1, 0, "").contains("the same id"));
}

#[test]
fn each_side_of_a_cut_tells_its_own_watchers() {
    let mut divided = divided();
    divided.ask(&create("/p", b"", Persistent), 0).unwrap();
    let (parent, znode) = (WatcherId(1), WatcherId(2));
    for (at, watcher) in [(0, parent), (1, znode)] {
        let mut watches = Watches::new(0);
        // All of it everywhere: only what is told here can be heard.
        for (path, mode) in [
            ("/p", WatchMode::Persistent),
            ("/p", WatchMode::Child),
            ("/p/x", WatchMode::Exist),
            ("/p/x", WatchMode::Persistent),
        ] {
            watches.add(path, watcher, mode);
        }
        watches.add("/p", WatcherId(3), WatchMode::PersistentRecursive);
        divided.members[at].watches = Some(watches);
    }
    divided.ask(&create("/p/x", b"", Persistent), 0).unwrap();
    divided.ask(&delete("/p/x", -1), 0).unwrap();
    let mut told = |at: usize| core::mem::take(&mut divided.members[at].events);
    let changed = (parent, EventKind::ChildrenChanged, "/p".to_string());
    assert_eq!(told(0), [changed.clone(), changed]);
    let event = |watcher, kind| (watcher, kind, "/p/x".to_string());
    let wanted = [
        event(znode, EventKind::Created),
        event(WatcherId(3), EventKind::Created),
        event(znode, EventKind::Deleted),
        event(WatcherId(3), EventKind::Deleted),
    ];
    assert_eq!(told(1), wanted);
}

#[test]
fn parts_are_described_for_people() {
    let divided = rich();
    let lines = |at: usize| -> Vec<String> {
        let updates = divided.members[at].log.iter().flat_map(|(_, batch)| Updates::new(batch));
        updates.map(|update| update.unwrap().describe().to_string()).collect()
    };
    let (first, second) = (lines(0), lines(1));
    assert!(first[1].ends_with(r#"session=0x5 multi adopt "/a""#), "{}", first[1]);
    assert!(second[0].ends_with(r#"session=0x5 multi create_at "/a" bytes=4"#), "{}", second[0]);
    assert!(first[2].ends_with(r#"multi create_at "/a/b/c" bytes=4 acl"#), "{}", first[2]);
    assert!(first[4].ends_with(r#"multi adopt "/p/x" visit partition=1"#), "{}", first[4]);
    assert!(
        second[3].ends_with(r#"multi remote_session create_at "/p/x" bytes=4 ephemeral"#),
        "{}",
        second[3]
    );
    let mut divided = divided;
    divided.ask(&delete("/p/x", -1), 0).unwrap();
    let last = |at: usize| {
        let (_, batch) = divided.members[at].log.last().unwrap();
        Updates::new(batch).next().unwrap().unwrap().describe().to_string()
    };
    assert!(last(0).ends_with(r#"multi disown "/p/x""#), "{}", last(0));
    assert!(last(1).ends_with(r#"multi delete_at "/p/x""#), "{}", last(1));
}

/// Applies an operation, as bytes, to a tree of the rich ones.
pub(crate) fn misapplied(at: usize, session: i64, op: &[u8]) -> String {
    let numbers = [1_i64 << 40, 0, session];
    let bytes: Vec<u8> =
        numbers.iter().flat_map(|number| number.to_le_bytes()).chain(op.iter().copied()).collect();
    let result = rich().members[at].tree.apply(&Update::decode(&bytes).unwrap(), &mut ());
    result.unwrap_err().reason.to_string()
}

#[test]
fn parts_that_do_not_fit_the_state_are_reported() {
    const ADOPT: u8 = 10;
    const DISOWN: u8 = 11;
    const CREATE_AT: u8 = 12;
    const DELETE: u8 = 2;
    const DELETE_AT: u8 = 13;
    let op = |tag: u8, path: &str| {
        let mut op = vec![tag];
        if tag == CREATE_AT {
            op.push(0);
        }
        op.push(path.len() as u8);
        op.extend(path.as_bytes());
        match tag {
            ADOPT => op.extend([1, 0, 0, 0]),
            CREATE_AT => op.push(0),
            _ => {}
        }
        op
    };
    for (at, tag, path, reason) in [
        (0, ADOPT, "/p", "it creates a znode that exists"),
        (0, ADOPT, "/a", "it creates a znode that exists"),
        (0, ADOPT, "/a/x", "a znode that it speaks of does not exist"),
        (1, ADOPT, "/x", "a znode that it speaks of does not exist"),
        (0, ADOPT, "/p/", "the name of a znode is empty"),
        (0, DISOWN, "/p", "it disowns a znode that is not away"),
        (0, DISOWN, "/a/b", "it disowns a znode that is not away"),
        (0, DISOWN, "/a", "it disowns a znode that has something below it"),
        (1, DISOWN, "/", "it disowns a znode that is not away"),
        (0, CREATE_AT, "/x", "it creates a znode at a cut that is none"),
        (1, CREATE_AT, "/a/x", "it creates a znode at a cut that is none"),
        (1, CREATE_AT, "/a/x/y", "it creates a znode at a cut that is none"),
        (1, CREATE_AT, "/a", "it creates a znode that exists"),
        (0, CREATE_AT, "/a/b", "it creates a znode that exists"),
        (1, CREATE_AT, "/x//y", "the name of a znode is empty"),
        (1, CREATE_AT, "/", "the name of a znode is empty"),
        (1, CREATE_AT, "x/y", "a path does not begin at the root"),
        (0, DELETE_AT, "/s/n0000000000", "it deletes a znode on the wrong side of a cut"),
        (1, DELETE, "/p/x", "it deletes a znode on the wrong side of a cut"),
        (1, DELETE_AT, "/a", "it deletes a znode that has children, or the root"),
        (0, DELETE, "/a", "a znode that it speaks of does not exist"),
    ] {
        assert_eq!(misapplied(at, 5, &op(tag, path)), reason, "{tag} {path}");
    }
    let mut ephemeral = op(CREATE_AT, "/x");
    ephemeral[1] = 1;
    let nobody = "it creates an ephemeral of a session that does not exist";
    assert_eq!(misapplied(1, 6, &ephemeral), nobody);
    assert_eq!(misapplied(0, 6, &[14, 3]), "it is of a session that is not there");
    assert_eq!(misapplied(0, 5, &[14, 64]), "a partition is out of range");
    assert_eq!(misapplied(0, 5, &[15, 0]), "bytes follow its last operation");
}

#[test]
fn a_session_that_is_known_does_not_become_a_remote_one() {
    let mut divided = rich();
    let mut bytes = (1_i64 << 40).to_le_bytes().to_vec();
    bytes.extend([0; 8]);
    bytes.extend(5_i64.to_le_bytes());
    bytes.push(15);
    let tree = &mut divided.members[0].tree;
    let before = tree.session(5);
    tree.apply(&Update::decode(&bytes).unwrap(), &mut ()).unwrap();
    assert_eq!(tree.session(5), before);
}

#[test]
fn a_remote_session_is_nobody_to_come_back_as() {
    let divided = rich();
    let remote = divided.members[1].tree.session(5).unwrap();
    assert_eq!((remote.timeout_ms, remote.password, remote.contact), (0, [0; 16], Contact::default()));
}
