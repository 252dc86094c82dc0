//! Connections that only end.

use super::*;
use crate::peers::link::Direction;

/// Whether the server waits for the end of a peer's lifeline.
pub(super) fn is_watched(server: &Server, peer: u64) -> bool {
    let member = server.peers.inner.members.borrow()[&peer].clone();
    member.watching.borrow().as_ref().is_some_and(|watching| !watching.is_finished())
}

#[test]
fn a_peer_whose_lifeline_ends_is_lost_though_its_connections_are_up() {
    run(async {
        let (server, target, puppet, mut to_server, from_server) = with_puppet().await;
        let lifeline = puppet.connect(&target, Purpose::Lifeline).await.unwrap();
        server.until(|server| is_watched(server, 2)).await;
        drop(lifeline);
        let (lost, why) = server.lost().await;
        assert_eq!(lost, 2);
        assert!(why.contains("its process has ended"), "{why}");
        // Both ends are closed, so that the peer, if it lives after all, connects anew.
        assert_eq!(to_server.read_u8().await.map_err(|_| ()), Err(()));
        drop(from_server);
        let _from_server = puppet.accept().await;
        let _to_server = puppet.connect(&target, Purpose::Messages).await.unwrap();
        server.connected().await;
    });
}

#[test]
fn a_lifeline_counts_only_as_long_as_the_connection_that_it_came_after() {
    run(async {
        let (server, target, puppet, to_server, from_server) = with_puppet().await;
        let earlier = puppet.connect(&target, Purpose::Lifeline).await.unwrap();
        server.until(|server| is_watched(server, 2)).await;
        drop((to_server, from_server));
        server.lost().await;
        assert!(!is_watched(&server, 2));
        let _from_server = puppet.accept().await;
        let _to_server = puppet.connect(&target, Purpose::Messages).await.unwrap();
        server.connected().await;
        // A newer one takes the place of an older one.
        let replaced = puppet.connect(&target, Purpose::Lifeline).await.unwrap();
        server.until(|server| is_watched(server, 2)).await;
        let newest = puppet.connect(&target, Purpose::Lifeline).await.unwrap();
        drop((earlier, replaced));
        assert!(server.say(2, b"still there"));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(server.status(2).connected_ms.is_some());
        drop(newest);
        server.lost().await;
    });
}

#[test]
fn a_lifeline_of_another_process_counts_for_nothing() {
    run(async {
        let (server, target, mut puppet, _to_server, _from_server) = with_puppet().await;
        puppet.local.starts = started(2);
        drop(puppet.connect(&target, Purpose::Lifeline).await.unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!is_watched(&server, 2));
        assert!(server.status(2).connected_ms.is_some());
    });
}

#[test]
fn servers_hold_one_lifeline_to_each_other_and_a_new_one_after_a_loss() {
    run(async {
        let servers = ensemble(2, &Setup { secret: Some("a secret"), tls: None });
        servers[0].connected().await;
        servers[1].connected().await;
        for _ in 0..2 {
            servers[0].until(|server| is_watched(server, 2)).await;
            let member = servers[0].peers.inner.members.borrow()[&2].clone();
            servers[0].peers.inner.lose(&member, Direction::To, "the test wants it so");
            servers[0].lost().await;
            servers[0].connected().await;
        }
    });
}
