//! Clients that speak TLS, against a scripted server behind a proxy that ends TLS.
#![cfg(feature = "net")]
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod script;
#[path = "script/secured.rs"]
mod secured;

use std::net::SocketAddr;
use std::time::Duration;

use rcgen::{CertificateParams, date_time_ymd};
use rustls::HandshakeKind;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use script::{SESSION, accept, answer, next_request, read_frame, write_frame};
use secured::{Authority, Terminator};
use stoa_client::tls::TlsOptions;
use stoa_client::{Client, CreateMode, ErrorCode, Options, State, blocking};
use stoa_wire::{
    ConnectResponse, Offer, Opcode, PASSWORD_LEN, PREAMBLE, Reader, RequestHeader, SideHello, Stamped, Stat,
    TAG_LEN, Table, Timestamp, answer_side, direct_xid, partition_of, put,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// More than one record of TLS, more than its buffers, and more than a socket takes at once.
const LARGE: usize = 5 << 20;

fn to(address: SocketAddr, tls: &TlsOptions) -> Options {
    let options = Options::new(&format!("localhost:{}", address.port())).unwrap();
    options.tls(tls.build().unwrap())
}

/// Why no session is opened; it is not waited for long.
async fn refused(address: SocketAddr, tls: &TlsOptions) -> String {
    let options = to(address, tls).connect_timeout(Duration::from_secs(1));
    let error = Client::connect(options).await.unwrap_err().to_string();
    let prefix = format!("cannot open a session: localhost:{}: ", address.port());
    error.strip_prefix(&prefix).unwrap_or_else(|| panic!("{error}")).to_owned()
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn the_session_goes_on_over_a_new_connection_with_a_short_handshake() {
    let authority = Authority::new();
    let (listener, address) = listen().await;
    let front = Terminator::start(address, &authority.sign(&["localhost"]), None).await;
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
    let client = Client::connect(to(front.address, &TlsOptions::new(&authority.pem()))).await.unwrap();
    assert_eq!(client.create("/a", b"", CreateMode::Persistent).await, Err(ErrorCode::ConnectionLoss));
    assert_eq!(client.create("/b", b"", CreateMode::Persistent).await, Ok("/b".to_owned()));
    client.close().await.unwrap();
    server.await.unwrap();
    let shown = front.shown();
    assert_eq!(shown, [(None, Some(HandshakeKind::Full)), (None, Some(HandshakeKind::Resumed))]);
}

#[tokio::test]
async fn what_is_large_goes_both_ways_in_order() {
    let authority = Authority::new();
    let (listener, address) = listen().await;
    let front = Terminator::start(address, &authority.sign(&["localhost"]), None).await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = accept(&listener).await;
        let mut sums = Vec::new();
        for _ in 0..8 {
            let (xid, opcode) = {
                let frame = read_frame(&mut stream).await;
                sums.push(frame.iter().map(|byte| u64::from(*byte)).sum::<u64>());
                (i32::from_be_bytes(frame[..4].try_into().unwrap()), frame[7])
            };
            let data: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
            answer(&mut stream, xid, 0, |out| {
                if i32::from(opcode) == Opcode::GetData as i32 {
                    put::buffer(out, &data);
                }
                Stat { version: xid, ..Stat::default() }.encode(out);
            })
            .await;
        }
        sums
    });
    let client = Client::connect(to(front.address, &TlsOptions::new(&authority.pem()))).await.unwrap();
    let data = vec![1; LARGE];
    let calls = (0..4).map(|_| {
        let (client, data) = (client.clone(), data.clone());
        tokio::spawn(async move {
            let set = client.set_data("/a", &data, None);
            let get = client.get_data("/a");
            let (set, got) = tokio::join!(set, get);
            (set.unwrap().version, got.unwrap().0)
        })
    });
    for call in calls.collect::<Vec<_>>() {
        let (_, got) = call.await.unwrap();
        assert_eq!(got.len(), LARGE);
        assert!(got.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
    }
    let sums = server.await.unwrap();
    assert_eq!(sums.iter().filter(|sum| **sum > LARGE as u64).count(), 4, "{sums:?}");
}

#[tokio::test]
async fn a_server_of_a_foreign_authority_is_refused() {
    let (authority, foreign) = (Authority::new(), Authority::named("another authority"));
    let (_listener, address) = listen().await;
    let front = Terminator::start(address, &foreign.sign(&["localhost"]), None).await;
    assert_eq!(
        refused(front.address, &TlsOptions::new(&authority.pem())).await,
        "its certificate is signed by nobody in the trust store: trust the authority that has signed it, or the \
         certificate itself"
    );
    let foreign = Authority::new();
    let front = Terminator::start(address, &foreign.sign(&["localhost"]), None).await;
    let why = refused(front.address, &TlsOptions::new(&authority.pem())).await;
    assert_eq!(
        why,
        "its certificate is signed by another authority of the trusted one's name: trust the authority that has \
         signed it, or the certificate itself"
    );
    let unchecked = TlsOptions::new(&authority.pem()).check_host(false);
    assert_eq!(refused(front.address, &unchecked).await, why, "the authority counts in any case");
}

#[tokio::test]
async fn a_server_with_another_name_is_refused_and_its_names_are_told() {
    let authority = Authority::new();
    let (listener, address) = listen().await;
    let own = authority.sign(&["zoo1.example", "zoo.example", "192.0.2.7"]);
    let front = Terminator::start(address, &own, None).await;
    let tls = TlsOptions::new(&authority.pem());
    assert_eq!(
        refused(front.address, &tls).await,
        "its certificate is for zoo1.example, zoo.example, 192.0.2.7 and not for localhost: connect by a name \
         that it is for, or switch off the check of names"
    );
    for tls in [tls.clone().server_name("zoo1.example"), tls.server_name("192.0.2.7")] {
        let (client, _) = tokio::join!(Client::connect(to(front.address, &tls)), accept(&listener));
        client.unwrap();
    }
}

#[tokio::test]
async fn without_a_check_of_names_any_certificate_of_the_authority_will_do() {
    let authority = Authority::new();
    let (listener, address) = listen().await;
    let front = Terminator::start(address, &authority.sign(&["zoo1.example"]), None).await;
    let tls = TlsOptions::new(&authority.pem()).check_host(false);
    let (client, _) = tokio::join!(Client::connect(to(front.address, &tls)), accept(&listener));
    client.unwrap();
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let (_listener, address) = listen().await;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = date_time_ymd(2020, 1, 1);
    let front = Terminator::start(address, &authority.sign_with(params), None).await;
    let why = refused(front.address, &TlsOptions::new(&authority.pem())).await;
    assert!(why.starts_with("its certificate, or one that signed it, has expired "), "{why}");
}

#[tokio::test]
async fn the_client_shows_its_certificate() {
    let authority = Authority::new();
    let (listener, address) = listen().await;
    let front = Terminator::start(address, &authority.sign(&["localhost"]), Some(&authority)).await;
    let own = authority.sign(&["client"]);
    let tls = TlsOptions::new(&authority.pem());
    let apart = tls.clone().certificate(own.certificate.as_bytes()).key(own.key.as_bytes());
    let as_one = tls.certificate(format!("{}{}", own.key, own.certificate).as_bytes());
    for tls in [apart, as_one] {
        let (client, _) = tokio::join!(Client::connect(to(front.address, &tls)), accept(&listener));
        client.unwrap();
    }
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
    let full = (Some(certificate), Some(HandshakeKind::Full));
    assert_eq!(front.shown(), [full.clone(), full]);
}

#[tokio::test]
async fn a_server_that_wants_another_certificate_or_one_at_all_is_told_of() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let (_listener, address) = listen().await;
    let front = Terminator::start(address, &authority.sign(&["localhost"]), Some(&authority)).await;
    let tls = TlsOptions::new(&authority.pem());
    // Whether what the server says is read before the end of the connection is a matter of luck.
    let why = refused(front.address, &tls).await;
    assert!(why.ends_with(" a certificate of the client, and none is given"), "{why}");
    let own = foreign.sign(&["client"]);
    let tls = tls.certificate(own.certificate.as_bytes()).key(own.key.as_bytes());
    let why = refused(front.address, &tls).await;
    let told = [
        ": it has to trust the authority of this client's certificate, which has to be valid for clients",
        "it does not serve now, or does not take this client's certificate, whose authority it has to trust",
    ];
    assert!(told.iter().any(|told| why.ends_with(told)), "{why}");
    assert_eq!(front.shown(), []);
}

#[test]
fn what_cannot_be_used_is_told_before_there_is_a_connection() {
    let authority = Authority::new();
    let (own, other) = (authority.sign(&["client"]), authority.sign(&["other"]));
    let tls = TlsOptions::new(&authority.pem());
    let told = |tls: &TlsOptions| tls.build().unwrap_err().to_string();
    assert!(
        told(&TlsOptions::new(b"nothing")).starts_with("the authority's certificates: it is neither PEM")
    );
    assert!(told(&tls.clone().key(own.key.as_bytes())).contains("has no certificate"));
    let alone = tls.clone().certificate(own.certificate.as_bytes());
    assert!(told(&alone).starts_with("the client's certificate and key: "), "it has no key");
    let foreign = alone.key(other.key.as_bytes());
    assert!(told(&foreign).starts_with("the client's certificate and key: "), "it fits no key");
    let named = tls.server_name("no name");
    assert_eq!(told(&named), "`no name` is no name that a certificate can be for: give the server's name");
}

/// A server that answers the first bytes of each connection with these.
async fn babbler(words: &'static [u8]) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; 16];
            // The client may be gone.
            let _ = stream.read(&mut hello).await;
            let _ = stream.write_all(words).await;
            let _ = stream.shutdown().await;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    address
}

#[tokio::test]
async fn a_server_without_tls_is_told_of() {
    let tls = TlsOptions::new(&Authority::new().pem());
    let way_out = "connect without TLS, or to its port for TLS";
    let why = refused(babbler(b"HTTP/1.1 400 Bad Request\r\n\r\n").await, &tls).await;
    assert!(why.starts_with("what it says is no TLS (") && why.ends_with(way_out), "{why}");
    let why = refused(babbler(b"").await, &tls).await;
    assert_eq!(
        why,
        format!("it closed the connection in the TLS handshake: does it speak TLS here? If not, {way_out}")
    );
    let (_silent, address) = listen().await;
    let options = to(address, &tls).session_timeout(Duration::from_secs(1));
    let error = Client::connect(options.connect_timeout(Duration::from_secs(2))).await.unwrap_err();
    assert!(error.failure.contains("did not complete the TLS handshake within 1s: does it"), "{error}");
}

#[tokio::test]
async fn a_client_without_tls_is_told_that_the_server_has_it() {
    let authority = Authority::new();
    let (_listener, address) = listen().await;
    let front = Terminator::start(address, &authority.sign(&["localhost"]), None).await;
    let options = Options::new(&front.address.to_string()).unwrap().connect_timeout(Duration::from_secs(1));
    let error = Client::connect(options).await.unwrap_err();
    let told = "it speaks TLS here, and this client does not: connect with TLS, or to its port without";
    assert_eq!(error.failure, format!("{}: {told}", front.address));
}

/// What was seen of both partitions.
fn token() -> Vec<u8> {
    let mut stamp = Timestamp::new(2);
    (0..2).for_each(|partition| stamp.raise(partition, 1));
    let mut token = Vec::new();
    stamp.encode(&mut token);
    token.extend([9; TAG_LEN]);
    token
}

/// A path that lives on the second of two partitions.
fn other_path() -> String {
    let paths = (0..).map(|number| format!("/top-{number}"));
    paths.into_iter().find(|path| partition_of(path.as_bytes(), 2) == 1).unwrap()
}

#[tokio::test]
async fn a_direct_client_has_tls_on_all_its_connections() {
    let authority = Authority::new();
    let (listener, address) = listen().await;
    let front = Terminator::start(address, &authority.sign(&["localhost"]), Some(&authority)).await;
    let server = tokio::spawn(async move {
        let (mut main, _) = listener.accept().await.unwrap();
        read_frame(&mut main).await;
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 4000,
            session_id: SESSION,
            password: [1; PASSWORD_LEN],
            read_only: Some(false),
        };
        write_frame(&mut main, |out| {
            response.encode(out);
            Offer { partitions: 2, own: 0, token: &token(), table: Table::default() }.encode(out);
        })
        .await;
        let (mut side, _) = listener.accept().await.unwrap();
        let mut preamble = [0; 5];
        side.read_exact(&mut preamble).await.unwrap();
        assert_eq!((&preamble[..4], preamble[4]), (&PREAMBLE[..], 1));
        let hello = read_frame(&mut side).await;
        assert_eq!(SideHello::decode(&hello).unwrap().session_id, SESSION);
        write_frame(&mut side, |out| answer_side(out, 0)).await;
        // What was seen elsewhere may come first.
        let xid = loop {
            let frame = read_frame(&mut side).await;
            let mut reader = Reader::new(&frame);
            let header = RequestHeader::decode(&mut reader).unwrap();
            if header.opcode == Opcode::GetData as i32 {
                assert_eq!(reader.str().unwrap(), other_path());
                break header.xid;
            }
        };
        answer_stamped(&mut side, xid).await;
        (main, side)
    });
    let own = authority.sign(&["client"]);
    let tls =
        TlsOptions::new(&authority.pem()).certificate(own.certificate.as_bytes()).key(own.key.as_bytes());
    let client = Client::connect(to(front.address, &tls).direct(true)).await.unwrap();
    assert_eq!(client.status().borrow().connections, 2);
    let (data, _) = client.get_data(&other_path()).await.unwrap();
    assert_eq!(data.len(), LARGE);
    assert!(front.shown().iter().all(|(certificate, _)| certificate.is_some()));
    assert_eq!(front.shown().len(), 2);
    server.await.unwrap();
}

/// Answers a read with what is large, and with what that rests on.
async fn answer_stamped(stream: &mut TcpStream, xid: i32) {
    let mut reply = Vec::new();
    reply.extend_from_slice(&[0; 4]);
    stoa_wire::ReplyHeader { xid, zxid: 7, err: 0 }.encode(&mut reply);
    put::buffer(&mut reply, &vec![7; LARGE]);
    Stat::default().encode(&mut reply);
    stoa_wire::end_frame(&mut reply, 0);
    answer(stream, direct_xid::STAMP, 0, |out| {
        Stamped { covers: reply.len(), token: &token() }.encode(out);
    })
    .await;
    stream.write_all(&reply).await.unwrap();
}

#[test]
fn the_blocking_front_speaks_tls_too() {
    let authority = Authority::new();
    let own = authority.sign(&["localhost"]);
    let (told, address) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let front = Terminator::start(address, &own, None).await;
            told.send(front.address).unwrap();
            let (mut stream, _) = accept(&listener).await;
            let (xid, ..) = next_request(&mut stream).await;
            answer(&mut stream, xid, 0, |out| put::str(out, "/a")).await;
            next_request(&mut stream).await.1
        })
    });
    let options = to(address.recv().unwrap(), &TlsOptions::new(&authority.pem()));
    let client = blocking::Client::connect(options).unwrap();
    assert_eq!(client.create("/a", b"", CreateMode::Ephemeral), Ok("/a".to_owned()));
    assert_eq!(client.status().state, State::Connected);
    drop(client);
    assert_eq!(server.join().unwrap(), Opcode::CloseSession);
}
