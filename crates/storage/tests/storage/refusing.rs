//! Folders that must not be used, and what is said about them.

use crate::world::{Model, open, options};
use stoa_storage::faulty::FaultyDisk;
use stoa_storage::{FORMAT_VERSION, Options, StorageError};

/// Three segments' worth of log, and as many snapshots as wanted.
fn folder(snapshots: &[u64]) -> (FaultyDisk, Vec<String>) {
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    for step in 0..24 {
        model.append(&mut log, &mut disk, &[1]).unwrap();
        if snapshots.contains(&step) {
            model.snapshot(&mut disk, step).unwrap();
        }
    }
    log.seal(&mut disk).unwrap();
    let files = stoa_storage::inspect::files(&mut disk).unwrap();
    let segments: Vec<String> = files.segments.iter().map(|row| format!("log-{:016x}", row.0)).collect();
    assert!(segments.len() >= 3);
    (disk, segments)
}

fn error(disk: &mut FaultyDisk) -> StorageError {
    open(disk, &options()).map(|(log, _)| log.stats()).unwrap_err()
}

#[test]
fn an_empty_folder_is_a_fresh_start_unless_a_log_must_be_there() {
    let mut disk = FaultyDisk::new(1);
    let must_exist = Options { must_exist: true, ..options() };
    assert_eq!(open(&mut disk, &must_exist).unwrap_err(), StorageError::NoLog);
    assert_eq!(disk.calls(), 0, "nothing was made");
    open(&mut disk, &options()).unwrap();
    open(&mut disk, &must_exist).unwrap();
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, segments) = folder(&[]);
    for missing in &segments {
        let mut disk = disk.clone();
        disk.take(missing).unwrap();
        match error(&mut disk) {
            StorageError::Missing { file, .. } => assert_eq!(&file, missing),
            other => panic!("without {missing}: {other}"),
        }
    }
}

#[test]
fn a_log_that_is_gone_is_noticed() {
    let (mut disk, segments) = folder(&[4]);
    for segment in &segments {
        disk.take(segment).unwrap();
    }
    assert!(matches!(error(&mut disk), StorageError::Missing { .. }));
}

#[test]
fn a_missing_format_file_is_noticed() {
    let (mut disk, segments) = folder(&[]);
    disk.take("FORMAT").unwrap();
    let missing = |disk: &mut FaultyDisk| match error(disk) {
        StorageError::Missing { file, .. } => file == "FORMAT",
        _ => false,
    };
    assert!(missing(&mut disk));
    for segment in &segments[1..] {
        disk.take(segment).unwrap();
    }
    assert!(missing(&mut disk), "one segment with entries");
    let mut disk = folder(&[3]).0;
    disk.take("FORMAT").unwrap();
    for segment in &segments {
        disk.take(segment).unwrap();
    }
    assert!(missing(&mut disk), "a snapshot alone");
}

#[test]
fn an_unknown_version_is_named() {
    let (disk, segments) = folder(&[4]);
    for file in ["FORMAT", &segments[1]] {
        let mut disk = disk.clone();
        let mut bytes = disk.bytes(file).unwrap().to_vec();
        bytes[8] = 77;
        disk.put(file, &bytes);
        let expected = StorageError::UnknownVersion { file: file.into(), found: 77, known: FORMAT_VERSION };
        assert_eq!(error(&mut disk), expected);
    }
}

#[test]
fn a_log_that_does_not_reach_back_to_the_snapshot_is_refused() {
    let (mut disk, segments) = folder(&[2]);
    disk.take(&segments[0]).unwrap();
    match error(&mut disk) {
        StorageError::Missing { file, what } => {
            assert_eq!(file, segments[0]);
            assert!(what.contains("snapshot-0000000000000002"), "{what}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_damaged_newest_snapshot_is_refused_if_the_log_does_not_reach_back_to_the_older_one() {
    let (mut disk, segments) = folder(&[2, 20]);
    disk.take(&segments[0]).unwrap();
    open(&mut disk.clone(), &options()).expect("the newest one is enough");
    disk.flip_bit("snapshot-0000000000000014", 100 * 8);
    match error(&mut disk) {
        StorageError::Damaged { file, what, .. } => {
            assert_eq!(file, "snapshot-0000000000000014");
            assert!(what.contains("snapshot-0000000000000002"), "{what}");
        }
        other => panic!("{other}"),
    }
    disk.take("snapshot-0000000000000002");
    assert!(matches!(error(&mut disk), StorageError::Damaged { .. }));
}

#[test]
fn a_log_that_ends_before_the_snapshot_is_refused() {
    let (mut disk, segments) = folder(&[23]);
    let last = segments.last().unwrap();
    let mut bytes = disk.bytes(last).unwrap().to_vec();
    bytes.truncate(bytes.len() - 40);
    disk.put(last, &bytes);
    match error(&mut disk) {
        StorageError::Damaged { file, what, .. } => {
            assert_eq!(&file, last);
            assert!(what.contains("snapshot-0000000000000017"), "{what}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn damage_with_something_behind_it_names_both_places() {
    let (mut disk, segments) = folder(&[]);
    let last = segments.last().unwrap();
    let length = disk.bytes(last).unwrap().len() as u64;
    // The last byte of the last batch, right before the seal.
    disk.flip_bit(last, (length - 33) * 8);
    match error(&mut disk) {
        StorageError::Damaged { file, offset, what } => {
            assert_eq!(&file, last);
            assert!(offset < length - 33);
            assert!(what.contains(&format!("byte {}", length - 32)), "{what}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn leftovers_are_removed_and_strangers_left_alone() {
    let (mut disk, _) = folder(&[4]);
    for name in
        ["snapshot-0000000000000009.tmp", "log-0000000000000099.tmp", "FORMAT.tmp", "LOCK", "notes.tmp"]
    {
        disk.put(name, b"bytes");
    }
    open(&mut disk, &options()).unwrap();
    disk.crash_losing_all();
    assert!(disk.bytes("snapshot-0000000000000009.tmp").is_none());
    assert!(disk.bytes("log-0000000000000099.tmp").is_none());
    assert!(disk.bytes("FORMAT.tmp").is_none());
    assert!(disk.bytes("LOCK").is_some());
    assert!(disk.bytes("notes.tmp").is_some());
}
