//! The log on a simulated disk: what it keeps, what it cuts, what it refuses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod apart;
mod appending;
mod crashing;
mod damage;
mod inspecting;
mod model;
mod refusing;
mod snapshots;
mod world;
