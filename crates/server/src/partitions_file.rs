//! How many partitions a data folder has: fixed when it is made, because what lives where follows from
//! it.
//!
//! A folder with one partition has no file that says so. One with several has `PARTITIONS`, from before
//! the file `FORMAT` that makes the folder one of Stoa's.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use crate::config::{PARTITIONS_MAX, Partitions};

const FILE: &str = "PARTITIONS";
const TEMPORARY: &str = "PARTITIONS.tmp";
/// The file that a folder has once it is made.
const FORMAT: &str = "FORMAT";
/// The file is one short line.
const FILE_BYTES_MAX: u64 = 64;

/// How many partitions a server has with this folder; a folder that is made now gets as many as are
/// wanted, unless it must exist.
pub(crate) fn settle(folder: &Path, wanted: Option<Partitions>, must_exist: bool) -> Result<u8, String> {
    if is_made(folder) {
        let found = read(folder)?;
        return match wanted {
            Some(Partitions::Exactly(wanted)) if wanted != found => Err(format!(
                "the data folder {} has {found} partitions, not {wanted}: the number is fixed when a folder is made. \
                 Set partitions to {found} or to auto, or begin with an empty folder",
                folder.display()
            )),
            _ => Ok(found),
        };
    }
    let partitions = wanted.map_or(1, Partitions::of_new_folder);
    if must_exist {
        // Whoever opens the log says what is missing.
        return Ok(partitions);
    }
    write(folder, partitions)?;
    Ok(partitions)
}

/// Whether a folder is one of Stoa's.
pub(crate) fn is_made(folder: &Path) -> bool {
    folder.join(FORMAT).exists()
}

/// How many partitions a folder has that was made already.
pub fn read(folder: &Path) -> Result<u8, String> {
    let file = folder.join(FILE);
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
    let text = match fs::metadata(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(1),
        Err(error) => return Err(failed(&error)),
        Ok(found) if found.len() > FILE_BYTES_MAX => String::new(),
        Ok(_) => fs::read_to_string(&file).or_else(|error| match error.kind() {
            ErrorKind::InvalidData => Ok(String::new()),
            _ => Err(failed(&error)),
        })?,
    };
    let number = text.split(' ').next().and_then(|number| number.parse().ok());
    let number = number.filter(|number| (1..=PARTITIONS_MAX).contains(number));
    if number.is_some_and(|number| line_of_own_logs(number) == text) {
        return Err(failed(
            &"it is of a release in which each partition had a log of its own, which this one cannot read; go on with that \
              release, or copy the tree with a client of both into a server with an empty folder",
        ));
    }
    number.filter(|number| line(*number) == text).ok_or_else(|| {
        failed(&"it is damaged; write the line again that it had, `stoa log dump` shows as many timelines as there are partitions")
    })
}

fn write(folder: &Path, partitions: u8) -> Result<(), String> {
    let (file, temporary) = (folder.join(FILE), folder.join(TEMPORARY));
    let write = || {
        if partitions == 1 {
            // Of a server that was ended before it had made the folder.
            return match fs::remove_file(&file) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(()) => File::open(folder)?.sync_all(),
            };
        }
        let mut new = File::create(&temporary)?;
        new.write_all(line(partitions).as_bytes())?;
        new.sync_all()?;
        fs::rename(&temporary, &file)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

/// The number, that there is one log, and the checksum of both.
fn line(partitions: u8) -> String {
    let text = format!("{partitions} one-log");
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// As it was when each partition had a log of its own.
fn line_of_own_logs(partitions: u8) -> String {
    let number = partitions.to_string();
    format!("{number} {:08x}\n", crc32fast::hash(number.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Partitions::{Auto, Exactly};

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn make(folder: &tempfile::TempDir) {
        fs::write(folder.path().join(FORMAT), "made").unwrap();
    }

    #[test]
    fn a_folder_keeps_the_number_that_it_was_made_with() {
        let folder = folder();
        let settle = |wanted| settle(folder.path(), wanted, false);
        // Until it is made the number may change.
        assert_eq!(settle(Some(Exactly(3))), Ok(3));
        assert_eq!(settle(Some(Exactly(4))), Ok(4));
        make(&folder);
        for wanted in [None, Some(Auto), Some(Exactly(4))] {
            assert_eq!(settle(wanted), Ok(4), "{wanted:?}");
        }
        for wrong in [1, 3, 64] {
            let why = settle(Some(Exactly(wrong))).unwrap_err();
            assert!(why.contains(&format!("has 4 partitions, not {wrong}")), "{why}");
        }
    }

    #[test]
    fn one_partition_leaves_no_file() {
        let folder = folder();
        assert_eq!(settle(folder.path(), Some(Exactly(2)), false), Ok(2));
        assert_eq!(settle(folder.path(), None, false), Ok(1));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        make(&folder);
        assert_eq!(settle(folder.path(), Some(Auto), false), Ok(1));
        assert!(settle(folder.path(), Some(Exactly(2)), false).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_must_exist_is_not_begun() {
        let folder = folder();
        assert_eq!(settle(folder.path(), Some(Exactly(2)), true), Ok(2));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn partitions_with_logs_of_their_own_are_refused() {
        let folder = folder();
        make(&folder);
        fs::write(folder.path().join(FILE), "4 f3b61b38\n").unwrap();
        let why = settle(folder.path(), None, false).unwrap_err();
        assert!(why.contains("had a log of its own"), "{why}");
    }

    #[test]
    fn damage_is_not_taken_for_a_number() {
        let folder = folder();
        settle(folder.path(), Some(Exactly(12)), false).unwrap();
        make(&folder);
        let file = folder.path().join(FILE);
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            for damaged in [whole[..at].to_vec(), [&whole[..at], &[whole[at] ^ 1], &whole[at + 1..]].concat()]
            {
                fs::write(&file, damaged).unwrap();
                let why = settle(folder.path(), None, false).unwrap_err();
                assert!(why.contains("it is damaged"), "{why}");
            }
        }
        fs::write(&file, [0xff; 1000]).unwrap();
        assert!(settle(folder.path(), None, false).is_err());
    }
}
