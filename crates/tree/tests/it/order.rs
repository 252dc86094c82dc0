//! Children are listed in the order of their creation, whatever became of their parent since. (At random that is
//! in `model` and `cuts`.)

use crate::divided::*;
use crate::limits::sum;
use crate::parts::{names, rich};
use crate::world::*;
use stoa_tree::{LoadError, Options, Tree};
use stoa_wire::CreateMode::*;

/// The length of a snapshot's header.
const HEADER_BYTES: usize = 34;

fn must(world: &mut World, paths: &[&str]) {
    for path in paths {
        world.must(&create(path, b"", Persistent));
    }
}

fn listed(tree: &Tree, path: &str) -> Vec<String> {
    tree.get(path).unwrap().children().map(String::from).collect()
}

/// A world in which the slots of the children of /p are in no order: some were used before.
fn shuffled() -> World {
    let mut world = World::new();
    must(&mut world, &["/p", "/p/a", "/p/b", "/p/c", "/p/d", "/p/e"]);
    for path in ["/p/b", "/p/d", "/p/a"] {
        world.must(&delete(path, -1));
    }
    must(&mut world, &["/p/f", "/p/a", "/p/g", "/p/h"]);
    assert_eq!(world.children("/p"), ["c", "e", "f", "a", "g", "h"]);
    world
}

#[test]
fn slots_that_are_used_again_change_nothing() {
    let mut world = shuffled();
    // The first, one in the middle, the last, and all.
    for (gone, left) in [
        ("c", &["e", "f", "a", "g", "h"][..]),
        ("a", &["e", "f", "g", "h"]),
        ("h", &["e", "f", "g"]),
        ("e", &["f", "g"]),
        ("g", &["f"]),
        ("f", &[]),
    ] {
        world.must(&delete(&format!("/p/{gone}"), -1));
        assert_eq!(world.children("/p"), left, "without {gone}");
    }
    must(&mut world, &["/p/z", "/p/y"]);
    assert_eq!(world.children("/p"), ["z", "y"]);
}

#[test]
fn what_one_multi_creates_is_in_its_order() {
    let mut world = World::new();
    must(&mut world, &["/p", "/p/old"]);
    let new = |path: &str| create(path, b"", Persistent);
    world.must(&multi(&[new("/p/z"), new("/p/a"), delete("/p/old", -1), new("/p/m"), new("/p/old")]));
    assert_eq!(world.children("/p"), ["z", "a", "m", "old"]);
    // The czxids do not tell them apart: a snapshot has to.
    let loaded = load(&snapshot(&mut world.tree, 1)).unwrap();
    assert_eq!(listed(&loaded, "/p"), ["z", "a", "m", "old"]);
}

#[test]
fn a_snapshot_has_the_order_and_what_follows_goes_on_from_it() {
    let mut world = shuffled();
    let mut loaded = load(&snapshot(&mut world.tree, 1)).unwrap();
    assert_eq!(listed(&loaded, "/p"), ["c", "e", "f", "a", "g", "h"]);
    let applied = world.applied;
    must(&mut world, &["/p/i"]);
    world.must(&delete("/p/a", -1));
    world.must(&delete("/p/c", -1));
    must(&mut world, &["/p/c", "/p/j"]);
    for batch in &world.log[applied..] {
        for update in stoa_tree::Updates::new(batch) {
            loaded.apply(&update.unwrap(), &mut ()).unwrap();
        }
    }
    assert_eq!(listed(&loaded, "/p"), ["e", "f", "g", "h", "i", "c", "j"]);
    assert_eq!(world.children("/p"), listed(&loaded, "/p"));
    let again = load(&snapshot(&mut loaded, 1)).unwrap();
    assert_eq!(listed(&again, "/p"), listed(&loaded, "/p"));
}

#[test]
fn a_snapshot_has_the_order_from_when_it_began() {
    // After each slice of a single record, each child goes, or goes and comes back behind all others.
    for gone in ["c", "e", "f", "a", "g", "h"] {
        for comes_back in [false, true] {
            for slices_before in 0..12 {
                let mut world = shuffled();
                world.tree.snapshot_begin();
                let mut slices = Vec::new();
                let mut more = true;
                while more {
                    if slices.len() == slices_before {
                        world.must(&delete(&format!("/p/{gone}"), -1));
                        if comes_back {
                            must(&mut world, &[&format!("/p/{gone}")]);
                        }
                        must(&mut world, &["/p/new"]);
                    }
                    slices.push(Vec::new());
                    more = world.tree.snapshot_slice(slices.last_mut().unwrap(), 1);
                }
                let loaded = load(&slices).unwrap();
                let wanted = ["c", "e", "f", "a", "g", "h"];
                assert_eq!(listed(&loaded, "/p"), wanted, "{gone} after {slices_before}: {comes_back}");
            }
        }
    }
}

#[test]
fn a_child_that_lives_elsewhere_is_among_the_others() {
    let cuts = [("/b", 1), ("/d", 1), ("/e/y", 1)];
    let mut divided = Divided::new(&cuts, &Options::default());
    for path in ["/d", "/e", "/b", "/a", "/e/z", "/e/y", "/e/x"] {
        divided.ask(&create(path, b"", Persistent), 0).unwrap();
    }
    let (root, below) = (["zookeeper", "d", "e", "b", "a"], ["z", "y", "x"]);
    assert_eq!(names(&divided, "/"), root);
    assert_eq!(names(&divided, "/e"), below);
    // There, on, and back: also where a part of it lived already, and where one stays.
    for (path, to) in
        [("/e", 1), ("/d", 0), ("/e/y", 0), ("/b", 0), ("/e", 0), ("/e/y", 1), ("/b", 1), ("/e", 1)]
    {
        divided.relocate(path, to, true).unwrap();
        assert_eq!(
            (names(&divided, "/"), names(&divided, "/e")),
            (root.map(String::from).into(), below.map(String::from).into())
        );
        for member in &mut divided.members {
            let loaded = member.reloaded();
            for path in ["/", "/e"] {
                let list = |tree: &Tree| {
                    tree.get(path).map(|it| it.children().map(String::from).collect::<Vec<_>>())
                };
                assert_eq!(list(&loaded), list(&member.tree), "{path}");
            }
        }
    }
    divided.ask(&delete("/b", -1), 0).unwrap();
    divided.ask(&create("/b", b"", Persistent), 0).unwrap();
    assert_eq!(names(&divided, "/"), ["zookeeper", "d", "e", "a", "b"]);
}

#[test]
fn a_subtree_that_comes_while_a_snapshot_is_taken_is_not_in_it() {
    // /e/x and /e/z live on the partition that takes /e: there they are in the order in which they were made.
    for slices_before in 0..8 {
        let mut divided = Divided::new(&[("/e", 1), ("/e/x", 0), ("/e/z", 0)], &Options::default());
        for path in ["/e", "/e/z", "/e/y", "/e/x"] {
            divided.ask(&create(path, b"", Persistent), 0).unwrap();
        }
        divided.ask(&delete("/e/z", -1), 0).unwrap();
        divided.ask(&create("/e/z", b"", Persistent), 0).unwrap();
        divided.members[0].tree.snapshot_begin();
        let below = |tree: &Tree| tree.names_below("/e").map(String::from).collect::<Vec<_>>();
        let wanted = below(&divided.members[0].tree);
        let mut slices = Vec::new();
        let mut more = true;
        while more {
            if slices.len() == slices_before {
                divided.relocate("/e", 0, true).unwrap();
                assert_eq!(names(&divided, "/e"), ["y", "x", "z"]);
            }
            slices.push(Vec::new());
            more = divided.members[0].tree.snapshot_slice(slices.last_mut().unwrap(), 1);
        }
        assert_eq!(below(&load(&slices).unwrap()), wanted, "after {slices_before}");
    }
}

/// A record of a snapshot: where its place begins, if it is a node's, and its end.
fn record(bytes: &[u8]) -> (Option<usize>, usize) {
    let len = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let counted = |at: usize| at + 4 + len(at);
    match bytes[0] {
        1 => (None, HEADER_BYTES),
        2 => (None, counted(5)),
        3 => (None, 1 + 8 + 4 + 16 + 9),
        4 => {
            let name = 14 + 4 * 8 + 2 * 4 + 4 + if bytes[1] & 8 == 0 { 0 } else { 8 + 4 + 8 };
            (Some(2), counted(counted(name)))
        }
        5 => (None, 1),
        6 => (Some(2), counted(14)),
        7 => (None, 17),
        8 => (None, 9),
        9 => (None, counted(2)),
        tag => panic!("a record of kind {tag}"),
    }
}

/// The snapshot as it was written before it had the order of siblings.
pub(crate) fn without_order(snapshot: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = snapshot;
    while !rest.is_empty() {
        let (place, end) = record(rest);
        match place {
            Some(at) => out.extend([&rest[..at + 8], &rest[at + 12..end]].concat()),
            None => out.extend(&rest[..end]),
        }
        rest = &rest[end..];
    }
    out[1] = 2;
    out
}

#[test]
fn a_snapshot_without_the_order_is_in_the_order_of_the_czxids() {
    let mut world = shuffled();
    let new = |path: &str| create(path, b"", Persistent);
    world.must(&multi(&[new("/p/z"), new("/p/y")]));
    let old = without_order(&snapshot(&mut world.tree, 1 << 20).concat());
    let loaded = load(&[old]).unwrap();
    assert_eq!(loaded.digest(), world.tree.digest());
    assert_eq!(listed(&loaded, "/p"), ["c", "e", "f", "a", "g", "h", "y", "z"]);
    // Whatever slots they have.
    let mut other = load(&snapshot(&mut world.tree, 1)).unwrap();
    let old = without_order(&snapshot(&mut other, 1 << 20).concat());
    assert_eq!(listed(&load(&[old]).unwrap(), "/p"), ["c", "e", "f", "a", "g", "h", "y", "z"]);
    // One of several partitions too.
    for mut member in rich().members {
        let old = without_order(&snapshot(&mut member.tree, 1 << 20).concat());
        assert_eq!(load(&[old]).unwrap().digest(), member.tree.digest());
    }
}

#[test]
fn a_snapshot_from_before_the_order_can_be_made() {
    // The converter of these tests gives what a server of that time wrote.
    let old = without_order(&snapshot(&mut crate::limits::rich_world().tree, 1 << 20).concat());
    assert_eq!(sum(&old), 0x8302_8c00_5fc0_aa0f);
}

/// Loads what is left of a good snapshot after the place of the node with this name was changed.
fn with_place(name: &str, change: impl Fn(&mut [u32; 3])) -> Result<Tree, LoadError> {
    let bytes = snapshot(&mut shuffled().tree, 1 << 20).concat();
    let mut damaged = Vec::new();
    let mut changed = 0;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (place, end) = record(rest);
        let mut record = rest[..end].to_vec();
        rest = &rest[end..];
        let is_it = |record: &[u8]| {
            record.windows(name.len() + 8).any(|it| {
                // Its length, its name, no data.
                it[..4] == (name.len() as u32).to_le_bytes()
                    && it[4..4 + name.len()] == *name.as_bytes()
                    && it[4 + name.len()..] == [0; 4]
            })
        };
        if let Some(at) = place.filter(|_| is_it(&record)) {
            let mut ids =
                [0, 4, 8].map(|of| u32::from_le_bytes(record[at + of..at + of + 4].try_into().unwrap()));
            change(&mut ids);
            record[at..at + 12].copy_from_slice(&ids.map(u32::to_le_bytes).concat());
            changed += 1;
        }
        damaged.extend(record);
    }
    assert_eq!(changed, 1);
    load(&[damaged])
}

#[test]
fn an_order_that_cannot_be_is_refused() {
    let id = |name: &str| {
        let seen = std::cell::Cell::new(0);
        with_place(name, |[id, ..]| seen.set(*id)).unwrap();
        seen.get()
    };
    let [c, e, a, h, zookeeper] = ["c", "e", "a", "h", "zookeeper"].map(id);
    assert!(with_place("a", |_| {}).is_ok());
    let refused = |name: &str, prev: u32| with_place(name, |place| place[2] = prev).unwrap_err().to_string();
    let order = "not in one order";
    for (name, prev, what) in [
        ("e", 0, order),
        ("g", e, order),
        ("a", a, order),
        ("e", h, order),
        ("c", h, order),
        ("c", zookeeper, order),
        ("e", 1, order),
        ("e", 4_000, "records are missing"),
        ("e", u32::MAX, "records are missing"),
    ] {
        let found = refused(name, prev);
        assert!(found.contains(what), "{prev} before {name}: {found}");
    }
    // Below another parent they would be two firsts, or behind a stranger.
    assert!(with_place("c", |place| place[1] = 1).unwrap_err().to_string().contains(order));
    assert!(with_place("e", |place| place[1] = c).unwrap_err().to_string().contains(order));
    // The last one in a list of its own, below itself.
    let alone = with_place("h", |place| *place = [place[0], place[0], 0]);
    assert!(alone.unwrap_err().to_string().contains("not below the root"));
    // The root has none beside it.
    let mut bytes = snapshot(&mut World::new().tree, 1 << 20).concat();
    let (_, acl) = record(&bytes[HEADER_BYTES..]);
    let mut at = HEADER_BYTES + acl;
    while bytes[at] != 4 {
        at += record(&bytes[at..]).1;
    }
    assert_eq!((bytes[at + 2], bytes[at + 10]), (1, 0));
    bytes[at + 10] = 2;
    assert!(load(&[bytes]).unwrap_err().to_string().contains("the root has a sibling"));
}
