//! Runs of ensembles, and what must be found when disks are trusted. Bugs of servers are found in `planted`.

use stoa_sim::ensemble::{Failure, Faults, Outcome, Settings, World};

fn live(seed: u64) -> Result<Outcome, Failure> {
    let settings = Settings::of(seed, None, None).expect("every seed stands for something");
    World::new(seed, settings, false).run()
}

#[test]
fn ensembles_live_through_their_first_seeds() {
    for seed in 1..=70 {
        if let Err(failure) = live(seed) {
            panic!("stoa-sim ensemble --seeds 1 --from {seed} --trace: {failure}");
        }
    }
}

#[test]
fn the_same_seed_comes_to_the_same() {
    for seed in 101..=107 {
        assert_eq!(live(seed), live(seed), "seed {seed}");
    }
}

/// What the runs are for must occur in them.
#[test]
fn runs_meet_what_they_are_for() {
    let total = (201..=290).map(|seed| live(seed).expect("these seeds pass"));
    let total = total.fold(Outcome::default(), |sum, outcome| sum + outcome);
    assert!(total.answers > 10_000, "{total}");
    assert!(total.events > 1000, "{total}");
    assert!(total.refusals > 2000, "{total}");
    assert!(total.terms > 60, "{total}");
    assert!(total.moves > 500, "{total}");
    assert!(total.starts > 150, "{total}");
    assert!(total.out_of_room > 10, "{total}");
    assert!(total.taken_over > 0, "{total}");
    assert!(total.reconfigs > 30, "{total}");
}

#[test]
fn disks_are_lost_rot_is_noticed_and_servers_only_read() {
    let live = |kind, seed| {
        let settings = Settings::named(kind).expect("it is one of the kinds");
        World::new(seed, settings, false).run().expect("these seeds pass")
    };
    let runs = (1..=45).flat_map(|seed| ["losses", "rot", "read-only"].map(|kind| live(kind, seed)));
    let total = runs.fold(Outcome::default(), |sum, outcome| sum + outcome);
    assert!(total.emptied > 5, "{total}");
    assert!(total.rot_noticed > 2, "{total}");
    assert!(total.read_only > 20, "{total}");
}

/// The seeds within which it must be found.
const SEEDS: u64 = 30;

fn found(kind: &str, change: fn(&mut Settings)) {
    for seed in 1..=SEEDS {
        let mut settings = Settings::named(kind).expect("it is one of the kinds");
        change(&mut settings);
        let world = World::new(seed, settings, false);
        // Assertions of the server itself count as well.
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        if !matches!(caught, Ok(Ok(_))) {
            return;
        }
    }
    panic!("not found in {SEEDS} seeds of the kind {kind}");
}

/// A server with an emptied disk votes as if it had its past.
#[test]
fn an_emptied_server_that_is_trusted_is_found() {
    found("losses", |settings| settings.trusting = true);
}

/// The same, of a server that goes on with an empty log when it finds its own damaged.
#[test]
fn rot_that_is_taken_for_an_empty_log_is_found() {
    found("rot", |settings| {
        settings.trusting = true;
        settings.faults = Faults { rot_ms: 60, crash_ms: 200, cut_ms: 500, ..settings.faults };
    });
}
