//! How far the streams between sites have come, and which requests are on their way between them.
//!
//! What a site commits goes to the other ones in the order of its log, so a position in that log says how much of it
//! another one has. A request whose tokens are elsewhere is kept by its own site until it has its outcome, and so it is
//! by the hub, and by a site that is to carry it out in the hub's place. All of this is replicated: whoever leads next
//! goes on with it, and nothing is carried out twice or never.

use crate::reserved::{ROOT, is_at_or_below};
use crate::sites::kept::KeptZxids;
use crate::sites::names::{SiteId, SiteSet};
use crate::sites::reign::Claim;
use crate::tree::Tree;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

/// A request of a site's client, by the number that the site has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The site.
    pub site: SiteId,
    /// The number.
    pub number: u64,
}

/// Who is to carry out a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarriedOut {
    /// This site, when it has what that takes, and when what its session has asked before has its outcome.
    Here,
    /// Another one, that knows of it: as far as is known here this one.
    At(SiteId),
}

/// A request on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Whose it is.
    pub ticket: Ticket,
    /// The server of that site that its client is connected to.
    pub server: u8,
    /// The session; 0 of none.
    pub session: i64,
    /// Who is to carry it out.
    pub by: CarriedOut,
    /// What is asked; what that means is for others to say.
    pub asked: Vec<u8>,
}

/// What this site is to the others.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum SiteStanding {
    /// One of them.
    #[default]
    Member,
    /// They have given it up, and listen to it no more: it serves nobody.
    Lost,
    /// The same, and what it has is to be replaced by the hub's state.
    Discarded,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Streams {
    /// Where this site's log was when it became one; what stands before that is of nobody else.
    begun: u64,
    /// How far the log of each other site is here.
    imported: BTreeMap<SiteId, u64>,
    /// In the order in which they have come here.
    waiting: BTreeMap<u64, Waiting>,
    by_ticket: BTreeMap<Ticket, u64>,
    by_session: BTreeMap<i64, VecDeque<u64>>,
    next: u64,
    /// So many requests this site has given numbers.
    numbered: u64,
    /// Paths whose tokens the hub wants back from here.
    recalled: BTreeSet<String>,
    /// The reign that is claimed, here or by whom this site follows; and at who claims it, who has followed.
    claim: Option<Claim>,
    followed: SiteSet,
    /// The reign of the last hub that was noted, and where this site's log stood when it had begun here.
    reign: (u64, u64),
    /// The same of the last claim.
    claimed: (u64, u64),
    standing: SiteStanding,
    /// At a site that was given up: what the others have of its updates, as they have said.
    kept: Option<KeptZxids>,
    /// The last reign whose hub this site has promised something.
    promised_in: u64,
}

impl Streams {
    /// Up to which position of another site's log everything is here.
    #[must_use]
    pub fn imported(&self, from: SiteId) -> u64 {
        self.imported.get(&from).copied().unwrap_or(0)
    }

    /// Everything up to there is.
    pub fn set_imported(&mut self, from: SiteId, position: u64) {
        self.imported.insert(from, position);
    }

    /// Each other site, and how far its log is here.
    pub fn all_imported(&self) -> impl Iterator<Item = (SiteId, u64)> {
        self.imported.iter().map(|(site, position)| (*site, *position))
    }

    /// Where this site's log was when it became one, or 0.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// It is one since this position, unless it has been one for longer.
    pub fn begin(&mut self, position: u64) {
        if self.begun == 0 {
            self.begun = position;
        }
    }

    /// How many requests this site has given numbers: the next one's.
    #[must_use]
    pub fn numbered(&self) -> u64 {
        self.numbered
    }

    /// This site has given a request this number.
    pub fn note_number(&mut self, number: u64) {
        self.numbered = self.numbered.max(number + 1);
    }

    /// A request waits; of one that does already, who is to carry it out.
    pub fn wait(&mut self, own: SiteId, waiting: Waiting) {
        let ticket = waiting.ticket;
        if ticket.site == own {
            self.note_number(ticket.number);
        }
        if let Some(known) = self.by_ticket.get(&ticket).and_then(|at| self.waiting.get_mut(at)) {
            known.by = waiting.by;
            return;
        }
        let at = self.next;
        self.next += 1;
        self.by_ticket.insert(ticket, at);
        self.by_session.entry(waiting.session).or_default().push_back(at);
        self.waiting.insert(at, waiting);
    }

    /// Who was to carry out a request does not: it is to be done here.
    pub fn comes_back(&mut self, ticket: Ticket) {
        if let Some(waiting) = self.by_ticket.get(&ticket).and_then(|at| self.waiting.get_mut(at)) {
            waiting.by = CarriedOut::Here;
        }
    }

    /// What the session has asked before this, and has no outcome. Who carries out what a session asks does that in order:
    /// so these were carried out, and came to nothing, or changed nothing, which a hub that is lost has told nobody.
    #[must_use]
    pub fn left_behind(&self, ticket: Ticket) -> Vec<Ticket> {
        let Some((at, waiting)) =
            self.by_ticket.get(&ticket).and_then(|at| Some((*at, self.waiting.get(at)?)))
        else {
            return Vec::new();
        };
        let of_session = self.by_session.get(&waiting.session).filter(|_| waiting.session != 0);
        let before = of_session.into_iter().flatten().take_while(|other| **other < at);
        before.filter_map(|other| Some(self.waiting.get(other)?.ticket)).collect()
    }

    /// A request has its outcome. Returns it, if it has waited here.
    pub fn answered(&mut self, ticket: Ticket) -> Option<Waiting> {
        let at = self.by_ticket.remove(&ticket)?;
        let waiting = self.waiting.remove(&at)?;
        if let Some(of_session) = self.by_session.get_mut(&waiting.session) {
            of_session.retain(|other| *other != at);
            if of_session.is_empty() {
                self.by_session.remove(&waiting.session);
            }
        }
        Some(waiting)
    }

    /// A request that waits.
    #[must_use]
    pub fn waiting(&self, ticket: Ticket) -> Option<&Waiting> {
        self.waiting.get(self.by_ticket.get(&ticket)?)
    }

    /// All that wait, the oldest first.
    pub fn all_waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.values()
    }

    /// Those of a session, in the order in which it has asked.
    pub fn of_session(&self, session: i64) -> impl Iterator<Item = &Waiting> {
        self.by_session.get(&session).into_iter().flatten().filter_map(|at| self.waiting.get(at))
    }

    /// Whether nothing that the session has asked before this waits too. Who has none comes first always.
    #[must_use]
    pub fn is_first_of_session(&self, ticket: Ticket) -> bool {
        let Some(waiting) = self.waiting(ticket) else { return true };
        waiting.session == 0 || self.of_session(waiting.session).next().is_some_and(|it| it.ticket == ticket)
    }

    /// What the session has asked right before this, and right behind it, of what waits.
    #[must_use]
    pub fn around(&self, ticket: Ticket) -> (Option<&Waiting>, Option<&Waiting>) {
        let Some(at) = self.by_ticket.get(&ticket) else { return (None, None) };
        let of_session = self.waiting.get(at).and_then(|waiting| self.by_session.get(&waiting.session));
        let Some(of_session) = of_session else { return (None, None) };
        let place = of_session.partition_point(|other| other < at);
        let waiting = |place: usize| of_session.get(place).and_then(|at| self.waiting.get(at));
        (place.checked_sub(1).and_then(waiting), waiting(place + 1))
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The hub wants the token of what is at a path back.
    pub fn recall(&mut self, path: &str) {
        self.recalled.insert(path.into());
    }

    /// It has the token of what is at a path, or cannot have it from here; and so of what is below it.
    pub fn recall_is_done(&mut self, path: &str) {
        self.recalled.retain(|recalled| path != ROOT && !is_at_or_below(recalled, path));
    }

    /// Paths whose tokens the hub wants back.
    pub fn recalled(&self) -> impl Iterator<Item = &str> {
        self.recalled.iter().map(String::as_str)
    }

    /// A request was to be carried out by a site that is given up: by whoever can, then. What that site has asked itself
    /// has nobody to hear of it.
    pub(super) fn give_up(&mut self, site: SiteId) {
        self.imported.remove(&site);
        self.keep_only(|ticket| ticket.site != site);
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.by == CarriedOut::At(site)) {
            waiting.by = CarriedOut::Here;
        }
    }

    /// From now on this site follows who claims to be the hub, or claims it itself. It does nothing more for others,
    /// and has to ask again what it has asked itself.
    pub(super) fn follow(&mut self, own: SiteId, claim: Claim) {
        (self.claim, self.followed) = (Some(claim), SiteSet::default());
        self.forget_others(own);
    }

    /// Another site was the hub. What is not answered by now was not carried out, and is asked again.
    pub(super) fn begin_reign(&mut self, own: SiteId, (before, hub): (SiteId, SiteId), reign: u64) {
        self.forget_others(own);
        self.claim = self.claim.filter(|claim| claim.reign > reign);
        // Positions of other logs count no more, but that there are those sites: who is asked for a session of one knows it.
        if own == before && hub != before {
            self.imported.values_mut().for_each(|position| *position = 0);
        }
        if hub != before
            && let Some(position) = self.imported.get_mut(&before)
        {
            *position = 0;
        }
    }

    fn forget_others(&mut self, own: SiteId) {
        self.keep_only(|ticket| ticket.site == own);
        self.waiting.values_mut().for_each(|waiting| waiting.by = CarriedOut::Here);
        self.recalled.clear();
    }

    fn keep_only(&mut self, keep: impl Fn(Ticket) -> bool) {
        let gone: Vec<Ticket> = self.by_ticket.keys().copied().filter(|ticket| !keep(*ticket)).collect();
        gone.into_iter().for_each(|ticket| drop(self.answered(ticket)));
    }

    /// The reign that is claimed, if one is, and who is followed so.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        self.claim
    }

    /// A site has followed this one, which claims a reign, and everything is here that it had done before.
    pub fn has_followed(&mut self, site: SiteId) {
        self.followed = self.followed.with(site);
    }

    /// Who has.
    #[must_use]
    pub fn followed(&self) -> SiteSet {
        self.followed
    }

    /// What this site is to the others.
    #[must_use]
    pub fn standing(&self) -> SiteStanding {
        self.standing
    }

    /// It is that from now on.
    pub fn set_standing(&mut self, standing: SiteStanding) {
        self.standing = standing;
    }

    /// At a site that was given up: what the others have of its updates. What it has made behind that it alone has.
    /// `None` before they have said so.
    #[must_use]
    pub fn kept(&self) -> Option<&KeptZxids> {
        self.kept.as_ref()
    }

    /// They have said so.
    pub fn set_kept(&mut self, kept: KeptZxids) {
        self.kept = Some(kept);
    }

    /// The last reign whose hub this site has promised to take no part in giving it up, 0 of none. A hub that has not asked
    /// for that needs none.
    #[must_use]
    pub fn promised_in(&self) -> u64 {
        self.promised_in
    }

    /// It has promised that in this reign.
    pub fn has_promised_in(&mut self, reign: u64) {
        self.promised_in = self.promised_in.max(reign);
    }

    /// Where this site's log stood when the reign had begun here: what stands before that, and is no update, was for
    /// another hub.
    #[must_use]
    pub fn reigned_at(&self) -> u64 {
        self.reign.1
    }

    /// The same of the last claim, which stands there.
    #[must_use]
    pub fn claimed_at(&self) -> u64 {
        self.claimed.1
    }

    /// What a snapshot says of reigns.
    pub(super) fn load_reign(&mut self, reign: (u64, u64), claimed: (u64, u64)) {
        (self.reign, self.claimed) = (reign, claimed);
    }

    /// What it says of a claim.
    pub(super) fn load_claim(&mut self, claim: Claim, followed: SiteSet) {
        (self.claim, self.followed) = (Some(claim), followed);
    }

    /// The last reign that was noted and the last claim, and where.
    pub(super) fn reigns_noted(&self) -> [(u64, u64); 2] {
        [self.reign, self.claimed]
    }

    /// What a snapshot says of the numbers.
    pub(super) fn load_numbered(&mut self, numbered: u64) {
        self.numbered = numbered;
    }
}

impl Tree {
    /// How far the streams between sites have come here.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.sites.streams
    }

    /// An entry of this site's log is applied. Returns whether it is the first of all since this is a site.
    pub fn note_position(&mut self, position: u64) -> bool {
        let (reign, streams) = (self.sites.reign, &mut self.sites.streams);
        if streams.reign.0 != reign {
            streams.reign = (reign, position);
        }
        let claimed = streams.claim.map_or(streams.claimed.0, |claim| claim.reign);
        if streams.claimed.0 != claimed {
            streams.claimed = (claimed, position);
        }
        let is_first = streams.begun == 0;
        // The entry with which the first site has become one says nothing to others.
        streams.begin(position + u64::from(self.sites.own == self.sites.hub));
        is_first
    }

    /// The same, to note what an entry of the log says of them.
    pub fn streams_mut(&mut self) -> &mut Streams {
        &mut self.sites.streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: SiteId = 2;

    fn waiting(number: u64, session: i64) -> Waiting {
        let ticket = Ticket { site: OWN, number };
        Waiting { ticket, server: 1, session, by: CarriedOut::At(1), asked: Vec::new() }
    }

    #[test]
    fn requests_of_a_session_stay_in_order() {
        let mut streams = Streams::default();
        for (number, session) in [(0, 7), (1, 8), (2, 7), (3, 0), (4, 0)] {
            streams.wait(OWN, waiting(number, session));
        }
        let is_first = |streams: &Streams, number| streams.is_first_of_session(Ticket { site: OWN, number });
        assert_eq!([0, 1, 2, 3, 4].map(|number| is_first(&streams, number)), [true, true, false, true, true]);
        assert_eq!(streams.numbered(), 5);
        // Told once more, it keeps its place.
        streams.wait(OWN, Waiting { by: CarriedOut::Here, ..waiting(0, 7) });
        assert_eq!(streams.len(), 5);
        assert_eq!(streams.answered(Ticket { site: OWN, number: 0 }).unwrap().by, CarriedOut::Here);
        assert_eq!(streams.answered(Ticket { site: OWN, number: 0 }), None);
        assert!(is_first(&streams, 2));
        for number in 1..5 {
            streams.answered(Ticket { site: OWN, number }).unwrap();
        }
        assert!(streams.is_empty() && streams.of_session(7).next().is_none());
        assert_eq!(streams.numbered(), 5);
    }
}
