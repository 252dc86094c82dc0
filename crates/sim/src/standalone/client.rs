//! A simulated client: speaks the protocol in bytes, with the manners of its profile.

use super::profile::Manners;
use super::workload::{Ask, Memory, Workload};
use crate::check::Violation;
use crate::ensemble::{Act, Judges, Visitor};
use crate::frames::{frame, request, whole};
use crate::rng::Rng;
use std::collections::VecDeque;
use stoa_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, Opcode, PASSWORD_LEN, Reader, ReplyHeader, put,
    request::encode, xid,
};

/// The xids of garbage begin here. Some of it is answered out of order, which can be told by the xid
/// alone: no other request has it.
const GARBAGE_XID: i32 = 77_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Away,
    /// The handshake has been sent.
    Greeting,
    Live,
}

/// How far a client is with its last words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finale {
    /// It goes on with its life.
    No,
    Due,
    /// Its last write is under way, with this xid.
    LastWrite(i32),
    /// The end of its session is under way.
    Closing,
    Done,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    rng: Rng,
    manners: Manners,
    state: State,
    session: Option<(i64, [u8; PASSWORD_LEN])>,
    timeout_us: u64,
    outstanding: VecDeque<(i32, i32)>,
    last_xid: i32,
    garbage_xid: i32,
    last_sent_us: u64,
    inbox: Vec<u8>,
    memory: Memory,
    /// It has sent what cannot be understood: nothing can be said about the answers.
    reckless: bool,
    finale: Finale,
    requests: u64,
}

impl Client {
    /// A client that has never been connected.
    pub(super) fn new(rng: Rng, manners: Manners) -> Self {
        Self {
            rng,
            manners,
            state: State::Away,
            session: None,
            timeout_us: 1_000_000,
            outstanding: VecDeque::new(),
            last_xid: 0,
            garbage_xid: GARBAGE_XID,
            last_sent_us: 0,
            inbox: Vec::new(),
            memory: Memory::default(),
            reckless: false,
            finale: Finale::No,
            requests: 0,
        }
    }

    fn connect(&mut self) -> Vec<Act> {
        let finishing = self.finale != Finale::No;
        if !finishing && self.rng.one_in(60) {
            return vec![self.strange_handshake()];
        }
        let (session_id, mut password) = self.session.unwrap_or_default();
        let mut last_zxid_seen = self.memory.zxid;
        if !finishing && self.rng.one_in(80) {
            password[self.rng.index(PASSWORD_LEN)] ^= 1;
        }
        if !finishing && self.rng.one_in(80) {
            last_zxid_seen += self.rng.range(1, 1 << 40) as i64;
        }
        let timeout_ms = match self.rng.below(12) {
            0 => -1,
            1 => i32::MAX,
            _ => self.rng.range(100, 5000) as i32,
        };
        let read_only = if self.rng.one_in(6) { None } else { Some(self.rng.one_in(4)) };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms,
            session_id,
            password: &password,
            read_only,
        };
        let bytes = frame(|out| request.encode(out));
        self.state = State::Greeting;
        self.outstanding.clear();
        self.inbox.clear();
        self.reckless = false;
        vec![Act::Connect(0, bytes)]
    }

    fn strange_handshake(&mut self) -> Act {
        let mut bytes = Vec::new();
        match self.rng.below(4) {
            0 => put::i32(&mut bytes, -5),
            1 => put::i32(&mut bytes, i32::MAX),
            2 => put::buffer(&mut bytes, &[1, 2, 3]),
            // Half a handshake, and nothing more.
            _ => bytes.extend([0, 0, 0, 44, 0, 0]),
        }
        self.state = State::Greeting;
        self.outstanding.clear();
        self.inbox.clear();
        Act::Connect(0, bytes)
    }

    fn live(&mut self, now_us: u64) -> Vec<Act> {
        let manners = self.manners;
        if self.rng.one_in(manners.drop_one_in) {
            self.gone();
            return vec![Act::Drop];
        }
        if self.rng.one_in(manners.close_one_in) {
            let mut acts = self.burst(now_us);
            acts.push(self.send(&Ask { opcode: Opcode::CloseSession as i32, body: Vec::new() }));
            // What comes behind a close must not be carried out.
            acts.extend(self.burst(now_us));
            if self.rng.one_in(3) {
                // It does not wait for the end, and wants its session back.
                acts.extend(self.connect());
            } else {
                self.session = None;
            }
            return acts;
        }
        if self.rng.one_in(manners.stall_one_in) {
            let mut acts = self.burst(now_us);
            acts.push(Act::Stall(self.rng.range(1000, 400_000)));
            return acts;
        }
        if self.rng.one_in(manners.move_one_in) {
            let mut acts = self.burst(now_us);
            acts.extend(self.connect());
            return acts;
        }
        if self.rng.one_in(manners.garbage_one_in) {
            return vec![self.garbage()];
        }
        self.burst(now_us)
    }

    fn burst(&mut self, now_us: u64) -> Vec<Act> {
        let room = self.manners.window.saturating_sub(self.outstanding.len());
        let count = self.rng.index(room + 1).min(self.rng.index(room + 1) + 1);
        let mut acts: Vec<Act> = Vec::new();
        for _ in 0..count {
            let mut workload = Workload { manners: &self.manners, rng: &mut self.rng, memory: &self.memory };
            let ask = workload.any();
            acts.push(self.send(&ask));
        }
        if self.outstanding.is_empty() && self.rng.one_in(30) {
            let mut workload = Workload { manners: &self.manners, rng: &mut self.rng, memory: &self.memory };
            let ask = workload.auth();
            acts.push(self.send_as(xid::AUTH, &ask));
        }
        let quiet = acts.is_empty() && now_us > self.last_sent_us + self.timeout_us / 3;
        if quiet || self.rng.one_in(30) {
            acts.push(self.send_as(xid::PING, &Ask { opcode: Opcode::Ping as i32, body: Vec::new() }));
        }
        acts
    }

    /// Finishes what is under way, writes once more, and closes its session.
    fn last_words(&mut self, now_us: u64) -> Vec<Act> {
        if self.reckless {
            // It no longer knows what it is told.
            self.gone();
            return vec![Act::Drop];
        }
        if !self.outstanding.is_empty() {
            let waiting_for_long = now_us > self.last_sent_us + self.timeout_us / 3;
            let ping = Ask { opcode: Opcode::Ping as i32, body: Vec::new() };
            return if waiting_for_long { vec![self.send_as(xid::PING, &ping)] } else { Vec::new() };
        }
        match self.finale {
            Finale::Due => {
                let mut body = Vec::new();
                encode::set_data(&mut body, "/last-words", Some(b"x"), -1);
                let act = self.send(&Ask { opcode: Opcode::SetData as i32, body });
                self.finale = Finale::LastWrite(self.last_xid);
                vec![act]
            }
            _ => Vec::new(),
        }
    }

    fn garbage(&mut self) -> Act {
        self.reckless = true;
        self.garbage_xid += 1;
        let mut bytes = Vec::new();
        match self.rng.below(8) {
            0 => put::i32(&mut bytes, -1),
            1 => put::i32(&mut bytes, 1 << 30),
            2 => put::buffer(&mut bytes, &[0; 5]),
            3 | 4 => {
                // Longer than the server takes, but not so long that it hangs up.
                let mut body = vec![0; 20 << 10];
                body[..4].copy_from_slice(&self.garbage_xid.to_be_bytes());
                body[7] = Opcode::SetData as u8;
                put::buffer(&mut bytes, &body);
            }
            _ => {
                let mut workload =
                    Workload { manners: &self.manners, rng: &mut self.rng, memory: &self.memory };
                let ask = workload.garbage();
                bytes = framed(self.garbage_xid, &ask);
            }
        }
        Act::Send(bytes)
    }

    fn send(&mut self, ask: &Ask) -> Act {
        let xid = if ask.opcode == Opcode::SetWatches as i32 || ask.opcode == Opcode::SetWatches2 as i32 {
            xid::SET_WATCHES
        } else {
            self.last_xid = self.last_xid % 1_000_000 + 1;
            self.last_xid
        };
        self.requests += 1;
        self.outstanding.push_back((xid, ask.opcode));
        self.send_as(xid, ask)
    }

    /// Sends what is not answered in order.
    fn send_as(&mut self, xid: i32, ask: &Ask) -> Act {
        Act::Send(framed(xid, ask))
    }

    fn greeted(&mut self, frame: &[u8]) -> Result<Vec<Act>, Violation> {
        let response = ConnectResponse::decode(frame)
            .map_err(|error| Violation::new(format!("a client cannot read its handshake: {error}")))?;
        if response.timeout_ms <= 0 {
            // The session is gone; the server closes the connection.
            self.session = None;
            return Ok(Vec::new());
        }
        let reopened = self.session.is_some();
        self.session = Some((response.session_id, response.password));
        self.timeout_us = response.timeout_ms as u64 * 1000;
        self.state = State::Live;
        if !reopened || self.rng.one_in(3) {
            return Ok(Vec::new());
        }
        let mut workload = Workload { manners: &self.manners, rng: &mut self.rng, memory: &self.memory };
        let ask = workload.set_watches();
        Ok(vec![self.send(&ask)])
    }

    fn answered(&mut self, frame: &[u8]) -> Result<Vec<Act>, Violation> {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader)
            .map_err(|error| Violation::new(format!("a client cannot read a reply: {error}")))?;
        if header.zxid > 0 {
            self.memory.zxid = header.zxid;
        }
        if matches!(header.xid, xid::NOTIFICATION | xid::PING | xid::AUTH) || self.reckless {
            return Ok(Vec::new());
        }
        let Some((asked, opcode)) = self.outstanding.pop_front() else {
            return Err(Violation::new(format!("a client was answered what it did not ask: {header:?}")));
        };
        if asked != header.xid {
            return Err(Violation::new(format!("a client asked {asked} and was answered {header:?}")));
        }
        if header.err == 0 && matches!(opcode, 1 | 15 | 19 | 21) {
            let path = reader.str().unwrap_or_default().to_owned();
            self.memory.note_created(&path);
        }
        Ok(self.finale_answered(header))
    }

    fn finale_answered(&mut self, header: ReplyHeader) -> Vec<Act> {
        if self.finale == Finale::Closing && header.err != 0 {
            // Refused, for want of room.
            self.finale = Finale::Due;
        }
        if self.finale != Finale::LastWrite(header.xid) {
            return Vec::new();
        }
        if header.err == ErrorCode::SystemError as i32 {
            // The log has no room yet.
            self.finale = Finale::Due;
            return Vec::new();
        }
        let act = self.send(&Ask { opcode: Opcode::CloseSession as i32, body: Vec::new() });
        self.finale = Finale::Closing;
        vec![act]
    }
}

impl Visitor for Client {
    fn finish(&mut self) {
        self.finale = Finale::Due;
    }

    fn is_done(&self) -> bool {
        self.finale == Finale::Done
    }

    fn wake(&mut self, _: &mut Judges, now_us: u64) -> Result<(Vec<Act>, u64), Violation> {
        let acts = match self.state {
            State::Away if self.finale == Finale::Done => Vec::new(),
            State::Away => self.connect(),
            State::Greeting if self.finale == Finale::No && self.rng.one_in(60) => {
                // Nobody waits for the session that may just be made.
                self.gone();
                vec![Act::Drop]
            }
            State::Greeting => Vec::new(),
            State::Live if self.finale == Finale::No => self.live(now_us),
            State::Live => self.last_words(now_us),
        };
        if acts.iter().any(|act| matches!(act, Act::Send(_))) {
            self.last_sent_us = now_us;
        }
        // Now and then nothing is heard of it, so that its session may expire.
        let silent = self.finale == Finale::No && self.rng.one_in(self.manners.silent_one_in);
        let pause = if silent {
            self.rng.range(self.timeout_us / 2, self.timeout_us * 2)
        } else {
            self.rng.around(self.manners.think_us)
        };
        Ok((acts, pause.max(1)))
    }

    fn gone(&mut self) {
        self.state = State::Away;
        self.outstanding.clear();
        self.inbox.clear();
        match self.finale {
            Finale::Closing => self.finale = Finale::Done,
            Finale::LastWrite(_) => self.finale = Finale::Due,
            _ => {}
        }
    }

    fn receive(&mut self, bytes: &[u8], _: &mut Judges, _: u64) -> Result<Vec<Act>, Violation> {
        let mut acts = Vec::new();
        for frame in whole(&mut self.inbox, bytes)? {
            match self.state {
                State::Greeting => acts.extend(self.greeted(&frame)?),
                State::Live => acts.extend(self.answered(&frame)?),
                State::Away => {}
            }
        }
        Ok(acts)
    }

    fn waits_for(&self) -> String {
        format!("a client waits for {:?}, {:?}", self.outstanding, self.finale)
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}

fn framed(xid: i32, ask: &Ask) -> Vec<u8> {
    request(xid, ask.opcode, |out| out.extend_from_slice(&ask.body))
}
