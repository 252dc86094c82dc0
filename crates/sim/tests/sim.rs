//! Runs of every profile, and the alarm: planted bugs must be found.

use stoa_core::{Bug, Shard};
use stoa_sim::profile::Profile;
use stoa_sim::world::{Failure, Outcome, Plant, World};

fn profile(name: &str) -> Profile {
    Profile::named(name).expect("the profile is in the table")
}

fn live(seed: u64, profile: &Profile) -> Result<Outcome, Failure> {
    World::new(seed, profile.clone(), false).run()
}

#[test]
fn every_profile_lives_through_its_first_seeds() {
    for profile in Profile::all() {
        for seed in 1..=6 {
            if let Err(failure) = live(seed, &profile) {
                panic!("stoa-sim replay {seed} --profile {}: {failure}", profile.name);
            }
        }
    }
}

#[test]
fn the_same_seed_comes_to_the_same() {
    for profile in Profile::all() {
        assert_eq!(live(9, &profile), live(9, &profile), "{}", profile.name);
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
    let sum = |name: &str, of: fn(&Outcome) -> u64| -> u64 {
        (1..=6).map(|seed| of(&live(seed, &profile(name)).expect("these seeds pass"))).sum()
    };
    assert!(sum("default", |outcome| outcome.starts) > 24);
    assert!(sum("default", |outcome| outcome.counts.events) > 1000);
    assert!(sum("churn", |outcome| outcome.counts.expired) > 6);
    assert!(sum("churn", |outcome| outcome.counts.reaped) > 6);
    assert!(sum("big", |outcome| outcome.snapshots) > 12);
    assert!(sum("bit-rot", |outcome| outcome.damaged) > 100);
    assert!(sum("bit-rot", |outcome| outcome.refused) > 50);
    assert!(sum("disk-full", |outcome| outcome.refusals) > 6);
    assert!(sum("churn", |outcome| outcome.counts.returned) > 60);
    assert!(sum("elections", |outcome| outcome.counts.waited) > 60);
    assert!(sum("elections", |outcome| outcome.counts.refused) > 0);
}

/// The seeds within which a planted bug must be found.
const SEEDS: u64 = 12;

fn found(name: &str, plant: Plant) {
    find(name, |world| world.plant(plant));
}

fn find(name: &str, prepare: impl Fn(&mut World)) {
    for seed in 1..=SEEDS {
        let mut profile = profile(name);
        profile.requests = 2000;
        // Assertions of the server itself count as well.
        let mut world = World::new(seed, profile, false);
        prepare(&mut world);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run().is_err()));
        if caught.unwrap_or(true) {
            return;
        }
    }
    panic!("not found in {SEEDS} seeds of the profile {name}");
}

#[test]
fn an_answer_before_the_disk_has_it_is_found() {
    found("default", |server: &mut Shard| server.plant(Bug::AckBeforeDurable));
}

#[test]
fn a_disk_that_loses_what_it_had_synced_is_found() {
    find("default", World::let_disk_lie);
}

#[test]
fn a_reply_before_its_event_is_found() {
    found("calm", |server: &mut Shard| server.plant(Bug::ReplyBeforeEvent));
}

#[test]
fn a_read_that_overtakes_a_write_is_found() {
    found("calm", |server: &mut Shard| server.plant(Bug::ReadOvertakesWrite));
}

#[test]
fn a_refusal_that_overtakes_a_write_is_found() {
    found("calm", |server: &mut Shard| server.plant(Bug::RefusalOvertakesWrite));
}

#[test]
fn a_lost_event_is_found() {
    found("calm", |server: &mut Shard| server.plant(Bug::EventIsLost));
}

#[test]
fn an_ephemeral_that_outlives_its_session_is_found() {
    found("churn", |server: &mut Shard| server.plant(Bug::EphemeralOutlivesSession));
}

#[test]
fn a_session_that_expires_early_is_found() {
    found("idle", |server: &mut Shard| server.plant(Bug::SessionExpiresEarly));
}

#[test]
fn a_snapshot_that_claims_too_much_is_found() {
    found("big", |server: &mut Shard| server.plant(Bug::SnapshotClaimsTooMuch));
}

#[test]
fn a_session_that_is_heard_on_its_old_connection_is_found() {
    found("churn", |server: &mut Shard| server.plant(Bug::OldContactAccepted));
}

#[test]
fn a_session_called_gone_before_that_is_durable_is_found() {
    found("churn", |server: &mut Shard| server.plant(Bug::ExpiredWhileProposed));
}
