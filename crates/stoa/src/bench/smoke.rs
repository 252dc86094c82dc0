//! `stoa bench smoke`: basic operations as zk-smoketest has them, one client that creates, sets, reads and deletes
//! znodes: first each when the one before is answered, then all at once.

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use stoa_client::protocol::Call;
use stoa_client::{Acl, Client, CreateMode};
use tokio::runtime::Builder;

use super::clear::clear;
use super::clock::nanos;
use super::distance::{Distance, DistanceArgs, ms};
use super::record::latency_histogram;
use super::report::latency_json;
use super::run::Target;
use crate::failure::{Context as _, Failure, Result};

const OPERATIONS: [Operation; 4] = [Operation::Create, Operation::Set, Operation::Get, Operation::Delete];

/// Options of `stoa bench smoke`.
#[derive(Debug, Args)]
pub(crate) struct SmokeArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    distance: DistanceArgs,
    /// Where the znodes are; what is there is removed, first and last
    #[arg(long, default_value = "/bench-smoke", value_name = "PATH")]
    path: String,
    /// How many sessions are opened one after the other, to see how long that takes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// How many of each operation one after the other
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    one_by_one: u32,
    /// Wait so long before each of those, as clients do that have something else to do
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pause_ms: u64,
    /// How many of each operation at once
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    at_once: u32,
    /// Bytes of data of a znode
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    payload: u32,
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Create,
    Set,
    Get,
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Set => "set",
            Self::Get => "get",
            Self::Delete => "delete",
        }
    }

    fn call(self, root: &str, number: u32, data: &[u8]) -> Call {
        let (path, data) = (format!("{root}/{number}"), data.to_owned());
        match self {
            Self::Create => Call::Create {
                path,
                data,
                acl: Acl::open(),
                mode: CreateMode::Persistent,
                ttl_ms: None,
                with_stat: false,
            },
            Self::Set => Call::SetData { path, data, version: None },
            Self::Get => Call::GetData { path, watch: None },
            Self::Delete => Call::Delete { path, version: None },
        }
    }
}

/// Runs the operations and reports.
pub(crate) fn run(args: &SmokeArgs) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let report = runtime.block_on(measure(args))?;
    let text = if args.target.json { format!("{}\n", report.json(args)) } else { report.text() };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot print the report")
}

/// How long operations took.
struct SmokeReport {
    connect: Histogram<u64>,
    /// Each, where one follows the other.
    one_by_one: Vec<Histogram<u64>>,
    /// All together, where nobody waits for answers.
    at_once: Vec<Duration>,
}

async fn measure(args: &SmokeArgs) -> Result<SmokeReport> {
    let refused = |what: &'static str| move |code| Failure::failed(format!("cannot {what}: {code}"));
    let distance = Distance::open(&args.target, args.distance).await?;
    let mut connect = latency_histogram();
    for number in 0..args.connections {
        let began = Instant::now();
        let client = distance.connect(number as usize).await?;
        connect.saturating_record(nanos(began.elapsed()));
        client.close().await.map_err(refused("close a session"))?;
    }
    let client = distance.connect(0).await?;
    clear(&client, &args.path).await.map_err(refused("clean up"))?;
    client.create(&args.path, b"", CreateMode::Persistent).await.map_err(refused("create a znode"))?;
    let data = vec![b'x'; args.payload as usize];
    let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
    for operation in OPERATIONS {
        let calls = (0..args.one_by_one).map(|number| operation.call(&args.path, number, &data));
        let pause = Duration::from_millis(args.pause_ms);
        one_by_one.push(follow(&client, calls, pause).await.map_err(refused(operation.name()))?);
    }
    for operation in OPERATIONS {
        let calls: Vec<_> =
            (0..args.at_once).map(|number| operation.call(&args.path, number, &data)).collect();
        let began = Instant::now();
        for answer in client.call_all(calls).await {
            answer.map_err(refused(operation.name()))?;
        }
        at_once.push(began.elapsed());
    }
    clear(&client, &args.path).await.map_err(refused("clean up"))?;
    client.close().await.map_err(refused("close a session"))?;
    Ok(SmokeReport { connect, one_by_one, at_once })
}

/// Makes calls, each when the one before is answered and a pause is over.
async fn follow(
    client: &Client,
    calls: impl Iterator<Item = Call>,
    pause: Duration,
) -> std::result::Result<Histogram<u64>, stoa_client::ErrorCode> {
    let mut latencies = latency_histogram();
    for call in calls {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let began = Instant::now();
        client.call(call).await?;
        latencies.saturating_record(nanos(began.elapsed()));
    }
    Ok(latencies)
}

impl SmokeReport {
    /// As a JSON object, in microseconds. What is done at once has no latency: its time is divided by how many.
    fn json(&self, args: &SmokeArgs) -> Value {
        let (mut one_by_one, mut at_once) = (Map::new(), Map::new());
        for ((operation, latencies), took) in OPERATIONS.iter().zip(&self.one_by_one).zip(&self.at_once) {
            one_by_one.insert(operation.name().to_owned(), latency_json(latencies));
            let each = took.as_secs_f64() * 1e6 / f64::from(args.at_once);
            at_once.insert(operation.name().to_owned(), json!(each));
        }
        json!({
            "settings": {
                "rtt_ms": ms(args.distance.rtt_ms),
                "jitter_ms": ms(args.distance.jitter_ms),
                "at_once": args.at_once,
                "pause_ms": args.pause_ms,
                "payload": args.payload,
            },
            "latency_us": { "connect": latency_json(&self.connect), "one_by_one": one_by_one },
            "us_each_at_once": at_once,
        })
    }

    /// As a few lines.
    fn text(&self) -> String {
        let mean_ms = |latencies: &Histogram<u64>| latencies.mean() / 1e6;
        let mut out = format!("connect  {:.3} ms\n", mean_ms(&self.connect));
        for ((operation, latencies), took) in OPERATIONS.iter().zip(&self.one_by_one).zip(&self.at_once) {
            out += &format!(
                "{:<8} {:.3} ms one by one, all at once in {:.3} ms\n",
                operation.name(),
                mean_ms(latencies),
                ms(*took)
            );
        }
        out
    }
}
