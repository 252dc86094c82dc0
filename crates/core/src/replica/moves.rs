//! Subtrees move from one partition to another while they are used (AGORA, section IV-F).
//!
//! A move is an operation over all partitions ([`crate::coordination`]): they quiesce with nothing
//! outstanding, one gives the subtree, one takes it, and all note where it lives from now on. Each request
//! carries the version of the table that it was routed by, and a partition whose table is another one gives it
//! back to the client's front, which asks again when its own table is as new. So a request is carried out under
//! the very table that it was routed by. Of the requests that a client has under way at a partition, those that
//! come back are the last ones: all before them were carried out before the move. The front waits for all of
//! them and asks them again in their order; so none is lost, doubled or overtaken.
//!
//! Watches are not in the timelines. On each server the giver tells each front, when it gives, whose watches
//! leave with the subtree, and each front passes that on to the taker, which waits for all of them before it takes.
//! So all events up to the move come from the giver, all later ones from the taker, and a front knows by whom its
//! client is told of what before anything follows from the move.

use crate::coordination::Pending;
use crate::moves::Moved;
use crate::replica::Replica;
use crate::shard_message::ShardMessage;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use stoa_front::{Connection, ConnectionId, LeftWatch, Slot, ToClient, frame};
use stoa_partition::{Asked, Item, Items, Outcome, Part};
use stoa_placement::{MoveRefusal, Placement};
use stoa_timeline::EntryId;
use stoa_tree::{MovedWatch, Moving, Refusal, SiteStep, WatchMode, WatcherId};
use stoa_wire::{ErrorCode, Opcode, RequestHeader};

/// So many moves may wait for their turn.
const WAITING_MAX: usize = 64;

/// What moves with an entry that is a part of a move.
fn moving(entry: &[u8]) -> Option<Moving<'_>> {
    match Items::new(entry).next()?.ok()? {
        Item { outcome: Outcome::Part(part), .. } => part.update.as_ref()?.moving(),
        _ => None,
    }
}

impl Replica {
    // ---- where things live ----

    /// Where everything lives, as of what is applied here.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.applied.placement
    }

    /// The state has changed: what lives where may have too.
    #[inline]
    pub(crate) fn note_placement(&mut self) {
        let placed = self.applied.partition.tree().placed();
        if placed.version() != self.applied.placement.version() {
            self.applied.placement =
                Placement::with(self.applied.placement.partitions(), placed.version(), placed.iter());
            self.applied
                .partition
                .extensions_mut()
                .is_at_home(self.applied.placement.clone(), self.config.partition);
        }
    }

    /// Whether a connection's requests were routed by another table than this partition has.
    #[inline]
    pub(crate) fn is_misplaced(&self, id: ConnectionId) -> bool {
        let remote = self.clients.connections.get(id).and_then(|connection| connection.remote.as_ref());
        remote.is_some_and(|remote| remote.placed < self.applied.placement.version())
    }

    /// Gives a remote client's request back to its front, behind all that was answered before it.
    pub(crate) fn send_back(&mut self, id: ConnectionId, frame: Box<[u8]>) {
        let remote = self.clients.connections.get(id).and_then(|connection| connection.remote.as_ref());
        let Some((front, client)) = remote.map(|remote| (remote.front, remote.client)) else { return };
        let before = self.frames(id);
        self.clients.outbox.extend(before.map(|frames| (front, client, frames)));
        let (version, stamp) = (self.applied.placement.version(), self.stamp_by_now());
        self.clients.outbox.push_back((front, client, ToClient::WrongPartition { version, frame, stamp }));
    }

    /// The leader has not taken a write because of where it was sent.
    pub(crate) fn write_comes_back(&mut self, id: ConnectionId, asked: &[u8]) {
        let queue = self.clients.connections.get(id).map(Connection::slots);
        // What it has asked before and another site carries out has its outcome later.
        let before = self.sites.requests.forwarded.values().filter(|it| it.connection == id).count();
        let writes = queue.into_iter().flatten().enumerate();
        let mut writes = writes.filter(|(_, slot)| matches!(slot, Slot::Write { .. }));
        let Some((at, Slot::Write { xid, .. })) = writes.nth(before) else { return };
        if let Ok(Asked::Write { opcode, body, .. }) = Asked::decode(asked) {
            let frame = frame(RequestHeader { xid: *xid, opcode: opcode as i32 }, body);
            if before == 0 {
                self.clients.connections.remove_slot(id, at);
                self.send_back(id, frame);
            } else if let Some(connection) = self.clients.connections.get_mut(id) {
                connection.asks_instead(at, frame);
            }
        }
        self.drain(id);
    }

    /// A sync whose path may live elsewhere.
    pub(crate) fn sync_comes_back(&mut self, id: ConnectionId, xid: i32, body: &[u8]) {
        self.send_back(id, frame(RequestHeader { xid, opcode: Opcode::Sync as i32 }, body));
    }

    // ---- moves, at the first partition ----

    /// At the first partition of the server that leads: moves the subtree at a path, with what is in it and
    /// has not been moved by itself. What becomes of that comes out of [`Replica::poll_moved`], or nothing does if
    /// this server stops leading.
    ///
    /// # Errors
    /// When that can be told at once.
    pub fn ask_move(&mut self, path: &str, to: u8) -> Result<(), MoveRefusal> {
        let may_ask = self.has_sessions() && self.timeline.leads() && self.has_joined();
        if !may_ask || self.leader.moves.waiting >= WAITING_MAX {
            return Err(MoveRefusal::NotNow);
        }
        self.applied.placement.check_move(path, to)?;
        let mut asked = Vec::new();
        Asked::put_move(&mut asked, path, to);
        self.leader.moves.waiting += 1;
        self.leader.pending.push_back(Pending { origin: None, asked: asked.into() });
        self.take_pending();
        Ok(())
    }

    /// What became of a move.
    pub fn poll_moved(&mut self) -> Option<Moved> {
        self.leader.moves.outcomes.pop_front()
    }

    /// A move cannot be.
    pub(super) fn move_refused(&mut self, asked: &Asked<'_>, refusal: MoveRefusal) {
        if let Asked::Move { path, to } = asked {
            self.move_ended(path, *to, Err(refusal));
        }
    }

    fn move_ended(&mut self, path: &str, to: u8, result: Result<(), MoveRefusal>) {
        self.leader.moves.waiting = self.leader.moves.waiting.saturating_sub(1);
        if self.leader.moves.outcomes.len() < WAITING_MAX {
            self.leader.moves.outcomes.push_back(Moved { path: path.into(), to, result });
        }
    }

    /// All parts of an operation are prepared: if it is a move, it is done when this partition's is applied.
    pub(crate) fn is_kept(&mut self, asked: &[u8]) {
        if let Ok(Asked::Move { path, to }) = Asked::decode(asked) {
            self.leader.moves.kept = Some((path.into(), to));
        }
    }

    /// Whoever has asked for the move that was under way can build on it: the table says so.
    fn kept_is_done(&mut self) {
        let placement = &self.applied.placement;
        if let Some((path, to)) = self.leader.moves.kept.take_if(|(path, to)| placement.of(path) == *to) {
            self.move_ended(&path, to, Ok(()));
        }
    }

    /// Something that the server itself wanted is refused.
    pub(crate) fn server_is_refused(&mut self, pending: Option<Pending>, refusal: Refusal) {
        let Some(Pending { asked, .. }) = pending else { return };
        let (path, to) = match (Asked::decode(&asked), refusal) {
            (Ok(Asked::Move { path, to }), _) => (path, to),
            (Ok(Asked::SiteStep(SiteStep::Token { path, holder, .. })), Refusal::Error(code)) => {
                return self.token_is_refused(path, holder, code);
            }
            _ => return,
        };
        let refusal = match refusal {
            Refusal::Error(ErrorCode::NoNode | ErrorCode::NodeExists) => MoveRefusal::NoNode,
            Refusal::Error(ErrorCode::MarshallingError) => MoveRefusal::TooLarge,
            Refusal::Error(ErrorCode::Unimplemented) => MoveRefusal::Quota,
            Refusal::Error(ErrorCode::BadArguments) => MoveRefusal::TableFull,
            _ => MoveRefusal::NotNow,
        };
        self.move_ended(path, to, Err(refusal));
    }

    /// This server does not lead any more: what was asked for is forgotten.
    pub(crate) fn forget_moves(&mut self) {
        self.leader.moves.waiting = 0;
        self.leader.moves.kept = None;
        self.leader.moves.outcomes.clear();
    }

    // ---- watches that leave and come ----

    /// Whether the watches are here that come with what an entry takes, if it takes something.
    pub(crate) fn watches_are_here(&mut self, entry: &[u8], places: &[EntryId]) -> bool {
        let Some(Moving::Taken(path)) = moving(entry) else { return true };
        let place_of = |partition| places.iter().find(|place| place.partition == partition).copied();
        let (given, taken) = (place_of(self.applied.placement.of(path)), place_of(self.config.partition));
        let (Some(given), Some(taken)) = (given, taken) else { return true };
        if !self.leader.moves.coming.contains_key(&taken) {
            // If it was given before this process began nobody would say so.
            self.say(given.partition, ShardMessage::Follow { given, taken });
        }
        let (fronts, _) = self.leader.moves.coming.entry(taken).or_default();
        *fronts == u64::MAX >> (64 - u32::from(self.applied.placement.partitions()))
    }

    /// Who takes what this partition has given at a place waits for the watches on that.
    pub(crate) fn is_followed(&mut self, given: EntryId, taken: EntryId) {
        if given.position <= self.leader.moves.begun {
            self.tell_fronts(taken, BTreeMap::new());
        } else if given.position > self.timeline.applied_at().0 {
            self.leader.moves.followers.push((given, taken));
        }
    }

    fn tell_fronts(&mut self, taken: EntryId, mut leaving: BTreeMap<u8, Vec<LeftWatch>>) {
        for front in 0..self.applied.placement.partitions() {
            let watches = leaving.remove(&front).unwrap_or_default();
            self.say(front, ShardMessage::Leaves { taken, watches });
        }
    }

    /// A move has been applied here.
    pub(crate) fn is_moved_here(&mut self, part: &Part<'_>) {
        self.kept_is_done();
        let own = self.config.partition;
        match part.update.as_ref().and_then(stoa_tree::Update::moving) {
            Some(Moving::Given(path)) => {
                let to = self.applied.placement.of(path);
                let taken = part.places().find(|place| place.partition == to);
                taken.into_iter().for_each(|taken| self.watches_leave(path, taken));
            }
            Some(Moving::Taken(_)) => {
                let taken = part.places().find(|place| place.partition == own);
                taken.into_iter().for_each(|taken| self.watches_arrive(taken));
            }
            None => {}
        }
    }

    /// Watches on what was given leave too. Recursive ones go wherever something is that they are for, also
    /// those on what is above it, and stay where something is.
    fn watches_leave(&mut self, path: &str, taken: EntryId) {
        self.leader.moves.followers.retain(|(_, follower)| *follower != taken);
        let (placement, own) = (&self.applied.placement, self.config.partition);
        let watches = self.applied.partition.watches_mut();
        let mut leaving = watches.take_below(path, |path| placement.of(path) == own);
        let is_recursive = |watch: &&MovedWatch| watch.mode == WatchMode::PersistentRecursive;
        for MovedWatch { path, watcher, mode } in leaving.iter().filter(is_recursive) {
            if placement.is_on(path, own) {
                watches.add(path, *watcher, *mode);
            }
        }
        leaving.extend(watches.recursive_above(path));
        let mut by_front = BTreeMap::<u8, Vec<LeftWatch>>::new();
        for MovedWatch { path, watcher, mode } in leaving {
            let connection = self.clients.connections.get(ConnectionId(watcher.0));
            if let Some(remote) = connection.and_then(|connection| connection.remote.as_ref()) {
                by_front.entry(remote.front).or_default().push((remote.client, path, mode));
            }
        }
        self.tell_fronts(taken, by_front);
    }

    /// What a front has to say of watches that come here.
    pub(crate) fn watches_come(&mut self, front: u8, taken: EntryId, watches: Vec<LeftWatch>) {
        if taken.position <= self.timeline.applied_at().0 {
            return;
        }
        let (fronts, coming) = self.leader.moves.coming.entry(taken).or_default();
        *fronts |= 1 << front;
        coming.extend(watches.into_iter().map(|watch| (front, watch)));
        self.apply_committed();
    }

    /// Watches on what has just been taken.
    fn watches_arrive(&mut self, taken: EntryId) {
        let Some((_, watches)) = self.leader.moves.coming.remove(&taken) else { return };
        for (front, (client, path, mode)) in watches {
            if let Some(id) = self.remote(front, client) {
                self.applied.partition.watches_mut().add(&path, WatcherId(id.0), mode);
            }
        }
    }

    /// This partition's state is another server's. If something was moved meanwhile, this server's clients may
    /// have watches where nobody tells them of anything.
    pub(crate) fn placement_replaced(&mut self) {
        let at = self.timeline.applied_at().0;
        // Others may have come past that already, and tell what leaves for here later.
        self.leader.moves.coming.retain(|taken, _| taken.position > at);
        self.leader.moves.begun = at;
        for (given, taken) in core::mem::take(&mut self.leader.moves.followers) {
            self.is_followed(given, taken);
        }
        let before = self.applied.placement.version();
        self.note_placement();
        if before != self.applied.placement.version() {
            for front in 0..self.applied.placement.partitions() {
                self.say(front, ShardMessage::Replaced);
            }
        }
    }
}
