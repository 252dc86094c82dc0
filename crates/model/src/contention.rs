//! Locks that many want: section III-C, which the draft leaves open.
//!
//! A lock is a queue with one server. Who finds it free occupies it for a first time, who has waited for another one;
//! both are the lock's own time and what the primitive adds (`primitive.rs`). How long one waits follows from the
//! means and the mean squares of both, and these follow from how long one waits and how many do: a fixed point. Where
//! requests come at random there is more to be known than means (`waits.rs`).

use crate::primitive::{Extra, Rivals, Trips};
use crate::waits::{Waits, waits};
use crate::{Invalid, Network, Primitive, Tuning, is_time, normal};

/// Points by which the wait, and the number of those who wait, are described.
const WAITS: usize = 16;
const CROWDS: usize = 8;
/// More clients are refused: work grows with the square of their number.
const CLIENTS_MAX: u32 = 256;

/// The time that the lock is needed for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Section {
    mean_ms: f64,
    /// Variance over the square of the mean.
    variation: f64,
}

impl Section {
    /// Always as long.
    ///
    /// # Errors
    /// When it is no length of time.
    pub fn fixed(ms: f64) -> Result<Self, Invalid> {
        Invalid::unless(is_time(ms), "a critical section takes a time that is not negative")?;
        Ok(Self { mean_ms: ms, variation: 0.0 })
    }

    /// Exponentially distributed.
    ///
    /// # Errors
    /// When the mean is no length of time.
    pub fn exponential(mean_ms: f64) -> Result<Self, Invalid> {
        Ok(Self { variation: 1.0, ..Self::fixed(mean_ms)? })
    }
}

/// Who wants the lock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Requests come whatever becomes of those before, as in the paper's Figures 10 to 16.
    Open {
        /// The mean time between two of them.
        between_ms: f64,
        /// Variance over squared mean of that time: 1 when it is exponential, 0 when it is fixed.
        variation: f64,
    },
    /// Clients that each want it again some time after they have given it back.
    Closed {
        /// How many.
        clients: u32,
        /// The time between.
        think_ms: f64,
    },
}

/// Critical sections and who wants them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    section: Section,
    arrivals: Arrivals,
}

impl Workload {
    /// Both together.
    ///
    /// # Errors
    /// When nobody comes, too many do, or a time is none.
    pub fn new(section: Section, arrivals: Arrivals) -> Result<Self, Invalid> {
        match arrivals {
            Arrivals::Open { between_ms, variation } => {
                let holds = is_time(between_ms) && between_ms > 0.0 && is_time(variation);
                Invalid::unless(holds, "requests are some time apart, and their variation is not negative")?;
            }
            Arrivals::Closed { clients, think_ms } => {
                Invalid::unless((1..=CLIENTS_MAX).contains(&clients), "there are 1 to 256 clients")?;
                Invalid::unless(is_time(think_ms), "clients wait for a time that is not negative")?;
            }
        }
        Ok(Self { section, arrivals })
    }
}

/// What a lock is expected to do under a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// From when a client wants the lock until it knows that it has it, on average. Infinite when more is asked for
    /// than the lock can give.
    pub latency_ms: f64,
    /// The same while nobody else wants it.
    pub alone_ms: f64,
    /// The share of requests that find it taken.
    pub waiting: f64,
    /// How often the lock is had, in a millisecond.
    pub per_ms: f64,
    /// The shortest time between one who has waited and the next, when there is always somebody who waits.
    pub busy_ms: f64,
    /// Requests that a client sends until it has the lock. Giving it back is one more. Infinite with the latency.
    pub requests: f64,
    /// Where those who wait ask again in step.
    pub(crate) in_step: Option<InStep>,
}

impl Prediction {
    /// The mean latency of the first `requests` requests, where the lock cannot give what is asked for: each waits
    /// longer than the one before by as much as a turn takes longer than the time between requests.
    #[must_use]
    pub fn overloaded_ms(&self, between_ms: f64, requests: u32) -> f64 {
        let requests = f64::from(requests);
        let turn_ms =
            self.in_step.map_or(self.busy_ms, |in_step| in_step.turn_ms(self.busy_ms, between_ms, requests));
        self.alone_ms + (turn_ms - between_ms).max(0.0) * (requests - 1.0) / 2.0
    }
}

/// Those who came at fixed times, and ask again whenever so much time has passed: they do so one shortly after the
/// other, and then nobody does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct InStep {
    period_ms: f64,
    /// How much later in the period one asks than the one who came before.
    apart_ms: f64,
}

impl InStep {
    fn new(period_ms: f64, between_ms: f64) -> Self {
        let behind_ms = between_ms % period_ms;
        Self { period_ms, apart_ms: behind_ms.min(period_ms - behind_ms) }
    }

    /// From when the lock is given back until one of so many asks.
    fn until_asked_ms(&self, waiting: f64) -> f64 {
        let asked_ms = ((waiting - 1.0).max(0.0) * self.apart_ms).min(self.period_ms);
        let rest_ms = self.period_ms - asked_ms;
        (rest_ms * rest_ms + asked_ms * self.apart_ms) / (2.0 * self.period_ms)
    }

    /// How long a turn is that takes `own_ms` besides, while more and more wait: on average half of those who will.
    fn turn_ms(&self, own_ms: f64, between_ms: f64, requests: f64) -> f64 {
        let next = |turn_ms: f64| {
            let left = requests * (1.0 - between_ms / turn_ms).max(0.0);
            own_ms + self.until_asked_ms(left / 2.0)
        };
        (0..50).fold(own_ms, |turn_ms, _| (turn_ms + next(turn_ms)) / 2.0)
    }
}

/// What `primitive` is expected to do.
#[must_use]
pub fn predict(network: &Network, primitive: Primitive, tuning: Tuning, workload: Workload) -> Prediction {
    let lock = Lock::new(network, primitive, tuning, workload.section);
    match workload.arrivals {
        Arrivals::Open { between_ms, variation } => lock.open(between_ms, variation),
        Arrivals::Closed { clients, think_ms } => lock.closed(clients, think_ms),
    }
}

/// A time by its first two moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    pub(crate) mean: f64,
    pub(crate) square: f64,
}

impl Moments {
    pub(crate) fn plus(self, extra: Extra) -> Self {
        let square = self.square + 2.0 * self.mean * extra.mean_ms + extra.square;
        Self { mean: self.mean + extra.mean_ms, square }
    }

    /// The mean and mean square of one of two times.
    fn mixed(self, share: f64, other: Self) -> Self {
        let mix = |one: f64, two: f64| one * share + two * (1.0 - share);
        Self { mean: mix(self.mean, other.mean), square: mix(self.square, other.square) }
    }

    /// Whether it is always as long, but for what computing it has rounded.
    fn is_fixed(self) -> bool {
        self.variation() < 1e-9
    }

    pub(crate) fn variation(self) -> f64 {
        (self.square / (self.mean * self.mean) - 1.0).max(0.0)
    }
}

/// How those who wait are found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd {
    /// How long they have waited when it is their turn.
    pub(crate) wait_ms: f64,
    /// Variance over squared mean of that.
    pub(crate) wait_variation: f64,
    /// How many they are.
    pub(crate) contenders: f64,
    /// Whether that is the mean of a geometric distribution, as of an open queue, or the number itself.
    pub(crate) contenders_vary: bool,
    pub(crate) newcomers_per_ms: f64,
}

pub(crate) struct Lock {
    primitive: Primitive,
    tuning: Tuning,
    trips: Trips,
    section_ms: f64,
    /// The time that it takes whatever the primitive.
    pub(crate) own: Moments,
    /// What comes on top for who finds it free.
    pub(crate) free: Extra,
}

impl Lock {
    fn new(network: &Network, primitive: Primitive, tuning: Tuning, section: Section) -> Self {
        let (round, commit) = (network.to_leader(), network.commit());
        let trips = Trips {
            read_ms: network.read().mean(),
            round_ms: round.mean(),
            commit_ms: commit.mean(),
            refusal_ms: network.refusal().mean(),
        };
        let mean = trips.write_ms() + section.mean_ms;
        let variance = round.variance() + commit.variance() + section.variation * section.mean_ms.powi(2);
        let own = Moments { mean, square: variance + mean * mean };
        let free = primitive.found_free(trips, tuning);
        Self { primitive, tuning, trips, own, section_ms: section.mean_ms, free }
    }

    fn alone_ms(&self) -> f64 {
        self.write_ms() + self.free.mean_ms
    }

    pub(crate) fn write_ms(&self) -> f64 {
        self.trips.write_ms()
    }

    /// What a client does besides waiting for the lock: think, use it, give it back.
    pub(crate) fn rest_ms(&self, think_ms: f64) -> f64 {
        think_ms + self.section_ms + self.write_ms()
    }

    /// What comes on top for those who have waited, on average.
    pub(crate) fn extra(&self, crowd: &Crowd) -> Extra {
        let mut sum = Extra::default();
        let turns_ms = gamma(crowd.wait_ms, crowd.wait_variation, WAITS);
        let crowds = if crowd.contenders_vary { CROWDS } else { 1 };
        for index in 0..crowds {
            let p = (index as f64 + 0.5) / crowds as f64;
            let contenders = if crowds == 1 { crowd.contenders } else { geometric(crowd.contenders, p) };
            let rivals = Rivals { contenders, newcomers_per_ms: crowd.newcomers_per_ms };
            for &turn_ms in &turns_ms {
                let extra = self.primitive.waited(turn_ms, rivals, self.trips, self.tuning);
                sum.mean_ms += extra.mean_ms;
                sum.square += extra.square;
                sum.requests += extra.requests;
            }
        }
        let count = (crowds * WAITS) as f64;
        Extra { mean_ms: sum.mean_ms / count, square: sum.square / count, requests: sum.requests / count }
    }

    /// What comes on top when somebody always waits, and for long.
    fn saturated(&self, newcomers_per_ms: f64) -> Extra {
        let many = 1e9;
        let crowd = Crowd {
            wait_ms: many,
            wait_variation: 0.0,
            contenders: many,
            contenders_vary: false,
            newcomers_per_ms,
        };
        self.extra(&crowd)
    }

    /// The time that it is occupied then.
    pub(crate) fn saturated_ms(&self, newcomers_per_ms: f64) -> f64 {
        self.own.mean + self.saturated(newcomers_per_ms).mean_ms
    }

    pub(crate) fn prediction(
        &self,
        wait_ms: f64,
        waiting: f64,
        extra: Extra,
        per_ms: f64,
        busy_ms: f64,
    ) -> Prediction {
        let either = |free: f64, waited: f64| free * (1.0 - waiting) + waited * waiting;
        Prediction {
            latency_ms: self.write_ms() + wait_ms + either(self.free.mean_ms, extra.mean_ms),
            alone_ms: self.alone_ms(),
            waiting,
            per_ms,
            busy_ms,
            requests: either(self.free.requests, extra.requests),
            in_step: None,
        }
    }

    /// Requests that come at random, where what comes on top depends on how long was waited. `None` where it does not,
    /// and a formula says more, or where the lock has hardly any time to spare.
    fn at_random(&self, per_ms: f64) -> Option<Waits> {
        let on_top = |wait_ms: f64| {
            let rivals = Rivals { contenders: 1.0 + per_ms * wait_ms, newcomers_per_ms: per_ms };
            self.primitive.waited(wait_ms, rivals, self.trips, self.tuning)
        };
        let is_alike = |ms: f64| on_top(ms).mean_ms == on_top(0.0).mean_ms;
        if self.own.mean <= 0.0 || [0.5, 1.0, 1.5, 3.0].iter().all(|turns| is_alike(turns * self.own.mean)) {
            return None;
        }
        waits(per_ms, self.own, self.own.plus(self.free), on_top)
    }

    /// M/G/1 with another first service (Welch 1964), and for requests that do not come at random the correction of
    /// Kraemer and Langenbach-Belz.
    fn open(&self, between_ms: f64, variation: f64) -> Prediction {
        let per_ms = 1.0 / between_ms;
        let busy_ms = self.saturated_ms(per_ms);
        let first = self.own.plus(self.free);
        if variation == 0.0 && first.is_fixed() && first.mean <= between_ms {
            // Each is over before the next one comes. Those who would wait, and whose turns might take longer than
            // there is time for, are never there.
            return self.prediction(0.0, 0.0, self.free, per_ms, busy_ms);
        }
        if busy_ms >= between_ms {
            let overloaded =
                self.prediction(f64::INFINITY, 1.0, self.saturated(per_ms), 1.0 / busy_ms, busy_ms);
            let period_ms = self.primitive.asks_again_after_ms(self.trips).filter(|_| variation == 0.0);
            let in_step = period_ms.map(|period_ms| InStep::new(period_ms, between_ms));
            return Prediction { latency_ms: f64::INFINITY, requests: f64::INFINITY, in_step, ..overloaded };
        }
        if variation == 1.0
            && let Some(found) = self.at_random(per_ms)
        {
            let wait_ms = found.waiting * found.mean_ms;
            return self.prediction(wait_ms, found.waiting, found.extra, per_ms, busy_ms);
        }
        // For a mean wait of those who wait: who waits, and what that comes to.
        let step = |wait_ms: f64| {
            let crowd = Crowd {
                wait_ms,
                wait_variation: 1.0,
                contenders: 1.0 + per_ms * wait_ms,
                contenders_vary: true,
                newcomers_per_ms: per_ms,
            };
            let extra = self.extra(&crowd);
            let next = self.own.plus(extra);
            let room = 1.0 - per_ms * next.mean;
            let free = (room / (room + per_ms * first.mean)).max(0.0);
            let taken = (1.0 - free).max(f64::MIN_POSITIVE);
            let square = first.mixed(free, next).square;
            let regular = regularity(variation, next.variation(), per_ms * next.mean);
            let found_ms = per_ms * square / 2.0 / room / taken * regular.sqrt();
            // Less than what was assumed, or not: the wait is where both are the same.
            let is_less = room > 0.0 && found_ms < wait_ms;
            (is_less, taken * regular.sqrt(), extra)
        };
        let (mut low, mut high) = (1e-9_f64, 1e9_f64);
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            if step(middle).0 { high = middle } else { low = middle }
        }
        let (_, waiting, extra) = step(high);
        self.prediction(high * waiting, waiting, extra, per_ms, busy_ms)
    }
}

/// What remains of the wait in M/G/1 when requests are more, or less, regular than at random.
fn regularity(arrivals: f64, service: f64, load: f64) -> f64 {
    if arrivals == 1.0 {
        return 1.0;
    }
    let both = arrivals + service;
    if both <= 0.0 {
        return 0.0;
    }
    let exponent = if arrivals < 1.0 {
        -2.0 * (1.0 - load).max(0.0) * (1.0 - arrivals).powi(2) / (3.0 * load * both)
    } else {
        -(1.0 - load).max(0.0) * (arrivals - 1.0) / (arrivals + 4.0 * service)
    };
    both / (1.0 + service) * exponent.exp()
}

/// Values of a gamma distribution that are equally likely: Wilson and Hilferty's approximation, but the mean is exact.
pub(crate) fn gamma(mean: f64, variation: f64, points: usize) -> Vec<f64> {
    let ninth = variation / 9.0;
    let at = |index: usize| normal::quantile((index as f64 + 0.5) / points as f64);
    let shape = |index| (1.0 - ninth + at(index) * ninth.sqrt()).max(0.0).powi(3);
    let shapes: Vec<f64> = (0..points).map(shape).collect();
    let sum: f64 = shapes.iter().sum();
    shapes.into_iter().map(|value| value * mean * points as f64 / sum).collect()
}

/// The quantile of a geometric distribution that begins at 1.
fn geometric(mean: f64, p: f64) -> f64 {
    if mean <= 1.0 { 1.0 } else { 1.0 + ((1.0 - p).ln() / (1.0 - 1.0 / mean).ln()).floor() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Contact, Ensemble, Spread};

    const ANY: Tuning = Tuning { poll_ms: 5.0, looks_again: false };

    /// A network with these round trips, all constant, and one server.
    fn network(client_ms: f64) -> Network {
        let zero = Spread::constant(0.0).unwrap();
        let client = Spread::constant(client_ms).unwrap();
        Network::new(client, Ensemble::new(Vec::new(), zero).unwrap(), Contact::Leader).unwrap()
    }

    fn near(found: f64, expected: f64, error: f64) {
        assert!((found / expected - 1.0).abs() <= error, "{found} instead of {expected}");
    }

    fn open(
        primitive: Primitive,
        client_ms: f64,
        section: Section,
        between_ms: f64,
        variation: f64,
    ) -> Prediction {
        let workload = Workload::new(section, Arrivals::Open { between_ms, variation }).unwrap();
        predict(&network(client_ms), primitive, ANY, workload)
    }

    #[test]
    fn without_a_network_it_is_a_queue_of_the_textbook() {
        for load in [0.1, 0.5, 0.9] {
            // M/M/1 and M/D/1.
            let exponential = Section::exponential(10.0).unwrap();
            let found = open(Primitive::Extension, 0.0, exponential, 10.0 / load, 1.0);
            near(found.latency_ms, load * 10.0 / (1.0 - load), 1e-6);
            near(found.waiting, load, 1e-6);
            let found = open(Primitive::Extension, 0.0, Section::fixed(10.0).unwrap(), 10.0 / load, 1.0);
            near(found.latency_ms, load * 10.0 / (1.0 - load) / 2.0, 1e-6);
        }
    }

    #[test]
    fn clients_that_come_again_are_a_finite_source() {
        // M/M/1//N: the probability that nobody is there, from the birth and death equations.
        for clients in [1, 3, 10, 60] {
            let ratio = 10.0 / 100.0;
            let states = (0..clients).scan(1.0, |state, index| {
                *state *= f64::from(clients - index) * ratio;
                Some(*state)
            });
            let empty = 1.0 / (1.0 + states.sum::<f64>());
            let cycle_ms = f64::from(clients) * 10.0 / (1.0 - empty);
            let arrivals = Arrivals::Closed { clients, think_ms: 100.0 };
            let workload = Workload::new(Section::exponential(10.0).unwrap(), arrivals).unwrap();
            let found = predict(&network(0.0), Primitive::Extension, ANY, workload);
            assert!((found.latency_ms - (cycle_ms - 110.0)).abs() < 0.02 * cycle_ms, "{clients}: {found:?}");
        }
    }

    #[test]
    fn alone_a_lock_takes_its_round_trips() {
        let section = Section::fixed(1.0).unwrap();
        let alone = |primitive| open(primitive, 100.0, section, 1e9, 1.0).latency_ms;
        for primitive in Primitive::ALL {
            // Figures 3 and 4: only the synchronous queue needs a second one.
            let round_trips = if primitive == Primitive::SyncQueue { 2.0 } else { 1.0 };
            near(alone(primitive), 100.0 * round_trips, 1e-6);
        }
    }

    #[test]
    fn the_critical_point_is_where_section_and_round_trip_are_the_time_between() {
        // Figure 13: round trips of 100 ms, a request each 200 ms.
        let at = |section_ms: f64| {
            open(Primitive::AsyncTas, 100.0, Section::fixed(section_ms).unwrap(), 200.0, 0.0)
        };
        assert!(at(99.0).latency_ms < 110.0);
        assert!(at(101.0).latency_ms.is_infinite());
        // Each request waits 50 ms longer than the one before.
        near(at(150.0).overloaded_ms(200.0, 101), 100.0 + 50.0 * 50.0, 1e-6);
    }

    /// Watching costs two trips after a wait, so turns do not fit in between once somebody waits; but nobody does.
    #[test]
    fn requests_that_never_meet_do_not_wait() {
        for primitive in Primitive::ALL {
            let found = open(primitive, 50.0, Section::fixed(45.0).unwrap(), 200.0, 0.0);
            assert_eq!((found.latency_ms, found.waiting), (found.alone_ms, 0.0), "{primitive:?}");
        }
        let watching = open(Primitive::TasWatch, 100.0, Section::fixed(75.0).unwrap(), 200.0, 0.0);
        assert!(watching.busy_ms > 200.0 && watching.latency_ms == watching.alone_ms, "{watching:?}");
    }

    /// All who wait ask again after the same time, as the simulation below has it.
    #[test]
    fn who_came_at_fixed_times_asks_again_in_step() {
        let (between_ms, period_ms, requests) = (200.0, 101.0, 60);
        for section_ms in [110.0, 125.0, 150.0, 175.0] {
            let workload = Workload::new(
                Section::fixed(section_ms).unwrap(),
                Arrivals::Open { between_ms, variation: 0.0 },
            );
            let found = predict(&network(period_ms), Primitive::SyncTas, ANY, workload.unwrap());
            assert!(found.latency_ms.is_infinite());
            // When each asks next, and when the lock is given back.
            let mut next: Vec<f64> = (0..requests).map(|number| f64::from(number) * between_ms).collect();
            let (mut free_ms, mut sum_ms) = (0.0, 0.0);
            for _ in 0..requests {
                next.iter_mut()
                    .for_each(|at| *at += ((free_ms - *at) / period_ms).ceil().max(0.0) * period_ms);
                let first = (0..next.len()).min_by(|one, other| next[*one].total_cmp(&next[*other])).unwrap();
                let had_ms = next.remove(first);
                free_ms = had_ms + period_ms + section_ms;
                sum_ms += had_ms + period_ms;
            }
            let count = f64::from(requests);
            let came_ms = between_ms * (count - 1.0) / 2.0;
            near(found.overloaded_ms(between_ms, requests as u32), sum_ms / count - came_ms, 0.15);
        }
    }

    #[test]
    fn more_clients_never_wait_less() {
        let section = Section::exponential(10.0).unwrap();
        for primitive in Primitive::ALL {
            let latency = |clients| {
                let arrivals = Arrivals::Closed { clients, think_ms: 50.0 };
                predict(&network(20.0), primitive, ANY, Workload::new(section, arrivals).unwrap()).latency_ms
            };
            let all = [1, 2, 4, 8, 16, 64, 256].map(latency);
            assert!(all.is_sorted(), "{primitive:?}: {all:?}");
            assert!(all[6].is_finite());
        }
    }

    #[test]
    fn extremes_are_no_trouble() {
        let alone = Section::exponential(10.0).unwrap();
        for primitive in Primitive::ALL {
            // Who rests for an hour meets nobody.
            let rare = Arrivals::Closed { clients: 2, think_ms: 3.6e6 };
            let found = predict(&network(10.0), primitive, ANY, Workload::new(alone, rare).unwrap());
            near(found.latency_ms, found.alone_ms, 1e-3);
            // Nobody rests, and nothing takes time but the section.
            let crowd = Arrivals::Closed { clients: 256, think_ms: 0.0 };
            let found = predict(&network(0.0), primitive, ANY, Workload::new(alone, crowd).unwrap());
            assert!(
                found.latency_ms >= 2550.0 - 1e-6 && found.latency_ms < 3500.0,
                "{primitive:?}: {found:?}"
            );
        }
    }

    #[test]
    fn loads_that_make_no_sense_are_refused() {
        let section = Section::fixed(1.0).unwrap();
        assert!(Section::fixed(-1.0).is_err() && Section::exponential(f64::NAN).is_err());
        assert!(Workload::new(section, Arrivals::Open { between_ms: 0.0, variation: 1.0 }).is_err());
        assert!(Workload::new(section, Arrivals::Closed { clients: 0, think_ms: 1.0 }).is_err());
        assert!(Workload::new(section, Arrivals::Closed { clients: 257, think_ms: 1.0 }).is_err());
        assert!(Tuning::new(0.0, true).is_err());
    }
}
