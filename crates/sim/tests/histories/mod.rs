//! Histories in which ZooKeeper lost data or let it differ, told again, and histories of hand-overs and of lists of
//! servers. Each names the bug of its class.
//!
//! What `tells!` does with them is up to whoever has this module: `ensemble_scenarios.rs` lives through each, and
//! `planted` finds its bug in each.

use stoa_sim::ensemble::{Failure, HostId, Outcome, Settings, World};

pub(crate) type Told = Result<(), Failure>;

const SECOND_US: u64 = 1_000_000;

/// Lives through a story. Nothing goes wrong but what it tells, of so many servers, and of some that are not in the
/// ensemble yet.
pub(crate) fn live(
    seed: u64,
    (servers, spares): (usize, usize),
    story: fn(&mut World) -> Told,
) -> Result<Outcome, Failure> {
    let mut settings = Settings::named("calm").expect("it is one of the kinds");
    settings = Settings { servers, spares, ..settings };
    settings.manners.think_us = 20_000;
    let mut world = World::new(seed, settings, false);
    story(&mut world)?;
    world.finish()
}

/// The leader, once there is one.
fn leader(world: &mut World) -> Result<HostId, Failure> {
    for _ in 0..100 {
        if let Some(leader) = world.leader()
            && world.applied(leader).is_some()
        {
            return Ok(leader);
        }
        world.pass(100_000)?;
    }
    Err(Failure::Liveness("no leader within ten seconds".into()))
}

fn others(leader: HostId) -> [HostId; 2] {
    match leader {
        1 => [2, 3],
        2 => [1, 3],
        _ => [1, 2],
    }
}

/// ZOOKEEPER-3911, 4643, 4646, 4785, 2678, 3023, 3104: a follower says that it has what it has not
/// stored, and the power goes everywhere.
#[test]
fn zookeeper_3911_what_was_acknowledged_is_there_after_all_power_is_lost() {
    fn story(world: &mut World) -> Told {
        leader(world)?;
        world.pass(SECOND_US)?;
        for id in 1..=3 {
            world.slow_disk(id, 100, SECOND_US);
        }
        world.pass(300_000)?;
        for id in 1..=3 {
            world.fell(id, true);
        }
        for id in 1..=3 {
            world.rise(id);
        }
        world.pass(SECOND_US)
    }
    tells!((3, 0), story, AckBeforeDurable);
}

/// ZOOKEEPER-4394, and 1154, 1489, 2845: a leader that nobody hears goes on proposing, and comes back
/// when others have agreed on something else.
#[test]
fn zookeeper_4394_what_was_not_committed_is_not_applied() {
    fn story(world: &mut World) -> Told {
        let old = leader(world)?;
        world.pass(SECOND_US)?;
        world.isolate(old);
        world.pass(2 * SECOND_US)?;
        world.mend();
        world.pass(SECOND_US)
    }
    tells!((3, 0), story, AppliedBeforeCommitted);
}

/// ZOOKEEPER-2845: what a leader had in memory is still counted on when it leads again.
#[test]
fn zookeeper_2845_a_leader_that_leads_again_begins_with_what_is_committed() {
    fn story(world: &mut World) -> Told {
        let old = leader(world)?;
        world.pass(SECOND_US)?;
        world.isolate(old);
        world.pass(SECOND_US)?;
        world.mend();
        world.pass(SECOND_US)?;
        for other in others(old) {
            world.pause(other, 700_000);
        }
        world.pass(SECOND_US)?;
        let next = leader(world)?;
        world.pause(next, SECOND_US);
        world.pass(3 * SECOND_US)
    }
    tells!((3, 0), story, ProposedIsKept);
}

/// ZOOKEEPER-1154, 1489, 2355: a leader ends with entries that nobody else has; they are void when it
/// comes back.
#[test]
fn zookeeper_1489_void_entries_are_gone_after_a_restart() {
    fn story(world: &mut World) -> Told {
        let old = leader(world)?;
        world.pass(SECOND_US)?;
        world.isolate(old);
        world.pass(150_000)?;
        world.fell(old, false);
        world.mend();
        world.pass(2 * SECOND_US)?;
        world.rise(old);
        world.pass(SECOND_US)?;
        // The others must not have taken anything from it.
        for other in others(old) {
            world.fell(other, true);
            world.rise(other);
        }
        world.pass(SECOND_US)
    }
    tells!((3, 0), story, AppliedBeforeCommitted);
}

/// A server that was away so long that it needs a snapshot, sent by servers that have restarted.
fn fall_behind(world: &mut World) -> Result<HostId, Failure> {
    let lagging = others(leader(world)?)[0];
    world.fell(lagging, true);
    world.pass(2 * SECOND_US)?;
    for other in others(lagging) {
        world.fell(other, true);
        world.rise(other);
        world.pass(SECOND_US)?;
    }
    Ok(lagging)
}

/// ZOOKEEPER-2872, 3642, 5094: taking over a snapshot is cut short, at any call to the disk.
#[test]
fn zookeeper_2872_a_snapshot_is_taken_over_wholly_or_not_at_all() {
    fn story(world: &mut World) -> Told {
        let lagging = fall_behind(world)?;
        world.rise(lagging);
        world.pass(20_000)?;
        for calls in [1, 3, 5, 7, 9, 11] {
            world.lose_power_after(lagging, calls);
            world.pass(500_000)?;
        }
        world.pass(2 * SECOND_US)
    }
    tells!((3, 0), story, SnapshotClaimsTooMuch);
}

/// ZOOKEEPER-2418, 4352, 4925: who falls behind gets everything, with no hole between what is sent as a
/// snapshot and what is sent behind it.
#[test]
fn zookeeper_4925_nothing_is_left_out_between_a_snapshot_and_what_follows() {
    fn story(world: &mut World) -> Told {
        let lagging = fall_behind(world)?;
        world.rise(lagging);
        world.pass(2 * SECOND_US)?;
        if world.taken_over() == 0 {
            return Err(Failure::Liveness("no snapshot was taken over".into()));
        }
        // Now it is the one that the others depend on.
        let other = others(lagging)[0];
        world.fell(other, true);
        world.pass(2 * SECOND_US)?;
        world.rise(other);
        world.fell(lagging, true);
        world.rise(lagging);
        world.pass(SECOND_US)
    }
    tells!((3, 0), story, SnapshotClaimsTooMuch);
}

/// ZOOKEEPER-3701: the disk of the leader's log is full.
#[test]
fn zookeeper_3701_a_full_disk_makes_no_second_truth() {
    fn story(world: &mut World) -> Told {
        let full = leader(world)?;
        world.pass(500_000)?;
        world.fill_disk(full, 600, 2 * SECOND_US);
        world.pass(SECOND_US)?;
        world.fill_disk(others(full)[0], 600, SECOND_US);
        world.pass(2 * SECOND_US)?;
        world.fell(full, true);
        world.rise(full);
        world.pass(SECOND_US)
    }
    tells!((3, 0), story, RefusedCountsAsStored);
}

/// ZOOKEEPER-1208, 2355, 3144: sessions end while the lead changes.
#[test]
fn zookeeper_1208_no_ephemeral_outlives_its_session() {
    fn story(world: &mut World) -> Told {
        for _ in 0..3 {
            let old = leader(world)?;
            world.pass(SECOND_US)?;
            world.pause(old, SECOND_US);
            world.pass(SECOND_US)?;
        }
        world.pass(3 * SECOND_US)
    }
    tells!((3, 0), story, EphemeralOutlivesSession);
}

/// ZOOKEEPER-1818: every term has one leader, whatever the servers have heard of one another; and what
/// is asked of it again is not taken again.
#[test]
fn zookeeper_1818_terms_and_requests_do_not_mix() {
    fn story(world: &mut World) -> Told {
        for _ in 0..4 {
            let old = leader(world)?;
            world.pass(300_000)?;
            // What one of the others applies comes so late that it asks again.
            world.slow_disk(others(old)[0], 1000, 200_000);
            world.pass(300_000)?;
            // It hears the others no more, but they hear it; then the other way round.
            for other in others(old) {
                world.cut(other, old);
            }
            world.pass(400_000)?;
            world.mend();
            for other in others(old) {
                world.cut(old, other);
            }
            world.pass(500_000)?;
            world.mend();
        }
        world.pass(SECOND_US)
    }
    tells!((3, 0), story, TakenTwice);
}

/// Known from etcd (20418): a leader stands still, another one is elected, and the first goes on as if
/// nothing had happened.
#[test]
fn etcd_20418_a_leader_that_stood_still_answers_no_sync_from_the_past() {
    fn story(world: &mut World) -> Told {
        for _ in 0..4 {
            let old = leader(world)?;
            world.pass(300_000)?;
            world.isolate(old);
            world.pause(old, 600_000);
            world.pass(650_000)?;
            world.pass(300_000)?;
            world.mend();
            world.pass(300_000)?;
        }
        Ok(())
    }
    tells!((3, 0), story, SyncIsLocal);
}

/// The lead is handed over again and again: it takes a moment, and no session ends for it.
#[test]
fn a_lead_that_is_handed_over_loses_nobody() {
    fn story(world: &mut World) -> Told {
        for _ in 0..8 {
            let old = leader(world)?;
            world.pass(300_000)?;
            world.be_quiet();
            let committed = world.committed();
            world.hand_over(old, None);
            world.pass(100_000)?;
            if world.leader() == Some(old) || world.committed() == committed {
                return Err(Failure::Liveness("the lead was not handed over at once".into()));
            }
        }
        world.pass(SECOND_US)
    }
    tells!((3, 0), story, SilentBeforeLead);
}

/// Asks for another list of servers, and waits until those in it know that it is so.
fn change(world: &mut World, through: HostId, voters: &[HostId]) -> Told {
    world.reconfigure(through, voters);
    for _ in 0..100 {
        world.pass(100_000)?;
        if voters.iter().all(|id| world.voters(*id).as_deref() == Some(voters)) {
            return Ok(());
        }
    }
    Err(Failure::Liveness(format!("ten seconds later the voters are not {voters:?}")))
}

/// Every server is replaced by another one, the leader too, and one is away meanwhile.
#[test]
fn all_servers_are_replaced_one_after_the_other() {
    fn story(world: &mut World) -> Told {
        leader(world)?;
        change(world, 1, &[2, 3, 4])?;
        world.fell(2, true);
        change(world, 3, &[3, 4, 5])?;
        change(world, 4, &[4, 5, 6])?;
        world.rise(2);
        change(world, 5, &[2, 5, 6])
    }
    tells!((3, 3), story, NobodyLeaves);
}

/// The ensemble shrinks to one server, and grows again.
#[test]
fn an_ensemble_shrinks_to_one_server_and_grows_again() {
    fn story(world: &mut World) -> Told {
        leader(world)?;
        change(world, 1, &[2])?;
        world.fell(2, true);
        world.rise(2);
        world.pass(SECOND_US)?;
        change(world, 2, &[1, 2, 3, 4, 5])
    }
    tells!((3, 2), story, ReconfigNeverEnds);
}

/// A server comes back with an empty disk, is taken out, joins anew and leads. One that was cut off
/// meanwhile knows only its old disk.
#[test]
fn a_server_that_has_joined_anew_is_followed_by_one_that_has_missed_it() {
    fn story(world: &mut World) -> Told {
        let old = leader(world)?;
        world.pass(500_000)?;
        let (cut_off, emptied) = (old % 5 + 1, (old + 1) % 5 + 1);
        world.isolate(cut_off);
        world.lose_disk(emptied);
        // It may take three seconds until it is started again.
        world.pass(5 * SECOND_US)?;
        let old = leader(world)?;
        world.hand_over(old, Some(emptied));
        world.pass(SECOND_US)?;
        if world.leader() != Some(emptied) {
            return Err(Failure::Liveness("it does not lead".into()));
        }
        world.mend();
        world.pass(2 * SECOND_US)?;
        if world.applied(cut_off).is_none_or(|applied| applied + 100 < world.committed()) {
            return Err(Failure::Liveness("it is not followed".into()));
        }
        Ok(())
    }
    tells!((5, 0), story, StrangerStays);
}
