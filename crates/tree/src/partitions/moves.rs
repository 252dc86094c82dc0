//! A subtree moves from one partition to another: `Give` on the one side, `Take` on the other.
//!
//! What moves is the znode at a path with all below it that lives here because it does: not what is behind
//! a name that is away. What is behind one may well live here, as a subtree that came back, and stays.
//! The quotas on what moves go along: they live where the path does that they are for. What a quota counts that
//! would stay does not go: no quota counts over several partitions.
//!
//! ```text
//! first partition   second partition             first partition   second partition
//! /                 /~                           /                 /~
//! +- a              +- a~             gives /a   +- a'             +- a
//!    +- b'             +- b                         +- b~             +- b
//!       +- c              +- c'                        +- c              +- c'
//! ```
//!
//! What is left, and what is found on the other side, becomes what it has to be by the rules of
//! [`crate::partitions::cut`]; the Stats are the same before and after, and the digests of both trees together
//! change by the terms of names that are away (and of remote sessions) only.

use crate::Caller;
use crate::acl;
use crate::digest::{self, Place};
use crate::encoding::Reason;
use crate::node::{Ext, Node, ZnodeKind};
use crate::part::Part;
use crate::partitions::content::{ContentReader, MovedZnode, NODE_BYTES_MIN, NodeRecord, Writer};
use crate::partitions::ops::PartitionOp;
use crate::partitions::placed::is_movable;
use crate::partitions::step::{PartResult, Prepared};
use crate::prepare::check_path;
use crate::quota::{self, quotas_of};
use crate::sites::MovedOfSites;
use crate::slab::NONE;
use crate::tree::Tree;
use crate::update::{Op, Update};
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::{ErrorCode, path};

/// A znode that is coming, some of whose children are still to come.
struct Parent {
    id: u32,
    place: Place,
    children: usize,
    left: usize,
}

/// What an update moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moving<'a> {
    /// The subtree at this path leaves.
    Given(&'a str),
    /// It comes.
    Taken(&'a str),
}

impl<'a> Update<'a> {
    /// What moves with it.
    #[must_use]
    pub fn moving(&self) -> Option<Moving<'a>> {
        let mut moving = None;
        let seen = self.for_each_op(|op| {
            match op {
                Op::Partition(PartitionOp::Give { path, .. }) => moving = Some(Moving::Given(path)),
                Op::Partition(PartitionOp::Take { path, .. }) => moving = Some(Moving::Taken(path)),
                _ => {}
            }
            Ok(())
        });
        moving.filter(|_| seen.is_ok())
    }
}

const NOT_AT_CUT: Reason = "it takes a subtree to a cut that is none";
const EXISTS: Reason = "it takes a znode that exists";

fn check_move(path: &str, caller: &Caller<'_>) -> Result<(), ErrorCode> {
    if caller.session != 0 {
        return Err(ErrorCode::NoAuth);
    }
    check_path(path)?;
    if is_movable(path) { Ok(()) } else { Err(ErrorCode::BadArguments) }
}

/// What comes with the subtree at a path, in the order of the content.
fn tops(path: &str, has_quotas: bool) -> Vec<String> {
    let quotas = has_quotas.then(|| quotas_of(path));
    [path.into()].into_iter().chain(quotas).collect()
}

impl Tree {
    pub(super) fn part_give(
        &mut self,
        part: &mut Part,
        path: &str,
        limit_bytes: usize,
        caller: &Caller<'_>,
    ) -> Prepared {
        check_move(path, caller)?;
        if self.has_proposed() {
            return Err(ErrorCode::OperationTimeout);
        }
        if self.lookup(path).is_none() {
            return Err(ErrorCode::NoNode);
        }
        let has_quotas = self.lookup(&quotas_of(path)).is_some();
        let tops = tops(path, has_quotas);
        if tops.iter().any(|top| self.quota_staying(top, path).is_some()) {
            return Err(ErrorCode::Unimplemented);
        }
        let mut writer = Writer::new(has_quotas);
        for top in tops {
            self.write_moving(&mut writer, &top, limit_bytes)?;
        }
        if let Some(moved) = self.moved_of_sites(path, writer.sessions()) {
            writer.of_sites(&moved);
        }
        let (content, sessions, digest) = writer.end();
        PartitionOp::Give { path, digest }.encode(&mut part.ops);
        self.overlay.partitions.begin_move(part.stamp().zxid);
        let marks = if self.own_site().is_some() { self.marks_above(path) } else { Vec::new() };
        Ok(PartResult::Given { content, sessions, marks })
    }

    fn write_moving(&self, writer: &mut Writer, path: &str, limit_bytes: usize) -> Result<(), ErrorCode> {
        let top = self.lookup(path).ok_or(ErrorCode::NoNode)?;
        let too_large = Err(ErrorCode::MarshallingError);
        for (id, place) in self.moving(top, Place::of(path)) {
            let node = &self.nodes[id];
            let ext = self.ext_of(node);
            if node.is_absent() {
                writer.away(node.name_bytes(), ext.num_children > 0);
            } else {
                // Before its children are looked at, of which there may be millions.
                if (ext.num_children as usize).saturating_mul(NODE_BYTES_MIN) > limit_bytes {
                    return too_large;
                }
                writer.znode(node, &ext, &self.acls, self.znode_terms(id, place.path_digest));
            }
            if writer.len() > limit_bytes {
                return too_large;
            }
        }
        Ok(())
    }

    pub(super) fn part_take(
        &mut self,
        part: &mut Part,
        path: &str,
        content: &[u8],
        caller: &Caller<'_>,
    ) -> Prepared {
        check_move(path, caller)?;
        if self.has_proposed() {
            return Err(ErrorCode::OperationTimeout);
        }
        let unreadable = |_| ErrorCode::DataInconsistency;
        let (flags, mut reader) = ContentReader::new(content).map_err(unreadable)?;
        let tops = tops(path, flags.has_quotas);
        for path in &tops {
            match self.find(path) {
                Some(id) if !self.nodes[id].is_absent() => return Err(ErrorCode::NodeExists),
                None if self.absent_above(path).is_none() => return Err(ErrorCode::SystemError),
                _ => {}
            }
        }
        let mut left = tops.len();
        while left > 0 {
            let record = reader.node().map_err(unreadable)?;
            left = left - 1 + record.znode.as_ref().map_or(0, |znode| znode.children);
            self.check_owner_of(&record)?;
        }
        reader.of_sites(flags).map_err(unreadable)?;
        reader.end().map_err(unreadable)?;
        PartitionOp::Take { path, content }.encode(&mut part.ops);
        self.overlay.partitions.begin_move(part.stamp().zxid);
        Ok(PartResult::Done)
    }

    fn check_owner_of(&self, record: &NodeRecord<'_>) -> Result<(), ErrorCode> {
        match record.znode.as_ref().map(|znode| znode.kind) {
            Some(ZnodeKind::Ephemeral { session })
                if !self.session_is_live(session) && !self.may_live(session) =>
            {
                Err(ErrorCode::SessionExpired)
            }
            _ => Ok(()),
        }
    }

    /// What moves with the znode `top`: it, the znodes below it, and the names among these of what lives
    /// elsewhere, each before what is below it is looked at.
    fn moving(&self, top: u32, place: Place) -> impl Iterator<Item = (u32, Place)> {
        let mut pending = Vec::from([(top, place)]);
        let mut last = None;
        core::iter::from_fn(move || {
            if let Some((id, place)) = last.take().filter(|(id, _)| !self.nodes[*id].is_absent()) {
                // What is taken last off the list is the first child.
                let below = self.child_ids_back(id);
                pending.extend(below.map(|id| (id, Place::child(place, self.nodes[id].name_bytes()))));
            }
            last = pending.pop();
            last
        })
    }

    fn znode_terms(&self, id: u32, path_digest: u64) -> u64 {
        let data_term = digest::data_term(path_digest, self.nodes[id].data_hash());
        self.stat_term(id, path_digest).wrapping_add(data_term)
    }

    /// Makes a node something else in the same place. It keeps nothing but what is below it.
    fn turn_into(&mut self, id: u32, node: Node) -> Node {
        let czxid = node.czxid;
        let before = self.nodes[id].replace(node);
        if before.ext != NONE {
            let ext = &mut self.exts[before.ext];
            let Ext { num_children, last_child, .. } = *ext;
            *ext = Ext { num_children, last_child, ..Ext::of_leaf(czxid) };
            if num_children == 0 {
                self.exts.remove(before.ext);
                self.nodes[id].ext = NONE;
            }
        }
        before
    }

    /// Takes the subtree at a path out of another tree, as a move of all of it. Returns the sessions that own something of it.
    pub(crate) fn take_from(&mut self, other: &mut Self, path: &str) -> Result<Vec<i64>, Reason> {
        let (content, sessions, digest) = other.content_of(path, true)?;
        other.apply_give(path, digest)?;
        self.apply_take(path, &content)?;
        Ok(sessions)
    }

    /// A copy of the subtree at a path, without the quotas on it, and the sessions that own something of it.
    pub(crate) fn copy_of(&self, path: &str) -> Result<(Vec<u8>, Vec<i64>), Reason> {
        let (content, sessions, _) = self.content_of(path, false)?;
        Ok((content, sessions))
    }

    /// Takes one in.
    pub(crate) fn take_copy(
        &mut self,
        path: &str,
        (content, sessions): &(Vec<u8>, Vec<i64>),
    ) -> Result<Vec<i64>, Reason> {
        self.apply_take(path, content)?;
        Ok(sessions.clone())
    }

    /// Takes out the subtree at a path, without the quotas on it.
    pub(crate) fn forget_subtree(&mut self, path: &str) -> Result<(), Reason> {
        let (.., digest) = self.content_of(path, false)?;
        self.apply_give(path, digest)
    }

    fn content_of(&self, path: &str, with_quotas: bool) -> Result<(Vec<u8>, Vec<i64>, u64), Reason> {
        let has_quotas = with_quotas && self.lookup(&quotas_of(path)).is_some();
        let mut writer = Writer::new(has_quotas);
        for path in tops(path, has_quotas) {
            let written = self.write_moving(&mut writer, &path, usize::MAX);
            written.map_err(|_| "what is to move is not there")?;
        }
        Ok(writer.end())
    }

    /// The topmost znodes here: with what is below each of them that is all there is, but for what lives elsewhere.
    pub(crate) fn tops_here(&self) -> Vec<String> {
        let (mut tops, mut pending) = (Vec::new(), Vec::from([crate::node::ROOT_ID]));
        while let Some(id) = pending.pop() {
            if self.nodes[id].is_absent() {
                pending.extend(self.child_ids_back(id));
            } else {
                tops.push(self.path_of(id));
            }
        }
        tops
    }

    // The one side.

    pub(super) fn apply_give(&mut self, path: &str, digest: u64) -> Result<(), Reason> {
        if !is_movable(path) || self.lookup(path).is_none() {
            return Err("it gives away a znode that is not here");
        }
        let tops = tops(path, self.lookup(&quotas_of(path)).is_some());
        let counted = self.counted_around(tops.iter().map(String::as_str));
        let mut given = 0_u64;
        for path in &tops {
            if let Some(top) = self.lookup(path) {
                given = given.wrapping_add(self.give(top, path));
            }
        }
        self.count_moved(counted);
        if given == digest { Ok(()) } else { Err("what it gives away is not what is here") }
    }

    /// Returns the digest of what went.
    fn give(&mut self, top: u32, path: &str) -> u64 {
        let parent = self.nodes[top].parent;
        let is_cut = !self.nodes[parent].is_absent();
        let moving: Vec<(u32, Place)> = self.moving(top, Place::of(path)).collect();
        let mut digest = 0_u64;
        for (id, place) in &moving {
            if self.nodes[*id].is_absent() {
                self.account_absent_gone(*id, place.path_digest);
                continue;
            }
            digest = digest.wrapping_add(self.znode_terms(*id, place.path_digest));
            self.account_gone_from(*id, *place);
            if self.nodes[*id].name_bytes() == quota::LIMITS.as_bytes() {
                self.quota_deleted(&self.path_of(*id));
            }
        }
        // What is below goes first: then it shows what has to stay as the way to something.
        for (id, place) in moving.into_iter().rev() {
            let is_away = id == top && is_cut;
            self.take_out(id, is_away, place.path_digest);
        }
        if !is_cut {
            self.remove_needless(parent);
        }
        digest
    }

    /// Leaves of a node that is out of all counts no more than a name, the way to what is below it, or
    /// nothing.
    fn take_out(&mut self, id: u32, is_away: bool, path_digest: u64) {
        let is_znode = !self.nodes[id].is_absent();
        if is_znode {
            self.unlink_owned(id);
        }
        let node = &self.nodes[id];
        let before = if is_away || self.ext_of(node).num_children > 0 {
            let name = node.name();
            let after = if is_away { Node::away(name) } else { Node::scaffold(name) };
            let before = self.turn_into(id, after);
            self.account_absent(id, path_digest);
            before
        } else {
            self.unlink_child(id);
            self.drop_node(id)
        };
        if is_znode {
            self.acls.release(before.acl);
        }
    }

    // The other side.

    /// Returns what of sites has come with it.
    pub(super) fn apply_take(&mut self, path: &str, content: &[u8]) -> Result<Option<MovedOfSites>, Reason> {
        if !is_movable(path) {
            return Err(NOT_AT_CUT);
        }
        let (flags, mut reader) = ContentReader::new(content)?;
        let tops = tops(path, flags.has_quotas);
        let counted = self.counted_around(tops.iter().map(String::as_str));
        let has_strangers = self.find(path).is_some_and(|top| self.descend(top).next().is_some());
        let mut taken = 0_u64;
        for path in &tops {
            taken = taken.wrapping_add(self.take(path, &mut reader)?);
        }
        let of_sites = reader.of_sites(flags)?;
        if taken != reader.end()? {
            return Err("what it takes is not what was given");
        }
        if flags.has_quotas && (flags.recount || has_strangers) {
            self.recount_quotas(path);
        }
        self.count_moved(counted);
        Ok(of_sites)
    }

    /// Returns the digest of what came.
    fn take(&mut self, path: &str, reader: &mut ContentReader<'_>) -> Result<u64, Reason> {
        let (parent_path, name) = path::split(path).ok_or(NOT_AT_CUT)?;
        // Where its parent lives here too, it stays where it is among the children.
        let here = self.find(path);
        let parent = match here {
            Some(top) => self.nodes[top].parent,
            None => self.scaffold(parent_path).ok_or(NOT_AT_CUT)?,
        };
        let record = reader.node()?;
        if record.name != name || record.znode.is_none() {
            return Err("a subtree is another one");
        }
        let mut digest = 0_u64;
        let mut parents = Vec::new();
        parents.extend(self.take_node(parent, here, Place::of(path), &record)?);
        while let Some(parent) = parents.last_mut() {
            if parent.left == 0 {
                digest = digest.wrapping_add(self.take_done(parent)?);
                parents.pop();
                continue;
            }
            parent.left -= 1;
            let record = reader.node()?;
            let place = parent.place.child(record.name.as_bytes());
            let id = parent.id;
            let here = self.child_of(id, record.name.as_bytes());
            // Below scaffolding children are in no order: that of the content is theirs.
            here.into_iter().for_each(|here| self.make_last(here));
            parents.extend(self.take_node(id, here, place, &record)?);
        }
        Ok(digest)
    }

    /// Takes a node in, where `here` may be something already. Returns it if it is a znode, whose children have
    /// to follow.
    fn take_node(
        &mut self,
        parent: u32,
        here: Option<u32>,
        place: Place,
        record: &NodeRecord<'_>,
    ) -> Result<Option<Parent>, Reason> {
        let name = record.name;
        let Some(znode) = &record.znode else {
            match here {
                None => drop(self.add_absent(parent, Node::away(name), place.path_digest)),
                Some(id) if self.nodes[id].is_away() => return Err(EXISTS),
                Some(id) if self.nodes[id].is_scaffold() => {
                    self.account_absent_gone(id, place.path_digest);
                    self.turn_into(id, Node::away(name));
                    self.account_absent(id, place.path_digest);
                }
                // It lives here: there was a cut between the two.
                Some(_) => {}
            }
            return Ok(None);
        };
        let id = self.take_znode(parent, here, place, name, znode)?;
        self.nodes[id].set_mark(record.mark);
        Ok(Some(Parent { id, place, children: znode.children, left: znode.children }))
    }

    fn take_znode(
        &mut self,
        parent: u32,
        here: Option<u32>,
        place: Place,
        name: &str,
        znode: &MovedZnode<'_>,
    ) -> Result<u32, Reason> {
        if let ZnodeKind::Ephemeral { session } = znode.kind
            && !self.sessions.contains(session)
        {
            if self.is_first() {
                return Err("it takes an ephemeral of a session that does not exist");
            }
            // Its home is told by who knows it.
            self.sessions.make_remote(session, 0);
        }
        let mut node = znode.node(name);
        node.acl = match znode.acl {
            None => acl::OPEN,
            Some(encoded) => self.acls.intern(encoded).ok_or("an ACL is not well formed")?,
        };
        let id = match here {
            None => self.add(parent, node, znode.kind),
            Some(id) if !self.nodes[id].is_absent() => return Err(EXISTS),
            Some(id) => {
                self.account_absent_gone(id, place.path_digest);
                self.turn_into(id, node);
                self.link_owned(id, znode.kind);
                id
            }
        };
        if !znode.is_plain() {
            let ext = self.ensure_ext(id);
            let ext = &mut self.exts[ext];
            (ext.pzxid, ext.cversion, ext.aversion) = (znode.pzxid, znode.cversion, znode.aversion);
        }
        Ok(id)
    }

    /// All children of a znode are there: counts it, and returns its part of the digest.
    fn take_done(&mut self, parent: &Parent) -> Result<u64, Reason> {
        let Parent { id, place, children, .. } = *parent;
        if self.ext_of(&self.nodes[id]).num_children as usize != children {
            return Err("a znode has other children than it had");
        }
        self.account_new_at(id, place);
        if self.nodes[id].name_bytes() == quota::LIMITS.as_bytes() {
            self.quota_loaded(&self.path_of(id));
        }
        Ok(self.znode_terms(id, place.path_digest))
    }
}
