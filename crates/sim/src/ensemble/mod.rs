//! An ensemble under simulated time: several servers, a network and disks that fail, clients that move
//! between the servers, and checkers that compare everything with one history.
//!
//! The core is driven as the server drives it. What every server applies is compared with what the
//! first one applied at the same position; what clients are told is compared with the timeline as
//! it stands there, whichever server told them.

mod abroad;
pub(crate) mod acquaintance;
mod check;
mod client;
mod costs;
mod disaster;
mod expiry;
mod finale;
mod history;
mod links;
mod loss;
mod machine;
mod met;
mod network;
mod operator;
mod places;
mod process;
mod roles;
pub(crate) mod roster;
pub(crate) mod settings;
mod sockets;
mod ties;
mod timelines;
mod trouble;
mod visitor;
mod whole;
mod workload;
mod world;

/// What a server is called in a world. Those that belong to an ensemble have this number there, which is a byte; of readers
/// there may be more.
pub type HostId = u16;

/// Servers of an ensemble, as a world calls them.
pub(crate) fn of_hosts(numbers: &[u8]) -> Vec<HostId> {
    numbers.iter().map(|number| HostId::from(*number)).collect()
}

/// The number of a server that belongs to an ensemble, or may.
pub(crate) fn number(host: HostId) -> u8 {
    u8::try_from(host).expect("who belongs to an ensemble has a number that is a byte")
}

pub(crate) use abroad::{Abroad, Envoy, FromAbroad};
pub use client::Tally;
pub(crate) use client::{Caller, Client, USERS, Workload};
pub use costs::{Costs, Exchanged};
pub use met::Met;
pub(crate) use process::Chunks;
pub(crate) use settings::{CALM, MANNERS, config};
pub use settings::{Faults, Manners, Settings};
pub use trouble::Trouble;
pub(crate) use visitor::{Act, Judges, Visitor};
pub(crate) use whole::Whole;
pub use world::{Failure, Outcome, World};
