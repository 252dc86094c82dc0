//! The hub's lease, and sites that take the hub's place without an operator.

use super::random::Random;
use super::*;
use std::panic::catch_unwind;
use stoa_core::{Greeting, ReignRefusal, SiteSet, Succession, SuccessionStep, has_nothing_to_tell};

fn set_of(sites: &[SiteId]) -> SiteSet {
    sites.iter().copied().fold(SiteSet::default(), SiteSet::with)
}

impl World {
    fn automatic(count: u8) -> Self {
        let mut world = Self::made(count, 64 << 20, of_kind(PAPER), true);
        world.pass(100);
        world
    }

    pub(super) fn pass_in_turns(&mut self, ms: u64) {
        (0..ms / 100).for_each(|_| self.pass(100));
    }

    /// What a site is to do that has asked each other one that it reaches.
    fn succession(&self, site: SiteId) -> SuccessionStep {
        let mut succession = Succession::default();
        let others = (1..=self.sites.len() as u8).filter(|other| *other != site);
        for other in others.filter(|other| !self.cut.contains(&(site, *other))) {
            let it = self.site_at(other);
            let reach = it.misses_hub(self.now).then(|| it.reach());
            succession.heard(other, reach, self.now);
        }
        succession.step(self.site_at(site), self.now)
    }

    fn take_place(&mut self, site: SiteId) {
        let (step, now) = (self.succession(site), self.now);
        let SuccessionStep::TakePlace(others) = step else { panic!("site {site}: {step:?}") };
        self.site(site).server.take_place(others, now).unwrap();
        self.poll(site);
        while self.store(site) {}
        self.dead.insert(self.hub);
        self.hub = site;
        for other in self.alive().into_iter().filter(|other| *other != site) {
            self.connect_sites(other);
        }
        self.settle();
        self.pass_in_turns(200);
    }

    fn cut_off(&mut self, site: SiteId) {
        for other in (1..=self.sites.len() as u8).filter(|other| *other != site) {
            self.cut.extend([(site, other), (other, site)]);
        }
    }
}

#[test]
fn a_hub_that_nobody_hears_stops_before_another_one_is_it() {
    let mut world = World::automatic(3);
    let one = world.open(HUB);
    world.ask(one, &create(1, "/a", CreateMode::Persistent));
    world.cut_off(HUB);
    let left = |world: &World, site| {
        let status = world.site_at(site).site_status().unwrap();
        let from_now = |until_us: u64| until_us.saturating_sub(world.now.mono_us);
        (status.lease_until_us.map(from_now), status.bound_until_us.map(from_now))
    };
    let (lease_us, bound_us) = (left(&world, HUB).0.unwrap(), left(&world, 2).1.unwrap());
    assert!((7_000_000..=9_000_000).contains(&lease_us) && lease_us < bound_us, "{lease_us}, {bound_us}");
    assert_eq!((left(&world, HUB).1, left(&world, 2).0), (None, None));
    world.pass_in_turns(4_000);
    // It has the promise of nine seconds, and nobody else may do anything.
    assert_eq!(world.ask_here(one, &set(2, "/a", b"2")).unwrap().stat().version, 1);
    assert_eq!(world.site_at(2).may_take_place(world.now), None);
    let later = world.open(HUB);
    world.pass_in_turns(5_100);
    world.send(later, &set(1, "/a", b"3"));
    world.settle();
    assert_eq!(world.take(later), [], "it waits for the others");
    assert_eq!(world.site_at(2).may_take_place(world.now), None);
    world.pass_in_turns(1_000);
    assert_eq!(world.succession(2), SuccessionStep::TakePlace(set_of(&[3])));
    assert_eq!(world.succession(3), SuccessionStep::Ask(set_of(&[2])), "the first one does");
    assert!(world.site_at(3).misses_hub(world.now));
    assert_eq!((left(&world, HUB), left(&world, 3)), ((Some(0), None), (None, Some(0))));
    world.pass_in_turns(4_200);
    assert_eq!(world.take(later)[0].err, ErrorCode::OperationTimeout as i32);
    let again = world.open(HUB);
    assert_eq!(world.ask_here(again, &set(1, "/a", b"3")).unwrap().err, ErrorCode::OperationTimeout as i32);
    assert_eq!(data(&world.ask_here(again, &get(2, "/a")).unwrap()), b"2", "it reads");
    // The second site is it.
    world.take_place(2);
    assert_eq!((world.tree(3).hub(), world.tree(3).is_lost(HUB)), (Some(2), true));
    let three = world.open(3);
    assert_eq!(world.ask(three, &set(1, "/a", b"new")).stat().version, 1, "what was not shipped is lost");
    // It finds that out, and joins anew.
    world.cut.clear();
    world.come_back(HUB, false);
    world.settle();
    assert!(world.site_at(HUB).has_joined());
    world.check_equal();
}

#[test]
fn whom_one_of_the_others_hears_is_not_replaced() {
    let mut world = World::automatic(3);
    world.cut.extend([(HUB, 2), (2, HUB)]);
    world.pass_in_turns(11_000);
    let one = world.open(HUB);
    // The second site is cut off and misses it; the third does not.
    assert_eq!(world.site_at(2).may_take_place(world.now), Some(set_of(&[3])));
    assert!(!world.site_at(3).misses_hub(world.now));
    world.ask_here(one, &create(1, "/a", CreateMode::Persistent)).unwrap().stat();
    let now = world.now;
    let claim = world.site(2).server.take_place(SiteSet::default(), now).unwrap();
    world.poll(2);
    while world.store(2) {}
    world.site(3).server.follow_site(claim, now);
    world.site(HUB).server.follow_site(claim, now);
    world.settle();
    let follows = |world: &World, site| world.tree(site).streams().claim().is_some();
    assert!(!follows(&world, 3) && !follows(&world, HUB));
    // The line is mended: the hub follows, and nothing is lost.
    world.cut.clear();
    world.claim(2, &[]);
    world.settle();
    assert_eq!((world.tree(3).hub(), world.tree(HUB).hub()), (Some(2), Some(2)));
    assert!(!world.tree(2).is_lost(HUB));
    world.check_equal();
    assert!(world.tree(3).get("/a").is_some());
}

/// Half of the sites hear it. What they promise gives it no lease, so it asks them for nothing, and the others have another
/// hub.
#[test]
fn a_hub_that_too_few_sites_hear_keeps_nobody_from_taking_its_place() {
    let mut world = World::automatic(4);
    for other in [3, 4] {
        world.cut.extend([(HUB, other), (other, HUB)]);
        world.site(HUB).server.site_lost(other);
    }
    world.pass_in_turns(12_000);
    assert!(!world.site_at(HUB).acts_as_hub());
    let are_free = [2, 3, 4].map(|site| world.site_at(site).misses_hub(world.now));
    assert_eq!(are_free, [true; 3]);
    assert_eq!(world.succession(2), SuccessionStep::TakePlace(set_of(&[3, 4])));
    // One more of them is enough.
    world.cut.retain(|(from, to)| ![*from, *to].contains(&3));
    world.connect_sites(3);
    world.settle();
    world.pass_in_turns(200);
    assert!(world.site_at(HUB).acts_as_hub());
    let are_free = [2, 3, 4].map(|site| world.site_at(site).misses_hub(world.now));
    assert_eq!(are_free, [false, false, true]);
}

#[test]
fn who_starts_again_may_have_promised() {
    let mut world = World::automatic(3);
    world.pass_in_turns(8_000);
    world.cut_off(HUB);
    world.restart(3);
    let began = world.now;
    world.pass_in_turns(9_900);
    assert!(!world.site_at(3).misses_hub(world.now));
    world.pass_in_turns(200);
    assert!(world.site_at(3).misses_hub(world.now), "it began at {began:?}");
}

/// A hub that has never asked for promises needs none, so they have to know that this one has.
#[test]
fn sites_that_have_all_started_again_know_that_the_hub_asks_for_promises() {
    let mut world = World::automatic(3);
    world.pass_in_turns(8_000);
    world.cut_off(HUB);
    for site in [2, 3] {
        world.restart(site);
    }
    world.pass_in_turns(9_900);
    assert_eq!(world.site_at(2).may_take_place(world.now), None);
    world.pass_in_turns(200);
    assert_eq!(world.succession(2), SuccessionStep::TakePlace(set_of(&[3])));
    world.take_place(2);
    assert_eq!((world.tree(3).hub(), world.tree(3).is_lost(HUB)), (Some(2), true));
    // The next one counts on no promise yet that was given to the one before.
    assert!(!world.site_at(3).reach().has_promised || world.tree(3).streams().promised_in() == 2);
}

#[test]
fn a_claim_that_leaves_out_a_site_is_not_followed() {
    let mut world = World::automatic(4);
    world.cut_off(HUB);
    world.pass_in_turns(12_000);
    let now = world.now;
    let mut claim = world.site(2).server.take_place(SiteSet::default(), now).unwrap();
    assert_eq!(claim.needed, set_of(&[3, 4]));
    claim.needed = set_of(&[3]);
    world.site(3).server.follow_site(claim, now);
    world.poll(3);
    while world.store(3) {}
    assert_eq!(world.tree(3).streams().claim(), None);
    claim.needed = set_of(&[3, 4]);
    world.site(3).server.follow_site(claim, now);
    world.poll(3);
    while world.store(3) {}
    assert_eq!(world.tree(3).streams().claim(), Some(claim));
}

#[test]
fn two_sites_leave_it_to_an_operator() {
    let mut world = World::automatic(2);
    world.cut_off(HUB);
    world.pass_in_turns(12_000);
    assert_eq!(world.site_at(2).may_take_place(world.now), None);
    let again = world.open(HUB);
    world.ask_here(again, &create(1, "/a", CreateMode::Persistent)).unwrap().stat();
}

#[test]
fn what_is_refused_for_want_of_a_lease_comes_behind_what_waits() {
    let mut world = World::automatic(3);
    let (client, other) = (world.open(HUB), world.open(2));
    for (xid, path) in [(1, "/a"), (2, "/b")] {
        world.ask(client, &create(xid, path, CreateMode::Persistent));
    }
    world.ask(other, &set(1, "/a", b"x"));
    world.ask(other, &set(2, "/a", b"x"));
    assert_eq!(world.tree(HUB).holder("/a"), Some(2));
    // Nobody is told that nothing arrives any more.
    for other in [2, 3] {
        world.cut.extend([(HUB, other), (other, HUB)]);
    }
    let ping = |world: &mut World| {
        world.send(client, &request(xid::PING, Opcode::Ping, |_| ()));
        world.pass_in_turns(1_000);
    };
    (0..7).for_each(|_| ping(&mut world));
    // It needs a token that is elsewhere, and the lease is there still.
    world.send(client, &set(3, "/a", b"y"));
    (0..8).for_each(|_| ping(&mut world));
    assert!(!world.site_at(HUB).acts_as_hub());
    world.send(client, &set(4, "/b", b"y"));
    ping(&mut world);
    let told: Vec<i32> = world.take(client).iter().map(|frame| frame.xid).filter(|of| *of > 0).collect();
    assert_eq!(told, [], "nothing is told before what was asked first");
    for other in [2, 3] {
        world.cut.clear();
        world.connect_sites(other);
    }
    world.pass_in_turns(3_000);
    let answers: Vec<(i32, i32)> =
        world.take(client).iter().map(|frame| (frame.xid, frame.err)).filter(|(of, _)| *of > 0).collect();
    assert!(answers.is_empty() || answers == [(3, 0), (4, 0)], "{answers:?}");
    world.check_equal();
}

/// Clients do not ask twice for that.
#[test]
fn watches_are_set_again_where_the_hub_has_no_lease() {
    let mut world = World::automatic(3);
    let client = world.open(HUB);
    world.send(
        client,
        &request(xid::AUTH, Opcode::Auth, |out| {
            put::i32(out, 0);
            put::str(out, "consistency");
            put::buffer(out, b"linearizable");
        }),
    );
    world.take(client);
    world.ask(client, &create(1, "/a", CreateMode::Persistent));
    for other in [2, 3] {
        world.cut.extend([(HUB, other), (other, HUB)]);
    }
    for _ in 0..8 {
        world.pass_in_turns(2_000);
        world.send(client, &request(xid::PING, Opcode::Ping, |_| ()));
    }
    assert!(!world.site_at(HUB).acts_as_hub());
    world.take(client);
    let again =
        request(-8, Opcode::SetWatches, |out| encode::set_watches(out, i64::MAX, &[&["/a"], &[], &[]]));
    world.send(client, &again);
    world.pass_in_turns(500);
    let answered = world.take(client);
    assert_eq!(answered.iter().map(|frame| (frame.xid, frame.err)).collect::<Vec<_>>(), [(-8, 0)]);
}

/// With sites that come back one after the other a hub that the others do not hear would have a majority of which those
/// know nothing.
#[test]
fn a_hub_without_a_lease_takes_nobody_in() {
    let mut world = World::automatic(5);
    for site in [4, 5] {
        world.lose(site);
        world.settle();
    }
    for other in [2, 3] {
        world.cut.extend([(HUB, other), (other, HUB)]);
    }
    world.pass_in_turns(25_000);
    assert!(!world.site_at(HUB).may_add_site());
    for site in [4, 5] {
        world.come_back(site, false);
        world.settle();
        world.pass_in_turns(25_000);
        assert!(world.tree(HUB).is_lost(site) && !world.site_at(site).has_joined());
    }
    assert!(!world.site_at(HUB).acts_as_hub());
    assert_eq!(world.site_at(2).may_take_place(world.now), Some(set_of(&[3])));
    assert!(world.site_at(3).misses_hub(world.now));
}

/// They may have another hub by now, of which it knows nothing.
#[test]
fn a_hub_without_a_lease_gives_nobody_up() {
    let mut world = World::automatic(3);
    world.cut_off(HUB);
    world.pass_in_turns(9_500);
    let now = world.now;
    let refused = world.site(HUB).server.lose_site(2, now).unwrap_err();
    assert_eq!(refused, ReignRefusal::NoLease);
    assert!(refused.to_string().contains("site-automatic-promotion = false"), "{refused}");
    world.pass_in_turns(100);
    assert!(!world.tree(HUB).is_lost(2));
    // One of the others is enough for a lease.
    world.cut = [(HUB, 2), (2, HUB)].into();
    world.connect_sites(3);
    world.settle();
    world.pass_in_turns(200);
    world.lose(2);
    world.settle();
    assert!(world.tree(3).is_lost(2));
}

/// Else the others could take the hub's place without a site that has more of what the hub had done.
#[test]
fn a_site_has_the_state_when_another_one_knows_that_it_is_back() {
    let mut world = World::automatic(4);
    world.lose(2);
    world.settle();
    world.pass_in_turns(21_000);
    for other in [3, 4] {
        world.cut.extend([(HUB, other), (other, HUB)]);
    }
    world.come_back(2, false);
    world.pass_in_turns(2_000);
    assert!(!world.tree(HUB).is_lost(2) && world.tree(3).is_lost(2));
    assert!(!world.site_at(2).has_joined());
    world.cut.retain(|(from, to)| ![*from, *to].contains(&3));
    world.pass_in_turns(2_000);
    assert!(!world.tree(3).is_lost(2) && world.tree(4).is_lost(2));
    assert!(world.site_at(2).has_joined());
    world.cut.clear();
    world.settle();
    world.check_equal();
}

/// It could not follow, and nobody would give it the state before there is a hub.
#[test]
fn whoever_is_to_be_the_hub_does_not_wait_for_a_site_that_has_not_taken_the_state_yet() {
    let mut world = World::automatic(4);
    world.lose(4);
    world.settle();
    world.pass_in_turns(21_000);
    world.come_back(4, false);
    while world.tree(HUB).is_lost(4) {
        world.carry(4, HUB);
        world.store(HUB);
    }
    // It is one of them again, and the hub goes on to another site before it has given it the state.
    world.cut.extend([(HUB, 4), (4, HUB)]);
    world.site(HUB).server.site_lost(4);
    world.claim(2, &[]);
    world.settle();
    let looks = |world: &World, site| {
        let greeting = Greeting::of(world.site_at(site), true);
        has_nothing_to_tell(world.site_at(2), site, &greeting)
    };
    assert_eq!((world.tree(2).waits_for(), world.tree(2).hub()), (set_of(&[4]), Some(HUB)));
    assert_eq!((looks(&world, 3), looks(&world, HUB)), (None, None));
    let (lost, needed) = looks(&world, 4).unwrap();
    assert_eq!((lost, needed), (set_of(&[4]), set_of(&[HUB, 3])));
    let now = world.now;
    world.site(2).server.claim_reign(lost, needed, now).unwrap();
    world.poll(2);
    while world.store(2) {}
    for other in [HUB, 3] {
        world.connect_sites(other);
    }
    world.settle();
    assert_eq!((world.tree(3).hub(), world.tree(3).is_lost(4)), (Some(2), true));
    assert!(!world.site_at(4).has_joined());
    // It joins when there is a hub.
    world.cut.clear();
    world.connect_sites(4);
    world.pass_in_turns(21_000);
    assert!(world.site_at(4).has_joined());
    world.check_equal();
}

/// A hub with a site that has come back a moment before, and of which another one has not heard since.
fn with_one_that_is_new(count: u8) -> World {
    let mut world = World::automatic(count);
    let one = world.open(HUB);
    world.ask(one, &create(1, "/a", CreateMode::Persistent));
    world.lose(2);
    world.settle();
    world.pass_in_turns(21_000);
    world.cut.extend([(HUB, 3), (3, HUB)]);
    world.send(one, &request(xid::PING, Opcode::Ping, |_| ()));
    let one = world.open(HUB);
    world.ask(one, &set(1, "/a", b"the third one lacks it"));
    world.come_back(2, false);
    world.settle();
    world.pass_in_turns(200);
    assert!(world.site_at(2).has_joined());
    world
}

#[test]
fn who_cannot_tell_the_others_what_they_lack_does_not_take_the_hubs_place() {
    let mut world = with_one_that_is_new(4);
    world.cut_off(HUB);
    world.pass_in_turns(11_000);
    assert_eq!(
        world.succession(2),
        SuccessionStep::Ask(set_of(&[3, 4])),
        "it came with what the third one lacks"
    );
    assert_eq!(
        world.succession(3),
        SuccessionStep::Ask(set_of(&[2, 4])),
        "it hears of that one, and cannot have it from there"
    );
    assert_eq!(world.succession(4), SuccessionStep::TakePlace(set_of(&[2, 3])));
    world.take_place(4);
    assert_eq!(world.torn, BTreeSet::new());
    for site in [2, 3, 4] {
        assert_eq!(
            (world.tree(site).hub(), world.tree(site).get("/a").unwrap().stat().version),
            (Some(4), 1)
        );
    }
    world.cut.clear();
    world.pass_in_turns(21_000);
    world.come_back(HUB, false);
    world.settle();
    world.check_equal();
}

#[test]
fn where_nobody_can_tell_another_one_what_it_lacks_the_hub_stays_it() {
    let mut world = with_one_that_is_new(3);
    world.cut_off(HUB);
    world.pass_in_turns(11_000);
    assert_eq!(world.succession(2), SuccessionStep::NobodyCan(set_of(&[3])));
    assert_eq!(world.succession(3), SuccessionStep::Nothing, "as it knows there are two sites");
    world.cut.clear();
    for other in [2, 3] {
        world.connect_sites(other);
    }
    world.settle();
    world.pass_in_turns(200);
    assert_eq!((world.tree(3).hub(), world.tree(3).reign()), (Some(HUB), 1));
    assert!(world.site_at(HUB).acts_as_hub());
    world.check_equal();
}

/// Nothing else wakes it.
#[test]
fn a_hub_of_one_server_with_nothing_to_do_wakes_to_ask_for_promises() {
    let world = World::automatic(3);
    let wakes_us = world.site_at(HUB).next_wake_us().saturating_sub(world.now.mono_us);
    assert!(wakes_us <= 2_000_000, "it wakes in {wakes_us} us");
}

#[test]
fn a_site_is_asked_for_a_promise_as_soon_as_it_can_be() {
    let mut world = World::automatic(3);
    world.pass_in_turns(1_000);
    for other in [2, 3] {
        world.connect_sites(other);
    }
    let now = world.now;
    // It has not heard from them yet.
    world.site(HUB).server.tick(now);
    world.poll(HUB);
    world.settle();
    world.pass(100);
    let until_us = world.site_at(HUB).site_status().unwrap().lease_until_us.unwrap();
    assert!(until_us >= now.mono_us + 9_000_000, "{until_us}, and it is {now:?}");
}

/// Sites whose lines break and are mended while time passes, with nobody who gives any order.
struct Run {
    random: Random,
    world: World,
    /// Lines that are cut, by the smaller number first.
    cut: BTreeSet<(SiteId, SiteId)>,
    /// Which sites are connected: whose leader has connected to whom, and since when nothing passes.
    connected: BTreeMap<(SiteId, SiteId), Option<u64>>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let world = World::automatic(3 + random.below(3) as u8);
        let leaves = world.leaves();
        let connected = leaves.into_iter().map(|leaf| ((leaf, HUB), None)).collect();
        Self { random, world, cut: BTreeSet::new(), connected }
    }

    fn is_cut(&self, one: SiteId, other: SiteId) -> bool {
        self.cut.contains(&(one.min(other), one.max(other)))
    }

    /// What passes between leaders whose sites are connected, and what is written.
    fn pass_on(&mut self) {
        let mut is_busy = true;
        while is_busy {
            is_busy = false;
            for id in 1..=self.world.sites.len() as u8 {
                is_busy |= self.world.store(id);
            }
            let pairs: Vec<_> = self.connected.keys().copied().collect();
            for (leaf, hub) in pairs {
                if self.is_cut(leaf, hub) {
                    continue;
                }
                is_busy |= self.world.carry(leaf, hub) | self.world.carry(hub, leaf);
            }
        }
    }

    /// To whom a site is to be connected.
    fn upper(&self, site: SiteId) -> Option<SiteId> {
        let tree = self.world.tree(site);
        let claimed = tree.streams().claim().map(|claim| claim.hub);
        claimed.or(tree.hub()).filter(|upper| *upper != site)
    }

    /// Each site that another one can be reached from is told what that knows.
    fn meet(&mut self) {
        let now = self.world.now;
        let all: Vec<SiteId> = (1..=self.world.sites.len() as u8).collect();
        for from in &all {
            let others: Vec<_> =
                all.iter().filter(|to| *to != from && !self.is_cut(*from, **to)).copied().collect();
            for to in &others {
                let tree = self.world.tree(*from);
                let (hub, reign, claim) = (tree.hub(), tree.reign(), tree.streams().claim());
                let is_lost = tree.is_lost(*to) && hub == Some(*from);
                let known = self.world.tree(*to);
                let own = known.streams().claim().filter(|own| own.is_automatic && own.hub == *to);
                if own.is_some_and(|own| own.lost.contains(*from) && hub == Some(*from)) {
                    // The hub is there again.
                    let needed = own.map_or(SiteSet::default(), |own| own.needed.with(*from));
                    let _ = self.world.site(*to).server.claim_reign(SiteSet::default(), needed, now);
                }
                if is_lost && self.world.tree(*to).reign() < reign {
                    self.world.site(*to).server.site_is_lost(now);
                    self.world.poll(*to);
                    while self.world.store(*to) {}
                    let _ = self.world.site(*to).server.discard_site(now);
                }
                if let Some(claim) = claim {
                    self.world.site(*to).server.follow_site(claim, now);
                }
                self.world.poll(*to);
            }
        }
        self.pass_on();
        for site in all {
            if let SuccessionStep::TakePlace(others) = self.succession(site) {
                self.world.site(site).server.take_place(others, now).unwrap();
                self.world.poll(site);
            }
        }
        self.pass_on();
    }

    fn succession(&self, site: SiteId) -> SuccessionStep {
        let mut succession = Succession::default();
        let others = (1..=self.world.sites.len() as u8).filter(|other| *other != site);
        for other in others.filter(|other| !self.is_cut(site, *other)) {
            let it = self.world.site_at(other);
            let reach = it.misses_hub(self.world.now).then(|| it.reach());
            succession.heard(other, reach, self.world.now);
        }
        succession.step(self.world.site_at(site), self.world.now)
    }

    /// Connections begin and end as servers see to it.
    fn connect(&mut self) {
        let now = self.world.now;
        let all: Vec<SiteId> = (1..=self.world.sites.len() as u8).collect();
        let mut gone = Vec::new();
        for ((leaf, hub), since) in &mut self.connected {
            let is_cut = self.cut.contains(&(*leaf.min(hub), *leaf.max(hub)));
            *since = is_cut.then_some(since.unwrap_or(now.mono_us));
            let is_silent = since.is_some_and(|since| since + 6_000_000 < now.mono_us);
            gone.extend(is_silent.then_some((*leaf, *hub)));
        }
        gone.extend(self.connected.keys().copied().filter(|(leaf, hub)| {
            self.upper(*leaf) != Some(*hub) && self.world.site_at(*leaf).has_joined()
                || self.upper(*hub).is_some()
        }));
        for (leaf, hub) in gone {
            self.connected.remove(&(leaf, hub));
            self.world.links.remove(&(leaf, hub));
            self.world.links.remove(&(hub, leaf));
            self.world.site(leaf).server.site_lost(hub);
            self.world.site(hub).server.site_lost(leaf);
        }
        for leaf in all {
            let joined = self.world.site_at(leaf).has_joined();
            if !self.world.site_at(leaf).may_join() {
                continue;
            }
            // Who has to join anew has heard of the hub.
            let newest =
                self.world.sites.iter().max_by_key(|site| site.server.tree().reign()).map(|site| site.id);
            let upper =
                if joined { self.upper(leaf) } else { newest.and_then(|site| self.world.tree(site).hub()) };
            let Some(upper) = upper.filter(|upper| *upper != leaf) else { continue };
            let is_there = self.connected.contains_key(&(leaf, upper));
            let is_hub = self.upper(upper).is_none() && self.world.site_at(upper).has_joined();
            let (tree, of_leaf) = (self.world.tree(upper), self.world.tree(leaf));
            let wanted = tree.streams().claim().map_or(tree.reign(), |claim| claim.reign);
            let follows = of_leaf.streams().claim().map_or(of_leaf.reign(), |claim| claim.reign);
            if is_there
                || !is_hub
                || self.is_cut(leaf, upper)
                || joined && (follows != wanted && tree.streams().claim().is_some() || follows > wanted)
            {
                continue;
            }
            self.connected.insert((leaf, upper), None);
            self.world.site(upper).server.site_connected(leaf, now);
            self.world.site(leaf).server.site_connected(upper, now);
            self.world.poll(upper);
            self.world.poll(leaf);
        }
        self.pass_on();
    }

    /// No two sites may do what only the hub does.
    fn check(&mut self) {
        let hubs: Vec<_> = self
            .world
            .sites
            .iter()
            .filter(|site| site.server.has_joined() && site.server.acts_as_hub())
            .map(|site| (site.id, site.server.tree().reign()))
            .collect();
        assert!(hubs.len() <= 1, "two hubs at once: {hubs:?}");
    }

    fn step(&mut self) {
        let count = self.world.sites.len();
        let other = |random: &mut Random| 1 + random.below(count) as u8;
        match self.random.below(40) {
            // A site is cut off from all others, or one line breaks.
            0 | 1 => {
                let one = if self.random.one_in(2) {
                    self.world.tree(2).hub().unwrap()
                } else {
                    other(&mut self.random)
                };
                self.cut
                    .extend((1..=count as u8).filter(|it| *it != one).map(|it| (one.min(it), one.max(it))));
            }
            2 => {
                let (one, two) = (other(&mut self.random), other(&mut self.random));
                if one != two {
                    self.cut.insert((one.min(two), one.max(two)));
                }
            }
            3..6 => self.cut.clear(),
            6 => {
                let site = other(&mut self.random);
                let gone: Vec<_> =
                    self.connected.keys().copied().filter(|(a, b)| *a == site || *b == site).collect();
                for (leaf, hub) in gone {
                    self.connected.remove(&(leaf, hub));
                    self.world.links.remove(&(leaf, hub));
                    self.world.links.remove(&(hub, leaf));
                    let (one, two) = if leaf == site { (hub, leaf) } else { (leaf, hub) };
                    self.world.site(one).server.site_lost(two);
                }
                self.world.start_again(site);
            }
            _ => {}
        }
        let ms = [100, 300, 500, 900][self.random.below(4)];
        self.world.now.mono_us += ms * 1000;
        self.world.now.wall_ms += ms as i64;
        let now = self.world.now;
        for id in 1..=count as u8 {
            self.world.site(id).server.tick(now);
            self.world.poll(id);
        }
        self.check();
        self.pass_on();
        self.check();
        if self.random.one_in(3) {
            self.meet();
        }
        self.check();
        self.connect();
        self.check();
    }
}

/// `LEASE_SEEDS=FIRST,COUNT` tries others.
#[test]
fn there_are_never_two_hubs() {
    let seeds = std::env::var("LEASE_SEEDS").unwrap_or_else(|_| "0,30".into());
    let (first, count) = seeds.split_once(',').expect("FIRST,COUNT");
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    let mut changes = 0;
    for seed in first..first + count {
        let ran = catch_unwind(|| {
            let mut run = Run::new(seed);
            (0..1200).for_each(|_| run.step());
            // In the end all are there, and one of them is the hub.
            run.cut.clear();
            for _ in 0..600 {
                run.world.now.mono_us += 200_000;
                run.world.now.wall_ms += 200;
                let now = run.world.now;
                for id in 1..=run.world.sites.len() as u8 {
                    run.world.site(id).server.tick(now);
                    run.world.poll(id);
                }
                run.pass_on();
                run.meet();
                run.connect();
                run.check();
            }
            let hub = run.world.tree(1).hub();
            if !run.world.torn.is_empty() {
                // One joined a moment before it became the hub, and cannot tell another one all that this lacks: that
                // has to join anew, which an operator says.
                return run.world.tree(1).reign() - 1;
            }
            for site in &run.world.sites {
                let (tree, all) = (site.server.tree(), &run.world.sites);
                let known = |site: &Site| (site.id, site.server.tree().hub(), site.server.tree().reign());
                assert!(
                    site.server.has_joined(),
                    "{} has not joined: {:?}, {:?}, {:?}",
                    site.id,
                    tree.streams().standing(),
                    all.iter().map(known).collect::<Vec<_>>(),
                    run.connected
                );
                let standing = |site: &Site| {
                    let tree = site.server.tree();
                    (site.id, tree.hub(), tree.reign(), tree.streams().claim(), tree.waits_for())
                };
                assert_eq!(
                    (tree.hub(), tree.streams().claim()),
                    (hub, None),
                    "{:#?}, {:?}, torn {:?}",
                    all.iter().map(standing).collect::<Vec<_>>(),
                    run.connected,
                    run.world.torn
                );
            }
            run.world.check_equal();
            run.world.tree(1).reign() - 1
        });
        changes += ran.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(count < 10 || changes > 0, "no other site was ever the hub");
}
