//! Bugs of recipes that their simulator finds.

use stoa_planted::{Bug, with};
use stoa_sim::ensemble::Failure;
use stoa_sim::recipes::{Play, RecipeOutcome, RecipePlan, run};

/// The seeds within which a bug must be found.
const SEEDS: u64 = 600;

fn live(seed: u64, play: Play, kind: &str) -> Result<RecipeOutcome, Failure> {
    run(seed, &RecipePlan::of(seed, Some(play), Some(kind)).expect("it is one of the kinds"), false)
}

fn found(play: Play, kind: &str, bug: Bug) {
    let found = (1..=SEEDS).any(|seed| with(bug, || live(seed, play, kind)).is_err());
    assert!(found, "not found in {SEEDS} seeds of {} in the kind {kind}", play.name());
}

/// With no bug planted the copy is what it was made from.
#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for play in Play::ALL {
        for (seed, kind) in (1..).zip(["calm", "default", "links"]) {
            let outcome = live(seed, play, kind);
            outcome.unwrap_or_else(|failure| panic!("seed {seed} of {}, {kind}: {failure}", play.name()));
        }
    }
}

macro_rules! alarms {
    ($($name:ident: $bug:ident in $play:ident, $kind:literal,)*) => {
        $(
            #[test]
            fn $name() {
                found(Play::$play, $kind, Bug::$bug);
            }
        )*
    };
}

alarms! {
    a_create_that_is_made_twice_is_found: CreateIsNotProtected in Lock, "links",
    a_create_of_a_semaphore_that_is_made_twice_is_found: CreateIsNotProtected in Semaphore, "links",
    a_contender_that_is_left_behind_is_found: ContenderIsLeft in Lock, "calm",
    a_candidate_that_is_left_behind_is_found: ContenderIsLeft in Election, "calm",
    a_member_that_is_left_behind_is_found: ContenderIsLeft in Group, "calm",
    somebody_left_at_a_barrier_is_found: ContenderIsLeft in Meeting, "calm",
    a_barrier_that_is_not_looked_at_anew_is_found: BarrierIsNotSynced in Barrier, "network",
    an_event_that_is_taken_for_the_lock_is_found: EventIsTrusted in Lock, "calm",
    a_leaf_that_is_taken_for_a_directory_is_found: LeafIsCleared in Lock, "default",
    a_contender_that_is_left_behind_on_a_partition_is_found: ContenderIsLeft in Lock, "divided-moving",
    an_event_of_a_partition_that_is_taken_for_the_lock_is_found: EventIsTrusted in Lock, "divided-default",
    a_leaf_that_somebody_else_deletes_is_found: LeafIsAnyones in Lock, "links",
    somebody_who_hands_over_what_it_does_not_have_is_found: WaiterHandsOver in Lock, "calm",
    two_leaders_are_found: EventIsTrusted in Election, "calm",
    a_watch_for_what_has_gone_is_found: WatchIsLate in ReadWrite, "default",
    readers_that_pass_writers_are_found: ReadersPassWriters in ReadWrite, "calm",
    an_element_that_is_lost_with_an_answer_is_found: TakenWithoutWitness in Queue, "links",
    an_element_that_is_put_twice_is_found: PutWithoutWitness in Queue, "links",
    an_element_that_is_not_put_back_is_found: TakenIsNotPutBack in Queue, "calm",
    an_increment_that_is_made_twice_is_found: AddedTwice in Counter, "calm",
    a_program_that_adds_twice_is_found: ProgramIsAskedTwice in Counter, "calm",
    a_round_that_somebody_slips_into_is_found: EntersFullBarrier in Meeting, "calm",
    a_program_that_opens_too_early_is_found: OpensTooEarly in Meeting, "calm",
    leaders_that_are_appointed_side_by_side_are_found: AllAreAppointed in Election, "calm",
    a_place_that_was_the_first_before_there_was_a_watch_is_found: PlaceIsNotLookedAt in Lock, "links",
    a_cache_that_misses_what_it_was_not_told_is_found: CacheTrustsWatch in Cache, "links",
}
