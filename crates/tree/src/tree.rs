//! The tree of znodes: lookup, links, and what can be read.

use crate::Options;
use crate::acl::AclTable;
use crate::digest::{self, Place};
use crate::hash::{PathHasher, ROOT_HASH, is_same_name};
use crate::index::PathIndex;
use crate::node::{Ext, Node, ROOT_ID, ZnodeKind};
use crate::partitions::Partitions;
use crate::proposed::Overlay;
use crate::quota::Quotas;
use crate::reserved;
use crate::session::Sessions;
use crate::sites::Sites;
use crate::slab::{NONE, Slab, Slot};
use crate::walk::Walk;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::{Acl, READ_ACL, Stat, path};

/// The replicated state of one partition: the whole tree, or a part of it (see [`crate::PartOp`]).
#[derive(Debug)]
pub struct Tree {
    pub(crate) options: Options,
    pub(crate) hasher: PathHasher,
    pub(crate) nodes: Slab<Node>,
    pub(crate) exts: Slab<Ext>,
    index: PathIndex,
    pub(crate) acls: AclTable,
    pub(crate) sessions: Sessions,
    pub(crate) quotas: Quotas,
    pub(crate) partitions: Partitions,
    pub(crate) sites: Sites,
    pub(crate) overlay: Overlay,
    pub(crate) walk: Option<Box<Walk>>,
    /// Head of the list of containers and TTL znodes.
    first_reapable: u32,
    counts: Counts,
    pub(crate) zxids: Zxids,
}

/// Where the znode is that a request is about, for who has looked for it: so it need not be looked for once more to
/// prepare the request.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    pub(crate) path: &'a str,
    pub(crate) hash: u32,
    pub(crate) id: u32,
    /// The last update that was applied by then.
    pub(crate) zxid: i64,
}

impl<'a> Found<'a> {
    /// The path at which it was looked for.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.path
    }
}

/// Of updates that are applied.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Zxids {
    /// The largest one.
    pub(crate) last: i64,
    /// The last one that was prepared here, and not at another site.
    pub(crate) last_prepared: i64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes of all paths and data.
    pub(crate) data_bytes: u64,
    pub(crate) persistent: usize,
    pub(crate) ephemerals: usize,
    pub(crate) containers: usize,
    pub(crate) ttls: usize,
    /// The part of the digest that stands for the znodes.
    digest: u64,
}

impl Tree {
    /// Whether there may be TTL znodes: see [`Options::extended_types`].
    #[must_use]
    pub fn extended_types(&self) -> bool {
        self.options.extended_types
    }

    /// A tree with the znodes that every ZooKeeper starts with: `/`, `/zookeeper`,
    /// `/zookeeper/quota` and `/zookeeper/config`, which everybody may read and nobody write.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut tree = Self::bare(options);
        let root = tree.nodes.insert(Node::new("", Some(b""), 0, 0));
        tree.nodes[root].hash = ROOT_HASH;
        debug_assert_eq!(root, ROOT_ID);
        let mut read_only = Vec::new();
        Acl::encode_list(&mut read_only, READ_ACL.iter().copied());
        let read_only = tree.acls.intern(&read_only).expect("the read-only ACL is well formed");
        for path in [reserved::ZOOKEEPER, reserved::QUOTA, reserved::CONFIG_PATH] {
            let (parent, name) = path::split(path).expect("not the root");
            let parent = tree.lookup(parent).expect("parents come first");
            let id = tree.add(parent, Node::new(name, Some(b""), 0, 0), ZnodeKind::Persistent);
            if path == reserved::CONFIG_PATH {
                // ZooKeeper sets this ACL with version -1, and clients see that.
                tree.nodes[id].acl = read_only;
                let ext = tree.ensure_ext(id);
                tree.exts[ext].aversion = -1;
            }
        }
        for path in [reserved::ROOT, reserved::ZOOKEEPER, reserved::QUOTA, reserved::CONFIG_PATH] {
            let id = tree.lookup(path).expect("created above");
            tree.account_new(id, path);
        }
        tree
    }

    /// A tree without any znode, not even the root.
    pub(crate) fn bare(options: Options) -> Self {
        let hasher = PathHasher::new(options.hash_seed);
        Self {
            hasher,
            acls: AclTable::new(&options),
            options,
            nodes: Slab::new(),
            exts: Slab::new(),
            index: PathIndex::new(),
            sessions: Sessions::default(),
            quotas: Quotas::new(hasher),
            partitions: Partitions::default(),
            sites: Sites::default(),
            overlay: Overlay::default(),
            walk: None,
            first_reapable: NONE,
            counts: Counts::default(),
            zxids: Zxids::default(),
        }
    }

    // Lookup.

    #[inline]
    pub(crate) fn lookup(&self, path: &str) -> Option<u32> {
        self.lookup_hashed(path, self.hasher.path(path))
    }

    /// The znode at `path`, if it is here.
    #[inline]
    pub(crate) fn lookup_hashed(&self, path: &str, hash: u32) -> Option<u32> {
        self.find_hashed(path, hash).filter(|id| !self.nodes[*id].is_absent())
    }

    /// The hash and the node of what was found, if it was looked for at this path, and nothing was applied since then.
    pub(crate) fn is_there_still(&self, found: &Found<'_>, path: &str) -> Option<(u32, u32)> {
        // That it is the very same text tells that without looking at it.
        let is_it = core::ptr::eq(found.path, path) && found.zxid == self.last_zxid();
        debug_assert!(
            !is_it || self.lookup(path) == Some(found.id),
            "nothing is applied while that is of use"
        );
        is_it.then_some((found.hash, found.id))
    }

    pub(crate) fn find(&self, path: &str) -> Option<u32> {
        self.find_hashed(path, self.hasher.path(path))
    }

    /// What is at `path`: a znode, or only a name.
    #[inline]
    pub(crate) fn find_hashed(&self, path: &str, hash: u32) -> Option<u32> {
        if path == reserved::ROOT {
            return Some(ROOT_ID);
        }
        self.index.find(&self.nodes, hash, |id| self.is_at(id, path))
    }

    /// What is at a path and at those above it, from the root down, as far as there is anything: each is
    /// found from the one above it, so that all together take one pass over the path.
    pub(crate) fn find_levels<'p>(&self, path: &'p str) -> impl Iterator<Item = (&'p str, u32)> {
        let mut above = NONE;
        self.hasher.levels(path).map_while(move |(at, hash)| {
            above = match path::split(at) {
                None => ROOT_ID,
                Some((_, name)) => self.child_hashed(above, name.as_bytes(), hash)?,
            };
            Some((at, above))
        })
    }

    /// What is right below a node.
    pub(crate) fn child_of(&self, parent: u32, name: &[u8]) -> Option<u32> {
        self.child_hashed(parent, name, self.hasher.child(self.nodes[parent].hash, name))
    }

    /// The same, for who knows the hash that it would have.
    #[inline]
    pub(crate) fn child_hashed(&self, parent: u32, name: &[u8], hash: u32) -> Option<u32> {
        let is_it = |id| {
            let node: &Node = &self.nodes[id];
            node.parent == parent && is_same_name(node.name_bytes(), name)
        };
        self.index.find(&self.nodes, hash, is_it)
    }

    /// Whether the znode `id` has this path: compares names up to the root.
    #[inline]
    pub(crate) fn is_at(&self, mut id: u32, path: &str) -> bool {
        let mut rest = path.as_bytes();
        while id != ROOT_ID {
            let node = &self.nodes[id];
            let name = node.name_bytes();
            let Some(slash) = rest.len().checked_sub(name.len() + 1) else {
                return false;
            };
            if rest[slash] != b'/' || !is_same_name(&rest[slash + 1..], name) {
                return false;
            }
            rest = &rest[..slash];
            id = node.parent;
        }
        rest.is_empty()
    }

    /// Appends the path of a znode.
    pub(crate) fn write_path(&self, id: u32, out: &mut String) {
        if id == ROOT_ID {
            out.push('/');
            return;
        }
        let mut ids = Vec::new();
        let mut at = id;
        while at != ROOT_ID {
            ids.push(at);
            at = self.nodes[at].parent;
        }
        for id in ids.into_iter().rev() {
            out.push('/');
            out.push_str(self.nodes[id].name());
        }
    }

    pub(crate) fn path_of(&self, id: u32) -> String {
        let mut path = String::new();
        self.write_path(id, &mut path);
        path
    }

    /// Writes a node that is about to change, if a snapshot is under way that has not come to it yet.
    #[inline]
    pub(crate) fn save_for_walk(&mut self, id: u32) {
        if let Some(walk) = &mut self.walk {
            walk.save(&self.nodes, &self.exts, id);
        }
    }

    // Links.

    /// Puts a node below `parent`: into its children, the index and the list of its kind.
    /// Counts and digest are left to the caller.
    pub(crate) fn add(&mut self, parent: u32, mut node: Node, kind: ZnodeKind) -> u32 {
        let hash = self.hasher.child(self.nodes[parent].hash, node.name_bytes());
        node.hash = hash;
        let id = self.nodes.insert(node);
        if let Some(walk) = &mut self.walk {
            // It was created after the walk began.
            walk.settle(id);
        }
        self.link_child(parent, id);
        self.index.insert(&mut self.nodes, id);
        self.link_owned(id, kind);
        id
    }

    /// Makes a node the last child of `parent`: children are in the order of their creation.
    pub(crate) fn link_child(&mut self, parent: u32, id: u32) {
        let ext = self.ensure_ext(parent);
        self.exts[ext].num_children += 1;
        self.nodes[id].parent = parent;
        self.append_child(ext, id);
    }

    /// Puts a child behind those in the list of its parent, whose [`Ext`] this is and which has counted it.
    pub(crate) fn append_child(&mut self, parent_ext: u32, id: u32) {
        let last = core::mem::replace(&mut self.exts[parent_ext].last_child, id);
        let first =
            if last == NONE { id } else { core::mem::replace(&mut self.nodes[last].next_sibling, id) };
        let node = &mut self.nodes[id];
        node.next_sibling = first;
        node.prev_sibling = last;
    }

    pub(crate) fn unlink_child(&mut self, id: u32) {
        let node = &self.nodes[id];
        let (parent, next, prev) = (node.parent, node.next_sibling, node.prev_sibling);
        let ext = self.nodes[parent].ext;
        let last = self.exts[ext].last_child;
        if id != last {
            // A snapshot says of each child which one is before it.
            self.save_for_walk(next);
            self.nodes[next].prev_sibling = prev;
        }
        let before = if prev == NONE { last } else { prev };
        self.nodes[before].next_sibling = next;
        let ext = &mut self.exts[ext];
        ext.num_children -= 1;
        if id == last {
            ext.last_child = prev;
        }
    }

    /// Makes a child the last one of its parent.
    pub(crate) fn make_last(&mut self, id: u32) {
        let parent = self.nodes[id].parent;
        self.save_for_walk(id);
        self.unlink_child(id);
        self.link_child(parent, id);
    }

    /// Makes room for so many nodes. Cheap while there are none.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.index.reserve(&mut self.nodes, count);
    }

    /// Makes a node that is in its place, the only one at its path, one that can be looked up.
    pub(crate) fn enter(&mut self, id: u32, hash: u32) {
        self.nodes[id].hash = hash;
        self.index.insert(&mut self.nodes, id);
    }

    /// Takes a node that nothing hangs on any more out of the index and the slab.
    pub(crate) fn drop_node(&mut self, id: u32) -> Node {
        self.index.remove(&mut self.nodes, id);
        self.sites.late.forget(id);
        let node = self.nodes.remove(id);
        if node.ext != NONE {
            self.exts.remove(node.ext);
        }
        node
    }

    pub(crate) fn ensure_ext(&mut self, id: u32) -> u32 {
        let node = &mut self.nodes[id];
        if node.ext == NONE {
            node.ext = self.exts.insert(Ext::of_leaf(node.czxid));
        }
        node.ext
    }

    /// Sets the kind and puts the znode into the list of its kind. An ephemeral's session must be
    /// there.
    pub(crate) fn link_owned(&mut self, id: u32, kind: ZnodeKind) {
        if kind == ZnodeKind::Persistent {
            return;
        }
        let ext = self.ensure_ext(id);
        self.exts[ext].owner = self.nodes[id].set_kind(kind);
        let first = match kind {
            ZnodeKind::Ephemeral { session } => self.sessions.gained_ephemeral(session),
            _ => &mut self.first_reapable,
        };
        let next = core::mem::replace(first, id);
        self.exts[ext].next_owned = next;
        self.exts[ext].prev_owned = NONE;
        if next != NONE {
            let next_ext = self.nodes[next].ext;
            self.exts[next_ext].prev_owned = id;
        }
    }

    pub(crate) fn unlink_owned(&mut self, id: u32) {
        let kind = self.kind_of(id);
        if kind == ZnodeKind::Persistent {
            return;
        }
        let ext = &self.exts[self.nodes[id].ext];
        let (next, prev) = (ext.next_owned, ext.prev_owned);
        let first = match kind {
            ZnodeKind::Ephemeral { session } => self.sessions.lost_ephemeral(session),
            _ => &mut self.first_reapable,
        };
        if prev == NONE {
            *first = next;
        } else {
            let prev_ext = self.nodes[prev].ext;
            self.exts[prev_ext].next_owned = next;
        }
        if next != NONE {
            let next_ext = self.nodes[next].ext;
            self.exts[next_ext].prev_owned = prev;
        }
    }

    #[inline]
    pub(crate) fn ext_of(&self, node: &Node) -> Ext {
        if node.ext == NONE { Ext::of_leaf(node.czxid) } else { self.exts[node.ext].clone() }
    }

    pub(crate) fn kind_of(&self, id: u32) -> ZnodeKind {
        let node = &self.nodes[id];
        node.kind(&self.ext_of(node))
    }

    pub(crate) fn stat_of(&self, id: u32) -> Stat {
        let node = &self.nodes[id];
        let ext = self.ext_of(node);
        let num_children = ext.num_children as i32;
        Stat {
            czxid: node.czxid,
            mzxid: node.mzxid,
            ctime: node.ctime(),
            mtime: node.mtime(),
            version: node.version,
            cversion: ext.cversion.wrapping_mul(2).wrapping_sub(num_children),
            aversion: ext.aversion,
            ephemeral_owner: if node.is_ephemeral() { ext.owner } else { 0 },
            data_length: node.data_len() as i32,
            num_children,
            pzxid: ext.pzxid,
        }
    }

    // Accounting: each change is enclosed in `before_change` and `after_change`.

    /// The digest's term of everything about a znode but its data.
    pub(crate) fn stat_term(&self, id: u32, path_digest: u64) -> u64 {
        let node = &self.nodes[id];
        let ext = self.ext_of(node);
        let kind = match node.kind(&ext) {
            ZnodeKind::Persistent => 0,
            ZnodeKind::Ephemeral { .. } => 1,
            ZnodeKind::Container => 2,
            ZnodeKind::Ttl { .. } => 3,
        };
        let numbers = [
            node.czxid,
            node.mzxid,
            node.ctime(),
            node.mtime(),
            ext.pzxid,
            ext.owner,
            kind,
            i64::from(node.version),
            i64::from(ext.aversion),
            i64::from(ext.cversion),
            i64::from(ext.num_children),
            self.acls.digest(node.acl) as i64,
        ];
        let term = digest::stat_term(path_digest, numbers);
        if node.mark() == 0 { term } else { digest::marked_term(term, node.mark()) }
    }

    /// Call before anything of a znode but its data changes (or also its data, see
    /// [`Tree::before_data_change`]).
    pub(crate) fn before_change(&mut self, id: u32, path_digest: u64) {
        self.save_for_walk(id);
        self.counts.digest = self.counts.digest.wrapping_sub(self.stat_term(id, path_digest));
    }

    /// Call after what [`Tree::before_change`] announced.
    pub(crate) fn after_change(&mut self, id: u32, path_digest: u64) {
        self.counts.digest = self.counts.digest.wrapping_add(self.stat_term(id, path_digest));
    }

    /// Call before the data of a znode changes.
    pub(crate) fn before_data_change(&mut self, id: u32, path_digest: u64) {
        self.save_for_walk(id);
        let node = &self.nodes[id];
        self.counts.digest =
            self.counts.digest.wrapping_sub(digest::data_term(path_digest, node.data_hash()));
        self.counts.data_bytes -= node.data_len() as u64;
    }

    /// Call after what [`Tree::before_data_change`] announced.
    pub(crate) fn after_data_change(&mut self, id: u32, path_digest: u64) {
        let node = &self.nodes[id];
        self.counts.digest =
            self.counts.digest.wrapping_add(digest::data_term(path_digest, node.data_hash()));
        self.counts.data_bytes += node.data_len() as u64;
    }

    /// Counts a znode that has just been added.
    pub(crate) fn account_new(&mut self, id: u32, path: &str) {
        self.account_new_at(id, Place::of(path));
    }

    /// The same, for who knows the place.
    pub(crate) fn account_new_at(&mut self, id: u32, place: Place) {
        self.counts.data_bytes += place.path_len as u64;
        self.after_data_change(id, place.path_digest);
        self.after_change(id, place.path_digest);
        *self.count_of_kind(id) += 1;
    }

    /// Takes a znode out of all counts; call before it is unlinked.
    pub(crate) fn account_gone_from(&mut self, id: u32, place: Place) {
        self.before_change(id, place.path_digest);
        self.before_data_change(id, place.path_digest);
        self.counts.data_bytes -= place.path_len as u64;
        *self.count_of_kind(id) -= 1;
    }

    fn count_of_kind(&mut self, id: u32) -> &mut usize {
        match self.kind_of(id) {
            ZnodeKind::Persistent => &mut self.counts.persistent,
            ZnodeKind::Ephemeral { .. } => &mut self.counts.ephemerals,
            ZnodeKind::Container => &mut self.counts.containers,
            ZnodeKind::Ttl { .. } => &mut self.counts.ttls,
        }
    }

    /// A number that two servers with the same state agree on.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.counts.digest.wrapping_add(self.sessions.digest()).wrapping_add(self.partitions.digest())
    }

    /// The digest computed anew from everything there is: equal to [`Tree::digest`], or there is a
    /// fault. Takes time in proportion to the state.
    #[must_use]
    pub fn recomputed_digest(&self) -> u64 {
        let mut sum = self.sessions.recomputed_digest().wrapping_add(self.partitions.recomputed_digest());
        for id in self.ids() {
            let path_digest = digest::of_path(&self.path_of(id));
            let node = &self.nodes[id];
            sum = sum.wrapping_add(if node.is_absent() {
                node.absent_term(path_digest)
            } else {
                let data_term = digest::data_term(path_digest, node.data().map(digest::of_data));
                self.stat_term(id, path_digest).wrapping_add(data_term)
            });
        }
        sum
    }

    fn ids(&self) -> impl Iterator<Item = u32> {
        (ROOT_ID..self.nodes.end()).filter(|id| !self.nodes[*id].is_vacant())
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    // Walks.

    /// The znode `id` and everything below it that is here, in no particular order.
    pub(crate) fn descend(&self, id: u32) -> impl Iterator<Item = u32> {
        let mut pending = Vec::from([id]);
        let all = core::iter::from_fn(move || {
            let id = pending.pop()?;
            pending.extend(self.child_ids(id));
            Some(id)
        });
        all.filter(move |id| !self.nodes[*id].is_absent())
    }

    /// The children, in the order of their creation.
    pub(crate) fn child_ids(&self, id: u32) -> impl Iterator<Item = u32> {
        let last = self.ext_of(&self.nodes[id]).last_child;
        let mut next = if last == NONE { NONE } else { self.nodes[last].next_sibling };
        core::iter::from_fn(move || {
            if next == NONE {
                return None;
            }
            let id = next;
            next = if id == last { NONE } else { self.nodes[id].next_sibling };
            Some(id)
        })
    }

    /// The children, the one that was created last first.
    pub(crate) fn child_ids_back(&self, id: u32) -> impl Iterator<Item = u32> {
        let mut next = self.ext_of(&self.nodes[id]).last_child;
        core::iter::from_fn(move || {
            if next == NONE {
                return None;
            }
            let id = next;
            next = self.nodes[id].prev_sibling;
            Some(id)
        })
    }

    /// Containers and TTL znodes.
    pub(crate) fn reapable_ids(&self) -> impl Iterator<Item = u32> {
        self.owned_ids(self.first_reapable)
    }

    /// Ids of a list of ephemerals, or of containers and TTL znodes, from its head.
    pub(crate) fn owned_ids(&self, first: u32) -> impl Iterator<Item = u32> {
        let mut next = first;
        core::iter::from_fn(move || {
            if next == NONE {
                return None;
            }
            let id = next;
            next = self.exts[self.nodes[id].ext].next_owned;
            Some(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    /// Two names with the same hash below the root: by the birthday, 300,000 names have about
    /// ten such pairs.
    fn colliding_names(hasher: PathHasher) -> (String, String) {
        let mut names = BTreeMap::new();
        for n in 0..300_000 {
            let name = format!("name-{n}");
            if let Some(other) = names.insert(hasher.child(ROOT_HASH, name.as_bytes()), name.clone()) {
                return (other, name);
            }
        }
        panic!("no two of many names have the same hash");
    }

    fn add(tree: &mut Tree, parent: u32, name: &str) -> u32 {
        let id = tree.add(parent, Node::new(name, Some(b""), 1, 1), ZnodeKind::Persistent);
        let path = tree.path_of(id);
        tree.account_new(id, &path);
        id
    }

    #[test]
    fn paths_with_the_same_hash_are_told_apart() {
        let mut tree = Tree::new(Options::default());
        let (first, second) = colliding_names(tree.hasher);
        let first_id = add(&mut tree, ROOT_ID, &first);
        assert_eq!(tree.lookup(&format!("/{second}")), None);
        let second_id = add(&mut tree, ROOT_ID, &second);
        assert_eq!(tree.nodes[first_id].hash, tree.nodes[second_id].hash);
        assert_eq!(tree.lookup(&format!("/{first}")), Some(first_id));
        assert_eq!(tree.lookup(&format!("/{second}")), Some(second_id));
        // What is below them collides too: only the names above differ.
        let first_child = add(&mut tree, first_id, "child");
        assert_eq!(tree.lookup(&format!("/{second}/child")), None);
        let second_child = add(&mut tree, second_id, "child");
        assert_eq!(tree.lookup(&format!("/{first}/child")), Some(first_child));
        assert_eq!(tree.lookup(&format!("/{second}/child")), Some(second_child));
    }

    #[test]
    fn what_is_no_path_leads_nowhere() {
        let mut tree = Tree::new(Options::default());
        add(&mut tree, ROOT_ID, "a");
        for text in ["", "a", "/a/", "//a", "//", "/a//", "xa", "a/a", "/\0"] {
            assert_eq!(tree.lookup(text), None, "{text:?}");
        }
        assert_eq!(tree.lookup("/"), Some(ROOT_ID));
    }
}
