//! Snapshots that a member is given by another one than the leader.
//!
//! A leader that sends each member that lags its snapshot itself sends as much as all of them lack. So it may ask a
//! **giver**, another member, to send its own newest one in the leader's name.
//!
//! **Why that is safe.** Raft has a follower take a snapshot from the leader of its term. What it relies on is not who sends
//! it, but that the snapshot is of what is committed, and that the leader of the follower's term has all of that:
//!
//! - *A snapshot holds what is committed and nothing else*, whoever has taken it: it is of what was applied, and stands under
//!   the position and the term of the last entry of that. No term, vote or entry behind it goes with it.
//! - *The leader of a term has everything that was committed before* (Raft's leader completeness). So a snapshot that was
//!   given in one term is one that the leader of any later term could have sent itself, at that position and of that term: a
//!   member that has come to a later term meanwhile takes it as one of that term's leader, and nothing is sent twice because
//!   of an election. Where it knows of no leader in its term it takes it over without an answer to anybody. Its term and
//!   its vote stay, or the term becomes that in which it was given, whose leader is who the giver was asked by.
//! - *What the member has promised it keeps.* What it has at the snapshot's position, with that term, it has of all that is
//!   before (log matching), and then keeps what is behind it too; it only learns that so much is committed. What is older
//!   than what it knows to be committed is nothing to it. What it has otherwise at that position was never committed, and
//!   never will be.
//! - *It may be newer than what the leader believes of the member*, or than what the leader knows to be committed: committed
//!   it is, so the leader has it. And it may be older than what the leader's log begins with: then the next append is refused,
//!   and another snapshot follows, as ever.
//! - *Who the members are* comes with it as of its position, and everything that changes them later is in the log behind that.
//!   The leader asks for one from behind the last time that the receiver was taken out ([`Group::give_from`]): in it, who has
//!   come back with another disk is not the voter that it was before. Who was taken out where (so whose disk is another one)
//!   is in it as in those of a leader.
//! - *Only the member says that it has it*, to its leader, when it is durable. What the giver says of it, that the file
//!   has arrived, lets the leader wait for that and no more.

use crate::check;
use crate::group::{Group, StepError};
use crate::held::Mark;
use crate::message::Message;
use alloc::boxed::Box;
use raft::eraftpb::{self, MessageType};
use raft::{ProgressState, StateRole};

impl Group {
    /// At the leader: from where on a snapshot will do that a member is given by another one. What follows it is kept here,
    /// and some more, as entries are forgotten while it is on its way.
    #[must_use]
    pub fn give_from(&self, member: u64) -> u64 {
        let (base, committed) = (self.base(), self.committed());
        let taken_out = self.held().removed_at(member).unwrap_or(0);
        (base + committed.saturating_sub(base) / 2).max(taken_out)
    }

    /// At a giver: the newest snapshot here, in the name of the leader that it follows, for another member; and where it stands.
    /// `None` where there is none from behind that position in which that one is a member: it would take no other.
    #[must_use]
    pub fn give_snapshot(&self, to: u64, from: u64) -> Option<(u64, Message)> {
        let engine = &self.raft.raft;
        let mark = self.offered().filter(|mark| mark.position >= from && mark.members.contains(to))?;
        if engine.leader_id == 0 {
            return None;
        }
        let (from, term) = (engine.leader_id, engine.term);
        let mut raft = eraftpb::Message { from, to, term, ..Default::default() };
        raft.set_msg_type(MessageType::MsgSnapshot);
        raft.set_snapshot(mark.to_raft());
        Some((mark.position, Message { raft: Box::new(raft) }))
    }

    /// A snapshot has come that [`Group::give_snapshot`] has made. It is taken over as one of the leader of this member's term; see
    /// the module.
    ///
    /// # Errors
    /// When no working member would give it: then nothing has changed.
    pub fn take_given(&mut self, mut message: Message) -> Result<(), StepError> {
        let mark = message.snapshot().ok_or(StepError::Malformed)?;
        let engine = &self.raft.raft;
        if mark.term > message.raft.term || message.raft.from == engine.id {
            return Err(StepError::Malformed);
        }
        if message.raft.term < engine.term {
            message.raft.term = engine.term;
            message.raft.from = engine.leader_id;
        }
        if message.raft.from != 0 {
            // One that leads has all of it, and passes it over.
            return self.step(message);
        }
        check::check(engine, &message)?;
        if !self.must_wait() {
            self.take_over_unled(&mark);
        }
        Ok(())
    }

    /// Takes over a snapshot where no leader is known. Who wants to lead wants that no more: its vote, which it has given to
    /// itself, stays.
    fn take_over_unled(&mut self, mark: &Mark) {
        let engine = &mut self.raft.raft;
        if engine.state != StateRole::Follower {
            engine.become_follower(engine.term, 0);
        }
        // Whether it is of use shows in what there is to do.
        let _ = engine.restore(mark.to_raft());
        self.choose_timeout();
    }

    /// At the leader: whether a member is waited for that is to take over a snapshot.
    #[must_use]
    pub fn awaits_snapshot(&self, member: u64) -> bool {
        let progress = self.raft.raft.prs().get(member);
        self.leads() && progress.is_some_and(|progress| progress.state == ProgressState::Snapshot)
    }

    /// At the leader: the snapshot that a member is given stands there, and not where the leader's own does. The member is
    /// waited for until it says that it has so much.
    pub fn snapshot_is_at(&mut self, member: u64, position: u64) {
        if self.awaits_snapshot(member)
            && let Some(progress) = self.raft.raft.mut_prs().get_mut(member)
        {
            progress.pending_snapshot = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{Config, Output, Role};
    use crate::held::{Entry, EntryKind, Vote};
    use crate::members::Members;
    use crate::record::{Restored, Store};
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use bytes::Bytes;

    fn mark(position: u64, term: u64) -> Mark {
        Mark { position, term, members: Members::of_voters(&[1, 2, 3]) }
    }

    /// The third of three members, in a term, with entries of these terms behind the first position, of which so much is
    /// known to be committed.
    fn member(term: u64, committed: u64, terms: &[u64]) -> Group {
        let entry = |(position, term): (u64, &u64)| Entry {
            position,
            term: *term,
            kind: EntryKind::Payload,
            payload: Bytes::from_static(b"update"),
        };
        let entries = (2..).zip(terms).map(entry).collect();
        let vote = Vote { term, voted_for: 3, committed };
        let restored = Restored { base: mark(1, 1), vote, entries, ..Restored::default() };
        let mut group = Group::new(&Config::new(3, 7), &restored).expect("it is sound");
        settle(&mut group);
        group
    }

    /// Everything is stored: what was, and what is said.
    fn settle(group: &mut Group) -> (Vec<Store>, Vec<String>) {
        let (mut stores, mut said) = (Vec::<Store>::new(), Vec::new());
        let mut stored = 0;
        loop {
            match group.poll() {
                Some(Output::Store(store)) => stores.push(store),
                Some(Output::Send(message)) => said.push(message.to_string()),
                Some(_) => {}
                None if stored < stores.len() => {
                    stored = stores.len();
                    group.stored(stores[stored - 1].number);
                }
                None => return (stores, said),
            }
        }
    }

    fn of_kind(kind: MessageType, (from, term): (u64, u64)) -> eraftpb::Message {
        let mut raft = eraftpb::Message { from, to: 3, term, ..Default::default() };
        raft.set_msg_type(kind);
        raft
    }

    /// What goes with a snapshot that was given in the name of a term's leader.
    fn given(of: (u64, u64), mark: &Mark) -> Message {
        let mut raft = of_kind(MessageType::MsgSnapshot, of);
        raft.set_snapshot(mark.to_raft());
        Message { raft: raft.into() }
    }

    fn is_led(group: &mut Group, by: (u64, u64)) {
        group.step(Message { raft: of_kind(MessageType::MsgHeartbeat, by).into() }).expect("it leads");
        settle(group);
    }

    #[test]
    fn it_is_one_of_the_leader_in_whose_name_it_comes() {
        let mut group = member(4, 1, &[]);
        group.take_given(given((1, 4), &mark(9, 3))).unwrap();
        let (stores, said) = settle(&mut group);
        assert_eq!(stores[0].snapshot.as_deref(), Some(&mark(9, 3)));
        assert_eq!(said, ["3 to 1: have 9 (term 4)"], "to the leader, and when it is stored");
        assert_eq!((group.status().leader, group.committed()), (1, 9));
        // One of a later term says that there is such a term, and who leads it.
        let mut group = member(2, 1, &[]);
        group.take_given(given((1, 4), &mark(9, 3))).unwrap();
        assert_eq!(settle(&mut group).1, ["3 to 1: have 9 (term 4)"]);
        assert_eq!(group.vote(), Vote { term: 4, voted_for: 0, committed: 9 });
    }

    #[test]
    fn in_a_later_term_it_is_one_of_that_terms_leader() {
        let mut group = member(4, 1, &[]);
        is_led(&mut group, (2, 6));
        group.take_given(given((1, 5), &mark(9, 5))).unwrap();
        assert_eq!(settle(&mut group).1, ["3 to 2: have 9 (term 6)"]);
        assert_eq!((group.status().term, group.status().leader), (6, 2));
    }

    #[test]
    fn where_nobody_is_known_to_lead_it_is_taken_over_without_a_word_and_the_vote_stays() {
        let mut group = member(6, 1, &[]);
        group.take_given(given((1, 5), &mark(9, 5))).unwrap();
        let (stores, said) = settle(&mut group);
        assert!(stores[0].snapshot.is_some() && said.is_empty());
        assert_eq!(group.vote(), Vote { term: 6, voted_for: 3, committed: 9 });
        // So does who wants to lead.
        let mut group = member(6, 1, &[]);
        group.campaign();
        settle(&mut group);
        assert_eq!(group.status().role, Role::Candidate);
        let before = group.vote();
        group.take_given(given((1, 5), &mark(9, 5))).unwrap();
        assert!(settle(&mut group).0.iter().any(|store| store.snapshot.is_some()));
        assert_eq!((group.status().role, group.status().leader, group.committed()), (Role::Follower, 0, 9));
        assert_eq!(group.vote(), Vote { committed: 9, ..before });
    }

    /// What it has acknowledged may be counted on.
    #[test]
    fn what_is_behind_it_stays_where_it_is_the_same_and_what_was_never_committed_goes() {
        for unled in [false, true] {
            let term = if unled { 4 } else { 3 };
            let mut group = member(term, 2, &[2, 2, 2, 2, 2]);
            group.take_given(given((1, 3), &mark(4, 2))).unwrap();
            assert_eq!((group.last(), group.committed()), (6, 4), "it learns that so much is committed");
            assert!(settle(&mut group).0.iter().all(|store| store.snapshot.is_none()));
            let mut group = member(term, 2, &[2, 2, 2, 2, 2]);
            group.take_given(given((1, 3), &mark(4, 3))).unwrap();
            settle(&mut group);
            assert_eq!((group.last(), group.committed()), (4, 4));
        }
    }

    #[test]
    fn one_that_is_older_than_what_is_committed_here_is_nothing() {
        for unled in [false, true] {
            let mut group = member(if unled { 4 } else { 3 }, 5, &[2, 2, 2, 2, 2]);
            group.take_given(given((1, 3), &mark(4, 2))).unwrap();
            assert!(settle(&mut group).0.iter().all(|store| store.snapshot.is_none()));
            assert_eq!((group.last(), group.committed()), (6, 5));
            let another = group.take_given(given((1, 3), &mark(4, 1)));
            assert_eq!(another, Err(StepError::Contradiction));
        }
    }

    #[test]
    fn what_no_working_member_gives_is_refused() {
        let mut group = member(4, 1, &[]);
        let heartbeat = Message { raft: of_kind(MessageType::MsgHeartbeat, (1, 4)).into() };
        let without_members = Mark { members: Members::default(), ..mark(9, 3) };
        for message in [
            heartbeat,
            given((1, 4), &mark(9, 5)),
            given((3, 4), &mark(9, 3)),
            given((1, 4), &mark(0, 0)),
            given((1, 3), &mark(9, 0)),
            given((1, 3), &without_members),
        ] {
            assert_eq!(group.take_given(message.clone()), Err(StepError::Malformed), "{message}");
        }
        // One in which it is no member it takes from nobody.
        let others = Mark { members: Members::of_voters(&[1, 2]), ..mark(9, 3) };
        [(1, 4), (1, 3)].into_iter().for_each(|of| group.take_given(given(of, &others)).unwrap());
        assert!(settle(&mut group).0.iter().all(|store| store.snapshot.is_none()));
        assert_eq!(group.committed(), 1);
    }

    #[test]
    fn a_giver_gives_in_its_leaders_name_what_is_new_enough_for_who_is_a_member_in_it() {
        let mut group = member(4, 1, &[]);
        group.offer_snapshot(mark(1, 1));
        assert_eq!(group.give_snapshot(2, 1), None, "nobody is known to lead");
        is_led(&mut group, (1, 5));
        let (position, message) = group.give_snapshot(2, 1).unwrap();
        assert_eq!((position, message.from(), message.to(), message.term()), (1, 1, 2, 5));
        assert_eq!(message.snapshot(), Some(mark(1, 1)));
        assert_eq!((group.give_snapshot(2, 2), group.give_snapshot(4, 1)), (None, None));
    }
}
