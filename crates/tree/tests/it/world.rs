//! A tree with a log: requests in, results and events out.

use stoa_tree::{
    Caller, Change, Contact, Identity, Observer, OpResult, Options, Refusal, SoftQuota, Stamp, Tree, Updates,
    WatcherId, Watches,
};
use stoa_wire::{
    Acl, AclList, CreateMode, ErrorCode, EventKind, MultiHeader, OPEN_ACL, Opcode, Reader, Request, Stat,
    request::encode,
};

/// What an operation answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Created(String, Stat, bool),
    Deleted,
    DataSet(Stat),
    AclSet(Stat),
    Checked(Stat),
    SessionCreated(i64),
    SessionClosed(i64),
}

/// Notes everything it is told.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) answers: Vec<Answer>,
    pub(crate) changes: Vec<(EventKind, String)>,
    pub(crate) soft: Vec<(String, bool, i64, i64)>,
    pub(crate) watches: Option<Watches>,
    pub(crate) events: Vec<(WatcherId, EventKind, String)>,
}

impl Observer for Notes {
    fn changed(&mut self, change: &Change<'_>) {
        self.changes.push((change.kind, change.path.into()));
        if let Some(watches) = &mut self.watches {
            let events = &mut self.events;
            watches.trigger(change, &mut |watcher, kind, path| events.push((watcher, kind, path.into())));
        }
    }

    fn result(&mut self, result: OpResult<'_>) {
        self.answers.push(match result {
            OpResult::Created { path, stat, with_stat } => Answer::Created(path.into(), stat, with_stat),
            OpResult::Deleted => Answer::Deleted,
            OpResult::DataSet { stat } => Answer::DataSet(stat),
            OpResult::AclSet { stat } => Answer::AclSet(stat),
            OpResult::Checked { stat } => Answer::Checked(stat),
            OpResult::SessionOpened { session, .. } => Answer::SessionCreated(session),
            OpResult::SessionClosed { session } => Answer::SessionClosed(session),
        });
    }

    fn quota_exceeded_softly(&mut self, quota: &SoftQuota<'_>) {
        self.soft.push((quota.prefix.into(), quota.bytes, quota.limit, quota.usage));
    }
}

/// A request that owns its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) opcode: Opcode,
    pub(crate) body: Vec<u8>,
}

impl Frame {
    fn new(opcode: Opcode, encode: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut body = Vec::new();
        encode(&mut body);
        Self { opcode, body }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        Request::decode(self.opcode, &mut Reader::new(&self.body)).unwrap()
    }
}

pub(crate) fn create(path: &str, data: &[u8], mode: CreateMode) -> Frame {
    create_acl(path, data, mode, OPEN_ACL)
}

pub(crate) fn create_acl(path: &str, data: &[u8], mode: CreateMode, acl: &[Acl<'_>]) -> Frame {
    let opcode = if mode == CreateMode::Container { Opcode::CreateContainer } else { Opcode::Create };
    Frame::new(opcode, |out| encode::create(out, path, Some(data), acl, mode as i32, None))
}

pub(crate) fn create_raw(opcode: Opcode, path: &str, flags: i32, ttl_ms: Option<i64>) -> Frame {
    Frame::new(opcode, |out| encode::create(out, path, Some(b""), OPEN_ACL, flags, ttl_ms))
}

pub(crate) fn delete(path: &str, version: i32) -> Frame {
    Frame::new(Opcode::Delete, |out| encode::path_version(out, path, version))
}

pub(crate) fn delete_container(path: &str) -> Frame {
    Frame::new(Opcode::DeleteContainer, |out| encode::path(out, path))
}

pub(crate) fn set(path: &str, data: &[u8], version: i32) -> Frame {
    Frame::new(Opcode::SetData, |out| encode::set_data(out, path, Some(data), version))
}

pub(crate) fn set_null(path: &str) -> Frame {
    Frame::new(Opcode::SetData, |out| encode::set_data(out, path, None, -1))
}

pub(crate) fn set_acl(path: &str, acl: &[Acl<'_>], version: i32) -> Frame {
    Frame::new(Opcode::SetAcl, |out| encode::set_acl(out, path, acl, version))
}

pub(crate) fn check(path: &str, version: i32) -> Frame {
    Frame::new(Opcode::Check, |out| encode::path_version(out, path, version))
}

pub(crate) fn multi(ops: &[Frame]) -> Frame {
    Frame::new(Opcode::Multi, |out| {
        for op in ops {
            MultiHeader { opcode: op.opcode as i32, done: false, err: -1 }.encode(out);
            out.extend_from_slice(&op.body);
        }
        MultiHeader::END.encode(out);
    })
}

/// A tree, the log of its updates, and a clock.
pub(crate) struct World {
    pub(crate) tree: Tree,
    pub(crate) log: Vec<Vec<u8>>,
    pub(crate) applied: usize,
    /// Of so many the tree has been told what is in them.
    pub(crate) noted: usize,
    pub(crate) zxid: i64,
    pub(crate) now_ms: i64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        Self { tree: Tree::new(options), log: Vec::new(), applied: 0, noted: 0, zxid: 0, now_ms: 1_000 }
    }

    pub(crate) fn stamp(&mut self) -> Stamp {
        self.zxid += 1;
        self.now_ms += 10;
        Stamp { zxid: self.zxid, time_ms: self.now_ms }
    }

    /// Prepares, and leaves the update in the log.
    pub(crate) fn propose_as(
        &mut self,
        frame: &Frame,
        session: i64,
        identities: &[Identity],
    ) -> Result<(), Refusal> {
        let stamp = self.stamp();
        let mut batch = Vec::new();
        let prepared =
            self.tree.prepare(&frame.request(), &Caller { session, identities }, stamp, &mut batch);
        if prepared.is_ok() {
            self.log.push(batch);
        } else {
            assert!(batch.is_empty(), "a refused request leaves nothing in the batch");
        }
        prepared
    }

    pub(crate) fn propose(&mut self, frame: &Frame, session: i64) -> Result<(), Refusal> {
        self.propose_as(frame, session, &[])
    }

    pub(crate) fn propose_session(&mut self, session: i64) {
        let stamp = self.stamp();
        let mut batch = Vec::new();
        self.tree
            .prepare_create_session(
                session,
                5_000,
                [session as u8; 16],
                Contact::default(),
                stamp,
                &mut batch,
            )
            .unwrap();
        self.log.push(batch);
    }

    pub(crate) fn propose_close(&mut self, session: i64) {
        let stamp = self.stamp();
        let mut batch = Vec::new();
        self.tree.prepare_close_session(session, stamp, &mut batch);
        self.log.push(batch);
    }

    /// Lets the tree be read as it will be.
    pub(crate) fn note_contents(&mut self) {
        for batch in &self.log[self.noted.max(self.applied)..] {
            for update in Updates::new(batch) {
                self.tree.note_contents(&update.unwrap()).unwrap();
            }
        }
        self.noted = self.log.len();
    }

    /// Applies the next update of the log.
    pub(crate) fn apply_next(&mut self, notes: &mut Notes) -> bool {
        let Some(batch) = self.log.get(self.applied) else {
            return false;
        };
        for update in Updates::new(batch) {
            self.tree.apply(&update.unwrap(), notes).unwrap();
        }
        self.applied += 1;
        true
    }

    /// Applies all that is in the log.
    pub(crate) fn apply_all(&mut self) -> Notes {
        let mut notes = Notes::default();
        while self.apply_next(&mut notes) {}
        assert_eq!(self.tree.digest(), self.tree.recomputed_digest());
        notes
    }

    /// Prepares and applies.
    pub(crate) fn ask_as(
        &mut self,
        frame: &Frame,
        session: i64,
        identities: &[Identity],
    ) -> Result<Notes, Refusal> {
        self.propose_as(frame, session, identities)?;
        Ok(self.apply_all())
    }

    pub(crate) fn ask(&mut self, frame: &Frame) -> Result<Notes, ErrorCode> {
        self.ask_as(frame, 0, &[]).map_err(|refusal| match refusal {
            Refusal::Error(code) => code,
            Refusal::Multi { .. } => panic!("not a multi"),
        })
    }

    /// Expects success.
    pub(crate) fn must(&mut self, frame: &Frame) -> Notes {
        self.ask(frame).unwrap()
    }

    pub(crate) fn stat(&self, path: &str) -> Stat {
        self.tree.get(path).unwrap_or_else(|| panic!("{path} does not exist")).stat()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.tree.get(path).is_some()
    }

    pub(crate) fn children(&self, path: &str) -> Vec<String> {
        self.tree.get(path).unwrap().children().map(String::from).collect()
    }
}

pub(crate) fn code(refused: Result<(), Refusal>) -> ErrorCode {
    match refused {
        Err(Refusal::Error(code)) => code,
        other => panic!("{other:?} is not a plain error"),
    }
}

pub(crate) fn identity(scheme: &str, id: &str) -> Identity {
    Identity { scheme: scheme.into(), id: id.into() }
}

/// An ACL as a list of owned entries.
pub(crate) fn acl_of(list: AclList<'_>) -> Vec<(i32, String, String)> {
    list.iter().map(|entry| (entry.perms, entry.scheme.into(), entry.id.into())).collect()
}
