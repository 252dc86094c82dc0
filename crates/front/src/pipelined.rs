//! What a write carries that follows others of its client which are not answered yet.

use alloc::boxed::Box;
use alloc::vec::Vec;
use stoa_timeline::EntryId;
use stoa_wire::{Opcode, Timestamp};

/// What goes with a write that is asked before earlier ones of its client are answered, and comes back to the front
/// when it is known where the last one stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipelined {
    /// The front's number for it.
    pub number: u64,
    /// Where the last one before it stands, and with it all others: that one follows them.
    pub after: Option<EntryId>,
    /// What it rests on: their steps, and a zxid that theirs do not exceed.
    pub rests_on: Timestamp,
    /// Those that follow it, the next one last.
    pub then: Vec<Next>,
    /// What the client has seen, for those that are to be told.
    pub seen: Timestamp,
}

/// A write that follows another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// Whom it is for.
    pub partition: u8,
    /// Whether that one may not know what the client has seen.
    pub has_news: bool,
    /// The request.
    pub frame: Box<[u8]>,
}

/// Whether a request is a write that may be pipelined; whether it can be taken so, its partition knows.
#[must_use]
pub fn is_plain_write(opcode: Option<Opcode>) -> bool {
    matches!(
        opcode,
        Some(
            Opcode::SetData
                | Opcode::SetAcl
                | Opcode::Create
                | Opcode::Create2
                | Opcode::CreateContainer
                | Opcode::CreateTtl
                | Opcode::Delete
        )
    )
}
