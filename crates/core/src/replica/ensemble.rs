//! This server among the others: what comes from them, who leads, and what the timeline says.

use crate::peer::{Heard, PeerMessage};
use crate::replica::{Arrived, Due, Replica};
use crate::session_table::SessionNews;
use crate::shard_message::ShardMessage;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_front::{CloseReason, ConnectionId};
use stoa_group::{History, ProposeError};
use stoa_partition::{Now, State, end_of};
use stoa_timeline::{
    BadMessage, DiskId, Lead, Message, NotTaken, Output, PartitionMessage, PeerOutput, Received, Settled,
    Standing,
};
use stoa_wire::Timestamp;

impl Replica {
    /// It is that time.
    pub(crate) fn at(&mut self, now: Now) {
        self.now = now;
        self.timeline.at(now.mono_us);
    }

    // ---- the other servers ----

    /// A message of another server, whose name is proved.
    ///
    /// # Errors
    /// When it is none; nothing has changed. Whoever sends that is broken, or of another release.
    pub fn peer_message(&mut self, from: u8, message: Bytes, now: Now) -> Result<(), BadMessage> {
        self.at(now);
        if message.first().is_some_and(|kind| Message::is_kind(*kind)) {
            return self.timeline_message(from, Message::decode(message)?);
        }
        let message = PeerMessage::decode(&message)?;
        if !self.timeline.listens_to(from, message.is_of_leader()) {
            return Ok(());
        }
        match message {
            PeerMessage::Heard { term, number, sessions } => {
                let leads = self.timeline.lead() == Lead::Active && term == self.timeline.term();
                if leads && self.timeline.is_member(from) {
                    for Heard { session, silent_ms } in sessions {
                        self.sessions.live.heard_of(session, silent_ms, now);
                    }
                    self.timeline.send(from, PeerMessage::HeardArrived { term, number }.encode());
                }
            }
            PeerMessage::HeardArrived { term, number } => {
                if term == self.timeline.term() && Some(from) == self.timeline.leader() {
                    self.sessions.liveness.arrived(number);
                    self.tell_readers_who_is_known();
                }
            }
            PeerMessage::Reads(reads) => self.reads_told(from, reads),
            PeerMessage::Shared { term, shared } => {
                if term == self.timeline.term() && Some(from) == self.timeline.leader() {
                    self.is_shared_up_to(shared);
                }
            }
        }
        Ok(())
    }

    fn timeline_message(&mut self, from: u8, message: Message) -> Result<(), BadMessage> {
        if !self.timeline.listens_to(from, message.is_of_leader()) {
            return Ok(());
        }
        let Received { asked, refused } = self.timeline.receive(from, message)?;
        refused.into_iter().for_each(|why| self.warn(why));
        if let Some((first, asked)) = asked {
            self.count_forwarded(&asked);
            self.take_asked(from, first, &asked);
        }
        Ok(())
    }

    /// Which history this server has, if it has one; at the first partition.
    #[must_use]
    pub fn history(&self) -> Option<History> {
        self.timeline.history()
    }

    /// What the other servers are told before anything else; at the first partition.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.timeline.standing()
    }

    /// Those of whom a server without a history must hear before it founds one.
    #[must_use]
    pub fn founders_missing(&self) -> Vec<u8> {
        self.timeline.founders_missing()
    }

    /// Members that have come back with another disk than they had, or with an older copy of it, and have to join anew.
    #[must_use]
    pub fn emptied(&self) -> Vec<u8> {
        self.timeline.emptied()
    }

    /// Another server has said which disk and which history it has. It must not be connected unless both have the
    /// same: call [`Replica::peer_connected`] then.
    pub fn peer_met(&mut self, peer: u8, disk: DiskId, standing: Standing, now: Now) {
        self.at(now);
        self.timeline.peer_met(peer, disk, standing);
        self.pump();
    }

    /// Another server of this ensemble is about to be connected, and has said whether it understands messages of the
    /// forest and has it; where nothing is said it does.
    pub fn peer_reads_forest(&mut self, peer: u8, reads: bool) {
        self.timeline.peer_reads_forest(peer, reads);
    }

    /// Another server of this ensemble is about to be connected, and has said that it gives members snapshots in the place
    /// of their leader, and takes them, or has not.
    pub fn peer_gives_snapshots(&mut self, peer: u8, gives: bool) {
        self.timeline.peer_gives_snapshots(peer, gives);
    }

    /// A connection to another server is there (again): what was sent before may be lost.
    pub fn peer_connected(&mut self, peer: u8, now: Now) {
        self.at(now);
        self.timeline.peer_connected(peer);
    }

    /// The connection to another server has ended, most likely with the server.
    pub fn peer_lost(&mut self, peer: u8, now: Now) {
        self.at(now);
        self.servers.levels.servers.remove(&peer);
        let has_led = self.timeline.peer_lost(peer);
        self.reads_end(peer);
        if has_led {
            self.pump();
            self.timeline.follow_up(Some(peer));
        }
    }

    /// A member has come back with another disk than it had, or with an older copy of that: it has to join anew. Until
    /// then it is only listened to if it leads.
    pub fn peer_emptied(&mut self, peer: u8, now: Now) {
        self.at(now);
        self.timeline.peer_emptied(peer);
    }

    /// What is to be sent to other servers, oldest first. Asking says that all that had come is handed in: what the servers
    /// of a forest have acknowledged by then goes on together.
    pub fn poll_peer(&mut self) -> Option<PeerOutput> {
        loop {
            self.pump();
            let output = self.timeline.poll_peer();
            if output.is_some() || !self.timeline.run_forest() {
                return output;
            }
        }
    }

    /// There is another list of servers.
    pub(crate) fn servers_changed(&mut self) {
        self.members_settled();
        self.servers.list.is_told = false;
        self.timeline.tell(PeerOutput::Servers);
    }

    // ---- snapshots of others ----

    /// The snapshot of [`PeerOutput::Snapshot`] is durable at its receiver, with so many bytes, or was given up. That it is
    /// taken over there shows in what the receiver says next; if it is not, it is sent again.
    pub fn snapshot_sent(&mut self, to: u8, bytes: Option<u64>, now: Now) {
        self.at(now);
        self.timeline.snapshot_sent(to, bytes);
    }

    /// Whether a snapshot that another server offers with this message is of use here.
    #[must_use]
    pub fn wants_snapshot(&self, message: Bytes) -> bool {
        self.servers.arrived.is_none() && self.timeline.wants_snapshot(message)
    }

    /// A snapshot has come with this message, and [`Replica::wants_snapshot`] says that it is of no use.
    pub fn decline_snapshot(&mut self, message: Bytes, now: Now) {
        self.at(now);
        self.timeline.decline_snapshot(message);
        self.pump();
    }

    /// A snapshot has come from another server, with this message; it is whole, and the `states` of all partitions
    /// were loaded from it. It becomes this server's state when the record that comes out of
    /// [`Replica::poll_append`] with it is durable, unless it is of no use any more.
    ///
    /// # Errors
    /// When the message is none.
    pub fn take_over(
        &mut self,
        from: u8,
        message: Bytes,
        states: Vec<State>,
        now: Now,
    ) -> Result<(), BadMessage> {
        self.at(now);
        match self.timeline.receive_snapshot(from, message) {
            Ok(at) => self.servers.arrived = Some(Arrived { at, states }),
            Err(NotTaken::Bad) => return Err(BadMessage),
            Err(NotTaken::Refused(why)) => self.warn(why),
        }
        self.pump();
        if self.timeline.is_taking_over() {
            // Two snapshots are not written at a time.
            self.abort_snapshot();
        } else {
            self.servers.arrived = None;
        }
        Ok(())
    }

    /// The state is that of the snapshot that has come.
    pub(crate) fn take_arrived(&mut self) {
        let Some(Arrived { at: (position, term), mut states }) = self.servers.arrived.take() else { return };
        self.timeline.log_replaced(position, states.iter().map(|state| state.position));
        for (partition, state) in (1..).zip(states.drain(1..)) {
            self.say(partition, ShardMessage::StateReplaced { state: Box::new(state), term });
        }
        if let Some(mut state) = states.pop() {
            if !self.applied.placement.is_divided() {
                state.position = position;
            }
            self.replace_state(state, term);
        }
    }

    /// The state is another server's. Nobody knows what the clients here have missed: they come back and are told.
    pub(crate) fn replace_state(&mut self, state: State, term: u64) {
        self.close_all(CloseReason::StateReplaced);
        self.clients.waiters.clear();
        let State { tree, stamp, position } = state;
        self.timeline.replaced(position, term);
        self.applied.partition.replace_tree(tree);
        let in_log = if self.timeline.has_log() { self.timeline.divided() } else { position };
        self.site_state_replaced(in_log);
        self.load_programs();
        self.applied.stamp = Timestamp::new(self.applied.placement.partitions());
        self.applied.stamp.merge(&stamp);
        self.applied.stamp.raise(self.config.partition, end_of(position));
        self.applied.partition.abandon(&self.applied.stamp);
        self.placement_replaced();
        if self.is_of_sites() && self.applied.placement.is_divided() {
            let told = self.applied.stamp.zxid();
            self.applied.partition.tree_mut().forget_told(told);
        }
        let has_sessions = self.has_sessions();
        let tree = self.applied.partition.tree();
        let is_own = |session: i64| tree.own_site().is_none_or(|own| tree.home_of(session) == own);
        let global = tree.sessions().filter(|session| has_sessions && is_own(session.id));
        self.sessions.live.replace_global(global.map(|it| (it.id, it.timeout_ms)), self.now);
        self.sessions.news = self.sessions.news.take().map(|_| SessionNews::of_everything());
        self.applied.committed.clear();
        self.applied.has_more = false;
        self.abort_snapshot();
        self.tell_growth();
        self.servers_changed();
        self.hints_changed();
        self.durability_changed();
        // The snapshot may be of the term that the group is in, and nothing may follow for long.
        self.settle_term();
    }

    // ---- what the timeline says ----

    /// Does what has come of the timeline.
    pub(crate) fn pump(&mut self) {
        self.timeline.at(self.now.mono_us);
        loop {
            let prepares = self.prepares();
            let Some(output) = self.timeline.poll(prepares) else { return };
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Committed(entries) => {
                entries.into_iter().for_each(|entry| self.applied.committed.push_back(Due::Entry(entry)));
                self.apply_committed();
                self.timeline.compact();
            }
            Output::Logged(entries) => {
                entries.into_iter().for_each(|entry| self.applied.committed.push_back(Due::Logged(entry)));
                self.apply_committed();
            }
            Output::Leader => self.leader_changed(),
            Output::Members => self.members_changed(),
            Output::Answered => self.release_barriers(),
            Output::Snapshot(number) => {
                self.applied.committed.push_back(Due::Snapshot(number));
                self.apply_committed();
            }
            Output::SnapshotWanted => self.request_snapshot(),
            Output::NoRoom => self.has_no_room(),
            Output::ParentSays(message) => self.parent_says_of_state(&message),
            Output::Attached(is_attached) => self.attachment_changed(is_attached),
            Output::Asked { server, first, asked } => self.take_asked(server, first, &asked),
        }
    }

    /// The timeline of another partition of this server says something.
    pub(crate) fn timeline_says(&mut self, from: u8, message: PartitionMessage) {
        // What is proposed waits for more to go with it.
        let is_proposal = matches!(message, PartitionMessage::Propose(_));
        self.timeline.hear(from, message);
        if !is_proposal {
            self.pump();
        }
    }

    /// Lets those go that have waited for what is applied now.
    pub(crate) fn release_barriers(&mut self) {
        let mut at = 0;
        while let Some(barrier) = self.timeline.fallen_barrier(&mut at) {
            if barrier.is_for_first {
                self.tell_caught_up();
            }
            for connection in barrier.waiting {
                self.drain(connection);
            }
        }
    }

    /// Hands the entry under construction to the timeline.
    pub(crate) fn propose_entry(&mut self) {
        if self.timeline.lead() != Lead::Active {
            return;
        }
        while let Some((entry, follows)) = self.applied.partition.take_entry() {
            match self.timeline.propose(entry.clone(), follows) {
                Ok(position) => {
                    let made = self.applied.partition.proposed(position, entry, self.now);
                    self.stats.log_updates += made.count;
                    if self.timeline.has_others() {
                        self.stats.proposals.follow(made);
                    }
                }
                Err(ProposeError::Busy) => {
                    self.applied.partition.hold_up(entry);
                    return;
                }
                // It has lost the lead, which is about to come out of the group.
                Err(_) => return,
            }
        }
    }

    // ---- leading ----

    fn leader_changed(&mut self) {
        self.stats.leaders_found += u64::from(self.timeline.leader().is_some());
        if self.timeline.lead() == Lead::No {
            self.finish_applying();
            self.stop_leading();
            // What waited for a part that was open, and is undone now; nothing else may be committed for long.
            self.apply_committed();
        }
        self.sessions.liveness.leader_changed();
        self.follow_mode();
        self.settle_term();
    }

    pub(crate) fn stop_leading(&mut self) {
        self.members_settled();
        self.leader.pending.clear();
        self.leader.coordination.operations.clear();
        self.sites.divided.news.clear();
        self.stop_quiescing();
        self.forget_moves();
        self.applied.partition.abandon(&self.applied.stamp);
        self.sessions.live.stop_judging();
        // What was prepared here and not applied may still be: its fate shows when an entry of the
        // next leader's term is applied.
        let applied = self.applied.partition.tree().last_prepared_zxid();
        let waiters = core::mem::take(&mut self.clients.waiters);
        for waiter in waiters.into_iter().filter(|waiter| waiter.after > applied) {
            self.close(waiter.connection, CloseReason::LeaderChanged);
        }
    }

    /// An entry has been applied, or a leader is known: if that settles the term, what has no outcome has none.
    #[inline]
    pub(crate) fn settle_term(&mut self) {
        if let Some(settled) = self.timeline.settle() {
            self.term_is_settled(settled);
        }
    }

    fn term_is_settled(&mut self, settled: Settled<ConnectionId>) {
        for connection in settled.lost {
            self.close(connection, CloseReason::LeaderChanged);
        }
        if settled.is_elected {
            self.begin_to_lead();
        }
    }

    fn begin_to_lead(&mut self) {
        self.members_settled();
        self.timeline.begin_to_lead();
        // Updates are larger than what was promised before.
        self.applied.partition.abandon(&self.applied.stamp);
        self.sessions.live.judge(self.now);
        self.publish_members();
        self.learn_of_sessions();
        self.sessions.liveness.leads(self.now);
        self.begin_to_lead_site();
        self.tend_sites();
        self.leader.reap_at_us = self.now.mono_us + u64::from(self.config.reaping.interval_ms) * 1000;
    }

    /// Whether a leader is known, and everything is applied that was committed before its time: then
    /// this server takes part in the ensemble.
    #[must_use]
    pub fn is_in_quorum(&self) -> bool {
        self.timeline.is_in_quorum()
    }

    /// The roots of the trees down which appends go, as far as this server knows; the first tree's comes first.
    #[must_use]
    pub fn roots(&self) -> Vec<u8> {
        self.timeline.roots()
    }

    /// Whether another server is about to take the lead from this one.
    #[must_use]
    pub fn is_handing_over(&self) -> bool {
        self.timeline.is_handing_over()
    }

    /// Whether this server prepares what it is asked.
    pub(super) fn leads_here(&self) -> bool {
        self.timeline.leads()
    }

    /// The same, and nothing keeps it from doing so now.
    pub(crate) fn prepares(&self) -> bool {
        self.timeline.leads() && !self.leader.coordination.is_quiesced()
    }

    /// At the first partition: tells the others in which term they may prepare requests, when that has changed. One
    /// server leads all partitions (AGORA, section IV-B), and nobody prepares before the first one does: what became
    /// of sessions is known by then.
    pub(crate) fn tell_leader(&mut self) {
        let others = self.other_partitions();
        if !others.is_empty()
            && let Some(term) = self.timeline.prepares_in()
        {
            others.for_each(|partition| self.say(partition, ShardMessage::MayPrepare { term }));
        }
    }

    /// The first partition prepares requests in this term, or does not.
    pub(crate) fn prepares_told(&mut self, term: u64) {
        self.timeline.may_prepare_in(term);
        if term > 0 {
            if let Some(table) = &mut self.sessions.table {
                table.nothing_is_decided();
            }
        } else {
            // What was taken waits. Who is quiesced goes on doing so until it is told to go on: it has said
            // what will be at a position of this term.
            self.give_up();
            self.try_to_quiesce();
        }
        self.pump();
        self.tend_sites();
    }

    /// Hands the lead to the server that has the most, if this one leads; rather to one that is to stay.
    pub fn resign(&mut self, now: Now) {
        let wanted = self.membership().unwrap_or_default().wanted();
        if let Some(successor) = self.timeline.successor(&wanted).filter(|_| self.timeline.leads()) {
            self.hand_over(successor, now);
        }
    }

    /// Hands the lead to another server, as soon as it has everything. Requests wait meanwhile.
    pub fn hand_over(&mut self, to: u8, now: Now) {
        self.at(now);
        if self.timeline.lead() == Lead::Active && to != self.config.server_id {
            self.propose_entry();
            self.timeline.hand_over(to);
        }
    }

    // ---- time ----

    /// What is due among servers.
    pub(crate) fn tick_ensemble(&mut self) {
        self.timeline.at(self.now.mono_us);
        let is_heartbeat = self.timeline.tick();
        self.try_to_quiesce();
        self.take_pending();
        if is_heartbeat {
            self.tend_members();
            self.tell_shared();
        }
        if self.is_ensemble() {
            self.tell_whom_we_heard();
            self.close_cut_off();
            self.follow_mode();
            self.tend_read_only_sessions();
        }
        self.timeline.repeat();
        self.pump();
    }

    /// Whether there are other servers, or should be.
    pub(crate) fn is_ensemble(&self) -> bool {
        self.timeline.is_ensemble()
    }
}
