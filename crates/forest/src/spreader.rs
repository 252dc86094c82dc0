//! What the leader does.

use crate::absent::Absent;
use crate::codec::DecodeError;
use crate::frame::{Complaint, Content, Epoch, Frame, Place, Pull, Spread};
use crate::ids::Ids;
use crate::limits::Limits;
use crate::output::Output;
use crate::shape::{Settings, Shape, TREES_MAX};
use alloc::collections::VecDeque;
use bytes::Bytes;

/// How many former shapes are known: so many may be bad at once without any complaint being lost.
const FORMER: usize = 8;

/// The leader of one term: it spreads appends down the trees, takes in acknowledgements, and says who is aside.
///
/// Times are in microseconds since any moment, and never go back. Nothing that comes in makes it panic.
#[derive(Debug)]
pub struct Spreader {
    me: u8,
    settings: Settings,
    limits: Limits,
    servers: Ids,
    epoch: Epoch,
    shape: Shape,
    /// Those before it, the newest first.
    former: VecDeque<(Epoch, Shape)>,
    aside: Ids,
    absent: Absent,
    /// Who is not connected.
    gone: Ids,
    batches: Batches,
    /// When something was sent down each tree last.
    sent_us: [u64; TREES_MAX as usize],
    outputs: VecDeque<Output>,
}

/// What was spread.
#[derive(Debug, Default)]
struct Batches {
    /// The number of the newest one.
    number: u64,
    /// Which round it is.
    round: u64,
    /// Down which tree the next one goes.
    turn: u8,
    /// Where the log ends.
    end: u64,
    /// Up to where it is committed.
    committed: u64,
    /// Where those end that not enough servers have.
    flying: VecDeque<u64>,
}

impl Spreader {
    /// A leader of this term over these servers, itself among them or not. Its log ends at `end`. All are taken to be
    /// connected: see [`Spreader::gone`].
    #[must_use]
    pub fn new(me: u8, term: u64, servers: &Ids, end: u64, settings: Settings, limits: Limits) -> Self {
        let aside = Ids::default();
        Self {
            me,
            settings,
            limits,
            servers: *servers,
            epoch: Epoch { term, count: 1 },
            shape: Shape::new(servers, me, settings, &aside),
            former: VecDeque::new(),
            aside,
            absent: Absent::default(),
            gone: Ids::default(),
            batches: Batches { end, ..Batches::default() },
            sent_us: [0; TREES_MAX as usize],
            outputs: VecDeque::new(),
        }
    }

    /// The shape of now. Where it has no trees nothing is spread, and members are given appends by the engine. The
    /// leader has to be connected with everybody whatever the shape: complaints and pulls come to it.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The term, and how many shapes there were in it.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Who is aside: a leaf in all trees.
    #[must_use]
    pub fn aside(&self) -> &Ids {
        &self.aside
    }

    /// The list of servers is another one. Who is new is aside for a while, as it has to be given the log first.
    pub fn set_servers(&mut self, now_us: u64, servers: &Ids) {
        if self.servers != *servers {
            for new in servers.iter().filter(|id| !self.servers.contains(*id)) {
                self.absent.put_aside(new, now_us, &self.limits);
            }
            self.servers = *servers;
            self.shape_anew(now_us, self.now_aside(now_us));
        }
    }

    /// The connection to that server has ended: it is aside at once.
    pub fn gone(&mut self, now_us: u64, server: u8) {
        if !self.gone.contains(server) {
            self.gone.insert(server);
            self.absent.put_aside(server, now_us, &self.limits);
        }
    }

    /// That server is connected. It comes back when its time is over.
    pub fn connected(&mut self, server: u8) {
        self.gone.remove(server);
    }

    /// The log is committed up to this position: more than half have it.
    pub fn committed(&mut self, position: u64) {
        self.batches.committed = position.max(self.batches.committed);
        while self.batches.flying.front().is_some_and(|last| *last <= position) {
            self.batches.flying.pop_front();
        }
    }

    /// From now on frames are of this round: whoever hears of it says so, and [`Output::Acknowledged`] has it. It has to be
    /// taken to them by something, if only an append without positions.
    pub fn set_round(&mut self, round: u64) {
        self.batches.round = self.batches.round.max(round);
    }

    /// Whether another append with positions may go. While it may not the next one grows, which costs less than many on
    /// their way at once.
    #[must_use]
    pub fn may_spread(&self) -> bool {
        self.batches.flying.len() < self.limits.window
    }

    /// Spreads an append: one down all trees of the same bytes, so it names nobody it is for. It follows on the last
    /// one, or has no positions.
    ///
    /// A small one goes down two trees whole, which costs what a header would; a larger one down one tree, and its
    /// header down another one, by which servers know what they miss. Trees take turns.
    pub fn spread(&mut self, now_us: u64, place: Place, body: Bytes) {
        self.settle(now_us);
        let is_empty = place.previous == place.last;
        self.batches.number += 1;
        self.batches.end = self.batches.end.max(place.last);
        if !is_empty {
            self.batches.flying.push_back(place.last);
        }
        let trees = self.shape.trees();
        if trees == 0 {
            return;
        }
        let first = self.batches.turn % trees;
        self.batches.turn = (first + 1) % trees;
        let is_small = is_empty || body.len() < self.limits.whole_twice_below;
        let whole = Content::Whole(body);
        let second = if is_small { whole.clone() } else { Content::Header };
        self.send_down(now_us, first, place, whole);
        if trees > 1 {
            self.send_down(now_us, (first + 1) % trees, place, second);
        }
    }

    /// A frame has come.
    ///
    /// # Errors
    /// When the bytes are no frame. Nothing has changed then.
    pub fn receive(&mut self, now_us: u64, from: u8, bytes: Bytes) -> Result<(), DecodeError> {
        match Frame::decode(bytes)? {
            Frame::Acknowledge(acknowledge) => {
                if acknowledge.term == self.epoch.term && !acknowledge.items.is_empty() {
                    self.outputs.push_back(Output::Acknowledged(acknowledge.items));
                }
            }
            Frame::Pull(Pull { term, after, upto }) => {
                let upto = upto.min(self.batches.end);
                if term == self.epoch.term && after < upto {
                    self.outputs.push_back(Output::Asked { by: from, term, after, upto });
                }
            }
            Frame::Complaint(complaint) => self.receive_complaint(now_us, from, complaint),
            Frame::Spread(spread) => {
                let (term, leader) = (spread.epoch.term, spread.leader);
                if term > self.epoch.term {
                    self.outputs.push_back(Output::Newer { term, leader });
                }
            }
            // A leader asks for nothing.
            Frame::Pulled(_) => {}
        }
        Ok(())
    }

    /// Time has passed: best a few times in [`Limits::idle_us`].
    pub fn tick(&mut self, now_us: u64) {
        self.settle(now_us);
        for tree in 0..self.shape.trees() {
            if now_us.saturating_sub(self.sent_us[usize::from(tree)]) >= self.limits.idle_us {
                self.send_idle(now_us, tree);
            }
        }
    }

    /// What is to be done next; `None` when there is nothing left.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn receive_complaint(&mut self, now_us: u64, from: u8, complaint: Complaint) {
        let Complaint { epoch, tree, about } = complaint;
        if epoch.term != self.epoch.term {
            return;
        }
        self.absent.hears_nothing(tree, from, now_us);
        // One of a former shape may have been on its way; it counts where nothing above has changed since.
        let former = self.former.iter().find(|(former, _)| *former == epoch);
        let is_of_now = former.is_some_and(|(_, former)| self.shape.has_way(former, tree, from));
        let of = (&self.shape, &self.gone);
        if (epoch == self.epoch || is_of_now)
            && self.absent.complain((tree, from, about), of, now_us, &self.limits)
        {
            self.settle(now_us);
        }
    }

    /// Sees whether somebody has gone or comes back. Changes that come together are one.
    fn settle(&mut self, now_us: u64) {
        let aside = self.now_aside(now_us);
        if aside != self.aside {
            self.shape_anew(now_us, aside);
        }
    }

    /// Members that are aside now: others come and go without a change of shape. Where it would be more than half of
    /// all, only those are who are not connected: trees of the others are better than few trees or none.
    fn now_aside(&self, now_us: u64) -> Ids {
        let members = |ids: Ids| ids.iter().filter(|id| self.servers.contains(*id)).collect::<Ids>();
        let aside = members(self.absent.aside(&self.gone, now_us));
        if 2 * aside.len() > self.servers.len() { members(self.gone) } else { aside }
    }

    /// Begins another epoch, and tells everybody at once.
    fn shape_anew(&mut self, now_us: u64, aside: Ids) {
        let shape = Shape::new(&self.servers, self.me, self.settings, &aside);
        self.absent.reshape(&self.shape, &shape, now_us, &self.limits);
        self.former.truncate(FORMER - 1);
        self.former.push_front((self.epoch, core::mem::replace(&mut self.shape, shape)));
        self.epoch.count = self.epoch.count.saturating_add(1);
        self.aside = aside;
        for tree in 0..self.shape.trees() {
            self.send_idle(now_us, tree);
        }
    }

    fn send_idle(&mut self, now_us: u64, tree: u8) {
        self.batches.number += 1;
        let end = self.batches.end;
        self.send_down(
            now_us,
            tree,
            Place { previous: end, last: end },
            Content::Idle { committed: self.batches.committed.min(end) },
        );
    }

    fn send_down(&mut self, now_us: u64, tree: u8, place: Place, content: Content) {
        let Some(root) = self.shape.root(tree) else { return };
        self.sent_us[usize::from(tree)] = now_us;
        if self.gone.contains(root) {
            return;
        }
        let (epoch, leader) = (self.epoch, self.me);
        let Batches { number, round, .. } = self.batches;
        let (settings, aside) = (self.settings, self.aside);
        let spread = Spread { epoch, leader, settings, aside, tree, number, round, place, content };
        let frame = Frame::Spread(spread);
        self.outputs.push_back(Output::Send { to: root, frame: frame.encode() });
    }
}
