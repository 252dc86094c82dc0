//! Sites of different releases: one that can read what is of the next feature level, and one that cannot.

use super::random::{Run, seeds};
use super::*;
use std::panic::catch_unwind;
use stoa_core::{HeldBack, LevelRefusal, Levels, ReignRefusal};

/// Those of the next release.
pub(crate) const NEXT: Levels = Levels { oldest: 1, newest: 2 };

impl World {
    pub(crate) fn options(&self, id: SiteId) -> Options {
        Options { levels: self.levels.get(&id).copied().unwrap_or(Levels::OWN), ..options() }
    }

    /// What leaders do when they meet. Returns whether they stay connected.
    pub(crate) fn compare_levels(&mut self, leaf: SiteId) -> bool {
        let hub = self.hub;
        let (ours, theirs) = (self.site_at(hub).own_levels(), self.site_at(leaf).own_levels());
        let fit = ours.check(&hub.to_string(), theirs, &leaf.to_string());
        self.site(hub).server.site_levels(leaf, theirs);
        self.site(leaf).server.site_levels(hub, ours);
        fit.is_ok()
    }

    /// The server of a site gets another release.
    pub(crate) fn upgrade(&mut self, id: SiteId) {
        self.levels.insert(id, NEXT);
        self.restart(id);
    }

    pub(crate) fn raise(&mut self) -> Result<u8, LevelRefusal> {
        let (now, hub) = (self.now, self.hub);
        let raised = self.site(hub).server.raise_level(now);
        self.poll(hub);
        raised
    }

    fn levels_in_use(&self) -> Vec<u8> {
        self.sites.iter().map(|site| site.server.tree().level()).collect()
    }

    /// Why a site is not connected with the hub.
    fn why_not(&self, leaf: SiteId) -> Option<String> {
        let (ours, theirs) = (self.site_at(self.hub).own_levels(), self.site_at(leaf).own_levels());
        ours.check("the hub", theirs, "the leaf").err()
    }

    /// Why the server of a site does not start with the release from before.
    fn start_with_old(&self, id: SiteId) -> Result<(), String> {
        let mut restore = Restore::new(options(), &[id * 10], self.partitions(id));
        let site = &self.sites[usize::from(id) - 1];
        site.disk.iter().try_for_each(|(position, record)| restore.record(*position, record))?;
        restore.finish(id * 10).map(drop)
    }
}

fn sites_hold_back(sites: &[(SiteId, Option<u8>)]) -> LevelRefusal {
    LevelRefusal::HeldBack(HeldBack { sites: sites.to_vec(), servers: Vec::new() })
}

#[test]
fn the_level_is_raised_when_all_sites_can_read_it() {
    let mut world = World::new(3);
    assert_eq!(world.raise(), Err(LevelRefusal::Highest(1)));
    let one = world.open(HUB);
    world.ask(one, &create(1, "/a", CreateMode::Persistent));
    for site in [HUB, 2] {
        world.upgrade(site);
    }
    world.settle();
    let held_back = sites_hold_back(&[(3, Some(1))]);
    assert_eq!((world.raise(), world.levels_in_use()), (Err(held_back.clone()), vec![1, 1, 1]));
    assert_eq!(held_back.to_string(), "the feature level stays as it is: site 3 reads up to level 1");
    let status = world.site_at(HUB).site_status().unwrap();
    let levels = world.site_at(HUB).level_status();
    assert_eq!((levels.in_use, levels.own.can), (1, NEXT));
    assert_eq!(levels.held_back.map(LevelRefusal::HeldBack), Some(held_back));
    assert_eq!(status.others.iter().map(|other| other.all_read).collect::<Vec<_>>(), [Some(2), Some(1)]);
    // As long as it is not raised any of them can have the old release back.
    assert_eq!(world.start_with_old(HUB), Ok(()));
    world.upgrade(3);
    world.settle();
    assert_eq!(world.raise(), Ok(2));
    assert_eq!(world.raise(), Err(LevelRefusal::Highest(2)));
    world.settle();
    assert_eq!(world.levels_in_use(), [2, 2, 2]);
    world.check_equal();
    let refused = world.start_with_old(3).unwrap_err();
    assert!(
        refused.contains("the sites use feature level 2, and this release reads up to level 1"),
        "{refused}"
    );
    // Whoever starts again knows it.
    for site in 1..=3 {
        world.restart(site);
    }
    assert_eq!(world.levels_in_use(), [2, 2, 2]);
}

#[test]
fn whoever_is_away_holds_the_level_back_and_who_was_given_up_does_not() {
    let mut world = World::new(3);
    (1..=3).for_each(|site| world.upgrade(site));
    world.settle();
    world.site(HUB).server.site_lost(3);
    assert_eq!(world.raise(), Err(sites_hold_back(&[(3, None)])));
    world.lose(3);
    world.settle();
    assert_eq!(world.raise(), Ok(2));
    world.settle();
    assert_eq!(world.levels_in_use(), [2, 2, 1]);
}

/// It was let in, and is to have the state next: that has to be one that it can read.
#[test]
fn whoever_comes_back_holds_the_level_back() {
    let mut world = World::new(3);
    (1..=2).for_each(|site| world.upgrade(site));
    world.settle();
    world.lose(3);
    world.settle();
    world.come_back(3, false);
    assert!(world.tree(HUB).is_lost(3));
    assert_eq!(world.raise(), Err(sites_hold_back(&[(3, Some(1))])));
    world.settle();
    assert!(world.site_at(3).has_joined());
    assert_eq!(world.raise(), Err(sites_hold_back(&[(3, Some(1))])));
    world.check_equal();
}

#[test]
fn a_site_that_is_too_old_is_refused_from_when_the_level_is_about_to_be_raised() {
    let mut world = World::new(2);
    (1..=2).for_each(|site| world.upgrade(site));
    world.settle();
    world.found(3);
    assert_eq!(world.why_not(3), None);
    assert_eq!(world.raise(), Ok(2));
    // It is not applied yet.
    assert_eq!(world.levels_in_use(), [1, 1, 1]);
    let refused = world.why_not(3).unwrap();
    assert!(
        refused.starts_with(
            "the leaf reads up to feature level 1, and the sites use level 2: give all servers of the leaf"
        ),
        "{refused}"
    );
    world.settle();
    world.connect_sites(3);
    world.settle();
    assert!(!world.site_at(3).has_joined() && world.levels_in_use() == [2, 2, 1]);
    // With the release of the others it joins, and has the level with the state.
    world.upgrade(3);
    world.settle();
    assert!(world.site_at(3).has_joined());
    assert_eq!(world.levels_in_use(), [2, 2, 2]);
    world.check_equal();
}

#[test]
fn only_the_hub_raises_the_level_and_nobody_between_two_hubs() {
    let mut world = World::new(3);
    (1..=3).for_each(|site| world.upgrade(site));
    world.settle();
    let now = world.now;
    let refused = LevelRefusal::Reign(ReignRefusal::NotTheHub(HUB));
    assert_eq!(world.site(2).server.raise_level(now), Err(refused));
    assert_eq!(world.site_at(2).level_status().held_back, Some(HeldBack::default()));
    world.claim(2, &[]);
    world.hub = HUB;
    world.connect_sites(2);
    let raised = world.raise();
    assert!(matches!(raised, Err(LevelRefusal::Reign(_))), "{raised:?}");
}

/// Sites get the next release one after the other, while they fail, are lost, come back and become the hub; somebody
/// tries to raise the level all the time. Whoever applies a level that it cannot read panics.
#[test]
fn releases_change_at_any_time() {
    let mut raised = 0;
    let seeds = seeds("0,60");
    for seed in seeds.clone() {
        let ran = catch_unwind(|| {
            let mut run = Run::with_releases(seed);
            (0..1500).for_each(|_| run.step());
            let is_raised = run.world.tree(run.world.hub).level() == 2;
            // Whoever is too old by now is let in with this.
            (1..=run.world.sites.len() as u8).for_each(|site| run.change_release(site));
            run.end();
            let level = run.world.raise();
            assert_eq!(level.is_err(), run.world.tree(run.world.hub).level() == 2, "{level:?}");
            run.world.settle();
            assert!(
                run.world.levels_in_use().iter().all(|level| *level == 2),
                "{:?}",
                run.world.levels_in_use()
            );
            run.world.check_equal();
            is_raised
        });
        raised += usize::from(ran.unwrap_or_else(|_| panic!("seed {seed}")));
    }
    let count = seeds.count();
    assert!(count < 60 || (count / 2..count).contains(&raised), "{raised} have raised it before the end");
}
