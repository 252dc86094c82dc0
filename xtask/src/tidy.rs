//! The repository's own rules, beyond what the compiler and clippy see. Each rule is a function
//! from text to violations, with a test in which it finds something.

mod arrows;
mod links;
mod planted;
mod shape;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::Command;

use crate::tally::Tally;
use crate::workspace;

/// One thing that has to be changed.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    path: String,
    /// 0 where the file as a whole is meant.
    line: usize,
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.message),
            line => write!(formatter, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Looks at every file that git knows or would add. All rules together are one test; what they find
/// is counted by file.
pub(crate) fn run() -> Result<Tally, String> {
    let paths = files()?;
    let mut violations = Vec::new();
    let mut contents = BTreeMap::new();
    for path in &paths {
        let Ok(bytes) = std::fs::read(workspace::root().join(path)) else { continue };
        let Ok(content) = String::from_utf8(bytes) else { continue };
        violations.extend(text::check(path, &content));
        if path.ends_with("Cargo.toml") {
            violations.extend(arrows::check(path, &content));
        }
        if path.ends_with(".md") {
            violations.extend(links::check(path, &content, &paths));
        }
        contents.insert(path.clone(), content);
    }
    violations.extend(shape::check(&contents));
    violations.extend(planted::check(&contents));
    for violation in &violations {
        println!("{violation}");
    }
    let broken: BTreeSet<&str> = violations.iter().map(|violation| violation.path.as_str()).collect();
    Ok(match broken.len() as u64 {
        0 => Tally::one(true),
        failed => Tally { passed: 0, failed },
    })
}

/// Paths from the root, with `/`.
fn files() -> Result<BTreeSet<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(workspace::root());
    let output = git.output().map_err(|error| format!("cannot start git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
