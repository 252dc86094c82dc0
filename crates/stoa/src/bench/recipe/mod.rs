//! `stoa bench recipe`: clients that coordinate, by the recipes of *Extensible Distributed Coordination*
//! (section 6.1): with requests that every server of the protocol takes, or with a program inside the service.
//!
//! Without a program they are the bare recipes of the paper, which do nothing about connections that are lost.
//! With one they are those of the client library, with its programs and all that it does for its users. Each
//! client is a session of the client library, and has one thing to do at a time.

mod extended;
mod participant;
mod tally;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use stoa_client::tls::Tls;
use stoa_client::{Client, CreateMode};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::clear::clear;
use super::clock::{Clock, nanos};
use super::distance;
use super::process::Usage;
use super::record::Window;
use super::run::{Target, seconds};
use crate::failure::{Context as _, Failure, Result};
use participant::{Participant, RecipeRun};
use tally::{RecipeReport, Tally};

/// What all znodes of recipes are below, so that they live on one partition.
const ROOT: &str = "/recipe";

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Recipe {
    /// Increment one counter
    Counter,
    /// Add an element to one queue, then remove its head
    Queue,
    /// Enter one barrier, which opens when all have; in rounds
    Barrier,
    /// Become the leader, and abdicate at once
    Election,
    /// Call a program that takes all steps it may have, and is stopped then; only as an extension
    Greedy,
}

/// How they do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// With requests that every server of the protocol takes
    Traditional,
    /// With a program inside the service: Stoa only
    Extension,
}

/// Options of `stoa bench recipe`.
#[derive(Debug, Args)]
pub(crate) struct RecipeArgs {
    #[command(flatten)]
    target: Target,
    /// What the clients do
    #[arg(long, value_enum)]
    recipe: Recipe,
    /// How they do it
    #[arg(long, value_enum, default_value_t = Form::Traditional)]
    form: Form,
    /// Number of clients, each with a session of its own
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Time before the measurement
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Time of the measurement
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    duration: Duration,
}

impl Recipe {
    /// The step whose number is the throughput.
    fn counted(self) -> &'static str {
        match self {
            Self::Counter => "increment",
            Self::Queue => "remove",
            Self::Barrier => "enter",
            Self::Election => "change",
            Self::Greedy => "call",
        }
    }

    /// The znodes that are there before the clients begin, with their data.
    fn znodes(self) -> &'static [(&'static str, &'static [u8])] {
        match self {
            Self::Counter => &[("ctr", b"0")],
            Self::Queue => &[("queue", b""), ("queue/items", b"")],
            Self::Barrier => &[("barrier", b"")],
            Self::Election => &[("leader", b"")],
            Self::Greedy => &[],
        }
    }
}

/// Runs the recipe and reports.
pub(crate) fn run(args: &RecipeArgs) -> Result<()> {
    if args.recipe == Recipe::Greedy && args.form == Form::Traditional {
        return Err(Failure::usage("the recipe greedy has no traditional form: say --form extension"));
    }
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let report = runtime.block_on(measure(args))?;
    let text = if args.target.json { format!("{}\n", report.json()) } else { report.text() };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot print the report")
}

async fn measure(args: &RecipeArgs) -> Result<RecipeReport> {
    let tls = args.target.tls.tls()?;
    let keeper = connect(args, tls.as_ref(), 0).await?;
    prepare(&keeper, args).await?;
    let mut clients = Vec::new();
    for number in 0..args.clients {
        let client = connect(args, tls.as_ref(), number as usize).await?;
        // So that it sees what was prepared.
        client.sync("/").await.map_err(|code| refused("take part", code))?;
        clients.push(client);
    }
    let window = Window { start: nanos(args.warmup), end: nanos(args.warmup + args.duration) };
    let tally = Tally::new(window, clients.len());
    let shared = Arc::new(RecipeRun::new(Clock::start(), tally, clients.len()));
    let end = Instant::now() + args.warmup + args.duration;
    let mut tasks = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        let client = client.clone();
        let participant = Participant { number, client, form: args.form, shared: Arc::clone(&shared) };
        tasks.spawn(timeout_at(end, participant.run(args.recipe)));
    }
    let sent = || clients.iter().map(Client::bytes_sent);
    sleep(args.warmup).await;
    shared.tally().open(sent());
    let before = usage(args)?;
    sleep_until(end).await;
    let after = usage(args)?;
    shared.tally().close(sent());
    while let Some(ended) = tasks.join_next().await {
        // The others have ended because the time was up.
        if let Ok(Err(code)) = ended.context("a client has panicked")? {
            return Err(refused("go on", code));
        }
    }
    for client in clients {
        client.close().await.map_err(|code| refused("close a session", code))?;
    }
    clear(&keeper, ROOT).await.map_err(|code| refused("clean up", code))?;
    let settings = json!({
        "recipe": name(args.recipe),
        "form": name(args.form),
        "clients": args.clients,
    });
    let tally = std::mem::take(&mut *shared.tally());
    Ok(RecipeReport {
        settings,
        counted: args.recipe.counted(),
        tally,
        elapsed: args.duration,
        before,
        after,
    })
}

/// The servers' usage, if that is wanted, and that of this process.
fn usage(args: &RecipeArgs) -> Result<(Option<Usage>, Usage)> {
    Ok((Usage::of_all(&args.target.server_pid)?, Usage::of(std::process::id())?))
}

/// A session at the server whose turn it is.
async fn connect(args: &RecipeArgs, tls: Option<&Tls>, number: usize) -> Result<Client> {
    let servers = &args.target.server;
    let server = servers[number % servers.len()].clone();
    distance::connect((server, tls.cloned()), args.target.timeout).await
}

/// Makes the znodes of the recipe.
async fn prepare(keeper: &Client, args: &RecipeArgs) -> Result<()> {
    clear(keeper, ROOT).await.map_err(|code| refused("clean up", code))?;
    let mut made = vec![(ROOT.to_owned(), b"".as_slice())];
    made.extend(args.recipe.znodes().iter().map(|(name, data)| (format!("{ROOT}/{name}"), *data)));
    for (path, data) in made {
        keeper
            .create(&path, data, CreateMode::Persistent)
            .await
            .map_err(|code| refused(&format!("create {path}"), code))?;
    }
    Ok(())
}

fn refused(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot {what}: {why}"))
}

/// A value as it is written on the command line.
fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
