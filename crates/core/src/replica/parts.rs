//! The parts of a replica: what belongs together, and what each is for.

use super::{Arrived, Due, Waiter};
use crate::catch_up::Returning;
use crate::config::Config;
use crate::controller::Controller;
use crate::coordination::{Coordination, Pending};
use crate::levels::KnownLevels;
use crate::liveness::{HeardBelow, Liveness};
use crate::local::Local;
use crate::membership::ServerList;
use crate::moves::Moves;
use crate::read_only::ReadOnly;
use crate::remote_client::RemoteClients;
use crate::session::Sessions;
use crate::session_table::{SessionNews, SessionTable};
use crate::side::Sides;
use crate::snapshot::Snapshots;
use crate::stats::Turn;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use stoa_front::{ConnectionId, Connections, Output, ToClient};
use stoa_partition::{Now, Partition, end_of};
use stoa_placement::{FIRST, Load, Placement};
use stoa_tree::Tree;
use stoa_wire::Timestamp;

/// Who asks, and what they are told.
#[derive(Default)]
pub(super) struct Clients {
    /// Clients' connections; those of any front, where there are several partitions.
    pub(super) connections: Connections,
    /// Clients of this server's fronts.
    pub(super) remote: RemoteClients,
    pub(super) sides: Sides,
    /// For clients of this server's fronts.
    pub(super) outbox: VecDeque<(u8, ConnectionId, ToClient)>,
    pub(super) outputs: VecDeque<Output>,
    /// Connections that are not listened to, by when that ends.
    pub(super) pauses: BTreeSet<(u64, ConnectionId)>,
    /// Connections that have not finished their handshake, in the order of their deadlines.
    pub(super) handshakes: VecDeque<(u64, ConnectionId)>,
    /// In the order of the zxids that they wait for.
    pub(super) waiters: VecDeque<Waiter>,
    /// Scratch for the body of the reply under construction.
    pub(super) body: Vec<u8>,
    pub(super) turn: Turn,
}

/// Whose sessions there are, and which of them live.
pub(super) struct SessionKeeping {
    /// Those that this server knows to live, with their timers; at the first partition.
    pub(super) live: Sessions,
    /// Who speaks for each, where another partition keeps them.
    pub(super) table: Option<SessionTable>,
    /// Where the others have to be told of them.
    pub(super) news: Option<SessionNews>,
    pub(super) local: Local,
    pub(super) read_only: ReadOnly,
    pub(super) liveness: Liveness,
    pub(super) returning: Returning,
    /// Of which readers it is to be told what the leader knows of whom they have heard of.
    pub(super) below: HeardBelow,
}

impl SessionKeeping {
    /// The sessions of a tree, whose timers start anew. Only the first partition keeps them.
    pub(super) fn new(config: &Config, tree: &Tree, secret: [u8; 32], now: Now) -> Self {
        let is_keeper = config.partition == FIRST;
        let mut live = Sessions::new(config.server_id, config.tick_ms, secret, now);
        if config.is_reader() {
            live = live.drawing();
        }
        let is_own = |session: i64| tree.own_site().is_none_or(|own| tree.home_of(session) == own);
        for session in tree.sessions().filter(|session| is_keeper && is_own(session.id)) {
            live.insert(session.id, session.timeout_ms, now);
        }
        Self {
            live,
            table: (!is_keeper).then(SessionTable::default),
            news: (is_keeper && config.partitions > 1).then(SessionNews::of_everything),
            local: Local::default(),
            read_only: ReadOnly::new(config.server_id, now),
            liveness: Liveness::new(now),
            returning: Returning::default(),
            below: HeardBelow::default(),
        }
    }
}

/// What only a leader does: it takes requests, coordinates operations over several partitions, moves subtrees,
/// reaps containers.
pub(super) struct Leading {
    /// Requests that were taken and wait for what they rest on, in their order.
    pub(super) pending: VecDeque<Pending>,
    /// Whether the first of them waits for this site to join the others.
    pub(super) waits_to_join: bool,
    pub(super) coordination: Coordination,
    pub(super) moves: Moves,
    pub(super) controller: Controller,
    /// What is asked of this partition.
    pub(super) load: Load,
    pub(super) reap_at_us: u64,
    /// Until when writes are refused, because the log had no room; microseconds.
    pub(super) no_room_until_us: Option<u64>,
}

impl Leading {
    /// `applied` is the position of the last applied entry.
    pub(super) fn new(config: &Config, hash_seed: u64, applied: u64, now: Now) -> Self {
        Self {
            pending: VecDeque::new(),
            waits_to_join: false,
            coordination: Coordination::default(),
            moves: Moves::new(applied),
            controller: Controller::default(),
            load: Load::new(hash_seed),
            reap_at_us: now.mono_us + u64::from(config.reaping.interval_ms) * 1000,
            no_room_until_us: None,
        }
    }
}

/// The state as it is applied, and as it will be.
pub(super) struct Applied {
    pub(super) partition: Partition,
    /// What lives on which partition.
    pub(super) placement: Placement,
    /// What the state here rests on, this partition's own position among it.
    pub(super) stamp: Timestamp,
    /// What is committed and not applied: watches have to come first, or it has to wait for its turn.
    pub(super) committed: VecDeque<Due>,
    /// It waits for its turn, and for nothing else.
    pub(super) has_more: bool,
    /// Position of the entry that is being applied.
    pub(super) applying: u64,
    pub(super) snapshots: Snapshots,
}

impl Applied {
    /// The state of a tree, which rests on `rests_on` and on this partition's own timeline up to `position`.
    pub(super) fn new(
        config: &Config,
        mut tree: Tree,
        rests_on: &Timestamp,
        position: u64,
        (hash_seed, snapshot_seed): (u64, u8),
    ) -> Self {
        let placement = Placement::with(config.partitions, tree.placed().version(), tree.placed().iter());
        let partitions = placement.partitions();
        let mut stamp = Timestamp::new(config.partitions);
        stamp.merge(rests_on);
        stamp.raise(config.partition, end_of(position));
        stamp.raise_zxid(tree.last_zxid());
        if partitions > 1 && tree.own_site().is_some() {
            tree.forget_told(stamp.zxid());
        }
        Self {
            partition: Partition::new(tree, hash_seed, (config.partition, partitions)),
            placement,
            stamp,
            committed: VecDeque::new(),
            has_more: false,
            applying: 0,
            snapshots: Snapshots::new(config.snapshot_updates, snapshot_seed, config.partitions),
        }
    }
}

/// What is known of the other servers, besides what the timeline knows.
#[derive(Default)]
pub(super) struct Servers {
    pub(super) list: ServerList,
    /// A snapshot that has come from another server.
    pub(super) arrived: Option<Arrived>,
    /// What the others, and other sites, can read.
    pub(super) levels: KnownLevels,
}
