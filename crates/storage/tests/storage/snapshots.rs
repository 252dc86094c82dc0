//! Snapshots and purges.

use crate::world::{Folder, chunks, folder, open, options};
use stoa_storage::faulty::{Fault, FaultyDisk};
use stoa_storage::{
    CHUNK_BYTES_MAX, Disk, DiskErrorKind, Options, SnapshotHeader, SnapshotReader, SnapshotWriter,
    StorageError,
};

impl Folder {
    fn snapshot_all(&mut self, sequence: u64) {
        self.model.snapshot(&mut self.disk, sequence).unwrap();
    }
}

#[test]
fn chunks_come_back_as_they_were_written() {
    let mut at = folder();
    let header = SnapshotHeader { sequence: 3, created_ms: 77, positions: vec![(9, 1), (2, 5), (4, 0)] };
    let mut writer = SnapshotWriter::begin(&mut at.disk, header).unwrap();
    let sizes = [0, 1, 1000, 300_000, 5, 0, 256 << 10, 70_000];
    for (index, &size) in sizes.iter().enumerate() {
        writer.chunk(&mut at.disk, &vec![index as u8; size]).unwrap();
    }
    let waiting = writer.bytes();
    let info = writer.finish(&mut at.disk).unwrap();
    assert_eq!(info.chunks, sizes.len() as u64);
    assert_eq!(info.bytes, waiting + 52);
    at.disk.crash_losing_all();
    assert_eq!(at.disk.bytes(&info.file).unwrap().len() as u64, info.bytes);
    let mut reader = SnapshotReader::open(&mut at.disk, 3).unwrap();
    assert_eq!(reader.header(), &info.header);
    assert_eq!(reader.header().positions, [(2, 5), (9, 1)]);
    for (index, &size) in sizes.iter().enumerate() {
        assert!(reader.next(&mut at.disk).unwrap() == Some(&vec![index as u8; size][..]), "chunk {index}");
    }
    assert_eq!(reader.next(&mut at.disk).unwrap(), None);
    assert_eq!(reader.next(&mut at.disk).unwrap(), None);
}

#[test]
fn a_snapshot_has_its_name_only_when_it_is_whole() {
    let mut at = folder();
    let header = SnapshotHeader { sequence: 3, ..SnapshotHeader::default() };
    let mut writer = SnapshotWriter::begin(&mut at.disk, header.clone()).unwrap();
    writer.chunk(&mut at.disk, &vec![1; 400_000]).unwrap();
    assert_eq!(at.sequences(), [0; 0]);
    writer.abandon(&mut at.disk);
    assert!(!at.disk.list().unwrap().iter().any(|file| file.name.contains("snapshot")));
    let mut writer = SnapshotWriter::begin(&mut at.disk, header).unwrap();
    writer.chunk(&mut at.disk, b"other").unwrap();
    at.disk.fault_after(1, Fault::Fail(DiskErrorKind::NoSpace));
    let error = writer.finish(&mut at.disk).unwrap_err();
    assert!(matches!(error, StorageError::Disk(error) if error.kind == DiskErrorKind::NoSpace));
    assert!(!at.disk.list().unwrap().iter().any(|file| file.name.contains("snapshot")));
}

#[test]
fn a_snapshot_needs_a_folder_and_chunks_within_bounds() {
    let mut disk = FaultyDisk::new(1);
    let begun = SnapshotWriter::begin(&mut disk, SnapshotHeader::default());
    assert!(matches!(begun, Err(StorageError::Missing { .. })));
    let mut at = folder();
    let mut writer = SnapshotWriter::begin(&mut at.disk, SnapshotHeader::default()).unwrap();
    let large = vec![0; CHUNK_BYTES_MAX + 1];
    assert!(matches!(writer.chunk(&mut at.disk, &large), Err(StorageError::Limit { .. })));
    let many =
        SnapshotHeader { positions: (0..70_000).map(|at| (at, 1)).collect(), ..SnapshotHeader::default() };
    assert!(matches!(SnapshotWriter::begin(&mut at.disk, many), Err(StorageError::Limit { .. })));
}

#[test]
fn only_entries_behind_the_snapshot_are_handed_out() {
    let mut at = folder();
    at.append(10, &[1, 2]);
    at.snapshot_all(1);
    at.append(5, &[1, 2]);
    let (_, recovered) = open(&mut at.disk, &options()).unwrap();
    at.model.check(&recovered);
    assert_eq!(recovered.snapshots[0].1, chunks(1));
    assert_eq!(recovered.entries.len(), 10);
}

#[test]
fn a_damaged_newest_snapshot_is_replaced_by_the_older_one_with_a_warning() {
    let mut at = folder();
    at.append(4, &[1, 2]);
    at.snapshot_all(1);
    at.append(4, &[1, 2]);
    at.snapshot_all(2);
    at.append(4, &[1, 2]);
    let file = "snapshot-0000000000000002";
    let bits = at.disk.bytes(file).unwrap().len() as u64 * 8;
    for bit in 0..bits {
        let mut disk = at.disk.clone();
        disk.flip_bit(file, bit);
        let (_, recovered) = open(&mut disk, &options()).unwrap();
        at.model.check_entries(&recovered);
        assert_eq!(recovered.snapshot_of(1), Some(1));
        assert_eq!(recovered.entries.len(), 16);
        assert_eq!(recovered.warnings.len(), 1);
        assert!(recovered.warnings[0].contains(file));
    }
}

#[test]
fn purge_keeps_the_snapshots_wanted_and_the_log_they_need() {
    let mut at = folder();
    for sequence in 1..=5 {
        at.append(10, &[1, 2]);
        at.snapshot_all(sequence);
    }
    at.append(3, &[1, 2]);
    let before = at.log.stats();
    let report = at.log.purge(&mut at.disk).unwrap();
    assert_eq!(at.sequences(), [4, 5]);
    assert_eq!(report.snapshots_removed, 3);
    assert_eq!(report.snapshots_kept.len(), 2);
    assert!(report.segments_removed > 2);
    let after = at.log.stats();
    assert_eq!(after.segments + report.segments_removed, before.segments);
    assert!(after.bytes < before.bytes && report.bytes_removed > before.bytes - after.bytes);
    let again = at.log.purge(&mut at.disk).unwrap();
    assert_eq!((again.snapshots_removed, again.segments_removed), (0, 0));
    at.disk.crash_losing_all();
    for remove in ["", "snapshot-0000000000000005"] {
        at.disk.take(remove);
        at.model.finished.retain(|(sequence, _)| remove.is_empty() || *sequence < 5);
        let (_, recovered) = open(&mut at.disk, &options()).unwrap();
        at.model.check(&recovered);
    }
}

#[test]
fn purge_leaves_as_much_of_the_log_as_it_is_told_to() {
    let mut at = folder();
    for sequence in 1..=5 {
        at.append(10, &[1, 2]);
        at.snapshot_all(sequence);
    }
    let before = at.log.stats();
    for kept_bytes in [before.bytes, before.bytes / 2] {
        let (mut log, _) = open(&mut at.disk, &Options { kept_bytes, ..options() }).unwrap();
        let report = log.purge(&mut at.disk).unwrap();
        assert!(log.stats().bytes >= kept_bytes);
        assert_eq!(report.segments_removed > 0, kept_bytes < before.bytes, "{report:?}");
    }
}

#[test]
fn purge_removes_nothing_while_there_are_fewer_good_snapshots_than_wanted() {
    let mut at = folder();
    at.append(10, &[1, 2]);
    at.snapshot_all(1);
    at.append(10, &[1, 2]);
    let report = at.log.purge(&mut at.disk).unwrap();
    assert_eq!((report.snapshots_removed, report.segments_removed), (0, 0));
    at.snapshot_all(2);
    at.append(10, &[1, 2]);
    at.snapshot_all(3);
    // Two of three are cut in their footers: only one counts.
    for file in ["snapshot-0000000000000003", "snapshot-0000000000000002"] {
        let bytes = at.disk.bytes(file).unwrap().len() as u64;
        at.disk.flip_bit(file, (bytes - 1) * 8);
    }
    let before = at.disk.list().unwrap();
    let report = at.log.purge(&mut at.disk).unwrap();
    assert_eq!((report.snapshots_removed, report.segments_removed), (0, 0));
    assert_eq!(report.snapshots_damaged.len(), 2);
    assert_eq!(at.disk.list().unwrap(), before);
    let (_, recovered) = open(&mut at.disk, &options()).unwrap();
    assert_eq!(recovered.snapshot_of(1), Some(1));
}

#[test]
fn damaged_snapshots_do_not_count_and_go_when_they_are_old() {
    let mut at = folder();
    for sequence in 1..=4 {
        at.append(6, &[1, 2]);
        at.snapshot_all(sequence);
    }
    at.disk.set_len("snapshot-0000000000000003", 100).unwrap();
    at.log.purge(&mut at.disk).unwrap();
    assert_eq!(at.sequences(), [2, 3, 4]);
    let (_, recovered) = open(&mut at.disk.clone(), &options()).unwrap();
    at.model.check(&recovered);
    at.append(6, &[1, 2]);
    at.snapshot_all(5);
    at.log.purge(&mut at.disk).unwrap();
    assert_eq!(at.sequences(), [4, 5], "the damaged one was older than two good ones");
}

#[test]
fn at_least_one_snapshot_is_kept() {
    let mut at = folder();
    let (log, _) = open(&mut at.disk, &Options { snapshots_kept: 0, ..options() }).unwrap();
    at.log = log;
    at.append(12, &[1, 2]);
    at.snapshot_all(1);
    at.append(12, &[1, 2]);
    at.snapshot_all(2);
    at.log.purge(&mut at.disk).unwrap();
    assert_eq!(at.sequences(), [2]);
    let (_, recovered) = open(&mut at.disk, &options()).unwrap();
    at.model.check(&recovered);
}
