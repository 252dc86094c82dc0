//! forest
#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod ids;
mod shape;

pub use ids::Ids;
pub use shape::{Settings, Shape};
