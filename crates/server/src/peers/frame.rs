//! Frames: what every connection between servers consists of.
//!
//! A length (u32), a CRC-32 of all that follows it (u32), a kind (u8), and the payload.
//! docs/peer-protocol.md has the payloads.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 9;
/// The longest message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Who speaks: the first frame of either side.
    Hello = 1,
    /// The initiator's proof that it knows the secret.
    Proof = 2,
    /// The acceptor's proof; the connection is open.
    Accepted = 3,
    /// The connection is refused; the payload says why.
    Refused = 4,
    /// Nothing but a sign of life.
    Ping = 5,
    /// A message.
    Message = 6,
    /// A snapshot is offered.
    Begin = 7,
    /// From where on the snapshot is wanted.
    Resume = 8,
    /// A piece of the snapshot.
    Chunk = 9,
    /// The snapshot is complete.
    End = 10,
    /// The snapshot is durable at the receiver.
    Done = 11,
    /// The receiver gives up; the payload says why.
    Failed = 12,
    /// The list of servers, once it is another one than that of the first leader's settings.
    Servers = 13,
    /// Between sites: what a ping is answered with.
    Pong = 14,
    /// Between sites: a message, compressed.
    Packed = 15,
    /// Of a reader: the list of the readers below it.
    Listing = 16,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        const ALL: [FrameKind; 16] = [
            FrameKind::Hello,
            FrameKind::Proof,
            FrameKind::Accepted,
            FrameKind::Refused,
            FrameKind::Ping,
            FrameKind::Message,
            FrameKind::Begin,
            FrameKind::Resume,
            FrameKind::Chunk,
            FrameKind::End,
            FrameKind::Done,
            FrameKind::Failed,
            FrameKind::Servers,
            FrameKind::Pong,
            FrameKind::Packed,
            FrameKind::Listing,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The length is out of range.
    TooLong { len: usize, max: usize },
    /// The checksum does not fit.
    Damaged { len: usize },
    /// No frame of this protocol has this kind.
    Unknown(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len, max } => write!(f, "a frame of {len} bytes, where {max} are the most"),
            Self::Damaged { len } => write!(f, "a frame of {len} bytes that does not fit its checksum"),
            Self::Unknown(kind) => write!(f, "a frame of the unknown kind {kind}"),
        }
    }
}

impl From<FrameError> for std::io::Error {
    fn from(error: FrameError) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error.to_string())
    }
}

/// The bytes before a payload, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) len: usize,
    crc: u32,
    kind: u8,
}

impl Header {
    /// Takes a header apart; a payload longer than `max` is refused.
    pub(super) fn read(bytes: &[u8; HEADER_BYTES], max: usize) -> Result<Self, FrameError> {
        let [a, b, c, d, e, f, g, h, kind] = *bytes;
        let len = u32::from_le_bytes([a, b, c, d]);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > max {
            return Err(FrameError::TooLong { len, max });
        }
        Ok(Self { len, crc: u32::from_le_bytes([e, f, g, h]), kind })
    }

    /// The frame's kind, if its payload is what was sent.
    pub(super) fn check(&self, payload: &[u8]) -> Result<FrameKind, FrameError> {
        if checksum(self.kind, core::iter::once(payload)).1 != self.crc {
            return Err(FrameError::Damaged { len: self.len });
        }
        FrameKind::from_byte(self.kind).ok_or(FrameError::Unknown(self.kind))
    }
}

fn checksum<'a>(kind: u8, parts: impl Iterator<Item = &'a [u8]>) -> (usize, u32) {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    let mut len = 0;
    for part in parts {
        len += part.len();
        hasher.update(part);
    }
    (len, hasher.finalize())
}

/// The header of a frame whose payload is these parts together.
pub(super) fn header<'a>(kind: FrameKind, parts: impl Iterator<Item = &'a [u8]>) -> [u8; HEADER_BYTES] {
    let (len, crc) = checksum(kind as u8, parts);
    let len = u32::try_from(len).expect("payloads are bounded where they are made");
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&len.to_le_bytes());
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    header[8] = kind as u8;
    header
}

/// A whole frame.
pub(crate) fn encode(kind: FrameKind, parts: &[&[u8]]) -> BytesMut {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + len);
    frame.put_slice(&header(kind, parts.iter().copied()));
    for part in parts {
        frame.put_slice(part);
    }
    frame
}

/// Takes the next frame off the front of `buffer`; `None` when it is not whole yet, and then there is
/// room for the rest of it.
pub(crate) fn take(buffer: &mut BytesMut, max: usize) -> Result<Option<(FrameKind, Bytes)>, FrameError> {
    let Some(first) = buffer.first_chunk() else { return Ok(None) };
    let header = Header::read(first, max)?;
    let whole = HEADER_BYTES + header.len;
    if buffer.len() < whole {
        buffer.reserve(whole - buffer.len());
        return Ok(None);
    }
    let payload = buffer.split_to(whole).freeze().slice(HEADER_BYTES..);
    Ok(Some((header.check(&payload)?, payload)))
}

/// Whether the next frame is a message; its payload need not be there yet.
pub(super) fn is_message(buffer: &BytesMut) -> bool {
    buffer.get(HEADER_BYTES - 1) == Some(&(FrameKind::Message as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_wherever_they_are_cut() {
        let mut sent = encode(FrameKind::Message, &[b"one ", b"message"]);
        sent.extend_from_slice(&encode(FrameKind::Ping, &[]));
        for cut in 0..=sent.len() {
            let mut buffer = BytesMut::from(&sent[..cut]);
            let mut got = Vec::new();
            while let Some(frame) = take(&mut buffer, 11).unwrap() {
                got.push(frame);
            }
            buffer.extend_from_slice(&sent[cut..]);
            while let Some(frame) = take(&mut buffer, 11).unwrap() {
                got.push(frame);
            }
            let expected =
                [(FrameKind::Message, Bytes::from_static(b"one message")), (FrameKind::Ping, Bytes::new())];
            assert_eq!(got, expected);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let sent = encode(FrameKind::Message, &[b"payload"]);
        for bit in 0..sent.len() * 8 {
            let mut buffer = sent.clone();
            buffer[bit / 8] ^= 1 << (bit % 8);
            // A longer length makes it wait for more, up to the limit.
            assert!(!matches!(take(&mut buffer, 64), Ok(Some(_))), "bit {bit}");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_anything_is_held_for_it() {
        let mut buffer = encode(FrameKind::Message, &[&[7; 12]]);
        let before = buffer.capacity();
        assert_eq!(take(&mut buffer, 11), Err(FrameError::TooLong { len: 12, max: 11 }));
        assert_eq!(buffer.capacity(), before);
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        let mut frame = encode(FrameKind::Ping, &[]);
        frame[8] = 99;
        frame[4..8].copy_from_slice(&checksum(99, core::iter::empty()).1.to_le_bytes());
        assert_eq!(take(&mut frame, 0), Err(FrameError::Unknown(99)));
    }
}
