//! Tests of the tree through its public face.
#![allow(clippy::unwrap_used, reason = "these are tests, also where a helper function unwraps")]

mod cuts;
mod divided;
mod limits;
mod model;
mod moves;
mod multi;
mod naive;
mod order;
mod parts;
mod placed;
mod quota;
mod reap;
mod sessions;
mod sites;
mod watches;
mod world;
mod writes;
