//! `stoa sites`: how the sites stand as one of their servers knows it, who holds a token, and what the operator says of
//! tokens and of durability.
//!
//! Figures come from a server's admin HTTP. What the operator says is written into the znode with the list of sites, as
//! any super user could, so it is that of all sites and outlives each server.

mod edit;
mod order;
mod table;

pub(crate) use table::of_sites;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use stoa_client::ErrorCode;
use stoa_client::blocking::Client;
use stoa_core::SITES_PATH;

use crate::admin::Admin;
use crate::failure::{Context as _, Failure, Result};
use crate::lost::{self, LostArgs};
use crate::shell::ShellArgs;

/// How long a token may take to come where it is pinned.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// How often the lines are written anew when others write them too.
const ATTEMPTS: usize = 10;

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
    /// Has a site hold the token of a znode and of what is below it, and waits until it does. As a super user, as all that follow
    Pin {
        /// The znode
        path: String,
        /// The name of the site
        site: String,
    },
    /// Keeps the tokens of a znode and of what is below it where they are
    Stay {
        /// The znode
        path: String,
    },
    /// Has tokens move as one
    Together {
        /// The znodes, each with what is below it
        #[arg(num_args = 2.., required = true)]
        paths: Vec<String>,
    },
    /// Has what changes a znode, or something below it, answered only when two sites have it
    TwoSites {
        /// The znode; / for everything
        path: String,
    },
    /// Has that answered when one site has it, as it is where nothing is said
    OneSite {
        /// The znode
        path: String,
    },
    /// Takes back whatever was said of a znode: pin, stay, together, two-sites and one-site
    Unpin {
        /// The znode
        path: String,
    },
    /// Gives up a site that is lost for good: asked at the leader of the hub. What it held is the hub's, and what it has not shipped is lost
    Lose {
        /// The name of the site
        site: String,
    },
    /// Lists what a site that was given up has made and the others do not have: asked at a server of it
    Lost {
        #[command(flatten)]
        list: LostArgs,
    },
    /// Has the site of the server that is asked be the hub: best where most is imported of the one before
    Promote {
        /// Sites that are lost, and given up with that. Every other one has to be there
        #[arg(long, value_name = "SITE", value_delimiter = ',')]
        lose: Vec<String>,
    },
    /// Has a site that was given up join anew: asked at its own leader
    Rejoin {
        /// Everything that it has done and the others do not know is discarded
        #[arg(long, required = true)]
        discard: bool,
    },
    /// Adds a site to the list, so that it can join: asked at the leader of the hub
    Add {
        /// Its name, and where its servers listen for other sites
        #[arg(value_name = "NAME=HOST:PORT|HOST:PORT")]
        site: String,
    },
    /// Takes a site from the list that has never come, or was given up: asked at the leader of the hub
    Remove {
        /// The name of the site
        site: String,
    },
    /// Has the sites use what all of them can read since they have a newer release: asked at the leader of the hub. There is no way back
    Upgrade,
    /// Whether tokens leave the hub for the sake of who asks
    Tokens {
        /// On or off
        #[arg(value_parser = ["on", "off"])]
        state: String,
    },
}

/// Carries out the command.
pub(crate) fn run(args: &SitesCommand) -> Result<()> {
    let line = match &args.what {
        None => return show(args, "sites", None, table::of),
        Some(AboutSites::Token { path }) => return show(args, "token", Some(path), table::of_token),
        Some(AboutSites::Lose { site }) => return order::run(args, "sites_lose", ("site", site)),
        Some(AboutSites::Lost { list }) => return lost::of_server(list, &args.admin, &args.shell),
        Some(AboutSites::Promote { lose }) => return order::promote(args, lose),
        Some(AboutSites::Rejoin { .. }) => return order::run(args, "sites_rejoin", ("site", "")),
        Some(AboutSites::Add { site }) => return order::run(args, "sites_add", ("site", site)),
        Some(AboutSites::Remove { site }) => return order::run(args, "sites_remove", ("site", site)),
        Some(AboutSites::Upgrade) => return order::upgrade(args),
        Some(AboutSites::Unpin { path }) => {
            change(args, |text| Ok(edit::without(text, path)))?;
            return say(&format!("nothing is said of {path} any more"));
        }
        Some(AboutSites::Tokens { state }) if state == "on" => {
            change(args, |text| Ok(edit::with_tokens(text)))?;
            return say("tokens on");
        }
        Some(AboutSites::Tokens { .. }) => "tokens off".to_owned(),
        Some(AboutSites::Pin { path, site }) => format!("pin {path} {site}"),
        Some(AboutSites::Stay { path }) => format!("stay {path}"),
        Some(AboutSites::Together { paths }) => format!("together {}", paths.join(" ")),
        Some(AboutSites::TwoSites { path }) => format!("two-sites {path}"),
        Some(AboutSites::OneSite { path }) => format!("one-site {path}"),
    };
    change(args, |text| edit::with(text, &line).map_err(Failure::usage))?;
    match &args.what {
        Some(AboutSites::Pin { path, site }) => wait(args, path, site),
        _ => say(&line),
    }
}

fn show(
    args: &SitesCommand,
    command: &str,
    path: Option<&str>,
    shown: impl Fn(&serde_json::Value) -> String,
) -> Result<()> {
    let answer = Admin::new(&args.admin, args.shell.tls()?)?.command(command, path)?;
    let text = if args.shell.is_json() { format!("{answer}\n") } else { shown(&answer) };
    write!(io::stdout(), "{text}").context("cannot print")
}

fn say(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("cannot print")
}

/// Changes the text, of which somebody else may write another one meanwhile.
fn change(args: &SitesCommand, edit: impl Fn(&str) -> Result<String>) -> Result<()> {
    let client = Client::connect(args.shell.options()?).map_err(Failure::failed)?;
    for _ in 0..ATTEMPTS {
        let (data, stat) = client.get_data(SITES_PATH).context(format!("cannot read {SITES_PATH}"))?;
        let before = String::from_utf8_lossy(&data);
        let after = edit(&before)?;
        if after == before {
            return Ok(());
        }
        match client.set_data(SITES_PATH, after.as_bytes(), Some(stat.version)) {
            Err(ErrorCode::BadVersion) => {}
            Err(ErrorCode::NoAuth) => {
                return Err(Failure::failed(format!(
                    "only a super user may change {SITES_PATH}: say who you are with --auth"
                )));
            }
            written => return written.map(drop).context(format!("cannot write {SITES_PATH}")),
        }
    }
    Err(Failure::failed(format!("others write {SITES_PATH} all the time")))
}

/// Waits until a token is where it is pinned.
fn wait(args: &SitesCommand, path: &str, site: &str) -> Result<()> {
    let admin = Admin::new(&args.admin, args.shell.tls()?)?;
    let began = Instant::now();
    loop {
        let answer = admin.command("token", Some(path))?;
        if answer["exists"] == false {
            return say(&format!("{path} is pinned to {site}, once there is such a znode"));
        }
        if answer["holder"] == site {
            return say(&format!("{site} holds the token of {path}"));
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::failed(format!(
                "{path} is pinned, but {site} does not hold its token yet: is it connected (stoa sites)?"
            )));
        }
        std::thread::sleep(POLL);
    }
}
