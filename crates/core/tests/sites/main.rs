//! Several sites, each a server that stands alone, and streams between them that are as late as they like, and break;
//! servers that lose what is not durable, and come back with what is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod contacts;
mod divided;
mod durable;
mod joining;
mod lease;
mod levels;
mod lost;
mod policy;
mod programs;
mod random;
mod read_tokens;
mod readers;
mod reign;
mod requests;
mod server;
mod sessions;
mod status;

use bytes::Bytes;
use requests::*;
use server::{Server, WholeTree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use stoa_core::{
    Backlog, BacklogWanted, CloseReason, Config, ConnectionId, Greeting, Items, Levels, Now, Output,
    Placement, PolicyKind, PolicySettings, Recovered, Restore, Shard, SiteConfig, SiteId, SnapshotOutput,
    is_of_later_life, is_torn_from, timeline_of,
};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectResponse, CreateMode, ErrorCode, MultiHeader, OPEN_ACL, Opcode, Reader, ReplyHeader, WatcherEvent,
    next_frame, put, request::encode, xid,
};

const HUB: SiteId = 1;

struct Site {
    id: SiteId,
    server: Server,
    /// Handed to the log and not yet said to be durable.
    log: Vec<stoa_core::Append>,
    disk: Vec<(u64, Bytes)>,
    /// The slices of its last snapshot.
    snapshot: Vec<Vec<u8>>,
    closed: BTreeMap<ConnectionId, CloseReason>,
}

/// What has been said and not heard, by who says it and to whom.
type Links = BTreeMap<(SiteId, SiteId), VecDeque<Bytes>>;

struct World {
    sites: Vec<Site>,
    links: Links,
    cut: BTreeSet<(SiteId, SiteId)>,
    /// To which the others are connected.
    hub: SiteId,
    /// Sites that are lost for good.
    dead: BTreeSet<SiteId>,
    /// Who cannot tell whom what that lacks.
    torn: BTreeSet<(SiteId, SiteId)>,
    now: Now,
    starts: u16,
    /// So much is kept in memory of what other sites may lack; the rest is read from the log.
    kept_bytes: u64,
    policy: PolicySettings,
    /// Whether another site takes the hub's place without an operator.
    is_automatic: bool,
    /// At which feature levels the servers of a site can work, if it is not this release.
    levels: BTreeMap<SiteId, Levels>,
    /// How many partitions the sites have, where they are divided.
    partitions: Vec<u8>,
}

type Client = (SiteId, ConnectionId);

/// The paper's policy: it decides without round trips, so that a story is the same wherever its sites are.
const PAPER: PolicyKind = PolicyKind::Consecutive(2);

fn of_kind(kind: PolicyKind) -> PolicySettings {
    PolicySettings { kind, ..PolicySettings::default() }
}

fn config(site: SiteId, kept_bytes: u64, policy: PolicySettings) -> Config {
    let of_site = SiteConfig { policy, ..SiteConfig::default() };
    Config { server_id: site * 10, site: Some(of_site), kept_bytes, ..Config::default() }
}

fn options() -> Options {
    Options { enforce_quota: true, ..Options::default() }
}

impl Site {
    /// What other sites lack and is not kept any more, a few entries at a time.
    fn read_backlog(&mut self, now: Now) -> bool {
        let Some(wanted) = self.server.poll_site_backlog() else { return false };
        let BacklogWanted { site: to, since, upto, .. } = wanted;
        let (mut backlog, mut entries) = (Backlog::new(wanted), Vec::new());
        for (_, record) in &self.disk {
            backlog.record(record.clone(), &mut entries).unwrap();
        }
        let ended = backlog.end(&mut entries);
        assert!(
            ended.is_ok(),
            "{wanted:?} {ended:?} {:?} {:?}",
            self.disk.len(),
            self.server.tree().streams()
        );
        let mut since = since;
        for some in entries.chunks(3) {
            assert!(self.server.site_backlog(to, since, some, now));
            since = some.last().map_or(since, |(position, _)| *position);
        }
        assert!(!self.server.site_backlog(to, since + 1, &[], now), "that is not what follows");
        self.server.site_backlog_ended(to, upto, now);
        true
    }

    fn take_snapshot(&mut self, now: Now) {
        if let Some(slices) = self.server.take_snapshot(now) {
            self.snapshot = slices;
        }
    }
}

impl World {
    fn new(count: u8) -> Self {
        Self::with(count, 64 << 20, of_kind(PAPER))
    }

    fn with(count: u8, kept_bytes: u64, policy: PolicySettings) -> Self {
        Self::made(count, kept_bytes, policy, false)
    }

    /// Sites that are divided over so many partitions.
    fn divided(partitions: &[u8]) -> Self {
        let count = partitions.len() as u8;
        Self::begun(count, 64 << 20, of_kind(PAPER), false, partitions.to_vec())
    }

    fn made(count: u8, kept_bytes: u64, policy: PolicySettings, is_automatic: bool) -> Self {
        Self::begun(count, kept_bytes, policy, is_automatic, wanted_partitions())
    }

    fn begun(
        count: u8,
        kept_bytes: u64,
        policy: PolicySettings,
        is_automatic: bool,
        partitions: Vec<u8>,
    ) -> Self {
        let now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let mut world = Self {
            sites: Vec::new(),
            links: Links::new(),
            cut: BTreeSet::new(),
            hub: HUB,
            dead: BTreeSet::new(),
            torn: BTreeSet::new(),
            now,
            starts: 100,
            kept_bytes,
            policy,
            is_automatic,
            levels: BTreeMap::new(),
            partitions,
        };
        world.found(HUB);
        let list: String = (1..=count).map(|site| format!("site.{site}=a;b:1\n")).collect();
        world.site(HUB).server.begin_sites(HUB, &list, now).unwrap();
        world.poll(HUB);
        while world.store(HUB) {}
        (2..=count).for_each(|leaf| world.join(leaf));
        world.settle();
        world
    }

    /// How many partitions a site has.
    fn partitions(&self, id: SiteId) -> u8 {
        self.partitions.get(usize::from(id) - 1).copied().unwrap_or(1)
    }

    fn config(&self, id: SiteId) -> Config {
        let (policy, automatic_promotion) = (self.policy, self.is_automatic);
        let of_site = SiteConfig { policy, automatic_promotion, ..SiteConfig::default() };
        Config { site: Some(of_site), ..config(id, self.kept_bytes, self.policy) }
    }

    /// A server that has nothing.
    fn found(&mut self, id: SiteId) {
        let partitions = self.partitions(id);
        let recovered = Server::empty(&self.options(id), id * 10, partitions);
        let server = Server::new(&self.config(id), partitions, recovered, [id; 32], self.now);
        let (log, disk, snapshot, closed) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        let site = Site { id, server, log, disk, snapshot, closed };
        match self.sites.get_mut(usize::from(id) - 1) {
            Some(before) => *before = site,
            None => self.sites.push(site),
        }
        self.poll(id);
        while self.store(id) {}
    }

    /// One more site comes.
    fn join(&mut self, leaf: SiteId) {
        self.found(leaf);
        self.connect_sites(leaf);
    }

    fn site(&mut self, id: SiteId) -> &mut Site {
        &mut self.sites[usize::from(id) - 1]
    }

    fn site_at(&self, id: SiteId) -> &Server {
        &self.sites[usize::from(id) - 1].server
    }

    fn tree(&self, id: SiteId) -> WholeTree<'_> {
        self.sites[usize::from(id) - 1].server.whole()
    }

    /// What is on its way between a leaf and the hub is lost, and both begin anew.
    fn connect_sites(&mut self, leaf: SiteId) {
        let (now, hub) = (self.now, self.hub);
        self.links.remove(&(leaf, hub));
        self.links.remove(&(hub, leaf));
        if self.dead.contains(&leaf) || self.dead.contains(&hub) {
            return;
        }
        self.follow(leaf);
        let tree = self.tree(hub);
        let is_hub = tree.hub() == Some(hub) && tree.streams().claim().is_none();
        if is_hub && tree.is_lost(leaf) && self.site_at(leaf).has_joined() {
            // It is told so, and serves nobody.
            self.dead.insert(leaf);
            return;
        }
        if !self.compare_levels(leaf) {
            return;
        }
        if is_of_later_life(self.site_at(hub), leaf, &Greeting::of(self.site_at(leaf), false)) {
            self.torn.insert((leaf, hub));
            return;
        }
        self.site(hub).server.site_connected(leaf, now);
        self.site(leaf).server.site_connected(hub, now);
        self.poll(hub);
        self.poll(leaf);
    }

    fn poll(&mut self, id: SiteId) {
        let now = self.now;
        let site = &mut self.sites[usize::from(id) - 1];
        site.server.settle(now);
        while site.server.poll_peer().is_some() {}
        while let Some(output) = site.server.poll_output() {
            if let Output::Close(connection, reason) = output {
                site.closed.insert(connection, reason);
            }
        }
        loop {
            while let Some(append) = site.server.poll_append() {
                assert_eq!(append.timeline, timeline_of(site.server.partitions()));
                site.log.push(append);
            }
            site.server.settle(now);
            if site.server.append_bytes() == 0 {
                break;
            }
        }
        loop {
            while let Some((to, message)) = site.server.poll_site() {
                self.links.entry((id, to)).or_default().push_back(message);
            }
            if !site.read_backlog(self.now) {
                break;
            }
        }
        site.take_snapshot(now);
        let torn = site.server.poll_torn_site();
        self.torn.extend(torn.map(|lacks| (id, lacks)));
        while let Some((to, position)) = self.site(id).server.poll_site_state() {
            let slices = self.site(id).snapshot.clone();
            self.give_state((id, to), &slices, position);
        }
    }

    /// The hub's state comes to a site.
    fn give_state(&mut self, (hub, to): (SiteId, SiteId), slices: &[Vec<u8>], position: u64) {
        let now = self.now;
        let partitions = self.site(hub).server.partitions();
        for (at, slice) in slices.iter().enumerate() {
            self.site(to).server.site_state(if at == 0 { partitions } else { 0 }, slice, now);
        }
        self.site(to).server.site_state_ended(to, hub, position, now);
        self.poll(to);
    }

    /// A site's log stores everything that it has.
    fn store(&mut self, id: SiteId) -> bool {
        let now = self.now;
        let site = self.site(id);
        let Some(last) = site.log.last().map(|last| last.position) else { return false };
        let stored = site.log.drain(..).map(|append| (append.position, append.payload.join()));
        site.disk.extend(stored);
        site.server.appended(last, now);
        self.poll(id);
        true
    }

    /// A site's log has no room for what it has.
    fn refuse(&mut self, id: SiteId) {
        let now = self.now;
        let site = self.site(id);
        let Some(generation) = site.log.first().map(|append| append.generation) else { return };
        site.log.clear();
        assert!(site.server.append_refused(generation, now));
        self.poll(id);
    }

    fn carry(&mut self, from: SiteId, to: SiteId) -> bool {
        if self.cut.contains(&(from, to)) {
            return false;
        }
        let Some(message) = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        let now = self.now;
        if std::env::var_os("SITES_STORY").is_some() {
            tell(from, to, &message);
        }
        self.site(to).server.site_message(from, &message, now).unwrap();
        self.poll(to);
        true
    }

    fn pairs(&self) -> Vec<(SiteId, SiteId)> {
        self.leaves().into_iter().flat_map(|leaf| [(leaf, self.hub), (self.hub, leaf)]).collect()
    }

    fn alive(&self) -> Vec<SiteId> {
        self.sites.iter().map(|site| site.id).filter(|id| !self.dead.contains(id)).collect()
    }

    fn leaves(&self) -> Vec<SiteId> {
        self.alive().into_iter().filter(|id| *id != self.hub).collect()
    }

    /// Until nothing more happens by itself.
    fn settle(&mut self) {
        let (mut is_busy, mut turns) = (true, 0);
        while is_busy {
            (is_busy, turns) = (false, turns + 1);
            assert!(turns < 10_000, "it never comes to an end");
            for id in self.alive() {
                is_busy |= self.store(id);
            }
            for (from, to) in self.pairs() {
                is_busy |= self.carry(from, to);
            }
        }
    }

    /// The same, but that the server of a site dies at a step of the first turns, and begins again.
    fn settle_with_a_death(&mut self, turns: usize, dies: SiteId, step: usize) {
        let mut steps = 0;
        let mut passes = |world: &mut Self| {
            steps += 1;
            if steps == step {
                world.restart(dies);
            }
        };
        for _ in 0..turns {
            for (from, to) in self.pairs() {
                self.store(from);
                passes(self);
                self.carry(from, to);
                passes(self);
            }
        }
        self.settle();
    }

    /// The server of a site ends, and begins again with what is durable.
    fn start_again(&mut self, id: SiteId) {
        let now = self.now;
        self.starts += 1;
        let mut secret = [7; 32];
        secret[..2].copy_from_slice(&self.starts.to_le_bytes());
        let (options, config, partitions) = (self.options(id), self.config(id), self.partitions(id));
        let recovered = Server::restored(options, id * 10, partitions, &self.site(id).disk);
        let site = self.site(id);
        site.server = Server::new(&config, partitions, recovered, secret, now);
        site.log.clear();
        site.closed.clear();
        self.poll(id);
    }

    /// The same, and it is connected again.
    fn restart(&mut self, id: SiteId) {
        self.start_again(id);
        let leaves = if id == self.hub { self.leaves() } else { vec![id] };
        leaves.into_iter().for_each(|leaf| self.connect_sites(leaf));
    }

    fn pass(&mut self, ms: u64) {
        self.tick(ms);
        self.settle();
    }

    fn tick(&mut self, ms: u64) {
        self.now.mono_us += ms * 1000;
        self.now.wall_ms += ms as i64;
        let now = self.now;
        for id in self.alive() {
            self.site(id).server.tick_all(now);
            self.poll(id);
        }
    }

    // ---- clients ----

    fn open(&mut self, id: SiteId) -> Client {
        self.open_with(id, 0, &[0; 16]).0
    }

    fn open_with(&mut self, id: SiteId, session_id: i64, password: &[u8]) -> (Client, ConnectResponse) {
        let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let now = self.now;
        let connection = self.site(id).server.connect(peer, now).unwrap();
        let client = (id, connection);
        self.send(client, &opening(session_id, password));
        self.store(id);
        self.store(id);
        let bytes = self.take_bytes(client);
        let (payload, _) = next_frame(&bytes, 1000).unwrap().unwrap();
        (client, ConnectResponse::decode(payload).unwrap())
    }

    /// A client comes to a site with its session, wherever that is.
    fn come(&mut self, id: SiteId, session: i64, password: &[u8]) -> (Client, ConnectResponse) {
        self.come_after(0, id, session, password)
    }

    /// The same, and it was told a zxid.
    fn come_after(
        &mut self,
        told: i64,
        id: SiteId,
        session: i64,
        password: &[u8],
    ) -> (Client, ConnectResponse) {
        let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let now = self.now;
        let client = (id, self.site(id).server.connect(peer, now).unwrap());
        self.send(client, &opening_after(told, session, password));
        self.settle();
        self.pass_if_divided();
        let bytes = self.take_bytes(client);
        let (payload, _) = next_frame(&bytes, 1000).unwrap().unwrap();
        (client, ConnectResponse::decode(payload).unwrap())
    }

    /// A partition that has asked where the log ends before anybody led asks once more, when that has taken long.
    fn pass_if_divided(&mut self) {
        if is_divided() {
            (0..4).for_each(|_| self.pass(100));
        }
    }

    fn send(&mut self, (site, id): Client, bytes: &[u8]) {
        let now = self.now;
        let consumed = self.site(site).server.receive(id, bytes, now);
        assert_eq!(consumed, bytes.len());
        self.poll(site);
    }

    fn take_bytes(&mut self, (site, id): Client) -> Vec<u8> {
        let now = self.now;
        let server = &mut self.site(site).server;
        let bytes = server.output(id).to_vec();
        server.sent(id, bytes.len(), now);
        self.poll(site);
        bytes
    }

    fn take(&mut self, client: Client) -> Vec<Frame> {
        let bytes = self.take_bytes(client);
        let mut rest = bytes.as_slice();
        let mut frames = Vec::new();
        while let Some((payload, tail)) = next_frame(rest, usize::MAX >> 1).unwrap() {
            let mut reader = Reader::new(payload);
            let ReplyHeader { xid, zxid, err } = ReplyHeader::decode(&mut reader).unwrap();
            frames.push(Frame { xid, zxid, err, body: reader.rest().to_vec() });
            rest = tail;
        }
        frames
    }

    /// Asks and waits.
    fn ask(&mut self, client: Client, bytes: &[u8]) -> Frame {
        self.send(client, bytes);
        self.settle();
        let mut frames = self.take(client);
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames.remove(0)
    }

    /// Asks, and what is answered needs no other site.
    fn ask_here(&mut self, client: Client, bytes: &[u8]) -> Option<Frame> {
        self.send(client, bytes);
        while self.store(client.0) {}
        self.take(client).pop()
    }

    fn check_equal(&self) {
        let alive = || self.sites.iter().filter(|site| !self.dead.contains(&site.id));
        for site in alive() {
            let tree = site.server.tree();
            assert!(
                site.server.has_joined(),
                "{} has not joined {} ({}): {:?} {:?}",
                site.id,
                self.hub,
                self.site_at(self.hub).snapshots(),
                tree.streams(),
                self.tree(self.hub).streams()
            );
        }
        if self.partitions.is_empty() {
            let digests: BTreeSet<_> = alive().map(|site| site.server.tree().digest()).collect();
            assert_eq!(digests.len(), 1);
        }
        let mut all = alive().map(|site| (site.id, site.server.whole().znodes()));
        let (first, znodes) = all.next().unwrap();
        for (other, others) in all {
            for (path, seen) in znodes.iter().chain(&others) {
                assert_eq!(znodes.get(path), others.get(path), "{path} at {first} and {other}: {seen}");
            }
        }
        for site in alive() {
            assert!(site.server.tree().streams().is_empty(), "something waits at site {}", site.id);
        }
    }
}

/// Stories can be told of divided sites, too: `SITES_PARTITIONS=2,3,1`.
fn wanted_partitions() -> Vec<u8> {
    let wanted = std::env::var("SITES_PARTITIONS").unwrap_or_default();
    wanted.split(',').filter_map(|count| count.parse().ok()).collect()
}

/// All of them, once more, of sites that are divided, each in its own way, and of such as are divided in the same way: there
/// programs have what they need on one partition.
#[test]
fn the_stories_are_told_of_divided_sites_too() {
    if is_divided() {
        return;
    }
    for partitions in ["2,3,1,4", "3,3,3"] {
        let mut told = std::process::Command::new(std::env::current_exe().unwrap());
        let told = told.env("SITES_PARTITIONS", partitions).args(["--skip", "divided::"]).output().unwrap();
        assert!(told.status.success(), "{partitions}: {}", String::from_utf8_lossy(&told.stdout));
    }
}

/// Whether stories are told of divided sites. There a client's next request to another partition waits for the answers
/// before it, and partitions hear a moment later what the operator says.
fn is_divided() -> bool {
    !wanted_partitions().is_empty()
}

/// Prints what one site says to another one.
fn tell(from: SiteId, to: SiteId, message: &Bytes) {
    eprintln!(
        "{from} to {to}: kind {} {} bytes {:?}",
        message[0],
        message.len(),
        &message[1..message.len().min(17)]
    );
    let mut at = 17;
    while message[0] == 1 && at < message.len() {
        let position = u64::from_le_bytes(message[at..at + 8].try_into().unwrap());
        let len = u32::from_le_bytes(message[at + 8..at + 12].try_into().unwrap()) as usize;
        at += 12 + len;
        for item in Items::new(&message[at - len..at]) {
            eprintln!("{from} to {to}, {position}: {}", item.unwrap());
        }
    }
}

#[test]
fn a_write_goes_to_the_hub_until_the_token_comes_and_is_local_then() {
    let mut world = World::new(3);
    let client = world.open(2);
    assert_eq!(world.ask_here(client, &create(1, "/a", CreateMode::Persistent)), None, "the hub holds /");
    world.settle();
    assert_eq!(world.take(client)[0].path(), "/a");
    // Two in a row of one site, and it holds the token.
    assert_eq!(world.ask_here(client, &set(2, "/a", b"2")), None);
    world.settle();
    assert_eq!(world.take(client)[0].stat().version, 1);
    assert_eq!(world.ask_here(client, &set(3, "/a", b"3")), None);
    world.settle();
    world.take(client);
    assert_eq!(world.tree(3).holder("/a"), Some(2));
    assert_eq!(world.ask_here(client, &set(4, "/a", b"4")).unwrap().stat().version, 3);
    // Another one wants it: it goes back.
    let other = world.open(3);
    world.settle();
    assert_eq!(data(&world.ask(other, &get(1, "/a"))), b"4");
    assert_eq!(world.ask(other, &set(2, "/a", b"5")).stat().version, 4);
    assert_eq!(world.tree(2).holder("/a"), Some(HUB));
    assert_eq!(data(&world.ask(client, &get(5, "/a"))), b"5");
    world.check_equal();
}

/// The paper's first example, section II-C.
#[test]
fn nobody_reads_what_is_older_than_what_he_has_written() {
    let mut world = World::new(2);
    let (one, two) = (world.open(HUB), world.open(2));
    world.ask(one, &create(1, "/x", CreateMode::Persistent));
    world.send(one, &set(2, "/x", b"5"));
    world.send(two, &[set(1, "/x", b"7"), get(2, "/x")].concat());
    world.settle();
    let read = world.take(two);
    world.take(one);
    assert_eq!(data(&read[1]), b"7");
    assert!([b"5", b"7"].contains(&&data(&world.ask(one, &get(3, "/x")))[..].try_into().unwrap()));
}

/// The paper's second example.
#[test]
fn what_was_seen_before_is_seen_with_what_follows_it() {
    let mut world = World::new(2);
    let (one, two) = (world.open(HUB), world.open(2));
    for (xid, path) in [(1, "/x"), (2, "/y")] {
        world.ask(one, &create(xid, path, CreateMode::Persistent));
    }
    // The second site holds y.
    world.ask(two, &set(1, "/y", b"0"));
    world.ask(two, &set(2, "/y", b"1"));
    assert_eq!(world.tree(2).holder("/y"), Some(2));
    world.ask_here(one, &set(3, "/x", b"5")).unwrap();
    world.ask_here(two, &set(3, "/y", b"9")).unwrap();
    assert_eq!(data(&world.ask_here(two, &get(4, "/y")).unwrap()), b"9");
    // x was written before in time, and nothing says so to the second site.
    assert_eq!(data(&world.ask_here(two, &get(5, "/x")).unwrap()), b"x");
    world.settle();
    world.ask_here(two, &set(6, "/y", b"10")).unwrap();
    assert_eq!(data(&world.ask_here(two, &get(7, "/x")).unwrap()), b"5");
    world.settle();
    world.check_equal();
}

#[test]
fn what_a_session_asks_stays_in_order_wherever_it_is_carried_out() {
    let mut world = World::new(2);
    let client = world.open(2);
    world.ask(client, &create(1, "/mine", CreateMode::Persistent));
    world.ask(client, &set(2, "/mine", b"0"));
    world.ask(client, &set(3, "/mine", b"1"));
    assert_eq!(world.tree(2).holder("/mine"), Some(2));
    let pipeline = [
        create(4, "/theirs", CreateMode::Persistent),
        set(5, "/mine", b"after 4"),
        get(6, "/theirs"),
        create(7, "/theirs/child", CreateMode::Persistent),
        set(8, "/mine", b"after 7"),
        delete(9, "/theirs"),
        get(10, "/mine"),
    ];
    world.send(client, &pipeline.concat());
    while world.store(2) {}
    assert!(world.take(client).is_empty());
    assert_eq!(world.tree(2).get("/mine").unwrap().data(), Some(&b"1"[..]), "its turn has not come");
    world.settle();
    let frames = world.take(client);
    assert_eq!(frames.iter().map(|frame| frame.xid).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(frames[5].err, ErrorCode::NotEmpty as i32);
    assert_eq!(data(&frames[6]), b"after 7");
    let zxids: Vec<_> = [1, 3, 4].map(|at: usize| frames[at].stat().mzxid).into();
    assert!(zxids.is_sorted());
    world.check_equal();
}

/// Events come with whatever a client is told of a change, wherever that was made; and who comes back misses none,
/// although what was made elsewhere has smaller zxids than what it has been told.
#[test]
fn a_client_that_comes_back_is_told_of_what_was_changed_elsewhere() {
    let mut world = World::new(2);
    let ((watcher, session), writer) = (world.open_with(2, 0, &[0; 16]), world.open(HUB));
    for (client, path) in [(writer, "/theirs"), (watcher, "/mine")] {
        world.ask(client, &create(0, path, CreateMode::Persistent));
    }
    for xid in 3..5 {
        world.ask(watcher, &set(xid, "/mine", b"mine"));
    }
    let watch = request(6, Opcode::GetData, |out| encode::path_watch(out, "/theirs", true));
    world.ask(watcher, &watch);
    // The hub changes it, and that is late; meanwhile the zxids here grow.
    world.ask_here(writer, &set(1, "/theirs", b"changed")).unwrap();
    let told = (7..20).map(|xid| world.ask_here(watcher, &set(xid, "/mine", b"mine")).unwrap().zxid).max();
    let now = world.now;
    world.site(2).server.disconnected(watcher.1, now);
    world.settle();
    let changed = world.tree(2).get("/theirs").unwrap().stat().mzxid;
    assert!(changed < told.unwrap(), "it is late");
    let (watcher, _) = world.open_with(2, session.session_id, &session.password);
    let again = request(-8, Opcode::SetWatches, |out| {
        encode::set_watches(out, told.unwrap(), &[&["/theirs", "/mine"], &[], &[]]);
    });
    world.send(watcher, &again);
    world.settle();
    let frames = world.take(watcher);
    assert_eq!(frames.iter().map(|frame| frame.xid).collect::<Vec<_>>(), [-1, -8]);
    assert_eq!(WatcherEvent::decode(&mut Reader::new(&frames[0].body)).unwrap().path, "/theirs");
    world.check_equal();
}

#[test]
fn a_multi_has_all_its_tokens_in_one_place() {
    let mut world = World::new(3);
    let (one, two) = (world.open(2), world.open(3));
    for (client, path) in [(one, "/one"), (two, "/two")] {
        world.ask(client, &create(1, path, CreateMode::Persistent));
        world.ask(client, &set(2, path, b"0"));
        world.ask(client, &set(3, path, b"1"));
    }
    assert_eq!((world.tree(HUB).holder("/one"), world.tree(HUB).holder("/two")), (Some(2), Some(3)));
    let both = request(4, Opcode::Multi, |out| {
        for path in ["/one", "/two"] {
            MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(out);
            encode::set_data(out, path, Some(b"both"), 2);
        }
        MultiHeader::END.encode(out);
    });
    assert_eq!(world.ask(one, &both).err, 0);
    for site in 1..=3 {
        for path in ["/one", "/two"] {
            assert_eq!(world.tree(site).get(path).unwrap().data(), Some(&b"both"[..]));
        }
    }
    world.check_equal();
}

#[test]
fn a_site_that_is_cut_off_goes_on_with_what_it_holds() {
    let mut world = World::new(3);
    let (one, two) = (world.open(2), world.open(3));
    for (client, path) in [(one, "/one"), (two, "/two")] {
        world.ask(client, &create(1, path, CreateMode::Persistent));
        world.ask(client, &set(2, path, b"0"));
        world.ask(client, &set(3, path, b"1"));
    }
    world.cut = [(2, HUB), (HUB, 2)].into();
    for xid in 4..40 {
        assert_eq!(world.ask_here(one, &set(xid, "/one", b"cut off")).unwrap().err, 0);
        assert_eq!(world.ask_here(two, &set(xid, "/two", b"not cut off")).unwrap().err, 0);
    }
    assert_eq!(world.ask_here(one, &set(40, "/two", b"later")), None);
    world.settle();
    world.cut.clear();
    world.connect_sites(2);
    world.settle();
    assert_eq!(world.take(one)[0].stat().version, 39);
    assert_eq!(world.tree(3).get("/one").unwrap().data(), Some(&b"cut off"[..]));
    world.check_equal();
}

/// More than what is kept for other sites.
#[test]
fn much_that_concerns_one_site_alone_does_not_cut_it_off() {
    let mut world = World::new(2);
    let client = world.open(2);
    world.ask(client, &create(1, "/a", CreateMode::Persistent));
    let large = vec![7; 900 << 10];
    for xid in 2..90 {
        assert_eq!(world.ask(client, &set(xid, "/a", &large)).err, 0);
    }
    world.connect_sites(2);
    world.settle();
    assert_eq!(world.ask(client, &create(90, "/b", CreateMode::Persistent)).path(), "/b");
    world.check_equal();
}

#[test]
fn what_was_refused_for_want_of_room_comes_again() {
    for refuses in [2, HUB] {
        let mut world = World::new(2);
        let (one, two) = (world.open(HUB), world.open(2));
        world.ask(one, &create(1, "/a", CreateMode::Persistent));
        world.ask_here(one, &set(2, "/a", b"1")).unwrap();
        world.send(two, &create(1, "/b", CreateMode::Persistent));
        world.store(2);
        let (from, to) = if refuses == 2 { (HUB, 2) } else { (2, HUB) };
        assert!(world.carry(from, to), "it is on its way");
        world.refuse(to);
        world.pass(600);
        world.pass(600);
        assert_eq!(world.tree(2).get("/a").unwrap().data(), Some(&b"1"[..]));
        assert_eq!(world.take(two)[0].path(), "/b", "{refuses} refuses");
        world.check_equal();
    }
}

#[test]
fn what_no_site_would_say_is_refused_and_changes_nothing() {
    let mut world = World::new(2);
    let client = world.open(2);
    world.ask(client, &create(1, "/a", CreateMode::Persistent));
    let (now, applied) = (world.now, world.site(HUB).server.applied());
    // A batch of one entry: with something that is no item, and with an import in it.
    let item = [&[0, 14, 10, 0, 0, 0, 2, 3][..], &[0; 8]].concat();
    for items in [b"\0\xff".to_vec(), item] {
        let (since, upto) = (1_u64 << 20, (1_u64 << 20) + 1);
        let len = (items.len() as u32).to_le_bytes();
        let head = [&[1][..], &since.to_le_bytes(), &upto.to_le_bytes(), &upto.to_le_bytes(), &len].concat();
        let message = Bytes::from([head, items].concat());
        assert!(world.site(HUB).server.site_message(2, &message, now).is_err());
        for len in 0..message.len() {
            let _ = world.site(HUB).server.site_message(2, &message.slice(..len), now);
        }
    }
    world.settle();
    assert_eq!(world.site(HUB).server.applied(), applied);
    assert_eq!(world.ask(client, &create(2, "/b", CreateMode::Persistent)).path(), "/b");
    world.check_equal();
}

#[test]
fn what_is_forwarded_outlives_the_servers_on_its_way() {
    // Which server dies, after how many steps, and whether before or after it has stored what it has.
    let deaths = [2, HUB, 3].into_iter().flat_map(|dies| (0..40).map(move |step| (dies, step)));
    for (dies, step) in deaths {
        let mut world = World::new(3);
        let (one, two) = (world.open(2), world.open(3));
        world.ask(two, &create(1, "/a", CreateMode::Persistent));
        world.ask(two, &set(2, "/a", b"0"));
        world.ask(two, &set(3, "/a", b"1"));
        assert_eq!(world.tree(HUB).holder("/a"), Some(3));
        world.send(one, &set(1, "/a", b"forwarded"));
        world.settle_with_a_death(6, dies, step);
        // Who dies before he has stored what he was asked, has never heard of it.
        let all = |world: &World, data: &[u8], version| {
            (1..=3).all(|site| {
                let znode = world.tree(site).get("/a").unwrap();
                (znode.data(), znode.stat().version) == (Some(data), version)
            })
        };
        let is_lost = dies == 2 && all(&world, b"1", 2);
        assert!(is_lost || all(&world, b"forwarded", 3), "{dies} dies at {step}");
        if dies != 2 {
            assert_eq!(world.take(one)[0].stat().version, 3, "{dies} dies at {step}");
        }
        world.check_equal();
    }
}

#[test]
fn a_sync_has_its_turn_where_the_token_is() {
    let mut world = World::new(3);
    let (writer, reader, at_hub) = (world.open(2), world.open(3), world.open(HUB));
    for xid in 1..=3 {
        let request = if xid == 1 { create(1, "/a", CreateMode::Persistent) } else { set(xid, "/a", b"x") };
        world.ask(writer, &request);
    }
    assert_eq!(world.tree(HUB).holder("/a"), Some(2));
    for xid in 4..8 {
        // It is written there, and nobody else hears of it.
        assert!(world.ask_here(writer, &set(xid, "/a", b"new")).is_some_and(|it| it.err == 0));
        assert!(world.ask_here(reader, &get(xid, "/a")).unwrap().stat().version < xid - 1);
        // By a sync, or by who always reads what is newest, it is heard of; the token stays.
        for client in [reader, at_hub] {
            let frame = world.ask(client, &sync(2 * xid, "/a"));
            assert_eq!((frame.err, frame.path()), (0, "/a"));
            assert_eq!(world.ask_here(client, &get(2 * xid + 1, "/a")).unwrap().stat().version, xid - 1);
        }
        assert_eq!(world.tree(HUB).holder("/a"), Some(2));
    }
    // Where it is held nobody else is asked.
    world.cut.extend([(2, HUB), (HUB, 2)]);
    assert_eq!(world.ask_here(writer, &sync(9, "/a")).unwrap().path(), "/a");
    world.cut.clear();
    world.settle();
    world.check_equal();
}

#[test]
fn who_wants_what_is_newest_reads_it_wherever_it_is_held() {
    let mut world = World::new(3);
    let (writer, reader) = (world.open(2), world.open(3));
    world.send(
        reader,
        &request(xid::AUTH, Opcode::Auth, |out| {
            put::i32(out, 0);
            put::str(out, "consistency");
            put::buffer(out, b"linearizable");
        }),
    );
    world.take(reader);
    for xid in 1..=3 {
        let request = if xid == 1 { create(1, "/a", CreateMode::Persistent) } else { set(xid, "/a", b"x") };
        world.ask(writer, &request);
    }
    for xid in 4..8 {
        assert!(world.ask_here(writer, &set(xid, "/a", b"new")).is_some_and(|it| it.err == 0));
        assert_eq!(world.ask(reader, &get(xid, "/a")).stat().version, xid - 1);
    }
    world.check_equal();
}

/// A client that has asked for much while the token came need not have one request at a time done from then on.
#[test]
fn what_waits_of_a_session_is_carried_out_together_once_the_token_is_there() {
    let mut world = World::new(2);
    let client = world.open(2);
    world.ask(client, &create(1, "/a", CreateMode::Persistent));
    for xid in 2..52 {
        world.send(client, &set(xid, "/a", b"x"));
    }
    // The token comes with the first of them, and what has left with them is carried out here.
    while world.tree(2).holder("/a") != Some(2) {
        world.store(2);
        world.carry(2, HUB);
        world.store(HUB);
        world.carry(HUB, 2);
    }
    // What the hub does not know of yet waits here for what it does.
    for xid in 52..102 {
        world.send(client, &set(xid, "/a", b"x"));
    }
    let (mut answered, mut turns) = (0, 0);
    while answered < 100 {
        world.store(2);
        while world.carry(2, HUB) {}
        world.store(HUB);
        while world.carry(HUB, 2) {}
        answered += world.take(client).len();
        turns += 1;
        assert!(turns < 20, "{answered} of 100 are answered");
    }
    assert!(world.ask_here(client, &set(102, "/a", b"x")).is_some_and(|frame| frame.err == 0));
    world.settle();
    world.check_equal();
}

#[test]
fn a_token_is_not_taken_from_who_asks_for_it() {
    let mut world = World::new(2);
    let clients: Vec<_> = (0..3).map(|_| world.open(2)).collect();
    world.ask(clients[0], &create(1, "/a", CreateMode::Persistent));
    // All of these have left before the token comes. Each is carried out, and only what was under way has gone there.
    for client in &clients {
        for xid in 2..20 {
            world.send(*client, &set(xid, "/a", b"x"));
        }
    }
    while world.store(2) {}
    for _ in 0..6 {
        while world.carry(2, HUB) {}
        while world.store(HUB) {}
        while world.carry(HUB, 2) {}
        while world.store(2) {}
    }
    for client in &clients {
        let answered = world.take(*client);
        assert!(answered.len() == 18 && answered.iter().all(|frame| frame.err == 0), "{}", answered.len());
        assert!(world.ask_here(*client, &set(20, "/a", b"x")).is_some_and(|frame| frame.err == 0));
    }
    world.settle();
    world.check_equal();
    assert_eq!(world.tree(HUB).get("/a").unwrap().stat().version, 3 * 19);
}
