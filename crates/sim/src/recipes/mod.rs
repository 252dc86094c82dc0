//! The recipes of the client library, as they are, against servers as they are, under everything that may
//! go wrong with either.
//!
//! Each performer is a client process: the protocol core of the client library, and programs that use a
//! recipe, run by an executor of its own. It loses connections, stands still for longer than its session
//! lasts, gives up waiting, and ends without a word. The [`Book`](book::Book) knows what all of them hold and
//! have been told, and compares it with the committed history.

mod book;
mod executor;
mod parts;
mod performer;
mod plan;
mod service;

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::ensemble::{self, Failure};
use crate::rng::Rng;
use book::{Book, Deeds};
use performer::Performer;

pub use plan::{Play, RecipePlan};

/// What a run came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecipeOutcome {
    /// Equal runs have equal fingerprints.
    pub fingerprint: u64,
    counts: Deeds,
    updates: u64,
    lasted_us: u64,
}

impl RecipeOutcome {
    /// What the performers have come to.
    #[must_use]
    pub fn counts(&self) -> &Deeds {
        &self.counts
    }
}

summed!(RecipeOutcome { counts, updates, lasted_us } fingerprint: 0);

impl fmt::Display for RecipeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.lasted_us / 1_000_000;
        write!(f, "{}; {} updates, {seconds} s of simulated time", self.counts, self.updates)
    }
}

/// Lives through a run in which performers play a part.
///
/// # Errors
/// What went wrong.
pub fn run(seed: u64, plan: &RecipePlan, printing: bool) -> Result<RecipeOutcome, Failure> {
    let book = Arc::new(Mutex::new(Book::new(plan.unfenced)));
    let mut world = ensemble::World::empty(seed, plan.life.clone(), printing);
    world.movable = vec![book::ROOT.to_owned(), book::ROOT.to_owned(), "/elsewhere".to_owned()];
    let mut rng = Rng::new(seed ^ 0x7265_6369_7065);
    for index in 0..plan.life.manners.clients {
        world.enter(Box::new(Performer::new(index, rng.fork(), plan, &book)));
    }
    let judge = |world: &ensemble::World| book::lock(&book).audit(plan.play, world.tree_of(book::ROOT));
    let outcome = world.visit(judge)?;
    let ensemble::Outcome { fingerprint, updates, lasted_us, .. } = outcome;
    let counts = book::lock(&book).counts;
    Ok(RecipeOutcome { fingerprint, counts, updates, lasted_us })
}
