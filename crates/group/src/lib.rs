//! One replicated timeline.
//!
//! A [`Group`] keeps the entries of one timeline equal on all its members. It is a state machine:
//! time comes in as ticks, messages of other members and completions of the disk come in as calls,
//! and what is to be done comes out of [`Group::poll`]. It opens no socket and no file, reads no
//! clock and draws no random number; it carries opaque payloads and knows no znodes.
//!
//! | in | out |
//! | --- | --- |
//! | [`Group::tick`], [`Group::step`] | [`Output::Send`] |
//! | [`Group::stored`] | [`Output::Store`] |
//! | [`Group::propose`], [`Group::propose_changes`] | [`Output::Committed`], [`Output::Members`] |
//! | [`Group::read`] | [`Output::Read`] |
//! | [`Group::spread_to`], [`Group::acknowledge`], [`Group::confirm`] | [`Output::Spread`], [`Group::round`] |
//! | [`Group::feed`] | [`Group::feed_behind`] |
//! | [`Group::campaign`], [`Group::transfer`] | [`Group::status`] |
//! | [`Group::offer_snapshot`], [`Group::snapshot_sent`], [`Group::compact`] | [`Output::SendSnapshot`], [`Output::SnapshotWanted`] |
//! | [`Group::take_given`] | [`Group::give_snapshot`] |
//!
//! Ordering, elections and changes of members are Raft's, done by the engine inside TiKV
//! ([`raft`]); this crate is the only one to see it. What is ours is what a careless user of that
//! engine gets wrong, and only that:
//!
//! - What must wait for the disk waits here: a message that says "I have it" or "you have my vote"
//!   comes out only after [`Group::stored`] said that it is true.
//! - Messages have a codec of their own ([`Message::encode`]): nothing that comes from the network
//!   reaches a protobuf parser, and every length is checked before it is believed.
//! - Election timeouts are a function of a seed, so that a run can be repeated.
//! - A message that would bring the engine to abort the process is refused instead.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod check;
mod codec;
mod feed;
mod feeding;
mod given;
mod group;
mod held;
mod history;
mod members;
mod message;
mod pieces;
mod record;
mod rounds;
mod spread;

pub use codec::DecodeError;
pub use group::{Config, Group, Output, ProposeError, Role, Status, StepError};
pub use held::{Entry, EntryKind, Mark, Vote};
pub use history::{History, HistoryId};
pub use members::{Change, Members};
pub use message::{Message, Span};
pub use pieces::Pieces;
pub use record::{Coverage, RecordError, Restored, Store};
