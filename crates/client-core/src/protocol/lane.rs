//! One connection to a server. A client has one; a direct client has a main one and side connections, one
//! for each further partition.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use stoa_wire::{
    Opcode, RequestHeader, SideHello, Timestamp, begin_frame, direct_op, end_frame, request::encode, xid,
};

use super::call::Call;
use super::chroot::Chroot;
use super::watches::{Slot, Watches};
use super::{Credential, Session, Token};

/// The main connection, among all.
pub(super) const MAIN: usize = 0;

/// A server refuses larger frames, so watches are set again in several requests.
pub(super) const SET_WATCHES_BYTES_MAX: usize = 128 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none, and none is wanted.
    Closed,
    /// The driver is to open it.
    Opening,
    /// The handshake was sent.
    Greeting,
    Ready,
}

/// A call that was sent.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) xid: i32,
    pub(super) token: Token,
    pub(super) call: Call,
    /// How often it was given back.
    pub(super) returns: u8,
    /// Its watch is known, though its reply was not told yet.
    pub(super) watches: bool,
}

/// On what frames rest that were received on one connection.
#[derive(Debug)]
pub(super) struct Moment {
    /// Later ones have larger numbers.
    pub(super) number: u64,
    pub(super) stamp: Timestamp,
    /// As the server takes it.
    pub(super) token: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stage: Stage,
    /// A side connection that was ready at some time.
    pub(super) was_ready: bool,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) in_flight: VecDeque<InFlight>,
    /// Fast reads, which are answered ahead of the others.
    pub(super) fast: Vec<InFlight>,
    /// Calls of auth in the order sent; `None` for those that the core repeats by itself. Servers
    /// answer them ahead of other requests.
    pub(super) auth_in_flight: VecDeque<Option<Token>>,
    pub(super) watches: Watches,
    /// The partitions whose watches they may be: a bit for each.
    pub(super) watched: u64,
    /// Every event up to this zxid has been told.
    pub(super) zxid: i64,
    /// Requests that set watches again. Until they are answered more events up to `zxid` may come.
    pub(super) sets_in_flight: usize,
    pub(super) sent_ms: u64,
    pub(super) received_ms: u64,
    /// What the frames that come rest on.
    pub(super) moment: Option<Arc<Moment>>,
    /// The moments so far but for those that a later one includes. On the main connection several partitions
    /// speak, and the last one of them need not know of the others.
    pub(super) news: Vec<Arc<Moment>>,
    /// When so many more bytes have come, everything has that comes before `covered`.
    pub(super) covers: usize,
    pub(super) covered: Timestamp,
    /// Everything has been received that comes before this.
    pub(super) reached: Timestamp,
    /// What the server was asked to reach.
    pub(super) asked: Option<Arc<Moment>>,
    /// The moments of the other connections that the server was told on this one, by number.
    forwarded: Vec<u64>,
    /// The version of the table that it was told.
    pub(super) routed: Option<u64>,
}

impl Lane {
    pub(super) fn new(stage: Stage, partitions: u8) -> Self {
        Self {
            stage,
            was_ready: false,
            input: Vec::new(),
            output: Vec::new(),
            in_flight: VecDeque::new(),
            fast: Vec::new(),
            auth_in_flight: VecDeque::new(),
            watches: Watches::default(),
            watched: 0,
            zxid: 0,
            sets_in_flight: 0,
            sent_ms: 0,
            received_ms: 0,
            moment: None,
            news: Vec::new(),
            covers: 0,
            covered: Timestamp::new(partitions),
            reached: Timestamp::new(partitions),
            asked: None,
            forwarded: alloc::vec![0; usize::from(partitions) + 1],
            routed: Some(0),
        }
    }

    /// The server offers side connections: what the answer to the handshake rests on is not missing.
    pub(super) fn meet(&mut self, partitions: u8, moment: Arc<Moment>) {
        self.reached = moment.stamp.clone();
        self.covered = Timestamp::new(partitions);
        self.forwarded.resize(usize::from(partitions) + 1, 0);
        self.comes_to(moment);
    }

    /// What comes from now on rests on this.
    pub(super) fn comes_to(&mut self, moment: Arc<Moment>) {
        self.news.retain(|before| !moment.stamp.covers(&before.stamp));
        self.news.push(Arc::clone(&moment));
        self.moment = Some(moment);
    }

    /// Calls without a result yet.
    pub(super) fn pending(&self) -> usize {
        self.in_flight.len() + self.fast.len() + self.auth_in_flight.len()
    }

    /// The silence of the server that counts as its end.
    pub(super) fn silence_ends_ms(&self, timeout_ms: u64) -> u64 {
        self.received_ms + (timeout_ms * 2 / 3).max(1)
    }

    /// Heartbeats go on while requests flow in one direction only, so that silence means something.
    pub(super) fn ping_due_ms(&self, timeout_ms: u64) -> u64 {
        self.sent_ms + (timeout_ms / 3).max(1)
    }

    pub(super) fn begin(&mut self, now_ms: u64) {
        self.stage = Stage::Greeting;
        self.input.clear();
        self.output.clear();
        self.sent_ms = now_ms;
        self.received_ms = now_ms;
    }

    /// Greets a server on a side connection.
    pub(super) fn greet(&mut self, partition: u8, session: &Session) {
        self.output.extend_from_slice(&stoa_wire::PREAMBLE);
        self.output.push(partition);
        let start = begin_frame(&mut self.output);
        SideHello { session_id: session.id, password: &session.password }.encode(&mut self.output);
        end_frame(&mut self.output, start);
    }

    pub(super) fn send_raw(&mut self, xid: i32, opcode: i32, now_ms: u64, body: impl FnOnce(&mut Vec<u8>)) {
        let start = begin_frame(&mut self.output);
        RequestHeader { xid, opcode }.encode(&mut self.output);
        body(&mut self.output);
        end_frame(&mut self.output, start);
        self.sent_ms = now_ms;
    }

    pub(super) fn send_ping(&mut self, now_ms: u64) {
        self.send_raw(xid::PING, Opcode::Ping as i32, now_ms, |_| {});
    }

    pub(super) fn send_credential(&mut self, token: Option<Token>, credential: &Credential, now_ms: u64) {
        self.send_raw(xid::AUTH, Opcode::Auth as i32, now_ms, |out| {
            encode::auth(out, &credential.scheme, &credential.auth);
        });
        self.auth_in_flight.push_back(token);
    }

    /// Tells the server what was seen on another connection, as far as that is news to it here.
    pub(super) fn forward(&mut self, from: usize, news: &[Arc<Moment>], now_ms: u64) {
        for moment in news {
            if let Some(forwarded) = self.forwarded.get_mut(from).filter(|it| **it < moment.number) {
                *forwarded = moment.number;
                self.send_raw(0, direct_op::SEEN, now_ms, |out| out.extend_from_slice(&moment.token));
            }
        }
    }

    /// There are watches here, of which everything has been told up to this zxid.
    pub(super) fn watches_since(&mut self, zxid: i64) {
        self.zxid = if self.watches.is_empty() { zxid } else { self.zxid.min(zxid) };
    }

    /// Tells the server by which table requests are sent from now on.
    pub(super) fn route_by(&mut self, version: u64, now_ms: u64) {
        if self.routed != Some(version) {
            self.routed = Some(version);
            let bytes = version.to_be_bytes();
            self.send_raw(0, direct_op::ROUTED, now_ms, |out| out.extend_from_slice(&bytes));
        }
    }

    /// Asks to be told when everything that comes before a moment has been said here; one question at a
    /// time.
    pub(super) fn ask_to_reach(&mut self, moment: &Arc<Moment>) {
        if self.asked.is_none() && self.stage == Stage::Ready {
            self.asked = Some(Arc::clone(moment));
            let sent_ms = self.sent_ms;
            self.send_raw(0, direct_op::REACH, sent_ms, |out| out.extend_from_slice(&moment.token));
        }
    }

    /// An answer has come: all events up to this zxid have been told. It counts as it is, though one before
    /// may have had a larger one: a server with several partitions says so up to where nothing is missing.
    pub(super) fn has_told(&mut self, zxid: i64) {
        if self.sets_in_flight == 0 && zxid > 0 {
            self.zxid = zxid;
        }
    }

    /// Tells a server that did not set them which watches there are. It reports at once what happened
    /// since a zxid.
    pub(super) fn set_watches(
        &mut self,
        since: i64,
        watched: &[(Slot, String)],
        chroot: &Chroot,
        now_ms: u64,
    ) {
        let watched: Vec<(Slot, String)> =
            watched.iter().map(|(slot, path)| (*slot, chroot.full(path).into_owned())).collect();
        let mut rest = watched.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(_, path): &&(Slot, String)| {
                bytes += path.len() + 4;
                bytes <= SET_WATCHES_BYTES_MAX
            };
            let (batch, tail) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = tail;
            let has_persistent = batch.iter().any(|(slot, _)| slot.is_persistent());
            let slots = if has_persistent { &Slot::ALL[..] } else { &Slot::ALL[..3] };
            let lists: Vec<Vec<&str>> = slots
                .iter()
                .map(|wanted| {
                    batch.iter().filter(|(slot, _)| slot == wanted).map(|(_, path)| path.as_str()).collect()
                })
                .collect();
            let lists: Vec<&[&str]> = lists.iter().map(Vec::as_slice).collect();
            // Servers before 3.6 know only the older request, which has no persistent watches.
            let opcode = if has_persistent { Opcode::SetWatches2 } else { Opcode::SetWatches };
            let body = |out: &mut Vec<u8>| encode::set_watches(out, since, &lists);
            self.send_raw(xid::SET_WATCHES, opcode as i32, now_ms, body);
            self.sets_in_flight += 1;
        }
    }
}
