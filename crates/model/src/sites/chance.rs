//! Numbers that follow from a seed.

/// The generator splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Those of a seed, and of one of several that use it.
    pub(crate) fn new(seed: u64, of: usize) -> Self {
        let mut chance = Self(seed);
        for _ in 0..=of {
            chance.0 = chance.next();
        }
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// At least 0, and less than 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
