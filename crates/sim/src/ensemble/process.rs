//! One running server: a core for each partition, its threads for the disk, and the driver between them and the
//! world.
//!
//! Every call of a core is followed by a look at how far it has applied its timeline: what it has
//! applied, and the state that it has come to, is shown to the judges.

use super::abroad::{Abroad, FromAbroad};
use super::acquaintance::{self, Circle};
use super::expiry::Expiry;
use super::history::{Did, items};
use super::places::check_places;
use super::sockets::Socket;
use super::visitor::Judges;
use super::{HostId, number};
use crate::disk_thread::{LogDone, LogThread, SnapshotDone, SnapshotThread};
use crate::rng::Rng;
use crate::trace::Trace;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use stoa_check::{Checker, Violation, wrong};
use stoa_core::{
    Append, ConnectionId, DiskId, HistoryId, Items, KnownDisks, Levels, Now, ParentOutput, ParentTraits,
    PeerOutput, ReaderOutput, Shard, ShardMessage, Slices, SnapshotOutput, Standing, Starts, StateLoader,
};
use stoa_group::{Entry, EntryKind, Restored, Store};
use stoa_tree::Options;

/// Names a connection of a client.
pub(super) type Key = u64;

/// The chunks of a snapshot on its way.
pub(crate) type Chunks = Rc<Vec<Vec<u8>>>;

/// What has come in and is handed to the core in the next turn.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Connect(Key, SocketAddr),
    Bytes(Key, Vec<u8>),
    HangUp(Key),
    Peer(u8, Bytes),
    /// Another server is connected, with this disk and these starts.
    PeerConnected(u8, DiskId, Starts, Levels, Release),
    /// Another server has said which disk and which history it has, and is not of this one's.
    PeerMet(u8, [u8; 16], Standing),
    PeerLost(u8),
    /// A snapshot, whole, with its message.
    Snapshot(u8, Bytes, Chunks),
    /// A snapshot that this server has sent is there, or was given up.
    SnapshotSent(u8, bool),
    Log(LogDone),
    /// The thread that writes snapshots is idle.
    Written(SnapshotDone),
    /// What it has done concerns this partition as well.
    Finished(SnapshotDone),
    /// Another thread of this server has said something.
    Message(u8),
    /// The snapshot that is taken over is durable.
    TakenOver,
    /// The lead is to be handed over: to this one, or to whom the server chooses.
    HandOver(Option<u8>),
    /// A subtree is to live in another partition.
    Move(String, u8),
    /// Something of another site.
    Abroad(FromAbroad),
    /// A reader is connected, has gone, or says something.
    ReaderConnected(ConnectionId, Levels),
    ReaderLost(ConnectionId),
    ReaderSays(ConnectionId, Bytes),
    /// The snapshot that a reader was sent is there, or was given up.
    ReaderSnapshotSent(ConnectionId, bool),
    /// At a reader: its parent is connected, has gone, or a partition of it says something.
    ParentConnected(u64, HistoryId, ParentTraits),
    /// Another parent than the one on this connection would be better.
    ParentBetter(u64),
    ParentLost(u64),
    ParentSays(u64, u8, Bytes),
    /// A snapshot of it, whole, with its message.
    ParentSnapshot(Bytes, Chunks),
    /// The server is told to stop.
    Stop,
}

/// What a turn lets out.
#[derive(Debug, Default)]
pub(super) struct TurnOutput {
    pub(super) sent: Vec<(Key, Vec<u8>)>,
    pub(super) closed: Vec<Key>,
    pub(super) peers: Vec<PeerOutput>,
    /// What is for readers below the server, and for its parent.
    pub(super) readers: Vec<(Vec<ConnectionId>, ReaderOutput)>,
    pub(super) parent: Vec<ParentOutput>,
    /// What is for other sites.
    pub(super) abroad: Vec<Abroad>,
    /// To which threads of the same server something was said.
    pub(super) words: Vec<u8>,
    /// There is more for clients than their sockets took.
    pub(super) has_rest: bool,
    /// Whose snapshot has come.
    pub(super) told: Vec<u8>,
    /// A snapshot was taken over.
    pub(super) has_taken_over: bool,
    /// It has something else to say of its history.
    pub(super) has_news: bool,
    /// It has finished what it had begun, and ends.
    pub(super) has_stopped: bool,
}

/// Where a history begins: what stands there says who founded it, and is no entry.
const FOUNDED: u64 = 1;

/// With what messages begin that are about a forest.
const OF_FOREST: [u8; 2] = [9, 10];
/// The same of snapshots that members give each other, and of what goes with one.
const OF_GIVERS: [u8; 2] = [11, 12];
pub(super) const GIVEN: u8 = 13;

/// What the release of a server has. What others do not have must not be told to them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Release {
    /// Trees down which appends go.
    pub(super) has_forest: bool,
    /// Snapshots that members give each other in the place of their leader.
    pub(super) gives: bool,
}

/// Why a turn ended before its end.
#[derive(Debug)]
pub(super) enum Stop {
    Violation(Violation),
    /// The core says that the process cannot go on.
    Refused,
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// The parts of the world that a turn touches.
pub(super) struct Scene<'a> {
    pub(super) judges: &'a mut Judges,
    pub(super) trace: &'a mut Trace,
    pub(super) rng: &'a mut Rng,
    /// What this server has in its log, as far as it was told to store it.
    pub(super) stored: &'a mut Restored,
    /// The disks of the others, as this server has met them.
    pub(super) known: &'a mut KnownDisks,
    /// This server's clocks.
    pub(super) now: Now,
    /// The world's time.
    pub(super) now_us: u64,
    /// When a server last took in what the client of a session had sent, in the world's time.
    pub(super) spoke: &'a mut BTreeMap<i64, u64>,
    /// Since when nothing has gone wrong.
    pub(super) quiet_since_us: u64,
    /// The history that counts, since another one was lost.
    pub(super) present: Option<HistoryId>,
}

/// One of a server's threads: a partition, and those clients that are connected to it.
pub(super) struct Thread {
    pub(super) core: Shard,
    pub(super) circle: Circle,
    pub(super) turn_at: Option<u64>,
    pub(super) paused_until_us: u64,
    pub(super) inputs: VecDeque<Input>,
    pub(super) sockets: BTreeMap<Key, Socket>,
    pub(super) keys: BTreeMap<ConnectionId, Key>,
    applied: u64,
}

impl Thread {
    pub(super) fn new(core: Shard, settings: &str) -> Self {
        Self {
            circle: Circle::new(&core, settings),
            applied: core.applied(),
            core,
            turn_at: None,
            paused_until_us: 0,
            inputs: VecDeque::new(),
            sockets: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// What else a client has sent comes in with these bytes.
    fn read_all(&mut self, key: Key, bytes: &mut Vec<u8>) {
        self.inputs.retain_mut(|input| match input {
            Input::Bytes(of, more) if *of == key => {
                bytes.append(more);
                false
            }
            _ => true,
        });
    }

    /// What has come in: messages of other servers, those of clients with them, and the bytes of all.
    pub(super) fn comes_in(&self) -> (u64, u64, u64) {
        self.inputs.iter().fold((0, 0, 0), |(of_servers, all, bytes), input| match input {
            Input::Peer(_, message) | Input::ReaderSays(_, message) | Input::ParentSays(_, _, message) => {
                (of_servers + 1, all + 1, bytes + message.len() as u64)
            }
            Input::Bytes(_, more) => (of_servers, all + 1, bytes + more.len() as u64),
            _ => (of_servers, all, bytes),
        })
    }

    /// Whether something has come in.
    pub(super) fn has_inputs(&self) -> bool {
        !self.inputs.is_empty()
    }
}

/// A running server.
pub(super) struct Process {
    pub(super) id: HostId,
    pub(super) threads: Vec<Thread>,
    pub(super) log: LogThread,
    pub(super) log_busy: bool,
    pub(super) snapshot: SnapshotThread,
    pub(super) snapshot_busy: bool,
    /// The snapshot that is being written of this server's own state: its number, and where it stands.
    pub(super) writing: Option<(u64, u64)>,
    /// Records behind one that waits for a snapshot to be taken over, and that one.
    pub(super) held: VecDeque<Append>,
    /// The snapshot that has arrived, and from whom.
    pub(super) arrived: Option<(u8, Chunks)>,
    /// What threads have said to each other and has not arrived, by sender and receiver.
    words: BTreeMap<(u8, u8), VecDeque<ShardMessage>>,
    expiry: Expiry,
    /// It is of one of several sites.
    pub(super) is_of_site: bool,
    /// What its release has.
    pub(super) release: Release,
    /// It was told to stop, and does so by then at the latest.
    stops_by_us: Option<u64>,
}

pub(super) type Done = Result<(), Stop>;

/// Whose snapshot it is that a reader takes over: its parent's, which has no number there.
const PARENT: u8 = u8::MAX;

/// How long a server that is told to stop waits for what is under way.
const STOP_PATIENCE_US: u64 = 1_000_000;

pub(super) fn entry_at(stored: &Restored, position: u64) -> Option<&Entry> {
    let behind = position.checked_sub(stored.base.position + 1)?;
    stored.entries.get(usize::try_from(behind).ok()?)
}

/// Prints what a server has applied behind a position. Where it has several partitions, one of these has, and what it
/// was given is somewhere in the log.
fn tell_items(server: HostId, of: Option<u8>, (from, applied): (u64, u64), scene: &mut Scene<'_>) {
    if let Some(of) = of {
        let slices = scene.stored.entries.iter().filter(|entry| entry.kind == EntryKind::Payload);
        let slices = slices.flat_map(|entry| Slices::new(entry.payload.clone())).flatten();
        for (_, position, payload) in
            slices.filter(|(it, at, _)| *it == of && (from + 1..=applied).contains(at))
        {
            for item in Items::new(&payload).flatten() {
                let what = format_args!("server {server}, partition {of}, {position}: {item}");
                scene.trace.detail(scene.now_us, "applied", what);
            }
        }
        return;
    }
    for position in from + 1..=applied {
        for item in entry_at(scene.stored, position).into_iter().flat_map(items).flatten() {
            let what = format_args!("server {server}, {position}: {item}");
            scene.trace.detail(scene.now_us, "applied", what);
        }
    }
}

impl Process {
    /// A server that has just been started.
    pub(super) fn new(id: HostId, alone: bool, threads: Vec<Thread>, log: LogThread, now: Now) -> Self {
        Self {
            id,
            threads,
            log,
            log_busy: false,
            snapshot: SnapshotThread::default(),
            snapshot_busy: false,
            writing: None,
            held: VecDeque::new(),
            arrived: None,
            words: BTreeMap::new(),
            expiry: Expiry::new(alone, now),
            is_of_site: false,
            release: Release { has_forest: true, gives: true },
            stops_by_us: None,
        }
    }

    /// The first partition, with which the log is.
    pub(super) fn first(&self) -> &Shard {
        &self.threads[0].core
    }

    fn core(&mut self, of: u8) -> &mut Shard {
        &mut self.threads[usize::from(of)].core
    }

    pub(super) fn thread(&mut self, of: u8) -> &mut Thread {
        &mut self.threads[usize::from(of)]
    }

    pub(super) fn thread_and_expiry(&mut self, of: u8) -> (&mut Thread, &mut Expiry) {
        (&mut self.threads[usize::from(of)], &mut self.expiry)
    }

    pub(super) fn has_several(&self) -> bool {
        self.threads.len() > 1
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stops_by_us.is_some()
    }

    /// Something has come in for a thread.
    pub(super) fn push(&mut self, of: u8, input: Input) {
        self.threads[usize::from(of)].inputs.push_back(input);
    }

    /// Whose snapshots have arrived here, and were not looked at yet.
    pub(super) fn snapshots_under_way(&self) -> Vec<u8> {
        let waiting = self.threads[0].inputs.iter().filter_map(|input| match input {
            Input::Snapshot(from, ..) => Some(*from),
            _ => None,
        });
        waiting.collect()
    }

    /// One turn of a thread: everything that has come in, then the time, then everything that goes out.
    pub(super) fn turn(&mut self, of: u8, scene: &mut Scene<'_>) -> Result<TurnOutput, Stop> {
        let mut out = TurnOutput::default();
        let now = scene.now;
        if self.core(of).has_more_to_apply() {
            self.core(of).apply_more(now);
            self.observe(of, scene)?;
        }
        self.take_inputs(of, scene, &mut out)?;
        self.core(of).turn_ended(now);
        if of == 0 && self.first().is_in_quorum() {
            self.expiry.stands(&self.threads[0].core.status(), now);
        }
        let ticks = self.core(of).next_wake_us() <= now.mono_us;
        let is_checked = scene.judges.checker.is_some();
        if ticks && is_checked {
            // Apart from what the server decides by itself, so that it can be told apart.
            self.hand_to_log(of, false, scene)?;
            self.excuse_all(of, scene);
        }
        if ticks {
            let before = self.core(of).stats().sessions_expired;
            self.core(of).tick(now);
            if !self.has_several() && self.first().stats().sessions_expired > before {
                self.expiry.judged(self.threads[0].core.tree(), now);
            }
            self.observe(of, scene)?;
        }
        self.poll_peers(of, scene, &mut out)?;
        // Now and then there is something else to do first.
        if ticks || !is_checked || !scene.rng.one_in(4) {
            self.hand_to_log(of, ticks, scene)?;
        }
        if let Some(checker) = &mut scene.judges.checker {
            if ticks {
                checker.ticked(now)?;
            }
            checker.check_bounds(&self.threads[0].core)?;
        }
        self.poll_peers(of, scene, &mut out)?;
        if self.is_of_site && of == 0 {
            self.speak_abroad(&mut out);
        }
        self.poll_snapshots(of);
        // Before one is begun, all that is committed is applied.
        self.observe(of, scene)?;
        if !self.has_several() {
            self.check_readers()?;
        }
        self.flush(of, scene, &mut out)?;
        self.speak(of, scene, &mut out);
        let first = self.first();
        let is_settled = first.is_logged();
        out.has_stopped = self
            .stops_by_us
            .is_some_and(|by_us| (is_settled && !first.is_handing_over()) || now.mono_us >= by_us);
        Ok(out)
    }

    /// All that has come in; of a thread that others may overtake sometimes only a part.
    fn take_inputs(&mut self, of: u8, scene: &mut Scene<'_>, out: &mut TurnOutput) -> Done {
        let at = usize::from(of);
        while let Some(mut input) = self.threads[at].inputs.pop_front() {
            if let Input::Bytes(key, bytes) = &mut input
                && scene.judges.checker.is_some()
                && scene.rng.one_in(2)
            {
                self.threads[at].read_all(*key, bytes);
            }
            let is_word = matches!(input, Input::Message(_));
            self.take(of, input, scene, out)?;
            // What follows from a word may have to wait until the thread has heard more.
            let hears_more = is_word && matches!(self.threads[at].inputs.front(), Some(Input::Message(_)));
            if self.has_several() && (!hears_more || scene.rng.one_in(2)) {
                self.core(of).settle(scene.now);
            }
            self.observe(of, scene)?;
            if self.has_several() && scene.rng.one_in(4) {
                break;
            }
        }
        self.core(of).settle(scene.now);
        Ok(())
    }

    fn poll_snapshots(&mut self, of: u8) {
        if of == 0 && self.held.is_empty() {
            // One that came too late to be of use.
            self.arrived = None;
        }
        while let Some(piece) = self.core(of).poll_snapshot() {
            if let SnapshotOutput::Begin { number, position, .. } = piece {
                self.writing = Some((number, position));
            }
            self.snapshot.push(of, piece);
        }
    }

    /// What a thread says to others of this server.
    fn speak(&mut self, of: u8, scene: &Scene<'_>, out: &mut TurnOutput) {
        self.core(of).settle(scene.now);
        while let Some((to, word)) = self.core(of).poll_message() {
            self.words.entry((of, to)).or_default().push_back(word);
            out.words.push(to);
        }
    }

    /// The oldest word of another thread arrives, or the oldest urgent one.
    fn hear(&mut self, of: u8, from: u8, scene: &mut Scene<'_>) {
        let Some(words) = self.words.get_mut(&(from, of)) else { return };
        let urgent = words.iter().position(ShardMessage::is_urgent).filter(|_| scene.rng.one_in(2));
        if let Some(word) = words.remove(urgent.unwrap_or(0)) {
            self.core(of).hear(from, word, scene.now);
        }
    }

    fn take(&mut self, of: u8, input: Input, scene: &mut Scene<'_>, out: &mut TurnOutput) -> Done {
        let now = scene.now;
        let thread = &mut self.threads[usize::from(of)];
        match input {
            Input::Connect(key, address) => self.connect(of, (key, address), scene, out)?,
            Input::Bytes(key, bytes) => self.receive(of, key, &bytes, scene)?,
            Input::HangUp(key) => self.disconnected(of, key, scene),
            Input::Peer(from, message) => self.peer_message(of, from, message, scene)?,
            // The disks are the first partition's business, with which the log is.
            Input::PeerMet(peer, disk, standing) => thread.core.peer_met(peer, disk, standing, now),
            Input::PeerConnected(peer, ..) if of > 0 => thread.core.peer_connected(peer, now),
            Input::PeerConnected(peer, disk, starts, levels, release) => {
                thread.core.peer_levels(peer, levels);
                thread.core.peer_reads_forest(peer, release.has_forest);
                thread.core.peer_gives_snapshots(peer, release.gives);
                let shown = (disk, &starts);
                acquaintance::meet(&mut thread.core, scene.known, peer, shown, now);
            }
            Input::PeerLost(peer) => thread.core.peer_lost(peer, now),
            Input::Snapshot(from, message, chunks) => {
                out.told.push(from);
                self.offered(from, message, chunks, scene)?;
            }
            Input::ReaderConnected(..)
            | Input::ReaderLost(_)
            | Input::ReaderSays(..)
            | Input::ReaderSnapshotSent(..) => self.of_reader(of, input, scene)?,
            Input::ParentConnected(..)
            | Input::ParentBetter(_)
            | Input::ParentLost(_)
            | Input::ParentSays(..)
            | Input::ParentSnapshot(..) => self.of_parent(input, scene)?,
            Input::SnapshotSent(to, arrived) => {
                thread.core.snapshot_sent(to, arrived.then_some(1), now);
            }
            Input::Log(done) => self.logged(done, scene)?,
            Input::Written(done) => {
                self.snapshot_busy = false;
                self.snapshot_done(of, done);
            }
            Input::Finished(done) => self.snapshot_done(of, done),
            Input::TakenOver => {
                self.snapshot_busy = false;
                self.arrived = None;
                out.has_taken_over = true;
                let mut waiting = std::mem::take(&mut self.held);
                if let Some(append) = waiting.pop_front() {
                    self.log.push(append);
                }
                waiting.into_iter().for_each(|append| self.hold_or_log(append));
            }
            Input::Message(from) => self.hear(of, from, scene),
            Input::HandOver(Some(to)) => thread.core.hand_over(to, now),
            Input::HandOver(None) => thread.core.resign(now),
            Input::Move(path, to) => _ = thread.core.ask_move(&path, to),
            Input::Abroad(heard) => {
                let id = self.id;
                let heard = self.hear_abroad(heard, now, out);
                heard.map_err(|what| Violation::new(format!("server {id} {what}")))?;
            }
            Input::Stop if of > 0 => {}
            Input::Stop => {
                self.stops_by_us = self.stops_by_us.or(Some(now.mono_us + STOP_PATIENCE_US));
                thread.core.resign(now);
            }
        }
        Ok(())
    }

    fn peer_message(&mut self, of: u8, from: u8, message: Bytes, scene: &mut Scene<'_>) -> Done {
        let core = &mut self.threads[usize::from(of)].core;
        if of == 0 && core.is_member(from) {
            self.expiry.told(&message, scene.now);
        }
        let what = format_args!("{from} to {}: {:?}", self.id, &message[..message.len().min(60)]);
        scene.trace.detail(scene.now_us, "peer", what);
        if !self.release.gives && message.first().is_some_and(|kind| OF_GIVERS.contains(kind)) {
            return wrong(format!("server {from} has told {} of what its release does not know", self.id));
        }
        if !self.release.has_forest && message.first().is_some_and(|kind| OF_FOREST.contains(kind)) {
            return wrong(format!("server {from} has told {} of a forest, whose release has none", self.id));
        }
        if core.peer_message(from, message, scene.now).is_err() {
            return wrong(format!("server {} cannot read {from}", self.id));
        }
        Ok(())
    }

    /// The log's thread is done.
    fn logged(&mut self, done: LogDone, scene: &mut Scene<'_>) -> Done {
        self.log_busy = false;
        let first = &mut self.threads[0].core;
        let (now, checker) = (scene.now, &mut scene.judges.checker);
        match done {
            LogDone::Durable(position) => {
                checker.iter_mut().for_each(|checker| checker.durable(position, now));
                first.appended(position, now);
            }
            LogDone::Refused(generation) => {
                self.held.retain(|append| append.generation > generation);
                let before = first.stats().log_refusals;
                let goes_on = first.append_refused(generation, now);
                match checker {
                    None if !goes_on => return Err(Stop::Refused),
                    Some(_) if !goes_on => {
                        return wrong("a server alone cannot go on without room in its log");
                    }
                    Some(checker) if first.stats().log_refusals > before => checker.refused(),
                    _ => {}
                }
            }
            LogDone::Nothing => {}
        }
        Ok(())
    }

    /// The thread that writes snapshots has done something for a partition.
    fn snapshot_done(&mut self, of: u8, done: SnapshotDone) {
        match done {
            SnapshotDone::Taken(_) => self.core(of).snapshot_taken(),
            SnapshotDone::Finished { number, .. } => {
                self.writing.take_if(|(writing, _)| *writing == number);
                self.core(of).snapshot_finished(number, done.is_durable());
            }
            SnapshotDone::Begun => {}
        }
    }

    /// A reader below this server comes, goes, or says something.
    fn of_reader(&mut self, of: u8, input: Input, scene: &mut Scene<'_>) -> Done {
        let (id, now) = (self.id, scene.now);
        let core = &mut self.threads[usize::from(of)].core;
        match input {
            Input::ReaderConnected(reader, levels) => core.reader_connected(reader, levels, now),
            Input::ReaderLost(reader) => core.reader_lost(reader, now),
            Input::ReaderSnapshotSent(reader, arrived) => core.reader_snapshot_sent(reader, arrived, now),
            Input::ReaderSays(reader, word) => {
                if of == 0 {
                    // What it says of the clients is behind the kind of its word, and a position.
                    self.expiry.told(word.get(9..).unwrap_or_default(), now);
                }
                if self.threads[usize::from(of)].core.reader_says(reader, word, now).is_err() {
                    return wrong(format!("server {id} cannot read a reader"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// This server's parent comes, goes, or says something.
    fn of_parent(&mut self, input: Input, scene: &mut Scene<'_>) -> Done {
        let (id, now) = (self.id, scene.now);
        let first = &mut self.threads[0].core;
        match input {
            Input::ParentConnected(link, history, traits) => {
                if !first.parent_met(history, now) {
                    return wrong(format!("reader {id} is of another history than its parent"));
                }
                first.parent_connected(link, traits, now);
            }
            Input::ParentBetter(link) => {
                // Who is let go is told why.
                let live =
                    |core: &Shard| core.connections().filter(|(_, it)| it.close_reason().is_none()).count();
                let before = live(first);
                first.leaves_quietly(link, now);
                if live(first) != before {
                    return wrong(format!("clients of reader {id} are lost as it goes to a better parent"));
                }
            }
            Input::ParentLost(link) => first.parent_lost(link, now),
            Input::ParentSays(link, of, word) => {
                let read = first.parent_says(link, of, word, now);
                read.map_err(|_| Violation::new(format!("reader {id} cannot read its parent")))?;
            }
            Input::ParentSnapshot(message, chunks) => {
                self.offered(PARENT, message, chunks, scene)?;
                if self.arrived.is_none() {
                    self.threads[0].core.parent_snapshot_declined(now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn poll_ties(&mut self, of: u8, out: &mut TurnOutput) {
        let core = self.core(of);
        out.readers.extend(std::iter::from_fn(|| core.poll_reader()));
        out.parent.extend(std::iter::from_fn(|| core.poll_parent()));
    }

    fn offered(&mut self, from: u8, message: Bytes, chunks: Chunks, scene: &mut Scene<'_>) -> Done {
        let partitions = self.threads.len() as u8;
        if !self.release.gives && message.first() == Some(&GIVEN) {
            return wrong(format!("server {from} gives {} a snapshot, whose release takes none", self.id));
        }
        let first = &mut self.threads[0].core;
        if self.arrived.is_some() || !first.wants_snapshot(message.clone()) {
            first.decline_snapshot(message, scene.now);
            return Ok(());
        }
        let broken = |what: String| Violation::new(format!("a snapshot of server {from}: {what}"));
        let mut loader =
            StateLoader::new(&Options { levels: first.tree().levels(), ..<_>::default() }, partitions);
        for chunk in chunks.iter().skip(1) {
            loader.chunk(chunk).map_err(broken)?;
        }
        let states = loader.finish().map_err(broken)?;
        self.arrived = Some((from, chunks));
        let taken = first.take_over(from, message, states, scene.now);
        taken.map_err(|_| broken("its message cannot be read".into()))?;
        Ok(())
    }

    fn poll_peers(&mut self, of: u8, scene: &mut Scene<'_>, out: &mut TurnOutput) -> Done {
        self.poll_ties(of, out);
        while let Some(output) = self.core(of).poll_peer() {
            // It is the only member, and a client may write into the list of servers; nobody is in that.
            let own = PeerOutput::Members { members: vec![number(self.id)], removed: BTreeMap::new() };
            if scene.judges.checker.is_some() && output != PeerOutput::Servers && output != own {
                return wrong(format!("a server alone has something for others: {output:?}"));
            }
            // Only who leads appends and sends heartbeats.
            if let PeerOutput::Send { message, .. } = &output
                && let Some(said) = message.of_group().filter(|said| said.is_of_leader())
            {
                let term = said.term();
                if scene.judges.history.leads(term, self.id)? {
                    let what = format_args!("server {} of term {term}", self.id);
                    scene.trace.event(scene.now_us, "leader", what);
                }
                self.expiry.leads(term, scene.now);
            }
            let Thread { core, circle, .. } = &mut self.threads[usize::from(of)];
            match output {
                PeerOutput::Servers => circle.look_around(core),
                PeerOutput::Members { .. } if of > 0 => circle.look_around(core),
                PeerOutput::Leads(_) if of > 0 => {}
                PeerOutput::Leads(peer) => _ = scene.known.leads(peer),
                PeerOutput::Began { history, founders } => {
                    scene.trace.event(
                        scene.now_us,
                        "history",
                        format_args!("server {} has {history}", self.id),
                    );
                    scene.known.begin(founders);
                    out.has_news = true;
                }
                PeerOutput::Founds(_) => out.has_news = true,
                PeerOutput::Members { members, removed } => {
                    let what = format_args!("to server {}: {members:?}, taken out {removed:?}", self.id);
                    scene.trace.event(scene.now_us, "members", what);
                    circle.look_around(core);
                    for peer in scene.known.members_are(members, removed) {
                        core.peer_connected(peer, scene.now);
                    }
                }
                output => out.peers.push(output),
            }
        }
        self.observe(of, scene)
    }

    /// Whoever takes part in the ensemble does not put off clients with reads.
    fn check_readers(&self) -> Done {
        let reads = self.first().connections().any(|(_, connection)| connection.is_read_only());
        if reads && self.first().is_in_quorum() {
            return wrong(format!("server {} is in the quorum, and its clients may only read", self.id));
        }
        Ok(())
    }

    fn hold_or_log(&mut self, append: Append) {
        if self.held.is_empty() && append.snapshot.is_none() {
            self.log.push(append);
        } else {
            self.held.push_back(append);
        }
    }

    /// Hands what is to be stored to the log's thread; `ticked` when the server may have decided some of it by itself.
    fn hand_to_log(&mut self, of: u8, ticked: bool, scene: &mut Scene<'_>) -> Done {
        let ticked = ticked.then_some(scene.now);
        while let Some(append) = self.core(of).poll_append() {
            self.store(append, ticked, scene)?;
            self.observe(of, scene)?;
        }
        // What the engine does not take yet is asked for again, but what waits for others would be asked for for ever.
        if self.core(of).waits_for_others() && self.core(of).append_bytes() > 0 {
            let why =
                format!("server {} says that there is something to store, and does not give it", self.id);
            return Err(Violation::new(why).into());
        }
        Ok(scene.judges.checker.as_ref().map_or(Ok(()), Checker::handed_all_to_log)?)
    }

    fn store(&mut self, append: Append, ticked: Option<Now>, scene: &mut Scene<'_>) -> Done {
        if let Some(checker) = &mut scene.judges.checker {
            let record = append.payload.clone().join();
            checker.handed_to_log(append.position, &record, ticked)?;
            scene.trace.mix(&record);
            self.log.push(append);
            return Ok(());
        }
        let id = self.id;
        let broken = |what: String| Violation::new(format!("a record of server {id}: {what}"));
        let record = append.payload.clone().join();
        let store = Store::decode(record.clone()).map_err(|error| broken(error.to_string()))?;
        for entry in &store.entries {
            scene.judges.history.holds(id, entry)?;
            if self.has_several() {
                check_places(self.threads.len(), entry).map_err(|what| broken(what.to_string()))?;
            } else if !self.is_of_site {
                self.expiry.check(entry, scene)?;
            }
        }
        scene.trace.mix(&record);
        scene.stored.replay(record).map_err(|error| broken(error.to_string()))?;
        self.hold_or_log(append);
        Ok(())
    }

    /// Shows the judges how far a partition is.
    pub(super) fn observe(&mut self, of: u8, scene: &mut Scene<'_>) -> Done {
        if scene.judges.checker.is_some() {
            return self.take_outputs(of, scene).map(drop);
        }
        let (id, thread) = (self.id, &mut self.threads[usize::from(of)]);
        let applied = thread.core.applied();
        let wrong = |what: String| wrong(format!("server {id} {what}"));
        if applied < thread.applied {
            return wrong(format!("went from position {} to {applied}", thread.applied));
        }
        if applied == thread.applied {
            return Ok(());
        }
        let from = std::mem::replace(&mut thread.applied, applied);
        let history = self.threads[0].core.history().map(|history| history.id);
        if scene.present.is_some() && history != scene.present {
            // It may still apply what it has of a lost ensemble, and shows that to nobody.
            return Ok(());
        }
        if self.is_of_site && scene.trace.is_printing() {
            let of = Some(of).filter(|_| self.threads.len() > 1);
            tell_items(id, of, (from, applied), scene);
        }
        let Judges { history, timelines, .. } = &mut *scene.judges;
        if self.threads.len() > 1 || self.is_of_site {
            let tree = self.threads[usize::from(of)].core.tree();
            return Ok(timelines.reached(id, of, applied, tree)?);
        }
        for position in from.max(FOUNDED) + 1..=applied {
            if position <= scene.stored.base.position {
                if position > history.position() {
                    return wrong(format!("took over position {position}, which nobody had applied"));
                }
                continue;
            }
            let Some(entry) = entry_at(scene.stored, position) else {
                return wrong(format!("applied position {position}, which it does not have"));
            };
            if scene.trace.is_printing() && position > history.position() {
                for item in items(entry).flatten() {
                    let what =
                        format_args!("{position} of term {}, first by server {id}: {item}", entry.term);
                    scene.trace.detail(scene.now_us, "applied", what);
                }
            }
            history.applied(id, entry)?;
            for did in history.sessions_at(position) {
                if let Did::Opened { session, .. } = did {
                    self.expiry.heard(*session, scene.now.mono_us);
                }
            }
        }
        Ok(history.compare(id, applied, self.first().tree())?)
    }
}
