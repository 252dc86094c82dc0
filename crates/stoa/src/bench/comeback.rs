//! `stoa bench return`: the connections of many sessions break at once, and all of these come back at once, as they do
//! when a switch or a load balancer between them and the servers starts again.
//!
//! One thread and one epoll: each session has a new connection under way from the first moment on, and another one when
//! that fails. Sessions keep their identity, so that one counts as lost only when a server says so.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use serde_json::json;
use stoa_wire::{ConnectResponse, next_frame};

use super::clock::nanos;
use super::connect::{self, Identity};
use super::record::latency_histogram;
use super::report::latency_json;
use super::run::{Target, seconds};
use super::stream::{Server, Stream};
use crate::failure::{Context as _, Failure, Result};

/// A session whose connection failed tries again after this long.
const RETRY: Duration = Duration::from_millis(50);
const SLEEP_MAX: Duration = Duration::from_millis(10);
/// All that a server says before it is asked anything.
const ANSWER_BYTES_MAX: usize = 4 << 10;
const EVENTS_PER_TURN: usize = 256;
const CLOSED_AT_A_TIME: usize = 40;

/// Options of `stoa bench return`.
#[derive(Debug, Args)]
pub(crate) struct ReturnArgs {
    #[command(flatten)]
    target: Target,
    /// Number of sessions
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: u32,
    /// How long they are quiet before their connections break
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    after: Duration,
    /// How long all of them may take to come back
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    patience: Duration,
}

/// Opens the sessions, breaks their connections, and has them come back.
pub(crate) fn run(args: &ReturnArgs) -> Result<()> {
    let Target { server, timeout, json, tls, .. } = &args.target;
    if args.after > *timeout / 3 {
        let timeout = timeout.as_secs_f64();
        return Err(Failure::usage(format!(
            "sessions that are quiet for more than a third of their timeout of {timeout} s may expire: lower --after, \
             or raise --timeout"
        )));
    }
    let servers = connect::resolve_all(server, tls)?;
    let opened = connect::open_known_sessions(&servers, args.sessions as usize, *timeout)?;
    let (streams, identities): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
    thread::sleep(args.after);
    let broken = SystemTime::now();
    drop(streams);
    let mut returns = Returns::new(&servers, identities, *timeout)?;
    let began = Instant::now();
    returns.run(began, args.patience)?;
    let over = SystemTime::now();
    let mut latency = latency_histogram();
    let all = returns.returning.iter();
    all.clone().filter_map(|it| it.back).for_each(|back| latency.saturating_record(nanos(back)));
    let (lost, retries) = (all.clone().filter(|it| it.is_lost).count(), returns.retries);
    let missing = all.filter(|it| it.back.is_none()).count() - lost;
    let back_s = latency.max() as f64 / 1e9;
    let mut streams =
        returns.returning.into_iter().filter_map(|it| it.attempt).map(|it| it.stream).peekable();
    // Not all at once, or whoever measures how long others wait would measure that.
    while streams.peek().is_some() {
        connect::close_sessions(streams.by_ref().take(CLOSED_AT_A_TIME).collect())?;
    }
    let back = latency.len();
    let text = match json {
        true => json!({
            "sessions": args.sessions, "returned": back, "lost": lost, "missing": missing, "retries": retries,
            "seconds": back_s, "latency_us": latency_json(&latency),
            "broken_unix": unix(broken), "over_unix": unix(over),
        })
        .to_string(),
        false => format!(
            "{back} of {} sessions were back after {back_s:.3} s, {lost} had expired,\n\
             {missing} did not come back in time; {retries} connections failed on the way",
            args.sessions
        ),
    };
    writeln!(io::stdout(), "{text}").context("cannot print the report")
}

/// Seconds since 1970.
fn unix(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A session on its way back.
#[derive(Debug)]
struct Returning {
    identity: Identity,
    attempt: Option<Attempt>,
    /// When the next connection is begun, if none is under way.
    due: Instant,
    /// How long it took.
    back: Option<Duration>,
    /// The server has said that it has expired.
    is_lost: bool,
}

/// A connection under way.
#[derive(Debug)]
struct Attempt {
    stream: Stream,
    /// Written when the socket is connected.
    hello: Vec<u8>,
    answer: Vec<u8>,
}

impl Attempt {
    /// Goes on as far as the socket lets it. Returns the answer when that is there.
    fn turn(&mut self) -> io::Result<Option<ConnectResponse>> {
        while !self.hello.is_empty() {
            match self.stream.write(&self.hello) {
                Ok(written) => drop(self.hello.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        loop {
            let mut bytes = [0; 512];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.answer.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        // What TLS has to say to what it has read.
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let frame = next_frame(&self.answer, ANSWER_BYTES_MAX).map_err(io::Error::other)?;
        frame.map(|(frame, _)| ConnectResponse::decode(frame).map_err(io::Error::other)).transpose()
    }

    fn wants(&self) -> epoll::EventFlags {
        match self.hello.is_empty() && !self.stream.has_output() {
            true => epoll::EventFlags::IN,
            false => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        }
    }
}

struct Returns<'a> {
    servers: &'a [Server],
    timeout: Duration,
    epoll: OwnedFd,
    returning: Vec<Returning>,
    /// Connections that failed.
    retries: u64,
}

impl<'a> Returns<'a> {
    fn new(servers: &'a [Server], identities: Vec<Identity>, timeout: Duration) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll")?;
        let due = Instant::now();
        let returning = |identity| Returning { identity, attempt: None, due, back: None, is_lost: false };
        let returning = identities.into_iter().map(returning).collect();
        Ok(Self { servers, timeout, epoll, returning, retries: 0 })
    }

    fn run(&mut self, began: Instant, patience: Duration) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        let mut waiting: Vec<usize> = (0..self.returning.len()).collect();
        let mut left = waiting.len();
        let sleep = Timespec::try_from(SLEEP_MAX).context("cannot sleep")?;
        while left > 0 && began.elapsed() < patience {
            let now = Instant::now();
            let due = waiting.extract_if(.., |at| self.returning[*at].due <= now).collect::<Vec<_>>();
            for at in due {
                if !self.begin(at)? {
                    waiting.push(at);
                }
            }
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&sleep)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Failure::failed(format!("cannot wait for sockets: {error}"))),
            }
            for event in &events {
                let at = usize::try_from(event.data.u64()).context("cannot wait for sockets")?;
                match self.turn(at, began)? {
                    Turned::Back => left -= 1,
                    Turned::Failed => waiting.push(at),
                    Turned::UnderWay => {}
                }
            }
        }
        Ok(())
    }

    /// Begins a connection; false when that failed at once.
    fn begin(&mut self, at: usize) -> Result<bool> {
        let server = &self.servers[at % self.servers.len()];
        let returning = &mut self.returning[at];
        let Ok(stream) = server.begin() else {
            self.retries += 1;
            returning.due = Instant::now() + RETRY;
            return Ok(false);
        };
        let hello = connect::hello(returning.identity, self.timeout, 0);
        let attempt = Attempt { stream, hello, answer: Vec::new() };
        epoll::add(&self.epoll, attempt.stream.socket().as_fd(), name(at), attempt.wants())
            .context("cannot wait for a socket")?;
        returning.attempt = Some(attempt);
        Ok(true)
    }

    fn turn(&mut self, at: usize, began: Instant) -> Result<Turned> {
        let returning = &mut self.returning[at];
        // Whoever is back or failed meanwhile is not waited for any more.
        let Some(attempt) = returning.attempt.as_mut().filter(|_| returning.back.is_none()) else {
            return Ok(Turned::UnderWay);
        };
        let before = attempt.wants();
        let turned = attempt.turn();
        let waited = "cannot wait for a socket";
        match turned {
            Ok(None) => {
                if attempt.wants() != before {
                    let socket = attempt.stream.socket().as_fd();
                    epoll::modify(&self.epoll, socket, name(at), attempt.wants()).context(waited)?;
                }
                Ok(Turned::UnderWay)
            }
            Ok(Some(response)) => {
                epoll::delete(&self.epoll, attempt.stream.socket().as_fd()).context(waited)?;
                returning.is_lost = response.session_id == 0;
                if returning.is_lost {
                    returning.attempt = None;
                } else {
                    returning.back = Some(began.elapsed());
                }
                Ok(Turned::Back)
            }
            Err(_) => {
                self.retries += 1;
                // The epoll forgets a socket that is closed.
                returning.attempt = None;
                returning.due = Instant::now() + RETRY;
                Ok(Turned::Failed)
            }
        }
    }
}

/// What became of a connection when its socket was ready.
enum Turned {
    /// The server has answered.
    Back,
    /// It is over.
    Failed,
    UnderWay,
}

/// How the epoll calls the connection of a session.
fn name(at: usize) -> epoll::EventData {
    epoll::EventData::new_u64(at as u64)
}
