//! What is known of the others' disks, in the data folder: the rules are [`stoa_core::KnownDisks`].
//!
//! That is the business of the first partition, with which the log is that all share.
//!
//! ```text
//! history 0123456789abcdef0123456789abcdef
//! 2 fedcba9876543210fedcba9876543210 7 0011223344556677 1234
//! ```
//!
//! A line is a server, its disk, the number and the id of its last start (0 and 0 as long as none was heard of), and the
//! position at which it had been taken out last when it was met (0 for never).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stoa_core::{Acquaintance, DiskId, Disks, HistoryId, KnownDisk, KnownDisks, Start, Starts};
use tokio::sync::watch;

use crate::whole_file;

const FILE: &str = "known-servers";
/// What the line begins with that says of which history it is.
const HISTORY: &str = "history ";
/// More is not read: as many lines as there can be servers.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What this server knows of the others' disks. Nothing is known before it is durable.
#[derive(Debug)]
pub(crate) struct StoredDisks {
    folder: PathBuf,
    history: HistoryId,
    known: KnownDisks,
    /// For all who are to know of them.
    told: watch::Sender<Disks>,
}

impl StoredDisks {
    /// Reads what was remembered in an earlier run, as far as it was of this history, and makes it known.
    pub(crate) fn load(
        folder: &Path,
        history: HistoryId,
        told: watch::Sender<Disks>,
    ) -> Result<Self, String> {
        let file = folder.join(FILE);
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
        let text = whole_file::read(&file, FILE_BYTES_MAX)?.unwrap_or_default();
        let mut found = Disks::new();
        // A file from before histories had names has no such line.
        let mut of = HistoryId::default();
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = line.strip_prefix(HISTORY) {
                of = HistoryId(parse_id(name).ok_or_else(|| failed(&"its first line names no history"))?);
                continue;
            }
            let (id, disk) = parse(line).ok_or_else(|| {
                failed(&format!(
                    "line {} is not `SERVER DISK START-NUMBER START-ID REMOVED`; restore the file, or take this server \
                     out of the ensemble and let it join anew",
                    number + 1
                ))
            })?;
            found.insert(id, disk);
        }
        if of != history {
            found.clear();
        }
        told.send_replace(found.clone());
        Ok(Self { folder: folder.to_owned(), history, known: KnownDisks::new(found), told })
    }

    /// See [`KnownDisks::begin`].
    pub(crate) fn begin(&mut self, history: HistoryId, founders: BTreeMap<u8, DiskId>) -> Result<(), String> {
        self.history = history;
        self.known.begin(founders);
        self.store(self.known.disks())
    }

    /// See [`KnownDisks::meet`].
    pub(crate) fn meet(&mut self, server: u8, disk: DiskId, starts: &Starts) -> Result<Acquaintance, String> {
        self.change(|known| known.meet(server, disk, starts))
    }

    /// See [`KnownDisks::leads`].
    pub(crate) fn leads(&mut self, server: u8) -> Result<bool, String> {
        self.change(|known| known.leads(server))
    }

    /// See [`KnownDisks::members_are`].
    pub(crate) fn members_are(
        &mut self,
        members: Vec<u8>,
        removed: BTreeMap<u8, u64>,
    ) -> Result<Vec<u8>, String> {
        self.change(|known| known.members_are(members, removed))
    }

    /// Stores what there is then, before anybody knows of it.
    fn change<R>(&mut self, change: impl FnOnce(&mut KnownDisks) -> R) -> Result<R, String> {
        let mut known = self.known.clone();
        let result = change(&mut known);
        if known.disks() != self.known.disks() {
            self.store(known.disks())?;
        }
        self.known = known;
        Ok(result)
    }

    fn store(&self, disks: &Disks) -> Result<(), String> {
        let mut text = format!("{HISTORY}{}\n", self.history);
        for (server, KnownDisk { id, start, removed }) in disks {
            let Start { number, id: start } = start.unwrap_or(Start { number: 0, id: 0 });
            // An id is written as a history's name is.
            let _ = writeln!(text, "{server} {} {number} {start:016x} {removed}", HistoryId(*id));
        }
        whole_file::replace(&self.folder, FILE, &text)?;
        self.told.send_replace(disks.clone());
        Ok(())
    }
}

fn parse(line: &str) -> Option<(u8, KnownDisk)> {
    let mut words = line.split(' ');
    let (server, id) = (words.next()?.parse().ok()?, parse_id(words.next()?)?);
    let (number, start, removed) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    if words.next().is_some() || start.len() != 16 {
        return None;
    }
    let start = Start { number, id: u64::from_str_radix(start, 16).ok()? };
    let start = (number > 0).then_some(start);
    Some((server, KnownDisk { id, start, removed: removed.parse().ok()? }))
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
    use std::fs;

    use super::*;

    const HISTORY_ID: HistoryId = HistoryId([3; 16]);

    fn load(folder: &tempfile::TempDir, history: HistoryId) -> Result<StoredDisks, String> {
        StoredDisks::load(folder.path(), history, watch::channel(Disks::new()).0)
    }

    fn starts(ids: impl IntoIterator<Item = u64>) -> Starts {
        ids.into_iter().fold(Starts::default(), Starts::and)
    }

    #[test]
    fn what_is_known_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = load(&folder, HISTORY_ID).unwrap();
        known.members_are(vec![1, 2, 3], [(3, 70)].into()).unwrap();
        assert_eq!(known.meet(2, [7; 16], &starts(1..=3)), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [9; 16], &Starts::default()), Ok(Acquaintance::Known));
        let told = known.told.borrow().clone();
        assert_eq!(told[&2], KnownDisk { id: [7; 16], start: Some(Start { number: 3, id: 3 }), removed: 0 });
        assert_eq!(told[&3], KnownDisk { id: [9; 16], start: None, removed: 70 });
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(*known.told.borrow(), told);
        // The file is written when there is something new alone.
        let written = || fs::metadata(folder.path().join(FILE)).unwrap().modified().unwrap();
        let before = written();
        assert_eq!(known.meet(2, [7; 16], &starts(1..=3)), Ok(Acquaintance::Known));
        assert_eq!(known.meet(2, [7; 16], &starts([1, 2, 14])), Ok(Acquaintance::Older));
        assert_eq!(known.meet(3, [8; 16], &starts([1])), Ok(Acquaintance::Stranger));
        assert_eq!(known.members_are(vec![1, 2, 3], [(3, 70)].into()), Ok(vec![]));
        assert_eq!(before, written());
        assert_eq!(known.leads(3), Ok(true));
        assert_eq!(known.members_are(vec![1, 2, 3], [(2, 90), (3, 70)].into()), Ok(vec![2]));
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [7; 16], &starts(1..=4)), Ok(Acquaintance::Older));
        assert_eq!(known.meet(3, [8; 16], &starts([1])), Ok(Acquaintance::Known));
    }

    #[test]
    fn what_was_known_in_another_history_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let any = starts([1]);
        // From before histories had names.
        let old = HistoryId::default();
        fs::write(folder.path().join(FILE), format!("2 {old} 0 {:016x} 0\n", 0)).unwrap();
        let mut known = load(&folder, old).unwrap();
        assert_eq!(known.meet(2, [8; 16], &any), Ok(Acquaintance::Stranger));
        assert_eq!(known.meet(2, [0; 16], &any), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [9; 16], &any), Ok(Acquaintance::Known));
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [8; 16], &any), Ok(Acquaintance::Known));
        for founders in [BTreeMap::from([(3, [1; 16])]), BTreeMap::new()] {
            known.begin(HistoryId([4; 16]), founders.clone()).unwrap();
            let mut known = load(&folder, HistoryId([4; 16])).unwrap();
            assert_eq!(known.told.borrow().len(), founders.len());
            let expected = if founders.is_empty() { Acquaintance::Known } else { Acquaintance::Stranger };
            assert_eq!(known.meet(3, [9; 16], &any), Ok(expected));
            assert_eq!(known.meet(2, [7; 16], &any), Ok(Acquaintance::Known));
        }
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let id = HistoryId([7; 16]);
        for line in [
            "2 0011".to_owned(),
            format!("2 {id} 7"),
            format!("2 {id} x 0011223344556677 0"),
            format!("2 {id} 7 00112233445566 0"),
            format!("2 {id} 7 0011223344556677"),
            format!("2 {id} 7 0011223344556677 x"),
            format!("2 {id} 7 0011223344556677 8 9"),
            format!("256 {id} 7 0011223344556677 8"),
        ] {
            fs::write(folder.path().join(FILE), format!("{line}\n")).unwrap();
            assert!(load(&folder, HISTORY_ID).unwrap_err().contains("line 1"), "{line}");
        }
    }
}
