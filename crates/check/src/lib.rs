//! Whether a server that stands alone is right: the history of what it takes in and lets out, compared with a naive
//! ZooKeeper.
//!
//! Whoever runs a server, in whatever world, tells a [`Checker`] of all that happens between that world and the server,
//! in the order in which it happens; the first thing that must not be so is a [`Violation`]:
//!
//! | what happens | told by |
//! | --- | --- |
//! | clients come, send, go | [`Checker::connected`], [`Checker::received`], [`Checker::left_unread`], [`Checker::heard`], [`Checker::disconnected`] |
//! | the server has been called | [`Checker::called`], [`Checker::ticked`], [`Checker::check_bounds`] |
//! | the disk | [`Checker::handed_to_log`], [`Checker::handed_all_to_log`], [`Checker::durable`], [`Checker::refused`] |
//! | the server ends, and starts | [`Checker::crashed`], [`Checker::recovered`], [`Checker::compare_tree`] |
//! | everything is at rest | [`Checker::is_idle`], [`Checker::compare_at_rest`] |
//!
//! Time and chance are not here: the clocks come with what is told, and nothing is drawn.

mod checker;
mod model;
mod violation;

pub use checker::{Checker, Counts, Inbound, Inlet, Moment};
pub use model::ConnectionKey;
pub use violation::{Checked, Violation, wrong};
