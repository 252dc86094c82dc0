//! Who is fed, and what they have.
//!
//! All members of a large group acknowledge each entry. The engine looks a member up for each of that, sorts all of them
//! to see what is committed, and asks each whether it has to be sent something: with 200 members most of what a leader
//! does. So what those who are fed acknowledge is kept here, side by side, and what is committed is counted from it. The
//! engine is told when time goes on, or when it has to send to one of them itself; until then it takes them to have less
//! than they have, which is always safe.
//!
//! What counts is the engine's own rule, [`raft::ProgressTracker::maximal_committed_index`], and in debug builds both are
//! compared: a position that more than half of the voters have, and in a joint change more than half of those before it.

use crate::held::Held;
use alloc::vec::Vec;
use raft::eraftpb::ConfState;
use raft::{Raft, StateRole};

/// It votes; in a joint change, after it.
const VOTES: u8 = 1;
/// It votes before the joint change that is under way.
const VOTED: u8 = 2;
/// Something was heard of it that the engine was not told.
const UNTOLD: u8 = 4;
/// Something was heard of it since the last look.
const HEARD: u8 = 8;

/// See the module. It is of one term of a leader, and of one list of members.
#[derive(Debug, Default)]
pub(crate) struct Feeding {
    term: u64,
    /// Who is fed, in order. What is said of them stands at the same places in the four lists below, which are apart
    /// because few of them are gone through for each entry.
    members: Vec<u64>,
    /// Up to where they have the leader's log on their disks.
    matched: Vec<u64>,
    /// The newest rounds that they have heard of, see [`crate::rounds`].
    rounds: Vec<u64>,
    marks: Vec<u8>,
    looks: Vec<Look>,
    /// All other members, the leader among them, and their marks.
    others: Vec<(u64, u8)>,
    /// Room to count in.
    positions: Vec<u64>,
}

/// What was seen of a member that is fed at the last look.
#[derive(Debug)]
struct Look {
    /// What it has to have at the next one, or more than it had.
    wanted: u64,
    had: u64,
    /// So many looks before nothing had been heard of it.
    silent: usize,
}

impl Feeding {
    /// Nobody is fed yet, and these are the members.
    pub(crate) fn begin(&mut self, engine: &Raft<Held>, members: &ConfState) {
        if self.is_empty() {
            self.term = engine.term;
            self.others.clear();
            self.others.extend(engine.prs().iter().map(|(id, _)| (*id, marks(*id, members))));
        }
    }

    /// From now on this member, which is one, is fed. It has this much of the log, and will have so much.
    pub(crate) fn feed(&mut self, member: u64, matched: u64, wanted: u64) {
        let Some(at) = self.others.iter().position(|(id, _)| *id == member) else { return };
        let (_, marks) = self.others.swap_remove(at);
        let at = self.members.partition_point(|other| *other < member);
        self.members.insert(at, member);
        self.matched.insert(at, matched);
        self.rounds.insert(at, 0);
        self.marks.insert(at, marks | HEARD);
        self.looks.insert(at, Look { wanted, had: matched, silent: 0 });
    }

    /// It is not fed any more; the engine is told what is known of it. Returns whether it was fed.
    pub(crate) fn release(&mut self, member: u64, engine: &mut Raft<Held>) -> bool {
        let is_of_now = self.is_of(engine);
        let Some(at) = self.at(member) else { return false };
        if is_of_now {
            self.tell_of(at, engine);
        }
        self.members.remove(at);
        self.matched.remove(at);
        self.rounds.remove(at);
        self.looks.remove(at);
        let marks = self.marks.remove(at);
        self.others.push((member, marks & (VOTES | VOTED)));
        true
    }

    /// Whether somebody is fed by this member as it leads now.
    pub(crate) fn is_of(&self, engine: &Raft<Held>) -> bool {
        !self.is_empty() && engine.state == StateRole::Leader && engine.term == self.term
    }

    /// Whether all but this member are fed, so that the engine has nobody to send to.
    pub(crate) fn is_everybody(&self, engine: &Raft<Held>) -> bool {
        self.is_of(engine) && matches!(self.others[..], [(id, _)] if id == engine.id)
    }

    fn at(&self, member: u64) -> Option<usize> {
        self.members.binary_search(&member).ok()
    }

    pub(crate) fn is_fed(&self, member: u64) -> bool {
        self.at(member).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// All who are fed, and up to where they have the log.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.members.iter().copied().zip(self.matched.iter().copied())
    }

    /// A member was heard of, and has the log up to a position if it has said so. `next` is where to look first: members
    /// mostly come in their order. Returns whether that is more than was known, or `None` when it is not fed.
    pub(crate) fn heard_of(&mut self, member: u64, position: u64, next: &mut usize) -> Option<bool> {
        let is_next = self.members.get(*next) == Some(&member);
        let at = if is_next { *next } else { self.at(member)? };
        *next = at + 1;
        self.marks[at] |= UNTOLD | HEARD;
        let matched = &mut self.matched[at];
        let is_news = position > *matched;
        *matched = position.max(*matched);
        Some(is_news)
    }

    /// A member that is fed was in this term when it heard of a round.
    pub(crate) fn confirmed(&mut self, member: u64, round: u64, next: &mut usize) {
        if self.heard_of(member, 0, next).is_some()
            && let Some(known) = self.rounds.get_mut(*next - 1)
        {
            *known = round.max(*known);
        }
    }

    /// Whether those who are fed and this member are more than half of the voters.
    pub(crate) fn is_quorum(&self, leader: u64) -> bool {
        [VOTES, VOTED].into_iter().all(|half| {
            let is_in = |marks: u8| marks & half != 0;
            let fed = self.marks.iter().filter(|marks| is_in(**marks)).count();
            let others = self.others.iter().filter(|(_, marks)| is_in(*marks));
            let (own, rest) =
                others.fold(
                    (0, 0),
                    |(own, rest), (id, _)| {
                        if *id == leader { (own + 1, rest) } else { (own, rest + 1) }
                    },
                );
            fed + own + rest == 0 || fed + own > rest
        })
    }

    /// The newest round of which more than half of the voters have heard, `leader` among them, who is in the newest one; 0
    /// where that is none from the oldest one on that matters.
    pub(crate) fn agreed_round(&mut self, leader: u64, newest: u64, oldest: u64) -> u64 {
        let all = [VOTES, VOTED].map(|half| self.agreed_round_in(half, leader, (newest, oldest)));
        all.into_iter().flatten().min().unwrap_or(0)
    }

    fn agreed_round_in(&mut self, half: u8, leader: u64, (newest, oldest): (u64, u64)) -> Option<u64> {
        let rounds = &mut self.positions;
        rounds.clear();
        let fed = self.rounds.iter().zip(&self.marks);
        rounds.extend(fed.filter(|(_, marks)| **marks & half != 0).map(|(round, _)| *round));
        // Who is not fed is asked by the engine, if at all.
        let others = self.others.iter().filter(|(_, marks)| marks & half != 0);
        rounds.extend(others.map(|(id, _)| if *id == leader { newest } else { 0 }));
        if rounds.is_empty() {
            return None;
        }
        let at = (rounds.len() - 1) / 2;
        let enough = rounds.iter().filter(|round| **round >= oldest).count() >= rounds.len() - at;
        Some(if enough { *rounds.select_nth_unstable(at).1 } else { 0 })
    }

    /// Time for a look: who does not have what it had to have and has come no further, or was silent for so many looks. The
    /// others are to have this much at the next one. Who lags and comes further is given the rest by its neighbours:
    /// where all lag because links are full, sending to each of them would fill those of the leader.
    pub(crate) fn look(&mut self, wanted: u64, silent_max: usize) -> Vec<u64> {
        let mut late = Vec::new();
        for at in 0..self.members.len() {
            let look = &mut self.looks[at];
            let was_heard = self.marks[at] & HEARD != 0;
            look.silent = if was_heard { 0 } else { look.silent + 1 };
            self.marks[at] &= !HEARD;
            let stands_still = self.matched[at] < look.wanted && self.matched[at] == look.had;
            if stands_still || look.silent >= silent_max {
                late.push(self.members[at]);
            }
            (look.wanted, look.had) = (wanted, self.matched[at]);
        }
        late
    }

    /// The last position that is on the disks of more than half of the voters, if it is behind what is known to be
    /// committed. Members count one by one, whoever has brought what they say.
    pub(crate) fn agreed(&mut self, engine: &Raft<Held>) -> Option<u64> {
        let committed = engine.raft_log.committed;
        let all = [VOTES, VOTED].map(|half| self.agreed_in(half, engine, committed));
        all.into_iter().flatten().min().filter(|position| *position > committed)
    }

    /// The same in one set of voters; `None` where that is empty.
    fn agreed_in(&mut self, half: u8, engine: &Raft<Held>, committed: u64) -> Option<u64> {
        let positions = &mut self.positions;
        positions.clear();
        let fed = self.matched.iter().zip(&self.marks);
        positions.extend(fed.filter(|(_, marks)| **marks & half != 0).map(|(matched, _)| *matched));
        let others = self.others.iter().filter(|(_, marks)| marks & half != 0);
        let matched = |id: &u64| engine.prs().get(*id).map_or(0, |progress| progress.matched);
        positions.extend(others.map(|(id, _)| matched(id)));
        if positions.is_empty() {
            return None;
        }
        // More than half are at this place or behind it.
        let at = (positions.len() - 1) / 2;
        // Mostly it is too early, and that is seen without putting them in order.
        let news = positions.iter().filter(|position| **position > committed).count();
        if news < positions.len() - at {
            return Some(committed);
        }
        Some(*positions.select_nth_unstable(at).1)
    }

    /// Tells the engine what it has not been told.
    pub(crate) fn tell(&mut self, engine: &mut Raft<Held>) {
        if self.is_of(engine) {
            (0..self.members.len()).for_each(|at| self.tell_of(at, engine));
        }
    }

    fn tell_of(&mut self, at: usize, engine: &mut Raft<Held>) {
        let Some(progress) = engine.mut_prs().get_mut(self.members[at]) else { return };
        progress.recent_active |= self.marks[at] & UNTOLD != 0;
        self.marks[at] &= !UNTOLD;
        if progress.maybe_update(self.matched[at]) {
            progress.ins.free_to(self.matched[at]);
        }
        // What it has said to the engine itself is known there alone.
        self.matched[at] = self.matched[at].max(progress.matched);
    }
}

fn marks(id: u64, members: &ConfState) -> u8 {
    let votes = if members.voters.contains(&id) { VOTES } else { 0 };
    let voted = if members.voters_outgoing.contains(&id) { VOTED } else { 0 };
    votes | voted
}
