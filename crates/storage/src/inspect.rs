//! Reads the files of a folder and reports everything that is there, whole or damaged.
//!
//! Nothing is changed, so this works beside a running server; what it is just writing may then
//! look torn.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use crate::disk::{Disk, DiskError};
use crate::error::StorageError;
use crate::folder::{Folder, read_format};
use crate::format::{
    Entries, FORMAT_FILE, FRAME_BYTES, FileKind, FolderId, FrameHeader, Kind, Preamble, segment_name,
    snapshot_name,
};
use crate::positions::Positions;
use crate::reader::{FileReader, Found};
use crate::snapshot::{SnapshotHeader, SnapshotReader};

/// Where something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The file.
    pub file: &'a str,
    /// The offset in it.
    pub offset: u64,
}

/// Something in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding<'a> {
    /// The file that names the folder.
    Format {
        /// The folder's random name.
        folder_id: FolderId,
        /// When it was made, in milliseconds since 1970.
        created_ms: i64,
    },
    /// The beginning of a segment.
    Segment {
        /// The length of the file.
        bytes: u64,
        /// The number of its first frame.
        first_frame: u64,
        /// The last position of every timeline before it.
        positions: &'a [(u32, u64)],
    },
    /// A batch of the log.
    Batch {
        /// The frame's number.
        number: u64,
        /// How many entries follow.
        entries: u32,
        /// The length of its body.
        bytes: u32,
    },
    /// An entry of the batch before.
    Entry {
        /// Whose it is.
        timeline: u32,
        /// Its position.
        position: u64,
        /// What was stored.
        payload: &'a [u8],
    },
    /// A seal: all before it was synced.
    Seal {
        /// The frame's number.
        number: u64,
    },
    /// The end of a segment that has a successor.
    SegmentEnd {
        /// The frame's number.
        number: u64,
    },
    /// The beginning of a snapshot.
    Snapshot {
        /// The length of the file.
        bytes: u64,
        /// What it is of.
        header: &'a SnapshotHeader,
    },
    /// A chunk of a snapshot.
    Chunk {
        /// Its number, from 0.
        number: u64,
        /// What was stored.
        bytes: &'a [u8],
    },
    /// The end of a snapshot that was found whole.
    SnapshotEnd {
        /// How many chunks it has.
        chunks: u64,
    },
    /// Zeros at the end of the last segment, written ahead to be overwritten.
    Ahead {
        /// How many there are.
        bytes: u64,
    },
    /// Bytes at the end of the last segment that are no frame: an interrupted write, or damage to
    /// the last batch. A server starting here would cut them.
    TornTail {
        /// How many there are.
        bytes: u64,
        /// What is wrong with them.
        what: &'static str,
    },
    /// Damage. A server would not start from this file.
    Damage {
        /// What is wrong.
        what: String,
        /// Where reading goes on, if anything readable follows.
        resumes_at: Option<u64>,
    },
    /// A file that was not finished. A server starting here would remove it.
    Leftover,
}

/// How much of it there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files looked at.
    pub files: u64,
    /// Batches of a log, or chunks of snapshots.
    pub frames: u64,
    /// Entries of a log.
    pub entries: u64,
    /// Places with damage.
    pub damages: u64,
    /// Torn tails.
    pub torn_tails: u64,
}

/// Receives findings; `Break` ends the walk.
pub type Visit<'v> = dyn FnMut(Place<'_>, Finding<'_>) -> ControlFlow<()> + 'v;

/// A walk over files, or the end of it.
type Walked = Result<ControlFlow<()>, DiskError>;

/// Reports `FORMAT`, leftovers, and every frame and entry of every segment, oldest first.
pub fn log<D: Disk + ?Sized>(disk: &mut D, visit: &mut Visit<'_>) -> Result<Tally, DiskError> {
    let mut tally = Tally::default();
    let mut visit = counted(&mut tally, visit);
    let walked = walk_log(disk, &mut visit);
    drop(visit);
    walked.map(|_| tally)
}

/// Reports every chunk of the snapshots with these sequences, or of all, oldest first.
pub fn snapshots<D: Disk + ?Sized>(
    disk: &mut D,
    only: Option<u64>,
    visit: &mut Visit<'_>,
) -> Result<Tally, DiskError> {
    let mut tally = Tally::default();
    let mut visit = counted(&mut tally, visit);
    let folder = Folder::list(disk)?;
    let folder_id =
        folder.format_bytes.and_then(|bytes| read_format(disk, bytes).ok()).map(|(folder_id, _)| folder_id);
    for &(sequence, bytes) in &folder.snapshots {
        if only.is_none_or(|only| only == sequence)
            && walk_snapshot(disk, sequence, bytes, folder_id, &mut visit)?.is_break()
        {
            break;
        }
    }
    drop(visit);
    Ok(tally)
}

/// The sequences and lengths of the snapshots, and the first frames and lengths of the segments.
pub fn files<D: Disk + ?Sized>(disk: &mut D) -> Result<Files, DiskError> {
    let Folder { segments, snapshots, leftovers, .. } = Folder::list(disk)?;
    Ok(Files { segments, snapshots, leftovers })
}

/// The files of a folder by their names alone, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The number of the first frame and the length of each segment.
    pub segments: Vec<(u64, u64)>,
    /// The sequence and the length of each snapshot.
    pub snapshots: Vec<(u64, u64)>,
    /// Files that were not finished.
    pub leftovers: Vec<String>,
}

fn counted<'a>(
    tally: &'a mut Tally,
    visit: &'a mut Visit<'_>,
) -> impl FnMut(Place<'_>, Finding<'_>) -> ControlFlow<()> + 'a {
    move |place, finding| {
        match &finding {
            Finding::Format { .. } | Finding::Segment { .. } | Finding::Snapshot { .. } => {
                tally.files += 1;
            }
            Finding::Batch { .. } | Finding::Chunk { .. } => tally.frames += 1,
            Finding::Entry { .. } => tally.entries += 1,
            Finding::Damage { .. } => tally.damages += 1,
            Finding::TornTail { .. } => tally.torn_tails += 1,
            _ => {}
        }
        visit(place, finding)
    }
}

fn damage(what: impl Into<String>) -> Finding<'static> {
    Finding::Damage { what: what.into(), resumes_at: None }
}

/// Reports an error on opening a file as damage, unless the disk itself failed.
fn report(visit: &mut Visit<'_>, file: &str, error: StorageError) -> Walked {
    let (offset, what) = match error {
        StorageError::Disk(error) => return Err(error),
        StorageError::Damaged { offset, what, .. } => (offset, what),
        StorageError::UnknownVersion { found, known, .. } => {
            (8, format!("format version {found} is unknown, {known} is known"))
        }
        other => (0, format!("{other}")),
    };
    Ok(visit(Place { file, offset }, damage(what)))
}

/// A walk through the segments, which must go on where the one before stopped.
struct LogWalk<'a, 'v> {
    visit: &'a mut Visit<'v>,
    folder_id: Option<FolderId>,
    /// The first frame of the segment before.
    before: Option<u64>,
    /// The first frame of the segment after, if the one before has its end.
    after: Option<u64>,
    /// The positions so far; `None` after damage, until the next segment tells them.
    positions: Option<Positions>,
}

fn walk_log<D: Disk + ?Sized>(disk: &mut D, visit: &mut Visit<'_>) -> Walked {
    let folder = Folder::list(disk)?;
    let start = Place { file: FORMAT_FILE, offset: 0 };
    let mut walk = LogWalk { visit, folder_id: None, before: None, after: None, positions: None };
    let mut flow = match folder.format_bytes.map(|bytes| read_format(disk, bytes)) {
        Some(Ok((folder_id, created_ms))) => {
            walk.folder_id = Some(folder_id);
            (walk.visit)(start, Finding::Format { folder_id, created_ms })
        }
        Some(Err(error)) => report(walk.visit, FORMAT_FILE, error)?,
        None => (walk.visit)(start, damage("the file is missing")),
    };
    let torn_from = first_unsettled(disk, &folder)?;
    for &(first_frame, bytes) in &folder.segments {
        if flow.is_continue() {
            flow = walk.segment(disk, first_frame, bytes, first_frame >= torn_from)?;
        }
    }
    if let Some(after) = walk.after.filter(|_| flow.is_continue()) {
        let place = Place { file: &segment_name(after), offset: 0 };
        flow = (walk.visit)(place, damage("the file is missing, the log goes on in it"));
    }
    for file in &folder.leftovers {
        if flow.is_continue() {
            flow = (walk.visit)(Place { file, offset: 0 }, Finding::Leftover);
        }
    }
    Ok(flow)
}

/// The first segment whose end may be torn: the last one, or, if that one has no frames yet, the
/// one before.
fn first_unsettled<D: Disk + ?Sized>(disk: &mut D, folder: &Folder) -> Result<u64, DiskError> {
    let Some(&(first_frame, bytes)) = folder.segments.last() else {
        return Ok(0);
    };
    let mut reader = FileReader::spot(segment_name(first_frame), bytes);
    match reader.preamble(disk, FileKind::Segment) {
        Ok(preamble) if preamble.encoded_bytes() == bytes => Ok(preamble.words[1]),
        Ok(_) => Ok(first_frame),
        Err(StorageError::Disk(error)) => Err(error),
        Err(_) => Ok(first_frame),
    }
}

impl LogWalk<'_, '_> {
    fn segment<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        first_frame: u64,
        bytes: u64,
        may_be_torn: bool,
    ) -> Walked {
        let file = segment_name(first_frame);
        let mut reader = FileReader::new(file.clone(), bytes);
        let before = self.before.replace(first_frame);
        let ended = self.after.take().is_some();
        let preamble = match reader.preamble(disk, FileKind::Segment) {
            Ok(preamble) => preamble,
            Err(error) => {
                self.positions = None;
                return report(self.visit, &file, error);
            }
        };
        let positions = preamble.positions.rows();
        let found = Finding::Segment { bytes, first_frame: preamble.words[0], positions };
        let mut flow = (self.visit)(Place { file: &file, offset: 0 }, found);
        if let Some((offset, what)) =
            self.misplaced(&preamble, first_frame, before, ended, bytes == preamble.encoded_bytes())
            && flow.is_continue()
        {
            flow = (self.visit)(Place { file: &file, offset }, damage(what));
        }
        self.positions = Some(preamble.positions.clone());
        match flow {
            ControlFlow::Continue(()) => self.frames(disk, &mut reader, &file, &preamble, may_be_torn),
            stop => Ok(stop),
        }
    }

    /// What is wrong with a segment in this place, if anything, and where it says so.
    fn misplaced(
        &self,
        preamble: &Preamble,
        first_frame: u64,
        before: Option<u64>,
        ended: bool,
        is_blank: bool,
    ) -> Option<(u64, String)> {
        if self.folder_id.is_some_and(|id| id != preamble.folder_id) {
            return Some((16, "it belongs to another data folder".into()));
        }
        if preamble.words[0] != first_frame {
            return Some((32, "it is another segment than its name says".into()));
        }
        if before.is_some_and(|before| before != preamble.words[1]) {
            return Some((40, format!("{} is missing before it", segment_name(preamble.words[1]))));
        }
        if before.is_some() && self.positions.is_some() && !ended && !is_blank {
            return Some((40, "the segment before it has no end".into()));
        }
        let moved = self.positions.as_ref().is_some_and(|positions| *positions != preamble.positions);
        moved.then(|| (64, "its timelines do not go on where the segment before stopped".into()))
    }

    fn frames<D: Disk + ?Sized>(
        &mut self,
        disk: &mut D,
        reader: &mut FileReader,
        file: &str,
        preamble: &Preamble,
        may_be_torn: bool,
    ) -> Walked {
        let seed = preamble.frame_seed(FileKind::Segment);
        let (mut at, mut number) = (preamble.encoded_bytes(), preamble.words[0]);
        let mut sealed = false;
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() {
            let place = Place { file, offset: at };
            let bad = match reader.frame(disk, at, seed, number)? {
                Found::End => break,
                Found::Frame(header, body) => {
                    flow = self.frame(place, header, body);
                    sealed = header.kind == Kind::Seal;
                    if header.kind == Kind::End {
                        self.after = Some(number.wrapping_add(1));
                        break;
                    }
                    number += 1;
                    at += FRAME_BYTES as u64 + u64::from(header.body_bytes);
                    continue;
                }
                Found::Bad(bad) => bad,
            };
            // Behind a seal its number may be used once more, by a batch that overwrites it.
            let least = match bad.may_be_torn {
                true => number.wrapping_add(u64::from(!sealed)),
                false => 0,
            };
            let later = reader.find_frame(disk, at, seed, least)?;
            let torn = may_be_torn && bad.may_be_torn && later.is_none();
            let bytes = reader.bytes() - at;
            if torn && reader.only_zeros(disk, at)? {
                flow = (self.visit)(place, Finding::Ahead { bytes });
                break;
            }
            self.positions = None;
            let finding = match torn {
                true => Finding::TornTail { bytes, what: bad.what },
                false => Finding::Damage { what: bad.what.into(), resumes_at: later.map(|(later, _)| later) },
            };
            flow = (self.visit)(place, finding);
            let Some((later, header)) = later else { break };
            (at, number) = (later, header.number);
        }
        Ok(flow)
    }

    fn frame(&mut self, place: Place<'_>, header: FrameHeader, body: &[u8]) -> ControlFlow<()> {
        let number = header.number;
        match header.kind {
            Kind::Seal => return (self.visit)(place, Finding::Seal { number }),
            Kind::End => return (self.visit)(place, Finding::SegmentEnd { number }),
            Kind::Chunk | Kind::Footer => {
                return (self.visit)(place, damage("a frame of a snapshot is in the log"));
            }
            Kind::Batch => {}
        }
        let (entries, bytes) = (header.entries, header.body_bytes);
        (self.visit)(place, Finding::Batch { number, entries, bytes })?;
        for entry in Entries::new(entries, body) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(what) => {
                    (self.visit)(place, damage(what))?;
                    continue;
                }
            };
            let (timeline, position, payload) = (entry.timeline, entry.position, entry.payload);
            let place = Place { offset: place.offset + (FRAME_BYTES + entry.offset) as u64, ..place };
            let advanced = self.positions.as_mut().map(|all| all.advance(timeline, position));
            if let Some(Err(expected)) = advanced {
                self.positions = None;
                let what = format!("position {expected} of timeline {timeline} is missing before {position}");
                (self.visit)(place, damage(what))?;
            }
            (self.visit)(place, Finding::Entry { timeline, position, payload })?;
        }
        ControlFlow::Continue(())
    }
}

fn walk_snapshot<D: Disk + ?Sized>(
    disk: &mut D,
    sequence: u64,
    bytes: u64,
    folder_id: Option<FolderId>,
    visit: &mut Visit<'_>,
) -> Walked {
    let file = snapshot_name(sequence);
    let mut reader = match SnapshotReader::open_found(disk, sequence, bytes, folder_id) {
        Ok(reader) => reader,
        Err(error) => return report(visit, &file, error),
    };
    let found = Finding::Snapshot { bytes, header: reader.header() };
    let mut flow = visit(Place { file: &file, offset: 0 }, found);
    while flow.is_continue() {
        let place = Place { file: &file, offset: reader.offset() };
        let number = reader.chunks();
        match reader.next(disk) {
            Ok(Some(bytes)) => flow = visit(place, Finding::Chunk { number, bytes }),
            Ok(None) => return Ok(visit(place, Finding::SnapshotEnd { chunks: number })),
            Err(error) => return report(visit, &file, error),
        }
    }
    Ok(flow)
}
