//! The offline readers.

use std::ops::ControlFlow;

use crate::world::{Model, open, options};
use stoa_storage::faulty::FaultyDisk;
use stoa_storage::inspect::{self, Finding, Tally};
use stoa_storage::{Disk, Entry, Options};

fn folder() -> FaultyDisk {
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    for step in 0..20 {
        model.append(&mut log, &mut disk, &[1, 2]).unwrap();
        if step % 8 == 7 {
            model.snapshot(&mut disk, step).unwrap();
        }
    }
    log.seal(&mut disk).unwrap();
    disk
}

fn look(disk: &mut FaultyDisk) -> (Tally, Tally, Vec<String>) {
    let mut lines = Vec::new();
    let log = inspect::log(disk, &mut |place, finding| {
        lines.push(format!("{}:{} {finding:?}", place.file, place.offset));
        ControlFlow::Continue(())
    })
    .unwrap();
    let snapshots = inspect::snapshots(disk, None, &mut |place, finding| {
        lines.push(format!("{}:{} {finding:?}", place.file, place.offset));
        ControlFlow::Continue(())
    })
    .unwrap();
    (log, snapshots, lines)
}

#[test]
fn everything_in_a_whole_folder_is_reported() {
    let mut disk = folder();
    disk.put("snapshot-0000000000000063.tmp", b"begun");
    let calls = disk.calls();
    let (log, snapshots, lines) = look(&mut disk);
    let segments = inspect::files(&mut disk).unwrap().segments.len() as u64;
    assert_eq!(log, Tally { files: 1 + segments, frames: 20, entries: 40, ..Tally::default() });
    assert_eq!(snapshots.files, 2);
    assert_eq!(snapshots.damages, 0);
    assert!(lines.iter().any(|line| line.contains("Seal {")));
    assert!(lines.iter().any(|line| line.contains("Leftover")));
    assert_eq!(lines.iter().filter(|line| line.contains("SegmentEnd")).count() as u64, segments - 1);
    assert_eq!(lines.iter().filter(|line| line.contains("SnapshotEnd")).count(), 2);
    assert_eq!(disk.calls(), calls, "nothing was changed");
}

#[test]
fn reading_goes_on_behind_damage() {
    let mut disk = folder();
    let first = "log-0000000000000001";
    // In the header of the second frame, behind a first batch that stays whole.
    let length = u32::from_le_bytes(disk.bytes(first).unwrap()[64 + 24..][..4].try_into().unwrap());
    disk.flip_bit(first, (64 + 32 + u64::from(length) + 10) * 8);
    let (log, _, lines) = look(&mut disk);
    assert_eq!((log.damages, log.frames, log.entries), (1, 19, 38));
    let damage = lines.iter().find(|line| line.contains("Damage")).unwrap();
    assert!(damage.contains(first) && damage.contains("resumes_at: Some"), "{damage}");
}

#[test]
fn every_flipped_bit_is_reported_and_none_panics() {
    let disk = folder();
    let names: Vec<(String, u64)> =
        disk.clone().list().unwrap().into_iter().map(|file| (file.name, file.bytes)).collect();
    for (name, bytes) in names {
        for bit in 0..bytes * 8 {
            let mut disk = disk.clone();
            disk.flip_bit(&name, bit);
            let (log, snapshots, _) = look(&mut disk);
            let reported = log.damages + log.torn_tails + snapshots.damages;
            assert!(reported > 0, "bit {bit} of {name}");
        }
    }
}

#[test]
fn a_missing_segment_is_reported() {
    let mut disk = folder();
    let second = inspect::files(&mut disk).unwrap().segments[1].0;
    disk.take(&format!("log-{second:016x}")).unwrap();
    let (log, _, lines) = look(&mut disk);
    assert_eq!(log.damages, 1);
    let missing = format!("log-{second:016x} is missing");
    assert!(lines.iter().any(|line| line.contains(&missing)), "{lines:#?}");
}

#[test]
fn a_torn_tail_is_not_called_damage() {
    let mut disk = folder();
    let last = inspect::files(&mut disk).unwrap().segments.last().copied().unwrap();
    let file = format!("log-{:016x}", last.0);
    disk.set_len(&file, last.1 - 40).unwrap();
    let (log, _, _) = look(&mut disk);
    assert_eq!((log.damages, log.torn_tails), (0, 1));
}

#[test]
fn zeros_written_ahead_are_called_so() {
    let mut disk = folder();
    let ahead = Options { ahead_bytes: 4000, segment_bytes: 100_000, ..options() };
    let (mut log, recovered) = open(&mut disk, &ahead).unwrap();
    let (timeline, position) = (1, recovered.last(1) + 1);
    log.append(&mut disk, &[Entry { timeline, position, payload: &[b"x"] }]).unwrap();
    let (tally, _, lines) = look(&mut disk);
    assert_eq!((tally.damages, tally.torn_tails), (0, 0));
    assert!(lines.iter().any(|line| line.ends_with("Ahead { bytes: 4000 }")), "{lines:#?}");
}

#[test]
fn a_log_that_goes_on_nowhere_is_reported() {
    let mut disk = folder();
    let last = inspect::files(&mut disk).unwrap().segments.last().copied().unwrap();
    let file = format!("log-{:016x}", last.0);
    disk.take(&file).unwrap();
    let (log, _, lines) = look(&mut disk);
    assert_eq!(log.damages, 1);
    assert!(lines.iter().any(|line| line.starts_with(&file) && line.contains("Damage")), "{lines:#?}");
}

#[test]
fn a_visitor_can_stop_and_a_snapshot_can_be_chosen() {
    let mut disk = folder();
    let mut seen = 0;
    inspect::log(&mut disk, &mut |_, finding| {
        seen += 1;
        match finding {
            Finding::Entry { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
    .unwrap();
    assert_eq!(seen, 4, "the folder, a segment, a batch, an entry");
    let only = inspect::snapshots(&mut disk, Some(15), &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(only.files, 1);
}

#[test]
fn whose_a_snapshot_is_is_reported() {
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    model.append(&mut log, &mut disk, &[0, 2, 2]).unwrap();
    for (sequence, timeline) in [(1, 2), (2, 0), (3, 5)] {
        model.snapshot_of(&mut disk, sequence, &[timeline]).unwrap();
    }
    let mut found = Vec::new();
    let tally = inspect::snapshots(&mut disk, None, &mut |_, finding| {
        if let Finding::Snapshot { header, .. } = finding {
            found.push((header.sequence, header.positions.clone()));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(found, [(1, vec![(2, 2)]), (2, vec![(0, 1)]), (3, vec![(5, 0)])]);
    assert_eq!((tally.files, tally.damages), (3, 0));
}
