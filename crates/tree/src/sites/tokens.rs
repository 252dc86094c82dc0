//! What an operation needs.

use crate::prepare::parent_of;
use crate::reserved::{CONFIG_PATH, program_of};
use crate::sites::state::SiteId;
use crate::tree::Tree;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_wire::{Create, Request};

/// Calls `each` with the path of each znode whose token a write needs, or may need. Whoever does not hold all of them
/// must not prepare it, not even to refuse it.
///
/// | operation | token of |
/// | --- | --- |
/// | create of any kind | the parent: the name, the number of a sequential one and the count of children are its |
/// | delete, also of a container or TTL znode by the server | the znode: only its holder creates anything below it; of what stands below a program also the program, with which all of that goes |
/// | setData, setACL, check | the znode; none for what `/zookeeper/config` holds, which is each site's own |
/// | multi | all that its operations need, at one site |
/// | the end of a session | none: it is its home's, and its ephemerals with it |
/// | sync, and reads of what is newest | the znode, without taking it: its holder says when it has its turn there |
///
/// Where a quota has a hard limit, [`Tree::tokens_of`] says what is needed besides.
pub fn tokens_of<'a>(request: &Request<'a>, each: &mut impl FnMut(&'a str)) {
    match *request {
        // Each site has its own.
        Request::SetData { path: CONFIG_PATH, .. }
        | Request::Check { path: CONFIG_PATH, .. }
        | Request::Sync { path: CONFIG_PATH }
        | Request::GetData { path: CONFIG_PATH, .. } => {}
        Request::Create(create)
        | Request::Create2(create)
        | Request::CreateContainer(create)
        | Request::CreateTtl(create) => {
            // What has no parent is refused wherever it is asked.
            if let Ok(parent) = parent_of(create.path) {
                each(parent);
            }
        }
        Request::Delete { path, .. } => {
            each(path);
            program_of(path).into_iter().for_each(each);
        }
        Request::DeleteContainer { path }
        | Request::SetData { path, .. }
        | Request::SetAcl { path, .. }
        | Request::Check { path, .. } => each(path),
        Request::Sync { path }
        | Request::GetData { path, .. }
        | Request::Exists { path, .. }
        | Request::GetAcl { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetChildren2 { path, .. } => each(path),
        Request::Multi(ref ops) => ops.iter().for_each(|op| tokens_of(&op, each)),
        _ => {}
    }
}

impl Tree {
    /// The same, with what quotas need: what adds to a subtree with a hard limit needs the token of its top, too. So
    /// whatever was added there by others is known here, and no more is there than may be. What is taken away there may
    /// not be known yet: then more is refused than would have to be.
    pub fn tokens_of<'a>(&self, request: &Request<'a>, each: &mut impl FnMut(&'a str)) {
        tokens_of(request, each);
        self.quotas_of(request, each);
    }

    fn quotas_of<'a>(&self, request: &Request<'a>, each: &mut impl FnMut(&'a str)) {
        match *request {
            Request::Create(Create { path, .. })
            | Request::Create2(Create { path, .. })
            | Request::CreateContainer(Create { path, .. })
            | Request::CreateTtl(Create { path, .. })
            | Request::SetData { path, .. } => self.hard_quota_above(path).into_iter().for_each(each),
            Request::Multi(ref ops) => ops.iter().for_each(|op| self.quotas_of(&op, each)),
            _ => {}
        }
    }

    /// Which tokens a write needs that are not held here, once everything proposed has been applied, and who holds
    /// them, as far as is known here. Empty where it may be prepared.
    #[must_use]
    pub fn missing_tokens(&self, request: &Request<'_>) -> Vec<(String, SiteId)> {
        let mut missing = Vec::new();
        let Some(own) = self.own_site() else { return missing };
        self.tokens_of(request, &mut |path| {
            if let Some(holder) = self.holder_to_be(path).filter(|holder| *holder != own)
                && !missing.iter().any(|(known, _)| known == path)
            {
                missing.push((String::from(path), holder));
            }
        });
        missing
    }

    /// Whether all tokens that a write needs are held here.
    #[must_use]
    pub fn holds_tokens(&self, request: &Request<'_>) -> bool {
        let Some(own) = self.own_site() else { return true };
        let mut holds = true;
        self.tokens_of(request, &mut |path| holds = holds && self.holder_to_be(path) == Some(own));
        holds
    }
}
