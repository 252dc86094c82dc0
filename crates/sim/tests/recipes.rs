//! Runs of the client library's recipes. Bugs of theirs are found in `planted`.

use stoa_sim::ensemble::Failure;
use stoa_sim::recipes::{Play, RecipeOutcome, RecipePlan, run};

fn plan(seed: u64) -> RecipePlan {
    RecipePlan::of(seed, None, None).expect("every seed stands for something")
}

fn live(seed: u64) -> Result<RecipeOutcome, Failure> {
    run(seed, &plan(seed), false)
}

#[test]
fn recipes_live_through_their_first_seeds() {
    for seed in 1..=140 {
        if let Err(failure) = live(seed) {
            panic!("stoa-sim recipes --seeds 1 --from {seed} --trace: {failure}");
        }
    }
}

#[test]
fn the_same_seed_comes_to_the_same() {
    for seed in 201..=210 {
        assert_eq!(live(seed), live(seed), "seed {seed}");
    }
}

/// A leader's disk was lost, and another server applied only then what that had led with: it took the empty disk for
/// one that had been elected, and let it vote.
#[test]
fn a_disk_that_is_lost_after_it_led_is_not_listened_to() {
    let plan = RecipePlan::of(11_033, Some(Play::Election), Some("default")).expect("it is one of the kinds");
    run(11_033, &plan, false).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Somebody whose program was not there any more had a place left that it had taken with it, and waited behind that.
#[test]
fn nobody_waits_for_itself_when_a_program_is_missing() {
    for (seed, life) in [(300_511, "default"), (300_625, "disks"), (400_914, "network")] {
        let plan = RecipePlan::of(seed, Some(Play::Lock), Some(life)).expect("it is one of the kinds");
        run(seed, &plan, false).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Somebody gave up while it made the parents of a lock, with creates of its leaf under way.
#[test]
fn what_is_under_way_when_somebody_gives_up_is_taken_back() {
    let plan = RecipePlan::of(61_000_134, Some(Play::Lock), Some("divided-moving"));
    let plan = plan.expect("it is one of the kinds");
    run(61_000_134, &plan, false).unwrap_or_else(|failure| panic!("{failure}"));
}

/// A partition took a create of a connection that its session had left, after a sync on the next one.
#[test]
fn nobody_is_found_in_its_own_way_after_a_sync() {
    let plan = RecipePlan::of(60_000_863, Some(Play::Lock), Some("divided-default"));
    let plan = plan.expect("it is one of the kinds");
    run(60_000_863, &plan, false).unwrap_or_else(|failure| panic!("{failure}"));
}

/// A partition refused the writes of a session that had come elsewhere, as a leader said who was lost with that; those
/// behind them, to the partition that keeps the sessions, were carried out.
#[test]
fn nobody_is_refused_because_of_what_is_lost() {
    let plan = RecipePlan::of(70_004_840, Some(Play::Lock), Some("divided-snapshots"));
    let plan = plan.expect("it is one of the kinds");
    run(70_004_840, &plan, false).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Somebody gave up a take, whose answer was lost, between the moment when it knew that a program had taken an element
/// for it and the one when it knew which: it was not put back.
#[test]
fn nobody_forgets_what_was_taken_for_it() {
    let plan = RecipePlan::of(899_503_825, Some(Play::Queue), Some("disks")).expect("it is one of the kinds");
    run(899_503_825, &plan, false).unwrap_or_else(|failure| panic!("{failure}"));
}

/// The lives of servers with several partitions.
const DIVIDED: [&str; 4] = ["divided-default", "divided-moving", "divided-snapshots", "divided-disks"];

/// Between partitions a lock goes where it is moved, and its guarantees with it.
#[test]
fn locks_are_locks_with_several_partitions() {
    let mut total = RecipeOutcome::default();
    for seed in 601..=660 {
        let life = DIVIDED[(seed % 4) as usize];
        let plan = RecipePlan::of(seed, Some(Play::Lock), Some(life)).expect("it is one of the kinds");
        let outcome = run(seed, &plan, false).unwrap_or_else(|failure| {
            panic!("stoa-sim recipes --seeds 1 --from {seed} --play lock --kind {life}: {failure}")
        });
        if seed % 10 == 0 {
            assert_eq!(run(seed, &plan, false), Ok(outcome), "seed {seed}");
        }
        total = total + outcome;
    }
    let counts = total.counts();
    assert!(counts.holds > 200 && counts.fenced > 0, "{total}");
}

/// What the runs are for must occur in them.
#[test]
fn runs_meet_what_they_are_for() {
    let total = (301..=580).map(|seed| live(seed).expect("these seeds pass"));
    let total = total.fold(RecipeOutcome::default(), |sum, outcome| sum + outcome);
    let counts = total.counts();
    assert!(counts.holds > 500, "{total}");
    assert!(counts.lost > 1, "{total}");
    assert!(counts.fenced > 3, "{total}");
    assert!(counts.given_up > 2000, "{total}");
    assert!(counts.done > 2000, "{total}");
    assert!(counts.uncertain > 100, "{total}");
    assert!(counts.passed > 1000, "{total}");
    assert!(counts.changes > 1000, "{total}");
    assert!(counts.deaths > 200, "{total}");
    assert!(counts.pauses > 700, "{total}");
}

/// What is protected takes writes from whoever believes to hold the lock.
#[test]
fn a_resource_that_does_not_look_at_tokens_is_found() {
    for kind in ["default", "divided-default"] {
        let found = (1..=120).any(|seed| {
            let plan = RecipePlan::of(seed, Some(Play::Lock), Some(kind)).expect("it is one of the kinds");
            run(seed, &RecipePlan { unfenced: true, ..plan }, false).is_err()
        });
        assert!(found, "not found in 120 seeds of the kind {kind}");
    }
}
