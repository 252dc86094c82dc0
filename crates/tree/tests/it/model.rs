//! Random requests, with many updates outstanding, against the naive tree.

use crate::naive::{At, Naive};
use crate::world::*;
use proptest::prelude::*;
use stoa_tree::{Caller, Loader, Options, Part, PartOp, ProposedZnode, Refusal, Tree, Updates, multi_op};
use stoa_wire::CreateMode::{self, *};
use stoa_wire::{Acl, ErrorCode, OPEN_ACL, READ_ACL, perms};

#[derive(Debug, Clone)]
enum Step {
    /// By the session with this number among those ever created.
    Request(usize, Frame),
    /// Operations in one update, of which each sees those before it; kept in the end, or undone.
    Call(usize, Vec<Frame>, Calling),
    /// The state is read as it will be.
    Look,
    CreateSession,
    CloseSession(usize),
    Apply(usize),
    Abandon,
    SnapshotBegin,
    SnapshotSlice(usize),
    SnapshotAbort,
}

#[derive(Debug, Clone, Copy)]
struct Calling {
    /// The state as it will be is read after each operation.
    looks: bool,
    is_kept: bool,
}

fn calling() -> impl Strategy<Value = Calling> {
    (any::<bool>(), any::<bool>()).prop_map(|(looks, is_kept)| Calling { looks, is_kept })
}

fn path() -> BoxedStrategy<String> {
    let name = prop_oneof![8 => "[abc]", 1 => "[a-c]{2,9}", 1 => Just("zookeeper".to_string())];
    prop_oneof![
        40 => prop::collection::vec(name, 1..4).prop_map(|names| format!("/{}", names.join("/"))),
        1 => prop::sample::select(vec!["/", "", "a", "/a/", "//a", "/a//b", "/..", "/zookeeper/config"])
            .prop_map(String::from),
    ]
    .boxed()
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..5)
}

fn version() -> impl Strategy<Value = i32> {
    prop_oneof![4 => Just(-1), 2 => 0..3]
}

fn mode() -> impl Strategy<Value = CreateMode> {
    prop_oneof![
        5 => Just(Persistent),
        4 => Just(Ephemeral),
        1 => Just(PersistentSequential),
        1 => Just(EphemeralSequential),
        1 => Just(Container),
    ]
}

fn write(path: fn() -> BoxedStrategy<String>) -> impl Strategy<Value = Frame> {
    prop_oneof![
        8 => (path(), data(), mode()).prop_map(|(path, data, mode)| create(&path, &data, mode)),
        1 => (path(), mode()).prop_map(|(path, mode)| create_acl(&path, b"", mode, READ_ACL)),
        4 => (path(), version()).prop_map(|(path, version)| delete(&path, version)),
        4 => (path(), data(), version()).prop_map(|(path, data, version)| set(&path, &data, version)),
        1 => path().prop_map(|path| set_null(&path)),
        1 => (path(), version()).prop_map(|(path, version)| check(&path, version)),
    ]
}

/// Requests on such paths.
pub(crate) fn request(path: fn() -> BoxedStrategy<String>) -> impl Strategy<Value = Frame> {
    prop_oneof![
        12 => write(path),
        1 => (path(), version(), any::<bool>()).prop_map(|(path, version, open)| {
            set_acl(&path, if open { OPEN_ACL } else { READ_ACL }, version)
        }),
        3 => prop::collection::vec(write(path), 0..5).prop_map(|ops| multi(&ops)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (any::<usize>(), request(path)).prop_map(|(session, frame)| Step::Request(session, frame)),
        8 => (any::<usize>(), prop::collection::vec(write(path), 0..6), calling())
            .prop_map(|(session, ops, calling)| Step::Call(session, ops, calling)),
        12 => Just(Step::Look),
        3 => Just(Step::CreateSession),
        3 => any::<usize>().prop_map(Step::CloseSession),
        12 => (1_usize..8).prop_map(Step::Apply),
        1 => Just(Step::Abandon),
        2 => Just(Step::SnapshotBegin),
        12 => (1_usize..200).prop_map(Step::SnapshotSlice),
        1 => Just(Step::SnapshotAbort),
    ]
}

/// Few paths and short waits: what is outstanding on a path is often partly applied.
fn narrow_step() -> impl Strategy<Value = Step> {
    let path = || prop::sample::select(vec!["/a", "/a/a", "/a/b", "/a/a/a"]);
    let mode = prop_oneof![3 => Just(Persistent), 2 => Just(Ephemeral)];
    let write = prop_oneof![
        2 => (path(), data(), mode).prop_map(|(path, data, mode)| create(path, &data, mode)),
        2 => path().prop_map(|path| delete(path, -1)),
        1 => (path(), data()).prop_map(|(path, data)| set(path, &data, -1)),
    ];
    let pair = (write.clone(), write.clone()).prop_map(|(first, second)| multi(&[first, second]));
    prop_oneof![
        20 => (any::<usize>(), prop_oneof![4 => write.clone(), 1 => pair])
            .prop_map(|(session, frame)| Step::Request(session, frame)),
        5 => (any::<usize>(), prop::collection::vec(write, 0..6), calling())
            .prop_map(|(session, ops, calling)| Step::Call(session, ops, calling)),
        8 => Just(Step::Look),
        1 => Just(Step::CreateSession),
        1 => any::<usize>().prop_map(Step::CloseSession),
        12 => Just(Step::Apply(1)),
    ]
}

/// What was agreed to, to be carried out by the naive tree when the real one applies it.
#[derive(Debug, Clone)]
enum Agreed {
    Request(Frame, At),
    CreateSession(i64),
    CloseSession(i64, i64),
}

fn carry_out(naive: &mut Naive, agreed: &Agreed) -> Vec<Answer> {
    match agreed {
        Agreed::Request(frame, at) => naive.execute(frame, *at).expect("it was agreed to"),
        Agreed::CreateSession(session) => {
            naive.create_session(*session);
            vec![Answer::SessionCreated(*session)]
        }
        Agreed::CloseSession(session, zxid) => {
            naive.close_session(*session, *zxid);
            vec![Answer::SessionClosed(*session)]
        }
    }
}

struct Snapshot {
    state: Naive,
    digest: u64,
    last_zxid: i64,
    applied: usize,
    slices: Vec<Vec<u8>>,
}

struct Run {
    world: World,
    proposed: Naive,
    applied: Naive,
    agreed: Vec<Agreed>,
    sessions: Vec<i64>,
    next_session: i64,
    snapshot: Option<Snapshot>,
    loaded: usize,
    /// How often the state was read as it will be.
    views: usize,
}

impl Run {
    fn new(options: Options) -> Self {
        Self {
            world: World::with(options),
            proposed: Naive::new(),
            applied: Naive::new(),
            agreed: Vec::new(),
            sessions: vec![99],
            next_session: 1,
            snapshot: None,
            loaded: 0,
            views: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Request(session, frame) => {
                let session = self.sessions[session % self.sessions.len()];
                let prepared = self.world.propose(frame, session);
                let at = At { session, zxid: self.world.zxid, time_ms: self.world.now_ms };
                let wanted = self.proposed.execute(frame, at);
                assert_eq!(prepared, wanted.map(|_| ()), "{:?}", frame.request());
                if prepared.is_ok() {
                    self.agreed.push(Agreed::Request(frame.clone(), at));
                }
            }
            Step::Call(session, ops, calling) => {
                self.call(self.sessions[session % self.sessions.len()], ops, *calling);
            }
            Step::Look => self.look(),
            Step::CreateSession => {
                self.world.propose_session(self.next_session);
                self.sessions.push(self.next_session);
                self.agree(Agreed::CreateSession(self.next_session));
                self.next_session += 1;
            }
            Step::CloseSession(session) => {
                let session = self.sessions[session % self.sessions.len()];
                self.world.propose_close(session);
                self.agree(Agreed::CloseSession(session, self.world.zxid));
            }
            Step::Apply(count) => (0..*count).for_each(|_| self.apply()),
            Step::Abandon => {
                self.world.tree.abandon_proposed();
                self.world.log.truncate(self.world.applied);
                self.world.noted = self.world.applied;
                self.agreed.truncate(self.world.applied);
                self.proposed = self.applied.clone();
            }
            Step::SnapshotBegin => {
                self.world.tree.snapshot_begin();
                self.snapshot = Some(Snapshot {
                    state: self.applied.clone(),
                    digest: self.world.tree.digest(),
                    last_zxid: self.world.tree.last_zxid(),
                    applied: self.world.applied,
                    slices: Vec::new(),
                });
            }
            Step::SnapshotSlice(budget) => self.slice(*budget),
            Step::SnapshotAbort => {
                self.world.tree.snapshot_abort();
                self.snapshot = None;
            }
        }
        for session in &self.sessions {
            let live = self.proposed.sessions.contains(session);
            assert_eq!(self.world.tree.session_is_live(*session), live);
        }
    }

    fn look(&mut self) {
        self.world.note_contents();
        self.proposed.assert_proposed(&self.world.tree);
        self.views += 1;
    }

    fn call(&mut self, session: i64, ops: &[Frame], calling: Calling) {
        let Calling { looks, is_kept } = calling;
        let stamp = self.world.stamp();
        let at = At { session, zxid: stamp.zxid, time_ms: stamp.time_ms };
        let before = self.proposed.clone();
        if looks {
            self.world.note_contents();
        }
        let tree = &mut self.world.tree;
        let mut part = tree.part_begin(stamp, session);
        let mut done = Vec::new();
        for op in ops {
            let request = multi_op(op.request()).expect("no reads and no TTLs are made");
            let caller = Caller { session, identities: &[] };
            let prepared = tree.part_op(&mut part, PartOp::Whole(&request), &caller).map(|_| ());
            let wanted = self.proposed.execute(op, at).map(|_| ());
            assert_eq!(prepared.map_err(Refusal::Error), wanted, "{request:?}");
            if prepared.is_ok() {
                done.push(op.clone());
            }
            if looks {
                tree.part_note_contents(&mut part);
                self.proposed.assert_proposed(tree);
            }
        }
        if is_kept {
            let mut batch = Vec::new();
            tree.part_keep(part, &mut batch);
            if !done.is_empty() {
                self.world.log.push(batch);
                self.agreed.push(Agreed::Request(multi(&done), at));
            }
        } else {
            tree.part_undo(part);
            self.proposed = before;
        }
    }

    fn agree(&mut self, agreed: Agreed) {
        carry_out(&mut self.proposed, &agreed);
        self.agreed.push(agreed);
    }

    fn apply(&mut self) {
        let mut notes = Notes::default();
        let index = self.world.applied;
        if self.world.apply_next(&mut notes) {
            let wanted = carry_out(&mut self.applied, &self.agreed[index]);
            assert_eq!(notes.answers, wanted);
        }
    }

    fn slice(&mut self, budget: usize) {
        let Some(snapshot) = &mut self.snapshot else {
            return;
        };
        let mut slice = Vec::new();
        let more = self.world.tree.snapshot_slice(&mut slice, budget);
        snapshot.slices.push(slice);
        if !more {
            let snapshot = self.snapshot.take().expect("seen above");
            self.check(&snapshot);
        }
    }

    /// Loads a snapshot, and brings the loaded tree to where the first one is.
    fn check(&mut self, snapshot: &Snapshot) {
        let mut tree = load(&snapshot.slices);
        assert_eq!((tree.digest(), tree.last_zxid()), (snapshot.digest, snapshot.last_zxid));
        snapshot.state.assert_same(&tree);
        for batch in &self.world.log[snapshot.applied..self.world.applied] {
            for update in Updates::new(batch) {
                tree.apply(&update.unwrap(), &mut ()).unwrap();
            }
        }
        assert_eq!(tree.digest(), self.world.tree.digest());
        self.applied.assert_same(&tree);
        self.loaded += 1;
    }
}

fn load(slices: &[Vec<u8>]) -> Tree {
    // With another seed: ids, hashes and orders differ, the state does not.
    let mut loader = Loader::new(Options { hash_seed: 77, ..Options::default() });
    for slice in slices {
        loader.chunk(slice).unwrap();
    }
    loader.finish().unwrap()
}

proptest! {
    #[test]
    fn proposed_and_applied_meet_at_every_distance(steps in prop::collection::vec(narrow_step(), 1..80)) {
        let mut run = Run::new(Options::default());
        run.step(&Step::CreateSession);
        for step in &steps {
            run.step(step);
        }
        run.step(&Step::Look);
        while run.world.applied < run.world.log.len() {
            run.apply();
        }
        run.applied.assert_same(&run.world.tree);
        prop_assert!(run.views > 0);
    }

    #[test]
    fn the_tree_does_what_the_naive_one_does(steps in prop::collection::vec(step(), 1..150), seed in any::<u64>()) {
        let mut run = Run::new(Options { hash_seed: seed, ..Options::default() });
        for session in 0..3 {
            run.step(&Step::CreateSession);
            prop_assert_eq!(run.sessions.len(), session + 2);
        }
        for step in &steps {
            run.step(step);
            prop_assert_eq!(run.world.tree.digest(), run.world.tree.recomputed_digest());
        }
        run.applied.assert_same(&run.world.tree);
        while run.world.applied < run.world.log.len() {
            run.apply();
        }
        while run.snapshot.is_some() {
            run.slice(1000);
        }
        prop_assert_eq!(&run.applied, &run.proposed);
        prop_assert!(!run.world.tree.has_proposed());
        run.applied.assert_same(&run.world.tree);
    }
}

#[test]
fn a_refused_request_leaves_no_trace() {
    let mut world = World::new();
    world.propose_session(1);
    world.apply_all();
    let digest = world.tree.digest();
    let failing = multi(&[create("/a", b"", Persistent), create("/a/b", b"", Ephemeral), check("/a", 9)]);
    assert!(matches!(world.propose(&failing, 1), Err(Refusal::Multi { count: 3, failed: 2, .. })));
    assert!(!world.tree.has_proposed());
    world.apply_all();
    assert_eq!(world.tree.digest(), digest);
}

#[test]
fn what_is_taken_back_is_noted_again() {
    let mut world = World::new();
    world.propose(&create("/a", b"1", Persistent), 0).unwrap();
    world.note_contents();
    let data = |tree: &Tree| {
        let znode = tree.proposed_znode("/a", &Caller::SERVER);
        znode.unwrap().data.unwrap().to_vec()
    };
    let stamp = world.stamp();
    let tree = &mut world.tree;
    let mut part = tree.part_begin(stamp, 0);
    let set_to = |tree: &mut Tree, part: &mut Part, data: &[u8]| {
        tree.part_op(part, PartOp::Whole(&set("/a", data, -1).request()), &Caller::SERVER).unwrap();
    };
    set_to(tree, &mut part, b"2");
    let mark = tree.part_mark(&part);
    set_to(tree, &mut part, b"3");
    tree.part_note_contents(&mut part);
    assert_eq!(data(tree), b"3");
    // Both were noted since the mark, and only one of them is taken back.
    tree.part_back(&mut part, mark);
    tree.part_note_contents(&mut part);
    assert_eq!(data(tree), b"2");
    tree.part_undo(part);
    assert_eq!(data(tree), b"1");
}

#[test]
fn what_was_noted_is_old_when_it_is_applied() {
    let mut world = World::new();
    world.must(&create("/a", b"0", Persistent));
    world.propose(&set("/a", b"1", -1), 0).unwrap();
    world.note_contents();
    // This is applied before anybody looks, and the znode is touched by one more.
    world.propose(&set("/a", b"2", -1), 0).unwrap();
    world.propose(&create("/a/b", b"", Persistent), 0).unwrap();
    assert!((0..2).all(|_| world.apply_next(&mut Notes::default())));
    world.note_contents();
    let znode = world.tree.proposed_znode("/a", &Caller::SERVER).unwrap();
    assert_eq!((znode.data, znode.num_children), (Some(&b"2"[..]), 1));
}

#[test]
fn the_state_as_it_will_be_is_read_with_the_rights_of_the_caller() {
    let mut world = World::new();
    world.propose_session(1);
    let nobody = [Acl { perms: perms::WRITE, scheme: "world", id: "anyone" }];
    world.propose(&create("/a", b"", Persistent), 0).unwrap();
    world.propose(&create_acl("/a/b", b"", Persistent, &nobody), 0).unwrap();
    world.note_contents();
    let tree = &world.tree;
    let caller = Caller { session: 1, identities: &[] };
    assert!(tree.proposed_znode("/a", &caller).is_ok());
    assert_eq!(tree.proposed_znode("/a/b", &caller).unwrap_err(), ErrorCode::NoAuth);
    assert_eq!(tree.proposed_exists("/a/b", &caller), Ok(true));
    let mut each = |_: &str, _: ProposedZnode<'_>| true;
    assert_eq!(tree.proposed_children("/a", &caller, &mut each), Err(ErrorCode::NoAuth));
    assert_eq!(tree.proposed_children("/a/b", &caller, &mut each), Err(ErrorCode::NoAuth));
    assert_eq!(tree.proposed_children("/a", &Caller::SERVER, &mut each), Ok(()));
    for path in ["/a", "/a/b"] {
        assert_eq!(tree.proposed_oldest(path, &caller, &mut || true).unwrap_err(), ErrorCode::NoAuth);
    }
    assert!(tree.proposed_oldest("/a", &Caller::SERVER, &mut || true).unwrap().is_some());
    assert!(tree.proposed_oldest("/a", &Caller::SERVER, &mut || false).unwrap().is_none());
    assert_eq!(tree.proposed_znode("/a/c", &caller).unwrap_err(), ErrorCode::NoNode);
    world.propose_close(1);
    assert_eq!(world.tree.proposed_znode("/a", &caller).unwrap_err(), ErrorCode::SessionExpired);
    assert_eq!(world.tree.proposed_exists("/a", &caller), Err(ErrorCode::SessionExpired));
}
