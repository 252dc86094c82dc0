//! Containers that have become empty and TTL znodes whose time is up are deleted by the server.

use crate::server::Server;
use stoa_tree::Caller;
use stoa_wire::Request;

impl Server {
    pub(crate) fn reap(&mut self) {
        let due = self.partition.tree.reapable(self.now.wall_ms, self.config.reap_max as usize);
        let caller = Caller { session: 0, identities: &[] };
        for path in due {
            let request = Request::DeleteContainer { path: &path };
            // A znode that has got a child, or is gone, since it was found: then it stays, or is gone.
            if self.partition.propose(None, &request, &caller, self.now).is_ok() {
                self.stats.containers_deleted += 1;
            }
        }
    }
}
