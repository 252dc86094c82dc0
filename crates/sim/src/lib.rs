//! The other world: the same core as the server's, under a simulated clock, disk and clients.
//!
//! A [`World`](ensemble::World) is one run: everything in it follows from one seed, so a run that fails can be lived
//! through again. What is asked of it, and who judges what it comes to, is [`standalone`]'s, [`ensemble`]'s,
//! [`partitions`]', [`recipes`]' or [`sites`]'.

#[macro_use]
mod summed;
mod clock;
pub mod costed;
mod disk_thread;
pub mod ensemble;
mod frames;
pub mod partitions;
pub mod recipes;
mod recover;
mod rng;
pub mod sites;
pub mod standalone;
mod trace;
