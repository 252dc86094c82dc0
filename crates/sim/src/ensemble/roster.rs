//! Lists of servers, as they stand in `/zookeeper/config`, and what reconfig makes of them; naively.

use super::HostId;
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use stoa_wire::put;

/// Where the list is.
pub(crate) const CONFIG: &str = "/zookeeper/config";

/// What a server should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Participant,
    Observer,
}

/// Who should belong to the ensemble.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Roster {
    roles: BTreeMap<HostId, Role>,
}

impl FromIterator<(HostId, Role)> for Roster {
    fn from_iter<I: IntoIterator<Item = (HostId, Role)>>(servers: I) -> Self {
        Self { roles: servers.into_iter().collect() }
    }
}

fn line(id: HostId, role: Role) -> String {
    let role = match role {
        Role::Participant => "participant",
        Role::Observer => "observer",
    };
    format!("server.{id}=10.1.0.{id}:2888:3888:{role};2181")
}

impl Roster {
    /// All of them vote.
    pub(crate) fn of_participants(ids: impl IntoIterator<Item = HostId>) -> Self {
        ids.into_iter().map(|id| (id, Role::Participant)).collect()
    }

    /// Reads what [`CONFIG`] holds: the list, and its version.
    pub(crate) fn read(text: &str) -> Option<(Self, i64)> {
        let (servers, version) = text.rsplit_once("version=")?;
        let roles = servers.lines().map(|line| {
            let (name, spec) = line.split_once('=')?;
            let id = name.strip_prefix("server.")?.parse().ok()?;
            let is_observer = spec.split_once(';')?.0.ends_with(":observer");
            Some((id, if is_observer { Role::Observer } else { Role::Participant }))
        });
        Some((Self { roles: roles.collect::<Option<_>>()? }, i64::from_str_radix(version, 16).ok()?))
    }

    /// The lines.
    pub(crate) fn text(&self) -> String {
        self.roles.iter().map(|(id, role)| line(*id, *role) + "\n").collect()
    }

    pub(crate) fn contains(&self, id: HostId) -> bool {
        self.roles.contains_key(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = HostId> {
        self.roles.keys().copied()
    }

    /// Those with this role.
    pub(crate) fn with(&self, role: Role) -> Vec<HostId> {
        self.roles.iter().filter(|(_, its)| **its == role).map(|(id, _)| *id).collect()
    }

    /// What it should become.
    pub(crate) fn changed(&self, wish: &Wish) -> Self {
        if let Some(all) = &wish.all {
            return all.clone();
        }
        let mut changed = self.clone();
        changed.roles.retain(|id, _| !wish.leaving.contains(id));
        changed.roles.extend(wish.joining.iter().copied());
        changed
    }
}

/// What a reconfig asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    joining: Vec<(HostId, Role)>,
    leaving: Vec<HostId>,
    /// The whole list, instead of the two.
    all: Option<Roster>,
    /// Only if this is the list in force; -1 for any.
    pub(crate) version: i64,
}

impl Wish {
    /// This list and no other.
    pub(crate) fn all(roster: Roster) -> Self {
        Self { joining: Vec::new(), leaving: Vec::new(), all: Some(roster), version: -1 }
    }

    /// Something about these servers; `seen` is the version of a list that the client knows.
    pub(crate) fn any(rng: &mut Rng, servers: &Range<HostId>, seen: i64) -> Self {
        let mut wish = match rng.below(6) {
            0 => Self::all(any_roster(rng, servers.clone())),
            1 | 2 => Self { joining: vec![any_server(rng, servers)], ..Self::nothing() },
            3 => Self { leaving: vec![any_server(rng, servers).0], ..Self::nothing() },
            _ => {
                let leaving = vec![any_server(rng, servers).0];
                Self { joining: vec![any_server(rng, servers)], leaving, ..Self::nothing() }
            }
        };
        if rng.one_in(4) {
            wish.version = seen;
        }
        wish
    }

    fn nothing() -> Self {
        Self { joining: Vec::new(), leaving: Vec::new(), all: None, version: -1 }
    }

    /// The request's body.
    pub(crate) fn encode(&self, body: &mut Vec<u8>) {
        let joining: Vec<String> = self.joining.iter().map(|(id, role)| line(*id, *role)).collect();
        let leaving: Vec<String> = self.leaving.iter().map(HostId::to_string).collect();
        let all = self.all.as_ref().map(Roster::text);
        for text in [Some(joining.join(",")), Some(leaving.join(",")), all] {
            let text = text.filter(|text| !text.is_empty());
            put::opt_buffer(body, text.as_ref().map(String::as_bytes));
        }
        put::i64(body, self.version);
    }
}

fn any_server(rng: &mut Rng, servers: &Range<HostId>) -> (HostId, Role) {
    let role = if rng.one_in(4) { Role::Observer } else { Role::Participant };
    (servers.start + rng.index(servers.len()) as HostId, role)
}

/// One with at least one participant.
pub(crate) fn any_roster(rng: &mut Rng, servers: Range<HostId>) -> Roster {
    let first = servers.start + rng.index(servers.len()) as HostId;
    let mut roster = Roster::of_participants([first]);
    for _ in 0..rng.index(servers.len() + 2) {
        let (id, role) = any_server(rng, &servers);
        roster.roles.entry(id).or_insert(role);
    }
    roster
}
