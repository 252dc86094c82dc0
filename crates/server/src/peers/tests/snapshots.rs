//! Snapshots arrive whole, and go on where they were interrupted.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;

use super::proxy::Proxy;
use super::*;
use crate::peers::frame::{self, FrameKind};

fn snapshot(folder: &Path, len: usize, seed: usize) -> PathBuf {
    let path = folder.join(format!("sent-{seed}"));
    let bytes: Vec<u8> = (0..len).map(|index| ((index * 31 + index / 251 + seed) % 256) as u8).collect();
    fs::write(&path, bytes).unwrap();
    path
}

/// Two servers; all that the first sends to the second passes the proxy.
async fn pair() -> (Server, Server, Proxy) {
    let (one, two) = (bind(), bind());
    let one_at = one.local_addr().unwrap();
    let to_two = Proxy::to(two.local_addr().unwrap());
    let one = Server::start(1, one, vec![address(2, to_two.address)], &Setup::default());
    let two = Server::start(2, two, vec![address(1, one_at)], &Setup::default());
    one.connected().await;
    two.connected().await;
    (one, two, to_two)
}

impl Server {
    async fn sent(&self) -> Result<u64, String> {
        loop {
            match self.event().await {
                PeerEvent::SnapshotSent { to: 2, result } => return result,
                PeerEvent::Connected(..) | PeerEvent::Lost(..) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn arrived(&self) -> (Bytes, PathBuf) {
        loop {
            match self.event().await {
                PeerEvent::SnapshotArrived { from: 1, header, file } => return (header, file),
                PeerEvent::Connected(..) | PeerEvent::Lost(..) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_snapshot_arrives_beside_messages() {
    run(async {
        let (one, two, _proxy) = pair().await;
        for len in [0, 1, (3 << 20) + 17] {
            let path = snapshot(one.folder.path(), len, 1);
            one.peers.send_snapshot(2, Bytes::from_static(b"about it"), path.clone());
            one.peers.send_snapshot(2, Bytes::from_static(b"another"), path.clone());
            assert!(one.sent().await.unwrap_err().contains("another one is under way"));
            let (header, file) = two.arrived().await;
            assert_eq!(header, "about it");
            assert_eq!(file, two.folder.path().join("incoming-1"));
            assert!(fs::read(&file).unwrap() == fs::read(path).unwrap());
            assert_eq!(one.sent().await, Ok(len as u64));
        }
        assert_eq!(fs::read_dir(two.folder.path()).unwrap().count(), 1, "only what has arrived");
        assert!(one.say(2, b"the messages' connection is as it was"));
        assert_eq!(two.messages(1).await.len(), 1);
    });
}

#[test]
fn an_interrupted_snapshot_goes_on_and_another_one_starts_anew() {
    run(async {
        let (one, two, proxy) = pair().await;
        let path = snapshot(one.folder.path(), 6 << 20, 1);
        let part = two.folder.path().join("incoming-1.part");
        let interrupt = async || {
            proxy.cut_after(Some((7 << 20) / 2));
            one.peers.send_snapshot(2, Bytes::from_static(b"first"), path.clone());
            let why = one.sent().await.unwrap_err();
            assert!(why.contains("connection"), "{why}");
            proxy.cut_after(None);
            // The thread that writes has ended too.
            two.until(|two| two.peers.inner.place(1).try_lock().is_ok_and(|place| place.is_some())).await;
        };
        interrupt().await;
        assert_eq!(fs::metadata(&part).unwrap().len(), 3 << 20);
        // A mark in what is there already shows that it is not sent again.
        let mut bytes = fs::read(&part).unwrap();
        bytes[5] ^= 0xff;
        fs::write(&part, &bytes).unwrap();
        one.peers.send_snapshot(2, Bytes::from_static(b"first"), path.clone());
        let (_, file) = two.arrived().await;
        assert_eq!(one.sent().await, Ok(6 << 20));
        let mut got = fs::read(&file).unwrap();
        let sent = fs::read(&path).unwrap();
        assert_ne!(got[5], sent[5]);
        got[5] ^= 0xff;
        assert!(got == sent);

        interrupt().await;
        let other = snapshot(one.folder.path(), 2 << 20, 2);
        one.peers.send_snapshot(2, Bytes::from_static(b"second"), other.clone());
        let (header, file) = two.arrived().await;
        assert_eq!(header, "second");
        assert!(fs::read(&file).unwrap() == fs::read(other).unwrap());
        assert!(!part.exists());
    });
}

#[test]
fn whoever_cannot_read_or_write_says_so() {
    run(async {
        let (one, two, _proxy) = pair().await;
        let send = |path: PathBuf| one.peers.send_snapshot(2, Bytes::from_static(b"it"), path);
        send(one.folder.path().join("missing"));
        let why = one.sent().await.unwrap_err();
        assert!(why.contains("cannot read") && why.contains("missing"), "{why}");

        // Something in the way stands for a disk that fails.
        let part = two.folder.path().join("incoming-1.part");
        fs::create_dir(&part).unwrap();
        let path = snapshot(one.folder.path(), 9 << 20, 1);
        send(path.clone());
        let why = one.sent().await.unwrap_err();
        assert!(why.contains("the receiver gave up: cannot write"), "{why}");
        two.until(|two| two.status(1).last_error.is_some_and(|why| why.contains("cannot write"))).await;

        fs::remove_dir(&part).unwrap();
        send(path);
        assert_eq!(one.sent().await, Ok(9 << 20));
        one.peers.send_snapshot(9, Bytes::new(), PathBuf::new());
        match one.event().await {
            PeerEvent::SnapshotSent { to: 9, result } => assert!(result.unwrap_err().contains("no member")),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_snapshot_that_does_not_add_up_is_given_up() {
    run(async {
        let begin = |len: u64| frame::encode(FrameKind::Begin, &[&len.to_le_bytes(), b"header"]);
        let chunk = |at: u64, bytes: &[u8]| frame::encode(FrameKind::Chunk, &[&at.to_le_bytes(), bytes]);
        let long = vec![0; 70 << 10];
        for (frames, expected) in [
            (vec![frame::encode(FrameKind::Begin, &[b"short"])], "cut short"),
            (vec![frame::encode(FrameKind::Begin, &[&long])], "longer than"),
            (vec![frame::encode(FrameKind::Message, &[])], "Message instead of Begin"),
            (vec![begin(10), chunk(1, b"ab")], "does not follow"),
            (vec![begin(10), chunk(0, b"")], "does not follow"),
            (vec![begin(10), chunk(0, b"more than was said")], "does not follow"),
            (vec![begin(10), frame::encode(FrameKind::Chunk, &[b"abc"])], "cut short"),
            (vec![begin(10), chunk(0, b"abc"), frame::encode(FrameKind::End, &[])], "End instead of Chunk"),
        ] {
            let (server, target, puppet, _to, _from) = with_puppet().await;
            let mut stream = puppet.connect(&target, Purpose::Snapshot).await.unwrap();
            for frame in frames {
                stream.write_all(&frame).await.unwrap();
            }
            server
                .until(|server| server.status(2).last_error.is_some_and(|why| why.contains(expected)))
                .await;
            assert!(!server.folder.path().join("incoming-2").exists());
        }
    });
}

#[test]
fn what_an_earlier_process_left_is_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "incoming-3",
        "incoming-3-2",
        "incoming-4.part",
        "incoming-4-63.part",
        "incoming-x",
        "incoming-3-x",
        "incoming-3.tmp",
        "snapshot-1",
        "incoming-",
    ] {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    super::super::snapshot::clean(folder.path()).unwrap();
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["incoming-", "incoming-3-x", "incoming-3.tmp", "incoming-x", "snapshot-1"]);
}
