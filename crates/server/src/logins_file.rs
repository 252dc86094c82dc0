//! The logins by Kerberos of the last minutes, on disk: whoever has overheard one does not come in by it after a restart
//! either.
//!
//! Two files take turns. While one is written to, nothing in the other one counts any more: so it is emptied, and written
//! to, when the first one is as old as logins are remembered. A login is 24 bytes: until when it counts, in milliseconds
//! since 1970, and its hash. What is damaged is another login, which nobody has.
//!
//! They are written before the client is answered, and not synced: a process that ends loses none, a machine that loses
//! its power may lose the last ones.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use stoa_sasl::{Acceptor, Taken};

const FILES: [&str; 2] = ["logins-0", "logins-1"];
const LOGIN_BYTES: usize = 24;
/// More is not read: what a server takes in the time that one file counts.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Where logins are kept.
#[derive(Debug)]
pub(crate) struct LoginsFile {
    folder: PathBuf,
    turn: Mutex<Turn>,
}

/// Which file is written to. All of it follows from the files.
#[derive(Debug, Default)]
struct Turn {
    number: usize,
    /// How much of it is written. What stands behind that is a login of which only a part could be.
    length: u64,
    /// When the other one's turn is: when what this one began with does not count any more.
    until_ms: u64,
    open: Option<File>,
    /// The last login could not be written, which was said.
    is_failing: bool,
}

impl LoginsFile {
    /// Reads those that count still at this time.
    ///
    /// # Errors
    /// Which file cannot be read, and why.
    pub(crate) fn open(folder: &Path, now_ms: u64) -> Result<(Self, Vec<Taken>), String> {
        let (mut all, mut turn) = (Vec::new(), Turn::default());
        for (number, name) in FILES.iter().enumerate() {
            let path = folder.join(name);
            let mut taken = read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let length = (taken.len() * LOGIN_BYTES) as u64;
            // A clock that was set back must not make them count for ever.
            taken.retain(|taken| (now_ms..=now_ms.saturating_add(Taken::KEEP_MS)).contains(&taken.until_ms));
            // The file that was written to last begins with what counts for longest.
            if let Some(first) = taken.first().filter(|first| first.until_ms > turn.until_ms) {
                turn = Turn { number, length, until_ms: first.until_ms, ..Turn::default() };
            }
            all.append(&mut taken);
        }
        Ok((Self { folder: folder.to_owned(), turn: Mutex::new(turn) }, all))
    }

    /// Keeps what was taken by now. When this returns it is known after a restart, unless that was said in the log.
    pub(crate) fn keep(&self, acceptor: &Acceptor, now_ms: u64) {
        self.keep_all(|| acceptor.poll_taken(), now_ms);
    }

    fn keep_all(&self, mut poll: impl FnMut() -> Option<Taken>, now_ms: u64) {
        // Whoever else is here may be writing what the caller has taken: so he waits.
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(taken) = poll() {
            let written = turn.write(&self.folder, &taken, now_ms);
            if let (Err(error), false) = (&written, turn.is_failing) {
                tracing::warn!(
                    "{}: {error}; until it can be written, logins by Kerberos are forgotten in a restart, and who has \
                     overheard one may repeat it then",
                    self.folder.join(FILES[turn.number]).display()
                );
            }
            turn.is_failing = written.is_err();
        }
    }
}

impl Turn {
    fn write(&mut self, folder: &Path, taken: &Taken, now_ms: u64) -> io::Result<()> {
        let end_ms = now_ms.saturating_add(Taken::KEEP_MS);
        let file = match self.open.take() {
            _ if !(now_ms..=end_ms).contains(&self.until_ms) => {
                let number = (self.number + 1) % FILES.len();
                let file = open(&folder.join(FILES[number]), true)?;
                (self.number, self.length, self.until_ms) = (number, 0, end_ms);
                file
            }
            Some(file) => file,
            None => open(&folder.join(FILES[self.number]), false)?,
        };
        let written = file.write_all_at(&encode(taken), self.length);
        self.open = Some(file);
        written.map(|()| self.length += LOGIN_BYTES as u64)
    }
}

fn open(path: &Path, is_emptied: bool) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(is_emptied).mode(0o600).open(path)
}

fn read(path: &Path) -> io::Result<Vec<Taken>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => drop(file?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?),
    }
    Ok(bytes.as_chunks().0.iter().map(decode).collect())
}

fn encode(taken: &Taken) -> [u8; LOGIN_BYTES] {
    let mut bytes = [0; LOGIN_BYTES];
    bytes[..8].copy_from_slice(&taken.until_ms.to_le_bytes());
    bytes[8..].copy_from_slice(&taken.hash);
    bytes
}

fn decode(bytes: &[u8; LOGIN_BYTES]) -> Taken {
    let (mut until, mut hash) = ([0; 8], [0; 16]);
    until.copy_from_slice(&bytes[..8]);
    hash.copy_from_slice(&bytes[8..]);
    Taken { until_ms: u64::from_le_bytes(until), hash }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP_MS: u64 = Taken::KEEP_MS;

    fn taken(at_ms: u64) -> Taken {
        Taken { until_ms: at_ms + KEEP_MS, hash: [at_ms as u8; 16] }
    }

    fn keep(file: &LoginsFile, at_ms: u64) {
        let mut next = Some(taken(at_ms));
        file.keep_all(|| next.take(), at_ms);
    }

    fn read_at(folder: &Path, now_ms: u64) -> Vec<Taken> {
        let (_, mut taken) = LoginsFile::open(folder, now_ms).unwrap();
        taken.sort_unstable();
        taken
    }

    #[test]
    fn logins_are_known_after_any_number_of_restarts_until_they_are_too_old() {
        let folder = tempfile::tempdir().unwrap();
        let times = [1, 2, KEEP_MS, KEEP_MS + 5, 2 * KEEP_MS + 7, 2 * KEEP_MS + 8, 5 * KEEP_MS];
        for restarts in [false, true] {
            let (mut file, _) = LoginsFile::open(folder.path(), 10 * KEEP_MS).unwrap();
            for (index, at_ms) in times.into_iter().enumerate() {
                keep(&file, at_ms);
                // Of a copy, which is as a crash would leave it.
                let copy = tempfile::tempdir().unwrap();
                for name in FILES.iter().filter(|name| folder.path().join(name).exists()) {
                    std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
                }
                let counts = |time: &&u64| at_ms <= **time + KEEP_MS;
                let expected: Vec<_> =
                    times[..=index].iter().filter(counts).map(|time| taken(*time)).collect();
                assert_eq!(read_at(copy.path(), at_ms), expected, "at {at_ms}");
                assert_eq!(read_at(copy.path(), at_ms), expected, "once more at {at_ms}");
                if restarts {
                    file = LoginsFile::open(folder.path(), at_ms).unwrap().0;
                }
            }
        }
    }

    #[test]
    fn files_do_not_grow_beyond_what_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = LoginsFile::open(folder.path(), 0).unwrap();
        (0..20_000).for_each(|number| keep(&file, number * 1000));
        for path in FILES.map(|name| folder.path().join(name)) {
            let length = std::fs::metadata(path).unwrap().len();
            assert!(length > 0 && length <= (KEEP_MS / 1000 + 1) * LOGIN_BYTES as u64, "{length}");
        }
    }

    #[test]
    fn what_is_damaged_keeps_nobody_out_and_counts_for_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = LoginsFile::open(folder.path(), 0).unwrap();
        keep(&file, 1);
        let path = folder.path().join(FILES[1]);
        let mut bytes = std::fs::read(&path).unwrap();
        // A login of a clock that is far ahead, and a part of one.
        bytes.extend_from_slice(&encode(&taken(9 * KEEP_MS)));
        bytes.extend_from_slice(&[7; LOGIN_BYTES - 1]);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(read_at(folder.path(), 2), [taken(1)]);
    }

    #[test]
    fn what_cannot_be_written_is_written_when_that_is_possible_again() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("gone");
        let (file, _) = LoginsFile::open(&below, 0).unwrap();
        keep(&file, 1);
        assert!(file.turn.lock().unwrap().is_failing);
        std::fs::create_dir(&below).unwrap();
        keep(&file, 2);
        assert!(!file.turn.lock().unwrap().is_failing);
        assert_eq!(read_at(&below, 3), [taken(2)]);
    }
}
