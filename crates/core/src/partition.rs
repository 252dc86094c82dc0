//! One partition: its part of the tree, its watches and its timeline.
//!
//! A timeline is a sequence of entries; an entry holds the updates of one turn. What has been
//! proposed is on its way to the log; what is durable is applied, in order.

use crate::config::Now;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use stoa_tree::{Caller, Refusal, Stamp, Tree, Watches};
use stoa_wire::{PASSWORD_LEN, Request};

/// The timeline of the only partition that there is now.
pub const TIMELINE: u32 = 0;

/// An entry for the log.
#[derive(Debug, Clone)]
pub struct Append {
    /// Grows each time that the log has refused entries: those of an earlier generation are void,
    /// and whoever carries them to the log drops them.
    pub generation: u64,
    /// Whose entry it is.
    pub timeline: u32,
    /// Its place on the timeline.
    pub position: u64,
    /// The updates.
    pub payload: Arc<Vec<u8>>,
}

pub(crate) struct Partition {
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    /// The entry under construction.
    entry: Vec<u8>,
    /// Entries with the log, oldest first.
    in_flight: VecDeque<(u64, Arc<Vec<u8>>)>,
    in_flight_bytes: usize,
    /// Position of the last applied entry.
    applied: u64,
    next_position: u64,
    proposed_zxid: i64,
    generation: u64,
    /// An emptied entry buffer, to be used again.
    spare: Option<Vec<u8>>,
}

const SPARE_ENTRY_BYTES: usize = 256 << 10;

impl Partition {
    /// `hash_seed` keeps clients from choosing paths whose watches collide.
    pub(crate) fn new(tree: Tree, applied: u64, hash_seed: u64) -> Self {
        let proposed_zxid = tree.last_zxid();
        Self {
            tree,
            watches: Watches::new(hash_seed),
            entry: Vec::new(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            applied,
            next_position: applied + 1,
            proposed_zxid,
            generation: 0,
            spare: None,
        }
    }

    /// Position of the last applied entry.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// zxid of the last proposed update.
    pub(crate) fn proposed_zxid(&self) -> i64 {
        self.proposed_zxid
    }

    /// Whether everything proposed has been applied.
    pub(crate) fn is_settled(&self) -> bool {
        self.proposed_zxid == self.tree.last_zxid()
    }

    /// Bytes proposed and not applied.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.entry.len() + self.in_flight_bytes
    }

    /// Entries with the log.
    pub(crate) fn queued_entries(&self) -> usize {
        self.in_flight.len()
    }

    /// Prepares a write and, if it is not refused, proposes the update; returns its zxid.
    pub(crate) fn propose(
        &mut self,
        request: &Request<'_>,
        caller: &Caller<'_>,
        now: Now,
    ) -> Result<i64, Refusal> {
        let stamp = self.next_stamp(now);
        self.tree.prepare(request, caller, stamp, &mut self.entry)?;
        self.proposed_zxid = stamp.zxid;
        Ok(stamp.zxid)
    }

    pub(crate) fn propose_session(
        &mut self,
        session: i64,
        timeout_ms: i32,
        password: [u8; PASSWORD_LEN],
        now: Now,
    ) -> i64 {
        let stamp = self.next_stamp(now);
        self.tree.prepare_create_session(session, timeout_ms, password, stamp, &mut self.entry);
        self.proposed_zxid = stamp.zxid;
        stamp.zxid
    }

    pub(crate) fn propose_session_end(&mut self, session: i64, now: Now) -> i64 {
        let stamp = self.next_stamp(now);
        self.tree.prepare_close_session(session, stamp, &mut self.entry);
        self.proposed_zxid = stamp.zxid;
        stamp.zxid
    }

    fn next_stamp(&self, now: Now) -> Stamp {
        Stamp { zxid: self.proposed_zxid + 1, time_ms: now.wall_ms }
    }

    /// Bytes of the entry under construction.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry.len()
    }

    /// Closes the entry under construction and hands it to the log.
    pub(crate) fn poll_append(&mut self) -> Option<Append> {
        if self.entry.is_empty() {
            return None;
        }
        let payload = Arc::new(core::mem::replace(&mut self.entry, self.spare.take().unwrap_or_default()));
        let position = self.next_position;
        self.next_position += 1;
        self.in_flight_bytes += payload.len();
        self.in_flight.push_back((position, Arc::clone(&payload)));
        Some(Append { generation: self.generation, timeline: TIMELINE, position, payload })
    }

    /// The next entry to apply, when the log holds everything up to `durable`.
    pub(crate) fn next_durable(&mut self, durable: u64) -> Option<Arc<Vec<u8>>> {
        let (position, _) = self.in_flight.front()?;
        if *position > durable {
            return None;
        }
        let (position, payload) = self.in_flight.pop_front()?;
        assert_eq!(position, self.applied + 1, "entries are applied in the order of their positions");
        self.applied = position;
        self.in_flight_bytes -= payload.len();
        Some(payload)
    }

    /// Keeps the buffer of an applied entry for a later one.
    pub(crate) fn recycle(&mut self, payload: Arc<Vec<u8>>) {
        if let Ok(mut buffer) = Arc::try_unwrap(payload)
            && buffer.capacity() <= SPARE_ENTRY_BYTES
        {
            buffer.clear();
            self.spare = Some(buffer);
        }
    }

    /// The log refused entries of `generation`: nothing that is proposed and not applied will ever
    /// be. Returns whether there was anything, or `None` when this was known already.
    pub(crate) fn abandon(&mut self, generation: u64) -> Option<()> {
        if generation != self.generation {
            return None;
        }
        self.generation += 1;
        self.entry.clear();
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.next_position = self.applied + 1;
        self.proposed_zxid = self.tree.last_zxid();
        self.tree.abandon_proposed();
        Some(())
    }
}
