//! Who should belong to the ensemble, and how it comes to that.
//!
//! `/zookeeper/config` says who should: the list of servers, as in ZooKeeper. It is written by the
//! first leader, from its settings, and changed by reconfig. Who does belong is the group's business,
//! and changes one safe step at a time: the leader compares the two and proposes what is next. A
//! server that should vote first follows without a vote until it has caught up; one that has come back
//! with an empty disk is taken out and joins anew. So a change goes on whoever leads, and a server
//! that does not come holds up nothing but itself.
//!
//! Where there are several partitions, the list is the first one's, with which the log stands that all share. It
//! tells the others.

use crate::placement::FIRST;
use crate::planted::Bug;
use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use stoa_timeline::{Lead, Origin, Wanted};
use stoa_tree::{Caller, Refusal};
use stoa_wire::{ErrorCode, Reconfig};

/// Where the list of servers is.
pub(crate) const CONFIG_PATH: &str = "/zookeeper/config";

/// The largest number of a server: it is the top byte of session ids, and not negative as one.
const SERVER_MAX: u64 = 254;

/// A list of servers, as it stands in `/zookeeper/config`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Membership {
    servers: BTreeMap<u8, Spec>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Spec {
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
        let id = name.trim().rsplit('.').next()?.parse::<u64>().ok()?;
        let id = u8::try_from(id).ok().filter(|id| *id != 0 && u64::from(*id) <= SERVER_MAX)?;
        let spec = Spec::parse(spec.trim())?;
        let is_taken = |(other, taken): (&u8, &Spec)| *other != id && taken.address() == spec.address();
        if self.servers.iter().any(is_taken) {
            return None;
        }
        self.servers.insert(id, spec);
        Some(id)
    }

    /// The list that a reconfig asks for.
    fn changed(&self, request: &Reconfig<'_>) -> Option<Self> {
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

    fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Whether it has this server, and as one that votes.
    pub(crate) fn votes(&self, id: u8) -> bool {
        self.servers.get(&id).is_some_and(|spec| !spec.is_observer)
    }

    fn voters(&self) -> impl Iterator<Item = u8> {
        self.servers.iter().filter(|(_, spec)| !spec.is_observer).map(|(id, _)| *id)
    }

    /// The content of the znode; the version is the update's zxid.
    fn text(&self, version: i64) -> String {
        format!("{self}version={version:x}")
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
    proposed: Option<i64>,
    /// At the first partition: whether the others know the list as it is now.
    pub(crate) is_told: bool,
    /// At the others: what they were told of the list.
    list: Option<String>,
}

impl Replica {
    /// The members are others. Before the term is settled that is who belonged to it once; the end of it is
    /// told.
    pub(crate) fn members_changed(&mut self) {
        self.server_list.is_told = false;
        if self.timeline.is_settled() {
            self.timeline.tell_members();
        }
        self.try_to_quiesce();
    }

    /// Whether a server belongs to the ensemble. One that was taken out may not have heard of that, and
    /// never hears what becomes of its requests.
    #[must_use]
    pub fn is_member(&self, server: u8) -> bool {
        self.timeline.is_member(server)
    }

    /// The list of servers that is in force, if there is one.
    #[must_use]
    pub fn servers(&self) -> Option<&str> {
        if !self.has_sessions() {
            return self.server_list.list.as_deref();
        }
        let data = self.partition.tree.get(CONFIG_PATH)?.data()?;
        core::str::from_utf8(data).ok().filter(|text| !text.is_empty())
    }

    /// The list of servers, if it is another one than the first leader's settings gave. That one every
    /// server has in its own settings, perhaps with other addresses for the same servers.
    #[must_use]
    pub fn changed_servers(&self) -> Option<&str> {
        self.servers().filter(|_| self.members_version() != Some(self.placement.first_zxid()))
    }

    pub(crate) fn membership(&self) -> Option<Membership> {
        Membership::parse(self.servers()?)
    }

    // ---- the list on all partitions ----

    /// At the first partition: tells the others the list.
    pub(crate) fn tell_servers(&mut self) {
        if self.server_list.is_told || !self.has_sessions() || self.stamp.is_empty() {
            return;
        }
        self.server_list.is_told = true;
        let Some(list) = self.servers().map(String::from) else { return };
        for partition in (0..self.placement.partitions()).filter(|partition| *partition != FIRST) {
            self.say(partition, ShardMessage::Servers(list.clone()));
        }
    }

    /// At the others: they are told.
    pub(crate) fn servers_told(&mut self, list: String) {
        if self.server_list.list.as_ref() != Some(&list) {
            self.server_list.list = Some(list);
            self.servers_changed();
        }
    }

    /// Whom a server has to reach, whatever the list says: who belongs to the group.
    #[must_use]
    pub fn company(&self) -> Vec<u8> {
        self.timeline.member_ids()
    }

    /// At the leader: the next step towards who should belong to the ensemble.
    pub(crate) fn tend_members(&mut self) {
        if self.timeline.lead() != Lead::Active || self.timeline.is_handing_over() {
            return;
        }
        let Some(wanted) = self.membership() else { return };
        let Some(changes) = self.timeline.next_changes(&wanted.wanted()) else { return };
        if !changes.is_empty() {
            self.propose_entry();
            self.timeline.propose_changes(&changes);
        } else if !wanted.votes(self.config.server_id) {
            // Somebody else takes this server out.
            let now = self.now;
            self.resign(now);
        }
    }

    // ---- the list, at the first partition ----

    /// The first leader says who the servers are, before anything else.
    pub(crate) fn publish_members(&mut self) {
        let text = &self.config.servers;
        let Some(membership) = Membership::parse(text).filter(|membership| !membership.is_empty()) else {
            return;
        };
        // It is the first update of all.
        if self.partition.proposed_zxid() == 0 {
            // It can be refused by nobody.
            let _ = self.propose_members(None, &membership, &Caller::SERVER);
        }
    }

    fn propose_members(
        &mut self,
        origin: Option<Origin>,
        membership: &Membership,
        caller: &Caller<'_>,
    ) -> Result<(), Refusal> {
        let now = self.now;
        let proposed = self.partition.propose_config(origin, |zxid| membership.text(zxid), caller, now);
        if proposed.is_ok() {
            self.server_list.proposed = Some(self.partition.proposed_zxid());
        }
        proposed
    }

    /// A reconfig, at the leader: becomes a new list of servers.
    pub(crate) fn propose_reconfig(
        &mut self,
        origin: Origin,
        request: &Reconfig<'_>,
        caller: &Caller<'_>,
    ) -> Result<(), Refusal> {
        if !self.config.reconfig_enabled {
            return Err(ErrorCode::ReconfigDisabled.into());
        }
        // The first list of all may be on its way, too.
        if self.server_list.proposed.is_some() || !self.timeline.members().outgoing.is_empty() {
            return Err(ErrorCode::ReconfigInProgress.into());
        }
        // As ZooKeeper: a server that stands alone has no list that could be changed.
        let Some(current) = self.membership() else { return Err(ErrorCode::Unimplemented.into()) };
        if request.current_config != -1 && Some(request.current_config) != self.members_version() {
            return Err(ErrorCode::BadVersion.into());
        }
        let mut changed = current.changed(request).ok_or(ErrorCode::BadArguments)?;
        if self.planted.is(Bug::NobodyLeaves) {
            changed.servers.extend(current.servers.clone());
        }
        let voters = changed.voters().count();
        if voters == 0 {
            return Err(ErrorCode::BadArguments.into());
        }
        // Whoever joins may come later; of those who stay, a majority must not be missed.
        let me = self.config.server_id;
        let missing = changed
            .voters()
            .filter(|id| *id != me && current.servers.contains_key(id) && !self.timeline.is_connected(*id));
        if missing.count() > voters.saturating_sub(1) / 2 {
            return Err(ErrorCode::NewConfigNoQuorum.into());
        }
        self.propose_members(Some(origin), &changed, caller)
    }

    fn members_version(&self) -> Option<i64> {
        let (_, version) = self.servers()?.rsplit_once("version=")?;
        i64::from_str_radix(version.trim(), 16).ok()
    }

    /// A list of servers has been applied, or will not be.
    pub(crate) fn members_settled(&mut self) {
        let applied = self.partition.tree.last_zxid();
        if self.planted.is(Bug::ReconfigNeverEnds) {
            return;
        }
        // Before it leads it has proposed none; one that its log refused is void.
        if self.timeline.lead() != Lead::Active
            || self.server_list.proposed.is_some_and(|zxid| zxid <= applied)
        {
            self.server_list.proposed = None;
        }
    }
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
    fn what_is_no_server_is_refused() {
        for line in [
            "server.0=a:1:2;3",
            "server.255=a:1:2;3",
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
