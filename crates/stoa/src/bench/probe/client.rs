//! One session of a probe: a thread that writes, and finds another server when one is lost.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stoa_wire::request::encode;
use stoa_wire::{
    ErrorCode, OPEN_ACL, Opcode, Reader, ReplyHeader, RequestHeader, begin_frame, end_frame, next_frame,
};

use super::phase::{Loss, Recorder};
use crate::bench::clock::{Nanos, nanos};
use crate::bench::connect::{self, Identity};
use crate::bench::stream::{Server, Stream};
use crate::failure::{Failure, Result};

const ROOT: &str = "/probe";
/// Pause after every server was tried in vain. Short, because it blurs what is measured; not shorter,
/// because servers that elect a leader need the machine.
const RETRY: Duration = Duration::from_millis(5);
/// How long a read may hide that the probe ends or that the server has been silent for too long.
const READ_MAX: Duration = Duration::from_millis(50);
/// How long the end of a session may take.
const GOODBYE: Duration = Duration::from_secs(5);
const INPUT_BYTES: usize = 64 << 10;
const FRAME_BYTES_MAX: usize = INPUT_BYTES - 4;
const XID_MAX: i32 = i32::MAX / 2;
const XID_AT: usize = 4;

/// What a session has to do.
#[derive(Debug, Clone)]
pub(super) struct Task<'a> {
    pub(super) number: u32,
    pub(super) servers: &'a [Server],
    pub(super) timeout: Duration,
    pub(super) payload_bytes: usize,
    pub(super) pipeline: usize,
    /// Time from one write to the next; `None`: as fast as they are answered.
    pub(super) interval: Option<Duration>,
    /// When the first write is due.
    pub(super) first: Duration,
}

/// A session and where it is connected.
#[derive(Debug)]
pub(super) struct Client<'a> {
    task: Task<'a>,
    recorder: &'a Recorder,
    identity: Identity,
    last_zxid: i64,
    last_xid: i32,
    /// Which server is tried next.
    server: usize,
    /// Whether the session's znode is there.
    prepared: bool,
    /// When the next write should be sent.
    due: Nanos,
}

/// A write without its reply.
#[derive(Debug, Clone, Copy)]
struct PendingWrite {
    xid: i32,
    sent: Nanos,
    due: Nanos,
}

struct Connection {
    stream: Stream,
    input: Vec<u8>,
    filled: usize,
    /// When the server was heard last.
    heard: Instant,
    in_flight: VecDeque<PendingWrite>,
}

impl<'a> Client<'a> {
    pub(super) fn new(task: Task<'a>, recorder: &'a Recorder) -> Self {
        Self {
            server: task.number as usize,
            due: nanos(task.first),
            task,
            recorder,
            identity: Identity::NEW,
            last_zxid: 0,
            last_xid: 0,
            prepared: false,
        }
    }

    /// Writes until told to stop; counts itself in `ready` when its session and znode are there.
    pub(super) fn run(mut self, stop: &AtomicBool, ready: &AtomicUsize) -> Result<()> {
        let data = vec![b'x'; self.task.payload_bytes];
        let path = self.path();
        let set = request(Opcode::SetData, |out| encode::set_data(out, &path, Some(&data), -1));
        let mut tried = 0;
        while !stop.load(Ordering::Relaxed) {
            if let Some(mut connection) = self.connect()? {
                tried = 0;
                let ended = self
                    .prepare(&mut connection, ready)
                    .and_then(|()| self.write(&mut connection, &set, stop));
                match ended {
                    Ok(()) => {
                        // Whoever answers no more needs no goodbye.
                        let _ = connection.stream.socket().set_read_timeout(Some(GOODBYE));
                        return connect::close_sessions(vec![connection.stream]).or(Ok(()));
                    }
                    Err(error) if error.kind() == ErrorKind::InvalidData => {
                        return Err(Failure::failed(format!("session {}: {error}", self.task.number)));
                    }
                    Err(_) => self.recorder.lost(Loss::Connection, connection.in_flight.len()),
                }
            }
            self.server += 1;
            tried += 1;
            if tried % self.task.servers.len() == 0 {
                std::thread::sleep(RETRY);
            }
        }
        Ok(())
    }

    /// Opens the session, or comes back to it, at the server whose turn it is.
    fn connect(&mut self) -> Result<Option<Connection>> {
        let servers = self.task.servers;
        let server = &servers[self.server % servers.len()];
        // As the clients do it: the servers share the session's timeout.
        let patience = self.task.timeout / u32::try_from(servers.len()).unwrap_or(u32::MAX);
        let shaken = connect::dial(server, patience).and_then(|mut stream| {
            stream.write_all(&connect::hello(self.identity, self.task.timeout, self.last_zxid))?;
            let response = connect::read_response(&mut stream)?;
            stream.socket().set_read_timeout(Some(READ_MAX))?;
            Ok((stream, response))
        });
        let (stream, response) = match shaken {
            Ok(shaken) => shaken,
            // Options for TLS that do not fit will not either when it is tried again.
            Err(error) if error.kind() == ErrorKind::InvalidData && !self.prepared => {
                return Err(Failure::failed(format!("cannot connect to {server}: {error}")));
            }
            Err(_) => return Ok(None),
        };
        if response.session_id == 0 {
            self.identity = Identity::NEW;
            self.recorder.lost(Loss::Session, 0);
            return Ok(None);
        }
        self.identity = Identity { session_id: response.session_id, password: response.password };
        let in_flight = VecDeque::new();
        Ok(Some(Connection {
            stream,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            heard: Instant::now(),
            in_flight,
        }))
    }

    /// The session's own znode.
    fn path(&self) -> String {
        format!("{ROOT}/session-{:05}", self.task.number)
    }

    /// Makes the session's znode, once.
    fn prepare(&mut self, connection: &mut Connection, ready: &AtomicUsize) -> std::io::Result<()> {
        if self.prepared {
            return Ok(());
        }
        for path in [ROOT.to_owned(), self.path()] {
            let frame =
                request(Opcode::Create, |out| encode::create(out, &path, Some(&[]), OPEN_ACL, 0, None));
            let mut answer = None;
            self.send(connection, &frame, 0)?;
            while answer.is_none() {
                self.receive(connection, |_, reply| answer = Some(reply.err))?;
            }
            let err = answer.unwrap_or_default();
            if err != 0 && err != ErrorCode::NodeExists as i32 {
                return Err(Error::new(ErrorKind::InvalidData, format!("cannot create {path}: error {err}")));
            }
        }
        self.prepared = true;
        self.due += self.recorder.now();
        ready.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes until told to stop, or until the connection is of no use any more.
    fn write(&mut self, connection: &mut Connection, set: &[u8], stop: &AtomicBool) -> std::io::Result<()> {
        let recorder = self.recorder;
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            if stopping && connection.in_flight.is_empty() {
                return Ok(());
            }
            while !stopping && connection.in_flight.len() < self.task.pipeline {
                let now = recorder.now();
                let due = if self.task.interval.is_some() { self.due } else { now };
                if due > now {
                    break;
                }
                self.due += self.task.interval.map_or(0, nanos);
                self.send(connection, set, due)?;
            }
            if connection.in_flight.is_empty() {
                let wait = Duration::from_nanos(self.due.saturating_sub(recorder.now()));
                std::thread::sleep(wait.min(READ_MAX));
                continue;
            }
            self.receive(connection, |request, reply| {
                if reply.err == 0 {
                    recorder.acknowledged(request.sent, request.due);
                } else {
                    recorder.refused(reply.err);
                }
            })?;
        }
    }

    /// Sends one request.
    fn send(&mut self, connection: &mut Connection, frame: &[u8], due: Nanos) -> std::io::Result<()> {
        let xid = if self.last_xid == XID_MAX { 1 } else { self.last_xid + 1 };
        self.last_xid = xid;
        let mut frame = frame.to_vec();
        frame[XID_AT..XID_AT + 4].copy_from_slice(&xid.to_be_bytes());
        if connection.in_flight.is_empty() {
            // Nothing was to be heard while nothing was asked.
            connection.heard = Instant::now();
        }
        connection.in_flight.push_back(PendingWrite { xid, sent: self.recorder.now(), due });
        connection.stream.write_all(&frame)
    }

    /// Reads once and hands over every whole reply.
    fn receive(
        &mut self,
        connection: &mut Connection,
        mut each: impl FnMut(PendingWrite, ReplyHeader),
    ) -> std::io::Result<()> {
        // As the clients do it: whoever is silent for two thirds of the timeout is given up.
        if connection.heard.elapsed() > self.task.timeout * 2 / 3 {
            return Err(ErrorKind::TimedOut.into());
        }
        match connection.stream.read(&mut connection.input[connection.filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => connection.filled += len,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        connection.heard = Instant::now();
        let mut handled = 0;
        while let Some((payload, rest)) =
            next_frame(&connection.input[handled..connection.filled], FRAME_BYTES_MAX)
                .map_err(Error::other)?
        {
            let reply = ReplyHeader::decode(&mut Reader::new(payload)).map_err(Error::other)?;
            handled = connection.filled - rest.len();
            let request =
                connection.in_flight.pop_front().filter(|request| request.xid == reply.xid).ok_or_else(
                    || Error::new(ErrorKind::InvalidData, "the reply is to no request of ours"),
                )?;
            self.last_zxid = self.last_zxid.max(reply.zxid);
            each(request, reply);
        }
        connection.input.copy_within(handled..connection.filled, 0);
        connection.filled -= handled;
        Ok(())
    }
}

/// A frame with room for the xid.
fn request(opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Vec::new();
    let start = begin_frame(&mut frame);
    RequestHeader { xid: 0, opcode: opcode as i32 }.encode(&mut frame);
    body(&mut frame);
    end_frame(&mut frame, start);
    frame
}
