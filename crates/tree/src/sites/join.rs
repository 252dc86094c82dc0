//! Joining the other sites: the state becomes the hub's, as it was at a position of the hub's log.
//!
//! It comes as the slices of a snapshot of the hub, each an item of this site's log, so that every server here has
//! them in the same order, also one that starts in between. The tree stays what it was until all of them are there.
//! Whoever snapshots a tree that takes in a state loses what has come of it: that has to wait.
//!
//! The hub may be divided over partitions, and so may this site, each in its own way. The state of a hub that is comes as
//! those of its partitions, and is put together here; then it is divided as this site is.

use crate::digest;
use crate::encoding::Reason;
use crate::load::Loader;
use crate::node::ROOT_ID;
use crate::records::LoadError;
use crate::reserved::{CONFIG_PATH, PROGRAMS, ROOT};
use crate::sites::divided::{OwnedAway, Places, is_copied};
use crate::sites::names::{SiteId, Source};
use crate::sites::streams::Streams;
use crate::tree::Tree;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// So many bits number the requests of a site in one life.
const NUMBERS_BITS: u32 = 40;

/// The state of a hub that is coming.
#[derive(Debug)]
pub(crate) struct Joining {
    /// For each of its partitions, and whether the first chunk has come that says what it rests on.
    parts: Vec<(Loader, bool)>,
}

impl Joining {
    fn chunk(&mut self, slice: &[u8]) -> Result<(), LoadError> {
        if let [(only, _)] = &mut self.parts[..] {
            return only.chunk(slice);
        }
        let cut = LoadError::Malformed("a slice of the hub's state is empty");
        let (partition, chunk) = slice.split_first().ok_or(cut)?;
        let part = self.parts.get_mut(usize::from(*partition));
        let (loader, is_begun) =
            part.ok_or(LoadError::Malformed("the hub has fewer partitions than its state"))?;
        // What the partition rests on is the hub's own business.
        if core::mem::replace(is_begun, true) { loader.chunk(chunk) } else { Ok(()) }
    }

    /// The hub's tree as a whole.
    fn finish(self) -> Result<Tree, LoadError> {
        let loaders = self.parts.into_iter().map(|(loader, _)| loader.finish());
        let mut trees = loaders.collect::<Result<Vec<_>, _>>()?.into_iter();
        let mut whole = trees.next().ok_or(LoadError::Incomplete)?;
        let ids: Vec<i64> = whole.sessions.iter().map(|(id, _)| id).collect();
        for id in ids {
            whole.sessions.change(id, |session| session.visited = 0);
        }
        whole.sites.divided.owned_away = OwnedAway::default();
        whole.sites.divided.marks.clear();
        whole.forget_copies().map_err(LoadError::Malformed)?;
        for mut other in trees {
            whole.zxids.last = whole.zxids.last.max(other.zxids.last);
            whole.sites.read_tokens.append(&mut other.sites.read_tokens);
            // What is left when something is taken may be below what lives elsewhere, which was below that.
            let mut comes = true;
            while core::mem::take(&mut comes) {
                for path in other.tops_here() {
                    // Copies of what says which programs there are, and quotas, which come with what they are for.
                    if !is_copied(&path) && whole.is_away(&path) && other.lookup(&path).is_some() {
                        whole.take_from(&mut other, &path).map_err(LoadError::Malformed)?;
                        comes = true;
                    }
                }
            }
        }
        Ok(whole)
    }
}

impl Tree {
    /// Takes the next slice of the hub's state; `begins` is how many partitions the hub has where it is the first one,
    /// perhaps once more, and 0 elsewhere.
    pub fn take_hub_state(&mut self, begins: u8, slice: &[u8]) {
        if begins > 0 {
            let part = |_| (Loader::new(self.options.clone()), false);
            self.sites.joining = Some(Joining { parts: (0..begins).map(part).collect() }.into());
        }
        // What cannot be read is none, and found not to be whole in the end.
        if self.sites.joining.as_mut().is_some_and(|joining| joining.chunk(slice).is_err()) {
            self.sites.joining = None;
        }
    }

    /// Whether slices of the hub's state have come, and not all of them: no snapshot may be taken.
    #[must_use]
    pub fn is_joining(&self) -> bool {
        self.sites.joining.is_some()
    }

    /// The hub's state is here: it is this site's from now on. Its list of servers stays its own. Returns what the other
    /// partitions of this site have of it, in their order: each goes on with [`Tree::join_with`].
    ///
    /// # Errors
    /// When it is not whole, or no state of a hub. Nothing has changed but that it is forgotten.
    pub fn join(
        &mut self,
        site: SiteId,
        hub: SiteId,
        position: u64,
        places: &Places<'_>,
    ) -> Result<Vec<Self>, LoadError> {
        let joining = self.sites.joining.take().ok_or(LoadError::Incomplete)?;
        let mut joined = joining.finish()?;
        if joined.sites.own != hub || joined.sites.hub != hub || site == hub {
            return Err(LoadError::Malformed("it is not the state of the hub"));
        }
        joined.sites.own = site;
        let last = joined.zxids.last_prepared;
        joined.sites.seen.entry(Source::first_of(hub)).or_insert(last);
        joined.sites.seen.remove(&Source::first_of(site));
        // What it has done before is nobody else's.
        joined.sites.floors = joined.sites.seen.clone();
        joined.sites.streams = Streams::default();
        joined.sites.streams.set_imported(hub, position);
        let moved: Vec<(String, u8)> = self.placed().iter().map(|(path, to)| (path.into(), to)).collect();
        let shares = joined.divide(places, &moved).map_err(LoadError::Malformed)?;
        joined.sites.floors.insert(Source::first_of(site), self.zxids.last_prepared);
        joined.take_servers_of(self);
        self.join_with(joined);
        Ok(shares)
    }

    /// This is what this partition has of the hub's state. What it has prepared before, and prepares from now on, has zxids
    /// that grow.
    pub fn join_with(&mut self, mut share: Self) {
        // What it has asked in another life may still be answered.
        let life = u64::from(share.times_lost(share.sites.own)) << NUMBERS_BITS;
        share.sites.streams.load_numbered(self.sites.streams.numbered().max(life));
        share.zxids.last_prepared = self.zxids.last_prepared;
        share.zxids.last = share.zxids.last.max(self.zxids.last);
        share.partitions.take_placed_of(&mut self.partitions);
        *self = share;
    }

    /// What says which programs there are is seen by clients on one partition, and this one has copies if that is another one.
    fn forget_copies(&mut self) -> Result<(), Reason> {
        let Some(programs) = self.find(PROGRAMS).filter(|id| self.nodes[*id].is_absent()) else {
            return Ok(());
        };
        let copies: Vec<String> = self.child_ids_back(programs).map(|id| self.path_of(id)).collect();
        copies.into_iter().try_for_each(|path| self.forget_subtree(&path))
    }

    /// Whether there is the name at a path of a znode that lives elsewhere, or room for one.
    fn is_away(&self, path: &str) -> bool {
        self.find(path).is_none_or(|id| self.nodes[id].is_absent())
    }

    /// Leaves of a whole tree what lives on the first partition, where these subtrees were moved. Returns what the others
    /// have.
    fn divide(&mut self, places: &Places<'_>, moved: &[(String, u8)]) -> Result<Vec<Self>, Reason> {
        // Each partition has a copy of what says which programs there are.
        let of_programs = self.children_of(PROGRAMS);
        let copies = of_programs.iter().map(|path| self.copy_of(path)).collect::<Result<Vec<_>, _>>()?;
        let names = self.children_of(ROOT);
        let marks = self.marks_of_split(moved);
        let mut shares = Vec::new();
        for partition in 1..places.partitions {
            let mut share = Self::new_part(self.options.clone());
            share.sites = self.sites.of_partition(self.nodes[ROOT_ID].mark());
            let mut owners = Vec::new();
            for path in names.iter().filter(|path| (places.of)(path) == partition) {
                let id = self.lookup(path).ok_or("a child is no znode")?;
                let owner = self.nodes[id].is_ephemeral().then(|| self.ext_of(&self.nodes[id]).owner);
                owners.extend(share.take_from(self, path)?);
                owner.into_iter().for_each(|owner| self.sites.divided.owned_away.add(path, owner));
            }
            if (places.of)(PROGRAMS) != partition {
                for (path, copy) in of_programs.iter().zip(&copies) {
                    owners.extend(share.take_copy(path, copy)?);
                }
            }
            for owner in owners {
                let home = self.sessions.get(owner).map_or(0, |session| session.home);
                self.sessions.visit(owner, partition).ok_or("an owner is no session")?;
                share.sessions.set_home(owner, home);
            }
            share.sites.read_tokens = self.sites.read_tokens.taken(|path| (places.of)(path) == partition);
            share.sites.divided.marks.clone_from(&marks);
            share.zxids.last = self.zxids.last;
            share.sites.late.begin(share.zxids.last);
            shares.push(share);
        }
        self.sites.divided.marks = marks;
        self.divide_deeper(&mut shares, moved)?;
        if places.partitions > 1 && (places.of)(PROGRAMS) != 0 {
            for (path, copy) in of_programs.iter().zip(&copies) {
                self.take_copy(path, copy)?;
            }
        }
        Ok(shares)
    }

    /// The marks of what is above subtrees that were moved.
    fn marks_of_split(&self, moved: &[(String, u8)]) -> BTreeMap<String, SiteId> {
        moved.iter().flat_map(|(path, _)| self.marks_above(path)).collect()
    }

    /// What was moved and is below something goes from where that lives to where it lives itself.
    fn divide_deeper(&mut self, shares: &mut [Self], moved: &[(String, u8)]) -> Result<(), Reason> {
        let mut deeper: Vec<&(String, u8)> =
            moved.iter().filter(|(path, _)| path.matches('/').count() > 1).collect();
        deeper.sort_unstable_by_key(|(path, _)| path.len());
        for (path, to) in deeper {
            let mut all: Vec<&mut Self> = core::iter::once(&mut *self).chain(&mut *shares).collect();
            let Some(at) = all.iter().position(|tree| tree.lookup(path).is_some()) else { continue };
            let to = usize::from(*to);
            if at == to || to >= all.len() {
                continue;
            }
            let [from, into] = all.get_disjoint_mut([at, to]).expect("they are two of them");
            let moved = from.moved_of_sites(path, &[]);
            from.leaves_with_sites(path);
            let owners = into.take_from(from, path)?;
            if let Some(moved) = moved {
                into.comes_with_sites(path, moved, 0);
            }
            for owner in owners {
                let home = all[0].sessions.get(owner).map_or(0, |session| session.home);
                if to > 0 {
                    all[0].sessions.visit(owner, to as u8).ok_or("an owner is no session")?;
                    all[to].sessions.set_home(owner, home);
                }
            }
        }
        Ok(())
    }

    fn children_of(&self, path: &str) -> Vec<String> {
        let Some(id) = self.lookup(path) else { return Vec::new() };
        let mut paths: Vec<_> = self.child_ids_back(id).map(|id| self.path_of(id)).collect();
        paths.reverse();
        paths
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
