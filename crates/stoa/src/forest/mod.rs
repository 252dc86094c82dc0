//! `stoa forest`: by which servers appends reach the others, how late each is, and what was repaired and why.
//!
//! Figures come from a server's admin HTTP.

mod table;

use std::io::{self, Write as _};

use clap::Args;

use crate::admin::Admin;
use crate::failure::{Context as _, Result};
use crate::shell::ShellArgs;

/// `stoa forest`.
#[derive(Debug, Args)]
pub(crate) struct ForestArgs {
    #[command(flatten)]
    shell: ShellArgs,
    /// Admin HTTP of a server, best of the one that leads: it knows how late each is, and what was repaired. `https://` in front where it has TLS
    #[arg(
        long,
        global = true,
        env = "STOA_ADMIN",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    admin: String,
}

/// Carries out the command.
pub(crate) fn run(args: &ForestArgs) -> Result<()> {
    let answer = Admin::new(&args.admin, args.shell.tls()?)?.command("forest", None)?;
    let text = if args.shell.is_json() { format!("{answer}\n") } else { table::of(&answer) };
    write!(io::stdout(), "{text}").context("cannot print")
}
