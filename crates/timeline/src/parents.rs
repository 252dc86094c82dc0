//! Which parent a reader takes, and when it goes to a better one.
//!
//! A reader may follow any of the addresses that it was given, and no other: it knows by its settings how each of them is
//! to prove who it is. Before it takes one it asks all of them how they stand. It wants one that is near, and of those one
//! with few readers. Hundreds may look at the same moment and see the same, so nobody takes the best one: of two that
//! chance names each takes the better one, which spreads them almost as evenly. And whoever could do better
//! elsewhere goes there only by chance, as many as would make the two even.

use alloc::vec::Vec;

/// What a server between a reader and the ensemble counts for: as many readers less make up for it.
const HOP_READERS: u64 = 8;
/// Who answers within this and twice what the nearest one takes is near; who is to be left for that takes twice as long.
const NEAR_US: u64 = 1000;
/// Below this no difference is worth a change.
const MARGIN_READERS: u64 = 4;
/// Every so many who would gain by going to someone nearer do so at a time.
const NEARER_ONE_IN: u64 = 4;

/// How somebody who may be a parent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParentOffer {
    /// Readers right below it.
    pub readers: u32,
    /// As many it lets in.
    pub readers_max: u32,
    /// How many servers are between a reader below it and the ensemble, itself counted; `None` where it has no way there.
    pub distance: Option<u8>,
    /// What it takes to ask it something, microseconds.
    pub round_trip_us: u64,
}

impl ParentOffer {
    fn has_room(&self) -> bool {
        self.distance.is_some() && self.readers < self.readers_max
    }

    fn cost(&self) -> u64 {
        u64::from(self.readers) + HOP_READERS * u64::from(self.distance.unwrap_or(u8::MAX))
    }
}

/// Chooses among parents. Two with the same seed choose the same.
#[derive(Debug)]
pub struct ParentChoice {
    state: u64,
    in_order: bool,
}

impl ParentChoice {
    /// With `in_order` an earlier address is always better than a later one.
    #[must_use]
    pub fn new(seed: u64, in_order: bool) -> Self {
        Self { state: seed, in_order }
    }

    /// Below this number, which is more than 0.
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// The microseconds until it is looked whether another one is better: one to two times this.
    pub fn pause_us(&mut self, at_least_us: u64) -> u64 {
        at_least_us + self.below(at_least_us.max(1))
    }

    /// In which order they are to be tried, each by its index. Of some nothing is known: they are away, or of an older
    /// release. Nobody is left out, since whoever refuses says why.
    pub fn order(&mut self, offers: &[Option<ParentOffer>]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..offers.len()).collect();
        if self.in_order {
            return order;
        }
        let nearest_us = nearest_us(offers);
        let rank = |at: &usize| match &offers[*at] {
            Some(offer) if offer.has_room() && is_near(offer, nearest_us) => (0, offer.cost()),
            Some(offer) if offer.has_room() => (1, offer.round_trip_us),
            None => (2, 0),
            Some(_) => (3, 0),
        };
        order.sort_by_key(rank);
        let near = order.iter().take_while(|at| rank(at).0 == 0).count() as u64;
        if near > 1 {
            // The better one of two stands before the other.
            let (one, other) = (self.below(near), self.below(near - 1));
            let other = if other >= one { other + 1 } else { other };
            let chosen = order.remove(usize::try_from(one.min(other)).unwrap_or(0));
            order.insert(0, chosen);
        }
        order
    }

    /// The one to go to from the one at `current`, if another one is clearly better and it is this reader's turn.
    pub fn better(&mut self, current: usize, offers: &[Option<ParentOffer>]) -> Option<usize> {
        if self.in_order {
            return (0..current).find(|at| offers[*at].is_some_and(|offer| offer.has_room()));
        }
        let own = offers.get(current).copied().flatten()?;
        let nearest_us = nearest_us(offers);
        let near: Vec<(usize, ParentOffer)> = offers
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != current)
            .filter_map(|(at, offer)| offer.map(|offer| (at, offer)))
            .filter(|(_, offer)| offer.has_room() && is_near(offer, nearest_us))
            .collect();
        if own.round_trip_us > 2 * (2 * nearest_us + NEAR_US) && !near.is_empty() {
            let at = self.below(near.len() as u64);
            let goes = self.below(NEARER_ONE_IN) == 0;
            return near.get(usize::try_from(at).unwrap_or(0)).map(|(at, _)| *at).filter(|_| goes);
        }
        let is_better = |offer: &ParentOffer| own.cost() >= offer.cost() + offer.cost() / 4 + MARGIN_READERS;
        let better: Vec<(usize, u64)> = near
            .iter()
            .filter(|(_, offer)| is_better(offer))
            .map(|(at, offer)| (*at, own.cost() - offer.cost()))
            .collect();
        let at = self.below(better.len().max(1) as u64);
        let (at, excess) = better.get(usize::try_from(at).unwrap_or(0)).copied()?;
        // Half of the difference would make the two even; half of that does not overshoot.
        let goes = self.below(4 * u64::from(own.readers.max(1))) < excess;
        goes.then_some(at)
    }
}

fn nearest_us(offers: &[Option<ParentOffer>]) -> u64 {
    let with_room = offers.iter().flatten().filter(|offer| offer.has_room());
    with_room.map(|offer| offer.round_trip_us).min().unwrap_or(0)
}

fn is_near(offer: &ParentOffer, nearest_us: u64) -> bool {
    offer.round_trip_us <= nearest_us.saturating_mul(2).saturating_add(NEAR_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(readers: u32, distance: Option<u8>, round_trip_us: u64) -> Option<ParentOffer> {
        Some(ParentOffer { readers, readers_max: 200, distance, round_trip_us })
    }

    #[test]
    fn who_is_near_with_few_readers_is_first_and_who_is_full_or_without_a_way_last() {
        let full = Some(ParentOffer { readers: 5, readers_max: 5, distance: Some(1), round_trip_us: 10 });
        let offers = [
            full,
            offer(9, Some(1), 300),
            offer(0, None, 20),
            None,
            offer(2, Some(1), 400),
            offer(0, Some(1), 9000),
        ];
        for seed in 0..50 {
            assert_eq!(
                ParentChoice::new(seed, false).order(&offers),
                [4, 1, 5, 3, 0, 2],
                "of two the better one"
            );
        }
        assert_eq!(ParentChoice::new(1, true).order(&offers), [0, 1, 2, 3, 4, 5]);
        // A server in between has to be worth it.
        for (readers, first) in [(7, 0), (20, 1)] {
            let offers = [offer(readers, Some(1), 100), offer(0, Some(2), 100)];
            assert_eq!(ParentChoice::new(3, false).order(&offers)[0], first, "{readers}");
        }
        assert_eq!(ParentChoice::new(3, false).order(&[]), Vec::<usize>::new());
    }

    #[test]
    fn in_order_an_earlier_one_with_a_way_and_room_is_better() {
        let mut choice = ParentChoice::new(1, true);
        let full = Some(ParentOffer { readers: 5, readers_max: 5, distance: Some(1), round_trip_us: 10 });
        let offers = [None, full, offer(0, None, 9), offer(100, Some(3), 900_000), offer(0, Some(1), 1)];
        assert_eq!((choice.better(4, &offers), choice.better(3, &offers)), (Some(3), None));
    }

    #[test]
    fn somebody_far_is_left_for_somebody_near_but_not_all_at_once_and_not_back() {
        let offers = [offer(3, Some(1), 80_000), offer(50, Some(1), 300)];
        let go =
            (0..1000).filter(|seed| ParentChoice::new(*seed, false).better(0, &offers) == Some(1)).count();
        assert!((200..300).contains(&go), "{go}");
        assert!((0..1000).all(|seed| ParentChoice::new(seed, false).better(1, &offers).is_none()));
        // What is a bit nearer is not worth it.
        let offers = [offer(3, Some(1), 2900), offer(3, Some(1), 800)];
        assert!((0..1000).all(|seed| ParentChoice::new(seed, false).better(0, &offers).is_none()));
    }

    /// Readers below some parents, who all look at the same moment: the worst there is.
    struct Fleet {
        choices: Vec<ParentChoice>,
        below: Vec<usize>,
        moves: usize,
    }

    impl Fleet {
        fn offers(&self, parents: usize) -> Vec<Option<ParentOffer>> {
            let count = |at: usize| self.below.iter().filter(|parent| **parent == at).count() as u32;
            (0..parents).map(|at| offer(count(at), Some(1), 100 + at as u64)).collect()
        }

        fn look(&mut self, parents: usize) {
            let offers = self.offers(parents);
            for (choice, below) in self.choices.iter_mut().zip(&mut self.below) {
                if let Some(better) = choice.better(*below, &offers) {
                    *below = better;
                    self.moves += 1;
                }
            }
        }

        fn spread(&self, parents: usize) -> Vec<u32> {
            self.offers(parents).iter().flatten().map(|offer| offer.readers).collect()
        }
    }

    #[test]
    fn hundreds_spread_evenly_and_then_stay_where_they_are() {
        let choices: Vec<ParentChoice> = (0..160).map(|seed| ParentChoice::new(seed, false)).collect();
        let mut fleet = Fleet { choices, below: Vec::new(), moves: 0 };
        // All start at once: nobody has any readers yet.
        let empty: Vec<_> = (0..4).map(|at| offer(0, Some(1), 100 + at)).collect();
        fleet.below = fleet.choices.iter_mut().map(|choice| choice.order(&empty)[0]).collect();
        assert!(
            fleet.spread(3).len() == 3 && fleet.spread(4).iter().all(|count| *count < 90),
            "{:?}",
            fleet.spread(4)
        );
        // All are below the first one, as the others were away.
        fleet.below = vec![0; 160];
        (0..30).for_each(|_| fleet.look(4));
        let even = fleet.spread(4);
        assert!(even.iter().all(|count| (30..=52).contains(count)), "{even:?}");
        assert!(fleet.moves < 220, "{} moves of 160 readers", fleet.moves);
        let moves = fleet.moves;
        (0..200).for_each(|_| fleet.look(4));
        assert!(fleet.moves - moves < 12, "{} moves later on: {:?}", fleet.moves - moves, fleet.spread(4));
    }

    #[test]
    fn readers_do_not_look_in_step() {
        let pauses: Vec<u64> = (0..100).map(|seed| ParentChoice::new(seed, false).pause_us(60)).collect();
        assert!(pauses.iter().all(|pause| (60..120).contains(pause)));
        assert!(pauses.iter().filter(|pause| **pause < 90).count() > 30, "{pauses:?}");
    }
}
