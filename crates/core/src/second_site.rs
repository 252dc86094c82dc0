//! What other sites have of this site's log, and the answers that wait for it. What is done with it:
//! `replica/second_site.rs`.

use alloc::collections::VecDeque;
use stoa_front::ConnectionId;
use stoa_sites::Durability;

/// Held answers whose clients are gone are looked for once there are so many more than when that was done last.
const GONE_MAX: usize = 1024;

/// How much of this site's log another site has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Everything up to this position.
    pub(crate) position: u64,
    /// What this site has prepared up to this zxid. A site that was told of it by a third one says that, and knows nothing of
    /// positions.
    pub(crate) zxid: i64,
}

/// An answer that waits until another site has what it is about.
#[derive(Debug, Clone, Copy)]
struct HeldAnswer {
    /// Where that stands, and its zxid.
    place: (u64, i64),
    connection: ConnectionId,
    since_us: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SecondSite {
    durability: Durability,
    shared: Shared,
    /// In the order of what they are about.
    held: VecDeque<HeldAnswer>,
    /// How many there were without those of clients that were gone, when these were looked for.
    known: usize,
}

impl SecondSite {
    /// Which znodes need two sites.
    pub(crate) fn durability(&self) -> &Durability {
        &self.durability
    }

    pub(crate) fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// This site begins with another state: what others have of the one before says nothing of it.
    pub(crate) fn restart(&mut self) {
        (self.shared, self.known) = (Shared::default(), 0);
        self.held.clear();
    }

    pub(crate) fn shared(&self) -> Shared {
        self.shared
    }

    /// Another site has so much. Returns whether that is more than was known.
    pub(crate) fn learns(&mut self, shared: Shared) -> bool {
        let before = self.shared;
        self.shared.position = before.position.max(shared.position);
        self.shared.zxid = before.zxid.max(shared.zxid);
        self.shared != before
    }

    /// Whether another site has what stands at a position of the log and has this zxid.
    pub(crate) fn is_shared(&self, (position, zxid): (u64, i64)) -> bool {
        position <= self.shared.position || zxid <= self.shared.zxid
    }

    /// An answer waits, about something later than all before it.
    pub(crate) fn hold(
        &mut self,
        place: (u64, i64),
        connection: ConnectionId,
        now_us: u64,
        is_there: impl Fn(ConnectionId) -> bool,
    ) {
        if self.held.len() >= 2 * self.known + GONE_MAX {
            self.held.retain(|held| is_there(held.connection));
            self.known = self.held.len();
        }
        self.held.push_back(HeldAnswer { place, connection, since_us: now_us });
    }

    /// Whose answer need not wait any more.
    pub(crate) fn next_shared(&mut self) -> Option<ConnectionId> {
        let place = self.held.front()?.place;
        let next = self.is_shared(place).then(|| self.held.pop_front())?;
        next.map(|held| held.connection)
    }

    /// Whose answer has waited since then, or for longer.
    pub(crate) fn next_late(&mut self, since_us: u64) -> Option<ConnectionId> {
        self.held.pop_front_if(|held| held.since_us <= since_us).map(|held| held.connection)
    }

    /// When the oldest answer has begun to wait.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        self.held.front().map(|held| held.since_us)
    }

    /// Whose answers wait; of clients that are gone, too.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = ConnectionId> {
        self.held.iter().map(|held| held.connection)
    }

    /// No answer that waits needs another site any more. Returns whether there is one.
    pub(crate) fn needs_nobody(&mut self) -> bool {
        let Some((position, _)) = self.held.back().map(|held| held.place) else { return false };
        // All of them stand at it, or before. Of a zxid that may be larger than any, as an answer has that rests on what other
        // partitions have of an operation.
        self.learns(Shared { position, zxid: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn held(places: &[(u64, i64)]) -> SecondSite {
        let mut second = SecondSite::default();
        for (at, place) in places.iter().enumerate() {
            second.hold(*place, ConnectionId(at as u64), 1000 * at as u64, |_| true);
        }
        second
    }

    fn let_go(second: &mut SecondSite) -> Vec<u64> {
        core::iter::from_fn(|| second.next_shared()).map(|id| id.0).collect()
    }

    #[test]
    fn what_needs_nobody_says_nothing_of_what_comes_later() {
        let mut second = held(&[(3, 30), (4, i64::MAX)]);
        assert!(second.needs_nobody());
        assert!(second.next_shared().is_some() && second.next_shared().is_some());
        assert!(!second.is_shared((5, 31)));
    }

    #[test]
    fn answers_go_in_their_order_once_what_they_are_about_is_elsewhere() {
        let mut second = held(&[(5, 50), (5, 51), (7, 70), (9, 90)]);
        assert!(let_go(&mut second).is_empty());
        assert!(second.learns(Shared { position: 6, zxid: 0 }));
        assert_eq!(let_go(&mut second), [0, 1]);
        // Known by the zxid alone.
        assert!(second.learns(Shared { position: 0, zxid: 70 }));
        assert_eq!(let_go(&mut second), [2]);
        assert!(!second.learns(Shared { position: 5, zxid: 50 }), "nothing is taken back");
        assert_eq!(second.shared(), Shared { position: 6, zxid: 70 });
        assert!(second.needs_nobody() && let_go(&mut second) == [3] && !second.needs_nobody());
    }

    #[test]
    fn who_waits_for_too_long_is_found_and_who_does_not_is_not() {
        let mut second = held(&[(5, 50), (7, 70), (9, 90)]);
        assert_eq!(second.oldest_us(), Some(0));
        assert_eq!(
            (second.next_late(1000), second.next_late(1000)),
            (Some(ConnectionId(0)), Some(ConnectionId(1)))
        );
        assert_eq!((second.next_late(1000), second.waiting().count()), (None, 1));
    }

    #[test]
    fn those_of_clients_that_are_gone_do_not_add_up() {
        let mut second = SecondSite::default();
        for number in 0..100_000 {
            second.hold((number, number as i64), ConnectionId(number), 0, |id| id.0 < 10);
        }
        assert!(second.waiting().count() <= 2 * 10 + GONE_MAX + 1, "{}", second.waiting().count());
        assert_eq!(second.waiting().filter(|id| id.0 < 10).count(), 10);
    }
}
