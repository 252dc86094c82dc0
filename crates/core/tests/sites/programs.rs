//! Programs where there are several sites: what they read and write is held by one of them, wherever that is.

use super::*;

/// Counts in two znodes, which are the same at any time.
pub(crate) const COUNTER: &str = r#"
on_operation("read", "/count-both");

fn read(request) {
    let one = local.read("/one").data.to_int() + 1;
    let two = local.read("/two").data.to_int() + 1;
    if one != two { return 0; }
    local.update("/one", one);
    local.update("/two", two);
    return one;
}
"#;

/// Counts what happens to a znode.
const WATCHER: &str = r#"
on_event("changed", "/watched");
on_event("deleted", "/watched/*");

fn seen() {
    local.update("/seen", local.read("/seen").data.to_int() + 1);
}

fn changed(event) { seen(); }
fn deleted(event) { seen(); }
"#;

pub(crate) fn create_with(xid: i32, path: &str, data: &str, mode: CreateMode) -> Vec<u8> {
    request(xid, Opcode::Create2, |out| {
        encode::create(out, path, Some(data.as_bytes()), OPEN_ACL, mode as i32, None);
    })
}

pub(crate) fn register(xid: i32, name: &str, source: &str) -> Vec<u8> {
    create_with(xid, &format!("/em/{name}"), source, CreateMode::Persistent)
}

pub(crate) fn acknowledge(xid: i32, name: &str, by: &str) -> Vec<u8> {
    create_with(xid, &format!("/em/{name}/{by}"), "", CreateMode::Ephemeral)
}

fn number(frame: &Frame) -> u32 {
    String::from_utf8(data(frame)).unwrap().parse().unwrap()
}

impl World {
    fn make(&mut self, client: Client, path: &str) {
        let frame = self.ask(client, &create_with(90, path, "0", CreateMode::Persistent));
        assert_eq!(frame.path(), path);
    }

    /// The token of a znode goes to a site.
    fn take_token(&mut self, client: Client, path: &str) {
        for xid in 91..94 {
            let frame = self.ask(client, &set(xid, path, b"0"));
            assert_eq!(frame.err, 0);
        }
        assert_eq!(self.tree(HUB).holder(path), Some(client.0));
    }

    fn data_at(&self, path: &str) -> Vec<String> {
        let data = |site: &Site| site.server.whole().get(path).unwrap().data().unwrap_or_default().to_vec();
        self.sites.iter().map(|site| String::from_utf8(data(site)).unwrap()).collect()
    }
}

/// A program, and a client of each site that has acknowledged it.
fn counters(world: &mut World, source: &str) -> Vec<Client> {
    let clients: Vec<Client> = (1..=3).map(|site| world.open(site)).collect();
    assert_eq!(world.ask(clients[0], &register(1, "p", source)).path(), "/em/p");
    for (client, by) in clients[1..].iter().zip(["b", "c"]) {
        assert_eq!(world.ask(*client, &acknowledge(1, "p", by)).err, 0);
    }
    clients
}

/// Whether a site has some of these on another partition than others: a program has what lives on one.
fn are_apart(paths: &[&str]) -> bool {
    let of = |partitions: u8| {
        let placement = Placement::new(partitions);
        paths.iter().map(|path| placement.of(path)).collect::<BTreeSet<_>>().len()
    };
    wanted_partitions().into_iter().any(|partitions| of(partitions) > 1)
}

#[test]
fn a_program_has_the_tokens_of_all_that_it_reads_and_writes() {
    if are_apart(&["/one", "/two"]) {
        return;
    }
    let mut world = World::new(3);
    let clients = counters(&mut world, COUNTER);
    ["/one", "/two"].into_iter().for_each(|path| world.make(clients[0], path));
    world.take_token(clients[1], "/one");
    world.take_token(clients[2], "/two");
    // Neither site has both, so no call may be carried out by who is asked.
    let mut next = 0;
    for turn in 0..12 {
        let client = clients[turn % 3];
        assert_eq!(number(&world.ask(client, &get(turn as i32, "/count-both"))), next + 1, "{turn}");
        next += 1;
    }
    // The tokens come to who calls alone, and then nobody else is asked.
    for turn in 20..24 {
        next += 1;
        assert_eq!(number(&world.ask(clients[1], &get(turn, "/count-both"))), next);
    }
    let local = world.ask_here(clients[1], &get(30, "/count-both")).map(|frame| number(&frame));
    assert_eq!(local, Some(next + 1));
    world.settle();
    assert_eq!(world.data_at("/one"), vec![(next + 1).to_string(); 3]);
    world.check_equal();
}

#[test]
fn calls_of_all_sites_at_once_are_carried_out_once_each() {
    if are_apart(&["/one", "/two"]) {
        return;
    }
    let mut world = World::new(3);
    let clients = counters(&mut world, COUNTER);
    ["/one", "/two"].into_iter().for_each(|path| world.make(clients[0], path));
    world.take_token(clients[1], "/one");
    for xid in 0..20 {
        clients.iter().for_each(|client| world.send(*client, &get(xid, "/count-both")));
    }
    world.settle();
    let mut told: Vec<u32> = Vec::new();
    for client in &clients {
        let own: Vec<u32> = world.take(*client).iter().map(number).collect();
        assert!(own.len() == 20 && own.is_sorted(), "{own:?}");
        told.extend(own);
    }
    told.sort_unstable();
    assert_eq!(told, (1..=60).collect::<Vec<_>>());
    world.check_equal();
}

#[test]
fn a_call_outlives_the_servers_on_its_way() {
    if are_apart(&["/one", "/two"]) {
        return;
    }
    let deaths = [2, HUB, 3].into_iter().flat_map(|dies| (0..40).map(move |step| (dies, step)));
    for (dies, step) in deaths {
        let mut world = World::new(3);
        let clients = counters(&mut world, COUNTER);
        ["/one", "/two"].into_iter().for_each(|path| world.make(clients[0], path));
        world.take_token(clients[2], "/two");
        world.send(clients[1], &get(9, "/count-both"));
        world.settle_with_a_death(6, dies, step);
        let is_done = world.data_at("/two") == vec!["1"; 3] && world.data_at("/one") == vec!["1"; 3];
        // Who dies before he has stored what he was asked, has never heard of it.
        let is_lost = dies == 2 && world.data_at("/two") == vec!["0"; 3];
        assert!(is_done || is_lost, "{dies} dies at {step}: {:?}", world.data_at("/two"));
        if dies != 2 {
            assert_eq!(number(&world.take(clients[1])[0]), 1);
        }
        world.check_equal();
    }
}

#[test]
fn what_a_program_does_with_an_event_needs_its_tokens_with_those_of_the_request() {
    if are_apart(&["/seen", "/watched"]) {
        return;
    }
    let mut world = World::new(3);
    let clients = counters(&mut world, WATCHER);
    ["/seen", "/watched"].into_iter().for_each(|path| world.make(clients[0], path));
    world.take_token(clients[2], "/seen");
    let seen_before: u32 = world.data_at("/seen")[0].parse().unwrap();
    for (turn, client) in clients.iter().cycle().take(9).enumerate() {
        assert_eq!(world.ask(*client, &set(turn as i32, "/watched", b"x")).err, 0);
        assert_eq!(world.data_at("/seen"), vec![(seen_before + turn as u32 + 1).to_string(); 3]);
    }
    world.check_equal();
    // Where both are held nobody else is asked.
    for xid in 20..24 {
        world.ask(clients[1], &set(xid, "/watched", b"x"));
    }
    assert!(world.ask_here(clients[1], &set(30, "/watched", b"x")).is_some_and(|frame| frame.err == 0));
    world.settle();
    world.check_equal();
}

/// By itself it could be carried out where it is asked, again and again.
#[test]
fn what_sets_off_a_program_that_needs_more_comes_back_from_who_asks_once() {
    for kind in [PAPER, PolicyKind::Expected] {
        let mut world = World::with(3, 64 << 20, of_kind(kind));
        let clients = counters(&mut world, WATCHER);
        ["/seen", "/watched"].into_iter().for_each(|path| world.make(clients[0], path));
        for turn in 0..3 {
            let path = format!("/watched/{turn}");
            world.make(clients[1], &path);
            // Its token is where it is deleted, and that of what the program counts in is at the hub.
            for xid in 1..4 {
                assert_eq!(world.ask(clients[1], &set(xid, &path, b"x")).err, 0);
            }
            assert_eq!(world.tree(HUB).holder(&path), Some(2));
            assert_eq!(world.ask(clients[0], &set(turn, "/seen", turn.to_string().as_bytes())).err, 0);
            assert_eq!(world.ask(clients[0], &set(turn, "/seen", turn.to_string().as_bytes())).err, 0);
            assert_eq!(world.ask(clients[1], &delete(9, &path)).err, 0);
            assert_eq!(world.data_at("/seen"), vec![(turn + 1).to_string(); 3]);
        }
        world.check_equal();
    }
}

#[test]
fn the_end_of_a_session_leaves_out_what_takes_tokens_of_others() {
    for is_held in [true, false] {
        let mut world = World::new(3);
        let clients = counters(&mut world, WATCHER);
        ["/seen", "/watched"].into_iter().for_each(|path| world.make(clients[0], path));
        world.take_token(clients[1], "/seen");
        let owner = if is_held { clients[1] } else { clients[2] };
        world.ask(owner, &create(1, "/watched/e", CreateMode::Ephemeral));
        assert_eq!(world.data_at("/seen"), ["0"; 3]);
        world.send(owner, &request(2, Opcode::CloseSession, |_| ()));
        world.settle();
        assert!((1..=3).all(|site| world.tree(site).get("/watched/e").is_none()));
        assert_eq!(world.data_at("/seen"), [if is_held { "1" } else { "0" }; 3]);
        let server = &mut world.site(owner.0).server;
        let mut warnings = std::iter::from_fn(|| server.next_warning());
        assert_eq!(warnings.any(|warning| warning.contains("another site holds")), !is_held);
        world.check_equal();
    }
}

#[test]
fn a_program_goes_with_the_acknowledgements_of_all_sites() {
    if are_apart(&["/one", "/two"]) {
        return;
    }
    for first in [2, HUB] {
        let mut world = World::new(3);
        let clients = counters(&mut world, COUNTER);
        // A session ends at its site when the program is deregistered at the hub, and neither knows of the other.
        world.send(clients[1], &request(2, Opcode::CloseSession, |_| ()));
        world.send(clients[0], &delete(2, "/em/p"));
        while world.store(2) | world.store(HUB) {}
        let second = if first == 2 { HUB } else { 2 };
        while world.carry(first, second) {}
        world.settle();
        assert_eq!(world.take(clients[0])[0].err, 0);
        assert!((1..=3).all(|site| world.tree(site).get("/em/p").is_none()));
        world.check_equal();
        // It may be there again, and who had acknowledged the one before has not acknowledged this one.
        assert_eq!(world.ask(clients[0], &register(3, "p", COUNTER)).path(), "/em/p");
        ["/one", "/two"].into_iter().for_each(|path| world.make(clients[0], path));
        assert_eq!(number(&world.ask(clients[0], &get(4, "/count-both"))), 1);
        assert_eq!(world.ask(clients[2], &get(4, "/count-both")).err, ErrorCode::NoNode as i32);
        world.check_equal();
    }
}

#[test]
fn an_acknowledgement_is_taken_back_where_the_program_is_held() {
    let mut world = World::new(3);
    let clients = counters(&mut world, COUNTER);
    // At the same time, at two sites.
    world.send(clients[1], &delete(2, "/em/p/b"));
    world.send(clients[0], &delete(2, "/em/p"));
    world.settle();
    assert_eq!(world.take(clients[0])[0].err, 0);
    world.take(clients[1]);
    assert!((1..=3).all(|site| world.tree(site).get("/em/p").is_none()));
    world.check_equal();
}

#[test]
fn a_hard_limit_holds_for_all_sites_together() {
    let mut world = World::new(3);
    let clients: Vec<Client> = (1..=3).map(|site| world.open(site)).collect();
    world.make(clients[0], "/q");
    for path in ["/q/a", "/q/b"] {
        world.make(clients[0], path);
    }
    // Each site holds a directory of its own below what has the limit.
    world.take_token(clients[1], "/q/a");
    world.take_token(clients[2], "/q/b");
    for (path, data) in [
        ("/zookeeper/quota/q", ""),
        ("/zookeeper/quota/q/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=10"),
        ("/zookeeper/quota/q/zookeeper_stats", ""),
    ] {
        assert_eq!(world.ask(clients[0], &create_with(1, path, data, CreateMode::Persistent)).err, 0);
    }
    for xid in 10..20 {
        for (client, path) in [(clients[1], "/q/a"), (clients[2], "/q/b")] {
            world.send(client, &create(xid, &format!("{path}/{xid}"), CreateMode::Persistent));
        }
    }
    world.settle();
    let answers: Vec<i32> =
        clients[1..].iter().flat_map(|client| world.take(*client)).map(|frame| frame.err).collect();
    // Three are there already.
    assert_eq!(answers.iter().filter(|err| **err == 0).count(), 7, "{answers:?}");
    let exceeded = ErrorCode::QuotaExceeded as i32;
    assert_eq!(answers.iter().filter(|err| **err == exceeded).count(), 13);
    world.check_equal();
    // What is taken away makes room, wherever that is.
    let made =
        world.tree(1).at("/q/a").names_below("/q/a").next().map(|name| format!("/q/a/{name}")).unwrap();
    assert_eq!(world.ask(clients[1], &delete(30, &made)).err, 0);
    assert_eq!(world.ask(clients[2], &create(31, "/q/b/more", CreateMode::Persistent)).err, 0);
    assert_eq!(world.ask(clients[1], &create(32, "/q/a/more", CreateMode::Persistent)).err, exceeded);
    world.check_equal();
}

/// What waited behind a write that the log has no room for has its turn when that is refused. Where it asks for something
/// anew, that has its own outcome, and what is behind it comes later.
#[test]
fn what_is_asked_anew_when_there_is_no_room_has_its_outcome() {
    if is_divided() {
        return;
    }
    let mut world = World::new(2);
    let client = read_tokens::strict(&mut world, HUB);
    world.make(client, "/one");
    world.send(client, &[register(1, "count", COUNTER), get(2, "/one"), set(3, "/one", b"x")].concat());
    world.refuse(HUB);
    world.pass(600);
    world.settle();
    let told: Vec<(i32, i32)> = world.take(client).iter().map(|frame| (frame.xid, frame.err)).collect();
    let no_room = ErrorCode::SystemError as i32;
    assert_eq!(told.iter().map(|(xid, _)| *xid).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(told[..2], [(1, no_room), (2, 0)]);
    // What comes next is answered with what it asks for.
    assert_eq!(world.ask(client, &set(4, "/one", b"y")).stat().data_length, 1);
    let read = world.ask(client, &get(5, "/one"));
    assert_eq!(data(&read), b"y");
    world.check_equal();
}
