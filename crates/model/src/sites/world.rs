//! Where tokens are, and how they get there.

use std::collections::BTreeMap;

use stoa_sites::{Access, Decision, Next, Policy, Site, upward};

/// The hub looks after tokens that are out so often, and after so many of them.
const LOOK_US: u64 = 1_000_000;
const LOOKED_AT_MAX: usize = 256;

/// The token of a znode, and of what is below it without a mark, is here.
#[derive(Debug, Clone, Copy)]
struct Mark {
    site: Site,
    used_us: u64,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// What the ways between sites took, in microseconds.
    pub(crate) cost_us: u64,
    /// Who held the token was asked to carry it out.
    pub(crate) is_visit: bool,
}

/// All sites, their tokens and the policy.
#[derive(Debug)]
pub(crate) struct World<'a> {
    policy: Policy,
    /// All objects.
    paths: &'a [String],
    marks: BTreeMap<String, Mark>,
    look_us: u64,
    /// The mark that was last looked at.
    looked_at: String,
    /// Grants to a site, and returns to the hub.
    pub(crate) moves: u64,
}

impl<'a> World<'a> {
    pub(crate) fn new(policy: Policy, paths: &'a [String]) -> Self {
        Self { policy, paths, marks: BTreeMap::new(), look_us: 0, looked_at: String::new(), moves: 0 }
    }

    /// A site writes an object.
    pub(crate) fn write(&mut self, at_us: u64, site: Site, object: usize) -> Written {
        self.look_after(at_us);
        let (paths, at_ms) = (self.paths, at_us / 1000);
        let path = paths[object].as_str();
        let (top, holder) = self.holder(path);
        let hub = self.policy.sites().hub();
        if holder == site && site != hub {
            // The hub sees it in what the site ships, before it hears anything of others about it.
            self.policy.used(path, site, 1);
            self.policy.wrote_locally(site, 1, at_ms);
            if let Some(mark) = top.and_then(|top| self.marks.get_mut(top)) {
                mark.used_us = at_us;
            }
            return Written { cost_us: 0, is_visit: false };
        }
        let decision = self.policy.decide(&Access { path, site, holder, holder_uses: 0, at_ms });
        let cost_us = self.policy.sites().cost_us(site, holder);
        let is_visit = decision.next == Next::Stay && holder != hub && holder != site;
        self.carry_out(at_us, path, &decision);
        Written { cost_us, is_visit }
    }

    fn carry_out(&mut self, at_us: u64, path: &str, decision: &Decision) {
        let to = match decision.next {
            Next::Stay => return,
            Next::Hub => self.policy.sites().hub(),
            Next::Site(site) => site,
        };
        self.shift(at_us, path, &path[..decision.subtree], to);
        for other in &decision.along {
            self.shift(at_us, other, other, to);
        }
    }

    /// The mark that a place is under, and who holds it.
    fn holder<'p>(&self, path: &'p str) -> (Option<&'p str>, Site) {
        let found = upward(path).find_map(|top| self.marks.get(top).map(|mark| (Some(top), mark.site)));
        found.unwrap_or((None, self.policy.sites().hub()))
    }

    /// A znode goes to a site, and all of a subtree that has no mark of its own and the same holder.
    fn shift(&mut self, at_us: u64, path: &str, subtree: &str, to: Site) {
        let (_, from) = self.holder(path);
        if from == to {
            return;
        }
        let (_, holder) = self.holder(subtree);
        let top = if holder == from { subtree } else { path };
        self.marks.remove(path);
        self.marks.remove(top);
        for goes in [top, path] {
            if self.holder(goes).1 != to {
                self.marks.insert(goes.to_owned(), Mark { site: to, used_us: at_us });
            }
        }
        self.moves += 1;
    }

    /// Has returned what a leaf does not use and another one is likelier to.
    fn look_after(&mut self, at_us: u64) {
        if at_us < self.look_us {
            return;
        }
        self.look_us = at_us + LOOK_US;
        let hub = self.policy.sites().hub();
        let next: Vec<(String, Mark)> = self
            .marks
            .range::<String, _>((std::ops::Bound::Excluded(&self.looked_at), std::ops::Bound::Unbounded))
            .take(LOOKED_AT_MAX)
            .map(|(path, mark)| (path.clone(), *mark))
            .collect();
        self.looked_at = match next.last() {
            Some((path, _)) if next.len() == LOOKED_AT_MAX => path.clone(),
            _ => String::new(),
        };
        for (path, Mark { site, used_us }) in next {
            let unused_ms = at_us.saturating_sub(used_us) / 1000;
            if site != hub && unused_ms > 0 && self.policy.is_to_return(&path, site, unused_ms) {
                self.shift(at_us, &path, &path, hub);
            }
        }
    }
}
