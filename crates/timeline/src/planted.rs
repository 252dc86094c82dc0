//! Bugs that tests of the simulator plant, to see that it finds them. Without the feature `planted-bugs` there are
//! none, and the compiler leaves the questions out.

/// A fault of what replicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub, reason = "nobody can plant one"))]
pub enum Bug {
    /// What was handed over is proposed without a look at what it follows.
    HalfIsEnough,
    /// A leader takes again what it has taken of a contact server's requests.
    TakenTwice,
    /// What a contact server has asked is asked again before it is known what became of it.
    AskedAgainAtOnce,
    /// A leader listens to servers that do not belong to the ensemble any more.
    OutsiderIsHeard,
    /// A server that has come back with an empty disk is not taken out.
    EmptiedStays,
    /// A server that has come back with an empty disk is a stranger, even if it leads.
    StrangerStays,
}

/// The bug of a timeline, if there is one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted-bugs")]
    bug: Option<Bug>,
}

impl Planted {
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn of(bug: Bug) -> Self {
        Self { bug: Some(bug) }
    }

    #[inline]
    pub(crate) fn is(self, bug: Bug) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.bug == Some(bug);
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = bug;
            false
        }
    }
}
