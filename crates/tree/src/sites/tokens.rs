//! What an operation needs.

use crate::prepare::parent_of;
use crate::reserved::{CONFIG_PATH, program_of};
use crate::sites::names::SiteId;
use crate::tree::Tree;
use alloc::collections::BTreeSet;
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
        if let Some(path) = self.sole_token(request) {
            return each(path);
        }
        tokens_of(request, each);
        self.quotas_of(request, each);
    }

    /// The one token that a setData needs where no quota limits it. That is most of what is asked.
    #[inline]
    pub(super) fn sole_token<'a>(&self, request: &Request<'a>) -> Option<&'a str> {
        match *request {
            Request::SetData { path, .. } if path != CONFIG_PATH => {
                self.hard_quota_above(path).is_none().then_some(path)
            }
            _ => None,
        }
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

    /// Which tokens a request needs that are not here, once everything proposed has been applied, as far as is known
    /// here. None is missing where it may be prepared.
    #[must_use]
    pub fn lacked_tokens(&self, request: &Request<'_>) -> LackedTokens {
        let mut lacked = LackedTokens::default();
        let only_reads = only_reads(request);
        if self.own_site().is_some() && !self.holds_tokens(request) {
            self.tokens_of(request, &mut |path| lacked.need(self, path, only_reads));
        }
        lacked
    }

    /// The same of those that are of one partition, where a site has several.
    #[must_use]
    pub fn lacked_of(&self, request: &Request<'_>, is_own: impl Fn(&str) -> bool) -> LackedTokens {
        let mut lacked = LackedTokens::default();
        let only_reads = only_reads(request);
        self.tokens_of(request, &mut |path| {
            if is_own(path) {
                lacked.need(self, path, only_reads);
            }
        });
        lacked
    }

    /// Whether all tokens that a request needs are here.
    #[must_use]
    pub fn holds_tokens(&self, request: &Request<'_>) -> bool {
        if self.own_site().is_none() {
            return true;
        }
        let (mut holds, only_reads) = (true, only_reads(request));
        self.tokens_of(request, &mut |path| {
            holds = holds && if only_reads { self.may_read_newest(path) } else { self.may_write(path) };
        });
        holds
    }
}

/// Whether a request changes nothing, so that a read token does for it.
fn only_reads(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Sync { .. }
            | Request::GetData { .. }
            | Request::Exists { .. }
            | Request::GetAcl { .. }
            | Request::GetChildren { .. }
            | Request::GetChildren2 { .. }
    )
}

/// The tokens of a request that is not prepared, as some of them are not here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LackedTokens {
    /// The znodes whose tokens it needs.
    pub needed: BTreeSet<String>,
    /// Those that other sites hold, and who.
    pub missing: Vec<(String, SiteId)>,
    /// Of these, those of ephemerals: they stay where their sessions are.
    pub stays: BTreeSet<String>,
    /// At the hub: those of which sites have read tokens, and who. They are to be returned first.
    pub read: Vec<(String, SiteId)>,
}

impl LackedTokens {
    /// What a request lacks on another partition of this site, too.
    pub fn merge(&mut self, mut other: Self) {
        self.needed.append(&mut other.needed);
        self.missing.append(&mut other.missing);
        self.stays.append(&mut other.stays);
        self.read.append(&mut other.read);
    }

    /// Whether all are here.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.missing.is_empty() && self.read.is_empty()
    }

    /// The token of a znode is needed, maybe only to read what is newest.
    pub fn need(&mut self, tree: &Tree, path: &str, only_reads: bool) {
        let Some(own) = tree.own_site() else { return };
        if !self.needed.insert(String::from(path)) || only_reads && tree.may_read_newest(path) {
            return;
        }
        let is_read = !only_reads && tree.is_read_to_be(path);
        match (tree.holder_to_be(path), tree.hub()) {
            (_, Some(hub)) if is_read && own == hub => {
                self.read.extend(tree.readers_to_be(path).map(|reader| (String::from(path), reader)));
            }
            // Who has it with something above asks the hub all the same.
            (_, Some(hub)) if is_read => self.missing.push((String::from(path), hub)),
            (Some(holder), _) if holder != own => {
                self.missing.push((String::from(path), holder));
                if tree.is_ephemeral_to_be(path) {
                    self.stays.insert(String::from(path));
                }
            }
            _ => {}
        }
    }
}
