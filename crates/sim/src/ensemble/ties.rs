//! Readers and their parents: who is below whom, and what passes between them.
//!
//! A tie is a connection of a reader to its parent. What is said on it arrives in order, as long as it lasts; where the way
//! is cut it arrives later. A reader knows some addresses, of members and of other readers, and goes from one to the next.

use super::HostId;
use super::machine::draw_disk;
use super::process::{Chunks, Input};
use super::world::{Happening, World};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use stoa_core::{ConnectionId, Levels, ParentOutput, ParentTraits, ReaderOutput};
use stoa_storage::faulty::FaultyDisk;

/// What passes on a tie.
#[derive(Debug)]
enum Said {
    /// A partition's word to the same one at the other end.
    Word(u8, Bytes),
    Snapshot(Bytes, Chunks),
}

/// One end of a tie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TieEnd {
    Reader,
    Parent,
}

impl TieEnd {
    fn other(self) -> Self {
        match self {
            Self::Reader => Self::Parent,
            Self::Parent => Self::Reader,
        }
    }
}

/// What is on its way to one end.
#[derive(Debug, Default)]
struct Lane {
    said: VecDeque<Said>,
    arrives_us: u64,
    /// Its end has not noticed that the tie is gone.
    is_open: bool,
}

#[derive(Debug)]
struct Tie {
    reader: HostId,
    parent: HostId,
    lives: (u64, u64),
    to_reader: Lane,
    to_parent: Lane,
}

impl Tie {
    fn lane(&mut self, to: TieEnd) -> &mut Lane {
        match to {
            TieEnd::Reader => &mut self.to_reader,
            TieEnd::Parent => &mut self.to_parent,
        }
    }

    fn id(&self, of: TieEnd) -> HostId {
        match of {
            TieEnd::Reader => self.reader,
            TieEnd::Parent => self.parent,
        }
    }

    fn life(&self, of: TieEnd) -> u64 {
        match of {
            TieEnd::Reader => self.lives.0,
            TieEnd::Parent => self.lives.1,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Ties {
    ties: BTreeMap<u64, Tie>,
    /// The ties by what the parents call the readers.
    names: BTreeMap<ConnectionId, u64>,
    last: u64,
    /// The parents that each reader may have, the one that it tries next first.
    addresses: BTreeMap<HostId, VecDeque<HostId>>,
}

impl World {
    /// A reader has started, or has lost its parent.
    pub(super) fn seek_soon(&mut self, reader: HostId, within_us: u64) {
        let life = self.machines.get(&reader).map_or(0, |machine| machine.life);
        let after = self.rng.range(100, within_us);
        self.schedule(after, Happening::Seek(reader, life));
    }

    /// A reader looks for a parent.
    pub(super) fn seek(&mut self, reader: HostId, life: u64) {
        let has_one = self.ties.ties.values().any(|tie| tie.reader == reader && tie.to_reader.is_open);
        if self.in_life(reader, life).is_none() || has_one {
            return;
        }
        let Some(parent) = self.next_parent(reader) else { return self.seek_soon(reader, 60_000) };
        let history = self.standing(parent).history();
        let is_open = self.process(parent).is_some_and(|process| !process.is_stopping());
        let (Some(history), true, true) = (history, is_open, self.network.passes(reader, parent)) else {
            return self.seek_soon(reader, 60_000);
        };
        self.ties.last += 1;
        let link = self.ties.last;
        let lane = || Lane { is_open: true, ..Lane::default() };
        let lives = (life, self.machines[&parent].life);
        let tie = Tie { reader, parent, lives, to_reader: lane(), to_parent: lane() };
        self.ties.ties.insert(link, tie);
        self.ties.names.insert(ConnectionId::of_reader(link), link);
        self.counts.ties += 1;
        self.note("tie", format_args!("{link}: reader {reader} below {parent}"));
        let levels = self.process(reader).map_or(Levels::UNSAID, |it| it.first().tree().levels());
        for of in 0..self.partitions() {
            self.push(parent, of, Input::ReaderConnected(ConnectionId::of_reader(link), levels));
        }
        // Some parents are of the first release that had readers, but none of those that are of a site.
        let is_of_site = self.settings.config.site.is_some();
        let traits = ParentTraits { takes_reads: is_of_site || !link.is_multiple_of(4), is_of_site };
        self.push(reader, 0, Input::ParentConnected(link, history, traits));
    }

    /// From now on a reader knows this parent alone, or nobody.
    pub(crate) fn hang(&mut self, reader: HostId, parent: Option<HostId>) {
        self.ties.addresses.insert(reader, parent.into_iter().collect());
    }

    /// How many readers have a parent.
    pub(crate) fn tied(&self) -> usize {
        self.ties.ties.values().filter(|tie| tie.to_reader.is_open).count()
    }

    fn next_parent(&mut self, reader: HostId) -> Option<HostId> {
        if !self.ties.addresses.contains_key(&reader) {
            let first = self.settings.manners.first_id;
            if self.settings.switches {
                // Any of them may be a reader itself by now, and lead nowhere.
                let mut known: VecDeque<HostId> = self.others(reader).into();
                known.rotate_left(self.rng.index(known.len()));
                self.ties.addresses.insert(reader, known);
                return self.next_parent(reader);
            }
            let mut known: VecDeque<HostId> = (0..self.rng.range(1, 3))
                .map(|_| first + self.rng.index(self.machines.len()) as HostId)
                .filter(|id| *id != reader)
                .collect();
            // Some are known by other readers alone, but for one.
            known.push_back(first + self.rng.index(self.settings.servers) as HostId);
            self.ties.addresses.insert(reader, known);
        }
        let known = self.ties.addresses.get_mut(&reader).expect("it was just made");
        let next = known.pop_front()?;
        known.push_back(next);
        Some(next)
    }

    /// What a turn of a server has said to readers below it, and to its parent.
    pub(super) fn carry_ties(
        &mut self,
        id: HostId,
        of: u8,
        readers: Vec<(Vec<ConnectionId>, ReaderOutput)>,
        parent: Vec<ParentOutput>,
    ) {
        let each = readers.into_iter().flat_map(|(names, output)| {
            names.into_iter().map(move |name| (name, output.clone())).collect::<Vec<_>>()
        });
        for (name, output) in each {
            let link = self.ties.names.get(&name).copied();
            let Some(link) = link else { continue };
            match output {
                ReaderOutput::Say(word) => {
                    self.speak(link, TieEnd::Reader, Said::Word(of, word.encode().join()));
                }
                ReaderOutput::Snapshot { position, message } => match self.snapshot_at(id, position) {
                    Some(chunks) => self.speak(link, TieEnd::Reader, Said::Snapshot(message, chunks)),
                    None => _ = self.push(id, 0, Input::ReaderSnapshotSent(name, false)),
                },
                ReaderOutput::Drop(why) => {
                    self.note("tie", format_args!("{link}: dropped by {id}: {why}"));
                    self.untie(link, TieEnd::Parent, 5000);
                }
            }
        }
        for output in parent {
            match output {
                ParentOutput::Say(link, word) => {
                    self.speak(link, TieEnd::Parent, Said::Word(of, word.encode().join()));
                }
                ParentOutput::Leave(why) => {
                    let own =
                        self.ties.ties.iter().find(|(_, tie)| tie.reader == id && tie.to_reader.is_open);
                    if let Some(link) = own.map(|(link, _)| *link) {
                        self.note("tie", format_args!("{link}: left by {id}: {why}"));
                        self.untie(link, TieEnd::Reader, 5000);
                    }
                }
            }
        }
    }

    fn speak(&mut self, link: u64, to: TieEnd, said: Said) {
        let mut after = self.rng.range(50, 400);
        if let Said::Snapshot(..) = said {
            after += self.rng.range(1000, 40_000);
        }
        let mut at_us = self.now_us + after;
        if let (Some(traffic), Said::Word(_, word), Some(tie)) =
            (&mut self.network.traffic, &said, self.ties.ties.get(&link))
        {
            at_us = traffic.sends(tie.id(to.other()), self.now_us, word.len() as u64);
        }
        let Some(tie) = self.ties.ties.get_mut(&link) else { return };
        if !tie.lane(to.other()).is_open {
            // It speaks on what has ended.
            return;
        }
        if let Said::Word(_, word) = &said {
            self.trace.mix(word);
        }
        let lane = tie.lane(to);
        lane.arrives_us = lane.arrives_us.max(at_us);
        lane.said.push_back(said);
        let at_us = lane.arrives_us;
        self.schedule_at(at_us, Happening::Said(link, to));
    }

    /// The oldest word on its way to this end of a tie arrives, unless the way is cut.
    pub(super) fn said(&mut self, link: u64, to: TieEnd) {
        let Some(tie) = self.ties.ties.get_mut(&link) else { return };
        let (from_id, to_id, life) = (tie.id(to.other()), tie.id(to), tie.life(to));
        let lane = tie.lane(to);
        if !lane.is_open {
            return;
        }
        if !self.network.passes_one_way(from_id, to_id) {
            // What comes behind it waits, too.
            lane.arrives_us = lane.arrives_us.max(self.now_us + 10_000);
            let at_us = lane.arrives_us;
            return self.schedule_at(at_us, Happening::Said(link, to));
        }
        let Some(said) = lane.said.pop_front() else { return };
        if self.in_life(to_id, life).is_none() {
            return;
        }
        let shown = match &said {
            Said::Word(of, word) => format!("partition {of}: {:?}", &word[..word.len().min(40)]),
            Said::Snapshot(..) => "a snapshot".to_string(),
        };
        self.trace.detail(self.now_us, "said", format_args!("{link}: {from_id} to {to_id}: {shown}"));
        let name = ConnectionId::of_reader(link);
        match (to, said) {
            (TieEnd::Reader, Said::Word(of, word)) => {
                self.push(to_id, 0, Input::ParentSays(link, of, word));
            }
            (TieEnd::Reader, Said::Snapshot(message, chunks)) => {
                self.push(to_id, 0, Input::ParentSnapshot(message, chunks));
                self.push(from_id, 0, Input::ReaderSnapshotSent(name, true));
            }
            (TieEnd::Parent, Said::Word(of, word)) => _ = self.push(to_id, of, Input::ReaderSays(name, word)),
            (TieEnd::Parent, Said::Snapshot(..)) => {}
        }
    }

    /// A tie ends, which one end has noticed; the other one does within the time given.
    fn untie(&mut self, link: u64, noticed_by: TieEnd, within_us: u64) {
        self.untied(link, noticed_by);
        let after = self.rng.range(100, within_us);
        self.schedule(after, Happening::Untied(link, noticed_by.other()));
    }

    /// This end of a tie has noticed that it is gone.
    pub(super) fn untied(&mut self, link: u64, end: TieEnd) {
        let Some(tie) = self.ties.ties.get_mut(&link) else { return };
        let (id, life) = (tie.id(end), tie.life(end));
        let lane = tie.lane(end);
        if !std::mem::take(&mut lane.is_open) {
            return;
        }
        lane.said.clear();
        let is_gone = !tie.to_reader.is_open && !tie.to_parent.is_open;
        if is_gone {
            self.ties.ties.remove(&link);
            self.ties.names.remove(&ConnectionId::of_reader(link));
        }
        if self.in_life(id, life).is_none() {
            return;
        }
        match end {
            TieEnd::Reader => {
                self.push(id, 0, Input::ParentLost(link));
                self.seek_soon(id, 20_000);
            }
            TieEnd::Parent => {
                for of in 0..self.partitions() {
                    self.push(id, of, Input::ReaderLost(ConnectionId::of_reader(link)));
                }
            }
        }
    }

    /// A server has ended: so have its ties, which the others notice within the time given.
    pub(super) fn untie_all(&mut self, id: HostId, within_us: u64) {
        for (link, end) in self.ties_of(id) {
            self.untie(link, end, within_us);
        }
    }

    fn ties_of(&self, id: HostId) -> Vec<(u64, TieEnd)> {
        let ends = self.ties.ties.iter().flat_map(|(link, tie)| {
            [(*link, TieEnd::Reader, tie.reader), (*link, TieEnd::Parent, tie.parent)]
        });
        ends.filter(|(_, _, of)| *of == id).map(|(link, end, _)| (link, end)).collect()
    }

    /// A reader finds that another parent than its own would be better.
    pub(super) fn offer_better(&mut self, id: HostId) {
        let own = self.ties.ties.iter().find(|(_, tie)| tie.reader == id && tie.to_reader.is_open);
        if let Some(link) = own.map(|(link, _)| *link) {
            self.push(id, 0, Input::ParentBetter(link));
        }
    }

    /// One of the ties of a server breaks.
    pub(super) fn break_tie(&mut self, id: HostId) {
        let all = self.ties_of(id);
        if !all.is_empty() {
            let (link, end) = *self.rng.pick(&all);
            self.untie(link, end, 20_000);
        }
    }

    /// The disk of a reader is lost: nobody counts on it.
    pub(super) fn empty_reader(&mut self, id: HostId) {
        self.troubled(0);
        self.crash(id, "its disk is lost", true);
        let (disk, disk_id) = (FaultyDisk::new(self.rng.next_u64()), draw_disk(&mut self.rng));
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.replace(disk, disk_id);
            self.counts.emptied += 1;
        }
    }

    /// Those that are no readers.
    pub(crate) fn member_ids(&self) -> Vec<HostId> {
        self.machines.keys().copied().filter(|id| !self.is_reader(*id)).collect()
    }

    /// The readers, in the end.
    pub(crate) fn readers(&self) -> Vec<HostId> {
        self.machines.keys().copied().filter(|id| self.is_reader(*id)).collect()
    }
}
