//! Appends that wait for what is before them.

use crate::frame::Place;
use alloc::collections::BTreeMap;
use bytes::Bytes;

/// Appends of one term, by place. An engine that is given one with a gap before it refuses it, and the leader then
/// sends to that server directly: so one frame out of order would cost the leader what the forest saves it.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    appends: BTreeMap<Place, (u64, Bytes)>,
    bytes: usize,
    /// The number of the newest append without positions that was taken in: older ones say nothing new.
    newest_empty: u64,
}

impl Hold {
    /// Takes in an append. `number` is that of its frame, 0 where it was pulled.
    pub(crate) fn put(&mut self, place: Place, number: u64, body: Bytes) {
        if place.previous == place.last {
            if number <= self.newest_empty {
                return;
            }
            self.newest_empty = number;
        }
        self.bytes += body.len();
        if let Some((_, former)) = self.appends.insert(place, (number, body)) {
            self.bytes -= former.len();
        }
    }

    /// Makes room: those that stand the farthest in the log are dropped, as they are wanted last. What follows on `end` is
    /// not held but about to go, so it stays however large it is.
    pub(crate) fn shrink(&mut self, end: u64, bytes_max: usize, count_max: usize) {
        while self.bytes > bytes_max || self.appends.len() > count_max {
            let Some(last) = self.appends.last_entry().filter(|last| last.key().previous > end) else {
                break;
            };
            self.bytes -= last.remove().1.len();
        }
    }

    /// Whether this append is here.
    pub(crate) fn has(&self, place: Place) -> bool {
        self.appends.contains_key(&place)
    }

    /// The next append that follows on `end` and says something new. Those that do not are dropped.
    pub(crate) fn next(&mut self, end: u64) -> Option<(Place, Bytes)> {
        loop {
            let first = self.appends.first_entry().filter(|first| first.key().previous <= end)?;
            let (place, (_, body)) = first.remove_entry();
            self.bytes -= body.len();
            if place.last > end || place.previous == place.last {
                return Some((place, body));
            }
        }
    }

    /// Where the first append begins; what is before it is missing.
    pub(crate) fn first(&self) -> Option<u64> {
        self.appends.first_key_value().map(|(place, _)| place.previous)
    }

    /// Forgets all: another term has begun.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(hold: &mut Hold, previous: u64, last: u64, number: u64) {
        hold.put(Place { previous, last }, number, Bytes::from(vec![0; 10]));
    }

    fn next(hold: &mut Hold, end: u64) -> Option<(u64, u64)> {
        hold.next(end).map(|(place, _)| (place.previous, place.last))
    }

    #[test]
    fn appends_come_out_in_the_order_of_the_log() {
        let mut hold = Hold::default();
        for (previous, last, number) in [(9, 12, 3), (5, 9, 2), (3, 5, 1), (3, 5, 1), (12, 12, 4)] {
            put(&mut hold, previous, last, number);
        }
        assert_eq!((next(&mut hold, 2), hold.first()), (None, Some(3)));
        assert_eq!(next(&mut hold, 3), Some((3, 5)));
        assert_eq!(next(&mut hold, 7), Some((5, 9)), "of which some is there");
        assert_eq!(next(&mut hold, 9), Some((9, 12)));
        assert_eq!(next(&mut hold, 12), Some((12, 12)));
        assert_eq!((next(&mut hold, 99), hold.bytes), (None, 0));
    }

    #[test]
    fn what_is_there_already_or_was_said_is_dropped() {
        let mut hold = Hold::default();
        put(&mut hold, 3, 5, 1);
        put(&mut hold, 5, 5, 2);
        assert_eq!(next(&mut hold, 6), Some((5, 5)));
        for number in [1, 2] {
            put(&mut hold, 5, 5, number);
        }
        assert_eq!((next(&mut hold, 6), hold.bytes), (None, 0));
    }

    #[test]
    fn the_farthest_is_dropped_when_there_is_no_room() {
        let mut hold = Hold::default();
        (10..40).rev().for_each(|at| put(&mut hold, at, at + 1, at));
        hold.shrink(5, 100, 1000);
        let last = |hold: &Hold| hold.appends.last_key_value().map(|(place, _)| place.last);
        assert_eq!((hold.bytes, hold.first(), last(&hold)), (100, Some(10), Some(20)));
        hold.shrink(5, 1000, 3);
        assert_eq!((hold.bytes, hold.first(), last(&hold)), (30, Some(10), Some(13)));
        hold.put(Place { previous: 4, last: 9 }, 1, Bytes::from(vec![0; 200]));
        hold.shrink(5, 100, 1000);
        assert_eq!((hold.bytes, next(&mut hold, 5)), (200, Some((4, 9))), "what follows is not held");
    }
}
