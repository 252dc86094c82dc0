//! Stoa in one binary: the server, an ensemble to try out, its shell, its load generator and the readers of its files.

mod admin;
mod bench;
mod certificate;
mod cli;
mod columns;
mod dev;
mod extension;
mod failure;
mod forest;
mod inspect;
mod lost;
mod model;
mod partitions;
mod proxy;
mod readers;
mod shell;
mod sites;
mod tls;

use std::io::Write as _;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    stoa_server::keep_pages_small();
    match cli::Cli::run() {
        Ok(code) => code,
        Err(failure) => {
            // Nothing is left to be done about a closed standard error.
            let _ = writeln!(std::io::stderr(), "stoa: {failure}");
            failure.exit_code()
        }
    }
}
