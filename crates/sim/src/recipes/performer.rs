//! A client process: the protocol core of the client library, tasks that use recipes, and what befalls them.

use std::sync::{Arc, Mutex};

use stoa_check::{Checked, Violation};
use stoa_client_core::{Chroot, Output, Protocol, Settings as Protocols, State};

use super::book::{self, Book};
use super::executor::Executor;
use super::parts::Part;
use super::plan::RecipePlan;
use super::service::Simulated;
use crate::ensemble::{Act, Judges, Visitor};
use crate::frames::REPLY_BYTES_MAX;
use crate::rng::Rng;

/// How often a process looks after itself, microseconds.
const STEP_US: u64 = 4000;
/// Once in so many steps it loses its connection, ...
const DROP_ONE_IN: u64 = 70;
/// ... it stands still,
const PAUSE_ONE_IN: u64 = 2000;
/// ... and more often so when it holds something,
const PAUSE_OF_HOLDER_ONE_IN: u64 = 80;
/// ... it ends, and another one begins.
const DEATH_ONE_IN: u64 = 3000;

/// A process.
pub(super) struct Performer {
    index: usize,
    rng: Rng,
    plan: RecipePlan,
    book: Arc<Mutex<Book>>,
    client: Simulated,
    protocol: Protocol,
    executor: Executor,
    /// The task that plays the part.
    part: u64,
    is_connected: bool,
    paused_until_us: u64,
    /// When something may befall it again.
    fate_us: u64,
    /// What has come meanwhile; `None` is the end of the connection.
    inbox: Vec<Option<Vec<u8>>>,
    requests: u64,
    is_finishing: bool,
}

impl Performer {
    pub(super) fn new(index: usize, mut rng: Rng, plan: &RecipePlan, book: &Arc<Mutex<Book>>) -> Self {
        let client = Simulated::new(rng.fork());
        let mut this = Self {
            index,
            plan: plan.clone(),
            book: Arc::clone(book),
            client,
            protocol: protocol(&mut rng, plan),
            executor: Executor::default(),
            part: 0,
            is_connected: false,
            paused_until_us: 0,
            fate_us: 0,
            inbox: Vec::new(),
            requests: 0,
            is_finishing: false,
            rng,
        };
        this.begin();
        this
    }

    fn begin(&mut self) {
        let part = Part::new(self.index, &self.client, &self.book, self.rng.fork());
        book::lock(&self.book).busy.insert(self.index);
        self.part = self.executor.spawn(Box::pin(part.play(self.plan.play)));
    }

    /// The process ends without a word, and another one takes its place.
    fn die(&mut self, now_us: u64) -> Vec<Act> {
        book::lock(&self.book).died(self.index, self.protocol.session_id());
        self.requests += self.client.desk().calls;
        self.client.desk().end();
        self.executor = Executor::default();
        self.client = Simulated::new(self.rng.fork());
        self.client.desk().tick(now_us);
        self.protocol = protocol(&mut self.rng, &self.plan);
        self.is_connected = false;
        self.begin();
        vec![Act::Drop]
    }

    fn lose_connection(&mut self) -> Vec<Act> {
        self.protocol.disconnected();
        if std::mem::take(&mut self.is_connected) { vec![Act::Drop] } else { Vec::new() }
    }

    fn connect(&mut self, now_ms: u64) -> Vec<Act> {
        self.protocol.connected(now_ms);
        self.is_connected = true;
        let server = self.rng.index(self.plan.life.servers);
        vec![Act::Connect(server, std::mem::take(self.protocol.output()))]
    }

    /// What befalls it now.
    fn step(&mut self, now_us: u64) -> Vec<Act> {
        let now_ms = now_us / 1000;
        if !self.is_finishing && now_us >= self.fate_us {
            self.fate_us = now_us + STEP_US;
            if self.rng.one_in(DEATH_ONE_IN) {
                return self.die(now_us);
            }
            if self.rng.one_in(DROP_ONE_IN) {
                // Sometimes the old connection stays open, with all that is under way on it.
                let acts = self.lose_connection();
                return if self.rng.one_in(2) { acts } else { self.connect(now_ms) };
            }
            let holds = self.protocol.session_id().is_some_and(|it| book::lock(&self.book).holds(it));
            if self.rng.one_in(if holds { PAUSE_OF_HOLDER_ONE_IN } else { PAUSE_ONE_IN }) {
                let timeout_us = self.protocol.timeout_ms() * 1000;
                self.paused_until_us = now_us + self.rng.range(timeout_us / 4, timeout_us * 3);
                book::lock(&self.book).counts.pauses += 1;
                return Vec::new();
            }
        }
        if !self.is_connected {
            return self.connect(now_ms);
        }
        if self.protocol.tick(now_ms).is_err() { self.lose_connection() } else { Vec::new() }
    }

    /// Carries everything between the tasks and the connection until nothing moves any more.
    fn pump(&mut self, now_us: u64, judges: &Judges, acts: &mut Vec<Act>) -> Checked {
        loop {
            let made = std::mem::take(&mut self.client.desk().made);
            let spawned = std::mem::take(&mut self.client.desk().spawned);
            let mut has_moved = !made.is_empty() || !spawned.is_empty();
            for (token, call) in made {
                self.protocol.submit(token, call, now_us / 1000);
            }
            for task in spawned {
                self.executor.spawn(task);
            }
            while let Some(output) = self.protocol.poll() {
                has_moved = true;
                self.told(output);
            }
            has_moved |= self.executor.turn();
            if !has_moved {
                break;
            }
        }
        let mut book = book::lock(&self.book);
        if self.executor.len() <= usize::from(self.executor.has(self.part)) {
            book.is_idle(self.index);
        }
        if !self.executor.has(self.part) {
            book.busy.remove(&self.index);
        }
        book.check(|session| judges.is_closed(session))?;
        let output = std::mem::take(self.protocol.output());
        if !output.is_empty() && self.is_connected {
            acts.push(Act::Send(output));
        }
        Ok(())
    }

    fn told(&mut self, output: Output) {
        match output {
            Output::Completed { token, result } => self.client.desk().answer(token, result),
            Output::Event { watch, event } => {
                if !self.client.desk().tell(watch, Ok(event)) {
                    self.protocol.forget(watch);
                }
            }
            Output::WatchEnded { watch, end } => drop(self.client.desk().tell(watch, Err(end))),
            Output::State(state) => {
                if state == State::Lost {
                    book::lock(&self.book).session_ended(self.index);
                }
                self.client.desk().stands(state, self.protocol.session_id());
            }
            Output::Side(_) => {}
        }
    }

    fn take(&mut self, bytes: &[u8], now_us: u64) -> Vec<Act> {
        match self.protocol.receive(bytes, now_us / 1000) {
            Ok(()) => Vec::new(),
            Err(_) => self.lose_connection(),
        }
    }

    /// What has come while it stood still.
    fn take_late(&mut self, now_us: u64) -> Vec<Act> {
        let mut acts = Vec::new();
        for came in std::mem::take(&mut self.inbox) {
            match came {
                Some(bytes) if self.is_connected => acts.extend(self.take(&bytes, now_us)),
                Some(_) => {}
                None => {
                    self.protocol.disconnected();
                    self.is_connected = false;
                }
            }
        }
        acts
    }
}

fn protocol(rng: &mut Rng, plan: &RecipePlan) -> Protocol {
    let (low, high) = plan.life.manners.timeout_ms;
    Protocol::new(Protocols {
        session_timeout_ms: rng.range(low, high) as u32,
        read_only: false,
        chroot: Chroot::default(),
        frame_bytes_max: REPLY_BYTES_MAX,
        direct: false,
    })
}

impl Visitor for Performer {
    fn wake(&mut self, judges: &mut Judges, now_us: u64) -> Result<(Vec<Act>, u64), Violation> {
        if now_us < self.paused_until_us {
            return Ok((Vec::new(), self.paused_until_us - now_us));
        }
        let mut acts = Vec::new();
        // Whoever has stood still goes on where it was, before it hears of anything.
        self.client.desk().tick(now_us);
        if !self.inbox.is_empty() {
            self.executor.turn();
            acts = self.take_late(now_us);
        }
        acts.extend(self.step(now_us));
        if now_us < self.paused_until_us {
            return Ok((acts, self.paused_until_us - now_us));
        }
        self.pump(now_us, judges, &mut acts)?;
        let due_us = self.client.desk().tick(now_us).unwrap_or(u64::MAX);
        Ok((acts, due_us.saturating_sub(now_us).clamp(1, STEP_US)))
    }

    fn receive(&mut self, bytes: &[u8], judges: &mut Judges, now_us: u64) -> Result<Vec<Act>, Violation> {
        if now_us < self.paused_until_us {
            self.inbox.push(Some(bytes.to_vec()));
            return Ok(Vec::new());
        }
        let mut acts = self.take_late(now_us);
        self.client.desk().tick(now_us);
        acts.extend(self.take(bytes, now_us));
        self.pump(now_us, judges, &mut acts)?;
        Ok(acts)
    }

    fn gone(&mut self) {
        self.inbox.push(None);
    }

    fn finish(&mut self) {
        self.is_finishing = true;
        self.paused_until_us = 0;
        book::lock(&self.book).is_finishing = true;
    }

    fn is_done(&self) -> bool {
        self.is_finishing && self.executor.len() == 0 && self.protocol.pending() == 0
    }

    fn waits_for(&self) -> String {
        let (state, tasks, pending) = (self.protocol.state(), self.executor.len(), self.protocol.pending());
        format!("performer {}: {state:?}, {tasks} tasks, {pending} calls", self.index)
    }

    fn requests(&self) -> u64 {
        self.requests + self.client.desk().calls
    }
}
