//! What is sent arrives, in order, once; what fails is noticed.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::proxy::Proxy;
use super::*;
use crate::peers::frame::{self, FrameKind, MESSAGE_BYTES_MAX};

/// The message with this number from one server to another: most are short, a few are long.
fn message(from: u64, to: u64, number: u32) -> Bytes {
    let len = match number % 500 {
        499 => 1 << 20,
        rest if rest % 7 == 0 => rest * 40,
        rest => rest % 90,
    };
    let mut bytes = number.to_le_bytes().to_vec();
    let seed = (from * 31 + to * 7 + u64::from(number)) as u8;
    bytes.extend((0..len).map(|index| (index as u8).wrapping_mul(13).wrapping_add(seed)));
    bytes.into()
}

#[test]
fn messages_of_several_peers_arrive_whole_and_in_order() {
    const COUNT: u32 = 3000;
    run(async {
        let servers = ensemble(3, &Setup::default());
        for server in &servers {
            server.connected().await;
            server.connected().await;
        }
        // In turns of different lengths, as a server would.
        for number in 0..COUNT {
            for server in &servers {
                for to in (1..=3).filter(|to| *to != server.id) {
                    assert!(server.peers.send(to, message(server.id, to, number).into()));
                }
                if number % (server.id as u32 * 5) == 0 {
                    server.peers.flush();
                    tokio::task::yield_now().await;
                }
            }
        }
        for server in &servers {
            server.peers.flush();
        }
        for server in &servers {
            let mut next = [0; 4];
            for (from, got) in server.messages(COUNT as usize * 2).await {
                let next = &mut next[from as usize];
                assert!(got == message(from, server.id, *next), "{from} to {}: {next}", server.id);
                *next += 1;
            }
            let status = server.status(1 + server.id % 3);
            assert_eq!(status.messages_in, u64::from(COUNT));
            assert_eq!(status.messages_out, u64::from(COUNT));
            assert!(status.bytes_in > 6 << 20 && status.queued_bytes == 0, "{status:?}");
            assert!(status.connected_ms.is_some() && status.identity.is_some());
        }
    });
}

#[test]
fn a_restarted_peer_is_lost_at_once_and_found_again_as_another_process() {
    run(async {
        let mut servers = ensemble(2, &Setup::default());
        let (two, one) = (servers.pop().unwrap(), servers.pop().unwrap());
        let before = one.connected().await;
        assert_eq!((before.id, before.disk, before.software.as_str()), (2, [2; 16], "stoa test 2"));
        two.connected().await;
        let port = one.status(2).address;
        let members = vec![two.status(1).address];
        let began = Instant::now();
        two.stop().await;
        let (id, why) = one.lost().await;
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
        assert!(id == 2 && why.contains("server 2: "), "{why}");
        assert!(!one.say(2, b"nobody is there"));

        let listener = std::net::TcpListener::bind((port.host.as_str(), port.port));
        // The port may still be held by connections that are ending.
        let listener = match listener {
            Ok(listener) => listener,
            Err(_) => crate::listen::bind(port.host.parse().unwrap(), port.port, 16).unwrap(),
        };
        let two = Server::start(2, listener, members, &Setup::default());
        let after = one.connected().await;
        assert_ne!(after.incarnation(), before.incarnation());
        two.connected().await;
        assert!(one.say(2, b"again"));
        assert_eq!(two.messages(1).await, [(1, Bytes::from_static(b"again"))]);
        assert!(one.status(2).last_error.is_some());
    });
}

#[test]
fn a_newer_connection_replaces_the_older_for_good() {
    run(async {
        let (server, target, puppet, mut older, _from) = with_puppet().await;
        let say = |text: &'static [u8]| frame::encode(FrameKind::Message, &[text]);
        older.write_all(&say(b"one")).await.unwrap();
        assert_eq!(server.messages(1).await, [(2, Bytes::from_static(b"one"))]);
        let mut newer = puppet.connect(&target, Purpose::Messages).await.unwrap();
        newer.write_all(&say(b"three")).await.unwrap();
        let (_, why) = server.lost().await;
        assert!(why.contains("from server 2: replaced by a newer one"), "{why}");
        // Whether or not the socket takes it, and with time to arrive.
        let _ = older.write_all(&say(b"two")).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        // Nothing is handed out until the other direction is up again too.
        assert!(server.events.borrow_mut().try_recv().is_err());
        let _from = puppet.accept().await;
        server.connected().await;
        assert_eq!(server.messages(1).await, [(2, Bytes::from_static(b"three"))]);
        newer.write_all(&say(b"four")).await.unwrap();
        assert_eq!(server.messages(1).await, [(2, Bytes::from_static(b"four"))]);
    });
}

#[test]
fn connections_to_different_processes_of_a_peer_do_not_make_it_connected() {
    run(async {
        let mut puppet = Puppet::new(2, None);
        let listener = bind();
        let target = address(1, listener.local_addr().unwrap());
        let server = Server::start(1, listener, vec![puppet.address()], &Setup::default());
        // The first process connects, and ends before it is connected to.
        let mut first = puppet.connect(&target, Purpose::Messages).await.unwrap();
        puppet.local.starts = started(2);
        let mut from_server = puppet.accept().await;
        let closed = timeout(PATIENCE, first.read(&mut [0; 64])).await.unwrap();
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
        let mut second = puppet.connect(&target, Purpose::Messages).await.unwrap();
        assert_eq!(server.connected().await.incarnation(), 2);
        // A third one, while both connections of the second seem to be well.
        puppet.local.starts = started(3);
        let _third = puppet.connect(&target, Purpose::Messages).await.unwrap();
        assert!(server.lost().await.1.contains("replaced"));
        for of_second in [&mut second, &mut from_server] {
            let closed = timeout(PATIENCE, of_second.read(&mut [0; 64])).await.unwrap();
            assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
        }
        let _from = puppet.accept().await;
        assert_eq!(server.connected().await.incarnation(), 3);
    });
}

#[test]
fn a_damaged_frame_ends_the_connection_and_what_came_before_counts() {
    run(async {
        let damaged = |at: usize| {
            let mut frame = frame::encode(FrameKind::Message, &[b"damaged"]);
            frame[at] ^= 0x10;
            frame
        };
        for (bytes, expected) in [
            (damaged(12), "the connection from server 2: it sent a frame of 7 bytes that does not fit"),
            (damaged(5), "that does not fit its checksum"),
            // A length beyond all bounds is not waited for.
            (damaged(3), "it sent a frame of 268435463 bytes, where"),
            (frame::encode(FrameKind::Chunk, &[b"for another purpose"]), "it sent Chunk"),
        ] {
            let (server, target, puppet, mut to_server, _from) = with_puppet().await;
            let mut sent = frame::encode(FrameKind::Message, &[b"whole"]);
            sent.extend_from_slice(&bytes);
            to_server.write_all(&sent).await.unwrap();
            assert_eq!(server.messages(1).await, [(2, Bytes::from_static(b"whole"))]);
            let (_, why) = server.lost().await;
            assert!(why.contains(expected), "{why}");
            // And all is well again afterwards.
            let _from = puppet.accept().await;
            let _to = puppet.connect(&target, Purpose::Messages).await.unwrap();
            server.connected().await;
        }
    });
}

#[test]
fn a_message_on_the_connection_that_only_gives_signs_of_life_ends_it() {
    run(async {
        let (server, _target, _puppet, _to, mut from_server) = with_puppet().await;
        from_server.write_all(&frame::encode(FrameKind::Message, &[b"the wrong way"])).await.unwrap();
        let (_, why) = server.lost().await;
        assert_eq!(why, "the connection to server 2: it sent Message where that has no meaning");
    });
}

#[test]
fn a_peer_that_does_not_read_fills_its_own_queue_and_no_other() {
    run(async {
        let puppet = Puppet::new(3, None);
        let (one, two) = (bind(), bind());
        let addresses =
            [address(1, one.local_addr().unwrap()), address(2, two.local_addr().unwrap()), puppet.address()];
        let one = Server::start(1, one, addresses.to_vec(), &Setup::default());
        let two = Server::start(2, two, addresses[..1].to_vec(), &Setup::default());
        let mut from_server = puppet.accept().await;
        let _to = puppet.connect(&addresses[0], Purpose::Messages).await.unwrap();
        one.until(|one| one.peers.status().iter().all(|status| status.connected_ms.is_some())).await;

        let piece = Bytes::from(vec![5; 1 << 20]);
        let mut sent = 0;
        while one.peers.send(3, piece.clone().into()) {
            one.peers.flush();
            sent += 1;
            assert!(sent < 200, "nothing bounds the queue");
        }
        assert!(sent >= 63, "{sent} MiB");
        let queued = one.status(3).queued_bytes;
        assert!(queued <= (MESSAGE_BYTES_MAX + 9) as u64 && queued > 60 << 20, "{queued}");
        // A short one fits still, another peer is not concerned.
        one.connected().await;
        one.connected().await;
        two.connected().await;
        assert!(one.say(2, b"for another"));
        assert_eq!(two.messages(1).await, [(1, Bytes::from_static(b"for another"))]);

        // It reads again: what was queued comes, in order, and the queue has room.
        let mut got = vec![0; (piece.len() + 9) * sent];
        from_server.read_exact(&mut got).await.unwrap();
        for frame in got.chunks_exact(piece.len() + 9) {
            assert!(frame[9..] == piece);
        }
        one.until(|one| one.status(3).queued_bytes == 0).await;
        // The longest message takes the whole queue; a longer one is refused.
        assert!(!one.peers.send(3, Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]).into()));
        assert!(one.peers.send(3, Bytes::from(vec![0; MESSAGE_BYTES_MAX]).into()));
        assert!(!one.peers.send(3, Bytes::from_static(b"x").into()));
    });
}

#[test]
fn no_more_is_received_than_the_server_has_taken() {
    run(async {
        let servers = ensemble(2, &Setup::default());
        let [one, two] = &servers[..] else { panic!() };
        one.connected().await;
        two.connected().await;
        let piece = Bytes::from(vec![9; 1 << 20]);
        let mut sent = 0_u64;
        let mut stuck = 0;
        while sent < 250 && stuck < 10 {
            if one.peers.send(2, piece.clone().into()) {
                one.peers.flush();
                (sent, stuck) = (sent + 1, 0);
            } else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                stuck += 1;
            }
        }
        // Nobody takes what has come to the second server: it stops reading, the first one's queue fills.
        assert!(sent < 250, "nothing bounds what is received");
        let held = two.status(1).bytes_in;
        assert!((60 << 20..70 << 20).contains(&held), "{held}");
        // Longer than a silent peer is given: both know that the other lives.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        assert!(two.messages_total(sent).await == sent);
    });
}

impl Server {
    async fn messages_total(&self, count: u64) -> u64 {
        let mut got = 0;
        while got < count {
            match self.event().await {
                PeerEvent::Messages(_, messages) => got += messages.list.len() as u64,
                other => panic!("server {}: {other:?}", self.id),
            }
        }
        got
    }
}

#[test]
fn a_peer_that_falls_silent_is_lost_within_three_seconds_and_an_idle_one_is_not() {
    run(async {
        let (one, two) = (bind(), bind());
        let (one_at, two_at) = (one.local_addr().unwrap(), two.local_addr().unwrap());
        // All that the two say to each other passes here.
        let (to_one, to_two) = (Proxy::to(one_at), Proxy::to(two_at));
        let one = Server::start(1, one, vec![address(2, to_two.address)], &Setup::default());
        let two = Server::start(2, two, vec![address(1, to_one.address)], &Setup::default());
        one.connected().await;
        two.connected().await;
        tokio::time::sleep(Duration::from_millis(3400)).await;
        assert!(one.status(2).connected_ms.is_some() && two.status(1).connected_ms.is_some());
        assert!(one.say(2, b"still there"));
        assert_eq!(two.messages(1).await.len(), 1);
        let began = Instant::now();
        to_one.fall_silent();
        to_two.fall_silent();
        let (_, why) = one.lost().await;
        assert!(why.contains("nothing was heard"), "{why}");
        two.lost().await;
        let took = began.elapsed();
        assert!((Duration::from_millis(1400)..Duration::from_millis(3600)).contains(&took), "{took:?}");
    });
}

#[test]
fn members_come_and_go() {
    run(async {
        let (one, two, again) = (bind(), bind(), bind());
        let one_at = address(1, one.local_addr().unwrap());
        let two_at = address(2, two.local_addr().unwrap());
        let moved = address(2, again.local_addr().unwrap());
        let one = Server::start(1, one, vec![one_at.clone()], &Setup::default());
        let two = Server::start(2, two, vec![one_at.clone()], &Setup::default());
        two.until(|two| two.status(1).last_error.is_some_and(|error| error.contains("no member"))).await;
        // Its own entry is passed over.
        one.peers.set_members(vec![one_at.clone(), two_at.clone()]);
        one.connected().await;
        two.connected().await;
        // The same again changes nothing.
        one.peers.set_members(vec![two_at]);
        assert!(one.say(2, b"to the first"));
        two.messages(1).await;

        let second = Server::start(2, again, vec![one_at], &Setup::default());
        two.stop().await;
        one.peers.set_members(vec![moved]);
        let (_, why) = one.lost().await;
        assert!(why.contains("connection"), "{why}");
        one.until(|one| one.status(2).connected_ms.is_some()).await;
        second.until(|second| second.status(1).connected_ms.is_some()).await;
        one.peers.set_members(Vec::new());
        assert!(!one.say(2, b"to nobody"));
        let (id, _) = second.last_lost().await;
        assert_eq!(id, 1);
        second
            .until(|second| second.status(1).last_error.is_some_and(|error| error.contains("no member")))
            .await;
    });
}

#[test]
fn a_peer_stays_connected_until_it_is_reached_where_it_has_moved_to() {
    run(async {
        let mut servers = ensemble(2, &Setup::default());
        let (two, one) = (servers.pop().unwrap(), servers.pop().unwrap());
        one.connected().await;
        two.connected().await;
        let nobody = bind();
        let moved = address(2, nobody.local_addr().unwrap());
        drop(nobody);
        one.peers.set_members(vec![moved.clone()]);
        one.until(|one| one.status(2).last_error.is_some_and(|error| error.contains("refused"))).await;
        assert!(one.status(2).address == moved && one.say(2, b"as before"));
        assert_eq!(two.messages(1).await, [(1, Bytes::from_static(b"as before"))]);
        let (near, far) = (bind(), two.status(1).address);
        let again = address(2, near.local_addr().unwrap());
        let third = Server::start(2, near, vec![far], &Setup::default());
        one.peers.set_members(vec![again]);
        // Whoever is there now is another process.
        third.connected().await;
        one.until(|one| one.status(2).connected_ms.is_some()).await;
        assert!(one.say(2, b"where it is now"));
        assert_eq!(third.messages(1).await, [(1, Bytes::from_static(b"where it is now"))]);
    });
}

#[test]
fn a_list_of_servers_is_told_to_those_who_cannot_be_reached() {
    run(async {
        let (one, two, nobody) = (bind(), bind(), bind());
        let one_at = address(1, one.local_addr().unwrap());
        let elsewhere = address(2, nobody.local_addr().unwrap());
        drop(nobody);
        let one = Server::start(1, one, vec![elsewhere], &Setup::default());
        one.peers.tell_servers("version=1");
        let two = Server::start(2, two, vec![one_at], &Setup::default());
        let told = async |expected: &'static str| match two.event().await {
            PeerEvent::Servers(1, list) => assert_eq!(list, expected),
            event => panic!("{event:?}"),
        };
        told("version=1").await;
        one.peers.tell_servers("version=2");
        told("version=2").await;
        // What is told already is not told again, and nothing that is too long for a peer to take.
        one.peers.tell_servers("version=2");
        one.peers.tell_servers(&"x".repeat(65_537));
        one.peers.tell_servers("version=3");
        told("version=3").await;
        assert_eq!((one.status(2).connected_ms, two.status(1).connected_ms), (None, None));
    });
}

#[test]
fn a_list_of_servers_that_is_too_long_ends_the_connection() {
    run(async {
        let (server, _, _, mut to_server, _from) = with_puppet().await;
        to_server.write_all(&frame::encode(FrameKind::Servers, &[&[b'x'; 65_537]])).await.unwrap();
        let (_, why) = server.lost().await;
        assert!(why.contains("it sent Servers where that has no meaning"), "{why}");
    });
}

#[test]
fn a_peer_that_tells_lists_without_end_is_left() {
    run(async {
        let (server, _, _, mut to_server, _from) = with_puppet().await;
        let list = frame::encode(FrameKind::Servers, &[&[b'x'; 65_536]]);
        for _ in 0..64 {
            to_server.write_all(&list).await.unwrap();
        }
        let (_, why) = server.last_lost().await;
        assert!(why.contains("it has told many lists of servers"), "{why}");
    });
}

impl Server {
    /// The next loss, whatever comes before it.
    async fn last_lost(&self) -> (u64, String) {
        loop {
            if let PeerEvent::Lost(id, why) = self.event().await {
                return (id, why);
            }
        }
    }
}
