//! The list of servers (`/zookeeper/config`): who should belong to the ensemble. How it comes to that:
//! `replica/membership.rs`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use stoa_timeline::Wanted;
use stoa_wire::Reconfig;

/// Where the list of servers is.
pub(crate) const CONFIG_PATH: &str = "/zookeeper/config";

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

impl Spec {
    fn parse(text: &str) -> Option<Self> {
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
        let (addresses, client) =
            text.split_once(';').map_or((text, None), |(all, client)| (all, Some(client)));
        if let Some(client) = client {
            port(client.rsplit(':').next()?)?;
        }
        let (addresses, is_observer) = match addresses.rsplit_once(':')? {
            (rest, "participant") => (rest, false),
            (rest, "observer") => (rest, true),
            _ => (addresses, false),
        };
        let (rest, election) = addresses.rsplit_once(':')?;
        let (host, peer) = rest.rsplit_once(':')?;
        port(election)?;
        port(peer)?;
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | '=' | ';' | '|');
        if host.is_empty() || !host.chars().all(is_plain) {
            return None;
        }
        Some(Self { text: text.to_string(), has_client: client.is_some(), is_observer })
    }

    /// Where the others connect to: host and port.
    fn address(&self) -> &str {
        let host_end = self.text.find(']').unwrap_or(0);
        let ports = self.text[host_end..].match_indices([':', ';']).map(|(at, _)| host_end + at);
        ports.take(2).last().map_or(&self.text, |end| &self.text[..end])
    }
}

impl Membership {
    /// Reads lines `server.N=...`; what else there is, such as the version, is passed over. `None`
    /// when a server's line cannot be read, or two have the same number or address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut membership = Self::default();
        for line in text.split(['\n', ',']) {
            let line = line.trim();
            if line.starts_with("server.") {
                membership.insert(line)?;
            }
        }
        Some(membership)
    }

    fn insert(&mut self, line: &str) -> Option<u8> {
        let (name, spec) = line.split_once('=')?;
        let id = name.trim().rsplit('.').next()?.parse::<u8>().ok()?;
        let spec = Spec::parse(spec.trim())?;
        let is_taken = |(other, taken): (&u8, &Spec)| *other != id && taken.address() == spec.address();
        if self.servers.iter().any(is_taken) {
            return None;
        }
        self.servers.insert(id, spec);
        Some(id)
    }

    /// The list that a reconfig asks for.
    pub(crate) fn changed(&self, request: &Reconfig<'_>) -> Option<Self> {
        if let Some(all) = request.new_members {
            return Self::parse(all);
        }
        let mut changed = self.clone();
        for leaving in request.leaving.unwrap_or_default().split(',').filter(|id| !id.trim().is_empty()) {
            changed.servers.remove(&leaving.trim().parse::<u8>().ok()?);
        }
        for joining in request.joining.unwrap_or_default().split(',').filter(|line| !line.trim().is_empty()) {
            let id = changed.insert(joining.trim())?;
            // As ZooKeeper: whoever joins says all three ports.
            changed.servers.get(&id).filter(|spec| spec.has_client)?;
        }
        Some(changed)
    }

    /// Who should vote, and who should not.
    pub(crate) fn wanted(&self) -> Wanted {
        let ids = |observers: bool| {
            self.servers.iter().filter(move |(_, spec)| spec.is_observer == observers).map(|(id, _)| *id)
        };
        Wanted { voters: ids(false).collect(), observers: ids(true).collect() }
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
            assert_eq!(Membership::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_change_adds_and_removes() {
        let membership = Membership::parse(THREE).unwrap();
        let changed = membership.changed(&reconfig("server.4=d:1:2;3,server.3=c:1:2;3", "1")).unwrap();
        assert_eq!(changed.voters().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(membership.changed(&reconfig("server.4=d:1;3", "")), None);
        assert_eq!(membership.changed(&reconfig("", "x")), None);
        assert_eq!(membership.changed(&reconfig("server.4=a:1:9;9", "")), None, "the address of server 1");
    }
}
