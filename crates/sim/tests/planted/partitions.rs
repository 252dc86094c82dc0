//! Bugs of servers with several partitions.

use stoa_planted::Bug;
use stoa_sim::partitions::{Plan, Run};

use crate::wrong;

fn named(kind: &str) -> Plan {
    Plan::named(kind).expect("there is such a kind")
}

/// How many seeds of a few find a bug, and what they say.
fn found(bug: Bug, kind: &str, partitions: u8, seeds: u64) -> (usize, String) {
    found_in(bug, &named(kind).with_partitions(partitions), seeds)
}

fn found_with_programs(bug: Bug, kind: &str, partitions: u8, seeds: u64) -> (usize, String) {
    found_in(bug, &named(kind).with_partitions(partitions).with_programs(), seeds)
}

fn found_in(bug: Bug, plan: &Plan, seeds: u64) -> (usize, String) {
    let runs = (1..=seeds).filter_map(|seed| wrong(bug, || Run::new(seed, plan, false).run()));
    let said: Vec<String> = runs.collect();
    (said.len(), said.join("\n"))
}

/// With no bug planted the copy is what it was made from.
#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for kind in ["default", "moving"] {
        for plan in [named(kind), named(kind).with_programs()] {
            let ran = Run::new(1, &plan.with_partitions(3), false).run();
            ran.unwrap_or_else(|failure| panic!("seed 1 of {kind}: {failure}"));
        }
    }
}

#[test]
fn a_partition_that_shows_less_than_its_client_has_seen_is_found() {
    let (count, says) = found(Bug::TimestampIgnored, "default", 4, 120);
    assert!(count >= 3 && says.contains("which knows of version"), "{count} of 120: {says}");
}

#[test]
fn a_write_that_outlives_an_earlier_one_of_its_client_is_found() {
    let (count, says) = found(Bug::PipelinedFollowsNothing, "default", 3, 240);
    assert!(count >= 3 && says.contains("of version"), "{count} of 240: {says}");
}

#[test]
fn a_write_that_overtakes_what_is_handed_on_is_found() {
    let plan = named("default").with_partitions(4).with_impatience();
    let (count, says) = found_in(Bug::OvertakesHandedOn, &plan, 60);
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
