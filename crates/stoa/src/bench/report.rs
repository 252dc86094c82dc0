//! The results of a run, for people and for scripts.

use std::fmt::Write as _;
use std::time::SystemTime;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use stoa_wire::ErrorCode;

use super::generator::Outcome;
use super::record::Record;

/// Percentiles of the report with their names.
const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

/// Everything that a run is worth telling.
pub(crate) struct Report<'a> {
    /// The settings of the run.
    pub(crate) settings: Value,
    /// What came of it.
    pub(crate) outcome: &'a Outcome,
}

impl Report<'_> {
    fn replies(&self) -> u64 {
        self.outcome.record.replies
    }

    fn throughput(&self) -> f64 {
        self.replies() as f64 / self.outcome.elapsed.as_secs_f64().max(1e-9)
    }

    fn per_reply(&self, total_us: u64) -> f64 {
        total_us as f64 / (self.replies() as f64).max(1.0)
    }

    /// As a JSON object. Times are in microseconds.
    pub(crate) fn json(&self) -> Value {
        let record = &self.outcome.record;
        let mut latencies = Map::new();
        for (op, histogram) in record.latencies() {
            latencies.insert(op.name().to_owned(), latency_json(histogram));
        }
        let errors: Map<String, Value> =
            record.errors.iter().map(|(&code, &count)| (error_name(code), json!(count))).collect();
        let (before, after) = self.outcome.generator;
        let mut report = json!({
            "settings": self.settings,
            "elapsed_s": self.outcome.elapsed.as_secs_f64(),
            "operations": self.replies(),
            "throughput": self.throughput(),
            "errors": errors,
            "unanswered": record.unanswered,
            "latency_us": latencies,
            "request_bytes": self.outcome.request_bytes,
            "reply_bytes": reply_bytes(record),
            "generator_cpu_us_per_operation": self.per_reply(after.cpu_us - before.cpu_us),
        });
        if let Some(parts) = &record.parts {
            let (replies, errors): (Vec<u64>, Vec<u64>) = parts.replies.iter().copied().unzip();
            let interval_ms = parts.interval as f64 / 1e6;
            let began = self.outcome.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            report["parts"] = json!({
                "began_unix_ms": began.as_secs_f64() * 1e3,
                "interval_ms": interval_ms,
                "operations": replies,
                "errors": errors,
            });
        }
        if let Some((before, after)) = self.outcome.server {
            let cpu_us = after.cpu_us.saturating_sub(before.cpu_us);
            report["server"] = json!({
                "cpu_us_per_operation": self.per_reply(cpu_us),
                "cpu_cores": cpu_us as f64 / 1e6 / self.outcome.elapsed.as_secs_f64().max(1e-9),
                "rss_kib_before": before.rss_kib,
                "rss_kib_after": after.rss_kib,
            });
        }
        report
    }

    /// As a few lines.
    pub(crate) fn text(&self) -> String {
        let record = &self.outcome.record;
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("a String takes everything");
            out.push('\n');
        };
        line(format_args!(
            "{} operations in {:.2} s: {:.0} a second",
            self.replies(),
            self.outcome.elapsed.as_secs_f64(),
            self.throughput()
        ));
        if record.latencies().next().is_some() {
            line(format_args!(
                "{:<8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}   latency in us",
                "", "count", "p50", "p90", "p99", "p99.9", "max"
            ));
        }
        for (op, histogram) in record.latencies() {
            let [p50, p90, p99, p999] = PERCENTILES.map(|(_, p)| us(histogram.value_at_percentile(p)));
            line(format_args!(
                "{:<8} {:>10} {p50:>10.1} {p90:>10.1} {p99:>10.1} {p999:>10.1} {:>10.1}",
                op.name(),
                histogram.len(),
                us(histogram.max()),
            ));
        }
        for (&code, count) in &record.errors {
            line(format_args!("error {}: {count} times", error_name(code)));
        }
        if record.unanswered > 0 {
            line(format_args!("not answered in time: {}", record.unanswered));
        }
        line(format_args!(
            "bytes: {:.0} a request, {:.0} a reply",
            self.outcome.request_bytes,
            reply_bytes(record)
        ));
        if let Some((before, after)) = self.outcome.server {
            let cpu_us = after.cpu_us.saturating_sub(before.cpu_us);
            line(format_args!(
                "server: {:.3} us of CPU an operation, {:.2} cores, {} MiB resident (before: {})",
                self.per_reply(cpu_us),
                cpu_us as f64 / 1e6 / self.outcome.elapsed.as_secs_f64().max(1e-9),
                after.rss_kib / 1024,
                before.rss_kib / 1024
            ));
        }
        let (before, after) = self.outcome.generator;
        line(format_args!(
            "generator: {:.3} us of CPU an operation",
            self.per_reply(after.cpu_us - before.cpu_us)
        ));
        out
    }
}

fn reply_bytes(record: &Record) -> f64 {
    record.reply_bytes as f64 / (record.replies as f64).max(1.0)
}

/// The percentiles of latencies in nanoseconds, as microseconds.
pub(crate) fn latency_json(histogram: &Histogram<u64>) -> Value {
    let mut latency = Map::new();
    latency.insert("count".to_owned(), json!(histogram.len()));
    latency.insert("mean".to_owned(), json!(histogram.mean() / 1e3));
    for (name, percentile) in PERCENTILES {
        latency.insert(name.to_owned(), json!(us(histogram.value_at_percentile(percentile))));
    }
    latency.insert("max".to_owned(), json!(us(histogram.max())));
    Value::Object(latency)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The name of an error code, or its number.
pub(crate) fn error_name(code: i32) -> String {
    ErrorCode::from_i32(code).map_or_else(|| code.to_string(), |code| code.name().to_owned())
}
