//! Every call that changes the disk is made to fail: by power loss, by a full disk, by an error.

use crate::world::{Model, Recovered, open, options};
use stoa_storage::faulty::{Fault, FaultyDisk};
use stoa_storage::{AppendError, DiskErrorKind, Log, Options, StorageError};

/// A server's life in small: batches over several segments, seals, snapshots, purges.
struct Life {
    disk: FaultyDisk,
    model: Model,
    log: Option<Log>,
    step: u32,
    /// Each snapshot is of one timeline.
    apart: bool,
    options: Options,
}

/// Why a life stopped for a while.
#[derive(Debug)]
enum Trouble {
    Append(AppendError),
    Storage(StorageError),
}

impl From<AppendError> for Trouble {
    fn from(error: AppendError) -> Self {
        Self::Append(error)
    }
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

const STEPS: u32 = 30;

impl Life {
    fn new(seed: u64) -> Self {
        let ahead_bytes = [0, 400, 2000][(seed % 3) as usize];
        let block_bytes = [1, 64, 512][(seed / 3 % 3) as usize];
        Self {
            disk: FaultyDisk::new(seed),
            model: Model::default(),
            log: None,
            step: 0,
            apart: (seed / 9).is_multiple_of(2),
            options: Options { ahead_bytes, block_bytes, ..options() },
        }
    }

    /// The same disk with nobody using it.
    fn without_log(&self) -> Self {
        Self {
            disk: self.disk.clone(),
            model: self.model.clone(),
            log: None,
            step: self.step,
            apart: self.apart,
            options: self.options.clone(),
        }
    }

    /// Lives on until all steps are done or something fails; a failed step is tried again later.
    fn live(&mut self) -> Result<(), Trouble> {
        while self.step < STEPS {
            self.one_step()?;
            self.step += 1;
        }
        Ok(())
    }

    fn one_step(&mut self) -> Result<(), Trouble> {
        let Self { disk, model, log, step, apart, options } = self;
        let log = match log {
            Some(log) => log,
            None => {
                let (opened, recovered) = open(disk, options)?;
                model.check(&recovered);
                log.insert(opened)
            }
        };
        match *step {
            at @ (7 | 19) if *apart => model.snapshot_of(disk, u64::from(at), &[0])?,
            at @ (13 | 25) if *apart => model.snapshot_of(disk, u64::from(at), &[1])?,
            7 | 13 | 19 | 25 => model.snapshot(disk, u64::from(*step))?,
            10 | 20 | 26 => {
                log.purge(disk)?;
            }
            at if at % 4 == 3 => log.seal(disk)?,
            at => {
                let timelines: Vec<u32> = (0..1 + at % 5).map(|index| index % 2).collect();
                model.append(log, disk, &timelines)?;
            }
        }
        Ok(())
    }

    /// The process ends and starts again.
    fn restart(&mut self) -> Recovered {
        self.log = None;
        let (log, recovered) = open(&mut self.disk, &self.options).unwrap_or_else(|error| {
            panic!("it does not start again: {error}");
        });
        self.model.check(&recovered);
        self.log = Some(log);
        recovered
    }
}

fn calls_of_a_life() -> u64 {
    (0..18).map(calls_of_the_life_of).max().unwrap()
}

fn calls_of_the_life_of(seed: u64) -> u64 {
    let mut life = Life::new(seed);
    life.live().unwrap();
    let stats = life.log.as_ref().unwrap().stats();
    // Behind 18 batches the numbers of the frames count the segments.
    assert!(stats.next_frame - 18 > stats.segments as u64, "segments were removed: {stats:?}");
    assert!(stats.next_frame > 18 + 5, "segments changed: {stats:?}");
    life.restart();
    life.disk.calls()
}

#[test]
fn power_loss_at_any_call_loses_nothing_acknowledged() {
    for call in 0..calls_of_a_life() {
        for seed in 0..24 {
            let mut life = Life::new(seed * 1000 + call + seed);
            life.disk.fault_after(call, Fault::PowerLoss);
            if life.live().is_ok() {
                life.disk.clear_fault();
            }
            life.disk.crash();
            life.restart();
            life.live().unwrap();
            life.disk.crash();
            life.restart();
        }
    }
}

#[test]
fn power_loss_at_any_call_of_a_recovery_loses_nothing_acknowledged() {
    for call in 0..calls_of_a_life() {
        for seed in 0..3 {
            let mut life = Life::new(seed * 1000 + call + seed);
            life.disk.fault_after(call, Fault::PowerLoss);
            let _ = life.live();
            life.disk.crash();
            for again in 0.. {
                let mut other = life.without_log();
                other.disk.reseed(seed + again * 7);
                other.disk.fault_after(again, Fault::PowerLoss);
                let done = open(&mut other.disk, &other.options);
                if let Ok((_, recovered)) = &done {
                    other.model.check(recovered);
                }
                other.disk.crash();
                other.restart();
                other.live().unwrap();
                if done.is_ok() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_full_disk_at_any_call_leaves_everything_usable() {
    for call in 0..calls_of_a_life() {
        let mut life = Life::new(call);
        life.disk.fault_after(call, Fault::Fail(DiskErrorKind::NoSpace));
        match life.live() {
            Ok(()) => {}
            Err(Trouble::Append(AppendError::NoSpace(_)) | Trouble::Storage(StorageError::Disk(_))) => {
                for seed in 0..12 {
                    let mut survivor = life.without_log();
                    survivor.disk.reseed(seed);
                    survivor.disk.crash();
                    survivor.restart();
                    survivor.live().unwrap();
                }
            }
            // The roll-back itself failed.
            Err(Trouble::Append(AppendError::Poisoned(_))) => {
                life.restart();
            }
            Err(other) => panic!("{other:?}"),
        }
        life.live().unwrap();
        life.disk.crash();
        life.restart();
    }
}

#[test]
fn a_disk_of_any_size_fills_up_without_loss() {
    let mut reached_the_end = 0;
    for capacity in (0..6000).step_by(13) {
        let mut life = Life::new(capacity);
        life.disk.set_capacity(capacity);
        let mut failures = 0;
        while life.live().is_err() {
            failures += 1;
            if failures > 3 {
                life.disk.set_capacity(u64::MAX);
            }
            assert!(failures < 10, "more room and still no way on");
            if failures % 2 == 0 {
                life.disk.crash();
                life.log = None;
            }
        }
        reached_the_end += u32::from(failures == 0);
        life.disk.crash();
        life.restart();
    }
    assert!(reached_the_end > 10, "the largest disks were large enough");
}

#[test]
fn an_error_at_any_call_is_survived_by_a_restart_and_then_by_power_loss() {
    for call in 0..calls_of_a_life() {
        for seed in 0..4 {
            let mut life = Life::new(seed * 1000 + call + seed);
            life.disk.fault_after(call, Fault::Fail(DiskErrorKind::Other));
            match life.live() {
                Ok(()) => life.disk.clear_fault(),
                Err(Trouble::Storage(StorageError::Disk(_))) => {}
                Err(Trouble::Append(AppendError::Poisoned(_))) => {
                    let again = life.one_step();
                    let step = life.step;
                    assert!(
                        matches!(again, Err(Trouble::Append(AppendError::Poisoned(_)))),
                        "step {step} on a poisoned log: {again:?}"
                    );
                }
                Err(other) => panic!("{other:?}"),
            }
            life.restart();
            let shown = life.model.clone();
            life.disk.crash();
            let recovered = life.restart();
            for (timeline, position) in shown.positions() {
                assert!(recovered.last(timeline) >= position, "what a restart showed is gone");
            }
            life.live().unwrap();
            life.disk.crash();
            life.restart();
        }
    }
}

/// A half-written file of the first attempt must not get the name of the second one's.
#[test]
fn making_a_folder_can_be_interrupted_twice() {
    for seed in 0..400 {
        for (first, second) in (0..12).flat_map(|first| (0..12).map(move |second| (first, second))) {
            let mut disk = FaultyDisk::new(seed);
            for calls in [first, second] {
                disk.fault_after(calls, Fault::PowerLoss);
                if let Err(error) = open(&mut disk, &options()) {
                    assert!(disk.is_powerless(), "seed {seed}, {first}, {second}: {error}");
                }
                disk.crash();
            }
            open(&mut disk, &options())
                .unwrap_or_else(|error| panic!("seed {seed}, {first}, {second}: {error}"));
        }
    }
}

/// A snapshot can be seen by its name before that is durable: another thread may be writing it.
#[test]
fn a_snapshot_whose_name_may_be_lost_does_not_replace_the_only_one() {
    for seed in 0..1000 {
        let options = Options { snapshots_kept: 1, ..options() };
        let mut disk = FaultyDisk::new(seed);
        let (mut log, _) = open(&mut disk, &options).unwrap();
        let mut model = Model::default();
        for sequence in [1, 2] {
            (0..12).for_each(|_| model.append(&mut log, &mut disk, &[0]).unwrap());
            // It removes what is left, writes, syncs, renames, and cannot sync the folder the second time.
            if sequence == 2 {
                disk.fault_after(4, Fault::Fail(DiskErrorKind::Other));
            }
            assert_eq!(model.snapshot_of(&mut disk, sequence, &[0]).is_ok(), sequence == 1);
        }
        assert!(disk.bytes("snapshot-0000000000000002").is_some());
        disk.fault_after(1 + seed % 6, Fault::PowerLoss);
        let _ = log.purge(&mut disk);
        disk.crash();
        let (_, recovered) = open(&mut disk, &options).unwrap();
        model.check_without_newest(&recovered);
    }
}
