//! How far a snapshot that is being written has come.

use crate::node::{Ext, Node, ROOT_ID};
use crate::partitions::write_absent;
use crate::records::write_znode;
use crate::slab::{NONE, Slab, Slot};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Blocks of records that wait for the next slice are about this long.
const BLOCK_BYTES: usize = 64 << 10;

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
    /// Begins with the root; ends before the slot `end`.
    pub(crate) fn new(end: u32) -> Self {
        let settled = vec![0; (end as usize).div_ceil(64)];
        Self { cursor: ROOT_ID, end, settled, waiting: VecDeque::new() }
    }

    /// Appends what comes next: records that wait, or the node in the next slot. Returns how many slots were
    /// looked at, or `None` at the end.
    pub(crate) fn step(&mut self, nodes: &Slab<Node>, exts: &Slab<Ext>, out: &mut Vec<u8>) -> Option<usize> {
        if let Some(block) = self.waiting.pop_front() {
            out.extend_from_slice(&block);
            return Some(0);
        }
        let id = (self.cursor < self.end).then_some(self.cursor)?;
        if !self.is_settled(id) && !nodes[id].is_vacant() {
            write_node(nodes, exts, id, out);
        }
        self.cursor += 1;
        Some(1)
    }

    /// Writes a node that is about to change, if its turn has not come yet.
    pub(crate) fn save(&mut self, nodes: &Slab<Node>, exts: &Slab<Ext>, id: u32) {
        if self.settle(id) {
            write_node(nodes, exts, id, self.block());
        }
    }

    /// Notes that the slot's turn brings nothing more. Returns whether that was open.
    pub(crate) fn settle(&mut self, id: u32) -> bool {
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
    pub(crate) fn block(&mut self) -> &mut Vec<u8> {
        if self.waiting.back().is_none_or(|block| block.len() >= BLOCK_BYTES) {
            self.waiting.push_back(Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 4));
        }
        self.waiting.back_mut().expect("pushed when there was none")
    }
}

fn write_node(nodes: &Slab<Node>, exts: &Slab<Ext>, id: u32, out: &mut Vec<u8>) {
    let node = &nodes[id];
    if node.is_absent() {
        write_absent(id, node, out);
    } else {
        write_znode(id, node, (node.ext != NONE).then(|| &exts[node.ext]), out);
    }
}
