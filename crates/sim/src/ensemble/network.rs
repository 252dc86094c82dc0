//! The network between the servers: connections, one for each partition of two servers, that break and come back, and
//! messages on them that are lost, doubled, late or overtaken. What a process has sent never arrives after its successor
//! has a connection.

use super::HostId;
use super::costs::Traffic;
use super::process::Chunks;
use crate::rng::Rng;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A message on its way.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) from: HostId,
    pub(super) to: HostId,
    pub(super) partition: u8,
    pub(super) message: Bytes,
    pub(super) snapshot: Option<Chunks>,
    epoch: u64,
    /// It is at its receiver's card.
    is_at_card: bool,
}

impl Parcel {
    fn bytes(&self) -> u64 {
        let chunks = self.snapshot.iter().flat_map(|chunks| chunks.iter());
        (chunks.map(Vec::len).sum::<usize>() + self.message.len()) as u64
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Wire {
    up: bool,
    /// Counts its connections.
    epoch: u64,
    /// Until when somebody may not have noticed the end of the one before.
    noticed_us: u64,
}

/// How messages fare.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weather {
    pub(super) loss_percent: u32,
    pub(super) double_percent: u32,
    pub(super) late_percent: u32,
}

/// The network between the servers.
#[derive(Default)]
pub(super) struct Network {
    /// By the two servers and the partition.
    links: BTreeMap<(HostId, HostId, u8), Wire>,
    /// From, to and partition: there nothing arrives.
    cuts: BTreeSet<(HostId, HostId, u8)>,
    pub(super) weather: Weather,
    /// What messages cost, if they cost anything.
    pub(super) traffic: Option<Traffic>,
    parcels: BTreeMap<u64, Parcel>,
    next_parcel: u64,
    /// How often this befell a message.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) late: u64,
}

fn pair(a: HostId, b: HostId, partition: u8) -> (HostId, HostId, u8) {
    (a.min(b), a.max(b), partition)
}

impl Network {
    pub(super) fn new(weather: Weather) -> Self {
        Self { weather, ..Self::default() }
    }

    /// Nothing that a partition of one server sends arrives at the other any more.
    pub(super) fn cut(&mut self, from: HostId, to: HostId, partition: u8) {
        self.cuts.insert((from, to, partition));
    }

    /// Everything arrives again.
    pub(super) fn mend(&mut self) {
        self.cuts.clear();
    }

    fn is_whole(&self, a: HostId, b: HostId, partition: u8) -> bool {
        !self.cuts.contains(&(a, b, partition)) && !self.cuts.contains(&(b, a, partition))
    }

    /// Whether a partition of two servers has a connection.
    pub(super) fn is_up(&self, a: HostId, b: HostId, partition: u8) -> bool {
        self.links.get(&pair(a, b, partition)).is_some_and(|link| link.up)
    }

    /// Whether what one server sends arrives at the other one, whatever it is of.
    pub(super) fn passes_one_way(&self, from: HostId, to: HostId) -> bool {
        !self.cuts.contains(&(from, to, 0))
    }

    /// The same for both ways.
    pub(super) fn passes(&self, a: HostId, b: HostId) -> bool {
        self.passes_one_way(a, b) && self.passes_one_way(b, a)
    }

    /// Whether two running servers could be connected; `Err` says when to try again.
    pub(super) fn reaches(&self, a: HostId, b: HostId, partition: u8, now_us: u64) -> Result<(), u64> {
        let link = self.links.get(&pair(a, b, partition)).copied().unwrap_or_default();
        let is_open = self.is_whole(a, b, partition) && now_us >= link.noticed_us;
        if is_open { Ok(()) } else { Err(now_us + 50_000) }
    }

    /// Makes a connection between two running servers; `Err` says when to try again.
    pub(super) fn connect(&mut self, a: HostId, b: HostId, partition: u8, now_us: u64) -> Result<bool, u64> {
        let reaches = self.reaches(a, b, partition, now_us);
        let link = self.links.entry(pair(a, b, partition)).or_default();
        if link.up {
            return Ok(false);
        }
        reaches?;
        link.up = true;
        link.epoch += 1;
        Ok(true)
    }

    /// A connection ends; both have noticed at the time given. Returns whether there was one.
    pub(super) fn disconnect(&mut self, a: HostId, b: HostId, partition: u8, noticed_us: u64) -> bool {
        let link = self.links.entry(pair(a, b, partition)).or_default();
        link.noticed_us = link.noticed_us.max(noticed_us);
        std::mem::replace(&mut link.up, false)
    }

    /// Sends a message: returns when which parcels arrive.
    pub(super) fn send(
        &mut self,
        (from, to, partition): (HostId, HostId, u8),
        message: Bytes,
        snapshot: Option<Chunks>,
        (now_us, rng): (u64, &mut Rng),
    ) -> Vec<(u64, u64)> {
        let link = self.links.get(&pair(from, to, partition)).copied().unwrap_or_default();
        if !link.up {
            return Vec::new();
        }
        let whole = snapshot.is_some();
        let parcel = Parcel { from, to, partition, message, snapshot, epoch: link.epoch, is_at_card: false };
        let lost = !whole && rng.percent(self.weather.loss_percent);
        let copies = match (lost, !whole && rng.percent(self.weather.double_percent)) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        self.lost += u64::from(copies == 0);
        self.doubled += u64::from(copies == 2);
        if let Some(traffic) = &mut self.traffic {
            let there_us = traffic.sends(from, now_us, parcel.bytes());
            self.next_parcel += 1;
            self.parcels.insert(self.next_parcel, parcel);
            return vec![(there_us.saturating_sub(now_us), self.next_parcel)];
        }
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            self.next_parcel += 1;
            self.parcels.insert(self.next_parcel, parcel.clone());
            let late = rng.percent(self.weather.late_percent);
            self.late += u64::from(late);
            let mut after_us = if late { rng.range(500, 60_000) } else { rng.range(100, 500) };
            if whole {
                after_us += rng.range(1000, 40_000);
            }
            arrivals.push((after_us, self.next_parcel));
        }
        arrivals
    }

    /// A parcel is at its receiver's card. Returns when it has come in, if that is later.
    pub(super) fn receives(&mut self, id: u64, now_us: u64) -> Option<u64> {
        let traffic = self.traffic.as_mut()?;
        let parcel = self.parcels.get_mut(&id).filter(|parcel| !parcel.is_at_card)?;
        parcel.is_at_card = true;
        let in_us = traffic.receives(parcel.to, now_us, parcel.bytes());
        (in_us > now_us).then_some(in_us)
    }

    /// A parcel has come to its end; `None` when it does not arrive.
    pub(super) fn arrive(&mut self, id: u64) -> (Option<Parcel>, Option<(HostId, HostId)>) {
        let Some(parcel) = self.parcels.remove(&id) else { return (None, None) };
        let Parcel { from, to, partition, .. } = parcel;
        let link = self.links.get(&pair(from, to, partition)).copied().unwrap_or_default();
        let ends = (from, to);
        let arrives = link.epoch == parcel.epoch && link.up && !self.cuts.contains(&(from, to, partition));
        let given_up = (!arrives && parcel.snapshot.is_some()).then_some(ends);
        (arrives.then_some(parcel), given_up)
    }
}
