//! `stoa bench sites`: clients at several sites, each at the server beside it.
//!
//! Each site has a thread with a generator of its own, so that what its clients meet stands by itself. Nothing
//! is delayed here: the servers are as far from one another as whoever started them has made them.

mod accesses;
mod records;
mod report;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use self::accesses::Accesses;
use self::records::{Records, RecordsArgs, percent};
use self::report::SitesReport;
use super::clock::nanos;
use super::connect;
use super::distance::milliseconds;
use super::generator::{Generator, Outcome, Pace, Plan};
use super::process::Usage;
use super::requests::Limited;
use super::run::{self, Target, seconds};
use super::session::Session;
use super::stream::Server;
use crate::failure::{Context as _, Failure, Result};

/// Throughput over time is counted in parts this long.
const INTERVAL: Duration = Duration::from_secs(1);

/// Options of `stoa bench sites`. The records are made at `--server`.
#[derive(Debug, Args)]
pub(crate) struct SitesLoadArgs {
    /// A site, and the server beside it; once for each site
    #[arg(long, required = true, value_name = "NAME=HOST:PORT", value_parser = parse_site)]
    site: Vec<Site>,
    /// Sessions at each site
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,
    /// Most requests of a session without a reply at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pipeline: u32,
    /// How many of the requests are writes, in percent; the others read
    #[arg(long, default_value = "50", value_name = "PERCENT", value_parser = percent)]
    writes: f64,
    #[command(flatten)]
    records: RecordsArgs,
    /// The records are there already, with data of this size: do not write them
    #[arg(long)]
    prepared: bool,
    /// How long a session thinks after a reply before it asks again
    #[arg(long, default_value = "0", value_name = "MS", value_parser = milliseconds)]
    think_ms: Duration,
    /// A site is done after this many requests, or after the time, whichever comes first
    #[arg(long, value_name = "COUNT")]
    operations: Option<u64>,
    /// Time of the measurement; everything in it counts
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    duration: Duration,
    /// Another one draws other requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    target: Target,
}

/// Where clients are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Site {
    name: String,
    /// The server beside them.
    server: String,
}

fn parse_site(text: &str) -> std::result::Result<Site, String> {
    match text.split_once('=') {
        Some((name, server)) if !name.is_empty() && !server.is_empty() => {
            Ok(Site { name: name.to_owned(), server: server.to_owned() })
        }
        _ => Err(format!("{text:?} is not a site: expected name=host:port")),
    }
}

/// Writes the records, has all sites work on them, and reports.
pub(crate) fn run(args: &SitesLoadArgs) -> Result<()> {
    let names: BTreeSet<&str> = args.site.iter().map(|site| site.name.as_str()).collect();
    if names.len() < args.site.len() {
        return Err(Failure::usage("two sites have the same name"));
    }
    if args.pipeline > 1 && !args.think_ms.is_zero() {
        return Err(Failure::usage("who thinks has one request under way: --think-ms is without --pipeline"));
    }
    let records = Records::new(&args.records, args.site.len())?;
    let servers = args.site.iter().map(|site| site.server.clone()).collect::<Vec<_>>();
    let servers = connect::resolve_all(&servers, &args.target.tls)?;
    if !args.prepared {
        let first = connect::resolve_all(&args.target.server, &args.target.tls)?;
        run::prepare(&first, &args.target, records.tops(), args.records.records, args.records.payload)?;
    }
    // All sessions are there before any of them asks.
    let clients = servers
        .iter()
        .enumerate()
        .map(|(number, server)| clients(args, &records, number, server))
        .collect::<Result<Vec<_>>>()?;
    let (began, before) = (Instant::now(), Usage::of_all(&args.target.server_pid)?);
    let outcomes = run_all(clients, &plan(args))?;
    let after = Usage::of_all(&args.target.server_pid)?;
    let report = SitesReport {
        settings: settings(args, &records),
        elapsed: began.elapsed(),
        server: before.zip(after),
        sites: args.site.iter().map(|site| site.name.as_str()).zip(&outcomes).collect(),
    };
    let text = if args.target.json { format!("{:#}\n", report.json()) } else { report.text() };
    std::io::stdout().write_all(text.as_bytes()).context("cannot print the report")
}

/// The clients of one site.
struct Clients {
    sessions: Vec<(Session, Pace)>,
    accesses: Limited<Accesses>,
}

/// Connects the clients of a site.
fn clients(args: &SitesLoadArgs, records: &Records, number: usize, server: &Server) -> Result<Clients> {
    let servers = std::slice::from_ref(server);
    let pace = match args.think_ms.is_zero() {
        true => Pace::AtWill,
        false => Pace::Thinking { pause: nanos(args.think_ms) },
    };
    let sessions = connect::open_sessions(servers, args.sessions as usize, args.target.timeout)?
        .into_iter()
        .enumerate()
        .map(|(index, stream)| Ok((Session::new(stream.into(), index, args.pipeline as usize, false)?, pace)))
        .collect::<Result<_>>()?;
    let accesses = Accesses::new(records, number, args.writes, args.records.payload, args.seed);
    Ok(Clients { sessions, accesses: Limited::new(accesses, args.operations.unwrap_or(u64::MAX)) })
}

fn plan(args: &SitesLoadArgs) -> Plan {
    Plan { duration: Some(args.duration), interval: Some(INTERVAL), ..Plan::default() }
}

/// Runs all sites at the same time.
fn run_all(sites: Vec<Clients>, plan: &Plan) -> Result<Vec<Outcome>> {
    let run =
        |Clients { sessions, accesses }| run::finish(Generator::new(sessions, accesses)?.run(plan.clone())?);
    thread::scope(|scope| {
        let running: Vec<_> = sites.into_iter().map(|site| scope.spawn(move || run(site))).collect();
        running
            .into_iter()
            .map(|site| site.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn settings(args: &SitesLoadArgs, records: &Records) -> Value {
    let mut settings = json!({
        "op": "sites",
        "sessions": args.sessions,
        "pipeline": args.pipeline,
        "writes_percent": args.writes * 100.0,
        "prepared": args.prepared,
        "think_ms": args.think_ms.as_secs_f64() * 1e3,
        "operations": args.operations,
        "duration_s": args.duration.as_secs_f64(),
        "seed": args.seed,
    });
    settings["records"] = records.settings();
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_a_name_and_a_server() {
        let site = Site { name: "west".to_owned(), server: "127.0.0.1:2181".to_owned() };
        assert_eq!(parse_site("west=127.0.0.1:2181"), Ok(site));
        for wrong in ["", "west", "=127.0.0.1:2181", "west="] {
            assert!(parse_site(wrong).is_err(), "{wrong:?}");
        }
    }
}
