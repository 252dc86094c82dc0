//! `stoa bench lock`: clients that want one lock, when chance will have it, whatever becomes of those before.
//!
//! When the lock is wanted, and for how long, is drawn before anything begins and follows from the seed, so locks can
//! be compared by the same visits. A visit that finds all clients busy waits for one of them; latency counts from when
//! the lock was wanted. What the lock protects is in this process and checks who comes in.

mod counted;
mod locker;
mod report;
mod resource;
mod visits;

use std::collections::{BTreeSet, VecDeque};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stoa_client::recipes::{Lock, Primitive, UnknownPrimitive};
use stoa_client::{Client, CreateMode, ErrorCode};
use stoa_proxy::Alarm;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::clear::clear;
use super::clock::Clock;
use super::distance::{Distance, DistanceArgs, close_all, milliseconds};
use super::process::Usage;
use super::run::Target;
use crate::failure::{Context as _, Failure, Result};
use counted::Counted;
use locker::{LockRun, Locker};
use report::{LockReport, Results};
use visits::{Demand, Time, Visit};

/// Nobody waits as long as that for the next one to be done with the lock, unless something is broken.
const STALL: Duration = Duration::from_secs(120);
const ADAPTIVE: &str = "adaptive";

/// Which lock, as it is written on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It chooses each time.
    Adaptive,
    Fixed(Primitive),
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Adaptive => ADAPTIVE,
            Self::Fixed(primitive) => primitive.name(),
        }
    }
}

fn way(text: &str) -> std::result::Result<Way, String> {
    if text == ADAPTIVE {
        return Ok(Way::Adaptive);
    }
    text.parse().map(Way::Fixed).map_err(|unknown: UnknownPrimitive| format!("{unknown}, or {ADAPTIVE}"))
}

/// How a time is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Distribution {
    Exponential,
    /// Always the same
    Fixed,
}

impl Distribution {
    fn of(self, mean: Duration) -> Time {
        Time { mean, varies: self == Self::Exponential }
    }
}

/// Options of `stoa bench lock`.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    distance: DistanceArgs,
    /// Where the lock is; what is there is removed first
    #[arg(long, default_value = "/bench-lock", value_name = "PATH", value_parser = absolute)]
    path: String,
    /// How it is taken: adaptive, or one of the client library's primitives
    #[arg(long, default_value = ADAPTIVE, value_name = "NAME", value_parser = way)]
    primitive: Way,
    /// How often asynchronous primitives ask
    #[arg(long, default_value = "10", value_name = "MS", value_parser = milliseconds)]
    poll_ms: Duration,
    /// Number of clients, each with a session of its own; the first one that is free takes the next visit
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// How often the lock is wanted after the warm-up
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    visits: u32,
    /// How often before
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    warmup: u32,
    /// Time between two visits
    #[arg(long, default_value = "500", value_name = "MS", value_parser = milliseconds)]
    interarrival_ms: Duration,
    /// How that is distributed
    #[arg(long, value_enum, default_value_t = Distribution::Exponential)]
    arrivals: Distribution,
    /// How long the lock is needed for
    #[arg(long, default_value = "1", value_name = "MS", value_parser = milliseconds)]
    service_ms: Duration,
    /// How that is distributed
    #[arg(long, value_enum, default_value_t = Distribution::Exponential)]
    service: Distribution,
    /// Where chance begins
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Of many draws of visits the one in which a lock is waited for as long as is expected in the long run whose
    /// turns take the critical section and so much: so that few visits say what many would
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    representative_ms: Option<Duration>,
}

pub(super) fn absolute(text: &str) -> std::result::Result<String, String> {
    let is_path = text.starts_with('/') && text.len() > 1 && !text.ends_with('/');
    is_path.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is not a path below the root"))
}

impl LockArgs {
    /// The lock, as one client has it.
    fn lock(&self, client: &Counted) -> Lock<Counted> {
        let lock = match self.primitive {
            Way::Adaptive => Lock::new(client, &self.path),
            Way::Fixed(primitive) => Lock::with(client, &self.path, primitive),
        };
        lock.poll_interval(self.poll_ms)
    }

    fn visits(&self) -> Vec<Visit> {
        let demand = Demand {
            between: self.arrivals.of(self.interarrival_ms),
            section: self.service.of(self.service_ms),
            warmup: self.warmup as usize,
            visits: self.visits as usize,
        };
        match self.representative_ms {
            Some(turn) => demand.representative(self.seed, turn),
            None => demand.draw(self.seed),
        }
    }
}

/// Has the lock wanted, and reports.
pub(crate) fn run(args: &LockArgs) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let report = runtime.block_on(measure(args))?;
    let text = if args.target.json { format!("{}\n", report.json()) } else { report.text() };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot print the report")?;
    match report.results.resource.violations {
        0 => Ok(()),
        violations => Err(Failure::failed(format!("the lock did not exclude: {violations} violations"))),
    }
}

async fn measure(args: &LockArgs) -> Result<LockReport<'_>> {
    let visits = args.visits();
    let distance = Distance::open(&args.target, args.distance).await?;
    let keeper = distance.connect(0).await?;
    prepare(&keeper, &args.path).await.map_err(|code| refused("prepare", code))?;
    let clients = distance.connect_all(args.clients as usize).await?;
    let clients: Vec<_> = clients.into_iter().map(Counted::new).collect();
    let requests = || clients.iter().map(Counted::requests).sum::<u64>();
    let shared = Arc::new(LockRun::new(Clock::start()));
    let mut crew = Crew::hire(&clients, args, &shared);
    crew.introduce(shared.clock).await?;
    let (before, began, asked) = (usage(args)?, shared.clock.now(), requests());
    crew.serve(&visits, shared.clock).await?;
    let elapsed = Duration::from_nanos(shared.clock.now() - began);
    let (after, requests) = (usage(args)?, requests() - asked);
    close_all(clients.into_iter().map(|client| client.client).collect()).await?;
    clear(&keeper, &args.path).await.map_err(|code| refused("clean up", code))?;
    keeper.close().await.map_err(|code| refused("close a session", code))?;
    let results = std::mem::replace(&mut *shared.results(), Results::new());
    Ok(LockReport { args, results, visits: visits.len(), elapsed, requests, before, after })
}

/// Removes what there is at the path, and makes what is above it.
async fn prepare(keeper: &Client, path: &str) -> std::result::Result<(), ErrorCode> {
    clear(keeper, path).await?;
    for (at, _) in path.match_indices('/').skip(1) {
        match keeper.create(&path[..at], b"", CreateMode::Persistent).await {
            Ok(_) | Err(ErrorCode::NodeExists) => {}
            Err(code) => return Err(code),
        }
    }
    Ok(())
}

/// The servers' usage, if that is wanted, and that of this process.
fn usage(args: &LockArgs) -> Result<(Option<Usage>, Usage)> {
    Ok((Usage::of_all(&args.target.server_pid)?, Usage::of(std::process::id())?))
}

fn refused(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot {what}: {why}"))
}

/// The clients, and who of them has nothing to do.
struct Crew {
    orders: Vec<mpsc::UnboundedSender<Visit>>,
    idle: BTreeSet<usize>,
    done: mpsc::UnboundedReceiver<Result<usize>>,
}

impl Crew {
    fn hire(clients: &[Counted], args: &LockArgs, shared: &Arc<LockRun>) -> Self {
        let (tell, done) = mpsc::unbounded_channel();
        let (mut orders, mut idle) = (Vec::new(), BTreeSet::new());
        for (number, client) in clients.iter().enumerate() {
            let locker = Locker::new(number, client, args.lock(client), Arc::clone(shared));
            let (order, visits) = mpsc::unbounded_channel();
            tokio::spawn(locker.work(visits, tell.clone()));
            orders.push(order);
            idle.insert(number);
        }
        Self { orders, idle, done }
    }

    /// Has each client take the lock once, one after the other: what it does the first time only, as seeing to it that
    /// there is a program, is no part of what is measured.
    async fn introduce(&mut self, clock: Clock) -> Result<()> {
        for client in 0..self.orders.len() {
            self.order(client, Visit { at: clock.now(), section: Duration::ZERO, counts: false })?;
            match timeout(STALL, self.done.recv()).await {
                Ok(done) => done.transpose()?,
                Err(_) => return Err(stalled(self.orders.len() - client)),
            };
        }
        Ok(())
    }

    fn order(&self, client: usize, visit: Visit) -> Result<()> {
        self.orders[client].send(visit).map_err(|_| refused("go on", "a client has ended"))
    }

    /// Has all visits made at their times, from now on.
    async fn serve(&mut self, visits: &[Visit], clock: Clock) -> Result<()> {
        let mut alarm = Alarm::new().context("cannot make an alarm clock")?;
        let began = clock.now();
        let mut coming = visits.iter().map(|visit| Visit { at: began + visit.at, ..*visit }).peekable();
        let mut waiting = VecDeque::new();
        let mut left = visits.len();
        while left > 0 {
            let next = coming.peek().map(|visit| visit.at);
            tokio::select! {
                rung = alarm.until(next.unwrap_or_default(), clock.now()), if next.is_some() => {
                    rung.context("the alarm clock has stopped")?;
                    waiting.extend(coming.next());
                }
                done = self.done.recv() => {
                    // Somebody tells as long as there is a client.
                    self.idle.extend(done.transpose()?);
                    left -= 1;
                }
                () = sleep(STALL), if self.idle.len() < self.orders.len() => return Err(stalled(left)),
            }
            while let (Some(&visit), Some(&client)) = (waiting.front(), self.idle.first()) {
                self.idle.remove(&client);
                waiting.pop_front();
                self.order(client, visit)?;
            }
        }
        Ok(())
    }
}

fn stalled(left: usize) -> Failure {
    Failure::failed(format!("nobody had the lock for {STALL:?}, {left} visits are left"))
}
