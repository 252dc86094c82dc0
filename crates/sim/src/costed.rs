//! What an ensemble does where messages cost something: how long writes take, what its leader says, and how long it is
//! without one, for as many servers as there may be. It is not about faults, and one seed is as good as another, though
//! everything still follows from it and is judged as ever.

use crate::ensemble::HostId;
use crate::ensemble::{Act, CALM, Costs, Exchanged, Failure, Judges, Settings, Visitor, World};
use crate::frames::{frame, request, whole};
use std::cell::RefCell;
use std::rc::Rc;
use stoa_check::Violation;
use stoa_core::{ForestConfig, Relief};
use stoa_wire::{ConnectRequest, OPEN_ACL, Opcode, PASSWORD_LEN, request::encode};

/// How long it may take until there is a leader whom all follow, microseconds.
const BEGINS_US: u64 = 8_000_000;
/// A server is looked at for so long after somebody has failed, microseconds.
const AFTER_US: u64 = 3_000_000;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ensemble {
    /// How many servers vote.
    pub servers: usize,
    /// Whether appends go down trees, from ten servers on.
    pub has_forest: bool,
    /// How many readers there are.
    pub readers: usize,
    /// As many of them are right below each server that does not lead; the others are below those, evenly.
    pub fan_out: usize,
    /// What things cost.
    pub costs: Costs,
}

/// Who fails, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// The leader's process ends.
    LeaderEnds,
    /// The leader stands still.
    LeaderFreezes,
    /// The root of a tree, which coordinates its group, ends.
    RootEnds,
    /// It stands still.
    RootFreezes,
    /// Some other server, which has children in one tree, ends.
    OtherEnds,
    /// It stands still.
    OtherFreezes,
}

/// What writes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// How long a write takes, the median, microseconds.
    pub median_us: u64,
    /// The hundredth of them that takes longest takes at least so long, microseconds.
    pub slow_us: u64,
    /// Writes a second.
    pub rate: u64,
    /// Entries of the log.
    pub batches: u64,
    /// Their bytes.
    pub batch_bytes: u64,
    /// What the leader has said and heard meanwhile.
    pub leader: Exchanged,
    /// The same of a parent of readers; nothing where there are none.
    pub parent: Exchanged,
}

/// When writes were sent, and when they were answered.
type Record = Rc<RefCell<Vec<(u64, u64)>>>;

/// A client that writes the same znode again and again.
struct Writer {
    server: usize,
    servers: usize,
    window: usize,
    path: String,
    data: Vec<u8>,
    stage: Stage,
    inbox: Vec<u8>,
    xid: i32,
    sent_us: std::collections::VecDeque<u64>,
    record: Record,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Away,
    Greets,
    Creates,
    Writes,
}

impl Writer {
    fn ask(&mut self, opcode: Opcode, now_us: u64) -> Act {
        self.xid += 1;
        self.sent_us.push_back(now_us);
        let (path, data) = (&self.path, &self.data);
        Act::Send(request(self.xid, opcode as i32, |out| match opcode {
            Opcode::Create => encode::create(out, path, Some(b""), OPEN_ACL, 0, None),
            _ => encode::set_data(out, path, Some(data), -1),
        }))
    }
}

impl Visitor for Writer {
    fn wake(&mut self, _: &mut Judges, _: u64) -> Result<(Vec<Act>, u64), Violation> {
        if self.stage != Stage::Away {
            return Ok((Vec::new(), 10_000));
        }
        self.stage = Stage::Greets;
        let hello = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 30_000,
            session_id: 0,
            password: &[0; PASSWORD_LEN],
            read_only: None,
        };
        Ok((vec![Act::Connect(self.server, frame(|out| hello.encode(out)))], 10_000))
    }

    fn receive(&mut self, bytes: &[u8], _: &mut Judges, now_us: u64) -> Result<Vec<Act>, Violation> {
        let mut acts = Vec::new();
        for _ in whole(&mut self.inbox, bytes)? {
            match self.stage {
                Stage::Away => {}
                Stage::Greets => {
                    self.stage = Stage::Creates;
                    acts.push(self.ask(Opcode::Create, now_us));
                }
                Stage::Creates => {
                    self.stage = Stage::Writes;
                    self.sent_us.clear();
                    for _ in 0..self.window {
                        acts.push(self.ask(Opcode::SetData, now_us));
                    }
                }
                Stage::Writes => {
                    let sent_us = self.sent_us.pop_front().unwrap_or(now_us);
                    self.record.borrow_mut().push((sent_us, now_us));
                    acts.push(self.ask(Opcode::SetData, now_us));
                }
            }
        }
        Ok(acts)
    }

    fn gone(&mut self) {
        self.stage = Stage::Away;
        self.server = (self.server + 1) % self.servers;
        self.inbox.clear();
        self.sent_us.clear();
    }

    fn finish(&mut self) {}

    fn is_done(&self) -> bool {
        true
    }

    fn waits_for(&self) -> String {
        String::new()
    }

    fn requests(&self) -> u64 {
        0
    }
}

impl Ensemble {
    fn begin(self, seed: u64) -> Result<(World, HostId), Failure> {
        let mut settings = Settings { servers: self.servers, faults: CALM, ..Settings::base() };
        settings.manners.clients = 0;
        settings = settings.with_readers(self.readers);
        settings.segment_bytes = 4 << 20;
        let own = stoa_core::Config::default();
        settings.config = stoa_core::Config {
            tick_ms: own.tick_ms,
            session_timeout_min_ms: own.session_timeout_min_ms,
            session_timeout_max_ms: own.session_timeout_max_ms,
            heartbeat_ms: own.heartbeat_ms,
            election_heartbeats: own.election_heartbeats,
            snapshot_updates: own.snapshot_updates,
            kept_bytes: 4 << 20,
            relief: Relief { forest: self.has_forest.then(ForestConfig::default), ..Relief::default() },
            ..settings.config
        };
        let mut world = World::empty(seed, settings, false);
        world.charge(self.costs);
        let readers = world.readers();
        readers.iter().for_each(|reader| world.hang(*reader, None));
        world.pass(BEGINS_US)?;
        let leader = world.leader().ok_or_else(|| Failure::Liveness("nobody leads".into()))?;
        if !readers.is_empty() {
            let others: Vec<HostId> = (1..=self.servers as HostId).filter(|id| *id != leader).collect();
            let upper = readers.len().min(others.len() * self.fan_out);
            let parents = others.iter().cycle().take(upper).chain(readers[..upper].iter().cycle());
            readers.iter().zip(parents).for_each(|(reader, parent)| world.hang(*reader, Some(*parent)));
            world.pass(BEGINS_US)?;
            if world.tied() < readers.len() || world.leader() != Some(leader) {
                return Err(Failure::Liveness("not all readers have a parent".into()));
            }
        }
        Ok((world, leader))
    }

    fn enter(self, world: &mut World, server: HostId, (window, bytes): (usize, usize)) -> Record {
        let record = Record::default();
        world.enter(Box::new(Writer {
            server: usize::from(server - 1),
            servers: self.servers,
            window,
            path: format!("/w{}", world.come_so_far()),
            data: vec![7; bytes],
            stage: Stage::Away,
            inbox: Vec::new(),
            xid: 0,
            sent_us: Default::default(),
            record: Rc::clone(&record),
        }));
        record
    }

    /// So many clients of the leader write so many bytes at a time for a while, each with so many writes under way.
    ///
    /// # Errors
    /// What went wrong.
    pub fn write(
        self,
        seed: u64,
        (clients, window): (usize, usize),
        bytes: usize,
    ) -> Result<Written, Failure> {
        const LASTS_US: u64 = 500_000;
        let (mut world, leader) = self.begin(seed)?;
        let records: Vec<Record> =
            (0..clients).map(|_| self.enter(&mut world, leader, (window, bytes))).collect();
        world.pass(500_000)?;
        let (before, entries, entry_bytes) =
            (world.exchanged(leader), world.committed(), world.committed_bytes());
        let parent = (1..=self.servers as HostId).find(|id| *id != leader).filter(|_| self.readers > 0);
        let of_parent = |world: &World| parent.map(|id| world.exchanged(id)).unwrap_or_default();
        let parent_before = of_parent(&world);
        records.iter().for_each(|record| record.borrow_mut().clear());
        world.pass(LASTS_US)?;
        let mut took: Vec<u64> = Vec::new();
        for record in &records {
            took.extend(record.borrow().iter().map(|(sent_us, at_us)| at_us - sent_us));
        }
        took.sort_unstable();
        let at = |hundredths: usize| took.get(took.len() * hundredths / 100).copied().unwrap_or(0);
        Ok(Written {
            median_us: at(50),
            slow_us: at(99),
            rate: took.len() as u64 * 1_000_000 / LASTS_US,
            batches: world.committed() - entries,
            batch_bytes: world.committed_bytes() - entry_bytes,
            leader: less(world.exchanged(leader), before),
            parent: less(of_parent(&world), parent_before),
        })
    }

    /// Nobody asks for anything: what the leader says and hears in a second.
    ///
    /// # Errors
    /// What went wrong.
    pub fn idle(self, seed: u64) -> Result<Exchanged, Failure> {
        const SECONDS: u64 = 5;
        let (mut world, leader) = self.begin(seed)?;
        let before = world.exchanged(leader);
        world.pass(SECONDS * 1_000_000)?;
        let said = less(world.exchanged(leader), before);
        Ok(Exchanged {
            sent: said.sent / SECONDS,
            sent_bytes: said.sent_bytes / SECONDS,
            received: said.received / SECONDS,
        })
    }

    /// Clients of four servers write, one write after the other, and somebody fails: for how long no write is answered
    /// anywhere, microseconds, and how many leaders there were until that was over.
    ///
    /// # Errors
    /// What went wrong.
    pub fn fail(self, seed: u64, failing: Failing) -> Result<(u64, u64), Failure> {
        let (mut world, leader) = self.begin(seed)?;
        let roots = world.roots(leader);
        let others: Vec<HostId> =
            (1..=self.servers as HostId).filter(|id| *id != leader && !roots.contains(id)).collect();
        let at = |from: &[HostId], nth: u64| {
            from.get((seed.wrapping_add(nth) % from.len().max(1) as u64) as usize).copied()
        };
        let victim = match failing {
            Failing::LeaderEnds | Failing::LeaderFreezes => Some(leader),
            Failing::RootEnds | Failing::RootFreezes => at(&roots, 0),
            Failing::OtherEnds | Failing::OtherFreezes => at(&others, 0),
        };
        let victim = victim.ok_or_else(|| Failure::Liveness("there is nobody to fail".into()))?;
        let hosts: Vec<HostId> =
            (1..=4).filter_map(|nth| at(&others, nth)).filter(|id| *id != victim).collect();
        let records: Vec<Record> =
            hosts.into_iter().map(|server| self.enter(&mut world, server, (1, 100))).collect();
        world.pass(300_000 + seed % 7 * 13_000)?;
        let (failed_us, terms) = (world.now_us(), world.terms());
        match failing {
            Failing::LeaderEnds | Failing::RootEnds | Failing::OtherEnds => world.kill(victim),
            _ => world.pause(victim, 4 * AFTER_US),
        }
        world.pass(AFTER_US)?;
        let mut answered: Vec<u64> = Vec::new();
        for record in &records {
            answered.extend(record.borrow().iter().map(|(_, at_us)| *at_us));
        }
        answered.extend([failed_us, world.now_us()]);
        answered.sort_unstable();
        let from = answered.partition_point(|at_us| *at_us < failed_us).saturating_sub(1);
        let gaps = answered.windows(2).skip(from).map(|pair| pair[1] - pair[0]);
        Ok((gaps.max().unwrap_or(0), world.terms() - terms))
    }
}

fn less(after: Exchanged, before: Exchanged) -> Exchanged {
    Exchanged {
        sent: after.sent - before.sent,
        sent_bytes: after.sent_bytes - before.sent_bytes,
        received: after.received - before.received,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensemble(servers: usize, has_forest: bool) -> Ensemble {
        Ensemble { servers, has_forest, readers: 0, fan_out: 5, costs: Costs::default() }
    }

    #[test]
    fn readers_cost_the_leader_nothing_and_a_write_little() {
        let without = ensemble(5, false).write(1, (1, 1), 1000).unwrap();
        let with = Ensemble { readers: 40, ..ensemble(5, false) }.write(1, (1, 1), 1000).unwrap();
        let bytes = |it: &Written| it.leader.sent_bytes as f64 / it.batch_bytes as f64;
        assert!((0.99..1.01).contains(&(bytes(&with) / bytes(&without))), "{with:?} {without:?}");
        assert!(with.median_us as f64 <= 1.1 * without.median_us as f64, "{with:?} {without:?}");
        let each = with.parent.sent as f64 / with.batches as f64;
        assert!(
            (5.0..8.0).contains(&each),
            "one for each of the five readers right below, and what the leader is told: {each}"
        );
    }

    #[test]
    fn a_leader_of_a_forest_says_little_and_a_star_s_says_it_to_all() {
        let [trees, star] =
            [true, false].map(|has_forest| ensemble(15, has_forest).write(1, (1, 1), 1000).unwrap());
        assert!(trees.rate > 500 && star.rate > 500, "{trees:?} {star:?}");
        let sent = |it: &Written| it.leader.sent_bytes as f64 / it.batch_bytes as f64;
        assert!(sent(&trees) < 3.0, "{trees:?}");
        assert!(sent(&star) > 13.0, "{star:?}");
    }

    #[test]
    fn writes_go_on_without_a_leader_or_a_root() {
        for (failing, at_most_us) in
            [(Failing::LeaderEnds, 100_000), (Failing::RootEnds, 20_000), (Failing::RootFreezes, 20_000)]
        {
            let (gap_us, _) = ensemble(15, true).fail(3, failing).unwrap();
            assert!(gap_us < at_most_us, "{failing:?}: {gap_us} us");
        }
    }
}
