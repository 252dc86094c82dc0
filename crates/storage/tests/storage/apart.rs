//! Several timelines in one log, each with snapshots of its own.

use crate::world::{Folder, Recovered, chunks, folder, open, options};
use stoa_storage::faulty::Fault;
use stoa_storage::{
    Disk, DiskErrorKind, PurgeReport, SnapshotHeader, SnapshotReader, SnapshotWriter, StorageError,
    next_sequence, snapshot_name,
};

impl Folder {
    fn snapshot(&mut self, sequence: u64, timelines: &[u32]) {
        self.model.snapshot_of(&mut self.disk, sequence, timelines).unwrap();
    }

    fn purge(&mut self) -> PurgeReport {
        self.log.purge(&mut self.disk).unwrap()
    }

    /// What comes back after a loss of power: all of it.
    fn recover(&mut self) -> Recovered {
        self.disk.crash_losing_all();
        let (log, recovered) = open(&mut self.disk, &options()).unwrap();
        self.model.check(&recovered);
        self.log = log;
        recovered
    }

    /// The last byte of a snapshot changes.
    fn damage_end(&mut self, sequence: u64) {
        let file = snapshot_name(sequence);
        let bytes = self.disk.bytes(&file).unwrap().len() as u64;
        self.disk.flip_bit(&file, bytes * 8 - 1);
        self.model.finished.retain(|(finished, _)| *finished != sequence);
    }

    /// A snapshot no longer tells whose it is.
    fn damage_start(&mut self, sequence: u64) {
        self.disk.flip_bit(&snapshot_name(sequence), 20 * 8);
        self.model.finished.retain(|(finished, _)| *finished != sequence);
    }
}

/// Which snapshot each of the timelines 0 to 3 was given.
fn given(recovered: &Recovered) -> [Option<u64>; 4] {
    [0, 1, 2, 3].map(|timeline| recovered.snapshot_of(timeline))
}

#[test]
fn each_timeline_gets_its_newest_snapshot_and_what_follows_that() {
    let mut at = folder();
    at.append(4, &[0, 1, 2]);
    at.snapshot(1, &[2]);
    at.append(4, &[0, 1, 2]);
    at.snapshot(2, &[0]);
    at.append(2, &[0, 1, 2, 3]);
    at.snapshot(3, &[2]);
    at.append(1, &[0, 1, 2, 3]);
    let recovered = at.recover();
    assert_eq!(given(&recovered), [Some(2), None, Some(3), None]);
    let order: Vec<u64> = recovered.snapshots.iter().map(|(header, _)| header.sequence).collect();
    assert_eq!(order, [2, 3], "in the order of the timelines, each once, no older one");
    let of = |timeline| recovered.entries.iter().filter(|entry| entry.0 == timeline).count();
    assert_eq!([of(0), of(1), of(2), of(3)], [3, 11, 1, 3]);
    // The order of the log: as they were appended, whatever their timelines.
    let tail: Vec<(u32, u64)> =
        recovered.entries.iter().rev().take(4).map(|entry| (entry.0, entry.1)).collect();
    assert_eq!(tail, [(3, 3), (2, 11), (1, 11), (0, 11)]);
}

#[test]
fn a_damaged_snapshot_makes_its_own_timeline_alone_fall_back() {
    let mut at = folder();
    at.append(3, &[0, 1]);
    at.snapshot(1, &[1]);
    at.snapshot(2, &[0]);
    at.append(3, &[0, 1]);
    at.snapshot(3, &[0]);
    at.snapshot(4, &[1]);
    at.append(3, &[0, 1]);
    let file = snapshot_name(3);
    let bits = at.disk.bytes(&file).unwrap().len() as u64 * 8;
    for bit in 0..bits {
        let mut disk = at.disk.clone();
        disk.flip_bit(&file, bit);
        let (_, recovered) = open(&mut disk, &options()).unwrap();
        at.model.clone().check_without_newest(&recovered);
        assert_eq!(given(&recovered), [Some(2), Some(4), None, None], "bit {bit}");
        assert_eq!(recovered.warnings.len(), 1);
        assert!(recovered.warnings[0].contains(&file));
    }
}

#[test]
fn a_snapshot_that_does_not_tell_whose_it_is_counts_for_none_and_is_told_of_once() {
    let mut at = folder();
    at.append(3, &[0, 1, 2]);
    at.snapshot(1, &[0]);
    at.snapshot(2, &[1]);
    at.damage_start(2);
    at.snapshot(3, &[2]);
    let recovered = at.recover();
    assert_eq!(given(&recovered), [Some(1), None, Some(3), None]);
    assert_eq!(recovered.warnings.len(), 1);
    assert!(recovered.warnings[0].contains(&snapshot_name(2)));
    at.snapshot(4, &[0]);
    assert_eq!(
        at.recover().warnings,
        [""; 0],
        "all that is older than the snapshots in use is of no interest"
    );
}

#[test]
fn the_log_must_reach_back_to_the_snapshot_of_every_timeline() {
    let mut at = folder();
    at.append(3, &[0, 1]);
    at.snapshot(1, &[0]);
    at.snapshot(2, &[1]);
    at.append(12, &[0, 1]);
    at.snapshot(3, &[0]);
    at.snapshot(4, &[0]);
    at.snapshot(5, &[1]);
    at.snapshot(6, &[1]);
    assert!(at.purge().segments_removed > 0);
    at.append(1, &[0, 1]);
    for (damaged, left) in [([3, 4], 0), ([5, 6], 1)] {
        let mut disk = at.disk.clone();
        for sequence in damaged {
            disk.flip_bit(&snapshot_name(sequence), 100 * 8);
        }
        match open(&mut disk, &options()).map(|(log, _)| log.stats()) {
            Err(StorageError::Damaged { file, what, .. }) => {
                assert_eq!(file, snapshot_name(damaged[1]), "the newest one of that timeline");
                assert!(what.contains(&format!("of timeline {left}, and before it no snapshot")), "{what}");
            }
            other => panic!("{other:?}"),
        }
        disk.take(&snapshot_name(damaged[0]));
        disk.take(&snapshot_name(damaged[1]));
        match open(&mut disk, &options()).map(|(log, _)| log.stats()) {
            Err(StorageError::Missing { what, .. }) => assert!(what.contains("no snapshot"), "{what}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_log_must_reach_forward_to_the_snapshot_of_every_timeline() {
    let mut at = folder();
    at.append(3, &[0, 1]);
    at.snapshot(1, &[0]);
    let beyond = SnapshotHeader { sequence: 2, created_ms: 0, positions: vec![(1, 4)] };
    SnapshotWriter::begin(&mut at.disk, beyond).unwrap().finish(&mut at.disk).unwrap();
    match open(&mut at.disk, &options()).map(|(log, _)| log.stats()) {
        Err(StorageError::Damaged { what, .. }) => {
            assert!(what.contains("position 3 of timeline 1"), "{what}");
            assert!(what.contains(&snapshot_name(2)), "{what}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_snapshot_of_two_timelines_is_handed_out_for_those_whose_newest_it_is() {
    let mut at = folder();
    at.append(3, &[0, 1, 2]);
    at.snapshot(1, &[0, 1, 2]);
    at.append(3, &[0, 1, 2]);
    at.snapshot(2, &[1]);
    at.append(3, &[0, 1, 2]);
    let recovered = at.recover();
    assert_eq!(given(&recovered), [Some(1), Some(2), Some(1), None]);
    assert_eq!(recovered.snapshots.len(), 2);
    assert_eq!(recovered.snapshots[0].0.positions, [(0, 3), (2, 3)]);
    at.damage_end(2);
    let recovered = at.recover();
    assert_eq!(given(&recovered), [Some(1), Some(1), Some(1), None]);
    let of = |at: usize| (recovered.snapshots[at].0.sequence, &recovered.snapshots[at].0.positions[..]);
    assert_eq!((of(0), of(1)), ((1, &[(0, 3), (2, 3)][..]), (1, &[(1, 3)][..])));
}

#[test]
fn a_snapshot_from_before_the_first_entry_says_whose_it_is() {
    let mut at = folder();
    at.snapshot(1, &[3]);
    at.snapshot(2, &[]);
    let recovered = at.recover();
    assert_eq!(given(&recovered), [Some(2), None, None, Some(1)]);
    let header = SnapshotReader::open(&mut at.disk, 1).unwrap().header().clone();
    assert_eq!((header.positions, header.sequence), (vec![(3, 0)], 1));
    at.append(2, &[0, 3]);
    let recovered = at.recover();
    assert_eq!((recovered.snapshots.len(), recovered.entries.len()), (2, 4));
}

#[test]
fn purge_keeps_the_snapshots_wanted_of_each_timeline() {
    let mut at = folder();
    for sequence in [1, 3, 5, 6] {
        at.append(2, &[0, 1]);
        at.snapshot(sequence, &[0]);
        if sequence < 5 {
            at.snapshot(sequence + 1, &[1]);
        }
    }
    let report = at.purge();
    assert_eq!(at.sequences(), [2, 4, 5, 6]);
    let kept: Vec<u64> = report.snapshots_kept.iter().map(|info| info.header.sequence).collect();
    assert_eq!((kept, report.snapshots_removed), (vec![6, 5, 4, 2], 2));
    assert_eq!(given(&at.recover()), [Some(6), Some(4), None, None]);
    at.damage_end(6);
    at.damage_end(4);
    assert_eq!(given(&at.recover()), [Some(5), Some(2), None, None]);
}

#[test]
fn a_segment_waits_for_the_slowest_timeline() {
    let mut at = folder();
    at.append(2, &[0, 1]);
    at.snapshot(1, &[1]);
    at.append(2, &[0, 1]);
    at.snapshot(2, &[1]);
    for sequence in 3..6 {
        at.append(12, &[0, 1]);
        at.snapshot(sequence, &[0]);
    }
    let report = at.purge();
    assert_eq!(at.sequences(), [1, 2, 4, 5]);
    assert_eq!((report.segments_removed, report.held_by), (0, vec![1]));
    let held = at.log.stats().segments;
    at.snapshot(6, &[1]);
    assert_eq!(at.purge().held_by, [1], "the log is to reach back to the oldest kept one");
    assert_eq!(at.sequences(), [2, 4, 5, 6]);
    at.snapshot(7, &[1]);
    let report = at.purge();
    assert!(report.segments_removed > 2 && report.segments_removed < held, "{report:?}");
    assert_eq!(report.held_by, [0], "now the other one is the slower");
    at.damage_end(5);
    at.damage_end(7);
    assert_eq!(given(&at.recover()), [Some(4), Some(6), None, None]);
}

#[test]
fn a_timeline_with_fewer_good_snapshots_than_wanted_keeps_its_log() {
    let mut at = folder();
    at.append(3, &[2]);
    for sequence in 1..4 {
        at.append(12, &[0]);
        at.snapshot(sequence, &[0]);
    }
    let report = at.purge();
    assert_eq!((at.sequences(), report.segments_removed), (vec![2, 3], 0));
    assert_eq!(report.held_by, [2], "it has no snapshot");
    at.snapshot(4, &[2]);
    assert_eq!(at.purge().held_by, [2], "one is not enough");
    let mut without = at.disk.clone();
    without.take(&snapshot_name(4));
    let (_, recovered) = open(&mut without, &options()).unwrap();
    at.model.clone().check_without_newest(&recovered);
    at.snapshot(5, &[2]);
    let report = at.purge();
    assert!(report.segments_removed > 2, "{report:?}");
    assert_eq!(at.sequences(), [2, 3, 4, 5]);
    assert_eq!(given(&at.recover()), [Some(3), None, Some(5), None]);
}

#[test]
fn a_segment_without_anything_of_a_timeline_does_not_wait_for_it() {
    let mut at = folder();
    at.append(3, &[2]);
    at.append(12, &[0]);
    for sequence in [1, 2] {
        at.snapshot(sequence, &[2]);
        at.snapshot(sequence + 2, &[0]);
    }
    assert!(at.purge().segments_removed > 0, "nothing of timeline 2 is in the log");
    at.damage_end(1);
    at.append(12, &[0]);
    at.snapshot(5, &[0]);
    at.snapshot(6, &[0]);
    let report = at.purge();
    assert!(report.segments_removed > 0, "{report:?}");
    assert_eq!(at.sequences(), [1, 2, 5, 6], "of timeline 2 nothing may go");
    assert_eq!(given(&at.recover()), [Some(6), None, Some(2), None]);
}

#[test]
fn a_snapshot_that_does_not_tell_whose_it_is_goes_when_it_is_old_for_all() {
    let mut at = folder();
    at.append(3, &[0, 1]);
    at.snapshot(1, &[0]);
    at.damage_start(1);
    for sequence in [2, 3, 4] {
        at.snapshot(sequence, &[0]);
    }
    at.snapshot(5, &[1]);
    let report = at.purge();
    assert_eq!(report.snapshots_damaged.len(), 1);
    assert_eq!(at.sequences(), [1, 3, 4, 5], "it may be of timeline 1");
    at.snapshot(6, &[1]);
    assert!(at.purge().snapshots_damaged.is_empty());
    assert_eq!(at.sequences(), [3, 4, 5, 6]);
    let mut blank = folder();
    blank.snapshot(1, &[]);
    blank.damage_start(1);
    blank.purge();
    assert_eq!(blank.sequences(), [1], "nothing is known of any timeline");
}

#[test]
fn snapshots_are_written_beside_one_another() {
    let mut at = folder();
    at.append(2, &[0, 1, 2]);
    at.snapshot(7, &[0]);
    let mut writers: Vec<SnapshotWriter> = Vec::new();
    for timeline in 0..3 {
        let sequence = next_sequence(&mut at.disk, &writers).unwrap();
        assert_eq!(sequence, 8 + u64::from(timeline));
        writers.push(at.model.begin_snapshot(&mut at.disk, sequence, &[timeline]).unwrap());
    }
    for chunk in 0..3 {
        for writer in &mut writers {
            if let Some(chunk) = chunks(writer.sequence()).get(chunk) {
                writer.chunk(&mut at.disk, chunk).unwrap();
            }
        }
    }
    let last = writers.pop().unwrap();
    at.model.finish_snapshot(&mut at.disk, last).unwrap();
    assert_eq!(next_sequence(&mut at.disk, &writers).unwrap(), 11);
    at.disk.fault_after(0, Fault::Fail(DiskErrorKind::NoSpace));
    let failed = writers.pop().unwrap();
    assert!(at.model.finish_snapshot(&mut at.disk, failed).is_err());
    assert!(!at.disk.list().unwrap().iter().any(|file| file.name.starts_with(&snapshot_name(9))));
    let first = writers.pop().unwrap();
    at.model.finish_snapshot(&mut at.disk, first).unwrap();
    assert_eq!(at.sequences(), [7, 8, 10]);
    assert_eq!(given(&at.recover()), [Some(8), None, Some(10), None]);
}
