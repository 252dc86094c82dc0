//! What servers of an ensemble say to each other.
//!
//! ```text
//! message  := what [`stoa_timeline::Message`] is, which forwards ([`stoa_partition::Asked`] as a buffer)*
//!           | 4, term, number i64, count i32, (session i64, silent_ms i32)*        who was heard of
//!           | 5, term, number i64                                                  that has arrived
//!           | 7, reads i64, count i32, (path, reads i64)*        what is read here in a second, in all and most
//!           | 8, term, position i64, zxid i64                    how much another site has of this site's log
//! ```
//! Encoded like the clients' protocol. Messages may be lost, doubled or late; only those of a process
//! that has ended never come after those of its successor.

use crate::second_site::Shared;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_timeline::BadMessage;
use stoa_wire::{Reader, path, put};

const HEARD: u8 = 4;
const HEARD_ARRIVED: u8 = 5;
const READS: u8 = 7;
const SHARED: u8 = 8;

/// So many subtrees are told with what is read.
pub(crate) const READS_MAX: usize = 64;

type Result<T> = core::result::Result<T, BadMessage>;

/// A message from another server that is none of the timeline's.
#[derive(Debug)]
pub(crate) enum PeerMessage {
    /// Whom the sender has heard of, for the leader.
    Heard { term: u64, number: u64, sessions: Vec<Heard> },
    /// The leader knows it.
    HeardArrived { term: u64, number: u64 },
    /// What the sender's clients read of this partition.
    Reads(Reads),
    /// The leader says how much another site has of this site's log.
    Shared { term: u64, shared: Shared },
}

/// What is read in a second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reads {
    pub(crate) total: u64,
    /// Of the subtrees that are read most.
    pub(crate) subtrees: Vec<(String, u64)>,
}

/// A client was heard of so many milliseconds ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) session: i64,
    pub(crate) silent_ms: u32,
}

/// More than any server can answer: sums of it do not overflow.
const RATE_MAX: u64 = 1 << 40;

fn reads(reader: &mut Reader<'_>) -> Result<Reads> {
    let rate = |reader: &mut Reader<'_>| -> Result<u64> { Ok(number(reader)?.min(RATE_MAX)) };
    let total = rate(reader)?;
    let count = reader.count(12)?;
    if count > READS_MAX {
        return Err(BadMessage);
    }
    let mut subtrees = Vec::with_capacity(count);
    for _ in 0..count {
        let path = reader.str()?;
        if !path::is_valid(path) {
            return Err(BadMessage);
        }
        subtrees.push((path.to_string(), rate(reader)?));
    }
    Ok(Reads { total, subtrees })
}

fn number(reader: &mut Reader<'_>) -> Result<u64> {
    Ok(reader.i64()? as u64)
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    put::i64(out, number as i64);
}

fn put_numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    numbers.iter().for_each(|number| put_number(out, *number));
}

impl PeerMessage {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Heard { term, number, sessions } => {
                put_numbers(&mut out, HEARD, &[*term, *number]);
                put::len(&mut out, sessions.len());
                for Heard { session, silent_ms } in sessions {
                    put::i64(&mut out, *session);
                    put::i32(&mut out, i32::try_from(*silent_ms).unwrap_or(i32::MAX));
                }
            }
            Self::HeardArrived { term, number } => {
                put_numbers(&mut out, HEARD_ARRIVED, &[*term, *number]);
            }
            Self::Reads(Reads { total, subtrees }) => {
                put_numbers(&mut out, READS, &[*total]);
                put::len(&mut out, subtrees.len());
                for (path, reads) in subtrees {
                    put::str(&mut out, path);
                    put_number(&mut out, *reads);
                }
            }
            Self::Shared { term, shared: Shared { position, zxid } } => {
                put_numbers(&mut out, SHARED, &[*term, *position]);
                put::i64(&mut out, *zxid);
            }
        }
        out.into()
    }

    /// Whether it is what a leader says to those who follow it.
    pub(crate) fn is_of_leader(&self) -> bool {
        match self {
            Self::HeardArrived { .. } | Self::Shared { .. } => true,
            Self::Heard { .. } | Self::Reads(_) => false,
        }
    }

    /// Reads what [`PeerMessage::encode`] wrote; what it takes is in proportion to the bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let [kind] = *reader.take(1)? else { return Err(BadMessage) };
        let message = match kind {
            HEARD => {
                let (term, count_of) = (number(&mut reader)?, number(&mut reader)?);
                let count = reader.count(12)?;
                let mut sessions = Vec::with_capacity(count);
                for _ in 0..count {
                    let (session, silent_ms) = (reader.i64()?, reader.i32()?);
                    let silent_ms = u32::try_from(silent_ms).map_err(|_| BadMessage)?;
                    sessions.push(Heard { session, silent_ms });
                }
                Self::Heard { term, number: count_of, sessions }
            }
            HEARD_ARRIVED => Self::HeardArrived { term: number(&mut reader)?, number: number(&mut reader)? },
            READS => Self::Reads(reads(&mut reader)?),
            SHARED => {
                let (term, position) = (number(&mut reader)?, number(&mut reader)?);
                Self::Shared { term, shared: Shared { position, zxid: reader.i64()? } }
            }
            _ => return Err(BadMessage),
        };
        if reader.rest().is_empty() { Ok(message) } else { Err(BadMessage) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_timeline::Message;

    fn samples() -> Vec<PeerMessage> {
        vec![
            PeerMessage::Heard { term: 1, number: 2, sessions: vec![Heard { session: 3, silent_ms: 4 }] },
            PeerMessage::HeardArrived { term: 1, number: 2 },
            PeerMessage::Shared { term: 1, shared: Shared { position: 2, zxid: 3 } },
            PeerMessage::Reads(Reads { total: 9, subtrees: vec![("/a".into(), 5), ("/a/b".into(), 4)] }),
        ]
    }

    #[test]
    fn what_is_read_is_bounded_and_of_paths() {
        let decode = |subtrees: Vec<(String, u64)>| {
            let reads = PeerMessage::Reads(Reads { total: u64::MAX, subtrees });
            PeerMessage::decode(&reads.encode())
        };
        let many = |count| (0..count).map(|number| (format!("/{number}"), u64::MAX)).collect();
        let Ok(PeerMessage::Reads(reads)) = decode(many(READS_MAX)) else { panic!("it is read") };
        assert!(reads.total == RATE_MAX && reads.subtrees.iter().all(|(_, reads)| *reads == RATE_MAX));
        assert!(decode(many(READS_MAX + 1)).is_err());
        assert!(decode(vec![("no path".into(), 1)]).is_err());
    }

    #[test]
    fn what_is_written_is_read_and_cuts_are_refused() {
        for message in samples() {
            let bytes = message.encode();
            assert!(!Message::is_kind(bytes[0]), "it would be taken for one of the timeline");
            let read = PeerMessage::decode(&bytes).unwrap();
            assert_eq!(format!("{read:?}"), format!("{message:?}"));
            for len in 0..bytes.len() {
                assert!(PeerMessage::decode(&bytes[..len]).is_err(), "cut at {len}");
            }
        }
    }
}
