//! What the clients of one site ask for.

use stoa_wire::Opcode;
use stoa_wire::request::encode;

use super::super::random::Random;
use super::super::requests::{Op, Requests, Template, payload};
use super::records::{Place, Records, Territory};

/// Seeds of sites are so far from one another, so that runs with seeds side by side share none.
const SEEDS_A_SITE: u64 = 1_000_003;

/// Of so many requests, one after the other, as many are writes as there should be.
const BLOCK: u64 = 100;

/// Reads and writes of the records that a site works on.
#[derive(Debug)]
pub(super) struct Accesses {
    territory: Territory,
    shares: Shares,
    random: Random,
    /// By the number of the top, as those below.
    get: Vec<Template>,
    set: Vec<Template>,
}

impl Accesses {
    /// What the site with this number asks for.
    pub(super) fn new(records: &Records, site: usize, writes: f64, payload_bytes: usize, seed: u64) -> Self {
        let data = payload(payload_bytes);
        let get = |out: &mut Vec<u8>, path: &str| encode::path_watch(out, path, false);
        let set = |out: &mut Vec<u8>, path: &str| encode::set_data(out, path, Some(&data), -1);
        Self {
            territory: records.of(site),
            shares: Shares::new(writes),
            random: Random::new(seed.wrapping_add(SEEDS_A_SITE.wrapping_mul(site as u64 + 1))),
            get: Template::on_znode(Opcode::GetData, records.tops(), get),
            set: Template::on_znode(Opcode::SetData, records.tops(), set),
        }
    }
}

impl Requests for Accesses {
    fn append(&mut self, _session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        let (templates, op) = match self.shares.is_next_a_write(&mut self.random) {
            true => (&self.set, Op::Set),
            false => (&self.get, Op::Get),
        };
        let Place { top, number } = self.territory.draw(&mut self.random);
        templates[top].append_znode(xid, number, out);
        Some(op)
    }
}

/// Which requests are writes. In each block they stand at random, but their number is no matter of chance: with few
/// writes, which take nearly all of the time, throughput would be one.
#[derive(Debug)]
struct Shares {
    /// The share of writes, of 1.
    writes: f64,
    blocks: u64,
    /// What is left of the block.
    requests_left: u64,
    writes_left: u64,
}

impl Shares {
    fn new(writes: f64) -> Self {
        Self { writes, blocks: 0, requests_left: 0, writes_left: 0 }
    }

    fn is_next_a_write(&mut self, random: &mut Random) -> bool {
        if self.requests_left == 0 {
            // What is not a whole number in one block comes in a later one.
            let [before, after] = [0, 1]
                .map(|more| ((self.blocks + more) as f64 * BLOCK as f64 * self.writes + 1e-6).floor() as u64);
            self.blocks += 1;
            (self.requests_left, self.writes_left) = (BLOCK, after - before);
        }
        let is_write = random.below(self.requests_left) < self.writes_left;
        self.requests_left -= 1;
        self.writes_left -= u64::from(is_write);
        is_write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_the_writes_that_it_should_have() {
        for (share, blocks) in [(0.0, [0, 0, 0]), (0.05, [5, 5, 5]), (0.125, [12, 13, 12]), (1.0, [100; 3])] {
            let (mut shares, mut random) = (Shares::new(share), Random::new(9));
            let counted = blocks.map(|_| (0..BLOCK).filter(|_| shares.is_next_a_write(&mut random)).count());
            assert_eq!(counted, blocks, "{share}");
        }
    }

    #[test]
    fn writes_stand_anywhere_in_a_block() {
        let (mut shares, mut random) = (Shares::new(0.05), Random::new(9));
        let mut at = [0; BLOCK as usize];
        for _ in 0..20_000 {
            at.iter_mut().for_each(|count| *count += u32::from(shares.is_next_a_write(&mut random)));
        }
        // A thousand at each place, give or take six standard deviations.
        assert!(at.iter().all(|count| (810..1190).contains(count)), "{at:?}");
    }
}
