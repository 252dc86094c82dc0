//! The commands that are clients, over TLS: a server behind a proxy that ends TLS.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

#[path = "../../client/tests/script/secured.rs"]
mod secured;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use secured::{Authority, Signed, Terminator};
use tempfile::TempDir;
use tokio::runtime::Builder;

/// A server with two partitions, TLS in front of it that wants a certificate, and the files that clients need.
struct Secured {
    process: Child,
    front: Terminator,
    folder: TempDir,
}

/// TLS in front of a port, on a thread that ends with the tests.
fn front(port: u16, own: Signed, authority: Authority) -> Terminator {
    let (told, front) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let to = ([127, 0, 0, 1], port).into();
            told.send(Terminator::start(to, &own, Some(&authority)).await).unwrap();
            std::future::pending::<()>().await;
        });
    });
    front.recv().unwrap()
}

impl Drop for Secured {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Secured {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
        command.args(["serve", "--admin-port=0", "--words=*", "--port=0", "--partitions=2", "--data-dir"]);
        command.arg(folder.path().join("data"));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let port: u16 = ready.trim().rsplit(':').next().unwrap().parse().unwrap();

        let authority = Authority::new();
        let own = authority.sign(&["localhost"]);
        let client = authority.sign(&["client"]);
        let write = |name: &str, text: &[u8]| std::fs::write(folder.path().join(name), text).unwrap();
        write("authority.pem", &authority.pem());
        write("foreign.pem", &Authority::new().pem());
        write("client.pem", client.certificate.as_bytes());
        write("client.key", client.key.as_bytes());
        Self { process, front: front(port, own, authority), folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self) -> String {
        format!("localhost:{}", self.front.address.port())
    }

    /// A command with the options for TLS behind its own.
    fn stoa(&self, line: &str) -> Output {
        self.stoa_trusting(line, &self.file("authority.pem"))
    }

    fn stoa_trusting(&self, line: &str, authority: &Path) -> Output {
        let server = self.server();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoa"));
        command.args(line.split(' ').map(|part| if part == "SERVER" { &server } else { part }));
        command.arg("--tls-authority").arg(authority);
        command.arg("--tls-certificate").arg(self.file("client.pem"));
        command.env("STOA_TLS_KEY", self.file("client.key")).output().unwrap()
    }
}

fn succeeded(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn words_of_the_shell_go_over_tls() {
    let secured = Secured::start();
    assert_eq!(succeeded(&secured.stoa("create /a hello --server SERVER")), "Created /a\n");
    assert_eq!(succeeded(&secured.stoa("get /a --server SERVER")), "hello\n");
    let status = succeeded(&secured.stoa("status --server SERVER"));
    assert!(status.starts_with(&format!("{}: standalone, zxid 0x", secured.server())), "{status}");
    assert!(secured.front.shown().iter().all(|(certificate, _)| certificate.is_some()));

    let refused = secured.stoa_trusting("get /a --server SERVER", &secured.file("foreign.pem"));
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    let expected = format!(
        "stoa: cannot open a session: {}: its certificate is signed by another authority of the trusted one's name: \
         trust the authority that has signed it, or the certificate itself\n",
        secured.server()
    );
    assert_eq!(told, expected);
    let unread = secured.stoa_trusting("get /a --server SERVER", &secured.file("nowhere.pem"));
    assert!(String::from_utf8_lossy(&unread.stderr).contains("nowhere.pem"));
}

#[test]
fn the_load_generator_goes_over_tls() {
    let secured = Secured::start();
    let of_reads =
        "--server SERVER --sessions 3 --pipeline 20 --znodes 50 --payload 20000 --operations 2000 --json";
    for more in ["--tops 2 --partitions 2 --stay 10", "--tops 2 --partitions 2 --direct"] {
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
    let probe = succeeded(&secured.stoa("bench probe --sessions 2 --duration 0.3 --servers SERVER"));
    let last: serde_json::Value = serde_json::from_str(probe.lines().last().unwrap()).unwrap();
    assert!(last["writes"].as_u64().unwrap() > 0, "{probe}");
    assert_eq!(last["connections_lost"], 0, "{probe}");

    let refused = secured.stoa_trusting(
        "bench probe --sessions 1 --duration 1 --servers SERVER",
        &secured.file("foreign.pem"),
    );
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another authority"), "{refused:?}");
}
