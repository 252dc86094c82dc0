//! A tree for programs to work on.

use stoa_extension::{
    CallError, Event, EventKind, Limits, Notify, OperationKind, Program, Reply, Request, TreeHost, Used,
};
use stoa_tree::{Caller, Contact, Identity, Options, Stamp, Tree, Updates};
use stoa_wire::{Acl, AclList, Create, Reader, Request as TreeRequest};

pub(crate) struct World {
    pub(crate) tree: Tree,
    zxid: i64,
    pub(crate) identities: Vec<Identity>,
}

impl World {
    /// With the live sessions 1 to 3.
    pub(crate) fn new() -> Self {
        let tree = Tree::new(Options { enforce_quota: true, ..Options::default() });
        let mut world = Self { tree, zxid: 0, identities: Vec::new() };
        for session in 1..=3 {
            let (stamp, mut batch) = (world.stamp(), Vec::new());
            let contact = Contact::default();
            world.tree.prepare_create_session(session, 5000, [0; 16], contact, stamp, &mut batch).unwrap();
            world.apply(&batch);
        }
        world
    }

    pub(crate) fn stamp(&mut self) -> Stamp {
        self.zxid += 1;
        Stamp { zxid: self.zxid, time_ms: 1000 + self.zxid }
    }

    fn apply(&mut self, batch: &[u8]) {
        for update in Updates::new(batch) {
            self.tree.apply(&update.unwrap(), &mut ()).unwrap();
        }
    }

    pub(crate) fn create(&mut self, path: &str, data: &[u8]) {
        self.create_for(path, data, stoa_wire::OPEN_ACL);
    }

    pub(crate) fn create_for(&mut self, path: &str, data: &[u8], acl: &[Acl<'_>]) {
        let mut encoded = Vec::new();
        Acl::encode_list(&mut encoded, acl.iter().copied());
        let acl = AclList::decode(&mut Reader::new(&encoded)).unwrap();
        let create = Create { path, data: Some(data), acl, flags: 0, ttl_ms: 0 };
        let (stamp, mut batch) = (self.stamp(), Vec::new());
        self.tree.prepare(&TreeRequest::Create(create), &Caller::SERVER, stamp, &mut batch).unwrap();
        self.apply(&batch);
    }

    pub(crate) fn data(&self, path: &str) -> Option<Vec<u8>> {
        self.tree.get(path).map(|znode| znode.data().unwrap_or_default().to_vec())
    }

    /// Calls in the name of session 1.
    pub(crate) fn call(&mut self, program: &Program, request: &Request<'_>) -> Result<Reply, CallError> {
        let (stamp, mut batch) = (self.stamp(), Vec::new());
        let identities = self.identities.clone();
        let caller = Caller { session: request.session, identities: &identities };
        let before = self.tree.digest();
        let result = TreeHost::carry_out(&mut self.tree, caller, stamp, &mut batch, |host| {
            program.operation(host, request, &mut Used::default())
        });
        assert_eq!(self.tree.digest(), before, "nothing is applied yet");
        if result.is_err() {
            assert!(batch.is_empty() && !self.tree.has_proposed(), "a call that failed leaves a trace");
        }
        self.apply(&batch);
        result
    }

    pub(crate) fn read(&mut self, program: &Program, path: &str) -> Result<Reply, CallError> {
        self.call(program, &request(OperationKind::Read, path))
    }

    pub(crate) fn event(&mut self, program: &Program, event: &Event<'_>) -> Result<Notify, CallError> {
        let (stamp, mut batch) = (self.stamp(), Vec::new());
        let caller = Caller { session: 1, identities: &[] };
        let result = TreeHost::carry_out(&mut self.tree, caller, stamp, &mut batch, |host| {
            program.event(host, event, &mut Used::default())
        });
        self.apply(&batch);
        result
    }
}

pub(crate) fn request(kind: OperationKind, path: &str) -> Request<'_> {
    Request { kind, path, data: b"", version: -1, session: 1, ephemeral: false, sequential: false }
}

pub(crate) fn event(kind: EventKind, path: &str) -> Event<'_> {
    Event { kind, path }
}

/// A program that reads at `/x`, with this body.
pub(crate) fn reading(body: &str) -> String {
    format!("on_operation(\"read\", \"/x\");\nfn read(request) {{\n{body}\n}}\n")
}

pub(crate) fn compiled(source: &str) -> Program {
    Program::compile("test", source, &Limits::default()).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

/// What a body returns, as text; or the error.
pub(crate) fn result_of(body: &str) -> String {
    let mut world = World::new();
    world.create("/ctr", b"41");
    let program = match Program::compile("test", &reading(body), &Limits::default()) {
        Ok(program) => program,
        Err(error) => return format!("compile: {error}"),
    };
    match world.read(&program, "/x") {
        Ok(Reply::Data(data)) => String::from_utf8_lossy(&data).into_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("call: {error}"),
    }
}
