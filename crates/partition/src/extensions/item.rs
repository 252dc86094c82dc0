//! What a program did, as an item of an entry.
//!
//! ```text
//! record := is_reply bool, (err i32, buffer | results i32), watches bool, [path, path, mode i32],
//!           count i32, (kind i32, path)*, count i32, (session i64, path)*
//! ```
//! Numbers and texts stand as on the wire.

use alloc::vec::Vec;
use stoa_tree::{Update, WatchMode};
use stoa_wire::{DecodeError, EventKind, Reader, put};

/// What a program did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran<'a> {
    record: &'a [u8],
    /// What changes, if anything does.
    pub update: Option<Update<'a>>,
}

/// What becomes of what a program did, besides the update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// What the client is answered.
    pub answer: Answer<'a>,
    /// What its request leaves behind.
    pub watch: Option<Watch<'a>>,
    /// Those who watch are not told of these.
    pub muted: Vec<(EventKind, &'a str)>,
    /// These sessions are told of something at a path.
    pub told: Vec<(i64, &'a str)>,
}

/// What the client is answered when a program has done something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A program has carried its request out: this, with an error's number or 0.
    Reply {
        /// The error.
        err: i32,
        /// The body of the reply.
        body: &'a [u8],
    },
    /// So many of the update's operations are the client's own: what they come to.
    Results(usize),
}

/// A watch that a client's request leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch<'a> {
    /// What is watched.
    pub path: &'a str,
    /// The client knows it by this path.
    pub known_as: &'a str,
    /// How.
    pub mode: WatchMode,
}

impl<'a> Ran<'a> {
    pub(crate) fn decode(record: &'a [u8], update: Option<Update<'a>>) -> Option<Self> {
        Record::decode(record).ok()?;
        Some(Self { record, update })
    }

    /// The record of a part: `None` where there is nothing in it.
    #[must_use]
    pub fn of_part(record: &'a [u8]) -> Option<Record<'a>> {
        Record::decode(record).ok()
    }

    /// What becomes of it besides the update.
    #[must_use]
    pub fn record(&self) -> Record<'a> {
        Record::decode(self.record).expect("it could be read when the entry was")
    }
}

impl<'a> Record<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self.answer {
            Answer::Reply { err, body } => {
                put::bool(out, true);
                put::i32(out, err);
                put::buffer(out, body);
            }
            Answer::Results(count) => {
                put::bool(out, false);
                put::len(out, count);
            }
        }
        put::bool(out, self.watch.is_some());
        if let Some(Watch { path, known_as, mode }) = self.watch {
            put::str(out, path);
            put::str(out, known_as);
            put::i32(out, i32::from(mode == WatchMode::Child));
        }
        put::len(out, self.muted.len());
        for (kind, path) in &self.muted {
            put::i32(out, *kind as i32);
            put::str(out, path);
        }
        put::len(out, self.told.len());
        for (session, path) in &self.told {
            put::i64(out, *session);
            put::str(out, path);
        }
    }

    fn decode(record: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(record);
        let answer = match reader.bool()? {
            true => Answer::Reply { err: reader.i32()?, body: reader.buffer()?.unwrap_or_default() },
            false => Answer::Results(reader.count(0)?),
        };
        let watch = match reader.bool()? {
            true => {
                let (path, known_as) = (reader.str()?, reader.str()?);
                let mode = if reader.i32()? == 0 { WatchMode::Data } else { WatchMode::Child };
                Some(Watch { path, known_as, mode })
            }
            false => None,
        };
        let mut muted = Vec::new();
        for _ in 0..reader.count(8)? {
            let kind = reader.i32()?;
            let kind = EventKind::from_i32(kind).ok_or(DecodeError::BadLength)?;
            muted.push((kind, reader.str()?));
        }
        let mut told = Vec::new();
        for _ in 0..reader.count(12)? {
            told.push((reader.i64()?, reader.str()?));
        }
        Ok(Self { answer, watch, muted, told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_cuts_are_noticed() {
        let records = [
            Record {
                answer: Answer::Reply { err: -101, body: b"body" },
                watch: Some(Watch { path: "/ready", known_as: "/ready/a", mode: WatchMode::Data }),
                muted: Vec::new(),
                told: vec![(7, "/a")],
            },
            Record {
                answer: Answer::Results(3),
                watch: None,
                muted: vec![(EventKind::Deleted, "/a"), (EventKind::Created, "/b")],
                told: Vec::new(),
            },
        ];
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&bytes).as_ref(), Ok(&record));
            for len in 0..bytes.len() {
                assert!(Record::decode(&bytes[..len]).is_err(), "cut at {len}");
            }
        }
    }
}
