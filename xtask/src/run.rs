//! Runs programs: their output is shown as it comes and kept for counting, and a program that
//! hangs is ended together with all that it has started.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What a program that has ended leaves behind.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    /// Standard output and standard error, line by line, in the order in which they came.
    pub(crate) output: String,
    pub(crate) timed_out: bool,
}

/// A program that failed.
#[derive(Clone)]
pub(crate) struct Failure {
    pub(crate) command: String,
    /// The last of what it printed.
    pub(crate) end: String,
}

/// As much of the end of what a program printed is kept, in lines.
const END_LINES: usize = 30;

static FAILURES: Mutex<Vec<Failure>> = Mutex::new(Vec::new());

/// The programs that have failed so far: their output is long above the end of a run.
pub(crate) fn failures() -> Vec<Failure> {
    FAILURES.lock().map(|failures| failures.clone()).unwrap_or_default()
}

impl Outcome {
    pub(crate) fn succeeded(&self) -> bool {
        self.status.success() && !self.timed_out
    }
}

/// Runs `command` to its end, at most for `limit`.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Outcome, String> {
    run_and(command, limit, true)
}

/// The same without showing the output: for what runs beside others.
pub(crate) fn quietly(command: &mut Command, limit: Duration) -> Result<Outcome, String> {
    run_and(command, limit, false)
}

fn run_and(command: &mut Command, limit: Duration, show: bool) -> Result<Outcome, String> {
    let shown = describe(command);
    println!("$ {shown}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    let kept = Arc::new(Mutex::new(String::new()));
    let readers = [
        child.stdout.take().map(|stream| forward(stream, Arc::clone(&kept), show)),
        child.stderr.take().map(|stream| forward(stream, Arc::clone(&kept), show)),
    ];
    let (status, timed_out) = wait(&mut child, limit)?;
    for reader in readers.into_iter().flatten() {
        reader.join().map_err(|_| format!("lost the output of `{shown}`"))?;
    }
    if timed_out {
        println!("ended after {} seconds: {shown}", limit.as_secs());
    }
    let output = kept.lock().map_err(|_| format!("lost the output of `{shown}`"))?.clone();
    let outcome = Outcome { status, output, timed_out };
    if !outcome.succeeded()
        && let Ok(mut failures) = FAILURES.lock()
    {
        failures.push(Failure { command: shown, end: last_lines(&outcome.output) });
    }
    Ok(outcome)
}

fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(END_LINES)..].join("\n")
}

/// As `run`, where anything but success is an error.
pub(crate) fn must(command: &mut Command, limit: Duration) -> Result<String, String> {
    let outcome = run(command, limit)?;
    if outcome.succeeded() {
        Ok(outcome.output)
    } else {
        Err(format!("`{}` failed: {}", describe(command), outcome.status))
    }
}

/// The command as one would type it.
fn describe(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

fn forward(
    stream: impl Read + Send + 'static,
    kept: Arc<Mutex<String>>,
    show: bool,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(read) if read > 0) {
            let text = String::from_utf8_lossy(&line);
            if show {
                let mut out = std::io::stdout().lock();
                // A closed standard output must not end the run: its result is the exit code.
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
            if let Ok(mut kept) = kept.lock() {
                kept.push_str(&text);
            }
            line.clear();
        }
    })
}

/// Waits for the end of `child`. The flag says that it had to be ended.
fn wait(child: &mut Child, limit: Duration) -> Result<(ExitStatus, bool), String> {
    let deadline = Instant::now() + limit;
    let mut timed_out = false;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok((status, timed_out));
        }
        if Instant::now() >= deadline && !timed_out {
            timed_out = true;
            end_tree(child.id());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Kills a process and all its descendants: what a suite has started must not outlive it, or its
/// output would never end and its ports stay taken.
pub(crate) fn end_tree(root: u32) {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&process) = tree.get(next) {
        tree.extend(children(process));
        next += 1;
    }
    let _ = Command::new("kill").arg("-KILL").args(tree.iter().map(u32::to_string)).status();
}

fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_of_both_streams_is_kept_with_the_exit_code() {
        let outcome = run(&mut shell("echo out; echo err >&2; exit 3"), Duration::from_secs(10)).unwrap();
        assert!(outcome.output.contains("out\n") && outcome.output.contains("err\n"));
        assert_eq!(outcome.status.code(), Some(3));
        assert!(!outcome.succeeded());
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let begun = Instant::now();
        let outcome = run(&mut shell("sleep 60 & sleep 60; wait"), Duration::from_millis(200)).unwrap();
        assert!(outcome.timed_out && !outcome.succeeded());
        assert!(begun.elapsed() < Duration::from_secs(30), "a grandchild kept the output open");
    }

    #[test]
    fn the_end_of_what_a_failed_program_printed_is_kept() {
        run(&mut shell("seq 100; echo why; exit 1"), Duration::from_secs(10)).unwrap();
        let failure = failures().into_iter().find(|failure| failure.command.contains("seq 100")).unwrap();
        assert!(failure.end.ends_with("100\nwhy") && failure.end.lines().count() == END_LINES);
    }

    #[test]
    fn a_missing_program_is_named() {
        let Err(message) = run(&mut Command::new("no-such-program-here"), Duration::from_secs(1)) else {
            panic!("it cannot have been started");
        };
        assert!(message.contains("no-such-program-here"));
    }
}
