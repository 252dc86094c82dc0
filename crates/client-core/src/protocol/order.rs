//! In which order a direct client tells what it receives on several connections (AGORA, section IV-G).
//!
//! Whatever is told must not show anything whose causes the client's owner has not been told. What comes
//! on one connection comes in order. What comes on different ones has stamps: a frame waits until, of each
//! partition that is watched or asked elsewhere, everything has been received that comes before its stamp.

use alloc::borrow::ToOwned;
use alloc::sync::Arc;
use alloc::vec::Vec;

use stoa_wire::{DecodeError, Reader, ReplyHeader, Stamped, Timestamp, stamp_of, xid};

use super::lane::{Lane, MAIN, Moment};
use super::watches::Pace;
use super::{Fault, Protocol};

const EVERYWHERE: u64 = u64::MAX;

/// A frame that waits for others.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lane: usize,
    moment: Option<Arc<Moment>>,
    frame: Vec<u8>,
}

impl Held {
    fn is_event(&self) -> bool {
        ReplyHeader::decode(&mut Reader::new(&self.frame)).is_ok_and(|it| it.xid == xid::NOTIFICATION)
    }

    fn stamp_at(&self, partition: u8) -> u64 {
        self.moment.as_ref().map_or(0, |moment| moment.stamp.at(partition))
    }
}

fn bits(set: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |bit| set & (1 << bit) != 0)
}

impl Protocol {
    /// What follows on a connection rests on this.
    pub(super) fn stamped(&mut self, at: usize, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let Stamped { covers, token } = Stamped::decode(reader)?;
        let moment = self.moment(token)?;
        let lane = &mut self.lanes[at];
        // If an earlier one covers more than has come, both end at the same byte.
        lane.covered.merge(&moment.stamp);
        lane.covers = covers;
        lane.comes_to(moment);
        if covers == 0 { self.has_received_moment(at) } else { Ok(()) }
    }

    pub(super) fn moment(&mut self, token: &[u8]) -> Result<Arc<Moment>, DecodeError> {
        let (stamp, _) = stamp_of(token)?;
        self.moments += 1;
        Ok(Arc::new(Moment { number: self.moments, stamp, token: token.to_vec() }))
    }

    /// So many bytes of a connection have been taken.
    pub(super) fn taken(&mut self, at: usize, bytes: usize) -> Result<(), Fault> {
        let lane = &mut self.lanes[at];
        if lane.covers == 0 {
            return Ok(());
        }
        lane.covers = lane.covers.saturating_sub(bytes);
        if lane.covers == 0 { self.has_received_moment(at) } else { Ok(()) }
    }

    fn has_received_moment(&mut self, at: usize) -> Result<(), Fault> {
        let lane = &mut self.lanes[at];
        lane.reached.merge(&lane.covered);
        self.release()
    }

    /// What the server was asked to reach is reached.
    pub(super) fn has_reached(&mut self, at: usize) -> Result<(), Fault> {
        let lane = &mut self.lanes[at];
        if let Some(moment) = lane.asked.take() {
            lane.reached.merge(&moment.stamp);
        }
        self.release()
    }

    /// Tells what a frame has to tell, as soon as it may.
    pub(super) fn in_order(&mut self, at: usize, frame: &[u8]) -> Result<(), Fault> {
        let moment = self.lanes[at].moment.clone();
        let stamp = moment.as_deref().map(|moment| &moment.stamp);
        if self.held.is_empty() && self.lacks(at, stamp).is_none() {
            return self.tell(at, frame);
        }
        self.set_fast_watch(at, frame);
        self.held.push_back(Held { lane: at, moment, frame: frame.to_vec() });
        self.release()
    }

    /// Events of a fast watch do not wait until the reply is told that says that it is set.
    fn set_fast_watch(&mut self, at: usize, frame: &[u8]) {
        let Ok(ReplyHeader { xid, zxid, err }) = ReplyHeader::decode(&mut Reader::new(frame)) else { return };
        let sent = self.lanes[at].in_flight.iter_mut().find(|sent| sent.xid == xid);
        let Some(sent) = sent.filter(|sent| sent.call.pace() == Pace::Fast) else { return };
        let Some((slot, path, watch)) = sent.call.sets_watch(err) else { return };
        sent.watches = true;
        let path = path.to_owned();
        self.watch(at, slot, &path, &[(Pace::Fast, watch)], zxid);
    }

    /// Of which partitions more may come on a connection that has to be told in order.
    fn concerns(&self, at: usize) -> u64 {
        let lane = &self.lanes[at];
        let asked = match lane.in_flight.is_empty() {
            true => 0,
            false if at == MAIN => EVERYWHERE,
            false => 1 << (at - 1),
        };
        asked | if lane.watches.have_order() { lane.watched } else { 0 }
    }

    /// A connection on which something that comes before a stamp may be missing, for a frame of another one.
    fn lacks(&self, at: usize, stamp: Option<&Timestamp>) -> Option<usize> {
        let stamp = stamp?;
        let others = (0..self.lanes.len()).filter(|other| *other != at);
        let mut lacking = others.filter(|other| {
            let Lane { reached, sets_in_flight, .. } = &self.lanes[*other];
            let concerns = self.concerns(*other);
            // What happened while watches were not set is told before the answer to those that set them.
            concerns != 0 && *sets_in_flight > 0 || bits(concerns).any(|of| stamp.at(of) > reached.at(of))
        });
        lacking.next()
    }

    /// Tells what waits no more.
    pub(super) fn release(&mut self) -> Result<(), Fault> {
        while let Some(next) = self.next_due() {
            let Some(held) = self.held.remove(next) else { break };
            self.tell(held.lane, &held.frame)?;
        }
        Ok(())
    }

    /// Which of what waits is next: the first of its connection, with nothing before it that has not come,
    /// or waits too. (Parts of one operation are each before the others: then events come before replies.)
    fn next_due(&mut self) -> Option<usize> {
        let mut firsts: Vec<usize> = Vec::new();
        let mut missing = None;
        for (number, held) in self.held.iter().enumerate() {
            if firsts.iter().any(|first| self.held[*first].lane == held.lane) {
                continue;
            }
            firsts.push(number);
            let stamp = held.moment.as_deref().map(|moment| &moment.stamp);
            missing = missing.or(self.lacks(held.lane, stamp).zip(held.moment.clone()));
        }
        // On the main connection several partitions speak: an event may come before what waits on another
        // connection, and stand behind one that does not.
        let counts = |number: usize, held: &Held| firsts.contains(&number) || held.is_event();
        let is_due = |number: &&usize| {
            let held = &self.held[**number];
            let stamp = held.moment.as_deref().map(|moment| &moment.stamp);
            let mut others = self.held.iter().enumerate();
            self.lacks(held.lane, stamp).is_none()
                && !others.any(|(number, other)| self.is_before(other, held) && counts(number, other))
        };
        let due = firsts.iter().find(is_due).copied();
        if let (None, Some((at, moment))) = (due, missing) {
            if self.lanes[at].sets_in_flight == 0 {
                self.lanes[at].ask_to_reach(&moment);
            }
            return None;
        }
        let is_part_of_next = |number: &&usize| {
            let held = &self.held[**number];
            let others = firsts.iter().map(|first| &self.held[*first]);
            let mut before = others.filter(|other| self.is_before(other, held));
            before.all(|before| self.is_before(held, before))
        };
        let mut parts: Vec<_> = firsts.iter().filter(is_part_of_next).copied().collect();
        parts.sort_by_key(|part| !self.held[*part].is_event());
        due.or(parts.first().copied()).or(firsts.first().copied())
    }

    fn is_before(&self, one: &Held, other: &Held) -> bool {
        let of = self.concerns(one.lane);
        one.lane != other.lane && of != 0 && bits(of).all(|of| one.stamp_at(of) <= other.stamp_at(of))
    }
}
