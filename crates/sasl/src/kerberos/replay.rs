//! What was seen of late, so that nobody comes in with what another one has sent.

use std::collections::{BTreeSet, VecDeque};

use sha2::{Digest, Sha256};

/// Clients that come within the time that authenticators are remembered. When there are more, the next have to wait;
/// only who has a ticket can bring one.
const SEEN_MAX: usize = 1 << 18;

/// Authenticators of the last minutes, by a hash of their encrypted bytes: without the key nobody makes other bytes of
/// the same authenticator.
#[derive(Default)]
pub(super) struct Replays {
    seen: BTreeSet<[u8; 16]>,
    /// In the order in which they came, with the time from which on each is too old to be taken.
    order: VecDeque<(u64, [u8; 16])>,
}

impl Replays {
    /// Notes an authenticator that was taken now.
    ///
    /// # Errors
    /// When it was there already, or too many were.
    pub(super) fn note(&mut self, authenticator: &[u8], now_ms: u64, keep_ms: u64) -> Result<(), String> {
        self.note_within(authenticator, now_ms, keep_ms, SEEN_MAX)
    }

    fn note_within(&mut self, bytes: &[u8], now_ms: u64, keep_ms: u64, most: usize) -> Result<(), String> {
        while let Some((_, old)) = self.order.pop_front_if(|(until_ms, _)| *until_ms < now_ms) {
            self.seen.remove(&old);
        }
        let hash = Sha256::digest(bytes);
        let mut key = [0; 16];
        key.copy_from_slice(&hash[..16]);
        if self.seen.contains(&key) {
            return Err(
                "the authenticator was used before: somebody sends again what another one has sent".into()
            );
        }
        if self.order.len() >= most {
            return Err(format!(
                "{most} clients have come within {} s; this one has to wait",
                keep_ms / 1000
            ));
        }
        self.seen.insert(key);
        self.order.push_back((now_ms.saturating_add(keep_ms), key));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_refused_until_it_is_too_old() {
        let mut replays = Replays::default();
        replays.note(b"a", 0, 10).unwrap();
        replays.note(b"b", 5, 10).unwrap();
        assert!(replays.note(b"a", 10, 10).unwrap_err().contains("used before"));
        replays.note(b"a", 11, 10).unwrap();
        assert!(replays.note(b"b", 15, 10).is_err());
        assert_eq!(replays.order.len(), 2);
    }

    #[test]
    fn there_are_no_more_than_may_be() {
        let mut replays = Replays::default();
        replays.note_within(b"a", 0, 10, 2).unwrap();
        replays.note_within(b"b", 1, 10, 2).unwrap();
        assert!(replays.note_within(b"c", 2, 10, 2).unwrap_err().contains("has to wait"));
        replays.note_within(b"c", 11, 10, 2).unwrap();
    }
}
