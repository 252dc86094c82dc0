//! Writing a snapshot: the state at one point in time, while it goes on changing.
//!
//! The walk visits the slab in order of ids, a slice at a time. A znode that is about to change
//! and was not yet visited is written first, as it still is; so is one that is about to follow another
//! sibling. A znode created since the walk began is left out. What is written is described in [`crate::records`].

use crate::partitions::write_visits;
use crate::records::{FORMAT, put_bytes, tag};
use crate::sites::write_home;
use crate::tree::Tree;
use crate::walk::Walk;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Slots looked at for each byte of a slice's budget, so that empty slots do not stall anybody.
const BUDGET_BYTES_PER_SLOT: usize = 16;

impl Tree {
    /// Begins a snapshot of the state as it is now; an unfinished one is dropped. Take it out with
    /// [`Tree::snapshot_slice`]; requests and updates may be handled in between.
    ///
    /// Takes time in proportion to the number of sessions, distinct ACLs and exceptions (see
    /// [`crate::Placed`]), which are written now, and a bit for each znode.
    pub fn snapshot_begin(&mut self) {
        let mut walk = Walk::new(self.nodes.end());
        let block = walk.block();
        block.extend_from_slice(&[tag::HEADER, FORMAT]);
        block.extend_from_slice(&self.zxids.last.to_le_bytes());
        block.extend_from_slice(&self.digest().to_le_bytes());
        block.extend_from_slice(&(self.nodes.live() as u64).to_le_bytes());
        block.extend_from_slice(&(self.sessions.len() as u64).to_le_bytes());
        self.write_level(&mut walk);
        for id in self.acls.ids() {
            let block = walk.block();
            block.push(tag::ACL);
            block.extend_from_slice(&id.to_le_bytes());
            put_bytes(block, self.acls.encoded(id));
        }
        for (id, session) in self.sessions.iter() {
            let block = walk.block();
            block.push(tag::SESSION);
            block.extend_from_slice(&id.to_le_bytes());
            block.extend_from_slice(&session.timeout_ms.to_le_bytes());
            block.extend_from_slice(&session.password);
            session.contact.encode(block);
            write_visits(id, session.visited, block);
            write_home(id, session, block);
        }
        self.write_placed(&mut walk);
        self.write_sites(&mut walk);
        self.walk = Some(Box::new(walk));
    }

    /// Appends the next slice to `out`: whole records, about `budget_bytes` of them. Returns
    /// whether there is more. Slices must be loaded in order, cut as they were written.
    pub fn snapshot_slice(&mut self, out: &mut Vec<u8>, budget_bytes: usize) -> bool {
        let Some(mut walk) = self.walk.take() else {
            return false;
        };
        let full = out.len().saturating_add(budget_bytes.max(1));
        let mut slots_left = budget_bytes / BUDGET_BYTES_PER_SLOT + 1;
        while out.len() < full && slots_left > 0 {
            let Some(slots) = walk.step(&self.nodes, &self.exts, out) else {
                out.push(tag::END);
                return false;
            };
            slots_left -= slots;
        }
        self.walk = Some(walk);
        true
    }

    /// Drops an unfinished snapshot.
    pub fn snapshot_abort(&mut self) {
        self.walk = None;
    }
}
