//! Snapshots: written in chunks under a temporary name, read back chunk by chunk.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::disk::{Disk, DiskError};
use crate::error::StorageError;
use crate::folder::{Folder, read_format, remove_leftovers};
use crate::format::{
    FOOTER_BYTES, FORMAT_FILE, FRAME_BYTES, FileKind, FolderId, Footer, FrameHeader, Kind, Preamble,
    TEMPORARY, TIMELINES_MAX, checksum, snapshot_name,
};
use crate::positions::Positions;
use crate::reader::{FileReader, Found};

/// The largest chunk of a snapshot.
pub const CHUNK_BYTES_MAX: usize = 64 << 20;

/// How much is collected before it is written.
const BUFFER_BYTES: usize = 256 << 10;

/// How much is written before it is synced, so that the log's own syncs do not wait behind it.
const SYNC_BYTES: u64 = 8 << 20;

/// What a snapshot is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Its number; a larger one is newer.
    pub sequence: u64,
    /// When it was begun, in milliseconds since 1970.
    pub created_ms: i64,
    /// The timelines it is of, in practice one, and the last position it holds of each. The log must
    /// have stored them all. Position 0 is the state before the first entry; of a timeline besides
    /// others it is left out. Who names none means timeline 0.
    pub positions: Vec<(u32, u64)>,
}

impl SnapshotHeader {
    /// The last position it holds of a timeline; 0 when it holds nothing of it.
    #[must_use]
    pub fn position(&self, timeline: u32) -> u64 {
        self.position_if_named(timeline).unwrap_or(0)
    }

    /// The same, or `None` when it is not of this timeline.
    #[must_use]
    pub fn position_if_named(&self, timeline: u32) -> Option<u64> {
        self.positions.iter().find(|(of, _)| *of == timeline).map(|(_, position)| *position)
    }

    fn of(preamble: &Preamble) -> Self {
        let [sequence, created_ms, only] = preamble.words;
        let mut positions = preamble.positions.rows().to_vec();
        if positions.is_empty() {
            positions.push((only as u32, 0));
        }
        Self { sequence, created_ms: created_ms as i64, positions }
    }

    fn preamble(&self, folder_id: FolderId) -> Preamble {
        let positions = Positions::new(self.positions.clone());
        // The table holds no zeros: whose beginning it is stands elsewhere.
        let only = match (positions.rows(), self.positions.first()) {
            ([], Some(&(timeline, _))) => u64::from(timeline),
            _ => 0,
        };
        Preamble { folder_id, words: [self.sequence, self.created_ms as u64, only], positions }
    }
}

/// A snapshot on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its file.
    pub file: String,
    /// The length of its file.
    pub bytes: u64,
    /// How many chunks it holds.
    pub chunks: u64,
    /// What it is of.
    pub header: SnapshotHeader,
}

/// A snapshot found in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSnapshot {
    /// Its number.
    pub sequence: u64,
    /// What it is, or what is wrong with its preamble or footer; chunks are not looked at.
    pub state: Result<SnapshotInfo, StorageError>,
}

/// The number for a snapshot that is about to begin: larger than that of every one in the folder and
/// of every one that is being written there, which has no name yet.
pub fn next_sequence<'a, D: Disk + ?Sized>(
    disk: &mut D,
    under_way: impl IntoIterator<Item = &'a SnapshotWriter>,
) -> Result<u64, StorageError> {
    let newest = Folder::list(disk)?.snapshots.last().map_or(0, |&(sequence, _)| sequence);
    Ok(under_way.into_iter().map(SnapshotWriter::sequence).fold(newest, u64::max) + 1)
}

/// Writes a snapshot. May run on another thread than the log, with its own handle of the disk.
///
/// Several may be written at once, if their numbers differ: see [`next_sequence`].
#[derive(Debug)]
pub struct SnapshotWriter {
    header: SnapshotHeader,
    file: String,
    temporary: String,
    seed: u32,
    footer: Footer,
    /// Where the buffer's first byte goes.
    at: u64,
    buffer: Vec<u8>,
    unsynced: u64,
}

impl SnapshotWriter {
    /// Begins a snapshot in a folder that a [`Log`](crate::Log) was opened in.
    pub fn begin<D: Disk + ?Sized>(disk: &mut D, header: SnapshotHeader) -> Result<Self, StorageError> {
        let Some(format_bytes) = Folder::list(disk)?.format_bytes else {
            return Err(StorageError::Missing {
                file: FORMAT_FILE.into(),
                what: "a snapshot can only be written into a folder that has one".into(),
            });
        };
        let (folder_id, _) = read_format(disk, format_bytes)?;
        let preamble = header.preamble(folder_id);
        if preamble.positions.rows().len() > TIMELINES_MAX {
            return Err(StorageError::Limit {
                what: format!("a snapshot of more than {TIMELINES_MAX} timelines is not possible"),
            });
        }
        let file = snapshot_name(header.sequence);
        let temporary = file.clone() + TEMPORARY;
        remove_leftovers(disk, core::slice::from_ref(&temporary))?;
        let buffer = preamble.encode(FileKind::Snapshot);
        let seed = preamble.frame_seed(FileKind::Snapshot);
        let header = SnapshotHeader::of(&preamble);
        Ok(Self { header, file, temporary, seed, footer: Footer::default(), at: 0, buffer, unsynced: 0 })
    }

    /// Adds a chunk; it comes back as it is. After an error only [`abandon`](Self::abandon) helps.
    pub fn chunk<D: Disk + ?Sized>(&mut self, disk: &mut D, bytes: &[u8]) -> Result<(), StorageError> {
        if bytes.len() > CHUNK_BYTES_MAX {
            return Err(StorageError::Limit {
                what: format!(
                    "a chunk of {} bytes is too large, {CHUNK_BYTES_MAX} are possible",
                    bytes.len()
                ),
            });
        }
        let header = FrameHeader {
            number: self.footer.chunks,
            kind: Kind::Chunk,
            entries: 0,
            body_bytes: bytes.len() as u32,
            body_crc: crc32fast::hash(bytes),
        }
        .encode(self.seed);
        self.footer.add(&header, bytes.len() as u64);
        self.buffer.extend_from_slice(&header);
        if bytes.len() >= BUFFER_BYTES {
            self.flush(disk)?;
            self.write(disk, bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush(disk)?;
            }
        }
        if self.unsynced >= SYNC_BYTES {
            disk.sync(&self.temporary)?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Makes the snapshot durable and gives it its name. If that fails, nothing is left of it.
    pub fn finish<D: Disk + ?Sized>(mut self, disk: &mut D) -> Result<SnapshotInfo, StorageError> {
        match self.publish(disk) {
            Ok(()) => Ok(SnapshotInfo {
                file: self.file,
                bytes: self.at,
                chunks: self.footer.chunks,
                header: self.header,
            }),
            Err(error) => {
                self.abandon(disk);
                Err(error.into())
            }
        }
    }

    fn publish<D: Disk + ?Sized>(&mut self, disk: &mut D) -> Result<(), DiskError> {
        let body = self.footer.encode();
        let header = FrameHeader {
            number: self.footer.chunks,
            kind: Kind::Footer,
            entries: 0,
            body_bytes: body.len() as u32,
            body_crc: checksum(0, &body),
        };
        self.buffer.extend_from_slice(&header.encode(self.seed));
        self.buffer.extend_from_slice(&body);
        self.flush(disk)?;
        disk.sync(&self.temporary)?;
        disk.rename(&self.temporary, &self.file)?;
        disk.sync_folder()
    }

    /// Gives up. What cannot be removed now is removed when the log is next opened.
    pub fn abandon<D: Disk + ?Sized>(self, disk: &mut D) {
        let _ = disk.remove(&self.temporary);
    }

    /// The snapshot's number.
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// How many bytes were written or wait to be.
    pub fn bytes(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    fn flush<D: Disk + ?Sized>(&mut self, disk: &mut D) -> Result<(), DiskError> {
        let buffer = core::mem::take(&mut self.buffer);
        let result = self.write(disk, &buffer);
        self.buffer = buffer;
        self.buffer.clear();
        result
    }

    fn write<D: Disk + ?Sized>(&mut self, disk: &mut D, bytes: &[u8]) -> Result<(), DiskError> {
        disk.write(&self.temporary, self.at, bytes)?;
        self.at += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        Ok(())
    }
}

/// Reads a snapshot chunk by chunk, checking everything on the way.
///
/// Only when [`next`](Self::next) has returned `None` is the snapshot known to be whole.
pub struct SnapshotReader {
    reader: FileReader,
    header: SnapshotHeader,
    seed: u32,
    footer: Footer,
    at: u64,
    done: bool,
}

impl SnapshotReader {
    /// Opens the snapshot with this sequence.
    pub fn open<D: Disk + ?Sized>(disk: &mut D, sequence: u64) -> Result<Self, StorageError> {
        let folder = Folder::list(disk)?;
        let Some(format_bytes) = folder.format_bytes else {
            return Err(StorageError::Missing {
                file: FORMAT_FILE.into(),
                what: "without it nobody knows whose snapshot this is".into(),
            });
        };
        let (folder_id, _) = read_format(disk, format_bytes)?;
        match folder.snapshots.iter().find(|&&(there, _)| there == sequence) {
            Some(&(_, bytes)) => Self::open_found(disk, sequence, bytes, Some(folder_id)),
            None => Err(StorageError::Missing {
                file: snapshot_name(sequence),
                what: "there is no snapshot with this sequence".into(),
            }),
        }
    }

    /// Opens a snapshot of known length; of any folder if no id is given.
    pub(crate) fn open_found<D: Disk + ?Sized>(
        disk: &mut D,
        sequence: u64,
        bytes: u64,
        folder_id: Option<FolderId>,
    ) -> Result<Self, StorageError> {
        Self::open_as(disk, sequence, FileReader::new(snapshot_name(sequence), bytes), folder_id)
    }

    /// The same for a look at what the snapshot is of.
    pub(crate) fn spot_found<D: Disk + ?Sized>(
        disk: &mut D,
        sequence: u64,
        bytes: u64,
        folder_id: FolderId,
    ) -> Result<Self, StorageError> {
        Self::open_as(disk, sequence, FileReader::spot(snapshot_name(sequence), bytes), Some(folder_id))
    }

    fn open_as<D: Disk + ?Sized>(
        disk: &mut D,
        sequence: u64,
        reader: FileReader,
        folder_id: Option<FolderId>,
    ) -> Result<Self, StorageError> {
        let found = Self::open_file(disk, reader, folder_id)?;
        if found.header.sequence != sequence {
            return Err(found.reader.damaged(32, "it has another sequence than its name says"));
        }
        Ok(found)
    }

    /// Opens a snapshot that another server has written and that has come here, in a file of any
    /// name.
    pub fn open_foreign<D: Disk + ?Sized>(disk: &mut D, file: &str) -> Result<Self, StorageError> {
        let found = disk.list()?.into_iter().find(|found| found.name == file);
        match found {
            Some(found) => Self::open_file(disk, FileReader::new(found.name, found.bytes), None),
            None => Err(StorageError::Missing { file: file.into(), what: "it was expected here".into() }),
        }
    }

    fn open_file<D: Disk + ?Sized>(
        disk: &mut D,
        mut reader: FileReader,
        folder_id: Option<FolderId>,
    ) -> Result<Self, StorageError> {
        let preamble = reader.preamble(disk, FileKind::Snapshot)?;
        if folder_id.is_some_and(|id| id != preamble.folder_id) {
            return Err(reader.damaged(16, "it belongs to another data folder"));
        }
        Ok(Self {
            reader,
            seed: preamble.frame_seed(FileKind::Snapshot),
            at: preamble.encoded_bytes(),
            footer: Footer::default(),
            done: false,
            header: SnapshotHeader::of(&preamble),
        })
    }

    /// What the snapshot is of.
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// How far the file is read: where the next chunk, or the damage, begins.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// How many chunks were read.
    pub fn chunks(&self) -> u64 {
        self.footer.chunks
    }

    /// The next chunk, or `None` when the whole snapshot was read and found whole.
    pub fn next<D: Disk + ?Sized>(&mut self, disk: &mut D) -> Result<Option<&[u8]>, StorageError> {
        if self.done {
            return Ok(None);
        }
        let at = self.at;
        let (header, footer) = match self.reader.frame(disk, at, self.seed, self.footer.chunks)? {
            Found::Frame(header, _) if header.kind == Kind::Chunk => (header, None),
            Found::Frame(header, body) if header.kind == Kind::Footer => (header, Some(Footer::decode(body))),
            Found::Frame(..) => {
                return Err(self.reader.damaged(at, "a frame of a log is in a snapshot"));
            }
            Found::End => return Err(self.reader.damaged(at, "the snapshot has no end")),
            Found::Bad(bad) => return Err(self.reader.damaged(at, bad.what)),
        };
        let body_at = at + FRAME_BYTES as u64;
        self.at = body_at + u64::from(header.body_bytes);
        if let Some(footer) = footer {
            if footer != Some(self.footer) {
                return Err(self.reader.damaged(at, "chunks are missing before the snapshot's end"));
            }
            if self.at != self.reader.bytes() {
                return Err(self.reader.damaged(self.at, "bytes follow the snapshot's end"));
            }
            self.done = true;
            return Ok(None);
        }
        self.footer.add(&header.encode(self.seed), u64::from(header.body_bytes));
        Ok(self.reader.get(disk, body_at, u64::from(header.body_bytes))?)
    }
}

/// Looks at the preamble and the footer of a snapshot, and at whether the length fits.
fn check_ends<D: Disk + ?Sized>(
    disk: &mut D,
    sequence: u64,
    bytes: u64,
    folder_id: FolderId,
) -> Result<SnapshotInfo, StorageError> {
    let snapshot = SnapshotReader::spot_found(disk, sequence, bytes, folder_id)?;
    check_end(disk, snapshot)
}

/// Looks at the footer of a snapshot whose preamble is whole, and at whether the length fits.
pub(crate) fn check_end<D: Disk + ?Sized>(
    disk: &mut D,
    snapshot: SnapshotReader,
) -> Result<SnapshotInfo, StorageError> {
    let SnapshotReader { mut reader, header, seed, at: preamble_bytes, .. } = snapshot;
    let bytes = reader.bytes();
    let footer_at = bytes.saturating_sub((FRAME_BYTES + FOOTER_BYTES) as u64);
    let frame = match reader.get(disk, footer_at, FRAME_BYTES as u64)? {
        Some(bytes) => bytes.first_chunk().and_then(|bytes| FrameHeader::decode(seed, bytes).ok()),
        None => None,
    };
    let footer = match frame {
        Some(frame) if frame.kind == Kind::Footer && footer_at >= preamble_bytes => {
            match reader.frame(disk, footer_at, seed, frame.number)? {
                Found::Frame(_, body) => Footer::decode(body).filter(|footer| footer.chunks == frame.number),
                _ => None,
            }
        }
        _ => None,
    };
    match footer {
        Some(footer) if footer.file_bytes(preamble_bytes) == Some(bytes) => {
            Ok(SnapshotInfo { file: snapshot_name(header.sequence), bytes, chunks: footer.chunks, header })
        }
        _ => Err(reader.damaged(footer_at, "the snapshot's end is missing or does not fit")),
    }
}

/// The snapshots of a folder, oldest first.
pub fn list_snapshots<D: Disk + ?Sized>(disk: &mut D) -> Result<Vec<FoundSnapshot>, StorageError> {
    let folder = Folder::list(disk)?;
    let Some(format_bytes) = folder.format_bytes else {
        return Ok(Vec::new());
    };
    let (folder_id, _) = read_format(disk, format_bytes)?;
    Ok(folder
        .snapshots
        .iter()
        .map(|&(sequence, bytes)| FoundSnapshot {
            sequence,
            state: check_ends(disk, sequence, bytes, folder_id),
        })
        .collect())
}
