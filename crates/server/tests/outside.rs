//! A running server as scripts see it: words and admin HTTP over sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use clap::{Args, Command, FromArgMatches};
use common::{Client, exchange, http, server, start};
use stoa_server::config::ServeArgs;
use stoa_wire::request::encode;
use stoa_wire::{Acl, Opcode, perms};

#[test]
fn words_are_answered_and_the_connection_closed() {
    let ports = server();
    let word = |word: &[u8]| exchange(ports.clients, word).unwrap();
    assert_eq!(word(b"ruok"), "imok");
    assert_eq!(word(b"ruok\n"), "imok", "an unread newline does not reset the connection");
    assert_eq!(word(b"isro\r\n"), "rw");
    assert!(word(b"srvr").contains("Mode: standalone\n"));
    assert!(word(b"conf").contains(&format!("clientPort={}\n", ports.clients)));
    assert!(word(b"mntr").contains("zk_server_state\tstandalone\n"));
    assert_eq!(word(b"stmk\0\0\0\0\0\0\0\x07"), "7");
    assert_eq!(word(&[0xff, 0xf4, 0xff, 0xfd]), "", "the end of a telnet");
}

#[test]
fn a_snapshot_taken_by_request_is_told_of() {
    let ports = server();
    // It leads a moment after it has begun to listen, which a loaded machine makes longer.
    let deadline = Instant::now() + Duration::from_secs(30);
    let reply = loop {
        let reply = http(ports, "POST /commands/snapshot");
        if !reply.starts_with("HTTP/1.1 503") || Instant::now() > deadline {
            break reply;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("\"error\": null"), "{reply}");
    let size = reply.lines().find_map(|line| line.strip_prefix("snapshot_size: ")).unwrap();
    assert!(size.parse::<u64>().unwrap() > 0);
    let metrics = http(ports, "GET /metrics");
    assert!(metrics.contains("\nsnapshottime_count 1\n"), "{metrics}");
    assert!(http(ports, "GET /commands/lsnp").contains("\"zxid\": \"0\""));
}

#[test]
fn admin_http_goes_by_the_permissions_on_the_root() {
    let (ports, _) = start(&["--super-digest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned()]);
    let reset = |authorization: &str| {
        let head = "POST /commands/stat_reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n";
        let reply = exchange(ports.admin, format!("{head}{authorization}\r\n").as_bytes()).unwrap();
        reply.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(reset(""), "200", "a new tree is open to everybody");
    // The digest of `bob:secret`, and so on.
    let (bob, carol) = ("bob:fyVmFCwVbTJYrznoSu1koqYEYF0=", "carol:jtnODfqZfOMu7mWFjLLprKJk7Wo=");
    let digest = |id, perms| Acl { perms, scheme: "digest", id };
    let acl = [
        digest(bob, perms::ALL),
        // Each of them may something, and not all.
        digest(carol, perms::ALL & !perms::ADMIN),
        Acl { perms: perms::READ, scheme: "world", id: "anyone" },
    ];
    let mut client = Client::new(&ports);
    client.send(1, Opcode::SetAcl, |body| encode::set_acl(body, "/", &acl, -1));
    assert_eq!(client.frame().unwrap()[12..16], [0; 4], "no error");
    assert_eq!(reset(""), "401");
    assert_eq!(reset("Authorization: digest bob:secret\r\n"), "200");
    assert_eq!(reset("Authorization: digest bob:wrong\r\n"), "403");
    assert_eq!(reset("Authorization: digest carol:secret\r\n"), "403");
    assert_eq!(reset("Authorization: ip\r\n"), "403");
    assert_eq!(reset("Authorization: digest super:test\r\n"), "200");
    // By the address, without a word.
    let local = [Acl { perms: perms::ALL, scheme: "ip", id: "127.0.0.0/8" }];
    let mut root = Client::new(&ports);
    root.send(-4, Opcode::Auth, |body| encode::auth(body, "digest", b"super:test"));
    root.frame().unwrap();
    root.send(2, Opcode::SetAcl, |body| encode::set_acl(body, "/", &local, -1));
    assert_eq!(root.frame().unwrap()[12..16], [0; 4], "no error");
    assert_eq!(reset(""), "200");
}

#[test]
fn a_folder_of_zookeeper_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("version-2")).unwrap();
    std::fs::write(folder.path().join("version-2/snapshot.0"), "ZKSN").unwrap();
    let data_dir = format!("--data-dir={}", folder.path().display());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let command = ServeArgs::augment_args(Command::new("serve").no_binary_name(true));
        let matches = command.get_matches_from(["--bind=127.0.0.1", "--port=0", "--admin-port=0", &data_dir]);
        let code = stoa_server::run(&ServeArgs::from_arg_matches(&matches).unwrap());
        let _ = tell.send(format!("{code:?}"));
    });
    let code = told.recv_timeout(Duration::from_secs(30)).expect("the server does not start");
    assert_eq!(code, format!("{:?}", std::process::ExitCode::FAILURE));
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["version-2"], "nothing is written beside it");
}
