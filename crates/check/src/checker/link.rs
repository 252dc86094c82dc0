//! One connection as the checker sees it: what it has asked, and what it must be told.

use crate::model::{Body, ConnectionKey, Identity};
use std::collections::VecDeque;
use std::rc::Rc;
use stoa_core::CloseReason;
use stoa_wire::{FrameError, Opcode, next_frame};

/// What a client has sent, as the server takes it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound {
    /// A whole frame.
    Frame(Vec<u8>),
    /// A frame over the limit, of which the server reads the header only.
    Oversized {
        /// The request's header.
        header: [u8; 8],
    },
}

/// Cuts the bytes that the server has taken in into frames, by its limits.
#[derive(Debug, Default)]
pub struct Inlet {
    bytes: Vec<u8>,
    skip: usize,
}

impl Inlet {
    /// Takes what the server has consumed; returns the frames that are whole now.
    pub fn take(&mut self, consumed: &[u8], limits: &stoa_core::Limits) -> Vec<Inbound> {
        self.bytes.extend_from_slice(consumed);
        let mut frames = Vec::new();
        let mut at = 0;
        loop {
            let skipped = self.skip.min(self.bytes.len() - at);
            self.skip -= skipped;
            at += skipped;
            let rest = &self.bytes[at..];
            match next_frame(rest, limits.frame_bytes) {
                Ok(Some((frame, _))) => {
                    at += 4 + frame.len();
                    frames.push(Inbound::Frame(frame.to_vec()));
                }
                Err(FrameError { announced, .. })
                    if usize::try_from(announced).is_ok_and(|len| len <= limits.frame_skip_bytes) =>
                {
                    let Some(header) = rest.get(4..12).and_then(|header| header.try_into().ok()) else {
                        break;
                    };
                    frames.push(Inbound::Oversized { header });
                    self.skip = announced as usize + 4;
                }
                Ok(None) | Err(_) => break,
            }
        }
        self.bytes.drain(..at);
        frames
    }
}

/// Whether the next frame of a connection announces a length for which the server must hang up.
pub(super) fn is_bad_length(rest: &[u8], live: bool, limits: &stoa_core::Limits) -> bool {
    let Some(head) = rest.first_chunk::<4>() else { return false };
    let most = if live { limits.frame_skip_bytes } else { limits.frame_bytes };
    usize::try_from(i32::from_be_bytes(*head)).map_or(true, |len| len > most)
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Handshake,
    /// The session's creation, or its coming here, is under way.
    Opening,
    Live,
    Closed,
}

/// The answer to a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hello {
    Opened { timeout_ms: i32 },
    Expired,
}

/// Something that is answered in the order in which it was asked.
#[derive(Debug)]
pub(super) enum Expect {
    /// A write: answered when its update is applied.
    Write { zxid: i64, xid: i32, opcode: Opcode },
    /// A write that waits until the server leads.
    Asked { xid: i32, opcode: Opcode },
    /// One of those, that was refused then: answered when the refusal is durable.
    Refused { xid: i32, opcode: Opcode },
    /// An answer that is known, but may leave only when everything up to `after` is applied.
    Answer { after: i64, xid: i32, opcode: Opcode, answer: Answer },
    /// A read: answered from what is applied when its turn comes.
    Read { xid: i32, opcode: Opcode, frame: Rc<[u8]> },
}

/// A reply's error, or its body.
pub(super) type Answer = Result<Body, i32>;

/// Something that is answered at once, whatever waits before it.
#[derive(Debug)]
pub(super) struct Immediate {
    pub(super) xid: i32,
    pub(super) err: i32,
    /// Answered with zxid 0, whatever has been applied.
    pub(super) outside_order: bool,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) phase: Phase,
    pub(super) session: i64,
    pub(super) identities: Rc<Vec<Identity>>,
    pub(super) hello: Option<Hello>,
    pub(super) queue: VecDeque<Expect>,
    pub(super) immediate: VecDeque<Immediate>,
    /// What the server has written and nobody has checked yet.
    pub(super) frames: VecDeque<Vec<u8>>,
    /// Why the server must close it, once it must.
    pub(super) must_close: Option<CloseReason>,
    pub(super) connected_us: u64,
    /// Last zxid in a reply's header.
    pub(super) last_zxid: i64,
}

impl Link {
    pub(super) fn new(address: String, now_us: u64) -> Self {
        Self {
            phase: Phase::Handshake,
            session: 0,
            identities: Rc::new(vec![("ip".into(), address)]),
            hello: None,
            queue: VecDeque::new(),
            immediate: VecDeque::new(),
            frames: VecDeque::new(),
            must_close: None,
            connected_us: now_us,
            last_zxid: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase != Phase::Closed
    }

    /// Nothing is read from it any more. What was asked before may still be answered in this call.
    pub(super) fn shut(&mut self, reason: Option<CloseReason>) {
        if self.is_open() {
            self.phase = Phase::Closed;
            self.must_close = reason;
        }
    }
}

/// Shown in messages.
pub(super) fn name(key: ConnectionKey) -> String {
    format!("connection {key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let limits = stoa_core::Limits { frame_bytes: 16, frame_skip_bytes: 64, ..Default::default() };
        let mut stream = Vec::new();
        stream.extend([0, 0, 0, 3, 1, 2, 3]);
        stream.extend([0, 0, 0, 20]);
        stream.extend([7; 20]);
        stream.extend([0, 0, 0, 0]);
        let wanted = [
            Inbound::Frame(vec![1, 2, 3]),
            Inbound::Oversized { header: [7; 8] },
            Inbound::Frame(Vec::new()),
        ];
        for cut in 0..stream.len() {
            let mut inlet = Inlet::default();
            let mut frames = inlet.take(&stream[..cut], &limits);
            frames.extend(inlet.take(&stream[cut..], &limits));
            assert_eq!(frames, wanted, "cut at {cut}");
        }
    }
}
