//! What a server is: a member of the ensemble, or a reader below one of its servers. It may be one after the other.
//!
//! Who has a number and knows parents is what the list of servers says: a member while it stands in it, a reader while it
//! does not. When that changes the server takes down what it runs, as at a clean stop, and builds it again from its
//! data folder in the other role: so a change of role is a restart, and nothing holds after it that would not hold
//! after one.
//!
//! **No vote is given twice, and no acknowledgement counts that a disk has forgotten.** The folder stays, with its id, its
//! starts, its term and its vote. As a reader the server votes for nobody and acknowledges nothing. What it is given
//! is committed, so it only replaces what is void, and a snapshot is taken over with the vote
//! (`stoa_timeline`, `SharedLog::adopt`); a term that its parent has told it is a later one, in which it has not voted.
//! When it is a member again it therefore has all that it had promised, and what the others know of its disk is
//! still true of it. Whoever loses its folder as a reader was taken out of the ensemble before, and owes nothing
//! ([`stoa_timeline::KnownDisks`]); one that lost it while it was in the list comes with another disk than is
//! known, as any member that has lost its own.
//!
//! **Nobody who is needed stays away.** A member becomes a reader when it stands neither in the list that it has applied nor
//! among those whose votes count by its own log: then a majority has decided without it. It may have missed that, as
//! nothing is said any more to who was taken out. Who reaches nobody but servers that do not know it, or reaches nobody and
//! has no vote, asks a parent, as a reader: at once where the list does not have it, else after a while. It is a member again when the parent says that it
//! stands in the list, or when its vote counts by what it has and no parent lets it in: a mistake costs some seconds of
//! its vote, never more.
//!
//! **It does not turn back and forth.** What is on the disk may be older than what it went by, as more is known to be
//! committed than is stored. So the version of the list is kept by which it has its role, and an older one does not
//! count.

use crate::replica::Replica;

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRole {
    /// It belongs to the ensemble, or waits for that.
    Member,
    /// It follows a member, or another reader.
    Reader,
}

/// Why a server goes on as something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleCause {
    /// The list has it.
    Listed,
    /// The list does not have it any more.
    TakenOut,
    /// Nobody whom it reaches knows it: a parent tells it whether it was taken out.
    Unknown,
    /// It finds no parent, and by what it has it belongs to the ensemble.
    NoParent,
    /// Nobody feeds it before the list has it.
    NotFed,
}

/// What a server goes on as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleChange {
    /// What it is from now on.
    pub role: ServerRole,
    /// Why.
    pub cause: RoleCause,
    /// The version of the list by which that is so, if it is by one.
    by: Option<i64>,
}

/// How it stands with the servers around one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Company {
    /// At a member: one of those who vote by its log is connected, or anybody if it knows of none.
    pub is_connected: bool,
    /// At a member: somebody has said that it is none, or it is not known where any of those is who vote by its log.
    pub is_refused: bool,
    /// At a member: somebody has a newer list of servers, which does not have this one.
    pub is_told_out: bool,
    /// At a reader: each of its parents was asked, and none will let it in.
    pub is_let_in_nowhere: bool,
    /// It is known where this server listens for the others, also where the list does not say so.
    pub has_address: bool,
}

/// What a server's own state says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Belonging {
    /// The version of the list that is applied, and whether the server stands in it.
    list: Option<(i64, bool)>,
    /// Its vote counts by its own log.
    votes: bool,
    has_leader: bool,
    /// At a reader: there is a way to the ensemble, and everything is here that its parent had.
    is_attached: bool,
    has_all: bool,
}

/// Which role a server has, over all that it runs one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleKeeper {
    id: u8,
    role: ServerRole,
    by: Option<i64>,
    /// Whether it has parents to go to when it is taken out.
    may_read: bool,
    patience_us: u64,
    lonely_since_us: Option<u64>,
}

impl RoleKeeper {
    /// For the server with this number, which has this role, by a list of that version if it is by one. Who is alone for
    /// so long tries the other one.
    #[must_use]
    pub fn new(id: u8, (role, by): (ServerRole, Option<i64>), may_read: bool, patience_us: u64) -> Self {
        Self { id, role, by, may_read, patience_us, lonely_since_us: None }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.id
    }

    /// What it is.
    #[must_use]
    pub fn role(&self) -> ServerRole {
        self.role
    }

    /// The version of the list by which that is so.
    #[must_use]
    pub fn by(&self) -> Option<i64> {
        self.by
    }

    /// From now on it is something else. That is to be durable before it says anything in that role.
    pub fn change(&mut self, change: RoleChange) {
        (self.role, self.by, self.lonely_since_us) = (change.role, change.by.or(self.by), None);
    }

    /// Looks whether it is to be something else. `first` is the first partition, in the role that the server has.
    pub fn look(&mut self, first: &Replica, company: Company, now_us: u64) -> Option<RoleChange> {
        let status = first.status();
        let below = first.below();
        let version =
            first.members_version().filter(|_| first.membership().is_some_and(|list| !list.is_empty()));
        let stands = first.membership().is_some_and(|list| list.servers.contains_key(&self.id));
        let own = Belonging {
            list: version.map(|version| (version, stands)),
            votes: status.voters.contains(&self.id) || status.outgoing.contains(&self.id),
            has_leader: first.leader().is_some(),
            is_attached: below.is_some(),
            // 0 until the parent has said how far it is.
            has_all: below.is_some_and(|below| (1..=first.log_applied()).contains(&below.committed)),
        };
        self.judge(own, company, now_us)
    }

    fn judge(&mut self, own: Belonging, company: Company, now_us: u64) -> Option<RoleChange> {
        // What it went by counts until there is something newer.
        let list = own.list.filter(|(version, _)| Some(*version) >= self.by);
        let is_lonely = match self.role {
            ServerRole::Member => {
                let meets_nobody = (company.is_refused || !own.votes) && !company.is_connected;
                // Who has no list founds an ensemble with others, and waits for them.
                own.list.is_some() && !own.has_leader && (company.is_told_out || meets_nobody)
            }
            // A parent without a leader is left for another one, again and again: its own vote may be what is missing.
            ServerRole::Reader => !(own.is_attached && own.has_leader),
        };
        let since_us = self.lonely_since_us.filter(|_| is_lonely).unwrap_or(now_us);
        self.lonely_since_us = is_lonely.then_some(since_us);
        let is_lonely_for_long = is_lonely && now_us.saturating_sub(since_us) >= self.patience_us;
        let (stands, is_out) =
            (list.is_some_and(|(_, stands)| stands), list.is_some_and(|(_, stands)| !stands));
        let (role, cause) = match self.role {
            ServerRole::Member if !self.may_read => return None,
            ServerRole::Member if is_out && (!own.votes || is_lonely) => {
                (ServerRole::Reader, RoleCause::TakenOut)
            }
            ServerRole::Member if is_lonely_for_long => (ServerRole::Reader, RoleCause::Unknown),
            ServerRole::Reader if stands && own.is_attached && own.has_all => {
                (ServerRole::Member, RoleCause::Listed)
            }
            ServerRole::Reader if is_lonely_for_long && (stands || own.votes && company.has_address) => {
                (ServerRole::Member, RoleCause::NoParent)
            }
            ServerRole::Reader if company.is_let_in_nowhere && !self.may_read => {
                (ServerRole::Member, RoleCause::NotFed)
            }
            ServerRole::Member | ServerRole::Reader => return None,
        };
        Some(RoleChange { role, cause, by: list.map(|(version, _)| version) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE_US: u64 = 1000;

    fn keeper(role: ServerRole) -> RoleKeeper {
        RoleKeeper::new(4, (role, Some(9)), true, PATIENCE_US)
    }

    /// What it becomes at once, and what when that has lasted.
    fn changes(
        keeper: &RoleKeeper,
        own: Belonging,
        company: Company,
    ) -> (Option<RoleCause>, Option<RoleCause>) {
        let mut keeper = keeper.clone();
        let soon = keeper.judge(own, company, 1);
        let late = keeper.judge(own, company, 1 + PATIENCE_US);
        assert!(soon.iter().chain(&late).all(|change| change.role != keeper.role));
        (soon.map(|change| change.cause), late.map(|change| change.cause))
    }

    fn at(version: i64, stands: bool) -> Belonging {
        Belonging { list: Some((version, stands)), ..Belonging::default() }
    }

    const NOBODY: Company = Company {
        is_connected: false,
        is_refused: false,
        is_told_out: false,
        is_let_in_nowhere: false,
        has_address: false,
    };

    #[test]
    fn a_reader_that_stands_in_the_list_is_a_member_once_it_has_everything() {
        let reader = keeper(ServerRole::Reader);
        let attached = Belonging { is_attached: true, has_leader: true, ..at(9, true) };
        let has_all = Belonging { has_all: true, ..attached };
        assert_eq!(changes(&reader, attached, NOBODY), (None, None));
        assert_eq!(changes(&reader, has_all, NOBODY).0, Some(RoleCause::Listed));
        assert_eq!(changes(&reader, Belonging { list: Some((8, true)), ..has_all }, NOBODY), (None, None));
        assert_eq!(changes(&reader, Belonging { list: Some((9, false)), ..has_all }, NOBODY), (None, None));
        assert_eq!(changes(&reader, Belonging { list: None, ..has_all }, NOBODY), (None, None));
        let mut reader = reader;
        let change = reader.judge(Belonging { list: Some((12, true)), ..has_all }, NOBODY, 5).unwrap();
        reader.change(change);
        assert_eq!((reader.role(), reader.by()), (ServerRole::Member, Some(12)));
    }

    #[test]
    fn a_member_that_was_taken_out_is_a_reader_when_its_vote_is_not_needed_any_more() {
        let member = keeper(ServerRole::Member);
        let met = Company { is_connected: true, ..NOBODY };
        assert_eq!(changes(&member, at(9, true), met), (None, None));
        assert_eq!(
            changes(&member, Belonging::default(), NOBODY),
            (None, None),
            "it waits for other founders"
        );
        assert_eq!(changes(&member, at(9, true), NOBODY), (None, Some(RoleCause::Unknown)), "it has no vote");
        assert_eq!(changes(&member, at(10, false), NOBODY).0, Some(RoleCause::TakenOut));
        assert_eq!(
            changes(&member, at(8, false), met),
            (None, None),
            "the disk may know of an older one only"
        );
        let votes = Belonging { votes: true, ..at(10, false) };
        assert_eq!(changes(&member, votes, NOBODY), (None, None));
        let refused = Company { is_refused: true, ..NOBODY };
        assert_eq!(changes(&member, votes, refused).0, Some(RoleCause::TakenOut), "it is not told more");
        assert_eq!(changes(&member, votes, Company { is_connected: true, ..refused }), (None, None));
        let without_parents = RoleKeeper { may_read: false, ..member };
        assert_eq!(changes(&without_parents, at(10, false), NOBODY), (None, None));
    }

    #[test]
    fn whoever_nobody_knows_asks_a_parent_and_does_not_stay_away_without_one() {
        let (member, reader) = (keeper(ServerRole::Member), keeper(ServerRole::Reader));
        let votes = Belonging { votes: true, ..at(9, true) };
        let refused = Company { is_refused: true, ..NOBODY };
        assert_eq!(changes(&member, votes, NOBODY), (None, None));
        assert_eq!(changes(&member, votes, Company { is_connected: true, ..refused }), (None, None));
        assert_eq!(changes(&member, Belonging { has_leader: true, ..votes }, refused), (None, None));
        assert_eq!(changes(&member, votes, refused), (None, Some(RoleCause::Unknown)));
        let told_out = Company { is_connected: true, is_told_out: true, ..NOBODY };
        assert_eq!(changes(&member, votes, told_out), (None, Some(RoleCause::Unknown)));
        assert_eq!(changes(&member, Belonging { has_leader: true, ..votes }, told_out), (None, None));
        assert_eq!(changes(&reader, votes, NOBODY), (None, Some(RoleCause::NoParent)));
        assert_eq!(changes(&reader, at(9, false), NOBODY), (None, None));
        let by_its_log = Belonging { votes: true, ..at(9, false) };
        assert_eq!(changes(&reader, by_its_log, NOBODY), (None, None), "nobody knows where it listens");
        let has_address = Company { has_address: true, ..NOBODY };
        assert_eq!(changes(&reader, by_its_log, has_address), (None, Some(RoleCause::NoParent)));
        let attached = Belonging { is_attached: true, ..votes };
        assert_eq!(changes(&reader, attached, NOBODY), (None, Some(RoleCause::NoParent)), "nobody leads");
        assert_eq!(changes(&reader, Belonging { has_leader: true, ..attached }, NOBODY), (None, None));
    }

    #[test]
    fn loneliness_has_to_last() {
        let mut member = keeper(ServerRole::Member);
        let refused = Company { is_refused: true, ..NOBODY };
        for now_us in [1, PATIENCE_US, 2 * PATIENCE_US, 3 * PATIENCE_US] {
            assert_eq!(member.judge(at(9, true), refused, now_us.saturating_sub(1)), None);
            let met = Company { is_connected: true, ..refused };
            assert_eq!(member.judge(at(9, true), met, now_us), None);
        }
    }

    #[test]
    fn who_is_fed_by_nobody_waits_to_be_added() {
        let newcomer = RoleKeeper::new(4, (ServerRole::Reader, None), false, PATIENCE_US);
        let nowhere = Company { is_let_in_nowhere: true, ..NOBODY };
        assert_eq!(changes(&newcomer, Belonging::default(), NOBODY), (None, None));
        assert_eq!(changes(&newcomer, Belonging::default(), nowhere).0, Some(RoleCause::NotFed));
        // Whoever has parents goes on asking them.
        assert_eq!(changes(&keeper(ServerRole::Reader), Belonging::default(), nowhere), (None, None));
    }
}
