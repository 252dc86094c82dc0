//! Watches: the table of who is told what, one rule at a time, and against naive watches.

use crate::world::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use stoa_tree::{WatchMode, WatchSummary, WatcherId, Watches};
use stoa_wire::CreateMode::*;
use stoa_wire::{Acl, EventKind, WatcherKind, path};

const W: WatcherId = WatcherId(1);
const V: WatcherId = WatcherId(2);

/// Applies requests to a tree with these watches, and returns who was told what, sorted by
/// watcher within each change.
fn events(
    set: &[(&str, WatcherId, WatchMode)],
    before: &[Frame],
    requests: &[Frame],
) -> Vec<(WatcherId, EventKind, String)> {
    let mut world = World::new();
    for frame in before {
        world.must(frame);
    }
    let mut watches = Watches::new(0);
    for (path, watcher, mode) in set {
        watches.add(path, *watcher, *mode);
    }
    for frame in requests {
        world.propose(frame, 0).unwrap();
    }
    let mut notes = Notes { watches: Some(watches), ..Notes::default() };
    while world.apply_next(&mut notes) {}
    notes.events
}

fn told(watcher: WatcherId, kind: EventKind, path: &str) -> (WatcherId, EventKind, String) {
    (watcher, kind, path.into())
}

#[test]
fn watches_that_listen_once_fire_once() {
    let seen = events(
        &[("/a", W, WatchMode::Data)],
        &[create("/a", b"", Persistent)],
        &[set("/a", b"1", -1), set("/a", b"2", -1)],
    );
    assert_eq!(seen, [told(W, EventKind::DataChanged, "/a")]);
    let seen =
        events(&[("/a", W, WatchMode::Exist)], &[], &[create("/a", b"", Persistent), delete("/a", -1)]);
    assert_eq!(seen, [told(W, EventKind::Created, "/a")]);
    let seen = events(&[("/", W, WatchMode::Child)], &[], &[create("/a", b"", Persistent), delete("/a", -1)]);
    assert_eq!(seen, [told(W, EventKind::ChildrenChanged, "/")]);
}

#[test]
fn a_deleted_znode_is_told_once_to_who_watches_its_data_and_its_children() {
    let seen = events(
        &[("/a", W, WatchMode::Data), ("/a", W, WatchMode::Child), ("/", W, WatchMode::PersistentRecursive)],
        &[create("/a", b"", Persistent)],
        &[delete("/a", -1), create("/a", b"", Persistent)],
    );
    assert_eq!(seen, [told(W, EventKind::Deleted, "/a"), told(W, EventKind::Created, "/a")]);
}

#[test]
fn a_child_watch_does_not_hear_of_data() {
    let seen = events(
        &[("/a", W, WatchMode::Child)],
        &[create("/a", b"", Persistent)],
        &[set("/a", b"1", -1), delete("/a", -1)],
    );
    assert_eq!(seen, [told(W, EventKind::Deleted, "/a")]);
}

#[test]
fn persistent_watches_stay_and_hear_all() {
    let requests = [
        create("/a", b"", Persistent),
        set("/a", b"1", -1),
        create("/a/b", b"", Persistent),
        set("/a/b", b"1", -1),
        delete("/a/b", -1),
        delete("/a", -1),
    ];
    let seen = events(&[("/a", W, WatchMode::Persistent)], &[], &requests);
    use EventKind::*;
    let wanted = [Created, DataChanged, ChildrenChanged, ChildrenChanged, Deleted];
    assert_eq!(seen, wanted.map(|kind| told(W, kind, "/a")));
}

#[test]
fn recursive_watches_hear_of_everything_below_but_not_of_lists_of_children() {
    let requests = [
        create("/a", b"", Persistent),
        create("/a/b", b"", Persistent),
        set("/a/b", b"1", -1),
        create("/ab", b"", Persistent),
        delete("/a/b", -1),
        delete("/a", -1),
    ];
    let seen = events(&[("/a", W, WatchMode::PersistentRecursive)], &[], &requests);
    let wanted = [
        told(W, EventKind::Created, "/a"),
        told(W, EventKind::Created, "/a/b"),
        told(W, EventKind::DataChanged, "/a/b"),
        told(W, EventKind::Deleted, "/a/b"),
        told(W, EventKind::Deleted, "/a"),
    ];
    assert_eq!(seen, wanted);
    let above = [("/", W, WatchMode::PersistentRecursive), ("/a", W, WatchMode::PersistentRecursive)];
    assert_eq!(events(&above, &[], &requests[..1]), [told(W, EventKind::Created, "/a")]);
}

#[test]
fn the_znode_is_told_before_its_parent() {
    let seen = events(
        &[("/", W, WatchMode::Persistent), ("/a", V, WatchMode::Persistent)],
        &[],
        &[multi(&[create("/a", b"", Persistent), delete("/a", -1)])],
    );
    let wanted = [
        told(V, EventKind::Created, "/a"),
        told(W, EventKind::ChildrenChanged, "/"),
        told(V, EventKind::Deleted, "/a"),
        told(W, EventKind::ChildrenChanged, "/"),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn a_change_carries_the_acl_that_decides_who_may_know() {
    use stoa_tree::{Caller, Change, Observer, Updates};
    #[derive(Default)]
    struct Readable(Vec<(EventKind, String, bool)>);
    impl Observer for Readable {
        fn changed(&mut self, change: &Change<'_>) {
            let anybody = Caller { session: 5, identities: &[] };
            let may_read = change.acl.permits(stoa_wire::perms::READ, &anybody);
            self.0.push((change.kind, change.path.into(), may_read));
        }
    }
    let mut world = World::new();
    let secret = &[Acl { perms: 31, scheme: "digest", id: "a:b" }];
    world.propose(&create_acl("/s", b"", Persistent, secret), 0).unwrap();
    world.propose(&delete("/s", -1), 0).unwrap();
    let mut readable = Readable::default();
    for batch in &world.log {
        for update in Updates::new(batch) {
            world.tree.apply(&update.unwrap(), &mut readable).unwrap();
        }
    }
    let wanted = [
        (EventKind::Created, "/s".to_string(), false),
        (EventKind::ChildrenChanged, "/".to_string(), true),
        (EventKind::Deleted, "/s".to_string(), false),
        (EventKind::ChildrenChanged, "/".to_string(), true),
    ];
    assert_eq!(readable.0, wanted);
}

#[test]
fn watches_are_counted_as_zookeeper_does() {
    let mut watches = Watches::new(0);
    watches.add("/a", W, WatchMode::Data);
    watches.add("/a", W, WatchMode::Exist);
    watches.add("/a", V, WatchMode::Child);
    watches.add("/b", V, WatchMode::Persistent);
    watches.add("/b", V, WatchMode::PersistentRecursive);
    assert_eq!(watches.summary(), WatchSummary { watchers: 2, paths: 2, watches: 2 });
    assert_eq!((watches.count(), watches.pair_count(), watches.path_count()), (4, 3, 2));
    assert_eq!(watches.paths_of(V).collect::<Vec<_>>(), ["/b"]);
    let mut by_path: Vec<_> = watches.by_path().collect();
    by_path.sort();
    assert_eq!(by_path, [("/a", vec![W]), ("/b", vec![V])]);
    watches.remove_watcher(V);
    watches.remove_watcher(W);
    assert_eq!(
        (watches.count(), watches.pair_count(), watches.path_count(), watches.watcher_count()),
        (0, 0, 0, 0)
    );
}

/// ZooKeeper's two tables, as sets of modes by path and watcher.
#[derive(Debug, Default)]
struct Naive {
    data: BTreeMap<(String, WatcherId), BTreeSet<&'static str>>,
    child: BTreeMap<(String, WatcherId), BTreeSet<&'static str>>,
}

impl Naive {
    fn add(&mut self, path: &str, watcher: WatcherId, mode: WatchMode) {
        let key = || (path.to_string(), watcher);
        match mode {
            WatchMode::Data | WatchMode::Exist => drop(self.data.entry(key()).or_default().insert("once")),
            WatchMode::Child => drop(self.child.entry(key()).or_default().insert("once")),
            WatchMode::Persistent => {
                self.data.entry(key()).or_default().insert("persistent");
                self.child.entry(key()).or_default().insert("persistent");
            }
            WatchMode::PersistentRecursive => drop(self.data.entry(key()).or_default().insert("recursive")),
        }
    }

    fn modes(kind: WatcherKind) -> (&'static [&'static str], &'static [&'static str]) {
        match kind {
            WatcherKind::Children => (&[], &["once"]),
            WatcherKind::Data => (&["once"], &[]),
            WatcherKind::Persistent => (&["persistent"], &["persistent"]),
            WatcherKind::PersistentRecursive => (&["recursive"], &[]),
            WatcherKind::Any => (&["once", "persistent", "recursive"], &["once", "persistent"]),
        }
    }

    fn contains(&self, watcher: WatcherId, path: &str, kind: WatcherKind) -> bool {
        let (data, child) = Self::modes(kind);
        let key = (path.to_string(), watcher);
        let has = |table: &BTreeMap<_, BTreeSet<&str>>, modes: &[&str]| {
            table.get(&key).is_some_and(|set| modes.iter().any(|mode| set.contains(mode)))
        };
        has(&self.data, data) || has(&self.child, child)
    }

    fn remove(&mut self, watcher: WatcherId, path: &str, kind: WatcherKind) -> bool {
        let there = self.contains(watcher, path, kind);
        let (data, child) = Self::modes(kind);
        let key = (path.to_string(), watcher);
        for (table, modes) in [(&mut self.data, data), (&mut self.child, child)] {
            if let Some(set) = table.get_mut(&key) {
                set.retain(|mode| !modes.contains(mode));
                if set.is_empty() {
                    table.remove(&key);
                }
            }
        }
        there
    }

    fn remove_watcher(&mut self, watcher: WatcherId) {
        self.data.retain(|key, _| key.1 != watcher);
        self.child.retain(|key, _| key.1 != watcher);
    }

    fn fire(
        table: &mut BTreeMap<(String, WatcherId), BTreeSet<&'static str>>,
        path: &str,
    ) -> BTreeSet<WatcherId> {
        let mut fired = BTreeSet::new();
        table.retain(|(at, watcher), modes| {
            if at == path {
                fired.insert(*watcher);
                modes.remove("once");
            }
            let below = at == "/" || path.strip_prefix(at.as_str()).is_some_and(|tail| tail.starts_with('/'));
            if below && modes.contains("recursive") {
                fired.insert(*watcher);
            }
            !modes.is_empty()
        });
        fired
    }

    fn trigger(&mut self, kind: EventKind, path: &str) -> BTreeSet<WatcherId> {
        match kind {
            EventKind::ChildrenChanged => Self::fire(&mut self.child, path),
            EventKind::Deleted => {
                let mut fired = Self::fire(&mut self.data, path);
                fired.extend(Self::fire(&mut self.child, path));
                fired
            }
            _ => Self::fire(&mut self.data, path),
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Add(&'static str, WatcherId, WatchMode),
    Remove(WatcherId, &'static str, WatcherKind),
    RemoveWatcher(WatcherId),
    Request(Frame),
}

const PATHS: [&str; 8] = ["/", "/a", "/a/a", "/a/b", "/a/a/a", "/b", "/b/a", "/ab"];

fn step() -> impl Strategy<Value = Step> {
    let path = || prop::sample::select(&PATHS[..]);
    let watcher = || (0_u64..4).prop_map(WatcherId);
    let mode = prop::sample::select(vec![
        WatchMode::Data,
        WatchMode::Exist,
        WatchMode::Child,
        WatchMode::Persistent,
        WatchMode::PersistentRecursive,
    ]);
    let kind = prop::sample::select(vec![
        WatcherKind::Children,
        WatcherKind::Data,
        WatcherKind::Any,
        WatcherKind::Persistent,
        WatcherKind::PersistentRecursive,
    ]);
    let request = prop_oneof![
        path().prop_map(|path| create(path, b"", Persistent)),
        path().prop_map(|path| set(path, b"", -1)),
        path().prop_map(|path| delete(path, -1)),
    ];
    prop_oneof![
        6 => (path(), watcher(), mode).prop_map(|(path, watcher, mode)| Step::Add(path, watcher, mode)),
        2 => (watcher(), path(), kind).prop_map(|(watcher, path, kind)| Step::Remove(watcher, path, kind)),
        1 => watcher().prop_map(Step::RemoveWatcher),
        8 => request.prop_map(Step::Request),
    ]
}

proptest! {
    #[test]
    fn watches_do_what_naive_ones_do(steps in prop::collection::vec(step(), 1..100)) {
        let mut world = World::new();
        let mut naive = Naive::default();
        let mut notes = Notes { watches: Some(Watches::new(5)), ..Notes::default() };
        for step in steps {
            let watches = notes.watches.as_mut().unwrap();
            match step {
                Step::Add(path, watcher, mode) => {
                    watches.add(path, watcher, mode);
                    naive.add(path, watcher, mode);
                }
                Step::Remove(watcher, path, kind) => {
                    prop_assert_eq!(watches.contains(watcher, path, kind), naive.contains(watcher, path, kind));
                    prop_assert_eq!(watches.remove(watcher, path, kind), naive.remove(watcher, path, kind));
                }
                Step::RemoveWatcher(watcher) => {
                    watches.remove_watcher(watcher);
                    naive.remove_watcher(watcher);
                }
                Step::Request(frame) => {
                    notes.events.clear();
                    notes.changes.clear();
                    if world.propose(&frame, 0).is_ok() {
                        world.apply_next(&mut notes);
                    }
                    let mut events = notes.events.drain(..);
                    for (kind, path) in &notes.changes {
                        let fired = naive.trigger(*kind, path);
                        let told: Vec<_> = events.by_ref().take(fired.len()).collect();
                        prop_assert!(told.iter().all(|(_, told_kind, told_path)| told_kind == kind && told_path == path));
                        let told: BTreeSet<WatcherId> = told.into_iter().map(|(watcher, ..)| watcher).collect();
                        prop_assert_eq!(told, fired);
                    }
                    prop_assert!(events.next().is_none());
                }
            }
            let watches = notes.watches.as_ref().unwrap();
            prop_assert_eq!(watches.count(), naive.data.len() + naive.child.len());
            prop_assert_eq!(watches.summary().watches, naive.data.len());
            let paths: BTreeSet<&String> = naive.data.keys().map(|(path, _)| path).collect();
            prop_assert_eq!(watches.summary().paths, paths.len());
            let watchers: BTreeSet<WatcherId> = naive.data.keys().map(|(_, watcher)| *watcher).collect();
            prop_assert_eq!(watches.summary().watchers, watchers.len());
        }
    }
}

#[test]
fn the_paths_of_these_tests_are_paths() {
    assert!(PATHS.iter().all(|path| path::is_valid(path)));
}
