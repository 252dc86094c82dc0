//! Readers below a server of a site, and clients at them.

use super::levels::NEXT;
use super::*;
use stoa_core::{ParentOutput, ParentTraits, ReaderOutput, ServerPart, StateLoader};

/// A reader below the server of a site.
struct Below {
    site: SiteId,
    server: Shard,
    /// The number of its tie, which is another one when that has ended.
    link: u64,
    is_tied: bool,
    /// Why its parent has ended the tie.
    dropped: Option<&'static str>,
    closed: BTreeMap<ConnectionId, CloseReason>,
}

impl Below {
    /// One with an empty folder, which can work at these levels.
    fn new(world: &mut World, site: SiteId, levels: Levels) -> Self {
        let config = Config { server_id: 255, part: ServerPart::Reader, ..Config::default() };
        let tree = Tree::new(Options { levels, ..options() });
        let server = Shard::new(config, Recovered::new(tree, &[]), [200 + site; 32], world.now).unwrap();
        let mut below =
            Self { site, server, link: 0, is_tied: false, dropped: None, closed: BTreeMap::new() };
        below.tie(world, levels);
        below
    }

    fn name(&self) -> ConnectionId {
        ConnectionId::of_reader(self.link)
    }

    fn tie(&mut self, world: &mut World, levels: Levels) {
        (self.link, self.is_tied, self.dropped) = (self.link + 1, true, None);
        let (name, now) = (self.name(), world.now);
        let parent = &mut world.site(self.site).server;
        parent.reader_connected(name, levels, now);
        let history = parent.history().unwrap().id;
        assert!(self.server.parent_met(history, now));
        let traits = ParentTraits { takes_reads: true, is_of_site: true };
        self.server.parent_connected(self.link, traits, now);
        self.settle(world);
    }

    fn untie(&mut self, world: &mut World) {
        let (name, now) = (self.name(), world.now);
        self.is_tied = false;
        world.site(self.site).server.reader_lost(name, now);
        self.server.parent_lost(self.link, now);
    }

    /// Until nothing more happens by itself, here or at the sites.
    fn settle(&mut self, world: &mut World) {
        world.settle();
        while self.moves(world) {
            world.settle();
        }
    }

    fn pass(&mut self, world: &mut World, ms: u64) {
        for _ in 0..ms / 50 {
            world.tick(50);
            self.server.tick(world.now);
            self.settle(world);
        }
    }

    /// Carries what the reader and its parent have for each other. Returns whether there was anything.
    fn moves(&mut self, world: &mut World) -> bool {
        let (mut moved, now) = (false, world.now);
        world.poll(self.site);
        while let Some((_, output)) = world.site(self.site).server.poll_reader() {
            moved = true;
            if !self.is_tied {
                continue;
            }
            match output {
                ReaderOutput::Say(down) => {
                    self.server.parent_says(self.link, 0, down.encode().join(), now).unwrap();
                }
                ReaderOutput::Snapshot { message, .. } => self.takes_over(world, message),
                ReaderOutput::Drop(why) => {
                    self.untie(world);
                    self.dropped = Some(why);
                }
            }
        }
        while let Some(output) = self.server.poll_parent() {
            moved = true;
            let ParentOutput::Say(link, up) = output else { panic!("it leaves its parent: {output:?}") };
            if self.is_tied && link == self.link {
                let name = self.name();
                world.site(self.site).server.reader_says(name, up.encode().join(), now).unwrap();
            }
        }
        while self.server.poll_peer().is_some() {}
        while let Some(output) = self.server.poll_output() {
            if let Output::Close(connection, reason) = output {
                self.closed.insert(connection, reason);
            }
        }
        while let Some(append) = self.server.poll_append() {
            moved = true;
            self.server.appended(append.position, now);
        }
        while let Some(piece) = self.server.poll_snapshot() {
            match piece {
                SnapshotOutput::Slice { .. } => self.server.snapshot_taken(),
                SnapshotOutput::End { number } | SnapshotOutput::Abort { number } => {
                    self.server.snapshot_finished(number, false);
                }
                SnapshotOutput::Begin { .. } => {}
            }
        }
        moved
    }

    fn takes_over(&mut self, world: &mut World, message: Bytes) {
        let now = world.now;
        let mut loader = StateLoader::new(&Options { levels: NEXT, ..options() }, 1);
        world.site(self.site).snapshot.iter().for_each(|slice| loader.chunk(slice).unwrap());
        let states = loader.finish().unwrap();
        self.server.take_over(0, message, states, now).unwrap();
        let name = self.name();
        world.site(self.site).server.reader_snapshot_sent(name, true, now);
    }

    // ---- clients ----

    /// A client comes, and is told of its session, if it is let in.
    fn come(
        &mut self,
        world: &mut World,
        session: i64,
        password: &[u8],
    ) -> (ConnectionId, Option<ConnectResponse>) {
        let peer: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let id = self.server.connect(peer, world.now).unwrap();
        self.server.receive(id, &opening(session, password), world.now);
        self.settle(world);
        let bytes = self.take_bytes(world, id);
        let opened = next_frame(&bytes, 1000).unwrap();
        (id, opened.map(|(payload, _)| ConnectResponse::decode(payload).unwrap()))
    }

    fn open(&mut self, world: &mut World) -> ConnectionId {
        let (id, opened) = self.come(world, 0, &[0; 16]);
        assert_eq!((opened.unwrap().session_id & 31) as SiteId, self.site);
        id
    }

    fn take_bytes(&mut self, world: &World, id: ConnectionId) -> Vec<u8> {
        let bytes = self.server.output(id).to_vec();
        self.server.sent(id, bytes.len(), world.now);
        bytes
    }

    fn take(&mut self, world: &World, id: ConnectionId) -> Vec<Frame> {
        let bytes = self.take_bytes(world, id);
        let (mut rest, mut frames) = (&bytes[..], Vec::new());
        while let Some((payload, tail)) = next_frame(rest, usize::MAX >> 1).unwrap() {
            let mut reader = Reader::new(payload);
            let ReplyHeader { xid, zxid, err } = ReplyHeader::decode(&mut reader).unwrap();
            frames.push(Frame { xid, zxid, err, body: reader.rest().to_vec() });
            rest = tail;
        }
        frames
    }

    /// Asks and waits.
    fn ask(&mut self, world: &mut World, id: ConnectionId, bytes: &[u8]) -> Frame {
        self.server.receive(id, bytes, world.now);
        self.settle(world);
        let mut frames = self.take(world, id);
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames.remove(0)
    }

    /// Asks, and nothing is carried to or from other sites meanwhile.
    fn ask_here(&mut self, world: &mut World, id: ConnectionId, bytes: &[u8]) -> Vec<Frame> {
        self.server.receive(id, bytes, world.now);
        loop {
            let has_moved = self.moves(world);
            if !world.store(self.site) && !has_moved {
                return self.take(world, id);
            }
        }
    }
}

fn cut(world: &mut World, leaf: SiteId) {
    world.cut.extend([(leaf, HUB), (HUB, leaf)]);
}

#[test]
fn a_client_of_a_reader_has_what_clients_of_its_site_have() {
    if is_divided() {
        return;
    }
    let mut world = World::new(3);
    let other = world.open(HUB);
    world.ask(other, &create(1, "/before", CreateMode::Persistent));
    let mut below = Below::new(&mut world, 2, Levels::OWN);
    let client = below.open(&mut world);
    assert_eq!(data(&below.ask(&mut world, client, &get(1, "/before"))), b"x", "it was in a snapshot");
    // What it writes goes to the hub, and is answered here; what it watches is told.
    assert_eq!(below.ask(&mut world, client, &create(2, "/a", CreateMode::Persistent)).path(), "/a");
    let watch = request(3, Opcode::GetData, |out| encode::path_watch(out, "/a", true));
    below.ask(&mut world, client, &watch);
    assert_eq!(world.ask(other, &set(2, "/a", b"at the hub")).err, 0);
    below.settle(&mut world);
    assert_eq!(below.take(&world, client)[0].xid, xid::NOTIFICATION);
    assert_eq!(data(&below.ask(&mut world, client, &get(4, "/a"))), b"at the hub");
    assert_eq!(below.ask(&mut world, client, &sync(5, "/a")).err, 0);
    // Where the token has come to its site nothing leaves that.
    for xid in 6..8 {
        below.ask(&mut world, client, &set(xid, "/a", b"ours"));
    }
    assert_eq!(world.tree(3).holder("/a"), Some(2));
    cut(&mut world, 2);
    let answers = below.ask_here(&mut world, client, &set(8, "/a", b"alone"));
    assert_eq!(answers.iter().map(|frame| (frame.xid, frame.err)).collect::<Vec<_>>(), [(8, 0)]);
    world.cut.clear();
    // Its ephemerals go with it, everywhere.
    let lock = below.ask(&mut world, client, &create(9, "/lock", CreateMode::Ephemeral));
    assert_eq!((lock.err, world.tree(3).get("/lock").is_some()), (0, true));
    below.ask(&mut world, client, &request(10, Opcode::CloseSession, |_| {}));
    assert!((1..=3).all(|site| world.tree(site).get("/lock").is_none()));
    assert_eq!(below.server.tree().digest(), world.site_at(2).tree().digest());
    world.check_equal();
}

#[test]
fn a_reader_of_a_site_that_is_to_join_serves_nobody_before() {
    if is_divided() {
        return;
    }
    let mut world = World::new(2);
    world.found(3);
    let mut below = Below::new(&mut world, 3, Levels::OWN);
    assert!(below.server.tree().own_site().is_none() && !below.server.has_joined());
    let (early, opened) = below.come(&mut world, 0, &[0; 16]);
    assert_eq!((opened, below.closed[&early]), (None, CloseReason::NotJoined));
    world.connect_sites(3);
    below.settle(&mut world);
    assert!(below.server.has_joined());
    let client = below.open(&mut world);
    assert_eq!(below.ask(&mut world, client, &create(1, "/a", CreateMode::Persistent)).path(), "/a");
    world.check_equal();
}

#[test]
fn an_answer_that_needs_two_sites_waits_at_a_reader_too() {
    if is_divided() {
        return;
    }
    let mut world = World::new(3);
    let (now, one) = (world.now, world.open(HUB));
    world.site(HUB).server.write_sites("two-sites /safe", now).unwrap();
    world.poll(HUB);
    world.settle();
    world.ask(one, &create(1, "/safe", CreateMode::Persistent));
    let mut below = Below::new(&mut world, 2, Levels::OWN);
    let (client, late) = (below.open(&mut world), below.open(&mut world));
    for xid in 1..3 {
        assert_eq!(below.ask(&mut world, client, &set(xid, "/safe", b"given")).err, 0);
    }
    assert_eq!(world.tree(2).holder("/safe"), Some(2));
    cut(&mut world, 2);
    assert_eq!(below.ask_here(&mut world, client, &set(3, "/safe", b"two")), []);
    assert_eq!(data(&below.ask_here(&mut world, late, &get(1, "/safe"))[0]), b"two", "it is written");
    world.cut.clear();
    below.settle(&mut world);
    assert_eq!(below.take(&world, client)[0].xid, 3);
    // When no other site has it in time its client is let go, as at a member.
    cut(&mut world, 2);
    assert_eq!(below.ask_here(&mut world, client, &set(4, "/safe", b"three")), []);
    for _ in 0..22 {
        for id in [client, late] {
            below.server.receive(id, &request(xid::PING, Opcode::Ping, |_| {}), world.now);
        }
        below.pass(&mut world, 500);
    }
    assert_eq!(below.closed.get(&client), Some(&CloseReason::SiteAway));
    assert_eq!(below.closed.get(&late), None);
    // One that comes when another site has it already is told so, too.
    world.cut.clear();
    below.settle(&mut world);
    below.untie(&mut world);
    below.tie(&mut world, Levels::OWN);
    let again = below.open(&mut world);
    assert_eq!(below.ask(&mut world, again, &set(1, "/safe", b"four")).err, 0);
    world.check_equal();
}

#[test]
fn a_session_goes_from_site_to_site_by_way_of_readers() {
    if is_divided() {
        return;
    }
    let mut world = World::new(3);
    let mut at_2 = Below::new(&mut world, 2, Levels::OWN);
    let (first, opened) = at_2.come(&mut world, 0, &[0; 16]);
    let opened = opened.unwrap();
    assert_eq!(at_2.ask(&mut world, first, &create(1, "/mine", CreateMode::Ephemeral)).err, 0);
    let mut at_3 = Below::new(&mut world, 3, Levels::OWN);
    let (second, back) = at_3.come(&mut world, opened.session_id, &opened.password);
    assert_eq!(back.unwrap().session_id, opened.session_id);
    at_2.settle(&mut world);
    assert_eq!(at_2.closed.get(&first), Some(&CloseReason::SessionMoved));
    assert_eq!(at_3.ask(&mut world, second, &set(2, "/mine", b"here")).stat().version, 1);
    assert_eq!(world.tree(HUB).home_of(opened.session_id), 3);
    // And to a server.
    let (third, response) = world.come(HUB, opened.session_id, &opened.password);
    assert_eq!(response.session_id, opened.session_id);
    at_3.settle(&mut world);
    assert_eq!(at_3.closed.get(&second), Some(&CloseReason::SessionMoved));
    assert_eq!(world.ask(third, &delete(3, "/mine")).err, 0);
    world.check_equal();
}

#[test]
fn who_comes_by_way_of_a_reader_is_asked_for_as_often_as_elsewhere() {
    if is_divided() {
        return;
    }
    let mut world = World::new(3);
    let (_, opened) = world.open_with(2, 0, &[0; 16]);
    let mut below = Below::new(&mut world, 3, Levels::OWN);
    let updates = |world: &World| world.site_at(3).stats().log_updates;
    let before = updates(&world);
    world.come(3, opened.session_id, &opened.password);
    let directly = updates(&world) - before;
    world.come(2, opened.session_id, &opened.password);
    let before = updates(&world);
    let (_, response) = below.come(&mut world, opened.session_id, &opened.password);
    assert_eq!(response.unwrap().session_id, opened.session_id);
    // The reader's server follows up nothing of it.
    assert_eq!(updates(&world) - before, directly);
    world.check_equal();
}

#[test]
fn who_waits_for_another_site_is_let_go_when_the_parent_is_lost() {
    if is_divided() {
        return;
    }
    let mut world = World::new(2);
    let mut below = Below::new(&mut world, 2, Levels::OWN);
    let (busy, idle) = (below.open(&mut world), below.open(&mut world));
    assert_eq!(below.ask_here(&mut world, busy, &create(1, "/a", CreateMode::Persistent)), []);
    let leaves = |below: &mut Below, now| {
        let link = below.link;
        below.server.leaves_quietly(link, now)
    };
    assert!(!leaves(&mut below, world.now), "it waits for the hub");
    below.untie(&mut world);
    below.moves(&mut world);
    assert!(below.closed.contains_key(&busy), "nobody could say what becomes of what it asks next");
    assert!(!below.closed.contains_key(&idle));
    below.tie(&mut world, Levels::OWN);
    assert_eq!(below.ask(&mut world, idle, &create(1, "/b", CreateMode::Persistent)).path(), "/b");
    assert!(world.tree(HUB).get("/a").is_some(), "it had left");
    below.settle(&mut world);
    assert!(leaves(&mut below, world.now));
    world.check_equal();
}

#[test]
fn what_is_asked_while_a_session_is_brought_is_asked_behind_that() {
    if is_divided() {
        return;
    }
    let mut world = World::new(2);
    let mut below = Below::new(&mut world, 2, Levels::OWN);
    let client = below.open(&mut world);
    below.ask(&mut world, client, &create(1, "/a", CreateMode::Persistent));
    below.untie(&mut world);
    below.moves(&mut world);
    // It goes to the hub, which holds the token.
    below.server.receive(client, &[sync(2, "/a"), set(3, "/a", b"behind")].concat(), world.now);
    below.moves(&mut world);
    below.tie(&mut world, Levels::OWN);
    let answers = below.take(&world, client);
    assert_eq!((answers[0].xid, answers[0].path()), (2, "/a"));
    assert_eq!((answers[1].xid, answers[1].stat().version), (3, 1));
    world.check_equal();
}

#[test]
fn a_reader_that_cannot_read_what_comes_is_let_go_before_and_holds_nobody_up() {
    if is_divided() {
        return;
    }
    let mut world = World::new(2);
    world.upgrade(HUB);
    world.upgrade(2);
    world.settle();
    let one = world.open(HUB);
    let mut old = Below::new(&mut world, HUB, Levels::OWN);
    assert_eq!(world.site_at(HUB).older_readers(), 1);
    for xid in 1..20 {
        world.ask(one, &create(xid, &format!("/{xid}"), CreateMode::Persistent));
        old.settle(&mut world);
        assert!(old.server.tree().get(&format!("/{xid}")).is_some(), "it is given what it can read");
    }
    assert_eq!(world.raise(), Ok(2));
    old.settle(&mut world);
    assert!(old.dropped.unwrap().starts_with("the sites use a higher feature level"), "{:?}", old.dropped);
    assert_eq!((old.server.tree().level(), world.tree(HUB).level()), (1, 2));
    assert_eq!(world.site_at(HUB).older_readers(), 0);
    // It is let go again when it comes, without a word of that level; and one of the next release stays.
    old.tie(&mut world, Levels::OWN);
    assert!(old.dropped.is_some() && old.server.tree().level() == 1);
    let mut new = Below::new(&mut world, HUB, NEXT);
    assert_eq!((new.dropped, new.server.tree().level()), (None, 2));
    let at_new = new.open(&mut world);
    assert_eq!(new.ask(&mut world, at_new, &create(1, "/new", CreateMode::Persistent)).err, 0);
    world.check_equal();
}

#[test]
fn readers_of_a_site_that_was_given_up_serve_nobody_until_it_has_joined_again() {
    if is_divided() {
        return;
    }
    let mut world = World::new(3);
    let mut below = Below::new(&mut world, 3, Levels::OWN);
    let client = below.open(&mut world);
    let now = world.now;
    world.lose(3);
    world.settle();
    world.site(3).server.site_is_lost(now);
    world.poll(3);
    while world.store(3) {}
    below.settle(&mut world);
    assert!(!below.server.has_joined() && below.closed.contains_key(&client));
    let (early, opened) = below.come(&mut world, 0, &[0; 16]);
    assert_eq!((opened, below.closed[&early]), (None, CloseReason::NotJoined));
    world.come_back(3, false);
    below.settle(&mut world);
    assert!(below.server.has_joined());
    below.open(&mut world);
    world.check_equal();
}
