//! Tests of programs through the public face of the crate, over a real tree.
#![allow(clippy::unwrap_used, reason = "these are tests, also where a helper function unwraps")]

mod calls;
mod hostile;
mod language;
mod random;
mod registry;
mod world;
