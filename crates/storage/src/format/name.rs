//! Names of files.

use alloc::format;
use alloc::string::String;

/// Says that a folder is ours, and which one.
pub(crate) const FORMAT_FILE: &str = "FORMAT";

/// What a file's name ends with until it is complete.
pub(crate) const TEMPORARY: &str = ".tmp";

const SEGMENT: &str = "log-";
const SNAPSHOT: &str = "snapshot-";

/// What a name says about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    /// The file that names the folder.
    Format,
    /// A segment of the log, by the number of its first frame.
    Segment(u64),
    /// A snapshot, by its sequence.
    Snapshot(u64),
    /// One of ours that was not finished.
    Leftover,
    /// Not ours.
    Foreign,
}

impl FileName {
    pub(crate) fn of(name: &str) -> Self {
        if let Some(stem) = name.strip_suffix(TEMPORARY) {
            return match Self::of(stem) {
                Self::Leftover | Self::Foreign => Self::Foreign,
                _ => Self::Leftover,
            };
        }
        if name == FORMAT_FILE {
            return Self::Format;
        }
        if let Some(number) = name.strip_prefix(SEGMENT).and_then(hexadecimal) {
            return Self::Segment(number);
        }
        match name.strip_prefix(SNAPSHOT).and_then(hexadecimal) {
            Some(sequence) => Self::Snapshot(sequence),
            None => Self::Foreign,
        }
    }
}

pub(crate) fn segment_name(first_frame: u64) -> String {
    format!("{SEGMENT}{first_frame:016x}")
}

/// The file of the snapshot with this sequence.
#[must_use]
pub fn snapshot_name(sequence: u64) -> String {
    format!("{SNAPSHOT}{sequence:016x}")
}

/// Exactly what `{:016x}` writes, so that no two names mean the same number.
fn hexadecimal(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (digits.len() == 16 && plain).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for number in [0, 1, 0xabc, u64::MAX] {
            let (segment, snapshot) = (segment_name(number), snapshot_name(number));
            assert_eq!(FileName::of(&segment), FileName::Segment(number));
            assert_eq!(FileName::of(&snapshot), FileName::Snapshot(number));
            assert_eq!(FileName::of(&(segment + ".tmp")), FileName::Leftover);
            assert_eq!(FileName::of(&(snapshot + ".tmp")), FileName::Leftover);
        }
        assert_eq!(FileName::of("FORMAT"), FileName::Format);
        assert_eq!(FileName::of("FORMAT.tmp"), FileName::Leftover);
    }

    #[test]
    fn other_names_are_left_alone() {
        for name in [
            "",
            "LOCK",
            "format",
            "log-1",
            "log-000000000000000A",
            "log-+000000000000001",
            "log-0000000000000001.bak",
            "snapshot-00000000000000001",
            "notes.tmp",
            "log-0000000000000001.tmp.tmp",
        ] {
            assert_eq!(FileName::of(name), FileName::Foreign, "{name}");
        }
    }
}
