//! forest
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod codec;
mod frame;
mod ids;
mod shape;

pub use codec::DecodeError;
pub use frame::{
    Acknowledge, Acknowledgement, Complaint, Content, Epoch, Frame, Place, Pull, Pulled, Spread,
};
pub use ids::Ids;
pub use shape::{Settings, Shape};
