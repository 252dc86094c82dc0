//! The digest: two servers with the same state have the same one.
//!
//! It is a sum (wrapping) of terms: two for each znode, one for each session, one for each name of a znode
//! that lives on another partition, and of the table of what lives elsewhere than the rule says one for each
//! exception and one for the version. So it does not depend on any order, on ids, or on the way the state
//! came about, and a change costs only the terms that it touches. The data of a znode has a term of its own:
//! a parent with much data is not hashed again for each child that comes and goes. The terms of all replicas
//! must agree, so nothing here may depend on a seed. It finds faults, not forgers.

use crate::hash::{self, fold};

const A: u64 = 0xa076_1d64_78bd_642f;
const B: u64 = 0xe703_7ed1_a0b4_28db;
const C: u64 = 0x8ebc_6af0_9c88_c6e3;

/// From this length on bytes are hashed in lanes.
const LONG: usize = 128;

/// Hashes bytes, chained from `state`.
pub(crate) fn bytes(state: u64, bytes: &[u8]) -> u64 {
    let mut state = fold(state ^ A, bytes.len() as u64 ^ B);
    let mut rest = bytes;
    if bytes.len() >= LONG {
        (state, rest) = in_lanes(state, bytes);
    }
    let (pairs, tail) = rest.as_chunks::<16>();
    for pair in pairs {
        state = word(state, u128::from_le_bytes(*pair));
    }
    word(state, last_word(bytes, tail))
}

/// The last bytes, less than sixteen, as a number; `all` ends with them. Where there are more before them those are
/// read too, and shifted out: that is one load, where a copy would be a call.
#[inline]
fn last_word(all: &[u8], tail: &[u8]) -> u128 {
    match (all.last_chunk::<16>(), tail.split_first_chunk::<8>()) {
        _ if tail.is_empty() => 0,
        (Some(last), _) => u128::from_le_bytes(*last) >> (128 - 8 * tail.len()),
        (None, Some((low, rest))) => {
            u128::from(hash::last_word(tail, rest)) << 64 | u128::from(u64::from_le_bytes(*low))
        }
        (None, None) => u128::from(hash::last_word(tail, tail)),
    }
}

/// Hashes all but the last few bytes, which are left over. In a single lane each multiplication would
/// wait for the one before; those of four lanes overlap.
fn in_lanes(state: u64, bytes: &[u8]) -> (u64, &[u8]) {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut lanes = [state, state ^ A, state ^ B, state ^ C];
    for block in blocks {
        for (lane, pair) in lanes.iter_mut().zip(block.as_chunks::<16>().0) {
            *lane = word(*lane, u128::from_le_bytes(*pair));
        }
    }
    let state = lanes.into_iter().fold(state, |state, lane| fold(state ^ A, lane ^ state.rotate_left(23)));
    (state, rest)
}

#[inline]
fn word(state: u64, word: u128) -> u64 {
    fold(state ^ word as u64 ^ B, (word >> 64) as u64 ^ state.rotate_left(23) ^ C)
}

#[inline]
fn number(state: u64, number: i64) -> u64 {
    fold(state ^ number as u64, C).wrapping_add(state.rotate_left(9))
}

/// The digest of the root's path.
pub(crate) const ROOT_PATH: u64 = A;

/// The digest of the path of a child, from that of its parent: what each of a znode's terms
/// starts from.
pub(crate) fn child_path(parent: u64, name: &[u8]) -> u64 {
    bytes(parent, name)
}

/// The digest of a valid path.
pub(crate) fn of_path(path: &str) -> u64 {
    let names = path.as_bytes().get(1..).filter(|tail| !tail.is_empty());
    let names = names.into_iter().flat_map(|tail| tail.split(|byte| *byte == b'/'));
    names.fold(ROOT_PATH, child_path)
}

/// What the terms and the counts need to know of a path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) path_digest: u64,
    /// Bytes.
    pub(crate) path_len: usize,
}

impl Place {
    pub(crate) const ROOT: Self = Self { path_digest: ROOT_PATH, path_len: 1 };

    pub(crate) fn of(path: &str) -> Self {
        Self { path_digest: of_path(path), path_len: path.len() }
    }

    /// That of a child.
    pub(crate) fn child(self, name: &[u8]) -> Self {
        let slash_len = usize::from(self.path_len > Self::ROOT.path_len);
        let path_len = self.path_len + slash_len + name.len();
        Self { path_digest: child_path(self.path_digest, name), path_len }
    }
}

/// The hash of data, wherever it is.
pub(crate) fn of_data(data: &[u8]) -> u64 {
    bytes(B, data)
}

/// The term of a znode's data, from its hash; null is not empty.
pub(crate) fn data_term(path: u64, hash: Option<u64>) -> u64 {
    match hash {
        Some(hash) => number(path ^ B, hash as i64),
        None => fold(path ^ C, A),
    }
}

/// The term of everything else about a znode.
pub(crate) fn stat_term(path: u64, numbers: [i64; 12]) -> u64 {
    numbers.into_iter().fold(path, number)
}

/// The term of a session, whose client came to a server with this opening.
pub(crate) fn session_term(id: i64, timeout_ms: i32, password: &[u8], (server, opening): (u8, u64)) -> u64 {
    let place = number(number(B, i64::from(server)), opening as i64);
    bytes(number(number(place, id), i64::from(timeout_ms)), password)
}

/// The same, of a session that owns ephemerals on other partitions.
pub(crate) fn visitor_term(session_term: u64, visited: u64) -> u64 {
    number(session_term ^ B, visited as i64)
}

/// The term of everything but its data about a znode that is marked with a site, and of a session that has its home
/// at one.
pub(crate) fn marked_term(term: u64, site: u8) -> u64 {
    number(term ^ A, i64::from(site))
}

/// The term of an exception in the table of what lives elsewhere than the rule says.
pub(crate) fn placed_term(path: u64, partition: u8) -> u64 {
    number(path ^ C, i64::from(partition))
}

/// The term of that table's version.
pub(crate) fn placed_version_term(version: u64) -> u64 {
    number(C, version as i64)
}

/// The term of a name whose znode lives on another partition.
pub(crate) fn away_term(path: u64) -> u64 {
    number(path ^ A, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_hashes_differently() {
        let path = of_path("/a");
        let data_term = |path, data: Option<&[u8]>| data_term(path, data.map(of_data));
        let long: Vec<u8> = (0..4 * LONG).map(|at| (at % 251) as u8).collect();
        let mut terms: Vec<_> = (0..=long.len()).map(|len| data_term(path, Some(&long[..len]))).collect();
        for at in 0..long.len() {
            let mut other = long.clone();
            other[at] ^= 1;
            terms.push(data_term(path, Some(&other)));
        }
        // As a number they are what they are at the start of sixteen bytes.
        for (start, end) in (0..40).flat_map(|end| (end.max(15) - 15..=end).map(move |start| (start, end))) {
            let mut padded = [0; 16];
            padded[..end - start].copy_from_slice(&long[start..end]);
            let word = u128::from_le_bytes(padded);
            assert_eq!(last_word(&long[..end], &long[start..end]), word, "{start}..{end}");
            assert_eq!(last_word(&long[start..end], &long[start..end]), word, "{start}..{end}");
        }
        // Blocks that change places are not taken for one another.
        for at in [0, 64, 128] {
            let mut other = long.clone();
            other[at..at + 80].rotate_left(16);
            terms.push(data_term(path, Some(&other)));
        }
        terms.extend([
            data_term(path, None),
            data_term(path, Some(&[0; 16])),
            data_term(path, Some(&[0; 17])),
            data_term(of_path("/b"), None),
            stat_term(path, [0; 12]),
            stat_term(path, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            marked_term(stat_term(path, [0; 12]), 1),
            marked_term(stat_term(path, [0; 12]), 2),
            stat_term(path, [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            away_term(path),
            away_term(of_path("/b")),
            session_term(1, 2, &[3; 16], (0, 0)),
            visitor_term(session_term(1, 2, &[3; 16], (0, 0)), 1),
            visitor_term(session_term(1, 2, &[3; 16], (0, 0)), 2),
            session_term(2, 1, &[3; 16], (0, 0)),
            session_term(2, 1, &[3; 16], (1, 0)),
            session_term(2, 1, &[3; 16], (0, 1)),
        ]);
        let count = terms.len();
        terms.sort_unstable();
        terms.dedup();
        assert_eq!(terms.len(), count);
    }
}
