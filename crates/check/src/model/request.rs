//! Requests, executed.

use super::acl::{self, Identity};
use super::outcome::{Body, Denial, Event, OpOutcome};
use super::tree::{Change, Kind, Model, Node, Session, TTL_MAX_MS};
use super::watches::{Changed, ConnectionKey, Watches};
use std::rc::Rc;
use stoa_wire::{
    AclList, AddWatchMode, Create, CreateMode, ErrorCode, EventKind, MultiOps, Request, SetWatches,
    WatcherKind, perms,
};

/// zxid and time of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Its place in the order of all updates.
    pub(crate) zxid: i64,
    /// Wall clock, milliseconds.
    pub(crate) time_ms: i64,
}

/// What a write did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done {
    /// The body of the reply.
    pub(crate) body: Body,
    /// What watchers are told, in order.
    pub(crate) changes: Vec<Change>,
}

type Result<T> = std::result::Result<T, ErrorCode>;

/// The parts of a write's surroundings that its operations share.
struct Writer<'a> {
    session: i64,
    identities: &'a [Identity],
    stamp: Stamp,
    changes: Vec<Change>,
}

impl Model {
    /// Executes a write of a session; a refused one changes nothing.
    ///
    /// # Errors
    /// The reason that ZooKeeper would give.
    pub(crate) fn write(
        &mut self,
        request: &Request<'_>,
        session: i64,
        identities: &[Identity],
        stamp: Stamp,
    ) -> std::result::Result<Done, Denial> {
        self.undo.clear();
        let mut writer = Writer { session, identities, stamp, changes: Vec::new() };
        let body = if let Request::Multi(ops) = request {
            match ops.iter().map(understood_in_multi).collect::<Option<Vec<_>>>() {
                Some(ops) => self.multi(&ops, &mut writer),
                None => return Err(Denial::Error(ErrorCode::MarshallingError)),
            }
        } else {
            self.single(request, &mut writer).map_err(Denial::Error)
        };
        match body {
            Ok(body) => {
                self.undo.clear();
                self.zxid = stamp.zxid;
                Ok(Done { body, changes: writer.changes })
            }
            Err(failure) => {
                self.roll_back();
                Err(failure)
            }
        }
    }

    /// A session begins on a connection, with the server's number for the request.
    pub(crate) fn create_session(
        &mut self,
        id: i64,
        timeout_ms: i32,
        contact: (ConnectionKey, u64),
        zxid: i64,
    ) {
        let (connection, opening) = contact;
        self.sessions.insert(id, Session { timeout_ms, password: None, connection, opening });
        self.zxid = zxid;
    }

    /// A session comes to another connection.
    pub(crate) fn open_session(
        &mut self,
        id: i64,
        timeout_ms: i32,
        contact: (ConnectionKey, u64),
        zxid: i64,
    ) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.timeout_ms = timeout_ms;
            (session.connection, session.opening) = contact;
        }
        self.zxid = zxid;
    }

    /// A session ends, and with it its ephemerals, all at once.
    pub(crate) fn close_session(&mut self, id: i64, zxid: i64) -> Done {
        self.sessions.remove(&id);
        let owned: Vec<String> = self.ephemerals_of(id).map(String::from).collect();
        let mut changes = Vec::new();
        for path in owned {
            self.remove(&path, zxid, &mut changes);
        }
        self.undo.clear();
        self.zxid = zxid;
        Done { body: Body::Empty, changes }
    }

    /// The server deletes a container or TTL znode.
    pub(crate) fn reap(&mut self, path: &str, zxid: i64) -> Done {
        let mut changes = Vec::new();
        self.remove(path, zxid, &mut changes);
        self.undo.clear();
        self.zxid = zxid;
        Done { body: Body::Empty, changes }
    }

    fn single(&mut self, request: &Request<'_>, writer: &mut Writer<'_>) -> Result<Body> {
        Ok(match self.op(request, writer)? {
            OpOutcome::Created { path, stat } => match stat {
                Some(stat) => Body::PathStat(path, stat),
                None => Body::Path(path),
            },
            OpOutcome::DataSet(stat) => Body::Stat(stat),
            _ => Body::Empty,
        })
    }

    fn multi(&mut self, ops: &[Request<'_>], writer: &mut Writer<'_>) -> std::result::Result<Body, Denial> {
        let mut results = Vec::new();
        for op in ops {
            match self.op(op, writer) {
                Ok(result) => results.push(result),
                Err(code) => return Err(Denial::Multi { count: ops.len(), failed: results.len(), code }),
            }
        }
        Ok(Body::Results(results))
    }

    fn op(&mut self, request: &Request<'_>, writer: &mut Writer<'_>) -> Result<OpOutcome> {
        match *request {
            Request::Create(ref create)
            | Request::Create2(ref create)
            | Request::CreateContainer(ref create)
            | Request::CreateTtl(ref create) => self.create(request, create, writer),
            Request::Delete { path, version } => self.delete(path, version, writer),
            Request::SetData { path, data, version } => self.set_data(path, data, version, writer),
            Request::SetAcl { path, acl, version } => self.set_acl(path, &acl, version, writer),
            Request::Check { path, version } => {
                self.check_session(writer.session)?;
                valid(path)?;
                let node = self.permitted(path, perms::READ, writer.identities)?;
                expect_version(node.version, version)?;
                Ok(OpOutcome::Checked)
            }
            Request::DeleteContainer { .. } => {
                self.check_session(writer.session)?;
                // The server's own business.
                Err(ErrorCode::NoAuth)
            }
            _ => Err(ErrorCode::Unimplemented),
        }
    }

    fn create(
        &mut self,
        request: &Request<'_>,
        create: &Create<'_>,
        writer: &mut Writer<'_>,
    ) -> Result<OpOutcome> {
        let mode = CreateMode::from_i32(create.flags).ok_or(ErrorCode::BadArguments)?;
        let with_ttl = matches!(request, Request::CreateTtl(_));
        let ttl_fits = (1..=TTL_MAX_MS).contains(&create.ttl_ms);
        if mode.is_ttl() != with_ttl || (with_ttl && !ttl_fits) {
            return Err(ErrorCode::BadArguments);
        }
        self.check_session(writer.session)?;
        let slash = create.path.rfind('/').ok_or(ErrorCode::BadArguments)?;
        if create.path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let acl = acl::stored(create.acl.iter(), writer.identities)?;
        let parent_path = if slash == 0 { "/" } else { &create.path[..slash] };
        let parent = self.permitted(parent_path, perms::CREATE, writer.identities)?;
        let path = match mode.is_sequential() {
            true => format!("{}{:010}", create.path, parent.creates),
            false => create.path.into(),
        };
        valid(&path)?;
        if self.nodes.contains_key(&path) {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(parent.kind, Kind::Ephemeral(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        self.check_quota(&path, 1, create.data.map_or(0, <[u8]>::len) as i64)?;
        let kind = match request {
            Request::CreateContainer(_) => Kind::Container,
            Request::CreateTtl(_) => Kind::Ttl(create.ttl_ms),
            _ if mode.is_ephemeral() => Kind::Ephemeral(writer.session),
            _ => Kind::Persistent,
        };
        let Stamp { zxid, time_ms } = writer.stamp;
        let node = Node {
            data: create.data.map(Into::into),
            acl: Rc::new(acl),
            kind,
            children: Vec::new(),
            creates: 0,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time_ms,
            mtime: time_ms,
            version: 0,
            aversion: 0,
        };
        let stat = (!matches!(request, Request::Create(_))).then(|| node.stat());
        self.insert(&path, node, &mut writer.changes);
        Ok(OpOutcome::Created { path, stat })
    }

    fn delete(&mut self, path: &str, version: i32, writer: &mut Writer<'_>) -> Result<OpOutcome> {
        self.check_session(writer.session)?;
        let built_in = matches!(path, "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config");
        if !path.contains('/') || path.contains('\0') || built_in {
            return Err(ErrorCode::BadArguments);
        }
        let slash = path.rfind('/').unwrap_or_default();
        let parent = if slash == 0 { "/" } else { &path[..slash] };
        self.permitted(parent, perms::DELETE, writer.identities)?;
        let node = self.existing(path)?;
        expect_version(node.version, version)?;
        if !node.children.is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(path, writer.stamp.zxid, &mut writer.changes);
        Ok(OpOutcome::Deleted)
    }

    fn set_data(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        writer: &mut Writer<'_>,
    ) -> Result<OpOutcome> {
        self.check_session(writer.session)?;
        valid(path)?;
        let node = self.permitted(path, perms::WRITE, writer.identities)?;
        let (before, node_version) = (node.data.as_ref().map_or(0, Vec::len), node.version);
        let growth = data.map_or(0, <[u8]>::len) as i64 - before as i64;
        self.check_quota(path, 0, growth)?;
        expect_version(node_version, version)?;
        let Stamp { zxid, time_ms } = writer.stamp;
        let node = self.changing(path);
        node.data = data.map(Into::into);
        node.version += 1;
        node.mzxid = zxid;
        node.mtime = time_ms;
        let acl = Rc::clone(&node.acl);
        let stat = node.stat();
        let change =
            Change { kind: EventKind::DataChanged, path: path.into(), parent_acl: Rc::clone(&acl), acl };
        writer.changes.push(change);
        self.count_for_quota(path, 0, growth);
        Ok(OpOutcome::DataSet(stat))
    }

    fn set_acl(
        &mut self,
        path: &str,
        acl: &AclList<'_>,
        version: i32,
        writer: &mut Writer<'_>,
    ) -> Result<OpOutcome> {
        self.check_session(writer.session)?;
        valid(path)?;
        let acl = acl::stored(acl.iter(), writer.identities)?;
        let node = self.permitted(path, perms::ADMIN, writer.identities)?;
        expect_version(node.aversion, version)?;
        let node = self.changing(path);
        node.acl = Rc::new(acl);
        node.aversion += 1;
        Ok(OpOutcome::DataSet(node.stat()))
    }
}

/// Who reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// The connection, to which watches belong.
    pub(crate) connection: ConnectionKey,
    /// Its session.
    pub(crate) session: i64,
    /// What it has proved.
    pub(crate) identities: &'a [Identity],
}

impl Model {
    /// Answers a read, and sets the watches that it asks for.
    ///
    /// # Errors
    /// The reason that ZooKeeper would give.
    pub(crate) fn read(
        &self,
        request: &Request<'_>,
        reader: Reader<'_>,
        watches: &mut Watches,
    ) -> Result<Body> {
        let Reader { connection, session, identities } = reader;
        let readable = |path: &str| self.permitted(path, perms::READ, identities);
        match *request {
            Request::Exists { path, watch } => {
                if path.contains('\0') {
                    return Err(ErrorCode::BadArguments);
                }
                let found = readable(path);
                if watch && found != Err(ErrorCode::NoAuth) {
                    watches.add_data(path, connection);
                }
                Ok(Body::Stat(found?.stat()))
            }
            Request::GetData { path, watch } => {
                let node = readable(path)?;
                if watch {
                    watches.add_data(path, connection);
                }
                Ok(Body::Data(node.data.clone(), node.stat()))
            }
            Request::GetChildren { path, watch } | Request::GetChildren2 { path, watch } => {
                let node = readable(path)?;
                if watch {
                    watches.add_child(path, connection);
                }
                let names = node.children.clone();
                Ok(match request {
                    Request::GetChildren { .. } => Body::Names(names),
                    _ => Body::Children(names, node.stat()),
                })
            }
            Request::GetAcl { path } => {
                let node = self.permitted(path, perms::READ | perms::ADMIN, identities)?;
                Ok(Body::Acl(acl::masked(&node.acl, identities), node.stat()))
            }
            Request::GetAllChildrenNumber { path } => {
                readable(path)?;
                let below = if path == "/" { "/".into() } else { format!("{path}/") };
                let counted = self.nodes.range(below.clone()..).take_while(|(at, _)| at.starts_with(&below));
                Ok(Body::Number(counted.filter(|(at, _)| at.len() > below.len()).count() as i32))
            }
            Request::GetEphemerals { prefix } => {
                let prefix = prefix.filter(|prefix| !matches!(prefix.trim(), "" | "/")).unwrap_or_default();
                let own = self.ephemerals_of(session).filter(|path| path.starts_with(prefix));
                let mut own: Vec<String> = own.map(String::from).collect();
                own.sort_unstable();
                Ok(Body::Names(own))
            }
            Request::WhoAmI => {
                let user = |id: &str| id.split(':').next().unwrap_or_default().to_owned();
                let shown = identities.iter().map(|(scheme, id)| match scheme.as_str() {
                    "digest" => (scheme.clone(), user(id)),
                    _ => (scheme.clone(), id.clone()),
                });
                Ok(Body::Identities(shown.collect()))
            }
            Request::MultiRead(ref ops) => self.multi_read(ops, reader, watches),
            _ => read_watches(request, connection, watches),
        }
    }

    fn multi_read(&self, ops: &MultiOps<'_>, reader: Reader<'_>, watches: &mut Watches) -> Result<Body> {
        let mut results = Vec::new();
        for op in ops.iter() {
            // Whatever the operation says: a multiRead sets no watches.
            let op = match op {
                Request::GetData { path, .. } => Request::GetData { path, watch: false },
                Request::GetChildren { path, .. } => Request::GetChildren { path, watch: false },
                _ => return Err(ErrorCode::MarshallingError),
            };
            results.push(match self.read(&op, reader, watches) {
                Ok(Body::Data(data, stat)) => OpOutcome::Data(data, stat),
                Ok(Body::Names(names)) => OpOutcome::Children(names),
                Ok(other) => unreachable!("a read of data or children was answered {other:?}"),
                Err(code) => OpOutcome::Error(code as i32),
            });
        }
        Ok(Body::Results(results))
    }

    /// Sets watches again; returns the events that were missed.
    pub(crate) fn set_watches(
        &self,
        request: &SetWatches<'_>,
        connection: ConnectionKey,
        watches: &mut Watches,
    ) -> Vec<Event> {
        let mut missed = Vec::new();
        let mut event = |kind, path: &str| missed.push(Event { kind, path: path.into(), zxid: -1 });
        for path in request.data.iter() {
            match self.nodes.get(path) {
                None => event(EventKind::Deleted, path),
                Some(node) if node.mzxid > request.relative_zxid => event(EventKind::DataChanged, path),
                Some(_) => watches.add_data(path, connection),
            }
        }
        for path in request.exist.iter() {
            match self.nodes.contains_key(path) {
                true => event(EventKind::Created, path),
                false => watches.add_data(path, connection),
            }
        }
        for path in request.child.iter() {
            match self.nodes.get(path) {
                None => event(EventKind::Deleted, path),
                Some(node) if node.pzxid > request.relative_zxid => event(EventKind::ChildrenChanged, path),
                Some(_) => watches.add_child(path, connection),
            }
        }
        for path in request.persistent.iter() {
            watches.add_persistent(path, connection, AddWatchMode::Persistent);
        }
        for path in request.persistent_recursive.iter() {
            watches.add_persistent(path, connection, AddWatchMode::PersistentRecursive);
        }
        missed
    }
}

fn read_watches(request: &Request<'_>, connection: ConnectionKey, watches: &mut Watches) -> Result<Body> {
    let found = |found| if found { Ok(Body::Empty) } else { Err(ErrorCode::NoWatcher) };
    let kind = |kind| WatcherKind::from_i32(kind).ok_or(ErrorCode::MarshallingError);
    match *request {
        Request::AddWatch { path, mode } => {
            let mode = AddWatchMode::from_i32(mode).ok_or(ErrorCode::MarshallingError)?;
            watches.add_persistent(path, connection, mode);
            Ok(Body::Number(0))
        }
        Request::CheckWatches { path, kind: number } => {
            found(watches.contains(path, connection, kind(number)?))
        }
        Request::RemoveWatches { path, kind: number } => {
            found(watches.remove(path, connection, kind(number)?))
        }
        _ => Err(ErrorCode::Unimplemented),
    }
}

impl Watches {
    /// The events of an update, per connection in the order in which they must arrive.
    pub(crate) fn events_of(
        &mut self,
        done: &Done,
        zxid: i64,
        identities: &dyn Fn(ConnectionKey) -> Vec<Identity>,
    ) -> Vec<(ConnectionKey, Event)> {
        let mut events = Vec::new();
        for change in &done.changes {
            let changed = Changed {
                kind: change.kind,
                path: &change.path,
                acl: &change.acl,
                parent_acl: &change.parent_acl,
                zxid,
            };
            self.trigger(&changed, identities, &mut events);
        }
        events
    }
}

/// What ZooKeeper makes of an operation in a multi: there the flags can say more than the opcode. `None`
/// when it does not understand the whole multi.
fn understood_in_multi(op: Request<'_>) -> Option<Request<'_>> {
    let mode = match op {
        Request::Create(create) | Request::Create2(create) | Request::CreateContainer(create) => {
            Some(CreateMode::from_i32(create.flags)?)
        }
        Request::CreateTtl(create) => CreateMode::from_i32(create.flags),
        _ => None,
    };
    match op {
        Request::GetData { .. } | Request::GetChildren { .. } => None,
        Request::CreateTtl(create) => match mode {
            Some(mode) if mode.is_ttl() => Some(op),
            Some(CreateMode::Container) => Some(Request::CreateContainer(create)),
            _ => Some(Request::Create(create)),
        },
        Request::Create(create) | Request::Create2(create) if mode == Some(CreateMode::Container) => {
            Some(Request::CreateContainer(create))
        }
        _ if mode.is_some_and(CreateMode::is_ttl) => None,
        _ => Some(op),
    }
}

fn valid(path: &str) -> Result<()> {
    // Checked here by its parts, not by the server's one pass.
    let refused = |c: char| {
        let c = u32::from(c);
        c <= 0x1f
            || (0x7f..=0x9f).contains(&c)
            || (0xd800..=0xf8ff).contains(&c)
            || (0xfff0..=0xffff).contains(&c)
    };
    let parts_fit =
        path == "/" || path[1.min(path.len())..].split('/').all(|part| !matches!(part, "" | "." | ".."));
    if path.starts_with('/') && parts_fit && !path.chars().any(refused) {
        Ok(())
    } else {
        Err(ErrorCode::BadArguments)
    }
}

fn expect_version(found: i32, wanted: i32) -> Result<()> {
    if wanted == -1 || wanted == found { Ok(()) } else { Err(ErrorCode::BadVersion) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_wire::{MultiHeader, OPEN_ACL, Opcode, Reader as Frame, Stat, request::encode};

    fn write(model: &mut Model, opcode: Opcode, body: &[u8]) -> std::result::Result<Body, Denial> {
        let request = Request::decode(opcode, &mut Frame::new(body)).unwrap();
        let stamp = Stamp { zxid: model.zxid() + 1, time_ms: 1000 + model.zxid() };
        model.write(&request, 7, &[], stamp).map(|done| done.body)
    }

    fn create(model: &mut Model, path: &str, flags: i32) -> std::result::Result<Body, Denial> {
        let mut body = Vec::new();
        encode::create(&mut body, path, Some(b"x"), OPEN_ACL, flags, None);
        write(model, Opcode::Create, &body)
    }

    fn delete(model: &mut Model, path: &str) -> std::result::Result<Body, Denial> {
        let mut body = Vec::new();
        encode::path_version(&mut body, path, -1);
        write(model, Opcode::Delete, &body)
    }

    fn with_session() -> Model {
        let mut model = Model::new();
        model.create_session(7, 1000, (1, 1), 1);
        model
    }

    fn stat(model: &Model, path: &str) -> Stat {
        model.existing(path).unwrap().stat()
    }

    #[test]
    fn cversion_counts_creates_twice_and_takes_off_what_is_there() {
        let mut model = with_session();
        create(&mut model, "/a", 0).unwrap();
        create(&mut model, "/a/x", 0).unwrap();
        create(&mut model, "/a/y", 0).unwrap();
        delete(&mut model, "/a/x").unwrap();
        let found = stat(&model, "/a");
        assert_eq!((found.cversion, found.num_children, found.pzxid), (3, 1, model.zxid()));
        assert_eq!(create(&mut model, "/a/n-", 2), Ok(Body::Path("/a/n-0000000002".into())));
        assert_eq!(delete(&mut model, "/a"), Err(Denial::Error(ErrorCode::NotEmpty)));
    }

    #[test]
    fn a_failed_multi_changes_nothing() {
        let mut model = with_session();
        create(&mut model, "/a", 0).unwrap();
        let before: Vec<_> = model.nodes().map(|(path, node)| (path.to_owned(), node.clone())).collect();
        let mut body = Vec::new();
        for path in ["/b", "/a/x", "/a"] {
            MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 }.encode(&mut body);
            encode::create(&mut body, path, None, OPEN_ACL, 0, None);
        }
        MultiHeader::END.encode(&mut body);
        let failure = Denial::Multi { count: 3, failed: 2, code: ErrorCode::NodeExists };
        assert_eq!(write(&mut model, Opcode::Multi, &body), Err(failure));
        assert!(model.nodes().eq(before.iter().map(|(path, node)| (path.as_str(), node))));
    }

    #[test]
    fn a_deleted_znode_is_told_once_to_whoever_watched_it_twice() {
        let mut model = with_session();
        create(&mut model, "/a", 0).unwrap();
        let mut watches = Watches::default();
        watches.add_data("/a", 1);
        watches.add_child("/a", 1);
        watches.add_child("/", 2);
        watches.add_persistent("/", 3, AddWatchMode::PersistentRecursive);
        let mut body = Vec::new();
        encode::path_version(&mut body, "/a", -1);
        let request = Request::decode(Opcode::Delete, &mut Frame::new(&body)).unwrap();
        let done = model.write(&request, 7, &[], Stamp { zxid: 9, time_ms: 0 }).unwrap();
        let events = watches.events_of(&done, 9, &|_| Vec::new());
        let event = |to, kind, path: &str| (to, Event { kind, path: path.into(), zxid: 9 });
        let wanted = [
            event(1, EventKind::Deleted, "/a"),
            event(3, EventKind::Deleted, "/a"),
            event(2, EventKind::ChildrenChanged, "/"),
        ];
        assert_eq!(events, wanted);
        watches.remove_connection(3);
        assert!(watches.is_empty(), "the others were for once");
    }

    #[test]
    fn an_ephemeral_ends_with_its_session() {
        let mut model = with_session();
        create(&mut model, "/e", 1).unwrap();
        assert_eq!(stat(&model, "/e").ephemeral_owner, 7);
        let child = create(&mut model, "/e/x", 0);
        assert_eq!(child, Err(Denial::Error(ErrorCode::NoChildrenForEphemerals)));
        model.close_session(7, 5);
        assert!(model.existing("/e").is_err());
        assert_eq!(create(&mut model, "/f", 0), Err(Denial::Error(ErrorCode::SessionExpired)));
    }
}
