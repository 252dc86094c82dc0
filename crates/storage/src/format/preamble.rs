//! The beginning of every file: what it is, of which folder, and a table of positions.

use alloc::vec::Vec;
use core::fmt;

use super::{FORMAT_VERSION, Fields, TIMELINES_MAX, checksum};
use crate::positions::Positions;

/// The random name of a folder, drawn once by whoever makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderId(pub [u8; 16]);

impl fmt::Display for FolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Which of the three kinds of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Format,
    Segment,
    Snapshot,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        match self {
            Self::Format => *b"STOAFOLD",
            Self::Segment => *b"STOA-LOG",
            Self::Snapshot => *b"STOASNAP",
        }
    }
}

/// The fixed part of a preamble.
pub(crate) const PREAMBLE_BYTES: usize = 64;
const ROW_BYTES: usize = 16;

/// The beginning of a file. What the three words mean depends on the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) folder_id: FolderId,
    pub(crate) words: [u64; 3],
    pub(crate) positions: Positions,
}

/// Why bytes are not a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreambleError {
    Damaged { offset: u64, what: &'static str },
    UnknownVersion(u32),
}

fn damaged(offset: u64, what: &'static str) -> PreambleError {
    PreambleError::Damaged { offset, what }
}

impl Preamble {
    /// How many bytes the preamble takes.
    pub(crate) fn encoded_bytes(&self) -> u64 {
        (PREAMBLE_BYTES + self.positions.rows().len() * ROW_BYTES) as u64
    }

    pub(crate) fn encode(&self, kind: FileKind) -> Vec<u8> {
        let rows = self.positions.rows();
        let mut table = Vec::with_capacity(rows.len() * ROW_BYTES);
        for &(timeline, position) in rows {
            table.extend_from_slice(&timeline.to_le_bytes());
            table.extend_from_slice(&[0; 4]);
            table.extend_from_slice(&position.to_le_bytes());
        }
        let mut front = Vec::with_capacity(PREAMBLE_BYTES + table.len());
        front.extend_from_slice(&kind.magic());
        front.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let mut rest = Vec::with_capacity(48);
        rest.extend_from_slice(&self.folder_id.0);
        for word in self.words {
            rest.extend_from_slice(&word.to_le_bytes());
        }
        rest.extend_from_slice(&(rows.len() as u32).to_le_bytes());
        rest.extend_from_slice(&checksum(0, &table).to_le_bytes());
        let crc = checksum(checksum(0, &front), &rest);
        front.extend_from_slice(&crc.to_le_bytes());
        front.extend_from_slice(&rest);
        front.extend_from_slice(&table);
        front
    }

    /// How long the whole preamble is, from its fixed part.
    pub(crate) fn measure(kind: FileKind, fixed: &[u8; PREAMBLE_BYTES]) -> Result<usize, PreambleError> {
        let mut fields = Fields(fixed);
        let short = damaged(0, "the file is shorter than its header");
        if fields.array::<8>() != Some(kind.magic()) {
            return Err(damaged(0, "it does not begin as a file of its kind does"));
        }
        let version = fields.u32().ok_or(short)?;
        if version != FORMAT_VERSION {
            return Err(PreambleError::UnknownVersion(version));
        }
        let crc = fields.u32().ok_or(short)?;
        if checksum(checksum(0, &fixed[..12]), fields.0) != crc {
            return Err(damaged(0, "the header's checksum is wrong"));
        }
        let rows = Fields(&fixed[56..]).u32().ok_or(short)?;
        match usize::try_from(rows) {
            Ok(rows) if rows <= TIMELINES_MAX => Ok(PREAMBLE_BYTES + rows * ROW_BYTES),
            _ => Err(damaged(56, "the header names too many timelines")),
        }
    }

    /// Reads a preamble of the length that [`measure`](Self::measure) gave.
    pub(crate) fn decode(kind: FileKind, bytes: &[u8]) -> Result<Self, PreambleError> {
        let short = damaged(0, "the file is shorter than its header");
        let (fixed, table) = bytes.split_first_chunk::<PREAMBLE_BYTES>().ok_or(short)?;
        if Self::measure(kind, fixed)? != bytes.len() {
            return Err(short);
        }
        let mut fields = Fields(&fixed[16..]);
        let folder_id = FolderId(fields.array().ok_or(short)?);
        let mut words = [0; 3];
        for word in &mut words {
            *word = fields.u64().ok_or(short)?;
        }
        let _rows = fields.u32();
        if fields.u32() != Some(checksum(0, table)) {
            return Err(damaged(64, "the checksum of the table of timelines is wrong"));
        }
        let mut rows = Vec::with_capacity(table.len() / ROW_BYTES);
        let mut fields = Fields(table);
        while !fields.0.is_empty() {
            let timeline = fields.u32().ok_or(short)?;
            let _zeros = fields.u32();
            rows.push((timeline, fields.u64().ok_or(short)?));
        }
        let count = rows.len();
        let positions = Positions::new(rows);
        if positions.rows().len() != count {
            return Err(damaged(64, "the table of timelines holds doubles or zeros"));
        }
        Ok(Self { folder_id, words, positions })
    }

    /// What the checksums of this file's frames begin with, so that no other file's frames pass.
    pub(crate) fn frame_seed(&self, kind: FileKind) -> u32 {
        let seed = checksum(0, &kind.magic());
        let seed = checksum(seed, &self.folder_id.0);
        checksum(seed, &self.words[0].to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Preamble {
        Preamble {
            folder_id: FolderId([7; 16]),
            words: [1, 2, u64::MAX],
            positions: Positions::new(vec![(1, 5), (9, 77)]),
        }
    }

    #[test]
    fn a_preamble_is_read_back() {
        for kind in [FileKind::Format, FileKind::Segment, FileKind::Snapshot] {
            let bytes = example().encode(kind);
            assert_eq!(bytes.len() as u64, example().encoded_bytes());
            assert_eq!(Preamble::decode(kind, &bytes), Ok(example()));
        }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_passes() {
        let good = example().encode(FileKind::Segment);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Preamble::decode(FileKind::Segment, &bad).is_err(), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(Preamble::decode(FileKind::Segment, &good[..length]).is_err());
        }
        assert!(Preamble::decode(FileKind::Snapshot, &good).is_err());
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = example().encode(FileKind::Format);
        bytes[8] = 9;
        assert_eq!(Preamble::decode(FileKind::Format, &bytes), Err(PreambleError::UnknownVersion(9)));
    }
}
