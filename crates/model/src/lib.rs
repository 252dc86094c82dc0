//! What synchronization costs: how long rounds between servers, operations of clients and locks take, from the
//! round-trip times, the disk and the contention.
//!
//! These are the models of section III of *The Cost of Consensus*, which the draft names and mostly leaves open;
//! `docs/models.md` says in words what is computed, where that departs from the draft, and how far it is from
//! simulated and measured times. Everything is a pure function. All times are in milliseconds.
//!
//! - [`Spread`] is a time that varies, as a round trip does, with sums, maxima and k-th smallest.
//! - [`Chain`] is the paper's Markov chain (Figure 6).
//! - [`Ensemble`] and [`Network`] say how long a commit and each operation take.
//! - [`Primitive`] and [`predict`] are the locks of section II-D under contention.
//! - [`Accesses`] and [`replay`] are writes of several sites, and what they cost by where tokens are.

#![forbid(unsafe_code)]

mod chain;
mod closed;
mod contention;
mod network;
mod normal;
mod primitive;
mod sites;
mod spread;
mod waits;

use std::fmt;

pub use chain::Chain;
pub use contention::{Arrivals, Prediction, Section, Workload, predict};
pub use network::{Contact, Ensemble, Network, SERVERS_MAX, interval_ms};
pub use primitive::{Primitive, Tuning};
pub use sites::{Accesses, BadLine, Layout, Records, Replay, SiteTotal, Span, Zipf, read_record, replay};
pub use spread::Spread;

/// Parameters that describe nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(&'static str);

impl Invalid {
    /// `Ok` when `holds`, else what was expected.
    fn unless(holds: bool, expected: &'static str) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self(expected)) }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Invalid {}

/// Whether it is a length of time: finite, and not negative.
fn is_time(ms: f64) -> bool {
    ms.is_finite() && ms >= 0.0
}
