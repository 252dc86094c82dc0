//! The oracle: the same random requests go to Apache ZooKeeper and to Stoa, and every reply, Stat and
//! watch event is compared.
//!
//! A seed gives a stream of steps ([`generate`]). A step is sent to both servers over raw
//! connections, and what comes back is taken apart into fields ([`answer`]); numbers that are a
//! server's own (zxids, times, session ids) are replaced by what they stand for ([`ledger`]). Then
//! the two must be equal ([`compare`]). Only one session has requests in flight at a time, so that
//! each stream has exactly one right outcome. What is left out or let pass is listed in
//! [`differences`].

pub mod answer;
pub mod call;
pub mod compare;
pub mod describe;
pub mod differences;
pub mod generate;
pub mod golden;
pub mod headers;
pub mod ledger;
pub mod link;
pub mod menu;
pub mod pair;
pub mod random;
pub mod servers;
pub mod shrink;
pub mod side;
