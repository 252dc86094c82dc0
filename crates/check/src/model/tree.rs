//! The state: znodes by path, sessions by id.

use super::acl::{self, Identity};
use super::watches::{ConnectionKey, parent_of};
use std::collections::BTreeMap;
use std::rc::Rc;
use stoa_wire::{ErrorCode, EventKind, Stat, perms};

pub(crate) use super::acl::Entry;

/// Most milliseconds that a TTL can have.
pub(super) const TTL_MAX_MS: i64 = (1 << 40) - 1;

/// How long a znode lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Until deleted.
    Persistent,
    /// As long as a session.
    Ephemeral(i64),
    /// Until it has become empty.
    Container,
    /// Until it has not changed for so many milliseconds, and is empty.
    Ttl(i64),
}

impl Kind {
    /// As the field `ephemeralOwner` shows it: clients see sessions only.
    pub(crate) fn owner(self) -> i64 {
        match self {
            Self::Ephemeral(session) => session,
            Self::Persistent | Self::Container | Self::Ttl(_) => 0,
        }
    }
}

/// A znode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its data; null is kept apart from empty.
    pub(crate) data: Option<Vec<u8>>,
    /// Its ACL.
    pub(crate) acl: Rc<Vec<Entry>>,
    /// How long it lives.
    pub(crate) kind: Kind,
    /// The names of its children, in the order of their creation.
    pub(crate) children: Vec<String>,
    /// How many children were ever created.
    pub(crate) creates: i32,
    pub(super) czxid: i64,
    pub(super) mzxid: i64,
    pub(super) pzxid: i64,
    pub(super) ctime: i64,
    /// Time of the last change of the data.
    pub(crate) mtime: i64,
    pub(super) version: i32,
    pub(super) aversion: i32,
}

impl Node {
    /// The node as a client sees it.
    pub(crate) fn stat(&self) -> Stat {
        let children = self.children.len() as i32;
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.creates.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: self.kind.owner(),
            data_length: self.data.as_ref().map_or(0, Vec::len) as i32,
            num_children: children,
            pzxid: self.pzxid,
        }
    }

    fn built_in(acl: Vec<Entry>, aversion: i32) -> Self {
        Self {
            data: Some(Vec::new()),
            acl: Rc::new(acl),
            kind: Kind::Persistent,
            children: Vec::new(),
            creates: 0,
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            aversion,
        }
    }
}

/// A session, as far as it survives a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// The timeout that its client was granted last, milliseconds.
    pub(crate) timeout_ms: i32,
    /// Its password, once somebody has seen it.
    pub(crate) password: Option<[u8; 16]>,
    /// The connection that speaks for it.
    pub(crate) connection: ConnectionKey,
    /// The server's number for the request with which it came there.
    pub(crate) opening: u64,
}

/// What watchers are told.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(super) kind: EventKind,
    pub(super) path: String,
    pub(super) acl: Rc<Vec<Entry>>,
    pub(super) parent_acl: Rc<Vec<Entry>>,
}

/// How to take back a step of a multi that fails later.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Created(String),
    /// And where it was among the children.
    Removed(String, Node, usize),
    /// Everything but the children.
    Was(String, Node),
}

/// The whole state.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) sessions: BTreeMap<i64, Session>,
    pub(super) zxid: i64,
    pub(super) undo: Vec<Undo>,
    pub(super) enforces_quota: bool,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// What a server begins with.
    pub(crate) fn new() -> Self {
        let open = || Node::built_in(acl::world(perms::ALL), 0);
        let mut root = open();
        root.children.push("zookeeper".into());
        let mut zookeeper = open();
        zookeeper.children.extend(["quota".into(), "config".into()]);
        let config = Node::built_in(acl::world(perms::READ), -1);
        let nodes = [
            ("/", root),
            ("/zookeeper", zookeeper),
            ("/zookeeper/quota", open()),
            ("/zookeeper/config", config),
        ];
        Self {
            nodes: nodes.into_iter().map(|(path, node)| (path.into(), node)).collect(),
            sessions: BTreeMap::new(),
            zxid: 0,
            undo: Vec::new(),
            enforces_quota: false,
        }
    }

    /// Refuse what would pass the hard limit of a quota.
    pub(crate) fn enforce_quota(&mut self, enforce: bool) {
        self.enforces_quota = enforce;
    }

    /// The zxid of the last update.
    pub(crate) fn zxid(&self) -> i64 {
        self.zxid
    }

    /// Every znode, in the order of the paths.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// How many znodes there are.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The live sessions.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.sessions.iter().map(|(&id, session)| (id, session))
    }

    /// One live session.
    pub(crate) fn session(&self, id: i64) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// The ephemeral znodes of a session.
    pub(crate) fn ephemerals_of(&self, session: i64) -> impl Iterator<Item = &str> {
        let owned = move |node: &Node| node.kind == Kind::Ephemeral(session);
        self.nodes.iter().filter(move |(_, node)| owned(node)).map(|(path, _)| path.as_str())
    }

    /// Notes the password that a client was given.
    pub(crate) fn learn_password(&mut self, session: i64, password: [u8; 16]) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.password = Some(password);
        }
    }

    /// Whether the server may delete this znode by itself now.
    pub(crate) fn is_reapable(&self, path: &str, now_ms: i64) -> bool {
        self.nodes.get(path).is_some_and(|node| {
            let due = match node.kind {
                Kind::Container => node.creates > 0,
                Kind::Ttl(ms) => now_ms - node.mtime > ms,
                _ => false,
            };
            due && node.children.is_empty()
        })
    }

    /// Whether a znode is empty and of a kind that the server may delete.
    pub(crate) fn may_be_reaped(&self, path: &str) -> bool {
        self.nodes.get(path).is_some_and(|node| node.kind == Kind::Container && node.children.is_empty())
    }

    /// Whether what a connection asks is asked for the session.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_contact(&self, session: i64, connection: ConnectionKey) -> Result<(), ErrorCode> {
        match self.sessions.get(&session) {
            None => Err(ErrorCode::SessionExpired),
            Some(session) if session.connection != connection => Err(ErrorCode::SessionMoved),
            Some(_) => Ok(()),
        }
    }

    /// What a session may do at all.
    pub(super) fn check_session(&self, session: i64) -> Result<(), ErrorCode> {
        if self.sessions.contains_key(&session) { Ok(()) } else { Err(ErrorCode::SessionExpired) }
    }

    pub(super) fn existing(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.nodes.get(path).ok_or(ErrorCode::NoNode)
    }

    pub(super) fn permitted(&self, path: &str, perms: i32, who: &[Identity]) -> Result<&Node, ErrorCode> {
        let node = self.existing(path)?;
        if acl::permits(&node.acl, perms, who) { Ok(node) } else { Err(ErrorCode::NoAuth) }
    }

    /// A znode about to be changed in everything but its children.
    pub(super) fn changing(&mut self, path: &str) -> &mut Node {
        let node = self.nodes.get_mut(path).expect("only existing znodes are changed");
        let children = std::mem::take(&mut node.children);
        self.undo.push(Undo::Was(path.into(), node.clone()));
        node.children = children;
        node
    }

    pub(super) fn insert(&mut self, path: &str, node: Node, changes: &mut Vec<Change>) {
        let parent_path = parent_of(path);
        let parent = self.changing(parent_path);
        parent.creates += 1;
        parent.pzxid = node.czxid;
        parent.children.push(name_of(path).into());
        changes.push(Change {
            kind: EventKind::Created,
            path: path.into(),
            acl: Rc::clone(&node.acl),
            parent_acl: Rc::clone(&parent.acl),
        });
        self.undo.push(Undo::Created(path.into()));
        let bytes = node.data.as_ref().map_or(0, Vec::len) as i64;
        self.nodes.insert(path.into(), node);
        self.count_for_quota(path, 1, bytes);
    }

    pub(super) fn remove(&mut self, path: &str, zxid: i64, changes: &mut Vec<Change>) {
        let parent = self.changing(parent_of(path));
        parent.pzxid = zxid;
        let at = place_of(path, parent);
        parent.children.remove(at);
        let parent_acl = Rc::clone(&parent.acl);
        let node = self.nodes.remove(path).expect("only existing znodes are removed");
        let acl = Rc::clone(&node.acl);
        changes.push(Change { kind: EventKind::Deleted, path: path.into(), acl, parent_acl });
        let bytes = node.data.as_ref().map_or(0, Vec::len) as i64;
        self.undo.push(Undo::Removed(path.into(), node, at));
        self.count_for_quota(path, -1, -bytes);
    }

    /// Takes back everything since the undo list was last emptied.
    pub(super) fn roll_back(&mut self) {
        while let Some(step) = self.undo.pop() {
            match step {
                Undo::Created(path) => {
                    self.nodes.remove(&path);
                    let parent = self.nodes.get_mut(parent_of(&path)).expect("a created znode has a parent");
                    parent.children.pop();
                }
                Undo::Removed(path, node, at) => {
                    let parent = self.nodes.get_mut(parent_of(&path)).expect("a removed znode had a parent");
                    parent.children.insert(at, name_of(&path).into());
                    self.nodes.insert(path, node);
                }
                Undo::Was(path, before) => {
                    let node = self.nodes.get_mut(&path).expect("a changed znode is there");
                    let children = std::mem::take(&mut node.children);
                    *node = Node { children, ..before };
                }
            }
        }
    }
}

/// Where a child is among the children.
fn place_of(path: &str, parent: &Node) -> usize {
    let at = parent.children.iter().position(|name| name == name_of(path));
    at.expect("a znode is a child of its parent")
}

/// The last component of a path.
pub(super) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}
