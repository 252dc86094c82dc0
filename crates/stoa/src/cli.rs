//! The command line.

use clap::{Parser, Subcommand};

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
    /// Measures a server
    Bench(BenchArgs),
}

impl Cli {
    /// Does what the arguments say.
    pub(crate) fn execute(self) -> Result<()> {
        match self.command {
            Command::Bench(args) => bench::execute(&args),
        }
    }
}
