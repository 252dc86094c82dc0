//! Snapshots that a leader has others send: whom it asks, how far they are, and when it gives that up.
//!
//! Who is given a snapshot by a **giver** is safe whoever that is (`stoa-group` says why), so all that is decided here is
//! who has the work. The leader asks one that is near the receiver in the trees of the forest, has been asked seldom, keeps
//! up, is not aside, has nobody else to give one to, and can be spared: a majority of the voters keeps up without it. It
//! sends the snapshot itself only when there is nobody of the kind, or some have failed.

use crate::forest::ForestConfig;
use crate::give_message::{GiveOrder, GiverState, Obstacle};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What the other servers take off a leader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relief {
    /// Whether appends go down trees where there are many servers, and how.
    pub forest: Option<ForestConfig>,
    /// Who sends snapshots to members that lag.
    pub givers: Givers,
}

/// Who sends snapshots to members that lag, besides the leader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Givers {
    /// Nobody does, and this server takes none from others.
    None,
    /// Whoever can be spared: writes do not wait for it. With three servers that is nobody.
    #[default]
    Spare,
    /// Anybody.
    Any,
}

/// What is waited for, in heartbeats. An order is repeated so often,
const ORDER_HEARTBEATS: u64 = 2;
/// a giver is given up that was silent for so long,
const SILENT_HEARTBEATS: u64 = 50;
/// or has not begun to send by then,
const TAKES_HEARTBEATS: u64 = 300;
/// and the receiver has so long, and four times as long as sending took, to take over what has come.
const TAKES_OVER_HEARTBEATS: u64 = 50;
/// So long nobody is waited for who is busy; then the leader sends.
const BUSY_HEARTBEATS: u64 = 300;
/// One that said that it is busy is not asked for so long.
const ASK_AGAIN_HEARTBEATS: u64 = 10;
/// A leader that has to send itself does so for so long, to the same receiver.
const ITSELF_HEARTBEATS: u64 = 600;
/// So many are asked for one receiver before the leader sends.
const TRIES_MAX: usize = 3;

/// A snapshot that is to be given by another server than the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delegation {
    /// Who gives it; nobody while all are busy who could.
    pub(crate) by: Option<u8>,
    number: u64,
    /// How far that one has said to be.
    pub(crate) state: Option<GiverState>,
    pub(crate) began_us: u64,
    asked_us: u64,
    heard_us: u64,
    order_at_us: u64,
    /// Where it is sent: until when the receiver is waited for.
    until_us: Option<u64>,
    /// Those who have failed.
    tried: BTreeSet<u8>,
}

/// Who could give one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) id: u8,
    /// It is a neighbour of the receiver in a tree.
    pub(crate) is_near: bool,
    /// It is at the top of a tree.
    pub(crate) is_root: bool,
}

/// Why the leader sends a snapshot itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Itself {
    /// That is how it is set here.
    Off,
    /// The receiver takes none from others.
    OlderRelease,
    /// There is nobody who could, or can be spared.
    Nobody,
    /// Those who could have failed, or were busy for too long.
    Failed,
}

impl core::fmt::Display for Itself {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Off => "snapshots by neighbours are switched off here",
            Self::OlderRelease => {
                "its release takes snapshots from the leader alone, or they are switched off there"
            }
            Self::Nobody => "no other server is connected, keeps up, understands that and can be spared",
            Self::Failed => "those that could give it one have failed, or were busy for too long",
        })
    }
}

/// What follows when time goes on, or a giver reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A giver is ordered, perhaps again.
    Order(u8, GiveOrder),
    /// Somebody else has to be found for this receiver, as this one gives nothing.
    Next(u8, Option<(u8, Obstacle)>),
    /// The snapshot for this receiver was sent, and it does not say that it has it.
    NotTakenOver(u8),
}

/// Snapshots that others are to give, while this server leads.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    under_way: BTreeMap<u8, Delegation>,
    /// To whom the leader sends itself, until then.
    itself: BTreeMap<u8, u64>,
    /// Who is busy, as far as is known, until then.
    busy: BTreeMap<u8, u64>,
    /// How often each was asked.
    asked: BTreeMap<u8, u64>,
    number: u64,
}

impl Delegations {
    /// This server leads no more, or has begun to.
    pub(crate) fn forget(&mut self) {
        self.under_way.clear();
        self.itself.clear();
        self.busy.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Those under way, by receiver.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &Delegation)> {
        self.under_way.iter().map(|(to, delegation)| (*to, delegation))
    }

    pub(crate) fn get(&self, to: u8) -> Option<&Delegation> {
        self.under_way.get(&to)
    }

    /// Whether one has failed before, and the leader is to send for a while.
    pub(crate) fn is_for_itself(&self, to: u8, now_us: u64) -> bool {
        self.itself.get(&to).is_some_and(|until_us| now_us < *until_us)
    }

    /// One is at its end: it has come, or nobody wants it any more.
    pub(crate) fn end(&mut self, to: u8) -> Option<Delegation> {
        self.under_way.remove(&to)
    }

    /// The same for all of which this holds.
    pub(crate) fn end_where(&mut self, is_over: impl Fn(u8) -> bool) -> Vec<(u8, Delegation)> {
        self.under_way.extract_if(.., |to, _| is_over(*to)).collect()
    }

    /// It has failed: the leader sends the next one itself.
    pub(crate) fn fail(&mut self, to: u8, now_us: u64, heartbeat_us: u64) {
        self.under_way.remove(&to);
        self.itself.insert(to, now_us + ITSELF_HEARTBEATS * heartbeat_us);
    }

    /// Which of these gives it; `None` where none of them is free.
    pub(crate) fn choose(&self, to: u8, candidates: &[Candidate], now_us: u64) -> Option<u8> {
        let tried = self.under_way.get(&to).map(|delegation| &delegation.tried);
        let is_free = |it: &&Candidate| {
            let mut others = self.under_way.iter().filter(|(other, _)| **other != to);
            let gives = others.any(|(_, delegation)| delegation.by == Some(it.id));
            let is_busy = self.busy.get(&it.id).is_some_and(|until_us| now_us < *until_us);
            !gives && !is_busy && !tried.is_some_and(|tried| tried.contains(&it.id))
        };
        // Nobody is asked twice before all that are as near were asked; each receiver begins with another one.
        let rank = |it: &&Candidate| {
            let asked = self.asked.get(&it.id).copied().unwrap_or(0);
            (!it.is_near, it.is_root, asked, it.id.wrapping_sub(to))
        };
        candidates.iter().filter(is_free).min_by_key(rank).map(|it| it.id)
    }

    /// Whether more of these may be asked for a receiver.
    pub(crate) fn may_try(&self, to: u8, candidates: &[Candidate]) -> bool {
        let Some(delegation) = self.under_way.get(&to) else { return !candidates.is_empty() };
        delegation.tried.len() < TRIES_MAX && candidates.iter().any(|it| !delegation.tried.contains(&it.id))
    }

    /// This one is to give it; nobody for now, where all are busy who could.
    pub(crate) fn begin(&mut self, to: u8, by: Option<u8>, now_us: u64) {
        self.number += 1;
        let of_before = self.under_way.remove(&to);
        let began_us = of_before.as_ref().map_or(now_us, |it| it.began_us);
        let delegation = Delegation {
            by,
            number: self.number,
            state: None,
            began_us,
            asked_us: now_us,
            heard_us: now_us,
            order_at_us: now_us,
            until_us: None,
            tried: of_before.map(|it| it.tried).unwrap_or_default(),
        };
        if let Some(by) = by {
            *self.asked.entry(by).or_default() += 1;
        }
        self.under_way.insert(to, delegation);
    }

    /// A giver says how far it is with an order of this term. Returns what is new of it, where it is.
    pub(crate) fn report(
        &mut self,
        by: u8,
        (to, number): (u8, u64),
        state: GiverState,
        now: Now,
    ) -> Option<Turn> {
        let delegation = self.under_way.get_mut(&to)?;
        if delegation.by != Some(by) || delegation.number != number || delegation.until_us.is_some() {
            return None;
        }
        delegation.heard_us = now.us;
        delegation.state = Some(state);
        match state {
            GiverState::Takes | GiverState::Sends { .. } => None,
            GiverState::Sent { .. } => {
                let took_us = now.us.saturating_sub(delegation.asked_us);
                delegation.until_us = Some(now.us + TAKES_OVER_HEARTBEATS * now.heartbeat_us + 4 * took_us);
                None
            }
            GiverState::Cannot(obstacle) => self.gives_nothing(to, obstacle, now),
        }
    }

    /// A giver gives nothing.
    fn gives_nothing(&mut self, to: u8, obstacle: Obstacle, now: Now) -> Option<Turn> {
        let delegation = self.under_way.get_mut(&to)?;
        let by = delegation.by.take()?;
        if obstacle == Obstacle::Busy {
            self.busy.insert(by, now.us + ASK_AGAIN_HEARTBEATS * now.heartbeat_us);
        } else {
            delegation.tried.insert(by);
        }
        Some(Turn::Next(to, Some((by, obstacle))))
    }

    /// The connection to a server has ended. What it was to give somebody else has to give.
    pub(crate) fn lost(&mut self, server: u8, now: Now) -> Vec<Turn> {
        let of =
            |(to, it): (&u8, &Delegation)| (it.by == Some(server) && it.until_us.is_none()).then_some(*to);
        let given: Vec<u8> = self.under_way.iter().filter_map(of).collect();
        given.into_iter().filter_map(|to| self.gives_nothing(to, Obstacle::Silent, now)).collect()
    }

    /// Time goes on by a heartbeat. What is to be done for each, in turn.
    pub(crate) fn tick(&mut self, term: u64, from: impl Fn(u8) -> u64, now: Now) -> Vec<Turn> {
        let mut turns = Vec::new();
        let all: Vec<u8> = self.under_way.keys().copied().collect();
        for to in all {
            let Some(it) = self.under_way.get_mut(&to) else { continue };
            let is_over = |since_us: u64, heartbeats: u64| now.us >= since_us + heartbeats * now.heartbeat_us;
            if let Some(until_us) = it.until_us {
                turns.extend((now.us >= until_us).then_some(Turn::NotTakenOver(to)));
                continue;
            }
            let Some(by) = it.by else {
                turns.push(Turn::Next(to, None));
                continue;
            };
            let begins = !matches!(it.state, Some(GiverState::Sends { .. }));
            if is_over(it.heard_us, SILENT_HEARTBEATS) || (begins && is_over(it.asked_us, TAKES_HEARTBEATS)) {
                turns.extend(self.gives_nothing(to, Obstacle::Silent, now));
            } else if now.us >= it.order_at_us {
                it.order_at_us = now.us + ORDER_HEARTBEATS * now.heartbeat_us;
                let order = GiveOrder { term, number: it.number, to, from: from(to) };
                turns.push(Turn::Order(by, order));
            }
        }
        turns
    }

    /// Whether all that could have been busy for so long that the leader had better send.
    pub(crate) fn has_waited(&self, to: u8, now: Now) -> bool {
        let waits = self.under_way.get(&to);
        waits.is_some_and(|it| now.us >= it.began_us + BUSY_HEARTBEATS * now.heartbeat_us)
    }
}

/// The time, and how long a heartbeat is, microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) us: u64,
    pub(crate) heartbeat_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT_US: u64 = 100;

    fn at(us: u64) -> Now {
        Now { us, heartbeat_us: HEARTBEAT_US }
    }

    fn far(ids: &[u8]) -> Vec<Candidate> {
        ids.iter().map(|id| Candidate { id: *id, is_near: false, is_root: false }).collect()
    }

    /// What one orders whom at this time.
    fn orders(delegations: &mut Delegations, us: u64) -> Vec<(u8, GiveOrder)> {
        let turns = delegations.tick(7, |to| u64::from(to) * 10, at(us));
        let order = |turn| match turn {
            Turn::Order(by, order) => (by, order),
            other => panic!("{other:?}"),
        };
        turns.into_iter().map(order).collect()
    }

    #[test]
    fn one_that_is_near_is_asked_no_root_none_twice_before_the_others_and_none_that_gives() {
        let mut delegations = Delegations::default();
        let mut candidates = far(&[2, 3, 4, 5]);
        (candidates[1].is_near, candidates[2].is_near, candidates[2].is_root) = (true, true, true);
        let mut asked = Vec::new();
        for to in [9, 9, 9, 10, 11, 12, 13] {
            let by = delegations.choose(to, &candidates, 0);
            asked.extend(by);
            delegations.begin(to, by, 0);
        }
        // The ninth's is given anew by the same one as long as that one is the best; then all are busy.
        assert_eq!(asked, [3, 3, 3, 4, 2, 5]);
        delegations.forget();
        let candidates = far(&[2, 3, 4, 5]);
        assert_eq!(delegations.choose(1, &candidates, 0), Some(2), "three was asked more often");
        assert_eq!(delegations.choose(4, &far(&[2, 5]), 0), Some(5), "others begin with another one");
    }

    #[test]
    fn an_order_is_repeated_and_who_says_nothing_is_given_up() {
        let mut delegations = Delegations::default();
        delegations.begin(9, Some(2), 0);
        let order = GiveOrder { term: 7, number: 1, to: 9, from: 90 };
        assert_eq!(orders(&mut delegations, 0), [(2, order)]);
        assert_eq!(orders(&mut delegations, HEARTBEAT_US), []);
        assert_eq!(orders(&mut delegations, 2 * HEARTBEAT_US), [(2, order)]);
        let heard = 40 * HEARTBEAT_US;
        assert_eq!(delegations.report(3, (9, 1), GiverState::Takes, at(heard)), None, "it was not asked");
        assert_eq!(delegations.report(2, (9, 2), GiverState::Takes, at(heard)), None, "of another order");
        assert_eq!(delegations.get(9).unwrap().state, None);
        assert_eq!(delegations.report(2, (9, 1), GiverState::Takes, at(heard)), None);
        assert_eq!(orders(&mut delegations, 89 * HEARTBEAT_US), [(2, order)]);
        let silent = delegations.tick(7, |_| 0, at(90 * HEARTBEAT_US));
        assert_eq!(silent, [Turn::Next(9, Some((2, Obstacle::Silent)))]);
        assert_eq!(delegations.choose(9, &far(&[2, 3]), 0), Some(3), "and is not asked again");
        assert_eq!(delegations.report(2, (9, 1), GiverState::Takes, at(heard)), None);
    }

    #[test]
    fn who_does_not_begin_to_send_is_given_up_and_who_sends_is_not() {
        let mut delegations = Delegations::default();
        delegations.begin(9, Some(2), 0);
        delegations.begin(8, Some(3), 0);
        let mut turns = Vec::new();
        for heartbeat in 0..=TAKES_HEARTBEATS {
            let now = at(heartbeat * HEARTBEAT_US);
            assert_eq!(delegations.report(2, (9, 1), GiverState::Takes, now), None);
            assert_eq!(delegations.report(3, (8, 2), GiverState::Sends { position: 5 }, now), None);
            turns = delegations.tick(7, |_| 0, now);
        }
        turns.retain(|turn| !matches!(turn, Turn::Order(..)));
        assert_eq!(turns, [Turn::Next(9, Some((2, Obstacle::Silent)))]);
    }

    #[test]
    fn after_some_have_failed_or_nobody_is_free_for_long_the_leader_sends() {
        let mut delegations = Delegations::default();
        let candidates = far(&[2, 3, 4, 5]);
        for (tried, by) in [2, 3, 4].into_iter().enumerate() {
            assert!(delegations.may_try(1, &candidates));
            assert_eq!(delegations.choose(1, &candidates, 0), Some(by));
            delegations.begin(1, Some(by), 0);
            let number = (1, tried as u64 + 1);
            let failed = GiverState::Cannot(Obstacle::Broken);
            let next = Some(Turn::Next(1, Some((by, Obstacle::Broken))));
            assert_eq!(delegations.report(by, number, failed, at(1)), next);
        }
        assert!(!delegations.may_try(1, &candidates), "three are enough");
        delegations.fail(1, 1, HEARTBEAT_US);
        assert!(delegations.is_for_itself(1, 59_000) && !delegations.is_for_itself(1, 61_000));
        assert!(!delegations.is_for_itself(2, 59_000));
        // One that is busy is not out of the question, and is waited for.
        delegations.forget();
        delegations.begin(1, Some(2), 0);
        let busy = delegations.report(2, (1, 4), GiverState::Cannot(Obstacle::Busy), at(0));
        assert_eq!(busy, Some(Turn::Next(1, Some((2, Obstacle::Busy)))));
        assert!(delegations.may_try(1, &far(&[2])));
        assert_eq!(delegations.choose(1, &far(&[2]), 999), None);
        assert_eq!(delegations.choose(1, &far(&[2]), 1000), Some(2));
        delegations.begin(1, None, 0);
        assert_eq!(delegations.tick(7, |_| 0, at(1)), [Turn::Next(1, None)]);
        assert!(!delegations.has_waited(1, at(29_999)) && delegations.has_waited(1, at(30_000)));
    }

    #[test]
    fn whom_it_was_sent_to_has_time_to_take_it_over_in_proportion_to_the_time_that_it_took() {
        let mut delegations = Delegations::default();
        delegations.begin(9, Some(2), 1000);
        assert_eq!(delegations.report(2, (9, 1), GiverState::Sent { position: 5, bytes: 7 }, at(3000)), None);
        // That the giver ends is of no matter by now.
        assert_eq!(delegations.lost(2, at(3000)), []);
        assert_eq!(delegations.tick(7, |_| 0, at(3000 + 5000 + 8000 - 1)), []);
        assert_eq!(delegations.tick(7, |_| 0, at(3000 + 5000 + 8000)), [Turn::NotTakenOver(9)]);
        assert_eq!(delegations.end_where(|to| to == 9).len(), 1);
        assert!(delegations.is_empty());
    }

    #[test]
    fn who_is_lost_gives_nothing() {
        let mut delegations = Delegations::default();
        delegations.begin(9, Some(2), 0);
        delegations.begin(8, Some(3), 0);
        assert_eq!(delegations.lost(2, at(5)), [Turn::Next(9, Some((2, Obstacle::Silent)))]);
        assert_eq!(delegations.lost(2, at(5)), []);
    }
}
