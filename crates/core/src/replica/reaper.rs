//! Containers that have become empty and TTL znodes whose time is up are deleted by the server.

use crate::coordination::Pending;
use crate::replica::Replica;
use alloc::vec::Vec;
use stoa_partition::{After, Asked};
use stoa_tree::Caller;
use stoa_wire::{Opcode, Request, put};

impl Replica {
    /// One whose parent lives on another partition.
    fn reap_across(&mut self, path: &str) {
        let (mut body, mut asked) = (Vec::new(), Vec::new());
        put::str(&mut body, path);
        Asked::put_write(&mut asked, (0, 0), &After::default(), Opcode::DeleteContainer, &[], &body);
        self.leader.pending.push_back(Pending { origin: None, asked: asked.into() });
        self.take_pending();
    }

    pub(crate) fn reap(&mut self) {
        let due = self.applied.partition.tree().reapable(self.now.wall_ms, self.config.reaping.max as usize);
        let caller = Caller { session: 0, identities: &[] };
        for path in due {
            let request = Request::DeleteContainer { path: &path };
            if !self.holds_tokens(&request) || self.is_between_reigns() {
                self.recall_reads_of(&request);
                continue;
            }
            if self.concerns_others(0, &request) {
                self.reap_across(&path);
                continue;
            }
            // A znode that has got a child, or is gone, since it was found: then it stays, or is gone.
            if self.applied.partition.propose(None, &request, None, &caller, self.now).is_ok() {
                self.stats.containers_deleted += 1;
            }
        }
    }
}
