//! Trees of several sites: one that is the hub and others that are leaves, each with a log, and streams between them
//! that are as late as they like. Tokens go to and fro, and whoever holds those that an operation needs prepares it.
//! However all that falls, no import may fail, no two sites may hold the same token, and when the streams have ended
//! all trees must be the same.

use crate::divided::{load, snapshot};
use crate::world::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stoa_tree::{
    Caller, Contact, Levels, LoadError, Loader, NewerLevel, Options, SiteId, Stamp, TokenRefusal, Tree,
    Updates, site_of_zxid, tokens_of,
};
use stoa_wire::{Acl, CreateMode, OPEN_ACL, Opcode, ZXID_MAX, path, perms};

const HUB: SiteId = 1;
const SITE_BITS: u32 = 5;
const READ_ONLY: &[Acl<'_>] = &[Acl { perms: perms::READ, scheme: "world", id: "anyone" }];

/// Numbers that follow from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

#[derive(Debug, Clone)]
struct Asked {
    session: i64,
    frame: Frame,
}

#[derive(Debug, Clone)]
enum Entry {
    /// An update that was prepared here.
    Own(Vec<u8>),
    /// One that has come from another site.
    Import(Vec<u8>),
    /// At a leaf: what is asked of the hub. At the hub: what was asked of it.
    Forward(Asked),
}

/// A site: what its leader has in its log, and how far that is applied.
struct Site {
    id: SiteId,
    tree: Tree,
    log: Vec<Entry>,
    applied: usize,
    /// At a leaf: how far the hub has its log, and how far it has that of the hub.
    shipped: usize,
    taken: usize,
    sessions: Vec<i64>,
    /// What the hub wants back, and what it wants to have done here.
    recalls: VecDeque<String>,
    visits: VecDeque<Asked>,
}

impl Site {
    fn new(id: SiteId, hash_seed: u64) -> Self {
        let mut site = Self {
            id,
            tree: Tree::new(Options { hash_seed, ..Options::default() }),
            log: Vec::new(),
            applied: 0,
            shipped: 0,
            taken: 0,
            sessions: Vec::new(),
            recalls: VecDeque::new(),
            visits: VecDeque::new(),
        };
        let mut batch = Vec::new();
        site.tree.prepare_site(id, HUB, Stamp { zxid: 1 << SITE_BITS, time_ms: 1 }, &mut batch).unwrap();
        for update in Updates::new(&batch) {
            site.tree.apply(&update.unwrap(), &mut ()).unwrap();
        }
        site
    }

    /// Larger than all that is applied here or prepared here, and no other site's.
    fn stamp(&self, now_ms: i64) -> Stamp {
        let prepared = self.log[self.applied..].iter().filter_map(|entry| match entry {
            Entry::Own(batch) => Some(Updates::new(batch).next().unwrap().unwrap().zxid),
            _ => None,
        });
        let before = prepared.max().unwrap_or(0).max(self.tree.last_zxid());
        Stamp { zxid: ((before >> SITE_BITS) + 1) << SITE_BITS | i64::from(self.id), time_ms: now_ms }
    }

    fn keep(&mut self, batch: Vec<u8>) {
        self.log.push(Entry::Own(batch));
    }

    fn prepare(&mut self, asked: &Asked, now_ms: i64) {
        let (stamp, mut batch) = (self.stamp(now_ms), Vec::new());
        let caller = Caller { session: asked.session, identities: &[] };
        let request = asked.frame.request();
        let found = self.tree.find_held(&request);
        if self.tree.prepare_found(&request, found.as_ref(), &caller, stamp, &mut batch).is_ok() {
            self.keep(batch);
        }
    }

    fn give(&mut self, path: &str, to: SiteId, now_ms: i64) -> Result<(), TokenRefusal> {
        let (stamp, mut batch) = (self.stamp(now_ms), Vec::new());
        self.tree.prepare_token(path, to, stamp, &mut batch)?;
        self.keep(batch);
        Ok(())
    }

    fn holds(&self, asked: &Asked) -> bool {
        let request = asked.frame.request();
        let holds = self.tree.holds_tokens(&request);
        assert!(holds || self.tree.find_held(&request).is_none(), "what is found so is held");
        holds
    }

    fn apply_next(&mut self) -> Option<Entry> {
        let entry = self.log.get(self.applied)?.clone();
        self.applied += 1;
        match &entry {
            Entry::Own(batch) => {
                Updates::new(batch).for_each(|update| self.tree.apply(&update.unwrap(), &mut ()).unwrap());
            }
            Entry::Import(batch) => {
                Updates::new(batch).for_each(|update| self.tree.import(&update.unwrap(), &mut ()).unwrap());
            }
            Entry::Forward(_) => {}
        }
        Some(entry)
    }

    fn paths(&self) -> Vec<String> {
        let mut paths = vec![String::from("/")];
        let mut at = 0;
        while at < paths.len() {
            let above = if paths[at] == "/" { "" } else { paths[at].as_str() };
            let below: Vec<_> =
                self.tree.names_below(&paths[at]).map(|name| format!("{above}/{name}")).collect();
            paths.extend(below);
            at += 1;
        }
        paths
    }

    /// By way of a snapshot.
    fn reload(&mut self) {
        let (digest, prepared) = (self.tree.digest(), self.tree.last_prepared_zxid());
        let mut loader = Loader::new(Options { hash_seed: digest, ..Options::default() });
        snapshot(&mut self.tree, 100).iter().for_each(|slice| loader.chunk(slice).unwrap());
        let loaded = loader.finish().unwrap();
        assert_eq!((loaded.digest(), loaded.last_prepared_zxid()), (digest, prepared));
        assert_eq!(loaded.own_site(), Some(self.id));
        self.tree = loaded;
    }
}

/// All sites, the hub first, and the requests that wait at the hub.
struct Sites {
    random: Random,
    sites: Vec<Site>,
    queue: Vec<Asked>,
    now_ms: i64,
    next_session: i64,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Sites {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let count = 2 + random.below(3) as u8;
        let sites = (1..=count).map(|id| Site::new(id, random.next())).collect();
        Self { random, sites, queue: Vec::new(), now_ms: 1_000, next_session: 100 }
    }

    fn random_path(&mut self) -> String {
        let depth = 1 + self.random.below(3);
        (0..depth).map(|_| format!("/{}", self.random.pick(&NAMES))).collect()
    }

    fn random_op(&mut self) -> Frame {
        let path = self.random_path();
        let data = vec![7; self.random.below(400)];
        let modes = [
            CreateMode::Persistent,
            CreateMode::Persistent,
            CreateMode::Ephemeral,
            CreateMode::EphemeralSequential,
            CreateMode::PersistentSequential,
            CreateMode::Container,
        ];
        match self.random.below(10) {
            0..4 => create(&path, &data, *self.random.pick(&modes)),
            4..7 => set(&path, &data, -1),
            7 | 8 => delete(&path, -1),
            _ if self.random.one_in(4) => {
                set_acl(&path, if self.random.one_in(2) { READ_ONLY } else { OPEN_ACL }, -1)
            }
            _ => check(&path, -1),
        }
    }

    fn random_request(&mut self) -> Frame {
        match self.random.below(8) {
            0 => {
                let count = 1 + self.random.below(3);
                let ops = core::iter::repeat_with(|| self.random_op());
                // ZooKeeper has no setACL in a multi.
                let ops = ops.filter(|op| op.opcode != Opcode::SetAcl).take(count);
                multi(&ops.collect::<Vec<_>>())
            }
            // What a session may do to an ephemeral that is none after all.
            1 => {
                let path = self.random_path();
                let create = create(&path, b"e", CreateMode::Ephemeral);
                multi(&[create, set(&path, b"f", 0), check(&path, 1), delete(&path, 1)])
            }
            _ => self.random_op(),
        }
    }

    fn client(&mut self) {
        let at = self.random.below(self.sites.len());
        self.now_ms += 1;
        let now_ms = self.now_ms;
        if self.sites[at].sessions.len() < 3 && self.random.one_in(6) {
            let session = self.next_session;
            self.next_session += 1;
            let site = &mut self.sites[at];
            let (stamp, mut batch) = (site.stamp(now_ms), Vec::new());
            let contact = Contact { server: site.id, opening: 1 };
            site.tree.prepare_create_session(session, 5_000, [1; 16], contact, stamp, &mut batch).unwrap();
            site.keep(batch);
            site.sessions.push(session);
            return;
        }
        let count = self.sites[at].sessions.len();
        if count == 0 {
            return;
        }
        let which = self.random.below(count);
        if self.random.one_in(12) {
            let site = &mut self.sites[at];
            let session = site.sessions.swap_remove(which);
            let (stamp, mut batch) = (site.stamp(now_ms), Vec::new());
            site.tree.prepare_close_session(session, stamp, &mut batch);
            site.keep(batch);
            return;
        }
        let asked = Asked { session: self.sites[at].sessions[which], frame: self.random_request() };
        let site = &mut self.sites[at];
        if site.holds(&asked) {
            site.prepare(&asked, now_ms);
        } else if at == 0 {
            self.queue.push(asked);
        } else {
            site.log.push(Entry::Forward(asked));
        }
    }

    fn apply_at(&mut self, at: usize) -> bool {
        let applied = self.sites[at].apply_next();
        if at == 0
            && let Some(Entry::Forward(asked)) = &applied
        {
            self.queue.push(asked.clone());
        }
        applied.is_some()
    }

    /// The hub takes what a leaf has done.
    fn ship_up(&mut self, leaf: usize) -> bool {
        let (hub, leaves) = self.sites.split_first_mut().unwrap();
        let leaf = &mut leaves[leaf - 1];
        while leaf.shipped < leaf.applied {
            let entry = leaf.log[leaf.shipped].clone();
            leaf.shipped += 1;
            match entry {
                Entry::Own(batch) => hub.log.push(Entry::Import(batch)),
                Entry::Forward(asked) => hub.log.push(Entry::Forward(asked)),
                Entry::Import(_) => continue,
            }
            return true;
        }
        false
    }

    /// A leaf takes what the hub has, but for what was its own.
    fn ship_down(&mut self, leaf: usize) -> bool {
        let (hub, leaves) = self.sites.split_first_mut().unwrap();
        let leaf = &mut leaves[leaf - 1];
        while leaf.taken < hub.applied {
            let entry = hub.log[leaf.taken].clone();
            leaf.taken += 1;
            let (Entry::Own(batch) | Entry::Import(batch)) = entry else { continue };
            let zxid = Updates::new(&batch).next().unwrap().unwrap().zxid;
            if site_of_zxid(zxid) != leaf.id {
                leaf.log.push(Entry::Import(batch));
                return true;
            }
        }
        false
    }

    /// The hub takes a request that waits, or sees to it that it need wait no longer.
    fn serve(&mut self, which: usize) {
        let asked = self.queue.swap_remove(which);
        let now_ms = self.now_ms;
        let missing = self.sites[0].tree.lacked_tokens(&asked.frame.request()).missing;
        if missing.is_empty() {
            self.sites[0].prepare(&asked, now_ms);
            return;
        }
        if missing.len() == 1 && self.random.one_in(2) {
            let holder = usize::from(missing[0].1) - 1;
            self.sites[holder].visits.push_back(asked);
            return;
        }
        for (path, holder) in missing {
            self.sites[usize::from(holder) - 1].recalls.push_back(path);
        }
        // Ephemerals stay where they are, and what needs one of them and something else is not done.
        if !self.random.one_in(8) {
            self.queue.push(asked);
        }
    }

    fn hear_hub(&mut self, at: usize) -> bool {
        let now_ms = self.now_ms;
        let site = &mut self.sites[at];
        if let Some(path) = site.recalls.pop_front() {
            // What is not there is held with what is above it.
            let mut path = path.as_str();
            while site.give(path, HUB, now_ms) == Err(TokenRefusal::NoZnode) {
                path = match path::split(path) {
                    Some((parent, _)) => parent,
                    None => break,
                };
            }
            return true;
        }
        let Some(asked) = site.visits.pop_front() else { return false };
        if site.holds(&asked) {
            site.prepare(&asked, now_ms);
        }
        true
    }

    fn grant(&mut self) {
        let to = 2 + self.random.below(self.sites.len() - 1) as u8;
        let path = if self.random.one_in(20) { "/".into() } else { self.random_path() };
        let now_ms = self.now_ms;
        let _ = self.sites[0].give(&path, to, now_ms);
    }

    fn step(&mut self) {
        let at = self.random.below(self.sites.len());
        let leaf = 1 + self.random.below(self.sites.len() - 1);
        match self.random.below(12) {
            0..3 => self.client(),
            3..6 => drop(self.apply_at(at)),
            6 | 7 => drop(self.ship_up(leaf)),
            8 | 9 => drop(self.ship_down(leaf)),
            10 if !self.queue.is_empty() => {
                let which = self.random.below(self.queue.len());
                self.serve(which);
            }
            _ if self.random.one_in(2) => self.grant(),
            _ => drop(self.hear_hub(at)),
        }
        let path = self.random_path();
        self.check_holders(&path);
        if self.random.one_in(200) && self.sites[at].applied == self.sites[at].log.len() {
            self.sites[at].reload();
        }
    }

    /// No two sites prepare what needs the same token.
    fn check_holders(&self, path: &str) {
        let holds = |site: &&Site| site.tree.holder_to_be(path) == Some(site.id);
        let holders: Vec<_> = self.sites.iter().filter(holds).map(|site| site.id).collect();
        assert!(holders.len() <= 1, "{path} is held by {holders:?}");
    }

    /// Until nothing is on its way any more.
    fn settle(&mut self) {
        self.queue.clear();
        let mut is_busy = true;
        while is_busy {
            is_busy = false;
            for at in 0..self.sites.len() {
                self.sites[at].visits.clear();
                self.sites[at].recalls.clear();
                while self.apply_at(at) {
                    is_busy = true;
                }
                while at > 0 && self.ship_up(at) | self.ship_down(at) {
                    is_busy = true;
                }
            }
            self.queue.clear();
        }
    }

    fn check_equal(&mut self) {
        let paths = self.sites[0].paths();
        for site in &mut self.sites {
            assert_eq!(site.tree.digest(), site.tree.recomputed_digest());
            assert!(!site.tree.has_proposed());
            // Also the order of children.
            assert_eq!(site.paths(), paths, "at site {}", site.id);
        }
        for path in &paths {
            let stats: BTreeMap<_, _> = self
                .sites
                .iter()
                .map(|site| (site.id, (site.stat_of(path), site.tree.holder(path))))
                .collect();
            let different: BTreeSet<_> = stats.values().map(|seen| format!("{seen:?}")).collect();
            assert_eq!(different.len(), 1, "{path}: {stats:#?}");
            let tree = &self.sites[0].tree;
            let holder = tree.holder_to_be(path);
            // An ephemeral is its session's, whatever the mark above it says.
            if let Some(marked) = tree.marked_at(path) {
                let is_above = marked == "/" || *path == *marked || path.starts_with(&format!("{marked}/"));
                assert!(is_above && tree.holder(marked) == holder, "{marked} above {path}");
            }
            self.check_holders(path);
            assert!(self.sites.iter().any(|site| Some(site.id) == holder), "somebody holds {path}");
        }
        let digests: BTreeSet<_> = self.sites.iter().map(|site| site.tree.digest()).collect();
        assert_eq!(digests.len(), 1);
        for site in &mut self.sites {
            let ended = site.tree.ended_count();
            site.tree.forget_ended(ended);
            assert_eq!(site.tree.ended_count(), ended);
            site.reload();
        }
    }

    fn run(seed: u64, steps: usize) {
        let mut sites = Self::new(seed);
        for _ in 0..3 {
            (0..steps).for_each(|_| sites.step());
            sites.settle();
            sites.check_equal();
        }
    }
}

impl Site {
    fn stat_of(&self, path: &str) -> stoa_wire::Stat {
        self.tree.get(path).unwrap().stat()
    }
}

/// `SITES_SEEDS=FIRST,COUNT` tries others.
#[test]
fn sites_come_to_the_same_state() {
    let seeds = std::env::var("SITES_SEEDS").unwrap_or_else(|_| "0,300".into());
    let (first, count) = seeds.split_once(',').expect("FIRST,COUNT");
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    for seed in first..first + count {
        let ran = std::panic::catch_unwind(|| Sites::run(seed, 700));
        assert!(ran.is_ok(), "seed {seed}");
    }
}

#[test]
fn an_operation_needs_the_tokens_of_what_it_rests_on() {
    let tokens = |frame: &Frame| {
        let mut tokens = Vec::new();
        let request = frame.request();
        tokens_of(&request, &mut |path| tokens.push(String::from(path)));
        tokens
    };
    for mode in [CreateMode::Persistent, CreateMode::EphemeralSequential, CreateMode::Container] {
        assert_eq!(tokens(&create("/a/b", b"", mode)), ["/a"]);
    }
    assert_eq!(tokens(&create("/a", b"", CreateMode::Persistent)), ["/"]);
    assert_eq!(tokens(&delete("/a/b", -1)), ["/a/b"]);
    assert_eq!(tokens(&delete_container("/a/b")), ["/a/b"]);
    assert_eq!(tokens(&set("/a/b", b"", -1)), ["/a/b"]);
    assert_eq!(tokens(&set_acl("/a/b", OPEN_ACL, -1)), ["/a/b"]);
    assert_eq!(tokens(&check("/a/b", 3)), ["/a/b"]);
    let all = multi(&[check("/g", 1), create("/a/b", b"", CreateMode::Persistent), set("/a/b", b"", -1)]);
    assert_eq!(tokens(&all), ["/g", "/a", "/a/b"]);
    assert_eq!(tokens(&create("a", b"", CreateMode::Persistent)), [""; 0]);
}

#[test]
fn what_others_do_to_the_parent_of_what_is_deleted_here_counts_before_that_is_applied() {
    let (mut hub, mut leaf) = (Site::new(HUB, 5), Site::new(2, 6));
    let ask = |site: &mut Site, frame: Frame| site.prepare(&Asked { session: 0, frame }, 3);
    let tell = |hub: &mut Site, leaf: &mut Site| {
        while let Some(Entry::Own(batch)) = hub.apply_next() {
            Updates::new(&batch).for_each(|update| leaf.tree.import(&update.unwrap(), &mut ()).unwrap());
        }
    };
    ask(&mut hub, create("/a", b"", CreateMode::Persistent));
    ask(&mut hub, create("/a/y", b"", CreateMode::Persistent));
    hub.give("/a/y", 2, 4).unwrap();
    tell(&mut hub, &mut leaf);
    // It needs no token of the parent, which is the hub's.
    ask(&mut leaf, delete("/a/y", -1));
    ask(&mut hub, set("/a", b"1", -1));
    ask(&mut hub, set_acl("/a", OPEN_ACL, -1));
    ask(&mut hub, create("/a/n", b"", CreateMode::PersistentSequential));
    hub.give("/a", 2, 5).unwrap();
    tell(&mut hub, &mut leaf);
    assert_eq!(leaf.tree.holder_to_be("/a"), Some(2));
    ask(&mut leaf, set("/a", b"2", -1));
    ask(&mut leaf, create("/a/n", b"", CreateMode::PersistentSequential));
    while leaf.apply_next().is_some() {}
    let stat = leaf.tree.get("/a").unwrap().stat();
    assert_eq!((stat.version, stat.aversion, stat.num_children), (2, 1, 2));
    let names: Vec<_> = leaf.tree.names_below("/a").collect();
    assert_eq!(names, ["n0000000001", "n0000000002"]);
}

#[test]
fn the_mark_of_a_znode_that_will_be_gone_does_not_count_any_more() {
    let mut hub = Site::new(HUB, 5);
    let ask = |hub: &mut Site, frame: Frame| hub.prepare(&Asked { session: 0, frame }, 3);
    ask(&mut hub, create("/a", b"", CreateMode::Persistent));
    ask(&mut hub, create("/a/y", b"", CreateMode::Persistent));
    hub.give("/a/y", 3, 4).unwrap();
    assert_eq!(hub.tree.holder_to_be("/a/y"), Some(3), "as is proposed");
    while hub.apply_next().is_some() {}
    ask(&mut hub, delete("/a/y", -1));
    ask(&mut hub, create("/a/y", b"", CreateMode::Persistent));
    for path in ["/a/y", "/a/y/z", "/a"] {
        assert_eq!(hub.tree.holder_to_be(path), Some(HUB), "{path}: what comes in its place is its parent's");
    }
    assert_eq!(hub.tree.holder("/a/y"), Some(3), "nothing of it is applied");
    while hub.apply_next().is_some() {}
    assert_eq!(hub.tree.holder("/a/y"), Some(HUB));
    assert!(!hub.tree.has_proposed());
}

#[test]
fn a_snapshot_says_whether_the_hub_has_asked_for_promises() {
    let mut site = Site::new(2, 5).tree;
    let seen: Vec<_> = site.seen().collect();
    for reign in [0, 7, u64::MAX] {
        site.streams_mut().has_promised_in(reign);
        let loaded = load(&snapshot(&mut site, 100)).unwrap();
        assert_eq!(loaded.streams().promised_in(), reign.min(ZXID_MAX as u64));
        assert_eq!(loaded.seen().collect::<Vec<_>>(), seen);
    }
    // An earlier one takes nothing back.
    site.streams_mut().has_promised_in(3);
    assert_eq!(site.streams().promised_in(), u64::MAX);
}

#[test]
fn what_a_client_was_told_before_it_came_is_known_also_from_a_snapshot() {
    const STAYS: i64 = 7;
    const GOES: i64 = 8;
    let (mut hub, (mut leaf, _)) = (Site::new(HUB, 5), raised(Levels { oldest: 1, newest: 2 }));
    let take = |hub: &mut Site, leaf: &mut Site, batch: &[u8]| {
        for update in Updates::new(batch).map(Result::unwrap) {
            hub.tree.apply(&update, &mut ()).unwrap();
            leaf.tree.import(&update, &mut ()).unwrap();
        }
    };
    for session in [STAYS, GOES] {
        let (stamp, mut batch) = (hub.stamp(3), Vec::new());
        let contact = Contact::default();
        hub.tree.prepare_create_session(session, 5_000, [1; 16], contact, stamp, &mut batch).unwrap();
        take(&mut hub, &mut leaf, &batch);
    }
    let (stamp, mut batch) = (hub.stamp(3), Vec::new());
    hub.tree.prepare_home(GOES, &[1; 16], 2, stamp, &mut batch).unwrap();
    take(&mut hub, &mut leaf, &batch);
    let came_zxid = leaf.tree.last_zxid();
    let slices = snapshot(&mut leaf.tree, 100);
    let mut loader = Loader::new(Options { levels: Levels { oldest: 1, newest: 2 }, ..Options::default() });
    slices.iter().for_each(|slice| loader.chunk(slice).unwrap());
    for tree in [leaf.tree, loader.finish().unwrap()] {
        assert!(tree.was_told_elsewhere(GOES, came_zxid) && !tree.was_told_elsewhere(GOES, came_zxid + 1));
        assert!(!tree.was_told_elsewhere(STAYS, 1) && !tree.was_told_elsewhere(9, 1));
    }
    assert!(!hub.tree.was_told_elsewhere(GOES, 1), "it is not there any more");
}

/// The hub raises the feature level to 2, with everything that it does for that.
fn raised(levels: Levels) -> (Site, Vec<u8>) {
    let mut hub = Site::new(HUB, 5);
    let (stamp, mut batch) = (hub.stamp(3), Vec::new());
    hub.tree.prepare_level(2, stamp, &mut batch).unwrap();
    let mut tree = Tree::new(Options { levels, ..Options::default() });
    let mut begun = Vec::new();
    tree.prepare_site(2, HUB, Stamp { zxid: 1 << SITE_BITS, time_ms: 1 }, &mut begun).unwrap();
    Updates::new(&begun).for_each(|update| tree.apply(&update.unwrap(), &mut ()).unwrap());
    Updates::new(&batch).for_each(|update| tree.import(&update.unwrap(), &mut ()).unwrap());
    (Site { tree, ..Site::new(2, 7) }, batch)
}

#[test]
fn the_feature_level_is_raised_by_the_hub_and_never_lowered() {
    let mut hub = Site::new(HUB, 5);
    assert_eq!((hub.tree.level(), hub.tree.levels()), (1, Levels::OWN));
    let (stamp, mut batch) = (hub.stamp(3), Vec::new());
    assert_eq!(hub.tree.prepare_level(1, stamp, &mut batch), Err(TokenRefusal::NoSite));
    assert_eq!(Site::new(2, 6).tree.prepare_level(2, stamp, &mut batch), Err(TokenRefusal::NoSite));
    let none = Tree::new(Options::default()).prepare_level(2, stamp, &mut batch);
    assert_eq!((none, batch.len()), (Err(TokenRefusal::NoSite), 0));
    hub.tree.prepare_level(3, stamp, &mut batch).unwrap();
    // As who has led before may have proposed it.
    let (_, before) = raised(Levels::OWN);
    for update in Updates::new(&batch).chain(Updates::new(&before)) {
        let update = update.unwrap();
        hub.tree.apply(&update, &mut ()).unwrap();
    }
    assert_eq!(hub.tree.level(), 3);
    assert!(
        Tree::new(Options::default()).apply(&Updates::new(&batch).next().unwrap().unwrap(), &mut ()).is_err()
    );
}

#[test]
fn whoever_cannot_read_a_level_says_so_before_anything_of_it_is_read() {
    let levels = Levels { oldest: 1, newest: 2 };
    let (mut site, _) = raised(levels);
    assert_eq!((site.tree.level(), site.tree.check_level()), (2, Ok(())));
    let slices = snapshot(&mut site.tree, 100);
    let load = |levels, slices: &[Vec<u8>]| {
        let mut loader = Loader::new(Options { levels, ..Options::default() });
        slices.iter().try_for_each(|slice| loader.chunk(slice)).and_then(|()| loader.finish())
    };
    assert_eq!(load(levels, &slices).unwrap().level(), 2);
    let newer = NewerLevel { level: 2, newest: 1 };
    // Records of which nobody here knows come behind it.
    let mut strange = slices.concat();
    strange.extend_from_slice(&[99; 8]);
    let refused = load(Levels::OWN, &[strange]).unwrap_err();
    assert_eq!(refused, LoadError::NewerLevel(newer));
    assert!(refused.to_string().contains("level 2, and this release reads up to level 1"), "{refused}");
    let (old, _) = raised(Levels::OWN);
    assert_eq!((old.tree.level(), old.tree.check_level()), (2, Err(newer)));
    // As long as no level was raised nothing is said of any.
    let mut first = Site::new(HUB, 5).tree;
    let (mut site, _) = raised(levels);
    assert_eq!(snapshot(&mut site.tree, 1 << 20)[0][34..36], [22, 2]);
    assert_ne!(snapshot(&mut first, 1 << 20)[0][34], 22);
}
