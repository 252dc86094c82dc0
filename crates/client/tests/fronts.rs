//! The fronts against a scripted server on a real socket.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod script;

use std::time::Duration;

use script::{SESSION, accept, answer, next_request, options, read_frame};
use stoa_client::{Client, CreateMode, ErrorCode, EventKind, Options, State, WatchEnd, blocking};
use stoa_wire::{Opcode, Stat, WatcherEvent, put};
use tokio::net::TcpListener;

#[tokio::test]
async fn the_session_goes_on_over_a_new_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(&listener);
    let server = tokio::spawn(async move {
        let (mut stream, session) = accept(&listener).await;
        assert_eq!(session, 0);
        next_request(&mut stream).await;
        drop(stream); // The request is never answered.
        let (mut stream, session) = accept(&listener).await;
        assert_eq!(session, SESSION);
        let (xid, opcode, _) = next_request(&mut stream).await;
        assert_eq!(opcode, Opcode::Create);
        answer(&mut stream, xid, 0, |out| put::str(out, "/b")).await;
        let (xid, opcode, _) = next_request(&mut stream).await;
        assert_eq!(opcode, Opcode::CloseSession);
        answer(&mut stream, xid, 0, |_| {}).await;
    });
    let client = Client::connect(options).await.unwrap();
    assert_eq!(client.create("/a", b"", CreateMode::Persistent).await, Err(ErrorCode::ConnectionLoss));
    assert_eq!(client.create("/b", b"", CreateMode::Persistent).await, Ok("/b".to_owned()));
    client.close().await.unwrap();
    assert_eq!(client.get_data("/a").await.unwrap_err(), ErrorCode::SessionExpired);
    assert_eq!(client.status().borrow().state, State::Closed);
    server.await.unwrap();
}

#[tokio::test]
async fn a_watch_tells_its_event_and_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(&listener);
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        let (xid, ..) = next_request(&mut stream).await;
        answer(&mut stream, xid, ErrorCode::NoNode as i32, |_| {}).await;
        let event = WatcherEvent { kind: EventKind::Created as i32, state: 3, path: "/a" };
        answer(&mut stream, -1, 0, |out| event.encode(out)).await;
        let (xid, opcode, _) = next_request(&mut stream).await;
        assert_eq!(opcode, Opcode::CloseSession, "dropping the client closes the session");
        answer(&mut stream, xid, 0, |_| {}).await;
    });
    let client = Client::connect(options).await.unwrap();
    let (stat, mut watch) = client.exists_and_watch("/a").await.unwrap();
    assert_eq!(stat, None);
    let event = watch.next().await.unwrap();
    assert_eq!((event.kind, event.path.as_str(), event.zxid), (EventKind::Created, "/a", 7));
    assert_eq!(watch.next().await, Err(WatchEnd::Fired));
    assert_eq!(watch.next().await, Err(WatchEnd::Fired));
    drop(client);
    server.await.unwrap();
}

#[tokio::test]
async fn calls_made_at_the_same_time_are_all_sent_before_the_first_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(&listener);
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        let mut xids = Vec::new();
        for _ in 0..100 {
            xids.push(next_request(&mut stream).await.0);
        }
        for (version, xid) in (0..).zip(xids) {
            let stat = Stat { version, ..Stat::default() };
            answer(&mut stream, xid, 0, |out| stat.encode(out)).await;
        }
        stream
    });
    let client = Client::connect(options).await.unwrap();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.set_data("/a", b"", None).await })
        })
        .collect();
    for (version, call) in (0..).zip(calls) {
        assert_eq!(call.await.unwrap().unwrap().version, version);
    }
    server.await.unwrap();
}

#[tokio::test]
async fn the_bytes_of_a_call_are_counted_when_it_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, (mut stream, _)) = tokio::join!(Client::connect(options(&listener)), accept(&listener));
    let client = client.unwrap();
    let before = client.bytes_sent();
    assert!(before > 0, "the handshake counts");
    let server = async {
        let frame = read_frame(&mut stream).await;
        let xid = i32::from_be_bytes(frame[..4].try_into().unwrap());
        answer(&mut stream, xid, ErrorCode::NoNode as i32, |_| ()).await;
        frame.len() as u64 + 4
    };
    let (answered, bytes) = tokio::join!(client.get_data("/none"), server);
    assert_eq!(answered, Err(ErrorCode::NoNode));
    assert_eq!(client.bytes_sent() - before, bytes);
}

#[tokio::test]
async fn nobody_there_is_an_error_that_names_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let options = Options::new(&address).unwrap().connect_timeout(Duration::from_millis(200));
    let error = Client::connect(options).await.unwrap_err();
    assert!(error.failure.contains(&address), "{error}");
}

#[test]
fn the_blocking_front_needs_no_runtime_and_closes_its_session() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    listener.set_nonblocking(true).unwrap();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            let (mut stream, _) = accept(&listener).await;
            let (xid, ..) = next_request(&mut stream).await;
            answer(&mut stream, xid, 0, |out| put::str(out, "/a")).await;
            next_request(&mut stream).await.1
        })
    });
    let client = blocking::Client::connect(Options::new(&address).unwrap()).unwrap();
    assert_eq!(client.create("/a", b"", CreateMode::Ephemeral), Ok("/a".to_owned()));
    drop(client);
    assert_eq!(server.join().unwrap(), Opcode::CloseSession);
}
