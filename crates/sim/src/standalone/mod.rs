//! A server that stands alone, whose every answer is known beforehand: the [`Checker`] sees every frame that it
//! takes in and every byte that it writes, and compares them with a naive [`Model`](crate::model::Model).

mod client;
mod profile;
mod workload;

pub use profile::Profile;

use crate::check::Checker;
use crate::ensemble::World;
use client::Client;

/// A world before its first moment, in which everything follows from the seed.
#[must_use]
pub fn world(seed: u64, profile: &Profile, printing: bool) -> World {
    let Profile { life, manners, .. } = profile;
    let mut world = World::new(seed, life.clone(), printing);
    world.judge_with(Checker::new(life.config.clone(), life.enforce_quota));
    for _ in 0..manners.clients {
        let rng = world.fork();
        world.enter(Box::new(Client::new(rng, *manners)));
    }
    world
}
