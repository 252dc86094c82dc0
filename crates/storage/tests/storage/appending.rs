//! Appending, sealing and coming back.

use crate::world::{Model, in_two, open, options};
use stoa_storage::faulty::FaultyDisk;
use stoa_storage::{AppendError, BODY_BYTES_MAX, Entry, Options, StorageError};

#[test]
fn entries_come_back_in_order_over_many_segments() {
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let (mut log, recovered) = open(&mut disk, &options()).unwrap();
    assert_eq!(recovered, Default::default());
    for round in 0..40_u32 {
        let timelines: Vec<u32> = (0..1 + round % 4).map(|at| (round + at) % 3).collect();
        model.append(&mut log, &mut disk, &timelines).unwrap();
    }
    assert!(log.stats().segments > 5, "{:?}", log.stats());
    let before = log.stats();
    disk.crash_losing_all();
    let (log, recovered) = open(&mut disk, &options()).unwrap();
    model.check(&recovered);
    assert_eq!(log.stats(), before);
    assert_eq!(log.folder_id(), options().new_folder_id);
    assert_eq!(log.created_ms(), options().now_ms);
}

#[test]
fn one_append_is_one_write_and_one_sync() {
    let mut disk = FaultyDisk::new(1);
    let (mut log, _) = open(&mut disk, &Options { segment_bytes: 1 << 20, ..options() }).unwrap();
    let mut model = Model::default();
    for _ in 0..10 {
        let before = (disk.calls(), disk.syncs());
        model.append(&mut log, &mut disk, &[1, 2, 3, 1, 1]).unwrap();
        assert_eq!((disk.calls(), disk.syncs()), (before.0 + 2, before.1 + 1));
    }
}

#[test]
fn small_batches_do_not_change_the_length_of_the_file_each_time() {
    let mut disk = FaultyDisk::new(1);
    let ahead = Options { segment_bytes: 1 << 20, ahead_bytes: 10_000, ..options() };
    let (mut log, _) = open(&mut disk, &ahead).unwrap();
    let mut model = Model::default();
    let mut lengths = Vec::new();
    for _ in 0..200 {
        let (calls, syncs) = (disk.calls(), disk.syncs());
        model.append(&mut log, &mut disk, &[1, 2]).unwrap();
        assert_eq!((disk.calls(), disk.syncs()), (calls + 2, syncs + 1));
        lengths.push(disk.used());
    }
    let used = log.stats().bytes;
    lengths.dedup();
    assert!((3..=6).contains(&lengths.len()), "{lengths:?} for {used} bytes");
    let (_, recovered) = open(&mut disk, &ahead).unwrap();
    model.check(&recovered);
    assert_eq!(log.stats().bytes, used);
    assert_eq!(disk.used(), used + 64, "the zeros are gone, beside the log there is FORMAT");
}

#[test]
fn a_disk_with_room_for_the_batch_alone_takes_it() {
    let mut disk = FaultyDisk::new(1);
    let ahead = Options { segment_bytes: 1 << 20, ahead_bytes: 10_000, ..options() };
    let (mut log, _) = open(&mut disk, &ahead).unwrap();
    let mut model = Model::default();
    disk.set_capacity(2000);
    let stored = (0..).take_while(|_| model.append(&mut log, &mut disk, &[1]).is_ok()).count();
    assert!(stored > 10, "{stored}");
    disk.crash_losing_all();
    let (_, recovered) = open(&mut disk, &ahead).unwrap();
    model.check(&recovered);
}

#[test]
fn an_empty_batch_touches_no_disk() {
    let mut disk = FaultyDisk::new(1);
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    let before = (disk.calls(), log.stats());
    log.append(&mut disk, &[]).unwrap();
    assert_eq!((disk.calls(), log.stats()), before);
}

#[test]
fn large_payloads_are_written_in_place_and_come_back() {
    let mut disk = FaultyDisk::new(1);
    let (mut log, _) = open(&mut disk, &Options { segment_bytes: 1 << 30, ..options() }).unwrap();
    // Around the sizes at which a payload is written directly and the buffer is written out.
    let sizes = [0, 1, 7, 65_535, 65_536, 65_537, 3 << 20, 100_000, 5, 0];
    let mut position = 0;
    let mut expected = Vec::new();
    for batch in 0..4_usize {
        let payloads: Vec<Vec<u8>> = sizes
            .iter()
            .cycle()
            .skip(batch * 3)
            .take(8 + batch * 20)
            .enumerate()
            .map(|(index, &size)| vec![(index * 31 + batch) as u8; size])
            .collect();
        let pieces: Vec<_> = payloads.iter().map(|payload| in_two(payload)).collect();
        let entries: Vec<Entry<'_>> = pieces
            .iter()
            .map(|payload| {
                position += 1;
                Entry { timeline: 9, position, payload }
            })
            .collect();
        log.append(&mut disk, &entries).unwrap();
        expected.extend(payloads);
    }
    disk.crash_losing_all();
    let (_, recovered) = open(&mut disk, &options()).unwrap();
    assert_eq!(recovered.entries.len(), expected.len());
    for ((_, position, payload), (index, expected)) in
        recovered.entries.iter().zip(expected.iter().enumerate())
    {
        assert_eq!(*position, index as u64 + 1);
        assert!(payload == expected, "payload of position {position}");
    }
}

#[test]
fn many_small_entries_that_fill_the_buffer_come_back() {
    let mut disk = FaultyDisk::new(1);
    let (mut log, _) = open(&mut disk, &Options { segment_bytes: 1 << 30, ..options() }).unwrap();
    let payload = [&[3; 300][..], &[3; 700]];
    let entries: Vec<Entry<'_>> =
        (1..=5000).map(|position| Entry { timeline: 1, position, payload: &payload }).collect();
    log.append(&mut disk, &entries).unwrap();
    disk.crash_losing_all();
    let (log, recovered) = open(&mut disk, &options()).unwrap();
    assert_eq!(log.position(1), 5000);
    assert_eq!(recovered.entries.len(), 5000);
}

#[test]
fn a_position_out_of_order_is_refused_and_nothing_is_stored() {
    let mut disk = FaultyDisk::new(1);
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    let entry = |timeline, position| Entry { timeline, position, payload: &[b"x"] };
    log.append(&mut disk, &[entry(1, 1), entry(1, 2), entry(2, 1)]).unwrap();
    let before = (disk.calls(), log.stats());
    for (batch, expected) in [
        (vec![entry(1, 2)], 3),
        (vec![entry(1, 4)], 3),
        (vec![entry(2, 2), entry(2, 2)], 3),
        (vec![entry(3, 2)], 1),
        (vec![entry(3, 0)], 1),
        (vec![entry(1, 3), entry(9, 5)], 1),
    ] {
        match log.append(&mut disk, &batch) {
            Err(AppendError::OutOfOrder { expected: found, .. }) => assert_eq!(found, expected),
            other => panic!("{other:?}"),
        }
        assert_eq!((disk.calls(), log.stats()), before);
    }
    log.append(&mut disk, &[entry(1, 3)]).unwrap();
}

#[test]
fn a_batch_beyond_the_limit_is_refused_and_nothing_is_stored() {
    let mut disk = FaultyDisk::new(1);
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    let payload = vec![0; 64 << 20];
    let payload = in_two(&payload);
    let entries: Vec<Entry<'_>> = (1..=1 + BODY_BYTES_MAX / (64 << 20))
        .map(|position| Entry { timeline: 1, position, payload: &payload })
        .collect();
    let calls = disk.calls();
    let refused = log.append(&mut disk, &entries);
    assert!(matches!(refused, Err(AppendError::TooLarge { .. })), "{refused:?}");
    assert_eq!(disk.calls(), calls);
    log.append(&mut disk, &entries[..1]).unwrap();
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own() {
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let (mut log, _) = open(&mut disk, &Options { segment_bytes: 100, ..options() }).unwrap();
    for _ in 0..5 {
        model.append(&mut log, &mut disk, &[1, 1, 1, 1]).unwrap();
    }
    assert_eq!(log.stats().segments, 5);
    let (_, recovered) = open(&mut disk, &options()).unwrap();
    model.check(&recovered);
}

#[test]
fn a_seal_is_overwritten_by_the_next_batch() {
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    log.seal(&mut disk).unwrap();
    assert!(!log.stats().sealed, "nothing to seal yet");
    for _ in 0..3 {
        model.append(&mut log, &mut disk, &[1]).unwrap();
        assert!(!log.stats().sealed);
        let (calls, syncs) = (disk.calls(), disk.syncs());
        log.seal(&mut disk).unwrap();
        log.seal(&mut disk).unwrap();
        assert!(log.stats().sealed);
        assert_eq!((disk.calls(), disk.syncs()), (calls + 1, syncs), "written once, never synced");
    }
    let before = log.stats();
    let (log, recovered) = open(&mut disk, &options()).unwrap();
    model.check(&recovered);
    assert_eq!(log.stats(), before);
}

#[test]
fn what_recovery_hands_out_is_durable() {
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    model.append(&mut log, &mut disk, &[1]).unwrap();
    // The process dies between the write and its sync; the cache still has the batch.
    disk.fault_after(1, stoa_storage::faulty::Fault::Fail(stoa_storage::DiskErrorKind::Other));
    assert!(matches!(model.append(&mut log, &mut disk, &[1]), Err(AppendError::Poisoned(_))));
    let poisoned = model.clone().append(&mut log, &mut disk, &[1]);
    assert!(matches!(poisoned, Err(AppendError::Poisoned(_))), "it stays poisoned");
    let (_, recovered) = open(&mut disk, &options()).unwrap();
    model.check(&recovered);
    assert_eq!(model.last(1), 2);
    disk.crash_losing_all();
    let (_, recovered) = open(&mut disk, &options()).unwrap();
    model.check(&recovered);
}

#[test]
fn a_refusal_by_the_receiver_names_the_place() {
    struct Picky;
    impl stoa_storage::Recovery for Picky {
        fn snapshot_begin(&mut self, _: &stoa_storage::SnapshotHeader) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_chunk(&mut self, _: &[u8]) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_end(&mut self) -> Result<(), String> {
            Ok(())
        }
        fn snapshot_discard(&mut self) {}
        fn entry(&mut self, _: u32, position: u64, _: &[u8]) -> Result<(), String> {
            if position == 3 { Err("three is too many".into()) } else { Ok(()) }
        }
    }
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let (mut log, _) = open(&mut disk, &options()).unwrap();
    model.append(&mut log, &mut disk, &[1, 1, 1]).unwrap();
    match stoa_storage::Log::open(&mut disk, &options(), &mut Picky) {
        Err(StorageError::Refused { file, offset, what }) => {
            assert_eq!(file, "log-0000000000000001");
            assert!(offset > 96);
            assert_eq!(what, "three is too many");
        }
        other => panic!("{other:?}"),
    }
}
