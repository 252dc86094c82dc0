//! Servers that are members and readers one after the other, as the list of servers says: as the server's driver does it.

use super::machine::Machine;
use super::world::World;
use super::{HostId, number};
use std::collections::BTreeMap;
use stoa_core::{Company, RoleKeeper, ServerRole};

/// The time between two looks, microseconds.
const LOOK_US: u64 = 50_000;
/// Who is alone for so many election timeouts tries the other role.
const PATIENCE_ELECTIONS: u64 = 5;
/// What a reader's server is called where a number is asked for.
const READER_ID: u8 = u8::MAX;

/// What a server's disk says of its role.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptRole {
    pub(super) keeper: Option<RoleKeeper>,
    /// The last list in which it stood, with those who belonged to the ensemble then.
    pub(super) list: String,
    /// The last line of each server.
    lines: BTreeMap<u8, String>,
}

/// The lines of a list as it stands in `/zookeeper/config`, by the servers' numbers.
fn lines(list: &str) -> BTreeMap<u8, String> {
    let lines = list.lines().filter_map(|line| {
        let id = line.strip_prefix("server.")?.split_once('=')?.0;
        Some((id.parse().ok()?, line.to_owned()))
    });
    lines.collect()
}

impl Machine {
    /// The server's role, if that is what the list says, and the list by which it finds the others.
    fn kept_role(&self) -> Option<ServerRole> {
        self.held.role.keeper.as_ref().map(RoleKeeper::role)
    }
}

impl World {
    fn founds(&self, id: HostId) -> bool {
        self.settings.ids(self.settings.servers).contains(&id)
    }

    /// Whether this is a reader.
    pub(super) fn is_reader(&self, id: HostId) -> bool {
        if !self.settings.switches {
            return usize::from(id - self.settings.manners.first_id) >= self.settings.members();
        }
        let kept = self.machines.get(&id).and_then(Machine::kept_role);
        kept.unwrap_or(if self.founds(id) { ServerRole::Member } else { ServerRole::Reader })
            == ServerRole::Reader
    }

    /// What a server is called in its own settings.
    pub(super) fn number_of(&self, id: HostId) -> u8 {
        let is_reader = self.settings.switches && self.is_reader(id);
        // Of many readers some have no number of their own.
        if is_reader { READER_ID } else { u8::try_from(id).unwrap_or(READER_ID) }
    }

    /// The list by which a server that has been one before is a member.
    pub(super) fn list_of_role(&self, id: HostId) -> Option<&str> {
        let list = &self.machines.get(&id)?.held.role.list;
        (self.settings.switches && !list.is_empty()).then_some(list)
    }

    /// Nobody needs what this server has: it belongs to the ensemble by nobody's account.
    pub(super) fn is_only_reader(&self, id: HostId) -> bool {
        if !self.settings.switches {
            return self.is_reader(id);
        }
        let is_known = self.roster().contains(id)
            || self.running().any(|(_, process)| {
                let standing = process.first().status();
                [&standing.voters, &standing.observers, &standing.outgoing]
                    .iter()
                    .any(|all| all.iter().any(|it| HostId::from(*it) == id))
            });
        self.is_reader(id) && !is_known
    }

    /// Looks whether a server is to be something else, and has it begin anew as that.
    pub(super) fn look_at_role(&mut self, id: HostId) {
        if !self.settings.switches || self.machines[&id].looked_us + LOOK_US > self.now_us {
            return;
        }
        let founds = self.founds(id);
        let company = self.company(id);
        let (heartbeat_ms, elections) =
            (self.settings.config.heartbeat_ms, self.settings.config.election_heartbeats);
        let patience_us = u64::from(heartbeat_ms) * u64::from(elections) * 1000 * PATIENCE_ELECTIONS;
        let now_us = self.now_us;
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.looked_us = now_us;
        let Some(process) = &machine.process else { return };
        let first = if founds { ServerRole::Member } else { ServerRole::Reader };
        let role = &mut machine.held.role;
        let keeper =
            role.keeper.get_or_insert_with(|| RoleKeeper::new(number(id), (first, None), true, patience_us));
        let core = &process.threads[0].core;
        let listed = lines(core.servers().unwrap_or_default());
        role.lines.extend(listed.clone());
        let Some(change) = keeper.look(core, company, now_us) else { return };
        keeper.change(change);
        if listed.contains_key(&number(id)) {
            let company = core.company().into_iter().filter(|other| !listed.contains_key(other));
            let company = company.filter_map(|other| role.lines.get(&other));
            role.list = listed.values().chain(company).map(|line| line.clone() + "\n").collect();
        }
        self.counts.role_changes += 1;
        self.note("role", format_args!("server {id}: {:?}, {:?}", change.role, change.cause));
        // Worse than the clean stop of a server that works: nothing is finished first.
        self.crash(id, "it goes on in another role", false);
    }

    fn company(&self, id: HostId) -> Company {
        let voters = self.process(id).map(|process| process.first().status().voters).unwrap_or_default();
        let others: Vec<HostId> = voters.into_iter().map(HostId::from).filter(|voter| *voter != id).collect();
        let finds_nobody = !others.is_empty() && !others.iter().any(|voter| self.is_open(id, *voter, 0));
        let mut company = Company {
            is_refused: finds_nobody,
            has_address: self.founds(id) || self.list_of_role(id).is_some(),
            ..Company::default()
        };
        let list_of = |id: HostId| {
            let text = self.process(id)?.first().servers()?.to_owned();
            let version = i64::from_str_radix(text.rsplit_once("version=")?.1.trim(), 16).ok()?;
            Some((version, text))
        };
        let own_version = list_of(id).map(|(version, _)| version);
        let own_line = format!("server.{id}=");
        let history = self.standing(id).history();
        for other in self.others(id) {
            let counts = others.is_empty() || others.contains(&other);
            let is_up = self.network.is_up(id, other, 0);
            company.is_connected |= counts && is_up;
            company.is_told_out |= is_up
                && list_of(other).is_some_and(|(version, list)| {
                    Some(version) > own_version && !list.lines().any(|line| line.starts_with(&own_line))
                });
            company.is_refused |= history.is_some()
                && self.standing(other).history() == history
                && !self.is_reader(other)
                && self.network.passes(id, other)
                && self.is_open(id, other, 0)
                && !self.is_open(other, id, 0);
        }
        company
    }
}
