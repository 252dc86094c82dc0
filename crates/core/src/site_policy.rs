//! At the hub: where tokens are to be. What its leader knows of that beside what is replicated, and what it has in hand.
//! What is done with it: `replica/site_policy.rs`.
//!
//! Whoever leads next begins with nothing but the round trips and the operator's rules, and learns anew.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;
use stoa_sites::{
    Access, Decision, Kind, Next, Policy, Rules, SITES_MAX, Settings, Site, Sites, Usage, is_at_or_below,
};
use stoa_tree::{SiteId, SiteSet, Ticket};

/// How far away a site is taken to be that nobody has measured yet: most pairs of data centres lie around this.
const UNMEASURED_US: u32 = 50_000;
/// What is measured anew counts this part: a message that had to wait behind others says little.
const ROUND_TRIP_SHARE: i64 = 8;
/// So many tokens that are away are looked after, and on their way to a site; of more, none returns by itself.
const AWAY_MAX: usize = 1 << 14;
/// How often it is looked after them, and after so many at a time.
const LOOK_US: u64 = 1_000_000;
const LOOKED_AT_MAX: usize = 256;

/// A token that was given to a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Away {
    pub(crate) at: SiteId,
    /// When it was given to that site.
    pub(crate) since_us: u64,
    /// When that site was heard to use it, or has got it.
    pub(crate) used_us: u64,
    /// How often it was heard to use it since then.
    pub(crate) uses: u64,
}

/// Tokens that go to a site together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenMove {
    /// The znode that was asked for.
    pub(crate) path: String,
    /// So many bytes of it are the subtree that goes.
    pub(crate) subtree: usize,
    /// Other subtrees.
    pub(crate) along: Vec<String>,
    pub(crate) to: SiteId,
}

/// What was decided for a request whose tokens other sites hold. It is decided once.
#[derive(Debug, Default)]
pub(crate) struct TicketPlan {
    /// What goes where, once the request is carried out here.
    pub(crate) moves: Vec<TokenMove>,
    /// The znodes for which that is decided.
    pub(crate) decided: Vec<String>,
    /// What is not given away before it has all of them here: else two requests could keep a third one, that needs what
    /// both of them do, waiting for ever.
    reserved: BTreeSet<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct TokenPolicy {
    /// While this server leads the hub.
    policy: Option<Policy>,
    round_trips_us: BTreeMap<SiteId, u32>,
    rules: Rules,
    /// What was given away, and is not known to be here again.
    away: BTreeMap<String, Away>,
    plans: BTreeMap<Ticket, TicketPlan>,
    /// How many plans need each of these.
    reserved: BTreeMap<String, u32>,
    /// Tokens that were recalled, each for a site that has not asked for it.
    passing: BTreeMap<String, SiteId>,
    /// Those of them that have come, or could not.
    arrived: BTreeSet<String>,
    look_at_us: u64,
    looked_at: String,
    /// Znodes of which other sites have read what is newest by way of the hub, and nobody has written them since.
    reads: BTreeMap<String, ReadRun>,
}

/// Reads of a znode with no write in between.
#[derive(Debug, Default)]
struct ReadRun {
    sites: SiteSet,
    count: u32,
    /// Whether the token was had from another site for them.
    has_moved: bool,
    /// How often read tokens were in the way of a write, or the token was.
    regrets: u32,
}

/// So many znodes are remembered that were read so; of more, all are forgotten.
const READS_MAX: usize = 1 << 12;
/// With the default policy it takes so many reads before sites get read tokens, and twice as many for each time that these
/// were in the way of a write, up to so many times; and twice as many before another site has to give up the token for it.
const READS_LEAST: u32 = 2;
const REGRETS_MAX: u32 = 6;

impl TokenPolicy {
    /// This server leads: it decides from now on, if that is at the hub.
    pub(crate) fn begin(&mut self, hub: Option<SiteId>, settings: Settings) {
        let Self { round_trips_us, rules, .. } = core::mem::take(self);
        let mut all_us = vec![UNMEASURED_US; SITES_MAX];
        for (site, us) in &round_trips_us {
            if let Some(of_site) = all_us.get_mut(usize::from(*site)) {
                *of_site = *us;
            }
        }
        let sites = hub.and_then(|hub| Sites::new(Site(hub), all_us).ok());
        self.policy = sites.map(|sites| Policy::new(settings, sites));
        if let Some(policy) = &mut self.policy {
            policy.set_rules(rules.clone());
        }
        (self.round_trips_us, self.rules) = (round_trips_us, rules);
    }

    /// Where tokens are to be, while this server leads the hub.
    pub(crate) fn get(&mut self) -> Option<&mut Policy> {
        self.policy.as_mut()
    }

    /// A site uses a token that the hub holds. Says where it goes, if it does.
    #[inline]
    pub(crate) fn decide(&mut self, path: &str, by: SiteId, hub: SiteId, now_us: u64) -> Option<TokenMove> {
        let policy = self.policy.as_mut()?;
        let (site, holder) = (Site(by), Site(hub));
        let access = Access { path, site, holder, holder_uses: 0, at_ms: now_us / 1000 };
        let Decision { next, subtree, along } = policy.decide(&access);
        match next {
            Next::Site(Site(to)) if to != hub => Some(TokenMove { path: path.into(), subtree, along, to }),
            _ => None,
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.policy.is_some()
    }

    /// The round trip between a site and this one was measured.
    pub(crate) fn measured(&mut self, site: SiteId, us: u32) {
        let known = self.round_trips_us.entry(site).or_insert(us);
        let step = (i64::from(us) - i64::from(*known)) / ROUND_TRIP_SHARE;
        *known = if step == 0 { us } else { u32::try_from(i64::from(*known) + step).unwrap_or(us) };
        if let Some(policy) = &mut self.policy {
            policy.set_round_trip_us(Site(site), *known);
        }
    }

    /// What the operator says is this.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        if let Some(policy) = &mut self.policy {
            policy.set_rules(rules.clone());
        }
        self.rules = rules;
        self.look_at_us = 0;
    }

    // ---- requests that wait ----

    /// Whether it is decided what becomes of the tokens that a request needs.
    pub(crate) fn has_plan(&self, ticket: Ticket) -> bool {
        self.plans.contains_key(&ticket)
    }

    pub(crate) fn plan(&mut self, ticket: Ticket, plan: TicketPlan) {
        self.plans.insert(ticket, plan);
    }

    /// A request needs these, and has its plan: if they are several, none is given away before it has all.
    pub(crate) fn reserve(&mut self, ticket: Ticket, needed: &BTreeSet<String>) {
        let Some(plan) = self.plans.get_mut(&ticket).filter(|_| needed.len() > 1) else { return };
        for path in needed {
            if plan.reserved.insert(path.clone()) {
                *self.reserved.entry(path.clone()).or_default() += 1;
            }
        }
    }

    /// A request is carried out, or needs nothing any more.
    pub(crate) fn take_plan(&mut self, ticket: Ticket) -> Option<TicketPlan> {
        let plan = self.plans.remove(&ticket)?;
        for path in &plan.reserved {
            if let Some(count) = self.reserved.get_mut(path) {
                *count -= 1;
                if *count == 0 {
                    self.reserved.remove(path);
                }
            }
        }
        Some(plan)
    }

    /// Whether a request waits for this token, or one below it, and for others besides.
    pub(crate) fn is_reserved(&self, path: &str) -> bool {
        if self.reserved.is_empty() {
            return false;
        }
        // What begins with the path and is not below it ("/a-b" of "/a") stands between it and what is.
        let below = alloc::format!("{path}/");
        let next = self.reserved.range(below.clone()..).next();
        self.reserved.contains_key(path) || next.is_some_and(|(next, _)| next.starts_with(&below))
    }

    // ---- tokens that are away ----

    /// A token goes to a site.
    pub(crate) fn gave(&mut self, path: &str, at: SiteId, now_us: u64) {
        let away = Away { at, since_us: now_us, used_us: now_us, uses: 0 };
        if let Some(known) = self.away.get_mut(path) {
            *known = away;
        } else if self.away.len() < AWAY_MAX {
            self.away.insert(path.into(), away);
        }
    }

    /// What is known of a token that was given to a site.
    pub(crate) fn away(&self, path: &str) -> Option<Away> {
        self.away.get(path).copied()
    }

    /// Who has used what is at a path lately, while this server leads the hub.
    pub(crate) fn usage(&self, path: &str) -> Option<Usage> {
        self.policy.as_ref()?.usage(path)
    }

    /// The holder of a znode's token has used it.
    pub(crate) fn used(&mut self, path: &str, by: SiteId, now_us: u64) {
        let Some(policy) = &mut self.policy else { return };
        policy.used(path, Site(by), 1);
        self.is_written(path, false);
        if let Some(top) = stoa_sites::upward(path).find(|top| self.away.contains_key(*top))
            && let Some(away) = self.away.get_mut(top).filter(|away| away.at == by)
        {
            away.used_us = now_us;
            away.uses += 1;
        }
    }

    /// It is not with that site any more.
    pub(crate) fn is_back(&mut self, path: &str) {
        self.away.remove(path);
    }

    /// When it is next to be looked after tokens.
    pub(crate) fn next_look_us(&self) -> Option<u64> {
        let policy = self.policy.as_ref()?;
        let has_work = !self.away.is_empty() || policy.rules().pins().next().is_some();
        has_work.then_some(self.look_at_us)
    }

    /// Tokens that are away and are to be looked at now; all of them in turn.
    pub(crate) fn look(&mut self, now_us: u64) -> Option<Vec<(String, Away)>> {
        self.next_look_us().filter(|due| *due <= now_us)?;
        self.look_at_us = now_us + LOOK_US;
        let from = (Bound::Excluded(self.looked_at.as_str()), Bound::Unbounded);
        let next = self.away.range::<str, _>(from).take(LOOKED_AT_MAX);
        let next: Vec<(String, Away)> = next.map(|(path, away)| (path.clone(), *away)).collect();
        self.looked_at = match next.last() {
            Some((path, _)) if next.len() == LOOKED_AT_MAX => path.clone(),
            _ => String::new(),
        };
        Some(next)
    }

    // ---- read tokens ----

    /// A site has read what is newest of a znode by way of the hub. Returns which sites have done so while nobody has
    /// written it, if they are worth read tokens; where `is_away` also that it is had from another site.
    pub(crate) fn is_read(&mut self, path: &str, by: SiteId, is_away: bool) -> Option<SiteSet> {
        let policy = self.policy.as_ref()?;
        let least = match policy.kind() {
            Kind::Hub => return None,
            Kind::Consecutive(count) => u32::from(count),
            Kind::Expected => READS_LEAST,
        };
        // What the operator says of a token is said of all of it.
        if policy.told(path).is_some() {
            return None;
        }
        if self.reads.len() >= READS_MAX && !self.reads.contains_key(path) {
            self.reads.clear();
        }
        let run = self.reads.entry(path.into()).or_default();
        run.sites = run.sites.with(by);
        run.count = run.count.saturating_add(1);
        let least = least << (run.regrets + u32::from(is_away));
        run.has_moved |= is_away && run.count >= least;
        (run.count >= least).then_some(run.sites)
    }

    /// Whether any znode is remembered that was read so.
    pub(crate) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// A znode is written; maybe read tokens were in the way of that.
    pub(crate) fn is_written(&mut self, path: &str, in_the_way: bool) {
        if self.reads.is_empty() {
            return;
        }
        let Some(run) = self.reads.get_mut(path).filter(|run| run.count > 0) else { return };
        let regrets = (run.regrets + u32::from(in_the_way || run.has_moved)).min(REGRETS_MAX);
        *run = ReadRun { regrets, ..ReadRun::default() };
    }

    // ---- tokens that pass through the hub ----

    /// A token is recalled, and goes on to a site when it comes.
    pub(crate) fn passes(&mut self, path: &str, to: SiteId) {
        if self.passing.len() < AWAY_MAX {
            self.passing.insert(path.into(), to);
        }
    }

    /// The token of what is at a path, and below, may have come, or does not come.
    pub(crate) fn arrives(&mut self, path: &str) {
        if self.passing.is_empty() {
            return;
        }
        let begins = |other: &&String| path == "/" || other.starts_with(path);
        let all = self.passing.range(String::from(path)..).map(|(path, _)| path).take_while(begins);
        self.arrived.extend(all.filter(|other| is_at_or_below(other, path)).cloned());
    }

    /// The next token that has come on its way to a site.
    pub(crate) fn next_passing(&mut self) -> Option<(String, SiteId)> {
        let path = self.arrived.pop_first()?;
        let to = self.passing.remove(&path)?;
        Some((path, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> TokenPolicy {
        let mut policy = TokenPolicy::default();
        policy.begin(Some(1), Settings::default());
        policy
    }

    #[test]
    fn round_trips_are_smoothed_and_outlive_the_policy() {
        let mut policy = begun();
        let of = |policy: &mut TokenPolicy| policy.get().unwrap().sites().round_trip_us(Site(2));
        assert_eq!(of(&mut policy), UNMEASURED_US);
        policy.measured(2, 90_000);
        assert_eq!(of(&mut policy), 90_000);
        policy.measured(2, 890_000);
        assert_eq!(of(&mut policy), 190_000);
        (0..100).for_each(|_| policy.measured(2, 62_000));
        assert!(of(&mut policy).abs_diff(62_000) < 10);
        policy.begin(None, Settings::default());
        assert!(!policy.is_there());
        policy.begin(Some(1), Settings::default());
        assert!(of(&mut policy).abs_diff(62_000) < 10);
    }

    #[test]
    fn what_several_requests_wait_for_is_reserved_until_the_last_has_it() {
        let mut policy = begun();
        let ticket = |number| Ticket { site: 2, number };
        for (number, paths) in [(1, ["/a/x", "/a-b"]), (2, ["/a/x", "/c"])] {
            policy.plan(ticket(number), TicketPlan::default());
            (0..2).for_each(|_| policy.reserve(ticket(number), &paths.map(String::from).into()));
        }
        let paths = ["/a", "/a/x", "/a/x/y", "/a-b", "/c", "/"];
        let reserved = |policy: &TokenPolicy| paths.map(|path| policy.is_reserved(path));
        assert_eq!(reserved(&policy), [true, true, false, true, true, false]);
        assert!(policy.take_plan(ticket(1)).is_some() && policy.take_plan(ticket(1)).is_none());
        assert_eq!(reserved(&policy), [true, true, false, false, true, false]);
        assert!(policy.take_plan(ticket(2)).is_some());
        assert_eq!(reserved(&policy), [false; 6]);
    }

    #[test]
    fn what_passes_goes_on_when_it_has_come() {
        let mut policy = begun();
        for path in ["/a", "/a/b", "/a-b"] {
            policy.passes(path, 3);
        }
        policy.arrives("/b");
        assert_eq!(policy.next_passing(), None);
        policy.arrives("/a");
        policy.arrives("/a");
        let mut next = || policy.next_passing();
        assert_eq!((next(), next(), next()), (Some(("/a".into(), 3)), Some(("/a/b".into(), 3)), None));
    }

    #[test]
    fn tokens_that_are_away_are_looked_at_in_turn() {
        let mut policy = begun();
        assert_eq!(policy.look(1), None, "there are none");
        (0..300).for_each(|at| policy.gave(&alloc::format!("/{at:03}"), 2, 5));
        policy.used("/299/x", 2, 9);
        policy.used("/298/x", 3, 9);
        let looked = |policy: &mut TokenPolicy, at| policy.look(at).map(|all| all.len());
        assert_eq!(looked(&mut policy, 10), Some(256));
        assert_eq!(looked(&mut policy, 10), None);
        let rest = policy.look(LOOK_US * 2).unwrap();
        assert_eq!(rest.last(), Some(&("/299".into(), Away { at: 2, since_us: 5, used_us: 9, uses: 1 })));
        assert_eq!(rest[rest.len() - 2].1.used_us, 5);
        policy.is_back("/299");
        assert_eq!(looked(&mut policy, LOOK_US * 4), Some(256));
        assert_eq!(looked(&mut policy, LOOK_US * 6), Some(43));
    }
}
