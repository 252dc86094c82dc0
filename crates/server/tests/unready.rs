//! A server that serves nobody, and strangers who come to it: what the log, words and HTTP say. It is the only test of
//! its process, whose log it reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Ports, begin, exchange, free_port, http};

/// What was logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Logged {
    fn read() -> Self {
        let logged = Self::default();
        let writer = logged.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
        logged
    }

    fn count(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock().unwrap()).lines().filter(|line| line.contains(text)).count()
    }

    fn until_it_says(&self, text: &str) {
        let began = Instant::now();
        while self.count(text) == 0 {
            let log = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
            assert!(began.elapsed() < Duration::from_secs(20), "nothing of {text:?} in {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Says something to a port, which closes the connection.
fn say(port: u16, bytes: &[u8]) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    stream.write_all(bytes).unwrap();
    let closed = stream.read(&mut [0; 512]);
    assert!(closed.as_ref().map_or(true, |bytes| *bytes == 0), "{closed:?}");
    assert!(!closed.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "it stays open");
}

/// `srvr`, admin HTTP and the log give the same reason.
fn all_say(ports: &Ports, logged: &Logged, reason: &str) {
    logged.until_it_says(&format!(" s: {reason}"));
    assert!(logged.count("this server has not been ready for clients for ") > 0);
    let srvr = exchange(ports.clients, b"srvr").unwrap();
    let (first, second) = srvr.split_once('\n').unwrap();
    assert_eq!(first, "This ZooKeeper instance is not currently serving requests");
    assert!(second.starts_with(reason), "{second}");
    let ready = http(ports, "GET /ready");
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains(&format!("\"error\": \"{reason}")),
        "{ready}"
    );
    assert_eq!(exchange(ports.clients, b"stat").unwrap(), format!("{first}\n"), "only one word says more");
}

fn stop(serving: std::thread::JoinHandle<ExitCode>) {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(serving.join().unwrap(), ExitCode::SUCCESS);
}

const CLIENT_HELLO: [u8; 11] = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

#[test]
fn who_serves_nobody_says_why_and_what_strangers_speak_is_told() {
    let logged = Logged::read();
    let folder = tempfile::tempdir().unwrap();
    let peer_ports = [free_port(), free_port(), free_port()];
    let list: Vec<_> =
        (1..).zip(peer_ports).map(|(id, port)| format!("{id}=127.0.0.1:{port};{id}")).collect();
    let servers = format!("--servers={}", list.join(",").replace(";1", ""));
    let (ports, serving) =
        begin(folder.path(), &[servers, "--server-id=1".to_owned(), "--peer-bind=127.0.0.1".to_owned()]);
    all_say(
        &ports,
        &logged,
        &format!(
            "the data folder is empty, and a new ensemble begins when all servers that are to vote in it have heard of \
             each other, as one of them may have the data of an ensemble that there was. Start the servers 2, 3 (without \
             `join`), or take them out of `servers` on all; server 2 (127.0.0.1 port {}): cannot connect to",
            peer_ports[1]
        ),
    );

    say(ports.clients, &CLIENT_HELLO);
    logged.until_it_says("closed: it looks like TLS; clients connect without TLS here");
    say(ports.clients, b"GET / HTTP/1.1\r\n\r\n");
    logged.until_it_says(
        "closed: it looks like HTTP; this port is for ZooKeeper's clients, HTTP is on admin-port",
    );
    for _ in 0..20 {
        say(ports.clients, &CLIENT_HELLO);
    }
    assert!(logged.count("it looks like TLS; clients") < 10, "what anybody can cause is not told for ever");
    say(peer_ports[0], &CLIENT_HELLO);
    logged.until_it_says("refused: it looks like TLS; this port is for the other servers of the ensemble");
    say(peer_ports[0], b"GET / HTTP/1.1\r\n\r\n");
    logged.until_it_says("refused: it looks like HTTP; this port is for the other servers");
    stop(serving);
}
