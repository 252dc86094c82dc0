//! The other world: the same core as the server's, under a simulated clock, disk and clients.
//!
//! A [`World`](world::World) is one run: everything in it follows from one seed, so a run that fails
//! can be lived through again. The [`Checker`](check::Checker) sees every frame that the server takes
//! in and every byte that it writes, and compares them with a naive [`Model`](model::Model).

pub mod check;
pub mod client;
mod clock;
pub mod disk_thread;
pub mod ensemble;
pub mod model;
pub mod partitions;
pub mod process;
pub mod profile;
pub mod recipes;
pub mod recover;
pub mod rng;
pub mod trace;
pub mod workload;
pub mod world;
