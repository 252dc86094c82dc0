//! The zxids in what clients of several partitions are told.
//!
//! A client remembers the zxid in the header of the last answer, as it is. When it comes back it sends that
//! with its watches, and is told of what has changed since. With one partition that is exact. With several,
//! an answer of one partition says nothing of what another one had for the client; so its zxid is lowered
//! to where everything has been delivered of each partition that the client watches. Then nothing is missed,
//! and a client may be told once more of something that it has seen.

use alloc::vec::Vec;
use core::ops::Range;
use stoa_wire::{Reader, ReplyHeader, xid};

/// Clients take no notice of 0, and with several partitions no update has this zxid.
const LEAST: i64 = 1;

/// The zxid of the last answer among frames; `None` when there is none, or only one that is outside the
/// order of zxids.
pub(crate) fn last_answer(frames: &[u8]) -> Option<i64> {
    answers(frames).map(|(_, zxid)| zxid).last()
}

/// Makes the zxids of answers no larger than that.
pub(crate) fn lower(frames: &mut [u8], to: i64) {
    let to = to.max(LEAST);
    let larger: Vec<_> = answers(frames).filter(|(_, zxid)| *zxid > to).map(|(at, _)| at).collect();
    for at in larger {
        if let Some(zxid) = frames.get_mut(at) {
            zxid.copy_from_slice(&to.to_be_bytes());
        }
    }
}

/// Up to which zxid there was nothing before these frames.
pub(crate) fn before(frames: &[u8]) -> i64 {
    headers(frames).next().map_or(0, |(_, header)| header.zxid - 1)
}

/// Where the zxids of answers stand, and what they are.
fn answers(frames: &[u8]) -> impl Iterator<Item = (Range<usize>, i64)> {
    let is_answer = |header: &ReplyHeader| header.xid != xid::NOTIFICATION && header.zxid > 0;
    headers(frames)
        .filter(move |(_, header)| is_answer(header))
        .map(|(start, header)| (start + 8..start + 16, header.zxid))
}

/// Where each frame begins, and its header.
fn headers(frames: &[u8]) -> impl Iterator<Item = (usize, ReplyHeader)> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let start = at;
        let rest = frames.get(start..)?;
        let (length, body) = rest.split_first_chunk::<4>()?;
        at = start + 4 + u32::from_be_bytes(*length) as usize;
        Some((start, ReplyHeader::decode(&mut Reader::new(body)).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_wire::{begin_frame, end_frame};

    fn frames(headers: &[(i32, i64)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, (xid, zxid)) in headers.iter().enumerate() {
            let start = begin_frame(&mut out);
            ReplyHeader { xid: *xid, zxid: *zxid, err: 0 }.encode(&mut out);
            out.resize(out.len() + number * 3, 7);
            end_frame(&mut out, start);
        }
        out
    }

    #[test]
    fn zxids_of_answers_are_lowered_and_nothing_else() {
        let given = [(xid::NOTIFICATION, 9), (1, 8), (2, 3), (xid::PING, 0), (3, 9), (xid::NOTIFICATION, 11)];
        let mut bytes = frames(&given);
        assert_eq!((last_answer(&bytes), before(&bytes)), (Some(9), 8));
        lower(&mut bytes, 5);
        let lowered =
            [(xid::NOTIFICATION, 9), (1, 5), (2, 3), (xid::PING, 0), (3, 5), (xid::NOTIFICATION, 11)];
        assert_eq!(bytes, frames(&lowered));
        // Clients would take no notice of 0, and keep the one before.
        lower(&mut bytes, 0);
        let least = [(xid::NOTIFICATION, 9), (1, 1), (2, 1), (xid::PING, 0), (3, 1), (xid::NOTIFICATION, 11)];
        assert_eq!(bytes, frames(&least));
        assert_eq!(last_answer(&frames(&given[..1])), None);
    }
}
