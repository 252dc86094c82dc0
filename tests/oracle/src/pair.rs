//! Both servers, driven with one stream and compared after each step.

use crate::answer::{self, Item};
use crate::call::{Call, Name, Op};
use crate::compare::{self, Mismatch, Order};
use crate::generate::{Dial, Step};
use crate::headers::{self, Headers};
use crate::ledger::{Bounds, Ledger, Value};
use crate::link::{Ended, Link};
use crate::menu;
use crate::side::{Greeting, Received, Sequentials, Session, Side};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use stoa_wire::Opcode;

/// Bursts that are remembered for a report.
const HISTORY: usize = 200;

/// Sequential znodes that are remembered: the sweeps between phases delete the oldest.
const SEQUENTIALS: usize = 512;

/// When all is quiet, headers catch up within this time: it is some ticks.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(10);

const CATCH_UP_PAUSE: Duration = Duration::from_millis(50);

/// The servers answered differently, or one of them could not be reached.
#[derive(Debug)]
pub enum Stop {
    /// They differ.
    Difference(Box<Difference>),
    /// The run could not go on.
    Broken(String),
}

/// Where the servers differ.
#[derive(Debug)]
pub struct Difference {
    /// The session's number.
    pub slot: usize,
    /// In short, what differs.
    pub what: String,
    /// The call that was answered differently, when it is one.
    pub call: Option<Call>,
    /// The left server's item.
    pub left: Option<Item>,
    /// The right server's item.
    pub right: Option<Item>,
}

/// A burst that was answered alike.
#[derive(Debug)]
pub struct Past {
    /// The session's number.
    pub slot: usize,
    /// What was asked.
    pub calls: Vec<Call>,
    /// What both answered.
    pub items: Vec<Item>,
}

/// The two servers.
#[derive(Debug)]
pub struct Pair {
    left: Side,
    right: Side,
    connected: Vec<bool>,
    next_xid: Vec<i32>,
    sessions: usize,
    closing_writes: Vec<bool>,
    sequentials: Sequentials,
    /// The right server's headers, if it has several partitions.
    headers: Option<Headers>,
    /// Who has sent requests last.
    active: Option<usize>,
    /// The last bursts, oldest first.
    pub history: VecDeque<Past>,
    /// Requests sent so far.
    pub requests: u64,
    /// Watch notifications compared so far.
    pub events: u64,
    /// How often each opcode was answered with each error code.
    pub answers: BTreeMap<(i32, i32), u64>,
}

type Outcome = Result<(), Stop>;

impl Pair {
    /// Two servers with the same, empty, tree. The right one may have several partitions.
    #[must_use]
    pub fn new(left: SocketAddr, right: SocketAddr, slots: usize, partitions: u8) -> Self {
        let is_divided = partitions > 1;
        let ledger = || if is_divided { Ledger::divided() } else { Ledger::default() };
        Self {
            left: Side::new("left", left, slots, ledger()),
            right: Side::new("right", right, slots, ledger()),
            connected: vec![false; slots],
            next_xid: vec![1; slots],
            sessions: 0,
            closing_writes: Vec::new(),
            sequentials: Sequentials::new(),
            headers: is_divided.then(|| Headers::new(slots)),
            active: None,
            history: VecDeque::new(),
            requests: 0,
            events: 0,
            answers: BTreeMap::new(),
        }
    }

    /// How long the answers of the left and of the right server were waited for.
    #[must_use]
    pub fn waited(&self) -> [Duration; 2] {
        [self.left.waited, self.right.waited]
    }

    /// Drives one step and compares what came of it.
    ///
    /// # Errors
    /// At the first difference.
    pub fn step(&mut self, step: Step) -> Outcome {
        self.requests += step.requests();
        if self.headers.is_some() {
            self.take_turn(step.slot())?;
        }
        match step {
            Step::Burst { slot, calls } => self.burst(slot, calls),
            Step::Dial { slot, how } => self.redial(slot, how),
            Step::Garbage { slot, bytes } => {
                self.connect(slot)?;
                self.settle(slot)?;
                self.left.send_raw(slot, bytes);
                self.right.send_raw(slot, bytes);
                self.probe_for_end(slot)
            }
        }
    }

    /// Compares the notifications that are still under way.
    ///
    /// # Errors
    /// At the first difference.
    pub fn finish(&mut self) -> Outcome {
        for slot in 0..self.connected.len() {
            self.settle(slot)?;
        }
        if self.headers.is_some() { self.must_catch_up() } else { Ok(()) }
    }

    /// The zxids in headers fall behind while a client watches several partitions; when nothing more is
    /// written, they catch up.
    fn must_catch_up(&mut self) -> Outcome {
        let slot = 0;
        self.take_turn(slot)?;
        self.burst(slot, vec![menu::superuser()])?;
        let watch =
            |path: &&str| Op::Number { opcode: Opcode::AddWatch, path: Name::text(*path), number: 0 }.into();
        self.burst(slot, menu::SUBTREES.iter().map(watch).collect())?;
        self.burst(slot, vec![menu::set_acl("/")])?;
        self.burst(slot, vec![menu::create("/end-", 2)])?;
        let wanted = self.right.ledger.last_zxid();
        let look: Call = Op::Watch { opcode: Opcode::Exists, path: Name::text("/"), watch: false }.into();
        let begun = Instant::now();
        loop {
            let (left, right) = self.exchange(slot, std::slice::from_ref(&look));
            self.compare(slot, vec![look.clone()], &left, &right)?;
            let (ours, theirs) = (left.replies().next(), right.replies().next());
            let (Some(ours), Some(theirs)) = (ours, theirs) else { return Ok(()) };
            if answer::header(theirs).is_some_and(|header| header.zxid >= wanted) {
                return Ok(());
            }
            if begun.elapsed() > CATCH_UP_LIMIT {
                let what = "the zxid of a reply stays behind the last write";
                return Err(self.difference(slot, what, &look, ours, theirs));
            }
            std::thread::sleep(CATCH_UP_PAUSE);
        }
    }

    fn burst(&mut self, slot: usize, calls: Vec<Call>) -> Outcome {
        self.connect(slot)?;
        let (left, right) = self.exchange(slot, &calls);
        self.note_writes(slot, &calls, &left, &right)?;
        self.note_names(&calls, &left);
        let may_end = calls.iter().any(|call| call.op.may_end_connection());
        let closes = calls.iter().any(|call| call.op.opcode() == Opcode::CloseSession as i32);
        self.compare(slot, calls, &left, &right)?;
        if left.ended.is_some() && !may_end {
            // Nothing in such a burst asks for it: most likely both servers have stopped.
            let last = self.history.back().map(ToString::to_string).unwrap_or_default();
            return Err(Stop::Broken(format!(
                "both servers ended the connection of session {slot}:\n{last}"
            )));
        }
        if closes {
            self.left.forget_session(slot);
            self.right.forget_session(slot);
        }
        if left.ended.is_some() {
            self.hang_up(slot);
        } else if may_end {
            self.probe_for_end(slot)?;
        }
        Ok(())
    }

    /// Sends calls together, and reads until all are answered.
    fn exchange(&mut self, slot: usize, calls: &[Call]) -> (Received, Received) {
        let first_xid = self.next_xid[slot];
        self.next_xid[slot] = first_xid + i32::try_from(calls.len()).unwrap_or(0);
        if self.next_xid[slot] > 1 << 30 {
            self.next_xid[slot] = 1;
        }
        if let Some(headers) = &mut self.headers {
            calls.iter().for_each(|call| headers.asks(slot, &call.op));
        }
        let told = &self.right.ledger;
        let left = self.left.encode(calls, first_xid, &self.sequentials, told);
        let right = self.right.encode(calls, first_xid, &self.sequentials, told);
        self.left.send_raw(slot, &left);
        self.right.send_raw(slot, &right);
        (self.left.receive(slot, calls.len()), self.right.receive(slot, calls.len()))
    }

    /// Notes which zxids belong to the same write.
    fn note_writes(&mut self, slot: usize, calls: &[Call], left: &Received, right: &Received) -> Outcome {
        for ((call, ours), theirs) in calls.iter().zip(left.replies()).zip(right.replies()) {
            let zxids = answer::header(ours).zip(answer::header(theirs)).map(|(l, r)| (l.zxid, r.zxid));
            let Some((left_zxid, right_zxid)) = zxids else {
                continue;
            };
            let err = answer::header(ours).map_or(0, |header| header.err);
            *self.answers.entry((call.op.opcode(), err)).or_default() += 1;
            let closes = call.op.opcode() == Opcode::CloseSession as i32;
            let wrote = answer::shows_write(&call.op, ours) && answer::shows_write(&call.op, theirs);
            // The end of a session is a write only if it had ephemeral znodes, which shows in the
            // Stats of their parents: a server need not give it a zxid otherwise.
            let is_new = (closes || wrote) && left_zxid > self.left.ledger.last_zxid();
            if is_new && self.note_right(slot, right_zxid, closes) {
                self.left.ledger.wrote(left_zxid);
                self.closing_writes.push(closes);
            } else if wrote {
                return Err(self.difference(
                    slot,
                    "the zxid of a write is not above the last one",
                    call,
                    ours,
                    theirs,
                ));
            }
            if let Some(headers) = &mut self.headers {
                headers.says(right_zxid);
            }
        }
        Ok(())
    }

    /// Notes the right server's next write, in whose reply this zxid stands. Answers whether it can be one.
    fn note_right(&mut self, slot: usize, zxid: i64, closes: bool) -> bool {
        let ledger = &mut self.right.ledger;
        let Some(headers) = &self.headers else {
            let grew = zxid > ledger.last_zxid();
            if grew {
                ledger.wrote(zxid);
            }
            return grew;
        };
        let write = ledger.wrote_within(Bounds { above: headers.newest(), least: zxid });
        closes || !headers.is_exact(slot) || ledger.learn(write, zxid)
    }

    fn difference(&mut self, slot: usize, what: &str, call: &Call, left: &[u8], right: &[u8]) -> Stop {
        Stop::Difference(Box::new(Difference {
            slot,
            what: what.to_owned(),
            call: Some(call.clone()),
            left: Some(Item::Reply(0, answer::reply(&call.op, left, &mut self.left.ledger))),
            right: Some(Item::Reply(0, answer::reply(&call.op, right, &mut self.right.ledger))),
        }))
    }

    /// Keeps the names that the servers made up, so that later requests can use them.
    fn note_names(&mut self, calls: &[Call], left: &Received) {
        // Deleted or not (it may have children, or be somebody else's): the others come first now.
        let tried: Vec<String> = calls
            .iter()
            .filter_map(|call| match call.op {
                Op::Number { opcode: Opcode::Delete, path: Name::Sequential(nth), .. } => {
                    self.sequentials.get(nth % self.sequentials.len().max(1)).cloned()
                }
                _ => None,
            })
            .collect();
        self.sequentials.retain(|name| !tried.contains(name));
        for (call, reply) in calls.iter().zip(left.replies()) {
            answer::created_paths(&call.op, reply, |op, path| {
                if matches!(op, Op::Create { flags: 2 | 3 | 6, .. }) {
                    if self.sequentials.len() == SEQUENTIALS {
                        self.sequentials.pop_front();
                    }
                    self.sequentials.push_back(path.to_owned());
                }
            });
        }
    }

    fn compare(&mut self, slot: usize, calls: Vec<Call>, left: &Received, right: &Received) -> Outcome {
        let ops = || calls.iter().map(|call| &call.op);
        let left = left.items(ops(), &mut self.left.ledger);
        let mut theirs = right.items(ops(), &mut self.right.ledger);
        if self.headers.is_some() && headers::learn(&left, &theirs, &mut self.right.ledger) {
            theirs = right.items(ops(), &mut self.right.ledger);
        }
        // See `differences`.
        let usual = if self.headers.is_some() { Order::SamePerSubtree } else { Order::Same };
        let outcome = compare::first_difference(left, theirs, |zxid| match zxid {
            Value::Write(write) if self.closing_writes.get(*write) == Some(&true) => Order::Any,
            _ => usual,
        });
        let outcome = outcome.and_then(|items| self.judge_headers(slot, right, items));
        match outcome {
            Ok(items) => {
                self.events += items.iter().filter(|item| matches!(item, Item::Event(_))).count() as u64;
                if self.history.len() == HISTORY {
                    self.history.pop_front();
                }
                self.history.push_back(Past { slot, calls, items });
                Ok(())
            }
            Err(mismatch) => Err(Stop::Difference(Box::new(Difference {
                slot,
                what: mismatch.what,
                call: mismatch.call.and_then(|nth| calls.get(nth).cloned()),
                left: mismatch.left,
                right: mismatch.right,
            }))),
        }
    }

    fn judge_headers(
        &mut self,
        slot: usize,
        right: &Received,
        items: Vec<Item>,
    ) -> Result<Vec<Item>, Box<Mismatch>> {
        let Some(headers) = &mut self.headers else { return Ok(items) };
        match headers.judge(slot, right, &items, &self.right.ledger) {
            None => Ok(items),
            Some((at, what)) => Err(Box::new(Mismatch {
                what,
                call: items.get(at).and_then(Item::call),
                left: None,
                right: items.get(at).cloned(),
            })),
        }
    }

    /// Waits for everything that was sent before on this connection, and compares it.
    fn settle(&mut self, slot: usize) -> Outcome {
        if !self.connected[slot] {
            return Ok(());
        }
        if self.headers.is_some() { self.catch_up(slot) } else { self.probe(slot) }
    }

    /// Another session goes on: what it is shown from now on includes what the others have been told.
    fn take_turn(&mut self, slot: usize) -> Outcome {
        if self.active.replace(slot) == Some(slot) {
            return Ok(());
        }
        self.connect(slot)?;
        self.catch_up(slot)
    }

    /// Waits for everything that was sent before on this connection, of whatever partition. Nothing says
    /// how far the events of other sessions have come; so as many are waited for as the left server has sent.
    fn catch_up(&mut self, slot: usize) -> Outcome {
        let sync = |path| Op::Path { opcode: Opcode::Sync, path }.into();
        let calls: Vec<Call> = menu::names_everywhere().map(sync).collect();
        let (left, mut right) = self.exchange(slot, &calls);
        self.right.await_events(slot, &mut right, left.events());
        let ended = left.ended.is_some();
        self.compare(slot, calls, &left, &right)?;
        if ended {
            self.hang_up(slot);
        }
        Ok(())
    }

    /// A ping: answered by a connection that is open.
    fn probe(&mut self, slot: usize) -> Outcome {
        self.left.send_ping(slot);
        self.right.send_ping(slot);
        let left = self.left.receive(slot, 1);
        let right = self.right.receive(slot, 1);
        let ended = left.ended.is_some();
        self.compare(slot, vec![Op::Bare(Opcode::Ping).into()], &left, &right)?;
        if ended {
            self.hang_up(slot);
        }
        Ok(())
    }

    /// Looks whether the servers have ended the connection. One that is about to end may answer
    /// another ping or two, so only what an open one brings is compared.
    fn probe_for_end(&mut self, slot: usize) -> Outcome {
        let left = self.left.ping_until_end(slot);
        let mut right = self.right.ping_until_end(slot);
        if self.headers.is_some() && left.ended.is_some() {
            self.right.await_end(slot, &mut right);
        }
        if left.ended.is_some() && right.ended.is_some() {
            self.hang_up(slot);
            return Ok(());
        }
        let pings = vec![Op::Bare(Opcode::Ping).into(); crate::side::PINGS_BEFORE_END];
        self.compare(slot, pings, &left, &right)
    }

    fn hang_up(&mut self, slot: usize) {
        self.connected[slot] = false;
        self.left.hang_up(slot);
        self.right.hang_up(slot);
        self.forget_watches(slot);
    }

    fn forget_watches(&mut self, slot: usize) {
        if let Some(headers) = &mut self.headers {
            headers.hangs_up(slot);
        }
    }

    /// Makes sure that `slot` has a connection and a session.
    fn connect(&mut self, slot: usize) -> Outcome {
        if self.connected[slot] {
            return Ok(());
        }
        self.greet(slot, &Manner::default())?;
        if !self.connected[slot] {
            // Both say that the session is over: a new one.
            self.left.forget_session(slot);
            self.right.forget_session(slot);
            self.greet(slot, &Manner::default())?;
        }
        if self.connected[slot] {
            return Ok(());
        }
        Err(Stop::Broken(format!("both servers refuse session {slot}")))
    }

    fn redial(&mut self, slot: usize, how: Dial) -> Outcome {
        // There must be a session to come back to.
        self.connect(slot)?;
        self.settle(slot)?;
        if how == Dial::Over && self.connected[slot] {
            let old = (self.left.hang_up(slot), self.right.hang_up(slot));
            self.forget_watches(slot);
            self.greet(slot, &Manner::default())?;
            return self.must_have_ended(slot, old);
        }
        self.hang_up(slot);
        match how {
            Dial::Again | Dial::Over => self.greet(slot, &Manner::default()),
            Dial::OldClient => self.greet(slot, &Manner { read_only: None, ..Manner::default() }),
            Dial::Timeout(timeout_ms) => self.greet(slot, &Manner { timeout_ms, ..Manner::default() }),
            Dial::FromTheFuture => {
                self.greet(slot, &Manner { last_zxid_seen: i64::MAX, ..Manner::default() })
            }
            Dial::WrongPassword => self.greet(slot, &Manner { password: Some([7; 16]), ..Manner::default() }),
            Dial::NoSuchSession => {
                self.greet(slot, &Manner { session_id: Some(0x1234), ..Manner::default() })
            }
            Dial::Garbage(bytes) => {
                let left = unreached(self.left.dial_raw(slot, bytes), "left")?;
                let right = unreached(self.right.dial_raw(slot, bytes), "right")?;
                self.compare_greetings(slot, left, right)
            }
        }
    }

    /// A client that comes back for a session takes it from the connection it had before.
    fn must_have_ended(&mut self, slot: usize, old: (Option<Link>, Option<Link>)) -> Outcome {
        let (Some(mut left), Some(mut right)) = old else {
            return Ok(());
        };
        let ended = |answer: Result<Vec<u8>, _>| Received {
            ended: answer.as_ref().err().copied(),
            frames: answer.into_iter().collect(),
        };
        let (left, right) = (ended(left.receive()), ended(right.receive()));
        self.compare(slot, Vec::new(), &left, &right)
    }

    fn greet(&mut self, slot: usize, manner: &Manner) -> Outcome {
        let left = self.left.session(slot);
        let right = self.right.session(slot);
        let left = unreached(self.left.dial(slot, &manner.greeting(left)), "left")?;
        let right = unreached(self.right.dial(slot, &manner.greeting(right)), "right")?;
        self.compare_greetings(slot, left, right)
    }

    fn compare_greetings(
        &mut self,
        slot: usize,
        left: Result<Vec<u8>, Ended>,
        right: Result<Vec<u8>, Ended>,
    ) -> Outcome {
        let mut alive = false;
        if let (Ok(left), Ok(right)) = (&left, &right) {
            let before = self.left.session(slot).map(|session| session.id);
            self.left.adopt(slot, left, self.sessions);
            self.right.adopt(slot, right, self.sessions);
            let after = self.left.session(slot).map(|session| session.id);
            self.sessions += usize::from(before != after);
            alive = stoa_wire::ConnectResponse::decode(left).is_ok_and(|response| response.session_id != 0);
        }
        let left = greeting_item(left, &mut self.left.ledger);
        let right = greeting_item(right, &mut self.right.ledger);
        if left != right {
            return Err(Stop::Difference(Box::new(Difference {
                slot,
                what: "the answer to the connect request".to_owned(),
                call: None,
                left: Some(left),
                right: Some(right),
            })));
        }
        if alive {
            self.connected[slot] = true;
        } else if matches!(left, Item::Ended(_)) {
            self.hang_up(slot);
        } else {
            // Refused by an answer: the connection must end now.
            self.connected[slot] = true;
            self.probe_for_end(slot)?;
        }
        Ok(())
    }
}

fn greeting_item(answer: Result<Vec<u8>, Ended>, ledger: &mut Ledger) -> Item {
    match answer {
        Ok(frame) => Item::Reply(0, answer::greeting(&frame, ledger)),
        Err(ended) => Item::Ended(ended),
    }
}

fn unreached<T>(outcome: std::io::Result<T>, side: &str) -> Result<T, Stop> {
    outcome.map_err(|error| Stop::Broken(format!("the {side} server cannot be reached any more: {error}")))
}

/// What a connect request says beside the session.
#[derive(Debug)]
struct Manner {
    timeout_ms: i32,
    last_zxid_seen: i64,
    read_only: Option<bool>,
    password: Option<[u8; 16]>,
    session_id: Option<i64>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            timeout_ms: 1_800_000,
            last_zxid_seen: 0,
            read_only: Some(false),
            password: None,
            session_id: None,
        }
    }
}

impl Manner {
    fn greeting(&self, session: Option<Session>) -> Greeting {
        let session = session.map(|session| Session {
            id: self.session_id.unwrap_or(session.id),
            password: self.password.unwrap_or(session.password),
        });
        Greeting {
            session,
            last_zxid_seen: self.last_zxid_seen,
            timeout_ms: self.timeout_ms,
            read_only: self.read_only,
        }
    }
}
