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

use crate::config::Now;
use crate::ensemble::{PeerOutput, server_id};
use crate::entry::Origin;
use crate::placement::FIRST;
use crate::planted::Bug;
use crate::replica::Lead;
use crate::server::Server;
use crate::word::Word;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use stoa_group::{Change, Status};
use stoa_tree::{Caller, Refusal};
use stoa_wire::{ErrorCode, Reconfig};

/// Where the list of servers is.
pub(crate) const CONFIG_PATH: &str = "/zookeeper/config";

/// A server that has something, and is behind by fewer entries than this, has caught up.
const CAUGHT_UP_ENTRIES: u64 = 1000;

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

/// What the leader knows besides.
#[derive(Debug, Default)]
pub(crate) struct Reachable {
    /// Servers that are connected.
    pub(crate) connected: BTreeSet<u8>,
    /// Members that have come back with another disk, with the term that they led with the one before, as far as
    /// was known then, or 0.
    pub(crate) emptied: BTreeMap<u8, u64>,
    /// A new list is on its way: the zxid of its update.
    proposed: Option<i64>,
    /// At the first partition: whether the others know the list as it is now, and who belongs to the group.
    pub(crate) is_told: bool,
    /// At the others: what they were told of the list.
    list: Option<String>,
}

impl Reachable {
    /// A member has come back with another disk; it may do so several times, and be known to have led only at first.
    fn is_emptied(&mut self, peer: u8, led: u64) {
        let known = self.emptied.entry(peer).or_default();
        *known = led.max(*known);
    }
}

impl Server {
    /// A member has come back with another disk than it had: it has to join anew. Until then it is
    /// only listened to if it leads.
    pub fn peer_emptied(&mut self, peer: u8, now: Now) {
        debug_assert!(self.carrier.is_some(), "the first partition has the log, and knows the disks");
        self.now = now;
        self.reachable.connected.remove(&peer);
        if !self.planted.is(Bug::EmptiedStays) {
            let leads = self.replica.leader == u64::from(peer);
            self.reachable.is_emptied(peer, if leads { self.replica.term } else { 0 });
        }
    }

    /// Another server or this one leads, and what it leads with is committed here: if it is one that has
    /// come back with another disk, it was taken out and has joined anew, and this server has missed that. Unless
    /// it has led this term with the disk that is lost, and that is known here only now.
    pub(crate) fn accept(&mut self, leader: u8) {
        let led_before = self.reachable.emptied.get(&leader) == Some(&self.replica.term);
        if led_before || self.planted.is(Bug::StrangerStays) {
            return;
        }
        if self.reachable.emptied.remove(&leader).is_some() {
            self.reachable.connected.insert(leader);
        }
        if self.replica.has_others() {
            self.ensemble.tell(PeerOutput::Leads(leader));
        }
    }

    /// The members are others. Before the term is settled that is who belonged to it once; the end of it is
    /// told.
    pub(crate) fn members_changed(&mut self) {
        self.reachable.is_told = false;
        if self.ensemble.asked_in_term == self.replica.term {
            self.tell_members();
        }
        self.try_to_stand();
    }

    /// Tells who belongs to the ensemble, as far as this server knows. Who does not, and has come back with
    /// another disk, is welcome: that is for whoever knows the disks to say, since it may come at any moment.
    pub(crate) fn tell_members(&mut self) {
        let members = self.member_ids();
        self.ensemble.tell(PeerOutput::Members(members));
    }

    fn member_ids(&self) -> Vec<u8> {
        let members = self.replica.members();
        let all = [&members.voters, &members.learners, &members.outgoing];
        all.into_iter().flatten().map(|member| server_id(*member)).collect()
    }

    /// Whether a server belongs to the ensemble. One that was taken out may not have heard of that, and
    /// never hears what becomes of its requests.
    #[must_use]
    pub fn is_member(&self, server: u8) -> bool {
        self.planted.is(Bug::OutsiderIsHeard) || self.replica.has_member(u64::from(server))
    }

    /// The list of servers that is in force, if there is one.
    #[must_use]
    pub fn servers(&self) -> Option<&str> {
        if !self.has_sessions() {
            return self.reachable.list.as_deref();
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
        if self.reachable.is_told || !self.has_sessions() || self.stamp.is_empty() {
            return;
        }
        self.reachable.is_told = true;
        let Some(list) = self.servers().map(String::from) else { return };
        for partition in (0..self.placement.partitions()).filter(|partition| *partition != FIRST) {
            self.say(partition, Word::Servers(list.clone()));
        }
    }

    /// At the others: they are told.
    pub(crate) fn servers_told(&mut self, list: String) {
        if self.reachable.list.as_ref() != Some(&list) {
            self.reachable.list = Some(list);
            self.servers_changed();
        }
    }

    /// Whom a server has to reach, whatever the list says: who belongs to the group.
    #[must_use]
    pub fn company(&self) -> Vec<u8> {
        self.member_ids()
    }

    /// At the leader: the next step towards who should belong to the ensemble.
    pub(crate) fn tend_members(&mut self) {
        if self.replica.lead == Lead::Active && !self.is_handing_over() {
            self.change_members();
        }
    }

    fn change_members(&mut self) {
        let (Some(wanted), Some(carrier)) = (self.membership(), &self.carrier) else { return };
        let status = carrier.status();
        if !status.members.outgoing.is_empty() {
            return;
        }
        let changes = self.changes(&wanted, &status);
        if !changes.is_empty() {
            // What cannot be done now is tried again at the next heartbeat.
            self.propose_entry();
            if let Some(carrier) = &mut self.carrier {
                let _ = carrier.group().propose_changes(&changes);
            }
        } else if !wanted.votes(self.config.server_id) {
            // Somebody else takes this server out.
            let now = self.now;
            self.resign(now);
        }
    }

    /// What can be changed now.
    fn changes(&self, wanted: &Membership, status: &Status) -> Vec<Change> {
        let members = &status.members;
        let me = self.config.server_id;
        let mut changes = Vec::new();
        // Some of those who join may not have come yet: as many stay as are a majority of what is wanted.
        let mut spare = members.voters.len().saturating_sub(wanted.voters().count() / 2 + 1);
        let mut voters: BTreeSet<u64> = members.voters.iter().copied().collect();
        for member in members.learners.iter().chain(&members.voters) {
            let id = server_id(*member);
            let is_emptied = self.reachable.emptied.contains_key(&id);
            let is_wanted = wanted.servers.contains_key(&id);
            if id == me || (!is_emptied && is_wanted) {
                continue;
            }
            if is_emptied || members.learners.contains(member) {
                voters.remove(member);
                changes.push(Change::Remove(*member));
            } else if spare > 0 && self.take_vote(*member, &mut voters) {
                spare -= 1;
                changes.push(Change::Remove(*member));
            }
        }
        for (id, spec) in &wanted.servers {
            let member = u64::from(*id);
            if self.reachable.emptied.contains_key(id) {
                continue;
            }
            let caught_up = || {
                let matched = status.matched.iter().find(|(of, _)| *of == member);
                matched.is_some_and(|(_, matched)| *matched > 0 && matched + CAUGHT_UP_ENTRIES >= status.last)
            };
            if members.voters.contains(&member) {
                if spec.is_observer && *id != me && self.take_vote(member, &mut voters) {
                    changes.push(Change::AddLearner(member));
                }
            } else if members.learners.contains(&member) {
                if !spec.is_observer && caught_up() {
                    changes.push(Change::AddVoter(member));
                }
            } else if self.reachable.connected.contains(id) {
                changes.push(Change::AddLearner(member));
            }
        }
        changes
    }

    /// Takes a server out of those that will have a vote, if the others can do without: a majority of them has to be
    /// connected. Returns whether it did. A server may belong to the group of which the leader has never heard, since it missed the list that
    /// named it, and with which it would wait for ever. Who is not connected helps nobody.
    fn take_vote(&self, voter: u64, voters: &mut BTreeSet<u64>) -> bool {
        let is_here = |id: u8| id == self.config.server_id || self.reachable.connected.contains(&id);
        let left = voters.iter().filter(|other| **other != voter);
        let here = left.clone().filter(|other| is_here(server_id(**other))).count();
        let can_spare = !is_here(server_id(voter)) || here > left.count() / 2;
        if can_spare {
            voters.remove(&voter);
        }
        can_spare
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
            self.reachable.proposed = Some(self.partition.proposed_zxid());
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
        if self.reachable.proposed.is_some() || !self.replica.members().outgoing.is_empty() {
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
        let missing = changed.voters().filter(|id| {
            *id != me && current.servers.contains_key(id) && !self.reachable.connected.contains(id)
        });
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
        if self.replica.lead != Lead::Active || self.reachable.proposed.is_some_and(|zxid| zxid <= applied) {
            self.reachable.proposed = None;
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
    fn a_disk_that_led_has_led_however_often_its_server_comes_back_without_it() {
        let mut reachable = Reachable::default();
        reachable.is_emptied(3, 7);
        reachable.is_emptied(3, 0);
        reachable.is_emptied(2, 0);
        assert_eq!(reachable.emptied, [(2, 0), (3, 7)].into());
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
