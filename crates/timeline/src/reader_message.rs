//! What a reader and its parent say to each other, one partition of each to the other's.
//!
//! ```text
//! up   := 1, position, term i64          here the sender's timeline ends: it is to be given what follows
//!       | 2, position i64                it has everything up to there
//!       | 3, count i32, (request as a buffer)*
//!       | 4, question i64                where does the timeline end?
//!       | 5, position i64, message of the service
//! down := 1, server i64, count i32, (tag i64)*    requests go to this member; who is between, the member last
//!       | 2, term, position i64, leader i64       who leads, or -1; what is committed at the sender
//!       | 3, append of stoa-group                 what is committed
//!       | 4, number, count i64                    so many of the receiver's requests, the oldest without one, are called
//!                                                 this and what follows
//!       | 5, question, position i64
//!       | 6, message of the service
//! ```
//! Encoded like the clients' protocol. They come in the order in which they were said, each once, as long as the
//! connection lasts.

use crate::message::BadMessage;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::Pieces;
use stoa_wire::{Reader, put};

/// So many are between a reader and the ensemble at most: what it is told goes through all of them.
pub const CHAIN_MAX: usize = 5;

/// From a reader to its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Up {
    /// To the first partition: everything is here that is committed up to this position of the log, where an entry of
    /// this term stands; 0 and 0 where there is nothing.
    Place {
        /// It.
        position: u64,
        /// The term.
        term: u64,
    },
    /// To the first partition: everything is here up to this position, durably.
    Has(u64),
    /// Requests of the reader's clients.
    Ask(Vec<Bytes>),
    /// From where on does a read see all that was acknowledged up to now?
    Question(u64),
    /// About what stands on the timeline.
    Service {
        /// The sender has applied its partition's timeline up to there: what it speaks of stands before that.
        applied: u64,
        /// What it says.
        message: Bytes,
    },
}

/// From a parent to a reader below it.
#[derive(Debug, Clone, PartialEq)]
pub enum Down {
    /// From the first partition: requests are asked of the ensemble by this member, and in its name.
    Attached {
        /// It.
        top: u8,
        /// The tags of all processes on the way there, that of the sender first.
        chain: Vec<u64>,
    },
    /// From the first partition: how things stand.
    Stands {
        /// The term.
        term: u64,
        /// Who leads, if that is known.
        leader: Option<u8>,
        /// Up to which position everything is committed, as far as the sender knows.
        committed: u64,
    },
    /// From the first partition: what is committed.
    Feed(stoa_group::Message),
    /// The oldest of the receiver's requests that had no number are called so from now on.
    Numbered {
        /// What the first of them is called.
        number: u64,
        /// How many there are.
        count: u64,
    },
    /// Whoever has this position sees what was asked for.
    Answer {
        /// The question.
        question: u64,
        /// The position, on the partition's timeline.
        position: u64,
    },
    /// About what stands on the timeline.
    Service(Bytes),
}

fn number(reader: &mut Reader<'_>) -> Result<u64, BadMessage> {
    u64::try_from(reader.i64()?).map_err(|_| BadMessage)
}

fn put_numbers(kind: u8, numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + 8 * numbers.len());
    out.push(kind);
    numbers.iter().for_each(|number| put::i64(&mut out, number.cast_signed()));
    out
}

fn with_kind(kind: u8, rest: &Bytes) -> Pieces {
    let mut out = Pieces::default();
    out.put(&[kind]);
    out.put_shared(rest);
    out
}

impl Up {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Pieces {
        let out = match self {
            Self::Place { position, term } => put_numbers(1, &[*position, *term]),
            Self::Has(position) => put_numbers(2, &[*position]),
            Self::Ask(asked) => {
                let mut out =
                    Vec::with_capacity(5 + asked.iter().map(|asked| 4 + asked.len()).sum::<usize>());
                out.push(3);
                put::len(&mut out, asked.len());
                asked.iter().for_each(|asked| put::buffer(&mut out, asked));
                out
            }
            Self::Question(question) => put_numbers(4, &[*question]),
            Self::Service { applied, message } => {
                let mut out = Pieces::default();
                out.put(&put_numbers(5, &[*applied]));
                out.put_shared(message);
                return out;
            }
        };
        Bytes::from(out).into()
    }

    /// Reads what [`Up::encode`] wrote; what it takes is in proportion to the bytes.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(bytes: Bytes) -> Result<Self, BadMessage> {
        let all = bytes;
        let mut reader = Reader::new(&all);
        let [kind] = *reader.take(1)? else { return Err(BadMessage) };
        let message = match kind {
            1 => Self::Place { position: number(&mut reader)?, term: number(&mut reader)? },
            2 => Self::Has(number(&mut reader)?),
            3 => {
                let count = reader.count(4)?;
                let mut asked = Vec::with_capacity(count);
                for _ in 0..count {
                    // One without anything in it stands for what cannot be asked again.
                    let request = reader.buffer()?.filter(|request| !request.is_empty());
                    asked.push(all.slice_ref(request.ok_or(BadMessage)?));
                }
                Self::Ask(asked)
            }
            4 => Self::Question(reader.i64()?.cast_unsigned()),
            5 => {
                let applied = number(&mut reader)?;
                return Ok(Self::Service { applied, message: all.slice(9..) });
            }
            _ => return Err(BadMessage),
        };
        if reader.rest().is_empty() { Ok(message) } else { Err(BadMessage) }
    }
}

impl Down {
    /// Its bytes. Those of what is committed share the entries.
    #[must_use]
    pub fn encode(&self) -> Pieces {
        let out = match self {
            Self::Attached { top, chain } => {
                let mut out = put_numbers(1, &[u64::from(*top)]);
                put::len(&mut out, chain.len());
                chain.iter().for_each(|tag| put::i64(&mut out, tag.cast_signed()));
                out
            }
            Self::Stands { term, leader, committed } => {
                let mut out = put_numbers(2, &[*term, *committed]);
                put::i64(&mut out, leader.map_or(-1, i64::from));
                out
            }
            Self::Feed(append) => {
                let mut out = Pieces::default();
                out.put(&[3]);
                append.encode(&mut out);
                return out;
            }
            Self::Numbered { number, count } => put_numbers(4, &[*number, *count]),
            Self::Answer { question, position } => put_numbers(5, &[*question, *position]),
            Self::Service(message) => return with_kind(6, message),
        };
        Bytes::from(out).into()
    }

    /// Reads what [`Down::encode`] wrote; what it takes is in proportion to the bytes.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(mut bytes: Bytes) -> Result<Self, BadMessage> {
        let all = bytes.clone();
        let mut reader = Reader::new(&all);
        let [kind] = *reader.take(1)? else { return Err(BadMessage) };
        let message = match kind {
            1 => {
                let top = u8::try_from(reader.i64()?).map_err(|_| BadMessage)?;
                let count = reader.count(8)?;
                if count > CHAIN_MAX {
                    return Err(BadMessage);
                }
                let mut chain = Vec::with_capacity(count);
                for _ in 0..count {
                    chain.push(reader.i64()?.cast_unsigned());
                }
                Self::Attached { top, chain }
            }
            2 => {
                let (term, committed) = (number(&mut reader)?, number(&mut reader)?);
                let leader = match reader.i64()? {
                    -1 => None,
                    leader => Some(u8::try_from(leader).map_err(|_| BadMessage)?),
                };
                Self::Stands { term, leader, committed }
            }
            3 => {
                let _ = bytes.split_to(1);
                return stoa_group::Message::decode(bytes).map(Self::Feed).map_err(|_| BadMessage);
            }
            4 => Self::Numbered { number: number(&mut reader)?, count: number(&mut reader)? },
            5 => {
                let (question, position) = (reader.i64()?.cast_unsigned(), number(&mut reader)?);
                Self::Answer { question, position }
            }
            6 => {
                let _ = bytes.split_to(1);
                return Ok(Self::Service(bytes));
            }
            _ => return Err(BadMessage),
        };
        if reader.rest().is_empty() { Ok(message) } else { Err(BadMessage) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_cuts_are_refused() {
        let asked = vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        let ups = [Up::Place { position: 7, term: 2 }, Up::Has(9), Up::Ask(asked), Up::Question(u64::MAX)];
        for up in ups {
            let bytes = up.encode().join();
            assert_eq!(Up::decode(bytes.clone()), Ok(up));
            assert!((0..bytes.len()).all(|len| Up::decode(bytes.slice(..len)).is_err()));
            assert!(Up::decode([&bytes[..], &[0]].concat().into()).is_err());
        }
        let downs = [
            Down::Attached { top: 254, chain: vec![u64::MAX, 3] },
            Down::Stands { term: 3, leader: None, committed: 8 },
            Down::Stands { term: 3, leader: Some(0), committed: 8 },
            Down::Numbered { number: 1 << 62, count: 4 },
            Down::Answer { question: u64::MAX, position: 5 },
        ];
        for down in downs {
            let bytes = down.encode().join();
            assert_eq!(Down::decode(bytes.clone()), Ok(down));
            assert!((0..bytes.len()).all(|len| Down::decode(bytes.slice(..len)).is_err()));
            assert!(Down::decode([&bytes[..], &[0]].concat().into()).is_err());
        }
        let service = Bytes::from_static(b"said");
        let up = Up::Service { applied: 3, message: service.clone() };
        assert_eq!(Up::decode(up.encode().join()), Ok(up));
        let down = Down::Service(service);
        assert_eq!(Down::decode(down.encode().join()), Ok(down));
    }

    #[test]
    fn requests_without_anything_long_chains_and_numbers_without_sense_are_refused() {
        assert_eq!(Up::decode(Up::Ask(vec![Bytes::new()]).encode().join()), Err(BadMessage));
        let long = Down::Attached { top: 1, chain: vec![0; CHAIN_MAX + 1] };
        assert_eq!(Down::decode(long.encode().join()), Err(BadMessage));
        assert_eq!(Up::decode(Up::Has(u64::MAX).encode().join()), Err(BadMessage));
        let far = Down::Numbered { number: u64::MAX, count: 1 };
        assert_eq!(Down::decode(far.encode().join()), Err(BadMessage));
    }
}
