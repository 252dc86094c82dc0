//! Snapshots that this server gives other members in the place of their leader.

use crate::give_message::{GiveOrder, GiveReport, GiverState, Obstacle};
use alloc::collections::BTreeMap;

/// One that this server gives, or has been ordered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Giving {
    /// Who has ordered it.
    pub(crate) leader: u8,
    pub(crate) order: GiveOrder,
    pub(crate) state: GiverState,
    began_us: u64,
}

impl Giving {
    pub(crate) fn report(&self) -> GiveReport {
        let GiveOrder { term, number, to, .. } = self.order;
        GiveReport { term, number, to, state: self.state }
    }

    fn is_under_way(&self) -> bool {
        matches!(self.state, GiverState::Takes | GiverState::Sends { .. })
    }
}

/// What is to be done about an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// It is known: this is how far it is.
    Known(GiveReport),
    /// It is new.
    New,
}

/// All of them, by receiver.
#[derive(Debug, Default)]
pub(crate) struct Givings {
    by_receiver: BTreeMap<u8, Giving>,
    /// A snapshot is to be taken for one of them.
    pub(crate) wants_snapshot: bool,
    /// So many have come to their receivers.
    pub(crate) given: u64,
}

impl Givings {
    /// A leader says this. One that is on its way for an earlier order, of whatever leader, will do for this one if it stands
    /// where this one wants it.
    pub(crate) fn order(&mut self, leader: u8, order: GiveOrder) -> Ordered {
        let Some(known) = self.by_receiver.get_mut(&order.to) else { return Ordered::New };
        let is_same =
            (known.leader, known.order.term, known.order.number) == (leader, order.term, order.number);
        let will_do = match known.state {
            GiverState::Takes => true,
            GiverState::Sends { position } => is_same || position >= order.from,
            GiverState::Sent { .. } | GiverState::Cannot(_) => is_same,
        };
        if !will_do {
            // A connection carries one: what it is on its way with is of no use.
            return match known.state {
                GiverState::Sends { .. } => Ordered::Known(GiveReport {
                    state: GiverState::Cannot(Obstacle::Busy),
                    ..Giving { leader, order, ..*known }.report()
                }),
                _ => Ordered::New,
            };
        }
        let from = order.from.max(if known.state == GiverState::Takes { known.order.from } else { 0 });
        (known.leader, known.order) = (leader, GiveOrder { from, ..order });
        Ordered::Known(known.report())
    }

    /// Whether one is given to somebody else already.
    pub(crate) fn is_busy(&self, to: u8) -> bool {
        self.by_receiver.iter().any(|(other, giving)| *other != to && giving.is_under_way())
    }

    /// An order that is new is carried out like this.
    pub(crate) fn begin(
        &mut self,
        leader: u8,
        order: GiveOrder,
        state: GiverState,
        now_us: u64,
    ) -> GiveReport {
        let giving = Giving { leader, order, state, began_us: now_us };
        self.by_receiver.insert(order.to, giving);
        giving.report()
    }

    /// Where a snapshot stands that is on its way to a server.
    pub(crate) fn sends(&self, to: u8) -> Option<u64> {
        match self.by_receiver.get(&to)?.state {
            GiverState::Sends { position } => Some(position),
            _ => None,
        }
    }

    /// Those for which a snapshot is taken first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Giving> {
        self.by_receiver.values().filter(|giving| giving.state == GiverState::Takes).copied()
    }

    /// This server leads: what it has not begun to send for another one nobody waits for.
    pub(crate) fn forget_waiting(&mut self) {
        self.by_receiver.retain(|_, giving| giving.state != GiverState::Takes);
    }

    /// What was sent to a server has come, with so many bytes, or has not. `None` where nothing was.
    pub(crate) fn sent(&mut self, to: u8, bytes: Option<u64>) -> Option<Giving> {
        let position = self.sends(to)?;
        let giving = self.by_receiver.get_mut(&to)?;
        self.given += u64::from(bytes.is_some());
        giving.state = match bytes {
            Some(bytes) => GiverState::Sent { position, bytes },
            None => GiverState::Cannot(Obstacle::Broken),
        };
        Some(*giving)
    }

    /// Those under way: to whom, how far, and since when.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (u8, GiverState, u64)> {
        let all = self.by_receiver.iter().filter(|(_, giving)| giving.is_under_way());
        all.map(|(to, giving)| (*to, giving.state, giving.began_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(term: u64, number: u64, to: u8, from: u64) -> GiveOrder {
        GiveOrder { term, number, to, from }
    }

    fn state(ordered: Ordered) -> GiverState {
        match ordered {
            Ordered::Known(report) => report.state,
            Ordered::New => panic!("it is new"),
        }
    }

    #[test]
    fn what_is_on_its_way_will_do_for_a_later_order_if_it_is_new_enough() {
        let mut givings = Givings::default();
        assert_eq!(givings.order(1, order(3, 1, 9, 50)), Ordered::New);
        let sends = GiverState::Sends { position: 60 };
        givings.begin(1, order(3, 1, 9, 50), sends, 0);
        assert_eq!(state(givings.order(1, order(3, 1, 9, 70))), sends, "the same order");
        assert_eq!(state(givings.order(2, order(4, 1, 9, 60))), sends, "one of the next leader");
        let busy = GiverState::Cannot(Obstacle::Busy);
        assert_eq!(state(givings.order(2, order(4, 2, 9, 61))), busy);
        assert!(givings.is_busy(8) && !givings.is_busy(9));
        let sent = givings.sent(9, Some(5)).unwrap();
        assert_eq!((sent.leader, sent.report().term, sent.report().number), (2, 4, 1));
        assert_eq!((sent.report().state, givings.given), (GiverState::Sent { position: 60, bytes: 5 }, 1));
        assert_eq!(givings.sent(9, Some(5)), None);
        assert!(!givings.is_busy(8));
        // How it went is said again, of that one alone.
        assert_eq!(state(givings.order(2, order(4, 1, 9, 60))), sent.state);
        assert_eq!(givings.order(2, order(4, 2, 9, 60)), Ordered::New);
    }

    #[test]
    fn a_snapshot_that_is_to_be_taken_is_as_new_as_each_order_wants_it() {
        let mut givings = Givings::default();
        givings.begin(1, order(3, 1, 9, 50), GiverState::Takes, 0);
        assert_eq!(state(givings.order(1, order(3, 2, 9, 70))), GiverState::Takes);
        assert_eq!(state(givings.order(2, order(4, 1, 9, 60))), GiverState::Takes);
        let waiting: Vec<_> = givings.waiting().map(|giving| (giving.leader, giving.order)).collect();
        assert_eq!(waiting, [(2, order(4, 1, 9, 70))]);
        assert_eq!((givings.sends(9), givings.sent(9, None)), (None, None));
        givings.forget_waiting();
        assert_eq!(givings.order(2, order(4, 1, 9, 60)), Ordered::New);
    }

    #[test]
    fn what_did_not_come_is_no_longer_on_its_way() {
        let mut givings = Givings::default();
        givings.begin(1, order(3, 1, 9, 50), GiverState::Sends { position: 60 }, 7);
        assert_eq!(givings.under_way().collect::<Vec<_>>(), [(9, GiverState::Sends { position: 60 }, 7)]);
        assert_eq!(givings.sent(9, None).unwrap().state, GiverState::Cannot(Obstacle::Broken));
        assert_eq!((givings.given, givings.under_way().count()), (0, 0));
        assert_eq!(givings.order(1, order(3, 2, 9, 50)), Ordered::New);
    }
}
