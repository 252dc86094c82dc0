//! The metrics of a server.
//!
//! Every metric is one row of [`METRICS`]: the word `mntr`, the admin command `monitor`, Prometheus's
//! text at `/metrics` and the documentation are made from it. A metric that means what one of
//! ZooKeeper's means has ZooKeeper's name, unit and kind, so that dashboards and alert rules go on
//! working; the others begin with `stoa_` or `process_`.
//!
//! Prometheus's text format is written here by hand: client libraries name counters `..._total`, and
//! those of ZooKeeper are not.

mod absent;
mod table;
mod text;

use crate::process::{Memory, open_files, processor_seconds, started_seconds};
use crate::view::{Histogram, Stats};

pub use absent::{ABSENT, absent_table};
pub use table::{METRICS, metrics_table};
pub(crate) use table::{average_ms, latency_min_us};
pub use text::{monitor_lines, monitor_texts, monitor_values, prometheus};

/// One metric.
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    value: fn(&Figures) -> Value,
}

impl Metric {
    /// What it is now.
    pub fn value(&self, figures: &Figures) -> Value {
        (self.value)(figures)
    }
}

/// How a metric behaves, in Prometheus's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
    /// Count, sum and median.
    Summary,
    /// The same with more quantiles: ZooKeeper keeps them of some of its summaries.
    Quantiles,
    /// Counts in ranges.
    Histogram,
}

impl MetricKind {
    /// Prometheus's word for it.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Summary | MetricKind::Quantiles => "summary",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// What a metric is at a moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// A whole number that may be below zero.
    Signed(i64),
    /// Any number.
    Real(f64),
    /// A text that is there to be read, as the value of a label.
    Label(&'static str, String),
    /// Values in a unit, of which there are so many counted ones to one: 1000 when microseconds were
    /// counted and milliseconds are shown.
    Spread(Histogram, f64),
    /// One value for each of several names of a label.
    Each(&'static str, Vec<(String, Value)>),
    /// Nothing to be said now.
    Absent,
}

/// What metrics are made of: the server's figures and the process's.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The server's.
    pub stats: Stats,
    /// Open files, and how many may be.
    pub files: (u64, u64),
    /// Memory.
    pub memory: Memory,
    /// Processor time used, in seconds.
    pub processor_seconds: f64,
    /// When the process was started, in seconds since 1970.
    pub started_seconds: Option<f64>,
}

impl Figures {
    /// Those of the server as given, and of this process as it is now.
    pub fn now(stats: Stats) -> Figures {
        Figures {
            stats,
            files: open_files(),
            memory: Memory::now(),
            processor_seconds: processor_seconds(),
            started_seconds: started_seconds(),
        }
    }
}
