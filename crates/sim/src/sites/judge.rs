//! What must hold at all sites together, at any moment and in the end.

use super::{SiteRun, SitesOutcome};
use crate::ensemble::HostId;
use crate::ensemble::roster::CONFIG;
use crate::ensemble::{Failure, Outcome, Whole};
use std::collections::BTreeMap;
use stoa_check::{Checked, wrong};
use stoa_core::{Shard, SiteId};

/// By then everybody has an answer, microseconds after the end of all trouble.
const PATIENCE_US: u64 = 60_000_000;
/// The same of who was given up, where others take the hub's place: one comes back at a time.
const RETURN_US: u64 = 180_000_000;
/// By then nothing is on its way any more.
const QUIET_US: u64 = 30_000_000;
/// Sessions that nobody speaks for end by then, wherever they are at home.
const ENDS_US: u64 = 20_000_000;
/// So often nothing was left in a log of what a site had missed when it has to join anew.
const GIVEN_UP: u64 = 20;
/// So many tokens are looked at after each step.
const LOOKED_AT: usize = 2;

impl SiteRun {
    /// The first partition of the server that leads the newest term of a site.
    pub(super) fn first_of(&self, at: usize) -> Option<&Shard> {
        self.leader_of(at).map(|leader| leader.first())
    }

    /// The server that leads the newest term of a site, if it is known to: what it holds and has prepared is the site's.
    pub(super) fn leader_of(&self, at: usize) -> Option<Whole<'_>> {
        let world = &self.worlds[at];
        let envoys = world.envoys();
        let newest = envoys.iter().map(|envoy| envoy.term).max()?.max(world.newest_led());
        let envoy =
            envoys.into_iter().find(|envoy| envoy.leads && envoy.is_elected && envoy.term == newest)?;
        world.whole(envoy.server)
    }

    /// Looks at what a step at a site has led to.
    pub(super) fn look(&mut self, at: usize) -> Result<(), Failure> {
        if self.plan.is_automatic() {
            self.look_at_reigns(at)?;
        }
        for _ in 0..LOOKED_AT {
            let path = &self.paths[self.rng.index(self.paths.len())];
            self.one_holder(path)?;
            self.owner_is_there(at, path)?;
        }
        let expired = std::mem::take(&mut self.ledger.borrow_mut().expired);
        expired.into_iter().try_for_each(|session| self.has_expired(at, session))?;
        Ok(())
    }

    /// Two sites never hold the token of a znode, what they have prepared counted.
    fn one_holder(&self, path: &str) -> Checked {
        let mut holders: BTreeMap<SiteId, (u64, i64)> = BTreeMap::new();
        for at in (0..self.worlds.len()).filter(|at| !self.is_doomed(*at)) {
            let is_told = |leader: &Whole<'_>| leader.leads(path) && leader.agree_on_places();
            let Some(leader) = self.leader_of(at).filter(is_told) else { continue };
            let (first, tree) = (leader.first().tree(), leader.tree_of(path));
            let own = tree.own_site();
            // Who is the hub and follows another site prepares nothing any more, on no partition; one of them may be the
            // last to apply that.
            let follows = first.hub() != own || [first, tree].iter().any(|it| it.streams().claim().is_some());
            let is_frozen = follows && tree.hub() == own;
            if own.is_some() && !is_frozen && tree.holder_to_be(path) == own {
                holders.insert(own.unwrap_or_default(), (tree.reign(), tree.last_zxid()));
            }
        }
        if holders.len() > 1 {
            return wrong(format!(
                "{path} is held by {holders:?}, which have come to these reigns and zxids"
            ));
        }
        Ok(())
    }

    /// No ephemeral is there without its session.
    fn owner_is_there(&self, at: usize, path: &str) -> Checked {
        for envoy in self.worlds[at].envoys() {
            let whole = self.worlds[at].whole(envoy.server).filter(Whole::agree_on_places);
            let Some(whole) = whole else { continue };
            let tree = whole.tree_of(path);
            let owner = tree.get(path).map_or(0, |znode| znode.stat().ephemeral_owner);
            if owner != 0 && tree.session(owner).is_none() {
                return wrong(format!(
                    "{path} is there at server {} of site {}, and not its session {owner:#x}",
                    envoy.server,
                    at + 1
                ));
            }
        }
        Ok(())
    }

    /// A client was told that its session has expired: so it is not there any more at its home. The leader there may
    /// be the last to apply that.
    fn has_expired(&self, told_at: usize, session: i64) -> Checked {
        if self.is_doomed(told_at) {
            // It has ended there, which the others may never hear of.
            return Ok(());
        }
        let others = self.worlds.iter().enumerate().filter(|(at, _)| !self.is_doomed(*at));
        for (at, world) in others {
            let is_there = |shard: &Shard| {
                let tree = shard.tree();
                tree.own_site() == Some(tree.home_of(session)) && tree.session(session).is_some()
            };
            // One that stands alone says so when it has proposed the end.
            let may_end = self.plan.life.servers == 1 && at == told_at;
            let servers = world.envoys();
            let mut shards = servers.iter().filter_map(|envoy| world.shard(envoy.server));
            if !servers.is_empty() && shards.all(is_there) && !may_end {
                return wrong(format!(
                    "at site {} a client was told that session {session:#x} has expired, and it is at site {}",
                    told_at + 1,
                    at + 1
                ));
            }
        }
        Ok(())
    }

    // ---- the end ----

    /// Heals everything and waits for the end: everybody is answered, sessions end, and all sites have the same, also
    /// when all have lost their power.
    pub(super) fn finish(mut self) -> Result<SitesOutcome, Failure> {
        self.heal();
        if !self.comes_to_rest()? {
            self.counts.cut_short += 1;
            return Ok(self.outcome());
        }
        self.compare()?;
        for world in &mut self.worlds {
            let ids = world.ids();
            ids.iter().for_each(|id| world.fell(*id, true));
            ids.iter().for_each(|id| world.rise(*id));
        }
        let end_us = self.now_us + 3_000_000;
        while self.now_us < end_us {
            self.step()?;
        }
        self.until(QUIET_US, Self::is_quiet)?;
        self.compare()?;
        Ok(self.outcome())
    }

    fn comes_to_rest(&mut self) -> Result<bool, Failure> {
        let are_done = |run: &Self| match run.clients.iter().find(|client| !client.borrow().is_done()) {
            Some(client) => Err(client.borrow().waits_for()),
            None => Ok(()),
        };
        let returns_us = if self.plan.is_automatic() { RETURN_US } else { PATIENCE_US };
        if self.plan.is_operated() && !self.until(returns_us, Self::is_in_order)? {
            return Ok(false);
        }
        Ok(self.until(PATIENCE_US, are_done)?
            && self.until(ENDS_US, Self::has_no_sessions)?
            && self.until(PATIENCE_US, Self::is_raised)?
            && self.until(QUIET_US, Self::is_quiet)?)
    }

    fn heal(&mut self) {
        self.is_healing = true;
        self.count();
        self.all_come_back();
        self.finish_releases();
        self.lines.mend();
        for world in &mut self.worlds {
            world.heal_at(self.now_us);
        }
    }

    /// Goes on until something is so. False if a site has to join anew, and it never will be.
    fn until(
        &mut self,
        patience_us: u64,
        is_so: impl Fn(&Self) -> Result<(), String>,
    ) -> Result<bool, Failure> {
        let end_us = self.now_us + patience_us;
        let mut look_us = 0;
        loop {
            if self.now_us >= look_us {
                look_us = self.now_us + 100_000;
                match is_so(self) {
                    Ok(()) => return Ok(true),
                    Err(what) if self.now_us > end_us => {
                        // Each of several servers may have taken over a snapshot instead of what was missed.
                        let is_lost = self.given_up > GIVEN_UP && self.plan.life.servers > 1;
                        return if is_lost { Ok(false) } else { self.stuck(&what) };
                    }
                    Err(_) => {}
                }
            }
            self.step()?;
        }
    }

    fn stuck(&self, what: &str) -> Result<bool, Failure> {
        let standing = |at: usize| {
            let waiting = self.first_of(at).map(|shard| {
                let streams = shard.tree().streams();
                format!("{:?} {:?}", shard.site_status(), streams.all_waiting().take(3).collect::<Vec<_>>())
            });
            format!("\n  site {}: {}", at + 1, waiting.unwrap_or_else(|| "nobody leads".into()))
        };
        let all: String = (0..self.worlds.len()).map(standing).collect();
        Err(Failure::Liveness(format!("{what}{all}")))
    }

    pub(super) fn each(
        &self,
        look: impl Fn(usize, HostId, &Whole<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        for (at, world) in self.worlds.iter().enumerate() {
            for id in world.ids() {
                let Some(whole) = world.whole(id) else {
                    return Err(format!("server {id} of site {} is down", at + 1));
                };
                look(at + 1, id, &whole)?;
            }
        }
        Ok(())
    }

    fn has_no_sessions(&self) -> Result<(), String> {
        self.each(|site, _, whole| match whole.all().find_map(|shard| shard.tree().sessions().next()) {
            Some(session) => Err(format!("session {:#x} does not end at site {site}", session.id)),
            None => Ok(()),
        })
    }

    /// Whether all servers have applied everything, and nothing is on its way.
    fn is_quiet(&self) -> Result<(), String> {
        if let Some((at, _)) = self.worlds.iter().enumerate().find(|(_, world)| !world.have_all_caught_up()) {
            return Err(format!("a server of site {} stays behind", at + 1));
        }
        let first = self.worlds[0].whole(self.worlds[0].ids()[0]);
        self.each(|site, id, whole| {
            let shard = whole.first();
            let streams = shard.tree().streams();
            match () {
                () if !shard.has_joined() => Err(format!("site {site} has not joined")),
                () if !streams.is_empty() => Err(format!("something waits at server {id} of site {site}")),
                () if streams.recalled().next().is_some() => {
                    Err(format!("a token is wanted back from site {site}"))
                }
                () if whole.all().any(|other| other.has_joined() != shard.has_joined()) => {
                    Err(format!("a partition of site {site} has not joined"))
                }
                () if site > 1 && id == self.worlds[site - 1].ids()[0] => match &first {
                    Some(first) => {
                        is_same(first, whole, "/").map_err(|what| format!("at site {site} {what}"))
                    }
                    None => Ok(()),
                },
                () => Ok(()),
            }
        })
    }

    fn compare(&self) -> Checked {
        let ledger = self.ledger.borrow();
        let looked = self.each(|site, id, whole| {
            let wrong = |what: &str| Err(format!("server {id} of site {site}: {what}"));
            for tree in whole.all().map(|shard| shard.tree()) {
                if tree.digest() != tree.recomputed_digest() {
                    return wrong("the digest is not that of the state");
                }
                if tree.ephemeral_count() > 0 {
                    return wrong("ephemerals outlive their sessions");
                }
                // It is said everywhere, since what has no mark is held with it.
                if tree.holder("/") != whole.holder("/") {
                    return wrong("its partitions do not agree who holds the root");
                }
            }
            ledger.compare(whole).map_err(|violation| format!("server {id} of site {site}: {violation}"))
        });
        looked.and_then(|()| self.is_raised()).or_else(wrong)?;
        for path in self.paths.iter().map(String::as_str).chain(["/"]) {
            let leaders = (0..self.worlds.len()).filter_map(|at| self.leader_of(at));
            let trees = leaders.map(|leader| leader.tree_of(path));
            let holders = trees.filter(|tree| tree.holder_to_be(path) == tree.own_site()).count();
            if holders != 1 && (0..self.worlds.len()).all(|at| self.first_of(at).is_some()) {
                return wrong(format!("{path} is held by {holders} sites"));
            }
        }
        Ok(())
    }

    /// Adds what leaders have counted.
    fn count(&mut self) {
        for at in 0..self.worlds.len() {
            let Some(leader) = self.leader_of(at) else { continue };
            let all: Vec<_> =
                leader.all().filter_map(|shard| shard.site_status()).map(|it| it.counts).collect();
            self.counts.forwarded += all.iter().map(|counts| counts.writes_forwarded).sum::<u64>();
            self.counts.grants += all.iter().map(|counts| counts.grants).sum::<u64>();
            self.counts.recalls += all.iter().map(|counts| counts.recalls).sum::<u64>();
            self.counts.visits += all.iter().map(|counts| counts.visits).sum::<u64>();
            self.counts.joined += u64::from(at > 0 && !all.is_empty());
        }
        let shards = (0..self.worlds.len()).filter_map(|at| self.first_of(at));
        let reigns = shards.map(|shard| shard.tree().reign()).max().unwrap_or(0);
        self.counts.reigns = reigns.saturating_sub(1);
    }

    fn outcome(&self) -> SitesOutcome {
        let worlds: Vec<Outcome> = self.worlds.iter().map(|world| world.outcome()).collect();
        let fingerprint =
            worlds.iter().fold(self.now_us, |so_far, it| so_far.rotate_left(7) ^ it.fingerprint);
        let servers = worlds.into_iter().fold(Outcome::default(), |sum, it| sum + it);
        let ledger = self.ledger.borrow();
        SitesOutcome {
            servers,
            fingerprint,
            answers: ledger.answers,
            writes: ledger.writes,
            events: ledger.events,
            travels: ledger.travels,
            ..self.counts
        }
    }
}

/// Whether a znode and everything below it is the same for two sites, each of which may be divided in its own way, but
/// for what each has of its own.
fn is_same(one: &Whole<'_>, other: &Whole<'_>, path: &str) -> Result<(), String> {
    if path == CONFIG {
        return Ok(());
    }
    let (Some(a), Some(b)) = (one.get(path), other.get(path)) else {
        return Err(format!("{path} is missing"));
    };
    if (a.stat(), a.data(), a.child_count()) != (b.stat(), b.data(), b.child_count()) {
        return Err(format!("{path} is {:?} {:?}, and {:?} {:?}", b.stat(), b.data(), a.stat(), a.data()));
    }
    if one.holder(path) != other.holder(path) {
        return Err(format!("{path} is held by {:?}, and {:?}", other.holder(path), one.holder(path)));
    }
    let below = |name: &str| if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
    a.children().try_for_each(|name| is_same(one, other, &below(name)))
}
