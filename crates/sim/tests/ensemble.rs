//! Runs of ensembles. Bugs of servers are found in `planted`.

use stoa_sim::ensemble::{Failure, Outcome, Settings, World};

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
    assert!(total.seen.answers > 10_000, "{total}");
    assert!(total.seen.events > 1000, "{total}");
    assert!(total.refusals > 2000, "{total}");
    assert!(total.terms > 60, "{total}");
    assert!(total.seen.moves > 500, "{total}");
    assert!(total.starts > 150, "{total}");
    assert!(total.out_of_room > 10, "{total}");
    assert!(total.taken_over > 0, "{total}");
    assert!(total.reconfigs > 30, "{total}");
}

/// Readers come and go below members and below each other, in every kind of life, and clients are connected to them as to
/// any server.
#[test]
fn ensembles_live_with_readers() {
    let live = |seed| {
        let readers = 1 + seed as usize % 4;
        let settings = Settings::of(seed, None, None).expect("every seed stands for something");
        let outcome = World::new(seed, settings.with_readers(readers), false).run();
        outcome.unwrap_or_else(|failure| {
            panic!("stoa-sim ensemble --seeds 1 --from {seed} --readers {readers} --trace: {failure}")
        })
    };
    let total = (1..=70).map(live).fold(Outcome::default(), |sum, outcome| sum + outcome);
    assert!(total.ties > 300, "{total}");
    assert!(total.taken_over > 100 && total.emptied > 0 && total.seen.moves > 500, "{total}");
    // A server that spoke of sessions which its parent did not know yet, and one whose word came behind the parent's own.
    for (seed, servers, kind) in [(7_110_515, 3, "disks"), (7_100_132, 5, "quiet")] {
        let settings = Settings::of(seed, Some(servers), Some(kind)).expect("it is a kind");
        let outcome = World::new(seed, settings.with_readers(3), false).run();
        outcome.unwrap_or_else(|failure| panic!("seed {seed} of {kind}: {failure}"));
    }
}

/// Servers are readers and members one after the other, as the list of servers says, in every kind of life.
#[test]
fn ensembles_live_with_servers_that_change_their_roles() {
    let live = |seed| {
        let more = 1 + seed as usize % 3;
        let settings = Settings::of(seed, None, None).expect("every seed stands for something");
        let outcome = World::new(seed, settings.with_roles(more), false).run();
        outcome.unwrap_or_else(|failure| {
            panic!("stoa-sim ensemble --seeds 1 --from {seed} --roles {more} --trace: {failure}")
        })
    };
    let total = (1..=70).map(live).fold(Outcome::default(), |sum, outcome| sum + outcome);
    assert!(total.role_changes > 300, "{total}");
    assert!(total.reconfigs > 100 && total.emptied > 0 && total.seen.moves > 500, "{total}");
}

/// Appends go down trees, in every kind of life; where there are few servers, nobody stands below a root.
#[test]
fn ensembles_live_with_a_forest() {
    let live = |seed, servers| {
        let settings =
            Settings::of(seed, servers, None).expect("every seed stands for something").with_forest();
        let outcome = World::new(seed, settings, false).run();
        outcome.unwrap_or_else(|failure| {
            panic!("stoa-sim ensemble --seeds 1 --from {seed} --forest --trace: {failure}")
        })
    };
    let of_few = (1..=42).map(|seed| live(seed, None));
    let of_many = (43..=50).map(|seed| live(seed, Some(11)));
    let total = of_few.chain(of_many).fold(Outcome::default(), |sum, outcome| sum + outcome);
    assert!(total.frames > 100_000, "{total}");
    assert!(total.emptied > 0 && total.reconfigs > 0 && total.taken_over > 0, "{total}");
}

/// There are three servers, and trees from four on: with those who are added they begin, and nothing is said before.
#[test]
fn a_forest_begins_when_enough_servers_have_come() {
    let live = |seed, kind| {
        let settings = Settings::of(seed, Some(3), Some(kind)).expect("it is one of the kinds");
        let mut settings = settings.with_forest();
        settings.config.relief.forest.iter_mut().for_each(|forest| forest.servers_min = 4);
        World::new(seed, settings, false).run().expect("these seeds pass")
    };
    let total = (1..=8).map(|seed| live(seed, "members")).fold(Outcome::default(), |sum, it| sum + it);
    assert!(total.frames > 1000 && total.reconfigs > 8, "{total}");
    assert_eq!(live(1, "calm").frames, 0);
}

/// Servers of the release before, which have no forest, come and go: nothing is said to them that they cannot read.
#[test]
fn releases_with_a_forest_and_without_live_together() {
    let live = |seed, servers| {
        let settings =
            Settings::of(seed, servers, None).expect("every seed stands for something").with_upgrades();
        let outcome = World::new(seed, settings, false).run();
        outcome.unwrap_or_else(|failure| {
            panic!("stoa-sim ensemble --seeds 1 --from {seed} --upgrades --trace: {failure}")
        })
    };
    let of_few = (1..=21).map(|seed| live(seed, Some(5)));
    let of_many = (22..=25).map(|seed| live(seed, Some(11)));
    let total = of_few.chain(of_many).fold(Outcome::default(), |sum, outcome| sum + outcome);
    assert!(total.frames > 10_000 && total.starts > 100, "{total}");
}

/// Members lack what the logs hold all the time, and give each other snapshots: givers end and are cut off in the middle,
/// leaders change, disks are full and are lost.
#[test]
fn members_that_lag_are_given_snapshots_by_each_other() {
    let live = |seed, servers, has_forest| {
        let settings = Settings::of(seed, Some(servers), Some("lags")).expect("it is one of the kinds");
        let settings = if has_forest { settings.with_forest() } else { settings };
        let outcome = World::new(seed, settings, false).run();
        outcome.unwrap_or_else(|failure| {
            let forest = if has_forest { " --forest" } else { "" };
            panic!(
                "stoa-sim ensemble --seeds 1 --from {seed} --servers {servers} --kind lags{forest}: {failure}"
            )
        })
    };
    let runs = (1..=24).flat_map(|seed| [live(seed, 3, false), live(seed, 5, false), live(seed, 5, true)]);
    let total = runs.fold(Outcome::default(), |sum, outcome| sum + outcome);
    assert!(total.given > 100 && total.taken_over > 100 && total.emptied > 20, "{total}");
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
    assert!(total.seen.read_only > 20, "{total}");
}

/// A sole voter takes another one in, is sure of what follows, and loses power before anybody sees that: what it has
/// then was committed, behind a change of members that its disk does not rest on.
#[test]
fn what_was_committed_behind_a_change_of_members_counts_after_a_restart() {
    let settings = Settings::of(31_300_000_790, Some(3), Some("disks")).expect("it is one of the kinds");
    World::new(31_300_000_790, settings, false).run().expect("nothing is lost");
}
