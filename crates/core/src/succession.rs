//! Who takes the place of a hub that is away, without an operator: what the leader of a site decides by what others have
//! told it. Why there are never two hubs is no business of this: [`crate::lease`].
//!
//! Who would not be followed would wait in vain, and have no hub meanwhile. So each site that misses the hub asks the
//! others whether they do, too, which sites they know, and which updates they have and can tell. When all do, the first
//! site of the list that each other one can tell what it lacks, and that can tell each of them, claims to be the hub. One
//! that has joined a moment before may not be able to: what it came with is not in its log ([`crate::lacks`]). All decide
//! that by the same. Should two of them claim it all the same, one follows the other.

use crate::meeting::Greeting;
use crate::replica::Replica;
use alloc::collections::BTreeMap;
use stoa_partition::Now;
use stoa_tree::{SiteId, SiteSet, Source};

/// How often the others are asked.
const ASK_US: u64 = 2_000_000;
/// What another site has said is believed for so long.
const BELIEVED_US: u64 = 2 * ASK_US;

/// What a site knows and has that misses its hub.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteReach {
    /// The sites that were not given up.
    pub members: SiteSet,
    /// Of each source that is known there: the last of its updates that is there, and the last one that was there when the
    /// log began, which so can tell what is behind that.
    pub updates: BTreeMap<Source, (i64, i64)>,
    /// Whether the hub has asked it for promises: one that has not needs none.
    pub has_promised: bool,
}

impl SiteReach {
    /// Whether the log of this site, `own`, has all that another one lacks. What a site has made itself before it joined
    /// is nobody else's.
    fn can_tell(&self, own: SiteId, (other, reach): (SiteId, &Self)) -> bool {
        let has = |maker| reach.updates.get(maker).map_or(0, |(last, _)| *last);
        let of_others = self.updates.iter().filter(|(maker, _)| maker.site != own && maker.site != other);
        of_others.into_iter().all(|(maker, (_, floor))| has(maker) >= *floor)
    }
}

/// Whether the site of this server and another one could not tell each other what one of them lacks. With the hub that
/// is never so: there is a stream with it, by whose positions it is known what it has.
#[must_use]
pub fn is_torn_from(server: &Replica, other: SiteId, reach: &SiteReach) -> bool {
    let tree = server.tree();
    let own = tree.own_site().unwrap_or_default();
    let own_reach = server.reach();
    let can_meet = own_reach.can_tell(own, (other, reach)) && reach.can_tell(other, (own, &own_reach));
    tree.hub() != Some(other) && !can_meet
}

/// Whether each other site can tell this one what it lacks, and it can tell each of them.
fn can_be_hub(site: SiteId, all: &BTreeMap<SiteId, SiteReach>) -> bool {
    let Some(own) = all.get(&site) else { return false };
    let mut others = all.iter().filter(|(other, _)| **other != site);
    others.all(|(other, reach)| own.can_tell(site, (*other, reach)) && reach.can_tell(*other, (site, own)))
}

/// What the others have said that miss the hub, too, and when.
#[derive(Debug, Clone, Default)]
pub struct Succession {
    heard: BTreeMap<SiteId, (u64, SiteReach)>,
    asks_at_us: u64,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuccessionStep {
    /// Nothing.
    Nothing,
    /// These sites are to be asked whether they miss the hub.
    Ask(SiteSet),
    /// The same, and all do, but none of them could tell the others what those lack: an operator has to say what becomes
    /// of that.
    NobodyCan(SiteSet),
    /// All of these miss it, and this site is the one that can: [`Replica::take_place`].
    TakePlace(SiteSet),
}

impl Succession {
    /// A site has said whether it misses the hub, and what it has.
    pub fn heard(&mut self, site: SiteId, misses_hub: Option<SiteReach>, now: Now) {
        match misses_hub {
            Some(reach) => _ = self.heard.insert(site, (now.mono_us, reach)),
            None => _ = self.heard.remove(&site),
        }
    }

    /// What the leader of a site is to do now.
    pub fn step(&mut self, server: &Replica, now: Now) -> SuccessionStep {
        let Some(mut others) = server.may_take_place(now) else { return SuccessionStep::Nothing };
        let tree = server.tree();
        let (own, hub) = (tree.own_site().unwrap_or_default(), tree.hub().unwrap_or_default());
        let reach = server.reach();
        let mut all: BTreeMap<SiteId, SiteReach> = BTreeMap::from([(own, reach)]);
        let believed = |(at_us, _): &&(u64, SiteReach)| now.mono_us < at_us + BELIEVED_US;
        // One of them may know of a site that has come since this one has heard of the hub.
        while let Some((site, (_, reach))) = others
            .iter()
            .filter(|site| !all.contains_key(site))
            .find_map(|site| Some((site, self.heard.get(&site).filter(believed)?)))
        {
            let known = reach.members.without(SiteSet::of(hub)).without(SiteSet::of(own));
            others = known.iter().fold(others, SiteSet::with);
            all.insert(site, reach.clone());
        }
        let is_known = others.iter().all(|site| all.contains_key(&site));
        let is_asked = is_known && all.values().any(|reach| reach.has_promised);
        let next = all.keys().find(|site| is_asked && can_be_hub(**site, &all));
        if next == Some(&own) {
            return SuccessionStep::TakePlace(others);
        }
        if now.mono_us < self.asks_at_us {
            return SuccessionStep::Nothing;
        }
        self.asks_at_us = now.mono_us + ASK_US;
        if is_asked && next.is_none() {
            SuccessionStep::NobodyCan(others)
        } else {
            SuccessionStep::Ask(others)
        }
    }
}

/// Whether the hub, in whose place a site has claimed to be it, is there again before all have followed: it has said that
/// it is the hub still. Then it is to follow like the others, and nothing is lost: these sites are needed for that claim.
#[must_use]
pub fn hub_is_back(server: &Replica, from: SiteId, told_hub: SiteId) -> Option<SiteSet> {
    let tree = server.tree();
    let claim =
        tree.streams().claim().filter(|claim| claim.is_automatic && Some(claim.hub) == tree.own_site());
    let is_back = |lost: SiteSet| lost.contains(from) && told_hub == from;
    claim.filter(|claim| is_back(claim.lost)).map(|claim| claim.needed.with(from))
}

/// Whether a claim waits for nobody but a site that had come back, and says that it has not taken the state yet. It has
/// nothing, as it has made nothing since; it cannot follow; and nobody gives it the state before there is a hub. So the
/// claim is made once more without it: these sites are given up, and these are needed. It joins anew later.
#[must_use]
pub fn has_nothing_to_tell(
    server: &Replica,
    site: SiteId,
    greeting: &Greeting,
) -> Option<(SiteSet, SiteSet)> {
    let tree = server.tree();
    let claim =
        tree.streams().claim().filter(|claim| !claim.is_automatic && Some(claim.hub) == tree.own_site())?;
    let is_empty = !greeting.has_joined && tree.kept_of_lost(site) == Some(&tree.known_of(site));
    let is_last = tree.waits_for() == SiteSet::of(site);
    (server.may_be_replaced() && is_empty && is_last)
        .then(|| (claim.lost.with(site), claim.needed.without(SiteSet::of(site))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of sites, the last update that is there, and the last one before the log.
    type Has<'a> = &'a [(SiteId, i64, i64)];

    fn all(of: &[(SiteId, Has<'_>)]) -> BTreeMap<SiteId, SiteReach> {
        let reach = |has: Has<'_>| SiteReach {
            updates: has.iter().map(|(of, last, floor)| (Source::first_of(*of), (*last, *floor))).collect(),
            ..SiteReach::default()
        };
        of.iter().map(|(site, has)| (*site, reach(has))).collect()
    }

    fn can(all: &BTreeMap<SiteId, SiteReach>) -> Vec<SiteId> {
        all.keys().copied().filter(|site| can_be_hub(*site, all)).collect()
    }

    #[test]
    fn who_joined_a_moment_before_cannot_tell_what_others_lack() {
        // The second one came with what the hub had at 50, and the third one has not all of that.
        let late = all(&[(2, &[(1, 50, 50)]), (3, &[(1, 40, 0)])]);
        assert_eq!(can(&late), [], "and nobody else can tell the third one");
        let late = all(&[(2, &[(1, 50, 50)]), (3, &[(1, 40, 0)]), (4, &[(1, 60, 10)])]);
        assert_eq!(can(&late), [4]);
        let known = all(&[(2, &[(1, 50, 50)]), (3, &[(1, 50, 0)])]);
        assert_eq!(can(&known), [2, 3]);
    }

    #[test]
    fn who_lacks_what_another_one_came_with_cannot_have_it_from_there() {
        let by_way = all(&[(2, &[(1, 20, 0)]), (3, &[(1, 60, 10)]), (4, &[(1, 70, 50)])]);
        assert_eq!(can(&by_way), [3]);
    }

    #[test]
    fn what_a_site_has_made_itself_it_can_tell() {
        let own = all(&[(2, &[(1, 30, 30), (2, 90, 80)]), (3, &[(1, 30, 0), (3, 70, 60)])]);
        assert_eq!(can(&own), [2, 3]);
        let third = all(&[(2, &[(1, 30, 30), (4, 9, 9)]), (3, &[(1, 30, 0), (4, 7, 0)]), (4, &[(1, 30, 0)])]);
        assert_eq!(can(&third), [4], "what the fourth one has made the second one cannot tell the third one");
    }
}
