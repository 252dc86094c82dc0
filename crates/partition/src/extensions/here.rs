//! What programs reach: the tree of one partition, as far as things live there.

use alloc::string::String;
use stoa_extension::{CreateKind, Host, Object, TreeHost};
use stoa_placement::Placement;
use stoa_tree::{Caller, Part, Tree};
use stoa_wire::ErrorCode;

/// The tree, without what lives on other partitions. That would be missing, or be a name only; here it is
/// refused, so that no program takes it for something that does not exist.
pub(super) struct HereHost<'t> {
    home: Option<&'t (Placement, u8)>,
    host: TreeHost<'t>,
}

impl<'t> HereHost<'t> {
    pub(super) fn new(
        home: &'t Option<(Placement, u8)>,
        tree: &'t mut Tree,
        part: &'t mut Part,
        caller: Caller<'t>,
    ) -> Self {
        Self { home: home.as_ref(), host: TreeHost::new(tree, part, caller) }
    }

    fn is_here(&self, path: &str) -> Result<(), ErrorCode> {
        match self.home {
            Some((placement, own)) if placement.of(path) != *own => Err(ErrorCode::Unimplemented),
            _ => Ok(()),
        }
    }

    /// What is created and deleted concerns the parent too.
    fn is_here_with_parent(&self, path: &str, is_sequential: bool) -> Result<(), ErrorCode> {
        let Some((placement, own)) = self.home else { return Ok(()) };
        let is_here = placement.of_created(path, is_sequential) == *own && placement.of_parent(path) == *own;
        if is_here { Ok(()) } else { Err(ErrorCode::Unimplemented) }
    }
}

impl Host for HereHost<'_> {
    fn exists(&mut self, path: &str) -> Result<bool, ErrorCode> {
        self.is_here(path)?;
        self.host.exists(path)
    }

    fn read(&mut self, path: &str) -> Result<Object<'_>, ErrorCode> {
        self.is_here(path)?;
        self.host.read(path)
    }

    fn sub_objects(
        &mut self,
        path: &str,
        each: &mut dyn FnMut(&str, Object<'_>) -> bool,
    ) -> Result<(), ErrorCode> {
        self.is_here(path)?;
        self.host.sub_objects(path, each)
    }

    fn oldest<'h>(
        &'h mut self,
        path: &'h str,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(&'h str, Object<'h>)>, ErrorCode> {
        self.is_here(path)?;
        self.host.oldest(path, each)
    }

    fn create(&mut self, path: &str, data: &[u8], kind: CreateKind) -> Result<String, ErrorCode> {
        self.is_here_with_parent(path, kind == CreateKind::Sequential)?;
        self.host.create(path, data, kind)
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<(), ErrorCode> {
        self.is_here_with_parent(path, false)?;
        self.host.delete(path, version)
    }

    fn update(&mut self, path: &str, data: &[u8], version: i32) -> Result<i32, ErrorCode> {
        self.is_here(path)?;
        self.host.update(path, data, version)
    }
}
