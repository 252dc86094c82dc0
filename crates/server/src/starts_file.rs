//! The starts of this server, as its data folder has them: the others tell by them when the folder is an older copy of what
//! it was ([`Starts`]), and whoever has a copy of it whether that went on by itself.
//!
//! The first line has how many there have been and, in 8 hex digits, the checksum of that number and all that follows;
//! then come the ids of the last ones, oldest first.
//!
//! ```text
//! 2 0a1b2c3d
//! 0123456789abcdef
//! fedcba9876543210
//! ```

use std::fmt::Write as _;
use std::path::Path;

use stoa_core::{Start, Starts};

use crate::{random, whole_file};

const FILE: &str = "starts";
/// More is not read: a number, a checksum and as many ids as are kept.
const FILE_BYTES_MAX: u64 = 4 << 10;

/// One more start, by which the server decides alone or not. It is durable when this returns: nothing may be said to other
/// servers before.
pub(crate) fn draw(folder: &Path, decides_alone: bool) -> Result<Starts, String> {
    let id = Start::id(u64::from_ne_bytes(random::bytes()?), decides_alone);
    let starts = load(folder)?.and(id);
    whole_file::replace(folder, FILE, &text(&starts))?;
    Ok(starts)
}

fn load(folder: &Path) -> Result<Starts, String> {
    let file = folder.join(FILE);
    let Some(found) = whole_file::read(&file, FILE_BYTES_MAX)? else { return Ok(Starts::default()) };
    parse(&found).filter(|starts| text(starts) == found).ok_or_else(|| {
        format!(
            "{}: it is damaged. Remove it; the other servers will take the data folder for an older copy of what it was, \
             and, if they are a majority without this server, let it join anew",
            file.display()
        )
    })
}

fn parse(text: &str) -> Option<Starts> {
    let mut lines = text.lines();
    let count = lines.next()?.split(' ').next()?.parse().ok()?;
    Starts::of(count, lines.map(|id| u64::from_str_radix(id, 16).ok()).collect::<Option<_>>()?)
}

fn text(starts: &Starts) -> String {
    let (count, mut ids) = (starts.count(), String::new());
    for id in starts.ids() {
        let _ = writeln!(ids, "{id:016x}");
    }
    let checksum = crc32fast::hash(format!("{count}\n{ids}").as_bytes());
    format!("{count} {checksum:08x}\n{ids}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_start_is_one_more_and_the_last_ones_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let first = draw(folder.path(), false).unwrap();
        assert_eq!((first.count(), first.ids().len()), (1, 1));
        let second = draw(folder.path(), false).unwrap();
        assert!(
            second.count() == 2 && second.ids()[0] == first.ids()[0] && second.ids()[1] != first.ids()[0]
        );
        let mut last = second;
        for _ in 2..70 {
            let next = draw(folder.path(), false).unwrap();
            assert!(!next.lack(last.last().unwrap()));
            last = next;
        }
        assert_eq!((last.count(), last.ids().len()), (70, Starts::IDS_MAX));
        assert!(fs::metadata(folder.path().join(FILE)).unwrap().len() <= FILE_BYTES_MAX);
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        draw(folder.path(), false).unwrap();
        draw(folder.path(), false).unwrap();
        let whole = fs::read_to_string(&file).unwrap();
        let cut = &whole[..whole.len() - 1];
        let more = format!("{whole}0000000000000001\n");
        let other = whole.replacen(|digit: char| digit.is_ascii_hexdigit() && digit != '2', "2", 1);
        for damaged in ["", "\n", "1", "a\n", cut, &more, &other] {
            fs::write(&file, damaged).unwrap();
            let why = draw(folder.path(), false).unwrap_err();
            assert!(why.contains("it is damaged. Remove it"), "{why} of {damaged:?}");
        }
        fs::write(&file, vec![b'1'; 5 << 10]).unwrap();
        assert!(draw(folder.path(), false).unwrap_err().contains("far too long"));
        fs::write(&file, whole).unwrap();
        assert_eq!(draw(folder.path(), false).unwrap().count(), 3);
    }
}
