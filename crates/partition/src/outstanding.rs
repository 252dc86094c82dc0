//! What a leader has proposed and is not applied yet: its entries, and how far the tree knows what is in them.
//!
//! Programs read the state as it will be. That takes the contents of everything outstanding, which stand in the
//! entries; so they are read there when a program is called, each once, and writes that no program has to do with
//! pay nothing for them.

use crate::entry::{Items, Outcome};
use alloc::collections::VecDeque;
use bytes::Bytes;
use stoa_tree::Tree;

#[derive(Default)]
pub(crate) struct Outstanding {
    /// Those that were proposed, their positions, and when they were.
    proposed: VecDeque<(u64, Bytes, u64)>,
    proposed_bytes: usize,
    /// One that the group could not take yet.
    held_up: Option<Bytes>,
    /// So many of all these, the last ones, have not been read to their ends.
    unread: usize,
    /// How far the entry under construction has been read.
    read_bytes: usize,
    /// The last update that was read.
    read_zxid: i64,
}

impl Outstanding {
    /// Bytes that were proposed.
    pub(crate) fn proposed_bytes(&self) -> usize {
        self.proposed_bytes
    }

    /// Bytes that the group could not take yet.
    pub(crate) fn held_up_bytes(&self) -> usize {
        self.held_up.as_ref().map_or(0, Bytes::len)
    }

    pub(crate) fn take_held_up(&mut self) -> Option<Bytes> {
        self.held_up.take()
    }

    /// The group cannot take an entry yet.
    pub(crate) fn hold_up(&mut self, entry: Bytes) {
        self.held_up = Some(entry);
    }

    /// The entry under construction, so long by now, gets no more requests. Either it is proposed or held up next,
    /// or it is lost with the lead.
    pub(crate) fn closed(&mut self, bytes: usize) {
        self.unread += usize::from(self.read_bytes < bytes);
        self.read_bytes = 0;
    }

    /// An entry will stand at this position.
    pub(crate) fn proposed(&mut self, position: u64, entry: Bytes, at_us: u64) {
        self.proposed_bytes += entry.len();
        self.proposed.push_back((position, entry, at_us));
    }

    /// Everything up to this position has been applied; `took` is told when each of these was proposed.
    pub(crate) fn applied(&mut self, position: u64, mut took: impl FnMut(u64)) {
        let is_applied = |(proposed, _, _): &mut (u64, Bytes, u64)| *proposed <= position;
        while let Some((_, entry, at_us)) = self.proposed.pop_front_if(is_applied) {
            self.proposed_bytes -= entry.len();
            took(at_us);
        }
    }

    /// Tells the tree what is in all of it that it has not been told of, and in the entry under construction.
    pub(crate) fn note_contents(&mut self, tree: &mut Tree, under_construction: &[u8]) {
        if self.unread > 0 {
            let closed = self.proposed.iter().map(|(_, entry, _)| entry).chain(&self.held_up);
            let count = self.proposed.len() + usize::from(self.held_up.is_some());
            for entry in closed.skip(count.saturating_sub(self.unread)) {
                // The first of them may have been read in part.
                note(tree, entry, &mut self.read_zxid);
            }
            self.unread = 0;
        }
        note(tree, &under_construction[self.read_bytes..], &mut self.read_zxid);
        self.read_bytes = under_construction.len();
    }
}

fn note(tree: &mut Tree, items: &[u8], read_zxid: &mut i64) {
    for item in Items::new(items) {
        let update = match item.expect("it was made here").outcome {
            Outcome::Update(update) => Some(update),
            Outcome::Part(part) => part.update,
            Outcome::Ran(ran) => ran.update,
            _ => None,
        };
        if let Some(update) = update.filter(|update| update.zxid > *read_zxid) {
            tree.note_contents(&update).expect("it was made here");
            *read_zxid = update.zxid;
        }
    }
}
