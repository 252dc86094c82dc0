//! One running server: its threads, its log, and what they say to each other.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use stoa_core::{
    Append, CloseReason, ConnectionId, Items, Now, Outcome, Output, PeerOutput, Shard, Share, SnapshotOutput,
    StateLoader, Word,
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

/// What belongs to one partition beside its state.
#[derive(Default)]
pub(super) struct Lane {
    /// A record that waits for a snapshot to be taken over, and those behind it.
    pub(super) held: VecDeque<Append>,
    /// The snapshot that has arrived.
    pub(super) arrived: Option<Chunks>,
    /// Where the snapshot stands that is being written of the partition's own state.
    pub(super) writing: Option<u64>,
}

impl Lane {
    pub(super) fn hold_or_log(&mut self, append: Append, log: &mut LogThread) {
        if self.held.is_empty() && append.snapshot.is_none() {
            log.push(append);
        } else {
            self.held.push_back(append);
        }
    }
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
    pub(super) lanes: Vec<Lane>,
    /// Whom each partition is connected to.
    pub(super) circles: Vec<Acquaintance>,
    pub(super) log: LogThread,
    pub(super) snapshots: SnapshotThread,
    /// What was said and has not arrived, by sender and receiver.
    words: BTreeMap<(u8, u8), VecDeque<Word>>,
}

impl Server {
    pub(super) fn new(shards: Vec<Shard>, log: LogThread, settings: &str) -> Self {
        Self {
            lanes: shards.iter().map(|_| Lane::default()).collect(),
            circles: shards.iter().map(|shard| Acquaintance::new(shard.server(), settings)).collect(),
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
        let (shard, lane) = (&mut self.shards[at], &mut self.lanes[at]);
        shard.settle(now);
        while let Some(append) = shard.server_mut().poll_append() {
            check_places(partition, &append)?;
            lane.hold_or_log(append, &mut self.log);
        }
        while let Some(output) = shard.server_mut().poll_peer() {
            out.push(Out::Peer(output));
        }
        if lane.held.is_empty() {
            // One that came too late to be of use.
            lane.arrived = None;
        }
        while let Some(piece) = shard.server_mut().poll_snapshot() {
            if let SnapshotOutput::Begin { position, .. } = piece {
                lane.writing = Some(position);
            }
            self.snapshots.push(partition.into(), piece);
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
        Ok(out)
    }

    /// What may arrive next between two threads: the oldest word, or the oldest urgent one.
    pub(super) fn next_words(&self) -> impl Iterator<Item = NextWord> {
        self.words.iter().flat_map(|(between, words)| {
            let next = |is_urgent| NextWord { between: *between, is_urgent };
            let oldest = (!words.is_empty()).then(|| next(false));
            let urgent = words.iter().skip(1).any(Word::is_urgent).then(|| next(true));
            oldest.into_iter().chain(urgent)
        })
    }

    /// A word arrives.
    pub(super) fn deliver(&mut self, NextWord { between, is_urgent }: NextWord, now: Now) {
        let Some(words) = self.words.get_mut(&between) else { return };
        let at = if is_urgent { words.iter().position(Word::is_urgent) } else { Some(0) };
        if let Some(word) = at.and_then(|at| words.remove(at)) {
            self.shard(between.1).hear(between.0, word, now);
        }
    }

    /// Another server's snapshot has arrived, with its message.
    pub(super) fn offered(
        &mut self,
        partition: u8,
        from: u8,
        message: Bytes,
        chunks: &Chunks,
        now: Now,
    ) -> Result<(), Violation> {
        let at = usize::from(partition);
        let share = Share { partition, partitions: self.shards.len() as u8 };
        let (shard, lane) = (&mut self.shards[at], &mut self.lanes[at]);
        if lane.arrived.is_some() || !shard.server().wants_snapshot(message.clone()) {
            return Ok(());
        }
        let broken = |what: String| Violation::new(format!("a snapshot of server {from}: {what}"));
        let mut loader = StateLoader::new(Options::default(), share);
        for chunk in chunks.iter().skip(1) {
            loader.chunk(chunk).map_err(broken)?;
        }
        let state = loader.finish().map_err(broken)?;
        lane.arrived = Some(Rc::clone(chunks));
        let taken = shard.server_mut().take_over(from, message, state, now);
        taken.map_err(|_| broken("its message cannot be read".into()))
    }

    /// A partition whose next record has to wait for the snapshot that it builds on, if that can be taken
    /// over now: the log has to have what the snapshot covers.
    pub(super) fn takes_over(&self) -> Option<u8> {
        let is_idle = !self.log.has_work() && !self.snapshots.has_work();
        let waits = |lane: &Lane| !lane.held.is_empty() && lane.writing.is_none();
        self.lanes.iter().position(waits).filter(|_| is_idle).map(|at| at as u8)
    }
}

/// A part stands where its operation says that it does: everybody decides by that alone what becomes of it.
fn check_places(partition: u8, append: &Append) -> Result<(), Violation> {
    let broken = |what: String| Violation::new(format!("a record of partition {partition}: {what}"));
    let store = Store::decode(append.payload.clone().join()).map_err(|error| broken(error.to_string()))?;
    for entry in store.entries.iter().filter(|entry| entry.kind == EntryKind::Payload) {
        let Some(item) = Items::new(&entry.payload).next() else { continue };
        let item = item.map_err(|error| broken(error.to_string()))?;
        if let Outcome::Part(part) = item.outcome {
            let is_here = |place: &stoa_core::Place| place.partition == partition;
            let place = part.places().find(is_here).map(|place| (place.term, place.position));
            if place != Some((entry.term, entry.position)) {
                let stands = (entry.term, entry.position);
                return Err(broken(format!("a part that was promised for {place:?} stands at {stands:?}")));
            }
        }
    }
    Ok(())
}
