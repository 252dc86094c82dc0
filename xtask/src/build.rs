//! Builds programs of this repository, all with the features that the whole workspace needs: with those of one package
//! alone the same crates would be built once for each program.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::{run, workspace};

const LIMIT: Duration = Duration::from_secs(1200);

/// Builds a program for release; returns the command that runs it.
pub(crate) fn program(name: &str) -> Result<Command, String> {
    cargo(&["--release", "--bin", name])?;
    Ok(Command::new(workspace::target().join("release").join(name)))
}

/// Builds an example for tests; says where it is.
pub(crate) fn example(name: &str) -> Result<PathBuf, String> {
    cargo(&["--example", name])?;
    Ok(workspace::target().join("debug").join("examples").join(name))
}

fn cargo(words: &[&str]) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--workspace"]).args(words).current_dir(workspace::root());
    run::must(&mut cargo, LIMIT).map(|_| ())
}
