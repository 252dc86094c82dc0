//! TLS of clients, with real processes: the server, and the commands that are clients.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::eventually;
use tempfile::TempDir;

/// A server with two partitions to which clients come with TLS, and the files that they need: those of `stoa
/// certificate`, and those of another authority in the folder `foreign`.
struct Secured {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Drop for Secured {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes an authority, or uses the one that is there, and a certificate: `--name=localhost` or `--client=NAME`.
fn certify(folder: &Path, whom: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
    succeeded(&command.args(["certificate", whom, "--to"]).arg(folder).output().unwrap());
}

impl Secured {
    fn start(on_port: &str, more: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        for folder in [folder.path(), &folder.path().join("foreign")] {
            certify(folder, "--name=localhost");
            certify(folder, "--client=client");
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
        command.args(["serve", "--words=*", "--port=0", "--partitions=2", "--tls-on-port", on_port]);
        if !more.iter().any(|flag| flag.starts_with("--admin-port=")) {
            command.arg("--admin-port=0");
        }
        command.args(more).arg("--data-dir").arg(folder.path().join("data"));
        for (flag, name) in
            [("certificate", "server.pem"), ("key", "server-key.pem"), ("authority", "authority.pem")]
        {
            command.arg(format!("--tls-{flag}")).arg(folder.path().join(name));
        }
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let port = ready.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { process, port, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap()
    }

    fn server(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// A command with the options for TLS behind its own.
    fn stoa(&self, line: &str) -> Output {
        self.stoa_trusting(line, &self.file("authority.pem"))
    }

    fn stoa_trusting(&self, line: &str, authority: &Path) -> Output {
        self.stoa_as(line, authority, Some("client"))
    }

    fn stoa_as(&self, line: &str, authority: &Path, client: Option<&str>) -> Output {
        let server = self.server();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
        command.args(line.split(' ').map(|part| if part == "SERVER" { &server } else { part }));
        command.arg("--tls-authority").arg(authority);
        if let Some(client) = client {
            command.arg("--tls-certificate").arg(self.file(&format!("{client}.pem")));
            command.env("STOA_CLIENT_TLS_KEY", self.file(&format!("{client}-key.pem")));
        }
        command.output().unwrap()
    }

    /// What the server answers to these bytes in the clear, until it ends the connection.
    fn in_the_clear(&self, bytes: &[u8]) -> Vec<u8> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        socket.set_read_timeout(Some(common::PATIENCE)).unwrap();
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // Who is turned away may find the connection reset.
        let _ = socket.read_to_end(&mut answer);
        answer
    }

    /// What `mntr` says of this.
    fn counted(&self, name: &str) -> u64 {
        let words = String::from_utf8(self.in_the_clear(b"mntr")).unwrap();
        let line = words.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")));
        line.unwrap_or_else(|| panic!("no {name} in {words}")).parse().unwrap()
    }

    /// Has the server look at its files.
    fn hang_up(&self) {
        let sent = Command::new("kill").arg("-HUP").arg(self.process.id().to_string()).status().unwrap();
        assert!(sent.success());
    }
}

fn succeeded(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn words_of_the_shell_go_over_tls() {
    let secured = Secured::start("only", &[]);
    assert_eq!(succeeded(&secured.stoa("create /a hello --server SERVER")), "Created /a\n");
    assert_eq!(succeeded(&secured.stoa("get /a --server SERVER")), "hello\n");
    let status = succeeded(&secured.stoa("status --server SERVER"));
    assert!(status.starts_with(&format!("{}: standalone, zxid 0x", secured.server())), "{status}");

    let told =
        refused(&secured.stoa_trusting("get /a --server SERVER", &secured.file("foreign/authority.pem")));
    assert!(told.contains(&secured.server()) && told.contains("authority"), "{told}");
    let unread = secured.stoa_trusting("get /a --server SERVER", &secured.file("nowhere.pem"));
    assert!(String::from_utf8_lossy(&unread.stderr).contains("nowhere.pem"));
}

/// A certificate says who its owner is, on every partition.
#[test]
fn who_has_a_certificate_is_known_by_its_subject() {
    let secured = Secured::start("only", &["--super-certificate=CN=root"]);
    for name in ["root", "other"] {
        std::fs::create_dir(secured.file(name)).unwrap();
        for file in ["authority.pem", "authority-key.pem"] {
            std::fs::copy(secured.file(file), secured.file(name).join(file)).unwrap();
        }
        certify(&secured.file(name), &format!("--client={name}"));
    }
    let authority = secured.file("authority.pem");
    for top in ["/a", "/b", "/c", "/d"] {
        let line = format!("create {top} secret x509:CN=client:cdrwa --server SERVER");
        succeeded(&secured.stoa(&line));
        let get = format!("get {top} --server SERVER");
        assert_eq!(succeeded(&secured.stoa_as(&get, &authority, Some("client"))), "secret\n");
        let told = refused(&secured.stoa_as(&get, &authority, Some("other/client")));
        assert!(told.contains("permission") || told.contains("NoAuth"), "{told}");
        assert_eq!(succeeded(&secured.stoa_as(&get, &authority, Some("root/client"))), "secret\n");
    }
}

#[test]
fn who_shows_no_certificate_or_a_foreign_one_is_turned_away_and_the_log_says_why() {
    let secured = Secured::start("also", &["--audit", "--audit-format=json"]);
    let authority = secured.file("authority.pem");
    refused(&secured.stoa_as("get / --server SERVER", &authority, None));
    refused(&secured.stoa_as("get / --server SERVER", &authority, Some("foreign/client")));
    let audit = secured.file("data/audit.log");
    for why in ["it has shown no certificate, and one is needed", "authority"] {
        eventually("the log says why", || {
            secured.log().lines().any(|line| line.contains("TLS") && line.contains(why))
        });
        eventually("the audit log has a failed login", || {
            let audit = std::fs::read_to_string(&audit).unwrap();
            let login = |line: &str| line.contains(r#""operation":"login""#) && line.contains(why);
            audit.lines().any(|line| login(line) && line.contains(r#""result":"failure""#))
        });
    }
    assert!(secured.counted("unsuccessful_handshake") >= 2);
    assert!(secured.counted("auth_failed_count") >= 2);
    assert_eq!(secured.counted("outstanding_tls_handshake"), 0);
}

#[test]
fn a_port_for_both_goes_by_the_first_byte_and_one_for_tls_takes_nothing_else() {
    let both = Secured::start("also", &[]);
    assert_eq!(both.in_the_clear(b"ruok"), b"imok");
    succeeded(&both.stoa("create /a hello --server SERVER"));
    // The beginning of a handshake, cut off anywhere, takes nothing from others.
    let hello = [22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    for len in 1..hello.len() {
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, both.port)).unwrap().write_all(&hello[..len]));
    }
    assert_eq!(both.in_the_clear(&[22, 3, 1, 0, 5, 1, 0, 0, 1, 9])[..1], [21], "an alert");
    eventually("nothing is under way", || both.counted("outstanding_tls_handshake") == 0);
    let only = Secured::start("only", &[]);
    assert_eq!(only.in_the_clear(b"ruok")[..1], [21], "an alert");
    assert!(only.log().contains("it does not begin with TLS"), "{}", only.log());
}

/// Half-open handshakes are bounded, and leave in time.
#[test]
fn who_does_not_finish_a_handshake_takes_no_place_for_ever() {
    let secured = Secured::start("also", &["--tls-max-handshakes=3", "--handshake-timeout=2s"]);
    let half_open: Vec<TcpStream> = (0..5)
        .map(|_| {
            let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, secured.port)).unwrap();
            socket.write_all(&[22, 3, 1]).unwrap();
            socket
        })
        .collect();
    eventually("some are turned away", || secured.counted("tls_handshake_exceeded") == 2);
    eventually("the others are given up", || secured.counted("outstanding_tls_handshake") == 0);
    succeeded(&secured.stoa("create /a hello --server SERVER"));
    drop(half_open);
}

#[test]
fn changed_certificates_count_without_a_restart_and_bad_ones_do_not() {
    let secured = Secured::start("also", &[]);
    let (authority, foreign) = (secured.file("authority.pem"), secured.file("foreign/authority.pem"));
    let get = "get /zookeeper --server SERVER";
    std::fs::write(secured.file("server.pem"), "nothing that could be read").unwrap();
    secured.hang_up();
    eventually("a bad file is complained of", || secured.counted("stoa_tls_failed_reloads_total") > 0);
    assert!(secured.log().contains("goes on with the certificates that it had"), "{}", secured.log());
    succeeded(&secured.stoa_trusting(get, &authority));
    for name in ["server.pem", "server-key.pem"] {
        std::fs::copy(secured.file(&format!("foreign/{name}")), secured.file(name)).unwrap();
    }
    secured.hang_up();
    eventually("the new certificate is shown", || {
        secured.stoa_as(get, &foreign, Some("client")).status.success()
    });
    assert!(refused(&secured.stoa_trusting(get, &authority)).contains("authority"));
    assert!(secured.counted("stoa_tls_reloads_total") > 0);
}

#[test]
fn where_partitions_are_is_asked_of_admin_http_with_tls() {
    let admin = common::free_port();
    let port = format!("--admin-port={admin}");
    let secured = Secured::start("only", &[&port, "--admin-tls=only", "--admin-client-certificates=need"]);
    let ask = format!("partitions --server SERVER --admin https://localhost:{admin}");
    assert!(succeeded(&secured.stoa(&ask)).starts_with("partition  role"));
    let untrusted = refused(&secured.stoa_trusting(&ask, &secured.file("foreign/authority.pem")));
    assert!(untrusted.contains("admin HTTP at localhost:") && untrusted.contains("authority"), "{untrusted}");
    let unknown = refused(&secured.stoa_as(&ask, &secured.file("authority.pem"), None));
    assert!(unknown.contains("admin HTTP at localhost:"), "{unknown}");
    let in_the_clear = refused(&secured.stoa(&ask.replace("https://", "http://")));
    assert!(in_the_clear.contains("This port has TLS: ask with https://"), "{in_the_clear}");
    let untold = Command::new(env!("CARGO_BIN_EXE_stoa"))
        .args(["partitions", "--admin", &format!("https://localhost:{admin}")])
        .output()
        .unwrap();
    assert_eq!(untold.status.code(), Some(2), "{untold:?}");
    assert!(String::from_utf8_lossy(&untold.stderr).contains("needs --tls-authority"), "{untold:?}");
}

#[test]
fn the_load_generator_goes_over_tls() {
    let secured = Secured::start("only", &[]);
    let of_reads =
        "--server SERVER --sessions 3 --pipeline 20 --znodes 50 --payload 20000 --operations 2000 --json";
    for more in ["--tops 2 --partitions 2 --local", "--tops 2 --partitions 2 --direct"] {
        let report = succeeded(&secured.stoa(&format!("bench --op mixed {more} {of_reads}")));
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["errors"], serde_json::json!({}), "{report}");
        assert_eq!(report["unanswered"], 0, "{report}");
    }
    succeeded(&secured.stoa("bench smoke --server SERVER --rtt-ms 1 --at-once 20 --one-by-one 5"));
    succeeded(
        &secured
            .stoa("bench recipe --recipe counter --clients 2 --warmup 0.1 --duration 0.3 --server SERVER"),
    );
    let back = succeeded(&secured.stoa("bench return --server SERVER --sessions 50 --after 0.1 --json"));
    let back: serde_json::Value = serde_json::from_str(&back).unwrap();
    assert_eq!((&back["returned"], &back["missing"]), (&50.into(), &0.into()), "{back}");
    let probe = succeeded(&secured.stoa("bench probe --sessions 2 --duration 0.3 --servers SERVER"));
    let last: serde_json::Value = serde_json::from_str(probe.lines().last().unwrap()).unwrap();
    assert!(last["writes"].as_u64().unwrap() > 0, "{probe}");
    assert_eq!(last["connections_lost"], 0, "{probe}");

    let refused = secured.stoa_trusting(
        "bench probe --sessions 1 --duration 1 --servers SERVER",
        &secured.file("foreign/authority.pem"),
    );
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another authority"), "{refused:?}");
}
