//! The kinds of updates that are there because there are several sites.

use crate::Stamp;
use crate::digest;
use crate::encoding::{Decoder, Reason, put_path};
use crate::node::{ROOT_ID, ZnodeKind};
use crate::reserved;
use crate::session::{Contact, OpenSession, is_same_password};
use crate::sites::names::{NO_SITE, SITE_MAX, SiteId, SiteSet, Source};
use crate::tree::Tree;
use crate::update::{self, CorruptUpdate, Op, Update};
use alloc::vec::Vec;
use core::fmt;
use stoa_wire::ErrorCode;

// Tags; the others are those of `crate::update` and of `crate::partitions::ops`.
const BEGIN: u8 = 40;
const TOKEN: u8 = 41;
const HOME: u8 = 42;
const REIGN: u8 = 43;
const RETURN: u8 = 44;
const GIVE_READ: u8 = 45;
const RETURN_READ: u8 = 46;
const LEVEL: u8 = 47;

/// So many znodes can have read tokens.
const READ_TOKENS_MAX: usize = 4096;

/// One change that a tree of a single site does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiteOp<'a> {
    /// This is a site from now on; at the first one that is, also: there are sites, and that one is the hub.
    Begin { site: SiteId, hub: SiteId },
    /// The token of a znode, and of all below it without a mark of its own, goes to a site; with [`NO_SITE`] to the
    /// hub, whichever that is by then.
    Token { path: &'a str, holder: SiteId },
    /// The session of the update, and its ephemerals, are at home at a site, which was given up so often by then.
    Home { site: SiteId, life: u32 },
    /// A site is the hub in a reign, and others are given up: see [`crate::sites::reign`].
    Reign { reign: u64, hub: SiteId, lost: SiteSet },
    /// A site that was given up is to be one again.
    Return { site: SiteId },
    /// These sites have read tokens of a znode, too: see [`crate::sites::read_tokens`].
    GiveRead { path: &'a str, to: SiteSet },
    /// The site that says so has none any more of those up to one that an update had given.
    ReturnRead { path: &'a str, given: i64 },
    /// The sites use this feature level from now on: see [`crate::sites::level`].
    Level { level: u8 },
}

/// Why a token is not given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRefusal {
    /// There are no sites, or not this one.
    NoSite,
    /// There will be no such znode.
    NoZnode,
    /// It is an ephemeral: its session's home holds it as long as it lives.
    Ephemeral,
    /// It is not held here, or will not be.
    NotHeld,
}

impl fmt::Display for TokenRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSite => "there is no such site",
            Self::NoZnode => "there is no such znode",
            Self::Ephemeral => "the home of its session holds it",
            Self::NotHeld => "it is not held here",
        })
    }
}

impl core::error::Error for TokenRefusal {}

impl<'a> SiteOp<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Begin { site, hub } => out.extend_from_slice(&[BEGIN, site, hub]),
            Self::Token { path, holder } => {
                put_path(out, TOKEN, path);
                out.push(holder);
            }
            Self::Home { site, life } => {
                out.extend_from_slice(&[HOME, site]);
                out.extend_from_slice(&life.to_le_bytes());
            }
            Self::Reign { reign, hub, lost } => {
                out.push(REIGN);
                out.extend_from_slice(&reign.to_le_bytes());
                out.push(hub);
                out.extend_from_slice(&lost.bits().to_le_bytes());
            }
            Self::Return { site } => out.extend_from_slice(&[RETURN, site]),
            Self::GiveRead { path, to } => {
                put_path(out, GIVE_READ, path);
                out.extend_from_slice(&to.bits().to_le_bytes());
            }
            Self::ReturnRead { path, given } => {
                put_path(out, RETURN_READ, path);
                out.extend_from_slice(&given.to_le_bytes());
            }
            Self::Level { level } => out.extend_from_slice(&[LEVEL, level]),
        }
    }

    /// Whether an update may give a token to somebody, or return a read token, that begins with this tag: tokens move by
    /// themselves, and never with something else in a multi.
    pub(crate) fn may_move_tokens(tag: Option<u8>) -> bool {
        matches!(tag, Some(TOKEN | RETURN_READ))
    }

    /// Reads one whose tag has been read; `None` if it is no tag of these.
    pub(crate) fn decode(tag: u8, decoder: &mut Decoder<'a>) -> Option<Result<Self, Reason>> {
        match tag {
            BEGIN => {
                Some(site(decoder).and_then(|site_| Ok(Self::Begin { site: site_, hub: site(decoder)? })))
            }
            HOME => Some(site(decoder).and_then(|site| Ok(Self::Home { site, life: bits(decoder)? }))),
            TOKEN => Some(decoder.path().and_then(|path| {
                let holder = decoder.u8()?;
                if holder > SITE_MAX {
                    Err("a site is out of range")
                } else {
                    Ok(Self::Token { path, holder })
                }
            })),
            REIGN => Some(decoder.i64().map(i64::cast_unsigned).and_then(|reign| {
                let (hub, lost) = (site(decoder)?, SiteSet::from_bits(bits(decoder)?));
                Ok(Self::Reign { reign, hub, lost })
            })),
            RETURN => Some(site(decoder).map(|site| Self::Return { site })),
            GIVE_READ => Some(
                decoder
                    .path()
                    .and_then(|path| Ok(Self::GiveRead { path, to: SiteSet::from_bits(bits(decoder)?) })),
            ),
            RETURN_READ => {
                Some(decoder.path().and_then(|path| Ok(Self::ReturnRead { path, given: decoder.i64()? })))
            }
            LEVEL => Some(decoder.u8().map(|level| Self::Level { level })),
            _ => None,
        }
    }
}

fn bits(decoder: &mut Decoder<'_>) -> Result<u32, Reason> {
    Ok(decoder.i32()?.cast_unsigned())
}

fn site(decoder: &mut Decoder<'_>) -> Result<SiteId, Reason> {
    match decoder.u8()? {
        NO_SITE => Err("a site is none"),
        site @ ..=SITE_MAX => Ok(site),
        _ => Err("a site is out of range"),
    }
}

impl fmt::Display for SiteOp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Begin { site, hub } => write!(f, "begin_site site={site} hub={hub}"),
            Self::Token { path, holder } => write!(f, "token {path:?} holder={holder}"),
            Self::Home { site, .. } => write!(f, "home site={site}"),
            Self::Reign { reign, hub, lost } => {
                write!(f, "reign {reign} hub={hub} lost={:?}", lost.iter().collect::<Vec<_>>())
            }
            Self::Return { site } => write!(f, "return site={site}"),
            Self::GiveRead { path, to } => {
                write!(f, "read tokens {path:?} to={:?}", to.iter().collect::<Vec<_>>())
            }
            Self::Level { level } => write!(f, "feature level {level}"),
            Self::ReturnRead { path, given } => write!(f, "return read token {path:?} given={given:#x}"),
        }
    }
}

impl Tree {
    /// Makes an update with which this becomes a site, appended to `batch`. The first of all sites is the hub, and
    /// holds everything; any other one has taken over the state of another one, with its marks.
    ///
    /// # Errors
    /// When a number is that of no site; nothing was appended then.
    pub fn prepare_site(
        &mut self,
        site: SiteId,
        hub: SiteId,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), TokenRefusal> {
        let are_sites = [site, hub].iter().all(|site| (1..=SITE_MAX).contains(site));
        if !are_sites {
            return Err(TokenRefusal::NoSite);
        }
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, 0);
        SiteOp::Begin { site, hub }.encode(batch);
        update::end(batch, start);
        Ok(())
    }

    /// Makes an update that gives away the token of a znode, and of all below it without a mark of its own, appended
    /// to `batch`. From now on nothing is prepared here that needs it.
    ///
    /// # Errors
    /// Why it is not given; nothing was appended then.
    pub fn prepare_token(
        &mut self,
        path: &str,
        holder: SiteId,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), TokenRefusal> {
        self.check_token(path, holder)?;
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, 0);
        SiteOp::Token { path, holder: self.said_holder(holder) }.encode(batch);
        update::end(batch, start);
        self.overlay.touch_mark(stamp.zxid, path, holder);
        Ok(())
    }

    pub(super) fn check_token(&self, path: &str, holder: SiteId) -> Result<(), TokenRefusal> {
        let own = self.own_site().filter(|_| (1..=SITE_MAX).contains(&holder));
        let own = own.ok_or(TokenRefusal::NoSite)?;
        let state = self.project(path, self.hasher.path(path)).ok_or(TokenRefusal::NoZnode)?;
        if matches!(state.kind, ZnodeKind::Ephemeral { .. }) {
            return Err(TokenRefusal::Ephemeral);
        }
        if self.holder_to_be(path) != Some(own) || self.is_read_to_be(path) {
            return Err(TokenRefusal::NotHeld);
        }
        Ok(())
    }

    /// The holder as an update says it: by the time that the hub has a token another site may be the hub.
    pub(super) fn said_holder(&self, holder: SiteId) -> SiteId {
        if holder == self.sites.hub { NO_SITE } else { holder }
    }

    /// Makes an update that gives read tokens of a znode to sites, appended to `batch`. At the hub, while it holds the
    /// znode's token; from now on nobody writes what needs that.
    ///
    /// # Errors
    /// Why it does not; nothing was appended then. `NoSite` also when there are as many as there may be.
    pub fn prepare_read_tokens(
        &mut self,
        path: &str,
        to: SiteSet,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), TokenRefusal> {
        let own = self.own_site().filter(|own| *own == self.sites.hub && !to.is_empty());
        let own = own.ok_or(TokenRefusal::NoSite)?;
        let has_room = self.is_read_to_be(path) || self.sites.read_tokens.len() < READ_TOKENS_MAX;
        if !has_room {
            return Err(TokenRefusal::NoSite);
        }
        let state = self.project(path, self.hasher.path(path)).ok_or(TokenRefusal::NoZnode)?;
        if matches!(state.kind, ZnodeKind::Ephemeral { .. }) {
            return Err(TokenRefusal::Ephemeral);
        }
        if self.holder_to_be(path) != Some(own) {
            return Err(TokenRefusal::NotHeld);
        }
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, 0);
        SiteOp::GiveRead { path, to }.encode(batch);
        update::end(batch, start);
        to.iter().for_each(|site| self.overlay.touch_read(stamp.zxid, path, site, true));
        Ok(())
    }

    /// Makes an update that returns this site's read token of a znode, appended to `batch`. From now on it asks who holds
    /// the znode's token.
    ///
    /// # Errors
    /// When there is none; nothing was appended then.
    pub fn prepare_read_return(
        &mut self,
        path: &str,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), TokenRefusal> {
        let own = self.own_site().ok_or(TokenRefusal::NoSite)?;
        let given = self.sites.read_tokens.given(path, own);
        let given = given.filter(|_| self.reads_to_be(path, own)).ok_or(TokenRefusal::NotHeld)?;
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, 0);
        SiteOp::ReturnRead { path, given }.encode(batch);
        update::end(batch, start);
        self.overlay.touch_read(stamp.zxid, path, own, false);
        Ok(())
    }

    /// Makes an update with which a session goes to another site, where its client is, appended to `batch`. From now on
    /// nothing is prepared here that concerns the session or its ephemerals.
    ///
    /// # Errors
    /// When there is no such session with that password, or it is not at home here.
    pub fn prepare_home(
        &mut self,
        session: i64,
        password: &[u8],
        site: SiteId,
        stamp: Stamp,
        batch: &mut Vec<u8>,
    ) -> Result<(), ErrorCode> {
        let known = self.check_home(session, password, site)?;
        let start = update::begin(batch, stamp.zxid, stamp.time_ms, session);
        SiteOp::Home { site, life: self.times_lost(site) }.encode(batch);
        update::end(batch, start);
        self.goes_home(session, Some(known), site, stamp);
        Ok(())
    }

    pub(super) fn check_home(
        &self,
        session: i64,
        password: &[u8],
        site: SiteId,
    ) -> Result<OpenSession, ErrorCode> {
        let is_here = self.own_site() == Some(self.home_to_be(session)) && (1..=SITE_MAX).contains(&site);
        let known = self.proposed_session(session).filter(|_| is_here);
        let known = known.filter(|known| is_same_password(&known.password, password));
        known.ok_or(ErrorCode::SessionExpired)
    }

    /// It is proposed that a session goes to a site.
    pub(super) fn goes_home(&mut self, session: i64, known: Option<OpenSession>, site: SiteId, stamp: Stamp) {
        if let Some(known) = known {
            let contact = Contact::default();
            self.overlay.touch_session(stamp.zxid, session, Some(OpenSession { contact, ..known }));
        }
        self.overlay.touch_home(stamp.zxid, session, site);
    }

    pub(crate) fn apply_site_op(&mut self, update: &Update<'_>, op: SiteOp<'_>) -> Result<(), CorruptUpdate> {
        match op {
            SiteOp::Begin { site, hub } => {
                self.begin_site(update.zxid, site, hub);
                Ok(())
            }
            SiteOp::Token { path, holder } => self.apply_token(update, path, holder),
            SiteOp::Reign { reign, hub, lost } => self.apply_reign(update, (reign, hub), lost),
            SiteOp::Return { site } => self.apply_return(update, site),
            SiteOp::Level { level } => self.apply_level(update, level),
            SiteOp::GiveRead { path, to } => self.apply_read_tokens(update, path, to),
            SiteOp::ReturnRead { path, given } => {
                let by = self.sites.maker_of(update.zxid);
                self.sites.read_tokens.take(path, by, given);
                if by == self.sites.own {
                    self.sites.streams.recall_is_done(path);
                }
                Ok(())
            }
            SiteOp::Home { site, life } => {
                let site = if life == self.times_lost(site) { site } else { self.sites.hub };
                let told = self.zxids.last.max(update.zxid).max(self.told_by_all());
                let told = if site == self.sites.own { told } else { 0 };
                let gone = self.sessions.change(update.session, |session| {
                    // Nobody speaks for it before its client has come there.
                    (session.home, session.contact) = (site, Contact::default());
                    session.came_zxid = told;
                });
                // Only the first partition knows them all.
                if gone.is_none() && self.nodes[ROOT_ID].is_absent() {
                    return Ok(());
                }
                gone.ok_or_else(|| update.corrupt("a session goes elsewhere that is not there"))
            }
        }
    }

    fn begin_site(&mut self, zxid: i64, site: SiteId, hub: SiteId) {
        if !self.sites.are_there() {
            self.sites.since_zxid = self.zxids.last.max(zxid);
            self.set_mark(ROOT_ID, digest::ROOT_PATH, hub);
            self.sessions.set_all_homes(site);
            self.sites.floors.insert(Source::first_of(site), zxid);
        }
        (self.sites.own, self.sites.hub) = (site, hub);
        self.sites.reign = self.sites.reign.max(1);
    }

    fn apply_read_tokens(
        &mut self,
        update: &Update<'_>,
        path: &str,
        to: SiteSet,
    ) -> Result<(), CorruptUpdate> {
        self.expect_at(path, update)?;
        if !self.sites.are_there() {
            return Err(update.corrupt("it gives a token that there is none of"));
        }
        for site in to.iter().filter(|site| !self.sites.is_lost(*site)).collect::<Vec<_>>() {
            self.sites.read_tokens.give(path, site, update.zxid);
        }
        Ok(())
    }

    fn apply_token(&mut self, update: &Update<'_>, path: &str, holder: SiteId) -> Result<(), CorruptUpdate> {
        let is_split = self.is_split(path);
        let id = match path {
            reserved::ROOT => Some(ROOT_ID),
            // It may live on another partition.
            _ if is_split => self.lookup(path),
            _ => Some(self.expect_at(path, update)?),
        };
        if !self.sites.are_there() || id.is_some_and(|id| self.nodes[id].is_ephemeral()) {
            return Err(update.corrupt("it gives a token that there is none of"));
        }
        let is_hubs = holder == NO_SITE || self.is_lost(holder);
        let holder = if is_hubs { self.sites.hub } else { holder };
        id.into_iter().for_each(|id| self.set_mark(id, digest::of_path(path), holder));
        if is_split {
            self.sites.divided.marks.insert(path.into(), holder);
        }
        if self.sites.maker_of(update.zxid) == self.sites.own {
            self.sites.streams.recall_is_done(path);
        }
        Ok(())
    }
}

impl Update<'_> {
    /// To which site the session of the update goes with it.
    #[must_use]
    pub fn new_home(&self) -> Option<SiteId> {
        // It is never one of several. Every update is asked, and hardly any is one.
        if !self.is_of_kind(HOME) {
            return None;
        }
        let mut home = None;
        let seen = self.for_each_op(|op| {
            if let Op::Site(SiteOp::Home { site, .. }) = op {
                home = Some(site);
            }
            Ok(())
        });
        home.filter(|_| seen.is_ok())
    }
}

impl Update<'_> {
    /// If it says who is the hub and who is none of the sites: those that are given up with it.
    #[must_use]
    pub fn lost_sites(&self) -> Option<SiteSet> {
        if !self.is_of_kind(REIGN) && !self.is_of_kind(RETURN) {
            return None;
        }
        let mut all = SiteSet::default();
        let seen = self.for_each_op(|op| {
            if let Op::Site(SiteOp::Reign { lost, .. }) = op {
                all = lost;
            }
            Ok(())
        });
        seen.ok().map(|()| all)
    }
}

impl Op<'_> {
    /// Whether it is for the site alone that has prepared it: its servers, its partitions, and what it is.
    pub(crate) fn is_of_one_site(&self) -> bool {
        match *self {
            Self::Site(SiteOp::Begin { .. }) | Self::Partition(_) => true,
            Self::SetData { path, .. } => path == reserved::CONFIG_PATH,
            _ => false,
        }
    }
}
