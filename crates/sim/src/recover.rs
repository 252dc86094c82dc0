//! From the folder to the state: the newest good snapshot, then every later entry.

use stoa_core::TIMELINE;
use stoa_storage::{Disk, Log, Options, Recovery, SnapshotHeader, StorageError};
use stoa_tree::{Loader, Tree, Updates};

/// A log that is open, and the state that it led to.
#[derive(Debug)]
pub struct Recovered {
    /// The log.
    pub log: Log,
    /// The state.
    pub tree: Tree,
    /// Position of the last entry in it.
    pub position: u64,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// Opens a folder.
///
/// # Errors
/// When it is damaged, or the disk fails.
pub fn recover<D: Disk + ?Sized>(
    disk: &mut D,
    options: &Options,
    tree_options: &stoa_tree::Options,
) -> Result<Recovered, StorageError> {
    let mut rebuild = Rebuild {
        options: tree_options.clone(),
        tree: Tree::new(tree_options.clone()),
        position: 0,
        loading: None,
        warnings: Vec::new(),
    };
    let log = Log::open(disk, options, &mut rebuild)?;
    Ok(Recovered { log, tree: rebuild.tree, position: rebuild.position, warnings: rebuild.warnings })
}

struct Rebuild {
    options: stoa_tree::Options,
    tree: Tree,
    position: u64,
    loading: Option<(Loader, u64)>,
    warnings: Vec<String>,
}

impl Recovery for Rebuild {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        let position = header.positions.iter().find(|(timeline, _)| *timeline == TIMELINE);
        self.loading =
            Some((Loader::new(self.options.clone()), position.map_or(0, |(_, position)| *position)));
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        match &mut self.loading {
            Some((loader, _)) => loader.chunk(bytes).map_err(|error| error.to_string()),
            None => Err("a piece of a snapshot came before its beginning".into()),
        }
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        let (loader, position) = self.loading.take().ok_or("a snapshot ended before its beginning")?;
        self.tree = loader.finish().map_err(|error| error.to_string())?;
        self.position = position;
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        self.loading = None;
    }

    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        if timeline != TIMELINE {
            return Err(format!("timeline {timeline} is not known here"));
        }
        for update in Updates::new(payload) {
            let applied = update.and_then(|update| self.tree.apply(&update, &mut ()));
            applied.map_err(|error| error.to_string())?;
        }
        self.position = position;
        Ok(())
    }

    fn warning(&mut self, message: &str) {
        self.warnings.push(message.into());
    }
}
