//! What was seen of late, so that nobody comes in with what another one has sent.

use std::collections::{BTreeSet, VecDeque};

use sha2::{Digest, Sha256};

use super::SKEW_S;

/// Clients that come within the time that authenticators are remembered. When there are more, the next have to wait;
/// only who has a ticket can bring one.
const SEEN_MAX: usize = 1 << 18;

/// An authenticator that was taken: a hash of its encrypted bytes. Without the key nobody makes other bytes of the same
/// authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    /// The time from which on it is too old to be taken again, in milliseconds since 1970.
    pub until_ms: u64,
    /// What it is known by.
    pub hash: [u8; 16],
}

impl Taken {
    /// How long one is remembered: as far as the clocks of client and server may be apart, in either direction.
    pub const KEEP_MS: u64 = 2 * SKEW_S.unsigned_abs() * 1000;
}

/// Authenticators of the last minutes.
#[derive(Default)]
pub(super) struct Replays {
    seen: BTreeSet<[u8; 16]>,
    /// In the order in which they came.
    order: VecDeque<Taken>,
    /// How many of the last of them nobody has asked for.
    untold: usize,
}

impl Replays {
    /// Those of before a restart.
    pub(super) fn new(mut taken: Vec<Taken>) -> Self {
        taken.sort_unstable();
        let order = taken.split_off(taken.len().saturating_sub(SEEN_MAX));
        Self { seen: order.iter().map(|taken| taken.hash).collect(), order: order.into(), untold: 0 }
    }

    /// Notes an authenticator that was taken now.
    ///
    /// # Errors
    /// When it was there already, or too many were.
    pub(super) fn note(&mut self, authenticator: &[u8], now_ms: u64) -> Result<(), String> {
        self.note_within(authenticator, now_ms, Taken::KEEP_MS, SEEN_MAX)
    }

    /// The next one that has come since somebody asked last.
    pub(super) fn poll(&mut self) -> Option<Taken> {
        // Some may be so old that they are forgotten.
        let first = self.order.len().saturating_sub(self.untold);
        let next = self.order.get(first).copied();
        self.untold = self.order.len().saturating_sub(first + 1);
        next
    }

    fn note_within(&mut self, bytes: &[u8], now_ms: u64, keep_ms: u64, most: usize) -> Result<(), String> {
        while let Some(old) = self.order.pop_front_if(|old| old.until_ms < now_ms) {
            self.seen.remove(&old.hash);
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&Sha256::digest(bytes)[..16]);
        if self.seen.contains(&hash) {
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
        self.seen.insert(hash);
        self.order.push_back(Taken { until_ms: now_ms.saturating_add(keep_ms), hash });
        self.untold += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_refused_until_it_is_too_old() {
        let mut replays = Replays::default();
        replays.note_within(b"a", 0, 10, 10).unwrap();
        replays.note_within(b"b", 5, 10, 10).unwrap();
        assert!(replays.note_within(b"a", 10, 10, 10).unwrap_err().contains("used before"));
        replays.note_within(b"a", 11, 10, 10).unwrap();
        assert!(replays.note_within(b"b", 15, 10, 10).is_err());
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

    #[test]
    fn what_is_told_is_known_after_a_restart() {
        let mut before = Replays::default();
        assert_eq!(before.poll(), None);
        before.note(b"a", 0).unwrap();
        before.note(b"b", 1).unwrap();
        let told: Vec<_> = std::iter::from_fn(|| before.poll()).collect();
        assert_eq!(told.iter().map(|taken| taken.until_ms).collect::<Vec<_>>(), [600_000, 600_001]);
        before.note(b"c", 2).unwrap();
        let last = before.poll().unwrap();
        assert_eq!((last.until_ms, before.poll()), (600_002, None));
        let mut after = Replays::new(vec![last, told[1], told[0]]);
        assert_eq!(after.poll(), None, "whoever has told of them knows them");
        for known in [b"a", b"b", b"c"] {
            assert!(after.note(known, 600_000).is_err());
        }
        after.note(b"a", 600_001).unwrap();
        assert_eq!(after.poll().unwrap().until_ms, 1_200_001);
    }

    #[test]
    fn what_is_forgotten_before_it_was_told_is_not_told() {
        let mut replays = Replays::default();
        replays.note_within(b"a", 0, 10, 10).unwrap();
        replays.note_within(b"b", 11, 10, 10).unwrap();
        assert_eq!(replays.poll().unwrap().until_ms, 21);
        assert_eq!(replays.poll(), None);
    }
}
