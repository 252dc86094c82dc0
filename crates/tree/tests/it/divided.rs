//! Several trees that are one together, and as simple a coordinator as can be.

use crate::world::*;
use std::collections::BTreeMap;
use stoa_tree::{
    Caller, Contact, Loader, MovedWatch, Options, Part, PartOp, PartResult, Refusal, Stamp, Tree, Updates,
    WatchMode, WatcherId, Watches, multi_op,
};
use stoa_wire::{Create, CreateMode, ErrorCode, EventKind, Request};

/// A tree with its log.
pub(crate) struct Member {
    pub(crate) tree: Tree,
    /// Zxids and updates.
    pub(crate) log: Vec<(i64, Vec<u8>)>,
    pub(crate) applied: usize,
    /// What happened, by zxid.
    pub(crate) changes: BTreeMap<i64, Vec<(EventKind, String)>>,
    pub(crate) answers: BTreeMap<i64, Vec<Answer>>,
    pub(crate) watches: Option<Watches>,
    pub(crate) events: Vec<(WatcherId, EventKind, String)>,
}

impl Member {
    pub(crate) fn new(tree: Tree) -> Self {
        Self {
            tree,
            log: Vec::new(),
            applied: 0,
            changes: BTreeMap::new(),
            answers: BTreeMap::new(),
            watches: None,
            events: Vec::new(),
        }
    }

    /// Takes what was prepared into the log.
    pub(crate) fn keep(&mut self, zxid: i64, batch: Vec<u8>) {
        if !batch.is_empty() {
            self.log.push((zxid, batch));
        }
    }

    pub(crate) fn apply_next(&mut self) -> bool {
        let Some((zxid, batch)) = self.log.get(self.applied) else {
            return false;
        };
        let mut notes = Notes { watches: self.watches.take(), ..Notes::default() };
        for update in Updates::new(batch) {
            self.tree.apply(&update.unwrap(), &mut notes).unwrap();
        }
        self.applied += 1;
        self.changes.insert(*zxid, notes.changes);
        self.answers.insert(*zxid, notes.answers);
        self.watches = notes.watches;
        self.events.extend(notes.events);
        assert_eq!(self.tree.digest(), self.tree.recomputed_digest());
        true
    }

    pub(crate) fn apply_to(&mut self, zxid: i64) {
        while self.log.get(self.applied).is_some_and(|(next, _)| *next <= zxid) {
            self.apply_next();
        }
    }

    pub(crate) fn abandon(&mut self) {
        self.tree.abandon_proposed();
        self.log.truncate(self.applied);
        assert!(!self.tree.has_proposed());
    }

    /// A tree with the same state, by way of a snapshot.
    pub(crate) fn reloaded(&mut self) -> Tree {
        let loaded = load(&snapshot(&mut self.tree, 100)).unwrap();
        assert_eq!(loaded.digest(), self.tree.digest());
        assert_eq!(loaded.digest(), loaded.recomputed_digest());
        assert_eq!(loaded.acl_count(), self.tree.acl_count());
        loaded
    }
}

pub(crate) fn snapshot(tree: &mut Tree, budget: usize) -> Vec<Vec<u8>> {
    tree.snapshot_begin();
    let mut slices = Vec::new();
    let mut more = true;
    while more {
        let mut slice = Vec::new();
        more = tree.snapshot_slice(&mut slice, budget);
        slices.push(slice);
    }
    slices
}

pub(crate) fn load(slices: &[Vec<u8>]) -> Result<Tree, stoa_tree::LoadError> {
    let mut loader = Loader::new(Options { hash_seed: 77, ..Options::default() });
    for slice in slices {
        loader.chunk(slice)?;
    }
    loader.finish()
}

/// An operation over several partitions that is being prepared.
struct Attempt {
    stamp: Stamp,
    session: i64,
    parts: BTreeMap<usize, Part>,
}

pub(crate) struct Divided {
    pub(crate) members: Vec<Member>,
    /// Each is a path and the partition of what is there and below.
    pub(crate) cuts: Vec<(String, usize)>,
    /// Whether quotas live where the path does that they are for.
    pub(crate) quotas_follow: bool,
    pub(crate) zxid: i64,
    /// Whether all cuts are in the members' tables, from the first move on.
    pub(crate) has_tables: bool,
    /// When the last subtree moved, and how often one did.
    moved: (i64, u64),
}

impl Divided {
    /// Each cut is a path and the partition of what is there and below.
    pub(crate) fn new(cuts: &[(&str, usize)], options: &Options) -> Self {
        let count = cuts.iter().map(|(_, partition)| partition + 1).max().unwrap_or(1);
        let mut members = vec![Member::new(Tree::new(options.clone()))];
        members.resize_with(count, || Member::new(Tree::new_part(options.clone())));
        let cuts = cuts.iter().map(|(path, partition)| (String::from(*path), *partition)).collect();
        Self { members, cuts, quotas_follow: false, zxid: 0, has_tables: false, moved: (0, 0) }
    }

    pub(crate) fn owner(&self, path: &str) -> usize {
        owner(&self.cuts, self.quotas_follow, path)
    }

    fn owner_of_parent(&self, path: &str) -> usize {
        self.owner(path.rsplit_once('/').map_or("", |(parent, _)| parent))
    }

    /// The next time, with a gap.
    pub(crate) fn stamp(&mut self) -> Stamp {
        self.zxid += 5;
        Stamp { zxid: self.zxid, time_ms: 1_000 + self.zxid }
    }

    pub(crate) fn tree(&self, path: &str) -> &Tree {
        &self.members[self.owner(path)].tree
    }

    pub(crate) fn apply_all(&mut self) {
        for member in &mut self.members {
            while member.apply_next() {}
        }
    }

    pub(crate) fn create_session(&mut self, session: i64, stamp: Stamp) {
        let mut batch = Vec::new();
        let first = &mut self.members[0];
        let password = [session as u8; 16];
        let contact = Contact::default();
        first.tree.prepare_create_session(session, 5_000, password, contact, stamp, &mut batch).unwrap();
        first.keep(stamp.zxid, batch);
    }

    pub(crate) fn close_session(&mut self, session: i64, stamp: Stamp) {
        let visited = self.members[0].tree.visited(session) | 1;
        let places: Vec<usize> = (0..self.members.len()).filter(|at| visited & 1 << at != 0).collect();
        let at_cuts = |at: &usize| self.members[*at].tree.ephemerals_at_cuts(session);
        let disowned: Vec<String> = places.iter().flat_map(at_cuts).collect();
        let mut attempt = Attempt { stamp, session, parts: BTreeMap::new() };
        for place in places {
            self.step(&mut attempt, place, PartOp::CloseSession, 0).unwrap();
        }
        for path in disowned {
            self.step(&mut attempt, self.owner_of_parent(&path), PartOp::Disown { path: &path }, 0).unwrap();
        }
        self.keep(attempt);
    }

    /// Prepares a request. The results are known where it is not an update of one partition alone.
    pub(crate) fn propose(
        &mut self,
        frame: &Frame,
        session: i64,
        stamp: Stamp,
    ) -> Result<Option<Vec<PartResult>>, Refusal> {
        self.attempt(frame, session, stamp, true)
    }

    /// Prepares a request in parts, and takes all back.
    pub(crate) fn propose_in_vain(&mut self, frame: &Frame, session: i64, stamp: Stamp) {
        let _ = self.attempt(frame, session, stamp, false);
    }

    /// Prepares and applies.
    pub(crate) fn ask(&mut self, frame: &Frame, session: i64) -> Result<Vec<PartResult>, ErrorCode> {
        let stamp = self.stamp();
        let results = self.propose(frame, session, stamp).map_err(|refusal| match refusal {
            Refusal::Error(code) | Refusal::Multi { code, .. } => code,
        })?;
        self.apply_all();
        Ok(results.unwrap_or_default())
    }

    fn attempt(
        &mut self,
        frame: &Frame,
        session: i64,
        stamp: Stamp,
        keep: bool,
    ) -> Result<Option<Vec<PartResult>>, Refusal> {
        if let Some(partition) = self.alone(&frame.request(), session).filter(|_| keep) {
            let member = &mut self.members[partition];
            let mut batch = Vec::new();
            let caller = Caller { session, identities: &[] };
            member.tree.prepare(&frame.request(), &caller, stamp, &mut batch)?;
            member.keep(stamp.zxid, batch);
            return Ok(None);
        }
        let mut attempt = Attempt { stamp, session, parts: BTreeMap::new() };
        let prepared = match frame.request() {
            Request::Multi(ops) => {
                let count = ops.len();
                let ops: Option<Vec<Request<'_>>> = ops.iter().map(multi_op).collect();
                let ops = ops.ok_or(ErrorCode::MarshallingError)?;
                let results = ops.iter().enumerate().map(|(failed, op)| {
                    let refused = |code| Refusal::Multi { count, failed, code };
                    self.op(&mut attempt, op).map_err(refused)
                });
                results.collect::<Result<Vec<_>, _>>()
            }
            request => self.op(&mut attempt, &request).map(|result| vec![result]).map_err(Refusal::Error),
        };
        if keep && prepared.is_ok() {
            self.keep(attempt);
        } else {
            for (partition, part) in attempt.parts {
                self.members[partition].tree.part_undo(part);
            }
        }
        prepared.map(Some)
    }

    /// The partition that a request concerns, if there is but one.
    fn alone(&self, request: &Request<'_>, session: i64) -> Option<usize> {
        let path = match *request {
            Request::Create(create) | Request::Create2(create) | Request::CreateContainer(create) => {
                create.path
            }
            Request::Delete { path, .. } | Request::SetData { path, .. } | Request::SetAcl { path, .. } => {
                path
            }
            _ => return None,
        };
        let numbered = self.path_to_create(request);
        let place = self.owner(numbered.as_deref().unwrap_or(path));
        let knows = place == 0 || !is_ephemeral(request);
        let lives = self.members[0].tree.session_is_live(session) || session == 0;
        (place == self.owner_of_parent(path) && knows && lives).then_some(place)
    }

    fn path_to_create(&self, request: &Request<'_>) -> Option<String> {
        let create = created(request)?;
        Some(self.members[self.owner_of_parent(create.path)].tree.path_to_create(&create).into_owned())
    }

    fn op(&mut self, attempt: &mut Attempt, request: &Request<'_>) -> Result<PartResult, ErrorCode> {
        let session = attempt.session;
        if session != 0 && !self.members[0].tree.session_is_live(session) {
            return Err(ErrorCode::SessionExpired);
        }
        match *request {
            Request::Delete { path, version } if self.owner(path) != self.owner_of_parent(path) => {
                self.step(attempt, self.owner_of_parent(path), PartOp::Disown { path }, session)?;
                self.step(attempt, self.owner(path), PartOp::DeleteAt { path, version }, session)
            }
            Request::DeleteContainer { path } if self.owner(path) != self.owner_of_parent(path) => {
                let result = self.step(attempt, self.owner(path), PartOp::ReapAt { path }, session)?;
                self.step(attempt, self.owner_of_parent(path), PartOp::Disown { path }, 0)?;
                Ok(result)
            }
            Request::Delete { path, .. }
            | Request::DeleteContainer { path }
            | Request::SetData { path, .. }
            | Request::SetAcl { path, .. }
            | Request::Check { path, .. } => {
                self.step(attempt, self.owner(path), PartOp::Whole(request), session)
            }
            _ => self.create(attempt, request),
        }
    }

    fn create(&mut self, attempt: &mut Attempt, request: &Request<'_>) -> Result<PartResult, ErrorCode> {
        let session = attempt.session;
        let asked = created(request).unwrap().path;
        let path = self.path_to_create(request).unwrap();
        let (home, place) = (self.owner_of_parent(asked), self.owner(&path));
        if place != home {
            let adopted = self.step(attempt, home, PartOp::Adopt(request), session)?;
            assert_eq!(adopted, PartResult::Adopted { path: path.clone() });
        }
        if place != 0 && is_ephemeral(request) {
            self.step(attempt, 0, PartOp::Visit { partition: place as u8 }, session)?;
            self.step(attempt, place, PartOp::RemoteSession { home: 0 }, session)?;
        }
        let op =
            if place == home { PartOp::Whole(request) } else { PartOp::CreateAt { request, path: &path } };
        self.step(attempt, place, op, session)
    }

    fn step(
        &mut self,
        attempt: &mut Attempt,
        partition: usize,
        op: PartOp<'_>,
        session: i64,
    ) -> Result<PartResult, ErrorCode> {
        let Attempt { stamp, session: owner, parts } = attempt;
        let tree = &mut self.members[partition].tree;
        let part = parts.entry(partition).or_insert_with(|| tree.part_begin(*stamp, *owner));
        tree.part_op(part, op, &Caller { session, identities: &[] })
    }

    /// Moves a subtree to another partition, with the watches on it; all of it, or nothing if it is not to be
    /// kept.
    pub(crate) fn relocate(&mut self, path: &str, to: usize, keep: bool) -> Result<(), ErrorCode> {
        let from = self.owner(path);
        self.make_way(&[from, to]);
        // What is no cut goes with what is above it.
        let is_cut = |path: &str| self.owner(path) != self.owner_of_parent(path);
        let kept = self.cuts.iter().filter(|(cut, _)| cut != path && is_cut(cut)).cloned();
        let cuts: Vec<(String, usize)> = kept.chain([(path.into(), to)]).collect();
        let stamp = self.stamp();
        let mut attempt = Attempt { stamp, session: 0, parts: BTreeMap::new() };
        let prepared = self.prepare_move(&mut attempt, path, to, &cuts);
        if prepared.is_err() || !keep {
            for (partition, part) in attempt.parts {
                self.members[partition].tree.part_undo(part);
            }
            return prepared;
        }
        self.keep(attempt);
        self.moved = (stamp.zxid, self.moved.1 + 1);
        let stays = |path: &str| owner(&cuts, self.quotas_follow, path) != to;
        let mut watches = self.members[from].watches.take().unwrap_or_else(|| Watches::new(0));
        let there = self.members[to].watches.get_or_insert_with(|| Watches::new(0));
        let mut moved = watches.recursive_above(path);
        moved.extend(watches.take_below(path, stays));
        for MovedWatch { path, watcher, mode } in moved {
            there.add(&path, watcher, mode);
            // It listens to what stays below it, too.
            let stays = |(cut, at): &(String, usize)| *at == from && cut.starts_with(&path);
            if mode == WatchMode::PersistentRecursive && cuts.iter().any(stays) {
                watches.add(&path, watcher, mode);
            }
        }
        self.members[from].watches = Some(watches);
        self.cuts = cuts;
        for at in [from, to] {
            while self.members[at].apply_next() {}
        }
        Ok(())
    }

    /// Applies what has to be before a move between these: all of theirs, and the last change of any table.
    pub(crate) fn make_way(&mut self, between: &[usize]) {
        for (at, member) in self.members.iter_mut().enumerate() {
            member.apply_to(if between.contains(&at) { i64::MAX } else { self.moved.0 });
        }
    }

    fn prepare_move(
        &mut self,
        attempt: &mut Attempt,
        path: &str,
        to: usize,
        cuts: &[(String, usize)],
    ) -> Result<(), ErrorCode> {
        let give = PartOp::Give { path, limit_bytes: usize::MAX };
        let PartResult::Given { content, sessions, .. } = self.step(attempt, self.owner(path), give, 0)?
        else {
            panic!("it gives nothing");
        };
        self.step(attempt, to, PartOp::Take { path, content: &content }, 0)?;
        if to != 0 {
            self.step(attempt, 0, PartOp::Visits { partition: to as u8, sessions: &sessions }, 0)?;
        }
        if self.has_tables {
            self.prepare_tables(attempt, cuts)?;
        }
        Ok(())
    }

    fn prepare_tables(&mut self, attempt: &mut Attempt, cuts: &[(String, usize)]) -> Result<(), ErrorCode> {
        let wanted = table(cuts);
        for at in 0..self.members.len() {
            let placed = self.members[at].tree.placed();
            let gone = placed.iter().filter(|(path, _)| !wanted.contains_key(*path));
            let gone = gone.map(|(path, _)| (String::from(path), None));
            let come = wanted.iter().filter(|(path, partition)| placed.get(path) != Some(**partition));
            let come = come.map(|(path, partition)| (path.clone(), Some(*partition)));
            let changes: Vec<_> = gone.chain(come).collect();
            self.step(attempt, at, PartOp::Place { changes: &changes }, 0)?;
        }
        Ok(())
    }

    /// Every member's table says where everything is, once all is applied.
    pub(crate) fn assert_tables(&self) {
        let wanted = if self.moved.1 == 0 { BTreeMap::new() } else { table(&self.cuts) };
        for Member { tree, .. } in &self.members {
            let placed = tree.placed();
            let found: BTreeMap<_, _> = placed.iter().map(|(path, at)| (String::from(path), at)).collect();
            assert_eq!((placed.version(), &found), (self.moved.1, &wanted));
        }
    }

    fn keep(&mut self, attempt: Attempt) {
        for (partition, part) in attempt.parts {
            let mut batch = Vec::new();
            let member = &mut self.members[partition];
            member.tree.part_keep(part, &mut batch);
            member.keep(attempt.stamp.zxid, batch);
        }
    }
}

/// Cuts as a table says them.
fn table(cuts: &[(String, usize)]) -> BTreeMap<String, u8> {
    cuts.iter().map(|(path, partition)| (path.clone(), *partition as u8)).collect()
}

fn owner(cuts: &[(String, usize)], quotas_follow: bool, path: &str) -> usize {
    let subject = path.strip_prefix("/zookeeper/quota").filter(|tail| quotas_follow && tail.starts_with('/'));
    let path = subject.unwrap_or(path);
    let holds =
        |cut: &str| path.strip_prefix(cut).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'));
    let held = cuts.iter().filter(|(cut, _)| holds(cut));
    held.max_by_key(|(cut, _)| cut.len()).map_or(0, |(_, partition)| *partition)
}

fn created<'a>(request: &Request<'a>) -> Option<Create<'a>> {
    match *request {
        Request::Create(create)
        | Request::Create2(create)
        | Request::CreateContainer(create)
        | Request::CreateTtl(create) => Some(create),
        _ => None,
    }
}

fn is_ephemeral(request: &Request<'_>) -> bool {
    created(request).is_some_and(|create| {
        matches!(request, Request::Create(_) | Request::Create2(_))
            && CreateMode::from_i32(create.flags).is_some_and(CreateMode::is_ephemeral)
    })
}

/// What a whole tree answers where the parts have this result.
pub(crate) fn answer(result: &PartResult) -> Answer {
    match result.clone() {
        PartResult::Created { path, stat, with_stat } => Answer::Created(path, stat, with_stat),
        PartResult::Deleted => Answer::Deleted,
        PartResult::DataSet { stat } => Answer::DataSet(stat),
        PartResult::AclSet { stat } => Answer::AclSet(stat),
        PartResult::Checked { stat } => Answer::Checked(stat),
        other => panic!("{other:?} is no answer"),
    }
}
