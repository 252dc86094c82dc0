//! One thing fails under load.

use crate::rng::Rng;
use crate::world::World;
use std::collections::BTreeMap;
use stoa_forest::Ids;

fn ids(n: u8) -> Vec<u8> {
    (1..=n).collect()
}

/// What is spread, and when everybody that is well has it.
#[derive(Default)]
struct Watch {
    spread: BTreeMap<u64, u64>,
    late_us: u64,
}

impl Watch {
    /// A batch each 500 us for so long.
    fn load(&mut self, world: &mut World, us: u64) {
        let until = world.now_us + us;
        while world.now_us < until {
            if world.propose(4) {
                self.spread.insert(world.end(), world.now_us);
            }
            world.run(500);
            self.look(world);
        }
    }

    fn look(&mut self, world: &World) {
        let least = world.well().iter().map(|id| world.servers[id].end).min().unwrap();
        while let Some(first) = self.spread.first_entry().filter(|first| *first.key() <= least) {
            self.late_us = self.late_us.max(world.now_us - first.remove());
        }
    }
}

/// Interiors of a tree: its root, one in the middle, and one that has only leaves below it.
fn interiors(world: &World, tree: u8) -> [u8; 3] {
    let shape = world.spreader().shape();
    let root = shape.root(tree).unwrap();
    let mut path = vec![root];
    while let Some(next) =
        shape.children(tree, *path.last().unwrap()).iter().find(|id| !shape.children(tree, **id).is_empty())
    {
        path.push(*next);
    }
    [root, path[path.len() / 2], *path.last().unwrap()]
}

fn is_aside(world: &World, id: u8) -> bool {
    world.spreader().aside().contains(id)
}

#[test]
fn a_frozen_interior_is_aside_soon_and_nobody_waits_for_it() {
    for n in [15, 50, 100, 200] {
        for which in 0..3 {
            let mut world = World::new(u64::from(n) + which, &ids(n), 1100);
            let mut watch = Watch::default();
            watch.load(&mut world, 100_000);
            assert!(watch.late_us < 2_000, "{n}: {} us late without a failure", watch.late_us);
            let frozen = interiors(&world, 2)[which as usize];
            world.freeze(frozen);
            watch.load(&mut world, 170_000);
            println!(
                "{n}: {frozen} frozen: at worst {} us late, {:?}",
                watch.late_us,
                world.spreader().aside()
            );
            assert_eq!(world.spreader().aside().iter().collect::<Vec<_>>(), [frozen]);
            // Until then what it should have passed on is pulled.
            assert!(watch.late_us < 8_000, "{n}: {} us late", watch.late_us);
            assert!(
                watch.spread.values().all(|at_us| world.now_us - at_us < 12_000),
                "all has come but the last"
            );
            watch.late_us = 0;
            watch.load(&mut world, 50_000);
            watch.late_us = 0;
            watch.load(&mut world, 50_000);
            assert!(watch.late_us < 2_000, "{n}: {} us late with another shape", watch.late_us);
            world.thaw(frozen);
            world.run(300_000);
            world.assert_whole();
            if n == 15 {
                world.run(5_000_000);
                assert!(!is_aside(&world, frozen));
                world.assert_whole();
            }
        }
    }
}

#[test]
fn an_interior_that_ends_costs_a_few_milliseconds() {
    for n in [15, 50, 200] {
        for which in 0..3 {
            let mut world = World::new(u64::from(n) + which, &ids(n), 1100);
            let mut watch = Watch::default();
            watch.load(&mut world, 50_000);
            let ended = interiors(&world, 1)[which as usize];
            world.end_process(ended);
            watch.load(&mut world, 50_000);
            println!("{n}: {ended} ended: at worst {} us late", watch.late_us);
            assert!(watch.late_us <= 8_000, "{n}: {} us late", watch.late_us);
            assert!(is_aside(&world, ended));
            world.restart(ended, false);
            world.run(200_000);
            world.assert_whole();
            assert!(is_aside(&world, ended), "for five seconds");
            if n == 15 {
                world.run(5_000_000);
                assert!(!is_aside(&world, ended));
                world.assert_whole();
            }
        }
    }
}

#[test]
fn who_is_bad_again_is_aside_for_longer() {
    let mut world = World::new(3, &ids(12), 64);
    world.run(100_000);
    let bad = interiors(&world, 0)[0];
    for seconds in [5, 10, 20, 40, 80, 160, 300] {
        world.end_process(bad);
        world.run(10_000);
        world.restart(bad, false);
        world.run(seconds * 1_000_000 - 100_000);
        assert!(is_aside(&world, bad), "{seconds} s");
        world.run(200_000);
        assert!(!is_aside(&world, bad), "{seconds} s");
    }
    world.run(301_000_000);
    world.end_process(bad);
    world.run(10_000);
    world.restart(bad, false);
    world.run(5_000_000);
    assert!(!is_aside(&world, bad), "it was well for long");
}

#[test]
fn two_that_freeze_one_below_the_other_are_both_found() {
    for n in [50, 200] {
        let mut world = World::new(u64::from(n), &ids(n), 1100);
        let mut watch = Watch::default();
        watch.load(&mut world, 50_000);
        let [root, middle, _] = interiors(&world, 3);
        world.freeze(root);
        world.freeze(middle);
        watch.load(&mut world, 400_000);
        let aside: Vec<u8> = world.spreader().aside().iter().collect();
        println!("{n}: {root} and {middle} frozen: {aside:?}, at worst {} us late", watch.late_us);
        assert!(aside.contains(&root) && aside.contains(&middle) && aside.len() == 2, "{aside:?}");
        assert!(watch.late_us < 8_000);
    }
}

#[test]
fn only_who_is_bad_is_put_aside() {
    for seed in 0..15 {
        let mut rng = Rng(seed);
        let n = rng.between(20, 200) as u8;
        let mut world = World::new(seed, &ids(n), 64);
        world.faults.delay_us = (80, 1500);
        let mut watch = Watch::default();
        watch.load(&mut world, 50_000);
        let frozen: Ids = (0..rng.between(1, 6)).map(|_| rng.between(2, n.into()) as u8).collect();
        frozen.iter().for_each(|id| world.freeze(id));
        watch.load(&mut world, 800_000);
        let aside = *world.spreader().aside();
        println!("seed {seed}: of {n}, {frozen:?} frozen, {aside:?} aside");
        assert!(aside.iter().all(|id| frozen.contains(id)), "seed {seed}");
        let shape = world.spreader().shape();
        for id in frozen.iter().filter(|id| !aside.contains(*id)) {
            let children = (0..shape.trees()).flat_map(|tree| shape.children(tree, id));
            let well = children.filter(|child| !frozen.contains(**child)).count();
            assert_eq!(well, 0, "seed {seed}: {id} is frozen and has children");
        }
    }
}

#[test]
fn what_is_lost_at_the_end_comes_all_the_same() {
    for n in [5, 30, 120] {
        let mut world = World::new(u64::from(n), &ids(n), 300);
        world.run(50_000);
        // Half of all frames are lost: appends, what is committed, acknowledgements.
        world.faults.loss = 2;
        world.propose(3);
        world.run(5_000);
        world.faults.loss = 0;
        world.run(300_000);
        world.assert_whole();
    }
}

#[test]
fn when_most_have_been_away_they_are_interiors_all_the_same() {
    let mut world = World::new(5, &ids(5), 64);
    world.run(50_000);
    for id in 2..=5 {
        world.end_process(id);
        world.run(5_000);
        world.restart(id, false);
        world.run(5_000);
    }
    assert!(world.spreader().aside().is_empty());
    world.propose(1);
    world.run(300_000);
    world.assert_whole();
}

/// What goes down two trees is missed below both.
#[test]
fn two_that_freeze_in_two_trees_are_both_found() {
    for n in [50, 200] {
        let mut world = World::new(u64::from(n), &ids(n), 300);
        let mut watch = Watch::default();
        watch.load(&mut world, 50_000);
        let frozen = [interiors(&world, 1)[0], interiors(&world, 2)[0]];
        frozen.iter().for_each(|id| world.freeze(*id));
        watch.load(&mut world, 150_000);
        println!("{n}: {frozen:?} frozen, at worst {} us late", watch.late_us);
        assert_eq!(*world.spreader().aside(), frozen.into_iter().collect());
        assert!(watch.late_us < 8_000);
    }
}

#[test]
fn a_child_that_reads_too_slowly_pulls() {
    let mut world = World::new(9, &ids(50), 1100);
    world.run(50_000);
    let shape = world.spreader().shape();
    let slow = interiors(&world, 0)[2];
    // All its parents have too much for it.
    let parents: Vec<u8> = (0..5).filter_map(|tree| shape.parent(tree, slow)).collect();
    world.full = parents.into_iter().map(|parent| (parent, slow)).collect();
    for _ in 0..10 {
        world.propose(4);
        world.run(1000);
    }
    assert_eq!(world.servers[&slow].end, 0);
    assert!(world.servers[&if slow == 2 { 3 } else { 2 }].end > 0);
    // As soon as it hears of anything it asks for all it has missed.
    world.full.clear();
    world.run(60_000);
    assert!(world.counts.pulls > 0);
    world.assert_whole();
}

#[test]
fn who_comes_with_nothing_is_given_all_by_neighbours() {
    let mut world = World::new(4, &ids(50), 1100);
    for _ in 0..500 {
        world.propose(4);
        world.run(500);
    }
    world.counts = Default::default();
    for id in 51..=60 {
        world.begin(id);
        let mut members = world.members;
        members.insert(id);
        world.set_members(members);
    }
    world.run(1_000_000);
    world.assert_whole();
    let sent = world.counts.leader_bytes;
    println!("ten joined with {} bytes each, of which the leader sent {sent}", world.end() * 1100);
    assert!(sent < world.end() * 110, "neighbours gave it");
}
