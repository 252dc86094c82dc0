//! Bugs of several sites.

use stoa_planted::Bug;
use stoa_sim::sites::{SitePlan, SiteRun};

use crate::wrong;

/// The seeds within which a bug must be found.
const SEEDS: u64 = 400;

/// Servers of each site: what is between sites shows with one, and soonest.
fn found(kind: &str, bug: Bug) {
    found_with(kind, 1, bug);
}

fn found_with(kind: &str, servers: usize, bug: Bug) {
    found_from(1, kind, servers, bug);
}

fn found_from(first: u64, kind: &str, servers: usize, bug: Bug) {
    let seed = (first..first + SEEDS).find(|seed| wrong(bug, || run(*seed, kind, servers)).is_some());
    assert!(seed.is_some(), "{bug:?} is not found in {SEEDS} seeds of the kind {kind} from {first}");
}

fn run(seed: u64, kind: &str, servers: usize) -> Result<(), stoa_sim::ensemble::Failure> {
    let plan = SitePlan::of(seed, Some(kind), None, Some(servers)).expect("it is one of the kinds");
    SiteRun::new(seed, &plan, false).run().map(drop)
}

/// The same where clients are connected to readers, too.
fn found_with_readers(kind: &str, bug: Bug) {
    let plan = |seed| SitePlan::of(seed, Some(kind), None, Some(1)).expect("it is a kind").with_readers(2);
    let life = |seed| SiteRun::new(seed, &plan(seed), false).run().map(drop);
    let found = (1..=SEEDS).any(|seed| wrong(bug, || life(seed)).is_some());
    assert!(found, "{bug:?} is not found in {SEEDS} seeds of the kind {kind}");
}

#[test]
fn a_reader_whose_sessions_are_of_another_site_is_found() {
    found_with_readers("travel", Bug::ReaderOfAnotherSite);
}

/// It takes a client that comes back to the same server at the right moment.
#[test]
fn a_change_that_came_late_and_is_not_told_is_found() {
    let kinds = ["default", "lines", "network", "travel"];
    let mut lives = kinds.iter().flat_map(|kind| (SEEDS + 1..=3 * SEEDS).map(move |seed| (*kind, seed)));
    let found = lives.any(|(kind, seed)| wrong(Bug::LateIsNotNoted, || run(seed, kind, 1)).is_some());
    assert!(found, "a change that came late is told in {kinds:?}");
}

/// With no bug planted the copy is what it was made from.
#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for kind in ["default", "away", "travel", "hubs", "losses", "releases", "automatic", "divided-lines"] {
        for servers in [1, 3] {
            run(1, kind, servers).unwrap_or_else(|failure| panic!("{kind}, {servers} servers: {failure}"));
        }
    }
}

alarms! {
    an_entry_that_is_shipped_before_the_disk_has_it_is_found: AckBeforeDurable in "crashes",
    what_is_taken_once_more_after_a_break_is_found: ImportedTwice in "lines",
    a_request_that_is_carried_out_twice_is_found: ForwardedTwice in "default",
    a_write_that_overtakes_one_that_has_gone_to_the_hub_is_found: LocalOvertakesForwarded in "default",
    what_waits_for_ever_after_a_restart_is_found: NewLeaderForgetsWhatWaits in "crashes",
    a_new_site_that_the_hub_does_not_know_is_found: NewSiteIsNotNoted in "crashes",
    a_program_that_needs_no_tokens_is_found: ProgramNeedsNoToken in "programs",
    a_write_of_what_others_read_is_found: WritesWhatOthersRead in "travel",
    a_read_token_that_is_returned_and_used_is_found: ReadTokenIsKept in "default",
    a_sync_that_asks_the_hub_only_is_found: SyncAsksTheHub in "default",
    a_session_that_leaves_what_it_has_asked_is_found: SessionLeavesWhatItAsked in "travel",
    a_pzxid_that_is_not_the_largest_is_found: PzxidIsTheLast in "default",
    a_check_without_a_token_is_found: CheckNeedsNoToken in "away",
    a_number_without_a_token_is_found: SequentialNeedsNoToken in "default",
    a_holder_until_the_end_is_applied_is_found: HeldUntilApplied in "default",
    a_snapshot_without_marks_is_found: SnapshotWithoutMarks in "away",
    a_create_behind_the_end_of_its_session_is_found: EndIsForgotten in "default",
    who_follows_and_goes_on_is_found: FollowsAndGoesOn in "losses",
    a_hub_that_goes_on_while_it_follows_is_found: OldHubGoesOn in "hubs",
    a_reign_before_all_have_followed_is_found: ReignBeforeAllFollow in "hubs",
    what_is_forgotten_between_two_hubs_is_found: ReignForgetsWhatWaits in "hubs",
    what_comes_late_from_who_is_given_up_is_found: ImportedBehindAClaim in "losses",
    a_hub_that_needs_no_lease_is_found: HubNeedsNoLease in "automatic",
    a_lease_that_lasts_as_long_as_a_promise_is_found: LeaseAsLongAsPromise in "cut-off",
    a_promise_that_ends_with_a_start_is_found: PromiseEndsWithAStart in "cut-off",
    a_promise_that_is_forgotten_with_a_start_is_found: ForgetsThatItPromised in "cut-off",
    a_promise_that_is_not_kept_is_found: PromiseIsNotKept in "automatic",
    a_lease_that_is_counted_from_the_answer_is_found: LeaseFromTheAnswer in "automatic",
    a_level_that_not_all_sites_read_is_found: RaisedBeforeSitesRead in "releases",
    a_level_that_who_joins_does_not_read_is_found: RaisedBeforeJoinersRead in "releases",
    who_follows_though_it_is_bound_is_found: FollowsThoughBound in "automatic",
    a_share_that_a_partition_does_not_get_is_found: ShareIsLost in "divided",
    an_operation_over_partitions_without_their_tokens_is_found: SeveralNeedNoTokens in "divided",
    a_zxid_that_is_smaller_than_what_was_told_is_found: CountsByItself in "divided",
}

#[test]
fn a_lead_that_is_not_handed_over_and_forgets_is_found() {
    found_with("handover", 3, Bug::FailedHandOverForgets);
}

/// It takes an update that comes by way of two sites, which is seldom: one seed of a thousand has it.
#[test]
fn a_session_that_goes_where_it_was_is_found() {
    found_from(1_001, "hubs", 1, Bug::GoesWhereItWas);
}

/// Of what a site does that is given up, the others have to hear just then.
#[test]
fn a_site_that_is_given_up_and_heeded_is_found() {
    found_from(301, "divided-losses", 1, Bug::LostIsHeeded);
}

/// Something has to be proposed, and not applied, in the moment when a site is given up or comes back.
#[test]
fn what_is_done_twice_when_a_site_comes_or_goes_is_found() {
    found_from(401, "losses", 1, Bug::ResumesWhatIsInHand);
}

/// The hub has to hear just half of the sites, and for long.
#[test]
fn a_hub_that_asks_though_too_few_hear_is_found() {
    found_from(150_000_501, "automatic", 1, Bug::AsksThoughTooFewHear);
}

#[test]
fn a_level_that_not_all_servers_of_a_site_read_is_found() {
    found_with("releases", 3, Bug::SiteReadsWhatItsLeaderReads);
}

#[test]
fn what_is_prepared_before_its_site_has_joined_is_found() {
    found_with("disks", 3, Bug::PreparedBeforeJoining);
}
