//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use stoa_server::config::ServeArgs;

use crate::bench::{self, BenchArgs};
use crate::failure::Result;

/// Arguments of the program.
#[derive(Debug, Parser)]
#[command(name = "stoa", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a server
    Serve(ServeArgs),
    /// Measures a server
    Bench(BenchArgs),
}

impl Cli {
    /// Does what the arguments say.
    pub(crate) fn execute(self) -> Result<ExitCode> {
        match self.command {
            Command::Serve(args) => Ok(stoa_server::run(&args)),
            Command::Bench(args) => bench::execute(&args).map(|()| ExitCode::SUCCESS),
        }
    }
}
