//! Everything fails, by a seed.

use crate::rng::Rng;
use crate::world::{Faults, World};
use stoa_forest::Ids;

/// `FOREST_SEEDS=1000` tries so many, `FOREST_SEEDS=17..18` these.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("FOREST_SEEDS").unwrap_or_else(|_| "8".to_owned());
    match text.split_once("..") {
        Some((first, end)) => first.parse().unwrap()..end.parse().unwrap(),
        None => 0..text.parse().unwrap(),
    }
}

struct Chaos {
    rng: Rng,
    world: World,
    ended: Vec<u8>,
    frozen: Vec<u8>,
    spare: Vec<u8>,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let n = match rng.below(10) {
            0 => rng.between(100, 200),
            1 | 2 => rng.between(30, 100),
            _ => rng.between(5, 30),
        };
        let mut all: Vec<u8> = (1..=254).collect();
        let mut ids = Vec::new();
        for _ in 0..n {
            ids.push(all.swap_remove(rng.below(all.len() as u64) as usize));
        }
        let entry_bytes = [16, 300, 3000][rng.below(3) as usize];
        let mut world = World::new(seed, &ids, entry_bytes);
        world.faults = Faults {
            loss: [0, 200, 30, 10][rng.below(4) as usize],
            delay_us: [(80, 120), (50, 1000), (100, 4000)][rng.below(3) as usize],
            late: [0, 100, 20][rng.below(3) as usize],
            disk_us: (100, [300, 5000][rng.below(2) as usize]),
        };
        Self { rng, world, ended: vec![], frozen: vec![], spare: all }
    }

    fn one_of(&mut self, of: &[u8]) -> Option<u8> {
        (!of.is_empty()).then(|| of[self.rng.below(of.len() as u64) as usize])
    }

    /// Fewer than half are bad at a time, so that something can be committed.
    fn may_fail(&self) -> bool {
        2 * (self.ended.len() + self.frozen.len() + 1) < self.world.members.len()
    }

    fn step(&mut self) {
        let well: Vec<u8> = self.world.well().into_iter().filter(|id| *id != self.world.leader).collect();
        match self.rng.below(12) {
            0 if self.may_fail() => {
                if let Some(id) = self.one_of(&well) {
                    self.world.end_process(id);
                    self.ended.push(id);
                }
            }
            1 if self.may_fail() => {
                if let Some(id) = self.one_of(&well) {
                    self.world.freeze(id);
                    self.frozen.push(id);
                }
            }
            2 | 3 => {
                if let Some(id) = self.ended.pop() {
                    let is_empty = self.rng.one_in(3) && self.may_lose(id);
                    self.world.restart(id, is_empty);
                }
            }
            4 | 5 => {
                if let Some(id) = self.frozen.pop() {
                    self.world.thaw(id);
                }
            }
            6 if self.rng.one_in(3) => self.change_members(&well),
            7 if self.rng.one_in(4) => self.change_leader(&well),
            _ => {}
        }
    }

    /// An empty disk must not take the last copy that makes a majority: that is the business of the list of members.
    fn may_lose(&self, id: u8) -> bool {
        let committed = self.world.servers[&self.world.leader].committed;
        let others = self.world.members.iter().filter(|other| *other != id);
        let have = others.filter(|other| self.world.servers[other].stored >= committed).count();
        2 * have > self.world.members.len()
    }

    fn change_members(&mut self, well: &[u8]) {
        let mut members: Ids = self.world.members;
        if self.rng.one_in(2)
            && let Some(id) = self.spare.pop()
        {
            self.world.begin(id);
            members.insert(id);
        } else if members.len() > 5
            && let Some(id) = self.one_of(well)
        {
            members.remove(id);
        }
        // What is committed stays committed.
        let committed = self.world.servers[&self.world.leader].committed;
        let have = members.iter().filter(|id| self.world.servers[id].stored >= committed).count();
        if 2 * have > members.len() {
            self.world.set_members(members);
        }
    }

    /// Somebody else leads who has all that is committed. The one before does not know yet.
    fn change_leader(&mut self, well: &[u8]) {
        let committed = self.world.servers[&self.world.leader].committed;
        let able: Vec<u8> =
            well.iter().copied().filter(|id| self.world.servers[id].stored >= committed).collect();
        if let Some(id) = self.one_of(&able) {
            self.world.lead(id);
        }
    }

    fn run(&mut self) {
        let load = self.rng.between(1, 20);
        for _ in 0..self.rng.between(20, 200) {
            for _ in 0..load {
                let positions = self.rng.between(1, 8);
                self.world.propose(positions);
                let us = self.rng.between(100, 3000);
                self.world.run(us);
            }
            self.step();
        }
    }

    /// All is well again, and then all have everything.
    fn heal(&mut self) {
        self.world.faults = Faults::NONE;
        while let Some(id) = self.ended.pop() {
            self.world.restart(id, false);
        }
        while let Some(id) = self.frozen.pop() {
            self.world.thaw(id);
        }
        for _ in 0..20 {
            self.world.run(100_000);
            self.world.propose(1);
        }
        self.world.run(2_000_000);
        self.world.assert_whole();
    }
}

#[test]
fn everybody_gets_everything_in_order_whatever_fails() {
    for seed in seeds() {
        let run = std::panic::catch_unwind(|| {
            let mut chaos = Chaos::new(seed);
            chaos.run();
            chaos.heal();
        });
        assert!(run.is_ok(), "FOREST_SEEDS={seed}..{}", seed + 1);
        if seed % 50 == 49 {
            println!("up to seed {seed}");
        }
    }
}
