//! The replicated log that all partitions of a server share: one election, one list of members, one stream of
//! records. It stands with the first partition, on its thread.
//!
//! Each partition prepares, orders and applies by itself. What it has prepared in a turn it hands over, with a
//! position on its own timeline that it has chosen; an entry of the log is what all partitions have handed over since
//! the last one. Where there is one partition its entries are those of the log, as they are.
//!
//! ```text
//! entry := payload of the only partition
//!        | count u16, (partition u8, position u64, length u32, payload)*      where there are several
//! ```
//! Integers are little-endian.
//!
//! **What follows something is never committed without it.** An entry may follow others, on other partitions: the
//! parts of an operation follow each other, and a client's later write follows its earlier one. What is handed over
//! waits here until all that it follows is proposed, or is in the same batch; so whatever prefix of the log outlives
//! a leader, nothing in it follows anything that is not. Nobody has to find out afterwards what became of what.
//!
//! The group says what is to be stored; each store becomes a record, and records have the positions
//! of the log's files. What the disk refuses for lack of room is undone as if the process had ended and begun
//! again: that is always safe.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use stoa_group::{
    Config, Coverage, Entry, EntryKind, Group, History, HistoryId, Mark, Members, Output, Pieces,
    ProposeError, Restored, Role, Status, Store, Vote,
};

/// Which timeline the log's files are of, with so many partitions. Where there are several that is none that there was
/// when each partition had a log of its own, and says how many there are.
#[must_use]
pub fn timeline_of(partitions: u8) -> u32 {
    if partitions > 1 { 0x100 + u32::from(partitions) } else { 0 }
}

/// A record for the log.
#[derive(Debug, Clone)]
pub struct Append {
    /// Grows each time that the log has refused records: those of an earlier generation are void,
    /// and whoever carries them to the log drops them.
    pub generation: u64,
    /// Which timeline of the log's files it is of.
    pub timeline: u32,
    /// Its place in the log.
    pub position: u64,
    /// Its bytes.
    pub payload: Pieces,
    /// The record builds on a snapshot that has come from another server: before it is appended,
    /// the snapshot must be durable among this server's own.
    pub snapshot: Option<TakenOver>,
}

/// How a snapshot from another server becomes one of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// Where in the log it stands.
    pub position: u64,
    /// The last record that it covers.
    pub covered: u64,
    /// Its first chunk here, in place of the sender's.
    pub head: Vec<u8>,
}

struct InFlight {
    record: u64,
    /// The group's number for it; `None` for what the group did not ask for.
    number: Option<u64>,
    /// Where the log ends behind it.
    end: Option<u64>,
    takes_over: bool,
}

/// Where a leader has put an entry, or will put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// The partition.
    pub partition: u8,
    /// The leader's term.
    pub term: u64,
    /// The position on the partition's timeline.
    pub position: u64,
}

/// What a partition hands over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The term of the leader that has prepared it.
    pub term: u64,
    /// Where it will stand on the partition's timeline.
    pub position: u64,
    /// The bytes.
    pub payload: Bytes,
    /// What it follows, on other partitions.
    pub follows: Vec<EntryId>,
}

/// Something of the log for one partition.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// These are committed.
    Committed(Vec<Entry>),
    /// Who leads has changed, or what this server is.
    Leader {
        /// The term.
        term: u64,
        /// Who leads; 0 when that is not known.
        leader: u64,
        /// Whether it is this server.
        leads: bool,
    },
    /// Who has applied what came before this sees everything that was acknowledged before the question.
    Read(u64),
    /// The members are these.
    Members(Box<Members>),
    /// To the first of several partitions, if it is told of the log: the entries whose parts came before.
    Logged(Vec<Entry>),
    /// The snapshot with this number is of the state behind what came before.
    Snapshot(u64),
    /// The log had no room for what was proposed.
    NoRoom,
    /// At a reader: somebody asks the ensemble in its place from now on, or nobody does.
    Attached(Option<Attachment>),
    /// At a reader: so many of the partition's requests, the oldest without one, are called this and what follows.
    Numbered {
        /// What the first is called.
        number: u64,
        /// How many there are.
        count: u64,
    },
    /// At a reader: its parent says something about the partition's state.
    Service(Bytes),
    /// At a reader: whoever has this position sees what the question is about.
    Position {
        /// The question.
        question: u64,
        /// The position, on the partition's timeline.
        position: u64,
    },
}

/// Who asks the ensemble in a reader's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// The member.
    pub top: u8,
    /// By way of which connection.
    pub link: u64,
    /// What its parent is.
    pub parent: ParentTraits,
}

/// What the parent of a reader is, as it has said when they met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParentTraits {
    /// It is of a release that takes what is read at the reader.
    pub takes_reads: bool,
    /// Its ensemble is one of several sites, or about to be.
    pub is_of_site: bool,
}

/// What a leader has made of what its partitions have handed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batches {
    /// How many batches.
    pub count: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// What a snapshot begins with.
#[derive(Debug, Clone)]
pub struct SnapshotHead {
    /// Its first chunk: where it stands, who the members are, and the newest vote.
    pub head: Store,
    /// The last record that it covers.
    pub covered: u64,
}

/// What a disk holds of the log.
#[derive(Debug, Clone, Copy)]
pub struct OnDisk<'a> {
    /// Where the state stands in it, the vote, and the entries that may not be committed.
    pub restored: &'a Restored,
    /// The snapshot that the state was loaded from.
    pub snapshot: Option<&'a Mark>,
    /// The last record that the snapshot covers.
    pub covered: u64,
    /// The last record.
    pub record: u64,
}

/// See the module.
pub(crate) struct SharedLog {
    config: Config,
    group: Group,
    records: VecDeque<Append>,
    in_flight: VecDeque<InFlight>,
    generation: u64,
    next_record: u64,
    coverage: Coverage,
    /// The term that the group is in, and whether this server leads it.
    term: u64,
    leads: bool,
    partitions: Vec<Queue>,
    next: NextBatch,
    /// Batches that were made, and their bytes.
    batches: Batches,
    reads: Reads,
    /// Up to here the log was divided among the partitions.
    divided: u64,
    /// At a reader: the snapshot that is being taken over.
    adopts: Option<Box<Mark>>,
}

/// What was handed over and is not proposed.
#[derive(Debug, Default)]
struct NextBatch {
    /// A batch that the group could not take yet.
    held_up: Option<Bytes>,
    /// Bytes that were handed over and are not in a batch.
    handed_bytes: usize,
    /// Something was handed over since it was looked at last.
    is_fresh: bool,
    /// Some of that should not wait for more to go with it.
    is_urgent: bool,
}

/// Questions of linearizable reads, and answers that have to wait.
#[derive(Debug, Default)]
struct Reads {
    /// Who has asked which question.
    questions: BTreeMap<u64, u8>,
    /// Answers that are good behind this position.
    answers: Vec<(u64, u64)>,
}

/// One partition of several.
#[derive(Debug, Default)]
struct Queue {
    handed: VecDeque<Proposal>,
    /// Up to which position of its timeline everything is proposed.
    proposed: u64,
    /// And committed.
    delivered: u64,
}

impl SharedLog {
    /// With what the disk holds; `positions` are those of the partitions, where there are several.
    pub(crate) fn new(config: Config, disk: &OnDisk<'_>, positions: &[u64]) -> Option<Self> {
        let OnDisk { restored, snapshot, record, covered } = *disk;
        let mut group = Group::new(&config, restored)?;
        if let Some(mark) = snapshot {
            group.offer_snapshot(mark.clone());
        }
        let queue = |position: &u64| Queue { delivered: *position, proposed: *position, ..Queue::default() };
        let mut log = Self {
            config,
            records: VecDeque::new(),
            in_flight: VecDeque::new(),
            generation: 0,
            next_record: record + 1,
            coverage: Coverage::new(covered, record, restored.last()),
            term: restored.vote.term,
            leads: false,
            partitions: positions.iter().map(queue).collect(),
            next: NextBatch::default(),
            batches: Batches::default(),
            reads: Reads::default(),
            divided: restored.base.position,
            adopts: None,
            group,
        };
        if record == covered && restored.history.is_some() {
            log.store_beginning();
        }
        log.begin();
        Some(log)
    }

    /// Which history the log is of, if it is of one.
    pub(crate) fn history(&self) -> Option<History> {
        self.group.history()
    }

    /// The disk holds nothing: a history begins, with these voters, or goes on elsewhere and is joined.
    pub(crate) fn begin_history(&mut self, id: HistoryId, voters: &[u64]) -> bool {
        let (history, base) = (Some(History { id, since: 0 }), Mark::founding(voters));
        let Some(group) = Group::new(&self.config, &Restored { base, history, ..Restored::default() }) else {
            return false;
        };
        self.divided = group.mark().position;
        self.group = group;
        self.coverage = Coverage::new(0, 0, self.divided);
        self.store_beginning();
        self.begin();
        true
    }

    /// Where the log goes on from: at its beginning, and behind a snapshot that nothing follows, so that an older
    /// snapshot is not taken for it when it is damaged.
    fn store_beginning(&mut self) {
        let beginning = self.group.snapshot_head();
        self.store(&beginning, None);
    }

    /// Nobody else could be elected: there is nothing to wait for.
    fn begin(&mut self) {
        if is_alone(&self.members(), self.config.id) {
            self.group.campaign();
        }
    }

    /// Tries to lead, if nobody else could.
    pub(crate) fn lead_if_alone(&mut self) {
        if !self.leads {
            self.begin();
        }
    }

    pub(crate) fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    pub(crate) fn members(&self) -> Members {
        self.group.status().members
    }

    /// Up to which position everything is known to be committed.
    pub(crate) fn committed(&self) -> u64 {
        self.group.committed()
    }

    pub(crate) fn status(&self) -> Status {
        self.group.status()
    }

    /// At the leader: whether this member is given appends by others.
    pub(crate) fn is_fed(&self, member: u64) -> bool {
        self.group.is_fed(member)
    }

    pub(crate) fn is_taking_over(&self) -> bool {
        self.group.is_taking_over() || self.adopts.is_some()
    }

    /// At a reader, which is no member of the group, so that the engine would take over nothing: a snapshot of its
    /// parent's has come. It is taken over when its record is durable. False when it is of no use. Nothing that this
    /// server may have promised as a member is lost with it: what it has behind this position, but not at it, is not
    /// committed there, and never will be.
    pub(crate) fn adopt(&mut self, mark: Mark) -> bool {
        let has_all = self.group.feed_commit(mark.position, mark.term);
        if has_all || self.is_taking_over() || mark.position <= self.group.committed() || !mark.is_sound() {
            return false;
        }
        let store = Store {
            snapshot: Some(mark.clone().into()),
            vote: Some(self.vote_with(&mark)),
            history: self.group.history(),
            ..Store::default()
        };
        self.adopts = Some(Box::new(mark));
        self.store_with(&store, None, true);
        true
    }

    /// The vote, which is of no earlier term than a snapshot that is taken over.
    fn vote_with(&self, mark: &Mark) -> Vote {
        let vote = self.group.vote();
        let voted_for = if vote.term >= mark.term { vote.voted_for } else { 0 };
        Vote { term: vote.term.max(mark.term), voted_for, committed: mark.position }
    }

    /// The snapshot is durable among this server's own.
    fn adopted(&mut self, mark: &Mark) {
        let (vote, history) = (self.vote_with(mark), self.group.history());
        let restored = Restored { base: mark.clone(), vote, history, entries: Vec::new() };
        self.group = Group::new(&self.config, &restored).expect("a mark that was checked begins a group");
        self.group.offer_snapshot(mark.clone());
        (self.term, self.leads) = (vote.term, false);
    }

    /// Questions of all servers where the log ends, which this one has not answered as their leader.
    pub(crate) fn pending_reads(&self) -> usize {
        if self.leads { self.group.pending_reads() } else { 0 }
    }

    // ---- what partitions hand over ----

    /// An entry of the only partition. Returns where it will stand.
    pub(crate) fn propose(&mut self, payload: Bytes) -> Result<u64, ProposeError> {
        self.group.propose(payload)
    }

    /// One of several partitions hands over an entry.
    pub(crate) fn hand_over(&mut self, partition: u8, handed: Proposal) {
        // What an earlier leader had prepared is no news to the partition: it is told who leads.
        if self.leads
            && handed.term == self.term
            && let Some(queue) = self.partitions.get_mut(usize::from(partition))
        {
            self.next.handed_bytes += handed.payload.len();
            self.next.is_fresh = true;
            self.next.is_urgent |= !handed.follows.is_empty();
            queue.handed.push_back(handed);
        }
    }

    /// Bytes that were handed over and may be proposed now. What waits for others is looked at when there is more.
    #[inline]
    pub(crate) fn handed_bytes(&self) -> usize {
        let handed = if self.next.is_fresh { self.next.handed_bytes } else { 0 };
        handed + self.next.held_up.as_ref().map_or(0, Bytes::len)
    }

    /// Whether something that was handed over should not wait for more to go with it: whole partitions stand still
    /// for the parts of an operation.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        self.next.is_urgent
    }

    /// Proposes what was handed over, as one entry, as far as all is there that it follows.
    pub(crate) fn propose_handed(&mut self) {
        if !self.leads {
            return;
        }
        (self.next.is_fresh, self.next.is_urgent) = (false, false);
        if self.next.held_up.is_none() {
            self.next.held_up = self.take_batch();
        }
        if let Some(batch) = self.next.held_up.take()
            && self.group.propose(batch.clone()) == Err(ProposeError::Busy)
        {
            self.next.held_up = Some(batch);
        }
    }

    /// What can be proposed: the most of what each partition has handed over with nothing in it that follows what is
    /// not in it, and not proposed either.
    fn take_batch(&mut self) -> Option<Bytes> {
        let mut counts: Vec<usize> = self.partitions.iter().map(|queue| queue.handed.len()).collect();
        if counts.iter().all(|count| *count == 0) {
            return None;
        }
        let mut is_cut = true;
        while core::mem::take(&mut is_cut) {
            for at in 0..counts.len() {
                let queue = &self.partitions[at];
                let is_loose = |handed: &Proposal| handed.follows.iter().any(|it| !self.has(it, &counts));
                if let Some(first) = queue.handed.iter().take(counts[at]).position(is_loose) {
                    counts[at] = first;
                    is_cut = true;
                }
            }
        }
        self.encode_batch(&counts)
    }

    /// Whether this is proposed, or would be with so many entries of each partition.
    fn has(&self, place: &EntryId, counts: &[usize]) -> bool {
        let at = usize::from(place.partition);
        let Some(queue) = self.partitions.get(at).filter(|_| place.term == self.term) else { return false };
        let last = counts[at].checked_sub(1).and_then(|last| queue.handed.get(last));
        place.position <= last.map_or(queue.proposed, |last| last.position)
    }

    fn encode_batch(&mut self, counts: &[usize]) -> Option<Bytes> {
        let all = counts.iter().sum::<usize>();
        if all == 0 {
            return None;
        }
        let taken =
            self.partitions.iter().zip(counts).flat_map(|(queue, count)| queue.handed.iter().take(*count));
        let bytes = taken.map(|handed| SLICE_HEADER_BYTES + handed.payload.len()).sum::<usize>();
        let mut batch = BytesMut::with_capacity(2 + bytes);
        batch.put_u16_le(u16::try_from(all).unwrap_or(u16::MAX));
        let mut left = usize::from(u16::MAX);
        for (partition, (queue, count)) in (0_u8..).zip(self.partitions.iter_mut().zip(counts)) {
            for handed in queue.handed.drain(..(*count).min(left)) {
                left -= 1;
                queue.proposed = handed.position;
                self.next.handed_bytes -= handed.payload.len();
                batch.put_u8(partition);
                batch.put_u64_le(handed.position);
                batch.put_u32_le(u32::try_from(handed.payload.len()).unwrap_or(u32::MAX));
                batch.put_slice(&handed.payload);
            }
        }
        self.batches.count += 1;
        self.batches.bytes += batch.len() as u64;
        Some(batch.freeze())
    }

    /// The batches that were made here.
    pub(crate) fn batches(&self) -> Batches {
        self.batches
    }

    /// A partition asks where the log ends.
    pub(crate) fn ask(&mut self, partition: u8, question: u64) {
        if !self.partitions.is_empty() {
            self.reads.questions.insert(question, partition);
        }
        self.group.read(question);
    }

    /// The answer to a question: it is good for whoever has what is divided up to there.
    pub(crate) fn answered(&mut self, question: u64, position: u64) {
        self.reads.answers.push((position, question));
    }

    /// Answers that are good now: who has asked, and what.
    pub(crate) fn take_answers(&mut self) -> Vec<(u8, u64)> {
        let divided = self.divided;
        let good = self.reads.answers.extract_if(.., |(position, _)| *position <= divided);
        let questions = &mut self.reads.questions;
        good.filter_map(|(_, question)| Some((questions.remove(&question)?, question))).collect()
    }

    // ---- what comes out of the log ----

    /// Whether the group wants nothing done.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.group.is_idle()
    }

    /// The next thing that the group wants done besides storing.
    pub(crate) fn poll(&mut self) -> Option<Output> {
        loop {
            match self.group.poll()? {
                Output::Store(store) => self.store(&store, Some(store.number)),
                Output::Leader { term, leader, role } => {
                    (self.term, self.leads) = (term, role == Role::Leader);
                    self.forget_handed();
                    return Some(Output::Leader { term, leader, role });
                }
                output => return Some(output),
            }
        }
    }

    fn forget_handed(&mut self) {
        self.next.held_up = None;
        (self.next.handed_bytes, self.next.is_fresh, self.next.is_urgent) = (0, false, false);
        for queue in &mut self.partitions {
            queue.handed.clear();
            queue.proposed = queue.delivered;
        }
    }

    /// Divides committed entries among several partitions. A new leader's first entry is everybody's, and has no
    /// position of its own there.
    ///
    /// # Panics
    /// When an entry cannot be read, or does not follow what is known of a partition: the states of two servers have
    /// parted, and nothing may be served.
    pub(crate) fn divide(&mut self, entries: &[Entry]) -> Vec<Vec<Entry>> {
        let mut divided = vec![Vec::new(); self.partitions.len()];
        self.divided = entries.last().map_or(self.divided, |last| last.position);
        for Entry { term, kind, payload, .. } in entries {
            match kind {
                EntryKind::Change => {}
                EntryKind::Payload if payload.is_empty() => {
                    for (queue, of) in self.partitions.iter_mut().zip(&mut divided) {
                        queue.proposed = queue.proposed.max(queue.delivered);
                        of.push(Entry {
                            position: queue.delivered,
                            term: *term,
                            kind: *kind,
                            payload: Bytes::new(),
                        });
                    }
                }
                EntryKind::Payload => {
                    for slice in Slices::new(payload.clone()) {
                        let (partition, position, payload) =
                            slice.expect("an entry that a leader made can be read");
                        let queue =
                            self.partitions.get_mut(usize::from(partition)).expect("partitions are as many");
                        assert_eq!(
                            position,
                            queue.delivered + 1,
                            "entries of partition {partition} follow each other"
                        );
                        queue.delivered = position;
                        queue.proposed = queue.proposed.max(position);
                        divided[usize::from(partition)].push(Entry {
                            position,
                            term: *term,
                            kind: *kind,
                            payload,
                        });
                    }
                }
            }
        }
        divided
    }

    /// The state is another one, in which the partitions have come so far.
    pub(crate) fn replaced(&mut self, divided: u64, positions: impl Iterator<Item = u64>) {
        self.divided = divided;
        for (queue, position) in self.partitions.iter_mut().zip(positions) {
            *queue = Queue { delivered: position, proposed: position, ..Queue::default() };
        }
    }

    // ---- records ----

    fn store(&mut self, store: &Store, number: Option<u64>) {
        self.store_with(store, number, number.is_some());
    }

    fn store_with(&mut self, store: &Store, number: Option<u64>, takes_over: bool) {
        let record = self.next_record;
        self.next_record += 1;
        let snapshot = store.snapshot.as_ref().filter(|_| takes_over).map(|mark| {
            let vote = store.vote.unwrap_or(self.group.vote());
            let head = Store {
                snapshot: Some(mark.clone()),
                vote: Some(vote),
                history: store.history,
                ..Store::default()
            };
            TakenOver { position: mark.position, covered: record - 1, head: head.encode().join().into() }
        });
        let takes_over = snapshot.is_some();
        let payload = store.encode();
        let partitions = u8::try_from(self.partitions.len()).unwrap_or(u8::MAX);
        let (generation, timeline) = (self.generation, timeline_of(partitions));
        self.records.push_back(Append { generation, timeline, position: record, payload, snapshot });
        self.in_flight.push_back(InFlight { record, number, end: store.end(), takes_over });
    }

    #[inline]
    pub(crate) fn poll_append(&mut self) -> Option<Append> {
        self.records.pop_front()
    }

    #[inline]
    pub(crate) fn has_appends(&self) -> bool {
        !self.records.is_empty()
    }

    /// Records with the log, or on their way to it.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The log holds the records up to `position`. Returns whether the state is now that of the
    /// snapshot which was being taken over.
    pub(crate) fn appended(&mut self, position: u64) -> bool {
        let mut number = None;
        let mut taken_over = false;
        while let Some(done) = self.in_flight.pop_front_if(|in_flight| in_flight.record <= position) {
            self.coverage.written(done.record, done.end);
            number = done.number.or(number);
            taken_over |= done.takes_over;
        }
        if let Some(number) = number {
            self.group.stored(number);
        }
        if let Some(mark) = self.adopts.take_if(|_| taken_over) {
            self.adopted(&mark);
        }
        taken_over
    }

    /// The log has refused the records of this generation. `None` when that is known already, else
    /// whether the group goes on, with what is durable.
    pub(crate) fn refused(&mut self, generation: u64) -> Option<bool> {
        if generation != self.generation {
            return None;
        }
        self.generation += 1;
        self.next_record -= self.in_flight.len() as u64;
        let begins = self.in_flight.iter().any(|in_flight| in_flight.number.is_none());
        self.in_flight.clear();
        self.records.clear();
        let restored = self.group.durable().filter(|_| self.adopts.is_none());
        let rebuilt = restored.and_then(|restored| {
            // Another run of the group: its timeouts must not be those of the one before.
            self.config.seed = self.config.seed.wrapping_add(1);
            Some((Group::new(&self.config, &restored)?, restored.vote.term))
        });
        let Some((group, term)) = rebuilt else { return Some(false) };
        self.group = group;
        (self.term, self.leads) = (term, false);
        self.forget_handed();
        if begins {
            self.store_beginning();
        }
        Some(true)
    }

    /// Up to here the log was divided among several partitions.
    #[inline]
    pub(crate) fn divided(&self) -> u64 {
        self.divided
    }

    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// What a snapshot begins with that is taken now.
    pub(crate) fn begin_snapshot(&mut self) -> SnapshotHead {
        let head = self.group.snapshot_head();
        let position = head.snapshot.as_ref().map_or(0, |mark| mark.position);
        SnapshotHead { head, covered: self.coverage.covered(position) }
    }
}

/// Whether this member alone decides what is committed. (There may be others that listen.)
pub(crate) fn is_alone(members: &Members, id: u64) -> bool {
    members.voters == [id] && members.outgoing.is_empty()
}

const SLICE_HEADER_BYTES: usize = 1 + 8 + 4;

/// What a batch holds of each partition: partition, position, payload.
pub struct Slices {
    rest: Bytes,
    left: u16,
}

impl Slices {
    /// Of the payload of an entry, where there are several partitions.
    #[must_use]
    pub fn new(mut batch: Bytes) -> Self {
        // One that is too short for its count fails with its first slice.
        let left = if batch.len() < 2 { 1 } else { batch.get_u16_le() };
        Self { rest: batch, left }
    }

    fn slice(&mut self) -> Option<(u8, u64, Bytes)> {
        if self.rest.len() < SLICE_HEADER_BYTES {
            return None;
        }
        let (partition, position) = (self.rest.get_u8(), self.rest.get_u64_le());
        let len = self.rest.get_u32_le() as usize;
        (len <= self.rest.len()).then(|| (partition, position, self.rest.split_to(len)))
    }
}

/// A batch cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadBatch;

impl core::fmt::Display for BadBatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("what it holds of each partition is not well formed")
    }
}

impl core::error::Error for BadBatch {}

impl Iterator for Slices {
    type Item = Result<(u8, u64, Bytes), BadBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let slice = self.slice().ok_or(BadBatch);
        if slice.is_err() {
            self.left = 0;
        }
        Some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first one after that of the first entry, which says who the members are.
    const TERM: u64 = 2;

    fn place(partition: u8, position: u64) -> EntryId {
        EntryId { partition, term: TERM, position }
    }

    /// The log of a server that stands alone, and leads.
    fn leading(partitions: usize) -> SharedLog {
        let base = Mark { position: 1, term: 1, members: Members::of_voters(&[1]) };
        let restored = Restored { base, ..Restored::default() };
        let disk = OnDisk { restored: &restored, snapshot: None, covered: 0, record: 0 };
        let mut log = SharedLog::new(Config::new(1, 7), &disk, &vec![0; partitions]).unwrap();
        settle(&mut log);
        assert!(log.leads && log.term == TERM);
        log
    }

    /// Everything is stored. Returns what is committed, of each partition.
    fn settle(log: &mut SharedLog) -> Vec<(u8, u64)> {
        let mut committed = Vec::new();
        loop {
            match log.poll() {
                Some(Output::Committed(entries)) => {
                    for (partition, entries) in (0..).zip(log.divide(&entries)) {
                        let entries = entries.into_iter().filter(|entry| !entry.payload.is_empty());
                        committed.extend(entries.map(|entry| (partition, entry.position)));
                    }
                }
                Some(_) => {}
                None => match log.poll_append() {
                    Some(append) => drop(log.appended(append.position)),
                    None => return committed,
                },
            }
        }
    }

    fn hand_over(log: &mut SharedLog, partition: u8, position: u64, follows: &[EntryId]) {
        let (term, follows) = (log.term, follows.into());
        let payload = Bytes::from_static(b"something");
        log.hand_over(partition, Proposal { term, position, payload, follows });
    }

    fn propose(log: &mut SharedLog) -> Vec<(u8, u64)> {
        log.propose_handed();
        settle(log)
    }

    #[test]
    fn all_that_was_handed_over_is_one_entry() {
        let mut log = leading(3);
        let before = log.group.last();
        for (partition, position) in [(2, 1), (0, 1), (2, 2)] {
            hand_over(&mut log, partition, position, &[]);
        }
        assert_eq!(propose(&mut log), [(0, 1), (2, 1), (2, 2)]);
        assert_eq!(log.group.last(), before + 1);
        assert_eq!(propose(&mut log), []);
        assert_eq!(log.group.last(), before + 1, "there is nothing to propose");
    }

    #[test]
    fn what_follows_something_waits_for_it_and_so_does_what_is_behind_it() {
        let mut log = leading(3);
        hand_over(&mut log, 1, 1, &[]);
        hand_over(&mut log, 1, 2, &[place(0, 2)]);
        hand_over(&mut log, 1, 3, &[]);
        hand_over(&mut log, 2, 1, &[place(1, 3)]);
        hand_over(&mut log, 0, 1, &[]);
        assert_eq!(propose(&mut log), [(0, 1), (1, 1)]);
        hand_over(&mut log, 0, 2, &[place(1, 1)]);
        assert_eq!(propose(&mut log), [(0, 2), (1, 2), (1, 3), (2, 1)]);
    }

    #[test]
    fn parts_that_follow_each_other_come_together() {
        let mut log = leading(3);
        hand_over(&mut log, 0, 1, &[place(1, 1), place(2, 1)]);
        hand_over(&mut log, 2, 1, &[place(0, 1), place(1, 1)]);
        assert_eq!(propose(&mut log), []);
        hand_over(&mut log, 1, 1, &[place(0, 1), place(2, 1)]);
        let before = log.group.last();
        assert_eq!(propose(&mut log), [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(log.group.last(), before + 1);
    }

    #[test]
    fn what_an_earlier_leader_has_prepared_is_dropped() {
        let mut log = leading(2);
        let payload = Bytes::from_static(b"old");
        log.hand_over(1, Proposal { term: log.term - 1, position: 1, payload, follows: Vec::new() });
        assert_eq!(propose(&mut log), []);
        hand_over(&mut log, 1, 1, &[]);
        log.forget_handed();
        assert_eq!(propose(&mut log), []);
    }

    #[test]
    fn a_batch_that_is_cut_short_is_noticed() {
        let mut log = leading(2);
        hand_over(&mut log, 0, 1, &[]);
        hand_over(&mut log, 1, 1, &[]);
        let batch = log.take_batch().unwrap();
        assert_eq!(Slices::new(batch.clone()).filter(Result::is_ok).count(), 2);
        for cut in 0..batch.len() {
            let mut slices = Slices::new(batch.slice(..cut));
            assert!(slices.any(|slice| slice == Err(BadBatch)), "{cut}");
            assert_eq!(slices.next(), None);
        }
    }
}
