//! A site of three servers, each with clients, where two sites are needed: the one that leads hears what the other site has.

use super::levels::NEXT;
use super::*;
use stoa_core::{HeldBack, LevelRefusal, PeerOutput, Reaping, SiteLevels};

const IDS: [u8; 3] = [1, 2, 3];
const LEAF: SiteId = 2;

/// The hub, with three servers, and a site that is one server.
struct Campus {
    hub: Vec<Shard>,
    leaf: Shard,
    leader: u8,
    now_us: u64,
    /// What the two sites say to each other waits.
    is_cut: bool,
    to_leaf: VecDeque<Bytes>,
    to_hub: VecDeque<Bytes>,
    /// Between these servers nothing arrives.
    peers_cut: BTreeSet<(u8, u8)>,
    closed: BTreeMap<(u8, ConnectionId), CloseReason>,
    slices: Vec<Vec<u8>>,
}

fn server(server_id: u8, ids: &[u8], levels: Levels, now: Now) -> Shard {
    let config = Config {
        server_id,
        site: Some(SiteConfig { policy: of_kind(PAPER), ..SiteConfig::default() }),
        tick_ms: 100,
        session_timeout_min_ms: 500,
        heartbeat_ms: 20,
        reaping: Reaping { interval_ms: 50, max: 10_000 },
        ..Config::default()
    };
    let recovered = Recovered::new(Tree::new(Options { levels, ..Options::default() }), ids);
    Shard::new(config, recovered, [server_id; 32], now).unwrap()
}

/// Stores what a server has, at once.
fn store(shard: &mut Shard, now: Now) -> bool {
    let mut last = 0;
    while let Some(append) = shard.poll_append() {
        last = append.position;
    }
    if last > 0 {
        shard.appended(last, now);
    }
    last > 0
}

fn take_snapshot(shard: &mut Shard, slices: &mut Vec<Vec<u8>>) {
    while let Some(piece) = shard.poll_snapshot() {
        match piece {
            SnapshotOutput::Begin { .. } => slices.clear(),
            SnapshotOutput::Slice { bytes, .. } => {
                slices.push(bytes);
                shard.snapshot_taken();
            }
            SnapshotOutput::End { number } => shard.snapshot_finished(number, true),
            SnapshotOutput::Abort { number } => shard.snapshot_finished(number, false),
        }
    }
}

impl Campus {
    /// Below `/safe` two sites are needed.
    fn new() -> Self {
        Self::of(Levels::OWN)
    }

    fn of(levels: Levels) -> Self {
        let now_us = 1_000_000;
        let now = Now { mono_us: now_us, wall_ms: 1_700_000_000_000 };
        let mut campus = Self {
            hub: IDS.into_iter().map(|id| server(id, &IDS, levels, now)).collect(),
            leaf: server(20, &[20], levels, now),
            leader: 1,
            now_us,
            is_cut: false,
            to_leaf: VecDeque::new(),
            to_hub: VecDeque::new(),
            peers_cut: BTreeSet::new(),
            closed: BTreeMap::new(),
            slices: Vec::new(),
        };
        // Only the first one's time goes by, so it is elected.
        campus.pass_for(&IDS[..1], 1000);
        campus.pass(100);
        let now = campus.now();
        campus.server(1).begin_sites(HUB, "two-sites /safe", now).unwrap();
        campus.settle();
        campus.meet();
        campus.pass(200);
        assert!(campus.leaf.has_joined());
        let client = campus.open(1);
        for (xid, path) in [(1, "/safe"), (2, "/fast")] {
            campus.send(client, &create(xid, path, CreateMode::Persistent));
            campus.pass(50);
            assert_eq!(campus.answers(client), [xid]);
        }
        campus
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, wall_ms: 1_700_000_000_000 + (self.now_us / 1000) as i64 }
    }

    fn server(&mut self, id: u8) -> &mut Shard {
        &mut self.hub[usize::from(id) - 1]
    }

    /// The leaders of the two sites are connected (again).
    fn meet(&mut self) {
        let now = self.now();
        self.to_leaf.clear();
        self.to_hub.clear();
        let leader = self.leader;
        self.server(leader).site_connected(LEAF, now);
        self.leaf.site_connected(HUB, now);
        self.settle();
    }

    fn pass(&mut self, ms: u64) {
        self.pass_for(&IDS, ms);
    }

    fn pass_for(&mut self, ids: &[u8], ms: u64) {
        for _ in 0..ms / 10 {
            self.now_us += 10_000;
            let now = self.now();
            ids.iter().for_each(|id| self.server(*id).tick(now));
            self.leaf.tick(now);
            self.settle();
        }
    }

    /// Until nothing more happens by itself.
    fn settle(&mut self) {
        let now = self.now();
        while self.talk(now) | self.talk_abroad(now) {}
        for id in IDS {
            while let Some(output) = self.server(id).poll_output() {
                if let Output::Close(connection, reason) = output {
                    self.closed.insert((id, connection), reason);
                }
            }
        }
    }

    /// The servers of the hub, among themselves.
    fn talk(&mut self, now: Now) -> bool {
        let mut is_busy = false;
        for id in IDS {
            is_busy |= store(self.server(id), now);
            if id == self.leader {
                take_snapshot(&mut self.hub[usize::from(id) - 1], &mut self.slices);
            } else {
                take_snapshot(self.server(id), &mut Vec::new());
            }
            while let Some(output) = self.server(id).poll_peer() {
                if let PeerOutput::Send { to, message } = output
                    && !self.peers_cut.contains(&(id, to))
                {
                    self.server(to).peer_message(id, message.encode().join(), now).unwrap();
                    is_busy = true;
                }
            }
        }
        is_busy
    }

    /// The two sites.
    fn talk_abroad(&mut self, now: Now) -> bool {
        let mut is_busy = store(&mut self.leaf, now);
        take_snapshot(&mut self.leaf, &mut Vec::new());
        let leader = self.leader;
        while let Some((to, message)) = self.server(leader).poll_site() {
            assert_eq!(to, LEAF);
            self.to_leaf.push_back(message);
        }
        while let Some((_, message)) = self.leaf.poll_site() {
            self.to_hub.push_back(message);
        }
        while let Some((_, position)) = self.server(leader).poll_site_state() {
            for (at, slice) in self.slices.iter().enumerate() {
                self.leaf.site_state(u8::from(at == 0), slice, now);
            }
            self.leaf.site_state_ended(LEAF, HUB, position, now);
            is_busy = true;
        }
        if !self.is_cut
            && let Some(message) = self.to_leaf.pop_front()
        {
            self.leaf.site_message(HUB, &message, now).unwrap();
            is_busy = true;
        }
        if !self.is_cut
            && let Some(message) = self.to_hub.pop_front()
        {
            self.server(leader).site_message(LEAF, &message, now).unwrap();
            is_busy = true;
        }
        is_busy
    }

    fn open(&mut self, id: u8) -> (u8, ConnectionId) {
        let now = self.now();
        let connection = self.server(id).connect("127.0.0.1:4000".parse().unwrap(), now).unwrap();
        self.send((id, connection), &opening(0, &[0; 16]));
        self.pass(50);
        let bytes = self.output((id, connection));
        let (payload, _) = next_frame(&bytes, 1000).unwrap().unwrap();
        assert_ne!(ConnectResponse::decode(payload).unwrap().session_id, 0);
        (id, connection)
    }

    fn send(&mut self, (id, connection): (u8, ConnectionId), bytes: &[u8]) {
        let now = self.now();
        assert_eq!(self.server(id).receive(connection, bytes, now), bytes.len());
        self.settle();
    }

    fn output(&mut self, (id, connection): (u8, ConnectionId)) -> Vec<u8> {
        let now = self.now();
        let bytes = self.server(id).output(connection).to_vec();
        self.server(id).sent(connection, bytes.len(), now);
        bytes
    }

    /// The xids of what was answered, and went well.
    fn answers(&mut self, client: (u8, ConnectionId)) -> Vec<i32> {
        let bytes = self.output(client);
        let (mut rest, mut xids) = (bytes.as_slice(), Vec::new());
        while let Some((payload, tail)) = next_frame(rest, usize::MAX >> 1).unwrap() {
            let header = ReplyHeader::decode(&mut Reader::new(payload)).unwrap();
            assert_eq!(header.err, 0);
            xids.push(header.xid);
            rest = tail;
        }
        xids
    }

    fn held(&mut self) -> [u64; 3] {
        IDS.map(|id| self.server(id).site_status().unwrap().held)
    }

    /// A client at each server changes what has to be at two sites, while these cannot talk.
    fn wait_everywhere(&mut self) -> [(u8, ConnectionId); 3] {
        let clients = IDS.map(|id| self.open(id));
        self.is_cut = true;
        for (id, connection) in clients {
            self.send((id, connection), &create(5, &format!("/safe/{id}"), CreateMode::Persistent));
        }
        self.pass(200);
        assert_eq!(self.held(), [1; 3]);
        for client in clients {
            assert_eq!(self.answers(client), [], "at {}", client.0);
        }
        clients
    }
}

#[test]
fn a_client_waits_at_whichever_server_it_is() {
    let mut campus = Campus::new();
    let clients = campus.wait_everywhere();
    // What needs one site is answered everywhere.
    for id in IDS {
        let other = campus.open(id);
        campus.send(other, &create(1, &format!("/fast/{id}"), CreateMode::Persistent));
        campus.pass(50);
        assert_eq!(campus.answers(other), [1]);
    }
    campus.is_cut = false;
    // It takes no heartbeat.
    campus.settle();
    for client in clients {
        assert_eq!(campus.answers(client), [5], "at {}", client.0);
    }
    assert_eq!(campus.held(), [0; 3]);
}

#[test]
fn what_a_contact_server_does_not_hear_it_is_told_again() {
    let mut campus = Campus::new();
    let clients = campus.wait_everywhere();
    campus.peers_cut.insert((1, 2));
    campus.is_cut = false;
    campus.settle();
    assert_eq!(clients.map(|client| campus.answers(client)), [vec![5], vec![], vec![5]]);
    campus.peers_cut.clear();
    campus.pass(40);
    assert_eq!(campus.answers(clients[1]), [5]);
}

#[test]
fn another_leader_learns_anew_what_the_other_site_has() {
    let mut campus = Campus::new();
    let clients = campus.wait_everywhere();
    // The other site has it, and nobody here hears of that.
    while let Some(message) = campus.to_leaf.pop_front() {
        let now = campus.now();
        campus.leaf.site_message(HUB, &message, now).unwrap();
        while store(&mut campus.leaf, now) {}
    }
    assert!(campus.leaf.tree().get("/safe/3").is_some());
    let now = campus.now();
    campus.server(1).hand_over(3, now);
    campus.pass(300);
    assert_eq!(campus.server(2).status().leader, Some(3));
    campus.server(1).site_lost(LEAF);
    campus.leader = 3;
    campus.pass(300);
    assert_eq!(campus.held(), [1; 3], "they wait, whoever leads");
    campus.is_cut = false;
    campus.meet();
    for client in clients {
        assert_eq!(campus.answers(client), [5], "at {}", client.0);
    }
    // And what is asked from now on waits for the same.
    campus.is_cut = true;
    campus.send(clients[1], &set(6, "/safe/1", b"x"));
    campus.pass(100);
    assert_eq!((campus.answers(clients[1]), campus.held()), (vec![], [0, 1, 0]));
    campus.is_cut = false;
    campus.settle();
    assert_eq!(campus.answers(clients[1]), [6]);
}

#[test]
fn a_client_of_any_server_is_let_go_in_time() {
    let mut campus = Campus::new();
    let clients = campus.wait_everywhere();
    for _ in 0..10 {
        for client in clients {
            campus.send(client, &request(xid::PING, Opcode::Ping, |_| {}));
        }
        campus.pass(1000);
    }
    for client in clients {
        assert_eq!(campus.closed.get(&client), Some(&CloseReason::SiteAway), "at {}", client.0);
        assert_eq!(campus.answers(client), vec![xid::PING; 10]);
    }
    assert_eq!(campus.held(), [0; 3]);
}

/// All servers of a site have to be able to read what is of a level before others hear that the site can.
#[test]
fn a_site_reads_what_all_its_servers_read() {
    let mut campus = Campus::of(NEXT);
    let now = campus.now();
    let reads = |campus: &mut Campus| {
        let levels = campus.server(1).own_levels();
        (levels.can.newest, levels.all_read)
    };
    let raise = |campus: &mut Campus| match campus.server(1).raise_level(now) {
        Err(LevelRefusal::HeldBack(HeldBack { sites, servers })) => (sites, servers),
        other => panic!("{other:?}"),
    };
    let next = SiteLevels { can: NEXT, all_read: 2, in_use: 1 };
    campus.server(1).site_levels(LEAF, next);
    // Who is not connected keeps nobody from being connected with the site.
    let unknown = vec![(2, None), (3, None)];
    assert_eq!((reads(&mut campus), raise(&mut campus)), ((2, 1), (vec![], unknown)));
    campus.server(1).peer_levels(2, NEXT);
    campus.server(1).peer_levels(3, Levels::UNSAID);
    assert_eq!((reads(&mut campus), raise(&mut campus)), ((1, 1), (vec![], vec![(3, Some(1))])));
    campus.server(1).peer_levels(3, NEXT);
    assert_eq!(reads(&mut campus), (2, 2));
    campus.server(1).peer_lost(2, now);
    assert_eq!((reads(&mut campus), raise(&mut campus)), ((2, 1), (vec![], vec![(2, None)])));
    campus.server(1).peer_levels(2, NEXT);
    campus.server(1).site_levels(LEAF, SiteLevels { all_read: 1, ..next });
    assert_eq!(raise(&mut campus), (vec![(LEAF, Some(1))], vec![]));
    campus.server(1).site_levels(LEAF, next);
    assert_eq!(campus.server(1).raise_level(now), Ok(2));
    campus.settle();
    let in_use = |shard: &Shard| shard.tree().level();
    assert_eq!((campus.hub.iter().map(in_use).collect::<Vec<_>>(), in_use(&campus.leaf)), (vec![2; 3], 2));
    // Who is let in from now on can read it, also who is away.
    campus.server(1).peer_lost(2, now);
    assert_eq!(reads(&mut campus), (2, 2));
}
