//! The commands: set up znodes and sessions, run, report.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use stoa_wire::ErrorCode;

use super::clock::nanos;
use super::connect::{self, Streams};
use super::generator::{Generator, Outcome, Pace, Plan};
use super::report::Report;
use super::requests::{
    DIRECTORY_LEN, Echo, Fill, Ground, Limited, Mix, MixPart, Paths, Pings, ROOT, Requests, ZNODES_MAX,
    directory, session_directory,
};
use super::session::Session;
use super::stream::{Server, Stream};
use super::tops::{Reach, Tops};
use crate::failure::{Context as _, Failure, Result};
use crate::tls::TlsArgs;

const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// A probe must not wait behind another one, so its pipeline has room for a long stall.
const PROBE_PIPELINE: usize = 100_000;
/// Sessions and pipeline for work outside the measurement.
const SETUP_SESSIONS: usize = 8;
const SETUP_PIPELINE: usize = 128;

/// Where the server is and how the result is wanted.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// Address of the server, or of several with commas between: they get the sessions in turn
    #[arg(long, default_value = "127.0.0.1:2181", value_name = "HOST:PORT", value_delimiter = ',')]
    pub(super) server: Vec<String>,
    /// Process ids of the servers: reports their CPU time per operation and their memory, added up
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(super) server_pid: Vec<u32>,
    /// Session timeout
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Duration,
    /// Report as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}

/// What the sessions of a run do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Read the data of random znodes
    Get,
    /// Set the data of random znodes
    Set,
    /// Read the Stat of random znodes
    Exists,
    /// Set the data of two random znodes at once; with `--tops` of two neighbouring ones
    Multi,
    /// Create a znode, delete it, create the next one
    CreateDelete,
    /// What `--mix` says
    Mixed,
    /// Only heartbeats, at a third of the session timeout
    Idle,
    /// Frames for `stoa bench echo-server`, without a session
    Echo,
}

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    target: Target,
    /// Number of sessions; 0 with `--probe` only probes
    #[arg(long, default_value_t = 32)]
    sessions: usize,
    /// Most requests of a session without a reply at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pipeline: u32,
    /// What the sessions do
    #[arg(long, value_enum, default_value_t = Workload::Get)]
    op: Workload,
    /// Weights for `--op mixed`, of get, set, exists, multi and create-delete
    #[arg(long, default_value = "get=90,set=10", value_parser = parse_mix)]
    mix: MixWeights,
    /// Bytes of data; with `--op echo` bytes of a frame
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    payload: usize,
    /// Znodes that are read and set, of each top
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=ZNODES_MAX))]
    znodes: u64,
    /// How many znodes right below the root everything is spread over: sessions take them in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tops: u32,
    /// How many partitions the servers have: as many tops live on each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    partitions: u8,
    /// Requests of a session on one top before it goes on to the next, which lives on another
    /// partition; without it sessions stay. Creates and deletes stay where they are
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    stay: Option<u64>,
    /// Sessions work where their connections are: the servers are asked which partition's thread has
    /// each of them (the word `cons`)
    #[arg(long, conflicts_with = "stay")]
    local: bool,
    /// Sessions work on other partitions than those whose threads have their connections
    #[arg(long, conflicts_with_all = ["stay", "local"])]
    remote: bool,
    /// Sessions have a connection to each partition, as Stoa's own client can have
    #[arg(long, conflicts_with_all = ["local", "remote"])]
    direct: bool,
    /// Their reads are fast reads, which wait for nothing on other partitions
    #[arg(long, requires = "direct")]
    fast: bool,
    /// Seconds of the measurement at which all sessions go over to as many other tops, all on one
    /// partition unless the servers move them, another one each time; what is under way ends as usual
    #[arg(long, value_name = "SECONDS,...", value_delimiter = ',', value_parser = seconds)]
    #[arg(conflicts_with_all = ["stay", "operations"])]
    shift: Vec<Duration>,
    /// Also counts answers and errors in each of so many milliseconds, for the report as JSON
    #[arg(long, value_name = "MS", conflicts_with = "operations")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    interval: Option<u64>,
    /// The znodes are there already, with data of this size: do not create them
    #[arg(long)]
    prepared: bool,
    /// Time before the measurement
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Time of the measurement
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    duration: Duration,
    /// Ends after this many requests instead of after a time; all of them count
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["warmup", "duration", "probe"])]
    operations: Option<u64>,
    /// Requests a second over all sessions, sent at fixed times whether the server keeps up or not;
    /// latency counts from the time at which a request should have been sent
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Also read once a millisecond on a session of its own; the longest stall is the probe's max
    #[arg(long)]
    probe: bool,
}

/// Options of `stoa bench load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    target: Target,
    /// Znodes to create below /bench, a thousand in a directory
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=ZNODES_MAX))]
    znodes: u64,
    /// Bytes of data of each
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    payload: usize,
}

/// Parts of a mix with their weights.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MixWeights(Vec<(MixPart, u32)>);

fn parse_mix(text: &str) -> std::result::Result<MixWeights, String> {
    let part = |item: &str| {
        let (name, weight) = item.split_once('=').ok_or("expected name=weight, as in get=90,set=10")?;
        let part = match name.trim() {
            "get" => MixPart::Get,
            "set" => MixPart::Set,
            "exists" => MixPart::Exists,
            "multi" => MixPart::Multi,
            "create-delete" => MixPart::CreateDelete,
            other => {
                let known = "get, set, exists, multi or create-delete";
                return Err(format!("unknown part {other:?}; expected {known}"));
            }
        };
        let weight: u32 = weight.trim().parse().map_err(|_| format!("{weight:?} is not a whole number"))?;
        Ok((part, weight))
    };
    let parts = text.split(',').map(part).collect::<std::result::Result<Vec<_>, String>>()?;
    if parts.iter().all(|(_, weight)| *weight == 0) {
        return Err("at least one weight must be above 0".to_owned());
    }
    Ok(MixWeights(parts))
}

/// A number of seconds from the command line.
pub(super) fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration < Duration::from_secs(1_000_000))
        .ok_or_else(|| format!("{text:?} seconds are out of range"))
}

/// A rate from the command line.
pub(super) fn parse_rate(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate: &f64| (0.001..=1e8).contains(rate))
        .ok_or_else(|| format!("{text:?} is not a number of requests a second between 0.001 and 100000000"))
}

/// `stoa bench`.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let servers = &connect::resolve_all(&args.target.server, &args.target.tls)?;
    if args.sessions == 0 && !args.probe {
        return Err(Failure::usage("--sessions 0 has nothing to do without --probe"));
    }
    if !args.tops.is_multiple_of(u32::from(args.partitions)) {
        return Err(Failure::usage("--tops must be a multiple of --partitions, so that each has as many"));
    }
    if args.remote && args.partitions == 1 {
        return Err(Failure::usage("--remote needs several --partitions"));
    }
    if !args.shift.iter().chain([&args.duration]).is_sorted_by(|earlier, later| earlier < later) {
        return Err(Failure::usage("--shift takes times that grow, all before the end of the measurement"));
    }
    let outcome = match args.op {
        Workload::Echo => run_echo(args, servers)?,
        Workload::Idle => run_idle(args, servers)?,
        _ => run_mix(args, servers)?,
    };
    print(&args.target, settings(args), &outcome)
}

/// `stoa bench load`.
pub(crate) fn load(args: &LoadArgs) -> Result<()> {
    let servers = &connect::resolve_all(&args.target.server, &args.target.tls)?;
    let tops = Tops::one().paths;
    create_directories(servers, &args.target, &tops, args.znodes)?;
    let fill = Fill::create(&tops, args.znodes, args.payload);
    let outcome = run_setup(servers, &args.target, fill, args.target.server_pid.clone())?;
    let settings = json!({"op": "load", "znodes": args.znodes, "payload": args.payload});
    print(&args.target, settings, &outcome)
}

fn print(target: &Target, settings: Value, outcome: &Outcome) -> Result<()> {
    let report = Report { settings, outcome };
    let text = if target.json { format!("{:#}\n", report.json()) } else { report.text() };
    std::io::stdout().write_all(text.as_bytes()).context("cannot print the report")
}

fn settings(args: &RunArgs) -> Value {
    let op = args.op.to_possible_value();
    json!({
        "op": op.as_ref().map(clap::builder::PossibleValue::get_name),
        "sessions": args.sessions,
        "pipeline": args.pipeline,
        "payload": args.payload,
        "tops": args.tops,
        "partitions": args.partitions,
        "stay": args.stay,
        "shift_s": args.shift.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
        "local": args.local,
        "remote": args.remote,
        "direct": args.direct,
        "fast": args.fast,
        "znodes": args.znodes,
        "operations": args.operations,
        "rate": args.rate,
        "probe": args.probe,
        "warmup_s": args.warmup.as_secs_f64(),
        "duration_s": args.duration.as_secs_f64(),
    })
}

fn plan(args: &RunArgs) -> Plan {
    let servers = args.target.server_pid.clone();
    match args.operations {
        None => Plan {
            warmup: args.warmup,
            duration: Some(args.duration),
            shifts: args.shift.clone(),
            interval: args.interval.map(Duration::from_millis),
            servers,
        },
        Some(_) => Plan { servers, ..Plan::default() },
    }
}

fn run_echo(args: &RunArgs, servers: &[Server]) -> Result<Outcome> {
    let sessions = connect::connect(servers, args.sessions)?
        .into_iter()
        .enumerate()
        .map(|(index, stream)| {
            Ok((Session::new(stream.into(), index, args.pipeline as usize, false)?, pace(args, index)))
        })
        .collect::<Result<_>>()?;
    let (outcome, _) = Generator::new(sessions, Echo::new(args.payload))?.run(plan(args))?;
    Ok(outcome)
}

fn run_idle(args: &RunArgs, servers: &[Server]) -> Result<Outcome> {
    let interval = nanos(args.target.timeout) / 3;
    let streams = connect::open_sessions(servers, args.sessions, args.target.timeout)?;
    let sessions = streams
        .into_iter()
        .enumerate()
        .map(|(index, stream)| {
            let first = interval * index as u64 / args.sessions as u64;
            Ok((Session::new(stream.into(), index, 1, false)?, Pace::Every { first, interval }))
        })
        .collect::<Result<_>>()?;
    finish(Generator::new(sessions, Pings)?.run(plan(args))?)
}

fn run_mix(args: &RunArgs, servers: &[Server]) -> Result<Outcome> {
    let weights = match args.op {
        Workload::Set => vec![(MixPart::Set, 1)],
        Workload::Exists => vec![(MixPart::Exists, 1)],
        Workload::Multi => vec![(MixPart::Multi, 1)],
        Workload::CreateDelete => vec![(MixPart::CreateDelete, 1)],
        Workload::Mixed => args.mix.0.clone(),
        Workload::Get | Workload::Idle | Workload::Echo => vec![(MixPart::Get, 1)],
    };
    let creates = weights.iter().any(|(part, _)| *part == MixPart::CreateDelete);
    if creates && !args.shift.is_empty() {
        return Err(Failure::usage("creates and deletes stay where they are: --shift is for others"));
    }
    if args.direct && weights.iter().any(|(part, _)| *part == MixPart::Multi) {
        return Err(Failure::usage("a multi has paths of two partitions: --direct is for requests of one"));
    }
    let tops = Tops::new(args.tops as usize, args.partitions, args.shift.len());
    if !args.prepared {
        prepare(servers, &args.target, &tops.paths, args.znodes, args.payload)?;
    }
    let count = args.sessions + usize::from(args.probe);
    let (streams, firsts): (Vec<Streams>, _) = if args.direct {
        let streams = connect::open_direct(servers, count, args.target.timeout)?;
        (streams, tops.firsts(Reach::Any, &vec![0; args.sessions]))
    } else {
        let streams = connect::open_sessions(servers, count, args.target.timeout)?;
        let firsts = firsts(args, servers, &tops, &streams)?;
        (streams.into_iter().map(Streams::from).collect(), firsts)
    };
    if creates {
        let paths =
            firsts.iter().enumerate().map(|(session, &top)| session_directory(&tops.paths[top], session));
        run_setup(servers, &args.target, Paths::new(tops.paths.clone()), Vec::new())?;
        run_setup(servers, &args.target, Paths::new(paths.collect()), Vec::new())?;
    }
    let sessions = streams
        .into_iter()
        .enumerate()
        .map(|(index, stream)| {
            let is_probe = index == args.sessions;
            let pipeline = if is_probe { PROBE_PIPELINE } else { args.pipeline as usize };
            let pace = if is_probe {
                Pace::Every { first: 0, interval: nanos(PROBE_INTERVAL) }
            } else {
                pace(args, index)
            };
            Ok((Session::new(stream, index, pipeline, args.fast)?, pace))
        })
        .collect::<Result<_>>()?;
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Fifty thousand slots a second: enough that the slots of two runs do not meet.
    let first_slot = since_epoch.as_secs() % 100_000 * 50_000;
    let ground = Ground { tops: &tops, znodes: args.znodes, firsts, stay: args.stay };
    let mix = Mix::new(&weights, &ground, args.payload, first_slot);
    match args.operations {
        None => finish(Generator::new(sessions, mix)?.run(plan(args))?),
        Some(count) => finish(Generator::new(sessions, Limited::new(mix, count))?.run(plan(args))?),
    }
}

/// The number of the top that each session begins with.
fn firsts(args: &RunArgs, servers: &[Server], tops: &Tops, streams: &[Stream]) -> Result<Vec<usize>> {
    let reach = match (args.local, args.remote) {
        (true, _) => Reach::Local,
        (_, true) => Reach::Remote,
        _ => Reach::Any,
    };
    let streams = &streams[..args.sessions];
    let homes = match reach {
        Reach::Local | Reach::Remote if args.partitions > 1 => connect::homes_of(servers, streams)?,
        _ => vec![0; streams.len()],
    };
    Ok(tops.firsts(reach, &homes))
}

/// In a closed loop sessions send at will; with a rate they take turns.
fn pace(args: &RunArgs, index: usize) -> Pace {
    match args.rate {
        None => Pace::AtWill,
        Some(rate) => {
            let between = 1e9 / rate;
            Pace::Every {
                first: (between * index as f64) as u64,
                interval: ((between * args.sessions as f64) as u64).max(1),
            }
        }
    }
}

pub(super) fn finish((outcome, sessions): (Outcome, Vec<Session>)) -> Result<Outcome> {
    connect::close_sessions(sessions.into_iter().map(Session::into_stream).collect())?;
    Ok(outcome)
}

/// Makes sure that the znodes are there with data of the right size.
pub(super) fn prepare(
    servers: &[Server],
    target: &Target,
    tops: &[String],
    znodes: u64,
    payload: usize,
) -> Result<()> {
    create_directories(servers, target, tops, znodes)?;
    let created = run_setup(servers, target, Fill::create(tops, znodes, payload), Vec::new())?;
    if created.record.errors_of(ErrorCode::NodeExists) > 0 {
        run_setup(servers, target, Fill::set(tops, znodes, payload), Vec::new())?;
    }
    Ok(())
}

fn create_directories(servers: &[Server], target: &Target, tops: &[String], znodes: u64) -> Result<()> {
    run_setup(servers, target, Paths::new(tops.to_vec()), Vec::new())?;
    let numbers = 0..znodes.div_ceil(DIRECTORY_LEN);
    let below = |top| numbers.clone().map(move |number| directory(top, number));
    let directories = tops.iter().map(String::as_str).flat_map(below).collect();
    run_setup(servers, target, Paths::new(directories), Vec::new())?;
    Ok(())
}

/// Sends requests until there are no more, as fast as the server takes them. What exists already is
/// no error.
fn run_setup(
    servers: &[Server],
    target: &Target,
    requests: impl Requests,
    server_pids: Vec<u32>,
) -> Result<Outcome> {
    let sessions = connect::open_sessions(servers, SETUP_SESSIONS, target.timeout)?
        .into_iter()
        .enumerate()
        .map(|(index, stream)| Ok((Session::new(stream.into(), index, SETUP_PIPELINE, false)?, Pace::AtWill)))
        .collect::<Result<_>>()?;
    let plan = Plan { servers: server_pids, ..Plan::default() };
    let outcome = finish(Generator::new(sessions, requests)?.run(plan)?)?;
    let harmless = ErrorCode::NodeExists as i32;
    match outcome.record.errors.iter().find(|&(&code, _)| code != harmless) {
        None => Ok(outcome),
        Some((code, count)) => Err(Failure::failed(format!(
            "cannot set up the znodes below {ROOT}: {count} requests failed, with error code {code}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_parsed() {
        let mix = parse_mix("get=90, set=9,create-delete=1").unwrap();
        assert_eq!(mix.0, [(MixPart::Get, 90), (MixPart::Set, 9), (MixPart::CreateDelete, 1)]);
        for bad in ["get", "get=x", "put=1", "get=0", ""] {
            assert!(parse_mix(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "-1", "1e300", "NaN", "x"] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
