//! A client of any servers: it connects, proves what it is, goes on with its session from server to server, and has
//! the manners of its kind, good and bad. What it asks, and what an answer means, is its [`Workload`]'s.

use super::HostId;
use super::settings::Manners;
use super::visitor::{Act, Judges, Visitor};
use crate::frames::{frame, request, whole};
use crate::rng::Rng;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;
use stoa_check::{Checked, Violation};
use stoa_wire::{
    ConnectRequest, ConnectResponse, Opcode, PASSWORD_LEN, Reader, ReplyHeader, WatcherEvent, put,
    request::encode, xid,
};

/// Once in so many bursts a client of a server that only reads tries another one.
const LOOK_ONE_IN: u64 = 40;
/// Once in so many bursts a client that has no need to says that it is there.
const PING_ONE_IN: u64 = 30;
/// The xids of garbage begin here. Some of it is answered out of order, which can be told by the xid
/// alone: no other request has it.
const GARBAGE_XID: i32 = 77_000_000;
/// The users that clients prove to be: `user:password`.
pub(crate) const USERS: [&str; 3] = ["ann:apple", "bob:pear", "cy:plum"];

/// What a client asks, and what the answers mean.
pub(crate) trait Workload {
    /// What is remembered of a request until it is answered.
    type Errand: Debug;

    /// The newest zxid that the client says it has seen.
    fn seen(&self) -> i64;

    /// Whether it watches anything.
    fn watches(&self) -> bool {
        false
    }

    /// Asks for something, for as much as there is room for.
    fn burst(&mut self, caller: &mut Caller<Self::Errand>, judges: &mut Judges, room: usize);

    /// Asks for the end of the session.
    fn close(&mut self, caller: &mut Caller<Self::Errand>, judges: &mut Judges);

    /// Whether it may say its last words.
    fn may_leave(&self) -> bool {
        true
    }

    /// Asks for the last time, when all else is answered. What is sent until all of this is answered belongs to it.
    fn last_words(&mut self, caller: &mut Caller<Self::Errand>, judges: &mut Judges);

    /// Proves to be somebody.
    fn prove(&mut self, caller: &mut Caller<Self::Errand>) {
        let user = *caller.rng.pick(&USERS);
        caller.prove("digest", user);
    }

    /// Whether a proof may be answered like that.
    fn is_proved(&self, err: i32) -> bool {
        err == 0
    }

    /// What no client should send: an opcode and a record.
    fn garbage(&mut self, _: &Manners, rng: &mut Rng) -> (i32, Vec<u8>) {
        (*rng.pick(&[-1, 10, 23, 99, 108, 1000, i32::MIN]), Vec::new())
    }

    /// It has been given a session, or its own again.
    fn welcomed(&mut self, caller: &mut Caller<Self::Errand>, judges: &mut Judges, is_new: bool) -> Checked;

    /// It was told that this session, its own, has expired.
    fn expired(&mut self, _: &mut Caller<Self::Errand>, _: &mut Judges, _session: i64) -> Checked {
        Ok(())
    }

    /// It has no session any more.
    fn forget(&mut self, caller: &mut Caller<Self::Errand>);

    /// Its connection has ended: what is under way may have happened or not.
    fn lost(&mut self, _: &Caller<Self::Errand>) {}

    /// It is told of a change.
    fn told(
        &mut self,
        caller: &Caller<Self::Errand>,
        judges: &mut Judges,
        zxid: i64,
        event: &WatcherEvent<'_>,
    ) -> Checked;

    /// An answer with this zxid has come, to a request or a ping; what it is follows.
    fn shown(&mut self, _: &Caller<Self::Errand>, _: &mut Judges, _zxid: i64) -> Checked {
        Ok(())
    }

    /// A request is answered.
    fn answered(
        &mut self,
        caller: &mut Caller<Self::Errand>,
        judges: &mut Judges,
        errand: Self::Errand,
        header: ReplyHeader,
        reader: &mut Reader<'_>,
    ) -> Checked;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Away,
    /// The handshake has been sent, at this time.
    Greeting(u64),
    Live,
}

/// How far a client is with its last words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finale {
    /// It goes on with its life.
    No,
    Due,
    /// Its last requests are under way.
    Said,
    /// The end of its session is under way.
    Closing,
    Done,
}

/// Sessions as handshakes have them.
type Ticket = (i64, [u8; PASSWORD_LEN]);

/// The client's end of its session and of its connection.
pub(crate) struct Caller<E> {
    pub(crate) index: usize,
    pub(crate) rng: Rng,
    pub(crate) manners: Manners,
    pub(crate) servers: usize,
    /// The only server that it goes to.
    only: Option<usize>,
    state: State,
    session: Option<Ticket>,
    /// Whether a server that only reads will do, and whether it has one.
    takes_read_only: bool,
    pub(crate) only_reads: bool,
    /// What such a server has given it in place of a session.
    lent: Option<Ticket>,
    timeout_us: u64,
    /// Requests under way, with their xids.
    pub(crate) under_way: VecDeque<(i32, E)>,
    /// The xid of the request under way that closes the session.
    closing: Option<i32>,
    last_xid: i32,
    garbage_xid: i32,
    last_sent_us: u64,
    last_heard_us: u64,
    silent_until_us: u64,
    inbox: Vec<u8>,
    /// It has sent what cannot be understood: nothing can be said about the answers.
    reckless: bool,
    /// Its handshake has a wrong password.
    forged: bool,
    finale: Finale,
    /// Sessions that it let go without a word: they must end.
    pub(crate) left: Vec<i64>,
    requests: u64,
    pub(crate) counts: Tally,
    acts: Vec<Act>,
    /// What it sends now goes out as one.
    is_whole: bool,
}

/// What clients have seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Answers that they got, each compared.
    pub answers: u64,
    /// Watch events that they got.
    pub events: u64,
    /// Sessions that came to another connection.
    pub moves: u64,
    /// Connections to servers that only read.
    pub read_only: u64,
    /// Calls that programs have carried out.
    pub calls: u64,
}

summed!(Tally { answers, events, moves, read_only, calls });

impl<E> Caller<E> {
    /// The ids of all servers that it knows.
    pub(crate) fn ids(&self) -> Range<HostId> {
        let first = self.manners.first_id;
        first..first + self.servers as HostId
    }

    fn new(index: usize, mut rng: Rng, manners: Manners, servers: usize) -> Self {
        let takes_read_only = manners.read_only_percent > 0 && rng.percent(manners.read_only_percent);
        Self {
            index,
            rng,
            manners,
            servers,
            only: None,
            state: State::Away,
            session: None,
            takes_read_only,
            only_reads: false,
            lent: None,
            timeout_us: 1_000_000,
            under_way: VecDeque::new(),
            closing: None,
            last_xid: 0,
            garbage_xid: GARBAGE_XID,
            last_sent_us: 0,
            last_heard_us: 0,
            silent_until_us: 0,
            inbox: Vec::new(),
            reckless: false,
            forged: false,
            finale: Finale::No,
            left: Vec::new(),
            requests: 0,
            counts: Tally::default(),
            acts: Vec::new(),
            is_whole: false,
        }
    }

    /// Its session; 0 when it has none.
    pub(crate) fn session(&self) -> i64 {
        self.session.map_or(0, |(session, _)| session)
    }

    /// Requests that it has sent.
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    pub(crate) fn last_xid(&self) -> i32 {
        self.last_xid
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether its last requests are under way.
    pub(crate) fn has_said_last_words(&self) -> bool {
        self.finale == Finale::Said
    }

    /// They were refused, and have to be said again.
    pub(crate) fn says_again(&mut self) {
        self.finale = Finale::Due;
    }

    /// How many of the requests that there is room for are asked at once.
    pub(crate) fn some(&mut self, room: usize) -> usize {
        self.rng.index(room + 1).min(self.rng.index(room + 1) + 1)
    }

    pub(crate) fn wrong(&self, what: &str) -> Violation {
        Violation::new(format!("client {} (session {:#x}): {what}", self.index, self.session()))
    }

    /// Sends a request, whose answer comes behind those to all before it.
    pub(crate) fn ask(&mut self, opcode: i32, errand: E, body: impl FnOnce(&mut Vec<u8>)) {
        let sets_watches = [Opcode::SetWatches, Opcode::SetWatches2].iter().any(|it| *it as i32 == opcode);
        let xid = if sets_watches {
            xid::SET_WATCHES
        } else {
            self.last_xid = self.last_xid % 1_000_000 + 1;
            self.last_xid
        };
        self.requests += 1;
        self.under_way.push_back((xid, errand));
        self.send(request(xid, opcode, body));
    }

    /// Proves to be somebody.
    pub(crate) fn prove(&mut self, scheme: &str, proof: &str) {
        self.send(request(xid::AUTH, Opcode::Auth as i32, |out| {
            encode::auth(out, scheme, proof.as_bytes());
        }));
    }

    fn ping(&mut self) {
        self.send(request(xid::PING, Opcode::Ping as i32, |_| {}));
    }

    fn send(&mut self, bytes: Vec<u8>) {
        match self.acts.last_mut() {
            Some(Act::Send(before)) if self.is_whole => before.extend(bytes),
            _ => self.acts.push(Act::Send(bytes)),
        }
    }

    fn has_sent(&self) -> bool {
        self.acts.iter().any(|act| matches!(act, Act::Send(_)))
    }

    fn has_been_quiet(&self, now_us: u64) -> bool {
        !self.has_sent() && now_us > self.last_sent_us + self.timeout_us / 4
    }

    /// Whether nothing has come from its server for so long that it believes in none.
    fn is_deserted(&self, now_us: u64) -> bool {
        let patience_us = self.timeout_us * u64::from(self.manners.patience_percent) / 100;
        patience_us > 0 && now_us > self.last_heard_us + patience_us
    }

    fn gives_up_greeting(&mut self, since_us: u64, now_us: u64) -> bool {
        let Manners { greeting_us, hasty_one_in, .. } = self.manners;
        // Nobody waits for the session that may just be made.
        let is_hasty = self.finale == Finale::No && self.rng.one_in(hasty_one_in);
        is_hasty || (greeting_us > 0 && since_us + greeting_us < now_us)
    }

    /// Opens a connection with what is no handshake, or not a whole one.
    fn connect_strangely(&mut self) {
        let mut bytes = Vec::new();
        match self.rng.below(4) {
            0 => put::i32(&mut bytes, -5),
            1 => put::i32(&mut bytes, i32::MAX),
            2 => put::buffer(&mut bytes, &[1, 2, 3]),
            // Half a handshake, and nothing more.
            _ => bytes.extend([0, 0, 0, 44, 0, 0]),
        }
        let server = self.rng.index(self.servers);
        self.acts.push(Act::Connect(server, bytes));
    }

    /// Opens a connection with a handshake. What is wrong with it is so on purpose.
    fn connect(&mut self, mut last_zxid_seen: i64) {
        let manners = self.manners;
        let is_finishing = self.finale != Finale::No;
        let (session_id, mut password) = self.session.or(self.lent).unwrap_or_default();
        let server = self.only.unwrap_or_else(|| self.rng.index(self.servers));
        let timeout_ms = if self.rng.one_in(manners.odd_timeout_one_in) {
            *self.rng.pick(&[-1, i32::MAX])
        } else {
            self.rng.range(manners.timeout_ms.0, manners.timeout_ms.1) as i32
        };
        self.forged = !is_finishing && self.session.is_some() && self.rng.one_in(manners.forged_one_in);
        if self.forged {
            password[self.rng.index(PASSWORD_LEN)] ^= 1 << self.rng.below(8);
        }
        if !is_finishing && self.rng.one_in(manners.ahead_one_in) {
            last_zxid_seen += self.rng.range(1, 1 << 40) as i64;
        }
        let read_only = (!self.rng.one_in(manners.old_one_in)).then_some(self.takes_read_only);
        let password = &password;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms,
            session_id,
            password,
            read_only,
        };
        self.counts.moves += u64::from(self.session.is_some());
        self.acts.push(Act::Connect(server, frame(|out| request.encode(out))));
    }

    /// The frame of something that no client should send, but for the record of a request.
    fn broken_frame(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.rng.below(8) {
            0 => put::i32(&mut bytes, -1),
            1 => put::i32(&mut bytes, 1 << 30),
            2 => put::buffer(&mut bytes, &[0; 5]),
            3 | 4 => {
                // Longer than a server with small limits takes, but not so long that it hangs up.
                let mut body = vec![0; 20 << 10];
                body[..4].copy_from_slice(&self.garbage_xid.to_be_bytes());
                body[7] = Opcode::SetData as u8;
                put::buffer(&mut bytes, &body);
            }
            _ => return None,
        }
        Some(bytes)
    }
}

/// One client.
pub(crate) struct Client<W: Workload> {
    caller: Caller<W::Errand>,
    workload: W,
}

impl<W: Workload> Client<W> {
    /// A client that has never been connected.
    pub(crate) fn new(index: usize, rng: Rng, manners: Manners, servers: usize, workload: W) -> Self {
        Self { caller: Caller::new(index, rng, manners, servers), workload }
    }

    /// One that only says its last words, and only to this server.
    pub(super) fn probe(index: usize, rng: Rng, manners: Manners, server: usize, workload: W) -> Self {
        let mut client = Self::new(index, rng, manners, server + 1, workload);
        client.caller.only = Some(server);
        client.caller.finale = Finale::Due;
        client
    }

    fn leave(&mut self) {
        self.lose();
        self.caller.acts.push(Act::Drop);
    }

    /// The connection is gone.
    fn lose(&mut self) {
        self.workload.lost(&self.caller);
        if self.caller.closing.take().is_some() {
            // Whether it was closed is not known; either way it must end.
            self.let_go();
        }
        let caller = &mut self.caller;
        caller.state = State::Away;
        (caller.only_reads, caller.reckless, caller.forged) = (false, false, false);
        caller.under_way.clear();
        caller.inbox.clear();
        caller.finale = match caller.finale {
            Finale::Closing => Finale::Done,
            Finale::Said => Finale::Due,
            other => other,
        };
    }

    /// It begins anew, and the session that it had must end by itself.
    fn let_go(&mut self) {
        let caller = &mut self.caller;
        caller.left.extend(caller.session.take().map(|(session, _)| session));
        caller.lent = None;
        self.workload.forget(caller);
    }

    fn connect(&mut self, now_us: u64) {
        self.lose();
        let Manners { strange_one_in, anew_one_in, .. } = self.caller.manners;
        let is_finishing = self.caller.finale != Finale::No;
        if !is_finishing && self.caller.session.is_some() && self.caller.rng.one_in(anew_one_in) {
            self.let_go();
        }
        let caller = &mut self.caller;
        if caller.lent.is_some() && caller.rng.one_in(2) {
            caller.lent = None;
        }
        caller.state = State::Greeting(now_us);
        if !is_finishing && caller.rng.one_in(strange_one_in) {
            caller.connect_strangely();
        } else {
            caller.connect(self.workload.seen());
        }
    }

    fn live(&mut self, now_us: u64, judges: &mut Judges) {
        let manners = self.caller.manners;
        if self.caller.closing.is_some() {
            return self.ping_if_quiet(now_us);
        }
        if self.caller.rng.one_in(manners.drop_one_in) {
            return self.leave();
        }
        if self.caller.rng.one_in(manners.silent_one_in) {
            let timeout_us = self.caller.timeout_us;
            self.caller.silent_until_us = now_us + self.caller.rng.range(timeout_us / 2, timeout_us * 2);
            return;
        }
        if self.caller.rng.one_in(manners.garbage_one_in) {
            return self.send_garbage();
        }
        self.burst(now_us, judges);
        if self.caller.state != State::Live {
            return;
        }
        if self.caller.rng.one_in(manners.close_one_in) {
            self.close(now_us, judges);
        } else if self.caller.rng.one_in(manners.stall_one_in) {
            let for_us = self.caller.rng.range(1000, 400_000);
            self.caller.acts.push(Act::Stall(for_us));
        } else if self.caller.rng.one_in(manners.move_one_in) {
            // The old connection stays open, with all that is under way on it.
            self.connect(now_us);
        }
    }

    fn ping_if_quiet(&mut self, now_us: u64) {
        if self.caller.has_been_quiet(now_us) {
            self.caller.ping();
        }
    }

    fn burst(&mut self, now_us: u64, judges: &mut Judges) {
        let Self { caller, workload } = self;
        let room = caller.manners.window.saturating_sub(caller.under_way.len());
        if caller.is_idle() && caller.rng.one_in(caller.manners.prove_one_in) {
            workload.prove(caller);
        }
        workload.burst(caller, judges, room);
        if caller.rng.one_in(PING_ONE_IN) {
            caller.ping();
        }
        self.wait(now_us);
    }

    /// Perhaps somebody else serves it.
    fn wait(&mut self, now_us: u64) {
        let caller = &mut self.caller;
        if !caller.is_idle() && !caller.has_sent() && caller.rng.one_in(caller.manners.leave_one_in) {
            return self.leave();
        }
        self.ping_if_quiet(now_us);
    }

    fn close(&mut self, now_us: u64, judges: &mut Judges) {
        let Self { caller, workload } = self;
        let Manners { behind_close_one_in, returns_one_in, window, .. } = caller.manners;
        workload.close(caller, judges);
        caller.closing = Some(caller.last_xid);
        if caller.finale != Finale::No {
            return;
        }
        if caller.rng.one_in(behind_close_one_in) {
            // What comes behind a close must not be carried out.
            workload.burst(caller, judges, window);
        }
        if caller.rng.one_in(returns_one_in) {
            // It does not wait for the end, and wants its session back.
            caller.closing = None;
            self.connect(now_us);
        }
    }

    fn send_garbage(&mut self) {
        let Self { caller, workload } = self;
        caller.reckless = true;
        caller.garbage_xid += 1;
        let bytes = caller.broken_frame().unwrap_or_else(|| {
            let (opcode, body) = workload.garbage(&caller.manners, &mut caller.rng);
            request(caller.garbage_xid, opcode, |out| out.extend(body))
        });
        caller.send(bytes);
    }

    /// Finishes what is under way, asks once more, and closes its session.
    fn last_words(&mut self, now_us: u64, judges: &mut Judges) {
        let caller = &mut self.caller;
        if !caller.is_idle() {
            return self.wait(now_us);
        }
        match caller.finale {
            Finale::Due => {
                caller.finale = Finale::Said;
                self.workload.last_words(caller, judges);
            }
            Finale::Said => {
                caller.finale = Finale::Closing;
                self.close(now_us, judges);
            }
            // Its connection ends by itself.
            _ => {}
        }
    }

    fn greeted(&mut self, greeting: &[u8], judges: &mut Judges) -> Checked {
        let Self { caller, workload } = self;
        let response = ConnectResponse::decode(greeting)
            .map_err(|error| caller.wrong(&format!("it cannot read its handshake: {error}")))?;
        if response.timeout_ms <= 0 {
            if caller.forged {
                return Ok(());
            }
            let Some((session, _)) = caller.session else {
                if caller.lent.take().is_some() {
                    return Ok(());
                }
                return Err(caller.wrong("a new session was refused as expired"));
            };
            workload.expired(caller, judges, session)?;
            caller.session = None;
            workload.forget(caller);
            return Ok(());
        }
        if caller.forged {
            return Err(caller.wrong("it was given its session for a wrong password"));
        }
        caller.only_reads = response.read_only == Some(true);
        if caller.only_reads && !caller.takes_read_only {
            return Err(caller.wrong("it was given a server that only reads"));
        }
        caller.counts.read_only += u64::from(caller.only_reads);
        let given = (response.session_id, response.password);
        if caller.session.or(caller.lent).is_some_and(|mine| mine != given) {
            return Err(caller.wrong("it was given another session than its own"));
        }
        let is_new = caller.session.is_none();
        let is_lent = is_new && caller.only_reads;
        if is_lent != (response.session_id >> 55 == 0) {
            return Err(caller.wrong("the id that it was given does not say whether that is a session"));
        }
        if is_lent {
            caller.lent = Some(given);
        } else {
            (caller.session, caller.lent) = (Some(given), None);
        }
        caller.timeout_us = response.timeout_ms as u64 * 1000;
        caller.state = State::Live;
        workload.welcomed(caller, judges, is_new && !is_lent)
    }

    fn take(&mut self, frame: &[u8], judges: &mut Judges) -> Checked {
        let Self { caller, workload } = self;
        let mut reader = Reader::new(frame);
        let unreadable = |error| Violation::new(format!("a client cannot read a reply: {error}"));
        let header = ReplyHeader::decode(&mut reader).map_err(unreadable)?;
        if caller.reckless {
            return Ok(());
        }
        if header.xid == xid::NOTIFICATION {
            let event = WatcherEvent::decode(&mut reader).map_err(unreadable)?;
            caller.counts.events += 1;
            return workload.told(caller, judges, header.zxid, &event);
        }
        if header.xid == xid::AUTH {
            // It waits for nothing, as in ZooKeeper.
            let is_proved = workload.is_proved(header.err);
            return if is_proved { Ok(()) } else { Err(caller.wrong("it is not who it is")) };
        }
        workload.shown(caller, judges, header.zxid)?;
        if header.xid == xid::PING {
            return Ok(());
        }
        let Some((asked, errand)) = caller.under_way.pop_front() else {
            return Err(caller.wrong(&format!("it was answered what it did not ask: {header:?}")));
        };
        if asked != header.xid {
            let what = format!("the answer to {} comes before that to {asked}: {errand:?}", header.xid);
            return Err(caller.wrong(&what));
        }
        caller.counts.answers += 1;
        workload.answered(caller, judges, errand, header, &mut reader)?;
        if caller.closing.take_if(|closing| *closing == asked).is_none() {
            return Ok(());
        }
        if header.err == 0 {
            // The answer is the end of the session; its connection ends by itself.
            (caller.session, caller.lent) = (None, None);
            workload.forget(caller);
        } else if caller.finale == Finale::Closing {
            // The log has no room, or the server only reads.
            caller.finale = Finale::Said;
        }
        Ok(())
    }

    fn wake_up(&mut self, now_us: u64, judges: &mut Judges) {
        let caller = &mut self.caller;
        let is_finishing = caller.finale != Finale::No;
        match caller.state {
            State::Away if caller.finale == Finale::Done => {}
            State::Away => self.connect(now_us),
            State::Greeting(since_us) => {
                if caller.gives_up_greeting(since_us, now_us) {
                    self.leave();
                }
            }
            State::Live if caller.is_deserted(now_us) || (is_finishing && caller.reckless) => self.leave(),
            // It looks for a server that does more.
            State::Live if caller.only_reads && (is_finishing || caller.rng.one_in(LOOK_ONE_IN)) => {
                self.leave();
            }
            State::Live if is_finishing && self.workload.may_leave() => self.last_words(now_us, judges),
            State::Live => self.live(now_us, judges),
        }
    }
}

impl<W: Workload> Visitor for Client<W> {
    fn wake(&mut self, judges: &mut Judges, now_us: u64) -> Result<(Vec<Act>, u64), Violation> {
        let caller = &mut self.caller;
        if now_us < caller.silent_until_us && caller.finale == Finale::No {
            return Ok((Vec::new(), caller.silent_until_us - now_us));
        }
        caller.is_whole = caller.rng.percent(caller.manners.whole_percent);
        self.wake_up(now_us, judges);
        let caller = &mut self.caller;
        if caller.has_sent() {
            caller.last_sent_us = now_us;
        }
        Ok((std::mem::take(&mut caller.acts), caller.rng.around(caller.manners.think_us).max(1)))
    }

    fn receive(&mut self, bytes: &[u8], judges: &mut Judges, now_us: u64) -> Result<Vec<Act>, Violation> {
        self.caller.last_heard_us = now_us;
        for frame in whole(&mut self.caller.inbox, bytes)? {
            match self.caller.state {
                State::Greeting(_) => self.greeted(&frame, judges)?,
                State::Live => self.take(&frame, judges)?,
                State::Away => {}
            }
        }
        let caller = &mut self.caller;
        // Most of all when it has just been told something, and may not know of all that it watches.
        if caller.finale == Finale::No
            && self.workload.watches()
            && caller.rng.one_in(caller.manners.hang_up_one_in)
        {
            self.leave();
        }
        Ok(std::mem::take(&mut self.caller.acts))
    }

    fn gone(&mut self) {
        self.lose();
    }

    fn finish(&mut self) {
        if self.caller.finale == Finale::No {
            self.caller.finale = Finale::Due;
        }
    }

    fn is_done(&self) -> bool {
        self.caller.finale == Finale::Done
    }

    fn waits_for(&self) -> String {
        let Caller { index, state, finale, under_way, .. } = &self.caller;
        format!("client {index}: {state:?}, {finale:?}, under way {under_way:?}")
    }

    fn requests(&self) -> u64 {
        self.caller.requests
    }

    fn left(&self) -> &[i64] {
        &self.caller.left
    }

    fn counts(&self) -> Tally {
        self.caller.counts
    }
}
