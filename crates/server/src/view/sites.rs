//! How a site stands among the others.

use std::fmt;

use stoa_core::{KeptZxids, LostUpdates, SiteCounts, SiteId, SitesStatus, TokenMark};

/// What a server answers that has nothing to do with sites.
pub(crate) const NO_SITES: &str = "this server is of none of several sites";

/// The site of a server, and the others, as that server knows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SitesView {
    /// The name of the server's site.
    pub name: String,
    /// Its number; none before it has joined the others.
    pub number: Option<u64>,
    /// The hub's number.
    pub hub: Option<u64>,
    /// How many hubs there have been, with this one.
    pub reign: u64,
    /// The site that is to be the hub, if another one is.
    pub next_hub: Option<String>,
    /// At that one: the sites that have to follow first.
    pub waits_for: Vec<String>,
    /// Whether the others have given this site up.
    pub is_lost: bool,
    /// There: the last of its updates that they have, as they have said; 0 of none.
    pub kept: Option<KeptZxids>,
    /// There: how many of its updates they do not have, as soon as these are counted.
    pub lost_updates: Option<u64>,
    /// Whether the server leads its site: who does knows what others lack.
    pub leads: bool,
    /// Up to which position of the site's log entries are known to be committed.
    pub committed: u64,
    /// Position of the last entry of that log that is applied here.
    pub applied: u64,
    /// Requests of the site's clients that wait for another one.
    pub waiting: u64,
    /// Answers of the server's clients that wait until another site has what they are about.
    pub held: u64,
    /// At the hub's leader, where another site may take its place without an operator: for how long it may prepare, if
    /// it hears of no other site any more, microseconds; 0 if it may not.
    pub lease_us: Option<u64>,
    /// At the leader of another site there: for how long it would not follow who takes the hub's place.
    pub bound_us: Option<u64>,
    /// The feature level that the sites use.
    pub level: u8,
    /// At the leader, where the server reads a higher one: who does not, in words. Of other sites the hub's leader knows.
    pub level_waits_for: Option<Vec<String>>,
    /// What this server has counted.
    pub counts: SiteCounts,
    /// Every site, this one among them, by number.
    pub sites: Vec<SiteView>,
}

impl SitesView {
    /// What a partition knows that has no part in the streams: what it has counted itself.
    pub(crate) fn of_partition(known: &SitesStatus) -> Self {
        Self { held: known.held, counts: known.counts, ..Self::default() }
    }

    /// Adds what another partition has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.counts.add(other.counts);
    }
}

/// One of the sites.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteView {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// Whether it is the hub.
    pub is_hub: bool,
    /// Whether it is that of the server.
    pub is_own: bool,
    /// Whether it was given up, and has not come back.
    pub is_lost: bool,
    /// The last of its updates that the others had when it was given up last, 0 of none; `None` if it never was.
    pub kept: Option<KeptZxids>,
    /// Where the server that tells this reaches its servers, which is where they listen for other sites.
    pub servers: Vec<String>,
    /// At the leader: whether its leader is connected. None of sites that are reached through the hub.
    pub connected: Option<bool>,
    /// Since when, milliseconds since the epoch.
    pub connected_ms: Option<i64>,
    /// How long it takes there and back, microseconds.
    pub round_trip_us: Option<u64>,
    /// Of others: up to which position of its log everything is here.
    pub imported: Option<u64>,
    /// At the leader: up to which position of the log here it has said to have everything.
    pub acknowledged: Option<u64>,
    /// At the leader: what it has not acknowledged.
    pub unshipped: Option<UnshippedView>,
    /// Up to which feature level all its servers read, as far as is known.
    pub level_newest: Option<u8>,
}

/// What an operator has done with sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteOrder {
    /// The hub gives a site up.
    Lose(String),
    /// The site of the server that is asked is to be the hub, and some are given up with that.
    Promote(Vec<String>),
    /// The site of the server that is asked was given up: it gives up what it has and takes the hub's state.
    Rejoin,
    /// There is one more site: `NAME=HOST:PORT|...`.
    Add(String),
    /// A site that was given up, or has never come, is none of the list any more.
    Remove(String),
    /// All sites read a higher feature level than the one in use, and use it from now on.
    Upgrade,
}

impl fmt::Display for SiteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lose(site) => write!(f, "{site} is given up"),
            Self::Promote(lost) if lost.is_empty() => f.write_str("this site is to be the hub"),
            Self::Promote(lost) => write!(f, "this site is to be the hub, without {}", lost.join(", ")),
            Self::Rejoin => f.write_str("this site gives up what it has, and joins anew"),
            Self::Add(site) => write!(f, "{site} is one of the sites"),
            Self::Remove(site) => write!(f, "{site} is none of the sites"),
            Self::Upgrade => f.write_str("the sites use the highest feature level that all of them read"),
        }
    }
}

/// What is asked of what a site that was given up alone has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostAsked {
    /// Behind this zxid; 0 for all.
    pub after_zxid: i64,
    /// So many updates at most.
    pub most: usize,
    /// Whether with their data.
    pub with_data: bool,
}

/// What a site that was given up alone has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostView {
    /// The site's name.
    pub site: String,
    /// The last of its updates that the others have; 0 of none.
    pub kept: KeptZxids,
    /// Those behind it.
    pub lost: LostUpdates,
}

/// What another site has not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnshippedView {
    /// Entries of the log.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long the oldest of them waits, microseconds; 0 if there is none.
    pub age_us: u64,
    /// Whether that is all: what is in the log's files alone is not counted.
    pub is_all: bool,
}

/// What is said of the token of a path where that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathToken {
    /// Who holds it, and where that is said.
    pub mark: TokenMark,
    /// Whether there is a znode.
    pub is_there: bool,
    /// The sites that have a read token of it.
    pub readers: Vec<SiteId>,
}

/// Who holds the token of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The site.
    pub site: u64,
    /// Its name, if the list of sites has it.
    pub name: Option<String>,
    /// Whether there is a znode; else it is held with what is above it.
    pub is_there: bool,
    /// The sites that have a read token of it, each with its number and its name.
    pub readers: Vec<(u64, Option<String>)>,
    /// At the hub's leader: what it knows of its use.
    pub usage: Option<TokenUsage>,
}

/// What the hub's leader knows of a token and its use, since it leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Since when the holder has it, milliseconds since the epoch, if this leader has given it.
    pub since_ms: Option<i64>,
    /// How often the holder was heard to use it since then.
    pub uses: Option<u64>,
    /// When it was heard to last, milliseconds since the epoch.
    pub used_ms: Option<i64>,
    /// The sites that have used the znode lately, each with its number, its name and its share in percent.
    pub shares: Vec<(u64, Option<String>, u8)>,
    /// Whether others have, too, which are not told apart.
    pub has_others: bool,
    /// The number of the one that was last.
    pub last: Option<u64>,
}

#[cfg(test)]
impl LostView {
    /// Two updates are lost of a site that is one of several; of any other there is nothing to tell.
    pub(crate) fn example(is_one: bool, asked: LostAsked) -> Result<Self, String> {
        use stoa_core::{LostOperation, LostUpdate};
        if !is_one {
            return Err(NO_SITES.to_owned());
        }
        let update = |zxid: i64| {
            let data = Some(b"ab".to_vec()).filter(|_| asked.with_data);
            let operation = LostOperation { name: "setData", path: Some("/a".into()), bytes: Some(2), data };
            LostUpdate {
                position: 41,
                zxid,
                time_ms: 1_700_000_000_000,
                session: 0x77,
                is_multi: false,
                is_committed: true,
                operations: vec![operation],
            }
        };
        let behind = [0x803, 0x1003].into_iter().filter(|zxid| *zxid > asked.after_zxid);
        let updates: Vec<_> = behind.take(asked.most).map(update).collect();
        let are_more = updates.last().is_some_and(|last| last.zxid < 0x1003);
        let lost = LostUpdates { updates, count: 2, are_more, is_all: true };
        Ok(Self { site: "frankfurt".into(), kept: [3].into_iter().collect(), lost })
    }
}

#[cfg(test)]
impl SitesView {
    /// Of the hub's leader: one site is far behind, the other one away.
    pub(crate) fn example() -> Self {
        let site = |number, name: &str| SiteView {
            number,
            name: name.to_owned(),
            is_hub: number == 1,
            is_own: number == 1,
            servers: vec![format!("{name}.example:2889")],
            ..SiteView::default()
        };
        let near = SiteView {
            connected: Some(true),
            connected_ms: Some(1_700_000_000_000),
            round_trip_us: Some(62_500),
            imported: Some(40),
            acknowledged: Some(4_000),
            unshipped: Some(UnshippedView { entries: 3, bytes: 700, age_us: 31_000, is_all: true }),
            level_newest: Some(2),
            ..site(2, "california")
        };
        let away = SiteView {
            is_lost: true,
            kept: Some([0x5_0003].into_iter().collect()),
            connected: Some(false),
            imported: Some(0),
            ..site(3, "frankfurt")
        };
        let counts = SiteCounts { writes_local: 100, writes_forwarded: 7, grants: 5, recalls: 2, visits: 1 };
        Self {
            name: "virginia".to_owned(),
            number: Some(1),
            hub: Some(1),
            reign: 1,
            next_hub: None,
            waits_for: Vec::new(),
            is_lost: false,
            kept: None,
            lost_updates: None,
            leads: true,
            committed: 4_999,
            applied: 4_998,
            waiting: 6,
            held: 2,
            lease_us: Some(8_250_000),
            bound_us: None,
            level: 1,
            level_waits_for: Some(vec!["server 2 of this site reads up to level 1".to_owned()]),
            counts,
            sites: vec![site(1, "virginia"), near, away],
        }
    }
}
