//! Preparing what concerns several partitions: on each a *part*, one update.
//!
//! Whoever leads all the partitions prepares such an operation step by step, now on this partition and
//! now on that one, while nothing else is asked of any. Then all parts are kept, or, when a step was
//! refused, all undone.

use crate::node::ZnodeKind;
use crate::prepare::{
    CreateVariant, Permitted, check_path, check_version, deletable_parent_of, numbered, parent_of,
};
use crate::proposed::{Presence, Projected, Savepoint};
use crate::quota::Usage;
use crate::session::{Contact, OpenSession, PARTITIONS_MAX};
use crate::slab::NONE;
use crate::tree::{Tree, reserved};
use crate::update::{self, CreateOp, Decoder, Op, Update, Updates};
use crate::{Caller, Stamp};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::{Create, CreateMode, ErrorCode, EventKind, PASSWORD_LEN, Request, Stat, path};

/// An update under construction. End it with [`Tree::part_keep`] or [`Tree::part_undo`]: as long as it is
/// there, the tree notes how all can be taken back.
#[must_use]
#[derive(Debug)]
pub struct Part {
    pub(crate) stamp: Stamp,
    session: i64,
    savepoint: Savepoint,
    pub(crate) ops: Vec<u8>,
    count: usize,
    /// So much of `ops` has been noted: see [`Tree::part_note_contents`].
    noted: usize,
    ephemerals: Vec<String>,
}

/// Where a part can be taken back to: see [`Tree::part_mark`].
#[must_use]
#[derive(Debug)]
pub struct Mark {
    savepoint: Savepoint,
    ops: usize,
    count: usize,
    noted: usize,
}

impl Part {
    /// When and as what its update takes place.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// How many operations are in it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of what is in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ops.len()
    }

    /// Says which ephemerals go with the session that it closes, for [`Part::for_each_change`].
    pub fn ends(&mut self, ephemerals: Vec<String>) {
        self.ephemerals = ephemerals;
    }

    /// What it does to znodes, as far as it is prepared: see [`Update::for_each_change`].
    pub fn for_each_change(&self, each: impl FnMut(EventKind, &str)) {
        let mut body = Vec::new();
        update::begin_multi(&mut body, self.count);
        body.extend_from_slice(&self.ops);
        Update::of(self.stamp, self.session, &body).for_each_change(&self.ephemerals, each);
    }
}

/// A step of an operation that concerns several partitions.
///
/// A *cut* is a path whose znode lives, with all below it, on another partition than its parent. There a
/// create is `Adopt` and then `CreateAt`, a delete `Disown` and then `DeleteAt`, in this order, so that
/// the error is the one that a single tree gives. The parent does not know how its child is: what it is
/// told to disown must be found to be deletable on the other side.
///
/// When the update is applied, what a client would be told comes from the znode's side; `Adopt`, `Disown`,
/// `Visit` and `Guest` have no result.
#[derive(Debug, Clone, Copy)]
pub enum PartOp<'a> {
    /// A create, delete, deleteContainer, setData, setACL or check that concerns this partition alone.
    /// An operation of a multi has to go through [`crate::multi_op`] before, here and below.
    Whole(&'a Request<'a>),
    /// The parent's side of this create, with all checks but those for which the znode is needed.
    Adopt(&'a Request<'a>),
    /// The znode's side of this create.
    CreateAt {
        /// The create.
        request: &'a Request<'a>,
        /// The path that the parent's side has found, with the number if it is sequential.
        path: &'a str,
    },
    /// The parent's side of a delete. With [`Caller::SERVER`], as for the ephemerals of a session that
    /// is closed, the parent's ACL does not matter.
    Disown {
        /// The znode.
        path: &'a str,
    },
    /// The znode's side of a delete.
    DeleteAt {
        /// The znode.
        path: &'a str,
        /// The version that it must have, or -1.
        version: i32,
    },
    /// The znode's side of a deleteContainer.
    ReapAt {
        /// The znode.
        path: &'a str,
    },
    /// On the first partition: the part's session owns ephemerals on that other one, see
    /// [`Tree::visited`]. Nothing if that is known.
    Visit {
        /// Below 64.
        partition: u8,
    },
    /// The same of other sessions: what they own moves to that partition.
    Visits {
        /// Below 64.
        partition: u8,
        /// See [`PartResult::Given`].
        sessions: &'a [i64],
    },
    /// On another partition: the part's session is about to own ephemerals here. Nothing if it is known.
    Guest,
    /// The part's session is closed: its ephemerals here are deleted. Where the parent lives elsewhere
    /// ([`Tree::ephemerals_at_cuts`]), it has to disown them.
    CloseSession,
    /// The subtree at a path goes to another partition, without what lives elsewhere by cuts of its own, and
    /// with the quotas on what goes. From then on there is a cut at the path; nobody can see that in the state.
    ///
    /// This and `Take` are for the server alone, each has a part for itself (but for `Visits` and `Place`), and
    /// stands alone: nothing may be outstanding, and nothing may be prepared before it is applied. What is refused:
    /// `OperationTimeout` when something is outstanding, `BadArguments` for the root and what is below
    /// `/zookeeper`, `NoNode` when the znode is not here, `Unimplemented` when a quota that would stay counts it
    /// (one further above, if there is none on the path itself), `MarshallingError` when the content would be
    /// longer than the limit.
    Give {
        /// The znode.
        path: &'a str,
        /// The limit.
        limit_bytes: usize,
    },
    /// A subtree comes from another partition. Where the parent lives here there is no cut any more.
    ///
    /// Refused besides: `NodeExists` when the znode is here, `SystemError` when its parent is here and does
    /// not know it, `SessionExpired` when a session has ended that owns something of it,
    /// `DataInconsistency` when the content cannot be read.
    Take {
        /// The znode.
        path: &'a str,
        /// What the other partition has given: see [`PartResult::Given`].
        content: &'a [u8],
    },
    /// The table of what lives elsewhere than the rule says is changed, see [`crate::Placed`]; its version grows by
    /// one, also when there are no changes.
    ///
    /// This is for the server alone. It may have a part for itself, or follow `Give` or `Take` in theirs. What
    /// is refused: `OperationTimeout` when another change of the table is outstanding, `BadArguments` for a
    /// path that cannot move or is longer than [`crate::PLACED_PATH_BYTES_MAX`], a partition that cannot be, and
    /// when there would be more than [`crate::PLACED_MAX`] exceptions.
    Place {
        /// Paths and their partitions (below 64); None where the rule is to hold again.
        changes: &'a [(String, Option<u8>)],
    },
}

/// What a step comes to once the update is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartResult {
    /// The parent will have a child.
    Adopted {
        /// The child: with the number, if it is sequential.
        path: String,
    },
    /// A znode will be created.
    Created {
        /// Where.
        path: String,
        /// Its Stat.
        stat: Stat,
        /// Whether the reply carries the Stat: for all creates but opcode `create`.
        with_stat: bool,
    },
    /// A znode will be deleted.
    Deleted,
    /// Data will be set.
    DataSet {
        /// The Stat after it.
        stat: Stat,
    },
    /// An ACL will be set.
    AclSet {
        /// The Stat after it.
        stat: Stat,
    },
    /// A version was checked.
    Checked {
        /// The Stat of the znode.
        stat: Stat,
    },
    /// A subtree goes to another partition.
    Given {
        /// For [`PartOp::Take`] there.
        content: Vec<u8>,
        /// The sessions that own ephemerals in it, sorted. If it does not go to the first partition, that one
        /// has to note it: see [`PartOp::Visits`]. Where it goes they become guests with it.
        sessions: Vec<i64>,
    },
    /// Nothing that a client is told.
    Done,
}

pub(crate) type Prepared = Result<PartResult, ErrorCode>;

impl Tree {
    /// Begins a part. Until it is ended, nothing may be asked of this tree but its steps, and what
    /// changes nothing. `session` is the session of all its steps; callers must be that one, or the
    /// server.
    pub fn part_begin(&mut self, stamp: Stamp, session: i64) -> Part {
        let savepoint = self.overlay.savepoint();
        Part { stamp, session, savepoint, ops: Vec::new(), count: 0, noted: 0, ephemerals: Vec::new() }
    }

    /// Prepares a step, which sees those before it.
    ///
    /// # Errors
    /// The error to answer; the step has left no trace, those before it have. `SystemError` for a cut
    /// that is none: the parent of the znode lives here.
    pub fn part_op(&mut self, part: &mut Part, op: PartOp<'_>, caller: &Caller<'_>) -> Prepared {
        debug_assert!(
            [0, Caller::REACTION, part.session].contains(&caller.session),
            "an update has one session"
        );
        self.count_going();
        let before = part.ops.len();
        let prepared = match op {
            PartOp::Whole(request) => self.part_whole(part, request, caller),
            PartOp::Adopt(request) => self.part_adopt(part, request, caller),
            PartOp::CreateAt { request, path } => self.part_create(part, request, path, caller),
            PartOp::Disown { path } => self.part_disown(part, path, caller),
            PartOp::DeleteAt { path, version } => self.part_delete(part, path, version, caller),
            PartOp::ReapAt { path } => {
                let (_, hash, state) = self.permit_reap(path, caller, part.stamp)?;
                self.part_gone(part, path, hash, state)
            }
            PartOp::Visit { partition } => self.part_visit(part, partition),
            PartOp::Visits { partition, sessions } => self.part_visits(part, partition, sessions),
            PartOp::Guest => self.part_guest(part),
            PartOp::Give { path, limit_bytes } => self.part_give(part, path, limit_bytes, caller),
            PartOp::Take { path, content } => self.part_take(part, path, content, caller),
            PartOp::Place { changes } => self.part_place(part, changes, caller),
            PartOp::CloseSession => {
                self.propose_close(part.session, part.stamp, &mut part.ops);
                Ok(PartResult::Done)
            }
        };
        part.count += usize::from(part.ops.len() > before);
        prepared
    }

    /// Ends a part: its update is appended to `batch`, if there is anything in it. It must be applied as
    /// any other.
    pub fn part_keep(&mut self, part: Part, batch: &mut Vec<u8>) {
        let Part { stamp, session, savepoint, ops, count, .. } = part;
        self.overlay.keep(savepoint);
        if count > 0 {
            let start = update::begin(batch, stamp.zxid, stamp.time_ms, session);
            update::begin_multi(batch, count);
            batch.extend_from_slice(&ops);
            update::end(batch, start);
        }
    }

    /// Ends a part as if it had never been.
    pub fn part_undo(&mut self, part: Part) {
        self.undo_to(part.savepoint);
    }

    /// Goes on with an update that was prepared last, and stands at `start` at the end of a batch. It is taken
    /// out of the batch; [`Tree::part_keep`] brings it back with what was added, and it must be ended so.
    ///
    /// # Panics
    /// When there is no update.
    pub fn part_reopen(&mut self, batch: &mut Vec<u8>, start: usize) -> Part {
        let update = Updates::new(&batch[start..]).next().and_then(Result::ok);
        let update = update.expect("it was prepared here");
        let stamp = Stamp { zxid: update.zxid, time_ms: update.time_ms };
        let (count, ops) = update.ops().expect("it was prepared here");
        let (session, ops) = (update.session, ops.to_vec());
        batch.truncate(start);
        let savepoint = self.overlay.savepoint();
        Part { stamp, session, savepoint, ops, count, noted: 0, ephemerals: Vec::new() }
    }

    /// Notes the contents of what is in a part, so that it can be seen in the state as it will be. Those of all that
    /// was prepared before have to be known by then: see [`Tree::note_contents`].
    pub fn part_note_contents(&mut self, part: &mut Part) {
        self.count_going();
        let ops = Decoder { rest: &part.ops[part.noted..] }.ops(part.session);
        let zxid = part.stamp.zxid;
        ops.for_each(|op| self.note_op(zxid, op.expect("it was prepared here"), true));
        part.noted = part.ops.len();
    }

    /// From here on, until [`Tree::part_back`] or [`Tree::part_go_on`], what is added can be taken back.
    pub fn part_mark(&mut self, part: &Part) -> Mark {
        let savepoint = self.overlay.savepoint();
        Mark { savepoint, ops: part.ops.len(), count: part.count, noted: part.noted }
    }

    /// Keeps what was added since the mark.
    pub fn part_go_on(&mut self, mark: Mark) {
        self.overlay.keep(mark.savepoint);
    }

    /// Takes back what was added since the mark.
    pub fn part_back(&mut self, part: &mut Part, mark: Mark) {
        let Mark { savepoint, ops, count, noted } = mark;
        self.undo_to(savepoint);
        part.ops.truncate(ops);
        part.count = count;
        // What was noted since is forgotten, though it may have been done before.
        part.noted = noted;
    }

    /// Paths of the session's ephemerals once everything proposed has been applied, in no particular order.
    #[must_use]
    pub fn ephemerals_to_be(&self, session: i64) -> Vec<String> {
        let kind = ZnodeKind::Ephemeral { session };
        if self.overlay.is_closing(kind) {
            return Vec::new();
        }
        let mut paths: Vec<String> = self.untouched_ephemerals(session).map(|id| self.path_of(id)).collect();
        let touched = self.overlay.owned(session).filter(|(_, state)| state.presence == Presence::Here);
        paths.extend(touched.map(|(path, _)| String::from(path)));
        paths
    }

    /// The session's ephemerals in the applied state that no outstanding update touches.
    pub(crate) fn untouched_ephemerals(&self, session: i64) -> impl Iterator<Item = u32> {
        let first = self.sessions.get(session).map_or(NONE, |session| session.first_ephemeral);
        self.owned_ids(first).filter(|id| {
            let hash = self.nodes[*id].hash;
            !self.overlay.may_touch(hash) || self.overlay.get(&self.path_of(*id), hash).is_none()
        })
    }

    /// The Stat of a znode as it will be; `None` if it will not be here.
    #[must_use]
    pub fn stat_to_be(&self, path: &str) -> Option<Stat> {
        self.project(path, self.hasher.path(path)).map(|_| self.proposed_stat(path))
    }

    /// The path that a create will have: with the number, if it is sequential and the parent will be here.
    /// So who knows the cuts can tell whether it is at one.
    #[must_use]
    pub fn path_to_create<'a>(&self, create: &Create<'a>) -> Cow<'a, str> {
        let is_sequential = CreateMode::from_i32(create.flags).is_some_and(CreateMode::is_sequential);
        let parent = parent_of(create.path).ok().filter(|_| is_sequential);
        match parent.and_then(|parent| self.project(parent, self.hasher.path(parent))) {
            Some(parent) => numbered(create.path, &parent),
            None => Cow::Borrowed(create.path),
        }
    }

    /// Paths of the session's ephemerals whose parents live on other partitions, once everything
    /// proposed has been applied.
    #[must_use]
    pub fn ephemerals_at_cuts(&self, session: i64) -> Vec<String> {
        let kind = ZnodeKind::Ephemeral { session };
        if self.overlay.is_closing(kind) {
            return Vec::new();
        }
        let is_at_cut = |id: &u32| self.nodes[self.nodes[*id].parent].is_absent();
        let untouched = self.untouched_ephemerals(session).filter(is_at_cut);
        let mut paths: Vec<String> = untouched.map(|id| self.path_of(id)).collect();
        let touched = self.overlay.owned(session);
        let touched =
            touched.filter(|(path, state)| state.presence == Presence::Here && self.is_at_cut(path));
        paths.extend(touched.map(|(path, _)| String::from(path)));
        paths
    }

    fn part_whole(&mut self, part: &mut Part, request: &Request<'_>, caller: &Caller<'_>) -> Prepared {
        let start = part.ops.len();
        self.prepare_op(request, caller, part.stamp, &mut part.ops)?;
        let op = Op::decode(&part.ops[start..], part.session).expect("it was just encoded");
        Ok(match op {
            Op::Create(CreateOp { path, with_stat, .. }) => {
                PartResult::Created { path: path.into(), stat: self.proposed_stat(path), with_stat }
            }
            Op::SetData { path, .. } => PartResult::DataSet { stat: self.proposed_stat(path) },
            Op::SetAcl { path, .. } => PartResult::AclSet { stat: self.proposed_stat(path) },
            Op::Check { path } => PartResult::Checked { stat: self.proposed_stat(path) },
            _ => PartResult::Deleted,
        })
    }

    fn part_adopt(&mut self, part: &mut Part, request: &Request<'_>, caller: &Caller<'_>) -> Prepared {
        let (create, variant, _) = CreateVariant::of(request).ok_or(ErrorCode::Unimplemented)?;
        let permitted = self.permit_create(&create, variant, caller, part.stamp)?;
        let Permitted { path, hash, parent_path, parent_hash, parent, .. } = permitted;
        Op::Adopt { path: &path, parent_cversion: parent.cversion }.encode(&mut part.ops);
        let zxid = part.stamp.zxid;
        self.overlay.touch(zxid, parent_path, parent_hash, parent, 1, None);
        self.overlay.touch(zxid, &path, hash, Projected::AWAY, 0, None);
        Ok(PartResult::Adopted { path: path.into_owned() })
    }

    fn part_create(
        &mut self,
        part: &mut Part,
        request: &Request<'_>,
        path: &str,
        caller: &Caller<'_>,
    ) -> Prepared {
        let (create, variant, with_stat) = CreateVariant::of(request).ok_or(ErrorCode::Unimplemented)?;
        let (_, kind) = self.create_kind(&create, variant, caller)?;
        let acl = self.resolve_acl(create.acl, caller)?;
        check_path(path)?;
        let hash = self.hasher.path(path);
        if path == reserved::ROOT || self.is_taken(path, hash) {
            return Err(ErrorCode::NodeExists);
        }
        self.check_cut(path)?;
        self.check_owner(kind)?;
        let data_len = create.data.map_or(0, <[u8]>::len);
        self.reserve_quota(path, Usage { count: 1, bytes: data_len as i64 }, part.stamp.zxid)?;

        let (data, acl) = (create.data, acl.as_deref());
        Op::Create(CreateOp { path, data, acl, kind, parent_cversion: None, with_stat })
            .encode(&mut part.ops);
        self.propose_znode((path, hash), kind, acl, data_len, part.stamp);
        Ok(PartResult::Created { path: path.into(), stat: self.proposed_stat(path), with_stat })
    }

    fn part_disown(&mut self, part: &mut Part, path: &str, caller: &Caller<'_>) -> Prepared {
        let parent = self.permit_delete(path, caller)?;
        let hash = self.hasher.path(path);
        if self.presence(path, hash) != Presence::Away {
            return Err(ErrorCode::NoNode);
        }
        Op::Disown { path }.encode(&mut part.ops);
        self.propose_child_gone(parent, part.stamp);
        let gone = Projected { presence: Presence::Gone, ..Projected::AWAY };
        self.overlay.touch(part.stamp.zxid, path, hash, gone, 0, None);
        Ok(PartResult::Done)
    }

    fn part_delete(&mut self, part: &mut Part, path: &str, version: i32, caller: &Caller<'_>) -> Prepared {
        self.check_session(caller)?;
        deletable_parent_of(path)?;
        let hash = self.hasher.path(path);
        let state = self.project(path, hash).ok_or(ErrorCode::NoNode)?;
        check_version(state.version, version)?;
        if self.will_have_children(path, hash) {
            return Err(ErrorCode::NotEmpty);
        }
        self.part_gone(part, path, hash, state)
    }

    fn part_gone(&mut self, part: &mut Part, path: &str, hash: u32, state: Projected) -> Prepared {
        self.check_cut(path)?;
        Op::DeleteAt { path }.encode(&mut part.ops);
        self.propose_gone((path, hash, state), part.stamp);
        Ok(PartResult::Deleted)
    }

    fn part_visit(&mut self, part: &mut Part, partition: u8) -> Prepared {
        if self.has_visited(part.session, partition)? {
            return Ok(PartResult::Done);
        }
        Op::Visit { partition }.encode(&mut part.ops);
        self.propose_visit(part, part.session, partition);
        Ok(PartResult::Done)
    }

    fn part_visits(&mut self, part: &mut Part, partition: u8, sessions: &[i64]) -> Prepared {
        let mut strangers = Vec::new();
        for session in sessions {
            if !self.has_visited(*session, partition)? {
                strangers.push(session.to_le_bytes());
            }
        }
        if !strangers.is_empty() {
            Op::Visits { partition, sessions: &strangers }.encode(&mut part.ops);
        }
        for session in strangers {
            self.propose_visit(part, i64::from_le_bytes(session), partition);
        }
        Ok(PartResult::Done)
    }

    fn has_visited(&self, session: i64, partition: u8) -> Result<bool, ErrorCode> {
        if partition >= PARTITIONS_MAX {
            return Err(ErrorCode::BadArguments);
        }
        let known = self.proposed_session(session).ok_or(ErrorCode::SessionExpired)?;
        Ok(known.visited & 1 << partition != 0)
    }

    fn propose_visit(&mut self, part: &Part, session: i64, partition: u8) {
        let Some(known) = self.proposed_session(session) else { return };
        let open = OpenSession { visited: known.visited | 1 << partition, ..known };
        self.overlay.touch_session(part.stamp.zxid, session, Some(open));
    }

    fn part_guest(&mut self, part: &mut Part) -> Prepared {
        if self.session_is_live(part.session) {
            return Ok(PartResult::Done);
        }
        if !self.may_live(part.session) {
            return Err(ErrorCode::SessionExpired);
        }
        Op::Guest.encode(&mut part.ops);
        let open = OpenSession { password: [0; PASSWORD_LEN], contact: Contact::default(), visited: 0 };
        self.overlay.touch_session(part.stamp.zxid, part.session, Some(open));
        Ok(PartResult::Done)
    }

    fn check_cut(&self, path: &str) -> Result<(), ErrorCode> {
        if self.is_at_cut(path) { Ok(()) } else { Err(ErrorCode::SystemError) }
    }

    /// Whether the parent of a znode that is, or may be, here will be on another partition: whether the
    /// next above it of which something is known here is away, or nothing is known of any.
    fn is_at_cut(&self, path: &str) -> bool {
        let mut above = path::split(path).into_iter().flat_map(|(parent, _)| self.presences(parent).rev());
        above.find(|presence| *presence != Presence::Gone) != Some(Presence::Here)
    }

    /// The Stat of a znode as it will be. It must be there.
    fn proposed_stat(&self, path: &str) -> Stat {
        let hash = self.hasher.path(path);
        let state = self.project(path, hash).expect("an operation on it was just prepared");
        let (num_children, pzxid) = self.proposed_child_count(path, hash, state.pzxid);
        Stat {
            czxid: state.czxid,
            mzxid: state.mzxid,
            ctime: state.ctime,
            mtime: state.mtime,
            version: state.version,
            cversion: state.cversion.wrapping_mul(2).wrapping_sub(num_children),
            aversion: state.aversion,
            ephemeral_owner: match state.kind {
                ZnodeKind::Ephemeral { session } => session,
                _ => 0,
            },
            data_length: state.data_len as i32,
            num_children,
            pzxid,
        }
    }

    /// How many children a znode will have, and its pzxid. What is noted of that knows nothing of the end of
    /// sessions.
    fn proposed_child_count(&self, path: &str, hash: u32, noted_pzxid: i64) -> (i32, i64) {
        let id = self.lookup_hashed(path, hash);
        // A session that has ended since it was noted may have raised it.
        let applied = id.map_or(0, |id| self.ext_of(&self.nodes[id]).pzxid);
        let going = if self.overlay.is_any_closing() { self.overlay.going.below(path).1 } else { None };
        let pzxid = applied.max(noted_pzxid).max(going.unwrap_or(0));
        (self.child_count_to_be(path, hash) as i32, pzxid)
    }
}
