//! Who is let in, and who is not.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::peers::frame::{self, FrameKind};
use crate::peers::strangers::UNPROVEN_MAX;
use crate::tls::Files;

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
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for this host with its key in one file, and those that are trusted in another.
    fn write(&self, folder: &Path, host: &str, serial: u64, trusted: &Authority) -> Files {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let files = Files {
            certificate: folder.join("server.pem"),
            authority: Some(folder.join("authority.pem")),
            ..Files::default()
        };
        fs::write(&files.certificate, format!("{}{}", certificate.pem(), key.serialize_pem())).unwrap();
        fs::write(folder.join("authority.pem"), trusted.0.pem()).unwrap();
        files
    }

    fn tls(&self, host: &str, trusted: &Authority) -> PeerTls {
        let folder = tempfile::tempdir().unwrap();
        PeerTls::load(self.write(folder.path(), host, 1, trusted)).unwrap()
    }

    /// A list of revoked certificates with these numbers.
    fn revokes(&self, serials: &[u64]) -> String {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
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
            fs::write(&file, &long).unwrap();
            one.peers.send_snapshot(2, Bytes::new(), file);
            let PeerEvent::SnapshotArrived { file, .. } = two.event().await else { panic!() };
            assert!(fs::read(file).unwrap() == long);
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
        never(&one, "is it from another authority of that name?").await;
        never(&one, "from the authority in peer-tls-authority").await;
        // It is for another host: neither connection is accepted by the first server.
        let (one, two) =
            tls_pair("localhost", ours.tls("localhost", &ours), ours.tls("elsewhere", &ours), None);
        never(&one, "its certificate is for another host").await;
        never(&one, "its certificate must be for the host that stands in servers or reader-of").await;
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
        let settings = "set peer-tls-certificate and peer-tls-authority on all servers or on none";
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
    fs::write(path("cert"), certificate.pem()).unwrap();
    fs::write(path("key"), key.serialize_pem()).unwrap();
    fs::write(path("ca"), authority.0.pem()).unwrap();
    fs::write(path("other"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let load = |certificate: &str, key: &str, authority: &str| {
        let (certificate, key, authority) = (path(certificate), Some(path(key)), Some(path(authority)));
        PeerTls::load(Files { certificate, key, authority, ..Files::default() })
    };
    assert!(load("cert", "key", "ca").is_ok());
    for (certificate, key, authority, expected) in [
        ("none", "key", "ca", "cannot read "),
        ("cert", "cert", "ca", "there is no private key in it"),
        ("cert", "key", "key", "there is no certificate in it"),
        ("cert", "other", "ca", "other: "),
    ] {
        let why = load(certificate, key, authority).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}

/// What two servers think of each other's certificates, first the one that connects to `host`.
async fn meet(one: &PeerTls, two: &PeerTls, host: &str) -> (Result<(), String>, Result<(), String>) {
    let listener = TcpListener::from_std({
        let listener = bind();
        listener.set_nonblocking(true).unwrap();
        listener
    });
    let listener = listener.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    // With TLS 1.3 whoever connects is done before his certificate is looked at.
    let connect = async {
        let mut stream = stream::Stream::to(near, Some(one), host).await?;
        stream.write_all(b"x").await.map_err(|error| error.to_string())?;
        stream.read_u8().await.map(drop).map_err(|error| error.to_string())
    };
    let accept = async {
        let mut stream = stream::Stream::from(far, Some(two)).await?;
        stream.write_all(b"y").await.map_err(|error| error.to_string())
    };
    tokio::join!(connect, accept)
}

/// The certificate in these stores has no name but `leaf` in its subject, which is not enough among servers: that is
/// what is looked at last, when everything else of it is right.
#[test]
fn stores_of_java_do_for_servers() {
    let data = |name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../keys/tests/data").join(name);
    let load = |own: &str, trust: &str, password: &str| {
        PeerTls::load(Files {
            certificate: data(own),
            password: Some(password.to_owned()),
            authority: Some(data(trust)),
            authority_password: Some("changeit".to_owned()),
            ..Files::default()
        })
    };
    run(async {
        for (own, trust) in [("chain.jks", "trust.p12"), ("chain.p12", "trust.jks")] {
            let tls = load(own, trust, "changeit").unwrap();
            let (connected, accepted) = meet(&tls, &tls, "leaf").await;
            assert!(
                connected.as_ref().is_err_and(|why| why.contains("is for another host")),
                "{connected:?}"
            );
            accepted.unwrap();
        }
    });
    let why = load("chain.p12", "trust.p12", "wrong").unwrap_err();
    assert!(why.contains("chain.p12: the password does not fit"), "{why}");
    assert!(!why.contains("wrong"), "{why}");
}

#[test]
fn changed_certificates_count_for_new_connections_and_wrong_ones_do_not() {
    let counts = |tls: &PeerTls| (tls.view().reloads, tls.view().failed_reloads);
    run(async {
        let (old, new) = (Authority::new(), Authority::new());
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let write = |authority: &Authority, index: usize| {
            authority.write(folders[index].path(), "localhost", 1, authority)
        };
        let [one, two] = [0, 1].map(|index| PeerTls::load(write(&old, index)).unwrap());
        assert_eq!(meet(&one, &two, "localhost").await, (Ok(()), Ok(())));
        one.reload_changed();
        assert_eq!(counts(&one), (0, 0), "nothing has changed");
        write(&new, 0);
        one.reload();
        assert_eq!(counts(&one), (1, 0));
        let (connected, _) = meet(&one, &two, "localhost").await;
        assert!(connected.is_err_and(|why| why.contains("from the authority in peer-tls-authority")));
        write(&new, 1);
        fs::write(folders[1].path().join("server.pem"), "no certificate").unwrap();
        two.reload_changed();
        two.reload_changed();
        assert_eq!(counts(&two), (0, 1), "it is tried once");
        assert!(meet(&two, &two, "localhost").await.0.is_ok(), "those before go on");
        write(&new, 1);
        two.reload_changed();
        assert_eq!(counts(&two), (1, 1));
        assert_eq!(meet(&one, &two, "localhost").await, (Ok(()), Ok(())));
    });
}

#[test]
fn revoked_certificates_are_refused_whoever_connects() {
    run(async {
        let authority = Authority::new();
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let load = |index: usize, revoked: Option<&[u64]>| {
            let folder = folders[index].path();
            let mut files = authority.write(folder, "localhost", index as u64 + 1, &authority);
            files.revoked = revoked.map(|revoked| {
                fs::write(folder.join("revoked.pem"), authority.revokes(revoked)).unwrap();
                folder.join("revoked.pem")
            });
            PeerTls::load(files).unwrap()
        };
        let (lax, other) = (load(0, None), load(1, Some(&[7])));
        assert_eq!(meet(&lax, &other, "localhost").await, (Ok(()), Ok(())));
        let strict = load(1, Some(&[1, 7]));
        let (_, accepted) = meet(&lax, &strict, "localhost").await;
        assert!(accepted.as_ref().is_err_and(|why| why.contains("is revoked")), "{accepted:?}");
        let (connected, _) = meet(&strict, &lax, "localhost").await;
        assert!(connected.as_ref().is_err_and(|why| why.contains("is revoked")), "{connected:?}");
    });
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
