//! What the leaders of two sites make of each other when they meet: whom a site is to be connected to, what it says of
//! itself, what it is told, and what it believes by that. How they meet is for others.

use crate::levels::SiteLevels;
use crate::replica::Replica;
use stoa_tree::{Claim, KeptZxids, SiteId};

/// What the leader of a site says of it to another one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Whether the site has joined the others.
    pub has_joined: bool,
    /// How often it was given up, as far as it knows.
    pub lives: u32,
    /// The reign that it follows; 0 of none.
    pub following: u64,
    /// Whether it only looks around, and does not want to stay connected.
    pub looks: bool,
    /// What it can read and write.
    pub levels: SiteLevels,
}

/// What comes of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteAnswer {
    /// Both are connected.
    Connected,
    /// They are not: who answers is not the hub, or the other one only looks around.
    Known,
    /// They are not: the other one's site was given up, and is not listened to.
    Lost,
}

impl Greeting {
    /// What the leader of a site says of it.
    #[must_use]
    pub fn of(server: &Replica, looks: bool) -> Self {
        let tree = server.tree();
        Self {
            has_joined: server.has_joined(),
            lives: tree.own_site().map_or(0, |own| tree.times_lost(own)),
            following: reign_followed(server),
            looks,
            levels: server.own_levels(),
        }
    }
}

fn reign_followed(server: &Replica) -> u64 {
    server.tree().streams().claim().map_or(0, |claim| claim.reign).max(server.tree().reign())
}

/// The site that this one is to be connected to: the hub, or who is to be it. `believed` is the hub of a later reign than
/// is known here, as another site has said; `first` that of the list of sites.
#[must_use]
pub fn upper_site(
    server: &Replica,
    believed: (u64, SiteId),
    first: impl FnOnce() -> Option<SiteId>,
) -> Option<SiteId> {
    let tree = server.tree();
    let (reign, site) = believed;
    let believed = Some(site).filter(|site| *site != 0);
    let known = match (tree.own_site(), tree.streams().claim()) {
        (Some(_), _) if !server.has_joined() => believed.or(tree.hub()),
        (Some(_), Some(claim)) => Some(claim.hub),
        (Some(_), None) if reign > tree.reign() => Some(site),
        (Some(_), None) => tree.hub(),
        (None, _) => believed,
    };
    known.or_else(first).filter(|site| Some(*site) != tree.own_site())
}

/// Whether a greeting knows of a later hub than is known here.
#[must_use]
pub fn knows_later_hub(server: &Replica, greeting: &Greeting) -> bool {
    greeting.following > reign_followed(server)
}

/// Whether a site that is to follow this one was given up and has come back under a hub that is not known here: it has what
/// this site lacks, and cannot tell it. An operator has that site be the hub, or gives it up.
#[must_use]
pub fn is_of_later_life(server: &Replica, site: SiteId, greeting: &Greeting) -> bool {
    let tree = server.tree();
    let claims = tree.streams().claim().is_some_and(|claim| Some(claim.hub) == tree.own_site());
    claims && greeting.has_joined && !greeting.looks && greeting.lives > tree.times_lost(site)
}

/// What a site is answered that connects here, where a leader is of a site that has joined.
#[must_use]
pub fn answer_site(server: &Replica, site: SiteId, greeting: &Greeting) -> SiteAnswer {
    let tree = server.tree();
    let (own, hub, claim) = (tree.own_site(), tree.hub(), tree.streams().claim());
    let times = tree.times_lost(site);
    let is_another = greeting.lives != times;
    // Who follows a later hub may have been given up and have come back there: it is this site that has not heard of it.
    let is_lost =
        greeting.lives < times || (is_another || tree.is_lost(site)) && !knows_later_hub(server, greeting);
    let is_upper = claim.map_or(hub, |claim| Some(claim.hub)) == own;
    let follows = |claim: Claim| greeting.following == claim.reign;
    match () {
        () if greeting.has_joined && is_lost && hub == own => SiteAnswer::Lost,
        () if greeting.looks || !is_upper || greeting.has_joined && is_another => SiteAnswer::Known,
        // The state is the hub's to give.
        () if !greeting.has_joined && hub == own && claim.is_none() => SiteAnswer::Connected,
        () if !greeting.has_joined => SiteAnswer::Known,
        () if claim.is_some_and(follows) || claim.is_none() && greeting.following <= tree.reign() => {
            SiteAnswer::Connected
        }
        () => SiteAnswer::Known,
    }
}

/// What a site is told that was given up: what the others have of its updates. Of another life than the last one that
/// ended so nothing is known.
#[must_use]
pub fn kept_of_site(server: &Replica, site: SiteId, greeting: &Greeting) -> Option<KeptZxids> {
    let is_last = greeting.lives.checked_add(1) == Some(server.tree().times_lost(site));
    server.tree().kept_of_lost(site).filter(|_| is_last).cloned()
}

/// The hub that a site believes in, and its reign, when another one has said who it is.
#[must_use]
pub fn believed_hub(server: &Replica, believed: (u64, SiteId), told: (u64, SiteId)) -> (u64, SiteId) {
    let known = server.tree().reign().max(believed.0);
    let is_new = told.0 > known || !server.has_joined() && told.0 >= known;
    if is_new && told.1 != 0 { told } else { believed }
}
