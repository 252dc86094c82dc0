//! Recipes against a scripted server that breaks connections where it hurts.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod script;

use script::{SESSION, accept, answer, next_request, options};
use stoa_client::recipes::{Counter, Lock, Primitive};
use stoa_client::{Client, ErrorCode};
use stoa_wire::{Opcode, Stat, put};
use tokio::net::{TcpListener, TcpStream};

const OWN: Stat = Stat { czxid: 7, ephemeral_owner: SESSION, ..NOTHING };
const NOTHING: Stat = Stat {
    czxid: 0,
    mzxid: 0,
    ctime: 0,
    mtime: 0,
    version: 0,
    cversion: 0,
    aversion: 0,
    ephemeral_owner: 0,
    data_length: 0,
    num_children: 0,
    pzxid: 0,
};

fn names(out: &mut Vec<u8>, names: &[&str]) {
    put::i32(out, i32::try_from(names.len()).unwrap());
    names.iter().for_each(|name| put::str(out, name));
}

/// Takes the next request, which has to be this one, and returns its xid and its path.
async fn expect(stream: &mut TcpStream, expected: Opcode) -> (i32, String) {
    let (xid, opcode, path) = next_request(stream).await;
    assert_eq!(opcode, expected, "{path}");
    (xid, path)
}

/// The server carries a create out, and its answer is lost: the client finds what it has made.
#[tokio::test]
async fn a_create_whose_answer_is_lost_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(&listener);
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        // The directory, for nobody knows whether it is there.
        expect(&mut stream, Opcode::Multi).await;
        let (_, path) = expect(&mut stream, Opcode::Create2).await;
        drop(stream);
        let made = format!("{}0000000003", path.strip_prefix("/lock/").unwrap());
        let (mut stream, _) = accept(&listener).await;
        let (xid, _) = expect(&mut stream, Opcode::Sync).await;
        answer(&mut stream, xid, 0, |out| put::str(out, "/lock")).await;
        let (xid, _) = expect(&mut stream, Opcode::GetChildren).await;
        answer(&mut stream, xid, 0, |out| names(out, &["other-lock-0000000004", &made])).await;
        let (xid, _) = expect(&mut stream, Opcode::Sync).await;
        answer(&mut stream, xid, 0, |out| put::str(out, "/lock")).await;
        let (xid, path) = expect(&mut stream, Opcode::Exists).await;
        assert_eq!(path, format!("/lock/{made}"));
        answer(&mut stream, xid, 0, |out| OWN.encode(out)).await;
        let (xid, _) = expect(&mut stream, Opcode::GetChildren).await;
        answer(&mut stream, xid, 0, |out| names(out, &["other-lock-0000000004", &made])).await;
        // Given back when it is dropped.
        expect(&mut stream, Opcode::Multi).await;
    });
    let client = Client::connect(options).await.unwrap();
    let held = Lock::with(&client, "/lock", Primitive::SyncQueue).acquire().await.unwrap();
    assert_eq!((held.token().0, held.session()), (7, SESSION));
    drop(held);
    server.await.unwrap();
}

/// Whoever stops waiting for the answer to a create is not there afterwards.
#[tokio::test]
async fn a_create_that_is_given_up_is_taken_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(&listener);
    let (given_up, is_given_up) = tokio::sync::oneshot::channel();
    let (came, has_come) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        let (multi, _) = expect(&mut stream, Opcode::Multi).await;
        let (xid, path) = expect(&mut stream, Opcode::Create2).await;
        came.send(()).unwrap();
        let () = is_given_up.await.unwrap();
        answer(&mut stream, multi, ErrorCode::NodeExists as i32, |_| {}).await;
        let made = format!("{path}0000000000");
        let created = |out: &mut Vec<u8>| {
            put::str(out, &made);
            OWN.encode(out);
        };
        answer(&mut stream, xid, 0, created).await;
        let (xid, _) = expect(&mut stream, Opcode::Sync).await;
        answer(&mut stream, xid, 0, |out| put::str(out, "/lock")).await;
        let (xid, _) = expect(&mut stream, Opcode::GetChildren).await;
        answer(&mut stream, xid, 0, |out| names(out, &[made.strip_prefix("/lock/").unwrap()])).await;
        let (xid, _) = expect(&mut stream, Opcode::Sync).await;
        answer(&mut stream, xid, 0, |out| put::str(out, "/lock")).await;
        let (xid, _) = expect(&mut stream, Opcode::Exists).await;
        answer(&mut stream, xid, 0, |out| OWN.encode(out)).await;
        let (_, path) = expect(&mut stream, Opcode::Delete).await;
        assert_eq!(path, made);
    });
    let client = Client::connect(options).await.unwrap();
    let lock = Lock::with(&client, "/lock", Primitive::SyncQueue);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    has_come.await.unwrap();
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
    given_up.send(()).unwrap();
    server.await.unwrap();
}

/// An increment was carried out, and its answer is lost: the witness says so.
#[tokio::test]
async fn an_increment_whose_answer_is_lost_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(&listener);
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        let (xid, _) = expect(&mut stream, Opcode::GetData).await;
        let data = |out: &mut Vec<u8>| {
            put::buffer(out, b"41");
            NOTHING.encode(out);
        };
        answer(&mut stream, xid, 0, data).await;
        let (xid, witness) = expect(&mut stream, Opcode::Create2).await;
        let created = |out: &mut Vec<u8>| {
            put::str(out, &witness);
            OWN.encode(out);
        };
        answer(&mut stream, xid, 0, created).await;
        expect(&mut stream, Opcode::Multi).await;
        drop(stream);
        let (mut stream, _) = accept(&listener).await;
        let (xid, _) = expect(&mut stream, Opcode::Sync).await;
        answer(&mut stream, xid, 0, |out| put::str(out, &witness)).await;
        let (xid, path) = expect(&mut stream, Opcode::Exists).await;
        assert_eq!(path, witness);
        answer(&mut stream, xid, 0, |out| Stat { version: 1, ..OWN }.encode(out)).await;
        stream
    });
    let client = Client::connect(options).await.unwrap();
    assert_eq!(Counter::new(&client, "/counter").add(1).await, Ok(42));
    drop(server.await.unwrap());
}

/// What the service refuses is an error that says for what.
#[tokio::test]
async fn a_refusal_names_the_znode() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = options(&listener);
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        let (xid, _) = expect(&mut stream, Opcode::Create2).await;
        answer(&mut stream, xid, ErrorCode::NoAuth as i32, |_| {}).await;
        stream
    });
    let client = Client::connect(options).await.unwrap();
    let error = Lock::with(&client, "/locks/a", Primitive::TasWatch).acquire().await.unwrap_err();
    let expected = "a request for /locks/a was refused: NoAuth (-102): not permitted by the znode's ACL";
    assert_eq!(error.to_string(), expected);
    drop(server.await.unwrap());
}
