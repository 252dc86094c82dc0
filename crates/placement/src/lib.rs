//! Which partition what lives on, how much is asked of it, and what is to be moved.
//!
//! A [`Placement`] says where each znode lives. A partition counts its requests in a [`Load`], which tells every now
//! and then what of it is asked how much ([`LoadReport`]). The leader gives the reports of all partitions to a
//! [`Balancer`], with what the operator says ([`Hints`]), and is told which subtree to move next ([`Move`]).
//!
//! Nothing here moves anything, or knows what is in a tree: time, requests and tables are handed in.
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod balance;
mod hints;
mod load;
mod placement;

pub use balance::{Balancer, Move};
pub use hints::{HINTS_PATH, Hint, Hints, is_at_or_below};
pub use load::{Load, LoadReport, Rates, SubtreeLoad};
pub use placement::{FIRST, MoveRefusal, Placement, Recent, site_zxid_after, zxid_after};
