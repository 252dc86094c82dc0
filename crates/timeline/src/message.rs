//! What servers say to each other about what they replicate.
//!
//! ```text
//! message := 1, message of stoa-group
//!          | 2, term, stream, base, first i64, count i32, (request as a buffer)*    forwarded requests
//!          | 3, term, stream, expected i64                                          some are missing
//!          | 9, frame of stoa-forest
//!          | 10, tag i64, asks i64                                                  of the sender's process
//!          | 11, order of [`crate::give_message`]                                   a snapshot is to be given
//!          | 12, report of it
//!          | 13, message of stoa-group                       with a snapshot that another one than the leader gives
//! ```
//! Encoded like the clients' protocol. Messages may be lost, doubled or late; only those of a process
//! that has ended never come after those of its successor.

use crate::give_message::{GiveOrder, GiveReport};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::Pieces;
use stoa_wire::{Reader, put};

const GROUP: u8 = 1;
const FORWARD: u8 = 2;
const MISSING: u8 = 3;
const FOREST: u8 = 9;
const TAG: u8 = 10;
const GIVE: u8 = 11;
const GIVES: u8 = 12;
const GIVEN: u8 = 13;

/// Why bytes are no message of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadMessage;

impl From<stoa_wire::DecodeError> for BadMessage {
    fn from(_: stoa_wire::DecodeError) -> Self {
        Self
    }
}

/// A message from one server to another.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// For the Raft group.
    Group(stoa_group::Message),
    /// Requests of the sender's clients, for the leader.
    Forward(Forward),
    /// To a contact server: the leader lacks the requests from one on.
    Missing {
        /// The leader's term.
        term: u64,
        /// Which run of the contact server it is about.
        stream: u64,
        /// Number of the first request that the leader lacks.
        expected: u64,
    },
    /// What goes down the trees, or up again; by way of the sender, which need not have said it.
    Forest(Bytes),
    /// The tag of the sender's process, by which it is known who has acknowledged something.
    Tag {
        /// The tag.
        tag: u64,
        /// Whether the sender does not know the receiver's.
        asks: bool,
    },
    /// The receiver is to give another member a snapshot.
    Give(GiveOrder),
    /// How far the sender is with that.
    Gives(GiveReport),
    /// What goes with a snapshot that its sender gives in the place of the leader who has ordered it, and in its name.
    Given(stoa_group::Message),
}

/// Requests on their way to the leader: a part of the sender's stream of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// The term of the leader that they are for.
    pub term: u64,
    /// Which run of the sender they belong to.
    pub stream: u64,
    /// Requests before this one are of no concern any more.
    pub base: u64,
    /// Number of the first of `asked`.
    pub first: u64,
    /// The requests.
    pub asked: Vec<Bytes>,
}

impl Message {
    /// Whether bytes that begin like this are to be one of these.
    #[must_use]
    pub fn is_kind(kind: u8) -> bool {
        matches!(kind, GROUP | FORWARD | MISSING | FOREST | TAG | GIVE | GIVES | GIVEN)
    }

    /// Its bytes. Those of a Raft message share its entries.
    #[must_use]
    pub fn encode(&self) -> Pieces {
        let mut out = Vec::new();
        match self {
            Self::Group(message) | Self::Given(message) => {
                let mut out = Pieces::default();
                out.put(&[if matches!(self, Self::Given(_)) { GIVEN } else { GROUP }]);
                message.encode(&mut out);
                return out;
            }
            Self::Forward(Forward { term, stream, base, first, asked }) => {
                put_numbers(&mut out, FORWARD, &[*term, *stream, *base, *first]);
                out.reserve(asked.iter().map(|asked| 4 + asked.len()).sum::<usize>() + 4);
                put::len(&mut out, asked.len());
                asked.iter().for_each(|asked| put::buffer(&mut out, asked));
            }
            Self::Missing { term, stream, expected } => {
                put_numbers(&mut out, MISSING, &[*term, *stream, *expected]);
            }
            Self::Forest(frame) => {
                let mut out = Pieces::default();
                out.put(&[FOREST]);
                out.put_shared(frame);
                return out;
            }
            Self::Tag { tag, asks } => put_numbers(&mut out, TAG, &[*tag, u64::from(*asks)]),
            Self::Give(order) => {
                out.push(GIVE);
                order.encode(&mut out);
            }
            Self::Gives(report) => {
                out.push(GIVES);
                report.encode(&mut out);
            }
        }
        Bytes::from(out).into()
    }

    /// Whether it is what a leader says to those who follow it.
    #[must_use]
    pub fn is_of_leader(&self) -> bool {
        match self {
            Self::Group(message) => message.is_of_leader(),
            Self::Missing { .. } | Self::Give(_) => true,
            Self::Forward(_) | Self::Forest(_) | Self::Tag { .. } | Self::Gives(_) | Self::Given(_) => false,
        }
    }

    /// Reads what [`Message::encode`] wrote; what it takes is in proportion to the bytes.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(mut bytes: Bytes) -> Result<Self, BadMessage> {
        let all = bytes.clone();
        let mut reader = Reader::new(&all);
        let [kind] = *reader.take(1)? else { return Err(BadMessage) };
        let message = match kind {
            GROUP | GIVEN => {
                let _ = bytes.split_to(1);
                let message = stoa_group::Message::decode(bytes).map_err(|_| BadMessage)?;
                return Ok(if kind == GIVEN { Self::Given(message) } else { Self::Group(message) });
            }
            FOREST => {
                let _ = bytes.split_to(1);
                return Ok(Self::Forest(bytes));
            }
            GIVE => Self::Give(GiveOrder::decode(&mut reader)?),
            GIVES => Self::Gives(GiveReport::decode(&mut reader)?),
            TAG => Self::Tag { tag: number(&mut reader)?, asks: number(&mut reader)? != 0 },
            FORWARD => {
                let (term, stream) = (number(&mut reader)?, number(&mut reader)?);
                let (base, first) = (number(&mut reader)?, number(&mut reader)?);
                let count = reader.count(4)?;
                let mut asked = Vec::with_capacity(count);
                for _ in 0..count {
                    asked.push(all.slice_ref(reader.buffer()?.ok_or(BadMessage)?));
                }
                Self::Forward(Forward { term, stream, base, first, asked })
            }
            MISSING => Self::Missing {
                term: number(&mut reader)?,
                stream: number(&mut reader)?,
                expected: number(&mut reader)?,
            },
            _ => return Err(BadMessage),
        };
        if reader.rest().is_empty() { Ok(message) } else { Err(BadMessage) }
    }
}

fn number(reader: &mut Reader<'_>) -> Result<u64, BadMessage> {
    Ok(reader.i64()?.cast_unsigned())
}

fn put_numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    numbers.iter().for_each(|number| put::i64(out, number.cast_signed()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::give_message::{GiverState, Obstacle};

    #[test]
    fn what_is_written_is_read_and_cuts_are_refused() {
        let asked = vec![Bytes::from_static(b"one"), Bytes::new()];
        let gives = |state| Message::Gives(GiveReport { term: 1, number: 2, to: 3, state });
        for message in [
            Message::Give(GiveOrder { term: 1, number: 2, to: 255, from: u64::MAX }),
            gives(GiverState::Takes),
            gives(GiverState::Sends { position: 4 }),
            gives(GiverState::Sent { position: 4, bytes: 5 }),
            gives(GiverState::Cannot(Obstacle::Unknown)),
            Message::Forward(Forward { term: 1, stream: 2, base: 3, first: 4, asked }),
            Message::Missing { term: 1, stream: 2, expected: u64::MAX },
            Message::Tag { tag: u64::MAX, asks: true },
        ] {
            let bytes = message.encode().join();
            assert!(Message::is_kind(bytes[0]));
            let read = Message::decode(bytes.clone()).unwrap();
            assert_eq!(read, message);
            for len in 0..bytes.len() {
                assert!(Message::decode(bytes.slice(..len)).is_err(), "cut at {len}");
            }
            assert!(Message::decode([&bytes[..], &[0]].concat().into()).is_err(), "something follows it");
        }
    }
}
