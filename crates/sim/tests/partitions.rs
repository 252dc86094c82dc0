//! Servers with several partitions: seeds that must pass, and bugs that must be found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use stoa_core::Bug;
use stoa_sim::ensemble::{Outcome, Trouble};
use stoa_sim::partitions::{Plan, Run};

/// Every kind of life, with every number of partitions, with programs of the service and without.
#[test]
fn nothing_goes_wrong_that_must_not() {
    for seed in 1..=112 {
        live(seed, &Plan::of(seed));
    }
}

/// Seeds that found something, and do so until a change of the simulator makes other runs of them: a disk was lost while
/// nobody else had stored who the members are, which was the simulator's own fault; a server that took over a snapshot
/// waited for one that it was writing, whose place waited for a part of an operation which was undone; and a partition
/// prepared a client's call before it knew that the client had acknowledged the program.
#[test]
fn what_went_wrong_once_does_not_again() {
    live(9_995_005_152, &named("network").with_partitions(4));
    live(9_998_501_376, &named("members").with_programs().with_partitions(2));
    live(9_920_000_532, &named("losses").with_programs().with_partitions(2));
}

/// What the runs are for must occur in them: all that goes wrong with servers of one partition too.
#[test]
fn runs_meet_what_they_are_for() {
    let kinds = ["disks", "rot", "network", "links", "members", "losses"];
    let runs = (1..=108).map(|seed| live(seed, &named(kinds[seed as usize % 6]).with_partitions(3)));
    let total = runs.fold(Outcome::default(), |sum, outcome| sum + outcome);
    for trouble in Trouble::ALL {
        assert!(total.met.times(trouble) > 3, "{trouble:?}: {total}");
    }
    assert!(total.answers > 6000, "{total}");
    assert!(total.met.torn > 10, "{total}");
    assert!(total.met.messages_lost > 300, "{total}");
    assert!(total.met.messages_doubled > 300, "{total}");
    assert!(total.met.messages_late > 1000, "{total}");
    assert!(total.out_of_room > 10, "{total}");
    assert!(total.emptied > 3, "{total}");
    assert!(total.flipped > 3, "{total}");
    assert!(total.rot_noticed > 0, "{total}");
    assert!(total.taken_over > 20, "{total}");
    assert!(total.reconfigs > 5, "{total}");
    assert!(total.placed > 50, "{total}");
}

#[test]
fn a_run_follows_from_its_seed() {
    for kind in ["default", "reshaped"] {
        let run = || Run::new(7, &named(kind).with_partitions(4), false).run();
        assert_eq!(run(), run());
    }
}

fn named(kind: &str) -> Plan {
    Plan::named(kind).expect("there is such a kind")
}

fn live(seed: u64, plan: &Plan) -> Outcome {
    Run::new(seed, plan, false)
        .run()
        .unwrap_or_else(|failure| panic!("stoa-sim partitions --seeds 1 --from {seed} {plan}: {failure}"))
}

/// How many seeds of a few find a bug, and what they say.
fn found(bug: Bug, kind: &str, partitions: u8, seeds: u64) -> (usize, String) {
    found_in(bug, &named(kind).with_partitions(partitions), seeds)
}

fn found_with_programs(bug: Bug, kind: &str, partitions: u8, seeds: u64) -> (usize, String) {
    found_in(bug, &named(kind).with_partitions(partitions).with_programs(), seeds)
}

fn found_in(bug: Bug, plan: &Plan, seeds: u64) -> (usize, String) {
    let mut says = String::new();
    let count = (1..=seeds).filter(|seed| {
        let mut run = Run::new(*seed, plan, false);
        run.plant(bug);
        // A server that stops because it cannot apply what is committed has found it, too.
        let run = catch_unwind(AssertUnwindSafe(|| run.run()));
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
fn clients_that_do_not_wait_for_answers_are_answered_in_their_order() {
    for seed in 1..=56 {
        live(seed, &Plan::of(seed).with_impatience());
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
