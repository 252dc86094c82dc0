//! Random lives against a model.

use crate::world::{Model, open, options};
use proptest::prelude::*;
use stoa_storage::faulty::{Fault, FaultyDisk};
use stoa_storage::{AppendError, DiskErrorKind, Options, StorageError};

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<u32>),
    Seal,
    Snapshot,
    Purge,
    /// The process ends and starts again.
    Restart,
    /// The power fails.
    Crash,
    /// From the n-th call on something happens.
    Fault(u64, u8),
    /// So many bytes are left on the disk.
    Room(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => proptest::collection::vec(0..4_u32, 0..6).prop_map(Step::Append),
        2 => Just(Step::Seal),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Purge),
        1 => Just(Step::Restart),
        2 => Just(Step::Crash),
        2 => (0..12_u64, 0..3_u8).prop_map(|(calls, kind)| Step::Fault(calls, kind)),
        1 => (0..600_u64).prop_map(Step::Room),
    ];
    proptest::collection::vec(step, 1..80)
}

fn live(seed: u64, segment_bytes: u64, ahead_bytes: u64, block_bytes: usize, steps: &[Step]) {
    let options = Options { segment_bytes, ahead_bytes, block_bytes, ..options() };
    let (mut disk, mut model) = (FaultyDisk::new(seed), Model::default());
    let mut running = None;
    let mut sequence = 0;
    for step in steps {
        if running.is_none() {
            match open(&mut disk, &options) {
                Ok((log, recovered)) => {
                    model.check(&recovered);
                    running = Some(log);
                }
                Err(StorageError::Disk(error)) => {
                    assert!(disk.is_powerless() || error.detail.contains("told to fail"), "{error}");
                    if disk.is_powerless() {
                        disk.crash();
                    }
                    disk.set_capacity(u64::MAX);
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
        }
        let Some(log) = &mut running else { continue };
        let mut end = false;
        match step {
            Step::Append(timelines) => {
                let outcome = model.append(log, &mut disk, timelines);
                end = matches!(outcome, Err(AppendError::Poisoned(_)));
            }
            Step::Seal => end = log.seal(&mut disk).is_err(),
            Step::Snapshot => {
                sequence += 1;
                let _ = model.snapshot(&mut disk, sequence);
            }
            Step::Purge => {
                let _ = log.purge(&mut disk);
            }
            Step::Restart => end = true,
            Step::Crash => {
                disk.crash();
                end = true;
            }
            Step::Fault(calls, kind) => {
                let faults = [
                    Fault::PowerLoss,
                    Fault::Fail(DiskErrorKind::NoSpace),
                    Fault::Fail(DiskErrorKind::Other),
                ];
                disk.fault_after(*calls, faults[usize::from(*kind)]);
            }
            Step::Room(bytes) => disk.set_capacity(disk.used() + bytes),
        }
        if end || disk.is_powerless() {
            running = None;
        }
        if disk.is_powerless() {
            disk.crash();
        }
    }
    disk.clear_fault();
    disk.set_capacity(u64::MAX);
    disk.crash();
    let (_, recovered) = open(&mut disk, &options).unwrap();
    model.check(&recovered);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_comes_back_and_nothing_else(
        seed in any::<u64>(),
        segment_bytes in prop_oneof![Just(0_u64), 100..3000_u64],
        ahead_bytes in prop_oneof![Just(0_u64), 100..4000_u64],
        block_bytes in prop_oneof![Just(1_usize), Just(64), Just(512), Just(4096)],
        steps in steps(),
    ) {
        live(seed, segment_bytes, ahead_bytes, block_bytes, &steps);
    }
}

#[test]
fn a_refused_batch_does_not_come_back_when_only_its_block_had_no_room() {
    use Step::{Append, Fault, Room};
    // The second sync of the second refusal tells of an error that the first one has had.
    let steps = [Append(vec![1, 1]), Room(80), Append(vec![0]), Fault(1, 1), Append(vec![0])];
    for seed in 0..200 {
        live(seed, 0, 0, 4096, &steps);
    }
}

#[test]
fn a_segment_that_an_end_frame_may_point_to_is_kept() {
    use Step::{Append, Fault, Restart, Room};
    // The end frame finds room, what fills its block does not, and the next call fails as well.
    for seed in 0..200 {
        live(seed, 0, 0, 4096, &[Append(vec![0]), Restart, Room(1000), Fault(6, 2), Append(vec![0])]);
    }
}
