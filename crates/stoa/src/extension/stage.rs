//! A tree, a program and clients, without a server: what a server would do with the program, step by step.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoa_extension::{
    CallError, Event, EventKind, Notify, OperationKind, Program, Registry, Reply, Request, TreeHost, Used,
};
use stoa_tree::{Caller, Change, Contact, Observer, Options, Stamp, Tree, Updates};
use stoa_wire::{
    Acl, AclList, Create, CreateMode, ErrorCode, EventKind as TreeEvent, OPEN_ACL, Reader,
    Request as TreeRequest,
};

use super::script::Asked;

/// Who has registered the program: its event handlers run in this name.
const OWNER: &str = "owner";

/// Notes what happened to which znode.
#[derive(Debug, Default)]
struct Events(Vec<(EventKind, String)>);

impl Observer for Events {
    fn changed(&mut self, change: &Change<'_>) {
        let kind = match change.kind {
            TreeEvent::Created => EventKind::Created,
            TreeEvent::DataChanged => EventKind::Changed,
            TreeEvent::Deleted => EventKind::Deleted,
            _ => return,
        };
        self.0.push((kind, change.path.into()));
    }
}

/// The tree and its clients.
pub(super) struct Stage {
    tree: Tree,
    registry: Registry,
    zxid: i64,
    sessions: BTreeMap<String, i64>,
    next_session: i64,
    /// Who waits for a znode, in the order in which they began to.
    blocked: Vec<(String, String)>,
}

impl Stage {
    /// With a program that every session has acknowledged.
    pub(super) fn new(program: Program) -> Self {
        let tree = Tree::new(Options::default());
        let mut registry = Registry::default();
        registry.register(Arc::new(program)).expect("it is the only one");
        let (sessions, blocked) = (BTreeMap::new(), Vec::new());
        let mut stage = Self { tree, registry, zxid: 0, sessions, next_session: 1, blocked };
        stage.session(OWNER);
        stage
    }

    /// Makes a znode, without the program.
    pub(super) fn given(&mut self, path: &str, data: &str) -> Vec<String> {
        match self.plain(&Caller::SERVER, &Self::asked(OperationKind::Create, path, data)) {
            Ok(_) => Vec::new(),
            Err(code) => vec![format!("error {}", code.name())],
        }
    }

    /// A znode as it is.
    pub(super) fn show(&self, path: &str) -> Vec<String> {
        let Some(znode) = self.tree.get(path) else {
            return vec![format!("no znode {path}")];
        };
        let mut line = format!("znode {path}");
        let data = shown(znode.data().unwrap_or_default());
        if !data.is_empty() {
            line.push(' ');
            line.push_str(&data);
        }
        let owner = znode.stat().ephemeral_owner;
        if owner != 0 {
            line.push_str(&format!(" (of {})", self.name_of(owner)));
        }
        vec![line]
    }

    /// Ends a session. Its ephemerals go with it.
    pub(super) fn close(&mut self, who: &str) -> Vec<String> {
        let Some(session) = self.sessions.remove(who) else {
            return vec![format!("error there is no session {who}")];
        };
        self.registry.forget_session(session);
        self.blocked.retain(|(waiting, _)| waiting != who);
        let (stamp, mut batch) = (self.stamp(), Vec::new());
        self.tree.prepare_close_session(session, stamp, &mut batch);
        let mut lines = vec!["closed".to_owned()];
        let events = self.apply(&batch);
        self.tell(events, &mut lines);
        lines
    }

    /// Carries out a request: the program does, if it is for it, and the tree otherwise.
    pub(super) fn request(&mut self, who: &str, asked: &Asked<'_>) -> Vec<String> {
        let session = self.session(who);
        let mut lines = Vec::new();
        let program = self.registry.operation_for(session, asked.kind, asked.path).cloned();
        let (batch, outcome) = match program {
            Some(program) => self.call(&program, session, asked),
            None => match self.plain(&Caller { session, identities: &[] }, asked) {
                Ok((batch, reply)) => (batch, Ok(reply)),
                Err(code) => (Vec::new(), Err(code.name().to_owned())),
            },
        };
        let events = self.apply(&batch);
        match outcome {
            Ok(Reply::Data(data)) => lines.push(format!("reply {}", shown(&data)).trim_end().to_owned()),
            Ok(Reply::Names(names)) => lines.push(format!("names {}", names.join(" ")).trim_end().to_owned()),
            Ok(Reply::Blocked(path)) if self.tree.get(&path).is_some() => lines.push("reply".to_owned()),
            Ok(Reply::Blocked(path)) => {
                lines.push(format!("blocked {path}"));
                self.blocked.push((who.to_owned(), path));
            }
            Err(what) => lines.push(format!("error {what}")),
        }
        self.tell(events, &mut lines);
        lines
    }

    fn call(
        &mut self,
        program: &Program,
        session: i64,
        asked: &Asked<'_>,
    ) -> (Vec<u8>, Result<Reply, String>) {
        let request = Request {
            kind: asked.kind,
            path: asked.path,
            data: asked.data.as_bytes(),
            version: -1,
            session,
            ephemeral: asked.ephemeral,
            sequential: asked.sequential,
        };
        let (stamp, mut batch) = (self.stamp(), Vec::new());
        let caller = Caller { session, identities: &[] };
        let outcome = TreeHost::carry_out(&mut self.tree, caller, stamp, &mut batch, |host| {
            program.operation(host, &request, &mut Used::default())
        });
        (batch, outcome.map_err(|error| described(&error)))
    }

    /// What the tree does without a program. Writes are prepared and left to be applied.
    fn plain(&mut self, caller: &Caller<'_>, asked: &Asked<'_>) -> Result<(Vec<u8>, Reply), ErrorCode> {
        let none = || Reply::Data(Arc::from(&[][..]));
        let mut open = Vec::new();
        Acl::encode_list(&mut open, OPEN_ACL.iter().copied());
        let acl = AclList::decode(&mut Reader::new(&open)).map_err(|_| ErrorCode::InvalidAcl)?;
        let data = Some(asked.data.as_bytes());
        let path = asked.path;
        let request = match asked.kind {
            OperationKind::Read => {
                let znode = self.tree.get(path).ok_or(ErrorCode::NoNode)?;
                return Ok((Vec::new(), Reply::Data(znode.data().unwrap_or_default().into())));
            }
            OperationKind::SubObjects => {
                let znode = self.tree.get(path).ok_or(ErrorCode::NoNode)?;
                let mut names: Vec<String> = znode.children().map(str::to_owned).collect();
                names.sort();
                return Ok((Vec::new(), Reply::Names(names)));
            }
            OperationKind::Block => return Ok((Vec::new(), Reply::Blocked(path.to_owned()))),
            OperationKind::Create => {
                let mode = match (asked.ephemeral, asked.sequential) {
                    (false, false) => CreateMode::Persistent,
                    (false, true) => CreateMode::PersistentSequential,
                    (true, false) => CreateMode::Ephemeral,
                    (true, true) => CreateMode::EphemeralSequential,
                };
                TreeRequest::Create(Create { path, data, acl, flags: mode as i32, ttl_ms: 0 })
            }
            OperationKind::Delete => TreeRequest::Delete { path, version: -1 },
            OperationKind::Update => TreeRequest::SetData { path, data, version: -1 },
        };
        let created = match &request {
            TreeRequest::Create(create) => self.tree.path_to_create(create).into_owned(),
            _ => String::new(),
        };
        let (stamp, mut batch) = (self.stamp(), Vec::new());
        self.tree.prepare(&request, caller, stamp, &mut batch).map_err(|refusal| match refusal {
            stoa_tree::Refusal::Error(code) | stoa_tree::Refusal::Multi { code, .. } => code,
        })?;
        if caller.session == 0 {
            self.apply(&batch);
        }
        let reply = if created.is_empty() { none() } else { Reply::Data(created.into_bytes().into()) };
        Ok((batch, reply))
    }

    fn asked<'a>(kind: OperationKind, path: &'a str, data: &'a str) -> Asked<'a> {
        Asked { kind, path, data, ephemeral: false, sequential: false }
    }

    /// Hands events to the program, and wakes who waits. What event handlers do is no event to them again.
    fn tell(&mut self, events: Events, lines: &mut Vec<String>) {
        let mut caused = Vec::new();
        for (kind, path) in events.0 {
            self.wake(kind, &path, lines);
            let programs: Vec<Arc<Program>> = self.registry.events_for(kind, &path).cloned().collect();
            for program in programs {
                let mut line = format!("event {} {path}", kind.name());
                match self.react(&program, kind, &path) {
                    Ok((notify, events)) => {
                        if notify.suppress {
                            line.push_str(" suppressed");
                        }
                        lines.push(line);
                        for told in notify.send {
                            lines.push(format!("told {} {}", self.name_of(told.session), told.path));
                        }
                        caused.extend(events.0);
                    }
                    Err(what) => lines.push(format!("{line}: error {what}")),
                }
            }
        }
        for (kind, path) in caused {
            self.wake(kind, &path, lines);
        }
    }

    fn react(&mut self, program: &Program, kind: EventKind, path: &str) -> Result<(Notify, Events), String> {
        let (stamp, mut batch) = (self.stamp(), Vec::new());
        let event = Event { kind, path };
        // As at a server, who has registered the program may be gone.
        let caller = Caller { session: Caller::REACTION, identities: &[] };
        let notify = TreeHost::carry_out(&mut self.tree, caller, stamp, &mut batch, |host| {
            program.event(host, &event, &mut Used::default())
        })
        .map_err(|error| described(&error))?;
        Ok((notify, self.apply(&batch)))
    }

    fn wake(&mut self, kind: EventKind, path: &str, lines: &mut Vec<String>) {
        if kind == EventKind::Created {
            self.blocked.retain(|(who, waited_for)| {
                if waited_for == path {
                    lines.push(format!("unblocked {who} {path}"));
                }
                waited_for != path
            });
        }
    }

    fn stamp(&mut self) -> Stamp {
        self.zxid += 1;
        Stamp { zxid: self.zxid, time_ms: self.zxid }
    }

    fn apply(&mut self, batch: &[u8]) -> Events {
        let mut events = Events::default();
        for update in Updates::new(batch) {
            let applied = update.and_then(|update| self.tree.apply(&update, &mut events));
            applied.expect("it was just prepared");
        }
        events
    }

    /// The id of a session, which begins if it is not there.
    fn session(&mut self, who: &str) -> i64 {
        if let Some(session) = self.sessions.get(who) {
            return *session;
        }
        let session = self.next_session;
        self.next_session += 1;
        let (stamp, mut batch) = (self.stamp(), Vec::new());
        let contact = Contact::default();
        let begun = self.tree.prepare_create_session(session, 30_000, [0; 16], contact, stamp, &mut batch);
        begun.expect("no two sessions have the same id");
        self.apply(&batch);
        self.sessions.insert(who.to_owned(), session);
        let names: Vec<String> = self.registry.programs().map(|program| program.name().to_owned()).collect();
        for name in names {
            self.registry.acknowledge(session, &name);
        }
        session
    }

    fn name_of(&self, session: i64) -> String {
        let known = self.sessions.iter().find(|(_, id)| **id == session);
        known.map_or_else(|| format!("session {session}"), |(name, _)| name.clone())
    }
}

fn described(error: &CallError) -> String {
    format!("{}: {error}", error.code().name())
}

/// Data for people: as it is, if it is text on one line.
fn shown(data: &[u8]) -> String {
    match std::str::from_utf8(data) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => format!("{} bytes", data.len()),
    }
}
