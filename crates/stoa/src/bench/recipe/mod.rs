//! `stoa bench recipe`: clients that coordinate, by the recipes of *Extensible Distributed Coordination*
//! (section 6.1): with requests that every server of the protocol takes, or with a program inside the service.
//!
//! They are the bare recipes of the paper, without what those of the client library do besides for connections
//! that are lost; the programs are the examples of this project. Each client is a session of the client library,
//! and has one thing to do at a time.

mod participant;
mod tally;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use stoa_client::{Client, CreateMode, ErrorCode, Options};
use stoa_core::FAILURE_PATH;
use stoa_tree::PROGRAMS;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::clock::{Clock, nanos};
use super::process::Usage;
use super::record::Window;
use super::run::{Target, seconds};
use crate::failure::{Context as _, Failure, Result};
use participant::{Participant, Shared};
use tally::{Report, Tally};

/// What all znodes of recipes are below, so that they live on one partition.
const ROOT: &str = "/recipe";
/// The program, of whichever recipe.
const PROGRAM: &str = "bench-recipe";

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
        }
    }

    /// The znodes that are there before the clients begin, with their data.
    fn znodes(self) -> &'static [(&'static str, &'static [u8])] {
        match self {
            Self::Counter => &[("ctr", b"0")],
            Self::Queue => &[("queue", b"")],
            Self::Barrier => &[("barrier", b"")],
            Self::Election => &[("clients", b""), ("leader", b"")],
        }
    }

    /// The program: the example, with its paths below [`ROOT`], for so many clients.
    fn program(self, clients: u32) -> String {
        let example = match self {
            Self::Counter => include_str!("../../../../../examples/extensions/counter.rhai"),
            Self::Queue => include_str!("../../../../../examples/extensions/queue.rhai"),
            Self::Barrier => include_str!("../../../../../examples/extensions/barrier.rhai"),
            Self::Election => include_str!("../../../../../examples/extensions/election.rhai"),
        };
        let size = format!("const SIZE = {clients};");
        example.replace("\"/", &format!("\"{ROOT}/")).replace("const SIZE = 3;", &size)
    }
}

/// Runs the recipe and reports.
pub(crate) fn run(args: &RecipeArgs) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let report = runtime.block_on(measure(args))?;
    let text = if args.target.json { format!("{}\n", report.json()) } else { report.text() };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot print the report")
}

async fn measure(args: &RecipeArgs) -> Result<Report> {
    let keeper = connect(args, 0).await?;
    prepare(&keeper, args).await?;
    let mut clients = Vec::new();
    for number in 0..args.clients {
        let client = connect(args, number as usize).await?;
        take_part(&client, number, args.form).await.map_err(|code| refused("take part", code))?;
        clients.push(client);
    }
    let window = Window { start: nanos(args.warmup), end: nanos(args.warmup + args.duration) };
    let tally = Tally::new(window, clients.len());
    let shared = Arc::new(Shared::new(Clock::start(), tally, clients.len()));
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
    clear(&keeper).await.map_err(|code| refused("clean up", code))?;
    let settings = json!({
        "recipe": name(args.recipe),
        "form": name(args.form),
        "clients": args.clients,
    });
    let tally = std::mem::take(&mut *shared.tally());
    Ok(Report { settings, counted: args.recipe.counted(), tally, elapsed: args.duration, before, after })
}

/// The servers' usage, if that is wanted, and that of this process.
fn usage(args: &RecipeArgs) -> Result<(Option<Usage>, Usage)> {
    Ok((Usage::of_all(&args.target.server_pid)?, Usage::of(std::process::id())?))
}

/// A session at the server whose turn it is.
async fn connect(args: &RecipeArgs, number: usize) -> Result<Client> {
    let servers = &args.target.server;
    let options = Options::new(&servers[number % servers.len()]).map_err(Failure::usage)?;
    Client::connect(options.session_timeout(args.target.timeout)).await.map_err(Failure::failed)
}

/// Makes the znodes of the recipe, and registers its program if it has one.
async fn prepare(keeper: &Client, args: &RecipeArgs) -> Result<()> {
    clear(keeper).await.map_err(|code| refused("clean up", code))?;
    let mut made = vec![(ROOT.to_owned(), b"".as_slice())];
    made.extend(args.recipe.znodes().iter().map(|(name, data)| (format!("{ROOT}/{name}"), *data)));
    for (path, data) in made {
        keeper
            .create(&path, data, CreateMode::Persistent)
            .await
            .map_err(|code| refused(&format!("create {path}"), code))?;
    }
    if args.form == Form::Traditional {
        return Ok(());
    }
    let (path, source) = (format!("{PROGRAMS}/{PROGRAM}"), args.recipe.program(args.clients));
    if let Err(code) = keeper.create(&path, source.as_bytes(), CreateMode::Persistent).await {
        // What the server says of its last refusal is more than its code. Others than Stoa have no programs.
        let why = keeper.get_data(FAILURE_PATH).await.map_or_else(|_| Vec::new(), |(text, _)| text);
        let why = if why.is_empty() { code.to_string() } else { String::from_utf8_lossy(&why).into_owned() };
        return Err(Failure::failed(format!("cannot register {path}: {why}")));
    }
    Ok(())
}

/// Has a client see what was prepared, and its requests handed to the program.
async fn take_part(client: &Client, number: u32, form: Form) -> std::result::Result<(), ErrorCode> {
    client.sync("/").await?;
    if form == Form::Extension {
        let path = format!("{PROGRAMS}/{PROGRAM}/client-{number}");
        client.create(&path, b"", CreateMode::Ephemeral).await?;
    }
    Ok(())
}

/// Removes the program and all znodes, of this run or of one that was interrupted.
async fn clear(keeper: &Client) -> std::result::Result<(), ErrorCode> {
    keeper.sync("/").await?;
    // First, so that it does not react to the rest.
    delete(keeper, &format!("{PROGRAMS}/{PROGRAM}")).await?;
    for top in children(keeper, ROOT).await? {
        let top = format!("{ROOT}/{top}");
        for name in children(keeper, &top).await? {
            delete(keeper, &format!("{top}/{name}")).await?;
        }
        delete(keeper, &top).await?;
    }
    delete(keeper, ROOT).await
}

async fn children(client: &Client, path: &str) -> std::result::Result<Vec<String>, ErrorCode> {
    match client.get_children(path).await {
        Err(ErrorCode::NoNode) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Deletes a znode, if it is there.
async fn delete(client: &Client, path: &str) -> std::result::Result<(), ErrorCode> {
    match client.delete(path, None).await {
        Err(ErrorCode::NoNode) => Ok(()),
        deleted => deleted,
    }
}

fn refused(what: &str, code: ErrorCode) -> Failure {
    Failure::failed(format!("cannot {what}: {code}"))
}

/// A value as it is written on the command line.
fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_of_this_ground_and_of_as_many_clients() {
        for recipe in Recipe::value_variants() {
            let source = recipe.program(17);
            let literals = source.split('"').skip(1).step_by(2).filter(|text| text.starts_with('/'));
            let (inside, outside): (Vec<_>, Vec<_>) =
                literals.partition(|path| path.starts_with(&format!("{ROOT}/")));
            assert!(!inside.is_empty() && outside.is_empty(), "{recipe:?}: {outside:?}");
        }
        assert!(Recipe::Barrier.program(17).contains("const SIZE = 17;"));
    }
}
