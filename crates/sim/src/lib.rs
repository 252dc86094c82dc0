//! wip
pub mod model;
pub mod rng;
