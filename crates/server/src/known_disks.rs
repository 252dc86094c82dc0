//! Which disk each of the other servers has.
//!
//! A server that has lost its disk must not vote as if it had its past: what it has acknowledged is
//! gone. So every server remembers the disk with which it has met each of the others (the id of the
//! data folder, drawn when the folder was made), durably and before it listens to the other. One that
//! comes with another disk is not listened to, unless it leads: then a majority knows that disk.
//!
//! That is the business of the first partition, with which the log is that all share.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const FILE: &str = "known-servers";
/// What a file is called behind its name until it is whole.
const TEMPORARY: &str = ".tmp";
/// More is not read: as many lines as there can be servers.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// An id of a data folder.
pub(crate) type DiskId = [u8; 16];

/// What this server knows of another one's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquaintance {
    /// It is the one that it always had.
    Known,
    /// It had another one.
    Stranger,
}

/// The disks of the other servers.
#[derive(Debug)]
pub(crate) struct KnownDisks {
    folder: PathBuf,
    disks: BTreeMap<u64, DiskId>,
}

impl KnownDisks {
    /// Reads what was remembered in an earlier run.
    pub(crate) fn load(folder: &Path) -> Result<Self, String> {
        let file = folder.join(FILE);
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
        let text = match fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(&error)),
            Ok(found) if found.len() > FILE_BYTES_MAX => return Err(failed(&"it is far too long")),
            Ok(_) => fs::read_to_string(&file).map_err(|error| failed(&error))?,
        };
        let mut disks = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let (id, disk) = parse(line).ok_or_else(|| {
                failed(&format!("line {} is not `SERVER DISK`; restore the file, or take this server out of the ensemble and let it join anew", number + 1))
            })?;
            disks.insert(id, disk);
        }
        Ok(Self { folder: folder.to_owned(), disks })
    }

    /// Another server has shown its disk. The first time it is remembered, durably.
    pub(crate) fn meet(&mut self, server: u64, disk: DiskId) -> Result<Acquaintance, String> {
        match self.disks.get(&server) {
            Some(known) if *known == disk => Ok(Acquaintance::Known),
            Some(_) => Ok(Acquaintance::Stranger),
            None => {
                self.disks.insert(server, disk);
                self.store()?;
                Ok(Acquaintance::Known)
            }
        }
    }

    /// A server has joined anew with another disk.
    pub(crate) fn replace(&mut self, server: u64, disk: DiskId) -> Result<(), String> {
        self.disks.insert(server, disk);
        self.store()
    }

    /// A server is no member any more: should it come back, with whatever disk, it joins anew.
    pub(crate) fn forget(&mut self, is_member: impl Fn(u64) -> bool) -> Result<(), String> {
        let before = self.disks.len();
        self.disks.retain(|server, _| is_member(*server));
        if self.disks.len() == before { Ok(()) } else { self.store() }
    }

    fn store(&self) -> Result<(), String> {
        let mut text = String::new();
        for (server, disk) in &self.disks {
            let _ = write!(text, "{server} ");
            for byte in disk {
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
        let temporary = self.folder.join(format!("{FILE}{TEMPORARY}"));
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, self.folder.join(FILE))?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|error| format!("{} cannot be written: {error}", temporary.display()))
    }
}

fn parse(line: &str) -> Option<(u64, DiskId)> {
    let (server, hex) = line.split_once(' ')?;
    let mut disk = DiskId::default();
    if hex.len() != disk.len() * 2 || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in disk.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some((server.parse().ok()?, disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_another_disk_is_a_stranger_also_after_a_restart_until_it_was_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownDisks::load(folder.path()).unwrap();
        assert_eq!(known.meet(2, [7; 16]), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [9; 16]), Ok(Acquaintance::Known));
        let mut known = KnownDisks::load(folder.path()).unwrap();
        assert_eq!(known.meet(2, [8; 16]), Ok(Acquaintance::Stranger));
        assert_eq!(known.meet(3, [9; 16]), Ok(Acquaintance::Known));
        known.forget(|server| server != 2).unwrap();
        let mut known = KnownDisks::load(folder.path()).unwrap();
        assert_eq!(known.meet(2, [8; 16]), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [1; 16]), Ok(Acquaintance::Stranger));
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "2 0011\n").unwrap();
        assert!(KnownDisks::load(folder.path()).unwrap_err().contains("line 1"));
    }
}
