//! Many relays and a leader over a simulated network.

mod failures;
mod load;
mod random;
mod relay;
mod rng;
mod world;
