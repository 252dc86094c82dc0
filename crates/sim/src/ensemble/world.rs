//! The world of an ensemble: time, machines, the network, clients. One seed decides everything.

use super::abroad::Abroad;
use super::client::{Client, Tally};
use super::costs::{Costs, Exchanged, Traffic};
use super::disaster::Backup;
use super::links::{Links, Passing, Way};
use super::loss::Lost;
use super::machine::Machine;
use super::met::Met;
use super::network::{Network, Weather};
use super::process::{Chunks, GIVEN, Input, Key, Process, Scene, Stop, TurnOutput};
use super::settings::Settings;
use super::ties::{TieEnd, Ties};
use super::trouble::Trouble;
use super::visitor::{Judges, Visitor};
use super::workload::Tagged;
use super::{HostId, number};
use crate::disk_thread::SnapshotDone;
use crate::rng::Rng;
use crate::trace::Trace;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use stoa_check::{Checker, Counts, Violation};
use stoa_core::{HistoryId, Levels, PeerOutput, Standing};

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Something must never happen, and happened.
    Correctness(Violation),
    /// Something must happen in the end, and did not.
    Liveness(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Correctness(violation) => write!(f, "correctness: {violation}"),
            Self::Liveness(what) => write!(f, "liveness: {what}"),
        }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::Correctness(violation)
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Equal runs have equal fingerprints.
    pub fingerprint: u64,
    /// What clients have seen.
    pub seen: Tally,
    /// Committed updates.
    pub updates: u64,
    /// Refusals that stand in the timeline.
    pub refusals: u64,
    /// Terms that had a leader.
    pub terms: u64,
    /// Times that a server was started.
    pub starts: u64,
    /// Snapshots that became durable.
    pub snapshots: u64,
    /// Snapshots taken over from other servers.
    pub taken_over: u64,
    /// Snapshots that members have sent in the place of their leader.
    pub given: u64,
    /// Times that a log had no room.
    pub out_of_room: u64,
    /// Times that the list of servers was changed.
    pub reconfigs: u64,
    /// Frames that servers passed on down trees, or up.
    pub frames: u64,
    /// Times that a server went on as a reader, or as a member.
    pub role_changes: u64,
    /// Times that a reader found a parent.
    pub ties: u64,
    /// Subtrees that were moved.
    pub placed: u64,
    /// Days on which a majority was lost for good, and one server went on alone.
    pub recoveries: u64,
    /// Disks that were replaced by an empty one.
    pub emptied: u64,
    /// Disks that were replaced by an older copy.
    pub rolled_back: u64,
    /// Bits that flipped on a disk.
    pub flipped: u64,
    /// Times that a server did not start because of what it found on its disk.
    pub rot_noticed: u64,
    /// Damaged copies of a server's folder that were opened, ...
    pub copies: u64,
    /// ... and those of them that were refused.
    pub copies_refused: u64,
    /// What was compared with the model.
    pub checked: Counts,
    /// Other things that went wrong.
    pub met: Met,
    /// Simulated time, microseconds.
    pub lasted_us: u64,
}

summed! {
    Outcome {
        seen, updates, refusals, terms, starts, snapshots, taken_over, given, out_of_room, reconfigs, frames, ties, role_changes,
        placed, recoveries, emptied, rolled_back, flipped, rot_noticed, copies, copies_refused, checked, met, lasted_us,
    }
    fingerprint: 0,
}

impl fmt::Display for Outcome {
    /// Those of which there are some.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.seen.answers, "answers"),
            (self.seen.events, "events"),
            (self.updates, "updates"),
            (self.refusals, "refusals"),
            (self.terms, "terms"),
            (self.starts, "starts"),
            (self.snapshots, "snapshots"),
            (self.seen.moves, "sessions moved"),
            (self.seen.read_only, "read-only connections"),
            (self.taken_over, "snapshots taken over"),
            (self.given, "snapshots given by neighbours"),
            (self.out_of_room, "times no room"),
            (self.reconfigs, "changes of the list of servers"),
            (self.frames, "frames in trees"),
            (self.role_changes, "changes between reader and member"),
            (self.ties, "times a reader found a parent"),
            (self.placed, "subtrees moved"),
            (self.seen.calls, "calls of programs"),
            (self.recoveries, "times recovered from one folder"),
            (self.emptied, "disks lost"),
            (self.rolled_back, "older copies of disks put back"),
            (self.flipped, "bits flipped"),
            (self.rot_noticed, "times rot noticed"),
            (self.checked.states, "whole states"),
            (self.checked.waited, "requests waited for an election"),
            (self.checked.refused, "of them refused"),
            (self.checked.expired, "sessions expired"),
            (self.checked.reaped, "znodes reaped"),
            (self.copies, "damaged folders"),
            (self.copies_refused, "of them refused"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{count} {what}, ")?;
        }
        write!(f, "{}; {:.0} s of simulated time", self.met, self.lasted_us as f64 / 1e6)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// A client may do something.
    Wake(usize),
    /// A connection arrives at its server.
    Arrive(Key),
    /// Bytes of a client arrive at a server.
    ToServer(Key, Vec<u8>),
    /// The end of a connection arrives at a server.
    HangUp(Key),
    /// Bytes of a server arrive at a client.
    ToClient(Key, Vec<u8>),
    /// The end of a connection arrives at a client.
    ServerGone(Key),
    /// What was held up on a connection, one way, may go on.
    Freed(Key, Way),
    /// A thread of a server has a turn.
    Turn(HostId, u8),
    /// What one thread of a server has said arrives at another one, in this life of the server.
    Word(HostId, u64, u8, u8),
    /// A log's thread is done, in this life of its server.
    LogDone(HostId, u64),
    /// A snapshot's thread is done, in this life of its server.
    SnapshotDone(HostId, u64),
    /// A message arrives.
    Parcel(u64),
    /// A partition of two servers tries to connect.
    Meet(HostId, HostId, u8),
    /// A connection between two servers breaks.
    Break(HostId, HostId, u8),
    /// A server notices that a partition's connection to another one has ended.
    Lost(HostId, u64, HostId, u8),
    /// A server learns what became of the snapshot that it sent.
    Sent(HostId, u64, HostId, bool),
    /// A server ends, if this is still its life.
    End(HostId, u64),
    /// A machine starts again.
    Restart(HostId),
    /// A disk has room again.
    Room(HostId),
    /// The network is whole again, unless it fell apart once more.
    Mend(u64),
    /// A reader looks for a parent, in this life.
    Seek(HostId, u64),
    /// A word arrives at this end of a tie.
    Said(u64, TieEnd),
    /// This end of a tie notices that it is gone.
    Untied(u64, TieEnd),
    /// Time to look whether a server is left out.
    Look,
    /// Somebody copies a server's folder.
    Backup,
    /// Something goes wrong.
    Trouble(Trouble),
}

/// More events than any run has.
const EVENTS_MAX: u64 = 5_000_000;
/// How long a word takes from one thread of a server to another, about, and how soon a thread looks again whether what
/// it has for the log can be handed over, microseconds.
const WORD_US: u64 = 150;
const APPENDS_AGAIN_US: u64 = 300;
/// How soon a client's socket that took a part of what there is for it takes more, about, microseconds.
const SOCKET_US: u64 = 200;

/// One run.
pub struct World {
    pub(super) settings: Settings,
    pub(super) rng: Rng,
    pub(super) trace: Trace,
    pub(super) now_us: u64,
    pub(super) events: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    next_event: u64,
    pub(super) machines: BTreeMap<HostId, Machine>,
    pub(super) network: Network,
    /// Readers and their parents.
    pub(super) ties: Ties,
    pub(super) lost: Lost,
    /// Counts how often the network fell apart.
    pub(super) falls: u64,
    pub(super) judges: Judges,
    pub(super) clients: Vec<Box<dyn Visitor>>,
    pub(super) links: Links,
    spoke: BTreeMap<i64, u64>,
    pub(super) troubled_until_us: u64,
    /// The server that has had a turn in the last step, and which of its threads.
    pub(super) turned: Option<(HostId, u8)>,
    pub(super) healing: bool,
    pub(super) counts: Outcome,
    /// What may be moved from partition to partition.
    pub(crate) movable: Vec<String>,
    pub(super) disks_lie: bool,
    /// What the servers have gone on with since a majority was lost: whatever else turns up is of no use any more.
    pub(super) present: Option<HistoryId>,
    /// A copy of a server's folder from earlier.
    pub(super) backup: Option<Backup>,
    /// What servers have for other sites, and in which life.
    pub(super) abroad: Vec<(HostId, u64, Abroad)>,
    /// At which feature levels servers can work that have another release.
    pub(super) levels: BTreeMap<HostId, Levels>,
}

impl World {
    /// A world before its first moment, with clients whose answers are compared with the history.
    #[must_use]
    pub fn new(seed: u64, settings: Settings, printing: bool) -> Self {
        let mut world = Self::empty(seed, settings, printing);
        world.clients_come();
        world
    }

    fn clients_come(&mut self) {
        let (manners, servers) = (self.settings.manners, self.machines.len());
        for _ in 0..manners.clients {
            let client = Client::new(self.clients.len(), self.rng.fork(), manners, servers, Tagged::new());
            self.enter(Box::new(client));
        }
    }

    /// One into which nobody has come yet.
    pub(crate) fn empty(seed: u64, settings: Settings, printing: bool) -> Self {
        let mut rng = Rng::new(seed);
        let servers = settings.servers;
        let all = settings.members() + settings.readers;
        let founders = settings.ids(servers);
        let machines = settings.ids(all).map(|id| (id, Machine::new(&mut rng, !founders.contains(&id))));
        let machines: BTreeMap<HostId, Machine> = machines.collect();
        let faults = &settings.faults;
        let weather = Weather {
            loss_percent: faults.loss_percent,
            double_percent: faults.double_percent,
            late_percent: faults.late_percent,
        };
        let mut world = Self {
            rng,
            trace: Trace::new(printing),
            now_us: 1_000_000,
            events: BinaryHeap::new(),
            next_event: 0,
            machines,
            network: Network::new(weather),
            ties: Ties::default(),
            lost: Lost::new(),
            falls: 0,
            judges: Judges::new(),
            movable: Vec::new(),
            clients: Vec::new(),
            links: Links::default(),
            spoke: BTreeMap::new(),
            troubled_until_us: 0,
            turned: None,
            healing: false,
            counts: Outcome::default(),
            disks_lie: false,
            present: None,
            backup: None,
            abroad: Vec::new(),
            levels: BTreeMap::new(),
            settings,
        };
        for id in world.ids() {
            world.schedule(0, Happening::Restart(id));
        }
        if world.settings.switches {
            // They find the others by the list that has them.
            world.machines.values_mut().for_each(|machine| machine.names_all = false);
        }
        if world.settings.spares > 0 || world.settings.recoveries > 0 {
            world.schedule(0, Happening::Look);
        }
        world.schedule_all_trouble();
        world
    }

    /// From now on messages cost something.
    pub(crate) fn charge(&mut self, costs: Costs) {
        self.network.traffic = Some(Traffic::new(costs));
    }

    /// What a server has said and heard since then.
    pub(crate) fn exchanged(&self, id: HostId) -> Exchanged {
        self.network.traffic.as_ref().map(|traffic| traffic.exchanged(id)).unwrap_or_default()
    }

    /// From now on disks lose what they have said to be durable: the last batch, whenever the power goes. Also a test
    /// of the alarm.
    pub fn let_disks_lie(&mut self) {
        self.disks_lie = true;
    }

    /// This one compares all that the only server does.
    pub(crate) fn judge_with(&mut self, checker: Checker) {
        self.judges.checker = Some(checker);
    }

    /// How many partitions the servers have.
    pub(super) fn partitions(&self) -> u8 {
        self.settings.config.partitions
    }

    /// Whether what is committed is followed by the states that servers come to, and not by what stands in the log.
    pub(super) fn has_timelines(&self) -> bool {
        self.partitions() > 1 || self.settings.config.site.is_some()
    }

    /// One of them.
    pub(super) fn any_partition(&mut self) -> u8 {
        match self.partitions() {
            1 => 0,
            several => self.rng.index(several.into()) as u8,
        }
    }

    /// A source of chance for whoever comes into the world.
    pub(crate) fn fork(&mut self) -> Rng {
        self.rng.fork()
    }

    /// How many have come into the world so far.
    pub(crate) fn come_so_far(&self) -> usize {
        self.clients.len()
    }

    /// A client comes into the world.
    pub(crate) fn enter(&mut self, client: Box<dyn Visitor>) {
        let index = self.clients.len();
        self.clients.push(client);
        let after = self.rng.below(5000);
        self.schedule(after, Happening::Wake(index));
    }

    /// Lives through everything.
    ///
    /// # Errors
    /// The first thing that went wrong for good.
    pub fn run(mut self) -> Result<Outcome, Failure> {
        while self.comes_to_disaster()? {
            self.clients_come();
        }
        self.live()?;
        self.finish()
    }

    /// Lives through everything that comes before the end.
    pub(crate) fn live(&mut self) -> Result<(), Failure> {
        let end_us = self.now_us + self.settings.lasts_us;
        let requests = |world: &Self| world.clients.iter().map(|client| client.requests()).sum::<u64>();
        let enough = requests(self) + self.settings.requests;
        while requests(self) < enough && self.now_us < end_us {
            self.step()?;
        }
        Ok(())
    }

    /// Lets so many microseconds go by.
    ///
    /// # Errors
    /// What went wrong meanwhile.
    pub fn pass(&mut self, us: u64) -> Result<(), Failure> {
        let end_us = self.now_us + us;
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= end_us) {
            self.step()?;
        }
        self.now_us = end_us;
        Ok(())
    }

    pub(crate) fn step(&mut self) -> Result<(), Failure> {
        let Some(Reverse((at, _, event))) = self.events.pop() else {
            return Err(Failure::Liveness("nothing is going to happen any more".into()));
        };
        // Where messages cost something there are as many as there is time for.
        if self.next_event > EVENTS_MAX && self.network.traffic.is_none() {
            return Err(Failure::Liveness(format!("the end is not reached after {EVENTS_MAX} events")));
        }
        self.now_us = self.now_us.max(at);
        self.turned = None;
        self.handle(event)
    }

    /// Something has happened.
    pub(crate) fn note(&mut self, who: &str, what: fmt::Arguments<'_>) {
        self.trace.event(self.now_us, who, what);
    }

    pub(super) fn schedule(&mut self, after_us: u64, event: Happening) {
        self.schedule_at(self.now_us + after_us, event);
    }

    pub(super) fn schedule_at(&mut self, at_us: u64, event: Happening) {
        self.next_event += 1;
        self.events.push(Reverse((at_us, self.next_event, event)));
    }

    pub(super) fn schedule_turn(&mut self, id: HostId, of: u8, at_us: u64) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(process) = &mut machine.process else { return };
        let thread = &mut process.threads[usize::from(of)];
        let free_us = self.network.traffic.as_ref().map_or(0, |traffic| traffic.free_us(id));
        let at_us =
            at_us.max(machine.paused_until_us).max(thread.paused_until_us).max(self.now_us).max(free_us);
        if thread.turn_at.is_none_or(|turn| at_us < turn) {
            thread.turn_at = Some(at_us);
            self.schedule_at(at_us, Happening::Turn(id, of));
        }
    }

    /// Hands something to a thread of a server, if that runs.
    pub(super) fn push(&mut self, id: HostId, of: u8, input: Input) -> bool {
        let process = self.process_mut(id);
        let Some(process) = process else { return false };
        process.push(of, input);
        let after = if self.network.traffic.is_some() { 0 } else { self.rng.below(150) };
        self.schedule_turn(id, of, self.now_us + after);
        true
    }

    /// The machine of a server that is in this life.
    pub(super) fn in_life(&mut self, id: HostId, life: u64) -> Option<&mut Machine> {
        self.machines.get_mut(&id).filter(|machine| machine.life == life && machine.process.is_some())
    }

    fn handle(&mut self, event: Happening) -> Result<(), Failure> {
        match event {
            Happening::Wake(client) => self.wake(client)?,
            Happening::Arrive(key) => self.pass_on(key, Passing::Arrival)?,
            Happening::ToServer(key, bytes) => self.pass_on(key, Passing::Request(bytes))?,
            Happening::HangUp(key) => self.pass_on(key, Passing::HangUp)?,
            Happening::ToClient(key, bytes) => self.pass_on(key, Passing::Reply(bytes))?,
            Happening::ServerGone(key) => self.pass_on(key, Passing::Gone)?,
            Happening::Freed(key, way) => self.freed(key, way)?,
            Happening::Turn(id, of) => {
                let now_us = self.now_us;
                let thread = self.process_mut(id).map(|process| process.thread(of));
                if thread.and_then(|it| it.turn_at.take_if(|at| *at == now_us)).is_some() {
                    self.turn(id, of)?;
                    self.turned = Some((id, of));
                }
            }
            Happening::Word(id, life, from, to) => self.word_arrives(id, life, (from, to)),
            Happening::LogDone(id, life) => {
                if let Some(done) = self.in_life(id, life).and_then(|it| it.pending_log.take()) {
                    self.push(id, 0, Input::Log(done));
                }
            }
            Happening::SnapshotDone(id, life) => {
                if let Some(done) = self.in_life(id, life).and_then(|it| it.pending_snapshot.take()) {
                    self.snapshot_done(id, done);
                }
            }
            Happening::Parcel(parcel) => self.parcel_arrives(parcel),
            Happening::Meet(a, b, of) => self.meet(a, b, of)?,
            Happening::Break(a, b, of) => self.part(a, b, of, 20_000),
            Happening::Lost(id, life, peer, of) => {
                if self.in_life(id, life).is_some() {
                    self.push(id, of, Input::PeerLost(number(peer)));
                }
            }
            Happening::Sent(id, life, to, arrived) => {
                if self.in_life(id, life).is_some() {
                    self.push(id, 0, Input::SnapshotSent(number(to), arrived));
                }
            }
            Happening::End(id, life) => {
                if self.in_life(id, life).is_some() && !self.healing {
                    self.crash(id, "its log was not told", false);
                }
            }
            Happening::Restart(id) => self.restart(id)?,
            Happening::Room(id) => self.room(id),
            Happening::Mend(fall) => {
                if fall == self.falls {
                    self.mend();
                }
            }
            Happening::Seek(reader, life) => self.seek(reader, life),
            Happening::Said(link, to) => self.said(link, to),
            Happening::Untied(link, end) => self.untied(link, end),
            Happening::Look => self.look_after(),
            Happening::Backup => self.back_up(),
            Happening::Trouble(trouble) => self.trouble(trouble)?,
        }
        Ok(())
    }

    // ---- servers ----

    fn turn(&mut self, id: HostId, of: u8) -> Result<(), Failure> {
        let Some(machine) = self.machines.get_mut(&id) else { return Ok(()) };
        let now = machine.clock.now(self.now_us);
        let Some(process) = &mut machine.process else { return Ok(()) };
        if let Some(traffic) = &mut self.network.traffic {
            traffic.takes_in(id, self.now_us, process.threads[usize::from(of)].comes_in());
        }
        let mut scene = Scene {
            judges: &mut self.judges,
            trace: &mut self.trace,
            rng: &mut self.rng,
            stored: &mut machine.held.stored,
            known: &mut machine.held.known,
            now,
            now_us: self.now_us,
            spoke: &mut self.spoke,
            quiet_since_us: self.troubled_until_us,
            present: self.present,
        };
        let circle = process.threads[usize::from(of)].circle.servers.clone();
        let out = match process.turn(of, &mut scene) {
            Ok(out) => out,
            Err(Stop::Violation(violation)) => return Err(violation.into()),
            Err(Stop::Refused) => {
                self.crash(id, "it cannot go on without what the log refused", false);
                return Ok(());
            }
        };
        let thread = &process.threads[usize::from(of)];
        let wake_us = machine.clock.world_us(thread.core.next_wake_us());
        let (has_inputs, appends) = (thread.has_inputs(), thread.core.append_bytes() > 0);
        let has_inputs = has_inputs || thread.core.has_more_to_apply();
        let (has_stopped, has_rest) = (out.has_stopped, out.has_rest);
        let changed = circle.symmetric_difference(&thread.circle.servers);
        let changed = changed.map(|peer| HostId::from(*peer)).collect();
        self.carry(id, of, out);
        self.circle_changed(id, of, changed);
        let reconfigs = self.judges.history.reconfigs() + self.judges.timelines.reconfigs();
        if reconfigs > self.counts.reconfigs {
            self.counts.reconfigs = reconfigs;
            // Clients of a server that is taken out have to go elsewhere.
            self.troubled(0);
        }
        self.work(id)?;
        if has_stopped {
            self.end(id);
            return Ok(());
        }
        if of == 0 {
            self.look_at_role(id);
        }
        let late = if self.network.traffic.is_some() { 0 } else { self.rng.below(1500) };
        self.schedule_turn(id, of, wake_us.max(self.now_us + 1) + late);
        if has_rest {
            let after = self.rng.around(SOCKET_US);
            self.schedule_turn(id, of, self.now_us + after);
        }
        if has_inputs || (appends && self.partitions() == 1) {
            self.schedule_turn(id, of, self.now_us + 1);
        } else if appends {
            // What is handed to the log may have to wait for what another thread hands to it.
            self.schedule_turn(id, of, self.now_us + APPENDS_AGAIN_US);
        }
        Ok(())
    }

    /// Carries what a turn of a thread has let out.
    fn carry(&mut self, id: HostId, of: u8, out: TurnOutput) {
        for (key, bytes) in out.sent {
            let at = match &mut self.network.traffic {
                Some(traffic) => traffic.answers(id, self.now_us, bytes.len() as u64),
                None => self.now_us + self.rng.around(200),
            };
            if let Some(at) = self.links.reach(key, Way::ToClient, at) {
                self.schedule_at(at, Happening::ToClient(key, bytes));
            }
        }
        for key in out.closed {
            let at = self.links.reach(key, Way::ToClient, self.now_us).unwrap_or(self.now_us);
            self.schedule_at(at, Happening::ServerGone(key));
        }
        for to in out.words {
            let life = self.machines.get(&id).map_or(0, |machine| machine.life);
            let after = self.rng.around(WORD_US);
            self.schedule(after, Happening::Word(id, life, of, to));
        }
        let life = self.machines.get(&id).map_or(0, |machine| machine.life);
        self.carry_ties(id, of, out.readers, out.parent);
        self.abroad.extend(out.abroad.into_iter().map(|what| (id, life, what)));
        self.counts.taken_over += u64::from(out.has_taken_over);
        if out.has_news {
            self.meet_all(id);
        }
        for sender in out.told {
            self.tell_sender(sender.into(), id, true);
        }
        for output in out.peers {
            match output {
                PeerOutput::Send { to, message } => {
                    self.counts.frames += u64::from(message.is_of_forest());
                    self.post((id, to.into(), of), message.encode().join().into(), None);
                }
                PeerOutput::Members { .. }
                | PeerOutput::Leads(_)
                | PeerOutput::Servers
                | PeerOutput::Founds(_)
                | PeerOutput::Began { .. } => {}
                PeerOutput::Note(what) => self.note("snapshot", format_args!("server {id}: {what}")),
                PeerOutput::Snapshot { to, position, message } => {
                    let (chunks, to) = (self.snapshot_at(id, position), HostId::from(to));
                    self.counts.given += u64::from(message.first() == Some(&GIVEN));
                    let is_up = self.network.is_up(id, to, of);
                    self.note(
                        "snapshot",
                        format_args!("server {id} sends {to} that of {position}: {}", chunks.is_some()),
                    );
                    match chunks {
                        Some(chunks) if is_up => self.post((id, to, of), message, Some(chunks)),
                        _ => self.tell_sender(id, to, false),
                    }
                }
            }
        }
    }

    fn post(&mut self, link: (HostId, HostId, u8), message: Vec<u8>, chunks: Option<Chunks>) {
        self.trace.mix(&message);
        let message = Bytes::from(message);
        for (after, parcel) in self.network.send(link, message, chunks, (self.now_us, &mut self.rng)) {
            self.schedule(after, Happening::Parcel(parcel));
        }
    }

    /// A server learns what became of the snapshot that it has sent to another.
    pub(super) fn tell_sender(&mut self, sender: HostId, to: HostId, taken: bool) {
        let life = self.machines.get(&sender).map_or(0, |machine| machine.life);
        let after = self.rng.range(200, 3000);
        self.schedule(after, Happening::Sent(sender, life, to, taken));
    }

    fn parcel_arrives(&mut self, parcel: u64) {
        if let Some(in_us) = self.network.receives(parcel, self.now_us) {
            return self.schedule_at(in_us, Happening::Parcel(parcel));
        }
        let (arrived, given_up) = self.network.arrive(parcel);
        if let Some((sender, to)) = given_up {
            self.tell_sender(sender, to, false);
        }
        let Some(parcel) = arrived else { return };
        let is_snapshot = parcel.snapshot.is_some();
        let input = match parcel.snapshot {
            Some(chunks) => Input::Snapshot(number(parcel.from), parcel.message, chunks),
            None => Input::Peer(number(parcel.from), parcel.message),
        };
        if !self.push(parcel.to, parcel.partition, input) && is_snapshot {
            self.tell_sender(parcel.from, parcel.to, false);
        }
    }

    /// What one thread of a server has said arrives at another one, unless it is late for a while.
    fn word_arrives(&mut self, id: HostId, life: u64, between: (u8, u8)) {
        if self.in_life(id, life).is_none() {
            return;
        }
        let late_until_us = self.machines[&id].late.get(&between).copied().unwrap_or(0);
        if late_until_us > self.now_us {
            self.schedule_at(late_until_us, Happening::Word(id, life, between.0, between.1));
        } else {
            self.push(id, between.1, Input::Message(between.0));
        }
    }

    /// The thread of a server that writes snapshots has done something: those partitions learn of it that it concerns.
    fn snapshot_done(&mut self, id: HostId, input: Input) {
        let all = 0..self.partitions();
        let (one, others) = match input {
            Input::Written(SnapshotDone::Taken(of) | SnapshotDone::Finished { only: Some(of), .. }) => {
                (of, 0..0)
            }
            Input::Written(SnapshotDone::Finished { .. }) => (0, 1..all.end),
            _ => (0, 0..0),
        };
        if let Input::Written(done) = input {
            for of in others {
                self.push(id, of, Input::Finished(done));
            }
        }
        self.push(id, one, input);
    }

    /// Whether a server runs, and wants a partition of its to be connected to the other one.
    pub(super) fn is_open(&self, id: HostId, to: HostId, of: u8) -> bool {
        // A reader is connected with its parent and with readers below it alone.
        let process = self.process(id).filter(|_| !self.is_reader(id));
        let to = u8::try_from(to).ok();
        let is_in =
            |it: &Process| to.is_some_and(|to| it.threads[usize::from(of)].circle.servers.contains(&to));
        process.is_some_and(is_in)
    }

    /// A partition of a server connects to others than before.
    fn circle_changed(&mut self, id: HostId, of: u8, changed: Vec<HostId>) {
        for peer in changed {
            if self.is_open(id, peer, of) {
                let after = self.rng.range(500, 20_000);
                self.schedule(after, Happening::Meet(id, peer, of));
            } else {
                self.part(id, peer, of, 1000);
            }
        }
    }

    /// A server has something new to say to all others.
    pub(super) fn meet_all(&mut self, id: HostId) {
        let others = self.others(id);
        for of in 0..self.partitions() {
            for other in &others {
                let after = self.rng.range(500, 20_000);
                self.schedule(after, Happening::Meet(id, *other, of));
            }
        }
    }

    /// What a server that runs says of its history.
    pub(super) fn standing(&self, id: HostId) -> Standing {
        let process = self.process(id);
        process.map_or(Standing::New, |process| process.first().standing())
    }

    /// Two servers say which histories they have, as that is not the same. They do so again: sooner or later they
    /// have the same.
    fn acquaint(&mut self, a: HostId, b: HostId, of: u8) -> Result<(), Failure> {
        let (one, other) = (self.standing(a), self.standing(b));
        let have_two = one.history().is_some() && other.history().is_some();
        if have_two {
            self.are_told_apart(a, b)?;
        }
        let mut again_us = self.now_us + self.rng.range(20_000, 200_000);
        match self.network.reaches(a, b, of, self.now_us) {
            Ok(()) if of == 0 && !have_two => {
                for (id, peer, says) in [(a, b, other), (b, a, one)] {
                    let disk = self.machines.get(&peer).map(|it| it.disk_id).unwrap_or_default();
                    self.push(id, of, Input::PeerMet(number(peer), disk, says));
                }
            }
            Ok(()) => {}
            Err(later_us) => again_us = later_us,
        }
        self.schedule_at(again_us, Happening::Meet(a, b, of));
        Ok(())
    }

    /// A partition of two servers tries to connect.
    fn meet(&mut self, a: HostId, b: HostId, of: u8) -> Result<(), Failure> {
        if !self.is_open(a, b, of) || !self.is_open(b, a, of) {
            return Ok(());
        }
        let history = self.standing(a).history();
        if history.is_none() || history != self.standing(b).history() {
            return self.acquaint(a, b, of);
        }
        match self.network.connect(a, b, of, self.now_us) {
            Ok(false) => {}
            Ok(true) => {
                for (id, peer) in [(a, b), (b, a)] {
                    let shown = self.machines.get(&peer).map(|it| (it.disk_id, it.held.starts.clone()));
                    let (disk, starts) = shown.unwrap_or_default();
                    let levels = self.process(peer).map_or(Levels::UNSAID, |it| it.first().tree().levels());
                    let release = self.process(peer).map(|process| process.release).unwrap_or_default();
                    self.push(id, of, Input::PeerConnected(number(peer), disk, starts, levels, release));
                }
            }
            Err(again_us) => self.schedule_at(again_us, Happening::Meet(a, b, of)),
        }
        Ok(())
    }

    /// A partition's connection between two servers ends, which they notice within the time given.
    pub(super) fn part(&mut self, a: HostId, b: HostId, of: u8, within_us: u64) {
        let after = [self.rng.below(within_us + 1), self.rng.below(within_us + 1)];
        let noticed_us = self.now_us + after[0].max(after[1]);
        if !self.network.disconnect(a, b, of, noticed_us) {
            return;
        }
        for (after, (id, peer)) in after.into_iter().zip([(a, b), (b, a)]) {
            let life = self.machines.get(&id).map_or(0, |machine| machine.life);
            self.schedule(after, Happening::Lost(id, life, peer, of));
        }
        let again = self.rng.range(1000, 60_000);
        self.schedule(within_us + again, Happening::Meet(a, b, of));
    }
}
