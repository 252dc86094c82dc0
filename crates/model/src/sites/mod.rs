//! Writes of several sites, replayed through a policy of tokens (`crates/sites`), beside observers and beside who knows
//! the future.
//!
//! [`Accesses`] are what sites write, made from a seed or recorded. [`replay`] has a policy decide where each token is, and
//! says what the writes cost: the ways between sites and nothing else, grants that arrive in time, one write after the
//! other in each client.

mod accesses;
mod chance;
mod record;
mod replay;
mod world;
mod zipf;

#[cfg(test)]
mod targets;

pub use accesses::{Accesses, Layout, Records};
pub use record::{BadLine, read_record};
pub use replay::{Replay, SiteTotal, Span, replay};
pub use zipf::Zipf;
