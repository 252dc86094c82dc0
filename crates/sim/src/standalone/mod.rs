//! A server that stands alone, whose every answer is known beforehand: the [`Checker`] sees every frame that it
//! takes in and every byte that it writes, and compares them with a naive ZooKeeper.

mod profile;
mod workload;

pub use profile::Profile;

use crate::ensemble::{Client, World};
use stoa_check::Checker;
use workload::Random;

/// A world before its first moment, in which everything follows from the seed.
#[must_use]
pub fn world(seed: u64, profile: &Profile, printing: bool) -> World {
    let life = &profile.life;
    let mut world = World::empty(seed, life.clone(), printing);
    world.judge_with(Checker::new(life.config.clone(), life.enforce_quota));
    for index in 0..life.manners.clients {
        let rng = world.fork();
        world.enter(Box::new(Client::new(index, rng, life.manners, 1, Random::default())));
    }
    world
}
