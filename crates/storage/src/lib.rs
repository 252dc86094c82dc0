//! The one log of a server, its snapshots, and how both are read back.
//!
//! Many timelines share one log: everything that arrives while the disk is busy goes out as one
//! batch, with one write and one sync. Payloads are opaque bytes; this crate knows no znodes.
//! It does no input or output of its own but through [`Disk`], a small blocking trait, so that a
//! server drives it on a thread and a simulator drives it on a disk that loses, tears and fails.
//!
//! * [`Log::open`] recovers: newest good snapshot of each timeline first, then every later entry.
//! * [`Log::append`] stores a batch durably or leaves everything as it was.
//! * [`SnapshotWriter`] writes a snapshot of one timeline, on another thread if wanted.
//! * [`Log::purge`] removes what no kept snapshot needs.
//! * [`inspect`] reads the files of any folder, whole or damaged, without changing them.
//!
//! The files are described byte by byte in `docs/data-files.md`, with the reasoning on what is a
//! torn tail and what is damage.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod disk;
mod error;
pub mod faulty;
mod folder;
mod format;
pub mod inspect;
mod log;
mod positions;
mod purge;
mod reader;
mod recovery;
mod restore;
mod snapshot;
mod staging;

pub use disk::{Disk, DiskError, DiskErrorKind, FileInfo};
pub use error::{AppendError, StorageError};
pub use format::{BODY_BYTES_MAX, FORMAT_VERSION, FolderId, TIMELINES_MAX, snapshot_name};
pub use log::{Entry, Log, Options, Stats};
pub use purge::PurgeReport;
pub use recovery::Recovery;
pub use snapshot::{
    CHUNK_BYTES_MAX, FoundSnapshot, SnapshotHeader, SnapshotInfo, SnapshotReader, SnapshotWriter,
    list_snapshots, next_sequence,
};
