//! Trees down which nothing comes.

use crate::limits::Limits;
use crate::shape::{Shape, TREES_MAX};
use alloc::vec::Vec;

const TREES: usize = TREES_MAX as usize;

/// How many times as long a server waits when all trees are silent. Then it is most likely itself that is cut off, or the
/// leader that is dead, and no parent is to blame.
const ALL_SILENT: u64 = 3;

/// When something came down each tree last. The paper (section III A) has parents and children exchange heartbeats; here
/// whatever comes down a tree is one.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    heard_us: [u64; TREES],
    complained_us: [u64; TREES],
    ticked_us: u64,
}

impl Silence {
    /// Something came down a tree.
    pub(crate) fn heard(&mut self, tree: u8, now_us: u64) {
        if let Some(heard_us) = self.heard_us.get_mut(usize::from(tree)) {
            *heard_us = now_us;
        }
    }

    /// When that was last; 0 when nothing has come.
    pub(crate) fn heard_us(&self, tree: u8) -> u64 {
        self.heard_us.get(usize::from(tree)).copied().unwrap_or(0)
    }

    /// All trees are new.
    pub(crate) fn begin(&mut self, now_us: u64) {
        self.heard_us = [now_us; TREES];
    }

    /// There is another shape. Where the way down a tree is another one nothing can have come yet. It is the whole way
    /// that counts: else a server below one that has begun anew would blame it.
    pub(crate) fn reshape(&mut self, before: Option<&Shape>, after: &Shape, me: u8, now_us: u64) {
        for tree in 0..after.trees() {
            if before.is_none_or(|before| !after.has_way(before, tree, me)) {
                self.heard(tree, now_us);
            }
        }
    }

    /// The trees that have been silent for too long, and who the parent is there: each at most once in
    /// [`Limits::silence_us`]. Where links are full, and what comes down a tree may be so much later than elsewhere, that is
    /// so much later, too.
    pub(crate) fn complaints(
        &mut self,
        shape: &Shape,
        me: u8,
        (now_us, late_us): (u64, u64),
        limits: &Limits,
    ) -> Vec<(u8, u8)> {
        // Who was stopped itself has heard nothing for that very reason.
        if now_us.saturating_sub(self.ticked_us) > limits.silence_us / 2 {
            self.begin(now_us);
        }
        self.ticked_us = now_us;
        let silent_us = |tree: u8| now_us.saturating_sub(self.heard_us[usize::from(tree)]);
        let all_silent =
            shape.trees() > 1 && (0..shape.trees()).all(|tree| silent_us(tree) > limits.silence_us + late_us);
        let mut complaints = Vec::new();
        for tree in 0..shape.trees() {
            let (Some(parent), Some(depth)) = (shape.parent(tree, me), shape.depth(tree, me)) else {
                continue;
            };
            let wait_us =
                late_us + limits.silence_us + limits.silence_step_us * u64::from(depth.saturating_sub(2));
            let wait_us = if all_silent { ALL_SILENT * wait_us } else { wait_us };
            let complained_us = &mut self.complained_us[usize::from(tree)];
            if silent_us(tree) > wait_us && now_us.saturating_sub(*complained_us) >= limits.silence_us {
                *complained_us = now_us;
                complaints.push((tree, parent));
            }
        }
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;
    use crate::shape::Settings;

    fn shape(aside: &[u8]) -> Shape {
        let servers = (1..=60).collect();
        Shape::new(&servers, 1, Settings::default(), &aside.iter().copied().collect::<Ids>())
    }

    #[test]
    fn a_tree_that_comes_another_way_is_not_silent_yet() {
        let (before, limits) = (shape(&[]), Limits::default());
        let after = shape(&[before.root(0).unwrap()]);
        let has_parents = |id: &u8| (0..5).all(|tree| after.parent(tree, *id).is_some());
        let mut kept = 0;
        for me in after.servers().iter().filter(has_parents) {
            let mut silence = Silence::default();
            silence.begin(0);
            silence.ticked_us = 190_000;
            [1, 2, 3].iter().for_each(|tree| silence.heard(*tree, 180_000));
            silence.reshape(Some(&before), &after, me, 190_000);
            let trees: Vec<u8> =
                silence.complaints(&after, me, (190_000, 0), &limits).iter().map(|(tree, _)| *tree).collect();
            let same = |tree: &u8| after.has_way(&before, *tree, me);
            let expected: Vec<u8> = [0, 4].into_iter().filter(same).collect();
            assert_eq!(trees, expected, "{me}");
            kept += expected.len();
        }
        assert!(kept > 20, "most of tree 4 is as it was");
    }
}
