//! Several sites, each an ensemble as any other, with what their leaders say to each other, and clients that are at one
//! of them at a time.
//!
//! Each site is a [`World`]; this one keeps their times together and carries what passes between them. The hub is the
//! first one, until an operator has another one be it. How a site's leader finds the hub's, and what it is sent when it
//! has nothing or was away for long, is the small counterpart of what the server does in `sites`.

mod absence;
mod judge;
mod ledger;
mod lines;
mod looks;
mod meeting;
mod operator;
mod plan;
mod releases;
mod resident;
mod storms;
mod traveller;
mod upto;

pub use plan::SitePlan;

use crate::ensemble::HostId;
use crate::ensemble::{Abroad, Client, Envoy, Failure, FromAbroad, Outcome, World};
use crate::rng::Rng;
use absence::Absences;
use ledger::Ledger;
use lines::{Bound, End, Letter, Lines};
use looks::{Hearsay, Mind};
use operator::Operator;
use resident::Resident;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use stoa_core::{Greeting, SiteId};
use traveller::{Foothold, Traveller};

/// The first site, which is the hub when there are sites, and its index.
const HUB: SiteId = 1;
const HUB_AT: usize = 0;
/// More steps than any run takes. Servers that propose something for ever have a run never end.
const STEPS_MAX: u64 = 2_000_000;

/// Something that is going to happen between sites.
#[derive(Debug, Clone)]
enum Passage {
    /// It is looked whether leaders have to be connected.
    Tend,
    /// A leader of a site reaches the one that it takes for the hub.
    Arrive(usize, End, usize),
    /// A leader of a site asks another one who the hub is.
    Look((usize, End), usize, Greeting),
    /// It is told.
    Learn((usize, End), Hearsay),
    /// Something arrives on a connection, this way.
    Deliver(u64, Bound),
    /// A state that came on a connection should be a site's by now.
    Joins(u64),
    /// One end of a connection notices that it is over.
    Notice(u64, Bound),
    /// A server hears something.
    Hear(usize, (HostId, u64), FromAbroad),
    /// Something goes wrong with a line or a site.
    Storm(storms::Storm),
    /// A site that is down starts again.
    Rise(usize),
}

/// What a run with several sites came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SitesOutcome {
    /// What befell the servers of all sites.
    pub servers: Outcome,
    /// Equal runs have equal fingerprints.
    pub fingerprint: u64,
    /// Answers that clients got.
    pub answers: u64,
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Events that clients were told.
    pub events: u64,
    /// Times that a client went to another site.
    pub travels: u64,
    /// Connections between sites.
    pub calls: u64,
    /// Times that a line was cut, ...
    pub cuts: u64,
    /// ... that a connection broke, ...
    pub breaks: u64,
    /// ... and that all servers of a site ended.
    pub downs: u64,
    /// Times that a site was away, where others take the hub's place by themselves.
    pub absences: u64,
    /// Sites that have joined.
    pub joined: u64,
    /// Times that a site was told from the log's files what it had missed.
    pub backlogs: u64,
    /// Times that a leader had not enough left in its log of what a site had missed.
    pub stranded: u64,
    /// Runs that ended so: nobody had what a site has missed, which would have to join anew.
    pub cut_short: u64,
    /// Requests that have gone to the hub.
    pub forwarded: u64,
    /// Tokens that were given.
    pub grants: u64,
    /// Tokens that the hub wanted back.
    pub recalls: u64,
    /// Requests that it has sent to the home of an ephemeral.
    pub visits: u64,
    /// Orders to a site to be the hub, ...
    pub claims: u64,
    /// ... and hubs behind the first one.
    pub reigns: u64,
    /// Sites that were lost, ...
    pub losses: u64,
    /// ... and have joined again.
    pub returns: u64,
    /// Times that a site had more than it could tell who lacked it.
    pub torn: u64,
    /// Servers that got the next release, ...
    pub upgrades: u64,
    /// ... times that a leader was too old for the others, ...
    pub too_old: u64,
    /// ... and runs in which the feature level was raised before the end.
    pub raised: u64,
}

summed! {
    SitesOutcome {
        servers, answers, writes, events, travels, calls, cuts, breaks, downs, absences, joined, backlogs, stranded, cut_short, forwarded, grants,
        recalls, visits, claims, reigns, losses, returns, torn, upgrades, too_old, raised,
    }
    fingerprint: 0,
}

impl fmt::Display for SitesOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.answers, "answers"),
            (self.writes, "writes"),
            (self.events, "events"),
            (self.travels, "journeys"),
            (self.calls, "connections between sites"),
            (self.cuts, "lines cut"),
            (self.breaks, "connections broken"),
            (self.downs, "sites down"),
            (self.absences, "times away"),
            (self.joined, "sites joined"),
            (self.backlogs, "backlogs read"),
            (self.stranded, "not in the log"),
            (self.cut_short, "runs cut short by that"),
            (self.forwarded, "requests forwarded"),
            (self.grants, "tokens given"),
            (self.recalls, "recalled"),
            (self.visits, "visits"),
            (self.claims, "orders to be the hub"),
            (self.reigns, "other hubs"),
            (self.losses, "sites given up"),
            (self.returns, "of them back"),
            (self.torn, "logs that did not reach back"),
            (self.upgrades, "servers with another release"),
            (self.too_old, "too old"),
            (self.raised, "levels raised"),
        ];
        for (count, what) in counts {
            write!(f, "{count} {what}, ")?;
        }
        write!(f, "{}", self.servers)
    }
}

/// A run that has not begun.
pub struct SiteRun {
    plan: SitePlan,
    worlds: Vec<World>,
    lines: Lines,
    passages: BTreeMap<(u64, u64), Passage>,
    last_passage: u64,
    now_us: u64,
    steps: u64,
    rng: Rng,
    ledger: Rc<RefCell<Ledger>>,
    clients: Vec<Rc<RefCell<Traveller>>>,
    /// Attempts of leaders to reach the hub that are under way.
    trying: BTreeMap<(usize, HostId), u64>,
    /// The last term in which each server of the hub has begun that there are sites.
    begun: BTreeMap<(HostId, u64), u64>,
    /// What leaders know of hubs, by their site, server and life.
    minds: BTreeMap<(usize, HostId, u64), Mind>,
    operator: Operator,
    absences: Absences,
    /// The site that is the hub, or was it last.
    hub: usize,
    /// Since when each site may come.
    comes_us: Vec<u64>,
    /// When a server gets another release next, or the feature level is raised.
    releases_us: u64,
    is_healing: bool,
    /// So many times since all is healed nothing was left in a log of what a site has missed.
    given_up: u64,
    /// What tokens are looked at.
    paths: Vec<String>,
    counts: SitesOutcome,
}

impl SiteRun {
    /// One in which everything follows from the seed.
    #[must_use]
    pub fn new(seed: u64, plan: &SitePlan, printing: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0x5173);
        let world = |rng: &mut Rng, at: usize| {
            let mut world = World::empty(rng.next_u64(), plan.life_of(at), printing);
            world.calls_itself(at as u8 + 1);
            world.movable = resident::paths(plan.clients);
            world
        };
        let mut worlds: Vec<World> = (0..plan.sites).map(|at| world(&mut rng, at)).collect();
        if plan.is_automatic() {
            absence::set_clocks(&mut worlds, &mut rng);
        }
        let late_us = plan.storms.late_ms * 1000;
        let comes_us = (0..plan.sites).map(|at| if at + 1 == plan.sites { late_us } else { 0 }).collect();
        let mut run = Self {
            plan: plan.clone(),
            worlds,
            lines: Lines::default(),
            passages: BTreeMap::new(),
            last_passage: 0,
            now_us: 0,
            steps: 0,
            rng,
            ledger: Rc::default(),
            clients: Vec::new(),
            trying: BTreeMap::new(),
            begun: BTreeMap::new(),
            minds: BTreeMap::new(),
            operator: Operator::default(),
            absences: Absences::default(),
            hub: HUB_AT,
            comes_us,
            releases_us: 0,
            is_healing: false,
            given_up: 0,
            paths: resident::paths(plan.clients),
            counts: SitesOutcome::default(),
        };
        run.clients_come();
        run.after(1, Passage::Tend);
        run.schedule_storms();
        run
    }

    fn clients_come(&mut self) {
        let SitePlan { clients, sites, travel_percent, .. } = self.plan;
        let (manners, servers) = (self.plan.life.manners, self.plan.life.servers + self.plan.life.readers);
        for index in 0..clients {
            let resident = Resident::new(&self.ledger, index % 4 == 3, self.plan.has_program);
            let client = Client::new(index, self.rng.fork(), manners, servers, resident);
            let at = (index % sites, sites);
            let traveller = Traveller::new(client, self.rng.fork(), &self.ledger, at, travel_percent);
            for (site, world) in self.worlds.iter_mut().enumerate() {
                world.enter(Box::new(Foothold { site, traveller: Rc::clone(&traveller) }));
            }
            self.clients.push(traveller);
        }
    }

    fn after(&mut self, us: u64, passage: Passage) {
        self.at(self.now_us + us, passage);
    }

    fn at(&mut self, at_us: u64, passage: Passage) {
        self.last_passage += 1;
        self.passages.insert((at_us, self.last_passage), passage);
    }

    /// Lives through everything.
    ///
    /// # Errors
    /// What must not have happened, or has not happened though it must.
    pub fn run(mut self) -> Result<SitesOutcome, Failure> {
        while self.requests() < self.plan.requests && self.now_us < self.plan.lasts_us {
            self.step()?;
        }
        self.finish()
    }

    fn requests(&self) -> u64 {
        self.clients.iter().map(|client| client.borrow().requests()).sum()
    }

    /// What comes next, wherever it is.
    fn step(&mut self) -> Result<(), Failure> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            let why = format!("the end is not reached after {STEPS_MAX} steps, at {} us", self.now_us);
            return Err(Failure::Liveness(why));
        }
        let next = |(at, world): (usize, &World)| world.next_us().map(|next_us| (next_us, at));
        let world = self.worlds.iter().enumerate().filter_map(next).min();
        let passage = self.passages.first_key_value().map(|((at_us, _), _)| *at_us);
        match (world, passage) {
            (Some((next_us, at)), passage) if passage.is_none_or(|passage| next_us < passage) => {
                self.now_us = self.now_us.max(next_us);
                self.worlds[at].step()?;
                self.carry(at);
                self.look(at)
            }
            (_, Some(_)) => {
                let Some(((at_us, _), passage)) = self.passages.pop_first() else { return Ok(()) };
                self.now_us = self.now_us.max(at_us);
                self.pass(passage)
            }
            _ => Err(Failure::Liveness("nothing is going to happen any more".into())),
        }
    }

    fn pass(&mut self, passage: Passage) -> Result<(), Failure> {
        match passage {
            Passage::Tend => self.tend()?,
            Passage::Arrive(leaf, end, hub) => self.arrive(leaf, end, hub),
            Passage::Look(asks, to, greeting) => self.is_asked(asks, to, greeting),
            Passage::Learn(asks, told) => self.learn(asks, told),
            Passage::Deliver(call, bound) => self.deliver(call, bound),
            Passage::Joins(call) => self.joins(call),
            Passage::Notice(call, bound) => self.notice(call, bound),
            Passage::Hear(at, whom, heard) => self.worlds[at].comes_from_abroad(self.now_us, whom, heard),
            Passage::Storm(storm) => self.storm(storm),
            Passage::Rise(at) => self.rise(at),
        }
        Ok(())
    }

    /// Puts what servers of a site have for others on its way.
    fn carry(&mut self, at: usize) {
        for (server, life, what) in self.worlds[at].take_abroad() {
            match what {
                Abroad::Message(to, message) => self.say(at, (server, life), to, Letter::Message(message)),
                Abroad::State(to, position) => {
                    if let Some(chunks) = self.worlds[at].snapshot_at(server, position) {
                        self.say(at, (server, life), to, Letter::State(position, chunks));
                    }
                }
                Abroad::Backlog(wanted) => {
                    self.counts.backlogs += 1;
                    match self.worlds[at].read_log(server, wanted) {
                        Ok(reading) => self.hear_later(at, (server, life), FromAbroad::Read(reading)),
                        Err(why) => self.strand(at, (server, life), wanted.site, &why),
                    }
                }
                Abroad::Rest(reading) => self.hear_later(at, (server, life), FromAbroad::Read(reading)),
                Abroad::Torn(site) => self.is_torn(at, (server, life), site),
            }
        }
    }

    fn hear_later(&mut self, at: usize, whom: (HostId, u64), heard: FromAbroad) {
        let after = self.rng.range(100, 4000);
        self.after(after, Passage::Hear(at, whom, heard));
    }

    /// Which of the servers of a site believe that they lead it.
    fn leaders(&self, at: usize) -> Vec<Envoy> {
        let mut envoys = self.worlds[at].envoys();
        envoys.retain(|envoy| envoy.leads);
        envoys
    }
}
