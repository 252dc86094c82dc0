//! The table of what lives elsewhere than the rule says.

use crate::divided::{Member, load, snapshot};
use crate::parts::{alone, begin, refused};
use crate::world::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use stoa_tree::{Caller, Options, PLACED_MAX, PLACED_PATH_BYTES_MAX, PartOp, Placed, Tree, Update, Updates};
use stoa_wire::CreateMode::Persistent;
use stoa_wire::ErrorCode;

const PLACE: u8 = 19;

type Changes = Vec<(String, Option<u8>)>;

fn changes(changes: &[(&str, Option<u8>)]) -> Changes {
    changes.iter().map(|(path, partition)| (String::from(*path), *partition)).collect()
}

fn apply(tree: &mut Tree, batch: &[u8]) {
    for update in Updates::new(batch) {
        tree.apply(&update.unwrap(), &mut ()).unwrap();
    }
    assert_eq!(tree.digest(), tree.recomputed_digest());
}

fn place(tree: &mut Tree, changes: &Changes) {
    let (_, batch) = alone(tree, 0, PartOp::Place { changes }).unwrap();
    assert!(tree.has_proposed());
    apply(tree, &batch);
    assert!(!tree.has_proposed());
}

fn seen(placed: &Placed) -> (u64, Vec<(String, u8)>) {
    let exceptions: Vec<(String, u8)> =
        placed.iter().map(|(path, partition)| (path.into(), partition)).collect();
    assert_eq!((placed.len(), placed.is_empty()), (exceptions.len(), exceptions.is_empty()));
    assert!(exceptions.iter().all(|(path, partition)| placed.get(path) == Some(*partition)));
    (placed.version(), exceptions)
}

/// With a log in which a table was changed a few times, and a znode besides.
pub(crate) fn full() -> Member {
    let mut member = Member::new(Tree::new(Options::default()));
    for step in [
        changes(&[("/a", Some(1)), ("/a/b", Some(63)), ("/\u{e9}", Some(0))]),
        changes(&[]),
        changes(&[("/a", None), ("/a/b", Some(2)), ("/none", None), ("/c", Some(1)), ("/c", Some(3))]),
    ] {
        let (_, batch) = alone(&mut member.tree, 0, PartOp::Place { changes: &step }).unwrap();
        member.keep(member.tree.last_zxid() + 1_000, batch);
        while member.apply_next() {}
    }
    let request = create("/x", b"data", Persistent);
    let (_, batch) = alone(&mut member.tree, 0, PartOp::Whole(&request.request())).unwrap();
    member.keep(member.tree.last_zxid() + 1_000, batch);
    while member.apply_next() {}
    member
}

#[test]
fn a_table_is_changed_by_its_own_timeline() {
    let mut tree = Tree::new_part(Options::default());
    assert_eq!(seen(tree.placed()), (0, Vec::new()));
    place(&mut tree, &changes(&[("/b", Some(0)), ("/a/x", Some(7))]));
    assert_eq!(seen(tree.placed()), (1, vec![("/a/x".into(), 7), ("/b".into(), 0)]));
    assert_eq!([tree.placed().get("/a"), tree.placed().get("/b/c"), tree.placed().get("")], [None; 3]);
    assert_eq!(tree.znode_count(), 0, "no more than a table");
    place(&mut tree, &changes(&[]));
    assert_eq!(tree.placed().version(), 2, "also when nothing changes");
    place(&mut tree, &changes(&[("/b", Some(63)), ("/a/x", None), ("/never", None)]));
    assert_eq!(seen(tree.placed()), (3, vec![("/b".into(), 63)]));
    place(&mut tree, &changes(&[("/b", None)]));
    assert_eq!(seen(tree.placed()), (4, Vec::new()));
    assert_ne!(tree.digest(), 0, "it was changed");
}

#[test]
fn what_is_proposed_and_taken_back_leaves_nothing() {
    let mut tree = full().tree;
    let before = (seen(tree.placed()), tree.digest());
    let op = changes(&[("/z", Some(1)), ("/c", None)]);
    let op = PartOp::Place { changes: &op };
    let mut part = begin(&mut tree, 0);
    tree.part_op(&mut part, op, &Caller::SERVER).unwrap();
    assert_eq!(tree.part_op(&mut part, op, &Caller::SERVER), Err(ErrorCode::OperationTimeout));
    tree.part_undo(part);
    assert!(!tree.has_proposed());
    alone(&mut tree, 0, op).unwrap();
    assert!(tree.has_proposed());
    assert_eq!(alone(&mut tree, 0, op).unwrap_err(), ErrorCode::OperationTimeout, "one at a time");
    // What is undone afterwards does not take the first one back.
    let part = begin(&mut tree, 0);
    tree.part_undo(part);
    assert!(tree.has_proposed());
    tree.abandon_proposed();
    assert!(!tree.has_proposed());
    assert_eq!((seen(tree.placed()), tree.digest()), before);
    alone(&mut tree, 0, op).unwrap();
}

#[test]
fn a_table_may_change_together_with_a_move_and_beside_other_updates() {
    let mut tree = full().tree;
    let op = changes(&[("/x", Some(1))]);
    let op = PartOp::Place { changes: &op };
    let give = PartOp::Give { path: "/x", limit_bytes: 1_000 };
    let mut part = begin(&mut tree, 0);
    tree.part_op(&mut part, op, &Caller::SERVER).unwrap();
    assert_eq!(tree.part_op(&mut part, give, &Caller::SERVER), Err(ErrorCode::OperationTimeout));
    tree.part_undo(part);
    let mut part = begin(&mut tree, 0);
    tree.part_op(&mut part, give, &Caller::SERVER).unwrap();
    tree.part_op(&mut part, op, &Caller::SERVER).unwrap();
    let mut batch = Vec::new();
    tree.part_keep(part, &mut batch);
    apply(&mut tree, &batch);
    assert!(tree.get("/x").is_none() && tree.placed().get("/x") == Some(1));

    let request = create("/y", b"", Persistent);
    let (_, mut batch) = alone(&mut tree, 0, PartOp::Whole(&request.request())).unwrap();
    let mut part = tree.part_begin(stoa_tree::Stamp { zxid: 1 << 40, time_ms: 0 }, 0);
    tree.part_op(&mut part, op, &Caller::SERVER).unwrap();
    tree.part_keep(part, &mut batch);
    apply(&mut tree, &batch);
    assert!(!tree.has_proposed() && tree.get("/y").is_some() && tree.placed().version() == 5);
}

#[test]
fn changes_that_cannot_be_are_refused() {
    let mut tree = full().tree;
    let longest = format!("/{}", "n".repeat(PLACED_PATH_BYTES_MAX - 1));
    let longer = format!("{longest}n");
    for path in ["", "a", "/", "/a/", "/a//b", "/a/..", "/a\0", "/zookeeper", "/zookeeper/quota/a", &longer] {
        for partition in [Some(1), None] {
            let changes = changes(&[("/b", Some(1)), (path, partition)]);
            assert_eq!(refused(&mut tree, PartOp::Place { changes: &changes }), ErrorCode::BadArguments);
        }
    }
    for partition in [64, 255] {
        let changes = changes(&[("/b", Some(partition))]);
        assert_eq!(refused(&mut tree, PartOp::Place { changes: &changes }), ErrorCode::BadArguments);
    }
    let fine = changes(&[(&longest, Some(63)), ("/zookeepers", Some(1))]);
    let fine = PartOp::Place { changes: &fine };
    assert_eq!(alone(&mut tree, 5, fine).unwrap_err(), ErrorCode::NoAuth);
    alone(&mut tree, 0, fine).unwrap();
}

/// As many exceptions as there may be, with the longest paths.
fn crowd() -> Changes {
    let path = |n: usize| format!("/{n:0width$}", width = PLACED_PATH_BYTES_MAX - 1);
    (0..PLACED_MAX).map(|n| (path(n), Some((n % 64) as u8))).collect()
}

#[test]
fn there_are_only_so_many_exceptions() {
    let mut tree = Tree::new_part(Options::default());
    let mut more = crowd();
    more.push(("/more".into(), Some(1)));
    assert_eq!(refused(&mut tree, PartOp::Place { changes: &more }), ErrorCode::BadArguments);
    place(&mut tree, &crowd());
    let one_more = more.split_off(PLACED_MAX);
    assert_eq!(refused(&mut tree, PartOp::Place { changes: &one_more }), ErrorCode::BadArguments);
    // Counted at the end: one comes for one that goes.
    place(&mut tree, &[&one_more[..], &[(crowd()[0].0.clone(), None)]].concat());
    assert_eq!((tree.placed().len(), tree.placed().version()), (PLACED_MAX, 2));

    let slices = snapshot(&mut tree, 1);
    assert!(slices.iter().all(|slice| slice.len() < 128 << 10), "in small slices");
    let loaded = load(&slices).unwrap();
    assert_eq!(seen(loaded.placed()), seen(tree.placed()));
    assert_eq!((loaded.digest(), loaded.recomputed_digest()), (tree.digest(), tree.digest()));
}

#[test]
fn the_table_is_in_the_digest_whatever_way_it_came_about() {
    let digest = |steps: &[&[(&str, Option<u8>)]]| {
        let mut tree = Tree::new_part(Options::default());
        steps.iter().for_each(|step| place(&mut tree, &changes(step)));
        tree.digest()
    };
    let (a, b) = (("/a", Some(1)), ("/b", Some(2)));
    assert_eq!(digest(&[&[a], &[b]]), digest(&[&[b, ("/a", Some(2))], &[a]]));
    assert_eq!(digest(&[&[a], &[("/a", None)]]), digest(&[&[], &[]]));
    let mut digests = vec![
        digest(&[]),
        digest(&[&[]]),
        digest(&[&[], &[]]),
        digest(&[&[a]]),
        digest(&[&[a], &[]]),
        digest(&[&[b]]),
        digest(&[&[a, b]]),
        digest(&[&[("/a", Some(2))]]),
        digest(&[&[("/a", Some(0))]]),
        digest(&[&[("/a/b", Some(1))]]),
    ];
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 10);
}

#[test]
fn the_table_is_in_snapshots_as_it_was_when_they_began() {
    let mut member = full();
    let before = (seen(member.tree.placed()), member.tree.digest());
    assert_eq!(before.0, (3, vec![("/a/b".into(), 2), ("/c".into(), 3), ("/\u{e9}".into(), 0)]));
    member.tree.snapshot_begin();
    place(&mut member.tree, &changes(&[("/d", Some(1)), ("/c", None)]));
    let mut slices = vec![Vec::new()];
    while member.tree.snapshot_slice(slices.last_mut().unwrap(), 10) {
        slices.push(Vec::new());
    }
    let mut loaded = load(&slices).unwrap();
    assert_eq!((seen(loaded.placed()), loaded.digest()), before);
    // What is loaded goes on like what was written.
    place(&mut loaded, &changes(&[("/d", Some(1)), ("/c", None)]));
    assert_eq!((seen(loaded.placed()), loaded.digest()), (seen(member.tree.placed()), member.tree.digest()));

    // Without a table nothing of it is written; no other version of the server need know of it.
    let bytes = |tree: &mut Tree| snapshot(tree, 1 << 20).concat().len();
    let (mut never, mut once) = (Tree::new_part(Options::default()), Tree::new_part(Options::default()));
    place(&mut once, &changes(&[]));
    assert_eq!(bytes(&mut once), bytes(&mut never) + 1 + 8);
}

/// What is said of a snapshot with these records more, after the header.
fn loading(records: &[Vec<u8>]) -> String {
    let header = 1 + 1 + 4 * 8;
    let mut bytes = snapshot(&mut Tree::new_part(Options::default()), 1 << 20).concat();
    bytes.splice(header..header, records.concat());
    load(&[bytes]).unwrap_err().to_string()
}

fn placed_record(version: u64) -> Vec<u8> {
    [&[8][..], &version.to_le_bytes()].concat()
}

fn exception_record(path: &[u8], partition: u8) -> Vec<u8> {
    [&[9, partition][..], &(path.len() as u32).to_le_bytes(), path].concat()
}

#[test]
fn a_snapshot_with_a_table_that_cannot_be_is_refused() {
    let (placed, exception) = (placed_record(1), exception_record);
    let no_path = "the path of an exception is none";
    let long = format!("/{}", "n".repeat(PLACED_PATH_BYTES_MAX));
    for (records, reason) in [
        (vec![placed.clone(), exception(b"/a", 1)], "digest"),
        (vec![placed_record(u64::MAX)], "digest"),
        (vec![placed_record(0)], "has no version"),
        (vec![placed.clone(), placed.clone()], "is there twice"),
        (vec![exception(b"/a", 1), placed.clone()], "before its table"),
        (vec![placed.clone(), exception(b"/a", 1), exception(b"/a", 2)], "an exception is there twice"),
        (vec![placed.clone(), exception(b"/a", 64)], "a partition is out of range"),
        (vec![placed.clone(), exception(b"/a", 255)], "a partition is out of range"),
        (vec![placed.clone(), exception(b"/", 1)], no_path),
        (vec![placed.clone(), exception(b"/a/", 1)], no_path),
        (vec![placed.clone(), exception(b"", 1)], no_path),
        (vec![placed.clone(), exception(b"/zookeeper/config", 1)], no_path),
        (vec![placed.clone(), exception(long.as_bytes(), 1)], no_path),
        (vec![placed.clone(), exception(b"/\xff", 1)], "not UTF-8"),
    ] {
        let said = loading(&records);
        assert!(said.contains(reason), "{records:?}: {said}");
    }
    let crowd = (0..=PLACED_MAX).map(|n| exception(format!("/{n}").as_bytes(), 1));
    let said = loading(&[placed].into_iter().chain(crowd).collect::<Vec<_>>());
    assert!(said.contains("more exceptions than there may be"), "{said}");
}

#[test]
fn changes_of_the_table_are_described_for_people() {
    let member = full();
    let lines: Vec<String> = member
        .log
        .iter()
        .flat_map(|(_, batch)| Updates::new(batch))
        .map(|update| update.unwrap().describe().to_string())
        .collect();
    assert!(lines[0].ends_with(r#"session=0x0 multi place "/a"=1 "/a/b"=63 "/é"=0"#), "{}", lines[0]);
    assert!(lines[1].ends_with("multi place"), "{}", lines[1]);
    assert!(lines[2].contains(r#"multi place "/a"=rule "/a/b"=2 "/none"=rule"#), "{}", lines[2]);
}

fn change_bytes(path: &[u8], partition: u8) -> Vec<u8> {
    assert!(path.len() < 128);
    [&[path.len() as u8][..], path, &[partition]].concat()
}

/// Applies an update that places, with these bytes for its changes.
fn applied(tree: &mut Tree, changes: &[u8]) -> Result<(), &'static str> {
    let len = [changes.len() as u8 | 0x80, (changes.len() >> 7) as u8 | 0x80, (changes.len() >> 14) as u8];
    let bytes = [&(1_i64 << 40).to_le_bytes()[..], &[0; 16], &[PLACE], &len, changes].concat();
    tree.apply(&Update::decode(&bytes).unwrap(), &mut ()).map_err(|corrupt| corrupt.reason)
}

#[test]
fn changes_that_do_not_fit_are_reported() {
    let no_path = "the path of an exception is none, too long, or that of what cannot move";
    for (bytes, reason) in [
        (change_bytes(b"/", 1), no_path),
        (change_bytes(b"", 255), no_path),
        (change_bytes(b"/zookeeper", 1), no_path),
        (change_bytes(b"/a/.", 255), no_path),
        (change_bytes(b"/a", 64), "a partition is out of range"),
        (change_bytes(b"/a", 254), "a partition is out of range"),
        (change_bytes(b"/\xff", 1), "a path is not UTF-8"),
        (change_bytes(b"/a", 1)[..3].to_vec(), "it is cut short"),
        ([change_bytes(b"/a", 1), vec![0xff, 0xff, 0xff, 0xff, 0x7f]].concat(), "it is cut short"),
        ([change_bytes(b"/a", 1), vec![0xff; 6]].concat(), "a length is too large"),
    ] {
        let mut tree = full().tree;
        assert_eq!(applied(&mut tree, &bytes), Err(reason), "{bytes:?}");
    }
    let mut tree = full().tree;
    let crowd: Vec<u8> = (0..PLACED_MAX).flat_map(|n| change_bytes(format!("/{n}").as_bytes(), 1)).collect();
    assert_eq!(applied(&mut tree, &crowd), Err("there are more exceptions than there may be"));
}

#[test]
fn the_largest_version_stays() {
    // As a snapshot with a digest that fits may say.
    let mut once = Tree::new_part(Options::default());
    place(&mut once, &changes(&[]));
    let mut bytes = snapshot(&mut once, 1 << 20).concat();
    let at = bytes.windows(9).position(|record| record == placed_record(1)).unwrap();
    bytes[at..at + 9].copy_from_slice(&placed_record(u64::MAX));
    let Err(stoa_tree::LoadError::DigestMismatch { found, .. }) = load(&[bytes.clone()]) else {
        panic!("it has another digest");
    };
    bytes[10..18].copy_from_slice(&found.to_le_bytes());
    let mut loaded = load(&[bytes]).unwrap();
    place(&mut loaded, &changes(&[("/a", Some(1))]));
    assert_eq!(seen(loaded.placed()), (u64::MAX, vec![("/a".into(), 1)]));
}

fn some_changes() -> impl Strategy<Value = Changes> {
    let path = prop::sample::select(vec!["/a", "/a/b", "/b", "/a0", "/a-", "/\u{e9}"]).prop_map(String::from);
    prop::collection::vec((path, prop::option::of(0_u8..64)), 0..5)
}

proptest! {
    #[test]
    fn a_table_is_what_a_map_is(
        steps in prop::collection::vec((some_changes(), any::<bool>(), any::<bool>()), 0..40), budget in 1_usize..200,
    ) {
        let mut tree = Tree::new_part(Options::default());
        let (mut version, mut model) = (0, BTreeMap::new());
        for (changes, keep, reload) in steps {
            if !keep {
                alone(&mut tree, 0, PartOp::Place { changes: &changes }).unwrap();
                tree.abandon_proposed();
                continue;
            }
            place(&mut tree, &changes);
            version += 1;
            for (path, partition) in changes {
                match partition {
                    Some(partition) => model.insert(path, partition),
                    None => model.remove(&path),
                };
            }
            if reload {
                let digest = tree.digest();
                tree = load(&snapshot(&mut tree, budget)).unwrap();
                prop_assert_eq!((tree.digest(), tree.recomputed_digest()), (digest, digest));
            }
            prop_assert_eq!(seen(tree.placed()), (version, model.clone().into_iter().collect::<Vec<_>>()));
        }
    }

    /// Whatever stands in the log, it is refused or it is a table that can be.
    #[test]
    fn damaged_changes_are_refused_or_can_be(
        pieces in prop::collection::vec(prop_oneof![
            ("/[a-c/.]{0,3}", 0_u8..70).prop_map(|(path, partition)| change_bytes(path.as_bytes(), partition)),
            prop::collection::vec(any::<u8>(), 0..4),
        ], 0..6),
    ) {
        let mut tree = full().tree;
        if applied(&mut tree, &pieces.concat()).is_ok() {
            prop_assert_eq!(tree.digest(), tree.recomputed_digest());
            let loaded = load(&snapshot(&mut tree, 1 << 20)).unwrap();
            prop_assert_eq!(seen(loaded.placed()), seen(tree.placed()));
        }
    }
}
