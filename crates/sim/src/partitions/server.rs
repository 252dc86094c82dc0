//! One running server: its threads, its log, and what they say to each other.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use stoa_core::{
    Append, CloseReason, ConnectionId, Items, Now, Outcome, Output, PeerOutput, Shard, ShardMessage, Slices,
    SnapshotOutput, StateLoader,
};
use stoa_group::{EntryKind, Store};
use stoa_tree::Options;

use crate::check::Violation;
use crate::disk_thread::{LogThread, SnapshotThread};
use crate::ensemble::acquaintance::Acquaintance;

/// The chunks of a snapshot on its way.
pub(super) type Chunks = Rc<Vec<Vec<u8>>>;

/// What a thread lets out for others than its siblings.
#[derive(Debug)]
pub(super) enum Out {
    Peer(PeerOutput),
    Closed(ConnectionId, CloseReason),
}

/// A word that may arrive: between which threads, and whether it is the oldest urgent one or the oldest of all.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextWord {
    pub(super) between: (u8, u8),
    is_urgent: bool,
}

/// A server that runs.
pub(super) struct Server {
    pub(super) shards: Vec<Shard>,
    /// A record that waits for a snapshot to be taken over, and those behind it.
    pub(super) held: VecDeque<Append>,
    /// The snapshot that has arrived.
    pub(super) arrived: Option<Chunks>,
    /// The snapshot that is being written of this server's own state: its number, and where it stands.
    pub(super) writing: Option<(u64, u64)>,
    /// Whom each partition is connected to.
    pub(super) circles: Vec<Acquaintance>,
    pub(super) log: LogThread,
    pub(super) snapshots: SnapshotThread,
    /// What was said and has not arrived, by sender and receiver.
    words: BTreeMap<(u8, u8), VecDeque<ShardMessage>>,
}

impl Server {
    pub(super) fn new(shards: Vec<Shard>, log: LogThread, settings: &str) -> Self {
        Self {
            held: VecDeque::new(),
            arrived: None,
            writing: None,
            circles: shards.iter().map(|shard| Acquaintance::new(shard, settings)).collect(),
            shards,
            log,
            snapshots: SnapshotThread::default(),
            words: BTreeMap::new(),
        }
    }

    pub(super) fn shard(&mut self, partition: u8) -> &mut Shard {
        &mut self.shards[usize::from(partition)]
    }

    /// Takes out what a thread has to say.
    pub(super) fn poll(&mut self, partition: u8, now: Now) -> Result<Vec<Out>, Violation> {
        let mut out = Vec::new();
        let at = usize::from(partition);
        self.shards[at].settle(now);
        while let Some(append) = self.shards[at].poll_append() {
            check_record(self.shards.len(), &append)?;
            self.hold_or_log(append);
        }
        let shard = &mut self.shards[at];
        while let Some(output) = shard.poll_peer() {
            out.push(Out::Peer(output));
        }
        if self.held.is_empty() && partition == 0 {
            // One that came too late to be of use.
            self.arrived = None;
        }
        while let Some(piece) = shard.poll_snapshot() {
            if let SnapshotOutput::Begin { number, position, .. } = piece {
                self.writing = Some((number, position));
            }
            self.snapshots.push(partition, piece);
        }
        shard.settle(now);
        while let Some((to, word)) = shard.poll_message() {
            self.words.entry((partition, to)).or_default().push_back(word);
        }
        while let Some(output) = shard.poll_output() {
            if let Output::Close(id, reason) = output {
                out.push(Out::Closed(id, reason));
            }
        }
        Ok(out)
    }

    /// What may arrive next between two threads: the oldest word, or the oldest urgent one.
    pub(super) fn next_words(&self) -> impl Iterator<Item = NextWord> {
        self.words.iter().flat_map(|(between, words)| {
            let next = |is_urgent| NextWord { between: *between, is_urgent };
            let oldest = (!words.is_empty()).then(|| next(false));
            let urgent = words.iter().skip(1).any(ShardMessage::is_urgent).then(|| next(true));
            oldest.into_iter().chain(urgent)
        })
    }

    /// A word arrives.
    pub(super) fn deliver(&mut self, NextWord { between, is_urgent }: NextWord, now: Now) {
        let Some(words) = self.words.get_mut(&between) else { return };
        let at = if is_urgent { words.iter().position(ShardMessage::is_urgent) } else { Some(0) };
        if let Some(word) = at.and_then(|at| words.remove(at)) {
            self.shard(between.1).hear(between.0, word, now);
        }
    }

    /// Another server's snapshot has arrived, with its message.
    pub(super) fn offered(
        &mut self,
        from: u8,
        message: Bytes,
        chunks: &Chunks,
        now: Now,
    ) -> Result<(), Violation> {
        let partitions = self.shards.len() as u8;
        let shard = &mut self.shards[0];
        if self.arrived.is_some() || !shard.wants_snapshot(message.clone()) {
            return Ok(());
        }
        let broken = |what: String| Violation::new(format!("a snapshot of server {from}: {what}"));
        let mut loader = StateLoader::new(&Options::default(), partitions);
        for chunk in chunks.iter().skip(1) {
            loader.chunk(chunk).map_err(broken)?;
        }
        let states = loader.finish().map_err(broken)?;
        self.arrived = Some(Rc::clone(chunks));
        let taken = shard.take_over(from, message, states, now);
        taken.map_err(|_| broken("its message cannot be read".into()))
    }

    pub(super) fn hold_or_log(&mut self, append: Append) {
        if self.held.is_empty() && append.snapshot.is_none() {
            self.log.push(append);
        } else {
            self.held.push_back(append);
        }
    }

    /// Whether the next record has to wait for the snapshot that it builds on, and that can be taken over now: the
    /// log has to have what the snapshot covers.
    pub(super) fn takes_over(&self) -> bool {
        let is_idle = !self.log.has_work() && !self.snapshots.has_work();
        is_idle && !self.held.is_empty() && self.writing.is_none()
    }
}

/// A part stands where its operation says that it does, and the others are in the same entry.
fn check_record(partitions: usize, append: &Append) -> Result<(), Violation> {
    let broken = |what: String| Violation::new(format!("a record: {what}"));
    let store = Store::decode(append.payload.clone().join()).map_err(|error| broken(error.to_string()))?;
    let payloads = store.entries.iter().filter(|entry| entry.kind == EntryKind::Payload);
    for entry in payloads.filter(|entry| !entry.payload.is_empty()) {
        let slices: Result<Vec<_>, _> = Slices::new(entry.payload.clone()).collect();
        let slices = slices.map_err(|error| broken(error.to_string()))?;
        for (partition, position, payload) in &slices {
            if usize::from(*partition) >= partitions {
                return Err(broken(format!("there is no partition {partition}")));
            }
            let Some(item) = Items::new(payload).next() else { continue };
            let Outcome::Part(part) = item.map_err(|error| broken(error.to_string()))?.outcome else {
                continue;
            };
            let mut places = part.places();
            let is_here = |place: &stoa_core::EntryId| {
                let stands = (place.partition, place.position);
                place.term == entry.term && slices.iter().any(|(of, at, _)| (*of, *at) == stands)
            };
            let is_own =
                |place: &stoa_core::EntryId| (place.partition, place.position) == (*partition, *position);
            if !part.places().any(|place| is_own(&place)) || !places.all(|place| is_here(&place)) {
                let what =
                    format!("not all parts of an operation are at {:?}", part.places().collect::<Vec<_>>());
                return Err(broken(what));
            }
        }
    }
    Ok(())
}
