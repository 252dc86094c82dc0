//! Which steps an operation takes, and on which partitions. How they are found: `replica/plan.rs`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_partition::{ProgramStep, Registration};
use stoa_placement::{FIRST, Placement};
use stoa_tree::{PROGRAMS, PartResult, Refusal, SiteStep};
use stoa_wire::{CreateMode, ErrorCode, MultiResults, Opcode, Request, put};

/// One step, on one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The partition.
    pub partition: u8,
    /// Which operation of a multi it belongs to.
    pub op: usize,
    /// What is to be done.
    pub kind: StepKind,
    /// Whether the client is told what it comes to.
    pub answers: bool,
}

/// What a step does; see [`stoa_tree::PartOp`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepKind {
    /// An operation that concerns the partition alone.
    Whole,
    /// The parent's side of a create.
    Adopt,
    /// The znode's side of a create, at this path.
    CreateAt(String),
    /// The parent's side of a delete.
    Disown {
        /// The znode.
        path: String,
        /// Whether it is the server that deletes it.
        by_server: bool,
    },
    /// The znode's side of a delete.
    DeleteAt {
        /// The znode.
        path: String,
        /// The version that it must have, or -1.
        version: i32,
    },
    /// The znode's side of a deleteContainer.
    ReapAt(String),
    /// The session has ephemerals on this partition.
    Visit(u8),
    /// The session is about to have ephemerals here.
    RemoteSession {
        /// Its home; 0 where there are no sites.
        home: u8,
    },
    /// A change of the site as a whole, as it stands in [`stoa_partition::Asked`].
    Site,
    /// The session ends.
    Close,
    /// A subtree leaves the partition.
    Give(String),
    /// These sessions have ephemerals in it: the first partition notes where they are from now on.
    Visits {
        /// The partition.
        partition: u8,
        /// The sessions.
        sessions: Vec<i64>,
    },
    /// It comes to the partition.
    Take {
        /// The znode that it begins with.
        path: String,
        /// What was given.
        content: Bytes,
    },
    /// A program is registered or deregistered.
    Programs(ProgramStep),
    /// The table of what lives where changes.
    Place(Vec<(String, Option<u8>)>),
    /// Who holds what is above the subtree that moves, where there are sites.
    Mark(Vec<(String, u8)>),
    /// Something is deleted of which all partitions know who holds it.
    Unmark(String),
}

/// An operation, step by step.
pub(crate) struct Plan {
    /// Who has to quiesce, in order.
    pub(crate) partitions: Vec<u8>,
    pub(crate) steps: Vec<Step>,
    /// Who writes a part.
    pub(crate) writers: Vec<u8>,
    pub(crate) opcode: Opcode,
    /// Number of operations, if it is a multi.
    pub(crate) multi: Option<usize>,
    /// And where each of them begins.
    pub(crate) places: Vec<usize>,
    /// Those who quiesce have nothing that is prepared and not applied.
    pub(crate) is_quiet: bool,
    /// Tokens of other sites may be missing for it.
    pub(crate) needs_tokens: bool,
    /// It creates, changes and deletes znodes, and is nothing more to anybody.
    pub(crate) is_of_znodes: bool,
    pub(crate) placement: Placement,
    /// The session that it ends or takes to another connection.
    pub(crate) ends: Option<i64>,
    /// Where the session is at home that asks; 0 where there are no sites.
    pub(crate) home: u8,
    /// For each partition what stands behind its part, where there is something: items of streams between sites.
    pub(crate) behind: Vec<(u8, Bytes)>,
    /// How often sites had been given up by then, see [`stoa_tree::Tree::losses`]: sessions of those are at home elsewhere.
    pub(crate) losses: u32,
    pub(crate) opens: Option<i64>,
}

impl Plan {
    pub(crate) fn new(placement: Placement, opcode: Opcode) -> Self {
        Self {
            partitions: Vec::new(),
            steps: Vec::new(),
            writers: Vec::new(),
            opcode,
            multi: None,
            places: Vec::new(),
            is_quiet: false,
            needs_tokens: false,
            is_of_znodes: false,
            placement,
            ends: None,
            home: 0,
            behind: Vec::new(),
            losses: 0,
            opens: None,
        }
    }

    /// Who has steps takes part, and who has asked: what has come by way of a site may be an operation over one partition
    /// alone (`replica/site_moves.rs`), of which the partition of its client has to tell.
    pub(crate) fn takes_part(&mut self, own: u8, asker: Option<u8>) {
        self.writers = self.steps.iter().map(|step| step.partition).chain(asker).collect();
        self.partitions = self.writers.iter().copied().chain([own]).collect();
        self.partitions.sort_unstable();
        self.partitions.dedup();
    }

    pub(crate) fn everywhere(&mut self) {
        self.partitions = (0..self.placement.partitions()).collect();
        self.writers = self.steps.iter().map(|step| step.partition).collect();
    }

    /// Whether the same request comes to the same with both.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.placement.version() == other.placement.version() && self.steps == other.steps
    }

    /// Whether the partitions stay quiesced until it is applied. Znodes are seen as they will be, so what follows can be
    /// planned and prepared at once. Who speaks for sessions and where their ephemerals are, where subtrees are, and
    /// which programs there are and who has acknowledged them is looked up in what is applied.
    pub(crate) fn holds(&self) -> bool {
        let is_looked_up = |step: &Step| {
            matches!(step.kind, StepKind::Visit(_) | StepKind::RemoteSession { .. } | StepKind::Unmark(_))
        };
        !self.is_of_znodes || self.steps.iter().any(is_looked_up)
    }

    /// Where the operation begins that a step belongs to, if it is one of a multi.
    pub(crate) fn place(&self, step: &Step) -> Option<usize> {
        self.places.get(step.op).copied()
    }

    pub(crate) fn step(&mut self, partition: u8, op: usize, kind: StepKind, answers: bool) {
        self.steps.push(Step { partition, op, kind, answers });
    }

    /// The partition notes it that decides whether it may be; then all others, if it is for these too.
    pub(crate) fn site_step(&mut self, step: &SiteStep<'_>) {
        let (decides, is_for_all) = match step {
            // What was split when it was asked for need not be any more.
            SiteStep::Token { path, .. } => {
                (self.placement.of(path), *path == "/" || self.placement.is_split(path))
            }
            _ => (FIRST, true),
        };
        let others = (0..self.placement.partitions()).filter(|partition| is_for_all && *partition != decides);
        for partition in core::iter::once(decides).chain(others) {
            self.step(partition, 0, StepKind::Site, false);
        }
        self.everywhere();
        self.is_quiet = true;
    }

    /// Every partition notes it, and the session as one that has something there.
    pub(crate) fn registration(&mut self, own: u8, registration: Registration) {
        let placement = self.placement.clone();
        if registration == (Registration::Registers { has_manager: false }) {
            let at_cut = placement.is_cut(PROGRAMS);
            if at_cut {
                self.step(FIRST, 0, StepKind::Programs(ProgramStep::AdoptManager), false);
            }
            self.step(own, 0, StepKind::Programs(ProgramStep::MakeManager { at_cut }), false);
        }
        let others = (0..placement.partitions()).filter(|partition| *partition != FIRST);
        let (op, is_removal) = match registration {
            Registration::Deregisters { op, multi } => {
                self.multi = multi;
                (op, true)
            }
            _ => (0, false),
        };
        for partition in others.filter(|_| !is_removal) {
            self.step(FIRST, 0, StepKind::Visit(partition), false);
            self.step(partition, 0, StepKind::RemoteSession { home: self.home }, false);
        }
        let elsewhere = (0..placement.partitions()).filter(|partition| *partition != own);
        for partition in [own].into_iter().chain(elsewhere) {
            let at_home = partition == own;
            let kind = match registration {
                Registration::Registers { .. } => StepKind::Programs(ProgramStep::Register { at_home }),
                Registration::Deregisters { .. } => StepKind::Programs(ProgramStep::Deregister { at_home }),
                Registration::Acknowledges => StepKind::Whole,
            };
            self.step(partition, op, kind, at_home);
        }
    }

    pub(crate) fn operation(&mut self, op: usize, request: &Request<'_>) {
        let placement = self.placement.clone();
        match *request {
            Request::Create(create)
            | Request::Create2(create)
            | Request::CreateContainer(create)
            | Request::CreateTtl(create) => {
                let mode = CreateMode::from_i32(create.flags);
                let at = placement.of_created(create.path, is_sequential(create.flags));
                if mode.is_some_and(CreateMode::is_ephemeral) && at != FIRST {
                    self.step(FIRST, op, StepKind::Visit(at), false);
                    self.step(at, op, StepKind::RemoteSession { home: self.home }, false);
                }
                let parent = placement.of_parent(create.path);
                if at == parent {
                    self.step(at, op, StepKind::Whole, true);
                } else {
                    self.step(parent, op, StepKind::Adopt, false);
                    self.step(at, op, StepKind::CreateAt(create.path.to_string()), true);
                }
            }
            Request::Delete { path, version } if placement.is_cut(path) => {
                let (path, by_server) = (path.to_string(), false);
                let parent = placement.of_parent(&path);
                self.step(parent, op, StepKind::Disown { path: path.clone(), by_server }, false);
                self.step(placement.of(&path), op, StepKind::DeleteAt { path, version }, true);
            }
            Request::DeleteContainer { path } if placement.is_cut(path) => {
                let (path, by_server) = (path.to_string(), true);
                let parent = placement.of_parent(&path);
                self.step(placement.of(&path), op, StepKind::ReapAt(path.clone()), true);
                self.step(parent, op, StepKind::Disown { path, by_server }, false);
            }
            Request::Delete { path, .. }
            | Request::DeleteContainer { path }
            | Request::SetData { path, .. }
            | Request::SetAcl { path, .. }
            | Request::Check { path, .. } => self.step(placement.of(path), op, StepKind::Whole, true),
            // Whatever else a client may send is for one partition.
            _ => {}
        }
        if let Request::Delete { path, .. } | Request::DeleteContainer { path } = *request
            && self.home != 0
            && placement.is_split(path)
        {
            for partition in 0..placement.partitions() {
                self.step(partition, op, StepKind::Unmark(path.to_string()), false);
            }
        }
    }

    /// A subtree leaves its partition for another one, and every partition notes where it lives from now on.
    pub(crate) fn moving(mut self, path: &str, to: u8, is_of_sites: bool) -> Option<Self> {
        let from = self.placement.of(path);
        self.step(from, 0, StepKind::Give(path.to_string()), false);
        if to != FIRST {
            self.step(FIRST, 0, StepKind::Visits { partition: to, sessions: Vec::new() }, false);
        }
        let content = Bytes::new();
        self.step(to, 0, StepKind::Take { path: path.to_string(), content }, false);
        for partition in 0..self.placement.partitions() {
            self.step(partition, 0, StepKind::Place(self.placement.changes(path, to)), false);
            if is_of_sites {
                self.step(partition, 0, StepKind::Mark(Vec::new()), false);
            }
        }
        self.everywhere();
        self.is_quiet = true;
        Some(self)
    }

    /// What a step came to decides what follows.
    pub(crate) fn follows(&mut self, step: usize, result: &PartResult, at_cuts: Vec<String>) -> bool {
        if let PartResult::Adopted { path } = result
            && let Some(Step { partition, kind: StepKind::CreateAt(at), .. }) = self.steps.get_mut(step + 1)
        {
            at.clone_from(path);
            return self.placement.of(path) == *partition;
        }
        if let PartResult::Given { content: given, sessions: owners, marks: above } = result {
            for step in &mut self.steps {
                match &mut step.kind {
                    StepKind::Visits { sessions, .. } => sessions.clone_from(owners),
                    StepKind::Take { content, .. } => *content = given.clone().into(),
                    StepKind::Mark(marks) => marks.clone_from(above),
                    _ => {}
                }
            }
        }
        for path in at_cuts {
            let partition = self.placement.of_parent(&path);
            self.step(partition, 0, StepKind::Disown { path, by_server: true }, false);
            self.writers.push(partition);
        }
        true
    }

    pub(crate) fn refusal(&self, step: &Step, code: ErrorCode) -> Refusal {
        match self.multi {
            Some(count) => Refusal::Multi { count, failed: step.op, code },
            None => Refusal::Error(code),
        }
    }

    /// What stands behind the part of a partition.
    pub(crate) fn behind(&self, partition: u8) -> Bytes {
        self.behind
            .iter()
            .find(|(of, _)| *of == partition)
            .map(|(_, items)| items.clone())
            .unwrap_or_default()
    }

    /// The session that it is about.
    pub(crate) fn session(&self) -> Option<i64> {
        self.opens.or(self.ends)
    }

    /// The body of the client's reply.
    pub(crate) fn reply(&self, results: &[PartResult]) -> Vec<u8> {
        let mut body = Vec::new();
        // A multi that takes a program away is one step, which stands for all of its operations.
        for result in results.iter().cycle().take(self.multi.unwrap_or(results.len())) {
            match (self.multi, result) {
                (Some(_), PartResult::Created { path, stat, with_stat }) => {
                    MultiResults::created(&mut body, path, with_stat.then_some(stat));
                }
                (Some(_), PartResult::Deleted) => MultiResults::deleted(&mut body),
                (Some(_), PartResult::DataSet { stat }) => MultiResults::data_set(&mut body, stat),
                (Some(_), _) => MultiResults::checked(&mut body),
                (None, PartResult::Created { path, stat, with_stat }) => {
                    put::str(&mut body, path);
                    if *with_stat {
                        stat.encode(&mut body);
                    }
                }
                (None, PartResult::DataSet { stat } | PartResult::AclSet { stat }) => stat.encode(&mut body),
                (None, PartResult::Checked { stat }) => stat.encode(&mut body),
                (None, _) => {}
            }
        }
        if self.multi.is_some() {
            MultiResults::end(&mut body);
        }
        body
    }
}

pub(crate) fn is_sequential(flags: i32) -> bool {
    CreateMode::from_i32(flags).is_some_and(CreateMode::is_sequential)
}
