//! A client for ZooKeeper's protocol, for Stoa and for every server that speaks it.
//!
//! [`protocol`] is the core: bytes and time in, bytes and completions out. [`Client`] puts tokio
//! around it; [`blocking::Client`] puts a thread around that. [`recipes`] are locks, elections, queues and the
//! like.
//!
//! ```no_run
//! # #[cfg(feature = "net")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use stoa_client::{Client, CreateMode, Options};
//!
//! let client = Client::connect(Options::new("127.0.0.1:2181/app")?).await?;
//! client.create("/config", b"v1", CreateMode::Persistent).await?;
//! let (data, stat, mut watch) = client.get_data_and_watch("/config").await?;
//! client.set_data("/config", b"v2", Some(stat.version)).await?;
//! println!("{data:?} became old: {:?}", watch.next().await);
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(any(test, feature = "net")), no_std)]
extern crate alloc;

pub mod recipes;

/// The protocol core, for those who bring sockets of their own.
pub mod protocol {
    pub use stoa_client_core::{
        Call, Chroot, Fault, Output, Protocol, Reply, Settings, SideWish, Token, WatchId,
    };
}

/// The examples of the guide, so that they are compiled.
#[cfg(all(doctest, feature = "net"))]
#[doc = include_str!("../../../docs/recipes.md")]
struct Guide;

#[cfg(feature = "net")]
pub mod blocking;
#[cfg(feature = "net")]
mod client;
#[cfg(feature = "net")]
mod driver;
#[cfg(feature = "net")]
mod fast;
#[cfg(feature = "net")]
mod options;
#[cfg(feature = "net")]
mod reads;
#[cfg(feature = "net")]
mod sides;
#[cfg(feature = "net")]
pub mod tls;
#[cfg(feature = "net")]
mod transport;
#[cfg(feature = "net")]
mod watch;

pub use stoa_client_core::{
    Acl, Event, Identity, Operation, OperationResult, ReadOperation, ReadResult, State, WatchEnd,
};
pub use stoa_wire::{AddWatchMode, CreateMode, ErrorCode, EventKind, Stat, WatcherKind, perms};

#[cfg(feature = "net")]
pub use client::{Client, ConnectError, CreateOptions, MultiError};
#[cfg(feature = "net")]
pub use driver::Status;
#[cfg(feature = "net")]
pub use fast::Fast;
#[cfg(feature = "net")]
pub use options::{Options, OptionsError};
#[cfg(feature = "net")]
pub use watch::Watch;
