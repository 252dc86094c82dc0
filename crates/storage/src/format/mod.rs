//! The bytes of the files, as `docs/data-files.md` draws them. Nothing here touches a disk.

mod frame;
mod name;
mod preamble;

pub use preamble::FolderId;

pub(crate) use frame::{
    BadFrame, ENTRY_HEADER_BYTES, Entries, FOOTER_BYTES, FRAME_ALIGNMENT, FRAME_BYTES, FRAME_MAGIC, Footer,
    FrameHeader, Kind, entry_header,
};
pub use name::snapshot_name;
pub(crate) use name::{FORMAT_FILE, FileName, TEMPORARY, segment_name};
pub(crate) use preamble::{FileKind, PREAMBLE_BYTES, Preamble, PreambleError};

/// The version of the format that this crate writes and reads.
pub const FORMAT_VERSION: u32 = 2;

/// The largest body of a frame; with it a damaged length cannot ask for all memory.
pub const BODY_BYTES_MAX: u64 = 1 << 30;

/// The largest number of timelines in one log.
pub const TIMELINES_MAX: usize = 65_536;

/// Takes fixed-width fields from the front of a slice.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }
}

/// A checksum that goes on from another one, or from 0.
pub(crate) fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}
