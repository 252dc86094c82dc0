//! Clients' connections, and the front of a thread.
//!
//! [`Connections`] are all that are connected to one thread: where each stands, what it waits for, what is to be sent to
//! it, and what the audit log is told of it. Where a server has one partition, they are that partition's.
//!
//! Where it has several, a [`Front`] has them. It takes a client's frames ([`Front::take_frame`]), says to which
//! partition each has to go ([`Front::poll_own`], [`Front::poll_message`]), is told what partitions have for the client
//! ([`Front::told`]), and hands that out in an order that follows from timestamps. Whoever drives it brings it together
//! with the partition of its thread, which it does not know.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod audit;
mod audited;
mod auth;
mod config;
mod connection;
mod delivered_zxid;
mod frame;
mod front;
mod gather;
mod held;
mod message;
mod pipelined;
mod remote_client;
mod route;
mod sasl;

pub use audit::{AuditEvent, AuditOperation, AuditResult, is_audited};
pub use auth::{Authentication, DigestAlgorithm, by_address, digest_id};
pub use config::{Config, Limits};
pub use connection::{
    Barred, CloseReason, ConnectError, Connection, ConnectionId, Connections, Output, Phase, SessionKey, Slot,
};
pub use frame::{Frame, frame};
pub use front::{Front, FrontStats, Taken};
pub use held::{HeldReply, Place};
pub use message::{Attached, FrontMessage, Introduction, LeftWatch, ToClient, ToPartition};
pub use pipelined::{Next, Pipelined, is_plain_write};
pub use remote_client::{Came, RemoteClient};
pub use sasl::{SaslStep, SaslToken};
