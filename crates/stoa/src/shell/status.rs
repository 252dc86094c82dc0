//! What each of the servers is, by the word that every server answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use stoa_client::tls::Tls;

use super::answer::Answer;
use super::arguments::Arguments;
use super::session::Shell;
use crate::failure::{Failure, Result};
use crate::sites::of_sites;

/// How long a server may take to answer; one that is cut off should not hold up the others' answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer of srvr is shorter, with a line for each site.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// What is shown of an answer that is not understood.
const SHOWN_CHARS_MAX: usize = 100;

/// What a server says of itself.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    mode: String,
    zxid: String,
    connections: String,
    /// Where it stands in the forest, if there is one.
    place: Option<String>,
    /// Below whom it is, if it is a reader, and how many readers are below it.
    reader: Option<String>,
    readers: Option<String>,
    /// Its site, where there are several.
    site: Option<String>,
    /// How these stand, as far as it knows, in the form of admin HTTP.
    sites: Vec<Value>,
}

impl Status {
    /// How much it knows of the sites: the leader of the hub knows most, other leaders how it stands with the hub.
    fn connections_known(&self) -> usize {
        self.sites.iter().filter(|site| site["connected"].is_boolean()).count()
    }
}

pub(super) fn status(shell: &mut Shell, _: &Arguments) -> Result<Answer> {
    let options = shell.options()?;
    let (servers, tls) = (options.servers(), shell.tls()?);
    let tls = tls.as_ref();
    // Together, so that it takes no longer than the slowest.
    let asked: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = servers.iter().map(|server| scope.spawn(move || ask(server, tls))).collect();
        let gone = || Err("the thread that asked it has ended".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
    });
    if asked.iter().all(std::result::Result::is_err) {
        let lines = servers.iter().zip(&asked).map(|(server, status)| line(server, status));
        return Err(Failure::failed(lines.collect::<String>().trim_end()));
    }
    let mut text: String = servers.iter().zip(&asked).map(|(server, status)| line(server, status)).collect();
    // Of equals the first one.
    let told = asked.iter().flatten().rev().max_by_key(|status| status.connections_known());
    if let Some(sites) = told.map(|told| &told.sites).filter(|sites| !sites.is_empty()) {
        text = format!("{text}\n{}", of_sites(sites));
    }
    let all = servers.iter().zip(&asked).map(|(server, status)| as_json(server, status));
    Ok(Answer::new(text, json!({ "servers": all.collect::<Vec<_>>() })))
}

fn as_json(server: &str, status: &std::result::Result<Status, String>) -> Value {
    let Status { mode, zxid, connections, place, reader, readers, site, sites } = match status {
        Ok(status) => status,
        Err(why) => return json!({ "server": server, "error": why }),
    };
    let connections = connections.parse::<u64>().ok();
    let mut told = json!({ "server": server, "mode": mode, "zxid": zxid, "connections": connections });
    for (name, value) in [("place", place), ("reader", reader), ("readers", readers)] {
        if let Some(value) = value {
            told[name] = json!(value);
        }
    }
    if let Some(site) = site {
        (told["site"], told["sites"]) = (json!(site), json!(sites));
    }
    told
}

fn line(server: &str, status: &std::result::Result<Status, String>) -> String {
    match status {
        Ok(Status { mode, zxid, connections, place, reader, readers, site, .. }) => {
            let place = place.as_ref().map(|place| format!(", {place}")).unwrap_or_default();
            let reader = reader.as_ref().map(|reader| format!(", a reader {reader}")).unwrap_or_default();
            let readers = readers.as_ref().map(|readers| format!(", readers {readers}")).unwrap_or_default();
            let site = site.as_ref().map(|site| format!(", site {site}")).unwrap_or_default();
            format!(
                "{server}: {mode}, zxid {zxid}, connections {connections}{place}{reader}{readers}{site}\n"
            )
        }
        Err(why) => format!("{server}: {why}\n"),
    }
}

/// What a server is, or why it serves nobody. Ports in the list of servers are those without TLS; whoever has TLS on
/// them is asked that way.
pub(super) fn mode(server: &str, tls: Option<&Tls>) -> std::result::Result<String, String> {
    let in_the_clear = ask(server, None);
    let status = match (in_the_clear, tls) {
        (Err(_), Some(_)) => ask(server, tls),
        (status, _) => status,
    };
    status.map(|status| status.mode)
}

fn ask(server: &str, tls: Option<&Tls>) -> std::result::Result<Status, String> {
    let deadline = Instant::now() + PATIENCE;
    let addresses = server.to_socket_addrs().map_err(|error| error.to_string())?;
    let mut socket = Until { socket: connect(addresses, deadline)?, deadline };
    let answer = match tls {
        None => exchange(&mut socket),
        Some(tls) => tls.to(server).begin(socket).and_then(|mut stream| {
            stream.handshake()?;
            exchange(&mut stream)
        }),
    };
    let answer = answer.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => late(),
        _ => error.to_string(),
    })?;
    parse(&String::from_utf8_lossy(&answer))
}

/// Asks, and reads the answer to its end.
fn exchange(stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    stream.write_all(b"srvr")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// A socket on which nothing takes longer than until a moment.
struct Until {
    socket: TcpStream,
    deadline: Instant,
}

impl Until {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Until {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into)
    }
}

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn connect(
    addresses: impl Iterator<Item = SocketAddr>,
    deadline: Instant,
) -> std::result::Result<TcpStream, String> {
    let mut why = "the name has no address".to_owned();
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

fn late() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

fn parse(answer: &str) -> std::result::Result<Status, String> {
    let value = |name: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(name))?;
        Some(shown(line))
    };
    let (mode, zxid, connections) = (value("Mode: "), value("Zxid: "), value("Connections: "));
    match (mode, zxid, connections) {
        (Some(mode), Some(zxid), Some(connections)) => {
            let (place, site) = (value("Forest: "), value("Site: "));
            let (reader, readers) = (value("Reader: "), value("Readers: "));
            let own = site.as_deref();
            let sites = answer.lines().filter_map(|line| site_of(line, own)).collect();
            Ok(Status { mode, zxid, connections, place, reader, readers, site, sites })
        }
        // A server that serves nobody says so on the first line, and Stoa why on the second.
        _ if answer.is_empty() => Err("it closed the connection without an answer".to_owned()),
        _ => Err(shown(&answer.lines().take(2).collect::<Vec<_>>().join(": "))),
    }
}

/// What a line says of a site: `Site california: connected true, round_trip_ms 62.5`.
fn site_of(line: &str, own: Option<&str>) -> Option<Value> {
    let (name, said) = line.strip_prefix("Site ")?.split_once(": ")?;
    let pairs = said.split(", ").filter_map(|pair| pair.split_once(' '));
    let value = |text: &str| serde_json::from_str::<Value>(text).ok().filter(|value| !value.is_object());
    let mut site: Map<String, Value> =
        pairs.filter_map(|(name, text)| Some((shown(name), value(text)?))).collect();
    site.insert("site".to_owned(), json!(shown(name)));
    site.insert("is_self".to_owned(), json!(Some(name) == own));
    Some(Value::Object(site))
}

/// What can be shown on a terminal, whoever sent it.
fn shown(line: &str) -> String {
    line.chars().filter(|char| !char.is_control()).take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_answer_is_cut_apart() {
        let answer = "Zookeeper version: 3.9.5\nLatency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 0\n\
                      Connections: 4\nOutstanding: 0\nZxid: 0x2a\nMode: follower\nNode count: 5\n";
        let status = parse(answer).unwrap();
        assert_eq!(line("a:1", &Ok(status)), "a:1: follower, zxid 0x2a, connections 4\n");
        let status = parse(&format!("{answer}Forest: root of tree 2\n")).unwrap();
        assert_eq!(as_json("a:1", &Ok(parse(answer).unwrap()))["place"], Value::Null);
        assert_eq!(line("a:1", &Ok(status)), "a:1: follower, zxid 0x2a, connections 4, root of tree 2\n");
        let below = "Reader: below zoo1 port 2888 (server 1), by way of server 1, 0 behind\nReaders: 2, 1 of them behind\n";
        let status = parse(&format!("{answer}{below}")).unwrap();
        assert_eq!(
            line("a:1", &Ok(status)),
            "a:1: follower, zxid 0x2a, connections 4, a reader below zoo1 port 2888 (server 1), by way of server 1, 0 behind, \
             readers 2, 1 of them behind\n"
        );
        let looking = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(parse(looking), Err(looking.trim().to_owned()));
        let why = parse(&format!("{looking}the server is stopping\n"));
        assert_eq!(why, Err(format!("{}: the server is stopping", looking.trim())));
        assert!(parse("").is_err_and(|why| why.contains("without an answer")));
        assert_eq!(parse(&format!("\x1b[2J{}", "x".repeat(500))).unwrap_err().len(), SHOWN_CHARS_MAX);
    }

    #[test]
    fn how_the_sites_stand_is_read_from_the_answer() {
        let figures = "Connections: 4\nZxid: 0x2a\nMode: leader\nNode count: 5\n";
        assert_eq!(parse(figures).unwrap().site, None);
        let status = parse(&format!(
            "{figures}Site: virginia\nSite virginia: number 1, is_hub true\n\
             Site california: number 2, connected true, round_trip_ms 62.5, unshipped_entries 3, unshipped_ms 31\n\
             Site frankfurt: number 3, connected false, nonsense, more nonsense\n"
        ));
        let status = status.unwrap();
        assert_eq!(status.connections_known(), 2);
        let expected = [
            json!({ "site": "virginia", "number": 1, "is_hub": true, "is_self": true }),
            json!({
                "site": "california", "number": 2, "is_self": false, "connected": true, "round_trip_ms": 62.5,
                "unshipped_entries": 3, "unshipped_ms": 31
            }),
            json!({ "site": "frankfurt", "number": 3, "is_self": false, "connected": false }),
        ];
        assert_eq!(status.sites, expected);
        let text = "a:1: leader, zxid 0x2a, connections 4, site virginia\n";
        assert_eq!(as_json("a:1", &Ok(parse(figures).unwrap()))["sites"], Value::Null);
        assert_eq!(line("a:1", &Ok(status)), text);
    }

    #[test]
    fn a_server_that_says_nothing_is_not_waited_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let began = Instant::now();
        assert_eq!(ask(&listener.local_addr().unwrap().to_string(), None), Err(late()));
        assert!(began.elapsed() < PATIENCE * 3);
    }
}
