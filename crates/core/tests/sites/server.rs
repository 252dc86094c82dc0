//! The server of a site, with as many partitions as that has.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use stoa_core::{Config, Now, Recovered, Restore, Shard, SiteId, SitesStatus, SnapshotOutput, TokenUse};
use stoa_tree::{Options, Tree, Znode};

pub(crate) struct Server {
    shards: Vec<Shard>,
    /// The snapshot that is being written: its number, and how many partitions are missing.
    writing: Option<(u64, usize)>,
    slices: Vec<Vec<u8>>,
}

impl Deref for Server {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shards[0]
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shards[0]
    }
}

/// What a server's partitions have together.
pub(crate) struct WholeTree<'a>(&'a Server);

impl Deref for WholeTree<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        self.0.shards[0].tree()
    }
}

impl<'a> WholeTree<'a> {
    pub(crate) fn at(&self, path: &str) -> &'a Tree {
        let at = self.0.shards[0].placement().of(path);
        self.0.shards[usize::from(at)].tree()
    }

    pub(crate) fn holder(&self, path: &str) -> Option<SiteId> {
        self.at(path).holder(path)
    }

    pub(crate) fn may_write(&self, path: &str) -> bool {
        self.at(path).may_write(path)
    }

    pub(crate) fn get(&self, path: &str) -> Option<Znode<'a>> {
        self.at(path).get(path)
    }

    pub(crate) fn last_zxid(&self) -> i64 {
        self.0.shards.iter().map(|shard| shard.tree().last_zxid()).max().unwrap()
    }

    pub(crate) fn readers(&self, path: &str) -> Vec<SiteId> {
        self.at(path).readers(path).collect()
    }

    /// Every znode, with all that clients see of it, and who holds it.
    pub(crate) fn znodes(&self) -> BTreeMap<String, String> {
        let (mut all, mut pending) = (BTreeMap::new(), vec!["/".to_owned()]);
        while let Some(path) = pending.pop() {
            let znode = self.get(&path).unwrap_or_else(|| panic!("{path} is not where it should be"));
            let names: Vec<_> = znode.children().map(str::to_owned).collect();
            for name in &names {
                pending.push(if path == "/" { format!("/{name}") } else { format!("{path}/{name}") });
            }
            let mut names = names;
            names.sort();
            let is_config = path == "/zookeeper/config";
            let (stat, data) = (znode.stat(), znode.data().map(<[u8]>::to_vec));
            let seen = format!("{stat:?} {data:?} {names:?} {:?}", self.holder(&path));
            all.insert(path, if is_config { String::new() } else { seen });
        }
        all
    }
}

impl Server {
    pub(crate) fn new(
        config: &Config,
        partitions: u8,
        recovered: Vec<Recovered>,
        secret: [u8; 32],
        now: Now,
    ) -> Self {
        let of = |(partition, recovered)| {
            let config = Config { partition, partitions, balance: false, ..config.clone() };
            Shard::new(config, recovered, secret, now).unwrap()
        };
        let shards = (0..).zip(recovered).map(of).collect();
        let mut server = Self { shards, writing: None, slices: Vec::new() };
        server.settle(now);
        server
    }

    /// What an empty disk holds.
    pub(crate) fn empty(options: &Options, id: u8, partitions: u8) -> Vec<Recovered> {
        if partitions == 1 {
            return vec![Recovered::new(Tree::new(options.clone()), &[id])];
        }
        Restore::new(options.clone(), &[id], partitions).finish(id).unwrap()
    }

    /// The next warning of any partition.
    pub(crate) fn next_warning(&mut self) -> Option<String> {
        self.shards.iter_mut().find_map(|shard| shard.poll_warning())
    }

    /// What all partitions have counted together.
    pub(crate) fn site_status(&self) -> Option<SitesStatus> {
        let mut status = self.shards[0].site_status()?;
        for other in &self.shards[1..] {
            let other = other.site_status()?;
            status.counts.add(other.counts);
            status.held += other.held;
        }
        Some(status)
    }

    pub(crate) fn token_use(&self, path: &str) -> Option<TokenUse> {
        let at = self.shards[0].placement().of(path);
        self.shards[0].token_use_of(path, &self.shards[usize::from(at)].token_mark(path)?)
    }

    /// Which partitions are taking a snapshot, for people.
    pub(crate) fn snapshots(&self) -> String {
        let of = |shard: &Shard| (shard.is_snapshotting(), shard.snapshot_counts());
        format!("{:?} {:?}", self.shards.iter().map(of).collect::<Vec<_>>(), self.writing)
    }

    pub(crate) fn partitions(&self) -> u8 {
        self.shards.len() as u8
    }

    pub(crate) fn whole(&self) -> WholeTree<'_> {
        WholeTree(self)
    }

    /// Until the threads have nothing more to say to each other.
    pub(crate) fn settle(&mut self, now: Now) {
        if self.shards.len() == 1 {
            return;
        }
        loop {
            let mut is_busy = false;
            for from in 0..self.shards.len() {
                if from > 0 {
                    // What it has prepared goes to the first one, which has the log.
                    assert!(self.shards[from].poll_append().is_none());
                }
                self.shards[from].settle(now);
                while let Some((to, message)) = self.shards[from].poll_message() {
                    is_busy = true;
                    let to = &mut self.shards[usize::from(to)];
                    to.hear(from as u8, message, now);
                    to.settle(now);
                }
            }

            if !is_busy && !self.shards.iter().any(|shard| shard.has_more_to_apply()) {
                return;
            }
            self.shards.iter_mut().for_each(|shard| shard.apply_more(now));
        }
    }

    pub(crate) fn tick_all(&mut self, now: Now) {
        self.shards.iter_mut().for_each(|shard| shard.tick(now));
        self.settle(now);
    }

    /// The slices of the snapshot that is whole now, if one is.
    pub(crate) fn take_snapshot(&mut self, now: Now) -> Option<Vec<Vec<u8>>> {
        let mut taken = None;
        loop {
            let mut pieces = Vec::new();
            for shard in &mut self.shards {
                while let Some(piece) = shard.poll_snapshot() {
                    if matches!(piece, SnapshotOutput::Slice { .. }) {
                        shard.snapshot_taken();
                    }
                    pieces.push(piece);
                }
            }
            if pieces.is_empty() {
                return taken;
            }
            for piece in pieces {
                match piece {
                    SnapshotOutput::Begin { number, partitions, .. } => {
                        (self.writing, self.slices) = (Some((number, usize::from(partitions))), Vec::new());
                    }
                    SnapshotOutput::Slice { bytes, number } => {
                        if self.writing.is_some_and(|(writing, _)| writing == number) {
                            self.slices.push(bytes);
                        }
                    }
                    SnapshotOutput::End { number } => {
                        if let Some((writing, missing)) = &mut self.writing
                            && *writing == number
                        {
                            *missing -= 1;
                            if *missing == 0 {
                                taken = Some(std::mem::take(&mut self.slices));
                                self.shards.iter_mut().for_each(|it| it.snapshot_finished(number, true));
                            }
                        }
                    }
                    SnapshotOutput::Abort { number } => {
                        self.shards.iter_mut().for_each(|it| it.snapshot_finished(number, false));
                    }
                }
            }
            self.settle(now);
        }
    }

    /// What the log of a site that begins again holds.
    pub(crate) fn restored(
        options: Options,
        id: u8,
        partitions: u8,
        disk: &[(u64, Bytes)],
    ) -> Vec<Recovered> {
        let mut restore = Restore::new(options, &[id], partitions);
        for (position, record) in disk {
            restore.record(*position, record).unwrap();
        }
        restore.finish(id).unwrap()
    }
}
