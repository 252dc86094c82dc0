//! What the clients of each site met, for people and for scripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::super::clock::nanos;
use super::super::generator::Outcome;
use super::super::process::Usage;
use super::super::report::{Report, error_name};
use super::super::requests::Op;

/// A write that is answered faster went to no other site.
const LOCAL: Duration = Duration::from_millis(5);

/// Everything that a run is worth telling.
pub(super) struct SitesReport<'a> {
    pub(super) settings: Value,
    /// Until the last site was done.
    pub(super) elapsed: Duration,
    /// The use that all servers have made of the machine before and after.
    pub(super) server: Option<(Usage, Usage)>,
    /// By name.
    pub(super) sites: Vec<(&'a str, &'a Outcome)>,
}

impl SitesReport<'_> {
    /// As a JSON object. Times are in microseconds unless a name says otherwise.
    pub(super) fn json(&self) -> Value {
        let mut errors: BTreeMap<String, u64> = BTreeMap::new();
        for (code, count) in self.sites.iter().flat_map(|(_, outcome)| &outcome.record.errors) {
            *errors.entry(error_name(*code)).or_default() += count;
        }
        let sites: Map<String, Value> =
            self.sites.iter().map(|(name, outcome)| ((*name).to_owned(), site_json(outcome))).collect();
        let mut report = json!({
            "settings": self.settings,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "operations": self.replies(),
            "writes": self.writes(),
            "errors": errors,
            "unanswered": self.sites.iter().map(|(_, outcome)| outcome.record.unanswered).sum::<u64>(),
            "sites": sites,
        });
        if let Some((before, after)) = self.server {
            let cpu_us = after.cpu_us.saturating_sub(before.cpu_us);
            report["server"] = json!({
                "cpu_us": cpu_us,
                "cpu_us_per_operation": cpu_us as f64 / (self.replies() as f64).max(1.0),
                "cpu_cores": cpu_us as f64 / 1e6 / self.elapsed.as_secs_f64().max(1e-9),
                "rss_kib_after": after.rss_kib,
            });
        }
        report
    }

    /// As a few lines for each site.
    pub(super) fn text(&self) -> String {
        let mut out = format!("records: {}\n", self.settings["records"]);
        if let Some((before, after)) = self.server {
            let cpu_us = after.cpu_us.saturating_sub(before.cpu_us);
            let each = cpu_us as f64 / (self.replies() as f64).max(1.0);
            writeln!(out, "servers: {each:.1} us of CPU an operation").expect("a String takes everything");
        }
        for (name, outcome) in &self.sites {
            writeln!(out, "\n{name}").expect("a String takes everything");
            let text = Report { settings: Value::Null, outcome }.text();
            // The generator's CPU time is that of all sites.
            for line in text.lines().filter(|line| !line.starts_with("generator")) {
                writeln!(out, "{line}").expect("a String takes everything");
            }
            if let Some(writes) = writes_of(outcome) {
                let (share, ms) = (100.0 * local_share(writes), LOCAL.as_millis());
                writeln!(out, "writes faster than {ms} ms: {share:.1} %").expect("a String takes everything");
            }
        }
        out
    }

    fn replies(&self) -> u64 {
        self.sites.iter().map(|(_, outcome)| outcome.record.replies).sum()
    }

    fn writes(&self) -> u64 {
        self.sites.iter().filter_map(|(_, outcome)| writes_of(outcome)).map(Histogram::len).sum()
    }
}

/// What one site met.
fn site_json(outcome: &Outcome) -> Value {
    let mut site = Report { settings: Value::Null, outcome }.json();
    if let Some(site) = site.as_object_mut() {
        // These are of the process and not of one site.
        site.remove("settings");
        site.remove("generator_cpu_us_per_operation");
    }
    // A site that was done earlier has no parts after that.
    if let (Some(counts), Some(parts)) = (site["parts"]["operations"].as_array_mut(), &outcome.record.parts) {
        counts.truncate(nanos(outcome.elapsed).div_ceil(parts.interval) as usize);
    }
    if let Some(writes) = writes_of(outcome) {
        site["local_writes"] = json!(local_share(writes));
        let us_at = |percent: u32| (writes.value_at_percentile(f64::from(percent)) + 500) / 1000;
        let ms_at = |percent| us_at(percent) as f64 / 1e3;
        site["write_ms_by_percent"] = (0..=100).map(ms_at).collect();
    }
    site
}

/// Latencies of a site's writes, nanoseconds; `None` when it made none.
fn writes_of(outcome: &Outcome) -> Option<&Histogram<u64>> {
    outcome.record.latencies().find_map(|(op, histogram)| (op == Op::Set).then_some(histogram))
}

/// The share of latencies that no way to another site is in.
fn local_share(latencies: &Histogram<u64>) -> f64 {
    latencies.count_between(0, nanos(LOCAL) - 1) as f64 / (latencies.len() as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::bench::record::{Record, Window};

    /// A site that made as many writes as there are latencies, milliseconds, one after the other.
    fn outcome(latencies_ms: &[u64]) -> Outcome {
        let mut record = Record::new(Window { start: 0, end: 20_000_000_000 });
        record.count_in_parts(1_000_000_000);
        let mut now = 0;
        for latency in latencies_ms {
            let sent = now;
            now += latency * 1_000_000;
            record.reply(Op::Set, sent, now, 10, 0);
        }
        let idle = Usage { cpu_us: 0, rss_kib: 0 };
        let (began, elapsed) = (SystemTime::UNIX_EPOCH, Duration::from_nanos(now));
        Outcome { record, began, elapsed, server: None, generator: (idle, idle), request_bytes: 0.0 }
    }

    #[test]
    fn each_site_stands_by_itself() {
        let (near, far) = (outcome(&[1; 1500]), outcome(&[2, 62, 62, 62]));
        let usage = |cpu_us| Usage { cpu_us, rss_kib: 7 };
        let report = SitesReport {
            settings: json!({}),
            elapsed: Duration::from_secs(2),
            server: Some((usage(1000), usage(4008))),
            sites: vec![("near", &near), ("far", &far)],
        };
        let json = report.json();
        assert_eq!((&json["operations"], &json["writes"]), (&json!(1504), &json!(1504)));
        assert_eq!(json["server"]["cpu_us_per_operation"], json!(2.0));
        let [near, far] = ["near", "far"].map(|name| &json["sites"][name]);
        assert_eq!((&near["local_writes"], &far["local_writes"]), (&json!(1.0), &json!(0.25)));
        assert_eq!(near["parts"]["operations"].as_array().map(Vec::len), Some(2));
        assert_eq!((near["operations"].as_u64(), far["operations"].as_u64()), (Some(1500), Some(4)));
        let by_percent = far["write_ms_by_percent"].as_array().unwrap();
        assert_eq!(by_percent.len(), 101);
        let ms = |percent: usize| by_percent[percent].as_f64().unwrap();
        assert!((ms(0) - 2.0).abs() < 0.1 && (ms(50) - 62.0).abs() < 0.1, "{by_percent:?}");
        assert!(report.text().contains("near\n1500 operations"), "{}", report.text());
    }
}
