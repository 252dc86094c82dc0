//! Servers with several partitions: seeds that must pass. Bugs are found in `planted`.

use stoa_sim::ensemble::{Outcome, Trouble};
use stoa_sim::partitions::{Plan, Run};

/// Every kind of life, with every number of partitions, with programs of the service and without.
#[test]
fn nothing_goes_wrong_that_must_not() {
    for seed in 1..=112 {
        live(seed, &Plan::of(seed));
    }
}

/// The same with readers.
#[test]
fn readers_of_several_partitions_live_with_them() {
    let runs = (1..=56).map(|seed| live(seed, &Plan::of(seed).with_readers(1 + seed as usize % 3)));
    let total = runs.fold(Outcome::default(), |sum, outcome| sum + outcome);
    assert!(total.ties > 200 && total.taken_over > 50, "{total}");
    // Its disk was full, and one of its threads told the others who leads.
    live(7_300_004, &named("alone").with_programs().with_partitions(2).with_readers(3));
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
    for trouble in Trouble::all() {
        assert!(total.met.times(trouble) > 3, "{trouble:?}: {total}");
    }
    assert!(total.seen.answers > 6000, "{total}");
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

#[test]
fn clients_that_do_not_wait_for_answers_are_answered_in_their_order() {
    for seed in 1..=56 {
        live(seed, &Plan::of(seed).with_impatience());
    }
}
