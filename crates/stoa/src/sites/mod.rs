//! `stoa sites`: how the sites stand as one of their servers knows it, and who holds a token.

mod table;

use std::io::{self, Write as _};

use clap::{Args, Subcommand};

use crate::admin::Admin;
use crate::failure::{Context as _, Result};
use crate::shell::ShellArgs;

/// `stoa sites`.
#[derive(Debug, Args)]
pub(crate) struct SitesCommand {
    #[command(flatten)]
    shell: ShellArgs,
    /// Admin HTTP of a server, best of the one that leads the hub: it knows what all others lack. `https://` in front where it has TLS
    #[arg(
        long,
        global = true,
        env = "STOA_ADMIN",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    admin: String,
    #[command(subcommand)]
    what: Option<AboutSites>,
}

#[derive(Debug, Subcommand)]
enum AboutSites {
    /// Shows which site holds the token of a path
    Token {
        /// The znode; where there is none, what is above it is what counts
        path: String,
    },
}

/// Carries out the command.
pub(crate) fn run(args: &SitesCommand) -> Result<()> {
    let admin = Admin::new(&args.admin, args.shell.tls()?)?;
    let (answer, shown): (_, fn(&_) -> _) = match &args.what {
        None => (admin.command("sites", None)?, table::of),
        Some(AboutSites::Token { path }) => (admin.command("token", Some(path))?, table::of_token),
    };
    let text = if args.shell.is_json() { format!("{answer}\n") } else { shown(&answer) };
    write!(io::stdout(), "{text}").context("cannot print")
}
