//! Counts instructions, by running this program under Valgrind.

use crate::Operation;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// With this word, and the number of an attempt, the program carries an operation out.
pub(crate) const CARRY_OUT: &str = "carry-out";

/// As many at the same time: the suite may have two cores to itself.
const TOGETHER: usize = 2;

/// The sizes that an operation is carried out at.
pub(crate) fn sizes(size: usize) -> [usize; 2] {
    [size, size * 4]
}

/// What is counted is what happens in here, and nothing else.
#[inline(never)]
pub(crate) fn counted(operation: &mut dyn FnMut()) {
    operation();
}

/// The allocator puts its free pieces in order now and then, and that may come at the one operation that is counted. What
/// grows with the size does so wherever the pieces are, so an operation that costs too much is counted again, with others.
const ATTEMPTS: u8 = 3;

/// Does this with a heap that begins elsewhere in each attempt.
pub(crate) fn elsewhere(attempt: u8, work: impl FnOnce()) {
    let room = std::hint::black_box(vec![attempt; usize::from(attempt) * 1000]);
    work();
    drop(std::hint::black_box(room));
}

/// Counts all of these, and says what they cost. Whether each grows no more than it may.
pub(crate) fn all(operations: Vec<&Operation>) -> Result<bool, String> {
    let directory = tempfile::tempdir().map_err(|error| format!("no folder for the counts: {error}"))?;
    println!(
        "{:<96}{:>8}{:>14}{:>14}{:>12}",
        "operation", "size", "instructions", "at 4 times", "a doubling"
    );
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let count = || -> Result<(), String> {
        while let Some(operation) = operations.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut attempts = 0..ATTEMPTS;
            let (one, four, factor, fits) = loop {
                let attempt = attempts.next().unwrap_or_default();
                let [one, four] = instructions(operation, directory.path(), attempt)?;
                let factor = (four as f64 / one as f64).sqrt();
                let fits = factor <= operation.growth.limit();
                if fits || attempts.is_empty() {
                    break (one, four, factor, fits);
                }
            };
            let verdict = if fits { String::new() } else { format!("  above {}", operation.growth.limit()) };
            let line = format!(
                "{:<96}{:>8}{one:>14}{four:>14}{factor:>12.2}{verdict}",
                operation.name, operation.size
            );
            println!("{line}");
            if !fits {
                failed.lock().map_err(|_| "a thread has ended")?.push(line);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(count)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has ended")?)
    })?;
    let failed = failed.into_inner().map_err(|_| "a thread has ended")?;
    // Once more: the table is long.
    failed.iter().for_each(|line| println!("{line}"));
    let failed = failed.len();
    println!("{} passed, {failed} failed", operations.len() - failed);
    Ok(failed == 0 && !operations.is_empty())
}

/// The instructions that an operation takes at each of its sizes.
fn instructions(operation: &Operation, directory: &Path, attempt: u8) -> Result<[u64; 2], String> {
    let out = directory.join(operation.name.replace(|it: char| !it.is_alphanumeric(), "-"));
    let program = std::env::current_exe().map_err(|error| format!("this program is gone: {error}"))?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--collect-atstart=no"])
        // Each time that it is left, what was counted is written, and counting begins anew.
        .args(["--toggle-collect=*::counted*", "--dump-after=stoa_cost::count::counted"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args([CARRY_OUT, &attempt.to_string(), operation.name])
        .stdin(Stdio::null());
    let ended = valgrind.output().map_err(|error| format!("valgrind cannot be run: {error}"))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("`{}` has failed:\n{said}", operation.name));
    }
    let of = |number: usize| {
        let path = format!("{}.{number}", out.display());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let sum = text.lines().find_map(|line| line.strip_prefix("summary: "));
        let sum = sum.or_else(|| text.lines().find_map(|line| line.strip_prefix("totals: ")));
        sum.and_then(|sum| sum.trim().parse::<u64>().ok()).filter(|sum| *sum > 0).ok_or_else(|| {
            format!("`{}` was not counted: it has to call `counted` once for each size", operation.name)
        })
    };
    Ok([of(1)?, of(2)?])
}
