//! Where a token is to be next.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::budget::Budget;
use crate::decision::{Access, Decision, Kind, Next, Settings};
use crate::groups::Groups;
use crate::odds::{ONE, Odds};
use crate::paths::{above, is_movable, upward};
use crate::rules::{Rules, Said};
use crate::settled::Settled;
use crate::table::{About, Entry, Table};
use crate::{Site, Sites};

/// So many directories above an object are looked at.
const LEVELS: usize = 3;
/// A directory moves as a whole to a site that comes again to it as often as this, of [`ONE`].
const UNIT_LEAST: u32 = ONE / 10 * 7;
/// And when its children behave alike at least as much as this, of [`ONE`].
const ALIKE_LEAST: u32 = ONE / 100 * 55;
/// A new directory is nearly there: one move that shows it is enough.
const ALIKE_FIRST: u32 = ONE / 100 * 54;
/// A move that shows it adds this part of what is left. An access that shows the opposite leaves nothing.
const ALIKE_SHARE: u16 = 32;
/// Each time that it was believed and then not so, half as much is added. It never takes more than some thousand moves.
const STRIKES_MAX: u16 = 8;

/// Who has used something lately, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The sites that are told apart, each with its share of what was done, in percent.
    pub shares: Vec<(Site, u8)>,
    /// Whether others have used it too, which are not told apart.
    pub has_others: bool,
    /// Who was last.
    pub last: Option<Site>,
}

/// What was known of an object before a site has used it.
#[derive(Debug, Clone, Copy)]
struct UsedBefore {
    last: Option<Site>,
    is_new: bool,
}

/// What an access says besides.
#[derive(Debug, Default)]
struct Learnt {
    /// What others do in the directory of an object that was not known.
    presumed: Option<Odds>,
    /// Whether it shows of each directory above that its children behave alike.
    is_alike: [bool; LEVELS],
}

/// What decides where tokens are: a state machine of a fixed size, without a clock.
#[derive(Debug)]
pub struct Policy {
    settings: Settings,
    sites: Sites,
    rules: Rules,
    table: Table,
    settled: Settled,
    budget: Budget,
    groups: Groups,
}

impl Policy {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings, sites: Sites) -> Self {
        let table = Table::new(settings.entries);
        let (settled, budget, groups) = (Settled::new(), Budget::new(), Groups::default());
        Self { settings, sites, rules: Rules::default(), table, settled, budget, groups }
    }

    /// The sites.
    #[must_use]
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Takes over a round trip between a site and the hub that has been measured anew, in microseconds.
    pub fn set_round_trip_us(&mut self, site: Site, round_trip_us: u32) {
        self.sites.set_round_trip_us(site, round_trip_us);
    }

    /// Takes over what the operator says.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// What the operator says.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How it decides.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.settings.kind
    }

    /// Where the operator says that the token of a place is, if that is said.
    #[must_use]
    pub fn told(&self, path: &str) -> Option<Site> {
        match self.rules.said(path) {
            Some(Said::Pinned(_, at)) => Some(at),
            Some(Said::Stays) => None,
            None => self.rules.is_off().then(|| self.sites.hub()),
        }
    }

    /// Takes in an access, and decides where the token is to be next.
    pub fn decide(&mut self, access: &Access<'_>) -> Decision {
        let is_at_hub = access.site == access.holder && access.site == self.sites.hub();
        match self.settings.kind {
            Kind::Expected | Kind::Hub if is_at_hub => self.decide_at_hub(access),
            _ => self.decide_anywhere(access),
        }
    }

    fn decide_anywhere(&mut self, access: &Access<'_>) -> Decision {
        let Access { path, site, holder, holder_uses, at_ms } = *access;
        if !self.sites.have(site) || !self.sites.have(holder) {
            return Decision::of(path, Next::Stay);
        }
        self.budget.charge(&self.sites, site, self.sites.cost_us(site, holder), 1, at_ms);
        if !is_movable(path) {
            return Decision::of(path, Next::Stay);
        }
        if holder != site && holder != self.sites.hub() {
            upward(path).take(LEVELS + 1).for_each(|top| self.groups.settled(top, holder_uses > 0));
        }
        let key = self.key(path);
        if holder != site {
            self.report(&key, holder, holder_uses);
        }
        let learnt = self.learn(&key, site);
        if let Some(decision) = self.ruled(access) {
            return decision;
        }
        let together = self.rules.group(path).map(|(_, top)| top.len());
        let mut decision = match self.settings.kind {
            Kind::Hub => Decision::of(path, self.to_hub(holder)),
            Kind::Consecutive(r) => Decision::of(path, self.consecutive(&key, access, r)),
            Kind::Expected => self.expected(&key, access, &learnt, together.is_none()),
        };
        if let (Some(top), Some((all, _))) = (together, self.rules.group(path))
            && decision.next != Next::Stay
        {
            decision.along = all.iter().filter(|other| **other != path[..top]).cloned().collect();
            decision.subtree = top;
        }
        decision
    }

    /// The same where clients of the hub use what it holds, which is most of all that is asked there: something is learnt of
    /// it, and the token stays unless the operator wants it elsewhere.
    fn decide_at_hub(&mut self, access: &Access<'_>) -> Decision {
        let Access { path, site, at_ms, .. } = *access;
        self.budget.charge(&self.sites, site, 0, 1, at_ms);
        if !is_movable(path) {
            return Decision::of(path, Next::Stay);
        }
        let key = self.key(path);
        if self.settings.kind == Kind::Expected
            && let Some(used) = self.use_object(&key, site)
        {
            self.learn_of_directories(&key, site, used);
        }
        self.ruled(access).unwrap_or_else(|| Decision::of(path, Next::Stay))
    }

    /// Takes in that a holder has used a token so many times: what it says with the token's return, or at other times.
    pub fn used(&mut self, path: &str, site: Site, uses: u32) {
        if uses > 0 && self.sites.have(site) && is_movable(path) {
            if !self.groups.is_empty() {
                upward(path).take(LEVELS + 1).for_each(|top| self.groups.settled(top, true));
            }
            let key = self.key(path);
            self.report(&key, site, uses);
        }
    }

    /// Who has used what is at a path lately; nothing where that was forgotten, or is not looked at. What moves together is
    /// known together.
    #[must_use]
    pub fn usage(&self, path: &str) -> Option<Usage> {
        let odds = self.table.find(About::Object, &self.key(path))?.odds;
        let (shares, has_others) = odds.shares();
        let shares: Vec<(Site, u8)> = shares.collect();
        let is_known = !shares.is_empty();
        is_known.then(|| Usage { shares, has_others, last: odds.last() })
    }

    /// Takes in that a site has written so many times by itself, whatever that was of: the hub sees it in what the site
    /// ships.
    pub fn wrote_locally(&mut self, site: Site, writes: u32, at_ms: u64) {
        self.budget.charge(&self.sites, site, 0, writes, at_ms);
    }

    /// Whether the hub should recall a token that a leaf has not been heard to use for so long, because another site is
    /// likelier to use it next. The path is one that has a mark.
    pub fn is_to_return(&mut self, path: &str, holder: Site, unused_ms: u64) -> bool {
        let is_asked = self.settings.kind == Kind::Expected
            && unused_ms >= self.settings.idle_ms
            && holder != self.sites.hub()
            && self.rules.said(path).is_none();
        let known = self.table.find(About::Unit, path).or_else(|| self.table.find(About::Object, path));
        let Some(odds) = known.map(|entry| entry.odds).filter(|_| is_asked) else { return false };
        let is_unlikely = odds.last().is_some_and(|last| odds.next(last, holder) * 2 < ONE);
        if is_unlikely {
            self.groups.settled(path, false);
        }
        is_unlikely
    }

    /// What an object is remembered by: what moves together has one table.
    fn key<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let first = self.rules.group(path).and_then(|(all, _)| all.first());
        first.map_or(Cow::Borrowed(path), |first| Cow::Owned(first.clone()))
    }

    /// Puts down that a site has used an object so many times, without having been seen.
    fn report(&mut self, path: &str, site: Site, times: u32) {
        if times == 0 || self.settings.kind != Kind::Expected {
            return;
        }
        self.used_in_group(path, site, times);
        let (entry, _) = self.object(path);
        let before = entry.odds.last();
        entry.odds.observe(site, times);
        if before == Some(site) && self.is_settled(path, site) {
            return;
        }
        let mut is_settled = before == Some(site);
        for directory in upward(path).skip(1).take(LEVELS) {
            // In which order that was with what was done to others in the directory is not known.
            let unit = self.directory(directory);
            is_settled &= unit.odds.is_settled(site);
            unit.odds.observe_again(site, times);
            is_settled &= self.pool(directory, before, site, times);
        }
        self.has_learnt(path, site, is_settled);
    }

    /// Puts down that a site uses an object, and what that says of the directories above it.
    fn learn(&mut self, path: &str, site: Site) -> Learnt {
        let is_kept = self.settings.kind == Kind::Expected;
        let used = if is_kept { self.use_object(path, site) } else { None };
        used.map_or_else(Learnt::default, |used| self.learn_of_directories(path, site, used))
    }

    /// Puts down that a site uses an object. Returns what was known of it, unless it is known that this says nothing of the
    /// directories above it, nor shows anything of children that behave alike.
    #[inline]
    fn use_object(&mut self, path: &str, site: Site) -> Option<UsedBefore> {
        self.used_in_group(path, site, 1);
        let (entry, is_new) = self.object(path);
        let last = entry.odds.last();
        entry.odds.observe(site, 1);
        let is_known = last == Some(site) && self.is_settled(path, site);
        (!is_known).then_some(UsedBefore { last, is_new })
    }

    fn learn_of_directories(&mut self, path: &str, site: Site, used: UsedBefore) -> Learnt {
        let UsedBefore { last: before, is_new } = used;
        let mut learnt = Learnt::default();
        let mut is_settled = before == Some(site);
        for (level, directory) in upward(path).skip(1).take(LEVELS).enumerate() {
            let unit = self.directory(directory);
            let shown = alike(unit.odds.last(), before, site);
            learnt.is_alike[level] = shown == Some(true);
            if shown == Some(false) {
                let was_whole = u32::from(unit.count) >= ALIKE_LEAST;
                unit.counted = (unit.counted + u16::from(was_whole)).min(STRIKES_MAX);
                unit.count = 0;
            }
            is_settled &= unit.odds.is_settled(site);
            unit.odds.observe(site, 1);
            is_settled &= self.pool(directory, before, site, 1);
        }
        self.has_learnt(path, site, is_settled);
        let pool = above(path).filter(|_| is_new);
        let pool = pool.and_then(|directory| self.table.find(About::Pool, directory));
        learnt.presumed = pool.map(|entry| entry.odds);
        learnt
    }

    /// Puts down that something is used in the group that it is in, or a directory above it.
    #[inline]
    fn used_in_group(&mut self, path: &str, site: Site, times: u32) {
        if !self.groups.is_empty() {
            self.used_in_group_around(path, site, times);
        }
    }

    fn used_in_group_around(&mut self, path: &str, site: Site, times: u32) {
        if let Some(top) = upward(path).take(LEVELS + 1).find(|top| self.groups.odds(top).is_some()) {
            self.groups.used(top, site, times);
        }
    }

    /// Whether it is known that an access of a site to an object that it was the last to use changes nothing of what is
    /// remembered of directories. A few accesses go by, also where it is so, so that these are not forgotten.
    fn is_settled(&mut self, path: &str, site: Site) -> bool {
        let Some(directory) = above(path) else { return true };
        let hash = self.table.hash(About::Unit, directory);
        self.settled.is_noted(hash, site, self.table.version())
    }

    /// Directories have been told of an access, which has changed something of what is remembered of them or not.
    fn has_learnt(&mut self, path: &str, site: Site, is_settled: bool) {
        match above(path) {
            Some(directory) if is_settled => {
                let hash = self.table.hash(About::Unit, directory);
                self.settled.note(hash, site, self.table.version());
            }
            Some(_) => self.table.changed(),
            None => {}
        }
    }

    /// What is known of an object: in the beginning, what is known of others in its directory. Returns also whether nothing
    /// was known.
    fn object(&mut self, path: &str) -> (&mut Entry, bool) {
        let place = self.table.place(About::Object, path);
        let is_new = !self.table.touch(place);
        if is_new {
            let pool = above(path).and_then(|directory| self.table.find(About::Pool, directory));
            let pool = pool.map(|entry| entry.odds).unwrap_or_default();
            self.table.put(place, Entry::new(Odds::seed(&pool), 0));
        }
        (self.table.first(place), is_new)
    }

    /// What is known of a directory as a whole.
    fn directory(&mut self, path: &str) -> &mut Entry {
        self.table.find_or(About::Unit, path, || Entry::new(Odds::default(), ALIKE_FIRST as u16))
    }

    /// Puts down what has happened to something in a directory. Returns whether that was as sure as can be.
    fn pool(&mut self, directory: &str, before: Option<Site>, site: Site, times: u32) -> bool {
        let pool = self.table.find_or(About::Pool, directory, Entry::default);
        let is_settled = pool.odds.is_settled_in_pairs(site);
        match before {
            Some(before) => pool.odds.observe_pair(before, site, times),
            None => pool.odds.observe_pair(site, site, times - 1),
        }
        is_settled
    }

    fn to_hub(&self, holder: Site) -> Next {
        if holder == self.sites.hub() { Next::Stay } else { Next::Hub }
    }

    /// What the operator says of it.
    fn ruled(&self, access: &Access<'_>) -> Option<Decision> {
        let (path, hub) = (access.path, self.sites.hub());
        match self.rules.said(path) {
            Some(Said::Stays) => Some(Decision::of(path, Next::Stay)),
            Some(Said::Pinned(top, at)) if self.sites.have(at) => {
                let next = match at {
                    _ if at == access.holder => Next::Stay,
                    _ if at == hub => Next::Hub,
                    _ => Next::Site(at),
                };
                Some(Decision { next, subtree: top.len(), along: Vec::new() })
            }
            _ if self.rules.is_off() => Some(Decision::of(path, self.to_hub(access.holder))),
            _ => None,
        }
    }

    /// The paper's rule. A recall is the first request of the site that caused it.
    fn consecutive(&mut self, key: &str, access: &Access<'_>, r: u16) -> Next {
        let (site, hub) = (access.site, self.sites.hub());
        let entry = self.table.find_or(About::Object, key, Entry::default);
        let is_same = access.holder == hub && entry.counted == u16::from(site.0) && entry.count > 0;
        entry.count = if is_same { entry.count.saturating_add(1) } else { 1 };
        entry.counted = u16::from(site.0);
        if site != hub && entry.count >= r { Next::Site(site) } else { self.to_hub(access.holder) }
    }

    /// Where the next access is expected to cost least.
    fn expected(&mut self, key: &str, access: &Access<'_>, learnt: &Learnt, is_single: bool) -> Decision {
        let Access { path, site, holder, at_ms, .. } = *access;
        if site == holder {
            return Decision::of(path, Next::Stay);
        }
        let Some(odds) = self.table.find(About::Object, key).map(|entry| entry.odds) else {
            return Decision::of(path, Next::Stay);
        };
        let harmed = learnt.presumed.as_ref().unwrap_or(&odds);
        // Who comes back to the directory gets it, even if not each child is used twice.
        let unit = if is_single { self.unit(path, site, at_ms) } else { None };
        // The same for who comes back to what is used together, even if not each part is used twice.
        let comes_again = is_single && self.settings.has_groups && {
            self.groups.came(path, site, at_ms);
            self.comes_again(path, site, at_ms)
        };
        if unit.is_none()
            && !comes_again
            && !(self.gains(&odds, site, site) > 0 && self.is_bearable(harmed, site, site, at_ms))
        {
            let stays = holder == self.sites.hub()
                || self.gains(&odds, site, holder) >= 0 && self.is_bearable(harmed, site, holder, at_ms);
            return Decision::of(path, if stays { Next::Stay } else { Next::Hub });
        }
        if !self.may_move(key, at_ms) {
            return Decision::of(path, self.to_hub(holder));
        }
        // Visits say nothing on what moves together.
        for (directory, is_alike) in upward(key).skip(1).zip(learnt.is_alike) {
            if is_alike {
                let unit = self.directory(directory);
                unit.count += ((u16::MAX - unit.count) / ALIKE_SHARE) >> unit.counted;
            }
        }
        let unit = if is_single { self.unit(path, site, at_ms) } else { None };
        let subtree = unit.unwrap_or(path);
        let mut decision = Decision { next: Next::Site(site), subtree: subtree.len(), along: Vec::new() };
        if comes_again {
            let rules = &self.rules;
            let may_move = |other: &str| rules.said(other).is_none() && rules.group(other).is_none();
            decision.along = self.groups.along(path, may_move);
        }
        decision
    }

    /// What the next access is expected to cost less with the token at a site than with it at the hub, while another
    /// was last: the site saves its round trip, and each other one pays it on top of its own. In microseconds,
    /// times [`ONE`].
    fn gains(&self, odds: &Odds, last: Site, at: Site) -> i64 {
        let trip_us = i64::from(self.sites.round_trip_us(at));
        let own = i64::from(odds.next(last, at));
        trip_us * (own - (i64::from(ONE) - own))
    }

    /// Whether all others that may come next can pay for the token being at a site.
    fn is_bearable(&self, odds: &Odds, last: Site, at: Site, now_ms: u64) -> bool {
        let bears = |other| self.budget.bears(&self.sites, other, now_ms);
        let is_borne = |(other, likely)| other == at || likely <= bears(other);
        let unknown = odds.unknown(last);
        let all = || (0..self.sites.count() as u8).map(Site).filter(|site| !odds.knows(*site));
        !self.settings.is_fair
            || odds.others(last).chain([(last, odds.next(last, last))]).all(is_borne)
                && (unknown == 0 || all().all(|other| unknown <= bears(other)))
    }

    /// The largest directory that moves as a whole: one that the site comes to again and again, and whose children behave
    /// alike, so that knowing the child tells nothing more.
    fn unit<'a>(&self, path: &'a str, site: Site, now_ms: u64) -> Option<&'a str> {
        let mut found = None;
        if self.settings.has_units {
            for directory in upward(path).skip(1).take(LEVELS) {
                let Some(unit) = self.table.find(About::Unit, directory) else { break };
                let is_whole = unit.odds.evidence(site) > 0
                    && unit.odds.next(site, site) >= UNIT_LEAST
                    && u32::from(unit.count) >= ALIKE_LEAST
                    && self.is_bearable(&unit.odds, site, site, now_ms)
                    && !self.rules.speak_below(directory);
                if !is_whole {
                    break;
                }
                found = Some(directory);
            }
        }
        found
    }

    /// Whether a site is expected to be next in the group of something, and all others can pay for that.
    fn comes_again(&self, path: &str, site: Site, now_ms: u64) -> bool {
        self.groups.odds(path).is_some_and(|odds| {
            self.gains(&odds, site, site) > 0 && self.is_bearable(&odds, site, site, now_ms)
        })
    }

    /// Whether a token may be given away once more in this second; counts it.
    fn may_move(&mut self, key: &str, now_ms: u64) -> bool {
        let second = (now_ms / 1000) as u16;
        let entry = self.table.find_or(About::Object, key, Entry::default);
        if entry.counted != second {
            (entry.counted, entry.count) = (second, 0);
        }
        entry.count = entry.count.saturating_add(1);
        entry.count <= self.settings.moves_per_second
    }
}

/// Whether an access shows that the children of a directory behave alike: the site is the one that was last in the
/// directory, and not the one that was last at this child; or it shows the opposite. Where both are the same it shows
/// nothing, and at a child that is new nobody was.
fn alike(last_in_directory: Option<Site>, last_at_child: Option<Site>, site: Site) -> Option<bool> {
    let directory = last_in_directory.filter(|directory| last_at_child != Some(*directory))?;
    match last_at_child {
        _ if directory == site => Some(true),
        Some(child) if child != site => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests;
