//! What an entry of the timeline holds: what became of requests, in order.
//!
//! ```text
//! entry   := item*
//! item    := origin, [11, pause u32], outcome       who asked waits so many microseconds before it asks again
//! origin  := 0                                      nobody asked
//!          | server u8, request u64                 of a server but 0
//!          | 0, 12, request u64                     of server 0: it may have this number since nobody has it
//!          | 0, 13, site u8, server u8, number u64  of a client of a site: see [`crate::sites`]
//! outcome := 0, length u32, update                   the update, as in stoa-tree
//!          | 1, code i32                             refused
//!          | 2, count u32, failed u32, code i32      a multi, refused because of one operation
//!          | 3, length u32, timestamp                nobody's: what the entry rests on
//!          | 4, count u8, (partition u8, term u64, position u64)*, length u32, reply, length u32, [record],
//!            length u32, [update]
//!                                                   a part of an operation that concerns several partitions
//!          | 5                                       it was sent to where its znode does not live any more
//!          | 7, length u32, record, length u32, [update]
//!                                                   a program has done it, or has reacted: see [`Ran`]
//!          | 8, code i32, length u32, text           refused, with the reason in words
//!          | 9                                       a read that was for a program, and is for none now
//!          | 10, length u32, timestamp               nobody's: what the items before it rest on; others may follow
//!                                                   these, and not what is behind it: see [`crate::step`]
//!          | 14, length u32, site item              of streams between sites: see [`crate::sites`]
//! ```
//! Integers are little-endian. A refusal is in the timeline so that it is true: it rests on updates
//! that must be committed, and on this server's having led when it was given; and so that the contact
//! server learns of every outcome in one way, in the order of its requests.

use crate::extensions::Ran;
use crate::sites::SiteItem;
use alloc::vec::Vec;
use core::fmt;
use stoa_timeline::{EntryId, Origin};
use stoa_tree::{CorruptUpdate, Refusal, Update};
use stoa_wire::Timestamp;
use stoa_wire::{ErrorCode, Reader};

const UPDATE: u8 = 0;
const REFUSED: u8 = 1;
const REFUSED_MULTI: u8 = 2;
const SEEN: u8 = 3;
const PART: u8 = 4;
const ELSEWHERE: u8 = 5;
const RAN: u8 = 7;
const FAILED: u8 = 8;
const UNTAKEN: u8 = 9;
const STEP: u8 = 10;
const PAUSE: u8 = 11;
/// Stands where the kind of an outcome would, so that what nobody asked for is as short as it can be.
const OF_SERVER_0: u8 = 12;
const OF_SITE: u8 = 13;
const SITE: u8 = 14;

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// Whose it was; `None` when a server decided it by itself.
    pub origin: Option<Origin>,
    /// For so many microseconds who asked is not listened to, because of what a program took for it.
    pub pause_us: u32,
    /// What became of it.
    pub outcome: Outcome<'a>,
}

/// A request's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// This changes the state.
    Update(Update<'a>),
    /// It changes nothing.
    Refused(Refusal),
    /// What the entry rests on, on all partitions.
    Seen(Seen<'a>),
    /// The same, of the items before it alone, which others may follow: see [`crate::step`].
    Step(Seen<'a>),
    /// It concerns several partitions. Its parts are in one entry of the log that all share.
    Part(Part<'a>),
    /// It has to be asked again, of where its znode lives now.
    Elsewhere,
    /// A program has carried it out, or has reacted to it.
    Ran(Ran<'a>),
    /// It changes nothing, and this is why, in words.
    Failed(ErrorCode, &'a str),
    /// No program carries out this read (any more): its contact server answers it.
    Untaken,
    /// Something of the streams between sites.
    Site(SiteItem<'a>),
}

/// Encoded places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Places<'a>(&'a [u8]);

impl Places<'_> {
    /// Each of them.
    fn iter(&self) -> impl Iterator<Item = EntryId> {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        self.0.chunks_exact(PLACE_BYTES).map(move |place| EntryId {
            partition: place[0],
            term: number(&place[1..9]),
            position: number(&place[9..]),
        })
    }
}

/// A partition's part of an operation that concerns several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    places: Places<'a>,
    /// The body of the client's reply.
    pub reply: &'a [u8],
    /// What programs say that have reacted to it: see [`Ran`].
    pub record: &'a [u8],
    /// What changes here, if anything does.
    pub update: Option<Update<'a>>,
}

const PLACE_BYTES: usize = 17;

impl Part<'_> {
    /// Where all its parts are.
    pub fn places(&self) -> impl Iterator<Item = EntryId> {
        self.places.iter()
    }
}

/// An encoded timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<'a>(&'a [u8]);

impl Seen<'_> {
    /// The timestamp.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        Timestamp::decode(&mut Reader::new(self.0)).ok()
    }

    /// Takes it into what somebody else rests on; `None` when it cannot be read.
    #[must_use]
    pub fn merge_into(&self, stamp: &mut Timestamp) -> Option<()> {
        stamp.merge_encoded(&mut Reader::new(self.0)).ok()
    }
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Update(update) => update.describe().fmt(f)?,
            Outcome::Refused(refusal) => write!(f, "refused: {refusal}")?,
            Outcome::Elsewhere => f.write_str("to be asked elsewhere")?,
            Outcome::Failed(code, text) => write!(f, "refused: {code}: {text}")?,
            Outcome::Untaken => f.write_str("for no program")?,
            Outcome::Site(item) => item.fmt(f)?,
            Outcome::Ran(ran) => match &ran.update {
                Some(update) => write!(f, "by programs: {}", update.describe())?,
                None => f.write_str("by programs: nothing")?,
            },
            Outcome::Seen(seen) => write!(f, "after {:?}", seen.timestamp())?,
            Outcome::Step(seen) => write!(f, "a step, after {:?}", seen.timestamp())?,
            Outcome::Part(part) => {
                write!(f, "part of an operation on {} partitions", part.places().count())?;
                if let Some(update) = &part.update {
                    write!(f, ": {}", update.describe())?;
                }
            }
        }
        match self.origin {
            Some(Origin { server, request, site: 0 }) => {
                write!(f, " for server {server} request {request:#x}")
            }
            Some(Origin { request, site, .. }) => write!(f, " for site {site} request {request}"),
            None => Ok(()),
        }
    }
}

/// Begins an item; an update follows.
pub(crate) fn begin_update(entry: &mut Vec<u8>, origin: Option<Origin>) {
    put_origin(entry, origin);
    entry.push(UPDATE);
}

/// Where the update stands of the item that begins at `start`, if it is an update and nothing else.
pub(crate) fn update_at(entry: &[u8], start: usize) -> Option<usize> {
    let kind = start + origin_len(entry.get(start..)?)?;
    (*entry.get(kind)? == UPDATE).then_some(kind + 1)
}

pub(crate) fn put_refusal(entry: &mut Vec<u8>, origin: Origin, refusal: Refusal) {
    put_origin(entry, Some(origin));
    let code = match refusal {
        Refusal::Error(code) => {
            entry.push(REFUSED);
            code
        }
        Refusal::Multi { count, failed, code } => {
            entry.push(REFUSED_MULTI);
            for number in [count, failed] {
                let number = u32::try_from(number).expect("a multi has fewer operations than bytes");
                entry.extend_from_slice(&number.to_le_bytes());
            }
            code
        }
    };
    entry.extend_from_slice(&(code as i32).to_le_bytes());
}

/// A request that was routed by an older table of what lives where.
pub(crate) fn put_elsewhere(entry: &mut Vec<u8>, origin: Origin) {
    put_origin(entry, Some(origin));
    entry.push(ELSEWHERE);
}

/// Begins what programs did; the update follows, or 0 as its length.
pub(crate) fn begin_ran(
    entry: &mut Vec<u8>,
    origin: Option<Origin>,
    pause_us: u32,
    record: impl FnOnce(&mut Vec<u8>),
) {
    put_origin(entry, origin);
    put_pause(entry, pause_us);
    entry.push(RAN);
    put_with_len(entry, record);
}

/// A refusal, with the reason in words.
pub(crate) fn put_failure(entry: &mut Vec<u8>, origin: Origin, pause_us: u32, code: ErrorCode, text: &str) {
    put_origin(entry, Some(origin));
    put_pause(entry, pause_us);
    entry.push(FAILED);
    entry.extend_from_slice(&(code as i32).to_le_bytes());
    put_with_len(entry, |entry| entry.extend_from_slice(text.as_bytes()));
}

/// How long who asked has to wait, if it has to.
fn put_pause(entry: &mut Vec<u8>, pause_us: u32) {
    if pause_us > 0 {
        entry.push(PAUSE);
        entry.extend_from_slice(&pause_us.to_le_bytes());
    }
}

/// A read that no program carries out.
pub(crate) fn put_untaken(entry: &mut Vec<u8>, origin: Origin) {
    put_origin(entry, Some(origin));
    entry.push(UNTAKEN);
}

/// Bytes behind their length.
fn put_with_len(entry: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = entry.len();
    entry.extend_from_slice(&[0; 4]);
    write(entry);
    let len =
        u32::try_from(entry.len() - start - 4).expect("what is in one entry is bounded by the requests");
    entry[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// What the entry rests on.
pub(crate) fn put_seen(entry: &mut Vec<u8>, seen: &Timestamp) {
    put_origin(entry, None);
    entry.push(SEEN);
    put_with_len(entry, |entry| seen.encode(entry));
}

/// Says that clients may have been told this zxid before what follows, by another partition.
pub fn put_told(items: &mut Vec<u8>, partitions: u8, zxid: i64) {
    let mut seen = Timestamp::new(partitions);
    seen.raise_zxid(zxid);
    put_seen(items, &seen);
}

/// Ends a step, which rests on that.
pub(crate) fn put_step(entry: &mut Vec<u8>, seen: &Timestamp) {
    put_origin(entry, None);
    entry.push(STEP);
    put_with_len(entry, |entry| seen.encode(entry));
}

/// Begins a part; the update follows, or 0 as its length.
pub(crate) fn begin_part(
    entry: &mut Vec<u8>,
    origin: Option<Origin>,
    places: &[EntryId],
    reply: &[u8],
    record: impl FnOnce(&mut Vec<u8>),
) {
    put_origin(entry, origin);
    entry.push(PART);
    put_places(entry, places);
    put_with_len(entry, |entry| entry.extend_from_slice(reply));
    put_with_len(entry, record);
}

fn put_places(entry: &mut Vec<u8>, places: &[EntryId]) {
    entry.push(u8::try_from(places.len()).expect("there are few partitions"));
    for EntryId { partition, term, position } in places {
        entry.push(*partition);
        entry.extend_from_slice(&term.to_le_bytes());
        entry.extend_from_slice(&position.to_le_bytes());
    }
}

fn put_origin(entry: &mut Vec<u8>, origin: Option<Origin>) {
    let Some(Origin { server, request, site }) = origin else {
        entry.push(0);
        return;
    };
    if site != 0 {
        entry.extend_from_slice(&[0, OF_SITE, site]);
    }
    entry.push(server);
    if server == 0 && site == 0 {
        entry.push(OF_SERVER_0);
    }
    entry.extend_from_slice(&request.to_le_bytes());
}

/// Something of the streams between sites.
pub fn put_site_item(entry: &mut Vec<u8>, origin: Option<Origin>, item: &SiteItem<'_>) {
    put_origin(entry, origin);
    entry.push(SITE);
    put_with_len(entry, |entry| item.encode(entry));
}

/// An item as it was written, but asked by somebody else, or by nobody.
pub(crate) fn put_item_of(entry: &mut Vec<u8>, origin: Option<Origin>, item: &[u8]) {
    put_origin(entry, origin);
    entry.extend_from_slice(&item[origin_len(item).unwrap_or(item.len())..]);
}

/// The rest of an item, which nobody asked for.
#[inline]
pub(crate) fn put_item_of_nobody(entry: &mut Vec<u8>, rest: &[u8]) {
    entry.push(0);
    entry.extend_from_slice(rest);
}

/// How many bytes say who asked, where an item begins.
fn origin_len(item: &[u8]) -> Option<usize> {
    Some(match item {
        [0, OF_SERVER_0, ..] => 2 + size_of::<u64>(),
        [0, OF_SITE, ..] => 4 + size_of::<u64>(),
        [0, ..] => 1,
        [_, ..] => 1 + size_of::<u64>(),
        [] => return None,
    })
}

/// Where the parts are of the operation that an entry is a part of, which stands alone in it; none when it
/// is no part.
#[must_use]
pub fn part_places(entry: &[u8]) -> Vec<EntryId> {
    if first_kind(entry) != Some(PART) {
        return Vec::new();
    }
    match Items::new(entry).next() {
        Some(Ok(Item { outcome: Outcome::Part(part), .. })) => part.places().collect(),
        _ => Vec::new(),
    }
}

fn first_kind(entry: &[u8]) -> Option<u8> {
    entry.get(origin_len(entry)?).copied()
}

const CUT: CorruptUpdate = CorruptUpdate { zxid: 0, reason: "an item of its entry is not well formed" };

/// The items of an entry.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    rest: &'a [u8],
    /// They have come from another site.
    are_imported: bool,
}

impl<'a> Items<'a> {
    /// Starts at the first one.
    #[must_use]
    #[inline]
    pub fn new(entry: &'a [u8]) -> Self {
        Self { rest: entry, are_imported: false }
    }

    /// The same of what has come from another site, in which nothing may be that has come from a third one by itself.
    #[must_use]
    pub fn imported(items: &'a [u8]) -> Self {
        Self { rest: items, are_imported: true }
    }

    /// What follows the items that were taken.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next item if it is an update and nothing else, and no client of a site has asked for it: mostly that is
    /// what there is. Returns what of it stands behind who asked, and the update.
    #[inline]
    pub(crate) fn next_plain(&mut self) -> Option<(&'a [u8], Update<'a>)> {
        let item = match *self.rest {
            [0, UPDATE, ..] => &self.rest[1..],
            [0, ..] => return None,
            _ => self.rest.get(1 + size_of::<u64>()..)?,
        };
        let (head, tail) = item.split_first_chunk::<5>()?;
        let [UPDATE, l0, l1, l2, l3] = *head else { return None };
        let (update, rest) = tail.split_at_checked(u32::from_le_bytes([l0, l1, l2, l3]) as usize)?;
        let update = Update::decode(update).ok()?;
        self.rest = rest;
        Some((&item[..item.len() - rest.len()], update))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()? as usize;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn code(&mut self) -> Option<ErrorCode> {
        ErrorCode::from_i32(i32::from_le_bytes(self.take()?))
    }

    fn places(&mut self) -> Option<Places<'a>> {
        let [count] = self.take()?;
        let (places, rest) = self.rest.split_at_checked(usize::from(count) * PLACE_BYTES)?;
        self.rest = rest;
        Some(Places(places))
    }

    fn item(&mut self) -> Result<Item<'a>, CorruptUpdate> {
        let [server] = self.take().ok_or(CUT)?;
        let origin = self.origin(server).ok_or(CUT)?;
        let [mut kind] = self.take().ok_or(CUT)?;
        let mut pause_us = 0;
        if kind == PAUSE {
            pause_us = self.number().ok_or(CUT)?;
            [kind] = self.take().ok_or(CUT)?;
        }
        Ok(Item { origin, pause_us, outcome: self.outcome(kind)? })
    }

    fn origin(&mut self, server: u8) -> Option<Option<Origin>> {
        let (server, site) = match (server, self.rest.first()) {
            (0, Some(&OF_SERVER_0)) => {
                self.take::<1>()?;
                (0, 0)
            }
            (0, Some(&OF_SITE)) => {
                let [_, site, server] = self.take()?;
                (server, site)
            }
            (0, _) => return Some(None),
            _ => (server, 0),
        };
        Some(Some(Origin { server, request: u64::from_le_bytes(self.take()?), site }))
    }

    fn outcome(&mut self, kind: u8) -> Result<Outcome<'a>, CorruptUpdate> {
        Ok(match kind {
            SEEN | STEP | PART if self.are_imported => return Err(CUT),
            UPDATE => Outcome::Update(Update::decode(self.bytes().ok_or(CUT)?)?),
            PART => {
                let places = self.places().ok_or(CUT)?;
                let (reply, record) = (self.bytes().ok_or(CUT)?, self.bytes().ok_or(CUT)?);
                let update = self.bytes().ok_or(CUT)?;
                let update = (!update.is_empty()).then(|| Update::decode(update)).transpose()?;
                if !record.is_empty() && Ran::decode(record, None).is_none() {
                    return Err(CUT);
                }
                Outcome::Part(Part { places, reply, record, update })
            }
            ELSEWHERE => Outcome::Elsewhere,
            SITE => {
                let item = SiteItem::decode(self.bytes().ok_or(CUT)?, self.are_imported);
                Outcome::Site(item.ok_or(CUT)?)
            }
            RAN => {
                let (record, update) = (self.bytes().ok_or(CUT)?, self.bytes().ok_or(CUT)?);
                let update = (!update.is_empty()).then(|| Update::decode(update)).transpose()?;
                Outcome::Ran(Ran::decode(record, update).ok_or(CUT)?)
            }
            FAILED => {
                let (code, text) = (self.code().ok_or(CUT)?, self.bytes().ok_or(CUT)?);
                Outcome::Failed(code, core::str::from_utf8(text).map_err(|_| CUT)?)
            }
            UNTAKEN => Outcome::Untaken,
            SEEN => Outcome::Seen(Seen(self.bytes().ok_or(CUT)?)),
            STEP => Outcome::Step(Seen(self.bytes().ok_or(CUT)?)),
            REFUSED => Outcome::Refused(Refusal::Error(self.code().ok_or(CUT)?)),
            REFUSED_MULTI => {
                let (count, failed) =
                    (self.number().ok_or(CUT)? as usize, self.number().ok_or(CUT)? as usize);
                Outcome::Refused(Refusal::Multi { count, failed, code: self.code().ok_or(CUT)? })
            }
            _ => return Err(CUT),
        })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, CorruptUpdate>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.item();
        if item.is_err() {
            // Nothing after it can be found any more.
            self.rest = &[];
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_tree::{Contact, Options, Stamp, Tree};

    #[test]
    fn each_server_is_told_from_the_others_and_from_nobody() {
        let mut lens = [0; 3];
        for (server, len) in [Some(0), Some(255), None].into_iter().zip(&mut lens) {
            // Its first byte is the kind of an outcome, where nobody has asked.
            let origin = server.map(|server| Origin { server, request: 0x0102_0304_0506_0700, site: 0 });
            let mut entry = vec![9; 3];
            begin_update(&mut entry, origin);
            assert_eq!(update_at(&entry, 3), Some(entry.len()));
            entry.truncate(3);
            begin_part(&mut entry, origin, &[], &[], |_| ());
            entry.extend_from_slice(&[0; 4]);
            assert_eq!(first_kind(&entry[3..]), Some(PART));
            let item = Items::new(&entry[3..]).next().unwrap().unwrap();
            assert_eq!(item.origin, origin);
            *len = entry.len();
        }
        assert_eq!((lens[0] - lens[2], lens[1] - lens[2]), (9, 8));
        assert!(Items::new(&[0, OF_SERVER_0, 1, 2]).next().unwrap().is_err());
    }

    #[test]
    fn what_is_written_is_read_and_cuts_are_noticed() {
        let origin = Origin { server: 3, request: 1 << 60, site: 0 };
        let mut entry = Vec::new();
        begin_update(&mut entry, Some(origin));
        let stamp = Stamp { zxid: 1, time_ms: 5 };
        Tree::new(Options::default())
            .prepare_create_session(7, 1000, [1; 16], Contact::default(), stamp, &mut entry)
            .unwrap();
        let updates = entry.len();
        let multi = Refusal::Multi { count: 4, failed: 2, code: ErrorCode::NoNode };
        put_refusal(&mut entry, origin, multi);
        put_refusal(&mut entry, origin, Refusal::Error(ErrorCode::BadVersion));
        put_failure(&mut entry, origin, 0, ErrorCode::SystemError, "why");
        put_failure(&mut entry, origin, 70_000, ErrorCode::SystemError, "why");
        let items: Vec<_> = Items::new(&entry).map(Result::unwrap).collect();
        assert_eq!(items.iter().map(|item| item.pause_us).collect::<Vec<_>>(), [0, 0, 0, 0, 70_000]);
        assert!(items.iter().all(|item| item.origin == Some(origin)));
        assert!(matches!(items[0].outcome, Outcome::Update(update) if update.session == 7));
        assert_eq!(items[1].outcome, Outcome::Refused(multi));
        for len in 1..entry.len() {
            let whole = Items::new(&entry[..len]).all(|item| item.is_ok());
            let ends = [0, 22, 36, 57].map(|len| updates + len);
            assert_eq!(whole, ends.contains(&len), "cut at {len}");
        }
    }
}
