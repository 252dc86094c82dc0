//! The last position of every timeline.

use alloc::vec::Vec;

/// A position per timeline; a timeline that is not listed is at 0.
///
/// Sorted by timeline, without zeros, so that equal positions are equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Positions(Vec<(u32, u64)>);

impl Positions {
    /// Sorts; of a timeline named twice the larger position counts.
    pub(crate) fn new(mut rows: Vec<(u32, u64)>) -> Self {
        rows.retain(|&(_, position)| position != 0);
        rows.sort_unstable_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        rows.dedup_by_key(|row| row.0);
        Self(rows)
    }

    pub(crate) fn rows(&self) -> &[(u32, u64)] {
        &self.0
    }

    pub(crate) fn get(&self, timeline: u32) -> u64 {
        match self.0.binary_search_by_key(&timeline, |row| row.0) {
            Ok(at) => self.0[at].1,
            Err(_) => 0,
        }
    }

    /// Moves a timeline on by one if `position` is the next one; otherwise says which one is.
    pub(crate) fn advance(&mut self, timeline: u32, position: u64) -> Result<(), u64> {
        match self.0.binary_search_by_key(&timeline, |row| row.0) {
            Ok(at) => {
                let last = &mut self.0[at].1;
                let next = last.wrapping_add(1);
                if position != next || position == 0 {
                    return Err(next);
                }
                *last = position;
                Ok(())
            }
            Err(_) if position != 1 => Err(1),
            Err(at) => {
                self.0.insert(at, (timeline, 1));
                Ok(())
            }
        }
    }

    /// Takes over another's rows without allocating again.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.0.clear();
        self.0.extend_from_slice(&other.0);
    }

    /// The first timeline on which `self` is further than `other`, with both positions.
    pub(crate) fn first_beyond(&self, other: &Self) -> Option<(u32, u64, u64)> {
        self.0.iter().find_map(|&(timeline, position)| {
            let there = other.get(timeline);
            (position > there).then_some((timeline, position, there))
        })
    }

    /// Whether no timeline of `self` is further than in `other`.
    pub(crate) fn within(&self, other: &Self) -> bool {
        self.first_beyond(other).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_advance_one_by_one_from_one() {
        let mut positions = Positions::default();
        assert_eq!(positions.advance(7, 2), Err(1));
        assert_eq!(positions.advance(7, 0), Err(1));
        assert_eq!(positions.advance(7, 1), Ok(()));
        assert_eq!(positions.advance(7, 1), Err(2));
        assert_eq!(positions.advance(3, 1), Ok(()));
        assert_eq!(positions.advance(7, 2), Ok(()));
        assert_eq!(positions.rows(), &[(3, 1), (7, 2)]);
    }

    #[test]
    fn the_last_position_is_not_followed_by_zero() {
        let mut positions = Positions::new(vec![(1, u64::MAX)]);
        assert_eq!(positions.advance(1, 0), Err(0));
    }

    #[test]
    fn rows_are_sorted_without_zeros_and_doubles() {
        let positions = Positions::new(vec![(5, 1), (2, 9), (5, 4), (1, 0)]);
        assert_eq!(positions.rows(), &[(2, 9), (5, 4)]);
    }

    #[test]
    fn an_unlisted_timeline_is_at_zero() {
        let none = Positions::default();
        let some = Positions::new(vec![(1, 1)]);
        assert!(none.within(&some));
        assert_eq!(some.first_beyond(&none), Some((1, 1, 0)));
    }
}
