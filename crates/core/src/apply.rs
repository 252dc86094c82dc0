//! What is durable is applied: watches are triggered, replies written, waiting reads let go.

use crate::connection::{CloseReason, ConnectionId, Connections, Phase, Slot};
use crate::planted::Bug;
use crate::server::Server;
use crate::stats::Stats;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_tree::{Caller, Change, Observer, OpResult, SoftQuota, Tree, Updates, WatcherId, Watches};
use stoa_wire::{
    EventKind, KeeperState, MultiResults, Opcode, ReplyHeader, WatcherEvent, begin_frame, end_frame, perms,
    put, xid,
};

impl Server {
    /// Applies every entry up to position `durable`.
    ///
    /// # Panics
    /// When an entry that we made ourselves cannot be applied: the state is then unknown, and
    /// nothing may be served from it.
    pub(crate) fn apply_durable(&mut self, durable: u64) {
        while let Some(payload) = self.partition.next_durable(durable) {
            for update in Updates::new(&payload) {
                let update = update.expect("an update that this server encoded can be decoded");
                self.apply_update(&update);
            }
            self.partition.recycle(payload);
        }
        self.release_waiters(self.partition.tree.last_zxid());
        if self.waiters.is_empty() && self.waiters.capacity() > WAITERS_KEPT {
            self.waiters = VecDeque::new();
        }
        self.poll_snapshot_due();
    }

    fn apply_update(&mut self, update: &stoa_tree::Update<'_>) {
        self.release_waiters(update.zxid - 1);
        let own = self.waiters.front().filter(|waiter| waiter.own && waiter.zxid == update.zxid).copied();
        let writer = own.and_then(|waiter| {
            self.waiters.pop_front();
            self.write_of(waiter.connection, update.zxid)
        });
        let mut body = core::mem::take(&mut self.body);
        body.clear();
        let written = self.planted_mark(writer.as_ref().map(|writer| writer.connection));
        let mut effects = Effects {
            watches: &mut self.partition.watches,
            connections: &mut self.connections,
            stats: &mut self.stats,
            body: &mut body,
            opcode: writer.as_ref().map(|writer| writer.opcode),
            created: None,
            ended: None,
            warnings: &mut self.warnings,
            output_max: self.config.limits.output_close_bytes,
            overflowing: Vec::new(),
            deaf: self.planted.is(Bug::EventIsLost) && update.zxid % 32 == 0,
        };
        let tree: &mut Tree = &mut self.partition.tree;
        tree.apply(update, &mut effects).expect("an update that this server prepared can be applied");
        let Effects { created, ended, overflowing, .. } = effects;
        for id in overflowing {
            self.check_output(id);
        }
        if let Some((session, timeout_ms)) = created {
            // Also when its connection is gone already: then it expires like any silent session.
            self.sessions.insert(session, timeout_ms, self.now);
        }
        self.snapshots.applied();
        if let Some(writer) = writer {
            if writer.opcode == Opcode::Multi {
                MultiResults::end(&mut body);
            }
            self.reply(writer.connection, writer.xid, writer.opcode, 0, &body, writer.arrived_us);
            self.planted_swap(writer.connection, written, body.len());
        } else if let Some(waiter) = own {
            self.session_created(waiter.connection);
        }
        if let Some(session) = ended {
            self.session_ended(session, writer.as_ref().map(|writer| writer.connection));
        }
        if let Some(writer) = writer {
            self.drain(writer.connection);
        }
        self.body = body;
    }

    /// Takes the write with this zxid off the head of its connection's queue.
    fn write_of(&mut self, connection: ConnectionId, zxid: i64) -> Option<Writer> {
        let head = self.connections.get(connection)?.queue.front();
        if !matches!(head, Some(Slot::Write { zxid: head, .. }) if *head == zxid) {
            return None;
        }
        match self.connections.pop_slot(connection) {
            Some(Slot::Write { xid, opcode, arrived_us, .. }) => {
                Some(Writer { connection, xid, opcode, arrived_us })
            }
            _ => None,
        }
    }

    /// Lets answers go that waited for nothing later than `zxid`.
    fn release_waiters(&mut self, zxid: i64) {
        while let Some(waiter) = self.waiters.front().filter(|waiter| waiter.zxid <= zxid).copied() {
            self.waiters.pop_front();
            self.drain(waiter.connection);
        }
    }

    fn session_ended(&mut self, session: i64, closed_by: Option<ConnectionId>) {
        let Some(live) = self.sessions.remove(session) else { return };
        // Its own close is the last thing that is answered; whoever else holds it learns by the end
        // of the connection.
        let reason =
            if closed_by.is_some() { CloseReason::SessionClosed } else { CloseReason::SessionExpired };
        for id in [live.connection, closed_by].into_iter().flatten() {
            if let Some(connection) = self.connections.get_mut(id)
                && let Phase::Live(_) = connection.phase
            {
                self.close(id, reason);
            }
        }
    }
}

/// As many waiters stay allocated when nobody waits.
const WAITERS_KEPT: usize = 4096;

/// Warnings that are kept until the driver asks for them.
const WARNINGS_MAX: usize = 16;

/// Whose request an update answers.
#[derive(Debug, Clone, Copy)]
struct Writer {
    connection: ConnectionId,
    xid: i32,
    opcode: Opcode,
    arrived_us: u64,
}

/// Receives what an update does: events go out at once, so that they precede every reply that shows
/// the change; results become the body of the reply.
struct Effects<'a> {
    watches: &'a mut Watches,
    connections: &'a mut Connections,
    stats: &'a mut Stats,
    body: &'a mut Vec<u8>,
    /// The request's opcode, when somebody here waits for its reply.
    opcode: Option<Opcode>,
    /// The session that began, with its timeout in milliseconds.
    created: Option<(i64, i32)>,
    /// The session that ended.
    ended: Option<i64>,
    warnings: &'a mut VecDeque<String>,
    /// A connection with more output than this is closed, bytes.
    output_max: usize,
    overflowing: Vec<ConnectionId>,
    /// A planted bug: nobody is told.
    deaf: bool,
}

impl Observer for Effects<'_> {
    fn changed(&mut self, change: &Change<'_>) {
        let Self { watches, connections, stats, output_max, overflowing, deaf, .. } = self;
        watches.trigger(change, &mut |watcher: WatcherId, kind: EventKind, path: &str| {
            let id = ConnectionId(watcher.0);
            let Some(connection) = connections.get(id) else { return };
            let caller = Caller { session: connection.session, identities: &connection.identities };
            if *deaf || !change.acl.permits(perms::READ, &caller) {
                return;
            }
            notify(connections, stats, id, change.zxid, kind, path);
            if connections.get(id).is_some_and(|connection| connection.output_bytes() > *output_max) {
                overflowing.push(id);
            }
        });
    }

    fn quota_exceeded_softly(&mut self, quota: &SoftQuota<'_>) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push_back(quota_warning(quota));
        }
    }

    fn result(&mut self, result: OpResult<'_>) {
        match result {
            OpResult::SessionCreated { session, timeout_ms, .. } => {
                self.created = Some((session, timeout_ms));
            }
            OpResult::SessionClosed { session } => self.ended = Some(session),
            _ => {}
        }
        let Some(opcode) = self.opcode else { return };
        if opcode == Opcode::Multi {
            match result {
                OpResult::Created { path, stat, with_stat } => {
                    MultiResults::created(self.body, path, with_stat.then_some(&stat));
                }
                OpResult::Deleted => MultiResults::deleted(self.body),
                OpResult::DataSet { stat } => MultiResults::data_set(self.body, &stat),
                _ => MultiResults::checked(self.body),
            }
            return;
        }
        match result {
            OpResult::Created { path, stat, with_stat } => {
                put::str(self.body, path);
                if with_stat {
                    stat.encode(self.body);
                }
            }
            OpResult::DataSet { stat } | OpResult::AclSet { stat } | OpResult::Checked { stat } => {
                stat.encode(self.body);
            }
            _ => {}
        }
    }
}

/// Says which quota is exceeded, for the log.
fn quota_warning(quota: &SoftQuota<'_>) -> String {
    let SoftQuota { prefix, bytes, limit, usage } = quota;
    let what = if *bytes { "bytes of data" } else { "znodes" };
    format!("the soft quota of {prefix} is exceeded: {usage} {what}, the limit is {limit}")
}

/// Writes a watch notification.
pub(crate) fn notify(
    connections: &mut Connections,
    stats: &mut Stats,
    id: ConnectionId,
    zxid: i64,
    kind: EventKind,
    path: &str,
) {
    let Some(output) = connections.output(id) else { return };
    let start = begin_frame(output);
    ReplyHeader { xid: xid::NOTIFICATION, zxid, err: 0 }.encode(output);
    WatcherEvent { kind: kind as i32, state: KeeperState::SyncConnected as i32, path }.encode(output);
    end_frame(output, start);
    let bytes = output.len() - start;
    stats.sent(bytes);
    stats.watch_events += 1;
    if let Some(connection) = connections.get_mut(id) {
        connection.sent += 1;
    }
}
