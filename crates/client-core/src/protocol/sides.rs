//! The side connections of a direct client: which there are, and which calls go where.

use alloc::vec::Vec;

use stoa_wire::{Offer, Reader, Table, direct_op, side_answer};

use super::call::Call;
use super::lane::{InFlight, Lane, MAIN, Stage};
use super::place::Places;
use super::watches::Slot;
use super::{Fault, Output, Phase, Protocol, Waiting, next_xid};

/// How long a side connection may take to be there. Whoever has not answered by then has other worries; what
/// is for his partition goes over the main connection.
const SIDE_PATIENCE_MS: u64 = 1000;

/// A call that was given back so often takes the main connection, where the server finds the way.
const RETURNS_MAX: u8 = 2;

/// What the driver is to do about a side connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideWish {
    /// Open a connection to the address of the main one, and say [`Protocol::side_connected`] or
    /// [`Protocol::side_disconnected`].
    Open {
        /// The partition that it is for.
        partition: u8,
    },
    /// Close it, and say nothing more of it.
    Close {
        /// The partition that it is for.
        partition: u8,
    },
}

fn lane_at(partition: u8) -> usize {
    usize::from(partition) + 1
}

impl Protocol {
    /// The partitions that have side connections.
    pub fn sides(&self) -> impl Iterator<Item = u8> {
        let is_up = |lane: &&Lane| matches!(lane.stage, Stage::Greeting | Stage::Ready);
        (0..).zip(self.lanes.iter().skip(1)).filter(move |(_, lane)| is_up(lane)).map(|(of, _)| of)
    }

    /// Bytes for a side connection; see [`Protocol::output`].
    pub fn side_output(&mut self, partition: u8) -> Option<&mut Vec<u8>> {
        Some(&mut self.lanes.get_mut(lane_at(partition))?.output)
    }

    /// A side connection is up.
    pub fn side_connected(&mut self, partition: u8, now_ms: u64) {
        let (Some(session), Some(lane)) = (self.session, self.lanes.get_mut(lane_at(partition))) else {
            return;
        };
        if lane.stage == Stage::Opening {
            lane.begin(now_ms);
            lane.greet(partition, &session);
        }
    }

    /// Handles bytes from a side connection.
    ///
    /// # Errors
    /// When the main connection cannot go on either.
    pub fn side_receive(&mut self, partition: u8, bytes: &[u8], now_ms: u64) -> Result<(), Fault> {
        let at = lane_at(partition);
        match self.lanes.get(at).map(|lane| lane.stage) {
            Some(Stage::Greeting | Stage::Ready) => self.receive_on(at, bytes, now_ms),
            _ => Ok(()),
        }
    }

    /// A side connection is gone, or could not be opened. What was sent on it fails; it is opened again once.
    ///
    /// # Errors
    /// When the main connection had better be given up too.
    pub fn side_disconnected(&mut self, partition: u8, now_ms: u64) -> Result<(), Fault> {
        let at = lane_at(partition);
        let Some(lane) = self.lanes.get_mut(at) else { return Ok(()) };
        let partitions = self.places.as_ref().map_or(1, |places| places.partitions);
        match lane.stage {
            Stage::Closed => {}
            Stage::Ready => {
                let mut fresh = Lane::new(Stage::Opening, partitions);
                fresh.was_ready = true;
                fresh.sent_ms = now_ms;
                let mut lost = core::mem::replace(lane, fresh);
                // Nobody is told what may come after their events before the new connection has told these.
                (lane.watches, lane.watched) = (core::mem::take(&mut lost.watches), lost.watched);
                lane.zxid = lost.zxid;
                // The others must hear of what it has told.
                lane.news = core::mem::take(&mut lost.news);
                self.held.retain(|held| held.lane != at);
                self.lose(lost);
                self.outputs.push_back(Output::Side(SideWish::Open { partition }));
            }
            Stage::Opening | Stage::Greeting if lane.was_ready => return Err(Fault::SideLost),
            Stage::Opening | Stage::Greeting => {
                // The server does not want it: its requests go over the main connection.
                lane.stage = Stage::Closed;
                self.is_attached(now_ms);
            }
        }
        self.release()
    }

    /// The server offers side connections.
    pub(super) fn attach_sides(&mut self, offer: Offer<'_>, now_ms: u64) -> Result<(), Fault> {
        let Offer { partitions, own, token, table } = offer;
        let moment = self.moment(token)?;
        let main = &mut self.lanes[MAIN];
        main.meet(partitions, moment);
        self.places = Some(Places { partitions, own, table });
        self.phase = Phase::Attaching;
        for partition in 0..partitions {
            let stage = if partition == own { Stage::Closed } else { Stage::Opening };
            let mut lane = Lane::new(stage, partitions);
            lane.sent_ms = now_ms;
            self.lanes.push(lane);
            if stage == Stage::Opening {
                self.outputs.push_back(Output::Side(SideWish::Open { partition }));
            }
        }
        Ok(())
    }

    /// A side connection's handshake was answered.
    pub(super) fn side_greeted(&mut self, at: usize, frame: &[u8], now_ms: u64) -> Result<(), Fault> {
        if side_answer(frame)? != 0 {
            // The server closes it.
            return Ok(());
        }
        let lane = &mut self.lanes[at];
        lane.stage = Stage::Ready;
        lane.was_ready = true;
        if self.phase == Phase::Ready {
            // It was lost and is there again. What was moved meanwhile would be set on a connection where
            // something may wait already that comes after what happened to it.
            let is_here = |(slot, path, _)| self.lane_of_watch(slot, path) == at;
            if !self.lanes[at].watches.iter().all(is_here) {
                return Err(Fault::SideLost);
            }
            let lane = &mut self.lanes[at];
            self.unset.push((lane.zxid, core::mem::take(&mut lane.watches)));
            for credential in &self.credentials {
                lane.send_credential(None, credential, now_ms);
            }
            self.set_watches_again(now_ms);
            self.release()
        } else {
            self.is_attached(now_ms);
            Ok(())
        }
    }

    /// One more side connection is there, or will not be.
    fn is_attached(&mut self, now_ms: u64) {
        let is_settled = |lane: &Lane| matches!(lane.stage, Stage::Closed | Stage::Ready);
        if self.phase == Phase::Attaching && self.lanes.iter().all(is_settled) {
            self.get_ready(now_ms);
        }
    }

    pub(super) fn tick_sides(&mut self, now_ms: u64) -> Result<(), Fault> {
        for (partition, at) in (0..).zip(1..self.lanes.len()) {
            let lane = &mut self.lanes[at];
            let is_late = match lane.stage {
                Stage::Closed => false,
                Stage::Opening | Stage::Greeting => now_ms >= lane.sent_ms + SIDE_PATIENCE_MS,
                Stage::Ready => now_ms >= lane.silence_ends_ms(self.timeout_ms),
            };
            if is_late {
                self.outputs.push_back(Output::Side(SideWish::Close { partition }));
                self.side_disconnected(partition, now_ms)?;
            } else if lane.stage == Stage::Ready && now_ms >= lane.ping_due_ms(self.timeout_ms) {
                lane.send_ping(now_ms);
            }
        }
        Ok(())
    }

    pub(super) fn next_side_tick_ms(&self) -> impl Iterator<Item = u64> {
        let is_awaited = |lane: &&Lane| matches!(lane.stage, Stage::Opening | Stage::Greeting);
        self.lanes.iter().skip(1).filter(is_awaited).map(|lane| lane.sent_ms + SIDE_PATIENCE_MS)
    }

    /// The connection for a partition. The main one leads to one partition, and takes the place of side
    /// connections that the server did not want.
    fn lane_for(&self, partition: u8) -> usize {
        let at = lane_at(partition);
        if self.lanes.get(at).is_some_and(|lane| lane.stage != Stage::Closed) { at } else { MAIN }
    }

    /// Whether a call is a fast read that was not tried as one.
    pub(super) fn is_fast(waiting: &Waiting) -> bool {
        waiting.returns == 0 && waiting.call.fast_read().is_some()
    }

    /// The connection that a call takes.
    pub(super) fn lane_of(&self, call: &Call, returns: u8) -> usize {
        let Some(places) = self.places.as_ref().filter(|_| returns < RETURNS_MAX) else { return MAIN };
        // What is watched may live elsewhere than when the watch was set.
        if let Call::RemoveWatches { path, kind } | Call::CheckWatches { path, kind } = call
            && let Some(at) = self.lanes.iter().position(|lane| lane.watches.contain(path, *kind))
        {
            return at;
        }
        let partition = places.of_call(call, &self.settings.chroot);
        partition.map_or(MAIN, |partition| self.lane_for(partition))
    }

    /// The connection that is told of a watch.
    pub(super) fn lane_of_watch(&self, slot: Slot, path: &str) -> usize {
        let mode = match slot {
            Slot::Recursive => stoa_wire::AddWatchMode::PersistentRecursive,
            _ => stoa_wire::AddWatchMode::Persistent,
        };
        self.lane_of(&Call::AddWatch { path: path.into(), mode, watch: super::WatchId(0) }, 0)
    }

    /// Whether a call may be sent there without overtaking any.
    pub(super) fn is_free_for(&self, at: usize) -> bool {
        let version = self.places.as_ref().map_or(0, |places| places.table.version);
        let lane = &self.lanes[at];
        // What was sent by an older table may come back, and nothing may be carried out before it.
        let is_of_one_table = at == MAIN || lane.routed == Some(version) || lane.in_flight.is_empty();
        let mut others = self.lanes.iter().enumerate().filter(|(other, _)| *other != at);
        is_of_one_table && lane.stage == Stage::Ready && others.all(|(_, lane)| lane.in_flight.is_empty())
    }

    /// Tells a partition what was seen elsewhere, and how the client finds it.
    pub(super) fn tell_news(&mut self, at: usize, now_ms: u64) {
        let Some(places) = &self.places else { return };
        let version = places.table.version;
        for from in (0..self.lanes.len()).filter(|from| *from != at) {
            if let Ok([from_lane, lane]) = self.lanes.get_disjoint_mut([from, at]) {
                lane.forward(from, &from_lane.news, now_ms);
            }
        }
        if at != MAIN {
            self.lanes[at].route_by(version, now_ms);
        }
    }

    /// Sends a fast read at once to the partition that it is for. Where there is no connection to that one
    /// it is a read like any other.
    pub(super) fn send_fast(&mut self, waiting: Waiting, now_ms: u64) {
        let own = self.places.as_ref().map(|places| places.own);
        let partition = self.places.as_ref().and_then(|it| it.of_call(&waiting.call, &self.settings.chroot));
        let at = partition.map_or(MAIN, |partition| self.lane_for(partition));
        let is_there = self.lanes[at].stage == Stage::Ready && (at != MAIN || own == partition);
        let read = waiting.call.fast_read().filter(|_| own.is_some() && is_there);
        let Some(read) = read else {
            // Its watch stays a fast one.
            self.waiting.push_back(Waiting { returns: RETURNS_MAX, ..waiting });
            return;
        };
        self.last_xid = next_xid(self.last_xid);
        let xid = self.last_xid;
        let lane = &mut self.lanes[at];
        read.encode_fast(xid, &self.settings.chroot, &mut lane.output);
        lane.sent_ms = now_ms;
        let Waiting { token, call, returns } = waiting;
        lane.fast.push(InFlight { xid, token, call, returns, watches: false });
    }

    /// A call was sent to the wrong partition.
    pub(super) fn given_back(&mut self, at: usize, sent: InFlight) {
        // The server takes nothing there before it is told anew by which table it comes.
        self.lanes[at].routed = None;
        let InFlight { token, call, returns, .. } = sent;
        self.returned.push(Waiting { token, call, returns: returns + 1 });
        self.ask_table();
    }

    fn ask_table(&mut self) {
        if !self.asks_table {
            self.asks_table = true;
            let main = &mut self.lanes[MAIN];
            main.send_raw(0, direct_op::TABLE, main.sent_ms, |_| {});
        }
    }

    pub(super) fn table_told(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        self.asks_table = false;
        self.learn(reader)
    }

    fn learn(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let table = Table::decode(reader)?;
        // Threads learn of a move one after the other.
        if let Some(places) = self.places.as_mut().filter(|places| places.table.version <= table.version) {
            places.table = table;
        }
        Ok(())
    }

    /// What is watched on a connection has been moved. The main one goes on telling of it, wherever it lives.
    /// Where it lives now something may have been said already that comes after what happens to it: so who
    /// watched it on a side connection starts anew, and is told what has happened since.
    pub(super) fn watches_moved(&mut self, at: usize, reader: &mut Reader<'_>) -> Result<(), Fault> {
        self.learn(reader)?;
        if at == MAIN { Ok(()) } else { Err(Fault::SideLost) }
    }

    /// Calls that were given back are sent again, before all others: when no more of them can come, and it
    /// is known where to.
    pub(super) fn take_back(&mut self) {
        if self.asks_table || self.lanes.iter().any(|lane| !lane.in_flight.is_empty()) {
            return;
        }
        for call in core::mem::take(&mut self.returned).into_iter().rev() {
            self.waiting.push_front(call);
        }
    }
}
