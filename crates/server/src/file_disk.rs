//! The disk of a server: one folder of the file system, locked against a second server.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoa_storage::{Disk, DiskError, DiskErrorKind, FileInfo};

/// The file that a running server keeps locked, with its process id in it.
pub const LOCK_FILE: &str = "LOCK";

/// Past the cache go writes of whole blocks of so many bytes, from memory that is aligned to them.
const DIRECT_BLOCK_BYTES: usize = 4096;

/// How many files are kept open for writing before finished ones are closed.
const WRITERS_KEPT: usize = 4;

/// Why a folder cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// Another server has it.
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The process that holds it, as far as it says.
        holder: String,
    },
    /// The file system failed.
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse { folder, holder } => write!(
                f,
                "the data folder {} is in use by another server (process {holder}): stop that one, \
                 or give this one a folder of its own",
                folder.display()
            ),
            Self::Io { path, operation, error } => {
                write!(f, "cannot {operation} {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InUse { .. } => None,
            Self::Io { error, .. } => Some(error),
        }
    }
}

/// A folder that is this process's alone, for as long as any handle of it lives.
#[derive(Debug)]
pub struct FolderLock {
    /// The system releases the lock when this is closed, also if the process is killed.
    _file: File,
}

impl FolderLock {
    /// Locks a folder and notes this process's id in it.
    pub fn acquire(folder: &Path) -> Result<Self, FolderError> {
        let path = folder.join(LOCK_FILE);
        let failed = |operation| {
            let path = path.clone();
            move |error| FolderError::Io { path, operation, error }
        };
        // Not truncated on opening: until the lock is ours the id in it is another's.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
                let holder = if known { holder.trim().to_owned() } else { "unknown".to_owned() };
                return Err(FolderError::InUse { folder: folder.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        file.set_len(0).map_err(failed("write"))?;
        // The id only serves a message; a full disk must not keep a server from starting.
        let _ = writeln!(file, "{}", std::process::id());
        Ok(Self { _file: file })
    }
}

/// One folder of the file system. [`another`](Self::another) gives a handle for another thread.
#[derive(Debug)]
pub struct FileDisk {
    folder: PathBuf,
    /// `None` if the folder is only read.
    lock: Option<Arc<FolderLock>>,
    /// Whether whole blocks are written past the system's cache.
    direct: bool,
    writers: HashMap<String, Writer>,
    reader: Option<(String, File)>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    unsynced: bool,
    /// Whether it takes whole blocks only, and cannot be read from.
    direct: bool,
}

impl FileDisk {
    /// Opens a folder for this process alone, making it if it is not there.
    pub fn open(folder: &Path) -> Result<Self, FolderError> {
        let failed = |operation| move |error| FolderError::Io { path: folder.to_owned(), operation, error };
        let missing: Vec<&Path> =
            folder.ancestors().take_while(|part| !part.as_os_str().is_empty() && !part.is_dir()).collect();
        if !missing.is_empty() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(folder);
            made.map_err(failed("make"))?;
        }
        // A new folder is durable when the one around it is synced.
        for made in missing {
            let around = match made.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            File::open(around).and_then(|around| around.sync_all()).map_err(failed("sync"))?;
        }
        let lock = FolderLock::acquire(folder)?;
        Ok(Self::new(folder, Some(Arc::new(lock))))
    }

    /// Reads a folder that may be another server's. Everything that would change it fails.
    pub fn read_only(folder: &Path) -> Self {
        Self::new(folder, None)
    }

    /// Another handle of the same folder, for another thread.
    pub fn another(&self) -> Self {
        Self::new(&self.folder, self.lock.clone())
    }

    /// From now on whole blocks are written past the system's cache, where the file system can do that:
    /// for files that are written from their start to their end and hardly ever read. It costs half as
    /// much processor time, takes no memory from what is worth to be kept, and what is in no cache need
    /// not be thrown out of it when the file is removed.
    pub fn write_past_cache(&mut self) {
        self.direct = true;
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn new(folder: &Path, lock: Option<Arc<FolderLock>>) -> Self {
        Self { folder: folder.to_owned(), lock, direct: false, writers: HashMap::new(), reader: None }
    }

    fn failed(&self, file: &str, operation: &'static str, error: &io::Error) -> DiskError {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => DiskErrorKind::NotFound,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::NoSpace,
            _ => DiskErrorKind::Other,
        };
        let path = self.folder.join(file);
        DiskError { kind, file: path.display().to_string(), operation, detail: error.to_string() }
    }

    fn check_writable(&self, file: &str, operation: &'static str) -> Result<(), DiskError> {
        match &self.lock {
            Some(_) => Ok(()),
            None => {
                let error =
                    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the folder is opened to be read");
                Err(self.failed(file, operation, &error))
            }
        }
    }

    /// A handle to write with. `direct` asks for one past the cache, or for one that takes any bytes;
    /// `None` takes whatever there is.
    fn writer(
        &mut self,
        file: &str,
        operation: &'static str,
        create: bool,
        direct: Option<bool>,
    ) -> Result<&mut Writer, DiskError> {
        self.check_writable(file, operation)?;
        let known = self.writers.get(file);
        let unsynced = known.is_some_and(|writer| writer.unsynced);
        if known.is_none_or(|writer| direct.is_some_and(|direct| direct != writer.direct)) {
            if self.writers.len() >= WRITERS_KEPT {
                self.writers.retain(|_, writer| writer.unsynced);
            }
            let mut direct = direct.unwrap_or(false);
            let open = |direct| open_to_write(&self.folder.join(file), create, direct);
            let opened = match open(direct) {
                Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
                    (self.direct, direct) = (false, false);
                    open(false)
                }
                opened => opened,
            };
            let opened = opened.map_err(|error| self.failed(file, operation, &error))?;
            // A sync takes what was written to the file with any handle.
            self.writers.insert(file.to_owned(), Writer { file: opened, unsynced, direct });
        }
        Ok(self.writers.get_mut(file).expect("it is there or was just inserted"))
    }

    /// Runs a call on a file opened for writing.
    fn with_writer(
        &mut self,
        file: &str,
        operation: &'static str,
        call: impl FnOnce(&mut Writer) -> io::Result<()>,
    ) -> Result<(), DiskError> {
        call(self.writer(file, operation, false, None)?).map_err(|error| self.failed(file, operation, &error))
    }

    /// A handle to read from. Another handle of the folder may have put another file under the
    /// same name meanwhile, so only one is kept, and none over a look at the folder.
    fn reader(&mut self, file: &str) -> Result<&File, DiskError> {
        if self.writers.get(file).is_some_and(|writer| !writer.direct) {
            return Ok(&self.writers[file].file);
        }
        if self.reader.as_ref().is_none_or(|(name, _)| name != file) {
            let opened = File::open(self.folder.join(file));
            let opened = opened.map_err(|error| self.failed(file, "open", &error))?;
            self.reader = Some((file.to_owned(), opened));
        }
        let (_, opened) = self.reader.as_ref().expect("it is there or was just put there");
        Ok(opened)
    }

    fn forget(&mut self, file: &str) {
        self.writers.remove(file);
        self.reader.take_if(|(name, _)| name == file);
    }
}

impl Disk for FileDisk {
    fn list(&mut self) -> Result<Vec<FileInfo>, DiskError> {
        self.reader = None;
        self.writers.retain(|_, writer| writer.unsynced);
        let listed = list(&self.folder);
        listed.map_err(|error| self.failed("", "list", &error))
    }

    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        loop {
            match self.reader(file)?.read_at(into, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map_err(|error| self.failed(file, "read", &error)),
            }
        }
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let past_cache = self.direct && is_in_blocks(offset, bytes);
        let writer = self.writer(file, "write", true, Some(past_cache))?;
        writer.unsynced = true;
        match writer.file.write_all_at(bytes, offset) {
            // Its blocks are larger, or it cannot do that after all.
            Err(error) if writer.direct && error.kind() == io::ErrorKind::InvalidInput => {
                self.direct = false;
                self.write(file, offset, bytes)
            }
            written => written.map_err(|error| self.failed(file, "write", &error)),
        }
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        self.with_writer(file, "sync", |writer| {
            writer.file.sync_data()?;
            writer.unsynced = false;
            Ok(())
        })
    }

    fn set_len(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.with_writer(file, "cut", |writer| {
            writer.unsynced = true;
            writer.file.set_len(bytes)
        })
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.check_writable(from, "rename")?;
        self.forget(from);
        self.forget(to);
        fs::rename(self.folder.join(from), self.folder.join(to))
            .map_err(|error| self.failed(from, "rename", &error))
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.check_writable(file, "remove")?;
        self.forget(file);
        fs::remove_file(self.folder.join(file)).map_err(|error| self.failed(file, "remove", &error))
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        self.check_writable("", "sync")?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| self.failed("", "sync", &error))
    }
}

/// Whether these bytes are whole blocks, in the file and in memory.
fn is_in_blocks(offset: u64, bytes: &[u8]) -> bool {
    let is_aligned = |number: usize| number.is_multiple_of(DIRECT_BLOCK_BYTES);
    is_aligned(offset as usize) && is_aligned(bytes.len()) && is_aligned(bytes.as_ptr().addr())
}

fn open_to_write(path: &Path, create: bool, direct: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    #[cfg(target_os = "linux")]
    if direct {
        let flag = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flag);
    }
    #[cfg(not(target_os = "linux"))]
    if direct {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    options.open(path)
}

fn list(folder: &Path) -> io::Result<Vec<FileInfo>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        // A snapshot may be renamed or removed by another thread between the two calls.
        let metadata = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            files.push(FileInfo { name, bytes: metadata.len() });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_storage::{Entry, FolderId, Log, Options, Recovery, SnapshotHeader, SnapshotWriter};

    #[derive(Default)]
    struct Recovered {
        snapshots: Vec<Vec<u8>>,
        entries: Vec<(u32, u64, Vec<u8>)>,
    }

    impl Recovery for Recovered {
        fn snapshot_begin(&mut self, _header: &SnapshotHeader) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
            self.snapshots.push(bytes.to_vec());
            Ok(())
        }
        fn snapshot_end(&mut self) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_discard(&mut self) {
            self.snapshots.clear();
        }
        fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
            self.entries.push((timeline, position, payload.to_vec()));
            Ok(())
        }
    }

    fn options() -> Options {
        Options { new_folder_id: FolderId([9; 16]), segment_bytes: 4096, ..Options::default() }
    }

    #[test]
    fn a_log_and_a_snapshot_come_back_from_real_files() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("deep").join("data");
        {
            let mut disk = FileDisk::open(&folder).unwrap();
            let mut log = Log::open(&mut disk, &options(), &mut Recovered::default()).unwrap();
            for position in 1..=50 {
                let payload = vec![position as u8; 300];
                log.append(&mut disk, &[Entry { timeline: 4, position, payload: &[&payload] }]).unwrap();
            }
            let mut second = disk.another();
            let snapshot = std::thread::spawn(move || {
                let header = SnapshotHeader { sequence: 1, created_ms: 5, positions: vec![(4, 20)] };
                let mut writer = SnapshotWriter::begin(&mut second, header).unwrap();
                writer.chunk(&mut second, b"twenty").unwrap();
                writer.finish(&mut second).unwrap()
            });
            assert_eq!(snapshot.join().unwrap().chunks, 1);
            log.seal(&mut disk).unwrap();
            assert!(log.stats().segments > 1);
        }
        let mut disk = FileDisk::open(&folder).unwrap();
        let mut recovered = Recovered::default();
        let log = Log::open(&mut disk, &options(), &mut recovered).unwrap();
        assert_eq!(log.position(4), 50);
        assert_eq!(recovered.snapshots, [b"twenty".to_vec()]);
        let positions: Vec<u64> = recovered.entries.iter().map(|entry| entry.1).collect();
        assert_eq!(positions, (21..=50).collect::<Vec<_>>());
        assert!(
            recovered.entries.iter().all(|(_, position, payload)| payload == &vec![*position as u8; 300])
        );
    }

    #[test]
    fn a_second_server_is_told_who_has_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let first = FileDisk::open(home.path()).unwrap();
        let refused = FileDisk::open(home.path()).unwrap_err().to_string();
        assert!(refused.contains(&home.path().display().to_string()), "{refused}");
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        let another = first.another();
        drop(first);
        assert!(FileDisk::open(home.path()).is_err(), "a handle is left");
        drop(another);
        assert!(FileDisk::open(home.path()).is_ok());
    }

    #[test]
    fn a_folder_opened_to_be_read_is_not_changed() {
        let home = tempfile::tempdir().unwrap();
        let mut disk = FileDisk::open(home.path()).unwrap();
        disk.write("file", 0, b"bytes").unwrap();
        let mut reader = FileDisk::read_only(home.path());
        let mut into = [0; 8];
        assert_eq!(reader.read("file", 1, &mut into).unwrap(), 4);
        assert_eq!(&into[..4], b"ytes");
        assert_eq!(reader.read("file", 5, &mut into).unwrap(), 0);
        assert!(reader.write("file", 0, b"x").is_err());
        assert!(reader.remove("file").is_err());
        assert!(reader.set_len("file", 0).is_err());
        assert!(reader.sync_folder().is_err());
        assert!(reader.rename("file", "other").is_err());
        assert_eq!(fs::read(home.path().join("file")).unwrap(), b"bytes");
    }

    #[test]
    fn errors_name_the_file_and_their_kind() {
        let home = tempfile::tempdir().unwrap();
        let mut disk = FileDisk::open(home.path()).unwrap();
        let error = disk.read("missing", 0, &mut [0]).unwrap_err();
        assert_eq!(error.kind, DiskErrorKind::NotFound);
        assert!(error.to_string().contains("missing"));
        assert_eq!(disk.sync("missing").unwrap_err().kind, DiskErrorKind::NotFound);
        assert_eq!(disk.remove("missing").unwrap_err().kind, DiskErrorKind::NotFound);
        let full = disk.failed("file", "write", &io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.kind, DiskErrorKind::NoSpace);
        let quota = disk.failed("file", "write", &io::Error::from(io::ErrorKind::QuotaExceeded));
        assert_eq!(quota.kind, DiskErrorKind::NoSpace);
    }

    #[test]
    fn a_renamed_file_is_written_and_read_under_its_new_name() {
        let home = tempfile::tempdir().unwrap();
        let mut disk = FileDisk::open(home.path()).unwrap();
        disk.write("old", 0, b"one").unwrap();
        disk.sync("old").unwrap();
        disk.rename("old", "new").unwrap();
        disk.write("new", 3, b" two").unwrap();
        disk.write("old", 0, b"other").unwrap();
        disk.sync_folder().unwrap();
        let mut names: Vec<_> = disk.list().unwrap();
        names.sort();
        let names: Vec<_> = names.into_iter().map(|info| (info.name, info.bytes)).collect();
        let expected = [("LOCK", None), ("new", Some(7)), ("old", Some(5))];
        assert_eq!(names.len(), expected.len());
        for ((name, bytes), (expected, length)) in names.iter().zip(expected) {
            assert_eq!(name, expected);
            assert!(length.is_none_or(|length| length == *bytes));
        }
    }

    #[test]
    fn blocks_written_past_the_cache_are_read_as_written() {
        let home = tempfile::tempdir().unwrap();
        let mut disk = FileDisk::open(home.path()).unwrap();
        disk.write_past_cache();
        let memory: Vec<u8> = (0..4 * DIRECT_BLOCK_BYTES).map(|at| (at % 251) as u8).collect();
        let aligned = memory.as_ptr().align_offset(DIRECT_BLOCK_BYTES);
        let blocks = &memory[aligned..][..2 * DIRECT_BLOCK_BYTES];
        let mut expected = Vec::new();
        let writes = [(0, &b"unaligned"[..]), (0, blocks), (4096, blocks), (4090, b"across"), (8192, blocks)];
        for (at, bytes) in writes {
            disk.write("file", at as u64, bytes).unwrap();
            expected.resize(expected.len().max(at + bytes.len()), 0);
            expected[at..at + bytes.len()].copy_from_slice(bytes);
            let mut read = vec![0; expected.len()];
            assert_eq!(disk.read("file", 0, &mut read).unwrap(), expected.len());
            assert_eq!(read, expected, "after the write at {at}");
        }
        disk.set_len("file", 5000).unwrap();
        disk.sync("file").unwrap();
        assert_eq!(fs::read(home.path().join("file")).unwrap(), expected[..5000]);
    }
}
