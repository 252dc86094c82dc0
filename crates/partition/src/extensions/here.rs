//! What programs reach: the tree of one partition, as far as things live there.

use super::tokens::NeededTokens;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_extension::{CreateKind, Host, Object, TreeHost};
use stoa_placement::Placement;
use stoa_tree::{Caller, Part, Tree};
use stoa_wire::ErrorCode;
use stoa_wire::path::split;

/// The tree, without what lives on other partitions. That would be missing, or be a name only; here it is
/// refused, so that no program takes it for something that does not exist. Where there are several sites it notes
/// which tokens that takes.
pub(super) struct HereHost<'t> {
    home: Option<&'t (Placement, u8)>,
    tokens: &'t mut NeededTokens,
    host: TreeHost<'t>,
}

impl<'t> HereHost<'t> {
    pub(super) fn new(
        home: &'t Option<(Placement, u8)>,
        tokens: &'t mut NeededTokens,
        tree: &'t mut Tree,
        part: &'t mut Part,
        caller: Caller<'t>,
    ) -> Self {
        Self { home: home.as_ref(), tokens, host: TreeHost::new(tree, part, caller) }
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

    fn needs_to_read(&mut self, path: &str) {
        self.tokens.need_to_read(self.host.tree(), path);
    }
}

impl Host for HereHost<'_> {
    fn exists(&mut self, path: &str) -> Result<bool, ErrorCode> {
        self.is_here(path)?;
        self.needs_to_read(path);
        self.host.exists(path)
    }

    fn read(&mut self, path: &str) -> Result<Object<'_>, ErrorCode> {
        self.is_here(path)?;
        self.needs_to_read(path);
        self.host.read(path)
    }

    fn sub_objects(
        &mut self,
        path: &str,
        each: &mut dyn FnMut(&str, Object<'_>) -> bool,
    ) -> Result<(), ErrorCode> {
        self.is_here(path)?;
        self.needs_to_read(path);
        let is_of_sites = self.host.tree().own_site().is_some();
        let mut names = Vec::new();
        self.host.sub_objects(path, &mut |name, object| {
            names.extend(is_of_sites.then(|| String::from(name)));
            each(name, object)
        })?;
        self.tokens.need_children(self.host.tree(), path, &names);
        Ok(())
    }

    fn oldest<'h>(
        &'h mut self,
        path: &'h str,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(&'h str, Object<'h>)>, ErrorCode> {
        self.is_here(path)?;
        self.needs_to_read(path);
        if self.host.tree().own_site().is_none() {
            return self.host.oldest(path, each);
        }
        let Some((name, _)) = self.host.oldest(path, each)? else { return Ok(None) };
        let names = [String::from(name)];
        self.tokens.need_children(self.host.tree(), path, &names);
        // Each child was counted just now.
        self.host.oldest(path, &mut || true)
    }

    fn create(&mut self, path: &str, data: &[u8], kind: CreateKind) -> Result<String, ErrorCode> {
        self.is_here_with_parent(path, kind == CreateKind::Sequential)?;
        if let Some((parent, _)) = split(path) {
            self.tokens.need_with_quota(self.host.tree(), parent, path);
        }
        let created = self.host.create(path, data, kind)?;
        self.tokens.make(self.host.tree(), &created);
        Ok(created)
    }

    fn delete(&mut self, path: &str, version: i32) -> Result<(), ErrorCode> {
        self.is_here_with_parent(path, false)?;
        // Each partition knows who holds something below which other things live elsewhere.
        let is_split = self.home.is_some_and(|(placement, _)| placement.is_split(path));
        if is_split && self.host.tree().own_site().is_some() {
            return Err(ErrorCode::Unimplemented);
        }
        self.tokens.need(self.host.tree(), path);
        self.host.delete(path, version)
    }

    fn update(&mut self, path: &str, data: &[u8], version: i32) -> Result<i32, ErrorCode> {
        self.is_here(path)?;
        self.tokens.need_with_quota(self.host.tree(), path, path);
        self.host.update(path, data, version)
    }
}
