//! Sites that are given up, and other hubs.

use super::*;
use stoa_core::{Greeting, ReignRefusal, SiteAnswer, SiteSet, answer_site};

impl World {
    /// What the leaders of two sites do when they meet, and the one is to be the hub.
    pub(crate) fn follow(&mut self, leaf: SiteId) {
        let (now, hub) = (self.now, self.hub);
        if let Some(claim) = self.tree(hub).streams().claim().filter(|claim| claim.hub == hub) {
            self.site(leaf).server.follow_site(claim, now);
            self.poll(leaf);
            while self.store(leaf) {}
        }
    }

    /// The hub gives a site up, which is no more.
    pub(crate) fn lose(&mut self, site: SiteId) {
        let (now, hub) = (self.now, self.hub);
        self.dead.insert(site);
        self.links.retain(|(from, to), _| *from != site && *to != site);
        self.site(hub).server.site_lost(site);
        self.site(hub).server.lose_site(site, now).unwrap();
        self.poll(hub);
    }

    /// A site claims to be the hub; those that are given up are no more.
    pub(crate) fn claim(&mut self, to: SiteId, lost: &[SiteId]) {
        let (now, before) = (self.now, self.hub);
        let set = |sites: &[SiteId]| sites.iter().fold(SiteSet::default(), |set, site| set.with(*site));
        let is_other = |id: &SiteId| *id != to && !lost.contains(id);
        let others: Vec<_> = self.alive().into_iter().filter(is_other).collect();
        match self.site(to).server.claim_reign(set(lost), set(&others), now) {
            // It may be one that it does not know yet.
            Err(ReignRefusal::IsTheHub) => return,
            claimed => drop(claimed.unwrap()),
        }
        if std::env::var_os("SITES_STORY").is_some() {
            eprintln!("site {to} claims, without {lost:?}; {before} was followed");
        }
        self.dead.extend(lost);
        self.links.clear();
        for id in self.alive() {
            for other in self.alive().into_iter().chain([before]).filter(|other| *other != id) {
                self.site(id).server.site_lost(other);
            }
        }
        self.poll(to);
        while self.store(to) {}
        self.hub = to;
        others.into_iter().for_each(|leaf| self.connect_sites(leaf));
    }

    /// A site that was given up comes back: with nothing, or with what it has, which it gives up first.
    pub(crate) fn come_back(&mut self, site: SiteId, with_nothing: bool) {
        let now = self.now;
        if with_nothing {
            self.found(site);
        } else {
            self.site(site).server.site_is_lost(now);
            self.poll(site);
            while self.store(site) {}
            if self.site(site).server.has_joined() || self.site(site).server.discard_site(now).is_err() {
                // It cannot write that down now.
                return;
            }
            self.poll(site);
            while self.store(site) {}
        }
        self.dead.remove(&site);
        self.connect_sites(site);
    }
}

/// The token of `/a` is at a site: two in a row from there.
fn give(world: &mut World, client: Client, path: &str, first_xid: i32) {
    for xid in first_xid..first_xid + 2 {
        world.ask(client, &set(xid, path, b"given"));
    }
    assert_eq!(world.tree(world.hub).holder(path), Some(client.0));
}

/// It was the hub, and has given up the one that is it now.
#[test]
fn a_hub_of_the_past_that_joins_anew_tells_the_hub_what_it_does() {
    let mut world = World::new(3);
    world.claim(2, &[1]);
    world.settle();
    world.claim(3, &[1, 2]);
    world.settle();
    world.come_back(1, false);
    world.settle();
    world.claim(1, &[2]);
    world.settle();
    world.come_back(2, false);
    world.settle();
    let client = world.open(2);
    assert_eq!(world.ask(client, &create(1, "/a", CreateMode::Persistent)).path(), "/a");
    world.check_equal();
}

#[test]
fn what_a_lost_site_held_is_the_hubs_and_its_sessions_live_on() {
    for with_nothing in [true, false] {
        let mut world = World::new(3);
        let ((two, opened), three) = (world.open_with(2, 0, &[0; 16]), world.open(3));
        world.ask(two, &create(1, "/a", CreateMode::Persistent));
        give(&mut world, two, "/a", 2);
        world.ask(two, &create(4, "/a/mine", CreateMode::Ephemeral));
        // What it has not shipped is lost with it.
        world.cut.extend([(2, HUB), (HUB, 2)]);
        let lost = world.ask_here(two, &set(5, "/a", b"lost")).unwrap().stat();
        assert_eq!(lost.version, 3);
        for xid in 6..=30 {
            world.ask_here(two, &set(xid, "/a", b"lost")).unwrap();
        }
        let told = world.tree(2).last_zxid();
        assert!(told > world.tree(HUB).last_zxid() && lost.mzxid < told);
        world.send(three, &set(1, "/a", b"waits"));
        world.settle();
        assert_eq!(world.take(three), []);
        world.lose(2);
        world.settle();
        assert_eq!(world.take(three)[0].stat().version, 3);
        assert_eq!(world.tree(3).holder("/a"), Some(HUB));
        // Its client comes to another one, though it was told what is lost, and has its ephemeral.
        let (session, password) = (opened.session_id, opened.password.to_vec());
        let (came, response) = world.come_after(told, 3, session, &password);
        assert_eq!(response.session_id, session);
        world.check_equal();
        assert_eq!(world.tree(HUB).get("/a/mine").unwrap().stat().ephemeral_owner, session);
        // And so does the site itself, with nothing of what it had done.
        world.cut.clear();
        world.come_back(2, with_nothing);
        world.settle();
        world.check_equal();
        let again = world.open(2);
        assert_eq!(data(&world.ask(again, &get(1, "/a"))), b"waits");
        give(&mut world, again, "/a", 2);
        assert_eq!(world.ask_here(again, &set(4, "/a", b"4")).unwrap().stat().version, 6);
        world.ask(came, &request(9, Opcode::CloseSession, |_| {}));
        world.check_equal();
        assert_eq!(world.tree(2).ephemeral_count(), 0);
        for id in 1..=3 {
            world.restart(id);
            world.settle();
        }
        world.check_equal();
    }
}

#[test]
fn what_anybody_has_of_a_lost_hub_is_known_to_the_next_one() {
    let mut world = World::new(4);
    let (one, two, three) = (world.open(HUB), world.open(2), world.open(3));
    world.ask(one, &create(1, "/a", CreateMode::Persistent));
    world.ask(one, &create(2, "/b", CreateMode::Persistent));
    give(&mut world, three, "/b", 1);
    // The last of the hub, and a token that it gives away, come to the second site alone. Others hear of nothing.
    world.cut.extend([(HUB, 3), (HUB, 4)]);
    world.ask(one, &set(3, "/a", b"3"));
    give(&mut world, two, "/a", 1);
    assert_eq!(world.ask_here(two, &set(3, "/a", b"4")).unwrap().stat().version, 4);
    // One asks for more: that is carried out, and it is not told.
    world.send(three, &set(3, "/a", b"on its way"));
    world.settle();
    assert_eq!(world.take(three), []);
    world.claim(4, &[HUB]);
    // What is held is written all the time, and what is not waits.
    assert_eq!(world.ask_here(two, &set(4, "/a", b"5")), None);
    assert_eq!(world.ask_here(three, &set(4, "/b", b"behind it")), None);
    let other = world.open(3);
    assert_eq!(world.ask_here(other, &set(1, "/b", b"held")).unwrap().stat().version, 3);
    world.settle();
    assert_eq!(world.tree(2).hub(), Some(4));
    assert_eq!(world.tree(3).reign(), 2);
    world.check_equal();
    assert_eq!(world.tree(4).holder("/a"), Some(4), "it was wanted back");
    let heard = world.take(three);
    assert_eq!((heard[0].stat().version, heard[1].stat().version), (5, 4));
    assert_eq!(world.take(two)[0].stat().version, 6);
    // The old one is not listened to, and comes back as one that holds nothing.
    world.cut.clear();
    world.come_back(HUB, false);
    world.settle();
    world.check_equal();
    let one = world.open(HUB);
    assert_eq!(world.ask(one, &set(1, "/a", b"7")).stat().version, 7);
    world.check_equal();
}

#[test]
fn the_hub_moves_while_all_are_there_and_nothing_is_lost() {
    let mut world = World::new(3);
    let clients = [world.open(HUB), world.open(2), world.open(3)];
    world.ask(clients[0], &create(1, "/a", CreateMode::Persistent));
    world.ask(clients[0], &create(2, "/b", CreateMode::Persistent));
    give(&mut world, clients[2], "/b", 1);
    let mut xid = 10;
    for hub in [2, 3, HUB, 2] {
        for client in clients {
            for path in ["/a", "/b"] {
                xid += 1;
                world.send(client, &set(xid, path, b"x"));
            }
        }
        world.claim(hub, &[]);
        world.settle();
        for client in clients {
            let heard = world.take(client);
            assert!(heard.len() == 2 && heard.iter().all(|frame| frame.err == 0), "{heard:?}");
        }
        assert!(world.alive().iter().all(|site| world.tree(*site).hub() == Some(hub)));
        world.check_equal();
    }
    assert_eq!(world.tree(2).get("/a").unwrap().stat().version, 12);
    assert_eq!(world.tree(2).get("/b").unwrap().stat().version, 14);
}

/// The hub before tells the next one again what that has: an entry with something that was refused, and in it that a
/// session has come. It has gone on since.
#[test]
fn a_session_that_has_gone_on_does_not_go_where_it_was_before() {
    let mut world = World::new(3);
    let ((one, opened), two) = (world.open_with(HUB, 0, &[0; 16]), world.open(2));
    world.ask(one, &create(1, "/a", CreateMode::Persistent));
    let (session, password) = (opened.session_id, opened.password.to_vec());
    let (peer, now): (SocketAddr, Now) = ("127.0.0.1:4000".parse().unwrap(), world.now);
    let came = (2, world.site(2).server.connect(peer, now).unwrap());
    world.send(came, &opening(session, &password));
    world.send(two, &create(1, "/a", CreateMode::Persistent));
    world.settle();
    assert_eq!(world.take(two)[0].err, ErrorCode::NodeExists as i32);
    assert!(!world.take_bytes(came).is_empty() && world.tree(3).home_of(session) == 2);
    let (last, _) = world.come(3, session, &password);
    assert_eq!(world.tree(2).home_of(session), 3);
    world.claim(2, &[]);
    world.settle();
    assert_eq!((world.tree(3).hub(), world.tree(3).home_of(session)), (Some(2), 3));
    assert_eq!(data(&world.ask(last, &get(1, "/a"))), b"x");
    // It ends with its client, at the site that judges it.
    let now = world.now;
    world.site(3).server.disconnected(last.1, now);
    world.poll(3);
    world.pass(6000);
    world.pass(6000);
    assert!(world.tree(HUB).session(session).is_none(), "nobody ends it");
    world.check_equal();
}

#[test]
fn who_is_not_asked_says_so() {
    let mut world = World::new(3);
    let now = world.now;
    let refused =
        |world: &mut World, at: SiteId, site| world.site(at).server.lose_site(site, now).unwrap_err();
    assert_eq!(refused(&mut world, 2, 3), ReignRefusal::NotTheHub(HUB));
    assert_eq!(refused(&mut world, HUB, HUB), ReignRefusal::NoSite);
    assert_eq!(refused(&mut world, HUB, 40), ReignRefusal::NoSite);
    let claim = world.site(HUB).server.claim_reign(SiteSet::default(), SiteSet::default(), now);
    assert_eq!(claim.unwrap_err(), ReignRefusal::IsTheHub);
    assert_eq!(world.site(HUB).server.discard_site(now).unwrap_err(), ReignRefusal::NoSite);
    world.lose(3);
    world.settle();
    assert_eq!(refused(&mut world, HUB, 3), ReignRefusal::IsLost);
    // One that claims and gets nowhere is taken over by another one, or the hub itself.
    world.site(2).server.claim_reign(SiteSet::default(), SiteSet::of(HUB), now).unwrap();
    world.poll(2);
    while world.store(2) {}
    let client = world.open(2);
    world.send(client, &create(1, "/a", CreateMode::Persistent));
    world.hub = 2;
    world.follow(HUB);
    assert_eq!(refused(&mut world, HUB, 3), ReignRefusal::IsClaimed(2));
    world.hub = HUB;
    world.claim(HUB, &[]);
    world.settle();
    assert_eq!(world.take(client)[0].path(), "/a");
    world.check_equal();
    assert_eq!((world.tree(2).hub(), world.tree(2).reign()), (Some(HUB), 3));
}

#[test]
fn what_a_site_that_is_away_holds_cannot_be_written_and_says_so() {
    let mut world = World::new(3);
    let (one, two, three) = (world.open(HUB), world.open(2), world.open(3));
    world.ask(one, &create(1, "/a", CreateMode::Persistent));
    world.ask(one, &create(2, "/b", CreateMode::Persistent));
    give(&mut world, two, "/a", 1);
    // One is wanted back when it goes, the others are asked for later.
    world.cut.extend([(2, HUB), (HUB, 2)]);
    world.send(one, &set(3, "/a", b"x"));
    world.settle();
    world.site(HUB).server.site_lost(2);
    world.send(three, &set(1, "/a", b"x"));
    world.send(three, &set(2, "/b", b"behind it"));
    world.settle();
    assert_eq!(world.take(three), []);
    world.pass(5100);
    world.pass(100);
    let heard = world.take(three);
    assert_eq!(heard[0].err, ErrorCode::OperationTimeout as i32);
    assert_eq!((heard.len(), heard[1].stat().version), (2, 1), "what is not there is done all the same");
    assert_eq!(world.take(one)[0].err, ErrorCode::OperationTimeout as i32);
    // The one that is cut off holds what it holds. Of what it does not hold nobody can say what becomes of it.
    assert_eq!(world.ask_here(two, &set(3, "/a", b"3")).unwrap().stat().version, 3);
    world.send(two, &set(4, "/b", b"?"));
    while world.store(2) {}
    world.pass(5100);
    world.send(two, &get(5, "/a"));
    world.pass(5100);
    world.pass(100);
    assert_eq!(world.site(2).closed.get(&two.1), Some(&CloseReason::SiteAway));
    world.cut.clear();
    world.connect_sites(2);
    world.settle();
    world.check_equal();
    assert_eq!(world.tree(HUB).get("/a").unwrap().stat().version, 3);
    assert_eq!(world.tree(HUB).get("/b").unwrap().stat().version, 2);
}

#[test]
fn a_site_that_was_given_up_is_not_told_what_is_done_since() {
    let mut world = World::new(3);
    let (one, two) = (world.open(HUB), world.open(2));
    world.ask(two, &create(1, "/a", CreateMode::Persistent));
    give(&mut world, two, "/a", 2);
    // What it has done by itself is not there yet when it is given up. It is connected anew before it is told that.
    world.cut.extend([(2, HUB), (HUB, 2)]);
    world.ask_here(two, &create(4, "/a/b", CreateMode::Persistent)).unwrap();
    let now = world.now;
    world.site(HUB).server.lose_site(2, now).unwrap();
    world.poll(HUB);
    while world.store(HUB) {}
    world.cut.clear();
    world.links.retain(|(from, to), _| *from != 2 && *to != 2);
    world.site(HUB).server.site_connected(2, now);
    world.site(2).server.site_connected(HUB, now);
    world.poll(HUB);
    world.poll(2);
    world.ask(one, &create(1, "/a/b", CreateMode::Persistent));
    let version = world.tree(2).get("/a/b").unwrap().stat().czxid;
    world.settle();
    assert_eq!(world.tree(2).get("/a/b").unwrap().stat().czxid, version);
    assert!(world.tree(2).streams().imported(HUB) < world.tree(3).streams().imported(HUB));
}

#[test]
fn who_wanted_to_be_the_hub_and_joins_anew_does_not_wait_for_that_reign() {
    let mut world = World::new(3);
    world.open(2);
    world.lose(2);
    world.settle();
    // It has not heard of that.
    let (now, others) = (world.now, SiteSet::of(HUB).with(3));
    let claimed = world.site(2).server.claim_reign(SiteSet::default(), others, now).unwrap();
    world.poll(2);
    while world.store(2) {}
    world.come_back(2, false);
    world.settle();
    assert!(claimed.reign > world.tree(2).reign());
    let again = world.open(2);
    assert_eq!(world.ask(again, &create(1, "/a", CreateMode::Persistent)).err, 0);
    world.check_equal();
}

#[test]
fn a_hub_of_the_past_does_not_tell_others_that_they_are_lost() {
    let mut world = World::new(3);
    let one = world.open(HUB);
    world.ask(one, &create(1, "/a", CreateMode::Persistent));
    world.dead.insert(HUB);
    world.claim(2, &[HUB]);
    world.settle();
    world.lose(3);
    world.settle();
    world.come_back(3, false);
    world.settle();
    assert!(world.site_at(3).has_joined());
    let greets = |world: &World, from: SiteId, to: SiteId| {
        answer_site(world.site_at(to), from, &Greeting::of(world.site_at(from), false))
    };
    // It was given up itself, and has not heard of that, nor of what has become of the others.
    assert_eq!(greets(&world, 3, HUB), SiteAnswer::Known);
    assert_eq!(greets(&world, 2, HUB), SiteAnswer::Known);
    assert_eq!(greets(&world, HUB, 2), SiteAnswer::Lost);
    assert_eq!(greets(&world, 3, 2), SiteAnswer::Connected);
}

/// The second one was cut off while the hub gave the third one up and took it back. It can be told nothing of that by the
/// third one, whose log begins behind it, and so waits for it in vain.
#[test]
fn who_came_back_under_a_hub_that_the_next_one_did_not_know_is_the_hub_instead() {
    let mut world = World::new(3);
    let one = world.open(HUB);
    world.ask(one, &create(1, "/a", CreateMode::Persistent));
    world.settle();
    let are_torn = |world: &World, one: SiteId, other: SiteId| {
        is_torn_from(world.site_at(one), other, &world.site_at(other).reach())
    };
    assert!(!are_torn(&world, 2, 3) && !are_torn(&world, 3, 2));
    let cut = [(HUB, 2), (2, HUB)];
    world.cut.extend(cut);
    world.lose(3);
    world.settle();
    world.come_back(3, false);
    world.settle();
    world.ask(one, &create(2, "/b", CreateMode::Persistent));
    world.settle();
    assert!(world.site_at(3).has_joined() && world.tree(2).times_lost(3) == 0);
    assert!(are_torn(&world, 2, 3) && are_torn(&world, 3, 2), "who is told to claim it would say so");
    assert!(!are_torn(&world, 2, HUB), "the hub tells it by its stream");
    world.dead.insert(HUB);
    world.cut.clear();
    world.claim(2, &[HUB]);
    world.settle();
    assert_eq!(world.torn, BTreeSet::from([(3, 2)]), "an operator is told so");
    assert!(world.tree(2).streams().claim().is_some());
    world.torn.clear();
    world.claim(3, &[HUB]);
    world.settle();
    assert_eq!((world.tree(3).hub(), world.tree(3).streams().claim()), (Some(3), None));
    assert_eq!(world.torn, BTreeSet::from([(3, 2)]), "the second one joins anew");
    world.torn.clear();
    world.lose(2);
    for back in [2, HUB] {
        world.settle();
        world.come_back(back, false);
    }
    world.settle();
    assert!(world.tree(2).get("/b").is_some());
    world.check_equal();
}

/// A connection may be made at the moment in which a site hears that it was given up.
#[test]
fn who_was_given_up_asks_for_the_state_only_when_what_it_has_may_go() {
    let mut world = World::new(2);
    world.settle();
    world.lose(2);
    let now = world.now;
    world.site(2).server.site_is_lost(now);
    world.poll(2);
    while world.store(2) {}
    let asks = |world: &mut World| {
        world.site(2).server.site_connected(HUB, now);
        let mut said = core::iter::from_fn(|| world.site(2).server.poll_site());
        // Nothing else that is said has one byte.
        said.any(|(_, message)| message.len() == 1)
    };
    assert!(!asks(&mut world));
    world.site(2).server.discard_site(now).unwrap();
    world.poll(2);
    while world.store(2) {}
    assert!(asks(&mut world));
}

impl World {
    /// The next thing that happens by itself: one entry is durable, or one message arrives.
    fn step(&mut self) -> bool {
        let is_stored = |world: &mut Self, id: SiteId| {
            let now = world.now;
            let site = world.site(id);
            if site.log.is_empty() {
                return false;
            }
            let append = site.log.remove(0);
            site.disk.push((append.position, append.payload.join()));
            site.server.appended(append.position, now);
            world.poll(id);
            true
        };
        self.alive().into_iter().any(|id| is_stored(self, id))
            || self.pairs().into_iter().any(|(from, to)| self.carry(from, to))
    }
}

/// Whenever a site is given up, or comes back: what is proposed by then is not proposed once more.
#[test]
fn what_is_under_way_when_a_site_goes_or_comes_is_done_once() {
    let mut lasted = 0;
    for returns in [false, true] {
        for steps in 0..200 {
            let mut world = World::new(3);
            let (one, two) = (world.open(HUB), world.open(2));
            world.ask(two, &create(1, "/a", CreateMode::Persistent));
            give(&mut world, two, "/a", 2);
            let before = world.tree(HUB).get("/a").unwrap().stat().version;
            if returns {
                world.lose(3);
                world.settle();
            }
            world.send(one, &set(1, "/a", b"once"));
            world.send(one, &set(2, "/a", b"twice"));
            if (0..steps).any(|_| !world.step()) {
                lasted = lasted.max(steps);
                break;
            }
            if returns {
                world.come_back(3, true);
            } else {
                world.lose(3);
            }
            while world.step() {}
            let versions: Vec<i32> = world.take(one).iter().map(|answer| answer.stat().version).collect();
            assert_eq!(versions, [before + 1, before + 2], "after {steps} steps");
            world.settle();
            world.check_equal();
        }
    }
    assert!(lasted > 10, "it took only {lasted} steps");
}
