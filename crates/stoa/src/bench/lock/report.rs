//! What came of a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use clap::ValueEnum as _;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use stoa_client::recipes::Primitive;

use super::LockArgs;
use super::resource::Resource;
use super::visits::Visit;
use crate::bench::clock::Nanos;
use crate::bench::distance::ms;
use crate::bench::process::Usage;
use crate::bench::record::latency_histogram;
use crate::bench::report::latency_json;

/// What is found out while the lock is used.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) resource: Resource,
    /// From when the lock was wanted until it was had, of the visits that count.
    latencies: Histogram<u64>,
    /// What clients have asked for in that time.
    requests: u64,
    /// How often each primitive was chosen.
    primitives: BTreeMap<&'static str, u64>,
}

impl Results {
    pub(super) fn new() -> Self {
        Self {
            resource: Resource::new(),
            latencies: latency_histogram(),
            requests: 0,
            primitives: BTreeMap::new(),
        }
    }

    /// Somebody has the lock, in the way that was chosen, after so many requests.
    pub(super) fn acquired(&mut self, visit: Visit, chosen: Primitive, requests: u64, now: Nanos) {
        if visit.counts {
            *self.primitives.entry(chosen.name()).or_default() += 1;
            self.latencies.saturating_record(now.saturating_sub(visit.at));
            self.requests += requests;
        }
    }
}

/// What a run is worth telling.
pub(super) struct LockReport<'a> {
    pub(super) args: &'a LockArgs,
    pub(super) results: Results,
    /// Those that do not count included.
    pub(super) visits: usize,
    pub(super) elapsed: Duration,
    /// What the clients have asked for in that time.
    pub(super) requests: u64,
    /// Usage of the servers and of this process when the first visit was awaited, and when the last one was over.
    pub(super) before: (Option<Usage>, Usage),
    pub(super) after: (Option<Usage>, Usage),
}

impl LockReport<'_> {
    fn each(&self, total: u64) -> f64 {
        total as f64 / self.visits.max(1) as f64
    }

    fn requests_until_held(&self) -> f64 {
        self.results.requests as f64 / (self.results.latencies.len() as f64).max(1.0)
    }

    fn cpu_us(&self, before: Usage, after: Usage) -> f64 {
        self.each(after.cpu_us.saturating_sub(before.cpu_us))
    }

    fn settings(&self) -> Value {
        let args = self.args;
        let name = |value: super::Distribution| value.to_possible_value().map(|v| v.get_name().to_owned());
        json!({
            "primitive": args.primitive.name(),
            "poll_ms": ms(args.poll_ms),
            "clients": args.clients,
            "visits": args.visits,
            "warmup": args.warmup,
            "interarrival_ms": ms(args.interarrival_ms),
            "arrivals": name(args.arrivals),
            "service_ms": ms(args.service_ms),
            "service": name(args.service),
            "rtt_ms": ms(args.distance.rtt_ms),
            "jitter_ms": ms(args.distance.jitter_ms),
            "seed": args.seed,
            "representative_ms": args.representative_ms.map(ms),
        })
    }

    /// As a JSON object. Latencies are in microseconds.
    pub(super) fn json(&self) -> Value {
        let Results { resource, latencies, .. } = &self.results;
        let mut report = json!({
            "settings": self.settings(),
            "elapsed_s": self.elapsed.as_secs_f64(),
            "latency_us": {
                "acquire": latency_json(latencies),
                "handover": latency_json(&resource.handovers),
            },
            "requests": {
                "until_held": self.requests_until_held(),
                "in_all": self.each(self.requests),
            },
            "primitives": self.results.primitives,
            "violations": resource.violations,
            "generator_cpu_us_per_operation": self.cpu_us(self.before.1, self.after.1),
        });
        if let Some((before, after)) = self.before.0.zip(self.after.0) {
            report["server"] = json!({ "cpu_us_per_operation": self.cpu_us(before, after) });
        }
        report
    }

    /// As a few lines.
    pub(super) fn text(&self) -> String {
        let Results { resource, latencies, .. } = &self.results;
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("a String takes everything");
            out.push('\n');
        };
        line(format_args!("{} times in {:.2} s", latencies.len(), self.elapsed.as_secs_f64()));
        for (name, times) in [("acquire", latencies), ("handover", &resource.handovers)] {
            let [p50, p99] = [50.0, 99.0].map(|p| times.value_at_percentile(p) as f64 / 1e6);
            let (mean, count) = (times.mean() / 1e6, times.len());
            line(format_args!(
                "{name:<10} mean {mean:.3} ms, p50 {p50:.3} ms, p99 {p99:.3} ms, {count} times"
            ));
        }
        line(format_args!(
            "{:.1} requests until it was had, {:.1} in all",
            self.requests_until_held(),
            self.each(self.requests)
        ));
        for (name, count) in &self.results.primitives {
            line(format_args!("{name} {count} times"));
        }
        line(format_args!("{} violations", resource.violations));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_counts_from_when_the_lock_was_wanted() {
        let mut results = Results::new();
        let visit = |at, counts| Visit { at, section: Duration::ZERO, counts };
        // It waited for a client first.
        results.acquired(visit(1_000_000, true), Primitive::SyncTas, 3, 6_000_000);
        results.acquired(visit(1_000_000, false), Primitive::TasWatch, 9, 100_000_000);
        assert_eq!((results.latencies.len(), results.requests), (1, 3));
        assert_eq!(results.primitives, BTreeMap::from([("sync-tas", 1)]));
        assert!((results.latencies.mean() / 5e6 - 1.0).abs() < 1e-3, "{}", results.latencies.mean());
    }
}
