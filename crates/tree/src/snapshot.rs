//! Writing a snapshot: the state at one point in time, while it goes on changing.
//!
//! The walk visits the slab in order of ids, a slice at a time. A znode that is about to change
//! and was not yet visited is written first, as it still is; so is one that is about to follow another
//! sibling. A znode created since the walk began is left out.
//!
//! ```text
//! snapshot := header, (acl | session | visits | znode | absent | placed | except)*, end
//!             in any order (but visits after their session, except after placed), cut between records
//! header   := 1, format u8, last_zxid i64, digest u64, nodes u64, sessions u64
//! acl      := 2, id u32, encoded (as on the wire)
//! session  := 3, id i64, timeout_ms i32, password [u8; 16], server u8, opening u64
//! znode    := 4, flags u8, place, czxid, mzxid, ctime, mtime i64, version, aversion i32,
//!             acl u32, [pzxid i64, cversion i32, owner i64], name, data
//! place    := id u32, parent u32, prev u32   prev: the sibling that was created before, 0 for the first
//! end      := 5
//! absent   := 6, kind u8 (1 away, 2 scaffolding), place, name
//! visits   := 7, session i64, partitions u64
//! placed   := 8, version u64               the table of what lives elsewhere than the rule says,
//! except   := 9, partition u8, path        unless it was never changed
//! ```
//! Integers are little-endian; `encoded`, `name`, `data` and `path` have their length (u32) before them.
//! Ids only tie the records together: whoever loads them gives new ones. A node is a znode or absent;
//! only a tree that is one of several has absent ones, sessions with visits, and such a table.
//!
//! Format 2 was the same without `prev`. Whoever loads it takes the czxids for the order of siblings; those of
//! one update are in the order of their names, names that are away before all others.

use crate::node::{Ext, Node, ZnodeKind};
use crate::slab::{NONE, Slot};
use crate::tree::{ROOT_ID, Tree};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// The format that this server writes.
pub(crate) const FORMAT: u8 = 3;

/// The one before, without the order of siblings, which it reads too.
pub(crate) const FORMAT_WITHOUT_ORDER: u8 = 2;

pub(crate) mod tag {
    pub(crate) const HEADER: u8 = 1;
    pub(crate) const ACL: u8 = 2;
    pub(crate) const SESSION: u8 = 3;
    pub(crate) const ZNODE: u8 = 4;
    pub(crate) const END: u8 = 5;
    pub(crate) const ABSENT: u8 = 6;
    pub(crate) const VISITS: u8 = 7;
    pub(crate) const PLACED: u8 = 8;
    pub(crate) const EXCEPT: u8 = 9;
}

pub(crate) const AWAY: u8 = 1;
pub(crate) const SCAFFOLD: u8 = 2;

pub(crate) mod flag {
    pub(crate) const EPHEMERAL: u8 = 1;
    pub(crate) const CONTAINER: u8 = 2;
    pub(crate) const TTL: u8 = 3;
    pub(crate) const KINDS: u8 = 3;
    pub(crate) const NULL_DATA: u8 = 4;
    pub(crate) const EXT: u8 = 8;
}

/// Blocks of records that wait for the next slice are about this long.
const BLOCK_BYTES: usize = 64 << 10;

/// Slots looked at for each byte of a slice's budget, so that empty slots do not stall anybody.
const BUDGET_BYTES_PER_SLOT: usize = 16;

#[derive(Debug)]
pub(crate) struct Walk {
    /// The next slot to visit.
    cursor: u32,
    /// Slots from here on were not in use when the walk began.
    end: u32,
    /// By slot: written before its turn, or not in the snapshot at all.
    settled: Vec<u64>,
    waiting: VecDeque<Vec<u8>>,
}

impl Walk {
    /// Notes that the slot's turn brings nothing more. Returns whether that was open.
    fn settle(&mut self, id: u32) -> bool {
        if id < self.cursor || id >= self.end {
            return false;
        }
        let word = &mut self.settled[id as usize / 64];
        let bit = 1 << (id % 64);
        let was_open = *word & bit == 0;
        *word |= bit;
        was_open
    }

    fn is_settled(&self, id: u32) -> bool {
        self.settled[id as usize / 64] & 1 << (id % 64) != 0
    }

    /// Where the next record that must wait goes.
    fn block(&mut self) -> &mut Vec<u8> {
        if self.waiting.back().is_none_or(|block| block.len() >= BLOCK_BYTES) {
            self.waiting.push_back(Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 4));
        }
        self.waiting.back_mut().expect("pushed when there was none")
    }
}

impl Tree {
    /// Begins a snapshot of the state as it is now; an unfinished one is dropped. Take it out with
    /// [`Tree::snapshot_slice`]; requests and updates may be handled in between.
    ///
    /// Takes time in proportion to the number of sessions, distinct ACLs and exceptions (see
    /// [`crate::Placed`]), which are written now, and a bit for each znode.
    pub fn snapshot_begin(&mut self) {
        let end = self.nodes.end();
        let settled = vec![0; (end as usize).div_ceil(64)];
        let mut walk = Walk { cursor: ROOT_ID, end, settled, waiting: VecDeque::new() };
        let block = walk.block();
        block.extend_from_slice(&[tag::HEADER, FORMAT]);
        block.extend_from_slice(&self.last_zxid.to_le_bytes());
        block.extend_from_slice(&self.digest().to_le_bytes());
        block.extend_from_slice(&(self.nodes.live() as u64).to_le_bytes());
        block.extend_from_slice(&(self.sessions.len() as u64).to_le_bytes());
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
            if session.visited != 0 {
                block.push(tag::VISITS);
                block.extend_from_slice(&id.to_le_bytes());
                block.extend_from_slice(&session.visited.to_le_bytes());
            }
        }
        self.write_placed(&mut walk);
        self.walk = Some(Box::new(walk));
    }

    fn write_placed(&self, walk: &mut Walk) {
        if self.placed.version() == 0 {
            return;
        }
        let block = walk.block();
        block.push(tag::PLACED);
        block.extend_from_slice(&self.placed.version().to_le_bytes());
        for (path, partition) in self.placed.iter() {
            let block = walk.block();
            block.extend_from_slice(&[tag::EXCEPT, partition]);
            put_bytes(block, path.as_bytes());
        }
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
            if let Some(block) = walk.waiting.pop_front() {
                out.extend_from_slice(&block);
            } else if walk.cursor < walk.end {
                let id = walk.cursor;
                slots_left -= 1;
                if !walk.is_settled(id) && !self.nodes[id].is_vacant() {
                    self.write_node(id, out);
                }
                walk.cursor += 1;
            } else {
                out.push(tag::END);
                return false;
            }
        }
        self.walk = Some(walk);
        true
    }

    /// Drops an unfinished snapshot.
    pub fn snapshot_abort(&mut self) {
        self.walk = None;
    }

    /// Writes a znode that is about to change, if the walk has not come to it yet.
    #[inline]
    pub(crate) fn save_for_walk(&mut self, id: u32) {
        if let Some(mut walk) = self.walk.take() {
            if walk.settle(id) {
                self.write_node(id, walk.block());
            }
            self.walk = Some(walk);
        }
    }

    /// Notes that a znode was created after the walk began.
    #[inline]
    pub(crate) fn leave_out_of_walk(&mut self, id: u32) {
        if let Some(walk) = &mut self.walk {
            walk.settle(id);
        }
    }

    fn write_absent(&self, id: u32, out: &mut Vec<u8>) {
        let node = &self.nodes[id];
        out.extend_from_slice(&[tag::ABSENT, if node.is_away() { AWAY } else { SCAFFOLD }]);
        put_place(id, node, out);
        put_bytes(out, node.name_bytes());
    }

    fn write_node(&self, id: u32, out: &mut Vec<u8>) {
        let node = &self.nodes[id];
        if node.is_absent() {
            self.write_absent(id, out);
            return;
        }
        let ext = (node.ext != NONE).then(|| &self.exts[node.ext]);
        out.extend_from_slice(&[tag::ZNODE, flags(node, ext)]);
        put_place(id, node, out);
        for number in [node.czxid, node.mzxid, node.ctime(), node.mtime()] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&node.version.to_le_bytes());
        out.extend_from_slice(&ext.map_or(0, |ext| ext.aversion).to_le_bytes());
        out.extend_from_slice(&node.acl.to_le_bytes());
        if let Some(ext) = ext {
            out.extend_from_slice(&ext.pzxid.to_le_bytes());
            out.extend_from_slice(&ext.cversion.to_le_bytes());
            out.extend_from_slice(&ext.owner.to_le_bytes());
        }
        put_bytes(out, node.name_bytes());
        put_bytes(out, node.data().unwrap_or_default());
    }
}

fn flags(node: &Node, ext: Option<&Ext>) -> u8 {
    let null_data = if node.data().is_none() { flag::NULL_DATA } else { 0 };
    let kind = match ext.map(|ext| node.kind(ext)) {
        None | Some(ZnodeKind::Persistent) => 0,
        Some(ZnodeKind::Ephemeral { .. }) => flag::EPHEMERAL,
        Some(ZnodeKind::Container) => flag::CONTAINER,
        Some(ZnodeKind::Ttl { .. }) => flag::TTL,
    };
    let ext = if ext.is_some() { flag::EXT } else { 0 };
    null_data | kind | ext
}

fn put_place(id: u32, node: &Node, out: &mut Vec<u8>) {
    for id in [id, node.parent, node.prev_sibling] {
        out.extend_from_slice(&id.to_le_bytes());
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len())
        .expect("names, data, ACLs and paths are bounded by the frame they came in");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}
