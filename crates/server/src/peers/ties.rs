//! The connections of this process with its readers and with its parent, as all of its threads see them.
//!
//! A tie is one connection for all partitions, which the first one's thread carries. What threads say on it goes into one
//! queue in the order in which they say it, so that what one of them says before it tells another thread, or another
//! server, of something comes before all that follows from that.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use stoa_core::{ConnectionId, HistoryId, Levels, ParentTraits, Pieces};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::frame::{self, FrameKind};
use super::link::OUTBOX_BYTES_MAX;
use super::listing::{ListedReader, ReaderList};
use super::reader_hello::{Ticket, TieStanding};
use crate::clock;

/// Snapshots that readers are sent at a time; others wait.
const SNAPSHOTS_AT_A_TIME: usize = 8;
/// So many of those who are to belong to the ensemble may be below a server that lets nobody else in.
const NEWCOMERS_MAX: usize = 16;
/// Why a leader is no newcomer's parent.
pub(super) const LEADS: &str = "it leads, and another server of the ensemble feeds newcomers";

/// What happens between this process and its readers and parent.
#[derive(Debug)]
pub(crate) enum TieEvent {
    /// A reader is connected, which works at these feature levels; all partitions are told.
    ReaderCame(ConnectionId, Levels),
    /// It says something to this partition.
    ReaderSays(ConnectionId, Word),
    /// It is so no more; all partitions are told.
    ReaderGone(ConnectionId),
    /// The snapshot that a reader was to be sent is there (its bytes), or was given up (why).
    SnapshotSent(ConnectionId, Result<u64, String>),
    /// There is a connection to a parent, with this history.
    ParentCame(u64, HistoryId, ParentTraits),
    /// Another parent than the one on this connection is better, and is connected.
    ParentBetter(u64),
    /// It says something.
    ParentSays(u64, Word),
    /// That connection has ended.
    ParentGone(u64),
    /// A snapshot of it is here, durable, with what it said of it.
    ParentSnapshot {
        /// What it said of it.
        header: Bytes,
        /// The snapshot.
        file: PathBuf,
    },
}

/// What a partition of the other process has said.
#[derive(Debug)]
pub(crate) struct Word {
    pub(crate) partition: u8,
    pub(crate) message: Bytes,
    /// While this lives the word counts against what is read of the other one.
    pub(crate) room: OwnedSemaphorePermit,
}

/// What is to be said on a tie.
#[derive(Debug)]
pub(super) enum Saying {
    /// A frame with a word of a partition, which may be the same for many.
    Frame(Pieces),
    /// A snapshot can be fetched.
    Offer(Ticket),
    /// A list of the readers below this process.
    Listing(Bytes),
}

/// Where threads put what is to be said on one tie.
#[derive(Debug)]
pub(super) struct Mouth {
    say: UnboundedSender<Saying>,
    /// Bytes that are not sent yet.
    pub(super) waiting: AtomicUsize,
    /// Why the tie ends, once that is so.
    end: watch::Sender<Option<String>>,
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
}

impl Mouth {
    fn new() -> (Arc<Self>, UnboundedReceiver<Saying>) {
        let (say, said) = unbounded_channel();
        let mouth = Self {
            say,
            waiting: AtomicUsize::new(0),
            end: watch::Sender::new(None),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
        };
        (Arc::new(mouth), said)
    }

    fn word(&self, frame: Pieces) {
        if self.end.borrow().is_some() {
            return;
        }
        let len = frame.len();
        if self.waiting.fetch_add(len, Ordering::Relaxed).saturating_add(len) > OUTBOX_BYTES_MAX {
            return self.end("it takes too slowly what it is told");
        }
        // Nobody hears it when the connection has ended.
        let _ = self.say.send(Saying::Frame(frame));
    }

    pub(super) fn offer(&self, ticket: Ticket) {
        let _ = self.say.send(Saying::Offer(ticket));
    }

    pub(super) fn listing(&self, list: &ReaderList) {
        let _ = self.say.send(Saying::Listing(list.encode().into()));
    }

    /// Ends the tie, for this reason, when what waits is said.
    pub(super) fn end(&self, why: &str) {
        self.end.send_if_modified(|end| {
            let is_new = end.is_none();
            end.get_or_insert_with(|| why.to_owned());
            is_new
        });
    }

    /// Waits until it is to end, and says why.
    pub(super) async fn ended(&self) -> String {
        let mut end = self.end.subscribe();
        let why = end.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or_default()
    }
}

/// A word of this partition as it is sent.
fn framed(partition: u8, word: Pieces) -> Pieces {
    let own = [partition];
    let header = frame::header(FrameKind::Message, core::iter::once(&own[..]).chain(word.iter()));
    let mut frame = Pieces::default();
    frame.reserve(header.len() + own.len());
    frame.put(&header);
    frame.put(&own);
    word.into_iter().for_each(|piece| frame.put_shared(&piece));
    frame.seal();
    frame
}

/// A snapshot that a reader may fetch.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) ticket: Ticket,
    pub(super) header: Bytes,
    pub(super) file: PathBuf,
    /// One of those that are sent at a time.
    pub(super) turn: OwnedSemaphorePermit,
}

/// Whose ties they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TieOwner {
    pub(crate) is_reader: bool,
    /// Its number, if it has one. A reader with a number is a newcomer: it is to belong to the ensemble.
    pub(crate) id: Option<u8>,
    /// Of this process.
    pub(crate) tag: u64,
}

/// Who asks to be let in as a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) tag: u64,
    /// At which feature levels it can work.
    pub(super) levels: Levels,
    pub(super) is_newcomer: bool,
    /// It has proved that it knows the ensemble's secret.
    pub(super) has_proved: bool,
}

/// A reader that is connected.
#[derive(Debug)]
struct TiedReader {
    tag: u64,
    is_newcomer: bool,
    mouth: Arc<Mouth>,
    offer: Option<Offer>,
    /// It is to be offered one, and nothing has become of that yet.
    is_sent_one: bool,
    /// Where its clients connect; 0 where it has not said.
    client_port: u16,
    /// Those below it, as it has told.
    list: ReaderList,
    status: ReaderStatus,
}

/// What is known of a reader, or of a parent, that is connected.
#[derive(Clone, Debug)]
pub(crate) struct ReaderStatus {
    pub(crate) address: SocketAddr,
    pub(crate) software: String,
    /// Since when, milliseconds since the epoch.
    pub(crate) since_ms: i64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Bytes that wait to be sent.
    pub(crate) waiting: u64,
}

/// The parent of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParentStatus {
    /// Where it listens for others: that of the last attempt where there is none.
    pub(crate) address: String,
    /// Since when it is connected, milliseconds since the epoch.
    pub(crate) since_ms: Option<i64>,
    /// Who it is, and the name and version of its program.
    pub(crate) name: String,
    pub(crate) software: String,
    /// The last thing that went wrong, also if it has been well since.
    pub(crate) last_error: Option<String>,
    /// How often there was one.
    pub(crate) found: u64,
}

#[derive(Debug, Default)]
struct Above {
    tie: Option<(u64, Arc<Mouth>)>,
    status: ParentStatus,
}

/// All ties of this process.
#[derive(Debug)]
pub(crate) struct Ties {
    own: TieOwner,
    /// Whether this server leads others, who are rather a newcomer's parent.
    leads: AtomicBool,
    /// At a reader: how often each of its parents was tried, one after the other, since one let it in; and whether one has
    /// answered that it does not.
    rounds: AtomicU64,
    is_turned_away: AtomicBool,
    levels: Levels,
    /// How many readers there may be.
    max: usize,
    /// Where clients of this process connect.
    client_port: u16,
    /// How many are between a reader below this process and the ensemble, itself counted; 0 while there is no way.
    distance: AtomicU8,
    threads: Vec<UnboundedSender<TieEvent>>,
    /// The number of the last one: none is used twice.
    last: AtomicU64,
    below: Mutex<BTreeMap<ConnectionId, TiedReader>>,
    above: Mutex<Above>,
    sending: Arc<Semaphore>,
    refused: AtomicU64,
    /// What this site is called, or that of the last parent; `None` where there are no sites.
    site: Mutex<Option<String>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ties {
    /// Those of a process with so many partitions, and what each of its threads is told of them.
    pub(crate) fn new(
        own: TieOwner,
        levels: Levels,
        (max, client_port): (usize, u16),
        partitions: u8,
    ) -> (Arc<Self>, Vec<UnboundedReceiver<TieEvent>>) {
        let (threads, events) = (0..partitions).map(|_| unbounded_channel()).unzip();
        let ties = Self {
            own,
            leads: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            is_turned_away: AtomicBool::new(false),
            levels,
            max,
            client_port,
            distance: AtomicU8::new(0),
            threads,
            last: AtomicU64::new(0),
            below: Mutex::default(),
            above: Mutex::default(),
            sending: Arc::new(Semaphore::new(SNAPSHOTS_AT_A_TIME)),
            refused: AtomicU64::new(0),
            site: Mutex::default(),
        };
        (Arc::new(ties), events)
    }

    pub(crate) fn is_reader(&self) -> bool {
        self.own.is_reader
    }

    /// The number of a reader that is to belong to the ensemble.
    pub(super) fn newcomer(&self) -> Option<u8> {
        self.own.id.filter(|_| self.own.is_reader)
    }

    /// Whether this server leads. Newcomers that it feeds go to another server then, if there is one that lets them in: a
    /// leader has enough to send.
    pub(crate) fn set_leads(&self, leads: bool) {
        if !self.leads.swap(leads, Ordering::Relaxed) && leads {
            for reader in lock(&self.below).values().filter(|reader| reader.is_newcomer) {
                reader.mouth.end(LEADS);
            }
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// Whether there is a parent, or there ever was a reader.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.own.is_reader || self.last.load(Ordering::Relaxed) > 0
    }

    pub(super) fn tag(&self) -> u64 {
        self.own.tag
    }

    pub(super) fn levels(&self) -> Levels {
        self.levels
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// What the site is called that this process is of; a reader hears it from its parent.
    pub(super) fn site(&self) -> Option<String> {
        lock(&self.site).clone()
    }

    pub(crate) fn set_site(&self, site: Option<String>) {
        *lock(&self.site) = site;
    }

    /// How many are between a reader below this process and the ensemble, itself counted; `None` where it has no way there.
    pub(crate) fn set_distance(&self, distance: Option<u8>) {
        self.distance.store(distance.unwrap_or(0), Ordering::Relaxed);
    }

    /// How this process stands as a parent.
    pub(super) fn standing(&self) -> TieStanding {
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        TieStanding {
            readers: count(lock(&self.below).len()),
            readers_max: count(self.max),
            distance: Some(self.distance.load(Ordering::Relaxed)).filter(|distance| *distance > 0),
            client_port: self.client_port,
        }
    }

    pub(super) fn has_partition(&self, partition: u8) -> bool {
        usize::from(partition) < self.threads.len()
    }

    pub(crate) fn tell(&self, partition: u8, event: TieEvent) {
        if let Some(thread) = self.threads.get(usize::from(partition)) {
            // If it has ended, so has the server.
            let _ = thread.send(event);
        }
    }

    fn tell_all(&self, event: impl Fn() -> TieEvent) {
        for thread in &self.threads {
            let _ = thread.send(event());
        }
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    // ---- readers ----

    /// Whether one more reader may come. A process that comes back takes its own place. Those who are to belong to the
    /// ensemble need no leave where they have proved what members prove.
    pub(super) fn has_room_for(&self, asker: Asker) -> bool {
        self.has_room_among(&lock(&self.below), asker)
    }

    fn has_room_among(&self, below: &BTreeMap<ConnectionId, TiedReader>, asker: Asker) -> bool {
        let others = || below.values().filter(|reader| reader.tag != asker.tag);
        let is_welcome = asker.is_newcomer && asker.has_proved;
        others().count() < self.max
            || is_welcome && others().filter(|reader| reader.is_newcomer).count() < NEWCOMERS_MAX
    }

    /// A reader has proved who it is. `None` when others were faster.
    pub(super) fn admit(
        &self,
        asker: Asker,
        (address, software): (SocketAddr, String),
        client_port: u16,
    ) -> Option<(ConnectionId, Arc<Mouth>, UnboundedReceiver<Saying>)> {
        let Asker { tag, is_newcomer, levels, .. } = asker;
        let id = ConnectionId::of_reader(self.next());
        let (mouth, said) = Mouth::new();
        let status = ReaderStatus {
            address,
            software,
            since_ms: clock::wall_ms(),
            bytes_in: 0,
            bytes_out: 0,
            waiting: 0,
        };
        let mut below = lock(&self.below);
        if !self.has_room_among(&below, asker) {
            return None;
        }
        for older in below.values().filter(|reader| reader.tag == tag) {
            older.mouth.end("replaced by a newer connection");
        }
        let reader = TiedReader {
            tag,
            is_newcomer,
            mouth: Arc::clone(&mouth),
            offer: None,
            is_sent_one: false,
            client_port,
            list: ReaderList::default(),
            status,
        };
        below.insert(id, reader);
        drop(below);
        self.tell_all(|| TieEvent::ReaderCame(id, levels));
        Some((id, mouth, said))
    }

    /// The connection with a reader has ended.
    pub(super) fn gone(&self, id: ConnectionId) {
        lock(&self.below).remove(&id);
        self.tell_all(|| TieEvent::ReaderGone(id));
    }

    /// Says a word of this partition to readers. Its bytes are the same in memory for all of them.
    pub(crate) fn say_below(&self, ids: &[ConnectionId], partition: u8, word: Pieces) {
        let frame = framed(partition, word);
        let below = lock(&self.below);
        for reader in ids.iter().filter_map(|id| below.get(id)) {
            reader.mouth.word(frame.clone());
        }
    }

    /// Ends the connection with a reader.
    pub(crate) fn end_below(&self, id: ConnectionId, why: &str) {
        if let Some(reader) = lock(&self.below).get(&id) {
            reader.mouth.end(why);
        }
    }

    /// A reader is to be sent a snapshot. False while it is sent another one: so much it can have this server do.
    pub(super) fn begins_snapshot(&self, id: ConnectionId) -> bool {
        lock(&self.below).get_mut(&id).is_some_and(|reader| !std::mem::replace(&mut reader.is_sent_one, true))
    }

    /// Something has become of it.
    pub(super) fn snapshot_sent(&self, id: ConnectionId, result: Result<u64, String>) {
        if let Some(reader) = lock(&self.below).get_mut(&id) {
            reader.is_sent_one = false;
        }
        self.tell(0, TieEvent::SnapshotSent(id, result));
    }

    /// Waits until a reader may be sent a snapshot, and tells it what has to be shown for that. False where it is gone.
    pub(super) async fn offer(&self, id: ConnectionId, ticket: Ticket, header: Bytes, file: PathBuf) -> bool {
        let Ok(turn) = Arc::clone(&self.sending).acquire_owned().await else { return false };
        let mut below = lock(&self.below);
        let Some(reader) = below.get_mut(&id) else { return false };
        reader.offer = Some(Offer { ticket, header, file, turn });
        reader.mouth.offer(ticket);
        true
    }

    /// The snapshot for which this is shown, and who it is for.
    pub(super) fn take_offer(&self, ticket: &Ticket) -> Option<(ConnectionId, Offer)> {
        let mut below = lock(&self.below);
        below.iter_mut().find_map(|(id, reader)| {
            let offer = reader.offer.take_if(|offer| offer.ticket == *ticket)?;
            Some((*id, offer))
        })
    }

    /// Takes back what was offered and not fetched; true if so.
    pub(super) fn take_back(&self, id: ConnectionId, ticket: &Ticket) -> bool {
        let mut below = lock(&self.below);
        let reader = below.get_mut(&id);
        reader.is_some_and(|reader| reader.offer.take_if(|offer| offer.ticket == *ticket).is_some())
    }

    /// Who is below this server.
    pub(crate) fn readers(&self) -> Vec<ReaderStatus> {
        let status = |reader: &TiedReader| ReaderStatus {
            bytes_in: reader.mouth.bytes_in.load(Ordering::Relaxed),
            bytes_out: reader.mouth.bytes_out.load(Ordering::Relaxed),
            waiting: reader.mouth.waiting.load(Ordering::Relaxed) as u64,
            ..reader.status.clone()
        };
        lock(&self.below).values().map(status).collect()
    }

    /// A reader says who is below it.
    pub(super) fn listed(&self, id: ConnectionId, list: ReaderList) {
        if let Some(reader) = lock(&self.below).get_mut(&id) {
            reader.list = list;
        }
    }

    /// All readers below this process. Those right below it come first.
    pub(crate) fn list(&self) -> ReaderList {
        let mut list = ReaderList::default();
        let below = lock(&self.below);
        let places: Vec<_> = below
            .values()
            .map(|reader| {
                list.add(ListedReader {
                    parent: None,
                    address: SocketAddr::new(reader.status.address.ip(), reader.client_port),
                    since_ms: reader.status.since_ms,
                    software: reader.status.software.clone(),
                })
            })
            .collect();
        for (place, reader) in places.into_iter().zip(below.values()) {
            list.add_below(place, &reader.list);
        }
        list
    }

    /// One was not let in.
    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were not let in.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    // ---- the parent ----

    /// There is a connection to a parent.
    pub(super) fn attach(
        &self,
        status: impl FnOnce(&mut ParentStatus),
    ) -> (u64, Arc<Mouth>, UnboundedReceiver<Saying>) {
        let (link, (mouth, said)) = (self.next(), Mouth::new());
        let mut above = lock(&self.above);
        above.tie = Some((link, Arc::clone(&mouth)));
        above.status.since_ms = Some(clock::wall_ms());
        above.status.found += 1;
        self.rounds.store(0, Ordering::Relaxed);
        self.is_turned_away.store(false, Ordering::Relaxed);
        status(&mut above.status);
        (link, mouth, said)
    }

    /// It has ended, or there was none: what went wrong, if that is why.
    pub(super) fn detach(&self, error: Option<String>) {
        let mut above = lock(&self.above);
        above.tie = None;
        above.status.since_ms = None;
        above.status.last_error = error.or_else(|| above.status.last_error.take());
    }

    /// A parent was not one, and whether it has said so.
    pub(super) fn was_not_let_in(&self, is_turned_away: bool) {
        self.is_turned_away.fetch_or(is_turned_away, Ordering::Relaxed);
    }

    /// Each parent was tried since, or one has let this reader in.
    pub(super) fn tried_all(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all parents were tried, and none has let this reader in.
    pub(super) fn has_tried_all(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) > 0
    }

    /// The same, where none will either: they have said so, also when they were asked to as the last resort.
    pub(crate) fn is_let_in_nowhere(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) > 1 && self.is_turned_away.load(Ordering::Relaxed)
    }

    /// Which parent is tried.
    pub(super) fn tries(&self, address: &str) {
        lock(&self.above).status.address = address.to_owned();
    }

    /// Says a word of this partition to the parent, if it is this one.
    pub(crate) fn say_above(&self, link: u64, partition: u8, word: Pieces) {
        if let Some((_, mouth)) = lock(&self.above).tie.as_ref().filter(|(tie, _)| *tie == link) {
            mouth.word(framed(partition, word));
        }
    }

    /// Leaves the parent: another one may do.
    pub(crate) fn leave(&self, why: &str) {
        if let Some((_, mouth)) = &lock(&self.above).tie {
            mouth.end(why);
        }
    }

    /// The same if it is this one.
    pub(crate) fn leave_link(&self, link: u64, why: &str) {
        if let Some((_, mouth)) = lock(&self.above).tie.as_ref().filter(|(tie, _)| *tie == link) {
            mouth.end(why);
        }
    }

    /// Who the parent is.
    pub(crate) fn parent(&self) -> Option<ParentStatus> {
        self.own.is_reader.then(|| lock(&self.above).status.clone())
    }
}
