//! SASL of clients, as far as it is the protocol's: tokens come in with requests and leave with answers. What is in
//! them the driver knows, which has the passwords and keys.
//!
//! As in ZooKeeper, a token is answered at once, whatever else is under way (`ZooKeeperServer.processSasl`): a client
//! sends nothing else before it has been let in.

use crate::auth::Authentication;
use crate::connection::{CloseReason, ConnectionId, Connections};
use alloc::vec::Vec;
use stoa_tree::Identity;
use stoa_wire::{ErrorCode, Opcode, Reader, ReplyHeader, Request, begin_frame, end_frame, put};

/// A token of a client that waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaslToken {
    /// Whose it is.
    pub connection: ConnectionId,
    /// The request that it came with.
    pub xid: i32,
    /// What it says.
    pub token: Vec<u8>,
}

/// What becomes of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaslStep {
    /// The client is asked for more.
    Challenge(Vec<u8>),
    /// It has proved to be these.
    Done {
        /// What it is told, if there is something.
        token: Option<Vec<u8>>,
        /// Who it is: with scheme `sasl`, and `super` where it is a super user.
        identities: Vec<Identity>,
    },
    /// It has proved nothing.
    Failed,
}

impl Connections {
    /// Notes the token of a request; false when it is none.
    pub fn take_sasl(&mut self, id: ConnectionId, xid: i32, mut body: Reader<'_>) -> bool {
        let Ok(Request::Sasl { token }) = Request::decode(Opcode::Sasl, &mut body) else { return false };
        if let Some(connection) = self.get_mut(id) {
            (connection.traffic.last_op, connection.traffic.last_xid) = (Some(Opcode::Sasl), xid);
        }
        self.sasl.push_back(SaslToken { connection: id, xid, token: token.into() });
        true
    }

    /// Answers a token. Returns who the client has proved to be.
    ///
    /// # Errors
    /// Why its connection ends.
    pub fn answer_sasl(
        &mut self,
        of: &Authentication,
        (id, xid): (ConnectionId, i32),
        step: SaslStep,
    ) -> Result<Vec<Identity>, CloseReason> {
        let (err, token, outcome) = match step {
            SaslStep::Challenge(token) => (ErrorCode::Ok, Some(token), Ok(Vec::new())),
            SaslStep::Done { token, identities } => (ErrorCode::Ok, token, Ok(identities)),
            SaslStep::Failed if of.allows_failed_sasl => (ErrorCode::Ok, None, Ok(Vec::new())),
            SaslStep::Failed if of.demands_sasl() => {
                (ErrorCode::SessionClosedRequireSaslAuth, None, Err(CloseReason::AuthFailed))
            }
            SaslStep::Failed => (ErrorCode::AuthFailed, None, Err(CloseReason::AuthFailed)),
        };
        if let Some(output) = self.output(id) {
            let start = begin_frame(output);
            ReplyHeader { xid, zxid: 0, err: err as i32 }.encode(output);
            put::opt_buffer(output, token.as_deref());
            end_frame(output, start);
            if let Some(connection) = self.get_mut(id) {
                connection.traffic.sent += 1;
            }
        }
        outcome
    }
}
