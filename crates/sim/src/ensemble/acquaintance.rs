//! Whom a server connects to, and which disks the others have: as the server's driver does it.
//!
//! A server that has lost its disk must not vote as if it had its past. So every server remembers the
//! disk with which it has met each other one, and does not listen to one that comes with another disk
//! until that was taken out of the ensemble, unless it leads. The same goes for one that comes with an older copy of its
//! disk, which lacks the start that was heard of last.

use std::collections::{BTreeMap, BTreeSet};
use stoa_core::{Now, Shard, Start, Starts};

/// The disk of another server, and the last start with it that was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownDisk {
    pub(crate) id: u64,
    pub(crate) start: Option<Start>,
}

impl KnownDisk {
    /// Whether a server shows this one, or an older copy of it that lacks the start.
    pub(crate) fn is(&self, disk: u64, starts: &Starts) -> bool {
        self.id == disk && self.start.is_none_or(|start| !starts.lack(start))
    }
}

/// The disks that a server has met the others with; it is durable.
pub(crate) type KnownDisks = BTreeMap<u8, KnownDisk>;

/// The disks of those who have founded a history, from their ids as servers say them.
pub(crate) fn of_founders(founders: BTreeMap<u8, [u8; 16]>) -> KnownDisks {
    let known = |id: [u8; 16]| KnownDisk { id: u128::from_be_bytes(id) as u64, start: None };
    founders.into_iter().map(|(server, id)| (server, known(id))).collect()
}

/// What a running server knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Acquaintance {
    /// Whom it connects to, and by whom it lets itself be connected to.
    pub(crate) circle: BTreeSet<u8>,
    /// Those whom its settings name.
    named: BTreeSet<u8>,
    /// Those that have come back with another disk, or with an older copy of theirs.
    strangers: BTreeMap<u8, KnownDisk>,
}

/// The servers of a list as it stands in `/zookeeper/config`.
fn listed(text: &str) -> BTreeSet<u8> {
    let names = text.lines().filter_map(|line| line.strip_prefix("server.")?.split_once('='));
    names.filter_map(|(id, _)| id.parse().ok()).collect()
}

impl Acquaintance {
    /// When a server starts; `settings` is the list in its own settings.
    pub(crate) fn new(server: &Shard, settings: &str) -> Self {
        let named = listed(settings);
        let mut circle = server.changed_servers().map(listed).unwrap_or_default();
        circle.extend(&named);
        Self { circle, named, strangers: BTreeMap::new() }
    }

    /// A stranger leads, so it has joined anew with the disk that it has now.
    pub(crate) fn accept(&mut self, known: &mut KnownDisks, peer: u8) {
        known.extend(self.strangers.remove_entry(&peer));
    }

    /// Another server is connected, and shows its disk and its starts.
    pub(crate) fn meet(
        &mut self,
        server: &mut Shard,
        known: &mut KnownDisks,
        peer: u8,
        (disk, starts): (u64, &Starts),
        now: Now,
    ) {
        let shown = KnownDisk { id: disk, start: starts.last() };
        if known.get(&peer).is_none_or(|known| known.is(disk, starts)) {
            known.insert(peer, shown);
            self.strangers.remove(&peer);
            server.peer_connected(peer, now);
        } else {
            self.strangers.insert(peer, shown);
            server.peer_emptied(peer, now);
        }
    }

    /// There is another list of servers, or another set of members.
    pub(crate) fn look_around(&mut self, server: &Shard) {
        let Some(servers) = server.changed_servers() else { return };
        let company = server.company().into_iter();
        let known: Vec<u8> = company.filter(|member| self.circle.contains(member)).collect();
        self.circle = listed(servers);
        self.circle.extend(known);
        self.circle.extend(&self.named);
    }

    /// These belong to the ensemble now. Whoever does not is welcome with whatever disk.
    pub(crate) fn members_are(
        &mut self,
        members: &[u8],
        server: &mut Shard,
        known: &mut KnownDisks,
        now: Now,
    ) {
        self.look_around(server);
        known.retain(|peer, _| members.contains(peer));
        let welcome: Vec<_> = self.strangers.extract_if(.., |peer, _| !members.contains(peer)).collect();
        for (peer, disk) in welcome {
            known.insert(peer, disk);
            server.peer_connected(peer, now);
        }
    }
}
