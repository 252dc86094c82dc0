//! What servers of the forest say to each other, and how it is written.
//!
//! ```text
//! frame       := kind u8, the rest by kind
//! epoch       := term, count
//! 1 whole     := shape, place, body: all bytes that are left
//! 2 header    := shape, place
//! 3 idle      := shape, last, last - committed
//! shape       := epoch, leader u8, trees u8, children u8, aside ids, tree u8, number, round
//! 4 acks      := term, largest position, largest round, count,
//!                (server u8, disk u64, largest - position, largest - round)*
//! 5 pull      := term, after, upto - after
//! 6 pulled    := term, place, body: all bytes that are left
//! 7 complaint := epoch, tree u8, about u8
//! place       := previous, last - previous
//! ```
//! What has no type is a number or a set of ids of [`crate::codec`]. A frame has its own length: connections say where
//! it ends, and whether it came whole.

use crate::codec::{
    DecodeError, get_after, get_ids, get_number, get_server, get_u8, get_u64, put_ids, put_number,
};
use crate::ids::Ids;
use crate::shape::{Settings, TREES_MAX};
use alloc::vec::Vec;
use bytes::Bytes;

const WHOLE: u8 = 1;
const HEADER: u8 = 2;
const IDLE: u8 = 3;
const ACKNOWLEDGE: u8 = 4;
const PULL: u8 = 5;
const PULLED: u8 = 6;
const COMPLAINT: u8 = 7;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// It goes down a tree.
    Spread,
    /// Acknowledgements, on their way up.
    Acknowledge,
    /// A question for what has not come.
    Pull,
    /// The answer.
    Pulled,
    /// Nothing comes down a tree.
    Complaint,
}

impl FrameKind {
    /// That of bytes that begin like this; `None` when they are no frame. The rest of them need not be one.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        Some(match *frame.first()? {
            WHOLE | HEADER | IDLE => Self::Spread,
            ACKNOWLEDGE => Self::Acknowledge,
            PULL => Self::Pull,
            PULLED => Self::Pulled,
            COMPLAINT => Self::Complaint,
            _ => return None,
        })
    }
}

/// The shortest item of a [`Acknowledge`]: server, disk, position, round.
const ITEM_BYTES_MIN: usize = 1 + 8 + 1 + 1;

/// The most that the head of a [`Spread`] takes.
const HEAD_BYTES_MAX: usize = 1 + 9 + 5 + 3 + 33 + 1 + 9 + 9 + 18;

/// Which shape the forest has. A leader begins with a count of its own; each change of who is aside or of the list of
/// servers counts one on. The paper's epochs (section III B) are for coordinators, of which there are none here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Epoch {
    /// The leader's term.
    pub term: u64,
    /// Counts the shapes of this term.
    pub count: u32,
}

/// Where an append stands in the log: it has what is behind `previous`, up to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The position before the first one.
    pub previous: u64,
    /// The last position; `previous` when there is none, as in an append that only says what is committed.
    pub last: u64,
}

/// What a [`Spread`] has of its append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// All of it: an append of the consensus engine, which is the same for everybody.
    Whole(Bytes),
    /// Its name only; it comes down another tree.
    Header,
    /// There is none: it says that the tree lives, and where the log ends. [`Place::previous`] is [`Place::last`].
    Idle {
        /// Up to where the log is committed, not behind its end. Without it whoever has missed the last append that said
        /// so would not learn it while nothing is written.
        committed: u64,
    },
}

/// What goes from the leader down a tree. Everybody passes on the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// Which shape is meant.
    pub epoch: Epoch,
    /// Who leads in this term, in whose name all that passes it on speaks.
    pub leader: u8,
    /// Down which tree it goes: the colour of those who pass it on.
    pub tree: u8,
    /// Counts what the leader has spread in this term. One append has the same number down all trees. Places do not
    /// tell appends apart: what is committed is told again and again behind the same position.
    pub number: u64,
    /// The newest round: whoever hears of it while this is its term says so, see [`Acknowledgement::round`].
    pub round: u64,
    /// How many trees there are and how wide they are, as the leader says.
    pub settings: Settings,
    /// Who is aside in this epoch. It is always there (a byte, when there are none), so that whoever has missed what
    /// came before knows the shape all the same.
    pub aside: Ids,
    /// Where the append stands.
    pub place: Place,
    /// What there is of it.
    pub content: Content,
}

/// That a disk has the log of a term, up to a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Acknowledgement {
    /// Whose it is.
    pub server: u8,
    /// The tag of the disk that has it. A server that comes back with another disk has nothing, whatever is still on
    /// its way: so the tag goes with each position, and the leader counts those of the disks that it knows.
    pub disk: u64,
    /// The last position that is durable there.
    pub position: u64,
    /// The newest round that this process has heard of from the leader of this term, while the term was its own: so it
    /// had voted in no later one when the round began. 0 for none.
    pub round: u64,
}

/// Acknowledgements of several servers, all of one term.
///
/// Tags are there in full, 8 of the about 10 bytes of an item. Shorter ones would need a hash, which may mistake one
/// disk for another and so commit what is lost, or a table that both ends agree on, which one of them loses when it is
/// begun anew. All items of 200 servers are 2.4 KB at the leader for each batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledge {
    /// In which term these positions are those of the leader's log.
    pub term: u64,
    /// One for each server and disk, in their order.
    pub items: Vec<Acknowledgement>,
}

/// A question for entries of the log of a term: those behind `after`, up to `upto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pull {
    /// The leader's term.
    pub term: u64,
    /// Where the log of who asks ends.
    pub after: u64,
    /// The last position that is wanted.
    pub upto: u64,
}

/// The answer: an append that a neighbour has made from its own log. That is sound, as a position and a term name an
/// entry and all that is before it (Raft's log matching).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The leader's term.
    pub term: u64,
    /// Where the append stands; it may end before what was asked for.
    pub place: Place,
    /// The append.
    pub body: Bytes,
}

/// That nothing comes down a tree. It goes straight to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Complaint {
    /// Which shape it is about.
    pub epoch: Epoch,
    /// The tree where it is silent.
    pub tree: u8,
    /// The parent there of who complains.
    pub about: u8,
}

/// What servers of the forest say to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// From the leader to everybody.
    Spread(Spread),
    /// From everybody to the leader.
    Acknowledge(Acknowledge),
    /// To a neighbour, or to the leader.
    Pull(Pull),
    /// The answer to that.
    Pulled(Pulled),
    /// To the leader.
    Complaint(Complaint),
}

impl Frame {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Spread(spread) => put_spread(&mut out, spread),
            Self::Acknowledge(acknowledge) => put_acknowledge(&mut out, acknowledge),
            Self::Pull(pull) => {
                out.push(PULL);
                put_number(&mut out, pull.term);
                put_place(&mut out, Place { previous: pull.after, last: pull.upto });
            }
            Self::Pulled(pulled) => {
                out.reserve(HEAD_BYTES_MAX + pulled.body.len());
                out.push(PULLED);
                put_number(&mut out, pulled.term);
                put_place(&mut out, pulled.place);
                out.extend_from_slice(&pulled.body);
            }
            Self::Complaint(complaint) => {
                out.push(COMPLAINT);
                put_epoch(&mut out, complaint.epoch);
                out.extend_from_slice(&[complaint.tree, complaint.about]);
            }
        }
        out.into()
    }

    /// Reads what [`Frame::encode`] wrote. Bodies are not copied. What it takes is in proportion to the bytes, whatever
    /// they say.
    ///
    /// # Errors
    /// When they are anything but exactly one frame.
    pub fn decode(mut bytes: Bytes) -> Result<Self, DecodeError> {
        let kind = get_u8(&mut bytes)?;
        let frame = match kind {
            WHOLE | HEADER | IDLE => return get_spread(bytes, kind).map(Self::Spread),
            PULLED => {
                let (term, place) = (get_number(&mut bytes)?, get_place(&mut bytes)?);
                return Ok(Self::Pulled(Pulled { term, place, body: bytes }));
            }
            ACKNOWLEDGE => Self::Acknowledge(get_acknowledge(&mut bytes)?),
            PULL => {
                let (term, place) = (get_number(&mut bytes)?, get_place(&mut bytes)?);
                Self::Pull(Pull { term, after: place.previous, upto: place.last })
            }
            COMPLAINT => {
                let (epoch, tree) = (get_epoch(&mut bytes)?, get_tree(&mut bytes)?);
                Self::Complaint(Complaint { epoch, tree, about: get_server(&mut bytes)? })
            }
            kind => return Err(DecodeError::Kind(kind)),
        };
        if bytes.is_empty() { Ok(frame) } else { Err(DecodeError::Long) }
    }
}

fn put_epoch(out: &mut Vec<u8>, epoch: Epoch) {
    put_number(out, epoch.term);
    put_number(out, epoch.count.into());
}

fn get_epoch(bytes: &mut Bytes) -> Result<Epoch, DecodeError> {
    let (term, count) = (get_number(bytes)?, get_number(bytes)?);
    Ok(Epoch { term, count: u32::try_from(count).map_err(|_| DecodeError::Number)? })
}

fn get_tree(bytes: &mut Bytes) -> Result<u8, DecodeError> {
    let tree = get_u8(bytes)?;
    if tree < TREES_MAX { Ok(tree) } else { Err(DecodeError::Tree) }
}

fn put_place(out: &mut Vec<u8>, place: Place) {
    put_number(out, place.previous);
    put_number(out, place.last.saturating_sub(place.previous));
}

fn get_place(bytes: &mut Bytes) -> Result<Place, DecodeError> {
    let previous = get_number(bytes)?;
    Ok(Place { previous, last: get_after(bytes, previous)? })
}

fn put_spread(out: &mut Vec<u8>, spread: &Spread) {
    let (kind, body) = match &spread.content {
        Content::Whole(body) => (WHOLE, body.as_ref()),
        Content::Header => (HEADER, &[][..]),
        Content::Idle { .. } => (IDLE, &[][..]),
    };
    out.reserve(HEAD_BYTES_MAX + body.len());
    out.push(kind);
    put_epoch(out, spread.epoch);
    out.extend_from_slice(&[spread.leader, spread.settings.trees(), spread.settings.children()]);
    put_ids(out, &spread.aside);
    out.push(spread.tree);
    put_number(out, spread.number);
    put_number(out, spread.round);
    if let Content::Idle { committed } = &spread.content {
        put_number(out, spread.place.last);
        put_number(out, spread.place.last.saturating_sub(*committed));
    } else {
        put_place(out, spread.place);
    }
    out.extend_from_slice(body);
}

/// What is behind the kind.
fn get_spread(mut bytes: Bytes, kind: u8) -> Result<Spread, DecodeError> {
    let (epoch, leader) = (get_epoch(&mut bytes)?, get_server(&mut bytes)?);
    let settings = Settings::new(get_u8(&mut bytes)?, get_u8(&mut bytes)?).ok_or(DecodeError::Tree)?;
    let (aside, tree) = (get_ids(&mut bytes)?, get_tree(&mut bytes)?);
    let (number, round) = (get_number(&mut bytes)?, get_number(&mut bytes)?);
    let (place, committed) = if kind == IDLE {
        let last = get_number(&mut bytes)?;
        let committed = last.checked_sub(get_number(&mut bytes)?).ok_or(DecodeError::Place)?;
        (Place { previous: last, last }, committed)
    } else {
        (get_place(&mut bytes)?, 0)
    };
    // A header names what has positions; without them there is nothing that could be missed.
    if kind == HEADER && place.previous == place.last {
        return Err(DecodeError::Place);
    }
    let content = match kind {
        WHOLE => Content::Whole(bytes),
        _ if !bytes.is_empty() => return Err(DecodeError::Long),
        HEADER => Content::Header,
        _ => Content::Idle { committed },
    };
    Ok(Spread { epoch, leader, settings, aside, tree, number, round, place, content })
}

fn put_acknowledge(out: &mut Vec<u8>, acknowledge: &Acknowledge) {
    let largest = acknowledge.items.iter().map(|item| item.position).max().unwrap_or(0);
    let newest = acknowledge.items.iter().map(|item| item.round).max().unwrap_or(0);
    out.reserve(30 + acknowledge.items.len() * (ITEM_BYTES_MIN + 2));
    out.push(ACKNOWLEDGE);
    put_number(out, acknowledge.term);
    put_number(out, largest);
    put_number(out, newest);
    put_number(out, acknowledge.items.len() as u64);
    for item in &acknowledge.items {
        out.push(item.server);
        out.extend_from_slice(&item.disk.to_le_bytes());
        put_number(out, largest - item.position);
        put_number(out, newest - item.round);
    }
}

fn get_acknowledge(bytes: &mut Bytes) -> Result<Acknowledge, DecodeError> {
    let (term, largest) = (get_number(bytes)?, get_number(bytes)?);
    let (newest, count) = (get_number(bytes)?, get_number(bytes)?);
    let count = usize::try_from(count).ok().filter(|count| *count <= bytes.len() / ITEM_BYTES_MIN);
    let count = count.ok_or(DecodeError::Short)?;
    let mut items: Vec<Acknowledgement> = Vec::with_capacity(count);
    let (mut has_largest, mut has_newest) = (count == 0 && largest == 0, count == 0 && newest == 0);
    for _ in 0..count {
        let (server, disk) = (get_server(bytes)?, get_u64(bytes)?);
        let position = largest.checked_sub(get_number(bytes)?).ok_or(DecodeError::Place)?;
        let round = newest.checked_sub(get_number(bytes)?).ok_or(DecodeError::Place)?;
        if items.last().is_some_and(|last| (last.server, last.disk) >= (server, disk)) {
            return Err(DecodeError::Server);
        }
        has_largest |= position == largest;
        has_newest |= round == newest;
        items.push(Acknowledgement { server, disk, position, round });
    }
    if has_largest && has_newest { Ok(Acknowledge { term, items }) } else { Err(DecodeError::Place) }
}

#[cfg(test)]
mod tests;
