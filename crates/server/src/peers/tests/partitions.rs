//! Servers with several partitions: one port, and connections of their own for each.

use std::fs;

use super::*;
use crate::peers::link::Direction;

/// Two servers with so many partitions, and the partitions of each.
fn pair(count: u8, setup: &Setup) -> [Vec<Server>; 2] {
    let listeners = [bind(), bind()];
    let members: Vec<_> =
        (1..).zip(&listeners).map(|(id, it)| address(id, it.local_addr().unwrap())).collect();
    let [one, two] = listeners;
    [Server::partitions(1, count, one, &members, setup), Server::partitions(2, count, two, &members, setup)]
}

async fn all_connected(servers: &[Vec<Server>; 2]) {
    for server in servers.iter().flatten() {
        server.connected().await;
    }
}

#[test]
fn each_partition_hears_its_own_messages() {
    run(async {
        let servers = pair(3, &Setup { secret: Some("a secret"), tls: None });
        all_connected(&servers).await;
        let [one, two] = &servers;
        for (partition, word) in [b"zero", b"one ", b"two "].into_iter().enumerate() {
            assert!(one[partition].say(2, word));
        }
        for (partition, word) in [b"zero", b"one ", b"two "].into_iter().enumerate() {
            assert_eq!(two[partition].messages(1).await, [(1, Bytes::from_static(word))]);
        }
    });
}

#[test]
fn a_thread_takes_its_connections_and_no_other() {
    run(async {
        let listeners = [bind(), bind()];
        let members: Vec<_> =
            (1..).zip(&listeners).map(|(id, it)| address(id, it.local_addr().unwrap())).collect();
        let [near, far] = listeners;
        let ours = Server::partitions(1, 2, near, &members, &Setup::default());
        // The other one's threads are real ones.
        let common_folder = tempfile::tempdir().unwrap();
        let common = Common::new(common_folder.path(), started(1), OF_ONE, false).unwrap();
        let (port, callers) = PeerPort::new(2, &common);
        let _port = Open::new(port, far);
        let threads: Vec<_> = (0..)
            .zip(callers)
            .map(|(partition, callers)| {
                let (members, common) = (members.clone(), common.clone());
                let folder = common_folder.path().to_owned();
                std::thread::spawn(move || {
                    run(async {
                        let (events_in, mut events) = unbounded_channel();
                        let options = PeerOptions {
                            me: 2,
                            disk: [2; 16],
                            share: Share { partition, partitions: 2 },
                            callers,
                            common,
                            secret: None,
                            tls: None,
                            folder,
                            software: String::new(),
                            levels: None,
                            understands: Understands::default(),
                        };
                        let _peers = Peers::start(options, members, events_in);
                        loop {
                            if let PeerEvent::Messages(1, messages) = events.recv().await.unwrap() {
                                return messages.list[0].to_vec();
                            }
                        }
                    })
                })
            })
            .collect();
        for server in &ours {
            server.connected().await;
        }
        assert!(ours[0].say(2, b"for the first") && ours[1].say(2, b"for the second"));
        let heard = tokio::task::spawn_blocking(move || {
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(heard.await.unwrap(), [b"for the first".to_vec(), b"for the second".to_vec()]);
    });
}

#[test]
fn servers_with_different_numbers_of_partitions_tell_each_other() {
    run(async {
        for (ours, theirs) in [(2, 4), (4, 2), (1, 4)] {
            let listeners = [bind(), bind()];
            let members: Vec<_> =
                (1..).zip(&listeners).map(|(id, it)| address(id, it.local_addr().unwrap())).collect();
            let [one, two] = listeners;
            let one = Server::partitions(1, ours, one, &members, &Setup::default());
            let two = Server::partitions(2, theirs, two, &members, &Setup::default());
            // Also those whose number the other side does not have.
            for (server, other, [own, its]) in one
                .iter()
                .map(|server| (server, 2, [ours, theirs]))
                .chain(two.iter().map(|server| (server, 1, [theirs, ours])))
            {
                let is_told = |why: &str| {
                    let of =
                        |count| if count == 1 { "1 partition".into() } else { format!("{count} partitions") };
                    let (own, its) = (of(own), of(its));
                    why.contains(&format!(
                        "refused: server {} has {own}, server {other} has {its}:",
                        server.id
                    )) && why.contains("setting partitions")
                };
                server.until(|it| it.status(other).last_error.is_some_and(|why| is_told(&why))).await;
                assert!(server.status(other).connected_ms.is_none());
            }
        }
    });
}

#[test]
fn a_connection_for_another_partition_than_it_says_is_refused() {
    run(async {
        let listener = bind();
        let target = address(1, listener.local_addr().unwrap());
        let mut puppet = Puppet::new(2, None);
        let _server = Server::partitions(1, 3, listener, &[puppet.address()], &Setup::default());
        puppet.local.share = Share { partition: 2, partitions: 3 };
        puppet.connect(&target, Purpose::Messages).await.unwrap();
        let mut socket = TcpStream::connect((target.host.as_str(), target.port)).await.unwrap();
        socket.write_u8(1).await.unwrap();
        let refused = hello::initiate(&mut socket, &puppet.local, 1, Purpose::Messages).await.unwrap_err();
        assert_eq!(refused, "refused: its connection is for partition 2, this is partition 1");
        // Nor is one let in whose number nobody has, and that says another one in the handshake.
        let mut socket = TcpStream::connect((target.host.as_str(), target.port)).await.unwrap();
        socket.write_u8(200).await.unwrap();
        let refused = hello::initiate(&mut socket, &puppet.local, 1, Purpose::Messages).await.unwrap_err();
        assert_eq!(refused, "refused: its connection is for partition 2, this is partition 0");
    });
}

#[test]
fn a_thread_that_stands_still_holds_up_no_other() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let common = Common::new(folder.path(), started(1), OF_ONE, false).unwrap();
        let listener = bind();
        let target = listener.local_addr().unwrap();
        let (port, mut callers) = PeerPort::new(2, &common);
        let _port = Open::new(port, listener);
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let mut socket = TcpStream::connect(target).await.unwrap();
            socket.write_u8(0).await.unwrap();
            waiting.push(socket);
        }
        let mut socket = TcpStream::connect(target).await.unwrap();
        socket.write_all(&[1, 42]).await.unwrap();
        let caller = timeout(PATIENCE, callers[1].recv()).await.unwrap().unwrap();
        // Not a byte more was read than the one that is for the port.
        assert_eq!(TcpStream::from_std(caller.socket).unwrap().read_u8().await.unwrap(), 42);
        // What the first one does not take is closed, and not kept for ever.
        let mut unread = [0];
        let ends = timeout(PATIENCE, waiting.last_mut().unwrap().read(&mut unread)).await;
        assert!(matches!(ends.unwrap(), Ok(0) | Err(_)));
    });
}

#[test]
fn a_lifeline_is_one_partitions() {
    run(async {
        let servers = pair(2, &Setup::default());
        all_connected(&servers).await;
        let [one, two] = &servers;
        for server in one {
            server.until(|server| lifelines::is_watched(server, 2)).await;
        }
        // The second partition of the other server gives up its connection, and with it its lifeline.
        let member = two[1].peers.inner.members.borrow()[&1].clone();
        two[1].peers.inner.lose(&member, Direction::To, "the test wants it so");
        one[1].lost().await;
        one[1].connected().await;
        one[1].until(|server| lifelines::is_watched(server, 2)).await;
        assert!(lifelines::is_watched(&one[0], 2) && one[0].status(2).connected_ms.is_some());
        assert!(one[0].events.borrow_mut().try_recv().is_err());
    });
}

#[test]
fn snapshots_of_several_partitions_come_at_a_time() {
    run(async {
        let servers = pair(3, &Setup::default());
        all_connected(&servers).await;
        let [one, two] = &servers;
        let bytes = |partition: usize| vec![partition as u8 + 1; (2 << 20) + partition];
        for (partition, server) in one.iter().enumerate() {
            let path = server.folder.path().join(format!("sent-{partition}"));
            fs::write(&path, bytes(partition)).unwrap();
            server.peers.send_snapshot(2, Bytes::from_static(b"the same header"), path);
        }
        for (partition, server) in two.iter().enumerate() {
            let PeerEvent::SnapshotArrived { from: 1, file, .. } = server.event().await else { panic!() };
            assert!(fs::read(file).unwrap() == bytes(partition), "{partition}");
        }
        let mut names: Vec<_> =
            fs::read_dir(two[0].folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["incoming-1", "incoming-1-1", "incoming-1-2"]);
    });
}
