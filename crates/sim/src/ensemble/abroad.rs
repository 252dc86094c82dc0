//! What servers of one of several sites say to other sites, and hear from them: as the server's driver does it. Who
//! carries it is the world of several sites.

use super::HostId;
use super::machine::draw_disk;
use super::process::{Input, Process, TurnOutput};
use super::visitor::Judges;
use super::whole::Whole;
use super::world::World;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use stoa_core::{Backlog, BacklogWanted, Claim, KnownDisks, Levels, Now, Shard, SiteId, SiteLevels, SiteSet};
use stoa_storage::faulty::FaultyDisk;
use stoa_storage::inspect::{self, Finding};

/// Entries of the log that another site lacks: behind which position, up to which one, and in which pieces.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) site: SiteId,
    since: u64,
    upto: u64,
    chunks: VecDeque<Vec<(u64, Bytes)>>,
}

/// What a server hears of other sites.
#[derive(Debug, Clone)]
pub(crate) enum FromAbroad {
    /// There are sites from now on, this is the hub, and so many stand in the list.
    Begin(SiteId, usize),
    Connected(SiteId),
    Lost(SiteId),
    Message(SiteId, Bytes),
    /// A slice of the hub's state; with how many partitions that has, if it is the first, and else 0.
    Slice(u8, Vec<u8>),
    /// That was all: the number of this site, the hub's, and the position of the state.
    StateEnded(SiteId, SiteId, u64),
    /// More of the log was read.
    Read(Reading),
    /// The others have given this site up.
    GivenUp,
    /// Another site is to be the hub.
    Follow(Claim),
    /// An operator has this site claim to be the hub, without those that are given up. The others have to follow.
    Promote {
        lost: SiteSet,
        others: SiteSet,
    },
    /// This site is to take the place of the hub, which nobody hears.
    TakePlace(SiteSet),
    /// An operator has a site given up.
    Lose(SiteId),
    /// An operator has this site, which was given up, take the hub's state.
    Discard,
    /// The leader of another site has said what that can read and write.
    Levels(SiteId, SiteLevels),
    /// An operator has the feature level raised.
    Raise,
}

/// What it has for them.
#[derive(Debug, Clone)]
pub(crate) enum Abroad {
    Message(SiteId, Bytes),
    /// A site waits for the state, which is at a position.
    State(SiteId, u64),
    /// A site lacks what stands behind a position, up to another one.
    Backlog(BacklogWanted),
    /// The rest of what was read.
    Rest(Reading),
    /// A site lacks what this one's log does not have any more.
    Torn(SiteId),
}

/// What a server that runs is, as the others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envoy {
    pub(crate) server: HostId,
    pub(crate) life: u64,
    pub(crate) term: u64,
    pub(crate) leads: bool,
    /// It is elected in its term. Who leads and is not has yet to take in that another term has come.
    pub(crate) is_elected: bool,
}

/// The list of so many sites.
fn list_of(count: usize) -> String {
    let lines = (1..=count).map(|site| format!("site.{site}=site-{site};host-{site}:2889\n"));
    lines.collect()
}

/// So many entries that were read from the log come at a time.
const READ_AT_A_TIME: usize = 3;

impl Process {
    /// Something has come from another site, or follows from it.
    pub(super) fn hear_abroad(
        &mut self,
        heard: FromAbroad,
        now: Now,
        out: &mut TurnOutput,
    ) -> Result<(), String> {
        let core = &mut self.thread(0).core;
        match heard {
            FromAbroad::Begin(hub, count) => _ = core.begin_sites(hub, &list_of(count), now),
            FromAbroad::Connected(site) => core.site_connected(site, now),
            FromAbroad::Lost(site) => core.site_lost(site),
            FromAbroad::Message(from, message) => {
                let read = core.site_message(from, &message, now);
                return read.map_err(|_| format!("cannot read what site {from} says"));
            }
            FromAbroad::Slice(begins, slice) => core.site_state(begins, &slice, now),
            FromAbroad::StateEnded(own, hub, position) => core.site_state_ended(own, hub, position, now),
            FromAbroad::GivenUp => core.site_is_lost(now),
            FromAbroad::Follow(claim) => core.follow_site(claim, now),
            // Who is refused is asked once more, or another one is.
            FromAbroad::Promote { lost, others } => _ = core.claim_reign(lost, others, now),
            FromAbroad::TakePlace(others) => _ = core.take_place(others, now),
            FromAbroad::Lose(site) => _ = core.lose_site(site, now),
            FromAbroad::Discard => _ = core.discard_site(now),
            FromAbroad::Levels(site, levels) => core.site_levels(site, levels),
            FromAbroad::Raise => _ = core.raise_level(now),
            FromAbroad::Read(mut reading) => match reading.chunks.pop_front() {
                None => core.site_backlog_ended(reading.site, reading.upto, now),
                Some(chunk) => {
                    if core.site_backlog(reading.site, reading.since, &chunk, now) {
                        reading.since = chunk.last().map_or(reading.since, |(position, _)| *position);
                        out.abroad.push(Abroad::Rest(reading));
                    }
                }
            },
        }
        Ok(())
    }

    /// Takes what there is for other sites.
    pub(super) fn speak_abroad(&mut self, out: &mut TurnOutput) {
        let core = &mut self.thread(0).core;
        while let Some((to, message)) = core.poll_site() {
            out.abroad.push(Abroad::Message(to, message));
        }
        while let Some((to, position)) = core.poll_site_state() {
            out.abroad.push(Abroad::State(to, position));
        }
        while let Some(wanted) = core.poll_site_backlog() {
            out.abroad.push(Abroad::Backlog(wanted));
        }
        while let Some(site) = core.poll_torn_site() {
            out.abroad.push(Abroad::Torn(site));
        }
    }
}

impl World {
    /// When something happens next.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.events.peek().map(|std::cmp::Reverse((at, ..))| *at)
    }

    /// Something has come from another site for a server in this life.
    pub(crate) fn comes_from_abroad(
        &mut self,
        now_us: u64,
        (server, life): (HostId, u64),
        heard: FromAbroad,
    ) {
        self.now_us = self.now_us.max(now_us);
        if self.in_life(server, life).is_some() {
            self.push(server, 0, Input::Abroad(heard));
        }
    }

    /// A server gets another release, and starts again with it. False if it has that already.
    pub(crate) fn gets_release(&mut self, id: HostId, levels: Levels) -> bool {
        if self.levels.insert(id, levels) == Some(levels) {
            return false;
        }
        self.crash(id, "it gets another release", false);
        true
    }

    /// Prints what another site says, where somebody reads along.
    pub(crate) fn told_by(&mut self, from: SiteId, message: &Bytes) {
        let numbers: Vec<u64> = message
            .get(1..)
            .unwrap_or_default()
            .chunks_exact(8)
            .take(2)
            .map(|number| number.try_into().map_or(0, u64::from_le_bytes))
            .collect();
        let what = format_args!("by site {from}: {:?} {numbers:?}, {} bytes", message.first(), message.len());
        self.trace.detail(self.now_us, "told", what);
    }

    /// What servers have for other sites, and in which life.
    pub(crate) fn take_abroad(&mut self) -> Vec<(HostId, u64, Abroad)> {
        std::mem::take(&mut self.abroad)
    }

    /// What this site is called where somebody reads along.
    pub(crate) fn calls_itself(&mut self, site: SiteId) {
        self.trace.is_of(site);
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal_at(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.heal();
    }

    /// All servers of this site, which are down, have empty folders, and nothing is expected of what they had.
    pub(crate) fn begins_anew(&mut self) {
        self.judges = Judges::new();
        self.lost.clear();
        for id in self.ids() {
            let (disk, disk_id) = (FaultyDisk::new(self.rng.next_u64()), draw_disk(&mut self.rng));
            if let Some(machine) = self.machines.get_mut(&id) {
                machine.replace(disk, disk_id);
                machine.held.known = KnownDisks::default();
            }
        }
        self.note("disk", format_args!("all servers have empty ones"));
    }

    /// The newest term that anybody was seen to lead.
    pub(crate) fn newest_led(&self) -> u64 {
        self.judges.history.newest_led()
    }

    /// All servers that run.
    pub(crate) fn envoys(&self) -> Vec<Envoy> {
        let of = |(server, process): (HostId, &Process)| {
            let core = process.first();
            let life = self.machines[&server].life;
            let status = core.status();
            let is_elected = status.leader.map(HostId::from) == Some(server);
            Envoy { server, life, term: status.term, leads: core.leads(), is_elected }
        };
        self.running().map(of).collect()
    }

    /// What the clock of a server shows at a moment.
    pub(crate) fn clock_of(&self, server: HostId, world_us: u64) -> Option<Now> {
        Some(self.machines.get(&server)?.clock.now(world_us))
    }

    /// Clocks go at different speeds, up to so many millionths faster than others, and none shows what another one does.
    pub(crate) fn clocks_differ(&mut self, most_ppm: u64, offset_us: u64) {
        for machine in self.machines.values_mut() {
            let fast_ppm = match self.rng.below(3) {
                0 => 0,
                1 => most_ppm,
                _ => self.rng.below(most_ppm),
            };
            machine.clock.goes(fast_ppm, self.rng.below(offset_us));
        }
    }

    /// All clocks go so many millionths faster than others, and do not start far from each other.
    pub(crate) fn clocks_go(&mut self, fast_ppm: u64, offset_us: u64) {
        for machine in self.machines.values_mut() {
            machine.clock.goes(fast_ppm, self.rng.below(offset_us));
        }
    }

    /// Whether a server stands still.
    pub(crate) fn is_paused(&self, server: HostId) -> bool {
        self.machines.get(&server).is_some_and(|machine| machine.paused_until_us > self.now_us)
    }

    /// The server that has had a turn in the last step, if one has, and which of its threads.
    pub(crate) fn just_turned(&self) -> Option<(HostId, u8)> {
        self.turned
    }

    /// The first partition of a server that runs, which has what is between sites.
    pub(crate) fn shard(&self, server: HostId) -> Option<&Shard> {
        self.process(server).map(Process::first)
    }

    /// All partitions of a server that runs.
    pub(crate) fn whole(&self, server: HostId) -> Option<Whole<'_>> {
        self.process(server).map(|process| Whole::new(&process.threads))
    }

    /// Into how many partitions this site is divided.
    pub(crate) fn divided(&self) -> u8 {
        self.partitions()
    }

    /// Reads what a site lacks from the log of a server.
    ///
    /// # Errors
    /// Why that cannot be: the log does not reach back so far, or its disk fails.
    pub(crate) fn read_log(&mut self, server: HostId, wanted: BacklogWanted) -> Result<Reading, String> {
        let BacklogWanted { site, since, upto, .. } = wanted;
        let Some(machine) = self.machines.get(&server) else { return Err("it is not there".into()) };
        // Whatever befalls the disk befalls who writes to it.
        let mut disk = machine.held.disk.clone();
        disk.clear_fault();
        let (mut backlog, mut entries, mut failed) = (Backlog::new(wanted), Vec::new(), None);
        let walked = inspect::log(&mut disk, &mut |_, finding| {
            let Finding::Entry { payload, .. } = finding else { return ControlFlow::Continue(()) };
            if let Err(why) = backlog.record(Bytes::copy_from_slice(payload), &mut entries) {
                failed = Some(why.to_string());
                return ControlFlow::Break(());
            }
            if backlog.is_done() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        walked.map_err(|error| error.to_string())?;
        if let Some(why) = failed {
            return Err(why);
        }
        backlog.end(&mut entries).map_err(|why| why.to_string())?;
        let chunks = entries.chunks(READ_AT_A_TIME).map(<[_]>::to_vec).collect();
        Ok(Reading { site, since, upto, chunks })
    }
}
