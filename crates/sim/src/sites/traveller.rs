//! Clients that are at one site at a time, and go from one to another with their session.

use super::ledger::Ledger;
use super::resident::Resident;
use crate::ensemble::{Act, Client, Judges, Tally, Visitor};
use crate::rng::Rng;
use std::cell::RefCell;
use std::rc::Rc;
use stoa_check::Violation;

/// How soon it is looked again whether a client has come to a site, microseconds.
const LOOK_US: u64 = 40_000;
/// Of a hundred connections to a site that was given up, so many are made to another one instead.
const FLEES_PERCENT: u32 = 50;

/// A client of all sites.
pub(super) struct Traveller {
    client: Client<Resident>,
    rng: Rng,
    ledger: Rc<RefCell<Ledger>>,
    /// Where it is.
    at: usize,
    sites: usize,
    travel_percent: u32,
    /// What it does first where it has gone, when it is there.
    luggage: Vec<Act>,
    is_finishing: bool,
}

impl Traveller {
    pub(super) fn new(
        client: Client<Resident>,
        rng: Rng,
        ledger: &Rc<RefCell<Ledger>>,
        (at, sites): (usize, usize),
        travel_percent: u32,
    ) -> Rc<RefCell<Self>> {
        let ledger = Rc::clone(ledger);
        let (luggage, is_finishing) = (Vec::new(), false);
        Rc::new(RefCell::new(Self { client, rng, ledger, at, sites, travel_percent, luggage, is_finishing }))
    }

    pub(super) fn is_done(&self) -> bool {
        self.client.is_done()
    }

    pub(super) fn waits_for(&self) -> String {
        format!("at site {}, {}", self.at + 1, self.client.waits_for())
    }

    pub(super) fn requests(&self) -> u64 {
        self.client.requests()
    }

    /// It may go on elsewhere.
    fn set_out(&mut self, mut acts: Vec<Act>) -> Vec<Act> {
        let Some(first) = acts.iter().position(|act| matches!(act, Act::Connect(..))) else { return acts };
        let is_shunned = |at: usize| self.ledger.borrow().shunned.contains(&at);
        let percent =
            if is_shunned(self.at) { FLEES_PERCENT.max(self.travel_percent) } else { self.travel_percent };
        let goes = self.rng.percent(percent) && !self.is_finishing;
        let to = self.rng.index(self.sites);
        if !goes || to == self.at || is_shunned(to) {
            return acts;
        }
        self.luggage = acts.split_off(first);
        self.at = to;
        self.ledger.borrow_mut().travels += 1;
        if self.rng.one_in(2) {
            acts.push(Act::Drop);
        }
        acts
    }
}

/// What a site sees of a client, which may be elsewhere.
pub(super) struct Foothold {
    pub(super) site: usize,
    pub(super) traveller: Rc<RefCell<Traveller>>,
}

impl Foothold {
    /// The client, if it is here and has nothing to do before.
    fn is_here(&self) -> bool {
        let traveller = self.traveller.borrow();
        traveller.at == self.site && traveller.luggage.is_empty()
    }
}

impl Visitor for Foothold {
    fn wake(&mut self, judges: &mut Judges, now_us: u64) -> Result<(Vec<Act>, u64), Violation> {
        let mut traveller = self.traveller.borrow_mut();
        if traveller.at != self.site {
            return Ok((Vec::new(), LOOK_US));
        }
        if !traveller.luggage.is_empty() {
            return Ok((std::mem::take(&mut traveller.luggage), 1000));
        }
        traveller.ledger.borrow_mut().hears(self.site);
        let (acts, pause_us) = traveller.client.wake(judges, now_us)?;
        Ok((traveller.set_out(acts), pause_us))
    }

    fn receive(&mut self, bytes: &[u8], judges: &mut Judges, now_us: u64) -> Result<Vec<Act>, Violation> {
        if !self.is_here() {
            return Ok(Vec::new());
        }
        let mut traveller = self.traveller.borrow_mut();
        traveller.ledger.borrow_mut().hears(self.site);
        let acts = traveller.client.receive(bytes, judges, now_us)?;
        Ok(traveller.set_out(acts))
    }

    fn gone(&mut self) {
        if self.is_here() {
            self.traveller.borrow_mut().client.gone();
        }
    }

    fn finish(&mut self) {
        let mut traveller = self.traveller.borrow_mut();
        traveller.is_finishing = true;
        traveller.client.finish();
    }

    fn is_done(&self) -> bool {
        self.traveller.borrow().is_done()
    }

    fn waits_for(&self) -> String {
        self.traveller.borrow().waits_for()
    }

    fn requests(&self) -> u64 {
        let traveller = self.traveller.borrow();
        if traveller.at == self.site { traveller.requests() } else { 0 }
    }

    fn counts(&self) -> Tally {
        let traveller = self.traveller.borrow();
        if traveller.at == self.site { traveller.client.counts() } else { Tally::default() }
    }
}
