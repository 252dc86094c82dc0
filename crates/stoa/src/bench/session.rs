//! One session of the generator: a non-blocking socket with its own buffers.
//!
//! A turn costs one read and one write, however many frames they carry.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use stoa_wire::{ReplyHeader, next_frame, xid};

use super::clock::{Clock, Nanos};
use super::record::Record;
use super::requests::{Op, Requests};
use crate::failure::{Context as _, Failure, Result};

const READ_BUFFER_BYTES: usize = 64 << 10;
/// Sessions that hardly do anything, of which there may be many, start with this much.
const READ_BUFFER_BYTES_SMALL: usize = 256;
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Negative xids have meanings of their own, so xids start again well before they overflow.
const XID_MAX: i32 = i32::MAX / 2;

/// A request without its reply yet.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    sent: Nanos,
    xid: i32,
    op: Op,
}

/// One connection with an open session.
#[derive(Debug)]
pub(crate) struct Session {
    stream: TcpStream,
    index: usize,
    /// Most requests without a reply at a time.
    pipeline: usize,
    last_xid: i32,
    in_flight: VecDeque<InFlight>,
    /// When requests should have been sent that found no room in the pipeline.
    due: VecDeque<Nanos>,
    input: Vec<u8>,
    /// The part of `input` that has been read but not handled is `handled..filled`.
    handled: usize,
    filled: usize,
    output: Vec<u8>,
    written: usize,
    /// Frame bytes sent, lengths included, and the number of frames.
    pub(crate) sent_bytes: u64,
    pub(crate) sent_frames: u64,
}

impl Session {
    /// Takes over a connection; `index` is the session's number for [`Requests`].
    pub(crate) fn new(stream: TcpStream, index: usize, pipeline: usize) -> Result<Self> {
        stream.set_nonblocking(true).context("cannot make a socket non-blocking")?;
        let buffer = if pipeline > 1 { READ_BUFFER_BYTES } else { READ_BUFFER_BYTES_SMALL };
        Ok(Self {
            stream,
            index,
            pipeline,
            last_xid: 0,
            in_flight: VecDeque::new(),
            due: VecDeque::new(),
            input: vec![0; buffer],
            handled: 0,
            filled: 0,
            output: Vec::new(),
            written: 0,
            sent_bytes: 0,
            sent_frames: 0,
        })
    }

    /// The socket, to wait on.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Gives the connection back for the goodbye.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Whether every request has been answered and none waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.due.is_empty()
    }

    /// Whether bytes wait for room in the socket.
    pub(crate) fn has_output(&self) -> bool {
        self.written < self.output.len()
    }

    /// A request should be sent at `at`; it will be as soon as the pipeline has room.
    pub(crate) fn schedule(&mut self, at: Nanos) {
        self.due.push_back(at);
    }

    /// Sends requests at will, up to the length of the pipeline.
    pub(crate) fn fill(&mut self, now: Nanos, requests: &mut impl Requests) {
        while self.in_flight.len() < self.pipeline
            && self.send(now, |at, xid, out| requests.append(at, xid, out))
        {}
    }

    /// Sends the requests that are due, as far as the pipeline has room. Their latency counts from
    /// the moment at which they were due.
    pub(crate) fn fill_due(&mut self, requests: &mut impl Requests) {
        while self.in_flight.len() < self.pipeline
            && let Some(at) = self.due.pop_front()
        {
            self.send(at, |at, xid, out| requests.append(at, xid, out));
        }
    }

    /// Sends what is due still, then what it takes to leave nothing half done.
    pub(crate) fn finish(&mut self, now: Nanos, requests: &mut impl Requests) {
        self.fill_due(requests);
        if self.due.is_empty() {
            while self.send(now, |at, xid, out| requests.finish(at, xid, out)) {}
        }
    }

    #[inline]
    fn send(&mut self, sent: Nanos, append: impl FnOnce(usize, i32, &mut Vec<u8>) -> Option<Op>) -> bool {
        let xid = if self.last_xid == XID_MAX { 1 } else { self.last_xid + 1 };
        let before = self.output.len();
        let Some(op) = append(self.index, xid, &mut self.output) else {
            return false;
        };
        self.sent_bytes += (self.output.len() - before) as u64;
        self.sent_frames += 1;
        let xid = if op == Op::Ping {
            xid::PING
        } else {
            self.last_xid = xid;
            xid
        };
        self.in_flight.push_back(InFlight { sent, xid, op });
        true
    }

    /// Writes what waits to be written, as far as the socket takes it.
    pub(crate) fn write(&mut self) -> Result<()> {
        if !self.has_output() {
            return Ok(());
        }
        match self.stream.write(&self.output[self.written..]) {
            Ok(len) => self.written += len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(self.lost(&error)),
        }
        if !self.has_output() {
            self.output.clear();
            self.written = 0;
        }
        Ok(())
    }

    /// Reads once and handles every whole reply. Returns the time just after reading.
    pub(crate) fn read(
        &mut self,
        clock: Clock,
        record: &mut Record,
        requests: &impl Requests,
    ) -> Result<Nanos> {
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err(self.lost(&"the server closed the connection")),
            Ok(len) => self.filled += len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(clock.now());
            }
            Err(error) => return Err(self.lost(&error)),
        }
        let now = clock.now();
        while let Some((payload, rest)) =
            next_frame(&self.input[self.handled..self.filled], FRAME_BYTES_MAX).map_err(|e| self.lost(&e))?
        {
            let frame_bytes = payload.len() + 4;
            let (xid, err) = if requests.has_reply_header() {
                let Some((xid, err)) = reply_header(payload) else {
                    return Err(self.lost(&"a reply is shorter than its header"));
                };
                (Some(xid), err)
            } else {
                (None, 0)
            };
            self.handled = self.filled - rest.len();
            let Some(request) = self.in_flight.pop_front() else {
                return Err(self.lost(&"a reply without a request"));
            };
            if let Some(xid) = xid.filter(|&xid| xid != request.xid) {
                return Err(self.lost(&format!("the reply to xid {} has xid {xid}", request.xid)));
            }
            record.reply(request.op, request.sent, now, frame_bytes, err);
        }
        self.make_room();
        Ok(now)
    }

    /// Moves a partial frame to the front, and grows the buffer for one that fills it.
    fn make_room(&mut self) {
        if self.handled == self.filled {
            self.handled = 0;
            self.filled = 0;
        } else if self.handled > 0 {
            self.input.copy_within(self.handled..self.filled, 0);
            self.filled -= self.handled;
            self.handled = 0;
        }
        if self.filled == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
    }

    /// Counts what was never answered.
    pub(crate) fn give_up(&mut self, now: Nanos, record: &mut Record) {
        for request in self.in_flight.drain(..) {
            record.unanswered(request.op, request.sent, now);
        }
        record.unanswered += self.due.drain(..).count() as u64;
    }

    fn lost(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::failed(format!("session {} was lost: {why}", self.index))
    }
}

/// xid and error code of a reply; `None` when it is too short to have them.
#[inline]
fn reply_header(payload: &[u8]) -> Option<(i32, i32)> {
    let header: &[u8; ReplyHeader::LEN] = payload.first_chunk()?;
    let number = |at: usize| i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Some((number(0), number(12)))
}
