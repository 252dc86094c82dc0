//! Where a server stands among the others, for operators.

use alloc::string::String;
use alloc::vec::Vec;
use stoa_tree::{Claim, KeptZxids, SiteId, SiteSet, SiteStanding};

/// What a server is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// There are no others.
    Standalone,
    /// It leads, and prepares requests.
    Leader,
    /// It follows a leader, and votes.
    Follower,
    /// It follows a leader, and has no vote.
    Observer,
    /// It has known of no leader for a while, and only reads, for clients that have said that this will do.
    ReadOnly,
    /// It knows of no leader, waits for what a new leader found committed, or has no room for it.
    Looking,
}

/// Where a server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Its number.
    pub id: u8,
    /// What it is.
    pub role: Role,
    /// Who leads, if that is known.
    pub leader: Option<u8>,
    /// The term.
    pub term: u64,
    /// Position of the last entry, durable or not.
    pub last: u64,
    /// Position up to which entries are known to be committed.
    pub committed: u64,
    /// Position of the last applied entry.
    pub applied: u64,
    /// Those who vote.
    pub voters: Vec<u8>,
    /// Those who follow without a vote.
    pub observers: Vec<u8>,
    /// Those who voted before the change of members that is under way: until it is complete, they are
    /// needed as well.
    pub outgoing: Vec<u8>,
    /// At the leader: up to which position each other member has the entries.
    pub matched: Vec<(u8, u64)>,
}

/// How a site stands among the others, as a server of it knows that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitesStatus {
    /// Its number.
    pub own: SiteId,
    /// The hub's.
    pub hub: SiteId,
    /// How many hubs there have been, with this one.
    pub reign: u64,
    /// The site that is to be the hub, if another one is, and at that one, whose sites have to follow first.
    pub claim: Option<Claim>,
    /// Those of them that have not.
    pub waits_for: SiteSet,
    /// What this site is to the others.
    pub standing: SiteStanding,
    /// Whether this server leads it: who does knows more.
    pub leads: bool,
    /// Up to which position of its log entries are known to be committed.
    pub committed: u64,
    /// Position of the last entry of its log that is applied here.
    pub applied: u64,
    /// Requests of its clients that have gone to another site, or wait for one that has.
    pub waiting: u64,
    /// Answers of clients of this server that wait until another site has what they are about.
    pub held: u64,
    /// At the hub's leader, where another site may take its place without an operator: until when it may prepare, by the
    /// clock of [`Now::mono_us`](stoa_partition::Now), if it hears of no other site any more.
    pub lease_until_us: Option<u64>,
    /// At the leader of another site there: until when that one would not follow who takes the hub's place.
    pub bound_until_us: Option<u64>,
    /// What was counted here.
    pub counts: SiteCounts,
    /// The others, by number; one that has never been heard of is not among them.
    pub others: Vec<OtherSite>,
}

impl SitesStatus {
    /// Whether the others have given this site up.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.standing != SiteStanding::Member
    }
}

/// What a server knows of another site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSite {
    /// Its number.
    pub site: SiteId,
    /// Whether it was given up, and has not come back.
    pub is_lost: bool,
    /// What was here of it when it was given up last.
    pub kept: Option<KeptZxids>,
    /// Up to which position of its log everything is here.
    pub imported: u64,
    /// At the leader: up to which position of this site's log it has said to have everything, since it is connected.
    pub acknowledged: Option<u64>,
    /// At the leader: what it has not acknowledged, once it has been connected.
    pub unshipped: Option<Unshipped>,
    /// Up to which feature level all its servers read, as it has said while it was connected.
    pub all_read: Option<u8>,
}

/// What a site has prepared, or the hub has passed on, and another site has not acknowledged. While that one is not
/// connected this is all that may concern it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unshipped {
    /// Entries of the log.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the oldest of them was applied, by the clock of [`Now::mono_us`](stoa_partition::Now).
    pub since_us: Option<u64>,
    /// Whether that is all: what is in the log's files alone is not counted.
    pub is_all: bool,
}

/// What the leader of the hub knows of a token and its use. It learns anew when it begins to lead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenUse {
    /// When it gave the token to the site that holds it, if it did, by the clock of [`Now::mono_us`](stoa_partition::Now).
    pub since_us: Option<u64>,
    /// When that site was heard to use it last, if it was heard since then.
    pub used_us: Option<u64>,
    /// How often it was heard to, of what has no mark of its own; none where it is not known since when it has it.
    pub uses: Option<u64>,
    /// Who has used the znode lately, if that is known, each with its share in percent.
    pub shares: Vec<(SiteId, u8)>,
    /// Whether others have, too, which are not told apart.
    pub has_others: bool,
    /// Who was last.
    pub last: Option<SiteId>,
}

/// Who holds the token of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMark {
    /// The site.
    pub holder: SiteId,
    /// The path whose mark says so, at or above it; `None` where none does, as of an ephemeral.
    pub at: Option<String>,
}

/// What the leader of a site counts of requests and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteCounts {
    /// Requests of its clients that were prepared here.
    pub writes_local: u64,
    /// Those that have gone to the hub.
    pub writes_forwarded: u64,
    /// Tokens that were given to another site; away from the hub these are such that it wanted back.
    pub grants: u64,
    /// At the hub: tokens that it wanted back.
    pub recalls: u64,
    /// At the hub: requests that it has sent to the home of the ephemeral that they are about.
    pub visits: u64,
}

impl SiteCounts {
    /// What another partition of this site has counted, too.
    pub fn add(&mut self, other: Self) {
        self.writes_local += other.writes_local;
        self.writes_forwarded += other.writes_forwarded;
        self.grants += other.grants;
        self.recalls += other.recalls;
        self.visits += other.visits;
    }
}
