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
    /// When the snapshot that is being loaded was begun.
    created_ms: i64,
    /// How it went.
    pub(crate) report: RestoreReport,
}

/// How a recovery went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RestoreReport {
    /// Time until the snapshot was loaded.
    pub(crate) snapshot_ms: u64,
    /// What it holds, if there was one.
    pub(crate) snapshot: Option<LoadedSnapshot>,
    /// Updates applied after it.
    pub(crate) updates: u64,
}

/// A snapshot that the tree was loaded from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedSnapshot {
    /// The last update in it.
    pub(crate) zxid: i64,
    /// When it was begun, milliseconds since the epoch.
    pub(crate) created_ms: i64,
}

impl Restore {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            tree: Tree::new(options.clone()),
            options,
            loader: None,
            progress: Progress::new("recovery"),
            began: Instant::now(),
            created_ms: 0,
            report: RestoreReport::default(),
        }
    }

    pub(crate) fn finish(self) -> (Tree, RestoreReport) {
        self.progress.finish();
        (self.tree, self.report)
    }
}

impl Recovery for Restore {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        self.created_ms = header.created_ms;
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
        let zxid = self.tree.last_zxid();
        self.report.snapshot = Some(LoadedSnapshot { zxid, created_ms: self.created_ms });
        self.report.snapshot_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        self.loader = None;
        self.tree = Tree::new(self.options.clone());
        self.report.snapshot = None;
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
