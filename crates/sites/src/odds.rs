//! What is known of one object: who used it last, and how often who has followed whom.
//!
//! A table has a row for each of up to three sites and says how likely each of them is next, after that one was last. With
//! each access the row of the site before forgets a thirty-third, so what was is worth half after 23 accesses;
//! in the beginning each access counts as much as those before it. A fourth site takes the place of that which is least
//! likely to come, and from then on it is known that there are more than are known.

use crate::Site;

/// Certainty.
pub(crate) const ONE: u32 = u16::MAX as u32;
/// So many sites are told apart.
const SLOTS: usize = 3;
/// Nobody's number.
const NOBODY: u8 = u8::MAX;
/// How likely a site is expected to come again of which nothing is known: most do.
const AGAIN: u16 = (ONE * 6 / 10) as u16;
/// The same where more sites come than are told apart.
const AGAIN_IN_CROWD: u16 = (ONE / 4) as u16;
/// So many accesses count what nobody has seen, or what is taken from the directory.
const SEED_WEIGHT: u16 = 2;
/// More accesses than these do not count: 32 of 33 parts are kept with each that follows, which is 0.97.
const WEIGHT_MAX: u16 = 32;
/// Bits of a row's weight less one.
const WEIGHT_BITS: usize = 5;
/// The bit behind the weights: more sites have come than there are rows.
const CROWD: u16 = 1 << 15;
/// After so many uses by one site in a row, more of them change nothing.
const TIMES_MAX: u32 = 256;

/// Who follows whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Odds {
    rows: [[u16; SLOTS]; SLOTS],
    /// Weights of the rows, five bits each, and [`CROWD`].
    weights: u16,
    sites: [u8; SLOTS],
    /// The row of the site that was last.
    last: u8,
}

impl Default for Odds {
    fn default() -> Self {
        Self { rows: [[0; SLOTS]; SLOTS], weights: 0, sites: [NOBODY; SLOTS], last: NOBODY }
    }
}

impl Odds {
    /// What is expected of something new in a directory: that its sites come again as they do there. That they are
    /// followed by others there says nothing of one object.
    pub(crate) fn seed(directory: &Self) -> Self {
        let mut odds = Self { sites: directory.sites, ..Self::default() };
        for slot in 0..SLOTS {
            odds.rows[slot][slot] = directory.rows[slot][slot];
            odds.set_weight(slot, SEED_WEIGHT);
        }
        odds
    }

    /// The site that was last.
    pub(crate) fn last(&self) -> Option<Site> {
        self.sites.get(usize::from(self.last)).map(|site| Site(*site))
    }

    /// Takes in that a site uses it, so many times.
    pub(crate) fn observe(&mut self, site: Site, times: u32) {
        if times == 0 {
            return;
        }
        let again = self.last_slot().filter(|last| self.sites[*last] == site.0);
        let slot = again.unwrap_or_else(|| self.slot_for(site));
        if let Some(last) = self.last_slot() {
            self.follow(last, slot);
        }
        (1..times.min(TIMES_MAX)).for_each(|_| self.follow(slot, slot));
        self.last = slot as u8;
    }

    /// Takes in that a site uses it so many times in a row, at some time before the last access.
    pub(crate) fn observe_again(&mut self, site: Site, times: u32) {
        if times > 0 {
            let slot = self.slot_for(site);
            (0..times.min(TIMES_MAX)).for_each(|_| self.follow(slot, slot));
        }
    }

    /// Whether a site was the last, and comes again as surely as can be put down: then that it does changes nothing.
    pub(crate) fn is_settled(&self, site: Site) -> bool {
        self.last() == Some(site) && self.slot(site).is_some_and(|slot| self.is_sure(slot))
    }

    /// The same of what many things have in common, where it is put down in pairs.
    pub(crate) fn is_settled_in_pairs(&self, site: Site) -> bool {
        let is_of_pairs = self.last == NOBODY && self.weights & CROWD == 0;
        is_of_pairs && self.slot(site).is_some_and(|slot| self.is_sure(slot))
    }

    /// Whether [`Odds::follow`] of a site by itself changes nothing.
    fn is_sure(&self, slot: usize) -> bool {
        let least = u32::from(WEIGHT_MAX) + 1;
        let is_kept = |(to, odds): (usize, &u16)| {
            let odds = u32::from(*odds);
            if to == slot { ONE - odds < least } else { odds < least }
        };
        self.weight(slot) == WEIGHT_MAX && self.rows[slot].iter().enumerate().all(is_kept)
    }

    /// Takes in that one site has followed another one, somewhere in what this stands for.
    ///
    /// What many things have in common may be many sites, of which each comes again all the same.
    pub(crate) fn observe_pair(&mut self, before: Site, after: Site, times: u32) {
        self.last = NOBODY;
        self.weights &= !CROWD;
        if times == 0 {
            return;
        }
        let from = self.slot_for(before);
        // So that the place of the one is not taken for the other.
        self.last = from as u8;
        self.weights &= !CROWD;
        self.observe(after, times);
        self.last = NOBODY;
    }

    /// How likely a site is next, when another one was last, of [`ONE`].
    pub(crate) fn next(&self, last: Site, next: Site) -> u32 {
        match (self.slot(last), self.slot(next)) {
            (Some(last), Some(next)) => u32::from(self.rows[last][next]),
            _ => 0,
        }
    }

    /// The other sites that are known, with how likely each is next, or after a third one, when this one was last. What is
    /// not known yet of who follows this one may be any of those that have been here.
    pub(crate) fn others(&self, last: Site) -> impl Iterator<Item = (Site, u32)> {
        let row = self.slot(last);
        let open = row.map_or(0, |row| self.open(row));
        let known =
            self.sites.into_iter().enumerate().filter(move |(_, site)| *site != NOBODY && *site != last.0);
        let likely = move |slot| {
            row.map_or(0, |row| self.soon(row, slot)) + if self.seen(slot) > 0 { open } else { 0 }
        };
        known.map(move |(slot, site)| (Site(site), likely(slot)))
    }

    /// Whether a site is told apart.
    pub(crate) fn knows(&self, site: Site) -> bool {
        self.slot(site).is_some()
    }

    /// How likely one of those is next that are not told apart, when this one was last.
    pub(crate) fn unknown(&self, last: Site) -> u32 {
        match self.slot(last) {
            Some(row) if self.weights & CROWD != 0 => self.open(row),
            _ => 0,
        }
    }

    /// What is left of a row for sites of which it does not say anything.
    fn open(&self, row: usize) -> u32 {
        ONE.saturating_sub(self.rows[row].iter().map(|odds| u32::from(*odds)).sum())
    }

    /// How likely a site is next, or after a third one.
    fn soon(&self, last: usize, next: usize) -> u32 {
        let third = (0..SLOTS).filter(|slot| *slot != last && *slot != next);
        let by = |slot: usize| u32::from(self.rows[last][slot]) * u32::from(self.rows[slot][next]) / ONE;
        u32::from(self.rows[last][next]) + third.map(by).sum::<u32>()
    }

    /// How what was done lately is shared out among the sites that are told apart, in percent, and whether there are more.
    ///
    /// It is the share that each has in the long run when they follow each other as the rows say (Kirchhoff's theorem on
    /// trees: all ways to come to a site from each other one). What a row does not say is taken to be any of the others.
    pub(crate) fn shares(&self) -> (impl Iterator<Item = (Site, u8)>, bool) {
        let is_seen: [bool; SLOTS] = core::array::from_fn(|slot| self.seen(slot) > 0);
        let others = |slot: usize| (0..SLOTS).filter(move |other| is_seen[*other] && *other != slot);
        let follows = |from: usize, to: usize| {
            let open = u64::from(self.open(from)) / others(from).count().max(1) as u64;
            u64::from(self.rows[from][to]) + open
        };
        let comes_to = |slot: usize| match (others(slot).next(), others(slot).nth(1)) {
            (Some(one), Some(two)) => {
                let direct = follows(one, slot) * follows(two, slot);
                let by_way = follows(one, two) * follows(two, slot) + follows(two, one) * follows(one, slot);
                direct + by_way
            }
            (Some(one), None) => follows(one, slot),
            _ => 1,
        };
        let mut weights: [u64; SLOTS] =
            core::array::from_fn(|slot| if is_seen[slot] { comes_to(slot) } else { 0 });
        if weights == [0; SLOTS]
            && let Some(last) = self.last_slot()
        {
            weights[last] = 1;
        }
        let total = weights.iter().sum::<u64>().max(1);
        let sites = self.sites;
        let percent =
            move |slot: usize| (Site(sites[slot]), ((weights[slot] * 100 + total / 2) / total) as u8);
        ((0..SLOTS).filter(move |slot| is_seen[*slot]).map(percent), self.weights & CROWD != 0)
    }

    /// How often something has followed a site, beyond what was expected of it.
    pub(crate) fn evidence(&self, last: Site) -> u16 {
        self.slot(last).map_or(0, |slot| self.weight(slot).saturating_sub(SEED_WEIGHT))
    }

    fn slot(&self, site: Site) -> Option<usize> {
        self.sites.iter().position(|known| *known == site.0 && *known != NOBODY)
    }

    fn last_slot(&self) -> Option<usize> {
        (usize::from(self.last) < SLOTS).then_some(usize::from(self.last))
    }

    /// The row of a site, which takes a place if it has none.
    fn slot_for(&mut self, site: Site) -> usize {
        if let Some(slot) = self.slot(site) {
            return slot;
        }
        let free = self.sites.iter().position(|known| *known == NOBODY);
        let slot = free.unwrap_or_else(|| {
            let others = (0..SLOTS).filter(|slot| Some(*slot) != self.last_slot());
            others.min_by_key(|slot| self.seen(*slot)).unwrap_or_default()
        });
        if self.seen(slot) > 0 {
            self.weights |= CROWD;
        }
        self.sites[slot] = site.0;
        self.rows.iter_mut().for_each(|row| row[slot] = 0);
        self.rows[slot] = [0; SLOTS];
        self.rows[slot][slot] = if self.weights & CROWD == 0 { AGAIN } else { AGAIN_IN_CROWD };
        self.set_weight(slot, SEED_WEIGHT);
        slot
    }

    /// How much a site has been seen: nothing of one that is only expected.
    fn seen(&self, slot: usize) -> u32 {
        if self.sites[slot] == NOBODY || self.weight(slot) <= SEED_WEIGHT && self.last_slot() != Some(slot) {
            return 0;
        }
        1 + self.rows.iter().map(|row| u32::from(row[slot])).sum::<u32>()
    }

    fn follow(&mut self, last: usize, next: usize) {
        let weight = self.weight(last);
        for (slot, odds) in self.rows[last].iter_mut().enumerate() {
            let target = if slot == next { ONE as i32 } else { 0 };
            let now = i32::from(*odds);
            // It stays between the two.
            *odds = (now + (target - now) / i32::from(weight + 1)) as u16;
        }
        self.set_weight(last, weight + 1);
    }

    fn weight(&self, slot: usize) -> u16 {
        (self.weights >> (slot * WEIGHT_BITS) & (WEIGHT_MAX - 1)) + 1
    }

    fn set_weight(&mut self, slot: usize, weight: u16) {
        let shift = slot * WEIGHT_BITS;
        let weight = weight.clamp(1, WEIGHT_MAX) - 1;
        self.weights = self.weights & !((WEIGHT_MAX - 1) << shift) | weight << shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(odds: &Odds, last: u8, next: u8) -> u32 {
        odds.next(Site(last), Site(next)) * 100 / ONE
    }

    #[test]
    fn who_follows_whom_is_learnt_and_forgotten() {
        let mut odds = Odds::default();
        assert_eq!(odds.last(), None);
        odds.observe(Site(1), 1);
        assert_eq!((odds.last(), percent(&odds, 1, 1), odds.evidence(Site(1))), (Some(Site(1)), 60, 0));
        for _ in 0..200 {
            odds.observe(Site(2), 1);
            odds.observe(Site(1), 3);
        }
        assert!((98..=100).contains(&percent(&odds, 2, 1)), "{odds:?}");
        assert!((60..=73).contains(&percent(&odds, 1, 1)), "{odds:?}");
        // Half is forgotten after 23 accesses.
        odds.observe(Site(2), 24);
        assert!((48..=53).contains(&percent(&odds, 2, 2)), "{odds:?}");
        odds.observe(Site(2), 10_000);
        assert!(percent(&odds, 2, 2) >= 99 && percent(&odds, 2, 1) == 0);
    }

    #[test]
    fn shares_are_those_of_what_was_done_lately() {
        let shares = |odds: &Odds| {
            let (shares, has_others) = odds.shares();
            (shares.map(|(site, percent)| (site.0, percent)).collect::<Vec<_>>(), has_others)
        };
        let mut odds = Odds::default();
        assert_eq!(shares(&odds), (vec![], false));
        odds.observe(Site(7), 1);
        assert_eq!(shares(&odds), (vec![(7, 100)], false));
        odds.observe(Site(7), 99);
        odds.observe(Site(2), 1);
        let (few, _) = shares(&odds);
        assert!(few[0].0 == 7 && (90..=97).contains(&few[0].1) && few[1] == (2, 100 - few[0].1), "{few:?}");
        for _ in 0..200 {
            odds.observe(Site(2), 1);
            odds.observe(Site(7), 1);
        }
        assert!(shares(&odds).0.iter().all(|(_, percent)| (47..=53).contains(percent)), "{odds:?}");
        for _ in 0..200 {
            odds.observe(Site(2), 5);
            odds.observe(Site(7), 2);
            odds.observe(Site(4), 3);
        }
        let (three, has_others) = shares(&odds);
        for (site, expected) in [(2, 50_u8), (7, 20), (4, 30)] {
            let (_, percent) = three.iter().find(|it| it.0 == site).unwrap();
            assert!(percent.abs_diff(expected) <= 12, "{three:?}");
        }
        assert!(!has_others);
        odds.observe(Site(5), 1);
        assert!(shares(&odds).1);
        odds.observe(Site(5), 10_000);
        let (one, _) = shares(&odds);
        assert!(one.iter().any(|it| it.0 == 5 && it.1 >= 97), "{one:?}");
    }

    #[test]
    fn the_first_accesses_count_most() {
        let mut odds = Odds::default();
        odds.observe(Site(1), 1);
        odds.observe(Site(2), 1);
        assert_eq!((percent(&odds, 1, 1), percent(&odds, 1, 2)), (40, 33));
        assert_eq!(odds.evidence(Site(1)), 1);
    }

    #[test]
    fn a_fourth_site_takes_the_place_of_the_least_likely() {
        let mut odds = Odds::default();
        for site in [1, 2, 2, 2, 3, 2, 2, 2] {
            odds.observe(Site(site), 1);
        }
        odds.observe(Site(4), 1);
        let known: Vec<_> = odds.others(Site(4)).map(|(site, _)| site).collect();
        assert!(known.contains(&Site(2)) && known.len() == 2, "{known:?}");
        assert!(odds.next(Site(2), Site(4)) > 0);
        // Of those that are not told apart any of them may come, until the same one has come often enough.
        assert!(odds.unknown(Site(4)) > ONE / 2 && odds.knows(Site(4)) && !odds.knows(Site(5)));
        odds.observe(Site(4), 200);
        assert_eq!((odds.unknown(Site(4)) / 100, odds.unknown(Site(5))), (0, 0));
        for site in 0..32_u8 {
            odds.observe(Site(site), u32::from(site));
        }
        assert_eq!(odds.last(), Some(Site(31)));
    }

    #[test]
    fn others_come_after_third_ones_and_where_nothing_is_known() {
        let mut odds = Odds::default();
        for _ in 0..100 {
            odds.observe(Site(1), 2);
            odds.observe(Site(2), 1);
            odds.observe(Site(3), 1);
        }
        let likely = |odds: &Odds, last, of| {
            odds.others(Site(last)).find(|it| it.0 == Site(of)).map(|it| it.1 * 100 / ONE)
        };
        assert_eq!((percent(&odds, 1, 3), likely(&odds, 3, 1)), (0, Some(99)));
        assert!((45..56).contains(&likely(&odds, 1, 3).unwrap()), "by way of the second: {odds:?}");
        let mut odds = Odds::default();
        odds.observe(Site(1), 9);
        odds.observe(Site(2), 1);
        assert_eq!(likely(&odds, 2, 1), Some(40), "nobody has followed it yet");
    }

    #[test]
    fn seeds_take_over_who_comes_again_and_not_who_follows() {
        let mut directory = Odds::default();
        (0..50).for_each(|_| directory.observe_pair(Site(1), Site(1), 2));
        (0..50).for_each(|_| directory.observe_pair(Site(2), Site(1), 1));
        let mut odds = Odds::seed(&directory);
        assert!(percent(&odds, 1, 1) >= 95 && percent(&odds, 2, 2) < 20 && odds.next(Site(2), Site(1)) == 0);
        assert_eq!((odds.last(), odds.evidence(Site(1))), (None, 0));
        odds.observe(Site(1), 1);
        odds.observe(Site(2), 1);
        assert!((60..=70).contains(&percent(&odds, 1, 1)), "{odds:?}");
    }
}
