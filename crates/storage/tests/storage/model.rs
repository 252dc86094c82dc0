//! Random lives against a model.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{Model, chunks, open, options};
use proptest::prelude::*;
use stoa_storage::faulty::{Fault, FaultyDisk};
use stoa_storage::{
    AppendError, DiskErrorKind, Log, Options, PurgeReport, SnapshotReader, SnapshotWriter, StorageError,
    next_sequence, snapshot_name,
};

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<u32>),
    Seal,
    /// A whole snapshot of these timelines, or of all.
    Snapshot(Vec<u32>),
    /// The next piece of a timeline's snapshot, one after the other and beside those of others.
    Piece(u32),
    Abandon(u32),
    Purge,
    /// A bit of one of the snapshots is lost.
    Damage(u64, u64),
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
        1 => proptest::collection::vec(0..4_u32, 0..3).prop_map(Step::Snapshot),
        3 => (0..4_u32).prop_map(|timeline| Step::Snapshot(vec![timeline])),
        4 => (0..4_u32).prop_map(Step::Piece),
        1 => (0..4_u32).prop_map(Step::Abandon),
        2 => Just(Step::Purge),
        1 => any::<(u64, u64)>().prop_map(|(which, bit)| Step::Damage(which, bit)),
        1 => Just(Step::Restart),
        2 => Just(Step::Crash),
        2 => (0..12_u64, 0..3_u8).prop_map(|(calls, kind)| Step::Fault(calls, kind)),
        1 => (0..600_u64).prop_map(Step::Room),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A snapshot under way, and how many of its chunks it has.
type Writing = (SnapshotWriter, usize);

struct Life {
    options: Options,
    disk: FaultyDisk,
    model: Model,
    log: Option<Log>,
    writing: BTreeMap<u32, Writing>,
    /// Sequences and timelines of the snapshots that are damaged.
    damaged: Vec<(u64, Vec<u32>)>,
    /// Timelines that had as many good snapshots as are to be kept when old files were removed.
    had_enough: BTreeSet<u32>,
}

impl Life {
    fn new(seed: u64, options: Options) -> Self {
        Self {
            options,
            disk: FaultyDisk::new(seed),
            model: Model::default(),
            log: None,
            writing: BTreeMap::new(),
            damaged: Vec::new(),
            had_enough: BTreeSet::new(),
        }
    }

    /// False when the disk has failed instead.
    fn start(&mut self) -> bool {
        match open(&mut self.disk, &self.options) {
            Ok((log, recovered)) => {
                self.model.check(&recovered);
                self.log = Some(log);
                true
            }
            Err(StorageError::Disk(error)) => {
                assert!(self.disk.is_powerless() || error.detail.contains("told to fail"), "{error}");
                self.disk.set_capacity(u64::MAX);
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// True when the process has ended.
    fn step(&mut self, step: &Step) -> bool {
        let Some(log) = &mut self.log else { return false };
        match step {
            Step::Append(timelines) => {
                let outcome = self.model.append(log, &mut self.disk, timelines);
                return matches!(outcome, Err(AppendError::Poisoned(_)));
            }
            Step::Seal => return log.seal(&mut self.disk).is_err(),
            Step::Snapshot(timelines) => {
                let _ = self.snapshot(timelines);
            }
            Step::Piece(timeline) => self.piece(*timeline),
            Step::Abandon(timeline) => {
                if let Some((writer, _)) = self.writing.remove(timeline) {
                    writer.abandon(&mut self.disk);
                }
            }
            Step::Purge => {
                if let Ok(report) = log.purge(&mut self.disk) {
                    self.check_purge(&report);
                }
            }
            Step::Damage(which, bit) => self.damage(*which, *bit),
            Step::Restart => return true,
            Step::Crash => {
                self.disk.crash();
                return true;
            }
            Step::Fault(calls, kind) => {
                let faults = [
                    Fault::PowerLoss,
                    Fault::Fail(DiskErrorKind::NoSpace),
                    Fault::Fail(DiskErrorKind::Other),
                ];
                self.disk.fault_after(*calls, faults[usize::from(*kind)]);
            }
            Step::Room(bytes) => self.disk.set_capacity(self.disk.used() + bytes),
        }
        false
    }

    fn next_sequence(&mut self) -> Result<u64, StorageError> {
        next_sequence(&mut self.disk, self.writing.values().map(|writing| &writing.0))
    }

    fn snapshot(&mut self, timelines: &[u32]) -> Result<(), StorageError> {
        let sequence = self.next_sequence()?;
        // One of each timeline at a time.
        if timelines.iter().any(|timeline| self.writing.contains_key(timeline)) {
            return Ok(());
        }
        match timelines {
            [] if self.writing.is_empty() => self.model.snapshot(&mut self.disk, sequence),
            [] => Ok(()),
            some => self.model.snapshot_of(&mut self.disk, sequence, some),
        }
    }

    /// Begins a snapshot of a timeline, or goes on with it, or ends it.
    fn piece(&mut self, timeline: u32) {
        let Some((mut writer, done)) = self.writing.remove(&timeline) else {
            let Ok(sequence) = self.next_sequence() else { return };
            if let Ok(writer) = self.model.begin_snapshot(&mut self.disk, sequence, &[timeline]) {
                self.writing.insert(timeline, (writer, 0));
            }
            return;
        };
        let Some(chunk) = chunks(writer.sequence()).into_iter().nth(done) else {
            let _ = self.model.finish_snapshot(&mut self.disk, writer);
            return;
        };
        match writer.chunk(&mut self.disk, &chunk) {
            Ok(()) => {
                self.writing.insert(timeline, (writer, done + 1));
            }
            Err(_) => writer.abandon(&mut self.disk),
        }
    }

    fn sequences(&mut self) -> Vec<u64> {
        let files = stoa_storage::inspect::files(&mut self.disk);
        files.map_or_else(|_| Vec::new(), |files| files.snapshots.iter().map(|row| row.0).collect())
    }

    /// Damages a snapshot, if one of the newest of each of its timelines stays whole.
    fn damage(&mut self, which: u64, bit: u64) {
        let mut all = self.sequences();
        all.retain(|sequence| self.damaged.iter().all(|(damaged, _)| damaged != sequence));
        if all.is_empty() || self.disk.is_powerless() {
            return;
        }
        let sequence = all[(which % all.len() as u64) as usize];
        let reader = SnapshotReader::open(&mut self.disk, sequence).unwrap();
        let timelines: Vec<u32> = reader.header().positions.iter().map(|row| row.0).collect();
        let damaged_of = |of| self.damaged.iter().filter(|(_, timelines)| timelines.contains(&of)).count();
        if timelines.iter().any(|&timeline| damaged_of(timeline) + 1 >= self.options.snapshots_kept) {
            return;
        }
        let file = snapshot_name(sequence);
        let bits = self.disk.bytes(&file).unwrap().len() as u64 * 8;
        self.disk.flip_bit(&file, bit % bits);
        self.model.finished.retain(|(finished, _)| *finished != sequence);
        self.damaged.push((sequence, timelines));
    }

    /// Forgets damage that is gone for good.
    fn forget_damage(&mut self) {
        let durable = self.disk.durable();
        let is_there = |row: &(u64, Vec<u32>)| {
            let file = snapshot_name(row.0);
            self.disk.bytes(&file).is_some() || durable.bytes(&file).is_some()
        };
        self.damaged.retain(is_there);
    }

    /// What is left is enough with the oldest kept snapshot of each timeline; of those that never had
    /// enough of them, without any.
    fn check_purge(&mut self, report: &PurgeReport) {
        let wanted = self.options.snapshots_kept;
        let mut oldest: BTreeSet<u64> = BTreeSet::new();
        for timeline in 0..4 {
            let names =
                |info: &&stoa_storage::SnapshotInfo| info.header.position_if_named(timeline).is_some();
            let kept: Vec<u64> =
                report.snapshots_kept.iter().filter(names).map(|info| info.header.sequence).collect();
            if kept.len() >= wanted {
                self.had_enough.insert(timeline);
            }
            if self.had_enough.contains(&timeline) {
                oldest.extend(kept.get(wanted - 1).or(kept.last()));
            }
        }
        if !self.damaged.is_empty() || self.disk.is_powerless() {
            return;
        }
        let mut disk = self.disk.clone();
        disk.clear_fault();
        disk.set_capacity(u64::MAX);
        for sequence in self.sequences() {
            if !oldest.contains(&sequence) {
                disk.take(&snapshot_name(sequence));
            }
        }
        for lose_all in [false, true] {
            if lose_all {
                disk.crash_losing_all();
            }
            let (_, recovered) = open(&mut disk, &self.options).unwrap();
            self.model.clone().check_without_newest(&recovered);
        }
    }
}

fn live(seed: u64, options: Options, steps: &[Step]) {
    let mut life = Life::new(seed, options);
    for step in steps {
        let is_up = life.log.is_some() || life.start();
        let has_ended = is_up && life.step(step);
        if has_ended || life.disk.is_powerless() {
            life.log = None;
            life.writing.clear();
        }
        if life.disk.is_powerless() {
            life.disk.crash();
        }
        life.forget_damage();
    }
    life.disk.clear_fault();
    life.disk.set_capacity(u64::MAX);
    life.disk.crash();
    assert!(life.start());
}

fn tiny(segment_bytes: u64, ahead_bytes: u64, block_bytes: usize) -> Options {
    Options { segment_bytes, ahead_bytes, block_bytes, ..options() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_comes_back_and_nothing_else(
        seed in any::<u64>(),
        segment_bytes in prop_oneof![Just(0_u64), 100..3000_u64],
        ahead_bytes in prop_oneof![Just(0_u64), 100..4000_u64],
        block_bytes in prop_oneof![Just(1_usize), Just(64), Just(512), Just(4096)],
        snapshots_kept in 1..4_usize,
        steps in steps(),
    ) {
        live(seed, Options { snapshots_kept, ..tiny(segment_bytes, ahead_bytes, block_bytes) }, &steps);
    }
}

#[test]
fn a_refused_batch_does_not_come_back_when_only_its_block_had_no_room() {
    use Step::{Append, Fault, Room};
    // The second sync of the second refusal tells of an error that the first one has had.
    let steps = [Append(vec![1, 1]), Room(80), Append(vec![0]), Fault(1, 1), Append(vec![0])];
    for seed in 0..200 {
        live(seed, tiny(0, 0, 4096), &steps);
    }
}

#[test]
fn a_segment_that_an_end_frame_may_point_to_is_kept() {
    use Step::{Append, Fault, Restart, Room};
    // The end frame finds room, what fills its block does not, and the next call fails as well.
    for seed in 0..200 {
        live(seed, tiny(0, 0, 4096), &[Append(vec![0]), Restart, Room(1000), Fault(6, 2), Append(vec![0])]);
    }
}
