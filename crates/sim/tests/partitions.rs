//! Servers with several partitions: seeds that must pass, and bugs that must be found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use stoa_core::Bug;
use stoa_sim::partitions::{Settings, World};

#[test]
fn nothing_goes_wrong_that_must_not() {
    for seed in 1..=40 {
        let (settings, partitions) = Settings::of(seed);
        if let Err(violation) = World::new(seed, settings, partitions, &|_| ()).run() {
            panic!("seed {seed}, {}, {partitions} partitions: {violation}", settings.name);
        }
    }
}

/// Seeds that found bugs; `docs/testing.md` says which. Three were none, but of the simulator: a run in which nobody set
/// anything, one in which the list of servers changed at the end, and one in which it did so in the beginning.
#[test]
fn what_went_wrong_once_does_not_again() {
    for (kind, partitions, seed) in [
        ("alone", 2, 32),
        ("snapshots", 3, 1),
        ("snapshots", 4, 10),
        ("members", 3, 1230),
        ("reshaped", 4, 1178),
        ("moving", 2, 122),
        ("moving", 2, 147),
        ("moving", 3, 26),
        ("alone", 2, 108),
        ("alone", 4, 13_000_334),
        ("snapshots", 2, 31_001_584),
        ("reshaped", 3, 157),
        ("snapshots --programs", 8, 11_001_827),
        ("alone --programs", 8, 32_002_775),
        ("reshaped --programs", 8, 31_504_799),
        ("reshaped", 8, 32_502_479),
        ("members", 4, 31_500_662),
        ("reshaped --programs", 4, 41_000_158),
        ("default", 2, 45_000_728),
        ("snapshots --programs", 8, 48_002_067),
        ("alone --programs", 2, 50_004_372),
        ("reshaped --programs", 4, 52_003_198),
        ("members --impatient", 3, 261),
        ("snapshots", 3, 60_000_585),
        ("reshaped --programs", 8, 61_002_879),
        ("reshaped --programs", 8, 64_004_799),
        ("reshaped --programs", 8, 886_002_863),
    ] {
        let settings = match kind.split_once(" --") {
            Some((kind, "programs")) => named(kind).with_programs(),
            Some((kind, _)) => named(kind).with_impatience(),
            None => named(kind),
        };
        if let Err(violation) = World::new(seed, settings, partitions, &|_| ()).run() {
            panic!("seed {seed}, {kind}, {partitions} partitions: {violation}");
        }
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    for kind in ["default", "reshaped"] {
        let run = || World::new(7, named(kind), 4, &|_| ()).run().map(|outcome| outcome.to_string());
        let text = |violation: stoa_sim::check::Violation| violation.to_string();
        assert_eq!(run().map_err(text), run().map_err(text));
    }
}

fn named(kind: &str) -> Settings {
    Settings::named(kind).expect("there is such a kind")
}

/// How many seeds of a few find a bug, and what they say.
fn found(bug: Bug, kind: &str, partitions: u8, seeds: u64) -> (usize, String) {
    found_in(bug, named(kind), partitions, seeds)
}

fn found_with_programs(bug: Bug, kind: &str, partitions: u8, seeds: u64) -> (usize, String) {
    found_in(bug, named(kind).with_programs(), partitions, seeds)
}

fn found_in(bug: Bug, settings: Settings, partitions: u8, seeds: u64) -> (usize, String) {
    let mut says = String::new();
    let plant = |shard: &mut stoa_core::Shard| shard.plant(bug);
    let count = (1..=seeds).filter(|seed| {
        let run = || World::new(*seed, settings, partitions, &plant).run();
        // A server that stops because it cannot apply what is committed has found it, too.
        let run = catch_unwind(AssertUnwindSafe(run));
        let violation =
            run.map_or_else(|_| Some("it panics".into()), |run| run.err().map(|it| it.to_string()));
        violation.iter().for_each(|violation| says = format!("{says}{violation}\n"));
        violation.is_some()
    });
    let count = count.count();
    (count, says)
}

#[test]
fn a_partition_that_shows_less_than_its_client_has_seen_is_found() {
    let (count, says) = found(Bug::TimestampIgnored, "default", 4, 200);
    assert!(count >= 3 && says.contains("which knows of version"), "{count} of 200: {says}");
}

#[test]
fn a_write_that_outlives_an_earlier_one_of_its_client_is_found() {
    let (count, says) = found(Bug::AheadOfNothing, "default", 4, 480);
    assert!(count >= 3 && says.contains("of version"), "{count} of 480: {says}");
}

#[test]
fn a_write_that_overtakes_what_is_handed_on_is_found() {
    let settings = named("default").with_impatience();
    let (count, says) = found_in(Bug::OvertakesHandedOn, settings, 4, 60);
    assert!(count >= 3 && says.contains("comes before that to"), "{count} of 60: {says}");
}

#[test]
fn a_read_that_is_older_than_what_its_client_was_told_before_is_found() {
    let (count, says) = found(Bug::OldReadIsTold, "default", 4, 60);
    assert!(count >= 3 && says.contains("which knows of version"), "{count} of 60: {says}");
}

#[test]
fn an_answer_whose_zxid_hides_what_another_partition_has_for_the_client_is_found() {
    let (count, says) = found(Bug::HighestZxid, "default", 3, 300);
    assert!(count >= 2 && says.contains("before any event"), "{count} of 300: {says}");
}

#[test]
fn a_move_that_does_not_change_where_requests_go_is_found() {
    let (count, says) = found(Bug::OldTableIsUsed, "moving", 3, 30);
    assert!(count >= 3, "{count} of 30: {says}");
}

#[test]
fn a_move_that_leaves_watches_behind_is_found() {
    let (count, says) = found(Bug::WatchesStay, "moving", 3, 60);
    assert!(count >= 3 && says.contains("before any event"), "{count} of 60: {says}");
}

#[test]
fn a_part_that_does_not_wait_for_the_others_is_found() {
    let (count, says) = found(Bug::HalfIsEnough, "default", 3, 30);
    assert!(count >= 3, "{count} of 30: {says}");
}

#[test]
fn a_snapshot_that_counts_what_a_partition_has_not_applied_is_found() {
    let (count, says) = found(Bug::SnapshotBeforeParts, "moving", 4, 60);
    assert!(count >= 3, "{count} of 60: {says}");
}

#[test]
fn programs_do_each_call_once() {
    for seed in 1..=40 {
        let (settings, partitions) = Settings::of(seed);
        if let Err(violation) = World::new(seed, settings.with_programs(), partitions, &|_| ()).run() {
            panic!("seed {seed}, {} with programs, {partitions} partitions: {violation}", settings.name);
        }
    }
}

#[test]
fn clients_that_do_not_wait_for_answers_are_answered_in_their_order() {
    for seed in 1..=40 {
        let (settings, partitions) = Settings::of(seed);
        if let Err(violation) = World::new(seed, settings.with_impatience(), partitions, &|_| ()).run() {
            panic!("seed {seed}, {}, impatient, {partitions} partitions: {violation}", settings.name);
        }
    }
}

#[test]
fn programs_that_are_not_shown_what_is_outstanding_are_found() {
    let (count, says) = found_with_programs(Bug::ContentsAreOld, "default", 3, 20);
    assert!(count >= 3 && says.contains("count"), "{count} of 20: {says}");
}

#[test]
fn an_event_that_a_program_has_suppressed_and_that_is_told_is_found() {
    let (count, says) = found_with_programs(Bug::MutedIsTold, "default", 3, 30);
    assert!(count >= 3 && says.contains("which a program has suppressed"), "{count} of 30: {says}");
}

#[test]
fn a_call_that_is_carried_out_twice_is_found() {
    let (count, says) = found_with_programs(Bug::TakenTwice, "default", 3, 120);
    assert!(count >= 3, "{count} of 120: {says}");
}
