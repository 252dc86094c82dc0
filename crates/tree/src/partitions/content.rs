//! A subtree as it stands in the log of the partition that it moves to.
//!
//! ```text
//! content := flags u8, node*, [of sites], digest u64
//! node    := flags u8, [mark u8], name, [znode]   each before its children, these in the order of their
//!                                                 creation; a znode unless it lives elsewhere; marked where a
//!                                                 site holds it
//! znode   := children, czxid, mzxid, ctime, mtime i64, version i32, acl, [encoded],
//!            [pzxid i64, cversion, aversion i32], [owner i64], data
//! ```
//! What of sites moves with it stands in [`crate::sites::moved`]. As in an update ([`crate::update`]). The ACL is 0 for the open one, otherwise the number of one that came
//! before, or the next number and then the ACL. The digest is that of the znodes, so that neither side
//! can take something else for what the other had.

use crate::acl::{self, AclTable};
use crate::encoding::{BAD_NAME, Decoder, KINDS, OpAcl, Reason, kind_bits, put_bytes, put_len, put_nullable};
use crate::node::{Ext, Node, ZnodeKind};
use crate::sites::{MovedOfSites, SITE_MAX};
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

// Flags of a content.
/// The znodes of quotas follow: two subtrees.
const QUOTAS: u8 = 1;
/// What the quotas in it count is partly not in it.
const RECOUNT: u8 = 2;
/// There are several sites.
const SITES: u8 = 4;

// Flags of a node, besides its kind.
const AWAY: u8 = 4;
const EXT: u8 = 8;
const MARK: u8 = 16;

/// What a znode needs at least: no subtree has more of them than bytes by this.
pub(super) const NODE_BYTES_MIN: usize = 3;

/// What is said of a content as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContentFlags {
    pub(super) has_quotas: bool,
    pub(super) recount: bool,
    pub(super) has_sites: bool,
}

pub(super) struct Writer {
    /// But for the flags at its beginning.
    bytes: Vec<u8>,
    flags: ContentFlags,
    acls: HashMap<u32, usize, FixedState>,
    sessions: Vec<i64>,
    digest: u64,
}

impl Writer {
    pub(super) fn new(has_quotas: bool) -> Self {
        let flags = ContentFlags { has_quotas, recount: false, has_sites: false };
        Self { bytes: Vec::from([0]), flags, acls: HashMap::default(), sessions: Vec::new(), digest: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The name of a znode that lives elsewhere, and whether something below it stays here: a quota in the
    /// subtree may have counted that.
    pub(super) fn away(&mut self, name: &[u8], has_more: bool) {
        self.flags.recount |= has_more;
        self.bytes.push(AWAY);
        put_bytes(&mut self.bytes, name);
    }

    /// A znode, with its part of the digest. As many nodes have to follow as it has children, each with all
    /// that is below it.
    pub(super) fn znode(&mut self, node: &Node, ext: &Ext, acls: &AclTable, digest: u64) {
        self.digest = self.digest.wrapping_add(digest);
        let kind = node.kind(ext);
        if let ZnodeKind::Ephemeral { session } = kind {
            self.sessions.push(session);
        }
        let has_ext = (ext.pzxid, ext.cversion, ext.aversion) != (node.czxid, 0, 0);
        let out = &mut self.bytes;
        let mark = (node.mark() != 0).then_some(node.mark());
        out.push(kind_bits(kind) | if has_ext { EXT } else { 0 } | if mark.is_some() { MARK } else { 0 });
        out.extend(mark);
        put_bytes(out, node.name_bytes());
        put_len(out, ext.num_children as usize);
        for number in [node.czxid, node.mzxid, node.ctime(), node.mtime()] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&node.version.to_le_bytes());
        if node.acl == acl::OPEN {
            put_len(out, 0);
        } else {
            let next = self.acls.len() + 1;
            let number = *self.acls.entry(node.acl).or_insert(next);
            put_len(out, number);
            if number == next {
                put_bytes(out, acls.encoded(node.acl));
            }
        }
        if has_ext {
            out.extend_from_slice(&ext.pzxid.to_le_bytes());
            out.extend_from_slice(&ext.cversion.to_le_bytes());
            out.extend_from_slice(&ext.aversion.to_le_bytes());
        }
        if let ZnodeKind::Ephemeral { .. } | ZnodeKind::Ttl { .. } = kind {
            out.extend_from_slice(&ext.owner.to_le_bytes());
        }
        put_nullable(out, node.data());
    }

    /// The sessions that own something in it.
    pub(super) fn sessions(&mut self) -> &[i64] {
        self.sessions.sort_unstable();
        self.sessions.dedup();
        &self.sessions
    }

    /// All znodes are there: what of sites moves with them.
    pub(super) fn of_sites(&mut self, moved: &MovedOfSites) {
        self.flags.has_sites = true;
        moved.encode(&mut self.bytes);
    }

    /// The content, the sessions that own something in it, and its digest.
    pub(super) fn end(mut self) -> (Vec<u8>, Vec<i64>, u64) {
        self.sessions();
        let Self { mut bytes, flags, sessions, digest, .. } = self;
        let quotas = if flags.has_quotas { QUOTAS } else { 0 };
        let recount = if flags.recount { RECOUNT } else { 0 };
        let sites = if flags.has_sites { SITES } else { 0 };
        bytes[0] = quotas | recount | sites;
        bytes.extend_from_slice(&digest.to_le_bytes());
        (bytes, sessions, digest)
    }
}

/// A node of a content; without a znode it lives elsewhere.
pub(super) struct NodeRecord<'a> {
    pub(super) name: &'a str,
    pub(super) mark: u8,
    pub(super) znode: Option<MovedZnode<'a>>,
}

pub(super) struct MovedZnode<'a> {
    pub(super) children: usize,
    pub(super) kind: ZnodeKind,
    pub(super) acl: OpAcl<'a>,
    pub(super) pzxid: i64,
    pub(super) cversion: i32,
    pub(super) aversion: i32,
    czxid: i64,
    mzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    data: Option<&'a [u8]>,
}

impl MovedZnode<'_> {
    /// The znode without its ACL and its kind.
    pub(super) fn node(&self, name: &str) -> Node {
        let mut node = Node::new(name, self.data, self.czxid, self.ctime);
        node.mzxid = self.mzxid;
        node.set_mtime(self.mtime);
        node.version = self.version;
        node
    }

    /// Whether it has nothing for which an [`Ext`] is needed, but perhaps its kind.
    pub(super) fn is_plain(&self) -> bool {
        (self.pzxid, self.cversion, self.aversion) == (self.czxid, 0, 0)
    }
}

/// Reads a content that may be anything: what it needs in memory is in proportion to what was read.
pub(super) struct ContentReader<'a> {
    decoder: Decoder<'a>,
    acls: Vec<OpAcl<'a>>,
}

impl<'a> ContentReader<'a> {
    pub(super) fn new(content: &'a [u8]) -> Result<(ContentFlags, Self), Reason> {
        let mut decoder = Decoder::new(content);
        let bits = decoder.u8()?;
        if bits & !(QUOTAS | RECOUNT | SITES) != 0 {
            return Err("a subtree has an unknown flag");
        }
        let flags = ContentFlags {
            has_quotas: bits & QUOTAS != 0,
            recount: bits & RECOUNT != 0,
            has_sites: bits & SITES != 0,
        };
        Ok((flags, Self { decoder, acls: Vec::new() }))
    }

    pub(super) fn node(&mut self) -> Result<NodeRecord<'a>, Reason> {
        let flags = self.decoder.u8()?;
        if flags & !(KINDS | AWAY | EXT | MARK) != 0 || (flags & AWAY != 0 && flags != AWAY) {
            return Err("a znode has an unknown flag");
        }
        let mark = if flags & MARK == 0 { 0 } else { self.decoder.u8()? };
        if mark > SITE_MAX {
            return Err("a site is out of range");
        }
        let name = core::str::from_utf8(self.decoder.bytes()?).map_err(|_| "a name is not UTF-8")?;
        if name.is_empty() || name.contains('/') {
            return Err(BAD_NAME);
        }
        let znode = if flags == AWAY { None } else { Some(self.znode(flags)?) };
        Ok(NodeRecord { name, mark, znode })
    }

    fn znode(&mut self, flags: u8) -> Result<MovedZnode<'a>, Reason> {
        let children = self.decoder.len()?;
        let (czxid, mzxid) = (self.decoder.i64()?, self.decoder.i64()?);
        let (ctime, mtime) = (self.decoder.i64()?, self.decoder.i64()?);
        let version = self.decoder.i32()?;
        let acl = self.acl()?;
        let (pzxid, cversion, aversion) = if flags & EXT == 0 {
            (czxid, 0, 0)
        } else {
            (self.decoder.i64()?, self.decoder.i32()?, self.decoder.i32()?)
        };
        let kind = self.decoder.kind(flags, Decoder::i64)?;
        if children > 0 && matches!(kind, ZnodeKind::Ephemeral { .. }) {
            return Err("an ephemeral has children");
        }
        let data = self.decoder.nullable()?;
        Ok(MovedZnode {
            children,
            kind,
            acl,
            pzxid,
            cversion,
            aversion,
            czxid,
            mzxid,
            ctime,
            mtime,
            version,
            data,
        })
    }

    fn acl(&mut self) -> Result<OpAcl<'a>, Reason> {
        let number = self.decoder.len()?;
        if number == self.acls.len() + 1 {
            let bytes = self.decoder.bytes()?;
            let acl = self.decoder.acl(bytes)?;
            self.acls.push(acl);
        }
        match number.checked_sub(1) {
            None => Ok(None),
            Some(at) => self.acls.get(at).copied().ok_or("a znode has an ACL that is missing"),
        }
    }

    /// What of sites moves with the znodes, behind all of them.
    pub(super) fn of_sites(&mut self, flags: ContentFlags) -> Result<Option<MovedOfSites>, Reason> {
        if flags.has_sites { MovedOfSites::decode(&mut self.decoder).map(Some) } else { Ok(None) }
    }

    /// The digest, if nothing but that is left.
    pub(super) fn end(mut self) -> Result<u64, Reason> {
        let digest = u64::from_le_bytes(self.decoder.array()?);
        if self.decoder.is_at_end() { Ok(digest) } else { Err("bytes follow a subtree") }
    }
}
