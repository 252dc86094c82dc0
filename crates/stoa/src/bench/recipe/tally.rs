//! What the clients have done, and the report of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::bench::clock::Nanos;
use crate::bench::process::Usage;
use crate::bench::record::{Window, latency_histogram};
use crate::bench::report::latency_json;

/// Counts what ends within a window, by its name. What is still under way when the window ends counts too, but as
/// nothing that was achieved: clients that are beaten by others again and again would be left out otherwise, with
/// all that they have sent.
#[derive(Debug, Default)]
pub(super) struct Tally {
    window: Window,
    steps: BTreeMap<&'static str, Step>,
    clients: Vec<OfClient>,
}

#[derive(Debug)]
struct Step {
    done: u64,
    latencies: Histogram<u64>,
    /// What the clients have sent for it.
    bytes: u64,
}

#[derive(Debug, Clone, Default)]
struct OfClient {
    /// How much it has done, of whatever kind.
    done: u64,
    under_way: Option<UnderWay>,
}

#[derive(Debug, Clone)]
struct UnderWay {
    step: &'static str,
    /// When it began; `None` when its latency is that of something else.
    began: Option<Nanos>,
    /// What the client had sent by then, or by the beginning of the window.
    sent: u64,
}

impl Tally {
    pub(super) fn new(window: Window, clients: usize) -> Self {
        Self { window, steps: BTreeMap::new(), clients: vec![OfClient::default(); clients] }
    }

    /// A client, which has sent so many bytes so far, begins with something.
    pub(super) fn begin(&mut self, client: usize, step: &'static str, began: Option<Nanos>, sent: u64) {
        self.clients[client].under_way = Some(UnderWay { step, began, sent });
    }

    /// The window begins; each client has sent so much.
    pub(super) fn open(&mut self, sent: impl IntoIterator<Item = u64>) {
        for (client, sent) in self.clients.iter_mut().zip(sent) {
            if let Some(under_way) = &mut client.under_way {
                under_way.sent = sent;
            }
        }
    }

    /// A client has done what it began with; its latency is the time from `began`.
    pub(super) fn done(&mut self, client: usize, began: Nanos, now: Nanos, sent: u64) {
        let under_way = self.clients[client].under_way.take();
        let Some(under_way) = under_way.filter(|_| self.window.contains(now)) else { return };
        self.clients[client].done += 1;
        let step = self.step(under_way.step);
        step.done += 1;
        step.latencies.saturating_record(now.saturating_sub(began));
        step.bytes += sent - under_way.sent;
    }

    /// The window has ended; each client has sent so much.
    pub(super) fn close(&mut self, sent: impl IntoIterator<Item = u64>) {
        let end = self.window.end;
        for (client, sent) in sent.into_iter().enumerate() {
            let Some(under_way) = self.clients[client].under_way.take() else { continue };
            let step = self.step(under_way.step);
            step.bytes += sent - under_way.sent;
            if let Some(began) = under_way.began {
                step.latencies.saturating_record(end.saturating_sub(began));
            }
        }
    }

    fn step(&mut self, name: &'static str) -> &mut Step {
        self.steps.entry(name).or_insert_with(|| Step { done: 0, latencies: latency_histogram(), bytes: 0 })
    }
}

/// What a run is worth telling.
pub(super) struct RecipeReport {
    pub(super) settings: Value,
    /// The step whose number is the throughput.
    pub(super) counted: &'static str,
    pub(super) tally: Tally,
    pub(super) elapsed: Duration,
    /// Usage of the servers and of the generator when the measurement began, and when it ended.
    pub(super) before: (Option<Usage>, Usage),
    pub(super) after: (Option<Usage>, Usage),
}

impl RecipeReport {
    fn operations(&self) -> u64 {
        self.tally.steps.get(self.counted).map_or(0, |step| step.done)
    }

    fn throughput(&self) -> f64 {
        self.operations() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// CPU time an operation, microseconds.
    fn cpu_us(&self, before: Usage, after: Usage) -> f64 {
        after.cpu_us.saturating_sub(before.cpu_us) as f64 / (self.operations() as f64).max(1.0)
    }

    fn server_cpu_us(&self) -> Option<f64> {
        Some(self.cpu_us(self.before.0?, self.after.0?))
    }

    /// As a JSON object. Times are in microseconds.
    pub(super) fn json(&self) -> Value {
        let (mut latencies, mut bytes) = (Map::new(), Map::new());
        for (&name, step) in &self.tally.steps {
            latencies.insert(name.to_owned(), latency_json(&step.latencies));
            bytes.insert(name.to_owned(), json!(step.bytes_each()));
        }
        let of_clients = self.tally.clients.iter().map(|client| client.done);
        let mut report = json!({
            "settings": self.settings,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "operations": self.operations(),
            "throughput": self.throughput(),
            // Whatever is refused and not a part of the recipe ends the run.
            "errors": {},
            "latency_us": latencies,
            "bytes_sent": bytes,
            "of_a_client": { "fewest": of_clients.clone().min(), "most": of_clients.max() },
            "generator_cpu_us_per_operation": self.cpu_us(self.before.1, self.after.1),
        });
        if let Some(cpu_us) = self.server_cpu_us() {
            report["server"] = json!({ "cpu_us_per_operation": cpu_us });
        }
        report
    }

    /// As a few lines.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("a String takes everything");
            out.push('\n');
        };
        line(format_args!(
            "{} times {} in {:.2} s: {:.0} a second",
            self.operations(),
            self.counted,
            self.elapsed.as_secs_f64(),
            self.throughput()
        ));
        for (name, step) in &self.tally.steps {
            let [p50, p99] = [50.0, 99.0].map(|p| step.latencies.value_at_percentile(p) as f64 / 1e3);
            let mean = step.latencies.mean() / 1e3;
            let bytes = step.bytes_each();
            line(format_args!(
                "{name:<10} mean {mean:.1} us, p50 {p50:.1} us, p99 {p99:.1} us, {bytes:.0} bytes sent each"
            ));
        }
        if let Some(cpu_us) = self.server_cpu_us() {
            line(format_args!("servers: {cpu_us:.1} us of CPU an operation"));
        }
        line(format_args!(
            "generator: {:.1} us of CPU an operation",
            self.cpu_us(self.before.1, self.after.1)
        ));
        out
    }
}

impl Step {
    /// Bytes sent for one that was achieved, by all clients.
    fn bytes_each(&self) -> f64 {
        self.bytes as f64 / (self.done as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tally: Tally) -> Value {
        let usage = |cpu_us| (None, Usage { cpu_us, rss_kib: 0 });
        let (settings, elapsed) = (json!({}), Duration::from_secs(4));
        RecipeReport { settings, counted: "add", tally, elapsed, before: usage(5), after: usage(11) }.json()
    }

    #[test]
    fn only_what_ends_in_the_window_counts() {
        let mut tally = Tally::new(Window { start: 100, end: 200 }, 2);
        for (client, began, now, bytes) in
            [(0, 10, 99, 1), (0, 50, 150, 40), (1, 120, 199, 60), (1, 150, 200, 1)]
        {
            tally.begin(client, "add", Some(began), 1000);
            tally.done(client, began, now, 1000 + bytes);
        }
        let report = report(tally);
        assert_eq!((&report["operations"], &report["throughput"]), (&json!(2), &json!(0.5)));
        assert_eq!(
            (&report["bytes_sent"]["add"], &report["latency_us"]["add"]["count"]),
            (&json!(50.0), &json!(2))
        );
        assert_eq!(report["of_a_client"], json!({"fewest": 1, "most": 1}));
        assert_eq!(report["generator_cpu_us_per_operation"], 3.0);
        assert!(report.get("server").is_none(), "{report}");
    }

    #[test]
    fn what_a_beaten_client_sends_in_the_window_is_a_part_of_the_cost() {
        let mut tally = Tally::new(Window { start: 100_000, end: 200_000 }, 2);
        tally.begin(1, "add", Some(50_000), 0);
        tally.open([7, 300]);
        for _ in 0..2 {
            tally.begin(0, "add", Some(150_000), 10);
            tally.done(0, 150_000, 151_000, 30);
        }
        tally.close([30, 1000]);
        let report = report(tally);
        assert_eq!((&report["operations"], &report["latency_us"]["add"]["count"]), (&json!(2), &json!(3)));
        assert_eq!(report["bytes_sent"]["add"], (20.0 + 20.0 + 700.0) / 2.0);
        assert!(report["latency_us"]["add"]["max"].as_f64().unwrap() >= 150.0, "{report}");
        assert_eq!(report["of_a_client"]["fewest"], 0);
    }
}
