//! Operations that concern several partitions (AGORA, section IV-E): creates and deletes right below the
//! root, a multi with paths of several partitions, a session's end or its coming to another connection.
//!
//! All partitions are led by threads of one server. The thread that has such a request (the
//! *coordinator*) asks every partition concerned to quiesce, in the order of their numbers, so that no
//! two coordinators wait for each other. A partition is quiesced when everything that it has prepared is
//! proposed; it says where its next entry will be. Then the operation is prepared step by step, each step
//! on its partition, and kept by all of them or undone by all of them. Each writes its part, alone in an
//! entry that names the places of all parts. The parts follow one another, so the log that all share holds all of them
//! or none ([`stoa_timeline`]); what is prepared next rests on them. Only where sessions, programs and subtrees change
//! their places, the partitions prepare nothing further until the parts are applied.

use crate::coordination::participant::Participation;
use crate::coordination::plan::Plan;
use crate::coordination::{Active, Decision, Pending, Prepared, Quiesced};
use crate::replica::Replica;
use crate::session_table::Known;
use crate::shard_message::ShardMessage;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_partition::{Asked, zxid_beyond_lost};
use stoa_placement::FIRST;
use stoa_timeline::Origin;
use stoa_tree::{LackedTokens, Refusal, SiteStep};
use stoa_wire::{ErrorCode, Timestamp};

/// Whether the site itself has asked for it, or another one.
pub(super) fn is_of_site(origin: Option<Origin>, asked: &Asked<'_>) -> bool {
    origin.is_some_and(|origin| origin.site != 0)
        || matches!(asked, Asked::SiteStep(_) | Asked::SiteItems { .. })
}

impl Replica {
    /// Whether this partition has written its part of an operation, and is quiesced until that is applied; or the
    /// log has been given such parts.
    #[must_use]
    pub fn has_written_part(&self) -> bool {
        self.leader.coordination.participation.as_ref().is_some_and(Participation::is_written)
            || self.timeline.is_urgent()
    }

    /// Begins an operation over several partitions.
    pub(super) fn coordinate(
        &mut self,
        origin: Option<Origin>,
        asked: &Bytes,
        decoded: &Asked<'_>,
        plan: Plan,
    ) {
        let mut seen = Timestamp::new(self.applied.placement.partitions());
        if let Asked::Write { after, .. } = decoded {
            seen.merge(&after.seen);
        }
        if origin.is_some_and(|origin| origin.site != 0) {
            seen.raise_zxid(self.newest_known());
        }
        self.leader.coordination.next += 1;
        let id = self.leader.coordination.next;
        self.leader.coordination.active = Some(Active {
            id,
            origin,
            asked: asked.clone(),
            seen,
            plan,
            standing: Vec::new(),
            is_of_site: is_of_site(origin, decoded),
            step: 0,
            results: Vec::new(),
            zxid: 0,
            now: self.now,
        });
        self.quiesce_next();
    }

    fn quiesce_next(&mut self) {
        let Some(active) = &self.leader.coordination.active else { return };
        let next = active.plan.partitions.get(active.standing.len()).copied();
        match next {
            Some(partition) => {
                let is_quiet = active.plan.is_quiet;
                let asked = active.plan.needs_tokens.then(|| active.asked.clone());
                let message = ShardMessage::Quiesce { op: active.id, is_quiet, asked };
                self.say(partition, message);
            }
            None => self.begin_steps(),
        }
    }

    /// A partition is quiesced for an operation, or cannot because it does not lead.
    pub(crate) fn quiesced(&mut self, from: u8, op: u64, standing: Option<Quiesced>) {
        let Some(active) = self.leader.coordination.active.as_mut().filter(|active| active.id == op) else {
            // It was given up meanwhile.
            if standing.is_some() {
                self.say(from, ShardMessage::Decision(op, Box::new(Decision::undone())));
            }
            return;
        };
        // It is tried again; the request has not been answered.
        let Some(standing) = standing else { return self.give_up() };
        active.standing.push(standing);
        if from == self.config.partition && !self.is_as_planned() {
            self.give_up();
        } else {
            self.quiesce_next();
        }
    }

    /// Whether the operation under way would be planned now as it was before this partition was quiesced, from where
    /// on it stays so: meanwhile subtrees may have moved, and its session may have gone to another connection, or have
    /// got its first ephemeral on a partition that then has to be asked to end it.
    fn is_as_planned(&self) -> bool {
        let Some(active) = &self.leader.coordination.active else { return false };
        let Ok(asked) = Asked::decode(&active.asked) else { return false };
        if let Asked::SiteItems { .. } = asked {
            let (plan, tree) = (&active.plan, self.applied.partition.tree());
            return plan.placement.version() == self.applied.placement.version()
                && plan.losses == tree.losses();
        }
        let of_here = active.origin.filter(|origin| origin.site == 0);
        let speaks = of_here.is_none_or(|origin| self.knows(origin, &asked) == Known::Yes);
        speaks && self.plan(active.origin, &asked).is_some_and(|plan| plan.is_like(&active.plan))
    }

    /// Lets everybody go on who is quiesced for the operation under way.
    pub(crate) fn give_up(&mut self) {
        let Some(active) = self.leader.coordination.active.take() else { return };
        for standing in &active.standing {
            self.say(
                standing.place.partition,
                ShardMessage::Decision(active.id, Box::new(Decision::undone())),
            );
        }
    }

    /// The request whose operation has come to its end.
    pub(super) fn pop_operation(&mut self, is_of_site: bool) -> Option<Pending> {
        match is_of_site {
            true => self.leader.coordination.operations.pop(),
            false => self.leader.pending.pop_front(),
        }
    }

    fn begin_steps(&mut self) {
        let Some(active) = &self.leader.coordination.active else { return };
        if !self.is_wanted(active.origin) {
            return self.give_up();
        }
        let Some(active) = &mut self.leader.coordination.active else { return };
        let mut lacked = LackedTokens::default();
        active.standing.iter_mut().for_each(|it| lacked.merge(core::mem::take(&mut it.lacked)));
        if !lacked.is_none() {
            return self.operation_lacks(lacked);
        }
        // Its client may have come from a partition that has no share in it.
        let standing = active.standing.iter().map(|standing| standing.zxid);
        let mut before = standing.fold(active.seen.zxid(), i64::max);
        if let Ok(Asked::SiteStep(SiteStep::Reign { reign, lost: 1.., .. })) = Asked::decode(&active.asked) {
            before = zxid_beyond_lost(before, reign);
        }
        active.zxid = self.applied.partition.zxid_after(before);
        self.next_step();
    }

    fn next_step(&mut self) {
        let Some(active) = &self.leader.coordination.active else { return };
        let Some(step) = active.plan.steps.get(active.step) else { return self.keep() };
        let message = ShardMessage::Prepare {
            op: active.id,
            asked: active.asked.clone(),
            place: active.plan.place(step),
            zxid: active.zxid,
            time_ms: active.now.wall_ms,
            step: Box::new(step.clone()),
        };
        self.say(step.partition, message);
    }

    /// A step has been prepared, or refused.
    pub(crate) fn step_prepared(&mut self, op: u64, step_prepared: Prepared) {
        let Some(active) = self.leader.coordination.active.as_mut().filter(|active| active.id == op) else {
            return;
        };
        let Some(step) = active.plan.steps.get(active.step).cloned() else { return };
        match step_prepared.result {
            Ok(result) => {
                if !active.plan.follows(active.step, &result, step_prepared.at_cuts) {
                    // Its number has grown so large that it would live where nobody looks for it.
                    let refusal = active.plan.refusal(&step, ErrorCode::SystemError);
                    return self.refuse_crossing(refusal);
                }
                active.results.extend((step.answers).then_some(result));
                active.step += 1;
                self.next_step();
            }
            Err(code) => {
                let refusal = active.plan.refusal(&step, code);
                self.refuse_crossing(refusal);
            }
        }
    }

    fn refuse_crossing(&mut self, refusal: Refusal) {
        let Some((origin, is_of_site)) =
            self.leader.coordination.active.as_ref().map(|active| (active.origin, active.is_of_site))
        else {
            return;
        };
        self.give_up();
        // The partitions go on, this one among them, and the answer is the next item of its timeline.
        let pending = self.pop_operation(is_of_site);
        if let Some(origin) = origin
            && pending.as_ref().is_some_and(|pending| self.has_gone_before(&pending.asked))
        {
            return self.is_to_be_looked_at(origin);
        }
        match origin {
            Some(origin) => self.applied.partition.propose_refusal(origin, refusal),
            None => self.server_is_refused(pending, refusal),
        }
    }

    /// All steps are prepared: every partition writes its part.
    fn keep(&mut self) {
        let term = self.timeline.term();
        if self.leader.coordination.active.iter().flat_map(|it| &it.standing).any(|it| it.place.term != term)
        {
            // Somebody has heard earlier or later than this partition that the term is another one: not all of the
            // parts would come to be.
            return self.give_up();
        }
        let Some(active) = self.leader.coordination.active.take() else { return };
        self.pop_operation(active.is_of_site);
        let own = self.config.partition;
        let writers = &active.plan.writers;
        let is_writer = |partition: u8| partition == own || writers.contains(&partition);
        let places = active.standing.iter().map(|standing| standing.place);
        let places: Vec<_> = places.filter(|place| is_writer(place.partition)).collect();
        let first = active.standing.iter().find(|standing| standing.place.partition == FIRST);
        let session = active.plan.session().zip(first.map(|standing| standing.place.position));
        let holds = active.plan.holds();
        let mut rests_on = active.seen;
        active.standing.iter().for_each(|standing| rests_on.merge(&standing.rests_on));
        for standing in &active.standing {
            let partition = standing.place.partition;
            if partition == own {
                continue;
            }
            let places = if is_writer(partition) { places.clone() } else { Vec::new() };
            self.say(
                partition,
                ShardMessage::Decision(
                    active.id,
                    Box::new(Decision {
                        places,
                        rests_on: rests_on.clone(),
                        holds,
                        session,
                        behind: active.plan.behind(partition),
                    }),
                ),
            );
        }
        let stand = self.leader.coordination.participation.as_ref();
        if active.step > 0 && stand.is_none_or(|stand| stand.part.is_none()) {
            // Its zxid is one of this partition, which has no share in it, and must not give it again.
            rests_on.raise_zxid(active.zxid);
        }
        self.applied.partition.depends_on(&rests_on);
        let reply = active.plan.reply(&active.results);
        self.is_kept(&active.asked);
        self.operation_is_kept(active.origin, &active.asked);
        if let Ok(Asked::SiteItems { items, .. }) = Asked::decode(&active.asked) {
            self.homes_are_proposed(items);
        }
        let behind = active.plan.behind(own);
        self.keep_own(active.origin, &active.asked, (places, holds), (&reply, &behind));
    }
}
