//! Reads a file front to back through a window, and finds frames in it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::disk::{Disk, DiskError, DiskErrorKind};
use crate::error::StorageError;
use crate::format::{
    BadFrame, FORMAT_VERSION, FRAME_ALIGNMENT, FRAME_BYTES, FRAME_MAGIC, FileKind, FrameHeader,
    PREAMBLE_BYTES, Preamble, PreambleError,
};

/// How much is read at once.
const WINDOW_BYTES: u64 = 1 << 20;

/// One file, its length known, read through a window that grows to the largest frame.
pub(crate) struct FileReader {
    file: String,
    bytes: u64,
    window: Vec<u8>,
    window_start: u64,
    /// How much to read at once; small for a look at a single place.
    ahead: u64,
}

/// What is at an offset.
pub(crate) enum Found<'a> {
    /// A whole frame with the number that belongs here.
    Frame(FrameHeader, &'a [u8]),
    /// The file ends here.
    End,
    /// Something else.
    Bad(BadFrame),
}

impl FileReader {
    pub(crate) fn new(file: String, bytes: u64) -> Self {
        Self { file, bytes, window: Vec::new(), window_start: 0, ahead: WINDOW_BYTES }
    }

    /// A reader that reads what is asked for and not more.
    pub(crate) fn spot(file: String, bytes: u64) -> Self {
        Self { ahead: 0, ..Self::new(file, bytes) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `count` bytes from `offset`, or `None` if the file ends before.
    pub(crate) fn get<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        offset: u64,
        count: u64,
    ) -> Result<Option<&[u8]>, DiskError> {
        match offset.checked_add(count) {
            Some(end) if end <= self.bytes => {}
            _ => return Ok(None),
        }
        let inside =
            offset >= self.window_start && offset + count <= self.window_start + self.window.len() as u64;
        if !inside {
            self.fill(disk, offset, count.max(self.ahead).min(self.bytes - offset))?;
        }
        let from = (offset - self.window_start) as usize;
        Ok(self.window.get(from..from + count as usize))
    }

    fn fill<D: Disk + ?Sized>(&mut self, disk: &mut D, offset: u64, count: u64) -> Result<(), DiskError> {
        let too_large = || DiskError {
            kind: DiskErrorKind::Other,
            file: self.file.clone(),
            operation: "read",
            detail: format!("{count} bytes do not fit into memory"),
        };
        let count = usize::try_from(count).map_err(|_| too_large())?;
        self.window.resize(count, 0);
        self.window_start = offset;
        let mut done = 0;
        while done < count {
            match disk.read(&self.file, offset + done as u64, &mut self.window[done..]) {
                Ok(0) => {
                    self.window.clear();
                    return Err(DiskError {
                        kind: DiskErrorKind::Other,
                        file: self.file.clone(),
                        operation: "read",
                        detail: format!("the file became shorter than {} bytes", self.bytes),
                    });
                }
                Ok(more) => done += more,
                Err(error) => {
                    self.window.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The file's preamble.
    pub(crate) fn preamble<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        kind: FileKind,
    ) -> Result<Preamble, StorageError> {
        let short = PreambleError::Damaged { offset: self.bytes, what: "the file ends inside its header" };
        let found = (|| {
            let Some(fixed) = self.get(disk, 0, PREAMBLE_BYTES as u64)? else {
                return Ok(Err(short));
            };
            let measured = match fixed.first_chunk() {
                Some(fixed) => Preamble::measure(kind, fixed),
                None => Err(short),
            };
            let whole = match measured {
                Ok(bytes) => self.get(disk, 0, bytes as u64)?,
                Err(error) => return Ok(Err(error)),
            };
            Ok(whole.map_or(Err(short), |bytes| Preamble::decode(kind, bytes)))
        })();
        found.map_err(StorageError::Disk)?.map_err(|error| match error {
            PreambleError::Damaged { offset, what } => self.damaged(offset, what),
            PreambleError::UnknownVersion(found) => {
                StorageError::UnknownVersion { file: self.file.clone(), found, known: FORMAT_VERSION }
            }
        })
    }

    /// The frame at `offset`, which must have `number`.
    pub(crate) fn frame<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        offset: u64,
        seed: u32,
        number: u64,
    ) -> Result<Found<'_>, DiskError> {
        if offset == self.bytes {
            return Ok(Found::End);
        }
        let Some(header) = self.header(disk, offset)? else {
            return Ok(Found::Bad(BadFrame::torn("the file ends inside a frame's header")));
        };
        let header = match FrameHeader::decode(seed, &header) {
            Ok(header) => header,
            Err(bad) => return Ok(Found::Bad(bad)),
        };
        if header.number != number {
            return Ok(Found::Bad(BadFrame::written("the frame has another number than follows")));
        }
        let body_at = offset + FRAME_BYTES as u64;
        let Some(body) = self.get(disk, body_at, u64::from(header.body_bytes))? else {
            return Ok(Found::Bad(BadFrame::torn("the file ends inside a frame")));
        };
        if crc32fast::hash(body) != header.body_crc {
            return Ok(Found::Bad(BadFrame::torn("the checksum of the frame's body is wrong")));
        }
        Ok(Found::Frame(header, body))
    }

    fn header<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        offset: u64,
    ) -> Result<Option<[u8; FRAME_BYTES]>, DiskError> {
        let bytes = self.get(disk, offset, FRAME_BYTES as u64)?;
        Ok(bytes.and_then(|bytes| bytes.first_chunk().copied()))
    }

    /// The first place at or behind `offset` with a whole header of a frame of at least `number`.
    pub(crate) fn find_frame<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        offset: u64,
        seed: u32,
        number: u64,
    ) -> Result<Option<(u64, FrameHeader)>, DiskError> {
        let mut at = offset.next_multiple_of(FRAME_ALIGNMENT);
        while let Some(bytes) = self.get(disk, at, FRAME_BYTES as u64)? {
            if bytes.starts_with(&FRAME_MAGIC)
                && let Some(bytes) = bytes.first_chunk()
                && let Ok(header) = FrameHeader::decode(seed, bytes)
                && header.number >= number
            {
                return Ok(Some((at, header)));
            }
            at += FRAME_ALIGNMENT;
        }
        Ok(None)
    }

    /// Whether there are only zeros from `offset` on, and at least one.
    pub(crate) fn only_zeros<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        offset: u64,
    ) -> Result<bool, DiskError> {
        let mut at = offset;
        while at < self.bytes {
            let count = WINDOW_BYTES.min(self.bytes - at);
            if !self.get(disk, at, count)?.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0)) {
                return Ok(false);
            }
            at += count;
        }
        Ok(offset < self.bytes)
    }

    pub(crate) fn damaged(&self, offset: u64, what: impl Into<String>) -> StorageError {
        StorageError::Damaged { file: self.file.clone(), offset, what: what.into() }
    }
}
