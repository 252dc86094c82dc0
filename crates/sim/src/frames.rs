//! Frames, as every client makes and takes them.

use stoa_check::Violation;
use stoa_wire::{RequestHeader, begin_frame, end_frame, next_frame};

/// Longest frame that a server may send.
pub(crate) const REPLY_BYTES_MAX: usize = 16 << 20;

/// A frame.
pub(crate) fn frame(body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    body(&mut out);
    end_frame(&mut out, start);
    out
}

/// A request in its frame.
pub(crate) fn request(xid: i32, opcode: i32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid, opcode }.encode(out);
        body(out);
    })
}

/// The frames of a server that are whole with these bytes. What is left stays in the inbox.
pub(crate) fn whole(inbox: &mut Vec<u8>, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Violation> {
    inbox.extend_from_slice(bytes);
    let (mut frames, mut rest) = (Vec::new(), &inbox[..]);
    let nonsense = |error| Violation::new(format!("a client was sent nonsense: {error}"));
    while let Some((frame, tail)) = next_frame(rest, REPLY_BYTES_MAX).map_err(nonsense)? {
        frames.push(frame.to_vec());
        rest = tail;
    }
    *inbox = rest.to_vec();
    Ok(frames)
}
