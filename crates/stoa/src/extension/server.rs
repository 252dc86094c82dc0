//! Extensions of a running server: registered, looked at and deregistered by ordinary requests.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use stoa_client::{ErrorCode, blocking};
use stoa_core::FAILURE_PATH;
use stoa_extension::Program;
use stoa_tree::PROGRAMS;

use super::{compiled, describe, name_of, source_of};
use crate::failure::{Context as _, Failure, Result};
use crate::shell::ShellArgs;

/// The child of a program that says who has registered it.
const OWNER: &str = "owner";

/// Options of `stoa extension add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The sources; each is registered by the name of its file
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    shell: ShellArgs,
}

/// Options of `stoa extension list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    shell: ShellArgs,
}

/// Options of `stoa extension show` and `remove`.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The extension
    name: String,
    #[command(flatten)]
    shell: ShellArgs,
}

fn path_of(name: &str) -> String {
    format!("{PROGRAMS}/{name}")
}

fn connect(shell: &ShellArgs) -> Result<blocking::Client> {
    blocking::Client::connect(shell.options()?).map_err(Failure::failed)
}

/// What the server says of the last refusal, which is more than its code.
fn why(client: &blocking::Client, what: &str, code: ErrorCode) -> Failure {
    match client.get_data(FAILURE_PATH) {
        Ok((text, _)) if !text.is_empty() => Failure::failed(String::from_utf8_lossy(&text)),
        _ => Failure::failed(format!("{what}: {code}")),
    }
}

/// Registers programs, each checked before the server is asked.
pub(super) fn add(args: &AddArgs) -> Result<()> {
    let programs: Vec<(&PathBuf, Program)> =
        args.files.iter().map(|file| Ok((file, compiled(file)?))).collect::<Result<_>>()?;
    let client = connect(&args.shell)?;
    for (file, program) in programs {
        let (path, source) = (path_of(&name_of(file)), source_of(file)?);
        client
            .create(&path, source.as_bytes(), stoa_client::CreateMode::Persistent)
            .map_err(|code| why(&client, &path, code))?;
        describe(&program).context("cannot write to standard output")?;
    }
    Ok(())
}

/// Lists the programs, in the order in which they were registered.
pub(super) fn list(args: &ListArgs) -> Result<()> {
    let client = connect(&args.shell)?;
    let names = match client.get_children(PROGRAMS) {
        Err(ErrorCode::NoNode) => Vec::new(),
        names => names.context(format!("cannot list {PROGRAMS}"))?,
    };
    let mut programs = Vec::new();
    for name in names {
        // One that is deregistered meanwhile is not there.
        if let Ok((_, stat)) = client.get_data(&path_of(&name)) {
            programs.push((stat.czxid, name, stat.num_children - 1));
        }
    }
    programs.sort();
    let mut out = io::stdout().lock();
    for (zxid, name, acknowledged) in programs {
        writeln!(out, "{name}  registered by 0x{zxid:x}, {acknowledged} acknowledgements")
            .context("cannot write to standard output")?;
    }
    out.flush().context("cannot write to standard output")
}

/// Shows one program: who has registered it, who has acknowledged it, and its source.
pub(super) fn show(args: &NameArgs) -> Result<()> {
    let client = connect(&args.shell)?;
    let path = path_of(&args.name);
    let no_program = |code: ErrorCode| Failure::failed(format!("{path}: {code}"));
    let (source, _) = client.get_data(&path).map_err(no_program)?;
    let owner = format!("{path}/{OWNER}");
    let (by, _) = client.get_data(&owner).map_err(no_program)?;
    let (acl, _) = client.get_acl(&owner).map_err(no_program)?;
    let identities: Vec<String> = acl
        .iter()
        .filter(|entry| entry.scheme != "world")
        .map(|entry| format!("{}:{}", entry.scheme, entry.id))
        .collect();
    let mut acknowledged = client.get_children(&path).map_err(no_program)?;
    acknowledged.retain(|name| name != OWNER);
    acknowledged.sort();
    let mut out = io::stdout().lock();
    let mut write = || -> io::Result<()> {
        let by = String::from_utf8_lossy(&by);
        writeln!(out, "// registered by {} as {}", by.trim(), identities.join(" "))?;
        writeln!(out, "// acknowledged: {}", acknowledged.join(" "))?;
        out.write_all(&source)?;
        out.flush()
    };
    write().context("cannot write to standard output")
}

/// Deregisters a program.
pub(super) fn remove(args: &NameArgs) -> Result<()> {
    let client = connect(&args.shell)?;
    let path = path_of(&args.name);
    // What is no program is not deleted by mistake.
    client
        .get_data(&format!("{path}/{OWNER}"))
        .map_err(|_| Failure::failed(format!("there is no extension {}", args.name)))?;
    client.delete(&path, None).map_err(|code| why(&client, &path, code))
}
