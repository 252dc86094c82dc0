//! A server that votes alone is asked for other lists of servers.

use stoa_core::{Config, ConnectionId, Now, Recovered, Restore, Shard, digest_id};
use stoa_tree::{Options, Tree};
use stoa_wire::{
    ConnectRequest, Opcode, Reader, ReplyHeader, RequestHeader, begin_frame, end_frame, next_frame, put,
    request::encode,
};

const LIST: &str = "server.1=one:2888:3888:participant;2181";
const OK: i32 = 0;
const IN_PROGRESS: i32 = -14;
const SYSTEM_ERROR: i32 = -1;

struct Alone {
    server: Shard,
    now: Now,
    client: ConnectionId,
}

impl Alone {
    /// A server that has said who it is, and a client who may change that.
    fn new() -> Self {
        let now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
        let config = Config {
            servers: LIST.into(),
            reconfig_enabled: true,
            authentication: stoa_core::Authentication {
                super_digest: Some(digest_id("super:man")),
                ..Default::default()
            },
            ..Config::default()
        };
        let recovered = Recovered::new(Tree::new(Options::default()), &[1]);
        let mut server = Shard::new(config, recovered, [7; 32], now).expect("a new timeline is sound");
        let client = server.connect(([127, 0, 0, 1], 1).into(), now).expect("there is room");
        let mut alone = Self { server, now, client };
        alone.store();
        let mut hello = Vec::new();
        let start = begin_frame(&mut hello);
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 10_000,
            session_id: 0,
            password: &[0; 16],
            read_only: None,
        };
        request.encode(&mut hello);
        end_frame(&mut hello, start);
        alone.receive(&hello);
        alone.store();
        let mut auth = Vec::new();
        encode::auth(&mut auth, "digest", b"super:man");
        alone.send(-4, Opcode::Auth, &auth);
        alone.frames();
        alone
    }

    fn receive(&mut self, bytes: &[u8]) {
        assert_eq!(self.server.receive(self.client, bytes, self.now), bytes.len());
    }

    fn send(&mut self, xid: i32, opcode: Opcode, body: &[u8]) {
        let mut bytes = Vec::new();
        let start = begin_frame(&mut bytes);
        RequestHeader { xid, opcode: opcode as i32 }.encode(&mut bytes);
        bytes.extend_from_slice(body);
        end_frame(&mut bytes, start);
        self.receive(&bytes);
    }

    /// Asks for the list that is in force.
    fn reconfig(&mut self, xid: i32) {
        let mut body = Vec::new();
        put::opt_buffer(&mut body, Some(LIST.as_bytes()));
        put::opt_buffer(&mut body, None);
        put::opt_buffer(&mut body, None);
        put::i64(&mut body, -1);
        self.send(xid, Opcode::Reconfig, &body);
    }

    fn store(&mut self) {
        while let Some(append) = self.server.poll_append() {
            self.server.appended(append.position, self.now);
        }
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        let output = self.server.output(self.client).to_vec();
        self.server.sent(self.client, output.len(), self.now);
        let (mut rest, mut frames) = (&output[..], Vec::new());
        while let Ok(Some((frame, tail))) = next_frame(rest, usize::MAX) {
            frames.push(frame.to_vec());
            rest = tail;
        }
        frames
    }

    fn answers(&mut self) -> Vec<(i32, i32)> {
        let header = |frame: &Vec<u8>| ReplyHeader::decode(&mut Reader::new(frame)).expect("it is a reply");
        self.frames().iter().map(header).map(|header| (header.xid, header.err)).collect()
    }
}

#[test]
fn a_list_that_the_log_has_refused_is_not_under_way_for_ever() {
    let mut alone = Alone::new();
    alone.reconfig(1);
    let append = alone.server.poll_append().expect("there is a list to store");
    alone.reconfig(2);
    assert!(alone.server.append_refused(append.generation, alone.now));
    alone.now.mono_us += 1_000_000;
    alone.server.tick(alone.now);
    alone.store();
    assert_eq!(alone.answers(), [(1, SYSTEM_ERROR), (2, SYSTEM_ERROR)]);
    alone.reconfig(3);
    alone.reconfig(4);
    alone.store();
    assert_eq!(alone.answers(), [(3, OK), (4, IN_PROGRESS)]);
}

#[test]
fn who_is_to_vote_joins_until_it_does() {
    let mut alone = Alone::new();
    assert_eq!(alone.server.joining(), []);
    let more = "server.2=two:2888:3888:participant;2181,server.3=three:2888:3888:observer;2181";
    let mut body = Vec::new();
    put::opt_buffer(&mut body, Some(more.as_bytes()));
    put::opt_buffer(&mut body, None);
    put::opt_buffer(&mut body, None);
    put::i64(&mut body, -1);
    alone.send(1, Opcode::Reconfig, &body);
    for peer in [2, 3] {
        alone.server.peer_connected(peer, alone.now);
    }
    for _ in 0..10 {
        alone.store();
        alone.now.mono_us += 1_000_000;
        alone.server.tick(alone.now);
    }
    assert_eq!(alone.answers(), [(1, OK)]);
    let standing = alone.server.status();
    assert_eq!((standing.voters, standing.observers), (vec![1], vec![2, 3]));
    assert_eq!((alone.server.joining(), alone.server.leader()), (vec![2], Some(1)));
}

/// The first list is that of the first leader's settings. Who has it in his own is not told; whose settings name others
/// would never hear of those who are only there.
#[test]
fn whose_settings_name_others_than_the_first_list_is_told_of_it() {
    let now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
    let config = |servers: &str| Config { servers: servers.into(), ..Config::default() };
    let recovered = Recovered::new(Tree::new(Options::default()), &[1]);
    let mut server = Shard::new(config(LIST), recovered, [7; 32], now).expect("a new timeline is sound");
    let mut records = Vec::new();
    while let Some(append) = server.poll_append() {
        records.push((append.position, append.payload.join()));
        server.appended(append.position, now);
    }
    assert!(server.tree().get("/zookeeper/config").is_some_and(|znode| znode.data() != Some(b"")));
    assert_eq!(server.changed_servers(), None);
    let restarted = |servers: &str| {
        let mut restore = Restore::new(Options::default(), &[1], 1);
        records
            .iter()
            .for_each(|(position, record)| restore.record(*position, record).expect("it was stored"));
        let recovered = restore.finish(1).expect("all of it was").remove(0);
        let server = Shard::new(config(servers), recovered, [8; 32], now).expect("it is sound");
        server.changed_servers().map(String::from)
    };
    assert_eq!(
        restarted("server.1=another:2889:3889:participant;2181"),
        None,
        "only its address is another one"
    );
    let others = format!("{LIST}\nserver.2=two:2888:3888:participant;2181");
    for settings in [&others, ""] {
        assert!(restarted(settings).is_some_and(|list| list.contains("server.1=one")));
    }
}
