//! Opening a folder: what is whole is handed out, what is torn is cut, what is damaged is refused.
//!
//! Nothing is changed before everything has been read and found good.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::disk::{Disk, DiskError, remove_if_there};
use crate::error::StorageError;
use crate::folder::{Folder, read_format, remove_leftovers, write_format};
use crate::format::{
    Entries, FORMAT_FILE, FRAME_ALIGNMENT, FRAME_BYTES, FileKind, FolderId, FrameHeader, Kind,
    PREAMBLE_BYTES, Preamble, segment_name,
};
use crate::log::{Active, Log, Options, Segment, create_segment};
use crate::positions::Positions;
use crate::reader::{FileReader, Found};
use crate::restore::restore_snapshots;
use crate::snapshot::SnapshotHeader;
use crate::staging::Staging;

/// How often progress is told.
pub(crate) const PROGRESS_BYTES: u64 = 4 << 20;

/// Receives what recovery finds: of each timeline the newest good snapshot first, in the order of the
/// timelines, then every later entry of all of them in the order of the log.
///
/// An error says why the data cannot be used; opening then fails with it.
pub trait Recovery {
    /// A snapshot follows. The header names the timelines that it is handed out for. (One of several
    /// timelines comes again for others of them, if newer ones of those turn out to be damaged.)
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String>;
    /// The next chunk of the snapshot, as it was written.
    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String>;
    /// The snapshot is whole.
    fn snapshot_end(&mut self) -> Result<(), String>;
    /// The snapshot is damaged: forget what was given of it, and of no other. An older one of the same
    /// timelines follows, or none.
    fn snapshot_discard(&mut self);
    /// The next entry.
    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String>;
    /// How far a part of the work is.
    fn progress(&mut self, _done_bytes: u64, _total_bytes: u64, _what: &str) {}
    /// Something an operator should know although the server can start.
    fn warning(&mut self, _message: &str) {}
}

/// A segment whose preamble was read.
pub(crate) struct Link {
    pub(crate) file: String,
    /// The length of the file; of a segment with a successor, up to the end frame.
    bytes: u64,
    pub(crate) preamble: Preamble,
}

impl Link {
    fn first_frame(&self) -> u64 {
        self.preamble.words[0]
    }

    fn first_at(&self) -> u64 {
        self.preamble.encoded_bytes()
    }

    fn seed(&self) -> u32 {
        self.preamble.frame_seed(FileKind::Segment)
    }

    fn is_blank(&self) -> bool {
        self.bytes == self.first_at()
    }

    fn damaged(&self, offset: u64, what: impl Into<String>) -> StorageError {
        StorageError::Damaged { file: self.file.clone(), offset, what: what.into() }
    }
}

/// The segments, each known to follow the one before.
struct Chain {
    links: Vec<Link>,
    /// A last segment without frames whose predecessor has no end: its making was interrupted.
    unfinished: Option<Link>,
}

pub(crate) fn open<D: Disk + ?Sized, R: Recovery + ?Sized>(
    disk: &mut D,
    options: &Options,
    recovery: &mut R,
) -> Result<Log, StorageError> {
    let folder = Folder::list(disk)?;
    let Some(format_bytes) = folder.format_bytes else {
        return create(disk, options, &folder);
    };
    let (folder_id, created_ms) = read_format(disk, format_bytes)?;
    let chain = read_chain(disk, &folder, folder_id)?;
    let first = chain.links.first().expect("a chain has a segment");
    let floor = restore_snapshots(disk, &folder, folder_id, first, recovery)?;
    let mut replay = Replay::new(&chain, &floor.positions, recovery);
    let end = replay.run(disk, &chain)?;
    let positions = replay.positions;
    let last = chain.links.last().expect("a chain has a segment");
    if let Some((timeline, there, here)) = floor.positions.first_beyond(&positions) {
        let what = format!(
            "the log ends here at position {here} of timeline {timeline}, but {} holds position {there}",
            floor.file(timeline)
        );
        return Err(last.damaged(end.at, what));
    }
    settle(disk, &folder, &chain, &end)?;
    let mut segments: Vec<Segment> = chain
        .links
        .iter()
        .map(|link| Segment {
            first_frame: link.first_frame(),
            bytes: link.bytes,
            start: link.preamble.positions.clone(),
        })
        .collect();
    segments.last_mut().expect("a chain has a segment").bytes = end.at;
    let staging = Staging::new(options.block_bytes);
    let active = Active {
        file: last.file.clone(),
        seed: last.seed(),
        first_at: last.first_at(),
        end: end.at,
        next_frame: end.next_frame,
        sealed: end.sealed,
        file_bytes: end.file_bytes(),
        tail: read_tail(disk, last, end.at, &staging)?,
    };
    Ok(assemble(options, folder_id, created_ms, segments, active, positions, staging))
}

/// What the block that the next frame begins in holds already.
fn read_tail<D: Disk + ?Sized>(
    disk: &mut D,
    last: &Link,
    end: u64,
    staging: &Staging,
) -> Result<Vec<u8>, StorageError> {
    let count = staging.within_block(end) as u64;
    let mut reader = FileReader::new(last.file.clone(), end);
    match reader.get(disk, end - count, count)? {
        Some(bytes) => Ok(bytes.to_vec()),
        None => Err(last.damaged(end - count, "the file has become shorter while it was read")),
    }
}

fn assemble(
    options: &Options,
    folder_id: FolderId,
    created_ms: i64,
    segments: Vec<Segment>,
    active: Active,
    positions: Positions,
    staging: Staging,
) -> Log {
    Log {
        options: options.clone(),
        folder_id,
        created_ms,
        segments,
        active,
        positions,
        staged: Positions::default(),
        staging,
        staged_tail: Vec::new(),
        poisoned: None,
    }
}

/// Makes a new folder where there is none, or where making one was interrupted.
fn create<D: Disk + ?Sized>(disk: &mut D, options: &Options, folder: &Folder) -> Result<Log, StorageError> {
    let interrupted = folder.segments == [(1, PREAMBLE_BYTES as u64)];
    if !folder.snapshots.is_empty() || !(folder.segments.is_empty() || interrupted) {
        return Err(StorageError::Missing {
            file: FORMAT_FILE.into(),
            what: format!(
                "the folder holds {} log segments and {} snapshots, so it must have one",
                folder.segments.len(),
                folder.snapshots.len()
            ),
        });
    }
    if options.must_exist {
        return Err(StorageError::NoLog);
    }
    remove_leftovers(disk, &folder.leftovers)?;
    let (folder_id, start) = (options.new_folder_id, Positions::default());
    let staging = Staging::new(options.block_bytes);
    let active = create_segment(disk, folder_id, 1, None, &start, &staging)?;
    write_format(disk, folder_id, options.now_ms)?;
    let segments = [Segment { first_frame: 1, bytes: active.end, start }].into();
    Ok(assemble(options, folder_id, options.now_ms, segments, active, Positions::default(), staging))
}

fn read_chain<D: Disk + ?Sized>(
    disk: &mut D,
    folder: &Folder,
    folder_id: FolderId,
) -> Result<Chain, StorageError> {
    let mut links: Vec<Link> = Vec::with_capacity(folder.segments.len());
    let mut unfinished = None;
    for (index, &(first_frame, bytes)) in folder.segments.iter().enumerate() {
        let mut reader = FileReader::spot(segment_name(first_frame), bytes);
        let preamble = reader.preamble(disk, FileKind::Segment)?;
        if preamble.folder_id != folder_id {
            return Err(reader.damaged(16, "it belongs to another data folder"));
        }
        if preamble.words[0] != first_frame {
            return Err(reader.damaged(32, "it is another segment than its name says"));
        }
        let link = Link { file: segment_name(first_frame), bytes, preamble };
        if let Some(before) = links.last_mut() {
            let is_last = index + 1 == folder.segments.len();
            if !follows(disk, before, &link)? {
                if !(is_last && link.is_blank()) {
                    let what = format!("{} says that this segment ends here, but it does not", link.file);
                    return Err(before.damaged(link.preamble.words[2], what));
                }
                unfinished = Some(link);
                break;
            }
            // What may be left behind the end are zeros that were written ahead.
            before.bytes = link.preamble.words[2] + FRAME_BYTES as u64;
        }
        links.push(link);
    }
    if links.is_empty() {
        return Err(StorageError::Missing {
            file: segment_name(1),
            what: format!("{FORMAT_FILE} says that this folder holds a log, but no segment is left"),
        });
    }
    Ok(Chain { links, unfinished })
}

/// Whether `before` has its end frame where `link` says; an error if `link` names another segment.
fn follows<D: Disk + ?Sized>(disk: &mut D, before: &Link, link: &Link) -> Result<bool, StorageError> {
    let [first_frame, before_frame, end] = link.preamble.words;
    if before_frame != before.first_frame() {
        return Err(StorageError::Missing {
            file: segment_name(before_frame),
            what: format!("{} follows it, {} comes before it", link.file, before.file),
        });
    }
    let mut reader = FileReader::spot(before.file.clone(), before.bytes);
    let found = match end <= before.bytes {
        true => reader.frame(disk, end, before.seed(), first_frame.wrapping_sub(1))?,
        false => Found::End,
    };
    Ok(matches!(found, Found::Frame(header, _) if header.kind == Kind::End && header.body_bytes == 0))
}

/// Where the log ends.
struct LogEnd {
    at: u64,
    next_frame: u64,
    sealed: bool,
    /// Where the last segment's last batch begins, if it has one.
    last_batch: Option<u64>,
}

impl LogEnd {
    /// How long the last segment's file is to be.
    fn file_bytes(&self) -> u64 {
        self.at + if self.sealed { FRAME_BYTES as u64 } else { 0 }
    }
}

/// Walks through the segments behind the snapshots.
struct Replay<'a, R: ?Sized> {
    recovery: &'a mut R,
    floor: &'a Positions,
    /// The first segment that can hold anything beyond the snapshots.
    first: usize,
    positions: Positions,
    done_bytes: u64,
    told_bytes: u64,
    total_bytes: u64,
}

impl<'a, R: Recovery + ?Sized> Replay<'a, R> {
    fn new(chain: &Chain, floor: &'a Positions, recovery: &'a mut R) -> Self {
        let starts_within = |link: &Link| link.preamble.positions.within(floor);
        let first = chain.links.iter().rposition(starts_within).unwrap_or(0);
        let links = &chain.links[first..];
        Self {
            recovery,
            floor,
            first,
            positions: links.first().map_or_else(Positions::default, |link| link.preamble.positions.clone()),
            done_bytes: 0,
            told_bytes: 0,
            total_bytes: links.iter().map(|link| link.bytes).sum(),
        }
    }

    fn run<D: Disk + ?Sized>(&mut self, disk: &mut D, chain: &Chain) -> Result<LogEnd, StorageError> {
        let links = &chain.links[self.first..];
        let (last, full) = links.split_last().expect("a chain has a segment");
        for (link, next) in full.iter().zip(&links[1..]) {
            let end = self.segment(disk, link)?;
            let Stop::End { number } = end.stop else {
                return Err(self.cannot_be_torn(link, end));
            };
            let at_end = end.at + FRAME_BYTES as u64 == link.bytes;
            if !at_end || number.wrapping_add(1) != next.first_frame() {
                return Err(link.damaged(end.at, "the segment ends too early"));
            }
            if self.positions != next.preamble.positions {
                let what = "its timelines do not go on where the segment before stopped";
                return Err(next.damaged(PREAMBLE_BYTES as u64, what));
            }
            self.done_bytes += link.bytes;
        }
        let end = self.segment(disk, last)?;
        self.recovery.progress(self.total_bytes, self.total_bytes, "log");
        self.judge_end(disk, last, end, chain.unfinished.as_ref())
    }

    /// Decides whether what stopped the walk through the last segment is a torn tail or damage.
    fn judge_end<D: Disk + ?Sized>(
        &self,
        disk: &mut D,
        last: &Link,
        end: SegmentEnd,
        unfinished: Option<&Link>,
    ) -> Result<LogEnd, StorageError> {
        let log_end = LogEnd {
            at: end.at,
            next_frame: end.number,
            sealed: matches!(end.stop, Stop::Seal),
            last_batch: end.last_batch,
        };
        let torn_from = match &end.stop {
            Stop::End { number } => {
                return Err(StorageError::Missing {
                    file: segment_name(number.wrapping_add(1)),
                    what: format!("{} says at byte {} that the log goes on in it", last.file, end.at),
                });
            }
            Stop::Bad { may_be_torn: false, .. } => return Err(self.cannot_be_torn(last, end)),
            Stop::Seal => end.at + FRAME_BYTES as u64,
            Stop::FileEnd | Stop::Bad { .. } => end.at,
        };
        let mut reader = FileReader::new(last.file.clone(), last.bytes);
        if let Some((later, _)) = reader.find_frame(disk, torn_from, last.seed(), end.number + 1)? {
            let what = format!(
                "{}; it is no interrupted write, because byte {later} holds frame that was written after it",
                end.stop.what()
            );
            return Err(last.damaged(torn_from, what));
        }
        match unfinished {
            Some(next) if end.at < next.preamble.words[2] => {
                let what = format!(
                    "{}; it is no interrupted write, because {} was begun after byte {}",
                    end.stop.what(),
                    next.file,
                    next.preamble.words[2]
                );
                Err(last.damaged(end.at, what))
            }
            _ => Ok(log_end),
        }
    }

    fn cannot_be_torn(&self, link: &Link, end: SegmentEnd) -> StorageError {
        link.damaged(end.at, end.stop.what())
    }

    /// Hands out a segment's entries up to whatever stops the walk.
    fn segment<D: Disk + ?Sized>(&mut self, disk: &mut D, link: &Link) -> Result<SegmentEnd, StorageError> {
        let mut reader = FileReader::new(link.file.clone(), link.bytes);
        let mut end = SegmentEnd {
            at: link.first_at(),
            number: link.first_frame(),
            last_batch: None,
            stop: Stop::FileEnd,
        };
        loop {
            let (header, body) = match reader.frame(disk, end.at, link.seed(), end.number)? {
                Found::Frame(header, body) => (header, body),
                Found::End => break,
                Found::Bad(bad) => {
                    end.stop = Stop::Bad { what: bad.what, may_be_torn: bad.may_be_torn };
                    break;
                }
            };
            end.stop = match header.kind {
                Kind::Batch if u64::from(header.body_bytes).is_multiple_of(FRAME_ALIGNMENT) => Stop::FileEnd,
                Kind::Seal if header.body_bytes == 0 => Stop::Seal,
                Kind::End if header.body_bytes == 0 => Stop::End { number: header.number },
                _ => Stop::Bad { what: "the frame does not belong into a log", may_be_torn: false },
            };
            if !matches!(end.stop, Stop::FileEnd) {
                break;
            }
            self.batch(link, end.at, header, body)?;
            end.last_batch = Some(end.at);
            end.at += FRAME_BYTES as u64 + u64::from(header.body_bytes);
            end.number += 1;
            self.tell(end.at);
        }
        Ok(end)
    }

    fn batch(&mut self, link: &Link, at: u64, header: FrameHeader, body: &[u8]) -> Result<(), StorageError> {
        for entry in Entries::new(header.entries, body) {
            let entry = entry.map_err(|what| link.damaged(at, what))?;
            let offset = at + (FRAME_BYTES + entry.offset) as u64;
            self.positions.advance(entry.timeline, entry.position).map_err(|expected| {
                let what = format!(
                    "position {expected} of timeline {} is missing, position {} follows",
                    entry.timeline, entry.position
                );
                link.damaged(offset, what)
            })?;
            if entry.position > self.floor.get(entry.timeline) {
                self.recovery
                    .entry(entry.timeline, entry.position, entry.payload)
                    .map_err(|what| StorageError::Refused { file: link.file.clone(), offset, what })?;
            }
        }
        Ok(())
    }

    fn tell(&mut self, at: u64) {
        let done = self.done_bytes + at;
        if done - self.told_bytes >= PROGRESS_BYTES {
            self.told_bytes = done;
            self.recovery.progress(done, self.total_bytes, "log");
        }
    }
}

/// How far a segment could be read, and why not further.
struct SegmentEnd {
    at: u64,
    /// The number of the frame that belongs there.
    number: u64,
    last_batch: Option<u64>,
    stop: Stop,
}

enum Stop {
    FileEnd,
    Seal,
    End { number: u64 },
    Bad { what: &'static str, may_be_torn: bool },
}

impl Stop {
    fn what(&self) -> String {
        match self {
            Self::FileEnd => "the segment has no end".to_string(),
            Self::Seal => "something follows the seal".to_string(),
            Self::End { .. } => "something follows the segment's end".to_string(),
            Self::Bad { what, .. } => (*what).to_string(),
        }
    }
}

/// Makes durable what was read: only then may anyone see it. Everything was found good before.
fn settle<D: Disk + ?Sized>(
    disk: &mut D,
    folder: &Folder,
    chain: &Chain,
    end: &LogEnd,
) -> Result<(), DiskError> {
    let (last, full) = chain.links.split_last().expect("a chain has a segment");
    if last.bytes > end.file_bytes() {
        disk.set_len(&last.file, end.file_bytes())?;
        disk.sync(&last.file)?;
    }
    if !end.sealed {
        match (end.last_batch, full.last()) {
            (Some(at), _) => write_again(disk, &last.file, at, end.at)?,
            (None, Some(before)) => {
                write_again(disk, &before.file, before.bytes - FRAME_BYTES as u64, before.bytes)?;
                disk.set_len(&before.file, before.bytes)?;
                disk.sync(&before.file)?;
            }
            (None, None) => {}
        }
    }
    disk.sync(&last.file)?;
    if let Some(unfinished) = &chain.unfinished {
        disk.remove(&unfinished.file)?;
    }
    for leftover in &folder.leftovers {
        remove_if_there(disk, leftover)?;
    }
    disk.sync_folder()
}

/// Writes bytes over themselves: a sync that failed earlier may have left pages in the cache that
/// count as clean and are not on the disk.
fn write_again<D: Disk + ?Sized>(disk: &mut D, file: &str, from: u64, to: u64) -> Result<(), DiskError> {
    const PIECE_BYTES: u64 = 1 << 20;
    let mut reader = FileReader::new(file.into(), to);
    let mut at = from;
    while at < to {
        let count = PIECE_BYTES.min(to - at);
        match reader.get(disk, at, count)? {
            Some(bytes) => disk.write(file, at, bytes)?,
            None => break,
        }
        at += count;
    }
    Ok(())
}
