//! What a server keeps of other sites, beside what is replicated, and what their leaders say to each other. What is done
//! with it: `replica/sites.rs`.
//!
//! ```text
//! message := 1, since u64, upto u64, (position u64, length u32, item*)*     what the sender has behind `since`, up to
//!                                                                            `upto`, that concerns the receiver
//!          | 2, position u64                                                 up to there everything is here
//!          | 3, position u64                                                 the same, and what follows is to be sent
//!                                                                            (again)
//!          | 4                                                               nothing is here: the hub's state is to come
//!          | 5, (site u8, zxid i64)*                                         what is here of each site; what the sender of
//!                                                                            the answer has besides is wanted
//!          | 6, term u64, asked u64                             the hub of that term asks for a promise, at that time
//!          | 7, term u64, asked u64                             and has it
//! ```
//! Integers are little-endian.

use crate::backlog::BacklogWanted;
use crate::lacks::Lacks;
use crate::lease::Lease;
use crate::second_site::Shared;
use crate::site_news::{Said, TicketOutcome};
use crate::site_policy::{TicketPlan, TokenPolicy};
use crate::site_requests::SiteRequests;
use crate::status::{SiteCounts, Unshipped};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{BufMut, Bytes};
use stoa_partition::made_in;
use stoa_sites::is_at_or_below;
use stoa_timeline::BadMessage;
use stoa_tree::{SiteId, SiteSet, Source, Ticket, Tree, source_of_zxid};
use stoa_wire::Timestamp;

const BATCH: u8 = 1;
const HAVE: u8 = 2;
const AGAIN: u8 = 3;
const JOIN: u8 = 4;
const MISSING: u8 = 5;
const ASK: u8 = 6;
const PROMISE: u8 = 7;

/// About so many bytes of items are in a message.
pub(crate) const BATCH_BYTES: usize = 256 << 10;
/// So many bytes of entries that do not concern a site are passed before it is told that they are.
const PASSED_BYTES: usize = 1 << 20;
/// So much is kept in memory even if all others have it: the next hub may not.
pub(crate) const KEPT_LEAST_BYTES: usize = 4 << 20;
/// No more than so many bytes are on their way to a site.
const WINDOW_BYTES: usize = 8 << 20;

/// What one site's leader says to another one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SiteMessage {
    Batch { since: u64, upto: u64, entries: Vec<(u64, Bytes)> },
    Have { position: u64 },
    Again { position: u64 },
    Join,
    Missing { has: Vec<(Source, i64)> },
    Ask { term: u64, asked_us: u64 },
    Promise { term: u64, asked_us: u64 },
}

impl SiteMessage {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Batch { since, upto, entries } => {
                out.put_u8(BATCH);
                out.put_u64_le(*since);
                out.put_u64_le(*upto);
                for (position, items) in entries {
                    out.put_u64_le(*position);
                    out.put_u32_le(u32::try_from(items.len()).unwrap_or(u32::MAX));
                    out.put_slice(items);
                }
            }
            Self::Have { position } => {
                out.put_u8(HAVE);
                out.put_u64_le(*position);
            }
            Self::Again { position } => {
                out.put_u8(AGAIN);
                out.put_u64_le(*position);
            }
            Self::Join => out.put_u8(JOIN),
            Self::Missing { has } => {
                out.put_u8(MISSING);
                for (source, zxid) in has {
                    out.put_u8(source.site);
                    out.put_i64_le(*zxid);
                }
            }
            Self::Ask { term, asked_us } | Self::Promise { term, asked_us } => {
                out.put_u8(if matches!(self, Self::Ask { .. }) { ASK } else { PROMISE });
                out.put_u64_le(*term);
                out.put_u64_le(*asked_us);
            }
        }
        out.into()
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, BadMessage> {
        let mut at = 1;
        let mut number = || {
            let number = bytes.get(at..at + 8).and_then(|number| number.try_into().ok()).ok_or(BadMessage)?;
            at += 8;
            Ok::<u64, BadMessage>(u64::from_le_bytes(number))
        };
        match bytes.first() {
            Some(&HAVE) if bytes.len() == 9 => Ok(Self::Have { position: number()? }),
            Some(&AGAIN) if bytes.len() == 9 => Ok(Self::Again { position: number()? }),
            Some(&ASK) if bytes.len() == 17 => Ok(Self::Ask { term: number()?, asked_us: number()? }),
            Some(&PROMISE) if bytes.len() == 17 => Ok(Self::Promise { term: number()?, asked_us: number()? }),
            Some(&JOIN) if bytes.len() == 1 => Ok(Self::Join),
            Some(&MISSING) if (bytes.len() - 1).is_multiple_of(9) => {
                let of = |has: &[u8]| {
                    let zxid = i64::from_le_bytes(core::array::from_fn(|at| has[at + 1]));
                    let source = Some(source_of_zxid(zxid)).filter(|source| source.site == has[0]);
                    (source.unwrap_or(Source::first_of(has[0])), zxid)
                };
                Ok(Self::Missing { has: bytes[1..].chunks_exact(9).map(of).collect() })
            }
            Some(&BATCH) => {
                let (since, upto) = (number()?, number()?);
                let entries = decode_entries(&bytes.slice(17..), since, upto)?;
                Ok(Self::Batch { since, upto, entries })
            }
            _ => Err(BadMessage),
        }
    }
}

/// Makes a [`SiteMessage::Batch`] where it is to stand, without a copy of what is in it.
pub(crate) struct BatchWriter {
    out: Vec<u8>,
    /// Where the entry begins that is being written.
    entry: usize,
    bytes: usize,
    entries: u64,
}

impl BatchWriter {
    /// What stands before entries, and before the items of each.
    const HEAD: usize = 17;
    const ENTRY_HEAD: usize = 12;

    pub(crate) fn new() -> Self {
        Self { out: Vec::new(), entry: Self::HEAD, bytes: 0, entries: 0 }
    }

    /// An entry of so many bytes: its items are to be appended to this.
    pub(crate) fn begin(&mut self, position: u64, len: usize) -> &mut Vec<u8> {
        if self.out.is_empty() {
            // Mostly one entry is all there is to be said, and its items are hardly ever longer.
            self.out.reserve(Self::HEAD + Self::ENTRY_HEAD + len);
            self.out.resize(Self::HEAD, 0);
        }
        self.entry = self.out.len();
        self.out.put_u64_le(position);
        self.out.put_u32_le(0);
        &mut self.out
    }

    /// The items that were appended.
    pub(crate) fn items(&self) -> &[u8] {
        self.out.get(self.entry + Self::ENTRY_HEAD..).unwrap_or_default()
    }

    /// These were all items of the entry. Without any, or where they are not wanted, there is no such entry. Returns whether
    /// there is one.
    pub(crate) fn end(&mut self, are_wanted: bool) -> bool {
        let len = self.items().len();
        if len == 0 || !are_wanted {
            self.out.truncate(self.entry);
            return false;
        }
        let written = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        self.out[self.entry + Self::ENTRY_HEAD - written.len()..][..written.len()].copy_from_slice(&written);
        (self.bytes, self.entries) = (self.bytes + len, self.entries + 1);
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The bytes of all items.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// The message: that is what there is behind a position, up to another one.
    pub(crate) fn finish(mut self, since: u64, upto: u64) -> Bytes {
        self.out.resize(self.out.len().max(Self::HEAD), 0);
        self.out[0] = BATCH;
        self.out[1..9].copy_from_slice(&since.to_le_bytes());
        self.out[9..Self::HEAD].copy_from_slice(&upto.to_le_bytes());
        self.out.into()
    }
}

/// The entries of a batch, whose positions grow, behind `since` and up to `upto`.
fn decode_entries(bytes: &Bytes, since: u64, upto: u64) -> Result<Vec<(u64, Bytes)>, BadMessage> {
    let (mut entries, mut at, mut last) = (Vec::new(), 0, since);
    while at < bytes.len() {
        let head: [u8; 12] =
            bytes.get(at..at + 12).and_then(|head| head.try_into().ok()).ok_or(BadMessage)?;
        let [p0, p1, p2, p3, p4, p5, p6, p7, l0, l1, l2, l3] = head;
        let position = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        at += head.len();
        let is_there = position > last && position <= upto && bytes.len() - at >= len;
        if !is_there {
            return Err(BadMessage);
        }
        entries.push((position, bytes.slice(at..at + len)));
        (at, last) = (at + len, position);
    }
    Ok(entries)
}

/// An entry that other sites may not have.
#[derive(Debug)]
pub(crate) struct KeptEntry {
    pub(crate) position: u64,
    pub(crate) entry: Bytes,
    /// When it came.
    pub(crate) since_us: u64,
    /// So many bytes had been kept by then, with it.
    end: u64,
    made: Made,
}

/// The updates in an entry, as far as that is known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// None.
    Nothing,
    /// All are of this site, and this is the zxid of the last.
    UpTo(i64),
    Unknown,
}

/// What has been committed here and other sites may not have.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    entries: VecDeque<KeptEntry>,
    bytes: usize,
    /// So many bytes have been kept since it began.
    end: u64,
    /// Up to here nothing is kept any more.
    gone: u64,
    /// The last update of each site in what is not kept any more since this is a site, if that is known.
    gone_seen: Option<BTreeMap<Source, i64>>,
    /// When other sites were sent some of it last, and when they may be sent what waits.
    shipped_us: u64,
    resumes_us: Option<u64>,
}

impl Kept {
    /// Whether what other sites lack has to wait, since they were sent something less than a pause ago.
    pub(crate) fn has_to_wait(&mut self, now_us: u64, pause_us: u64) -> bool {
        let resumes_us = self.shipped_us + pause_us;
        self.resumes_us = (now_us < resumes_us).then_some(resumes_us);
        self.resumes_us.is_some()
    }

    /// It is looked at anew whether anything waits: there may be nobody left to send it to.
    pub(crate) fn waits_no_more(&mut self) {
        self.resumes_us = None;
    }

    /// Other sites are sent something.
    pub(crate) fn shipped(&mut self, now_us: u64) {
        self.shipped_us = now_us;
    }

    /// Until when something waits, if it does.
    pub(crate) fn resumes_us(&self) -> Option<u64> {
        self.resumes_us
    }

    /// An entry is committed.
    pub(crate) fn push(&mut self, position: u64, entry: Bytes, made: Made, since_us: u64) {
        self.bytes += entry.len();
        self.end += entry.len() as u64;
        self.entries.push_back(KeptEntry { position, entry, since_us, end: self.end, made });
    }

    /// The state is that at a position, and came from elsewhere.
    pub(crate) fn restart(&mut self, position: u64) {
        *self = Self { gone: position, ..Self::default() };
    }

    /// This is a site since a position of its log.
    pub(crate) fn begin(&mut self, position: u64) {
        self.restart(position);
        self.gone_seen = Some(BTreeMap::new());
    }

    /// The last update of each source in what is not kept any more, if that is known.
    pub(crate) fn gone_seen(&self) -> Option<&BTreeMap<Source, i64>> {
        self.gone_seen.as_ref()
    }

    /// Everything up to a position is not needed any more beyond `bytes_least`, or there is more than `bytes_max`.
    pub(crate) fn trim(&mut self, upto: u64, bytes_least: usize, bytes_max: usize) {
        let is_over =
            |first: &KeptEntry, bytes| first.position <= upto && bytes > bytes_least || bytes > bytes_max;
        while let Some(first) = self.entries.front().filter(|first| is_over(first, self.bytes)) {
            self.bytes -= first.entry.len();
            self.gone = first.position;
            if let Some(seen) = &mut self.gone_seen {
                let mut sees = |source, zxid: i64| {
                    let last = seen.entry(source).or_default();
                    *last = zxid.max(*last);
                };
                match first.made {
                    Made::Nothing => {}
                    Made::UpTo(zxid) => sees(source_of_zxid(zxid), zxid),
                    Made::Unknown => made_in(&first.entry, &mut sees),
                }
            }
            self.entries.pop_front();
        }
    }

    /// Up to here nothing is kept.
    pub(crate) fn gone(&self) -> u64 {
        self.gone
    }

    /// The last one that was kept.
    pub(crate) fn last(&self) -> u64 {
        self.entries.back().map_or(self.gone, |last| last.position)
    }

    /// What is kept behind a position.
    pub(crate) fn behind(&self, position: u64) -> impl Iterator<Item = &KeptEntry> {
        self.entries.range(self.first_behind(position)..)
    }

    fn first_behind(&self, position: u64) -> usize {
        let count = self.entries.len();
        let is_known = |at: usize| self.entries.get(at).is_none_or(|kept| kept.position <= position);
        match count.checked_sub(2) {
            // Mostly all was told, or all but the last one.
            Some(before) if is_known(before) => before + 1 + usize::from(is_known(before + 1)),
            _ => self.entries.partition_point(|kept| kept.position <= position),
        }
    }

    /// How much is kept behind a position.
    pub(crate) fn unshipped(&self, position: u64) -> Unshipped {
        let first = self.first_behind(position);
        let before = first.checked_sub(1).and_then(|last| self.entries.get(last));
        let before = before.map_or(self.end - self.bytes as u64, |last| last.end);
        Unshipped {
            entries: (self.entries.len() - first) as u64,
            bytes: self.end - before,
            since_us: self.entries.get(first).map(|first| first.since_us),
            is_all: position >= self.gone,
        }
    }
}

/// A message that is not acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    /// It has what is behind this position and concerns the receiver,
    pub(crate) since: u64,
    /// up to this one.
    pub(crate) upto: u64,
    pub(crate) bytes: usize,
    pub(crate) entries: u64,
    /// When the oldest of them came, if there is one.
    pub(crate) since_us: Option<u64>,
}

/// What is on its way to another site.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Whether that site has said what it has, since it is connected.
    pub(crate) is_open: bool,
    pub(crate) acknowledged: u64,
    /// Up to here it was told what concerns it.
    pub(crate) sent: u64,
    /// Between there and here is nothing that does, in so many bytes.
    pub(crate) passed: u64,
    passed_bytes: usize,
    /// What comes next is being read from the disk.
    pub(crate) is_reading: bool,
    /// Where it is not known what of the log it has: what it has instead.
    lacks: Option<Lacks>,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
}

impl Outgoing {
    pub(crate) fn has_room(&self) -> bool {
        self.is_open && self.in_flight_bytes < WINDOW_BYTES
    }

    /// An entry is looked at. Returns whether the site has to be told now how far that has come: else it would ask for
    /// what is not kept any more, when it asks again.
    pub(crate) fn pass(&mut self, position: u64, bytes: usize) -> bool {
        self.passed = position;
        self.passed_bytes += bytes;
        self.passed_bytes >= PASSED_BYTES
    }

    pub(crate) fn sent(&mut self, message: InFlight) {
        (self.sent, self.passed, self.passed_bytes) = (message.upto, message.upto, 0);
        self.in_flight_bytes += message.bytes;
        self.in_flight.push_back(message);
    }

    /// Up to here it has all that concerns it.
    pub(crate) fn settled(&self) -> u64 {
        self.in_flight.front().map_or(self.passed, |first| first.since.max(self.acknowledged))
    }

    /// What it has not acknowledged. What was not looked at yet may concern it.
    pub(crate) fn unshipped(&self, kept: &Kept) -> Unshipped {
        let mut unshipped = kept.unshipped(self.passed);
        unshipped.entries += self.in_flight.iter().map(|message| message.entries).sum::<u64>();
        unshipped.bytes += self.in_flight_bytes as u64;
        let oldest = self.in_flight.iter().find_map(|message| message.since_us);
        unshipped.since_us = oldest.or(unshipped.since_us);
        unshipped
    }

    /// It has everything up to here, and wants what follows.
    pub(crate) fn begins(&mut self, position: u64) {
        *self = Self {
            is_open: true,
            acknowledged: position,
            sent: position,
            passed: position,
            ..Self::default()
        };
    }

    /// It has no position in this log, and wants what it lacks.
    pub(crate) fn begins_behind(&mut self, lacks: Lacks) {
        *self = Self { is_open: true, lacks: Some(lacks), ..Self::default() };
    }

    /// Whether it has to be told these items of an entry.
    pub(crate) fn wants(&mut self, position: u64, entry: &Bytes, items: &[u8]) -> bool {
        let Some(lacks) = &mut self.lacks else { return true };
        let is_lacked = lacks.looks_at(position, entry);
        Lacks::wants(is_lacked, items)
    }

    /// Whether it is told only what it lacks.
    pub(crate) fn is_lacking(&self) -> bool {
        self.lacks.is_some()
    }

    /// Whether it is looked for what it lacks, as far back as there is anything.
    pub(crate) fn is_looking(&self) -> bool {
        self.lacks.as_ref().is_some_and(|lacks| !lacks.is_whole())
    }

    /// Everything was looked at: from here on it is told like any other.
    pub(crate) fn has_looked(&mut self) {
        if self.lacks.as_ref().is_some_and(Lacks::is_whole) {
            self.lacks = None;
        }
    }

    /// Whether it cannot be told what it lacks, or, when all was looked at, not all of that.
    pub(crate) fn is_torn(&self, is_all: bool) -> bool {
        self.lacks.as_ref().is_some_and(|lacks| lacks.is_torn() || is_all && !lacks.is_whole())
    }

    pub(crate) fn acknowledged(&mut self, position: u64) {
        self.acknowledged = self.acknowledged.max(position);
        while let Some(message) = self.in_flight.pop_front_if(|message| message.upto <= position) {
            self.in_flight_bytes -= message.bytes;
        }
    }
}

/// What a leader has in hand of requests that sites forward, and of tokens: at the hub this is the paper's token broker.
/// All of it follows from what is replicated, and a new leader begins with [`Broker::default`] and what waits.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    /// To be looked at.
    ready: VecDeque<Ticket>,
    /// Something was proposed that will end their waiting.
    in_hand: BTreeSet<Ticket>,
    /// Of these, what is carried out here: what its session asks behind it may be, too, as the log keeps their order. And on
    /// which partition that is, if it is one.
    carried_out: BTreeMap<Ticket, Option<u8>>,
    /// Requests that are carried out by the very site that asks, and wait for nothing here any more.
    visits: BTreeSet<Ticket>,
    /// Requests that a site was to carry out and could not.
    declined: BTreeSet<Ticket>,
    /// Sessions that are to go to another site, when what they have asked here has its outcome.
    coming: BTreeMap<i64, Vec<Ticket>>,
    /// Requests that wait for tokens, by the path of each.
    blocked: BTreeMap<String, Vec<Ticket>>,
    /// Tokens that were recalled and have not come.
    recalled: BTreeSet<String>,
    /// Paths of which it is being said that their tokens are not here.
    declining: BTreeSet<String>,
    /// Requests that wait for a site which is not connected, and since when each does.
    awaiting: BTreeMap<SiteId, BTreeSet<Ticket>>,
    late: VecDeque<(u64, SiteId, Ticket)>,
}

impl Broker {
    /// Everything that waits is looked at once more; but for what is in hand.
    pub(crate) fn begin_again(&mut self) {
        let (in_hand, carried_out) =
            (core::mem::take(&mut self.in_hand), core::mem::take(&mut self.carried_out));
        *self = Self { in_hand, carried_out, ..Self::default() };
    }

    /// What was tried for it has come to nothing.
    pub(crate) fn is_not_carried_out(&mut self, ticket: Ticket) {
        self.in_hand.remove(&ticket);
    }

    pub(crate) fn is_ready(&mut self, ticket: Ticket) {
        self.ready.push_back(ticket);
    }

    pub(crate) fn next(&mut self) -> Option<Ticket> {
        while let Some(ticket) = self.ready.pop_front() {
            if !self.in_hand.contains(&ticket) {
                return Some(ticket);
            }
        }
        None
    }

    /// It is at the site that has asked, or no more.
    pub(crate) fn is_at_home(&mut self, ticket: Ticket, is_there: bool) {
        if is_there {
            self.visits.insert(ticket);
        } else {
            self.visits.remove(&ticket);
        }
    }

    /// Whether the site that has asked carries it out.
    pub(crate) fn has_gone_home(&self, ticket: Ticket) -> bool {
        self.visits.contains(&ticket)
    }

    /// Whether a site was to carry it out and could not.
    pub(crate) fn is_declined(&self, ticket: Ticket) -> bool {
        self.declined.contains(&ticket)
    }

    /// It has its outcome.
    pub(crate) fn has_ended(&mut self, ticket: Ticket) {
        self.declined.remove(&ticket);
    }

    /// It needs a site that is not connected.
    pub(crate) fn awaits(&mut self, ticket: Ticket, site: SiteId, now_us: u64) {
        if self.awaiting.entry(site).or_default().insert(ticket) {
            self.late.push_back((now_us, site, ticket));
        }
    }

    /// A site is connected.
    pub(crate) fn has_come(&mut self, site: SiteId) {
        self.ready.extend(self.awaiting.remove(&site).unwrap_or_default());
    }

    /// The next one that has waited since then for a site that has not come.
    pub(crate) fn next_late(&mut self, since_us: u64) -> Option<Ticket> {
        while let Some((_, site, ticket)) = self.late.pop_front_if(|(began_us, ..)| *began_us <= since_us) {
            if self.awaiting.get_mut(&site).is_some_and(|awaiting| awaiting.remove(&ticket)) {
                return Some(ticket);
            }
        }
        None
    }

    /// It asks for a session that is waited for here.
    pub(crate) fn comes_later(&mut self, session: i64, ticket: Ticket) {
        self.coming.entry(session).or_default().push(ticket);
    }

    /// Nothing waits any more that a session has asked here.
    pub(crate) fn session_is_quiet(&mut self, session: i64) {
        self.ready.extend(self.coming.remove(&session).unwrap_or_default());
    }

    /// Something was proposed for it.
    pub(crate) fn take_in_hand(&mut self, ticket: Ticket) {
        self.in_hand.insert(ticket);
    }

    /// The same, and that is what becomes of it, on this partition, or on several.
    pub(crate) fn carries_out(&mut self, ticket: Ticket, partition: Option<u8>) {
        self.take_in_hand(ticket);
        self.carried_out.insert(ticket, partition);
    }

    /// Whether what becomes of it is proposed.
    pub(crate) fn is_carried_out(&self, ticket: Ticket) -> bool {
        self.carried_out.contains_key(&ticket)
    }

    /// Whether that is so, and not on this one partition.
    pub(crate) fn is_carried_out_elsewhere(&self, ticket: Ticket, partition: Option<u8>) -> bool {
        self.carried_out.get(&ticket).is_some_and(|at| at.is_none() || *at != partition)
    }

    /// What was proposed for it is applied; maybe that who was to carry it out could not.
    pub(crate) fn is_settled(&mut self, ticket: Ticket, is_declined: bool) {
        self.in_hand.remove(&ticket);
        self.carried_out.remove(&ticket);
        if is_declined {
            self.declined.insert(ticket);
        }
    }

    /// It waits for the token of what is at a path. Returns whether that has to be recalled yet.
    pub(crate) fn block(&mut self, ticket: Ticket, path: &str) -> bool {
        let blocked = self.blocked.entry(path.into()).or_default();
        if blocked.last() != Some(&ticket) {
            blocked.push(ticket);
        }
        self.recalled.insert(path.into())
    }

    /// What waits for the token of what is at a path waits for that no more.
    pub(crate) fn take_blocked(&mut self, path: &str) -> Vec<Ticket> {
        self.blocked.remove(path).unwrap_or_default()
    }

    /// A token is recalled that no request waits for. False if it has been already.
    pub(crate) fn recalls(&mut self, path: &str) -> bool {
        self.recalled.insert(path.into())
    }

    /// Whether a token is on its way here, by itself or with what it lies in.
    pub(crate) fn is_recalled(&self, path: &str) -> bool {
        !self.recalled.is_empty() && stoa_sites::upward(path).any(|top| self.recalled.contains(top))
    }

    /// The token of what is at a path, and below, may be here, or is known to be elsewhere.
    pub(crate) fn wake(&mut self, path: &str) {
        let is_below = |other: &String| is_at_or_below(other, path);
        // All that begins with the path is in one run, but some of it is beside what is below it ("/a-b" of "/a").
        let from = String::from(path);
        let begins = |other: &&String| path == "/" || other.starts_with(path);
        let woken: Vec<String> =
            self.blocked.range(from.clone()..).map(|(path, _)| path).take_while(begins).cloned().collect();
        for path in woken.into_iter().filter(is_below) {
            self.ready.extend(self.blocked.remove(&path).unwrap_or_default());
        }
        let done: Vec<String> = self.recalled.range(from..).take_while(begins).cloned().collect();
        for path in done.into_iter().filter(is_below) {
            self.recalled.remove(&path);
        }
    }

    /// That there is no token of a path to give back is about to be said. False if it is being said already.
    pub(crate) fn declines(&mut self, path: &str) -> bool {
        self.declining.insert(path.into())
    }

    /// It is said.
    pub(crate) fn has_declined(&mut self, path: &str) {
        self.declining.remove(path);
    }
}

/// What other sites want that is not at hand.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// At the hub: sites that wait for a snapshot to join with, and those for which it is there, with its position.
    pub(crate) joining: BTreeSet<SiteId>,
    pub(crate) states: VecDeque<(SiteId, u64)>,
    /// Sites that lack what is not kept any more.
    pub(crate) backlogs: VecDeque<BacklogWanted>,
    /// Sites that cannot be told what they lack.
    pub(crate) torn: VecDeque<SiteId>,
}

/// What a leader has proposed of reigns, and is not applied yet.
#[derive(Debug, Default)]
pub(crate) struct ProposedReigns {
    /// The last reign that it has proposed to follow, and that it has proposed to begin.
    pub(crate) followed: u64,
    pub(crate) begun: u64,
    /// Whom it gives up with each of those that it has proposed to follow, and with the reign that there is.
    pub(crate) without: BTreeMap<u64, SiteSet>,
    pub(crate) lost: SiteSet,
    /// Of sites that were given up and want the state, those that are to be there again.
    pub(crate) returning: SiteSet,
    /// At a site that is to join: it has proposed to be one of them. Another state behind that in the log would take the
    /// place of what has been done since.
    pub(crate) joins: bool,
}

impl ProposedReigns {
    /// Whether a site is about to be given up. What comes from it and is proposed from here on would not be taken in, and
    /// yet be in the log from which others are told.
    pub(crate) fn gives_up(&self, site: SiteId) -> bool {
        self.lost.contains(site) || self.without.values().any(|lost| lost.contains(site))
    }
}

/// A token that the hub wants back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedBack {
    /// So many operations over several partitions come first, see [`crate::coordination::Operations::count`].
    pub(crate) behind: u64,
    /// Whether the partition that has it was asked for it.
    pub(crate) is_asked: bool,
}

/// What a partition of a site that has several knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    /// What other partitions have said, and is looked at when this one may prepare something in that term.
    pub(crate) news: VecDeque<(u8, Said)>,
    /// Until when the first partition has said that this server may do what is the hub's to do, and whether that is over
    /// for long.
    pub(crate) lease: (u64, bool),
    /// At the first partition: what the others were told of that.
    pub(crate) told_lease: Option<(u64, bool)>,
    /// Where sessions are at home when all is applied that is being imported.
    pub(crate) homes: BTreeMap<i64, SiteId>,
    /// The largest zxid of what is imported, or is being.
    pub(crate) newest_imported: i64,
    /// At the hub's first partition: znodes that clients of others have used there.
    pub(crate) used: VecDeque<(BTreeSet<String>, SiteId, TicketPlan)>,
    /// At the first partition: how much of this site's log another site has, and where partitions stand with what it may
    /// not have.
    pub(crate) shared: Shared,
    pub(crate) slices: VecDeque<(u64, Vec<(u8, u64)>)>,
    /// At the first partition: what the others were told of what needs two sites. At another one, whether there are two.
    pub(crate) told_durability: Option<(Bytes, bool)>,
    pub(crate) has_second: bool,
    /// At the first partition: where the others stand with what has come out of the log here, applied there or not.
    pub(crate) logged: Timestamp,
    /// At the first partition: tokens that the hub wants back.
    pub(crate) asked_back: BTreeMap<String, AskedBack>,
    /// While something is applied: the request whose client another partition tells what it came to.
    pub(crate) tells: Option<u64>,
    /// What became of requests of clients here, of which this partition's timeline says nothing.
    pub(crate) outcomes: VecDeque<TicketOutcome>,
    /// What has come of the hub's state, before this partition's timeline says so.
    pub(crate) joined: VecDeque<Option<Tree>>,
}

/// Other sites, as this server knows them.
#[derive(Debug)]
pub(crate) struct SiteLinks {
    /// What clients here have asked that is carried out elsewhere, or later.
    pub(crate) requests: SiteRequests,
    pub(crate) kept: Kept,
    pub(crate) outgoing: BTreeMap<SiteId, Outgoing>,
    /// Of sites that are not connected any more: up to where they have all that concerns them.
    pub(crate) settled: BTreeMap<SiteId, u64>,
    /// Up to where the log of each other site is in entries of this leader.
    pub(crate) importing: BTreeMap<SiteId, u64>,
    /// What each other site has been told that is here.
    pub(crate) told: BTreeMap<SiteId, u64>,
    pub(crate) broker: Broker,
    /// What is for other sites.
    pub(crate) outbox: VecDeque<(SiteId, Bytes)>,
    /// What sites want besides.
    pub(crate) wanted: Wanted,
    /// What this leader has proposed of reigns.
    pub(crate) proposed: ProposedReigns,
    /// Whether what is being applied has come from another site.
    pub(crate) is_importing: bool,
    /// Where this site has several partitions: what passes between them.
    pub(crate) divided: Divided,
    /// At the hub: where tokens are to be.
    pub(crate) policy: TokenPolicy,
    pub(crate) counts: SiteCounts,
    /// Who may go on as the hub, or take its place.
    pub(crate) lease: Lease,
}

impl SiteLinks {
    /// At the start, with what other sites may lack of what is applied up to a position.
    pub(crate) fn new(applied: u64, for_sites: Vec<(u64, Bytes)>, now_us: u64) -> Self {
        let mut links = Self {
            requests: SiteRequests::default(),
            kept: Kept::default(),
            outgoing: BTreeMap::new(),
            settled: BTreeMap::new(),
            importing: BTreeMap::new(),
            told: BTreeMap::new(),
            broker: Broker::default(),
            outbox: VecDeque::new(),
            wanted: Wanted::default(),
            proposed: ProposedReigns::default(),
            is_importing: false,
            divided: Divided::default(),
            policy: TokenPolicy::default(),
            counts: SiteCounts::default(),
            lease: Lease::new(now_us),
        };
        links.kept.restart(for_sites.first().map_or(applied, |(first, _)| first - 1));
        for_sites
            .into_iter()
            .for_each(|(position, entry)| links.kept.push(position, entry, Made::Unknown, now_us));
        links
    }

    /// The connection with a site, if there is one, is there no more.
    pub(crate) fn lose(&mut self, site: SiteId) {
        if let Some(lost) = self.outgoing.remove(&site).filter(|lost| lost.is_open) {
            self.settled.insert(site, lost.settled());
        }
    }

    /// Up to where all have what concerns them that are connected, or were before.
    pub(crate) fn needed(&self) -> u64 {
        let connected = self.outgoing.values().map(|link| link.acknowledged).min();
        let is_away = |site: &SiteId| !self.outgoing.contains_key(site);
        let away = self.settled.iter().filter(|(site, _)| is_away(site)).map(|(_, settled)| *settled).min();
        connected.into_iter().chain(away).min().unwrap_or(0)
    }

    /// Whether a site's leader is connected, and has said what it has.
    pub(crate) fn is_open(&self, site: SiteId) -> bool {
        self.outgoing.get(&site).is_some_and(|outgoing| outgoing.is_open)
    }

    /// What a site has not acknowledged, as far as this leader knows.
    pub(crate) fn unshipped(&self, site: SiteId) -> Option<Unshipped> {
        let open = self.outgoing.get(&site).filter(|outgoing| outgoing.is_open);
        match open {
            Some(outgoing) => Some(outgoing.unshipped(&self.kept)),
            None => self.settled.get(&site).map(|position| self.kept.unshipped(*position)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_cuts_are_refused() {
        let entries = alloc::vec![(5, Bytes::from_static(b"items")), (9, Bytes::new())];
        let (have, again) = (SiteMessage::Have { position: 7 }, SiteMessage::Again { position: 7 });
        let missing = SiteMessage::Missing {
            has: alloc::vec![
                (Source::first_of(2), 7 << 20),
                (Source { site: 31, partition: 3 }, 9 << 11 | 3 << 5 | 31),
            ],
        };
        let (ask, promise) =
            (SiteMessage::Ask { term: 3, asked_us: 1 << 40 }, SiteMessage::Promise { term: 3, asked_us: 9 });
        for message in [
            SiteMessage::Batch { since: 4, upto: 9, entries },
            have,
            again,
            missing,
            ask,
            promise,
            SiteMessage::Join,
        ] {
            let bytes = message.encode();
            assert_eq!(SiteMessage::decode(&bytes), Ok(message));
            for len in 0..bytes.len() {
                // What is cut between two entries is a shorter batch.
                if let Ok(SiteMessage::Batch { entries, .. }) = SiteMessage::decode(&bytes.slice(..len)) {
                    assert!(entries.len() < 2);
                }
            }
        }
        let back = [(9, Bytes::new()), (5, Bytes::new())];
        for (since, upto, entries) in [(4, 9, back.to_vec()), (4, 8, back[..1].to_vec())] {
            let message = SiteMessage::Batch { since, upto, entries };
            assert_eq!(SiteMessage::decode(&message.encode()), Err(BadMessage));
        }
    }

    #[test]
    fn a_batch_is_written_where_it_stands() {
        let mut writer = BatchWriter::new();
        assert!(writer.is_empty());
        for (position, items, is_wanted) in
            [(5, "items", true), (6, "no", false), (7, "", true), (9, "x", true)]
        {
            writer.begin(position, 0).extend_from_slice(items.as_bytes());
            assert_eq!(writer.items(), items.as_bytes());
            assert_eq!(writer.end(is_wanted), is_wanted && !items.is_empty());
        }
        assert_eq!((writer.bytes(), writer.entries(), writer.is_empty()), (6, 2, false));
        let entries = alloc::vec![(5, Bytes::from_static(b"items")), (9, Bytes::from_static(b"x"))];
        assert_eq!(writer.finish(4, 9), SiteMessage::Batch { since: 4, upto: 9, entries }.encode());
        let nothing = SiteMessage::Batch { since: 4, upto: 9, entries: Vec::new() };
        assert_eq!(BatchWriter::new().finish(4, 9), nothing.encode());
    }

    #[test]
    fn what_was_made_is_known_of_entries_that_are_not_kept_any_more() {
        let mut kept = Kept::default();
        kept.begin(0);
        let (one, two) = (5 << 11 | 1, 7 << 11 | 1);
        for (position, made) in [(1, Made::UpTo(one)), (2, Made::Nothing), (3, Made::UpTo(two))] {
            kept.push(position, Bytes::from_static(b"entry"), made, 0);
        }
        let seen = |kept: &Kept| kept.gone_seen().and_then(|seen| seen.get(&Source::first_of(1)).copied());
        kept.trim(1, 0, usize::MAX);
        assert_eq!(seen(&kept), Some(one));
        kept.trim(3, 0, usize::MAX);
        assert_eq!((seen(&kept), kept.gone()), (Some(two), 3));
    }

    #[test]
    fn who_waits_for_what_is_below_is_woken() {
        let mut broker = Broker::default();
        let ticket = |number| Ticket { site: 2, number };
        for (number, path) in ["/a", "/a/b", "/a-b", "/b", "/"].into_iter().enumerate() {
            assert!(broker.block(ticket(number as u64), path));
            assert!(!broker.block(ticket(number as u64), path));
        }
        broker.wake("/a");
        let woken: Vec<_> = core::iter::from_fn(|| broker.next()).collect();
        assert_eq!(woken, [ticket(0), ticket(1)]);
        assert!(broker.block(ticket(0), "/a") && !broker.block(ticket(5), "/b"));
        broker.wake("/");
        let woken: Vec<_> = core::iter::from_fn(|| broker.next()).collect();
        assert_eq!(woken, [ticket(4), ticket(0), ticket(2), ticket(3), ticket(5)]);
    }

    #[test]
    fn what_is_kept_is_given_from_anywhere() {
        let mut kept = Kept::default();
        for position in 1..=5 {
            kept.push(position * 2, Bytes::from_static(b"12345678"), Made::Nothing, position * 100);
        }
        let behind = |kept: &Kept, at| kept.behind(at).map(|kept| kept.position).collect::<Vec<_>>();
        assert_eq!(behind(&kept, 0), [2, 4, 6, 8, 10]);
        assert_eq!(behind(&kept, 5), [6, 8, 10]);
        kept.trim(4, 24, usize::MAX);
        assert_eq!((behind(&kept, 0), kept.gone()), (alloc::vec![6, 8, 10], 4));
        kept.trim(0, 8, 8);
        assert_eq!((behind(&kept, 0), kept.gone()), (alloc::vec![10], 8));
    }

    #[test]
    fn what_comes_right_after_a_message_waits_for_the_pause() {
        let mut kept = Kept::default();
        assert!(!kept.has_to_wait(5000, 1000), "nothing was sent yet");
        kept.shipped(5000);
        assert!(kept.has_to_wait(5500, 1000));
        assert_eq!(kept.resumes_us(), Some(6000));
        kept.waits_no_more();
        assert_eq!(kept.resumes_us(), None);
        assert!(!kept.has_to_wait(6000, 1000) && !kept.has_to_wait(5500, 0));
        assert_eq!(kept.resumes_us(), None);
    }
}
