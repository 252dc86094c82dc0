//! Who holds what.

use crate::node::{ROOT_ID, ZnodeKind};
use crate::reserved::ROOT;
use crate::sites::names::{NO_SITE, SiteId, site_of_session};
use crate::tree::{Found, Tree};
use stoa_wire::{Request, path};

impl Tree {
    /// Whether there are sites, and which one this is.
    #[must_use]
    pub fn own_site(&self) -> Option<SiteId> {
        Some(self.sites.own).filter(|own| *own != NO_SITE)
    }

    /// Which site is the hub, where there are sites.
    #[must_use]
    pub fn hub(&self) -> Option<SiteId> {
        self.own_site().map(|_| self.sites.hub)
    }

    /// Which site holds the token of the znode at a path, or would, if there were one; `None` where there are no sites.
    #[must_use]
    pub fn holder(&self, path: &str) -> Option<SiteId> {
        self.own_site()?;
        let (at, id) = self.find_levels(path).last().unwrap_or(("/", ROOT_ID));
        if at == path && self.nodes[id].is_ephemeral() {
            return Some(self.home_of(self.ext_of(&self.nodes[id]).owner));
        }
        Some(if self.sites.divided.marks.is_empty() { self.marked_above(id).0 } else { self.mark_of(path).0 })
    }

    /// The path whose mark says who holds the token of what is at a path, at or above it; `None` where no mark does: there
    /// are no sites, or it is an ephemeral, which is its session's.
    #[must_use]
    pub fn marked_at<'a>(&self, path: &'a str) -> Option<&'a str> {
        self.own_site()?;
        let (at, id) = self.find_levels(path).last().unwrap_or(("/", ROOT_ID));
        if at == path && self.nodes[id].is_ephemeral() {
            return None;
        }
        if !self.sites.divided.marks.is_empty() {
            return Some(self.mark_of(path).1);
        }
        let (_, above) = self.marked_above(id);
        Some(&path[..self.level_len(at, id, above)])
    }

    /// The holder once everything proposed has been applied: who may prepare what needs that token.
    #[must_use]
    pub fn holder_to_be(&self, path: &str) -> Option<SiteId> {
        self.own_site()?;
        let hash = self.hasher.path(path);
        if let Some(holder) = self.holder_of_settled(path, hash) {
            debug_assert_eq!(
                holder,
                self.holder_looked_for(path, hash),
                "one lookup finds what all of them do"
            );
            return Some(holder);
        }
        Some(self.holder_looked_for(path, hash))
    }

    /// The same in the usual case, with a single lookup. `None` says nothing.
    #[inline]
    fn holder_of_settled(&self, path: &str, hash: u32) -> Option<SiteId> {
        let id = self.find_settled(path, hash)?;
        Some(self.marked_above(id).0)
    }

    /// What is at a path, if its mark, or one above it, says who holds its token and will hold it: there is a znode that is
    /// no ephemeral, nothing proposed gives tokens away or is about ephemerals, and nothing was moved.
    #[inline]
    fn find_settled(&self, path: &str, hash: u32) -> Option<u32> {
        let is_plain = self.overlay.tokens.is_empty() && self.sites.divided.marks.is_empty();
        if !is_plain || self.overlay.touches_ephemerals() {
            return None;
        }
        self.find_hashed(path, hash).filter(|id| !self.nodes[*id].is_ephemeral())
    }

    /// The same in all cases.
    fn holder_looked_for(&self, path: &str, hash: u32) -> SiteId {
        if let Some(state) = self.project(path, hash)
            && let ZnodeKind::Ephemeral { session } = state.kind
        {
            return self.home_to_be(session);
        }
        if self.overlay.tokens.is_empty() {
            let (_, id) = self.find_levels(path).last().unwrap_or((ROOT, ROOT_ID));
            let is_whole = self.sites.divided.marks.is_empty();
            return if is_whole { self.marked_above(id).0 } else { self.mark_of(path).0 };
        }
        let mut holder = self.marked_above(ROOT_ID).0;
        for (at, mark) in self.marks_on(path) {
            let mark = self.overlay.tokens.mark(at).unwrap_or(mark);
            holder = if mark == NO_SITE { holder } else { mark };
        }
        holder
    }

    /// Whether the token of what is at a path leaves this site: that is proposed, and not applied. Where the mark that says
    /// that it is here will be gone with its znode, none is on its way.
    #[must_use]
    pub fn is_leaving(&self, path: &str) -> bool {
        let own = self.own_site();
        let is_gone = |(at, _): (&str, SiteId)| self.overlay.tokens.mark(at) == Some(NO_SITE);
        let leaves = own.is_some() && self.holder(path) == own && self.holder_to_be(path) != own;
        leaves && !self.marks_on(path).any(is_gone)
    }

    /// The mark of the znode at a path, or none, once everything proposed has been applied.
    pub(super) fn mark_to_be(&self, path: &str) -> SiteId {
        self.overlay.tokens.mark(path).unwrap_or_else(|| self.own_mark(path))
    }

    /// The znode at a path will be gone, and its mark with it: who holds what comes in its place is who holds its parent.
    pub(crate) fn mark_will_be_gone(&mut self, path: &str, zxid: i64) {
        if self.sites.are_there() && self.mark_to_be(path) != NO_SITE {
            self.overlay.touch_mark(zxid, path, NO_SITE);
        }
    }

    /// Whether a site may read what is newest of a znode without asking, once everything proposed has been applied.
    pub(super) fn reads_to_be(&self, path: &str, site: SiteId) -> bool {
        let applied = || self.sites.read_tokens.given(path, site).is_some();
        self.overlay.tokens.reads(path, site).unwrap_or_else(applied)
    }

    /// Whether any site may, so that nobody may write it.
    pub(super) fn is_read_to_be(&self, path: &str) -> bool {
        if self.sites.read_tokens.is_empty() && self.overlay.tokens.is_empty() {
            return false;
        }
        self.readers_to_be(path).next().is_some()
    }

    pub(super) fn readers_to_be(&self, path: &str) -> impl Iterator<Item = SiteId> {
        let tokens = &self.overlay.tokens;
        let applied = self.sites.read_tokens.of(path).into_iter().flatten().map(|(site, _)| *site);
        let applied = applied.filter(move |site| tokens.reads(path, *site).is_none());
        applied.chain(tokens.readers(path).filter(|(_, has)| *has).map(|(site, _)| site))
    }

    /// The sites that read what is newest of a znode without asking; nobody writes it before they have returned that.
    pub fn readers(&self, path: &str) -> impl Iterator<Item = SiteId> {
        self.sites.read_tokens.of(path).into_iter().flatten().map(|(site, _)| *site)
    }

    /// Whether what needs a znode's token may be prepared here, once everything proposed has been applied.
    #[must_use]
    pub fn may_write(&self, path: &str) -> bool {
        self.own_site().is_none_or(|own| self.holder_to_be(path) == Some(own) && !self.is_read_to_be(path))
    }

    /// Whether what needs a znode's token may be prepared here in the usual case, which is found out with a single lookup.
    /// Where it may, that is of use to whoever prepares it. `None` says nothing.
    #[must_use]
    #[inline]
    pub fn find_held<'a>(&self, request: &Request<'a>) -> Option<Found<'a>> {
        let own = self.own_site()?;
        let path = self.sole_token(request)?;
        let hash = self.hasher.path(path);
        let id = self.find_settled(path, hash).filter(|id| !self.nodes[*id].is_absent())?;
        // Nothing is proposed of read tokens either.
        let is_read = !self.sites.read_tokens.is_empty() && self.is_read_to_be(path);
        let is_held = self.marked_above(id).0 == own && !is_read;
        is_held.then_some(Found { path, hash, id, zxid: self.last_zxid() })
    }

    /// Whether what is newest of a znode can be read here, once everything proposed has been applied.
    #[must_use]
    pub fn may_read_newest(&self, path: &str) -> bool {
        let reads = |own| self.holder_to_be(path) == Some(own) || self.reads_to_be(path, own);
        self.own_site().is_none_or(reads)
    }

    /// Whether there will be an ephemeral at a path, once everything proposed has been applied.
    #[must_use]
    pub fn is_ephemeral_to_be(&self, path: &str) -> bool {
        let state = self.project(path, self.hasher.path(path));
        state.is_some_and(|state| matches!(state.kind, ZnodeKind::Ephemeral { .. }))
    }

    /// The home of a session: the site where its client is, or was last. One that is not known is being created here.
    #[must_use]
    pub fn home_of(&self, session: i64) -> SiteId {
        match self.sessions.get(session) {
            Some(session) => session.home,
            // It is on its way out, and so may be what was created for it here.
            None => self.sites.ended.zxid(session).map_or(self.sites.own, |end| self.sites.maker_of(end)),
        }
    }

    /// The same, once everything proposed has been applied.
    #[must_use]
    pub fn home_to_be(&self, session: i64) -> SiteId {
        self.overlay.tokens.home(session).unwrap_or_else(|| self.home_of(session))
    }

    /// Who is to be asked for a session that a client brings: its home, or the site that has made it, if nothing is known
    /// of it here. Where it has ended that is this one, and there is none.
    #[must_use]
    pub fn home_to_ask(&self, session: i64) -> SiteId {
        let is_known = self.proposed_session(session).is_some() || self.sites.ended.zxid(session).is_some();
        match site_of_session(session) {
            NO_SITE => self.home_to_be(session),
            _ if is_known && self.sites.ended.zxid(session).is_none() => self.home_to_be(session),
            _ if is_known => self.sites.own,
            made_by => made_by,
        }
    }

    /// The mark that counts for a node, and the node that has it.
    fn marked_above(&self, mut id: u32) -> (SiteId, u32) {
        loop {
            let node = &self.nodes[id];
            match node.mark() {
                NO_SITE if id != ROOT_ID => id = node.parent,
                NO_SITE => return (self.sites.divided.root_mark, id),
                mark => return (mark, id),
            }
        }
    }

    /// The same where znodes that live on other partitions have marks here: the mark that counts for what is at a path, and
    /// the path that has it.
    fn mark_of<'a>(&self, path: &'a str) -> (SiteId, &'a str) {
        let root = (self.marked_above(ROOT_ID).0, ROOT);
        let marks = self.marks_on(path).filter(|(at, mark)| *at != ROOT && *mark != NO_SITE);
        marks.last().map_or(root, |(at, mark)| (mark, at))
    }

    /// The marks of what is at a path and above it, from the root down, in one pass over the path: none where there is
    /// none, or nothing.
    fn marks_on<'p>(&self, path: &'p str) -> impl Iterator<Item = (&'p str, SiteId)> {
        let mut above = Some(ROOT_ID);
        self.hasher.levels(path).map(move |(at, hash)| {
            if let Some((_, name)) = path::split(at) {
                above = above.and_then(|parent| self.child_hashed(parent, name.as_bytes(), hash));
            }
            let known = above.filter(|id| !self.nodes[*id].is_absent()).map(|id| self.nodes[id].mark());
            let moved = || self.sites.divided.marks.get(at).copied();
            (at, known.or_else(moved).unwrap_or(NO_SITE))
        })
    }

    /// The mark of the znode at a path, wherever that lives if it is known here.
    pub(super) fn own_mark(&self, path: &str) -> SiteId {
        match self.lookup(path) {
            Some(id) => self.nodes[id].mark(),
            None => self.sites.divided.marks.get(path).copied().unwrap_or(NO_SITE),
        }
    }

    /// Whether the znode at a path has something below it that was moved by itself: who holds it is known to all
    /// partitions.
    pub(super) fn is_split(&self, path: &str) -> bool {
        self.placed().is_above(path)
    }

    /// How long the path of a node is that is `at`, or above it.
    fn level_len(&self, at: &str, mut id: u32, above: u32) -> usize {
        let mut len = at.len();
        while id != above {
            len -= self.nodes[id].name_bytes().len() + 1;
            id = self.nodes[id].parent;
        }
        len.max(1)
    }

    /// Marks a znode.
    pub(super) fn set_mark(&mut self, id: u32, path_digest: u64, site: SiteId) {
        if self.nodes[id].is_absent() {
            // The root lives on another partition, and has its mark there, too.
            self.sites.divided.root_mark = site;
            return;
        }
        self.before_change(id, path_digest);
        self.nodes[id].set_mark(site);
        self.after_change(id, path_digest);
    }
}
