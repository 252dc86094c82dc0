//! The gate at the leader: what becomes of a request that contact servers have asked, in the order in which they
//! asked. It is prepared, refused, given back to be asked elsewhere, made an operation over several partitions, or
//! has to wait.

use crate::coordination::Pending;
use crate::peer::Asked;
use crate::replica::Replica;
use crate::session_table::Known;
use bytes::Bytes;
use stoa_timeline::Origin;
use stoa_tree::{Caller, Contact};
use stoa_wire::{ErrorCode, Opcode, Reader, Request};

impl Replica {
    /// Requests of a contact server, with the number of the first.
    pub(crate) fn take_asked(&mut self, server: u8, first: u64, asked: &[Bytes]) {
        for (request, asked) in (first..).zip(asked) {
            let origin = Origin { server, request };
            if !self.leader.pending.is_empty() || !self.take_one(Some(origin), asked) {
                self.leader.pending.push_back(Pending { origin: Some(origin), asked: asked.clone() });
            }
        }
    }

    /// Takes what had to wait, as far as it need not any more.
    pub(crate) fn take_pending(&mut self) {
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
    fn take_one(&mut self, origin: Option<Origin>, bytes: &Bytes) -> bool {
        // What is asked of an operation that is being coordinated here is asked when this partition is quiesced for it:
        // see [`Replica::stands`].
        if self.leader.coordination.is_quiesced() || self.leader.coordination.is_coordinating() {
            return false;
        }
        let Ok(asked) = Asked::decode(bytes) else {
            // There must be an outcome, or the stream would end here.
            if let Some(origin) = origin {
                self.applied.partition.propose_refusal(origin, ErrorCode::MarshallingError.into());
            }
            return true;
        };
        match origin.map_or(Known::Yes, |origin| self.knows(origin, &asked)) {
            Known::NotYet => {
                self.wait_for_session(&asked);
                return false;
            }
            Known::No(code) => {
                if let Some(origin) = origin {
                    self.applied.partition.propose_refusal(origin, code.into());
                }
                return true;
            }
            Known::Yes => {}
        }
        if let (Some(origin), Asked::Write { after, .. }) = (origin, &asked)
            && after.placed != self.applied.placement.version()
        {
            self.applied.partition.propose_elsewhere(origin);
            return true;
        }
        // What a session asks behind a registration or acknowledgement of its own is prepared with it.
        if let Asked::Write { session, .. } = &asked
            && self.applied.partition.extensions.is_changing(*session)
        {
            return false;
        }
        if self.is_refused_move(&asked) {
            return true;
        }
        if let (Some(origin), Some(taken)) = (origin, self.take_of_programs(&asked)) {
            match taken {
                Ok(()) => self.applied.partition.propose_asked(origin, &asked, self.now),
                Err(refusal) => self.applied.partition.propose_refusal(origin, refusal),
            }
            return true;
        }
        if self.coordinates(origin, bytes, &asked) {
            return false;
        }
        let Some(origin) = origin else { return true };
        match &asked {
            Asked::Write { opcode: Opcode::Reconfig, .. } => self.take_reconfig(origin, &asked),
            asked => self.applied.partition.propose_asked(origin, asked, self.now),
        }
        self.note_session(origin, &asked);
        true
    }

    /// What is known of a session follows from what it has asked.
    fn note_session(&mut self, origin: Origin, asked: &Asked<'_>) {
        if let Asked::OpenSession { session, .. } = asked {
            self.stats.sessions_asked_for += u64::from(origin.server != self.config.server_id);
            // Whoever comes back has been heard of, long before that is applied.
            if self.applied.partition.tree.session_is_changing(*session) {
                self.sessions.live.heard_of(*session, 0, self.now);
            }
        }
        // It may have been refused: then the session goes on, elsewhere.
        if let Asked::Write { session, opcode: Opcode::CloseSession, .. } = asked
            && !self.applied.partition.tree.session_is_live(*session)
        {
            self.sessions.live.set_closing(*session, true);
        }
    }

    fn take_reconfig(&mut self, origin: Origin, asked: &Asked<'_>) {
        let Asked::Write { session, opening, identities, body, .. } = asked else { return };
        let contact = Contact { server: origin.server, opening: *opening };
        let caller = Caller { session: *session, identities };
        let refused = match Request::decode(Opcode::Reconfig, &mut Reader::new(body)) {
            Ok(Request::Reconfig(reconfig)) => {
                match self.applied.partition.check_contact(*session, contact) {
                    Ok(()) => self.propose_reconfig(origin, &reconfig, &caller),
                    Err(code) => Err(code.into()),
                }
            }
            _ => Err(ErrorCode::MarshallingError.into()),
        };
        if let Err(refusal) = refused {
            self.applied.partition.propose_refusal(origin, refusal);
        }
    }
}
