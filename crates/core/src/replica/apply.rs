//! What is committed is applied: watches are triggered, replies written, waiting reads let go.

use crate::replica::request::failed_multi;
use crate::replica::sites::SITES_PATH;
use crate::replica::{Due, Replica, WARNINGS_MAX};
use crate::stats::Stats;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_front::{CloseReason, ConnectionId, Connections, Phase, Slot};
use stoa_group::{Entry, EntryKind};
use stoa_partition::{
    Item, Items, Now, Outcome, Part, Ran, SiteItem, end_of, is_of_programs, part_places, step_of,
};
use stoa_placement::{HINTS_PATH, Placement};
use stoa_timeline::Lead;
use stoa_tree::{
    CONFIG_PATH, Caller, Change, Observer, OpResult, Places, Refusal, SoftQuota, Tree, Update, WatcherId,
    Watches,
};
use stoa_wire::{
    ErrorCode, EventKind, KeeperState, MultiResults, Opcode, PASSWORD_LEN, ReplyHeader, WatcherEvent,
    begin_frame, end_frame, perms, put, xid,
};

impl Replica {
    /// Applies a committed entry.
    ///
    /// # Panics
    /// When it cannot be applied: the states of two servers have parted, and nothing may be served.
    ///
    /// Returns how many items it had.
    pub(crate) fn apply_entry(&mut self, entry: &Entry) -> usize {
        self.applied.applying = entry.position;
        let (mut step, mut items, mut is_plain) = (0, 0, true);
        let made_before = self.applied.partition.tree().last_prepared_zxid();
        if entry.kind == EntryKind::Payload {
            for item in Items::new(&entry.payload) {
                items += 1;
                let item = item.expect("an entry that a leader made can be read");
                is_plain &= !matches!(item.outcome, Outcome::Site(_));
                match item.outcome {
                    Outcome::Step(seen) => {
                        seen.merge_into(&mut self.applied.stamp)
                            .expect("an entry that a leader made can be read");
                        self.applied.stamp.raise(self.config.partition, step_of(entry.position, step));
                        self.stamp_outbox();
                        step += 1;
                    }
                    Outcome::Site(
                        SiteItem::Import { from, position, items }
                        | SiteItem::Share { from, position, items },
                    ) => self.apply_import(from, position, items),
                    _ => self.apply_item(&item),
                }
            }
            if !self.applied.placement.is_divided() {
                self.keep_for_sites(entry.position, &entry.payload, is_plain.then_some(made_before));
            }
        }
        self.entry_is_applied(entry);
        items
    }

    /// Applies what became of a request, or what nobody has asked for.
    #[inline]
    pub(crate) fn apply_item(&mut self, item: &Item<'_>) {
        let Item { origin, pause_us, outcome } = *item;
        let mut lost = Vec::new();
        let own = origin.and_then(|origin| self.timeline.outcome(origin, |id| lost.push(id)));
        // What a reader has asked that reader finds by itself, and follows up: nobody waits for it here.
        let own = own.filter(|(id, _)| !id.is_of_reader());
        let told_by = self.is_told_by(item);
        let own = own.or_else(|| if told_by.is_none() { self.forwarded_by(item) } else { None });
        self.sites.divided.tells = self.number_to_tell(told_by, item);
        let (own, asked) = own.map_or((None, Bytes::new()), |(id, asked)| (Some(id), asked));
        for id in lost {
            self.close(id, CloseReason::LeaderChanged);
        }
        // That a session is a global one now is no answer to anything that its client waits for.
        let upgraded = own.filter(|id| origin.is_some_and(|it| self.is_of_upgrade(*id, it)));
        let own = own.filter(|_| upgraded.is_none());
        match outcome {
            Outcome::Refused(_) if upgraded.is_some() => {
                upgraded.into_iter().for_each(|id| self.upgrade_refused(id));
            }
            Outcome::Update(update) => {
                // Nothing follows from what comes once more: its session may have gone on by now.
                let is_news = !self.applied.partition.tree().has_come(&update);
                self.apply_update(&update, own, &Telling::default());
                if self.is_of_sites()
                    && is_news
                    && let Some(to) = update.new_home()
                {
                    self.session_goes(update.session, to, own, &asked);
                }
                if is_news {
                    self.reign_applied(&update);
                }
            }
            Outcome::Refused(refusal) => self.refused(refusal, own),
            Outcome::Part(part) => self.apply_part(&part, own, &asked),
            Outcome::Elsewhere => own.into_iter().for_each(|id| self.write_comes_back(id, &asked)),
            Outcome::Ran(ran) => self.apply_ran(&ran, own),
            Outcome::Failed(code, text) => self.failed(code, text, own),
            Outcome::Untaken => own.into_iter().for_each(|id| self.read_untaken(id, &asked)),
            Outcome::Seen(seen) => {
                seen.merge_into(&mut self.applied.stamp).expect("an entry that a leader made can be read");
            }
            // Steps are the entry's own, and what else there is of sites is noted below.
            Outcome::Step(_) | Outcome::Site(_) => {}
        }
        if own.is_none() {
            self.tell_asker(item);
        }
        self.note_joining(item);
        self.note_site_item(item, own);
        self.note_standing(item);
        self.note_promise(item);
        own.into_iter().for_each(|id| self.pause(id, pause_us));
    }

    fn entry_is_applied(&mut self, entry: &Entry) {
        self.timeline.applied(entry.position, entry.term);
        self.applied.stamp.raise(self.config.partition, end_of(entry.position));
        self.applied.stamp.raise_zxid(self.applied.partition.tree().last_zxid());
        let (now_us, stats) = (self.now.mono_us, &mut self.stats);
        let has_others = self.timeline.has_others();
        self.applied.partition.applied(entry.position, |proposed_us| {
            if has_others {
                stats.agreement.record(now_us.saturating_sub(proposed_us), 1);
            }
        });
        self.settle_term();
    }

    /// Applies what is committed, up to what watches have to come for, and no more than a turn's worth of it: see
    /// [`Replica::apply_more`].
    pub(crate) fn apply_committed(&mut self) {
        if !self.applied.has_more {
            self.apply_up_to(self.config.limits.turn_cost);
        }
    }

    /// Whether committed entries wait for the next turn, and nothing but that.
    #[must_use]
    pub fn has_more_to_apply(&self) -> bool {
        self.applied.has_more
    }

    /// The next turn of what [`Replica::has_more_to_apply`] tells of. When thousands of clients are answered by what
    /// one sync has made durable, others are served in between.
    pub(crate) fn apply_more(&mut self, now: Now) {
        self.at(now);
        if core::mem::take(&mut self.applied.has_more) {
            self.apply_committed();
            self.timeline.compact();
            self.pump();
        }
    }

    /// Applies all that is committed and has waited for its turn: what is forgotten next would have been its.
    pub(crate) fn finish_applying(&mut self) {
        if core::mem::take(&mut self.applied.has_more) {
            self.apply_up_to(usize::MAX);
        }
    }

    /// Applies entries until that has cost so much. Of many that wait it is at least an eighth, so that whoever is
    /// slower than the others in this keeps up all the same.
    fn apply_up_to(&mut self, cost_max: usize) {
        let before = self.timeline.applied_at();
        let answered = self.clients.connections.announced_count();
        let (waiting, mut items, mut is_logged) = (self.applied.committed.len(), 0, false);
        // A part is prepared against what is applied when it begins.
        while !self.leader.coordination.has_open_part()
            && let Some(due) = self.applied.committed.pop_front()
        {
            let entry = match due {
                Due::Entry(entry) => entry,
                Due::Snapshot(number) => {
                    self.walk_snapshot(number);
                    continue;
                }
                Due::Logged(entry) => {
                    self.apply_logged(&entry);
                    is_logged = true;
                    continue;
                }
            };
            let places = part_places(&entry.payload);
            if !places.is_empty() {
                if !self.watches_are_here(&entry.payload, &places) || !self.hub_state_is_here(&entry.payload)
                {
                    self.applied.committed.push_front(Due::Entry(entry));
                    break;
                }
                // What follows from a part is told with those of others, by the very place of it.
                self.stamp_outbox();
            }
            items += self.apply_entry(&entry);
            if !places.is_empty() {
                self.stamp_outbox();
            }
            let answers = self.clients.connections.announced_count().saturating_sub(answered);
            let left = self.applied.committed.len();
            if items + answers * ANSWER_COST >= cost_max && left <= waiting - waiting / 8 {
                self.applied.has_more = left > 0;
                break;
            }
        }
        if !self.servers.levels.readers.is_empty() {
            self.end_outdated_readers();
        }
        self.note_all_applied();
        if self.timeline.applied_at() != before {
            self.after_entries();
            self.stand_after(self.timeline.applied_at().0);
            self.tend_balance_if_moved();
        } else if is_logged {
            self.tend_sites();
        }
    }

    /// What is to be done when some entries have been applied.
    pub(crate) fn after_entries(&mut self) {
        self.release_waiters(self.applied.partition.tree().last_prepared_zxid());
        let has_joined = self.leader.waits_to_join && self.has_joined();
        self.leader.waits_to_join &= !has_joined;
        if self.applied.partition.extensions_mut().has_settled() || has_joined {
            // Requests of who has registered or acknowledged something may have waited for that; and what a site was asked
            // that was given up meanwhile, with all behind it, for that site to join anew.
            self.take_pending();
        }
        if self.clients.waiters.is_empty() && self.clients.waiters.capacity() > WAITERS_KEPT {
            self.clients.waiters = VecDeque::new();
        }
        self.take_ticket_outcomes();
        self.tend_sites();
        self.let_local_return();
        self.hear_held_below();
        self.release_barriers();
        self.poll_snapshot_due();
        self.resume_congested();
    }

    /// What is answered to a write is what its update has come to, or what a program has said. Returns its error.
    #[inline]
    fn end_body(&self, opcode: Opcode, telling: &Telling<'_>, body: &mut Vec<u8>) -> i32 {
        if let Some((err, reply)) = telling.reply {
            body.clear();
            body.extend_from_slice(reply);
            return err;
        }
        match opcode {
            Opcode::Multi => MultiResults::end(body),
            Opcode::Reconfig => {
                // The new list stands before its Stat.
                let stat = core::mem::take(body);
                put::str(body, self.servers().unwrap_or_default());
                body.extend_from_slice(&stat);
            }
            _ => {}
        }
        0
    }

    /// `own` is the connection whose request it was, if it came in here.
    pub(crate) fn apply_update(
        &mut self,
        update: &Update<'_>,
        own: Option<ConnectionId>,
        telling: &Telling<'_>,
    ) {
        let is_imported = self.sites.is_importing;
        if !is_imported {
            self.release_waiters(update.zxid - 1);
        }
        self.count_update(update);
        let writer = self.writer_of(own);
        let is_audited = self.clients.connections.is_audited();
        let tells = self.sites.divided.tells.take();
        let (tree, watches, _) = self.applied.partition.parts_mut();
        let mut body = core::mem::take(&mut self.clients.body);
        body.clear();
        let mut effects = Effects {
            watches,
            connections: &mut self.clients.connections,
            stats: &mut self.stats,
            body: &mut body,
            // Of anything but a multi its result is what is told.
            opcode: writer.as_ref().map(|writer| writer.opcode).or(tells.map(|_| Opcode::SetData)),
            opened: None,
            end: SessionEnd { session: None, deleted: is_audited.then(Vec::new) },
            warnings: &mut self.warnings,
            output_max: self.config.limits.output_close_bytes,
            overflowing: Vec::new(),
            changed: Texts::default(),
            programs: Vec::new(),
            muted: sorted(telling.muted),
            is_muted: false,
            results: telling.results,
            place: (&self.applied.placement, self.config.partition),
        };
        let places = (&self.applied.placement, self.config.partition);
        carry_out(tree, update, is_imported, places, &mut effects);
        let Effects { opened, end, overflowing, changed, programs, .. } = effects;
        for id in overflowing {
            self.check_output(id);
        }
        self.applied.snapshots.applied();
        self.programs_applied(&programs, update.zxid);
        self.texts_changed(changed);
        if let Some(opened) = opened {
            self.session_opened(&opened, own);
        }
        if let Some(number) = tells {
            self.tell_moved_asker(number, &body);
        }
        if let Some(writer) = &writer {
            let err = self.end_body(writer.opcode, telling, &mut body);
            match telling.is_part {
                // The end of a session waits for nothing.
                true if writer.opcode == Opcode::CloseSession => {}
                true => self.hold_part_if_needed(writer.connection, update.zxid),
                false => self.hold_if_needed(writer.connection, update),
            }
            self.answer_writer(writer, err, &body);
        }
        if let Some(session) = end.session {
            self.clients.connections.audit_ephemerals(session, end.deleted.unwrap_or_default());
            self.session_ended(session, writer.as_ref().map(|writer| writer.connection));
        }
        if let Some(writer) = writer {
            self.drain(writer.connection);
        }
        self.clients.body = body;
    }

    /// What operators have written is read anew.
    #[inline]
    fn texts_changed(&mut self, changed: Texts) {
        if changed.servers {
            self.servers_changed();
        }
        if changed.hints {
            self.hints_changed();
        }
        if changed.sites {
            self.durability_changed();
        }
    }

    fn count_update(&mut self, update: &Update<'_>) {
        // What the log held at the start comes from who has proposed it then.
        if update.time_ms >= self.began_ms
            && let Ok(took_ms) = u64::try_from(self.now.wall_ms - update.time_ms)
        {
            self.stats.propagation.record(took_ms.saturating_mul(1000), 1);
        }
        match self.timeline.lead() {
            _ if !self.timeline.has_others() => {}
            Lead::Active => self.stats.led_updates += 1,
            _ => self.stats.followed_updates += 1,
        }
    }

    /// A part of an operation of which all are there. The reply was written when they were prepared:
    /// what it tells is not all here.
    fn apply_part(&mut self, part: &Part<'_>, own: Option<ConnectionId>, asked: &Bytes) {
        if self.is_of_sites() {
            self.note_told();
        }
        let mut parts = 0;
        for place in part.places() {
            self.applied.stamp.raise(place.partition, end_of(place.position));
            parts |= 1 << place.partition;
        }
        self.answer_when_whole(own, parts);
        match &part.update {
            Some(update) => {
                let record = Ran::of_part(part.record);
                let muted = record.as_ref().map(|record| record.muted.as_slice()).unwrap_or_default();
                let telling =
                    Telling { reply: Some((0, part.reply)), muted, is_part: true, ..Telling::default() };
                self.apply_update(update, own, &telling);
                if let Some(record) = &record {
                    self.tell(&record.told);
                }
            }
            None => {
                own.into_iter().for_each(|id| self.hold_part_if_needed(id, i64::MAX));
                self.answer_own(own, 0, part.reply);
            }
        }
        if let Some(update) = part.update.filter(|_| self.is_of_sites()) {
            self.note_site_step(&update.single(), own, asked);
        }
        self.note_placement();
        self.is_moved_here(part);
    }

    /// Answers the request that an item is about, if it came in here.
    pub(crate) fn answer_own(&mut self, own: Option<ConnectionId>, err: i32, body: &[u8]) {
        let Some(writer) = self.writer_of(own) else { return };
        self.answer_writer(&writer, err, body);
        self.drain(writer.connection);
    }

    /// The leader has refused a request.
    pub(crate) fn refused(&mut self, refusal: Refusal, own: Option<ConnectionId>) {
        let Some(id) = own else { return };
        if matches!(
            self.clients.connections.get(id).map(|connection| &connection.phase),
            Some(Phase::Opening { .. })
        ) {
            self.opening_refused(id, refusal);
            return;
        }
        if self.is_away(id) {
            // There is no such session any more.
            return self.close(id, CloseReason::SessionExpired);
        }
        let Some(writer) = self.writer_of(own) else { return };
        match refusal {
            Refusal::Error(code) => self.answer_writer(&writer, code as i32, &[]),
            Refusal::Multi { count, failed, code } => {
                self.answer_writer(&writer, 0, &failed_multi(count, failed, code));
            }
        }
        if refusal == Refusal::Error(ErrorCode::SessionMoved) {
            self.close(id, CloseReason::SessionMoved);
        }
        self.drain(id);
    }

    /// Whose request has its outcome, if it came in here and somebody waits for it.
    #[inline]
    fn writer_of(&mut self, own: Option<ConnectionId>) -> Option<Writer> {
        let id = own?;
        let writer = self.writer(id);
        if writer.is_none() {
            let connection = self.clients.connections.get(id);
            let is_gone = connection.is_none_or(|connection| connection.phase == Phase::Closing);
            self.stats.stale_replies += u64::from(is_gone);
        }
        writer
    }

    /// The oldest write of a connection: outcomes come in the order of requests.
    fn writer(&self, connection: ConnectionId) -> Option<Writer> {
        let queue = self.clients.connections.get(connection)?.slots();
        queue.iter().enumerate().find_map(|(at, slot)| match *slot {
            Slot::Write { xid, opcode, arrived_us, .. } => {
                Some(Writer { connection, xid, opcode, arrived_us, is_next: at == 0 })
            }
            _ => None,
        })
    }

    #[inline]
    fn answer_writer(&mut self, writer: &Writer, err: i32, body: &[u8]) {
        let Writer { connection, xid, opcode, arrived_us, is_next } = *writer;
        if is_next {
            self.clients.connections.pop_slot(connection);
            self.reply(connection, xid, opcode, err, body, arrived_us);
        } else {
            self.clients.connections.answer_write(connection, err, body);
        }
    }

    /// Lets answers go that waited for nothing later than `zxid`.
    fn release_waiters(&mut self, zxid: i64) {
        while let Some(waiter) = self.clients.waiters.pop_front_if(|waiter| waiter.after <= zxid) {
            self.drain(waiter.connection);
        }
    }

    fn session_ended(&mut self, session: i64, closed_by: Option<ConnectionId>) {
        self.tell_of_session(session, None);
        let Some(live) = self.sessions.live.remove(session) else {
            return self.silence_remote_clients(session);
        };
        // Its own close is the last thing that is answered; whoever else holds it learns by the end
        // of the connection.
        let reason =
            if closed_by.is_some() { CloseReason::SessionClosed } else { CloseReason::SessionExpired };
        for id in [live.connection, closed_by].into_iter().flatten() {
            if let Some(connection) = self.clients.connections.get_mut(id)
                && let Phase::Live(_) = connection.phase
            {
                self.close(id, reason);
            }
        }
    }
}

/// Applies an update, or this partition's share of one that has come from another site.
fn carry_out(
    tree: &mut Tree,
    update: &Update<'_>,
    is_imported: bool,
    (placement, own): (&Placement, u8),
    effects: &mut Effects<'_>,
) {
    let (of, is_split) = (|path: &str| placement.of(path), |path: &str| placement.is_split(path));
    let places = Places { own, partitions: placement.partitions(), of: &of, is_split: &is_split };
    let applied = match is_imported {
        true if placement.is_divided() => tree.import_share(update, &places, effects),
        true => tree.import(update, effects),
        false => tree.apply(update, effects),
    };
    applied.expect("an update that a leader prepared can be applied");
    if let Err(newer) = tree.check_level() {
        // What follows cannot be read, and nothing may be said of it. At its next start the server says why it stops.
        panic!("{newer}");
    }
}

/// So many items of entries cost about as much as an answer to a client, which is written by itself.
const ANSWER_COST: usize = 8;
/// As many waiters stay allocated when nobody waits.
const WAITERS_KEPT: usize = 4096;

/// Whose request an update answers.
#[derive(Debug, Clone, Copy)]
struct Writer {
    connection: ConnectionId,
    xid: i32,
    opcode: Opcode,
    arrived_us: u64,
    /// Whether nothing stands before it.
    is_next: bool,
}

/// A session that was opened: created, or taken to another connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) session: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) password: [u8; PASSWORD_LEN],
}

/// What an update's writer, and those who watch, are told of it, if that does not follow from it alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Telling<'a> {
    /// The reply: an error's number or 0, and the body.
    pub(crate) reply: Option<(i32, &'a [u8])>,
    /// Only so many of its operations are the writer's.
    pub(crate) results: usize,
    /// Those who watch are not told of these.
    pub(crate) muted: &'a [(EventKind, &'a str)],
    /// It is of a part of an operation over several partitions.
    pub(crate) is_part: bool,
}

impl Default for Telling<'_> {
    fn default() -> Self {
        Self { reply: None, results: usize::MAX, muted: &[], is_part: false }
    }
}

fn sorted<'a>(muted: &[(EventKind, &'a str)]) -> Vec<(i32, &'a str)> {
    let mut sorted: Vec<_> = muted.iter().map(|(kind, path)| (*kind as i32, *path)).collect();
    sorted.sort_unstable();
    sorted
}

/// The end of a session.
struct SessionEnd {
    /// Whose.
    session: Option<i64>,
    /// What was deleted by it, if the audit log wants to know.
    deleted: Option<Vec<String>>,
}

/// Which of the texts is another one that say what servers have to do.
#[derive(Debug, Clone, Copy, Default)]
struct Texts {
    /// The list of servers.
    servers: bool,
    /// What the operator says about where subtrees live.
    hints: bool,
    /// The list of sites, with what the operator says of them.
    sites: bool,
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
    /// The session that was opened.
    opened: Option<Opened>,
    end: SessionEnd,
    warnings: &'a mut VecDeque<String>,
    /// A connection with more output than this is closed, bytes.
    output_max: usize,
    overflowing: Vec<ConnectionId>,
    changed: Texts,
    /// What was created and deleted at and below `/em`.
    programs: Vec<(EventKind, String)>,
    /// Sorted: there may be many, and each change looks for itself.
    muted: Vec<(i32, &'a str)>,
    /// The last event of a znode was, and so is that of its parent's children.
    is_muted: bool,
    /// So many results are still the writer's.
    results: usize,
    place: (&'a Placement, u8),
}

impl Observer for Effects<'_> {
    fn changed(&mut self, change: &Change<'_>) {
        self.changed.servers |= change.path == CONFIG_PATH;
        self.changed.hints |= change.path == HINTS_PATH;
        self.changed.sites |= change.path == SITES_PATH;
        if is_of_programs(change.path) {
            if matches!(change.kind, EventKind::Created | EventKind::Deleted) {
                self.programs.push((change.kind, change.path.into()));
            }
            let (placement, own) = self.place;
            if placement.of(change.path) != own {
                // It stands for what this partition knows; who watches is told where clients see it.
                return;
            }
        }
        if let Some(deleted) = self.end.deleted.as_mut().filter(|_| change.kind == EventKind::Deleted) {
            deleted.push(change.path.into());
        }
        if !self.muted.is_empty() {
            if change.kind != EventKind::ChildrenChanged {
                self.is_muted = self.muted.binary_search(&(change.kind as i32, change.path)).is_ok();
            }
            if self.is_muted {
                return;
            }
        }
        let Self { watches, connections, stats, output_max, overflowing, .. } = self;
        let mut watchers = 0;
        watches.trigger(change, &mut |watcher: WatcherId, kind: EventKind, path: &str| {
            watchers += 1;
            let id = ConnectionId(watcher.0);
            let Some(connection) = connections.get(id) else { return };
            let caller = Caller { session: connection.session, identities: &connection.identities };
            if !change.acl.permits(perms::READ, &caller) {
                return;
            }
            let aliases =
                if kind == EventKind::Created { connections.take_aliases(id, path) } else { BTreeSet::new() };
            for known_as in &aliases {
                notify(connections, stats, id, change.zxid, kind, known_as);
            }
            notify(connections, stats, id, change.zxid, kind, path);
            if connections.get(id).is_some_and(|connection| connection.output_bytes() > *output_max) {
                overflowing.push(id);
            }
        });
        if watchers > 0 {
            stats.watchers.told(change.kind, watchers);
        }
    }

    fn quota_exceeded_softly(&mut self, quota: &SoftQuota<'_>) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push_back(quota_warning(quota));
        }
    }

    fn result(&mut self, result: OpResult<'_>) {
        match result {
            OpResult::SessionOpened { session, timeout_ms, password, .. } => {
                self.opened = Some(Opened { session, timeout_ms, password });
            }
            OpResult::SessionClosed { session } => self.end.session = Some(session),
            _ => {}
        }
        let Some(opcode) = self.opcode.filter(|_| self.results > 0) else { return };
        self.results -= 1;
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
    stats.watch_bytes += (bytes - size_of::<i32>()) as u64;
    if let Some(connection) = connections.get_mut(id) {
        connection.traffic.sent += 1;
    }
}
