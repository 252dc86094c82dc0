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

use crate::membership::{Membership, NONE_WITH_TTL};
use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_timeline::{Lead, Origin};
use stoa_tree::{CONFIG_PATH, Caller, Refusal};
use stoa_wire::{ErrorCode, Reconfig};

impl Replica {
    /// The members are others. Before the term is settled that is who belonged to it once; the end of it is
    /// told.
    pub(crate) fn members_changed(&mut self) {
        self.servers.list.is_told = false;
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
            return self.servers.list.list.as_deref();
        }
        let data = self.applied.partition.tree().get(CONFIG_PATH)?.data()?;
        core::str::from_utf8(data).ok().filter(|text| !text.is_empty())
    }

    /// The list of servers, if it is another one than the first leader's settings gave. That one every
    /// server has in its own settings, perhaps with other addresses for the same servers. Whose settings name others
    /// is told of it: he would never hear of them.
    #[must_use]
    pub fn changed_servers(&self) -> Option<&str> {
        let is_first = self.members_version() == Some(self.applied.placement.first_zxid());
        let servers = self.servers().filter(|_| !self.list_is_from_before())?;
        let named = |list: &str| Membership::parse(list).ok().map(|list| list.ids().collect::<Vec<_>>());
        let is_own = || named(servers) == named(&self.config.servers);
        (!(is_first && is_own())).then_some(servers)
    }

    pub(crate) fn membership(&self) -> Option<Membership> {
        Membership::parse(self.servers()?).ok()
    }

    // ---- the list on all partitions ----

    /// At the first partition: tells the others the list.
    pub(crate) fn tell_servers(&mut self) {
        let others = self.other_partitions();
        if others.is_empty() || core::mem::replace(&mut self.servers.list.is_told, true) {
            return;
        }
        let Some(list) = self.servers().map(String::from) else { return };
        others.for_each(|partition| self.say(partition, ShardMessage::Servers(list.clone())));
    }

    /// At the others: they are told.
    pub(crate) fn servers_told(&mut self, list: String) {
        if self.servers.list.list.as_ref() != Some(&list) {
            self.servers.list.list = Some(list);
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

    /// A leader says who the servers are, by its settings: the first one before anything else, and one that stands
    /// alone where that is another list than the one there is.
    pub(crate) fn publish_members(&mut self) {
        let named = Membership::parse(&self.config.servers).unwrap_or_default();
        if self.settings_count() && named != self.membership().unwrap_or_default() {
            // It can be refused by nobody.
            let _ = self.propose_members(None, &named, &Caller::SERVER);
        }
    }

    /// Whether the settings say who the servers are, and not the list that there is: nobody has changed that by
    /// reconfig in this history, and nobody else belongs to the ensemble, who might have other settings.
    #[must_use]
    pub fn settings_count(&self) -> bool {
        if self.applied.partition.proposed_zxid() == 0 {
            return true;
        }
        let nobody_else = self.timeline.is_alone() && !self.timeline.has_others();
        let names_servers = !self.config.servers.is_empty();
        nobody_else && (self.list_is_from_before() || (names_servers && self.changed_servers().is_none()))
    }

    /// Whether the list of servers is of the history before this one: of an ensemble that is lost.
    fn list_is_from_before(&self) -> bool {
        let since = self.timeline.history().map_or(0, |history| history.since.cast_signed());
        self.members_version().is_some_and(|version| version <= since)
    }

    fn propose_members(
        &mut self,
        origin: Option<Origin>,
        membership: &Membership,
        caller: &Caller<'_>,
    ) -> Result<(), Refusal> {
        let now = self.now;
        let proposed =
            self.applied.partition.propose_config(origin, |zxid| membership.text(zxid), caller, now);
        if proposed.is_ok() {
            self.servers.list.proposed = Some(self.applied.partition.proposed_zxid());
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
        if self.servers.list.proposed.is_some() || !self.timeline.members().outgoing.is_empty() {
            return Err(ErrorCode::ReconfigInProgress.into());
        }
        // As ZooKeeper: a server that stands alone has no list that could be changed.
        let Some(current) = self.membership() else { return Err(ErrorCode::Unimplemented.into()) };
        if request.current_config != -1 && Some(request.current_config) != self.members_version() {
            return Err(ErrorCode::BadVersion.into());
        }
        // Why is found out by whoever wants to know: `reconfigured`.
        let changed = current.changed(request).map_err(|_| ErrorCode::BadArguments)?;
        let voters = changed.voters().count();
        if changed.servers.contains_key(&NONE_WITH_TTL) && self.applied.partition.tree().extended_types() {
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

    pub(crate) fn members_version(&self) -> Option<i64> {
        let (_, version) = self.servers()?.rsplit_once("version=")?;
        i64::from_str_radix(version.trim(), 16).ok()
    }

    /// A list of servers has been applied, or will not be.
    pub(crate) fn members_settled(&mut self) {
        let applied = self.applied.partition.tree().last_zxid();
        // Before it leads it has proposed none; one that its log refused is void.
        if self.timeline.lead() != Lead::Active
            || self.servers.list.proposed.is_some_and(|zxid| zxid <= applied)
        {
            self.servers.list.proposed = None;
        }
    }
}
