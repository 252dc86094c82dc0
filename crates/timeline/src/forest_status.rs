//! What can be told of a forest: who stands where, how late everybody is, what was sent, and what was repaired and why.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_forest::{Complaint, Epoch, Frame, FrameKind, Ids, Settings, Shape, Spreader};

/// How many changes of the shape are told, the newest ones.
const REPAIRS_MAX: usize = 32;
/// How many complaints are remembered until they count, and for how long, microseconds.
const COMPLAINTS_MAX: usize = 256;
const COMPLAINTS_US: u64 = 500_000;
/// Of how many moments it is known what was spread then, and how far they are apart, microseconds.
const MOMENTS_MAX: usize = 4096;
const MOMENT_US: u64 = 1000;

/// A forest, as one server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForestStatus {
    /// From how many servers on this server has one when it leads.
    pub servers_min: usize,
    /// How many trees there are at most, and how wide they are: as the leader says, or as this server would have them.
    pub settings: Settings,
    /// Which shape it is; `None` while there are no trees.
    pub shape: Option<ForestShape>,
    /// The trees, from 0.
    pub trees: Vec<ForestTree>,
    /// All servers, by number.
    pub servers: Vec<ForestServer>,
    /// What was sent and received since this process began.
    pub counts: ForestCounts,
    /// The last changes of the shape that this server has made as leader, oldest first.
    pub repairs: Vec<Repair>,
}

/// Which shape a forest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForestShape {
    /// The leader's term.
    pub term: u64,
    /// Counts the shapes of this term, from 1.
    pub number: u32,
    /// Who leads, and gives the roots what they pass on.
    pub leader: u8,
}

/// One tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForestTree {
    /// Who is at the top.
    pub root: u8,
    /// To whom everybody passes on, who passes on to anybody.
    pub children: Vec<(u8, Vec<u8>)>,
    /// At a server that follows: microseconds since something came down.
    pub silent_us: Option<u64>,
}

/// Where a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForestPlace {
    /// It leads.
    Leader,
    /// It is at the top of the tree in which it passes on.
    Root,
    /// It passes on in one tree, and is below another one there.
    Interior,
    /// It passes on to nobody.
    Leaf,
    /// It passes on to nobody as the leader has put it aside.
    Aside,
    /// It is in no tree: it is sent to by the leader.
    Direct,
}

/// One server of a forest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForestServer {
    /// Its number.
    pub id: u8,
    /// Where it stands.
    pub place: ForestPlace,
    /// In which tree it may pass on, and up which it acknowledges.
    pub tree: Option<u8>,
    /// At the leader: whether appends reach it by others alone. Who is late is sent to directly until it is not.
    pub is_fed: Option<bool>,
    /// Whether it understands what is said of the forest, as far as this server knows.
    pub understands: bool,
    /// At the leader: what it is not known to have.
    pub late: Option<Lateness>,
}

/// What a server is not known to have of what was spread. Some of it is always on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lateness {
    /// Entries of the log.
    pub entries: u64,
    /// Bytes of the appends that have them, of the last few seconds at least.
    pub bytes: u64,
    /// Since when the first of these was spread, microseconds; of the last few seconds at least.
    pub age_us: u64,
}

/// What was sent and received of a forest since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForestCounts {
    /// Frames that went down trees from here: the leader's own, or passed on.
    pub frames_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Frames that came down trees.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Frames with acknowledgements that went up.
    pub acknowledgements_sent: u64,
    /// The same, come from below.
    pub acknowledgements_received: u64,
    /// Questions for what had not come.
    pub pulls_sent: u64,
    /// Answers to such questions of others.
    pub pulls_answered: u64,
    /// Complaints that nothing comes down a tree.
    pub complaints_sent: u64,
    /// The same at the leader.
    pub complaints_received: u64,
    /// Changes of the shape that this server has made as leader.
    pub repairs: u64,
}

/// A change of the shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The leader's term.
    pub term: u64,
    /// The number of the new shape in it.
    pub number: u32,
    /// How long ago, microseconds.
    pub age_us: u64,
    /// Which servers are aside since then, or are not any more, and why. Nobody where only the list of servers has
    /// become shorter.
    pub servers: Vec<(u8, RepairCause)>,
}

/// Why a server has another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairCause {
    /// It is aside: its connection with the leader has ended.
    Lost,
    /// It is aside: nothing comes down a tree from it.
    Silent {
        /// The tree.
        tree: u8,
        /// The children that said so.
        by: Vec<u8>,
    },
    /// It is aside: it has just come into the list.
    Joined,
    /// It is not aside any more: its time is over.
    Back,
    /// It is in the list no more.
    Left,
}

/// What the leader knew of the forest when it looked last.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    epoch: Epoch,
    aside: Ids,
    servers: Ids,
}

/// What was spread at one moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at_us: u64,
    /// The last position.
    last: u64,
    /// Bytes that were spread before.
    before: u64,
}

/// What is kept to tell it.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) counts: ForestCounts,
    /// With the time when each was made in place of its age.
    repairs: VecDeque<Repair>,
    complaints: VecDeque<(u64, u8, Complaint)>,
    known: Known,
    moments: VecDeque<Moment>,
    bytes: u64,
}

impl Record {
    /// A frame goes out.
    pub(crate) fn sent(&mut self, frame: &[u8]) {
        let counts = &mut self.counts;
        match FrameKind::of(frame) {
            Some(FrameKind::Spread) => {
                counts.frames_sent += 1;
                counts.bytes_sent += frame.len() as u64;
            }
            Some(FrameKind::Acknowledge) => counts.acknowledgements_sent += 1,
            Some(FrameKind::Pull) => counts.pulls_sent += 1,
            Some(FrameKind::Pulled) => counts.pulls_answered += 1,
            Some(FrameKind::Complaint) => counts.complaints_sent += 1,
            None => {}
        }
    }

    /// A frame has come.
    pub(crate) fn received(&mut self, now_us: u64, from: u8, frame: &Bytes) {
        let counts = &mut self.counts;
        match FrameKind::of(frame) {
            Some(FrameKind::Spread) => {
                counts.frames_received += 1;
                counts.bytes_received += frame.len() as u64;
            }
            Some(FrameKind::Acknowledge) => counts.acknowledgements_received += 1,
            Some(FrameKind::Complaint) => {
                counts.complaints_received += 1;
                if let Ok(Frame::Complaint(complaint)) = Frame::decode(frame.clone()) {
                    self.complaints.truncate(COMPLAINTS_MAX - 1);
                    self.complaints.push_front((now_us, from, complaint));
                }
            }
            Some(FrameKind::Pull | FrameKind::Pulled) | None => {}
        }
    }

    /// This server leads from now on.
    pub(crate) fn leads(&mut self, spreader: &Spreader, servers: &Ids) {
        self.complaints.clear();
        self.moments.clear();
        self.known = Known { epoch: spreader.epoch(), aside: *spreader.aside(), servers: *servers };
    }

    /// An append was spread, up to this position.
    pub(crate) fn spread(&mut self, now_us: u64, last: u64, bytes: usize) {
        let before = self.bytes;
        self.bytes += bytes as u64;
        match self.moments.back_mut() {
            Some(moment) if now_us < moment.at_us + MOMENT_US => moment.last = last.max(moment.last),
            _ => self.moments.push_back(Moment { at_us: now_us, last, before }),
        }
        if self.moments.len() > MOMENTS_MAX {
            self.moments.pop_front();
        }
    }

    /// What somebody lacks who has everything up to a position.
    fn lateness(&self, now_us: u64, matched: u64, last: u64) -> Lateness {
        let first = self.moments.partition_point(|moment| moment.last <= matched);
        let missed = self.moments.get(first).filter(|_| matched < last);
        Lateness {
            entries: last.saturating_sub(matched),
            bytes: missed.map_or(0, |moment| self.bytes - moment.before),
            age_us: missed.map_or(0, |moment| now_us.saturating_sub(moment.at_us)),
        }
    }

    /// Notes whether the leader has changed the shape. `tags` are of those who are connected.
    pub(crate) fn look(&mut self, now_us: u64, spreader: &Spreader, servers: &Ids, tags: &BTreeMap<u8, u64>) {
        let now = Known { epoch: spreader.epoch(), aside: *spreader.aside(), servers: *servers };
        let before = core::mem::replace(&mut self.known, now);
        if now.epoch == before.epoch {
            return;
        }
        let cause = |id: u8| match (now.aside.contains(id), before.aside.contains(id)) {
            _ if !now.servers.contains(id) => before.servers.contains(id).then_some(RepairCause::Left),
            (true, true) | (false, false) => None,
            (false, true) => Some(RepairCause::Back),
            _ if !tags.contains_key(&id) => Some(RepairCause::Lost),
            _ if !before.servers.contains(id) => Some(RepairCause::Joined),
            _ => Some(self.silence(now_us, id)),
        };
        let changed = (1..u8::MAX).filter_map(|id| Some((id, cause(id)?))).collect();
        if self.repairs.len() == REPAIRS_MAX {
            self.repairs.pop_front();
        }
        let Epoch { term, count } = now.epoch;
        self.repairs.push_back(Repair { term, number: count, age_us: now_us, servers: changed });
        self.counts.repairs += 1;
    }

    /// Who has complained about a server, in the tree where most have.
    fn silence(&self, now_us: u64, about: u8) -> RepairCause {
        let mut by: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        let recent = self.complaints.iter().filter(|(at_us, ..)| at_us + COMPLAINTS_US >= now_us);
        for (_, from, complaint) in recent.filter(|(.., complaint)| complaint.about == about) {
            let children = by.entry(complaint.tree).or_default();
            if !children.contains(from) {
                children.push(*from);
            }
        }
        let most = by.into_iter().max_by_key(|(_, children)| children.len());
        let (tree, mut by) = most.unwrap_or_default();
        by.sort_unstable();
        RepairCause::Silent { tree, by }
    }

    /// The last changes of the shape, oldest first.
    pub(crate) fn repairs(&self, now_us: u64) -> Vec<Repair> {
        let aged =
            |repair: &Repair| Repair { age_us: now_us.saturating_sub(repair.age_us), ..repair.clone() };
        self.repairs.iter().map(aged).collect()
    }

    /// At the leader: how late each of these is, who have the log up to these positions.
    pub(crate) fn late(&self, now_us: u64, last: u64, matched: &[(u8, u64)]) -> BTreeMap<u8, Lateness> {
        matched.iter().map(|(id, matched)| (*id, self.lateness(now_us, *matched, last))).collect()
    }
}

/// The trees of a shape, with how long each was silent.
pub(crate) fn trees(shape: &Shape, silent_us: impl Fn(u8) -> Option<u64>) -> Vec<ForestTree> {
    let of_tree = |tree| {
        let children =
            |id: u8| Some((id, shape.children(tree, id).to_vec())).filter(|(_, its)| !its.is_empty());
        Some(ForestTree {
            root: shape.root(tree)?,
            children: shape.servers().iter().filter_map(children).collect(),
            silent_us: silent_us(tree),
        })
    };
    (0..shape.trees()).filter_map(of_tree).collect()
}

/// Where a server stands in a shape.
pub(crate) fn place(shape: Option<&Shape>, aside: &Ids, id: u8) -> ForestPlace {
    let Some(shape) = shape.filter(|shape| shape.trees() > 0) else { return ForestPlace::Direct };
    match shape.colour(id) {
        _ if shape.leader() == id => ForestPlace::Leader,
        None => ForestPlace::Direct,
        Some(_) if aside.contains(id) => ForestPlace::Aside,
        Some(tree) if shape.root(tree) == Some(id) => ForestPlace::Root,
        Some(tree) if shape.children(tree, id).is_empty() => ForestPlace::Leaf,
        Some(_) => ForestPlace::Interior,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_forest::Limits;

    fn complaint(epoch: Epoch, tree: u8, about: u8) -> Bytes {
        Frame::Complaint(Complaint { epoch, tree, about }).encode()
    }

    #[test]
    fn what_was_repaired_is_told_with_why() {
        let (servers, limits) = ((1..=20).collect::<Ids>(), Limits::default());
        let mut spreader = Spreader::new(1, 7, &servers, 0, Settings::default(), limits);
        let mut tags: BTreeMap<u8, u64> = (1..=21).map(|id| (id, 1)).collect();
        let mut record = Record::default();
        record.leads(&spreader, &servers);
        record.look(5, &spreader, &servers, &tags);
        assert!(record.repairs(5).is_empty(), "nothing has changed");
        // Two children of a root complain.
        let (silent, lost) = (spreader.shape().root(2).unwrap(), spreader.shape().root(3).unwrap());
        let children = spreader.shape().children(2, silent)[..2].to_vec();
        for child in &children {
            let frame = complaint(spreader.epoch(), 2, silent);
            record.received(100, *child, &frame);
            spreader.receive(100, *child, frame).unwrap();
            record.look(100, &spreader, &servers, &tags);
        }
        tags.remove(&lost);
        spreader.gone(200, lost);
        spreader.tick(200);
        record.look(200, &spreader, &servers, &tags);
        let more = (2..=21).collect::<Ids>();
        spreader.set_servers(300, &more);
        record.look(300, &spreader, &more, &tags);
        spreader.tick(5_000_150);
        record.look(5_000_150, &spreader, &more, &tags);
        let mut by = children;
        by.sort_unstable();
        let told: Vec<_> = record.repairs(5_000_200).into_iter().map(|it| (it.age_us, it.servers)).collect();
        assert_eq!(
            told,
            [
                (5_000_100, vec![(silent, RepairCause::Silent { tree: 2, by })]),
                (5_000_000, vec![(lost, RepairCause::Lost)]),
                (4_999_900, vec![(1, RepairCause::Left), (21, RepairCause::Joined)]),
                (50, vec![(silent, RepairCause::Back)]),
            ]
        );
        assert_eq!((record.counts.complaints_received, record.counts.repairs), (2, 4));
    }

    #[test]
    fn who_lacks_what_is_told_by_entries_bytes_and_time() {
        let mut record = Record::default();
        for (at_us, last, bytes) in [(1000, 5, 100), (1500, 7, 10), (4000, 9, 1000)] {
            record.spread(at_us, last, bytes);
        }
        let late = |matched| {
            let Lateness { entries, bytes, age_us } = record.lateness(6000, matched, 9);
            (entries, bytes, age_us)
        };
        assert_eq!(late(9), (0, 0, 0));
        assert_eq!(late(8), (1, 1000, 2000));
        assert_eq!(late(7), (2, 1000, 2000));
        assert_eq!(late(6), (3, 1110, 5000), "moments are a millisecond");
        (0..10_000).for_each(|at| record.spread(10_000 + 1000 * at, 9 + at, 1));
        assert_eq!(record.moments.len(), MOMENTS_MAX);
    }

    #[test]
    fn frames_are_counted_by_what_they_are() {
        let mut record = Record::default();
        let frame = complaint(Epoch::default(), 1, 2);
        record.sent(&frame);
        (0..1000).for_each(|_| record.received(1, 9, &frame));
        let ForestCounts { complaints_sent, complaints_received, frames_sent, .. } = record.counts;
        assert_eq!((complaints_sent, complaints_received, frames_sent), (1, 1000, 0));
        assert_eq!(record.complaints.len(), COMPLAINTS_MAX);
        record.received(1, 9, &Bytes::new());
        record.received(1, 9, &Bytes::from_static(b"\x07"));
    }
}
