//! What a server has counted of one thing.

use super::Histogram;

/// Sizes of things, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The last.
    pub last: u64,
    /// The largest.
    pub max: u64,
    /// The smallest.
    pub min: u64,
}

impl Sizes {
    /// Those of two threads. Which of two things was the last is not known: that of the first is told.
    pub(super) fn of_both(own: Option<Sizes>, other: Option<Sizes>) -> Option<Sizes> {
        match (own, other) {
            (Some(own), Some(other)) => {
                Some(Sizes { last: own.last, max: own.max.max(other.max), min: own.min.min(other.min) })
            }
            (own, other) => own.or(other),
        }
    }
}

/// What it is to lead others, and to follow.
#[derive(Clone, Debug, Default)]
pub struct Following {
    /// Updates that it has proposed to others.
    pub proposals: u64,
    /// How many bytes they take, if there was one.
    pub proposal_bytes: Option<Sizes>,
    /// Updates that it has applied as the leader of others.
    pub led_updates: u64,
    /// Updates that it has applied while another one led.
    pub followed_updates: u64,
    /// From the preparing of an update until it was applied here.
    pub propagation: Histogram,
    /// At the leader of others: from the proposal of an entry until it was applied.
    pub agreement: Histogram,
    /// At the leader: questions where the timeline ends that are not answered.
    pub pending_syncs: u64,
}

impl Following {
    pub(super) fn add(&mut self, other: &Following) {
        self.proposals += other.proposals;
        self.proposal_bytes = Sizes::of_both(self.proposal_bytes, other.proposal_bytes);
        self.led_updates += other.led_updates;
        self.followed_updates += other.followed_updates;
        self.propagation.add(&other.propagation);
        self.agreement.add(&other.agreement);
        self.pending_syncs += other.pending_syncs;
    }
}

/// How many watchers were told of each change of which there was somebody to be told.
#[derive(Clone, Debug, Default)]
pub struct Watchers {
    /// Of znodes that came to be.
    pub created: Histogram,
    /// Of znodes that are gone.
    pub deleted: Histogram,
    /// Of data that is another.
    pub changed: Histogram,
    /// Of lists of children that are others.
    pub children: Histogram,
}

impl Watchers {
    pub(super) fn add(&mut self, other: &Watchers) {
        self.created.add(&other.created);
        self.deleted.add(&other.deleted);
        self.changed.add(&other.changed);
        self.children.add(&other.children);
    }
}

/// What the quotas below one znode right below the root come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its name.
    pub namespace: String,
    /// How many znodes there may be, -1 for no limit.
    pub count_limit: i64,
    /// How many bytes there may be, -1 for no limit.
    pub bytes_limit: i64,
    /// Znodes that are there.
    pub count: i64,
    /// Bytes that are there.
    pub bytes: i64,
    /// Changes that were refused here.
    pub refused: u64,
}

impl Quota {
    /// Adds what another thread has. Both are in the order of the names.
    pub(super) fn add_all(all: &mut Vec<Quota>, others: &[Quota]) {
        for other in others {
            match all.binary_search_by(|own| own.namespace.cmp(&other.namespace)) {
                Ok(at) => {
                    let own = &mut all[at];
                    own.count_limit = own.count_limit.saturating_add(other.count_limit);
                    own.bytes_limit = own.bytes_limit.saturating_add(other.bytes_limit);
                    own.count = own.count.saturating_add(other.count);
                    own.bytes = own.bytes.saturating_add(other.bytes);
                    own.refused += other.refused;
                }
                Err(at) => all.insert(at, other.clone()),
            }
        }
    }
}

/// When the server as a whole, with all of its partitions, has served and when it has not. One that stands alone
/// has nothing of it.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// How often it has begun to look for a leader.
    pub looking: u64,
    /// How long it took until one was found.
    pub election: Histogram,
    /// How long not everything was served.
    pub unavailable: Histogram,
    /// The same where the server leads from then on.
    pub leader_unavailable: Histogram,
    /// From the time that a leader was found until the server follows it.
    pub follower_sync: Histogram,
    /// The same of an observer.
    pub observer_sync: Histogram,
    /// For how many milliseconds it has led, if it does.
    pub led_ms: Option<u64>,
}
