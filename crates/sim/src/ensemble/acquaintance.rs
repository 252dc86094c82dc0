//! Whom a server connects to, and what comes of whom it meets: as the server's driver does it.

use std::collections::BTreeSet;

use stoa_core::{Acquaintance, DiskId, KnownDisks, Now, Shard, Starts};

/// Whom a running server connects to.
#[derive(Debug, Default)]
pub(crate) struct Circle {
    /// Whom it connects to, and by whom it lets itself be connected to.
    pub(crate) servers: BTreeSet<u8>,
    /// Those whom its settings name.
    named: BTreeSet<u8>,
}

/// The servers of a list as it stands in `/zookeeper/config`.
fn listed(text: &str) -> BTreeSet<u8> {
    let names = text.lines().filter_map(|line| line.strip_prefix("server.")?.split_once('='));
    names.filter_map(|(id, _)| id.parse().ok()).collect()
}

impl Circle {
    /// When a server starts; `settings` is the list in its own settings.
    pub(crate) fn new(server: &Shard, settings: &str) -> Self {
        let named = listed(settings);
        let mut servers = server.changed_servers().map(listed).unwrap_or_default();
        servers.extend(&named);
        Self { servers, named }
    }

    /// There is another list of servers, or another set of members.
    pub(crate) fn look_around(&mut self, server: &Shard) {
        let Some(servers) = server.changed_servers() else { return };
        let company = server.company().into_iter();
        let known: Vec<u8> = company.filter(|member| self.servers.contains(member)).collect();
        self.servers = listed(servers);
        self.servers.extend(known);
        self.servers.extend(&self.named);
    }
}

/// Another server is connected, and shows its disk and its starts.
pub(crate) fn meet(
    server: &mut Shard,
    known: &mut KnownDisks,
    peer: u8,
    (disk, starts): (DiskId, &Starts),
    now: Now,
) {
    match known.meet(peer, disk, starts) {
        Acquaintance::Known => server.peer_connected(peer, now),
        Acquaintance::Stranger | Acquaintance::Older => server.peer_emptied(peer, now),
    }
}
