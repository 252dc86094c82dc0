//! `stoa proxy` as its users meet it.
#![allow(clippy::unwrap_used, reason = "the lint knows only test functions, not what they call")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STOA: &str = env!("CARGO_BIN_EXE_stoa");

/// A proxy; killed when dropped.
struct Proxy(Child);

impl Proxy {
    /// Starts it, and says what it says.
    fn start(arguments: &[&str], links: usize) -> (Self, Vec<String>) {
        let mut process =
            Command::new(STOA).arg("proxy").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let said = lines.take(links).map(Result::unwrap).collect();
        (Self(process), said)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// How long a byte takes through the link that a line is about, to a listener and back.
fn round_trip(line: &str, listener: &TcpListener) -> Duration {
    let address = line.split_once(" -> ").unwrap().0;
    let mut client = TcpStream::connect(address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut byte = [0];
    let mut exchange = || {
        let began = Instant::now();
        client.write_all(b"?").unwrap();
        server.read_exact(&mut byte).unwrap();
        server.write_all(b"!").unwrap();
        client.read_exact(&mut byte).unwrap();
        began.elapsed()
    };
    // The first one has the handshake in front of it.
    exchange();
    exchange()
}

#[test]
fn links_come_from_options_and_a_file() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("links");
    fs::write(&file, format!("# to the west\n\n127.0.0.1:0={to},delay=1ms,down.delay=90ms\n")).unwrap();
    let link = format!("127.0.0.1:0={to},loss=1%");
    let (mut proxy, said) = Proxy::start(
        &[
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--delay",
            "20ms",
            "--link",
            &link,
            "--file",
            file.to_str().unwrap(),
        ],
        3,
    );
    assert!(said[0].ends_with(&format!(" -> {to}: delay 20ms")), "{said:?}");
    assert!(said[1].ends_with(": delay 20ms, loss 1%"), "{said:?}");
    assert!(said[2].ends_with(": up: delay 1ms; down: delay 90ms"), "{said:?}");
    for (line, at_least_ms) in [(&said[0], 40), (&said[2], 91)] {
        let took = round_trip(line, &listener);
        assert!(took >= Duration::from_millis(at_least_ms), "{line}: {took:?}");
    }
    let pid = rustix::process::Pid::from_child(&proxy.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(proxy.0.wait().unwrap().success());
}

#[test]
fn mistakes_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("links");
    fs::write(&file, "\n127.0.0.1:0\n").unwrap();
    let file = file.to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("{}=127.0.0.1:1", taken.local_addr().unwrap());
    for (arguments, code, said) in [
        (&[] as &[&str], 2, "there is no link"),
        (&["--listen", "127.0.0.1:0"], 2, "--to"),
        (&["--link", "127.0.0.1:0=127.0.0.1:1,delay=25"], 2, "`25` is no time"),
        (&["--link", "127.0.0.1:0=127.0.0.1:1", "--jitter", "5ms"], 2, "the jitter is larger"),
        (&["--file", file], 2, "links:2: `127.0.0.1:0` does not begin with LISTEN=TO"),
        (&["--file", "/nowhere/links"], 1, "cannot read /nowhere/links"),
        (&["--link", &taken], 1, "cannot listen on"),
    ] {
        let output = Command::new(STOA).arg("proxy").args(arguments).output().unwrap();
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && why.contains(said), "{arguments:?}: {why}");
    }
}
