//! Subtrees that move from one partition to another, one rule at a time. (Everything together is in `cuts`.)

use crate::divided::*;
use crate::parts::*;
use crate::world::*;
use proptest::prelude::*;
use stoa_tree::{
    Caller, MovedWatch, Options, PartOp, PartResult, Tree, Update, Updates, WatchMode, WatcherId, Watches,
    ZnodeKind,
};
use stoa_wire::CreateMode::*;
use stoa_wire::{ErrorCode, Opcode, READ_ACL, WatcherKind};

const GIVE: u8 = 17;
const TAKE: u8 = 18;
const ANY: usize = usize::MAX;

/// Three partitions; all that is below /a lives on the first one, /a/far on the third.
fn full() -> Divided {
    let mut divided =
        Divided::new(&[("/other", 1), ("/a/far", 2)], &Options { enforce_quota: true, ..Options::default() });
    divided.quotas_follow = true;
    for session in [5, 6, 7] {
        let stamp = divided.stamp();
        divided.create_session(session, stamp);
    }
    for (session, frame) in [
        (5, create("/a", b"data", Persistent)),
        (5, create("/a/b", b"", Container)),
        (5, create_acl("/a/b/c", &[7; 300], Persistent, READ_ACL)),
        (5, create_acl("/a/b/d", b"", Persistent, READ_ACL)),
        (5, create_raw(Opcode::CreateTtl, "/a/ttl", 5, Some(77))),
        (6, create("/a/b/e", b"mine", Ephemeral)),
        (5, create("/a/mine", b"", Ephemeral)),
        (6, create("/a/s-", b"", PersistentSequential)),
        (6, create("/a/s-", b"", PersistentSequential)),
        (0, delete("/a/s-0000000004", -1)),
        (0, set("/a/b", b"set", -1)),
        (0, set_null("/a/ttl")),
        (0, set_acl("/a/b", READ_ACL, -1)),
        (0, create("/a/far", b"", Persistent)),
        (0, create("/a/far/x", b"", Persistent)),
    ] {
        divided.ask(&frame, session).unwrap();
    }
    divided
}

fn give<'a>(path: &'a str) -> PartOp<'a> {
    PartOp::Give { path, limit_bytes: ANY }
}

/// What a tree would give.
fn content(tree: &mut Tree, path: &str) -> (Vec<u8>, Vec<i64>) {
    let mut part = begin(tree, 0);
    let given = tree.part_op(&mut part, give(path), &Caller::SERVER).unwrap();
    tree.part_undo(part);
    match given {
        PartResult::Given { content, sessions, .. } => (content, sessions),
        other => panic!("{other:?}"),
    }
}

fn digests(divided: &Divided) -> Vec<u64> {
    divided.members.iter().map(|member| member.tree.digest()).collect()
}

const PATHS: &[&str] =
    &["/a", "/a/b", "/a/b/c", "/a/b/d", "/a/b/e", "/a/ttl", "/a/mine", "/a/s-0000000003", "/a/far"];

#[test]
fn what_moves_is_as_it_was_and_nobody_is_told() {
    let mut divided = full();
    let seen = |divided: &Divided, path: &str| {
        let tree = divided.tree(path);
        let znode = tree.get(path).unwrap_or_else(|| panic!("{path}"));
        let acl = znode.acl().encoded().to_vec();
        (znode.stat(), znode.data().map(<[u8]>::to_vec), znode.kind(), acl, names(divided, path))
    };
    let before: Vec<_> = PATHS.iter().map(|path| seen(&divided, path)).collect();
    let root = (stat(&divided, "/"), names(&divided, "/"));
    divided.relocate("/a", 1, true).unwrap();
    let after: Vec<_> = PATHS.iter().map(|path| seen(&divided, path)).collect();
    assert_eq!(after, before);
    assert_eq!((stat(&divided, "/"), names(&divided, "/")), root);
    for (at, member) in divided.members.iter().enumerate().take(2) {
        let (zxid, changes) = member.changes.last_key_value().unwrap();
        assert!(changes.is_empty() && member.answers[zxid].is_empty(), "{at}");
    }
    let [first, second, _] = &divided.members[..] else { panic!("three partitions") };
    assert_eq!((first.tree.znode_count(), second.tree.znode_count()), (4, 8));
    assert_eq!((first.tree.count_below("/a"), second.tree.count_below("/a")), (Some(0), Some(7)));
    assert_eq!((first.tree.acl_count(), second.tree.acl_count()), (2, 2));
    let kind = ZnodeKind::Ephemeral { session: 6 };
    assert_eq!(second.tree.get("/a/b/e").map(|znode| znode.kind()), Some(kind));
    assert_eq!((first.tree.ephemeral_count(), second.tree.ephemeral_count()), (0, 2));
    assert_eq!((first.tree.ttl_count(), second.tree.ttl_count()), (0, 1));
    assert_eq!((first.tree.container_count(), second.tree.container_count()), (0, 1));
    assert_eq!(second.tree.reapable(i64::MAX, 10), ["/a/ttl"]);

    // Life goes on where it is: with the next number, and with its sessions.
    divided.ask(&create("/a/s-", b"", PersistentSequential), 5).unwrap();
    assert!(divided.members[1].tree.get("/a/s-0000000006").is_some());
    let stamp = divided.stamp();
    divided.close_session(6, stamp);
    divided.apply_all();
    assert!(divided.members[1].tree.get("/a/b/e").is_none());
    assert_eq!(names(&divided, "/a/b"), ["c", "d"]);
}

#[test]
fn there_and_back_again_changes_nothing() {
    let mut divided = full();
    // So that the remote sessions are known, and where they have been.
    divided.relocate("/a", 1, true).unwrap();
    divided.relocate("/a", 2, true).unwrap();
    divided.relocate("/a", 0, true).unwrap();
    let before = digests(&divided);
    for path in ["/a", "/a/b", "/a/b/c", "/a/far"] {
        let home = divided.owner(path);
        for to in [0, 1, 2] {
            if to != home {
                divided.relocate(path, to, true).unwrap();
                assert_ne!(digests(&divided), before, "{path}");
                divided.relocate(path, home, true).unwrap();
                assert_eq!(digests(&divided), before, "{path}");
            }
        }
    }
    assert_eq!(divided.members[1].tree.znode_count(), 0);
}

#[test]
fn what_is_left_and_what_is_found_becomes_what_it_has_to_be() {
    let mut divided = Divided::new(&[("/a", 1), ("/a/b/c", 0), ("/a/b/c/d", 1)], &Options::default());
    for path in ["/a", "/a/b", "/a/b/c", "/a/b/c/d"] {
        divided.ask(&create(path, b"", Persistent), 0).unwrap();
    }
    let here = |divided: &Divided, at: usize| -> Vec<&str> {
        let tree = &divided.members[at].tree;
        ["/a", "/a/b", "/a/b/c", "/a/b/c/d"].into_iter().filter(|path| tree.get(path).is_some()).collect()
    };
    assert_eq!((here(&divided, 0), here(&divided, 1)), (vec!["/a/b/c"], vec!["/a", "/a/b", "/a/b/c/d"]));
    // /a/b/c came back, and is an ordinary child then; /a/b/c/d stays behind.
    divided.relocate("/a", 0, true).unwrap();
    assert_eq!((here(&divided, 0), here(&divided, 1)), (vec!["/a", "/a/b", "/a/b/c"], vec!["/a/b/c/d"]));
    assert_eq!(divided.members[1].tree.count_below("/a"), Some(1), "the way to it");
    divided.ask(&delete("/a/b/c/d", -1), 0).unwrap();
    assert_eq!(divided.members[1].tree.digest(), 0);
    assert_eq!(divided.members[1].tree.count_below("/a"), None);
    for path in ["/a/b/c", "/a/b", "/a"] {
        divided.ask(&delete(path, -1), 0).unwrap();
    }
    assert_eq!(names(&divided, "/"), ["zookeeper"]);
    assert_eq!(divided.members[0].tree.count_below("/a"), None);
}

#[test]
fn a_step_of_a_move_that_does_not_fit_is_refused() {
    let mut divided = full();
    let [first, second, third] = &mut divided.members[..] else { panic!("three partitions") };
    let (first, second, third) = (&mut first.tree, &mut second.tree, &mut third.tree);
    for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/quota/a", "a", "/a/"]
    {
        assert_eq!(refused(first, give(path)), ErrorCode::BadArguments, "{path}");
        assert_eq!(refused(second, PartOp::Take { path, content: &[] }), ErrorCode::BadArguments, "{path}");
    }
    assert_eq!(refused(first, give("/zoo")), ErrorCode::NoNode);
    assert_eq!(refused(first, give("/a/far")), ErrorCode::NoNode, "it is away");
    assert_eq!(refused(third, give("/a")), ErrorCode::NoNode, "no more than the way to something");
    assert_eq!(alone(first, 5, give("/a")).unwrap_err(), ErrorCode::NoAuth);
    let (bytes, sessions) = content(first, "/a");
    assert_eq!(sessions, [5, 6]);
    let take = |path| PartOp::Take { path, content: &bytes };
    assert_eq!(alone(second, 5, take("/a")).unwrap_err(), ErrorCode::NoAuth);
    assert_eq!(refused(first, take("/a")), ErrorCode::NodeExists);
    assert_eq!(refused(first, take("/b")), ErrorCode::SystemError, "the root does not know it");
    assert_eq!(refused(first, take("/a/b/x/y")), ErrorCode::SystemError);
    for damaged in [&b""[..], &bytes[..bytes.len() - 1], &[&bytes[..], b"x"].concat(), &[9], &[1, 0]] {
        let take = PartOp::Take { path: "/a", content: damaged };
        assert_eq!(refused(second, take), ErrorCode::DataInconsistency);
    }
    let visits = |partition| PartOp::Visits { partition, sessions: &[5, 99] };
    assert_eq!(refused(first, visits(1)), ErrorCode::SessionExpired);
    assert_eq!(refused(first, visits(64)), ErrorCode::BadArguments);

    // The first partition knows who lives.
    let (bytes, _) = content(first, "/a/b/e");
    let mut stranger = Divided::new(&[("/a/b/e", 1)], &Options::default());
    for path in ["/a", "/a/b", "/a/b/e"] {
        stranger.ask(&create(path, b"", Persistent), 0).unwrap();
    }
    let take = PartOp::Take { path: "/a/b/e", content: &bytes };
    assert_eq!(refused(&mut stranger.members[0].tree, take), ErrorCode::SessionExpired);
}

#[test]
fn a_move_stands_alone() {
    let mut divided = full();
    let (bytes, _) = content(&mut divided.members[0].tree, "/a");
    let stamp = divided.stamp();
    divided.propose(&set("/a", b"", -1), 0, stamp).unwrap();
    let stamp = divided.stamp();
    divided.propose(&create("/other", b"", Persistent), 0, stamp).unwrap();
    for at in [0, 1] {
        let tree = &mut divided.members[at].tree;
        let outstanding = ErrorCode::OperationTimeout;
        let take = PartOp::Take { path: "/x", content: &bytes };
        assert_eq!(alone(tree, 0, take).unwrap_err(), outstanding);
        assert_eq!(alone(tree, 0, give("/a")).unwrap_err(), outstanding);
    }
    divided.apply_all();
    let tree = &mut divided.members[0].tree;
    let (_, batch) = alone(tree, 0, give("/a")).unwrap();
    assert!(tree.has_proposed());
    assert_eq!(alone(tree, 0, give("/a/b")).unwrap_err(), ErrorCode::OperationTimeout);
    tree.abandon_proposed();
    assert!(!tree.has_proposed() && tree.get("/a").is_some());
    for update in Updates::new(&batch) {
        tree.apply(&update.unwrap(), &mut ()).unwrap();
    }
    assert!(!tree.has_proposed() && tree.get("/a").is_none());
}

#[test]
fn a_move_undone_leaves_no_trace() {
    let mut divided = full();
    let before = digests(&divided);
    divided.relocate("/a", 1, false).unwrap();
    assert!(divided.members.iter().all(|member| !member.tree.has_proposed()));
    assert_eq!((divided.members[0].tree.visited(5), digests(&divided)), (0, before));
    divided.ask(&set("/a", b"", -1), 0).unwrap();
}

#[test]
fn a_subtree_that_is_too_large_is_refused() {
    let mut divided = full();
    for at in 0..100 {
        divided.ask(&create(&format!("/a/n{at}"), b"", Persistent), 0).unwrap();
    }
    let tree = &mut divided.members[0].tree;
    let (bytes, _) = content(tree, "/a");
    let give = |limit_bytes| PartOp::Give { path: "/a", limit_bytes };
    // The digest at its end does not count.
    let limit = bytes.len() - 8;
    assert!(alone(tree, 0, give(limit)).is_ok());
    tree.abandon_proposed();
    for limit in [limit - 1, 200, 0] {
        assert_eq!(refused(tree, give(limit)), ErrorCode::MarshallingError);
    }
}

#[test]
fn those_who_own_something_become_remote_sessions_where_it_goes() {
    let mut divided = full();
    divided.relocate("/a", 1, true).unwrap();
    let [first, second, third] = &divided.members[..] else { panic!("three partitions") };
    assert_eq!([5, 6, 7].map(|session| first.tree.visited(session)), [2, 2, 0]);
    let remote = second.tree.session(5).unwrap();
    assert_eq!((remote.timeout_ms, remote.password, remote.ephemeral_count), (0, [0; 16], 1));
    assert!(second.tree.session(7).is_none() && third.tree.session_count() == 0);
    assert_eq!(first.tree.session(5).unwrap().ephemeral_count, 0);
    let before = (first.log.len(), first.tree.digest());
    divided.relocate("/a", 0, true).unwrap();
    divided.relocate("/a", 1, true).unwrap();
    let first = &divided.members[0];
    assert_eq!(first.tree.digest(), before.1);
    let (_, batch) = first.log.last().unwrap();
    let update = Updates::new(batch).next().unwrap().unwrap().describe().to_string();
    assert!(update.ends_with(r#"session=0x0 multi give "/a""#), "the visits are known: {update}");
}

fn make_quota(divided: &mut Divided, prefix: &str) {
    divided.ask(&create(&format!("/zookeeper/quota{prefix}"), b"", Persistent), 0).unwrap();
    for name in ["zookeeper_limits", "zookeeper_stats"] {
        let path = format!("/zookeeper/quota{prefix}/{name}");
        divided.ask(&create(&path, b"countHardLimit=4", Persistent), 0).unwrap();
    }
}

#[test]
fn a_quota_goes_with_what_it_is_for_and_what_one_counts_that_stays_does_not_go() {
    let mut divided = Divided::new(&[("/other", 2)], &Options::default());
    divided.quotas_follow = true;
    for (path, data) in [
        ("/a", &b""[..]),
        ("/a/x", b"1"),
        ("/a/b", b""),
        ("/a/b/y", b"22"),
        ("/a/b/far", b""),
        ("/a/b/far/back", b"333"),
    ] {
        divided.ask(&create(path, data, Persistent), 0).unwrap();
    }
    divided.relocate("/a/b/far", 1, true).unwrap();
    divided.relocate("/a/b/far/back", 0, true).unwrap();
    make_quota(&mut divided, "/a");
    make_quota(&mut divided, "/a/b");
    let stats = |divided: &Divided| {
        ["/a", "/a/b"].map(|prefix| {
            let path = format!("/zookeeper/quota{prefix}/zookeeper_stats");
            let znode = divided.tree(&path).get(&path).unwrap();
            String::from_utf8(znode.data().unwrap().to_vec()).unwrap()
        })
    };
    let limits = |divided: &Divided| {
        let path = "/zookeeper/quota/a/b/zookeeper_limits";
        [0, 1].map(|at: usize| divided.members[at].tree.get(path).is_some())
    };
    // When the quota on /a/b was made, that had been counted above.
    assert_eq!(stats(&divided), ["count=5,bytes=6", "count=3,bytes=5"]);
    for path in ["/a/x", "/a/b/y", "/a/b/far/back"] {
        assert_eq!(divided.relocate(path, 1, true), Err(ErrorCode::Unimplemented), "{path}");
    }
    assert_eq!(divided.relocate("/a/none", 1, true), Err(ErrorCode::NoNode), "there is nothing to count");
    divided.relocate("/a/b/far", 2, true).unwrap();
    assert_eq!(stats(&divided), ["count=5,bytes=6", "count=3,bytes=5"], "of elsewhere nothing counts");

    // What stays behind of what came before the quotas counts for the one above from then on.
    divided.relocate("/a/b", 1, true).unwrap();
    assert_eq!(limits(&divided), [false, true]);
    assert_eq!(stats(&divided), ["count=6,bytes=9", "count=2,bytes=2"]);
    divided.relocate("/a/b", 0, true).unwrap();
    assert_eq!(limits(&divided), [true, false]);
    assert_eq!(stats(&divided), ["count=5,bytes=6", "count=3,bytes=5"]);

    // What comes home counts, and stays.
    divided.relocate("/a/b/far", 0, true).unwrap();
    assert_eq!(stats(&divided), ["count=5,bytes=6", "count=4,bytes=5"]);
    assert_eq!(divided.relocate("/a/b/far", 2, true), Err(ErrorCode::Unimplemented));
    divided.relocate("/a", 2, true).unwrap();
    assert_eq!(stats(&divided), ["count=5,bytes=6", "count=4,bytes=5"]);
}

#[test]
fn a_quota_that_is_counted_by_one_that_stays_does_not_go() {
    let mut divided = Divided::new(&[("/other", 1)], &Options::default());
    divided.quotas_follow = true;
    for path in ["/a", "/b", "/zookeeper/quota/zookeeper"] {
        divided.ask(&create(path, b"", Persistent), 0).unwrap();
    }
    make_quota(&mut divided, "/zookeeper/quota");
    make_quota(&mut divided, "/a");
    assert_eq!(divided.relocate("/a", 1, true), Err(ErrorCode::Unimplemented));
    divided.relocate("/b", 1, true).unwrap();
}

#[test]
fn watches_go_with_what_they_listen_to() {
    let mut watches = Watches::new(0);
    let (w, v) = (WatcherId(1), WatcherId(2));
    let set = [
        ("/a/b", w, WatchMode::Data),
        ("/a/b", w, WatchMode::Child),
        ("/a/b", v, WatchMode::Persistent),
        ("/a/b/none", v, WatchMode::Exist),
        ("/a/b/far/x", v, WatchMode::Data),
        ("/zookeeper/quota/a/b/zookeeper_stats", w, WatchMode::Data),
        ("/a", w, WatchMode::Child),
        ("/a/bc", w, WatchMode::Data),
        ("/", w, WatchMode::Persistent),
        ("/a/b", w, WatchMode::PersistentRecursive),
        ("/a/b/x", w, WatchMode::PersistentRecursive),
        ("/a/b/far", w, WatchMode::PersistentRecursive),
        ("/a/c", w, WatchMode::PersistentRecursive),
        // These are above.
        ("/", v, WatchMode::PersistentRecursive),
        ("/", w, WatchMode::PersistentRecursive),
        ("/zookeeper/quota/a", v, WatchMode::PersistentRecursive),
    ];
    for (path, watcher, mode) in set {
        assert!(watches.add(path, watcher, mode), "{path}");
    }
    let above = watches.recursive_above("/a/b");
    assert!(above.iter().all(|it| it.mode == WatchMode::PersistentRecursive));
    let mut above: Vec<_> = above.iter().map(|it| (it.path.as_str(), it.watcher)).collect();
    above.sort_unstable();
    assert_eq!(above, [("/", w), ("/", v), ("/zookeeper/quota/a", v)]);
    assert_eq!(watches.recursive_above("/a/b/far/x").len(), 5);
    assert_eq!(watches.recursive_above("/x").len(), 2);
    let before = watches.pair_count();
    let moved = watches.take_below("/a/b", |path| path.starts_with("/a/b/far"));
    let moved = |path: &str, watcher, mode| {
        let mode = if mode == WatchMode::Exist { WatchMode::Data } else { mode };
        moved.iter().filter(|it| **it == MovedWatch { path: path.into(), watcher, mode }).count()
    };
    for (at, (path, watcher, mode)) in set.into_iter().enumerate() {
        let goes = matches!(at, 0..=3 | 5 | 9..=10);
        assert_eq!(moved(path, watcher, mode), usize::from(goes), "{path}");
        let kind = match mode {
            WatchMode::Data | WatchMode::Exist => WatcherKind::Data,
            WatchMode::Child => WatcherKind::Children,
            WatchMode::Persistent => WatcherKind::Persistent,
            WatchMode::PersistentRecursive => WatcherKind::PersistentRecursive,
        };
        assert_eq!(watches.contains(watcher, path, kind), !goes, "{path}");
    }
    assert_eq!(watches.pair_count(), before - 5);
}

#[test]
fn moves_are_described_for_people() {
    let mut divided = full();
    divided.relocate("/a/b", 1, true).unwrap();
    let last = |at: usize| {
        let (_, batch) = divided.members[at].log.last().unwrap();
        Updates::new(batch).next().unwrap().unwrap().describe().to_string()
    };
    assert!(last(0).ends_with(r#"multi give "/a/b" visits partition=1 sessions=1"#), "{}", last(0));
    assert!(last(1).contains(r#"session=0x0 multi take "/a/b" bytes="#), "{}", last(1));
}

fn op(tag: u8, path: &str, tail: &[u8]) -> Vec<u8> {
    let mut op = vec![tag, path.len() as u8];
    op.extend(path.as_bytes());
    if tag == TAKE {
        op.extend([tail.len() as u8 | 0x80, (tail.len() >> 7) as u8 | 0x80, (tail.len() >> 14) as u8]);
    }
    op.extend(tail);
    op
}

#[test]
fn moves_that_do_not_fit_the_state_are_reported() {
    let mut divided = rich();
    let (whole, _) = content(&mut divided.members[1].tree, "/a");
    let (leaf, _) = content(&mut divided.members[0].tree, "/s/n0000000000");
    let (mine, _) = content(&mut divided.members[1].tree, "/p/x");
    let digest = &whole[whole.len() - 8..];
    let not_here = "it gives away a znode that is not here";
    for (at, path, reason) in [
        (0, "/", "the name of a znode is empty"),
        (0, "/zookeeper", not_here),
        (0, "/zookeeper/config", not_here),
        (0, "/a", not_here),
        (1, "/p", not_here),
        (1, "/none", not_here),
        (0, "/p", "what it gives away is not what is here"),
    ] {
        assert_eq!(misapplied(at, 0, &op(GIVE, path, digest)), reason, "{path}");
    }
    assert_eq!(misapplied(1, 0, &op(GIVE, "/a", &digest[1..])), "it is cut short");
    let mut other = leaf.clone();
    let czxid = other.iter().position(|byte| *byte == b'n').unwrap() + 12;
    other[czxid] ^= 1;
    let none = "it takes a subtree to a cut that is none";
    for (at, path, bytes, reason) in [
        (0, "/zookeeper", &leaf, none),
        (0, "/x", &leaf, none),
        (1, "/a/x", &leaf, none),
        (1, "/s/n0000000001", &leaf, "a subtree is another one"),
        (0, "/s/n0000000000", &leaf, "it takes a znode that exists"),
        (1, "/s/n0000000000", &other, "what it takes is not what was given"),
        (1, "/s/n0000000000", &[&leaf[..], b"x"].concat(), "bytes follow a subtree"),
        (1, "/s/n0000000000", &leaf[..leaf.len() - 8].to_vec(), "it is cut short"),
    ] {
        assert_eq!(misapplied(at, 0, &op(TAKE, path, bytes)), reason, "{path}");
    }
    // The first partition knows who lives.
    let stamp = divided.stamp();
    divided.close_session(5, stamp);
    divided.ask(&create("/p/x", b"", Persistent), 0).unwrap();
    let update = [&(1_i64 << 40).to_le_bytes()[..], &[0; 16], &op(TAKE, "/p/x", &mine)].concat();
    let applied = divided.members[0].tree.apply(&Update::decode(&update).unwrap(), &mut ());
    assert_eq!(applied.unwrap_err().reason, "it takes an ephemeral of a session that does not exist");
    assert_eq!(misapplied(0, 0, &[16, 1, 1, 9, 0, 0, 0, 0, 0, 0, 0]), "it is of a session that is not there");
    assert_eq!(misapplied(0, 0, &[16, 64, 0]), "a partition is out of range");
    assert_eq!(misapplied(0, 0, &[16, 1, 0xff, 0xff, 0xff, 0xff, 0x7f]), "it is cut short");
}

/// Bytes of a node that has children, or lives elsewhere.
fn node(name: &str, children: Option<u8>) -> Vec<u8> {
    let mut bytes = vec![if children.is_some() { 0 } else { 4 }, name.len() as u8];
    bytes.extend(name.as_bytes());
    if let Some(children) = children {
        bytes.push(children);
        bytes.extend([0; 4 * 8 + 4 + 2]);
    }
    bytes
}

#[test]
fn a_subtree_that_cannot_be_is_refused() {
    let children = "a znode has other children than it had";
    let exists = "it takes a znode that exists";
    for (nodes, reason) in [
        (vec![node("other", Some(0))], "a subtree is another one"),
        (vec![node("x", None)], "a subtree is another one"),
        (vec![node("x", Some(1))], "it is cut short"),
        (vec![node("x", Some(2)), node("y", Some(0)), node("y", Some(0))], exists),
        (vec![node("x", Some(2)), node("y", None), node("y", None)], exists),
        (vec![node("x", Some(2)), node("y", None), node("y", Some(0))], children),
        (vec![node("x", Some(2)), node("y", Some(0)), node("y", None)], children),
        (vec![node("x", Some(1)), node("", None)], "the name of a znode is empty"),
        (vec![node("x", Some(1)), node("y/z", None)], "the name of a znode is empty"),
        (vec![node("x", Some(1)), vec![5, 1, b'y']], "a znode has an unknown flag"),
        (vec![node("x", Some(0))], "what it takes is not what was given"),
    ] {
        let bytes = [&[0], &nodes.concat()[..], &[0; 8]].concat();
        let cut_short = reason == "it is cut short";
        let bytes = if cut_short { &bytes[..bytes.len() - 8] } else { &bytes };
        assert_eq!(misapplied(1, 0, &op(TAKE, "/x", bytes)), reason, "{nodes:?}");
    }
    // /a is the way to something here, of which the subtree must know.
    let bytes = [&[0], &node("a", Some(0))[..], &[0; 8]].concat();
    assert_eq!(misapplied(0, 0, &op(TAKE, "/a", &bytes)), children);
    let mut ephemeral = node("x", Some(1));
    ephemeral[0] = 1;
    let bytes = [&[0], &ephemeral[..], &[0; 16]].concat();
    assert_eq!(misapplied(1, 0, &op(TAKE, "/x", &bytes)), "an ephemeral has children");
    let mut acl = node("x", Some(0));
    let at = acl.len() - 2;
    acl[at] = 2;
    let bytes = [&[0], &acl[..], &[0; 8]].concat();
    assert_eq!(misapplied(1, 0, &op(TAKE, "/x", &bytes)), "a znode has an ACL that is missing");
}

proptest! {
    /// Whatever stands in the log, it is refused or it is right.
    #[test]
    fn a_damaged_subtree_is_refused(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 1..4),
        path in prop::sample::select(vec!["/a", "/a/b", "/a/b/c"]),
    ) {
        let mut divided = full();
        let (mut bytes, _) = content(&mut divided.members[0].tree, path);
        let whole = bytes.clone();
        for (at, byte, how) in damage {
            let at = at.index(bytes.len().max(1));
            match how {
                _ if bytes.is_empty() => bytes.push(byte),
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        prop_assume!(bytes != whole);
        let update = [&(1_i64 << 40).to_le_bytes()[..], &[0; 16], &op(TAKE, path, &bytes)].concat();
        let tree = &mut divided.members[2].tree;
        let applied = tree.apply(&Update::decode(&update).unwrap(), &mut ());
        // A flag may say that nothing is to be counted anew that need not be.
        prop_assert!(applied.is_err() || bytes[1..] == whole[1..]);
        let _ = alone(&mut divided.members[1].tree, 0, PartOp::Take { path, content: &bytes });
    }
}
