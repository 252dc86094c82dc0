//! `stoa readers`: all readers of an ensemble, below whom each of them is.
//!
//! Each server knows those below it, and no other one does; so each is asked for its own, by its admin HTTP.

mod table;

use std::io::{self, Write as _};

use clap::Args;
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::failure::{Context as _, Failure, Result};
use crate::shell::ShellArgs;

/// `stoa readers`.
#[derive(Debug, Args)]
pub(crate) struct ReadersArgs {
    #[command(flatten)]
    shell: ShellArgs,
    /// Admin HTTP of the servers of the ensemble, each of which has readers of its own, with commas between. `https://` in front of those that have TLS
    #[arg(
        long,
        global = true,
        env = "STOA_ADMIN",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT,...",
        value_delimiter = ','
    )]
    admin: Vec<String>,
}

/// Carries out the command. Who does not answer is told of with the others; it is a failure when nobody does.
pub(crate) fn run(args: &ReadersArgs) -> Result<()> {
    let mut answers: Vec<(&str, Result<Value>)> = Vec::with_capacity(args.admin.len());
    for admin in &args.admin {
        answers.push((admin, Admin::new(admin, args.shell.tls()?)?.command("readers", None)));
    }
    if answers.iter().all(|(_, answer)| answer.is_err()) {
        let failed = answers.into_iter().find_map(|(_, answer)| answer.err());
        return Err(failed.unwrap_or_else(|| Failure::usage("--admin names no server")));
    }
    let text = if args.shell.is_json() { json_of(&answers) } else { table::of(&answers) };
    write!(io::stdout(), "{text}").context("cannot print")
}

fn json_of(answers: &[(&str, Result<Value>)]) -> String {
    let of = |(admin, answer): &(&str, Result<Value>)| match answer {
        Ok(answer) => json!({ "admin": admin, "answer": answer }),
        Err(failure) => json!({ "admin": admin, "error": failure.to_string() }),
    };
    format!("{}\n", Value::from(answers.iter().map(of).collect::<Vec<_>>()))
}
