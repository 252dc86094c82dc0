//! What a site that was given up alone has, as it tells that.

use super::divided::{name_on, set_both};
use super::*;
use stoa_core::{
    Greeting, KeptZxids, LostNotes, LostReader, LostUpdates, LostWanted, SiteStanding, answer_site,
    kept_of_site,
};

impl World {
    /// What the leader of a site is told by the hub's when they meet, and does by that.
    pub(crate) fn hear_of_loss(&mut self, site: SiteId) {
        let (now, hub) = (self.now, self.hub);
        let greeting = Greeting::of(&self.site(site).server, false);
        let server = &self.site_at(hub);
        let answer = answer_site(server, site, &greeting);
        let kept = kept_of_site(server, site, &greeting);
        let server = &mut self.site(site).server;
        if answer == stoa_core::SiteAnswer::Lost {
            server.site_is_lost(now);
        }
        if let Some(kept) = kept {
            server.site_is_kept(&kept, now);
        }
        self.poll(site);
        while self.store(site) {}
    }

    /// What the log of a site has of it: of which site it is, and up to where the others have that.
    fn notes(&self, site: SiteId) -> LostNotes {
        let mut notes = LostNotes::default();
        let partitions = self.partitions(site);
        self.entries(site).iter().for_each(|(position, entry)| notes.entry(*position, entry, partitions));
        notes
    }

    fn entries(&self, site: SiteId) -> Vec<(u64, Bytes)> {
        let wanted = BacklogWanted { site, since: 1, upto: u64::MAX, is_looking: true };
        let (mut backlog, mut entries) = (Backlog::new(wanted), Vec::new());
        for (_, record) in &self.sites[usize::from(site) - 1].disk {
            backlog.record(record.clone(), &mut entries).unwrap();
        }
        entries.extend(backlog.rest());
        entries
    }

    /// All that is lost of a site when the others have so much of it.
    fn all_behind(&self, site: SiteId, kept: &KeptZxids) -> LostWanted {
        let (most, bytes_most, kept) = (usize::MAX, usize::MAX, kept.clone());
        let partitions = self.partitions(site);
        LostWanted { site, partitions, kept, after_zxid: 0, most, bytes_most, with_data: true }
    }

    /// What each partition of a site has made; of one that has no more than one that is this zxid.
    fn made_by(&self, site: SiteId, last: i64) -> KeptZxids {
        let all = self.lost(self.all_behind(site, &KeptZxids::default()), u64::MAX);
        let made = all.updates.iter().map(|update| update.zxid).collect();
        assert!(self.partitions(site) > 1 || made == KeptZxids::from_iter([last]));
        made
    }

    fn lost(&self, wanted: LostWanted, until: u64) -> LostUpdates {
        let site = wanted.site;
        let mut reader = LostReader::new(wanted);
        for (position, entry) in self.entries(site).into_iter().filter(|(at, _)| *at < until) {
            reader.entry(position, &entry, (0, true)).unwrap();
        }
        reader.end()
    }
}

/// Each operation that is lost, with its znode and its data.
fn told(lost: &LostUpdates) -> Vec<(i64, &str, &str, &[u8])> {
    let operations =
        lost.updates.iter().flat_map(|update| update.operations.iter().map(|of| (update.zxid, of)));
    let told = operations.map(|(zxid, of)| {
        (zxid, of.name, of.path.as_deref().unwrap_or_default(), of.data.as_deref().unwrap_or_default())
    });
    told.collect()
}

/// A world where site 2 holds `/a`, has set it twice for all to know, and three times more when it is cut off. With it
/// the zxids of the last that is known and of those three.
fn world_with_losses() -> (World, KeptZxids, Vec<i64>) {
    let mut world = World::new(3);
    let (two, three) = (world.open(2), world.open(3));
    world.ask(two, &create(1, "/a", CreateMode::Persistent));
    for xid in 2..4 {
        world.ask(two, &set(xid, "/a", b"known"));
    }
    assert_eq!(world.tree(2).holder("/a"), Some(2));
    let known = world.ask(two, &set(4, "/a", b"known")).stat().mzxid;
    assert_eq!(world.tree(HUB).get("/a").unwrap().stat().mzxid, known);
    let known = world.made_by(2, known);
    world.cut.extend([(2, HUB), (HUB, 2)]);
    let mut lost: Vec<i64> =
        (5..7).map(|xid| world.ask_here(two, &set(xid, "/a", &[xid as u8])).unwrap().stat().mzxid).collect();
    world.ask_here(two, &create(7, "/a/b", CreateMode::Ephemeral)).unwrap();
    lost.push(world.tree(2).get("/a/b").unwrap().stat().czxid);
    // What others do meanwhile is not its.
    world.ask(three, &create(1, "/c", CreateMode::Persistent));
    (world, known, lost)
}

#[test]
fn exactly_what_the_others_do_not_have_is_lost() {
    let (mut world, known, lost) = world_with_losses();
    assert_eq!(world.tree(HUB).kept_of_lost(2), None);
    assert_eq!(world.notes(2), LostNotes { site: Some(2), kept: None });
    world.lose(2);
    world.settle();
    for site in [HUB, 3] {
        assert_eq!(world.tree(site).kept_of_lost(2), Some(&known), "at site {site}");
    }
    // It is told nothing as long as it takes itself for one of the sites, and so it cannot be told what is not so.
    let now = world.now;
    world.site(2).server.site_is_kept(&KeptZxids::from_iter([1]), now);
    assert_eq!(world.tree(2).streams().kept(), None);
    world.hear_of_loss(2);
    world.hear_of_loss(2);
    let status = world.site(2).server.site_status().unwrap();
    assert_eq!((status.standing, world.tree(2).streams().kept()), (SiteStanding::Lost, Some(&known)));
    let notes = world.notes(2);
    assert_eq!((notes.site, notes.kept.map(|(kept, _)| kept)), (Some(2), Some(known.clone())));
    let found = world.lost(world.all_behind(2, &known), u64::MAX);
    let expected = [
        (lost[0], "setData", "/a", &[5][..]),
        (lost[1], "setData", "/a", &[6][..]),
        (lost[2], "create ephemeral", "/a/b", &[][..]),
    ];
    let znodes: Vec<_> = told(&found).into_iter().filter(|(_, _, path, _)| !path.is_empty()).collect();
    assert_eq!(znodes.len(), 3, "{found:?}");
    for (found, expected) in znodes.iter().zip(&expected) {
        assert_eq!((found.0, found.1, found.2), (expected.0, expected.1, expected.2));
        assert!(expected.3.is_empty() || found.3 == expected.3);
    }
    assert_eq!((found.is_all, found.are_more, found.count), (true, false, found.updates.len() as u64));
    // Its server may end and begin again: it has been written down.
    world.start_again(2);
    assert_eq!(world.tree(2).streams().kept(), Some(&known));
    // And the others know it still when it is one of them again.
    world.cut.clear();
    world.come_back(2, false);
    world.settle();
    world.check_equal();
    for site in 1..=3 {
        assert_eq!(world.tree(site).kept_of_lost(2), Some(&known), "at site {site}");
        world.restart(site);
        world.settle();
    }
    assert_eq!(world.tree(2).streams().kept(), None);
    // What it has in its next life is another thing; its log says both.
    let (kept, told_at) = world.notes(2).kept.unwrap();
    assert_eq!(world.lost(world.all_behind(2, &kept), told_at).updates, found.updates);
    assert_eq!(world.lost(world.all_behind(2, &kept), u64::MAX).count, 0);
}

#[test]
fn a_list_has_bounds_and_goes_on_behind_them() {
    let (mut world, known, lost) = world_with_losses();
    world.lose(2);
    let all = world.lost(world.all_behind(2, &known), u64::MAX);
    let first = world.lost(LostWanted { most: 1, with_data: false, ..world.all_behind(2, &known) }, u64::MAX);
    assert_eq!((first.updates.len(), first.are_more, first.count), (1, true, all.count));
    let operation = &first.updates[0].operations[0];
    assert_eq!((operation.bytes, &operation.data), (Some(1), &None), "the data only when it is asked for");
    let rest = LostWanted { after_zxid: lost[0], ..world.all_behind(2, &known) };
    assert_eq!(world.lost(rest, u64::MAX).updates, all.updates[1..]);
    let few = world.lost(LostWanted { bytes_most: 1, ..world.all_behind(2, &known) }, u64::MAX);
    assert_eq!((few.updates.len(), few.are_more), (1, true));
    // Where the log begins later than what the others have, something may be missing.
    let mut reader = LostReader::new(world.all_behind(2, &known));
    for (position, entry) in world.entries(2) {
        let mut alone = LostReader::new(world.all_behind(2, &known));
        alone.entry(position, &entry, (0, true)).unwrap();
        if alone.end().count > 0 {
            reader.entry(position, &entry, (0, true)).unwrap();
        }
    }
    assert!(!reader.end().is_all);
}

#[test]
fn a_hub_that_is_lost_is_told_by_the_next_one() {
    let mut world = World::new(3);
    let here = world.open(HUB);
    let known = world.ask(here, &create(1, "/h", CreateMode::Persistent));
    assert_eq!(known.err, 0);
    let known = world.made_by(HUB, world.tree(HUB).last_prepared_zxid());
    world.cut.extend([(HUB, 2), (2, HUB), (HUB, 3), (3, HUB)]);
    let lost = world.ask_here(here, &set(2, "/h", b"lost")).unwrap().stat().mzxid;
    world.claim(2, &[HUB]);
    world.settle();
    assert_eq!(world.tree(2).kept_of_lost(HUB), Some(&known));
    world.hear_of_loss(HUB);
    world.hear_of_loss(HUB);
    assert_eq!(world.tree(HUB).streams().kept(), Some(&known));
    let found = world.lost(world.all_behind(HUB, &known), u64::MAX);
    assert!(told(&found).contains(&(lost, "setData", "/h", b"lost")), "{found:?}");
    assert!(found.updates.iter().all(|update| !known.has(update.zxid)));
}

/// Zxids of two partitions have no order: what each has made counts for itself, and the list is in that of the log.
#[test]
fn what_each_partition_has_made_behind_what_others_have_of_it_is_lost() {
    let mut world = World::divided(&[2, 3]);
    let names: Vec<String> = (0..3).map(|partition| name_on(&world, 2, partition)).collect();
    let client = world.open(2);
    for path in &names {
        world.ask(client, &create(1, path, CreateMode::Persistent));
        (2..6).for_each(|xid| _ = world.ask(client, &set(xid, path, b"known")));
        assert_eq!(world.tree(2).holder(path), Some(2));
    }
    let known = world.made_by(2, 0);
    assert_eq!(known.iter().count(), 3);
    world.cut.extend([(2, HUB), (HUB, 2)]);
    let below = format!("{}/below", names[2]);
    let asked = [
        set(10, &names[2], b"lost"),
        set_both(11, [&names[1], &names[2]]),
        set(12, &names[0], b"lost"),
        create(13, &below, CreateMode::Persistent),
        set(14, &names[1], b"lost"),
        set(15, &names[2], b"lost"),
    ];
    for request in &asked {
        assert_eq!(world.ask_here(client, request).unwrap().err, 0);
    }
    world.lose(2);
    world.settle();
    assert_eq!(world.tree(HUB).kept_of_lost(2), Some(&known));
    world.hear_of_loss(2);
    world.hear_of_loss(2);
    assert_eq!(world.notes(2).kept.map(|(kept, _)| kept), Some(known.clone()));
    let all = world.lost(world.all_behind(2, &known), u64::MAX);
    let paths: Vec<Vec<&str>> = all
        .updates
        .iter()
        .map(|of| of.operations.iter().filter_map(|of| of.path.as_deref()).collect())
        .collect();
    let [first, second, third] = [0, 1, 2].map(|at| names[at].as_str());
    let expected = [vec![third], vec![second, third], vec![first], vec![&below], vec![second], vec![third]];
    assert_eq!((paths.as_slice(), all.count, all.is_all), (&expected[..], 6, true), "{all:?}");
    assert!(all.updates.iter().enumerate().all(|(at, of)| of.is_multi == (at == 1)));
    for (at, update) in all.updates.iter().enumerate() {
        let rest = LostWanted { after_zxid: update.zxid, ..world.all_behind(2, &known) };
        assert_eq!(world.lost(rest, u64::MAX).updates, all.updates[at + 1..], "behind {:#x}", update.zxid);
    }
    for site in [HUB, 2] {
        world.start_again(site);
    }
    assert_eq!(world.tree(HUB).kept_of_lost(2), Some(&known));
    assert_eq!(world.tree(2).streams().kept(), Some(&known));
    // It has that of itself with the hub's state, too.
    world.cut.clear();
    world.come_back(2, false);
    world.settle();
    (0..4).for_each(|_| world.pass(100));
    world.check_equal();
    assert_eq!(world.tree(2).kept_of_lost(2), Some(&known));
}
