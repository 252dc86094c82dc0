//! The top znodes below which a run works, and the one that each session begins with.
//!
//! A server with several partitions spreads its tree by the names of the znodes right below the root,
//! so that is where a load has to be spread too.

use stoa_core::Placement;

use super::requests::ROOT;

/// Where the tops of a session live, as seen from the thread that has its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Wherever it comes out: sessions take tops in turn.
    Any,
    /// On that thread's partition.
    Local,
    /// On other partitions.
    Remote,
}

/// The top znodes of a run. With several partitions, top number N of those that it begins with lives on
/// partition N modulo their number, so each has as many. As many more for each time that the load shifts follow,
/// and those of one shift live on one partition, unless they are moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tops {
    /// Their paths.
    pub(crate) paths: Vec<String>,
    /// How many are worked on at a time.
    pub(crate) at_a_time: usize,
    partitions: usize,
}

impl Tops {
    /// The only one, for a server of any kind.
    pub(crate) fn one() -> Self {
        Self { paths: vec![ROOT.to_owned()], at_a_time: 1, partitions: 1 }
    }

    /// `count` at a time, a multiple of the number of partitions.
    pub(crate) fn new(count: usize, partitions: u8, shifts: usize) -> Self {
        if count == 1 && shifts == 0 {
            return Self::one();
        }
        let placement = Placement::new(partitions);
        let partitions = usize::from(placement.partitions());
        let mut number = 0_u64;
        let mut next_on = |partition: usize| {
            loop {
                number += 1;
                let path = format!("{ROOT}-{number}");
                if usize::from(placement.of(&path)) == partition {
                    return path;
                }
            }
        };
        let begin = (0..count).map(|top| top % partitions);
        let later = (0..shifts).flat_map(|shift| std::iter::repeat_n(shift % partitions, count));
        Self { paths: begin.chain(later).map(&mut next_on).collect(), at_a_time: count, partitions }
    }

    /// The number of the top that each session begins with. `homes` are the partitions whose threads have
    /// their connections.
    pub(crate) fn firsts(&self, reach: Reach, homes: &[u8]) -> Vec<usize> {
        if reach == Reach::Any {
            return (0..homes.len()).map(|session| session % self.at_a_time).collect();
        }
        let partitions = self.partitions;
        let each = self.at_a_time / partitions;
        let mut same_home = vec![0; partitions];
        let first = |home: &u8| {
            let home = usize::from(*home) % partitions;
            let before = same_home[home];
            same_home[home] += 1;
            if reach == Reach::Local || partitions == 1 {
                return home + partitions * (before % each);
            }
            let others = partitions - 1;
            (home + 1 + before % others) % partitions + partitions * (before / others % each)
        };
        homes.iter().map(first).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_as_many_tops() {
        for partitions in [1, 2, 4, 8] {
            let tops = Tops::new(16, partitions, 0);
            let placement = Placement::new(partitions);
            for (number, path) in tops.paths.iter().enumerate() {
                assert_eq!(usize::from(placement.of(path)), number % usize::from(partitions), "{path}");
            }
            let different: std::collections::BTreeSet<_> = tops.paths.iter().collect();
            assert_eq!(different.len(), 16);
        }
        assert_eq!(Tops::new(1, 1, 0).paths, ["/bench"]);
    }

    #[test]
    fn what_the_load_shifts_to_lives_on_one_partition_and_was_not_used_before() {
        let tops = Tops::new(16, 4, 5);
        let placement = Placement::new(4);
        for (shift, paths) in tops.paths[16..].chunks(16).enumerate() {
            assert!(paths.iter().all(|path| usize::from(placement.of(path)) == shift % 4), "{paths:?}");
        }
        let different: std::collections::BTreeSet<_> = tops.paths.iter().collect();
        assert_eq!(different.len(), 16 * 6);
        assert_eq!(tops.paths[..16], Tops::new(16, 4, 0).paths);
        assert!(tops.firsts(Reach::Local, &[0, 1, 2, 3]).into_iter().all(|first| first < 16));
    }

    #[test]
    fn sessions_begin_where_they_are_wanted_and_are_spread() {
        let tops = Tops::new(8, 4, 0);
        let homes: Vec<u8> = (0..48).map(|session| (session + 3) % 4).collect();
        for reach in [Reach::Any, Reach::Local, Reach::Remote] {
            let mut used = [0; 8];
            let firsts = tops.firsts(reach, &homes);
            for (first, home) in firsts.iter().zip(&homes) {
                used[*first] += 1;
                let is_local = first % 4 == usize::from(*home);
                assert!(reach == Reach::Any || is_local == (reach == Reach::Local));
            }
            assert_eq!(used, [6; 8], "{reach:?}");
        }
        assert_eq!(Tops::one().firsts(Reach::Local, &[0; 3]), [0; 3]);
    }
}
