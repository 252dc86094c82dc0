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
fn links_change_while_they_are_used() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let link = format!("127.0.0.1:0={to}");
    let mut process = Command::new(STOA)
        .args(["proxy", "--control", "--link", &link, "--link", &link, "--delay", "1ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    let mut said = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let proxy = Proxy(process);
    let lines = [said.next().unwrap(), said.next().unwrap()];
    let address = lines[0].split_once(" -> ").unwrap().0;
    let mut ask = |line: &str, answers: usize| {
        writeln!(input, "{line}").unwrap();
        said.by_ref().take(answers).collect::<Vec<_>>()
    };
    assert!(ask(&format!("{address},delay=40ms"), 1)[0].ends_with(": delay 40ms"));
    assert!(round_trip(&lines[0], &listener) >= Duration::from_millis(80));
    for (line, problem) in [
        ("*,jitter=2ms", "the jitter is larger"),
        ("127.0.0.1:1,delay=1ms", "no link listens there"),
        (&format!("{address},delay"), "`delay` has no value"),
        ("", "no link listens there"),
    ] {
        // The first link could have that jitter.
        let said = ask(line, if line.starts_with('*') { 2 } else { 1 });
        let said = said.last().unwrap();
        assert!(said.starts_with("error: ") && said.contains(problem), "{line}: {said}");
    }
    let both = ask("*, up.delay=5ms, down.delay=7ms, jitter=0ms", 2);
    assert!(both.iter().all(|line| line.ends_with(": up: delay 5ms; down: delay 7ms")), "{both:?}");
    drop(proxy);
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
