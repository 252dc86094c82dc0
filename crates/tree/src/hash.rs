//! Hashes of paths, for tables. A path's hash is chained, component by component, from the hash of its parent. Two
//! paths may share one; whoever looks up verifies.

use crate::reserved;
use stoa_wire::path;

/// Hashes paths. The seed keeps a client from choosing names that collide; it is no part of the
/// replicated state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathHasher {
    seed: u64,
}

const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;
const FINISH: u64 = 0xd6e8_feb8_6659_fd93;

/// The hash of the root.
pub(crate) const ROOT_HASH: u32 = 0x5170_a000;

#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl PathHasher {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The hash of the child `name` of the path with the hash `parent`.
    #[inline]
    pub(crate) fn child(self, parent: u32, name: &[u8]) -> u32 {
        self.component::<false>(parent, name, 0).0
    }

    /// The hash of the component that begins at `start`, and where it ends: at the end of all, or at a slash if one
    /// would end it. It is inlined everywhere: each lookup takes it for each component, and as a call it is a fifth
    /// of the lookup.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    fn component<const ENDS_AT_SLASH: bool>(self, parent: u32, bytes: &[u8], start: usize) -> (u32, usize) {
        let mut state = self.seed ^ u64::from(parent) << 32;
        let mut end = start;
        let last = loop {
            let rest = bytes.get(end..).unwrap_or_default();
            let (word, len) = match rest.first_chunk::<8>() {
                Some(word) => (u64::from_le_bytes(*word), 8),
                None => (last_word(bytes, rest), rest.len()),
            };
            let slash = if ENDS_AT_SLASH { first_slash(word) } else { 8 };
            if slash < len {
                end += slash;
                break word & ((1 << (8 * slash)) - 1);
            }
            end += len;
            if len < 8 {
                break word;
            }
            state = fold(state ^ word, FOLD ^ self.seed.rotate_left(17));
        };
        // Zeros are told from nothing by the length.
        state = fold(state ^ last, FINISH ^ self.seed.rotate_left(41) ^ (end - start) as u64);
        ((state ^ (state >> 32)) as u32, end)
    }

    /// The hash of an absolute path. What is not one gets the hash of something else, and fails
    /// the verification that follows every lookup.
    #[inline]
    pub(crate) fn path(self, path: &str) -> u32 {
        let bytes = path.as_bytes();
        let (mut hash, mut end) = (ROOT_HASH, 0);
        if bytes.len() <= 1 {
            return hash;
        }
        while end < bytes.len() {
            (hash, end) = self.component::<true>(hash, bytes, end + 1);
        }
        hash
    }

    /// A path and those above it, each with its hash, from the root down. All of them together take one pass
    /// over the path, where hashing each by itself would take as many as there are levels.
    #[inline]
    pub(crate) fn levels(self, path: &str) -> impl Iterator<Item = (&str, u32)> {
        let bytes = path.as_bytes();
        let mut next = Some((ROOT_HASH, 0));
        core::iter::from_fn(move || {
            let (hash, end) = next?;
            next = (end + 1 < bytes.len()).then(|| self.component::<true>(hash, bytes, end + 1));
            Some((if end == 0 { reserved::ROOT } else { &path[..end] }, hash))
        })
    }
}

/// The last bytes, less than eight, as a number; `all` ends with them. Where there are more before them those are
/// read too, and shifted out: that is one load, where a copy would be a call.
#[inline]
pub(crate) fn last_word(all: &[u8], tail: &[u8]) -> u64 {
    match (tail, all.last_chunk::<8>()) {
        ([], _) => 0,
        (tail, Some(word)) => u64::from_le_bytes(*word) >> (64 - 8 * tail.len()),
        (tail, None) => tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Which of eight bytes is the first slash; 8 when none is.
#[inline]
fn first_slash(word: u64) -> usize {
    path::bytes_equal(word, b'/').trailing_zeros() as usize / 8
}

/// Whether two names of a few bytes are equal, without a call for the comparison.
#[inline]
pub(crate) fn is_same_name(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.first_chunk::<8>(), a.last_chunk::<8>(), b.first_chunk::<8>(), b.last_chunk::<8>()) {
        // Up to 16 bytes the first and the last eight cover everything.
        (Some(a_first), Some(a_last), Some(b_first), Some(b_last)) if a.len() <= 16 => {
            (u64::from_le_bytes(*a_first) ^ u64::from_le_bytes(*b_first))
                | (u64::from_le_bytes(*a_last) ^ u64::from_le_bytes(*b_last))
                == 0
        }
        (Some(_), ..) => a == b,
        _ => a.iter().zip(b).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0,
    }
}

/// Spreads 32 bits over the 64 that a table wants: it takes its bucket from the low end and its
/// tag from the high one.
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(FOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_hashes_as_its_parent_extended_by_its_name() {
        let hasher = PathHasher::new(7);
        let parent = hasher.path("/some-parent/b");
        assert_eq!(hasher.path("/some-parent/b/child-of-it"), hasher.child(parent, b"child-of-it"));
        assert_eq!(hasher.path("/"), ROOT_HASH);
        assert_ne!(hasher.path("/ab"), hasher.path("/a/b"));
        assert_ne!(hasher.path("/a\0"), hasher.path("/a"));
        assert_ne!(PathHasher::new(8).path("/a"), hasher.path("/a"));
    }

    #[test]
    fn levels_are_the_paths_from_the_root_down() {
        let hasher = PathHasher::new(7);
        let deep = ["/", "/a", "/a/some-long-name", "/a/some-long-name/\u{e9}", "/a/some-long-name/\u{e9}/c"];
        for expected in [&["/"][..], &["/", "/a"], &deep] {
            let levels: Vec<_> = hasher.levels(expected[expected.len() - 1]).collect();
            assert_eq!(levels, expected.iter().map(|path| (*path, hasher.path(path))).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_byte_of_a_component_counts() {
        let hasher = PathHasher::new(7);
        for len in 1..20 {
            let path: String = core::iter::once('/').chain("abcdefghijklmnopqrs".chars().take(len)).collect();
            assert_eq!(hasher.path(&path), hasher.child(ROOT_HASH, &path.as_bytes()[1..]), "{path}");
            assert_eq!(
                hasher.path(&format!("/x{path}")),
                hasher.child(hasher.path("/x"), &path.as_bytes()[1..])
            );
            for at in 1..=len {
                let mut other = path.clone().into_bytes();
                other[at] ^= 1;
                let other = String::from_utf8(other).unwrap();
                assert_ne!(hasher.path(&path), hasher.path(&other), "{path} {other}");
                assert!(!is_same_name(path.as_bytes(), other.as_bytes()));
            }
            assert!(is_same_name(path.as_bytes(), path.clone().as_bytes()));
            assert!(!is_same_name(path.as_bytes(), &path.as_bytes()[1..]));
        }
    }

    #[test]
    fn a_slash_is_found_wherever_it_is() {
        let others = [0, b'.', b'0', 0x2f ^ 0x80, 0xff];
        for other in others {
            assert_eq!(first_slash(u64::from_le_bytes([other; 8])), 8);
            for at in 0..8 {
                let mut bytes = [other; 8];
                bytes[at] = b'/';
                assert_eq!(first_slash(u64::from_le_bytes(bytes)), at);
                bytes[7] = b'/';
                assert_eq!(first_slash(u64::from_le_bytes(bytes)), at);
            }
        }
    }

    #[test]
    fn hashes_of_similar_names_are_spread() {
        let hasher = PathHasher::new(0);
        let mut hashes: Vec<u32> = (0..100_000).map(|n| hasher.path(&format!("/key-{n:06}"))).collect();
        hashes.sort_unstable();
        hashes.dedup();
        // 100,000 random 32-bit values have about 1.2 collisions.
        assert!(hashes.len() > 99_980, "{} distinct hashes of 100,000", hashes.len());
    }
}
