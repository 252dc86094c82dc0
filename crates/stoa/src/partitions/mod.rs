//! `stoa partitions`: where subtrees live, what is asked of them, and what the operator says about it.
//!
//! Figures come from a server's admin HTTP. What the operator says is written into the znode for it, as any
//! client could, so it is an ensemble's and not a server's, and outlives both.

mod edit;
mod table;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::Value;
use stoa_client::blocking::Client;
use stoa_client::{CreateMode, ErrorCode};
use stoa_core::{HINTS_PATH, Hint};

use crate::admin::Admin;
use crate::failure::{Context as _, Failure, Result};
use crate::shell::ShellArgs;

/// How long a subtree may take to come where it is pinned.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// What admin HTTP is asked.
const COMMAND: &str = "partitions";
/// How often the hints are written anew when others write them too.
const ATTEMPTS: usize = 10;

/// `stoa partitions`.
#[derive(Debug, Args)]
pub(crate) struct PartitionsArgs {
    #[command(flatten)]
    shell: ShellArgs,
    /// Admin HTTP of a server, best of the one that leads: it knows what was moved. `https://` in front where it has TLS
    #[arg(
        long,
        global = true,
        env = "STOA_ADMIN",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    admin: String,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Pins a subtree to a partition, and waits until it lives there
    Move {
        /// The znode that it begins with
        path: String,
        /// The partition, from 0
        to: u8,
    },
    /// Keeps a subtree from being moved
    Stay {
        /// The znode that it begins with
        path: String,
    },
    /// Lets subtrees live on one partition and move as one
    Together {
        /// The znodes that they begin with
        #[arg(num_args = 2.., required = true)]
        paths: Vec<String>,
    },
    /// Takes back whatever was said of a subtree: pin, stay and together
    Unpin {
        /// The znode that it begins with
        path: String,
    },
    /// Whether subtrees are moved for the sake of the load
    Balance {
        /// On or off
        #[arg(value_parser = ["on", "off"])]
        state: String,
    },
}

/// Carries out the command.
pub(crate) fn run(args: &PartitionsArgs) -> Result<()> {
    let hint = match &args.what {
        None => return show(args),
        Some(What::Unpin { path }) => {
            change(args, |text| edit::without(text, path))?;
            return say(&format!("nothing is said of {path} any more"));
        }
        Some(What::Move { path, to }) => Hint::Pin(path.clone(), *to),
        Some(What::Stay { path }) => Hint::Stay(path.clone()),
        Some(What::Together { paths }) => Hint::Together(paths.clone()),
        Some(What::Balance { state }) => Hint::Balance(state == "on"),
    };
    // What could not be read there is not written.
    let line = hint.to_string();
    let read = Hint::parse(&line).map_err(|why| Failure::usage(format!("{line}: {why}")))?;
    if read.as_ref() != Some(&hint) {
        return Err(Failure::usage(format!("{line}: a path with spaces cannot be named here")));
    }
    if let Hint::Pin(path, to) = &hint {
        return pin(args, &hint, path, *to);
    }
    change(args, |text| edit::with(text, &hint))?;
    say(&line)
}

fn say(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("cannot print")
}

fn admin(args: &PartitionsArgs) -> Result<Admin<'_>> {
    Admin::new(&args.admin, args.shell.tls()?)
}

fn show(args: &PartitionsArgs) -> Result<()> {
    let answer = admin(args)?.command(COMMAND, None)?;
    if args.shell.is_json() {
        return say(&answer.to_string());
    }
    write!(io::stdout(), "{}", table::of(&answer)).context("cannot print")
}

/// Changes the text of the hints, of which somebody else may write another one meanwhile.
fn change(args: &PartitionsArgs, edit: impl Fn(&str) -> String) -> Result<()> {
    let client = Client::connect(args.shell.options()?).map_err(Failure::failed)?;
    for _ in 0..ATTEMPTS {
        let written = match client.get_data(HINTS_PATH) {
            Ok((data, stat)) => {
                let before = String::from_utf8_lossy(&data);
                let after = edit(&before);
                if after == before {
                    return Ok(());
                }
                client.set_data(HINTS_PATH, after.as_bytes(), Some(stat.version)).map(drop)
            }
            Err(ErrorCode::NoNode) => {
                let after = edit("");
                if after.is_empty() {
                    return Ok(());
                }
                client.create(HINTS_PATH, after.as_bytes(), CreateMode::Persistent).map(drop)
            }
            Err(code) => Err(code),
        };
        match written {
            Err(ErrorCode::BadVersion | ErrorCode::NoNode | ErrorCode::NodeExists) => {}
            written => return written.context(format!("cannot write {HINTS_PATH}")),
        }
    }
    Err(Failure::failed(format!("others write {HINTS_PATH} all the time")))
}

/// Pins a subtree and waits until it is there.
fn pin(args: &PartitionsArgs, hint: &Hint, path: &str, to: u8) -> Result<()> {
    let admin = admin(args)?;
    let before = admin.command(COMMAND, Some(path))?;
    let count = before["partitions"].as_array().map_or(0, Vec::len);
    if usize::from(to) >= count {
        return Err(Failure::usage(format!("there is no partition {to}: the server has {count}, from 0")));
    }
    change(args, |text| edit::with(text, hint))?;
    let known = moves_of(&before, path);
    let began = Instant::now();
    loop {
        let now = admin.command(COMMAND, Some(path))?;
        if now["place"] == u64::from(to) {
            return say(&format!("{path} lives on partition {to}"));
        }
        let refused = moves_of(&now, path).into_iter().rfind(|moved| !known.contains(moved));
        if let Some(why) = refused.as_ref().and_then(|moved| moved["refused"].as_str()) {
            return Err(Failure::failed(format!(
                "{path} was not moved: {why}; the pin stays, and is tried again after a minute"
            )));
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::failed(format!(
                "{path} is pinned, but does not live on partition {to} yet"
            )));
        }
        std::thread::sleep(POLL);
    }
}

/// The last moves of a subtree that the server tells of.
fn moves_of(answer: &Value, path: &str) -> Vec<Value> {
    let moves = answer["moves"].as_array().into_iter().flatten();
    moves.filter(|moved| moved["path"] == path).cloned().collect()
}
