//! One session of the generator: its connection, or one for each partition.

use std::collections::VecDeque;

use stoa_wire::{Opcode, RequestHeader, begin_frame, direct_op, end_frame, partition_of, xid};

use super::clock::{Clock, Nanos};
use super::connect::Streams;
use super::record::Record;
use super::requests::{Op, Requests};
use super::stream::Stream;
use super::wire::{InFlight, Wire};
use crate::failure::{Failure, Result};

/// Negative xids have meanings of their own, so xids start again well before they overflow.
const XID_MAX: i32 = i32::MAX / 2;
/// Where the opcode of a request stands in its frame, and where its path begins.
const OPCODE_AT: usize = 8;
const PATH_AT: usize = 12;

/// An open session.
#[derive(Debug)]
pub(crate) struct Session {
    /// The connections; where there are several, by partition.
    pub(super) wires: Vec<Wire>,
    /// The number of the one that has the session.
    main: usize,
    direct: Option<Direct>,
    index: usize,
    /// Most requests without a reply at a time.
    pipeline: usize,
    last_xid: i32,
    /// When requests should have been sent that found no room in the pipeline.
    due: VecDeque<Nanos>,
    /// Frame bytes sent, lengths included, and the number of frames.
    pub(crate) sent_bytes: u64,
    pub(crate) sent_frames: u64,
}

/// What a session does that has a connection to each partition.
#[derive(Debug)]
struct Direct {
    /// Its reads are fast ones.
    is_fast: bool,
    /// A request whose turn has not come: those to other partitions are answered first.
    held: Option<(InFlight, Vec<u8>)>,
    /// How many tokens of each connection each other one was told.
    told: Vec<Vec<u64>>,
}

impl Session {
    /// Takes over connections; `index` is the session's number for [`Requests`]. `is_fast` says whether the
    /// reads of a session with several connections are fast ones.
    pub(crate) fn new(streams: Streams, index: usize, pipeline: usize, is_fast: bool) -> Result<Self> {
        let Streams { streams, main } = streams;
        let count = streams.len();
        let wires = streams.into_iter().map(|stream| Wire::new(stream, pipeline > 1));
        let direct = Direct { is_fast, held: None, told: vec![vec![0; count]; count] };
        Ok(Self {
            wires: wires.collect::<Result<_>>()?,
            main,
            direct: (count > 1).then_some(direct),
            index,
            pipeline,
            last_xid: 0,
            due: VecDeque::new(),
            sent_bytes: 0,
            sent_frames: 0,
        })
    }

    /// Gives the main connection back for the goodbye.
    pub(crate) fn into_stream(mut self) -> Stream {
        self.wires.swap_remove(self.main).into_stream()
    }

    /// Whether every request has been answered and none waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        let holds = self.direct.as_ref().is_some_and(|direct| direct.held.is_some());
        self.under_way() == 0 && self.due.is_empty() && !holds
    }

    fn under_way(&self) -> usize {
        self.wires.iter().map(|wire| wire.in_flight.len()).sum()
    }

    fn has_room(&mut self) -> bool {
        self.let_go();
        let holds = self.direct.as_ref().is_some_and(|direct| direct.held.is_some());
        !holds && self.under_way() < self.pipeline
    }

    /// A request should be sent at `at`; it will be as soon as the pipeline has room.
    pub(crate) fn schedule(&mut self, at: Nanos) {
        self.due.push_back(at);
    }

    /// Sends requests at will, up to the length of the pipeline.
    pub(crate) fn fill(&mut self, now: Nanos, requests: &mut impl Requests) {
        while self.has_room() && self.send(now, |at, xid, out| requests.append(at, xid, out)) {}
    }

    /// Sends the requests that are due, as far as the pipeline has room. Their latency counts from
    /// the moment at which they were due.
    pub(crate) fn fill_due(&mut self, requests: &mut impl Requests) {
        while self.has_room()
            && let Some(at) = self.due.pop_front()
        {
            self.send(at, |at, xid, out| requests.append(at, xid, out));
        }
    }

    /// Sends what is due still, then what it takes to leave nothing half done.
    pub(crate) fn finish(&mut self, now: Nanos, requests: &mut impl Requests) {
        self.fill_due(requests);
        if self.due.is_empty() {
            while self.has_room() && self.send(now, |at, xid, out| requests.finish(at, xid, out)) {}
        }
    }

    #[inline]
    fn send(&mut self, sent: Nanos, append: impl FnOnce(usize, i32, &mut Vec<u8>) -> Option<Op>) -> bool {
        let xid = if self.last_xid == XID_MAX { 1 } else { self.last_xid + 1 };
        let mut scratch = Vec::new();
        let out = if self.direct.is_some() { &mut scratch } else { &mut self.wires[0].output };
        let before = out.len();
        let Some(op) = append(self.index, xid, out) else {
            return false;
        };
        self.sent_bytes += (out.len() - before) as u64;
        self.sent_frames += 1;
        let xid = if op == Op::Ping {
            xid::PING
        } else {
            self.last_xid = xid;
            xid
        };
        let request = InFlight { sent, xid, op };
        match &mut self.direct {
            None => self.wires[0].in_flight.push_back(request),
            Some(direct) => {
                direct.held = Some((request, scratch));
                self.let_go();
            }
        }
        true
    }

    /// Sends the request whose turn has not come, if it has now.
    fn let_go(&mut self) {
        let Some(direct) = &mut self.direct else { return };
        let Some((request, frame)) = &direct.held else { return };
        let to = path_of(frame).map_or(self.main, |path| {
            usize::from(partition_of(path, u8::try_from(self.wires.len()).unwrap_or(u8::MAX)))
        });
        let is_fast = direct.is_fast && matches!(request.op, Op::Get | Op::Exists);
        let mut others = self.wires.iter().enumerate().filter(|(other, _)| *other != to);
        if !is_fast && !others.all(|(_, wire)| wire.in_flight.is_empty()) {
            return;
        }
        let Some((request, frame)) = direct.held.take() else { return };
        if is_fast {
            append_fast(&frame, &mut self.wires[to].output);
        } else {
            for from in (0..self.wires.len()).filter(|from| *from != to) {
                let tokens = self.wires[from].tokens;
                if std::mem::replace(&mut direct.told[to][from], tokens) != tokens {
                    let token = self.wires[from].token.clone();
                    append_seen(&token, &mut self.wires[to].output);
                }
            }
            self.wires[to].output.extend_from_slice(&frame);
        }
        self.wires[to].in_flight.push_back(request);
    }

    /// Writes what waits to be written, as far as the sockets take it.
    pub(crate) fn write(&mut self) -> Result<()> {
        let index = self.index;
        self.wires.iter_mut().try_for_each(|wire| wire.write().map_err(|why| lost(index, &why)))
    }

    /// Reads once from a connection and handles every whole reply. Returns the time just after reading.
    pub(crate) fn read(
        &mut self,
        wire: usize,
        clock: Clock,
        record: &mut Record,
        requests: &impl Requests,
    ) -> Result<Nanos> {
        let read = self.wires[wire].read(clock, record, requests.has_reply_header());
        read.map_err(|why| lost(self.index, &why))
    }

    /// Counts what was never answered.
    pub(crate) fn give_up(&mut self, now: Nanos, record: &mut Record) {
        for request in self.wires.iter_mut().flat_map(|wire| wire.in_flight.drain(..)) {
            record.unanswered(request.op, request.sent, now);
        }
        record.unanswered += self.due.drain(..).count() as u64;
    }
}

fn lost(index: usize, why: &str) -> Failure {
    Failure::failed(format!("session {index} was lost: {why}"))
}

/// The path of a request.
fn path_of(frame: &[u8]) -> Option<&[u8]> {
    if frame.get(OPCODE_AT..PATH_AT)? == (Opcode::Ping as i32).to_be_bytes() {
        return None;
    }
    let (length, rest) = frame.get(PATH_AT..)?.split_first_chunk()?;
    rest.get(..usize::try_from(i32::from_be_bytes(*length)).ok()?)
}

/// Appends a read as a fast one.
fn append_fast(read: &[u8], out: &mut Vec<u8>) {
    let (Some(xid), Some(rest)) = (read.get(4..OPCODE_AT), read.get(OPCODE_AT..)) else { return };
    let start = begin_frame(out);
    out.extend_from_slice(xid);
    out.extend_from_slice(&direct_op::FAST.to_be_bytes());
    out.extend_from_slice(rest);
    end_frame(out, start);
}

/// Appends what was seen elsewhere.
fn append_seen(token: &[u8], out: &mut Vec<u8>) {
    let start = begin_frame(out);
    RequestHeader { xid: 0, opcode: direct_op::SEEN }.encode(out);
    out.extend_from_slice(token);
    end_frame(out, start);
}
