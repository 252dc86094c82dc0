//! Bugs on purpose: an alarm that never rings proves nothing. They are planted into a copy of the source, in which the
//! simulator's tests must find each.

mod bugs;
mod copy;

use std::process::Command;
use std::time::Duration;

use crate::tally::{self, Tally};
use crate::{run, workspace};

pub(crate) use bugs::{Fault, misplaced, read, unused};

/// The lists of bugs, a file for each crate.
pub(crate) const LISTS: &str = "crates/sim/bugs";
/// Whoever plants them is here.
pub(crate) const TESTS: [&str; 2] = ["crates/sim/tests/planted/", "crates/sim/tests/histories/"];

const LIMIT: Duration = Duration::from_secs(1800);

/// Makes the copy, plants all bugs and has the tests find them, which `more` may choose from.
pub(crate) fn run(more: &[String]) -> Result<Tally, String> {
    let lists = copy::files(LISTS)?;
    let (bugs, faults) = read(lists.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    if let Some(Fault { list, line, message }) = faults.first() {
        return Err(format!("{list}:{line}: {message}"));
    }
    let folder = copy::make(&bugs)?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["test", "--package", "stoa-sim", "--test", "planted"])
        .args(more)
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", workspace::target());
    let outcome = run::run(&mut cargo, LIMIT)?;
    Ok(tally::cargo(&outcome.output).judged(outcome.succeeded()))
}
