//! The state of each partition, as a snapshot holds it.
//!
//! ```text
//! snapshot := head of the group, slices of the tree                          of the only partition
//!           | head of the group, (partition u8, chunk)*                      where there are several
//! chunk    := what it rests on                                               the first of each partition
//!           | slice of its tree
//! rests on := timestamp, position i64
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use stoa_tree::{Loader, Options, Tree};
use stoa_wire::Timestamp;
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
    /// Where it stands on the partition's timeline, where there are several.
    pub position: u64,
}

impl State {
    /// At the beginning of the timeline.
    #[must_use]
    pub fn new(tree: Tree) -> Self {
        Self { tree, stamp: Timestamp::default(), position: 0 }
    }
}

/// Puts the states of all partitions together from the chunks of a snapshot, without the first.
#[derive(Debug)]
pub struct StateLoader {
    parts: Vec<PartLoader>,
}

#[derive(Debug)]
struct PartLoader {
    rests_on: Option<(Timestamp, u64)>,
    loader: Loader,
}

impl StateLoader {
    /// Before the first chunk.
    #[must_use]
    pub fn new(options: &Options, partitions: u8) -> Self {
        let part = |_| PartLoader { rests_on: None, loader: Loader::new(options.clone()) };
        Self { parts: (0..partitions.max(1)).map(part).collect() }
    }

    /// The next chunk.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        if let [only] = &mut self.parts[..] {
            return only.loader.chunk(bytes).map_err(|error| error.to_string());
        }
        let (partition, bytes) = bytes.split_first().ok_or("a chunk is empty")?;
        let partitions = self.parts.len();
        let part = self.parts.get_mut(usize::from(*partition));
        let part = part.ok_or_else(|| {
            format!(
                "there is something of partition {partition} in it, and there are {partitions}, from 0 on"
            )
        })?;
        if part.rests_on.is_some() {
            return part.loader.chunk(bytes).map_err(|error| format!("partition {partition}: {error}"));
        }
        let rests_on =
            decode(bytes).map_err(|_| format!("what partition {partition} rests on is not well formed"))?;
        part.rests_on = Some(rests_on);
        Ok(())
    }

    /// It was whole. Returns the state of each partition.
    ///
    /// # Errors
    /// What is missing.
    pub fn finish(self) -> Result<Vec<State>, String> {
        let several = self.parts.len() > 1;
        let finish = |(partition, part): (usize, PartLoader)| {
            let tree = part.loader.finish().map_err(|error| error.to_string())?;
            let (stamp, position) = match part.rests_on {
                None if several => {
                    return Err(format!("it does not say what partition {partition} rests on"));
                }
                rests_on => rests_on.unwrap_or_default(),
            };
            Ok(State { tree, stamp, position })
        };
        self.parts.into_iter().enumerate().map(finish).collect()
    }
}

/// What a partition rests on and where it stands, as the first of its chunks says it.
#[must_use]
pub fn encode_standing(stamp: &Timestamp, position: u64) -> Vec<u8> {
    let mut out = Vec::new();
    stamp.encode(&mut out);
    put::i64(&mut out, position.cast_signed());
    out
}

fn decode(bytes: &[u8]) -> Result<(Timestamp, u64), DecodeError> {
    let mut reader = Reader::new(bytes);
    let stamp = Timestamp::decode(&mut reader)?;
    let position = u64::try_from(reader.i64()?).map_err(|_| DecodeError::BadValue("position"))?;
    Ok((stamp, position))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_state_rests_on_is_part_of_a_snapshot() {
        let mut stamp = Timestamp::new(2);
        stamp.raise(0, 7);
        let mut trees: Vec<_> =
            [0, 1].map(|partition| Share { partition, partitions: 2 }.empty_tree(Options::default())).into();
        let of = |partition: u8, chunk: &[u8]| [&[partition][..], chunk].concat();
        let mut loader = StateLoader::new(&Options::default(), 2);
        for partition in [1, 0] {
            loader.chunk(&of(partition, &encode_standing(&stamp, 5 + u64::from(partition)))).unwrap();
        }
        for (partition, tree) in (0..).zip(&mut trees) {
            tree.snapshot_begin();
            let mut slice = Vec::new();
            while tree.snapshot_slice(&mut slice, 1000) {}
            loader.chunk(&of(partition, &slice)).unwrap();
        }
        let states = loader.finish().unwrap();
        for ((state, tree), position) in states.iter().zip(&trees).zip(5..) {
            assert_eq!((&state.stamp, state.position), (&stamp, position));
            assert_eq!(state.tree.digest(), tree.digest());
        }
    }

    #[test]
    fn what_is_missing_is_noticed() {
        let bytes = encode_standing(&Timestamp::new(2), 5);
        for cut in 0..bytes.len() {
            let chunk = [&[1], &bytes[..cut]].concat();
            assert!(StateLoader::new(&Options::default(), 2).chunk(&chunk).is_err());
        }
        let no_next = [&[1], &encode_standing(&Timestamp::new(2), u64::MAX)[..]].concat();
        assert!(StateLoader::new(&Options::default(), 2).chunk(&no_next).is_err());
        assert!(StateLoader::new(&Options::default(), 2).chunk(&[]).is_err());
        assert!(StateLoader::new(&Options::default(), 2).chunk(&[2, 0]).is_err());
        assert!(StateLoader::new(&Options::default(), 2).finish().is_err());
    }
}
