//! What clients do to servers with several partitions, and what is judged by it.
//!
//! What is checked is what partitions could break: that nobody is shown anything older than what it rests
//! on, that an operation over several partitions is never seen by halves, that events come before what
//! follows them, that ephemerals end everywhere, and that all servers come to the same, whoever belongs to
//! the ensemble, and by whatever way they get there.

mod board;
mod plan;
mod verdict;
mod witness;

pub use plan::Plan;

use crate::ensemble::{Failure, Outcome, World};
use board::Board;
use std::rc::Rc;
use witness::Witness;

const CLIENTS: usize = 5;

/// A run that has not begun.
pub struct Run {
    world: World,
    board: Rc<Board>,
}

impl Run {
    /// One in which everything follows from the seed.
    #[must_use]
    pub fn new(seed: u64, plan: &Plan, printing: bool) -> Self {
        let mut world = World::new(seed, plan.life.clone(), printing);
        let board = Rc::new(Board::new(plan));
        world.movable = board.movable();
        let servers = plan.life.servers + plan.life.spares;
        let operators = usize::from(plan.life.spares > 0);
        for index in 0..CLIENTS + operators {
            let rng = world.fork();
            world.enter(Box::new(Witness::new(index, rng, servers, index >= CLIENTS, &board)));
        }
        Self { world, board }
    }

    /// Lives through everything.
    ///
    /// # Errors
    /// What must not have happened, or has not happened though it must.
    pub fn run(self) -> Result<Outcome, Failure> {
        let Self { world, board } = self;
        world.finish_with(|world| verdict::compare(world, &board))
    }
}
