//! Runs of ensembles, and the alarm: planted bugs must be found.

use stoa_core::Bug;
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

/// The seeds within which a planted bug must be found.
const SEEDS: u64 = 30;

fn found(kind: &str, bug: Option<Bug>, change: fn(&mut Settings)) {
    for seed in 1..=SEEDS {
        let mut settings = Settings::named(kind).expect("it is one of the kinds");
        change(&mut settings);
        let mut world = World::new(seed, settings, false);
        bug.into_iter().for_each(|bug| world.plant(bug));
        // Assertions of the server itself count as well.
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        if !matches!(caught, Ok(Ok(_))) {
            return;
        }
    }
    panic!("not found in {SEEDS} seeds of the kind {kind}");
}

macro_rules! alarms {
    ($($name:ident: $bug:ident in $kind:literal,)*) => {
        $(
            #[test]
            fn $name() {
                found($kind, Some(Bug::$bug), |_| {});
            }
        )*
    };
}

alarms! {
    an_answer_before_the_disk_has_it_is_found: AckBeforeDurable in "crashes",
    a_reply_before_its_event_is_found: ReplyBeforeEvent in "calm",
    a_read_that_overtakes_a_write_is_found: ReadOvertakesWrite in "calm",
    a_lost_event_is_found: EventIsLost in "calm",
    an_ephemeral_that_outlives_its_session_is_found: EphemeralOutlivesSession in "churn",
    a_snapshot_that_claims_too_much_is_found: SnapshotClaimsTooMuch in "crashes",
    what_is_applied_before_it_is_committed_is_found: AppliedBeforeCommitted in "network",
    a_refusal_beside_the_timeline_is_found: RefusedBesideTimeline in "calm",
    requests_that_are_asked_again_at_once_are_found: AskedAgainAtOnce in "network",
    requests_that_are_taken_twice_are_found: TakenTwice in "network",
    an_old_contact_that_is_accepted_is_found: OldContactAccepted in "churn",
    a_sync_that_asks_nobody_is_found: SyncIsLocal in "network",
    a_contact_that_tells_nobody_whom_it_heard_is_found: HeardIsNotTold in "quiet",
    proposals_that_outlive_the_lead_are_found: ProposedIsKept in "network",
    a_server_that_only_reads_beside_a_leader_is_found: ReadOnlyOutlivesLeader in "read-only",
    a_write_that_a_server_takes_that_only_reads_is_found: ReadOnlyAcceptsWrites in "read-only",
    a_session_of_a_server_that_only_reads_is_found: ReadOnlySessionIsReal in "read-only",
    a_refused_record_that_counts_as_stored_is_found: RefusedCountsAsStored in "disks",
    an_old_contact_whose_way_was_cut_is_found: OldContactAccepted in "links",
    sessions_that_a_new_leader_ends_at_once_are_found: SilentBeforeLead in "handover",
    a_reconfig_that_never_ends_is_found: ReconfigNeverEnds in "members",
    a_reconfig_that_takes_nobody_out_is_found: NobodyLeaves in "members",
    a_learner_that_counts_as_a_voter_is_found: LearnerCounts in "members",
    an_outsider_that_is_heard_is_found: OutsiderIsHeard in "members",
    an_emptied_server_that_stays_is_found: EmptiedStays in "losses",
}

/// A server with an emptied disk votes as if it had its past.
#[test]
fn an_emptied_server_that_is_trusted_is_found() {
    found("losses", None, |settings| settings.trusting = true);
}

/// The same, of a server that goes on with an empty log when it finds its own damaged.
#[test]
fn rot_that_is_taken_for_an_empty_log_is_found() {
    found("rot", None, |settings| {
        settings.trusting = true;
        settings.faults = Faults { rot_ms: 60, crash_ms: 200, cut_ms: 500, ..settings.faults };
    });
}
