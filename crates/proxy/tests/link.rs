//! Links between real sockets. Bounds of times are from below, or so generous that a busy machine keeps them.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use stoa_proxy::{Direction, Link, Quality, Spec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
const A_WHILE: Duration = Duration::from_millis(100);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A listener, and a link to it.
async fn open(set: impl FnOnce(&mut Spec)) -> (TcpListener, Link) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut spec = Spec::new("127.0.0.1:0", &listener.local_addr().unwrap().to_string());
    set(&mut spec);
    let link = Link::open(&spec).await.unwrap();
    (listener, link)
}

/// A connection through a link, from both ends.
async fn connect(listener: &TcpListener, link: &Link) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(link.address()).await.unwrap();
    let (server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    (client, server)
}

async fn receives(stream: &mut TcpStream, expected: &[u8]) {
    let mut received = vec![0; expected.len()];
    timeout(PATIENCE, stream.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(received, expected);
}

async fn receives_nothing(stream: &mut TcpStream) {
    assert!(timeout(A_WHILE, stream.read_u8()).await.is_err());
}

#[tokio::test]
async fn each_direction_has_its_delay() {
    let (listener, link) = open(|spec| {
        spec.up.delay = ms(30);
        spec.down.delay = ms(70);
    })
    .await;
    let began = Instant::now();
    let (mut client, mut server) = connect(&listener, &link).await;
    client.write_all(b"first").await.unwrap();
    receives(&mut server, b"first").await;
    // The handshake's round trip counts as well.
    assert!(began.elapsed() >= ms(130), "{:?}", began.elapsed());

    let began = Instant::now();
    client.write_all(b"ask").await.unwrap();
    receives(&mut server, b"ask").await;
    assert!(began.elapsed() >= ms(30));
    server.write_all(b"answer").await.unwrap();
    receives(&mut client, b"answer").await;
    assert!(began.elapsed() >= ms(100) && began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn bytes_come_in_order_and_all_of_them() {
    let (listener, link) = open(|spec| {
        for quality in [&mut spec.up, &mut spec.down] {
            *quality = Quality { delay: ms(3), jitter: ms(3), ..Quality::default() };
        }
    })
    .await;
    let (client, server) = connect(&listener, &link).await;
    let sent: Vec<u8> = (0..3_000_000_u32).flat_map(|number| (number as u16).to_le_bytes()).collect();
    let (mut from, mut to) = client.into_split();
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        for piece in sent.chunks(70_001) {
            to.write_all(piece).await.unwrap();
            tokio::time::sleep(ms(1)).await;
        }
        to.shutdown().await.unwrap();
    });
    // An echo: what comes back has gone through both directions.
    let echo = tokio::spawn(async move {
        let (mut from, mut to) = server.into_split();
        tokio::io::copy(&mut from, &mut to).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    timeout(PATIENCE, from.read_to_end(&mut received)).await.unwrap().unwrap();
    assert!(received == expected);
    writing.await.unwrap();
    echo.await.unwrap();
    timeout(PATIENCE, link.close()).await.unwrap();
}

#[tokio::test]
async fn one_side_may_end_before_the_other() {
    let (listener, link) = open(|spec| spec.up.delay = ms(20)).await;
    let (mut client, mut server) = connect(&listener, &link).await;
    client.write_all(b"last").await.unwrap();
    client.shutdown().await.unwrap();
    let mut all = Vec::new();
    timeout(PATIENCE, server.read_to_end(&mut all)).await.unwrap().unwrap();
    assert_eq!(all, b"last");
    server.write_all(b"still").await.unwrap();
    receives(&mut client, b"still").await;
    assert_eq!(link.connections(), 1);
    drop(server);
    assert_eq!(timeout(PATIENCE, client.read(&mut [0; 8])).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn who_is_not_read_from_is_held_back() {
    let (listener, link) = open(|_| ()).await;
    let (mut client, mut server) = connect(&listener, &link).await;
    let block = vec![7; 1 << 20];
    let mut sent = 0_u64;
    while timeout(A_WHILE * 5, client.write_all(&block)).await.is_ok() {
        sent += 1;
        assert!(sent < 200, "a bounded number of bytes is under way");
    }
    drop(client);
    let mut all = Vec::new();
    // The last block was written in part, or the end of the connection has taken it away.
    let read = timeout(PATIENCE, server.read_to_end(&mut all)).await.unwrap();
    assert!(read.is_ok() && all.len() as u64 >= sent << 20, "{} of {sent} MiB", all.len() >> 20);
}

#[tokio::test]
async fn a_narrow_link_takes_its_time() {
    // 8 mbit: 500 ms for 500,000 bytes, of which 100 ms may wait in front of it.
    let (listener, link) = open(|spec| spec.up.bandwidth = Some(8_000_000)).await;
    let (mut client, mut server) = connect(&listener, &link).await;
    let began = Instant::now();
    let sent = vec![1; 500_000];
    let writing = async { client.write_all(&sent).await.unwrap() };
    let mut received = vec![0; 500_000];
    let reading = timeout(PATIENCE, server.read_exact(&mut received));
    let ((), read) = tokio::join!(writing, reading);
    read.unwrap().unwrap();
    assert!(began.elapsed() >= ms(490), "{:?}", began.elapsed());
}

#[tokio::test]
async fn who_sends_too_fast_for_a_narrow_link_is_held_back() {
    // Less than the link would take if it were wide, and far more than the system keeps in its buffers.
    let (listener, link) = open(|spec| spec.up.bandwidth = Some(8_000_000)).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(64 << 10).unwrap();
    let mut client = socket.connect(link.address()).await.unwrap();
    let (_server, _) = listener.accept().await.unwrap();
    assert!(timeout(A_WHILE * 5, client.write_all(&vec![0; 15 << 20])).await.is_err());
}

#[tokio::test]
async fn a_cut_link_holds_back_and_says_nothing() {
    let (listener, link) = open(|_| ()).await;
    let (mut client, mut server) = connect(&listener, &link).await;
    link.cut(Direction::Up);
    client.write_all(b"up").await.unwrap();
    server.write_all(b"down").await.unwrap();
    receives_nothing(&mut server).await;
    receives(&mut client, b"down").await;
    let mut newcomer = TcpStream::connect(link.address()).await.unwrap();
    assert!(timeout(A_WHILE, listener.accept()).await.is_err());
    link.cut(Direction::Down);
    link.heal_one(Direction::Down);
    receives_nothing(&mut server).await;
    link.heal();
    receives(&mut server, b"up").await;
    let (mut accepted, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    newcomer.write_all(b"new").await.unwrap();
    receives(&mut accepted, b"new").await;
}

#[tokio::test]
async fn a_link_changes_while_it_is_used() {
    let (listener, link) = open(|_| ()).await;
    let (mut client, mut server) = connect(&listener, &link).await;
    client.write_all(b"fast").await.unwrap();
    receives(&mut server, b"fast").await;
    link.set(Direction::Up, Quality { delay: ms(150), ..Quality::default() }).unwrap();
    let began = Instant::now();
    client.write_all(b"slow").await.unwrap();
    receives(&mut server, b"slow").await;
    assert!(began.elapsed() >= ms(150));
    // What is sent on a faster link does not overtake what is under way.
    client.write_all(b"one").await.unwrap();
    tokio::time::sleep(ms(20)).await;
    link.set(Direction::Up, Quality::default()).unwrap();
    client.write_all(b"two").await.unwrap();
    receives(&mut server, b"onetwo").await;
    assert!(link.set(Direction::Up, Quality { jitter: ms(1), ..Quality::default() }).is_err());
}

#[tokio::test]
async fn connections_are_broken_and_come_again() {
    let (listener, link) = open(|_| ()).await;
    let (mut client, mut server) = connect(&listener, &link).await;
    link.break_connections();
    for stream in [&mut client, &mut server] {
        let ended = timeout(PATIENCE, stream.read(&mut [0; 8])).await.unwrap();
        assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes == 0));
    }
    let (mut client, mut server) = connect(&listener, &link).await;
    client.write_all(b"again").await.unwrap();
    receives(&mut server, b"again").await;
}

#[tokio::test]
async fn who_cannot_be_connected_is_told() {
    let (listener, link) = open(|_| ()).await;
    drop(listener);
    let mut client = TcpStream::connect(link.address()).await.unwrap();
    let ended = timeout(PATIENCE, client.read(&mut [0; 8])).await.unwrap();
    assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes == 0));
}

#[tokio::test]
async fn a_closed_link_leaves_nothing_behind() {
    let (listener, link) = open(|_| ()).await;
    let (mut client, _server) = connect(&listener, &link).await;
    let address = link.address();
    timeout(PATIENCE, link.close()).await.unwrap();
    let ended = timeout(PATIENCE, client.read(&mut [0; 8])).await.unwrap();
    assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes == 0));
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_link_that_is_dropped_ends() {
    let (listener, link) = open(|_| ()).await;
    let (mut client, _server) = connect(&listener, &link).await;
    drop(link);
    let ended = timeout(PATIENCE, client.read(&mut [0; 8])).await.unwrap();
    assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes == 0));
}
