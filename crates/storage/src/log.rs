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
use crate::staging::Staging;

/// How a log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a segment has this many bytes, the next one is begun.
    pub segment_bytes: u64,
    /// How many zero bytes are written ahead of small batches, so that their syncs need not
    /// record a new length: that about halves the time of a sync. 0 for none.
    pub ahead_bytes: u64,
    /// Segments are written in whole blocks of so many bytes (a power of two), from memory that is
    /// aligned to them, so that a disk can take them past its cache. What a batch leaves of its last
    /// block is zeros, which the next one overwrites. 1 for no blocks.
    pub block_bytes: usize,
    /// How many good snapshots [`Log::purge`] leaves, at least one.
    pub snapshots_kept: usize,
    /// [`Log::purge`] leaves so many bytes of segments, whether they are needed or not: somebody may read them.
    pub kept_bytes: u64,
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
            block_bytes: 4096,
            snapshots_kept: 3,
            kept_bytes: 0,
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
    pub(crate) staging: Staging,
    /// [`Active::tail`] as it will be when the batch at hand is stored.
    pub(crate) staged_tail: Vec<u8>,
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
    /// What the block with `end` in it holds before `end`: it is written again with what follows.
    pub(crate) tail: Vec<u8>,
}

/// Writes `Preamble` of a segment without frames.
pub(crate) fn create_segment<D: Disk + ?Sized>(
    disk: &mut D,
    folder_id: FolderId,
    first_frame: u64,
    before: Option<(u64, u64)>,
    start: &Positions,
    staging: &Staging,
) -> Result<Active, DiskError> {
    let (before_frame, before_bytes) = before.unwrap_or((0, 0));
    let preamble =
        Preamble { folder_id, words: [first_frame, before_frame, before_bytes], positions: start.clone() };
    let file = segment_name(first_frame);
    let encoded = preamble.encode(FileKind::Segment);
    publish(disk, &file, &encoded)?;
    let first_at = preamble.encoded_bytes();
    let tail = encoded[encoded.len() - staging.within_block(first_at)..].to_vec();
    Ok(Active {
        file,
        seed: preamble.frame_seed(FileKind::Segment),
        first_at,
        end: first_at,
        next_frame: first_frame,
        sealed: false,
        file_bytes: first_at,
        tail,
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
        core::mem::swap(&mut self.active.tail, &mut self.staged_tail);
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
        let padding = body_bytes - entries.iter().map(entry_bytes).sum::<u64>();
        let header = FrameHeader {
            number: self.active.next_frame,
            kind: Kind::Batch,
            entries: entries.len() as u32,
            body_bytes: body_bytes as u32,
            body_crc: body_crc(entries, padding),
        }
        .encode(self.active.seed);
        let (mut write, tail) = self.write_at_end(disk);
        let written = (|| {
            write.bytes(&header)?;
            for entry in entries {
                let bytes = total_bytes(entry.payload) as u32;
                write.bytes(&entry_header(entry.timeline, bytes, entry.position))?;
                entry.payload.iter().try_for_each(|piece| write.bytes(piece))?;
            }
            write.zeros(padding)?;
            write.keep_tail(tail);
            write.zeros(ahead_bytes)?;
            write.finish()
        })();
        match written.and_then(|end| disk.sync(&self.active.file).map(|()| end)) {
            Ok(written_end) => {
                self.active.file_bytes = self.active.file_bytes.max(written_end);
                Ok(())
            }
            Err(error) => Err(self.roll_back(disk, error)),
        }
    }

    /// Something to be written where the next frame goes, and where to put what it leaves of its last
    /// block.
    fn write_at_end<'a, D: Disk + ?Sized>(
        &'a mut self,
        disk: &'a mut D,
    ) -> (BlockWrite<'a, D>, &'a mut Vec<u8>) {
        let Active { file, end, tail, .. } = &self.active;
        self.staging.clear();
        self.staging.put(tail);
        let at = end - tail.len() as u64;
        (BlockWrite { disk, file, staging: &mut self.staging, at }, &mut self.staged_tail)
    }

    /// Writes a frame without a body behind the last batch.
    fn write_bare<D: Disk + ?Sized>(&mut self, disk: &mut D, kind: Kind) -> Result<(), DiskError> {
        let frame = FrameHeader::bare(kind, self.active.next_frame).encode(self.active.seed);
        let (mut write, _) = self.write_at_end(disk);
        write.bytes(&frame)?;
        let written_end = write.finish()?;
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
        match self.write_bare(disk, Kind::Seal) {
            Ok(()) => {
                self.active.sealed = true;
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
            let Entry { timeline, position, .. } = *entry;
            self.staged.advance(timeline, position).map_err(|expected| AppendError::OutOfOrder {
                timeline,
                expected,
                found: position,
            })?;
            body_bytes += entry_bytes(entry);
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
                if self.poisoned.is_some() {
                    // The end frame may still be there, and then so must what it points to.
                    return Err(error);
                }
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
        let Active { end, next_frame, .. } = self.active;
        let first_frame = self.segments.last().map_or(0, |segment| segment.first_frame);
        let (first, before) = (next_frame + 1, Some((first_frame, end)));
        let next = create_segment(disk, self.folder_id, first, before, &self.positions, &self.staging)?;
        self.write_bare(disk, Kind::End)?;
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
        // The frame may be whole, and only what fills its last block have found no room: it must not come
        // back, whatever becomes of the cut. Where there is no room for zeros, there is no header either.
        match disk.write(&self.active.file, self.active.end, &[0; FRAME_BYTES]) {
            Err(error) if error.kind != DiskErrorKind::NoSpace => return self.poison(error),
            _ => {}
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

fn entry_bytes(entry: &Entry<'_>) -> u64 {
    (ENTRY_HEADER_BYTES + total_bytes(entry.payload)) as u64
}

/// The checksum of a batch's body, which stands before it.
fn body_crc(entries: &[Entry<'_>], padding: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for entry in entries {
        crc.update(&entry_header(entry.timeline, total_bytes(entry.payload) as u32, entry.position));
        entry.payload.iter().for_each(|piece| crc.update(piece));
    }
    crc.update(&[0; FRAME_ALIGNMENT as usize][..padding as usize]);
    crc.finalize()
}

/// Something on its way to a file, in whole blocks.
struct BlockWrite<'a, D: ?Sized> {
    disk: &'a mut D,
    file: &'a str,
    staging: &'a mut Staging,
    /// Where the first staged byte goes, the start of a block.
    at: u64,
}

impl<D: Disk + ?Sized> BlockWrite<'_, D> {
    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), DiskError> {
        loop {
            bytes = self.staging.put(bytes);
            if bytes.is_empty() {
                return Ok(());
            }
            self.flush()?;
        }
    }

    fn zeros(&mut self, mut count: u64) -> Result<(), DiskError> {
        loop {
            count = self.staging.put_zeros(count);
            if count == 0 {
                return Ok(());
            }
            self.flush()?;
        }
    }

    /// Copies what has been put behind the start of the last block.
    fn keep_tail(&self, tail: &mut Vec<u8>) {
        let bytes = self.staging.bytes();
        let within = self.staging.within_block(bytes.len() as u64);
        tail.clear();
        tail.extend_from_slice(&bytes[bytes.len() - within..]);
    }

    /// Fills the last block with zeros and writes it; returns where that ends.
    fn finish(&mut self) -> Result<u64, DiskError> {
        match self.staging.within_block(self.staging.len() as u64) {
            0 => {}
            within => self.zeros((self.staging.block_bytes() - within) as u64)?,
        }
        self.flush()?;
        Ok(self.at)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        let bytes = self.staging.bytes();
        if !bytes.is_empty() {
            self.disk.write(self.file, self.at, bytes)?;
            self.at += bytes.len() as u64;
            self.staging.clear();
        }
        Ok(())
    }
}
