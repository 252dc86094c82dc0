//! Which steps an operation takes, and on which partitions.

use crate::coordination::plan::{Plan, Step, StepKind, is_sequential};
use crate::replica::Replica;
use stoa_partition::{Asked, changes_programs};
use stoa_placement::FIRST;
use stoa_timeline::Origin;
use stoa_tree::{Contact, multi_op, writes_programs};
use stoa_wire::{CreateMode, Opcode, Reader, Request};

impl Replica {
    /// The steps of an operation that does not concern this partition alone.
    pub(crate) fn plan(&self, origin: Option<Origin>, asked: &Asked<'_>) -> Option<Plan> {
        let own = self.config.partition;
        let of_here = origin.filter(|origin| origin.site == 0);
        if let (Asked::Write { session, opening, .. }, Some(origin), FIRST) = (asked, of_here, own) {
            // Whoever does not speak for the session is refused as any other is.
            let contact = Contact { server: origin.server, opening: *opening };
            self.applied.partition.check_contact(*session, contact).ok()?;
        }
        let mut plan = Plan::new(self.applied.placement.clone(), Opcode::Multi);
        let (session, opcode, body) = match asked {
            Asked::CreateSession { .. } => return None,
            Asked::Move { path, to } => return plan.moving(path, *to, self.is_of_sites()),
            Asked::SiteStep(step) => {
                plan.site_step(step);
                return Some(plan);
            }
            Asked::SiteItems { items, others } => return self.plan_site_items(plan, items, others),
            Asked::OpenSession { session, .. } => {
                plan.opens = Some(*session);
                plan.everywhere();
                return Some(plan);
            }
            Asked::Write { session, opcode, body, .. } => (*session, *opcode, body),
        };
        plan.opcode = opcode;
        plan.home = self.home_of_asker(origin, session);
        plan.needs_tokens = self.is_of_sites() && opcode != Opcode::CloseSession;
        let request = Request::decode(opcode, &mut Reader::new(body));
        if let Ok(Request::Multi(ops)) = &request {
            plan.places = ops.places().map(|(place, _)| place).collect();
        }
        match request {
            Ok(Request::CloseSession) => return Some(self.plan_end(plan, session)),
            Ok(request) if let Some(registration) = self.applied.partition.registration(&request) => {
                plan.registration(own, registration);
            }
            // Each partition would have to know of it.
            Ok(Request::Multi(ops)) if ops.iter().any(|op| writes_programs(&op)) => return None,
            Ok(Request::Multi(ops)) => {
                plan.multi = Some(ops.len());
                plan.is_of_znodes = true;
                for (index, op) in ops.iter().enumerate() {
                    // One that it cannot have is refused as a whole.
                    plan.operation(index, &multi_op(op)?);
                }
            }
            Ok(request) => {
                plan.is_of_znodes = true;
                plan.operation(0, &request);
            }
            Err(_) => return None,
        }
        let knows_remote = own == FIRST || self.applied.partition.tree().session_is_live(session);
        if knows_remote {
            let is_needless = |step: &Step| match step.kind {
                StepKind::RemoteSession { .. } => step.partition == own,
                StepKind::Visit(partition) => partition == own,
                _ => false,
            };
            plan.steps.retain(|step| !is_needless(step));
        }
        plan.takes_part(own, self.asker_of(origin));
        let is_one = plan.partitions.len() > 1 || origin.is_some_and(|origin| origin.site != 0);
        is_one.then_some(plan)
    }
}

impl Replica {
    /// The steps of the end of a session.
    fn plan_end(&self, mut plan: Plan, session: i64) -> Plan {
        plan.ends = Some(session);
        // Where there are sites each partition has to know that it has ended.
        let visited = match self.is_of_sites() {
            true => !1,
            false => self.applied.partition.tree().visited(session),
        };
        for partition in (1..self.applied.placement.partitions()).filter(|of| visited & (1 << of) != 0) {
            plan.step(partition, 0, StepKind::Close, false);
        }
        plan.step(FIRST, 0, StepKind::Close, true);
        plan.everywhere();
        plan
    }

    /// Whether a request may concern other partitions: then it takes the long way.
    pub(crate) fn concerns_others(&self, session: i64, request: &Request<'_>) -> bool {
        if !self.applied.placement.is_divided() {
            return false;
        }
        let own = self.config.partition;
        if self.applied.partition.is_taken(session, request) {
            return false;
        }
        if changes_programs(request) {
            return true;
        }
        match *request {
            Request::Multi(_) | Request::CloseSession => true,
            Request::Create(create)
            | Request::Create2(create)
            | Request::CreateContainer(create)
            | Request::CreateTtl(create) => {
                let is_ephemeral = CreateMode::from_i32(create.flags).is_some_and(CreateMode::is_ephemeral);
                let is_stranger =
                    !self.has_sessions() && !self.applied.partition.tree().session_is_live(session);
                self.applied.placement.of_created(create.path, is_sequential(create.flags)) != own
                    || (is_ephemeral && is_stranger)
            }
            Request::Delete { path, .. } | Request::DeleteContainer { path } => {
                let placement = &self.applied.placement;
                placement.is_cut(path) || placement.is_split(path) && self.is_of_sites()
            }
            _ => false,
        }
    }
}
