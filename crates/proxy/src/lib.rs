//! Relays of TCP connections that take as long as a network between data centres, where the kernel has no such thing.
//!
//! A [`Link`] listens, connects on behalf of whoever comes, and carries bytes both ways: later by a delay with
//! jitter, no faster than a bandwidth, and later still when a segment is lost. Order is kept, as TCP keeps it. A link
//! can be changed, cut and healed while it is used, and needs a tokio runtime with I/O and time.
//!
//! `docs/proxy.md` says what is modelled and what is not.

#![forbid(unsafe_code)]

mod alarm;
mod chance;
mod line;
mod link;
mod pump;
mod quality;
mod spec;

pub use alarm::Alarm;
pub use link::{Direction, Link};
pub use quality::Quality;
pub use spec::Spec;

/// Nanoseconds since a link was opened.
type Nanos = u64;
