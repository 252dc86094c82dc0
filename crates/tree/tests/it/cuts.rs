//! Random requests to several trees that are one together, against one that is whole.

use crate::divided::*;
use crate::model::request;
use crate::world::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use stoa_tree::{Caller, Contact, Options, Refusal, Stamp, Tree, Updates, WatchMode, WatcherId, Watches};
use stoa_wire::CreateMode::Persistent;
use stoa_wire::{ErrorCode, EventKind, Request, path};

/// Some come back to where they were cut off; two are those of sequential znodes.
const CUTS: &[(&str, usize)] = &[
    ("/a", 1),
    ("/a/a", 2),
    ("/a/b/a", 0),
    ("/a/b/a/b", 1),
    ("/b/a", 1),
    ("/b/b", 2),
    ("/b/b/a", 1),
    ("/b/a0000000002", 2),
    ("/b/b0000000003", 1),
    ("/c", 2),
    ("/c/a/a/a", 1),
];

/// Around the cuts.
const PATHS: &[&str] = &[
    "/a",
    "/a/b",
    "/a/b/a",
    "/a/b/a/b",
    "/a/b/a/b/c",
    "/a/a",
    "/a/a/a",
    "/b",
    "/b/a",
    "/b/b",
    "/b/b/a",
    "/b/b/b",
    "/c",
    "/c/a",
    "/c/a/a",
    "/c/a/a/a",
];

/// What may have a quota.
const QUOTAS: &[&str] = &["/a", "/a/b", "/a/b/a/b", "/b", "/c"];

#[derive(Debug, Clone)]
enum Step {
    /// By the session with this number among those ever created.
    Request(usize, Frame),
    /// Prepared in parts, and taken back.
    InVain(usize, Frame),
    CreateSession,
    CloseSession(usize),
    /// The next updates, of this partition; the last one is the whole tree.
    Apply(usize, usize),
    Abandon,
    /// A subtree goes to this partition, if the last says so; otherwise all is taken back.
    Move(String, usize, bool),
    /// Everything is applied and looked at.
    Compare,
    SnapshotBegin(usize),
    SnapshotSlice(usize, usize),
}

fn some_path() -> BoxedStrategy<String> {
    let name = prop_oneof![5 => Just("a"), 4 => Just("b"), 1 => Just("c")];
    prop_oneof![
        80 => prop::sample::select(PATHS).prop_map(String::from),
        20 => prop::collection::vec(name, 1..5).prop_map(|names| format!("/{}", names.join("/"))),
        3 => prop::sample::select(vec!["/", "", "a", "/a/", "//a", "/a//b", "/..", "/zookeeper/config"])
            .prop_map(String::from),
    ]
    .boxed()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (any::<usize>(), request(some_path)).prop_map(|(session, frame)| Step::Request(session, frame)),
        8 => (any::<usize>(), request(some_path)).prop_map(|(session, frame)| Step::InVain(session, frame)),
        2 => Just(Step::CreateSession),
        3 => any::<usize>().prop_map(Step::CloseSession),
        20 => (0_usize..4, 1_usize..8).prop_map(|(member, count)| Step::Apply(member, count)),
        1 => Just(Step::Abandon),
        6 => (some_path(), 0_usize..3, prop::bool::weighted(0.8))
            .prop_map(|(path, to, keep)| Step::Move(path, to, keep)),
        1 => Just(Step::Compare),
        2 => (0_usize..3).prop_map(Step::SnapshotBegin),
        12 => (0_usize..3, 1_usize..200).prop_map(|(member, budget)| Step::SnapshotSlice(member, budget)),
    ]
}

struct Snapshot {
    digest: u64,
    applied: usize,
    slices: Vec<Vec<u8>>,
}

/// Whether a session lives, what it has visited and what it owns at cuts.
type Outlook = (bool, u64, Vec<String>);

struct Run {
    whole: Member,
    divided: Divided,
    sessions: Vec<i64>,
    /// What the parts will answer, by zxid.
    promised: BTreeMap<i64, Vec<Answer>>,
    snapshots: BTreeMap<usize, Snapshot>,
}

impl Run {
    /// With so many of the paths there from the beginning, and perhaps with quotas.
    fn new(options: &Options, prelude: usize, quotas: bool) -> Self {
        let mut run = Self {
            whole: Member::new(Tree::new(options.clone())),
            divided: Divided::new(CUTS, options),
            sessions: vec![99],
            promised: BTreeMap::new(),
            snapshots: BTreeMap::new(),
        };
        (0..3).for_each(|_| run.step(&Step::CreateSession));
        (run.divided.quotas_follow, run.divided.has_tables) = (true, true);
        // Before what they count: one that comes later counts more than its own.
        for prefix in QUOTAS.iter().filter(|_| quotas) {
            let path = format!("/zookeeper/quota{prefix}");
            run.step(&Step::Request(1, create(&path, b"", Persistent)));
            let stats = format!("{path}/zookeeper_stats");
            run.divided.apply_all();
            run.step(&Step::Request(1, create(&format!("{path}/zookeeper_limits"), b"count=2", Persistent)));
            run.step(&Step::Request(1, create(&stats, b"", Persistent)));
        }
        run.divided.apply_all();
        for path in PATHS.iter().take(prelude) {
            run.step(&Step::Request(1, create(path, b"", Persistent)));
        }
        run
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Request(session, frame) => {
                let session = self.session(*session);
                let stamp = self.divided.stamp();
                let wanted = propose(&mut self.whole, frame, session, stamp);
                let prepared = self.divided.propose(frame, session, stamp);
                assert_eq!(prepared.clone().map(|_| ()), wanted, "{:?}", frame.request());
                if let Ok(Some(results)) = prepared {
                    self.promised.insert(stamp.zxid, results.iter().map(answer).collect());
                }
            }
            Step::InVain(session, frame) => {
                let session = self.session(*session);
                let stamp = self.divided.stamp();
                let before = self.outlook();
                self.divided.propose_in_vain(frame, session, stamp);
                assert_eq!(self.outlook(), before);
            }
            Step::CreateSession => {
                let stamp = self.divided.stamp();
                let session = self.sessions.len() as i64;
                self.sessions.push(session);
                let mut batch = Vec::new();
                let (password, contact) = ([session as u8; 16], Contact::default());
                let tree = &mut self.whole.tree;
                tree.prepare_create_session(session, 5_000, password, contact, stamp, &mut batch).unwrap();
                self.whole.keep(stamp.zxid, batch);
                self.divided.create_session(session, stamp);
            }
            Step::CloseSession(session) => {
                let session = self.session(*session);
                let stamp = self.divided.stamp();
                let mut batch = Vec::new();
                self.whole.tree.prepare_close_session(session, stamp, &mut batch);
                self.whole.keep(stamp.zxid, batch);
                self.divided.close_session(session, stamp);
            }
            Step::Apply(member, count) => (0..*count).for_each(|_| {
                self.divided.members.get_mut(*member).unwrap_or(&mut self.whole).apply_next();
            }),
            Step::Abandon => self.abandon(),
            Step::Move(path, to, keep) => self.relocate(path, *to, *keep),
            Step::Compare => self.compare(),
            Step::SnapshotBegin(at) => {
                let member = &mut self.divided.members[*at];
                member.tree.snapshot_begin();
                let (digest, applied) = (member.tree.digest(), member.applied);
                self.snapshots.insert(*at, Snapshot { digest, applied, slices: Vec::new() });
            }
            Step::SnapshotSlice(at, budget) => self.slice(*at, *budget),
        }
    }

    fn session(&self, index: usize) -> i64 {
        self.sessions[index % self.sessions.len()]
    }

    /// What can be seen of what is proposed.
    fn outlook(&self) -> Vec<(usize, bool, Vec<Outlook>)> {
        let of_tree = |tree: &Tree| {
            let of_session = |session: &i64| {
                let session = *session;
                (tree.session_is_live(session), tree.visited(session), tree.ephemerals_at_cuts(session))
            };
            (tree.acl_count(), tree.has_proposed(), self.sessions.iter().map(of_session).collect())
        };
        self.divided.members.iter().map(|member| of_tree(&member.tree)).collect()
    }

    /// What is applied anywhere is applied everywhere, all else is forgotten.
    fn abandon(&mut self) {
        let members = || self.divided.members.iter().chain([&self.whole]);
        let last = members().map(|member| member.tree.last_zxid()).max().unwrap();
        for member in self.divided.members.iter_mut().chain([&mut self.whole]) {
            member.apply_to(last);
            member.abandon();
        }
        self.promised.retain(|zxid, _| *zxid <= last);
    }

    fn relocate(&mut self, path: &str, to: usize, keep: bool) {
        let from = self.divided.owner(path);
        if from == to {
            return;
        }
        self.divided.make_way(&[from, to]);
        let wanted = match self.divided.tree(path).get(path) {
            _ if !path::is_valid(path) || path == "/" || path.starts_with("/zookeeper") => {
                Err(ErrorCode::BadArguments)
            }
            None => Err(ErrorCode::NoNode),
            Some(_) => match quota_above(&self.divided.members[from].tree, path) {
                Some(prefix) if prefix != path => Err(ErrorCode::Unimplemented),
                _ => Ok(()),
            },
        };
        let before = self.outlook();
        assert_eq!(self.divided.relocate(path, to, keep), wanted, "{path}");
        if wanted.is_err() || !keep {
            assert_eq!(self.outlook(), before);
        }
    }

    fn slice(&mut self, at: usize, budget: usize) {
        let member = &mut self.divided.members[at];
        let Some(snapshot) = self.snapshots.get_mut(&at) else {
            return;
        };
        let mut slice = Vec::new();
        let more = member.tree.snapshot_slice(&mut slice, budget);
        snapshot.slices.push(slice);
        if more {
            return;
        }
        let mut tree = load(&snapshot.slices).unwrap();
        assert_eq!((tree.digest(), tree.recomputed_digest()), (snapshot.digest, snapshot.digest));
        for (_, batch) in &member.log[snapshot.applied..member.applied] {
            for update in Updates::new(batch) {
                tree.apply(&update.unwrap(), &mut ()).unwrap();
            }
        }
        assert_eq!(tree.digest(), member.tree.digest());
        self.snapshots.remove(&at);
    }

    fn compare(&mut self) {
        while self.whole.apply_next() {}
        self.divided.apply_all();
        self.assert_quotas();
        self.divided.assert_tables();
        self.assert_same();
    }

    fn finish(&mut self) {
        self.compare();
        for (at, member) in self.divided.members.iter_mut().enumerate() {
            assert!(!member.tree.has_proposed());
            member.tree = member.reloaded();
            let options = Options::default();
            let mut again = if at == 0 { Tree::new(options) } else { Tree::new_part(options) };
            for update in member.log.iter().flat_map(|(_, batch)| Updates::new(batch)) {
                again.apply(&update.unwrap(), &mut ()).unwrap();
            }
            assert_eq!(again.digest(), member.tree.digest());
        }
        for (zxid, answers) in &self.promised {
            assert_eq!(self.whole.answers.get(zxid), Some(answers), "zxid {zxid}");
        }
        assert_eq!(merged(self.divided.members.iter()), merged([&self.whole].into_iter()));
        self.compare();
    }

    /// Each quota counts what is on its partition and has no deeper one there.
    fn assert_quotas(&self) {
        for Member { tree, .. } in &self.divided.members {
            for prefix in QUOTAS.iter().filter(|prefix| has_quota(tree, prefix)) {
                let (mut count, mut bytes) = (0, 0);
                let mut pending = vec![String::from(*prefix)];
                while let Some(path) = pending.pop() {
                    pending.extend(tree.names_below(&path).map(|name| format!("{path}/{name}")));
                    if let Some(znode) = tree.get(&path).filter(|_| quota_above(tree, &path) == Some(prefix))
                    {
                        count += 1;
                        bytes += znode.data().map_or(0, <[u8]>::len);
                    }
                }
                let found = quota_of(tree, prefix, "zookeeper_stats");
                assert_eq!(found, Some(format!("count={count},bytes={bytes}")), "{prefix}");
            }
        }
    }

    /// Compares everything that can be read.
    fn assert_same(&self) {
        let Self { whole, divided, .. } = self;
        let trees = || divided.members.iter().map(|member| &member.tree);
        let mut pending = vec![String::from("/")];
        while let Some(path) = pending.pop() {
            let wanted = whole.tree.get(&path).unwrap();
            assert_eq!(trees().filter(|tree| tree.get(&path).is_some()).count(), 1, "{path}");
            let found = divided.tree(&path).get(&path).unwrap();
            assert_eq!(found.kind(), wanted.kind(), "{path}");
            // A quota counts what is on its partition.
            if !path.ends_with("zookeeper_stats") {
                assert_eq!((found.stat(), found.data()), (wanted.stat(), wanted.data()), "{path}");
            }
            assert_eq!(found.acl().encoded(), wanted.acl().encoded(), "{path}");
            assert_eq!(found.child_count(), wanted.child_count(), "{path}");
            let names: Vec<&str> = wanted.children().collect();
            let found: Vec<&str> = found.children().collect();
            assert_eq!(found, names, "{path}");
            let below: usize = trees().filter_map(|tree| tree.count_below(&path)).sum();
            assert_eq!(Some(below), whole.tree.count_below(&path), "{path}");
            let slash = path.trim_end_matches('/');
            pending.extend(names.iter().map(|name| format!("{slash}/{name}")));
        }
        let sum = |count: fn(&Tree) -> usize| (trees().map(count).sum::<usize>(), count(&whole.tree));
        for (found, wanted) in [
            sum(Tree::znode_count),
            sum(Tree::ephemeral_count),
            sum(Tree::container_count),
            sum(|tree| (tree.data_bytes() - stats_bytes(tree)) as usize),
            sum(|tree| tree.reapable(i64::MAX, 1_000).len()),
        ] {
            assert_eq!(found, wanted);
        }
        for session in &self.sessions {
            let mut found: Vec<String> = trees().flat_map(|tree| tree.ephemerals_of(*session)).collect();
            let mut wanted: Vec<String> = whole.tree.ephemerals_of(*session).collect();
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted);
            let lives = divided.members[0].tree.session(*session).is_some();
            assert_eq!(lives, whole.tree.session(*session).is_some());
            assert!(
                lives || trees().all(|tree| tree.session(*session).is_none()),
                "no remote session is left behind"
            );
        }
    }
}

fn has_quota(tree: &Tree, prefix: &str) -> bool {
    quota_of(tree, prefix, "zookeeper_limits").is_some()
}

/// The deepest subtree with a quota that a path lies in.
fn quota_above(tree: &Tree, path: &str) -> Option<&'static str> {
    let is_above = |prefix: &&str| {
        path.strip_prefix(*prefix).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
    };
    let above = QUOTAS.iter().copied().filter(is_above).filter(|prefix| has_quota(tree, prefix));
    above.max_by_key(|prefix| prefix.len())
}

fn quota_of(tree: &Tree, prefix: &str, name: &str) -> Option<String> {
    let znode = tree.get(&format!("/zookeeper/quota{prefix}/{name}"))?;
    Some(String::from_utf8_lossy(znode.data().unwrap_or_default()).into_owned())
}

fn stats_bytes(tree: &Tree) -> u64 {
    QUOTAS
        .iter()
        .filter_map(|prefix| quota_of(tree, prefix, "zookeeper_stats"))
        .map(|it| it.len() as u64)
        .sum()
}

fn propose(whole: &mut Member, frame: &Frame, session: i64, stamp: Stamp) -> Result<(), Refusal> {
    let mut batch = Vec::new();
    let caller = Caller { session, identities: &[] };
    whole.tree.prepare(&frame.request(), &caller, stamp, &mut batch)?;
    whole.keep(stamp.zxid, batch);
    Ok(())
}

/// What happened, by zxid, whoever saw it.
fn merged<'a>(members: impl Iterator<Item = &'a Member>) -> BTreeMap<i64, Vec<(EventKind, String)>> {
    let mut merged: BTreeMap<i64, Vec<(EventKind, String)>> = BTreeMap::new();
    for (zxid, changes) in members.flat_map(|member| &member.changes) {
        merged.entry(*zxid).or_default().extend(changes.iter().cloned());
    }
    for changes in merged.values_mut() {
        changes.sort_by_key(|(kind, path)| (*kind as i32, path.clone()));
    }
    merged.retain(|_, changes| !changes.is_empty());
    merged
}

/// Sets a watch where what it listens to is told; one that is recursive also where something below lives.
fn watch(run: &mut Run, path: &str, watcher: WatcherId, mode: WatchMode) {
    let mut places = vec![run.divided.owner(path)];
    if mode == WatchMode::PersistentRecursive {
        let below = run.divided.cuts.iter().filter(|(cut, _)| cut.starts_with(path));
        places.extend(below.map(|(_, partition)| *partition));
    }
    for (at, member) in run.divided.members.iter_mut().enumerate() {
        if places.contains(&at) {
            member.watches.get_or_insert_with(|| Watches::new(0)).add(path, watcher, mode);
        }
    }
    run.whole.watches.get_or_insert_with(|| Watches::new(0)).add(path, watcher, mode);
}

/// Who was told what since the last time, in no order.
fn told<'a>(members: impl Iterator<Item = &'a mut Member>) -> Vec<(WatcherId, i32, String)> {
    let events = members.flat_map(|member| core::mem::take(&mut member.events));
    let mut told: Vec<_> = events.map(|(watcher, kind, path)| (watcher, kind as i32, path)).collect();
    told.sort();
    told
}

fn watched() -> impl Strategy<Value = (String, u64, WatchMode)> {
    let mode = prop::sample::select(vec![
        WatchMode::Data,
        WatchMode::Child,
        WatchMode::Persistent,
        WatchMode::PersistentRecursive,
    ]);
    (some_path(), 0_u64..5, mode)
}

fn moved() -> impl Strategy<Value = Option<(String, usize)>> {
    prop::option::of((prop::sample::select(PATHS).prop_map(String::from), 0_usize..3))
}

proptest! {
    #[test]
    fn several_trees_do_what_a_whole_one_does(steps in prop::collection::vec(step(), 1..400), seed in any::<u64>(), prelude in 0..PATHS.len(), quotas in any::<bool>()) {
        let mut run = Run::new(&Options { hash_seed: seed, ..Options::default() }, prelude, quotas);
        for step in &steps {
            run.step(step);
        }
        run.finish();
    }

    #[test]
    fn watchers_of_several_trees_are_told_what_those_of_a_whole_one_are(
        steps in prop::collection::vec((prop::collection::vec(watched(), 0..3), any::<usize>(), request(some_path), moved()), 1..80),
        prelude in 0..PATHS.len(),
    ) {
        let mut run = Run::new(&Options::default(), prelude, false);
        for (step, (watches, session, frame, moved)) in steps.into_iter().enumerate() {
            for (path, watcher, mode) in watches {
                watch(&mut run, &path, WatcherId(watcher), mode);
            }
            if let Some((path, to)) = moved {
                run.step(&Step::Move(path, to, true));
            }
            run.step(&Step::Request(session, frame));
            if step % 20 == 19 {
                run.step(&Step::CloseSession(session));
            }
            run.divided.apply_all();
            while run.whole.apply_next() {}
            prop_assert_eq!(told(run.divided.members.iter_mut()), told([&mut run.whole].into_iter()));
        }
        run.finish();
    }
}

#[test]
fn the_cuts_of_these_tests_are_cuts() {
    let divided = Divided::new(CUTS, &Options::default());
    for (cut, _) in CUTS {
        let (parent, _) = path::split(cut).unwrap();
        assert_ne!(divided.owner(parent), divided.owner(cut), "{cut}");
    }
    assert!(matches!(delete("/a", 0).request(), Request::Delete { .. }));
}
