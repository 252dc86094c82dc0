//! Requests that a front pipelines: of one partition, before those of the same client to others are answered.
//!
//! A client that pipelines requests to many partitions would otherwise have one of them under way at a time.
//! Either all that is pipelined are reads, or all are writes; what is neither waits, as ever, until everything
//! before it is answered.
//!
//! - **Reads** go out at once. They are told in their order, and only if each is as new as what its client has been
//!   told before it: if not, it and all behind it are asked again. So what a client is told is what it would have
//!   been told had it asked one after the other.
//! - **Writes** go out when it is known where those before them stand, several together if they wait: see
//!   [`crate::pipelined`].

use super::Front;
use crate::connection::{ConnectionId, Slot};
use crate::frame::Frame;
use crate::pipelined::{Next, Pipelined, is_plain_write};
use crate::route::{Destination, Route, Undelivered, may_watch};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use stoa_partition::Now;
use stoa_timeline::EntryId;
use stoa_wire::{Opcode, Reader, ReplyHeader, Timestamp, next_frame, xid};

/// After so many requests to one partition it is cheaper to ask in turn.
const STREAK_MAX: u32 = 32;

/// So many writes go out together at most.
const TOGETHER_MAX: usize = 16;

/// Answers are sent when there are so many of them for each that is still to come.
const HELD_FOR_EACH: usize = 3;

/// And they are held back for so long at most, microseconds. Where fewer arrive in such a time, the client waits for far
/// longer, and so do all others, because of how much there is to do.
const HELD_US: u64 = 20_000;

/// A client whose answers are held back.
#[derive(Debug)]
pub(crate) struct HeldBack {
    pub(super) until_us: u64,
    client: ConnectionId,
}

/// What can be pipelined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

impl Kind {
    /// `None` if a request has to wait for its turn.
    fn of(frame: &Frame<'_>) -> Option<Self> {
        match frame.opcode {
            opcode if is_plain_write(opcode) => Some(Self::Write),
            Some(
                Opcode::GetData
                | Opcode::Exists
                | Opcode::GetChildren
                | Opcode::GetChildren2
                | Opcode::GetAcl
                | Opcode::GetAllChildrenNumber,
            ) if !may_watch(frame) => Some(Self::Read),
            _ => None,
        }
    }
}

/// Which way a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It has to wait for what is under way.
    Waits,
    /// To where everything under way has gone.
    InTurn,
    Pipelined(Kind),
}

/// By what a front decides which way a request goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoutedBy {
    /// The version of the table of what lives where.
    pub(crate) placed: u64,
    /// Whether writes are prepared by this server.
    pub(crate) prepares: bool,
}

/// What a client has pipelined. It is there, and empty, from when a request has had to wait because of
/// another partition; then the first can be pipelined when nothing is under way.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// What it is; `None` before it begins.
    kind: Option<Kind>,
    /// What the client has not been told yet, in order.
    runs: VecDeque<Run>,
    /// So many of the last ones went to one partition.
    streak: u32,
    /// The last write's number, and whether it is known where it stands.
    number: u64,
    is_put: bool,
    /// It follows others from one partition to the next: nothing may be asked where it goes before it is there.
    is_handed_on: bool,
    /// Where the last one stands of which that is known, and what the next one rests on.
    last: Option<EntryId>,
    rests_on: Timestamp,
    /// Reads are asked again as soon as nothing is under way: what still arrives is dropped.
    begins_again: bool,
    /// Answers may be among what arrives that were not pipelined.
    has_others: bool,
    /// Answers that the client is not sent yet, and when they are sent at the latest.
    held: u32,
    held_until_us: u64,
}

/// Requests to one partition, one behind the other.
#[derive(Debug)]
struct Run {
    partition: u8,
    left: u32,
    /// Reads may have to be asked again.
    frames: VecDeque<Box<[u8]>>,
}

impl Pipeline {
    /// Nothing is under way: begins, unless it is better to ask in turn.
    fn begin(&mut self, kind: Kind, seen: &Timestamp) -> bool {
        let (streak, rests_on) = (self.streak, seen.clone());
        let Self { held, held_until_us, .. } = *self;
        let kind = Some(kind);
        *self = Self { kind, streak, is_put: true, rests_on, held, held_until_us, ..Self::default() };
        streak < STREAK_MAX
    }

    /// Whether one more request may go to a partition now.
    fn takes(&self, partition: u8, kind: Kind) -> bool {
        let is_free = kind == Kind::Read || self.is_put || (self.is_last(partition) && !self.is_handed_on);
        self.kind == Some(kind) && is_free && !self.begins_again && !self.is_better_in_turn(partition)
    }

    fn is_last(&self, partition: u8) -> bool {
        self.runs.back().is_some_and(|run| run.partition == partition)
    }

    fn is_better_in_turn(&self, partition: u8) -> bool {
        self.is_last(partition) && self.streak >= STREAK_MAX
    }

    fn add(&mut self, partition: u8, frame: Option<Box<[u8]>>) {
        if self.runs.back().is_none_or(|run| run.partition != partition) {
            self.streak = 0;
            self.runs.push_back(Run { partition, left: 0, frames: VecDeque::new() });
        }
        self.streak += 1;
        if let Some(run) = self.runs.back_mut() {
            run.left += 1;
            run.frames.extend(frame);
        }
    }

    /// The partition whose answer is told next.
    fn head(&self) -> Option<u8> {
        self.runs.front().map(|run| run.partition)
    }

    /// Whether these answers of a partition can be told at once.
    fn is_next(&self, from: u8, answers: u32) -> bool {
        let is_head = |run: &Run| run.partition == from && answers <= run.left;
        !self.has_others && !self.begins_again && self.runs.front().is_none_or(is_head)
    }

    /// The client has been told.
    fn told(&mut self, mut answers: u32) {
        while answers > 0
            && let Some(run) = self.runs.front_mut()
        {
            let told = answers.min(run.left);
            run.left -= told;
            run.frames.drain(..run.frames.len().min(told as usize));
            answers -= told;
            if run.left == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// Whether answers are held back for a moment, because soon there will be more: as many as are `left`. Each
    /// partition has its own in its own time, and to send each by itself would cost more than all else. What the
    /// client asks when it is sent some comes together then, too.
    pub(super) fn holds(&mut self, answers: u32, left: usize) -> bool {
        self.held += answers;
        let holds = answers > 0 && self.kind.is_some() && (self.held as usize) < HELD_FOR_EACH * left;
        if !holds {
            self.held = 0;
        }
        holds
    }

    /// The last write was given back: it is asked in turn then.
    fn came_back(&mut self) {
        self.streak = STREAK_MAX;
        if let Some(run) = self.runs.back_mut() {
            run.left -= 1;
            if run.left == 0 {
                self.runs.pop_back();
            }
        }
    }
}

impl Route {
    /// Which way a request goes.
    #[inline]
    pub(crate) fn way(&mut self, destination: Destination, frame: &Frame<'_>, by: &RoutedBy) -> Way {
        if self.pipeline.is_none() && self.is_free_for(destination, by.placed) {
            return Way::InTurn;
        }
        self.way_pipelined(destination, frame, by)
    }

    fn way_pipelined(&mut self, destination: Destination, frame: &Frame<'_>, by: &RoutedBy) -> Way {
        let placed = by.placed;
        if self.requests.needs > placed {
            return Way::Waits;
        }
        let kind = Kind::of(frame).filter(|kind| *kind == Kind::Read || by.prepares);
        let kind = kind.filter(|_| !self.has_programs());
        let (partition, kind) = match (destination, kind) {
            (Destination::Partition(partition), Some(kind)) => (partition, kind),
            _ if self.requests.under_way > 0 => return Way::Waits,
            _ => {
                self.pipeline = None;
                return Way::InTurn;
            }
        };
        match &mut self.pipeline {
            Some(pipeline) if self.requests.under_way == 0 => {
                if pipeline.begin(kind, &self.seen.stamp) {
                    return Way::Pipelined(kind);
                }
                self.pipeline = None;
                Way::InTurn
            }
            Some(pipeline)
                if self.requests.placed == placed
                    && self.requests.back.is_empty()
                    && pipeline.takes(partition, kind) =>
            {
                Way::Pipelined(kind)
            }
            Some(_) => Way::Waits,
            None => {
                let is_lent = self.session.is_none_or(|session| session.read_only);
                if !is_lent && self.direct.is_none() && self.gather.is_none() && self.requests.back.is_empty()
                {
                    self.pipeline = Some(Box::default());
                }
                Way::Waits
            }
        }
    }

    /// What has been told to the client was pipelined.
    pub(crate) fn told_pipelined(&mut self, answers: u32, stamp: &Timestamp) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.told(answers);
            // What comes next must be as new as that, and not as what this thread's partition has come to.
            self.seen.stamp.merge(stamp);
        }
    }

    /// Whether what a partition has for the client may be told before all else that it waits for, as far as
    /// the order of its requests goes.
    pub(crate) fn is_next(&self, from: u8, answers: u32, stamp: &Timestamp) -> bool {
        self.pipeline.as_ref().is_none_or(|pipeline| pipeline.is_next(from, answers))
            && self.is_new_enough(from, stamp)
    }

    /// Whether a read that was pipelined shows at least what its client has seen.
    fn is_new_enough(&self, from: u8, stamp: &Timestamp) -> bool {
        let reads = self.pipeline.as_ref().is_some_and(|pipeline| pipeline.kind == Some(Kind::Read));
        !reads || stamp.at(from) >= self.seen.stamp.at(from)
    }

    /// The last of what was asked has come back.
    pub(crate) fn came_back(&mut self) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.came_back();
        }
    }

    /// Whether a write may follow the last one from its partition to this one. That one must know the client by then,
    /// and all that it has proved to be: messages of different threads overtake each other.
    fn may_be_handed_on(&self, partition: u8) -> bool {
        let knows_all = self.partitions.met & (1 << partition) != 0 && self.proofs.is_empty();
        knows_all
            && !self.has_programs()
            && self.pipeline.as_ref().is_some_and(|pipeline| !pipeline.is_better_in_turn(partition))
    }

    /// Whether this answers something, as far as that can be told from where it comes.
    pub(crate) fn is_answer(&self, late: &Undelivered) -> bool {
        late.answers > 0 && (self.pipeline.is_some() || late.from == self.requests.at)
    }

    /// Whether this is the answer to a read which shows less than its client has seen meanwhile.
    pub(crate) fn is_too_old(&self, late: &Undelivered) -> bool {
        late.answers > 0 && !self.is_new_enough(late.from, &late.stamp)
    }

    /// The client proves what it is, which is answered whatever is under way.
    pub(crate) fn proves(&mut self) {
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.has_others = true;
        }
    }

    /// Whether this is an answer that has to wait for those to earlier requests. What its partition has behind it need
    /// not: events wait for the answers that they follow ([`Route::awaits`]), and pass reads, which are asked
    /// again if they turn out to be older.
    pub(crate) fn is_held_back(&self, late: &Undelivered) -> bool {
        let head = self.pipeline.as_ref().and_then(|pipeline| pipeline.head());
        late.answers > 0 && head.is_some_and(|head| head != late.from)
    }

    /// The partitions whose answers the client is yet to be told, if these may be to writes. An event that rests on
    /// more of them than has arrived may follow one of these: each write that was pipelined stands at a step behind
    /// those of all before it.
    pub(crate) fn awaits(&self) -> u64 {
        match self.pipeline.as_ref().and_then(|pipeline| Some((pipeline.kind?, &pipeline.runs))) {
            Some((Kind::Write, runs)) => runs.iter().fold(0, |set, run| set | 1 << run.partition),
            None if self.requests.under_way > 0 => 1 << self.requests.at,
            _ => 0,
        }
    }
}

impl Front {
    /// Asks a partition before all is answered that others were asked.
    pub(super) fn pipeline(&mut self, id: ConnectionId, partition: u8, frame: Box<[u8]>, kind: Kind) {
        let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) else { return };
        if core::mem::take(&mut route.seen.own) {
            route.seen.stamp.merge(&self.progress.own);
        }
        let seen = route.asks(partition, self.placement.version(), false).then(|| route.seen.stamp.clone());
        let Some(asked) = &mut route.pipeline else { return };
        let is_write = kind == Kind::Write;
        asked.add(partition, (!is_write).then(|| frame.clone()));
        let pipelined = if is_write { self.pipelined_with_those_behind(id) } else { None };
        self.join(id, partition);
        self.hand_in(partition, id, seen, frame, pipelined);
    }

    /// What goes with a write that is pipelined.
    fn pipelined_with_those_behind(&mut self, id: ConnectionId) -> Option<Box<Pipelined>> {
        let then = self.those_behind(id);
        let is_handed_on = !then.is_empty();
        self.pipelined += 1;
        let number = self.pipelined;
        let route = self.route(id)?;
        let asked = route.pipeline.as_mut()?;
        (asked.number, asked.is_put, asked.is_handed_on) = (number, false, is_handed_on);
        let (after, rests_on) = (asked.last, asked.rests_on.clone());
        Some(Box::new(Pipelined { number, after, rests_on, then, seen: route.seen.stamp.clone() }))
    }

    /// Takes the writes that wait behind one that is pipelined, and can follow it.
    fn those_behind(&mut self, id: ConnectionId) -> Vec<Next> {
        let placed = self.placement.version();
        let waiting = self.connections.get(id).map_or(0, |connection| connection.queue.slots.len());
        let mut then = Vec::with_capacity(waiting.min(TOGETHER_MAX));
        while then.len() < TOGETHER_MAX
            && let Some(connection) = self.connections.get_mut(id)
            && let Some(Slot::Request { frame, .. }) = connection.queue.slots.front()
            && let (Some(frame), Some(route)) = (Frame::read(frame), connection.route.as_deref_mut())
            && Kind::of(&frame) == Some(Kind::Write)
            && let Destination::Partition(partition) = route.destination(&self.placement, &frame)
            && route.may_be_handed_on(partition)
        {
            let has_news = route.asks(partition, placed, false);
            if let Some(asked) = &mut route.pipeline {
                asked.add(partition, None);
            }
            self.under_way.count(route, 1, frame.bytes.len());
            self.count_one(partition);
            let Some(Slot::Request { frame, .. }) = self.connections.pop_slot(id) else { break };
            then.push(Next { partition, has_news, frame });
        }
        then.reverse();
        then
    }

    /// Puts answers into a client's output, to be sent with others.
    pub(super) fn hold(&mut self, id: ConnectionId, bytes: &mut Vec<u8>) -> usize {
        if self.connections.get(id).is_some_and(|it| it.output_bytes() == 0) {
            let until_us = self.now_us + HELD_US;
            self.pending.held.push_back(HeldBack { until_us, client: id });
            if let Some(pipeline) = self.route(id).and_then(|route| route.pipeline.as_mut()) {
                pipeline.held_until_us = until_us;
            }
        }
        self.connections.append_quietly(id, bytes)
    }

    /// What is held back from now on is so until some time after this.
    #[inline]
    pub fn heard_at(&mut self, now: Now) {
        self.now_us = now.mono_us;
    }

    /// Lets go what was held back for long enough.
    pub fn let_go(&mut self, now: Now) {
        self.now_us = now.mono_us;
        while let Some(held) = self.pending.held.pop_front_if(|held| held.until_us <= now.mono_us) {
            if let Some(pipeline) = self.route(held.client).and_then(|route| route.pipeline.as_mut()) {
                if pipeline.held_until_us > held.until_us {
                    // Those were sent in time, and what is held back now may still wait.
                    continue;
                }
                pipeline.held = 0;
            }
            self.connections.announce(held.client);
        }
    }

    /// It is known where the last write stands that was pipelined.
    pub(super) fn is_put(&mut self, id: ConnectionId, put: &Pipelined) {
        let pipeline = self.route(id).and_then(|route| route.pipeline.as_mut());
        let Some(pipeline) = pipeline.filter(|pipeline| pipeline.number == put.number) else { return };
        pipeline.is_put = true;
        pipeline.last = put.after;
        pipeline.rests_on.merge(&put.rests_on);
        self.go_on(id);
    }

    /// Keeps what a partition has for a client until its turn comes: answers that were pipelined each by itself.
    /// Whether its turn may have come: not if they only wait for others before them.
    pub(super) fn keep_for_later(
        &mut self,
        from: u8,
        id: ConnectionId,
        answers: u32,
        mut bytes: Vec<u8>,
        stamp: Timestamp,
    ) -> bool {
        let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) else {
            return false;
        };
        let parts = if answers > 0 { core::mem::take(&mut route.delivery.parts) } else { 0 };
        let Some(pipeline) =
            route.pipeline.as_ref().filter(|pipeline| answers > 0 && pipeline.kind.is_some())
        else {
            route.delivery.undelivered.push_back(Undelivered { from, answers, parts, bytes, stamp });
            return true;
        };
        let begins_again = pipeline.begins_again;
        let mut is_held_back = !begins_again && pipeline.head().is_some_and(|head| head != from);
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX)
        {
            let (start, end) = (at, bytes.len() - tail.len());
            at = end;
            let xid = ReplyHeader::decode(&mut Reader::new(frame)).map_or(0, |header| header.xid);
            let is_asked = !matches!(xid, xid::NOTIFICATION | xid::AUTH);
            is_held_back &= is_asked;
            if xid == xid::AUTH || (is_asked && begins_again) {
                self.under_way.uncount(route, 1);
            }
            if !(is_asked && begins_again) {
                let is_all = end - start == bytes.len();
                let bytes = if is_all { core::mem::take(&mut bytes) } else { bytes[start..end].to_vec() };
                let (answers, stamp) = (u32::from(is_asked), stamp.clone());
                route.delivery.undelivered.push_back(Undelivered { from, answers, parts, bytes, stamp });
            }
        }
        self.connections.recycle(bytes);
        !is_held_back
    }

    /// Reads that were pipelined are asked again, from the first that has not been told. False where there
    /// are none.
    pub(crate) fn begin_again(&mut self, id: ConnectionId) -> bool {
        let Some(route) = self.connections.get_mut(id).and_then(|it| it.route.as_deref_mut()) else {
            return false;
        };
        let Some(pipeline) = route.pipeline.as_mut().filter(|it| it.kind == Some(Kind::Read)) else {
            return false;
        };
        pipeline.begins_again = true;
        // The first of them is asked in turn, and told whatever it shows: so there is no going round in circles.
        pipeline.streak = STREAK_MAX;
        for run in pipeline.runs.drain(..) {
            route.requests.back.extend(run.frames);
        }
        let dropped = route.delivery.undelivered.iter().map(|late| late.answers).sum();
        route.delivery.undelivered.retain(|late| late.answers == 0);
        self.under_way.uncount(route, dropped);
        true
    }
}
