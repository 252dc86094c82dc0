//! The audit log of a real server, compared line for line.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stoa_client::blocking::Client;
use stoa_client::{Acl, CreateMode, ErrorCode, Operation, Options, perms};
use stoa_core::Placement;
use tempfile::TempDir;

struct Server {
    process: Child,
    port: u16,
    admin: u16,
    folder: TempDir,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let admin = common::free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
        command.args(["serve", "--words=*", "--port=0", "--audit", &format!("--admin-port={admin}")]);
        command.args(flags).arg("--data-dir").arg(folder.path().join("data"));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let port = ready.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { process, port, admin, folder }
    }

    fn connect(&self, is_direct: bool) -> Client {
        let options = Options::new(&format!("127.0.0.1:{}", self.port)).unwrap();
        Client::connect(options.direct(is_direct)).unwrap()
    }

    fn metric(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(b"mntr").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let value = answer.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
        value.unwrap_or_else(|| panic!("{name} in {answer}")).parse().unwrap()
    }

    /// The status of the answer to a command that changes something.
    fn post(&self, command: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.admin)).unwrap();
        let ask = format!("POST /commands/{command} HTTP/1.0\r\nHost: localhost\r\n{header}\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("data/audit.log")
    }

    /// Stops it, and tells its lines.
    fn stop(mut self) -> Vec<String> {
        let sent = Command::new("kill").arg("-TERM").arg(self.process.id().to_string()).status().unwrap();
        assert!(sent.success() && self.process.wait().unwrap().success());
        lines(&self.file())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

/// Whom the server runs as, who began with the user of this test.
fn user() -> String {
    let named = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(named.stdout).unwrap().trim().to_owned()
}

/// Without the time in front, which must be one.
fn without_time(line: &str) -> &str {
    let (time, rest) = line.split_at(23);
    let is_like = |(found, like): (u8, u8)| found == like || (like == b'0' && found.is_ascii_digit());
    assert!(time.bytes().zip(*b"0000-00-00 00:00:00,000").all(is_like), "{line}");
    &rest[1..]
}

fn acl(perms: i32, scheme: &str, id: &str) -> Acl {
    Acl { perms, scheme: scheme.into(), id: id.into() }
}

fn delete(path: &str) -> Operation {
    Operation::Delete { path: path.to_owned(), version: None }
}

/// Does what there are lines of, in a subtree of its own; returns what they are, and those of the session's end.
fn play(client: &Client, top: &str) -> (Vec<String>, Vec<String>) {
    let session = format!("session=0x{:x}", client.status().session_id.unwrap());
    let mut expected = Vec::new();
    let mut bob = "";
    let mut did = |bob: &str, what: &str, is_good: bool| {
        let (level, result) = if is_good { ("INFO", "success") } else { ("ERROR", "failure") };
        let user = format!("user=127.0.0.1{bob}\tip=127.0.0.1");
        expected.push(format!("{level} audit: {session}\t{user}\toperation={what}\tresult={result}"));
    };
    client.create(top, b"", CreateMode::Persistent).unwrap();
    did(bob, &format!("create\tznode={top}\tznode_type=persistent"), true);
    assert_eq!(client.create(top, b"", CreateMode::Container).unwrap_err(), ErrorCode::NodeExists);
    did(bob, &format!("create\tznode={top}\tznode_type=container"), false);
    let path = client.create(&format!("{top}/s-"), b"", CreateMode::PersistentSequential).unwrap();
    did(bob, &format!("create\tznode={path}\tznode_type=persistent_sequential"), true);
    client.set_data(&path, b"1", None).unwrap();
    did(bob, &format!("setData\tznode={path}"), true);
    assert_eq!(client.set_data(&path, b"1", Some(7)).unwrap_err(), ErrorCode::BadVersion);
    did(bob, &format!("setData\tznode={path}"), false);
    client.get_data(&path).unwrap();
    client.auth("digest", b"bob:secret").unwrap();
    bob = ",bob";
    client.set_acl(&path, &[acl(perms::READ | perms::ADMIN, "world", "anyone")], None).unwrap();
    did(bob, &format!("setAcl\tznode={path}\tacl=world:anyone:ra"), true);
    assert_eq!(client.set_data(&path, b"2", None).unwrap_err(), ErrorCode::NoAuth);
    did(bob, &format!("setData\tznode={path}"), false);
    let ephemeral = format!("{top}/e");
    client
        .multi(vec![
            Operation::Create {
                path: ephemeral.clone(),
                data: Vec::new(),
                acl: vec![acl(perms::ALL, "world", "anyone")],
                mode: CreateMode::Ephemeral,
                ttl_ms: None,
            },
            Operation::Check { path: top.to_owned(), version: None },
            Operation::SetData { path: ephemeral.clone(), data: Vec::new(), version: None },
            delete(&path),
        ])
        .unwrap();
    did(bob, &format!("create\tznode={ephemeral}\tznode_type=ephemeral"), true);
    did(bob, &format!("setData\tznode={ephemeral}"), true);
    did(bob, &format!("delete\tznode={path}"), true);
    client.multi(vec![delete(&ephemeral), delete(&path)]).unwrap_err();
    did(bob, "multiOperation", false);
    assert_eq!(client.delete(&path, None).unwrap_err(), ErrorCode::NoNode);
    did(bob, &format!("delete\tznode={path}"), false);
    let ended = format!(
        "INFO audit: {session}\tuser={}\toperation=ephemeralZNodeDeletionOnSessionCloseOrExpire\t\
         znode={ephemeral}\tresult=success",
        user()
    );
    (expected, vec![ended])
}

#[test]
fn the_log_says_what_was_done_and_what_was_refused_in_lines_of_zookeeper() {
    for (partitions, is_direct) in [(1, false), (2, false), (2, true)] {
        let server = Server::start(&[&format!("--partitions={partitions}")]);
        let placement = Placement::new(partitions);
        let top =
            |of| (0..).map(|number| format!("/top-{number}")).find(|path| placement.of(path) == of).unwrap();
        let mut expected =
            vec![format!("INFO audit: user={}\toperation=serverStart\tresult=success", user())];
        for partition in 0..partitions {
            let client = server.connect(is_direct);
            let (done, ended) = play(&client, &top(partition));
            drop(client);
            expected.extend(done.into_iter().chain(ended));
            // The next one's lines are behind all of these: its thread is another one.
            common::eventually("all of it is written", || {
                server.metric("stoa_audit_events_total") == expected.len() as u64
            });
        }
        assert_eq!(server.metric("stoa_audit_dropped_total"), 0);
        expected.push(format!("INFO audit: user={}\toperation=serverStop\tresult=invoked", user()));
        let file = server.file();
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(file).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let found = server.stop();
        let found: Vec<_> = found.iter().map(|line| without_time(line).to_owned()).collect();
        // Of a direct client the partitions' threads write each their own.
        let sorted = |mut lines: Vec<String>| {
            if is_direct {
                lines.sort();
            }
            lines
        };
        assert_eq!(sorted(found), sorted(expected), "{partitions} partitions, direct: {is_direct}");
    }
}

#[test]
fn files_turn_and_the_oldest_are_gone() {
    let server = Server::start(&["--audit-file-bytes=4KiB", "--audit-files-kept=2"]);
    let client = server.connect(false);
    client.create("/a", b"", CreateMode::Persistent).unwrap();
    for round in 0..200 {
        client.set_data("/a", &[round], None).unwrap();
    }
    drop(client);
    common::eventually("all of it is written", || server.metric("stoa_audit_events_total") == 202);
    let folder = server.folder.path().join("data");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("audit"))
        .collect();
    files.sort();
    assert_eq!(files, ["audit.log", "audit.log.1", "audit.log.2"]);
    for name in files {
        let bytes = std::fs::metadata(folder.join(&name)).unwrap().len();
        assert!(bytes <= 4096 && (name == "audit.log" || bytes > 3900), "{name}: {bytes}");
        assert!(
            lines(&folder.join(name)).iter().all(|line| without_time(line).ends_with("\tresult=success"))
        );
    }
}

#[test]
fn json_also_has_logins_that_fail_and_what_admin_http_is_asked() {
    let server = Server::start(&["--audit-format=json"]);
    assert_eq!(server.post("snapshot", ""), "200");
    assert_eq!(server.post("snapshot", "Authorization: digest\r\n"), "401");
    let client = server.connect(false);
    client.create("/a", b"", CreateMode::Ephemeral).unwrap();
    assert_eq!(client.auth("nonsense", b"x").unwrap_err(), ErrorCode::AuthFailed);
    common::eventually("all of it is written", || server.metric("stoa_audit_events_total") >= 5);
    let found = server.stop();
    let found: Vec<serde_json::Value> =
        found.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown = |line: &serde_json::Value| {
        let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
        ["operation", "command", "znode", "result", "error"].map(text).join(" ")
    };
    let found: Vec<_> = found.iter().map(shown).collect();
    assert_eq!(
        found[..5],
        [
            "serverStart - - success -",
            "adminCommand snapshot - success -",
            "adminCommand snapshot - failure -",
            "create - /a success -",
            "login - - failure AuthFailed",
        ]
    );
    assert!(found.contains(&"serverStop - - invoked -".to_owned()), "{found:?}");
}

#[test]
fn json_also_has_what_moves_to_another_partition() {
    let server = Server::start(&["--audit-format=json", "--partitions=2"]);
    let client = server.connect(false);
    client.create("/a", b"", CreateMode::Persistent).unwrap();
    let to = 1 - Placement::new(2).of("/a");
    let hint = format!("pin /a {to}\n");
    client.create("/zookeeper/partitions", hint.as_bytes(), CreateMode::Persistent).unwrap();
    common::eventually("it has moved", || server.metric("stoa_subtree_moves_total") == 1);
    let found = server.stop();
    let moved = found.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let moved: Vec<_> = moved.filter(|line| line["operation"] == "move").collect();
    let [moved] = &moved[..] else { panic!("{found:?}") };
    let expected = serde_json::json!({
        "time": moved["time"], "user": [user()], "operation": "move", "znode": "/a", "partition": to,
        "result": "success",
    });
    assert_eq!(*moved, expected);
}
