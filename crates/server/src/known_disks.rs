//! Which disk each of the other servers has.
//!
//! A server that has lost its disk must not vote as if it had its past: what it has acknowledged is
//! gone. So every server remembers the disk with which it has met each of the others (the id of the
//! data folder, drawn when the folder was made), durably and before it listens to the other. One that
//! comes with another disk is not listened to, unless it leads: then a majority knows that disk.
//!
//! All that is of one history: what was known of the disks of another one says nothing about this.
//!
//! That is the business of the first partition, with which the log is that all share.
//!
//! ```text
//! history 0123456789abcdef0123456789abcdef
//! 2 fedcba9876543210fedcba9876543210
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use stoa_core::{DiskId, HistoryId};

const FILE: &str = "known-servers";
/// What the line begins with that says of which history it is.
const HISTORY: &str = "history ";
/// What a file is called behind its name until it is whole.
const TEMPORARY: &str = ".tmp";
/// More is not read: as many lines as there can be servers.
const FILE_BYTES_MAX: u64 = 64 << 10;

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
    history: HistoryId,
    disks: BTreeMap<u64, DiskId>,
}

impl KnownDisks {
    /// Reads what was remembered in an earlier run, as far as it was of this history.
    pub(crate) fn load(folder: &Path, history: HistoryId) -> Result<Self, String> {
        let file = folder.join(FILE);
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
        let text = match fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(&error)),
            Ok(found) if found.len() > FILE_BYTES_MAX => return Err(failed(&"it is far too long")),
            Ok(_) => fs::read_to_string(&file).map_err(|error| failed(&error))?,
        };
        let mut disks = BTreeMap::new();
        // A file from before histories had names has no such line.
        let mut of = HistoryId::default();
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = line.strip_prefix(HISTORY) {
                of = HistoryId(parse_id(name).ok_or_else(|| failed(&"its first line names no history"))?);
                continue;
            }
            let (id, disk) = parse(line).ok_or_else(|| {
                failed(&format!("line {} is not `SERVER DISK`; restore the file, or take this server out of the ensemble and let it join anew", number + 1))
            })?;
            disks.insert(id, disk);
        }
        if of != history {
            disks.clear();
        }
        Ok(Self { folder: folder.to_owned(), history, disks })
    }

    /// This server is of this history from now on, and knows those who founded it.
    pub(crate) fn begin(&mut self, history: HistoryId, founders: BTreeMap<u8, DiskId>) -> Result<(), String> {
        self.history = history;
        self.disks = founders.into_iter().map(|(server, disk)| (server.into(), disk)).collect();
        self.store()
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
        let mut text = format!("{HISTORY}{}\n", self.history);
        for (server, disk) in &self.disks {
            // An id is written as a history's name is.
            let _ = writeln!(text, "{server} {}", HistoryId(*disk));
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
    let (server, disk) = line.split_once(' ')?;
    Some((server.parse().ok()?, parse_id(disk)?))
}

fn parse_id(hex: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if hex.len() != id.len() * 2 || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY_ID: HistoryId = HistoryId([3; 16]);

    #[test]
    fn a_server_with_another_disk_is_a_stranger_also_after_a_restart_until_it_was_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownDisks::load(folder.path(), HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [7; 16]), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [9; 16]), Ok(Acquaintance::Known));
        let mut known = KnownDisks::load(folder.path(), HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [8; 16]), Ok(Acquaintance::Stranger));
        assert_eq!(known.meet(3, [9; 16]), Ok(Acquaintance::Known));
        known.forget(|server| server != 2).unwrap();
        let mut known = KnownDisks::load(folder.path(), HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [8; 16]), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [1; 16]), Ok(Acquaintance::Stranger));
    }

    #[test]
    fn what_was_known_in_another_history_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        // From before histories had names.
        let old = HistoryId::default();
        fs::write(folder.path().join(FILE), format!("2 {old}\n")).unwrap();
        let mut known = KnownDisks::load(folder.path(), old).unwrap();
        assert_eq!(known.meet(2, [8; 16]), Ok(Acquaintance::Stranger));
        assert_eq!(known.meet(3, [9; 16]), Ok(Acquaintance::Known));
        let mut known = KnownDisks::load(folder.path(), HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [8; 16]), Ok(Acquaintance::Known));
        known.begin(HistoryId([4; 16]), BTreeMap::from([(3, [1; 16])])).unwrap();
        assert_eq!(known.meet(3, [9; 16]), Ok(Acquaintance::Stranger));
        assert_eq!(known.meet(2, [7; 16]), Ok(Acquaintance::Known));
        let mut known = KnownDisks::load(folder.path(), HistoryId([4; 16])).unwrap();
        assert_eq!(known.meet(2, [8; 16]), Ok(Acquaintance::Stranger));
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "2 0011\n").unwrap();
        assert!(KnownDisks::load(folder.path(), HISTORY_ID).unwrap_err().contains("line 1"));
    }
}
