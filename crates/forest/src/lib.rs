//! How appends reach many servers, and acknowledgements come back.
//!
//! With many servers a leader cannot send each append to everybody. Here it sends it to the roots of two trees, and
//! everybody passes on what comes down the tree in which it is an interior: interior-node-disjoint trees, after the
//! Giraffe paper (section III A). It is a state machine: time and bytes come in as arguments, and what is to be done comes
//! out of `poll`. Appends are opaque, and nothing here decides what is committed.
//!
//! | | in | out |
//! | --- | --- | --- |
//! | [`Relay`]: a server that follows | [`Relay::receive`], [`Relay::tick`] | [`Output::Send`], [`Output::Deliver`] |
//! | | [`Relay::has`], [`Relay::committed`], [`Relay::stored`] | [`Output::Asked`] |
//! | | [`Relay::set_servers`], [`Relay::enter`] | [`Output::Committed`], [`Relay::shape`], [`Relay::reign`] |
//! | | [`Relay::gone`], [`Relay::connected`], [`Relay::heard`] | [`Output::Heard`] |
//! | [`Spreader`]: the leader | [`Spreader::spread`], [`Spreader::tick`] | [`Output::Send`], [`Spreader::may_spread`] |
//! | | [`Spreader::receive`], [`Spreader::committed`] | [`Output::Acknowledged`], [`Output::Asked`] |
//! | | [`Spreader::set_servers`], [`Spreader::gone`], [`Spreader::connected`], [`Spreader::set_round`] | [`Spreader::shape`], [`Output::Newer`] |
//!
//! Why it is sound: an append of Raft says what the log of a term has behind a position, whoever it is for. So what a relay
//! delivers the leader could have sent itself, and the network held it for a while. What is asked of a neighbour is sound
//! as a position and a term name an entry and all before it. And an acknowledgement says what a disk has in a term,
//! which stays true on its way. So trees are no part of what is agreed on: they may change at any moment, and servers
//! may have different ones.
//!
//! What a careless user of trees gets wrong is done here, and only that:
//!
//! - Nothing is delivered that has a gap before it: an engine would refuse it, and its leader fall back to sending
//!   directly. It waits here, within bounds, and what is missing is asked for.
//! - An acknowledgement carries the tag of its disk, and those of other terms are dropped: so none of a disk that is
//!   gone counts for the one that its server has now.
//! - What is missed is asked of neighbours, the leader last; and they answer when they have it.
//! - Who hears nothing because its parent hears nothing is not blamed for it.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod absent;
mod codec;
mod frame;
mod gap;
mod hold;
mod ids;
mod lateness;
mod limits;
mod merge;
mod output;
mod relay;
mod shape;
mod shapes;
mod silence;
mod spreader;

pub use codec::DecodeError;
pub use frame::{
    Acknowledge, Acknowledgement, Complaint, Content, Epoch, Frame, FrameKind, Place, Pull, Pulled, Spread,
};
pub use ids::Ids;
pub use limits::{BACKLOG_BYTES_MAX, Limits};
pub use output::Output;
pub use relay::Relay;
pub use shape::{Settings, Shape};
pub use spreader::Spreader;
