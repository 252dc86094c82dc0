//! How a znode lies in memory.
//!
//! A plain leaf is one [`Node`] and one allocation for its name and data. What only parents,
//! ephemerals, containers and TTL znodes need lies in an [`Ext`] of its own, which most znodes
//! never get.

use crate::blob::Blob;
use crate::digest;
use crate::slab::{NONE, Slot};

/// What decides when a znode goes away.
///
/// ZooKeeper folds this into the stored `ephemeralOwner`; a client never sees that encoding, since
/// a Stat shows an owner for ephemerals only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZnodeKind {
    /// Stays until it is deleted.
    Persistent,
    /// Goes with its session.
    Ephemeral {
        /// The owner.
        session: i64,
    },
    /// Deleted by the server when its last child is gone.
    Container,
    /// Deleted by the server when it has no child and was not changed for a while.
    Ttl {
        /// That while, milliseconds.
        ttl_ms: i64,
    },
}

/// The longest TTL in milliseconds: ZooKeeper keeps it in five bytes.
pub const TTL_MS_MAX: i64 = (1 << 40) - 1;

const VACANT: u16 = 1;
const NULL_DATA: u16 = 2;
const EPHEMERAL: u16 = 4;
const CONTAINER: u16 = 8;
const TTL: u16 = 16;
/// The data's hash is in front of it.
const HASHED: u16 = 32;
const KINDS: u16 = EPHEMERAL | CONTAINER | TTL;
/// The site that a znode is marked with, see [`crate::sites`]; 0 of one without a mark.
const MARK_SHIFT: u32 = 8;
const MARK: u16 = 31 << MARK_SHIFT;

/// Data of this length or more has its hash with it: when it is replaced it need not be read once more,
/// from wherever in memory it is.
const HASHED_BYTES_MIN: usize = 256;
const HASH_BYTES: usize = size_of::<u64>();

/// The id of the root: the first that the slab hands out.
pub(crate) const ROOT_ID: u32 = 1;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    ctime: Millis,
    mtime: Millis,
    /// The name and the data.
    blob: Blob,
    /// The index's hash of the full path.
    pub(crate) hash: u32,
    /// For a free slot: the next free one.
    pub(crate) parent: u32,
    /// The sibling that was created next; of the last one, the first.
    pub(crate) next_sibling: u32,
    /// The one before; [`NONE`] of the first.
    pub(crate) prev_sibling: u32,
    pub(crate) ext: u32,
    pub(crate) acl: u32,
    pub(crate) version: i32,
    /// The next znode in the same bucket of the index.
    pub(crate) next_in_bucket: u32,
    flags: u16,
}

const _: () = assert!(size_of::<Node>() == 72);

/// What of a node's flags depends on the data, and the data as it is kept.
fn stored(name: &[u8], data: Option<&[u8]>) -> (u16, Blob) {
    match data {
        None => (NULL_DATA, Blob::new(name, [b"", b""])),
        Some(data) if data.len() < HASHED_BYTES_MIN => (0, Blob::new(name, [b"", data])),
        Some(data) => (HASHED, Blob::new(name, [&digest::of_data(data).to_le_bytes(), data])),
    }
}

impl Slot for Node {
    fn vacant(next_free: u32) -> Self {
        Self { parent: next_free, flags: VACANT, ..Self::new("", None, 0, 0) }
    }

    fn next_free(&self) -> u32 {
        self.parent
    }

    fn is_vacant(&self) -> bool {
        self.flags & VACANT != 0
    }
}

impl Node {
    /// A persistent znode that nothing links to yet.
    pub(crate) fn new(name: &str, data: Option<&[u8]>, zxid: i64, time_ms: i64) -> Self {
        let (flags, blob) = stored(name.as_bytes(), data);
        Self {
            czxid: zxid,
            mzxid: zxid,
            ctime: Millis::new(time_ms),
            mtime: Millis::new(time_ms),
            blob,
            hash: 0,
            parent: NONE,
            next_sibling: NONE,
            prev_sibling: NONE,
            ext: NONE,
            acl: 0,
            version: 0,
            next_in_bucket: NONE,
            flags,
        }
    }

    /// The flags of a node that is no znode. What they mean is for [`crate::partitions`] to say.
    pub(crate) const ABSENT: u16 = 64 | 128;

    /// No znode, but a name.
    pub(crate) fn absent(name: &str, absence: u16) -> Self {
        let node = Self::new(name, None, 0, 0);
        Self { flags: node.flags | absence, ..node }
    }

    /// Those of the flags [`Node::ABSENT`] that it has.
    pub(crate) fn absence(&self) -> u16 {
        self.flags & Self::ABSENT
    }

    /// Whether it is no znode, but only a name.
    #[inline]
    pub(crate) fn is_absent(&self) -> bool {
        self.absence() != 0
    }

    /// Puts another node in the place of this one: the links stay.
    pub(crate) fn replace(&mut self, node: Self) -> Self {
        let Self { hash, parent, next_sibling, prev_sibling, ext, next_in_bucket, .. } = *self;
        let node = Self { hash, parent, next_sibling, prev_sibling, ext, next_in_bucket, ..node };
        core::mem::replace(self, node)
    }

    /// When it was created, milliseconds since the epoch.
    pub(crate) fn ctime(&self) -> i64 {
        self.ctime.get()
    }

    /// When its data was last set, milliseconds since the epoch.
    pub(crate) fn mtime(&self) -> i64 {
        self.mtime.get()
    }

    pub(crate) fn set_mtime(&mut self, time_ms: i64) {
        self.mtime = Millis::new(time_ms);
    }

    #[inline]
    pub(crate) fn name_bytes(&self) -> &[u8] {
        self.blob.name()
    }

    pub(crate) fn name(&self) -> &str {
        core::str::from_utf8(self.name_bytes()).expect("a name was a str when it came in")
    }

    #[inline]
    pub(crate) fn data(&self) -> Option<&[u8]> {
        if self.flags & NULL_DATA != 0 { None } else { self.blob.data().get(self.hash_bytes()..) }
    }

    #[inline]
    pub(crate) fn data_len(&self) -> usize {
        self.blob.data_len() - self.hash_bytes()
    }

    #[inline]
    fn hash_bytes(&self) -> usize {
        if self.flags & HASHED != 0 { HASH_BYTES } else { 0 }
    }

    /// The hash of the data, see [`digest::of_data`].
    pub(crate) fn data_hash(&self) -> Option<u64> {
        match self.blob.data().first_chunk() {
            Some(hash) if self.flags & HASHED != 0 => Some(u64::from_le_bytes(*hash)),
            _ => self.data().map(digest::of_data),
        }
    }

    /// Data of the same length is written over the old: no allocation.
    pub(crate) fn set_data(&mut self, data: Option<&[u8]>) {
        let len = data.map_or(0, <[u8]>::len);
        if len != self.data_len() {
            let (flags, blob) = stored(self.blob.name(), data);
            self.flags = self.flags & !(NULL_DATA | HASHED) | flags;
            self.blob = blob;
            return;
        }
        self.flags = self.flags & !NULL_DATA | if data.is_none() { NULL_DATA } else { 0 };
        let data = data.unwrap_or_default();
        let hash_bytes = self.hash_bytes();
        let (hash, old) = self.blob.data_mut().split_at_mut(hash_bytes);
        old.copy_from_slice(data);
        if !hash.is_empty() {
            hash.copy_from_slice(&digest::of_data(data).to_le_bytes());
        }
    }

    pub(crate) fn kind(&self, ext: &Ext) -> ZnodeKind {
        match self.flags & KINDS {
            EPHEMERAL => ZnodeKind::Ephemeral { session: ext.owner },
            CONTAINER => ZnodeKind::Container,
            TTL => ZnodeKind::Ttl { ttl_ms: ext.owner },
            _ => ZnodeKind::Persistent,
        }
    }

    /// Notes the kind and returns what belongs into [`Ext::owner`].
    pub(crate) fn set_kind(&mut self, kind: ZnodeKind) -> i64 {
        let (flag, owner) = match kind {
            ZnodeKind::Persistent => (0, 0),
            ZnodeKind::Ephemeral { session } => (EPHEMERAL, session),
            ZnodeKind::Container => (CONTAINER, 0),
            ZnodeKind::Ttl { ttl_ms } => (TTL, ttl_ms),
        };
        self.flags = (self.flags & !KINDS) | flag;
        owner
    }

    /// The site that it is marked with, or 0.
    #[inline]
    pub(crate) fn mark(&self) -> u8 {
        ((self.flags & MARK) >> MARK_SHIFT) as u8
    }

    /// `site` is at most 31.
    pub(crate) fn set_mark(&mut self, site: u8) {
        self.flags = self.flags & !MARK | u16::from(site) << MARK_SHIFT & MARK;
    }

    pub(crate) fn is_ephemeral(&self) -> bool {
        self.flags & EPHEMERAL != 0
    }
}

/// Milliseconds since the epoch in six bytes: 4,000 years on either side. What is beyond is taken
/// for the end of that range, in the same way on every server.
#[derive(Debug, Clone, Copy)]
struct Millis([u8; 6]);

impl Millis {
    const MAX: i64 = (1 << 47) - 1;

    fn new(ms: i64) -> Self {
        let [a, b, c, d, e, f, ..] = ms.clamp(-Self::MAX, Self::MAX).to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    #[inline]
    fn get(self) -> i64 {
        let [a, b, c, d, e, f] = self.0;
        // Shifted up and down again, so that the sign is kept.
        i64::from_le_bytes([0, 0, a, b, c, d, e, f]) >> 16
    }
}

/// What a znode has that is, or once was, a parent, or is not persistent.
#[derive(Debug, Clone)]
pub(crate) struct Ext {
    /// The session of an ephemeral, the TTL of a TTL znode, else 0.
    pub(crate) owner: i64,
    pub(crate) pzxid: i64,
    /// Children ever created; what a client sees as cversion is computed from it.
    pub(crate) cversion: i32,
    /// Number of changes of the ACL.
    pub(crate) aversion: i32,
    /// [`VACANT_EXT`] when the slot is free.
    pub(crate) num_children: u32,
    /// The child that was created last. Its next sibling is the first.
    pub(crate) last_child: u32,
    /// Neighbours in the list of the owner's ephemerals, or in that of containers and TTL znodes.
    pub(crate) next_owned: u32,
    pub(crate) prev_owned: u32,
}

const _: () = assert!(size_of::<Ext>() == 40);

/// More children than ids.
const VACANT_EXT: u32 = u32::MAX;

impl Ext {
    /// What a znode has while it has no `Ext`: a new znode's pzxid is its czxid.
    pub(crate) const fn of_leaf(czxid: i64) -> Self {
        Self {
            owner: 0,
            pzxid: czxid,
            cversion: 0,
            aversion: 0,
            num_children: 0,
            last_child: NONE,
            next_owned: NONE,
            prev_owned: NONE,
        }
    }
}

impl Slot for Ext {
    fn vacant(next_free: u32) -> Self {
        Self { last_child: next_free, num_children: VACANT_EXT, ..Self::of_leaf(0) }
    }

    fn next_free(&self) -> u32 {
        self.last_child
    }

    fn is_vacant(&self) -> bool {
        self.num_children == VACANT_EXT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fit_six_bytes() {
        for ms in [0, 1, -1, 1_700_000_000_000, -1_700_000_000_000, Millis::MAX, -Millis::MAX] {
            assert_eq!(Millis::new(ms).get(), ms);
        }
        assert_eq!(Millis::new(i64::MAX).get(), Millis::MAX);
        assert_eq!(Millis::new(i64::MIN).get(), -Millis::MAX);
    }

    #[test]
    fn null_and_empty_data_stay_apart() {
        let mut node = Node::new("n", None, 1, 2);
        assert_eq!((node.name(), node.data()), ("n", None));
        node.set_data(Some(b""));
        assert_eq!(node.data(), Some(&b""[..]));
        node.set_data(Some(b"abc"));
        assert_eq!(node.data(), Some(&b"abc"[..]));
        node.set_data(Some(b"xyz"));
        assert_eq!((node.name(), node.data()), ("n", Some(&b"xyz"[..])));
        node.set_data(None);
        assert_eq!((node.name(), node.data(), node.data_len()), ("n", None, 0));
    }

    #[test]
    fn the_hash_is_that_of_the_data_wherever_it_comes_from() {
        let long = [7; HASHED_BYTES_MIN + 1];
        let mut node = Node::new("n", Some(&long), 1, 2);
        let other = [8; HASHED_BYTES_MIN];
        let shorter = &long[..HASHED_BYTES_MIN];
        for data in [Some(shorter), Some(&other), Some(&long[2..]), Some(&other[2..]), None, Some(&long)] {
            node.set_data(data);
            assert_eq!((node.name(), node.data(), node.data_len()), ("n", data, data.map_or(0, <[u8]>::len)));
            assert_eq!(node.data_hash(), data.map(digest::of_data));
        }
    }
}
