//! The parts that frames are written with.
//!
//! ```text
//! number := 7 bits a byte, the lowest first; all bytes but the last have the highest bit set
//! ids    := count u8 (0 to 32), bytes: one bit an id, the lowest first; the last byte is not 0
//! ```
//! Each thing can be written in one way only, and what reading takes is in proportion to the bytes, whatever they say.

use crate::ids::Ids;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};
use core::fmt;

/// No log and no term ever gets there; and one may count on from it.
const NUMBER_MAX: u64 = u64::MAX >> 1;

/// The most bytes of a number of 63 bits.
const NUMBER_BYTES_MAX: u32 = 9;

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// They end too early.
    Short,
    /// There are more of them than there should be.
    Long,
    /// A kind that does not exist.
    Kind(u8),
    /// A number that no timeline will ever reach, or one that is not written the shortest way.
    Number,
    /// An id of no server, or several where they are not in order.
    Server,
    /// A tree that no forest has, or settings of none.
    Tree,
    /// Positions that are not in order, or a place that does not go with what is said of it.
    Place,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("it ends too early"),
            Self::Long => f.write_str("it goes on behind its end"),
            Self::Kind(kind) => write!(f, "there is no frame of kind {kind}"),
            Self::Number => f.write_str("no timeline ever reaches such a number, or it is written too long"),
            Self::Server => f.write_str("servers have ids of 1 to 254, and stand in order"),
            Self::Tree => f.write_str("no forest has such a tree, or such settings"),
            Self::Place => f.write_str("positions are not in order, or do not go with the rest"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Numbers are below 2^63; larger ones are written as the largest, which no reader takes for another one.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut number = number.min(NUMBER_MAX);
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn get_number(bytes: &mut Bytes) -> Result<u64, DecodeError> {
    let mut number = 0;
    for at in 0..NUMBER_BYTES_MAX {
        let byte = get_u8(bytes)?;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let is_shortest = byte != 0 || at == 0;
            return if is_shortest { Ok(number) } else { Err(DecodeError::Number) };
        }
    }
    Err(DecodeError::Number)
}

/// A position that is so much after another one.
pub(crate) fn get_after(bytes: &mut Bytes, before: u64) -> Result<u64, DecodeError> {
    let position = before + get_number(bytes)?;
    if position <= NUMBER_MAX { Ok(position) } else { Err(DecodeError::Number) }
}

pub(crate) fn put_ids(out: &mut Vec<u8>, ids: &Ids) {
    let bytes = ids.bytes();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    out.push(len as u8);
    out.extend_from_slice(&bytes[..len]);
}

pub(crate) fn get_ids(bytes: &mut Bytes) -> Result<Ids, DecodeError> {
    let mut all = [0; Ids::BYTES_MAX];
    let len = usize::from(get_u8(bytes)?);
    let part = all.get_mut(..len).ok_or(DecodeError::Server)?;
    bytes.try_copy_to_slice(part).map_err(|_| DecodeError::Short)?;
    if part.last() == Some(&0) {
        return Err(DecodeError::Server);
    }
    Ids::from_bytes(&all).ok_or(DecodeError::Server)
}

pub(crate) fn get_server(bytes: &mut Bytes) -> Result<u8, DecodeError> {
    let id = get_u8(bytes)?;
    if Ids::is_id(id) { Ok(id) } else { Err(DecodeError::Server) }
}

pub(crate) fn get_u8(bytes: &mut Bytes) -> Result<u8, DecodeError> {
    bytes.try_get_u8().map_err(|_| DecodeError::Short)
}

pub(crate) fn get_u64(bytes: &mut Bytes) -> Result<u64, DecodeError> {
    bytes.try_get_u64_le().map_err(|_| DecodeError::Short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_one_way() {
        for number in [0, 1, 127, 128, 300, 1 << 35, NUMBER_MAX - 1, NUMBER_MAX] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            let mut bytes = Bytes::from(out);
            assert_eq!(get_number(&mut bytes), Ok(number));
            assert!(bytes.is_empty());
        }
        for bad in [&[0x80, 0][..], &[0xff; 9], &[0xff; 10]] {
            assert_eq!(get_number(&mut Bytes::copy_from_slice(bad)), Err(DecodeError::Number), "{bad:?}");
        }
        assert_eq!(get_number(&mut Bytes::from_static(&[0x80])), Err(DecodeError::Short));
        let mut one = Bytes::from_static(&[1]);
        assert_eq!(get_after(&mut one, NUMBER_MAX), Err(DecodeError::Number));
    }

    #[test]
    fn few_ids_take_few_bytes() {
        for (ids, len) in [(&[][..], 1), (&[1], 2), (&[1, 7], 2), (&[8], 3), (&[254], 33)] {
            let ids: Ids = ids.iter().copied().collect();
            let mut out = Vec::new();
            put_ids(&mut out, &ids);
            assert_eq!(out.len(), len);
            assert_eq!(get_ids(&mut Bytes::from(out)), Ok(ids));
        }
        for (bad, error) in [
            (&[33][..], DecodeError::Server),
            (&[1, 0], DecodeError::Server),
            (&[1, 1], DecodeError::Server),
            (&[2, 2], DecodeError::Short),
        ] {
            assert_eq!(get_ids(&mut Bytes::copy_from_slice(bad)), Err(error), "{bad:?}");
        }
    }
}
