//! A folder that ZooKeeper has used is not taken for an empty one.
//!
//! Its files are not read here, so a server that began beside them would show its clients an empty tree in
//! place of theirs, and would be believed: locks are free, and configuration is gone. Only who has begun such
//! a folder already, with files of Stoa's own in it, goes on.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::partitions_file;

/// Where ZooKeeper has its files, below `dataDir` and `dataLogDir`.
const FOLDER: &str = "version-2";

/// Refuses a data folder that is ZooKeeper's; `log_dir` is where its log is if that is elsewhere.
pub(crate) fn refuse(data_dir: &Path, log_dir: Option<&Path>) -> Result<(), String> {
    if partitions_file::is_made(data_dir) {
        return Ok(());
    }
    // Whoever names the folder itself and not the one around it means the same files.
    let is_inside = data_dir.file_name().is_some_and(|name| name == FOLDER);
    let folder = if is_inside { data_dir.to_owned() } else { data_dir.join(FOLDER) };
    if let Some(found) = look(&folder)? {
        return Err(format!(
            "{} holds {found} of ZooKeeper, which are not read here, and the data folder {} holds nothing \
             of Stoa's: its clients would see an empty tree. Give this server a data folder of its own \
             (data-dir, dataDir in a zoo.cfg), and if ZooKeeper's znodes are needed copy them through a client \
             that reads from it and writes to Stoa; or, to begin with nothing, move {} away",
            folder.display(),
            data_dir.display(),
            folder.display(),
        ));
    }
    let Some(log_dir) = log_dir.filter(|log_dir| *log_dir != data_dir) else { return Ok(()) };
    let folder = log_dir.join(FOLDER);
    match look(&folder)? {
        None => Ok(()),
        Some(found) => Err(format!(
            "{}, below dataLogDir of the zoo.cfg, holds {found} of ZooKeeper, which are not read here, and \
             the data folder {} holds nothing of Stoa's: its clients would see an empty tree. If ZooKeeper's \
             znodes are needed, copy them through a client that reads from it and writes to Stoa; to begin \
             with nothing, remove the line dataLogDir, which has no effect here",
            folder.display(),
            data_dir.display(),
        )),
    }
}

/// What of ZooKeeper's a folder holds, in words.
fn look(folder: &Path) -> Result<Option<String>, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("cannot look into {} for files of ZooKeeper: {error}", folder.display())
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(&error)),
    };
    let (mut snapshots, mut logs) = (FileSet::new("snapshot"), FileSet::new("log"));
    for entry in entries {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let _ = snapshots.count(name) || logs.count(name);
    }
    let found: Vec<String> = [snapshots, logs].iter().filter_map(FileSet::describe).collect();
    Ok((!found.is_empty()).then(|| found.join(" and ")))
}

/// Files of one kind: its name, a point, and the zxid in hexadecimal, and the name of a compression if any.
struct FileSet {
    name: &'static str,
    count: u64,
    newest: (u64, String),
}

impl FileSet {
    fn new(name: &'static str) -> Self {
        FileSet { name, count: 0, newest: (0, String::new()) }
    }

    fn count(&mut self, file: &str) -> bool {
        let rest = file.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('.'));
        let zxid = rest.and_then(|rest| u64::from_str_radix(rest.split('.').next()?, 16).ok());
        let Some(zxid) = zxid else { return false };
        self.count += 1;
        if self.count == 1 || zxid >= self.newest.0 {
            self.newest = (zxid, file.to_owned());
        }
        true
    }

    fn describe(&self) -> Option<String> {
        let (kind, newest) = (self.name, &self.newest.1);
        match self.count {
            0 => None,
            1 => Some(format!("a {kind} ({newest})")),
            count => Some(format!("{count} {kind}s (the newest is {newest})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        folder
    }

    fn error(files: &[&str]) -> String {
        refuse(folder(files).path(), None).unwrap_err()
    }

    #[test]
    fn snapshots_and_logs_of_zookeeper_are_found() {
        let both =
            ["version-2/snapshot.0", "version-2/snapshot.1000000ff", "version-2/log.100000001", "myid"];
        let error_of_both = error(&both);
        assert!(
            error_of_both.contains(
                "version-2 holds 2 snapshots (the newest is snapshot.1000000ff) and a log (log.100000001)"
            ),
            "{error_of_both}"
        );
        for file in ["version-2/log.1", "version-2/snapshot.0", "version-2/snapshot.12.gz", "version-2/log.A"]
        {
            assert!(error(&[file]).contains("of ZooKeeper, which are not read here"), "{file}");
            let folder = folder(&[file]);
            assert!(refuse(&folder.path().join(FOLDER), None).is_err(), "the folder itself, {file}");
        }
    }

    #[test]
    fn a_folder_that_stoa_has_begun_goes_on_beside_them() {
        assert_eq!(refuse(folder(&["version-2/log.1", "FORMAT", "log-1"]).path(), None), Ok(()));
    }

    #[test]
    fn what_is_not_data_of_zookeeper_does_not_matter() {
        for files in [
            &["myid"][..],
            &["version-2/currentEpoch", "version-2/acceptedEpoch", "version-2/.x"],
            &["version-2"],
            &[
                "version-2/log.old",
                "version-2/snapshot.",
                "version-2/catalog.1",
                "log.txt",
                "zookeeper.log.1",
            ],
            &["log-1", "snapshot-1", "LOCK"],
        ] {
            assert_eq!(refuse(folder(files).path(), None), Ok(()), "{files:?}");
        }
        assert_eq!(refuse(&folder(&[]).path().join("missing"), None), Ok(()));
        let empty = folder(&[]);
        fs::create_dir(empty.path().join(FOLDER)).unwrap();
        assert_eq!(refuse(empty.path(), None), Ok(()));
    }

    #[test]
    fn the_log_may_be_elsewhere() {
        let (data, log) = (folder(&["myid"]), folder(&["version-2/log.100000001"]));
        let error = refuse(data.path(), Some(log.path())).unwrap_err();
        assert!(error.contains("below dataLogDir of the zoo.cfg, holds a log (log.100000001)"), "{error}");
        assert_eq!(refuse(data.path(), Some(&log.path().join("missing"))), Ok(()));
        assert_eq!(refuse(folder(&["FORMAT"]).path(), Some(log.path())), Ok(()));
    }

    /// A link that leads to itself cannot be looked into by anybody, a superuser included.
    #[test]
    fn a_folder_that_cannot_be_looked_into_is_refused() {
        let folder = folder(&["myid"]);
        std::os::unix::fs::symlink(FOLDER, folder.path().join(FOLDER)).unwrap();
        let error = refuse(folder.path(), None).unwrap_err();
        assert!(error.starts_with("cannot look into ") && error.contains(FOLDER), "{error}");
    }
}
