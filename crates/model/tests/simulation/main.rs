//! The models beside a simulation of clients and a leader, message by message.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the lints know only test functions, not what they call"
)]

mod world;

use stoa_model::{
    Arrivals, Contact, Ensemble, Network, Prediction, Primitive, Section, Spread, Tuning, Workload, predict,
};
use world::{Chance, Setting, Time, World};

const ROUND_TRIPS_MS: [f64; 6] = [0.1, 1.0, 10.0, 50.0, 100.0, 250.0];
const SECTION_MS: f64 = 10.0;
const COMMIT_MS: f64 = 1.5;

fn fixed(mean_ms: f64) -> Time {
    Time { mean_ms, random: 0.0 }
}

fn exponential(mean_ms: f64) -> Time {
    Time { mean_ms, random: 1.0 }
}

/// One cell: what is simulated and what the model says.
struct Cell {
    setting: Setting,
    workload: Workload,
}

impl Cell {
    fn new(primitive: Primitive, round_trip_ms: f64, clients: usize, between: Time, section: Time) -> Self {
        let spread = |time: Time| match time.random {
            0.0 => Section::fixed(time.mean_ms).unwrap(),
            _ => Section::exponential(time.mean_ms).unwrap(),
        };
        let arrivals = match clients {
            0 => Arrivals::Open { between_ms: between.mean_ms, variation: between.random },
            _ => Arrivals::Closed { clients: clients as u32, think_ms: between.mean_ms },
        };
        let setting = Setting {
            primitive,
            poll_ms: (round_trip_ms / 5.0).max(1.0),
            looks_again: true,
            round_trip: fixed(round_trip_ms),
            commit: Time { mean_ms: COMMIT_MS, random: 0.3 },
            alone: false,
            section,
            clients,
            between,
            rounds: 13_000,
            warm_up: 500,
        };
        Self { setting, workload: Workload::new(spread(section), arrivals).unwrap() }
    }

    fn predicted(&self) -> Prediction {
        let Setting { primitive, round_trip, .. } = self.setting;
        let commit = Spread::exponential(COMMIT_MS * 0.7, COMMIT_MS * 0.3).unwrap();
        let client = Spread::constant(round_trip.mean_ms).unwrap();
        // One other server whose round trip stands for the whole commit.
        let ensemble = Ensemble::new(vec![commit], Spread::constant(0.0).unwrap()).unwrap();
        let network = Network::new(client, ensemble, Contact::Leader).unwrap();
        let tuning = Tuning::new(self.setting.poll_ms, self.setting.looks_again).unwrap();
        predict(&network, primitive, tuning, self.workload)
    }

    /// The errors of the predicted mean latency and number of requests.
    fn errors(&self) -> (f64, f64) {
        let (predicted, measured) = (self.predicted(), World::run(self.setting, 1));
        // Where more is asked for than the lock can give, both have to say so.
        if predicted.latency_ms.is_infinite() && measured.latency_ms.is_infinite() {
            return (0.0, 0.0);
        }
        let error = |predicted: f64, measured: f64| predicted / measured - 1.0;
        (error(predicted.latency_ms, measured.latency_ms), error(predicted.requests, measured.requests))
    }
}

/// Prints errors by primitive. Of all cells, at least these percentages of predicted latencies and of numbers of
/// requests must be within 15%.
fn compare(what: &str, least: (usize, usize), cells: impl Fn(Primitive, f64) -> Vec<Cell>) {
    let mut all = (Vec::new(), Vec::new());
    for primitive in Primitive::ALL {
        let cells = ROUND_TRIPS_MS.into_iter().flat_map(|round_trip_ms| cells(primitive, round_trip_ms));
        let errors: Vec<(f64, f64)> = cells.map(|cell| cell.errors()).collect();
        let (latency, requests): (Vec<f64>, Vec<f64>) = errors.into_iter().unzip();
        println!(
            "{what}: {:<18} latency {}; requests {}",
            primitive.name(),
            summary(&latency),
            summary(&requests)
        );
        all.0.extend(latency);
        all.1.extend(requests);
    }
    println!("{what}: {:<18} latency {}; requests {}", "all", summary(&all.0), summary(&all.1));
    for (errors, least) in [(&all.0, least.0), (&all.1, least.1)] {
        assert!(within(errors) * 100 >= errors.len() * least, "{what}: {}", summary(errors));
    }
}

fn within(errors: &[f64]) -> usize {
    errors.iter().filter(|error| error.abs() <= 0.15).count()
}

fn summary(errors: &[f64]) -> String {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let (median, worst) = (sizes[sizes.len() / 2] * 100.0, sizes[sizes.len() - 1] * 100.0);
    format!("{} of {} within 15%, median {median:.1}%, worst {worst:.0}%", within(errors), sizes.len())
}

const LOADS: [f64; 5] = [0.05, 0.2, 0.4, 0.6, 0.8];

/// The time between requests that comes to this load, for a lock that adds nothing.
fn between(load: f64, round_trip_ms: f64) -> f64 {
    (SECTION_MS + round_trip_ms + COMMIT_MS) / load
}

#[test]
fn open_random_arrivals() {
    compare("random", (95, 95), |primitive, round_trip_ms| {
        let cell = |load| {
            let between = exponential(between(load, round_trip_ms));
            Cell::new(primitive, round_trip_ms, 0, between, exponential(SECTION_MS))
        };
        LOADS.map(cell).into()
    });
}

/// What comes on top for them comes to short waits only.
#[test]
fn queues_that_believe_their_events() {
    for round_trip_ms in ROUND_TRIPS_MS {
        for load in LOADS {
            let between = exponential(between(load, round_trip_ms));
            let mut cell =
                Cell::new(Primitive::SyncQueue, round_trip_ms, 0, between, exponential(SECTION_MS));
            cell.setting.looks_again = false;
            let (error, _) = cell.errors();
            assert!(error.abs() < 0.15, "{round_trip_ms} ms, load {load}: {error:.2}");
        }
    }
}

#[test]
fn open_regular_arrivals() {
    compare("regular", (90, 88), |primitive, round_trip_ms| {
        let cell = |load| {
            let between = fixed(between(load, round_trip_ms));
            Cell::new(primitive, round_trip_ms, 0, between, exponential(SECTION_MS))
        };
        LOADS.map(cell).into()
    });
}

#[test]
fn closed_clients() {
    compare("closed", (94, 94), |primitive, round_trip_ms| {
        let cell = |clients| {
            Cell::new(primitive, round_trip_ms, clients, exponential(100.0), exponential(SECTION_MS))
        };
        [1, 2, 4, 8, 16].map(cell).into()
    });
}

#[test]
fn writes_through_followers_are_those_of_messages_drawn_one_by_one() {
    // Five servers at different distances, all of it random. The client is at the one that is farthest away.
    let far = [2.0, 5.0, 9.0, 20.0];
    let spread = |mean_ms: f64| Spread::exponential(mean_ms * 0.6, mean_ms * 0.4).unwrap();
    let ensemble = Ensemble::new(far.map(spread).to_vec(), spread(3.0)).unwrap();
    let network = Network::new(spread(40.0), ensemble, Contact::Follower(3)).unwrap();
    let mut chance = Chance::new(7);
    let rounds = 200_000;
    let mut sums = [0.0; 2];
    for _ in 0..rounds {
        let mut draw = |mean_ms: f64| mean_ms * 0.6 + chance.exponential() * mean_ms * 0.4;
        let own = draw(3.0);
        let mut stored = far.map(|mean_ms| draw(mean_ms) + draw(3.0));
        stored.sort_by(f64::total_cmp);
        let commit = stored[1].max(own);
        sums[0] += commit;
        sums[1] += draw(40.0) + draw(20.0) + commit;
    }
    let means = [network.commit().mean(), network.write().mean()];
    for (sum, mean) in sums.into_iter().zip(means) {
        let measured = sum / f64::from(rounds);
        assert!((mean / measured - 1.0).abs() < 0.005, "{mean} instead of {measured}");
    }
}
