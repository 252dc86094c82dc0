//! The znode at a lock's path, which is either of two things, and never both.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use core::time::Duration;

use stoa_client_core::{Call, Operation};
use stoa_wire::{CreateMode, ErrorCode, Stat, path as znode_path};

use super::super::error::Error;
use super::super::service::{Events, Service};
use super::super::znodes::{Znodes, is_lost};
use super::choice::Estimates;

/// The version of the data of a directory that the lock has made. The leaf of a holder has version 0, since nobody
/// sets its data: so who deletes an empty directory, and is late, deletes nobody's leaf.
const DIRECTORY_VERSION: i32 = 1;

/// How often servers delete directories that are empty, unless they are told otherwise (`container-check`).
const CLEARED_EVERY: Duration = Duration::from_secs(60);
/// Who expects to lose more by a directory that is gone asks for it in any case: that costs about as much.
const WORTH_ASKING: Duration = Duration::from_micros(100);

/// What stands at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing, or nobody knows.
    Nothing,
    /// The leaf of a holder: an ephemeral znode, which cannot have children.
    Leaf,
    /// The directory of a queue.
    Directory,
}

/// The path of a lock, and what was seen there last. Clones share that; it may be wrong at any time, and decides only
/// which requests are made in advance.
#[derive(Debug, Clone)]
pub(in super::super) struct Slot<S> {
    pub(in super::super) znodes: Znodes<S>,
    pub(in super::super) path: String,
    sight: Arc<Sight>,
    pub(super) estimates: Arc<Estimates>,
}

#[derive(Debug, Default)]
struct Sight {
    seen: AtomicU8,
    /// By the service's clock.
    at_us: AtomicU64,
}

impl<S: Service> Slot<S> {
    pub(in super::super) fn new(service: &S, path: &str) -> Self {
        Self {
            znodes: Znodes::new(service),
            path: path.to_owned(),
            sight: Arc::default(),
            estimates: Arc::default(),
        }
    }

    pub(super) fn seen(&self) -> Seen {
        match self.sight.seen.load(Ordering::Relaxed) {
            1 => Seen::Leaf,
            2 => Seen::Directory,
            _ => Seen::Nothing,
        }
    }

    pub(super) fn sees(&self, seen: Seen) {
        self.sight.at_us.store(self.now_us(), Ordering::Relaxed);
        self.sight.seen.store(seen as u8, Ordering::Relaxed);
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.znodes.service.now().as_micros()).unwrap_or(u64::MAX)
    }

    /// Whether a request to make the directory may be left out. The longer nobody was seen there, the likelier it is
    /// that it is gone, which costs another trip.
    pub(super) fn expects_directory(&self) -> bool {
        let since =
            Duration::from_micros(self.now_us().saturating_sub(self.sight.at_us.load(Ordering::Relaxed)));
        let gone = since.min(CLEARED_EVERY).as_secs_f64() / CLEARED_EVERY.as_secs_f64();
        self.seen() == Seen::Directory && self.estimates.trip().mul_f64(gone) <= WORTH_ASKING
    }

    fn sees_stat(&self, stat: Option<&Stat>) -> Seen {
        let seen = match stat {
            None => Seen::Nothing,
            Some(stat) if is_leaf(stat) => Seen::Leaf,
            Some(_) => Seen::Directory,
        };
        self.sees(seen);
        seen
    }

    /// The request to make the directory, if there is nothing.
    pub(super) fn make_call(&self) -> Call {
        let create = Operation::Create {
            path: self.path.clone(),
            data: Vec::new(),
            acl: self.znodes.acl.clone(),
            mode: CreateMode::Container,
            ttl_ms: None,
        };
        let mark = Operation::SetData { path: self.path.clone(), data: Vec::new(), version: Some(0) };
        Call::Multi([create, mark].into())
    }

    /// The request to delete the directory, if it is empty.
    pub(super) fn clear_call(&self) -> Call {
        Call::Delete { path: self.path.clone(), version: Some(DIRECTORY_VERSION) }
    }

    /// Sees to it that the znodes above are there.
    pub(super) async fn make_parents(&self) -> Result<(), Error> {
        match znode_path::split(&self.path) {
            Some((parent, _)) => self.znodes.make(parent, b"", CreateMode::Persistent).await,
            None => Err(Error::of(&self.path, ErrorCode::BadArguments)),
        }
    }

    /// What stands there now.
    pub(super) async fn look(&self) -> Result<Seen, Error> {
        let stat = self.znodes.stat(&self.path).await?;
        Ok(self.sees_stat(stat.as_ref()))
    }

    /// What stands there once it is no leaf, or may be none any more.
    pub(super) async fn look_behind_leaf(&self) -> Result<Seen, Error> {
        let Some((stat, mut watch)) = self.znodes.watch(&self.path).await? else {
            return Ok(self.sees_stat(None));
        };
        if self.sees_stat(Some(&stat)) == Seen::Leaf {
            // An event or the end of the watch: whoever tries next finds out.
            let _ = watch.next().await;
            self.sees(Seen::Nothing);
        }
        Ok(self.seen())
    }

    /// What became of the request to make the directory: whether it is there, or `false` if there is nothing to
    /// make it in.
    pub(super) fn is_made(&self, result: Result<(), ErrorCode>) -> Result<bool, Error> {
        match result {
            Ok(()) | Err(ErrorCode::NodeExists) => Ok(true),
            Err(ErrorCode::NoNode) => Ok(false),
            // It is asked for again.
            Err(code) if is_lost(code) => Ok(true),
            Err(code) => Err(Error::of(&self.path, code)),
        }
    }
}

/// Whether a session is its owner; containers and TTL znodes have owners that are no sessions.
fn is_leaf(stat: &Stat) -> bool {
    const CONTAINER: i64 = i64::MIN;
    // Nothing but the TTL stands behind these three bytes. Sessions may begin with the first of them.
    const TTL: i64 = 0xFF_00_00;
    let owner = stat.ephemeral_owner;
    owner != 0 && owner != CONTAINER && (owner >> 40) & 0xFF_FF_FF != TTL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_any_server_owns_what_containers_and_ttls_do_not() {
        let owned = |ephemeral_owner: u64| {
            is_leaf(&Stat { ephemeral_owner: ephemeral_owner.cast_signed(), ..Stat::default() })
        };
        // Nobody, a container, and the shortest and longest TTL.
        for owner in [0, 1 << 63, 0xff00_0000_0000_0001, 0xff00_00ff_ffff_ffff] {
            assert!(!owned(owner), "{owner:#x}");
        }
        for server in 0..=255_u64 {
            assert!(owned(server << 56 | 0x0080_0000_0000_0000), "{server}");
        }
    }
}
