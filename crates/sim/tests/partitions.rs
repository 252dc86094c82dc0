//! Servers with several partitions: seeds that must pass, and bugs that must be found.

use stoa_core::Bug;
use stoa_sim::partitions::World;

#[test]
fn nothing_goes_wrong_that_must_not() {
    for seed in 1..=40 {
        let partitions = [2, 3, 4, 8][seed as usize % 4];
        if let Err(violation) = World::new(seed, partitions, &|_| ()).run() {
            panic!("seed {seed}, {partitions} partitions: {violation}");
        }
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    let run = || World::new(7, 4, &|_| ()).run().map(|outcome| outcome.to_string());
    assert_eq!(
        run().map_err(|violation| violation.to_string()),
        run().map_err(|violation| violation.to_string())
    );
}

/// How many seeds of a few find a bug, and what the first one says.
fn found(bug: Bug, partitions: u8) -> (usize, String) {
    let mut says = String::new();
    let plant = |shard: &mut stoa_core::Shard| shard.plant(bug);
    let runs = (1..=30).filter_map(|seed| World::new(seed, partitions, &plant).run().err());
    let count = runs.inspect(|violation| says = violation.to_string()).count();
    (count, says)
}

#[test]
fn a_partition_that_shows_less_than_its_client_has_seen_is_found() {
    let (count, says) = found(Bug::TimestampIgnored, 4);
    assert!(count >= 3 && says.contains("which knows of version"), "{count} of 30: {says}");
}

#[test]
fn an_answer_whose_zxid_hides_what_another_partition_has_for_the_client_is_found() {
    let (count, says) = found(Bug::HighestZxid, 3);
    assert!(count >= 3 && says.contains("before any event"), "{count} of 30: {says}");
}

#[test]
fn a_part_that_is_applied_before_all_are_there_is_found() {
    let (count, says) = found(Bug::HalfIsEnough, 3);
    assert!(count >= 3, "{count} of 30: {says}");
}
