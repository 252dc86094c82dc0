//! The gate at the leader: what becomes of a request that contact servers have asked, in the order in which they
//! asked. It is prepared, refused, given back to be asked elsewhere, made an operation over several partitions, or
//! has to wait.

use crate::coordination::Pending;
use crate::coordination::plan::Plan;
use crate::replica::Replica;
use crate::replica::coordination::is_of_site;
use crate::replica::sites::Destination;
use crate::session_table::Known;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use bytes::Bytes;
use stoa_front::ConnectionId;
use stoa_partition::Asked;
use stoa_placement::MoveRefusal;
use stoa_timeline::Origin;
use stoa_tree::{Caller, Contact, LackedTokens, Refusal};
use stoa_wire::{ErrorCode, Opcode, Reader, Request};

/// What becomes of a request at the leader.
enum Judgement {
    Prepare,
    /// It waits, and all that was asked behind it.
    Wait(Until),
    Refuse(Refusal),
    /// It asks for a move that cannot be.
    RefuseMove(MoveRefusal),
    /// By the table that it came by it does not belong here: it is asked elsewhere.
    WrongPartition(Origin),
    /// It is an operation over several partitions.
    Coordinate(Box<Plan>),
    /// What it needs is at another site, or its session waits for that: see [`Destination`].
    Forward {
        here: bool,
    },
}

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The operation over several partitions that is under way here has come to its end.
    Coordinated,
    /// The first partition has told what has become of its session.
    SessionIsTold,
    /// What its session has registered or acknowledged is applied.
    ProgramsAreApplied,
    /// This server knows that its site has joined the others.
    HasJoined,
    /// No other site can take the hub's place now.
    HubHasLease,
}

impl Replica {
    /// Requests of a contact server, with the number of the first.
    pub(crate) fn take_asked(&mut self, server: u8, first: u64, asked: &[Bytes]) {
        for (request, asked) in (first..).zip(asked) {
            let origin = Origin { server, request, site: 0 };
            self.close_large_entry();
            if !self.leader.pending.is_empty() || !self.take_one(Some(origin), asked) {
                self.leader.pending.push_back(Pending { origin: Some(origin), asked: asked.clone() });
            }
        }
    }

    /// Takes what had to wait, as far as it need not any more.
    pub(crate) fn take_pending(&mut self) {
        self.take_operations();
        while self.timeline.leads()
            && let Some(Pending { origin, asked }) = self.leader.pending.front().cloned()
        {
            if !self.take_one(origin, &asked) {
                return;
            }
            self.leader.pending.pop_front();
        }
    }

    /// Takes a request, unless it has to wait.
    pub(super) fn take_one(&mut self, origin: Option<Origin>, bytes: &Bytes) -> bool {
        let Ok(asked) = Asked::decode(bytes) else {
            if self.is_busy() {
                return false;
            }
            // There must be an outcome, or the stream would end here.
            self.refuse_asked(origin, ErrorCode::MarshallingError.into());
            return true;
        };
        match self.judge(origin, &asked) {
            Judgement::Prepare => {
                if let Asked::SiteItems { items, .. } = asked {
                    self.applied.partition.put_site_items(items);
                    self.homes_are_proposed(items);
                    return true;
                }
                if self.prepare_asked(origin, &asked).is_err() {
                    // Programs need tokens for it that are elsewhere; nothing of its session waits.
                    let here = self.is_between_reigns();
                    self.forward(origin, here, &asked, bytes);
                }
            }
            Judgement::Wait(until) => {
                match until {
                    Until::SessionIsTold => self.wait_for_session(&asked),
                    Until::HasJoined => self.leader.waits_to_join = true,
                    Until::Coordinated | Until::ProgramsAreApplied | Until::HubHasLease => {}
                }
                return false;
            }
            Judgement::Refuse(refusal) => self.refuse_asked(origin, refusal),
            Judgement::RefuseMove(refusal) => self.move_refused(&asked, refusal),
            Judgement::WrongPartition(origin) => self.applied.partition.propose_elsewhere(origin),
            Judgement::Forward { here } => self.forward(origin, here, &asked, bytes),
            Judgement::Coordinate(plan) => {
                // It is asked again when it is done, or given up.
                self.coordinate(origin, bytes, &asked, *plan);
                return false;
            }
        }
        true
    }

    /// The gate: every request passes it once when it is taken, and again for as long as it has to wait. What comes in
    /// here at the leader itself need not come by way of it if [`Replica::admits_at_once`].
    fn judge(&mut self, origin: Option<Origin>, asked: &Asked<'_>) -> Judgement {
        if self.is_busy() {
            return Judgement::Wait(Until::Coordinated);
        }
        if is_of_site(origin, asked) {
            return match self.plan(origin, asked) {
                Some(plan) => Judgement::Coordinate(Box::new(plan)),
                None => Judgement::Prepare,
            };
        }
        // A contact server may have applied that before the leader: it would be prepared as if there were no sites.
        if !self.has_joined() {
            return Judgement::Wait(Until::HasJoined);
        }
        if let Some(judgement) = self.judge_as_site(origin, asked) {
            return judgement;
        }
        match origin.map_or(Known::Yes, |origin| self.knows(origin, asked)) {
            Known::NotYet => return Judgement::Wait(Until::SessionIsTold),
            Known::No(code) => return Judgement::Refuse(code.into()),
            Known::Yes => {}
        }
        if let (Some(origin), Asked::Write { after, .. }) = (origin, asked)
            && after.placed != self.applied.placement.version()
        {
            return Judgement::WrongPartition(origin);
        }
        // What a session asks behind a registration or acknowledgement of its own is prepared with it.
        if let Asked::Write { session, .. } = asked
            && self.applied.partition.extensions().is_changing(*session)
        {
            return Judgement::Wait(Until::ProgramsAreApplied);
        }
        let destination = origin.map_or(Destination::Here, |_| self.destination_of(asked));
        if destination != Destination::Here {
            // What comes from where the session's client was must not wait among what it asks at its new site: each
            // could wait for the other there.
            return match origin.and_then(|origin| self.speaks_no_more(origin, asked)) {
                Some(code) => Judgement::Refuse(code.into()),
                None => Judgement::Forward { here: destination == Destination::HereLater },
            };
        }
        if let Asked::Move { path, to } = asked
            && let Err(refusal) = self.applied.placement.check_move(path, *to)
        {
            return Judgement::RefuseMove(refusal);
        }
        if !self.applied.placement.is_divided() {
            return Judgement::Prepare;
        }
        match origin.and_then(|_| self.take_of_programs(asked)) {
            Some(Ok(())) => Judgement::Prepare,
            Some(Err(refusal)) => Judgement::Refuse(refusal),
            None => match self.plan(origin, asked) {
                Some(plan) => Judgement::Coordinate(Box::new(plan)),
                None => Judgement::Prepare,
            },
        }
    }

    /// What becomes of a request because the hub has no lease, or its session is at home elsewhere.
    fn judge_as_site(&self, origin: Option<Origin>, asked: &Asked<'_>) -> Option<Judgement> {
        let Asked::Write { session, after, .. } = asked else { return None };
        if let Some(session) = Self::ends_by_itself(origin, asked) {
            // It may have waited while its session has gone, or while this site was none. It needs no lease, as it needs no
            // token; and it is found once only.
            return (!self.is_to_be_at_home(session))
                .then(|| Judgement::Refuse(ErrorCode::SessionMoved.into()));
        }
        // What its session has asked before may wait still: then it comes behind that.
        match self.has_missed_lease() {
            _ if self.holds_lease() => None,
            true if self.has_under_way(*session) => None,
            // A read before it goes back to its front, and its answer must not overtake that.
            true if after.placed < self.applied.placement.version() => origin.map(Judgement::WrongPartition),
            true => Some(Judgement::Refuse(ErrorCode::OperationTimeout.into())),
            false => Some(Judgement::Wait(Until::HubHasLease)),
        }
    }

    /// The session that this server ends by itself, as that is silent.
    fn ends_by_itself(origin: Option<Origin>, asked: &Asked<'_>) -> Option<i64> {
        match asked {
            Asked::Write { session, opcode: Opcode::CloseSession, .. } if origin.is_none() => Some(*session),
            _ => None,
        }
    }

    /// Whether a session is at home here, once everything proposed has been applied.
    fn is_to_be_at_home(&self, session: i64) -> bool {
        let tree = self.applied.partition.tree();
        tree.own_site().is_none_or(|own| tree.home_to_be(session) == own)
    }

    /// Whether a request that has come in here is prepared here and now: this server leads, nothing that was asked before
    /// waits, the session is known, and nobody else is concerned. What is not admitted at once is asked of the leader
    /// like requests of other servers, and passes the gate there. Its tokens may be known to be here.
    #[inline]
    pub(crate) fn admits_at_once(
        &mut self,
        id: ConnectionId,
        session: i64,
        request: &Request<'_>,
        is_held: bool,
    ) -> bool {
        self.can_prepare()
            && self.is_known(id)
            && !self.concerns_others(session, request)
            && self.holds_lease()
            && !(self.is_of_sites() && self.applied.partition.may_run(session, request))
            && self.destination(session, request, is_held) == Destination::Here
    }

    /// Why a contact server does not speak for the session whose client it has.
    fn speaks_no_more(&self, origin: Origin, asked: &Asked<'_>) -> Option<ErrorCode> {
        let Asked::Write { session, opening, .. } = asked else { return None };
        if !self.has_sessions() {
            // What the first partition has told of it was looked at before.
            return None;
        }
        let contact = Contact { server: origin.server, opening: *opening };
        self.applied.partition.check_contact(*session, contact).err()
    }

    /// A request becomes one of this site, among all of them.
    pub(super) fn forward(&mut self, origin: Option<Origin>, here: bool, asked: &Asked<'_>, bytes: &[u8]) {
        let Some(origin) = origin else { return };
        // A session that is to come waits for what it has asked where it is, and nothing waits for that.
        let session = if let Asked::Write { session, .. } = asked { *session } else { 0 };
        if self.applied.placement.is_divided() {
            let (bytes, seen) = asked.without_partitions();
            self.applied.partition.depends_on(&seen);
            self.applied.partition.propose_forwarded(origin, here, session, &bytes);
        } else {
            self.applied.partition.propose_forwarded(origin, here, session, bytes);
        }
        self.leaves(session, here);
    }

    /// What is asked of an operation that is being coordinated here is asked when this partition is quiesced for it: see
    /// [`Replica::quiesced`].
    pub(super) fn is_busy(&self) -> bool {
        self.leader.coordination.is_quiesced() || self.leader.coordination.is_coordinating()
    }

    fn refuse_asked(&mut self, origin: Option<Origin>, refusal: Refusal) {
        if let Some(origin) = origin {
            self.applied.partition.propose_refusal(origin, refusal);
        }
    }

    /// Prepares what is asked. Returns which tokens programs have needed for it.
    ///
    /// # Errors
    /// When they need some that are not held here: then nothing was done.
    pub(super) fn prepare_asked(
        &mut self,
        origin: Option<Origin>,
        asked: &Asked<'_>,
    ) -> Result<BTreeSet<String>, LackedTokens> {
        let Some(origin) = origin else { return Ok(BTreeSet::new()) };
        match asked {
            Asked::Write { opcode: Opcode::Reconfig, .. } => self.take_reconfig(origin, asked),
            asked => self.applied.partition.propose_asked(origin, asked, self.now)?,
        }
        self.count_local_write(origin, asked);
        self.note_session(origin, asked);
        let of_programs = self.applied.partition.take_needed_tokens();
        self.accessed_by_contact(origin, asked, &of_programs);
        Ok(of_programs)
    }

    /// What is known of a session follows from what it has asked.
    fn note_session(&mut self, origin: Origin, asked: &Asked<'_>) {
        if let Asked::OpenSession { session, .. } = asked {
            self.stats.sessions_asked_for += u64::from(origin.server != self.config.server_id);
            // Whoever comes back has been heard of, long before that is applied.
            if self.applied.partition.tree().session_is_changing(*session) {
                self.sessions.live.heard_of(*session, 0, self.now);
            }
        }
        // It may have been refused: then the session goes on, elsewhere.
        if let Asked::Write { session, opcode: Opcode::CloseSession, .. } = asked
            && !self.applied.partition.tree().session_is_live(*session)
        {
            self.sessions.live.set_closing(*session, true);
        }
    }

    fn take_reconfig(&mut self, origin: Origin, asked: &Asked<'_>) {
        let Asked::Write { session, identities, body, .. } = asked else { return };
        let caller = Caller { session: *session, identities };
        let refused = match Request::decode(Opcode::Reconfig, &mut Reader::new(body)) {
            Ok(Request::Reconfig(reconfig)) => match self.speaks_no_more(origin, asked) {
                None => self.propose_reconfig(origin, &reconfig, &caller),
                Some(code) => Err(code.into()),
            },
            _ => Err(ErrorCode::MarshallingError.into()),
        };
        if let Err(refusal) = refused {
            self.applied.partition.propose_refusal(origin, refusal);
        }
    }
}
