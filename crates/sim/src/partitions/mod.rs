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

use crate::ensemble::{Client, Failure, Outcome, Settings, World};
use board::Board;
use std::rc::Rc;
use witness::Witness;

/// Who asks for more before it is answered does not when it awaits so many answers.
const IMPATIENT_MAX: usize = 25;

/// A run that has not begun.
pub struct Run {
    world: World,
    plan: Plan,
    board: Rc<Board>,
}

impl Run {
    /// One in which everything follows from the seed.
    #[must_use]
    pub fn new(seed: u64, plan: &Plan, printing: bool) -> Self {
        let mut world = World::empty(seed, plan.life.clone(), printing);
        let board = Rc::new(Board::new(plan, 0));
        world.movable = board.movable();
        let mut run = Self { world, plan: plan.clone(), board };
        run.witnesses_come();
        run
    }

    fn witnesses_come(&mut self) {
        let Self { world, plan, board } = self;
        let Settings { servers, spares, readers, mut manners, .. } = plan.life;
        if plan.impatient {
            manners.window = IMPATIENT_MAX;
        }
        for number in 0..manners.clients + usize::from(spares > 0) {
            let witness = Witness::new(number >= manners.clients, board);
            let index = board.founder + number;
            let client = Client::new(index, world.fork(), manners, servers + spares + readers, witness);
            world.enter(Box::new(client));
        }
    }

    /// Lives through everything.
    ///
    /// # Errors
    /// What must not have happened, or has not happened though it must.
    pub fn run(mut self) -> Result<Outcome, Failure> {
        while self.world.comes_to_disaster()? {
            // What programs of before have counted nobody knows.
            self.plan.programs = false;
            self.board = Rc::new(Board::new(&self.plan, self.world.come_so_far()));
            self.witnesses_come();
        }
        let Self { mut world, board, .. } = self;
        world.live()?;
        world.finish_with(|world| verdict::compare(world, &board))
    }
}
