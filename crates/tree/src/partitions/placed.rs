//! The table of what lives on another partition than the rule says.
//!
//! The tree only keeps it, as a part of its state: what an exception means for what is below its path, and
//! what the rule is, is for those to know who ask for it. Every partition keeps the whole table and changes it
//! by an update of its own, so those of two partitions may differ for a while.
//!
//! ```text
//! changes := (path, partition u8)*         255 when there is no exception any more
//! ```

use crate::digest;
use crate::encoding::{Decoder, Reason, put_bytes};
use crate::reserved::{self, is_at_or_below};
use crate::session::PARTITIONS_MAX;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Bound;
use stoa_wire::path;

/// So many exceptions there may be: the whole table is looked through, copied and written at once.
pub const PLACED_MAX: usize = 1024;

/// The path of an exception has at most so many bytes.
pub const PLACED_PATH_BYTES_MAX: usize = 1024;

/// In place of a partition: where the rule says.
const BY_RULE: u8 = u8::MAX;

const TOO_MANY: Reason = "there are more exceptions than there may be";

/// What lives elsewhere than the rule says: paths, and their partitions. See [`crate::PartOp::Place`].
#[derive(Debug, Clone, Default)]
pub struct Placed {
    version: u64,
    partitions: BTreeMap<String, u8>,
    /// The exceptions' part of the digest.
    digest: u64,
}

impl Placed {
    /// How often it was changed; 0 when it never was.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The partition of an exception, if there is one for exactly this path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<u8> {
        self.partitions.get(path).copied()
    }

    /// The exceptions, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u8)> {
        self.partitions.iter().map(|(path, partition)| (path.as_str(), *partition))
    }

    /// Whether there is an exception for something below a path.
    #[must_use]
    pub fn is_above(&self, path: &str) -> bool {
        if self.partitions.is_empty() {
            return false;
        }
        let below = alloc::format!("{path}/");
        let from = (Bound::Included(below.as_str()), Bound::Unbounded);
        let next = self.partitions.range::<str, _>(from).next();
        next.is_some_and(|(exception, _)| exception.starts_with(&below))
    }

    /// Number of exceptions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Whether everything lives where the rule says.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Its part of the tree's digest: nothing as long as it was never changed.
    pub(super) fn digest(&self) -> u64 {
        match self.version {
            0 => 0,
            version => self.digest.wrapping_add(digest::placed_version_term(version)),
        }
    }

    /// The same, computed anew.
    pub(super) fn recomputed_digest(&self) -> u64 {
        let terms = self.iter().map(|(path, partition)| term(path, partition));
        Self { digest: terms.fold(0, u64::wrapping_add), version: self.version, ..Self::default() }.digest()
    }

    /// After an error it must not be used any more.
    pub(super) fn change(&mut self, changes: Changes<'_>) -> Result<(), Reason> {
        changes.for_each(|(path, partition)| self.set(path, partition));
        if self.len() > PLACED_MAX {
            return Err(TOO_MANY);
        }
        // A snapshot may say that it is the largest already.
        self.version = self.version.saturating_add(1);
        Ok(())
    }

    fn set(&mut self, path: &str, partition: Option<u8>) {
        let before = match partition {
            Some(partition) => self.partitions.insert(path.into(), partition),
            None => self.partitions.remove(path),
        };
        let term = |partition: Option<u8>| partition.map_or(0, |partition| term(path, partition));
        self.digest = self.digest.wrapping_add(term(partition)).wrapping_sub(term(before));
    }

    /// Begins with what a snapshot says of the version.
    pub(super) fn load_version(&mut self, version: u64) -> Result<(), Reason> {
        if version == 0 || self.version != 0 {
            return Err("the table of exceptions is there twice, or has no version");
        }
        self.version = version;
        Ok(())
    }

    /// Takes an exception of a snapshot, after the version.
    pub(super) fn load(&mut self, path: &str, partition: u8) -> Result<(), Reason> {
        check(path, Some(partition))?;
        if self.version == 0 || self.partitions.contains_key(path) {
            return Err("an exception is there twice, or before its table");
        }
        if self.len() == PLACED_MAX {
            return Err(TOO_MANY);
        }
        self.set(path, Some(partition));
        Ok(())
    }
}

fn term(path: &str, partition: u8) -> u64 {
    digest::placed_term(digest::of_path(path), partition)
}

/// Whether what is at this path may live elsewhere than where it always did.
pub(super) fn is_movable(path: &str) -> bool {
    path != reserved::ROOT && !is_at_or_below(path, reserved::ZOOKEEPER)
}

fn check(path: &str, partition: Option<u8>) -> Result<(), Reason> {
    if !path::is_valid(path) || !is_movable(path) || path.len() > PLACED_PATH_BYTES_MAX {
        return Err("the path of an exception is none, too long, or that of what cannot move");
    }
    match partition {
        Some(PARTITIONS_MAX..) => Err("a partition is out of range"),
        _ => Ok(()),
    }
}

/// Changes of the table as they stand in an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changes<'a> {
    rest: &'a [u8],
}

impl<'a> Changes<'a> {
    /// Writes changes to `out`, which is empty.
    pub(super) fn encode(changes: &[(String, Option<u8>)], out: &'a mut Vec<u8>) -> Result<Self, Reason> {
        for (path, partition) in changes {
            check(path, *partition)?;
            put_bytes(out, path.as_bytes());
            out.push(partition.unwrap_or(BY_RULE));
        }
        Ok(Self { rest: out })
    }

    /// Checks bytes that may be anything, but not whether the table has room.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Reason> {
        let mut decoder = Decoder::new(bytes);
        while !decoder.is_at_end() {
            let (path, partition) = read_change(&mut decoder)?;
            check(path, partition)?;
        }
        Ok(Self { rest: bytes })
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.rest
    }
}

fn read_change<'a>(decoder: &mut Decoder<'a>) -> Result<(&'a str, Option<u8>), Reason> {
    let path = decoder.path()?;
    let partition = decoder.u8()?;
    Ok((path, (partition != BY_RULE).then_some(partition)))
}

impl<'a> Iterator for Changes<'a> {
    type Item = (&'a str, Option<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut decoder = Decoder::new(self.rest);
        // All of it was checked, so that only the end is no change.
        let change = read_change(&mut decoder).ok()?;
        self.rest = decoder.rest();
        Some(change)
    }
}

impl fmt::Display for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, partition) in *self {
            match partition {
                Some(partition) => write!(f, " {path:?}={partition}")?,
                None => write!(f, " {path:?}=rule")?,
            }
        }
        Ok(())
    }
}
