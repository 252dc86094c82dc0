//! Servers with several partitions: threads that go on in any order, disks that keep what was synced,
//! links between the partitions of two servers that fail one by one, and clients of every thread.
//!
//! What is checked is what partitions could break: that nobody is shown anything older than what it rests
//! on, that an operation over several partitions is never seen by halves, that events come before what
//! follows them, that ephemerals end everywhere, and that all servers come to the same, whoever belongs to
//! the ensemble, and by whatever way they get there.

mod client;
mod finale;
mod guests;
mod links;
mod machine;
mod server;
mod settings;
mod trouble;
mod world;

pub(crate) use guests::{Ended, Guest};
pub use settings::Settings;
pub use world::{Outcome, World};
