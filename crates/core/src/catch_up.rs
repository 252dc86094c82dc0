//! Clients that come back, and wait until their server has come as far as they have been shown. How it finds out:
//! `replica/catch_up.rs`.

use alloc::vec::Vec;
use stoa_front::ConnectionId;
use stoa_wire::Timestamp;

/// At the first partition: who has come back, and waits for what may have been shown elsewhere. Their first frames
/// are kept with their connections, and end with them.
#[derive(Default)]
pub(crate) struct Returning {
    /// Those on whose behalf the partitions were asked.
    pub(crate) asking: Vec<ConnectionId>,
    /// Which of them have not answered, a bit for each.
    pub(crate) missing: u64,
    /// What the others have applied.
    pub(crate) seen: Timestamp,
    /// Those who came later.
    pub(crate) next: Vec<ConnectionId>,
    /// When there are so many of them, those that are gone are forgotten.
    pub(crate) forget_at: usize,
}
