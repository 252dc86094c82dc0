//! Extensions: small programs that run inside the service (*Extensible Distributed Coordination*, EuroSys
//! 2015).
//!
//! A [`Program`] is verified and compiled once. It says what it subscribes to: operations on matching paths,
//! which it carries out instead of the service, and events. What it does to the tree it does through a
//! [`Host`], the state proxy of the paper (section 4.1.2): one update, or none at all.
//!
//! ```text
//! source --rhai's parser--> syntax tree --lower--> Code --run, Meter, Host--> Reply or Notify
//! ```
//!
//! Of rhai only the parser is used. What is lowered is a white list: whatever has no counterpart in [`code`]
//! is refused with line and column, so nothing can run that was not thought of. The interpreter is ours
//! because its bounds have to hold: it counts before it allocates, and it borrows the host, which rhai's
//! engine cannot.
//!
//! Pure: no clock, no randomness, no I/O, no threads. Equal states and requests give equal updates.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod code;
mod error;
mod host;
mod limits;
mod lower;
mod pattern;
mod program;
mod registry;
mod run;
mod tree_host;

mod value;

pub use error::{CallError, CompileError, Failure, Position};
pub use host::{CreateKind, Host, Object};
pub use limits::{Limit, Limits, Used};
pub use pattern::{Pattern, PatternError};
pub use program::{
    Event, EventKind, Notification, Notify, OperationKind, Program, Reply, Request, Subscription,
};
pub use registry::{NameTaken, Registry};
pub use tree_host::TreeHost;
