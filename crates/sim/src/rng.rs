//! The only source of chance: everything that a run does follows from one seed.

/// The generator xoshiro256** of Blackman and Vigna, seeded by splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let mut mix = seed;
        let mut next = || {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mix;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self { state: [next(), next(), next(), next()] }
    }

    /// An independent generator, so that one part's use of chance does not shift another's.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// The next 64 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: no division, and a bias that does not matter here.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `bound`.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `percent` times in a hundred.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// True once in `n` times; never when `n` is 0.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// One of `items`, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// An index chosen with the given weights, of which at least one is not 0.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut point = self.below(total);
        for (index, &weight) in weights.iter().enumerate() {
            if point < u64::from(weight) {
                return index;
            }
            point -= u64::from(weight);
        }
        weights.len() - 1
    }

    /// A duration around `mean`, with a long tail: mostly shorter, now and then several times as long.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        match self.below(20) {
            0 => self.range(mean, mean * 8),
            1..=4 => self.range(mean, mean * 2),
            _ => self.range(mean / 4, mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_follows_from_the_seed() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            (0..100).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn bounds_hold_and_every_value_occurs() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[rng.index(5)] += 1;
            assert!((3..=9).contains(&rng.range(3, 9)));
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.range(4, 4), 4);
    }

    #[test]
    fn a_weight_of_zero_is_never_chosen() {
        let mut rng = Rng::new(2);
        assert!((0..1000).all(|_| rng.weighted(&[0, 3, 0, 1]) % 2 == 1));
    }
}
