//! Who should belong to the ensemble, and how it comes to that.
//!
//! `/zookeeper/config` says who should: the list of servers, as in ZooKeeper. It is written by the
//! first leader, from its settings, and changed by reconfig. Who does belong is the group's business,
//! and changes one safe step at a time: the leader compares the two and proposes what is next. A
//! server that should vote first follows without a vote until it has caught up; one that has come back
//! with an empty disk is taken out and joins anew. So a change goes on whoever leads, and a server
//! that does not come holds up nothing but itself.
//!
//! Where there are several partitions, each has a group of its own, and the list is the first one's. It
//! tells the others, and whoever leads one of them makes its group follow.

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
    /// At the first partition: which version of the list each other one follows.
    follows: BTreeMap<u8, i64>,
    /// At the others: what they were told of the list, and have told.
    list: Option<String>,
    first_members: Vec<u8>,
    lets_go: bool,
    told_follows: i64,
    /// Something may have to be done about the members when the partition stands still no more.
    is_due: bool,
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

    /// At the first partition: tells the others the list, and who belongs to the group.
    pub(crate) fn tell_servers(&mut self) {
        if self.reachable.is_told || !self.has_sessions() || self.stamp.is_empty() {
            return;
        }
        self.reachable.is_told = true;
        let (Some(list), Some(wanted)) = (self.servers().map(String::from), self.membership()) else {
            return;
        };
        let (members, voters) = (self.member_ids(), self.replica.members().voters);
        let come = wanted.voters().filter(|id| voters.contains(&u64::from(*id))).count();
        let lets_go = come > wanted.voters().count() / 2;
        for partition in (0..self.placement.partitions()).filter(|partition| *partition != FIRST) {
            let (list, members) = (list.clone(), members.clone());
            self.say(partition, Word::Servers { list, members, lets_go });
        }
    }

    /// At the others: they are told.
    pub(crate) fn servers_told(&mut self, list: String, members: Vec<u8>, lets_go: bool) {
        self.reachable.lets_go = lets_go;
        let is_news = self.reachable.list.as_ref() != Some(&list) || self.reachable.first_members != members;
        (self.reachable.first_members, self.reachable.list) = (members, Some(list));
        if is_news {
            self.servers_changed();
        }
    }

    /// Whom a server has to reach, whatever the list says: the members of this partition's group, and those of the
    /// first one's. Nobody belongs to a group who does not belong to that one, and of this one's it may have missed
    /// who they are: who leads it may be somebody of whom it has never heard here.
    #[must_use]
    pub fn company(&self) -> Vec<u8> {
        let mut company = self.member_ids();
        company.extend(&self.reachable.first_members);
        company
    }

    /// At the first partition: another one follows a version of the list, or does not any more.
    pub(crate) fn follows_told(&mut self, partition: u8, version: i64) {
        self.reachable.follows.insert(partition, version);
    }

    /// Whether a member that is to leave may be taken out of this partition's group. Whoever leads a partition
    /// has to belong to all groups, or it waits for ever for parts of which it never hears. So the others take
    /// it out when the first one has those who stay; and that one last of all, so that whoever belongs to any
    /// group hears of the list, and of who leads.
    fn may_take_out(&self, id: u8, version: i64) -> bool {
        if !self.has_sessions() {
            return self.reachable.lets_go && id != self.chosen;
        }
        let others = usize::from(self.placement.partitions()) - 1;
        self.reachable.follows.values().filter(|follows| **follows == version).count() == others
    }

    /// Whether a server that is to join may be added to this partition's group: for the same reason, the first
    /// partition's has it before the others.
    fn may_add(&self, id: u8) -> bool {
        let is_first = self.has_sessions() || self.reachable.first_members.contains(&id);
        is_first && self.reachable.connected.contains(&id)
    }

    /// The next step towards who should belong to the ensemble, at whoever leads this partition: also at a
    /// server that does not lead the first one, which may have to be given a vote here before it can lead.
    pub(crate) fn tend_members(&mut self) {
        self.reachable.is_due = self.crossing.is_standing();
        if self.reachable.is_due {
            return;
        }
        let leads = self.replica.lead == Lead::Active && !self.is_handing_over();
        let follows = leads.then(|| self.change_members()).flatten().unwrap_or(0);
        if !self.has_sessions() && self.reachable.told_follows != follows {
            self.reachable.told_follows = follows;
            self.say(FIRST, Word::Follows(follows));
        }
    }

    /// The partition stands still no more.
    pub(crate) fn tend_if_due(&mut self) {
        if self.reachable.is_due {
            self.tend_members();
        }
    }

    /// Returns the version of the list, if nobody belongs to the group who is to leave.
    fn change_members(&mut self) -> Option<i64> {
        let (wanted, version) = (self.membership()?, self.members_version()?);
        let status = self.replica.status();
        let members = &status.members;
        if !members.outgoing.is_empty() {
            return None;
        }
        let me = self.config.server_id;
        let changes = self.changes(&wanted, version, &status);
        let is_wanted = |member: &u64| {
            let id = server_id(*member);
            id == me || wanted.servers.contains_key(&id)
        };
        let follows = members.voters.iter().chain(&members.learners).all(is_wanted);
        if !changes.is_empty() {
            // What cannot be done now is tried again at the next heartbeat. Others may follow what stands next.
            self.propose_entry();
            if self.partition.promised().is_some() {
                return None;
            }
            let _ = self.replica.group().propose_changes(&changes);
        } else if self.has_sessions() && !wanted.votes(me) {
            // Somebody else takes this server out.
            let now = self.now;
            self.resign(now);
        }
        (follows && !self.replica.group().is_changing()).then_some(version)
    }

    /// What can be changed now.
    fn changes(&self, wanted: &Membership, version: i64, status: &Status) -> Vec<Change> {
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
            if id == me || (!is_emptied && (is_wanted || !self.may_take_out(id, version))) {
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
                let has_to_stay = *id == me || *id == self.chosen;
                if spec.is_observer && !has_to_stay && self.take_vote(member, &mut voters) {
                    changes.push(Change::AddLearner(member));
                }
            } else if members.learners.contains(&member) {
                if !spec.is_observer && caught_up() {
                    changes.push(Change::AddVoter(member));
                }
            } else if self.may_add(*id) {
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
