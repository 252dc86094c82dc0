//! From what is on disk to a tree that can be served.

use std::time::Instant;

use stoa_storage::{Recovery, SnapshotHeader};
use stoa_tree::{Loader, Options, Tree, Updates};

use crate::progress::Progress;

/// Builds the tree from the newest good snapshot and every later entry of the log.
pub(crate) struct Restore {
    options: Options,
    loader: Option<Loader>,
    tree: Tree,
    progress: Progress,
    began: Instant,
    /// How it went.
    pub(crate) report: RestoreReport,
}

/// How a recovery went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RestoreReport {
    /// Time until the snapshot was loaded.
    pub(crate) snapshot_ms: u64,
    /// Whether there was one.
    pub(crate) from_snapshot: bool,
    /// Updates applied after it.
    pub(crate) updates: u64,
}

impl Restore {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            tree: Tree::new(options.clone()),
            options,
            loader: None,
            progress: Progress::new("recovery"),
            began: Instant::now(),
            report: RestoreReport::default(),
        }
    }

    pub(crate) fn finish(self) -> (Tree, RestoreReport) {
        self.progress.finish();
        (self.tree, self.report)
    }
}

impl Recovery for Restore {
    fn snapshot_begin(&mut self, _header: &SnapshotHeader) -> Result<(), String> {
        self.loader = Some(Loader::new(self.options.clone()));
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        let loader = self.loader.as_mut().ok_or("a chunk outside a snapshot")?;
        loader.chunk(bytes).map_err(|error| error.to_string())
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        let loader = self.loader.take().ok_or("the end of a snapshot that never began")?;
        self.tree = loader.finish().map_err(|error| error.to_string())?;
        self.report.from_snapshot = true;
        self.report.snapshot_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        self.loader = None;
        self.tree = Tree::new(self.options.clone());
        self.report.from_snapshot = false;
    }

    fn entry(&mut self, _timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        for update in Updates::new(payload) {
            let update = update.map_err(|error| format!("position {position}: {error}"))?;
            self.tree
                .apply(&update, &mut ())
                .map_err(|error| format!("position {position}, zxid {:#x}: {error}", update.zxid))?;
            self.report.updates += 1;
        }
        Ok(())
    }

    fn progress(&mut self, done_bytes: u64, total_bytes: u64, what: &str) {
        self.progress.show(done_bytes, total_bytes, what);
    }

    fn warning(&mut self, message: &str) {
        tracing::warn!("recovery: {message}");
    }
}
