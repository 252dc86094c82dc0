//! Bugs of servers that simulated ensembles find.

use stoa_planted::Bug;
use stoa_sim::ensemble::{Faults, Settings, World};

use crate::wrong;

/// The seeds within which a bug must be found.
const SEEDS: u64 = 100;

fn world(seed: u64, kind: &str) -> World {
    World::new(seed, Settings::named(kind).expect("it is one of the kinds"), false)
}

fn found(kind: &str, bug: Bug) {
    found_with(kind, |_| {}, bug);
}

fn found_with(kind: &str, change: fn(&mut Settings), bug: Bug) {
    let live = |seed| {
        let mut settings = Settings::named(kind).expect("it is one of the kinds");
        change(&mut settings);
        World::new(seed, settings, false).run()
    };
    let found = (1..=SEEDS).any(|seed| wrong(bug, || live(seed)).is_some());
    assert!(found, "not found in {SEEDS} seeds of the kind {kind}");
}

/// The same, with a day on which a majority is lost for good.
fn found_after_recovery(kind: &str, bug: Bug) {
    let life =
        |seed| Settings { recoveries: 1, ..Settings::of(seed, None, Some(kind)).expect("it is a kind") };
    let found = (1..=SEEDS).any(|seed| wrong(bug, || World::new(seed, life(seed), false).run()).is_some());
    assert!(found, "not found in {SEEDS} seeds of the kind {kind}");
}

#[test]
fn a_recovered_server_that_does_not_move_on_is_found() {
    found_after_recovery("crashes", Bug::RecoveredKeepsItsName);
}

#[test]
fn a_recovered_server_that_forgets_what_was_uncertain_is_found() {
    found_after_recovery("crashes", Bug::RecoveredForgetsTheRest);
}

/// The same where appends go down trees.
fn found_in_forest(servers: usize, kind: &str, bug: Bug) {
    let life = |seed| Settings::of(seed, Some(servers), Some(kind)).expect("it is a kind").with_forest();
    let found = (1..=SEEDS).any(|seed| wrong(bug, || World::new(seed, life(seed), false).run()).is_some());
    assert!(found, "not found in {SEEDS} seeds of the kind {kind}");
}

#[test]
fn a_server_that_acknowledges_what_has_come_down_a_tree_and_is_not_stored_is_found() {
    found_in_forest(3, "disks", Bug::AcknowledgesWhatHasComeDown);
}

#[test]
fn a_server_that_tells_old_releases_of_the_forest_is_found() {
    found_with("default", |it| *it = it.clone().with_upgrades(), Bug::OldReleasesAreTold);
}

#[test]
fn a_leader_that_never_sends_to_whom_the_forest_does_not_reach_is_found() {
    found_in_forest(5, "network", Bug::WindowStaysShut);
}

#[test]
fn a_leader_that_announces_what_waits_for_others_is_found() {
    found_in_forest(3, "disks", Bug::AnnouncesWhatWaits);
}

#[test]
fn a_leader_that_commits_by_the_sizes_of_groups_is_found() {
    found_in_forest(5, "crashes", Bug::CountsWholeGroups);
}

#[test]
fn a_leader_that_counts_itself_twice_is_found() {
    found_in_forest(4, "crashes", Bug::CountsAMemberTwice);
}

#[test]
fn a_server_that_commits_what_it_does_not_have_is_found() {
    found_in_forest(5, "network", Bug::CommitsWhatItDoesNotHave);
}

/// The same where members give each other snapshots all the time.
fn found_where_members_lag(servers: usize, bug: Bug) {
    let life = |seed| Settings::of(seed, Some(servers), Some("lags")).expect("it is a kind");
    let found = (1..=SEEDS).any(|seed| wrong(bug, || World::new(seed, life(seed), false).run()).is_some());
    assert!(found, "not found in {SEEDS} seeds in which members lag");
}

#[test]
fn a_leader_that_takes_a_givers_word_for_the_receivers_is_found() {
    found_where_members_lag(5, Bug::GiverSpeaksForReceiver);
}

#[test]
fn a_member_that_goes_on_from_an_older_snapshot_than_what_it_has_promised_is_found() {
    found_where_members_lag(3, Bug::GivenSnapshotIsTakenAnyway);
}

/// The same where clients are connected to readers, too.
fn found_with_readers(servers: usize, kind: &str, bug: Bug) {
    let life = |seed| Settings::of(seed, Some(servers), Some(kind)).expect("it is a kind").with_readers(2);
    let found = (1..=SEEDS).any(|seed| wrong(bug, || World::new(seed, life(seed), false).run()).is_some());
    assert!(found, "not found in {SEEDS} seeds of the kind {kind}");
}

#[test]
fn a_reader_that_is_given_what_is_not_committed_is_found() {
    found_with_readers(3, "network", Bug::ReaderIsFedTooMuch);
}

#[test]
fn a_reader_that_asks_nobody_for_a_sync_is_found() {
    found_with_readers(3, "calm", Bug::ReaderSyncIsLocal);
}

#[test]
fn a_reader_that_asks_again_what_may_have_been_carried_out_is_found() {
    found_with_readers(1, "network", Bug::ReaderAsksAgain);
}

#[test]
fn a_reader_that_goes_to_a_better_parent_while_clients_wait_is_found() {
    found_with_readers(3, "network", Bug::ReaderLeavesInHaste);
}

#[test]
fn a_server_that_does_not_tell_whom_readers_have_heard_of_is_found() {
    found_with_readers(3, "quiet", Bug::HeardBelowIsLost);
}

/// With no bug planted the copy is what it was made from.
#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for kind in ["calm", "churn", "crashes", "network", "members"] {
        for seed in 1..=2 {
            world(seed, kind).run().unwrap_or_else(|failure| panic!("seed {seed} of {kind}: {failure}"));
        }
    }
}

alarms! {
    an_answer_before_the_disk_has_it_is_found: AckBeforeDurable in "crashes",
    a_reply_before_its_event_is_found: ReplyBeforeEvent in "calm",
    a_read_that_overtakes_a_write_is_found: ReadOvertakesWrite in "calm",
    a_lost_event_is_found: EventIsLost in "calm",
    an_ephemeral_that_outlives_its_session_is_found: EphemeralOutlivesSession in "churn",
    a_snapshot_that_claims_too_much_is_found: SnapshotClaimsTooMuch in "crashes",
    a_snapshot_before_all_is_applied_is_found: SnapshotBeforeItsTurn in "crashes",
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
}

/// What a copy has forgotten is mostly a vote, and its server has to be asked for another one at once.
#[test]
fn an_older_copy_that_stays_is_found() {
    let change = |settings: &mut Settings| {
        let faults = Faults { empty_ms: 0, rollback_ms: 50, crash_ms: 200, ..settings.faults };
        settings.faults = Faults { cut_ms: 500, hand_over_ms: 200, ..faults };
    };
    found_with("losses", change, Bug::OlderCopyStays);
}

/// Disks are lost often, and whoever knows better is soon away.
fn lose_disks(settings: &mut Settings) {
    let faults = Faults { rollback_ms: 0, empty_ms: 100, crash_ms: 200, ..settings.faults };
    settings.faults = Faults { cut_ms: 400, hand_over_ms: 200, ..faults };
}

#[test]
fn an_emptied_server_that_stays_is_found() {
    found_with("losses", lose_disks, Bug::EmptiedStays);
}

/// A server with an emptied disk votes as if it had its past, before it is given anything.
#[test]
fn an_emptied_server_that_is_trusted_is_found() {
    let change = |settings: &mut Settings| {
        lose_disks(settings);
        settings.trusting = true;
    };
    found_with("losses", change, Bug::EmptiedStays);
}

/// The same, of a server that goes on with an empty log when it finds its own damaged.
#[test]
fn rot_that_is_taken_for_an_empty_log_is_found() {
    let change = |settings: &mut Settings| {
        settings.trusting = true;
        settings.faults = Faults { rot_ms: 60, crash_ms: 200, cut_ms: 500, ..settings.faults };
    };
    found_with("rot", change, Bug::EmptiedStays);
}
