//! What a site that was given up has made and the others do not have, read from its log: for operators, who may want to
//! do some of it again. How it comes from the disk is for others.
//!
//! Updates of one site are everywhere in one order, and the others have none behind the one that they name, or behind one
//! of each partition where the site has several. So what is lost are all that the site has made itself with larger zxids,
//! in its life as a site that was given up.
//!
//! What several partitions have made is read as other sites would have been told it. That asks where znodes live only
//! for those that each partition has a copy of, the registrations of programs, and where these live their names say
//! unless somebody has moved them.

use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_partition::{Items, Outcome, SiteItem, own_updates, whole_entry};
use stoa_placement::Placement;
use stoa_tree::{CorruptUpdate, KeptZxids, Operation, SiteId, Update, site_of_zxid, source_of_zxid};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostWanted {
    /// The site.
    pub site: SiteId,
    /// How many partitions its servers have.
    pub partitions: u8,
    /// What the others have of its updates.
    pub kept: KeptZxids,
    /// What is told begins behind this one; 0 for all.
    pub after_zxid: i64,
    /// So many updates at most are told, the others are counted;
    pub most: usize,
    /// and no more when they have so many bytes, as they are told.
    pub bytes_most: usize,
    /// Whether the data is told, too, and not only how long it is.
    pub with_data: bool,
}

/// One update that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostUpdate {
    /// Where it stands in the site's log.
    pub position: u64,
    /// Its zxid.
    pub zxid: i64,
    /// When it was made, milliseconds since the epoch.
    pub time_ms: i64,
    /// The session that asked for it; 0 is the server itself.
    pub session: i64,
    /// Whether it is a multi.
    pub is_multi: bool,
    /// Whether it is known to be committed. If it is not, no client may ever have been told of it.
    pub is_committed: bool,
    /// What it does.
    pub operations: Vec<LostOperation>,
}

/// A part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostOperation {
    /// What kind of operation it is.
    pub name: &'static str,
    /// The znode.
    pub path: Option<String>,
    /// How long the data is that it gives the znode.
    pub bytes: Option<u64>,
    /// That data, if it was asked for.
    pub data: Option<Vec<u8>>,
}

/// What is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostUpdates {
    /// Those that are told, in their order.
    pub updates: Vec<LostUpdate>,
    /// How many there are, with those that are not told.
    pub count: u64,
    /// Whether some behind the last one that is told are not.
    pub are_more: bool,
    /// Whether it is known that nothing is missing: else the log may not reach back far enough.
    pub is_all: bool,
}

/// Takes the entries of a site's log, in order, and finds what is lost.
#[derive(Debug)]
pub struct LostReader {
    wanted: LostWanted,
    found: LostUpdates,
    bytes: usize,
    has_begun: bool,
    /// Whether all that comes stands behind what is not to be told.
    is_behind: bool,
}

impl LostReader {
    /// Nothing was read yet.
    #[must_use]
    pub fn new(wanted: LostWanted) -> Self {
        Self { wanted, found: LostUpdates::default(), bytes: 0, has_begun: false, is_behind: false }
    }

    /// Takes the next entry. `begun` is where the site's log began, or 0 if nothing is known of that.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn entry(
        &mut self,
        position: u64,
        entry: &Bytes,
        (begun, is_committed): (u64, bool),
    ) -> Result<(), CorruptUpdate> {
        let is_first = !core::mem::replace(&mut self.has_begun, true);
        self.found.is_all |= is_first && position <= begun.max(1);
        let entry = whole(entry, self.wanted.partitions)?;
        own_updates(&entry, &mut |update| self.update(position, is_committed, &update))?;
        // What it did before was nobody else's, or is of a life before.
        if Items::new(&entry).map_while(Result::ok).any(|item| is_joining(&item.outcome)) {
            self.found = LostUpdates { is_all: true, ..LostUpdates::default() };
            self.bytes = 0;
        }
        Ok(())
    }

    fn update(&mut self, position: u64, is_committed: bool, update: &Update<'_>) {
        let LostWanted { site, most, bytes_most, with_data, .. } = self.wanted;
        if site_of_zxid(update.zxid) != site {
            return;
        }
        if self.wanted.kept.has(update.zxid) {
            // What follows is all here, since it stands behind that.
            self.found.is_all = true;
            return;
        }
        if update.is_of_one_site() {
            return;
        }
        self.found.count += 1;
        if !self.is_told(update.zxid) {
            return;
        }
        if self.found.are_more || self.found.updates.len() >= most || self.bytes >= bytes_most {
            self.found.are_more = true;
            return;
        }
        let mut operations = Vec::new();
        // It was read a moment ago, to see whom it is for.
        let _ = update.for_each_operation(|operation| operations.push(told(&operation, with_data)));
        self.bytes += operations.iter().map(LostOperation::told_bytes).sum::<usize>();
        let (is_multi, zxid, time_ms, session) =
            (update.is_multi(), update.zxid, update.time_ms, update.session);
        let lost = LostUpdate { position, zxid, time_ms, session, is_multi, is_committed, operations };
        self.found.updates.push(lost);
    }

    /// Whether an update stands behind those that are not to be told. Of two partitions the zxids have no order, so what
    /// others have made comes behind that one once it has gone by.
    fn is_told(&mut self, zxid: i64) -> bool {
        let after_zxid = self.wanted.after_zxid;
        let is_of_same = self.wanted.partitions <= 1
            || source_of_zxid(zxid).partition == source_of_zxid(after_zxid).partition;
        if is_of_same {
            self.is_behind |= zxid >= after_zxid;
        }
        if is_of_same { zxid > after_zxid } else { self.is_behind || after_zxid == 0 }
    }

    /// Between the entries taken so far and the next one some are missing.
    pub fn gap(&mut self) {
        (self.has_begun, self.found.is_all) = (true, false);
    }

    /// There are no more entries.
    #[must_use]
    pub fn end(self) -> LostUpdates {
        self.found
    }
}

impl LostOperation {
    /// About how long it is where people read it.
    fn told_bytes(&self) -> usize {
        let path = self.path.as_ref().map_or(0, String::len);
        64 + path + self.data.as_ref().map_or(0, |data| 2 * data.len())
    }
}

fn told(operation: &Operation<'_>, with_data: bool) -> LostOperation {
    let Operation { name, path, data } = *operation;
    LostOperation {
        name,
        path: path.map(String::from),
        bytes: data.map(|data| data.len() as u64),
        data: data.filter(|_| with_data).map(Vec::from),
    }
}

fn is_joining(outcome: &Outcome<'_>) -> bool {
    matches!(outcome, Outcome::Site(SiteItem::Joined { .. }))
}

/// An entry as if the site had one partition.
fn whole(entry: &Bytes, partitions: u8) -> Result<Bytes, CorruptUpdate> {
    if partitions <= 1 || entry.is_empty() {
        return Ok(entry.clone());
    }
    let placement = Placement::new(partitions);
    whole_entry(entry, partitions, &|path| placement.of(path)).map(|whole| whole.entry)
}

/// Of which site a log is, and what that was told when it was given up, for who has nothing but the log.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LostNotes {
    /// The site that has made the last update of the log that came from no other one.
    pub site: Option<SiteId>,
    /// What the others have of its updates, and the position at which it was told so last.
    pub kept: Option<(KeptZxids, u64)>,
}

impl LostNotes {
    /// Takes the next entry of a log that so many partitions have.
    pub fn entry(&mut self, position: u64, entry: &Bytes, partitions: u8) {
        // Damage is found by who reads it for what is lost.
        let Ok(entry) = whole(entry, partitions) else { return };
        for item in Items::new(&entry).map_while(Result::ok) {
            if let Outcome::Site(SiteItem::Kept { zxids }) = item.outcome {
                self.kept = KeptZxids::decode(zxids).map(|kept| (kept, position));
            }
        }
        let _ = own_updates(&entry, &mut |update| {
            self.site = Some(site_of_zxid(update.zxid)).filter(|site| *site != 0).or(self.site);
        });
    }
}
