//! A data folder that is a copy of another server's.
//!
//! The folder of a server that stood alone may be copied to others, which then take part with it: a backup that is put back
//! on all of them. What they have is then the beginning of what the server has that it was copied from, and goes on alone.
//! But somebody may have started a copy by itself, and clients may have written to it. What was acknowledged to them is
//! nowhere else; yet by positions and terms the two cannot be told apart. So before a server with a copy says anything to
//! anybody else, it compares its starts with those of the server that the folder is from: a start by which somebody decided
//! alone, and which that server has not made, is that of a copy that went on by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stoa_core::Starts;

use super::hello::Identity;

/// From whom the data folder is, as long as it has not become this server's own by joining.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copied {
    /// `None` where it is this server's own.
    from: Option<u64>,
    /// What it has is the beginning of what that server has.
    is_beginning: Arc<AtomicBool>,
}

impl Copied {
    pub(crate) fn from(server: Option<u64>) -> Self {
        Self { from: server, ..Self::default() }
    }

    /// Whether there may be more to say to a server with the same history, in words for the operator.
    pub(super) fn check(&self, me: u64, own: &Starts, other: &Identity) -> Result<(), String> {
        let Some(from) = self.open() else { return Ok(()) };
        if other.id != from {
            return Err(format!(
                "the data folder of server {me} is a copy of that of server {from}, which stood alone, and is compared with \
                 it before anything else: start server {from}; or, if it is no more, run `stoa recover` on one of the copies, and \
                 start the others with empty folders"
            ));
        }
        if own.last_alone().is_some_and(|start| other.starts.lack(start)) {
            return Err(format!(
                "the data folder of server {me} is a copy of that of server {from}, and has gone on by itself: what was \
                 written to it is nowhere else. If that is not needed, stop server {me}, move the folder away, and start it \
                 with an empty one. If it is, run `stoa recover` on it, which makes it an ensemble of its own"
            ));
        }
        Ok(())
    }

    /// A server whose name is proven has passed [`Copied::check`]. Returns whether there is something to say to the others
    /// from now on.
    pub(super) fn has_met(&self, server: u64) -> bool {
        self.open() == Some(server) && !self.is_beginning.swap(true, Ordering::Relaxed)
    }

    fn open(&self) -> Option<u64> {
        self.from.filter(|_| !self.is_beginning.load(Ordering::Relaxed))
    }
}
