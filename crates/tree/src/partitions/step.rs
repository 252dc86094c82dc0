//! Preparing what concerns several partitions: the steps of a part.

use crate::Caller;
use crate::encoding::CreateOp;
use crate::part::Part;
use crate::partitions::ops::PartitionOp;
use crate::partitions::placed::Changes;
use crate::prepare::{CreateVariant, Permitted, check_path, check_version, deletable_parent_of};
use crate::proposed::{Presence, Projected};
use crate::quota::Usage;
use crate::reserved;
use crate::session::{Contact, OpenSession, PARTITIONS_MAX};
use crate::sites::{NO_SITE, SiteId, SiteStep};
use crate::tree::Tree;
use crate::update::Op;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::{CreateMode, ErrorCode, PASSWORD_LEN, Request, Stat};

/// A step of an operation that concerns several partitions.
///
/// A *cut* is a path whose znode lives, with all below it, on another partition than its parent. There a
/// create is `Adopt` and then `CreateAt`, a delete `Disown` and then `DeleteAt`, in this order, so that
/// the error is the one that a single tree gives. The parent does not know how its child is: what it is
/// told to disown must be found to be deletable on the other side.
///
/// When the update is applied, what a client would be told comes from the znode's side; `Adopt`, `Disown`,
/// `Visit` and `RemoteSession` have no result.
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
    RemoteSession {
        /// Its home; 0 where there are no sites.
        home: SiteId,
    },
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
    /// A change of the site as a whole.
    Site(SiteStep<'a>),
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
    /// Where there are sites: the marks of what is above the subtree that moves, see [`PartResult::Given`].
    Mark {
        /// Paths, and who holds what is there.
        marks: &'a [(String, SiteId)],
    },
    /// Where there are sites: a znode is deleted below which something was moved by itself.
    Unmark {
        /// The znode.
        path: &'a str,
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
        /// has to note it: see [`PartOp::Visits`]. Where it goes they become remote sessions with it.
        sessions: Vec<i64>,
        /// The marks of what is above it, where there are sites: each partition has to know them, see [`PartOp::Mark`].
        marks: Vec<(String, SiteId)>,
    },
    /// Nothing that a client is told.
    Done,
}

pub(super) type Prepared = Result<PartResult, ErrorCode>;

impl Tree {
    /// Prepares a step, which sees those before it.
    ///
    /// # Errors
    /// The error to answer; the step has left no trace, those before it have. `SystemError` for a cut
    /// that is none: the parent of the znode lives here.
    pub fn part_op(&mut self, part: &mut Part, op: PartOp<'_>, caller: &Caller<'_>) -> Prepared {
        debug_assert!(
            [0, Caller::REACTION, part.session()].contains(&caller.session),
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
                let (_, hash, state) = self.permit_reap(path, caller, part.stamp())?;
                self.part_gone(part, path, hash, state)
            }
            PartOp::Visit { partition } => self.part_visit(part, partition),
            PartOp::Visits { partition, sessions } => self.part_visits(part, partition, sessions),
            PartOp::RemoteSession { home } => self.part_remote_session(part, home),
            PartOp::Give { path, limit_bytes } => self.part_give(part, path, limit_bytes, caller),
            PartOp::Take { path, content } => self.part_take(part, path, content, caller),
            PartOp::Site(step) => self.part_site(part, step),
            PartOp::Place { changes } => self.part_place(part, changes, caller),
            PartOp::Mark { marks } => {
                for (path, holder) in marks {
                    PartitionOp::Mark { path, holder: *holder }.encode(&mut part.ops);
                    part.count_step(before);
                }
                return Ok(PartResult::Done);
            }
            PartOp::Unmark { path } => {
                PartitionOp::Unmark { path }.encode(&mut part.ops);
                self.mark_will_be_gone(path, part.stamp().zxid);
                Ok(PartResult::Done)
            }
            PartOp::CloseSession => {
                self.propose_close(part.session(), part.stamp(), &mut part.ops);
                Ok(PartResult::Done)
            }
        };
        part.count_step(before);
        prepared
    }

    fn part_whole(&mut self, part: &mut Part, request: &Request<'_>, caller: &Caller<'_>) -> Prepared {
        let start = part.ops.len();
        self.prepare_op(request, caller, part.stamp(), &mut part.ops)?;
        let op = Op::decode_all(&part.ops[start..], part.session()).next();
        Ok(match op.and_then(Result::ok).expect("it was just encoded") {
            Op::Create { create: CreateOp { path, with_stat, .. }, .. } => {
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
        let permitted = self.permit_create(&create, variant, caller, part.stamp())?;
        let Permitted { path, hash, parent_path, parent_hash, parent, .. } = permitted;
        let parent_cversion = parent.cversion;
        let is_ephemeral = CreateMode::from_i32(create.flags).is_some_and(CreateMode::is_ephemeral);
        let adopt = if is_ephemeral && self.sites.are_there() {
            PartitionOp::AdoptOf { path: &path, parent_cversion, owner: part.session() }
        } else {
            PartitionOp::Adopt { path: &path, parent_cversion }
        };
        adopt.encode(&mut part.ops);
        let zxid = part.stamp().zxid;
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
        self.reserve_quota(path, Usage { count: 1, bytes: data_len as i64 }, part.stamp().zxid)?;

        let (data, acl) = (create.data, acl.as_deref());
        PartitionOp::CreateAt(CreateOp { path, data, acl, kind, with_stat }).encode(&mut part.ops);
        self.propose_znode((path, hash), kind, acl, data_len, part.stamp());
        Ok(PartResult::Created { path: path.into(), stat: self.proposed_stat(path), with_stat })
    }

    fn part_disown(&mut self, part: &mut Part, path: &str, caller: &Caller<'_>) -> Prepared {
        let parent = self.permit_delete(path, caller)?;
        let hash = self.hasher.path(path);
        if self.presence(path, hash) != Presence::Away {
            return Err(ErrorCode::NoNode);
        }
        PartitionOp::Disown { path }.encode(&mut part.ops);
        self.propose_child_gone(parent, part.stamp());
        let gone = Projected { presence: Presence::Gone, ..Projected::AWAY };
        self.overlay.touch(part.stamp().zxid, path, hash, gone, 0, None);
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
        PartitionOp::DeleteAt { path }.encode(&mut part.ops);
        self.propose_gone((path, hash, state), part.stamp());
        Ok(PartResult::Deleted)
    }

    fn part_visit(&mut self, part: &mut Part, partition: u8) -> Prepared {
        if self.has_visited(part.session(), partition)? {
            return Ok(PartResult::Done);
        }
        PartitionOp::Visit { partition }.encode(&mut part.ops);
        self.propose_visit(part, part.session(), partition);
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
            PartitionOp::Visits { partition, sessions: &strangers }.encode(&mut part.ops);
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
        self.overlay.touch_session(part.stamp().zxid, session, Some(open));
    }

    fn part_remote_session(&mut self, part: &mut Part, home: SiteId) -> Prepared {
        if self.session_is_live(part.session()) {
            return Ok(PartResult::Done);
        }
        if !self.may_live(part.session()) {
            return Err(ErrorCode::SessionExpired);
        }
        PartitionOp::RemoteSession { home }.encode(&mut part.ops);
        let open = OpenSession { password: [0; PASSWORD_LEN], contact: Contact::default(), visited: 0 };
        self.overlay.touch_session(part.stamp().zxid, part.session(), Some(open));
        // What it owns here is held where it is at home, from now on.
        if home != NO_SITE {
            self.overlay.touch_home(part.stamp().zxid, part.session(), home);
        }
        Ok(PartResult::Done)
    }

    fn part_place(
        &mut self,
        part: &mut Part,
        changes: &[(String, Option<u8>)],
        caller: &Caller<'_>,
    ) -> Prepared {
        if caller.session != 0 {
            return Err(ErrorCode::NoAuth);
        }
        if self.overlay.partitions.is_placing() {
            return Err(ErrorCode::OperationTimeout);
        }
        let mut bytes = Vec::new();
        let changes = Changes::encode(changes, &mut bytes).map_err(|_| ErrorCode::BadArguments)?;
        self.partitions.placed.clone().change(changes).map_err(|_| ErrorCode::BadArguments)?;
        PartitionOp::Place { changes }.encode(&mut part.ops);
        self.overlay.partitions.begin_placing(part.stamp().zxid);
        Ok(PartResult::Done)
    }
}
