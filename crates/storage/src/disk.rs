//! The disk as the log sees it: one flat folder of files.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A file in the folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileInfo {
    /// Its name, without a folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// One flat folder of files. Every call blocks until it is done.
///
/// Nothing is durable before [`sync`](Disk::sync) (bytes and length of a file) or
/// [`sync_folder`](Disk::sync_folder) (names) has returned.
pub trait Disk {
    /// The files of the folder, in any order. A folder that does not exist has none.
    fn list(&mut self) -> Result<Vec<FileInfo>, DiskError>;
    /// Reads into `into` and returns how many bytes there were; 0 at or behind the end.
    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;
    /// Writes all of `bytes`, creating the file if need be. After an error any part may be written.
    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;
    /// Makes the file's bytes and length durable.
    fn sync(&mut self, file: &str) -> Result<(), DiskError>;
    /// Cuts the file, or extends it with zeros.
    fn set_len(&mut self, file: &str, bytes: u64) -> Result<(), DiskError>;
    /// Renames a file, replacing what had the new name.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError>;
    /// Removes a file.
    fn remove(&mut self, file: &str) -> Result<(), DiskError>;
    /// Makes creations, renames and removals durable.
    fn sync_folder(&mut self) -> Result<(), DiskError>;
}

/// What kind of trouble a disk had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// There is no such file.
    NotFound,
    /// The disk, or the quota on it, is full.
    NoSpace,
    /// Anything else.
    Other,
}

/// A call on a disk that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// What kind of trouble.
    pub kind: DiskErrorKind,
    /// The file, or the folder.
    pub file: String,
    /// What was tried, as a verb: "write", "sync".
    pub operation: &'static str,
    /// What the system said.
    pub detail: String,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.operation, self.file, self.detail)
    }
}

impl core::error::Error for DiskError {}

/// Removes a file that may not be there.
pub(crate) fn remove_if_there<D: Disk + ?Sized>(disk: &mut D, file: &str) -> Result<(), DiskError> {
    match disk.remove(file) {
        Err(error) if error.kind == DiskErrorKind::NotFound => Ok(()),
        other => other,
    }
}
