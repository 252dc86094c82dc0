//! Bugs on purpose, for the simulator's tests: an alarm that never rings proves nothing.
//!
//! Without the feature `planted-bugs` there are none, and every question after one is answered "no"
//! at compile time.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub, reason = "nobody can plant one"))]
pub enum Bug {
    /// A write is applied and answered when its entry is handed to the log.
    AckBeforeDurable,
    /// The reply to a write stands before the events that the write caused on the same connection.
    ReplyBeforeEvent,
    /// A read does not wait for the writes before it.
    ReadOvertakesWrite,
    /// A refusal does not wait for the updates that it rests on.
    RefusalOvertakesWrite,
    /// Now and then nobody is told of a change.
    EventIsLost,
    /// A session that expires is forgotten; its state and its ephemerals stay.
    EphemeralOutlivesSession,
    /// What a client sends does not keep its session alive.
    SessionExpiresEarly,
    /// A snapshot says that it holds one entry more than it does.
    SnapshotClaimsTooMuch,
    /// A leader applies and answers what it has proposed before it is committed.
    AppliedBeforeCommitted,
    /// A leader gives a refusal at once, not by way of the timeline.
    RefusedBesideTimeline,
    /// Requests are asked again as soon as another server leads, whatever became of them.
    AskedAgainAtOnce,
    /// A leader takes requests that it has taken before.
    TakenTwice,
    /// What is left of a session's old connection still takes effect.
    OldContactAccepted,
    /// A sync is answered without asking where the timeline ends.
    SyncIsLocal,
    /// A contact server keeps to itself whom it has heard of.
    HeardIsNotTold,
    /// What a leader had proposed before it lost the lead is still counted on when it leads again.
    ProposedIsKept,
    /// A client is told that its session is gone when the end is only proposed.
    ExpiredWhileProposed,
    /// What the log refused counts as stored.
    RefusedCountsAsStored,
    /// A server that only reads goes on with it when it knows of a leader.
    ReadOnlyOutlivesLeader,
    /// A server that only reads says yes to writes, and forgets them.
    ReadOnlyAcceptsWrites,
    /// What a server that only reads gives its clients for a session is created in the tree.
    ReadOnlySessionIsReal,
    /// A new list of servers counts as under way for ever.
    ReconfigNeverEnds,
    /// A new list of servers lacks nobody who was in the old one.
    NobodyLeaves,
    /// Who follows without a vote counts as a voter for whoever starts from a snapshot.
    LearnerCounts,
    /// A server that has come back with an empty disk is not taken out.
    EmptiedStays,
    /// A server that has come back with an empty disk is a stranger, even if it leads.
    StrangerStays,
    /// A leader listens to servers that do not belong to the ensemble any more.
    OutsiderIsHeard,
    /// What was handed over is proposed without a look at what it follows.
    HalfIsEnough,
    /// An answer's zxid is not lowered for the sake of what other partitions have for the client.
    HighestZxid,
    /// Requests are routed as if nothing had been moved.
    OldTableIsUsed,
    /// What is moved leaves without the watches on it.
    WatchesStay,
    /// A partition answers a client that has seen more than it has.
    TimestampIgnored,
    /// A partition's share of a snapshot is of what it has applied by then, wherever the snapshot is taken.
    SnapshotBeforeParts,
    /// A write that was pipelined does not wait for what becomes of those before it.
    PipelinedFollowsNothing,
    /// A write is asked of the partition to which others are still handed on.
    OvertakesHandedOn,
    /// A read that was pipelined is told however old it is.
    OldReadIsTold,
    /// Programs are shown the state without what is outstanding.
    ContentsAreOld,
    /// Only the contact server of whoever has set off a reaction knows of what nobody is to be told.
    MutedIsTold,
    /// A new leader counts clients as silent for as long as it did not lead.
    SilentBeforeLead,
}

/// The bug of a server, if there is one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted-bugs")]
    pub(crate) bug: Option<Bug>,
}

impl Planted {
    #[inline]
    pub(crate) fn is(&self, bug: Bug) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.bug == Some(bug);
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = bug;
            false
        }
    }
}
