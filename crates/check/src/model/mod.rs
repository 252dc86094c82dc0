//! An independent, naive ZooKeeper: what the server's answers are compared with.
//!
//! Where the server prepares, logs and applies, the model just executes a request on maps of strings.
//! It shares the records of the wire with the server, and nothing else: no slab, no projection, no
//! codec for updates.

mod acl;
mod outcome;
mod quota;
mod request;
mod tree;
mod watches;

pub(crate) use acl::Identity;
pub(crate) use outcome::{Body, Denial, Event};
pub(crate) use request::{Done, Reader, Stamp};
pub(crate) use tree::{Entry, Kind, Model, Session};
pub use watches::ConnectionKey;
pub(crate) use watches::Watches;
