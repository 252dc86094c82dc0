//! Who is let in, and who is not.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::peers::frame::{self, FrameKind};
use crate::peers::strangers::UNPROVEN_MAX;

#[test]
fn servers_with_the_same_secret_meet() {
    run(async {
        let servers = ensemble(3, &Setup { secret: Some("a secret"), tls: None });
        for server in &servers {
            server.connected().await;
            server.connected().await;
        }
        assert!(servers[0].say(3, b"hello"));
        assert_eq!(servers[2].messages(1).await, [(1, Bytes::from_static(b"hello"))]);
    });
}

#[test]
fn strangers_are_told_that_they_are_refused() {
    run(async {
        let listener = bind();
        let target = address(1, listener.local_addr().unwrap());
        let members = vec![
            PeerAddress { id: 2, host: "127.0.0.1".into(), port: 1 },
            PeerAddress { id: 3, host: "127.0.0.3".into(), port: 1 },
        ];
        let setup = Setup { secret: Some("a secret"), tls: None };
        let server = Server::start(1, listener, members.clone(), &setup);
        let attempt = async |puppet: Puppet, target: &PeerAddress| {
            puppet.connect(target, Purpose::Messages).await.unwrap_err()
        };
        let why = attempt(Puppet::new(2, Some("another")), &target).await;
        assert!(why.contains("refused: server 2 does not know the secret"), "{why}");
        let why = attempt(Puppet::new(2, None), &target).await;
        assert!(why.contains("refused: server 2 has no secret"), "{why}");
        let why = attempt(Puppet::new(4, Some("a secret")), &target).await;
        assert!(why.contains("refused: server 4 is no member of the ensemble: name it in servers"), "{why}");
        let why = attempt(Puppet::new(2, Some("a secret")), &PeerAddress { id: 5, ..target.clone() }).await;
        assert!(why.contains("refused: server 2 looks for server 5, this is server 1"), "{why}");
        // With a secret it does not matter where a server connects from.
        Puppet::new(3, Some("a secret")).connect(&target, Purpose::Messages).await.unwrap();
        server.until(|server| server.peers.inner.unproven.count() == 0).await;

        let listener = bind();
        let target = address(1, listener.local_addr().unwrap());
        let _open = Server::start(1, listener, members, &Setup::default());
        let why = attempt(Puppet::new(3, None), &target).await;
        assert!(
            why.contains("connects from 127.0.0.1, which is not an address of `127.0.0.3`: set"),
            "{why}"
        );
        assert!(why.ends_with("or change the address in servers"), "{why}");
        Puppet::new(2, None).connect(&target, Purpose::Messages).await.unwrap();
    });
}

#[test]
fn the_wrong_server_at_an_address_is_not_taken_for_the_right_one() {
    run(async {
        // Where server 2 should be, there is server 3.
        let listener = bind();
        let at = listener.local_addr().unwrap();
        let members = vec![PeerAddress { id: 1, host: "127.0.0.1".into(), port: 1 }];
        let _three = Server::start(3, listener, members, &Setup::default());
        let one = Server::start(1, bind(), vec![address(2, at)], &Setup::default());
        one.until(|one| one.status(2).last_error.is_some_and(|why| why.contains("this is server 3"))).await;
        assert!(!one.say(2, b"x"));
    });
}

#[test]
fn two_processes_with_one_id_are_noticed_when_they_take_turns() {
    run(async {
        let (server, target, mut puppet, first, _from_server) = with_puppet().await;
        let is_told = |server: &Server| {
            server
                .status(2)
                .last_error
                .is_some_and(|why| why.contains("take turns as server 2, from different"))
        };
        // A process that has ended, and the next one.
        drop(first);
        puppet.local.starts = started(2);
        let _second = puppet.connect(&target, Purpose::Messages).await.unwrap();
        server.lost().await;
        assert!(!is_told(&server));
        puppet.local.starts = started(1);
        let _first_again = puppet.connect(&target, Purpose::Messages).await.unwrap();
        server.until(is_told).await;
    });
}

/// An authority, and certificates from it for servers on these hosts.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn tls(&self, host: &str, trusted: &Authority) -> PeerTls {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        PeerTls::new(vec![certificate.der().clone()], key, vec![trusted.0.der().clone()]).unwrap()
    }
}

/// Two servers with these certificates, both known as `host`.
fn tls_pair(host: &str, one: PeerTls, two: PeerTls, secret: Option<&'static str>) -> (Server, Server) {
    let listeners = [bind(), bind()];
    let port = |index: usize| listeners[index].local_addr().unwrap().port();
    let member = |id: u64| PeerAddress { id, host: host.into(), port: port(id as usize - 1) };
    let members = vec![member(1), member(2)];
    let mut tls = [one, two].into_iter();
    let mut id = 0;
    let mut servers = listeners.into_iter().map(|listener| {
        id += 1;
        let setup = Setup { secret, tls: tls.next() };
        Server::start(id, listener, members.clone(), &setup)
    });
    (servers.next().unwrap(), servers.next().unwrap())
}

#[test]
fn servers_with_certificates_for_their_hosts_meet() {
    run(async {
        let authority = Authority::new();
        for (host, secret) in [("localhost", None), ("127.0.0.1", Some("a secret too"))] {
            let (one, two) =
                tls_pair(host, authority.tls(host, &authority), authority.tls(host, &authority), secret);
            one.connected().await;
            two.connected().await;
            two.until(|two| lifelines::is_watched(two, 1)).await;
            // More than TLS takes at once.
            let long = Bytes::from(vec![3; 5 << 20]);
            for _ in 0..3 {
                assert!(one.peers.send(2, long.clone().into()));
                assert!(one.peers.send(2, Bytes::from_static(b"short").into()));
            }
            one.peers.flush();
            for (index, (_, got)) in two.messages(6).await.into_iter().enumerate() {
                assert!(got == if index % 2 == 0 { &long[..] } else { b"short" });
            }
            let file = one.folder.path().join("file");
            std::fs::write(&file, &long).unwrap();
            one.peers.send_snapshot(2, Bytes::new(), file);
            let PeerEvent::SnapshotArrived { file, .. } = two.event().await else { panic!() };
            assert!(std::fs::read(file).unwrap() == long);
        }
    });
}

#[test]
fn certificates_of_another_authority_or_host_are_refused() {
    run(async {
        let (ours, theirs) = (Authority::new(), Authority::new());
        let never = async |one: &Server, expected: &str| {
            one.until(|one| one.status(2).last_error.is_some_and(|why| why.contains(expected))).await;
            assert!(one.status(2).connected_ms.is_none());
        };
        // The second server's certificate comes from elsewhere, though it trusts our authority.
        let (one, _two) =
            tls_pair("localhost", ours.tls("localhost", &ours), theirs.tls("localhost", &ours), None);
        never(&one, "invalid peer certificate").await;
        never(&one, "from the authority in peer-tls-authority").await;
        // It is for another host: neither connection is accepted by the first server.
        let (one, two) =
            tls_pair("localhost", ours.tls("localhost", &ours), ours.tls("elsewhere", &ours), None);
        never(&one, "not valid for name").await;
        never(&one, "its certificate must be for the host that stands in servers").await;
        two.until(|two| {
            two.status(1).last_error.is_some_and(|why| {
                why.contains("refused: the certificate of server 2 is not for its host `localhost`")
            })
        })
        .await;
    });
}

#[test]
fn who_has_no_tls_and_who_has_some_tell_each_other() {
    run(async {
        let authority = Authority::new();
        let with_tls = || Setup { secret: None, tls: Some(authority.tls("127.0.0.1", &authority)) };
        let listeners = [bind(), bind()];
        let members: Vec<_> =
            (1..).zip(&listeners).map(|(id, at)| address(id, at.local_addr().unwrap())).collect();
        let setups = [with_tls(), Setup::default()];
        let mut servers = (1..).zip(listeners).zip(setups);
        let mut start = || {
            let ((id, listener), setup) = servers.next().unwrap();
            Server::start(id, listener, members.clone(), &setup)
        };
        let (secured, plain) = (start(), start());
        let settings =
            "set peer-tls-certificate, peer-tls-key and peer-tls-authority on all servers or on none";
        let says = |server: &Server, of, words: &str| {
            server.status(of).last_error.is_some_and(|why| why.contains(words) && why.contains(settings))
        };
        secured.until(|secured| says(secured, 2, "has the other server TLS too?")).await;
        plain
            .until(|plain| says(plain, 1, "refused: one server has TLS, the one that connects has none"))
            .await;
    });
}

#[test]
fn certificates_come_from_files() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["host".to_owned()]).unwrap().signed_by(&key, &authority.0).unwrap();
    std::fs::write(path("cert"), certificate.pem()).unwrap();
    std::fs::write(path("key"), key.serialize_pem()).unwrap();
    std::fs::write(path("ca"), authority.0.pem()).unwrap();
    std::fs::write(path("other"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert!(PeerTls::load(&path("cert"), &path("key"), &path("ca")).is_ok());
    for (certificate, key, authority, expected) in [
        ("none", "key", "ca", "cannot read certificates from"),
        ("cert", "cert", "ca", "cannot read a private key from"),
        ("cert", "key", "key", "no certificate in"),
        ("cert", "other", "ca", "other"),
    ] {
        let why = PeerTls::load(&path(certificate), &path(key), &path(authority)).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}

/// Numbers that look random and are the same every time.
fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
}

#[test]
fn hostile_bytes_end_their_connection_and_nothing_else() {
    run(async {
        let servers = ensemble(2, &Setup { secret: Some("a secret"), tls: None });
        let target = servers[1].status(1).address;
        for server in &servers {
            server.connected().await;
        }
        let mut random = numbers(0x9e37_79b9);
        // A hello that is right, to begin with.
        let (mut near, mut far) = tokio::io::duplex(1024);
        let puppet = Puppet::new(2, Some("a secret"));
        let _ = timeout(
            Duration::from_millis(20),
            hello::initiate(&mut near, &puppet.local, 1, Purpose::Messages),
        )
        .await;
        drop(near);
        let mut valid = Vec::new();
        far.read_to_end(&mut valid).await.unwrap();
        for round in 0..300_u64 {
            let mut bytes = valid.clone();
            match round % 4 {
                0 => bytes = (0..random() % 600).map(|_| random() as u8).collect(),
                1 => bytes.truncate((random() % bytes.len() as u64) as usize),
                2 => {
                    let at = (random() % bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << (random() % 8);
                }
                // A frame that is whole, whatever is in it.
                _ => {
                    let payload: Vec<u8> = (0..random() % 256).map(|_| random() as u8).collect();
                    bytes = frame::encode(FrameKind::Hello, &[&payload]).to_vec();
                }
            }
            bytes.extend((0..random() % 64).map(|_| random() as u8));
            // Mostly for the partition that there is.
            bytes.insert(0, if round % 5 == 0 { random() as u8 } else { 0 });
            let mut socket = TcpStream::connect((target.host.as_str(), target.port)).await.unwrap();
            let _ = socket.write_all(&bytes).await;
            let _ = socket.shutdown().await;
            // It is closed, whatever it is told.
            let mut answer = Vec::new();
            let _ = timeout(PATIENCE, socket.read_to_end(&mut answer)).await.unwrap();
            assert!(answer.len() < 600);
        }
        assert!(servers[0].say(2, b"undisturbed") && servers[1].say(1, b"undisturbed"));
        servers[0].messages(1).await;
        servers[1].messages(1).await;
    });
}

#[test]
fn hostile_bytes_of_a_proven_peer_end_its_connection_and_nothing_else() {
    run(async {
        let mut random = numbers(0x1234_5678);
        let (server, target, puppet, mut to_server, mut from_server) = with_puppet().await;
        for round in 0..60 {
            let mut bytes = frame::encode(FrameKind::Message, &[&[9; 40]]).to_vec();
            bytes.extend_from_slice(&frame::encode(FrameKind::Ping, &[]));
            match round % 2 {
                0 => {
                    let at = (random() % bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << (random() % 8);
                }
                _ => bytes = (0..random() % 3000).map(|_| random() as u8).collect(),
            }
            let socket = if round % 3 == 0 { &mut from_server } else { &mut to_server };
            let _ = socket.write_all(&bytes).await;
            let _ = socket.shutdown().await;
            assert_eq!(server.lost().await.0, 2);
            // Whom it hears from it connects to at once, however often it was in vain.
            to_server = puppet.connect(&target, Purpose::Messages).await.unwrap();
            from_server = puppet.accept().await;
            server.connected().await;
        }
    });
}

#[test]
fn a_flood_of_silent_connections_does_not_keep_a_peer_out() {
    // Those that say nothing at all, and those that say for which partition they are.
    for said in [&[][..], &[0]] {
        run(async {
            let puppet = Puppet::new(2, None);
            let listener = bind();
            let target = address(1, listener.local_addr().unwrap());
            let server = Server::start(1, listener, vec![puppet.address()], &Setup::default());
            let mut flood = Vec::new();
            for _ in 0..UNPROVEN_MAX * 2 {
                let mut socket = TcpStream::connect((target.host.as_str(), target.port)).await.unwrap();
                socket.write_all(said).await.unwrap();
                flood.push(socket);
            }
            let _to = puppet.connect(&target, Purpose::Messages).await.unwrap();
            let _from = puppet.accept().await;
            server.connected().await;
            assert!(server.peers.inner.unproven.count() <= UNPROVEN_MAX);
            // The oldest had to go, the newest may still prove themselves.
            assert_eq!(flood[0].read(&mut [0; 1]).await.unwrap_or(0), 0);
            let newest = flood.last_mut().unwrap();
            assert!(timeout(Duration::from_millis(50), newest.read(&mut [0; 1])).await.is_err());
        });
    }
}
