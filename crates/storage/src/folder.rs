//! What is in the folder, by name, and the file that names the folder itself.

use alloc::string::String;
use alloc::vec::Vec;

use crate::disk::{Disk, DiskError, DiskErrorKind};
use crate::error::StorageError;
use crate::format::{FORMAT_FILE, FileKind, FileName, FolderId, Preamble, TEMPORARY};
use crate::positions::Positions;
use crate::reader::FileReader;

/// The folder's files, sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folder {
    /// The length of `FORMAT`, if it is there.
    pub(crate) format_bytes: Option<u64>,
    /// First frame and length of each segment, oldest first.
    pub(crate) segments: Vec<(u64, u64)>,
    /// Sequence and length of each snapshot, oldest first.
    pub(crate) snapshots: Vec<(u64, u64)>,
    /// Files of ours that were not finished.
    pub(crate) leftovers: Vec<String>,
}

impl Folder {
    pub(crate) fn list<D: Disk + ?Sized>(disk: &mut D) -> Result<Self, DiskError> {
        let mut folder = Self::default();
        for info in disk.list()? {
            match FileName::of(&info.name) {
                FileName::Format => folder.format_bytes = Some(info.bytes),
                FileName::Segment(first) => folder.segments.push((first, info.bytes)),
                FileName::Snapshot(sequence) => folder.snapshots.push((sequence, info.bytes)),
                FileName::Leftover => folder.leftovers.push(info.name),
                FileName::Foreign => {}
            }
        }
        folder.segments.sort_unstable();
        folder.snapshots.sort_unstable();
        folder.leftovers.sort_unstable();
        Ok(folder)
    }
}

/// The folder's id and when it was made.
pub(crate) fn read_format<D: Disk + ?Sized>(
    disk: &mut D,
    bytes: u64,
) -> Result<(FolderId, i64), StorageError> {
    let preamble = FileReader::spot(FORMAT_FILE.into(), bytes).preamble(disk, FileKind::Format)?;
    Ok((preamble.folder_id, preamble.words[0] as i64))
}

pub(crate) fn write_format<D: Disk + ?Sized>(
    disk: &mut D,
    folder_id: FolderId,
    created_ms: i64,
) -> Result<(), DiskError> {
    let preamble = Preamble { folder_id, words: [created_ms as u64, 0, 0], positions: Positions::default() };
    publish(disk, FORMAT_FILE, &preamble.encode(FileKind::Format))
}

/// Removes unfinished files, durably: if a new file of the same name were made at once, a loss of power
/// could keep the renaming of the new one and lose the rest, and so give the old one its name.
pub(crate) fn remove_leftovers<D: Disk + ?Sized>(disk: &mut D, names: &[String]) -> Result<(), DiskError> {
    let mut removed = false;
    for name in names {
        match disk.remove(name) {
            Ok(()) => removed = true,
            Err(error) if error.kind == DiskErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    if removed { disk.sync_folder() } else { Ok(()) }
}

/// Writes a small file so that it has its name only once it is whole and durable.
pub(crate) fn publish<D: Disk + ?Sized>(disk: &mut D, file: &str, bytes: &[u8]) -> Result<(), DiskError> {
    let temporary = String::from(file) + TEMPORARY;
    remove_leftovers(disk, core::slice::from_ref(&temporary))?;
    disk.write(&temporary, 0, bytes)?;
    disk.sync(&temporary)?;
    disk.rename(&temporary, file)?;
    disk.sync_folder()
}
