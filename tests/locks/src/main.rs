//! The program has one lock taken in all ways at once by real processes, breaks the servers, the clients and the links
//! between them, round after round, and looks whether the lock has excluded, and what is left of it. The servers come
//! from `MEMBER_COMMAND`, to which the path of a configuration is added.
#![allow(clippy::print_stdout, reason = "it is a program for the terminal")]

mod client;
mod crew;
mod ensemble;
mod guard;
mod nemesis;
mod process;
mod resource;
mod round;
mod words;

use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use clap::{Parser, Subcommand};
use stoa_oracle::random::Random;
use tokio::runtime::Builder;

use client::ClientArgs;
use crew::ways;
use ensemble::Ensemble;
use nemesis::Deck;
use round::Plan;

/// Complaints of a round that are shown.
const COMPLAINTS_SHOWN: usize = 20;

#[derive(Debug, Parser)]
#[command(about = "One lock, taken in all ways by real processes, while servers, clients and links fail")]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// Rounds, each with a lock and processes of its own
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Faults of a round, one after the other; some come with another one
    #[arg(long, default_value_t = 5)]
    faults: usize,
    /// What the faults and the clients' doings follow from
    #[arg(long)]
    seed: Option<u64>,
    /// Partitions of the servers
    #[arg(long, env = "STOA_PARTITIONS", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    partitions: u8,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// What this program starts: a process that takes the lock.
    #[command(hide = true)]
    Client(ClientArgs),
}

/// What was found so far.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn count(&mut self, name: &str, told: &str, complaints: &[String]) {
        println!("{name}: {told}; {} complaints", complaints.len());
        for complaint in complaints.iter().take(COMPLAINTS_SHOWN) {
            println!("  {complaint}");
        }
        *(if complaints.is_empty() { &mut self.passed } else { &mut self.failed }) += 1;
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("locks: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(Role::Client(args)) = options.role {
        let number = args.number;
        return match runtime.block_on(client::run(args)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                eprintln!("client {number}: {problem}");
                ExitCode::FAILURE
            }
        };
    }
    let mut tally = Tally::default();
    if let Err(problem) = runtime.block_on(run(&options, &mut tally)) {
        println!("locks: {problem}");
        tally.failed += 1;
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(options: &Options, tally: &mut Tally) -> Result<(), String> {
    let from_clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    let seed = options.seed.unwrap_or_else(from_clock);
    println!("seed {seed} (steers faults and clients, not the scheduling)");
    let folder = tempfile::Builder::new().prefix("stoa-locks-").tempdir();
    let folder = folder.map_err(|error| format!("no temporary folder: {error}"))?;
    let result = run_in(&folder, options, seed, tally).await;
    if result.is_err() || tally.failed > 0 {
        println!("the servers' data is kept in {}", folder.keep().display());
    }
    result
}

async fn run_in(
    folder: &tempfile::TempDir,
    options: &Options,
    seed: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut deck = Deck::new(Random::new(random.bits()));
    let ensemble = Ensemble::start(folder.path(), options.partitions, ways().len()).await?;
    let (mut refused, mut misused, mut leaves, mut places) = (0, 0, 0, 0);
    for round in 1..=options.rounds {
        let began = Instant::now();
        let plan = Plan {
            name: round.to_string(),
            seed: random.bits(),
            partitions: options.partitions,
            steps: options.faults,
        };
        let outcome = plan.run(&ensemble, &mut deck).await.map_err(|why| format!("round {round}: {why}"))?;
        let (moves, seconds) = (ensemble.moves().await, began.elapsed().as_secs_f64());
        let told = format!("{}; {moves} moves since servers started; {seconds:.1} s", outcome.told);
        tally.count(&format!("round {round}"), &told, &outcome.complaints);
        refused += outcome.seen.refused;
        misused += outcome.seen.misuses;
        leaves += outcome.seen.leaves;
        places += outcome.seen.places;
    }
    let mut complaints = Vec::new();
    if leaves == 0 || places == 0 {
        complaints
            .push("the lock was held in one form only: by a leaf, or by a place in its queue".to_owned());
    }
    if refused == 0 {
        complaints.push("nobody was refused: no holder has outlived its session".to_owned());
    }
    tally.count("all rounds together", &format!("{leaves} leaves and {places} places seen"), &complaints);
    canaries(&ensemble, &mut random, misused, tally).await
}

/// What goes wrong on purpose has to be found, or the looking is worth nothing.
async fn canaries(
    ensemble: &Ensemble,
    random: &mut Random,
    misused: usize,
    tally: &mut Tally,
) -> Result<(), String> {
    let plan = Plan { name: "astray".to_owned(), seed: random.bits(), partitions: 1, steps: 0 };
    let astray = plan.run_astray(ensemble).await?;
    let mut alive = Vec::new();
    if misused == 0 {
        alive.push("a resource that takes writes whatever their token".to_owned());
    }
    if astray.complaints.is_empty() {
        alive.push("a client that takes another lock than the others".to_owned());
    }
    tally.count("canaries", "what has no guard was misused, and who went astray was seen", &alive);
    Ok(())
}
