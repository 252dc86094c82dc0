//! From what is on a disk to a server that can go on: the newest snapshot, then every later record.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;
use stoa_group::{Entry, EntryKind, History, HistoryId, Mark, Members, Restored, Store, Vote};

use stoa_tree::{Options, Places, Tree};
use stoa_wire::ZXID_MAX;

use crate::entry::{Item, Items, Outcome};
use crate::sites::{SiteItem, is_heeded, made_in, note_at_partition, note_in_streams, note_joining};
use crate::state::{Share, State, StateLoader};
use crate::whole::{WholeEntry, whole_entry};
use stoa_placement::Placement;
use stoa_timeline::{OnDisk, Slices, member_of, servers_of};
use stoa_wire::Timestamp;

/// No server begins with a larger zxid. What it writes from there on has a larger one each time, and no entry with one
/// above [`ZXID_MAX`] can be read: half of all zxids are left for that, more than any server ever takes.
const ZXID_MAX_AT_START: i64 = ZXID_MAX / 2;

/// What a disk holds of a partition, as far as it is known to be committed; with the first one, the rest of the log.
#[derive(Debug)]
pub struct Recovered {
    /// The state.
    pub tree: Tree,
    /// What it rests on, where there are several partitions.
    pub stamp: Timestamp,
    /// Where it stands on the partition's timeline, where there are several.
    pub position: u64,
    /// Where it stands in the log, the vote, and the entries that may not be committed. Those of the first partition
    /// are for all.
    pub restored: Restored,
    /// The snapshot that it was loaded from.
    pub snapshot: Option<Mark>,
    /// The last record that the snapshot covers.
    pub covered: u64,
    /// The last record.
    pub record: u64,
    /// Updates applied after the snapshot.
    pub updates: u64,
    /// With the first partition of several: where each stands.
    positions: Vec<u64>,
    /// Where there are sites: entries that were applied after the snapshot, and their positions. Other sites may lack
    /// them.
    pub for_sites: Vec<(u64, Bytes)>,
}

impl Recovered {
    /// What an empty disk holds: nothing, not even a beginning. With voters, what it holds when these have begun a
    /// history, in which nothing has happened.
    #[must_use]
    pub fn new(tree: Tree, voters: &[u8]) -> Self {
        let history = (!voters.is_empty()).then(History::default);
        let voters: Vec<u64> = voters.iter().copied().map(member_of).collect();
        let restored = Restored { base: Mark::founding(&voters), history, ..Restored::default() };
        Self {
            tree,
            stamp: Timestamp::default(),
            position: 0,
            restored,
            snapshot: None,
            covered: 0,
            record: 0,
            updates: 0,
            positions: Vec::new(),
            for_sites: Vec::new(),
        }
    }

    /// What the disk holds of the log.
    pub fn log(&self) -> OnDisk<'_> {
        let Self { restored, snapshot, covered, record, .. } = self;
        OnDisk { restored, snapshot: snapshot.as_ref(), covered: *covered, record: *record }
    }

    /// Where each partition stands, where there are several.
    pub fn positions(&self, partitions: u8) -> Vec<u64> {
        let mut positions = self.positions.clone();
        positions.resize(if partitions > 1 { partitions.into() } else { 0 }, 0);
        positions
    }
}

/// How a server goes on whose ensemble is lost: see [`Restore::go_on_alone`].
#[derive(Debug)]
pub struct GoesOn {
    /// The record to append to the log.
    pub record: Bytes,
    /// Its position.
    pub position: u64,
    /// The servers that voted in the ensemble.
    pub voters: Vec<u8>,
    /// Which history it was.
    pub history: HistoryId,
    /// Entries among those that count, of which it is not known whether they were committed.
    pub uncertain: u64,
    /// The last update.
    pub zxid: i64,
    /// Znodes of all partitions.
    pub znodes: usize,
}

/// Builds what is [`Recovered`] from pieces in the order in which a disk yields them.
#[derive(Debug)]
pub struct Restore {
    options: Options,
    voters: Vec<u8>,
    partitions: u8,
    loading: Option<Loading>,
    states: Vec<State>,
    restored: Restored,
    snapshot: Option<Mark>,
    covered: u64,
    record: u64,
    updates: u64,
    for_sites: Vec<(u64, Bytes)>,
    /// What lives where, where there are several partitions.
    placement: Placement,
    /// What they have of a hub's state that has just become this site's.
    joined: Vec<Tree>,
}

#[derive(Debug)]
struct Loading {
    covered: u64,
    restored: Option<Restored>,
    loader: StateLoader,
}

impl Restore {
    /// Before anything was read; see [`Recovered::new`] for what a disk is that turns out to be empty.
    #[must_use]
    pub fn new(options: Options, voters: &[u8], partitions: u8) -> Self {
        let empty = |partition| State::new(Share { partition, partitions }.empty_tree(options.clone()));
        let states = (0..partitions.max(1)).map(empty).collect();
        let restored = Recovered::new(Tree::new(Options::default()), voters).restored;
        let voters = voters.into();
        Self {
            options,
            voters,
            partitions: partitions.max(1),
            loading: None,
            states,
            restored,
            snapshot: None,
            covered: 0,
            record: 0,
            updates: 0,
            for_sites: Vec::new(),
            placement: Placement::new(partitions.max(1)),
            joined: Vec::new(),
        }
    }

    /// A snapshot follows, which covers the records up to this one.
    pub fn snapshot_begin(&mut self, covered: u64) {
        let loader = StateLoader::new(&self.options, self.partitions);
        self.loading = Some(Loading { covered, restored: None, loader });
    }

    /// A chunk of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        let loading = self.loading.as_mut().ok_or("a chunk outside of a snapshot")?;
        if loading.restored.is_some() {
            return loading.loader.chunk(bytes);
        }
        let mut restored = Restored::default();
        restored.replay(Bytes::copy_from_slice(bytes)).map_err(|error| format!("its head: {error}"))?;
        loading.restored = Some(restored);
        Ok(())
    }

    /// It was whole.
    ///
    /// # Errors
    /// What is missing.
    pub fn snapshot_end(&mut self) -> Result<(), String> {
        let Loading { covered, restored, loader } =
            self.loading.take().ok_or("the end of a snapshot that never began")?;
        self.restored = restored.ok_or("a snapshot without a head")?;
        self.states = loader.finish()?;
        self.snapshot = Some(self.restored.base.clone());
        (self.covered, self.record, self.updates) = (covered, covered, 0);
        if let Some(first) = self.states.first() {
            let placed = first.tree.placed();
            self.placement = Placement::with(self.partitions, placed.version(), placed.iter());
        }
        Ok(())
    }

    /// It was damaged: an older one follows, or none.
    pub fn snapshot_discard(&mut self) {
        *self = Self::new(self.options.clone(), &self.voters, self.partitions);
    }

    /// The record at this position of the log.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn record(&mut self, position: u64, payload: &[u8]) -> Result<(), String> {
        let wrong = |error: &dyn fmt::Display| format!("record {position}: {error}");
        let is_first = self.record == 0 && self.snapshot.is_none();
        if is_first {
            // It says who the first members are, or else there are none: the server was to join others
            // and has not been given a snapshot.
            self.restored = Restored::default();
        }
        let store = Store::decode(Bytes::copy_from_slice(payload)).map_err(|error| wrong(&error))?;
        if let Some(mark) = store.snapshot.as_ref().filter(|_| !is_first) {
            self.come_to(mark).map_err(|error| wrong(&error))?;
        }
        self.restored.follow(store).map_err(|error| wrong(&error))?;
        self.record = position;
        if is_first {
            return Ok(());
        }
        self.apply_committed().map_err(|error| wrong(&error))
    }

    /// A record that goes on from a mark: the state has to come there first. Everything up to it is committed, and who
    /// belongs to the group there, the mark says itself. It may be that of a snapshot that is missing or damaged, while
    /// an older one was loaded: then the entries in between are there, or nothing can be done.
    fn come_to(&mut self, mark: &Mark) -> Result<(), String> {
        if mark.position <= self.restored.base.position {
            return Ok(());
        }
        let entries = core::mem::take(&mut self.restored.entries);
        let is_there = |entry: &Entry| (entry.position, entry.term) == (mark.position, mark.term);
        let Some(at) = entries.iter().position(is_there) else {
            return Err(format!(
                "it goes on from a snapshot at position {}, which is missing or damaged",
                mark.position
            ));
        };
        let payloads = entries[..=at].iter().filter(|entry| entry.kind == EntryKind::Payload);
        payloads.into_iter().try_for_each(|entry| self.apply(entry))
    }

    /// Applies what is known to be committed, so that it need not be kept. A change of members is
    /// for the group to apply, and so is what follows it.
    fn apply_committed(&mut self) -> Result<(), String> {
        let mut done = 0;
        let entries = core::mem::take(&mut self.restored.entries);
        for entry in &entries {
            if entry.position > self.restored.vote.committed || entry.kind != EntryKind::Payload {
                break;
            }
            self.apply(entry)?;
            (self.restored.base.position, self.restored.base.term) = (entry.position, entry.term);
            done += 1;
        }
        self.restored.entries = entries;
        self.restored.entries.drain(..done);
        Ok(())
    }

    fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        if let [only] = &mut self.states[..] {
            let places = Places { own: 0, partitions: 1, of: &|_| 0, is_split: &|_| false };
            self.updates +=
                apply_items(only, &entry.payload, &places, &mut Vec::new()).map_err(|it| it.to_string())?;
            // What follows may be of that level, and then it cannot be read.
            only.tree.check_level().map_err(|newer| newer.to_string())?;
            if only.tree.own_site().is_some() {
                only.tree.note_position(entry.position);
                self.for_sites.push((entry.position, entry.payload.clone()));
            }
            return Ok(());
        }
        if entry.payload.is_empty() {
            return Ok(());
        }
        for slice in Slices::new(entry.payload.clone()) {
            let (partition, position, payload) = slice.map_err(|error| error.to_string())?;
            let placement = &self.placement;
            let places = Places {
                own: partition,
                partitions: self.partitions,
                of: &|path| placement.of(path),
                is_split: &|path| placement.is_split(path),
            };
            let state = self.states.get_mut(usize::from(partition));
            let state = state.filter(|state| position == state.position + 1).ok_or_else(|| {
                format!(
                    "it has position {position} of partition {partition}, which does not follow what is there"
                )
            })?;
            let applied = apply_items(state, &payload, &places, &mut self.joined);
            self.updates += applied.map_err(|error| error.to_string())?;
            state.tree.check_level().map_err(|newer| newer.to_string())?;
            state.position = position;
        }
        self.note_batch(entry)
    }

    /// All that the partitions have of an entry is applied: other sites may have to know it.
    fn note_batch(&mut self, entry: &Entry) -> Result<(), String> {
        let Some(first) = self.states.first_mut() else { return Ok(()) };
        let placed = first.tree.placed();
        if placed.version() != self.placement.version() {
            self.placement = Placement::with(self.partitions, placed.version(), placed.iter());
        }
        if first.tree.own_site().is_none() {
            return Ok(());
        }
        let placement = &self.placement;
        let whole = whole_entry(&entry.payload, self.partitions, &|path| placement.of(path));
        let whole = whole.map_err(|error| error.to_string())?;
        note_whole(&mut first.tree, &whole);
        first.tree.note_position(entry.position);
        self.for_sites.push((entry.position, whole.entry));
        Ok(())
    }

    /// Where the state stands, while it is being read: zxid of its last update.
    #[must_use]
    pub fn zxid(&self) -> i64 {
        self.states.iter().map(|state| state.tree.last_zxid()).max().unwrap_or(0)
    }

    /// Everything has been read, and the others are lost for good: the record with which this server goes on alone, in
    /// a history of its own. Everything counts that the disk has, also what may not have been committed: it may have
    /// been acknowledged to somebody. Whoever has more, or something else, is of another history from then on.
    ///
    /// # Errors
    /// When there is nothing to go on from, or it cannot be read.
    pub fn go_on_alone(mut self, server: u8, id: HistoryId) -> Result<GoesOn, String> {
        if self.restored.base == Mark::default() {
            return Err("it holds nothing of an ensemble: a server can begin with it as it is".into());
        }
        let Restored { base, vote, history, entries } = core::mem::take(&mut self.restored);
        let uncertain = entries.len() as u64;
        let payloads = entries.iter().filter(|entry| entry.kind == EntryKind::Payload);
        payloads.into_iter().try_for_each(|entry| self.apply(entry))?;
        let (position, term) =
            entries.last().map_or((base.position, base.term), |last| (last.position, last.term));
        // The list of servers and the sessions are the first partition's.
        let since = self.states.first().map_or(0, |first| first.tree.last_zxid());
        let members = Members::of_voters(&[member_of(server)]);
        let store = Store {
            snapshot: Some(Mark { position, term, members }.into()),
            vote: Some(Vote { term: vote.term.max(term), voted_for: 0, committed: position }),
            history: Some(History { id, since: since.cast_unsigned() }),
            ..Store::default()
        };
        Ok(GoesOn {
            record: store.encode().join(),
            position: self.record + 1,
            voters: servers_of(&base.members.voters),
            history: history.unwrap_or_default().id,
            uncertain,
            zxid: self.zxid(),
            znodes: self.states.iter().map(|state| state.tree.znode_count()).sum(),
        })
    }

    /// Everything has been read. What only this server voted for is committed because it is here.
    ///
    /// # Errors
    /// What is wrong with the last entries.
    pub fn finish(mut self, server: u8) -> Result<Vec<Recovered>, String> {
        if self.record > 0 || self.snapshot.is_some() {
            // One from before histories had names is as good as any.
            self.restored.history.get_or_insert_default();
        }
        let Restored { base, vote, entries, .. } = &mut self.restored;
        let alone = base.members.voters == [member_of(server)] && base.members.outgoing.is_empty();
        if alone && entries.iter().all(|entry| entry.kind == EntryKind::Payload) {
            vote.committed = base.position + entries.len() as u64;
            self.apply_committed()?;
        }
        let kept = self.restored.entries.iter().filter(|entry| entry.kind == EntryKind::Payload);
        kept.into_iter().try_for_each(|entry| {
            let several = self.states.len() > 1;
            is_readable(&entry.payload, several)
                .map_err(|error| format!("the entry at position {}: {error}", entry.position))
        })?;
        let zxid = self.zxid();
        if zxid > ZXID_MAX_AT_START {
            return Err(format!(
                "its zxid 0x{zxid:x} is too large for any to follow: no writes have led to it"
            ));
        }
        let Self { states, mut restored, snapshot, covered, record, mut updates, mut for_sites, .. } = self;
        let mut positions: Vec<_> = states.iter().map(|state| state.position).collect();
        let of = |State { tree, stamp, position }| {
            let entries = core::mem::take(&mut restored.entries);
            let (snapshot, updates) = (snapshot.clone(), core::mem::take(&mut updates));
            let (restored, positions) =
                (Restored { entries, ..restored.clone() }, core::mem::take(&mut positions));
            let for_sites = core::mem::take(&mut for_sites);
            Recovered {
                tree,
                stamp,
                position,
                restored,
                snapshot,
                covered,
                record,
                updates,
                positions,
                for_sites,
            }
        };
        Ok(states.into_iter().map(of).collect())
    }
}

/// Whether everything in an entry can be read that has yet to be committed.
fn is_readable(entry: &Bytes, several: bool) -> Result<(), String> {
    let items = |payload: &[u8]| {
        Items::new(payload).try_for_each(|item| item.map(|_| ())).map_err(|error| error.to_string())
    };
    if !several || entry.is_empty() {
        return items(entry);
    }
    Slices::new(entry.clone()).try_for_each(|slice| {
        slice.map_err(|error| error.to_string()).and_then(|(.., payload)| items(&payload))
    })
}

/// Applies what an entry holds for a partition; returns how many updates that are.
fn apply_items(
    state: &mut State,
    entry: &[u8],
    places: &Places<'_>,
    joined: &mut Vec<Tree>,
) -> Result<u64, stoa_tree::CorruptUpdate> {
    let mut updates = 0;
    for item in Items::new(entry) {
        let item = item?;
        match item.outcome {
            Outcome::Site(SiteItem::Import { from, position, items })
            | Outcome::Site(SiteItem::Share { from, position, items }) => {
                let is_here = (1..=state.tree.streams().imported(from)).contains(&position);
                if is_here || !state.tree.listens_to(from) {
                    continue;
                }
                for imported in Items::new(items) {
                    let imported = imported?;
                    if is_heeded(&state.tree, from, &imported) {
                        updates += apply_item(state, &imported, Some(places))?;
                        note(state, &imported, places, joined);
                    }
                }
                let streams = state.tree.streams_mut();
                streams.set_imported(from, position.max(streams.imported(from)));
            }
            _ => {
                updates += apply_item(state, &item, None)?;
                note(state, &item, places, joined);
            }
        }
    }
    Ok(updates)
}

/// Notes what an item says of sites. The first partition has the streams; where the state becomes the hub's, `joined` is
/// what the others have of it.
fn note(state: &mut State, item: &Item<'_>, places: &Places<'_>, joined: &mut Vec<Tree>) {
    if places.own > 0 {
        if let Outcome::Site(SiteItem::Joined { .. }) = item.outcome
            && let Some(share) = joined.get_mut(usize::from(places.own) - 1)
        {
            let empty = Tree::new_part(Options::default());
            state.tree.join_with(core::mem::replace(share, empty));
        }
        return note_at_partition(&mut state.tree, item);
    }
    let shares = note_joining(&mut state.tree, item, places);
    if let Outcome::Site(SiteItem::Joined { .. }) = item.outcome {
        *joined = shares.unwrap_or_default();
    }
    note_in_streams(&mut state.tree, item);
}

/// Notes what partitions other than the first have said of streams, when all that is in a batch is applied.
pub fn note_whole(tree: &mut Tree, whole: &WholeEntry) {
    for item in Items::new(&whole.of_others).map_while(Result::ok) {
        note_in_streams(tree, &item);
        if let Outcome::Update(update) = item.outcome {
            update.for_each_token(|path| tree.streams_mut().recall_is_done(path));
        }
    }
    made_in(&whole.entry, &mut |_, zxid| tree.note_made(zxid));
}

/// Applies an item; with what lives where if it has come from another site.
fn apply_item(
    state: &mut State,
    item: &Item<'_>,
    imported: Option<&Places<'_>>,
) -> Result<u64, stoa_tree::CorruptUpdate> {
    let State { tree, stamp, .. } = state;
    let update = match item.outcome {
        Outcome::Update(update) => Some(update),
        Outcome::Ran(ran) => ran.update,
        Outcome::Part(part) => part.update,
        Outcome::Seen(seen) | Outcome::Step(seen) => {
            stamp.include(&seen.timestamp().unwrap_or_default());
            None
        }
        Outcome::Refused(_)
        | Outcome::Failed(..)
        | Outcome::Elsewhere
        | Outcome::Untaken
        | Outcome::Site(_) => None,
    };
    match (&update, imported) {
        (Some(update), Some(places)) if places.partitions > 1 => {
            tree.import_share(update, places, &mut ())?;
        }
        (Some(update), Some(_)) => tree.import(update, &mut ())?,
        (Some(update), None) => tree.apply(update, &mut ())?,
        (None, _) => {}
    }
    Ok(u64::from(update.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restore(records: &[Store]) -> Result<Restore, String> {
        let mut restore = Restore::new(Options::default(), &[], 1);
        for (position, store) in (1..).zip(records) {
            restore.record(position, &store.encode().join())?;
        }
        Ok(restore)
    }

    fn entries(positions: core::ops::RangeInclusive<u64>, committed: u64) -> Store {
        let entry = |position| Entry { position, term: 2, kind: EntryKind::Payload, payload: Bytes::new() };
        let vote = Some(Vote { term: 2, voted_for: 1, committed });
        Store { vote, entries: positions.map(entry).collect(), ..Store::default() }
    }

    fn mark(position: u64, term: u64, voters: &[u64], id: u8) -> Store {
        let mark = Mark { position, term, members: Members::of_voters(voters) };
        let history = Some(History { id: HistoryId([id; 16]), since: 0 });
        Store { snapshot: Some(mark.into()), history, ..Store::default() }
    }

    #[test]
    fn a_mark_is_gone_on_from_where_everything_before_it_is_there() {
        // As if the snapshot at position 4 had been damaged, and everything were read from the log.
        let log = [mark(1, 1, &[1, 2, 3], 7), entries(2..=4, 2), mark(4, 2, &[1, 2], 7), entries(5..=5, 4)];
        let recovered = restore(&log).unwrap().finish(1).unwrap();
        let Restored { base, entries: rest, .. } = &recovered[0].restored;
        assert_eq!((base.position, base.members.voters.clone()), (4, [1, 2].into()));
        assert_eq!(rest.len(), 1);
        for missing in [mark(6, 2, &[1, 2], 7), mark(4, 3, &[1, 2], 7)] {
            let log = [mark(1, 1, &[1, 2, 3], 7), entries(2..=4, 2), missing];
            assert!(restore(&log).unwrap_err().contains("which is missing or damaged"));
        }
    }

    /// As a snapshot or an update with a large zxid and a checksum that fits may have it.
    #[test]
    fn no_server_begins_where_zxids_have_no_room_left() {
        for (zxid, fits) in [(ZXID_MAX_AT_START, true), (ZXID_MAX_AT_START + 1, false), (ZXID_MAX, false)] {
            let mut restore = restore(&[mark(1, 1, &[1], 7)]).unwrap();
            let mut entry = Vec::new();
            let stamp = stoa_tree::Stamp { zxid, time_ms: 1 };
            let tree = &mut restore.states[0].tree;
            tree.prepare_close_session(5, stamp, &mut entry);
            tree.apply(&stoa_tree::Update::decode(&entry[4..]).unwrap(), &mut ()).unwrap();
            let finished = restore.finish(1).map(|_| ());
            assert_eq!(finished.is_ok(), fits, "0x{zxid:x}: {finished:?}");
        }
    }

    /// It is applied when it is committed, and then it is too late to say what is wrong with the disk.
    #[test]
    fn what_is_yet_to_be_committed_can_be_read() {
        let log = |payload: &'static [u8]| {
            let payload = Bytes::from_static(payload);
            let entry = Entry { position: 2, term: 2, kind: EntryKind::Payload, payload };
            [mark(1, 1, &[1, 2, 3], 7), Store { entries: [entry].into(), ..Store::default() }]
        };
        assert!(restore(&log(b"")).unwrap().finish(1).is_ok());
        let refused = restore(&log(b"nothing that a leader made")).unwrap().finish(1).unwrap_err();
        assert!(refused.starts_with("the entry at position 2: "), "{refused}");
    }

    #[test]
    fn who_goes_on_alone_has_everything_and_another_history() {
        let log = [mark(1, 1, &[1, 2, 3], 7), entries(2..=4, 2)];
        let goes_on = restore(&log).unwrap().go_on_alone(2, HistoryId([9; 16])).unwrap();
        assert_eq!((goes_on.position, goes_on.voters, goes_on.uncertain), (3, [1, 2, 3].into(), 2));
        assert_eq!(goes_on.history, HistoryId([7; 16]));
        let record = Store::decode(goes_on.record).unwrap();
        let recovered = restore(&[&log[..], &[record]].concat()).unwrap().finish(2).unwrap();
        let Restored { base, vote, history, entries } = &recovered[0].restored;
        assert_eq!((base.position, &base.members.voters[..], entries.len()), (4, &[2][..], 0));
        assert_eq!((vote.committed, history.unwrap().id), (4, HistoryId([9; 16])));
        // A server that is to join has nothing to go on from.
        let joins = restore(&[mark(0, 0, &[], 7)]).unwrap();
        assert!(joins.go_on_alone(2, HistoryId([9; 16])).unwrap_err().contains("nothing of an ensemble"));
    }
}
