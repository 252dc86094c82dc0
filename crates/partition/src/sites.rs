//! What an entry says of the streams between sites, and what of it goes to another site.
//!
//! ```text
//! site item := 1, server u8, number u64, reign u64, session i64, asked    what a client asks has to be carried out
//!                                                                          elsewhere, or later (reign = 0)
//!            | 2, from u8, position u64, item*                             this is what another site has at a position
//!            | 3, to u8, path                                              the hub wants a token back
//!            | 4, path                                                     it gets it no more than it has it
//!            | 5, to u8, session i64, asked                                that site is to carry out what is asked
//!            | 6                                                           it does not
//!            | 7, begins u8, slice                                         of the hub's state, which is to be this site's;
//!                                                                            the first one says how many partitions the
//!                                                                            hub has, the others 0
//!            | 8, site u8, hub u8, position u64                            that is all of it: it is that site, and has
//!                                                                          what the hub had at this position
//!            | 9, reign u64, hub u8, life u32, lost u32, needed u32        that site is to be the hub, and this one does
//!                                                                          nothing more for the hub before
//!            | 10, standing u8                                             the others have given this site up
//!            | 11, reign u64, term u64, asked u64                          it takes no part in giving up the hub for now
//!            | 12, (zxid i64)*                                             they have what it has made up to this zxid; where
//!                                                                            it has several partitions, one of each
//!            | 13, from u8, position u64, item*                            of what another site has at a position, what
//!                                                                            concerns this partition, where there are several
//!            | 14, session i64, home u8                                    that session gets something here with the next
//! ```
//! Integers are little-endian. A request of a site's client is named by the site, the client's server there and its
//! number, as who asked of an item. A site ships of each of its entries what concerns the other one ([`export`]), and
//! that one makes it an item of an entry of its own, so that it is durable there before anything follows from it, and
//! comes once.

use crate::entry::{Item, Items, Outcome, put_item_of, put_item_of_nobody, put_site_item};
use crate::partition::Partition;
use crate::share::next_number;
use crate::time::Now;
use alloc::vec::Vec;
use core::fmt;
use stoa_timeline::Origin;
use stoa_tree::{
    CarriedOut, Claim, CorruptUpdate, KeptZxids, Places, SITE_MAX, SiteId, SiteSet, SiteStanding, Source,
    Ticket, TokenRefusal, Tree, Update, Waiting, site_of_zxid, source_of_zxid,
};
use stoa_wire::ZXID_MAX;

const FORWARDED: u8 = 1;
const IMPORT: u8 = 2;
const RECALL: u8 = 3;
const NOT_RECALLED: u8 = 4;
const VISIT: u8 = 5;
const DECLINED: u8 = 6;
const STATE: u8 = 7;
const JOINED: u8 = 8;
const FOLLOW: u8 = 9;
const STANDING: u8 = 10;
const PROMISED: u8 = 11;
/// No site has more partitions.
const PARTITIONS_MAX: u8 = 64;
const KEPT: u8 = 12;
const SHARE: u8 = 13;
const OWNER: u8 = 14;

/// Something of the streams between sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteItem<'a> {
    /// A request that cannot be prepared where it was asked, or not now.
    Forwarded {
        /// The server that its client is connected to.
        server: u8,
        /// The number that its site gives it.
        number: u64,
        /// The reign whose hub has to see to it; 0 when it is to be carried out here, when what its session has asked
        /// before has been.
        reign: u64,
        /// The session.
        session: i64,
        /// What is asked: [`crate::Asked`].
        asked: &'a [u8],
    },
    /// What another site has at a position of its log.
    Import {
        /// The site.
        from: SiteId,
        /// The position there.
        position: u64,
        /// Items, as in an entry.
        items: &'a [u8],
    },
    /// At the hub: the token of what is at a path is wanted back from the site that holds it.
    Recall {
        /// The site.
        to: SiteId,
        /// The path.
        path: &'a str,
    },
    /// There is no token here that could be given back.
    NotRecalled {
        /// The path.
        path: &'a str,
    },
    /// At the hub: a site is to carry out the request that the item is of.
    Visit {
        /// The site.
        to: SiteId,
        /// The session.
        session: i64,
        /// What is asked.
        asked: &'a [u8],
    },
    /// It does not hold what that takes: the hub has to find somebody else.
    Declined,
    /// A slice of the hub's state, see [`Tree::take_hub_state`].
    State {
        /// How many partitions the hub has, where it is the first one; else 0.
        begins: u8,
        /// The slice.
        slice: &'a [u8],
    },
    /// There are no more of them, see [`Tree::join`].
    Joined {
        /// Which site this is from now on.
        site: SiteId,
        /// The hub.
        hub: SiteId,
        /// Where the hub's log stood.
        position: u64,
    },
    /// A site is to be the hub: this one claims that itself, or follows who does. See [`stoa_tree::Claim`].
    Follow(Claim),
    /// What this site is to the others from now on: they have given it up, or it gives up what it has.
    Standing(SiteStanding),
    /// This site takes no part in giving up the hub for some time.
    Promised {
        /// The hub's reign.
        reign: u64,
        /// The term in which its leader leads it.
        term: u64,
        /// When that has asked for it, by its own monotonic clock, microseconds.
        asked_us: u64,
    },
    /// Of what another site has at a position of its log, what concerns this partition; the first one has all of it.
    Share {
        /// The site.
        from: SiteId,
        /// The position there.
        position: u64,
        /// Items, as in an entry.
        items: &'a [u8],
    },
    /// A session gets something here with the share that follows; see [`Tree::know_owner`].
    Owner {
        /// The session.
        session: i64,
        /// Its home.
        home: SiteId,
    },
    /// At a site that was given up: so much the others have of what it has made, and nothing behind it.
    Kept {
        /// The last zxid of each partition: see [`KeptZxids::encode`].
        zxids: &'a [u8],
    },
}

impl<'a> SiteItem<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Forwarded { server, number, reign, session, asked } => {
                out.extend_from_slice(&[FORWARDED, server]);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&reign.to_le_bytes());
                out.extend_from_slice(&session.to_le_bytes());
                out.extend_from_slice(asked);
            }
            Self::Import { from, position, items } => {
                out.extend_from_slice(&[IMPORT, from]);
                out.extend_from_slice(&position.to_le_bytes());
                out.extend_from_slice(items);
            }
            Self::Recall { to, path } => {
                out.extend_from_slice(&[RECALL, to]);
                out.extend_from_slice(path.as_bytes());
            }
            Self::NotRecalled { path } => {
                out.push(NOT_RECALLED);
                out.extend_from_slice(path.as_bytes());
            }
            Self::Visit { to, session, asked } => {
                out.extend_from_slice(&[VISIT, to]);
                out.extend_from_slice(&session.to_le_bytes());
                out.extend_from_slice(asked);
            }
            Self::Declined => out.push(DECLINED),
            Self::State { begins, slice } => {
                out.extend_from_slice(&[STATE, begins]);
                out.extend_from_slice(slice);
            }
            Self::Joined { site, hub, position } => {
                out.extend_from_slice(&[JOINED, site, hub]);
                out.extend_from_slice(&position.to_le_bytes());
            }
            Self::Follow(Claim { reign, hub, life, lost, needed, is_automatic }) => {
                out.push(FOLLOW);
                out.extend_from_slice(&reign.to_le_bytes());
                out.push(hub);
                out.extend_from_slice(&life.to_le_bytes());
                out.extend_from_slice(&lost.bits().to_le_bytes());
                out.extend_from_slice(&needed.bits().to_le_bytes());
                out.push(u8::from(is_automatic));
            }
            Self::Standing(standing) => out.extend_from_slice(&[STANDING, standing as u8]),
            Self::Promised { reign, term, asked_us } => {
                out.push(PROMISED);
                for number in [reign, term, asked_us] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
            Self::Share { from, position, items } => {
                out.extend_from_slice(&[SHARE, from]);
                out.extend_from_slice(&position.to_le_bytes());
                out.extend_from_slice(items);
            }
            Self::Owner { session, home } => {
                out.push(OWNER);
                out.extend_from_slice(&session.to_le_bytes());
                out.push(home);
            }
            Self::Kept { zxids } => {
                out.push(KEPT);
                out.extend_from_slice(zxids);
            }
        }
    }

    /// Reads all that the bytes are; of an import also whether its items can be read. What is imported itself holds no
    /// import, so nothing here goes deeper than that.
    pub(crate) fn decode(bytes: &'a [u8], is_imported: bool) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            FORWARDED => {
                let (server, rest) = rest.split_first()?;
                let (number, rest) = number(rest)?;
                let (reign, rest) = self::number(rest)?;
                let (session, asked) = number_i64(rest)?;
                Self::Forwarded { server: *server, number, reign, session, asked }
            }
            IMPORT if !is_imported => {
                let (from, rest) = rest.split_first()?;
                let (position, items) = number(rest)?;
                Items::imported(items).all(|item| item.is_ok()).then_some(Self::Import {
                    from: *from,
                    position,
                    items,
                })?
            }
            RECALL => {
                let (to, path) = rest.split_first()?;
                Self::Recall { to: *to, path: core::str::from_utf8(path).ok()? }
            }
            NOT_RECALLED => Self::NotRecalled { path: core::str::from_utf8(rest).ok()? },
            VISIT => {
                let (to, rest) = rest.split_first()?;
                let (session, asked) = number_i64(rest)?;
                Self::Visit { to: *to, session, asked }
            }
            DECLINED if rest.is_empty() => Self::Declined,
            STATE if !is_imported => {
                let (begins, slice) = rest.split_first()?;
                (*begins <= PARTITIONS_MAX).then_some(Self::State { begins: *begins, slice })?
            }
            JOINED if !is_imported => {
                let ([site, hub], rest) = rest.split_first_chunk()?;
                let (position, rest) = number(rest)?;
                rest.is_empty().then_some(Self::Joined { site: *site, hub: *hub, position })?
            }
            FOLLOW => Self::Follow(claim(rest)?),
            STANDING if !is_imported => match rest {
                [0] => Self::Standing(SiteStanding::Member),
                [1] => Self::Standing(SiteStanding::Lost),
                [2] => Self::Standing(SiteStanding::Discarded),
                _ => return None,
            },
            PROMISED if !is_imported => {
                let (reign, rest) = number(rest)?;
                let (term, rest) = number(rest)?;
                let (asked_us, rest) = number(rest)?;
                rest.is_empty().then_some(Self::Promised { reign, term, asked_us })?
            }
            SHARE | OWNER if !is_imported => Self::decode_of_partition(*kind, rest)?,
            KEPT if !is_imported => KeptZxids::decode(rest).map(|_| Self::Kept { zxids: rest })?,
            _ => return None,
        })
    }

    /// One that is only where a site has several partitions.
    fn decode_of_partition(kind: u8, bytes: &'a [u8]) -> Option<Self> {
        if kind == OWNER {
            let (session, rest) = number_i64(bytes)?;
            let [home @ 1..=SITE_MAX] = *rest else { return None };
            return Some(Self::Owner { session, home });
        }
        let (from, rest) = bytes.split_first()?;
        let (position, items) = number(rest)?;
        let is_readable = Items::imported(items).all(|item| item.is_ok());
        is_readable.then_some(Self::Share { from: *from, position, items })
    }
}

fn claim(bytes: &[u8]) -> Option<Claim> {
    let (reign, rest) = number(bytes)?;
    let (hub, rest) = rest.split_first()?;
    let (life, rest) = rest.split_first_chunk()?;
    let life = u32::from_le_bytes(*life);
    let (lost, rest) = set(rest)?;
    let (needed, rest) = set(rest)?;
    let is_automatic = *rest == [1];
    let is_one = (is_automatic || *rest == [0]) && (1..=SITE_MAX).contains(hub);
    is_one.then_some(Claim { reign, hub: *hub, life, lost, needed, is_automatic })
}

fn set(bytes: &[u8]) -> Option<(SiteSet, &[u8])> {
    let (bits, rest) = bytes.split_first_chunk()?;
    Some((SiteSet::from_bits(u32::from_le_bytes(*bits)), rest))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

fn number_i64(bytes: &[u8]) -> Option<(i64, &[u8])> {
    number(bytes).map(|(number, rest)| (number.cast_signed(), rest))
}

impl fmt::Display for SiteItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forwarded { number, reign: 0, .. } => write!(f, "to be done later, as request {number}"),
            Self::Forwarded { number, reign, .. } => {
                write!(f, "to the hub of reign {reign} as request {number}")
            }
            Self::Import { from, position, items } => {
                write!(f, "from site {from} at {position}:")?;
                for item in Items::new(items) {
                    match item {
                        Ok(item) => write!(f, " [{item}]")?,
                        Err(corrupt) => write!(f, " [{corrupt}]")?,
                    }
                }
                Ok(())
            }
            Self::Recall { to, path } => write!(f, "recall {path:?} from site {to}"),
            Self::NotRecalled { path } => write!(f, "no token of {path:?} to give back"),
            Self::Visit { to, .. } => write!(f, "to be done at site {to}"),
            Self::Declined => f.write_str("to be done elsewhere after all"),
            Self::State { begins: 0, slice } => write!(f, "more of the hub's state, {} bytes", slice.len()),
            Self::State { slice, .. } => write!(f, "the hub's state begins, {} bytes", slice.len()),
            Self::Share { from, position, items } => {
                write!(
                    f,
                    "this partition's share of what site {from} has at {position}, {} bytes",
                    items.len()
                )
            }
            Self::Owner { session, home } => write!(f, "session 0x{session:x} of site {home} gets something"),
            Self::Joined { site, hub, position } => {
                write!(f, "joined as site {site}, with what hub {hub} had at {position}")
            }
            Self::Follow(Claim { reign, hub, .. }) => {
                write!(f, "site {hub} is to be the hub of reign {reign}")
            }
            Self::Standing(standing) => write!(f, "to the others this site is: {standing:?}"),
            Self::Promised { reign, term, .. } => {
                write!(f, "promised to the hub of reign {reign}, in its term {term}")
            }
            Self::Kept { zxids } => {
                let kept = KeptZxids::decode(zxids).unwrap_or_default();
                write!(f, "the others have what this site has made up to zxid {kept}")
            }
        }
    }
}

/// The request that an item is of, if it is one of a site's client.
#[must_use]
pub fn ticket_of(origin: Option<Origin>) -> Option<Ticket> {
    let origin = origin.filter(|origin| origin.site != 0)?;
    Some(Ticket { site: origin.site, number: origin.request })
}

/// Takes in what an item says of joining the other sites, when it is applied, at every server; at the first partition, if
/// there are several. If the state is another one now, returns what the others have of it. A state that is not whole is
/// none: who leads asks for it again.
pub fn note_joining(tree: &mut Tree, item: &Item<'_>, places: &Places<'_>) -> Option<Vec<Tree>> {
    match item.outcome {
        Outcome::Site(SiteItem::State { begins, slice }) => {
            tree.take_hub_state(begins, slice);
            None
        }
        Outcome::Site(SiteItem::Joined { site, hub, position }) => {
            tree.join(site, hub, position, places).ok()
        }
        _ => None,
    }
}

/// Whether an item that another site has is for this one to hear: only its hub has anything done, or tokens returned. One
/// that was the hub may say all that once more, to who is it now.
#[must_use]
pub fn is_heeded(tree: &Tree, from: SiteId, item: &Item<'_>) -> bool {
    let is_of_hub = matches!(item.outcome, Outcome::Site(SiteItem::Visit { .. } | SiteItem::Recall { .. }));
    !is_of_hub || tree.hub() == Some(from)
}

/// Notes what an item says of the streams, when it is applied, at every server. Returns the request that has its
/// outcome by it, if that has waited here.
pub fn note_in_streams(tree: &mut Tree, item: &Item<'_>) -> Option<Waiting> {
    let (own, hub) = (tree.own_site()?, tree.hub()?);
    let ticket = ticket_of(item.origin);
    let (current, is_claimed) = (tree.reign(), tree.streams().claim().is_some());
    let is_gone = |site: SiteId| tree.is_lost(site);
    match (item.outcome, ticket) {
        (Outcome::Site(SiteItem::Forwarded { server, number, reign, session, asked }), _) => {
            let ticket = ticket.unwrap_or(Ticket { site: own, number });
            // One that was for another hub is asked once more by its own site.
            let is_for_nobody = ticket.site != own && (own != hub || reign != current || is_claimed);
            if is_for_nobody {
                return None;
            }
            let is_done_here = reign != current || own == hub || is_claimed;
            let by = if is_done_here { CarriedOut::Here } else { CarriedOut::At(hub) };
            tree.streams_mut().wait(own, Waiting { ticket, server, session, by, asked: asked.to_vec() });
        }
        (Outcome::Site(SiteItem::Visit { to, session, asked }), Some(ticket)) => {
            // What was said before a site was given up, or another one followed, was for that.
            let is_for_nobody = ticket.site != own && (is_claimed || is_gone(ticket.site));
            if is_for_nobody {
                return None;
            }
            let is_done_here = to == own || is_claimed || is_gone(to);
            let by = if is_done_here { CarriedOut::Here } else { CarriedOut::At(to) };
            let streams = tree.streams_mut();
            let server = item.origin.map_or(0, |origin| origin.server);
            streams.wait(own, Waiting { ticket, server, session, by, asked: asked.to_vec() });
        }
        (Outcome::Site(SiteItem::Declined), Some(ticket)) if own == hub => {
            tree.streams_mut().comes_back(ticket);
        }
        (Outcome::Site(SiteItem::Recall { to, path }), _) if to == own && !is_claimed => {
            tree.streams_mut().recall(path);
        }
        (Outcome::Site(SiteItem::NotRecalled { path }), _) => tree.streams_mut().recall_is_done(path),
        (Outcome::Site(SiteItem::Follow(claim)), _) => match item.origin {
            // Another site follows this one, and says so behind all that it has done before.
            Some(who) => {
                let is_ours = tree.streams().claim() == Some(claim) && claim.hub == own;
                if is_ours {
                    tree.streams_mut().has_followed(who.site);
                }
            }
            None => tree.follow(claim),
        },
        (Outcome::Site(SiteItem::Standing(standing)), _) => tree.streams_mut().set_standing(standing),
        (Outcome::Site(SiteItem::Promised { reign, .. }), _) => tree.streams_mut().has_promised_in(reign),
        (Outcome::Site(SiteItem::Kept { zxids }), _) => {
            KeptZxids::decode(zxids).into_iter().for_each(|kept| tree.streams_mut().set_kept(kept));
        }
        (Outcome::Site(SiteItem::Import { .. } | SiteItem::Recall { .. }), _) => {}
        (_, Some(ticket)) => {
            if ticket.site == own {
                let streams = tree.streams_mut();
                let before = streams.left_behind(ticket);
                before.into_iter().for_each(|before| drop(streams.answered(before)));
            }
            return tree.streams_mut().answered(ticket);
        }
        _ => {}
    }
    None
}

/// The same at a partition other than the first one, which knows no requests on their way but which numbers it has given
/// away.
pub fn note_at_partition(tree: &mut Tree, item: &Item<'_>) {
    match item.outcome {
        Outcome::Site(SiteItem::Forwarded { number, .. }) => tree.streams_mut().note_number(number),
        Outcome::Site(SiteItem::Follow(claim)) => tree.follow(claim),
        Outcome::Site(SiteItem::Standing(standing)) => tree.streams_mut().set_standing(standing),
        Outcome::Site(SiteItem::Owner { session, home }) => tree.know_owner(session, home),
        _ => {}
    }
}

/// Between which sites something is shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Whose entry it is.
    pub from: SiteId,
    /// Where it goes: the hub, or from the hub to another one.
    pub to: SiteId,
    /// The hub.
    pub hub: SiteId,
    /// Its reign.
    pub reign: u64,
    /// Where the sender's log stood when that had begun there.
    pub reigned_at: u64,
}

/// Appends what of the entry at a position another site has to know, as items. Of what was said before this reign only
/// what was done concerns anybody, and what that has led to. Returns whether each other site has to know the same: so it is
/// of what the sender's own clients have changed.
///
/// # Errors
/// When the entry is damaged.
pub fn export(position: u64, entry: &[u8], link: Link, out: &mut Vec<u8>) -> Result<bool, CorruptUpdate> {
    let is_current = position > link.reigned_at;
    out.reserve(entry.len());
    let (mut items, mut is_for_all) = (Items::new(entry), true);
    loop {
        while let Some((rest, update)) = items.next_plain() {
            is_for_all &= site_of_zxid(update.zxid) == link.from;
            if is_news(&update, link) {
                put_item_of_nobody(out, rest);
            }
        }
        let before = items.rest();
        let Some(item) = items.next() else { return Ok(is_for_all) };
        is_for_all = false;
        let item = item?;
        let bytes = &before[..before.len() - items.rest().len()];
        let ticket = item.origin.filter(|origin| origin.site != 0);
        match item.outcome {
            Outcome::Site(SiteItem::Import { from, items, .. }) if from != link.to => {
                export_imported(items, link, out)?;
            }
            Outcome::Update(update) if is_news(&update, link) => put_item_of(out, ticket, bytes),
            Outcome::Ran(ran) if ran.update.is_some_and(|update| is_news(&update, link)) => {
                put_item_of(out, ticket, bytes);
            }
            Outcome::Refused(_) | Outcome::Failed(..) | Outcome::Untaken | Outcome::Ran(_)
                if is_for(ticket, link) =>
            {
                put_item_of(out, ticket, bytes);
            }
            Outcome::Site(SiteItem::Forwarded { server, number, reign, .. })
                if link.to == link.hub && reign == link.reign =>
            {
                put_item_of(out, Some(Origin { server, request: number, site: link.from }), bytes);
            }
            Outcome::Site(SiteItem::Recall { to, .. } | SiteItem::Visit { to, .. })
                if to == link.to && is_current =>
            {
                put_item_of(out, ticket, bytes);
            }
            Outcome::Site(SiteItem::NotRecalled { .. } | SiteItem::Declined)
                if link.to == link.hub && is_current =>
            {
                put_item_of(out, ticket, bytes);
            }
            Outcome::Site(SiteItem::Follow(claim)) if claim.hub == link.to => {
                put_item_of(out, Some(Origin { server: 0, request: 0, site: link.from }), bytes);
            }
            _ => {}
        }
    }
}

/// The hub passes on what one site has done to the others.
fn export_imported(entry: &[u8], link: Link, out: &mut Vec<u8>) -> Result<(), CorruptUpdate> {
    let mut items = Items::new(entry);
    loop {
        let before = items.rest();
        let Some(item) = items.next() else { return Ok(()) };
        let item = item?;
        let bytes = &before[..before.len() - items.rest().len()];
        let is_for_it = match item.outcome {
            Outcome::Update(update) => is_news(&update, link),
            Outcome::Ran(ran) => {
                ran.update.map_or(is_for(item.origin, link), |update| is_news(&update, link))
            }
            Outcome::Refused(_) | Outcome::Failed(..) | Outcome::Untaken => is_for(item.origin, link),
            _ => false,
        };
        if is_for_it {
            put_item_of(out, item.origin, bytes);
        }
    }
}

/// Whether the receiver does not have an update, and has to.
fn is_news(update: &Update<'_>, link: Link) -> bool {
    site_of_zxid(update.zxid) != link.to && !update.is_of_one_site()
}

/// Whether the outcome of a request is for the receiver: it is its own, or the hub gets it for another one.
fn is_for(ticket: Option<Origin>, link: Link) -> bool {
    ticket.is_some_and(|origin| origin.site != 0 && (origin.site == link.to || link.to == link.hub))
}

/// Calls `each` with the source and the zxid of each update that an entry holds, also of those that have come from others.
pub fn made_in(entry: &[u8], each: &mut impl FnMut(Source, i64)) {
    for item in Items::new(entry).map_while(Result::ok) {
        match item.outcome {
            Outcome::Site(SiteItem::Import { items, .. }) => {
                for imported in Items::imported(items).map_while(Result::ok) {
                    update_of(&imported).into_iter().for_each(|zxid| each(source_of_zxid(zxid), zxid));
                }
            }
            _ => update_of(&item).into_iter().for_each(|zxid| each(source_of_zxid(zxid), zxid)),
        }
    }
}

/// Calls `each` with each update in an entry that the site of this log has made itself.
///
/// # Errors
/// When the entry is damaged; what stands before that was told.
pub fn own_updates<'a>(entry: &'a [u8], each: &mut impl FnMut(Update<'a>)) -> Result<(), CorruptUpdate> {
    for item in Items::new(entry) {
        match item?.outcome {
            Outcome::Update(update) => each(update),
            Outcome::Ran(ran) => ran.update.into_iter().for_each(&mut *each),
            _ => {}
        }
    }
    Ok(())
}

fn update_of(item: &Item<'_>) -> Option<i64> {
    update_in(item).map(|update| update.zxid)
}

/// The update that an item is, if it is one.
pub fn update_in<'a>(item: &Item<'a>) -> Option<Update<'a>> {
    match item.outcome {
        Outcome::Update(update) => Some(update),
        Outcome::Ran(ran) => ran.update,
        _ => None,
    }
}

/// Whether an item is no update: what is said of the streams, and outcomes that change nothing.
#[must_use]
pub fn is_of_streams(item: &Item<'_>) -> bool {
    update_of(item).is_none()
}

/// Where sites are given up the next zxid is larger than all that those may have told their clients, and nobody else: no
/// other site would let these clients in before it has come as far. So many are left out for 2^26 updates that a site has
/// made alone, ...
const LOST_ZXIDS: i64 = 1 << 37;
/// ... and as many as those of eight losses for each reign before: of what was given up in one nothing may be known, where
/// its hub is given up. There are enough for four million reigns.
const REIGN_ZXIDS: i64 = 8 * LOST_ZXIDS;

/// A zxid above which that of a reign has to be which begins, or goes on, without some sites, where one has been seen.
#[must_use]
pub fn zxid_beyond_lost(seen: i64, reign: u64) -> i64 {
    let of_reigns = i64::try_from(reign).map_or(0, |reigns| reigns.saturating_mul(REIGN_ZXIDS));
    seen.max(of_reigns.min(ZXID_MAX / 2)) + LOST_ZXIDS
}

impl Partition {
    /// This is a site from now on, see [`stoa_tree::Tree::prepare_site`].
    ///
    /// # Errors
    /// When there is no such site.
    pub fn propose_site(&mut self, site: SiteId, hub: SiteId, now: Now) -> Result<(), TokenRefusal> {
        self.site_update(now, |tree, stamp, entry| tree.prepare_site(site, hub, stamp, entry))
    }

    /// Gives a token away, see [`stoa_tree::Tree::prepare_token`].
    ///
    /// # Errors
    /// Why it is not given.
    pub fn propose_token(&mut self, path: &str, holder: SiteId, now: Now) -> Result<(), TokenRefusal> {
        self.site_update(now, |tree, stamp, entry| tree.prepare_token(path, holder, stamp, entry))
    }

    /// Gives read tokens of a znode to sites, see [`stoa_tree::Tree::prepare_read_tokens`].
    ///
    /// # Errors
    /// Why they are not given.
    pub fn propose_read_tokens(&mut self, path: &str, to: SiteSet, now: Now) -> Result<(), TokenRefusal> {
        self.site_update(now, |tree, stamp, entry| tree.prepare_read_tokens(path, to, stamp, entry))
    }

    /// Returns this site's read token of a znode, see [`stoa_tree::Tree::prepare_read_return`].
    ///
    /// # Errors
    /// When there is none.
    pub fn propose_read_return(&mut self, path: &str, now: Now) -> Result<(), TokenRefusal> {
        self.site_update(now, |tree, stamp, entry| tree.prepare_read_return(path, stamp, entry))
    }

    /// A reign begins, or goes on without some sites, see [`stoa_tree::Tree::prepare_reign`]. Without some of them its
    /// zxid is larger than any that those have told their clients.
    ///
    /// # Errors
    /// When there is no such site.
    pub fn propose_reign(
        &mut self,
        reign: (u64, SiteId),
        lost: SiteSet,
        now: Now,
    ) -> Result<(), TokenRefusal> {
        if !lost.is_empty() {
            self.proposed_zxid = zxid_beyond_lost(self.zxid_seen(), reign.0);
        }
        self.site_update(now, |tree, stamp, entry| tree.prepare_reign(reign, lost, stamp, entry))
    }

    /// A site that was given up is to be one again, see [`stoa_tree::Tree::prepare_return`].
    ///
    /// # Errors
    /// When it was not given up.
    pub fn propose_return(&mut self, site: SiteId, now: Now) -> Result<(), TokenRefusal> {
        self.site_update(now, |tree, stamp, entry| tree.prepare_return(site, stamp, entry))
    }

    /// The sites use another feature level, see [`stoa_tree::Tree::prepare_level`].
    ///
    /// # Errors
    /// When it is not raised by that, or this is not the hub.
    pub fn propose_level(&mut self, level: u8, now: Now) -> Result<(), TokenRefusal> {
        self.site_update(now, |tree, stamp, entry| tree.prepare_level(level, stamp, entry))
    }

    /// Something of the streams.
    pub fn propose_site_item(&mut self, origin: Option<Origin>, item: &SiteItem<'_>) {
        put_site_item(&mut self.entry, origin, item);
    }

    /// A request that is to be carried out elsewhere or later. Returns the number that it has from now on.
    pub fn propose_forwarded(&mut self, origin: Origin, here: bool, session: i64, asked: &[u8]) -> u64 {
        let reign = if here { 0 } else { self.tree.reign() };
        let number = next_number(self.numbered.max(self.tree.streams().numbered()), self.share());
        self.numbered = number + 1;
        let item = SiteItem::Forwarded { server: origin.server, number, reign, session, asked };
        put_site_item(&mut self.entry, Some(origin), &item);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::begin_update;
    use stoa_tree::{Contact, Options, Stamp};

    fn samples() -> Vec<SiteItem<'static>> {
        vec![
            SiteItem::Forwarded { server: 3, number: 7, reign: 0, session: -9, asked: b"asked" },
            SiteItem::Import { from: 2, position: 1 << 40, items: b"" },
            SiteItem::Recall { to: 2, path: "/a/b" },
            SiteItem::NotRecalled { path: "/a/b" },
            SiteItem::Visit { to: 3, session: 8, asked: b"" },
            SiteItem::Declined,
            SiteItem::State { begins: 1, slice: b"slice" },
            SiteItem::Share { from: 2, position: 7, items: b"" },
            SiteItem::Owner { session: 7, home: 31 },
            SiteItem::Joined { site: 2, hub: 1, position: 9 },
            SiteItem::Follow(Claim {
                reign: 2,
                hub: 4,
                life: 1,
                lost: SiteSet::of(1),
                needed: SiteSet::of(5).with(6),
                is_automatic: true,
            }),
            SiteItem::Standing(SiteStanding::Lost),
            SiteItem::Kept { zxids: &[0, 0x48, 0, 0, 0, 0, 0, 0] },
        ]
    }

    #[test]
    fn site_items_come_back() {
        let mut entry = Vec::new();
        let origin = Some(Origin { server: 4, request: 5, site: 6 });
        samples().iter().for_each(|item| put_site_item(&mut entry, origin, item));
        let read: Vec<_> = Items::new(&entry).map(|item| item.unwrap()).collect();
        assert_eq!(read.len(), samples().len());
        for (read, item) in read.iter().zip(samples()) {
            assert_eq!((read.origin, read.outcome), (origin, Outcome::Site(item)));
        }
        for len in 0..entry.len() {
            // Cut anywhere, nothing panics.
            Items::new(&entry[..len]).for_each(|item| drop(item.map(|item| alloc::format!("{item}"))));
        }
    }

    #[test]
    fn no_import_is_in_an_import_however_deep() {
        let mut entry = Vec::new();
        for _ in 0..20_000 {
            let inner = core::mem::take(&mut entry);
            put_site_item(&mut entry, None, &SiteItem::Import { from: 2, position: 1, items: &inner });
            if inner.is_empty() {
                assert!(Items::new(&entry).all(|item| item.is_ok()));
                assert!(Items::imported(&entry).all(|item| item.is_err()));
            }
        }
        assert!(Items::new(&entry).next().unwrap().is_err());
    }

    #[test]
    fn each_site_gets_what_concerns_it() {
        let shipped = |entry: &[u8], from, to| {
            let mut out = Vec::new();
            export(9, entry, Link { from, to, hub: 1, reign: 3, reigned_at: 8 }, &mut out).unwrap();
            Items::new(&out).map(|item| item.unwrap().outcome).map(|it| alloc::format!("{it:?}")).collect()
        };
        let name = |item: SiteItem<'_>| alloc::format!("{:?}", Outcome::Site(item));
        let mut entry = Vec::new();
        samples().iter().for_each(|item| put_site_item(&mut entry, None, item));
        let forwarded = SiteItem::Forwarded { server: 1, number: 8, reign: 3, session: 1, asked: b"" };
        put_site_item(&mut entry, Some(Origin { server: 1, request: 99, site: 0 }), &forwarded);
        let up: Vec<_> = shipped(&entry, 2, 1);
        assert_eq!(up, [SiteItem::NotRecalled { path: "/a/b" }, SiteItem::Declined, forwarded].map(name));
        let down: Vec<_> = shipped(&entry, 1, 3);
        assert_eq!(down, [name(SiteItem::Visit { to: 3, session: 8, asked: b"" })]);
    }

    #[test]
    fn what_clients_have_changed_is_told_to_all_alike() {
        let mut entry = Vec::new();
        let update = |entry: &mut Vec<u8>, origin, count: i64, site: SiteId| {
            let stamp = Stamp { zxid: count << 11 | i64::from(site), time_ms: 5 };
            begin_update(entry, origin);
            let mut tree = Tree::new(Options::default());
            tree.prepare_create_session(7, 1000, [1; 16], Contact::default(), stamp, entry).unwrap();
        };
        for (count, server) in [None, Some(0), Some(9)].into_iter().enumerate() {
            let origin = server.map(|server| Origin { server, request: 5, site: 0 });
            update(&mut entry, origin, count as i64 + 1, 2);
        }
        let told = |entry: &[u8], to| {
            let mut out = b"before".to_vec();
            let link = Link { from: 2, to, hub: 2, reign: 3, reigned_at: 8 };
            let is_for_all = export(9, entry, link, &mut out).unwrap();
            (is_for_all, out)
        };
        let (is_for_all, out) = told(&entry, 3);
        // One of server 0 is found the long way round, and then nobody says that it is for all.
        assert!(!is_for_all);
        let items: Vec<_> = Items::new(&out[6..]).map(Result::unwrap).collect();
        let all: Vec<_> = Items::new(&entry).map(|item| item.unwrap().outcome).collect();
        assert_eq!(items.iter().map(|item| item.outcome).collect::<Vec<_>>(), all);
        assert!(items.iter().all(|item| item.origin.is_none()));
        let mut plain = Vec::new();
        (1..4)
            .for_each(|count| update(&mut plain, Some(Origin { server: 1, request: 1, site: 0 }), count, 2));
        assert_eq!(told(&plain, 3), told(&plain, 4));
        assert!(told(&plain, 3).0);
        // What a third site has made, or what a request of one has come to, is not for that one.
        update(&mut plain, None, 4, 3);
        assert!(!told(&plain, 4).0 && told(&plain, 3).1.len() < told(&plain, 4).1.len());
        let mut asked = Vec::new();
        update(&mut asked, Some(Origin { server: 1, request: 1, site: 3 }), 1, 2);
        assert!(!told(&asked, 4).0);
    }
}
