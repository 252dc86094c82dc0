//! Fuzzing with libFuzzer, on a stable toolchain. It needs to know which branches an input takes, and stable
//! compilers let LLVM note that; only the sanitizers that `cargo fuzz` adds by itself need another one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::tally::Tally;
use crate::{run, suites, workspace};

const BUILD_LIMIT: Duration = Duration::from_secs(1200);

/// How long a target may take besides the time that it is given: its corpus is run first.
const MORE_TIME: Duration = Duration::from_secs(120);

/// What `cargo fuzz` has the compiler do, but for the sanitizer.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// Inputs of this length or less, that take no longer and no more memory than this.
const BOUNDS: [&str; 3] = ["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"];

/// Fuzzes each of these targets, or all, for so many seconds; as many at a time as there are processors.
pub(crate) fn run(seconds: u64, only: &[String]) -> Result<Tally, String> {
    let targets = targets()?;
    if let Some(unknown) = only.iter().find(|name| !targets.contains(name)) {
        return Err(format!("no target `{unknown}`; there are {}", targets.join(", ")));
    }
    let chosen: Vec<String> =
        targets.into_iter().filter(|name| only.is_empty() || only.contains(name)).collect();
    let programs = build()?;
    let left = Mutex::new(chosen.iter());
    let tally = Mutex::new(Tally::default());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors.min(chosen.len()) {
            scope.spawn(|| {
                loop {
                    let Some(target) = left.lock().ok().and_then(|mut left| left.next()) else { return };
                    let passed = one(&programs, target, seconds).unwrap_or_else(|message| {
                        println!("{target}: {message}");
                        false
                    });
                    if let Ok(mut tally) = tally.lock() {
                        *tally += Tally::one(passed);
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().map_err(|_| "a thread panicked".to_owned())?;
    Ok(tally.judged(true))
}

/// The names of all targets.
fn targets() -> Result<Vec<String>, String> {
    let folder = workspace::root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| stem(entry.path())).collect();
    names.sort();
    Ok(names)
}

/// Builds all targets; says where the programs are.
fn build() -> Result<PathBuf, String> {
    if Command::new("c++").arg("--version").output().is_err() {
        suites::install("a C++ compiler", "g++")?;
    }
    let version = run::must(Command::new("rustc").arg("-vV"), MORE_TIME)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    // Named, so that what runs while it is built is built without the flags.
    let host = host.ok_or("rustc does not say what it runs on")?;
    let folder = workspace::target().join("fuzz");
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--bins", "--quiet", "--target", host, "--manifest-path"])
        .arg(workspace::root().join("fuzz/Cargo.toml"))
        .current_dir(workspace::root())
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", FLAGS.join(" "));
    run::must(&mut cargo, BUILD_LIMIT)?;
    Ok(folder.join(host).join("release"))
}

/// Fuzzes one target. What it learns stays in `target/fuzz/corpus` for the next time; what it finds is put beside.
fn one(programs: &Path, target: &str, seconds: u64) -> Result<bool, String> {
    let folder = workspace::target().join("fuzz");
    let (corpus, found) = (folder.join("corpus").join(target), folder.join("found"));
    for needed in [&corpus, &found] {
        std::fs::create_dir_all(needed).map_err(|error| format!("{}: {error}", needed.display()))?;
    }
    let begun = Instant::now();
    let mut program = Command::new(programs.join(target));
    program
        .arg(format!("-max_total_time={seconds}"))
        .args(BOUNDS)
        .args(["-verbosity=0", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/{target}-", found.display()))
        .args([&corpus, &workspace::root().join("fuzz/corpus").join(target)])
        .env("RUST_BACKTRACE", "1");
    let outcome = run::quietly(&mut program, Duration::from_secs(seconds) + MORE_TIME)?;
    if !outcome.succeeded() {
        println!("{}", outcome.output);
    }
    println!(
        "{target}: {} inputs in {:.0} s, {}",
        executed(&outcome.output),
        begun.elapsed().as_secs_f64(),
        if outcome.succeeded() { "nothing found" } else { "FAILED" },
    );
    Ok(outcome.succeeded())
}

fn executed(output: &str) -> &str {
    let line = output.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    line.map_or("no", str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_corpus_and_is_built() {
        let manifest = std::fs::read_to_string(workspace::root().join("fuzz/Cargo.toml")).unwrap();
        let targets = targets().unwrap();
        assert!(!targets.is_empty());
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is not in fuzz/Cargo.toml");
            let corpus = workspace::root().join("fuzz/corpus").join(&target);
            assert!(std::fs::read_dir(corpus).unwrap().count() > 0, "{target} has no corpus");
        }
    }

    #[test]
    fn what_was_executed_is_read() {
        assert_eq!(executed("a\nstat::number_of_executed_units: 17\nstat::x: 1\n"), "17");
        assert_eq!(executed("killed"), "no");
    }
}
