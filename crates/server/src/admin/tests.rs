//! Admin HTTP over real connections, and the JSON of each command.

mod encrypted;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::process::VERSION;
use crate::view::readers::below;
use crate::view::tests::{
    Example, ensemble_settings, feeder, follower, hub, leader, looking, read_only, stats,
};
use crate::view::{Mode, Stats};

/// A served admin port with a partition that answers like [`Example`].
struct Served {
    address: SocketAddr,
    process: Arc<Process>,
}

fn served(settings: Settings, phase: Phase, stats: fn() -> Stats) -> Served {
    served_by(settings, phase, Example { stats, ..Example::default() })
}

fn served_by(settings: Settings, phase: Phase, mut example: Example) -> Served {
    let listener = listen::bind(Ipv4Addr::LOCALHOST.into(), 0, 16).unwrap();
    let address = listener.local_addr().unwrap();
    let tls = AdminTls::begin(&settings).unwrap();
    let process = Arc::new(Process::new(settings, 2181).with_admin_tls(tls.clone()));
    process.set_phase(phase);
    let (questions, mut asked) = unbounded_channel::<Question>();
    let admin = Arc::new(Admin::new(Arc::clone(&process), questions));
    let serving = Serving { router: router(admin), pages: Arc::clone(&process.pages), tls };
    let (never, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        serve(vec![(listener, serving)], stopped);
        drop(never);
    });
    std::thread::spawn(move || {
        while let Some(question) = asked.blocking_recv() {
            question.answer(&mut example);
        }
    });
    Served { address, process }
}

impl Served {
    fn example() -> Served {
        served(Settings { data_dir: "/srv/stoa".into(), ..Settings::default() }, Phase::Serving, stats)
    }

    /// A server of three voters and an observer.
    fn of_ensemble(stats: fn() -> Stats) -> Served {
        let phase = if stats().mode == Mode::Looking { Phase::Looking } else { Phase::Serving };
        served(ensemble_settings(stats().ensemble.id), phase, stats)
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

    /// Asks for a command with more headers.
    fn ask(&self, method: &str, name: &str, headers: &str) -> (u16, String, String) {
        let head = format!("{method} /commands/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n");
        self.send(&format!("{head}{headers}\r\n"))
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
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
            "partitions",
            json!({
                "partitions": [{
                    "partition": 1, "role": "leader", "leader_id": 1, "term": 7,
                    "last_position": 5001, "committed_position": 4999, "applied_position": 4998,
                    "znodes": 7, "data_bytes": 99, "connections": 2,
                    "requests_kept": 600, "requests_handed_over": 400,
                    "reads_per_second": 1600, "writes_per_second": 200, "busy": 0.06,
                    "subtrees": [{
                        "path": "/hot", "reads_per_second": 1500, "writes_per_second": 200,
                        "bytes_per_second": 45000, "busy": 0.058
                    }]
                }],
                "balance": true, "imbalance": 1.24, "version": 5,
                "exceptions": [{ "path": "/hot", "partition": 2 }, { "path": "/x/y", "partition": 1 }],
                "hints": ["pin /x/y 1"], "moves": [],
                "command": "partitions", "error": null
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
        ("voting_view", json!({ "current_config": {}, "command": "voting_view", "error": null })),
        ("obsr", json!({ "synced_observers": 0, "observers": [], "command": "observers", "error": null })),
        ("zabstate", json!({ "voting": false, "zabstate": "", "command": "zabstate", "error": null })),
        ("lead", json!({ "error": "server is not initialized", "command": "leader" })),
        ("nope", json!({ "command": "nope", "error": "Unknown command: nope" })),
        ("gtmk", json!({ "tracemask": 306, "command": "get_trace_mask", "error": null })),
    ];
    for (name, expected) in expected {
        assert_eq!(served.command(name), expected, "{name}");
    }
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
    let several = served(Settings::default(), Phase::Serving, || Stats { partitions: 4, ..stats() });
    assert_eq!(several.command("cons")["connections"][0]["partition"], 2);
}

#[test]
fn every_command_answers_by_all_its_names() {
    let served = Served::example();
    let links = served.get("/commands").1;
    for (names, command) in command::COMMANDS {
        assert!(links.contains(&format!("<a href=\"/commands/{0}\">{0}</a>", names[0])), "{links}");
        for name in *names {
            let allowed = if command.changes() { "POST" } else { "GET" };
            for method in ["GET", "HEAD", "POST"] {
                let (status, head, body) = served.ask(method, name, "");
                let is_allowed = (method == "POST") == command.changes();
                if !is_allowed {
                    assert!(
                        status == 405 && head.contains(&format!("\r\nallow: {allowed}")),
                        "{name}: {head}"
                    );
                } else if *command != Command::Move && !command.is_of_sites() {
                    assert_eq!(status, 200, "{name}: {body}");
                }
                if method != "HEAD" {
                    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["command"], names[0]);
                }
            }
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
fn the_forest_is_told_with_who_feeds_whom_and_what_was_repaired() {
    let answer = served(Settings::default(), Phase::Serving, feeder).command("forest");
    assert_eq!((&answer["term"], &answer["shape"], &answer["leader_id"]), (&json!(7), &json!(3), &json!(1)));
    let tree = json!({ "tree": 0, "root": 2, "children": { "2": [3, 4] }, "silent_ms": null });
    assert_eq!(answer["trees"], json!([tree]));
    let late = json!({
        "server_id": 3, "place": "leaf", "tree": 0, "is_fed": true, "understands": true,
        "late_entries": 2, "late_bytes": 900, "late_ms": 1.5
    });
    assert_eq!(answer["servers"][2], late);
    assert_eq!(answer["servers"][4]["understands"], false);
    let why = "nothing came down tree 2 from it, as 3, 9 said";
    let repair = json!({
        "term": 7, "shape": 3, "age_ms": 1000.0,
        "servers": [{ "server_id": 4, "is_aside": true, "why": why }]
    });
    assert_eq!(answer["repairs"][1], repair);
    assert_eq!((&answer["bytes_sent"], &answer["pulls_answered"]), (&json!(8000), &json!(3)));
    let none = Served::example().command("forest");
    assert_eq!(none["error"], "there is no forest: forest-servers-min is 0");
}

#[test]
fn the_readers_below_are_told_and_the_parent_of_one() {
    let answer = served(Settings::default(), Phase::Serving, below).command("readers");
    let reader = json!({
        "remote_socket_address": "10.0.0.7:5000", "software": "stoa 1", "connected_since": 1_700_000_000_000_u64,
        "bytes_received": 10, "bytes_sent": 2000, "queued_bytes": 30
    });
    assert_eq!((&answer["readers"], &answer["lagging_readers"]), (&json!([reader]), &json!(1)));
    assert_eq!(answer["older_readers"], json!(1));
    let parent = &answer["parent"];
    assert_eq!((&parent["address"], &parent["member_id"]), (&json!("zoo1 port 2888"), &json!(2)));
    assert_eq!((&parent["distance"], &parent["behind_entries"]), (&json!(2), &json!(4)));
    assert_eq!((&answer["all_readers"], &answer["left_out_readers"]), (&json!(5), &json!(2)));
    let upper = &answer["tree"][0];
    assert_eq!(upper["client_address"], "10.0.0.7:2181");
    assert_eq!(upper["readers"][0]["readers"][0]["client_address"], "10.0.0.9:2181");
    let none = Served::example().command("readers");
    assert_eq!(
        (&none["is_reader"], &none["parent"], &none["readers"]),
        (&json!(false), &json!(null), &json!([]))
    );
}

#[test]
fn a_snapshot_is_taken_by_post() {
    let served = Served::example();
    let post = "POST /commands/snapshot HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n";
    let (status, head, body) = served.send(&format!("{post}\r\n"));
    assert_eq!(status, 200);
    assert!(head.contains("last_zxid: 0x2a\r\n") && head.contains("snapshot_size: 2048"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({ "last_zxid": "0x2a", "snapshot_size": 2048, "command": "snapshot", "error": null })
    );
}

#[test]
fn what_changes_is_changed_by_post() {
    let served = Served::example();
    let (status, _, body) = served.ask("POST", "stmk?traceMask=2", "");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, body), (200, json!({ "tracemask": 2, "command": "set_trace_mask", "error": null })));
    assert_eq!(served.get("/commands/stmk?traceMask=7").0, 405);
    assert_eq!(served.process.trace_mask(), 2);
    served.process.set_phase(Phase::Stopping);
    assert_eq!(served.ask("POST", "srst", "").0, 503, "nobody can say who may");
}

#[test]
fn a_subtree_is_moved_by_post_and_the_answer_says_what_became_of_it() {
    let served = Served::example();
    assert_eq!(served.command("partitions?path=/hot")["place"], 2);
    let post = |query: &str, headers: &str| {
        let head = format!("POST /commands/move{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n");
        let (status, _, body) = served.send(&format!("{head}{headers}\r\n"));
        (status, serde_json::from_str::<Value>(&body).unwrap())
    };
    let (status, body) = post("?path=/hot&to=2", "");
    let done = json!({
        "path": "/hot", "to": 2, "refused": null, "time": 1_700_000_000_000_i64, "command": "move", "error": null
    });
    assert_eq!((status, body), (200, done));
    let (status, body) = post("?path=/other&to=1", "");
    assert_eq!((status, &body["error"]), (409, &json!("server 3 leads: ask it")));
    for query in ["", "?path=/a", "?to=1", "?path=/a&to=-1", "?path=/a&to=256"] {
        assert_eq!(post(query, "").0, 400, "{query}");
    }
    assert_eq!(served.get("/commands/move?path=/hot&to=2").0, 405);
    served.process.set_phase(Phase::Stopping);
    assert_eq!(post("?path=/hot&to=2", "").0, 503);
}

#[test]
fn whoever_changes_something_has_all_permissions_on_the_root() {
    let super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
    let settings = Settings { super_digest, ..Settings::default() };
    let closed = Example { is_open: false, ..Example::default() };
    let served = served_by(settings, Phase::Serving, closed);
    let post = |name: &str, authorization: &str| {
        let (status, _, body) = served.ask("POST", name, authorization);
        let body: Value = serde_json::from_str(&body).unwrap();
        (status, body["command"].clone(), body["error"].as_str().unwrap_or_default().to_owned())
    };
    let changing = command::COMMANDS.iter().filter(|(_, command)| command.changes());
    let names: Vec<&str> = changing.map(|(names, _)| names[0]).collect();
    assert_eq!(names.len(), 13);
    for name in names {
        let (status, command, error) = post(name, "");
        assert_eq!((status, command), (401, json!(name)));
        assert!(error.starts_with("Auth info is missing for the command: it takes"), "{error}");
        let (status, _, error) = post(name, "Authorization: Basic abc\r\n");
        assert_eq!((status, &error[..]), (401, "Not authenticated"));
        for wrong in ["digest super:wrong", "ip"] {
            let (status, command, error) = post(name, &format!("Authorization: {wrong}\r\n"));
            assert_eq!((status, command), (403, json!(name)));
            assert!(error.starts_with("Not authorized"), "{error}");
        }
        let (status, ..) = post(name, "Authorization: digest super:test\r\n");
        // What some of them are about is not said.
        let expected = match name {
            "move" | "sites_add" | "sites_lose" | "sites_remove" => 400,
            "sites_rejoin" => 409,
            _ => 200,
        };
        assert_eq!(status, expected, "{name}");
    }
    assert_eq!(served.get("/commands/stat").0, 200, "reading is open");
}

#[test]
fn no_page_of_another_site_has_anything_done() {
    let served = Served::example();
    for header in ["Origin: http://elsewhere.example", "Origin: null", "Sec-Fetch-Site: cross-site"] {
        for command in ["snapshot", "srst", "move?path=/hot&to=2"] {
            let (status, _, body) = served.ask("POST", command, &format!("{header}\r\n"));
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(status, 403, "{header}");
            assert!(body["error"].as_str().unwrap().contains("page"), "{body}");
            let name = command.split('?').next().and_then(Command::by_name).unwrap().name();
            assert_eq!(body["command"], name);
        }
    }
    // A name of theirs that stands for this machine's address is none of its names.
    for path in ["/commands/stat", "/metrics", "/ready", "/elsewhere"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: elsewhere.example:8080\r\n\r\n");
        let (status, _, body) = served.send(&request);
        assert_eq!(status, 403);
        assert!(body.contains("admin-hosts"), "{body}");
    }
    assert_eq!(served.send("GET /ready HTTP/1.0\r\n\r\n").0, 200, "no browser leaves it out");
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
    let (status, head, body) = served.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\nznode_count 7\n"), "{body}");

    for (phase, why) in
        [(Phase::Recovering, "the state is being read"), (Phase::Stopping, "the server is stopping")]
    {
        served.process.set_phase(phase);
        let (status, body) = served.get("/ready");
        assert_eq!(status, 503);
        assert!(body.contains(why), "{body}");
        assert_eq!(served.get("/metrics").0, 503);
        for command in ["stat", "conf", "ensemble", "lead"] {
            assert_eq!(served.command(command)["error"], NOT_SERVING);
        }
        let environment = served.command("envi");
        assert_eq!((&environment["error"], &environment["java.version"]), (&Value::Null, &json!("none")));
        assert_eq!(served.command("zabstate")["zabstate"], "");
    }
}

#[test]
fn a_leader_tells_of_those_who_follow() {
    let served = Served::of_ensemble(leader);
    let ensemble = served.command("ensemble");
    let own: Vec<_> = ["server_id", "role", "leader_id", "term", "last_position", "committed_position"]
        .map(|field| ensemble[field].clone())
        .into();
    assert_eq!(json!(own), json!([1, "leader", 1, 7, 5001, 4999]));
    assert_eq!(
        ensemble["members"][2],
        json!({
            "server_id": 3, "is_self": false, "learner_type": "participant", "address": "zoo3.example:2888",
            "matched_position": 1000, "lag_entries": 4001, "connected": true,
            "connected_since": 1_700_000_001_000_i64, "software": "stoa 1.0", "last_error": null,
            "bytes_received": 200, "bytes_sent": 9000, "messages_received": 20, "messages_sent": 90,
            "queued_bytes": 4096
        })
    );
    let away = &ensemble["members"][3];
    assert_eq!(
        json!([away["learner_type"], away["connected"], away["last_error"], away["lag_entries"]]),
        json!(["observer", false, "refused", 5001])
    );
    fn named_only() -> Stats {
        let mut stats = leader();
        stats.ensemble.members[3].belongs = false;
        stats
    }
    let named = &Served::of_ensemble(named_only).command("ensemble")["members"][3];
    assert_eq!((&named["learner_type"], &named["last_error"]), (&Value::Null, &json!("refused")));
    assert_eq!(ensemble["members"][0]["connected"], Value::Null, "nobody is connected with himself");

    let monitor = served.command("monitor");
    assert_eq!((&monitor["server_state"], &monitor["synced_followers"]), (&json!("leader"), &json!(1)));
    assert_eq!(monitor["peer_state"], "leading - broadcast");
    let stats = served.command("stat");
    assert_eq!(stats["server_stats"]["server_state"], "leader");
    let sizes = json!({ "last_buffer_size": 44, "min_buffer_size": 40, "max_buffer_size": 90 });
    assert_eq!(stats["proposal_stats"], sizes);
    assert_eq!(served.command("conf")["server_id"], 1);
    assert_eq!(served.get("/ready").0, 200);
}

#[test]
fn how_many_partitions_are_led_is_told_where_there_are_several() {
    fn several() -> Stats {
        let mut stats = leader();
        stats.add(&follower());
        Stats { partitions: 2, ..stats }
    }
    let served = Served::of_ensemble(several);
    assert_eq!(served.command("monitor")["stoa_partitions_led"], 2);
    let one = Served::of_ensemble(leader);
    assert_eq!(one.command("monitor")["stoa_partitions_led"], Value::Null);
}

#[test]
fn what_is_ordered_of_sites_is_begun_or_says_why_not() {
    let served = Served::example();
    let post = |command: &str| {
        let (status, _, body) = served.ask("POST", command, "");
        (status, serde_json::from_str::<Value>(&body).unwrap())
    };
    for (command, done) in [
        ("sites_lose?site=frankfurt", "frankfurt is given up"),
        ("sites_promote", "this site is to be the hub"),
        ("sites_promote?lose=a,b", "this site is to be the hub, without a, b"),
        ("sites_add?site=tokyo%3Da:1", "tokyo=a:1 is one of the sites"),
        ("sites_remove?site=tokyo", "tokyo is none of the sites"),
        ("sites_upgrade", "the sites use the highest feature level that all of them read"),
    ] {
        let (status, body) = post(command);
        assert_eq!((status, &body["done"]), (200, &json!(done)), "{command}");
    }
    let (status, body) = post("sites_rejoin");
    assert_eq!((status, &body["error"]), (409, &json!("not given up")));
    for command in ["sites_lose", "sites_add?site=", "sites_remove"] {
        assert_eq!(post(command).0, 400, "{command}");
    }
}

#[test]
fn a_hub_tells_of_the_other_sites_and_who_holds_what() {
    let served = Served::of_ensemble(hub);
    let answer = served.command("sites");
    assert_eq!(
        (&answer["site"], &answer["hub"], &answer["leads"]),
        (&json!("virginia"), &json!(1), &json!(true))
    );
    assert_eq!((&answer["waiting_requests"], &answer["writes_local"]), (&json!(6), &json!(100)));
    assert_eq!(answer["held_answers"], json!(2));
    assert_eq!(answer["feature_level"], json!(1));
    assert_eq!(answer["feature_level_waits_for"], json!(["server 2 of this site reads up to level 1"]));
    assert_eq!((&answer["lease_ms"], &answer["bound_to_hub_ms"]), (&json!(8250.0), &Value::Null));
    assert_eq!(
        answer["sites"][1],
        json!({
            "site": "california", "number": 2, "is_hub": false, "is_self": false, "is_given_up": false,
            "servers": ["california.example:2889"], "connected": true, "connected_since": 1_700_000_000_000_i64,
            "kept_zxid": null, "round_trip_ms": 62.5, "imported_position": 40, "acknowledged_position": 4000,
            "unshipped_entries": 3, "unshipped_bytes": 700, "unshipped_ms": 31.0, "unshipped_is_all": true,
            "feature_level_newest": 2
        })
    );
    let away = &answer["sites"][2];
    assert_eq!((&away["is_given_up"], &away["kept_zxid"]), (&json!(true), &json!("0x50003")));
    assert_eq!((&away["connected"], &away["unshipped_entries"]), (&json!(false), &Value::Null));
    let expected = json!({
        "path": "/hot", "holder": "california", "holder_number": 2, "exists": true, "is_at_hubs_leader": true,
        "readers": [{ "site": "virginia", "number": 1 }],
        "since": 1_700_000_000_000_i64, "uses_by_holder": 40, "last_use_by_holder": 1_700_000_060_000_i64,
        "used_by": [
            { "site": "california", "number": 2, "share_percent": 93 },
            { "site": null, "number": 9, "share_percent": 7 }
        ],
        "used_by_more": false, "used_last_by": 9,
        "command": "token", "error": null
    });
    assert_eq!(served.command("token?path=/hot"), expected);
    let unknown = served.command("token?path=/other");
    for field in ["since", "uses_by_holder", "last_use_by_holder", "used_by", "used_by_more", "used_last_by"]
    {
        assert_eq!(unknown[field], Value::Null, "{field}");
    }
    assert_eq!(unknown["is_at_hubs_leader"], false);
    for query in ["", "?path=", "?path=hot", "?path=/hot/"] {
        let error = served.command(&format!("token{query}"))["error"].clone();
        assert!(error.as_str().unwrap().contains("it takes a path"), "{query}: {error}");
    }
    for question in ["sites", "token?path=/hot"] {
        let answer = Served::example().command(question);
        assert_eq!(answer["error"], "this server is of none of several sites", "{question}");
    }
}

#[test]
fn a_site_that_was_given_up_tells_what_it_alone_has() {
    let served = Served::of_ensemble(hub);
    let operation = |data: Option<&str>| {
        let mut told = json!({ "operation": "setData", "path": "/a", "bytes": 2 });
        data.into_iter().for_each(|data| told["data"] = data.into());
        told
    };
    let update = |zxid: &str, data| {
        json!({
            "zxid": zxid, "time": 1_700_000_000_000_i64, "session": "0x77", "position": 41, "is_multi": false,
            "operations": [operation(data)]
        })
    };
    let answer = served.command("sites_lost?limit=1");
    let expected = json!({
        "command": "sites_lost", "error": null, "site": "frankfurt", "kept_zxid": "0x3", "lost_updates": 2,
        "is_all": true, "are_more": true, "updates": [update("0x803", None)]
    });
    assert_eq!(answer, expected);
    let rest = served.command("sites_lost?after=0x803");
    assert_eq!((&rest["are_more"], &rest["updates"]), (&json!(false), &json!([update("0x1003", None)])));
    for bad in ["after=0xg", "limit=many"] {
        let (status, _, body) = served.ask("GET", &format!("sites_lost?{bad}"), "");
        assert!(status == 400 && body.contains(" is no number"), "{bad}: {body}");
    }
    // The data is told only to who may read everything.
    let (status, _, body) = served.ask("POST", "sites_lost_data?after=803", "");
    let data: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &data["updates"]), (200, &json!([update("0x1003", Some("6162"))])));
    let (status, ..) = served.ask("GET", "sites_lost_data", "");
    assert_eq!(status, 405);
    let none = Served::example().command("sites_lost");
    assert_eq!(none["error"], "this server is of none of several sites");
}

#[test]
fn commands_about_an_ensemble_answer_in_the_fields_of_zookeeper() {
    let voter = |id| {
        json!({
            "server_addresses": [format!("zoo{id}.example:2888")], "election_addresses": [],
            "client_address": "0.0.0.0:2181", "learner_type": "participant"
        })
    };
    let current = json!({ "1": voter(1), "2": voter(2), "3": voter(3) });
    fn one_observer() -> Stats {
        let mut stats = leader();
        stats.ensemble.members[3].link = stats.ensemble.members[1].link.clone();
        stats.ensemble.members[3].lag = Some(0);
        stats
    }
    let observers = json!({
        "synced_observers": 1,
        "observers": [{
            "remote_socket_address": "zoo4.example:2888", "sid": 4, "established": 1_700_000_000_000_i64,
            "queued_packets_size": 0, "packets_received": 20, "packets_sent": 90
        }],
        "command": "observers", "error": null
    });
    let none = json!({ "synced_observers": 0, "observers": [], "command": "observers", "error": null });
    for (stats, id, is_leader, observers) in
        [(one_observer as fn() -> Stats, 1, true, observers), (follower, 2, false, none)]
    {
        let served = Served::of_ensemble(stats);
        let leader = json!({
            "is_leader": is_leader, "leader_id": 1, "leader_ip": "zoo1.example",
            "command": "leader", "error": null
        });
        assert_eq!(served.command("lead"), leader);
        assert_eq!(served.command("voting_view")["current_config"], current);
        assert_eq!(served.command("obsr"), observers);
        let zab_state = json!({
            "myid": id, "is_leader": is_leader, "voting": true, "last_zxid": "0x2a",
            "zabstate": "broadcast", "command": "zabstate", "error": null
        });
        assert_eq!(served.command("zabstate"), zab_state);
    }
    let dump = Served::of_ensemble(follower).command("dump");
    assert_eq!(dump["expiry_time_to_session_ids"], json!({}), "only the leader judges sessions");
}

#[test]
fn a_server_that_looks_for_a_leader_tells_what_helps_to_find_one() {
    let served = Served::of_ensemble(looking);
    let (status, body) = served.get("/ready");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["ready"], &body["server_state"]), (503, &json!(false), &json!("looking")));
    assert!(body["error"].as_str().unwrap().starts_with("no leader is known"), "{body}");
    for command in ["stat", "lead", "voting_view", "mntr", "dump"] {
        assert_eq!(served.command(command)["error"], NOT_SERVING, "{command}");
    }
    let ensemble = served.command("ensemble");
    assert_eq!((&ensemble["role"], &ensemble["leader_id"]), (&json!("looking"), &Value::Null));
    assert_eq!(ensemble["members"][3]["last_error"], "refused");
    assert_eq!(ensemble["error"], Value::Null);
    assert_eq!(served.command("zabstate")["zabstate"], "election");
    let (status, metrics) = served.get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("\nstoa_in_quorum 0\n"), "{metrics}");
}

#[test]
fn a_server_that_only_reads_is_served_by_its_commands_and_is_not_ready() {
    let served = Served::of_ensemble(read_only);
    let (status, body) = served.get("/ready");
    assert_eq!(status, 503);
    assert!(body.contains("only reads are answered"), "{body}");
    assert_eq!(served.command("isro")["read_only"], true);
    assert_eq!(served.command("stat")["read_only"], true);
    assert_eq!(served.command("zabstate")["zabstate"], "election");
    let (_, metrics) = served.get("/metrics");
    assert!(metrics.contains("\nstoa_in_quorum 0\n"), "{metrics}");
    assert!(metrics.contains("\nstoa_role{role=\"read-only\"} 1\n"), "{metrics}");
}

#[test]
fn a_server_that_has_much_to_apply_is_not_ready() {
    fn behind() -> Stats {
        let mut stats = follower();
        stats.ensemble.behind = 4_989;
        stats
    }
    let (status, body) = Served::of_ensemble(behind).get("/ready");
    assert_eq!(status, 503);
    assert!(body.contains("4989 committed entries are not applied here yet"), "{body}");
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
