//! Joining the other sites: the state becomes the hub's, as it was at a position of the hub's log.
//!
//! It comes as the slices of a snapshot of the hub, each an item of this site's log, so that every server here has
//! them in the same order, also one that starts in between. The tree stays what it was until all of them are there.
//! Whoever snapshots a tree that takes in a state loses what has come of it: that has to wait.

use crate::digest;
use crate::load::Loader;
use crate::records::LoadError;
use crate::reserved::CONFIG_PATH;
use crate::sites::state::{SiteId, Source};
use crate::sites::streams::Streams;
use crate::tree::Tree;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// So many bits number the requests of a site in one life.
const NUMBERS_BITS: u32 = 40;

impl Tree {
    /// Takes the next slice of the hub's state, or the first one of it once more.
    pub fn take_hub_state(&mut self, is_first: bool, slice: &[u8]) {
        if is_first {
            self.sites.joining = Some(Box::new(Loader::new(self.options.clone())));
        }
        // What cannot be read is none, and found not to be whole in the end.
        if self.sites.joining.as_mut().is_some_and(|loader| loader.chunk(slice).is_err()) {
            self.sites.joining = None;
        }
    }

    /// Whether slices of the hub's state have come, and not all of them: no snapshot may be taken.
    #[must_use]
    pub fn is_joining(&self) -> bool {
        self.sites.joining.is_some()
    }

    /// The hub's state is here: it is this site's from now on. Its list of servers stays its own.
    ///
    /// # Errors
    /// When it is not whole, or no state of a hub. Nothing has changed but that it is forgotten.
    pub fn join(&mut self, site: SiteId, hub: SiteId, position: u64) -> Result<(), LoadError> {
        let loader = self.sites.joining.take().ok_or(LoadError::Incomplete)?;
        let mut joined = loader.finish()?;
        if joined.sites.own != hub || joined.sites.hub != hub || site == hub {
            return Err(LoadError::Malformed("it is not the state of the hub"));
        }
        joined.sites.own = site;
        joined.sites.seen.insert(Source::first_of(hub), joined.zxids.last_prepared);
        // What it has done before is nobody else's.
        joined.sites.floors = joined.sites.seen.clone();
        joined.sites.floors.insert(Source::first_of(site), self.zxids.last_prepared);
        let mut streams = Streams::default();
        streams.set_imported(hub, position);
        // What it has asked in another life may still be answered.
        let life = u64::from(joined.times_lost(site)) << NUMBERS_BITS;
        streams.load_numbered(self.sites.streams.numbered().max(life));
        joined.sites.streams = streams;
        joined.take_servers_of(self);
        // What this site has prepared before, and prepares from now on, has zxids that grow.
        joined.zxids.last_prepared = self.zxids.last_prepared;
        joined.zxids.last = joined.zxids.last.max(self.zxids.last);
        *self = joined;
        Ok(())
    }

    /// Takes over what another tree says of the servers.
    fn take_servers_of(&mut self, other: &Self) {
        let (Some(own), Some(id)) = (other.lookup(CONFIG_PATH), self.lookup(CONFIG_PATH)) else { return };
        let own = &other.nodes[own];
        let data: Option<Vec<u8>> = own.data().map(Vec::from);
        let path_digest = digest::of_path(CONFIG_PATH);
        self.before_change(id, path_digest);
        self.before_data_change(id, path_digest);
        let node = &mut self.nodes[id];
        node.set_data(data.as_deref());
        node.version = own.version;
        node.mzxid = own.mzxid;
        node.set_mtime(own.mtime());
        self.after_data_change(id, path_digest);
        self.after_change(id, path_digest);
    }
}
