//! What happens to bytes on their way, without sockets: when they arrive.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::chance::Chance;
use crate::{Nanos, Quality};

/// What a segment carries on an Ethernet with timestamps.
pub(crate) const SEGMENT_BYTES: usize = 1448;
/// How much later than an acknowledgement is due a lost segment is sent again: Linux's least.
const RETRANSMIT: Duration = Duration::from_millis(200);
/// So many segments behind a lost one say at once that it is missing.
const DUPLICATES: usize = 3;
/// How often one segment is lost at most.
const LOSSES_MAX: u32 = 6;
/// A sender is held back when so much time's worth waits in front of a narrow link.
const BACKLOG_MAX: Duration = Duration::from_millis(100);
/// Bytes of one connection that are under way in one direction.
const UNDER_WAY_MAX: usize = 16 << 20;

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

/// One direction of a link, which all its connections share.
#[derive(Debug)]
pub(crate) struct Wire {
    quality: Quality,
    /// When everything that was sent so far has been put on it.
    free_at: Nanos,
    chance: Chance,
}

impl Wire {
    pub(crate) fn new(quality: Quality, seed: u64) -> Self {
        Self { quality, free_at: 0, chance: Chance::new(seed) }
    }

    pub(crate) fn quality(&self) -> Quality {
        self.quality
    }

    pub(crate) fn set(&mut self, quality: Quality) {
        self.quality = quality;
        // What waits in front of it waits no longer than it would on the new one.
        self.free_at = 0;
    }

    /// When more may be sent.
    pub(crate) fn open_at(&self) -> Nanos {
        self.free_at.saturating_sub(nanos(BACKLOG_MAX))
    }

    /// When bytes arrive that are sent now, if nothing is in front of them.
    pub(crate) fn carry(&mut self, now: Nanos, bytes: usize, round_trip: Duration) -> Nanos {
        let mut sent = now;
        if let Some(bits_per_second) = self.quality.bandwidth {
            let takes = bytes as u128 * 8 * 1_000_000_000 / u128::from(bits_per_second.max(1));
            sent = self.free_at.max(now) + takes as Nanos;
            self.free_at = sent;
        }
        let Quality { delay, jitter, .. } = self.quality;
        let earliest = nanos(delay.saturating_sub(jitter));
        let more = self.chance.share() * 2.0 * nanos(jitter.min(delay)) as f64;
        sent + earliest + more as Nanos + nanos(self.lost(bytes.div_ceil(SEGMENT_BYTES), round_trip))
    }

    /// How much later so many segments are all there because some were lost.
    fn lost(&mut self, segments: usize, round_trip: Duration) -> Duration {
        let mut latest = Duration::ZERO;
        if self.quality.loss == 0.0 {
            return latest;
        }
        for segment in 0..segments {
            let (mut late, mut timeout) = (Duration::ZERO, round_trip + RETRANSMIT);
            for losses in 0..LOSSES_MAX {
                if self.chance.share() >= self.quality.loss {
                    break;
                }
                // Once it is noticed by what follows; what is sent again and lost again waits for the timeout.
                if losses == 0 && segments - segment > DUPLICATES {
                    late += round_trip;
                } else {
                    late += timeout;
                    timeout *= 2;
                }
            }
            latest = latest.max(late);
        }
        latest
    }
}

/// One direction of one connection: what is under way, in order.
#[derive(Debug, Default)]
pub(crate) struct Line {
    under_way: VecDeque<(Nanos, Bytes)>,
    bytes: usize,
    /// When the last of it arrives.
    last: Nanos,
    is_ended: bool,
}

impl Line {
    /// Nothing arrives before that.
    pub(crate) fn opening(at: Nanos) -> Self {
        Self { last: at, ..Self::default() }
    }

    /// Sends bytes. What would overtake something waits behind it.
    pub(crate) fn send(&mut self, arrives: Nanos, bytes: Bytes) {
        self.last = self.last.max(arrives);
        self.bytes += bytes.len();
        self.under_way.push_back((self.last, bytes));
    }

    /// Nothing more is sent. The end travels as bytes do.
    pub(crate) fn end(&mut self, arrives: Nanos) {
        self.send(arrives, Bytes::new());
        self.is_ended = true;
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.is_ended && self.bytes < UNDER_WAY_MAX
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.under_way.front().map(|(at, _)| *at)
    }

    /// What has arrived, piece by piece. An empty one is the end.
    pub(crate) fn receive(&mut self, now: Nanos) -> Option<Bytes> {
        let (_, bytes) = self.under_way.pop_front_if(|(at, _)| *at <= now)?;
        self.bytes -= bytes.len();
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn wire(quality: Quality) -> Wire {
        Wire::new(quality, 1)
    }

    #[test]
    fn a_delay_is_what_it_says() {
        let mut wire = wire(Quality { delay: ms(25), ..Quality::default() });
        for at in [0, 7, 1000] {
            assert_eq!(wire.carry(at * MS, 100_000, ms(50)), (at + 25) * MS);
        }
    }

    #[test]
    fn jitter_goes_both_ways_and_nothing_is_overtaken() {
        let mut wire = wire(Quality { delay: ms(25), jitter: ms(5), ..Quality::default() });
        let mut line = Line::default();
        let mut sum = 0;
        for at in 0..100_000 {
            let arrives = wire.carry(at * MS, 1, ms(50));
            let took = arrives - at * MS;
            assert!((20 * MS..=30 * MS).contains(&took), "{took}");
            sum += took;
            line.send(arrives, Bytes::copy_from_slice(&at.to_le_bytes()));
        }
        assert!((sum / 100_000).abs_diff(25 * MS) < MS / 10, "{sum}");
        let mut received = 0_u64;
        let mut before = 0;
        while let Some(at) = line.next() {
            assert!(at >= before);
            assert_eq!(line.receive(at - 1), None);
            assert_eq!(line.receive(at).unwrap(), received.to_le_bytes()[..]);
            (received, before) = (received + 1, at);
        }
        assert_eq!((received, line.bytes), (100_000, 0));
    }

    #[test]
    fn a_narrow_link_is_shared_and_holds_senders_back() {
        // 8 mbit: a millisecond for 1000 bytes.
        let mut wire = wire(Quality { delay: ms(10), bandwidth: Some(8_000_000), ..Quality::default() });
        assert_eq!(wire.carry(0, 1000, ms(20)), 11 * MS);
        assert_eq!(wire.carry(0, 5000, ms(20)), 16 * MS);
        assert_eq!(wire.carry(100 * MS, 1000, ms(20)), 111 * MS);
        assert!(wire.open_at() <= 100 * MS);
        wire.carry(100 * MS, 200_000, ms(20));
        assert_eq!(wire.open_at(), 201 * MS);
        // A wide one lets it go at once.
        wire.set(Quality::default());
        assert_eq!((wire.open_at(), wire.carry(101 * MS, 1000, ms(20))), (0, 101 * MS));
    }

    #[test]
    fn lost_segments_come_later() {
        let loss = 0.1;
        let mut wire = wire(Quality { delay: ms(10), loss, ..Quality::default() });
        // A segment by itself is missed after the timeout, and after twice that when it is lost again.
        let mut counts = [0_u32; 3];
        for _ in 0..100_000 {
            match wire.carry(0, SEGMENT_BYTES, ms(20)) / MS {
                10 => counts[0] += 1,
                230 => counts[1] += 1,
                670 => counts[2] += 1,
                more => assert!(more > 670, "{more}"),
            }
        }
        for (count, expected) in counts.into_iter().zip([0.9, 0.09, 0.009]) {
            assert!((f64::from(count) / 100_000.0 / expected - 1.0).abs() < 0.1, "{counts:?}");
        }
        // With more behind it, it is sent again after a round trip.
        let fast = (0..1000).filter(|_| wire.carry(0, 20 * SEGMENT_BYTES, ms(20)) == 30 * MS).count();
        assert!(fast > 400, "{fast}");
    }

    #[test]
    fn too_much_under_way_is_not_taken() {
        let mut line = Line::default();
        assert!(line.has_room());
        line.send(5, Bytes::from(vec![0; UNDER_WAY_MAX]));
        assert!(!line.has_room());
        assert!(line.receive(5).is_some());
        assert!(line.has_room());
        line.end(3);
        assert!(!line.has_room());
        assert_eq!((line.next(), line.receive(5)), (Some(5), Some(Bytes::new())));
    }
}
