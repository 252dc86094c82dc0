//! The file of the audit log, and those before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// A file of lines that becomes `NAME.1` when it is long enough, that one `NAME.2`, and so on.
pub(super) struct LogFile {
    path: PathBuf,
    /// `None` when it could not be opened.
    file: Option<File>,
    bytes: u64,
    /// No limit if 0.
    bytes_max: u64,
    /// So many older ones are kept.
    kept: u32,
    buffer: Vec<u8>,
}

impl LogFile {
    /// Opens it, or makes it so that only its owner can read it.
    pub(super) fn open(path: PathBuf, bytes_max: u64, kept: u32) -> Result<Self, String> {
        let mut log = Self { path, file: None, bytes: 0, bytes_max, kept, buffer: Vec::new() };
        log.reopen().map_err(|error| format!("{}: {error}", log.path.display()))?;
        Ok(log)
    }

    fn reopen(&mut self) -> io::Result<()> {
        let mut file =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&self.path)?;
        self.bytes = file.metadata()?.len();
        if self.bytes > 0 && !ends_a_line(&file, self.bytes)? {
            // The machine has stopped in the middle of one.
            file.write_all(b"\n")?;
            self.bytes += 1;
        }
        self.file = Some(file);
        Ok(())
    }

    /// Appends lines. Tells how many of them are in the file, and what is wrong if that is not all.
    pub(super) fn append(&mut self, lines: &[String]) -> (usize, Option<String>) {
        let (mut written, mut waiting) = (0, 0);
        for line in lines {
            let bytes = line.len() as u64 + 1;
            let filled = self.bytes + self.buffer.len() as u64;
            if self.bytes_max > 0 && filled > 0 && filled + bytes > self.bytes_max {
                let done = self.flush().and_then(|()| self.turn());
                if let Err(error) = done {
                    return (written, Some(format!("{}: {error}", self.path.display())));
                }
                written += std::mem::take(&mut waiting);
            }
            self.buffer.extend_from_slice(line.as_bytes());
            self.buffer.push(b'\n');
            waiting += 1;
        }
        match self.flush() {
            Ok(()) => (written + waiting, None),
            Err(error) => (written, Some(format!("{}: {error}", self.path.display()))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            self.reopen()?;
        }
        let Some(file) = &mut self.file else { return Err(ErrorKind::NotFound.into()) };
        if let Err(error) = file.write_all(&buffer) {
            // What of it is there is a line or a part of one, which the next opening ends.
            self.file = None;
            return Err(error);
        }
        self.bytes += buffer.len() as u64;
        Ok(())
    }

    /// Begins a new file.
    fn turn(&mut self) -> io::Result<()> {
        self.file = None;
        let number = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        if self.kept == 0 {
            gone_or_done(fs::remove_file(&self.path))?;
        } else {
            // The oldest one's place is taken by the one after it.
            for older in (1..self.kept).rev() {
                gone_or_done(fs::rename(number(older), number(older + 1)))?;
            }
            gone_or_done(fs::rename(&self.path, number(1)))?;
        }
        self.reopen()
    }
}

/// Somebody else may have taken the file away.
fn gone_or_done(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn ends_a_line(file: &File, bytes: u64) -> io::Result<bool> {
    let mut last = [0];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut last, bytes - 1)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn lines(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|number| format!("line {number:04}")).collect()
    }

    fn read(folder: &Path, name: &str) -> Option<Vec<String>> {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        assert!(text.ends_with('\n') || text.is_empty());
        Some(text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn the_newest_lines_are_kept_in_as_many_files_as_there_may_be() {
        for step in [1, 7, 100] {
            let folder = tempfile::tempdir().unwrap();
            // Ten lines each.
            let mut log = LogFile::open(folder.path().join("a"), 105, 2).unwrap();
            for begin in (0..100).step_by(step) {
                let some = lines(begin..(begin + step as u32).min(100));
                assert_eq!(log.append(&some), (some.len(), None));
            }
            assert_eq!(read(folder.path(), "a"), Some(lines(90..100)));
            assert_eq!(read(folder.path(), "a.1"), Some(lines(80..90)));
            assert_eq!(read(folder.path(), "a.2"), Some(lines(70..80)));
            assert_eq!(read(folder.path(), "a.3"), None);
        }
    }

    #[test]
    fn a_limit_of_none_is_none_and_a_line_longer_than_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(folder.path().join("a"), 0, 2).unwrap();
        log.append(&lines(0..1000));
        assert_eq!(read(folder.path(), "a").unwrap().len(), 1000);
        let mut log = LogFile::open(folder.path().join("b"), 5, 0).unwrap();
        assert_eq!(log.append(&lines(0..3)), (3, None));
        assert_eq!((read(folder.path(), "b"), read(folder.path(), "b.1")), (Some(lines(2..3)), None));
    }

    #[test]
    fn half_a_line_of_an_earlier_process_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "line 0000\nhal").unwrap();
        let mut log = LogFile::open(folder.path().join("a"), 0, 2).unwrap();
        log.append(&lines(1..2));
        assert_eq!(read(folder.path(), "a").unwrap(), ["line 0000", "hal", "line 0001"]);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_later_ones_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let mut log = LogFile::open(inner.join("a"), 25, 0).unwrap();
        assert_eq!(log.append(&lines(0..2)), (2, None));
        fs::remove_dir_all(&inner).unwrap();
        let (written, error) = log.append(&lines(2..4));
        assert_eq!(written, 0);
        assert!(error.unwrap().contains("inner/a"));
        fs::create_dir(&inner).unwrap();
        let (written, error) = log.append(&lines(4..5));
        assert_eq!((written, error), (1, None));
        assert_eq!(read(&inner, "a"), Some(lines(4..5)));
    }
}
