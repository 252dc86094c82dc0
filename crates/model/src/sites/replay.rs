//! What writes cost with a policy, and what they would with others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use stoa_sites::{Policy, Rules, Settings, Site, Sites};

use super::accesses::{Accesses, Closed, Order};
use super::world::World;
use crate::{Invalid, is_time};

/// What is replayed of something that has no end, and what a write takes at home.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// A local write, in milliseconds; each other one takes as much more than its ways.
    pub local_ms: f64,
    /// Until when clients write, in milliseconds.
    pub until_ms: f64,
    /// What was before is not counted, in milliseconds.
    pub from_ms: f64,
}

/// What the writes of one site came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SiteTotal {
    /// How many.
    pub writes: u64,
    /// Those that needed no other site.
    pub local: u64,
    /// The ways of all, in microseconds.
    pub ways_us: u64,
    /// The same with observers.
    pub observers_us: u64,
}

impl SiteTotal {
    /// How long a write takes on average, in milliseconds.
    #[must_use]
    pub fn mean_ms(&self, span: &Span) -> f64 {
        span.local_ms + self.ways_us as f64 / 1e3 / self.writes.max(1) as f64
    }

    /// The same with observers.
    #[must_use]
    pub fn observers_ms(&self, span: &Span) -> f64 {
        span.local_ms + self.observers_us as f64 / 1e3 / self.writes.max(1) as f64
    }

    /// How many times as fast as with observers.
    #[must_use]
    pub fn over_observers(&self, span: &Span) -> f64 {
        let (own_ms, observers_ms) = (self.mean_ms(span), self.observers_ms(span));
        if own_ms == observers_ms { 1.0 } else { observers_ms / own_ms }
    }

    fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.local += other.local;
        self.ways_us += other.ways_us;
        self.observers_us += other.observers_us;
    }
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Each site's writes, by its number.
    pub sites: Vec<SiteTotal>,
    /// How often a token went to another site.
    pub moves: u64,
    /// Requests that a holder carried out for another leaf or for the hub.
    pub visits: u64,
    /// The ways of who knows the future and moves each object by itself, in microseconds: where the site changes from
    /// one write of an object to the next, the round trip of the new one to the hub, and nothing else. A token that is
    /// given back in time spares the way to the holder, and to leave it at the hub is never cheaper.
    pub offline_us: u64,
}

impl Replay {
    /// All sites together.
    #[must_use]
    pub fn all(&self) -> SiteTotal {
        let mut all = SiteTotal::default();
        self.sites.iter().for_each(|site| all.add(site));
        all
    }

    /// The site that gains least over observers, and how many times as fast it is.
    #[must_use]
    pub fn worst(&self, span: &Span) -> Option<(Site, f64)> {
        let writers = (0..).map(Site).zip(&self.sites).filter(|(_, total)| total.writes > 0);
        writers
            .map(|(site, total)| (site, total.over_observers(span)))
            .min_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// How many times as long the ways are as those of who knows the future.
    #[must_use]
    pub fn regret(&self) -> f64 {
        let ways_us = self.all().ways_us;
        if ways_us == self.offline_us { 1.0 } else { ways_us as f64 / self.offline_us as f64 }
    }
}

/// Counts what is in the span.
#[derive(Debug)]
struct Tally<'a> {
    world: World<'a>,
    sites: &'a Sites,
    from_us: u64,
    /// Who wrote each object last.
    last: Vec<Option<Site>>,
    moves_before: u64,
    found: Replay,
}

impl Tally<'_> {
    /// Carries out a write, and says how long its ways are.
    fn write(&mut self, at_us: u64, site: Site, object: usize) -> u64 {
        if at_us < self.from_us {
            self.moves_before = self.world.moves;
        }
        let written = self.world.write(at_us, site, object);
        let round_trip_us = u64::from(self.sites.round_trip_us(site));
        let is_change = self.last[object].replace(site) != Some(site);
        if at_us >= self.from_us {
            let total = &mut self.found.sites[usize::from(site.0)];
            total.writes += 1;
            total.local += u64::from(written.cost_us == 0);
            total.ways_us += written.cost_us;
            total.observers_us += round_trip_us;
            self.found.visits += u64::from(written.is_visit);
            self.found.offline_us += if is_change { round_trip_us } else { 0 };
        }
        written.cost_us
    }
}

/// Replays accesses through a policy.
///
/// # Errors
/// When sites write that are none, or a time is none.
pub fn replay(
    accesses: &Accesses,
    settings: Settings,
    rules: Rules,
    sites: &Sites,
    span: &Span,
) -> Result<Replay, Invalid> {
    let times = [span.local_ms, span.until_ms, span.from_ms];
    Invalid::unless(
        times.into_iter().all(|ms| is_time(ms) && ms <= 1e12),
        "from, until and local are times",
    )?;
    Invalid::unless(accesses.sites() <= sites.count(), "who writes is one of the sites")?;
    let mut policy = Policy::new(settings, sites.clone());
    policy.set_rules(rules);
    let us = |ms: f64| (ms * 1e3) as u64;
    let (local_us, until_us) = (us(span.local_ms), us(span.until_ms));
    let totals = vec![SiteTotal::default(); sites.count()];
    let mut tally = Tally {
        world: World::new(policy, &accesses.paths),
        sites,
        from_us: us(span.from_ms),
        last: vec![None; accesses.paths.len()],
        moves_before: 0,
        found: Replay { sites: totals, moves: 0, visits: 0, offline_us: 0 },
    };
    match &accesses.order {
        Order::Sequence(all) => {
            let mut now_us = 0;
            for (site, object) in all {
                now_us += local_us + tally.write(now_us, *site, *object);
            }
        }
        Order::Timed(all) => {
            for (at_us, site, object) in all {
                tally.write(*at_us, *site, *object);
            }
        }
        Order::Closed(closed) => run(&mut tally, closed.clone(), local_us, until_us)?,
    }
    let moves = tally.world.moves - tally.moves_before;
    Ok(Replay { moves, ..tally.found })
}

/// Clients that write again when they have been answered.
fn run(tally: &mut Tally<'_>, mut closed: Closed, local_us: u64, until_us: u64) -> Result<(), Invalid> {
    Invalid::unless(local_us + closed.think_us > 0, "a client that neither waits nor writes never ends")?;
    let mut next: BinaryHeap<Reverse<(u64, usize)>> =
        (0..closed.clients.len()).map(|client| Reverse((client as u64, client))).collect();
    while let Some(Reverse((at_us, client))) = next.pop().filter(|it| it.0.0 < until_us) {
        let object = closed.pick(client);
        let ways_us = tally.write(at_us, closed.clients[client].site, object);
        next.push(Reverse((at_us + ways_us + local_us + closed.think_us, client)));
    }
    Ok(())
}
