//! What a front notes for the audit log.

use super::Front;
use crate::auth;
use crate::connection::ConnectionId;
use crate::frame::Frame;
use alloc::vec::Vec;
use stoa_wire::Opcode;

impl Front {
    /// A client has asked something. False when its reply could not be told apart from another one's.
    pub(super) fn audit_request(&mut self, id: ConnectionId, frame: &Frame<'_>) -> bool {
        let Some(connection) = self.connections.get(id) else { return true };
        if !connection.has_audit() {
            // Here only the partitions know it.
            let address = auth::by_address(connection.peer.ip());
            self.connections.audit_proof(id, Vec::from([address]));
        }
        if frame.opcode == Some(Opcode::Auth) {
            // Whoever claims what is not so is sent away, and whatever it asked behind that is not carried out.
            self.audit_proof(id, frame.bytes);
        }
        self.connections.audit_request(id, frame, true)
    }

    fn audit_proof(&mut self, id: ConnectionId, frame: &[u8]) {
        let Some((connection, (scheme, auth))) = self.connections.get(id).zip(auth::proof(frame)) else {
            return;
        };
        let proved = self.config.authentication.check(scheme, auth, connection.peer.ip());
        self.connections.audit_proof(id, proved.unwrap_or_default());
    }
}
