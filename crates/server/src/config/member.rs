//! A server of an ensemble, as the settings and the `server.N` lines of a `zoo.cfg` write it.

use std::fmt;
use std::net::Ipv6Addr;

use super::kind::Kind;

/// Marks a TTL znode where an owner's server stands: no server may have it as its id where there are TTL znodes.
pub(super) const OF_TTL: u8 = u8::MAX;

/// A name in DNS is not longer.
const HOST_BYTES_MAX: usize = 253;

/// What a server does in its ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRole {
    /// Has a vote: majorities are counted among participants.
    Participant,
    /// Has all data and serves clients, but no vote.
    Observer,
}

impl MemberRole {
    /// The word that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            MemberRole::Participant => "participant",
            MemberRole::Observer => "observer",
        }
    }

    fn parse(text: &str) -> Option<MemberRole> {
        [MemberRole::Participant, MemberRole::Observer]
            .into_iter()
            .find(|role| role.name().eq_ignore_ascii_case(text))
    }
}

/// One server of an ensemble.
///
/// `Display` writes the line that ZooKeeper has for it, `server.1=host:2888:3888:participant;0.0.0.0:2181`.
/// Its clients read no line without an election port, so one that is not set is shown as the port beside
/// the peer port; nobody connects to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number, 0 to 255; no two servers have the same.
    pub id: u8,
    /// Its name or address; an IPv6 address is without brackets.
    pub host: String,
    /// The port that the other servers connect to.
    pub peer_port: u16,
    /// Whether it has a vote.
    pub role: MemberRole,
    /// Where it serves clients, if its line says so: an address if one is named, and a port.
    pub client: Option<(Option<String>, u16)>,
    /// The port of ZooKeeper's elections, which need none here.
    pub election_port: Option<u16>,
}

/// What stands between two `|` of a line.
struct ServerAddress {
    host: String,
    peer_port: u16,
    election_port: Option<u16>,
    role: Option<MemberRole>,
}

impl Member {
    /// A line as in `/zookeeper/config`: `server.1=...`.
    pub fn of_line(line: &str) -> Option<Member> {
        let (id, text) = line.trim().strip_prefix("server.")?.split_once('=')?;
        Member::parse(id.trim(), text.trim())
    }

    /// Reads `HOST:PEERPORT[:ELECTIONPORT][:ROLE][;[CLIENTADDR:]CLIENTPORT]`. Of several addresses with `|`
    /// between them the first counts.
    pub(super) fn parse(id: &str, text: &str) -> Option<Member> {
        let id = ServerId::parse(id)?;
        let (server, client) = match text.split_once(';') {
            Some((server, client)) => (server, Some(parse_client(client.trim())?)),
            None => (text, None),
        };
        let addresses: Vec<ServerAddress> =
            server.split('|').map(|address| parse_address(address.trim())).collect::<Option<_>>()?;
        let mut roles = addresses.iter().filter_map(|address| address.role);
        let role = roles.next().unwrap_or(MemberRole::Participant);
        if roles.any(|other| other != role) {
            return None;
        }
        let ServerAddress { host, peer_port, election_port, .. } = addresses.into_iter().next()?;
        Some(Member { id, host, peer_port, role, client, election_port })
    }

    /// As the setting `servers` has it: without anything that is not set.
    pub(super) fn in_list(&self) -> String {
        let election = self.election_port.map(|port| format!(":{port}")).unwrap_or_default();
        let client = match &self.client {
            Some((Some(host), port)) => format!(";{}:{port}", Host(host)),
            Some((None, port)) => format!(";{port}"),
            None => String::new(),
        };
        let (id, role) = (self.id, self.role.name());
        format!("{id}={}:{}{election}:{role}{client}", Host(&self.host), self.peer_port)
    }
}

fn parse_address(text: &str) -> Option<ServerAddress> {
    let (host, rest) = split_host(text)?;
    let parts: Vec<&str> = rest.split(':').map(str::trim).collect();
    let (peer_port, election_port, role) = match parts[..] {
        [peer] => (peer, None, None),
        [peer, election] if digits(election).is_some() => (peer, Some(election), None),
        [peer, role] => (peer, None, Some(role)),
        [peer, election, role] => (peer, Some(election), Some(role)),
        _ => return None,
    };
    let peer_port = parse_port(peer_port)?;
    let election_port = election_port.map(|port| parse_port(port).ok_or(())).transpose().ok()?;
    if election_port == Some(peer_port) {
        return None;
    }
    let role = role.map(|role| MemberRole::parse(role).ok_or(())).transpose().ok()?;
    Some(ServerAddress { host, peer_port, election_port, role })
}

fn parse_client(text: &str) -> Option<(Option<String>, u16)> {
    if let Some(port) = parse_port(text) {
        return Some((None, port));
    }
    let (host, port) = split_host(text)?;
    Some((Some(host), parse_port(port.trim())?))
}

/// The host, without the brackets of an IPv6 address, and what comes after its colon.
pub(super) fn split_host(text: &str) -> Option<(String, &str)> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once("]:")?;
        host.parse::<Ipv6Addr>().ok()?;
        return Some((host.to_owned(), rest));
    }
    let (host, rest) = text.split_once(':')?;
    let host = host.trim();
    let is_name = (1..=HOST_BYTES_MAX).contains(&host.len())
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    is_name.then(|| (host.to_owned(), rest))
}

/// Nobody can connect to port 0.
pub(super) fn parse_port(text: &str) -> Option<u16> {
    digits(text)?.parse().ok().filter(|port| *port != 0)
}

fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

/// A host, in brackets if it has colons.
pub(super) struct Host<'a>(pub(super) &'a str);
impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(f, "[{}]", self.0) } else { f.write_str(self.0) }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = self.peer_port.checked_add(1).unwrap_or(u16::MAX - 1);
        let election_port = self.election_port.unwrap_or(beside);
        let (id, host, role) = (self.id, Host(&self.host), self.role.name());
        write!(f, "server.{id}={host}:{}:{election_port}:{role}", self.peer_port)?;
        if let Some((host, port)) = &self.client {
            write!(f, ";{}:{port}", Host(host.as_deref().unwrap_or("0.0.0.0")))?;
        }
        Ok(())
    }
}

/// The servers of an ensemble, with commas between them.
pub(super) struct Members;
impl Kind for Members {
    type Value = Vec<Member>;
    const PLACEHOLDER: &'static str = "ID=HOST:PORT,...";
    const EXPECTED: &'static str = "servers such as 1=a.example:2888,2=b.example:2888, each an id from 0 to \
        255 and HOST:PEERPORT[:ELECTIONPORT][:participant|observer][;[CLIENTADDRESS:]CLIENTPORT]";
    fn parse(text: &str) -> Option<Vec<Member>> {
        text.split(',')
            .map(str::trim)
            .filter(|member| !member.is_empty())
            .map(|member| member.split_once('=').and_then(|(id, rest)| Member::parse(id.trim(), rest.trim())))
            .collect()
    }
    fn show(value: &Vec<Member>) -> String {
        value.iter().map(Member::in_list).collect::<Vec<_>>().join(",")
    }
}

/// The id of a server: the top byte of the ids of its sessions, and so of the owners of ephemerals.
pub(super) struct ServerId;
impl Kind for ServerId {
    type Value = u8;
    const PLACEHOLDER: &'static str = "ID";
    const EXPECTED: &'static str = "the id of a server, 0 to 255";
    fn parse(text: &str) -> Option<u8> {
        digits(text)?.parse().ok()
    }
    fn show(value: &u8) -> String {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Member {
        Member::parse("1", text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn every_form_of_a_line_is_read() {
        let forms = [
            ("a:2888", "server.1=a:2888:2889:participant"),
            ("a:65535", "server.1=a:65535:65534:participant"),
            ("a:2888:3888", "server.1=a:2888:3888:participant"),
            ("a:2888:observer", "server.1=a:2888:2889:observer"),
            ("a:2888:3888:OBSERVER", "server.1=a:2888:3888:observer"),
            (" a : 2888 : 3888 : participant ; 2181", "server.1=a:2888:3888:participant;0.0.0.0:2181"),
            ("10.0.0.1:1:2;10.0.0.2:3", "server.1=10.0.0.1:1:2:participant;10.0.0.2:3"),
            ("[2001:db8::1]:1:2:observer;[::]:3", "server.1=[2001:db8::1]:1:2:observer;[::]:3"),
            ("a:1:2|b:3:4", "server.1=a:1:2:participant"),
            ("a:1:2|b:3:4:observer;2181", "server.1=a:1:2:observer;0.0.0.0:2181"),
        ];
        for (text, line) in forms {
            assert_eq!(one(text).to_string(), line);
        }
        assert_eq!(one("[::1]:1").host, "::1");
    }

    #[test]
    fn a_line_reads_back_as_it_is_written() {
        for text in ["a:1:2:observer;[::]:3", "a.b-c_d:1:participant;h:3", "[::1]:1:2:participant;3"] {
            assert_eq!(one(text).in_list(), format!("1={text}"));
            let line = one(text).to_string();
            let (id, address) = line.strip_prefix("server.").unwrap().split_once('=').unwrap();
            assert_eq!(Member::parse(id, address).unwrap().to_string(), line);
        }
    }

    #[test]
    fn lines_that_say_nothing_or_too_much_are_refused() {
        let refused = [
            "",
            ":",
            "a",
            "a:",
            "a:0",
            "a:x",
            "a:+1",
            "a:65536",
            "a:1:",
            "a:1:1",
            "a:1:0",
            "a:1:voter",
            "a:1:observer:2",
            "a:1:2:observer:3",
            "a:1;",
            "a:1;0",
            "a:1;b:",
            "a:1;b:2;3",
            "a:1;b:c:2",
            ":1",
            "a b:1",
            "a/b:1",
            "::1:1:2",
            "[::1:1",
            "[::1]1",
            "[a]:1",
            "a:1|",
            "a:1:observer|b:1:participant",
        ];
        for text in refused {
            assert!(Member::parse("1", text).is_none(), "{text}");
        }
        assert!(Member::parse("1", &format!("{}:1", "a".repeat(254))).is_none());
        for id in ["", "256", "-1", "+1", "a", "18446744073709551617"] {
            assert!(Member::parse(id, "a:1").is_none(), "{id}");
            assert!(ServerId::parse(id).is_none(), "{id}");
        }
    }

    #[test]
    fn a_list_has_commas() {
        let list = "0=a:1:participant,255=b:2:observer;2181";
        assert_eq!(Members::show(&Members::parse(list).unwrap()), list);
        assert_eq!(Members::parse(" ").unwrap(), []);
        assert!(Members::parse("1=a:1,b:2").is_none());
    }
}
