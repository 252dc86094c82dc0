//! One connection of the generator: a non-blocking socket with its own buffers.
//!
//! A turn costs one read and one write, however many frames they carry.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use stoa_wire::{ReplyHeader, direct_xid, next_frame};

use super::clock::{Clock, Nanos};
use super::record::Record;
use super::requests::Op;
use super::stream::Stream;
use crate::failure::{Context as _, Result};

const READ_BUFFER_BYTES: usize = 64 << 10;
/// Sessions that hardly do anything, of which there may be many, start with this much.
const READ_BUFFER_BYTES_SMALL: usize = 256;
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Of a stamp, before the token: the reply header and a count.
const TOKEN_AT: usize = ReplyHeader::LEN + 4;

/// A request without its reply yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    pub(super) sent: Nanos,
    pub(super) xid: i32,
    pub(super) op: Op,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    /// Whether the epoll also reports when the socket has room again.
    pub(super) wants_room: bool,
    pub(super) in_flight: VecDeque<InFlight>,
    /// What the server has told last that its answers rest on, and how often it has.
    pub(super) token: Vec<u8>,
    pub(super) tokens: u64,
    input: Vec<u8>,
    /// The part of `input` that has been read but not handled is `handled..filled`.
    handled: usize,
    filled: usize,
    pub(super) output: Vec<u8>,
    written: usize,
}

impl Wire {
    pub(super) fn new(stream: Stream, is_busy: bool) -> Result<Self> {
        stream.socket().set_nonblocking(true).context("cannot make a socket non-blocking")?;
        let buffer = if is_busy { READ_BUFFER_BYTES } else { READ_BUFFER_BYTES_SMALL };
        Ok(Self {
            stream,
            wants_room: false,
            in_flight: VecDeque::new(),
            token: Vec::new(),
            tokens: 0,
            input: vec![0; buffer],
            handled: 0,
            filled: 0,
            output: Vec::new(),
            written: 0,
        })
    }

    /// The socket, to wait on.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.socket().as_fd()
    }

    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Whether bytes wait for room in the socket.
    pub(super) fn has_output(&self) -> bool {
        self.has_requests() || self.stream.has_output()
    }

    fn has_requests(&self) -> bool {
        self.written < self.output.len()
    }

    /// Writes what waits to be written, as far as the socket takes it.
    pub(super) fn write(&mut self) -> std::result::Result<(), String> {
        if !self.has_output() {
            return Ok(());
        }
        let written = match self.has_requests() {
            true => self.stream.write(&self.output[self.written..]),
            false => self.stream.flush().map(|()| 0),
        };
        match written {
            Ok(len) => self.written += len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.to_string()),
        }
        if !self.has_requests() {
            self.output.clear();
            self.written = 0;
        }
        Ok(())
    }

    /// Reads once from the socket and handles every whole reply. Returns the time just after reading.
    pub(super) fn read(
        &mut self,
        clock: Clock,
        record: &mut Record,
        has_reply_header: bool,
    ) -> std::result::Result<Nanos, String> {
        let mut now = self.read_some(clock, record, has_reply_header)?;
        // The socket does not become readable for what it has given already.
        while self.stream.has_input() {
            now = self.read_some(clock, record, has_reply_header)?;
        }
        Ok(now)
    }

    fn read_some(
        &mut self,
        clock: Clock,
        record: &mut Record,
        has_reply_header: bool,
    ) -> std::result::Result<Nanos, String> {
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err("the server closed the connection".to_owned()),
            Ok(len) => self.filled += len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(clock.now());
            }
            Err(error) => return Err(error.to_string()),
        }
        let now = clock.now();
        while let Some((payload, rest)) =
            next_frame(&self.input[self.handled..self.filled], FRAME_BYTES_MAX).map_err(|e| e.to_string())?
        {
            let frame_bytes = payload.len() + 4;
            self.handled = self.filled - rest.len();
            let (xid, err) = if has_reply_header {
                let (xid, err) = reply_header(payload).ok_or("a reply is shorter than its header")?;
                (Some(xid), err)
            } else {
                (None, 0)
            };
            if xid == Some(direct_xid::STAMP) {
                self.token.clear();
                self.token.extend_from_slice(payload.get(TOKEN_AT..).unwrap_or_default());
                self.tokens += 1;
                continue;
            }
            // Fast reads are answered ahead of what was asked before.
            let is_it = |request: &InFlight| xid.is_none_or(|xid| xid == request.xid);
            let found = self.in_flight.iter().position(is_it).and_then(|at| self.in_flight.remove(at));
            let Some(request) = found else {
                return Err(format!("a reply with xid {xid:?}, which was not asked"));
            };
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
}

/// xid and error code of a reply; `None` when it is too short to have them.
#[inline]
fn reply_header(payload: &[u8]) -> Option<(i32, i32)> {
    let header: &[u8; ReplyHeader::LEN] = payload.first_chunk()?;
    let number = |at: usize| i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Some((number(0), number(12)))
}
