//! The same `zoo.cfg` read by Stoa and by Apache ZooKeeper, and what comes out compared.
//!
//! Files with odd values for every key that has an effect are made from a seed. `Effective.java` says what
//! ZooKeeper's own classes make of each, and Stoa's reading has to come to the same, but for what
//! [`differences`] names.

#![allow(clippy::print_stdout, reason = "it is a program for the terminal")]

mod differences;
mod files;
mod table;
mod zookeeper;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use stoa_server::config::{ServeArgs, Settings};
use stoa_server::words::Word;

use table::{Row, plain};

/// What each key comes to, as text.
type Values = BTreeMap<String, String>;

#[derive(Parser)]
struct Arguments {
    /// The folder with the jars of Apache ZooKeeper.
    #[arg(long)]
    jars: PathBuf,
    /// The program that asks ZooKeeper.
    #[arg(long)]
    program: PathBuf,
    /// What the files are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many files have odd values for many keys, and how many have odd spelling.
    #[arg(long, default_value_t = 60)]
    files: usize,
}

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("stoa-settings: {error}");
            ExitCode::from(2)
        }
    }
}

fn compare(arguments: &Arguments) -> Result<bool, String> {
    if let Some((name, _)) = std::env::vars_os().find(|(name, _)| name.to_string_lossy().starts_with("STOA_"))
    {
        return Err(format!("{} is set in the environment, and would count too", name.display()));
    }
    let folder = tempfile::tempdir().map_err(|error| format!("a folder for the files: {error}"))?;
    let rows = table::rows();
    let files = files::make(&rows, arguments.seed, arguments.files);
    for (index, text) in files.iter().enumerate() {
        let path = folder.path().join(name(index));
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let answers = zookeeper::ask(&arguments.program, &arguments.jars, folder.path())?;
    let (mut passed, mut failed, mut values) = (0, 0, 0);
    for (index, text) in files.iter().enumerate() {
        let name = name(index);
        let theirs = answers.get(&name).ok_or_else(|| format!("ZooKeeper has said nothing of {name}"))?;
        let ours = load(&folder.path().join(&name));
        match differing(&rows, text, theirs, &ours) {
            Ok(compared) => {
                passed += 1;
                values += compared;
            }
            Err(differences) => {
                failed += 1;
                println!("--- {text}\n{}", differences.join("\n"));
            }
        }
    }
    println!("{values} values compared, seed {}", arguments.seed);
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn name(index: usize) -> String {
    format!("{index:05}.cfg")
}

fn load(path: &Path) -> Result<Settings, String> {
    let mut arguments = ServeArgs::default();
    arguments.config = Some(path.to_owned());
    arguments.load().map(|loaded| loaded.settings).map_err(|error| error.to_string())
}

/// How many values were compared, or which are not the same.
fn differing(
    rows: &[Row],
    text: &str,
    theirs: &Result<Values, String>,
    ours: &Result<Settings, String>,
) -> Result<usize, Vec<String>> {
    let (theirs, ours) = match (theirs, ours) {
        (Err(_), Err(_)) => return Ok(1),
        (Err(why), Ok(_)) if differences::taken(why) => return Ok(1),
        (Err(why), Ok(_)) => return Err(vec![format!("only ZooKeeper refuses it: {why}")]),
        (Ok(theirs), Err(_)) if differences::refused(theirs, text) => return Ok(1),
        (Ok(_), Err(why)) => return Err(vec![format!("only Stoa refuses it: {why}")]),
        (Ok(theirs), Ok(ours)) => (theirs, ours),
    };
    if differences::refused(theirs, text) {
        return Err(vec!["Stoa does not refuse it".to_owned()]);
    }
    let mut differing = Vec::new();
    for row in rows {
        let Some(value) = theirs.get(&row.key) else {
            differing.push(format!("Effective.java does not say what becomes of {}", row.key));
            continue;
        };
        let expected = differences::expected(&row.key, value, theirs);
        let found = of_stoa(row, ours, &expected);
        if !table::same(&expected, &found) {
            differing.push(format!("{}: ZooKeeper {value}, so {expected} here, but Stoa {found}", row.key));
        }
    }
    if differing.is_empty() { Ok(rows.len()) } else { Err(differing) }
}

/// What a key comes to in Stoa; `default` where that is asked for and it is so.
fn of_stoa(row: &Row, settings: &Settings, expected: &str) -> String {
    let of = |settings: &Settings| match row.key.as_str() {
        "minSessionTimeout" => settings.session_timeouts().0.as_millis().to_string(),
        "maxSessionTimeout" => settings.session_timeouts().1.as_millis().to_string(),
        "DigestAuthenticationProvider.superDigest" => settings.super_digest.clone().unwrap_or_default(),
        "4lw.commands.whitelist" => {
            let words = Word::ALL.iter().filter(|word| settings.allows(**word));
            words.map(|word| word.name()).collect::<Vec<_>>().join(",")
        }
        _ => plain(&row.setting().get(settings)),
    };
    let (found, default) = (of(settings), of(&Settings::default()));
    if expected == "default" && found == default { expected.to_owned() } else { found }
}
