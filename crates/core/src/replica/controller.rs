//! The load controller (AGORA, section IV-F): the leader's first partition hears what is asked of all, and has
//! subtrees moved.
//!
//! Every partition's thread tells what it is asked, four times a second and only while it is. One move is
//! under way at a time, so the next is decided by what the last one has changed. Nothing of this is state: the
//! next leader begins anew, with what it sees.

use crate::controller::{Controller, MoveError, RecentMove};
use crate::moves::Moved;
use crate::peer::{PeerMessage, READS_MAX, Reads};
use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_front::ConnectionId;
use stoa_partition::{Asked, Now};
use stoa_placement::{FIRST, HINTS_PATH, Hints, LoadReport, Move, Rates, SubtreeLoad, is_at_or_below};
use stoa_wire::{Reader, path};

/// Without anything new, things are looked at so often; nobody is woken for it, but for what has become cold.
const LOOK_US: u64 = 1_000_000;

/// Windows end at the same moment everywhere, and this much later everybody has told.
const ARRIVAL_US: u64 = 20_000;

/// How often is asked what has become of a move, and for how long: a change of leader can end it.
const POLL_US: u64 = 2_000;

const PATIENCE_US: u64 = 10_000_000;

/// How often a server that does not lead tells what is read there.
const TELL_READS_US: u64 = 1_000_000;

/// So many moves are remembered for the operator.
const RECENT_MAX: usize = 16;

impl Replica {
    /// At every partition: tells the leader's first one what is asked here, when it is time.
    pub(crate) fn tell_load(&mut self) {
        let own = self.config.partition;
        let batches = self.timeline.batches();
        self.leader.load.batches(batches.count, batches.bytes, self.now.mono_us);
        let exceptions = self.applied.placement.exceptions().filter(|(_, to)| *to == own);
        if !self.leader.load.tick(self.now.mono_us, exceptions.map(|(path, _)| path)) {
            return;
        }
        if self.timeline.leads() {
            self.say_load();
        } else {
            self.leader.controller.followers.clear();
            self.tell_reads();
        }
    }

    /// What the leader is told of this partition: what it is asked there, and how much its busiest server has
    /// to read. Writes are the same everywhere.
    fn say_load(&mut self) {
        let mut report = self.leader.load.report().clone();
        let Controller { followers, readers, .. } = &self.leader.controller;
        let busiest = followers.values().chain(readers.values()).max_by_key(|reads| reads.total);
        if let Some(Reads { total, subtrees }) = busiest.filter(|reads| reads.total > report.total.reads) {
            report.total.reads = *total;
            // How its thread fares is not known here.
            report.occupied_percent = None;
            report.subtrees.iter_mut().for_each(|subtree| subtree.rates.reads = 0);
            for (path, reads) in subtrees {
                match report.subtrees.iter_mut().find(|subtree| subtree.path == *path) {
                    Some(subtree) => subtree.rates.reads = *reads,
                    None => {
                        let rates = Rates { reads: *reads, ..Rates::default() };
                        report.subtrees.push(SubtreeLoad { path: path.clone(), rates });
                    }
                }
            }
        }
        self.say(FIRST, ShardMessage::Load(Box::new(report)));
    }

    /// At a server that does not lead: tells who does what is read here. It has its writes anyway.
    fn tell_reads(&mut self) {
        let is_over = self.leader.load.next_wake_us().is_none();
        if is_over || self.is_time_to_tell_reads() {
            self.say_reads();
        }
    }

    fn is_time_to_tell_reads(&self) -> bool {
        self.now.mono_us >= self.leader.controller.told_reads_us + TELL_READS_US
    }

    /// Tells the leader, or the parent of this reader, what is read here, or at the busiest reader below if that is more: a
    /// partition is as busy as the busiest of its threads, and what many read in all is no one's burden.
    fn say_reads(&mut self) {
        let other = self.timeline.leader().filter(|leader| *leader != self.config.server_id);
        let to_parent = self.timeline.is_reader();
        if other.is_none() || (to_parent && !self.timeline.parent_takes_reads()) {
            return;
        }
        self.leader.controller.told_reads_us = self.now.mono_us;
        let LoadReport { total, subtrees, .. } = self.leader.load.report();
        let busiest = self.leader.controller.readers.values().max_by_key(|reads| reads.total);
        let reads = match busiest.filter(|reads| reads.total > total.reads) {
            Some(reads) => reads.clone(),
            None => {
                let mut subtrees: Vec<_> =
                    subtrees.iter().map(|of| (of.path.clone(), of.rates.reads)).collect();
                subtrees.sort_by_key(|(_, reads)| core::cmp::Reverse(*reads));
                subtrees.truncate(READS_MAX);
                Reads { total: total.reads, subtrees }
            }
        };
        let message = PeerMessage::Reads(reads).encode();
        match other.filter(|_| !to_parent) {
            Some(leader) => self.timeline.send(leader, message),
            None => self.timeline.tell_parent(message),
        }
    }

    /// What the clients of a reader read of this partition, or those of the busiest one below it.
    pub(crate) fn reads_below(&mut self, reader: ConnectionId, reads: Reads) {
        // Who reads nothing any more says so once.
        let is_over = reads.total == 0;
        match is_over {
            true => _ = self.leader.controller.readers.remove(&reader),
            false => _ = self.leader.controller.readers.insert(reader, reads),
        }
        self.reads_below_changed(is_over);
    }

    /// A reader is gone, and with it what was read there.
    pub(crate) fn reads_below_end(&mut self, reader: ConnectionId) {
        if self.leader.controller.readers.remove(&reader).is_some() {
            self.reads_below_changed(true);
        }
    }

    fn reads_below_changed(&mut self, is_over: bool) {
        if self.timeline.leads() {
            self.say_load();
        } else if is_over || self.is_time_to_tell_reads() {
            self.say_reads();
        }
    }

    /// What another server's clients read of this partition.
    pub(crate) fn reads_told(&mut self, by: u8, reads: Reads) {
        if !self.timeline.leads() || !self.is_member(by) {
            return;
        }
        self.leader.controller.followers.insert(by, reads);
        self.say_load();
    }

    /// Another server is gone, and with it what was read there.
    pub(crate) fn reads_end(&mut self, by: u8) {
        if self.leader.controller.followers.remove(&by).is_some() {
            self.say_load();
        }
    }

    /// Requests have come by way of another server: what they cost, they cost here too.
    pub(crate) fn count_forwarded(&mut self, asked: &[Bytes]) {
        if !self.applied.placement.is_divided() {
            return;
        }
        for asked in asked {
            if self.leader.load.is_next(true) {
                let (opcode, body) = match Asked::decode(asked) {
                    Ok(Asked::Write { opcode, body, .. }) => (Some(opcode), body),
                    _ => (None, &[][..]),
                };
                self.leader.load.look_at(opcode, Reader::new(body), self.now.mono_us);
            }
        }
    }

    /// At the first partition: what is asked of one of them.
    pub(crate) fn load_told(&mut self, of: u8, report: LoadReport) {
        let controller = &mut self.leader.controller;
        if controller.arriving.is_empty() {
            controller.due_at(self.now.mono_us + ARRIVAL_US);
        }
        controller.arriving.retain(|(told, _)| *told != of);
        controller.arriving.push((of, report));
    }

    /// The hints may be others.
    pub(crate) fn hints_changed(&mut self) {
        self.leader.controller.hints = None;
        self.leader.controller.due_at(self.now.mono_us);
    }

    /// At the first partition of the leader: has the next subtree moved, if one should be.
    pub(crate) fn tend_balance(&mut self) {
        if self.other_partitions().is_empty() {
            return;
        }
        if !self.timeline.leads() {
            if !self.leader.controller.loads.is_empty() {
                let had = core::mem::take(&mut self.leader.controller);
                let Controller { recent, moved, refused, readers, .. } = had;
                self.leader.controller =
                    Controller { recent, moved, refused, readers, ..Controller::default() };
            }
            return;
        }
        if self.leader.controller.loads.is_empty() {
            let partitions = usize::from(self.applied.placement.partitions());
            self.leader.controller.loads = alloc::vec![LoadReport::default(); partitions];
            self.leader.controller.due_at(self.now.mono_us);
        }
        self.take_outcomes();
        let now_us = self.now.mono_us;
        if now_us < self.leader.controller.look_us {
            return;
        }
        self.leader.controller.look_us = now_us + LOOK_US;
        self.leader.controller.is_due = false;
        for (of, report) in self.leader.controller.arriving.drain(..) {
            if let Some(load) = self.leader.controller.loads.get_mut(usize::from(of)) {
                *load = report;
            }
        }
        if !self.leader.controller.under_way.is_empty() {
            return;
        }
        if self.leader.controller.hints.is_none() {
            self.read_hints();
        }
        let Controller { balancer, loads, hints, .. } = &mut self.leader.controller;
        let Some(hints) = hints else { return };
        let next = balancer.tick(now_us, loads, &self.applied.placement, hints);
        let next_merge_us = balancer.next_merge_us(&self.applied.placement, hints);
        match (next, next_merge_us) {
            (Some(next), _) => self.begin_move(next),
            (None, Some(merge_us)) => self.leader.controller.due_at(merge_us.max(now_us + LOOK_US)),
            (None, None) => {}
        }
    }

    /// Entries were applied: what has become of a move may be known. The next one need not wait for the time to
    /// look again.
    pub(crate) fn tend_balance_if_moved(&mut self) {
        if self.leader.moves.has_outcomes() && !self.leader.controller.under_way.is_empty() {
            self.tend_balance();
        }
    }

    fn begin_move(&mut self, next: Move) {
        let asked = self.ask_move(&next.path, next.to);
        let Move { path, to } = next.clone();
        self.leader.controller.under_way.push((next, self.now.mono_us));
        if let Err(refusal) = asked {
            self.move_has_outcome(Moved { path, to, result: Err(refusal) });
        }
    }

    fn take_outcomes(&mut self) {
        while let Some(moved) = self.poll_moved() {
            self.move_has_outcome(moved);
        }
        let now_us = self.now.mono_us;
        self.leader.controller.under_way.retain(|(_, since_us)| now_us <= *since_us + PATIENCE_US);
    }

    fn move_has_outcome(&mut self, moved: Moved) {
        let (now, controller) = (self.now, &mut self.leader.controller);
        let Moved { path, to, result } = moved;
        self.clients.connections.audit_move(&path, to, result.is_ok());
        match result {
            Ok(()) => {
                controller.moved += 1;
                controller.balancer.moved(&path, now.mono_us);
            }
            Err(_) => {
                controller.refused += 1;
                controller.balancer.refused(&path, now.mono_us);
            }
        }
        controller.under_way.retain(|(asked, _)| asked.path != path || asked.to != to);
        controller.due_at(now.mono_us);
        if controller.recent.len() == RECENT_MAX {
            controller.recent.pop_front();
        }
        controller.recent.push_back(RecentMove { path, to, refused: result.err(), at_ms: now.wall_ms });
    }

    fn read_hints(&mut self) {
        let (mut hints, bad) = self.parse_hints();
        for line in bad {
            self.warn(format!("{HINTS_PATH}: {line}"));
        }
        hints.is_off |= !self.config.balance;
        self.leader.controller.hints = Some(hints);
        self.leader.controller.balancer.forget_refusals();
    }

    fn parse_hints(&self) -> (Hints, Vec<String>) {
        let content =
            self.applied.partition.tree().get(HINTS_PATH).and_then(|znode| znode.data()).unwrap_or_default();
        Hints::parse(content, self.applied.placement.partitions())
    }

    /// When [`Replica::tend_balance`] is next needed.
    pub(crate) fn next_balance_wake_us(&self) -> Option<u64> {
        let controller = &self.leader.controller;
        if controller.loads.is_empty() {
            return None;
        }
        let look_us = controller.is_due.then_some(controller.look_us);
        let poll_us = (!controller.under_way.is_empty()).then_some(self.now.mono_us + POLL_US);
        look_us.into_iter().chain(poll_us).min()
    }

    /// So long has this partition's thread had something to do since it began, microseconds. Whoever runs it may say
    /// so before each tick: then nothing is moved away from a thread that has time, nor to one that has none.
    pub fn occupied(&mut self, occupied_us: u64, now: Now) {
        self.leader.load.occupied(occupied_us, now.mono_us);
    }

    // ---- what the server's operator may ask ----

    /// Where there are several partitions: what is asked of this one, as of a moment ago. It is sampled.
    #[must_use]
    pub fn load(&self) -> &LoadReport {
        self.leader.load.report()
    }

    /// What the operator has said about where subtrees live, at the first partition; what cannot be read of it
    /// is left out.
    #[must_use]
    pub fn hints(&self) -> Hints {
        self.parse_hints().0
    }

    /// Where a subtree lives that does not live where its parent or its name says, and the table's version.
    #[must_use]
    pub fn exceptions(&self) -> (u64, Vec<(String, u8)>) {
        let placement = &self.applied.placement;
        (placement.version(), placement.exceptions().map(|(path, to)| (path.to_owned(), to)).collect())
    }

    /// Where a path lives.
    #[must_use]
    pub fn place_of(&self, path: &str) -> u8 {
        self.applied.placement.of(path)
    }

    /// What the busiest partition has to do, in percent of what all have on average; 0 when that is nothing,
    /// or this server does not lead.
    #[must_use]
    pub fn imbalance_percent(&self) -> u64 {
        self.leader.controller.balancer.imbalance_percent()
    }

    /// Subtrees that were moved, and moves that were refused, as long as this server has led.
    #[must_use]
    pub fn move_counts(&self) -> (u64, u64) {
        (self.leader.controller.moved, self.leader.controller.refused)
    }

    /// The last of them, oldest first.
    pub fn recent_moves(&self) -> impl Iterator<Item = &RecentMove> {
        self.leader.controller.recent.iter()
    }

    /// Has a subtree moved, for an operator, behind those moves that are asked for already.
    ///
    /// # Errors
    /// When that is not begun. What becomes of it is in [`Replica::recent_moves`] then.
    pub fn request_move(&mut self, subtree: &str, to: u8, now: Now) -> Result<(), MoveError> {
        self.now = now;
        if !path::is_valid(subtree)
            || subtree == "/"
            || is_at_or_below(subtree, "/zookeeper")
            || is_at_or_below(subtree, stoa_tree::PROGRAMS)
        {
            return Err(MoveError::NotMovable);
        }
        if to >= self.applied.placement.partitions() {
            return Err(MoveError::NoSuchPartition);
        }
        if !self.timeline.leads() || !self.has_sessions() {
            return Err(MoveError::NotLeader(self.timeline.leader()));
        }
        let hints = self.hints();
        let is_pinned = hints.pins.get(subtree).is_some_and(|pinned| *pinned != to);
        if is_pinned || hints.stays.contains(subtree) || hints.group(subtree).is_some() {
            return Err(MoveError::Pinned);
        }
        self.begin_move(Move { path: subtree.to_owned(), to });
        Ok(())
    }
}
