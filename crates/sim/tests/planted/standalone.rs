//! Bugs of a server that the simulator of one server finds.

use stoa_planted::Bug;
use stoa_sim::ensemble::World;
use stoa_sim::standalone::{self, Profile};

use crate::wrong;

/// The seeds within which a bug must be found.
const SEEDS: u64 = 12;

fn world(seed: u64, name: &str) -> World {
    let mut profile = Profile::named(name).expect("the profile is in the table");
    profile.life.requests = 2000;
    standalone::world(seed, &profile, false)
}

fn found(name: &str, bug: Bug) {
    let found = (1..=SEEDS).any(|seed| wrong(bug, || world(seed, name).run()).is_some());
    assert!(found, "not found in {SEEDS} seeds of the profile {name}");
}

/// With no bug planted the copy is what it was made from.
#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for name in ["default", "calm", "churn", "idle", "big"] {
        world(1, name).run().unwrap_or_else(|failure| panic!("profile {name}: {failure}"));
    }
}

alarms! {
    an_answer_before_the_disk_has_it_is_found: AckBeforeDurable in "default",
    a_reply_before_its_event_is_found: ReplyBeforeEvent in "calm",
    a_read_that_overtakes_a_write_is_found: ReadOvertakesWrite in "calm",
    a_refusal_that_overtakes_a_write_is_found: RefusalOvertakesWrite in "calm",
    a_lost_event_is_found: EventIsLost in "calm",
    an_ephemeral_that_outlives_its_session_is_found: EphemeralOutlivesSession in "churn",
    a_session_that_expires_early_is_found: SessionExpiresEarly in "idle",
    a_snapshot_that_claims_too_much_is_found: SnapshotClaimsTooMuch in "big",
    a_session_that_is_heard_on_its_old_connection_is_found: OldContactAccepted in "churn",
    a_session_called_gone_before_that_is_durable_is_found: ExpiredWhileProposed in "churn",
}
