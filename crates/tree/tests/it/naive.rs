//! A naive tree: a map from paths to znodes, every rule written down once more, slowly.

use crate::world::{Answer, Frame};
use std::collections::{BTreeMap, BTreeSet};
use stoa_tree::{Caller, ProposedZnode, Refusal, Tree, ZnodeKind};
use stoa_wire::{AclList, Create, CreateMode, ErrorCode, Request, Stat, path, perms};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NaiveZnode {
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) kind: ZnodeKind,
    pub(crate) acl: Vec<(i32, String, String)>,
    /// Its place among all that were ever created.
    number: usize,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    creates: i32,
    aversion: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Naive {
    pub(crate) znodes: BTreeMap<String, NaiveZnode>,
    pub(crate) sessions: BTreeSet<i64>,
    created: usize,
}

/// When and by whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) session: i64,
    pub(crate) zxid: i64,
    pub(crate) time_ms: i64,
}

type Answered = Result<Answer, ErrorCode>;

fn entries(list: AclList<'_>) -> Vec<(i32, String, String)> {
    let mut entries: Vec<_> = Vec::new();
    for entry in list.iter() {
        let entry = (entry.perms, String::from(entry.scheme), String::from(entry.id));
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries
}

impl Naive {
    pub(crate) fn new() -> Self {
        let open = vec![(perms::ALL, "world".to_string(), "anyone".to_string())];
        let znode = |acl: &Vec<(i32, String, String)>, aversion| NaiveZnode {
            data: Some(Vec::new()),
            kind: ZnodeKind::Persistent,
            acl: acl.clone(),
            number: 0,
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            creates: 0,
            aversion,
        };
        let mut naive = Self::default();
        for path in ["/", "/zookeeper", "/zookeeper/quota"] {
            naive.insert(path.into(), znode(&open, 0));
        }
        let read = vec![(perms::READ, "world".to_string(), "anyone".to_string())];
        naive.insert("/zookeeper/config".into(), znode(&read, -1));
        naive
    }

    fn insert(&mut self, path: String, znode: NaiveZnode) {
        self.created += 1;
        self.znodes.insert(path, NaiveZnode { number: self.created, ..znode });
    }

    /// In the order of their creation.
    fn children<'a>(&'a self, parent: &'a str) -> impl Iterator<Item = &'a String> {
        let is_child = |path: &&String| path::split(path).is_some_and(|(above, _)| above == parent);
        let mut children: Vec<&String> = self.znodes.keys().filter(is_child).collect();
        children.sort_by_key(|path| self.znodes[*path].number);
        children.into_iter()
    }

    pub(crate) fn stat(&self, path: &str) -> Stat {
        let znode = &self.znodes[path];
        let num_children = self.children(path).count() as i32;
        Stat {
            czxid: znode.czxid,
            mzxid: znode.mzxid,
            ctime: znode.ctime,
            mtime: znode.mtime,
            version: znode.version,
            cversion: znode.creates * 2 - num_children,
            aversion: znode.aversion,
            ephemeral_owner: match znode.kind {
                ZnodeKind::Ephemeral { session } => session,
                _ => 0,
            },
            data_length: znode.data.as_ref().map_or(0, Vec::len) as i32,
            num_children,
            pzxid: znode.pzxid,
        }
    }

    /// Compares with how a tree says that it will be.
    pub(crate) fn assert_proposed(&self, tree: &Tree) {
        for (path, znode) in &self.znodes {
            let stat = self.stat(path);
            let seen = tree.proposed_znode(path, &Caller::SERVER).unwrap();
            assert_eq!(seen.data, znode.data.as_deref(), "{path}");
            let numbers = (seen.version, seen.czxid, seen.mzxid, seen.ephemeral_owner, seen.num_children);
            let wanted = (stat.version, stat.czxid, stat.mzxid, stat.ephemeral_owner, stat.num_children);
            assert_eq!(numbers, (wanted.0, wanted.1, wanted.2, wanted.3, i64::from(wanted.4)), "{path}");
            let mut children = Vec::new();
            let mut each = |name: &str, child: ProposedZnode<'_>| {
                children.push((name.to_string(), child.data.map(<[u8]>::to_vec), child.czxid));
                true
            };
            tree.proposed_children(path, &Caller::SERVER, &mut each).unwrap();
            children.sort();
            let known = self.children(path).map(|child| {
                let (_, name) = path::split(child).unwrap();
                (name.to_string(), self.znodes[child].data.clone(), self.znodes[child].czxid)
            });
            let mut known: Vec<_> = known.collect();
            known.sort();
            assert_eq!(children, known, "{path}");
            let first = known.iter().min_by_key(|(name, _, czxid)| (*czxid, name));
            let mut looked_at = 0;
            let oldest = tree.proposed_oldest(path, &Caller::SERVER, &mut || {
                looked_at += 1;
                true
            });
            let oldest =
                oldest.unwrap().map(|(name, it)| (name.into(), it.data.map(<[u8]>::to_vec), it.czxid));
            assert_eq!((oldest.as_ref(), looked_at), (first, known.len()), "{path}");
        }
        for path in ["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/c/c"] {
            let there = self.znodes.contains_key(path);
            assert_eq!(tree.proposed_exists(path, &Caller::SERVER), Ok(there), "{path}");
            assert_eq!(tree.proposed_znode(path, &Caller::SERVER).is_ok(), there, "{path}");
        }
    }

    /// Carries out a request at once, or refuses it.
    pub(crate) fn execute(&mut self, frame: &Frame, at: At) -> Result<Vec<Answer>, Refusal> {
        match frame.request() {
            Request::Multi(ops) => {
                let before = self.clone();
                let mut answers = Vec::new();
                for (failed, op) in ops.iter().enumerate() {
                    match self.execute_op(&op, at) {
                        Ok(answer) => answers.push(answer),
                        Err(code) => {
                            *self = before;
                            return Err(Refusal::Multi { count: ops.len(), failed, code });
                        }
                    }
                }
                Ok(answers)
            }
            request => self.execute_op(&request, at).map(|answer| vec![answer]).map_err(Refusal::Error),
        }
    }

    pub(crate) fn create_session(&mut self, session: i64) {
        self.sessions.insert(session);
    }

    pub(crate) fn close_session(&mut self, session: i64, zxid: i64) {
        self.sessions.remove(&session);
        let owned: Vec<String> = (self.znodes.iter())
            .filter(|(_, znode)| znode.kind == ZnodeKind::Ephemeral { session })
            .map(|(path, _)| path.clone())
            .collect();
        for path in owned {
            self.remove(&path, zxid);
        }
    }

    fn remove(&mut self, path: &str, zxid: i64) {
        self.znodes.remove(path);
        let (parent, _) = path::split(path).unwrap();
        self.znodes.get_mut(parent).unwrap().pzxid = zxid;
    }

    fn znode(&self, path: &str) -> Result<&NaiveZnode, ErrorCode> {
        self.znodes.get(path).ok_or(ErrorCode::NoNode)
    }

    fn permitted(&self, path: &str, perms: i32) -> Result<&NaiveZnode, ErrorCode> {
        let znode = self.znode(path)?;
        // Callers in these tests have no identity.
        let world = |(_, scheme, id): &&(i32, String, String)| scheme == "world" && id == "anyone";
        let granted = znode.acl.iter().filter(world).any(|entry| entry.0 & perms != 0);
        if granted { Ok(znode) } else { Err(ErrorCode::NoAuth) }
    }

    fn execute_op(&mut self, op: &Request<'_>, at: At) -> Answered {
        match *op {
            Request::Create(create) => self.create(&create, false, at),
            Request::Create2(create) => self.create(&create, true, at),
            Request::CreateContainer(create) => self.create(&create, true, at),
            Request::Delete { path, version } => self.delete(path, version, at),
            Request::SetData { path, data, version } => self.set_data(path, data, version, at),
            Request::SetAcl { path, acl, version } => self.set_acl(path, acl, version, at),
            Request::Check { path, version } => {
                self.live(at)?;
                if !path::is_valid(path) {
                    return Err(ErrorCode::BadArguments);
                }
                let znode = self.permitted(path, perms::READ)?;
                matching(znode.version, version)?;
                Ok(Answer::Checked(self.stat(path)))
            }
            _ => panic!("not a request of these tests"),
        }
    }

    fn live(&self, at: At) -> Result<(), ErrorCode> {
        if self.sessions.contains(&at.session) { Ok(()) } else { Err(ErrorCode::SessionExpired) }
    }

    fn create(&mut self, create: &Create<'_>, with_stat: bool, at: At) -> Answered {
        self.live(at)?;
        let mode = CreateMode::from_i32(create.flags).unwrap();
        let (parent, _) = create.path.rsplit_once('/').ok_or(ErrorCode::BadArguments)?;
        let parent = if parent.is_empty() { "/" } else { parent };
        let acl = entries(create.acl);
        if acl.is_empty() || acl.iter().any(|(_, scheme, _)| scheme != "world") {
            return Err(ErrorCode::InvalidAcl);
        }
        let above = self.permitted(parent, perms::CREATE)?.clone();
        let mut path = String::from(create.path);
        if mode.is_sequential() {
            path += &format!("{:010}", above.creates);
        }
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.znodes.contains_key(&path) {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(above.kind, ZnodeKind::Ephemeral { .. }) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let kind = match mode {
            CreateMode::Container => ZnodeKind::Container,
            mode if mode.is_ephemeral() => ZnodeKind::Ephemeral { session: at.session },
            _ => ZnodeKind::Persistent,
        };
        let znode = NaiveZnode {
            data: create.data.map(Vec::from),
            kind,
            acl,
            number: 0,
            czxid: at.zxid,
            mzxid: at.zxid,
            pzxid: at.zxid,
            ctime: at.time_ms,
            mtime: at.time_ms,
            version: 0,
            creates: 0,
            aversion: 0,
        };
        self.insert(path.clone(), znode);
        let above = self.znodes.get_mut(parent).unwrap();
        above.creates += 1;
        above.pzxid = at.zxid;
        let stat = self.stat(&path);
        Ok(Answer::Created(path, stat, with_stat))
    }

    fn delete(&mut self, path: &str, version: i32, at: At) -> Answered {
        self.live(at)?;
        if matches!(path, "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config") {
            return Err(ErrorCode::BadArguments);
        }
        let (parent, _) = path.rsplit_once('/').ok_or(ErrorCode::BadArguments)?;
        self.permitted(if parent.is_empty() { "/" } else { parent }, perms::DELETE)?;
        matching(self.znode(path)?.version, version)?;
        if self.children(path).next().is_some() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(path, at.zxid);
        Ok(Answer::Deleted)
    }

    fn set_data(&mut self, path: &str, data: Option<&[u8]>, version: i32, at: At) -> Answered {
        self.live(at)?;
        if !path::is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        matching(self.permitted(path, perms::WRITE)?.version, version)?;
        let znode = self.znodes.get_mut(path).unwrap();
        znode.data = data.map(Vec::from);
        znode.version += 1;
        znode.mzxid = at.zxid;
        znode.mtime = at.time_ms;
        Ok(Answer::DataSet(self.stat(path)))
    }

    fn set_acl(&mut self, path: &str, acl: AclList<'_>, version: i32, at: At) -> Answered {
        self.live(at)?;
        if !path::is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = entries(acl);
        if acl.is_empty() {
            return Err(ErrorCode::InvalidAcl);
        }
        matching(self.permitted(path, perms::ADMIN)?.aversion, version)?;
        let znode = self.znodes.get_mut(path).unwrap();
        znode.acl = acl;
        znode.aversion += 1;
        Ok(Answer::AclSet(self.stat(path)))
    }

    /// Compares everything that can be read of a tree with this one.
    pub(crate) fn assert_same(&self, tree: &Tree) {
        assert_eq!(tree.znode_count(), self.znodes.len());
        for (path, znode) in &self.znodes {
            let found = tree.get(path).unwrap_or_else(|| panic!("{path} is missing"));
            assert_eq!(found.stat(), self.stat(path), "{path}");
            assert_eq!(found.data(), znode.data.as_deref(), "{path}");
            assert_eq!(found.kind(), znode.kind, "{path}");
            assert_eq!(entries(found.acl().list()), znode.acl, "{path}");
            let names: Vec<&str> = found.children().collect();
            let wanted: Vec<&str> = self.children(path).map(|child| path::split(child).unwrap().1).collect();
            assert_eq!(names, wanted, "{path}");
            let below = format!("{}/", path.trim_end_matches('/'));
            let below =
                self.znodes.keys().filter(|other| other.starts_with(&below) && *other != path).count();
            assert_eq!(tree.count_below(path), Some(below), "{path}");
        }
        let bytes =
            |(path, znode): (&String, &NaiveZnode)| path.len() + znode.data.as_ref().map_or(0, Vec::len);
        assert_eq!(tree.data_bytes(), self.znodes.iter().map(bytes).sum::<usize>() as u64);
        assert_eq!(tree.sessions().map(|session| session.id).collect::<BTreeSet<_>>(), self.sessions);
        let mut ephemerals = 0;
        for session in tree.sessions() {
            let mut owned: Vec<String> = tree.ephemerals_of(session.id).collect();
            owned.sort();
            let kind = ZnodeKind::Ephemeral { session: session.id };
            let wanted: Vec<String> = (self.znodes.iter())
                .filter(|(_, znode)| znode.kind == kind)
                .map(|(path, _)| path.clone())
                .collect();
            assert_eq!(owned, wanted);
            assert_eq!(session.ephemeral_count, wanted.len());
            ephemerals += wanted.len();
        }
        assert_eq!(tree.ephemeral_count(), ephemerals);
        let containers = self.znodes.values().filter(|znode| znode.kind == ZnodeKind::Container).count();
        assert_eq!(tree.container_count(), containers);
        assert_eq!(tree.digest(), tree.recomputed_digest());
    }
}

fn matching(version: i32, expected: i32) -> Result<(), ErrorCode> {
    if expected == -1 || expected == version { Ok(()) } else { Err(ErrorCode::BadVersion) }
}
