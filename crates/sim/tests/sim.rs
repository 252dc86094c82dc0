//! Runs of every profile, and a disk that lies. Bugs of the server are found in `planted`.

use stoa_sim::ensemble::{Failure, Outcome, Trouble};
use stoa_sim::standalone::{self, Profile};

fn profile(name: &str) -> Profile {
    Profile::named(name).expect("the profile is in the table")
}

fn live(seed: u64, profile: &Profile) -> Result<Outcome, Failure> {
    standalone::world(seed, profile, false).run()
}

#[test]
fn every_profile_lives_through_its_first_seeds() {
    for profile in Profile::all() {
        for seed in 1..=6 {
            if let Err(failure) = live(seed, &profile) {
                panic!("stoa-sim replay {seed} --profile {}: {failure}", profile.life.name);
            }
        }
    }
}

#[test]
fn the_same_seed_comes_to_the_same() {
    for profile in Profile::all() {
        assert_eq!(live(9, &profile), live(9, &profile), "{}", profile.life.name);
    }
}

#[test]
fn another_seed_is_another_run() {
    let fingerprint = |seed| live(seed, &profile("default")).map(|outcome| outcome.fingerprint);
    assert_ne!(fingerprint(1), fingerprint(2));
}

/// What the runs are for must occur in them.
#[test]
fn runs_meet_what_they_are_for() {
    let live = |name: &str| {
        let runs = (1..=6).map(|seed| live(seed, &profile(name)).expect("these seeds pass"));
        runs.fold(Outcome::default(), |sum, outcome| sum + outcome)
    };
    let sum = |name: &str, of: fn(&Outcome) -> u64| of(&live(name));
    let met = live("default").met;
    assert!(met.torn > 6, "{met}");
    for trouble in [
        Trouble::Crash,
        Trouble::PowerLoss,
        Trouble::DiskFull,
        Trouble::SlowDisk,
        Trouble::ClockJump,
        Trouble::Pause,
    ] {
        assert!(met.times(trouble) > 3, "{trouble:?}: {met}");
    }
    assert!(sum("default", |outcome| outcome.starts) > 24);
    assert!(sum("default", |outcome| outcome.checked.events) > 1000);
    assert!(sum("churn", |outcome| outcome.checked.expired) > 6);
    assert!(sum("churn", |outcome| outcome.checked.reaped) > 6);
    assert!(sum("big", |outcome| outcome.snapshots) > 12);
    assert!(sum("bit-rot", |outcome| outcome.copies) > 100);
    assert!(sum("bit-rot", |outcome| outcome.copies_refused) > 50);
    assert!(sum("disk-full", |outcome| outcome.out_of_room) > 6);
    assert!(sum("churn", |outcome| outcome.checked.returned) > 60);
    assert!(sum("elections", |outcome| outcome.checked.waited) > 60);
    assert!(sum("elections", |outcome| outcome.checked.refused) > 0);
}

#[test]
fn a_disk_that_loses_what_it_had_synced_is_found() {
    let found = (1..=12).any(|seed| {
        let mut profile = profile("default");
        profile.life.requests = 2000;
        let mut world = standalone::world(seed, &profile, false);
        world.let_disks_lie();
        // Assertions of the server itself count as well.
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run().is_err()));
        caught.unwrap_or(true)
    });
    assert!(found, "not found in 12 seeds of the profile default");
}
