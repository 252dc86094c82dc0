//! What goes wrong between sites, and with whole sites.

use super::lines::Bound;
use super::{Passage, SiteRun};
use std::ops::Range;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storm {
    Cut,
    Break,
    Down,
    Away,
    HubCut,
    /// The servers of a site start again at once.
    Restart(usize),
    /// Nothing passes any more from one site to another until then, as before.
    CutAgain(usize, usize, u64),
}

impl SiteRun {
    pub(super) fn schedule_storms(&mut self) {
        for storm in [Storm::Cut, Storm::Break, Storm::Down, Storm::Away, Storm::HubCut] {
            self.schedule_storm(storm);
        }
    }

    fn schedule_storm(&mut self, storm: Storm) {
        let storms = &self.plan.storms;
        let mean_ms = match storm {
            Storm::Cut => storms.cut_ms,
            Storm::Break => storms.break_ms,
            Storm::Down => storms.down_ms,
            Storm::Away => storms.away_ms,
            Storm::HubCut => storms.hub_cut_ms,
            // They are consequences of others.
            Storm::Restart(_) | Storm::CutAgain(..) => 0,
        };
        if mean_ms > 0 && !self.is_healing {
            let after = self.rng.range(1, mean_ms * 2000);
            self.after(after, Passage::Storm(storm));
        }
    }

    pub(super) fn storm(&mut self, storm: Storm) {
        if self.is_healing {
            return;
        }
        let drawn = 1 + self.rng.index(self.worlds.len() - 1);
        let leaf = if drawn == self.hub { 0 } else { drawn };
        match storm {
            Storm::Cut => self.cut(leaf),
            Storm::Away => self.some_go_away(),
            Storm::HubCut => self.hub_is_cut_off(),
            Storm::Break => {
                self.counts.breaks += 1;
                let calls = self.lines.calls.iter().filter(|(_, call)| call.is_between(leaf, self.hub));
                let calls: Vec<u64> = calls.map(|(number, _)| *number).collect();
                calls.into_iter().for_each(|call| self.hang_up(call));
            }
            Storm::Down => {
                let at = self.rng.index(self.worlds.len());
                self.goes_down(at, 100_000..4_000_000);
            }
            Storm::CutAgain(from, to, until_us) => self.lines.cut(from, to, until_us),
            Storm::Restart(at) => self.goes_down(at, 50_000..500_000),
        }
        self.schedule_storm(storm);
    }

    /// All servers of a site end, and start again after so many microseconds.
    fn goes_down(&mut self, at: usize, for_us: Range<u64>) {
        self.counts.downs += 1;
        let (power, for_us) = (self.rng.one_in(2), self.rng.range(for_us.start, for_us.end));
        let world = &mut self.worlds[at];
        world.ids().into_iter().for_each(|id| world.fell(id, power));
        self.after(for_us, Passage::Rise(at));
    }

    /// Nothing passes between the hub and a site, or all of them, for a while: no way, or one way only.
    fn cut(&mut self, leaf: usize) {
        self.counts.cuts += 1;
        let until_us = self.now_us + self.rng.range(20_000, self.plan.storms.cut_max_ms * 1000);
        let both = [Bound::ToHub, Bound::ToLeaf];
        let bounds = *self.rng.pick(&[&both[..], &both[..1], &both[1..]]);
        let leaves = if self.rng.one_in(4) { 0..self.worlds.len() } else { leaf..leaf + 1 };
        for leaf in leaves.filter(|leaf| *leaf != self.hub) {
            for bound in bounds {
                let (from, to) = if *bound == Bound::ToHub { (leaf, self.hub) } else { (self.hub, leaf) };
                self.lines.cut(from, to, until_us);
            }
        }
    }

    pub(super) fn rise(&mut self, at: usize) {
        let is_lost = self.is_doomed(at) && !self.plan.is_automatic();
        let world = &mut self.worlds[at];
        if !self.is_healing && !is_lost {
            world.ids().into_iter().for_each(|id| world.rise(id));
        }
    }
}
