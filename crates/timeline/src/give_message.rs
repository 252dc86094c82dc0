//! What a leader and a member say to each other that is to give a third one a snapshot.
//!
//! ```text
//! order  := term, number i64, receiver i64, from i64
//! report := term, number i64, receiver i64, 0                        it takes one first
//!         | term, number i64, receiver i64, 1, position              it sends it
//!         | term, number i64, receiver i64, 2, position, bytes i64   it has sent it
//!         | term, number i64, receiver i64, 3, obstacle i64          it does not
//! ```
//! Encoded like the clients' protocol, numbers of a state as an i64 each.

use crate::message::BadMessage;
use alloc::vec::Vec;
use stoa_wire::{Reader, put};

/// A leader orders a member to give another one its newest snapshot. It says so again and again while it waits, so that one
/// may be lost; the number tells one order for a receiver from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GiveOrder {
    /// The leader's term.
    pub term: u64,
    /// Counts the leader's orders.
    pub number: u64,
    /// Who is to be given it.
    pub to: u8,
    /// It has to stand at this position, or behind it.
    pub from: u64,
}

/// How far a member is with that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GiveReport {
    /// The term and the number of the order.
    pub term: u64,
    /// Which order.
    pub number: u64,
    /// Who is to be given it.
    pub to: u8,
    /// How far.
    pub state: GiverState,
}

/// How far a giver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiverState {
    /// What it has will not do, so it takes another one.
    Takes,
    /// It is on its way.
    Sends {
        /// Where it stands.
        position: u64,
    },
    /// It is on the receiver's disk as a file. Whether it is of use there the receiver says.
    Sent {
        /// Where it stands.
        position: u64,
        /// How many bytes it has.
        bytes: u64,
    },
    /// It gives none.
    Cannot(Obstacle),
}

/// Why a member gives no snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// It has not come that far itself.
    Lags,
    /// It gives one already.
    Busy,
    /// It is not connected with the receiver, or that one's release takes none from it.
    Apart,
    /// The receiver is no member as far as it knows.
    Unknown,
    /// It could take none.
    NotTaken,
    /// The receiver has not got it.
    Broken,
    /// Nothing was heard of it.
    Silent,
}

impl core::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Lags => "it has not come that far itself",
            Self::Busy => "it gives one already",
            Self::Apart => "it is not connected with that server, or one of the two has another release",
            Self::Unknown => "it does not know yet that that server is a member",
            Self::NotTaken => "it could write none",
            Self::Broken => "sending it failed",
            Self::Silent => "nothing was heard of it",
        })
    }
}

/// With their numbers; what the next release may have besides counts as the last one.
const OBSTACLES: [(i64, Obstacle); 6] = [
    (0, Obstacle::Lags),
    (1, Obstacle::Busy),
    (2, Obstacle::Apart),
    (3, Obstacle::Unknown),
    (4, Obstacle::NotTaken),
    (5, Obstacle::Broken),
];

const TAKES: i64 = 0;
const SENDS: i64 = 1;
const SENT: i64 = 2;
const CANNOT: i64 = 3;

fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| put::i64(out, number.cast_signed()));
}

fn number(reader: &mut Reader<'_>) -> Result<u64, BadMessage> {
    Ok(reader.i64()?.cast_unsigned())
}

fn server(reader: &mut Reader<'_>) -> Result<u8, BadMessage> {
    u8::try_from(reader.i64()?).map_err(|_| BadMessage)
}

impl GiveOrder {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_all(out, &[self.term, self.number, self.to.into(), self.from]);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        let (term, number_of) = (number(reader)?, number(reader)?);
        Ok(Self { term, number: number_of, to: server(reader)?, from: number(reader)? })
    }
}

impl GiveReport {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_all(out, &[self.term, self.number, self.to.into()]);
        match self.state {
            GiverState::Takes => put::i64(out, TAKES),
            GiverState::Sends { position } => {
                put::i64(out, SENDS);
                put_all(out, &[position]);
            }
            GiverState::Sent { position, bytes } => {
                put::i64(out, SENT);
                put_all(out, &[position, bytes]);
            }
            GiverState::Cannot(obstacle) => {
                let found = OBSTACLES.iter().find(|(_, known)| *known == obstacle);
                put::i64(out, CANNOT);
                put::i64(out, found.map_or(i64::MAX, |(number, _)| *number));
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        let (term, number_of, to) = (number(reader)?, number(reader)?, server(reader)?);
        let state = match reader.i64()? {
            TAKES => GiverState::Takes,
            SENDS => GiverState::Sends { position: number(reader)? },
            SENT => GiverState::Sent { position: number(reader)?, bytes: number(reader)? },
            CANNOT => {
                let said = reader.i64()?;
                let found = OBSTACLES.iter().find(|(number, _)| *number == said);
                GiverState::Cannot(found.map_or(Obstacle::Broken, |(_, obstacle)| *obstacle))
            }
            _ => return Err(BadMessage),
        };
        Ok(Self { term, number: number_of, to, state })
    }
}
