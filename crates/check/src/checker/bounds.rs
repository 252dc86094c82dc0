//! What clients can make a server hold.

use super::Checker;
use crate::{Checked, wrong};
use stoa_core::Shard;

/// The largest answer that the workload can ask for.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// What the server adds by itself in a tick: the ends of sessions and of znodes.
const OWN_UPDATES_BYTES_MAX: usize = 16 << 10;

impl Checker {
    /// What clients can make the server hold is bounded.
    ///
    /// # Errors
    /// When there is more of something than may be.
    pub fn check_bounds(&self, server: &Shard) -> Checked {
        let limits = &self.config.limits;
        let at_most = |most: usize, count: usize, what: &str| match count > most {
            true => wrong(format!("there are {count} {what}, at most {most} may be")),
            false => Ok(()),
        };
        let mut waiting = 0;
        for (_, connection) in server.connections() {
            // One more answer may stand on top of the limit.
            let most = limits.output_close_bytes + ANSWER_BYTES_MAX;
            at_most(most, connection.output_bytes(), "bytes of output on a connection")?;
            let count = connection.outstanding();
            at_most(limits.outstanding_per_connection, count, "requests of a connection that wait")?;
            waiting += count;
        }
        let (_, proposed) = server.log_queue();
        // A turn's last frame may pass the limit; an update is not much longer than its frame.
        let most = limits.log_queue_bytes + 2 * limits.frame_bytes + OWN_UPDATES_BYTES_MAX;
        at_most(most, proposed.max(server.asked_bytes()), "bytes that wait for the log")?;
        let count = server.outstanding();
        if count != waiting {
            return wrong(format!("{count} requests are counted, {waiting} wait"));
        }
        at_most(limits.outstanding, count, "requests that wait")
    }
}
