//! One server for all tests of a file.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each file has a module of its own of this, and not all use all"
)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::{Args, Command, FromArgMatches};
use stoa_server::config::ServeArgs;
use stoa_wire::request::encode;
use stoa_wire::{ConnectRequest, OPEN_ACL, Opcode, RequestHeader, begin_frame, end_frame};

/// The ports of the one server that all tests share; it ends with the process.
pub struct Ports {
    pub clients: u16,
    pub admin: u16,
}

/// A port that nobody listens on, and that is given once. It is below those that the system gives to connections: a
/// port that the system has picked is free again at once, and it may pick the same one for the next who asks.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    loop {
        let port = 12_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 18_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

pub fn server() -> &'static Ports {
    static PORTS: OnceLock<Ports> = OnceLock::new();
    PORTS.get_or_init(|| start(&[]).0)
}

/// Starts a server, which is ready, and whose end can be waited for.
pub fn start(more: &[String]) -> (Ports, JoinHandle<ExitCode>) {
    let folder = tempfile::tempdir().unwrap().keep();
    let (ports, serving) = begin(&folder, more);
    let began = Instant::now();
    while !http(&ports, "GET /ready").starts_with("HTTP/1.1 200") {
        assert!(began.elapsed() < Duration::from_secs(30), "the server is ready in time");
        std::thread::sleep(Duration::from_millis(20));
    }
    (ports, serving)
}

/// The same, and it need not become ready.
pub fn begin(folder: &Path, more: &[String]) -> (Ports, JoinHandle<ExitCode>) {
    let ports = Ports { clients: free_port(), admin: free_port() };
    let command = ServeArgs::augment_args(Command::new("serve").no_binary_name(true));
    let own = [
        "--bind=127.0.0.1".to_owned(),
        "--words=*".to_owned(),
        format!("--port={}", ports.clients),
        format!("--admin-port={}", ports.admin),
        format!("--data-dir={}", folder.display()),
    ];
    let matches = command.get_matches_from(own.iter().chain(more));
    let arguments = ServeArgs::from_arg_matches(&matches).unwrap();
    let serving = std::thread::spawn(move || stoa_server::run(&arguments));
    (ports, serving)
}

pub fn exchange(port: u16, request: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

pub fn http(ports: &Ports, line: &str) -> String {
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    exchange(ports.admin, request.as_bytes()).unwrap_or_default()
}

/// A client with the bytes in its own hands.
pub struct Client(pub TcpStream);

impl Client {
    /// Whatever the server makes of the session that the client brings.
    pub fn connect(ports: &Ports, session_id: i64) -> Self {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, ports.clients)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 40_000,
            session_id,
            password: &[0; 16],
            read_only: Some(false),
        };
        stream.write_all(&framed(|frame| request.encode(frame))).unwrap();
        Self(stream)
    }

    pub fn new(ports: &Ports) -> Self {
        let mut client = Self::connect(ports, 0);
        client.frame().unwrap();
        client
    }

    pub fn send(&mut self, xid: i32, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) {
        self.0.write_all(&request(xid, opcode, body)).unwrap();
    }

    /// Sends without being held up by who does not read.
    pub fn send_beside(&self, bytes: Vec<u8>) {
        let mut writer = self.0.try_clone().unwrap();
        std::thread::spawn(move || drop(writer.write_all(&bytes)));
    }

    pub fn frame(&mut self) -> std::io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.0.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// The xids of all answers until the stream ends, which it must do as it should.
    pub fn answers(&mut self) -> Vec<i32> {
        let mut all = Vec::new();
        self.0.read_to_end(&mut all).unwrap();
        let (mut rest, mut xids) = (&all[..], Vec::new());
        while let Some((length, behind)) = rest.split_first_chunk() {
            let (frame, behind) = behind.split_at(usize::try_from(i32::from_be_bytes(*length)).unwrap());
            xids.push(i32::from_be_bytes(*frame.first_chunk().unwrap()));
            rest = behind;
        }
        assert!(rest.is_empty(), "an answer is cut");
        xids
    }
}

pub fn framed(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = begin_frame(&mut bytes);
    encode(&mut bytes);
    end_frame(&mut bytes, start);
    bytes
}

pub fn request(xid: i32, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    framed(|frame| {
        RequestHeader { xid, opcode: opcode as i32 }.encode(frame);
        body(frame);
    })
}

/// A znode with much in it, and a request for that.
pub fn long_answers(client: &mut Client) -> impl Fn(i32) -> Vec<u8> + use<> {
    const PATH: &str = "/long";
    let data = vec![7; 900_000];
    // Another test may have made it.
    client.send(1, Opcode::Create, |body| encode::create(body, PATH, Some(&data), OPEN_ACL, 0, None));
    client.frame().unwrap();
    |xid| request(xid, Opcode::GetData, |body| encode::path_watch(body, PATH, false))
}

/// So late that whoever is impatient has given up.
pub const LATE: Duration = Duration::from_millis(2_500);
