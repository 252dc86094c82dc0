//! Which partition a znode lives on, unless a table says otherwise.
//!
//! A subtree lives where the hash of the name right below the root says, so a table of a thousand
//! directories is no table at all; the root itself and `/zookeeper` live on the first partition. Quotas
//! stand below `/zookeeper/quota` under the path that they are for, and live where that does, because each
//! write to it looks there.

/// The root's partition.
const FIRST: u8 = 0;

const SYSTEM: &[u8] = b"zookeeper";
const QUOTA: &[u8] = b"/zookeeper/quota/";

/// Where the znode at a path lives, or would live, among so many partitions. The path need not be one, nor
/// text: what is no path is the first partition's to refuse.
#[must_use]
#[inline]
pub fn partition_of(path: &[u8], partitions: u8) -> u8 {
    if partitions <= 1 {
        return FIRST;
    }
    let quota = path.strip_prefix(QUOTA);
    let path = quota.or_else(|| path.strip_prefix(b"/")).unwrap_or_default();
    let top = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    if top.is_empty() || top == SYSTEM {
        return FIRST;
    }
    partition_of_top(without_number(top), partitions)
}

/// Where a znode right below the root will live to whose name a sequential create puts a number.
#[must_use]
#[inline]
pub fn partition_of_top(name: &[u8], partitions: u8) -> u8 {
    if partitions <= 1 { FIRST } else { (hash(name) % u64::from(partitions)) as u8 }
}

/// A name without the number that a sequential create has put behind it, if it looks like that: those
/// that were made with the same name live together, and it is known where before the number is.
#[must_use]
pub fn without_number(name: &[u8]) -> &[u8] {
    const NUMBER_BYTES: usize = 10;
    match name.len().checked_sub(NUMBER_BYTES).and_then(|at| name.split_at_checked(at)) {
        Some((prefix, number))
            if number.strip_prefix(b"-").unwrap_or(number).iter().all(u8::is_ascii_digit) =>
        {
            prefix
        }
        _ => name,
    }
}

/// FNV-1a, with its bits mixed so that the remainder depends on all of them. What lives where follows from
/// it, so it must never change.
fn hash(bytes: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    state ^= state >> 32;
    state = state.wrapping_mul(0xd6e8_feb8_6659_fd93);
    state ^ (state >> 32)
}
