//! Tests of the tree through its public face.
#![allow(clippy::unwrap_used, reason = "these are tests, also where a helper function unwraps")]

mod model;
mod naive;
mod world;
mod writes;
