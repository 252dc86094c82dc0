//! The machine starts again: recovery, also from damaged copies of the folder.

use super::{Event, Failure, World};
use crate::check::{Violation, compare};
use crate::disk_thread::{LogThread, choose_bit};
use crate::process::Process;
use crate::recover::{Opened, recover};
use stoa_core::Shard;
use stoa_storage::faulty::{Fault, FaultyDisk};
use stoa_storage::{DiskErrorKind, Options, StorageError};

/// The only server, and who votes: it alone.
const SERVER: u8 = 1;
const VOTERS: [u64; 1] = [SERVER as u64];

impl World {
    fn options(&mut self) -> Options {
        Options {
            segment_bytes: self.profile.segment_bytes,
            block_bytes: 512,
            snapshots_kept: 2,
            now_ms: self.now().wall_ms,
            ..Options::default()
        }
    }

    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        if self.process.is_some() {
            return Ok(());
        }
        let options = self.options();
        let tree_options = stoa_tree::Options {
            hash_seed: self.rng.next_u64(),
            enforce_quota: self.profile.enforce_quota,
            ..stoa_tree::Options::default()
        };
        let before = self.disk.clone();
        // The power may go again while the server starts, above all while it makes its folder.
        let chance = if self.starts == 0 { 2 } else { 6 };
        if !self.healing && self.rng.one_in(chance) {
            self.disk.fault_after(self.rng.below(8), Fault::PowerLoss);
        }
        let opened = recover(&mut self.disk, &options, &tree_options, SERVER, &VOTERS);
        if self.disk.is_powerless() {
            self.trace.event(self.now_us, "restart", format_args!("power lost while starting"));
            self.disk.crash();
            let after = self.rng.range(500, 5000);
            self.schedule(after, Event::Restart);
            return Ok(());
        }
        // What was armed and has not happened yet would strike a later life.
        self.disk.clear_fault();
        let Opened { log, recovered, .. } = match opened {
            Ok(opened) => opened,
            Err(StorageError::Disk(error)) if self.disk_is_full || error.kind == DiskErrorKind::Other => {
                // The operator tries again.
                self.trace.event(self.now_us, "restart", format_args!("{error}"));
                self.schedule(100_000, Event::Restart);
                return Ok(());
            }
            Err(error) => {
                return Err(Violation::new(format!("the folder is whole, and was refused: {error}")).into());
            }
        };
        let now = self.now();
        self.trace.event(
            self.now_us,
            "restart",
            format_args!("recovered record {}, zxid {}", recovered.record, recovered.tree.last_zxid()),
        );
        let record = recovered.record;
        if record < self.synced {
            let synced = self.synced;
            return Err(Violation::new(format!("record {synced} was synced, {record} was recovered")).into());
        }
        self.checker.recovered(&recovered, now)?;
        self.open_damaged(&before, &options, &tree_options, record)?;
        let mut secret = [0; 32];
        for chunk in secret.chunks_mut(8) {
            chunk.copy_from_slice(&self.rng.next_u64().to_le_bytes());
        }
        let server = Shard::new(self.profile.config.clone(), recovered, secret, now);
        let Some(mut server) = server else {
            return Err(Violation::new("a server cannot go on with what its disk holds").into());
        };
        (self.plant)(&mut server);
        self.process = Some(Process::new(server, LogThread::new(log)));
        self.starts += 1;
        self.paused_until_us = 0;
        self.schedule_turn(self.now_us + 1);
        Ok(())
    }

    /// Opens copies of the folder with a bit flipped: each is refused, or gives the state exactly.
    fn open_damaged(
        &mut self,
        whole: &FaultyDisk,
        options: &Options,
        tree_options: &stoa_tree::Options,
        record: u64,
    ) -> Result<(), Failure> {
        if !self.rng.percent(self.profile.faults.bit_rot_percent) {
            return Ok(());
        }
        for _ in 0..3 {
            let mut damaged = whole.clone();
            let Some((file, bit)) = choose_bit(&mut self.rng, &mut damaged, self.last_batch.as_ref()) else {
                return Ok(());
            };
            damaged.flip_bit(&file, bit);
            self.damaged += 1;
            match recover(&mut damaged, options, tree_options, SERVER, &VOTERS) {
                Err(_) => self.refused += 1,
                Ok(Opened { recovered, .. }) => {
                    let unnoticed = |what: String| {
                        Violation::new(format!("with bit {bit} of {file} flipped, recovery led to {what}"))
                    };
                    if recovered.record != record {
                        return Err(unnoticed(format!("record {}", recovered.record)).into());
                    }
                    compare(&recovered.tree, self.checker.applied())
                        .map_err(|violation| unnoticed(violation.to_string()))?;
                }
            }
        }
        Ok(())
    }
}
