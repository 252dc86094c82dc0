//! The alarm: bugs are planted, one at a time, and each must be found.
//!
//! `cargo xtask planted` runs this, in a copy of the source into which it has planted what `crates/sim/bugs` lists.
//! Elsewhere it does not compile: there are no bugs, and no crate `stoa_planted` that says which one is planted.

/// A history is lived through with the bug of its class, and must fail for at least one seed.
macro_rules! tells {
    ($servers:expr, $story:ident, $bug:ident) => {
        crate::found_in_history($servers, $story, stoa_planted::Bug::$bug)
    };
}

/// In each kind of run the module's `found` must find a bug.
macro_rules! alarms {
    ($($name:ident: $bug:ident in $kind:literal,)*) => {
        $(
            #[test]
            fn $name() {
                found($kind, Bug::$bug);
            }
        )*
    };
}

mod ensemble;
#[path = "../histories/mod.rs"]
mod histories;
mod partitions;
mod recipes;
mod sites;
mod standalone;

use std::panic::{AssertUnwindSafe, catch_unwind};

use histories::{Told, live};
use stoa_planted::{Bug, with};
use stoa_sim::ensemble::World;

/// What goes wrong with a bug. Assertions of the server itself count as well.
fn wrong<T, E: ToString>(bug: Bug, run: impl FnOnce() -> Result<T, E>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| with(bug, run))) {
        Ok(Ok(_)) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(_) => Some("it panics".to_owned()),
    }
}

fn found_in_history(servers: (usize, usize), story: fn(&mut World) -> Told, bug: Bug) {
    let found = (1..=40).any(|seed| wrong(bug, || live(seed, servers, story)).is_some());
    assert!(found, "{bug:?} is not found in this history");
}
