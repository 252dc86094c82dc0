//! From what is on a disk to a server that can go on: the newest snapshot, then every later record.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::{EntryKind, Mark, Members, Restored};
use stoa_tree::{Options, Tree};

use crate::entry::{Items, Outcome, after_places, part_places};
use crate::state::{Share, State, StateLoader};
use crate::timestamp::Timestamp;

/// What a disk holds, as far as it is known to be committed; and the rest of the timeline.
#[derive(Debug)]
pub struct Recovered {
    /// The state.
    pub tree: Tree,
    /// What it rests on, where there are several partitions.
    pub stamp: Timestamp,
    /// Where the terms begin that have entries in it, and their numbers.
    pub terms: Vec<(u64, u64)>,
    /// Where it stands on the timeline, the vote, and the entries that may not be committed.
    pub restored: Restored,
    /// The snapshot that it was loaded from.
    pub snapshot: Option<Mark>,
    /// The last record that the snapshot covers.
    pub covered: u64,
    /// The last record.
    pub record: u64,
    /// Updates applied after the snapshot.
    pub updates: u64,
}

impl Recovered {
    /// What an empty disk holds: a new timeline with these voters; or, without any, nothing, not even a
    /// beginning: a server that joins an ensemble is given a snapshot.
    #[must_use]
    pub fn new(tree: Tree, voters: &[u64]) -> Self {
        // As if the first entry had said who the voters are: so nobody can take up the timeline from
        // its first entry without knowing that.
        let first = u64::from(!voters.is_empty());
        let base = Mark { position: first, term: first, members: Members::of_voters(voters) };
        let restored = Restored { base, ..Restored::default() };
        Self {
            tree,
            stamp: Timestamp::default(),
            terms: Vec::new(),
            restored,
            snapshot: None,
            covered: 0,
            record: 0,
            updates: 0,
        }
    }
}

/// Builds a [`Recovered`] from pieces in the order in which a disk yields them.
#[derive(Debug)]
pub struct Restore {
    options: Options,
    voters: Vec<u64>,
    share: Share,
    loading: Option<Loading>,
    recovered: Recovered,
}

#[derive(Debug)]
struct Loading {
    covered: u64,
    restored: Option<Restored>,
    loader: StateLoader,
}

impl Restore {
    /// Before anything was read. A disk that turns out to be empty begins a timeline with these
    /// voters.
    #[must_use]
    pub fn new(options: Options, voters: &[u64]) -> Self {
        Self::of_partition(options, voters, Share::WHOLE)
    }

    /// The same of one partition of several.
    #[must_use]
    pub fn of_partition(options: Options, voters: &[u64], share: Share) -> Self {
        let recovered = Recovered::new(share.empty_tree(options.clone()), voters);
        Self { options, voters: voters.into(), share, loading: None, recovered }
    }

    /// A snapshot follows, which covers the records up to this one.
    pub fn snapshot_begin(&mut self, covered: u64) {
        let loader = StateLoader::new(self.options.clone(), self.share);
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
        let restored = restored.ok_or("a snapshot without a head")?;
        let State { tree, stamp, terms } = loader.finish()?;
        let snapshot = Some(restored.base.clone());
        self.recovered =
            Recovered { tree, stamp, terms, restored, snapshot, covered, record: covered, updates: 0 };
        Ok(())
    }

    /// It was damaged: an older one follows, or none.
    pub fn snapshot_discard(&mut self) {
        *self = Self::of_partition(self.options.clone(), &self.voters, self.share);
    }

    /// The record at this position of the log.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn record(&mut self, position: u64, payload: &[u8]) -> Result<(), String> {
        let wrong = |error: &dyn core::fmt::Display| format!("record {position}: {error}");
        let Recovered { restored, snapshot, record, .. } = &mut self.recovered;
        let before = restored.base.position;
        let is_first = *record == 0 && snapshot.is_none();
        if is_first {
            // It says who the first members are, or else there are none: the server was to join others
            // and has not been given a snapshot.
            *restored = Restored::default();
        }
        restored.replay(Bytes::copy_from_slice(payload)).map_err(|error| wrong(&error))?;
        if is_first {
            self.recovered.record = position;
            return Ok(());
        }
        if restored.base.position != before {
            return Err(wrong(&format!(
                "it goes on from a snapshot at position {}, which is missing or damaged",
                restored.base.position
            )));
        }
        self.recovered.record = position;
        self.apply_committed().map_err(|error| wrong(&error))
    }

    /// Applies what is known to be committed, so that it need not be kept. A change of members is
    /// for the group to apply, and so is what follows it.
    fn apply_committed(&mut self) -> Result<(), stoa_tree::CorruptUpdate> {
        let Recovered { tree, stamp, terms, restored, updates, .. } = &mut self.recovered;
        let is_one_of_several = self.share.partitions > 1;
        let mut done = 0;
        for entry in &restored.entries {
            if entry.position > restored.vote.committed || entry.kind != EntryKind::Payload {
                break;
            }
            // What became of other parts, and of what an entry follows, is known to the server's other threads.
            let rests_on_others = [part_places(&entry.payload), after_places(&entry.payload)];
            if is_one_of_several && rests_on_others.iter().any(|places| !places.is_empty()) {
                break;
            }
            // Then its term has ended before it.
            if terms.last().is_some_and(|(_, last)| *last > entry.term) {
                break;
            }
            if terms.last().is_none_or(|(_, last)| *last < entry.term) {
                terms.push((entry.position, entry.term));
            }
            for item in Items::new(&entry.payload) {
                match item?.outcome {
                    Outcome::Update(update) => {
                        tree.apply(&update, &mut ())?;
                        *updates += 1;
                    }
                    Outcome::Ran(ran) => {
                        if let Some(update) = &ran.update {
                            tree.apply(update, &mut ())?;
                            *updates += 1;
                        }
                    }
                    Outcome::Seen(seen) | Outcome::Step(seen) => {
                        stamp.include(&seen.timestamp().unwrap_or_default());
                    }
                    Outcome::Refused(_)
                    | Outcome::Failed(..)
                    | Outcome::Elsewhere
                    | Outcome::Untaken
                    | Outcome::Part(_)
                    | Outcome::After(_) => {}
                }
            }
            (restored.base.position, restored.base.term) = (entry.position, entry.term);
            done += 1;
        }
        restored.entries.drain(..done);
        Ok(())
    }

    /// Where the state stands, while it is being read: zxid of its last update.
    #[must_use]
    pub fn zxid(&self) -> i64 {
        self.recovered.tree.last_zxid()
    }

    /// Everything has been read. What only this server voted for is committed because it is here.
    ///
    /// # Errors
    /// What is wrong with the last entries.
    pub fn finish(mut self, server: u8) -> Result<Recovered, String> {
        let Restored { base, vote, entries } = &mut self.recovered.restored;
        let alone = base.members.voters == [u64::from(server)] && base.members.outgoing.is_empty();
        if alone && entries.iter().all(|entry| entry.kind == EntryKind::Payload) {
            vote.committed = base.position + entries.len() as u64;
            self.apply_committed().map_err(|error| error.to_string())?;
        }
        Ok(self.recovered)
    }
}
