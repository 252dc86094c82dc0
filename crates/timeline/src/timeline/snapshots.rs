//! Snapshots between servers: which the leader sends, and which it has others give in its place.

use super::{NotTaken, PeerOutput, Timeline};
use crate::delegation::{Candidate, Delegation, Delegations, Givers, Itself, Now, Turn};
use crate::give_message::{GiveOrder, GiveReport, GiverState, Obstacle};
use crate::giving::{Givings, Ordered};
use crate::message::Message;
use crate::peers::{CAUGHT_UP_ENTRIES, member_of, server_of};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::{Mark, Message as GroupMessage, Role, Status};

/// What this server has to do with snapshots of others.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Those whose releases give snapshots to each other, and take them. Nobody does until something else is said.
    hear: BTreeSet<u8>,
    pub(super) delegations: Delegations,
    pub(super) givings: Givings,
    /// Those that this server sends as the leader: where each stands, and since when.
    direct: BTreeMap<u8, (u64, u64)>,
    counts: SnapshotCounts,
}

/// Snapshots between servers since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// That this server has given another member in the place of the leader.
    pub given: u64,
    /// That another server has given in this one's place.
    pub delegated: u64,
    /// That this server has begun to send as the leader.
    pub direct: u64,
}

/// A snapshot on its way between two other servers, or from this one, as far as this one knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenSnapshot {
    /// Who gets it.
    pub to: u8,
    /// Who sends it; nobody while all are busy who could.
    pub by: Option<u8>,
    /// Where on the log it stands, once that is known.
    pub position: Option<u64>,
    /// It is there, and is to be taken over.
    pub is_there: bool,
    /// How long ago it was wanted, or begun, microseconds.
    pub age_us: u64,
}

impl Neighbours {
    /// Who leads has changed.
    pub(super) fn is_led(&mut self, role: Role) {
        self.delegations.forget();
        if role == Role::Leader {
            self.givings.forget_waiting();
        }
    }
}

impl<C: Copy + Ord> Timeline<C> {
    /// Whether another server gives members snapshots in the place of a leader, and takes them: else it is not asked for
    /// one, nor given one. That is to be said before it is connected.
    pub fn peer_gives_snapshots(&mut self, peer: u8, gives: bool) {
        if gives {
            self.neighbours.hear.insert(peer);
        } else {
            self.neighbours.hear.remove(&peer);
        }
    }

    /// Snapshots of which this server knows that they are on their way.
    #[must_use]
    pub fn given_snapshots(&self) -> Vec<GivenSnapshot> {
        let Neighbours { delegations, givings, direct, .. } = &self.neighbours;
        let age_us = |since_us: u64| self.now_us.saturating_sub(since_us);
        let me = Some(self.config.server);
        let delegated = delegations.iter().map(|(to, it)| {
            let (position, is_there) = match it.state {
                Some(GiverState::Sends { position }) => (Some(position), false),
                Some(GiverState::Sent { position, .. }) => (Some(position), true),
                _ => (None, false),
            };
            GivenSnapshot { to, by: it.by, position, is_there, age_us: age_us(it.began_us) }
        });
        let own = direct.iter().map(|(to, (position, since_us))| GivenSnapshot {
            to: *to,
            by: me,
            position: Some(*position),
            is_there: false,
            age_us: age_us(*since_us),
        });
        let given = givings.under_way().filter(|(to, ..)| !direct.contains_key(to));
        let given = given.map(|(to, state, since_us)| {
            let position = if let GiverState::Sends { position } = state { Some(position) } else { None };
            GivenSnapshot { to, by: me, position, is_there: false, age_us: age_us(since_us) }
        });
        delegated.chain(own).chain(given).collect()
    }

    /// How many there were.
    #[must_use]
    pub fn snapshots_between(&self) -> SnapshotCounts {
        SnapshotCounts { given: self.neighbours.givings.given, ..self.neighbours.counts }
    }

    fn note(&mut self, what: String) {
        self.tell(PeerOutput::Note(what));
    }

    // ---- as the leader ----

    /// The group has a member that lacks more than the log has. Another one gives it a snapshot, or this server does.
    pub(super) fn sends_snapshot(&mut self, to: u8, message: GroupMessage) {
        let why = match self.may_delegate(to) {
            Ok(()) => {
                let candidates = self.candidates(to);
                if self.neighbours.delegations.may_try(to, &candidates) {
                    return self.delegate(to, &candidates);
                }
                Itself::Nobody
            }
            Err(why) => why,
        };
        self.neighbours.delegations.end(to);
        let position = message.snapshot().map_or(0, |mark| mark.position);
        if why != Itself::Off {
            self.note(format!("this server sends server {to} a snapshot itself: {why}"));
        }
        self.neighbours.counts.direct += 1;
        if let Some(position) = self.neighbours.givings.sends(to) {
            // It has begun that when another one led, and a connection carries one.
            self.neighbours.direct.insert(to, (position, self.now_us));
            if let Some(log) = &mut self.log {
                log.group().snapshot_is_at(member_of(to), position);
            }
            return;
        }
        self.neighbours.direct.insert(to, (position, self.now_us));
        let message = Message::Group(message).encode().join().into();
        self.tell(PeerOutput::Snapshot { to, position, message });
    }

    fn may_delegate(&self, to: u8) -> Result<(), Itself> {
        let Neighbours { hear, delegations, .. } = &self.neighbours;
        if self.config.relief.givers == Givers::None {
            Err(Itself::Off)
        } else if !hear.contains(&to) {
            Err(Itself::OlderRelease)
        } else if delegations.is_for_itself(to, self.now_us) {
            Err(Itself::Failed)
        } else {
            Ok(())
        }
    }

    /// Those who could give a member its snapshot, busy or not.
    fn candidates(&mut self, to: u8) -> Vec<Candidate> {
        let Some(log) = &mut self.log else { return Vec::new() };
        let (status, from) = (log.status(), log.group().give_from(member_of(to)));
        let ((near, aside), roots) = (self.forest.around(to), self.forest.roots());
        let me = self.config.server;
        let keeps_up = keeping_up(&status, from);
        let is_able = |id: &u8| {
            ![me, to].contains(id)
                && self.peers.is_connected(*id)
                && !self.peers.is_emptied(*id)
                && self.neighbours.hear.contains(id)
                && !aside.contains(*id)
                && self.neighbours.delegations.get(*id).is_none()
                && !self.neighbours.direct.contains_key(id)
        };
        let is_spare =
            |member: u64| self.config.relief.givers == Givers::Any || is_spare(&status, member, &keeps_up);
        let able = keeps_up.iter().filter(|member| is_spare(**member));
        let able = able.filter_map(|member| server_of(*member)).filter(is_able);
        let candidate = |id| Candidate { id, is_near: near.contains(id), is_root: roots.contains(&id) };
        able.map(candidate).collect()
    }

    /// Orders one of these to give a member its snapshot, or waits until one of them is free.
    fn delegate(&mut self, to: u8, candidates: &[Candidate]) {
        let by = self.neighbours.delegations.choose(to, candidates, self.now_us);
        let waits = |it: &Delegation| it.by.is_none() && it.state.is_none();
        let waited = self.neighbours.delegations.get(to).is_some_and(waits);
        match by {
            Some(by) => self.note(format!("server {to} is far behind: server {by} is to give it a snapshot")),
            None if waited => return,
            None => self.note(format!(
                "server {to} is far behind, and waits for a server that can give it a snapshot"
            )),
        }
        self.neighbours.delegations.begin(to, by, self.now_us);
        self.tend_delegations();
    }

    /// Time goes on: givers are ordered again, and those that give nothing are replaced.
    pub(super) fn tend_delegations(&mut self) {
        if self.neighbours.delegations.is_empty() {
            return;
        }
        let now = self.now_of_delegations();
        let Some(log) = &mut self.log else { return };
        let (group, term) = (log.group(), self.progress.term);
        // Who has got it says so to the group, and whoever it has lost, it begins anew with.
        let is_over = |to: u8| !group.awaits_snapshot(member_of(to));
        let over = self.neighbours.delegations.end_where(is_over);
        let matched = group.status().matched;
        let has =
            |to: u8| matched.iter().find(|(member, _)| *member == member_of(to)).map_or(0, |(_, has)| *has);
        let over: Vec<_> = over.into_iter().map(|(to, it)| (to, has(to), it)).collect();
        let turns = self.neighbours.delegations.tick(term, |to| group.give_from(member_of(to)), now);
        over.into_iter().for_each(|(to, has, it)| self.is_over(to, has, &it));
        turns.into_iter().for_each(|turn| self.carry_out_turn(turn));
    }

    /// The group waits no more for a member that was to be given a snapshot, and that has the log up to here.
    fn is_over(&mut self, to: u8, has: u64, it: &Delegation) {
        let (Some(GiverState::Sends { position } | GiverState::Sent { position, .. }), Some(by)) =
            (it.state, it.by)
        else {
            return;
        };
        if has >= position {
            self.neighbours.counts.delegated += 1;
            let ms = self.now_us.saturating_sub(it.began_us) / 1000;
            self.note(format!(
                "server {to} has taken over the snapshot that server {by} has given it, {ms} ms after it was wanted"
            ));
        }
    }

    fn now_of_delegations(&self) -> Now {
        Now { us: self.now_us, heartbeat_us: self.heartbeat_us() }
    }

    fn carry_out_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Order(by, order) => self.say(by, Message::Give(order)),
            Turn::Next(to, failed) => {
                if let Some((by, obstacle)) = failed {
                    self.note(format!("server {by} gives server {to} no snapshot: {obstacle}"));
                }
                let candidates = self.candidates(to);
                let delegations = &self.neighbours.delegations;
                let waits = delegations.has_waited(to, self.now_of_delegations());
                let is_none = delegations.choose(to, &candidates, self.now_us).is_none();
                if delegations.may_try(to, &candidates) && !(waits && is_none) {
                    self.delegate(to, &candidates);
                } else {
                    self.give_up(to);
                }
            }
            Turn::NotTakenOver(to) => {
                self.note(format!(
                    "server {to} was given a snapshot, and does not say that it has taken it over"
                ));
                self.give_up(to);
            }
        }
    }

    /// The group looks what the member has, which may be all that it needs; the next snapshot the leader sends itself. Was
    /// the group told that this one has not come, it would go by what it last knew of the member, and need another one
    /// though the member may have told a leader more, or its own state go further than that.
    fn give_up(&mut self, to: u8) {
        let (now_us, heartbeat_us) = (self.now_us, self.heartbeat_us());
        self.neighbours.delegations.fail(to, now_us, heartbeat_us);
        if let Some(log) = &mut self.log {
            log.group().snapshot_sent(member_of(to), true);
        }
    }

    /// A giver says how far it is.
    pub(super) fn take_report(&mut self, by: u8, report: GiveReport) {
        let GiveReport { term, number, to, state } = report;
        let now = self.now_of_delegations();
        let known = self.neighbours.delegations.get(to).and_then(|it| it.state);
        let Some(log) = self.log.as_mut().filter(|_| term == self.progress.term) else { return };
        let group = log.group();
        let position = match state {
            GiverState::Sends { position } | GiverState::Sent { position, .. } => Some(position),
            GiverState::Takes | GiverState::Cannot(_) => None,
        };
        if position.is_some_and(|position| position > group.last()) {
            // No leader's log ends before what is committed.
            return;
        }
        let turn = self.neighbours.delegations.report(by, (to, number), state, now);
        let is_news = self.neighbours.delegations.get(to).is_some_and(|it| it.state == Some(state))
            && known != Some(state);
        if let Some(position) = position.filter(|_| is_news) {
            group.snapshot_is_at(member_of(to), position);
            self.tell_progress(by, to, state);
        }
        turn.into_iter().for_each(|turn| self.carry_out_turn(turn));
    }

    fn tell_progress(&mut self, by: u8, to: u8, state: GiverState) {
        let Some(began_us) = self.neighbours.delegations.get(to).map(|it| it.began_us) else { return };
        match state {
            GiverState::Sends { position } => {
                self.note(format!("server {by} gives server {to} its snapshot of position {position}"));
            }
            GiverState::Sent { position, bytes } => {
                let ms = self.now_us.saturating_sub(began_us) / 1000;
                self.note(format!(
                    "server {by} has given server {to} its snapshot of position {position}: {bytes} bytes, {ms} ms after it was wanted"
                ));
            }
            GiverState::Takes | GiverState::Cannot(_) => {}
        }
    }

    /// The connection to another server has ended: it gives nothing any more, and is given nothing.
    pub(super) fn lose_neighbour(&mut self, peer: u8) {
        if self.neighbours.delegations.end(peer).is_some()
            && let Some(log) = &mut self.log
        {
            log.group().snapshot_sent(member_of(peer), false);
        }
        let now = self.now_of_delegations();
        let turns = self.neighbours.delegations.lost(peer, now);
        turns.into_iter().for_each(|turn| self.carry_out_turn(turn));
    }

    // ---- as a giver ----

    /// The leader orders this server to give another member its snapshot, perhaps again.
    pub(super) fn take_order(&mut self, leader: u8, order: GiveOrder) {
        let of_now = order.term == self.progress.term && self.progress.leader == member_of(leader);
        if !of_now || self.config.relief.givers == Givers::None || self.is_reader() {
            // Of a later term this server hears soon, and the order comes again.
            return;
        }
        let report = match self.neighbours.givings.order(leader, order) {
            Ordered::Known(report) => report,
            Ordered::New => match self.obstacle(&order) {
                Some(obstacle) => {
                    self.neighbours.givings.begin(leader, order, GiverState::Cannot(obstacle), self.now_us)
                }
                None => self.give(leader, order),
            },
        };
        self.say(leader, Message::Gives(report));
        self.look_for_snapshot();
    }

    fn obstacle(&self, order: &GiveOrder) -> Option<Obstacle> {
        let GiveOrder { to, from, .. } = *order;
        let to_readers = self.readers.children.values().filter(|child| child.snapshot.is_some()).count();
        if !self.progress.has_member(member_of(to)) {
            Some(Obstacle::Unknown)
        } else if !self.is_connected(to) || !self.neighbours.hear.contains(&to) {
            Some(Obstacle::Apart)
        } else if self.neighbours.givings.is_busy(to) || to_readers > 0 {
            Some(Obstacle::Busy)
        } else if self.is_taking_over() || self.log.as_ref().is_none_or(|log| log.committed() < from) {
            Some(Obstacle::Lags)
        } else {
            None
        }
    }

    /// Begins to send a snapshot, or to take one that will do.
    fn give(&mut self, leader: u8, order: GiveOrder) -> GiveReport {
        let GiveOrder { to, from, .. } = order;
        let given = self.log.as_mut().and_then(|log| log.group().give_snapshot(member_of(to), from));
        let state = match given {
            Some((position, message)) => {
                let message = Message::Given(message).encode().join().into();
                self.note(format!(
                    "server {leader}, which leads, has this server give server {to} its snapshot of position {position}"
                ));
                self.tell(PeerOutput::Snapshot { to, position, message });
                GiverState::Sends { position }
            }
            None => {
                self.neighbours.givings.wants_snapshot = true;
                GiverState::Takes
            }
        };
        self.neighbours.givings.begin(leader, order, state, self.now_us)
    }

    /// There may be a snapshot by now that will do for those who are to be given one.
    fn look_for_snapshot(&mut self) {
        let waiting: Vec<_> = self.neighbours.givings.waiting().collect();
        for giving in waiting {
            // Who has ordered it need not lead any more; then nobody waits for it.
            let (leader, order) = (giving.leader, giving.order);
            let report = match self.obstacle(&order) {
                Some(obstacle) => {
                    self.neighbours.givings.begin(leader, order, GiverState::Cannot(obstacle), self.now_us)
                }
                None => self.give(leader, order),
            };
            if report.state != GiverState::Takes {
                self.say(leader, Message::Gives(report));
            }
        }
    }

    // ---- all of them ----

    /// A snapshot is durable: others may be sent it.
    pub fn offer_snapshot(&mut self, mark: Mark) {
        if let Some(log) = &mut self.log {
            log.group().offer_snapshot(mark);
        }
        self.look_for_snapshot();
        self.feed_all();
    }

    /// One could not be taken.
    pub fn snapshot_failed(&mut self) {
        let waiting: Vec<_> = self.neighbours.givings.waiting().collect();
        for giving in waiting {
            let state = GiverState::Cannot(Obstacle::NotTaken);
            let report = self.neighbours.givings.begin(giving.leader, giving.order, state, self.now_us);
            self.say(giving.leader, Message::Gives(report));
        }
    }

    /// The snapshot of [`PeerOutput::Snapshot`] is durable at its receiver, with so many bytes, or was given up. That it is
    /// taken over there shows in what the receiver says next; if it is not, it is sent again.
    pub fn snapshot_sent(&mut self, to: u8, bytes: Option<u64>) {
        let given = self.neighbours.givings.sent(to, bytes);
        let is_own = self.neighbours.direct.remove(&to).is_some();
        if let Some(giving) = given {
            self.say(giving.leader, Message::Gives(giving.report()));
        }
        if let Some(log) =
            self.log.as_mut().filter(|_| is_own && self.neighbours.delegations.get(to).is_none())
        {
            log.group().snapshot_sent(member_of(to), bytes.is_some());
        }
    }

    /// Whether a snapshot that another server offers with this message is of use here.
    #[must_use]
    pub fn wants_snapshot(&self, message: Bytes) -> bool {
        let committed = self.log.as_ref().map_or(u64::MAX, |log| log.committed());
        matches!(Message::decode(message), Ok(Message::Group(message) | Message::Given(message))
            if message.snapshot().is_some_and(|mark| mark.position > committed))
    }

    /// A snapshot has come with this message that is of no use, as everything in it is here: the leader is told what is, as it
    /// may have sent it for want of knowing.
    pub fn decline_snapshot(&mut self, message: Bytes) {
        let Some(log) = self.log.as_mut().filter(|_| self.readers.parent.is_none()) else { return };
        let group = log.group();
        let (message, is_given) = match Message::decode(message) {
            Ok(Message::Group(message)) => (message, false),
            Ok(Message::Given(message)) => (message, true),
            _ => return,
        };
        if message.snapshot().is_some_and(|mark| mark.position <= group.committed()) {
            // One that contradicts what is here is of no use either.
            let _ = if is_given { group.take_given(message) } else { group.step(message) };
        }
    }

    /// A snapshot has come from another server, with this message, and is whole. Returns where in the log it stands,
    /// position and term. It is taken over when the record with it is durable: see [`Timeline::stored`].
    ///
    /// # Errors
    /// When it is of no use.
    pub fn receive_snapshot(&mut self, from: u8, message: Bytes) -> Result<(u64, u64), NotTaken> {
        let refused =
            |why: &str| NotTaken::Refused(format!("the snapshot of server {from} was refused: {why}"));
        let (message, is_given) = match Message::decode(message) {
            Ok(Message::Group(message)) => (message, false),
            Ok(Message::Given(message)) => (message, true),
            _ => return Err(NotTaken::Bad),
        };
        if self.is_reader() {
            return if is_given { Err(refused("this server is a reader")) } else { self.adopt(&message) };
        }
        let mark = message.snapshot().ok_or(NotTaken::Bad)?;
        let is_strange =
            is_given && (!self.listens_to(from, false) || self.config.relief.givers == Givers::None);
        if is_strange {
            return Err(refused("nothing is taken from that server"));
        }
        if !is_given && message.from() != member_of(from) {
            return Err(NotTaken::Bad);
        }
        let group = self.log.as_mut().ok_or(NotTaken::Bad)?.group();
        let taken = if is_given { group.take_given(message) } else { group.step(message) };
        taken.map_err(|error| refused(&format!("{error}")))?;
        Ok((mark.position, mark.term))
    }
}

/// Members that have the log up to a position at least, and about as much as there is; the leader among them.
fn keeping_up(status: &Status, from: u64) -> BTreeSet<u64> {
    let keeps_up = |matched: u64| matched >= from && matched + CAUGHT_UP_ENTRIES >= status.last;
    let others = status.matched.iter().filter(|(_, matched)| keeps_up(*matched)).map(|(member, _)| *member);
    others.chain([status.leader]).collect()
}

/// Whether what is written is on a majority's disks as soon without this member as with it: enough others keep up.
fn is_spare(status: &Status, member: u64, keeps_up: &BTreeSet<u64>) -> bool {
    let members = &status.members;
    [&members.voters, &members.outgoing].into_iter().all(|voters| {
        let others = voters.iter().filter(|voter| **voter != member && keeps_up.contains(voter)).count();
        !voters.contains(&member) || others > voters.len() / 2
    })
}
