//! The checker: compares everything that the server lets out with what it must be.
//!
//! It watches the server from outside, between the driver and the core: the frames that the server
//! takes in, in the order in which it takes them; the records that it hands to the log; every byte
//! that it writes to a connection. Two copies of the model run beside it. The *head* executes each
//! write when it arrives, as the server's prepare must see the state; *applied* executes it again
//! when it has become durable, and answers reads, fires watches and is what a recovered state is
//! compared with.

mod bounds;
mod link;
mod log;
mod output;
mod requests;
mod sessions;
mod show;
mod state;

pub use link::{Inbound, Inlet};

use crate::model::{ConnectionKey, Denial, Identity, Kind, Model, Stamp, Watches};
use crate::{Checked, wrong};
use link::{Link, Phase, is_bad_length, name};
use log::{Record, Timeline};
use requests::Asked;
use sessions::Timers;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Add;
use std::rc::Rc;
use stoa_core::{CloseReason, Config, Now, Shard};
use stoa_tree::Tree;

/// What became of a request, or was decided by the server: proposed and not applied.
#[derive(Debug)]
struct Proposed {
    /// A refusal has the zxid of the last update before it.
    stamp: Stamp,
    session: i64,
    what: What,
    /// No client has asked for it.
    own: bool,
    /// The server's number for the request, once it is in the log.
    request: u64,
    /// The record that it is in.
    record: u64,
}

impl Proposed {
    fn new(stamp: Stamp, session: i64, what: What) -> Self {
        Self { stamp, session, what, own: false, request: 0, record: u64::MAX }
    }
}

#[derive(Debug)]
enum What {
    /// A client's write: the frame, and who sent it.
    Write { connection: ConnectionKey, frame: Rc<[u8]>, identities: Rc<Vec<Identity>> },
    /// A session begins; its id is known once the record is handed to the log.
    Open { connection: ConnectionKey, timeout_ms: i32 },
    /// A session comes to another connection.
    Reopen { connection: ConnectionKey, timeout_ms: i32 },
    /// A session ends.
    Close,
    /// The server deletes a container or TTL znode.
    Reap(String),
    /// What was asked before the server led is refused.
    Refused { connection: ConnectionKey, failure: Denial },
}

/// Compares a server with the model, across crashes and restarts.
#[derive(Debug)]
pub struct Checker {
    config: Config,
    head: Model,
    applied: Model,
    watches: Watches,
    /// Beyond `applied`, oldest first.
    proposed: VecDeque<Proposed>,
    /// How many of them the log has been asked for.
    logged: usize,
    /// Whether the server leads: before that it prepares nothing.
    leads: bool,
    /// What it was asked before, oldest first.
    asked: VecDeque<Asked>,
    /// Records that the log was asked for and that are not applied.
    records: VecDeque<Record>,
    /// Position of the last applied record, and where the timeline stands behind it.
    applied_position: u64,
    timeline: Timeline,
    /// The server's number for the next request, once one is known.
    next_request: Option<u64>,
    /// Up to which position the disk has said that it is durable.
    durable_position: u64,
    /// Digests at the ends of recent records, to be met again after a restart.
    digests: VecDeque<(i64, u64)>,
    links: BTreeMap<ConnectionKey, Link>,
    timers: Timers,
    counts: Counts,
}

/// How much was compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Replies to reads and writes.
    pub replies: u64,
    /// Watch notifications.
    pub events: u64,
    /// Updates applied.
    pub updates: u64,
    /// Whole states compared.
    pub states: u64,
    /// Sessions that the server expired.
    pub expired: u64,
    /// Containers and TTL znodes that the server deleted.
    pub reaped: u64,
    /// Sessions that came to another connection.
    pub returned: u64,
    /// Requests that waited until the server led.
    pub waited: u64,
    /// Those of them that were refused then.
    pub refused: u64,
}

/// What two runs come to together.
impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            replies: self.replies + other.replies,
            events: self.events + other.events,
            updates: self.updates + other.updates,
            states: self.states + other.states,
            expired: self.expired + other.expired,
            reaped: self.reaped + other.reaped,
            returned: self.returned + other.returned,
            waited: self.waited + other.waited,
            refused: self.refused + other.refused,
        }
    }
}

/// What of the server's surroundings matters when it takes something in.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The clocks.
    pub now: Now,
    /// Whether the server refuses writes because its log had no room.
    pub out_of_room: bool,
}

const DIGESTS_KEPT: usize = 4096;

impl Checker {
    /// For a server that starts with nothing; it may enforce quotas.
    #[must_use]
    pub fn new(config: Config, enforce_quota: bool) -> Self {
        let mut model = Model::new();
        model.enforce_quota(enforce_quota);
        Self {
            config,
            head: model.clone(),
            applied: model,
            watches: Watches::default(),
            proposed: VecDeque::new(),
            logged: 0,
            leads: false,
            asked: VecDeque::new(),
            records: VecDeque::new(),
            applied_position: 0,
            timeline: Timeline::BEGINNING,
            next_request: None,
            durable_position: 0,
            digests: VecDeque::new(),
            links: BTreeMap::new(),
            timers: Timers::default(),
            counts: Counts::default(),
        }
    }

    /// What has been compared so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The limits of the server.
    #[must_use]
    pub fn limits(&self) -> stoa_core::Limits {
        self.config.limits.clone()
    }

    /// A client has connected.
    pub fn connected(&mut self, key: ConnectionKey, address: String, now: Now) {
        self.links.insert(key, Link::new(address, now.mono_us));
    }

    /// The driver has told the server that a connection is gone.
    pub fn disconnected(&mut self, key: ConnectionKey) {
        self.forget_watches_of(key);
        if let Some(link) = self.links.remove(&key) {
            self.detach(link.session, key);
        }
    }

    /// The server has been told the time.
    ///
    /// # Errors
    /// When a session is still there that should have ended.
    pub fn ticked(&mut self, now: Now) -> Checked {
        let tick_us = u64::from(self.config.tick_ms) * 1000;
        let handshake_us = u64::from(self.config.limits.handshake_ms) * 1000;
        let overdue = self.links.iter().find(|(_, link)| {
            link.phase == Phase::Handshake && link.connected_us + handshake_us <= now.mono_us
        });
        if let Some((&key, _)) = overdue {
            return wrong(format!("{} may still send its handshake after {handshake_us} us", name(key)));
        }
        if !self.leads {
            return Ok(());
        }
        let returning: Vec<_> = self.returning().collect();
        returning.into_iter().for_each(|session| self.timers.heard(session, now.mono_us));
        self.timers.overdue(now.mono_us, 2 * tick_us)
    }

    /// The server reads on whenever it can, and has left these bytes of a connection: if the length that comes next is
    /// out of range, it must hang up.
    pub fn left_unread(&mut self, key: ConnectionKey, rest: &[u8]) {
        let phase = self.links.get(&key).map(|link| link.phase);
        let is_bad = is_bad_length(rest, phase == Some(Phase::Live), &self.config.limits);
        if is_bad && matches!(phase, Some(Phase::Handshake | Phase::Live)) {
            self.shut(key, Some(CloseReason::BadFrame));
        }
    }

    /// The server listens to a connection again, or does not for reasons of its own: its session counts as
    /// heard of.
    pub fn heard(&mut self, key: ConnectionKey, now: Now) {
        if let Some(link) = self.links.get(&key).filter(|link| link.phase == Phase::Live) {
            self.timers.heard(link.session, now.mono_us);
        }
    }

    /// Whether the next frame to a connection answers its handshake.
    fn is_to_be_greeted(&self, key: ConnectionKey) -> bool {
        self.links.get(&key).is_some_and(|link| link.hello.is_some() || link.phase == Phase::Opening)
    }

    /// Whether a connection is past its handshake.
    fn is_live(&self, key: ConnectionKey) -> bool {
        self.links.get(&key).is_some_and(|link| link.phase == Phase::Live)
    }

    /// The server is gone; what it had told nobody may be lost.
    pub fn crashed(&mut self) {
        self.links.clear();
        self.watches = Watches::default();
    }

    /// Compares a whole state with what is applied.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare_tree(&self, tree: &Tree) -> Checked {
        state::compare(tree, &self.applied)
    }

    /// Compares the server's whole state with the model, and with what it was when it was there before.
    fn compare_state(&mut self, tree: &Tree) -> Checked {
        self.compare_tree(tree)?;
        self.counts.states += 1;
        let zxid = self.applied.zxid();
        match self.digests.iter().rev().find(|(at, _)| *at == zxid) {
            Some((_, digest)) if *digest != tree.digest() => {
                let found = tree.digest();
                wrong(format!("the digest at zxid {zxid} was {digest:x}, after recovery it is {found:x}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a server has nothing under way, and nothing that is due.
    #[must_use]
    pub fn is_idle(&self, server: &Shard, now: Now) -> bool {
        // Containers that never had a child, and TTL znodes with children or a TTL beyond this run.
        let special =
            self.applied.nodes().filter(|(_, node)| matches!(node.kind, Kind::Container | Kind::Ttl(_)));
        let stay = special.filter(|(path, _)| !self.applied.is_reapable(path, now.wall_ms)).count();
        server.connections().next().is_none()
            && server.session_count() == 0
            && server.outstanding() == 0
            && server.log_queue() == (0, 0)
            && !server.is_snapshotting()
            && server.tree().container_count() + server.tree().ttl_count() == stay
    }

    /// Compares a server that is at rest with the model, once more as a whole.
    ///
    /// # Errors
    /// When something is under way, or left over, that should not be; or the first difference.
    pub fn compare_at_rest(&mut self, server: &Shard) -> Checked {
        if let Some(proposed) = self.proposed.front() {
            return wrong(format!("the update with zxid {} was never applied", proposed.stamp.zxid));
        }
        let (watches, ephemerals) = (server.watches().count(), server.tree().ephemeral_count());
        if !self.asked.is_empty() || !self.watches.is_empty() || watches + ephemerals != 0 {
            let asked = self.asked.len();
            return wrong(format!(
                "{asked} requests, {watches} watches and {ephemerals} ephemerals are left, and nobody is connected"
            ));
        }
        self.compare_state(server.tree())
    }

    /// zxid of the last update that is proposed.
    fn last_zxid(&self) -> i64 {
        self.proposed.back().map_or(self.applied.zxid(), |proposed| proposed.stamp.zxid)
    }

    fn next_zxid(&self) -> i64 {
        self.last_zxid() + 1
    }

    /// Sessions on their way to another connection: nobody can say that their clients are silent.
    fn returning(&self) -> impl Iterator<Item = i64> {
        let returning = |proposed: &&Proposed| matches!(proposed.what, What::Reopen { .. });
        self.proposed.iter().filter(returning).map(|proposed| proposed.session)
    }

    fn forget_watches_of(&mut self, key: ConnectionKey) {
        self.watches.remove_connection(key);
    }

    /// A session's connection is gone.
    fn detach(&mut self, session: i64, key: ConnectionKey) {
        if let Some(timer) = self.timers.by_session.get_mut(&session)
            && timer.connection == Some(key)
        {
            timer.connection = None;
        }
    }

    /// Closes a connection on the model's side; its session stays. Its watches go when the server says
    /// that it closes it: what was asked before may still be answered.
    fn shut(&mut self, key: ConnectionKey, reason: Option<CloseReason>) {
        let Some(link) = self.links.get_mut(&key) else { return };
        link.shut(reason);
        let session = link.session;
        self.detach(session, key);
    }

    /// The server closes a connection, for a reason that must hold. `unsent` bytes wait on it.
    fn closes(&mut self, key: ConnectionKey, reason: CloseReason, unsent: usize, now: Now) -> Checked {
        let Some(link) = self.links.get_mut(&key) else {
            return wrong(format!("{} was closed twice", name(key)));
        };
        let handshake_us = u64::from(self.config.limits.handshake_ms) * 1000;
        let slow = reason == CloseReason::SlowReader && unsent > self.config.limits.output_close_bytes;
        // A session that its client closed, on another connection that is gone since, may count as expired.
        let ended = |reason| matches!(reason, CloseReason::SessionClosed | CloseReason::SessionExpired);
        let justified = match link.must_close.take() {
            Some(expected) => expected == reason || slow || (ended(expected) && ended(reason)),
            None if link.phase == Phase::Closed => false,
            None => match reason {
                CloseReason::SlowReader => slow,
                CloseReason::HandshakeTimeout => {
                    link.phase == Phase::Handshake && now.mono_us >= link.connected_us + handshake_us
                }
                _ => false,
            },
        };
        if !justified {
            return wrong(format!("{} was closed without reason: {reason}", name(key)));
        }
        link.queue.clear();
        self.shut(key, None);
        self.forget_watches_of(key);
        Ok(())
    }
}
