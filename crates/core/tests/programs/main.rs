//! Programs that run inside the service, at one server and at three.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod divided;
mod ended;
mod events;
mod one;
mod pauses;
mod random;
mod suspended;
#[path = "../threads/mod.rs"]
mod threads;
mod three;
mod world;

pub(crate) const COUNTER: &str = include_str!("../../../../examples/extensions/counter.rhai");
pub(crate) const QUEUE: &str = include_str!("../../../../examples/extensions/queue.rhai");
pub(crate) const BARRIER: &str = include_str!("../../../../examples/extensions/barrier.rhai");
pub(crate) const ELECTION: &str = include_str!("../../../../examples/extensions/election.rhai");
pub(crate) const JOBS: &str = include_str!("../../../../examples/extensions/rate-limit.rhai");
