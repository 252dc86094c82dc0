//! `stoa model primitive` and `stoa model grid`.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use stoa_model::{Arrivals, Network, Prediction, Primitive, Section, Spread, Tuning, Workload, predict};

use super::output::{OutputArgs, ms};
use super::plot::{Heat, Lines, Series};
use super::{ServersArgs, times, valid};
use crate::failure::Result;

/// How locks are used, whoever wants them.
#[derive(Debug, Args)]
struct LockModelArgs {
    /// How long the lock is needed for, on average
    #[arg(long, default_value = "1ms", value_parser = times::milliseconds, value_name = "TIME")]
    section: f64,
    /// Always as long, instead of exponentially distributed
    #[arg(long)]
    fixed_section: bool,
    /// How often asynchronous locks ask
    #[arg(long, default_value = "5ms", value_parser = times::milliseconds, value_name = "TIME")]
    poll: f64,
    /// The synchronous queue believes its watch, as in the paper, instead of looking again
    #[arg(long)]
    trust_events: bool,
}

impl LockModelArgs {
    fn section(&self, mean_ms: f64) -> Result<Section> {
        valid(if self.fixed_section { Section::fixed(mean_ms) } else { Section::exponential(mean_ms) })
    }

    fn tuning(&self) -> Result<Tuning> {
        valid(Tuning::new(self.poll, !self.trust_events))
    }
}

#[derive(Debug, Args)]
pub(crate) struct PrimitiveArgs {
    /// Round trip between clients and their server
    #[arg(long, default_value = "1ms", value_parser = times::spread, value_name = "TIME")]
    client_rtt: Spread,
    #[command(flatten)]
    servers: ServersArgs,
    #[command(flatten)]
    lock: LockModelArgs,
    /// Time between requests, whatever becomes of those before
    #[arg(long, default_value = "500ms", value_parser = times::milliseconds, value_name = "TIME")]
    between: f64,
    /// Requests come at fixed times, instead of at random
    #[arg(long)]
    regular: bool,
    /// When more is asked for than the lock can give: the mean of so many requests, instead of none
    #[arg(long, conflicts_with = "clients", value_name = "N")]
    requests: Option<u32>,
    /// So many clients that want the lock again and again, instead
    #[arg(long, conflicts_with_all = ["between", "regular"], value_name = "N")]
    clients: Option<u32>,
    /// How long they wait in between
    #[arg(long, default_value = "100ms", requires = "clients", value_parser = times::milliseconds, value_name = "TIME")]
    think: f64,
    /// What the plot goes over
    #[arg(long, default_value = "rtt")]
    over: Over,
    /// The points of the plot, in milliseconds
    #[arg(
        long,
        default_value = "0,10,25,50,75,100,150,200,250",
        value_delimiter = ',',
        value_parser = times::milliseconds,
        value_name = "TIMES"
    )]
    points: Vec<f64>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Over {
    /// The clients' round trip: Figures 15 and 16
    Rtt,
    /// The critical section: Figures 13 and 14
    Section,
}

impl PrimitiveArgs {
    pub(super) fn run(&self) -> Result<()> {
        let network = self.servers.network(self.client_rtt.clone())?;
        let header = ["primitive", "latency", "alone", "waiting", "locks/s", "requests"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let mut values = serde_json::Map::new();
        for primitive in Primitive::ALL {
            let found = self.predict(&network, primitive, self.lock.section)?;
            let requests =
                if found.requests.is_finite() { format!("{:.1}", found.requests) } else { "-".to_owned() };
            rows.push(vec![
                primitive.name().to_owned(),
                ms(found.latency_ms),
                ms(found.alone_ms),
                format!("{:.0}%", found.waiting * 100.0),
                format!("{:.2}", found.per_ms * 1e3),
                requests,
            ]);
            values.insert(primitive.name().to_owned(), prediction_json(&found));
        }
        let series = if self.output.wants_plot() { self.series(&network)? } else { Vec::new() };
        let plot = || Lines {
            title: "Until a lock is had".to_owned(),
            x_title: match self.over {
                Over::Rtt => "round trip between client and server in ms".to_owned(),
                Over::Section => "mean critical section in ms".to_owned(),
            },
            y_title: "mean latency in ms".to_owned(),
            series,
        };
        self.output.show(&rows, &Value::Object(values), || plot().svg())
    }

    fn predict(&self, network: &Network, primitive: Primitive, section_ms: f64) -> Result<Prediction> {
        let arrivals = match self.clients {
            Some(clients) => Arrivals::Closed { clients, think_ms: self.think },
            None => {
                Arrivals::Open { between_ms: self.between, variation: if self.regular { 0.0 } else { 1.0 } }
            }
        };
        let workload = valid(Workload::new(self.lock.section(section_ms)?, arrivals))?;
        let mut found = predict(network, primitive, self.lock.tuning()?, workload);
        if let Some(requests) = self.requests.filter(|_| found.latency_ms.is_infinite()) {
            found.latency_ms = found.overloaded_ms(self.between, requests);
        }
        Ok(found)
    }

    /// Latencies at the points of the plot.
    fn series(&self, network: &Network) -> Result<Vec<Series>> {
        let mut series = Vec::new();
        for primitive in Primitive::ALL {
            let mut points = Vec::new();
            for &point in &self.points {
                let found = match self.over {
                    Over::Rtt => {
                        let network = self.servers.network(valid(Spread::constant(point))?)?;
                        self.predict(&network, primitive, self.lock.section)?
                    }
                    Over::Section => self.predict(network, primitive, point)?,
                };
                points.push((point, found.latency_ms));
            }
            series.push((primitive.name().to_owned(), points));
        }
        Ok(series)
    }
}

fn prediction_json(found: &Prediction) -> Value {
    json!({
        "latency": found.latency_ms,
        "alone": found.alone_ms,
        "waiting": found.waiting,
        "locks_per_second": found.per_ms * 1e3,
        "busy": found.busy_ms,
        "requests": found.requests,
    })
}

#[derive(Debug, Args)]
pub(crate) struct GridArgs {
    #[command(flatten)]
    servers: ServersArgs,
    #[command(flatten)]
    lock: LockModelArgs,
    /// Round trips between clients and their server
    #[arg(
        long,
        default_value = "0,1,10,50,100,250",
        value_delimiter = ',',
        value_parser = times::milliseconds,
        value_name = "TIMES"
    )]
    rtts: Vec<f64>,
    /// Numbers of clients, from low contention to high
    #[arg(long, default_value = "1,2,4,8,16", value_delimiter = ',', value_name = "NUMBERS")]
    clients: Vec<u32>,
    /// How long each client waits between two locks
    #[arg(long, default_value = "100ms", value_parser = times::milliseconds, value_name = "TIME")]
    think: f64,
    /// The locks to choose from, of which one may be named alone; all when none is named
    #[arg(long, value_delimiter = ',', value_parser = primitive, value_name = "NAMES")]
    primitives: Vec<Primitive>,
    #[command(flatten)]
    output: OutputArgs,
}

fn primitive(name: &str) -> std::result::Result<Primitive, String> {
    let found = Primitive::ALL.into_iter().find(|primitive| primitive.name() == name);
    found.ok_or_else(|| {
        format!("`{name}` is no lock: these are {}", Primitive::ALL.map(Primitive::name).join(", "))
    })
}

impl GridArgs {
    pub(super) fn run(&self) -> Result<()> {
        let heading =
            |clients: &u32| if *clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        let columns: Vec<String> = self.clients.iter().map(heading).collect();
        let mut rows = vec![vec!["round trip".to_owned()]];
        rows[0].extend(columns.clone());
        let (mut values, mut cells) = (Vec::new(), Vec::new());
        for &rtt_ms in &self.rtts {
            let name = format!("{rtt_ms} ms");
            let mut heat = Vec::new();
            for &clients in &self.clients {
                let latencies = self.latencies(rtt_ms, clients)?;
                let (best, latency_ms) = best(&latencies);
                heat.push((format!("{} {}", best.name(), ms(latency_ms)), latency_ms));
                let all: serde_json::Map<_, _> = latencies
                    .iter()
                    .map(|(primitive, ms)| (primitive.name().to_owned(), json!(ms)))
                    .collect();
                let cell = json!({ "rtt": rtt_ms, "clients": clients, "best": best.name(), "latency": all });
                values.push(cell);
            }
            let mut row = vec![name.clone()];
            row.extend(heat.iter().map(|(text, _)| text.clone()));
            rows.push(row);
            cells.push((name, heat));
        }
        let plot = || Heat {
            title: "The best lock, and ms until it is had".to_owned(),
            x_title: "contention".to_owned(),
            y_title: "round trip".to_owned(),
            columns,
            rows: cells,
        };
        self.output.show(&rows, &Value::Array(values), || plot().svg())
    }

    fn latencies(&self, rtt_ms: f64, clients: u32) -> Result<Vec<(Primitive, f64)>> {
        let network = self.servers.network(valid(Spread::constant(rtt_ms))?)?;
        let arrivals = Arrivals::Closed { clients, think_ms: self.think };
        let workload = valid(Workload::new(self.lock.section(self.lock.section)?, arrivals))?;
        let tuning = self.lock.tuning()?;
        let primitives: &[Primitive] =
            if self.primitives.is_empty() { &Primitive::ALL } else { &self.primitives };
        let latency = |primitive: &Primitive| predict(&network, *primitive, tuning, workload).latency_ms;
        Ok(primitives.iter().map(|primitive| (*primitive, latency(primitive))).collect())
    }
}

/// The fastest. Of those that are within a hundredth of it, that which asks least of the service.
fn best(latencies: &[(Primitive, f64)]) -> (Primitive, f64) {
    let least = latencies.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
    let found = latencies.iter().filter(|(_, ms)| *ms <= least * 1.01);
    *found.min_by_key(|(primitive, _)| load_rank(*primitive)).expect("there is at least one lock")
}

/// The order in which locks load the service, other things being equal.
fn load_rank(primitive: Primitive) -> u8 {
    match primitive {
        Primitive::Extension => 0,
        Primitive::SyncQueue => 1,
        Primitive::TasWatch => 2,
        Primitive::SyncTas => 3,
        Primitive::AsyncQueueWatch => 4,
        Primitive::AsyncQueue => 5,
        Primitive::AsyncTas => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::Primitive;

    #[test]
    fn the_models_have_the_locks_of_the_client_library() {
        let taken = stoa_client::recipes::Primitive::ALL.map(stoa_client::recipes::Primitive::name);
        assert_eq!(Primitive::ALL.map(Primitive::name), taken);
    }
}
