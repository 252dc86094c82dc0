//! Many relays and a leader over a simulated network.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and says how")]

mod failures;
mod load;
mod random;
mod relay;
mod rng;
mod world;
