//! The shapes of the newest epochs, and what has come down them.

use crate::frame::{Epoch, Spread};
use crate::ids::Ids;
use crate::shape::{Settings, Shape};
use alloc::vec;
use alloc::vec::Vec;

/// How many shapes are kept. Frames of the epoch before are still on their way when one begins.
const KEPT: usize = 2;

/// How many numbers back a frame is told from one that was seen.
const WINDOW: u64 = u128::BITS as u64;

/// Which numbers have come down a tree.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    newest: u64,
    /// Bit `i` is the number `newest - i`.
    bits: u128,
}

impl Seen {
    /// Whether this one is new. Those that are too old to be known are not.
    fn take(&mut self, number: u64) -> bool {
        if number > self.newest {
            let behind = number - self.newest;
            self.bits = if behind < WINDOW { self.bits << behind | 1 } else { 1 };
            self.newest = number;
            return true;
        }
        let behind = self.newest - number;
        if behind >= WINDOW || self.bits & 1 << behind != 0 {
            return false;
        }
        self.bits |= 1 << behind;
        true
    }
}

/// The shape of one epoch.
#[derive(Debug)]
pub(crate) struct KeptShape {
    pub(crate) epoch: Epoch,
    pub(crate) aside: Ids,
    pub(crate) settings: Settings,
    pub(crate) shape: Shape,
    seen: Vec<Seen>,
}

impl KeptShape {
    /// Whether this frame has not come down its tree before.
    pub(crate) fn is_new(&mut self, spread: &Spread) -> bool {
        self.seen.get_mut(usize::from(spread.tree)).is_some_and(|seen| seen.take(spread.number))
    }
}

/// The shapes of the newest epochs of one term, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    kept: Vec<KeptShape>,
}

impl Shapes {
    /// The shape of the newest epoch; `None` before anything was heard in this term.
    pub(crate) fn newest(&self) -> Option<&KeptShape> {
        self.kept.last()
    }

    /// The shape of the epoch before that one.
    pub(crate) fn before(&self) -> Option<&Shape> {
        Some(&self.kept.get(self.kept.len().checked_sub(2)?)?.shape)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Shape> {
        self.kept.iter().map(|kept| &kept.shape)
    }

    /// Makes the shape that a frame is of when it is newer than all, and says whether it was.
    pub(crate) fn learn(&mut self, spread: &Spread, servers: &Ids) -> bool {
        if self.kept.last().is_some_and(|newest| newest.epoch >= spread.epoch) {
            return false;
        }
        let shape = Shape::new(servers, spread.leader, spread.settings, &spread.aside);
        let seen = vec![Seen::default(); usize::from(shape.trees())];
        self.kept.push(KeptShape {
            epoch: spread.epoch,
            aside: spread.aside,
            settings: spread.settings,
            shape,
            seen,
        });
        if self.kept.len() > KEPT {
            self.kept.remove(0);
        }
        true
    }

    /// The shape of an epoch, if it is kept.
    pub(crate) fn of(&mut self, epoch: Epoch) -> Option<&mut KeptShape> {
        self.kept.iter_mut().find(|kept| kept.epoch == epoch)
    }

    /// The list of servers is another one.
    pub(crate) fn rebuild(&mut self, servers: &Ids) {
        for kept in &mut self.kept {
            kept.shape = Shape::new(servers, kept.shape.leader(), kept.settings, &kept.aside);
            kept.seen.resize(kept.shape.trees().into(), Seen::default());
        }
    }

    /// Forgets all: another term has begun.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_once() {
        let mut seen = Seen::default();
        let numbers = [1, 3, 2, 3, 1, 130, 3, 2, 131, 4, 500, 131];
        let new = numbers.map(|number| seen.take(number));
        assert_eq!(
            new,
            [true, true, true, false, false, true, false, false, true, true, true, false],
            "2 is too old when 130 has come, 131 when 500 has"
        );
        assert!(seen.take(u64::MAX) && !seen.take(u64::MAX));
    }
}
