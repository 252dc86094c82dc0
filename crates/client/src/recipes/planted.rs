//! Bugs on purpose, for the simulator's tests: an alarm that never rings proves nothing.
//!
//! Without the feature `planted-bugs` there are none, and every question after one is answered "no" at
//! compile time.

use super::Service;

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub, reason = "nobody can plant one"))]
pub enum Bug {
    /// Who does not hear what became of its create creates another znode.
    CreateIsNotProtected,
    /// Who gives up waiting leaves its znode behind.
    ContenderIsLeft,
    /// Who waits watches the one before it, and takes the event for the end of its waiting.
    EventIsTrusted,
    /// A znode that is gone by the time it is to be watched is waited for even so.
    WatchIsLate,
    /// Who deletes the empty directory of a lock does not see to it that it is one.
    LeafIsCleared,
    /// Who gives a lock back deletes the leaf at its path, whosever it is by then.
    LeafIsAnyones,
    /// Who gives up waiting for a lock tells those behind it what only holders do.
    WaiterHandsOver,
    /// A taker of an element deletes it with a request of its own, and forgets it when the answer is lost.
    TakenWithoutWitness,
    /// A put whose answer is lost is repeated.
    PutWithoutWitness,
    /// A taker that gives up does not put back what it has taken.
    TakenIsNotPutBack,
    /// An increment whose answer is lost is repeated.
    AddedTwice,
    /// A program whose answer is lost is asked again.
    ProgramIsAskedTwice,
    /// Who comes to a barrier does not see to it that what it is shown is not from before.
    BarrierIsNotSynced,
    /// Entries are made without a look whether the round is still open.
    EntersFullBarrier,
    /// The program of a barrier opens it as soon as one of the round has left.
    OpensTooEarly,
    /// The program of an election appoints all candidates.
    AllAreAppointed,
    /// Who asks a program for its place again does not look whether that is the first by now.
    PlaceIsNotLookedAt,
    /// Readers do not wait for writers before them.
    ReadersPassWriters,
    /// A cache does not look again after a reconnect.
    CacheTrustsWatch,
}

#[cfg(feature = "planted-bugs")]
pub(super) fn has(service: &impl Service, bug: Bug) -> bool {
    service.has(bug)
}

#[cfg(not(feature = "planted-bugs"))]
pub(super) fn has(_: &impl Service, _: Bug) -> bool {
    false
}
