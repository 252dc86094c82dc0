//! The state of a partition, as a snapshot holds it.
//!
//! ```text
//! snapshot := head of the group, [what it rests on], slices of the tree
//! rests on := timestamp, count i32, (position, term i64)*         where there are several partitions
//! ```

use crate::timestamp::Timestamp;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use stoa_tree::{Loader, Options, Tree};
use stoa_wire::{DecodeError, Reader, put};

/// Which partition, of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// From 0.
    pub partition: u8,
    /// From 1.
    pub partitions: u8,
}

impl Share {
    /// The only one.
    pub const WHOLE: Self = Self { partition: 0, partitions: 1 };

    /// The state at the beginning of the partition's timeline.
    #[must_use]
    pub fn empty_tree(self, options: Options) -> Tree {
        if self.partition == 0 { Tree::new(options) } else { Tree::new_part(options) }
    }
}

/// A partition's state.
#[derive(Debug)]
pub struct State {
    /// Its part of the tree.
    pub tree: Tree,
    /// What it rests on, where there are several partitions.
    pub stamp: Timestamp,
    /// Where the terms begin that have entries in it, and their numbers.
    pub terms: Vec<(u64, u64)>,
}

impl State {
    /// At the beginning of the timeline.
    #[must_use]
    pub fn new(tree: Tree) -> Self {
        Self { tree, stamp: Timestamp::default(), terms: Vec::new() }
    }
}

/// Puts a state together from the chunks of a snapshot, without the first.
#[derive(Debug)]
pub struct StateLoader {
    share: Share,
    rests_on: Option<(Timestamp, Vec<(u64, u64)>)>,
    loader: Loader,
}

impl StateLoader {
    /// Before the first chunk.
    #[must_use]
    pub fn new(options: Options, share: Share) -> Self {
        Self { share, rests_on: None, loader: Loader::new(options) }
    }

    /// The next chunk.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.share.partitions == 1 || self.rests_on.is_some() {
            return self.loader.chunk(bytes).map_err(|error| error.to_string());
        }
        let rests_on = decode(bytes).map_err(|_| "what it rests on is not well formed".to_string())?;
        self.rests_on = Some(rests_on);
        Ok(())
    }

    /// It was whole.
    ///
    /// # Errors
    /// What is missing.
    pub fn finish(self) -> Result<State, String> {
        let tree = self.loader.finish().map_err(|error| error.to_string())?;
        let (stamp, terms) = match self.rests_on {
            None if self.share.partitions > 1 => return Err("it does not say what it rests on".into()),
            rests_on => rests_on.unwrap_or_default(),
        };
        Ok(State { tree, stamp, terms })
    }
}

pub(crate) fn encode(stamp: &Timestamp, terms: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    stamp.encode(&mut out);
    put::len(&mut out, terms.len());
    for number in terms.iter().flat_map(|(position, term)| [position, term]) {
        put::i64(&mut out, number.cast_signed());
    }
    out
}

fn decode(bytes: &[u8]) -> Result<(Timestamp, Vec<(u64, u64)>), DecodeError> {
    let mut reader = Reader::new(bytes);
    let stamp = Timestamp::decode(&mut reader)?;
    let count = reader.count(16)?;
    let number = |reader: &mut Reader<'_>| reader.i64().map(i64::cast_unsigned);
    let terms = (0..count).map(|_| Ok((number(&mut reader)?, number(&mut reader)?)));
    Ok((stamp, terms.collect::<Result<_, DecodeError>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_state_rests_on_is_part_of_its_snapshot() {
        let share = Share { partition: 1, partitions: 2 };
        let mut stamp = Timestamp::new(2);
        stamp.raise(0, 7);
        let bytes = encode(&stamp, &[(1, 1), (5, 3)]);
        let mut tree = share.empty_tree(Options::default());
        tree.snapshot_begin();
        let mut loader = StateLoader::new(Options::default(), share);
        loader.chunk(&bytes).unwrap();
        let mut slice = Vec::new();
        while tree.snapshot_slice(&mut slice, 1000) {}
        loader.chunk(&slice).unwrap();
        let state = loader.finish().unwrap();
        assert_eq!((state.stamp, state.terms), (stamp, vec![(1, 1), (5, 3)]));
        assert_eq!(state.tree.digest(), tree.digest());
        for cut in 0..bytes.len() {
            assert!(StateLoader::new(Options::default(), share).chunk(&bytes[..cut]).is_err());
        }
        assert!(StateLoader::new(Options::default(), share).finish().is_err());
    }
}
