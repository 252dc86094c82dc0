//! The host over the tree: everything that a call does is one update, or none.

use crate::host::{CreateKind, Host, Object};
use alloc::string::String;
use alloc::vec::Vec;
use stoa_tree::{Caller, Part, PartOp, PartResult, ProposedZnode, Stamp, Tree};
use stoa_wire::{AclList, Create, CreateMode, ErrorCode, OPEN_ACL, Reader, Request};

/// The tree of one partition, for one call, in the name of its caller: its ACLs, quotas and session are
/// those that count.
///
/// A new znode has the ACL of its parent: so what a program makes is no more open than where it makes it.
#[derive(Debug)]
pub struct TreeHost<'t> {
    tree: &'t mut Tree,
    part: &'t mut Part,
    caller: Caller<'t>,
}

impl<'t> TreeHost<'t> {
    /// Everything that a call does by way of this becomes a part of an update. Whoever has begun it takes it
    /// back, or takes back what the call has done, if the call fails.
    ///
    /// The tree has to know the contents of what was outstanding when the part began ([`Tree::note_contents`]).
    #[must_use]
    pub fn new(tree: &'t mut Tree, part: &'t mut Part, caller: Caller<'t>) -> Self {
        Self { tree, part, caller }
    }

    /// Lets `call` work on the tree. If it succeeds, what it has done is appended to `batch` as one update,
    /// which must be applied as any other; if not, the tree is as if nothing had been.
    ///
    /// # Errors
    /// That of the call.
    pub fn carry_out<T, E>(
        tree: &mut Tree,
        caller: Caller<'_>,
        stamp: Stamp,
        batch: &mut Vec<u8>,
        call: impl FnOnce(&mut TreeHost<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut part = tree.part_begin(stamp, caller.session);
        let result = call(&mut TreeHost::new(tree, &mut part, caller));
        match result {
            Ok(_) => tree.part_keep(part, batch),
            Err(_) => tree.part_undo(part),
        }
        result
    }

    /// The tree that it works on.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        self.tree
    }

    fn write(&mut self, request: &Request<'_>) -> Result<PartResult, ErrorCode> {
        self.tree.part_op(self.part, PartOp::Whole(request), &self.caller)
    }

    /// The ACL of what is created at a path, encoded.
    fn acl_of(&self, path: &str) -> Vec<u8> {
        // A sequential znode may have no name but its number.
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let parent = if parent.is_empty() { "/" } else { parent };
        let mut encoded = Vec::new();
        match self.tree.proposed_acl(parent) {
            Some(acl) => encoded.extend_from_slice(acl.encoded()),
            // The create is about to find that there is no parent.
            None => stoa_wire::Acl::encode_list(&mut encoded, OPEN_ACL.iter().copied()),
        }
        encoded
    }
}

fn object(znode: ProposedZnode<'_>) -> Object<'_> {
    Object {
        data: znode.data.unwrap_or_default(),
        version: znode.version,
        created: znode.czxid,
        modified: znode.mzxid,
        children: znode.num_children,
        owner: znode.ephemeral_owner,
    }
}

impl Host for TreeHost<'_> {
    fn exists(&mut self, path: &str) -> Result<bool, ErrorCode> {
        self.tree.proposed_exists(path, &self.caller)
    }

    fn read(&mut self, path: &str) -> Result<Object<'_>, ErrorCode> {
        self.tree.part_note_contents(self.part);
        self.tree.proposed_znode(path, &self.caller).map(object)
    }

    fn sub_objects(
        &mut self,
        path: &str,
        each: &mut dyn FnMut(&str, Object<'_>) -> bool,
    ) -> Result<(), ErrorCode> {
        self.tree.part_note_contents(self.part);
        self.tree.proposed_children(path, &self.caller, &mut |name, znode| each(name, object(znode)))
    }

    fn oldest<'h>(
        &'h mut self,
        path: &'h str,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(&'h str, Object<'h>)>, ErrorCode> {
        self.tree.part_note_contents(self.part);
        let oldest = self.tree.proposed_oldest(path, &self.caller, each)?;
        Ok(oldest.map(|(name, znode)| (name, object(znode))))
    }

    fn create(&mut self, path: &str, data: &[u8], kind: CreateKind) -> Result<String, ErrorCode> {
        let mode = match kind {
            CreateKind::Persistent => CreateMode::Persistent,
            CreateKind::Sequential => CreateMode::PersistentSequential,
            CreateKind::Ephemeral => CreateMode::Ephemeral,
        };
        let encoded = self.acl_of(path);
        let acl = AclList::decode(&mut Reader::new(&encoded)).map_err(|_| ErrorCode::InvalidAcl)?;
        let create = Create { path, data: Some(data), acl, flags: mode as i32, ttl_ms: 0 };
        match self.write(&Request::Create(create))? {
            PartResult::Created { path, .. } => Ok(path),
            _ => Err(ErrorCode::SystemError),
        }
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<(), ErrorCode> {
        self.write(&Request::Delete { path, version }).map(|_| ())
    }

    fn update(&mut self, path: &str, data: &[u8], version: i32) -> Result<i32, ErrorCode> {
        match self.write(&Request::SetData { path, data: Some(data), version })? {
            PartResult::DataSet { stat } => Ok(stat.version),
            _ => Err(ErrorCode::SystemError),
        }
    }
}
