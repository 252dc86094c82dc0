//! The list of servers (`/zookeeper/config`): who should belong to the ensemble. How it comes to that:
//! `replica/membership.rs`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;
use stoa_timeline::Wanted;
use stoa_wire::Reconfig;

/// Its sessions would own what looks like TTL znodes to ZooKeeper's clients, so it may not be one of a list where
/// there are such.
pub(crate) const NONE_WITH_TTL: u8 = u8::MAX;

/// A list of servers, as it stands in `/zookeeper/config`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) servers: BTreeMap<u8, Spec>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    /// `host:port:port[:role][;client]`.
    text: String,
    /// Whether it says where clients connect.
    has_client: bool,
    is_observer: bool,
}

/// What a server's line looks like.
const FORM: &str =
    "a server is written HOST:PEERPORT:ELECTIONPORT[:participant|observer];[CLIENTADDRESS:]CLIENTPORT";

fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u16>().ok().filter(|port| is_plain && *port != 0)
}

fn is_host(text: &str) -> bool {
    if let Some(bracketed) = text.strip_prefix('[') {
        return bracketed.strip_suffix(']').is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=HOST_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// The longest name in DNS.
const HOST_BYTES_MAX: usize = 253;

impl Spec {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (addresses, client) =
            text.split_once(';').map_or((text, None), |(all, client)| (all, Some(client)));
        if let Some(client) = client {
            let (host, number) =
                client.rsplit_once(':').map_or((None, client), |(host, number)| (Some(host), number));
            port(number).ok_or("the port for clients behind the `;` is none from 1 to 65535")?;
            if !host.is_none_or(is_host) {
                return Err("the address for clients behind the `;` is no host name and no IP address");
            }
        }
        let (rest, last) = addresses.rsplit_once(':').ok_or(FORM)?;
        let (addresses, is_observer) = match last {
            "participant" => (rest, false),
            "observer" => (rest, true),
            _ if last.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                return Err("the role is `participant` or `observer`");
            }
            _ => (addresses, false),
        };
        let (rest, election) = addresses.rsplit_once(':').ok_or(FORM)?;
        let (host, peer) = rest.rsplit_once(':').ok_or(FORM)?;
        let (Some(peer), Some(election)) = (port(peer), port(election)) else {
            return Err("the ports for other servers and for elections are each one from 1 to 65535");
        };
        if peer == election {
            return Err("the port for other servers and that for elections are the same");
        }
        if !is_host(host) {
            return Err("the host is no name and no IP address; one of IPv6 is in brackets");
        }
        Ok(Self { text: text.to_string(), has_client: client.is_some(), is_observer })
    }

    /// Where the others connect to: host and port.
    fn address(&self) -> &str {
        let host_end = self.text.find(']').unwrap_or(0);
        let ports = self.text[host_end..].match_indices([':', ';']).map(|(at, _)| host_end + at);
        ports.take(2).last().map_or(&self.text, |end| &self.text[..end])
    }
}

impl Membership {
    /// Reads lines `server.N=...`; what else there is, such as the version, is passed over. Refuses a line that
    /// cannot be read, and two servers with the same address.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut membership = Self::default();
        for line in text.split(['\n', ',']) {
            let line = line.trim();
            if line.starts_with("server.") {
                membership.insert(line)?;
            }
        }
        Ok(membership)
    }

    fn insert(&mut self, line: &str) -> Result<u8, String> {
        let refused = |why: &str| format!("{line}: {why}");
        let (name, spec) =
            line.split_once('=').ok_or_else(|| refused("there is no `=` behind the number"))?;
        let id = name.trim().rsplit('.').next().and_then(|id| id.parse::<u8>().ok());
        let id = id.ok_or_else(|| refused("a server's number is one from 0 to 255"))?;
        let spec = Spec::parse(spec.trim()).map_err(refused)?;
        let is_taken = |(other, taken): &(&u8, &Spec)| **other != id && taken.address() == spec.address();
        if let Some((other, _)) = self.servers.iter().find(is_taken) {
            return Err(refused(&format!("server {other} has this address for other servers")));
        }
        self.servers.insert(id, spec);
        Ok(id)
    }

    /// The list that a reconfig asks for, or why there is none.
    pub(crate) fn changed(&self, request: &Reconfig<'_>) -> Result<Self, String> {
        let mut changed = match request.new_members {
            Some(all) => Self::parse(all)?,
            None => self.clone(),
        };
        let incremental = request.new_members.is_none();
        let parts = |list: Option<&'_ str>| {
            let parts = list.filter(|_| incremental).unwrap_or_default().split(',').map(str::trim);
            parts.filter(|part| !part.is_empty()).map(String::from).collect::<Vec<_>>()
        };
        for leaving in parts(request.leaving) {
            let id = leaving.parse::<u8>().map_err(|_| format!("{leaving}: this is no server's number"))?;
            changed.servers.remove(&id);
        }
        for joining in parts(request.joining) {
            let id = changed.insert(&joining)?;
            // As ZooKeeper: whoever joins says all three ports.
            if !changed.servers.get(&id).is_some_and(|spec| spec.has_client) {
                return Err(format!("{joining}: who joins says behind a `;` where clients connect"));
            }
        }
        if changed.voters().next().is_none() {
            return Err("no participant would be left, so that nobody could lead".into());
        }
        Ok(changed)
    }

    /// Who should vote, and who should not.
    pub(crate) fn wanted(&self) -> Wanted {
        let ids = |observers: bool| {
            self.servers.iter().filter(move |(_, spec)| spec.is_observer == observers).map(|(id, _)| *id)
        };
        Wanted { voters: ids(false).collect(), observers: ids(true).collect() }
    }

    /// The numbers of all servers, smallest first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u8> {
        self.servers.keys().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Whether it has this server, and as one that votes.
    pub(crate) fn votes(&self, id: u8) -> bool {
        self.servers.get(&id).is_some_and(|spec| !spec.is_observer)
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = u8> {
        self.servers.iter().filter(|(_, spec)| !spec.is_observer).map(|(id, _)| *id)
    }

    /// The content of the znode; the version is the update's zxid. A server that stands alone has no list.
    pub(crate) fn text(&self, version: i64) -> String {
        if self.is_empty() { String::new() } else { format!("{self}version={version:x}") }
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, spec) in &self.servers {
            writeln!(f, "server.{id}={}", spec.text)?;
        }
        Ok(())
    }
}

/// The list of servers that a reconfig makes of the one in force, as lines.
///
/// # Errors
/// What is wrong with what was asked for. A server answers just then that the arguments are bad.
pub fn reconfigured(list: &str, request: &Reconfig<'_>) -> Result<String, String> {
    Ok(Membership::parse(list)?.changed(request)?.to_string())
}

/// What is known of the list besides what stands in the tree.
#[derive(Default)]
pub(crate) struct ServerList {
    /// A new list is on its way: the zxid of its update.
    pub(crate) proposed: Option<i64>,
    /// At the first partition: whether the others know the list as it is now.
    pub(crate) is_told: bool,
    /// At the others: what they were told of the list.
    pub(crate) list: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str =
        "server.1=a:1:2:participant;3\nserver.2=[::1]:1:2;0.0.0.0:3\nserver.3=c:1:2:observer;3\nversion=1f";

    fn reconfig<'a>(joining: &'a str, leaving: &'a str) -> Reconfig<'a> {
        Reconfig { joining: Some(joining), leaving: Some(leaving), new_members: None, current_config: -1 }
    }

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let membership = Membership::parse(THREE).unwrap();
        assert_eq!(membership.text(0x1f), THREE);
        assert_eq!(membership.voters().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn every_byte_is_the_id_of_a_server() {
        let membership = Membership::parse("server.0=a:1:2;3\nserver.255=b:1:2:observer;3").unwrap();
        let wanted = membership.wanted();
        assert_eq!((wanted.voters, wanted.observers), ([0].into(), [255].into()));
        assert!(membership.votes(0) && !membership.votes(255));
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for line in [
            "server.256=a:1:2;3",
            "server.-1=a:1:2;3",
            "server.x=a:1:2;3",
            "server.1=a:1;3",
            "server.1=a:1:0;3",
            "server.1=:1:2;3",
            "server.1=a:1:2:king;3",
            "server.1=a:1:2;3\nserver.2=a:1:5;6",
        ] {
            assert!(Membership::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_change_adds_and_removes() {
        let membership = Membership::parse(THREE).unwrap();
        let changed = membership.changed(&reconfig("server.4=d:1:2;3,server.3=c:1:2;3", "1")).unwrap();
        assert_eq!(changed.voters().collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn what_is_wrong_with_a_change_is_said() {
        let why = |joining, leaving| reconfigured(THREE, &reconfig(joining, leaving)).unwrap_err();
        let form = "server.4=d:1;3: a server is written HOST:PEERPORT:ELECTIONPORT[:participant|observer];\
                    [CLIENTADDRESS:]CLIENTPORT";
        assert_eq!(why("server.4=d:1;3", ""), form);
        assert_eq!(why("", "x"), "x: this is no server's number");
        assert_eq!(
            why("server.4=a:1:9;9", ""),
            "server.4=a:1:9;9: server 1 has this address for other servers"
        );
        assert!(why("server.4=d:1:2", "").contains("where clients connect"));
        assert!(why("server.4=d:1:1;2", "").contains("are the same"));
        assert!(why("server.4=d:1:2:king;2", "").contains("`participant` or `observer`"));
        assert!(why("server.4=d/e:1:2;2", "").contains("no name"));
        assert!(why("server.4=d:1:2;e/f:2", "").contains("address for clients"));
        assert!(why("", "1,2").contains("no participant"));
        let all = Reconfig { new_members: Some("server.1=a:1:2:observer"), ..reconfig("", "") };
        assert!(reconfigured(THREE, &all).unwrap_err().contains("no participant"));
    }
}
