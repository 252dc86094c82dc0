//! What the first partition of a site says to the others about sites, and they to it: it has the streams, and what is asked
//! of this site by others; each of them has the tokens of what lives there. See `replica/site_partitions.rs`.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_timeline::Origin;
use stoa_tree::{LackedTokens, Refusal, SiteId, SiteSet, TokenRefusal, Tree};
use stoa_wire::{ErrorCode, Timestamp};

/// What one of them says.
#[derive(Debug)]
pub struct Said {
    /// In which term of this server.
    pub term: u64,
    /// By which version of the table of what lives where.
    pub placed: u64,
    /// What.
    pub news: SiteNews,
}

/// From the first partition to another one, or back.
#[derive(Debug)]
pub enum SiteNews {
    /// To the others, before they may prepare: which of their requests are on their way.
    UnderWay(Vec<UnderWay>),
    /// To the others: until when this server may do what is the hub's to do, by the monotonic clock in microseconds, and
    /// whether that was over for longer than anybody waits.
    Lease {
        /// `u64::MAX` where nobody could take its place.
        until_us: u64,
        /// See above.
        is_missed: bool,
    },
    /// To the others: what the operator says of sites, and whether there is a second one.
    Durability {
        /// What stands at [`crate::SITES_PATH`].
        text: Bytes,
        /// See above.
        has_second: bool,
    },
    /// To the others: another site has the receiver's timeline up to there, or what it has made up to this zxid.
    Shared {
        /// The position.
        position: u64,
        /// The zxid.
        zxid: i64,
    },
    /// To the others: what became of a request of a client of the receiver, of which its own timeline says nothing.
    Outcome(Box<TicketOutcome>),
    /// Carry out a request, or say what is missing.
    Try(Box<Try>),
    /// What became of it.
    Tried(Origin, Tried),
    /// Give a token to a site.
    Give(String, SiteId),
    /// It is given, or why it is not.
    Given(String, SiteId, Result<(), TokenRefusal>),
    /// Give a token to a site if it is here, and else say who has it.
    Bring(String, SiteId),
    /// A token of another site was to be brought: that has it.
    HeldBy {
        /// Of what is at this path.
        path: String,
        /// The site that has it.
        holder: SiteId,
        /// Where it was to be brought.
        to: SiteId,
    },
    /// Give a token back that the hub wants. It is looked for when all of that is applied.
    Return(String, Timestamp),
    /// There is none here. With a path above, it goes with the token of that, which lives elsewhere.
    NotReturned(String),
    /// Give read tokens.
    GiveRead(String, SiteSet),
    /// What was asked of the sender is about something that has moved: it is asked elsewhere.
    Elsewhere(Box<SiteNews>),
    /// The receiver's part of the hub's state, which is this site's from where its timeline says so: at the first partition
    /// from this position on. None if that is not whole.
    Joined(Option<Box<Tree>>, u64),
}

/// A request that is on its way from a client of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderWay {
    /// Its number.
    pub number: u64,
    /// Its session.
    pub session: i64,
    /// Whether it is to be carried out at this site, later.
    pub here: bool,
}

/// What became of a request of a client of a partition.
#[derive(Debug, Clone)]
pub struct TicketOutcome {
    /// Its number.
    pub number: u64,
    /// It is told when all of that is applied, and rests on it.
    pub seen: Timestamp,
    /// The partitions that have a part of it: a bit for each.
    pub parts: u64,
    /// What its client is told.
    pub reply: TicketReply,
}

/// What the client of a request is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketReply {
    /// It is done: the body of the reply.
    Done(Bytes),
    /// Another site has done it.
    DoneElsewhere(Bytes),
    /// It is refused.
    Refused(Refusal),
    /// It is refused, and this is why, in words.
    Failed(ErrorCode, String),
    /// No program carries out this read: its contact server answers it.
    Untaken,
}

/// A request of a site for a partition.
#[derive(Debug, Clone)]
pub struct Try {
    /// Whose it is.
    pub origin: Origin,
    /// What is asked.
    pub asked: Bytes,
    /// Whether it may be carried out; else it is only said what is missing.
    pub may_carry_out: bool,
    /// It is looked at when all of that is applied.
    pub seen: Timestamp,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// What becomes of it is proposed. Programs have needed these tokens for it.
    CarriedOut(BTreeSet<String>),
    /// These tokens are not here, or none is missing and it may not be carried out.
    Lacks(Box<LackedTokens>),
    /// What it needs shows when it may be carried out.
    NotNow,
}
