//! The command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use stoa_server::config::ServeArgs;

use crate::bench::{self, BenchArgs};
use crate::certificate::{self, CertificateArgs};
use crate::dev::{self, DevArgs};
use crate::extension::{self, ExtensionCommand};
use crate::failure::{Failure, Result};
use crate::forest::{self, ForestArgs};
use crate::inspect::{self, LogCommand, SnapshotCommand};
use crate::model::{self, ModelCommand};
use crate::partitions::{self, PartitionsArgs};
use crate::proxy::{self, ProxyArgs};
use crate::readers::{self, ReadersArgs};
use crate::shell::{self, ShellArgs};
use crate::sites::{self, SitesCommand};

/// Arguments of the program.
#[derive(Debug, Parser)]
#[command(name = "stoa", version, about, after_long_help = words_help())]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a server
    Serve(ServeCommand),
    /// Goes on from one data folder when the majority of an ensemble is lost for good
    Recover(RecoverCommand),
    /// Runs a whole ensemble on this machine, to try it out
    Dev(DevArgs),
    /// Talks to a server, line by line
    Shell(ShellArgs),
    /// Shows where subtrees live and what is asked of them, and says where they are to live
    Partitions(PartitionsArgs),
    /// Shows by which servers what the leader says reaches the others, and how late each is
    Forest(ForestArgs),
    /// Shows all readers of an ensemble, and below whom each of them is
    Readers(ReadersArgs),
    /// Shows how the sites stand, and who holds a token
    Sites(SitesCommand),
    /// Makes an authority and certificates of it, to try TLS out with
    Certificate(CertificateArgs),
    /// Measures a server
    Bench(Box<BenchArgs>),
    /// Predicts what rounds, operations and locks take
    #[command(subcommand)]
    Model(ModelCommand),
    /// Relays connections as slowly as a network between data centres
    Proxy(ProxyArgs),
    /// Looks into a server's log
    #[command(subcommand)]
    Log(LogCommand),
    /// Looks into a server's snapshots
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Checks and tries out programs that are to run inside the service
    #[command(subcommand)]
    Extension(ExtensionCommand),
    /// A word of the shell: `--help` lists them
    #[command(external_subcommand)]
    Word(Vec<OsString>),
}

#[derive(Debug, Args)]
struct ServeCommand {
    #[command(flatten)]
    args: ServeArgs,
    /// The process that the server must not outlive
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,
}

impl ServeCommand {
    fn run(&self) -> Result<ExitCode> {
        if let Some(parent) = self.parent {
            dev::end_with(parent)?;
        }
        Ok(stoa_server::run(&self.args))
    }
}

/// The server must not run. It is given the settings of `stoa serve`: the data folder and the server's id are
/// taken from them.
///
/// Everything in the folder counts, and the server is the only one that votes. It is another ensemble from then on,
/// with an id of its own: the other servers join it with empty data folders, and are refused with those that they had.
/// What the lost majority has acknowledged, and this folder never had, is lost.
#[derive(Debug, Args)]
struct RecoverCommand {
    #[command(flatten)]
    args: ServeArgs,
    /// Does it; otherwise it is only said what would be done
    #[arg(long)]
    yes: bool,
}

fn words_help() -> String {
    format!(
        "Words of the shell, which are commands too (with the options of `stoa shell`):\n{}",
        shell::overview()
    )
}

impl Cli {
    /// Does what the command line says.
    pub(crate) fn run() -> Result<ExitCode> {
        let parts: Vec<OsString> = std::env::args_os().skip(1).collect();
        let first = parts.first().and_then(|part| part.to_str()).unwrap_or_default();
        if shell::begins_with_option(first) { word(parts) } else { Self::parse().execute() }
    }

    fn execute(self) -> Result<ExitCode> {
        match self.command {
            Command::Serve(command) => command.run(),
            Command::Dev(args) => dev::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Recover(command) => Ok(stoa_server::recover(&command.args, command.yes)),
            Command::Shell(args) => shell::run(args).map(|()| ExitCode::SUCCESS),
            Command::Partitions(args) => partitions::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Forest(args) => forest::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Readers(args) => readers::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Sites(args) => sites::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Certificate(args) => certificate::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Bench(args) => bench::execute(&args).map(|()| ExitCode::SUCCESS),
            Command::Model(command) => model::run(&command).map(|()| ExitCode::SUCCESS),
            Command::Proxy(args) => proxy::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Log(command) => inspect::log(&command).map(|()| ExitCode::SUCCESS),
            Command::Snapshot(command) => inspect::snapshot(&command).map(|()| ExitCode::SUCCESS),
            Command::Extension(command) => extension::run(&command).map(|()| ExitCode::SUCCESS),
            Command::Word(parts) => word(parts),
        }
    }
}

/// Carries out a word of the shell.
fn word(parts: Vec<OsString>) -> Result<ExitCode> {
    let text = |part: OsString| {
        part.into_string().map_err(|part| Failure::usage(format!("{} is not UTF-8", part.display())))
    };
    let parts = parts.into_iter().map(text).collect::<Result<_>>()?;
    shell::run_word(parts).map(|()| ExitCode::SUCCESS)
}
