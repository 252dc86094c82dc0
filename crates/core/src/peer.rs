//! What servers of an ensemble say to each other.
//!
//! ```text
//! message  := what [`stoa_timeline::Message`] is, which forwards (asked as a buffer)*
//!           | 4, term, number i64, count i32, (session i64, silent_ms i32)*        who was heard of
//!           | 5, term, number i64                                                  that has arrived
//!           | 7, reads i64, count i32, (path, reads i64)*        what is read here in a second, in all and most
//! asked    := 1, session i64, timeout_ms i32, password buffer                      create
//!           | 2, session i64, timeout_ms i32, password buffer                      open
//!           | 3, session, opening i64, opcode i32, count i32, (scheme, id)*, body  any write;
//!             session 0 if its contact server alone keeps it
//!           | 4, since i64, placed i64, seen, as 3                      where there are partitions
//!           | 5, to u8, path                                            a move; not between servers
//!           | 6, seen, as 1;  | 7, seen, as 2                           where there are partitions
//! seen     := zxid i64, count i32, position i64*
//! ```
//! Encoded like the clients' protocol. Messages may be lost, doubled or late; only those of a process
//! that has ended never come after those of its successor.

use crate::auth::IDENTITIES_MAX;
use crate::timestamp::Timestamp;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_timeline::BadMessage;
use stoa_tree::Identity;
use stoa_wire::{Opcode, PASSWORD_LEN, Reader, path, put};

const HEARD: u8 = 4;
const HEARD_ARRIVED: u8 = 5;
const READS: u8 = 7;

/// So many subtrees are told with what is read.
pub(crate) const READS_MAX: usize = 64;

const CREATE_SESSION: u8 = 1;
const OPEN_SESSION: u8 = 2;
const WRITE: u8 = 3;
const WRITE_AFTER: u8 = 4;
const MOVE: u8 = 5;
const CREATE_SESSION_AFTER: u8 = 6;
const OPEN_SESSION_AFTER: u8 = 7;

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

/// A request that a contact server hands to the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    /// A new session, and what its client had seen.
    CreateSession { seen: Timestamp, session: i64, timeout_ms: i32, password: [u8; PASSWORD_LEN] },
    /// A session comes back, with what its client had seen.
    OpenSession { seen: Timestamp, session: i64, timeout_ms: i32, password: &'a [u8] },
    /// A write, or the end of the session.
    Write {
        session: i64,
        opening: u64,
        /// What it rests on.
        after: After,
        opcode: Opcode,
        identities: Vec<Identity>,
        body: &'a [u8],
    },
    /// A subtree is to live on another partition; the server itself wants that.
    Move { path: &'a str, to: u8 },
}

/// What a request rests on, where there are several partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct After {
    /// Where on the first partition's timeline its session came to its connection.
    pub(crate) since: u64,
    /// By which version of the table of what lives where it came to its partition.
    pub(crate) placed: u64,
    /// What its client had seen.
    pub(crate) seen: Timestamp,
}

impl<'a> Asked<'a> {
    pub(crate) fn put_session(
        out: &mut Vec<u8>,
        is_new: bool,
        seen: &Timestamp,
        session: i64,
        timeout_ms: i32,
        password: &[u8],
    ) {
        out.push(match (is_new, seen.is_empty()) {
            (true, true) => CREATE_SESSION,
            (false, true) => OPEN_SESSION,
            (true, false) => CREATE_SESSION_AFTER,
            (false, false) => OPEN_SESSION_AFTER,
        });
        if !seen.is_empty() {
            seen.encode(out);
        }
        put::i64(out, session);
        put::i32(out, timeout_ms);
        put::buffer(out, password);
    }

    pub(crate) fn put_write(
        out: &mut Vec<u8>,
        (session, opening): (i64, u64),
        after: &After,
        opcode: Opcode,
        identities: &[Identity],
        body: &[u8],
    ) {
        if after.seen.is_empty() {
            out.push(WRITE);
        } else {
            out.push(WRITE_AFTER);
            put_number(out, after.since);
            put_number(out, after.placed);
            after.seen.encode(out);
        }
        put::i64(out, session);
        put_number(out, opening);
        put::i32(out, opcode as i32);
        put::len(out, identities.len());
        for identity in identities {
            put::str(out, &identity.scheme);
            put::str(out, &identity.id);
        }
        put::buffer(out, body);
    }

    pub(crate) fn put_move(out: &mut Vec<u8>, path: &str, to: u8) {
        out.extend_from_slice(&[MOVE, to]);
        put::str(out, path);
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let [kind] = *reader.take(1)? else { return Err(BadMessage) };
        let asked = match kind {
            CREATE_SESSION | OPEN_SESSION | CREATE_SESSION_AFTER | OPEN_SESSION_AFTER => {
                let seen = match kind {
                    CREATE_SESSION | OPEN_SESSION => Timestamp::default(),
                    _ => Timestamp::decode(&mut reader)?,
                };
                let (session, timeout_ms) = (reader.i64()?, reader.i32()?);
                let password = buffer(&mut reader)?;
                if matches!(kind, CREATE_SESSION | CREATE_SESSION_AFTER) {
                    let password = password.try_into().map_err(|_| BadMessage)?;
                    Self::CreateSession { seen, session, timeout_ms, password }
                } else {
                    Self::OpenSession { seen, session, timeout_ms, password }
                }
            }
            WRITE | WRITE_AFTER => {
                let after = match kind {
                    WRITE => After::default(),
                    _ => After {
                        since: number(&mut reader)?,
                        placed: number(&mut reader)?,
                        seen: Timestamp::decode(&mut reader)?,
                    },
                };
                let (session, opening) = (reader.i64()?, number(&mut reader)?);
                let opcode = Opcode::from_i32(reader.i32()?).ok_or(BadMessage)?;
                let count = reader.count(8)?;
                if count > IDENTITIES_MAX {
                    return Err(BadMessage);
                }
                let mut identities = Vec::with_capacity(count);
                for _ in 0..count {
                    let (scheme, id) = (reader.str()?.to_string(), reader.str()?.to_string());
                    identities.push(Identity { scheme, id });
                }
                Self::Write { session, opening, after, opcode, identities, body: buffer(&mut reader)? }
            }
            MOVE => {
                let [to] = *reader.take(1)? else { return Err(BadMessage) };
                Self::Move { to, path: reader.str()? }
            }
            _ => return Err(BadMessage),
        };
        if reader.rest().is_empty() { Ok(asked) } else { Err(BadMessage) }
    }
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

fn buffer<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    reader.buffer()?.ok_or(BadMessage)
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
        }
        out.into()
    }

    /// Whether it is what a leader says to those who follow it.
    pub(crate) fn is_of_leader(&self) -> bool {
        match self {
            Self::HeardArrived { .. } => true,
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
            _ => return Err(BadMessage),
        };
        if reader.rest().is_empty() { Ok(message) } else { Err(BadMessage) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_timeline::Message;

    fn asked_samples() -> [Vec<u8>; 7] {
        let mut asked = [const { Vec::new() }; 7];
        let after = After { since: 5, placed: 2, seen: Timestamp::new(3) };
        let identity = Identity { scheme: "ip".into(), id: "127.0.0.1".into() };
        let nothing = Timestamp::default();
        Asked::put_session(&mut asked[0], true, &nothing, 7, 1000, &[1; PASSWORD_LEN]);
        Asked::put_session(&mut asked[1], false, &nothing, 7, 1000, b"short");
        let identities = [identity];
        Asked::put_write(&mut asked[2], (7, 99), &After::default(), Opcode::SetData, &identities, b"body");
        Asked::put_write(&mut asked[3], (7, 99), &after, Opcode::SetData, &identities, b"body");
        Asked::put_move(&mut asked[4], "/a/b", 3);
        Asked::put_session(&mut asked[5], true, &after.seen, 7, 1000, &[1; PASSWORD_LEN]);
        Asked::put_session(&mut asked[6], false, &after.seen, 7, 1000, b"short");
        asked
    }

    fn samples() -> Vec<PeerMessage> {
        vec![
            PeerMessage::Heard { term: 1, number: 2, sessions: vec![Heard { session: 3, silent_ms: 4 }] },
            PeerMessage::HeardArrived { term: 1, number: 2 },
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
        for asked in asked_samples() {
            assert!(Asked::decode(&asked).is_ok());
            for len in 0..asked.len() {
                assert!(Asked::decode(&asked[..len]).is_err(), "cut at {len}");
            }
        }
    }
}
