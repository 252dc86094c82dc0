//! A server of which only the load is there: clients that ask as soon as they are answered, threads that can
//! do so much and no more, and the real statistics.

use super::*;
use crate::load::{Load, Rates, SubtreeLoad};
use stoa_wire::{Opcode, Reader, put};

/// How long a move takes; meanwhile nobody is answered.
const MOVE_US: u64 = 20_000;
const STEP_US: u64 = 5_000;
/// What a partition can do in a second.
const CAPACITY: f64 = 150_000.0;

struct World {
    now_us: u64,
    placement: Placement,
    loads: Vec<Load>,
    reports: Vec<LoadReport>,
    balancer: Balancer,
    hints: Hints,
    /// What each client asks for, how often it would, and what is left of a request.
    clients: Vec<(String, f64, f64)>,
    under_way: Option<(Move, u64)>,
    moves: Vec<Move>,
    answered: f64,
    /// These cannot be moved.
    immovable: Vec<String>,
    /// What each thread can do of what it could with a core of its own.
    shares: Vec<f64>,
    occupied_us: Vec<f64>,
    /// What the shared log takes of the first one's thread, a part of its time.
    log_share: f64,
    body: Vec<u8>,
}

impl World {
    fn new(partitions: u8) -> Self {
        let all = 0..usize::from(partitions);
        Self {
            now_us: 1_000_000,
            placement: Placement::new(partitions),
            loads: all.clone().map(|seed| Load::new(seed as u64)).collect(),
            reports: all.map(|_| LoadReport::default()).collect(),
            balancer: Balancer::default(),
            hints: Hints::default(),
            clients: Vec::new(),
            under_way: None,
            moves: Vec::new(),
            answered: 0.0,
            immovable: Vec::new(),
            shares: vec![1.0; partitions.into()],
            occupied_us: vec![0.0; partitions.into()],
            log_share: 0.0,
            body: Vec::new(),
        }
    }

    /// As many clients for each of these, all together as many requests as the partitions can answer.
    fn ask(&mut self, paths: &[String]) {
        self.ask_weighted(&paths.iter().map(|path| (path.clone(), 1.0)).collect::<Vec<_>>());
    }

    fn ask_weighted(&mut self, paths: &[(String, f64)]) {
        let all: f64 = paths.iter().map(|(_, weight)| weight).sum();
        let rate = CAPACITY * self.loads.len() as f64 / all;
        self.clients = paths.iter().map(|(path, weight)| (path.clone(), rate * weight, 0.0)).collect();
    }

    fn step(&mut self) {
        self.now_us += STEP_US;
        let now_us = self.now_us;
        if self.under_way.is_none() {
            self.serve(now_us);
        }
        let took_ns = self.log_share * self.now_us as f64 * 1000.0;
        self.loads[0].batches((took_ns / 30_000.0) as u64, 0, now_us);
        for (partition, load) in self.loads.iter_mut().enumerate() {
            load.occupied(self.occupied_us[partition] as u64, now_us);
            let own = self.placement.exceptions().filter(|(_, to)| usize::from(*to) == partition);
            if load.tick(now_us, own.map(|(path, _)| path)) {
                self.reports[partition] = load.report().clone();
            }
        }
        if let Some((done, _)) = self.under_way.take_if(|(_, until_us)| *until_us <= now_us) {
            if self.immovable.contains(&done.path) {
                self.balancer.refused(&done.path, now_us);
            } else {
                self.placement.place(&done.path, done.to);
                self.balancer.moved(&done.path, now_us);
                self.moves.push(done);
            }
        }
        if self.under_way.is_none() {
            let next = self.balancer.tick(now_us, &self.reports, &self.placement, &self.hints);
            self.under_way = next.map(|next| (next, now_us + MOVE_US));
        }
    }

    fn serve(&mut self, now_us: u64) {
        let mut wanted = vec![0.0; self.loads.len()];
        for (path, rate, _) in &self.clients {
            wanted[usize::from(self.placement.of(path))] += rate;
        }
        let log_share = |place: usize| if place == 0 { self.log_share } else { 0.0 };
        let capacity = |place: usize| CAPACITY * (self.shares[place] - log_share(place));
        for (place, wanted) in wanted.iter().enumerate() {
            let rest = 1.0 - log_share(place);
            self.occupied_us[place] +=
                STEP_US as f64 * (1.0 - rest + rest * (wanted / capacity(place)).min(1.0));
        }
        for (path, rate, rest) in &mut self.clients {
            let place = usize::from(self.placement.of(path));
            let share = (capacity(place) / wanted[place]).min(1.0);
            *rest += *rate * share * STEP_US as f64 / 1e6;
            self.body.clear();
            put::str(&mut self.body, path);
            while *rest >= 1.0 {
                *rest -= 1.0;
                self.answered += 1.0;
                self.loads[place].request(Some(Opcode::SetData), Reader::new(&self.body), now_us);
            }
        }
    }

    /// Requests a second, over so long.
    fn run(&mut self, ms: u64) -> f64 {
        let before = self.answered;
        (0..ms * 1000 / STEP_US).for_each(|_| self.step());
        (self.answered - before) * 1e3 / ms as f64
    }

    /// So many tops, as many on each partition, or all on one.
    fn tops(&self, name: &str, count: usize, on: Option<u8>) -> Vec<String> {
        let partitions = self.loads.len();
        let place = |number: usize| on.unwrap_or((number % partitions) as u8);
        let mut names = (0..).map(|number| format!("/{name}-{number}"));
        let mut next = |to| names.find(|path| self.placement.of(path) == to).unwrap();
        (0..count).map(|number| next(place(number))).collect()
    }
}

fn below(top: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{top}/n-{number}/x/y")).collect()
}

#[test]
fn after_the_worst_shift_throughput_is_back_within_two_seconds() {
    for (partitions, count) in [(2, 8), (2, 64), (4, 16), (4, 64), (8, 64)] {
        let mut world = World::new(partitions);
        world.ask(&world.tops("even", count, None));
        world.run(3000);
        let before = world.run(1000);
        assert_eq!(world.moves, [], "all is equal");
        for round in 0..3 {
            // All load goes to what lives on one partition.
            let worst = world.tops(&format!("worst-{round}"), count, Some(1));
            world.ask(&worst);
            world.run(2000);
            let after = world.run(500);
            let moves = world.moves.len();
            assert!(after > 0.9 * before, "{partitions}, {count}: {after} of {before}, {moves} moves");
            world.run(10_000);
            assert!(world.moves.len() <= moves + 2, "{partitions}, {count}: {:?}", &world.moves[moves..]);
        }
    }
}

#[test]
fn nothing_is_moved_to_a_thread_that_has_no_time_nor_from_one_that_has_some() {
    let mut world = World::new(2);
    world.ask(&world.tops("even", 16, None));
    // The second one's core is shared with something else.
    world.shares[1] = 0.5;
    world.run(10_000);
    assert_eq!(world.moves, []);
    assert!(world.balancer.imbalance_percent() > BEGIN_PERCENT, "{}", world.balancer.imbalance_percent());
    // All that is asked, the first one does in half of its time.
    let mut world = World::new(2);
    world.ask(&world.tops("all", 16, Some(0)));
    world.clients.iter_mut().for_each(|(_, rate, _)| *rate /= 4.0);
    world.run(10_000);
    assert_eq!((world.moves.len(), world.balancer.imbalance_percent()), (0, 200));
    world.clients.iter_mut().for_each(|(_, rate, _)| *rate *= 2.0);
    world.run(10_000);
    assert!(!world.moves.is_empty());
}

/// The one that has least to do may have no time for more: that must not keep the others from helping each other.
#[test]
fn a_thread_that_has_no_time_does_not_stand_in_the_way() {
    let mut world = World::new(3);
    world.shares[0] = 0.4;
    let asked = [(0, 5, 0.5), (1, 16, 1.6), (2, 5, 0.45)];
    let tops =
        asked.map(|(on, count, rate)| (world.tops(&format!("p{on}"), count, Some(on)), rate / count as f64));
    for (tops, rate) in &tops {
        world.clients.extend(tops.iter().map(|top| (top.clone(), CAPACITY * rate, 0.0)));
    }
    let before = world.run(500);
    world.run(1500);
    let first = world.moves.first().map(|first| first.to);
    let after = world.run(500);
    assert_eq!(first, Some(2), "{:?}", world.moves);
    assert!(after > 1.2 * before, "{after} after {before}");
}

/// The log that all share is made on the first partition's thread, which can do so much less of anything else.
#[test]
fn the_thread_that_has_the_log_gets_less_of_the_rest() {
    let mut world = World::new(4);
    world.log_share = 0.5;
    world.ask(&world.tops("even", 64, None));
    world.clients.iter_mut().for_each(|(_, rate, _)| *rate *= 0.8);
    let before = world.run(1000);
    world.run(10_000);
    let after = world.run(1000);
    let all = 0.8 * 4.0 * CAPACITY;
    assert!(before < 0.92 * all && after > 0.98 * all, "{after} after {before}, {all} are asked");
    assert!(world.moves.len() < 20, "{:?}", world.moves);
    // Where there is only the log, nothing is left to be moved, and nothing is.
    world.log_share = 0.97;
    world.run(10_000);
    let moves = world.moves.len();
    world.run(10_000);
    assert!(world.moves.len() <= moves + 2, "{:?}", &world.moves[moves..]);
}

#[test]
fn what_was_moved_when_nobody_asked_for_it_does_not_rest_when_it_is_hot() {
    let mut world = World::new(4);
    world.ask(&world.tops("before", 16, None));
    world.run(3000);
    let hot = world.tops("hot", 8, Some(1));
    hot.iter().for_each(|path| world.balancer.moved(path, world.now_us));
    world.run(50);
    world.ask(&hot);
    world.run(1500);
    let rate = world.run(250);
    assert!(rate > 0.9 * 4.0 * CAPACITY, "{rate}");
}

#[test]
fn a_hot_directory_is_divided() {
    for (partitions, dirs) in [(2, 8), (4, 16), (4, 40)] {
        let mut world = World::new(partitions);
        world.ask(&world.tops("even", 16, None));
        let before = world.run(2000);
        world.ask(&below("/hot", dirs));
        world.run(2000);
        let after = world.run(500);
        assert!(after > 0.9 * before, "{partitions}, {dirs}: {after} of {before}, {:?}", world.moves);
        let hot = world.moves.iter().filter(|it| it.path.starts_with("/hot"));
        assert!(hot.clone().all(|it| depth(&it.path) == 2), "{:?}", world.moves);
    }
    // All of it is in one directory of the second level.
    let mut world = World::new(2);
    world.ask(&(0..8).map(|number| format!("/a/b/c-{number}/d")).collect::<Vec<_>>());
    world.run(3000);
    assert!(world.run(500) > 0.9 * 2.0 * CAPACITY, "{:?}", world.moves);
    assert!(world.moves.iter().all(|it| depth(&it.path) == 3), "{:?}", world.moves);
}

#[test]
fn what_is_not_too_big_is_not_divided() {
    // Each client works on all of its top, and its load comes in bursts, as those of pipelines do.
    for (partitions, tops) in [(2, 16), (4, 16), (8, 16), (8, 64)] {
        let mut world = World::new(partitions);
        let tops = world.tops("worst", tops, Some(0));
        let mut state = 7_u64;
        for _ in 0..200 {
            let weighted = tops.iter().flat_map(|top| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let burst = 0.5 + (state >> 40) as f64 / (1_u64 << 24) as f64;
                (0..20).map(move |leaf| (format!("{top}/d/n-{leaf}"), burst))
            });
            world.ask_weighted(&weighted.collect::<Vec<_>>());
            world.run(100);
        }
        let divided: Vec<_> = world.moves.iter().filter(|it| depth(&it.path) > 1).collect();
        assert!(
            divided.is_empty(),
            "{partitions}, {}: {} cuts of {}",
            tops.len(),
            divided.len(),
            world.moves.len()
        );
    }
}

#[test]
fn what_cannot_be_divided_stays_where_it_is() {
    let mut world = World::new(4);
    world.ask(&["/hot".into()]);
    world.run(20_000);
    assert_eq!(world.moves, []);
    // Two of them on one partition: one goes, once.
    world.clients.clear();
    world.run(2000);
    let two = world.tops("hot", 2, Some(2));
    world.ask(&two);
    world.run(20_000);
    assert_eq!(world.moves.len(), 1, "{:?}", world.moves);
    // Beside others: these go.
    let mut world = World::new(2);
    let all = world.tops("some", 5, Some(1));
    let weighted: Vec<_> = all.iter().zip([8.0, 1.0, 1.0, 1.0, 1.0]).collect();
    world.ask_weighted(&weighted.iter().map(|(path, weight)| ((*path).clone(), *weight)).collect::<Vec<_>>());
    world.run(5000);
    let place = |world: &World, path: &String| world.placement.of(path);
    assert!(all[1..].iter().all(|path| place(&world, path) != place(&world, &all[0])), "{:?}", world.moves);
    let moves = world.moves.len();
    world.run(20_000);
    assert_eq!(world.moves.len(), moves, "{:?}", world.moves);
}

#[test]
fn a_load_that_stays_as_it_is_comes_to_rest() {
    let mut state = 1_u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for case in 0..16 {
        let mut world = World::new([2, 3, 4, 8][case % 4]);
        let weighted: Vec<_> = (0..4 + draw(60))
            .map(|number| {
                let path = match draw(3) {
                    0 => format!("/t-{case}-{number}"),
                    1 => format!("/t-{}/d-{number}", draw(5)),
                    _ => format!("/t-{}/d-{}/e-{number}/f", draw(5), draw(3)),
                };
                (path, 1.0 / (1 + draw(40)) as f64)
            })
            .collect();
        world.ask_weighted(&weighted);
        world.run(20_000);
        let (moves, answered) = (world.moves.len(), world.run(500));
        world.run(20_000);
        let later = &world.moves[moves..];
        assert!(later.len() <= 3, "case {case}: {moves} moves, then {later:?}");
        assert!(world.run(500) > 0.98 * answered, "case {case}");
    }
}

#[test]
fn a_load_that_swings_is_followed_more_and_more_seldom() {
    let mut world = World::new(2);
    let (left, right) = (world.tops("left", 4, Some(0)), world.tops("right", 4, Some(0)));
    let mut moves = Vec::new();
    for round in 0..40 {
        world.ask(if round % 2 == 0 { &left } else { &right });
        world.run(3000);
        moves.push(world.moves.len());
    }
    assert!(moves[39] < 40, "{moves:?}");
    assert!(moves[39] - moves[19] <= moves[19], "{moves:?}");
}

#[test]
fn little_load_moves_nothing() {
    let mut world = World::new(4);
    let tops = world.tops("some", 8, Some(1));
    world.ask(&tops);
    for client in &mut world.clients {
        client.1 /= 100.0;
    }
    world.run(5000);
    assert_eq!(world.moves, []);
}

#[test]
fn cold_cuts_are_merged_again() {
    let mut world = World::new(2);
    world.ask(&below("/hot", 8));
    world.run(3000);
    let cut = world.placement.exceptions().count();
    assert!(cut >= 3, "{:?}", world.moves);
    world.clients.clear();
    world.run(50_000);
    assert_eq!(world.placement.exceptions().count(), cut);
    // Somebody has to be woken for it.
    let next_merge_us = world.balancer.next_merge_us(&world.placement, &world.hints);
    assert!(next_merge_us.is_some_and(|at_us| (1..15_000_000).contains(&(at_us - world.now_us))));
    world.run(20_000);
    assert_eq!(world.placement.exceptions().count(), 0, "{:?}", world.moves);
    assert_eq!(world.balancer.next_merge_us(&world.placement, &world.hints), None);
}

#[test]
fn hints_are_followed() {
    let mut world = World::new(4);
    let text = "pin /p 3\npin /p/q 1\ntogether /x /y /z/deep\nstay /s";
    world.hints = Hints::parse(text.as_bytes(), 4).0;
    world.run(500);
    let of = |world: &World, path: &str| world.placement.of(path);
    assert_eq!((of(&world, "/p"), of(&world, "/p/q"), of(&world, "/p/x")), (3, 1, 3));
    let together = |world: &World| ["/x", "/y", "/z/deep"].map(|path| of(world, path));
    assert!(together(&world).iter().all(|place| *place == of(&world, "/x")));
    // They are moved as one.
    let here = of(&world, "/x");
    let mut asked: Vec<_> = ["/x", "/y", "/z/deep", "/p/a", "/s/a"].map(String::from).into();
    asked.extend(world.tops("big", 2, Some(here)));
    let stays = [of(&world, "/p"), of(&world, "/s")];
    world.ask(&asked);
    let moves = world.moves.len();
    world.run(5000);
    assert!(together(&world).iter().all(|place| *place == of(&world, "/x")), "{:?}", world.moves);
    assert_eq!([of(&world, "/p"), of(&world, "/s")], stays);
    let later = &world.moves[moves..];
    assert!(!later.is_empty() && later.iter().all(|it| !it.path.starts_with("/s")), "{later:?}");
    // Switched off, only what was said is done.
    world.hints = Hints::parse(b"balance off\npin /s 1", 4).0;
    let moves = world.moves.len();
    let worst = world.tops("worst", 8, Some(2));
    world.ask(&worst);
    world.run(70_000);
    assert_eq!(of(&world, "/s"), 1);
    assert!(world.moves.len() <= moves + 1, "{:?}", &world.moves[moves..]);
}

#[test]
fn what_was_refused_is_not_asked_again_for_a_minute() {
    let mut world = World::new(2);
    let tops = world.tops("some", 4, Some(0));
    world.immovable = tops.clone();
    world.ask(&tops);
    world.run(55_000);
    assert_eq!(world.moves, []);
    world.immovable.clear();
    world.run(3000);
    assert_eq!(world.moves, []);
    world.run(7000);
    assert_eq!(world.moves.len(), 2, "{:?}", world.moves);
}

#[test]
fn some_things_never_move() {
    let mut world = World::new(2);
    let asked = ["/", "/zookeeper/config", "/zookeeper/quota/a", "/lock-0000000001", "/lock-0000000012"];
    world.ask(&asked.map(String::from));
    world.run(5000);
    assert_eq!(world.moves, []);
}

#[test]
fn what_was_just_moved_counts_where_it_is() {
    let load = |path: &str, reads: u64| {
        let rates = Rates { reads, ..Rates::default() };
        SubtreeLoad { path: path.into(), rates }
    };
    let report = |total: u64, subtrees: Vec<SubtreeLoad>| LoadReport {
        total: Rates { reads: total, ..Rates::default() },
        log_ns: 0,
        occupied_percent: None,
        subtrees,
    };
    let mut placement = Placement::new(2);
    for (path, to) in [("/a", 0), ("/b", 0), ("/a/c", 0)] {
        placement.place(path, to);
    }
    let first =
        report(1000, vec![load("/a", 600), load("/a/c", 400), load("/b", 100), load("/zookeeper", 50)]);
    let reports = [first, report(40, vec![load("/a", 40), load("/a/c", 40)])];
    let busy = |placement: &Placement| Picture::new(&reports, placement).busy.clone();
    assert_eq!(busy(&placement), [1040 * 250, 0]);
    placement.place("/a/c", 1);
    assert_eq!(busy(&placement), [600 * 250, 440 * 250]);
    let picture = Picture::new(&reports, &placement);
    assert_eq!((picture.of_subtree("/a"), picture.of_subtree("/a/c")), (200 * 250, 440 * 250));
    placement.place("/a", 1);
    assert_eq!(busy(&placement), [400 * 250, 640 * 250]);
}
