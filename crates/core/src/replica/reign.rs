//! Sites that are given up, and another hub: what leaders do for it. What follows from it is replicated, and stands in
//! `tree/src/sites/reign.rs`.

use crate::replica::Replica;
use crate::replica::sites::SITES_PATH;
use alloc::vec::Vec;
use core::fmt;
use stoa_front::CloseReason;
use stoa_partition::{Item, Now, Outcome, SiteItem};
use stoa_tree::{Caller, Claim, KeptZxids, SITE_MAX, SiteId, SiteSet, SiteStanding, SiteStep, Update};
use stoa_wire::Request;

/// Why a site is not given up, or does not become the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReignRefusal {
    /// This server does not lead its site, or cannot have anything written now.
    NotLeading,
    /// This site has not joined the others, or was given up by them.
    NotJoined,
    /// Only the hub gives up a site. Who is to become the hub names those that it gives up.
    NotTheHub(SiteId),
    /// This site is the hub already.
    IsTheHub,
    /// There is no such site, or it is this one.
    NoSite,
    /// It was given up already.
    IsLost,
    /// Another site is becoming the hub.
    IsClaimed(SiteId),
    /// This hub has no lease, so that others may have given it up.
    NoLease,
}

impl fmt::Display for ReignRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeading => f.write_str("this server does not lead its site now: ask the one that does"),
            Self::NotJoined => f.write_str("this site is none of the others now"),
            Self::NotTheHub(hub) => write!(f, "only the hub does that: ask at the leader of site {hub}"),
            Self::IsTheHub => f.write_str("this site is the hub already"),
            Self::NoSite => f.write_str("there is no such site, or it is this one"),
            Self::IsLost => f.write_str("it was given up already"),
            Self::IsClaimed(hub) => write!(f, "site {hub} is becoming the hub: wait until it is"),
            Self::NoLease => f.write_str(
                "too few sites answer this hub for it to have a lease, and they may have another hub by now \
                 (site-automatic-promotion): mend the lines to them and try again. Only if you know that there is no \
                 other hub, and that those which are away are lost for good: start all servers of this site with \
                 site-automatic-promotion = false, give them up then, and set it again when others have joined",
            ),
        }
    }
}

impl core::error::Error for ReignRefusal {}

/// What a site claims next that finds another one wanting the same reign: the one with the smaller number does, and the
/// other follows it. `None` where that is not so, or one gives the other up.
fn outbid(own: SiteId, mine: Claim, other: Claim) -> Option<Claim> {
    let is_rival = mine.hub == own && mine.reign == other.reign && own < other.hub;
    let are_apart = mine.lost.contains(other.hub) || other.lost.contains(own);
    let needed = other.needed.iter().fold(mine.needed.with(other.hub), SiteSet::with);
    let needed = needed.without(mine.lost.with(own));
    (is_rival && !are_apart).then_some(Claim { reign: mine.reign + 1, needed, ..mine })
}

impl Replica {
    /// At the hub's leader: a site is given up. What it held is the hub's from now on, its sessions are at home here, and
    /// what it has done and not shipped is lost.
    ///
    /// # Errors
    /// Why it is not.
    pub fn lose_site(&mut self, site: SiteId, now: Now) -> Result<(), ReignRefusal> {
        self.at(now);
        let own = self.leads_site()?;
        let tree = self.applied.partition.tree();
        let hub = tree.hub().unwrap_or_default();
        match () {
            () if own != hub => return Err(ReignRefusal::NotTheHub(hub)),
            () if site == own || !(1..=SITE_MAX).contains(&site) => return Err(ReignRefusal::NoSite),
            () => {}
        }
        if let Some(claim) = tree.streams().claim() {
            return Err(ReignRefusal::IsClaimed(claim.hub));
        }
        if tree.is_lost(site) {
            return Err(ReignRefusal::IsLost);
        }
        if !self.holds_lease() {
            return Err(ReignRefusal::NoLease);
        }
        let reign = tree.reign();
        let proposed = self.propose_reign_of((reign, hub), SiteSet::of(site));
        proposed.map_err(|_| ReignRefusal::NoSite)?;
        self.sites.proposed.lost = self.sites.proposed.lost.with(site);
        self.pump();
        Ok(())
    }

    /// At the leader of a site: that is to be the hub, as soon as those that are `needed` have followed. Those in `lost`
    /// are given up. It may be claimed once more with others, and also by the hub itself, which so stays what it is.
    ///
    /// # Errors
    /// Why it does not become it.
    pub fn claim_reign(&mut self, lost: SiteSet, needed: SiteSet, now: Now) -> Result<Claim, ReignRefusal> {
        self.at(now);
        let own = self.leads_site()?;
        let tree = self.applied.partition.tree();
        let before = tree.streams().claim();
        if lost.contains(own) {
            return Err(ReignRefusal::NoSite);
        }
        if tree.hub() == Some(own) && before.is_none() {
            return Err(ReignRefusal::IsTheHub);
        }
        let reign = before.map_or(0, |claim| claim.reign).max(tree.reign()) + 1;
        // One that is followed already may be the hub by now. One that was given up, as far as is known here, may have come
        // back: who does not name it again waits for it.
        let wanted = before.map_or(needed, |before| needed.with(before.hub)).without(SiteSet::of(own));
        let life = tree.times_lost(own);
        let needed = wanted.without(lost);
        let claim = Claim { reign, hub: own, life, lost, needed, is_automatic: false };
        self.propose_to_follow(claim);
        Ok(claim)
    }

    /// At the leader of a site: another one is to be the hub, and this site follows it.
    pub fn follow_site(&mut self, claim: Claim, now: Now) {
        self.at(now);
        let Ok(own) = self.leads_site() else { return };
        let tree = self.applied.partition.tree();
        if let Some(again) = tree.streams().claim().and_then(|mine| outbid(own, mine, claim)) {
            return self.propose_to_follow(again);
        }
        let known = tree.streams().claim().map_or(0, |claim| claim.reign).max(tree.reign());
        // Whom it follows already may be the hub by now, and has to follow, or to be given up, first.
        let followed = tree.streams().claim().map(|claim| claim.hub);
        let is_known =
            |hub: SiteId| claim.hub == hub || claim.lost.contains(hub) || claim.needed.contains(hub);
        let is_alive = claim.life >= tree.times_lost(claim.hub) && !claim.lost.contains(own);
        if claim.reign > known && is_alive && followed.is_none_or(is_known) && self.may_follow(claim) {
            self.propose_to_follow(claim);
        }
    }

    pub(super) fn propose_to_follow(&mut self, claim: Claim) {
        if self.sites.proposed.followed >= claim.reign {
            return;
        }
        // From now on nothing is done any more for others, nor by who is the hub: what is proposed from here on comes
        // behind this.
        self.sites.proposed.followed = claim.reign;
        self.sites.proposed.without.insert(claim.reign, claim.lost);
        self.propose_everywhere(&SiteItem::Follow(claim));
        self.pump();
    }

    pub(super) fn leads_site(&self) -> Result<SiteId, ReignRefusal> {
        let own = self.applied.partition.tree().own_site().filter(|_| self.has_joined());
        let own = own.ok_or(ReignRefusal::NotJoined)?;
        if self.leads_here() { Ok(own) } else { Err(ReignRefusal::NotLeading) }
    }

    /// At the leader: the others have given this site up.
    pub fn site_is_lost(&mut self, now: Now) {
        self.at(now);
        if self.leads_here() && self.applied.partition.tree().streams().standing() == SiteStanding::Member {
            self.propose_everywhere(&SiteItem::Standing(SiteStanding::Lost));
            self.pump();
        }
    }

    /// Whether the others have given this site up, as it knows.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.applied.partition.tree().streams().standing() != SiteStanding::Member
    }

    /// At the leader of a site that the others have given up: they have said how much they have of what it has made.
    /// It is written down, so that this can be told when none of them can be asked.
    pub fn site_is_kept(&mut self, kept: &KeptZxids, now: Now) {
        self.at(now);
        let streams = self.applied.partition.tree().streams();
        let is_news = streams.standing() == SiteStanding::Lost && streams.kept().is_none();
        if is_news && self.prepares() {
            self.applied.partition.propose_site_item(None, &SiteItem::Kept { zxids: &kept.encode() });
            self.pump();
        }
    }

    /// At the leader of a site that the others have given up: what it has is given up, too, and the hub's state is to
    /// come in its place.
    ///
    /// # Errors
    /// When nobody has given it up, or this server does not lead.
    pub fn discard_site(&mut self, now: Now) -> Result<(), ReignRefusal> {
        self.at(now);
        if !self.leads_here() {
            return Err(ReignRefusal::NotLeading);
        }
        if self.applied.partition.tree().streams().standing() == SiteStanding::Member {
            return Err(ReignRefusal::NoSite);
        }
        self.propose_everywhere(&SiteItem::Standing(SiteStanding::Discarded));
        self.pump();
        Ok(())
    }

    /// At the hub's leader: writes which sites there are.
    ///
    /// # Errors
    /// Why it is not written.
    pub fn write_sites(&mut self, list: &str, now: Now) -> Result<(), ReignRefusal> {
        self.at(now);
        let own = self.leads_site()?;
        let tree = self.applied.partition.tree();
        if tree.hub() != Some(own) {
            return Err(ReignRefusal::NotTheHub(tree.hub().unwrap_or_default()));
        }
        if let Some(claim) = tree.streams().claim() {
            return Err(ReignRefusal::IsClaimed(claim.hub));
        }
        if !self.prepares() {
            return Err(ReignRefusal::NotLeading);
        }
        let request = Request::SetData { path: SITES_PATH, data: Some(list.as_bytes()), version: -1 };
        let caller = Caller { session: 0, identities: &[] };
        let written = self.applied.partition.propose(None, &request, None, &caller, self.now);
        self.pump();
        written.map_err(|_| ReignRefusal::NoSite)
    }

    /// Whether nothing is done for other sites, because one of them is becoming the hub.
    pub(super) fn is_between_reigns(&self) -> bool {
        let tree = self.applied.partition.tree();
        tree.streams().claim().is_some() || self.sites.proposed.followed > tree.reign()
    }

    /// At who claims a reign: it begins when all have followed that have to.
    pub(super) fn begin_reign(&mut self) {
        let tree = self.applied.partition.tree();
        let Some(claim) = tree.streams().claim().filter(|claim| Some(claim.hub) == tree.own_site()) else {
            return;
        };
        if tree.waits_for().is_empty() && self.sites.proposed.begun != claim.reign {
            self.sites.proposed.begun = claim.reign;
            let reign = (claim.reign, claim.hub);
            // It is one of the sites, so nothing speaks against it.
            let _ = self.propose_reign_of(reign, claim.lost);
        }
    }

    /// At the hub: sites that were given up and want to join anew are among the others again, before they are given the
    /// state.
    pub(super) fn let_return(&mut self) {
        let tree = self.applied.partition.tree();
        let may_return = self.may_add_site();
        if tree.own_site() != tree.hub() || !self.leads_here() || self.is_between_reigns() || !may_return {
            return;
        }
        let is_lost = |site: &SiteId| tree.is_lost(*site) && !self.sites.proposed.returning.contains(*site);
        let most = if self.may_be_replaced() { 1 } else { usize::MAX };
        let wanted = self.sites.wanted.joining.iter().copied().filter(is_lost).take(most);
        let wanted: Vec<SiteId> = wanted.collect();
        for site in wanted {
            self.sites.proposed.returning = self.sites.proposed.returning.with(site);
            // It is lost, so nothing speaks against it.
            let _ = self.propose_site_step(&SiteStep::Return { site });
        }
    }

    /// An update that says who the hub is, or who is none of the sites, is applied.
    pub(super) fn reign_applied(&mut self, update: &Update<'_>) {
        let Some(lost) = update.lost_sites() else { return };
        // Other sites say what they have by positions of the log. Where that is shared they are known when the entry is
        // applied, and until then nobody has it.
        let is_divided = self.applied.placement.is_divided();
        self.sites.lease.sites_changed(if is_divided { u64::MAX } else { self.applied.applying });
        let tree = self.applied.partition.tree();
        let own = tree.own_site().unwrap_or_default();
        if !self.has_sessions() {
            // What nobody has carried out is to be done here, and who asked others has to ask again.
            return self.sites.requests.all_are_for_here();
        }
        // They are at home here from now on, and nobody has heard of their clients here.
        let is_new = |id: i64| !self.sessions.live.contains(id);
        let come: Vec<(i64, i32)> = tree
            .sessions()
            .filter(|session| tree.home_of(session.id) == own && is_new(session.id))
            .map(|session| (session.id, session.timeout_ms))
            .collect();
        for (id, timeout_ms) in come {
            self.sessions.live.insert(id, timeout_ms, self.now);
        }
        for site in lost.iter() {
            self.site_lost(site);
            self.sites.settled.remove(&site);
        }
        self.sites.proposed.returning = SiteSet::default();
        self.sites.proposed.lost = self.sites.proposed.lost.without(lost);
        if self.timeline.leads() {
            self.resume_site();
        }
    }

    /// This site follows another one, is given up, or begins anew.
    pub(super) fn note_standing(&mut self, item: &Item<'_>) {
        match item.outcome {
            Outcome::Site(SiteItem::Follow(_)) if !self.has_sessions() => {
                self.sites.requests.all_are_for_here();
            }
            Outcome::Site(SiteItem::Follow(claim)) if item.origin.is_none() && self.timeline.leads() => {
                self.sites.proposed.without.remove(&claim.reign);
                self.resume_site();
            }
            Outcome::Site(SiteItem::Standing(_)) => {
                self.close_all(CloseReason::NotJoined);
                self.sites.outgoing.clear();
                self.sites.outbox.clear();
            }
            _ => {}
        }
    }
}
