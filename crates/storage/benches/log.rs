//! What the log costs beside the disk: appends to and recovery from a disk that is only memory.
//!
//! `cargo bench -p stoa-storage` prints nanoseconds per entry, the best of many short rounds, so
//! that a busy machine disturbs little. Memory is used again, so no page is new to the system.

#![allow(clippy::print_stdout, reason = "it prints its result")]

use std::time::{Duration, Instant};

use stoa_storage::{Disk, DiskError, DiskErrorKind, Entry, FileInfo, Log, Options, Recovery, SnapshotHeader};

const ENTRIES: u64 = 128_000;
const BATCH: u64 = 64;
const PAYLOAD: [u8; 100] = [7; 100];
const ROUNDS: usize = 100;

/// Files in memory that are never synced.
#[derive(Default)]
struct Memory {
    files: Vec<(String, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Memory {
    fn file(&mut self, name: &str) -> Result<&mut Vec<u8>, DiskError> {
        let found = self.files.iter_mut().find(|file| file.0 == name);
        found.map(|file| &mut file.1).ok_or_else(|| DiskError {
            kind: DiskErrorKind::NotFound,
            file: name.to_owned(),
            operation: "find",
            detail: "no such file".to_owned(),
        })
    }
}

impl Disk for Memory {
    fn list(&mut self) -> Result<Vec<FileInfo>, DiskError> {
        let info = |file: &(String, Vec<u8>)| FileInfo { name: file.0.clone(), bytes: file.1.len() as u64 };
        Ok(self.files.iter().map(info).collect())
    }

    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let bytes = &self.file(file)?[offset as usize..];
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        if self.file(file).is_err() {
            let empty = self.spare.pop().unwrap_or_default();
            self.files.push((file.to_owned(), empty));
        }
        let (file, offset) = (self.file(file)?, offset as usize);
        let overlap = (file.len() - offset).min(bytes.len());
        file[offset..offset + overlap].copy_from_slice(&bytes[..overlap]);
        file.extend_from_slice(&bytes[overlap..]);
        Ok(())
    }

    fn sync(&mut self, _file: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn set_len(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.file(file)?.resize(bytes as usize, 0);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let _replaced = self.remove(to);
        for file in &mut self.files {
            if file.0 == from {
                to.clone_into(&mut file.0);
            }
        }
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.file(file)?.clear();
        let gone = self.files.extract_if(.., |there| there.0 == file);
        self.spare.extend(gone.map(|file| file.1));
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}

/// Counts what comes back.
#[derive(Default)]
struct Count(u64);

impl Recovery for Count {
    fn snapshot_begin(&mut self, _header: &SnapshotHeader) -> Result<(), String> {
        Ok(())
    }

    fn snapshot_chunk(&mut self, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn snapshot_discard(&mut self) {}

    fn entry(&mut self, _timeline: u32, _position: u64, _payload: &[u8]) -> Result<(), String> {
        self.0 += 1;
        Ok(())
    }
}

fn append(disk: &mut Memory, log: &mut Log) -> Duration {
    let start = Instant::now();
    let mut position = 0;
    let mut batch = Vec::with_capacity(BATCH as usize);
    while position < ENTRIES {
        batch.clear();
        for _ in 0..BATCH {
            position += 1;
            batch.push(Entry { timeline: 1, position, payload: &[&PAYLOAD] });
        }
        log.append(disk, &batch).expect("memory does not fail");
    }
    start.elapsed()
}

fn main() {
    let (mut appending, mut recovering) = (Duration::MAX, Duration::MAX);
    let mut disk = Memory::default();
    for _ in 0..ROUNDS {
        for file in disk.list().expect("memory does not fail") {
            disk.remove(&file.name).expect("it was listed");
        }
        let options = Options::default();
        let mut log = Log::open(&mut disk, &options, &mut Count::default()).expect("memory does not fail");
        appending = appending.min(append(&mut disk, &mut log));
        let mut count = Count::default();
        let start = Instant::now();
        Log::open(&mut disk, &options, &mut count).expect("memory does not fail");
        recovering = recovering.min(start.elapsed());
        assert_eq!(count.0, ENTRIES);
    }
    let per_entry = |time: Duration| time.as_nanos() as f64 / ENTRIES as f64;
    println!(
        "append  {:6.1} ns per entry of {} bytes, {BATCH} in a batch",
        per_entry(appending),
        PAYLOAD.len()
    );
    println!("recover {:6.1} ns per entry", per_entry(recovering));
}
