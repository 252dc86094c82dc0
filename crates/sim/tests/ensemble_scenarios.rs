//! Histories of ensembles: each passes, for many seeds. That each finds the bug of its class is for `planted`.

/// A history is lived through as it is.
macro_rules! tells {
    ($servers:expr, $story:ident, $bug:ident) => {
        crate::passes($servers, $story)
    };
}

mod histories;

use histories::{Told, live};
use stoa_sim::ensemble::World;

fn passes(servers: (usize, usize), story: fn(&mut World) -> Told) {
    for seed in 1..=12 {
        if let Err(failure) = live(seed, servers, story) {
            panic!("seed {seed}: {failure}");
        }
    }
}
