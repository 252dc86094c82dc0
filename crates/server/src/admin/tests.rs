//! Admin HTTP over real connections, and the JSON of each command.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::config::Settings;
use crate::process::VERSION;
use crate::view::tests::Example;

/// A served admin port with a partition that answers like [`Example`].
struct Served {
    address: SocketAddr,
    process: Arc<Process>,
}

fn served(settings: Settings, serving: bool) -> Served {
    let listener = listen::bind(Ipv4Addr::LOCALHOST.into(), 0, 16).unwrap();
    let address = listener.local_addr().unwrap();
    let process = Arc::new(Process::new(settings, 2181));
    process.set_serving(serving);
    let (questions, mut asked) = unbounded_channel::<Question>();
    let admin = Arc::new(Admin { process: Arc::clone(&process), questions });
    std::thread::spawn(move || serve(vec![(listener, router(admin))]));
    std::thread::spawn(move || {
        let mut example = Example::default();
        while let Some(question) = asked.blocking_recv() {
            question.answer(&mut example);
        }
    });
    Served { address, process }
}

impl Served {
    fn example() -> Served {
        served(Settings { data_dir: "/srv/stoa".into(), ..Settings::default() }, true)
    }

    /// Sends a request as it is and returns status, headers and body.
    fn send(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").expect("a reply has a head and a body");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        (status, body)
    }

    fn command(&self, name: &str) -> Value {
        let (status, body) = self.get(&format!("/commands/{name}"));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[test]
fn commands_answer_in_the_fields_of_zookeeper() {
    let served = Served::example();
    let expected = [
        (
            "stat",
            json!({
                "version": VERSION,
                "read_only": false,
                "server_stats": {
                    "packets_sent": 1010,
                    "packets_received": 1000,
                    "fsync_threshold_exceed_count": 0,
                    "client_response_stats":
                        { "last_buffer_size": 20, "min_buffer_size": 16, "max_buffer_size": 400 },
                    "uptime": 60000,
                    "data_dir_size": 2048,
                    "log_dir_size": 4096,
                    "last_processed_zxid": 42,
                    "outstanding_requests": 3,
                    "server_state": "standalone",
                    "avg_latency": 0.125,
                    "max_latency": 7,
                    "min_latency": 0,
                    "num_alive_client_connections": 2,
                    "auth_failed_count": 0,
                    "non_mtlsremote_conn_count": 0,
                    "non_mtlslocal_conn_count": 0,
                    "provider_null": false
                },
                "client_response": { "last_buffer_size": 20, "min_buffer_size": 16, "max_buffer_size": 400 },
                "node_count": 7,
                "connections": [
                    {
                        "remote_socket_address": "127.0.0.1:4242", "interest_ops": 1,
                        "outstanding_requests": 1, "packets_received": 10, "packets_sent": 11
                    },
                    {
                        "remote_socket_address": "[0:0:0:0:0:0:0:1]:4243", "interest_ops": 5,
                        "outstanding_requests": 0, "packets_received": 1, "packets_sent": 0
                    }
                ],
                "secure_connections": [],
                "command": "stats",
                "error": null
            }),
        ),
        (
            "dump",
            json!({
                "expiry_time_to_session_ids": {
                    "1700000020000": [0x100_0000_0000_0001_i64], "1700000030000": [0x100_0000_0000_0002_i64]
                },
                "session_id_to_ephemeral_paths": { "72057594037927937": ["/a", "/b"] },
                "command": "dump", "error": null
            }),
        ),
        (
            "wchp",
            json!({
                "path_to_session_ids": {
                    "/a": [0x100_0000_0000_0001_i64, 0x100_0000_0000_0002_i64],
                    "/b": [0x100_0000_0000_0001_i64]
                },
                "command": "watches_by_path", "error": null
            }),
        ),
        (
            "wchc",
            json!({
                "session_id_to_watched_paths":
                    { "72057594037927937": ["/a", "/b"], "72057594037927938": ["/a"] },
                "command": "watches", "error": null
            }),
        ),
        (
            "watch_summary",
            json!({
                "num_connections": 2, "num_paths": 2, "num_total_watches": 3,
                "command": "watch_summary", "error": null
            }),
        ),
        (
            "hash",
            json!({
                "digests": [
                    { "zxid": 128, "digest_version": 100, "digest": -2 },
                    { "zxid": 256, "digest_version": 100, "digest": 12 }
                ],
                "command": "hash", "error": null
            }),
        ),
        (
            "conf",
            json!({
                "client_port": 2181, "data_dir": "/srv/stoa", "data_log_dir": "/srv/stoa", "tick_time": 3000,
                "max_client_cnxns": 60, "min_session_timeout": 6000, "max_session_timeout": 60000,
                "server_id": 0, "client_port_listen_backlog": 1024,
                "command": "configuration", "error": null
            }),
        ),
        (
            "lsnp",
            json!({ "zxid": "ffffffffffffffff", "timestamp": -1, "command": "last_snapshot", "error": null }),
        ),
        ("dirs", json!({ "datadir_size": 2048, "logdir_size": 4096, "command": "dirs", "error": null })),
        ("isro", json!({ "read_only": false, "command": "is_read_only", "error": null })),
        ("ruok", json!({ "command": "ruok", "error": null })),
        ("lead", json!({ "error": "server is not initialized", "command": "leader" })),
        ("nope", json!({ "command": "nope", "error": "Unknown command: nope" })),
        ("gtmk", json!({ "tracemask": 306, "command": "get_trace_mask", "error": null })),
        ("stmk?traceMask=2", json!({ "tracemask": 2, "command": "set_trace_mask", "error": null })),
    ];
    for (name, expected) in expected {
        assert_eq!(served.command(name), expected, "{name}");
    }
    assert_eq!(served.process.trace_mask(), 2);
}

#[test]
fn connections_are_told_in_full() {
    let connections = &Served::example().command("cons")["connections"];
    assert_eq!(
        connections[0],
        json!({
            "remote_socket_address": "127.0.0.1:4242", "interest_ops": 1, "outstanding_requests": 1,
            "packets_received": 10, "packets_sent": 11, "session_id": 0x100_0000_0000_0001_i64,
            "last_operation": "GETD", "established": 1_700_000_000_000_i64, "session_timeout": 30000,
            "last_cxid": 9, "last_zxid": 42, "last_response_time": 5000, "last_latency": 1,
            "min_latency": 0, "avg_latency": 1, "max_latency": 2
        })
    );
    assert_eq!(connections[1]["last_operation"], "NA");
}

#[test]
fn every_command_answers_by_all_its_names() {
    let served = Served::example();
    let links = served.get("/commands").1;
    for (names, command) in command::COMMANDS {
        assert!(links.contains(&format!("<a href=\"/commands/{0}\">{0}</a>", names[0])), "{links}");
        for name in names.iter().filter(|_| *command != Command::Snapshot) {
            assert_eq!(served.command(name)["command"], names[0]);
        }
    }
    let monitor = served.command("monitor");
    assert_eq!((&monitor["server_state"], &monitor["znode_count"]), (&json!("standalone"), &json!(7)));
    let configuration = served.command("icfg")["initial_configuration"].as_str().unwrap().to_owned();
    assert!(configuration.contains("port = \"2181\"\n") && !configuration.contains("super-digest"));
}

#[test]
fn every_command_is_on_the_page_about_compatibility() {
    let page = include_str!("../../../../COMPAT.md");
    for (names, _) in command::COMMANDS {
        let short = names[1..].iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let row = format!("| `{}` | {short} |", names[0]).replace("|  |", "| |");
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn a_snapshot_is_taken_by_post() {
    let served = Served::example();
    let post = "POST /commands/snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n";
    let (status, head, body) = served.send(&format!("{post}\r\n"));
    assert_eq!(status, 200);
    assert!(head.contains("last_zxid: 0x2a\r\n") && head.contains("snapshot_size: 2048"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({ "last_zxid": "0x2a", "snapshot_size": 2048, "command": "snapshot", "error": null })
    );
    assert_eq!(served.send(&format!("{post}Origin: http://elsewhere\r\n\r\n")).0, 403);
    assert_eq!(served.get("/commands/snapshot").0, 405);
    assert_eq!(
        served.send(&post.replace("snapshot", "stat").replace("1.1\r\n", "1.1\r\nA: b\r\n\r\n")).0,
        405
    );
}

#[test]
fn from_elsewhere_only_the_super_user_commands() {
    let digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned();
    let process = Process::new(Settings { super_digest: Some(digest), ..Settings::default() }, 1);
    let elsewhere: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let may = |authorization: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        may_command(&process, elsewhere, &headers).map_err(|(status, _)| status.as_u16())
    };
    assert_eq!(may(Some("digest super:test")), Ok(()));
    assert_eq!(may(Some("digest super:wrong")), Err(403));
    assert_eq!(may(Some("Basic abc")), Err(403));
    assert_eq!(may(None), Err(401));
}

#[test]
fn readiness_and_metrics_follow_the_server() {
    let served = Served::example();
    let (status, body) = served.get("/ready");
    assert_eq!(status, 200);
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({ "ready": true, "server_state": "standalone", "last_zxid": "0x2a" })
    );
    let (status, head, body) = served.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\nznode_count 7\n"), "{body}");

    served.process.set_serving(false);
    assert_eq!(served.get("/ready").0, 503);
    assert_eq!(served.get("/metrics").0, 503);
    assert_eq!(served.command("stat")["error"], NOT_SERVING);
    assert_eq!(served.command("conf")["error"], NOT_SERVING);
    assert_eq!(served.command("envi")["error"], Value::Null);
}

#[test]
fn hostile_requests_are_cut_short() {
    let served = Served::example();
    assert_eq!(served.get("/elsewhere").0, 404);
    assert_eq!(served.send("nonsense\r\n\r\n").0, 400);
    // More headers than are read.
    let mut stream = TcpStream::connect(served.address).unwrap();
    let _ = stream.write_all(&[b'x'; 64 << 10]);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP/1.1 200"));
    // A client that sends its request slowly is not waited for, and others are served meanwhile.
    let began = Instant::now();
    let mut slow = TcpStream::connect(served.address).unwrap();
    slow.write_all(b"GET /ready HTTP/1.1\r\n").unwrap();
    assert_eq!(served.get("/ready").0, 200);
    let mut reply = String::new();
    let _ = slow.read_to_string(&mut reply);
    assert!(!reply.contains(" 200 "), "{reply}");
    assert!(began.elapsed() < Duration::from_secs(15), "closed in time");
}
