//! What must be so in the end, wherever everything lives.

use super::board::Board;
use super::witness::programs;
use crate::ensemble::HostId;
use crate::ensemble::World;
use std::collections::BTreeSet;
use stoa_check::{Checked, wrong};
use stoa_core::Placement;
use stoa_tree::Tree;

/// The members' states.
struct Verdict<'a> {
    world: &'a World,
    board: &'a Board,
    members: Vec<HostId>,
    one: HostId,
    partitions: u8,
    placement: &'a Placement,
}

/// All servers must have come to the same, and that must be whole.
pub(super) fn compare(world: &World, board: &Board) -> Checked {
    let members = world.members();
    let Some(one) = members.first().copied() else { return wrong("nobody is a member") };
    let partitions = board.count() as u8;
    let placement = world.partition_of(one, 0).placement();
    let verdict = Verdict { world, board, members, one, partitions, placement };
    verdict.are_alike()?;
    verdict.are_in_order()?;
    verdict.are_listed()?;
    verdict.have_ephemerals_ended()?;
    verdict.is_nothing_lost()?;
    if board.has_programs {
        programs::check(board, |path| verdict.tree_of(path))?;
    }
    Ok(())
}

impl<'a> Verdict<'a> {
    fn tree(&self, id: HostId, partition: u8) -> &'a Tree {
        self.world.partition_of(id, partition).tree()
    }

    fn tree_of(&self, path: &str) -> &'a Tree {
        self.tree(self.one, self.placement.of(path))
    }

    /// Children of the root.
    fn tops(&self) -> BTreeSet<String> {
        let root = self.tree(self.one, 0).get("/");
        root.into_iter().flat_map(|root| root.children().map(|name| format!("/{name}"))).collect()
    }

    fn are_alike(&self) -> Checked {
        for partition in 0..self.partitions {
            let digests: BTreeSet<_> =
                self.members.iter().map(|id| self.tree(*id, partition).digest()).collect();
            if digests.len() > 1 {
                return wrong(format!("the servers differ in partition {partition}"));
            }
            if self
                .members
                .iter()
                .any(|id| self.world.partition_of(*id, partition).placement() != self.placement)
            {
                return wrong("the threads do not agree about what lives where");
            }
        }
        Ok(())
    }

    /// All servers list children alike, in the order of their creation: wherever those live, and wherever they have
    /// been.
    fn are_in_order(&self) -> Checked {
        let mut pending = vec![String::from("/")];
        while let Some(path) = pending.pop() {
            let of = self.placement.of(&path);
            let list = |id: HostId| -> Option<Vec<&str>> {
                Some(self.tree(id, of).get(&path)?.children().collect())
            };
            let Some(names) = list(self.one) else { continue };
            if let Some(id) = self.members.iter().find(|id| list(**id).as_ref() != Some(&names)) {
                return wrong(format!(
                    "servers {} and {id} list the children of {path} in another order: {names:?}, {:?}",
                    self.one,
                    list(*id)
                ));
            }
            let slash = path.trim_end_matches('/');
            let below: Vec<String> = names.iter().map(|name| format!("{slash}/{name}")).collect();
            let czxid = |path: &String| self.tree_of(path).get(path).map(|znode| znode.stat().czxid);
            if !below.iter().filter_map(czxid).is_sorted() {
                return wrong(format!(
                    "the children of {path} are not in the order of their creation: {names:?}"
                ));
            }
            pending.extend(below);
        }
        Ok(())
    }

    /// What the root lists is there, and what was made in the beginning.
    fn are_listed(&self) -> Checked {
        let made = (0..2 * self.board.count()).map(|index| self.board.path(index));
        let made = made.filter(|_| self.board.is_founded.get());
        match self.tops().into_iter().chain(made).find(|path| self.tree_of(path).get(path).is_none()) {
            Some(path) => wrong(format!("{path} was made, or is a child of the root, and is nowhere")),
            None => Ok(()),
        }
    }

    fn have_ephemerals_ended(&self) -> Checked {
        let listed = self.tops();
        let sessions: BTreeSet<_> = self.tree(self.one, 0).sessions().map(|session| session.id).collect();
        for partition in 0..self.partitions {
            let tree = self.tree(self.one, partition);
            for session in tree.sessions() {
                for path in tree.ephemerals_of(session.id) {
                    if !sessions.contains(&session.id) {
                        return wrong(format!("{path} has outlived session {:#x}", session.id));
                    }
                    if path.rfind('/') == Some(0) && !listed.contains(&path) {
                        return wrong(format!("{path} is not known to the root"));
                    }
                }
            }
        }
        Ok(())
    }

    fn is_nothing_lost(&self) -> Checked {
        let version = |index: usize| {
            let path = self.board.path(index);
            self.tree_of(&path).get(&path).map_or(-1, |znode| znode.stat().version)
        };
        let group: BTreeSet<_> = self.board.group().map(version).collect();
        if group.len() != 1 {
            return wrong(format!("what was only written together has the versions {group:?}"));
        }
        for (index, acknowledged) in self.board.newest.borrow().iter() {
            if version(*index) < *acknowledged {
                let path = self.board.path(*index);
                return wrong(format!("version {acknowledged} of {path} was acknowledged and is lost"));
            }
        }
        Ok(())
    }
}
