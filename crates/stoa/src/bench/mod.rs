//! `stoa bench`: a load generator that costs far less per request than the servers it measures.
//!
//! One thread drives all sessions over non-blocking sockets with frames that are encoded once and
//! patched; it speaks the protocol itself and looks at as little of a reply as is needed to match it
//! with its request. It works on Linux, against any server that speaks ZooKeeper's protocol.

mod clear;
mod clock;
mod comeback;
mod connect;
mod distance;
mod echo_server;
mod generator;
mod lock;
mod probe;
mod process;
mod random;
mod recipe;
mod record;
mod report;
mod requests;
mod run;
mod session;
mod sites;
mod smoke;
mod stream;
mod tops;
mod wire;

use clap::{Args, Subcommand};

use crate::failure::Result;

/// Options of `stoa bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    run: run::RunArgs,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Creates many znodes as fast as the server takes them
    Load(run::LoadArgs),
    /// Writes without a break through whatever server can be reached, and says when it could not
    Probe(probe::ProbeArgs),
    /// Breaks the connections of many sessions at once, and has all of them come back
    Return(comeback::ReturnArgs),
    /// Has clients coordinate: with a counter, a queue, a barrier or an election
    Recipe(recipe::RecipeArgs),
    /// Has clients want one lock, at random times, from any distance
    Lock(lock::LockArgs),
    /// Reads and writes records from several sites, each at the server beside it
    Sites(sites::SitesLoadArgs),
    /// Creates, sets, reads and deletes znodes, first one after the other and then all at once
    Smoke(smoke::SmokeArgs),
    /// Answers every frame with a frame of a given size: the limit to compare servers with
    EchoServer(echo_server::EchoServerArgs),
}

/// Runs the benchmark.
pub(crate) fn execute(args: &BenchArgs) -> Result<()> {
    match &args.command {
        None => run::run(&args.run),
        Some(BenchCommand::Load(load)) => run::load(load),
        Some(BenchCommand::Probe(probe)) => probe::run(probe),
        Some(BenchCommand::Return(comeback)) => comeback::run(comeback),
        Some(BenchCommand::Recipe(recipe)) => recipe::run(recipe),
        Some(BenchCommand::Lock(lock)) => lock::run(lock),
        Some(BenchCommand::Sites(sites)) => sites::run(sites),
        Some(BenchCommand::Smoke(smoke)) => smoke::run(smoke),
        Some(BenchCommand::EchoServer(echo)) => echo_server::run(echo),
    }
}
