//! The end of a run: nothing goes wrong any more, everything must come right, and all must agree.

use std::collections::BTreeSet;

use stoa_core::Role;
use stoa_tree::Tree;

use super::client::programs;
use super::server::Server;
use super::world::{Done, World};
use crate::check::Violation;
use crate::ensemble::roster::Role as Rank;

/// How long everything may take to come right, in steps.
const HEALING_STEPS: u64 = 150_000;
/// How often a client may have to come back before all of its last requests are answered.
const ATTEMPTS: u32 = 40;
/// How long it waits in between, in steps.
const PAUSE_STEPS: u64 = 300;
/// A server that has had no part in the ensemble for so long is told by its settings whom there is,
/// microseconds.
const OUT_US: u64 = 4_000_000;

impl World<'_> {
    pub(super) fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Done {
        for _ in 0..HEALING_STEPS {
            if is_so(self) {
                return Ok(());
            }
            self.step()?;
        }
        let standings = self.running().map(|(id, server)| {
            let all = server.shards.iter().map(|shard| shard.status());
            format!("\n  server {id}: {:?}", all.collect::<Vec<_>>())
        });
        let members = self.members();
        let standings = standings.collect::<String>();
        Err(Violation::new(format!("it never comes that {what}; members are {members:?}{standings}")))
    }

    pub(super) fn is_led(&self) -> bool {
        let leads = |server: &Server| {
            let mut roles = server.shards.iter().map(|shard| shard.status().role);
            roles.all(|role| matches!(role, Role::Leader | Role::Standalone))
        };
        self.running().any(|(_, server)| leads(server))
    }

    pub(super) fn heal(&mut self) -> Done {
        self.heal_servers()?;
        self.take_leave()
    }

    /// Servers run, are led, and are those whom their list names.
    pub(super) fn heal_servers(&mut self) -> Done {
        self.slow.clear();
        self.late.clear();
        self.cut.clear();
        for machine in self.machines.values_mut() {
            machine.has_room();
            machine.disk.clear_fault();
        }
        self.ids().into_iter().try_for_each(|id| self.start(id))?;
        self.tend_links()?;
        self.clients.iter_mut().for_each(|client| client.wishes = false);
        self.settle_members()?;
        self.until("one server leads everything again", Self::is_led)
    }

    /// Clients say their last words, and all servers come to the same.
    pub(super) fn take_leave(&mut self) -> Done {
        for at in 0..self.clients.len() {
            self.last_words(at)?;
        }
        // A list that was asked for before may have come to be meanwhile.
        self.settle_members()?;
        self.is_over = true;
        self.until("all servers have applied the same", |world| {
            world.is_settled() && (0..world.partitions).all(|partition| world.positions(partition).len() == 1)
        })
    }

    /// Those belong to the group of each partition whom the list names, in the view of each of them.
    fn settle_members(&mut self) -> Done {
        let mut looked_us = self.now_us;
        for _ in 0..2 * HEALING_STEPS {
            if self.are_members_settled() {
                return Ok(());
            }
            if looked_us + OUT_US / 8 < self.now_us {
                looked_us = self.now_us;
                self.look_after()?;
            }
            self.step()?;
        }
        let roster = self.roster().map(|roster| roster.text());
        self.until(&format!("the members are those of {roster:?}"), |_| false)
    }

    fn are_members_settled(&self) -> bool {
        let Some(roster) = self.roster() else { return self.settings.servers() == 1 };
        let (voters, observers) = (roster.with(Rank::Participant), roster.with(Rank::Observer));
        roster.ids().all(|id| {
            let is_settled = |server: &Server| {
                server.shards.iter().all(|server| {
                    let standing = server.status();
                    server.is_in_quorum() && standing.voters == voters && standing.observers == observers
                })
            };
            self.machines[&id].process.as_ref().is_some_and(is_settled)
        })
    }

    /// A server that was away while others were replaced does not know those who are there now.
    fn look_after(&mut self) -> Done {
        for id in self.ids() {
            let now_us = self.now_us;
            let Some(machine) = self.machines.get_mut(&id) else { continue };
            let is_in = |server: &Server| server.shards.iter().all(|shard| shard.is_in_quorum());
            let since_us = *machine.out_since_us.get_or_insert(now_us);
            if machine.process.as_ref().is_some_and(is_in) {
                machine.out_since_us = None;
            } else if since_us + OUT_US < now_us && !machine.names_all {
                machine.names_all = true;
                self.kill(id, false)?;
                self.start(id)?;
            }
        }
        Ok(())
    }

    /// A client is served, and writes everything once more.
    fn last_words(&mut self, at: usize) -> Done {
        for _ in 0..ATTEMPTS {
            // A reconfig that was under way may only come to be now.
            let members: Vec<u8> = self.roster().map_or(vec![1], |roster| roster.ids().collect());
            if self.clients[at].at.is_some_and(|(id, ..)| !members.contains(&id)) {
                self.clients[at].at.into_iter().for_each(|place| self.hang_up(place));
            }
            if self.clients[at].at.is_none() {
                self.bring(at, members[at % members.len()], at as u8 % self.partitions)?;
            }
            self.until("a client is served again", |world| {
                let client = &world.clients[at];
                client.at.is_none() || (client.is_live && client.is_idle())
            })?;
            if !self.clients[at].is_live {
                // The server may have had no room a moment ago.
                (0..PAUSE_STEPS).try_for_each(|_| self.step())?;
                continue;
            }
            let bytes = self.clients[at].last_words(&self.map);
            let before = self.clients[at].answers;
            self.say(at, &bytes)?;
            self.until("a client's last requests are answered", |world| world.clients[at].is_idle())?;
            if self.clients[at].answers > before {
                return Ok(());
            }
        }
        Err(Violation::new("it never comes that a client is served for good"))
    }

    /// Those who belong to the ensemble.
    fn members(&self) -> Vec<u8> {
        self.roster().map_or_else(|| self.ids(), |roster| roster.ids().collect())
    }

    fn partition_of(&self, id: u8, partition: u8) -> &stoa_core::Replica {
        let process = self.machines[&id].process.as_ref().expect("all servers run in the end");
        &process.shards[usize::from(partition)]
    }

    /// Whether everything that is committed is applied.
    fn is_settled(&self) -> bool {
        let members = self.members();
        let partitions = || 0..self.partitions;
        members.iter().all(|id| self.machines[id].process.is_some())
            && members
                .iter()
                .flat_map(|id| partitions().map(move |partition| self.partition_of(*id, partition).status()))
                .all(|standing| standing.applied == standing.last && standing.applied == standing.committed)
    }

    /// How far the servers have come on a timeline.
    fn positions(&self, partition: u8) -> BTreeSet<u64> {
        self.members().iter().map(|id| self.partition_of(*id, partition).applied()).collect()
    }

    fn tree(&self, id: u8, partition: u8) -> &Tree {
        self.partition_of(id, partition).tree()
    }

    /// The tree of the partition that a path lives on.
    pub(super) fn tree_of(&self, path: &str) -> &Tree {
        let one = self.members()[0];
        self.tree(one, self.partition_of(one, 0).placement().of(path))
    }

    /// All servers list children alike, in the order of their creation: wherever those live, and wherever they have
    /// been.
    fn compare_order(&self, members: &[u8]) -> Done {
        let one = members[0];
        let placement = self.partition_of(one, 0).placement();
        let mut pending = vec![String::from("/")];
        while let Some(path) = pending.pop() {
            let list = |id: u8| -> Option<Vec<&str>> {
                Some(self.tree(id, placement.of(&path)).get(&path)?.children().collect())
            };
            let Some(names) = list(one) else { continue };
            if let Some(id) = members.iter().find(|id| list(**id).as_ref() != Some(&names)) {
                return Err(Violation::new(format!(
                    "servers {one} and {id} list the children of {path} in another order: {names:?}, {:?}",
                    list(*id)
                )));
            }
            let slash = path.trim_end_matches('/');
            let below: Vec<String> = names.iter().map(|name| format!("{slash}/{name}")).collect();
            let czxid =
                |path: &String| self.tree(one, placement.of(path)).get(path).map(|znode| znode.stat().czxid);
            if !below.iter().filter_map(czxid).is_sorted() {
                return Err(Violation::new(format!(
                    "the children of {path} are not in the order of their creation: {names:?}"
                )));
            }
            pending.extend(below);
        }
        Ok(())
    }

    /// All servers must have come to the same, and that must be whole.
    pub(super) fn compare(&self) -> Done {
        let members = self.members();
        let one = members[0];
        for partition in 0..self.partitions {
            let digests: BTreeSet<_> = members.iter().map(|id| self.tree(*id, partition).digest()).collect();
            let trees = members.iter().map(|id| self.tree(*id, partition));
            let recomputed = trees.into_iter().all(|tree| tree.digest() == tree.recomputed_digest());
            if digests.len() > 1 || !recomputed {
                return Err(Violation::new(format!("the servers differ in partition {partition}")));
            }
        }
        self.compare_order(&members)?;
        let placement = self.partition_of(one, 0).placement();
        let threads = members.iter().flat_map(|id| (0..self.partitions).map(|of| self.partition_of(*id, of)));
        if threads.map(stoa_core::Replica::placement).any(|other| other != placement) {
            return Err(Violation::new("the threads do not agree about what lives where"));
        }
        let root =
            self.tree(one, 0).get("/").map(|root| root.children().map(|name| format!("/{name}")).collect());
        let listed: BTreeSet<String> = root.unwrap_or_default();
        for path in &listed {
            if self.tree(one, placement.of(path)).get(path).is_none() {
                return Err(Violation::new(format!("the root has a child {path} that is nowhere")));
            }
        }
        let sessions: BTreeSet<_> = self.tree(one, 0).sessions().map(|session| session.id).collect();
        for partition in 0..self.partitions {
            let tree = self.tree(one, partition);
            for session in tree.sessions() {
                for path in tree.ephemerals_of(session.id) {
                    if !sessions.contains(&session.id) {
                        return Err(Violation::new(format!("{path} has outlived session {:#x}", session.id)));
                    }
                    if path.rfind('/') == Some(0) && !listed.contains(&path) {
                        return Err(Violation::new(format!("{path} is not known to the root")));
                    }
                }
            }
        }
        for path in (0..2 * self.map.tops.len()).map(|index| self.map.path(index)) {
            if self.tree(one, placement.of(&path)).get(&path).is_none() {
                return Err(Violation::new(format!("{path} was made in the beginning and is nowhere")));
            }
        }
        if self.map.has_programs {
            programs::check(&self.clients, &self.map, |path| self.tree(one, placement.of(path)))?;
        }
        let version = |index: usize| {
            let path = self.map.path(index);
            self.tree(one, placement.of(&path)).get(&path).map_or(-1, |znode| znode.stat().version)
        };
        let group: BTreeSet<_> = self.map.group().map(version).collect();
        if group.len() != 1 {
            return Err(Violation::new(format!("what was only written together has the versions {group:?}")));
        }
        for client in &self.clients {
            for (index, acknowledged) in &client.acknowledged {
                if version(*index) < *acknowledged {
                    let path = self.map.path(*index);
                    return Err(Violation::new(format!(
                        "version {acknowledged} of {path} was acknowledged and is lost"
                    )));
                }
            }
        }
        Ok(())
    }
}
