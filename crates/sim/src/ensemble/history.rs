//! What is committed, as the first server to apply each position applied it.
//!
//! The history is the judge: a tree of its own that goes through the timeline once. A server that
//! applies something else, or that has another state behind a position, has parted from the others.
//! The state of each znode behind each update is kept, so that every answer that a client was given
//! can be compared with what was true at its zxid.

use super::HostId;
use super::roster::{CONFIG, Roster};
use super::workload::PROGRAM;
use std::collections::{BTreeMap, BTreeSet};
use stoa_check::{Checked, Violation, wrong};
use stoa_core::{Item, Items, Origin, Outcome};
use stoa_group::{Entry, EntryKind};
use stoa_tree::{Change, Observer, OpResult, Options, Tree, Update};
use stoa_wire::{EventKind, Stat};

/// A znode as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) data: Option<Vec<u8>>,
    pub(super) stat: Stat,
}

/// What one operation of an update did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Did {
    Created { path: String, stat: Stat },
    Deleted,
    DataSet { stat: Stat },
    Opened { session: i64, timeout_ms: i32 },
    Closed { session: i64 },
    Checked,
}

/// A committed update.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) session: i64,
    pub(super) did: Vec<Did>,
    pub(super) changes: Vec<(EventKind, String)>,
}

/// A child, from one update to another one.
struct Child {
    name: String,
    created: i64,
    deleted: i64,
}

impl Child {
    fn new(name: &str, created: i64) -> Self {
        Self { name: name.to_owned(), created, deleted: i64::MAX }
    }
}

/// A committed entry.
struct Committed {
    entry: Entry,
    /// The digest of the state behind it.
    digest: u64,
    /// The zxids of its updates: behind the first, up to the second.
    zxids: (i64, i64),
}

/// The committed timeline.
pub(crate) struct History {
    tree: Tree,
    entries: Vec<Committed>,
    updates: Vec<Effect>,
    znodes: BTreeMap<String, Vec<(i64, Option<Seen>)>>,
    /// All that a znode ever had, in the order of their creation.
    children: BTreeMap<String, Vec<Child>>,
    events: BTreeMap<String, Vec<(i64, EventKind)>>,
    ephemerals: BTreeMap<String, i64>,
    /// Sessions that have ended, and at which zxid last.
    closed: BTreeMap<i64, i64>,
    /// The last number of a sequential znode, by parent.
    sequences: BTreeMap<String, i64>,
    /// Sessions that were opened on the timeline, and at which zxid first.
    opened: BTreeMap<i64, i64>,
    /// The last write of each session that has taken effect.
    tags: BTreeMap<i64, u64>,
    written: BTreeSet<(usize, u64)>,
    origins: BTreeSet<(u8, u64)>,
    /// Who was proposed what: two leaders of one term would differ.
    proposed: BTreeMap<(u64, u64), bytes::Bytes>,
    leaders: BTreeMap<u64, HostId>,
    refusals: u64,
}

/// Where servers may keep sessions by themselves, the bits above these of a client's writes count its sessions.
pub(super) const LIFE_BITS: u32 = 20;

/// The name of a client's write, which is the data that it writes.
pub(super) fn tag(client: usize, write: u64) -> Vec<u8> {
    format!("{client}.{write}").into_bytes()
}

fn read_tag(data: &[u8]) -> Option<(usize, u64)> {
    let (client, write) = std::str::from_utf8(data).ok()?.split_once('.')?;
    Some((client.parse().ok()?, write.parse().ok()?))
}

/// What stands in an entry; nothing, if it is a change of members.
pub(super) fn items(entry: &Entry) -> Items<'_> {
    match entry.kind {
        EntryKind::Payload => Items::new(&entry.payload),
        EntryKind::Change => Items::new(&[]),
    }
}

/// The children that every tree begins with.
fn first_children() -> BTreeMap<String, Vec<Child>> {
    let children = [("/", &["zookeeper"][..]), ("/zookeeper", &["quota", "config"])]
        .map(|(parent, names)| (parent.to_owned(), names.iter().map(|name| Child::new(name, 0)).collect()));
    children.into_iter().collect()
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(parent, _)| if parent.is_empty() { "/" } else { parent })
}

#[derive(Default)]
struct Watcher {
    did: Vec<Did>,
    changes: Vec<(EventKind, String)>,
}

impl Observer for Watcher {
    fn changed(&mut self, change: &Change<'_>) {
        self.changes.push((change.kind, change.path.to_owned()));
    }

    fn result(&mut self, result: OpResult<'_>) {
        self.did.push(match result {
            OpResult::Created { path, stat, .. } => Did::Created { path: path.to_owned(), stat },
            OpResult::Deleted => Did::Deleted,
            OpResult::DataSet { stat } => Did::DataSet { stat },
            OpResult::SessionOpened { session, timeout_ms, .. } => Did::Opened { session, timeout_ms },
            OpResult::SessionClosed { session } => Did::Closed { session },
            OpResult::AclSet { .. } | OpResult::Checked { .. } => Did::Checked,
        });
    }
}

impl History {
    pub(super) fn new() -> Self {
        let tree = Tree::new(Options::default());
        // The first entry says who the voters are; every server is born with it.
        let entry = Entry { position: 1, term: 1, kind: EntryKind::Payload, payload: bytes::Bytes::new() };
        let birth = Committed { entry, digest: tree.digest(), zxids: (0, 0) };
        Self {
            tree,
            entries: vec![birth],
            updates: Vec::new(),
            znodes: BTreeMap::new(),
            children: first_children(),
            events: BTreeMap::new(),
            ephemerals: BTreeMap::new(),
            closed: BTreeMap::new(),
            opened: BTreeMap::new(),
            sequences: BTreeMap::new(),
            tags: BTreeMap::new(),
            written: BTreeSet::new(),
            origins: BTreeSet::new(),
            proposed: BTreeMap::new(),
            leaders: BTreeMap::new(),
            refusals: 0,
        }
    }

    /// The committed state.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The last committed position.
    pub(super) fn position(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Bytes of all that is committed.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.iter().map(|committed| committed.entry.payload.len() as u64).sum()
    }

    /// The last committed zxid.
    pub(super) fn zxid(&self) -> i64 {
        self.updates.len() as i64
    }

    /// Refused requests that stand in the timeline.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Terms that had a leader.
    pub(super) fn terms(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// The update with this zxid.
    pub(super) fn update(&self, zxid: i64) -> Option<&Effect> {
        self.updates.get(usize::try_from(zxid).ok()?.checked_sub(1)?)
    }

    /// Whether a session has ended.
    pub(crate) fn is_closed(&self, session: i64) -> bool {
        self.closed.contains_key(&session)
    }

    /// Whether a session is on the timeline behind an update. One that its contact server alone keeps is not; its id may
    /// be that of one that has ended, if the clock of a machine was set back.
    pub(crate) fn is_global(&self, session: i64, zxid: i64) -> bool {
        let has_ended = self.closed.get(&session).is_some_and(|closed| *closed < zxid);
        !has_ended && self.opened.get(&session).is_some_and(|opened| *opened <= zxid)
    }

    /// What the entry at this position did to sessions.
    pub(super) fn sessions_at(&self, position: u64) -> impl Iterator<Item = &Did> {
        let (after, last) = self.entries.get(position as usize - 1).map_or((0, 0), |it| it.zxids);
        self.updates[after as usize..last as usize].iter().flat_map(|done| &done.did)
    }

    /// A znode behind an update.
    pub(super) fn znode(&self, path: &str, zxid: i64) -> Option<&Seen> {
        let states = self.znodes.get(path)?;
        let behind = states.partition_point(|(at, _)| *at <= zxid);
        states.get(behind.checked_sub(1)?)?.1.as_ref()
    }

    /// The names of a znode's children behind an update, in the order of their creation.
    pub(super) fn children(&self, path: &str, zxid: i64) -> Vec<&str> {
        let ever = self.children.get(path).into_iter().flatten();
        let there = ever.filter(|child| child.created <= zxid && zxid < child.deleted);
        there.map(|child| child.name.as_str()).collect()
    }

    /// A server lists all children in the order of their creation, as they were behind a position.
    pub(super) fn compare_order(&self, server: HostId, position: u64, tree: &Tree) -> Checked {
        let committed = position.checked_sub(1).and_then(|at| self.entries.get(at as usize));
        let zxid = committed.map_or(0, |committed| committed.zxids.1);
        for path in self.children.keys() {
            let Some(znode) = tree.get(path) else { continue };
            let (found, wanted) = (znode.children().collect::<Vec<_>>(), self.children(path, zxid));
            if found != wanted {
                return wrong(format!(
                    "server {server} lists {found:?} below {path}, they were created as {wanted:?}"
                ));
            }
        }
        Ok(())
    }

    /// The list of servers behind an update, and its version; `None` where there is no list.
    pub(super) fn roster(&self, zxid: i64) -> Option<(Roster, i64)> {
        let data = self.znode(CONFIG, zxid)?.data.as_deref()?;
        Roster::read(std::str::from_utf8(data).ok()?)
    }

    /// How often the list of servers was changed.
    pub(super) fn reconfigs(&self) -> u64 {
        self.znodes.get(CONFIG).map_or(0, |states| states.len().saturating_sub(1) as u64)
    }

    /// The first event of one of these kinds at a znode behind `after`, up to `last`.
    pub(super) fn event(&self, path: &str, kinds: &[EventKind], after: i64, last: i64) -> Option<i64> {
        let events = self.events.get(path)?;
        let first = events.partition_point(|(at, _)| *at <= after);
        let mut events = events[first..].iter().take_while(|(at, _)| *at <= last);
        events.find(|(_, kind)| kinds.contains(kind)).map(|(at, _)| *at)
    }

    /// A server leads a term. Returns whether that is new.
    pub(super) fn leads(&mut self, term: u64, server: HostId) -> Result<bool, Violation> {
        let first = self.leaders.insert(term, server);
        if first.is_none_or(|first| first == server) {
            return Ok(first.is_none());
        }
        let first = first.unwrap_or(0);
        wrong(format!("servers {first} and {server} both lead term {term}"))
    }

    /// The newest term that had a leader.
    pub(super) fn newest_led(&self) -> u64 {
        self.leaders.last_key_value().map_or(0, |(term, _)| *term)
    }

    /// The leader of the newest term.
    pub(super) fn leader(&self) -> Option<HostId> {
        self.leaders.last_key_value().map(|(_, leader)| *leader)
    }

    /// A server has this in its log.
    pub(super) fn holds(&mut self, server: HostId, entry: &Entry) -> Checked {
        let key = (entry.position, entry.term);
        let first = self.proposed.entry(key).or_insert_with(|| entry.payload.clone());
        if *first == entry.payload {
            return Ok(());
        }
        wrong(format!(
            "position {} of term {} is not the same for server {server} as for others",
            entry.position, entry.term
        ))
    }

    /// A server has applied an entry.
    pub(super) fn applied(&mut self, server: HostId, entry: &Entry) -> Checked {
        if let Some(first) = self.entries.get(entry.position as usize - 1) {
            if first.entry == *entry {
                return Ok(());
            }
            return wrong(format!(
                "server {server} applied an entry of term {} at position {}, others one of term {}",
                entry.term, entry.position, first.entry.term
            ));
        }
        if entry.position != self.position() + 1 {
            return wrong(format!(
                "server {server} applied position {} when {} was the last",
                entry.position,
                self.position()
            ));
        }
        let before = self.zxid();
        for item in items(entry) {
            let item =
                item.map_err(|error| Violation::new(format!("position {}: {error}", entry.position)))?;
            self.item(&item)
                .map_err(|violation| Violation::new(format!("position {}: {violation}", entry.position)))?;
        }
        let zxids = (before, self.zxid());
        self.entries.push(Committed { entry: entry.clone(), digest: self.tree.digest(), zxids });
        Ok(())
    }

    /// Whatever was committed, from now on the timeline is what this server has: up to a position as it was, and behind
    /// that its own entries. Terms, leaders and requests begin anew.
    pub(super) fn goes_on_from(&mut self, server: HostId, position: u64, entries: &[Entry]) -> Checked {
        let was = std::mem::replace(self, Self::new());
        let kept = was.entries.iter().map(|committed| &committed.entry).take(position as usize);
        kept.skip(1).chain(entries).try_for_each(|entry| self.applied(server, entry))
    }

    /// A server's state behind a position is that of the others.
    pub(super) fn compare(&self, server: HostId, position: u64, tree: &Tree) -> Checked {
        let committed = position.checked_sub(1).and_then(|at| self.entries.get(at as usize));
        // Who is to join an ensemble has nothing, not even the beginning.
        let committed = if position == 0 { self.entries.first() } else { committed };
        let Some(expected) = committed.map(|committed| committed.digest) else {
            return wrong(format!(
                "server {server} is at position {position}, only {} are known",
                self.position()
            ));
        };
        if tree.digest() == expected {
            return Ok(());
        }
        wrong(format!(
            "server {server} has another state behind position {position} than the others: zxid {}",
            tree.last_zxid()
        ))
    }

    fn item(&mut self, item: &Item<'_>) -> Checked {
        if let Some(Origin { server, request, .. }) = item.origin
            && !self.origins.insert((server, request))
        {
            return wrong(format!("request {request:#x} of server {server} has two outcomes"));
        }
        match &item.outcome {
            Outcome::Refused(_) | Outcome::Failed(..) | Outcome::Untaken => {
                self.refusals += 1;
                Ok(())
            }
            Outcome::Update(update) => self.take(update, item.origin, false),
            Outcome::Ran(ran) => {
                ran.update.iter().try_for_each(|update| self.take(update, item.origin, true))
            }
            Outcome::Seen(_)
            | Outcome::Step(_)
            | Outcome::Part(_)
            | Outcome::Elsewhere
            | Outcome::Site(_) => wrong("an entry of a server with one partition concerns others"),
        }
    }

    /// An update is committed; `ran`: programs have added to it what they do.
    fn take(&mut self, update: &Update<'_>, origin: Option<Origin>, ran: bool) -> Checked {
        let wrong = |what: &str| wrong(format!("{}: {what}", update.describe()));
        if update.zxid != self.zxid() + 1 {
            return wrong("its zxid is not the one that follows");
        }
        let contact = self.tree.session_contact(update.session);
        let mut watcher = Watcher::default();
        if let Err(error) = self.tree.apply(update, &mut watcher) {
            return wrong(&error.to_string());
        }
        let Watcher { did, changes } = watcher;
        let opens = did.iter().any(|did| matches!(did, Did::Opened { .. }));
        match (contact, origin) {
            _ if opens || update.session == 0 => {}
            (None, _) => return wrong("its session does not exist"),
            (Some(contact), Some(origin)) => {
                if contact.server != origin.server || contact.opening >= origin.request {
                    return wrong("its session has moved to another connection");
                }
            }
            (Some(_), None) if matches!(did[..], [Did::Closed { .. }, ref rest @ ..] if ran || rest.is_empty()) =>
                {}
            (Some(_), None) => return wrong("nobody asked for it"),
        }
        self.note_states(update.zxid, &did, &changes);
        for did in &did {
            self.check_done(update, did)?;
        }
        self.check_tag(update, &changes)?;
        self.updates.push(Effect { session: update.session, did, changes });
        Ok(())
    }

    fn note_states(&mut self, zxid: i64, did: &[Did], changes: &[(EventKind, String)]) {
        let mut touched: BTreeSet<&str> = changes.iter().map(|(_, path)| path.as_str()).collect();
        touched.extend(did.iter().filter_map(|did| match did {
            Did::Created { path, .. } => Some(path.as_str()),
            _ => None,
        }));
        let parents: Vec<&str> = touched.iter().map(|path| parent(path)).collect();
        touched.extend(parents);
        for path in touched {
            let state = self.tree.get(path);
            let state = state.map(|it| Seen { data: it.data().map(<[u8]>::to_vec), stat: it.stat() });
            self.znodes.entry(path.to_owned()).or_default().push((zxid, state));
        }
        for (kind, path) in changes {
            self.note_child(zxid, *kind, path);
            self.events.entry(path.clone()).or_default().push((zxid, *kind));
            if *kind == EventKind::Deleted {
                self.ephemerals.remove(path);
                self.sequences.remove(path);
            }
        }
    }

    fn note_child(&mut self, zxid: i64, kind: EventKind, path: &str) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let children = self.children.entry(parent(path).to_owned()).or_default();
        match kind {
            EventKind::Created => children.push(Child::new(name, zxid)),
            EventKind::Deleted => {
                let last = children.iter_mut().rfind(|child| child.name == name);
                last.into_iter().for_each(|child| child.deleted = zxid);
            }
            _ => {}
        }
    }

    fn check_done(&mut self, update: &Update<'_>, did: &Did) -> Checked {
        let wrong = |what: &str| wrong(format!("{}: {what}", update.describe()));
        match did {
            Did::Created { path, stat } => {
                let owner = stat.ephemeral_owner;
                if owner != 0 && self.tree.session(owner).is_none() {
                    return wrong("an ephemeral of a session that does not exist");
                }
                if owner != 0 {
                    self.ephemerals.insert(path.clone(), owner);
                }
                // A session's number may stand there too.
                let of_program = path.starts_with(PROGRAM);
                let number = path
                    .len()
                    .checked_sub(10)
                    .filter(|_| !of_program)
                    .and_then(|at| path.get(at..)?.parse::<i64>().ok());
                if let Some(number) = number {
                    let last = self.sequences.insert(parent(path).to_owned(), number);
                    if last.is_some_and(|last| last >= number) {
                        return wrong("its number was given before");
                    }
                }
            }
            Did::Closed { session } => {
                self.closed.insert(*session, update.zxid);
                self.tags.remove(session);
                if self.ephemerals.values().any(|owner| owner == session) {
                    return wrong("an ephemeral outlives its session");
                }
            }
            Did::Opened { session, .. } if session >> 55 == 0 => {
                return wrong("its id is one that is no session's");
            }
            // An id may come again when the clock of a machine was set back.
            Did::Opened { session, .. } => {
                self.opened.entry(*session).or_insert(update.zxid);
            }
            Did::Deleted | Did::DataSet { .. } | Did::Checked => {}
        }
        Ok(())
    }

    /// A client's writes carry growing numbers: none takes effect twice, and in a session none overtakes
    /// another.
    fn check_tag(&mut self, update: &Update<'_>, changes: &[(EventKind, String)]) -> Checked {
        let wrote = |kind: EventKind| matches!(kind, EventKind::Created | EventKind::DataChanged);
        let written = changes.iter().filter(|(kind, _)| wrote(*kind));
        let mut tags =
            written.filter_map(|(_, path)| read_tag(self.znode(path, update.zxid)?.data.as_deref()?));
        let found = tags.next();
        drop(tags);
        let Some((client, write)) = found else { return Ok(()) };
        if !self.written.insert((client, write)) {
            return wrong(format!(
                "{}: write {write} of client {client} takes effect twice",
                update.describe()
            ));
        }
        // Which session it is that its contact server alone keeps, only the client says.
        let local = (write >> LIFE_BITS) << 16 | client as u64;
        let session = if update.session == 0 { local as i64 } else { update.session };
        let last = self.tags.insert(session, write);
        if last.is_some_and(|last| last >= write) {
            return wrong(format!(
                "{}: write {write} of client {client} takes effect after its write {}",
                update.describe(),
                last.unwrap_or(0)
            ));
        }
        Ok(())
    }

    /// Whether a client's write has taken effect.
    pub(super) fn has_written(&self, client: usize, write: u64) -> bool {
        self.written.contains(&(client, write))
    }
}
