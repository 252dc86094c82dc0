//! An entry of the log that the partitions of a site share, as if there were one partition: so other sites are told of it.
//!
//! A batch of that log has what all partitions have handed over, each in its order. Parts of one operation stand in one
//! batch; what a partition has before its part comes before the operation, and what it has behind it comes behind. No
//! other entry of a batch follows one of another partition: where there are sites nothing is pipelined over partitions.
//! What is there because the site is divided falls away.
//!
//! The first partition notes what is said of streams for all of them. Its own it notes when that is applied, as where
//! there is one partition; the others' when all of the batch is.

use crate::entry::{Item, Items, Outcome, begin_ran, begin_update, put_item_of};
use crate::extensions::{Answer, Ran, Record};
use crate::sites::{SiteItem, ticket_of};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_timeline::{EntryId, Origin, Slices};
use stoa_tree::{CorruptUpdate, Places, Update, whole_update};

/// A batch as one entry.
#[derive(Debug, Default, Clone)]
pub struct WholeEntry {
    /// All that other sites may have to know.
    pub entry: Bytes,
    /// Of that, what partitions other than the first have said of streams and tokens.
    pub of_others: Vec<u8>,
}

const CORRUPT: CorruptUpdate = CorruptUpdate { zxid: 0, reason: "a batch of its log is not well formed" };

/// What a partition has next.
enum Unit<'a> {
    /// By itself, with its bytes.
    Item(Item<'a>, &'a [u8]),
    /// A part of an operation over the partitions of these places.
    Part(Item<'a>, Vec<EntryId>),
}

/// Makes one entry of a batch; `of` says where everything lives.
///
/// # Errors
/// When it is damaged.
pub fn whole_entry(
    batch: &Bytes,
    partitions: u8,
    of: &dyn Fn(&str) -> u8,
) -> Result<WholeEntry, CorruptUpdate> {
    let mut payloads: Vec<Vec<Bytes>> = (0..partitions).map(|_| Vec::new()).collect();
    for slice in Slices::new(batch.clone()) {
        let (partition, _, payload) = slice.map_err(|_| CORRUPT)?;
        payloads.get_mut(usize::from(partition)).ok_or(CORRUPT)?.push(payload);
    }
    let mut queues = Vec::with_capacity(payloads.len());
    for payloads in &payloads {
        queues.push(units(payloads)?);
    }
    let places = Places { own: 0, partitions, of, is_split: &|_| false };
    let mut whole = Writer { places, out: Vec::new(), others: Vec::new() };
    loop {
        for (partition, queue) in (0..).zip(&mut queues) {
            while let Some(Unit::Item(item, bytes)) =
                queue.pop_front_if(|next| matches!(next, Unit::Item(..)))
            {
                whole.item(partition, &item, bytes)?;
            }
        }
        let Some(places) = next_operation(&queues) else { break };
        let mut parts = Vec::new();
        for place in &places {
            let queue = queues.get_mut(usize::from(place.partition)).ok_or(CORRUPT)?;
            match queue.pop_front() {
                Some(Unit::Part(item, of)) if of == places => parts.push((place.partition, item)),
                _ => return Err(CORRUPT),
            }
        }
        whole.operation(&parts)?;
    }
    Ok(WholeEntry { entry: whole.out.into(), of_others: whole.others })
}

fn units(payloads: &[Bytes]) -> Result<VecDeque<Unit<'_>>, CorruptUpdate> {
    let mut units = VecDeque::new();
    for payload in payloads {
        let mut items = Items::new(payload);
        loop {
            let before = items.rest();
            let Some(item) = items.next() else { break };
            let item = item?;
            let bytes = &before[..before.len() - items.rest().len()];
            units.push_back(match item.outcome {
                Outcome::Part(part) => Unit::Part(item, part.places().collect()),
                _ => Unit::Item(item, bytes),
            });
        }
    }
    Ok(units)
}

/// The places of an operation all of whose partitions have come to it.
fn next_operation(queues: &[VecDeque<Unit<'_>>]) -> Option<Vec<EntryId>> {
    let stands_at = |place: &EntryId, places: &[EntryId]| {
        let next = queues.get(usize::from(place.partition)).and_then(VecDeque::front);
        matches!(next, Some(Unit::Part(_, of)) if of == places)
    };
    queues.iter().find_map(|queue| match queue.front()? {
        Unit::Part(_, places) if places.iter().all(|place| stands_at(place, places)) => Some(places.clone()),
        _ => None,
    })
}

struct Writer<'a> {
    places: Places<'a>,
    out: Vec<u8>,
    others: Vec<u8>,
}

impl Writer<'_> {
    fn item(&mut self, partition: u8, item: &Item<'_>, bytes: &[u8]) -> Result<(), CorruptUpdate> {
        let ticket = item.origin.filter(|origin| origin.site != 0);
        let start = self.out.len();
        match item.outcome {
            Outcome::Seen(_) | Outcome::Step(_) | Outcome::Elsewhere | Outcome::Part(_) => return Ok(()),
            Outcome::Site(SiteItem::Share { .. } | SiteItem::Owner { .. }) => return Ok(()),
            // What each partition notes the first one does, too.
            Outcome::Site(ref it) if partition != 0 && !matches!(it, SiteItem::Forwarded { .. }) => {
                return Ok(());
            }
            Outcome::Site(_) => put_item_of(&mut self.out, item.origin, bytes),
            Outcome::Refused(_) | Outcome::Failed(..) | Outcome::Untaken => {
                if ticket.is_none() {
                    return Ok(());
                }
                put_item_of(&mut self.out, ticket, bytes);
            }
            Outcome::Update(update) if update.is_divided() => {
                begin_update(&mut self.out, ticket);
                if !whole_update(&[(partition, update)], &self.places, &mut self.out)? {
                    self.out.truncate(start);
                }
            }
            Outcome::Ran(ran) if ran.update.is_some_and(|update| update.is_divided()) => {
                let record = ran.record();
                let update: Vec<_> = ran.update.map(|update| (partition, update)).into_iter().collect();
                self.ran(ticket, &record, &update)?;
            }
            Outcome::Update(_) | Outcome::Ran(_) => put_item_of(&mut self.out, ticket, bytes),
        }
        if partition != 0 && self.out.len() > start && self.says_something(item) {
            let written = self.out[start..].to_vec();
            self.others.extend_from_slice(&written);
        }
        Ok(())
    }

    /// Whether the first partition has something to note of it.
    fn says_something(&self, item: &Item<'_>) -> bool {
        match item.outcome {
            Outcome::Update(update) => ticket_of(item.origin).is_some() || update.may_move_tokens(),
            Outcome::Site(_) => true,
            _ => ticket_of(item.origin).is_some(),
        }
    }

    fn ran(
        &mut self,
        origin: Option<Origin>,
        record: &Record<'_>,
        updates: &[(u8, Update<'_>)],
    ) -> Result<(), CorruptUpdate> {
        begin_ran(&mut self.out, origin, 0, |out| record.encode(out));
        let start = self.out.len();
        if !whole_update(updates, &self.places, &mut self.out)? {
            self.out.truncate(start);
            self.out.extend_from_slice(&[0; 4]);
        }
        Ok(())
    }

    fn operation(&mut self, parts: &[(u8, Item<'_>)]) -> Result<(), CorruptUpdate> {
        let (mut updates, mut origin, mut reply) = (Vec::new(), None, &[][..]);
        let mut record =
            Record { answer: Answer::Results(0), watch: None, muted: Vec::new(), told: Vec::new() };
        let mut has_record = false;
        for (partition, item) in parts {
            let Outcome::Part(part) = item.outcome else { continue };
            updates.extend(part.update.map(|update| (*partition, update)));
            origin = origin.or(item.origin.filter(|origin| origin.site != 0));
            if !part.reply.is_empty() {
                reply = part.reply;
            }
            if let Some(of_part) = Ran::of_part(part.record) {
                has_record |= !of_part.muted.is_empty() || !of_part.told.is_empty();
                record.muted.extend(of_part.muted);
                record.told.extend(of_part.told);
            }
        }
        // Who has asked is told what it came to: there is not one place where that shows.
        let is_answer = origin.is_some() && !reply.is_empty();
        if is_answer {
            record.answer = Answer::Reply { err: 0, body: reply };
        }
        if is_answer || has_record {
            return self.ran(origin, &record, &updates);
        }
        let start = self.out.len();
        begin_update(&mut self.out, origin);
        if !whole_update(&updates, &self.places, &mut self.out)? {
            self.out.truncate(start);
            if origin.is_some() {
                self.ran(origin, &Record { answer: Answer::Reply { err: 0, body: reply }, ..record }, &[])?;
            }
        }
        Ok(())
    }
}

impl Ran<'_> {
    /// A record of nothing is one, too.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        let record = self.record();
        record.muted.is_empty() && record.told.is_empty() && record.watch.is_none()
    }
}
