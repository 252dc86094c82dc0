//! A disk in memory that does what disks do at their worst, the same way for the same seed.
//!
//! What is not synced may be lost, kept or torn at any sector when the power fails, and in any
//! order; the same goes for names. It can be full, fail at a chosen call, or lose a bit.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::disk::{Disk, DiskError, DiskErrorKind, FileInfo};

/// What the disk writes wholly or not at all.
const SECTOR_BYTES: usize = 512;

/// What happens at a chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails once. A write may have been done in part; a failed sync forgets what it was
    /// to make durable, as page caches do.
    Fail(DiskErrorKind),
    /// The power fails during the call. Every call fails until [`FaultyDisk::crash`].
    PowerLoss,
}

/// A folder in memory; see the [module](self).
#[derive(Clone)]
pub struct FaultyDisk {
    random: u64,
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    capacity: u64,
    used: u64,
    calls: u64,
    syncs: u64,
    fault: Option<(u64, Fault)>,
    powerless: bool,
}

/// A file as programs see it and as it would be after a loss of power at its worst.
#[derive(Clone, Debug, Default)]
struct File {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Where the two may differ, and the next sync makes them equal.
    dirty: Vec<Range<usize>>,
    /// Where the two may differ, and no sync will notice, because one failed.
    forgotten: Vec<Range<usize>>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl File {
    fn touch(&mut self, range: Range<usize>) {
        match self.dirty.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.dirty.push(range),
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let length = self.current.len();
        if offset > length {
            self.current.resize(offset, 0);
            self.touch(length..offset);
        }
        let overlap = (self.current.len() - offset).min(bytes.len());
        self.current[offset..offset + overlap].copy_from_slice(&bytes[..overlap]);
        self.current.extend_from_slice(&bytes[overlap..]);
        self.touch(offset..offset + bytes.len());
    }

    /// Writes to the disk what may be written before any sync asks for it.
    fn write_back(&mut self) {
        self.durable.resize(self.current.len(), 0);
        for range in &self.dirty {
            let end = range.end.min(self.current.len());
            let start = range.start.min(end);
            self.durable[start..end].copy_from_slice(&self.current[start..end]);
        }
    }

    fn set_len(&mut self, bytes: usize) {
        let length = self.current.len();
        self.current.resize(bytes, 0);
        self.touch(bytes.min(length)..bytes.max(length));
    }

    fn sync(&mut self) {
        self.write_back();
        self.dirty.clear();
    }

    /// Loses power: what was not synced survives as `survives` says, sector by sector.
    fn crash(&mut self, mut survives: impl FnMut(Option<usize>) -> bool) {
        let unsynced = !self.dirty.is_empty() || !self.forgotten.is_empty();
        if unsynced {
            let length = if survives(None) { self.current.len() } else { self.durable.len() };
            let mut after = core::mem::take(&mut self.durable);
            after.resize(length, 0);
            let mut ranges = core::mem::take(&mut self.dirty);
            ranges.append(&mut self.forgotten);
            let mut sectors: Vec<usize> = ranges
                .iter()
                .flat_map(|range| range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES))
                .collect();
            sectors.sort_unstable();
            sectors.dedup();
            for sector in sectors {
                let start = sector * SECTOR_BYTES;
                let end = (start + SECTOR_BYTES).min(length).min(self.current.len());
                if start < end && survives(Some(sector)) {
                    after[start..end].copy_from_slice(&self.current[start..end]);
                }
            }
            self.durable = after;
        }
        self.current.clone_from(&self.durable);
    }
}

/// The sixteen bytes among which one is, fewer at the end.
fn around(bytes: &[u8], byte: usize) -> &[u8] {
    let from = bytes.get(byte / 16 * 16..).unwrap_or_default();
    &from[..from.len().min(16)]
}

impl FaultyDisk {
    /// An empty folder; everything random follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: seed,
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            capacity: u64::MAX,
            used: 0,
            calls: 0,
            syncs: 0,
            fault: None,
            powerless: false,
        }
    }

    /// From now on chance follows from this seed.
    pub fn reseed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// All files together can have this many bytes; what does not fit is refused as "no space".
    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    /// How many bytes all files have.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// How many calls that change something were made, failed ones included.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// How many times a file was synced.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Arms a fault for the changing call after the next `calls`: with 0 the very next one fails.
    pub fn fault_after(&mut self, calls: u64, fault: Fault) {
        self.fault = Some((self.calls + calls, fault));
    }

    /// Takes back a fault that has not happened yet.
    pub fn clear_fault(&mut self) {
        self.fault = None;
    }

    /// Whether power was lost and [`crash`](Self::crash) not yet called.
    pub fn is_powerless(&self) -> bool {
        self.powerless
    }

    /// Loses power and starts again: of what was not synced some survives, by sectors, some not.
    pub fn crash(&mut self) {
        // Mostly mixtures; sometimes all or nothing, which mixtures of many sectors hardly reach.
        let mode = self.next_random() % 4;
        let keep_in_eight = 1 + self.next_random() % 7;
        self.crash_with(|random| match mode {
            0 => false,
            1 => true,
            _ => random % 8 < keep_in_eight,
        });
    }

    /// Loses power, and with it everything that was not synced.
    pub fn crash_losing_all(&mut self) {
        self.crash_with(|_| false);
    }

    /// The folder as it would be after losing everything that was not synced.
    pub fn durable(&self) -> Self {
        let mut after = self.clone();
        after.crash_losing_all();
        after
    }

    fn crash_with(&mut self, keep: impl Fn(u64) -> bool) {
        self.fault = None;
        self.powerless = false;
        let mut random = self.random;
        for change in core::mem::take(&mut self.name_changes) {
            if keep(splitmix(&mut random)) {
                change.apply(&mut self.durable_names);
            }
        }
        self.names.clone_from(&self.durable_names);
        let mut files = Vec::with_capacity(self.names.len());
        for file in self.names.values_mut() {
            let mut kept = core::mem::take(&mut self.files[*file]);
            kept.crash(|_| keep(splitmix(&mut random)));
            *file = files.len();
            files.push(kept);
        }
        self.random = random;
        self.files = files;
        self.durable_names.clone_from(&self.names);
        self.used = self.files.iter().map(|file| file.current.len() as u64).sum();
    }

    /// Flips a bit, on the disk and in the cache. Bit 0 is the lowest of the file's first byte.
    ///
    /// # Panics
    ///
    /// If there is no such bit.
    pub fn flip_bit(&mut self, file: &str, bit: u64) {
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        let file = &mut self.files[self.names[file]];
        file.current[byte] ^= mask;
        if let Some(byte) = file.durable.get_mut(byte) {
            *byte ^= mask;
        }
    }

    /// Flips a bit back where the bytes around it are still those of `flipped`, of
    /// [`around_bit`](Self::around_bit): what was overwritten since is good. The disk and the cache may
    /// differ in that.
    pub fn flip_bit_back(&mut self, file: &str, bit: u64, flipped: &[u8]) {
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        let Some(&file) = self.names.get(file) else { return };
        let File { current, durable, .. } = &mut self.files[file];
        for bytes in [current, durable] {
            if around(bytes, byte).starts_with(flipped)
                && let Some(byte) = bytes.get_mut(byte)
            {
                *byte ^= mask;
            }
        }
    }

    /// The bytes around a bit, as programs see them.
    pub fn around_bit(&self, file: &str, bit: u64) -> Vec<u8> {
        around(self.bytes(file).unwrap_or_default(), (bit / 8) as usize).to_vec()
    }

    /// A file's bytes as programs see them.
    pub fn bytes(&self, file: &str) -> Option<&[u8]> {
        self.names.get(file).map(|&file| &self.files[file].current[..])
    }

    /// Puts a file in place, durably, whatever was there before.
    pub fn put(&mut self, name: &str, bytes: &[u8]) {
        let file = File { current: bytes.to_vec(), durable: bytes.to_vec(), ..File::default() };
        self.used += bytes.len() as u64;
        self.used -= self.bytes(name).map_or(0, |old| old.len() as u64);
        let index = self.files.len();
        self.files.push(file);
        self.names.insert(name.to_string(), index);
        self.durable_names.insert(name.to_string(), index);
    }

    /// Takes a file away, durably.
    pub fn take(&mut self, name: &str) -> Option<Vec<u8>> {
        let index = self.names.remove(name)?;
        self.durable_names.remove(name);
        let bytes = core::mem::take(&mut self.files[index]).current;
        self.used -= bytes.len() as u64;
        Some(bytes)
    }

    fn next_random(&mut self) -> u64 {
        splitmix(&mut self.random)
    }

    /// Counts a changing call and says whether it is to fail.
    fn count(&mut self) -> Option<Fault> {
        let call = self.calls;
        self.calls += 1;
        let (_, fault) = self.fault.take_if(|(at, _)| *at == call)?;
        self.powerless = fault == Fault::PowerLoss;
        Some(fault)
    }

    /// Fails a call that does nothing when it fails.
    fn check(&mut self, file: &str, operation: &'static str) -> Result<(), DiskError> {
        self.check_power(file, operation)?;
        self.count().map_or(Ok(()), |fault| Err(error(fault, file, operation)))
    }

    fn find(&self, file: &str, operation: &'static str) -> Result<usize, DiskError> {
        self.names.get(file).copied().ok_or_else(|| DiskError {
            kind: DiskErrorKind::NotFound,
            file: file.to_string(),
            operation,
            detail: "no such file".to_string(),
        })
    }

    fn check_power(&self, file: &str, operation: &'static str) -> Result<(), DiskError> {
        match self.powerless {
            true => Err(error(Fault::PowerLoss, file, operation)),
            false => Ok(()),
        }
    }
}

fn error(fault: Fault, file: &str, operation: &'static str) -> DiskError {
    let (kind, detail) = match fault {
        Fault::Fail(kind) => (kind, format!("told to fail with {kind:?}")),
        Fault::PowerLoss => (DiskErrorKind::Other, "the power is lost".to_string()),
    };
    DiskError { kind, file: file.to_string(), operation, detail }
}

/// The generator of Steele, Lea and Flood.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = |(name, &file): (&String, &usize)| {
            let File { current, durable, dirty, forgotten } = &self.files[file];
            format!(
                "{name}: {} ({} durable, dirty {dirty:?}, forgotten {forgotten:?})",
                current.len(),
                durable.len()
            )
        };
        f.debug_struct("FaultyDisk")
            .field("files", &self.names.iter().map(lengths).collect::<Vec<_>>())
            .field("name_changes", &self.name_changes)
            .field("used", &self.used)
            .field("capacity", &self.capacity)
            .field("calls", &self.calls)
            .field("fault", &self.fault)
            .field("powerless", &self.powerless)
            .finish_non_exhaustive()
    }
}

impl Disk for FaultyDisk {
    fn list(&mut self) -> Result<Vec<FileInfo>, DiskError> {
        self.check_power("the folder", "list")?;
        let info = |(name, &file): (&String, &usize)| FileInfo {
            name: name.clone(),
            bytes: self.files[file].current.len() as u64,
        };
        Ok(self.names.iter().map(info).collect())
    }

    fn read(&mut self, file: &str, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.check_power(file, "read")?;
        let bytes = &self.files[self.find(file, "read")?].current;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let count = into.len().min(bytes.len() - from);
        into[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check_power(file, "write")?;
        let fault = self.count();
        let index = match self.names.get(file) {
            Some(&index) => index,
            None => {
                let index = self.files.len();
                self.files.push(File::default());
                self.names.insert(file.to_string(), index);
                self.name_changes.push(NameChange::Create(file.to_string(), index));
                index
            }
        };
        let length = self.files[index].current.len() as u64;
        let growth = (offset + bytes.len() as u64).saturating_sub(length);
        let room = self.capacity.saturating_sub(self.used);
        let fault = fault.or((growth > room).then_some(Fault::Fail(DiskErrorKind::NoSpace)));
        let whole = bytes.len() as u64;
        let written = match fault {
            None => whole,
            Some(_) => {
                let fits = whole - growth.saturating_sub(room).min(whole);
                self.next_random() % (fits + 1)
            }
        };
        let bytes = &bytes[..written as usize];
        if !bytes.is_empty() {
            self.files[index].write(offset as usize, bytes);
            self.used += self.files[index].current.len() as u64 - length;
        }
        fault.map_or(Ok(()), |fault| Err(error(fault, file, "write")))
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        self.check_power(file, "sync")?;
        let fault = self.count();
        let index = self.find(file, "sync")?;
        match fault {
            None => {
                self.syncs += 1;
                self.files[index].sync();
                Ok(())
            }
            Some(fault) => {
                if matches!(fault, Fault::Fail(_)) {
                    let some_arrived = self.next_random().is_multiple_of(2);
                    let file = &mut self.files[index];
                    if some_arrived {
                        file.write_back();
                    }
                    file.forgotten.append(&mut file.dirty);
                }
                Err(error(fault, file, "sync"))
            }
        }
    }

    fn set_len(&mut self, file: &str, bytes: u64) -> Result<(), DiskError> {
        self.check(file, "cut")?;
        let index = self.find(file, "cut")?;
        let length = self.files[index].current.len() as u64;
        if bytes.saturating_sub(length) > self.capacity.saturating_sub(self.used) {
            return Err(error(Fault::Fail(DiskErrorKind::NoSpace), file, "extend"));
        }
        // What is cut off now may have reached the disk before; until the cut is synced it is there.
        if bytes < length && self.next_random().is_multiple_of(2) {
            self.files[index].write_back();
        }
        self.files[index].set_len(bytes as usize);
        self.used = self.used + bytes - length;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.check(from, "rename")?;
        let index = self.find(from, "rename")?;
        self.used -= self.bytes(to).map_or(0, |old| old.len() as u64);
        self.names.remove(from);
        self.names.insert(to.to_string(), index);
        self.name_changes.push(NameChange::Rename(from.to_string(), to.to_string()));
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.check(file, "remove")?;
        let index = self.find(file, "remove")?;
        self.names.remove(file);
        self.used -= self.files[index].current.len() as u64;
        self.name_changes.push(NameChange::Remove(file.to_string()));
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        self.check("the folder", "sync")?;
        let replaced = |change: &NameChange| !matches!(change, NameChange::Create(..));
        if self.name_changes.iter().any(replaced) {
            let named: Vec<usize> = self.names.values().copied().collect();
            for (index, file) in self.files.iter_mut().enumerate() {
                if !named.contains(&index) {
                    *file = File::default();
                }
            }
        }
        self.name_changes.clear();
        self.durable_names.clone_from(&self.names);
        Ok(())
    }
}
