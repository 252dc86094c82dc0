//! Who waits for what, by ZooKeeper's rules.

use super::acl::{self, Identity};
use super::outcome::Event;
use super::tree::Entry;
use std::collections::BTreeMap;
use stoa_wire::{AddWatchMode, EventKind, WatcherKind};

/// Names a connection.
pub type ConnectionKey = u64;

const STANDARD: u8 = 1;
const PERSISTENT: u8 = 2;
const RECURSIVE: u8 = 4;

/// One of ZooKeeper's two tables: path, connection, kinds of watch.
type Table = BTreeMap<String, BTreeMap<ConnectionKey, u8>>;

/// The watches of all connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watches {
    data: Table,
    child: Table,
}

/// A change of one znode, with all that decides who hears of it.
pub(super) struct Changed<'a> {
    pub(super) kind: EventKind,
    pub(super) path: &'a str,
    pub(super) acl: &'a [Entry],
    /// The ACL of the parent, where its list of children changed too.
    pub(super) parent_acl: &'a [Entry],
    pub(super) zxid: i64,
}

impl Watches {
    pub(super) fn add_data(&mut self, path: &str, connection: ConnectionKey) {
        add(&mut self.data, path, connection, STANDARD);
    }

    pub(super) fn add_child(&mut self, path: &str, connection: ConnectionKey) {
        add(&mut self.child, path, connection, STANDARD);
    }

    pub(super) fn add_persistent(&mut self, path: &str, connection: ConnectionKey, mode: AddWatchMode) {
        match mode {
            AddWatchMode::Persistent => {
                add(&mut self.data, path, connection, PERSISTENT);
                add(&mut self.child, path, connection, PERSISTENT);
            }
            AddWatchMode::PersistentRecursive => add(&mut self.data, path, connection, RECURSIVE),
        }
    }

    pub(super) fn contains(&self, path: &str, connection: ConnectionKey, kind: WatcherKind) -> bool {
        let has = |table: &Table, kinds: u8| {
            table.get(path).and_then(|watchers| watchers.get(&connection)).is_some_and(|has| has & kinds != 0)
        };
        match kind {
            WatcherKind::Children => has(&self.child, STANDARD),
            WatcherKind::Data => has(&self.data, STANDARD),
            WatcherKind::Persistent => has(&self.data, PERSISTENT),
            WatcherKind::PersistentRecursive => has(&self.data, RECURSIVE),
            WatcherKind::Any => has(&self.child, u8::MAX) || has(&self.data, u8::MAX),
        }
    }

    pub(super) fn remove(&mut self, path: &str, connection: ConnectionKey, kind: WatcherKind) -> bool {
        let found = self.contains(path, connection, kind);
        let (data, child) = match kind {
            WatcherKind::Children => (0, STANDARD),
            WatcherKind::Data => (STANDARD, 0),
            WatcherKind::Persistent => (PERSISTENT, PERSISTENT),
            WatcherKind::PersistentRecursive => (RECURSIVE, 0),
            WatcherKind::Any => (u8::MAX, u8::MAX),
        };
        for (table, kinds) in [(&mut self.data, data), (&mut self.child, child)] {
            if let Some(watchers) = table.get_mut(path) {
                if let Some(has) = watchers.get_mut(&connection) {
                    *has &= !kinds;
                }
                watchers.retain(|_, has| *has != 0);
                if watchers.is_empty() {
                    table.remove(path);
                }
            }
        }
        found
    }

    /// The connection is gone, and its watches with it.
    pub(crate) fn remove_connection(&mut self, connection: ConnectionKey) {
        for table in [&mut self.data, &mut self.child] {
            table.retain(|_, watchers| {
                watchers.remove(&connection);
                !watchers.is_empty()
            });
        }
    }

    /// Whether nobody watches anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.child.is_empty()
    }

    /// Who hears of a change, in the order of ZooKeeper's triggers.
    pub(super) fn trigger(
        &mut self,
        changed: &Changed<'_>,
        identities: &dyn Fn(ConnectionKey) -> Vec<Identity>,
        events: &mut Vec<(ConnectionKey, Event)>,
    ) {
        let &Changed { kind, path, acl, parent_acl, zxid } = changed;
        let mut send = |to: &[ConnectionKey], kind, path: &str, acl: &[Entry]| {
            let readers = to.iter().filter(|&&to| acl::permits(acl, stoa_wire::perms::READ, &identities(to)));
            events.extend(readers.map(|&to| (to, Event { kind, path: path.into(), zxid })));
        };
        let heard = fire(&mut self.data, path);
        send(&heard, kind, path, acl);
        if kind == EventKind::Deleted {
            let mut children = fire(&mut self.child, path);
            children.retain(|to| !heard.contains(to));
            send(&children, kind, path, acl);
        }
        if matches!(kind, EventKind::Created | EventKind::Deleted) {
            let parent = parent_of(path);
            let heard = fire(&mut self.child, parent);
            send(&heard, EventKind::ChildrenChanged, parent, parent_acl);
        }
    }
}

fn add(table: &mut Table, path: &str, connection: ConnectionKey, kind: u8) {
    *table.entry(path.into()).or_default().entry(connection).or_default() |= kind;
}

/// Those who watch `path`, or recursively something above it; watches that fire once are gone then.
fn fire(table: &mut Table, path: &str) -> Vec<ConnectionKey> {
    let mut heard = Vec::new();
    if let Some(watchers) = table.get_mut(path) {
        heard.extend(watchers.keys().copied());
        watchers.retain(|_, kinds| {
            *kinds &= !STANDARD;
            *kinds != 0
        });
        if watchers.is_empty() {
            table.remove(path);
        }
    }
    let mut above = path;
    while above != "/" {
        above = parent_of(above);
        let recursive = table.get(above).into_iter().flatten().filter(|(_, kinds)| *kinds & RECURSIVE != 0);
        heard.extend(recursive.map(|(&connection, _)| connection));
    }
    heard.sort_unstable();
    heard.dedup();
    heard
}

/// The path of the parent.
pub(super) fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(slash) => &path[..slash],
    }
}
