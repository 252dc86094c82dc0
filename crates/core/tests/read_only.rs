//! A server with several partitions that is cut off from the others, and only reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod threads;

use std::collections::BTreeSet;

use stoa_core::{CloseReason, Config};
use stoa_wire::{ConnectResponse, ErrorCode, MultiResult, MultiResults, Opcode, put, request::encode, xid};
use threads::*;

const PARTITIONS: u8 = 3;
const NOBODY: (i64, &[u8]) = (0, &[0; 16]);

/// Three servers; the third one can be cut off, partition by partition.
struct Trio {
    servers: Vec<Threads>,
    cut: BTreeSet<u8>,
}

impl Trio {
    fn new() -> Self {
        let server = |server_id: u8| {
            let config = Config {
                server_id,
                partitions: PARTITIONS,
                tick_ms: 100,
                session_timeout_min_ms: 500,
                heartbeat_ms: 20,
                read_only_mode: true,
                ..Config::default()
            };
            Threads::of(&config, &[1, 2, 3])
        };
        let mut trio = Self { servers: (1..=3).map(server).collect(), cut: BTreeSet::new() };
        // Only the first one's time goes by, so it is elected.
        trio.pass(&[1], 1000);
        trio.pass(&[1, 2, 3], 200);
        trio
    }

    fn server(&mut self, id: u8) -> &mut Threads {
        &mut self.servers[usize::from(id) - 1]
    }

    fn pass(&mut self, ids: &[u8], ms: u64) {
        for _ in 0..ms / 10 {
            for id in 1..=3 {
                let threads = self.server(id);
                threads.now.mono_us += 10_000;
                let now = threads.now;
                if ids.contains(&id) {
                    threads.shards.iter_mut().for_each(|shard| shard.tick(now));
                }
            }
            self.settle();
        }
    }

    fn settle(&mut self) {
        loop {
            let mut mail = Vec::new();
            for (from, threads) in (1..).zip(&mut self.servers) {
                threads.settle();
                mail.extend(std::mem::take(&mut threads.mail).into_iter().map(|letter| (from, letter)));
            }
            if mail.is_empty() {
                return;
            }
            for (from, (partition, to, message)) in mail {
                if (from == 3 || to == 3) && self.cut.contains(&partition) {
                    continue;
                }
                let threads = self.server(to);
                let now = threads.now;
                threads.shard(partition).peer_message(from, message, now).unwrap();
            }
        }
    }

    fn connect(
        &mut self,
        id: u8,
        thread: u8,
        session: (i64, &[u8]),
        last_zxid: i64,
    ) -> (Client, Option<ConnectResponse>) {
        let client = self.server(id).begin(thread, session, last_zxid, true);
        self.settle();
        (client, self.server(id).response(client))
    }

    fn ask(&mut self, id: u8, client: Client, request: &[u8]) -> Frame {
        self.server(id).send(client, request);
        self.settle();
        let mut frames = self.server(id).take(client);
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames.remove(0)
    }

    /// The third server is cut off for so long that it only reads.
    fn cut_off(&mut self) {
        self.cut = (0..PARTITIONS).collect();
        self.pass(&[1, 2, 3], 2000);
        assert!(self.server(3).shards[0].is_read_only());
    }
}

fn auth(scheme: &str, proof: &[u8]) -> Vec<u8> {
    request(xid::AUTH, Opcode::Auth, |out| {
        put::i32(out, 0);
        put::str(out, scheme);
        put::buffer(out, proof);
    })
}

fn ephemerals() -> Vec<u8> {
    request(5, Opcode::GetEphemerals, |out| put::str(out, "/"))
}

fn sync(path: &str) -> Vec<u8> {
    request(6, Opcode::Sync, |out| encode::path(out, path))
}

#[test]
fn a_server_that_is_cut_off_reads_on_every_partition_and_does_nothing_else() {
    let mut trio = Trio::new();
    let tops = tops(PARTITIONS);
    let (writer, _) = trio.connect(1, 0, NOBODY, 0);
    for top in &tops {
        assert_eq!(trio.ask(1, writer, &create(1, top)).err, 0);
    }
    let (lent, session) = trio.connect(3, 1, NOBODY, 0);
    let session = session.unwrap();
    for top in &tops[1..] {
        assert_eq!(trio.ask(3, lent, &create_as(3, &format!("{top}/e"), 1)).err, 0);
    }
    // Of this the first partition sees nothing.
    let newest = (0..9).map(|_| trio.ask(1, writer, &set(2, &tops[2], b"new")).zxid).last().unwrap();
    trio.cut_off();
    assert_eq!(trio.server(3).closed, [(lent, CloseReason::OnlyReads)]);

    let own: (i64, &[u8]) = (session.session_id, &session.password);
    for (thread, comes) in [(0, NOBODY), (2, NOBODY), (1, own), (2, own)] {
        let (client, response) = trio.connect(3, thread, comes, newest);
        let response = response.unwrap();
        assert_eq!(response.read_only, Some(true));
        assert!(comes.0 == 0 || comes.0 == response.session_id);
        for top in &tops {
            let expected: &[u8] = if *top == tops[2] { b"new" } else { b"first" };
            assert_eq!(data(&trio.ask(3, client, &get(4, top, true))), expected);
            for refused in [set(5, top, b""), create(5, &format!("{top}/x")), sync(top)] {
                assert_eq!(trio.ask(3, client, &refused).err, ErrorCode::NotReadOnly as i32, "{top}");
            }
        }
        let listed = names(&trio.ask(3, client, &ephemerals()));
        let mut expected: Vec<_> = tops[1..].iter().map(|top| format!("{top}/e")).collect();
        expected.sort();
        assert_eq!(listed, if comes.0 == 0 { Vec::new() } else { expected });
        let reads = multi(6, Opcode::MultiRead, |out| {
            for top in &tops {
                op(out, Opcode::GetData, |out| encode::path_watch(out, top, false));
            }
        });
        let answer = trio.ask(3, client, &reads);
        let results = MultiResults::decode(&mut stoa_wire::Reader::new(&answer.body)).unwrap();
        assert!(
            results.iter().all(|result| matches!(result, MultiResult::Data { .. })) && results.len() == 3
        );
        let watched: Vec<_> = tops.iter().map(String::as_str).collect();
        let watches = request(xid::SET_WATCHES, Opcode::SetWatches, |out| {
            encode::set_watches(out, newest, &[&watched, &[], &[]]);
        });
        trio.server(3).send(client, &watches);
        trio.settle();
        assert_eq!(trio.server(3).take(client).last().map(|frame| (frame.xid, frame.err)), Some((-8, 0)));
        // What is newest only a majority knows.
        assert_eq!(trio.ask(3, client, &auth("consistency", b"linearizable")).err, 0);
        for request in [get(7, &tops[0], false), get(7, &tops[1], false), ephemerals()] {
            assert_eq!(trio.ask(3, client, &request).err, ErrorCode::NotReadOnly as i32);
        }
        assert_eq!(trio.ask(3, client, &auth("consistency", b"sequential")).err, 0);
        assert_eq!(trio.ask(3, client, &get(7, &tops[1], false)).err, 0);
    }
    let closed = std::mem::take(&mut trio.server(3).closed);
    assert_eq!(closed.iter().filter(|(_, why)| *why == CloseReason::SessionMoved).count(), 1);

    let (ahead, response) = trio.connect(3, 1, NOBODY, newest + 1000);
    assert_eq!(response, None);
    let client = trio.server(3).begin(0, NOBODY, 0, false);
    trio.settle();
    let closed = std::mem::take(&mut trio.server(3).closed);
    assert_eq!(closed, [(ahead, CloseReason::ClientAhead), (client, CloseReason::OnlyReads)]);

    // A leader is found: everybody comes back, and the sessions are as they were.
    trio.cut.clear();
    trio.pass(&[1, 2, 3], 300);
    let closed = std::mem::take(&mut trio.server(3).closed);
    assert_eq!(closed.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [CloseReason::ReadsEnd; 3]);
    let (back, response) = trio.connect(3, 0, own, newest);
    let response = response.unwrap();
    assert_eq!((response.session_id, response.read_only), (own.0, Some(false)));
    assert_eq!(trio.ask(3, back, &set(8, &tops[1], b"again")).err, 0);
}

#[test]
fn who_comes_after_a_move_is_not_told_that_what_moved_is_nowhere() {
    let mut trio = Trio::new();
    let tops = tops(PARTITIONS);
    let (writer, _) = trio.connect(1, 0, NOBODY, 0);
    assert_eq!(trio.ask(1, writer, &create(1, &tops[1])).err, 0);
    // At the third server the first partition, which takes it, waits for the watches that come with it: one of
    // the fronts is slow to speak.
    trio.server(3).silent = Some((2, 0));
    trio.server(1).shard(0).ask_move(&tops[1], 0).unwrap();
    trio.pass(&[1, 2, 3], 100);
    let shards = &trio.server(3).shards;
    let lives = [0, 1].map(|partition: usize| shards[partition].placement().of(&tops[1]));
    assert_eq!(lives, [1, 0], "of the two the giver alone knows it");
    trio.cut_off();
    // Such a session has no place on the timeline, so that the taker need not have come as far as the giver.
    let (client, response) = trio.connect(3, 1, NOBODY, 0);
    assert_eq!(response.unwrap().read_only, Some(true));
    trio.server(3).send(client, &get(4, &tops[1], false));
    trio.settle();
    assert_eq!(trio.server(3).take(client), []);
    trio.server(3).silent = None;
    trio.settle();
    let answers = trio.server(3).take(client);
    assert_eq!(answers.iter().map(data).collect::<Vec<_>>(), [b"first"]);
}
