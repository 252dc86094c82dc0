//! The parts that messages and records are written with.
//!
//! ```text
//! mark    := position u64, term u64, voters, learners, outgoing, learners_next, [removed]
//!            the four are each count u16, u64*
//! removed := count u16, (member u64, position u64)*
//! entries := count u32, (kind u8, position u64, term u64, payload)*
//! ```
//! Integers are little-endian; `payload` has its length (u32) before it. What reading takes is in
//! proportion to the bytes, whatever they say.
//!
//! Three of the flags of whoever writes a mark are the mark's: that there is one (2), that its members change by themselves
//! (4), and that it has `removed` (16).

use crate::held::{Entry, EntryKind, Mark};
use crate::pieces::Pieces;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};
use core::fmt;

const MARK: u8 = 2;
pub(crate) const AUTO_LEAVE: u8 = 4;
const REMOVED: u8 = 16;
pub(crate) const MARK_FLAGS: u8 = MARK | AUTO_LEAVE | REMOVED;

const PAYLOAD: u8 = 0;
const CHANGE: u8 = 1;

const NUMBER_MAX: u64 = u64::MAX >> 1;

/// The shortest entry: kind, position, term, length.
const ENTRY_BYTES_MIN: usize = 1 + 8 + 8 + 4;

/// Why bytes are no message or record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// They end too early.
    Short,
    /// There are more of them than there should be.
    Long,
    /// A kind that does not exist, or that does not travel.
    Kind(u8),
    /// A flag that does not exist.
    Flags(u8),
    /// An entry that is neither payload nor change.
    Entry,
    /// The entries are not those that go with the header.
    Span,
    /// A member with the number 0, or one that was taken out, out of order or twice.
    Member,
    /// A term or position that no timeline will ever reach.
    Number,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("it ends too early"),
            Self::Long => f.write_str("it goes on behind its end"),
            Self::Kind(kind) => write!(f, "there is no message of kind {kind}"),
            Self::Flags(flags) => write!(f, "there are no such flags: {flags:#x}"),
            Self::Entry => f.write_str("an entry is neither a payload nor a change of members"),
            Self::Span => f.write_str("the entries are not those that go with its header"),
            Self::Member => f.write_str("members are not 0, and those taken out are there once, in order"),
            Self::Number => f.write_str("no timeline ever reaches such a term or position"),
        }
    }
}

impl core::error::Error for DecodeError {}

pub(crate) fn put_bytes(out: &mut Pieces, bytes: &Bytes) {
    let len = u32::try_from(bytes.len()).expect("payloads are bounded by their proposers");
    out.put(&len.to_le_bytes());
    out.put_shared(bytes);
}

/// About how many bytes [`put_entries`] copies for these: room for them is made at once.
pub(crate) fn entries_bytes<'a>(payloads: impl Iterator<Item = &'a Bytes>) -> usize {
    payloads.map(|payload| ENTRY_BYTES_MIN + Pieces::copied(payload)).sum::<usize>() + 4
}

pub(crate) fn put_entries(out: &mut Pieces, entries: impl ExactSizeIterator<Item = Entry>) {
    out.put(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        out.put(&[if entry.kind == EntryKind::Change { CHANGE } else { PAYLOAD }]);
        out.put(&entry.position.to_le_bytes());
        out.put(&entry.term.to_le_bytes());
        put_bytes(out, &entry.payload);
    }
}

pub(crate) fn get_entries(bytes: &mut Bytes) -> Result<Vec<Entry>, DecodeError> {
    let count = get_u32(bytes)? as usize;
    if count > bytes.len() / ENTRY_BYTES_MIN {
        return Err(DecodeError::Short);
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = match get_u8(bytes)? {
            PAYLOAD => EntryKind::Payload,
            CHANGE => EntryKind::Change,
            _ => return Err(DecodeError::Entry),
        };
        let (position, term) = (get_number(bytes)?, get_number(bytes)?);
        entries.push(Entry { position, term, kind, payload: get_bytes(bytes)? });
    }
    Ok(entries)
}

/// The flags of whoever writes this mark.
pub(crate) fn mark_flags(mark: Option<&Mark>) -> u8 {
    let Some(Mark { members, .. }) = mark else { return 0 };
    let auto_leave = if members.auto_leave { AUTO_LEAVE } else { 0 };
    let removed = if members.removed.is_empty() { 0 } else { REMOVED };
    MARK | auto_leave | removed
}

/// What [`mark_flags`] says is not in it.
pub(crate) fn put_mark(out: &mut Pieces, mark: &Mark) {
    out.put(&mark.position.to_le_bytes());
    out.put(&mark.term.to_le_bytes());
    let members = &mark.members;
    for ids in [&members.voters, &members.learners, &members.outgoing, &members.learners_next] {
        let count = u16::try_from(ids.len()).expect("a group has a few hundred members at most");
        out.put(&count.to_le_bytes());
        for id in ids {
            out.put(&id.to_le_bytes());
        }
    }
    if !members.removed.is_empty() {
        out.put(&encode_removed(&members.removed));
    }
}

/// Reads what [`put_mark`] wrote, if the flags say that there is something.
pub(crate) fn get_mark(bytes: &mut Bytes, flags: u8) -> Result<Option<Mark>, DecodeError> {
    if flags & MARK == 0 {
        return if flags & MARK_FLAGS == 0 { Ok(None) } else { Err(DecodeError::Flags(flags)) };
    }
    let mut mark = Mark { position: get_number(bytes)?, term: get_number(bytes)?, ..Mark::default() };
    let members = &mut mark.members;
    for ids in [&mut members.voters, &mut members.learners, &mut members.outgoing, &mut members.learners_next]
    {
        let count = bytes.try_get_u16_le().map_err(|_| DecodeError::Short)?;
        for _ in 0..count {
            let id = get_u64(bytes)?;
            if id == 0 {
                return Err(DecodeError::Member);
            }
            ids.push(id);
        }
    }
    members.auto_leave = flags & AUTO_LEAVE != 0;
    if flags & REMOVED != 0 {
        members.removed = get_removed(bytes)?;
        // What says that there is a list has one: else a record could be written in two ways.
        if members.removed.is_empty() {
            return Err(DecodeError::Flags(flags));
        }
    }
    Ok(Some(mark))
}

/// Whoever was taken out, and where: `removed`.
pub(crate) fn encode_removed(removed: &BTreeMap<u64, u64>) -> Vec<u8> {
    let count = u16::try_from(removed.len()).expect("a group has had a few hundred members at most");
    let mut out = Vec::with_capacity(2 + removed.len() * 16);
    out.extend_from_slice(&count.to_le_bytes());
    for (id, position) in removed {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&position.to_le_bytes());
    }
    out
}

pub(crate) fn get_removed(bytes: &mut Bytes) -> Result<BTreeMap<u64, u64>, DecodeError> {
    let count = bytes.try_get_u16_le().map_err(|_| DecodeError::Short)?;
    let mut removed = BTreeMap::new();
    let mut last = 0;
    for _ in 0..count {
        let (id, position) = (get_u64(bytes)?, get_number(bytes)?);
        // In the order of their ids, which are not 0.
        if id <= last {
            return Err(DecodeError::Member);
        }
        last = id;
        removed.insert(id, position);
    }
    Ok(removed)
}

pub(crate) fn get_u8(bytes: &mut Bytes) -> Result<u8, DecodeError> {
    bytes.try_get_u8().map_err(|_| DecodeError::Short)
}

pub(crate) fn get_array<const N: usize>(bytes: &mut Bytes) -> Result<[u8; N], DecodeError> {
    let mut array = [0; N];
    bytes.try_copy_to_slice(&mut array).map_err(|_| DecodeError::Short)?;
    Ok(array)
}

fn get_u32(bytes: &mut Bytes) -> Result<u32, DecodeError> {
    bytes.try_get_u32_le().map_err(|_| DecodeError::Short)
}

fn get_u64(bytes: &mut Bytes) -> Result<u64, DecodeError> {
    bytes.try_get_u64_le().map_err(|_| DecodeError::Short)
}

/// A member, term or position: far enough from the end of the range to be counted on.
pub(crate) fn get_number(bytes: &mut Bytes) -> Result<u64, DecodeError> {
    match get_u64(bytes)? {
        number @ 0..=NUMBER_MAX => Ok(number),
        _ => Err(DecodeError::Number),
    }
}

pub(crate) fn get_bytes(bytes: &mut Bytes) -> Result<Bytes, DecodeError> {
    let len = get_u32(bytes)? as usize;
    if len > bytes.len() {
        return Err(DecodeError::Short);
    }
    Ok(bytes.split_to(len))
}
