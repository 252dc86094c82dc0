//! One server: its threads, its log, and what they say to each other.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use stoa_core::{
    Append, CloseReason, Config, ConnectionId, Now, Output, PeerOutput, Restore, Shard, Share, Word,
};
use stoa_tree::Options;

use crate::rng::Rng;

/// What is on a disk: records, by timeline.
pub(super) type Records = Vec<(u32, u64, Bytes)>;

/// What a thread lets out for others than its siblings.
#[derive(Debug)]
pub(super) enum Out {
    Peer(PeerOutput),
    Closed(ConnectionId, CloseReason),
}

/// A server that runs.
pub(super) struct Server {
    pub(super) shards: Vec<Shard>,
    /// What was said and has not arrived, by sender and receiver.
    words: BTreeMap<(u8, u8), VecDeque<Word>>,
    /// What the log was given, in its order, and has not stored.
    log: VecDeque<Append>,
}

impl Server {
    /// Starts with what the disk holds.
    pub(super) fn start(
        id: u8,
        partitions: u8,
        voters: &[u64],
        disk: &Records,
        seed: u64,
        now: Now,
        plant: impl Fn(&mut Shard),
    ) -> Self {
        let shard = |partition: u8| {
            let share = Share { partition, partitions };
            let mut restore = Restore::of_partition(Options::default(), voters, share);
            for (_, position, payload) in disk.iter().filter(|(of, ..)| *of == u32::from(partition)) {
                restore.record(*position, payload).expect("what was stored can be read");
            }
            let recovered = restore.finish(id).expect("what was stored makes sense");
            let config = Config {
                server_id: id,
                partition,
                partitions,
                tick_ms: 100,
                session_timeout_min_ms: 400,
                heartbeat_ms: 20,
                snapshot_updates: 1 << 40,
                ..Config::default()
            };
            let mut rng = Rng::new(seed ^ u64::from(partition) << 56);
            let secret = std::array::from_fn(|_| rng.next_u64() as u8);
            let mut shard =
                Shard::new(config, recovered, secret, now).expect("what was stored can be gone on from");
            plant(&mut shard);
            shard
        };
        let shards = (0..partitions).map(shard).collect();
        Self { shards, words: BTreeMap::new(), log: VecDeque::new() }
    }

    pub(super) fn shard(&mut self, partition: u8) -> &mut Shard {
        &mut self.shards[usize::from(partition)]
    }

    /// Takes out what a thread has to say.
    pub(super) fn poll(&mut self, partition: u8, now: Now) -> Vec<Out> {
        let mut out = Vec::new();
        let shard = &mut self.shards[usize::from(partition)];
        shard.settle(now);
        while let Some(append) = shard.server_mut().poll_append() {
            self.log.push_back(append);
        }
        while let Some(output) = shard.server_mut().poll_peer() {
            out.push(Out::Peer(output));
        }
        shard.settle(now);
        while let Some((to, word)) = shard.poll_word() {
            self.words.entry((partition, to)).or_default().push_back(word);
        }
        while let Some(output) = shard.poll_output() {
            if let Output::Close(id, reason) = output {
                out.push(Out::Closed(id, reason));
            }
        }
        out
    }

    /// Between which threads something is on its way.
    pub(super) fn talking(&self) -> Vec<(u8, u8)> {
        self.words.iter().filter(|(_, words)| !words.is_empty()).map(|(between, _)| *between).collect()
    }

    /// The oldest word between two threads arrives.
    pub(super) fn deliver(&mut self, (from, to): (u8, u8), now: Now) {
        if let Some(word) = self.words.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
            self.shard(to).hear(from, word, now);
        }
    }

    /// Records that the log has not stored.
    pub(super) fn unstored(&self) -> usize {
        self.log.len()
    }

    /// The log stores so many more; returns whose.
    pub(super) fn store(&mut self, count: usize, disk: &mut Records, now: Now) -> Vec<u8> {
        let mut last = BTreeMap::new();
        for append in self.log.drain(..count) {
            last.insert(append.timeline, append.position);
            disk.push((append.timeline, append.position, append.payload.join()));
        }
        for (timeline, position) in &last {
            let partition = u8::try_from(*timeline).expect("there are few partitions");
            self.shard(partition).server_mut().appended(*position, now);
        }
        last.keys().map(|timeline| *timeline as u8).collect()
    }
}
