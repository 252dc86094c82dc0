//! `stoa bench probe`: writes without a break through whatever server can be reached, and says when
//! writing was not possible.
//!
//! Each session has a thread of its own and keeps its identity over reconnects, so that a session
//! counts as lost only when a server says so. Whoever breaks servers meanwhile tells the probe when,
//! over its standard input.

mod client;
mod phase;

use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::connect;
use super::run::{parse_rate, seconds};
use crate::failure::{Context as _, Failure, Result};
use crate::tls::TlsArgs;
use client::{Client, Task};
use phase::Recorder;

/// How long the first session may take to be there.
const READY_SECONDS_MAX: u64 = 60;
const READY_LOOK: Duration = Duration::from_millis(10);
const COMMAND_BYTES_MAX: usize = 200;

/// Options of `stoa bench probe`.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ProbeArgs {
    /// Addresses of all servers, with commas between; each session begins at another one
    #[arg(long, required = true, value_name = "HOST:PORT", value_delimiter = ',')]
    servers: Vec<String>,
    /// Number of sessions, each of which sets a znode of its own below /probe
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    sessions: u32,
    /// Most writes of a session without a reply at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pipeline: u32,
    /// Bytes of data
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    payload: usize,
    /// Session timeout
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    timeout: Duration,
    /// Writes a second over all sessions, one at a time in each; latency counts from the time at which
    /// a write should have been sent
    #[arg(long, value_parser = parse_rate, conflicts_with = "pipeline")]
    rate: Option<f64>,
    /// Ends after this time instead of with its standard input
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    #[command(flatten)]
    tls: TlsArgs,
}

const HELP: &str = "\
Lines on standard input, each answered by one line of JSON:
  mark NAME   ends the phase under way, reports it, and begins another one
  look        reports the phase under way so far
At the end of the input the probe closes its sessions and reports the whole time. The first line of its
output says that all sessions are open.

longest_gap_ms is the longest time between two acknowledged writes, of all sessions together, that ended
in the phase or goes on; first_write_after_ms the time from the beginning of the phase to the first
acknowledgement of a write that was sent in it. unknown counts writes whose connection was lost before
the reply, sessions_lost the sessions that a server said have expired.";

/// Runs until the input ends, or for the time that was asked for.
pub(crate) fn run(args: &ProbeArgs) -> Result<()> {
    let servers = connect::resolve_all(&args.servers, &args.tls)?;
    let interval = args.rate.map(|rate| Duration::from_secs_f64(f64::from(args.sessions) / rate));
    if interval.is_some_and(|interval| interval > args.timeout / 3) {
        return Err(Failure::usage(format!(
            "a session that writes less than three times in its timeout of {} s may expire: raise --rate or --timeout",
            args.timeout.as_secs_f64()
        )));
    }
    let recorder = Recorder::start();
    let stop = AtomicBool::new(false);
    let ready = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..args.sessions {
            let task = Task {
                number,
                servers: &servers,
                timeout: args.timeout,
                payload_bytes: args.payload,
                pipeline: args.pipeline as usize,
                interval,
                first: interval.unwrap_or_default() * number / args.sessions,
            };
            let client = Client::new(task, &recorder);
            let (stop, ready) = (&stop, &ready);
            threads.push(scope.spawn(move || client.run(stop, ready)));
        }
        let watched = watch(args, &recorder, || {
            if threads.iter().any(thread::ScopedJoinHandle::is_finished) {
                return Err(Failure::failed("a session of the probe has ended early"));
            }
            Ok(ready.load(Ordering::Relaxed) == threads.len())
        });
        stop.store(true, Ordering::Relaxed);
        // Why a session ended says more than that it ended.
        for session in threads {
            session.join().map_err(|_| Failure::failed("a session of the probe panicked"))??;
        }
        watched
    })?;
    print(&recorder.all())
}

/// Waits for the sessions, then does what the input says.
fn watch(args: &ProbeArgs, recorder: &Recorder, ready: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
    while !ready()? {
        if Instant::now() > deadline {
            return Err(Failure::failed(format!(
                "no sessions at {} within {READY_SECONDS_MAX} s: is there a quorum?",
                args.servers.join(",")
            )));
        }
        thread::sleep(READY_LOOK);
    }
    recorder.mark("start");
    print(&json!({"sessions": args.sessions}))?;
    if let Some(duration) = args.duration {
        thread::sleep(duration);
        return Ok(());
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read the next command")?;
        print(&answer(&line, recorder))?;
    }
    Ok(())
}

fn answer(line: &str, recorder: &Recorder) -> Value {
    match line.trim().split_once(' ') {
        None if line.trim() == "look" => recorder.look(),
        Some(("mark", name)) if name.len() <= COMMAND_BYTES_MAX => recorder.mark(name.trim()),
        _ => json!({"error": "expected `mark NAME` or `look`"}),
    }
}

fn print(value: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).context("cannot print the report")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_answered_and_others_refused() {
        let recorder = Recorder::start();
        recorder.mark("start");
        assert_eq!(answer("look", &recorder)["phase"], "start");
        assert_eq!(answer("mark killed", &recorder)["phase"], "start");
        assert_eq!(answer("look", &recorder)["phase"], "killed");
        for bad in ["", "mark", "stop", &format!("mark {}", "x".repeat(1000))] {
            assert!(answer(bad, &recorder)["error"].is_string(), "{bad:?}");
        }
    }
}
