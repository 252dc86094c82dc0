//! Tests of the tree through its public face.

mod world;
mod writes;
