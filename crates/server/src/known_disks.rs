//! Which disk each of the other servers has.
//!
//! A server that has lost its disk must not vote as if it had its past: what it has acknowledged is
//! gone. So every server remembers the disk with which it has met each of the others (the id of the
//! data folder, drawn when the folder was made), durably and before it listens to the other. One that
//! comes with another disk is not listened to, unless it leads: then a majority knows that disk.
//!
//! The same goes for a server whose disk has been replaced by an older copy of itself: besides the disk, the last start
//! of the other is remembered that was heard of ([`Starts`]). Who lacks it joins anew, with what it has: that is the
//! beginning of what the others have, as it is with a server that was taken out while it was away. Until it is taken
//! out, nothing that it says counts for those who know of a later start. And when it is listened to again, whoever does
//! so has its removal in the log, which is behind everything in the copy: so the copy, to which it is news that it was
//! taken out, is elected by nobody. That it leads says nothing, though, if by its copy it votes alone: it was copied
//! before there were others. So a server that is told of a later start than its own then ends (`ensemble.rs`).
//!
//! All that is of one history: what was known of the disks of another one says nothing about this.
//!
//! That is the business of the first partition, with which the log is that all share.
//!
//! ```text
//! history 0123456789abcdef0123456789abcdef
//! 2 fedcba9876543210fedcba9876543210 7 0011223344556677
//! ```
//!
//! A line is a server, its disk, and the number and the id of its last start, unless none was heard of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stoa_core::{DiskId, HistoryId, Start, Starts};
use tokio::sync::watch;

use crate::whole_file;

const FILE: &str = "known-servers";
/// What the line begins with that says of which history it is.
const HISTORY: &str = "history ";
/// More is not read: as many lines as there can be servers.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What this server knows of another one's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquaintance {
    /// It is the one that it always had.
    Known,
    /// It had another one.
    Stranger,
    /// It is an older copy of the one that it had.
    Older,
}

/// The disk of another server, and the last start with it that was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownDisk {
    pub(crate) id: DiskId,
    pub(crate) start: Option<Start>,
}

impl KnownDisk {
    /// As a server shows it.
    pub(crate) fn shown(id: DiskId, starts: &Starts) -> Self {
        Self { id, start: starts.last() }
    }
}

/// The disks of the other servers, for all who are to know of them.
pub(crate) type Disks = BTreeMap<u64, KnownDisk>;

/// The disks of the other servers.
#[derive(Debug)]
pub(crate) struct KnownDisks {
    folder: PathBuf,
    history: HistoryId,
    disks: watch::Sender<Disks>,
}

impl KnownDisks {
    /// Reads what was remembered in an earlier run, as far as it was of this history, and makes it known.
    pub(crate) fn load(
        folder: &Path,
        history: HistoryId,
        disks: watch::Sender<Disks>,
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
                    "line {} is not `SERVER DISK START-NUMBER START-ID`; restore the file, or take this server out of the \
                     ensemble and let it join anew",
                    number + 1
                ))
            })?;
            found.insert(id, disk);
        }
        if of != history {
            found.clear();
        }
        disks.send_replace(found);
        Ok(Self { folder: folder.to_owned(), history, disks })
    }

    /// This server is of this history from now on, and knows those who founded it.
    pub(crate) fn begin(&mut self, history: HistoryId, founders: BTreeMap<u8, DiskId>) -> Result<(), String> {
        self.history = history;
        let known = |(server, id): (u8, DiskId)| (server.into(), KnownDisk { id, start: None });
        self.change(|disks| *disks = founders.into_iter().map(known).collect())
    }

    /// Another server has shown its disk, and its starts with it. The first time it is remembered, durably, and so is
    /// each start: one that was not heard of before.
    pub(crate) fn meet(
        &mut self,
        server: u64,
        disk: DiskId,
        starts: &Starts,
    ) -> Result<Acquaintance, String> {
        let shown = KnownDisk::shown(disk, starts);
        let known = self.disks.borrow().get(&server).copied();
        match known {
            Some(known) if known.id != disk => return Ok(Acquaintance::Stranger),
            Some(KnownDisk { start: Some(start), .. }) if starts.lack(start) => {
                return Ok(Acquaintance::Older);
            }
            Some(known) if known == shown => {}
            _ => self.replace(server, shown)?,
        }
        Ok(Acquaintance::Known)
    }

    /// A server has joined anew with another disk, or with an older copy of the one that it had.
    pub(crate) fn replace(&mut self, server: u64, disk: KnownDisk) -> Result<(), String> {
        self.change(|disks| _ = disks.insert(server, disk))
    }

    /// A server is no member any more: should it come back, with whatever disk, it joins anew.
    pub(crate) fn forget(&mut self, is_member: impl Fn(u64) -> bool) -> Result<(), String> {
        if self.disks.borrow().keys().all(|server| is_member(*server)) {
            return Ok(());
        }
        self.change(|disks| disks.retain(|server, _| is_member(*server)))
    }

    /// Stores what there is then, before anybody knows of it.
    fn change(&mut self, change: impl FnOnce(&mut Disks)) -> Result<(), String> {
        let mut disks = self.disks.borrow().clone();
        change(&mut disks);
        let mut text = format!("{HISTORY}{}\n", self.history);
        for (server, KnownDisk { id, start }) in &disks {
            // An id is written as a history's name is.
            let _ = write!(text, "{server} {}", HistoryId(*id));
            let _ = match start {
                Some(Start { number, id }) => writeln!(text, " {number} {id:016x}"),
                None => writeln!(text),
            };
        }
        whole_file::replace(&self.folder, FILE, &text)?;
        self.disks.send_replace(disks);
        Ok(())
    }
}

fn parse(line: &str) -> Option<(u64, KnownDisk)> {
    let mut words = line.split(' ');
    let (server, id) = (words.next()?.parse().ok()?, parse_id(words.next()?)?);
    let start = match (words.next(), words.next(), words.next()) {
        (None, ..) => None,
        (Some(number), Some(id), None) if id.len() == 16 => {
            Some(Start { number: number.parse().ok()?, id: u64::from_str_radix(id, 16).ok()? })
        }
        _ => return None,
    };
    Some((server, KnownDisk { id, start }))
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

    fn load(folder: &tempfile::TempDir, history: HistoryId) -> Result<KnownDisks, String> {
        KnownDisks::load(folder.path(), history, watch::channel(Disks::new()).0)
    }

    fn starts(ids: impl IntoIterator<Item = u64>) -> Starts {
        ids.into_iter().fold(Starts::default(), Starts::and)
    }

    #[test]
    fn a_server_with_another_disk_is_a_stranger_also_after_a_restart_until_it_was_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let any = starts([1]);
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [7; 16], &any), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [9; 16], &any), Ok(Acquaintance::Known));
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [8; 16], &any), Ok(Acquaintance::Stranger));
        assert_eq!(known.meet(3, [9; 16], &any), Ok(Acquaintance::Known));
        known.forget(|server| server != 2).unwrap();
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [8; 16], &any), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [1; 16], &any), Ok(Acquaintance::Stranger));
    }

    #[test]
    fn a_server_that_lacks_its_last_start_has_an_older_copy_also_after_a_restart_until_it_was_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [7; 16], &starts(1..=3)), Ok(Acquaintance::Known));
        assert_eq!(known.meet(2, [7; 16], &starts(1..=5)), Ok(Acquaintance::Known));
        // The file is written when there is something new alone.
        let written = || fs::metadata(folder.path().join(FILE)).unwrap().modified().unwrap();
        let before = written();
        assert_eq!(known.meet(2, [7; 16], &starts(1..=5)), Ok(Acquaintance::Known));
        assert_eq!(known.meet(2, [7; 16], &starts([1, 2, 3, 14])), Ok(Acquaintance::Older));
        assert_eq!(before, written());
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.disks.borrow()[&2].start, Some(Start { number: 5, id: 5 }));
        assert_eq!(known.meet(2, [7; 16], &starts([1, 2, 3, 14, 15, 16])), Ok(Acquaintance::Older));
        assert_eq!(known.meet(2, [7; 16], &starts(1..=6)), Ok(Acquaintance::Known));
        assert_eq!(known.meet(2, [7; 16], &starts(1..=90)), Ok(Acquaintance::Known), "unheard for long");
        known.forget(|_| false).unwrap();
        assert_eq!(known.meet(2, [7; 16], &starts([1, 2, 3, 14])), Ok(Acquaintance::Known));
        let copy = KnownDisk::shown([7; 16], &starts([1, 22]));
        known.replace(2, copy).unwrap();
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [7; 16], &starts([1, 22, 23])), Ok(Acquaintance::Known));
        assert_eq!(known.meet(2, [7; 16], &starts([1, 2, 3, 14])), Ok(Acquaintance::Older));
    }

    #[test]
    fn what_was_known_in_another_history_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let any = starts([1]);
        // From before histories had names, and starts were told.
        let old = HistoryId::default();
        fs::write(folder.path().join(FILE), format!("2 {old}\n")).unwrap();
        let mut known = load(&folder, old).unwrap();
        assert_eq!(known.meet(2, [8; 16], &any), Ok(Acquaintance::Stranger));
        assert_eq!(known.meet(2, [0; 16], &any), Ok(Acquaintance::Known));
        assert_eq!(known.meet(3, [9; 16], &any), Ok(Acquaintance::Known));
        let mut known = load(&folder, HISTORY_ID).unwrap();
        assert_eq!(known.meet(2, [8; 16], &any), Ok(Acquaintance::Known));
        known.begin(HistoryId([4; 16]), BTreeMap::from([(3, [1; 16])])).unwrap();
        assert_eq!(known.meet(3, [9; 16], &any), Ok(Acquaintance::Stranger));
        assert_eq!(known.meet(2, [7; 16], &any), Ok(Acquaintance::Known));
        let mut known = load(&folder, HistoryId([4; 16])).unwrap();
        assert_eq!(known.meet(2, [8; 16], &any), Ok(Acquaintance::Stranger));
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let id = HistoryId([7; 16]);
        for line in [
            "2 0011".to_owned(),
            format!("2 {id} 7"),
            format!("2 {id} x 0011223344556677"),
            format!("2 {id} 7 00112233445566"),
            format!("2 {id} 7 0011223344556677 8"),
        ] {
            fs::write(folder.path().join(FILE), format!("{line}\n")).unwrap();
            assert!(load(&folder, HISTORY_ID).unwrap_err().contains("line 1"), "{line}");
        }
    }
}
