//! The log on a simulated disk: what it keeps, what it cuts, what it refuses.

mod appending;
mod crashing;
mod damage;
mod inspecting;
mod model;
mod refusing;
mod snapshots;
mod world;
