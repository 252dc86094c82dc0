//! The records of a snapshot that are there because a tree is one of several. [`crate::records`] describes them.

use crate::node::Node;
use crate::records::{put_bytes, put_place};
use alloc::vec::Vec;

pub(super) mod tag {
    pub(crate) const ABSENT: u8 = 6;
    pub(crate) const VISITS: u8 = 7;
    pub(crate) const PLACED: u8 = 8;
    pub(crate) const EXCEPT: u8 = 9;
}

pub(super) const AWAY: u8 = 1;
pub(super) const SCAFFOLD: u8 = 2;

/// Writes a node that is no znode.
pub(crate) fn write_absent(id: u32, node: &Node, out: &mut Vec<u8>) {
    out.extend_from_slice(&[tag::ABSENT, if node.is_away() { AWAY } else { SCAFFOLD }]);
    put_place(id, node, out);
    put_bytes(out, node.name_bytes());
}

/// Writes where else a session owns ephemerals, if anywhere.
pub(crate) fn write_visits(session: i64, partitions: u64, out: &mut Vec<u8>) {
    if partitions != 0 {
        out.push(tag::VISITS);
        out.extend_from_slice(&session.to_le_bytes());
        out.extend_from_slice(&partitions.to_le_bytes());
    }
}
