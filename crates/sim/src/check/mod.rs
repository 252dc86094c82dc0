//! The checker: compares everything that the server lets out with what it must be.
//!
//! It watches the server from outside, between the driver and the core: the frames that the server
//! takes in, in the order in which it takes them; the entries that it hands to the log; every byte
//! that it writes to a connection. Two copies of the model run beside it. The *head* executes each
//! write when it arrives, as the server's prepare must see the state; *applied* executes it again
//! when it has become durable, and answers reads, fires watches and is what a recovered state is
//! compared with.

mod link;
mod output;
mod requests;
mod sessions;
mod state;

pub use link::{Inbound, Inlet, is_bad_length};
pub use state::compare;

use crate::model::{ConnectionKey, Identity, Model, Stamp, Watches};
use link::{Link, Phase, name};
use sessions::Timers;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use stoa_core::{CloseReason, Config, Now};
use stoa_tree::{Tree, Updates};

/// Something that must never happen has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(String);

impl Violation {
    /// With a description for whoever reads the report.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Checked = Result<(), Violation>;

/// An update that has been proposed and not applied.
#[derive(Debug)]
struct Proposed {
    stamp: Stamp,
    session: i64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A client's write: the frame, and who sent it.
    Write { connection: ConnectionKey, frame: Rc<[u8]>, identities: Rc<Vec<Identity>> },
    /// A session begins; its id is known once the entry is in the log.
    Open { connection: ConnectionKey, timeout_ms: i32 },
    /// A session ends.
    Close,
    /// The server deletes a container or TTL znode.
    Reap(String),
}

/// An entry that the log was asked for.
#[derive(Debug, Clone, Copy)]
struct Entry {
    position: u64,
    last_zxid: i64,
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
    /// Entries that the log was asked for and that are not applied.
    entries: VecDeque<Entry>,
    /// Position of the last applied entry.
    applied_position: u64,
    /// Up to which position the disk has said that it is durable.
    durable_position: u64,
    /// Digests at the ends of recent entries, to be met again after a restart.
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
            entries: VecDeque::new(),
            applied_position: 0,
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

    /// The state as applied.
    #[must_use]
    pub fn applied(&self) -> &Model {
        &self.applied
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

    /// The log was asked for an entry. `ticked` when the server may have put updates of its own in it.
    ///
    /// # Errors
    /// When the entry does not hold exactly what was proposed.
    pub fn handed_to_log(&mut self, position: u64, payload: &[u8], ticked: Option<Now>) -> Checked {
        for update in Updates::new(payload) {
            let update = update.map_err(|error| Violation::new(format!("entry {position}: {error}")))?;
            if self.logged == self.proposed.len() {
                let Some(now) = ticked else {
                    return violation(format!("update {} was asked for by nobody", update.describe()));
                };
                self.own_update(&update, now)?;
            }
            let proposed = &mut self.proposed[self.logged];
            let found = Stamp { zxid: update.zxid, time_ms: update.time_ms };
            if found != proposed.stamp {
                return violation(format!("update {} should have {:?}", update.describe(), proposed.stamp));
            }
            if let What::Open { timeout_ms, .. } = proposed.what {
                proposed.session = update.session;
                if self.head.session(update.session).is_some() {
                    return violation(format!("session id {:#x} was given twice", update.session));
                }
                self.head.open_session(update.session, timeout_ms, self.head.zxid());
            } else if proposed.session != update.session {
                let (shown, session) = (update.describe(), proposed.session);
                return violation(format!("update {shown} should be of session {session:#x}"));
            }
            self.logged += 1;
        }
        if self.logged != self.proposed.len() {
            return violation(format!("entry {position} lacks an update that was proposed before it"));
        }
        let expected = self.entries.back().map_or(self.applied_position, |entry| entry.position) + 1;
        if position != expected {
            return violation(format!("the log was given position {position}, {expected} comes next"));
        }
        let last_zxid = self.proposed.back().map_or(self.applied.zxid(), |proposed| proposed.stamp.zxid);
        self.entries.push_back(Entry { position, last_zxid });
        Ok(())
    }

    /// An update that no client asked for: an expired session, or a znode whose time is up.
    fn own_update(&mut self, update: &stoa_tree::Update<'_>, now: Now) -> Checked {
        let stamp = Stamp { zxid: self.next_zxid(), time_ms: now.wall_ms };
        let (session, what) = if update.session == 0 {
            let shown = update.describe().to_string();
            let path = shown.split('"').nth(1).unwrap_or_default().to_owned();
            // It is looked for in the applied state; ZooKeeper then only asks whether the znode that is
            // there when its turn comes is empty and of such a kind.
            let due = self.applied.is_reapable(&path, now.wall_ms) && self.head.may_be_reaped(&path);
            if !due && !self.head.is_reapable(&path, now.wall_ms) {
                return violation(format!("the server deleted {path} although its time is not up: {shown}"));
            }
            self.head.reap(&path, stamp.zxid);
            self.counts.reaped += 1;
            (0, What::Reap(path))
        } else {
            self.timers.expire(update.session, now.mono_us)?;
            self.head.close_session(update.session, stamp.zxid);
            self.counts.expired += 1;
            (update.session, What::Close)
        };
        self.proposed.push_back(Proposed { stamp, session, what });
        Ok(())
    }

    /// The disk has made everything up to `position` durable, and the server is about to hear of it.
    pub fn durable(&mut self, position: u64) {
        self.durable_position = position;
    }

    /// The server has been told the time.
    ///
    /// # Errors
    /// When a session is still there that should have ended.
    pub fn ticked(&mut self, moment: Moment) -> Checked {
        let tick_us = u64::from(self.config.tick_ms) * 1000;
        if moment.out_of_room {
            self.timers.grace(moment.now.mono_us + 3 * tick_us);
        }
        let handshake_us = u64::from(self.config.limits.handshake_ms) * 1000;
        let overdue = self.links.iter().find(|(_, link)| {
            link.phase == Phase::Handshake && link.connected_us + handshake_us <= moment.now.mono_us
        });
        if let Some((&key, _)) = overdue {
            return violation(format!("{} may still send its handshake after {handshake_us} us", name(key)));
        }
        self.timers.overdue(moment.now.mono_us, 2 * tick_us)
    }

    /// The server does not read on although it could: the length that comes next is out of range.
    pub fn met_bad_length(&mut self, key: ConnectionKey) {
        if self.links.get(&key).is_some_and(|link| matches!(link.phase, Phase::Handshake | Phase::Live)) {
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
    #[must_use]
    pub fn is_to_be_greeted(&self, key: ConnectionKey) -> bool {
        self.links.get(&key).is_some_and(|link| link.hello.is_some())
    }

    /// Whether a connection is past its handshake.
    #[must_use]
    pub fn is_live(&self, key: ConnectionKey) -> bool {
        self.links.get(&key).is_some_and(|link| link.phase == Phase::Live)
    }

    /// The log had no room: nothing of what was proposed and not applied will ever be.
    pub fn refused(&mut self, now: Now) {
        self.head = self.applied.clone();
        self.proposed.clear();
        self.logged = 0;
        self.entries.clear();
        let tick_us = u64::from(self.config.tick_ms) * 1000;
        self.timers.reopen(now.mono_us + 3 * tick_us);
        let applied = self.applied.zxid();
        for link in self.links.values_mut() {
            link.refuse_waiting(applied);
            if let Phase::Creating(_) = link.phase {
                link.shut(Some(CloseReason::NoRoom));
            }
        }
    }

    /// The server is gone; what it had told nobody may be lost.
    pub fn crashed(&mut self) {
        self.links.clear();
        self.watches = Watches::default();
    }

    /// A server has recovered this state, up to this position.
    ///
    /// # Errors
    /// When something acknowledged is missing, or anything is there that should not be.
    pub fn recovered(&mut self, tree: &Tree, position: u64, now: Now) -> Checked {
        if position < self.applied_position {
            return violation(format!(
                "position {position} was recovered, but everything up to {} had been acknowledged",
                self.applied_position
            ));
        }
        while self.applied_position < position {
            let Some(entry) = self.entries.pop_front() else {
                return violation(format!("position {position} was recovered, but never handed to the log"));
            };
            while self.applied.zxid() < entry.last_zxid {
                self.replay_one();
            }
            self.applied_position = entry.position;
        }
        self.entries.clear();
        self.proposed.clear();
        self.logged = 0;
        self.head = self.applied.clone();
        self.durable_position = position;
        self.timers = Timers::default();
        let sessions: Vec<_> =
            self.applied.sessions().map(|(id, session)| (id, session.timeout_ms)).collect();
        for (id, timeout_ms) in sessions {
            self.timers.start(id, timeout_ms, now.mono_us);
        }
        self.compare_state(tree)
    }

    /// Compares the server's whole state with the model.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare_state(&mut self, tree: &Tree) -> Checked {
        compare(tree, &self.applied)?;
        self.counts.states += 1;
        let zxid = self.applied.zxid();
        match self.digests.iter().rev().find(|(at, _)| *at == zxid) {
            Some((_, digest)) if *digest != tree.digest() => {
                let found = tree.digest();
                violation(format!("the digest at zxid {zxid} was {digest:x}, after recovery it is {found:x}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether nothing is under way any more.
    ///
    /// # Errors
    /// What still is, though it should not be.
    pub fn is_quiet(&self) -> Checked {
        if let Some(proposed) = self.proposed.front() {
            return violation(format!("the update with zxid {} was never applied", proposed.stamp.zxid));
        }
        if !self.watches.is_empty() {
            return violation("watches are left although all connections are gone".to_owned());
        }
        Ok(())
    }

    fn next_zxid(&self) -> i64 {
        self.proposed.back().map_or(self.applied.zxid(), |proposed| proposed.stamp.zxid) + 1
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
    ///
    /// # Errors
    /// When there was no reason.
    pub fn closes(&mut self, key: ConnectionKey, reason: CloseReason, unsent: usize, now: Now) -> Checked {
        let Some(link) = self.links.get_mut(&key) else {
            return violation(format!("{} was closed twice", name(key)));
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
            return violation(format!("{} was closed without reason: {reason}", name(key)));
        }
        link.queue.clear();
        self.shut(key, None);
        self.forget_watches_of(key);
        Ok(())
    }
}

fn violation(what: String) -> Checked {
    Err(Violation(what))
}
