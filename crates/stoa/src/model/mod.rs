//! `stoa model`: what rounds, operations, locks and writes of several sites are expected to take, without a server.

mod lock;
mod output;
mod plot;
mod sites;
mod times;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use stoa_model::{Chain, Contact, Ensemble, Network, SERVERS_MAX, Spread, interval_ms};

use crate::failure::{Failure, Result};
use lock::{GridArgs, PrimitiveArgs};
use output::{OutputArgs, ms};
use plot::{Lines, Series};
use sites::SitesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Until a leader has replies of some or all others
    Round(RoundArgs),
    /// Reads, writes, syncs and new sessions of a client
    Operation(OperationArgs),
    /// Locks, each of them under one load
    Primitive(PrimitiveArgs),
    /// The best lock for each round trip and number of clients
    Grid(GridArgs),
    /// Writes of several data centres, by who holds the right to write
    Sites(SitesArgs),
}

/// Carries out the command.
pub(crate) fn run(command: &ModelCommand) -> Result<()> {
    match command {
        ModelCommand::Round(args) => args.run(),
        ModelCommand::Operation(args) => args.run(),
        ModelCommand::Primitive(args) => args.run(),
        ModelCommand::Grid(args) => args.run(),
        ModelCommand::Sites(args) => args.run(),
    }
}

/// Parameters that the models refuse are mistakes in the command line.
fn valid<T>(result: std::result::Result<T, stoa_model::Invalid>) -> Result<T> {
    result.map_err(Failure::usage)
}

fn servers(text: &str) -> std::result::Result<usize, String> {
    let range = 1..=SERVERS_MAX;
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("an ensemble has 1 to {SERVERS_MAX} servers"))
}

/// The servers.
#[derive(Debug, Args)]
struct ServersArgs {
    /// How many servers
    #[arg(long, default_value = "3", value_parser = servers, value_name = "N")]
    servers: usize,
    /// Round trip between two servers
    #[arg(long, default_value = "0.5ms", value_parser = times::spread, value_name = "TIME")]
    server_rtt: Spread,
    /// Until a write to a server's log is synced
    #[arg(long, default_value = "0.2ms", value_parser = times::spread, value_name = "TIME")]
    disk: Spread,
    /// The server that clients are connected to
    #[arg(long, default_value = "leader")]
    contact: ContactServer,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ContactServer {
    Leader,
    Follower,
}

impl ServersArgs {
    /// With a client that is so far away.
    fn network(&self, client: Spread) -> Result<Network> {
        let ensemble = valid(Ensemble::even(self.servers, &self.server_rtt, self.disk.clone()))?;
        let contact = match self.contact {
            ContactServer::Leader => Contact::Leader,
            ContactServer::Follower => Contact::Follower(0),
        };
        valid(Network::new(client, ensemble, contact))
    }
}

#[derive(Debug, Args)]
pub(crate) struct RoundArgs {
    /// How many servers, the leader included
    #[arg(long, default_value = "3", value_parser = servers, value_name = "N")]
    servers: usize,
    /// Round trip between the leader and each other one
    #[arg(long, value_parser = times::spread, value_name = "TIME")]
    rtt: Spread,
    /// The unit of time of the Markov chain
    #[arg(long, default_value = "0.1ms", value_parser = times::milliseconds, value_name = "TIME")]
    unit: f64,
    #[command(flatten)]
    output: OutputArgs,
}

impl RoundArgs {
    fn run(&self) -> Result<()> {
        let others = self.servers - 1;
        if others == 0 {
            return Err(Failure::usage("one server alone asks nobody: a round takes two or more"));
        }
        let chain = valid(Chain::new(&self.rtt, self.unit))?;
        let all = vec![self.rtt.clone(); others];
        let mut rows = vec![["replies", "mean", "p50", "p99", "chain"].map(str::to_owned).to_vec()];
        let (mut values, mut series) = (Vec::new(), Vec::new());
        for awaited in 1..=others {
            let (round, chain_ms) = (Spread::kth(&all, awaited), chain.round_ms(others, awaited));
            let majority = if awaited == self.servers / 2 { ", a majority" } else { "" };
            let name = format!("{awaited} of {others}{majority}");
            let mut row = vec![name.clone()];
            row.extend([round.mean(), round.quantile(0.5), round.quantile(0.99), chain_ms].map(ms));
            rows.push(row);
            values.push(json!({
                "awaited": awaited,
                "mean": round.mean(),
                "p50": round.quantile(0.5),
                "p99": round.quantile(0.99),
                "chain": chain_ms,
            }));
            let points = (0..=100).map(|percent| f64::from(percent) / 100.0).map(|p| (round.quantile(p), p));
            series.push((name, points.collect()));
        }
        let plot = || Lines {
            title: format!("Rounds of {} servers", self.servers),
            x_title: "ms".to_owned(),
            y_title: "share of rounds that are over".to_owned(),
            series,
        };
        self.output.show(&rows, &json!({ "servers": self.servers, "rounds": values }), || plot().svg())
    }
}

#[derive(Debug, Args)]
pub(crate) struct OperationArgs {
    /// Round trip between the client and its server
    #[arg(long, default_value = "1ms", value_parser = times::spread, value_name = "TIME")]
    client_rtt: Spread,
    #[command(flatten)]
    servers: ServersArgs,
    /// How many requests a client that does not wait for answers has under way
    #[arg(long, default_value_t = 64, value_name = "N")]
    window: u32,
    /// Processor time that a request takes the server that does most
    #[arg(long, default_value = "2us", value_parser = times::milliseconds, value_name = "TIME")]
    busy: f64,
    #[command(flatten)]
    output: OutputArgs,
}

/// The operations of a network with their names.
fn operations(network: &Network) -> [(&'static str, Spread); 4] {
    [
        ("read", network.read()),
        ("write", network.write()),
        ("sync", network.sync()),
        ("connect", network.connect()),
    ]
}

impl OperationArgs {
    fn run(&self) -> Result<()> {
        let network = self.servers.network(self.client_rtt.clone())?;
        let header = ["operation", "mean", "p50", "p99", "between answers"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let mut values = serde_json::Map::new();
        for (name, time) in operations(&network) {
            let between_ms = valid(interval_ms(time.mean(), self.window, self.busy))?;
            let mut row = vec![name.to_owned()];
            row.extend([time.mean(), time.quantile(0.5), time.quantile(0.99)].map(ms));
            row.push(format!("{between_ms:.4}"));
            rows.push(row);
            let value = json!({
                "mean": time.mean(),
                "p50": time.quantile(0.5),
                "p99": time.quantile(0.99),
                "between_answers": between_ms,
            });
            values.insert(name.to_owned(), value);
        }
        let series = self.over_round_trips()?;
        let plot = || Lines {
            title: "Operations, one after the other".to_owned(),
            x_title: "round trip between client and server in ms".to_owned(),
            y_title: "mean latency in ms".to_owned(),
            series,
        };
        self.output.show(&rows, &Value::Object(values), || plot().svg())
    }

    /// Mean latencies by round trip of the client: Figure 9.
    fn over_round_trips(&self) -> Result<Vec<Series>> {
        let mut series: Vec<Series> = Vec::new();
        for client_ms in (0..=250).step_by(50).map(f64::from) {
            let network = self.servers.network(valid(Spread::constant(client_ms))?)?;
            for (index, (name, time)) in operations(&network).into_iter().enumerate() {
                if series.len() == index {
                    series.push((name.to_owned(), Vec::new()));
                }
                series[index].1.push((client_ms, time.mean()));
            }
        }
        Ok(series)
    }
}
