//! A partition that is quiesced for an operation that concerns others too.

use crate::coordination::Step;
use crate::coordination::participant::Participation;
use crate::coordination::{Decision, Prepared, Quiesced, StepKind, Waiting};
use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_partition::Asked;
use stoa_timeline::{EntryId, Origin};
use stoa_tree::{Caller, PartOp, SiteStep, Stamp, multi_op};
use stoa_wire::{MultiOps, Opcode, Reader, Request};

/// A step of a move, which needs no request.
fn of_move(kind: &StepKind) -> Option<PartOp<'_>> {
    match kind {
        StepKind::Give(path) => Some(PartOp::Give { path, limit_bytes: MOVED_BYTES_MAX }),
        StepKind::Visits { partition, sessions } => Some(PartOp::Visits { partition: *partition, sessions }),
        StepKind::Take { path, content } => Some(PartOp::Take { path, content }),
        StepKind::Place(changes) => Some(PartOp::Place { changes }),
        StepKind::Mark(marks) => Some(PartOp::Mark { marks }),
        _ => None,
    }
}

/// What moves is one entry of the timeline.
const MOVED_BYTES_MAX: usize = 4 << 20;

impl Replica {
    /// A coordinator wants this partition to quiesce.
    pub(crate) fn quiesce_for(&mut self, coordinator: u8, op: u64, is_quiet: bool, asked: Option<Bytes>) {
        self.leader.coordination.waiting.push_back(Waiting { coordinator, op, is_quiet, asked });
        self.try_to_quiesce();
    }

    /// Quiesces for the next coordinator as soon as everything prepared is proposed.
    pub(crate) fn try_to_quiesce(&mut self) {
        if self.leader.coordination.participation.is_some() || self.leader.coordination.waiting.is_empty() {
            return;
        }
        if !self.timeline.leads() {
            for Waiting { coordinator, op, .. } in core::mem::take(&mut self.leader.coordination.waiting) {
                self.say(coordinator, ShardMessage::Quiesced(op, None));
            }
            return;
        }
        self.propose_entry();
        if self.applied.partition.entry_bytes() > 0 {
            return;
        }
        let has_proposed = self.applied.partition.tree().has_proposed();
        // What has come from other sites is proposed, too.
        let is_applied = self.timeline.next_entry().position == self.timeline.applied_at().0 + 1;
        let is_quiet = !has_proposed && (is_applied || !self.is_of_sites());
        let next = self.leader.coordination.waiting.pop_front_if(|next| !next.is_quiet || is_quiet);
        let Some(Waiting { coordinator, op, asked, .. }) = next else { return };
        let lacked = asked.map(|asked| self.lacked_for(&asked)).unwrap_or_default();
        let place = self.timeline.next_entry();
        self.applied.partition.depends_on(&self.applied.stamp);
        let (zxid, rests_on) =
            (self.applied.partition.zxid_seen(), self.applied.partition.rests_on().clone());
        self.leader.coordination.participation =
            Some(Participation { coordinator, op, place, part: None, is_written: false });
        self.say(
            coordinator,
            ShardMessage::Quiesced(op, Some(Box::new(Quiesced { place, zxid, rests_on, lacked }))),
        );
    }

    /// Prepares a step of the operation that this partition is quiesced for. Of a multi only the operation
    /// is looked at that begins at `place`: there may be thousands, and each has its steps.
    pub(crate) fn prepare_step(
        &mut self,
        from: u8,
        op: u64,
        (asked, place): (&Bytes, Option<usize>),
        stamp: Stamp,
        step: &Step,
    ) {
        let is_for =
            |stand: &&mut Participation| stand.op == op && stand.coordinator == from && !stand.is_written;
        let Some(stand) = self.leader.coordination.participation.as_mut().filter(is_for) else { return };
        if let Some(op_of_move) = of_move(&step.kind) {
            let tree = self.applied.partition.tree_mut();
            let (part, _) = stand.part.get_or_insert_with(|| (tree.part_begin(stamp, 0), stamp.zxid));
            let result = tree.part_op(part, op_of_move, &Caller::SERVER);
            return self
                .say(from, ShardMessage::Prepared(op, Box::new(Prepared { result, at_cuts: Vec::new() })));
        }
        if let Ok(Asked::SiteStep(step)) = Asked::decode(asked) {
            return self.prepare_site_step((from, op), stamp, step);
        }
        let Ok(Asked::Write { session, identities, opcode, body, .. }) = Asked::decode(asked) else { return };
        let request = match place {
            Some(place) => MultiOps::op_at(body, place).ok().and_then(multi_op),
            None => Request::decode(opcode, &mut Reader::new(body)).ok(),
        };
        let Some(request) = request else { return };
        let is_end = matches!(step.kind, StepKind::Close);
        let ending = if is_end { self.applied.partition.ending(session) } else { Vec::new() };
        let tree = self.applied.partition.tree_mut();
        let (part, _) = stand.part.get_or_insert_with(|| (tree.part_begin(stamp, session), stamp.zxid));
        if let StepKind::Programs(step) = step.kind {
            let caller = Caller { session, identities: &identities };
            let result = self.applied.partition.program_step(part, &request, &caller, step);
            return self
                .say(from, ShardMessage::Prepared(op, Box::new(Prepared { result, at_cuts: Vec::new() })));
        }
        let mut at_cuts = Vec::new();
        let caller = Caller { session, identities: &identities };
        let (kind, caller) = match &step.kind {
            StepKind::Whole => (PartOp::Whole(&request), caller),
            StepKind::Adopt => (PartOp::Adopt(&request), caller),
            StepKind::CreateAt(path) => (PartOp::CreateAt { request: &request, path }, caller),
            StepKind::Disown { path, by_server: false } => (PartOp::Disown { path }, caller),
            StepKind::Disown { path, .. } => (PartOp::Disown { path }, Caller::SERVER),
            StepKind::DeleteAt { path, version } => (PartOp::DeleteAt { path, version: *version }, caller),
            StepKind::ReapAt(path) => (PartOp::ReapAt { path }, caller),
            StepKind::Unmark(path) => (PartOp::Unmark { path }, caller),
            StepKind::Visit(partition) => (PartOp::Visit { partition: *partition }, caller),
            StepKind::RemoteSession { home } => (PartOp::RemoteSession { home: *home }, caller),
            StepKind::Close => {
                // Where there are sites whoever has the name knows whose it is.
                if tree.own_site().is_none() {
                    at_cuts = tree.ephemerals_at_cuts(session);
                }
                part.ends(ending);
                (PartOp::CloseSession, caller)
            }
            StepKind::Give(_)
            | StepKind::Visits { .. }
            | StepKind::Take { .. }
            | StepKind::Programs(_)
            | StepKind::Site
            | StepKind::Mark(_)
            | StepKind::Place(_) => return,
        };
        let result = tree.part_op(part, kind, &caller);
        self.say(from, ShardMessage::Prepared(op, Box::new(Prepared { result, at_cuts })));
    }

    /// Prepares this partition's part of a change of the site as a whole.
    fn prepare_site_step(&mut self, (from, op): (u8, u64), stamp: Stamp, step: SiteStep<'_>) {
        let session = if let SiteStep::Home { session, .. } = step { session } else { 0 };
        let step = match step {
            SiteStep::Token { path, holder, .. } => {
                let is_home = self.applied.placement.of(path) == self.config.partition;
                SiteStep::Token { path, holder, is_home }
            }
            step => step,
        };
        let Some(stand) = self.leader.coordination.participation.as_mut() else { return };
        let tree = self.applied.partition.tree_mut();
        let (part, _) = stand.part.get_or_insert_with(|| (tree.part_begin(stamp, session), stamp.zxid));
        let result = tree.part_op(part, PartOp::Site(step), &Caller { session, identities: &[] });
        self.say(from, ShardMessage::Prepared(op, Box::new(Prepared { result, at_cuts: Vec::new() })));
    }

    /// The operation is done or undone.
    pub(crate) fn decision(&mut self, from: u8, op: u64, decision: Decision) {
        let is_for = |stand: &Participation| stand.op == op && stand.coordinator == from;
        if !self.leader.coordination.participation.as_ref().is_some_and(is_for) {
            // It waits for its turn, most likely: the coordinator has given up before.
            self.leader
                .coordination
                .waiting
                .retain(|waiting| (waiting.coordinator, waiting.op) != (from, op));
            // What was kept waiting for that goes on.
            return self.go_on_unless_quiesced();
        }
        if let (Some((session, position)), Some(table)) = (decision.session, &mut self.sessions.table) {
            table.is_decided(session, position);
        }
        if decision.places.is_empty() {
            self.undo_part();
            self.go_on();
            self.apply_committed();
        } else {
            self.applied.partition.depends_on(&decision.rests_on);
            self.write_part(None, &decision.places, decision.holds, (&[], &decision.behind));
        }
    }

    /// Undoes what was prepared of the operation.
    fn undo_part(&mut self) {
        if let Some((part, _)) =
            self.leader.coordination.participation.as_mut().and_then(|stand| stand.part.take())
        {
            self.applied.partition.tree_mut().part_undo(part);
        }
    }

    /// Writes this partition's part, alone in an entry. Unless it has to hold until that is applied, the partition goes
    /// on at once: the log has all parts or none, so what is prepared upon one is lost with it, as upon any update.
    pub(crate) fn write_part(
        &mut self,
        origin: Option<Origin>,
        places: &[EntryId],
        holds: bool,
        (reply, behind): (&[u8], &[u8]),
    ) {
        let Some(stand) = &mut self.leader.coordination.participation else { return };
        stand.is_written = true;
        let part = stand.part.take();
        self.applied.partition.put_part(origin, places, reply, part, self.now);
        self.applied.partition.put_site_items(behind);
        self.propose_entry();
        // An entry that is held up has no place yet for what follows.
        if !holds && self.applied.partition.entry_bytes() == 0 {
            self.applied.partition.follow_parts(places);
            self.go_on();
        }
        self.apply_committed();
    }

    /// The partition goes on: for the next coordinator, or with what it was asked meanwhile.
    pub(crate) fn go_on(&mut self) {
        self.leader.coordination.participation = None;
        self.try_to_quiesce();
        self.take_pending();
        self.tend_sites();
    }

    fn go_on_unless_quiesced(&mut self) {
        if self.leader.coordination.participation.is_none() {
            self.try_to_quiesce();
            self.take_pending();
            self.tend_sites();
        }
    }

    /// Some entries were applied.
    pub(crate) fn stand_after(&mut self, position: u64) {
        let stand = self.leader.coordination.participation.as_ref();
        if stand.is_some_and(|stand| stand.is_written && stand.place.position <= position) {
            self.go_on();
        } else {
            self.try_to_quiesce();
        }
    }

    /// This partition is not led here any more.
    pub(crate) fn stop_quiescing(&mut self) {
        self.give_up();
        self.undo_part();
        if let Some(stand) = self.leader.coordination.participation.take()
            && !stand.is_written
        {
            self.say(stand.coordinator, ShardMessage::Quiesced(stand.op, None));
        }
        self.try_to_quiesce();
    }

    /// The coordinator's own part, or what it decides instead of one.
    pub(crate) fn keep_own(
        &mut self,
        origin: Option<Origin>,
        asked: &Bytes,
        (places, holds): (Vec<EntryId>, bool),
        (reply, behind): (&[u8], &[u8]),
    ) {
        let Ok(decoded) = Asked::decode(asked) else { return };
        if let Asked::OpenSession { session, .. } = decoded {
            // It concerns the others only in that they quiesce: what comes from the connection that the
            // session leaves is refused from here on.
            if let Some(origin) = origin {
                // Programs have no part in that.
                let _ = self.applied.partition.propose_asked(origin, &decoded, self.now);
            }
            if self.applied.partition.tree().session_is_changing(session) {
                self.sessions.live.heard_of(session, 0, self.now);
            }
            return self.go_on();
        }
        if let (Asked::Write { session, opcode: Opcode::CloseSession, .. }, true) =
            (&decoded, origin.is_none_or(|origin| origin.site == 0))
        {
            let session = *session;
            self.sessions.live.set_closing(session, true);
        }
        self.write_part(origin, &places, holds, (reply, behind));
    }
}
