//! Who belongs to a group.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};

/// The members of a group. While it changes from one set of voters to another, both count
/// (joint consensus, section 4.3 of the Raft dissertation).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Those who elect and whose copies make an entry committed.
    pub voters: Vec<u64>,
    /// Those who only receive.
    pub learners: Vec<u64>,
    /// While a change is under way, the voters before it: a majority of them is needed as well.
    pub outgoing: Vec<u64>,
    /// Those of `outgoing` who will be learners when the change is complete.
    pub learners_next: Vec<u64>,
    /// Whether the leader completes the change by itself.
    pub auto_leave: bool,
    /// Whoever was a member and ceased to be one, with the position of the entry that took it out last. So a member that
    /// has missed that entry, and is given a snapshot instead, learns what it would have learned from it. Whoever has
    /// joined again since stays in it.
    pub removed: BTreeMap<u64, u64>,
}

impl Members {
    /// These voters and nobody else.
    #[must_use]
    pub fn of_voters(voters: &[u64]) -> Self {
        Self { voters: voters.into(), ..Self::default() }
    }

    /// Whether this server belongs to the group in any way.
    #[must_use]
    pub fn contains(&self, id: u64) -> bool {
        [&self.voters, &self.learners, &self.outgoing, &self.learners_next]
            .iter()
            .any(|ids| ids.contains(&id))
    }

    /// Whether these can be the members of a group. The engine ends the process over others.
    pub(crate) fn is_sound(&self) -> bool {
        let Self { voters, learners, outgoing, learners_next, auto_leave, removed } = self;
        let all = [voters, learners, outgoing, learners_next];
        let is_set = |ids: &[u64]| ids.iter().enumerate().all(|(at, id)| *id != 0 && !ids[..at].contains(id));
        !voters.is_empty()
            && all.iter().all(|ids| is_set(ids))
            && !learners.iter().any(|id| voters.contains(id) || outgoing.contains(id))
            && learners_next.iter().all(|id| outgoing.contains(id) && !voters.contains(id))
            && (!outgoing.is_empty() || !auto_leave)
            && !removed.contains_key(&0)
    }

    /// The members after a change: those of the engine, and who has been taken out.
    pub(crate) fn changed(&self, position: u64, state: &ConfState) -> Self {
        let mut after = Self { removed: self.removed.clone(), ..Self::from_raft(state) };
        let before = [&self.voters, &self.learners, &self.outgoing, &self.learners_next];
        for id in before.into_iter().flatten().filter(|id| !after.contains(**id)).copied().collect::<Vec<_>>()
        {
            after.removed.insert(id, position);
        }
        after
    }

    /// Whether anybody can vote after these changes.
    pub(crate) fn leaves_voters(&self, changes: &[Change]) -> bool {
        let mut voters = self.voters.clone();
        for change in changes {
            match *change {
                Change::AddVoter(id) => voters.push(id),
                Change::AddLearner(id) | Change::Remove(id) => voters.retain(|voter| *voter != id),
            }
        }
        !voters.is_empty()
    }

    pub(crate) fn to_raft(&self) -> ConfState {
        let mut state = ConfState::default();
        state.voters.clone_from(&self.voters);
        state.learners.clone_from(&self.learners);
        state.voters_outgoing.clone_from(&self.outgoing);
        state.learners_next.clone_from(&self.learners_next);
        state.auto_leave = self.auto_leave;
        state
    }

    /// In a fixed order: the engine's own is that of its hash maps. The engine does not know who was taken out.
    pub(crate) fn from_raft(state: &ConfState) -> Self {
        let sorted = |ids: &[u64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        Self {
            voters: sorted(&state.voters),
            learners: sorted(&state.learners),
            outgoing: sorted(&state.voters_outgoing),
            learners_next: sorted(&state.learners_next),
            auto_leave: state.auto_leave,
            removed: BTreeMap::new(),
        }
    }
}

/// One step of a change of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Makes a server a voter, from a learner or from nothing.
    AddVoter(u64),
    /// Makes a server a learner, from a voter or from nothing.
    AddLearner(u64),
    /// Takes a server out.
    Remove(u64),
}

impl Change {
    /// Whom it is about.
    pub(crate) fn id(self) -> u64 {
        self.parts().1
    }

    fn parts(self) -> (ConfChangeType, u64) {
        match self {
            Self::AddVoter(id) => (ConfChangeType::AddNode, id),
            Self::AddLearner(id) => (ConfChangeType::AddLearnerNode, id),
            Self::Remove(id) => (ConfChangeType::RemoveNode, id),
        }
    }
}

/// The change that the engine is to carry out. Empty completes the one under way. More than one
/// step goes by joint consensus, which the leader completes by itself.
pub(crate) fn to_raft(changes: &[Change]) -> ConfChangeV2 {
    let mut all = ConfChangeV2::default();
    for change in changes {
        let (kind, id) = change.parts();
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = id;
        all.mut_changes().push(single);
    }
    all.set_transition(ConfChangeTransition::Auto);
    all
}

const ADD_VOTER: u8 = 1;
const ADD_LEARNER: u8 = 2;
const REMOVE: u8 = 3;
const STEP_BYTES: usize = 9;

/// A change as an entry's payload: nine bytes a step. The engine keeps it as protobuf in memory;
/// that form neither leaves this process nor comes into it.
pub(crate) fn payload_from_raft(protobuf: &[u8]) -> Vec<u8> {
    let change = parse(protobuf);
    let mut payload = Vec::with_capacity(change.changes.len() * STEP_BYTES);
    for single in change.get_changes() {
        payload.push(match single.get_change_type() {
            ConfChangeType::AddNode => ADD_VOTER,
            ConfChangeType::AddLearnerNode => ADD_LEARNER,
            ConfChangeType::RemoveNode => REMOVE,
        });
        payload.extend_from_slice(&single.node_id.to_le_bytes());
    }
    payload
}

/// The engine's form of a payload; `None` when it is not one.
pub(crate) fn payload_to_raft(payload: &[u8]) -> Option<Vec<u8>> {
    let (steps, rest) = payload.as_chunks::<STEP_BYTES>();
    if !rest.is_empty() {
        return None;
    }
    let mut changes = Vec::with_capacity(steps.len());
    for [kind, id @ ..] in steps {
        let id = u64::from_le_bytes(*id);
        changes.push(match *kind {
            _ if id == 0 => return None,
            ADD_VOTER => Change::AddVoter(id),
            ADD_LEARNER => Change::AddLearner(id),
            REMOVE => Change::Remove(id),
            _ => return None,
        });
    }
    // The completion of a joint change is an entry without data.
    if changes.is_empty() {
        return Some(Vec::new());
    }
    Some(to_raft(&changes).write_to_bytes().expect("every field is set"))
}

/// What this process has encoded before.
pub(crate) fn parse(protobuf: &[u8]) -> ConfChangeV2 {
    let mut change = ConfChangeV2::default();
    change.merge_from_bytes(protobuf).expect("it was encoded by this process");
    change
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_survives_its_two_forms() {
        let changes = [Change::AddVoter(4), Change::AddLearner(5), Change::Remove(1)];
        let protobuf = to_raft(&changes).write_to_bytes().unwrap();
        let payload = payload_from_raft(&protobuf);
        assert_eq!(payload.len(), 27);
        assert_eq!(payload_to_raft(&payload).unwrap(), protobuf);
        assert_eq!(payload_to_raft(&payload_from_raft(&[])), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_change_is_refused() {
        for payload in
            [&[1][..], &[1; 8], &[0; 9], &[4, 1, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert_eq!(payload_to_raft(payload), None, "{payload:?}");
        }
    }

    #[test]
    fn members_survive_the_engines_form() {
        let members = Members {
            voters: vec![1, 2, 3],
            learners: vec![4],
            outgoing: vec![1, 5],
            learners_next: vec![5],
            auto_leave: true,
            ..Members::default()
        };
        assert_eq!(Members::from_raft(&members.to_raft()), members);
        assert!(members.contains(5) && !members.contains(6));
    }

    #[test]
    fn whoever_was_taken_out_stays_known_also_when_it_is_back() {
        let (all, two) = (Members::of_voters(&[1, 2, 3]), Members::of_voters(&[1, 3]));
        let without = all.changed(7, &two.to_raft());
        assert_eq!((&without.voters[..], &without.removed), (&[1, 3][..], &[(2, 7)].into()));
        let back = without.changed(9, &all.to_raft());
        assert_eq!((&back.voters[..], &back.removed), (&[1, 2, 3][..], &[(2, 7)].into()));
        // With less to say it is a member still.
        let listens = Members { learners: vec![2], ..Members::of_voters(&[1, 3]) };
        assert_eq!(back.changed(10, &listens.to_raft()).removed, [(2, 7)].into());
        assert_eq!(back.changed(11, &two.to_raft()).removed, [(2, 11)].into());
    }
}
