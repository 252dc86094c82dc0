//! A copy of a subtree.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use stoa_client_core::Call;
use stoa_wire::{AddWatchMode, Stat};

use super::error::Error;
use super::race::{First, first};
use super::service::{Events, Service, Situation};
use super::znodes::Znodes;

/// A znode as it was when the cache looked last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// Its data.
    pub data: Vec<u8>,
    /// Its Stat. What its children change in it may be of an earlier moment.
    pub stat: Stat,
}

/// A copy of a subtree, kept up to date by [`Cache::update`], which has to be called again and again.
///
/// One recursive watch tells of changes, and what has changed is read again. After a reconnect everything is
/// looked at: servers do not tell a watch of this kind what it has missed. Each znode is shown as it was at some
/// moment, and never as of an earlier one than before; together they need not be of one moment.
#[derive(Debug)]
pub struct Cache<S: Service> {
    znodes: Znodes<S>,
    path: String,
    watch: Option<S::Watch>,
    copy: BTreeMap<String, Cached>,
    /// Znodes that have changed since they were read.
    dirty: BTreeSet<String>,
    walk: Option<Walk>,
    /// The connections that there had been when it began to look at everything.
    connections: u64,
    /// Znodes whose change has not been returned yet.
    changed: BTreeSet<String>,
}

/// A look at everything that has been begun.
#[derive(Debug)]
struct Walk {
    due: Vec<String>,
    seen: BTreeSet<String>,
}

impl<S: Service> Cache<S> {
    /// A copy of the znode at a path and of all below it, empty before the first update.
    #[must_use]
    pub fn new(service: &S, path: &str) -> Self {
        Self {
            znodes: Znodes::new(service),
            path: path.to_owned(),
            watch: None,
            copy: BTreeMap::new(),
            dirty: BTreeSet::new(),
            walk: None,
            connections: 0,
            changed: BTreeSet::new(),
        }
    }

    /// A znode, if it is there.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Cached> {
        self.copy.get(path)
    }

    /// All znodes with their paths, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Cached)> {
        self.copy.iter().map(|(path, cached)| (path.as_str(), cached))
    }

    /// Waits for changes and takes them in; returns the paths of the znodes that were created, changed or
    /// deleted. The first time these are all that are there, at once. Nothing is lost when the future is
    /// dropped.
    ///
    /// # Errors
    /// When the service refuses, for instance because it does not know recursive watches. It may be called
    /// again.
    pub async fn update(&mut self) -> Result<Vec<String>, Error> {
        let mut is_first = self.watch.is_none() && self.copy.is_empty();
        loop {
            let situation = self.znodes.service.situation();
            if self.watch.is_none() || self.has_reconnected(situation) {
                if self.watch.is_none() {
                    self.watch = Some(self.znodes.watch_all(&self.path).await?);
                    is_first |= self.copy.is_empty();
                }
                self.connections = situation.connections;
                self.walk = Some(Walk { due: alloc::vec![self.path.clone()], seen: BTreeSet::new() });
            }
            self.look_at_everything().await?;
            self.read_again().await?;
            if !self.changed.is_empty() || is_first {
                return Ok(core::mem::take(&mut self.changed).into_iter().collect());
            }
            let Some(watch) = &mut self.watch else { continue };
            match first(watch.next(), self.znodes.service.changed(situation)).await {
                First::This(Ok(event)) => drop(self.dirty.insert(event.path)),
                First::This(Err(_)) => self.watch = None,
                First::That(()) => {}
            }
        }
    }

    fn has_reconnected(&self, situation: Situation) -> bool {
        situation.connections != self.connections
    }

    async fn look_at_everything(&mut self) -> Result<(), Error> {
        while let Some(path) = self.walk.as_ref().and_then(|walk| walk.due.last().cloned()) {
            let names = self.znodes.children(&path).await?;
            self.read(&path).await?;
            if let Some(walk) = &mut self.walk {
                walk.due.pop();
                let base = if path == "/" { "" } else { &path };
                walk.due.extend(names.iter().map(|name| format!("{base}/{name}")));
                walk.seen.insert(path);
            }
        }
        if let Some(Walk { seen, .. }) = self.walk.take() {
            // They may have been made since they were not seen.
            self.dirty.extend(self.copy.keys().filter(|path| !seen.contains(*path)).cloned());
        }
        Ok(())
    }

    async fn read_again(&mut self) -> Result<(), Error> {
        while let Some(path) = self.dirty.first().cloned() {
            self.read(&path).await?;
            self.dirty.remove(&path);
        }
        Ok(())
    }

    /// Looks at one znode.
    async fn read(&mut self, path: &str) -> Result<(), Error> {
        let Some((data, stat)) = self.znodes.data(path).await? else {
            self.forget(path);
            return Ok(());
        };
        let known = self.copy.insert(path.to_owned(), Cached { data, stat });
        if known.is_none_or(|it| (it.stat.czxid, it.stat.mzxid) != (stat.czxid, stat.mzxid)) {
            self.changed.insert(path.to_owned());
        }
        Ok(())
    }

    /// A znode is gone, and all below it.
    fn forget(&mut self, path: &str) {
        let below = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let range = (Bound::Included(below.as_str()), Bound::Unbounded);
        let gone = self.copy.range::<str, _>(range).map(|(path, _)| path);
        let mut gone: Vec<_> = gone.take_while(|path| path.starts_with(&below)).cloned().collect();
        gone.push(path.to_owned());
        for path in gone {
            if self.copy.remove(&path).is_some() {
                self.changed.insert(path);
            }
        }
    }
}

impl<S: Service> Znodes<S> {
    /// A watch of everything at a path and below.
    async fn watch_all(&self, path: &str) -> Result<S::Watch, Error> {
        let mode = AddWatchMode::PersistentRecursive;
        let call = |watch| Call::AddWatch { path: path.to_owned(), mode, watch };
        match self.ask_and_watch(call).await {
            (Ok(_), watch) => Ok(watch),
            (Err(code), _) => Err(Error::of(path, code)),
        }
    }
}
