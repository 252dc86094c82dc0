//! The generator: one thread, one epoll, every session's socket.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::clock::{Clock, Nanos, nanos};
use super::process::Usage;
use super::record::{Record, Window};
use super::requests::Requests;
use super::session::Session;
use crate::failure::{Context as _, Failure, Result};

/// Longest sleep, so that the end of a phase is noticed.
const SLEEP_MAX: Nanos = 20_000_000;
/// How long replies are waited for after the end.
const DRAIN: Nanos = 10_000_000_000;
const EVENTS_PER_TURN: usize = 256;

/// When a session sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As soon as the pipeline has room (closed loop).
    AtWill,
    /// At fixed times, whether the server keeps up or not (open loop).
    Every {
        /// The first time.
        first: Nanos,
        /// Time from one to the next.
        interval: Nanos,
    },
    /// One request, and some time after its reply the next one (closed loop of somebody who thinks).
    Thinking {
        /// The time after a reply.
        pause: Nanos,
    },
}

/// How long a run goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// Time before anything counts.
    pub(crate) warmup: Duration,
    /// Time that counts. `None`: until there are no more requests.
    pub(crate) duration: Option<Duration>,
    /// When, in the time that counts, all sessions go over to something else.
    pub(crate) shifts: Vec<Duration>,
    /// Counts what is answered in each of so long parts of the time that counts, too.
    pub(crate) interval: Option<Duration>,
    /// Whose CPU time and memory are taken, and added up, at both ends of the time that counts.
    pub(crate) servers: Vec<u32>,
}

/// What the run found out.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Latencies, errors, bytes.
    pub(crate) record: Record,
    /// When the time that counts began.
    pub(crate) began: SystemTime,
    /// The time that counted.
    pub(crate) elapsed: Duration,
    /// The servers' use of the machine before and after.
    pub(crate) server: Option<(Usage, Usage)>,
    /// Our own.
    pub(crate) generator: (Usage, Usage),
    /// Bytes of an average request, its length included.
    pub(crate) request_bytes: f64,
}

/// Drives all sessions of a run.
pub(crate) struct Generator<R> {
    epoll: OwnedFd,
    sessions: Vec<Session>,
    paces: Vec<Pace>,
    /// When sessions with a pace send next.
    schedule: BinaryHeap<Reverse<(Nanos, usize)>>,
    requests: R,
    events: Vec<epoll::Event>,
    clock: Clock,
}

/// Whether a session that was answered sends more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendPhase {
    Sending,
    Draining,
}

impl<R: Requests> Generator<R> {
    /// A generator over `sessions`, with the pace of each.
    pub(crate) fn new(sessions: Vec<(Session, Pace)>, requests: R) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll")?;
        let (sessions, paces): (Vec<_>, Vec<_>) = sessions.into_iter().unzip();
        for (index, session) in sessions.iter().enumerate() {
            for (number, wire) in session.wires.iter().enumerate() {
                epoll::add(&epoll, wire.socket(), name(index, number), epoll::EventFlags::IN)
                    .context("cannot wait for a socket")?;
            }
        }
        let schedule = paces
            .iter()
            .enumerate()
            .filter_map(|(index, pace)| match pace {
                Pace::AtWill => None,
                Pace::Every { first, .. } => Some(Reverse((*first, index))),
                Pace::Thinking { .. } => Some(Reverse((0, index))),
            })
            .collect();
        Ok(Self {
            epoll,
            sessions,
            paces,
            schedule,
            requests,
            events: Vec::with_capacity(EVENTS_PER_TURN),
            clock: Clock::start(),
        })
    }

    /// Runs the plan; gives the sessions back.
    pub(crate) fn run(mut self, plan: Plan) -> Result<(Outcome, Vec<Session>)> {
        // Times of the schedule count from here, whatever it took to get the sessions ready.
        self.clock = Clock::start();
        let window = match plan.duration {
            None => Window::ALWAYS,
            Some(duration) => {
                let start = nanos(plan.warmup);
                Window { start, end: start + nanos(duration) }
            }
        };
        let mut record = Record::new(window);
        if let Some(interval) = plan.interval {
            record.count_in_parts(nanos(interval));
        }
        for index in 0..self.sessions.len() {
            self.send(index, 0)?;
        }
        self.turn_until(window.start, &mut record)?;
        let (started, began) = (self.clock.now(), SystemTime::now());
        let usage = || -> Result<_> { Ok((Usage::of_all(&plan.servers)?, Usage::of(std::process::id())?)) };
        let (server_before, generator_before) = usage()?;
        for shift in &plan.shifts {
            self.turn_until(window.start + nanos(*shift), &mut record)?;
            self.requests.shift();
        }
        self.turn_until(window.end, &mut record)?;
        let elapsed = Duration::from_nanos(self.clock.now() - started);
        let (server_after, generator_after) = usage()?;
        self.drain(&mut record)?;
        let (bytes, frames) = self
            .sessions
            .iter()
            .fold((0, 0), |(bytes, frames), s| (bytes + s.sent_bytes, frames + s.sent_frames));
        let outcome = Outcome {
            record,
            began,
            elapsed,
            server: server_before.zip(server_after),
            generator: (generator_before, generator_after),
            request_bytes: bytes as f64 / (frames as f64).max(1.0),
        };
        Ok((outcome, self.sessions))
    }

    /// Turns until `end`, or until there is nothing more to send and to receive.
    fn turn_until(&mut self, end: Nanos, record: &mut Record) -> Result<()> {
        loop {
            let now = self.clock.now();
            if now >= end || (self.schedule.is_empty() && self.sessions.iter().all(Session::is_idle)) {
                return Ok(());
            }
            self.send_due(now)?;
            let due = self.schedule.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
            self.wait(due.min(end), record, SendPhase::Sending)?;
        }
    }

    /// Puts requests whose time has come on their sessions.
    fn send_due(&mut self, now: Nanos) -> Result<()> {
        while let Some(&Reverse((at, index))) = self.schedule.peek()
            && at <= now
        {
            self.schedule.pop();
            if let Pace::Every { interval, .. } = self.paces[index] {
                self.schedule.push(Reverse((at + interval, index)));
            }
            self.sessions[index].schedule(at);
            self.send(index, now)?;
        }
        Ok(())
    }

    fn send(&mut self, index: usize, now: Nanos) -> Result<()> {
        let session = &mut self.sessions[index];
        match self.paces[index] {
            Pace::AtWill => session.fill(now, &mut self.requests),
            Pace::Every { .. } | Pace::Thinking { .. } => session.fill_due(&mut self.requests),
        }
        session.write()?;
        self.watch_for_room(index)
    }

    /// Asks the epoll to tell when sockets of a session have room, or not to.
    fn watch_for_room(&mut self, index: usize) -> Result<()> {
        for (number, wire) in self.sessions[index].wires.iter_mut().enumerate() {
            let wants = wire.has_output();
            if std::mem::replace(&mut wire.wants_room, wants) == wants {
                continue;
            }
            let flags =
                if wants { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.epoll, wire.socket(), name(index, number), flags)
                .context("cannot wait for room in a socket")?;
        }
        Ok(())
    }

    /// Sleeps until a socket is ready or `until` is reached, then handles every ready socket.
    fn wait(&mut self, until: Nanos, record: &mut Record, phase: SendPhase) -> Result<()> {
        let sleep = until.saturating_sub(self.clock.now()).min(SLEEP_MAX);
        let sleep = Timespec::try_from(Duration::from_nanos(sleep)).context("cannot sleep")?;
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&sleep)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::failed(format!("cannot wait for sockets: {error}"))),
        }
        for event in 0..self.events.len() {
            let (index, wire) = named(self.events[event].data.u64());
            let session = &mut self.sessions[index];
            let asked = !session.is_idle();
            let now = session.read(wire, self.clock, record, &self.requests)?;
            if let Pace::Thinking { pause } = self.paces[index]
                && asked
                && session.is_idle()
            {
                self.schedule.push(Reverse((now + pause, index)));
            }
            match phase {
                SendPhase::Sending => self.send(index, now)?,
                SendPhase::Draining => self.finish(index, now)?,
            }
        }
        Ok(())
    }

    fn finish(&mut self, index: usize, now: Nanos) -> Result<()> {
        let session = &mut self.sessions[index];
        session.finish(now, &mut self.requests);
        session.write()?;
        self.watch_for_room(index)
    }

    /// Waits for the replies that are still to come.
    fn drain(&mut self, record: &mut Record) -> Result<()> {
        let now = self.clock.now();
        for index in 0..self.sessions.len() {
            self.finish(index, now)?;
        }
        let end = now + DRAIN;
        while self.clock.now() < end && !self.sessions.iter().all(Session::is_idle) {
            self.wait(end, record, SendPhase::Draining)?;
        }
        let now = self.clock.now();
        for session in &mut self.sessions {
            session.give_up(now, record);
        }
        Ok(())
    }
}

/// How the epoll calls a connection of a session.
fn name(session: usize, wire: usize) -> epoll::EventData {
    epoll::EventData::new_u64((wire as u64) << 32 | session as u64)
}

fn named(name: u64) -> (usize, usize) {
    ((name & 0xffff_ffff) as usize, (name >> 32) as usize)
}
