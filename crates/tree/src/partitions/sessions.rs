//! Sessions where a tree is one of several. They live on the first partition, which notes where else each owns
//! ephemerals; on the others those alone are known that own something there, as *remote sessions*.

use crate::node::ZnodeKind;
use crate::session::{Contact, Sessions};
use crate::tree::Tree;
use stoa_wire::{ErrorCode, PASSWORD_LEN};

impl Sessions {
    /// Makes a session known that lives on the first partition, if it is not, and where its home is; 0 where there are no
    /// sites.
    pub(crate) fn make_remote(&mut self, id: i64, home: u8) {
        if !self.contains(id) {
            self.create(id, 0, [0; PASSWORD_LEN], Contact::default());
            self.set_home(id, home);
        }
    }

    /// Notes that a session owns ephemerals on another partition (below
    /// [`crate::session::PARTITIONS_MAX`]). `None` when there
    /// is no such session.
    pub(crate) fn visit(&mut self, id: i64, partition: u8) -> Option<()> {
        self.change(id, |session| session.visited |= 1 << partition)
    }
}

impl Tree {
    /// Whether nothing speaks against the session, in a tree that does not know all.
    pub(crate) fn may_live(&self, session: i64) -> bool {
        !self.is_first() && self.overlay.session(session).is_none()
    }

    /// An ephemeral's session has to be known where it lives: see [`crate::PartOp::RemoteSession`].
    pub(crate) fn check_owner(&self, kind: ZnodeKind) -> Result<(), ErrorCode> {
        match kind {
            ZnodeKind::Ephemeral { session } if !self.is_first() && !self.session_is_live(session) => {
                Err(ErrorCode::SessionExpired)
            }
            _ => Ok(()),
        }
    }

    /// The other partitions where the session owns ephemerals, or has, once everything proposed has
    /// been applied: a bit for each. None for a session that will not be there.
    #[must_use]
    pub fn visited(&self, session: i64) -> u64 {
        self.proposed_session(session).map_or(0, |session| session.visited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_created_once_more_keeps_what_it_owns_elsewhere() {
        let mut sessions = Sessions::default();
        sessions.create(5, 1, [1; PASSWORD_LEN], Contact::default());
        assert_eq!(sessions.visit(6, 1), None);
        sessions.visit(5, 1).unwrap();
        sessions.create(5, 2, [2; PASSWORD_LEN], Contact::default());
        assert_eq!(sessions.get(5).unwrap().visited, 2);
        assert_eq!(sessions.digest(), sessions.recomputed_digest());
        sessions.remove(5);
        assert_eq!(sessions.digest(), 0);
    }
}
