//! `stoa extension`: programs that run inside the service, tried out by who writes them, and those of a server.

mod script;
mod server;
mod stage;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use stoa_extension::{Limits, Program, Subscription};

use crate::failure::{Context as _, Failure, Result};
use script::Line;
use server::{AddArgs, ListArgs, NameArgs};
use stage::Stage;

/// `stoa extension`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExtensionCommand {
    /// Says whether programs can be registered, and what they subscribe to
    Check(CheckArgs),
    /// Runs a program against a tree of its own, with requests from a script
    Test(TestArgs),
    /// Registers programs with a server, each by the name of its file
    Add(AddArgs),
    /// Lists the programs of a server
    List(ListArgs),
    /// Shows a program of a server: who has registered it, who has acknowledged it, and its source
    Show(NameArgs),
    /// Deregisters a program
    Remove(NameArgs),
}

/// Options of `stoa extension check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The sources
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Options of `stoa extension test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The source
    file: PathBuf,
    /// Who asks what, line by line, and what is to come of it
    #[arg(long)]
    script: PathBuf,
}

/// Carries out `stoa extension ...`.
pub(crate) fn run(command: &ExtensionCommand) -> Result<()> {
    match command {
        ExtensionCommand::Check(args) => check(args),
        ExtensionCommand::Test(args) => test(args),
        ExtensionCommand::Add(args) => server::add(args),
        ExtensionCommand::List(args) => server::list(args),
        ExtensionCommand::Show(args) => server::show(args),
        ExtensionCommand::Remove(args) => server::remove(args),
    }
}

fn check(args: &CheckArgs) -> Result<()> {
    let mut wrong = 0;
    for file in &args.files {
        match compiled(file) {
            Ok(program) => describe(&program).context("cannot write to standard output")?,
            Err(failure) => {
                wrong += 1;
                // Nothing is left to be done about a closed standard error.
                let _ = writeln!(io::stderr(), "{failure}");
            }
        }
    }
    match wrong {
        0 => Ok(()),
        wrong => {
            Err(Failure::failed(format!("{wrong} of {} programs cannot be registered", args.files.len())))
        }
    }
}

fn describe(program: &Program) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}: ok", program.name())?;
    for subscription in program.subscriptions() {
        match subscription {
            Subscription::Operation { kind, pattern } => {
                writeln!(out, "  operation {} {pattern}", kind.name())?;
            }
            Subscription::Event { kind, pattern } => {
                writeln!(out, "  event {} {pattern}", kind.name())?;
            }
        }
    }
    out.flush()
}

fn source_of(file: &Path) -> Result<String> {
    fs::read_to_string(file).context(format!("cannot read {}", file.display()))
}

/// What the program in a file is called.
fn name_of(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// The program in a file. Errors begin as those of compilers do, so that editors find the place.
fn compiled(file: &Path) -> Result<Program> {
    let (name, source) = (name_of(file), source_of(file)?);
    Program::compile(&name, &source, &Limits::default()).map_err(|error| {
        let at = error.at;
        Failure::failed(format!("{}:{}:{}: {}", file.display(), at.line, at.column, error.what))
    })
}

fn test(args: &TestArgs) -> Result<()> {
    let program = compiled(&args.file)?;
    let script =
        fs::read_to_string(&args.script).context(format!("cannot read {}", args.script.display()))?;
    let mut stage = Stage::new(program);
    let mut out = io::stdout().lock();
    // What the last request has come to, as far as nothing has been expected of it.
    let mut outcome: Vec<String> = Vec::new();
    let (mut met, mut missed) = (0, 0);
    for (index, text) in script.lines().enumerate() {
        let place = format!("{}:{}", args.script.display(), index + 1);
        let line = Line::parse(text).map_err(|what| Failure::failed(format!("{place}: {what}")))?;
        match line {
            Line::Nothing => continue,
            Line::Expect(wanted) => {
                if let Some(at) = outcome.iter().position(|line| script::is_met(wanted, line)) {
                    outcome.drain(..=at);
                    met += 1;
                } else {
                    missed += 1;
                    let shown = outcome.join("\n  ");
                    writeln!(out, "{place}: EXPECTED {wanted}\n  but there is\n  {shown}")
                        .context("cannot write to standard output")?;
                }
                continue;
            }
            Line::Given { path, data } => outcome = stage.given(path, data),
            Line::Show { path } => outcome = stage.show(path),
            Line::Close { who } => outcome = stage.close(who),
            Line::Request { who, asked } => outcome = stage.request(who, &asked),
        }
        writeln!(out, "{}", text.trim()).context("cannot write to standard output")?;
        for line in &outcome {
            writeln!(out, "  {line}").context("cannot write to standard output")?;
        }
    }
    out.flush().context("cannot write to standard output")?;
    if missed > 0 {
        return Err(Failure::failed(format!("{missed} of {} expectations are not met", met + missed)));
    }
    Ok(())
}
