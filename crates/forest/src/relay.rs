//! What a server does that does not lead.

use crate::codec::DecodeError;
use crate::frame::{
    Acknowledge, Acknowledgement, Complaint, Content, Epoch, Frame, Place, Pull, Pulled, Spread,
};
use crate::gap::Gap;
use crate::hold::Hold;
use crate::ids::Ids;
use crate::lateness::Lateness;
use crate::limits::Limits;
use crate::merge::Merge;
use crate::output::Output;
use crate::shape::{Settings, Shape};
use crate::shapes::Shapes;
use crate::silence::Silence;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

/// How late bodies are waited for at most, in times of [`Limits::silence_us`].
const LATE_MAX: u64 = 4;

/// A server of the forest that follows: it passes on what comes down its own tree, hands appends to the consensus engine
/// in the order of the log, asks neighbours for what is missing, and unites acknowledgements on their way up.
///
/// Times are in microseconds since any moment, and never go back. Nothing that comes in makes it panic; what it keeps is
/// bounded by [`Limits`] and the number of servers.
#[derive(Debug)]
pub struct Relay {
    me: u8,
    limits: Limits,
    servers: Ids,
    reign: Reign,
    shapes: Shapes,
    log: Log,
    hold: Hold,
    gap: Gap,
    lateness: Lateness,
    upward: Upward,
    silence: Silence,
    /// Who is not connected.
    gone: Ids,
    outputs: VecDeque<Output>,
    now_us: u64,
}

/// Who leads in which term.
#[derive(Debug, Default)]
struct Reign {
    term: u64,
    leader: Option<u8>,
}

/// How far the log of this server goes.
#[derive(Debug, Default)]
struct Log {
    /// Up to where it is the leader's of this term, with what was delivered.
    end: u64,
    /// Up to where it is the log of all leaders to come, as the engine knows.
    committed: u64,
    /// Up to where the leader says so.
    leader_committed: u64,
    /// Up to where the engine was told so.
    told: u64,
}

/// Acknowledgements that go up.
#[derive(Debug, Default)]
struct Upward {
    merge: Merge,
    /// Those that came from no child: they go to the leader, so that servers that disagree about the shape do not send
    /// them in a circle.
    straight: Merge,
    own: Option<Acknowledgement>,
    /// The newest round that was heard of.
    round: u64,
    /// When `own` was said last.
    said_us: u64,
    /// When the leader was sent some last.
    sent_us: Option<u64>,
}

impl Relay {
    /// A server that knows nothing yet.
    #[must_use]
    pub fn new(me: u8, limits: Limits) -> Self {
        Self {
            me,
            limits,
            servers: Ids::default(),
            reign: Reign::default(),
            shapes: Shapes::default(),
            log: Log::default(),
            hold: Hold::default(),
            gap: Gap::default(),
            lateness: Lateness::default(),
            upward: Upward::default(),
            silence: Silence::default(),
            gone: Ids::default(),
            outputs: VecDeque::new(),
            now_us: 0,
        }
    }

    /// These servers belong to the ensemble, this one among them.
    pub fn set_servers(&mut self, servers: &Ids) {
        if self.servers != *servers {
            self.servers = *servers;
            self.shapes.rebuild(servers);
            self.silence.begin(self.now_us);
        }
    }

    /// This server has heard of a term, and perhaps of its leader. A relay learns both from frames as well. Earlier terms
    /// are over; of the log of the new one it only has what is committed, until it is told that there is more.
    pub fn enter(&mut self, now_us: u64, term: u64, leader: Option<u8>) {
        self.now_us = now_us;
        if term == self.reign.term {
            self.reign.leader = self.reign.leader.or(leader);
        }
        if term <= self.reign.term {
            return;
        }
        self.reign = Reign { term, leader };
        self.shapes.clear();
        self.hold.clear();
        self.gap.clear();
        self.lateness.forget();
        self.log = Log { end: self.log.committed, committed: self.log.committed, ..Log::default() };
        self.upward = Upward::default();
        self.silence.begin(now_us);
        // The engine is not to be given what is of the former term, nor to answer for it.
        self.outputs.retain(|output| matches!(output, Output::Send { .. }));
    }

    /// The term, and who leads in it if that is known.
    #[must_use]
    pub fn reign(&self) -> (u64, Option<u8>) {
        (self.reign.term, self.reign.leader)
    }

    /// The newest shape that the leader has told of; `None` before it has told of one in this term. Its
    /// [`Shape::neighbours`] are those to be connected with.
    #[must_use]
    pub fn shape(&self) -> Option<&Shape> {
        self.shapes.newest().map(|kept| &kept.shape)
    }

    /// Which epoch that shape is of, how wide its trees are, and who is aside in it.
    #[must_use]
    pub fn shaped(&self) -> Option<(Epoch, Settings, &Ids)> {
        self.shapes.newest().map(|kept| (kept.epoch, kept.settings, &kept.aside))
    }

    /// For how long nothing has come down a tree, microseconds.
    #[must_use]
    pub fn silent_us(&self, tree: u8, now_us: u64) -> u64 {
        now_us.saturating_sub(self.silence.heard_us(tree))
    }

    /// The log up to this position is committed.
    pub fn committed(&mut self, position: u64) {
        self.log.committed = self.log.committed.max(position);
        if self.log.end < self.log.committed {
            self.log.end = self.log.committed;
            self.advance(true);
        }
    }

    /// The log of this server is that of the leader of `term` up to this position, durable or not: what it would
    /// acknowledge for the newest append that the engine has taken. It may be less than what was delivered.
    pub fn has(&mut self, term: u64, position: u64) {
        if term == self.reign.term {
            let before = self.log.end;
            self.log.end = position.max(self.log.committed);
            self.advance(self.log.end > before);
        }
    }

    /// What [`Relay::has`] says is durable up to this position, on the disk with this tag. It goes up the tree of this
    /// server's colour, and is said again every now and then. The same is not said each time that it is handed in: everybody would
    /// answer whatever says only what is committed. It has to be true: it is counted.
    pub fn stored(&mut self, term: u64, disk: u64, position: u64) {
        if term == self.reign.term {
            let before = self.upward.own;
            let round = before.map_or(0, |own| own.round);
            self.upward.own = Some(Acknowledgement { server: self.me, disk, position, round });
            if self.upward.own != before {
                self.say();
            } else {
                // Who was asked directly answers when it is asked again.
                self.repeat(self.limits.repeat_us / 4 * 3);
            }
        }
    }

    /// The process with this tag is in `term` now that [`Output::Heard`] has come: it has not voted in a later one, nor heard
    /// of one. It has to be true: the leader takes itself for one by it.
    pub fn heard(&mut self, term: u64, disk: u64, round: u64) {
        if term == self.reign.term {
            let own = Acknowledgement { server: self.me, disk, position: 0, round: 0 };
            let own = self.upward.own.get_or_insert(own);
            own.round = own.round.max(round);
            self.say();
        }
    }

    /// The connection to that server has ended.
    pub fn gone(&mut self, server: u8) {
        // What it was given last may not have gone on.
        if self.up() == Some(server) {
            self.say();
        }
        self.gone.insert(server);
    }

    /// That server is connected, as all are to begin with.
    pub fn connected(&mut self, server: u8) {
        self.gone.remove(server);
    }

    /// A frame has come.
    ///
    /// # Errors
    /// When the bytes are no frame. Nothing has changed then.
    pub fn receive(&mut self, now_us: u64, from: u8, bytes: Bytes) -> Result<(), DecodeError> {
        let frame = Frame::decode(bytes.clone())?;
        self.now_us = now_us;
        match frame {
            Frame::Spread(spread) => self.receive_spread(from, spread, &bytes),
            Frame::Acknowledge(acknowledge) => self.receive_acknowledge(from, &acknowledge),
            Frame::Pull(pull) => self.receive_pull(from, pull),
            Frame::Pulled(pulled) => self.receive_pulled(from, pulled),
            // Those are for leaders.
            Frame::Complaint(_) => {}
        }
        Ok(())
    }

    /// When [`Relay::tick`] is wanted at the latest, besides a few times in [`Limits::silence_us`]; it may have passed.
    #[must_use]
    pub fn due_us(&self) -> Option<u64> {
        self.gap.due_us().into_iter().chain(self.pass_up_due_us()).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now_us: u64) {
        self.now_us = now_us;
        let Some(leader) = self.reign.leader.filter(|leader| *leader != self.me) else { return };
        self.gap.forget(now_us.saturating_sub(self.limits.silence_us));
        self.pull(leader);
        let Some(newest) = self.shapes.newest() else { return };
        let late_us = self.lateness.wait_us(0, LATE_MAX * self.limits.silence_us);
        let complaints = self.silence.complaints(&newest.shape, self.me, (now_us, late_us), &self.limits);
        let epoch = newest.epoch;
        for (tree, about) in complaints {
            self.send(leader, &Frame::Complaint(Complaint { epoch, tree, about }));
        }
    }

    /// What is to be done next; `None` when there is nothing left. Acknowledgements come last: those of a whole turn
    /// are one frame if this is called when all that had come was taken in.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.tell_committed();
            self.pass_up();
        }
        self.outputs.pop_front()
    }

    /// Tells the engine once what the leader says is committed, after all appends, which say so too.
    fn tell_committed(&mut self) {
        let position = self.log.leader_committed.min(self.log.end);
        if position > self.log.committed.max(self.log.told) {
            self.log.told = position;
            self.outputs.push_back(Output::Committed { term: self.reign.term, position });
        }
    }

    fn send(&mut self, to: u8, frame: &Frame) {
        self.outputs.push_back(Output::Send { to, frame: frame.encode() });
    }

    fn receive_spread(&mut self, from: u8, spread: Spread, bytes: &Bytes) {
        self.enter(self.now_us, spread.epoch.term, Some(spread.leader));
        // A former leader, this server itself, or somebody else than who leads in this term: there can be no such frame.
        let leads = spread.epoch.term == self.reign.term && self.reign.leader == Some(spread.leader);
        if !leads || spread.leader == self.me {
            return;
        }
        self.pass_on(from, &spread, bytes);
        let Spread { number, place, content, round, .. } = spread;
        if round > self.upward.round {
            self.upward.round = round;
            self.outputs.push_back(Output::Heard { term: self.reign.term, round });
        }
        // All that hear this at the same moment say it together, so that it becomes few frames further up.
        if matches!(content, Content::Idle { .. })
            && self.shape().is_some_and(|shape| shape.colour(self.me) == Some(spread.tree))
        {
            self.repeat(self.limits.repeat_us - self.limits.repeat_us / 8);
        }
        self.gap.told(place.last, from);
        match content {
            Content::Whole(body) => {
                self.lateness.came(place.last, self.now_us);
                self.take(place, number, body);
            }
            Content::Header if place.last > self.log.end && !self.hold.has(place) => {
                self.lateness.named(place.last, self.now_us);
                self.gap.name(place, from, self.now_us + self.patience_us());
            }
            Content::Header => self.lateness.was_early(),
            Content::Idle { committed } => {
                self.log.leader_committed = committed.max(self.log.leader_committed);
            }
        }
        self.advance(false);
    }

    /// To the children in its tree, the same bytes, once, and before anybody looks at what is in it.
    fn pass_on(&mut self, from: u8, spread: &Spread, bytes: &Bytes) {
        let up = self.up();
        if self.shapes.learn(spread, &self.servers) {
            if let Some(newest) = self.shapes.newest() {
                self.silence.reshape(self.shapes.before(), &newest.shape, self.me, self.now_us);
            }
            if self.up() != up {
                self.say();
            }
        }
        let is_newest = self.shapes.newest().is_some_and(|newest| newest.epoch == spread.epoch);
        if is_newest {
            self.silence.heard(spread.tree, self.now_us);
        }
        // Those of a shape that is not known any more are as good as all others, but go nowhere.
        let Some(kept) = self.shapes.of(spread.epoch) else { return };
        if !kept.is_new(spread) {
            return;
        }
        for child in kept.shape.children(spread.tree, self.me) {
            if *child != from && !self.gone.contains(*child) {
                self.outputs.push_back(Output::Send { to: *child, frame: bytes.clone() });
            }
        }
    }

    /// Keeps an append until it is its turn, unless it says nothing new.
    fn take(&mut self, place: Place, number: u64, body: Bytes) {
        let is_empty = place.previous == place.last;
        if is_empty || place.last > self.log.end {
            self.gap.came(place);
            self.hold.put(place, number, body);
            self.hold.shrink(self.log.end, self.limits.held_bytes_max, self.limits.held_count_max);
        }
    }

    /// Delivers what follows on the log, and sees what is missing then.
    fn advance(&mut self, mut has_advanced: bool) {
        while let Some((place, body)) = self.hold.next(self.log.end) {
            has_advanced |= place.last > self.log.end;
            self.log.end = self.log.end.max(place.last);
            self.outputs.push_back(Output::Deliver { term: self.reign.term, place, body });
        }
        self.gap.review(self.log.end, self.hold.first(), self.now_us + self.patience_us());
        if has_advanced {
            for (by, pull) in self.gap.answered(self.log.end) {
                self.answer(by, pull);
            }
        }
    }

    /// How long what is missing is waited for before it is asked for. Not for ever: a tree that is silent is complained
    /// about, and until it is mended its bodies are asked for.
    fn patience_us(&self) -> u64 {
        self.lateness.wait_us(self.limits.pull_after_us, LATE_MAX * self.limits.silence_us)
    }

    /// Asks for what is missing, when it is time.
    fn pull(&mut self, leader: u8) {
        if self.gap.due_us().is_none_or(|due_us| due_us > self.now_us) {
            return;
        }
        let parents = self.parents();
        for question in self.gap.questions(parents.len() + 2, self.now_us, self.patience_us()) {
            let whom = self.candidates(question.by, &parents, leader);
            if !whom.is_empty() {
                self.ask(whom[question.tries % whom.len()], question.place);
            }
        }
    }

    /// The parents in all trees.
    fn parents(&self) -> Vec<u8> {
        let shape = self.shapes.newest().map(|kept| &kept.shape);
        let parents =
            |shape: &Shape| (0..shape.trees()).filter_map(|tree| shape.parent(tree, self.me)).collect();
        shape.map_or_else(Vec::new, parents)
    }

    /// Whom to ask for something: first who has told of it, then the parents, and only then the leader.
    fn candidates(&self, by: u8, parents: &[u8], leader: u8) -> Vec<u8> {
        let (mut met, mut candidates) = (self.gone, Vec::new());
        met.insert(self.me);
        for id in [by].iter().chain(parents).chain([&leader]) {
            if Ids::is_id(*id) && !met.contains(*id) {
                met.insert(*id);
                candidates.push(*id);
            }
        }
        candidates
    }

    /// Asks somebody for what is not here of a place.
    fn ask(&mut self, whom: u8, place: Place) {
        let after = place.previous.max(self.log.end);
        if after < place.last {
            self.send(whom, &Frame::Pull(Pull { term: self.reign.term, after, upto: place.last }));
        }
    }

    fn receive_pull(&mut self, from: u8, pull: Pull) {
        if pull.term != self.reign.term || pull.after >= pull.upto {
            return;
        }
        if pull.after < self.log.end {
            self.answer(from, pull);
        } else {
            self.gap.wait(from, pull, self.now_us);
        }
    }

    fn answer(&mut self, by: u8, pull: Pull) {
        let upto = pull.upto.min(self.log.end);
        self.outputs.push_back(Output::Asked { by, term: pull.term, after: pull.after, upto });
    }

    fn receive_pulled(&mut self, from: u8, pulled: Pulled) {
        if pulled.term != self.reign.term || pulled.place.previous == pulled.place.last {
            return;
        }
        let before = self.log.end;
        self.take(pulled.place, 0, pulled.body);
        self.advance(false);
        // It was a part: who has sent it has more.
        if self.log.end > before
            && let Some(upto) = self.gap.first(self.log.end)
        {
            self.ask(from, Place { previous: self.log.end, last: upto });
        }
    }

    fn receive_acknowledge(&mut self, from: u8, acknowledge: &Acknowledge) {
        if acknowledge.term != self.reign.term {
            return;
        }
        let is_child = |shape: &Shape| {
            shape.colour(self.me).is_some_and(|tree| shape.children(tree, self.me).contains(&from))
        };
        let merge =
            if self.shapes.all().any(is_child) { &mut self.upward.merge } else { &mut self.upward.straight };
        for item in &acknowledge.items {
            merge.add(*item);
        }
    }

    /// Who is given acknowledgements: the parent in the tree of this server's colour; the leader where there is none.
    fn up(&self) -> Option<u8> {
        let shape = self.shapes.newest().map(|kept| &kept.shape);
        let parent = shape.and_then(|shape| shape.parent(shape.colour(self.me)?, self.me));
        parent.filter(|parent| !self.gone.contains(*parent)).or(self.reign.leader)
    }

    /// Says again what this server has.
    fn say(&mut self) {
        if let Some(own) = self.upward.own {
            self.upward.merge.add(own);
            self.upward.said_us = self.now_us;
        }
    }

    /// When what has come together may be sent to the leader, if there is something.
    fn pass_up_due_us(&self) -> Option<u64> {
        // Where nobody could be told nothing is due.
        let (leader, up) = (self.reign.leader.filter(|leader| *leader != self.me)?, self.up()?);
        let Upward { merge, straight, sent_us, .. } = &self.upward;
        let is_waiting = !straight.is_empty() || !merge.is_empty() && up == leader;
        is_waiting.then(|| sent_us.map_or(0, |sent_us| sent_us + self.limits.acknowledge_us))
    }

    /// Says again what this server has if it has not for so long: what it said may have been lost.
    fn repeat(&mut self, after_us: u64) {
        if self.now_us.saturating_sub(self.upward.said_us) >= after_us {
            self.say();
        }
    }

    /// Sends what has come together: to a parent at once, to the leader not too often.
    fn pass_up(&mut self) {
        let (Some(leader), Some(up)) = (self.reign.leader, self.up()) else { return };
        if leader == self.me {
            return;
        }
        let term = self.reign.term;
        if up != leader
            && let Some(acknowledge) = self.upward.merge.take(term)
        {
            self.send(up, &Frame::Acknowledge(acknowledge));
        }
        if self.pass_up_due_us().is_none_or(|due_us| due_us > self.now_us) {
            return;
        }
        self.upward.sent_us = Some(self.now_us);
        let Upward { merge, straight, .. } = &mut self.upward;
        for acknowledge in [merge.take(term), straight.take(term)].into_iter().flatten() {
            self.send(leader, &Frame::Acknowledge(acknowledge));
        }
    }
}
