//! Opening and closing the sessions of a run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stoa_wire::{
    ConnectRequest, ConnectResponse, Offer, Opcode, PASSWORD_LEN, PREAMBLE, RequestHeader, SideHello,
    ask_direct, begin_frame, end_frame, side_answer,
};

use super::stream::{Server, Stream};
use crate::failure::{Context as _, Failure, Result};
use crate::tls::TlsArgs;

/// How many handshakes are under way at a time: what a small listen backlog takes.
const HANDSHAKES_AT_A_TIME: usize = 40;
const PATIENCE: Duration = Duration::from_secs(30);
/// Where everything lives may stand in it.
const HANDSHAKE_BYTES_MAX: usize = 1 << 20;
/// That a server can have.
const PARTITIONS_MAX: u8 = 64;
/// Files that the process needs besides its sockets.
const SPARE_FILES: u64 = 64;

/// Where servers are, and how they are spoken with.
pub(crate) fn resolve_all(servers: &[String], tls: &TlsArgs) -> Result<Vec<Server>> {
    let tls = tls.tls()?;
    let found = |server: &String| {
        Ok(Server { address: resolve(server)?, tls: tls.as_ref().map(|tls| tls.to(server)) })
    };
    servers.iter().map(found).collect()
}

fn resolve(server: &str) -> Result<SocketAddr> {
    server
        .to_socket_addrs()
        .map_err(|error| {
            Failure::usage(format!("cannot resolve the server {server:?}: {error}; expected host:port"))
        })?
        .next()
        .ok_or_else(|| Failure::usage(format!("the server {server:?} has no address")))
}

/// Opens connections without a session, in turn to each of the servers.
pub(crate) fn connect(servers: &[Server], count: usize) -> Result<Vec<Stream>> {
    allow_files(count as u64 + SPARE_FILES)?;
    servers.iter().cycle().take(count).map(connect_one).collect()
}

/// Opens connections, each with a new session, in turn to each of the servers.
pub(crate) fn open_sessions(servers: &[Server], count: usize, timeout: Duration) -> Result<Vec<Stream>> {
    Ok(open_known_sessions(servers, count, timeout)?.into_iter().map(|(stream, _)| stream).collect())
}

/// The same, with what each session is known by.
pub(crate) fn open_known_sessions(
    servers: &[Server],
    count: usize,
    timeout: Duration,
) -> Result<Vec<(Stream, Identity)>> {
    allow_files(count as u64 + SPARE_FILES)?;
    let request = hello(Identity::NEW, timeout, 0);
    let mut in_turn = servers.iter().cycle();
    let mut streams: Vec<(Stream, Identity)> = Vec::with_capacity(count);
    while streams.len() < count {
        let first = streams.len();
        for server in in_turn.by_ref().take(HANDSHAKES_AT_A_TIME.min(count - first)) {
            let mut stream = connect_one(server)?;
            stream.write_all(&request).context(format!("cannot send the handshake to {server}"))?;
            streams.push((stream, Identity::NEW));
        }
        for (stream, identity) in &mut streams[first..] {
            let response = read_response(stream).context("a server did not complete the handshake")?;
            if response.session_id == 0 {
                return Err(Failure::failed("a server refused to open a session"));
            }
            *identity = Identity { session_id: response.session_id, password: response.password };
        }
    }
    Ok(streams)
}

/// The connections of one session.
#[derive(Debug)]
pub(crate) struct Streams {
    /// One, or one for each partition.
    pub(crate) streams: Vec<Stream>,
    /// The number of the one that has the session.
    pub(crate) main: usize,
}

impl From<Stream> for Streams {
    fn from(stream: Stream) -> Self {
        Self { streams: vec![stream], main: 0 }
    }
}

/// Opens sessions with a connection to each partition, in turn on each of the servers.
pub(crate) fn open_direct(servers: &[Server], count: usize, timeout: Duration) -> Result<Vec<Streams>> {
    allow_files(count as u64 * u64::from(PARTITIONS_MAX) + SPARE_FILES)?;
    let mut request = Vec::new();
    let start = begin_frame(&mut request);
    connect_request(&Identity::NEW, timeout, 0).encode(&mut request);
    ask_direct(&mut request);
    end_frame(&mut request, start);
    let mut in_turn = servers.iter().cycle();
    let open = |_| in_turn.next().map_or_else(no_server, |server| open_one_direct(server, &request));
    (0..count).map(open).collect()
}

fn no_server() -> Result<Streams> {
    Err(Failure::usage("no server is named"))
}

fn open_one_direct(server: &Server, request: &[u8]) -> Result<Streams> {
    let failed = || format!("{server} did not complete the handshake");
    let mut main = connect_one(server)?;
    main.write_all(request).context(format!("cannot send the handshake to {server}"))?;
    let frame = read_frame(&mut main).context(failed())?;
    let answer = ConnectResponse::decode(&frame).map_err(std::io::Error::other).context(failed())?;
    let offer = Offer::find(&frame).map_err(std::io::Error::other).context(failed())?;
    let Some(Offer { partitions, own, .. }) = offer else {
        return Err(Failure::failed(format!(
            "{server} offers no connection to each partition: that takes a Stoa with several"
        )));
    };
    let mut main = Some(main);
    let side = |partition| {
        if partition == own
            && let Some(main) = main.take()
        {
            return Ok(main);
        }
        let mut side = connect_one(server)?;
        let mut hello = [&PREAMBLE[..], &[partition]].concat();
        let start = hello.len();
        hello.extend_from_slice(&[0; 4]);
        SideHello { session_id: answer.session_id, password: &answer.password }.encode(&mut hello);
        end_frame(&mut hello, start);
        side.write_all(&hello).context(failed())?;
        let frame = read_frame(&mut side).context(failed())?;
        match side_answer(&frame) {
            Ok(0) => Ok(side),
            answer => {
                Err(Failure::failed(format!("{server} refused a connection to a partition: {answer:?}")))
            }
        }
    };
    Ok(Streams { streams: (0..partitions).map(side).collect::<Result<_>>()?, main: usize::from(own) })
}

/// The partition whose thread has each of these connections, as their servers tell (the word `cons`).
/// Connections are told apart by our ports.
pub(crate) fn homes_of(servers: &[Server], streams: &[Stream]) -> Result<Vec<u8>> {
    let mut told: BTreeMap<SocketAddr, BTreeMap<u16, u8>> = BTreeMap::new();
    let mut home_of = |stream: &Stream| {
        let unknown = "cannot tell where a connection leads";
        let socket = stream.socket();
        let (address, own) = (socket.peer_addr().context(unknown)?, socket.local_addr().context(unknown)?);
        let server = servers.iter().find(|server| server.address == address);
        let server = server.ok_or_else(|| Failure::failed(unknown))?;
        let homes = match told.entry(address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(homes(&ask(server, "cons")?)),
        };
        homes.get(&own.port()).copied().ok_or_else(|| {
            Failure::failed(format!(
                "{server} does not tell which partition's thread has a connection: it needs several \
                 partitions, and the word `cons` has to be allowed"
            ))
        })
    };
    streams.iter().map(&mut home_of).collect()
}

/// Partitions by the client's port, from the lines of `cons`:
/// ` /127.0.0.1:4242[1](queued=0,recved=1,sent=1,partition=3,sid=...)`.
fn homes(lines: &str) -> BTreeMap<u16, u8> {
    let home = |line: &str| {
        let (connection, figures) = line.split_once('(')?;
        let (address, _) = connection.rsplit_once('[')?;
        let partition = figures.split(',').find_map(|figure| figure.strip_prefix("partition="))?;
        Some((address.rsplit(':').next()?.parse().ok()?, partition.trim_end_matches(')').parse().ok()?))
    };
    lines.lines().filter_map(home).collect()
}

/// What a server answers to a four-letter word.
fn ask(server: &Server, word: &str) -> Result<String> {
    let mut stream = connect_one(server)?;
    let mut answer = String::new();
    stream
        .write_all(word.as_bytes())
        .and_then(|()| stream.read_to_string(&mut answer))
        .context(format!("{server} does not answer the word `{word}`"))?;
    Ok(answer)
}

/// What a session is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its number; 0 asks for a new session.
    pub(crate) session_id: i64,
    /// The proof that it is ours.
    pub(crate) password: [u8; PASSWORD_LEN],
}

impl Identity {
    /// No session yet.
    pub(crate) const NEW: Self = Self { session_id: 0, password: [0; PASSWORD_LEN] };
}

/// The first frame of a connection.
pub(crate) fn hello(identity: Identity, timeout: Duration, last_zxid_seen: i64) -> Vec<u8> {
    let mut request = Vec::new();
    let start = begin_frame(&mut request);
    connect_request(&identity, timeout, last_zxid_seen).encode(&mut request);
    end_frame(&mut request, start);
    request
}

fn connect_request(identity: &Identity, timeout: Duration, last_zxid_seen: i64) -> ConnectRequest<'_> {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen,
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
        session_id: identity.session_id,
        password: &identity.password,
        read_only: Some(false),
    }
}

/// Reads the answer to a [`hello`].
pub(crate) fn read_response(stream: &mut Stream) -> std::io::Result<ConnectResponse> {
    read_frame(stream).and_then(|frame| ConnectResponse::decode(&frame).map_err(std::io::Error::other))
}

/// Closes the sessions and waits for the server to close the connections.
pub(crate) fn close_sessions(streams: Vec<Stream>) -> Result<()> {
    let mut request = Vec::new();
    let start = begin_frame(&mut request);
    RequestHeader { xid: i32::MAX, opcode: Opcode::CloseSession as i32 }.encode(&mut request);
    end_frame(&mut request, start);
    let mut streams = streams;
    for stream in &mut streams {
        stream.socket().set_nonblocking(false).context("cannot make a socket blocking")?;
        stream.write_all(&request).context("cannot close a session")?;
    }
    for stream in &mut streams {
        let mut rest = [0; 256];
        // The server may reset the connection instead of closing it in order: it is gone either way.
        while stream.read(&mut rest).is_ok_and(|len| len > 0) {}
    }
    Ok(())
}

fn connect_one(server: &Server) -> Result<Stream> {
    dial(server, PATIENCE).context(format!("cannot connect to {server}"))
}

/// Opens a connection, on which connecting and every read wait for at most `patience`.
pub(crate) fn dial(server: &Server, patience: Duration) -> std::io::Result<Stream> {
    server.dial(patience).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => std::io::Error::new(ErrorKind::TimedOut, "no answer in time"),
        _ => error,
    })
}

fn read_frame(stream: &mut Stream) -> std::io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = usize::try_from(i32::from_be_bytes(len))
        .ok()
        .filter(|&len| len <= HANDSHAKE_BYTES_MAX)
        .ok_or_else(|| std::io::Error::other("the answer is not ZooKeeper's protocol"))?;
    let mut frame = vec![0; len];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

/// Raises the limit of open files as far as needed.
fn allow_files(files: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < files) {
        return Err(Failure::failed(format!(
            "{files} open files are needed, the limit is {}: raise it with `ulimit -Hn`",
            limit.maximum.unwrap_or_default()
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: limit.maximum })
        .context("cannot raise the limit of open files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_found_by_their_ports() {
        let lines = " /127.0.0.1:4242[1](queued=0,recved=1,sent=1,partition=3,sid=0x1,lop=NA)\n \
                     /[0:0:0:0:0:0:0:1]:4243[5](queued=0,recved=1,sent=0,partition=12)\n \
                     /127.0.0.1:4244[1](queued=0,recved=1,sent=1,sid=0x1)\n\n";
        assert_eq!(homes(lines), BTreeMap::from([(4242, 3), (4243, 12)]));
        assert_eq!(homes("cons is not executed because it is not in the whitelist.\n"), BTreeMap::new());
    }
}
