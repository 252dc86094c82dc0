//! The protocol core of a client: one session over one connection after another, without any I/O.
//!
//! Whoever drives it opens a connection, calls [`Protocol::connected`], moves bytes
//! ([`Protocol::receive`], [`Protocol::output`]), tells the time ([`Protocol::tick`],
//! [`Protocol::next_tick_ms`]), reports the end of the connection ([`Protocol::disconnected`]), and
//! drains [`Protocol::poll`]. Calls may be submitted at any time: they wait for a connection. Calls
//! that were sent on a connection that ends fail with `ConnectionLoss`, because nobody knows whether
//! the server carried them out.
//!
//! A direct client ([`Settings::direct`]) has that connection to a server and, when the server has several
//! partitions, side connections besides: [`Output::Side`] says which are wanted. Calls go to the partition
//! where their znode lives. Those to one partition follow one another there; before the first one to
//! another partition everything before it is answered (AGORA, section IV-D).
//!
//! Pure: no sockets, no clock, no randomness, no threads. Bytes and the time are arguments.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod protocol;
mod types;

pub use protocol::{Call, Chroot, Fault, Output, Protocol, Reply, Settings, SideWish, Token, WatchId};
pub use types::{
    Acl, Event, Identity, Operation, OperationResult, ReadOperation, ReadResult, State, WatchEnd,
};
