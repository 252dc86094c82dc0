//! Loading a snapshot. The format is described where it is written.

use crate::digest::Place;
use crate::hash::ROOT_HASH;
use crate::node::{Node, ROOT_ID, ZnodeKind};
use crate::records::{
    FORMAT, FORMAT_WITHOUT_ORDER, LoadError, LoadedExt, PlaceRecord, RecordReader, Result, ZnodeRecord, tag,
};
use crate::session::Contact;
use crate::slab::NONE;
use crate::tree::Tree;
use crate::{Options, quota};
use alloc::vec;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stoa_wire::{PASSWORD_LEN, ZXID_MAX};

#[derive(Debug, Clone, Copy)]
struct Header {
    last_zxid: i64,
    digest: u64,
    nodes: u64,
    sessions: u64,
}

/// Builds a tree from the slices of a snapshot, given in order.
#[derive(Debug)]
pub struct Loader {
    pub(crate) tree: Tree,
    header: Option<Header>,
    /// The last zxid that was prepared at this site, where there are sites.
    pub(crate) prepared: Option<i64>,
    /// That of the header.
    pub(crate) format: u8,
    ended: bool,
    ids: Ids,
    acls: HashMap<u32, u32, FixedState>,
    latest: Latest,
    /// Nodes that are not in the list of children yet: the sibling before them was not when they were read.
    unlinked: Vec<u32>,
    nodes: u64,
    sessions: u64,
}

/// The node that was read last, as in the snapshot and as here. Most nodes follow the one before them there, below
/// the same parent, and need not look anything up.
#[derive(Debug, Default)]
struct Latest {
    record: PlaceRecord,
    id: u32,
    prev: u32,
    parent: u32,
    parent_ext: u32,
}

/// From the ids of znodes in the snapshot to those in the tree. A znode gets its slot when it is
/// first mentioned, as itself or as a parent.
#[derive(Debug)]
struct Ids {
    /// By id, 0 when unknown. Ids come nearly in order, so this is read and written in order.
    dense: Vec<u32>,
    /// Ids far above the number of znodes so far: of a tree that was once larger, or nonsense.
    sparse: HashMap<u32, u32, FixedState>,
}

impl Ids {
    fn new() -> Self {
        let mut dense = vec![NONE; ROOT_ID as usize + 1];
        // The root has the same id everywhere.
        dense[ROOT_ID as usize] = ROOT_ID;
        Self { dense, sparse: HashMap::default() }
    }

    fn get_or_insert(&mut self, id: u32, znodes_so_far: u64, new: impl FnOnce() -> u32) -> u32 {
        let at = id as usize;
        if let Some(known) = self.dense.get(at).filter(|known| **known != NONE) {
            return *known;
        }
        if let Some(known) = self.sparse.get(&id) {
            return *known;
        }
        let new = new();
        // Keeps the memory in proportion to what was really read.
        if u64::from(id) < 4 * znodes_so_far + 1024 {
            if at >= self.dense.len() {
                self.dense.resize(at + 1, NONE);
            }
            self.dense[at] = new;
        } else {
            self.sparse.insert(id, new);
        }
        new
    }
}

impl Loader {
    /// Starts with nothing loaded.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut tree = Tree::bare(options);
        let root = tree.nodes.insert(not_loaded());
        debug_assert_eq!(root, ROOT_ID);
        Self {
            tree,
            header: None,
            prepared: None,
            format: FORMAT,
            ended: false,
            ids: Ids::new(),
            acls: HashMap::default(),
            latest: Latest::default(),
            unlinked: Vec::new(),
            nodes: 0,
            sessions: 0,
        }
    }

    /// Takes the next slice.
    ///
    /// # Errors
    /// When it is no slice of a snapshot. The loader must not be used any more.
    pub fn chunk(&mut self, slice: &[u8]) -> Result<()> {
        let mut reader = RecordReader::new(slice);
        while !reader.is_at_end() {
            let tag = reader.u8()?;
            if self.ended {
                return Err(LoadError::Malformed("bytes follow its end"));
            }
            if self.header.is_none() != (tag == tag::HEADER) {
                return Err(LoadError::Malformed("it does not have exactly one header, at its start"));
            }
            match tag {
                tag::HEADER => self.read_header(&mut reader)?,
                tag::ACL => self.read_acl(&mut reader)?,
                tag::SESSION => self.read_session(&mut reader)?,
                tag::ZNODE => self.read_znode(&mut reader)?,
                tag::END => self.ended = true,
                _ => match self.read_of_sites(tag, &mut reader) {
                    Some(read) => read?,
                    None => self.read_of_partitions(tag, &mut reader)?,
                },
            }
        }
        Ok(())
    }

    fn read_header(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let format = reader.u8()?;
        if !(FORMAT_WITHOUT_ORDER..=FORMAT).contains(&format) {
            return Err(LoadError::UnknownFormat(format));
        }
        self.format = format;
        let last_zxid = reader.i64()?;
        if !(0..=ZXID_MAX).contains(&last_zxid) {
            return Err(LoadError::Malformed("its zxid is out of range"));
        }
        self.header =
            Some(Header { last_zxid, digest: reader.u64()?, nodes: reader.u64()?, sessions: reader.u64()? });
        Ok(())
    }

    /// The last zxid of all, as the header says.
    pub(crate) fn last_zxid(&self) -> i64 {
        self.header.map_or(0, |header| header.last_zxid)
    }

    fn read_acl(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let id = reader.u32()?;
        let encoded = reader.bytes()?;
        let interned =
            self.tree.acls.intern(encoded).ok_or(LoadError::Malformed("an ACL is not well formed"))?;
        if self.acls.insert(id, interned).is_some() {
            return Err(LoadError::Malformed("two ACLs have the same id"));
        }
        Ok(())
    }

    fn read_session(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let id = reader.i64()?;
        let timeout_ms = reader.i32()?;
        let password: [u8; PASSWORD_LEN] = reader.array()?;
        let contact = Contact::decode(reader.array()?);
        if self.tree.sessions.contains(id) {
            return Err(LoadError::Malformed("two sessions have the same id"));
        }
        self.tree.sessions.create(id, timeout_ms, password, contact);
        self.sessions += 1;
        Ok(())
    }

    fn read_znode(&mut self, reader: &mut RecordReader<'_>) -> Result<()> {
        let record = ZnodeRecord::decode(reader, self.format)?;
        if let ZnodeKind::Ephemeral { session } = record.kind
            && !self.tree.sessions.contains(session)
        {
            return Err(LoadError::Malformed("an ephemeral has a session that is missing"));
        }
        let acl = self.acls.get(&record.acl);
        let acl = *acl.ok_or(LoadError::Malformed("a znode has an ACL that is missing"))?;
        let id = self.free_slot_of(record.place)?;
        let tree = &mut self.tree;
        tree.acls.retain(acl);
        let mut node = Node::new(record.name, record.data, record.czxid, record.ctime);
        node.mzxid = record.mzxid;
        node.set_mtime(record.mtime);
        node.version = record.version;
        node.acl = acl;
        node.set_mark(record.mark);
        self.put(id, record.place, node);
        let tree = &mut self.tree;
        if let Some(LoadedExt { pzxid, cversion, .. }) = record.ext {
            let ext = tree.ensure_ext(id);
            let ext = &mut tree.exts[ext];
            ext.pzxid = pzxid;
            ext.cversion = cversion;
        }
        if record.aversion != 0 {
            let ext = tree.ensure_ext(id);
            tree.exts[ext].aversion = record.aversion;
        }
        tree.link_owned(id, record.kind);
        Ok(())
    }

    /// Puts a node into its slot and counts it as a child of its parent. It comes into the list of children too if
    /// the sibling before it is the last one there; else when all is there, see [`Loader::link_rest`].
    pub(crate) fn put(&mut self, id: u32, record: PlaceRecord, mut node: Node) {
        self.nodes += 1;
        if record.parent != NONE {
            self.look_up(id, record);
            (node.parent, node.prev_sibling) = (self.latest.parent, self.latest.prev);
        }
        let slot = &mut self.tree.nodes[id];
        // There already, if a child came first.
        node.ext = slot.ext;
        *slot = node;
        if record.parent == NONE {
            return;
        }
        let Latest { parent_ext, prev, .. } = self.latest;
        let ext = &mut self.tree.exts[parent_ext];
        ext.num_children += 1;
        if ext.last_child == prev && self.format != FORMAT_WITHOUT_ORDER {
            self.tree.append_child(parent_ext, id);
        } else {
            self.unlinked.push(id);
        }
    }

    /// Makes a node the latest one.
    fn look_up(&mut self, id: u32, record: PlaceRecord) {
        let Latest { record: before, id: id_before, .. } = self.latest;
        self.latest.prev = match record.prev {
            NONE => NONE,
            prev if prev == before.id => id_before,
            prev => self.slot_of(prev),
        };
        if record.parent != before.parent {
            self.latest.parent = self.slot_of(record.parent);
            self.latest.parent_ext = self.tree.ensure_ext(self.latest.parent);
        }
        (self.latest.record, self.latest.id) = (record, id);
    }

    /// The slot of a node whose record has been read now.
    pub(crate) fn free_slot_of(&mut self, place: PlaceRecord) -> Result<u32> {
        let id = self.slot_of(place.id);
        let is_free = self.tree.nodes[id].acl == NOT_LOADED;
        if is_free { Ok(id) } else { Err(LoadError::Malformed("two znodes have the same id")) }
    }

    fn slot_of(&mut self, id: u32) -> u32 {
        let nodes = &mut self.tree.nodes;
        self.ids.get_or_insert(id, self.nodes, || nodes.insert(not_loaded()))
    }

    /// Puts everything together and checks it.
    ///
    /// # Errors
    /// When the snapshot is not complete, or is not the state that was written.
    pub fn finish(mut self) -> Result<Tree> {
        let header = self.header.filter(|_| self.ended).ok_or(LoadError::Incomplete)?;
        let slots = self.tree.nodes.live() as u64;
        if header.nodes != self.nodes || header.sessions != self.sessions || slots != self.nodes {
            return Err(LoadError::Incomplete);
        }
        if self.format == FORMAT_WITHOUT_ORDER {
            self.link_by_czxid();
        } else {
            self.link_rest()?;
        }
        self.settle()?;
        // Each ACL of the snapshot was held in case that a znode has it.
        for acl in self.acls.into_values() {
            self.tree.acls.release(acl);
        }
        let mut tree = self.tree;
        tree.zxids.last = header.last_zxid;
        Self::finish_sites(&mut tree, self.prepared, header.last_zxid);
        let found = tree.digest();
        if found != header.digest {
            return Err(LoadError::DigestMismatch { expected: header.digest, found });
        }
        Ok(tree)
    }

    /// Makes lists of children in the order of czxids.
    fn link_by_czxid(&mut self) {
        let tree = &mut self.tree;
        let mut ids = core::mem::take(&mut self.unlinked);
        let key = |id: &u32| (tree.nodes[*id].czxid, tree.nodes[*id].name_bytes());
        ids.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        for id in ids {
            let parent_ext = tree.nodes[tree.nodes[id].parent].ext;
            tree.append_child(parent_ext, id);
        }
    }

    /// Puts what was not linked as it was read into the lists of children, each after the sibling before it.
    fn link_rest(&mut self) -> Result<()> {
        let tree = &mut self.tree;
        // The next sibling of the last one is the first, so each one in a list has one.
        let is_linked = |tree: &Tree, id: u32| id == NONE || tree.nodes[id].next_sibling != NONE;
        let mut pending = Vec::new();
        for id in &self.unlinked {
            let mut at = *id;
            while !is_linked(tree, at) {
                // The root is nobody's sibling, and those that wait for each other are more than there are.
                if at == ROOT_ID || pending.len() == self.unlinked.len() {
                    return Err(NOT_IN_ORDER);
                }
                pending.push(at);
                at = tree.nodes[at].prev_sibling;
            }
            while let Some(id) = pending.pop() {
                let node = &tree.nodes[id];
                let parent_ext = tree.nodes[node.parent].ext;
                if tree.exts[parent_ext].last_child != node.prev_sibling {
                    return Err(NOT_IN_ORDER);
                }
                tree.append_child(parent_ext, id);
            }
        }
        Ok(())
    }

    /// Gives every znode its hash, its place in the index and its part in all counts: in the order of memory
    /// where possible, but each after its parent.
    fn settle(&mut self) -> Result<()> {
        let count = self.tree.nodes.live();
        self.tree.reserve(count);
        let mut settled = vec![Place::default(); self.tree.nodes.end() as usize];
        let mut pending = Vec::new();
        for id in ROOT_ID..self.tree.nodes.end() {
            let mut at = id;
            while settled[at as usize].path_len == 0 {
                settled[at as usize].path_len = UNDER_WAY;
                pending.push(at);
                if at == ROOT_ID {
                    break;
                }
                at = self.tree.nodes[at].parent;
                if settled[at as usize].path_len == UNDER_WAY {
                    return Err(LoadError::Malformed("znodes are not below the root"));
                }
            }
            while let Some(id) = pending.pop() {
                settled[id as usize] = self.settle_znode(id, &settled)?;
            }
        }
        Ok(())
    }

    /// Settles a znode whose parent is settled.
    fn settle_znode(&mut self, id: u32, settled: &[Place]) -> Result<Place> {
        let tree = &mut self.tree;
        if id == ROOT_ID {
            tree.nodes[id].hash = ROOT_HASH;
            self.account(id, Place::ROOT);
            return Ok(Place::ROOT);
        }
        tree.check_loaded_cut(id)?;
        let node = &tree.nodes[id];
        if node.is_ephemeral() && tree.ext_of(node).num_children > 0 {
            return Err(LoadError::Malformed("an ephemeral has children"));
        }
        let (parent, name) = (node.parent, node.name_bytes());
        let place = settled[parent as usize].child(name);
        let hash = tree.hasher.child(tree.nodes[parent].hash, name);
        if tree.child_hashed(parent, name, hash).is_some() {
            return Err(LoadError::Malformed("two znodes have the same path"));
        }
        let may_be_quota = name == quota::LIMITS.as_bytes() && !node.is_absent();
        tree.enter(id, hash);
        self.account(id, place);
        if may_be_quota {
            let path = self.tree.path_of(id);
            self.tree.quota_loaded(&path);
        }
        Ok(place)
    }

    fn account(&mut self, id: u32, place: Place) {
        if self.tree.nodes[id].is_absent() {
            self.tree.account_absent(id, place.path_digest);
        } else {
            self.tree.account_new_at(id, place);
        }
    }
}

/// Children of a parent are one list: each but one follows another, and no two the same one.
const NOT_IN_ORDER: LoadError = LoadError::Malformed("the children of a znode are not in one order");

/// The length of the path of a znode that waits for its parent; before its turn it is 0.
const UNDER_WAY: usize = usize::MAX;

/// Marks a slot whose znode was mentioned as a parent and is still to come. Fewer ACLs than that
/// fit into any memory.
const NOT_LOADED: u32 = u32::MAX;

fn not_loaded() -> Node {
    let mut node = Node::new("", None, 0, 0);
    node.acl = NOT_LOADED;
    node
}
