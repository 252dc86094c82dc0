//! The log: appending, sealing, changing segments.

use alloc::string::String;
use alloc::vec::Vec;

use crate::disk::{Disk, DiskError, DiskErrorKind, remove_if_there};
use crate::error::{AppendError, StorageError};
use crate::folder::publish;
use crate::format::{
    BODY_BYTES_MAX, ENTRY_HEADER_BYTES, FRAME_ALIGNMENT, FRAME_BYTES, FileKind, FolderId, FrameHeader, Kind,
    Preamble, TEMPORARY, TIMELINES_MAX, entry_header, segment_name,
};
use crate::positions::Positions;
use crate::recovery::{self, Recovery};

/// What is collected in memory before it is written; a larger batch takes several writes.
const BUFFER_BYTES: usize = 256 << 10;

/// From this size on a piece of a payload is written from where it is, without a copy.
const DIRECT_BYTES: usize = 64 << 10;

/// How a log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a segment has this many bytes, the next one is begun.
    pub segment_bytes: u64,
    /// How many zero bytes are written ahead of small batches, so that their syncs need not
    /// record a new length: that about halves the time of a sync. 0 for none.
    pub ahead_bytes: u64,
    /// How many good snapshots [`Log::purge`] leaves, at least one.
    pub snapshots_kept: usize,
    /// Refuse a folder without a log instead of making a new one.
    pub must_exist: bool,
    /// The name of the folder if it is made new: 16 random bytes.
    pub new_folder_id: FolderId,
    /// The time, in milliseconds since 1970, noted if the folder is made new.
    pub now_ms: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            ahead_bytes: 256 << 10,
            snapshots_kept: 3,
            must_exist: false,
            new_folder_id: FolderId::default(),
            now_ms: 0,
        }
    }
}

/// One entry to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Whose it is.
    pub timeline: u32,
    /// Its position: one more than that of the timeline's entry before, 1 for the first.
    pub position: u64,
    /// What is stored, in pieces.
    pub payload: &'a [&'a [u8]],
}

/// What a log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// How many segments there are.
    pub segments: usize,
    /// How many bytes they have.
    pub bytes: u64,
    /// The number of the next frame; it grows by one with each batch and each segment.
    pub next_frame: u64,
    /// The last position of every timeline that has one.
    pub positions: Vec<(u32, u64)>,
    /// Whether the end is sealed.
    pub sealed: bool,
}

/// A segment, as far as it must be known to write behind it and to purge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first_frame: u64,
    /// Of a segment with a successor all bytes, of the last one those before [`Log::end`].
    pub(crate) bytes: u64,
    /// The last position of every timeline before this segment.
    pub(crate) start: Positions,
}

/// The one log of a server. All calls take the disk it was opened on.
#[derive(Debug)]
pub struct Log {
    pub(crate) options: Options,
    pub(crate) folder_id: FolderId,
    pub(crate) created_ms: i64,
    /// Oldest first, the last one is written to; never empty.
    pub(crate) segments: Vec<Segment>,
    pub(crate) active: Active,
    pub(crate) positions: Positions,
    /// The positions as they will be when the batch at hand is stored.
    pub(crate) staged: Positions,
    pub(crate) buffer: Vec<u8>,
    pub(crate) poisoned: Option<DiskError>,
}

/// The end of the segment that is written to.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) file: String,
    pub(crate) seed: u32,
    /// Where its first frame is.
    pub(crate) first_at: u64,
    /// Where the next frame goes, over the seal if there is one.
    pub(crate) end: u64,
    /// The number of the next frame.
    pub(crate) next_frame: u64,
    /// Whether a seal was written at `end`.
    pub(crate) sealed: bool,
    /// The length of the file; between the last frame and here are zeros.
    pub(crate) file_bytes: u64,
}

/// Writes `Preamble` of a segment without frames.
pub(crate) fn create_segment<D: Disk + ?Sized>(
    disk: &mut D,
    folder_id: FolderId,
    first_frame: u64,
    before: Option<(u64, u64)>,
    start: &Positions,
) -> Result<Active, DiskError> {
    let (before_frame, before_bytes) = before.unwrap_or((0, 0));
    let preamble =
        Preamble { folder_id, words: [first_frame, before_frame, before_bytes], positions: start.clone() };
    let file = segment_name(first_frame);
    publish(disk, &file, &preamble.encode(FileKind::Segment))?;
    let first_at = preamble.encoded_bytes();
    Ok(Active {
        file,
        seed: preamble.frame_seed(FileKind::Segment),
        first_at,
        end: first_at,
        next_frame: first_frame,
        sealed: false,
        file_bytes: first_at,
    })
}

impl Log {
    /// Opens the log of a folder, or makes a new one, and hands all it holds to `recovery`.
    ///
    /// When this returns, everything handed out is durable. A folder that was damaged is refused
    /// and left as it is; of an interrupted write only the torn tail is removed.
    pub fn open<D: Disk + ?Sized, R: Recovery + ?Sized>(
        disk: &mut D,
        options: &Options,
        recovery: &mut R,
    ) -> Result<Self, StorageError> {
        recovery::open(disk, options, recovery)
    }

    /// The folder's random name.
    pub fn folder_id(&self) -> FolderId {
        self.folder_id
    }

    /// When the folder was made, in milliseconds since 1970.
    pub fn created_ms(&self) -> i64 {
        self.created_ms
    }

    /// The last stored position of a timeline, 0 if it has none.
    pub fn position(&self, timeline: u32) -> u64 {
        self.positions.get(timeline)
    }

    /// What the log holds.
    pub fn stats(&self) -> Stats {
        let before: u64 = self.segments.iter().rev().skip(1).map(|segment| segment.bytes).sum();
        Stats {
            segments: self.segments.len(),
            bytes: before + self.active.end,
            next_frame: self.active.next_frame,
            positions: self.positions.rows().to_vec(),
            sealed: self.active.sealed,
        }
    }

    /// Stores entries durably: one write and one sync for all of them.
    ///
    /// After an error that is not [`AppendError::Poisoned`] the log is, durably, as it was.
    pub fn append<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        entries: &[Entry<'_>],
    ) -> Result<(), AppendError> {
        self.check_poison()?;
        if entries.is_empty() {
            return Ok(());
        }
        let body_bytes = self.stage(entries)?;
        let frame_bytes = FRAME_BYTES as u64 + body_bytes;
        let Active { first_at, end, .. } = self.active;
        if end > first_at && end + frame_bytes > self.options.segment_bytes {
            self.change_segment(disk)?;
        }
        let ahead_bytes = self.bytes_ahead(frame_bytes);
        let mut written = self.write(disk, entries, body_bytes, ahead_bytes);
        if matches!(&written, Err(AppendError::NoSpace(_))) && ahead_bytes > 0 {
            written = self.write(disk, entries, body_bytes, 0);
        }
        written?;
        self.active.end += frame_bytes;
        self.active.next_frame += 1;
        self.active.sealed = false;
        core::mem::swap(&mut self.positions, &mut self.staged);
        Ok(())
    }

    /// Writes and syncs a batch, or rolls it back.
    fn write<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        entries: &[Entry<'_>],
        body_bytes: u64,
        ahead_bytes: u64,
    ) -> Result<(), AppendError> {
        let mut write = BatchWrite::new(disk, &self.active, &mut self.buffer);
        let written = write.batch(entries, body_bytes, ahead_bytes);
        if let Err(error) = written.and_then(|()| disk.sync(&self.active.file)) {
            return Err(self.roll_back(disk, error));
        }
        let written_end = self.active.end + FRAME_BYTES as u64 + body_bytes + ahead_bytes;
        self.active.file_bytes = self.active.file_bytes.max(written_end);
        Ok(())
    }

    /// How many zeros to write behind a batch: none if there is room in the file, or if the batch
    /// is so large that they would be a waste.
    fn bytes_ahead(&self, frame_bytes: u64) -> u64 {
        let frame_end = self.active.end + frame_bytes;
        if frame_end <= self.active.file_bytes || frame_bytes > self.options.ahead_bytes / 4 {
            return 0;
        }
        let room = self.options.segment_bytes.saturating_sub(frame_end);
        self.options.ahead_bytes.min(room)
    }

    /// Writes a seal behind the last batch, without waiting for the disk: call it when idle.
    ///
    /// If it is found later, what is before it is known to have been stored, so damage to it is
    /// not mistaken for an interrupted write. A full disk is no error: there is no seal then.
    pub fn seal<D: Disk + ?Sized>(&mut self, disk: &mut D) -> Result<(), AppendError> {
        self.check_poison()?;
        if self.active.sealed || self.active.end == self.active.first_at {
            return Ok(());
        }
        let seal = FrameHeader::bare(Kind::Seal, self.active.next_frame).encode(self.active.seed);
        match disk.write(&self.active.file, self.active.end, &seal) {
            Ok(()) => {
                self.active.sealed = true;
                let seal_end = self.active.end + FRAME_BYTES as u64;
                self.active.file_bytes = self.active.file_bytes.max(seal_end);
                Ok(())
            }
            // Part of a seal may be there: a torn tail, overwritten by the next batch.
            Err(error) if error.kind == DiskErrorKind::NoSpace => Ok(()),
            Err(error) => Err(self.poison(error)),
        }
    }

    /// Checks the entries and moves the staged positions; returns the body's length.
    fn stage(&mut self, entries: &[Entry<'_>]) -> Result<u64, AppendError> {
        self.staged.copy_from(&self.positions);
        let mut body_bytes = 0;
        for entry in entries {
            let Entry { timeline, position, payload } = *entry;
            self.staged.advance(timeline, position).map_err(|expected| AppendError::OutOfOrder {
                timeline,
                expected,
                found: position,
            })?;
            body_bytes += (ENTRY_HEADER_BYTES + total_bytes(payload)) as u64;
        }
        let body_bytes = body_bytes.next_multiple_of(FRAME_ALIGNMENT);
        let too_large = |what, found, limit| Err(AppendError::TooLarge { what, found, limit });
        if body_bytes > BODY_BYTES_MAX {
            return too_large("the bytes", body_bytes, BODY_BYTES_MAX);
        }
        let timelines = self.staged.rows().len();
        if timelines > TIMELINES_MAX {
            return too_large("the timelines", timelines as u64, TIMELINES_MAX as u64);
        }
        Ok(body_bytes)
    }

    /// Begins the next segment, then ends this one, in this order: see `docs/data-files.md`.
    fn change_segment<D: Disk + ?Sized>(&mut self, disk: &mut D) -> Result<(), AppendError> {
        let number = self.active.next_frame;
        match self.try_change_segment(disk) {
            Ok(next) => {
                let last = self.segments.last_mut().expect("a log has a segment");
                last.bytes = self.active.end + FRAME_BYTES as u64;
                self.segments.push(Segment {
                    first_frame: next.next_frame,
                    bytes: next.end,
                    start: self.positions.clone(),
                });
                self.active = next;
                Ok(())
            }
            Err(error) if error.kind == DiskErrorKind::NoSpace => {
                let error = self.roll_back(disk, error);
                let next = segment_name(number + 1);
                let removed = remove_if_there(disk, &(next.clone() + TEMPORARY))
                    .and_then(|()| remove_if_there(disk, &next))
                    .and_then(|()| disk.sync_folder());
                match removed {
                    Ok(()) => Err(error),
                    Err(error) => Err(self.poison(error)),
                }
            }
            Err(error) => Err(self.poison(error)),
        }
    }

    fn try_change_segment<D: Disk + ?Sized>(&mut self, disk: &mut D) -> Result<Active, DiskError> {
        let Active { end, next_frame, seed, .. } = self.active;
        let first_frame = self.segments.last().map_or(0, |segment| segment.first_frame);
        let before = Some((first_frame, end));
        let next = create_segment(disk, self.folder_id, next_frame + 1, before, &self.positions)?;
        let mark = FrameHeader::bare(Kind::End, next_frame).encode(seed);
        disk.write(&self.active.file, end, &mark)?;
        let end_bytes = end + FRAME_BYTES as u64;
        if self.active.file_bytes > end_bytes {
            disk.set_len(&self.active.file, end_bytes)?;
        }
        disk.sync(&self.active.file)?;
        Ok(next)
    }

    /// After a full disk, makes the segment durably what it was before the write.
    fn roll_back<D: Disk + ?Sized>(&mut self, disk: &mut D, error: DiskError) -> AppendError {
        if error.kind != DiskErrorKind::NoSpace {
            return self.poison(error);
        }
        let Active { file, end, sealed, file_bytes, .. } = &mut self.active;
        (*sealed, *file_bytes) = (false, *end);
        let mut cut = disk.set_len(file, *end).and_then(|()| disk.sync(file));
        if matches!(&cut, Err(again) if again.kind == DiskErrorKind::NoSpace) {
            // The first sync may have reported what happened to the bytes just cut off.
            cut = disk.sync(file);
        }
        match cut {
            Ok(()) => AppendError::NoSpace(error),
            Err(error) => self.poison(error),
        }
    }

    fn check_poison(&self) -> Result<(), AppendError> {
        match &self.poisoned {
            Some(error) => Err(AppendError::Poisoned(error.clone())),
            None => Ok(()),
        }
    }

    fn poison(&mut self, error: DiskError) -> AppendError {
        self.poisoned = Some(error.clone());
        AppendError::Poisoned(error)
    }
}

fn total_bytes(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// One batch on its way to the disk.
struct BatchWrite<'a, D: ?Sized> {
    disk: &'a mut D,
    active: &'a Active,
    /// Begins with room for the frame's header as long as nothing was written yet.
    buffer: &'a mut Vec<u8>,
    body_crc: crc32fast::Hasher,
    /// Where the buffer's first byte goes.
    at: u64,
    header_waits: bool,
}

impl<'a, D: Disk + ?Sized> BatchWrite<'a, D> {
    fn new(disk: &'a mut D, active: &'a Active, buffer: &'a mut Vec<u8>) -> Self {
        Self { disk, active, buffer, body_crc: crc32fast::Hasher::new(), at: active.end, header_waits: true }
    }

    /// Writes the frame: at once if it fits the buffer, else in pieces with the header last.
    fn batch(&mut self, entries: &[Entry<'_>], body_bytes: u64, ahead_bytes: u64) -> Result<(), DiskError> {
        let frame_bytes = FRAME_BYTES + body_bytes as usize;
        self.buffer.clear();
        self.buffer.reserve(frame_bytes.min(BUFFER_BYTES + DIRECT_BYTES));
        self.buffer.extend_from_slice(&[0; FRAME_BYTES]);
        for entry in entries {
            let bytes = total_bytes(entry.payload) as u32;
            self.buffer.extend_from_slice(&entry_header(entry.timeline, bytes, entry.position));
            for piece in entry.payload {
                self.piece(piece)?;
            }
        }
        let end = self.active.end + frame_bytes as u64;
        let padding = end - self.at - self.buffer.len() as u64;
        self.buffer.resize(self.buffer.len() + padding as usize, 0);
        self.finish(entries.len() as u32, body_bytes as u32, ahead_bytes)
    }

    fn piece(&mut self, piece: &[u8]) -> Result<(), DiskError> {
        if piece.len() >= DIRECT_BYTES {
            self.spill()?;
            self.body_crc.update(piece);
            self.disk.write(&self.active.file, self.at, piece)?;
            self.at += piece.len() as u64;
        } else {
            self.buffer.extend_from_slice(piece);
            if self.buffer.len() >= BUFFER_BYTES {
                self.spill()?;
            }
        }
        Ok(())
    }

    /// Writes what is in the buffer; the header's place stays empty for now.
    fn spill(&mut self) -> Result<(), DiskError> {
        let skip = if core::mem::take(&mut self.header_waits) { FRAME_BYTES } else { 0 };
        let body = &self.buffer[skip..];
        self.at += skip as u64;
        self.body_crc.update(body);
        self.disk.write(&self.active.file, self.at, body)?;
        self.at += body.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(&mut self, entries: u32, body_bytes: u32, ahead_bytes: u64) -> Result<(), DiskError> {
        let at_once = self.header_waits;
        if at_once {
            self.body_crc.update(&self.buffer[FRAME_BYTES..]);
        } else if !self.buffer.is_empty() {
            self.spill()?;
        }
        let header = FrameHeader {
            number: self.active.next_frame,
            kind: Kind::Batch,
            entries,
            body_bytes,
            body_crc: self.body_crc.clone().finalize(),
        }
        .encode(self.active.seed);
        if at_once {
            self.buffer[..FRAME_BYTES].copy_from_slice(&header);
            self.buffer.resize(self.buffer.len() + ahead_bytes as usize, 0);
            self.disk.write(&self.active.file, self.at, self.buffer)
        } else {
            self.disk.write(&self.active.file, self.active.end, &header)
        }
    }
}
